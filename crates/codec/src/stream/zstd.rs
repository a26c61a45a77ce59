//! zstd streams: frames one after the other, each flushed chunk by chunk, without checksum or content size.
//!
//! Two encoders take turns, each with frames of its own: zstd's for bulk, and a terse one for dialogues of small
//! messages, where zstd's fixed cost per flush would be most of the work. Which one goes on is decided by the
//! sizes of the chunks; a change ends the open frame and costs 9 bytes and the context.

mod decoder;
mod sequence;
mod terse;

use zstd_safe::zstd_sys::{ZSTD_EndDirective, ZSTD_ErrorCode};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

pub(super) use decoder::Decoder;
use terse::Terse;

use super::traffic::{SMALL_BYTES_MAX, Traffic};
use crate::algorithm::{Algorithm, Level};
use crate::error::Error;
use crate::room::Room;

/// An empty raw block with the last-block bit: ends the frame that is open at the decoder.
pub(super) const CLOSE_FRAME: [u8; 3] = [1, 0, 0];
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The lowest of sixteen: the low half of the first byte is free (RFC 8878, 3.1.2).
const SKIPPABLE_MAGIC: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];
/// Magic number, descriptor and window: what these encoders write.
const HEADER_BYTES: usize = 6;
const MEMORY: Error = Error::Memory { algorithm: Algorithm::Zstd };
/// Above this level the user wants ratio rather than speed, and zstd takes every chunk.
const TERSE_LEVEL_MAX: Level = Level(3);
/// zstd has other parameters for inputs up to this size (ZSTD_getCParams_internal).
const SOURCE_BYTES_LARGE: u32 = (256 << 10) + 1;

/// Which encoder.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Mode {
    Bulk,
    Terse,
}

pub(super) struct Encoder {
    bulk: Option<CCtx<'static>>,
    terse: Option<Terse>,
    level: Level,
    window_log: u32,
    traffic: Traffic,
    /// Whose context is that of the frame open at the decoder. None: a new frame is due.
    context: Option<Mode>,
    /// A frame is open at the decoder, of which it has seen committed chunks.
    open_there: bool,
    pending: Pending,
}

/// The chunk that is neither committed nor abandoned.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Pending {
    None,
    /// It goes on with the open frame or leaves a new one open.
    Open(Mode),
    /// It is a whole frame.
    Closed(Mode),
}

/// What one chunk of `raw_len` bytes can become: each block has a 3-byte header, a frame its own.
pub(super) fn bound(raw_len: usize) -> usize {
    zstd_safe::compress_bound(raw_len) + CLOSE_FRAME.len() + HEADER_BYTES + 3
}

impl Encoder {
    pub(super) fn new(level: Level, window_log: u32) -> Self {
        Encoder {
            bulk: None,
            terse: None,
            level,
            window_log,
            traffic: Traffic::default(),
            context: None,
            open_there: false,
            pending: Pending::None,
        }
    }

    pub(super) fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if input.is_empty() {
            return Ok(());
        }
        let mode = self.choose(input.len());
        let new_frame = self.context != Some(mode);
        if new_frame && self.open_there {
            out.extend_from_slice(&CLOSE_FRAME);
        }
        self.pending = Pending::Open(mode);
        self.run(mode, input, new_frame, false, out)
    }

    pub(super) fn encode_independent(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if input.is_empty() {
            return Ok(());
        }
        if self.open_there {
            out.extend_from_slice(&CLOSE_FRAME);
        }
        let mode = if self.is_small(input.len()) { Mode::Terse } else { Mode::Bulk };
        self.pending = Pending::Closed(mode);
        self.run(mode, input, true, true, out)
    }

    pub(super) fn commit(&mut self) {
        match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::None => {}
            Pending::Open(mode) => (self.context, self.open_there) = (Some(mode), true),
            Pending::Closed(_) => (self.context, self.open_there) = (None, false),
        }
    }

    pub(super) fn abandon(&mut self) -> bool {
        match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::None => true,
            Pending::Open(Mode::Terse) | Pending::Closed(Mode::Terse) => {
                self.terse.as_mut().into_iter().for_each(Terse::take_back);
                true
            }
            // zstd cannot take anything back. If the chunk was a frame's first, the other context is still good.
            Pending::Open(Mode::Bulk) | Pending::Closed(Mode::Bulk) => {
                let lost = self.context == Some(Mode::Bulk);
                if lost {
                    self.context = None;
                }
                !lost
            }
        }
    }

    pub(super) fn forget(&mut self) {
        self.context = None;
    }

    pub(super) fn is_open_at_decoder(&self) -> bool {
        self.open_there
    }

    pub(super) fn set_open_at_decoder(&mut self, open: bool) {
        self.open_there = open;
    }

    pub(super) fn restart(&mut self) {
        (self.context, self.open_there, self.pending) = (None, false, Pending::None);
    }

    pub(super) fn set_level(&mut self, level: Level) -> Result<(), Error> {
        self.level = level;
        if self.context == Some(Mode::Bulk) {
            self.context = None;
        }
        if let Some(context) = &mut self.bulk {
            reset(context);
            context.set_parameter(CParameter::CompressionLevel(level.0)).map_err(encoder_error)?;
        }
        Ok(())
    }

    pub(super) fn set_window_log(&mut self, window_log: u32) {
        if self.window_log == window_log {
            return;
        }
        self.window_log = window_log;
        if self.context == Some(Mode::Bulk) {
            self.context = None;
        }
        // A context keeps the memory of the largest window it had.
        self.bulk = None;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bulk.as_ref().map_or(0, |context| context.sizeof())
            + self.terse.as_ref().map_or(0, Terse::memory_bytes)
    }

    fn run(
        &mut self,
        mode: Mode,
        input: &[u8],
        new_frame: bool,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        if mode == Mode::Terse {
            let terse = self.terse.get_or_insert_with(|| Terse::new(self.window_log));
            if new_frame {
                // No checksum, content size or dictionary (RFC 8878, 3.1.1.1).
                let window = (terse.window_log() as u8 - 10) << 3;
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&[0, window]);
            }
            terse.encode(input, new_frame, end, out);
            return Ok(());
        }
        let context = match &mut self.bulk {
            Some(context) => context,
            empty => empty.insert(new_context(self.level, self.window_log)?),
        };
        if new_frame {
            reset(context);
        }
        let directive = if end { ZSTD_EndDirective::ZSTD_e_end } else { ZSTD_EndDirective::ZSTD_e_flush };
        let mut room = Room::after(out, bound(input.len()));
        let mut output = OutBuffer::around(&mut room);
        let mut input = InBuffer::around(input);
        let left = context.compress_stream2(&mut output, &mut input, directive).map_err(encoder_error)?;
        assert_eq!(left, 0, "zstd flushed less than all into a sufficient buffer");
        Ok(())
    }

    fn is_small(&self, len: usize) -> bool {
        len <= SMALL_BYTES_MAX.min(1 << self.window_log) && self.level <= TERSE_LEVEL_MAX
    }

    fn choose(&mut self, len: usize) -> Mode {
        self.traffic.note(len);
        let small = self.is_small(len);
        let fits = || self.terse.as_ref().is_some_and(|terse| len <= terse.chunk_max());
        let terse = match self.context {
            None => small,
            Some(Mode::Bulk) => small && self.traffic.is_dialogue(),
            Some(Mode::Terse) => small || (fits() && !self.traffic.is_bulk()),
        };
        if terse { Mode::Terse } else { Mode::Bulk }
    }
}

fn new_context(level: Level, window_log: u32) -> Result<CCtx<'static>, Error> {
    let mut context = CCtx::try_create().ok_or(MEMORY)?;
    for parameter in [
        CParameter::CompressionLevel(level.0),
        CParameter::WindowLog(window_log),
        // Without a size zstd does not cut its tables down to the window, which at level 10 costs 20 MiB.
        CParameter::SrcSizeHint(SOURCE_BYTES_LARGE.max(1 << window_log)),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
    ] {
        context.set_parameter(parameter).map_err(encoder_error)?;
    }
    Ok(context)
}

fn reset(context: &mut CCtx<'static>) {
    // Resetting only the session cannot fail.
    let _ = context.reset(ResetDirective::SessionOnly);
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
