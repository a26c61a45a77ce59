//! A relation's dictionary: what its pages have in common once they are rearranged.
//!
//! It is trained on rearranged pages, which mostly are what will be compressed; a spread over the
//! relation serves best, as its first pages may be unlike the others. Its identity is the SHA-256 of its bytes. Payloads do not name it,
//! records do. It is prepared once for reading and for each algorithm and level it is to be written by; a
//! page written by another goes without.

use std::fmt;

use pgshrink_codec::prepared::{CompressorDictionary, DecompressorDictionary};
use pgshrink_codec::{Choice, Dictionary, memory};

use super::Error;

/// What pages of one relation have in common, prepared for use. Immutable; share it.
pub struct PageDictionary {
    dictionary: Dictionary,
    writing: Vec<CompressorDictionary>,
    reading: DecompressorDictionary,
}

impl PageDictionary {
    /// Prepares `bytes` for reading anything, and for writing by `choices`.
    ///
    /// # Errors
    /// [`Error::Codec`]: it is empty or too long, or there is no memory for it.
    pub fn new(bytes: Vec<u8>, choices: &[Choice]) -> Result<Self, Error> {
        let dictionary = Dictionary::new(bytes)?;
        let reading = DecompressorDictionary::new(&dictionary)?;
        let usable = choices.iter().filter(|choice| Self::usable_with(**choice));
        let writing =
            usable.map(|choice| CompressorDictionary::new(&dictionary, *choice)).collect::<Result<_, _>>()?;
        Ok(PageDictionary { dictionary, writing, reading })
    }

    /// Prepares it for writing by one more choice, if that can use dictionaries and is not prepared for yet.
    ///
    /// # Errors
    /// [`Error::Codec`] where there is no memory for it.
    pub fn prepare(&mut self, choice: Choice) -> Result<(), Error> {
        if Self::usable_with(choice) && self.prepared(choice).is_none() {
            self.writing.push(CompressorDictionary::new(&self.dictionary, choice)?);
        }
        Ok(())
    }

    /// Bytes at most that preparing a dictionary of so many bytes for reading takes, its content included.
    pub fn bytes_max(content_bytes: usize) -> usize {
        size_of::<Self>() + memory::decompressor_dictionary_max(content_bytes)
    }

    /// Bytes at most by which [`prepare`](Self::prepare) lets it grow.
    pub fn growth_max(&self, choice: Choice) -> usize {
        if !Self::usable_with(choice) || self.prepared(choice).is_some() {
            return 0;
        }
        memory::compressor_dictionary_max(choice, self.bytes().len())
    }

    /// Bytes of memory it holds.
    pub fn memory_size(&self) -> usize {
        let alone = |prepared: &CompressorDictionary| prepared.memory_size() - self.bytes().len();
        let writing: usize = self.writing.iter().map(alone).sum();
        size_of::<Self>() + self.reading.memory_size() + writing
    }

    /// Whether pages can be written with a dictionary by `choice`.
    pub fn usable_with(choice: Choice) -> bool {
        use pgshrink_codec::Algorithm::{Lz4, Zstd};
        matches!(choice.algorithm, Zstd | Lz4)
    }

    /// SHA-256 of the content, by which payloads' owners name it.
    pub fn hash(&self) -> &[u8; 32] {
        self.dictionary.hash()
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        self.dictionary.bytes()
    }

    pub(super) fn prepared(&self, choice: Choice) -> Option<&CompressorDictionary> {
        self.writing.iter().find(|prepared| prepared.choice() == choice)
    }

    pub(super) fn reading(&self) -> &DecompressorDictionary {
        &self.reading
    }
}

impl fmt::Debug for PageDictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dictionary.fmt(f)
    }
}

impl PageDictionary {
    /// Trains a dictionary of at most `size_max` bytes on pages as they will be written. `None` if they have
    /// too little in common, or are too few.
    pub fn train<'p>(
        pages: impl IntoIterator<Item = &'p [u8; super::PAGE_SIZE]>,
        size_max: usize,
    ) -> Option<Vec<u8>> {
        let mut transform = super::transform::Transform::default();
        let mut samples: Vec<Vec<u8>> = vec![];
        for page in pages {
            let mut sample = vec![];
            transform.encode(page, true, super::column::Backend::Entropy, &mut sample, &mut vec![]);
            samples.push(sample);
        }
        Dictionary::train(&samples, size_max).ok().map(|dictionary| dictionary.bytes().to_vec())
    }
}
