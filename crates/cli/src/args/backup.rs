//! `pgshrink backup`, `restore`, `verify` and `list`.

use super::OutputArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Back up a running server into a repository.
///
/// Takes a base backup over the replication protocol, compressed by the server, with the WAL that it needs, and stores it as
/// independent compressed chunks. Needs a role with REPLICATION and two free wal senders; works on a standby too.
#[derive(Debug, Clone, Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub struct BackupArgs {
    /// How to connect: "host=db user=replicator" or postgresql://…, as for psql
    #[arg(value_name = "CONNINFO")]
    pub conninfo: String,
    /// The repository: a directory, or s3://bucket/prefix
    #[arg(long, value_name = "REPOSITORY", env = "PGSHRINK_BACKUP_TO")]
    pub to: String,
    /// What the server compresses with: none, gzip, lz4 or zstd, with level and workers [default: zstd:1]
    ///
    /// Such as zstd:level=3:workers=2. It shortens the way to this machine. What is stored is compressed anew.
    #[arg(long, value_name = "METHOD[:DETAIL]", env = "PGSHRINK_BACKUP_COMPRESSION", help_heading = "Speed")]
    pub compression: Option<String>,
    /// Level of what is stored: 1 to 19 [default: 3]
    #[arg(long, value_name = "LEVEL", env = "PGSHRINK_BACKUP_LEVEL", help_heading = "Speed")]
    pub level: Option<i32>,
    /// Threads that compress [default: one for each processor, 8 at most]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_THREADS", help_heading = "Speed")]
    pub threads: Option<usize>,
    /// Most kB per second that the server sends
    #[arg(long, value_name = "KB", env = "PGSHRINK_BACKUP_MAX_RATE", help_heading = "Speed")]
    pub max_rate: Option<u64>,
    /// How the server makes its checkpoint [default: spread]
    #[arg(long, value_name = "MODE", help_heading = "Speed")]
    pub checkpoint: Option<CheckpointMode>,
    /// A name for people, kept in backup_label
    #[arg(long, value_name = "TEXT", default_value = "pgshrink")]
    pub label: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

const BACKUP_EXAMPLES: &str = "\
Examples:
  pgshrink backup \"host=db user=replicator\" --to /backups
  pgshrink backup \"host=db user=replicator\" --to s3://bucket/db1 --compression zstd:level=3:workers=2

The role needs no more than this:
  CREATE ROLE replicator LOGIN REPLICATION PASSWORD '…';";

/// How the server makes its checkpoint at the start of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointMode {
    /// At once, with all the load that this is.
    Fast,
    /// Over the time of `checkpoint_completion_target`.
    Spread,
}

/// Where backups are.
#[derive(Debug, Clone, Args)]
pub struct FromArgs {
    /// The repository: a directory, or s3://bucket/prefix
    #[arg(long, value_name = "REPOSITORY", env = "PGSHRINK_BACKUP_FROM")]
    pub from: String,
}

/// Show the backups of a repository.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Restore a backup into an empty directory.
///
/// Every chunk is checked while it is restored, and every file against the backup's manifest. The data directory has its
/// control file last: a server does not start on one that is not whole.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// The backup's name, or `latest`
    #[arg(value_name = "BACKUP")]
    pub backup: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    /// The data directory to make: empty, or not there
    #[arg(long, value_name = "DIRECTORY")]
    pub into: PathBuf,
    /// Restore the tablespace that was in OLD into NEW. May be repeated
    #[arg(long, value_name = "OLD=NEW")]
    pub tablespace_mapping: Vec<String>,
    /// Threads that read and decompress [default: one for each processor, 8 at most]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_THREADS")]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Check a backup: every chunk is read and decoded, and every file compared with the manifest.
#[derive(Debug, Clone, Args)]
pub struct VerifyBackupArgs {
    /// The backup's name, or `latest`
    #[arg(value_name = "BACKUP")]
    pub backup: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    /// Threads that read and decompress [default: one for each processor, 8 at most]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_THREADS")]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}
