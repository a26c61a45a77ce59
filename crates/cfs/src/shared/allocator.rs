//! Where records go: a cursor in a run of extents, and what makes an extent free.
//!
//! An extent's word has the units that are *finished* in it (their writer has published or given up), the
//! units of records that the last commit refers to, and a state. An extent is freed by a commit, when it
//! found all its units finished **before** it looked at the map, and no entry that points there: then no
//! entry ever will again. A killed writer leaves an extent unfinished; the next opening counts anew.
//!
//! The last free extents are not everybody's. Pages leave what collection and commits need, collection leaves
//! what commits need: so a segment whose addresses are used up can be committed, collected and, after that,
//! written to again. What is kept is filled apart ([`Lane`]): a page in a commit's extent would keep it from
//! becoming free with the next commit, until nothing is kept any more.

use crate::format::root::DISK_BLOCK_BYTES;
use crate::format::units::{ExtentNumber, Location, Span, UNIT_BYTES, Units};
use crate::shared::state::SharedState;
use crate::shared::word::Word;

const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const STATE_SHIFT: u32 = 40;

/// Extents at most that one run takes, so that one process does not take all that is free.
const RUN_EXTENTS_MAX: u32 = 16;

/// What an extent is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentState {
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

/// An extent's word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub finished: u32,
    pub live: u32,
    pub state: ExtentState,
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
    /// Moved pages, in extents kept for them.
    Moves,
    /// A commit's records, in extents kept for them. Each lies in as few extents as can be: an extent becomes
    /// free with the last that reaches into it.
    Map,
}

impl Lane {
    const ALL: [Lane; 3] = [Lane::Common, Lane::Moves, Lane::Map];
}

/// Space for a record. It counts as finished when this is dropped: the record is published, or given up.
pub struct Reserved<'m, W: Word> {
    state: SharedState<'m, W>,
    span: Span,
}

impl<W: Word> Reserved<'_, W> {
    /// Where.
    pub fn span(&self) -> Span {
        self.span
    }
}

impl<W: Word> Drop for Reserved<'_, W> {
    fn drop(&mut self) {
        self.state.finish(self.span);
    }
}

/// A writer between its reservation and the end of its write. It leaves when this is dropped.
pub struct Appending<'m, W: Word> {
    word: &'m W,
    disk_blocks_left: u64,
}

impl<W: Word> Drop for Appending<'_, W> {
    fn drop(&mut self) {
        let mut current = self.word.load();
        loop {
            match self.word.swap_if(current, Writers::of(current).without(self.disk_blocks_left).word()) {
                Ok(()) => return,
                Err(found) => current = found,
            }
        }
    }
}

/// The writers of every other disk block, in one word.
#[derive(Clone, Copy)]
struct Writers {
    /// Writers that have entered and have not left.
    inside: u32,
    /// Of these, how many a commit no longer waits for.
    given_up: u32,
    /// The last disk block whose writers were given up (`Writers::disk_block`).
    disk_block: u32,
}

/// More writers than a server can have processes.
const WRITERS_BITS: u32 = 20;
const WRITERS_MASK: u64 = (1 << WRITERS_BITS) - 1;
const DISK_BLOCK_MASK: u32 = (1 << (64 - 2 * WRITERS_BITS)) - 1;

impl Writers {
    fn of(word: u64) -> Writers {
        Writers {
            inside: (word & WRITERS_MASK) as u32,
            given_up: (word >> WRITERS_BITS & WRITERS_MASK) as u32,
            disk_block: (word >> (2 * WRITERS_BITS)) as u32,
        }
    }

    fn word(self) -> u64 {
        assert!(u64::from(self.inside) <= WRITERS_MASK, "{} writers", self.inside);
        let counts = u64::from(self.given_up) << WRITERS_BITS | u64::from(self.inside);
        u64::from(self.disk_block & DISK_BLOCK_MASK) << (2 * WRITERS_BITS) | counts
    }

    /// The disk block's number among those whose writers are counted in the same word; it wraps around.
    fn disk_block(disk_blocks_left: u64) -> u32 {
        (disk_blocks_left / 2) as u32 & DISK_BLOCK_MASK
    }

    /// Without one that entered when so many disk blocks had been left. One that was given up and came back
    /// is no longer counted among those that are not waited for.
    fn without(self, disk_blocks_left: u64) -> Writers {
        let behind = self.disk_block.wrapping_sub(Writers::disk_block(disk_blocks_left)) & DISK_BLOCK_MASK;
        let was_given_up = self.given_up > 0 && behind < DISK_BLOCK_MASK / 2;
        Writers { inside: self.inside - 1, given_up: self.given_up - u32::from(was_given_up), ..self }
    }
}

impl Extent {
    pub(crate) const CLAIMED: Extent = Extent { finished: 0, live: 0, state: ExtentState::Used };
    pub(crate) const FREE: Extent = Extent { finished: 0, live: 0, state: ExtentState::Free };

    pub(crate) fn word(self) -> u64 {
        assert!(u64::from(self.finished | self.live) <= COUNT_MASK, "{self:?}");
        u64::from(self.finished) | u64::from(self.live) << COUNT_BITS | (self.state as u64) << STATE_SHIFT
    }

    pub(crate) fn of(word: u64) -> Extent {
        let state = match word >> STATE_SHIFT {
            0 => ExtentState::Unused,
            2 => ExtentState::Free,
            3 => ExtentState::Hole,
            4 => ExtentState::Punching,
            _ => ExtentState::Used,
        };
        let live = (word >> COUNT_BITS & COUNT_MASK) as u32;
        Extent { finished: (word & COUNT_MASK) as u32, live, state }
    }

    fn is_free(self) -> bool {
        matches!(self.state, ExtentState::Free | ExtentState::Hole)
    }
}

/// A run of units to be filled: the next one, and the first behind it.
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

impl<'m, W: Word> SharedState<'m, W> {
    fn extent_word(&self, extent: ExtentNumber) -> &'m W {
        &self.extent_words()[extent.index()]
    }

    pub fn extent(&self, extent: ExtentNumber) -> Extent {
        Extent::of(self.extent_word(extent).load())
    }

    pub fn set_extent(&self, extent: ExtentNumber, value: Extent) {
        self.extent_word(extent).store(value.word());
    }

    pub(crate) fn extents_end(&self) -> u32 {
        self.shared().extents_end.load() as u32
    }

    /// Extents that are free or past the file's end.
    pub(crate) fn spare_extents(&self) -> u32 {
        // A process between two steps may make it one off, and less than none.
        let free = (self.shared().free_extents.load() as i64).max(0) as u32;
        free + self.geometry().extents_max.saturating_sub(self.extents_end())
    }

    /// Whether nothing is left but what is kept for commits and collection.
    pub(crate) fn is_short(&self) -> bool {
        self.spare_extents() <= self.kept_from(Lane::Common)
    }

    /// Extents that are neither free nor holes.
    pub(crate) fn used_extents(&self) -> u64 {
        let free = (self.shared().free_extents.load() as i64).max(0) as u64;
        u64::from(self.extents_end()).saturating_sub(free)
    }

    /// The extents that a span touches, each with the units that it has there.
    pub(crate) fn shares(&self, span: Span) -> impl Iterator<Item = (ExtentNumber, Units)> + use<W> {
        span.shares(self.geometry().extent_units)
    }

    /// Extents that a lane must leave alone.
    fn kept_from(&self, lane: Lane) -> u32 {
        let geometry = self.geometry();
        match lane {
            Lane::Common => geometry.extents_for_commits() + geometry.extents_for_moves(),
            Lane::Moves => geometry.extents_for_commits(),
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
            let disk_blocks_left = shared.disk_blocks_left.load();
            let word = &shared.appending[(disk_blocks_left & 1) as usize];
            word.add(1);
            let appending = Appending { word, disk_blocks_left };
            // A write to the word, not a mere read: either a commit that leaves the disk block afterwards
            // sees this writer, or this one sees that it was left.
            if shared.disk_blocks_left.add(0) == disk_blocks_left {
                return appending;
            }
        }
    }

    /// Whether a commit has left the disk block since this writer came.
    pub fn was_left(&self, appending: &Appending<'_, W>) -> bool {
        self.shared().disk_blocks_left.load() != appending.disk_blocks_left
    }

    /// Space for a record. None: the file may not grow further, or what is left is not for this purpose.
    pub fn reserve(&self, units: Units, purpose: Purpose) -> Option<Reserved<'m, W>> {
        let kept = match purpose {
            Purpose::Page => None,
            Purpose::Move => Some(Lane::Moves),
            Purpose::Map => Some(Lane::Map),
        };
        self.reserve_in(Lane::Common, units).or_else(|| self.reserve_in(kept?, units))
    }

    fn reserve_in(&self, lane: Lane, units: Units) -> Option<Reserved<'m, W>> {
        let cursor = self.cursor(lane);
        loop {
            let current = cursor.load();
            let Run { next, end } = Run::of(current);
            if units.0 <= end - next {
                let rest = Run { next: next + units.0, end };
                if cursor.swap_if(current, rest.word()).is_ok() {
                    let span = Span { location: Location(next), units };
                    return Some(Reserved { state: self.clone(), span });
                }
            } else if !self.refill(lane, current, units) {
                return None;
            }
        }
    }

    /// Says that what was reserved there is written and published, or given up.
    fn finish(&self, span: Span) {
        for (extent, share) in self.shares(span) {
            self.extent_word(extent).add(share.0.into());
        }
    }

    /// Gives up the rest of the disk blocks in which the cursors stand, so that what is written from now on
    /// shares no disk block with what is being made durable. Writers that came before may still write there:
    /// [`has_writers_left`](Self::has_writers_left).
    pub fn leave_disk_block(&self) {
        Lane::ALL.into_iter().for_each(|lane| self.leave_disk_block_of(self.cursor(lane)));
        // After the cursors: who reserves in a disk block that is left finds the number changed.
        self.shared().disk_blocks_left.add(1);
    }

    fn leave_disk_block_of(&self, cursor: &W) {
        const DISK_BLOCK_UNITS: u32 = (DISK_BLOCK_BYTES / UNIT_BYTES) as u32;
        let mut current = cursor.load();
        loop {
            let Run { next, end } = Run::of(current);
            let start = next.next_multiple_of(DISK_BLOCK_UNITS).min(end);
            match cursor.swap_if(current, Run { next: start, end }.word()) {
                Ok(()) => {
                    self.finish(Span { location: Location(next), units: Units(start - next) });
                    return;
                }
                Err(found) => current = found,
            }
        }
    }

    /// Frees the extents of the run that pages are appended to in which nothing was reserved yet.
    pub(crate) fn leave_run(&self) {
        let (cursor, size) = (self.cursor(Lane::Common), self.geometry().extent_units);
        let mut current = cursor.load();
        loop {
            let Run { next, end } = Run::of(current);
            let begun = next.div_ceil(size);
            match cursor.swap_if(current, Run { next, end: end.min(begun * size) }.word()) {
                // They are in no run any more, and nobody can have reserved space there.
                Ok(()) => return (begun..end / size).for_each(|extent| self.give_back(ExtentNumber(extent))),
                Err(found) => current = found,
            }
        }
    }

    /// Whether writers that came before the disk block was left last may still write, other than those that
    /// were given up.
    pub fn has_writers_left(&self) -> bool {
        let Writers { inside, given_up, .. } = Writers::of(self.writers_left().0.add(0));
        inside > given_up
    }

    /// Waits for them no longer: killed, or stopped for long.
    pub fn give_writers_up(&self) {
        let (word, disk_block) = self.writers_left();
        let mut current = word.load();
        loop {
            let Writers { inside, .. } = Writers::of(current);
            match word.swap_if(current, Writers { inside, given_up: inside, disk_block }.word()) {
                Ok(()) => return,
                Err(found) => current = found,
            }
        }
    }

    /// Where the writers of the disk block that was left last are counted, and its number there.
    fn writers_left(&self) -> (&'m W, u32) {
        let disk_block = self.shared().disk_blocks_left.load().wrapping_sub(1);
        (&self.shared().appending[(disk_block & 1) as usize], Writers::disk_block(disk_block))
    }

    /// Sets the cursor, with nobody else there yet.
    pub fn set_cursor(&self, next: u32, end: u32) {
        self.shared().cursor.store(Run { next, end }.word());
    }

    /// Whether the extent lies in a run that is being filled.
    pub(crate) fn is_in_run(&self, extent: ExtentNumber) -> bool {
        let size = self.geometry().extent_units;
        Lane::ALL.into_iter().any(|lane| {
            let Run { next, end } = Run::of(self.cursor(lane).load());
            next < end && next / size <= extent.0 && extent.0 <= (end - 1) / size
        })
    }

    /// Replaces a lane's run, `current`, which has no room for `units`. False: there is no space for this
    /// lane. True: there is, or somebody else has just replaced it.
    fn refill(&self, lane: Lane, current: u64, units: Units) -> bool {
        let cursor = self.cursor(lane);
        let size = self.geometry().extent_units;
        let need = units.0.div_ceil(size);
        let spare = self.spare_extents().saturating_sub(self.kept_from(lane));
        // Of what is kept, no more than is needed.
        let most = if lane == Lane::Common { RUN_EXTENTS_MAX.max(need) } else { need };
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
                self.finish(Span { location: Location(next), units: Units(old_end - next) });
            }
        } else {
            (first..first + count).for_each(|extent| self.give_back(ExtentNumber(extent)));
        }
        true
    }

    fn give_back(&self, extent: ExtentNumber) {
        self.set_extent(extent, Extent::FREE);
        self.shared().free_extents.add(1);
    }

    /// Claims free extents in a row: `need` at least, `most` at most.
    fn take_free(&self, need: u32, most: u32) -> Option<(u32, u32)> {
        if (self.shared().free_extents.load() as i64) < i64::from(need) {
            return None;
        }
        let (known, end) = (self.unknown_extents(), self.extents_end());
        let hint = (self.shared().extent_hint.load() as u32).clamp(known.min(end), end);
        self.take_between(hint..end, need, most).or_else(|| self.take_between(known..end, need, most))
    }

    fn take_between(&self, extents: std::ops::Range<u32>, need: u32, most: u32) -> Option<(u32, u32)> {
        let mut extent = extents.start;
        while extent < extents.end {
            let count = (extent..extents.end.min(extent + most))
                .take_while(|extent| self.extent(ExtentNumber(*extent)).is_free())
                .take_while(|extent| self.claim(ExtentNumber(*extent)))
                .count() as u32;
            if count >= need {
                self.shared().extent_hint.store((extent + count).into());
                return Some((extent, count));
            }
            (extent..extent + count).for_each(|extent| self.give_back(ExtentNumber(extent)));
            extent += count + 1;
        }
        None
    }

    fn claim(&self, extent: ExtentNumber) -> bool {
        let word = self.extent_word(extent).load();
        let is_free = Extent::of(word).is_free();
        let done = is_free && self.extent_word(extent).swap_if(word, Extent::CLAIMED.word()).is_ok();
        if done {
            self.shared().free_extents.add(u64::MAX);
        }
        done
    }

    /// Claims extents past the file's end.
    fn take_new(&self, need: u32, most: u32) -> Option<(u32, u32)> {
        loop {
            let end = self.shared().extents_end.load();
            let left = self.geometry().extents_max.saturating_sub(end as u32);
            let count = need.max(2).min(most).min(left);
            if count < need {
                return None;
            }
            if self.shared().extents_end.swap_if(end, end + u64::from(count)).is_ok() {
                let extents = end as u32..end as u32 + count;
                // Not a mere store: a commit that runs may note what it refers to there, which is nothing.
                extents.for_each(|extent| self.change_extent(ExtentNumber(extent), |_| Extent::CLAIMED));
                return Some((end as u32, count));
            }
        }
    }

    /// Whether nobody writes into the extent, or ever will until it is freed.
    pub fn is_closed(&self, extent: ExtentNumber) -> bool {
        let found = self.extent(extent);
        found.state == ExtentState::Used && found.finished == self.geometry().extent_units
    }

    /// Records how many units of the extent a commit refers to.
    pub(crate) fn set_live_units(&self, extent: ExtentNumber, live: u32) {
        self.change_extent(extent, |found| Extent { live, ..found });
    }

    /// Makes an extent free to be filled again.
    pub fn free_extent(&self, extent: ExtentNumber) {
        self.change_extent(extent, |_| Extent::FREE);
        self.shared().free_extents.add(1);
    }

    /// Takes a free extent away in order to punch it.
    pub(crate) fn begin_punch(&self, extent: ExtentNumber) -> bool {
        let punching = Extent { state: ExtentState::Punching, ..Extent::FREE };
        let done = self.extent_word(extent).swap_if(Extent::FREE.word(), punching.word()).is_ok();
        if done {
            self.shared().free_extents.add(u64::MAX);
        }
        done
    }

    /// Gives an extent back after punching.
    pub(crate) fn end_punch(&self, extent: ExtentNumber, punched: bool) {
        let state = if punched { ExtentState::Hole } else { ExtentState::Free };
        self.set_extent(extent, Extent { state, ..Extent::FREE });
        self.shared().free_extents.add(1);
    }

    fn change_extent(&self, extent: ExtentNumber, change: impl Fn(Extent) -> Extent) {
        let mut current = self.extent_word(extent).load();
        while let Err(found) = self.extent_word(extent).swap_if(current, change(Extent::of(current)).word()) {
            current = found;
        }
    }
}

/// What of the file is referred to.
#[derive(Clone, Default)]
pub(crate) struct Usage {
    /// Units by extent. More than an extent has, where damaged entries overlap.
    pub used: Vec<u32>,
    /// The first unit behind all of it.
    pub end: u64,
}

impl Usage {
    /// Counts what something refers to.
    pub(crate) fn add(&mut self, span: Span, extent_units: u32) {
        self.end = self.end.max(span.end());
        for (extent, share) in span.shares(extent_units) {
            self.used.resize(self.used.len().max(extent.index() + 1), 0);
            self.used[extent.index()] += share.0;
        }
    }

    /// Units of the extents up to the end to which nothing refers.
    pub(crate) fn free_units(&self, extent_units: u32) -> u64 {
        let extents = self.used.iter().take((self.end / u64::from(extent_units)) as usize);
        extents.filter(|live| **live == 0).count() as u64 * u64::from(extent_units)
    }
}
