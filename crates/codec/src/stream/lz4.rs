//! LZ4 streams: raw blocks without a frame, each of which may refer to the last 64 KiB of raw bytes before it.
//!
//! Both sides keep these bytes in a buffer of their own, directly before the place of the next block, which is
//! the layout LZ4 is fastest with ("prefix mode"); when the buffer is used up the last 64 KiB move to its front.
//! Abandoning a block rewinds the encoder's stream to where it stood.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::Progress;
use crate::algorithm::{Algorithm, Level};
use crate::error::Error;
use crate::lz4::{self, HISTORY_BYTES, Place, Stream};
use crate::room::Out;

pub(super) use crate::lz4::bound;

/// History, and blocks for a while until the history has to move.
const BUFFER_BYTES: usize = 3 * HISTORY_BYTES;
/// An abandoned chunk longer than this has displaced so much of the table that it is worth making a new one.
const REWIND_BYTES_MAX: usize = 4 << 10;

pub(super) struct Encoder {
    stream: Box<Stream>,
    buffer: Box<[u8]>,
    /// Where the next block's raw bytes go.
    end: usize,
    acceleration: i32,
    /// `end` and the stream's place before the pending block.
    before: (usize, Place),
}

// SAFETY: the pointers in the places point into the encoder's own buffer, or nowhere.
unsafe impl Send for Encoder {}

impl Encoder {
    pub(super) fn new(level: Level) -> Self {
        let stream = Stream::new();
        let before = (0, stream.place());
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Encoder { stream, buffer, end: 0, acceleration: level.0, before }
    }

    pub(super) fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.begin(input.len());
        self.run(input, out)
    }

    pub(super) fn encode_independent(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.begin(input.len());
        self.stream.reset();
        self.run(input, out)
    }

    pub(super) fn commit(&mut self) {}

    pub(super) fn abandon(&mut self) -> bool {
        let (end, before) = self.before;
        let abandoned = self.end - end;
        self.end = end;
        if abandoned > REWIND_BYTES_MAX || !self.stream.rewind(before) {
            let history = &self.buffer[end - before.history_len()..end];
            // SAFETY: the buffer is the encoder's and moves its bytes only by `move_history`.
            unsafe { self.stream.load(history, false) };
        }
        true
    }

    pub(super) fn forget(&mut self) {
        self.stream.reset();
    }

    /// LZ4 blocks carry no state from one to the next.
    pub(super) fn is_open_at_decoder(&self) -> bool {
        false
    }

    pub(super) fn set_open_at_decoder(&mut self, _open: bool) {}

    pub(super) fn restart(&mut self) {
        self.stream.reset();
        self.end = 0;
    }

    pub(super) fn set_level(&mut self, level: Level) -> Result<(), Error> {
        self.acceleration = level.0;
        Ok(())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        lz4::STREAM_BYTES + self.buffer.len()
    }

    fn begin(&mut self, len: usize) {
        if self.buffer.len() - self.end < len {
            // SAFETY: the buffer is the encoder's; what lies behind the moved history is free for the next block.
            self.end = unsafe { self.stream.move_history(&mut self.buffer) };
        }
        self.before = (self.end, self.stream.place());
    }

    fn run(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if input.is_empty() {
            return Ok(());
        }
        let raw = &mut self.buffer[self.end..][..input.len()];
        raw.copy_from_slice(input);
        // SAFETY: the bytes lie in the encoder's buffer and are overwritten only after a rewind or a move.
        if !unsafe { self.stream.compress_continue(raw, out, self.acceleration) } {
            return Err(Error::Unsupported { algorithm: Algorithm::Lz4, what: "this chunk" });
        }
        self.end += input.len();
        Ok(())
    }
}

pub(super) struct Decoder {
    /// Empty until the first block and after `release`.
    buffer: Vec<u8>,
    /// Where the next block's raw bytes go.
    end: usize,
    /// The last `HISTORY_BYTES` of what `end` counts, while the buffer is given back and the peer may still refer to them.
    resting: Option<Resting>,
    block_raw_max: usize,
    consumed_total: u64,
    failed: Option<Error>,
}

impl Decoder {
    pub(super) fn new(block_raw_max: usize) -> Self {
        Decoder { buffer: Vec::new(), end: 0, resting: None, block_raw_max, consumed_total: 0, failed: None }
    }

    pub(super) fn decode(
        &mut self,
        input: &[u8],
        mut out: Out<'_>,
        out_room: usize,
    ) -> Result<Progress, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if input.is_empty() {
            return Ok(Progress::default());
        }
        let allowed = self.block_raw_max.min(out_room);
        self.make_room(allowed).inspect_err(|error| self.failed = Some(error.clone()))?;
        let (history, target) = self.buffer.split_at_mut(self.end);
        let Some(produced) = lz4::decompress(input, as_uninit(&mut target[..allowed]), history) else {
            return Err(self.explain(input, allowed));
        };
        out.extend(&target[..produced]);
        self.end += produced;
        self.consumed_total += input.len() as u64;
        Ok(Progress { consumed: input.len(), produced, ..Progress::default() })
    }

    pub(super) fn restart(&mut self) {
        (self.end, self.consumed_total, self.failed) = (0, 0, None);
        self.resting = None;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buffer.len() + self.resting.as_ref().map_or(0, |resting| resting.bytes.len())
    }

    /// Heap bytes that decoding takes.
    pub(super) fn memory_needed(&self) -> usize {
        2 * HISTORY_BYTES + self.block_raw_max
    }

    pub(super) fn at_frame_end(&self) -> bool {
        self.end == 0
    }

    /// Keeps the history alone.
    pub(super) fn release(&mut self) {
        if self.end > 0 && !self.buffer.is_empty() {
            let history = &self.buffer[self.end.saturating_sub(HISTORY_BYTES)..self.end];
            self.resting = Some(Resting::new(history));
            self.end = history.len();
        }
        self.buffer = Vec::new();
    }

    /// Makes room for `len` bytes behind the history.
    fn make_room(&mut self, len: usize) -> Result<(), Error> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; self.memory_needed()];
        }
        if let Some(resting) = self.resting.take() {
            resting.wake(&mut self.buffer[..self.end])?;
        }
        if self.buffer.len() - self.end < len {
            self.buffer.copy_within(self.end - HISTORY_BYTES..self.end, 0);
            self.end = HISTORY_BYTES;
        }
        Ok(())
    }

    /// Why a block was refused: too large for its room, which can be tried again, or damaged.
    fn explain(&mut self, input: &[u8], allowed: usize) -> Error {
        match lz4::block_raw_size(input) {
            Some(found) if found > allowed as u64 => {
                Error::Limit { what: "lz4 block's raw size", found, allowed: allowed as u64 }
            }
            _ => {
                let detail = "malformed block, or a reference to before the stream's begin";
                let error = Error::Corrupt { algorithm: Algorithm::Lz4, offset: self.consumed_total, detail };
                self.failed = Some(error.clone());
                error
            }
        }
    }
}

/// The history of a decoder that has nothing to do.
struct Resting {
    bytes: Box<[u8]>,
    /// By zstd; where that gained nothing they are the history itself.
    compressed: bool,
}

impl Resting {
    /// What came as LZ4 blocks shrinks: a sender keeps what does not out of its frames.
    const LEVEL: i32 = 1;

    fn new(history: &[u8]) -> Self {
        let mut small = Vec::with_capacity(zstd_safe::compress_bound(history.len()));
        match zstd_safe::compress(&mut small, history, Self::LEVEL) {
            Ok(size) if size < history.len() => Resting { bytes: small.into(), compressed: true },
            _ => Resting { bytes: history.into(), compressed: false },
        }
    }

    /// Fills `history`, which has the size of the one that `new` got.
    fn wake(&self, history: &mut [u8]) -> Result<(), Error> {
        if !self.compressed {
            history.copy_from_slice(&self.bytes);
            return Ok(());
        }
        // The bytes are our own, so nothing but a lack of memory gets in the way.
        match zstd_safe::decompress(history, &self.bytes) {
            Ok(size) if size == history.len() => Ok(()),
            _ => Err(Error::Memory { algorithm: Algorithm::Lz4 }),
        }
    }
}

fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: same layout, and LZ4 writes only initialised bytes back.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}
