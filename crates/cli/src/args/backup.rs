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
    #[arg(value_name = "CONNINFO", env = "PGSHRINK_BACKUP_CONNINFO")]
    pub conninfo: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub config: BackupConfigArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: BackupKeyArgs,
    /// The repository: a directory, or s3://bucket/prefix. For plain and tar an empty directory
    ///
    /// server:/path has the server write tar files into a directory of its own host. The role needs pg_write_server_files.
    #[arg(long, value_name = "REPOSITORY", env = "PGSHRINK_BACKUP_TO")]
    pub to: String,
    /// What is made [default: archive]
    #[arg(long, value_name = "FORMAT", env = "PGSHRINK_BACKUP_FORMAT")]
    pub format: Option<BackupFormat>,
    /// In a plain backup, put the tablespace that is in OLD into NEW. May be repeated
    ///
    /// Write \= for each = in a path.
    #[arg(long, value_name = "OLD=NEW")]
    pub tablespace_mapping: Vec<String>,
    /// What the server compresses with: auto, none, gzip, lz4 or zstd, with level and workers [default: zstd:1]
    ///
    /// Such as zstd:level=3:workers=2. It shortens the way to this machine. An archive is compressed anew, tar files are
    /// stored as they come. Unless one is named, a server without zstd takes lz4, gzip or none. auto measures the link, the
    /// data and the processors for about two seconds, chooses, and says what and why. If no route is named, it chooses that too.
    #[arg(long, value_name = "METHOD[:DETAIL]", env = "PGSHRINK_BACKUP_COMPRESSION", help_heading = "Speed")]
    pub compression: Option<String>,
    /// How files come: over one BASE_BACKUP, or over several connections that read files [default: stream]
    ///
    /// The parallel route is for fast links: nothing is compressed on the way. It needs EXECUTE on five functions, which the
    /// error of a first run lists.
    #[arg(long, value_name = "ROUTE", env = "PGSHRINK_BACKUP_ROUTE", help_heading = "Speed")]
    pub route: Option<BackupRoute>,
    /// Connections of the parallel route: 1 to 32 [default: one for each processor here, 4 at most]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_CONNECTIONS", help_heading = "Speed")]
    pub connections: Option<usize>,
    /// Level of what is stored: 1 to 19 [default: 3]
    #[arg(long, value_name = "LEVEL", env = "PGSHRINK_BACKUP_LEVEL", help_heading = "Speed")]
    pub level: Option<i32>,
    /// Threads that compress [default: one for each processor, 8 at most]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_THREADS", help_heading = "Speed")]
    pub threads: Option<usize>,
    /// MiB of an object of the repository; it is closed earlier if it takes more than a minute [default: 64]
    #[arg(long, value_name = "MIB", default_value_t = 64, hide_default_value = true, help_heading = "Speed")]
    #[arg(env = "PGSHRINK_BACKUP_PACK_SIZE", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub pack_size: u32,
    /// Most kB (1024 bytes) per second that the server sends: 32 to 1048576
    #[arg(long, value_name = "KB", env = "PGSHRINK_BACKUP_MAX_RATE", help_heading = "Speed")]
    pub max_rate: Option<u64>,
    /// Seconds that the server may send nothing, but for its checkpoint [default: 900]
    #[arg(long, value_name = "SECONDS", default_value_t = 900, hide_default_value = true)]
    #[arg(env = "PGSHRINK_BACKUP_SERVER_TIMEOUT", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub server_timeout: u64,
    /// How the server makes its checkpoint [default: spread]
    #[arg(long, value_name = "MODE", env = "PGSHRINK_BACKUP_CHECKPOINT", help_heading = "Speed")]
    pub checkpoint: Option<CheckpointMode>,
    /// Go on with the newest backup of this cluster that was begun and not completed, if there is one
    ///
    /// The server sends everything again. What is stored already, and has not changed, is neither compressed nor stored again.
    #[arg(long, env = "PGSHRINK_BACKUP_RESUME")]
    pub resume: bool,
    /// Configuration files from outside of the data directory: back them up if the role may read them, in any case, or not
    ///
    /// They are read over an ordinary connection to the database that CONNINFO names, or postgres. With auto, a line says what
    /// is not in the backup, and which rights the role would need; with require, that is an error before the backup begins.
    #[arg(long, value_name = "MODE", env = "PGSHRINK_BACKUP_CONFIGURATION", default_value = "auto")]
    pub configuration: ConfigurationMode,
    /// Beside a plain or tar backup, write configuration files from outside of the data directory below this empty directory
    #[arg(long, value_name = "DIRECTORY")]
    pub configuration_into: Option<PathBuf>,
    /// Take pages as they are, also where their checksums are wrong
    #[arg(long)]
    pub no_verify_checksums: bool,
    /// A name for people, kept in backup_label
    #[arg(long, value_name = "TEXT", default_value = "pgshrink", env = "PGSHRINK_BACKUP_LABEL")]
    pub label: String,
    /// Write metrics for Prometheus' textfile collector here, whether the backup succeeds or not
    #[arg(long, value_name = "FILE", env = "PGSHRINK_BACKUP_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

const BACKUP_EXAMPLES: &str = "\
Examples:
  pgshrink backup \"host=db user=replicator\" --to /backups
  pgshrink backup \"host=db user=replicator\" --to /backups --compression auto
  pgshrink backup \"host=db user=replicator\" --to s3://bucket/db1 --compression zstd:level=3:workers=2
  pgshrink backup \"host=db user=replicator\" --to /backups --key-file /etc/pgshrink/backup.key
  pgshrink backup \"host=db user=replicator\" --to /srv/copy --format plain
  pgshrink backup \"host=db user=replicator\" --to /srv/monday --format tar --compression zstd:workers=2

The role needs no more than this:
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
    /// The files of `pg_basebackup --format tar`.
    Tar,
}

/// Whether configuration files from outside of the data directory are backed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfigurationMode {
    /// As far as the role may read them.
    Auto,
    /// All of them, or no backup is begun.
    Require,
    /// They are not looked for.
    Off,
}

/// How the server makes its checkpoint at the start of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointMode {
    /// At once, with all the load that this is.
    Fast,
    /// Over the time of `checkpoint_completion_target`.
    Spread,
}

/// Where the settings are that no flag and no variable gives.
#[derive(Debug, Clone, Args)]
pub struct BackupConfigArgs {
    /// Take what is not given here from the table [backup] of this file
    #[arg(long, value_name = "FILE", env = "PGSHRINK_BACKUP_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Where backups are.
#[derive(Debug, Clone, Args)]
pub struct FromArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub config: BackupConfigArgs,
    /// The repository: a directory, or s3://bucket/prefix
    #[arg(long, value_name = "REPOSITORY", env = "PGSHRINK_BACKUP_FROM")]
    pub from: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: BackupKeyArgs,
}

/// Keys of encrypted backups.
#[derive(Debug, Clone, Args)]
pub struct BackupKeyArgs {
    /// File with the key that backups are encrypted with, readable by its owner alone
    ///
    /// 64 hexadecimal digits or 44 characters of base64: openssl rand -hex 32. May be repeated: new backups get the first one,
    /// files before commands, and each backup is read with the one that it needs.
    #[arg(long, value_name = "FILE", env = "PGSHRINK_BACKUP_KEY_FILE", help_heading = "Key")]
    pub key_file: Vec<PathBuf>,
    /// Shell command that prints the key. May be repeated
    #[arg(long, value_name = "COMMAND", env = "PGSHRINK_BACKUP_KEY_COMMAND", help_heading = "Key")]
    pub key_command: Vec<String>,
}

/// Show the backups of a repository.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    /// Write metrics for Prometheus' textfile collector here
    #[arg(long, value_name = "FILE", env = "PGSHRINK_BACKUP_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,
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
    /// Go on with a restore into this directory that was interrupted
    ///
    /// What is there already, and is as it should be, is not read again.
    #[arg(long)]
    pub resume: bool,
    /// Restore the tablespace that was in OLD into NEW. May be repeated
    ///
    /// Write \= for each = in a path.
    #[arg(long, value_name = "OLD=NEW")]
    pub tablespace_mapping: Vec<String>,
    /// Write configuration files from outside of the data directory below this directory: empty, or not there
    ///
    /// /etc/x.conf is DIRECTORY/etc/x.conf. Nothing is written to where it was.
    #[arg(long, value_name = "DIRECTORY")]
    pub configuration_into: Option<PathBuf>,
    /// Threads that read and decompress [default: one for each processor, 8 at most]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_THREADS")]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Check a backup: every chunk is read and decoded, and every file compared with the manifest.
///
/// With --boot, the backup is restored to scratch space and a server is started on it, which reads every row of every database
/// and checks tables and indexes.
#[derive(Debug, Clone, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
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
    pub boot: BootArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Remove old backups.
///
/// A backup that any of the rules keeps stays, and so does what it needs. Ages are counted from the newest backup of the same
/// cluster, by that server's clock: when backups are no longer made, none gets too old. The newest one always stays.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXPIRE_EXAMPLES)]
pub struct ExpireArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub from: FromArgs,
    /// Keep so many of the newest backups of each cluster
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_BACKUP_KEEP_LAST")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_last: Option<u32>,
    /// Keep backups that ended at most so many days before the newest one of their cluster
    #[arg(long, value_name = "DAYS", env = "PGSHRINK_BACKUP_KEEP_DAYS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_days: Option<u32>,
    /// Remove incomplete backups too, if nobody writes them any more
    #[arg(long, env = "PGSHRINK_BACKUP_ABANDONED")]
    pub abandoned: bool,
    /// Remove this incomplete backup. May be repeated
    #[arg(long, value_name = "BACKUP")]
    pub remove: Vec<String>,
    /// Show what would be removed, and remove nothing
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
  2  it could not be checked, or not all of it";

/// How `verify` starts a server on a backup.
#[derive(Debug, Clone, Args)]
pub struct BootArgs {
    /// Restore to scratch space, start a server on it, and read everything back
    #[arg(long, help_heading = "Boot")]
    pub boot: bool,
    /// Where to restore to: empty, or not there [default: a new directory below TMPDIR or /tmp]
    ///
    /// It needs the space of the whole cluster, and is removed in the end. The server's socket is below TMPDIR or /tmp in any case.
    #[arg(long, value_name = "DIRECTORY", requires = "boot", help_heading = "Boot")]
    pub scratch: Option<PathBuf>,
    /// Leave the restored cluster there, for a look at it
    #[arg(long, requires = "boot", help_heading = "Boot")]
    pub keep_scratch: bool,
    /// Where PostgreSQL's programs are [default: PATH, /usr/lib/postgresql/MAJOR/bin, /usr/pgsql-MAJOR/bin]
    #[arg(long, value_name = "DIRECTORY", env = "PGSHRINK_BACKUP_SERVER_BIN", help_heading = "Boot")]
    pub server_bin: Option<PathBuf>,
    /// Change a setting of the server, such as shared_buffers=128MB. May be repeated
    ///
    /// For what this machine does not have: memory, or a library of shared_preload_libraries.
    #[arg(long, value_name = "NAME=VALUE", requires = "boot", help_heading = "Boot")]
    pub set: Vec<String>,
    /// Seconds that the server may take to start, which includes the replay of WAL [default: 3600]
    #[arg(long, value_name = "SECONDS", requires = "boot", help_heading = "Boot")]
    pub boot_timeout: Option<u64>,
    /// Write a report to this file, as JSON
    #[arg(long, value_name = "FILE", requires = "boot", help_heading = "Boot")]
    pub report: Option<PathBuf>,
}
