//! Which leaves of the map are in memory: each is loaded when one of its pages is first looked at.
//!
//! Opening sets the entries that the root and its deltas have; what leaves have stays in the file until a page whose
//! entry is missing is read, or a commit writes the leaf anew. A leaf's entries are one page of memory.
//!
//! * The leaf's record is read and proved without a lock. Then its entries are put, under a lock that is held across no I/O,
//!   where the memory has none: whatever is there is newer. A loader that is killed leaves entries that the next
//!   one finds again.
//! * Below the **load limit** a missing entry may be one that was not loaded; at and above it memory has everything.
//!   A truncation lowers the limit under the loaders' lock before it takes entries away, so no loader brings them back.
//! * A leaf that is not loaded keeps its record: nothing in the zones that were there at opening is freed until the map is
//!   **complete**, and a commit that cannot load a changed leaf leaves it as it is, below what changed.
//! * Writers need no leaf. Each entry's leaf is called *touched* before the entry is set, so that nobody looks at
//!   memory in which nothing is.

use crate::container::Container;
use crate::device::{Device, Peers};
use crate::entry::{Entry, GRAIN_BYTES, grains_of};
use crate::error::{Damage, Error, MAP_LEAF};
use crate::live::{self, Live, Word};
use crate::map::{self, LEAF_ENTRIES, LEAVES_MAX};
use crate::plant::Plant;
use crate::record::Kind;
use crate::root::HEAD_BYTES;
use crate::space::{Zone, ZoneState};

impl<W: Word> Live<'_, W> {
    fn has_bit(&self, bits: usize, leaf: usize) -> bool {
        self.get(bits + leaf / 64) >> (leaf % 64) & 1 == 1
    }

    fn set_bit(&self, bits: usize, leaf: usize) {
        let word = &self.words[bits + leaf / 64];
        let mut current = word.load();
        while current >> (leaf % 64) & 1 == 0 {
            match word.swap_if(current, current | 1 << (leaf % 64)) {
                Ok(()) => return,
                Err(found) => current = found,
            }
        }
    }

    /// Says that entries of the leaf may be in memory. Before the first is.
    pub(crate) fn touch(&self, leaf: usize) {
        self.set_bit(live::LEAVES_TOUCHED, leaf);
    }

    pub fn is_touched(&self, leaf: usize) -> bool {
        self.has_bit(live::LEAVES_TOUCHED, leaf)
    }

    /// Whether memory has all that the leaf's record has to say.
    pub fn is_loaded(&self, leaf: usize) -> bool {
        self.has_bit(live::LEAVES_LOADED, leaf) || (leaf * LEAF_ENTRIES) as u64 >= self.get(live::LOAD_LIMIT)
    }

    pub(crate) fn set_loaded(&self, leaf: usize) {
        self.set_bit(live::LEAVES_LOADED, leaf);
    }

    /// The entries of blocks below `pages`, without those of which none is in memory.
    pub(crate) fn entries(&self, pages: u32) -> impl Iterator<Item = (u32, Entry)> {
        let leaves = (0..Live::<W>::leaves_of(pages)).filter(|leaf| self.is_touched(*leaf));
        leaves.flat_map(move |leaf| {
            let first = (leaf * LEAF_ENTRIES) as u32;
            (first..pages.min(first + LEAF_ENTRIES as u32)).map(|block| (block, self.entry(block)))
        })
    }

    /// Puts a leaf's entries where memory has none. `pause` is where others may come in between.
    pub fn install(&self, leaf: usize, entries: &[Entry], peers: &impl Peers, how: Installing<impl Fn()>) {
        self.lock(live::LOADER, peers);
        if !self.has_bit(live::LEAVES_LOADED, leaf) {
            let limit = how.limit.unwrap_or_else(|| self.get(live::LOAD_LIMIT));
            (how.pause)();
            self.touch(leaf);
            let first = (leaf * LEAF_ENTRIES) as u64;
            for (block, entry) in (first..limit).zip(entries) {
                if how.plant == Plant::LoaderOverwrites {
                    self.set_entry(block as u32, *entry);
                } else {
                    self.set_if_missing(block as u32, *entry);
                }
            }
            (how.pause)();
            self.set_loaded(leaf);
        }
        self.unlock(live::LOADER);
    }

    /// Takes away the entries from block `pages` on, up to `old`. No loader puts any back.
    pub fn cut(&self, pages: u32, old: u32, peers: &impl Peers) {
        self.lock(live::LOADER, peers);
        self.set(live::LOAD_LIMIT, self.get(live::LOAD_LIMIT).min(pages.into()));
        self.unlock(live::LOADER);
        for block in pages..old {
            if self.is_touched(block as usize / LEAF_ENTRIES) {
                self.set_entry(block, Entry::MISSING);
            }
        }
    }

    /// Zones that were there at opening and of which it is not known yet what they hold; 0 if the map is complete.
    pub(crate) fn unknown_zones(&self) -> u32 {
        self.get(live::UNKNOWN_ZONES) as u32
    }
}

/// How a leaf is installed, for tests of it.
#[doc(hidden)]
pub struct Installing<F> {
    pub pause: F,
    pub plant: Plant,
    /// Instead of the limit that holds: a planted bug.
    pub limit: Option<u64>,
}

impl<D: Device, P: Peers, W: Word> Container<'_, D, P, W> {
    /// Loads the leaf of a block whose entry is missing; false: that was not why.
    pub(crate) fn load_for(&self, block: u32) -> Result<bool, Error> {
        let leaf = block as usize / LEAF_ENTRIES;
        if self.live.is_loaded(leaf) || u64::from(block) >= self.live.get(live::LOAD_LIMIT) {
            return Ok(false);
        }
        self.load_leaf(leaf).map(|()| true)
    }

    /// Sees to it that memory has all of a leaf.
    pub(crate) fn load_leaf(&self, leaf: usize) -> Result<(), Error> {
        if self.live.is_loaded(leaf) {
            return Ok(());
        }
        let limit =
            (self.options.plant == Plant::LoaderForgetsTruncation).then(|| self.live.get(live::LOAD_LIMIT));
        match self.read_leaf(leaf) {
            Ok(entries) => {
                let how = Installing { pause: || self.device.pause(), plant: self.options.plant, limit };
                self.live.install(leaf, &entries, &self.peers, how);
                Ok(())
            }
            // Loaded by somebody else, or cut off, its record may be gone.
            Err(_) if self.live.is_loaded(leaf) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn read_leaf(&self, leaf: usize) -> Result<Vec<Entry>, Error> {
        let place = self.live.leaf_place(leaf);
        let first = (leaf * LEAF_ENTRIES) as u32;
        let (offset, length) = (u64::from(place.location) * GRAIN_BYTES as u64, u64::from(place.bytes));
        let damage = |property, expected, found| Damage {
            what: MAP_LEAF,
            block: Some(first),
            offset,
            length,
            property,
            expected,
            found,
        };
        let payload = self.read_map(place, Kind::Leaf, MAP_LEAF).map_err(|error| match error {
            Error::Damaged(damage) => Damage { block: Some(first), ..damage }.into(),
            error => error,
        })?;
        let mut entries = [Entry::MISSING; LEAF_ENTRIES];
        let (_, count) = map::decode_leaf(&payload, &mut entries)
            .filter(|(number, _)| *number == leaf)
            .ok_or_else(|| damage("content", 1, 0))?;
        // Entries that a delta has replaced may refer to what has long been cut off.
        let end = self.live.get(live::LOAD_END);
        let blocks = u64::from(first)..self.live.get(live::LOAD_LIMIT);
        for (block, entry) in blocks.zip(&entries[..count]) {
            let last = u64::from(entry.location()) + u64::from(entry.grains());
            let is_within = last <= end && entry.location() >= grains_of(HEAD_BYTES);
            if entry.is_record() && !is_within && self.live.entry(block as u32).is_missing() {
                return Err(damage("end in grains", end, last).into());
            }
        }
        Ok(entries[..count].to_vec())
    }

    pub(crate) fn load_leaves(&self) -> Result<(), Error> {
        (0..LEAVES_MAX).try_for_each(|leaf| self.load_leaf(leaf))
    }

    pub(crate) fn is_all_loaded(&self) -> bool {
        (0..LEAVES_MAX).all(|leaf| self.live.is_loaded(leaf))
    }

    /// Loads what of the map is not in memory yet. From then on the space that was there at opening is counted, freed and
    /// used again. Commits do so when the file has grown enough.
    pub fn complete(&self) -> Result<(), Error> {
        if self.live.unknown_zones() == 0 {
            return Ok(());
        }
        self.load_leaves()?;
        self.lock_commit();
        let done = self.complete_locked();
        self.live.unlock(live::LOCK);
        done
    }

    /// Whether the next commit is to complete the map: the file grew, in this opening or in several, pages were cut off, space
    /// ran out, or nothing is left to load.
    pub(crate) fn is_completion_due(&self) -> bool {
        let zone_grains = u64::from(self.options.geometry.zone_grains);
        let known_end = self.live.get(live::KNOWN_END);
        let grown = (u64::from(self.live.zones_end()) * zone_grains).saturating_sub(known_end);
        let tuning = &self.options.tuning;
        self.live.unknown_zones() > 0
            && (grown.saturating_mul(tuning.grown_divisor) > known_end
                || grown * GRAIN_BYTES as u64 > tuning.grown_bytes
                || self.live.get(live::COMPLETION_DUE) != 0
                || self.is_all_loaded())
    }

    /// Under the commit lock. Done anew by the next one if it is killed on the way.
    pub(crate) fn complete_locked(&self) -> Result<(), Error> {
        let unknown = self.live.unknown_zones();
        if unknown == 0 {
            return Ok(());
        }
        if self.options.plant != Plant::ReuseBeforeLoaded {
            self.load_leaves()?;
        }
        let (used, _) = self.count_zones(&self.root_in_memory()?, self.pages())?;
        let size = self.options.geometry.zone_grains;
        // Of the last one the words are true already: its rest was filled first.
        for zone in 0..unknown - 1 {
            let live = used.get(zone as usize).copied().unwrap_or_default();
            // The last root may refer to what the live map does not: the next commit frees it.
            let is_free = live == 0 && self.options.read_only;
            let (finished, state) = if is_free { (0, ZoneState::Free) } else { (size, ZoneState::Used) };
            self.live.set_zone(zone, Zone { finished, live, state });
        }
        self.live.set_live_grains(unknown - 1, used.get(unknown as usize - 1).copied().unwrap_or_default());
        self.live.set(live::LIVE_GRAINS, used.iter().map(|live| u64::from(*live)).sum());
        self.live.set(live::UNKNOWN_ZONES, 0);
        Ok(())
    }
}
