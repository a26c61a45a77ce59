//! zstd streams: frames one after the other, each flushed chunk by chunk, without checksum or content size.

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::Progress;
use crate::algorithm::{Algorithm, Level};
use crate::error::Error;
use crate::room::Room;

/// An empty raw block with the last-block bit: ends the frame that is open at the decoder.
const CLOSE_FRAME: [u8; 3] = [1, 0, 0];
/// Magic number, descriptor, window, dictionary id and content size at their longest (RFC 8878, 3.1.1.1).
const HEADER_BYTES_MAX: usize = 18;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const MEMORY: Error = Error::Memory { algorithm: Algorithm::Zstd };

pub(super) struct Encoder {
    context: CCtx<'static>,
    /// A frame is open in `context`, and the decoder has seen all of it that was committed.
    open_here: bool,
    /// A frame is open at the decoder, of which it has seen committed chunks.
    open_there: bool,
    /// What `open_there` becomes if the chunk just encoded is committed.
    open_if_committed: bool,
}

/// What one chunk of `raw_len` bytes can become: each block has a 3-byte header, a frame its own.
pub(super) fn bound(raw_len: usize) -> usize {
    zstd_safe::compress_bound(raw_len) + CLOSE_FRAME.len() + HEADER_BYTES_MAX + 3
}

impl Encoder {
    pub(super) fn new(level: Level, window_log: u32) -> Result<Self, Error> {
        let mut context = CCtx::try_create().ok_or(MEMORY)?;
        for parameter in [
            CParameter::CompressionLevel(level.0),
            CParameter::WindowLog(window_log),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            context.set_parameter(parameter).map_err(encoder_error)?;
        }
        Ok(Encoder { context, open_here: false, open_there: false, open_if_committed: false })
    }

    pub(super) fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if input.is_empty() {
            self.open_if_committed = self.open_there;
            return Ok(());
        }
        if !self.open_here && self.open_there {
            out.extend_from_slice(&CLOSE_FRAME);
        }
        self.open_here = true;
        self.open_if_committed = true;
        self.run(input, out, ZSTD_EndDirective::ZSTD_e_flush)
    }

    pub(super) fn encode_independent(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if input.is_empty() {
            self.open_if_committed = self.open_there;
            return Ok(());
        }
        if self.open_there {
            out.extend_from_slice(&CLOSE_FRAME);
        }
        self.reset();
        self.open_if_committed = false;
        self.run(input, out, ZSTD_EndDirective::ZSTD_e_end)
    }

    pub(super) fn commit(&mut self) {
        self.open_there = self.open_if_committed;
    }

    pub(super) fn abandon(&mut self) {
        self.reset();
    }

    pub(super) fn forget(&mut self) {
        self.reset();
    }

    pub(super) fn is_open_at_decoder(&self) -> bool {
        self.open_there
    }

    pub(super) fn set_open_at_decoder(&mut self, open: bool) {
        self.open_there = open;
    }

    pub(super) fn restart(&mut self) {
        self.reset();
        self.open_there = false;
    }

    pub(super) fn set_level(&mut self, level: Level) -> Result<(), Error> {
        self.reset();
        self.context.set_parameter(CParameter::CompressionLevel(level.0)).map_err(encoder_error)?;
        Ok(())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.context.sizeof()
    }

    fn reset(&mut self) {
        self.open_here = false;
        // Resetting only the session cannot fail.
        let _ = self.context.reset(ResetDirective::SessionOnly);
    }

    fn run(&mut self, input: &[u8], out: &mut Vec<u8>, end: ZSTD_EndDirective) -> Result<(), Error> {
        let mut room = Room::after(out, bound(input.len()));
        let mut output = OutBuffer::around(&mut room);
        let mut input = InBuffer::around(input);
        let left = self.context.compress_stream2(&mut output, &mut input, end).map_err(encoder_error)?;
        assert_eq!(left, 0, "zstd flushed less than all into a sufficient buffer");
        Ok(())
    }
}

pub(super) struct Decoder {
    /// None until the first byte and after `release`.
    context: Option<DCtx<'static>>,
    window_log_max: u32,
    /// The first bytes of the frame being read, to name its window in an error.
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    /// The next byte begins a frame.
    between_frames: bool,
    /// The last call filled its room, so zstd may hold decoded bytes back.
    held_back: bool,
    consumed_total: u64,
    failed: Option<Error>,
}

impl Decoder {
    pub(super) fn new(window_log_max: u32) -> Self {
        Decoder {
            context: None,
            window_log_max,
            header: [0; HEADER_BYTES_MAX],
            header_len: 0,
            between_frames: true,
            held_back: false,
            consumed_total: 0,
            failed: None,
        }
    }

    pub(super) fn decode(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        out_room: usize,
    ) -> Result<Progress, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut progress = Progress { consumed: 0, produced: 0, more_output: false };
        loop {
            let rest = &input[progress.consumed..];
            let room_left = out_room - progress.produced;
            progress.more_output = self.held_back || !rest.is_empty();
            // Not only for speed: zstd counts calls that cannot get anywhere and turns them into an error.
            if room_left == 0 || !progress.more_output {
                return Ok(progress);
            }
            let (consumed, produced) =
                self.step(rest, out, room_left).inspect_err(|error| self.failed = Some(error.clone()))?;
            progress.consumed += consumed;
            progress.produced += produced;
        }
    }

    pub(super) fn restart(&mut self) {
        if let Some(context) = &mut self.context {
            // Resetting only the session cannot fail.
            let _ = context.reset(ResetDirective::SessionOnly);
        }
        (self.header_len, self.between_frames, self.held_back) = (0, true, false);
        (self.consumed_total, self.failed) = (0, None);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, |context| context.sizeof())
    }

    pub(super) fn at_frame_end(&self) -> bool {
        self.between_frames && !self.held_back
    }

    pub(super) fn release(&mut self) {
        self.context = None;
    }

    /// Decodes once, into a bounded step of the room; says how much was taken and given.
    fn step(&mut self, input: &[u8], out: &mut Vec<u8>, room: usize) -> Result<(usize, usize), Error> {
        let context = match &mut self.context {
            Some(context) => context,
            empty => empty.insert(new_context(self.window_log_max)?),
        };
        let mut room = Room::step(out, room);
        let mut output = OutBuffer::around(&mut room);
        let mut source = InBuffer::around(input);
        let result = context.decompress_stream(&mut output, &mut source);
        let (consumed, produced) = (source.pos, output.pos());
        let full = produced == output.capacity();
        if self.between_frames && !input.is_empty() {
            (self.header_len, self.between_frames) = (0, false);
        }
        let seen = if result.is_ok() { &input[..consumed] } else { input };
        let take = seen.len().min(HEADER_BYTES_MAX - self.header_len);
        self.header[self.header_len..self.header_len + take].copy_from_slice(&seen[..take]);
        self.header_len += take;
        let hint = result.map_err(|code| self.decoder_error(code))?;
        self.consumed_total += consumed as u64;
        self.between_frames = hint == 0;
        self.held_back = full && hint != 0;
        if consumed == 0 && produced == 0 && !input.is_empty() {
            let detail = "no progress";
            return Err(Error::Corrupt { algorithm: Algorithm::Zstd, offset: self.consumed_total, detail });
        }
        Ok((consumed, produced))
    }

    fn decoder_error(&self, code: usize) -> Error {
        if is(code, ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge) {
            let allowed = 1 << self.window_log_max;
            let declared = declared_window(&self.header[..self.header_len]);
            let found = declared.unwrap_or(allowed + 1);
            return Error::Limit { what: "zstd window size", found, allowed };
        }
        if is(code, ZSTD_ErrorCode::ZSTD_error_memory_allocation) {
            return MEMORY;
        }
        let detail = zstd_safe::get_error_name(code);
        Error::Corrupt { algorithm: Algorithm::Zstd, offset: self.consumed_total, detail }
    }
}

/// The window of the frame whose header starts here (RFC 8878, 3.1.1.1).
pub(super) fn declared_window(input: &[u8]) -> Option<u64> {
    let rest = input.strip_prefix(&MAGIC)?;
    let (&descriptor, rest) = rest.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let byte = u64::from(*rest.first()?);
        let base = 1u64 << (10 + (byte >> 3));
        return Some(base + (base >> 3) * (byte & 7));
    }
    // The window is the content, whose size follows the dictionary id.
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = 1usize << (descriptor >> 6);
    let field = rest.get(dictionary_bytes..dictionary_bytes + size_bytes)?;
    let value = field.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    Some(if size_bytes == 2 { value + 256 } else { value })
}

fn new_context(window_log_max: u32) -> Result<DCtx<'static>, Error> {
    let mut context = DCtx::try_create().ok_or(MEMORY)?;
    context.set_parameter(DParameter::WindowLogMax(window_log_max)).map_err(encoder_error)?;
    Ok(context)
}

/// Errors that no input can cause.
fn encoder_error(code: usize) -> Error {
    if is(code, ZSTD_ErrorCode::ZSTD_error_memory_allocation) {
        return MEMORY;
    }
    Error::Unsupported { algorithm: Algorithm::Zstd, what: zstd_safe::get_error_name(code) }
}

fn is(code: usize, error: ZSTD_ErrorCode) -> bool {
    // zstd returns errors as the negated code (zstd_errors.h).
    code == (error as usize).wrapping_neg()
}
