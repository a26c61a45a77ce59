//! Slots against a model of their own, by one seed: processes that are killed, or leave by a jump, at any step;
//! process ids used again; groups; files that fail; openers that fail; more processes and segments than fit. Now and
//! then everybody dies, and then nothing may be lost for good: no slot, no pin, no process's place, no page.

use std::rc::Rc;

use pgshrink_cfs::group::{self, InTurn};
use pgshrink_cfs::sim::FaultRates;
use pgshrink_cfs::slots::{Access, Member, Segment, Slots};
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{Error, Scratch, Stored};
use pgshrink_testkit::seed::{Rng, Seed};

use super::*;
use crate::coroutine::Coroutine;
use crate::schedule::clock::{self, Why};
use crate::schedule::word::{Memory, SimWord};

const SEGMENTS: usize = 7;
const SLOTS: u32 = 4;
/// As many as the region has places for.
const PROCESSES: usize = 5;
const BLOCKS: usize = 4;

type Joined = Member<'static, Mortal, SimWord>;
type Handle<'p> = Segment<'p, 'static, DiskFile, Mortal, SimWord>;
type Living = &'static RefCell<BTreeSet<(u32, u64)>>;

/// A process whose id another one has some time after its end.
#[derive(Clone, Copy)]
struct Mortal {
    pid: u32,
    start: u64,
    living: Living,
}

impl Host for Mortal {
    fn me(&self) -> ProcessName {
        ProcessName::new(self.pid, self.start).unwrap()
    }

    fn is_running(&self, process: ProcessName) -> bool {
        self.living.borrow().contains(&(process.pid(), process.start_ticks()))
    }

    fn relax(&self) {
        clock::leave(Why::Relax);
    }
}

/// What happened to a block, oldest first: the number of each write, 0 where it was cut off.
#[derive(Clone)]
struct Block {
    events: Vec<u64>,
    /// The last event that has ended, and the last one committed.
    completed: usize,
    durable: usize,
}

impl Default for Block {
    fn default() -> Block {
        Block { events: vec![0], completed: 0, durable: 0 }
    }
}

#[derive(Default)]
struct Truth {
    incarnation: u64,
    blocks: [Block; BLOCKS],
    busy: [Option<u32>; BLOCKS],
    /// Who removes it and makes it anew. Some(0): nobody, and it is to be made.
    exclusive: Option<u32>,
    was_committed: bool,
}

#[derive(Default, Debug, Clone, Copy)]
struct Tally {
    operations: u64,
    kills: u64,
    jumps: u64,
    gone: u64,
    full: u64,
    device: u64,
    poisoned: u64,
    groups: u64,
    removals: u64,
    restarts: u64,
    evictions: u64,
}

struct World {
    memory: Memory,
    living: Living,
    shelf: Shelf,
    rng: RefCell<Rng>,
    truths: [RefCell<Truth>; SEGMENTS],
    numbers: Cell<u64>,
    /// Raised when files or openers begin or cease to fail; odd while they do.
    failing: Cell<u64>,
    opener_fails: Cell<bool>,
    violation: RefCell<Option<String>>,
    tally: RefCell<Tally>,
}

impl Opener<'static> for World {
    type File = DiskFile;

    fn open(&self, key: &SegmentKey) -> Result<Opened<'static, DiskFile>, DeviceError> {
        if self.opener_fails.get() && self.draw(3) == 0 {
            return Err(DeviceError::Io(24));
        }
        self.shelf.open(key)
    }
}

impl World {
    fn draw(&self, bound: usize) -> usize {
        self.rng.borrow_mut().below(bound)
    }

    fn next(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    fn slots(&self) -> Slots<'static, SimWord> {
        clock::quietly(|| Slots::over(self.memory.words(), capacity(SLOTS, PROCESSES as u32)).unwrap())
    }

    fn complain(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    /// A process by an id that is free.
    fn born(&self) -> Mortal {
        let is_free = |pid: &u32| !self.living.borrow().iter().any(|(living, _)| living == pid);
        let pid = (1..).find(is_free).unwrap();
        let start = self.next();
        self.living.borrow_mut().insert((pid, start));
        Mortal { pid, start, living: self.living }
    }

    fn set_failing(&self, is_failing: bool) {
        if is_failing != (self.failing.get() % 2 == 1) {
            self.failing.set(self.failing.get() + 1);
        }
        let rate = |percent: usize| if is_failing { self.draw(percent) as u32 * 10_000 } else { 0 };
        for disk in self.shelf.disks.borrow().values() {
            let sync = if self.draw(5) == 0 { rate(20) } else { 0 };
            disk.set_faults(FaultRates { read: rate(10), write: rate(20), sync, space: rate(20) });
        }
        self.opener_fails.set(is_failing);
    }

    /// Whatever was not to be expected of an operation that began at that moment.
    fn failed(&self, segment: usize, before: Before, error: &Error) {
        let truth = self.truths[segment].borrow();
        let is_removed =
            before.is_removed || truth.incarnation != before.incarnation || truth.exclusive.is_some();
        let is_failing = before.failing % 2 == 1 || before.failing != self.failing.get();
        let mut tally = self.tally.borrow_mut();
        match error {
            Error::SegmentGone { .. } if is_removed || truth.incarnation != before.known => tally.gone += 1,
            Error::SlotsFull { pinned, uncommitted, .. } if pinned + uncommitted > 0 => tally.full += 1,
            Error::Poisoned => tally.poisoned += 1,
            Error::Device { source: DeviceError::NotFound, .. } if is_removed => tally.gone += 1,
            Error::Device { source: DeviceError::NoSpace | DeviceError::Io(_), .. } if is_failing => {
                tally.device += 1;
            }
            _ => self.complain(format!("segment {segment}: {error}")),
        }
    }

    fn before(&self, segment: usize, known: u64) -> Before {
        let truth = self.truths[segment].borrow();
        let (is_removed, incarnation) = (truth.exclusive.is_some(), truth.incarnation);
        Before { is_removed, incarnation, failing: self.failing.get(), known }
    }

    /// Notes that all that had ended at that moment is committed.
    fn committed(&self, segment: usize, before: Before, ended: [usize; BLOCKS]) {
        let mut truth = self.truths[segment].borrow_mut();
        if truth.incarnation == before.incarnation && truth.exclusive.is_none() && !before.is_removed {
            truth
                .blocks
                .iter_mut()
                .zip(ended)
                .for_each(|(block, ended)| block.durable = block.durable.max(ended));
            truth.was_committed = true;
        }
    }

    fn ended(&self, segment: usize) -> [usize; BLOCKS] {
        let truth = self.truths[segment].borrow();
        std::array::from_fn(|block| truth.blocks[block].completed)
    }
}

#[derive(Clone, Copy)]
struct Before {
    is_removed: bool,
    incarnation: u64,
    failing: u64,
    /// The incarnation that the handle is of, or one before it.
    known: u64,
}

fn payload(segment: usize, block: usize, value: u64) -> Vec<u8> {
    let mut payload = format!("{segment} {block} {value} ").into_bytes();
    payload.resize(30 + (value as usize * 37) % 400, value as u8);
    payload
}

fn value_of(segment: usize, block: usize, read: Result<Stored<'_>, Error>) -> Result<u64, Error> {
    match read {
        Err(Error::PastEnd { .. }) | Ok(Stored::Zeros) => Ok(0),
        Ok(Stored::Base(_)) => unreachable!("no test of these has a base"),
        Err(error) => Err(error),
        Ok(Stored::Record { payload: found, .. }) => {
            let text = String::from_utf8_lossy(found);
            let value = text.split(' ').nth(2).and_then(|value| value.parse().ok()).unwrap_or(u64::MAX);
            assert!(found == payload(segment, block, value), "segment {segment} block {block} has {text}");
            Ok(value)
        }
    }
}

struct Process {
    world: Rc<World>,
    host: Mortal,
    /// Lives as long as the process, jumps included.
    member: Rc<Cell<Option<&'static Joined>>>,
    /// The incarnations of its handles, or those before them.
    known: RefCell<[u64; SEGMENTS]>,
}

impl Process {
    fn before(&self, segment: usize) -> Before {
        self.world.before(segment, self.known.borrow()[segment])
    }

    fn handle(&self, member: &'static Joined, segment: usize) -> Handle<'static> {
        let truth = self.world.truths[segment].borrow();
        self.known.borrow_mut()[segment] = truth.incarnation - u64::from(truth.exclusive.is_some());
        Handle::new(member, key(segment as u32)).unwrap()
    }

    fn run(&self) {
        let member = match self.member.get() {
            Some(member) => {
                member.release_held();
                member
            }
            None => match Member::enter(self.world.slots(), self.host) {
                Ok(member) => {
                    let member: &'static Joined = Box::leak(Box::new(member));
                    self.member.set(Some(member));
                    member
                }
                Err(error) => return self.world.complain(error.to_string()),
            },
        };
        let mut handles: Vec<Option<Handle<'static>>> = (0..SEGMENTS).map(|_| None).collect();
        let mut scratch = Scratch::new();
        loop {
            let segment = self.world.draw(SEGMENTS);
            let before = self.before(segment);
            self.world.tally.borrow_mut().operations += 1;
            if let Err(error) = self.act(member, &mut handles, segment, &mut scratch) {
                self.world.failed(segment, before, &error);
                handles[segment] = None;
            }
            clock::leave(Why::Boundary);
        }
    }

    fn act(
        &self,
        member: &'static Joined,
        handles: &mut [Option<Handle<'static>>],
        segment: usize,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let drawn = self.world.draw(100);
        if drawn >= 94 {
            let made = self.replace(member, segment)?;
            if made.is_some() {
                self.known.borrow_mut()[segment] = self.world.truths[segment].borrow().incarnation;
                handles[segment] = made;
            }
            return Ok(());
        }
        for (other, handle) in handles.iter_mut().enumerate() {
            handle.get_or_insert_with(|| self.handle(member, other));
        }
        let Some(handle) = handles[segment].as_mut() else { return Ok(()) };
        match drawn {
            0..30 => self.write(handle, segment, scratch),
            30..60 => self.read(handle, segment, scratch),
            60..66 => self.commit(handle, segment),
            66..72 => self.truncate(handle, segment),
            72..82 => {
                self.group(handles, segment);
                Ok(())
            }
            82..88 => member.evict(&key(segment as u32)).map(drop),
            88..91 => member.evict_idle(self.world.draw(3) as u32).map(drop),
            _ => {
                handles[segment] = None;
                Ok(())
            }
        }
    }

    /// Takes blocks for this process. False: others have one.
    fn take(&self, segment: usize, blocks: std::ops::Range<usize>) -> bool {
        let mut truth = self.world.truths[segment].borrow_mut();
        let is_free = truth.exclusive.is_none() && truth.busy[blocks.clone()].iter().all(Option::is_none);
        if is_free {
            truth.busy[blocks].fill(Some(self.host.pid));
        }
        is_free
    }

    /// Changes blocks, with an event in each.
    fn change(
        &self,
        segment: usize,
        blocks: std::ops::Range<usize>,
        value: u64,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let truth = &self.world.truths[segment];
        truth.borrow_mut().blocks[blocks.clone()].iter_mut().for_each(|block| block.events.push(value));
        let done = work();
        let mut truth = truth.borrow_mut();
        if done.is_ok() {
            truth.blocks[blocks].iter_mut().for_each(|block| block.completed = block.events.len() - 1);
        }
        done
    }

    fn write(&self, handle: &mut Handle<'_>, segment: usize, scratch: &mut Scratch) -> Result<(), Error> {
        let (world, block) = (&self.world, self.world.draw(BLOCKS));
        if !self.take(segment, block..block + 1) {
            return Ok(());
        }
        let value = world.next();
        let done = handle.pin(Access::Write, &**world).and_then(|pinned| {
            let page = payload(segment, block, value);
            self.change(segment, block..block + 1, value, || pinned.write(block as u32, 1, 0, &page, scratch))
        });
        world.truths[segment].borrow_mut().busy[block] = None;
        done
    }

    fn truncate(&self, handle: &mut Handle<'_>, segment: usize) -> Result<(), Error> {
        let left = self.world.draw(BLOCKS);
        // PostgreSQL keeps all others from the relation.
        if !self.take(segment, 0..BLOCKS) {
            return Ok(());
        }
        let done = handle
            .pin(Access::Write, &*self.world)
            .and_then(|pinned| self.change(segment, left..BLOCKS, 0, || pinned.truncate(left as u32)));
        self.world.truths[segment].borrow_mut().busy = Default::default();
        done
    }

    fn read(&self, handle: &mut Handle<'_>, segment: usize, scratch: &mut Scratch) -> Result<(), Error> {
        let (world, block) = (&self.world, self.world.draw(BLOCKS));
        let (before, from) = (self.before(segment), world.ended(segment)[block]);
        let pinned = handle.pin(Access::Read, &**world)?;
        let found = value_of(segment, block, pinned.read(block as u32, scratch))?;
        drop(pinned);
        let now = self.before(segment);
        let truth = world.truths[segment].borrow();
        let may_be = truth.blocks[block].events.get(from..).unwrap_or_default();
        let is_same = !before.is_removed && !now.is_removed && before.incarnation == now.incarnation;
        if is_same && !may_be.contains(&found) {
            world.complain(format!("segment {segment} block {block} is {found}, may be {may_be:?}"));
        }
        Ok(())
    }

    fn commit(&self, handle: &mut Handle<'_>, segment: usize) -> Result<(), Error> {
        let (before, ended) = (self.before(segment), self.world.ended(segment));
        handle.pin(Access::Write, &*self.world)?.commit()?;
        self.world.committed(segment, before, ended);
        Ok(())
    }

    /// Commits some together, one of them twice.
    fn group(&self, handles: &mut [Option<Handle<'static>>], first: usize) {
        let world = &self.world;
        let count = 1 + world.draw(SLOTS as usize);
        let mut pinned = Vec::new();
        for (segment, handle) in handles.iter_mut().enumerate().skip(first).take(count) {
            let (before, ended) = (self.before(segment), world.ended(segment));
            let Some(handle) = handle else { continue };
            match handle.pin(Access::Write, &**world) {
                Ok(pin) => pinned.push((segment, before, ended, pin)),
                Err(error) => world.failed(segment, before, &error),
            }
        }
        let mut containers: Vec<_> = pinned.iter().map(|(.., pin)| &**pin).collect();
        containers.extend(containers.first().copied());
        let done = group::commit(&containers, &InTurn);
        for ((segment, before, ended, _), done) in pinned.iter().zip(&done) {
            match done {
                Ok(_) => world.committed(*segment, *before, *ended),
                Err(error) => world.failed(*segment, *before, error),
            }
        }
        world.tally.borrow_mut().groups += 1;
    }

    fn replace(&self, member: &'static Joined, segment: usize) -> Result<Option<Handle<'static>>, Error> {
        let world = &self.world;
        {
            let mut truth = world.truths[segment].borrow_mut();
            let is_dead = |pid: &u32| !world.living.borrow().iter().any(|(living, _)| living == pid);
            let is_free = truth.busy.iter().all(Option::is_none);
            if !is_free || truth.exclusive.is_some_and(|pid| pid == self.host.pid || !is_dead(&pid)) {
                return Ok(None);
            }
            truth.exclusive = Some(self.host.pid);
            truth.incarnation += 1;
        }
        let (key, folder) = (key(segment as u32), world.shelf.folder(&key(segment as u32)));
        segment::unlink(&folder).unwrap();
        member.invalidate(&key)?;
        let made = Segment::create(member, key, &folder, &birth(world.next()), &**world, options());
        let mut truth = world.truths[segment].borrow_mut();
        let incarnation = truth.incarnation;
        if made.is_ok() {
            *truth = Truth { incarnation, ..Truth::default() };
            world.tally.borrow_mut().removals += 1;
        } else {
            truth.exclusive = Some(0);
        }
        made.map(Some)
    }
}

struct Seat {
    host: Mortal,
    member: Rc<Cell<Option<&'static Joined>>>,
    coroutine: Coroutine,
}

fn seat(world: &Rc<World>, host: Mortal, member: Rc<Cell<Option<&'static Joined>>>) -> Seat {
    let process = Process { world: world.clone(), host, member: member.clone(), known: Default::default() };
    Seat { host, member, coroutine: Coroutine::new(move || process.run()) }
}

/// Ends a process, or what it was doing: it has jumped out of it.
fn end(world: &Rc<World>, ended: Seat, jumps: bool) -> Option<Seat> {
    let Seat { host, member, coroutine } = ended;
    let disks: Vec<Disk> = world.shelf.disks.borrow().values().cloned().collect();
    disks.iter().for_each(|disk| disk.set_ignoring(true));
    clock::without_effect(|| drop(coroutine));
    disks.iter().for_each(|disk| disk.set_ignoring(false));
    for truth in &world.truths {
        let mut truth = truth.borrow_mut();
        truth.busy.iter_mut().for_each(|busy| *busy = busy.filter(|pid| *pid != host.pid));
        // Whoever comes by goes on.
        truth.exclusive = truth.exclusive.map(|pid| if pid == host.pid { 0 } else { pid });
    }
    let mut tally = world.tally.borrow_mut();
    if jumps && member.get().is_some() {
        tally.jumps += 1;
        drop(tally);
        return Some(seat(world, host, member));
    }
    tally.kills += 1;
    world.living.borrow_mut().remove(&(host.pid, host.start));
    None
}

/// Everybody has died. Nothing is lost for good, and memory has what was written.
fn audit(world: &Rc<World>) {
    let host = world.born();
    let member = Member::enter(world.slots(), host).unwrap();
    let mut kept = 0;
    for segment in 0..SEGMENTS {
        if world.truths[segment].borrow().exclusive.is_some() {
            segment::unlink(&world.shelf.folder(&key(segment as u32))).unwrap();
            member.invalidate(&key(segment as u32)).unwrap();
            continue;
        }
        let mut handle = Handle::new(&member, key(segment as u32)).unwrap();
        let is_full = |error: &Error| matches!(error, Error::SlotsFull { .. });
        let pinned = match handle.pin(Access::Read, &**world) {
            // All slots are of segments whose fsync failed.
            Err(error) if is_full(&error) => continue,
            pinned => pinned.unwrap(),
        };
        for (block, truth) in world.truths[segment].borrow().blocks.iter().enumerate() {
            let found = value_of(segment, block, pinned.read(block as u32, &mut Scratch::new())).unwrap();
            let may_be = &truth.events[truth.completed..];
            assert!(may_be.contains(&found), "{segment} {block} is {found}, may be {may_be:?}");
        }
        drop(pinned);
        match handle.pin(Access::Write, &**world).and_then(|pinned| pinned.commit()) {
            Err(Error::Poisoned) => kept += 1,
            done => drop(done.unwrap()),
        }
    }
    member.evict_idle(0).unwrap();
    let (slots, usage) = (member.slots(), member.usage());
    let free: Vec<u32> = (0..SLOTS).filter(|slot| slots.state_word(*slot).load() as u8 == 0).collect();
    assert!(
        usage.segments == kept && free.len() as u32 == SLOTS - kept,
        "{usage:?}, {kept} kept, free {free:?}"
    );
    assert!(free.iter().all(|slot| slots.segment_words(*slot).iter().all(|word| word.load() == 0)));
    assert_eq!(usage.processes, 1);
    let mut handles: Vec<_> =
        (100..).take(free.len()).map(|relation| made(world, &member, relation)).collect();
    let pins: Vec<_> = handles.iter_mut().map(|handle| handle.pin(Access::Read, &**world).unwrap()).collect();
    let full = Handle::new(&member, key(99)).unwrap().pin(Access::Read, &**world).map(drop);
    let (pinned, uncommitted) = (free.len() as u32, kept);
    assert_eq!(full, Err(Error::SlotsFull { limit: SLOTS, pinned, uncommitted }));
    drop(pins);
    drop(handles);
    world.tally.borrow_mut().evictions += member.usage().evictions;
    let others: Vec<Mortal> = (1..PROCESSES).map(|_| world.born()).collect();
    let joined: Vec<_> = others.iter().map(|host| Member::enter(world.slots(), *host).unwrap()).collect();
    drop(joined);
    drop(member);
    let slots = world.slots();
    let mut entries = (0..PROCESSES as u32).flat_map(|entry| slots.process_words(entry));
    assert!(entries.all(|word| word.load() == 0), "pins or names are left");
    world.living.borrow_mut().clear();
}

fn made<'p>(world: &Rc<World>, member: &'p Joined, relation: u32) -> Handle<'p> {
    let folder = world.shelf.folder(&key(relation));
    segment::unlink(&folder).unwrap();
    Segment::create(member, key(relation), &folder, &birth(world.next()), &**world, options()).unwrap()
}

/// The server starts again, after its files have lost power or not.
fn restart(world: &Rc<World>, seats: &mut Vec<Seat>) {
    seats.drain(..).for_each(|seat| drop(end(world, seat, false)));
    world.set_failing(false);
    clock::quietly(|| audit(world));
    world.memory.clear();
    let has_lost_power = world.draw(2) == 0;
    if has_lost_power {
        world.shelf.disks.borrow().values().for_each(Disk::lose_power);
    }
    clock::quietly(|| {
        let host = world.born();
        let member: &'static Joined = Box::leak(Box::new(Member::enter(world.slots(), host).unwrap()));
        let process =
            Process { world: world.clone(), host, member: Rc::default(), known: Default::default() };
        for segment in 0..SEGMENTS {
            let is_lost = has_lost_power && !world.truths[segment].borrow().was_committed;
            if is_lost || world.truths[segment].borrow().exclusive.is_some() {
                world.truths[segment].borrow_mut().exclusive = Some(0);
                assert!(process.replace(member, segment).unwrap().is_some());
                continue;
            }
            let mut handle = Handle::new(member, key(segment as u32)).unwrap();
            let pinned = handle.pin(Access::Read, &**world).unwrap();
            let mut truth = world.truths[segment].borrow_mut();
            for (block, truth) in truth.blocks.iter_mut().enumerate() {
                let found = value_of(segment, block, pinned.read(block as u32, &mut Scratch::new())).unwrap();
                let may_be = &truth.events[truth.durable..];
                assert!(
                    may_be.contains(&found),
                    "{segment} {block}: {found}, may be {may_be:?} after a restart"
                );
                *truth = Block { events: vec![found], completed: 0, durable: 0 };
            }
        }
    });
    world.living.borrow_mut().clear();
    world.memory.clear();
    world.tally.borrow_mut().restarts += 1;
}

fn run(seed: u64, turns: u64) -> Tally {
    let world = Rc::new(World {
        memory: Memory::new(capacity(SLOTS, PROCESSES as u32).words()),
        living: Box::leak(Box::default()),
        shelf: Shelf::new(|| {
            let disk = Disk::new(1, clock::io).with_begin(clock::begin);
            disk.set_locks_ignored(true);
            disk
        }),
        rng: RefCell::new(Seed(seed).rng()),
        truths: Default::default(),
        numbers: Cell::new(0),
        failing: Cell::new(0),
        opener_fails: Cell::new(false),
        violation: RefCell::default(),
        tally: RefCell::default(),
    });
    world.truths.iter().for_each(|truth| truth.borrow_mut().exclusive = Some(0));
    let mut seats: Vec<Seat> = Vec::new();
    restart(&world, &mut seats);
    let mut waits = 0;
    for turn in 0..turns {
        while seats.len() < PROCESSES {
            seats.push(seat(&world, world.born(), Rc::default()));
        }
        let index = world.draw(seats.len());
        let budget = 1 + world.draw([3, 30, 300, 3000][world.draw(4)]) as u64;
        let (goes_on, why, _) = clock::run(budget, false, || seats[index].coroutine.resume());
        waits = if why == Why::Relax { waits + 1 } else { 0 };
        if let Some(what) = world.violation.borrow_mut().take() {
            panic!("seed {seed}, turn {turn}: {what}");
        }
        assert!(goes_on && waits < 5000, "seed {seed}, turn {turn}: {waits} waits, goes on: {goes_on}");
        match world.draw(1200) {
            0..8 => {
                let index = world.draw(seats.len());
                let ended = seats.swap_remove(index);
                let jumps = world.draw(3) == 0;
                seats.extend(end(&world, ended, jumps));
            }
            8..11 => world.set_failing(true),
            11..20 => world.set_failing(false),
            20 => restart(&world, &mut seats),
            _ => {}
        }
    }
    restart(&world, &mut seats);
    world.tally.take()
}

fn many(seeds: std::ops::Range<u64>, turns: u64) {
    for seed in seeds {
        let tally = run(seed, turns);
        println!("seed {seed}: {tally:?}");
        assert!(tally.operations > turns / 100 && tally.groups > 0, "{tally:?}");
    }
}

#[test]
fn what_a_model_of_its_own_says_of_slots_holds() {
    many(0..6, 10_000);
}

#[test]
#[ignore = "minutes: hundreds of schedules"]
fn what_a_model_of_its_own_says_of_slots_holds_for_long() {
    let first = Seed::from_env_or_time().0;
    many(first..first.saturating_add(300), 30_000);
}
