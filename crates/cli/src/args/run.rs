//! `pgshrink run`.

use super::Dialect;
use clap::Args;
use std::ffi::OsString;

/// Run one command with its connections compressed.
///
/// Starts a private connector, points the command at it, and ends with it. The command is asked where it connects by
/// reading its connection string, -h and -p (PostgreSQL's own programs), service and environment as libpq does; only
/// the host is replaced. Password prompts, .pgpass, several hosts, sslmode and its certificates, signals and the exit
/// code work as without it.
///
/// Compression is asked for by `compression=LIST` in the connection string or service, by --compression or by
/// PGCOMPRESSION; the first of these that is there counts. `off` means none. Without any of them the command runs
/// unchanged. A list may also be written as `zstd:level=3;lz4`, as libpq of the part 3 patch takes it.
///
/// A program that asks for compression itself (psql of that patch) is left alone with its own option, unless --compression is
/// given. At its end the run says on standard error what was saved, or why nothing was.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Algorithms to ask for where the connection string does not say, best liked first
    #[arg(long, value_name = "LIST")]
    pub compression: Option<String>,
    /// Fail rather than go on without compression
    ///
    /// A program that names its host or port itself, in a script for example, goes past pgshrink. If no connection at all
    /// came to pgshrink, a command that ended with 0 ends with 2.
    #[arg(long)]
    pub required: bool,
    /// How to ask
    #[arg(long, env = "PGSHRINK_DIALECT")]
    pub dialect: Option<Dialect>,
    /// Say on standard error which connections are compressed; twice for the connector's log
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Do not say at the end what was saved
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  pgshrink run -- psql \"host=db.example port=6432 dbname=sales compression=zstd:1,lz4:2,zlib\"
  pgshrink run -- psql 'postgresql://ann@db.example:6432/sales?compression=zstd:1'
  pgshrink run --compression zstd:3 -- pg_dump -h db.example -p 6432 -Fc sales -f sales.dump
  PGHOST=db.example PGPORT=6432 PGCOMPRESSION=lz4 pgshrink run -- ./nightly-report.sh

In the arguments of programs that are not PostgreSQL's, only URIs and strings with compression=
are taken for connection strings. What cannot work with something in between is an error:
channel_binding=require, gssencmode=require.

Exit codes:
  that of the command; 128 + N if signal N ended it
  126  the command could not be run, 127 it was not found
  2    pgshrink could not do its part; with --required also if the command ended
       with 0 and opened no connection through pgshrink";
