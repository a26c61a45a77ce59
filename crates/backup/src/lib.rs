//! Physical backups of PostgreSQL, without IO.
//!
//! This crate opens no file and no socket, looks at no clock and starts no thread. Bytes go in, and bytes,
//! entries or decisions come out. It allocates nothing for a size that the input merely declares.
//!
//! * [`base_backup`]: the command `BASE_BACKUP`, its options and what the server answers.
//! * [`chunk`]: a piece of a file, compressed, and back.
//! * [`choice`]: which route and compression a backup gets, from what was measured.
//! * [`checksum`]: the checksums that a manifest may hold.
//! * [`configuration`]: configuration files, and which others they include.
//! * [`control`]: whether `pg_control` was read whole.
//! * [`files`]: which files a backup has, and what they are.
//! * [`label`]: `backup_label` and `tablespace_map`.
//! * [`manifest`]: the list of a backup's files, read and written as the server does.
//! * [`pack`]: objects of a repository that hold chunks of files.
//! * [`pages`]: the checksums of pages.
//! * [`record`]: what a backup is, and which packs it has.
//! * [`retention`]: which backups are removed.
//! * [`wal`]: LSNs, timelines, names of WAL segments.
//! * [`path`], [`time`]: paths inside a backup, and times of the server's clock.

pub mod base_backup;
pub mod checksum;
pub mod choice;
pub mod chunk;
pub mod configuration;
pub mod control;
mod error;
pub mod files;
pub mod hex;
pub mod label;
pub mod manifest;
pub mod pack;
pub mod pages;
pub mod path;
pub mod record;
pub mod retention;
pub mod time;
pub mod wal;

pub use checksum::{Checksum, ChecksumAlgorithm};
pub use error::Error;
pub use path::BackupPath;
pub use time::ServerTime;
pub use wal::{Lsn, Timeline, WalSegmentName, WalSegmentSize};
