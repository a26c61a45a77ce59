//! What can go wrong with a datum or a dictionary.

use pgshrink_codec as codec;

use crate::dictionary::DictionaryId;

/// Every failure of this crate. No message repeats a part of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The datum contradicts itself or the format: it is damaged.
    #[error("corrupt zson datum: {what} should be {expected}, is {found}{}", with(*.dictionary))]
    Corrupt {
        /// The field or property.
        what: &'static str,
        /// The dictionary it names, if it came so far.
        dictionary: Option<DictionaryId>,
        /// What the format or the datum itself demands, as a bound where the property says so.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// The compressed payload is damaged.
    #[error("corrupt zson datum: payload of {payload_len} bytes for {raw_len}{}: {source}", with(*.dictionary))]
    Payload {
        /// The dictionary it was decoded with.
        dictionary: Option<DictionaryId>,
        /// Bytes of the payload.
        payload_len: usize,
        /// Bytes it should decode to.
        raw_len: usize,
        /// What the codec says.
        source: codec::Error,
    },
    /// A datum of the original refers to a word that its dictionary does not have.
    #[error("zson 1.x datum refers to code {code}, which its dictionary {dictionary} {problem}")]
    UnknownCode {
        /// The original's dictionary id.
        dictionary: u32,
        /// The code.
        code: u16,
        /// Absent, or given to several words.
        problem: &'static str,
    },
    /// Written by a newer version of the format.
    #[error("zson datum of format version {found}, newer than {known}")]
    Unsupported {
        /// The datum's version.
        found: u8,
        /// The newest version this code reads.
        known: u8,
    },
    /// A size, declared or given, is over a cap. Nothing was allocated for it.
    #[error("{what} is {found}, over the limit of {allowed}")]
    Limit {
        /// Which size.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The cap.
        allowed: u64,
    },
    /// Memory is used up. What was kept before is as it was.
    #[error("out of memory for {bytes} bytes")]
    Memory {
        /// How many were wanted.
        bytes: u64,
    },
    /// The datum needs a dictionary and none was given.
    #[error("zson datum needs dictionary {needed}")]
    DictionaryMissing {
        /// Its id.
        needed: DictionaryId,
    },
    /// The dictionary given is not the one that the datum names.
    #[error("zson datum needs dictionary {needed}, but {given} was given")]
    WrongDictionary {
        /// The datum's.
        needed: DictionaryId,
        /// The caller's.
        given: DictionaryId,
    },
    /// The compressed payload is damaged, of a datum whose check sum is right: the dictionary is another, or its reader is
    /// wrong.
    #[error("corrupt zson datum: payload of {payload_len} bytes for {raw_len}{}: not of this dictionary's shapes", with(Some(*.dictionary)))]
    Shapes {
        /// The dictionary it was decoded with.
        dictionary: DictionaryId,
        /// Bytes of the payload.
        payload_len: usize,
        /// Bytes it should decode to.
        raw_len: usize,
    },
    /// A dictionary of shapes contradicts its format.
    #[error("zson dictionary of shapes: its {what} is malformed")]
    Dictionary {
        /// Which part.
        what: &'static str,
    },
    /// The caller's buffer has not the document's size.
    #[error("the document has {needed} bytes, but its buffer only {given}")]
    Target {
        /// The document's size.
        needed: usize,
        /// The buffer's.
        given: usize,
    },
    /// The codec cannot do what it was asked.
    #[error(transparent)]
    Codec(#[from] codec::Error),
    /// A part of the payload that is not there yet is needed: [`Sliced::needed`](crate::Sliced::needed) says which.
    #[error("a part of the payload is needed that was not read")]
    Missing,
    /// The caller's progress function said stop.
    #[error("interrupted by the caller")]
    Interrupted,
}

impl Error {
    /// Whether memory was used up.
    pub fn is_memory(&self) -> bool {
        matches!(self, Error::Memory { .. } | Error::Codec(codec::Error::Memory { .. }))
    }

    /// That of a codec which may have been told to stop.
    pub(crate) fn of_codec(error: codec::Error) -> Error {
        if error == codec::Error::Interrupted { Error::Interrupted } else { error.into() }
    }

    /// Whether stored data is damaged, as opposed to unknown, too large or wrongly used.
    pub fn is_corruption(&self) -> bool {
        matches!(
            self,
            Error::Corrupt { .. }
                | Error::Payload { .. }
                | Error::UnknownCode { .. }
                | Error::Shapes { .. }
                | Error::Dictionary { .. }
        )
    }
}

fn with(dictionary: Option<DictionaryId>) -> String {
    dictionary.map(|id| format!(" (dictionary {id})")).unwrap_or_default()
}
