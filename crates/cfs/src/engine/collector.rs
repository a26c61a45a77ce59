//! Collection: moving live records out of zones that are mostly dead, and giving space back.
//!
//! A move is an ordinary append and a compare-and-swap against the very record that was copied, so writers
//! are never held up and always win. A zone becomes free with the next commit, as every zone does; nothing is
//! freed here. One call moves a budget's worth of bytes, so that is also the most it can need of new space. A
//! segment that was only appended to has no zone worth moving and costs a look at its map.
//!
//! If nobody collects, or not fast enough, writers do: above a ceiling of dead bytes a write is followed by a
//! small piece of collection. So the file stays below live bytes, ceiling and twice what was written since
//! the last commit. Writers make no commit and wait for nobody.

use crate::device::{Device, Peers};
use crate::engine::container::Container;
use crate::engine::leaves;
use crate::format::entry::Entry;
use crate::format::error::Error;
use crate::format::record::RECORD_BYTES_MAX;
use crate::format::root::{HEAD, Place};
use crate::format::units::{Block, Extent, GRAIN_BYTES, ZoneNumber};
use crate::plant::Plant;
use crate::shared::live::Counter;
use crate::shared::lock::{CollectorGuard, CommitGuard};
use crate::shared::space::{Purpose, ZoneState};
use crate::shared::word::Word;

/// How much one call may do, and when it is worth doing anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Bytes at most to be moved by this call. Pauses between calls make the pace.
    pub bytes: u64,
    /// Dead bytes, in percent of live ones, up to which nothing is moved.
    pub garbage_percent: u32,
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
    /// Dead bytes in zones that are not free.
    pub dead_bytes: u64,
    /// Dead bytes that a commit would free.
    pub freed_by_commit_bytes: u64,
    /// Records that could not be moved because they are damaged. They stay where they are.
    pub damaged_records: u64,
}

impl Collected {
    /// Dead bytes among live ones, which only moving these frees.
    fn movable_bytes(&self) -> u64 {
        self.dead_bytes.saturating_sub(self.freed_by_commit_bytes)
    }
}

struct Usage {
    /// Grains of the records that lie in a zone or reach into it: what emptying it moves at most.
    cost: Vec<u32>,
    /// Zones that may be emptied, the cheapest first.
    victims: Vec<ZoneNumber>,
    found: Collected,
}

impl<D: Device, P: Peers, W: Word> Container<'_, D, P, W> {
    /// Moves what lies in the emptiest zones and gives surplus free space back. Does nothing while another
    /// process collects.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the map cannot be completed, [`Error::Device`], [`Error::AddressSpace`] where
    /// nothing is left to move to.
    pub fn collect(&self, budget: Budget) -> Result<Collected, Error> {
        self.check_writable()?;
        let Some(guard) = CollectorGuard::try_lock(self.live.shared(), &self.peers) else {
            return Ok(Collected::default());
        };
        self.complete()?;
        let mut found = self.collect_alone(&guard, budget, 0)?;
        found.punched_bytes = self.punch(found.live_bytes, budget.bytes)?;
        Ok(found)
    }

    /// Empties zones into those that are kept for it, and commits, so that they are free.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Device`] of the collection; as [`commit`](Container::commit).
    pub(crate) fn collect_for_room(&self) -> Result<(), Error> {
        let geometry = &self.options.geometry;
        // Half of what is left of what is kept for it: the copies take less room than what becomes free.
        let left = self.live.spare_zones().saturating_sub(geometry.zones_for_commits());
        let bytes = u64::from(left.min(geometry.zones_for_moves())) * geometry.zone_bytes() / 2;
        let bytes = bytes.max(2 * RECORD_BYTES_MAX as u64);
        if let Some(guard) = CollectorGuard::try_lock(self.live.shared(), &self.peers) {
            self.complete()?;
            match self.collect_alone(&guard, Budget { bytes, garbage_percent: 0 }, 0) {
                // What was moved before is worth the commit.
                Ok(_) | Err(Error::AddressSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        } else {
            // Another process is at it.
            self.peers.relax();
        }
        self.commit_now()
    }

    /// After a write: two words are looked at, and rarely more.
    pub(crate) fn help_if_due(&self) {
        let due = self.live.shared().help_at.load();
        if due == 0 || self.live.used_zones() < due {
            return;
        }
        if self.live.unknown_zones() > 0 {
            // A commit may read leaves of the map; a writer does not.
            self.live.shared().completion_due.store(1);
        } else if let Some(guard) = CollectorGuard::try_lock(self.live.shared(), &self.peers) {
            self.help(&guard);
        }
    }

    /// A piece of collection if there is too much garbage, and when to look again. What fails here fails
    /// where somebody learns of it.
    fn help(&self, guard: &CollectorGuard<'_, W>) {
        let tuning = &self.options.tuning;
        let budget = Budget { bytes: tuning.help_bytes, garbage_percent: tuning.ceiling_percent };
        let done = self.collect_alone(guard, budget, tuning.ceiling_bytes_min);
        let left = match done {
            Ok(found) if found.moved_records == 0 => {
                self.ceiling_bytes(found.live_bytes).saturating_sub(found.movable_bytes())
            }
            Ok(found) => {
                self.live.count(Counter::HelpedBytes, found.moved_bytes);
                tuning.help_bytes / 4
            }
            Err(_) => tuning.help_bytes,
        };
        let next = self.live.used_zones() + left / self.options.geometry.zone_bytes() + 1;
        self.live.shared().help_at.store(next);
    }

    /// Dead bytes from which on writers help.
    fn ceiling_bytes(&self, live_bytes: u64) -> u64 {
        let tuning = &self.options.tuning;
        tuning.ceiling_bytes_min.max(live_bytes * u64::from(tuning.ceiling_percent) / 100)
    }

    /// After a commit, when nothing dead waits for one: used zones from which on writers look.
    pub(crate) fn help_from(&self, live_bytes: u64) -> u64 {
        live_bytes.saturating_add(self.ceiling_bytes(live_bytes)) / self.options.geometry.zone_bytes() + 1
    }

    fn collect_alone(
        &self,
        _: &CollectorGuard<'_, W>,
        budget: Budget,
        dead_bytes_min: u64,
    ) -> Result<Collected, Error> {
        let usage = self.usage()?;
        let mut found = usage.found;
        let worth = found.movable_bytes() * 100 > found.live_bytes * u64::from(budget.garbage_percent);
        if worth && found.movable_bytes() >= dead_bytes_min {
            let mut chosen = vec![false; usage.cost.len()];
            let mut bytes = 0;
            for zone in usage.victims {
                bytes += u64::from(usage.cost[zone.index()]) * GRAIN_BYTES as u64;
                if bytes > budget.bytes {
                    break;
                }
                chosen[zone.index()] = true;
            }
            let chosen = Chosen { zones: chosen, zone_grains: self.options.geometry.zone_grains };
            self.move_map(&chosen);
            self.move_pages(&chosen, &mut found)?;
        }
        Ok(found)
    }

    fn usage(&self) -> Result<Usage, Error> {
        let root = self.root_in_memory()?;
        let zones = self.live.zones_end();
        let closed: Vec<bool> = (0..zones).map(|zone| self.live.is_closed(ZoneNumber(zone))).collect();
        let (mut live, mut cost) = (vec![0; zones as usize], vec![0; zones as usize]);
        let mut add = |extent: Extent| {
            for (zone, share) in self.live.shares(extent) {
                if zone.index() < live.len() {
                    live[zone.index()] += share.0;
                    cost[zone.index()] += extent.grains.0;
                }
            }
        };
        add(HEAD);
        self.live.entries(self.pages()).filter_map(|(_, entry)| entry.record_extent()).for_each(&mut add);
        let places = leaves::all().map(|leaf| self.live.leaf_place(leaf)).chain(root.places());
        places.filter_map(Place::extent).for_each(&mut add);
        // A dictionary is large, lives long and is not moved; neither is the head.
        let mut fixed = vec![false; live.len()];
        let dictionaries = root.dictionaries.iter().filter_map(|dictionary| dictionary.place.extent());
        for extent in dictionaries.chain([HEAD]) {
            for (zone, _) in self.live.shares(extent) {
                if let Some(fixed) = fixed.get_mut(zone.index()) {
                    *fixed = true;
                }
            }
        }
        Ok(self.choose(&live, cost, &closed, &fixed))
    }

    fn choose(&self, live: &[u32], cost: Vec<u32>, closed: &[bool], fixed: &[bool]) -> Usage {
        let size = self.options.geometry.zone_grains;
        let mut found = Collected::default();
        let mut victims = Vec::new();
        for (zone, count) in live.iter().enumerate() {
            found.live_bytes += u64::from(*count) * GRAIN_BYTES as u64;
            if !closed[zone] {
                continue;
            }
            let dead = u64::from(size.saturating_sub(*count)) * GRAIN_BYTES as u64;
            found.dead_bytes += dead;
            if *count == 0 {
                found.freed_by_commit_bytes += dead;
            } else if !fixed[zone] && *count <= size / 8 * 7 {
                victims.push(ZoneNumber(zone as u32));
            }
        }
        victims.sort_unstable_by_key(|zone| cost[zone.index()]);
        Usage { cost, victims, found }
    }

    /// Lets the next commit write anew what the map has in these zones.
    fn move_map(&self, chosen: &Chosen) {
        // A commit that runs will be followed by another collection.
        let Some(guard) = CommitGuard::try_lock(self.live.shared(), &self.peers) else { return };
        let shared = self.live.shared();
        for leaf in leaves::all() {
            if self.live.leaf_place(leaf).extent().is_some_and(|extent| chosen.has(extent)) {
                self.live.mark_leaf(leaf, &guard);
                shared.fold_due.store(1);
            }
        }
        if let Ok(root) = self.root_held(&guard) {
            let mut places = root.deltas.iter().chain([&root.index]).filter_map(|place| place.extent());
            if places.any(|extent| chosen.has(extent)) {
                shared.fold_due.store(1);
            }
        }
    }

    fn move_pages(&self, chosen: &Chosen, found: &mut Collected) -> Result<(), Error> {
        let mut buffer = vec![0; RECORD_BYTES_MAX];
        let mut refused = None;
        for block in Block(0).up_to(self.pages()) {
            let original = self.live.entry(block);
            if !original.record_extent().is_some_and(|extent| chosen.has(extent)) {
                continue;
            }
            match self.move_page(block, original, &mut buffer, found) {
                Ok(true) => {
                    let bytes = original.extent().grains.bytes() as u64;
                    found.moved_records += 1;
                    found.moved_bytes += bytes;
                    self.live.count(Counter::MovedBytes, bytes);
                }
                Ok(false) => {}
                // A long record needs zones in a row. A shorter one may still find room.
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
                found.damaged_records += u64::from(self.live.entry(block).clean() == original.clean());
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if self.options.plant.is(Plant::CollectorRaisesVersion) {
            header.version = self.draw_version()?;
        }
        let reserved = self.append(&header, buffer, Purpose::Move, None)?;
        self.device.pause();
        let copy = Entry::record(reserved.extent(), header.version);
        if self.options.plant.is(Plant::CollectorOverwrites) {
            self.live.publish(block, copy);
            return Ok(true);
        }
        Ok(self.live.replace(block, original, copy))
    }

    /// Gives back free zones beyond what is kept for reuse, the last in the file first; of a budget's call no
    /// more than sixteen times what it may move.
    fn punch(&self, live_bytes: u64, budget_bytes: u64) -> Result<u64, Error> {
        let tuning = &self.options.tuning;
        let zone_bytes = self.options.geometry.zone_bytes();
        let keep = tuning.free_bytes_min.max(live_bytes / tuning.free_divisor.max(1)) / zone_bytes;
        let free = |zone: &ZoneNumber| self.live.zone(*zone).state == ZoneState::Free;
        let free: Vec<ZoneNumber> = (0..self.live.zones_end()).map(ZoneNumber).filter(free).collect();
        let mut punched = 0;
        for zone in free.into_iter().skip(keep as usize).rev() {
            if punched >= budget_bytes.saturating_mul(16) {
                break;
            }
            // Claimed, so that no writer is given it while the filesystem takes its blocks away.
            if self.live.begin_punch(zone) {
                let offset = zone.start(self.options.geometry.zone_grains).offset();
                let done = self.device.punch_hole(offset, zone_bytes);
                self.live.end_punch(zone, done.is_ok());
                done.map_err(|source| Error::device("punch", offset, zone_bytes as usize, source))?;
                punched += zone_bytes;
            }
        }
        self.live.count(Counter::PunchedBytes, punched);
        Ok(punched)
    }
}

/// Zones that are to be emptied.
struct Chosen {
    zones: Vec<bool>,
    zone_grains: u32,
}

impl Chosen {
    fn has(&self, extent: Extent) -> bool {
        let is_chosen = |zone: ZoneNumber| self.zones.get(zone.index()).copied().unwrap_or_default();
        extent.shares(self.zone_grains).any(|(zone, _)| is_chosen(zone))
    }
}
