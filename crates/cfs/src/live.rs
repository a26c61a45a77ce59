//! The live state of a container: words in memory that all processes of a server share.
//!
//! Nothing here does I/O. Everything is an offset into a slice of words that the caller gives, zeroed: memory made
//! before the first fork, in the server. A process may be killed between any two operations; what it leaves behind costs
//! space until the container is opened again, never anything else.
//!
//! * An entry changes by compare-and-swap only, and its dirty mark changes with it.
//! * Space is given out by moving a cursor ([`crate::space`]) and counted as *finished* after the entry that
//!   refers to it is published, so that a zone whose grains are all finished has no writer in it.
//! * The commit lock names its holder. Whoever finds the holder dead takes it over, and sees by `UNFINISHED` that
//!   something was under way.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::Peers;
use crate::entry::Entry;
use crate::error::Error;
use crate::map::{LEAF_ENTRIES, LEAVES_MAX};
use crate::record::PAGES_MAX;
use crate::root::{Place, SHEET_BYTES};

/// A word of shared memory. Implemented for [`AtomicU64`], and by tests for a model checker's.
pub trait Word {
    /// Reads; what was written before the value was stored is seen.
    fn load(&self) -> u64;
    /// Writes; what was written before is seen by who reads the value.
    fn store(&self, value: u64);
    /// Replaces `current` by `new`, or returns what is there.
    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64>;
    /// Adds, and returns what was there.
    fn add(&self, value: u64) -> u64;
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        AtomicU64::store(self, value, Ordering::Release);
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn add(&self, value: u64) -> u64 {
        self.fetch_add(value, Ordering::AcqRel)
    }
}

/// How large a container's live state is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Pages at most of the segment (RELSEG_SIZE), at most [`PAGES_MAX`].
    pub pages_max: u32,
    /// Grains of a zone, the unit in which space becomes free: a power of two, a sheet at least.
    pub zone_grains: u32,
    /// Zones at most of the file, at most 2^32 grains together.
    pub zones_max: u32,
}

impl Geometry {
    /// For a segment of `pages_max` pages: the file may grow to three times the plain size before writers are told that
    /// there is no space.
    pub fn of(pages_max: u32) -> Geometry {
        let zone_grains = 512;
        let zones_max = (u64::from(pages_max) * 512 * 3 / u64::from(zone_grains)) as u32 + 64;
        Geometry { pages_max, zone_grains, zones_max }
    }

    /// Words of shared memory, best at the begin of a memory page. Of these are touched: 8 KB at opening, the 512 entries of each leaf
    /// (one page of memory) of which a page is read, written or in a delta, and those of zones that were written since, or of all
    /// once the map is complete.
    pub fn words(&self) -> usize {
        ENTRIES + self.pages_max as usize + self.zones_max as usize
    }

    fn check(&self, words: usize) -> Result<(), Error> {
        let limit = |what, found: u64, allowed: u64| {
            if found <= allowed { Ok(()) } else { Err(Error::Limit { what, found, allowed }) }
        };
        limit("segment size in pages", self.pages_max.into(), PAGES_MAX.into())?;
        limit("zone size in grains", self.zone_grains.into(), 1 << 13)?;
        limit("file size in grains", u64::from(self.zone_grains) * u64::from(self.zones_max), 1 << 32)?;
        let (expected, found) = (self.words() as u64, words as u64);
        if !self.zone_grains.is_power_of_two() || self.zone_grains < 256 {
            return Err(Error::Limit { what: "zone size", found: self.zone_grains.into(), allowed: 256 });
        }
        if found < expected {
            return Err(Error::SharedMemory { what: "words", expected, found });
        }
        Ok(())
    }
}

// The fixed words.
pub(crate) const STATE: usize = 0;
pub const LOCK: usize = 1;
/// What the lock's holder is in the midst of.
pub(crate) const UNFINISHED: usize = 2;
pub(crate) const POISONED: usize = 3;
pub const PAGES: usize = 5;
/// The run that records are appended to: next grain below, end above.
pub const CURSOR: usize = 6;
/// Zones that were ever used.
pub const ZONES_END: usize = 7;
pub(crate) const NEXT_VERSION: usize = 8;
pub(crate) const VERSION_LIMIT: usize = 9;
pub(crate) const COMMIT_BEGUN: usize = 10;
pub(crate) const COMMIT_DONE: usize = 11;
pub(crate) const RING: usize = 12;
/// Used zones from which on a writer looks whether there is too much garbage; 0: never.
pub(crate) const HELP_AT: usize = 13;
/// A truncation under way: the pages it leaves, plus one, below, those before it above.
pub(crate) const CUTTING: usize = 14;
pub const FREE_ZONES: usize = 15;
pub(crate) const ZONE_HINT: usize = 16;
/// The next commit writes changed leaves anew.
pub(crate) const FOLD: usize = 17;
pub(crate) const COLLECTOR: usize = 18;
pub(crate) const LIVE_GRAINS: usize = 19;
/// How often the cursor left a sheet for a commit's sake.
pub const SHEETS_LEFT: usize = 20;
pub(crate) const COUNTERS: usize = 21;
/// Held by who puts a leaf's entries into memory.
pub const LOADER: usize = 32;
/// Entries of blocks from here on were never to be loaded, or were cut off since.
pub const LOAD_LIMIT: usize = 33;
/// The first grain behind all that the root found at opening refers to.
pub(crate) const LOAD_END: usize = 34;
/// Zones whose use is not known until the map is complete.
pub(crate) const UNKNOWN_ZONES: usize = 35;
/// What the root found at opening says was the end when all space was last known, in grains.
pub(crate) const KNOWN_END: usize = 37;
/// ... and how many grains of zones were free then.
pub(crate) const KNOWN_FREE: usize = 38;
/// The next commit completes the map.
pub(crate) const COMPLETION_DUE: usize = 36;
/// Leaves that changed since they were written, a bit each.
pub(crate) const LEAVES_CHANGED: usize = 40;
/// Leaves whose record has nothing more to say.
pub const LEAVES_LOADED: usize = LEAVES_CHANGED + LEAVES_MAX / 64;
/// Leaves of which an entry may be in memory.
pub const LEAVES_TOUCHED: usize = LEAVES_LOADED + LEAVES_MAX / 64;
pub(crate) const LEAF_PLACES: usize = LEAVES_TOUCHED + LEAVES_MAX / 64;
pub(crate) const IMAGE: usize = LEAF_PLACES + LEAVES_MAX;
/// Who may write with which dictionary (`gate`).
pub const DICTIONARIES: usize = IMAGE + SHEET_BYTES / 8;
/// At the begin of a memory page, as each leaf's entries then are.
pub const ENTRIES: usize = (DICTIONARIES + crate::gate::WORDS).next_multiple_of(LEAF_ENTRIES);

pub(crate) const STATE_LOADING: u64 = 1;
pub(crate) const STATE_READY: u64 = 2;
/// `UNFINISHED`: a commit was under way.
pub(crate) const IN_COMMIT: u64 = 1;
/// `UNFINISHED`: an fsync was under way, with a result that nobody else learns.
pub(crate) const IN_SYNC: u64 = 2;
pub(crate) const IDLE: u64 = 0;

/// The live state, over the caller's words.
#[doc(hidden)]
pub struct Live<'m, W> {
    pub(crate) words: &'m [W],
    pub(crate) geometry: Geometry,
}

impl<W> Clone for Live<'_, W> {
    fn clone(&self) -> Self {
        Live { words: self.words, geometry: self.geometry }
    }
}

impl<'m, W: Word> Live<'m, W> {
    /// Over `words`, at least [`Geometry::words`] of them, zeroed before their first use.
    pub fn new(words: &'m [W], geometry: Geometry) -> Result<Self, Error> {
        geometry.check(words.len())?;
        Ok(Live { words, geometry })
    }

    pub fn get(&self, word: usize) -> u64 {
        self.words[word].load()
    }

    pub fn set(&self, word: usize, value: u64) {
        self.words[word].store(value);
    }

    /// Pages of the segment.
    pub fn pages(&self) -> u32 {
        self.get(PAGES) as u32
    }

    fn entry_word(&self, block: u32) -> &W {
        &self.words[ENTRIES + block as usize]
    }

    pub fn entry(&self, block: u32) -> Entry {
        Entry(self.entry_word(block).load())
    }

    pub fn set_entry(&self, block: u32, entry: Entry) {
        self.touch(block as usize / LEAF_ENTRIES);
        self.entry_word(block).store(entry.0);
    }

    /// What was published meanwhile is newer.
    pub(crate) fn set_if_missing(&self, block: u32, entry: Entry) {
        let _ = self.entry_word(block).swap_if(Entry::MISSING.0, entry.0);
    }

    /// A version that is newer than all given out before. None: the next commit must raise the limit.
    pub fn draw_version(&self) -> Option<u64> {
        // The limit leaves room for every process that comes here before one of them is told.
        let version = self.words[NEXT_VERSION].add(1);
        (version < self.get(VERSION_LIMIT)).then_some(version)
    }

    /// Makes `entry` the page's, marked for the next commit. The old entry's space is found by the next commit.
    ///
    /// Of two writers at the same time the last wins, whatever their versions: tags are too short to tell which is newer
    /// of two versions that may be far apart, and PostgreSQL lets one process write a page at a time.
    pub fn publish(&self, block: u32, entry: Entry) {
        self.touch(block as usize / LEAF_ENTRIES);
        let mut current = self.entry(block);
        while let Err(found) = self.entry_word(block).swap_if(current.0, entry.dirty().0) {
            current = Entry(found);
        }
    }

    /// Makes `copy` the page's entry if it still is `original`; marked for the next commit.
    pub fn replace(&self, block: u32, original: Entry, copy: Entry) -> bool {
        self.entry_word(block).swap_if(original.0, copy.dirty().0).is_ok()
    }

    /// Makes the segment at least `pages` long; pages in between that nobody wrote are empty ones. The caller has
    /// published the last page, if it is not to be empty.
    pub fn grow(&self, pages: u32, version: u64) {
        let mut current = self.get(PAGES);
        while current < u64::from(pages) {
            for block in current as u32..pages {
                self.touch(block as usize / LEAF_ENTRIES);
                // Whoever writes one of these meanwhile has more to say.
                self.set_if_missing(block, Entry::zeros(version).dirty());
            }
            match self.words[PAGES].swap_if(current, pages.into()) {
                Ok(()) => return,
                Err(found) => current = found,
            }
        }
    }

    /// Takes the dirty mark off and returns the entry as it is to be stored, and whether it was marked.
    pub fn take_dirty(&self, block: u32) -> (Entry, bool) {
        let mut current = self.entry(block);
        while current.is_dirty() {
            match self.entry_word(block).swap_if(current.0, current.clean().0) {
                Ok(()) => return (current.clean(), true),
                Err(found) => current = Entry(found),
            }
        }
        (current, false)
    }

    /// Waits for a lock and takes it, from a dead holder too.
    pub fn lock(&self, lock: usize, peers: &impl Peers) {
        while !self.try_lock(lock, peers) {
            peers.relax();
        }
    }

    pub fn try_lock(&self, lock: usize, peers: &impl Peers) -> bool {
        match self.words[lock].swap_if(0, peers.me()) {
            Ok(()) => true,
            Err(holder) if holder == peers.me() || peers.is_alive(holder) => false,
            Err(holder) => self.words[lock].swap_if(holder, peers.me()).is_ok(),
        }
    }

    pub fn unlock(&self, lock: usize) {
        self.set(lock, 0);
    }

    /// Marks a leaf as changed since it was written. Under the commit lock.
    pub(crate) fn mark_leaf(&self, leaf: usize) {
        let word = LEAVES_CHANGED + leaf / 64;
        self.set(word, self.get(word) | 1 << (leaf % 64));
    }

    pub(crate) fn leaf_is_marked(&self, leaf: usize) -> bool {
        self.get(LEAVES_CHANGED + leaf / 64) >> (leaf % 64) & 1 == 1
    }

    pub(crate) fn leaf_place(&self, leaf: usize) -> Place {
        Place::from_word(self.get(LEAF_PLACES + leaf))
    }

    pub(crate) fn set_leaf_place(&self, leaf: usize, place: Place) {
        self.set(LEAF_PLACES + leaf, place.word());
    }

    /// Leaves that a segment of `pages` pages has.
    pub(crate) fn leaves_of(pages: u32) -> usize {
        (pages as usize).div_ceil(LEAF_ENTRIES)
    }

    pub(crate) fn store_image(&self, sheet: &[u8]) {
        for (index, bytes) in sheet.chunks_exact(8).enumerate() {
            self.set(IMAGE + index, crate::root::u64_at(bytes, 0));
        }
    }

    pub(crate) fn image(&self) -> Vec<u8> {
        (0..SHEET_BYTES / 8).flat_map(|index| self.get(IMAGE + index).to_le_bytes()).collect()
    }

    pub(crate) fn count(&self, counter: Counter, amount: u64) {
        self.words[COUNTERS + counter as usize].add(amount);
    }

    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.get(COUNTERS + counter as usize)
    }
}

/// What is counted since the container was opened.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    WrittenBytes,
    MovedBytes,
    MapBytes,
    Commits,
    Folds,
    ReadRetries,
    PunchedBytes,
    Damages,
    HelpedBytes,
}
