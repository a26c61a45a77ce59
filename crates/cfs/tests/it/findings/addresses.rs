//! B: a container's own addresses, which writers, commits and collection share.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use pgshrink_cfs::allocator::{ExtentState, Purpose};
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::FaultRates;
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::units::{ExtentNumber, Units};
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{Budget, Container, Error, Options, Recovery, Scratch, Stored};
use pgshrink_testkit::seed::{Rng, Seed};

use super::{Filled, PAGES, birth, page, words};
use crate::fixture::{Bench, content, read, write};
use crate::updates::Memory;

/// Of an extent in containers as they are in use.
const EXTENT_UNITS: u32 = 512;

#[test]
fn pages_rewritten_again_and_again_without_a_commit_never_use_up_a_segment() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    for generation in 1..8 {
        (0..PAGES).for_each(|block| filled.write(block, generation));
    }
    assert!(filled.container.stats().room_made > 0, "the addresses were never used up");
    filled.container.commit().unwrap();
    filled.container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    filled.check();
    filled.container.truncate(PAGES / 2).unwrap();
    filled.container.commit().unwrap();
    filled.container.extend(PAGES / 2 + 1).unwrap();
    filled.container.close().unwrap();
}

#[test]
fn pages_rewritten_on_a_full_filesystem_with_nobody_to_commit_find_room() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    (0..PAGES).for_each(|block| filled.write(block, 1));
    filled.container.commit().unwrap();
    // An eighth more, and a reserve for commits alone.
    file.reserve.set(600);
    file.disk_blocks_max.set((file.allocated_bytes() / 4096 * 9 / 8) as usize);
    for generation in 2..8 {
        (0..PAGES).for_each(|block| filled.write(block, generation));
    }
    assert!(filled.container.stats().room_made > 0, "the filesystem was never full");
    filled.check();
    // Where nothing can be freed, it is said; and what was there stays.
    filled.container.commit().unwrap();
    file.disk_blocks_max.set(1);
    file.reserve.set(0);
    filled.container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).ok();
    let refused =
        (0..PAGES).map(|block| filled.container.write(block, 0, 0, &page(block, 99), &mut Scratch::new()));
    let refused = refused.filter(|done| done.as_ref().is_err_and(Error::is_no_space)).count();
    assert!(refused > 0, "there is no space at all");
    assert_eq!(filled.container.extend(PAGES), Ok(()));
}

#[test]
fn redo_after_a_restart_does_not_use_up_a_segment_before_the_first_commit() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    for generation in 1..4 {
        (0..PAGES).for_each(|block| filled.write(block, generation));
    }
    filled.container.commit().unwrap();
    for recovery in [Recovery::Discard, Recovery::RollForward] {
        let Filled { generations, container } = filled;
        drop(container);
        filled = Filled::open(&file, generations, recovery);
        for generation in 10..15 {
            (0..PAGES).for_each(|block| filled.write(block, generation));
        }
        filled.check();
        filled.container.commit().unwrap();
    }
}

#[test]
fn a_segment_of_which_every_extent_has_something_left_is_made_room_in() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    let mut scratch = Scratch::new();
    // Short records far apart: between two of them a page that is written anew again and again.
    for round in 0..3 {
        for block in 0..PAGES - 1 {
            filled.container.write(block, 0, 0, &[round; 20], &mut scratch).unwrap();
            filled.write(PAGES - 1, u64::from(round) << 20 | u64::from(block));
            filled.write(PAGES - 1, u64::from(round) << 21 | u64::from(block));
        }
    }
    assert!(filled.container.stats().room_made > 0);
    filled.container.commit().unwrap();
    for block in 0..PAGES - 1 {
        let stored = filled.container.read(block, &mut scratch).unwrap();
        assert!(matches!(stored, Stored::Record { payload, .. } if payload == [2; 20]), "block {block}");
    }
}

#[test]
fn where_commits_fail_a_write_that_needs_room_says_so_and_changes_nothing() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    (0..PAGES).for_each(|block| filled.write(block, 1));
    filled.container.commit().unwrap();
    file.refused_syncs.set(true);
    let mut scratch = Scratch::new();
    let failure = (0..).find_map(|turn| {
        let block = turn % PAGES;
        match filled.container.write(block, 0, 0, &page(block, 2), &mut scratch) {
            Ok(()) => {
                filled.generations[block as usize] = 2;
                None
            }
            Err(error) => Some(error),
        }
    });
    let failure = failure.unwrap();
    assert!(failure.is_no_space() || failure == Error::Poisoned, "{failure}");
    filled.check();
}

#[test]
fn pages_leave_space_to_collection_and_collection_leaves_space_to_commits() {
    let file = Memory::default();
    let (_container, state) = created(&file, PAGES);
    let taken = |bytes: usize, purpose| {
        let units = Units::holding(bytes);
        std::iter::from_fn(|| state.reserve(units, purpose)).count()
    };
    assert!(taken(8208, Purpose::Page) >= PAGES as usize * 5 / 2);
    assert_eq!(taken(8208, Purpose::Page), 0);
    fill(&state, Units(1), Purpose::Page);
    // A commit takes no more extents than it needs, and each of its records keeps as few as can be.
    let leaf = Units::holding(512 * 8 + 100);
    for _ in 0..2 {
        let reserved = state.reserve(leaf, Purpose::Map).unwrap();
        assert_eq!(
            reserved.span().shares(EXTENT_UNITS).count(),
            1,
            "a leaf in two extents: {:?}",
            reserved.span()
        );
    }
    // Whole extents' worth of records, and every leaf of the map with its index.
    assert!(taken(8208, Purpose::Move) >= 6, "nothing is kept for collection");
    assert!(taken(512 * 8 + 100, Purpose::Map) >= 4, "nothing is kept for commits");
}

/// A container for so many pages, and its shared state.
fn created(
    file: &Memory,
    pages: u32,
) -> (Container<'static, &Memory, Alone>, SharedState<'static, AtomicU64>) {
    let options = Options::new(pages);
    let shared = words(options.geometry);
    let container = Container::create(file, Alone, shared, &birth(1), options).unwrap();
    (container, SharedState::new(shared, options.geometry).unwrap())
}

/// So many blocks in no order.
fn shuffled(pages: u32, rng: &mut Rng) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..pages).collect();
    (1..blocks.len()).for_each(|last| blocks.swap(last, rng.below(last + 1)));
    blocks
}

/// Occupies all there is for a purpose, for as long as the test runs.
fn fill(state: &SharedState<'static, AtomicU64>, units: Units, purpose: Purpose) {
    while let Some(reserved) = state.reserve(units, purpose) {
        std::mem::forget(reserved);
    }
}

#[test]
fn commits_succeed_for_ever_where_pages_take_whatever_room_there_is() {
    const LEAVES: u32 = 16;
    let file = Memory::default();
    let (container, state) = created(&file, LEAVES * 512);
    let mut rng = Seed(5).rng();
    // Pages that lie in no order: their leaves are as long as leaves can be.
    let blocks = shuffled(LEAVES * 512, &mut rng);
    let mut scratch = Scratch::new();
    blocks.iter().for_each(|block| container.write(*block, 0, 0, &[1], &mut scratch).unwrap());
    fill(&state, Units::holding(8208), Purpose::Page);
    fill(&state, Units::holding(8208), Purpose::Move);
    fill(&state, Units(1), Purpose::Move);
    for turn in 0..300 {
        // All leaves, one, or something in between; and a page as short as can be tries to stay beside what
        // the commit writes.
        let changed = [100, 50, 20, 5][turn % 4];
        for leaf in 0..LEAVES {
            if rng.chance(changed) || leaf == turn as u32 % LEAVES {
                container.write_zeros(leaf * 512 + turn as u32 % 512).unwrap();
            }
        }
        state.shared().map_checkpoint_due.store(1, Ordering::SeqCst);
        container.commit().unwrap_or_else(|error| panic!("commit {turn}: {error}"));
        if let Some(reserved) = state.reserve(Units(1), Purpose::Page) {
            std::mem::forget(reserved);
        }
    }
}

#[test]
fn what_a_commit_can_do_without_takes_nothing_of_what_is_kept_for_commits() {
    let file = Memory::default();
    let (container, state) = created(&file, PAGES);
    container.extend(PAGES).unwrap();
    container.commit().unwrap();
    fill(&state, Units(1), Purpose::Page);
    let refused = container.add_dictionary([7; 16], &[7; 60_000]);
    assert!(matches!(&refused, Err(Error::AddressSpace { .. })), "{refused:?}");
    // More than a root holds: a delta, if there were room.
    let map_checkpoints = container.stats().map_checkpoints;
    (0..450).for_each(|block| container.write_zeros(block).unwrap());
    container.commit().unwrap();
    assert_eq!(container.stats().map_checkpoints, map_checkpoints + 1);
}

#[test]
fn a_record_too_long_for_what_is_free_does_not_keep_collection_from_the_shorter_ones() {
    let file = Memory::default();
    let (container, state) = created(&file, PAGES);
    let mut scratch = Scratch::new();
    let mut short = |block| container.write(block, 0, 0, &[1; 2000], &mut scratch).unwrap();
    (1..40).for_each(&mut short);
    container.write(0, 0, 0, &page(0, 1), &mut Scratch::new()).unwrap();
    (1..40).filter(|block| block % 4 != 0).for_each(&mut short);
    container.commit().unwrap();
    fill(&state, Units(1), Purpose::Page);
    // Of what is kept, all but single extents that lie apart.
    let one_extent = Units(EXTENT_UNITS);
    let mut taken = Vec::new();
    for purpose in [Purpose::Move, Purpose::Map] {
        taken.extend(std::iter::from_fn(|| state.reserve(one_extent, purpose)));
    }
    for (index, reserved) in taken.into_iter().enumerate() {
        let extent = ExtentNumber(reserved.span().location.0 / EXTENT_UNITS);
        std::mem::forget(reserved);
        if index % 2 == 1 {
            state.free_extent(extent);
        }
    }
    let collected = container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    assert!(collected.moved_records > 0, "{collected:?}");
}

#[test]
fn what_is_kept_is_filled_from_a_disk_block_of_its_own_after_each_commit_too() {
    let file = Memory::default();
    let (_container, state) = created(&file, PAGES);
    fill(&state, Units(1), Purpose::Page);
    for purpose in [Purpose::Move, Purpose::Map] {
        let disk_block = || state.reserve(Units(10), purpose).unwrap().span().location.offset() / 4096;
        let (first, second) = (disk_block(), disk_block());
        state.leave_disk_block();
        assert!(first == second && disk_block() > second, "{purpose:?}");
    }
}

#[test]
fn what_was_refused_and_commits_that_failed_use_nothing_up() {
    let space = FaultRates { space: 1_000_000, ..FaultRates::default() };
    let writing = FaultRates { write: 1_000_000, ..FaultRates::default() };
    for faults in [space, writing] {
        let bench = Bench::new(Options::new(PAGES));
        bench.disk.set_reserve_refused(true);
        let memory = bench.words();
        let container = bench.create_in(1, memory);
        let mut scratch = Scratch::new();
        let mut put =
            |block, generation| container.write(block, 0, 0, &page(block, generation), &mut scratch);
        (0..PAGES).for_each(|block| put(block, 1).unwrap());
        container.commit().unwrap();
        bench.disk.set_faults(faults);
        // So that a commit has to write.
        container.write_zeros(0).unwrap();
        // More than the container has addresses for.
        (0..4 * PAGES).for_each(|turn| assert!(put(turn % PAGES, 2).is_err()));
        let commit = || {
            container.write_zeros(0).unwrap();
            container.commit().is_err()
        };
        let failed = (0..100).filter(|_| commit()).count();
        assert!(failed == 100 || faults.write == 0, "{failed} commits failed");
        let state = SharedState::new(memory, bench.options.geometry).unwrap();
        std::iter::from_fn(|| state.reserve(Units::holding(8208), Purpose::Page)).for_each(drop);
        bench.disk.set_faults(FaultRates::default());
        container.commit().unwrap();
        let extents = (0..state.shared().extents_end.load(Ordering::SeqCst))
            .map(|extent| state.extent(ExtentNumber(extent as u32)));
        let free = extents
            .filter(|extent| matches!(extent.state, ExtentState::Free | ExtentState::Hole))
            .count() as u64;
        assert_eq!(state.shared().free_extents.load(Ordering::SeqCst), free, "an extent was freed twice");
        (0..PAGES).for_each(|block| put(block, 3).unwrap());
        container.commit().unwrap();
        bench.disk.lose_power();
        let (container, _) = bench.open().unwrap();
        for block in 0..PAGES {
            let stored = container.read(block, &mut scratch).unwrap();
            assert!(matches!(stored, Stored::Record { payload, .. } if payload == page(block, 3)));
        }
    }
}

/// Its write was reported as failed, and a power failure may leave it all the same.
#[test]
fn failed_commits_free_nothing_that_a_root_in_doubt_refers_to() {
    // Leaves in extents of their own.
    const PAGES: u32 = 2048;
    let file = Memory::default();
    let (container, state) = created(&file, PAGES);
    let mut scratch = Scratch::new();
    (0..PAGES).for_each(|block| container.write(block, 0, 0, &page(block, 1), &mut scratch).unwrap());
    container.commit().unwrap();
    // The first refers to none of these any more.
    let mut rng = Seed(6).rng();
    let blocks = shuffled(PAGES, &mut rng);
    for block in &blocks {
        container.write(*block, 0, 0, &page(*block, 2), &mut scratch).unwrap();
    }
    fill(&state, Units(1), Purpose::Page);
    state.shared().map_checkpoint_due.store(1, Ordering::SeqCst);
    file.failed_roots.set(Some(true));
    assert!(container.commit().is_err());
    file.failed_roots.set(Some(false));
    (0..PAGES).for_each(|block| container.write_zeros(block).unwrap());
    for turn in 0..10 {
        container.write_zeros(turn).unwrap();
        assert!(container.commit().is_err());
        // Into whatever was freed.
        (0..PAGES).for_each(|block| drop(container.write(block, 0, 0, &page(block, 3), &mut scratch)));
        (0..PAGES).for_each(|block| container.write_zeros(block).unwrap());
    }
    file.failed_roots.set(None);
    let options = Options::new(PAGES);
    let opened = Container::open(&file, Alone, words(options.geometry), Recovery::Discard, options);
    let (container, _) = opened.unwrap();
    for block in 0..PAGES {
        let stored = container.read(block, &mut scratch).unwrap();
        assert!(
            matches!(stored, Stored::Record { payload, .. } if payload == page(block, 2)),
            "block {block}"
        );
    }
}

#[test]
fn failed_commits_free_nothing_that_the_last_root_refers_to() {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..40).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    (0..40).for_each(|block| write(&container, block, 2));
    for _ in 0..3 {
        bench.disk.set_faults(FaultRates { write: 1_000_000, ..FaultRates::default() });
        assert!(container.commit().is_err());
        bench.disk.set_faults(FaultRates::default());
        // Into whatever was freed.
        (0..40).for_each(|block| write(&container, block, 3));
    }
    // The server is gone: what it wrote without a commit is in the file, and no root refers to it.
    let (container, _) = bench.open().unwrap();
    (0..40).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 1)));
}

#[test]
fn collection_goes_on_where_pages_find_no_space() {
    let file = Memory::default();
    let options = Options::new(PAGES);
    let shared = words(options.geometry);
    let container = Container::create(&file, Alone, shared, &birth(1), options).unwrap();
    let mut scratch = Scratch::new();
    (0..PAGES).for_each(|block| container.write(block, 0, 0, &page(block, 1), &mut scratch).unwrap());
    container.commit().unwrap();
    (0..PAGES)
        .step_by(2)
        .for_each(|block| container.write(block, 0, 0, &page(block, 2), &mut scratch).unwrap());
    container.commit().unwrap();
    let state = SharedState::new(shared, options.geometry).unwrap();
    while state.reserve(Units::holding(8208), Purpose::Page).is_some() {}
    let collected = container.collect(Budget { bytes: 100_000, garbage_percent: 0 }).unwrap();
    assert!(collected.moved_records > 0, "{collected:?}");
}

#[test]
fn collection_moves_a_leaf_that_has_not_changed() {
    let mut bench = Bench::new(crate::plan::wide_options(Fault::None, 0));
    // So that the index lies in the extent that is being filled.
    bench.options.geometry.extent_units = 4096;
    // Writers do not collect.
    bench.options.tuning.ceiling_bytes_min = u64::MAX;
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    let shared = SharedState::new(memory, bench.options.geometry).unwrap().shared();
    let place = || shared.leaf_places[0].load(Ordering::SeqCst);
    let rewrite_second_leaf = || {
        (0..40).for_each(|generation| write(&container, 600, generation));
        shared.map_checkpoint_due.store(1, Ordering::SeqCst);
        container.commit().unwrap();
    };
    container.extend(700).unwrap();
    rewrite_second_leaf();
    let first = place();
    rewrite_second_leaf();
    assert!(first != 0 && place() == first, "a leaf that has not changed was written anew");
    container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    container.commit().unwrap();
    assert_ne!(place(), first, "the leaf stays in an extent of dead records");
    (0..10).for_each(|block| assert_eq!(read(&container, block).unwrap(), Vec::<u8>::new()));
    assert_eq!(read(&container, 600).unwrap(), content(600, 39));
}

type Work = Box<dyn FnOnce()>;

thread_local! {
    /// What another process does just before the word at this address is replaced.
    static BEFORE_SWAP: RefCell<Option<(usize, Work)>> = const { RefCell::new(None) };
}

struct Contended(AtomicU64);

impl Word for Contended {
    fn load(&self) -> u64 {
        Word::load(&self.0)
    }

    fn store(&self, value: u64) {
        Word::store(&self.0, value);
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        let is_it = |(at, _): &mut (usize, Work)| *at == std::ptr::from_ref(self).addr();
        let work = BEFORE_SWAP.with_borrow_mut(|before| before.take_if(is_it));
        work.into_iter().for_each(|(_, work)| work());
        self.0.swap_if(current, new)
    }

    fn add(&self, value: u64) -> u64 {
        Word::add(&self.0, value)
    }
}

#[test]
fn extents_that_were_claimed_in_vain_are_free_again() {
    let options = Options::new(PAGES);
    let contended: Vec<Contended> = (0..options.geometry.words()).map(|_| Contended(0.into())).collect();
    let contended: &'static [Contended] = contended.leak();
    let file: &'static Memory = Box::leak(Box::default());
    let _container = Container::create(file, Alone, contended, &birth(1), options).unwrap();
    let state = SharedState::new(contended, options.geometry).unwrap();
    let units = Units::holding(8208);
    let cursor = || state.shared().cursor.load();
    let rest = || ((cursor() >> 32) - (cursor() & 0xffff_ffff)) as u32;
    while rest() >= units.0 {
        drop(state.reserve(units, Purpose::Page).unwrap());
    }
    let other = state.clone();
    let at = std::ptr::from_ref(&state.shared().cursor).addr();
    BEFORE_SWAP.set(Some((at, Box::new(move || drop(other.reserve(units, Purpose::Page).unwrap())))));
    let before = state.shared().extents_end.load();
    drop(state.reserve(units, Purpose::Page).unwrap());
    assert!(BEFORE_SWAP.take().is_none(), "nobody came in between");
    // Two extents for each of the two records.
    assert_eq!(state.shared().extents_end.load(), before + 4, "what was claimed is lost");
}
