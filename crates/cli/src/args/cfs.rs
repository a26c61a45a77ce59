//! `pgshrink cfs` and its subcommands.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Compressed relation files, offline: look into, check, convert.
///
/// Works on files and directories of a stopped server, or on copies of them; no server is asked. `estimate` only
/// reads plain relation files and may run beside a server.
#[derive(Debug, Clone, Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct CfsArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: CfsCommand,
}

const EXAMPLES: &str = "\
Examples:
  What a database would gain, without changing anything:
    pgshrink cfs estimate /var/lib/postgresql/15/main
    pgshrink cfs estimate --algorithms zstd:1,zstd:9 --json base/16384/16397

  Containers and back, the source left as it is:
    pgshrink cfs pack base/16384 /backup/packed/16384
    pgshrink cfs verify /backup/packed/16384
    pgshrink cfs unpack /backup/packed/16384 /restore/16384

  Sealed containers:
    pgshrink cfs info --key-file /etc/pgshrink/master.key /srv/pg/PG_15_202209061
    pgshrink cfs pack --seal --key-command 'vault read -field=key pg/master' base/16384 sealed
    pgshrink cfs rekey --key-file old.key --new-key-file new.key sealed

  A server that was restored from a snapshot's files:
    pgshrink cfs accept /var/lib/postgresql/15/main

  Before a server with compressed tables is upgraded:
    pgshrink cfs check-server /usr/lib/postgresql/18/bin/postgres

  An old primary with compressed tables becomes the new one's standby:
    pgshrink cfs exec -- pg_rewind -D /srv/pg/15/main --source-server='host=new dbname=postgres'

Exit codes:
  0  done
  1  checked, and found damage, pages that cannot be had any more, or a server that is not supported
  2  could not run, for want of the right key too";

/// What to do.
#[derive(Debug, Clone, Subcommand)]
#[allow(missing_docs, reason = "the help is that of the arguments")]
pub enum CfsCommand {
    Info(InfoArgs),
    Verify(VerifyArgs),
    Estimate(EstimateArgs),
    Unpack(UnpackArgs),
    Pack(PackArgs),
    Rekey(RekeyArgs),
    Salvage(SalvageArgs),
    Accept(AcceptArgs),
    CheckServer(CheckServerArgs),
    Exec(ExecArgs),
}

/// What every subcommand prints, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// Print one JSON document instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress bar; without it there is one on a terminal
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// Where the master key of sealed containers comes from.
#[derive(Debug, Clone, Default, Args)]
pub struct KeyArgs {
    /// File with the key, readable by its owner alone
    ///
    /// 64 hexadecimal digits or 44 characters of base64 are a key, anything else is a passphrase. May be repeated: all are
    /// tried, files before commands; the first is for new containers. Without --key-file and --key-command the variable PG_CIPHER_KEY counts.
    #[arg(long, value_name = "FILE", help_heading = "Key")]
    pub key_file: Vec<PathBuf>,
    /// Shell command that prints the key. May be repeated
    #[arg(long, value_name = "COMMAND", help_heading = "Key")]
    pub key_command: Vec<String>,
}

/// Show what containers say of themselves.
///
/// Which segment, how large, by which algorithms, how much of the file is garbage, and which key they need. Without
/// the key of a sealed container, what its header shows in clear.
#[derive(Debug, Clone, Args)]
pub struct InfoArgs {
    /// Containers, or directories to look for them in
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Check packed trees: all that was packed is there, and every page decodes.
///
/// What is in a tree is compared with the manifest that `pack` writes last: files that are missing, extra or changed are
/// named, those outside of containers too. Every page of every container is read and decoded; each damage is named with
/// block and place. A tree without a manifest is refused: its `pack` was interrupted. With a key, all of it must be sealed, except with --allow-plain.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// Packed trees, or directories or containers in them
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Check the containers that are there, and nothing else
    #[arg(long)]
    pub no_manifest: bool,
    /// With a key, take what is plain as well: a server's encrypted tablespace has such files
    #[arg(long)]
    pub allow_plain: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Measure how small plain relation files would become, and how fast.
///
/// Runs the page codec over pages of each relation, a dictionary trained from the first 100 as a compressed
/// tablespace does, and counts what a container would take: record headers, rounding, map and roots included.
/// One thread; nothing is written. Tables are named where their database's pg_class can be read.
#[derive(Debug, Clone, Args)]
pub struct EstimateArgs {
    /// Relation files, or directories: a database, a tablespace, a whole data directory
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Algorithms and levels to try [default: lz4,snappy,pglz,zlib:6,lzfse,zstd:1,zstd:3]
    #[arg(long, value_name = "LIST", help_heading = "Measuring")]
    pub algorithms: Option<String>,
    /// Pages of each relation to measure, evenly spread; 0 for all [default: 2000]
    #[arg(long, value_name = "COUNT", help_heading = "Measuring")]
    pub pages: Option<u32>,
    /// Without a dictionary
    #[arg(long, help_heading = "Measuring")]
    pub no_dictionary: bool,
    /// Without rearranging pages before the algorithm
    #[arg(long, help_heading = "Measuring")]
    pub no_transform: bool,
    /// Leave relations of fewer pages out of the table, not out of the sum [default: 5]
    #[arg(long, value_name = "PAGES", help_heading = "Output")]
    pub min_pages: Option<u32>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Give plain PostgreSQL files back.
///
/// Copies SOURCE to DEST, each container as the plain file it stands for, byte for byte as it was packed; other files as
/// they are. What is damaged is left out and named, and so is what the manifest lists and is not there. DEST has its name
/// when all of it is durable; until then it is DEST.incomplete. With a key, all of SOURCE must be sealed, except with
/// --allow-plain.
#[derive(Debug, Clone, Args)]
pub struct UnpackArgs {
    /// A container, a segment's directory, or a directory with such
    pub source: PathBuf,
    /// What to make; must not be there yet
    pub dest: PathBuf,
    /// Unpack what is there, without asking whether all is
    #[arg(long)]
    pub no_manifest: bool,
    /// With a key, take what is plain as well: a server's encrypted tablespace has such files
    #[arg(long)]
    pub allow_plain: bool,
    /// Read although a server runs on these files
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Put plain relation files into containers.
///
/// Copies SOURCE to DEST, each relation file of a database directory as a container; other files, and relations too small
/// to gain, as they are. With --seal everything goes into sealed containers. Every page is read back and compared; a
/// manifest lists what is there. DEST has its name when all of it is durable; until then it is DEST.incomplete. The links
/// of tablespaces and of pg_wal are followed.
#[derive(Debug, Clone, Args)]
pub struct PackArgs {
    /// A relation file, or a directory with such
    pub source: PathBuf,
    /// What to make; must not be there yet
    pub dest: PathBuf,
    /// Algorithm and level [default: zstd:1]
    #[arg(long, value_name = "ALGORITHM", help_heading = "Compression")]
    pub compression: Option<String>,
    /// Without a dictionary
    #[arg(long, help_heading = "Compression")]
    pub no_dictionary: bool,
    /// Seal all files with the first key; a key without it is refused
    #[arg(long, help_heading = "Key")]
    pub seal: bool,
    /// Pack although postmaster.pid names a live process, or a tablespace's link leads nowhere
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Put sealed containers under another master key.
///
/// Only the roots are written, in place; no page is. Copies made before still open with the old key.
#[derive(Debug, Clone, Args)]
pub struct RekeyArgs {
    /// Containers, or directories to look for them in
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// File with the new key; the other keys open what is there
    #[arg(long, value_name = "FILE", help_heading = "Key")]
    #[arg(required_unless_present = "new_key_command", conflicts_with = "new_key_command")]
    pub new_key_file: Option<PathBuf>,
    /// Shell command that prints the new key
    #[arg(long, value_name = "COMMAND", help_heading = "Key")]
    pub new_key_command: Option<String>,
    /// Write although postmaster.pid names a live process
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Rebuild a damaged container from its records.
///
/// Takes the map where it is whole, and where it is not the newest whole record of each page: that may be a version
/// that a crash had discarded. If pages are lost, says which and makes nothing, unless asked to put empty pages in
/// their place.
#[derive(Debug, Clone, Args)]
pub struct SalvageArgs {
    /// The damaged container, or its segment's directory
    pub source: PathBuf,
    /// The segment directory to make; must not be there yet
    pub dest: PathBuf,
    /// Put pages of zeros in the place of lost ones
    #[arg(long)]
    pub zero_lost: bool,
    /// Read although a server runs on these files
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Let a server start with containers that were copied.
///
/// Files of a running server that are copied one after the other are no backup: their parts are of different moments. A
/// server with compressed tables does not start on them. It cannot see that a copy was made from an atomic snapshot, or
/// of a server that had crashed and was not running; you can, and say so with this command. Every page is read first;
/// directories with damaged containers are not accepted. Run it as the server's user, or as root.
#[derive(Debug, Clone, Args)]
pub struct AcceptArgs {
    /// Data directories, tablespaces, or databases in them
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Write although postmaster.pid names a live process
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Tell whether a server's executable can have compressed tables.
///
/// The library puts functions of its own in the place of the file functions that the executable imports from the C library.
/// This looks at the imports, as the library does at start, at the C library and the processor that the executable was made
/// for, and at the version that it reports: PostgreSQL 15 to 18. Block size, segment size and io_method are looked at by
/// the server alone, when it starts with the library. BINARY is run with --version.
#[derive(Debug, Clone, Args)]
pub struct CheckServerArgs {
    /// The program postgres of the server
    pub binary: PathBuf,
    /// Print one JSON document
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Run a program that sees compressed files as plain ones.
///
/// For programs that work on the files of a stopped server: pg_rewind, pg_checksums, tar, cp. A library is preloaded into PROGRAM. It
/// replaces the C library's file functions, as the extension does in a server. What PROGRAM writes into a compressed file
/// is compressed; files that it makes are plain, except in encrypted tablespaces. All is committed when it exits.
///
/// PROGRAM has to be linked dynamically with glibc, may be neither a script nor setuid, and must do its file work itself: a program
/// that makes system calls itself (for example one written in Go) sees a directory in place of each compressed file. Child
/// programs get the library too. postgres does not; it uses shared_preload_libraries.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXEC_EXAMPLES)]
pub struct ExecArgs {
    /// Data directory of the stopped server
    ///
    /// Default: the value of PROGRAM's -D, --pgdata or --target-pgdata; else its only argument that is a data directory;
    /// else PGDATA.
    #[arg(long, value_name = "DIRECTORY")]
    pub data_directory: Option<PathBuf>,
    /// Refuse writing to compressed files, and run beside a running server too
    ///
    /// Of each compressed file PROGRAM sees the last commit, which the server's checkpoints make. What the server
    /// replaces meanwhile cannot be read and is an error; a copy of all files is no backup.
    #[arg(long)]
    pub read_only: bool,
    /// The library [default: libpgshrink_cfs_exec.so beside pgshrink, or in ../lib/pgshrink]
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

const EXEC_EXAMPLES: &str = "\
Examples:
  pgshrink cfs exec -- /usr/lib/postgresql/15/bin/pg_rewind -D /srv/pg/15/main --source-server='host=new dbname=postgres'
  pgshrink cfs exec -- /usr/lib/postgresql/15/bin/pg_checksums --check -D /srv/pg/15/main
  pgshrink cfs exec -- cp -a /srv/pg/15/main /restore/main
  pgshrink cfs exec --data-directory /srv/pg/15/main -- tar -C /srv/pg/15 -cf /backup/main.tar main

Exit codes:
  that of PROGRAM; 2 where it could not be run, or where what it wrote could not be committed";
