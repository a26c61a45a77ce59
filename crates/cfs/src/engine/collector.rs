//! Collection: moving live records out of extents that are mostly dead, and giving space back.
//!
//! A move is an ordinary append and a compare-and-swap against the very record that was copied, so writers
//! are never held up and always win. An extent becomes free with the next commit, as every extent does;
//! nothing is freed here. One call moves a budget's worth of bytes, so that is also the most it can need of
//! new space. A segment that was only appended to has no extent worth moving and costs a look at its map.
//!
//! If nobody collects, or not fast enough, writers do: above a ceiling of dead bytes a write is followed by a
//! small piece of collection. These pieces make no commit and wait for nobody. What they and all other writes
//! leave behind is free only after a commit: above a limit of dead bytes of every kind a writer waits for
//! others that collect or commit, commits, and collects until there are fewer. So the file stays below live
//! bytes and that limit, however late a commit comes, but for what each process writes before it looks
//! ([`crate::engine::limit`]).

use crate::device::{Device, ProcessTable};
use crate::engine::container::{Container, Scratch, Stored};
use crate::engine::leaves;
use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::error::Error;
use crate::format::record::{Kind, PageKind, RECORD_BYTES_MAX};
use crate::format::root::{HEAD, Place};
use crate::format::units::{Block, DictionaryNumber, ExtentNumber, Span, UNIT_BYTES};
use crate::shared::allocator::{ExtentState, Purpose};
use crate::shared::lock::{CollectorGuard, CommitGuard};
use crate::shared::state::Counter;
use crate::shared::word::Word;

/// How much one call may do, and when it is worth doing anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Bytes at most to be moved by this call. Pauses between calls make the pace.
    pub bytes: u64,
    /// Dead bytes, in percent of live ones, up to which nothing is moved.
    pub garbage_percent: u32,
}

/// Another form of a page that is stored ([`Container::store_anew`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anew {
    /// As of [`Container::write`].
    pub mode: u8,
    /// As of [`Container::write`].
    pub dictionary: DictionaryNumber,
    /// As of [`Container::write`].
    pub payload: Vec<u8>,
}

/// What a call of [`Container::collect`] did, and found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Records moved.
    pub moved_records: u64,
    /// Bytes of them.
    pub moved_bytes: u64,
    /// Bytes given back to the filesystem.
    pub punched_bytes: u64,
    /// Live bytes, map and head included.
    pub live_bytes: u64,
    /// Dead bytes in extents that are not free.
    pub dead_bytes: u64,
    /// Dead bytes that a commit would free.
    pub freed_by_commit_bytes: u64,
    /// Records that could not be moved because they are damaged. They stay where they are.
    pub damaged_records: u64,
}

impl Collected {
    /// Dead bytes among live ones, which only moving these frees.
    pub(crate) fn movable_bytes(&self) -> u64 {
        self.dead_bytes.saturating_sub(self.freed_by_commit_bytes)
    }
}

/// Of so many parts of an extent ...
const FULLEST_OF: u32 = 32;
/// ... so many may be live in one that is worth emptying, ...
pub(crate) const FULL: u32 = 28;
/// ... or so many, where nothing else is to be done.
const NEARLY_FULL: u32 = 30;

/// Bytes at most that a write on a full filesystem gives back before it is tried again.
const ROOM_PUNCH_BYTES: u64 = 4 << 20;

pub(crate) struct Usage {
    /// Units of the records that lie in an extent or reach into it: what emptying it moves at most.
    cost: Vec<u32>,
    /// Extents that may be emptied, the cheapest first.
    victims: Vec<ExtentNumber>,
    pub(crate) found: Collected,
}

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// Moves what lies in the emptiest extents and gives surplus free space back. Does nothing while another
    /// process collects.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the map cannot be completed, [`Error::Device`], [`Error::AddressSpace`] where
    /// nothing is left to move to.
    pub fn collect(&self, budget: Budget) -> Result<Collected, Error> {
        self.collect_up_to(budget, FULL)
    }

    /// As [`collect`](Self::collect), and empties extents too that are nearly full: of a segment that nobody writes
    /// to, where what is moved is moved once.
    ///
    /// # Errors
    /// As it.
    pub fn collect_tightly(&self, budget: Budget) -> Result<Collected, Error> {
        self.collect_up_to(budget, NEARLY_FULL)
    }

    /// Frees the extents that are kept for the next writes. For a segment that nobody writes to, after the last commit: that takes some
    /// for its map.
    pub fn leave_run(&self) {
        self.state.leave_run();
    }

    fn collect_up_to(&self, budget: Budget, fullest: u32) -> Result<Collected, Error> {
        self.check_writable()?;
        let Some(guard) = CollectorGuard::try_lock(self.state.shared(), &self.processes) else {
            return Ok(Collected::default());
        };
        self.complete()?;
        let mut found = self.collect_alone(&guard, budget, fullest, 0)?;
        found.punched_bytes = self.punch(found.live_bytes, budget.bytes)?;
        Ok(found)
    }

    /// Empties extents into those that are kept for it, and commits, so that they are free.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Device`] of the collection; as [`commit`](Container::commit).
    pub(crate) fn collect_for_room(&self) -> Result<(), Error> {
        let geometry = &self.options.geometry;
        // Half of what is left of what is kept for it: the copies take less room than what becomes free.
        let left = self.state.spare_extents().saturating_sub(geometry.extents_for_commits());
        let bytes = u64::from(left.min(geometry.extents_for_moves())) * geometry.extent_bytes() / 2;
        let bytes = bytes.max(2 * RECORD_BYTES_MAX as u64);
        if let Some(guard) = CollectorGuard::try_lock(self.state.shared(), &self.processes) {
            self.complete()?;
            match self.collect_alone(&guard, Budget { bytes, garbage_percent: 0 }, FULL, 0) {
                // What was moved before is worth the commit.
                Ok(_) | Err(Error::AddressSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        } else {
            // Another process is at it.
            self.processes.relax();
        }
        self.commit_now()
    }

    pub(crate) fn collect_alone(
        &self,
        _: &CollectorGuard<'_, W>,
        budget: Budget,
        fullest: u32,
        dead_bytes_min: u64,
    ) -> Result<Collected, Error> {
        let usage = self.usage(fullest)?;
        let mut found = usage.found;
        let worth = found.movable_bytes() * 100 > found.live_bytes * u64::from(budget.garbage_percent);
        if worth && found.movable_bytes() >= dead_bytes_min {
            let mut chosen = vec![false; usage.cost.len()];
            let mut bytes = 0;
            for extent in usage.victims {
                bytes += u64::from(usage.cost[extent.index()]) * UNIT_BYTES as u64;
                if bytes > budget.bytes {
                    break;
                }
                chosen[extent.index()] = true;
            }
            let chosen = Chosen { extents: chosen, extent_units: self.options.geometry.extent_units };
            self.move_map(&chosen);
            self.move_pages(&chosen, &mut found)?;
        }
        Ok(found)
    }

    pub(crate) fn usage(&self, fullest: u32) -> Result<Usage, Error> {
        let root = self.root_in_memory()?;
        let extents = self.state.extents_end();
        let closed: Vec<bool> =
            (0..extents).map(|extent| self.state.is_closed(ExtentNumber(extent))).collect();
        let (mut live, mut cost) = (vec![0; extents as usize], vec![0; extents as usize]);
        let mut add = |span: Span| {
            for (extent, share) in self.state.shares(span) {
                if extent.index() < live.len() {
                    live[extent.index()] += share.0;
                    cost[extent.index()] += span.units.0;
                }
            }
        };
        add(HEAD);
        self.state.entries(self.pages()).filter_map(|(_, entry)| entry.record_span()).for_each(&mut add);
        let places = leaves::all().map(|leaf| self.state.leaf_place(leaf)).chain(root.places());
        places.filter_map(Place::span).for_each(&mut add);
        // A dictionary is large, lives long and is not moved; neither is the head.
        let mut fixed = vec![false; live.len()];
        let dictionaries = root.dictionaries.iter().filter_map(|dictionary| dictionary.place.span());
        for span in dictionaries.chain([HEAD]) {
            for (extent, _) in self.state.shares(span) {
                if let Some(fixed) = fixed.get_mut(extent.index()) {
                    *fixed = true;
                }
            }
        }
        Ok(self.choose(&live, cost, &closed, &fixed, fullest))
    }

    fn choose(&self, live: &[u32], cost: Vec<u32>, closed: &[bool], fixed: &[bool], fullest: u32) -> Usage {
        let size = self.options.geometry.extent_units;
        let mut found = Collected::default();
        let mut victims = Vec::new();
        for (extent, count) in live.iter().enumerate() {
            found.live_bytes += u64::from(*count) * UNIT_BYTES as u64;
            if !closed[extent] {
                continue;
            }
            let dead = u64::from(size.saturating_sub(*count)) * UNIT_BYTES as u64;
            found.dead_bytes += dead;
            if *count == 0 {
                found.freed_by_commit_bytes += dead;
            } else if !fixed[extent] && *count <= size / FULLEST_OF * fullest {
                victims.push(ExtentNumber(extent as u32));
            }
        }
        victims.sort_unstable_by_key(|extent| cost[extent.index()]);
        Usage { cost, victims, found }
    }

    /// Lets the next commit write anew what the map has in these extents.
    fn move_map(&self, chosen: &Chosen) {
        // A commit that runs will be followed by another collection.
        let Some(guard) = CommitGuard::try_lock(self.state.shared(), &self.processes) else { return };
        let shared = self.state.shared();
        for leaf in leaves::all() {
            if self.state.leaf_place(leaf).span().is_some_and(|span| chosen.has(span)) {
                self.state.mark_leaf(leaf, &guard);
                shared.map_checkpoint_due.store(1);
            }
        }
        if let Ok(root) = self.root_held(&guard) {
            let mut places = root.deltas.iter().chain([&root.index]).filter_map(|place| place.span());
            if places.any(|span| chosen.has(span)) {
                shared.map_checkpoint_due.store(1);
            }
        }
    }

    fn move_pages(&self, chosen: &Chosen, found: &mut Collected) -> Result<(), Error> {
        let mut buffer = vec![0; RECORD_BYTES_MAX];
        let mut refused = None;
        for block in Block(0).up_to(self.pages()) {
            let original = self.state.entry(block);
            if !original.record_span().is_some_and(|span| chosen.has(span)) {
                continue;
            }
            match self.move_page(block, original, &mut buffer, found) {
                Ok(true) => {
                    let bytes = original.span().units.bytes() as u64;
                    found.moved_records += 1;
                    found.moved_bytes += bytes;
                    self.state.count(Counter::MovedBytes, bytes);
                    self.processes.after_move();
                }
                Ok(false) => {}
                // A long record needs extents in a row. A shorter one may still find room.
                Err(error @ Error::AddressSpace { .. }) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        refused.filter(|_| found.moved_records == 0).map_or(Ok(()), Err)
    }

    fn move_page(
        &self,
        block: Block,
        original: Entry,
        buffer: &mut Vec<u8>,
        found: &mut Collected,
    ) -> Result<bool, Error> {
        let mut header = match self.read_at(original, block, buffer) {
            Ok(record) => record.header,
            Err(error) if error.is_damage() => {
                // Unless a writer was quicker.
                found.damaged_records += u64::from(self.state.entry(block).clean() == original.clean());
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if self.options.fault.is(Fault::CollectorRaisesVersion) {
            header.version = self.draw_version()?;
        }
        let reserved = self.append(&header, buffer, Purpose::Move, None)?;
        self.device.pause();
        let copy = Entry::record(reserved.span(), header.version);
        if self.options.fault.is(Fault::CollectorOverwrites) {
            self.state.publish(block, copy, &self.processes);
            return Ok(true);
        }
        Ok(self.state.replace(block, original, copy))
    }

    /// Stores a page as `encode` makes of what is stored, unless that says `None` or a writer is quicker: another mode,
    /// dictionary and payload of the same page. An ordinary append and a compare-and-swap, as a collector's move, with
    /// the version of the record that it replaces: it is the same page. False: it is stored as it was. So while another
    /// process collects.
    ///
    /// `encode` is given the block as it is stored, and runs while collection waits.
    ///
    /// # Errors
    /// As of `encode`; [`Error::Damaged`] where the map cannot be completed or the record cannot be read;
    /// [`Error::Device`], of a full disk too; [`Error::AddressSpace`]. The page is what it was.
    pub fn store_anew<E: From<Error>>(
        &self,
        block: u32,
        scratch: &mut Scratch,
        encode: impl FnOnce(Stored<'_>) -> Result<Option<Anew>, E>,
    ) -> Result<bool, E> {
        self.check_writable()?;
        let Some(_guard) = CollectorGuard::try_lock(self.state.shared(), &self.processes) else {
            return Ok(false);
        };
        self.complete()?;
        let block = Block(block);
        if block.0 >= self.pages() {
            return Ok(false);
        }
        let original = self.state.entry(block);
        if original.record_span().is_none() {
            return Ok(false);
        }
        let found = match self.read_at(original, block, &mut scratch.record) {
            Ok(found) => found,
            Err(_) if self.state.entry(block).clean() != original.clean() => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let stored = self.open_payload(&found, &scratch.record, &mut scratch.opened)?;
        let Some(Anew { mode, dictionary, payload }) = encode(stored)? else { return Ok(false) };
        let _inside = match self.state.enter_dictionary(dictionary) {
            Err(Error::DictionaryRetired(_) | Error::DictionaryMissing(_)) => return Ok(false),
            inside => inside?,
        };
        let version = found.header.version;
        let kind = Kind::Page(PageKind { block, mode, dictionary });
        let header = self.build(kind, version, &payload, &mut scratch.record);
        let reserved = self.append(&header, &mut scratch.record, Purpose::Page, None)?;
        self.state.count(Counter::MovedBytes, header.units().bytes() as u64);
        self.device.pause();
        Ok(self.state.replace(block, original, Entry::record(reserved.span(), version)))
    }

    /// Gives back free extents beyond what is kept for reuse, the last in the file first; of a budget's call
    /// no more than sixteen times what it may move.
    pub(crate) fn punch(&self, live_bytes: u64, budget_bytes: u64) -> Result<u64, Error> {
        let tuning = &self.options.tuning;
        let extent_bytes = self.options.geometry.extent_bytes();
        let keep = tuning.free_bytes_min.max(live_bytes / tuning.free_divisor.max(1)) / extent_bytes;
        let free = |extent: &ExtentNumber| self.state.extent(*extent).state == ExtentState::Free;
        let free: Vec<ExtentNumber> = (0..self.state.extents_end()).map(ExtentNumber).filter(free).collect();
        self.punch_extents(free.into_iter().skip(keep as usize).rev(), budget_bytes.saturating_mul(16))
    }

    /// Gives all free extents back: of a segment that nobody writes to. Returns their bytes.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn give_back(&self) -> Result<u64, Error> {
        self.check_writable()?;
        let is_free = |extent: &ExtentNumber| self.state.extent(*extent).state == ExtentState::Free;
        let free = (0..self.state.extents_end()).rev().map(ExtentNumber).filter(is_free);
        self.punch_extents(free, u64::MAX)
    }

    /// Gives free extents to a filesystem that is full, the last in the file first.
    pub(crate) fn punch_for_room(&self) -> Result<(), Error> {
        let is_free = |extent: &ExtentNumber| self.state.extent(*extent).state == ExtentState::Free;
        let free = (0..self.state.extents_end()).rev().map(ExtentNumber).filter(is_free);
        self.punch_extents(free, ROOM_PUNCH_BYTES).map(drop)
    }

    fn punch_extents(
        &self,
        extents: impl Iterator<Item = ExtentNumber>,
        bytes_max: u64,
    ) -> Result<u64, Error> {
        let extent_bytes = self.options.geometry.extent_bytes();
        let mut punched = 0;
        for extent in extents {
            if punched >= bytes_max {
                break;
            }
            // Claimed, so that no writer is given it while the filesystem takes its blocks away.
            if self.state.begin_punch(extent) {
                let offset = extent.start(self.options.geometry.extent_units).offset();
                let done = self.device.punch_hole(offset, extent_bytes);
                self.state.end_punch(extent, done.is_ok());
                done.map_err(|source| Error::device("punch", offset, extent_bytes as usize, source))?;
                punched += extent_bytes;
                self.processes.after_move();
            }
        }
        self.state.count(Counter::PunchedBytes, punched);
        Ok(punched)
    }
}

/// Extents that are to be emptied.
struct Chosen {
    extents: Vec<bool>,
    extent_units: u32,
}

impl Chosen {
    fn has(&self, span: Span) -> bool {
        let is_chosen = |extent: ExtentNumber| self.extents.get(extent.index()).copied().unwrap_or_default();
        span.shares(self.extent_units).any(|(extent, _)| is_chosen(extent))
    }
}
