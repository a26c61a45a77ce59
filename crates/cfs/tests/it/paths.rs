//! What the paths of a read, a write and a full disk cost.

use std::cell::Cell;
use std::rc::Rc;

use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::{Disk, FaultRates};
use pgshrink_cfs::{Budget, Error, Options, Scratch};
use pgshrink_testkit::allocations::{self, Counting};

use crate::fixture::{Bench, content, read, write};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_read_is_one_pread_and_reads_and_writes_allocate_nothing() {
    let steps = Rc::new(Cell::new(0));
    let counted = steps.clone();
    let mut bench = Bench::small();
    bench.disk = Disk::new(1, move || counted.set(counted.get() + 1));
    let container = bench.create(1);
    let mut scratch = Scratch::new();
    (0..20).for_each(|block| write(&container, block, 1));
    let page = content(7, 1);
    let before = allocations::count();
    steps.set(0);
    for _ in 0..100 {
        container.read(7, &mut scratch).unwrap();
    }
    assert_eq!(allocations::count() - before, 0);
    // A pread, and the pause before it.
    assert_eq!(steps.get(), 200);
    // The device's own allocations are not counted: it is a simulated one.
    assert_eq!(read(&container, 7).unwrap(), page);
}

#[test]
fn on_a_full_disk_pages_are_rewritten_and_commits_succeed_from_the_reserve_and_growing_does_not() {
    for inline in [0, 1] {
        let bench = Bench::new(Options { ..crate::plan::options(Fault::None, inline) });
        let container = bench.create(1);
        (0..40).for_each(|block| write(&container, block, 1));
        container.commit().unwrap();
        bench.disk.set_faults(FaultRates { space: 1_000_000, ..FaultRates::default() });
        let mut scratch = Scratch::new();
        let grown = container.write(50, 1, 0, &content(50, 1), &mut scratch);
        assert!(matches!(&grown, Err(error) if error.is_no_space()), "{grown:?}");
        assert_eq!(container.pages(), 40);
        let moved = container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 });
        assert!(moved.is_ok() || moved.is_err_and(|error| error.is_no_space()));
        (0..40).for_each(|block| write(&container, block, 2));
        container.commit().unwrap();
        container.truncate(10).unwrap();
        container.commit().unwrap();
        container.close().unwrap();
        bench.disk.set_faults(FaultRates::default());
        let (container, _) = bench.open().unwrap();
        assert_eq!(container.pages(), 10);
        (0..10).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 2)));
    }
}

#[test]
fn a_commit_that_finds_no_space_can_be_tried_again() {
    let mut bench = Bench::small();
    let container = bench.create(1);
    (0..40).for_each(|block| write(&container, block, 1));
    bench.disk.set_reserve_refused(true);
    bench.disk.set_faults(FaultRates { space: 1_000_000, ..FaultRates::default() });
    let refused = container.commit();
    assert!(matches!(&refused, Err(error) if error.is_no_space()), "{refused:?}");
    (0..40).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 1)));
    bench.disk.set_faults(FaultRates::default());
    container.commit().unwrap();
    bench.disk.lose_power();
    bench.options.fault = Fault::None;
    let (container, _) = bench.open().unwrap();
    (0..40).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 1)));
}

#[test]
fn a_commit_needs_no_more_than_it_says() {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..60).for_each(|block| write(&container, block, 1));
    for generation in 2..30 {
        (0..60)
            .filter(|block| block % generation == 0)
            .for_each(|block| write(&container, block, generation));
        let (before, allowed) = (bench.disk.written_bytes(), container.commit_bytes_max());
        container.commit().unwrap();
        assert!(bench.disk.written_bytes() - before <= allowed);
    }
}

#[test]
fn a_segment_that_was_only_appended_to_is_left_alone() {
    let bench = Bench::small();
    let container = bench.create(1);
    let mut scratch = Scratch::new();
    for block in 0..60 {
        container.write(block, 1, 0, &[1; 3000], &mut scratch).unwrap();
        if block % 10 == 9 {
            container.commit().unwrap();
        }
    }
    let done = container.collect(Budget { bytes: 1 << 20, garbage_percent: 30 }).unwrap();
    assert_eq!((done.moved_records, done.punched_bytes), (0, 0), "{done:?}");
}

#[test]
fn limits_are_named() {
    let bench = Bench::small();
    let container = bench.create(1);
    let mut scratch = Scratch::new();
    let too_far = container.write(64, 1, 0, b"x", &mut scratch);
    assert!(matches!(too_far, Err(Error::Limit { what: "block", .. })));
    let too_long = container.write(0, 1, 0, &[1; 9000], &mut scratch);
    assert!(matches!(too_long, Err(Error::Limit { .. })));
    assert!(matches!(container.write(0, 1, 0, b"", &mut scratch), Err(Error::Limit { .. })));
    assert!(matches!(container.read(0, &mut scratch), Err(Error::PastEnd { block: 0, pages: 0 })));
}
