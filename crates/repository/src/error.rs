//! What can go wrong with a repository.

use crate::ObjectName;
use std::io;

/// Why an operation on a repository failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that no repository has.
    #[error("'{name}' is no name of an object: {reason}")]
    Name {
        /// As given.
        name: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A place that is not understood.
    #[error("'{place}' is no repository: {reason}")]
    Location {
        /// As given, without credentials.
        place: String,
        /// Why not, and what would be.
        reason: String,
    },
    /// The object is not there.
    #[error("{place} has no object {name}")]
    NotFound {
        /// The repository.
        place: String,
        /// The object.
        name: ObjectName,
    },
    /// The object is there already.
    #[error("{place} already has an object {name}")]
    Exists {
        /// The repository.
        place: String,
        /// The object.
        name: ObjectName,
    },
    /// The object ends before what was to be read.
    #[error("{name} in {place} has {found} bytes, and bytes up to {expected} were to be read")]
    Short {
        /// The repository.
        place: String,
        /// The object.
        name: ObjectName,
        /// Where the read would have ended.
        expected: u64,
        /// The object's size, or how much of it came.
        found: u64,
    },
    /// More objects than the caller can take.
    #[error("{place} has more than {limit} objects there")]
    Limit {
        /// The repository.
        place: String,
        /// How many may be.
        limit: usize,
    },
    /// The filesystem.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// Which operation.
        what: &'static str,
        /// On what.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The object store.
    #[error("cannot {what} {name} in {place}: {reason}")]
    Store {
        /// Which operation.
        what: &'static str,
        /// The repository.
        place: String,
        /// The object or prefix.
        name: String,
        /// What the store or the network said.
        reason: String,
    },
}
