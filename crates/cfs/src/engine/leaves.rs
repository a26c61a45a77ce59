//! Which leaves of the map are in memory: each is loaded when one of its pages is first looked at.
//!
//! Opening sets the entries that the root and its deltas have; what leaves have stays in the file until a
//! page whose entry is missing is read, or a commit writes the leaf anew. A leaf's entries are one page of
//! memory.
//!
//! * The leaf's record is read and proved without a lock. Then its entries are put, under a lock that is held
//!   across no I/O, where the memory has none: whatever is there is newer. A loader that is killed leaves
//!   entries that the next one finds again.
//! * Below the **load limit** a missing entry may be one that was not loaded; at and above it memory has
//!   everything. A truncation lowers the limit under the loaders' lock before it takes entries away, so no
//!   loader brings them back.
//! * A leaf that is not loaded keeps its record: nothing in the extents that were there at opening is freed
//!   until the map is **complete**, and a commit that cannot load a changed leaf leaves it as it is, below
//!   what changed.
//! * A leaf that is idle can be taken out of memory again ([`unload`](crate::engine::unload)). Then the map is
//!   not complete any more, and the first three rules hold as they do after opening.
//! * Writers need no leaf. Each entry's leaf is called *touched* before the entry is set, so that nobody
//!   looks at memory in which nothing is.

use crate::device::{Device, ProcessTable};
use crate::engine::container::Container;
use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::map;
use crate::format::record::Kind;
use crate::format::root::Place;
use crate::format::units::{Block, ExtentNumber, LEAF_ENTRIES, LEAVES_MAX, Leaf, UNIT_BYTES};
use crate::shared::allocator::{Extent, ExtentState};
use crate::shared::lock::CommitGuard;
use crate::shared::state::SharedState;
use crate::shared::word::Word;

fn has_bit<W: Word>(bits: &[W], leaf: Leaf) -> bool {
    bits[leaf.0 / 64].load() >> (leaf.0 % 64) & 1 == 1
}

fn set_bit<W: Word>(bits: &[W], leaf: Leaf) {
    let word = &bits[leaf.0 / 64];
    let mut current = word.load();
    while current >> (leaf.0 % 64) & 1 == 0 {
        match word.swap_if(current, current | 1 << (leaf.0 % 64)) {
            Ok(()) => return,
            Err(found) => current = found,
        }
    }
}

fn clear_bit<W: Word>(bits: &[W], leaf: Leaf) {
    let word = &bits[leaf.0 / 64];
    let mut current = word.load();
    while let Err(found) = word.swap_if(current, current & !(1 << (leaf.0 % 64))) {
        current = found;
    }
}

/// All leaves that a map can have.
pub(crate) fn all() -> impl Iterator<Item = Leaf> {
    (0..LEAVES_MAX).map(Leaf)
}

impl<'m, W: Word> SharedState<'m, W> {
    /// Says that entries of the leaf may be in memory. Before the first is.
    pub(crate) fn touch(&self, leaf: Leaf) {
        set_bit(&self.shared().leaves_ever_touched, leaf);
        set_bit(&self.shared().leaves_touched, leaf);
    }

    pub fn is_touched(&self, leaf: Leaf) -> bool {
        has_bit(&self.shared().leaves_touched, leaf)
    }

    /// Whether an entry of the leaf was ever in memory: after it was unloaded, a process that died may have
    /// left one there.
    pub(crate) fn was_touched(&self, leaf: Leaf) -> bool {
        has_bit(&self.shared().leaves_ever_touched, leaf)
    }

    /// Says that the leaf is not idle.
    pub(crate) fn mark_used(&self, leaf: Leaf) {
        set_bit(&self.shared().leaves_used, leaf);
    }

    /// Whether the leaf was used since this was last asked.
    pub(crate) fn take_used(&self, leaf: Leaf) -> bool {
        let was_used = has_bit(&self.shared().leaves_used, leaf);
        if was_used {
            clear_bit(&self.shared().leaves_used, leaf);
        }
        was_used
    }

    /// Whether memory has all that the leaf's record has to say.
    pub fn is_loaded(&self, leaf: Leaf) -> bool {
        has_bit(&self.shared().leaves_loaded, leaf)
            || u64::from(leaf.first().0) >= self.shared().load_limit.load()
    }

    pub(crate) fn set_loaded(&self, leaf: Leaf) {
        set_bit(&self.shared().leaves_loaded, leaf);
    }

    pub(crate) fn set_unloaded(&self, leaf: Leaf) {
        clear_bit(&self.shared().leaves_loaded, leaf);
    }

    /// Says that no entry of the leaf is in memory.
    pub(crate) fn untouch(&self, leaf: Leaf) {
        clear_bit(&self.shared().leaves_touched, leaf);
    }

    /// The entries of blocks below `pages`, without those of which none is in memory.
    pub(crate) fn entries(&self, pages: u32) -> impl Iterator<Item = (Block, Entry)> {
        let leaves = SharedState::<W>::leaves_of(pages).filter(|leaf| self.is_touched(*leaf));
        leaves.flat_map(move |leaf| leaf.blocks(pages).map(|block| (block, self.entry(block))))
    }

    /// Blocks from here on have no entry in a leaf that is not loaded.
    pub(crate) fn load_limit(&self) -> u32 {
        self.shared().load_limit.load().min(u64::from(crate::format::units::PAGES_MAX)) as u32
    }

    /// Puts a leaf's entries, of the record at `place`, where memory has none. `pause` is where others may
    /// come in between. False: the leaf has another record by now, and may have been loaded and unloaded since.
    pub(crate) fn install(
        &self,
        leaf: Leaf,
        place: Place,
        entries: &[Entry],
        processes: &impl ProcessTable,
        how: Installing<impl Fn()>,
    ) -> bool {
        let _guard = self.lock_loader(processes);
        if has_bit(&self.shared().leaves_loaded, leaf) {
            return true;
        }
        if self.leaf_place(leaf) != place && !how.fault.is(Fault::LoaderTrustsPlace) {
            return false;
        }
        let limit = how.limit.unwrap_or_else(|| self.load_limit());
        (how.pause)();
        self.touch(leaf);
        for (block, entry) in leaf.first().up_to(limit).zip(entries) {
            if how.fault.is(Fault::LoaderOverwrites) {
                self.set_entry(block, *entry);
            } else {
                self.set_if_missing(block, *entry);
            }
        }
        (how.pause)();
        self.set_loaded(leaf);
        true
    }

    /// Extents that were there at opening and of which it is not known yet what they hold; 0 if the map was
    /// complete since.
    pub(crate) fn unknown_extents(&self) -> u32 {
        self.shared().unknown_extents.load() as u32
    }

    /// Whether leaves were unloaded since the map was last complete.
    pub(crate) fn is_unloaded(&self) -> bool {
        self.shared().unloaded_at.load() != 0
    }

    /// Whether all of the map is in memory, so that what extents hold can be counted.
    pub(crate) fn is_complete(&self) -> bool {
        self.unknown_extents() == 0 && !self.is_unloaded()
    }
}

/// How a leaf is installed, for tests of it.
#[doc(hidden)]
pub struct Installing<F> {
    pub pause: F,
    pub fault: Fault,
    /// Instead of the limit that holds: an injected fault.
    pub limit: Option<u32>,
}

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// Loads the leaf of a block whose entry is missing; false: that was not why.
    ///
    /// # Errors
    /// As [`load_leaf`](Self::load_leaf).
    pub(crate) fn load_for(&self, block: Block) -> Result<bool, Error> {
        if self.state.is_loaded(block.leaf()) || block.0 >= self.state.load_limit() {
            return Ok(false);
        }
        self.load_leaf(block.leaf()).map(|()| true)
    }

    /// Sees to it that memory has all of a leaf.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Device`] where its record cannot be read, unless somebody else has
    /// loaded it.
    pub(crate) fn load_leaf(&self, leaf: Leaf) -> Result<(), Error> {
        loop {
            if self.state.is_loaded(leaf) {
                return Ok(());
            }
            let forgets = self.options.fault.is(Fault::LoaderForgetsTruncation);
            let limit = forgets.then(|| self.state.load_limit());
            let place = self.state.leaf_place(leaf);
            match self.read_leaf_at(leaf, place) {
                Ok(entries) => {
                    let how = Installing { pause: || self.device.pause(), fault: self.options.fault, limit };
                    if self.state.install(leaf, place, &entries, &self.processes, how) {
                        return Ok(());
                    }
                }
                // Loaded by somebody else, cut off, or written anew, its record may be gone.
                Err(_) if self.state.is_loaded(leaf) => return Ok(()),
                Err(_) if self.state.leaf_place(leaf) != place => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn read_leaf_at(&self, leaf: Leaf, place: Place) -> Result<Vec<Entry>, Error> {
        let first = leaf.first();
        let (offset, length) = (place.location.offset(), place.bytes.into());
        let damage = |reason| Damage { part: Part::MapLeaf, block: Some(first.0), offset, length, reason };
        let payload = self.read_map(place, Kind::Leaf, Part::MapLeaf).map_err(|error| match error {
            Error::Damaged(damage) => Damage { block: Some(first.0), ..damage }.into(),
            error => error,
        })?;
        let mut entries = [Entry::MISSING; LEAF_ENTRIES];
        let (_, count) = map::decode_leaf(&payload, &mut entries)
            .filter(|(number, _)| *number == leaf)
            .ok_or_else(|| damage(Reason::Content))?;
        // Where entries lead is proved by the records there, page by page.
        Ok(entries[..count].to_vec())
    }

    pub(crate) fn load_leaves(&self) -> Result<(), Error> {
        all().try_for_each(|leaf| self.load_leaf(leaf))
    }

    pub(crate) fn is_all_loaded(&self) -> bool {
        all().all(|leaf| self.state.is_loaded(leaf))
    }

    /// Loads what of the map is not in memory yet. From then on the space that was there at opening is
    /// counted, freed and used again. Commits do so when the file has grown enough.
    ///
    /// # Errors
    /// [`Error::Damaged`] names a leaf that cannot be loaded: then nothing of that space is freed.
    pub fn complete(&self) -> Result<(), Error> {
        if self.state.is_complete() {
            return Ok(());
        }
        self.load_leaves()?;
        let guard = self.lock_commit();
        self.complete_locked(&guard)
    }

    /// Whether the next commit is to complete the map: the file grew, in this opening or in several, pages
    /// were cut off, space ran out, or nothing is left to load.
    pub(crate) fn is_completion_due(&self) -> bool {
        let shared = self.state.shared();
        let known_end = shared.known_end.load();
        let extent_units = u64::from(self.options.geometry.extent_units);
        let behind = (u64::from(self.state.extents_end()) * extent_units).saturating_sub(known_end);
        // Since leaves were unloaded, extents that were free then are filled, too.
        let since = shared.unloaded_at.load().checked_sub(1);
        let filled = since.map_or(0, |then| self.state.used_extents().saturating_sub(then) * extent_units);
        let grown = behind.max(filled);
        let tuning = &self.options.tuning;
        !self.state.is_complete()
            && (grown.saturating_mul(tuning.grown_divisor) > known_end
                || grown * UNIT_BYTES as u64 > tuning.grown_bytes
                || shared.completion_due.load() != 0
                || self.is_all_loaded())
    }

    /// Done anew by the next one if it is killed on the way.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub(crate) fn complete_locked(&self, guard: &CommitGuard<'_, W>) -> Result<(), Error> {
        if self.state.is_complete() {
            return Ok(());
        }
        if !self.options.fault.is(Fault::ReuseBeforeLoaded) {
            self.load_leaves()?;
        }
        let usage = self.count_extents(&self.root_held(guard)?, self.pages());
        let size = self.options.geometry.extent_units;
        let shared = self.state.shared();
        shared.live_units.store(usage.used.iter().map(|live| u64::from(*live)).sum());
        // What the words of the others say is true, or the commit's to count.
        shared.unloaded_at.store(0);
        let Some(last) = self.state.unknown_extents().checked_sub(1) else { return Ok(()) };
        // Damaged entries may overlap.
        let live_of = |extent: u32| usage.used.get(extent as usize).copied().unwrap_or_default().min(size);
        // Of the last one the words are true already: its rest was filled first, and its writers may not have
        // finished.
        for extent in 0..last {
            let live = live_of(extent);
            // The last root may refer to what the map in memory does not: the next commit frees it.
            self.state
                .set_extent(ExtentNumber(extent), Extent { finished: size, live, state: ExtentState::Used });
        }
        self.state.set_live_units(ExtentNumber(last), live_of(last));
        shared.unknown_extents.store(0);
        Ok(())
    }
}
