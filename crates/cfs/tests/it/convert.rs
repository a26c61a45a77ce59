//! Segments that change their form while a server uses them: switched at every call of a simulated kernel and
//! at every operation on a shared word, killed, and left by the power, by one seed.

mod engine;
mod faults;
mod kernel;
mod protocol;
mod real;
mod server;
mod site;
mod slot;
mod small;
mod truth;
mod worker;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pgshrink_cfs::convert::{BASE_NAME, ConvertError, Exchanged, Generation, remove_leftover};
use pgshrink_cfs::fault::Fault;
use pgshrink_testkit::seed::{Rng, Seed};

use self::engine::Opened;
use self::kernel::{ABOVE, Descriptor, File, Kernel};
use self::real::Real;
use self::server::Server;
use self::site::{CONTAINER, Folder, Place, SEGMENT, Seen};
use self::slot::{Base, Entry, PAGES_MAX, Slot, WORDS};
use self::small::Small;
use self::truth::Truth;
use self::worker::Worker;
use crate::coroutine::Coroutine;
use crate::schedule::clock::{self, Why};
use crate::schedule::word::{Memory, SimWord};

const SERVERS: usize = 3;
const SLOTS: usize = 60;

/// What a run is made from.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    turns: u64,
    fault: Fault,
    /// The segment is cut often, and by path.
    cuts: bool,
    /// With the engine's own containers and slots.
    is_real: bool,
    /// Turns between two crashes, about.
    kills: usize,
}

#[derive(Default, Debug, Clone, Copy)]
struct Tally {
    exchanged_in: u64,
    exchanged_out: u64,
    flips: u64,
    copies: u64,
    finished: u64,
    whole: u64,
    reads: u64,
    syncs: u64,
    relations: u64,
    kills: u64,
    power: u64,
}

/// What another process does in between.
type Meddler = Box<dyn FnOnce(&Kernel)>;

struct World {
    kernel: Kernel,
    memory: Memory,
    slots: RefCell<BTreeMap<File, Slot>>,
    slots_used: Cell<usize>,
    rng: RefCell<Rng>,
    truth: RefCell<Truth>,
    numbers: Cell<u64>,
    barriers: Cell<u64>,
    relations: Cell<u64>,
    must_restart: Cell<bool>,
    is_failing: bool,
    seen: RefCell<Option<Seen>>,
    exchanged: RefCell<Option<(File, Exchanged<Folder>)>>,
    violation: RefCell<Option<String>>,
    tally: RefCell<Tally>,
    /// What another process does just before this call of the worker's: for tests of the protocol alone.
    meddler: RefCell<Option<(&'static str, Meddler)>>,
    plan: Plan,
    real: Option<Real>,
}

impl World {
    fn new(plan: Plan) -> World {
        let mut rng = Seed(plan.seed).rng();
        let kernel_rng = Seed(rng.bits()).rng();
        let is_failing = rng.below(4) == 0 && !plan.is_real;
        World {
            kernel: Kernel::new(kernel_rng),
            memory: Memory::new(1 + SLOTS * WORDS),
            slots: RefCell::default(),
            slots_used: Cell::new(0),
            rng: RefCell::new(rng),
            truth: RefCell::new(Truth::of(0, &[])),
            numbers: Cell::new(0),
            barriers: Cell::new(0),
            relations: Cell::new(0),
            must_restart: Cell::new(false),
            is_failing,
            seen: RefCell::default(),
            exchanged: RefCell::default(),
            violation: RefCell::default(),
            tally: RefCell::default(),
            meddler: RefCell::default(),
            plan,
            real: plan.is_real.then(|| Real::new(plan.seed, plan.fault)),
        }
    }

    fn draw(&self, bound: usize) -> usize {
        self.rng.borrow_mut().below(bound)
    }

    fn next(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    fn complain(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    fn tally(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.tally.borrow_mut());
    }

    fn words(&self) -> &'static [SimWord] {
        self.memory.words()
    }

    fn generation(&self) -> Generation<'static, SimWord> {
        Generation::over(&self.words()[0]).with_fault(self.plan.fault)
    }

    /// A container that a process has opened the file of.
    fn open_container(
        self: &Rc<World>,
        pid: u64,
        index: usize,
        directory: File,
        (descriptor, file): (Descriptor, File),
    ) -> Box<dyn Opened> {
        if let Some(real) = &self.real {
            return real.open(self, pid, directory, descriptor);
        }
        let slot = self.attach(directory, file);
        let is_faithful = self.draw(2) == 0;
        Box::new(Small { world: self.clone(), pid, index, descriptor, base: None, slot, is_faithful })
    }

    /// The segment's name has gone, and is about to be given to another.
    fn forget_segment(&self, pid: u64) {
        if let Some(real) = &self.real {
            real.invalidate(self, pid);
        }
    }

    /// The slot of a container.
    fn attach(&self, directory: File, file: File) -> Slot {
        if let Some(slot) = self.slots.borrow().get(&file) {
            return *slot;
        }
        let number = self.slots_used.get();
        self.slots_used.set(number + 1);
        if number + 5 > SLOTS {
            self.must_restart.set(true);
        }
        let words = &self.words()[1 + number * WORDS..][..WORDS];
        let mut root = clock::quietly(|| self.kernel.root(file)).unwrap_or_default();
        let base = self.kernel.file_of(directory, BASE_NAME).and_then(|file| self.kernel.pages(file));
        if let Some(base) = base.filter(|_| root.is_all_returned()) {
            root.entries.truncate(base.len());
        }
        let slot = Slot::new(words, directory, file, &root, self.plan.fault);
        self.slots.borrow_mut().insert(file, slot);
        slot
    }

    fn slot_in(&self, directory: File) -> Option<Slot> {
        self.kernel.file_of(directory, CONTAINER).map(|file| self.attach(directory, file))
    }

    /// What an injected fault goes by instead of looking again.
    fn keep_exchanged(&self, exchanged: Exchanged<Folder>) {
        let directory = exchanged.directory.file;
        *self.exchanged.borrow_mut() = Some((directory, exchanged));
    }

    fn take_exchanged(&self, directory: File) -> Option<Exchanged<Folder>> {
        let taken = self.exchanged.borrow_mut().take();
        taken.filter(|(found, _)| *found == directory).map(|(_, exchanged)| exchanged)
    }

    /// A relation of that name, durable.
    fn make_relation(&self) {
        clock::quietly(|| {
            let pages: Vec<u64> = (0..1 + self.draw(PAGES_MAX)).map(|_| self.next()).collect();
            if let Err(error) = self.kernel.make_plain(ABOVE, SEGMENT, &pages) {
                self.complain(format!("making the relation: {error}"));
            }
            while self.kernel.sync(ABOVE).is_err() {}
            let incarnation = self.truth.borrow().incarnation + 1;
            *self.truth.borrow_mut() = Truth::of(incarnation, &pages);
            self.tally(|tally| tally.relations += 1);
        });
    }

    fn container_file(&self) -> Option<File> {
        let segment = self.kernel.file_of(ABOVE, SEGMENT)?;
        self.kernel.file_of(segment, CONTAINER)
    }

    /// What form the segment has.
    fn form(self: &Rc<World>) -> String {
        if self.real.is_some() {
            return self.recovered_real().map_or_else(|what| what, |(form, _)| form);
        }
        let file = self.container_file();
        let root = file.and_then(|file| clock::quietly(|| self.kernel.root(file)));
        root.map_or("plain".to_owned(), |root| format!("base {:?}", root.base))
    }

    /// The pages of the segment after a crash, as who opens it finds them.
    fn recovered(self: &Rc<World>) -> Result<Vec<u64>, String> {
        if self.real.is_some() {
            return self.recovered_real().map(|(_, pages)| pages);
        }
        let found = self.kernel.file_of(ABOVE, SEGMENT).ok_or("the segment has no file")?;
        if let Some(pages) = self.kernel.pages(found) {
            return Ok(pages);
        }
        let file = self.kernel.file_of(found, CONTAINER).ok_or("the container has no file")?;
        let root = clock::quietly(|| self.kernel.root(file)).ok_or("no root")?;
        let base = self.kernel.file_of(found, BASE_NAME).and_then(|file| self.kernel.pages(file));
        let base = match (root.base, base) {
            (Base::None, _) => Vec::new(),
            (_, Some(base)) => base,
            (state, None) => return Err(format!("the root says {state:?}, and there is no base")),
        };
        if root.base == Base::Whole {
            return Ok(base);
        }
        let mut pages = Vec::new();
        for (page, entry) in root.entries.iter().enumerate() {
            match entry {
                Entry::Missing => return Err(format!("page {page} has no entry")),
                Entry::Record { value, .. } => pages.push(*value),
                Entry::InBase { .. } => match base.get(page) {
                    Some(value) => pages.push(*value),
                    None if root.is_all_returned() => break,
                    None => return Err(format!("{:?}: page {page} is not in the base", root.base)),
                },
            }
        }
        Ok(pages)
    }

    fn recovered_real(self: &Rc<World>) -> Result<(String, Vec<u64>), String> {
        let found = self.kernel.file_of(ABOVE, SEGMENT).ok_or("the segment has no file")?;
        if let Some(pages) = self.kernel.pages(found) {
            return Ok(("plain".to_owned(), pages));
        }
        let file = self.container_file().ok_or("the container has no file")?;
        let real = self.real.as_ref().ok_or("no engine")?;
        real.recovered(self, found, file)
    }

    fn check(self: &Rc<World>) -> Result<(), String> {
        let pages = self.recovered()?;
        for (page, history) in self.truth.borrow().pages.iter().enumerate() {
            let found = pages.get(page).copied().unwrap_or(0);
            if !history.may_be_after_crash(found) {
                let (form, allowed) = (self.form(), history.after_crash());
                return Err(format!("after a crash, {form}: page {page} is {found}, may be {allowed:?}"));
            }
        }
        Ok(())
    }
}

enum Who {
    Server,
    Worker,
}

struct Seat {
    index: usize,
    pid: u64,
    who: Who,
    coroutine: Coroutine,
}

fn seat(world: &Rc<World>, index: usize) -> Seat {
    // Ids are few, and are used again.
    let pid = 100 + world.next() % 50 * 10 + index as u64;
    let world = world.clone();
    if index < SERVERS {
        let coroutine = Coroutine::new(move || Server::new(&world, pid, index).run());
        return Seat { index, pid, who: Who::Server, coroutine };
    }
    Seat { index, pid, who: Who::Worker, coroutine: Coroutine::new(move || Worker::new(&world, pid).run()) }
}

fn kill(world: &World, seats: &mut Vec<Seat>) {
    let disk = world.real.as_ref().map(|real| &real.disk);
    disk.inspect(|disk| disk.set_ignoring(true));
    clock::without_effect(|| seats.clear());
    disk.inspect(|disk| disk.set_ignoring(false));
}

/// The server dies, with the power or without; then it starts.
// tidy: long, the steps of a start in their order
fn restart(world: &Rc<World>, seats: &mut Vec<Seat>) -> Result<(), String> {
    kill(world, seats);
    *world.exchanged.borrow_mut() = None;
    *world.seen.borrow_mut() = None;
    world.kernel.set_failing(0);
    let is_power = world.draw(2) == 0;
    world.tally(|tally| {
        tally.kills += 1;
        tally.power += u64::from(is_power);
    });
    let mut is_lost = is_power;
    loop {
        if is_lost {
            world.kernel.lose_power();
        } else {
            world.kernel.kill_all();
        }
        if let Some(real) = &world.real {
            real.restart(is_lost);
        }
        world.memory.clear();
        world.slots.borrow_mut().clear();
        world.slots_used.set(0);
        let place = Place { world: world.clone(), pid: 1 };
        let leftovers = clock::quietly(|| place.leftovers());
        if !world.truth.borrow().is_dropped {
            world.check().map_err(|what| format!("{what} (before sweeping)"))?;
        }
        for name in leftovers {
            match clock::quietly(|| remove_leftover(&place, name)) {
                Ok(_) => {}
                Err(ConvertError::NoSegment { .. }) if world.truth.borrow().is_dropped => {}
                Err(error) => return Err(format!("sweeping: {error}")),
            }
        }
        // The power may fail again at once.
        if world.draw(3) > 0 {
            break;
        }
        is_lost = true;
    }
    if world.truth.borrow().is_dropped {
        // The log says so: redo goes on with it.
        clock::quietly(|| {
            for name in world.kernel.names_in(ABOVE) {
                if let Ok(directory) = world.kernel.open_directory(ABOVE, &name) {
                    for name in world.kernel.names_in(directory) {
                        let _ = world.kernel.unlink(directory, &name);
                    }
                    let _ = world.kernel.remove_directory(ABOVE, &name);
                    world.kernel.release(directory);
                } else {
                    let _ = world.kernel.unlink(ABOVE, &name);
                }
            }
        });
        world.make_relation();
    }
    world.check()?;
    // A server that starts after a crash syncs all files.
    world.kernel.sync_all();
    if let (Some(real), Some(file)) = (&world.real, world.container_file()) {
        real.sync(file).map_err(|error| error.to_string())?;
    }
    let pages = world.recovered()?;
    let incarnation = world.truth.borrow().incarnation;
    *world.truth.borrow_mut() = Truth::of(incarnation, &pages);
    world.relations.set(world.relations.get() + 1);
    world.must_restart.set(false);
    if world.is_failing {
        world.kernel.set_failing(3);
    }
    Ok(())
}

fn run(plan: Plan) -> Result<Tally, String> {
    let world = Rc::new(World::new(plan));
    let is_traced = std::env::var("CONVERT_TRACE").is_ok_and(|seed| seed == plan.seed.to_string());
    kernel::trace(is_traced);
    world.make_relation();
    let done = schedule(&world, plan);
    kernel::trace(false);
    let tally = *world.tally.borrow();
    done.map(|()| tally).map_err(|what| format!("seed {}: {what}", plan.seed))
}

fn schedule(world: &Rc<World>, plan: Plan) -> Result<(), String> {
    let mut seats: Vec<Seat> = Vec::new();
    let mut waits = 0;
    for turn in 0..plan.turns {
        for index in 0..=SERVERS {
            if seats.iter().all(|seat| seat.index != index) {
                seats.push(seat(world, index));
            }
        }
        let chosen = world.draw(seats.len());
        let budget = if plan.is_real { [8, 80, 400, 2000] } else { [2, 8, 40, 200] };
        let budget = budget[world.draw(4)];
        let budget = 1 + world.draw(budget) as u64;
        let (goes_on, why, _) = clock::run(budget, false, || seats[chosen].coroutine.resume());
        waits = if why == Why::Relax { waits + 1 } else { 0 };
        if let Some(what) = world.violation.borrow_mut().take() {
            kill(world, &mut seats);
            return Err(format!("turn {turn}: {what}"));
        }
        if waits > 3000 {
            kill(world, &mut seats);
            return Err(format!("turn {turn}: nobody makes progress"));
        }
        if !goes_on {
            // A worker that has ended.
            let ended = seats.swap_remove(chosen);
            if let Who::Server = ended.who {
                return Err(format!("turn {turn}: a server process has ended"));
            }
            if let Some(real) = &world.real {
                real.end(ended.pid);
            }
        }
        if world.must_restart.get() || turn + 1 == plan.turns || world.draw(plan.kills) == 0 {
            restart(world, &mut seats).map_err(|what| format!("turn {turn}: {what}"))?;
        }
    }
    Ok(())
}

fn many(seeds: std::ops::Range<u64>, turns: u64, is_real: bool) -> Tally {
    let mut all = Tally::default();
    for seed in seeds {
        let kills = [400, 100][seed as usize / 4 % 2];
        let plan = Plan { seed, turns, fault: Fault::None, cuts: seed % 4 == 0, is_real, kills };
        let tally = run(plan).unwrap_or_else(|what| panic!("{what}"));
        all.exchanged_in += tally.exchanged_in;
        all.exchanged_out += tally.exchanged_out;
        all.flips += tally.flips;
        all.copies += tally.copies;
        all.finished += tally.finished;
        all.whole += tally.whole;
        all.reads += tally.reads;
        all.syncs += tally.syncs;
        all.relations += tally.relations;
        all.kills += tally.kills;
        all.power += tally.power;
    }
    println!("{all:?}");
    let each = [all.exchanged_in, all.exchanged_out, all.flips, all.finished, all.whole, all.relations];
    assert!(each.iter().all(|count| *count > 20), "{all:?}");
    all
}

#[test]
fn segments_that_change_their_form_lose_nothing() {
    many(0..1000, 2000, false);
}

#[test]
fn segments_of_the_engine_that_change_their_form_lose_nothing() {
    many(0..40, 4000, true);
}

#[test]
#[ignore = "minutes: a hundred thousand schedules"]
fn a_hundred_thousand_schedules_of_segments_that_change_their_form() {
    let first = Seed::from_env_or_time().0;
    many(first..first.saturating_add(100_000), 2000, false);
}

#[test]
#[ignore = "minutes: thousands of schedules"]
fn thousands_of_schedules_of_the_engines_segments_that_change_their_form() {
    let first = Seed::from_env_or_time().0;
    many(first..first.saturating_add(4000), 4000, true);
}
