//! Which segment has which slot: the index, and how slots are taken, closed, wiped and repaired.
//!
//! All changes but one are made under the region's lock, which is held across no I/O but [`Host::give_back`].
//! The one: pins are counted without it. So closing a slot begins with a swap of its state, after which no
//! pin is believed, and then looks for pins.
//!
//! A slot that is being changed is noted in `Header::unfinished` first. Each step is one store, in an order
//! that lets the next holder of the lock see from the slot's phase how far a dead one came:
//!
//! | phase found | what was under way | what is done |
//! |---|---|---|
//! | free | it was being entered in the index | it is taken out |
//! | open, doomed | nothing, or the change was complete | nothing |
//! | closing | it was not yet decided whether it may go | it is open again |
//! | wiping | it had left the index, or was about to | that is done again, from the begin |

use crate::device::ProcessTable;
use crate::engine::recovery::{has_lost_commits, has_uncommitted, is_to_be_closed};
use crate::format::error::Error;
use crate::format::key::SegmentKey;
use crate::format::root::Base;
use crate::shared::lock::{Held, hold};
use crate::shared::region::{READ_ONLY, READY};
use crate::shared::word::Word;
use crate::slots::layout::{Phase, SlotState};
use crate::slots::processes::{Host, Member, Pin};

/// Idle slots at most that one search looks at once it has found one that a commit would let go.
const SEARCH_MAX: u32 = 32;
/// Rounds of a search: in the first all may have been used lately, in the second some again.
const SWEEP_ROUNDS: u32 = 3;

/// What became of a request to evict a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evicted {
    /// Its memory is given back.
    Done,
    /// It was not open.
    NotOpen,
    /// A process is using it.
    Pinned,
    /// It has changes that no commit has made durable, or a commit of it failed or died.
    Uncommitted,
}

/// What is in memory of an open segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Its pages; `None` while it is being loaded, and while a whole base has them.
    pub pages: Option<u32>,
    /// What the base is.
    pub base: Base,
    /// Whether the segment's name is the base's again ([`Container::leave`](crate::Container::leave)).
    pub has_left: bool,
    /// Whether it has something that no commit has made durable, or a commit failed.
    pub is_uncommitted: bool,
    /// Whether it was opened for writing.
    pub is_writable: bool,
}

/// What a region is used for at the moment, about: others go on meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Segments open, invalidated ones included that are still in use.
    pub segments: u32,
    /// Segments at most.
    pub segments_max: u32,
    /// Processes that have joined and live.
    pub processes: u32,
    /// Processes at most.
    pub processes_max: u32,
    /// Segments given a slot since the region was made.
    pub openings: u64,
    /// Segments evicted since.
    pub evictions: u64,
}

/// What became of a request for a slot.
#[doc(hidden)]
pub enum Acquired<'a, 'm, H: Host, W: Word> {
    /// The slot, pinned, and its generation.
    Slot(Pin<'a, 'm, H, W>, u64),
    Full(Full),
}

/// No slot could be taken.
#[doc(hidden)]
pub struct Full {
    pub pinned: u32,
    pub uncommitted: u32,
    /// A segment whose slot is free after a commit.
    pub victim: Option<SegmentKey>,
}

/// What was done to make room.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Was committed, and goes if nobody uses it.
    pub committed: Option<SegmentKey>,
    /// Could not be committed: to be left alone.
    pub failed: Vec<SegmentKey>,
}

/// The region's tables, for who holds their lock.
struct Table<'a, 'm, H: Host, W: Word> {
    member: &'a Member<'m, H, W>,
    _held: Held<'m, W>,
}

impl<'m, H: Host, W: Word> Member<'m, H, W> {
    fn lock_table(&self) -> Result<Table<'_, 'm, H, W>, Error> {
        let header = self.slots.header();
        if header.poisoned.load() != 0 {
            return Err(Error::Poisoned);
        }
        let table = Table { member: self, _held: hold(header.lock, header.poisoned, &self.peer) };
        table.repair();
        Ok(table)
    }

    /// Finds the segment's slot, or takes one for it, and pins it. Returns the slot's generation too.
    ///
    /// # Errors
    /// [`Error::SegmentGone`] where this very process still uses the segment that had this name before;
    /// [`Error::Limit`] as of a pin; [`Error::Poisoned`] as of [`invalidate`](Self::invalidate).
    #[doc(hidden)]
    pub fn acquire(&self, key: &SegmentKey) -> Result<Acquired<'_, 'm, H, W>, Error> {
        self.acquire_after(key, &Attempts::default())
    }

    /// As [`acquire`](Self::acquire), after others were committed to make room.
    pub(crate) fn acquire_after(
        &self,
        key: &SegmentKey,
        attempts: &Attempts,
    ) -> Result<Acquired<'_, 'm, H, W>, Error> {
        loop {
            let table = self.lock_table()?;
            if let Some(slot) = table.find(key) {
                let state = self.slots.state(slot);
                if state.phase == Phase::Open {
                    // Under the lock nobody closes it.
                    self.slots.descriptor(slot).used.store(1);
                    return Ok(Acquired::Slot(self.count_pin(slot)?, state.generation));
                }
                if self.has_pinned(slot) {
                    // It would wait for itself.
                    return Err(Error::SegmentGone { key: *key });
                }
                if table.close(slot) == Evicted::Done {
                    continue;
                }
            } else {
                // Now, before others use it again or take its slot; else the search may come by late.
                let committed = attempts.committed.and_then(|key| table.find(&key));
                committed.map(|slot| table.close(slot));
                return match table.take(&attempts.failed) {
                    Ok(slot) => {
                        let generation = table.insert(slot, key);
                        Ok(Acquired::Slot(self.count_pin(slot)?, generation))
                    }
                    Err(full) => Ok(Acquired::Full(full)),
                };
            }
            drop(table);
            // Another still uses the segment that had this name before.
            self.peer.relax();
        }
    }

    /// Pins a segment only if it is open.
    pub(crate) fn pin_open(&self, key: &SegmentKey) -> Result<Option<Pin<'_, 'm, H, W>>, Error> {
        let table = self.lock_table()?;
        let slot = table.find(key).filter(|slot| self.slots.state(*slot).phase == Phase::Open);
        slot.map(|slot| self.count_pin(slot)).transpose()
    }

    /// Says that the file of this name is not what it was: removed, renamed, or made anew. Its slot serves
    /// those who are using it at this moment to the end of their operation; every handle fails from its next
    /// operation on. Needs no file and makes none, waits for nobody but the lock's holder, and may be called
    /// in a critical section.
    ///
    /// Call it after the name has gone and before a file can be made by that name. Before a rename, and only
    /// then, commit and [`evict`](Self::evict) it, with nobody else using it. Returns whether it was open.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where the region's lock was taken from a process that lives.
    pub fn invalidate(&self, key: &SegmentKey) -> Result<bool, Error> {
        let table = self.lock_table()?;
        let Some(slot) = table.find(key) else { return Ok(false) };
        let state = self.slots.state(slot);
        if state.phase == Phase::Open {
            table.change(slot, state, state.next(Phase::Doomed));
        }
        table.close(slot);
        Ok(state.phase == Phase::Open)
    }

    /// Gives the memory of a segment back that nobody is using and that has nothing uncommitted. Its handles
    /// open it again.
    ///
    /// # Errors
    /// As [`invalidate`](Self::invalidate).
    pub fn evict(&self, key: &SegmentKey) -> Result<Evicted, Error> {
        let table = self.lock_table()?;
        Ok(table.find(key).map_or(Evicted::NotOpen, |slot| table.close(slot)))
    }

    /// Evicts idle segments, those not used for longest first, until `keep` are open or all that are left are
    /// in use or uncommitted; returns how many were evicted. The lock is let go after each. A worker that can
    /// open files calls [`close_idle`](Self::close_idle): opening again for writing what was not closed skips
    /// versions.
    ///
    /// # Errors
    /// As [`invalidate`](Self::invalidate).
    pub fn evict_idle(&self, keep: u32) -> Result<u32, Error> {
        let mut evicted = 0;
        loop {
            let table = self.lock_table()?;
            if table.open_slots() <= keep || table.sweep(None).is_err() {
                return Ok(evicted);
            }
            evicted += 1;
        }
    }

    /// The segment that was not used for longest, of those that nobody is using and that are not among these
    /// (`but`), and whether it is to be closed before it goes. None: so few are open, or there is none.
    pub(crate) fn idle(&self, keep: u32, but: &[SegmentKey]) -> Result<Option<(SegmentKey, bool)>, Error> {
        let table = self.lock_table()?;
        Ok(if table.open_slots() > keep { table.idle(but) } else { None })
    }

    /// What is in memory of a segment; `None` where it is not open. Opens nothing and pins nothing: for those
    /// who ask for a size, or whether an fsync has anything to do.
    ///
    /// # Errors
    /// As [`invalidate`](Self::invalidate).
    pub fn look(&self, key: &SegmentKey) -> Result<Option<Look>, Error> {
        let table = self.lock_table()?;
        let Some(slot) = table.find(key).filter(|slot| self.slots.state(*slot).phase == Phase::Open) else {
            return Ok(None);
        };
        let live = self.slots.segment_state(slot)?;
        let state = live.shared().state.load();
        let (base, has_left) = (live.base(), live.has_left());
        let is_known = matches!(state, READY | READ_ONLY) && base != Base::Whole;
        let pages = is_known.then(|| live.pages());
        Ok(Some(Look {
            pages,
            base,
            has_left,
            is_uncommitted: has_uncommitted(&live),
            is_writable: state == READY,
        }))
    }

    /// The segments that are open, about: others go on meanwhile. `uncommitted`: only those that have something
    /// that no commit has made durable.
    ///
    /// # Errors
    /// As [`invalidate`](Self::invalidate).
    pub fn open_segments(&self, uncommitted: bool) -> Result<Vec<SegmentKey>, Error> {
        let mut keys = Vec::new();
        let _table = self.lock_table()?;
        for slot in 0..self.slots.capacity().segments_max {
            let is_open = self.slots.state(slot).phase == Phase::Open;
            if is_open && (!uncommitted || has_uncommitted(&self.slots.segment_state(slot)?)) {
                keys.push(self.slots.key(slot));
            }
        }
        Ok(keys)
    }

    /// What the region is used for.
    pub fn usage(&self) -> Usage {
        let (header, capacity) = (self.slots.header(), self.slots.capacity());
        Usage {
            segments: header.open.load() as u32,
            segments_max: capacity.segments_max,
            processes: self.processes(),
            processes_max: capacity.processes_max,
            openings: header.openings.load(),
            evictions: header.evictions.load(),
        }
    }
}

impl<'m, H: Host, W: Word> Table<'_, 'm, H, W> {
    /// Ends or undoes what a dead holder of the lock was in the midst of.
    fn repair(&self) {
        let unfinished = self.member.slots.header().unfinished;
        let Some(slot) = unfinished.load().checked_sub(1) else { return };
        let slot = slot as u32;
        let state = self.member.slots.state(slot);
        match state.phase {
            Phase::Open | Phase::Doomed => {}
            Phase::Free => self.unlink(slot),
            Phase::Closing => self.change(slot, state, state.with(Phase::Open)),
            Phase::Wiping => self.wipe(slot, state),
        }
        self.count_open();
        unfinished.store(0);
    }

    /// A process may have died between a change of the index and the count.
    fn count_open(&self) {
        let slots = &self.member.slots;
        let all = 0..slots.capacity().segments_max;
        let open = all.filter(|slot| slots.state(*slot).phase != Phase::Free).count();
        slots.header().open.store(open as u64);
    }

    fn open_slots(&self) -> u32 {
        self.member.slots.header().open.load() as u32
    }

    /// Changes a slot's state. By a swap: pins are ordered with it by the word. Nobody else changes it
    /// without the lock, so it succeeds unless two hold that.
    fn change(&self, slot: u32, from: SlotState, to: SlotState) {
        if self.member.slots.descriptor(slot).state.swap_if(from.word(), to.word()).is_err() {
            self.member.slots.header().poisoned.store(1);
        }
    }

    fn find(&self, key: &SegmentKey) -> Option<u32> {
        let slots = &self.member.slots;
        let mut next = slots.bucket(key).load();
        // Damaged memory may have a circle.
        for _ in 0..slots.capacity().segments_max {
            let slot = next.checked_sub(1)? as u32;
            if slots.key(slot) == *key {
                return Some(slot);
            }
            next = slots.descriptor(slot).next.load();
        }
        None
    }

    /// Enters a free slot in the index; returns its generation.
    fn insert(&self, slot: u32, key: &SegmentKey) -> u64 {
        let slots = &self.member.slots;
        let (header, descriptor) = (slots.header(), slots.descriptor(slot));
        let bucket = slots.bucket(key);
        header.unfinished.store(u64::from(slot) + 1);
        descriptor.key.iter().zip(key.words()).for_each(|(word, value)| word.store(value));
        descriptor.next.store(bucket.load());
        descriptor.used.store(1);
        bucket.store(u64::from(slot) + 1);
        let state = slots.state(slot);
        self.change(slot, state, state.with(Phase::Open));
        header.free_from.store(u64::from(slot) + 1);
        header.open.add(1);
        header.openings.add(1);
        header.unfinished.store(0);
        state.generation
    }

    /// Takes a slot out of the index if it is there.
    fn unlink(&self, slot: u32) {
        let slots = &self.member.slots;
        let mut word = slots.bucket(&slots.key(slot));
        for _ in 0..slots.capacity().segments_max {
            match word.load().checked_sub(1) {
                None => return,
                Some(found) if found == u64::from(slot) => {
                    return word.store(slots.descriptor(slot).next.load());
                }
                Some(other) => word = slots.descriptor(other as u32).next,
            }
        }
    }

    /// A free slot, of an idle segment if need be. `failed` cannot be committed.
    fn take(&self, failed: &[SegmentKey]) -> Result<u32, Full> {
        let slots = &self.member.slots;
        let from = slots.header().free_from.load() as u32;
        let mut slots_left = from..slots.capacity().segments_max;
        let free = slots_left.find(|slot| slots.state(*slot).phase == Phase::Free);
        free.map_or_else(|| self.sweep(Some(failed)), Ok)
    }

    /// Evicts a segment that was not used for a while; returns its slot. With `failed` it gives up early where
    /// a commit would help, of any but these.
    fn sweep(&self, failed: Option<&[SegmentKey]>) -> Result<u32, Full> {
        let slots = &self.member.slots;
        let (count, hand) = (slots.capacity().segments_max, slots.header().hand);
        let mut full = Full { pinned: 0, uncommitted: 0, victim: None };
        let mut looked = 0;
        for round in 0..SWEEP_ROUNDS {
            (full.pinned, full.uncommitted) = (0, 0);
            let mut was_used = false;
            for _ in 0..count {
                let slot = hand.load() as u32 % count;
                hand.store(u64::from(slot) + 1);
                let (state, used) = (slots.state(slot), slots.descriptor(slot).used);
                if state.phase == Phase::Free {
                    continue;
                }
                // In the last round only a pin counts: others use it again as fast as this comes around.
                if state.phase == Phase::Open && used.load() != 0 && round + 1 < SWEEP_ROUNDS {
                    used.store(0);
                    was_used = true;
                    continue;
                }
                match self.close(slot) {
                    Evicted::Done => return Ok(slot),
                    Evicted::Uncommitted => {
                        full.uncommitted += 1;
                        if full.victim.is_none() && failed.is_some_and(|failed| self.is_curable(slot, failed))
                        {
                            full.victim = Some(slots.key(slot));
                        }
                    }
                    Evicted::Pinned | Evicted::NotOpen => full.pinned += 1,
                }
                looked += 1;
                if looked >= SEARCH_MAX && full.victim.is_some() {
                    return Err(full);
                }
            }
            if !was_used {
                break;
            }
        }
        Err(full)
    }

    /// A segment that was not used for a while, as [`sweep`](Self::sweep) looks for it, left open.
    fn idle(&self, but: &[SegmentKey]) -> Option<(SegmentKey, bool)> {
        let slots = &self.member.slots;
        let (count, hand) = (slots.capacity().segments_max, slots.header().hand);
        for _ in 0..2 * count {
            let slot = hand.load() as u32 % count;
            hand.store(u64::from(slot) + 1);
            let used = slots.descriptor(slot).used;
            if slots.state(slot).phase != Phase::Open {
                continue;
            }
            if used.load() != 0 {
                used.store(0);
                continue;
            }
            let key = slots.key(slot);
            if !self.member.is_pinned(slot) && !but.contains(&key) {
                return Some((key, slots.segment_state(slot).is_ok_and(|state| is_to_be_closed(&state))));
            }
        }
        None
    }

    /// Whether a commit of what is uncommitted in the slot may succeed.
    fn is_curable(&self, slot: u32, failed: &[SegmentKey]) -> bool {
        let slots = &self.member.slots;
        let can = slots.segment_state(slot).is_ok_and(|state| !has_lost_commits(&state));
        can && !failed.contains(&slots.key(slot))
    }

    /// Wipes a slot that nobody uses and whose container has nothing to lose.
    fn close(&self, slot: u32) -> Evicted {
        let slots = &self.member.slots;
        let header = slots.header();
        let state = slots.state(slot);
        header.unfinished.store(u64::from(slot) + 1);
        let closing = match state.phase {
            Phase::Open => state.with(Phase::Closing),
            // No handle has its generation.
            Phase::Doomed => state,
            _ => {
                header.unfinished.store(0);
                return Evicted::NotOpen;
            }
        };
        if closing != state {
            self.change(slot, state, closing);
        }
        let kept = if self.member.is_pinned(slot) {
            Some(Evicted::Pinned)
        } else if state.phase == Phase::Open && self.is_uncommitted(slot) {
            Some(Evicted::Uncommitted)
        } else {
            None
        };
        if let Some(why) = kept {
            if closing != state {
                self.change(slot, closing, state);
            }
            header.unfinished.store(0);
            return why;
        }
        let wiping = closing.next(Phase::Wiping);
        self.change(slot, closing, wiping);
        self.wipe(slot, wiping);
        header.open.add(u64::MAX);
        header.evictions.add(u64::from(state.phase == Phase::Open));
        header.unfinished.store(0);
        Evicted::Done
    }

    fn is_uncommitted(&self, slot: u32) -> bool {
        self.member.slots.segment_state(slot).map_or(true, |state| has_uncommitted(&state))
    }

    /// Done again from the begin if its process dies in it.
    fn wipe(&self, slot: u32, state: SlotState) {
        let slots = &self.member.slots;
        self.unlink(slot);
        if !self.member.peer.host.give_back(slots.segment_range(slot))
            && let Ok(state) = slots.segment_state(slot)
        {
            state.zero(&[]);
        }
        let free_from = slots.header().free_from;
        free_from.store(free_from.load().min(slot.into()));
        self.change(slot, state, state.with(Phase::Free));
    }
}
