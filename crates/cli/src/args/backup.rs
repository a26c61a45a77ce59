//! `pgshrink backup`, `restore`, `verify` and `list`.

use super::OutputArgs;
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};
use pgshrink_backup::chunk::Level;
use std::path::PathBuf;

/// Back up a running server to a repository.
///
/// Takes a base backup over the replication protocol, compressed by the server, with the WAL that it needs, and stores
/// it as independent compressed chunks. Needs a role with REPLICATION, two free WAL senders and a free replication slot. Also works on a
/// standby.
#[derive(Debug, Clone, Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub struct BackupArgs {
    /// How to connect: "host=db user=replicator" or postgresql://…, as for psql
    #[arg(value_name = "CONNINFO", env = "PGSHRINK_BACKUP_CONNINFO")]
    pub conninfo: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub config: BackupConfigArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: BackupKeyArgs,
    /// The repository: a directory, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix. For plain and tar, an
    /// empty directory
    ///
    /// With server:/path, the server writes tar files into a directory on its own host. The role needs
    /// pg_write_server_files.
    #[arg(long, value_name = "REPOSITORY", env = "PGSHRINK_BACKUP_TO")]
    pub to: String,
    /// Format of the backup [default: archive]
    #[arg(long, value_name = "FORMAT", env = "PGSHRINK_BACKUP_FORMAT")]
    pub format: Option<BackupFormat>,
    /// In a plain backup, write the tablespace in directory OLD to directory NEW. May be repeated
    ///
    /// Write \= for an equals sign in a path.
    #[arg(long, value_name = "OLD=NEW")]
    pub tablespace_mapping: Vec<String>,
    /// How the server compresses: auto, none, gzip, lz4 or zstd, with level and workers [default: zstd:1]
    ///
    /// For example zstd:level=3:workers=2. This applies to the transfer to this machine: an archive is recompressed
    /// here, tar files are stored as received. If no method is given, a server without zstd uses lz4, gzip or none.
    /// auto measures the link, the data and the processors for about two seconds, makes a choice, and prints it with
    /// the reason. It also chooses the route, unless --route is given.
    #[arg(long, value_name = "METHOD[:DETAIL]", env = "PGSHRINK_BACKUP_COMPRESSION", help_heading = "Speed")]
    pub compression: Option<String>,
    /// How files are read: by one BASE_BACKUP, or over several connections [default: stream]
    ///
    /// The parallel route is for fast links: nothing is compressed in transit. It needs EXECUTE on five functions;
    /// without it, the error message lists them.
    #[arg(long, value_name = "ROUTE", env = "PGSHRINK_BACKUP_ROUTE", help_heading = "Speed")]
    pub route: Option<BackupRoute>,
    /// Connections of the parallel route: 1 to 32 [default: one per processor of this machine, at most 4]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_CONNECTIONS", help_heading = "Speed")]
    pub connections: Option<usize>,
    /// zstd level of the stored archive: 1 to 19 [default: 3]
    #[arg(long, value_name = "LEVEL", env = "PGSHRINK_BACKUP_LEVEL", help_heading = "Speed")]
    #[arg(value_parser = level())]
    pub level: Option<Level>,
    /// Threads that compress: 1 to 256 [default: one per processor, at most 8]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_THREADS", help_heading = "Speed")]
    #[arg(value_parser = threads())]
    pub threads: Option<usize>,
    /// Maximum pack size in MiB; packs (objects of the repository) are also closed after one minute: 1 to 512 [default: 64]
    #[arg(long, value_name = "MIB", default_value_t = 64, hide_default_value = true, help_heading = "Speed")]
    #[arg(env = "PGSHRINK_BACKUP_PACK_SIZE_MIB", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub pack_size_mib: u32,
    /// Maximum transfer rate from the server in kB (1024 bytes) per second: 32 to 1048576
    #[arg(long, value_name = "KB", env = "PGSHRINK_BACKUP_MAX_RATE", help_heading = "Speed")]
    pub max_rate: Option<u64>,
    /// Fail if the server sends nothing for this many seconds, except during its checkpoint [default: 900]
    #[arg(long, value_name = "SECONDS", default_value_t = 900, hide_default_value = true)]
    #[arg(env = "PGSHRINK_BACKUP_SERVER_TIMEOUT_S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub server_timeout_s: u64,
    /// How the server makes the checkpoint at the start [default: spread]
    #[arg(long, value_name = "MODE", env = "PGSHRINK_BACKUP_CHECKPOINT", help_heading = "Speed")]
    pub checkpoint: Option<CheckpointMode>,
    /// Continue the newest incomplete backup of this cluster, or start a new one
    ///
    /// The server sends everything again. Data that is already stored and has not changed is neither compressed nor
    /// stored again.
    #[arg(long, env = "PGSHRINK_BACKUP_RESUME", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub resume: bool,
    /// Back up configuration files outside of the data directory: if the role may read them (auto), always (require),
    /// or never (off)
    ///
    /// They are read over an ordinary connection to the database in CONNINFO, or else postgres. If some cannot be read,
    /// auto prints which ones are not in the backup and which privileges the role would need; with require, that is an
    /// error before the backup starts.
    #[arg(long, value_name = "MODE", env = "PGSHRINK_BACKUP_CONFIGURATION", default_value = "auto")]
    pub configuration: ConfigurationMode,
    /// With a plain or tar backup, write configuration files from outside of the data directory below this empty
    /// directory
    #[arg(long, value_name = "DIRECTORY")]
    pub configuration_into: Option<PathBuf>,
    /// Accept pages with wrong checksums
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub no_verify_checksums: bool,
    /// Label, stored in backup_label
    #[arg(long, value_name = "TEXT", default_value = "pgshrink", env = "PGSHRINK_BACKUP_LABEL")]
    pub label: String,
    /// Write metrics for Prometheus' textfile collector to this file, whether the backup succeeds or not
    #[arg(long, value_name = "FILE", env = "PGSHRINK_BACKUP_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

fn level() -> impl TypedValueParser<Value = Level> {
    let range = i64::from(Level::MIN.to_i32())..=i64::from(Level::MAX.to_i32());
    clap::value_parser!(i32).range(range).try_map(Level::new)
}

fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=256)
}

const BACKUP_EXAMPLES: &str = "\
Examples:
  pgshrink backup \"host=db user=replicator\" --to /backups
  pgshrink backup \"host=db user=replicator\" --to /backups --compression auto
  pgshrink backup \"host=db user=replicator\" --to s3://bucket/db1 --compression zstd:level=3:workers=2
  pgshrink backup \"host=db user=replicator\" --to /backups --key-file /etc/pgshrink/backup.key
  pgshrink backup \"host=db user=replicator\" --to /srv/copy --format plain
  pgshrink backup \"host=db user=replicator\" --to /srv/monday --format tar --compression zstd:workers=2

A role with REPLICATION is enough:
  CREATE ROLE replicator LOGIN REPLICATION PASSWORD '…';";

/// How the files of a cluster come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackupRoute {
    /// One BASE_BACKUP, compressed by the server.
    Stream,
    /// Several ordinary connections, without compression.
    Parallel,
}

/// What a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackupFormat {
    /// Compressed chunks in a repository, for `restore`.
    Archive,
    /// A data directory that is ready to start.
    Plain,
    /// Tar files like those of `pg_basebackup --format tar`.
    Tar,
}

/// Whether configuration files from outside of the data directory are backed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfigurationMode {
    /// Those that the role may read.
    Auto,
    /// All of them; otherwise fail before the backup starts.
    Require,
    /// None.
    Off,
}

/// How the server makes its checkpoint at the start of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointMode {
    /// Immediately.
    Fast,
    /// Spread over `checkpoint_completion_target`.
    Spread,
}

/// Where the settings are that no flag and no variable gives.
#[derive(Debug, Clone, Args)]
pub struct BackupConfigArgs {
    /// Read settings from the table [backup] of this file; flags and variables override them
    #[arg(long, value_name = "FILE", env = "PGSHRINK_BACKUP_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Where backups are.
#[derive(Debug, Clone, Args)]
pub struct FromArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub config: BackupConfigArgs,
    /// The repository: a directory, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix
    #[arg(long, value_name = "REPOSITORY", env = "PGSHRINK_BACKUP_FROM")]
    pub from: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: BackupKeyArgs,
}

/// Keys of encrypted backups.
#[derive(Debug, Clone, Args)]
pub struct BackupKeyArgs {
    /// File with the encryption key; others must not be able to read it
    ///
    /// 64 hexadecimal digits or 44 characters of base64, for example from openssl rand -hex 32. May be repeated: new
    /// backups use the first key, files before commands, and each backup is read with the key that it needs.
    #[arg(long, value_name = "FILE", env = "PGSHRINK_BACKUP_KEY_FILE", help_heading = "Key")]
    pub key_file: Vec<PathBuf>,
    /// Shell command that prints the key. May be repeated
    #[arg(long, value_name = "COMMAND", env = "PGSHRINK_BACKUP_KEY_COMMAND", help_heading = "Key")]
    pub key_command: Vec<String>,
}

/// List the backups in a repository.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    /// Write metrics for Prometheus' textfile collector to this file
    #[arg(long, value_name = "FILE", env = "PGSHRINK_BACKUP_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Restore a backup into an empty directory.
///
/// Every chunk is checked while it is restored, and every file is compared with the backup's manifest. The control file
/// is written last, so a server does not start on an incomplete data directory.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// Name of the backup, or `latest`
    #[arg(value_name = "BACKUP")]
    pub backup: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    /// The data directory to create: must be empty or not exist
    #[arg(long, value_name = "DIRECTORY")]
    pub into: PathBuf,
    /// Continue an interrupted restore into this directory
    ///
    /// Data that is already there and correct is not read from the repository again.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub resume: bool,
    /// Restore the tablespace in directory OLD to directory NEW. May be repeated
    ///
    /// Write \= for an equals sign in a path.
    #[arg(long, value_name = "OLD=NEW")]
    pub tablespace_mapping: Vec<String>,
    /// Write configuration files from outside of the data directory below this directory: must be empty or not exist
    ///
    /// /etc/x.conf becomes DIRECTORY/etc/x.conf. Nothing is written to the original place.
    #[arg(long, value_name = "DIRECTORY")]
    pub configuration_into: Option<PathBuf>,
    /// Threads that read and decompress: 1 to 256 [default: one per processor, at most 8]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_THREADS", value_parser = threads())]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Check a backup: read and decode every chunk, and compare every file with the manifest.
///
/// With --boot, it restores the backup to scratch space and starts a server on it, which reads every row of every
/// database and checks tables and indexes.
#[derive(Debug, Clone, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub struct VerifyBackupArgs {
    /// Name of the backup, or `latest`
    #[arg(value_name = "BACKUP")]
    pub backup: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    /// Threads that read and decompress: 1 to 256 [default: one per processor, at most 8]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_THREADS", value_parser = threads())]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub boot: BootArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Remove old backups.
///
/// A backup is kept if any rule keeps it. Age is counted back from the newest backup of
/// the same cluster, by that server's clock, so backups do not expire when no new ones are made. The newest one is
/// always kept.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXPIRE_EXAMPLES)]
pub struct ExpireArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    /// Keep this many of the newest backups of each cluster
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_KEEP_LAST")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_last: Option<u32>,
    /// Keep backups that ended within this many days before the newest one of their cluster
    #[arg(long, value_name = "DAYS", env = "PGSHRINK_BACKUP_KEEP_DAYS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_days: Option<u32>,
    /// Also remove incomplete backups whose writer is gone
    #[arg(long, env = "PGSHRINK_BACKUP_ABANDONED", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub abandoned: bool,
    /// Remove this incomplete backup. May be repeated
    #[arg(long, value_name = "BACKUP")]
    pub remove: Vec<String>,
    /// Show what would be removed, without removing anything
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

const EXPIRE_EXAMPLES: &str = "\
Examples:
  pgshrink expire --from /backups --keep-last 7 --keep-days 30 --dry-run
  pgshrink expire --from s3://bucket/db1 --keep-last 7 --abandoned";
const VERIFY_EXAMPLES: &str = "\
Examples:
  pgshrink verify latest --from /backups
  pgshrink verify latest --from /backups --boot --scratch /srv/scratch --report /var/log/pgshrink/verify.json

Exit codes:
  0  no problem was found
  1  the backup is damaged
  2  it could not be checked, or not completely";

/// How `verify` starts a server on a backup.
#[derive(Debug, Clone, Args)]
pub struct BootArgs {
    /// Restore to scratch space, start a server on it, and read every row
    #[arg(long, help_heading = "Boot", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub boot: bool,
    /// Where to restore to: must be empty or not exist [default: a new directory below TMPDIR or /tmp]
    ///
    /// It needs space for the whole cluster, and is removed at the end. The server's socket is always below TMPDIR or
    /// /tmp.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Boot")]
    pub scratch: Option<PathBuf>,
    /// Keep the restored cluster
    #[arg(long, help_heading = "Boot", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub keep_scratch: bool,
    /// Directory with PostgreSQL's programs [default: PATH, /usr/lib/postgresql/MAJOR/bin, /usr/pgsql-MAJOR/bin]
    #[arg(long, value_name = "DIRECTORY", env = "PGSHRINK_BACKUP_SERVER_BIN", help_heading = "Boot")]
    pub server_bin: Option<PathBuf>,
    /// Override a setting of the server, for example shared_buffers=128MB. May be repeated
    ///
    /// Use it if this machine lacks memory, or a library in shared_preload_libraries.
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Boot")]
    pub set: Vec<String>,
    /// Maximum time in seconds for the server to start, including WAL replay [default: 3600]
    #[arg(long, value_name = "SECONDS", help_heading = "Boot")]
    pub boot_timeout_s: Option<u64>,
    /// Write a report to this file, as JSON
    #[arg(long, value_name = "FILE", help_heading = "Boot")]
    pub report: Option<PathBuf>,
}
