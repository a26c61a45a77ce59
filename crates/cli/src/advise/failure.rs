//! Why there is no advice.

use crate::ending::Ending;
use pgshrink_pgclient::Error as ClientError;
use std::fmt::Display;

/// What ends `pgshrink advise` with exit code 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server, or the way to it.
    #[error("{}{}", .0, advice(.0))]
    Server(#[from] ClientError),
    /// A signal asked for the end.
    #[error("interrupted: the running query was canceled, and nothing was written")]
    Interrupted,
    /// A file of this machine, or something that a server says and that cannot be.
    #[error("{what}: {reason}")]
    Other {
        /// What it is about.
        what: String,
        /// What was expected and found, and what to do.
        reason: String,
    },
}

impl Failure {
    pub(crate) fn new(what: impl Display, reason: impl Display) -> Failure {
        Failure::Other { what: what.to_string(), reason: reason.to_string() }
    }

    pub(crate) fn ending(&self) -> Ending {
        let sqlstate = match self {
            Failure::Server(error) => error.sqlstate().map(str::to_owned),
            _ => None,
        };
        Ending { message: self.to_string(), sqlstate, damage: None }
    }
}

/// What to do about a server that refuses.
fn advice(error: &ClientError) -> &'static str {
    match error.sqlstate() {
        Some("3D000") => "; name a database: dbname=NAME in the connection string, or PGDATABASE",
        Some("53300") => "; only one connection is needed: try again when one is free",
        Some("28P01" | "28000") => "; give user and password as for psql: PGPASSFILE, PGPASSWORD, a service",
        Some("57P01" | "57P02" | "57P03") => {
            "; the server is shutting down or starting, or somebody \
            terminated the session: run it again"
        }
        Some("08P01") => "; a connection pooler refuses what the session needs: connect to the server itself",
        Some(_) => "",
        None => match error {
            ClientError::TimedOut { .. } => "; check the server and the network, or set connect_timeout",
            ClientError::Closed { .. } | ClientError::Lost { .. } => "; run it again when the server is back",
            _ => "",
        },
    }
}
