//! What can go wrong with a container.

use crate::device::DeviceError;

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
    /// Written by a newer version of the format.
    #[error("container needs {what} {found:#x}, known is {known:#x}")]
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
    /// A page at or past the end was asked for.
    #[error("block {block} is past the end, of {pages} pages")]
    PastEnd {
        /// The block.
        block: u32,
        /// Pages of the segment.
        pages: u32,
    },
    /// A commit's fsync has failed before, or its process died in it, so that nobody knows. What reached the disk is not
    /// known either: nothing can be committed until the container is opened anew and the server has replayed its log.
    #[error(
        "an earlier fsync failed or was never answered; nothing can be committed until the container is opened anew"
    )]
    Poisoned,
    /// The container is sealed with this key and none was given, or another.
    #[error("the container is sealed with key {}", hex(needed))]
    KeyMissing {
        /// The key's id.
        needed: [u8; 16],
    },
    /// The container was opened for reading.
    #[error("the container was opened for reading only")]
    ReadOnly,
    /// The caller's dictionary is not one of the container's.
    #[error("dictionary {0} is not in the container")]
    DictionaryMissing(u8),
    /// The dictionary is to go: pages that need it can be read, none can be written.
    #[error("dictionary {0} is retired: encode the page with another or none")]
    DictionaryRetired(u8),
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

/// What is damaged, where, and by which evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged {what}{}: {property} {} (byte {offset}, {length} bytes)", of(what, *block), wrong(*expected, *found))]
pub struct Damage {
    /// Which kind of thing.
    pub what: &'static str,
    /// The page concerned, where it is one; of a leaf of the map, the first of its pages.
    pub block: Option<u32>,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes concerned.
    pub length: u64,
    /// What was compared.
    pub property: &'static str,
    /// What it should be, as a bound where the property says so; 1 where it is only right or wrong.
    pub expected: u64,
    /// What it is; 0 where it is only right or wrong.
    pub found: u64,
}

impl Error {
    /// Whether stored bytes are damaged, as opposed to unreachable, unknown or wrongly used.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Damaged(_) | Error::Foreign { .. })
    }

    /// Whether the device is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Device { source: DeviceError::NoSpace, .. })
    }

    pub(crate) fn device(operation: &'static str, offset: u64, length: usize, source: DeviceError) -> Error {
        Error::Device { operation, offset, length: length as u64, source }
    }
}

/// How a property is not what it should be: some are right or not, and have no other values.
fn wrong(expected: u64, found: u64) -> String {
    if (expected, found) == (1, 0) {
        "is wrong".to_owned()
    } else {
        format!("should be {expected}, is {found}")
    }
}

/// What a leaf of the map is called where it is damaged.
pub(crate) const MAP_LEAF: &str = "map leaf";

fn of(what: &str, block: Option<u32>) -> String {
    match block {
        Some(first) if what == MAP_LEAF => {
            format!(" of blocks {first} to {}", first + crate::map::LEAF_ENTRIES as u32 - 1)
        }
        Some(block) => format!(" of block {block}"),
        None => String::new(),
    }
}

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
