//! Packs: objects of a repository that hold the chunks of many files, and say which they are.
//!
//! A pack is written once, front to back, and never changed. Its footer names every chunk in it, so that packs restore in
//! parallel, in any order, without a table of all chunks of the backup. The layout is in `formats/backup.md`.
//!
//! ```text
//!   header (64) | payloads of chunks, side by side | footer: files, chunks | trailer (64)
//! ```
//!
//! This module does not read or write objects, and does not encode chunks. [`PackWriter`] gives the bytes before and after
//! the payloads; [`Trailer`] and [`Footer`] read them again.
//!
//! Invariants:
//! 1. A footer that was read names only payloads that lie side by side between header and footer, in the order of its
//!    chunks, without a gap.
//! 2. Every path in it passed [`BackupPath::new`], and no path is there twice.
//! 3. A flipped bit in header, footer or trailer is found by [`Trailer::read`], [`Footer::read`] or [`check_header`]; one in
//!    a payload by the checksum of its chunk.

mod error;
mod footer;
mod layout;
mod writer;

pub use error::{Error, Part};
pub use footer::{Chunk, ChunkFacts, Footer, PackedFile, Permissions, Trailer, check_header};
pub use layout::{FOOTER_BYTES_MAX, HEADER_BYTES, TRAILER_BYTES, VERSION};
pub use writer::{Ending, Full, PackWriter};

use crate::hex;
use std::fmt;
use std::str::FromStr;

/// Most chunks of a pack.
pub const CHUNKS_MAX: usize = 65_536;
/// Most bytes of a pack's payloads.
pub const PAYLOAD_BYTES_MAX: u32 = 1 << 30;
/// Most raw bytes of a chunk.
pub const CHUNK_BYTES_MAX: u32 = crate::chunk::CHUNK_BYTES_MAX as u32;

/// What tells a backup from all others: 16 random bytes, in every object of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackupId(pub [u8; 16]);

/// What tells a pack from the others of its backup: the attempt that wrote it, and its place among those of the attempt.
///
/// Attempts have numbers of their own, so a writer that is thought to be dead and is not cannot write over a pack of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PackNumber(pub u32);

/// Where a file belongs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Area {
    /// The data directory, tablespaces as `pg_tblspc/OID/…` and WAL as `pg_wal/…`.
    Data,
    /// Files that the server reads from elsewhere: `postgresql.conf` and the like below /etc.
    Configuration,
}

/// BLAKE3 of a chunk's raw bytes: what proves a chunk, and tells equal ones. It takes a third of the time of SHA-256.
///
/// Source: <https://github.com/BLAKE3-team/BLAKE3-specs>, `hash` mode, 256 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blake3(pub [u8; 32]);

/// SHA-256 of a footer, the manifest or a configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

impl Blake3 {
    /// Of a chunk's raw bytes.
    pub fn of(raw: &[u8]) -> Blake3 {
        Blake3(blake3::hash(raw).into())
    }
}

/// 32 hexadecimal digits.
impl FromStr for BackupId {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<BackupId, crate::Error> {
        let malformed = || crate::Error::malformed("backup's id", "32 hexadecimal digits", text.as_bytes());
        hex::decode_array(text.as_bytes()).map(BackupId).ok_or_else(malformed)
    }
}

/// 64 hexadecimal digits.
impl FromStr for Sha256 {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Sha256, crate::Error> {
        let malformed = || crate::Error::malformed("SHA-256", "64 hexadecimal digits", text.as_bytes());
        hex::decode_array(text.as_bytes()).map(Sha256).ok_or_else(malformed)
    }
}

/// Bits of a pack's number that count within an attempt.
const INDEX_BITS: u32 = 20;
/// Packs of an attempt at most.
pub const ATTEMPT_PACKS_MAX: usize = (1 << INDEX_BITS) - 1;
/// Attempts at a backup, at most: the first one and those that resumed it.
pub const ATTEMPTS_MAX: u32 = 1 << (u32::BITS - INDEX_BITS);

impl PackNumber {
    /// The pack that stands at this index from 0 among those of an attempt, from 0 too. `None` above [`ATTEMPTS_MAX`] or
    /// [`ATTEMPT_PACKS_MAX`].
    pub fn new(attempt: u32, index: usize) -> Option<PackNumber> {
        let fits = attempt < ATTEMPTS_MAX && index < ATTEMPT_PACKS_MAX;
        fits.then(|| PackNumber(attempt << INDEX_BITS | (index as u32 + 1)))
    }

    /// Which attempt wrote it, from 0.
    pub fn attempt(self) -> u32 {
        self.0 >> INDEX_BITS
    }

    /// The name of its object, below the backup's name: its number in 8 hexadecimal digits.
    pub fn object_name(self) -> String {
        format!("packs/{:08x}.pack", self.0)
    }

    /// The pack that has this name.
    pub fn of_object_name(name: &str) -> Option<PackNumber> {
        let digits = name.strip_prefix("packs/")?.strip_suffix(".pack")?;
        let number = PackNumber(u32::from_str_radix(digits, 16).ok()?);
        // Other spellings of the same number are no names.
        (number.object_name() == name && number.is_valid()).then_some(number)
    }

    pub(crate) fn is_valid(self) -> bool {
        self.0 & ATTEMPT_PACKS_MAX as u32 != 0
    }
}

impl fmt::Display for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Debug for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Debug for Blake3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}
