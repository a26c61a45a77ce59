//! `backup_manifest`: the list of a backup's files, as PostgreSQL writes and checks it.
//!
//! [`Reader`] takes the bytes in pieces of any size and gives the entries one by one; [`Writer`] takes
//! entries one by one and gives the bytes that a server would have written. Both work in memory that does not
//! depend on the number of files.
//!
//! ```text
//! { "PostgreSQL-Backup-Manifest-Version": 2,
//! "System-Identifier": 7512345678901234567,
//! "Files": [
//! { "Path": "backup_label", "Size": 227, "Last-Modified": "2026-11-25 14:39:20 GMT", "Checksum-Algorithm": "CRC32C", "Checksum": "1c291ca3" },
//! ...
//! ],
//! "WAL-Ranges": [
//! { "Timeline": 1, "Start-LSN": "0/2000028", "End-LSN": "0/2000120" }
//! ],
//! "Manifest-Checksum": "SHA-256 of all lines before this one"}
//! ```
//!
//! The sources are `src/common/parse_manifest.c` for reading and `src/backend/backup/backup_manifest.c` for
//! writing. Version 1 is written by PostgreSQL 13 to 16; version 2, with the system identifier, by 17 and
//! later.

mod lexer;
mod reader;
mod writer;

use std::fmt;
use std::str::FromStr;

use crate::checksum::Checksum;
use crate::error::Error;
use crate::path::BackupPath;
use crate::time::ServerTime;
use crate::wal::{Lsn, Timeline};

pub use lexer::STRING_BYTES_MAX;
pub use reader::{Finished, Item, Reader};
pub use writer::{PathEncoding, Writer};

/// What tells clusters apart: chosen by `initdb`, the same on all standbys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SystemIdentifier(pub u64);

impl fmt::Display for SystemIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SystemIdentifier {
    type Err = Error;

    fn from_str(text: &str) -> Result<SystemIdentifier, Error> {
        let found = decimal(text.as_bytes()).map(SystemIdentifier);
        found.ok_or_else(|| Error::malformed("system identifier", "a number of 64 bits", text.as_bytes()))
    }
}

/// One file of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileEntry {
    /// Where it lies.
    pub path: BackupPath,
    /// Its bytes.
    pub size: u64,
    /// When it was last changed, by the clock of the server's host. Servers always say it, readers do not
    /// need it.
    pub last_modified: Option<ServerTime>,
    /// Of its content. [`Checksum::NONE`] when the backup was made without checksums.
    pub checksum: Checksum,
}

/// WAL that a backup needs to become consistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalRange {
    /// Its timeline.
    pub timeline: Timeline,
    /// The first byte.
    pub start: Lsn,
    /// The byte behind the last, not before `start`.
    pub end: Lsn,
}

/// Digits alone, as a number of 64 bits.
fn decimal(digits: &[u8]) -> Option<u64> {
    let text =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}
