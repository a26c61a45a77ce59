//! Where and when something went wrong, for errors.

use std::fmt;
use std::net::IpAddr;

/// The server that an error is about. Never has a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host as it was given, or the path of a socket.
    pub host: String,
    /// The port, which is a part of the name of a Unix socket.
    pub port: u16,
    /// The address behind the host's name, once it is known.
    pub address: Option<IpAddr>,
}

impl Place {
    /// Whether this is a socket file or an abstract socket.
    pub fn is_unix(&self) -> bool {
        self.host.starts_with(['/', '@'])
    }
}

impl fmt::Display for Place {
    /// As libpq says it, with its preposition: `at "db.example" (192.0.2.1), port 5432`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unix() {
            return write!(f, "on socket \"{}\"", self.host);
        }
        write!(f, "at \"{}\"", self.host)?;
        match self.address.map(|address| address.to_string()) {
            Some(address) if address != self.host => write!(f, " ({address})")?,
            _ => {}
        }
        write!(f, ", port {}", self.port)
    }
}

/// What was going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Waiting for the network.
    Connect,
    /// Agreeing on TLS.
    Tls,
    /// Startup packet, authentication, the server's first messages.
    Startup,
    /// A query and its results.
    Query,
    /// Requests sent ahead of their answers.
    Pipeline,
    /// COPY from the server.
    Copy,
    /// Streaming WAL.
    Replication,
    /// A request to cancel.
    Cancel,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Connect => "connecting",
            Phase::Tls => "negotiating TLS",
            Phase::Startup => "starting the session",
            Phase::Query => "running a query",
            Phase::Pipeline => "running pipelined queries",
            Phase::Copy => "receiving COPY data",
            Phase::Replication => "streaming WAL",
            Phase::Cancel => "asking to cancel",
        })
    }
}
