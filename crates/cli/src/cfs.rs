//! `pgshrink cfs`: compressed relation files, offline.
//!
//! A shell around `pgshrink-cfs`: files, directories, keys, progress and output are here, everything that knows a format
//! is there. What is there already is never written to, but for the roots of containers by `rekey`: what is made is made beside it,
//! and has its name when it is whole (`making`).

mod container;
mod content;
mod copy;
mod dictionary;
mod estimate;
mod file;
mod info;
mod keys;
mod making;
mod manifest;
mod names;
mod output;
mod pack;
mod rekey;
mod relation;
mod running;
mod salvage;
mod tree;
mod unpack;
mod verify;
mod walk;

use crate::args::{CfsArgs, CfsCommand};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Why a subcommand could not do its work, or a file its part: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub(crate) struct Failure {
    what: String,
    reason: String,
}

impl Failure {
    pub(crate) fn new(what: &Path, reason: impl Display) -> Failure {
        Failure { what: what.display().to_string(), reason: reason.to_string() }
    }

    /// For `map_err` of what was tried with `path`.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::new(path, error)
    }
}

/// Whether what was looked at is as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Good,
    Problem,
    /// Not all could be looked at; standard error says why.
    Unknown,
}

impl Verdict {
    pub(crate) fn of(good: bool) -> Verdict {
        if good { Verdict::Good } else { Verdict::Problem }
    }
}

/// Runs the subcommand.
pub(crate) fn main(args: &CfsArgs) -> ExitCode {
    let done = match &args.command {
        CfsCommand::Info(args) => info::run(args),
        CfsCommand::Verify(args) => verify::run(args),
        CfsCommand::Estimate(args) => estimate::run(args),
        CfsCommand::Unpack(args) => unpack::run(args),
        CfsCommand::Pack(args) => pack::run(args),
        CfsCommand::Rekey(args) => rekey::run(args),
        CfsCommand::Salvage(args) => salvage::run(args),
    };
    match done {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Problem) => ExitCode::from(crate::EXIT_PROBLEM),
        Ok(Verdict::Unknown) => ExitCode::from(crate::EXIT_FAILED),
        Err(error) => {
            eprintln!("pgshrink: {error}");
            ExitCode::from(crate::EXIT_FAILED)
        }
    }
}
