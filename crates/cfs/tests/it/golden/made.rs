//! How golden containers were made.

use std::cell::Cell;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs::seal::{MasterKey, Random, Secret};
use pgshrink_cfs::{Birth, Container, Device, Folder, Identity, KEY_BYTES, Options, Scratch, Seal, segment};

use super::golden_page;
use crate::fixture::{Bench, Open, content, write};
use crate::seal::container::{place, places, transplant};
use crate::seal::{CHEAP, key, passphrase};

/// A golden container: its name and what makes it.
type Making = (&'static str, fn() -> Vec<u8>);
/// A damaged one: its name, what it was before, and what is done to it.
type Damaging = (&'static str, &'static str, fn(&mut Vec<u8>));

// leaves.cfs is made by formats/cfs/reference.py.
pub const GOLDEN: [Making; 12] = [
    ("inline", inline),
    ("folded", folded),
    ("algorithms", algorithms),
    ("grown", grown),
    ("wide", wide),
    ("numbers", numbers),
    ("sealed-key", || sealed(&key(1))),
    ("sealed-passphrase", || sealed(&passphrase("correct horse"))),
    ("policy", policy),
    ("base-whole", base_whole),
    ("base-leaving", base_leaving),
    ("base-returning", base_returning),
];

/// Bases beside containers, and of how many pages: of golden ones, and of damaged ones.
pub const BASES: [(&str, &str, u8); 5] = [
    ("golden", "base-whole", BASE_PAGES),
    ("golden", "base-leaving", BASE_PAGES),
    ("golden", "base-returning", BASE_PAGES),
    ("golden-errors", "base-whole-with-pages", BASE_PAGES),
    ("golden-errors", "base-returning-cut", 1),
];

/// Modes of the first blocks of `algorithms`, each of the same page: pglz, LZ4, zlib, zstd, Snappy, LZFSE, as
/// it is, rearranged, and with a dictionary.
pub const MODES: [u8; 16] = [1, 2, 3, 4, 5, 6, 9, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x12, 0x14, 0x1a, 0x1c];
/// A page stored raw is the one before it.
pub const ZEROS: u32 = MODES.len() as u32 + 1;
/// A page whose check sum is implied, at the block that it is of.
pub const CHECKSUM: u32 = 40;

/// A container whose whole map is in its roots.
fn inline() -> Vec<u8> {
    let bench = Bench::new(Options { fault: Fault::None, ..crate::plan::options(Fault::None, 1) });
    let container = bench.create(1);
    (0..12).for_each(|block| write(&container, block, block + 1));
    container.write_zeros(4).unwrap();
    container.close().unwrap();
    bench.bytes()
}

/// One with leaves, an index, deltas, a dictionary, a freed and refilled extent, and a truncation.
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

fn algorithms() -> Vec<u8> {
    let bench = Bench::small();
    let container = bench.create(4);
    let number = container.add_dictionary([4; 16], &golden_page("pages.dictionary")).unwrap();
    let mut scratch = Scratch::new();
    for (block, mode) in (0..).zip(MODES) {
        let payload = golden_page(&format!("heap-prices.{mode:02x}"));
        let number = if mode & 0x10 != 0 { number } else { 0 };
        container.write(block, mode, number, &payload, &mut scratch).unwrap();
    }
    container.write(ZEROS - 1, 0x07, 0, &golden_page("heap-prices.page"), &mut scratch).unwrap();
    container.write_zeros(ZEROS).unwrap();
    container.write(CHECKSUM, 0x4c, 0, &golden_page("heap-checksum.4c"), &mut scratch).unwrap();
    container.close().unwrap();
    bench.bytes()
}

/// Cut to 10 pages, committed, and grown to 40 by a write of the last, all others zeros.
fn grown() -> Vec<u8> {
    let bench = Bench::small();
    let container = bench.create(5);
    (0..30).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    container.truncate(10).unwrap();
    container.commit().unwrap();
    write(&container, 39, 2);
    container.close().unwrap();
    bench.bytes()
}

/// Three leaves, and a root that has newer entries of two of them.
fn wide() -> Vec<u8> {
    let bench = Bench::new(crate::plan::wide_options(Fault::None, 0));
    let container = bench.create(7);
    let mut scratch = Scratch::new();
    for block in 0..1200 {
        container.write(block, 1, 0, format!("page {block}").as_bytes(), &mut scratch).unwrap();
    }
    container.commit().unwrap();
    container.write(600, 1, 0, b"replaced", &mut scratch).unwrap();
    container.write_zeros(1100).unwrap();
    container.close().unwrap();
    bench.bytes()
}

/// The last of so many dictionaries, with a page.
pub const NUMBERS: u16 = 300;

fn numbers() -> Vec<u8> {
    let bench = Bench::small();
    let container = bench.create(8);
    for expected in 1..=NUMBERS {
        let [low, high] = expected.to_le_bytes();
        let mut name = [0; 16];
        name[..2].copy_from_slice(&[low, high]);
        let number = container.add_dictionary(name, format!("dictionary {expected}").as_bytes()).unwrap();
        assert_eq!(number, expected);
        if number < NUMBERS {
            assert!(container.drop_dictionary(number).unwrap());
        }
    }
    container.write(0, 9, NUMBERS, &content(0, 1), &mut Scratch::new()).unwrap();
    container.close().unwrap();
    bench.bytes()
}

/// Of the bases of golden containers.
pub const BASE_PAGES: u8 = 6;
/// What a server keeps there for zstd:9.
pub const POLICY: u32 = 9 << 8 | 5;

/// A base: each page is full of its number plus one.
pub fn base(pages: u8) -> Vec<u8> {
    (1..=pages).flat_map(|number| [number; PAGE_SIZE]).collect()
}

/// A container without a base, whose root keeps how its pages are written.
fn policy() -> Vec<u8> {
    let bench = Bench::small();
    let container = bench.create(9);
    (0..6).for_each(|block| write(&container, block, block));
    container.set_policy(POLICY).unwrap();
    container.close().unwrap();
    bench.bytes()
}

/// A container beside a whole base.
fn over_base(bench: &Bench, policy: u32) -> Open<'static> {
    let base = bench.disk.create(segment::BASE_NAME).unwrap();
    base.pwrite(&self::base(BASE_PAGES), 0).unwrap();
    let birth = Birth { id: [10; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let file = bench.disk.create(segment::FILE_NAME).unwrap();
    Container::create_over_base(file, Alone, bench.words(), (&birth, policy), bench.options).unwrap()
}

fn base_whole() -> Vec<u8> {
    let bench = Bench::small();
    drop(over_base(&bench, 0));
    bench.bytes()
}

/// Blocks 0, 2 and 3 are in the base; 1 and 6 are records; 4 and 5 were cut off and are zeros now, although the base
/// has pages of these numbers.
fn leaving(bench: &Bench) -> Open<'static> {
    let container = over_base(bench, POLICY);
    assert!(container.freeze() && container.begin_leaving().unwrap());
    write(&container, 1, 1);
    container.truncate(4).unwrap();
    write(&container, 6, 1);
    container.commit().unwrap();
    container
}

fn base_leaving() -> Vec<u8> {
    let bench = Bench::small();
    drop(leaving(&bench));
    bench.bytes()
}

/// The same on its way back.
fn base_returning() -> Vec<u8> {
    let bench = Bench::small();
    let container = leaving(&bench);
    container.set_policy(POLICY | 1 << 31).unwrap();
    assert!(container.begin_returning().unwrap());
    bench.bytes()
}

/// Not random at all: golden files are the same whenever they are made.
struct Counting(Cell<u64>);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0.set(self.0.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407));
            *byte = (self.0.get() >> 56) as u8;
        }
    }
}

fn sealed(secret: &Secret) -> Vec<u8> {
    let (bench, container) = sealed_by(secret);
    for generation in 0..3 {
        (0..20)
            .filter(|block| block % 3 >= generation)
            .for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
    }
    container.add_dictionary([3; 16], b"what pages have in common").unwrap();
    container.close().unwrap();
    bench.bytes()
}

fn sealed_by(secret: &Secret) -> (Bench, Open<'static>) {
    let random = Counting(Cell::new(1));
    let master = MasterKey::with_cost(secret, CHEAP, &random).unwrap();
    let mut bench = Bench::small();
    let mut birth = Birth { id: [6; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let (data, slot) = master.new_data_key(&birth.id, &random);
    birth.key = slot;
    let seal: &'static dyn Seal = Box::leak(Box::new(data.into_seal(master.id(), random)));
    bench.options.seal = Some(seal);
    let container = segment::create(&bench.disk, Alone, bench.words(), &birth, bench.options).unwrap();
    (bench, container)
}

fn for_each_slot(bytes: &mut [u8], change: impl Fn(&mut [u8])) {
    // A container that was never committed has one slot.
    let end = bytes.len().min(12288);
    for slot in bytes[..end].chunks_exact_mut(4096) {
        change(slot);
        let crc = crc32fast::hash(&slot[12..]);
        slot[8..12].copy_from_slice(&crc.to_le_bytes());
    }
}

pub const DAMAGED: [Damaging; 25] = [
    ("foreign", "folded", |bytes| bytes[..12288].fill(b'x')),
    ("no-root", "folded", |bytes| (0..3).for_each(|slot| bytes[slot * 4096 + 400] ^= 1)),
    ("older-version", "folded", |bytes| for_each_slot(bytes, |slot| slot[12] = 1)),
    ("newer-version", "folded", |bytes| for_each_slot(bytes, |slot| slot[12] = 3)),
    ("unknown-feature", "folded", |bytes| for_each_slot(bytes, |slot| slot[23] = 128)),
    ("cut", "folded", |bytes| bytes.truncate(20_000)),
    ("records-gone", "folded", |bytes| bytes[12288..].fill(0)),
    ("sheets-swapped", "folded", |bytes| {
        let (first, second) = bytes[12288..].split_at_mut(4096);
        first.swap_with_slice(&mut second[..4096]);
    }),
    ("flipped-bits", "folded", |bytes| bytes[12288..].iter_mut().step_by(64).for_each(|byte| *byte ^= 4)),
    ("dictionary-flipped", "folded", |bytes| {
        let at = bytes.windows(10).position(|window| window == b"what pages").unwrap();
        bytes[at] ^= 1;
    }),
    // Costs the pages of that leaf, and no others.
    ("leaf-flipped", "wide", |bytes| {
        let is_second_leaf =
            |at: &usize| bytes[*at + 7] & 128 != 0 && bytes[*at + 14..*at + 18] == [0, 1, 1, 0];
        let at = (12288..bytes.len() - 32).step_by(16).find(is_second_leaf).unwrap();
        bytes[at + 40] ^= 1;
    }),
    // Block 6 begins inside the record of block 5.
    ("entries-overlap", "inline", |bytes| for_each_slot(bytes, |slot| move_entry(slot, 6, |at| at - 1))),
    ("entry-past-end", "inline", |bytes| for_each_slot(bytes, |slot| move_entry(slot, 9, |_| 0xf0_0000))),
    // The slots of an earlier commit, put back: what they lead to was written over.
    ("roots-rolled-back", "folded", |bytes| {
        let bench = Bench::small();
        let container = bench.create(2);
        container.add_dictionary([3; 16], b"what pages have in common").unwrap();
        (0..40).for_each(|block| write(&container, block, 0));
        container.commit().unwrap();
        bytes[..12288].copy_from_slice(&bench.bytes()[..12288]);
    }),
    ("sealed-other-key", "inline", |bytes| *bytes = sealed(&key(2))),
    ("sealed-slot-flipped", "sealed-key", |bytes| for_each_slot(bytes, |slot| slot[116 + 45] ^= 1)),
    ("sealed-root-forged", "sealed-key", |bytes| for_each_slot(bytes, |slot| slot[56] += 1)),
    // A page's own older record, with a check sum that is right where it is now.
    ("sealed-record-rolled-back", "sealed-key", |bytes| {
        let (bench, container) = sealed_by(&key(1));
        (0..20).for_each(|block| write(&container, block, 0));
        container.commit().unwrap();
        let older = bench.bytes();
        let older = older[place(&older, 6, 7)].to_vec();
        let newest = newest(bytes, 7);
        transplant(bytes, 6, newest, &older[16..]);
    }),
    // Another page's, of the same length.
    ("sealed-record-transplanted", "sealed-key", |bytes| {
        let (bench, container) = sealed_by(&key(1));
        container.write(1, 1, 0, &content(7, 1), &mut Scratch::new()).unwrap();
        container.commit().unwrap();
        let other = bench.bytes();
        let other = other[place(&other, 6, 1)].to_vec();
        let newest = newest(bytes, 7);
        transplant(bytes, 6, newest, &other[16..]);
    }),
    // The container's id in the clear, changed, with records' check sums made right: nothing of it opens.
    ("sealed-other-id", "sealed-key", |bytes| for_each_slot(bytes, |slot| slot[24..40].fill(7))),
    ("base-unannounced", "base-leaving", |bytes| for_each_slot(bytes, |slot| slot[16] &= !1)),
    ("policy-unannounced", "policy", |bytes| for_each_slot(bytes, |slot| slot[16] &= !2)),
    ("base-whole-with-pages", "base-whole", |bytes| for_each_slot(bytes, |slot| slot[56] = BASE_PAGES)),
    // No base beside it.
    ("base-missing", "base-leaving", |_| ()),
    ("base-returning-cut", "base-returning", |_| ()),
];

/// Changes the location in a block's entry in a root that has neither deltas nor dictionaries.
fn move_entry(slot: &mut [u8], block: u8, to: impl Fn(u32) -> u32) {
    let items = slot[256 + 16..].chunks_exact_mut(11);
    for item in items.filter(|item| item[..3] == [block, 0, 0] && item[3..] != [0; 8]) {
        let location = u32::from_le_bytes([item[3], item[4], item[5], item[6]]);
        item[3..7].copy_from_slice(&to(location).to_le_bytes());
    }
}

/// Where the newest record of a block lies.
fn newest(bytes: &[u8], block: u32) -> std::ops::Range<usize> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // Above it are the dictionary and the mode.
    let version = |at: usize| word(at + 8) & ((1 << 44) - 1);
    places(bytes, 6, block).max_by_key(|range| version(range.start)).unwrap()
}
