//! Why a backup or a restore did not come to its end.

use crate::ending::{Ending, Fault};
use pgshrink_codec::{counted, grouped};
use pgshrink_repository::Error as RepositoryError;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// What ends a subcommand with exit code 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server, or the way to it.
    #[error("{}{}", .0, advice(.0))]
    Server(#[from] pgshrink_pgclient::Error),
    /// What a server or a repository says cannot be.
    #[error(transparent)]
    Format(#[from] pgshrink_backup::Error),
    /// The repository.
    #[error(transparent)]
    Repository(pgshrink_repository::Error),
    /// A file of this machine.
    #[error("{what}: {reason}")]
    Other {
        /// What it is about.
        what: String,
        /// What was expected, and what to do.
        reason: String,
    },
    /// A backup in a repository is not what was written.
    #[error("{what}: {reason}")]
    Damage {
        /// Which object, and where.
        what: String,
        /// What was expected and found.
        reason: String,
        /// First byte of the object, and how many are concerned, as far as known.
        place: Option<(u64, u64)>,
    },
    /// A backup is encrypted with a key that was not given.
    #[error("{what}")]
    Locked {
        /// Which object, which key, and how to give it.
        what: String,
    },
    /// A backup is not encrypted, and a key was given.
    #[error("{what}")]
    Unencrypted {
        /// Which object, and what to do.
        what: String,
    },
    /// Another thread has failed, and says why.
    #[error("another thread failed")]
    BrokenOff,
}

impl From<RepositoryError> for Failure {
    fn from(error: RepositoryError) -> Failure {
        match &error {
            RepositoryError::Damaged { name, reason } => Failure::damage(name, reason),
            RepositoryError::Locked { .. } => {
                Failure::Locked { what: format!("{error}; give its key with --key-file or --key-command") }
            }
            RepositoryError::NotSealed { .. } => Failure::Unencrypted {
                what: format!(
                    "{error}: it was stored without a key, or somebody has replaced it. If it was stored \
                     without one, remove --key-file and --key-command, also from the environment and \
                     the configuration file"
                ),
            },
            RepositoryError::Unsupported { .. } => Failure::new("repository", error),
            _ => Failure::Repository(error),
        }
    }
}

impl Failure {
    pub(crate) fn new(what: impl Display, reason: impl Display) -> Failure {
        Failure::Other { what: what.to_string(), reason: reason.to_string() }
    }

    pub(crate) fn damage(what: impl Display, reason: impl Display) -> Failure {
        Failure::Damage { what: what.to_string(), reason: reason.to_string(), place: None }
    }

    /// Of bytes of an object: the first one, and how many.
    pub(crate) fn damage_at(what: impl Display, place: (u64, u64), reason: impl Display) -> Failure {
        Failure::Damage { what: what.to_string(), reason: reason.to_string(), place: Some(place) }
    }

    /// Of an object that has not as many bytes as it was written with.
    pub(crate) fn of_size(what: impl Display, expected: u64, found: u64) -> Failure {
        let reason = format!("expected {}, found {}", counted(expected, "byte", "bytes"), grouped(found));
        match expected.checked_sub(found) {
            Some(missing) => Failure::damage_at(what, (found, missing), reason),
            None => Failure::damage(what, reason),
        }
    }

    pub(crate) fn ending(&self) -> Ending {
        let sqlstate = match self {
            Failure::Server(error) => error.sqlstate().map(str::to_owned),
            _ => None,
        };
        let damage = match self {
            Failure::Damage { what, reason, place } => {
                let mut fault = Fault::new(what, reason);
                (fault.damage.offset, fault.damage.bytes) = place.unzip();
                Some(fault)
            }
            _ => None,
        };
        Ending { message: self.to_string(), sqlstate, damage }
    }

    /// With what to do if it is damage of a backup.
    pub(crate) fn ending_with(&self, next_step: &str) -> Ending {
        let mut ending = self.ending();
        if ending.damage.is_some() {
            ending.message += next_step;
        }
        ending
    }

    /// For `map_err` of what was tried with a path.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Failure {
        move |error| Failure::new(path.display(), error)
    }

    /// From what reading from a queue or connection came to: the failure inside, or that of a decoder about `what`.
    pub(crate) fn inside(what: impl Display, error: io::Error) -> Failure {
        error.downcast().unwrap_or_else(|error| Failure::new(what, error))
    }

    /// Whether a connection to the server broke, or the server is silent.
    pub(crate) fn is_of_network(&self) -> bool {
        use pgshrink_pgclient::Error::{Closed, Lost, TimedOut};
        matches!(self, Failure::Server(Closed { .. } | Lost { .. } | TimedOut { .. }))
    }

    /// Whether another thread knows more.
    pub(crate) fn is_consequence(&self) -> bool {
        matches!(self, Failure::BrokenOff)
    }
}

/// What to do about a server that says nothing, or refuses.
fn advice(error: &pgshrink_pgclient::Error) -> &'static str {
    if let Some(report) = error.report() {
        // Names of settings are the same in every language.
        return match report.sqlstate.as_str() {
            "53300" if report.message.contains("max_wal_senders") => {
                "; a backup needs two free max_wal_senders, and wal_level replica or logical"
            }
            "42501" if ["walsender", "WAL sender"].iter().any(|name| report.message.contains(name)) => {
                "; a backup needs a role with REPLICATION: ALTER ROLE name REPLICATION"
            }
            "57P01" => {
                "; somebody terminated the session, or the server invalidated its slot because of \
                 max_slot_wal_keep_size"
            }
            _ => "",
        };
    }
    match error {
        pgshrink_pgclient::Error::TimedOut { .. } => {
            "; check the server and the network, or increase connect_timeout or --server-timeout-s"
        }
        _ => "",
    }
}

#[test]
fn what_a_server_refuses_comes_with_the_next_step() {
    use pgshrink_pgclient::connection::{Phase, Place};
    let refused = |sqlstate: &str, message: &str| {
        let (sqlstate, message) = (sqlstate.to_owned(), message.to_owned());
        let report = pgshrink_pgclient::protocol::backend::Report { sqlstate, message, ..Default::default() };
        let place = Place { host: "db".to_owned(), address: None, port: 5432 };
        Failure::from(pgshrink_pgclient::Error::Server {
            place,
            phase: Phase::Startup,
            report: Box::new(report),
        })
        .to_string()
    };
    let senders =
        refused("53300", "number of requested standby connections exceeds max_wal_senders (currently 0)");
    assert!(senders.ends_with("wal_level replica or logical"), "{senders}");
    for message in
        ["must be superuser or replication role to start walsender", "permission denied to start WAL sender"]
    {
        assert!(refused("42501", message).ends_with("ALTER ROLE name REPLICATION"), "{message}");
    }
    assert!(!refused("42501", "permission denied for database").contains("ALTER ROLE"));
    assert!(refused("57P01", "terminating connection").contains("max_slot_wal_keep_size"));
}

/// The other end of a queue is gone.
pub(super) fn broken_off() -> Failure {
    Failure::BrokenOff
}

/// Of what several threads say, the cause.
pub(super) fn first_cause<T>(results: Vec<Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    let mut consequence = None;
    let mut done = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Ok(value) => done.push(value),
            Err(error) if error.is_consequence() => consequence = Some(error),
            Err(error) => return Err(error),
        }
    }
    consequence.map_or(Ok(done), Err)
}
