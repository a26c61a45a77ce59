//! What can go wrong around a test, worded so that a failing `unwrap()` explains itself.
//!
//! `Debug` prints what `Display` does: a test that unwraps shows the command, its output and the end of the
//! server's log instead of a nest of struct fields.

use std::fmt;
use std::io;
use std::time::Duration;

/// Everything the testkit reports.
#[non_exhaustive]
pub enum Error {
    /// Something the machine does not have; the test is skipped, never silently passed.
    Missing(Missing),
    /// A file or process operation failed.
    Io {
        /// What was being done, and to which path.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program ended with a failure.
    Command {
        /// The program and its arguments.
        command: String,
        /// Exit code or signal.
        status: String,
        /// What it said on stderr.
        stderr: String,
    },
    /// Something did not happen in time.
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// A server stopped or refused to start.
    Server {
        /// What happened.
        what: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// The test asked for something that makes no sense.
    Usage(String),
}

/// What sort of thing is lacking: a machine can promise some sorts and not others (see [`crate::skip`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program, a runtime, a client driver.
    Program,
    /// A browser, and what drives it.
    Browser,
    /// A PostgreSQL server of some major, or a feature of its build.
    Server,
    /// Root, or a capability of the kernel.
    Privilege,
    /// A corpus or a capture that is not part of the repository.
    Data,
}

/// A program, server, privilege or data set that this machine lacks, and how to get it.
#[derive(Clone, PartialEq, Eq)]
pub struct Missing {
    /// What sort of thing.
    pub kind: Kind,
    /// What is lacking: `PostgreSQL 18`.
    pub what: String,
    /// Where it was looked for and what was found instead.
    pub why: String,
    /// The command or setting that supplies it.
    pub get: String,
}

impl Missing {
    /// A report of the program `what`, lacking because of `why`, to be had by `get`.
    pub fn new(what: impl Into<String>, why: impl Into<String>, get: impl Into<String>) -> Self {
        Self { kind: Kind::Program, what: what.into(), why: why.into(), get: get.into() }
    }

    /// The same report of another sort of thing.
    pub fn of(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; get it by: {}", self.what, self.why, self.get)
    }
}

impl fmt::Debug for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Missing {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing(missing) => write!(f, "missing {missing}"),
            Error::Io { doing, source } => write!(f, "{doing}: {source}"),
            Error::Command { command, status, stderr } => {
                write!(f, "{command}: {status}\n{}", stderr.trim_end())
            }
            Error::Timeout { what, after } => write!(f, "waited {after:?} in vain for {what}"),
            Error::Server { what, log_tail } => write!(f, "{what}; the end of its log:\n{log_tail}"),
            Error::Usage(what) => f.write_str(what),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Missing(missing) => Some(missing),
            _ => None,
        }
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Error::Missing(missing)
    }
}

/// Names the operation an `io::Error` came from.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
