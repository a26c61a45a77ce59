//! Schedules: processes that read, write, extend, truncate, commit and collect, switched at every operation
//! on shared memory and of the device by one seed, killed one by one or all together, with and without the
//! power.
//!
//! A process is a coroutine. Everything a run does follows from its seed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use pgshrink_cfs::sim::{Disk, FaultRates};
use pgshrink_cfs::word::Word;
use pgshrink_testkit::seed::{Rng, Seed};

use crate::coroutine::Coroutine;
use crate::model::Model;
use crate::plan::{Plan, Tally};

pub mod clock;
mod crash;
mod home;
mod process;
mod scheduler;
mod vocabulary;
pub mod word;

use clock::Why;
use home::Home;
use process::{Ending, Operation, Process};
use scheduler::{BUDGET_MAX, Order, Scheduler, Sight, Turn};
use vocabulary::Vocabulary;
use word::Memory;

pub use scheduler::Style;

/// Processes at the same time.
const PROCESSES: usize = 4;
/// Processes at most that die in one life of the server.
const DEATHS_MAX: u32 = 40;
/// Waits of processes in a row, and steps of all of them, without an operation that ends, after which nobody
/// makes progress.
const WAITS_MAX: u64 = 20_000;
const STEPS_MAX: u64 = 1_500_000;

/// What all segments of a run share.
pub struct Common {
    plan: Plan,
    disk: Disk,
    rng: RefCell<Rng>,
    dead: RefCell<BTreeSet<u64>>,
    next_peer: Cell<u64>,
    writes: Cell<u64>,
    /// Operations done.
    operations: Cell<u64>,
    /// What a process is to do next, for the scheduler's sake.
    wish: Cell<Option<(u64, Operation)>>,
    /// Nobody is to extend the segment.
    is_calm: Cell<bool>,
    must_restart: Cell<bool>,
    violation: RefCell<Option<String>>,
    tally: RefCell<Tally>,
}

/// Everything the processes of a run share of a segment.
pub struct World {
    common: Rc<Common>,
    /// Which of the run's segments.
    number: usize,
    memory: Memory,
    model: RefCell<Model>,
    /// Blocks that somebody writes; PostgreSQL's buffer locks.
    busy: RefCell<BTreeSet<u32>>,
    /// Blocks that are being added, each by one.
    growing: RefCell<BTreeSet<u32>>,
    /// Who truncates; PostgreSQL's relation lock.
    truncating: Cell<Option<u64>>,
    /// Blocks of the file that the last loss of power left as garbage, where that may take what is durable
    /// along.
    garbled: RefCell<Vec<u64>>,
    /// Containers made so far.
    births: Cell<u64>,
    vocabulary: Vocabulary,
}

impl Deref for World {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl World {
    fn new(common: &Rc<Common>, number: usize) -> Rc<World> {
        Rc::new(World {
            common: common.clone(),
            number,
            memory: Memory::new(common.plan.options().geometry.words()),
            model: RefCell::default(),
            busy: RefCell::default(),
            growing: RefCell::default(),
            truncating: Cell::new(None),
            garbled: RefCell::default(),
            births: Cell::new(0),
            vocabulary: Vocabulary::default(),
        })
    }

    fn home(&self) -> Home {
        Home { disk: self.disk.clone(), number: self.number }
    }
}

impl Common {
    fn pages_max(&self) -> u32 {
        self.plan.options().geometry.pages_max
    }

    fn draw(&self, bound: usize) -> usize {
        self.rng.borrow_mut().below(bound)
    }

    /// Mostly small numbers, up to two to the power of `bits`.
    fn draw_small(&self, bits: usize) -> u64 {
        1 + self.draw(1 << self.draw(bits + 1)) as u64
    }

    fn next_write(&self) -> u64 {
        self.writes.set(self.writes.get() + 1);
        self.writes.get()
    }

    fn complain(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    fn count(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.borrow_mut());
    }
}

/// Runs a plan. An error says what was violated, and by which seed.
pub fn run(plan: Plan) -> Result<Tally, String> {
    let disk = Disk::new(plan.seed ^ 0x5eed, clock::io);
    let common = Rc::new(Common {
        plan,
        disk: if plan.style() == Style::Io { disk } else { disk.with_begin(clock::begin) },
        rng: RefCell::new(Seed(plan.seed).rng()),
        dead: RefCell::default(),
        next_peer: Cell::new(1),
        writes: Cell::new(0),
        operations: Cell::new(0),
        wish: Cell::new(None),
        is_calm: Cell::new(false),
        must_restart: Cell::new(false),
        violation: RefCell::default(),
        tally: RefCell::default(),
    });
    let worlds: Vec<Rc<World>> = (0..plan.segments).map(|number| World::new(&common, number)).collect();
    common.count(|tally| tally.schedules = 1);
    let lived = catch_unwind(AssertUnwindSafe(|| lives(&worlds)));
    let what = match lived {
        Ok(Ok(()) | Err(End::Garbled)) => return Ok(*common.tally.borrow()),
        Ok(Err(End::Violated(what))) => what,
        Err(panic) => format!("panic: {}", process::said(&*panic)),
    };
    Err(format!("seed {} ({:?}): {what}", plan.seed, plan.style()))
}

/// Why a run ends before its time.
enum End {
    Violated(String),
    /// A block that was being written took something durable along: the one exception that there is.
    Garbled,
}

impl From<String> for End {
    fn from(what: String) -> End {
        End::Violated(what)
    }
}

fn lives(worlds: &[Rc<World>]) -> Result<(), End> {
    let world = &worlds[0];
    worlds.iter().try_for_each(crash::birth)?;
    for _ in 0..world.plan.crashes {
        let rates = if world.plan.faults && world.draw(2) == 0 {
            FaultRates { read: 3000, write: 3000, sync: 40_000, space: 4000 }
        } else {
            FaultRates::default()
        };
        world.disk.set_faults(rates);
        serve(worlds)?;
        if world.plan.openers && world.draw(3) == 0 {
            crash::replace(world)?;
        } else {
            crash::crash(worlds)?;
        }
        if world.draw(2) == 0 {
            // What was checked is in memory; half of the time the server starts once more and finds nothing
            // there.
            worlds.iter().for_each(|world| world.memory.clear());
            if world.plan.openers && world.draw(2) == 0 {
                crash::read_only(world)?;
            }
        }
    }
    Ok(())
}

/// A process that is there.
struct Seat {
    process: Process,
    coroutine: Coroutine,
}

impl Seat {
    fn of(process: Process) -> Seat {
        let work = process.clone();
        Seat { process, coroutine: Coroutine::new(move || work.run()) }
    }
}

/// A server's life.
struct Service<'w> {
    world: &'w Rc<World>,
    worlds: &'w [Rc<World>],
    seats: Vec<Seat>,
    /// Stacks that their processes have left by a jump.
    left: Vec<Coroutine>,
    scheduler: Scheduler,
    steps: u64,
    /// The step at which somebody dies next, and how far apart such steps are.
    death_at: u64,
    deaths_apart: usize,
    deaths: u32,
    /// Waits since an operation ended.
    waits: u64,
    /// The step at which one did.
    ended_at: u64,
}

/// Processes work, one or another dies, until a step drawn before.
fn serve(worlds: &[Rc<World>]) -> Result<(), String> {
    let world = &worlds[0];
    let operations = 1 + world.draw(if world.draw(4) == 0 { 250 } else { 70 }) as u64;
    let deaths_apart = [1500, 10_000, 100_000][world.draw(3)];
    let rng = Seed(world.rng.borrow_mut().bits()).rng();
    let mut service = Service {
        world,
        worlds,
        seats: Vec::new(),
        left: Vec::new(),
        scheduler: Scheduler::new(world.plan.style(), rng, operations * 200, world.plan.segments),
        steps: 0,
        death_at: if world.plan.immortal { u64::MAX } else { world.draw(2 * deaths_apart) as u64 },
        deaths_apart,
        deaths: 0,
        waits: 0,
        ended_at: 0,
    };
    let before = world.operations.get();
    let done = service.state(before + operations).and_then(|()| service.last());
    let Service { seats, left, steps, scheduler, .. } = service;
    world.count(|tally| {
        tally.steps += steps;
        tally.operations += world.operations.get() - before;
        tally.freezes += scheduler.freezes;
    });
    seats.into_iter().for_each(|seat| kill(world, seat));
    left.into_iter().for_each(|stack| end(world, stack));
    done
}

impl Service<'_> {
    fn state(&mut self, until: u64) -> Result<(), String> {
        let world = self.world;
        // The end is anywhere, too.
        let mut rest = world.draw_small(12);
        let mut last = None;
        while world.operations.get() < until || rest > 0 {
            while self.seats.len() < PROCESSES {
                self.seats.push(Seat::of(Process::of_all(self.worlds)));
            }
            let processes: Vec<u64> = self.seats.iter().map(|seat| seat.process.me).collect();
            let (operations, steps) = (world.operations.get(), self.steps);
            let turn = match self.scheduler.next(&Sight { processes: &processes, operations, steps, last }) {
                Order::Run(turn) => turn,
                Order::End => break,
                Order::Kill(index) => {
                    self.die(index);
                    last = None;
                    continue;
                }
            };
            let (goes_on, why, used, left) = self.turn(&turn, processes[turn.index], until, rest);
            if world.operations.get() >= until {
                rest = rest.saturating_sub(used);
            }
            last = goes_on.then_some((processes[turn.index], why, left));
            if !goes_on {
                let seat = self.seats.swap_remove(turn.index);
                world.dead.borrow_mut().insert(seat.process.me);
                seat.process.close();
            } else if self.steps >= self.death_at {
                self.death_at = self.steps + 1 + world.draw(2 * self.deaths_apart) as u64;
                self.deaths += 1;
                if self.deaths == DEATHS_MAX {
                    // Some things are not done where everybody dies first.
                    self.death_at = u64::MAX;
                }
                // Whoever runs, or somebody who is held up.
                let index = if world.draw(2) == 0 { turn.index } else { world.draw(self.seats.len()) };
                self.die(index);
            }
            if let Some(what) = world.violation.borrow_mut().take() {
                return Err(what);
            }
            self.check_progress(why, operations)?;
            // A failed fsync is a panic of the server, a little later.
            if world.must_restart.get() && world.draw(10) == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Half of the lives end while somebody commits, or is about to change the file in another operation.
    fn last(&mut self) -> Result<(), String> {
        let world = self.world;
        if self.seats.is_empty() || world.draw(2) == 0 {
            return Ok(());
        }
        let io = self.scheduler.leaves_at_io();
        let index = world.draw(self.seats.len());
        let Seat { process, coroutine } = &mut self.seats[index];
        // To the begin of an operation first, if it need not wait.
        for _ in 0..100 {
            let (goes_on, why, left) = clock::run(100_000, io, || coroutine.resume());
            self.steps += 100_000 - left.min(100_000);
            match why {
                Why::Boundary if goes_on => break,
                Why::Io | Why::Budget if goes_on => {}
                _ => return Ok(()),
            }
        }
        use Operation::*;
        let wish = [Commit, Commit, Commit, Commit, Collect, Write, Grow, Truncate][world.draw(8)];
        world.wish.set(Some((process.me, wish)));
        let stops = 1 + world.draw(14 * world.plan.segments) as u32;
        clock::stop_at_begin(stops);
        for _ in 0..if io { stops } else { 1 } {
            let (goes_on, why, left) = clock::run(100_000, io, || coroutine.resume());
            self.steps += 100_000 - left.min(100_000);
            if !goes_on || why != Why::Io {
                break;
            }
        }
        world.violation.borrow_mut().take().map_or(Ok(()), Err)
    }

    /// Lets one run; returns whether it goes on, why it was left, the steps it did, and what is left of its
    /// budget.
    fn turn(&mut self, turn: &Turn, peer: u64, until: u64, rest: u64) -> (bool, Why, u64, u64) {
        let world = self.world;
        let io = self.scheduler.leaves_at_io();
        let mut budget = turn.budget;
        if !io {
            // Who is to die dies at any step, not only where a schedule switches.
            budget = budget.min(self.death_at.saturating_sub(self.steps).max(1));
            if world.operations.get() >= until {
                budget = budget.min(rest.max(1));
            }
        }
        world.is_calm.set(turn.is_calm);
        if let Some(wish) = turn.wish {
            world.wish.set(Some((peer, wish)));
        }
        clock::stop_at_begin(turn.begins);
        let coroutine = &mut self.seats[turn.index].coroutine;
        let (goes_on, why, left) = clock::run(budget, io, || coroutine.resume());
        let used = budget - left.min(budget);
        self.steps += used.max(1);
        world.count(|tally| tally.switches += u64::from(why != Why::Boundary));
        (goes_on, why, used.max(1), turn.budget.saturating_sub(used).max(1))
    }

    fn check_progress(&mut self, why: Why, operations: u64) -> Result<(), String> {
        self.waits = match why {
            _ if self.world.operations.get() > operations => {
                self.ended_at = self.steps;
                0
            }
            Why::Relax => self.waits + 1,
            _ => self.waits,
        };
        let steps = self.steps - self.ended_at;
        if steps < BUDGET_MAX && (self.waits < WAITS_MAX || steps < STEPS_MAX) {
            return Ok(());
        }
        let seats: Vec<_> =
            self.seats.iter().map(|seat| (seat.process.me, seat.process.operation())).collect();
        let mut locks = Vec::new();
        for world in self.worlds {
            let state =
                pgshrink_cfs::state::SharedState::new(world.memory.words(), world.plan.options().geometry);
            let shared = state.map(|state| state.shared()).map_err(|error| error.to_string())?;
            let held = [&shared.commit_lock, &shared.collector_lock, &shared.loader_lock];
            locks.push(clock::quietly(|| held.map(|lock| lock.load())));
        }
        Err(format!(
            "nobody makes progress in {} waits and {} steps: {seats:?}; held are commit, collector, loader {locks:?}",
            self.waits,
            self.steps - self.ended_at
        ))
    }

    fn die(&mut self, index: usize) {
        (self.waits, self.ended_at) = (0, self.steps);
        let world = self.world;
        let plan = &world.plan;
        if plan.immortal {
            return;
        }
        match world.draw(3) {
            0 if plan.panics => {
                clock::panic_next();
                // It may go on; where it does not, that is seen when it is next resumed.
                let seat = &mut self.seats[index];
                clock::run(BUDGET_MAX, self.scheduler.leaves_at_io(), || seat.coroutine.resume());
            }
            // Before it has opened the container there is nothing that it could go on with.
            1 if plan.jumps && self.seats[index].process.has_opened() => {
                world.count(|tally| tally.jumps += 1);
                let seat = self.seats.swap_remove(index);
                seat.process.leave_midst(Ending::Gone);
                // As an error handler does, or else the next one who asks.
                world.disk.drop_exclusive_locks();
                self.left.push(seat.coroutine);
                self.seats.push(Seat::of(seat.process));
            }
            _ => kill(world, self.seats.swap_remove(index)),
        }
    }
}

/// Ends a process where it stands. Others go on.
fn kill(world: &Rc<World>, seat: Seat) {
    world.count(|tally| tally.kills += 1);
    seat.process.leave_midst(Ending::Gone);
    end(world, seat.coroutine);
    seat.process.close();
    world.dead.borrow_mut().insert(seat.process.me);
}

/// Takes a stack down without any effect of the destructors on it.
fn end(world: &Rc<World>, coroutine: Coroutine) {
    world.disk.set_ignoring(true);
    clock::without_effect(|| drop(coroutine));
    world.disk.set_ignoring(false);
}
