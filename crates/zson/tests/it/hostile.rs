//! Damaged, truncated and crafted datums: an error, never other data.

use pgshrink_testkit::seed::Seed;
use pgshrink_zson::datum::parse;
use pgshrink_zson::limits::RAW_BYTES_MAX;
use pgshrink_zson::{Decoder, Error};

use crate::fixtures::{
    choice, current, datums, decode, documents, encode, object, raw_content, reading, trained, writing,
};

#[test]
fn a_datum_cut_anywhere_is_an_error() {
    let mut rng = Seed::from_env_or_time().rng();
    for fields in [0, 1, 5, 30] {
        let document = object(&mut rng, fields);
        for (datum, dictionary) in datums(&document) {
            for len in 0..datum.len() {
                let error = decode(&datum[..len], dictionary.as_ref()).unwrap_err();
                assert!(error.is_corruption(), "{len} of {}: {error}", datum.len());
            }
        }
    }
}

#[test]
fn bytes_behind_a_datum_are_an_error() {
    let document = object(&mut Seed(3).rng(), 30);
    for (mut datum, dictionary) in datums(&document) {
        for extra in [&[0][..], &[1, 0, 0], &datum.clone()] {
            let len = datum.len();
            datum.extend_from_slice(extra);
            assert!(decode(&datum, dictionary.as_ref()).is_err(), "{extra:?}");
            datum.truncate(len);
        }
    }
}

#[test]
fn a_flipped_bit_is_an_error() {
    let mut rng = Seed::from_env_or_time().rng();
    for fields in [0, 3, 25] {
        let document = object(&mut rng, fields);
        for (datum, dictionary) in datums(&document) {
            for bit in 0..datum.len() * 8 {
                let mut flipped = datum.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                // The original's version: its reader is asked, and its dictionaries are others.
                if flipped[0] == 0 {
                    continue;
                }
                // A literal that no reader looks at, such as padding of a bit stream, may leave the document as it is.
                if let Ok(found) = decode(&flipped, dictionary.as_ref()) {
                    assert!(found == document, "bit {bit} of {} gives another document", datum.len());
                }
            }
        }
    }
}

#[test]
fn damage_in_large_documents_is_noticed() {
    let mut rng = Seed::from_env_or_time().rng();
    for document in documents(&mut rng).into_iter().filter(|document| document.len() > 50_000) {
        for text in ["zstd:1", "lz4", "none"] {
            let datum = encode(choice(text), None, &document);
            for _ in 0..20 {
                let mut damaged = datum.clone();
                let at = rng.below(damaged.len());
                damaged[at] ^= 1 << rng.below(8);
                if damaged[0] != 0 && decode(&damaged, None).is_ok_and(|found| found != document) {
                    panic!("{text}: byte {at} of {} gives another document", datum.len());
                }
            }
        }
    }
}

#[test]
fn another_dictionary_under_the_same_id_is_an_error() {
    let document = object(&mut Seed(3).rng(), 30);
    for text in ["zstd:1", "zstd:19", "lz4"] {
        let datum = encode(choice(text), Some(&writing(4, trained(), choice(text))), &document);
        let error = decode(&datum, Some(&reading(4, &raw_content()))).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("dictionary 4"), "{text}: {error}");
    }
}

#[test]
fn a_missing_dictionary_and_a_wrong_one_say_which_is_needed() {
    let document = object(&mut Seed(3).rng(), 30);
    let datum = encode(choice("zstd"), Some(&writing(4, trained(), choice("zstd"))), &document);
    let missing = decode(&datum, None).unwrap_err();
    assert!(matches!(missing, Error::DictionaryMissing { needed } if needed.get() == 4));
    let wrong = decode(&datum, Some(&reading(5, trained()))).unwrap_err();
    assert_eq!(wrong.to_string(), "zson datum needs dictionary 4, but 5 was given");
    assert!(!wrong.is_corruption());
}

#[test]
fn a_newer_version_is_unsupported_and_not_corrupt() {
    for version in 3..16u8 {
        let error = parse(&[version << 4, 1, 2, 3, 4, 5]).unwrap_err();
        assert_eq!(error, Error::Unsupported { found: version, known: 2 });
        assert!(!error.is_corruption());
    }
}

#[test]
fn tags_that_mean_nothing_are_corrupt() {
    let of_version_2 = (0x20..=0x2f).filter(|tag| *tag != 0x2c);
    for tag in (1..=15u8).chain([0x14, 0x15, 0x16, 0x17, 0x18, 0x1c, 0x1d, 0x1e, 0x1f]).chain(of_version_2) {
        let error = parse(&[tag, 5, 100, 1, 2, 3, 4, 5, 6]).unwrap_err();
        assert!(error.is_corruption(), "{tag:02x}: {error}");
    }
}

#[test]
fn numbers_have_one_form_and_a_range() {
    let zstd = |number: &[u8]| [&[0x11], number, &[0; 40]].concat();
    assert_eq!(current(&zstd(&[0xac, 0x02])).unwrap().raw_len(), 300);
    for number in [
        &[0][..],
        &[0x80, 0],
        &[0xac, 0x82, 0],
        &[0xff, 0xff, 0xff, 0xff, 0x1f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 1],
    ] {
        assert!(parse(&zstd(number)).is_err_and(|error| error.is_corruption()), "{number:02x?}");
    }
    // A dictionary id of 2^31.
    let datum = [&[0x19, 0x80, 0x80, 0x80, 0x80, 0x08, 100][..], &[0; 40]].concat();
    assert!(parse(&datum).is_err_and(|error| error.is_corruption()));
}

#[test]
fn a_size_that_the_payload_cannot_have_is_refused_before_memory_is_taken() {
    let varint = |mut value: usize| {
        let mut bytes = Vec::new();
        while value > 127 {
            bytes.push(value as u8 | 128);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let datum = |tag: u8, raw_len: usize, payload: usize| {
        [&[tag], &varint(raw_len)[..], &[1, 2, 3, 4], &vec![0; payload]].concat()
    };
    for (tag, payload, allowed) in
        [(0x11, 1000, 128 << 10), (0x12, 4, 128 << 10), (0x12, 1 << 20, RAW_BYTES_MAX), (0x13, 10, 2550)]
    {
        assert_eq!(current(&datum(tag, allowed, payload)).unwrap().raw_len(), allowed);
        let error = parse(&datum(tag, allowed + 1, payload)).unwrap_err();
        assert!(matches!(error, Error::Corrupt { expected, found, .. }
            if expected == allowed as u64 && found == allowed as u64 + 1));
    }
}

#[test]
fn a_bomb_of_run_length_blocks_stops_at_the_promised_size() {
    // Blocks of 128 KiB each, where the header promises one of them.
    let block = |last: u32| ((128u32 << 10) << 3 | 1 << 1 | last).to_le_bytes()[..3].to_vec();
    let mut datum = vec![0x12, 0x80, 0x80, 0x08, 1, 2, 3, 4];
    for last in [0, 0, 0, 0, 0, 0, 0, 1] {
        datum.extend_from_slice(&block(last));
        datum.push(7);
    }
    let header = current(&datum).unwrap();
    assert_eq!(header.raw_len(), 128 << 10);
    assert!(matches!(decode(&datum, None), Err(Error::Payload { raw_len: 131_072, .. })));
}

#[test]
fn a_buffer_of_another_size_is_refused() {
    let document = object(&mut Seed(3).rng(), 30);
    let datum = encode(choice("zstd"), None, &document);
    let header = current(&datum).unwrap();
    for given in [0, document.len() - 1, document.len() + 1] {
        let refused = Decoder::new().decode(&header, None, &mut vec![0; given]);
        assert_eq!(refused, Err(Error::Target { needed: document.len(), given }));
    }
}

#[test]
fn any_bytes_are_an_error_or_a_document() {
    let mut rng = Seed::from_env_or_time().rng();
    let dictionary = reading(1, trained());
    let mut decoder = Decoder::new();
    for _ in 0..30_000 {
        let len = rng.between(1, 40);
        let mut datum = rng.bytes(len);
        datum[0] = 0x10 | (datum[0] & 0x0b);
        if let Ok(header) = current(&datum) {
            let mut target = vec![0; header.raw_len().min(1 << 20)];
            let _ = decoder.decode(&header, Some(&dictionary), &mut target);
        }
    }
}
