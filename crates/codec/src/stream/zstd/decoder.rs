//! Reads zstd frames one after the other, within a window limit and the caller's room.

use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::super::Progress;
use super::{MAGIC, MEMORY, encoder_error, is};
use crate::algorithm::Algorithm;
use crate::error::Error;
use crate::room::Room;

/// Magic number, descriptor, window, dictionary id and content size at their longest (RFC 8878, 3.1.1.1).
const HEADER_BYTES_MAX: usize = 18;

pub(crate) struct Decoder {
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
    pub(crate) fn new(window_log_max: u32) -> Self {
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

    pub(crate) fn decode(
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

    pub(crate) fn restart(&mut self) {
        if let Some(context) = &mut self.context {
            // Resetting only the session cannot fail.
            let _ = context.reset(ResetDirective::SessionOnly);
        }
        (self.header_len, self.between_frames, self.held_back) = (0, true, false);
        (self.consumed_total, self.failed) = (0, None);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, |context| context.sizeof())
    }

    pub(crate) fn at_frame_end(&self) -> bool {
        self.between_frames && !self.held_back
    }

    pub(crate) fn release(&mut self) {
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
pub(crate) fn declared_window(input: &[u8]) -> Option<u64> {
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
