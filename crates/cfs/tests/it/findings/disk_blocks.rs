//! F: what is durable and what is being written share no disk block.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::{Container, Folder, Recovery, Scratch, segment};

use super::{Hooked, attach};
use crate::fixture::{Bench, Open, content, read, write};

#[test]
fn a_writer_that_a_commit_has_given_up_writes_nothing_into_the_disk_block_that_was_left() {
    type Work = Box<dyn FnOnce()>;
    let then: Rc<RefCell<Option<Work>>> = Rc::default();
    let next = then.clone();
    let mut bench = Bench::small();
    bench.disk = Disk::new(1, move || {
        let work = next.take();
        if let Some(work) = work {
            work();
        }
    });
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    (0..3).for_each(|block| write(&container, block, 1));
    let other = attach(&bench, memory, false).unwrap();
    let left: Rc<RefCell<Vec<u8>>> = Rc::default();
    let (disk, seen) = (bench.disk.clone(), left.clone());
    // The writer has its place, and stands still in front of its look at the disk block.
    then.replace(Some(Box::new(move || {
        other.commit().unwrap();
        seen.replace(disk.bytes(segment::FILE_NAME).unwrap());
    })));
    write(&container, 3, 1);
    let (before, after) = (left.borrow().clone(), bench.bytes());
    // Up to the end of the disk block in which the commit's last record lies.
    let end = before.len().next_multiple_of(4096).min(after.len());
    let mut durable = before.clone();
    durable.resize(end, 0);
    assert!(
        before.len() > 12288 && durable[12288..] == after[12288..end],
        "a durable disk block was written to"
    );
    assert_eq!(read(&container, 3).unwrap(), content(3, 1));
}

/// Work that another process does in the midst of an operation: at the step of this number from when it is
/// given.
#[derive(Clone, Default)]
struct Between(Rc<RefCell<Option<Work>>>, Rc<Cell<u32>>);

type Work = Box<dyn FnOnce()>;

impl Between {
    fn disk(&self) -> Disk {
        let Between(work, steps) = self.clone();
        let disk = Disk::new(1, move || {
            let left = steps.get();
            steps.set(left.saturating_sub(1));
            if left == 1 {
                let work = work.take();
                work.into_iter().for_each(|work| work());
            }
        });
        disk.set_locks_ignored(true);
        disk
    }

    fn give(&self, step: u32, work: impl FnOnce() + 'static) {
        self.0.replace(Some(Box::new(work)));
        self.1.set(step);
    }

    fn is_done(&self) -> bool {
        self.0.borrow().is_none()
    }
}

fn put(container: &Open<'_>, block: u32, bytes: &[u8]) {
    container.write(block, 1, 0, bytes, &mut Scratch::new()).unwrap();
}

#[test]
fn a_root_ends_behind_entries_that_are_newer_than_what_the_commit_took() {
    let between = Between::default();
    let mut bench = Bench::new(crate::plan::wide_options(Fault::None, 0));
    bench.disk = between.disk();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    let other = attach(&bench, memory, false).unwrap();
    // An extent for each page; then every other one is free, so that only short records fit.
    container.extend(700).unwrap();
    (0..60).for_each(|block| put(&container, block, &[1; 4080]));
    container.commit().unwrap();
    (0..30).for_each(|block| put(&container, 2 * block, b"short"));
    (0..3).for_each(|block| {
        put(&container, 650 + block, b"marks the second leaf");
        container.commit().unwrap();
    });
    let shared = SharedState::new(memory, bench.options.geometry).unwrap().shared();
    put(&container, 1, b"marks the first leaf");
    put(&container, 650, b"marks the second leaf");
    shared.map_checkpoint_due.store(1, Ordering::SeqCst);
    // While the first leaf is being written, behind the map's end.
    between.give(2, move || put(&other, 600, &[6; 8160]));
    container.commit().unwrap();
    assert!(between.is_done());
    let end = bench.bytes().len();
    drop(container);
    bench.disk.lose_power();
    let (container, report) = bench.open().unwrap();
    assert_eq!(report.missing_bytes, 0, "the file ended at {end}");
    for block in [600, 601] {
        let page = read(&container, block).unwrap();
        assert!(page.is_empty() || (block == 600 && page == [6; 8160]), "{} bytes", page.len());
    }
}

#[test]
fn an_extent_that_was_being_filled_when_the_map_was_completed_is_not_freed_under_its_writer() {
    let between = Between::default();
    let mut bench = Bench::small();
    bench.disk = between.disk();
    // The last extent of an opening has room for what is written next.
    bench.options.geometry.extent_units = 2048;
    let container = bench.create(1);
    for generation in 1..6 {
        (0..30).for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
    }
    container.close().unwrap();
    drop(container);
    let memory = bench.words();
    let (container, _) = bench.open_in(memory).unwrap();
    assert!(!container.stats().map_is_complete, "all of the map was read");
    let other = attach(&bench, memory, false).unwrap();
    let shared = SharedState::new(memory, bench.options.geometry).unwrap().shared();
    let rest = || {
        let cursor = shared.cursor.load(Ordering::SeqCst);
        ((cursor >> 32) - (cursor & 0xffff_ffff)) as usize
    };
    while rest() > 500 {
        write(&container, 0, 9);
    }
    // As long as what is left of the extent, so that nobody else finishes anything there.
    let last = vec![7; rest() * 16 - 16];
    let rest_bytes = last.len();
    // The writer has written its record, and has not published it: everybody else leaves the extent, and
    // fills what is free.
    between.give(2, move || {
        other.complete().unwrap();
        for generation in 10..40 {
            shared.map_checkpoint_due.store(1, Ordering::SeqCst);
            (0..30).for_each(|block| write(&other, block, generation));
            other.commit().unwrap();
        }
    });
    // A new page, so that nothing else of it is in the extent.
    put(&container, 30, &last);
    assert!(between.is_done());
    assert_eq!(read(&container, 30).unwrap(), vec![7; rest_bytes]);
    (0..30).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 39)));
}

#[test]
fn openings_that_are_killed_one_after_the_other_write_over_no_durable_root() {
    for seed in 0..200 {
        let mut bench = Bench::small();
        bench.disk = Disk::new(seed, || ());
        bench.disk.set_locks_ignored(true);
        let container = bench.create(1);
        for generation in 1..3 + seed as u32 % 3 {
            (0..10).for_each(|block| write(&container, block, generation));
            container.commit().unwrap();
        }
        drop(container);
        for _ in 0..3 {
            let file = bench.disk.open(segment::FILE_NAME).unwrap();
            // Stops for good when a root that it wrote is to be synced.
            let has_root = Cell::new(false);
            let file = Hooked {
                device: file,
                before_write: |offset| has_root.set(has_root.get() || offset < 12288),
                before_sync: || assert!(!has_root.get(), "as planned"),
            };
            let opening =
                || Container::open(file, Alone, bench.words(), Recovery::Discard, bench.options).map(drop);
            assert!(catch_unwind(AssertUnwindSafe(opening)).is_err());
        }
        bench.disk.lose_power();
        let (container, _) = bench.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let generation = 2 + seed as u32 % 3;
        (0..10).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, generation)));
    }
}

#[test]
fn a_writer_that_was_given_up_and_came_back_hides_no_other() {
    let bench = Bench::small();
    let memory = bench.words();
    let _container = bench.create_in(1, memory);
    let state = SharedState::new(memory, bench.options.geometry).unwrap();
    let killed = state.enter_append();
    let late = state.enter_append();
    state.leave_disk_block();
    assert!(state.has_writers_left());
    state.give_writers_up();
    assert!(!state.has_writers_left());
    drop(late);
    // The disk block after the next one has its writers counted in the same place.
    state.leave_disk_block();
    let other = state.enter_append();
    state.leave_disk_block();
    assert!(state.has_writers_left(), "a writer in the disk block is not waited for");
    drop(other);
    assert!(!state.has_writers_left(), "the one that was killed is waited for again");
    std::mem::forget(killed);
}
