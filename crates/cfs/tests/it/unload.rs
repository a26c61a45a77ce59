//! Leaves of the map that are taken out of memory while the segment is in use.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::region::FIXED_WORDS;
use pgshrink_cfs::sim::{Disk, DiskFile};
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::units::Block;
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{Budget, Container, Folder, Options, Recovery, Scratch, Stats, Tuning, segment};

use crate::fixture::{Bench, Open, read};
use crate::leaves::{WIDE_PAGES, content, long, number, open, write};
use crate::plan::wide_options;
use crate::shell;

/// Unloads what was not used since the last call.
fn unload(container: &Open<'_>, words: &[AtomicU64]) -> u32 {
    let give_back = |range: std::ops::Range<usize>| words[range].iter().for_each(|word| Word::store(word, 0));
    container.unload_idle(give_back).unwrap()
}

/// Each commit writes the leaves anew that changed.
fn bench(fault: Fault) -> Bench {
    let options = wide_options(fault, 0);
    let tuning = Tuning { inline_max: 0, deltas_max: 0, ..options.tuning };
    Bench::new(Options { tuning, ..options })
}

fn filled(bench: &mut Bench) -> &'static [AtomicU64] {
    let container = bench.create(1);
    (0..WIDE_PAGES).for_each(|block| write(&container, block, 1));
    container.close().unwrap();
    bench.words()
}

#[test]
fn memory_of_leaves_that_nobody_reads_goes_back_and_the_pages_are_read_as_before() {
    use rustix::fs::FallocateFlags as Flags;
    const PAGES: u32 = 1 << 17;
    let (file, options) = long(PAGES);
    let (memory, words) = shell::anonymous(options.geometry.words());
    let container = open(&file, words, options);
    (0..PAGES).for_each(|block| assert_eq!(number(&container, block), Ok(block)));
    let full = shell::allocated_bytes(&memory);
    let punch = |range: std::ops::Range<usize>| {
        let (offset, length) = (range.start as u64 * 8, range.len() as u64 * 8);
        rustix::fs::fallocate(&memory, Flags::PUNCH_HOLE | Flags::KEEP_SIZE, offset, length).unwrap();
    };
    assert_eq!(container.unload_idle(punch), Ok(0), "all were used");
    assert_eq!(number(&container, 70_000), Ok(70_000));
    assert_eq!(container.unload_idle(punch), Ok(255));
    let left = shell::allocated_bytes(&memory);
    println!("{full} bytes of shared memory with the whole map, {left} with one leaf of it");
    assert_eq!(full - left, 255 * 4096);
    let Stats { touched_leaves, map_is_complete, .. } = container.stats();
    assert_eq!((touched_leaves, map_is_complete), (1, false));
    // A write and a small commit load nothing, and neither does looking for what is idle.
    container.write(9, 1, 0, &9u32.to_le_bytes(), &mut Scratch::new()).unwrap();
    container.commit().unwrap();
    assert_eq!(shell::allocated_bytes(&memory), left + 4096);
    assert_eq!(
        container.unload_idle(punch),
        Ok(1),
        "the leaf that was read, not the one that was written to"
    );
    assert_eq!(shell::allocated_bytes(&memory), left);
    (0..PAGES).rev().for_each(|block| assert_eq!(number(&container, block), Ok(block)));
    assert_eq!(shell::allocated_bytes(&memory), full);
    container.close().unwrap();
    let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let anew = open(&file, &words, options);
    (0..PAGES).for_each(|block| assert_eq!(number(&anew, block), Ok(block)));
}

#[test]
fn a_leaf_stays_while_it_has_what_its_record_has_not() {
    let mut bench = bench(Fault::None);
    let words = filled(&mut bench);
    let (container, _) = bench.open_in(words).unwrap();
    (0..WIDE_PAGES).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 1)));
    unload(&container, words);
    // In the first leaf, not committed.
    write(&container, 5, 2);
    assert_eq!(unload(&container, words), 1, "the second one; the third is not full");
    container.commit().unwrap();
    assert_eq!(read(&container, 600).unwrap(), content(600, 1));
    assert_eq!(unload(&container, words), 1, "the commit has written the first; the second was read");
    assert_eq!(unload(&container, words), 1);
    assert_eq!(read(&container, 5).unwrap(), content(5, 2));
    assert_eq!(read(&container, 600).unwrap(), content(600, 1));
}

#[test]
fn a_map_that_is_in_the_root_alone_stays_in_memory() {
    let bench = Bench::new(Options::new(16));
    let container = bench.create(1);
    (0..16).for_each(|block| write(&container, block, 1));
    container.close().unwrap();
    let words = bench.words();
    let (container, _) = bench.open_in(words).unwrap();
    write(&container, 3, 2);
    // A map checkpoint after which nothing is marked as changed since.
    let state = SharedState::new(words, bench.options.geometry).unwrap();
    Word::store(&state.shared().map_checkpoint_due, 1);
    container.commit().unwrap();
    assert_eq!(unload(&container, words) + unload(&container, words), 0);
    (0..16).for_each(|block| {
        assert_eq!(read(&container, block).unwrap(), content(block, 1 + u32::from(block == 3)))
    });
}

#[test]
fn a_segment_that_is_unloaded_all_the_time_uses_its_space_again() {
    let mut bench = bench(Fault::None);
    let words = filled(&mut bench);
    let (container, _) = bench.open_in(words).unwrap();
    let before = container.stats().allocated_bytes;
    let mut unloaded = 0;
    for round in 2..200 {
        (0..WIDE_PAGES).step_by(13).for_each(|block| write(&container, block, round));
        container.commit().unwrap();
        unloaded += unload(&container, words);
        container.collect(Budget { bytes: 1 << 20, garbage_percent: 20 }).unwrap();
        container.commit().unwrap();
    }
    let after = container.stats().allocated_bytes;
    assert!(unloaded > 300 && after < 2 * before, "{unloaded} leaves, {before} bytes, then {after}");
    for block in 0..WIDE_PAGES {
        let round = if block.is_multiple_of(13) { 199 } else { 1 };
        assert_eq!(read(&container, block).unwrap(), content(block, round));
    }
}

#[test]
fn without_collection_commits_free_space_again_before_the_file_has_grown_by_much() {
    let mut bench = bench(Fault::None);
    let words = filled(&mut bench);
    let (container, _) = bench.open_in(words).unwrap();
    container.complete().unwrap();
    let (mut most, mut unloaded) = (0, 0);
    for round in 2..300 {
        (0..WIDE_PAGES).step_by(13).for_each(|block| write(&container, block, round));
        container.commit().unwrap();
        unloaded += unload(&container, words);
        most = most.max(container.stats().allocated_bytes);
    }
    // Each round writes 100 records of a unit or two and two leaves; four times 256 KB may wait to be freed.
    assert!(unloaded > 500 && most < 2 << 20, "{unloaded} leaves, {most} bytes");
}

#[test]
fn extents_that_were_free_when_leaves_went_are_not_all_filled_before_others_are_freed() {
    let mut bench = bench(Fault::None);
    let words = filled(&mut bench);
    let (container, _) = bench.open_in(words).unwrap();
    // The second leaf is left alone, and stays out of memory.
    let update = |round| {
        (0..512).step_by(5).for_each(|block| write(&container, block, round));
        container.commit().unwrap();
    };
    // All that is written goes to new space while nothing is committed; then it is free.
    (2..30).for_each(|_| (0..WIDE_PAGES).for_each(|block| write(&container, block, 1)));
    container.complete().unwrap();
    container.commit().unwrap();
    let free = container.stats().free_bytes;
    let mut least = free;
    for round in 2..200 {
        update(round);
        unload(&container, words);
        least = least.min(container.stats().free_bytes);
    }
    assert!(free > 1 << 20 && least > free / 2, "{free} free bytes, then {least}");
}

type Work = Box<dyn FnOnce()>;

/// Reads page 600 by a loader that stands still with what it has read of the leaf, while the page and its leaf
/// are written anew, loaded by another, and unloaded.
fn read_by_a_late_loader(fault: Fault) -> Vec<u8> {
    let steps = Rc::new(Cell::new(0));
    let then: Rc<RefCell<Option<Work>>> = Rc::default();
    let (counted, once) = (steps.clone(), then.clone());
    let mut bench = bench(fault);
    bench.disk = Disk::new(1, move || {
        counted.set(counted.get() + 1);
        // A pause before the entry is believed to be missing; then the leaf was read, and its content waits.
        if counted.get() == 2
            && let Some(work) = once.take()
        {
            work();
        }
    });
    bench.disk.set_locks_ignored(true);
    let words = filled(&mut bench);
    let (container, _) = bench.open_in(words).unwrap();
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let other: Container<'static, DiskFile, Alone, AtomicU64> =
        Container::open(file, Alone, words, Recovery::Discard, bench.options).unwrap().0;
    then.replace(Some(Box::new(move || {
        write(&other, 600, 2);
        other.commit().unwrap();
        let mut gone = 0;
        (0..3).for_each(|_| gone += unload(&other, words));
        assert!(gone > 0);
    })));
    steps.set(0);
    let page = read(&container, 600);
    assert!(then.take().is_none());
    page.unwrap_or_else(|error| error.to_string().into_bytes())
}

#[test]
fn i14_a_loader_that_is_late_brings_nothing_back_and_the_injected_one_is_caught() {
    assert_eq!(read_by_a_late_loader(Fault::None), content(600, 2));
    assert_eq!(read_by_a_late_loader(Fault::LoaderTrustsPlace), content(600, 1));
}

#[test]
fn what_a_dead_writer_left_in_an_unloaded_leaf_does_not_come_back_after_a_truncation() {
    let mut bench = bench(Fault::None);
    let words = filled(&mut bench);
    let (container, _) = bench.open_in(words).unwrap();
    assert_eq!(read(&container, 600).unwrap(), content(600, 1));
    let state = SharedState::new(words, bench.options.geometry).unwrap();
    let entry = state.entry(Block(600));
    unload(&container, words);
    assert_eq!(unload(&container, words), 1);
    // Its swap came between the last look and the end of the unloading, and it looked no more.
    words[FIXED_WORDS + 600].store(entry.dirty().0, Ordering::SeqCst);
    container.truncate(550).unwrap();
    container.extend(700).unwrap();
    assert_eq!(read(&container, 600).unwrap(), Vec::<u8>::new());
    assert_eq!(read(&container, 540).unwrap(), content(540, 1));
}

#[test]
fn a_process_that_died_while_it_unloaded_holds_nobody_up() {
    let mut bench = bench(Fault::None);
    let words = filled(&mut bench);
    let (container, _) = bench.open_in(words).unwrap();
    assert_eq!(read(&container, 600).unwrap(), content(600, 1));
    let state = SharedState::new(words, bench.options.geometry).unwrap();
    // With the leaf taken out, and the number odd.
    unload(&container, words);
    assert_eq!(unload(&container, words), 1);
    let unloads = &state.shared().unloads;
    Word::store(unloads, Word::load(unloads) + 1);
    write(&container, 601, 2);
    assert!(Word::load(unloads).is_multiple_of(2));
    Word::store(unloads, Word::load(unloads) + 1);
    assert_eq!(read(&container, 600).unwrap(), content(600, 1));
    assert_eq!(read(&container, 601).unwrap(), content(601, 2));
}
