//! B: a container's own addresses, which writers, commits and collection share.

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::live::Live;
use pgshrink_cfs::space::Purpose;
use pgshrink_cfs::units::Grains;
use pgshrink_cfs::{Budget, Container, Error, Options, Recovery, Scratch, Stored};

use super::{Filled, PAGES, birth, page, words};
use crate::updates::Memory;

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
fn a_segment_of_which_every_zone_has_something_left_is_made_room_in() {
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
    let options = Options::new(PAGES);
    let shared = words(options.geometry);
    let _container = Container::create(&file, Alone, shared, &birth(1), options).unwrap();
    let live = Live::new(shared, options.geometry).unwrap();
    let taken = |bytes: usize, purpose| {
        let grains = Grains::holding(bytes);
        std::iter::from_fn(|| live.reserve(grains, purpose)).count()
    };
    assert!(taken(8208, Purpose::Page) >= PAGES as usize * 5 / 2);
    assert_eq!(taken(8208, Purpose::Page), 0);
    // Whole zones' worth of records, and every leaf of the map with its index.
    assert!(taken(8208, Purpose::Move) >= 6, "nothing is kept for collection");
    assert!(taken(512 * 8 + 100, Purpose::Map) >= 3, "nothing is kept for commits");
}
