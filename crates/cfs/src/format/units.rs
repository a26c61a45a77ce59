//! Numbers that must not be taken for one another.

/// The unit of allocation: 16 bytes.
pub const UNIT_BYTES: usize = 16;
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

/// Where something begins in the file, in units; 0 is the first root's and thus no record's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Location(pub u32);

impl Location {
    /// In bytes.
    pub fn offset(self) -> u64 {
        u64::from(self.0) * UNIT_BYTES as u64
    }

    /// The location of a byte offset.
    pub fn of_offset(offset: u64) -> Location {
        debug_assert!(offset.is_multiple_of(UNIT_BYTES as u64) && offset >> 36 == 0);
        Location((offset / UNIT_BYTES as u64) as u32)
    }
}

/// A length in units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Units(pub u32);

impl Units {
    /// That hold so many bytes.
    pub fn holding(bytes: usize) -> Units {
        Units(bytes.div_ceil(UNIT_BYTES) as u32)
    }

    /// In bytes.
    pub fn bytes(self) -> usize {
        self.0 as usize * UNIT_BYTES
    }
}

/// A run of units in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Its first unit.
    pub location: Location,
    /// How many.
    pub units: Units,
}

impl Span {
    /// The first unit behind it.
    pub fn end(self) -> u64 {
        u64::from(self.location.0) + u64::from(self.units.0)
    }

    /// The extents it touches, each with the units that it has there.
    pub fn shares(self, extent_units: u32) -> impl Iterator<Item = (ExtentNumber, Units)> {
        let (mut at, end) = (u64::from(self.location.0), self.end());
        let size = u64::from(extent_units);
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let (extent, share) = (at / size, (end - at).min(size - at % size));
                at += share;
                (ExtentNumber(extent as u32), Units(share as u32))
            })
        })
    }
}

/// Number of an extent, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ExtentNumber(pub u32);

impl ExtentNumber {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Its first unit.
    pub fn start(self, extent_units: u32) -> Location {
        Location(self.0 * extent_units)
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
