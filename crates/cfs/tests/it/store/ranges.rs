//! Many pages in one call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::{Birth, FileRange, Identity, KEY_BYTES};

/// Closed: blocks 0 to 47, written one after the other.
fn packed() -> Bench {
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    fill(&store, 0..48, 0, &Writing::default());
    store.container().close().unwrap();
    bench
}

#[test]
fn sixteen_adjacent_pages_take_one_pread() {
    let bench = packed();
    let (store, mut workspace) = (watched(&bench), workspace());
    for first in [0, 5, 16, 32] {
        let mut got = Default::default();
        let one_call = preads_of(&store, || got = read_range(&store, first..first + 16, &mut workspace));
        assert_eq!(one_call, 1, "from {first}");
        assert!(got.1.is_empty() && (first..).zip(&got.0).all(|(block, found)| *found == page(block, 0)));
        let calls = preads_of(&store, || {
            (first..first + 16).for_each(|block| assert!(read(&store, block, &mut workspace).is_ok()));
        });
        let zeros = (first..first + 16).filter(|block| page(*block, 0) == [0; 8192]).count() as u64;
        assert_eq!(calls, 16 - zeros);
    }
}

#[test]
fn what_lies_far_away_takes_a_pread_of_its_own_and_a_small_gap_does_not() {
    let bench = packed();
    let store = PageStore::new(bench.open().unwrap().0).unwrap();
    let mut workspace = workspace();
    // Behind everything else.
    store.write(20, &page(20, 1), &Writing::default(), &mut workspace).unwrap();
    store.container().close().unwrap();
    let store = watched(&bench);
    let mut got = Default::default();
    // Up to it, it alone, and from it on.
    assert_eq!(preads_of(&store, || got = read_range(&store, 16..32, &mut workspace)), 3);
    assert!(got.1.is_empty());
    for (block, found) in (16..).zip(&got.0) {
        assert!(*found == page(block, u32::from(block == 20)), "block {block}");
    }
    // The record that lay between them is now a gap.
    let compressed = (8..16).find(|block| {
        let length = store.location(*block).map_or(0, |range| range.length);
        0 < length && length < 4096
    });
    let moved = compressed.unwrap();
    assert_eq!(preads_of(&store, || got = read_range(&store, moved + 1..moved + 5, &mut workspace)), 1);
    let (before, after) = (store.location(moved - 1), store.location(moved + 1));
    assert!(before.is_some() || after.is_some());
}

#[test]
fn a_run_is_no_longer_than_its_buffer() {
    let bench = Bench::small();
    let made = PageStore::new(bench.create(1)).unwrap();
    fill(&made, 0..48, 0, &by(Algorithm::None, 0));
    made.container().close().unwrap();
    let store = watched(&bench);
    // A quarter of what the smallest one can do without is for runs, 256 KiB at most.
    for (budget, expected) in [(400 << 10, 12..44), (1 << 20, 2..6), (64 << 20, 2..3)] {
        let mut workspace = Workspace::new(budget).unwrap();
        let mut got = Default::default();
        let preads = preads_of(&store, || got = read_range(&store, 0..48, &mut workspace));
        assert!(got.1.is_empty() && (0..).zip(&got.0).all(|(block, found)| *found == page(block, 0)));
        assert!(expected.contains(&preads), "{preads} preads by {budget} bytes");
    }
}

#[test]
fn locations_say_where_records_lie_and_what_lies_together() {
    let bench = packed();
    let (store, mut workspace) = (watched(&bench), workspace());
    let mut ranges: Vec<FileRange> = Vec::new();
    let of = |ranges: &mut Vec<FileRange>, first, count| {
        ranges.clear();
        store.locations(first, count, |range| ranges.push(range));
    };
    of(&mut ranges, 10, 16);
    let [whole] = ranges[..] else { panic!("{ranges:?}") };
    for block in 10..26 {
        let Some(range) = store.location(block) else {
            assert!(page(block, 0) == [0; 8192]);
            continue;
        };
        assert!(whole.offset <= range.offset && range.offset + range.length <= whole.offset + whole.length);
        // Where it says, and nowhere else: a byte there is the page's.
        store.container().device().bad_byte.set(Some(range.offset + range.length - 1));
        let is_error = read(&store, block, &mut workspace).is_err();
        store.container().device().bad_byte.set(None);
        assert!(is_error && read(&store, block, &mut workspace).unwrap() == page(block, 0));
    }
    of(&mut ranges, 48, 16);
    assert!(ranges.is_empty() && store.location(48).is_none() && store.location(u32::MAX).is_none());
    of(&mut ranges, 40, u32::MAX);
    assert_eq!(ranges.len(), 1);
}

#[test]
fn ranges_end_where_blocks_end() {
    let bench = packed();
    let (store, mut workspace) = (watched(&bench), workspace());
    let (_, faults) = read_range(&store, u32::MAX - 2..u32::MAX, &mut workspace);
    assert_eq!(faults.len(), 2);
    assert_eq!(read_range(&store, 3..3, &mut workspace), (Vec::new(), Vec::new()));
    let late = store.write_range(63, &[page(63, 1), page(64, 1)], &Writing::default(), &mut workspace);
    assert_eq!(late.unwrap_err().0, 64);
    assert!(read(&store, 63, &mut workspace).unwrap() == page(63, 1));
}

type Hook = Box<dyn Fn()>;

/// What another process does in the midst of a range read.
type Deed = fn(&Store);

/// Lets another process act at every step of a read of blocks 8 to 23, in turn, together and one by one; `check`
/// is given what was read. Returns the steps that it takes together.
fn in_the_midst(deed: Deed, check: impl Fn(Vec<Page>, Vec<(u32, Error)>)) -> u32 {
    midst(deed, &check, |store| {
        let (mut pages, mut faults, mut workspace) = (Vec::new(), Vec::new(), workspace());
        for block in 8..24 {
            let mut page = [0x5a; 8192];
            faults.extend(store.read(block, &mut page, &mut workspace).err().map(|error| (block, error)));
            pages.push(page);
        }
        (pages, faults)
    });
    midst(deed, &check, |store| read_range(store, 8..24, &mut workspace()))
}

fn midst(
    deed: Deed,
    check: &impl Fn(Vec<Page>, Vec<(u32, Error)>),
    read: impl Fn(&Store) -> (Vec<Page>, Vec<(u32, Error)>),
) -> u32 {
    for step in 0.. {
        let hook: Rc<RefCell<Option<Hook>>> = Rc::default();
        let called = hook.clone();
        let disk = Disk::new(1, move || {
            let call = called.borrow_mut().take();
            if let Some(call) = call {
                call();
                called.borrow_mut().get_or_insert(call);
            }
        });
        let mut bench = Bench::small();
        bench.disk = disk;
        bench.disk.set_locks_ignored(true);
        let words = bench.words();
        let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        let container = segment::create(&bench.disk, Alone, words, &birth, bench.options).unwrap();
        let store = PageStore::new(container).unwrap();
        let number = store.add_dictionary(&dictionary(1)).unwrap();
        fill(&store, 0..32, 0, &Writing { dictionary: Some(number), ..Writing::default() });
        store.container().commit().unwrap();
        let other = Container::open(
            bench.disk.open(segment::FILE_NAME).unwrap(),
            Alone,
            words,
            Recovery::Discard,
            bench.options,
        );
        let other = PageStore::new(other.unwrap().0).unwrap();
        let (seen, acted) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (count, did) = (seen.clone(), acted.clone());
        *hook.borrow_mut() = Some(Box::new(move || {
            if count.get() == step {
                did.set(true);
                deed(&other);
            }
            count.set(count.get() + 1);
        }));
        let (pages, faults) = read(&store);
        hook.borrow_mut().take();
        if !acted.get() {
            return step;
        }
        check(pages, faults);
    }
    unreachable!()
}

/// Rewrites all, so often that the space of the first records is used again.
fn rewrite(store: &Store) {
    for generation in 1..4 {
        fill(store, 0..32, generation, &Writing::default());
        store.container().commit().unwrap();
    }
    store.container().collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    store.container().commit().unwrap();
}

#[test]
fn p1_pages_rewritten_and_moved_at_any_step_of_a_range_read_are_old_or_new() {
    let steps = in_the_midst(rewrite, |pages, faults| {
        assert_eq!(faults, []);
        for (block, found) in (8..).zip(pages) {
            assert!((0..4).any(|generation| found == page(block, generation)), "block {block}");
        }
    });
    assert!(steps >= 3, "{steps} steps");
}

#[test]
fn p2_pages_cut_off_at_any_step_of_a_range_read_are_past_the_end_and_others_are_there() {
    let cut: Deed = |store| {
        store.container().truncate(15).unwrap();
        store.container().commit().unwrap();
        fill(store, 0..8, 5, &Writing::default());
    };
    in_the_midst(cut, |pages, faults| {
        for (block, error) in &faults {
            assert!(*block >= 15, "{error}");
            assert!(matches!(error, Error::Container(pgshrink_cfs::Error::PastEnd { .. })), "{error}");
        }
        for (block, found) in (8..).zip(pages) {
            let failed = faults.iter().any(|(failed, _)| *failed == block);
            assert!(failed || found == page(block, 0), "block {block}");
        }
    });
}

#[test]
fn p4_a_dictionary_dropped_at_any_step_of_a_range_read_fails_no_page() {
    let drop_it: Deed = |store| {
        fill(store, 0..32, 1, &Writing::default());
        assert!(store.container().drop_dictionary(1).unwrap());
    };
    in_the_midst(drop_it, |pages, faults| {
        assert_eq!(faults, []);
        for (block, found) in (8..).zip(pages) {
            assert!((0..2).any(|generation| found == page(block, generation)), "block {block}");
        }
    });
}

#[test]
fn the_last_blocks_of_a_segment_at_the_last_addresses_of_a_file_are_read_together() {
    use crate::shell::FileFolder;
    use pgshrink_cfs::state::SharedState;
    use pgshrink_cfs::{Geometry, PAGES_MAX};
    use std::sync::atomic::{AtomicU64, Ordering};

    // 64 GB of addresses, of which the file uses the last.
    let geometry = Geometry { pages_max: PAGES_MAX, extent_units: 1 << 13, extents_max: 1 << 19 };
    let options = Options { geometry, ..Options::new(PAGES_MAX) };
    let words = || -> Vec<AtomicU64> { (0..geometry.words()).map(|_| AtomicU64::new(0)).collect() };
    let folder = pgshrink_testkit::TempDir::new().unwrap();
    let folder = FileFolder(folder.path().to_owned());
    std::fs::create_dir_all(&folder.0).unwrap();
    let identity = Identity { segment: 32_767, ..Identity::default() };
    let birth = Birth { id: [1; 16], identity, key: [0; KEY_BYTES] };
    let (first, mut workspace) = (PAGES_MAX - 40, workspace());
    let check = |store: &PageStore<'_, crate::shell::FileDevice>, workspace: &mut Workspace| {
        let mut pages = vec![[0x5a; 8192]; 64];
        let faults = store.read_range(first, pages.iter_mut(), workspace);
        let past: Vec<u32> = faults.iter().map(|(block, _)| *block).collect();
        assert_eq!(past, (PAGES_MAX..PAGES_MAX + 24).collect::<Vec<_>>());
        assert!((first..PAGES_MAX).zip(&pages).all(|(block, found)| *found == page(block, 0)));
        let mut ranges = Vec::new();
        store.locations(first, u32::MAX, |range| ranges.push(range));
        assert!(ranges.iter().all(|range| range.offset > 60 << 30), "{ranges:?}");
        assert!(store.location(PAGES_MAX).is_none());
        ranges
    };
    let memory = words();
    let made = segment::create(&folder, Alone, &memory, &birth, options).unwrap();
    let shared = SharedState::new(&memory, geometry).unwrap().shared();
    shared.extents_end.store((1 << 19) - 700, Ordering::SeqCst);
    let store = PageStore::new(made).unwrap();
    // The first extent has room for some.
    store.write_range(0, &[page(1, 0); 40], &by(Algorithm::None, 0), &mut workspace).unwrap();
    let pages: Vec<Page> = (first..PAGES_MAX).map(|block| page(block, 0)).collect();
    store.write_range(first, &pages, &Writing::default(), &mut workspace).unwrap();
    let before = check(&store, &mut workspace);
    store.container().close().unwrap();
    drop(store);
    let anew = words();
    let opened =
        Container::open(folder.open(segment::FILE_NAME).unwrap(), Alone, &anew, Recovery::Discard, options);
    let store = PageStore::new(opened.unwrap().0).unwrap();
    assert_eq!(check(&store, &mut workspace), before);
    let limit = store.write(PAGES_MAX, &pages[0], &Writing::default(), &mut workspace).unwrap_err();
    assert!(matches!(limit, Error::Container(pgshrink_cfs::Error::Limit { what: "block", .. })), "{limit}");
}

#[test]
fn leaves_are_loaded_for_locations_and_for_ranges() {
    let bench = Bench::new(crate::plan::wide_options(Fault::None, 0));
    let made = PageStore::new(bench.create(1)).unwrap();
    fill(&made, 0..1100, 0, &Writing::default());
    made.container().close().unwrap();
    let open = || {
        let file = Watched::new(bench.disk.open(segment::FILE_NAME).unwrap());
        let opened = Container::open(file, Alone, bench.words(), Recovery::Discard, bench.options);
        PageStore::new(opened.unwrap().0).unwrap()
    };
    assert!(open().location(600).is_some());
    let (store, mut ranges) = (open(), Vec::new());
    store.locations(1020, 40, |range| ranges.push(range));
    assert_eq!(ranges.len(), 1);
    let (store, mut workspace) = (open(), workspace());
    let mut got = Default::default();
    let preads = preads_of(&store, || got = read_range(&store, 1020..1060, &mut workspace));
    assert!(got.1.is_empty() && (1020..).zip(&got.0).all(|(block, found)| *found == page(block, 0)));
    assert_eq!(preads, 3, "two leaves, and what lies together");
}
