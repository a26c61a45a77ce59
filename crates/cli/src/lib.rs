//! The command line of pgshrink: arguments, output, exit codes.
//!
//! ```text
//!   args ──> settings <── config_file      gateway, connect: what the gateway crate runs
//!   args ──> run::rewrite ──> run::plan    run: what is different for the command
//!            run::child                    and the command itself
//!   args ──> backup                        physical backups
//!   args ──> advise                        what a database's layout wastes
//!   args ──> cfs                           compressed relation files, offline
//!   args ──> decode                        captured sessions
//! ```
//!
//! Exit codes: 0 done, 1 checked and found a problem, 2 could not run; `run` has its command's.

pub mod advise;
pub mod args;
mod backup;
mod backup_config;
mod cfs;
pub mod config_file;
mod decode;
mod end_with_parent;
mod ending;
pub mod environment;
mod error;
mod log;
mod manual;
pub mod run;
mod server_spec;
pub mod settings;
mod surroundings;
mod target_spec;
mod toml_words;

pub use error::Error;

use args::{Cli, Command, ConnectArgs, GatewayArgs};
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

/// Checked, and found a problem.
const EXIT_PROBLEM: u8 = 1;
/// Could not run.
const EXIT_FAILED: u8 = 2;

/// Runs the program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Wrong arguments end here, with exit code 2; help and version with 0.
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = Cli::read(&args).unwrap_or_else(|error| {
        ending::tell_of_arguments(&args, &error);
        error.exit()
    });
    warn_of_environment(&cli.command);
    let result = match cli.command {
        Command::Gateway(args) => gateway(&args),
        Command::Connect(args) => connect(&args),
        Command::Run(args) => return run::main(&args),
        Command::Backup(args) => return backup::backup(&args),
        Command::Restore(args) => return backup::restore(&args),
        Command::Verify(args) => return backup::verify(&args),
        Command::List(args) => return backup::list(&args),
        Command::Expire(args) => return backup::expire(&args),
        Command::Advise(args) => return advise::main(&args),
        Command::Cfs(args) => return cfs::main(&args),
        Command::Decode(args) => return decode::main(&args),
        Command::EndWithParent(args) => return end_with_parent::main(&args),
        Command::Completions { shell } => {
            manual::completions(shell, &mut io::stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Man { dir } => manual::man(dir.as_deref(), &mut io::stdout()).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("pgshrink: {error}");
        ExitCode::from(EXIT_FAILED)
    })
}

fn gateway(args: &GatewayArgs) -> Result<ExitCode, Error> {
    if args.service.check {
        return Ok(checked(&settings::gateway_problems(args)));
    }
    let settings = settings::gateway(args)?;
    start_log("gateway", &settings);
    let again = args.clone();
    pgshrink_gateway::run_gateway(settings.config, move || reloaded(settings::gateway(&again)))?;
    Ok(ExitCode::SUCCESS)
}

fn connect(args: &ConnectArgs) -> Result<ExitCode, Error> {
    if args.service.check {
        return Ok(checked(&settings::connector_problems(args)));
    }
    let settings = settings::connector(args)?;
    start_log("connect", &settings);
    let again = args.clone();
    pgshrink_gateway::run_connector(settings.config, move || reloaded(settings::connector(&again)))?;
    Ok(ExitCode::SUCCESS)
}

/// What a service logs at its start, warnings first.
fn start_log<T>(command: &str, settings: &settings::Settings<T>) {
    log::start(settings.log_level, settings.log_format);
    let environment = environment::warnings(command, variables());
    settings.warnings.iter().chain(&environment).for_each(|warning| tracing::warn!("{warning}"));
}

/// On standard error, but where the log has it or the output is for a program that no operator starts.
fn warn_of_environment(command: &Command) {
    let (name, is_silent) = match command {
        Command::Gateway(args) => ("gateway", !args.service.check),
        Command::Connect(args) => ("connect", !args.service.check),
        Command::Run(args) => ("run", args.quiet),
        Command::EndWithParent(_) | Command::Completions { .. } | Command::Man { .. } => ("", true),
        // Others have their name in their variables.
        _ => ("", false),
    };
    if !is_silent {
        environment::warnings(name, variables())
            .iter()
            .for_each(|warning| eprintln!("pgshrink: warning: {warning}"));
    }
}

fn variables() -> impl Iterator<Item = OsString> {
    std::env::vars_os().map(|(name, _)| name)
}

fn checked(problems: &[Error]) -> ExitCode {
    problems.iter().for_each(|problem| eprintln!("pgshrink: {problem}"));
    match problems {
        [] => ExitCode::SUCCESS,
        // Nothing was checked.
        [Error::ConfigUnreadable { .. }] => ExitCode::from(EXIT_FAILED),
        _ => ExitCode::from(EXIT_PROBLEM),
    }
}

fn reloaded<T>(settings: Result<settings::Settings<T>, Error>) -> Result<T, pgshrink_gateway::Error> {
    settings.map(|settings| settings.config).map_err(|error| match error {
        Error::Service(error) => error,
        other => {
            pgshrink_gateway::Error::Config { item: "configuration".to_owned(), reason: other.to_string() }
        }
    })
}
