//! Datums into documents.

use pgshrink_codec as codec;

use crate::datum::{Form, Header, corrupt};
use crate::dictionary::ReadingDictionary;
use crate::error::Error;
use crate::shapes::Scratch;

/// Decompression contexts, made when first needed and kept. Changing the dictionary costs nothing.
#[derive(Default, Debug)]
pub struct Decoder {
    scratch: Scratch,
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
            (Some(_), given) => given,
        };
        let payload = header.payload();
        if let (Form::Shapes, Some(dictionary)) = (header.form(), dictionary) {
            return self.decode_shapes(header, dictionary, target);
        }
        let prepared = match dictionary {
            Some(dictionary) => {
                let prepared = dictionary.prepared();
                let nothing =
                    || corrupt("bytes of the dictionary for zstd, at least,", header.dictionary(), 1, 0);
                Some(prepared.ok_or_else(nothing)?)
            }
            None => None,
        };
        match header.form() {
            Form::Raw => target.copy_from_slice(payload),
            Form::Compressed(shape) => self
                .scratch
                .decompressor
                .decompress(shape, prepared, payload, target)
                .map_err(|source| refused(header, source))?,
            // It names a dictionary, always.
            Form::Shapes => return Err(corrupt("dictionary bit of a document of shapes", None, 1, 0)),
        }
        header.verify(target)
    }

    fn decode_shapes(
        &mut self,
        header: &Header<'_>,
        dictionary: &ReadingDictionary,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let shapes = dictionary.shapes_of(header)?;
        let payload = header.payload();
        if shapes.decode(dictionary.prepared(), payload, target, &mut self.scratch)? {
            return Ok(());
        }
        Err(Error::Shapes {
            dictionary: dictionary.id(),
            payload_len: payload.len(),
            raw_len: header.raw_len(),
        })
    }

    /// Room for reading values alone.
    pub fn scratch(&mut self) -> &mut Scratch {
        &mut self.scratch
    }

    /// Bytes of memory its contexts hold.
    pub fn memory_size(&self) -> usize {
        self.scratch.memory_size()
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
