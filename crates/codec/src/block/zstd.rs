//! Single zstd frames, without checksum, content size or dictionary id: what the caller keeps anyway.

use zstd_safe::{CCtx, CParameter, DCtx};

use crate::algorithm::{Algorithm, Level};
use crate::dictionary::Dictionary;
use crate::error::Error;
use crate::room::Room;

use super::corrupt;

const MEMORY: Error = Error::Memory { algorithm: Algorithm::Zstd };

#[derive(Default)]
pub(super) struct Compressor {
    context: Option<CCtx<'static>>,
    level: Option<Level>,
    dictionary: Option<Dictionary>,
}

#[derive(Default)]
pub(super) struct Decompressor {
    context: Option<DCtx<'static>>,
    dictionary: Option<Dictionary>,
}

impl Compressor {
    pub(super) fn compress(
        &mut self,
        level: Level,
        dictionary: Option<&Dictionary>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let unusable =
            |code| Error::Unsupported { algorithm: Algorithm::Zstd, what: zstd_safe::get_error_name(code) };
        let context = match &mut self.context {
            Some(context) => context,
            slot => slot.insert(new_context()?),
        };
        if self.level != Some(level) {
            context.set_parameter(CParameter::CompressionLevel(level.0)).map_err(unusable)?;
        }
        // The context digests a dictionary for its level once, when it first uses it.
        if self.level != Some(level) || self.dictionary.as_ref() != dictionary {
            (self.level, self.dictionary) = (None, None);
            context.load_dictionary(dictionary.map_or(&[], Dictionary::bytes)).map_err(unusable)?;
            (self.level, self.dictionary) = (Some(level), dictionary.cloned());
        }
        let mut room = Room::after(out, zstd_safe::compress_bound(input.len()));
        context.compress2(&mut room, input).map_err(unusable)?;
        Ok(())
    }
}

impl Decompressor {
    pub(super) fn decompress(
        &mut self,
        dictionary: Option<&Dictionary>,
        input: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let context = match &mut self.context {
            Some(context) => context,
            slot => slot.insert(DCtx::try_create().ok_or(MEMORY)?),
        };
        if self.dictionary.as_ref() != dictionary {
            self.dictionary = None;
            // Without a dictionary, no bytes: that drops the one before.
            context.load_dictionary(dictionary.map_or(&[], Dictionary::bytes)).map_err(|_| MEMORY)?;
            self.dictionary = dictionary.cloned();
        }
        if zstd_safe::find_frame_compressed_size(input) != Ok(input.len()) {
            return Err(corrupt(Algorithm::Zstd, "not exactly one frame"));
        }
        let mut room = Room::after(out, raw_len);
        match context.decompress(&mut room, input) {
            Ok(_) => Ok(()),
            Err(code) => Err(corrupt(Algorithm::Zstd, zstd_safe::get_error_name(code))),
        }
    }
}

fn new_context() -> Result<CCtx<'static>, Error> {
    let mut context = CCtx::try_create().ok_or(MEMORY)?;
    for parameter in
        [CParameter::ContentSizeFlag(false), CParameter::ChecksumFlag(false), CParameter::DictIdFlag(false)]
    {
        context.set_parameter(parameter).map_err(|_| MEMORY)?;
    }
    Ok(context)
}
