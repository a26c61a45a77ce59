//! What can go wrong between two peers, and the SQLSTATE a gateway reports it with.

use std::fmt;

/// An error of the wire engine. Every variant says what, where, what was expected and what was found;
/// none carries row data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol.
    Protocol {
        /// What was being read.
        what: &'static str,
        /// What the protocol asks for.
        expected: String,
        /// What came.
        found: String,
    },
    /// A size or count passed a named limit.
    Limit {
        /// The limit's name.
        what: &'static str,
        /// Largest value allowed.
        allowed: u64,
        /// The value found.
        found: u64,
    },
    /// A compressed payload cannot be decoded, or an encoder failed.
    Codec {
        /// What was being done.
        what: &'static str,
        /// The codec's own words.
        source: pgshrink_codec::Error,
    },
    /// The memory budget is used up.
    Memory {
        /// Bytes asked for.
        wanted_bytes: u64,
        /// Bytes in use.
        used_bytes: u64,
        /// Bytes the budget allows.
        limit_bytes: u64,
    },
    /// A setting given by an operator or by `SET pgshrink.compression` cannot be used.
    Setting {
        /// The text as given.
        given: String,
        /// Why, and what is allowed.
        reason: String,
    },
}

impl Error {
    pub(crate) fn protocol(
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Error::Protocol { what, expected: expected.into(), found: found.into() }
    }

    /// The SQLSTATE to put into an ErrorResponse (PostgreSQL, appendix A).
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Error::Protocol { .. } | Error::Codec { .. } => "08P01",
            Error::Limit { .. } => "54000",
            Error::Memory { .. } => "53200",
            Error::Setting { .. } => "22023",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Protocol { what, expected, found } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Error::Limit { what, allowed, found } => {
                write!(f, "{what}: {found} is over the limit of {allowed}")
            }
            Error::Codec { what, source } => write!(f, "{what}: {source}"),
            Error::Memory { wanted_bytes, used_bytes, limit_bytes } => write!(
                f,
                "memory budget: {wanted_bytes} more bytes needed, {used_bytes} of {limit_bytes} in use"
            ),
            Error::Setting { given, reason } => write!(f, "compression setting '{given}': {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Codec { source, .. } => Some(source),
            _ => None,
        }
    }
}
