use pgshrink_codec::block::{Compressor, Decompressor};
use pgshrink_codec::limits::{BLOCK_RAW_MAX, DICTIONARY_BYTES_MAX};
use pgshrink_codec::{Algorithm, AlgorithmList, Choice, Dictionary, Error, Level};

use crate::random::Random;

const WITH_DICTIONARY: [Algorithm; 3] = [Algorithm::Zstd, Algorithm::Lz4, Algorithm::Zlib];

fn choices() -> Vec<Choice> {
    [
        "none", "pglz", "lz4", "lz4:30", "zlib:1", "zlib", "zlib:9", "zstd:-5", "zstd:1", "zstd", "zstd:19",
        "snappy", "lzfse",
    ]
    .iter()
    .map(|text| text.parse::<AlgorithmList>().unwrap().get(0).unwrap())
    .collect()
}

fn compress(compressor: &mut Compressor, choice: Choice, raw: &[u8]) -> Vec<u8> {
    let mut out = b"earlier".to_vec();
    compressor.compress(choice, raw, &mut out).unwrap();
    assert_eq!(&out[..7], b"earlier");
    out.split_off(7)
}

fn decompress(algorithm: Algorithm, block: &[u8], raw_len: usize) -> Result<Vec<u8>, Error> {
    let mut out = b"earlier".to_vec();
    let done = Decompressor::new().decompress(algorithm, block, raw_len, &mut out);
    assert!(done.is_ok() || out == b"earlier", "{algorithm}: bytes left behind by an error");
    done.map(|()| out.split_off(7))
}

#[test]
fn every_algorithm_gives_a_block_back_exactly() {
    let mut random = Random::seeded("blocks");
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    for _ in 0..40 {
        let raw = random.chunk();
        for choice in choices() {
            let block = compress(&mut compressor, choice, &raw);
            let mut back = Vec::new();
            decompressor.decompress(choice.algorithm, &block, raw.len(), &mut back).unwrap();
            assert!(back == raw, "{choice}: {} bytes differ", raw.len());
        }
    }
}

#[test]
fn the_empty_block_and_the_smallest_come_back() {
    let mut compressor = Compressor::new();
    for choice in choices() {
        for raw in [&b""[..], b"x", b"ab", b"aaa", b"\0\0\0\0"] {
            let block = compress(&mut compressor, choice, raw);
            assert_eq!(decompress(choice.algorithm, &block, raw.len()).unwrap(), raw, "{choice}");
        }
    }
}

#[test]
fn a_block_of_another_size_than_promised_is_corrupt() {
    let raw = Random::fixed(2).rows(3000);
    let mut compressor = Compressor::new();
    for choice in choices() {
        let block = compress(&mut compressor, choice, &raw);
        for promised in [0, 1, 2999, 3001, 4000, 1 << 20] {
            let error = decompress(choice.algorithm, &block, promised).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{choice}, {promised}: {error}");
        }
        let longer = [&block[..], b"x"].concat();
        assert!(
            decompress(choice.algorithm, &longer, raw.len()).is_err(),
            "{choice}: a byte after the block"
        );
    }
}

#[test]
fn a_block_truncated_anywhere_is_corrupt() {
    let raw = Random::fixed(3).rows(600);
    let mut compressor = Compressor::new();
    for choice in choices() {
        let block = compress(&mut compressor, choice, &raw);
        for cut in 0..block.len() {
            let error = decompress(choice.algorithm, &block[..cut], raw.len()).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{choice}, {cut}: {error}");
        }
    }
}

#[test]
fn flipped_bits_give_an_error_or_exactly_the_promised_size() {
    let raw = Random::fixed(4).rows(700);
    let mut compressor = Compressor::new();
    let mut decompressor = Decompressor::new();
    for choice in choices() {
        let block = compress(&mut compressor, choice, &raw);
        let mut refused = 0;
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut out = Vec::new();
            match decompressor.decompress(choice.algorithm, &damaged, raw.len(), &mut out) {
                Ok(()) => assert_eq!(out.len(), raw.len()),
                Err(_) => {
                    assert!(out.is_empty());
                    refused += 1;
                }
            }
            // The context is as good as before.
            decompressor.decompress(choice.algorithm, &block, raw.len(), &mut out).unwrap();
        }
        assert!(refused > 0 || choice.algorithm == Algorithm::None, "{choice}");
    }
}

#[test]
fn random_bytes_are_never_a_block_that_overruns() {
    let mut random = Random::seeded("random blocks");
    let mut decompressor = Decompressor::new();
    for _ in 0..3000 {
        let len = random.below(200);
        let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        for &algorithm in Algorithm::ALL {
            let (mut out, raw_len) = (Vec::new(), random.below(5000));
            if decompressor.decompress(algorithm, &bytes, raw_len, &mut out).is_ok() {
                assert_eq!(out.len(), raw_len);
            }
        }
    }
}

#[test]
fn a_promise_beyond_the_format_or_the_limit_is_refused_before_memory_is_taken() {
    let raw = vec![0; 100_000];
    let mut compressor = Compressor::new();
    for choice in choices() {
        let block = compress(&mut compressor, choice, &raw);
        let error = decompress(choice.algorithm, &block, BLOCK_RAW_MAX + 1).unwrap_err();
        let allowed = BLOCK_RAW_MAX as u64;
        assert_eq!(error, Error::Limit { what: "raw block size", found: allowed + 1, allowed }, "{choice}");
        let mut out = Vec::new();
        let _ = Decompressor::new().decompress(choice.algorithm, &block[..4], BLOCK_RAW_MAX, &mut out);
        assert!(out.capacity() < 1 << 20, "{choice}: {} bytes for 4", out.capacity());
    }
}

#[test]
fn each_level_of_each_algorithm_works_and_others_are_refused() {
    let raw = Random::fixed(5).rows(5000);
    let mut compressor = Compressor::new();
    for &algorithm in Algorithm::ALL {
        let range = algorithm.levels();
        for level in (range.min.0.max(-3)..=range.max.0.min(22)).chain([range.min.0, range.max.0]) {
            let choice = Choice { algorithm, level: Level(level) };
            let block = compress(&mut compressor, choice, &raw);
            assert_eq!(decompress(algorithm, &block, raw.len()).unwrap(), raw, "{choice}");
        }
        for level in [range.min.0 - 3, range.max.0 + 1] {
            let mut out = Vec::new();
            let error = compressor.compress(Choice { algorithm, level: Level(level) }, &raw, &mut out);
            assert!(matches!(error, Err(Error::Level { .. })), "{algorithm}:{level}");
        }
    }
}

fn documents(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::fixed(seed);
    let kind = ["created", "shipped", "returned"];
    (0..count)
        .map(|_| {
            let (id, total) = (random.below(1 << 30), random.below(100_000));
            let state = random.one_of(&kind);
            format!(
                r#"{{"order_id": {id}, "customer": {{"name": "customer-{}", "country": "DE"}}, "state": "{state}", "total_cents": {total}, "tags": ["web", "eu-central-1"]}}"#,
                random.below(500)
            )
            .into_bytes()
        })
        .collect()
}

#[test]
fn a_trained_dictionary_makes_small_documents_much_smaller() {
    let dictionary = Dictionary::train(&documents(1, 2000), 8192).unwrap();
    assert!(dictionary.bytes().len() <= 8192);
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    for algorithm in WITH_DICTIONARY {
        let choice = Choice::from(algorithm);
        let (mut alone, mut together) = (0, 0);
        for raw in documents(2, 50) {
            alone += compress(&mut compressor, choice, &raw).len();
            let (mut block, mut back) = (Vec::new(), Vec::new());
            compressor.compress_with(choice, &dictionary, &raw, &mut block).unwrap();
            together += block.len();
            decompressor.decompress_with(algorithm, &dictionary, &block, raw.len(), &mut back).unwrap();
            assert_eq!(back, raw, "{algorithm}");
        }
        assert!(together * 2 < alone, "{algorithm}: {alone} bytes alone, {together} with the dictionary");
    }
}

#[test]
fn dictionaries_levels_and_none_alternate_in_one_context() {
    let one = Dictionary::new(documents(1, 30).concat()).unwrap();
    let other = Dictionary::new(documents(9, 5).concat()).unwrap();
    let mut random = Random::seeded("alternation");
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    let raw = &documents(3, 1)[0];
    for step in 0..300 {
        let algorithm = random.one_of(&WITH_DICTIONARY);
        let choice = Choice { algorithm, level: Level(1 + random.below(6) as i32) };
        let (mut block, mut back) = (Vec::new(), Vec::new());
        match random.one_of(&[None, Some(&one), Some(&other)]) {
            None => {
                compressor.compress(choice, raw, &mut block).unwrap();
                decompressor.decompress(algorithm, &block, raw.len(), &mut back).unwrap();
            }
            Some(dictionary) => {
                compressor.compress_with(choice, dictionary, raw, &mut block).unwrap();
                decompressor.decompress_with(algorithm, dictionary, &block, raw.len(), &mut back).unwrap();
            }
        }
        assert_eq!(&back, raw, "{choice}, step {step}");
        let mut fresh = Vec::new();
        Compressor::new().compress(choice, raw, &mut fresh).unwrap();
        let mut again = Vec::new();
        compressor.compress(choice, raw, &mut again).unwrap();
        assert_eq!(again, fresh, "{choice}, step {step}: something of the dictionary is left");
    }
}

#[test]
fn a_block_without_its_dictionary_is_corrupt_or_of_the_promised_size() {
    let dictionary = Dictionary::new(documents(1, 30).concat()).unwrap();
    let raw = &documents(4, 1)[0];
    for algorithm in WITH_DICTIONARY {
        let mut block = Vec::new();
        Compressor::new().compress_with(Choice::from(algorithm), &dictionary, raw, &mut block).unwrap();
        let error = decompress(algorithm, &block, raw.len()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        let other = Dictionary::new(vec![b'x'; 4000]).unwrap();
        let mut out = Vec::new();
        match Decompressor::new().decompress_with(algorithm, &other, &block, raw.len(), &mut out) {
            Ok(()) => assert!(out.len() == raw.len() && algorithm != Algorithm::Zlib),
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
        }
    }
}

#[test]
fn the_algorithms_without_dictionaries_say_so() {
    let dictionary = Dictionary::new(b"abc".to_vec()).unwrap();
    for &algorithm in Algorithm::ALL {
        let done =
            Compressor::new().compress_with(Choice::from(algorithm), &dictionary, b"abc", &mut Vec::new());
        match done {
            Ok(()) => assert!(WITH_DICTIONARY.contains(&algorithm)),
            Err(error) => {
                assert_eq!(error, Error::Unsupported { algorithm, what: "dictionaries" });
                let out = &mut Vec::new();
                let done = Decompressor::new().decompress_with(algorithm, &dictionary, b"abc", 3, out);
                assert_eq!(done, Err(error));
            }
        }
    }
}

#[test]
fn the_same_samples_train_the_same_dictionary_and_too_few_or_too_much_is_refused() {
    let samples = documents(1, 800);
    let dictionary = Dictionary::train(&samples, 4096).unwrap();
    assert_eq!(dictionary, Dictionary::train(&samples, 4096).unwrap());
    assert_eq!(dictionary.hash(), Dictionary::new(dictionary.bytes().to_vec()).unwrap().hash());
    assert_ne!(dictionary.hash(), Dictionary::new(b"other".to_vec()).unwrap().hash());
    assert!(matches!(Dictionary::train(&samples[..2], 4096), Err(Error::Training { .. })));
    assert!(matches!(Dictionary::train::<Vec<u8>>(&[], 4096), Err(Error::Training { .. })));
    assert!(matches!(Dictionary::new(Vec::new()), Err(Error::Training { .. })));
    let limit = Error::Limit {
        what: "dictionary size",
        found: DICTIONARY_BYTES_MAX as u64 + 1,
        allowed: DICTIONARY_BYTES_MAX as u64,
    };
    assert_eq!(Dictionary::new(vec![0; DICTIONARY_BYTES_MAX + 1]), Err(limit.clone()));
    assert_eq!(Dictionary::train(&samples, DICTIONARY_BYTES_MAX + 1), Err(limit));
}

#[test]
fn the_hash_of_a_dictionary_is_the_sha_256_of_its_content() {
    let dictionary = Dictionary::new(b"abc".to_vec()).unwrap();
    // FIPS 180-2, appendix B.1.
    assert_eq!(dictionary.hash()[..4], [0xba, 0x78, 0x16, 0xbf]);
    assert_eq!(format!("{dictionary:?}"), "Dictionary(3 bytes, ba7816bf..)");
}

#[test]
fn parts_become_one_zstd_block() {
    let mut random = Random::seeded("parts");
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    for round in 0..60 {
        let mut parts: Vec<Vec<u8>> = (0..round % 7).map(|_| random.chunk()).collect();
        if random.chance(20) {
            parts.push(vec![]);
        }
        let raw = parts.concat();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut out = b"earlier".to_vec();
        compressor.compress_zstd_parts(Level(round % 5), &parts, &mut out).unwrap();
        // What shares the context is not disturbed.
        compress(&mut compressor, Choice::new(Algorithm::Zstd, 3).unwrap(), &raw);
        let mut back = Vec::new();
        decompressor.decompress(Algorithm::Zstd, &out[7..], raw.len(), &mut back).unwrap();
        assert!(back == raw);
    }
    let mut out = b"earlier".to_vec();
    assert!(compressor.compress_zstd_parts(Level(99), &[b"x"], &mut out).is_err());
    assert_eq!(out, b"earlier");
}

#[test]
fn parts_of_different_content_have_tables_of_their_own() {
    let mut random = Random::seeded("tables");
    let digits: Vec<u8> = (0..40_000).map(|_| b'0' + random.below(10) as u8).collect();
    let capitals: Vec<u8> = (0..40_000).map(|_| b'A' + random.below(26) as u8).collect();
    let mut compressor = Compressor::new();
    let mut size = |parts: &[&[u8]]| {
        let mut out = Vec::new();
        compressor.compress_zstd_parts(Level(1), parts, &mut out).unwrap();
        out.len()
    };
    let joined = [&digits[..], &capitals].concat();
    let (apart, together) = (size(&[&digits, &capitals]), size(&[&joined]));
    assert!(apart * 21 < together * 20, "{apart}, {together}");
}
