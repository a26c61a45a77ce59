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
use crate::ending::{Damaged, Ending};
use container::NoMeans;
use damage::Damage;
use serde::Serialize;
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

    /// Of a container that does not open.
    pub(crate) fn opening(path: &Path, error: &pgshrink_cfs::Error) -> Failure {
        let damage = error.is_damage().then(|| Box::new(Damage::from(error)));
        Failure { damage, ..Failure::new(path, error) }
    }

    fn ending(&self) -> Ending {
        let damaged = |damage: &Damage| Damaged { what: self.what.clone(), reason: damage.to_string() };
        let damage = self.damage.as_deref().map(damaged);
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

    /// Of what is wrong with containers. One that lacks nothing but its key could not be looked at.
    pub(crate) fn of_problems<'p>(problems: impl Iterator<Item = &'p Problem> + Clone) -> Verdict {
        let is_any = problems.clone().next().is_some();
        let good = problems.clone().all(|problem| problem.is_for_want_of_key);
        if good && is_any { Verdict::Unknown } else { Verdict::of(good) }
    }
}

/// What is wrong with a container, as a report has it.
#[derive(Debug, Serialize, thiserror::Error)]
#[serde(transparent)]
#[error("{text}")]
pub(crate) struct Problem {
    text: String,
    /// Another key may open it: the container is not at fault.
    #[serde(skip)]
    is_for_want_of_key: bool,
}

impl From<String> for Problem {
    fn from(text: String) -> Problem {
        Problem { text, is_for_want_of_key: false }
    }
}

impl From<NoMeans> for Problem {
    fn from(reason: NoMeans) -> Problem {
        Problem { text: reason.to_string(), is_for_want_of_key: reason.is_for_want_of_key() }
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
