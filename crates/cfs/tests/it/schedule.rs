//! Schedules: processes that read, write, extend, truncate, commit and collect, switched at every step of I/O by one
//! seed, killed one by one or all together, with and without the power.
//!
//! A process is a coroutine. Everything a run does follows from its seed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use pgshrink_cfs::plant::Plant;
use pgshrink_cfs::sim::{Disk, DiskFile, FaultRates};
use pgshrink_cfs::{
    Birth, Budget, Container, Error, Folder, Identity, KEY_BYTES, Peers, Recovery, Scratch, segment,
};
use pgshrink_testkit::seed::{Rng, Seed};

use crate::coroutine::{Coroutine, switch};
use crate::model::{Model, State};
use crate::plan::{Plan, Tally, payload_of, state_of};

mod vocabulary;

use vocabulary::{Loaded, Vocabulary, content_of, name_of, write_of};

/// Everything the processes of a run share.
struct World {
    plan: Plan,
    disk: Disk,
    words: RefCell<Rc<Vec<AtomicU64>>>,
    model: RefCell<Model>,
    rng: RefCell<Rng>,
    dead: RefCell<BTreeSet<u64>>,
    next_peer: Cell<u64>,
    /// Blocks that somebody writes; PostgreSQL's buffer locks.
    busy: RefCell<BTreeSet<u32>>,
    /// Somebody extends or truncates; PostgreSQL's relation locks.
    sizing: Cell<bool>,
    next_write: Cell<u64>,
    must_restart: Cell<bool>,
    violation: RefCell<Option<String>>,
    vocabulary: Vocabulary,
    tally: RefCell<Tally>,
}

/// A process's view of the others.
#[derive(Clone)]
struct Process {
    world: Rc<World>,
    me: u64,
    is_quiet: bool,
    loaded: Loaded,
}

impl Peers for Process {
    fn me(&self) -> u64 {
        self.me
    }

    fn is_alive(&self, peer: u64) -> bool {
        !self.world.dead.borrow().contains(&peer)
    }

    fn relax(&self) {
        assert!(!self.is_quiet, "a lock is held with nobody there");
        switch();
    }
}

type Open<'m> = Container<'m, DiskFile, Process>;

impl World {
    fn pages_max(&self) -> u32 {
        self.plan.options().geometry.pages_max
    }

    fn draw(&self, bound: usize) -> usize {
        self.rng.borrow_mut().below(bound)
    }

    fn complain(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    fn count(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.borrow_mut());
    }
}

impl Process {
    fn new(world: &Rc<World>) -> Process {
        let me = world.next_peer.get();
        world.next_peer.set(me + 1);
        Process { world: world.clone(), me, is_quiet: false, loaded: Loaded::default() }
    }

    /// Works until it is killed.
    fn run(self) {
        let words = self.world.words.borrow().clone();
        let world = self.world.clone();
        let file = world.disk.open(segment::FILE_NAME).unwrap();
        let opened =
            Container::open(file, self.clone(), words.as_slice(), Recovery::Discard, world.plan.options());
        let container = match opened {
            Ok((container, _)) => container,
            Err(error) => return self.expect_failure("open", &error),
        };
        let mut scratch = Scratch::new();
        loop {
            match world.draw(100) {
                0..40 => self.write(&container, &mut scratch),
                40..64 => self.read(&container, world.draw(world.pages_max() as usize) as u32, &mut scratch),
                // As a base backup.
                64 => (0..container.pages()).for_each(|block| self.read(&container, block, &mut scratch)),
                65..75 => self.grow(&container, &mut scratch),
                75..79 if !world.plan.fsync_off => self.truncate(&container),
                79..90 => self.commit(&container),
                90..96 => self.collect(&container),
                _ if world.plan.fsync_off => self.load(&container),
                96..98 => self.add_dictionary(&container),
                _ => self.drop_dictionary(&container),
            }
            switch();
        }
    }

    /// An operation failed: only where faults are on, and never by a finding of damage.
    fn expect_failure(&self, operation: &str, error: &Error) {
        self.world.count(|tally| tally.failures += 1);
        if *error == Error::Poisoned {
            // After a failed fsync, or after a process was killed in one.
            return self.world.must_restart.set(true);
        }
        if error.is_damage() || !self.world.plan.faults {
            self.world.complain(format!("{operation}: {error}"));
        }
        let is_space = error.is_no_space() || matches!(error, Error::Limit { .. });
        if operation == "commit" && !is_space {
            self.world.must_restart.set(true);
        }
    }

    fn read(&self, container: &Open<'_>, block: u32, scratch: &mut Scratch) {
        let completed = self.world.model.borrow_mut().completed(block);
        let (state, write) = match container.read(block, scratch) {
            Ok(stored) => (state_of(block, stored), write_of(block, stored)),
            Err(Error::PastEnd { .. }) => (Ok(State::Absent), None),
            Err(error) => return self.expect_failure("read", &error),
        };
        self.world.count(|tally| tally.reads += 1);
        let checked =
            state.and_then(|state| self.world.model.borrow_mut().check_read(block, completed, state));
        let decoded = checked.and_then(|()| match write {
            Some((write, number)) => self.decode(container, block, write, number, scratch),
            None => Ok(()),
        });
        decoded.unwrap_or_else(|what| self.world.complain(what));
    }

    fn write(&self, container: &Open<'_>, scratch: &mut Scratch) {
        let world = &self.world;
        let pages = container.pages();
        if pages == 0 || world.sizing.get() {
            return;
        }
        // Most writes go to few pages, so that old records stay beside new ones.
        let apart = if world.plan.wide { (pages / 8).max(1) } else { 1 };
        let block = match world.draw(3) {
            0 => world.draw(pages as usize) as u32,
            _ => world.draw(pages.min(8) as usize) as u32 * apart,
        };
        if world.busy.borrow_mut().insert(block) {
            self.write_page(container, block, scratch);
            world.busy.borrow_mut().remove(&block);
        }
    }

    fn write_page(&self, container: &Open<'_>, block: u32, scratch: &mut Scratch) {
        let world = &self.world;
        let write = world.next_write.get();
        world.next_write.set(write + 1);
        let zeros = world.draw(12) == 0 && !world.plan.fsync_off;
        let state = if zeros { State::Zeros } else { State::Written(write) };
        let index = world.model.borrow_mut().begin(block, state);
        let (number, name) = self.loaded.choose(|bound| world.draw(bound));
        let done = if zeros {
            container.write_zeros(block)
        } else {
            if number != 0 {
                world.vocabulary.note(write, name);
            }
            container.write(block, write as u8, number, &payload_of(block, write), scratch)
        };
        match done {
            Ok(()) => world.model.borrow_mut().complete(block, index),
            Err(error) => {
                world.model.borrow_mut().take_back(block, index);
                match error {
                    // It was dropped or is about to be, and this process did not know yet.
                    Error::DictionaryRetired(_) | Error::DictionaryMissing(_) if number != 0 => {
                        world.count(|tally| tally.refusals += 1);
                    }
                    error => self.expect_failure("write", &error),
                }
            }
        }
        world.count(|tally| tally.writes += 1);
    }

    fn grow(&self, container: &Open<'_>, scratch: &mut Scratch) {
        let world = &self.world;
        let pages = container.pages();
        if pages == world.pages_max() || world.sizing.replace(true) {
            return;
        }
        let most = if world.plan.wide && world.draw(3) == 0 { 700 } else { 5 };
        let gap = if world.plan.fsync_off { 1 } else { (world.pages_max() - pages).min(most) };
        let block = pages + world.draw(gap as usize) as u32;
        let filled: Vec<(u32, usize)> = (pages..block)
            .map(|block| (block, world.model.borrow_mut().begin(block, State::Zeros)))
            .collect();
        let before = container.pages();
        self.write_page(container, block, scratch);
        let grew = container.pages() > before;
        for (block, index) in filled.into_iter().rev() {
            match grew {
                true => world.model.borrow_mut().complete(block, index),
                false => world.model.borrow_mut().take_back(block, index),
            }
        }
        world.sizing.set(false);
    }

    fn truncate(&self, container: &Open<'_>) {
        let world = &self.world;
        if world.busy.borrow().is_empty() && !world.sizing.replace(true) {
            let pages = container.pages();
            let left = world.draw(pages as usize + 1) as u32;
            let gone: Vec<(u32, usize)> = (left..pages)
                .map(|block| (block, world.model.borrow_mut().begin(block, State::Absent)))
                .collect();
            match container.truncate(left) {
                Ok(()) => {
                    gone.iter().for_each(|(block, index)| world.model.borrow_mut().complete(*block, *index));
                }
                Err(error) => self.expect_failure("truncate", &error),
            }
            world.count(|tally| tally.truncations += 1);
            world.sizing.set(false);
        }
    }

    fn commit(&self, container: &Open<'_>) {
        if self.world.plan.fsync_off {
            return;
        }
        let begun = self.world.model.borrow().begin_commit();
        match container.commit() {
            Ok(_) => {
                self.world.model.borrow_mut().committed(begun);
                self.world.count(|tally| tally.commits += 1);
            }
            Err(error) => self.expect_failure("commit", &error),
        }
    }

    fn collect(&self, container: &Open<'_>) {
        let budget = Budget { bytes: 12 << 10, garbage_percent: 20 };
        match container.collect(budget) {
            Ok(done) => self.world.count(|tally| {
                tally.collections += u64::from(done.moved_records > 0);
                tally.punches += u64::from(done.punched_bytes > 0);
                tally.helps += u64::from(container.stats().helped_bytes > 0);
            }),
            Err(error) => self.expect_failure("collect", &error),
        }
    }
}

/// Runs a plan. An error says what was violated, and by which seed.
pub fn run(plan: Plan) -> Result<Tally, String> {
    let disk = Disk::new(plan.seed ^ 0x5eed, switch);
    let world = Rc::new(World {
        plan,
        disk,
        words: RefCell::new(fresh_words(&plan)),
        model: RefCell::default(),
        rng: RefCell::new(Seed(plan.seed).rng()),
        dead: RefCell::default(),
        next_peer: Cell::new(1),
        busy: RefCell::default(),
        sizing: Cell::new(false),
        next_write: Cell::new(1),
        must_restart: Cell::new(false),
        violation: RefCell::default(),
        vocabulary: Vocabulary::default(),
        tally: RefCell::default(),
    });
    let done = crashes(&world).map_err(|what| format!("seed {}: {what}", plan.seed));
    done.map(|()| *world.tally.borrow())
}

fn fresh_words(plan: &Plan) -> Rc<Vec<AtomicU64>> {
    let words = plan.options().geometry.words();
    Rc::new((0..words).map(|_| AtomicU64::new(0)).collect())
}

fn crashes(world: &Rc<World>) -> Result<(), String> {
    birth(world)?;
    for _ in 0..world.plan.crashes {
        let rates = if world.plan.faults && world.draw(2) == 0 {
            FaultRates { read: 3000, write: 3000, sync: 40_000, space: 4000 }
        } else {
            FaultRates::default()
        };
        world.disk.set_faults(rates);
        serve(world)?;
        crash(world)?;
        if world.draw(2) == 0 {
            // What was checked is in memory; half of the time the server starts once more and finds nothing there.
            *world.words.borrow_mut() = fresh_words(&world.plan);
        }
    }
    Ok(())
}

fn birth(world: &Rc<World>) -> Result<(), String> {
    let birth = Birth {
        id: (world.plan.seed as u128 * 0x1234_5678_9abc_def1).to_le_bytes(),
        identity: Identity::default(),
        key: [0; KEY_BYTES],
    };
    let words = world.words.borrow().clone();
    let quiet = Process { is_quiet: true, ..Process::new(world) };
    let made = segment::create(&world.disk, quiet, words.as_slice(), &birth, world.plan.options());
    let made = made.and_then(|container| {
        let name = world.vocabulary.new_name();
        // A commit, so not where it is to be seen what a crash before the first one leaves.
        let add = world.plan.fsync_off;
        if add { container.add_dictionary(name_of(name), &content_of(name)).map(drop) } else { Ok(()) }
    });
    made.map_err(|error| error.to_string())
}

/// A server's life: processes work, one or another is killed, until a step drawn before.
fn serve(world: &Rc<World>) -> Result<(), String> {
    let mut processes: Vec<(u64, Coroutine)> = Vec::new();
    let steps = 1 + world.draw(if world.draw(4) == 0 { 900 } else { 250 });
    for _ in 0..steps {
        while processes.len() < 4 {
            let process = Process::new(world);
            processes.push((process.me, Coroutine::new(move || process.run())));
        }
        let next = world.draw(processes.len());
        let is_over = !processes[next].1.resume();
        world.count(|tally| tally.steps += 1);
        let may_kill = world.busy.borrow().is_empty() || world.draw(4) == 0;
        if is_over || (may_kill && world.draw(150) == 0) {
            kill(world, processes.swap_remove(next));
        }
        if let Some(what) = world.violation.borrow_mut().take() {
            return Err(what);
        }
        // A failed fsync is a panic of the server, a little later.
        if world.must_restart.get() && world.draw(10) == 0 {
            break;
        }
    }
    processes.into_iter().for_each(|process| kill(world, process));
    Ok(())
}

fn kill(world: &Rc<World>, (peer, process): (u64, Coroutine)) {
    world.count(|tally| tally.kills += 1);
    drop(process);
    world.dead.borrow_mut().insert(peer);
    // Others may go on where it was: its write is one that may have happened or not.
    if world.busy.borrow().len() + usize::from(world.sizing.get()) > 0 {
        world.must_restart.set(true);
    }
}

/// The server is gone; the power too, or not. What is found afterwards must be what the contract allows.
fn crash(world: &Rc<World>) -> Result<(), String> {
    if world.plan.fsync_off {
        // Without fsync, everything that was written survives a server, if not its machine.
        let all = world.model.borrow().begin_commit();
        world.model.borrow_mut().committed(all);
    }
    let power_lost = !world.plan.fsync_off && world.draw(4) > 0;
    let mut lost = power_lost;
    loop {
        if lost {
            world.disk.lose_power();
        }
        *world.words.borrow_mut() = fresh_words(&world.plan);
        world.busy.borrow_mut().clear();
        world.sizing.set(false);
        world.must_restart.set(false);
        // Recovery itself may be interrupted.
        match recover(world)? {
            true => break,
            false => lost = !world.plan.fsync_off && world.draw(2) == 0,
        }
    }
    world.count(|tally| tally.crashes += 1);
    check(world, power_lost)
}

/// Opens the container in a process of its own; false: it was killed or failed on the way.
fn recover(world: &Rc<World>) -> Result<bool, String> {
    let recovery = if world.plan.fsync_off || world.plan.plant == Plant::StaleEpochRolledForward {
        Recovery::RollForward
    } else {
        Recovery::Discard
    };
    if world.draw(3) > 0 {
        world.disk.set_faults(FaultRates::default());
    }
    let outcome: Rc<RefCell<Option<Result<(), Error>>>> = Rc::default();
    let (told, process) = (outcome.clone(), Process::new(world));
    let mut opener = Coroutine::new(move || {
        let words = process.world.words.borrow().clone();
        let plan = process.world.plan;
        let opened = process.world.disk.open(segment::FILE_NAME).map_err(|error| Error::Device {
            operation: "open",
            offset: 0,
            length: 0,
            source: error,
        });
        let opened = opened.and_then(|file| {
            Container::open(file, process.clone(), words.as_slice(), recovery, plan.options()).map(drop)
        });
        *told.borrow_mut() = Some(opened);
    });
    let until = if world.draw(3) == 0 { world.draw(30) } else { 100_000 };
    for _ in 0..until {
        if !opener.resume() {
            break;
        }
    }
    drop(opener);
    match outcome.take() {
        Some(Ok(())) => Ok(true),
        Some(Err(error)) if error.is_damage() => Err(format!("recovery: {error}")),
        Some(Err(Error::Device { source: pgshrink_cfs::DeviceError::NotFound, .. })) => {
            born_again(world)?;
            Ok(true)
        }
        Some(Err(_)) if world.plan.faults => Ok(false),
        Some(Err(error)) => Err(format!("recovery: {error}")),
        None => Ok(false),
    }
}

/// The file's name was lost: right only if nothing was ever committed.
fn born_again(world: &Rc<World>) -> Result<(), String> {
    world.disk.set_faults(FaultRates::default());
    *world.words.borrow_mut() = fresh_words(&world.plan);
    birth(world)
}

fn check(world: &Rc<World>, power_lost: bool) -> Result<(), String> {
    let words = world.words.borrow().clone();
    let file = world.disk.open(segment::FILE_NAME).map_err(|error| error.to_string())?.quiet();
    let process = Process { is_quiet: true, ..Process::new(world) };
    let opened = Container::open(file, process, words.as_slice(), Recovery::Discard, world.plan.options());
    let (container, _) = opened.map_err(|error| error.to_string())?;
    let (mut scratch, loaded) = (Scratch::new(), Loaded::default());
    let blocks = world.model.borrow().blocks();
    for block in (0..container.pages()).chain(blocks) {
        let state = match container.read(block, &mut scratch) {
            Ok(stored) => {
                let state = state_of(block, stored)?;
                if let Some((write, number)) = write_of(block, stored) {
                    let decoded = loaded.can_decode(&container, &world.vocabulary, write, number);
                    let decoded = decoded.map_err(|error| format!("after a crash: {error}"))??;
                    if !decoded {
                        return Err(format!("after a crash: block {block} has lost dictionary {number}"));
                    }
                }
                state
            }
            Err(Error::PastEnd { .. }) => State::Absent,
            Err(error) => return Err(format!("after a crash: {error}")),
        };
        world.model.borrow_mut().check_recovered(block, state, power_lost)?;
    }
    Ok(())
}
