//! One step after the other.

use std::sync::atomic::AtomicU64;

use pgshrink_cfs::slots::{Access, Evicted, Member, Pinned, Segment, Slots};
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::{Base, Error, Scratch, Stored};

use super::*;

type Region = Slots<'static, AtomicU64>;

fn region(segments_max: u32) -> Region {
    let capacity = capacity(segments_max, 4);
    let words: Vec<AtomicU64> = (0..capacity.words()).map(|_| AtomicU64::new(0)).collect();
    Slots::over(words.leak(), capacity).unwrap()
}

fn nobody_dead() -> &'static RefCell<BTreeSet<u64>> {
    Box::leak(Box::default())
}

fn shelf() -> Shelf {
    Shelf::new(|| {
        let disk = Disk::new(1, || ());
        // Of one server.
        disk.set_locks_ignored(true);
        disk
    })
}

type Joined = Member<'static, Simulated<'static>, AtomicU64>;
type Handle<'p> = Segment<'p, 'static, DiskFile, Simulated<'static>, AtomicU64>;

fn join(region: Region, pid: u64, dead: &'static RefCell<BTreeSet<u64>>) -> Joined {
    Member::enter(region, Simulated { pid, dead, relax: || panic!("waits for nobody") }).unwrap()
}

fn create<'p>(member: &'p Joined, relation: u32, id: u64, shelf: &Shelf) -> Handle<'p> {
    let folder = shelf.folder(&key(relation));
    Segment::create(member, key(relation), &folder, &birth(id), shelf, options()).unwrap()
}

fn write(handle: &mut Handle<'_>, value: u8, shelf: &Shelf) {
    let pinned = handle.pin(Access::Write, shelf).unwrap();
    pinned.write(0, 1, 0, &[value; 40], &mut Scratch::new()).unwrap();
}

fn commit(handle: &mut Handle<'_>, shelf: &Shelf) {
    handle.pin(Access::Write, shelf).unwrap().commit().unwrap();
}

fn read(handle: &mut Handle<'_>, shelf: &Shelf) -> Result<u8, Error> {
    let pinned = handle.pin(Access::Read, shelf)?;
    match pinned.read(0, &mut Scratch::new())? {
        Stored::Zeros => Ok(0),
        Stored::Base(_) => unreachable!("no test of these has a base"),
        Stored::Record { payload, .. } => Ok(payload[0]),
    }
}

#[test]
fn names_of_processes_have_pid_and_start() {
    let name = ProcessName::new(4_194_303, (1 << 42) - 1).unwrap();
    assert_eq!((name.pid(), name.start_ticks()), (4_194_303, (1 << 42) - 1));
    assert!(matches!(ProcessName::new(1 << 22, 0), Err(Error::Limit { what: "process id", .. })));
    assert!(ProcessName::new(1, 1 << 42).is_err() && ProcessName::new(0, 1).is_err());
}

#[test]
fn a_segment_is_opened_once_and_found_by_all() {
    let (region, dead, shelf) = (region(3), nobody_dead(), shelf());
    let (one, two) = (join(region, 1, dead), join(region, 2, dead));
    let mut first = create(&one, 7, 1, &shelf);
    write(&mut first, 5, &shelf);
    let mut second = Segment::new(&two, key(7)).unwrap();
    assert_eq!(read(&mut second, &shelf), Ok(5));
    assert_eq!((read(&mut second, &shelf), shelf.opened.get()), (Ok(5), 1));
    assert_eq!(one.usage().segments, 1);
    assert_eq!(one.usage().processes, 2);
}

#[test]
fn what_is_evicted_is_opened_again_with_all_its_pages() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handle = create(&member, 7, 1, &shelf);
    write(&mut handle, 5, &shelf);
    assert_eq!(member.evict(&key(7)), Ok(Evicted::Uncommitted));
    commit(&mut handle, &shelf);
    let pinned = handle.pin(Access::Read, &shelf).unwrap();
    assert_eq!(member.evict(&key(7)), Ok(Evicted::Pinned));
    let slot = pinned.slot();
    drop(pinned);
    assert_eq!(member.evict(&key(7)), Ok(Evicted::Done));
    assert!(
        region.segment_words(slot).iter().all(|word| word.load(std::sync::atomic::Ordering::SeqCst) == 0)
    );
    assert_eq!(member.evict(&key(7)), Ok(Evicted::NotOpen));
    assert_eq!(read(&mut handle, &shelf), Ok(5));
    // Opened for reading: nothing was written to the file, and now it is.
    write(&mut handle, 6, &shelf);
    assert_eq!(read(&mut handle, &shelf), Ok(6));
}

#[test]
fn nothing_goes_that_opening_again_would_not_give() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handle = create(&member, 7, 1, &shelf);
    write(&mut handle, 5, &shelf);
    handle.pin(Access::Write, &shelf).unwrap().extend(4).unwrap();
    commit(&mut handle, &shelf);
    handle.pin(Access::Write, &shelf).unwrap().truncate(2).unwrap();
    assert_eq!(member.evict(&key(7)), Ok(Evicted::Uncommitted));
    commit(&mut handle, &shelf);
    let slot = handle.pin(Access::Read, &shelf).unwrap().slot();
    let words = region.segment_words(slot);
    let shared = SharedState::new(words, options().geometry).unwrap().shared();
    // A failed fsync is to be known until the server has replayed its log; a commit that died, until the
    // next.
    for word in [&shared.poisoned, &shared.unfinished] {
        word.store(1, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(member.evict(&key(7)), Ok(Evicted::Uncommitted));
        word.store(0, std::sync::atomic::Ordering::SeqCst);
    }
    assert_eq!(member.evict(&key(7)), Ok(Evicted::Done));
    assert_eq!(handle.pin(Access::Read, &shelf).unwrap().pages(), 2);
}

#[test]
fn what_a_worker_closes_and_evicts_skips_no_versions_when_it_is_written_to_again() {
    let (region, dead, shelf) = (region(3), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handles: Vec<_> = (7..10).map(|relation| create(&member, relation, 1, &shelf)).collect();
    handles.iter_mut().for_each(|handle| write(handle, 5, &shelf));
    commit(&mut handles[0], &shelf);
    let drawn = |handle: &mut Handle<'_>| {
        let words = region.segment_words(handle.pin(Access::Read, &shelf).unwrap().slot());
        let shared = SharedState::new(words, options().geometry).unwrap().shared();
        shared.next_version.load(std::sync::atomic::Ordering::SeqCst)
    };
    let before: Vec<u64> = handles.iter_mut().map(drawn).collect();
    // One is in use, one is committed, one is not; the last two go, closed.
    let pinned = handles[2].pin(Access::Read, &shelf).unwrap();
    assert_eq!(member.close_idle(0, &shelf), Ok(2));
    drop(pinned);
    assert_eq!(member.usage().segments, 1);
    for (handle, before) in handles.iter_mut().zip(&before) {
        assert_eq!(read(handle, &shelf), Ok(5));
        write(handle, 6, &shelf);
        assert!(drawn(handle) - before < 100);
        commit(handle, &shelf);
    }
    // Closed and only read since: nothing is opened for that.
    member.close_idle(0, &shelf).unwrap();
    handles.iter_mut().for_each(|handle| assert_eq!(read(handle, &shelf), Ok(6)));
    let opened = shelf.opened.get();
    assert_eq!(member.close_idle(1, &shelf), Ok(2));
    assert_eq!((shelf.opened.get(), member.usage().segments), (opened, 1));
    // Evicted as it was: the next opening takes it for one after a crash.
    assert_eq!(member.evict_idle(0), Ok(1));
    write(&mut handles[0], 7, &shelf);
    commit(&mut handles[0], &shelf);
    let before = drawn(&mut handles[0]);
    assert_eq!(member.evict_idle(0), Ok(1));
    write(&mut handles[0], 8, &shelf);
    assert!(drawn(&mut handles[0]) - before > 1 << 22);
}

#[test]
fn a_slot_is_wiped_of_what_a_dead_writer_left_in_a_leaf_that_was_unloaded() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handle = create(&member, 7, 1, &shelf);
    let pinned = handle.pin(Access::Write, &shelf).unwrap();
    (0..64).for_each(|block| pinned.write(block, 1, 0, &[5; 100], &mut Scratch::new()).unwrap());
    pinned.commit().unwrap();
    assert_eq!(pinned.unload_idle(), Ok(1));
    let words = region.segment_words(pinned.slot());
    let entry = &words[pgshrink_cfs::region::FIXED_WORDS + 3];
    drop(pinned);
    entry.store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(member.evict(&key(7)), Ok(Evicted::Done));
    assert!(words.iter().all(|word| word.load(std::sync::atomic::Ordering::SeqCst) == 0));
}

#[test]
fn handles_of_a_segment_that_was_removed_fail_for_good() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let (one, two) = (join(region, 1, dead), join(region, 2, dead));
    let mut first = create(&one, 7, 1, &shelf);
    write(&mut first, 5, &shelf);
    let mut second = Segment::new(&two, key(7)).unwrap();
    assert_eq!(read(&mut second, &shelf), Ok(5));
    segment::unlink(&shelf.folder(&key(7))).unwrap();
    assert_eq!(one.invalidate(&key(7)), Ok(true));
    assert_eq!(one.invalidate(&key(7)), Ok(false));
    let gone = Error::SegmentGone { key: key(7) };
    assert_eq!(read(&mut second, &shelf), Err(gone.clone()));
    let mut anew = create(&one, 7, 2, &shelf);
    write(&mut anew, 9, &shelf);
    assert_eq!(read(&mut second, &shelf), Err(gone.clone()));
    assert_eq!(read(&mut first, &shelf), Err(gone.clone()));
    assert!(gone.to_string().contains("1/5/7 fork 0 segment 0 was removed or recreated"), "{gone}");
    assert_eq!(read(&mut Segment::new(&two, key(7)).unwrap(), &shelf), Ok(9));
}

#[test]
fn who_is_using_a_segment_that_is_removed_goes_on_and_the_new_one_waits() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let one = join(region, 1, dead);
    let mut old = create(&one, 7, 1, &shelf);
    write(&mut old, 5, &shelf);
    let pinned = old.pin(Access::Write, &shelf).unwrap();
    let two = join(region, 2, dead);
    segment::unlink(&shelf.folder(&key(7))).unwrap();
    assert_eq!(two.invalidate(&key(7)), Ok(true));
    pinned.write(0, 1, 0, &[6; 10], &mut Scratch::new()).unwrap();
    // It would wait for itself.
    let mut beside = Handle::new(&one, key(7)).unwrap();
    assert_eq!(beside.pin(Access::Read, &shelf).map(drop), Err(Error::SegmentGone { key: key(7) }));
    drop(pinned);
    write(&mut create(&two, 7, 2, &shelf), 8, &shelf);
    assert_eq!(two.usage().segments, 1);
}

#[test]
fn idle_segments_make_room_and_uncommitted_ones_are_committed_first() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handles: Vec<_> =
        (0..6).map(|relation| create(&member, relation, relation.into(), &shelf)).collect();
    for round in 0..3 {
        for (relation, handle) in (0..).zip(&mut handles) {
            write(handle, round * 10 + relation, &shelf);
        }
    }
    for (relation, handle) in (0..).zip(&mut handles) {
        assert_eq!(read(handle, &shelf), Ok(20 + relation));
    }
    let usage = member.usage();
    assert_eq!((usage.segments, usage.segments_max), (2, 2));
    assert!(usage.evictions >= 16, "{usage:?}");
}

#[test]
fn many_uncommitted_segments_make_room_one_by_one() {
    let (region, dead, shelf) = (region(80), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handles: Vec<_> =
        (0..120).map(|relation| create(&member, relation, relation.into(), &shelf)).collect();
    for round in 1..3 {
        handles.iter_mut().for_each(|handle| write(handle, round, &shelf));
    }
    handles.iter_mut().for_each(|handle| assert_eq!(read(handle, &shelf), Ok(2)));
}

#[test]
fn where_all_slots_are_in_use_the_limit_is_named() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handles: Vec<_> =
        (0..2).map(|relation| create(&member, relation, relation.into(), &shelf)).collect();
    let pins: Vec<_> = handles.iter_mut().map(|handle| handle.pin(Access::Read, &shelf).unwrap()).collect();
    let mut third = Handle::new(&member, key(3)).unwrap();
    let full = third.pin(Access::Read, &shelf).map(drop).unwrap_err();
    assert_eq!(full, Error::SlotsFull { limit: 2, pinned: 2, uncommitted: 0 });
    assert!(full.to_string().contains("all 2 slots for open segments are taken: 2 are in use"), "{full}");
    drop(pins);
    assert!(matches!(third.pin(Access::Read, &shelf).map(drop), Err(Error::Device { .. })));
}

#[test]
fn pins_of_a_dead_process_count_for_nothing_and_a_reused_pid_is_another() {
    let (region, shelf) = (region(2), shelf());
    let dead = nobody_dead();
    let (one, two) = (join(region, 1, dead), join(region, 2, dead));
    let mut handle = create(&one, 7, 1, &shelf);
    commit(&mut handle, &shelf);
    std::mem::forget(handle.pin(Access::Read, &shelf).unwrap());
    assert_eq!(two.evict(&key(7)), Ok(Evicted::Pinned));
    // Its id runs again, but started later: `is_running` compares.
    dead.borrow_mut().insert(1);
    assert_eq!(two.evict(&key(7)), Ok(Evicted::Done));
    assert_eq!(two.usage().processes, 1);
    // Four entries, one of them cleared by the eviction.
    let more: Vec<_> = (3..6).map(|pid| join(region, pid, dead)).collect();
    let full = Member::enter(region, Simulated { pid: 9, dead, relax: || () }).map(drop);
    assert_eq!(full, Err(Error::Limit { what: "processes of a region", found: 5, allowed: 4 }));
    dead.borrow_mut().insert(4);
    join(region, 9, dead);
    drop(more);
}

#[test]
fn a_process_that_left_by_a_jump_lets_go_of_what_it_had() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let (one, two) = (join(region, 1, dead), join(region, 2, dead));
    let mut handle = create(&one, 7, 1, &shelf);
    commit(&mut handle, &shelf);
    std::mem::forget(handle.pin(Access::Read, &shelf).unwrap());
    one.release_held();
    assert_eq!(two.evict(&key(7)), Ok(Evicted::Done));
    assert_eq!(read(&mut handle, &shelf), Err(Error::PastEnd { block: 0, pages: 0 }));
}

#[test]
fn idle_segments_are_evicted_down_to_a_number() {
    let (region, dead, shelf) = (region(8), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handles: Vec<_> =
        (0..8).map(|relation| create(&member, relation, relation.into(), &shelf)).collect();
    handles.iter_mut().take(7).for_each(|handle| commit(handle, &shelf));
    write(&mut handles[7], 1, &shelf);
    assert_eq!(member.evict_idle(3), Ok(5));
    assert_eq!(member.evict_idle(0), Ok(2));
    assert_eq!(member.usage().segments, 1);
}

#[test]
fn a_region_of_another_capacity_is_refused() {
    let words: Vec<AtomicU64> = (0..capacity(8, 8).words()).map(|_| AtomicU64::new(0)).collect();
    let words = words.leak();
    Slots::over(words, capacity(3, 4)).unwrap();
    let refused = Slots::over(words, capacity(4, 4)).map(drop);
    assert!(matches!(refused, Err(Error::SharedMemory { what: "segments and processes", .. })));
    let mut wider = capacity(3, 4);
    wider.geometry.pages_max += 1;
    let refused = Slots::over(words, wider).map(drop);
    assert!(matches!(refused, Err(Error::SharedMemory { what: "pages of a segment", .. })));
    let small = Slots::over(&words[..100], capacity(3, 4)).map(drop);
    assert!(matches!(small, Err(Error::SharedMemory { what: "words of the slots' region", .. })));
}

/// An opener of a server that runs without fsync and was killed.
struct RollingForward<'a>(&'a Shelf);

impl Opener<'static> for RollingForward<'_> {
    type File = DiskFile;

    fn open(&self, key: &SegmentKey) -> Result<Opened<'static, DiskFile>, DeviceError> {
        Ok(Opened { recovery: Recovery::RollForward, ..self.0.open(key)? })
    }
}

#[test]
fn what_is_rolled_forward_does_not_depend_on_whether_the_segment_is_read_or_written_first() {
    for first in [Access::Write, Access::Read] {
        let shelf = shelf();
        {
            let member = join(region(2), 1, nobody_dead());
            let mut handle = create(&member, 7, 1, &shelf);
            write(&mut handle, 5, &shelf);
            commit(&mut handle, &shelf);
            write(&mut handle, 6, &shelf);
            std::mem::forget(member);
        }
        // The memory is new, as after a restart.
        let member = join(region(2), 2, nobody_dead());
        let mut handle = Segment::new(&member, key(7)).unwrap();
        let forward = RollingForward(&shelf);
        handle.pin(first, &forward).unwrap();
        handle.pin(Access::Write, &forward).unwrap();
        assert_eq!(read(&mut handle, &shelf), Ok(6), "{first:?} first");
    }
}

/// A folder in which nothing can be renamed.
struct Unnamed(Disk);

impl Folder for Unnamed {
    type File = DiskFile;

    fn create(&self, name: &str) -> Result<DiskFile, DeviceError> {
        self.0.create(name)
    }

    fn open(&self, name: &str) -> Result<DiskFile, DeviceError> {
        self.0.open(name)
    }

    fn rename(&self, _: &str, _: &str) -> Result<(), DeviceError> {
        Err(DeviceError::NoSpace)
    }

    fn unlink(&self, name: &str) -> Result<(), DeviceError> {
        self.0.unlink(name)
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        self.0.sync_dir()
    }
}

#[test]
fn a_segment_that_could_not_be_made_takes_no_slot_and_can_be_made_again() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let unnamed = Unnamed(shelf.folder(&key(7)));
    let failed = Segment::create(&member, key(7), &unnamed, &birth(1), &shelf, options()).map(drop);
    assert!(failed.unwrap_err().is_no_space());
    assert_eq!(member.usage().segments, 0);
    write(&mut create(&member, 7, 2, &shelf), 8, &shelf);
    // Nor is one that is open harmed by who would make it once more.
    let folder = shelf.folder(&key(7));
    let again = Segment::create(&member, key(7), &folder, &birth(3), &shelf, options()).map(drop);
    assert!(matches!(again, Err(Error::Device { source: DeviceError::Exists, .. })));
    assert_eq!(read(&mut Segment::new(&member, key(7)).unwrap(), &shelf), Ok(8));
}

#[test]
fn a_segment_that_was_used_lately_is_not_evicted_before_one_that_was_not() {
    let (region, dead, shelf) = (region(3), nobody_dead(), shelf());
    let member = join(region, 1, dead);
    let mut handles: Vec<_> =
        (0..3).map(|relation| create(&member, relation, relation.into(), &shelf)).collect();
    handles.iter_mut().for_each(|handle| commit(handle, &shelf));
    // The first to go is the first that came; the search has passed the others since they were used.
    create(&member, 3, 3, &shelf);
    assert_eq!(member.evict(&key(0)), Ok(Evicted::NotOpen));
    handles[1].pin(Access::Read, &shelf).unwrap();
    create(&member, 4, 4, &shelf);
    assert_eq!(member.evict(&key(2)), Ok(Evicted::NotOpen));
    assert_eq!(member.evict(&key(1)), Ok(Evicted::Done));
}

#[test]
fn segments_are_counted_anew_where_a_process_died_amid_a_change() {
    let capacity = capacity(3, 4);
    let words: Vec<AtomicU64> = (0..capacity.words()).map(|_| AtomicU64::new(0)).collect();
    let words: &'static [AtomicU64] = words.leak();
    let (dead, shelf) = (nobody_dead(), shelf());
    let member = join(Slots::over(words, capacity).unwrap(), 1, dead);
    create(&member, 7, 1, &shelf);
    create(&member, 8, 2, &shelf);
    // As it is left between the index and the count: the slot that was being changed, the count of before.
    let (unfinished, open) = (&words[6], &words[10]);
    assert_eq!(open.load(std::sync::atomic::Ordering::SeqCst), 2);
    unfinished.store(2, std::sync::atomic::Ordering::SeqCst);
    open.store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(member.usage().segments, 1);
    assert_eq!(member.evict(&key(9)), Ok(Evicted::NotOpen));
    assert_eq!(member.usage().segments, 2);
    assert_eq!(unfinished.load(std::sync::atomic::Ordering::SeqCst), 0);
}

thread_local! {
    /// A segment that its worker has frozen, and how often others have waited for it.
    static FROZEN: Cell<Option<&'static Pinned<'static, 'static, DiskFile, Simulated<'static>, AtomicU64>>> =
        const { Cell::new(None) };
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn who_finds_a_segment_frozen_lets_go_of_it_and_thaws_it_after_a_while() {
    let (region, dead, shelf) = (region(2), nobody_dead(), shelf());
    let worker: &'static Joined = Box::leak(Box::new(join(region, 1, dead)));
    let handle: &'static mut Handle<'static> = Box::leak(Box::new(create(worker, 1, 1, &shelf)));
    write(handle, 7, &shelf);
    shelf.folder(&key(1)).create(segment::BASE_NAME).unwrap();
    let pinned = &*Box::leak(Box::new(handle.pin(Access::Write, &shelf).unwrap()));
    assert!(pinned.begin_returning().unwrap() && pinned.freeze() && pinned.is_quiet());
    FROZEN.set(Some(pinned));
    let relax = || {
        WAITS.set(WAITS.get() + 1);
        assert!(FROZEN.get().is_some_and(|pinned| pinned.is_quiet()), "who waits has it pinned");
        assert!(WAITS.get() < 1000, "it stays frozen");
    };
    let other = Member::enter(region, Simulated { pid: 2, dead, relax }).unwrap();
    let mut other = Segment::new(&other, key(1)).unwrap();
    assert_eq!(read(&mut other, &shelf).unwrap(), 7);
    assert!(WAITS.get() > 0 && !pinned.is_frozen());
    // The change comes too late.
    assert!(!pinned.turn_round().unwrap() && pinned.base() == Base::Returning);
}
