//! H: messages that name what was expected and found; commits of what has not changed; roots that lie.

use std::sync::atomic::Ordering;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::{Container, Error, Part, Recovery, Scratch};

use super::{Filled, PAGES, birth, words};
use crate::fixture::{Bench, content, read, write};
use crate::updates::Memory;

#[test]
fn a_record_of_another_page_or_length_is_named_as_that() {
    let bench = Bench::small();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    (0..3).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    let entry = |block| bench.entry(memory, block);
    // The entry of another page; one unit more than the record has.
    entry(1).store(entry(0).load(Ordering::SeqCst), Ordering::SeqCst);
    entry(0).store(entry(0).load(Ordering::SeqCst) + (1 << 32), Ordering::SeqCst);
    let message = |block| read(&container, block).unwrap_err().to_string();
    assert!(message(1).contains("expected block 1, found 0"), "{}", message(1));
    assert!(message(0).contains("expected a record of 144 bytes, found one of 128"), "{}", message(0));
}

#[test]
fn committing_what_has_not_changed_costs_no_fdatasync() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    (0..PAGES).for_each(|block| filled.write(block, 1));
    filled.container.commit().unwrap();
    let is_free = |container: &Container<'_, &Memory, Alone>| {
        file.syncs.set(0);
        let written = file.written();
        assert_eq!(container.commit().unwrap().sequence, None);
        assert_eq!((file.syncs.get(), file.written()), (0, written));
    };
    (0..3).for_each(|_| is_free(&filled.container));
    filled.write(7, 2);
    assert!(filled.container.commit().unwrap().sequence.is_some());
    is_free(&filled.container);
    filled.container.close().unwrap();
    file.syncs.set(0);
    assert_eq!(filled.container.close().unwrap().sequence, None);
    is_free(&filled.container);
    let Filled { generations, container } = filled;
    drop(container);
    let filled = Filled::open(&file, generations, Recovery::Discard);
    is_free(&filled.container);
    filled.container.truncate(100).unwrap();
    assert!(filled.container.commit().unwrap().sequence.is_some());
    is_free(&filled.container);
    filled.check();
}

#[test]
fn a_root_whose_numbers_lie_is_refused_or_read_and_never_panics() {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..20).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    let whole = bench.bytes();
    for recovery in [Recovery::Discard, Recovery::RollForward] {
        // Version limit and epoch start.
        let last = (1u64 << 44) - 2;
        for (limit, start, sequence, epoch) in [
            (0u64, 0u64, 5, 5),
            (1, 0, 5, 5),
            (1, 1, 5, 5),
            (1 << 44, 0, 5, 5),
            (1 << 44, 1 << 44, 5, 5),
            (5, 5, 5, 5),
            (5000, 1, last, 5),
            (5000, 1, last - 1, 5),
            (5000, 1, 5, u32::MAX - 1),
            (5000, 1, 5, u32::MAX - 2),
        ] {
            let mut bytes = whole.clone();
            for disk_block in bytes[..12288].chunks_exact_mut(4096) {
                disk_block[40..48].copy_from_slice(&sequence.to_le_bytes());
                disk_block[48..52].copy_from_slice(&epoch.to_le_bytes());
                disk_block[84..92].copy_from_slice(&limit.to_le_bytes());
                disk_block[92..100].copy_from_slice(&start.to_le_bytes());
                let crc = crc32fast::hash(&disk_block[12..]);
                disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
            }
            bench.set_bytes(bytes);
            match bench.recover(recovery) {
                Ok((container, _)) => {
                    (0..20).for_each(|block| drop(read(&container, block)));
                    let mut scratch = Scratch::new();
                    let written = container.write(0, 1, 0, b"more", &mut scratch);
                    let done = written.and_then(|()| container.commit().map(drop));
                    assert!(matches!(done, Ok(()) | Err(Error::Limit { .. })), "{done:?}");
                }
                Err(error) => assert!(matches!(error, Error::Limit { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn a_container_cut_inside_its_first_root_is_refused() {
    let bench = Bench::small();
    bench.create(1).close().unwrap();
    let whole = bench.bytes();
    for length in [300, 1000, 4095] {
        bench.set_bytes(whole[..length].to_vec());
        let refused = bench.open().map(drop).unwrap_err();
        assert!(refused.is_damage(), "{length}: {refused}");
        assert!(refused.to_string().contains(&format!("expected 4096 bytes in the file, found {length}")));
    }
}

#[test]
fn the_files_end_is_cut_at_opening_between_disk_blocks() {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..20).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    let committed = bench.bytes().len();
    (0..40).for_each(|block| write(&container, block % 20, 2));
    let with_tail = bench.bytes().len();
    let (_, report) = bench.open().unwrap();
    let after = bench.bytes().len();
    assert!(report.discarded_bytes > 0 && after < with_tail, "{after} of {with_tail}");
    assert!(after.is_multiple_of(4096) && after >= committed - 4096, "{after}, {committed}");
}

#[test]
fn a_root_with_something_in_its_reserved_bytes_is_refused() {
    let bench = Bench::small();
    bench.create(1).close().unwrap();
    let whole = bench.bytes();
    // In front of the features, behind the fork, in front of the body's length; a flag that nobody knows.
    for at in [14, 81, 237, 55] {
        let mut bytes = whole.clone();
        for disk_block in bytes[..12288].chunks_exact_mut(4096) {
            assert_eq!(disk_block[at], 0, "{at} is not reserved");
            disk_block[at] = 0x80;
            let crc = crc32fast::hash(&disk_block[12..]);
            disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        bench.set_bytes(bytes);
        let refused = bench.open().map(drop).unwrap_err();
        assert!(refused.is_damage(), "{at}: {refused}");
    }
}

#[test]
fn a_leaf_that_is_found_where_another_should_be_is_damage_of_its_pages_only() {
    let mut bench = Bench::new(crate::plan::wide_options(Fault::None, 0));
    bench.options.tuning.inline_max = 0;
    bench.options.tuning.deltas_max = 0;
    let container = bench.create(1);
    container.extend(700).unwrap();
    [0, 600].into_iter().for_each(|block| write(&container, block, 1));
    container.close().unwrap();
    drop(container);
    let memory = bench.words();
    let (container, _) = bench.open_in(memory).unwrap();
    let shared = SharedState::new(memory, bench.options.geometry).unwrap().shared();
    let first = shared.leaf_places[0].load(Ordering::SeqCst);
    assert!(first != 0 && shared.leaf_places[1].load(Ordering::SeqCst) != 0, "the map has no leaves");
    shared.leaf_places[1].store(first, Ordering::SeqCst);
    let refused = read(&container, 600).unwrap_err();
    assert!(matches!(&refused, Error::Damaged(damage) if damage.part == Part::MapLeaf), "{refused}");
    assert_eq!(read(&container, 0).unwrap(), content(0, 1));
}

#[test]
fn a_page_is_damaged_if_two_reads_in_a_row_fail() {
    let bench = Bench::small();
    let memory = Memory::default();
    let container =
        Container::create(&memory, Alone, words(bench.options.geometry), &birth(1), bench.options).unwrap();
    let mut scratch = Scratch::new();
    container.write(0, 1, 0, b"one", &mut scratch).unwrap();
    for (failing, is_read) in [(0, true), (1, true), (2, false), (0, true)] {
        memory.failed_reads.set(failing);
        assert_eq!(container.read(0, &mut scratch).is_ok(), is_read, "{failing} reads failed");
    }
}

#[test]
fn a_page_that_the_root_calls_missing_is_not_looked_for_in_its_leaf() {
    let bench = Bench::new(crate::plan::wide_options(Fault::None, 0));
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    container.extend(700).unwrap();
    write(&container, 600, 1);
    SharedState::new(memory, bench.options.geometry)
        .unwrap()
        .shared()
        .map_checkpoint_due
        .store(1, Ordering::SeqCst);
    container.commit().unwrap();
    write(&container, 600, 2);
    container.close().unwrap();
    let mut bytes = bench.bytes();
    let entry = bench.entry(memory, 600).load(Ordering::SeqCst);
    let item = [&[0x58, 0x02, 0x00][..], &entry.to_le_bytes()].concat();
    let mut found = 0;
    for disk_block in bytes[..12288].chunks_exact_mut(4096) {
        if let Some(at) = disk_block.windows(item.len()).position(|bytes| bytes == item) {
            disk_block[at + 3..at + item.len()].fill(0);
            let crc = crc32fast::hash(&disk_block[12..]);
            disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "the change is not in the root");
    bench.set_bytes(bytes);
    let (container, _) = bench.open().unwrap();
    let refused = read(&container, 600).unwrap_err();
    assert!(refused.is_damage(), "{refused}");
}

#[test]
fn a_record_of_the_map_of_another_kind_or_length_is_named_as_that() {
    let bench = Bench::new(crate::plan::wide_options(Fault::None, 0));
    let container = bench.create(1);
    let number = container.add_dictionary([1; 16], b"content").unwrap();
    container.extend(700).unwrap();
    write(&container, 600, 1);
    let memory = bench.words();
    container.close().unwrap();
    // The number, then where the dictionary lies and how many bytes its record has: header, number, name and
    // content.
    let disk_block = &bench.bytes()[256..4096];
    let is_it = |bytes: &[u8]| bytes[..2] == number.to_le_bytes() && bytes[6..8] == [16 + 2 + 16 + 7, 0];
    let place = disk_block.windows(10).find(|bytes| is_it(bytes)).unwrap();
    let of_dictionary = u64::from_le_bytes(place[2..].try_into().unwrap());
    let (container, _) = bench.open_in(memory).unwrap();
    let shared = SharedState::new(memory, bench.options.geometry).unwrap().shared();
    shared.map_checkpoint_due.store(1, Ordering::SeqCst);
    container.commit().unwrap();
    let longer = shared.leaf_places[1].load(Ordering::SeqCst) + (1 << 32);
    for (word, expected) in [(of_dictionary, "a record of another kind"), (longer, "expected a record of")] {
        shared.load_limit.store(700, Ordering::SeqCst);
        shared.leaves_loaded.iter().for_each(|bits| bits.store(0, Ordering::SeqCst));
        bench.entry(memory, 600).store(0, Ordering::SeqCst);
        shared.leaf_places[1].store(word, Ordering::SeqCst);
        let refused = read(&container, 600).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}
