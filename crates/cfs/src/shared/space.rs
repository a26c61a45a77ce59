//! Where records go: a cursor in a run of zones, and what makes a zone free.
//!
//! A zone's word has the grains that are *finished* in it (their writer has published or given up), the
//! grains of records that the last commit refers to, and a state. A zone is freed by a commit, when it found
//! all its grains finished **before** it looked at the map, and no entry that points there: then no entry
//! ever will again. A killed writer leaves a zone unfinished; the next opening counts anew.
//!
//! The last free zones are not everybody's. Pages leave what collection and commits need, collection leaves
//! what commits need: so a segment whose addresses are used up can be committed, collected and, after that,
//! written to again. What is kept is filled apart ([`Lane`]): a page in a commit's zone would keep it from
//! becoming free with the next commit, until nothing is kept any more.

use crate::format::root::SHEET_BYTES;
use crate::format::units::{Extent, GRAIN_BYTES, Grains, Location, ZoneNumber};
use crate::shared::live::Live;
use crate::shared::word::Word;

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

/// What a record is written for: how much of the last space it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A page, or anything else that may fail for want of space.
    Page,
    /// A collector's copy of a page, which frees space in the end.
    Move,
    /// What a commit cannot do without beside its root.
    Map,
}

/// Which run a record is appended to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    /// All records, as long as there is more than what is kept.
    Common,
    /// Moved pages, in zones kept for them.
    Moves,
    /// A commit's records, in zones kept for them. Each lies in as few zones as can be: a zone becomes free
    /// with the last that reaches into it.
    Map,
}

impl Lane {
    const ALL: [Lane; 3] = [Lane::Common, Lane::Moves, Lane::Map];
}

/// Space for a record. It counts as finished when this is dropped: the record is published, or given up.
pub struct Reserved<'m, W: Word> {
    live: Live<'m, W>,
    extent: Extent,
}

impl<W: Word> Reserved<'_, W> {
    /// Where.
    pub fn extent(&self) -> Extent {
        self.extent
    }
}

impl<W: Word> Drop for Reserved<'_, W> {
    fn drop(&mut self) {
        self.live.finish(self.extent);
    }
}

/// A writer between its reservation and the end of its write. It leaves when this is dropped.
pub struct Appending<'m, W: Word> {
    word: &'m W,
    sheets_left: u64,
}

impl<W: Word> Drop for Appending<'_, W> {
    fn drop(&mut self) {
        let mut current = self.word.load();
        loop {
            match self.word.swap_if(current, Writers::of(current).without(self.sheets_left).word()) {
                Ok(()) => return,
                Err(found) => current = found,
            }
        }
    }
}

/// The writers of every other sheet, in one word.
#[derive(Clone, Copy)]
struct Writers {
    /// Writers that have entered and have not left.
    inside: u32,
    /// Of these, how many a commit no longer waits for.
    given_up: u32,
    /// The last sheet whose writers were given up (`Writers::sheet`).
    sheet: u32,
}

/// More writers than a server can have processes.
const WRITERS_BITS: u32 = 20;
const WRITERS_MASK: u64 = (1 << WRITERS_BITS) - 1;
const SHEET_MASK: u32 = (1 << (64 - 2 * WRITERS_BITS)) - 1;

impl Writers {
    fn of(word: u64) -> Writers {
        Writers {
            inside: (word & WRITERS_MASK) as u32,
            given_up: (word >> WRITERS_BITS & WRITERS_MASK) as u32,
            sheet: (word >> (2 * WRITERS_BITS)) as u32,
        }
    }

    fn word(self) -> u64 {
        assert!(u64::from(self.inside) <= WRITERS_MASK, "{} writers", self.inside);
        let counts = u64::from(self.given_up) << WRITERS_BITS | u64::from(self.inside);
        u64::from(self.sheet & SHEET_MASK) << (2 * WRITERS_BITS) | counts
    }

    /// The sheet's number among those whose writers are counted in the same word; it wraps around.
    fn sheet(sheets_left: u64) -> u32 {
        (sheets_left / 2) as u32 & SHEET_MASK
    }

    /// Without one that entered when so many sheets had been left. One that was given up and came back is no
    /// longer counted among those that are not waited for.
    fn without(self, sheets_left: u64) -> Writers {
        let behind = self.sheet.wrapping_sub(Writers::sheet(sheets_left)) & SHEET_MASK;
        let was_given_up = self.given_up > 0 && behind < SHEET_MASK / 2;
        Writers { inside: self.inside - 1, given_up: self.given_up - u32::from(was_given_up), ..self }
    }
}

impl Zone {
    pub(crate) const CLAIMED: Zone = Zone { finished: 0, live: 0, state: ZoneState::Used };
    pub(crate) const FREE: Zone = Zone { finished: 0, live: 0, state: ZoneState::Free };

    pub(crate) fn word(self) -> u64 {
        assert!(u64::from(self.finished | self.live) <= COUNT_MASK, "{self:?}");
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

/// A run of grains to be filled: the next one, and the first behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    next: u32,
    end: u32,
}

impl Run {
    fn of(word: u64) -> Run {
        Run { next: word as u32, end: (word >> 32) as u32 }
    }

    fn word(self) -> u64 {
        assert!(self.next <= self.end, "{self:?}");
        u64::from(self.next) | u64::from(self.end) << 32
    }
}

impl<'m, W: Word> Live<'m, W> {
    fn zone_word(&self, zone: ZoneNumber) -> &'m W {
        &self.zone_words()[zone.index()]
    }

    pub fn zone(&self, zone: ZoneNumber) -> Zone {
        Zone::of(self.zone_word(zone).load())
    }

    pub fn set_zone(&self, zone: ZoneNumber, value: Zone) {
        self.zone_word(zone).store(value.word());
    }

    pub(crate) fn zones_end(&self) -> u32 {
        self.shared().zones_end.load() as u32
    }

    /// Zones that are free or past the file's end.
    pub(crate) fn spare_zones(&self) -> u32 {
        // A process between two steps may make it one off, and less than none.
        let free = (self.shared().free_zones.load() as i64).max(0) as u32;
        free + self.geometry().zones_max.saturating_sub(self.zones_end())
    }

    /// Whether nothing is left but what is kept for commits and collection.
    pub(crate) fn is_short(&self) -> bool {
        self.spare_zones() <= self.kept_from(Lane::Common)
    }

    /// Zones that are neither free nor holes.
    pub(crate) fn used_zones(&self) -> u64 {
        let free = (self.shared().free_zones.load() as i64).max(0) as u64;
        u64::from(self.zones_end()).saturating_sub(free)
    }

    /// The zones that an extent touches, each with the grains that it has there.
    pub(crate) fn shares(&self, extent: Extent) -> impl Iterator<Item = (ZoneNumber, Grains)> + use<W> {
        extent.shares(self.geometry().zone_grains)
    }

    /// Zones that a lane must leave alone.
    fn kept_from(&self, lane: Lane) -> u32 {
        let geometry = self.geometry();
        match lane {
            Lane::Common => geometry.zones_for_commits() + geometry.zones_for_moves(),
            Lane::Moves => geometry.zones_for_commits(),
            Lane::Map => 0,
        }
    }

    fn cursor(&self, lane: Lane) -> &'m W {
        let [moves, map] = &self.shared().kept_cursors;
        match lane {
            Lane::Common => &self.shared().cursor,
            Lane::Moves => moves,
            Lane::Map => map,
        }
    }

    /// Counts a writer in that is about to reserve space and to write there.
    pub fn enter_append(&self) -> Appending<'m, W> {
        let shared = self.shared();
        loop {
            let sheets_left = shared.sheets_left.load();
            let word = &shared.appending[(sheets_left & 1) as usize];
            word.add(1);
            let appending = Appending { word, sheets_left };
            // A write to the word, not a mere read: either a commit that leaves the sheet afterwards sees
            // this writer, or this one sees that it was left.
            if shared.sheets_left.add(0) == sheets_left {
                return appending;
            }
        }
    }

    /// Whether a commit has left the sheet since this writer came.
    pub fn was_left(&self, appending: &Appending<'_, W>) -> bool {
        self.shared().sheets_left.load() != appending.sheets_left
    }

    /// Space for a record. None: the file may not grow further, or what is left is not for this purpose.
    pub fn reserve(&self, grains: Grains, purpose: Purpose) -> Option<Reserved<'m, W>> {
        let kept = match purpose {
            Purpose::Page => None,
            Purpose::Move => Some(Lane::Moves),
            Purpose::Map => Some(Lane::Map),
        };
        self.reserve_in(Lane::Common, grains).or_else(|| self.reserve_in(kept?, grains))
    }

    fn reserve_in(&self, lane: Lane, grains: Grains) -> Option<Reserved<'m, W>> {
        let cursor = self.cursor(lane);
        loop {
            let current = cursor.load();
            let Run { next, end } = Run::of(current);
            if grains.0 <= end - next {
                let rest = Run { next: next + grains.0, end };
                if cursor.swap_if(current, rest.word()).is_ok() {
                    let extent = Extent { location: Location(next), grains };
                    return Some(Reserved { live: self.clone(), extent });
                }
            } else if !self.refill(lane, current, grains) {
                return None;
            }
        }
    }

    /// Says that what was reserved there is written and published, or given up.
    fn finish(&self, extent: Extent) {
        for (zone, share) in self.shares(extent) {
            self.zone_word(zone).add(share.0.into());
        }
    }

    /// Gives up the rest of the sheets in which the cursors stand, so that what is written from now on shares
    /// no sheet with what is being made durable. Writers that came before may still write there:
    /// [`has_writers_left`](Self::has_writers_left).
    pub fn leave_sheet(&self) {
        Lane::ALL.into_iter().for_each(|lane| self.leave_sheet_of(self.cursor(lane)));
        // After the cursors: who reserves in a sheet that is left finds the number changed.
        self.shared().sheets_left.add(1);
    }

    fn leave_sheet_of(&self, cursor: &W) {
        const SHEET_GRAINS: u32 = (SHEET_BYTES / GRAIN_BYTES) as u32;
        let mut current = cursor.load();
        loop {
            let Run { next, end } = Run::of(current);
            let start = next.next_multiple_of(SHEET_GRAINS).min(end);
            match cursor.swap_if(current, Run { next: start, end }.word()) {
                Ok(()) => {
                    self.finish(Extent { location: Location(next), grains: Grains(start - next) });
                    return;
                }
                Err(found) => current = found,
            }
        }
    }

    /// Whether writers that came before the sheet was left last may still write, other than those that were
    /// given up.
    pub fn has_writers_left(&self) -> bool {
        let Writers { inside, given_up, .. } = Writers::of(self.writers_left().0.add(0));
        inside > given_up
    }

    /// Waits for them no longer: killed, or stopped for long.
    pub fn give_writers_up(&self) {
        let (word, sheet) = self.writers_left();
        let mut current = word.load();
        loop {
            let Writers { inside, .. } = Writers::of(current);
            match word.swap_if(current, Writers { inside, given_up: inside, sheet }.word()) {
                Ok(()) => return,
                Err(found) => current = found,
            }
        }
    }

    /// Where the writers of the sheet that was left last are counted, and its number there.
    fn writers_left(&self) -> (&'m W, u32) {
        let sheet = self.shared().sheets_left.load().wrapping_sub(1);
        (&self.shared().appending[(sheet & 1) as usize], Writers::sheet(sheet))
    }

    /// Sets the cursor, with nobody else there yet.
    pub fn set_cursor(&self, next: u32, end: u32) {
        self.shared().cursor.store(Run { next, end }.word());
    }

    /// Whether the zone lies in a run that is being filled.
    pub(crate) fn is_in_run(&self, zone: ZoneNumber) -> bool {
        let size = self.geometry().zone_grains;
        Lane::ALL.into_iter().any(|lane| {
            let Run { next, end } = Run::of(self.cursor(lane).load());
            next < end && next / size <= zone.0 && zone.0 <= (end - 1) / size
        })
    }

    /// Replaces a lane's run, `current`, which has no room for `grains`. False: there is no space for this
    /// lane. True: there is, or somebody else has just replaced it.
    fn refill(&self, lane: Lane, current: u64, grains: Grains) -> bool {
        let cursor = self.cursor(lane);
        let size = self.geometry().zone_grains;
        let need = grains.0.div_ceil(size);
        let spare = self.spare_zones().saturating_sub(self.kept_from(lane));
        // Of what is kept, no more than is needed.
        let most = if lane == Lane::Common { RUN_ZONES_MAX.max(need) } else { need };
        let taken = if spare < need {
            None
        } else {
            self.take_free(need, most.min(spare)).or_else(|| self.take_new(need, most.min(spare)))
        };
        let Some((first, count)) = taken else {
            // Another may have found the last space.
            return cursor.load() != current;
        };
        let (mut start, end) = (first * size, (first + count) * size);
        let Run { next, end: old_end } = Run::of(current);
        if old_end == start && lane != Lane::Map {
            start = next;
        }
        if cursor.swap_if(current, Run { next: start, end }.word()).is_ok() {
            if start != next {
                self.finish(Extent { location: Location(next), grains: Grains(old_end - next) });
            }
        } else {
            (first..first + count).for_each(|zone| self.give_back(ZoneNumber(zone)));
        }
        true
    }

    fn give_back(&self, zone: ZoneNumber) {
        self.set_zone(zone, Zone::FREE);
        self.shared().free_zones.add(1);
    }

    /// Claims free zones in a row: `need` at least, `most` at most.
    fn take_free(&self, need: u32, most: u32) -> Option<(u32, u32)> {
        if (self.shared().free_zones.load() as i64) < i64::from(need) {
            return None;
        }
        let (known, end) = (self.unknown_zones(), self.zones_end());
        let hint = (self.shared().zone_hint.load() as u32).clamp(known.min(end), end);
        self.take_between(hint..end, need, most).or_else(|| self.take_between(known..end, need, most))
    }

    fn take_between(&self, zones: std::ops::Range<u32>, need: u32, most: u32) -> Option<(u32, u32)> {
        let mut zone = zones.start;
        while zone < zones.end {
            let count = (zone..zones.end.min(zone + most))
                .take_while(|zone| self.zone(ZoneNumber(*zone)).is_free())
                .take_while(|zone| self.claim(ZoneNumber(*zone)))
                .count() as u32;
            if count >= need {
                self.shared().zone_hint.store((zone + count).into());
                return Some((zone, count));
            }
            (zone..zone + count).for_each(|zone| self.give_back(ZoneNumber(zone)));
            zone += count + 1;
        }
        None
    }

    fn claim(&self, zone: ZoneNumber) -> bool {
        let word = self.zone_word(zone).load();
        let is_free = Zone::of(word).is_free();
        let done = is_free && self.zone_word(zone).swap_if(word, Zone::CLAIMED.word()).is_ok();
        if done {
            self.shared().free_zones.add(u64::MAX);
        }
        done
    }

    /// Claims zones past the file's end.
    fn take_new(&self, need: u32, most: u32) -> Option<(u32, u32)> {
        loop {
            let end = self.shared().zones_end.load();
            let left = self.geometry().zones_max.saturating_sub(end as u32);
            let count = need.max(2).min(most).min(left);
            if count < need {
                return None;
            }
            if self.shared().zones_end.swap_if(end, end + u64::from(count)).is_ok() {
                let zones = end as u32..end as u32 + count;
                // Not a mere store: a commit that runs may note what it refers to there, which is nothing.
                zones.for_each(|zone| self.change_zone(ZoneNumber(zone), |_| Zone::CLAIMED));
                return Some((end as u32, count));
            }
        }
    }

    /// Whether nobody writes into the zone, or ever will until it is freed.
    pub fn is_closed(&self, zone: ZoneNumber) -> bool {
        let found = self.zone(zone);
        found.state == ZoneState::Used && found.finished == self.geometry().zone_grains
    }

    /// Records how many grains of the zone a commit refers to.
    pub(crate) fn set_live_grains(&self, zone: ZoneNumber, live: u32) {
        self.change_zone(zone, |found| Zone { live, ..found });
    }

    /// Makes a zone free to be filled again.
    pub fn free_zone(&self, zone: ZoneNumber) {
        self.change_zone(zone, |_| Zone::FREE);
        self.shared().free_zones.add(1);
    }

    /// Takes a free zone away in order to punch it.
    pub(crate) fn begin_punch(&self, zone: ZoneNumber) -> bool {
        let punching = Zone { state: ZoneState::Punching, ..Zone::FREE };
        let done = self.zone_word(zone).swap_if(Zone::FREE.word(), punching.word()).is_ok();
        if done {
            self.shared().free_zones.add(u64::MAX);
        }
        done
    }

    /// Gives a zone back after punching.
    pub(crate) fn end_punch(&self, zone: ZoneNumber, punched: bool) {
        let state = if punched { ZoneState::Hole } else { ZoneState::Free };
        self.set_zone(zone, Zone { state, ..Zone::FREE });
        self.shared().free_zones.add(1);
    }

    fn change_zone(&self, zone: ZoneNumber, change: impl Fn(Zone) -> Zone) {
        let mut current = self.zone_word(zone).load();
        while let Err(found) = self.zone_word(zone).swap_if(current, change(Zone::of(current)).word()) {
            current = found;
        }
    }
}

/// What of the file is referred to.
#[derive(Clone, Default)]
pub(crate) struct Usage {
    /// Grains by zone. More than a zone has, where damaged entries overlap.
    pub used: Vec<u32>,
    /// The first grain behind all of it.
    pub end: u64,
}

impl Usage {
    /// Counts what something refers to.
    pub(crate) fn add(&mut self, extent: Extent, zone_grains: u32) {
        self.end = self.end.max(extent.end());
        for (zone, share) in extent.shares(zone_grains) {
            self.used.resize(self.used.len().max(zone.index() + 1), 0);
            self.used[zone.index()] += share.0;
        }
    }

    /// Grains of the zones up to the end to which nothing refers.
    pub(crate) fn free_grains(&self, zone_grains: u32) -> u64 {
        let zones = self.used.iter().take((self.end / u64::from(zone_grains)) as usize);
        zones.filter(|live| **live == 0).count() as u64 * u64::from(zone_grains)
    }
}
