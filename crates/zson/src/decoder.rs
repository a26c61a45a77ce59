//! Datums into documents.

use pgshrink_codec as codec;
use pgshrink_codec::bare::Decompressor;

use crate::datum::{Form, Header};
use crate::dictionary::ReadingDictionary;
use crate::error::Error;

/// Decompression contexts, made when first needed and kept. Changing the dictionary costs nothing.
#[derive(Default, Debug)]
pub struct Decoder {
    decompressor: Decompressor,
}

impl Decoder {
    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes into `target`, which has exactly [`Header::raw_len`] bytes, and compares with the check sum. After
    /// an error the target holds bytes without meaning.
    ///
    /// The dictionary must be the one that [`Header::dictionary`] names. Where it names none, any is ignored.
    pub fn decode(
        &mut self,
        header: &Header<'_>,
        dictionary: Option<&ReadingDictionary>,
        target: &mut [u8],
    ) -> Result<(), Error> {
        if target.len() != header.raw_len() {
            return Err(Error::Target { needed: header.raw_len(), given: target.len() });
        }
        let dictionary = match (header.dictionary(), dictionary) {
            (None, _) => None,
            (Some(needed), None) => return Err(Error::DictionaryMissing { needed }),
            (Some(needed), Some(dictionary)) if dictionary.id() != needed => {
                return Err(Error::WrongDictionary { needed, given: dictionary.id() });
            }
            (Some(_), given) => given.map(ReadingDictionary::prepared),
        };
        let payload = header.payload();
        match header.form() {
            Form::Raw => target.copy_from_slice(payload),
            Form::Compressed(shape) => self
                .decompressor
                .decompress(shape, dictionary, payload, target)
                .map_err(|source| refused(header, source))?,
        }
        header.verify(target)
    }

    /// Bytes of memory its contexts hold.
    pub fn memory_size(&self) -> usize {
        self.decompressor.memory_size()
    }
}

fn refused(header: &Header<'_>, source: codec::Error) -> Error {
    match source {
        codec::Error::Corrupt { .. } => Error::Payload {
            dictionary: header.dictionary(),
            payload_len: header.payload().len(),
            raw_len: header.raw_len(),
            source,
        },
        source => source.into(),
    }
}
