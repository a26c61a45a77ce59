//! The messages of PostgreSQL's protocol 3.0 that a client reads ([`backend`]) and writes ([`frontend`]).
//!
//! Pure: bytes in, values out. Framing is [`pgshrink_wire::walk`]'s. Nothing is allocated by a length that came
//! from the server before the length is known to fit into the message it is part of.
//!
//! Source: PostgreSQL documentation, "Message Formats".

pub mod backend;
pub mod frontend;
mod lsn;

pub use lsn::Lsn;

/// A message whose contents are not what its type promises.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}, found {found}")]
pub struct Malformed {
    /// The message and the part of it.
    pub what: &'static str,
    /// What belongs there.
    pub expected: &'static str,
    /// What was there, without row data.
    pub found: String,
}
