//! Which backups `expire` removes: a plan from the list of a repository's backups and the rules.
//!
//! 1. A backup that a rule keeps is kept, and with it, transitively, what it depends on.
//! 2. The newest complete backup of each system identifier is kept, whatever the rules say.
//! 3. Ages are distances from the stop time of the newest complete backup with the same system identifier, by
//!    the servers' clocks. When backups are no longer made, none gets too old. The local clock can keep
//!    backups but never remove any ([`Rules::now`]). Systems are apart, so that a wrong clock of one removes
//!    nothing of another.
//! 4. On one timeline, LSNs grow with time, and a backup ended before what depends on it did. A stop time
//!    that contradicts this was given by a clock that was ahead, and counts as the time of the later backup.
//! 5. A backup in progress is kept, and what it depends on, unless it is named, or unless
//!    [`Rules::remove_abandoned`] is set and its lease was seen to be silent. Its writer may still live. So
//!    whoever carries out the plan first creates the object that the writer commits by, if it is absent. Then
//!    either that fails, and the backup is complete and stays, or the writer's commit fails.
//! 6. A complete backup whose chain of parents is not whole cannot be restored. It counts for no rule, so
//!    that it takes no good backup's place, and is kept for people to look at, unless it is named.
//! 7. Names that come twice and dependencies in a circle are errors: then the list cannot be trusted, and
//!    nothing is planned.

mod plan;
mod reason;

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::manifest::SystemIdentifier;
use crate::time::ServerTime;
use crate::wal::{Lsn, Timeline};

pub use plan::{Decision, Plan, newest, plan};
pub use reason::Reason;

/// Backups at most that a plan is made for.
pub const BACKUPS_MAX: usize = 100_000;
/// Bytes at most of a backup's name.
pub const NAME_BYTES_MAX: usize = 128;

/// The name of a backup in its repository: ASCII letters, digits, `-`, `_` and `.`, the first one a letter or
/// digit. `latest` is not allowed, as commands mean something else by it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BackupName(String);

impl BackupName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BackupName {
    type Err = Error;

    fn from_str(text: &str) -> Result<BackupName, Error> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !first || text.len() > NAME_BYTES_MAX || !text.bytes().all(allowed) || text == "latest" {
            let expected =
                "at most 128 letters, digits, -, _ and ., the first one a letter or digit, and not latest";
            return Err(Error::malformed("name of a backup", expected, text.as_bytes()));
        }
        Ok(BackupName(text.to_owned()))
    }
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the plan has to know of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backup {
    /// Its name, unique in the repository.
    pub name: BackupName,
    /// What it is a backup of.
    pub system: SystemIdentifier,
    /// The backup without which it cannot be restored.
    pub parent: Option<BackupName>,
    /// Whether it is whole.
    pub state: State,
}

/// Whether a backup is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It was committed.
    Complete {
        /// The timeline at its end.
        timeline: Timeline,
        /// Where its WAL ends.
        stop: Lsn,
        /// When it ended, by the server's clock.
        stop_time: ServerTime,
    },
    /// It was begun.
    Incomplete(Lease),
}

/// What is known of the writer of a backup in progress. A writer renews its lease: it counts up a number in
/// the repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lease {
    /// Nobody looked long enough.
    Unobserved,
    /// The number was seen to change.
    Renewed,
    /// The number stayed the same while the caller looked for several times the interval of renewal, by a
    /// monotonic clock. No two clocks are compared, so a wrong one does not matter.
    Silent,
}

/// What is to be kept. A backup that any rule keeps is kept.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// This many of the newest complete backups of each system.
    pub keep_last: Option<u32>,
    /// Complete backups that ended within this many days before the newest one of their system.
    pub keep_days: Option<u32>,
    /// The local time. Where the newest backup seems to be from the future, ages are measured from here: a
    /// server's clock that was ahead makes no backup old then. A local clock that is ahead changes nothing,
    /// and one that is behind keeps more.
    pub now: Option<ServerTime>,
    /// Whether backups in progress whose lease is [`Lease::Silent`] are removed.
    pub remove_abandoned: bool,
    /// Backups in progress, or without a whole chain of parents, to be removed.
    pub named: Vec<BackupName>,
}

#[test]
fn names_are_those_of_directories() {
    for name in ["20261125T143920Z", "a", "base-1.2_x", &"x".repeat(NAME_BYTES_MAX)] {
        assert_eq!(name.parse::<BackupName>().unwrap().as_str(), name);
    }
    for name in
        ["", "latest", ".", "..", "-a", "a/b", "a b", "\u{fc}", "a\0", &"x".repeat(NAME_BYTES_MAX + 1)]
    {
        assert!(name.parse::<BackupName>().is_err(), "{name}");
    }
}
