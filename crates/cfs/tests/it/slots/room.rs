//! Slots where few are left: what keeps one from being had, and what must not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pgshrink_cfs::sim::FaultRates;
use pgshrink_cfs::slots::{Access, Evicted, Member, Segment, Slots};
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{Error, Scratch};

use super::*;
use crate::coroutine::Coroutine;
use crate::schedule::clock;
use crate::schedule::word::{Memory, SimWord};

/// A word that others set again whenever it is cleared.
#[derive(Default)]
struct Sticky {
    value: AtomicU64,
    is_set_again: AtomicBool,
}

impl Word for Sticky {
    fn load(&self) -> u64 {
        Word::load(&self.value)
    }

    fn store(&self, value: u64) {
        let is_set_again = value == 0 && self.is_set_again.load(Ordering::SeqCst);
        Word::store(&self.value, if is_set_again { 1 } else { value });
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        Word::swap_if(&self.value, current, new)
    }

    fn add(&self, value: u64) -> u64 {
        Word::add(&self.value, value)
    }
}

type Joined<W> = Member<'static, Simulated<'static>, W>;
type Handle<'p, W> = Segment<'p, 'static, DiskFile, Simulated<'static>, W>;

fn join<W: Word + Default>(segments_max: u32) -> (Slots<'static, W>, Joined<W>) {
    let capacity = capacity(segments_max, 4);
    let words: Vec<W> = (0..capacity.words()).map(|_| W::default()).collect();
    let slots = Slots::over(words.leak(), capacity).unwrap();
    let host = Simulated { pid: 1, dead: Box::leak(Box::default()), relax: || panic!("waits for nobody") };
    (slots, Member::enter(slots, host).unwrap())
}

fn shelf() -> Shelf {
    Shelf::new(|| {
        let disk = Disk::new(1, || ());
        disk.set_locks_ignored(true);
        disk
    })
}

fn create<'p, W: Word>(member: &'p Joined<W>, relation: u32, shelf: &Shelf) -> Handle<'p, W> {
    let folder = shelf.folder(&key(relation));
    Segment::create(member, key(relation), &folder, &birth(relation.into()), shelf, options()).unwrap()
}

fn write<W: Word>(handle: &mut Handle<'_, W>, shelf: &Shelf) {
    handle.pin(Access::Write, shelf).unwrap().write(0, 1, 0, &[5; 40], &mut Scratch::new()).unwrap();
}

fn poison<W: Word>(handle: &mut Handle<'_, W>, relation: u32, shelf: &Shelf) {
    write(handle, shelf);
    let disk = shelf.folder(&key(relation));
    disk.set_faults(FaultRates { sync: 1_000_000, ..FaultRates::default() });
    assert!(handle.pin(Access::Write, shelf).unwrap().commit().is_err());
    disk.set_faults(FaultRates::default());
    assert_eq!(handle.pin(Access::Write, shelf).unwrap().commit(), Err(Error::Poisoned));
}

#[test]
fn a_slot_is_had_though_others_use_all_segments_again_and_again() {
    let (slots, member) = join::<Sticky>(3);
    let shelf = shelf();
    let mut handles: Vec<_> = (0..4).map(|relation| create(&member, relation, &shelf)).collect();
    handles.iter_mut().for_each(|handle| drop(handle.pin(Access::Read, &shelf).unwrap()));
    for slot in 0..3 {
        let state: *const Sticky = slots.state_word(slot);
        let words = slots.all_words();
        let at = words.iter().position(|word| std::ptr::eq(word, state)).unwrap();
        words[at + 4].is_set_again.store(true, Ordering::SeqCst);
    }
    for handle in &mut handles {
        handle.pin(Access::Read, &shelf).map(drop).unwrap();
    }
}

#[test]
fn a_segment_whose_fsync_failed_keeps_its_slot_and_others_get_the_rest() {
    for poisoned in 0..2 {
        let (_, member) = join::<AtomicU64>(2);
        let shelf = shelf();
        let mut handles: Vec<_> = (0..2).map(|relation| create(&member, relation, &shelf)).collect();
        poison(&mut handles[poisoned], poisoned as u32, &shelf);
        write(&mut handles[1 - poisoned], &shelf);
        for relation in 2..6 {
            write(&mut create(&member, relation, &shelf), &shelf);
        }
        assert_eq!(member.evict(&key(poisoned as u32)), Ok(Evicted::Uncommitted));
        let other = 1 - poisoned;
        poison(&mut handles[other], other as u32, &shelf);
        let full = Segment::new(&member, key(7)).unwrap().pin(Access::Read, &shelf).map(drop);
        assert_eq!(full, Err(Error::SlotsFull { limit: 2, pinned: 0, uncommitted: 2 }));
    }
}

/// Fails for one segment.
struct Failing<'a>(&'a Shelf, u32, DeviceError);

impl Opener<'static> for Failing<'_> {
    type File = DiskFile;

    fn open(&self, key: &SegmentKey) -> Result<Opened<'static, DiskFile>, DeviceError> {
        if key.relation == self.1 { Err(self.2) } else { self.0.open(key) }
    }
}

#[test]
fn a_segment_that_cannot_be_committed_fails_nobody_who_wants_another() {
    for failure in [DeviceError::Io(5), DeviceError::NotFound] {
        for failing in 0..2 {
            let (_, member) = join::<AtomicU64>(2);
            let shelf = shelf();
            let mut handles: Vec<_> = (0..2).map(|relation| create(&member, relation, &shelf)).collect();
            handles.iter_mut().for_each(|handle| write(handle, &shelf));
            let opener = Failing(&shelf, failing, failure);
            let folder = shelf.folder(&key(2));
            Segment::create(&member, key(2), &folder, &birth(2), &opener, options()).unwrap();
            assert_eq!(member.evict(&key(failing)), Ok(Evicted::Uncommitted));
        }
    }
}

/// A folder in which files get no names.
struct Nameless(Disk);

impl Folder for Nameless {
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
        Folder::sync_dir(&self.0)
    }
}

#[test]
fn a_segment_that_could_not_be_made_is_made_later() {
    let (_, member) = join::<AtomicU64>(2);
    let shelf = shelf();
    let folder = shelf.folder(&key(7));
    let full = Segment::create(&member, key(7), &Nameless(folder), &birth(1), &shelf, options()).map(drop);
    assert!(matches!(full, Err(Error::Device { source: DeviceError::NoSpace, .. })), "{full:?}");
    assert_eq!(member.usage().segments, 0);
    write(&mut create(&member, 7, &shelf), &shelf);
}

/// Opens a segment in a process of its own that is killed after so many steps, unless it comes to its end first.
fn open_and_die(words: &'static [SimWord], pid: u64, steps: u64, shelf: &'static Shelf) -> bool {
    let mut dying = Coroutine::new(move || {
        let dead = Box::leak(Box::new(RefCell::new((1..pid).collect())));
        let host = Simulated { pid, dead, relax: || panic!("waits for nobody") };
        let member = Member::enter(Slots::over(words, capacity(1, 4)).unwrap(), host).unwrap();
        let mut handle = Segment::new(&member, key(7)).unwrap();
        handle.pin(Access::Write, shelf).map(drop).unwrap();
    });
    let has_ended = !clock::run(steps, false, || dying.resume()).0;
    clock::without_effect(|| drop(dying));
    has_ended
}

#[test]
fn nothing_is_left_in_a_slot_whose_openers_have_died_one_after_the_other() {
    let shelf: &'static Shelf = Box::leak(Box::new(shelf()));
    let (_, member) = join::<AtomicU64>(1);
    let mut handle = create(&member, 7, shelf);
    write(&mut handle, shelf);
    handle.pin(Access::Write, shelf).unwrap().commit().unwrap();
    let memory = Memory::new(capacity(1, 4).words());
    let words: &'static [SimWord] = memory.words();
    let whole = (1..).find(|steps| {
        memory.clear();
        open_and_die(words, 1, *steps, shelf)
    });
    let whole = whole.unwrap();
    for first in [whole / 2, whole * 3 / 4, whole - 30] {
        for steps in 1..whole + 10 {
            memory.clear();
            open_and_die(words, 1, first, shelf);
            open_and_die(words, 2, steps, shelf);
            clock::quietly(|| {
                let dead = Box::leak(Box::new(RefCell::new(BTreeSet::from([1, 2]))));
                let host = Simulated { pid: 3, dead, relax: || panic!("waits for nobody") };
                let member = Member::enter(Slots::over(words, capacity(1, 4)).unwrap(), host).unwrap();
                member.evict(&key(7)).unwrap();
                assert_eq!(member.usage().segments, 0);
                let left = member.slots().segment_words(0).iter().position(|word| word.load() != 0);
                assert_eq!(left, None, "killed after {first} and {steps} steps");
            });
        }
    }
}
