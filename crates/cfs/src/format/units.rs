//! Numbers that must not be taken for one another.

/// The unit of allocation: 16 bytes.
pub const GRAIN_BYTES: usize = 16;
/// Blocks at most of a segment: 1 GB.
pub const PAGES_MAX: u32 = 1 << 17;
/// Entries of a leaf of the map: 4 MB of pages.
pub const LEAF_ENTRIES: usize = 512;
/// Leaves at most of a segment.
pub const LEAVES_MAX: usize = PAGES_MAX as usize / LEAF_ENTRIES;
/// Bits of a page's version and of a commit's sequence.
pub const VERSION_BITS: u32 = 44;

/// The container's random name: what its records are bound to.
pub type ContainerId = [u8; 16];

/// Number of a page in its segment, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Block(pub u32);

impl Block {
    /// The leaf of the map that has this block's entry.
    pub fn leaf(self) -> Leaf {
        Leaf(self.0 as usize / LEAF_ENTRIES)
    }

    /// Blocks from this one up to, without, `end`.
    pub fn up_to(self, end: u32) -> impl DoubleEndedIterator<Item = Block> + Clone {
        (self.0..end).map(Block)
    }
}

impl std::fmt::Display for Block {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// Number of a leaf of the map, from 0: block / 512.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Leaf(pub usize);

impl Leaf {
    /// The first block whose entry it has.
    pub fn first(self) -> Block {
        Block((self.0 * LEAF_ENTRIES) as u32)
    }

    /// Its blocks below `pages`.
    pub fn blocks(self, pages: u32) -> impl DoubleEndedIterator<Item = Block> + Clone {
        let first = self.first();
        first.up_to(pages.min(first.0 + LEAF_ENTRIES as u32))
    }
}

/// Where something begins in the file, in grains; 0 is the first root's and thus no record's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Location(pub u32);

impl Location {
    /// In bytes.
    pub fn offset(self) -> u64 {
        u64::from(self.0) * GRAIN_BYTES as u64
    }

    /// The location of a byte offset.
    pub fn of_offset(offset: u64) -> Location {
        debug_assert!(offset.is_multiple_of(GRAIN_BYTES as u64) && offset >> 36 == 0);
        Location((offset / GRAIN_BYTES as u64) as u32)
    }
}

/// A length in grains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Grains(pub u32);

impl Grains {
    /// That hold so many bytes.
    pub fn holding(bytes: usize) -> Grains {
        Grains(bytes.div_ceil(GRAIN_BYTES) as u32)
    }

    /// In bytes.
    pub fn bytes(self) -> usize {
        self.0 as usize * GRAIN_BYTES
    }
}

/// A run of grains in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Its first grain.
    pub location: Location,
    /// How many.
    pub grains: Grains,
}

impl Extent {
    /// The first grain behind it.
    pub fn end(self) -> u64 {
        u64::from(self.location.0) + u64::from(self.grains.0)
    }

    /// The zones it touches, each with the grains that it has there.
    pub fn shares(self, zone_grains: u32) -> impl Iterator<Item = (ZoneNumber, Grains)> {
        let (mut at, end) = (u64::from(self.location.0), self.end());
        let size = u64::from(zone_grains);
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let (zone, share) = (at / size, (end - at).min(size - at % size));
                at += share;
                (ZoneNumber(zone as u32), Grains(share as u32))
            })
        })
    }
}

/// Number of a zone, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ZoneNumber(pub u32);

impl ZoneNumber {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Its first grain.
    pub fn start(self, zone_grains: u32) -> Location {
        Location(self.0 * zone_grains)
    }
}

/// A page's version: a number that no other write in the container's life has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Version(pub u64);

impl Version {
    /// None: the container's life is over, as far as writing goes.
    pub fn plus(self, more: u64) -> Option<Version> {
        self.0.checked_add(more).map(Version).filter(|sum| sum.0 <= 1 << VERSION_BITS)
    }
}

/// Number of a dictionary in its container, from 1; 0 is none. Never given out twice in a container's life.
pub type DictionaryNumber = u16;
