//! What can go wrong with a repository.

use crate::ObjectName;
use crate::sealed::KeyId;
use std::io;

/// Why an operation on a repository failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that no repository has.
    #[error("invalid object name '{name}': {reason}")]
    Name {
        /// As given.
        name: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A place that is not understood.
    #[error("'{place}' is not a repository: {reason}")]
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
    #[error("{name} in {place} is too short: expected at least {expected} bytes, found {found}")]
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
    #[error("{place} has more than {limit} objects")]
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
    #[error("cannot {what} {}{place}: {reason}", inside(.name))]
    Store {
        /// Which operation.
        what: &'static str,
        /// The repository.
        place: String,
        /// The object or prefix; empty for the repository itself.
        name: String,
        /// What the store or the network said.
        reason: String,
    },
    /// The object is encrypted, and its key is not at hand.
    #[error("{name} is encrypted with key {needed}{}", which_keys(.given))]
    Locked {
        /// The object.
        name: ObjectName,
        /// The key that it needs.
        needed: KeyId,
        /// The keys that there are.
        given: Vec<KeyId>,
    },
    /// The object is not encrypted, in a repository that was opened with a key.
    #[error("{name} is not encrypted, but a key was given")]
    NotSealed {
        /// The object.
        name: ObjectName,
    },
    /// The object is not what was encrypted under its name.
    #[error("{name}: {reason}")]
    Damaged {
        /// The object.
        name: ObjectName,
        /// What is wrong, and where.
        reason: String,
    },
    /// The object was encrypted by a newer version.
    #[error(
        "{name} is encrypted with {what} {found}, but this version of pgshrink supports only {known}: \
        use a newer one"
    )]
    Unsupported {
        /// The object.
        name: ObjectName,
        /// Which field of its header.
        what: &'static str,
        /// What it is.
        found: u16,
        /// The newest that is known.
        known: u16,
    },
}

fn inside(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!("{name} in "),
    }
}

fn which_keys(keys: &[KeyId]) -> String {
    match keys {
        [] => ", and no key was given".to_owned(),
        [key] => format!(", but the key that was given is {key}"),
        keys => {
            let keys: Vec<_> = keys.iter().map(KeyId::to_string).collect();
            format!(", but the keys that were given are {}", keys.join(", "))
        }
    }
}
