//! Dictionaries under the small ids by which datums name them, digested for one direction.

use std::fmt;

use pgshrink_codec::prepared::{CompressorDictionary, DecompressorDictionary};
use pgshrink_codec::{Choice, Dictionary};

use crate::error::Error;

/// What a datum calls its dictionary: 1 to 2147483647, the range of a sequence of `int4`. It means something within
/// one database only; a dictionary's identity is the hash of its content.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DictionaryId(u32);

/// A dictionary prepared for writing by one algorithm at one level.
#[derive(Debug)]
pub struct WritingDictionary {
    id: DictionaryId,
    prepared: CompressorDictionary,
}

/// A dictionary prepared for reading what was written with it by any algorithm.
#[derive(Debug)]
pub struct ReadingDictionary {
    id: DictionaryId,
    prepared: DecompressorDictionary,
}

impl DictionaryId {
    /// The id of this number; none for zero and above 2147483647.
    pub const fn new(id: u32) -> Option<Self> {
        if 0 < id && id <= i32::MAX as u32 { Some(DictionaryId(id)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl WritingDictionary {
    /// Digests `dictionary`, which takes 50-600 microseconds and up to a few megabytes at high levels. zstd uses
    /// all of it, LZ4 the last 64 KiB; other algorithms have none.
    pub fn new(id: DictionaryId, dictionary: &Dictionary, choice: Choice) -> Result<Self, Error> {
        Ok(WritingDictionary { id, prepared: CompressorDictionary::new(dictionary, choice)? })
    }

    /// What datums call it.
    pub fn id(&self) -> DictionaryId {
        self.id
    }

    /// What it was prepared for.
    pub fn choice(&self) -> Choice {
        self.prepared.choice()
    }

    /// Bytes of memory it holds, the dictionary's own included.
    pub fn memory_size(&self) -> usize {
        self.prepared.memory_size()
    }

    pub(crate) fn prepared(&self) -> &CompressorDictionary {
        &self.prepared
    }
}

impl ReadingDictionary {
    /// Digests `dictionary`, which takes 10-80 microseconds.
    pub fn new(id: DictionaryId, dictionary: &Dictionary) -> Result<Self, Error> {
        Ok(ReadingDictionary { id, prepared: DecompressorDictionary::new(dictionary)? })
    }

    /// What datums call it.
    pub fn id(&self) -> DictionaryId {
        self.id
    }

    /// Bytes of memory it holds, the dictionary's own included.
    pub fn memory_size(&self) -> usize {
        self.prepared.memory_size()
    }

    pub(crate) fn prepared(&self) -> &DecompressorDictionary {
        &self.prepared
    }
}

impl fmt::Display for DictionaryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
