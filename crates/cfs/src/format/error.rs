//! What can go wrong with a container.

use crate::device::DeviceError;
use crate::format::key::SegmentKey;
use crate::format::root::{Base, Identity};
use crate::format::units::{ContainerId, DictionaryNumber};

/// Every failure of the storage engine. No message repeats a part of a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed an operation.
    #[error("{operation} of {length} bytes at {offset}: {source}")]
    Device {
        /// The call.
        operation: &'static str,
        /// First byte concerned.
        offset: u64,
        /// Bytes concerned.
        length: u64,
        /// What the device said.
        source: DeviceError,
    },
    /// Stored bytes are not what was stored.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// Not a container at all.
    #[error("not a container: starts with {found:02x?}")]
    Foreign {
        /// The first bytes.
        found: [u8; 8],
    },
    /// Another segment's container in the segment's place.
    #[error("the container belongs to segment {found}, expected segment {expected}")]
    OtherSegment {
        /// The segment whose place it is.
        expected: Identity,
        /// What it says it is.
        found: Identity,
    },
    /// Written by another version of the format.
    #[error("container needs {what} {found:#x}, but this version supports only {known:#x}")]
    Unsupported {
        /// Version or feature bits.
        what: &'static str,
        /// What it needs.
        found: u64,
        /// What this code knows.
        known: u64,
    },
    /// A size or count is over a named limit. Nothing was changed.
    #[error("{what} is {found}, over the limit of {allowed}")]
    Limit {
        /// Which one.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// The container's own addresses are used up: everything below the limit is live, waits for a commit, or
    /// is kept for commits. Writers commit and collect before they report this.
    #[error(
        "no room for {needed} bytes in the container's address space of {limit} bytes: commit, collect and try again"
    )]
    AddressSpace {
        /// Bytes of the record.
        needed: u64,
        /// Bytes that the file may have.
        limit: u64,
    },
    /// A page at or past the end was asked for.
    #[error("block {block} is past the end, of {pages} pages")]
    PastEnd {
        /// The block.
        block: u32,
        /// Pages of the segment.
        pages: u32,
    },
    /// A commit's fsync has failed before, or its process died in it, so that nobody knows; or the commit
    /// lock was taken from a process that lives. What reached the disk is not known either: nothing can be
    /// committed until the container is opened anew and the server has replayed its log.
    #[error(
        "an earlier fsync failed or never returned; nothing can be committed until the container is reopened"
    )]
    Poisoned,
    /// The container is sealed with this key and none was given, or another.
    #[error("the container is encrypted with key {}", hex(needed))]
    KeyMissing {
        /// The key's id.
        needed: [u8; 16],
    },
    /// Pages lie in a plain file beside the container, and it is not there.
    #[error(
        "the plain file base.pgshrink beside the container is missing, but some pages are in it ({}): the \
         container is not opened, so that these pages are not read as empty; restore that file",
        base.text()
    )]
    BaseMissing {
        /// What the root says of it.
        base: Base,
    },
    /// The container was opened for reading.
    #[error("the container was opened for reading only")]
    ReadOnly,
    /// Another server or tool has the container open.
    #[error("the container is in use: another server or pgshrink command holds its lock")]
    InUse,
    /// The file is not the one that the shared memory is of: it was removed and made anew while that lived
    /// on.
    #[error(
        "the file is container {}, but shared memory belongs to container {}: the file was replaced while \
         it was open",
        hex(found),
        hex(expected)
    )]
    OtherContainer {
        /// Whose state the shared memory has.
        expected: ContainerId,
        /// What the file says it is.
        found: ContainerId,
    },
    /// Somebody wrote to the file who does not share the memory.
    #[error(
        "the newest root in the file has sequence {found}, this server's is {expected}: another server wrote to it"
    )]
    ChangedElsewhere {
        /// Sequence of the root in the shared memory.
        expected: u64,
        /// Of the newest whole root in the file.
        found: u64,
    },
    /// The caller's dictionary is not one of the container's.
    #[error("dictionary {0} is not in the container")]
    DictionaryMissing(DictionaryNumber),
    /// The dictionary is to go: pages that need it can be read, none can be written.
    #[error("dictionary {0} is retired: encode the page with another one, or without one")]
    DictionaryRetired(DictionaryNumber),
    /// The handle is of a container that was removed, or whose name another has by now. It stays so: a new
    /// handle is needed.
    #[error("segment {key} was removed or recreated while a process had it open")]
    SegmentGone {
        /// Which.
        key: SegmentKey,
    },
    /// All slots for open segments are taken, and none can be given to another segment.
    #[error(
        "all {limit} slots for open segments are taken: {pinned} are in use, {uncommitted} have uncommitted changes; \
         raise the limit of open segments"
    )]
    SlotsFull {
        /// Segments at most that are open at the same time.
        limit: u32,
        /// Of those looked at: in use by a process.
        pinned: u32,
        /// Of those looked at: not committed, or a commit failed.
        uncommitted: u32,
    },
    /// The shared memory is too small, or of another container.
    #[error("shared memory: {what} is {found}, should be {expected}")]
    SharedMemory {
        /// The property.
        what: &'static str,
        /// What it should be.
        expected: u64,
        /// What it is.
        found: u64,
    },
}

/// Which part of a container is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The record or the entry of a page.
    Page,
    /// A page in the base.
    Base,
    /// A root.
    Root,
    /// A leaf of the map.
    MapLeaf,
    /// The index of the map's leaves.
    MapIndex,
    /// A delta of the map.
    MapDelta,
    /// A dictionary.
    Dictionary,
}

impl Part {
    /// As messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Page => "page",
            Part::Base => "page in the base",
            Part::Root => "root",
            Part::MapLeaf => "map leaf",
            Part::MapIndex => "map index",
            Part::MapDelta => "map delta",
            Part::Dictionary => "dictionary",
        }
    }
}

/// How it is known that something is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The file ends inside.
    #[error("expected {expected} bytes in the file, found {found}")]
    CutOff {
        /// Bytes it should have.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The bytes are not those whose checksum is stored.
    #[error("checksum should be {expected:#010x}, is {found:#010x}")]
    Checksum {
        /// Of the bytes that are there.
        expected: u32,
        /// As stored.
        found: u32,
    },
    /// No record begins so.
    #[error("no record starts there")]
    NoRecord,
    /// No root begins so.
    #[error("no root starts there")]
    NoRoot,
    /// A whole record, of something else.
    #[error("there is a record of another kind")]
    OtherKind,
    /// A whole record of another page.
    #[error("expected block {expected}, found {found}")]
    OtherBlock {
        /// The block that was asked for.
        expected: u32,
        /// The record's.
        found: u32,
    },
    /// A whole record of the page, of another version.
    #[error("expected a version that ends in {expected_tag}, found version {found}")]
    OtherVersion {
        /// Low 21 bits of the version, as the map has them.
        expected_tag: u64,
        /// The record's version.
        found: u64,
    },
    /// A whole record of another length than the map or the root says.
    #[error("expected a record of {expected} bytes, found one of {found} bytes")]
    OtherLength {
        /// As referred to.
        expected: u64,
        /// As found.
        found: u64,
    },
    /// A record of the map from another commit.
    #[error("expected a sequence that ends in {expected_tag}, found sequence {found}")]
    OtherSequence {
        /// Low 11 bits of the sequence, as the root or index has them.
        expected_tag: u64,
        /// The record's sequence.
        found: u64,
    },
    /// A dictionary of another number.
    #[error("expected number {expected}, found {found}")]
    OtherNumber {
        /// As the root has it.
        expected: DictionaryNumber,
        /// As the record has it.
        found: DictionaryNumber,
    },
    /// Later roots than the one that is whole may have been there.
    #[error("only one root is intact, and its map misses newer records of {newer} pages")]
    MayBeOlder {
        /// Pages with newer records.
        newer: u64,
    },
    /// Authentication failed: forged, or sealed with another key.
    #[error("decryption failed: wrong key or changed data")]
    Seal,
    /// The checksum is right and the content is none.
    #[error("the content cannot be decoded")]
    Content,
    /// Bytes that must be zero are not.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// The map has no entry for a page below the end.
    #[error("there is no entry for it")]
    NoEntry,
    /// A number is out of its range.
    #[error("{what} should be at most {limit}, is {found}")]
    Over {
        /// Which number.
        what: &'static str,
        /// Its bound.
        limit: u64,
        /// Its value.
        found: u64,
    },
    /// A number is out of its range.
    #[error("{what} should be at least {limit}, is {found}")]
    Under {
        /// Which number.
        what: &'static str,
        /// Its bound.
        limit: u64,
        /// Its value.
        found: u64,
    },
}

/// What is damaged, where, and by which evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged {}{}: {reason} (byte {offset}, {length} bytes)", part.name(), of(*part, *block))]
pub struct Damage {
    /// Which kind of thing.
    pub part: Part,
    /// The page concerned, where it is one; of a leaf of the map, the first of its pages.
    pub block: Option<u32>,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes concerned.
    pub length: u64,
    /// The evidence.
    pub reason: Reason,
}

impl Error {
    /// Whether stored bytes are damaged, as opposed to unreachable, unknown or wrongly used.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Damaged(_) | Error::Foreign { .. } | Error::OtherSegment { .. })
    }

    /// Whether there is no space, on the device or among the container's addresses.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Device { source: DeviceError::NoSpace, .. } | Error::AddressSpace { .. })
    }

    pub(crate) fn device(operation: &'static str, offset: u64, length: usize, source: DeviceError) -> Error {
        Error::Device { operation, offset, length: length as u64, source }
    }
}

fn of(part: Part, block: Option<u32>) -> String {
    match block {
        Some(first) if part == Part::MapLeaf => {
            format!(" of blocks {first} to {}", first + crate::format::units::LEAF_ENTRIES as u32 - 1)
        }
        Some(block) => format!(" of block {block}"),
        None => String::new(),
    }
}

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
