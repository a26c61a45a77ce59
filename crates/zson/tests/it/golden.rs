//! The golden files of `formats/zson`: what was once valid stays readable, what was once refused stays refused.
//!
//! `PGSHRINK_WRITE_GOLDEN=1` writes the files that are missing. One that exists is never written again.

use std::path::PathBuf;
use std::sync::OnceLock;

use pgshrink_codec::Dictionary;
use pgshrink_testkit::seed::Seed;
use pgshrink_zson::datum::{Stored, parse};
use pgshrink_zson::legacy::Words;
use pgshrink_zson::{Decoder, Error, ReadingDictionary};

use crate::fixtures::{choice, encode, id, object, raw_content, reading, trained, writing};
use crate::{golden_shapes, independent};

/// Datum and document.
const GOLDEN: [(&str, &str); 21] = [
    ("raw.datum", "document.jsonb"),
    ("zstd-alone.datum", "document.jsonb"),
    ("zstd-trained.datum", "document.jsonb"),
    ("zstd-raw-content.datum", "document.jsonb"),
    ("zstd-blocks.datum", "blocks.jsonb"),
    ("lz4-alone.datum", "document.jsonb"),
    ("lz4-trained.datum", "document.jsonb"),
    ("lz4-raw-content.datum", "document.jsonb"),
    ("legacy.datum", "legacy.jsonb"),
    ("shapes-record.datum", "shapes-record.jsonb"),
    ("shapes-array.datum", "shapes-array.jsonb"),
    ("shapes-zstd.datum", "shapes-zstd.jsonb"),
    ("shapes-everything.datum", "shapes-everything.jsonb"),
    ("shapes-strange.datum", "shapes-strange.jsonb"),
    ("shapes-nested.datum", "shapes-nested.jsonb"),
    ("shapes-scalar.datum", "shapes-scalar.jsonb"),
    ("shapes-blocks.datum", "shapes-blocks.jsonb"),
    ("shapes-further.datum", "shapes-further.jsonb"),
    ("shapes-further-inside.datum", "shapes-further-inside.jsonb"),
    ("shapes-long.datum", "shapes-long.jsonb"),
    ("shapes-long-blocks.datum", "shapes-long-blocks.jsonb"),
];

/// Datum and what its error begins with.
const ERRORS: [(&str, &str); 42] = [
    ("empty.datum", "corrupt zson datum: length in bytes, at least, should be 1, is 0"),
    // Written when there was no version 2; its form is none of that version.
    ("version-2.datum", "corrupt zson datum: form of version 2 should be 4, is 0"),
    ("version-3.datum", "zson datum of format version 3, newer than 2"),
    ("version-0-form-1.datum", "corrupt zson datum: format version should be 1, is 0"),
    ("form-4.datum", "corrupt zson datum: form, at most, should be 3, is 4"),
    ("raw-with-dictionary.datum", "corrupt zson datum: dictionary bit of a raw document should be 0, is 1"),
    ("dictionary-zero.datum", "corrupt zson datum: dictionary id should be 1, is 0"),
    (
        "dictionary-over-int4.datum",
        "corrupt zson datum: dictionary id, at most, should be 2147483647, is 2147483648",
    ),
    ("long-number.datum", "corrupt zson datum: document size should be 1, is 100"),
    ("size-over-block.datum", "corrupt zson datum: document size, at most, should be 131072, is 131073"),
    (
        "size-over-jsonb.datum",
        "corrupt zson datum: document size, at most, should be 268435455, is 268435456",
    ),
    ("truncated.datum", "corrupt zson datum: payload of "),
    ("check.datum", "corrupt zson datum: check sum should be "),
    ("other-dictionary.datum", "corrupt zson datum: "),
    ("two-frames.datum", "corrupt zson datum: payload of "),
    ("bomb.datum", "corrupt zson datum: payload of "),
    ("legacy-unknown-code.datum", "zson 1.x datum refers to code 9, which its dictionary 3 does not have"),
    (
        "legacy-without-end.datum",
        "corrupt zson datum: bytes left for a token of a zson 1.x datum should be 1, is 0",
    ),
    ("legacy-size.datum", "corrupt zson datum: decoded size of a zson 1.x datum should be 12, is 13"),
    ("shapes-form-3.datum", "corrupt zson datum: form of version 2 should be 4, is 3"),
    (
        "shapes-without-dictionary.datum",
        "corrupt zson datum: dictionary bit of a document of shapes should be 1, is 0",
    ),
    ("shapes-check.datum", "corrupt zson datum: check sum should be "),
    ("shapes-truncated.datum", "corrupt zson datum: check sum should be "),
    ("shapes-without-payload.datum", "corrupt zson datum: payload size, at least, should be 1, is 0"),
    ("shapes-between-blocks.datum", "corrupt zson datum: payload size, at least, should be 4097, is 4094"),
    ("shapes-other-dictionary.datum", "corrupt zson datum: check sum should be "),
    ("shapes-size.datum", "corrupt zson datum: payload of "),
    (
        "shapes-size-over-limit.datum",
        "corrupt zson datum: document size, at most, should be 16777216, is 16777217",
    ),
    ("shapes-too-deep.datum", "corrupt zson datum: payload of "),
    ("shapes-absent.datum", "corrupt zson datum: payload of 1 bytes for 12 (dictionary 70000)"),
    ("shapes-unknown-value.datum", "corrupt zson datum: payload of 1 bytes for 12 (dictionary 70000)"),
    ("shapes-unknown-shape.datum", "corrupt zson datum: payload of 2 bytes for 4 (dictionary 70000)"),
    ("shapes-unknown-phrase.datum", "corrupt zson datum: payload of 5 bytes for 20 (dictionary 70000)"),
    ("shapes-behind.datum", "corrupt zson datum: payload of 2 bytes for 8 (dictionary 70000)"),
    ("shapes-further-absent.datum", "corrupt zson datum: payload of 15 bytes for 100 (dictionary 70000)"),
    (
        "shapes-further-unknown-shape.datum",
        "corrupt zson datum: payload of 14 bytes for 4 (dictionary 70000)",
    ),
    ("shapes-numeric-length.datum", "corrupt zson datum: payload of 9 bytes for 14 (dictionary 70000)"),
    ("shapes-further-behind.datum", "corrupt zson datum: payload of 14 bytes for 4 (dictionary 70000)"),
    ("shapes-long-damaged.datum", "corrupt zson datum: payload of 7 bytes for 3008 (dictionary 70000)"),
    ("shapes-long-behind.datum", "corrupt zson datum: payload of 8 bytes for 3008 (dictionary 70000)"),
    ("shapes-long-room.datum", "corrupt zson datum: payload of 7 bytes for 2999 (dictionary 70000)"),
    ("shapes-unknown-column.dictionary", "zson dictionary of shapes: its schema is malformed"),
];

fn path(folder: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("{}/../../formats/zson/{folder}/{name}", env!("CARGO_MANIFEST_DIR")))
}

fn read(folder: &str, name: &str) -> Vec<u8> {
    let path = path(folder, name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}; PGSHRINK_WRITE_GOLDEN=1 writes it"))
}

/// A file that was written before.
pub fn existing(folder: &str, name: &str) -> Option<Vec<u8>> {
    std::fs::read(path(folder, name)).ok()
}

const DICTIONARIES: [(u32, &str); 4] = [
    (7, "trained.dictionary"),
    (300, "raw-content.dictionary"),
    (golden_shapes::TRAINED_ID, "shapes.dictionary"),
    (golden_shapes::BY_HAND_ID, "shapes-by-hand.dictionary"),
];

fn dictionaries() -> &'static [ReadingDictionary] {
    static READ: OnceLock<Vec<ReadingDictionary>> = OnceLock::new();
    READ.get_or_init(|| {
        let read = |(id, name)| reading(id, &Dictionary::new(read("golden", name)).unwrap());
        DICTIONARIES.map(read).into()
    })
}

fn words() -> Words {
    let text = String::from_utf8(read("golden", "legacy.words")).unwrap();
    Words::new(text.lines().map(|line| {
        let (id, word) = line.split_once(' ').unwrap();
        (id.parse().unwrap(), word.as_bytes().to_vec())
    }))
    .unwrap()
}

fn decode(datum: &[u8]) -> Result<Vec<u8>, Error> {
    match parse(datum)? {
        Stored::Legacy(datum) => {
            let words = words();
            words.verify(&datum)?;
            let mut document = vec![0; datum.raw_len()];
            words.decode(&datum, &mut document).map(|()| document)
        }
        Stored::Current(header) => {
            let dictionary = dictionaries().iter().find(|known| Some(known.id()) == header.dictionary());
            let mut document = vec![0; header.raw_len()];
            Decoder::new().decode(&header, dictionary, &mut document).map(|()| document)
        }
    }
}

#[test]
fn golden_files_read_as_ever() {
    write_missing();
    for (datum, document) in GOLDEN {
        assert!(decode(&read("golden", datum)).unwrap() == read("golden", document), "{datum}");
    }
}

#[test]
fn golden_errors_are_refused_with_their_reason() {
    write_missing();
    for (datum, message) in ERRORS {
        let bytes = read("golden-errors", datum);
        let error = if datum.ends_with(".dictionary") {
            let dictionary = Dictionary::new(bytes).unwrap();
            ReadingDictionary::new(id(1), &dictionary).expect_err(datum)
        } else {
            decode(&bytes).expect_err(datum)
        };
        let error = error.to_string();
        assert!(error.starts_with(message), "{datum}: {error}");
    }
    for entry in std::fs::read_dir(path("golden-errors", "")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(ERRORS.iter().any(|(known, _)| *known == name), "{name} has no expectation");
    }
}

#[test]
fn every_damage_to_a_golden_file_is_noticed() {
    for (name, document) in GOLDEN.iter().filter(|(name, _)| *name != "legacy.datum") {
        let (good, document) = (read("golden", name), read("golden", document));
        // Of a long one, some.
        for bit in (8..good.len() * 8).step_by(1 + good.len() / 500) {
            let mut damaged = good.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged).map_or(true, |found| found == document), "{name}: bit {bit}");
        }
    }
}

#[test]
fn the_reader_from_the_page_agrees_on_golden_files() {
    let dictionaries = [
        (golden_shapes::TRAINED_ID, "shapes.dictionary"),
        (golden_shapes::BY_HAND_ID, "shapes-by-hand.dictionary"),
    ]
    .map(|(number, name)| (id(number), Dictionary::new(read("golden", name)).unwrap()));
    let document = |datum: &[u8]| {
        let Ok(Stored::Current(header)) = parse(datum) else { return None };
        let (_, dictionary) = dictionaries.iter().find(|(id, _)| header.dictionary() == Some(*id))?;
        independent::document(dictionary, datum)
    };
    for (name, expected) in GOLDEN.iter().filter(|(name, _)| name.starts_with("shapes-")) {
        let found = document(&read("golden", name));
        assert!(found.is_some() != (*name == "shapes-zstd.datum"), "{name}");
        assert!(found.is_none_or(|found| found == read("golden", expected)), "{name}");
    }
    for (name, _) in ERRORS.iter().filter(|(name, _)| name.starts_with("shapes-")) {
        assert_eq!(document(&read("golden-errors", name)), None, "{name}");
    }
}

fn write_missing() {
    if std::env::var_os("PGSHRINK_WRITE_GOLDEN").is_none() {
        return;
    }
    for (folder, name, bytes) in
        golden().into_iter().chain(errors()).chain(golden_shapes::golden()).chain(golden_shapes::errors())
    {
        let path = path(folder, name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            std::fs::write(path, bytes).unwrap();
        }
    }
}

pub type File = (&'static str, &'static str, Vec<u8>);

fn golden() -> Vec<File> {
    let document = object(&mut Seed(77).rng(), 20);
    let with = |text: &str, number: u32, dictionary: &Dictionary| {
        encode(choice(text), Some(&writing(number, dictionary, choice(text))), &document)
    };
    // A raw block, then a run of 20.
    let blocks = b"{\"raw\":true}zzzzzzzzzzzzzzzzzzzz".to_vec();
    let payload = [&[12 << 3, 0, 0][..], &blocks[..12], &[20 << 3 | 1 << 1 | 1, 0, 0, b'z']].concat();
    [
        ("document.jsonb", document.clone()),
        ("trained.dictionary", trained().bytes().to_vec()),
        ("raw-content.dictionary", raw_content().bytes().to_vec()),
        ("raw.datum", encode(choice("none"), None, &document)),
        ("zstd-alone.datum", encode(choice("zstd:3"), None, &document)),
        ("zstd-trained.datum", with("zstd:3", 7, trained())),
        ("zstd-raw-content.datum", with("zstd:19", 300, &raw_content())),
        ("zstd-blocks.datum", crafted(0x12, &blocks, &payload)),
        ("blocks.jsonb", blocks),
        ("lz4-alone.datum", encode(choice("lz4"), None, &document)),
        ("lz4-trained.datum", with("lz4", 7, trained())),
        ("lz4-raw-content.datum", with("lz4", 300, &raw_content())),
        ("legacy.words", b"1 name\n2 city\n258 Andorra\n".to_vec()),
        ("legacy.datum", legacy(14, b"\0\0\x01\x02: \x01\x02\x01.\0\0\0")),
        ("legacy.jsonb", b"name: Andorra.".to_vec()),
    ]
    .map(|(name, bytes)| ("golden", name, bytes))
    .into()
}

fn errors() -> Vec<File> {
    let document = object(&mut Seed(77).rng(), 20);
    let good = encode(choice("zstd:3"), Some(&writing(7, trained(), choice("zstd:3"))), &document);
    let flipped = |at: usize, with: u8| {
        let mut datum = good.clone();
        datum[at] ^= with;
        datum
    };
    let other = [&[good[0], 0xac, 0x02], &good[2..]].concat();
    let frame = [20 << 3 | 1 << 1 | 1, 0, 0, b'z'];
    let second = [&frame[..], &[0x28, 0xb5, 0x2f, 0xfd, 0, 0x88], &frame].concat();
    // Many blocks of 128 KiB where one is promised.
    let bomb = [0, 0, 0, 0, 1].map(|last: u32| [((128u32 << 13) | 1 << 1 | last).to_le_bytes()].concat());
    let bomb: Vec<u8> = bomb.iter().flat_map(|block| [&block[..3], b"z"].concat()).collect();
    [
        ("empty.datum", vec![]),
        ("version-2.datum", vec![0x20, 1, 2, 3, 4]),
        ("version-0-form-1.datum", vec![0x01, 1, 2, 3, 4]),
        ("form-4.datum", vec![0x14, 1, 2, 3, 4, 5, 6]),
        ("raw-with-dictionary.datum", vec![0x18, 7, 1, 2, 3, 4]),
        ("dictionary-zero.datum", vec![0x19, 0, 100, 1, 2, 3, 4, 5]),
        ("dictionary-over-int4.datum", vec![0x19, 0x80, 0x80, 0x80, 0x80, 8, 100, 1, 2, 3, 4, 5]),
        ("long-number.datum", vec![0x11, 0xe4, 0, 1, 2, 3, 4, 5]),
        ("size-over-block.datum", vec![0x11, 0x81, 0x80, 0x08, 1, 2, 3, 4, 5]),
        ("size-over-jsonb.datum", [&[0x12, 0x80, 0x80, 0x80, 0x80, 1, 1, 2, 3, 4][..], &[0; 9000]].concat()),
        ("truncated.datum", good[..good.len() - 1].to_vec()),
        ("check.datum", flipped(4, 1)),
        ("other-dictionary.datum", other),
        ("two-frames.datum", crafted(0x12, &[b'z'; 40], &second)),
        ("bomb.datum", crafted(0x12, &vec![b'z'; 128 << 10], &bomb)),
        ("legacy-unknown-code.datum", legacy(6, b"\0\0\x01\0\0\x09\0")),
        ("legacy-without-end.datum", legacy(4, b"\0\0\x01")),
        ("legacy-size.datum", legacy(12, b"\0\0\x01\x02: \x01\x02\0")),
    ]
    .map(|(name, bytes)| ("golden-errors", name, bytes))
    .into()
}

/// A datum without dictionary of a tag below 128 and a document whose check sum is taken from its raw form.
fn crafted(tag: u8, document: &[u8], payload: &[u8]) -> Vec<u8> {
    let raw = encode(choice("none"), None, document);
    let mut datum = vec![tag];
    let mut len = document.len();
    while len > 127 {
        datum.push(len as u8 | 128);
        len >>= 7;
    }
    datum.push(len as u8);
    datum.extend_from_slice(&raw[1..4]);
    // The tag is mixed into the last byte.
    datum.push(raw[4] ^ raw[0] ^ tag);
    datum.extend_from_slice(payload);
    datum
}

fn legacy(raw_len: u32, tokens: &[u8]) -> Vec<u8> {
    [&[0, 3, 0, 0, 0][..], &raw_len.to_le_bytes(), &[0; 32], tokens].concat()
}
