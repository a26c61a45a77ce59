//! `pgshrink run`: one command, its connections compressed.
//!
//! [`rewrite`] decides what is different for the command, without doing anything; [`plan`] is that decision. What
//! remains is a thin shell: a private directory, connectors in this process, and the command beside them.

mod child;
mod connector;
mod error;
mod options;
pub mod plan;
mod private;
mod private_dir;
mod programs;
pub mod rewrite;
mod site;
mod speaker;
pub mod summary;

pub(crate) use child::ignored_signals;
pub use error::RunError;

use crate::args::{Dialect, LogFormat, LogLevel, RunArgs};
use crate::surroundings;
use child::Signals;
use plan::Plan;
use private_dir::PrivateDir;
use rewrite::Request;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// The command could not be run.
const EXIT_CANNOT_RUN: u8 = 126;
/// The command was not found.
const EXIT_NOT_FOUND: u8 = 127;

/// Runs the command, and returns its exit code.
pub(crate) fn main(args: &RunArgs) -> ExitCode {
    match run(args) {
        // A status is 8 bits wide.
        Ok(code) => ExitCode::from(code as u8),
        Err(error) => {
            eprintln!("pgshrink: {error}");
            ExitCode::from(match &error {
                RunError::Spawn { source, .. } if source.kind() == ErrorKind::NotFound => EXIT_NOT_FOUND,
                RunError::Spawn { .. } => EXIT_CANNOT_RUN,
                _ => crate::EXIT_FAILED,
            })
        }
    }
}

fn run(args: &RunArgs) -> Result<i32, RunError> {
    let level = if args.verbose > 1 { LogLevel::Info } else { LogLevel::Error };
    crate::log::start(level, LogFormat::Text);
    let around = surroundings::of_process();
    let argv: Vec<Vec<u8>> = args.command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let compression = args.compression.as_deref();
    let command = args.command.first().map(OsString::as_os_str).unwrap_or_default();
    let speaks = compression.is_none() && speaker::speaks(command, std::env::var_os("PATH").as_deref());
    let plan_in = |private_dir: &Path| {
        let required = args.required;
        rewrite::plan(&Request { argv: &argv, compression, required, speaks, around: &around, private_dir })
    };
    // Most commands need no directory, and then none is made.
    let mut plan = plan_in(Path::new("/"))?;
    if plan.stand_ins.is_empty() && plan.files.is_empty() {
        tell(args, &plan);
        return Err(child::become_command(&plan));
    }
    let signals = Signals::listen()?;
    let private = PrivateDir::make()?;
    plan = plan_in(private.path())?;
    tell(args, &plan);
    plan.stand_ins.iter().try_for_each(|stand_in| private.add_dir(&stand_in.dir))?;
    plan.files.iter().try_for_each(|file| private.add_file(file))?;
    let dialect = args.dialect.unwrap_or(Dialect::Ack);
    let connectors = connector::start(&plan, dialect.name(), args.required)?;
    let code = signals.run(&plan);
    let summary = connectors.end();
    let code = code?;
    let bypassed = summary.arrived == 0 && !plan.stand_ins.is_empty();
    let summary = summary.to_string();
    // A command whose connections all failed has said so itself. Without stand-ins none was to be compressed.
    if !args.quiet && !plan.stand_ins.is_empty() && !summary.is_empty() {
        eprintln!("pgshrink: {summary}");
    }
    Ok(if args.required && bypassed && code == 0 { crate::EXIT_FAILED.into() } else { code })
}

fn tell(args: &RunArgs, plan: &Plan) {
    if args.verbose > 0 {
        plan.notes.iter().for_each(|note| eprintln!("pgshrink: {note}"));
        if plan.stand_ins.is_empty() {
            eprintln!("pgshrink: nothing is compressed");
        }
    }
    plan.warnings.iter().for_each(|warning| eprintln!("pgshrink: warning: {warning}"));
}
