//! Dictionaries under the small ids by which datums name them, digested for one direction.

use std::fmt;

use pgshrink_codec::prepared::{CompressorDictionary, DecompressorDictionary};
use pgshrink_codec::{Choice, Dictionary};

use crate::codec::Codec;
use crate::datum::{Form, Header, corrupt};
use crate::error::Error;
use crate::memory;
use crate::shapes::{self, Known, Parts, Text, View};

/// What a datum calls its dictionary: 1 to 2147483647, the range of a sequence of `int4`. It means something within
/// one database only; a dictionary's identity is the hash of its content.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DictionaryId(u32);

/// A dictionary prepared for writing by one codec.
#[derive(Debug)]
pub struct WritingDictionary {
    id: DictionaryId,
    codec: Codec,
    /// None if the dictionary is of shapes and has nothing for other algorithms.
    prepared: Option<CompressorDictionary>,
    /// None if the codec is not of shapes, or the dictionary has none.
    shapes: Option<Box<shapes::Writer>>,
}

/// A dictionary prepared for reading what was written with it by any codec.
#[derive(Debug)]
pub struct ReadingDictionary {
    id: DictionaryId,
    prepared: Option<DecompressorDictionary>,
    shapes: Option<Box<shapes::Reader>>,
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
    /// Digests `dictionary`, which takes 50-600 microseconds and up to a few megabytes at high levels, and some
    /// milliseconds for one of shapes. zstd uses all of it, or what one of shapes has for zstd; LZ4 the last 64 KiB of
    /// the same; other algorithms have none.
    ///
    /// # Errors
    /// [`Error::Dictionary`], [`Error::Codec`], [`Error::Memory`].
    pub fn new(id: DictionaryId, dictionary: &Dictionary, codec: impl Into<Codec>) -> Result<Self, Error> {
        let codec = codec.into();
        let parts = Parts::of(dictionary.bytes())?;
        let prepared = match plain(dictionary, parts.as_ref())? {
            Some(plain) => Some(CompressorDictionary::new(&plain, codec.choice)?),
            None => None,
        };
        let shapes = match parts.filter(|_| codec.is_shapes) {
            Some(parts) => Some(Box::new(shapes::Writer::new(dictionary, &parts)?)),
            None => None,
        };
        Ok(WritingDictionary { id, codec, prepared, shapes })
    }

    /// What datums call it.
    #[inline]
    pub fn id(&self) -> DictionaryId {
        self.id
    }

    /// What it was prepared for.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Whether documents are written by their shapes.
    pub fn has_shapes(&self) -> bool {
        self.shapes.is_some()
    }

    /// What datums call it that are not written by their shape; none if those have no dictionary.
    pub fn plain_id(&self) -> Option<DictionaryId> {
        self.prepared.as_ref().map(|_| self.id)
    }

    /// The algorithm and level of what is not written by its shape.
    pub fn choice(&self) -> Choice {
        self.codec.choice
    }

    /// Bytes of memory it holds, the dictionary's own included.
    pub fn memory_size(&self) -> usize {
        self.prepared.as_ref().map_or(0, CompressorDictionary::memory_size)
            + self.shapes.as_ref().map_or(0, |shapes| shapes.memory_size())
    }

    pub(crate) fn prepared(&self) -> Option<&CompressorDictionary> {
        self.prepared.as_ref()
    }

    pub(crate) fn shapes(&self) -> Option<&shapes::Writer> {
        self.shapes.as_deref()
    }
}

impl ReadingDictionary {
    /// Digests `dictionary`, which takes 10-80 microseconds, and about a millisecond for one of shapes.
    ///
    /// # Errors
    /// As of [`WritingDictionary::new`].
    pub fn new(id: DictionaryId, dictionary: &Dictionary) -> Result<Self, Error> {
        let parts = Parts::of(dictionary.bytes())?;
        let prepared = match plain(dictionary, parts.as_ref())? {
            Some(plain) => Some(DecompressorDictionary::new(&plain)?),
            None => None,
        };
        let shapes = match parts {
            Some(parts) => Some(Box::new(shapes::Reader::new(dictionary, &parts)?)),
            None => None,
        };
        Ok(ReadingDictionary { id, prepared, shapes })
    }

    /// What datums call it.
    pub fn id(&self) -> DictionaryId {
        self.id
    }

    /// Bytes of memory it holds, the dictionary's own included.
    pub fn memory_size(&self) -> usize {
        self.prepared.as_ref().map_or(0, DecompressorDictionary::memory_size)
            + self.shapes.as_ref().map_or(0, |shapes| shapes.memory_size())
    }

    /// The document of a datum, to be read in place, if it is one of shapes with this dictionary. What is stored of it
    /// has been compared with its check sum.
    ///
    /// # Errors
    /// [`Error::WrongDictionary`]; [`Error::Corrupt`]: damage, or the dictionary is not the one it was written with.
    #[inline]
    pub fn view<'a>(&'a self, header: &Header<'a>) -> Result<Option<View<'a>>, Error> {
        if header.form() != Form::Shapes {
            return Ok(None);
        }
        let reader = self.shapes_of(header)?;
        Ok(Some(View::new((reader, self.prepared()), (header.payload(), None), header.raw_len(), self.id)))
    }

    /// The text of a key of a datum's document, as `->>` gives it, written to the beginning of `out`, and its length. What is
    /// behind it means nothing. `None`: not found here, or there is no room; [`view`](Self::view) tells all.
    #[inline]
    pub fn text_of_key(
        &self,
        known: &mut Known,
        header: &Header<'_>,
        key: &[u8],
        out: &mut [u8],
    ) -> Option<(Text, usize)> {
        self.verified(header)?.text_of_key(known, (header.payload(), header.raw_len()), key, out)
    }

    /// The shapes of a datum that is compared with its check sum; none if it is another, or damaged.
    #[inline]
    fn verified(&self, header: &Header<'_>) -> Option<&shapes::Reader> {
        let is_of_this = header.form() == Form::Shapes && header.dictionary() == Some(self.id);
        let reader = self.shapes.as_deref().filter(|_| is_of_this)?;
        header.verify_stored(reader.identity()).ok().map(|()| reader)
    }

    /// The shapes of a datum's dictionary, which this has to be; the datum is compared with its check sum.
    #[inline]
    pub(crate) fn shapes_of(&self, header: &Header<'_>) -> Result<&shapes::Reader, Error> {
        let reader = self.unverified(header)?;
        header.verify_stored(reader.identity())?;
        Ok(reader)
    }

    /// The shapes of the dictionary of this id, which this has to be.
    pub(crate) fn of_id(&self, needed: DictionaryId) -> Result<&shapes::Reader, Error> {
        match &self.shapes {
            Some(reader) if needed == self.id => Ok(reader),
            _ => Err(Error::WrongDictionary { needed, given: self.id }),
        }
    }

    /// The same before the datum is compared with anything.
    #[inline]
    pub(crate) fn unverified(&self, header: &Header<'_>) -> Result<&shapes::Reader, Error> {
        if header.dictionary() != Some(self.id) {
            let needed = header.dictionary().unwrap_or(self.id);
            return Err(Error::WrongDictionary { needed, given: self.id });
        }
        let Some(reader) = &self.shapes else {
            return Err(corrupt("number of shapes of the dictionary, at least,", header.dictionary(), 1, 0));
        };
        Ok(reader)
    }

    pub(crate) fn prepared(&self) -> Option<&DecompressorDictionary> {
        self.prepared.as_ref()
    }
}

/// What algorithms other than shapes use of a dictionary.
fn plain(dictionary: &Dictionary, parts: Option<&Parts<'_>>) -> Result<Option<Dictionary>, Error> {
    match parts {
        None => Ok(Some(dictionary.clone())),
        Some(parts) if parts.zstd.is_empty() => Ok(None),
        Some(parts) => Ok(Some(Dictionary::new(memory::copy(parts.zstd)?)?)),
    }
}

impl fmt::Display for DictionaryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
