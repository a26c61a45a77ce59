//! Datums from anywhere: no panic, the promised size or an error, and whatever decodes is what its check sum says.
//! The same bytes as a document: they come back from every codec.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pgshrink_codec::{Algorithm, Choice, Dictionary};
use pgshrink_zson::datum::{OVERHEAD_BYTES_MAX, Stored, parse};
use pgshrink_zson::legacy::Words;
use pgshrink_zson::{Decoder, DictionaryId, Encoder, ReadingDictionary, WritingDictionary};

/// The golden trained dictionary, so that its entropy tables take part.
static BYTES: &[u8] = include_bytes!("../../formats/zson/golden/trained.dictionary");
const ID: DictionaryId = DictionaryId::new(7).unwrap();
const RAW_BYTES_MAX: usize = 4 << 20;

static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(|| Dictionary::new(BYTES.to_vec()).unwrap());
static READING: LazyLock<ReadingDictionary> =
    LazyLock::new(|| ReadingDictionary::new(ID, &DICTIONARY).unwrap());
static WRITING: LazyLock<[WritingDictionary; 2]> = LazyLock::new(|| {
    [Algorithm::Zstd, Algorithm::Lz4]
        .map(|algorithm| WritingDictionary::new(ID, &DICTIONARY, Choice::from(algorithm)).unwrap())
});
static WORDS: LazyLock<Words> = LazyLock::new(|| {
    Words::new([(1, b"name".to_vec()), (2, b"city".to_vec()), (258, vec![b'x'; 300])].into_iter()).unwrap()
});

fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::new();
    match parse(data) {
        Ok(Stored::Current(header)) if header.raw_len() <= RAW_BYTES_MAX => {
            let mut document = vec![0; header.raw_len()];
            let _ = decoder.decode(&header, Some(&READING), &mut document);
        }
        Ok(Stored::Legacy(datum)) => {
            let verified = WORDS.verify(&datum);
            if datum.raw_len() <= RAW_BYTES_MAX {
                let mut document = vec![0; datum.raw_len()];
                assert_eq!(verified, WORDS.decode(&datum, &mut document));
            }
        }
        _ => {}
    }
    let mut encoder = Encoder::new();
    for writing in &*WRITING {
        for dictionary in [None, Some(writing)] {
            let mut datum = Vec::new();
            encoder.encode(writing.choice(), dictionary, data, &mut datum).unwrap();
            assert!(datum.len() <= data.len() + OVERHEAD_BYTES_MAX);
            let Ok(Stored::Current(header)) = parse(&datum) else { panic!("our own datum is refused") };
            let mut back = vec![0; header.raw_len()];
            decoder.decode(&header, Some(&READING), &mut back).unwrap();
            assert!(back == data);
        }
    }
});
