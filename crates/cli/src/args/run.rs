//! `pgshrink run`.

use super::Dialect;
use clap::Args;
use std::ffi::OsString;

/// Run one command with its connections compressed.
///
/// Starts a private connector, runs the command through it, and exits with the command's exit code. pgshrink reads
/// where the command will connect to from its connection string, -h and -p (for PostgreSQL's own programs), service
/// file and environment, as libpq does. Only the host is replaced. Password prompts, .pgpass, several hosts, sslmode and its certificates, signals and
/// the exit code work as they do without pgshrink.
///
/// Request compression with `compression=LIST` in the connection string or service, with --compression, or with
/// PGCOMPRESSION; the first of these that is set applies. `off` means none. If none of them is set, the command runs
/// unchanged. A list may also be written as `zstd:level=3;lz4`, the option syntax of libpq with the part 3 patch.
///
/// A program that asks for compression itself (such as psql with that patch) keeps its own option and is not changed,
/// unless --compression is given. At the end, pgshrink prints on standard error what was saved, or why nothing was
/// saved.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Algorithms to ask for if the connection string does not name any, in order of preference
    #[arg(long, value_name = "LIST")]
    pub compression: Option<String>,
    /// Fail instead of continuing without compression
    ///
    /// A program that sets its host or port itself, for example in a script, bypasses pgshrink. If the command exits
    /// with 0 but opened no connection through pgshrink, the exit code is 2.
    #[arg(long)]
    pub required: bool,
    /// How to negotiate compression
    #[arg(long, env = "PGSHRINK_DIALECT")]
    pub dialect: Option<Dialect>,
    /// Print on standard error which connections are compressed; give it twice for the connector's log
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Do not print the summary of savings at the end
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  pgshrink run -- psql \"host=db.example port=6432 dbname=sales compression=zstd:1,lz4:2,zlib\"
  pgshrink run -- psql 'postgresql://ann@db.example:6432/sales?compression=zstd:1'
  pgshrink run --compression zstd:3 -- pg_dump -h db.example -p 6432 -Fc sales -f sales.dump
  PGHOST=db.example PGPORT=6432 PGCOMPRESSION=lz4 pgshrink run -- ./nightly-report.sh

In the arguments of programs other than PostgreSQL's, only URIs and strings with compression=
are treated as connection strings. Settings that cannot work through a proxy are errors:
channel_binding=require, gssencmode=require.

Exit codes:
  that of the command; 128 + N if signal N ended it
  126  the command could not be run
  127  the command was not found
  2    pgshrink failed; with --required also if the command exited with 0
       but opened no connection through pgshrink";
