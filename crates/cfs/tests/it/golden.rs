//! Containers that must be read for ever, and damaged ones that must be refused with the reason.

use std::path::PathBuf;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::plant::Plant;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::{Container, Device, Folder, Options, Recovery, Scratch, Stored, segment};

use crate::fixture::{Bench, content, read, write};

fn folder(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../formats/cfs").join(kind)
}

/// A container whose whole map is in its roots.
fn inline() -> Vec<u8> {
    let bench = Bench::new(Options { plant: Plant::None, ..crate::plan::options(Plant::None, 1) });
    let container = bench.create(1);
    (0..12).for_each(|block| write(&container, block, block + 1));
    container.write_zeros(4).unwrap();
    container.close().unwrap();
    bench.bytes()
}

/// One with leaves, an index, deltas, a dictionary, a freed and refilled zone, and a truncation.
fn folded() -> Vec<u8> {
    let bench = Bench::small();
    let container = bench.create(2);
    let dictionary = container.add_dictionary([3; 16], b"what pages have in common").unwrap();
    for generation in 0..8 {
        (0..40).for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
    }
    container.truncate(30).unwrap();
    let mut scratch = Scratch::new();
    container.write(20, 9, dictionary, &content(20, 77), &mut scratch).unwrap();
    (0..8).for_each(|block| write(&container, block, 8));
    container.commit().unwrap();
    (8..10).for_each(|block| write(&container, block, 8));
    container.commit().unwrap();
    bench.bytes()
}

type Open = Container<'static, pgshrink_cfs::sim::DiskFile, Alone>;

fn open(bytes: Vec<u8>) -> Result<Open, pgshrink_cfs::Error> {
    let disk = Disk::new(1, || ());
    let file = disk.create(segment::FILE_NAME).unwrap();
    file.pwrite(&bytes, 0).unwrap();
    let options = Options { read_only: true, ..crate::plan::options(Plant::None, 0) };
    let words = Bench::small().words();
    Container::open(file, Alone, words, Recovery::Discard, options).map(|(container, _)| container)
}

fn golden(kind: &str, name: &str) -> Vec<u8> {
    std::fs::read(folder(kind).join(name)).unwrap()
}

#[test]
fn a_golden_container_with_its_map_in_the_root_is_read() {
    let container = open(golden("golden", "inline.cfs")).unwrap();
    assert_eq!(container.pages(), 12);
    for block in 0..12 {
        let expected = if block == 4 { Vec::new() } else { content(block, block + 1) };
        assert_eq!(read(&container, block).unwrap(), expected);
    }
}

#[test]
fn a_golden_container_with_leaves_deltas_and_a_dictionary_is_read() {
    let container = open(golden("golden", "folded.cfs")).unwrap();
    assert_eq!(container.pages(), 30);
    for block in (0..30).filter(|block| *block != 20) {
        assert_eq!(read(&container, block).unwrap(), content(block, if block < 10 { 8 } else { 7 }));
    }
    let mut scratch = Scratch::new();
    let expected = content(20, 77);
    let stored = container.read(20, &mut scratch).unwrap();
    assert_eq!(stored, Stored::Record { mode: 9, dictionary: 1, payload: &expected });
    assert_eq!(container.dictionary(1).unwrap(), ([3; 16], b"what pages have in common".to_vec()));
}

#[test]
fn golden_damage_is_refused_with_its_reason() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder("golden-errors")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".cfs") else { continue };
        let reason = String::from_utf8(golden("golden-errors", &format!("{stem}.txt"))).unwrap();
        let outcome = open(golden("golden-errors", &name)).and_then(|container| {
            (0..container.pages()).try_for_each(|block| read(&container, block).map(drop))
        });
        assert_eq!(outcome.unwrap_err().to_string(), reason.trim_end(), "{name}");
        names.push(name);
    }
    assert!(names.len() >= 7, "{names:?}");
}

/// A damaged golden container: its name and what is done to it.
type Damaging = (&'static str, fn(&mut Vec<u8>));

const DAMAGED: [Damaging; 8] = [
    ("foreign", |bytes| bytes[..12288].fill(b'x')),
    ("no-root", |bytes| (0..3).for_each(|sheet| bytes[sheet * 4096 + 400] ^= 1)),
    ("newer-version", |bytes| {
        for sheet in bytes[..12288].chunks_exact_mut(4096) {
            sheet[12] = 2;
            let crc = crc32fast::hash(&sheet[12..]);
            sheet[8..12].copy_from_slice(&crc.to_le_bytes());
        }
    }),
    ("unknown-feature", |bytes| {
        for sheet in bytes[..12288].chunks_exact_mut(4096) {
            sheet[23] = 128;
            let crc = crc32fast::hash(&sheet[12..]);
            sheet[8..12].copy_from_slice(&crc.to_le_bytes());
        }
    }),
    ("cut", |bytes| bytes.truncate(20_000)),
    ("records-gone", |bytes| bytes[12288..].fill(0)),
    ("sheets-swapped", |bytes| {
        let (first, second) = bytes[12288..].split_at_mut(4096);
        first.swap_with_slice(&mut second[..4096]);
    }),
    ("flipped-bits", |bytes| bytes[12288..].iter_mut().step_by(64).for_each(|byte| *byte ^= 4)),
];

#[test]
#[ignore = "writes golden files that are not there yet"]
fn write_goldens() {
    let fresh = |kind: &str, name: String, bytes: &[u8]| {
        std::fs::create_dir_all(folder(kind)).unwrap();
        let path = folder(kind).join(name);
        if !path.exists() {
            std::fs::write(path, bytes).unwrap();
        }
    };
    fresh("golden", "inline.cfs".into(), &inline());
    fresh("golden", "folded.cfs".into(), &folded());
    for (name, damage) in DAMAGED {
        let mut bytes = golden("golden", "folded.cfs");
        damage(&mut bytes);
        let outcome = open(bytes.clone()).and_then(|container| {
            (0..container.pages()).try_for_each(|block| read(&container, block).map(drop))
        });
        fresh("golden-errors", format!("{name}.cfs"), &bytes);
        fresh("golden-errors", format!("{name}.txt"), format!("{}\n", outcome.unwrap_err()).as_bytes());
    }
}
