//! What is damaged in a container, as fields and as words.

use super::Failure;
use pgshrink_cfs::store;
use serde::Serialize;
use std::fmt;

/// One damage. It is written as its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Damage {
    /// As people read it.
    message: String,
    /// `root`, `record` and so on (`pgshrink_cfs::Part`); none where the file as a whole is damaged.
    part: Option<&'static str>,
    /// The page; of a leaf of the map, the first of its pages.
    block: Option<u32>,
    /// First byte in the file, and how many are concerned.
    offset: Option<u64>,
    bytes: Option<u64>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<String> for Damage {
    fn from(message: String) -> Damage {
        Damage { message, part: None, block: None, offset: None, bytes: None }
    }
}

impl From<Damage> for String {
    fn from(damage: Damage) -> String {
        damage.message
    }
}

impl From<&pgshrink_cfs::Error> for Damage {
    fn from(error: &pgshrink_cfs::Error) -> Damage {
        let words = Damage::from(error.to_string());
        match error {
            pgshrink_cfs::Error::Damaged(damage) => Damage {
                part: Some(damage.part.name()),
                block: damage.block,
                offset: Some(damage.offset),
                bytes: Some(damage.length),
                ..words
            },
            _ => words,
        }
    }
}

impl From<&store::Error> for Damage {
    fn from(error: &store::Error) -> Damage {
        let words = Damage::from(error.to_string());
        match error {
            store::Error::Container(error) => Damage::from(error),
            store::Error::Page { block, .. } => Damage { part: Some("page"), block: Some(*block), ..words },
            store::Error::Dictionary { block, source, .. } => {
                Damage { block: Some(*block), message: words.message, ..Damage::from(source) }
            }
            _ => words,
        }
    }
}

/// A container that does not open.
impl From<Failure> for Damage {
    fn from(failure: Failure) -> Damage {
        let message = failure.to_string();
        match failure.damage {
            Some(damage) => Damage { message, ..*damage },
            None => Damage::from(message),
        }
    }
}
