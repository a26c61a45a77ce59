//! What happens between two lives of a server: crashes, recovery, files that are replaced. What is found
//! afterwards must be what the contract allows.

use std::cell::RefCell;
use std::rc::Rc;

use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::FaultRates;
use pgshrink_cfs::{
    Birth, Container, DeviceError, Error, Identity, KEY_BYTES, Options, Recovery, Scratch, segment,
};

use super::process::{Open, Process};
use super::scheduler::{BUDGET_MAX, Style};
use super::vocabulary::{Loaded, content_of, name_of, write_of};
use super::word::Memory;
use super::{End, World, clock, end};
use crate::coroutine::Coroutine;
use crate::model::{Model, State};
use crate::plan::{payload_of, state_of};

pub fn birth(world: &Rc<World>) -> Result<(), String> {
    born(world, world.memory.words()).map(drop).map_err(|error| format!("birth: {error}"))
}

fn born(world: &Rc<World>, words: &'static [super::word::SimWord]) -> Result<Open, Error> {
    let births = world.births.get() + 1;
    world.births.set(births);
    let birth = Birth {
        id: (u128::from(world.plan.seed + births * 977 + world.number as u64 * 7919) * 0x1234_5678_9abc_def1)
            .to_le_bytes(),
        identity: Identity::default(),
        key: [0; KEY_BYTES],
    };
    let quiet = Process::quiet(world).peer();
    let container = segment::create(&world.home(), quiet, words, &birth, world.plan.options())?;
    // A commit, so not where it is to be seen what a crash before the first one leaves.
    if world.plan.fsync_off {
        let name = world.vocabulary.new_name();
        container.add_dictionary(name_of(name), &content_of(name))?;
    }
    Ok(container)
}

/// The server is gone; the power too, or not.
pub fn crash(worlds: &[Rc<World>]) -> Result<(), End> {
    let world = &worlds[0];
    for world in worlds.iter().filter(|world| world.plan.fsync_off) {
        // Without fsync, everything that was written survives a server, if not its machine.
        let all = world.model.borrow().begin_commit();
        world.model.borrow_mut().committed(all);
    }
    let power_lost = !world.plan.fsync_off && world.draw(4) > 0;
    let mut lost = power_lost;
    loop {
        if lost {
            world.disk.lose_power();
            for world in worlds.iter().filter(|world| world.plan.style() != Style::Io) {
                world.garbled.borrow_mut().extend(world.home().garbled());
            }
        }
        worlds.iter().for_each(restart);
        // Recovery itself may be interrupted.
        let mut is_done = true;
        for world in worlds {
            is_done = is_done && recover(world)?;
        }
        if is_done {
            break;
        }
        lost = !world.plan.fsync_off && world.draw(2) == 0;
    }
    world.count(|tally| tally.crashes += 1);
    for world in worlds {
        check(world, power_lost)?;
        world.garbled.borrow_mut().clear();
    }
    Ok(())
}

/// Nothing is left of the server's processes and memory.
fn restart(world: &Rc<World>) {
    world.memory.clear();
    world.busy.borrow_mut().clear();
    world.growing.borrow_mut().clear();
    world.truncating.set(None);
    world.wish.set(None);
    world.must_restart.set(false);
}

/// Opens the container in a process of its own; false: it was killed or failed on the way.
fn recover(world: &Rc<World>) -> Result<bool, End> {
    let recovery = if world.plan.fsync_off || world.plan.fault == Fault::StaleEpochRolledForward {
        Recovery::RollForward
    } else {
        Recovery::Discard
    };
    if world.draw(3) > 0 {
        world.disk.set_faults(FaultRates::default());
    }
    let outcome: Rc<RefCell<Option<Result<u64, Error>>>> = Rc::default();
    let (result, process) = (outcome.clone(), Process::new(world));
    let me = process.me;
    let mut opener = Coroutine::new(move || {
        let words = process.world.memory.words();
        let plan = process.world.plan;
        let opened = process.world.home().container().map_err(|error| Error::Device {
            operation: "open",
            offset: 0,
            length: 0,
            source: error,
        });
        let opened = opened.and_then(|file| {
            let opened = Container::open(file, process.peer(), words, recovery, plan.options())?;
            Ok(opened.1.map_or(0, |report| report.missing_bytes))
        });
        *result.borrow_mut() = Some(opened);
    });
    // To the end, or killed at an operation of the device, or at any step.
    let (steps, budget) = match world.draw(6) {
        0 => (world.draw(30), BUDGET_MAX),
        1 => (1, world.draw_small(14)),
        _ => (100_000, BUDGET_MAX),
    };
    for _ in 0..steps {
        let (goes_on, _, left) = clock::run(budget, budget == BUDGET_MAX, || opener.resume());
        if !goes_on {
            break;
        }
        if budget == BUDGET_MAX && left <= 1 {
            return Err(format!("opening has not ended after {BUDGET_MAX} steps").into());
        }
    }
    end(world, opener);
    world.dead.borrow_mut().insert(me);
    match outcome.take() {
        // What a file proves that is shorter than its newest root's end.
        Some(Ok(missing)) if missing > 0 && world.plan.fault == Fault::None => {
            Err(format!("recovery: the file is {missing} bytes shorter than its root's end").into())
        }
        Some(Ok(_)) => Ok(true),
        Some(Err(error)) if error.is_damage() => Err(world.damaged("recovery", &error, true)),
        Some(Err(Error::Device { source: DeviceError::NotFound, .. })) => {
            // The file's name was lost: right only if nothing was ever committed.
            world.disk.set_faults(FaultRates::default());
            world.memory.clear();
            birth(world)?;
            Ok(true)
        }
        Some(Err(_)) if world.plan.faults => Ok(false),
        Some(Err(error)) => Err(format!("recovery: {error}").into()),
        None => Ok(false),
    }
}

impl World {
    /// Damage is a violation, but where the power failed while something was being written into the same 4 KB
    /// block.
    fn damaged(&self, when: &str, error: &Error, is_open: bool) -> End {
        const SHEET: u64 = 4096;
        let garbled = self.garbled.borrow();
        let is_garbled = match error {
            Error::Damaged(damage) => garbled.iter().any(|disk_block| {
                *disk_block < damage.offset + damage.length.max(1) && damage.offset < disk_block + SHEET
            }),
            _ => false,
        };
        if is_garbled {
            self.count(|tally| {
                tally.garbled += 1;
                tally.unopened += u64::from(is_open);
            });
            return End::Garbled;
        }
        let blocks = if garbled.is_empty() { String::new() } else { format!(", garbled {garbled:?}") };
        End::Violated(format!("{when}: {error}{blocks}"))
    }
}

/// Opens the container with nobody else there.
fn open_quietly(world: &Rc<World>, options: Options<'static>) -> Result<Open, Error> {
    let file = world.home().container().map_err(|source| Error::Device {
        operation: "open",
        offset: 0,
        length: 0,
        source,
    })?;
    let peer = Process::quiet(world).peer();
    Container::open(file.quiet(), peer, world.memory.words(), Recovery::Discard, options)
        .map(|(container, _)| container)
}

fn check(world: &Rc<World>, power_lost: bool) -> Result<(), End> {
    let opened = open_quietly(world, world.plan.options());
    check_pages(world, opened.map_err(|error| world.damaged("after a crash", &error, true))?, power_lost)
}

fn check_pages(world: &Rc<World>, container: Open, power_lost: bool) -> Result<(), End> {
    let (mut scratch, loaded) = (Scratch::new(), Loaded::default());
    let blocks = world.model.borrow().blocks();
    for block in (0..container.pages()).chain(blocks) {
        let state = match container.read(block, &mut scratch) {
            Ok(stored) => {
                let state = state_of(block, stored)?;
                if let Some((write, number)) = write_of(block, stored) {
                    let decoded = loaded.can_decode(&container, &world.vocabulary, write, number);
                    let decoded =
                        decoded.map_err(|error| world.damaged("after a crash", &error, false))??;
                    if !decoded {
                        let what = format!("after a crash: block {block} has lost dictionary {number}");
                        return Err(what.into());
                    }
                }
                state
            }
            Err(Error::PastEnd { .. }) => State::Absent,
            Err(error) => return Err(world.damaged("after a crash", &error, false)),
        };
        world.model.borrow_mut().check_recovered(block, state, power_lost)?;
    }
    Ok(())
}

/// The segment is dropped and made again by somebody with memory of his own, while the server's memory stays
/// as it is. The server may see that its memory is of another container, but not take one for the other.
pub fn replace(world: &Rc<World>) -> Result<(), End> {
    world.disk.set_faults(FaultRates::default());
    let failed = |error: Error| format!("replacing: {error}");
    segment::unlink(&world.home()).map_err(|error| format!("unlink: {error}"))?;
    let memory = Memory::new(world.plan.options().geometry.words());
    let mut model = Model::default();
    {
        let container = born(world, memory.words()).map_err(failed)?;
        let mut scratch = Scratch::new();
        for block in 0..world.draw(20) as u32 {
            let write = world.next_write();
            let payload = payload_of(block, write);
            container.write(block, write as u8, 0, &payload, &mut scratch).map_err(failed)?;
            let index = model.begin(block, State::Written(write));
            model.complete(block, index);
        }
        container.commit().map_err(failed)?;
        let begun = model.begin_commit();
        model.committed(begun);
    }
    *world.model.borrow_mut() = model;
    world.busy.borrow_mut().clear();
    world.growing.borrow_mut().clear();
    world.truncating.set(None);
    world.must_restart.set(false);
    world.count(|tally| tally.replaced += 1);
    match open_quietly(world, world.plan.options()) {
        Ok(container) => check_pages(world, container, false),
        Err(error) if error.is_damage() => Err(format!("a new file: {error}").into()),
        Err(_) => {
            // The server's memory is of another container, and says so.
            world.memory.clear();
            check(world, false)
        }
    }
}

/// The first to open the container does so for reading only.
pub fn read_only(world: &Rc<World>) -> Result<(), End> {
    world.disk.set_faults(FaultRates::default());
    let opened = open_quietly(world, Options { read_only: true, ..world.plan.options() });
    let container = opened.map_err(|error| End::Violated(format!("for reading only: {error}")))?;
    check_pages(world, container, false)
}
