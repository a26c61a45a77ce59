//! What ends pgshrink with exit code 2, and what `--check` finds.

use crate::run::RunError;
use std::io;
use std::path::PathBuf;

/// Why a subcommand could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each text says what its fields are")]
pub enum Error {
    /// The configuration file is not there or cannot be read.
    #[error("cannot read configuration file {}: {source}", path.display())]
    ConfigUnreadable { path: PathBuf, source: io::Error },
    /// The configuration file says something that is not understood.
    #[error("{}:{line}: {reason}", path.display())]
    ConfigFile { path: PathBuf, line: usize, reason: String },
    /// A flag or variable says something that is not understood.
    #[error("{flag}: {reason}")]
    Flag { flag: &'static str, reason: String },
    /// A flag needs another.
    #[error("{flag} needs {other} as well")]
    Incomplete { flag: &'static str, other: &'static str },
    /// The gateway or connector could not be started, or ended with an error.
    #[error(transparent)]
    Service(#[from] pgshrink_gateway::Error),
    /// `pgshrink run`.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A capture is not there, or is none.
    #[error("cannot read capture {}: {reason}", path.display())]
    Capture { path: PathBuf, reason: String },
    /// Completions and manual pages.
    #[error("cannot write {what}: {source}")]
    Write { what: String, source: io::Error },
}
