//! Why a container cannot be opened with the keys at hand.

use super::KeyId;
use std::fmt;

/// Every failure around keys. No message holds a part of a key or a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// What should be a key is not one.
    #[error("{reason}")]
    Secret {
        /// What is wrong with it, and what it could be.
        reason: &'static str,
    },
    /// The container is sealed and there is no key at all.
    #[error("the container is encrypted with key {needed}, and no key was given")]
    Missing {
        /// The key that it needs.
        needed: HexId,
    },
    /// There are keys, and none is the container's.
    #[error(
        "the container is encrypted with key {needed}, derived from {of}; none of the {tried} keys supplied matches"
    )]
    Wrong {
        /// The key that it needs.
        needed: HexId,
        /// A key or a passphrase: what is to be looked for.
        of: &'static str,
        /// How many were tried.
        tried: usize,
    },
    /// The right key, and a data key that it does not open: the slot is damaged, or another container's.
    #[error("the data key is damaged: key {needed} is the right one, but cannot decrypt it")]
    Damaged {
        /// The key that should have opened it.
        needed: HexId,
    },
    /// The slot cannot have been written by any version.
    #[error("damaged key slot: {property} should be {expected}, is {found}")]
    Slot {
        /// The field.
        property: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: u64,
    },
    /// Written by a newer version.
    #[error("the key slot needs {what} {found}, but this version supports only {known}")]
    Unsupported {
        /// Cipher or derivation.
        what: &'static str,
        /// What it needs.
        found: u8,
        /// The newest known.
        known: u8,
    },
    /// No memory for stretching a passphrase.
    #[error("not enough memory to derive the key: {memory_kib} KiB needed")]
    Memory {
        /// How much.
        memory_kib: u32,
    },
}

/// A key's id, printed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HexId(pub KeyId);

impl fmt::Display for HexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for HexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
