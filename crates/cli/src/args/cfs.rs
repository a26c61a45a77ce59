//! `pgshrink cfs` and its subcommands.

use clap::{ArgAction, Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Inspect, check and convert compressed relation files, offline.
///
/// Works on files and directories of a stopped server, or on copies of them, and does not connect to a server.
/// `estimate` only reads plain relation files, and may run while the server is running.
#[derive(Debug, Clone, Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct CfsArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: CfsCommand,
}

const EXAMPLES: &str = "\
Examples:
  See what a database would gain, without changing anything:
    pgshrink cfs estimate /var/lib/postgresql/15/main
    pgshrink cfs estimate --algorithms zstd:1,zstd:9 --json base/16384/16397

  Convert to containers and back, without changing the source:
    pgshrink cfs pack base/16384 /backup/packed/16384
    pgshrink cfs verify /backup/packed/16384
    pgshrink cfs unpack /backup/packed/16384 /restore/16384

  Encrypted containers:
    pgshrink cfs info --key-file /etc/pgshrink/master.key /srv/pg/PG_15_202209061
    pgshrink cfs pack --seal --key-command 'vault read -field=key pg/master' base/16384 sealed
    pgshrink cfs rekey --key-file old.key --new-key-file new.key sealed

  Let a server start after its files were restored from a snapshot:
    pgshrink cfs accept /var/lib/postgresql/15/main

  Before you upgrade a server with compressed tables:
    pgshrink cfs check-server /usr/lib/postgresql/18/bin/postgres

  Make an old primary with compressed tables a standby of the new one:
    pgshrink cfs exec -- pg_rewind -D /srv/pg/15/main --source-server='host=new dbname=postgres'

Exit codes:
  0  done
  1  found damage, pages that cannot be recovered, or an unsupported server
  2  could not run, including a missing or wrong key";

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
    /// Do not show a progress bar (shown on a terminal by default)
    #[arg(long, short, help_heading = "Output", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub quiet: bool,
}

/// Where the master key of sealed containers comes from.
#[derive(Debug, Clone, Default, Args)]
pub struct KeyArgs {
    /// File with the encryption key; others must not be able to read it
    ///
    /// 64 hexadecimal digits or 44 characters of base64 are a key, anything else is a passphrase. May be repeated: all
    /// are tried, files before commands; new containers use the first. Without --key-file and --key-command, the
    /// variable PG_CIPHER_KEY is used.
    #[arg(long, value_name = "FILE", help_heading = "Key")]
    pub key_file: Vec<PathBuf>,
    /// Shell command that prints the key. May be repeated
    #[arg(long, value_name = "COMMAND", help_heading = "Key")]
    pub key_command: Vec<String>,
}

/// Show containers' metadata.
///
/// Shows the segment, its size, the algorithms, how much of the file is garbage, and which key is needed. Without the
/// key of an encrypted container, shows only what its header contains in clear.
#[derive(Debug, Clone, Args)]
pub struct InfoArgs {
    /// Containers, or directories to search for them
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Check that packed trees are complete and that every page can be decoded.
///
/// Compares each tree with the manifest that `pack` writes last, and lists files that are missing, extra or changed,
/// whether they are containers or not. Reads and decodes every page of every container, and lists all damage with block
/// and position. A tree without a manifest is refused, because its `pack` was interrupted. With a key, everything in
/// the tree must be encrypted, unless --allow-plain is given.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// Packed trees, or directories or containers in them
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Check only the containers, without a manifest
    #[arg(long)]
    pub no_manifest: bool,
    /// With a key, also accept unencrypted files, as a server's encrypted tablespace has
    #[arg(long)]
    pub allow_plain: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Measure how small plain relation files would become, and how fast compression would be.
///
/// Runs the page codec on pages of each relation, with a dictionary trained on the first 100, as in a compressed
/// tablespace, and counts what a container would take, including record headers, rounding, page map and roots. Uses one
/// thread, and writes nothing. Tables are shown by name if their database's pg_class can be
/// read, and summed as tables, indexes and catalogs.
#[derive(Debug, Clone, Args)]
pub struct EstimateArgs {
    /// Relation files, or directories: a database, a tablespace, a whole data directory
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Algorithms and levels to try [default: lz4,zstd:1,zstd:3]
    ///
    /// With --all: lz4,snappy,pglz,zlib:6,lzfse,zstd:1,zstd:3.
    #[arg(long, value_name = "LIST", help_heading = "Measuring")]
    pub algorithms: Option<String>,
    /// Pages of each relation to measure, evenly spread; 0 for all [default: 2000]
    #[arg(long, value_name = "COUNT", help_heading = "Measuring")]
    pub pages: Option<u32>,
    /// Do not use a dictionary
    #[arg(long, help_heading = "Measuring")]
    pub no_dictionary: bool,
    /// Do not rearrange pages before compression
    #[arg(long, help_heading = "Measuring")]
    pub no_transform: bool,
    /// List all relations, not only the 20 largest, and try seven algorithms
    ///
    /// The table is then as wide as it needs to be. --json always has all relations.
    #[arg(long, help_heading = "Output")]
    pub all: bool,
    /// Do not list relations with fewer pages; they count in the total [default: 5]
    #[arg(long, value_name = "PAGES", help_heading = "Output")]
    pub min_pages: Option<u32>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Unpack containers into plain PostgreSQL files.
///
/// Copies SOURCE to DEST: each container becomes the plain file that was packed, byte for byte; other files are copied
/// unchanged. Damaged files are left out and listed, and so are files that the manifest lists but that do not exist.
/// DEST gets its name when everything in it is durable; until then it is called DEST.incomplete. With a key, everything
/// in SOURCE must be encrypted, unless --allow-plain is given.
#[derive(Debug, Clone, Args)]
pub struct UnpackArgs {
    /// A container, a segment's directory, or a directory that contains them
    pub source: PathBuf,
    /// What to create; must not exist
    pub dest: PathBuf,
    /// Unpack without a manifest, without checking for completeness
    #[arg(long)]
    pub no_manifest: bool,
    /// With a key, also accept unencrypted files, as a server's encrypted tablespace has
    #[arg(long)]
    pub allow_plain: bool,
    /// Read even if a server is using these files
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Pack plain relation files into containers.
///
/// Copies SOURCE to DEST: each relation file of a database directory becomes a container; other files, and relations
/// too small to benefit, are copied unchanged. With --seal, every file goes into an encrypted container. Every page is
/// read back and compared, and a manifest lists all files. DEST gets its name when everything in it is durable; until
/// then it is called DEST.incomplete. The symbolic links of tablespaces and of pg_wal are followed.
#[derive(Debug, Clone, Args)]
pub struct PackArgs {
    /// A relation file, or a directory that contains them
    pub source: PathBuf,
    /// What to create; must not exist
    pub dest: PathBuf,
    /// Algorithm and level [default: zstd:1]
    #[arg(long, value_name = "ALGORITHM", help_heading = "Compression")]
    pub compression: Option<String>,
    /// Do not use a dictionary
    #[arg(long, help_heading = "Compression")]
    pub no_dictionary: bool,
    /// Encrypt all files with the first key; a key without --seal is refused
    #[arg(long, help_heading = "Key")]
    pub seal: bool,
    /// Pack even if postmaster.pid names a live process, or a tablespace's link points to nothing
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Change the master key of encrypted containers.
///
/// Rewrites only the roots of containers, in place, and no pages. Copies made before still open with the old key.
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "pgshrink cfs rekey [OPTIONS] <--new-key-file <FILE>|--new-key-command <COMMAND>> <PATH>..."
)]
#[command(group(clap::ArgGroup::new("new_key").required(true).args(["new_key_file", "new_key_command"])))]
pub struct RekeyArgs {
    /// Containers, or directories to search for them
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// File with the new key; the other keys open the existing containers
    #[arg(long, value_name = "FILE", help_heading = "Key")]
    pub new_key_file: Option<PathBuf>,
    /// Shell command that prints the new key
    #[arg(long, value_name = "COMMAND", help_heading = "Key")]
    pub new_key_command: Option<String>,
    /// Write even if postmaster.pid names a live process
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
/// Uses the page map where it is intact, otherwise the newest intact record of each page, which may be a version that a
/// crash had discarded. If pages are lost, lists them and creates nothing, unless --zero-lost is given.
#[derive(Debug, Clone, Args)]
pub struct SalvageArgs {
    /// The damaged container, or its segment's directory
    pub source: PathBuf,
    /// The segment directory to create; must not exist
    pub dest: PathBuf,
    /// Replace lost pages with zeroed pages
    #[arg(long)]
    pub zero_lost: bool,
    /// Read even if a server is using these files
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Let a server start with copied containers.
///
/// Copying the files of a running server one after another does not make a backup, because the parts are from different
/// moments. A server with compressed tables does not start on such a copy. It cannot tell that a copy was made from an
/// atomic snapshot, or of a server that had crashed and was not running. If you know that, confirm it with this
/// command. It reads every page first, and does not accept directories with damaged containers. Run it as the server's
/// user or as root.
#[derive(Debug, Clone, Args)]
pub struct AcceptArgs {
    /// Data directories, tablespaces, or databases in them
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Write even if postmaster.pid names a live process
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Check whether a postgres executable supports compressed tables.
///
/// The library replaces the file functions that the executable imports from the C library. This command checks these
/// imports, as the library does at start, the C library and the processor that the executable was built for, and the
/// version that BINARY --version prints: PostgreSQL 15 to 18. Block size, segment size and io_method are checked only
/// by the server, when it starts with the library.
#[derive(Debug, Clone, Args)]
pub struct CheckServerArgs {
    /// The server's postgres executable
    pub binary: PathBuf,
    /// Print one JSON document
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Run a program that sees compressed files as plain ones.
///
/// For programs that work on the files of a stopped server: pg_rewind, pg_checksums, tar, cp. A library is preloaded
/// into PROGRAM. It replaces the C library's file functions, as the extension does in a server. What PROGRAM writes
/// into a compressed file is compressed; files that it creates are plain, except in encrypted tablespaces. Everything
/// is committed when it exits.
///
/// PROGRAM must be linked dynamically with glibc, must not be a script or setuid, and must access files itself, through
/// glibc: a program that makes its own system calls (for example one written in Go) sees a directory in place of each
/// compressed file. Programs that it starts get the library too, except postgres, which uses shared_preload_libraries.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXEC_EXAMPLES)]
pub struct ExecArgs {
    /// Data directory of the stopped server
    ///
    /// Default: the value of PROGRAM's -D, --pgdata or --target-pgdata; else its only argument that is a data directory;
    /// else PGDATA.
    #[arg(long, value_name = "DIRECTORY")]
    pub data_directory: Option<PathBuf>,
    /// Refuse writes to compressed files; this also works while the server is running
    ///
    /// PROGRAM sees each compressed file as of its last commit, which the server's checkpoints make. If the server
    /// replaces it meanwhile, that is an error. A copy of all files is not a backup.
    #[arg(long)]
    pub read_only: bool,
    /// The library [default: libpgshrink_cfs_exec.so beside pgshrink, or in ../lib/pgshrink]
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub key: KeyArgs,
    /// The program and its arguments
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
  that of PROGRAM; 2 if it could not be run, or if what it wrote could not be committed";
