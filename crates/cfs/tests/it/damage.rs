//! Damage of every kind: named, never returned as data, and never in the way of dropping a relation.

use std::sync::atomic::Ordering;

use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::{Error, Folder, Options, Recovery, segment};
use pgshrink_testkit::seed::Seed;

use crate::fixture::{Bench, TestSeal, content, read, write};

const PAGES: u32 = 20;

/// A closed container: 20 pages, some rewritten, block 3 empty.
fn filled() -> Bench {
    let bench = Bench::small();
    let container = bench.create(1);
    for generation in 0..3 {
        (0..PAGES)
            .filter(|block| block % 3 >= generation)
            .for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
    }
    container.write_zeros(3).unwrap();
    container.close().unwrap();
    bench
}

fn expected(block: u32) -> Vec<u8> {
    if block == 3 { Vec::new() } else { content(block, block % 3) }
}

/// Reads all pages: how many are there, how many damaged. Panics at a wrong one.
fn survey(bench: &Bench) -> Result<(u32, u32), Error> {
    let (container, _) = bench.open()?;
    let mut found = (0, 0);
    for block in 0..PAGES {
        match read(&container, block) {
            Ok(page) => {
                assert_eq!(page, expected(block), "block {block}");
                found.0 += 1;
            }
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                found.1 += 1;
            }
        }
    }
    Ok(found)
}

#[test]
fn a_closed_container_opens_as_it_was() {
    let bench = filled();
    let (container, report) = bench.open().unwrap();
    assert!(report.was_closed && report.broken_roots.is_empty() && report.missing_bytes == 0, "{report:?}");
    assert_eq!(container.pages(), PAGES);
    assert_eq!(survey(&bench).unwrap(), (PAGES, 0));
}

#[test]
fn a_flipped_bit_anywhere_is_found_or_does_no_harm() {
    let bench = filled();
    let whole = bench.bytes();
    let mut rng = Seed::from_env_or_time().rng();
    let (mut refused, mut damaged, mut harmless) = (0, 0, 0);
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        bytes[rng.below(whole.len())] ^= 1 << rng.below(8);
        bench.set_bytes(bytes);
        match survey(&bench) {
            Ok((_, 0)) => harmless += 1,
            Ok(_) => damaged += 1,
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                refused += 1;
            }
        }
    }
    println!("refused {refused}, damaged pages {damaged}, harmless {harmless}");
    assert!(damaged > 0);
}

#[test]
fn a_file_cut_anywhere_is_found() {
    let bench = filled();
    let whole = bench.bytes();
    for length in (0..whole.len()).step_by(97) {
        bench.set_bytes(whole[..length].to_vec());
        match survey(&bench) {
            // Before the last live record.
            Ok((_, damaged)) => assert!(damaged > 0 || length + 4096 > whole.len(), "cut at {length}"),
            Err(error) => assert!(error.is_damage(), "{error}"),
        }
    }
}

#[test]
fn disk_blocks_of_another_container_are_found() {
    let bench = filled();
    let mine = bench.bytes();
    let other = Bench::small();
    let container = other.create(2);
    (0..PAGES).for_each(|block| write(&container, block, 9));
    container.close().unwrap();
    let theirs = other.bytes();
    for start in (0..mine.len().min(theirs.len()) - 4096).step_by(4096) {
        let mut bytes = mine.clone();
        bytes[start..start + 4096].copy_from_slice(&theirs[start..start + 4096]);
        bench.set_bytes(bytes);
        // A root of another container among ours either loses against ours or leads to nothing of its own.
        if let Ok((container, _)) = bench.open() {
            for block in 0..container.pages() {
                if let Ok(page) = read(&container, block) {
                    assert!(page == expected(block), "disk block at {start}, block {block}");
                }
            }
        }
    }
}

#[test]
fn an_older_root_is_no_way_back_to_reused_space() {
    let bench = Bench::small();
    let container = bench.create(1);
    let mut older = None;
    for generation in 0..60 {
        (0..PAGES).for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
        older = older.or_else(|| Some(bench.bytes()[..12288].to_vec()));
    }
    let mut bytes = bench.bytes();
    bytes[..12288].copy_from_slice(&older.unwrap());
    bench.set_bytes(bytes);
    match bench.open() {
        Err(error) => assert!(error.is_damage(), "{error}"),
        Ok((container, _)) => {
            for block in 0..container.pages() {
                // What the old root refers to is its own state, or named as gone.
                match read(&container, block) {
                    Ok(page) => assert_eq!(page, content(block, 0)),
                    Err(error) => assert!(error.is_damage(), "{error}"),
                }
            }
        }
    }
}

#[test]
fn foreign_older_and_newer_files_are_refused_by_name() {
    let bench = filled();
    bench.set_bytes(b"not a container at all".repeat(1000));
    assert!(matches!(bench.open(), Err(Error::Foreign { .. })));
    for version in [1, 3] {
        let bench = filled();
        let mut bytes = bench.bytes();
        for disk_block in 0..3 {
            bytes[disk_block * 4096 + 12] = version;
            let crc = crc32fast::hash(&bytes[disk_block * 4096 + 12..(disk_block + 1) * 4096]);
            bytes[disk_block * 4096 + 8..disk_block * 4096 + 12].copy_from_slice(&crc.to_le_bytes());
        }
        bench.set_bytes(bytes);
        let expected =
            format!("container needs format version {version:#x}, but this version supports only 0x2");
        assert_eq!(bench.open().map(drop).unwrap_err().to_string(), expected);
    }
}

#[test]
fn size_and_unlink_succeed_on_anything() {
    let bench = filled();
    let mut bytes = bench.bytes();
    bytes.iter_mut().skip(300).for_each(|byte| *byte ^= 0x55);
    bench.set_bytes(bytes);
    assert!(bench.open().is_err());
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    assert_eq!(segment::peek_pages(&file), PAGES);
    bench.set_bytes(vec![3; 100]);
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    assert_eq!(segment::peek_pages(&file), 0);
    segment::unlink(&bench.disk).unwrap();
    segment::unlink(&bench.disk).unwrap();
}

#[test]
fn salvage_reads_pages_out_when_the_map_is_gone() {
    let bench = filled();
    let whole = bench.bytes();
    let (container, report) = bench.salvage().unwrap();
    assert!(report.map_is_whole && report.lost.is_empty() && report.records >= 20, "{report:?}");
    assert_eq!(read(&container, 5).unwrap(), expected(5));
    // All roots broken, but for the container's id.
    let mut bytes = whole.clone();
    (0..3).for_each(|disk_block| bytes[disk_block * 4096 + 300..(disk_block + 1) * 4096].fill(9));
    bench.set_bytes(bytes);
    assert!(bench.open().is_err());
    let (container, report) = bench.salvage().unwrap();
    assert!(!report.map_is_whole && report.failure.is_some());
    for block in 0..PAGES {
        // That a page was made empty is written nowhere else.
        let page = read(&container, block).unwrap();
        assert!(page == expected(block) || block == 3, "block {block}");
    }
    assert!(matches!(container.commit(), Err(Error::ReadOnly)));
}

/// An older root may be of an empty container, and its map whole.
#[test]
fn salvage_does_not_take_an_older_root_for_the_last_one() {
    let bench = filled();
    let whole = bench.bytes();
    for kept in 0..3 {
        for (rest, filler) in [(0..4096, 0), (909..4096, 9)] {
            let mut bytes = whole.clone();
            (0..3).filter(|disk_block| *disk_block != kept).for_each(|disk_block| {
                bytes[disk_block * 4096..(disk_block + 1) * 4096][rest.clone()].fill(filler);
            });
            bench.set_bytes(bytes);
            let (container, report) = bench.salvage().unwrap();
            for block in 0..PAGES {
                let page = read(&container, block).unwrap();
                assert!(page == expected(block) || block == 3, "root {kept}, block {block}: {report:?}");
            }
            let (_, opened) = bench.open().unwrap();
            assert_eq!(opened.whole_roots, 1);
        }
    }
    // The first root alone is that of the empty container; so is that of one that crashed before its first
    // commit.
    let new = Bench::small();
    drop(new.create(1));
    let (_, opened) = new.open().unwrap();
    assert!(!opened.may_be_older(), "{opened:?}");
    let (_, report) = new.salvage().unwrap();
    assert!(report.map_is_whole && report.lost.is_empty(), "{report:?}");
}

/// A container begins with a durable root in its first slot, and no write makes zeros of it.
#[test]
fn a_first_root_of_zeros_is_damage_and_another_slot_of_zeros_is_none() {
    let bench = filled();
    let whole = bench.bytes();
    for slot in 0..3 {
        let mut bytes = whole.clone();
        bytes[slot * 4096..(slot + 1) * 4096].fill(0);
        bench.set_bytes(bytes);
        let (_, report) = bench.open().unwrap();
        let found: Vec<u64> = report.broken_roots.iter().map(|damage| damage.offset).collect();
        assert_eq!(found, if slot == 0 { vec![0] } else { vec![] }, "slot {slot}");
        assert!(report.whole_roots == 2 && report.was_closed, "slot {slot}: {report:?}");
    }
}

#[test]
fn i4_a_missing_entry_is_an_error_and_the_injected_zeros_are_not() {
    let damaged = |fault| {
        let mut bench = Bench::small();
        bench.options.fault = fault;
        let container = bench.create(1);
        (0..5).for_each(|block| write(&container, block, 0));
        container.commit().unwrap();
        let words = bench.words();
        let (container, _) = bench.open_in(words).unwrap();
        bench.entry(words, 2).store(0, Ordering::SeqCst);
        read(&container, 2)
    };
    let error = damaged(Fault::None).unwrap_err();
    assert_eq!(error.to_string(), "damaged page of block 2: there is no entry for it (byte 0, 0 bytes)");
    assert_eq!(damaged(Fault::MissingReadsAsZeros), Ok(Vec::new()));
}

#[test]
fn i10_a_record_that_was_there_before_is_not_taken_for_the_new_one() {
    let stale = |fault| {
        let mut bench = Bench::small();
        bench.options.fault = fault;
        let words = bench.words();
        let container = bench.create_in(1, words);
        write(&container, 0, 1);
        container.commit().unwrap();
        let place = bench.entry(words, 0).load(Ordering::SeqCst) as u32;
        let before = bench.bytes();
        // Until a record lies where the first did.
        for generation in 2..400 {
            write(&container, 0, generation);
            container.commit().unwrap();
            if bench.entry(words, 0).load(Ordering::SeqCst) as u32 == place {
                let record = place as usize * 16..place as usize * 16 + 116;
                let mut bytes = bench.bytes();
                bytes[record.clone()].copy_from_slice(&before[record]);
                bench.set_bytes(bytes);
                return (read(&container, 0), content(0, 1));
            }
        }
        panic!("the first record's place was never used again");
    };
    let (honest, _) = stale(Fault::None);
    assert!(
        honest.unwrap_err().to_string().contains("expected a version that ends in"),
        "the older record was not refused"
    );
    let (injected, old) = stale(Fault::ReaderIgnoresTag);
    assert_eq!(injected, Ok(old));
}

fn sealed(nonces: impl FnMut() -> u64 + 'static) -> (Bench, &'static TestSeal) {
    let seal: &'static TestSeal = Box::leak(Box::new(TestSeal::new(5, nonces)));
    let options = Options { seal: Some(seal), ..crate::plan::options(Fault::None, 0) };
    (Bench::new(options), seal)
}

#[test]
fn roots_and_map_records_written_on_purpose_do_not_panic() {
    let bench = filled();
    let whole = bench.bytes();
    let mut rng = Seed::from_env_or_time().rng();
    let mut opened = 0;
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        for disk_block in bytes[..12288].chunks_exact_mut(4096) {
            for _ in 0..rng.between(1, 4) {
                let at = match rng.below(10) {
                    0..=6 => rng.between(254, 420),
                    7 | 8 => rng.between(40, 116),
                    _ => rng.between(212, 238),
                };
                disk_block[at] =
                    if rng.chance(50) { rng.bits() as u8 } else { disk_block[at] ^ (1 << rng.below(8)) };
            }
            let crc = crc32fast::hash(&disk_block[12..]);
            disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        bench.set_bytes(bytes);
        let recovery = if rng.chance(50) { Recovery::RollForward } else { Recovery::Discard };
        if let Ok((container, _)) = bench.recover(recovery) {
            opened += 1;
            (0..container.pages()).for_each(|block| drop(read(&container, block)));
            write(&container, 1, 5);
            drop(container.collect(pgshrink_cfs::Budget { bytes: 1 << 20, garbage_percent: 0 }));
            drop(container.commit());
        }
        if let Ok((container, _)) = bench.salvage() {
            (0..container.pages()).for_each(|block| drop(read(&container, block)));
        }
    }
    println!("opened {opened} of 2000");
    assert!(opened > 0);
}

#[test]
fn moved_and_rekeyed_containers_say_so_in_the_clear() {
    let (mut bench, _) = sealed({
        let mut next = 0;
        move || {
            next += 1;
            next
        }
    });
    let container = bench.create(1);
    write(&container, 0, 1);
    container.commit().unwrap();
    let moved = pgshrink_cfs::Identity { tablespace: 1, database: 2, relation: 3, fork: 0, segment: 4 };
    container.rename(moved).unwrap();
    assert_eq!(container.identity().unwrap(), moved);
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let clear = segment::clear(&file).unwrap();
    assert_eq!((clear.identity, clear.key_id, clear.is_whole, clear.pages), (moved, [5; 16], true, 1));
    container.rekey([6; 16], [8; pgshrink_cfs::KEY_BYTES]).unwrap();
    let clear = segment::clear(&file).unwrap();
    assert_eq!((clear.key_id, clear.key), ([6; 16], [8; pgshrink_cfs::KEY_BYTES]));
    let other = Box::leak(Box::new(TestSeal::new(7, || 1000)));
    for wrong in [None, Some(other as &dyn pgshrink_cfs::Seal)] {
        bench.options.seal = wrong;
        assert!(matches!(bench.open(), Err(Error::KeyMissing { needed }) if needed == [6; 16]));
    }
    // The same data key under either name: the roots from before are no hindrance, nor is one who had it before.
    for name in [6, 5] {
        let seal = TestSeal { name, ..TestSeal::new(5, || 1000) };
        bench.options.seal = Some(Box::leak(Box::new(seal)));
        let (container, _) = bench.open().unwrap();
        assert_eq!(read(&container, 0).unwrap(), content(0, 1));
    }
}

fn has_repeats(seal: &TestSeal) -> bool {
    let mut used = seal.used.borrow().clone();
    used.sort_unstable();
    used.windows(2).any(|pair| pair[0] == pair[1])
}

#[test]
fn a_sealed_container_opens_with_its_key_only_and_its_records_cannot_change_places() {
    let mut next = 0;
    let (mut bench, seal) = sealed(move || {
        next += 1;
        next
    });
    let container = bench.create(1);
    (0..PAGES).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    let id = container.add_dictionary([1; 16], b"words of a page").unwrap();
    assert_eq!(container.dictionary(id).unwrap(), ([1; 16], b"words of a page".to_vec()));
    container.collect(pgshrink_cfs::Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    container.close().unwrap();
    assert!(!has_repeats(seal));
    let (container, _) = bench.open().unwrap();
    assert_eq!(read(&container, 7).unwrap(), content(7, 1));
    let plain = bench.bytes();
    assert!(!plain.windows(12).any(|window| window == b"generation 1"));
    bench.options.seal = None;
    assert!(matches!(bench.open(), Err(Error::KeyMissing { needed }) if needed == [5; 16]));
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    assert_eq!(segment::peek_pages(&file), PAGES);
}

#[test]
fn a_nonce_reused_after_a_fork_is_caught() {
    // Two processes whose generators were seeded before the fork.
    let mut state = 0;
    let (bench, seal) = sealed(move || {
        state += 1;
        state
    });
    let container = bench.create(1);
    write(&container, 0, 1);
    let mut copy = seal.used.borrow().len() as u64;
    *seal.nonces.borrow_mut() = Box::new(move || {
        copy += 1;
        copy - 1
    });
    write(&container, 1, 1);
    assert!(has_repeats(seal), "the second process drew what the first had drawn");
}

#[test]
fn names_of_files_are_made_after_their_first_root() {
    let disk = Disk::new(1, || ());
    assert!(disk.open(segment::FILE_NAME).is_err());
    let bench = filled();
    assert!(bench.disk.open(segment::NEW_FILE_NAME).is_err());
}

#[test]
fn decoders_take_anything() {
    let mut rng = Seed::from_env_or_time().rng();
    let whole = filled().bytes();
    for _ in 0..20_000 {
        let from = rng.below(whole.len() / 16) * 16;
        let length = rng.below(600).min(whole.len() - from);
        let mut bytes = whole[from..from + length].to_vec();
        for _ in 0..rng.below(4) {
            if let Some(byte) = bytes.get_mut(rng.below(length)) {
                *byte ^= 1 << rng.below(8);
            }
        }
        pgshrink_cfs::decoders::all(&bytes);
        pgshrink_cfs::decoders::all(bytes.get(16..).unwrap_or_default());
    }
}
