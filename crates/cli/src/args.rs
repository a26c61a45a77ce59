//! The command line: every flag with its name, help, environment variable and place in the configuration file.
//!
//! Strength: flag, `PGSHRINK_*` variable, configuration file, default. So no flag has a default here; [`command`]
//! writes those of the configuration into the help.

mod advise;
mod backup;
mod cfs;
mod connect;
mod decode;
mod defaults;
mod end_with_parent;
mod gateway;
mod plain_words;
mod run;
mod shared_flags;
mod source_of_value;

pub use advise::AdviseArgs;
pub use backup::{
    BackupArgs, BackupFormat, BackupKeyArgs, BackupRoute, BootArgs, CheckpointMode, ConfigurationMode,
    ExpireArgs, FromArgs, ListArgs, RestoreArgs, VerifyBackupArgs,
};
pub use cfs::{
    AcceptArgs, CfsArgs, CfsCommand, CheckServerArgs, EstimateArgs, ExecArgs, InfoArgs, KeyArgs, OutputArgs,
    PackArgs, RekeyArgs, SalvageArgs, UnpackArgs, VerifyArgs,
};
pub use connect::ConnectArgs;
pub use decode::DecodeArgs;
pub use end_with_parent::EndWithParentArgs;
pub use gateway::GatewayArgs;
pub use run::RunArgs;
pub use shared_flags::{LogArgs, LogFormat, LogLevel, ObservationArgs, PolicyArgs, ServiceArgs, SocketArgs};

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Compress PostgreSQL's network traffic, files and backups.
///
/// On the wire, a gateway beside the server and a connector beside the client compress PostgreSQL's own protocol
/// between them with zstd, lz4 or zlib, as agreed by both ends. Client and server need no changes.
#[derive(Debug, Parser)]
#[command(name = "pgshrink", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  Beside the server:
    pgshrink gateway --listen 0.0.0.0:6432 --server host=127.0.0.1,port=5432

  Beside a client:
    pgshrink connect --listen 127.0.0.1:5433 --target db.example:6432
    psql -h 127.0.0.1 -p 5433 mydb

  Take a backup, with everything that a restore needs:
    pgshrink backup \"host=db user=replicator\" --to /backups

  For one command:
    pgshrink run -- psql \"host=db.example port=6432 dbname=mydb compression=zstd:1\"

Exit codes:
  0  done
  1  checked, and found a problem
  2  could not run: invalid arguments, invalid configuration, no such file
  `pgshrink run` exits with the code of its command.";

/// What to do.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "parsed once")]
pub enum Command {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Gateway(GatewayArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Connect(ConnectArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Run(RunArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Backup(BackupArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Restore(RestoreArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Verify(VerifyBackupArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    List(ListArgs),
    #[allow(missing_docs)]
    Expire(ExpireArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Cfs(CfsArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Advise(AdviseArgs),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Decode(DecodeArgs),
    /// Run a program that ends when this process's parent does
    #[command(hide = true)]
    EndWithParent(EndWithParentArgs),
    /// Print a completion script for a shell
    ///
    /// Put it where the shell looks for such scripts, for example:
    ///   pgshrink completions bash > /usr/share/bash-completion/completions/pgshrink
    #[command(verbatim_doc_comment)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all pages
    Man {
        /// Write man1/pgshrink.1, man5/pgshrink-gateway.toml.5 and all other pages below this directory
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// The definition of the command line, defaults in the help.
pub fn command() -> clap::Command {
    defaults::state(Cli::command())
}

impl Cli {
    /// Reads the arguments, the program's name first.
    pub fn read(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let (mut command, places) = crate::backup_config::apply(command(), &args)?;
        let matches = command.try_get_matches_from_mut(&args).map_err(|error| {
            let source = source_of_value::of(&error, &command, &args, &places);
            plain_words::of(error, source)
        })?;
        if let Some(Err(message)) = matches.subcommand_matches("advise").map(advise::check) {
            return Err(refused(&mut command, "advise", ErrorKind::ArgumentConflict, message));
        }
        if let Some(Err(message)) = matches.subcommand_matches("verify").map(crate::backup_config::check_boot)
        {
            return Err(refused(&mut command, "verify", ErrorKind::MissingRequiredArgument, message));
        }
        let mut cli = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if let (Command::Backup(args), Some(matches)) =
            (&mut cli.command, matches.subcommand_matches("backup"))
        {
            crate::backup_config::leave_out(args, matches);
        }
        Ok(cli)
    }
}

/// How the connector asks for compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// Startup key `_pq_.compression`, answered before authentication (CompressionAck, SetCompressionMethod,
    /// CompressedData); used by Amazon Redshift's drivers
    Ack,
    /// Startup key `_pq_.libpq_compression`, answered after authentication by a setting; each algorithm change
    /// restarts the stream
    Restart,
}

impl Dialect {
    /// As written in the configuration file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Restart => "restart",
        }
    }
}

/// With the usage of the subcommand.
fn refused(command: &mut clap::Command, name: &str, kind: ErrorKind, message: String) -> clap::Error {
    match command.find_subcommand_mut(name) {
        Some(subcommand) => subcommand.error(kind, message),
        None => command.error(kind, message),
    }
}
