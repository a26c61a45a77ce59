//! `pgshrink cfs`: compressed relation files, offline.
//!
//! A shell around `pgshrink-cfs`: files, directories, keys, progress and output are here, everything that knows a format
//! is there. What is there already is never written to, but for the roots of containers by `rekey`, and guards by `accept`: what is made is made beside it,
//! and has its name when it is whole (`making`).

mod accept;
mod check_server;
mod container;
mod content;
mod copy;
mod damage;
mod dictionary;
mod estimate;
mod exec;
mod file;
mod info;
mod keys;
mod making;
mod manifest;
mod names;
pub(crate) mod output;
mod pack;
mod rekey;
mod running;
mod salvage;
mod tree;
mod unpack;
mod verify;
mod walk;

use crate::args::{CfsArgs, CfsCommand};
use crate::ending::{Damage, Ending, Fault};
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
    /// What is known about damage of a container.
    damage: Option<Box<Damage>>,
}

impl Failure {
    pub(crate) fn new(what: &Path, reason: impl Display) -> Failure {
        Failure { what: what.display().to_string(), reason: reason.to_string(), damage: None }
    }

    /// What damage was found in it.
    pub(crate) fn damaged(path: &Path, damage: Damage) -> Failure {
        Failure { damage: Some(Box::new(damage.clone())), ..Failure::new(path, damage) }
    }

    /// Of a container that does not open.
    pub(crate) fn opening(path: &Path, error: &pgshrink_cfs::Error) -> Failure {
        let damage = error.is_damage().then(|| Box::new(Damage::from(error)));
        Failure { damage, ..Failure::new(path, error) }
    }

    fn ending(&self) -> Ending {
        let fault = |damage: &Damage| Fault { path: self.what.clone(), damage: damage.clone() };
        let damage = self.damage.as_deref().map(fault);
        Ending { message: self.to_string(), sqlstate: None, damage }
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

    /// Of containers with damage, or that could not be looked at.
    pub(crate) fn of_faults(is_damaged: bool, is_unknown: bool) -> Verdict {
        if is_unknown && !is_damaged { Verdict::Unknown } else { Verdict::of(!is_damaged) }
    }
}

fn is_json(command: &CfsCommand) -> bool {
    match command {
        CfsCommand::Info(args) => args.output.json,
        CfsCommand::Verify(args) => args.output.json,
        CfsCommand::Estimate(args) => args.output.json,
        CfsCommand::Unpack(args) => args.output.json,
        CfsCommand::Pack(args) => args.output.json,
        CfsCommand::Rekey(args) => args.output.json,
        CfsCommand::Salvage(args) => args.output.json,
        CfsCommand::Accept(args) => args.output.json,
        CfsCommand::CheckServer(args) => args.json,
        CfsCommand::Exec(_) => false,
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
        CfsCommand::Accept(args) => accept::run(args),
        CfsCommand::CheckServer(args) => check_server::run(args),
        CfsCommand::Exec(args) => exec::run(args),
    };
    match done {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Problem) => ExitCode::from(crate::EXIT_PROBLEM),
        Ok(Verdict::Unknown) => ExitCode::from(crate::EXIT_FAILED),
        Err(failure) => {
            failure.ending().tell(is_json(&args.command));
            ExitCode::from(crate::EXIT_FAILED)
        }
    }
}
