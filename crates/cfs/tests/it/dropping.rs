//! What a server does with a segment that it does not read: whether it is there, how long it is, dropping it.
//! It succeeds on everything that can lie in a segment's place; anything else takes the server down in a loop
//! of recoveries.

use pgshrink_cfs::device::DeviceError;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::{Device, Folder, segment};

use crate::fixture::{Bench, write};

const PAGES: u32 = 20;

/// A folder, what is in it, and the size that can be made out at the least and at the most.
struct Case {
    what: String,
    disk: Disk,
    pages: std::ops::RangeInclusive<u32>,
}

fn case(what: &str, bytes: Vec<u8>, pages: std::ops::RangeInclusive<u32>) -> Case {
    let disk = Disk::new(1, || ());
    let file = disk.create(segment::FILE_NAME).unwrap();
    file.pwrite(&bytes, 0).unwrap();
    Case { what: what.to_owned(), disk, pages }
}

fn whole() -> Vec<u8> {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..PAGES).for_each(|block| write(&container, block, 1));
    container.close().unwrap();
    bench.bytes()
}

fn golden(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/cfs");
    std::fs::read(folder.join(name)).unwrap()
}

fn cases() -> Vec<Case> {
    let all = PAGES..=PAGES;
    let changed = |change: fn(&mut Vec<u8>)| {
        let mut bytes = whole();
        change(&mut bytes);
        bytes
    };
    let mut cases = vec![
        case("whole", whole(), all.clone()),
        case(
            "bodies of all roots damaged",
            changed(|bytes| (0..3).for_each(|at| bytes[at * 4096 + 300] ^= 1)),
            all.clone(),
        ),
        case("one root left", changed(|bytes| bytes[4096..12288].fill(9)), 0..=PAGES),
        case("no root left", changed(|bytes| bytes[..12288].fill(9)), 0..=0),
        case("all zeros", vec![0; 40_000], 0..=0),
        case("empty file", Vec::new(), 0..=0),
        case("foreign", b"not a container at all".repeat(1000), 0..=0),
        case("sealed, and no key", golden("golden/sealed-key.cfs"), all.clone()),
        case("sealed with a slot that no key opens", golden("golden-errors/sealed-slot-flipped.cfs"), all),
        case("a newer format", golden("golden-errors/newer-version.cfs"), 0..=30),
        case("unknown features", golden("golden-errors/unknown-feature.cfs"), 0..=30),
        Case { what: "folder without a file".to_owned(), disk: Disk::new(1, || ()), pages: 0..=0 },
    ];
    for length in [1, 11, 100, 255, 256, 4095, 4096, 4097, 8192, 12288, 13_000] {
        cases.push(case(&format!("cut to {length}"), changed(|_| ())[..length].to_vec(), 0..=PAGES));
    }
    let unborn = Disk::new(1, || ());
    unborn.create(segment::NEW_FILE_NAME).unwrap();
    cases.push(Case { what: "crashed while it was made".to_owned(), disk: unborn, pages: 0..=0 });
    let both = case("crashed while it was made anew", whole(), PAGES..=PAGES);
    both.disk.create(segment::NEW_FILE_NAME).unwrap();
    cases.push(both);
    cases
}

#[test]
fn existence_size_and_unlink_succeed_on_whatever_is_in_the_segments_place() {
    let cases = cases();
    assert!(cases.len() > 20);
    for Case { what, disk, pages } in cases {
        match disk.open(segment::FILE_NAME) {
            Ok(file) => {
                let found = segment::peek_pages(&file);
                assert!(pages.contains(&found), "{what}: {found} pages");
                let clear = segment::clear(&file);
                assert_eq!(clear.map_or(0, |clear| clear.pages), found, "{what}");
            }
            Err(error) => assert_eq!(error, DeviceError::NotFound, "{what}"),
        }
        segment::unlink(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        for name in [segment::FILE_NAME, segment::NEW_FILE_NAME] {
            assert!(disk.open(name).is_err(), "{what}: {name} is still there");
        }
        segment::unlink(&disk).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    }
}

#[test]
fn a_segment_can_be_made_where_a_crash_left_half_of_one() {
    let disk = Disk::new(1, || ());
    disk.create(segment::NEW_FILE_NAME).unwrap().pwrite(b"half a container", 0).unwrap();
    disk.set_locks_ignored(true);
    let bench = Bench { disk, options: Bench::small().options };
    let container = bench.create(1);
    write(&container, 0, 1);
    container.commit().unwrap();
    assert_eq!(bench.open().unwrap().0.pages(), 1);
}
