//! A process of the server: what it does, and what is known of it when it dies in the midst of that.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use pgshrink_cfs::group::{self, SyncAll};
use pgshrink_cfs::prepared::SyncJob;
use pgshrink_cfs::sim::DiskFile;
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{Anew, Budget, Container, Error, ProcessTable, Recovery, Scratch};

use super::World;
use super::clock::{self, Injected, Why};
use super::vocabulary::{Loaded, write_of};
use super::word::SimWord;
use crate::model::State;
use crate::plan::{Focus, payload_of, state_of};

pub type Open = Container<'static, DiskFile, Peer, SimWord>;

/// What a process may do next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    Write,
    Read,
    /// As a base backup.
    Copy,
    Grow,
    Truncate,
    Commit,
    Collect,
    Unload,
    Dictionary,
}

/// A process's view of the others.
#[derive(Clone)]
pub struct Peer {
    pub world: Rc<World>,
    pub me: u64,
    pub is_quiet: bool,
    waits: Cell<u32>,
}

impl ProcessTable for Peer {
    fn me(&self) -> u64 {
        self.me
    }

    fn is_alive(&self, peer: u64) -> bool {
        !self.world.dead.borrow().contains(&peer)
    }

    fn relax(&self) {
        if !self.is_quiet {
            return clock::leave(Why::Relax);
        }
        // A root that a dead process has left half in memory is looked at more than once.
        self.waits.set(self.waits.get() + 1);
        assert!(self.waits.get() < 10_000, "a lock is held with nobody there");
    }
}

/// What it is in the midst of.
enum Doing {
    Nothing,
    Write { block: u32, index: usize },
    Grow { block: u32, zeros: usize, written: Option<usize>, filled: Vec<(u32, usize)> },
    Truncate { left: u32, gone: Vec<(u32, usize)> },
}

/// How that ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Done,
    Failed,
    /// No result was returned: it may have happened or not.
    Gone,
}

/// A process, as the schedule has it and as it has itself.
#[derive(Clone)]
pub struct Process {
    pub world: Rc<World>,
    pub me: u64,
    pub is_quiet: bool,
    local: Rc<Local>,
    /// The same process, in the run's other segments.
    others: Rc<[Process]>,
}

struct Local {
    loaded: Loaded,
    container: RefCell<Option<Rc<Open>>>,
    doing: RefCell<Doing>,
    operation: Cell<Option<Operation>>,
}

impl Process {
    pub fn new(world: &Rc<World>) -> Process {
        let me = world.next_peer.get();
        world.next_peer.set(me + 1);
        let local = Local {
            loaded: Loaded::default(),
            container: RefCell::default(),
            doing: RefCell::new(Doing::Nothing),
            operation: Cell::new(None),
        };
        Process { world: world.clone(), me, is_quiet: false, local: Rc::new(local), others: Rc::default() }
    }

    /// One that opens all segments.
    pub fn of_all(worlds: &[Rc<World>]) -> Process {
        let process = Process::new(&worlds[0]);
        let others = worlds[1..].iter().map(|world| Process { me: process.me, ..Process::new(world) });
        Process { others: others.collect(), ..process }
    }

    /// This process in each of its segments.
    fn parts(&self) -> impl Iterator<Item = &Process> {
        std::iter::once(self).chain(self.others.iter())
    }

    pub fn quiet(world: &Rc<World>) -> Process {
        Process { is_quiet: true, ..Process::new(world) }
    }

    pub fn peer(&self) -> Peer {
        Peer { world: self.world.clone(), me: self.me, is_quiet: self.is_quiet, waits: Cell::new(0) }
    }

    pub fn loaded(&self) -> &Loaded {
        &self.local.loaded
    }

    /// What it is doing.
    pub fn operation(&self) -> Option<Operation> {
        self.local.operation.get()
    }

    pub fn has_opened(&self) -> bool {
        self.parts().all(|part| part.local.container.borrow().is_some())
    }

    /// Works until it is killed, or panics for good.
    pub fn run(self) {
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            // `generator` ends what it kills by a panic of its own.
            if panic.is::<generator::Error>() {
                return;
            }
            if !panic.is::<Injected>() {
                return self.world.complain(format!("panic: {}", said(&*panic)));
            }
            self.leave_midst(Ending::Gone);
            self.world.count(|tally| tally.panics += 1);
            if self.world.draw(2) == 0 {
                return;
            }
            // Caught, as a server's error is: it goes on as who it was.
        }
    }

    /// Opens each container that it has not, and does one thing after another.
    fn work(&self) {
        let world = self.world.clone();
        clock::leave(Why::Boundary);
        if !self.others.is_empty() {
            // An error handler's part. Two who hold each a lock by a jump and ask for the other's would wait
            // for ever.
            self.parts()
                .filter_map(|part| part.local.container.borrow().clone())
                .for_each(|left| left.release_held());
        }
        let Some(containers) = self.parts().map(Process::opened).collect::<Option<Vec<_>>>() else { return };
        let mut scratch = Scratch::new();
        loop {
            let operation = self.next_operation();
            self.local.operation.set(Some(operation));
            let count = containers.len();
            if count > 1 && operation == Operation::Commit && world.draw(3) > 0 {
                self.commit_group(&containers);
            } else {
                let index = if count > 1 { world.draw(count) } else { 0 };
                let part = self.parts().nth(index).unwrap_or(self);
                part.perform(operation, &containers[index], &mut scratch);
            }
            self.local.operation.set(None);
            world.operations.set(world.operations.get() + 1);
            clock::leave(Why::Boundary);
        }
    }

    /// The container, opened if it was not. None: it cannot be opened.
    fn opened(&self) -> Option<Rc<Open>> {
        let opened = self.local.container.borrow().clone();
        if opened.is_some() {
            return opened;
        }
        let world = &self.world;
        let (file, words) = (world.home().container().unwrap(), world.memory.words());
        match Container::open(file, self.peer(), words, Recovery::Discard, world.plan.options()) {
            Ok((container, _)) => {
                let container = Rc::new(container);
                *self.local.container.borrow_mut() = Some(container.clone());
                Some(container)
            }
            Err(error) => {
                self.expect_failure("open", &error);
                None
            }
        }
    }

    fn next_operation(&self) -> Operation {
        let world = &self.world;
        if let Some((peer, wish)) = world.wish.get()
            && peer == self.me
        {
            world.wish.set(None);
            return wish;
        }
        use Operation::*;
        if world.plan.unloads && world.draw(6) == 0 {
            return Unload;
        }
        let drawn = world.draw(100);
        let operation = match world.plan.focus {
            Focus::Usual => match drawn {
                0..40 => Write,
                40..64 => Read,
                64 => Copy,
                65..75 => Grow,
                75..79 => Truncate,
                79..90 => Commit,
                90..96 => Collect,
                _ => Dictionary,
            },
            Focus::Sizes => match drawn {
                0..42 => Grow,
                42..54 => Write,
                54..66 => Read,
                66 => Copy,
                67..74 => Truncate,
                74..90 => Commit,
                90..98 => Collect,
                _ => Dictionary,
            },
            Focus::Space => match drawn {
                0..66 => Write,
                66..76 => Grow,
                76..86 => Read,
                86 => Copy,
                87..89 => Truncate,
                89..92 => Commit,
                _ => Collect,
            },
        };
        if world.is_calm.get() && operation == Grow { Commit } else { operation }
    }

    fn perform(&self, operation: Operation, container: &Open, scratch: &mut Scratch) {
        let world = &self.world;
        let fsync_off = world.plan.fsync_off;
        match operation {
            Operation::Write => self.write(container, scratch),
            Operation::Read => {
                self.read(container, world.draw(world.pages_max() as usize) as u32, scratch);
            }
            Operation::Copy => {
                let pages = clock::quietly(|| container.pages());
                (0..pages).for_each(|block| self.read(container, block, scratch));
            }
            Operation::Grow => self.grow(container, scratch),
            Operation::Truncate if fsync_off => {}
            Operation::Truncate => self.truncate(container),
            Operation::Commit => self.commit(container),
            Operation::Collect if world.draw(3) == 0 => self.store_anew(container, scratch),
            Operation::Collect => self.collect(container),
            Operation::Unload => self.unload(container),
            Operation::Dictionary if fsync_off => self.load(container),
            Operation::Dictionary if world.draw(2) == 0 => self.add_dictionary(container),
            Operation::Dictionary => self.drop_dictionary(container),
        }
    }

    /// An operation failed: only where faults are on or there is no space, and never by a finding of damage.
    pub fn expect_failure(&self, operation: &str, error: &Error) {
        let world = &self.world;
        world.count(|tally| tally.failures += 1);
        if *error == Error::Poisoned {
            // After a failed fsync, or after a process was killed in one.
            return world.must_restart.set(true);
        }
        let is_space = error.is_no_space() || matches!(error, Error::Limit { .. });
        let may_lack_space = world.plan.focus == Focus::Space && is_space && operation != "open";
        if may_lack_space && operation != "commit" {
            return world.count(|tally| tally.refused_space += 1);
        }
        if error.is_damage() || !world.plan.faults {
            world.complain(format!("{operation}: {error}"));
        }
        if operation == "commit" && !is_space {
            world.must_restart.set(true);
        }
    }

    fn unload(&self, container: &Open) {
        let words = self.world.memory.words();
        let give_back = |range: std::ops::Range<usize>| words[range].iter().for_each(|word| word.store(0));
        // The first one mostly finds out which leaves are idle.
        for _ in 0..2 {
            match container.unload_idle(give_back) {
                Ok(leaves) => self.world.count(|tally| tally.unloaded_leaves += u64::from(leaves)),
                Err(error) => self.expect_failure("unload", &error),
            }
        }
    }

    fn read(&self, container: &Open, block: u32, scratch: &mut Scratch) {
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

    fn write(&self, container: &Open, scratch: &mut Scratch) {
        let world = &self.world;
        let pages = clock::quietly(|| container.pages());
        if pages == 0 || world.truncating.get().is_some() {
            return;
        }
        // Most writes go to few pages, so that old records stay beside new ones.
        let unloads = world.plan.unloads;
        let apart = if world.plan.wide && !unloads { (pages / 8).max(1) } else { 1 };
        // A leaf is not idle while it is written to.
        let block = match world.draw(if unloads { 20 } else { 3 }) {
            0 => world.draw(pages as usize) as u32,
            _ => world.draw(pages.min(8) as usize) as u32 * apart,
        };
        if world.growing.borrow().contains(&block) || !world.busy.borrow_mut().insert(block) {
            return;
        }
        let write = world.next_write();
        let zeros = world.draw(12) == 0 && !world.plan.fsync_off;
        let state = if zeros { State::Zeros } else { State::Written(write) };
        let index = world.model.borrow_mut().begin(block, state);
        *self.local.doing.borrow_mut() = Doing::Write { block, index };
        let done =
            if zeros { container.write_zeros(block) } else { self.store(container, block, write, scratch) };
        self.ends(container, "write", done);
        world.count(|tally| tally.writes += 1);
    }

    /// Writes a page with a dictionary or none.
    fn store(&self, container: &Open, block: u32, write: u64, scratch: &mut Scratch) -> Result<(), Error> {
        let world = &self.world;
        let (number, name) = self.loaded().choose(|bound| world.draw(bound));
        if number != 0 {
            world.vocabulary.note(write, name);
        }
        match container.write(block, write as u8, number, &payload_of(block, write), scratch) {
            // It was dropped or is about to be, and this process did not know yet.
            Err(Error::DictionaryRetired(_) | Error::DictionaryMissing(_)) if number != 0 => {
                world.count(|tally| tally.refusals += 1);
                world.vocabulary.forget(write);
                container.write(block, write as u8, 0, &payload_of(block, write), scratch)
            }
            done => done,
        }
    }

    /// What was under way has ended, and its process knows how.
    fn ends(&self, container: &Open, operation: &str, done: Result<(), Error>) {
        let ending = if done.is_ok() { Ending::Done } else { Ending::Failed };
        let pages = clock::quietly(|| container.pages());
        self.settle(pages, ending);
        if let Err(error) = done {
            self.expect_failure(operation, &error);
        }
    }

    fn grow(&self, container: &Open, scratch: &mut Scratch) {
        let world = &self.world;
        let pages = clock::quietly(|| container.pages());
        let last = world.growing.borrow().last().copied();
        if world.truncating.get().is_some() || world.growing.borrow().len() >= world.plan.growers() {
            return;
        }
        let first = last.map_or(pages, |last| pages.max(last + 1));
        if first >= world.pages_max() {
            if world.plan.focus != Focus::Usual && !world.plan.fsync_off && last.is_none() {
                self.truncate(container);
            }
            return;
        }
        let most = if world.plan.wide && (world.plan.unloads || world.draw(3) == 0) { 700 } else { 5 };
        let gap = if world.plan.fsync_off || last.is_some() || world.draw(2) == 0 {
            1
        } else {
            (world.pages_max() - first).min(most)
        };
        let block = first + world.draw(gap as usize) as u32;
        let how = if world.plan.fsync_off { 9 } else { world.draw(10) };
        let write = world.next_write();
        {
            let mut growing = world.growing.borrow_mut();
            let mut model = world.model.borrow_mut();
            let gaps = (pages..block).filter(|gap| !growing.contains(gap));
            let filled = gaps.map(|gap| (gap, model.begin(gap, State::Zeros))).collect();
            let zeros = model.begin(block, State::Zeros);
            let written = (how > 1).then(|| model.begin(block, State::Written(write)));
            growing.insert(block);
            *self.local.doing.borrow_mut() = Doing::Grow { block, zeros, written, filled };
        }
        let done = match how {
            0 => container.extend(block + 1),
            1 => container.write_zeros(block),
            _ => self.store(container, block, write, scratch),
        };
        self.ends(container, "extension", done);
        world.count(|tally| tally.extensions += 1);
    }

    fn truncate(&self, container: &Open) {
        let world = &self.world;
        let nobody = world.busy.borrow().is_empty() && world.growing.borrow().is_empty();
        if !nobody || world.truncating.get().is_some() {
            return;
        }
        world.truncating.set(Some(self.me));
        let pages = clock::quietly(|| container.pages());
        let left = match world.draw(3) {
            // A few of the last ones, which come back soon.
            0 => pages - world.draw(pages.min(4) as usize + 1) as u32,
            _ if world.plan.unloads => pages - world.draw(pages as usize / 4 + 1) as u32,
            _ => world.draw(pages as usize + 1) as u32,
        };
        let mut model = world.model.borrow_mut();
        let gone = (left..pages).map(|block| (block, model.begin(block, State::Absent))).collect();
        drop(model);
        *self.local.doing.borrow_mut() = Doing::Truncate { left, gone };
        let done = container.truncate(left);
        self.ends(container, "truncate", done);
        world.count(|tally| tally.truncations += 1);
    }

    /// It is no more, or is out of what it was in the midst of without an end.
    pub fn leave_midst(&self, ending: Ending) {
        for part in self.parts() {
            let container = part.local.container.borrow().clone();
            let pages = container.map_or(0, |container| clock::quietly(|| container.pages()));
            part.settle(pages, ending);
        }
    }

    /// Lets go of what keeps the container.
    pub fn close(&self) {
        for part in self.parts() {
            let container = part.local.container.take();
            clock::without_effect(|| drop(container));
        }
    }

    /// Says what became of what was under way, as can be seen by the segment's end: others rely on it from
    /// now on.
    fn settle(&self, pages: u32, ending: Ending) {
        let world = &self.world;
        let model = &mut *world.model.borrow_mut();
        match self.local.doing.replace(Doing::Nothing) {
            Doing::Nothing => {}
            Doing::Write { block, index } => {
                world.busy.borrow_mut().remove(&block);
                match ending {
                    Ending::Done => model.complete(block, index),
                    Ending::Failed => model.take_back(block, index),
                    Ending::Gone => {}
                }
            }
            Doing::Grow { block, zeros, written, filled } => {
                world.growing.borrow_mut().remove(&block);
                let has_grown = pages > block;
                if ending == Ending::Done && !has_grown {
                    world
                        .complain(format!("block {block} was written and is past the end, of {pages} pages"));
                }
                if has_grown {
                    filled.iter().for_each(|(block, index)| model.complete(*block, *index));
                    model.complete(block, zeros);
                    match (written, ending) {
                        (Some(written), Ending::Done) => model.complete(block, written),
                        (Some(written), Ending::Failed) => model.take_back(block, written),
                        _ => {}
                    }
                    return;
                }
                if ending == Ending::Gone && world.plan.fsync_off {
                    // What is in the file may be rolled forward.
                    written.into_iter().for_each(|written| model.may_return(block, written));
                }
                // Who extends behind it makes a page of zeros of it, if he does.
                let is_between = world.growing.borrow().last().is_some_and(|last| *last > block);
                if !is_between {
                    filled.iter().for_each(|(block, index)| model.take_back(*block, *index));
                    model.take_back(block, zeros);
                }
                written.into_iter().for_each(|written| model.take_back(block, written));
            }
            Doing::Truncate { left, gone } => {
                world.truncating.set(None);
                let is_cut = pages == left;
                if ending == Ending::Done && !is_cut {
                    world.complain(format!("truncated to {left} pages, has {pages}"));
                }
                for (block, index) in gone {
                    if is_cut { model.complete(block, index) } else { model.take_back(block, index) }
                }
            }
        }
    }

    fn commit(&self, container: &Open) {
        if self.world.plan.fsync_off {
            return;
        }
        let begun = self.world.model.borrow().begin_commit();
        let done = if self.world.plan.segments > 1 && self.world.draw(2) == 0 {
            let moment = container.moment();
            clock::leave(Why::Budget);
            container.commit_since(moment)
        } else {
            container.commit()
        };
        match done {
            Ok(_) => {
                self.world.model.borrow_mut().committed(begun);
                self.world.count(|tally| tally.commits += 1);
            }
            Err(error) => self.expect_failure("commit", &error),
        }
    }

    /// Commits some of the containers together, in any order, one now and then twice.
    fn commit_group(&self, containers: &[Rc<Open>]) {
        let world = &self.world;
        let parts: Vec<&Process> = self.parts().collect();
        let count = 1 + world.draw(containers.len() + 1);
        let order: Vec<usize> = (0..count).map(|_| world.draw(containers.len())).collect();
        let mut begun: Vec<_> =
            parts.iter().map(|part| Some(part.world.model.borrow().begin_commit())).collect();
        let group: Vec<&Open> = order.iter().map(|index| &*containers[*index]).collect();
        let done = group::commit(&group, &InAnyOrder(world.clone()));
        for (index, done) in order.into_iter().zip(done) {
            match done {
                Ok(_) => {
                    if let Some(begun) = begun[index].take() {
                        parts[index].world.model.borrow_mut().committed(begun);
                    }
                    world.count(|tally| tally.commits += 1);
                }
                Err(error) => parts[index].expect_failure("commit", &error),
            }
        }
        world.count(|tally| tally.groups += 1);
    }

    /// Stores pages anew, with another dictionary or none.
    fn store_anew(&self, container: &Open, scratch: &mut Scratch) {
        let world = &self.world;
        for _ in 0..1 + world.draw(4) {
            let block = world.draw(world.pages_max() as usize) as u32;
            let (number, name) = self.loaded().choose(|bound| world.draw(bound));
            let done = container.store_anew(block, scratch, |stored| {
                let Some((write, _)) = write_of(block, stored) else {
                    return Err(Error::PastEnd { block, pages: 0 });
                };
                world.vocabulary.note_anew(write, (number != 0).then_some(name));
                let (mode, payload) = (write as u8, payload_of(block, write));
                Ok(Some(Anew { mode, dictionary: number, payload }))
            });
            match done {
                Ok(is_stored) => world.count(|tally| tally.stored_anew += u64::from(is_stored)),
                Err(Error::PastEnd { .. }) => panic!("block {block} is stored as what nobody wrote"),
                Err(error) => return self.expect_failure("store anew", &error),
            }
        }
    }

    fn collect(&self, container: &Open) {
        let budget = Budget { bytes: 12 << 10, garbage_percent: 20 };
        // As if it rested.
        if self.world.draw(4) == 0 {
            container.leave_run();
            if let Err(error) = container.give_back() {
                return self.expect_failure("give back", &error);
            }
        }
        match container.collect(budget) {
            Ok(done) => {
                let helped = clock::quietly(|| container.stats().foreground_collected_bytes > 0);
                self.world.count(|tally| {
                    tally.collections += u64::from(done.moved_records > 0);
                    tally.punches += u64::from(done.punched_bytes > 0);
                    tally.foreground_collections += u64::from(helped);
                });
            }
            Err(error) => self.expect_failure("collect", &error),
        }
    }
}

/// Fsyncs of a group as threads may come to do them; some are left to whoever needs them.
struct InAnyOrder(Rc<World>);

impl SyncAll<DiskFile, SimWord> for InAnyOrder {
    fn sync_all(&self, jobs: &mut [SyncJob<'_, DiskFile, SimWord>]) {
        let mut left: Vec<_> = jobs.iter_mut().collect();
        while !left.is_empty() {
            let job = left.swap_remove(self.0.draw(left.len()));
            if self.0.draw(8) > 0 {
                job.run();
            }
        }
    }
}

/// What a panic says.
pub fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
