//! Where records go: a cursor in a run of zones, and what makes a zone free.
//!
//! A zone's word has the grains that are *finished* in it (their writer has published or given up), the grains of records that the
//! last commit refers to, and a state. A zone is freed by a commit, when it found all its grains finished
//! **before** it looked at the map, and no entry that points there: then no entry ever will again. A killed writer
//! leaves a zone unfinished; the next opening counts anew.

use crate::live::{CURSOR, FREE_ZONES, Live, SHEETS_LEFT, Word, ZONE_HINT, ZONES_END};

const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const STATE_SHIFT: u32 = 40;

/// Zones at most that one run takes, so that one process does not take all that is free.
const RUN_ZONES_MAX: u32 = 16;

/// What a zone is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneState {
    /// Past the file's end.
    Unused,
    /// Has records or is being filled.
    Used,
    /// Free, its bytes still allocated.
    Free,
    /// Free and punched.
    Hole,
    /// Being punched.
    Punching,
}

/// A zone's word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    pub finished: u32,
    pub live: u32,
    pub state: ZoneState,
}

impl Zone {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.finished) | u64::from(self.live) << COUNT_BITS | (self.state as u64) << STATE_SHIFT
    }

    pub(crate) fn of(word: u64) -> Zone {
        let state = match word >> STATE_SHIFT {
            0 => ZoneState::Unused,
            2 => ZoneState::Free,
            3 => ZoneState::Hole,
            4 => ZoneState::Punching,
            _ => ZoneState::Used,
        };
        let live = (word >> COUNT_BITS & COUNT_MASK) as u32;
        Zone { finished: (word & COUNT_MASK) as u32, live, state }
    }

    fn is_free(self) -> bool {
        matches!(self.state, ZoneState::Free | ZoneState::Hole)
    }
}

fn cursor(next: u32, end: u32) -> u64 {
    u64::from(next) | u64::from(end) << 32
}

fn parts(cursor: u64) -> (u32, u32) {
    (cursor as u32, (cursor >> 32) as u32)
}

impl<W: Word> Live<'_, W> {
    fn zone_word(&self, zone: u32) -> &W {
        &self.words[crate::live::ENTRIES + self.geometry.pages_max as usize + zone as usize]
    }

    pub fn zone(&self, zone: u32) -> Zone {
        Zone::of(self.zone_word(zone).load())
    }

    pub fn set_zone(&self, zone: u32, value: Zone) {
        self.zone_word(zone).store(value.word());
    }

    pub(crate) fn zones_end(&self) -> u32 {
        self.get(ZONES_END) as u32
    }

    /// Zones that are neither free nor holes.
    pub(crate) fn used_zones(&self) -> u64 {
        // A process between two steps may make it one off, or the free ones more than all.
        (self.get(ZONES_END) + 1).saturating_sub(self.get(FREE_ZONES).wrapping_add(1))
    }

    pub(crate) fn zone_of(&self, location: u32) -> u32 {
        location / self.geometry.zone_grains
    }

    /// The zones that `grains` from `location` on touch, with how many grains are in each.
    pub(crate) fn shares(&self, location: u32, grains: u32) -> impl Iterator<Item = (u32, u32)> {
        let size = self.geometry.zone_grains;
        let (mut at, end) = (location, location + grains);
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let (zone, share) = (at / size, (end - at).min(size - at % size));
                at += share;
                (zone, share)
            })
        })
    }

    /// Space for a record: its first grain. None: the file may not grow further.
    pub fn reserve(&self, grains: u32) -> Option<u32> {
        loop {
            let current = self.get(CURSOR);
            let (next, end) = parts(current);
            if grains <= end - next {
                if self.words[CURSOR].swap_if(current, cursor(next + grains, end)).is_ok() {
                    return Some(next);
                }
            } else if !self.refill(current, grains) {
                return None;
            }
        }
    }

    /// Says that what was reserved there is written and published, or given up.
    pub fn finish(&self, location: u32, grains: u32) {
        for (zone, share) in self.shares(location, grains) {
            self.zone_word(zone).add(share.into());
        }
    }

    /// Gives up the rest of the sheet in which the cursor stands, so that what is written from now on shares no sheet with what
    /// is being made durable.
    pub fn leave_sheet(&self) {
        const SHEET_GRAINS: u32 = (crate::root::SHEET_BYTES / crate::entry::GRAIN_BYTES) as u32;
        loop {
            let current = self.get(CURSOR);
            let (next, end) = parts(current);
            let start = next.next_multiple_of(SHEET_GRAINS).min(end);
            if self.words[CURSOR].swap_if(current, cursor(start, end)).is_ok() {
                self.finish(next, start - next);
                // After the cursor: who reserves in the sheet that is left finds the number changed.
                self.words[SHEETS_LEFT].add(1);
                return;
            }
        }
    }

    /// Sets the cursor, with nobody else there yet.
    pub fn set_cursor(&self, next: u32, end: u32) {
        self.set(CURSOR, cursor(next, end));
    }

    /// Whether the zone lies in the run that is being filled.
    pub(crate) fn is_in_run(&self, zone: u32) -> bool {
        let (next, end) = parts(self.get(CURSOR));
        next < end && self.zone_of(next) <= zone && zone <= self.zone_of(end - 1)
    }

    /// Replaces the run of `current`, which has no room for `grains`. False: there is no space. True: there is, or
    /// somebody else has just replaced it.
    fn refill(&self, current: u64, grains: u32) -> bool {
        let need = grains.div_ceil(self.geometry.zone_grains);
        let Some((first, count)) = self.take_free(need).or_else(|| self.take_new(need)) else {
            // Another may have found the last space.
            return self.get(CURSOR) != current;
        };
        let size = self.geometry.zone_grains;
        let (mut start, end) = (first * size, (first + count) * size);
        let (next, old_end) = parts(current);
        if old_end == start {
            start = next;
        }
        if self.words[CURSOR].swap_if(current, cursor(start, end)).is_ok() {
            if start != next {
                self.finish(next, old_end - next);
            }
        } else {
            (first..first + count).for_each(|zone| self.give_back(zone));
        }
        true
    }

    fn give_back(&self, zone: u32) {
        self.set_zone(zone, Zone { finished: 0, live: 0, state: ZoneState::Free });
        self.words[FREE_ZONES].add(1);
    }

    /// Claims up to a run of free zones in a row, `need` at least.
    fn take_free(&self, need: u32) -> Option<(u32, u32)> {
        if self.get(FREE_ZONES) < u64::from(need) || self.get(FREE_ZONES) > u64::MAX / 2 {
            return None;
        }
        let (known, end) = (self.unknown_zones(), self.zones_end());
        let hint = (self.get(ZONE_HINT) as u32).clamp(known, end);
        self.take_between(hint, end, need).or_else(|| self.take_between(known, end, need))
    }

    fn take_between(&self, from: u32, end: u32, need: u32) -> Option<(u32, u32)> {
        let mut zone = from;
        while zone < end {
            let count = (zone..end.min(zone + RUN_ZONES_MAX.max(need)))
                .take_while(|zone| self.zone(*zone).is_free())
                .take_while(|zone| self.claim(*zone))
                .count() as u32;
            if count >= need {
                self.set(ZONE_HINT, (zone + count).into());
                return Some((zone, count));
            }
            (zone..zone + count).for_each(|zone| self.give_back(zone));
            zone += count + 1;
        }
        None
    }

    fn claim(&self, zone: u32) -> bool {
        let word = self.zone_word(zone).load();
        let claimed = Zone { finished: 0, live: 0, state: ZoneState::Used };
        let done = Zone::of(word).is_free() && self.zone_word(zone).swap_if(word, claimed.word()).is_ok();
        if done {
            self.words[FREE_ZONES].add(u64::MAX);
        }
        done
    }

    /// Claims zones past the file's end.
    fn take_new(&self, need: u32) -> Option<(u32, u32)> {
        loop {
            let end = self.get(ZONES_END);
            let count = need.max(2).min(self.geometry.zones_max.saturating_sub(end as u32));
            if count < need {
                return None;
            }
            if self.words[ZONES_END].swap_if(end, end + u64::from(count)).is_ok() {
                let zones = end as u32..end as u32 + count;
                zones.for_each(|zone| {
                    self.set_zone(zone, Zone { finished: 0, live: 0, state: ZoneState::Used });
                });
                return Some((end as u32, count));
            }
        }
    }

    /// Whether nobody writes into the zone, or ever will until it is freed.
    pub fn is_closed(&self, zone: u32) -> bool {
        let found = self.zone(zone);
        found.state == ZoneState::Used && found.finished == self.geometry.zone_grains
    }

    /// Records how many grains of the zone a commit refers to.
    pub(crate) fn set_live_grains(&self, zone: u32, live: u32) {
        self.change_zone(zone, |found| Zone { live, ..found });
    }

    /// Makes a zone free to be filled again.
    pub fn free_zone(&self, zone: u32) {
        self.change_zone(zone, |_| Zone { finished: 0, live: 0, state: ZoneState::Free });
        self.words[FREE_ZONES].add(1);
    }

    /// Takes a free zone away in order to punch it.
    pub(crate) fn begin_punch(&self, zone: u32) -> bool {
        let free = Zone { finished: 0, live: 0, state: ZoneState::Free };
        let punching = Zone { state: ZoneState::Punching, ..free };
        let done = self.zone_word(zone).swap_if(free.word(), punching.word()).is_ok();
        if done {
            self.words[FREE_ZONES].add(u64::MAX);
        }
        done
    }

    /// Gives a zone back after punching.
    pub(crate) fn end_punch(&self, zone: u32, punched: bool) {
        let state = if punched { ZoneState::Hole } else { ZoneState::Free };
        self.set_zone(zone, Zone { finished: 0, live: 0, state });
        self.words[FREE_ZONES].add(1);
    }

    fn change_zone(&self, zone: u32, change: impl Fn(Zone) -> Zone) {
        let mut current = self.zone_word(zone).load();
        while let Err(found) = self.zone_word(zone).swap_if(current, change(Zone::of(current)).word()) {
            current = found;
        }
    }
}
