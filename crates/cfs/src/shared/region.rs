//! The memory that a container's processes share: its layout.
//!
//! The caller gives a slice of words, zeroed, made before the first fork; this module gives the words names.
//! Nothing here does I/O.
// The only place where words become a struct.
#![allow(unsafe_code)]

use std::mem::{offset_of, size_of};

use crate::format::error::Error;
use crate::format::root::{DICTIONARIES_MAX, DISK_BLOCK_BYTES, HEAD_BYTES};
use crate::format::units::{LEAF_ENTRIES, LEAVES_MAX, PAGES_MAX};
use crate::shared::word::Word;

/// Units of an extent of a server's files.
pub(crate) const EXTENT_UNITS: u32 = 512;

/// How large a container's shared memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Pages at most of the segment (RELSEG_SIZE), at most [`PAGES_MAX`].
    pub pages_max: u32,
    /// Units of an extent, the unit in which space becomes free: a power of two, a disk block at least.
    pub extent_units: u32,
    /// Extents at most of the file, at most 2^32 units together.
    pub extents_max: u32,
}

impl Geometry {
    /// For a segment of `pages_max` pages: the file may grow to three times the plain size before writers
    /// have to make room, and what is kept for commits and collection comes on top.
    pub fn of(pages_max: u32) -> Geometry {
        let extent_units = EXTENT_UNITS;
        let extents = (u64::from(pages_max) * 512 * 3 / u64::from(extent_units)) as u32 + 64;
        let geometry = Geometry { pages_max, extent_units, extents_max: extents };
        Geometry {
            extents_max: extents + geometry.extents_for_moves() + geometry.extents_for_commits(),
            ..geometry
        }
    }

    /// Words of shared memory, best at the begin of a memory page. Of these are touched: 8 KB at opening, the
    /// 512 entries of each leaf (one page of memory) of which a page is read, written or in a delta, and
    /// those of extents that were written since, or of all once the map is complete.
    pub fn words(&self) -> usize {
        FIXED_WORDS + self.pages_max as usize + self.extents_max as usize
    }

    /// Bytes that the file may have.
    pub(crate) fn bytes_max(&self) -> u64 {
        u64::from(self.extents_max) * self.extent_bytes()
    }

    /// Bytes of an extent.
    pub(crate) fn extent_bytes(&self) -> u64 {
        u64::from(self.extent_units) * crate::format::units::UNIT_BYTES as u64
    }

    /// Bytes at most of the records of a commit of `pages` pages.
    pub(crate) fn commit_bytes_max(&self, pages: u32) -> u64 {
        let leaves = (pages as usize).div_ceil(LEAF_ENTRIES) as u64;
        let per_leaf = LEAF_ENTRIES * 8 + 64 + crate::seal::SEAL_OVERHEAD_MAX;
        (leaves + 2) * (per_leaf.next_multiple_of(crate::format::units::UNIT_BYTES) as u64)
    }

    /// Extents that only commits get: with these any number of commits succeeds, of whatever size. Each leaf
    /// and the index of one map may lie in an extent of its own, and so may those of the next, which is
    /// written beside it; then the first is free.
    pub(crate) fn extents_for_commits(&self) -> u32 {
        let leaves = self.pages_max.div_ceil(LEAF_ENTRIES as u32);
        let leaf_bytes = u64::from(self.pages_max.min(LEAF_ENTRIES as u32)) * 8 + 128;
        let extents_each = leaf_bytes.div_ceil(self.extent_bytes()) as u32;
        // And one that a commit still fills, and one whose last part an opening gives to pages.
        2 * (leaves + 1) * extents_each + 2
    }

    /// Extents that only collection gets beside commits: with these it empties others.
    pub(crate) fn extents_for_moves(&self) -> u32 {
        let record = crate::format::record::RECORD_BYTES_MAX as u64;
        (8 * record).div_ceil(self.extent_bytes()) as u32 + 2
    }

    pub(crate) fn check(&self, words: usize) -> Result<(), Error> {
        let limit = |what, found: u64, allowed: u64| {
            if found <= allowed { Ok(()) } else { Err(Error::Limit { what, found, allowed }) }
        };
        limit("segment size in pages", self.pages_max.into(), PAGES_MAX.into())?;
        limit("extent size in units", self.extent_units.into(), 1 << 13)?;
        limit("file size in units", u64::from(self.extent_units) * u64::from(self.extents_max), 1 << 32)?;
        let (expected, found) = (self.words() as u64, words as u64);
        if !self.extent_units.is_power_of_two() || self.extent_units < 256 {
            return Err(Error::SharedMemory {
                what: "units of an extent, at least,",
                expected: 256,
                found: self.extent_units.into(),
            });
        }
        if found < expected {
            return Err(Error::SharedMemory { what: "words", expected, found });
        }
        // Kept for commits and collection; the roots; two of the longest pages, and a map.
        let extents = |bytes: usize| bytes.div_ceil(self.extent_bytes() as usize) as u32;
        let used = extents(HEAD_BYTES) + 2 * extents(crate::format::record::RECORD_BYTES_MAX) + 2;
        let least = self.extents_for_commits() + self.extents_for_moves() + used;
        if self.extents_max < least {
            let (expected, found) = (least.into(), self.extents_max.into());
            return Err(Error::SharedMemory { what: "extents of the file, at least,", expected, found });
        }
        Ok(())
    }
}

/// The fixed words, by name. Then follow an entry for each page, and a word for each extent.
///
/// Every field is words, so that its bytes are what the slice of words has there.
#[repr(C)]
pub struct Shared<W> {
    /// [`NEW`], [`LOADING`], [`READ_ONLY`] or [`READY`].
    pub state: W,
    /// The container's id, in two words.
    pub container: [W; 2],
    /// Who commits, truncates, or opens.
    pub commit_lock: W,
    /// What the commit lock's holder is in the midst of: [`IDLE`], [`IN_COMMIT`] or [`IN_SYNC`].
    pub unfinished: W,
    /// Not 0: nothing can be committed any more.
    pub poisoned: W,
    /// Pages of the segment, and whether entries above are still to be taken away (`state::Size`).
    pub size: W,
    /// The run that records are appended to: next unit below, end above.
    pub cursor: W,
    /// The same for moved pages and for commits, where there is no more space than what is kept for them
    /// (`allocator::Lane`).
    pub kept_cursors: [W; 2],
    /// Extents that were ever used.
    pub extents_end: W,
    /// The next version to be given out.
    pub next_version: W,
    /// The first one that may not be.
    pub version_limit: W,
    /// Commits begun.
    pub commit_begun: W,
    /// The number of the last commit that is durable.
    pub commit_done: W,
    /// The superblock slot last written.
    pub ring: W,
    /// Used extents from which on a writer looks whether there is too much garbage; 0: never.
    pub foreground_at: W,
    /// Used extents from which on a writer waits until there is less garbage; 0: not yet known.
    pub limit_at: W,
    /// Extents that are free, about: a process between two steps may make it one off.
    pub free_extents: W,
    /// Where to look for a free extent first.
    pub extent_hint: W,
    /// Not 0: the next commit writes changed leaves anew.
    pub map_checkpoint_due: W,
    /// Who collects.
    pub collector_lock: W,
    /// Who puts a leaf's entries into memory.
    pub loader_lock: W,
    /// Units that the last commit refers to.
    pub live_units: W,
    /// How often the cursor left a disk block for a commit's sake.
    pub disk_blocks_left: W,
    /// Writers between their reservation and the end of their write, by the lowest bit of `disk_blocks_left`
    /// when they came, and how many of them a commit has given up waiting for (`allocator::Writers`).
    pub appending: [W; 2],
    /// Entries of blocks from here on were never to be loaded, or were cut off since.
    pub load_limit: W,
    /// The first unit behind all that the root found at opening refers to.
    pub load_end: W,
    /// Extents whose use is not known until the map is complete.
    pub unknown_extents: W,
    /// What the root found at opening says was the end when all space was last known, in units.
    pub known_end: W,
    /// How many units of extents were free then.
    pub known_free: W,
    /// Not 0: the next commit completes the map.
    pub completion_due: W,
    /// Not 0: leaves were unloaded since the map was last complete; then it is one more than the extents that
    /// were in use at that moment.
    pub unloaded_at: W,
    /// Odd while a process takes leaves out of memory. Changes each time.
    pub unloads: W,
    /// The highest number that a dictionary was given.
    pub dictionaries_given: W,
    /// What the base is, and whether its users are to let go (`base::Word`).
    pub base: W,
    /// Writes to the base that are done.
    pub base_writes: W,
    /// How many of these the last fsync of the base was for, at least.
    pub base_synced: W,
    /// How many bases were made since the container was opened.
    pub base_number: W,
    /// What the caller keeps about how pages are written, as in the root.
    pub policy: W,
    /// What is counted (`state::Counter`).
    pub counters: [W; COUNTERS],
    reserved: [W; FIRST_RESERVED],
    /// Leaves that changed since they were written, a bit each.
    pub leaves_changed: [W; LEAF_BITS_WORDS],
    /// Leaves whose record has nothing more to say.
    pub leaves_loaded: [W; LEAF_BITS_WORDS],
    /// Leaves of which an entry may be in memory.
    pub leaves_touched: [W; LEAF_BITS_WORDS],
    /// Leaves of which one ever was.
    pub leaves_ever_touched: [W; LEAF_BITS_WORDS],
    /// Leaves of which an entry was looked at since the last unloading.
    pub leaves_used: [W; LEAF_BITS_WORDS],
    /// Where leaves' records lie (`root::Place`).
    pub leaf_places: [W; LEAVES_MAX],
    /// The last root, not sealed. Who does not hold the commit lock may find it being replaced, and sees so
    /// by its checksum.
    pub image: [W; DISK_BLOCK_BYTES / 8],
    /// Who may write with which dictionary (`gate`).
    pub gates: [W; DICTIONARIES_MAX],
    reserved_end: [W; LAST_RESERVED],
}

pub(crate) const COUNTERS: usize = 12;
const LEAF_BITS_WORDS: usize = LEAVES_MAX / 64;
const NAMED_WORDS: usize = 41;
const FIRST_RESERVED: usize = 64 - NAMED_WORDS - COUNTERS;
const USED_WORDS: usize = 64 + 5 * LEAF_BITS_WORDS + LEAVES_MAX + DISK_BLOCK_BYTES / 8 + DICTIONARIES_MAX;
/// Whole memory pages, so that each leaf's entries begin one too.
pub const FIXED_WORDS: usize = USED_WORDS.next_multiple_of(LEAF_ENTRIES);
const LAST_RESERVED: usize = FIXED_WORDS - USED_WORDS;
const _: () = assert!(size_of::<Shared<u64>>() == FIXED_WORDS * 8);
const _: () = assert!(offset_of!(Shared<u64>, leaves_changed) == 64 * 8);
const _: () = assert!(FIXED_WORDS * 8 == 8192);

/// `Shared::state`: nobody opened it yet.
pub const NEW: u64 = 0;
/// A process is opening it, or died while it was.
pub const LOADING: u64 = 1;
/// Opened for writing.
pub const READY: u64 = 2;
/// Opened for reading only, so far.
pub const READ_ONLY: u64 = 3;

/// `Shared::unfinished`: nothing is.
pub(crate) const IDLE: u64 = 0;
/// A commit was under way.
pub(crate) const IN_COMMIT: u64 = 1;
/// An fsync was under way, with a result that nobody else learns.
pub(crate) const IN_SYNC: u64 = 2;

/// The words of a container by name.
pub struct Region<'m, W> {
    pub shared: &'m Shared<W>,
    pub entries: &'m [W],
    pub extents: &'m [W],
    /// All of them.
    pub words: &'m [W],
}

impl<W> Clone for Region<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Region<'_, W> {}

impl<'m, W: Word> Region<'m, W> {
    /// Over `words`, at least [`Geometry::words`] of them, zeroed before their first use.
    ///
    /// # Errors
    /// [`Error::SharedMemory`] if there are too few words, if the size of an extent does not do, or if there
    /// are too few extents to work in; [`Error::Limit`] if the geometry is larger than the format.
    pub fn over(words: &'m [W], geometry: &Geometry) -> Result<Self, Error> {
        const { assert!(size_of::<Shared<W>>() == FIXED_WORDS * size_of::<W>()) };
        geometry.check(words.len())?;
        let words = &words[..geometry.words()];
        let (fixed, rest) = words.split_at(FIXED_WORDS);
        let (entries, extents) = rest.split_at(geometry.pages_max as usize);
        // SAFETY: `Shared<W>` is repr(C) and has fields of `W` and arrays of `W` alone, so it has the
        // alignment of `W`, and, by the assertion above, no padding: its bytes are those of `FIXED_WORDS`
        // consecutive `W`s, which `fixed` is. The reference lives as long as the slice and is shared, as the
        // slice is.
        let shared = unsafe { &*fixed.as_ptr().cast::<Shared<W>>() };
        Ok(Region { shared, entries, extents, words })
    }
}

impl<W> Shared<W> {
    /// Where a field is among the words, for tests that look at memory from outside.
    pub fn index_of(&self, field: &W) -> usize {
        (std::ptr::from_ref(field).addr() - std::ptr::from_ref(self).addr()) / size_of::<W>()
    }
}
