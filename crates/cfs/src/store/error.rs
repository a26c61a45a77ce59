//! What can go wrong with a page on its way.

use crate::format::error::Error as ContainerError;
use crate::format::units::DictionaryNumber;
use crate::page;

/// Every failure of a [`PageStore`](super::PageStore). No message repeats a part of a page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The container's failure; where it is damage, the message names the block.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The record is whole, and no page comes of it; or the page cannot be encoded.
    #[error("block {block}: {source}")]
    Page {
        /// The block in the segment.
        block: u32,
        /// What the codec says.
        source: page::Error,
    },
    /// The dictionary that the page needs is not available.
    #[error("block {block}: needs dictionary {number}: {source}")]
    Dictionary {
        /// The block in the segment.
        block: u32,
        /// The dictionary's number.
        number: DictionaryNumber,
        /// Why not.
        source: ContainerError,
    },
    /// What the codec made of the page does not decode to the page. Nothing was written: the page is what it
    /// was.
    #[error(
        "block {block}: the page compressed by {choice} does not decode to the same page; it was not written"
    )]
    NotVerified {
        /// The block in the segment.
        block: u32,
        /// The algorithm and level.
        choice: pgshrink_codec::Choice,
    },
    /// The workspace's budget is too small. Nothing was allocated.
    #[error(
        "codec memory: {what} needs {needed} bytes, and {held} of the budget of {budget} bytes are in use: give the workspace a \
         larger budget"
    )]
    Budget {
        /// What it was to be used for.
        what: &'static str,
        /// Bytes that this takes.
        needed: u64,
        /// Bytes in use that cannot be given up.
        held: u64,
        /// The budget, in bytes.
        budget: u64,
    },
}

impl Error {
    /// Whether stored bytes are damaged, as opposed to unreachable, unknown or wrongly used.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Container(error) => error.is_damage(),
            Error::Dictionary { source, .. } => {
                source.is_damage() || matches!(source, ContainerError::DictionaryMissing(_))
            }
            Error::Page { source, .. } => matches!(
                source,
                page::Error::Corrupt { .. }
                    | page::Error::DictionaryMissing
                    | page::Error::Codec(pgshrink_codec::Error::Corrupt { .. })
            ),
            Error::NotVerified { .. } | Error::Budget { .. } => false,
        }
    }
}
