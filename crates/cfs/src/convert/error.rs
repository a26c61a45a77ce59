//! Why a step was not taken.

use crate::convert::{Found, Inode, Name};
use crate::device::DeviceError;
use crate::format::error::Error;

/// Why a step was not taken. R is what it was before, unless the error says otherwise.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The system refused something.
    #[error("cannot {operation} ({name}): {source}")]
    System {
        /// What was to be done.
        operation: &'static str,
        /// To which name.
        name: Name,
        /// Why not.
        source: DeviceError,
    },
    /// A name has another file than the one that was looked at. Nothing is wrong with it: it is to be looked
    /// up anew.
    #[error("{name}: expected inode {}, found {}", expected.0, Shown(found))]
    OtherFile {
        /// Which name.
        name: Name,
        /// What it should have.
        expected: Inode,
        /// What it has.
        found: Option<Found>,
    },
    /// The file has names that are none of this protocol's, or that a dead process has left.
    #[error("{name} should have one link, has {found}")]
    OtherNames {
        /// Which name was looked at.
        name: Name,
        /// How many names its file has.
        found: u32,
    },
    /// There is a base where none may be, or none where one is needed.
    #[error("the base of the container: expected {expected}, found {}", Shown(found))]
    Base {
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: Option<Found>,
    },
    /// R is there no more, so what lies beside it may be all that is left of it.
    #[error("{name} is left unchanged, because the segment itself is missing")]
    NoSegment {
        /// What was to be removed.
        name: Name,
    },
    /// A wrong exchange could not be taken back: R has what is not R's.
    #[error("{name} is the segment, another file has the segment's name, and swapping them failed: {source}")]
    NotExchangedBack {
        /// Where the segment is.
        name: Name,
        /// Why.
        source: DeviceError,
    },
    /// The engine's.
    #[error(transparent)]
    Engine(#[from] Error),
}

struct Shown<'a>(&'a Option<Found>);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(found) => found.fmt(out),
            None => out.write_str("nothing"),
        }
    }
}

/// Says what was to be done to which name.
pub(super) trait During<T> {
    fn during(self, operation: &'static str, name: Name) -> Result<T, ConvertError>;
}

impl<T> During<T> for Result<T, DeviceError> {
    fn during(self, operation: &'static str, name: Name) -> Result<T, ConvertError> {
        self.map_err(|source| ConvertError::System { operation, name, source })
    }
}
