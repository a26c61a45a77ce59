//! Long texts, which zstd mostly makes shorter than phrases do.
//!
//! Each is compressed alone, with what the dictionary has for zstd. So the values beside it are still found without decoding
//! it, and a document that is mostly one text takes as little room as by zstd alone.

use pgshrink_codec::bare::{self, Compressor, Decompressor, Proceed, Shape};
use pgshrink_codec::prepared::{CompressorDictionary, DecompressorDictionary};
use pgshrink_codec::{self as codec, Algorithm, Choice};

use super::writing::{ANY_ZSTD_BLOCK, ANY_ZSTD_BLOCKS};
use crate::error::Error;
use crate::limits::LONG_TEXT_BYTES_MIN;

/// What long texts are written with.
pub(crate) struct Long<'z, 'p> {
    pub(crate) compressor: &'z mut Compressor,
    pub(crate) choice: Choice,
    pub(crate) dictionary: Option<&'z CompressorDictionary>,
    pub(crate) proceed: &'z mut Proceed<'p>,
}

impl Long<'_, '_> {
    /// Whether zstd is tried for a text.
    pub(super) fn is_for(&self, text: &[u8]) -> bool {
        text.len() >= LONG_TEXT_BYTES_MIN && self.choice.algorithm == Algorithm::Zstd
    }

    /// Appends the payload of a text. Returns the byte that says what it is.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Codec`].
    pub(super) fn append(&mut self, text: &[u8], out: &mut Vec<u8>) -> Result<u8, Error> {
        let Long { compressor, choice, dictionary, proceed } = self;
        // One takes less than a second, many may take longer.
        if proceed().is_break() {
            return Err(Error::Interrupted);
        }
        let shape = compressor.compress_while(*choice, *dictionary, text, out, proceed);
        Ok(match shape.map_err(Error::of_codec)? {
            Shape::ZstdBlock => ANY_ZSTD_BLOCK,
            _ => ANY_ZSTD_BLOCKS,
        })
    }

    /// Bytes that [`append`](Self::append) needs room for.
    pub(super) fn room_for(text: &[u8]) -> usize {
        bare::zstd_bound(text.len())
    }
}

/// A long text that was found.
#[derive(Copy, Clone, Debug)]
pub(super) struct Packed<'p> {
    shape: Shape,
    payload: &'p [u8],
}

impl<'p> Packed<'p> {
    /// Of what stands behind the byte that says what it is; none: another byte, or damage.
    pub(super) fn of(what: u8, bytes: &'p [u8]) -> Option<Packed<'p>> {
        let shape = match what {
            ANY_ZSTD_BLOCK => Shape::ZstdBlock,
            ANY_ZSTD_BLOCKS => Shape::ZstdBlocks,
            _ => return None,
        };
        Some(Packed { shape, payload: bytes })
    }

    /// Bytes of the text, at most.
    pub(super) fn length_max(&self) -> usize {
        self.shape.raw_size_max(self.payload.len())
    }

    /// Writes the text to the beginning of `target`. Returns its length; none: damage, or there is no room.
    ///
    /// # Errors
    /// [`Error::Codec`]: there is no memory.
    pub(super) fn unpack(
        &self,
        dictionary: Option<&DecompressorDictionary>,
        decompressor: &mut Decompressor,
        target: &mut [u8],
    ) -> Result<Option<usize>, Error> {
        match decompressor.decompress_within(self.shape, dictionary, self.payload, target) {
            Ok(length) => Ok(Some(length)),
            Err(codec::Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
