//! The shared state of a container: what its processes do to the memory that they share.
//!
//! Nothing here does I/O. A process may be killed between any two operations on a word; what it leaves behind
//! costs space until the container is opened again, never anything else.
//!
//! * An entry changes by compare-and-swap only, and its dirty mark changes with it.
//! * Space is given out by moving a cursor ([`crate::shared::allocator`]) and counted as *finished* after the
//!   entry that refers to it is published **and** lies below the page count, so that a commit that finds a
//!   extent's units all finished finds the entries too.
//! * No record's entry lies at or above the page count (zeros may, of a killed extension), but while a
//!   truncation takes them away; until it has, nothing grows. So neither a killed writer nor a killed
//!   truncation leaves a page that appears later.
//! * Truncation happens with one store, of the page count.

use crate::device::ProcessTable;
use crate::format::entry::Entry;
use crate::format::error::Error;
use crate::format::root::{DISK_BLOCK_BYTES, Place};
use crate::format::units::{Block, ContainerId, LEAF_ENTRIES, Leaf, Version};
use crate::shared::lock::CommitGuard;
use crate::shared::region::{Geometry, Region, Shared};
use crate::shared::word::Word;

/// The shared state, over the caller's words.
#[doc(hidden)]
pub struct SharedState<'m, W> {
    region: Region<'m, W>,
    geometry: Geometry,
}

impl<W> Clone for SharedState<'_, W> {
    fn clone(&self) -> Self {
        SharedState { region: self.region, geometry: self.geometry }
    }
}

/// How many pages there are, and whether entries above are still to be taken away, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub pages: u32,
    /// A truncation has happened and has not taken all entries away.
    pub is_cutting: bool,
}

const CUTTING: u64 = 1 << 32;

impl Size {
    fn of(word: u64) -> Size {
        Size { pages: word as u32, is_cutting: word & CUTTING != 0 }
    }

    fn word(self) -> u64 {
        u64::from(self.pages) | if self.is_cutting { CUTTING } else { 0 }
    }
}

impl<'m, W: Word> SharedState<'m, W> {
    /// Over `words`, at least [`Geometry::words`] of them, zeroed before their first use.
    ///
    /// # Errors
    /// As [`Region::over`].
    pub fn new(words: &'m [W], geometry: Geometry) -> Result<Self, Error> {
        Ok(SharedState { region: Region::over(words, &geometry)?, geometry })
    }

    /// The fixed words by name.
    pub fn shared(&self) -> &'m Shared<W> {
        self.region.shared
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn extent_words(&self) -> &'m [W] {
        self.region.extents
    }

    /// Forgets what an earlier use, or a loader that died, left in the memory.
    pub(crate) fn clear(&self, _: &CommitGuard<'_, W>) {
        let shared = self.shared();
        if shared.state.load() == crate::shared::region::NEW {
            return;
        }
        // To the end: if this process dies on the way, the next one clears the rest.
        shared.state.store(crate::shared::region::LOADING);
        self.zero(&[&shared.commit_lock, &shared.state]);
        shared.state.store(crate::shared::region::NEW);
    }

    /// Zeroes what was touched but for the words that are kept, and reads nothing else: memory that was never
    /// touched is not there. The fixed words last: they say what was, to who does it again after a death.
    pub(crate) fn zero(&self, kept: &[&W]) {
        let clear = |words: &[W]| {
            let is_kept = |word: &W| kept.iter().any(|kept| std::ptr::eq(*kept, word));
            words.iter().filter(|word| !is_kept(word) && word.load() != 0).for_each(|word| word.store(0));
        };
        let leaves = Self::leaves_of(self.geometry.pages_max).zip(self.region.entries.chunks(LEAF_ENTRIES));
        leaves.filter(|(leaf, _)| self.was_touched(*leaf)).for_each(|(_, entries)| clear(entries));
        let used = (self.shared().extents_end.load() as usize).min(self.region.extents.len());
        clear(&self.region.extents[..used]);
        clear(&self.region.words[..crate::shared::region::FIXED_WORDS]);
    }

    /// Whose state this is.
    pub(crate) fn container(&self) -> ContainerId {
        let mut id = [0; 16];
        for (bytes, word) in id.chunks_exact_mut(8).zip(&self.shared().container) {
            bytes.copy_from_slice(&word.load().to_le_bytes());
        }
        id
    }

    pub(crate) fn set_container(&self, id: &ContainerId) {
        for (bytes, word) in id.chunks_exact(8).zip(&self.shared().container) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
        }
    }

    pub(crate) fn size(&self) -> Size {
        Size::of(self.shared().size.load())
    }

    /// Pages of the segment.
    pub fn pages(&self) -> u32 {
        self.size().pages
    }

    /// Sets the page count, with nobody else there yet.
    pub(crate) fn set_pages(&self, pages: u32) {
        self.shared().size.store(Size { pages, is_cutting: false }.word());
    }

    fn entry_word(&self, block: Block) -> &'m W {
        &self.region.entries[block.0 as usize]
    }

    pub fn entry(&self, block: Block) -> Entry {
        Entry(self.entry_word(block).load())
    }

    pub fn set_entry(&self, block: Block, entry: Entry) {
        self.touch(block.leaf());
        self.entry_word(block).store(entry.0);
    }

    /// What was published meanwhile is newer.
    pub(crate) fn set_if_missing(&self, block: Block, entry: Entry) {
        let _ = self.entry_word(block).swap_if(Entry::MISSING.0, entry.0);
    }

    /// A version that is newer than all given out before. None: the next commit must raise the limit.
    pub fn draw_version(&self) -> Option<Version> {
        let version = self.shared().next_version.add(1);
        (version < self.shared().version_limit.load()).then_some(Version(version))
    }

    /// The version that is given out next, or would be if there were one.
    pub(crate) fn next_version(&self) -> Version {
        Version(self.shared().next_version.load())
    }

    /// Lets no version be given out until the next commit, and returns the first that was not.
    pub fn end_versions(&self, _: &CommitGuard<'_, W>) -> Version {
        self.shared().version_limit.store(0);
        // A write to the word, not a mere read: who draws after it sees the limit, and who drew before is
        // counted.
        Version(self.shared().next_version.add(0))
    }

    /// Makes `entry` the page's, marked for the next commit. The old entry's space is found by the next
    /// commit.
    ///
    /// Of two writers at the same time the last wins, whatever their versions: tags are too short to show
    /// which is newer of two versions that may be far apart, and PostgreSQL lets one process write a page at
    /// a time.
    ///
    /// Done again if leaves were unloaded meanwhile: the entry may have gone with the memory of its leaf.
    pub fn publish(&self, block: Block, entry: Entry, processes: &impl ProcessTable) {
        loop {
            let unloads = self.settled_unloads(processes);
            self.touch(block.leaf());
            let mut current = self.entry(block);
            while let Err(found) = self.entry_word(block).swap_if(current.0, entry.dirty().0) {
                current = Entry(found);
            }
            if self.unloads() == unloads {
                return;
            }
        }
    }

    /// Makes `copy` the page's entry if it still is `original`; marked for the next commit. Its caller holds
    /// the collector's lock, so no leaf is unloaded meanwhile.
    pub fn replace(&self, block: Block, original: Entry, copy: Entry) -> bool {
        self.entry_word(block).swap_if(original.0, copy.dirty().0).is_ok()
    }

    /// Puts `entry` in the place of `original` as it is, if that still is there.
    pub(crate) fn replace_clean(&self, block: Block, original: Entry, entry: Entry) -> bool {
        self.entry_word(block).swap_if(original.0, entry.0).is_ok()
    }

    /// Makes the segment at least `pages` long; new pages are empty. False: a truncation is to be ended first
    /// ([`end_cut`](Self::end_cut)).
    ///
    /// Under the loaders' lock: an entry below the end may be missing because its leaf was unloaded, and one
    /// who still takes the segment for shorter would make its page empty.
    pub fn grow(&self, pages: u32, version: Version, processes: &impl ProcessTable) -> bool {
        if self.pages() >= pages {
            return true;
        }
        let _loader = self.lock_loader(processes);
        let mut found = self.size();
        while found.pages < pages {
            if found.is_cutting {
                return false;
            }
            for block in Block(found.pages).up_to(pages) {
                self.touch(block.leaf());
                self.set_if_missing(block, Entry::zeros(version).dirty());
            }
            let grown = Size { pages, is_cutting: false };
            match self.shared().size.swap_if(found.word(), grown.word()) {
                Ok(()) => return true,
                Err(word) => found = Size::of(word),
            }
        }
        true
    }

    /// Takes the dirty mark off and returns the entry as it is to be stored, and whether it was marked.
    pub fn take_dirty(&self, block: Block) -> (Entry, bool) {
        let mut current = self.entry(block);
        while current.is_dirty() {
            match self.entry_word(block).swap_if(current.0, current.clean().0) {
                Ok(()) => return (current.clean(), true),
                Err(found) => current = Entry(found),
            }
        }
        (current, false)
    }

    /// Cuts the segment to `pages` if it is longer. It is cut with the one store; what follows only tidies
    /// up.
    pub fn cut(&self, pages: u32, guard: &CommitGuard<'_, W>, processes: &impl ProcessTable) {
        if pages < self.pages() {
            self.shared().size.store(Size { pages, is_cutting: true }.word());
            // What was cut off may be worth giving back.
            self.shared().completion_due.store(1);
        }
        self.end_cut(guard, processes);
    }

    /// Ends a truncation: takes away what entries there are above the end. No loader puts any back. Done anew
    /// by the next holder of the lock if it is killed on the way.
    pub fn end_cut(&self, _: &CommitGuard<'_, W>, processes: &impl ProcessTable) {
        let Size { pages, is_cutting } = self.size();
        if !is_cutting {
            return;
        }
        {
            let _loader = self.lock_loader(processes);
            let limit = &self.shared().load_limit;
            limit.store(limit.load().min(pages.into()));
        }
        for block in Block(pages).up_to(self.geometry.pages_max) {
            // A process that died may have left an entry in a leaf that was unloaded.
            if self.was_touched(block.leaf()) && self.entry(block) != Entry::MISSING {
                self.entry_word(block).store(Entry::MISSING.0);
            }
        }
        self.set_pages(pages);
    }

    /// Takes away entries above the end that a process has left which was killed before they counted.
    pub(crate) fn clear_entries_above(&self, _: &CommitGuard<'_, W>) {
        let (pages, pages_max) = (self.pages(), self.geometry.pages_max);
        let touched = Self::leaves_of(pages_max).filter(|leaf| self.was_touched(*leaf));
        for block in touched.flat_map(|leaf| leaf.blocks(pages_max)).filter(|block| block.0 >= pages) {
            if self.entry(block) != Entry::MISSING {
                self.entry_word(block).store(Entry::MISSING.0);
            }
        }
    }

    /// A truncation that forgets to take entries away: an injected fault.
    pub(crate) fn cut_and_forget(&self, pages: u32, _: &CommitGuard<'_, W>) {
        self.set_pages(pages.min(self.pages()));
    }

    /// Marks a leaf as changed since it was written.
    pub(crate) fn mark_leaf(&self, leaf: Leaf, _: &CommitGuard<'_, W>) {
        let word = &self.shared().leaves_changed[leaf.0 / 64];
        word.store(word.load() | 1 << (leaf.0 % 64));
    }

    pub(crate) fn leaf_is_marked(&self, leaf: Leaf) -> bool {
        self.shared().leaves_changed[leaf.0 / 64].load() >> (leaf.0 % 64) & 1 == 1
    }

    pub(crate) fn leaf_place(&self, leaf: Leaf) -> Place {
        Place::from_word(self.shared().leaf_places[leaf.0].load())
    }

    pub(crate) fn set_leaf_place(&self, leaf: Leaf, place: Place) {
        self.shared().leaf_places[leaf.0].store(place.word());
    }

    /// Leaves that a segment of `pages` pages has.
    pub(crate) fn leaves_of(pages: u32) -> impl DoubleEndedIterator<Item = Leaf> {
        (0..(pages as usize).div_ceil(LEAF_ENTRIES)).map(Leaf)
    }

    pub(crate) fn store_image(&self, slot: &[u8], _: &CommitGuard<'_, W>) {
        for (word, bytes) in self.shared().image.iter().zip(slot.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
        }
    }

    pub(crate) fn image(&self) -> [u8; DISK_BLOCK_BYTES] {
        let mut slot = [0; DISK_BLOCK_BYTES];
        for (word, bytes) in self.shared().image.iter().zip(slot.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load().to_le_bytes());
        }
        slot
    }

    pub(crate) fn count(&self, counter: Counter, amount: u64) {
        self.shared().counters[counter as usize].add(amount);
    }

    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.shared().counters[counter as usize].load()
    }
}

/// What is counted since the container was opened.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    WrittenBytes,
    MovedBytes,
    MapBytes,
    Commits,
    MapCheckpoints,
    ReadRetries,
    PunchedBytes,
    Damages,
    ForegroundBytes,
    RoomMade,
    WritebackBytes,
}

const _: () = assert!((Counter::WritebackBytes as usize) < crate::shared::region::COUNTERS);
