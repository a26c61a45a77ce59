//! The replication command `BASE_BACKUP`: how it is asked for, and what comes back.
//!
//! ```text
//!   BASE_BACKUP (LABEL 'x', TARGET 'client', ...)          Options::command
//!   result: start LSN, timeline                            Position::from_row
//!   result: a row for each tablespace, the base last       Tablespace::from_row
//!   CopyOutResponse, CopyData ..., CopyDone                Sequence::handle, Sequence::finish
//!   result: end LSN, timeline                              Position::from_row
//! ```
//!
//! The sources are `src/backend/backup/basebackup.c` (options), `src/backend/backup/basebackup_copy.c`
//! (messages) and `src/common/compression.c` (compression). In 15 without `TARGET` the server answers by an
//! older protocol, with a COPY for each tablespace; the command here always has a target.

mod command;
mod compression;
mod ending;
mod message;
mod rows;

pub use command::{Checkpoint, ManifestOption, MaxRate, Options, Probed, ServerMajor, Target};
pub use compression::{Compression, CompressionAlgorithm, WORKERS_MAX};
pub use ending::ArchiveEnd;
pub use message::{ArchiveName, Event, Message, Sequence};
pub use rows::{Position, Tablespace};
