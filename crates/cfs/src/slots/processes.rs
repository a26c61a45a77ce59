//! The processes of a server: names that are never used twice, and what each of them is using.
//!
//! A name is the process's id and the time at which it started, in one word. Ids are used again, within
//! seconds on a busy machine; the pair is not, as long as the machine runs, and shared memory does not
//! outlive that.
//!
//! An entry is taken and left with one store or swap of its name. What a dead process has left in its entry
//! counts for nothing: its name is cleared by who finds it, its pins by the next who takes the entry.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::device::ProcessTable;
use crate::format::error::Error;
use crate::shared::word::Word;
use crate::slots::layout::{PINS_MAX, Phase, SlotState, Slots};

/// Process ids are below this: the kernel's largest `pid_max`.
const PIDS: u64 = 1 << 22;
const PID_BITS: u32 = 22;
/// Start times are below this: ticks since the machine started, 1,394 years at 100 a second.
const STARTS: u64 = 1 << (64 - PID_BITS);

/// A process: its id, and when it started. Never the same for two processes while the machine runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProcessName(u64);

impl ProcessName {
    /// From the process id (not 0, below 2^22) and the start time in clock ticks since the machine started
    /// (below 2^42): field 22 of `/proc/PID/stat`. The command's name in field 2 may have spaces and
    /// parentheses: count from the last `)`.
    ///
    /// # Errors
    /// [`Error::Limit`] for numbers out of range; [`Error::SharedMemory`] for the id 0.
    pub fn new(pid: u32, start_ticks: u64) -> Result<ProcessName, Error> {
        let limits =
            [("process id", u64::from(pid), PIDS - 1), ("start time in ticks", start_ticks, STARTS - 1)];
        for (what, found, allowed) in limits {
            if found > allowed {
                return Err(Error::Limit { what, found, allowed });
            }
        }
        if pid == 0 {
            return Err(Error::SharedMemory { what: "process id, at least,", expected: 1, found: 0 });
        }
        Ok(ProcessName(start_ticks << PID_BITS | u64::from(pid)))
    }

    /// The process id.
    pub fn pid(self) -> u32 {
        (self.0 & (PIDS - 1)) as u32
    }

    /// Clock ticks since the machine started.
    pub fn start_ticks(self) -> u64 {
        self.0 >> PID_BITS
    }
}

/// What the slots ask of the process that they run in. Called with locks of the region held: see
/// `docs/decisions/2026-11-22-cfs-callbacks.md`. No call may leave by unwinding or `longjmp`, raise a
/// server's error, allocate, or come back into the engine; `EINTR` is retried inside.
pub trait Host {
    /// This process. The same from [`Member::enter`] to its end; after a fork, the child's own.
    fn me(&self) -> ProcessName;

    /// Whether that very process still runs: an id that another process has by now is a "no". A process that
    /// cannot be looked at counts as running: a wrong "no" lets two into one container, a wrong "yes" makes
    /// others wait.
    fn is_running(&self, process: ProcessName) -> bool;

    /// Lets others run: sleeps a little, 50 microseconds to a millisecond. Signals are left pending.
    fn relax(&self);

    /// As [`ProcessTable::after_move`].
    fn after_move(&self) {}

    /// Gives the memory of these words of the region back, so that they read as zeros (`FALLOC_FL_PUNCH_HOLE`
    /// of the memfd). They are whole pages of memory if pages are of 4 KB. False: not done, the engine zeroes
    /// them itself.
    fn give_back(&self, words: std::ops::Range<usize>) -> bool {
        let _ = words;
        false
    }
}

impl<H: Host> Host for &H {
    fn me(&self) -> ProcessName {
        (*self).me()
    }

    fn is_running(&self, process: ProcessName) -> bool {
        (*self).is_running(process)
    }

    fn relax(&self) {
        (*self).relax();
    }

    fn after_move(&self) {
        (*self).after_move();
    }

    fn give_back(&self, words: std::ops::Range<usize>) -> bool {
        (*self).give_back(words)
    }
}

/// A process as containers see it: the [`ProcessTable`] of all containers of a region.
#[derive(Clone, Copy)]
pub struct Peer<H> {
    name: u64,
    pub(crate) host: H,
}

impl<H: Host> Peer<H> {
    /// This process.
    pub fn of(host: H) -> Peer<H> {
        Peer { name: host.me().0, host }
    }
}

impl<H: Host> ProcessTable for Peer<H> {
    fn me(&self) -> u64 {
        self.name
    }

    fn is_alive(&self, peer: u64) -> bool {
        peer == self.name || self.host.is_running(ProcessName(peer))
    }

    fn relax(&self) {
        self.host.relax();
    }

    fn after_move(&self) {
        self.host.after_move();
    }
}

/// A process that has joined a region. One for each process and for one thread of it, made after the fork. It
/// leaves when this is dropped; a process that ends without that is found dead by others.
pub struct Member<'m, H: Host, W: Word> {
    pub(crate) slots: Slots<'m, W>,
    pub(crate) peer: Peer<H>,
    entry: u32,
    /// Its counts are changed by one thread.
    thread: PhantomData<Cell<()>>,
}

impl<'m, H: Host + Clone, W: Word> Member<'m, H, W> {
    /// Joins. Needs no lock: a process may join in redo, or while another that holds the lock is stopped.
    ///
    /// # Errors
    /// [`Error::Limit`] where [`processes_max`](crate::slots::Capacity::processes_max) processes are there
    /// already.
    pub fn enter(slots: Slots<'m, W>, host: H) -> Result<Self, Error> {
        let peer = Peer::of(host);
        let allowed = slots.capacity().processes_max;
        let entry = loop {
            // Entries of the dead only if there are no others: to ask whether a process lives is a system
            // call.
            let free = (0..allowed).find(|entry| slots.entry(*entry).name.swap_if(0, peer.name).is_ok());
            let mut was_freed = false;
            let mut is_taken_over = |entry: &u32| {
                let taken = take_over(&slots, *entry, &peer);
                was_freed |= taken == Some(false);
                taken == Some(true)
            };
            if let Some(entry) = free.or_else(|| (0..allowed).find(&mut is_taken_over)) {
                break entry;
            }
            if !was_freed {
                let (what, found) = ("processes of a region", u64::from(allowed) + 1);
                return Err(Error::Limit { what, found, allowed: allowed.into() });
            }
        };
        let end = slots.header().entries_end;
        let mut known = end.load();
        while known <= entry.into() {
            match end.swap_if(known, u64::from(entry) + 1) {
                Ok(()) => break,
                Err(found) => known = found,
            }
        }
        clear_pins(&slots, entry);
        Ok(Member { slots, peer, entry, thread: PhantomData })
    }
}

impl<'m, H: Host, W: Word> Member<'m, H, W> {
    /// The region.
    pub fn slots(&self) -> &Slots<'m, W> {
        &self.slots
    }

    /// For the error handler of a process that may have left a call of the engine by `longjmp`, which drops
    /// nothing: lets go of all that it has pinned and locked. Never while a call of this process is running
    /// or a [`Pinned`](crate::slots::Pinned) is in use.
    pub fn release_held(&self) {
        for slot in (0..self.slots.capacity().segments_max).filter(|slot| self.pins(*slot) > 0) {
            if let Ok(state) = self.slots.segment_state(slot) {
                crate::shared::lock::release_held(state.shared(), &self.peer);
            }
        }
        clear_pins(&self.slots, self.entry);
        crate::shared::lock::let_go(self.slots.header().lock, &self.peer);
    }

    fn pins(&self, slot: u32) -> u64 {
        pins_of(&self.slots, self.entry, slot)
    }

    pub(crate) fn has_pinned(&self, slot: u32) -> bool {
        self.pins(slot) > 0
    }

    /// Counts a pin, which says nothing yet: the slot may have been given to another segment. See
    /// [`try_pin`](Self::try_pin).
    pub(crate) fn count_pin(&self, slot: u32) -> Result<Pin<'_, 'm, H, W>, Error> {
        let found = self.pins(slot) + 1;
        if found > PINS_MAX {
            return Err(Error::Limit { what: "pins of one process on a segment", found, allowed: PINS_MAX });
        }
        let (word, shift) = self.slots.entry(self.entry).pins(slot);
        word.store(word.load() + (1 << shift));
        Ok(Pin { member: self, slot })
    }

    /// Pins a slot that is known from before. None: it is not that segment's any more, or may soon not be.
    ///
    /// # Errors
    /// [`Error::Limit`] for more pins than one process can have on a slot.
    #[doc(hidden)]
    pub fn try_pin(&self, slot: u32, generation: u64) -> Result<Option<Pin<'_, 'm, H, W>>, Error> {
        let pin = self.count_pin(slot)?;
        let descriptor = self.slots.descriptor(slot);
        // A write to the word, not a mere read: either who closes the slot afterwards sees the pin, or this
        // process sees that it is being closed.
        let found = SlotState::of(descriptor.state.add(0));
        if found != (SlotState { generation, phase: Phase::Open }) {
            return Ok(None);
        }
        if descriptor.used.load() == 0 {
            descriptor.used.store(1);
        }
        Ok(Some(pin))
    }

    /// Whether a process that lives has pinned the slot. For who has made sure that no new pins are counted
    /// on.
    pub(crate) fn is_pinned(&self, slot: u32) -> bool {
        self.is_pinned_beside(slot, None)
    }

    /// The same of processes other than this one.
    pub(crate) fn is_pinned_by_others(&self, slot: u32) -> bool {
        self.is_pinned_beside(slot, Some(self.entry))
    }

    fn is_pinned_beside(&self, slot: u32, but: Option<u32>) -> bool {
        let end = self.slots.header().entries_end.load() as u32;
        (0..end).any(|entry| {
            if Some(entry) == but || pins_of(&self.slots, entry, slot) == 0 {
                return false;
            }
            let name = self.slots.entry(entry).name.load();
            if name == 0 {
                // Its process has left, or is just joining and has nothing pinned.
                return false;
            }
            // A dead process's entry is free from now on. Who takes it clears the pins.
            self.peer.is_alive(name) || {
                let _ = self.slots.entry(entry).name.swap_if(name, 0);
                false
            }
        })
    }

    /// Processes that have joined and live.
    pub(crate) fn processes(&self) -> u32 {
        let end = self.slots.header().entries_end.load() as u32;
        let names = (0..end).map(|entry| self.slots.entry(entry).name.load());
        names.filter(|name| *name != 0 && self.peer.is_alive(*name)).count() as u32
    }
}

impl<H: Host, W: Word> Drop for Member<'_, H, W> {
    fn drop(&mut self) {
        clear_pins(&self.slots, self.entry);
        let _ = self.slots.entry(self.entry).name.swap_if(self.peer.name, 0);
    }
}

/// A pin that is counted. It goes when this is dropped.
#[doc(hidden)]
pub struct Pin<'a, 'm, H: Host, W: Word> {
    pub(super) member: &'a Member<'m, H, W>,
    pub slot: u32,
}

impl<H: Host, W: Word> Drop for Pin<'_, '_, H, W> {
    fn drop(&mut self) {
        let (word, shift) = self.member.slots.entry(self.member.entry).pins(self.slot);
        // After `release_held` there is none.
        if word.load() >> shift & PINS_MAX != 0 {
            word.store(word.load() - (1 << shift));
        }
    }
}

fn pins_of<W: Word>(slots: &Slots<'_, W>, entry: u32, slot: u32) -> u64 {
    let (word, shift) = slots.entry(entry).pins(slot);
    word.load() >> shift & PINS_MAX
}

/// Takes the entry of a dead process. None: there is none; false: another was quicker.
fn take_over<W: Word, H: Host>(slots: &Slots<'_, W>, entry: u32, peer: &Peer<H>) -> Option<bool> {
    let word = slots.entry(entry).name;
    let name = word.load();
    // One of this very process is of a member that it has beside, or was left behind by an exec.
    let is_dead = name == 0 || name != peer.name && !peer.is_alive(name);
    is_dead.then(|| word.swap_if(name, peer.name).is_ok())
}

fn clear_pins<W: Word>(slots: &Slots<'_, W>, entry: u32) {
    slots.entry(entry).all_pins().iter().filter(|word| word.load() != 0).for_each(|word| word.store(0));
}
