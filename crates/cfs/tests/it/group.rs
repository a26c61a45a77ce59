//! Commits of several containers together, and commits that are left between two phases. Schedules of them
//! are in `crashes`.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::group::{self, GROUP_MAX, InTurn, SyncAll, Threads};
use pgshrink_cfs::prepared::SyncJob;
use pgshrink_cfs::sim::{DiskFile, FaultRates};
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::{
    Birth, Budget, Container, Device, DeviceError, Error, Folder, Identity, KEY_BYTES, Options, ProcessTable,
    Recovery, Scratch, Stats, Stored, segment,
};
use pgshrink_testkit::TempDir;

use crate::findings::Hooked;
use crate::fixture::{Bench, Open, content, read, write};
use crate::shell::FileFolder;

/// Benches with a container each, of a committed page and one that is not.
fn containers(count: usize) -> (Vec<Bench>, Vec<Open<'static>>) {
    let benches: Vec<Bench> = (0..count).map(|_| Bench::small()).collect();
    let containers: Vec<_> = (0..).zip(&benches).map(|(id, bench)| bench.create(id)).collect();
    for container in &containers {
        write(container, 0, 0);
        container.commit().unwrap();
        write(container, 1, 1);
    }
    (benches, containers)
}

fn after_power_loss(bench: &Bench) -> Open<'static> {
    bench.disk.set_faults(FaultRates::default());
    bench.disk.lose_power();
    bench.open().unwrap().0
}

/// Counts jobs and leaves all of them to who needs them.
struct Lazy(Cell<usize>);

impl<D, W> SyncAll<D, W> for Lazy {
    fn sync_all(&self, jobs: &mut [SyncJob<'_, D, W>]) {
        self.0.set(self.0.get().max(jobs.len()));
    }
}

#[test]
fn what_a_group_has_committed_is_durable_and_the_commits_that_follow_find_nothing_to_do() {
    let (benches, containers) = containers(GROUP_MAX + 3);
    let group: Vec<_> = containers.iter().collect();
    let done = group::commit(&group, &InTurn);
    assert!(done.iter().all(|done| done.as_ref().unwrap().sequence.is_some()), "{done:?}");
    let written: Vec<_> = benches.iter().map(|bench| bench.disk.written_bytes()).collect();
    assert!(containers.iter().all(|container| container.commit().unwrap().sequence.is_none()));
    let done = group::commit(&group, &InTurn);
    assert!(done.iter().all(|done| done.as_ref().unwrap().sequence.is_none()), "{done:?}");
    assert!(benches.iter().zip(written).all(|(bench, before)| bench.disk.written_bytes() == before));
    for bench in &benches {
        let opened = after_power_loss(bench);
        assert_eq!((read(&opened, 0), read(&opened, 1)), (Ok(content(0, 0)), Ok(content(1, 1))));
    }
}

#[test]
fn a_commit_since_a_moment_before_the_groups_is_served_by_it_though_others_write_on() {
    let (benches, containers) = containers(2);
    let (bench, container) = (&benches[0], &containers[0]);
    let before = container.moment();
    assert!(group::commit(&containers.iter().collect::<Vec<_>>(), &InTurn).iter().all(Result::is_ok));
    let after = container.moment();
    write(container, 2, 1);
    let written = bench.disk.written_bytes();
    assert_eq!(container.commit_since(before).unwrap().sequence, None);
    assert_eq!(bench.disk.written_bytes(), written);
    assert!(container.commit_since(after).unwrap().sequence.is_some());
    assert_eq!(read(&after_power_loss(bench), 2), Ok(content(2, 1)));
}

#[test]
fn an_fsync_that_nobody_has_done_is_done_before_it_is_relied_on() {
    let (benches, containers) = containers(GROUP_MAX + 3);
    let group: Vec<_> = containers.iter().collect();
    let lazy = Lazy(Cell::new(0));
    assert!(group::commit(&group, &lazy).iter().all(Result::is_ok));
    assert_eq!(lazy.0.get(), GROUP_MAX, "more locks are held at the same time");
    assert!(benches.iter().all(|bench| read(&after_power_loss(bench), 1) == Ok(content(1, 1))));
}

/// A disk's file, with calls in front of what changes it.
fn hooked<W: Fn(u64), S: Fn()>(
    bench: &Bench,
    before_write: W,
    before_sync: S,
) -> Container<'static, Hooked<DiskFile, W, S>, Alone> {
    let device = bench.disk.open(segment::FILE_NAME).unwrap();
    let device = Hooked { device, before_write, before_sync };
    Container::open(device, Alone, bench.words(), Recovery::Discard, bench.options).unwrap().0
}

fn put<D: Device, P: ProcessTable>(container: &Container<'_, D, P>, block: u32, generation: u32) {
    container.write(block, 1, 0, &content(block, generation), &mut Scratch::new()).unwrap();
}

#[test]
fn a_failed_fsync_fails_the_commit_of_its_own_container_alone() {
    // The data's fdatasync, the root's.
    for failing in [1, 2] {
        let (benches, _) = containers(3);
        let syncs = Cell::new(u32::MAX);
        let count = |bench: usize| {
            let (disk, syncs) = (benches[bench].disk.clone(), &syncs);
            move || {
                if bench == 1 {
                    syncs.set(syncs.get().saturating_sub(1));
                    let sync = if syncs.get() == 0 { 1_000_000 } else { 0 };
                    disk.set_faults(FaultRates { sync, ..FaultRates::default() });
                }
            }
        };
        let opened: Vec<_> = (0..3).map(|index| hooked(&benches[index], |_| (), count(index))).collect();
        opened.iter().for_each(|container| put(container, 1, 2));
        syncs.set(failing);
        let done = group::commit(&opened.iter().collect::<Vec<_>>(), &InTurn);
        benches[1].disk.set_faults(FaultRates::default());
        assert!(
            done[0].is_ok() && matches!(done[1], Err(Error::Device { .. })) && done[2].is_ok(),
            "{done:?}"
        );
        assert_eq!(opened[1].commit(), Err(Error::Poisoned));
        let again = group::commit(&opened.iter().collect::<Vec<_>>(), &InTurn);
        assert_eq!(again[1], Err(Error::Poisoned));
        for index in [0, 2] {
            assert_eq!(again[index].as_ref().unwrap().sequence, None);
            assert_eq!(read(&after_power_loss(&benches[index]), 1), Ok(content(1, 2)));
        }
    }
}

#[test]
fn a_failed_begin_of_writeback_is_a_failed_fsync() {
    let (benches, containers) = containers(3);
    benches[1].disk.set_faults(FaultRates { sync: 1_000_000, ..FaultRates::default() });
    let done = group::commit(&containers.iter().collect::<Vec<_>>(), &InTurn);
    benches[1].disk.set_faults(FaultRates::default());
    assert!(done[0].is_ok() && matches!(done[1], Err(Error::Device { .. })) && done[2].is_ok(), "{done:?}");
    assert_eq!(containers[1].commit(), Err(Error::Poisoned));
}

/// A disk's file whose begin of writeback fails once: the call when `until` has come to 0.
struct FailsToBegin {
    device: DiskFile,
    until: Cell<u32>,
    error: DeviceError,
}

impl Device for FailsToBegin {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        self.device.pread(buffer, offset)
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.device.pwrite(bytes, offset)
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        self.device.fdatasync()
    }

    fn begin_writeback(&self) -> Result<(), DeviceError> {
        self.until.set(self.until.get().wrapping_sub(1));
        if self.until.get() == 0 { Err(self.error) } else { Ok(()) }
    }

    crate::shell::handed_on!();
}

#[test]
fn a_begin_of_writeback_that_fails_once_fails_the_commit_whatever_the_fsync_says() {
    // The data's, the root's: the system reports an error once, and the fsync that follows succeeds. Where there was no
    // descriptor, nothing was tried.
    let (failed, untried) = (DeviceError::Io(5), DeviceError::NoDescriptor);
    for (failing, error) in [(1, failed), (2, failed), (1, untried), (2, untried)] {
        let (benches, _) = containers(2);
        let opened = benches.iter().map(|bench| {
            let device = FailsToBegin {
                device: bench.disk.open(segment::FILE_NAME).unwrap(),
                until: Cell::new(u32::MAX),
                error,
            };
            Container::open(device, Alone, bench.words(), Recovery::Discard, bench.options).unwrap().0
        });
        let opened: Vec<_> = opened.collect();
        opened.iter().for_each(|container| put(container, 1, 2));
        opened[0].device().until.set(failing);
        let done = group::commit(&opened.iter().collect::<Vec<_>>(), &InTurn);
        assert!(matches!(done[0], Err(Error::Device { .. })) && done[1].is_ok(), "{failing}: {done:?}");
        match error == untried {
            true => assert!(opened[0].commit().unwrap().sequence.is_some(), "{failing}"),
            false => assert_eq!(opened[0].commit(), Err(Error::Poisoned)),
        }
    }
}

#[test]
fn writeback_is_begun_for_what_is_new_and_only_while_nobody_commits() {
    let (_, containers) = containers(1);
    let container = &containers[0];
    let written = container.stats().written_bytes;
    assert_eq!(container.begin_writeback(written + 1), Ok(false));
    assert_eq!(container.stats().writeback_bytes, 0);
    assert_eq!(container.begin_writeback(written), Ok(true));
    assert_eq!(container.stats().writeback_bytes, written);
    assert_eq!(container.begin_writeback(0), Ok(false), "nothing is new");
    put(container, 2, 1);
    let prepared = container.prepare_commit().unwrap();
    assert!(prepared.is_some());
    drop(prepared);
    // Whoever held the lock has left a failed commit.
    assert_eq!(container.begin_writeback(1), Ok(false));
    container.commit().unwrap();
    assert_eq!(container.begin_writeback(1), Ok(true));
    assert_eq!(container.stats().writeback_bytes, container.stats().written_bytes);
    assert_eq!(container.commit().unwrap().sequence, None);
}

#[test]
fn a_begin_of_writeback_that_fails_between_commits_is_a_failed_fsync() {
    let (benches, containers) = containers(1);
    benches[0].disk.set_faults(FaultRates { sync: 1_000_000, ..FaultRates::default() });
    let failed = containers[0].begin_writeback(1);
    benches[0].disk.set_faults(FaultRates::default());
    assert!(matches!(failed, Err(Error::Device { .. })), "{failed:?}");
    assert_eq!(containers[0].commit(), Err(Error::Poisoned));
    assert_eq!(containers[0].begin_writeback(1), Ok(false));
    assert_eq!(read(&after_power_loss(&benches[0]), 0), Ok(content(0, 0)));
}

#[test]
fn writeback_is_not_begun_while_another_process_holds_the_commit_lock() {
    let (benches, _) = containers(1);
    let words = benches[0].words();
    let relax = || panic!("it does not wait");
    let file = benches[0].disk.open(segment::FILE_NAME).unwrap();
    let options = benches[0].options;
    let (container, _) =
        Container::open(file, Waiting(1, &relax), words, Recovery::Discard, options).unwrap();
    put(&container, 1, 2);
    let shared = SharedState::new(words, options.geometry).unwrap().shared();
    shared.commit_lock.store(2, Ordering::SeqCst);
    assert_eq!(container.begin_writeback(1), Ok(false));
    shared.commit_lock.store(0, Ordering::SeqCst);
    assert_eq!(container.begin_writeback(1), Ok(true));
}

/// Counts the places between moves.
struct Counting<'a>(&'a Cell<u32>);

impl ProcessTable for Counting<'_> {
    fn me(&self) -> u64 {
        1
    }

    fn is_alive(&self, _: u64) -> bool {
        true
    }

    fn relax(&self) {}

    fn after_move(&self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn who_collects_may_rest_after_each_record_moved_and_each_extent_given_back() {
    let bench = Bench::small();
    drop(bench.create(1));
    let moves = Cell::new(0);
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let (container, _) =
        Container::open(file, Counting(&moves), bench.words(), Recovery::Discard, bench.options).unwrap();
    for generation in 0..40 {
        (0..16)
            .filter(|block| generation == 0 || block % 4 != 0)
            .for_each(|block| put(&container, block, generation));
    }
    container.commit().unwrap();
    assert_eq!(moves.get(), 0);
    let found = container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    assert!(found.moved_records > 0, "{found:?}");
    assert!(u64::from(moves.get()) >= found.moved_records);
    container.commit().unwrap();
    let before = moves.get();
    let extent_bytes = u64::from(bench.options.geometry.extent_units) * 16;
    let given_back = container.give_back().unwrap();
    assert!(given_back > 0);
    assert_eq!(u64::from(moves.get() - before), given_back / extent_bytes);
}

#[test]
fn a_file_to_which_nobody_writes_keeps_no_space_for_the_next_writes() {
    let bench = Bench::new(Options::new(1 << 12));
    let container = bench.create(1);
    let mut scratch = Scratch::new();
    let mut write = |block: u32, generation: u8| {
        container.write(block, 1, 0, &[generation; 900], &mut scratch).unwrap();
    };
    for generation in 0..4 {
        (0..300).for_each(|block| write(block, generation));
        container.commit().unwrap();
    }
    let budget = Budget { bytes: 1 << 20, garbage_percent: 1 };
    while container.collect_tightly(budget).unwrap().moved_records > 0 {
        container.commit().unwrap();
    }
    // A commit appends its map, and takes space for more.
    container.commit().unwrap();
    container.leave_run();
    container.give_back().unwrap();
    let Stats { allocated_bytes, .. } = container.stats();
    let live = 300 * 1000;
    assert!(allocated_bytes < live + live / 10 + 3 * 8192, "{allocated_bytes} for {live}");
    // Writes go on elsewhere.
    (0..300).filter(|block| block % 3 == 0).for_each(|block| write(block, 9));
    container.commit().unwrap();
    drop(container);
    let (container, _) = bench.open().unwrap();
    for block in 0..300 {
        let expected = if block % 3 == 0 { 9 } else { 3 };
        match container.read(block, &mut scratch).unwrap() {
            Stored::Record { payload, .. } => assert_eq!(payload, [expected; 900], "block {block}"),
            other => panic!("block {block}: {other:?}"),
        }
    }
}

#[test]
fn a_panic_in_an_fsync_of_a_group_leaves_no_lock_behind() {
    let (benches, _) = containers(3);
    let is_armed = Cell::new(false);
    let before_sync = |index: usize| {
        let is_armed = &is_armed;
        move || assert!(!(index == 1 && is_armed.get()), "as planned")
    };
    let opened: Vec<_> = (0..3).map(|index| hooked(&benches[index], |_| (), before_sync(index))).collect();
    opened.iter().for_each(|container| put(container, 1, 2));
    is_armed.set(true);
    let group: Vec<_> = opened.iter().collect();
    let panicked = catch_unwind(AssertUnwindSafe(|| group::commit(&group, &InTurn)));
    assert!(panicked.is_err());
    is_armed.set(false);
    // Nobody knows what came of that fsync; the others' commits are done anew.
    let done = group::commit(&group, &InTurn);
    assert_eq!(done[1], Err(Error::Poisoned));
    for index in [0, 2] {
        assert!(done[index].as_ref().unwrap().sequence.is_some());
        assert_eq!(read(&after_power_loss(&benches[index]), 1), Ok(content(1, 2)));
    }
}

#[test]
fn a_commit_that_is_dropped_between_two_phases_is_a_failed_one() {
    for is_written in [false, true] {
        for is_synced in [false, true] {
            let (benches, containers) = containers(1);
            let (bench, container) = (&benches[0], &containers[0]);
            let mut prepared = container.prepare_commit().unwrap().unwrap();
            if is_synced {
                prepared.sync_job().run();
            }
            if is_written {
                let mut written = prepared.write_root().unwrap();
                if is_synced {
                    written.sync_job().run();
                }
                drop(written);
            } else {
                drop(prepared);
            }
            write(container, 2, 1);
            // What the dropped one took the marks of is not forgotten.
            assert!(container.commit().unwrap().sequence.is_some());
            assert!(container.prepare_commit().unwrap().is_none());
            let opened = after_power_loss(bench);
            (1..3).for_each(|block| assert_eq!(read(&opened, block), Ok(content(block, 1))));
        }
    }
}

/// Says when it waits.
struct Waiting<'a>(u64, &'a dyn Fn());

impl ProcessTable for Waiting<'_> {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_alive(&self, _: u64) -> bool {
        true
    }

    fn relax(&self) {
        (self.1)();
    }
}

#[test]
fn a_group_waits_for_no_lock_while_it_holds_one_and_leaves_nobody_out() {
    let (benches, _) = containers(3);
    let all: Vec<_> = benches.iter().map(Bench::words).collect();
    let lock = |index: usize| {
        let shared = SharedState::new(all[index], benches[index].options.geometry).unwrap().shared();
        &shared.commit_lock
    };
    let waits = Cell::new(0);
    // The second container is committed by another process, which comes to its end when it is waited for.
    let relax = || {
        waits.set(waits.get() + 1);
        assert_eq!([0, 2].map(|index| lock(index).load(Ordering::SeqCst)), [0, 0]);
        lock(1).store(0, Ordering::SeqCst);
    };
    let opened: Vec<_> = (0..3)
        .map(|index| {
            let file = benches[index].disk.open(segment::FILE_NAME).unwrap();
            let options = benches[index].options;
            Container::open(file, Waiting(1, &relax), all[index], Recovery::Discard, options).unwrap().0
        })
        .collect();
    opened.iter().for_each(|container| put(container, 1, 2));
    lock(1).store(2, Ordering::SeqCst);
    let done = group::commit(&opened.iter().collect::<Vec<_>>(), &InTurn);
    assert!(done.iter().all(|done| done.as_ref().unwrap().sequence.is_some()), "{done:?}");
    assert_eq!(waits.get(), 1);
}

#[test]
fn a_group_ends_a_truncation_that_its_process_did_not() {
    let bench = Bench::small();
    let words = bench.words();
    let container = bench.create_in(1, words);
    (0..2).for_each(|block| write(&container, block, 1));
    let size = &SharedState::new(words, bench.options.geometry).unwrap().shared().size;
    // A truncation to one page, by a process that died before it had taken the entry above away.
    size.store(1 | 1 << 32, Ordering::SeqCst);
    assert!(group::commit(&[&container], &InTurn)[0].is_ok());
    assert_eq!((size.load(Ordering::SeqCst), bench.entry(words, 1).load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn a_container_that_is_given_twice_is_committed_once() {
    let bench = Bench::small();
    let words = bench.words();
    let container = bench.create_in(1, words);
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let same = Container::open(file, Alone, words, Recovery::Discard, bench.options).unwrap().0;
    write(&container, 0, 1);
    let done = group::commit(&[&same, &container, &same], &InTurn);
    let sequences: Vec<_> = done.into_iter().map(|done| done.unwrap().sequence).collect();
    assert!(sequences[0].is_some() && sequences[1..] == [None, None], "{sequences:?}");
    write(&container, 0, 2);
    container.commit().unwrap();
}

#[test]
fn threads_commit_files_of_the_system() {
    const COUNT: u8 = 6;
    let folder = TempDir::new().unwrap();
    let options = Bench::small().options;
    let words = || -> &'static [AtomicU64] {
        Vec::leak((0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect())
    };
    let home = |id: u8| FileFolder(folder.path().join(id.to_string()));
    for threads in [3, 100] {
        let containers: Vec<_> = (0..COUNT)
            .map(|id| {
                let _ = std::fs::remove_dir_all(home(id).0);
                std::fs::create_dir(home(id).0).unwrap();
                let birth = Birth { id: [id; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
                segment::create(&home(id), Alone, words(), &birth, options).unwrap()
            })
            .collect();
        containers.iter().for_each(|container| put(container, 0, threads));
        let group: Vec<_> = containers.iter().collect();
        let done = group::commit(&group, &Threads { count: threads as usize });
        assert!(done.iter().all(|done| done.as_ref().unwrap().sequence.is_some()), "{done:?}");
        drop(containers);
        for id in 0..COUNT {
            let file = home(id).open(segment::FILE_NAME).unwrap();
            let opened = Container::open(file, Alone, words(), Recovery::Discard, options).unwrap().0;
            let mut scratch = Scratch::new();
            let stored = opened.read(0, &mut scratch).unwrap();
            let expected = content(0, threads);
            assert!(matches!(stored, pgshrink_cfs::Stored::Record { payload, .. } if payload == expected));
        }
    }
}

#[test]
fn threads_leave_no_fsync_to_who_needs_it() {
    const COUNT: usize = 5;
    let synced = AtomicU64::new(0);
    let folder = TempDir::new().unwrap();
    let options = Bench::small().options;
    let homes: Vec<_> = (0..COUNT).map(|index| FileFolder(folder.path().join(index.to_string()))).collect();
    let open = |home: &FileFolder| {
        std::fs::create_dir(&home.0).unwrap();
        let words = Bench::small().words();
        let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        segment::create(home, Alone, words, &birth, options).unwrap();
        let device = home.open(segment::FILE_NAME).unwrap();
        let before_sync = || {
            synced.fetch_add(1, Ordering::SeqCst);
        };
        let device = Hooked { device, before_write: |_| (), before_sync };
        Container::open(device, Alone, words, Recovery::Discard, options).unwrap().0
    };
    let containers: Vec<_> = homes.iter().map(open).collect();
    containers.iter().for_each(|container| put(container, 0, 1));
    let mut prepared: Vec<_> =
        containers.iter().map(|container| container.prepare_commit().unwrap().unwrap()).collect();
    let mut jobs: Vec<_> = prepared.iter_mut().map(|commit| commit.sync_job()).collect();
    Threads { count: 2 }.sync_all(&mut jobs);
    assert_eq!(synced.load(Ordering::SeqCst), COUNT as u64);
}
