//! Processes that open, read, write, commit, evict, remove and make anew more segments than there are slots,
//! switched at every operation on a shared word and killed at any, by one seed.

use std::rc::Rc;

use pgshrink_cfs::slots::{Access, Member, Segment, Slots};
use pgshrink_cfs::{Error, Scratch, Stored};
use pgshrink_testkit::seed::{Rng, Seed};

use super::*;
use crate::coroutine::Coroutine;
use crate::schedule::clock::{self, Why};
use crate::schedule::word::{Memory, SimWord};

const SEGMENTS: usize = 5;
const SLOTS: u32 = 3;
const PROCESSES: usize = 4;
const BLOCKS: usize = 3;

type Joined = Member<'static, Simulated<'static>, SimWord>;
type Handle<'p> = Segment<'p, 'static, DiskFile, Simulated<'static>, SimWord>;

/// What a block may be: the number of the last write that has begun, of the last one that ended, of the last
/// one committed.
#[derive(Clone, Copy, Default)]
struct Writes {
    begun: u64,
    completed: u64,
    durable: u64,
}

#[derive(Default)]
struct Truth {
    /// Raised when the segment is removed.
    incarnation: u64,
    blocks: [Writes; BLOCKS],
    /// Who writes a block; PostgreSQL's buffer locks.
    busy: [Option<u64>; BLOCKS],
    /// Who removes the segment and makes it anew.
    exclusive: Option<u64>,
}

#[derive(Default, Debug, Clone, Copy)]
struct Tally {
    kills: u64,
    evictions: u64,
    gone: u64,
    full: u64,
    removals: u64,
    restarts: u64,
    reads: u64,
}

struct World {
    memory: Memory,
    dead: &'static RefCell<BTreeSet<u64>>,
    shelf: Shelf,
    rng: RefCell<Rng>,
    truths: [RefCell<Truth>; SEGMENTS],
    numbers: Cell<u64>,
    must_restart: Cell<bool>,
    violation: RefCell<Option<String>>,
    tally: RefCell<Tally>,
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
        clock::quietly(|| Slots::over(self.memory.words(), capacity(SLOTS, 6)).unwrap())
    }

    fn complain(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    /// Whatever was not to be expected of an operation.
    fn failed(&self, segment: usize, was_removed: bool, error: &Error) {
        let is_removed = was_removed || self.truths[segment].borrow().exclusive.is_some();
        let mut tally = self.tally.borrow_mut();
        match error {
            Error::SegmentGone { .. } => tally.gone += 1,
            Error::SlotsFull { .. } => tally.full += 1,
            // Killed in an fsync.
            Error::Poisoned => self.must_restart.set(true),
            Error::Device { source: DeviceError::NotFound, .. } if is_removed => tally.gone += 1,
            _ => self.complain(format!("segment {segment}: {error}")),
        }
    }
}

fn payload(segment: usize, block: usize, value: u64) -> Vec<u8> {
    let mut payload = format!("{segment} {block} {value} ").into_bytes();
    payload.resize(30 + (value as usize * 37) % 400, value as u8);
    payload
}

/// The write's number; 0: there is no page.
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
    pid: u64,
}

impl Process {
    fn host(&self) -> Simulated<'static> {
        Simulated { pid: self.pid, dead: self.world.dead, relax: || clock::leave(Why::Relax) }
    }

    fn run(&self) {
        let member = match Member::enter(self.world.slots(), self.host()) {
            Ok(member) => member,
            Err(error) => return self.world.complain(error.to_string()),
        };
        let mut handles: Vec<Option<Handle<'_>>> = (0..SEGMENTS).map(|_| None).collect();
        let mut scratch = Scratch::new();
        loop {
            let segment = self.world.draw(SEGMENTS);
            let (was_removed, incarnation) = {
                let truth = self.world.truths[segment].borrow();
                (truth.exclusive.is_some(), truth.incarnation)
            };
            let handle =
                handles[segment].get_or_insert_with(|| Handle::new(&member, key(segment as u32)).unwrap());
            let done = match self.world.draw(100) {
                0..35 => self.write(handle, segment, &mut scratch),
                35..75 => self.read(handle, segment, &mut scratch),
                75..84 => self.commit(handle, segment),
                84..90 => member.evict(&key(segment as u32)).map(drop),
                90..93 => member.evict_idle(1).map(drop),
                93..95 => {
                    handles[segment] = None;
                    Ok(())
                }
                _ => self.replace(&member, segment).map(|made| {
                    if let Some(made) = made {
                        handles[segment] = Some(made);
                    }
                }),
            };
            if let Err(error) = done {
                let truth = self.world.truths[segment].borrow();
                let was_removed = was_removed || truth.incarnation != incarnation;
                drop(truth);
                self.world.failed(segment, was_removed, &error);
                handles[segment] = None;
            }
            clock::leave(Why::Boundary);
        }
    }

    fn write(&self, handle: &mut Handle<'_>, segment: usize, scratch: &mut Scratch) -> Result<(), Error> {
        let (world, block) = (&self.world, self.world.draw(BLOCKS));
        let truth = &world.truths[segment];
        let value = world.next();
        {
            let mut truth = truth.borrow_mut();
            if truth.exclusive.is_some() || truth.busy[block].is_some() {
                return Ok(());
            }
            truth.busy[block] = Some(self.pid);
        }
        let done = handle.pin(Access::Write, &world.shelf).and_then(|pinned| {
            truth.borrow_mut().blocks[block].begun = value;
            pinned.write(block as u32, 1, 0, &payload(segment, block, value), scratch)
        });
        let mut truth = truth.borrow_mut();
        truth.busy[block] = None;
        if done.is_ok() {
            truth.blocks[block].completed = value;
        }
        done
    }

    fn read(&self, handle: &mut Handle<'_>, segment: usize, scratch: &mut Scratch) -> Result<(), Error> {
        let (world, block) = (&self.world, self.world.draw(BLOCKS));
        let truth = &world.truths[segment];
        let (incarnation, from) = (truth.borrow().incarnation, truth.borrow().blocks[block].completed);
        let was_removed = truth.borrow().exclusive.is_some();
        let pinned = handle.pin(Access::Read, &world.shelf)?;
        let found = value_of(segment, block, pinned.read(block as u32, scratch))?;
        drop(pinned);
        let truth = truth.borrow();
        world.tally.borrow_mut().reads += 1;
        let is_same = truth.incarnation == incarnation && truth.exclusive.is_none() && !was_removed;
        let to = truth.blocks[block].begun;
        if is_same && !(from..=to).contains(&found) {
            world.complain(format!("segment {segment} block {block} is {found}, may be {from} to {to}"));
        }
        Ok(())
    }

    fn commit(&self, handle: &mut Handle<'_>, segment: usize) -> Result<(), Error> {
        let truth = &self.world.truths[segment];
        let (incarnation, blocks) = (truth.borrow().incarnation, truth.borrow().blocks);
        let was_removed = truth.borrow().exclusive.is_some();
        handle.pin(Access::Write, &self.world.shelf)?.commit()?;
        let mut truth = truth.borrow_mut();
        if truth.incarnation == incarnation && truth.exclusive.is_none() && !was_removed {
            let committed = truth.blocks.iter_mut().zip(blocks);
            committed.for_each(|(now, then)| now.durable = now.durable.max(then.completed));
        }
        Ok(())
    }

    /// Removes the segment and makes another of its name; goes on where one died who was at it.
    fn replace<'p>(&self, member: &'p Joined, segment: usize) -> Result<Option<Handle<'p>>, Error> {
        let world = &self.world;
        {
            let mut truth = world.truths[segment].borrow_mut();
            let is_dead = |pid: &u64| world.dead.borrow().contains(pid);
            let is_free = truth.busy.iter().all(Option::is_none);
            if !is_free || truth.exclusive.is_some_and(|pid| !is_dead(&pid)) {
                return Ok(None);
            }
            truth.exclusive = Some(self.pid);
            truth.incarnation += 1;
        }
        let (key, folder) = (key(segment as u32), world.shelf.folder(&key(segment as u32)));
        segment::unlink(&folder).unwrap();
        member.invalidate(&key)?;
        let made = Segment::create(member, key, &folder, &birth(world.next()), &world.shelf, options());
        let mut truth = world.truths[segment].borrow_mut();
        if made.is_ok() {
            truth.exclusive = None;
            truth.blocks = Default::default();
            world.tally.borrow_mut().removals += 1;
        } else {
            // Nobody's who lives: the next one goes on.
            truth.exclusive = Some(0);
        }
        made.map(Some)
    }
}

struct Seat {
    pid: u64,
    coroutine: Coroutine,
}

fn seat(world: &Rc<World>) -> Seat {
    let pid = world.next();
    let process = Process { world: world.clone(), pid };
    Seat { pid, coroutine: Coroutine::new(move || process.run()) }
}

fn kill(world: &World, seat: Seat) {
    let disks: Vec<Disk> = world.shelf.disks.borrow().values().cloned().collect();
    disks.iter().for_each(|disk| disk.set_ignoring(true));
    clock::without_effect(|| drop(seat.coroutine));
    disks.iter().for_each(|disk| disk.set_ignoring(false));
    world.dead.borrow_mut().insert(seat.pid);
    world.tally.borrow_mut().kills += 1;
    for truth in &world.truths {
        truth.borrow_mut().busy.iter_mut().for_each(|busy| *busy = busy.filter(|pid| *pid != seat.pid));
    }
}

/// The server starts again, with nothing in memory: what was committed is there.
fn restart(world: &Rc<World>, seats: &mut Vec<Seat>) {
    seats.drain(..).for_each(|seat| kill(world, seat));
    let evictions = clock::quietly(|| {
        let member = Member::enter(world.slots(), Process { world: world.clone(), pid: world.next() }.host());
        member.unwrap().usage().evictions
    });
    world.tally.borrow_mut().evictions += evictions;
    world.memory.clear();
    world.must_restart.set(false);
    clock::quietly(|| {
        let process = Process { world: world.clone(), pid: world.next() };
        let member = Member::enter(world.slots(), process.host()).unwrap();
        for segment in 0..SEGMENTS {
            if world.truths[segment].borrow().exclusive.is_some() {
                process.replace(&member, segment).unwrap();
                continue;
            }
            let mut handle = Handle::new(&member, key(segment as u32)).unwrap();
            let pinned = handle.pin(Access::Read, &world.shelf).unwrap();
            for (block, writes) in world.truths[segment].borrow_mut().blocks.iter_mut().enumerate() {
                let found = value_of(segment, block, pinned.read(block as u32, &mut Scratch::new())).unwrap();
                let Writes { begun, durable, .. } = *writes;
                assert!(
                    (durable..=begun).contains(&found),
                    "{segment} {block}: {found}, {durable} to {begun}"
                );
                *writes = Writes { begun: found, completed: found, durable: found };
            }
        }
    });
    world.memory.clear();
    world.tally.borrow_mut().restarts += 1;
}

fn run(seed: u64, turns: u64) -> Result<Tally, String> {
    let world = Rc::new(World {
        memory: Memory::new(capacity(SLOTS, 6).words()),
        dead: Box::leak(Box::default()),
        shelf: Shelf::new(|| {
            let disk = Disk::new(1, clock::io).with_begin(clock::begin);
            disk.set_locks_ignored(true);
            disk
        }),
        rng: RefCell::new(Seed(seed).rng()),
        truths: Default::default(),
        numbers: Cell::new(0),
        must_restart: Cell::new(false),
        violation: RefCell::default(),
        tally: RefCell::default(),
    });
    world.truths.iter().for_each(|truth| truth.borrow_mut().exclusive = Some(0));
    world.dead.borrow_mut().insert(0);
    let mut seats = Vec::new();
    restart(&world, &mut seats);
    let mut waits = 0;
    for turn in 0..turns {
        while seats.len() < PROCESSES {
            seats.push(seat(&world));
        }
        let index = world.draw(seats.len());
        let budget = [3, 30, 300, 3000][world.draw(4)];
        let budget = 1 + world.draw(budget) as u64;
        let (goes_on, why, _) = clock::run(budget, false, || seats[index].coroutine.resume());
        waits = if why == Why::Relax { waits + 1 } else { 0 };
        if let Some(what) = world.violation.borrow_mut().take() {
            return Err(format!("seed {seed}, turn {turn}: {what}"));
        }
        assert!(
            goes_on && waits < 3000,
            "seed {seed}, turn {turn}: {waits} waits in a row, goes on: {goes_on}"
        );
        if world.must_restart.get() || turn + 1 == turns {
            restart(&world, &mut seats);
        } else if world.draw(120) == 0 {
            let index = world.draw(seats.len());
            kill(&world, seats.swap_remove(index));
        }
    }
    let tally = *world.tally.borrow();
    Ok(tally)
}

fn many(seeds: std::ops::Range<u64>, turns: u64) {
    let mut all = Tally::default();
    for seed in seeds {
        let tally = run(seed, turns).unwrap_or_else(|what| panic!("{what}"));
        all.kills += tally.kills;
        all.evictions += tally.evictions;
        all.gone += tally.gone;
        all.full += tally.full;
        all.removals += tally.removals;
        all.restarts += tally.restarts;
        all.reads += tally.reads;
    }
    println!("{all:?}");
    // Slots that a dead process left half changed come back.
    assert!(all.reads > 5 * all.full, "{all:?}");
    assert!(all.kills > 100 && all.evictions > 100 && all.removals > 10 && all.gone > 10, "{all:?}");
}

#[test]
fn killed_and_switched_processes_lose_no_page_to_another_segment() {
    many(0..12, 6000);
}

#[test]
#[ignore = "minutes: hundreds of schedules"]
fn hundreds_of_schedules_of_slots() {
    let first = Seed::from_env_or_time().0;
    many(first..first.saturating_add(200), 20_000);
}
