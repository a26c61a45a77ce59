//! Single zstd frames, without checksum, content size or dictionary id: what the caller keeps anyway.

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective};

use crate::algorithm::{Algorithm, Level};
use crate::dictionary::Dictionary;
use crate::error::Error;
use crate::room::Room;

use super::corrupt;

const MEMORY: Error = Error::Memory { algorithm: Algorithm::Zstd };
/// A block that a part ends may add its header (RFC 8878, 3.1.1.2) to the bound of the whole.
const PART_BYTES: usize = 3;
/// Tables of their own cost smaller parts more than they gain.
const PART_BYTES_MIN: usize = 4 << 10;

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
        let context = self.prepare(level, dictionary)?;
        let mut room = Room::after(out, zstd_safe::compress_bound(input.len()));
        context.compress2(&mut room, input).map_err(unusable)?;
        Ok(())
    }

    /// One frame of all parts, in which parts of at least [`PART_BYTES_MIN`] end a block.
    pub(super) fn compress_parts(
        &mut self,
        level: Level,
        parts: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let context = self.prepare(level, None)?;
        // What a call that failed has left would go into this frame.
        context.reset(ResetDirective::SessionOnly).map_err(unusable)?;
        context.set_pledged_src_size(Some(size as u64)).map_err(unusable)?;
        let bound = zstd_safe::compress_bound(size) + PART_BYTES * (parts.len() + 1);
        let mut room = Room::after(out, bound);
        let mut output = OutBuffer::around(&mut room);
        let mut pending = 0;
        for part in parts {
            pending += part.len();
            let then = if pending < PART_BYTES_MIN {
                ZSTD_EndDirective::ZSTD_e_continue
            } else {
                pending = 0;
                ZSTD_EndDirective::ZSTD_e_flush
            };
            feed(context, &mut InBuffer::around(part), &mut output, then)?;
        }
        feed(context, &mut InBuffer::around(&[]), &mut output, ZSTD_EndDirective::ZSTD_e_end)
    }

    pub(super) fn memory_size(&self) -> usize {
        self.context.as_ref().map_or(0, CCtx::sizeof)
    }

    fn prepare(
        &mut self,
        level: Level,
        dictionary: Option<&Dictionary>,
    ) -> Result<&mut CCtx<'static>, Error> {
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
        Ok(context)
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

/// Hands over all of `input` and, unless more is to follow in the same block, takes all that comes of it.
fn feed(
    context: &mut CCtx<'static>,
    input: &mut InBuffer<'_>,
    output: &mut OutBuffer<'_, Room<'_>>,
    then: ZSTD_EndDirective,
) -> Result<(), Error> {
    loop {
        let before = (input.pos(), output.pos());
        let left = context.compress_stream2(output, input, then).map_err(unusable)?;
        if left == 0 || input.pos() == input.src.len() && then == ZSTD_EndDirective::ZSTD_e_continue {
            return Ok(());
        }
        if before == (input.pos(), output.pos()) {
            let what = "this input: its frame is longer than zstd's own bound";
            return Err(Error::Unsupported { algorithm: Algorithm::Zstd, what });
        }
    }
}

fn unusable(code: usize) -> Error {
    Error::Unsupported { algorithm: Algorithm::Zstd, what: zstd_safe::get_error_name(code) }
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
