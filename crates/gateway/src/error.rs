//! What can go wrong before, around and at the end of sessions.
//!
//! [`Error`] is for operators (start-up, reload). What ends one session is a [`Refusal`], which knows how to say
//! itself to a client as an ErrorResponse.

use std::io;
use std::path::PathBuf;

use pgshrink_wire::message::Report;

/// An error of configuring, starting or running a gateway or connector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot be used.
    #[error("{item}: {reason}")]
    Config {
        /// The setting as written in the configuration file.
        item: String,
        /// What was found, what is allowed.
        reason: String,
    },
    /// A listening socket could not be made.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address or path.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process serves this Unix socket.
    #[error(
        "cannot listen on {}: another process serves it; stop that process or choose another port or directory",
        path.display()
    )]
    SocketInUse {
        /// The socket.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read {what} {}: {reason}", path.display())]
    File {
        /// Which file.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// TLS material that does not fit together.
    #[error("{what}: {reason}")]
    Tls {
        /// Which setting.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The runtime could not be started.
    #[error("cannot start {what}: {source}")]
    Runtime {
        /// What was started.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn config(item: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Config { item: item.into(), reason: reason.into() }
    }
}

impl From<pgshrink_pgclient::Error> for Error {
    fn from(error: pgshrink_pgclient::Error) -> Self {
        match error {
            pgshrink_pgclient::Error::File { what, path, reason } => Error::File { what, path, reason },
            pgshrink_pgclient::Error::Tls { what, reason } => Error::Tls { what, reason },
            other => Error::Tls { what: "tls", reason: other.to_string() },
        }
    }
}

/// SQLSTATEs used here (PostgreSQL, appendix A).
pub mod sqlstate {
    /// connection_failure.
    pub const CONNECTION_FAILURE: &str = "08006";
    /// sqlserver_rejected_establishment_of_sqlconnection.
    pub const REJECTED: &str = "08004";
    /// protocol_violation.
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    /// invalid_authorization_specification.
    pub const INVALID_AUTHORIZATION: &str = "28000";
    /// invalid_catalog_name.
    pub const INVALID_CATALOG: &str = "3D000";
    /// too_many_connections.
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    /// admin_shutdown.
    pub const ADMIN_SHUTDOWN: &str = "57P01";
    /// cannot_connect_now.
    pub const CANNOT_CONNECT_NOW: &str = "57P03";
    /// syntax_error.
    pub const SYNTAX_ERROR: &str = "42601";
    /// insufficient_privilege.
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    /// undefined_object.
    pub const UNDEFINED_OBJECT: &str = "42704";
    /// feature_not_supported.
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    /// object_not_in_prerequisite_state.
    pub const NOT_IN_PREREQUISITE_STATE: &str = "55000";
    /// invalid_password.
    pub const INVALID_PASSWORD: &str = "28P01";
    /// program_limit_exceeded.
    pub const LIMIT_EXCEEDED: &str = "54000";
    /// config_file_error.
    pub const CONFIG_FILE: &str = "F0000";
}

/// Why a session is ended by this process, in the words its client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Five characters.
    pub sqlstate: &'static str,
    /// The primary message.
    pub message: String,
    /// More facts.
    pub detail: Option<String>,
    /// The next step.
    pub hint: Option<String>,
    /// True when the input looks like an attack or a broken client: logged as a warning.
    pub hostile: bool,
}

impl Refusal {
    /// A refusal without detail and hint.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: None, hostile: false }
    }

    /// With a detail.
    pub fn detail(mut self, text: impl Into<String>) -> Self {
        self.detail = Some(text.into());
        self
    }

    /// With the next step.
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }

    /// Marked as caused by hostile or broken input.
    pub fn hostile(mut self) -> Self {
        self.hostile = true;
        self
    }

    /// The FATAL ErrorResponse.
    pub fn to_bytes(&self) -> Vec<u8> {
        Report {
            severity: "FATAL",
            sqlstate: self.sqlstate,
            message: &self.message,
            detail: self.detail.as_deref(),
            hint: self.hint.as_deref(),
        }
        .error_response()
    }
}

impl From<pgshrink_wire::Error> for Refusal {
    fn from(error: pgshrink_wire::Error) -> Self {
        let hostile = !matches!(error, pgshrink_wire::Error::Memory { .. });
        Self { sqlstate: error.sqlstate(), message: error.to_string(), detail: None, hint: None, hostile }
    }
}

/// How a session ended before it reached the pump.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client is told why.
    Refused(Refusal),
    /// A socket failed or closed; there is nobody to tell.
    Lost(&'static str, io::Error),
    /// Nothing more to do: a cancel was relayed, an admin session ended, the client went away.
    Done(&'static str),
}

impl Failure {
    pub(crate) fn client(error: io::Error) -> Self {
        Failure::Lost("client", error)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}

impl From<pgshrink_wire::Error> for Failure {
    fn from(error: pgshrink_wire::Error) -> Self {
        Failure::Refused(error.into())
    }
}
