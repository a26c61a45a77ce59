//! What is wrong with a pack.

use super::{BackupId, PackNumber};

/// A part of a pack, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The first 64 bytes.
    Header,
    /// The list of files and chunks.
    Footer,
    /// The last 64 bytes.
    Trailer,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Part::Header => "header",
            Part::Footer => "footer",
            Part::Trailer => "trailer",
        })
    }
}

/// Why a pack cannot be read. Damage differs from what only a newer release writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that is not what a writer makes.
    #[error("the pack's {part} is damaged: {what}")]
    Damaged {
        /// Where.
        part: Part,
        /// What was found, and what was expected.
        what: &'static str,
    },
    /// Checksums differ.
    #[error("the pack's {part} is damaged: its CRC-32C is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// Where.
        part: Part,
        /// As it was written.
        expected: u32,
        /// Of the bytes that are there.
        found: u32,
    },
    /// Another pack's bytes.
    #[error("found pack {} of backup {found_id}, expected pack {} of backup {expected_id}", found.0, expected.0)]
    Other {
        /// The pack that was asked for.
        expected: PackNumber,
        /// Its backup.
        expected_id: BackupId,
        /// The pack that is there.
        found: PackNumber,
        /// Its backup.
        found_id: BackupId,
    },
    /// A path that no server sends.
    #[error("the pack's footer, file {file}: {reason}")]
    Path {
        /// Index in the footer's list.
        file: usize,
        /// Which rule it breaks.
        reason: crate::Error,
    },
    /// A chunk's entry that contradicts the pack.
    #[error("the pack's footer has a wrong entry for chunk {chunk}: {what}")]
    Chunk {
        /// Index in the footer's list.
        chunk: usize,
        /// What was found, and what was expected.
        what: &'static str,
    },
    /// A version or a feature that another release writes.
    #[error(
        "the pack has {what} {found}, which this version of pgshrink does not support; use another release"
    )]
    Unsupported {
        /// Version or feature.
        what: &'static str,
        /// Its number.
        found: u16,
    },
    /// More than a pack may have.
    #[error("the pack's footer has {found} {what}, the limit is {limit}")]
    Limit {
        /// Bytes, files or chunks.
        what: &'static str,
        /// How many.
        found: u64,
        /// How many may be.
        limit: u64,
    },
}
