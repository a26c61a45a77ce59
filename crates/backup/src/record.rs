//! `backup.json`: what a backup is, and which packs it has.
//!
//! It is written when all packs are durable and before the manifest, whose presence says that the backup is whole. The layout is
//! in `formats/backup.md`.
//!
//! The record stands in an envelope with the SHA-256 of its own text, so a damaged record is not taken for another. It names
//! the SHA-256 of the manifest and of every pack's footer; a footer names those of its chunks. So whoever knows the record's
//! SHA-256 can tell whether anything of the backup was changed.

mod configuration;
mod text;

pub use configuration::{Configuration, ConfigurationFile, ConfigurationRole, place};

use crate::chunk::CHUNK_BYTES_MIN;
use crate::error::Error;
use crate::manifest::SystemIdentifier;
use crate::pack::{BackupId, CHUNK_BYTES_MAX, CHUNKS_MAX, PackNumber, Sha256};
use crate::path::BackupPath;
use crate::time::ServerTime;
use crate::wal::{Lsn, Timeline, WalSegmentSize, check_wal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Digest;
use std::collections::HashSet;
use std::fmt;

/// The version that this release writes and reads.
pub const VERSION: u32 = 1;
/// Most bytes of a `backup.json`.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// Most directories of a backup: a cluster has one for each database in each tablespace, and a few more.
pub const DIRECTORIES_MAX: usize = 1 << 20;

/// Most files of WAL of a backup: 4 TiB of it in segments of 16 MiB.
pub const WAL_FILES_MAX: usize = 1 << 18;

/// What a backup is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// In all objects of the backup.
    #[serde(with = "text")]
    pub id: BackupId,
    /// What the user called it.
    pub label: String,
    /// `server_version_num`: 150004 is 15.4.
    pub server_version: u32,
    /// Which cluster it is of.
    #[serde(with = "text")]
    pub system_identifier: SystemIdentifier,
    /// Bytes of a WAL segment.
    pub wal_segment_bytes: u64,
    /// Where WAL begins that is needed.
    #[serde(with = "text")]
    pub start_lsn: Lsn,
    /// The timeline there.
    #[serde(with = "text")]
    pub start_timeline: Timeline,
    /// Where WAL ends that is needed.
    #[serde(with = "text")]
    pub stop_lsn: Lsn,
    /// The timeline there.
    #[serde(with = "text")]
    pub stop_timeline: Timeline,
    /// When it began, by the server's clock.
    #[serde(with = "text")]
    pub start_time: ServerTime,
    /// When it ended, by the server's clock.
    #[serde(with = "text")]
    pub stop_time: ServerTime,
    /// Raw bytes of a chunk but for a file's last.
    pub chunk_bytes: u32,
    /// The server's group may read its files (`initdb --allow-group-access`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group_access: bool,
    /// Tablespaces but `pg_default` and `pg_global`.
    pub tablespaces: Vec<TablespaceRecord>,
    /// Directories below the data directory, each behind the one that it is in.
    #[serde(with = "text::list")]
    pub directories: Vec<BackupPath>,
    /// Files of `pg_wal`, which the manifest does not list.
    #[serde(with = "text::wal")]
    pub wal: Vec<WalFileRecord>,
    /// Files of the data directory, WAL among them.
    pub files: u64,
    /// Their bytes.
    pub raw_bytes: u64,
    /// The packs, by number.
    pub packs: Vec<PackRecord>,
    /// Of `backup_manifest`.
    #[serde(with = "text")]
    pub manifest_sha256: Sha256,
    /// The backup without which this one cannot be restored; none for a full one.
    pub parent: Option<String>,
    /// Where the server has its configuration. None: nobody could or was to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
}

/// A tablespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablespaceRecord {
    /// Its OID: its link is `pg_tblspc/OID`.
    pub oid: u32,
    /// Where it was on the server: an absolute path. What is not UTF-8 in it is `\u{fffd}`; a restore maps it elsewhere.
    pub location: String,
}

/// A WAL segment, or the history of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalFileRecord {
    /// Its path: `pg_wal/` and a name without a slash.
    #[serde(with = "text")]
    pub path: BackupPath,
    /// Its size.
    pub bytes: u64,
}

/// A pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackRecord {
    /// Its number.
    #[serde(with = "text::number")]
    pub number: PackNumber,
    /// Bytes of the object.
    pub bytes: u64,
    /// Of its footer.
    #[serde(with = "text")]
    pub footer_sha256: Sha256,
    /// Chunks that are not part of the backup, by their place in the footer, ascending: an earlier attempt wrote them, and the
    /// file has changed since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<u32>,
}

/// What the file begins with.
const FORMAT: &str = "pgshrink backup";

#[derive(Serialize)]
struct NewEnvelope<'r> {
    format: &'static str,
    version: u32,
    record: &'r RawValue,
    sha256: String,
}

/// Fields that are not known are a newer writer's, whose version is higher.
#[derive(Deserialize)]
struct Envelope<'r> {
    format: String,
    version: u32,
    #[serde(borrow)]
    record: Option<&'r RawValue>,
    sha256: Option<String>,
}

impl Record {
    /// The file's bytes: one line of JSON.
    ///
    /// # Errors
    /// [`Error::Limit`] above [`RECORD_BYTES_MAX`]; what [`Record::read`] would refuse.
    pub fn write(&self) -> Result<Vec<u8>, Error> {
        self.check()?;
        let record = serde_json::value::to_raw_value(self).map_err(|error| not_json(&error))?;
        let sha256 = sha256(record.get()).to_string();
        let envelope = NewEnvelope { format: FORMAT, version: VERSION, record: &record, sha256 };
        let mut bytes = serde_json::to_vec(&envelope).map_err(|error| not_json(&error))?;
        bytes.push(b'\n');
        check_size(bytes.len())?;
        Ok(bytes)
    }

    /// SHA-256 of the record's text: it stands for the whole backup.
    ///
    /// # Errors
    /// What [`Record::write`] would refuse.
    pub fn sha256(&self) -> Result<Sha256, Error> {
        let record = serde_json::value::to_raw_value(self).map_err(|error| not_json(&error))?;
        Ok(sha256(record.get()))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a newer version; [`Error::Limit`]; [`Error::Malformed`] for anything that is not what
    /// [`Record::write`] gives, a flipped bit for example.
    pub fn read(bytes: &[u8]) -> Result<Record, Error> {
        check_size(bytes.len())?;
        let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
            true => Error::Malformed {
                what: WHAT,
                expected: "what pgshrink writes",
                found: format!("a beginning of it: it was cut off after {} bytes", bytes.len()),
            },
            false => not_json(&error),
        })?;
        let refused = |expected, found: &str| Err(Error::malformed(WHAT, expected, found.as_bytes()));
        if envelope.format != FORMAT {
            return refused("the format \"pgshrink backup\"", &envelope.format);
        }
        if envelope.version == 0 {
            return refused("a version from 1", "0");
        }
        if envelope.version > VERSION {
            let found = envelope.version.to_string();
            return Err(Error::Unsupported { what: "the version of backup.json", found, known: "1" });
        }
        let (Some(record), Some(expected)) = (envelope.record, envelope.sha256) else {
            return refused("a record and its sha256", "neither or one of them");
        };
        let found = sha256(record.get());
        if expected.parse() != Ok(found) {
            return refused("a record with the SHA-256 that is stored beside it", &found.to_string());
        }
        let record: Record = serde_json::from_str(record.get()).map_err(|error| not_json(&error))?;
        record.check()?;
        Ok(record)
    }

    /// What a restore relies on.
    fn check(&self) -> Result<(), Error> {
        let refused = |expected, found: &dyn fmt::Display| {
            Err(Error::malformed(WHAT, expected, found.to_string().as_bytes()))
        };
        let size = WalSegmentSize::new(self.wal_segment_bytes)?;
        if !(CHUNK_BYTES_MIN as u32..=CHUNK_BYTES_MAX).contains(&self.chunk_bytes) {
            return refused("chunks of 131072 to 1048576 bytes", &self.chunk_bytes);
        }
        if self.stop_lsn < self.start_lsn || self.stop_timeline < self.start_timeline {
            let found = format!("{} on {}", self.stop_lsn, self.stop_timeline);
            return refused("an end of WAL after its start", &found);
        }
        if self.directories.len() > DIRECTORIES_MAX {
            return refused("at most 1048576 directories", &self.directories.len());
        }
        if self.wal.len() > WAL_FILES_MAX {
            return refused("at most 262144 files of WAL", &self.wal.len());
        }
        if self.packs.len() > PACKS_MAX {
            return refused("at most 1000000 packs", &self.packs.len());
        }
        if self.packs.iter().try_fold(0, |sum: u64, pack| sum.checked_add(pack.bytes)).is_none() {
            return refused("packs with a total size below 2^64 bytes", &"more");
        }
        self.check_packs()?;
        self.configuration.as_ref().map_or(Ok(()), Configuration::check)?;
        let is_wal = |path: &BackupPath| {
            path.as_bytes().strip_prefix(b"pg_wal/").is_some_and(|name| !name.contains(&b'/'))
        };
        if let Some(other) = self.wal.iter().find(|file| !is_wal(&file.path)) {
            return refused("WAL in pg_wal", &other.path);
        }
        let names = self.wal.iter().map(|file| file.path.name());
        check_wal(names, self.start_lsn..self.stop_lsn, self.stop_timeline, size)?;
        let mut known = HashSet::with_capacity(self.tablespaces.len());
        for tablespace in &self.tablespaces {
            if tablespace.oid == 0 || !known.insert(tablespace.oid) {
                return refused("tablespaces with an OID of their own", &tablespace.oid);
            }
            if !tablespace.location.starts_with('/') {
                return refused("tablespaces with an absolute location", &tablespace.location);
            }
        }
        Ok(())
    }
}

impl Record {
    /// Packs are in the order of their numbers, each once, and so are the chunks of a pack that are not used.
    fn check_packs(&self) -> Result<(), Error> {
        let is_ascending = |unused: &[u32]| unused.is_sorted_by(|one, next| one < next);
        let is_good = |pack: &PackRecord| {
            let last = pack.unused.last().copied().unwrap_or(0);
            pack.number.is_valid() && is_ascending(&pack.unused) && (last as usize) < CHUNKS_MAX
        };
        if let Some(pack) = self.packs.iter().find(|pack| !is_good(pack)) {
            let found = pack.number.0.to_string();
            return Err(Error::malformed(WHAT, "packs with a number and ascending chunks", found.as_bytes()));
        }
        match self.packs.windows(2).find(|pair| pair[0].number >= pair[1].number) {
            None => Ok(()),
            Some(pair) => {
                let found = pair[1].number.0.to_string();
                Err(Error::malformed(WHAT, "packs in the order of their numbers", found.as_bytes()))
            }
        }
    }
}

const WHAT: &str = "backup.json";
/// Most packs of a backup.
const PACKS_MAX: usize = 1_000_000;

fn sha256(text: &str) -> Sha256 {
    Sha256(sha2::Sha256::digest(text).into())
}

fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes <= RECORD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::Limit { what: "backup.json in bytes", found: bytes as u64, allowed: RECORD_BYTES_MAX as u64 })
}

fn not_json(error: &serde_json::Error) -> Error {
    Error::Malformed { what: WHAT, expected: "what pgshrink writes", found: error.to_string() }
}
