//! LZ4 streams: raw blocks without a frame, each of which may refer to the last 64 KiB of raw bytes before it.
//!
//! Both sides keep these bytes in a buffer of their own, directly before the place of the next block, which is
//! the layout LZ4 is fastest with ("prefix mode"); when the buffer is used up the last 64 KiB move to its front.
//!
//! Abandoning a block rewinds the encoder: the fields that say where it stands are put back and the abandoned
//! block's entries leave the hash table. That needs the layout of `LZ4_stream_t`, which lz4.h publishes so that
//! programs can allocate it. A test pins the library's version.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

// Links the library, of which it declares only a part.
use lz4_sys as _;

use super::Progress;
use crate::algorithm::{Algorithm, Level};
use crate::error::Error;
use crate::limits::LZ4_HISTORY_BYTES;

const TABLE_ENTRIES: usize = 1 << 12;
/// `LZ4_STREAM_MINSIZE` of lz4.h.
const STREAM_BYTES: usize = (1 << 14) + 32;
/// History, and blocks for a while until the history has to move.
const BUFFER_BYTES: usize = 3 * LZ4_HISTORY_BYTES;

/// `LZ4_stream_t` of lz4.h 1.10.
#[repr(C)]
union Stream {
    space: [u64; STREAM_BYTES / 8],
    state: State,
}

#[derive(Copy, Clone)]
#[repr(C)]
struct State {
    /// Positions, on the scale of `current_offset`.
    table: [u32; TABLE_ENTRIES],
    place: Place,
}

/// Where a stream stands.
#[derive(Copy, Clone)]
#[repr(C)]
struct Place {
    dictionary: *const u8,
    dictionary_context: *const c_void,
    /// Position of the next byte.
    current_offset: u32,
    table_type: u32,
    /// Bytes before the next one that can be referred to.
    dictionary_size: u32,
}

const _: () = assert!(size_of::<Stream>() == STREAM_BYTES);

unsafe extern "C" {
    fn LZ4_initStream(buffer: *mut c_void, size: usize) -> *mut Stream;
    fn LZ4_resetStream_fast(stream: *mut Stream);
    fn LZ4_loadDict(stream: *mut Stream, dictionary: *const c_char, size: c_int) -> c_int;
    fn LZ4_saveDict(stream: *mut Stream, safe: *mut c_char, size_max: c_int) -> c_int;
    fn LZ4_compress_fast_continue(
        stream: *mut Stream,
        source: *const c_char,
        target: *mut c_char,
        source_size: c_int,
        target_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_usingDict(
        source: *const c_char,
        target: *mut c_char,
        source_size: c_int,
        target_capacity: c_int,
        dictionary: *const c_char,
        dictionary_size: c_int,
    ) -> c_int;
}

pub(super) struct Encoder {
    stream: Box<Stream>,
    buffer: Box<[u8]>,
    /// Where the next block's raw bytes go.
    end: usize,
    acceleration: c_int,
    /// `end` and the stream's place before the pending block.
    before: (usize, Place),
}

// SAFETY: the pointers in the stream point into the encoder's own buffer, or nowhere.
unsafe impl Send for Encoder {}

/// LZ4_COMPRESSBOUND of lz4.h.
pub(super) fn bound(raw_len: usize) -> usize {
    raw_len + raw_len / 255 + 16
}

impl Encoder {
    pub(super) fn new(level: Level) -> Result<Self, Error> {
        let mut stream = Box::new(Stream { space: [0; STREAM_BYTES / 8] });
        // SAFETY: the memory is a stream's, in size and alignment.
        let made = unsafe { LZ4_initStream((&raw mut *stream).cast(), STREAM_BYTES) };
        if made.is_null() {
            return Err(Error::Memory { algorithm: Algorithm::Lz4 });
        }
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let before = (0, place(&stream));
        Ok(Encoder { stream, buffer, end: 0, acceleration: level.0, before })
    }

    pub(super) fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.make_room(input.len());
        self.before = (self.end, place(&self.stream));
        self.run(input, out)
    }

    pub(super) fn encode_independent(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.make_room(input.len());
        self.before = (self.end, place(&self.stream));
        // SAFETY: the stream is initialised.
        unsafe { LZ4_resetStream_fast(&raw mut *self.stream) };
        self.run(input, out)
    }

    pub(super) fn commit(&mut self) {}

    pub(super) fn abandon(&mut self) {
        let (end, before) = self.before;
        self.end = end;
        // SAFETY: the stream is initialised, and all of its bytes are plain integers or pointers.
        let state = unsafe { &mut self.stream.state };
        if state.place.current_offset < before.current_offset {
            // LZ4 has renumbered its table (once in 1 GiB).
            return self.rebuild(before.dictionary_size as usize);
        }
        for position in &mut state.table {
            // Zero is what an unused entry holds.
            *position = if *position < before.current_offset { *position } else { 0 };
        }
        state.place = before;
    }

    pub(super) fn forget(&mut self) {
        // SAFETY: the stream is initialised.
        unsafe { LZ4_resetStream_fast(&raw mut *self.stream) };
    }

    /// LZ4 blocks carry no state from one to the next.
    pub(super) fn is_open_at_decoder(&self) -> bool {
        false
    }

    pub(super) fn set_open_at_decoder(&mut self, _open: bool) {}

    pub(super) fn restart(&mut self) {
        // SAFETY: the stream is initialised.
        unsafe { LZ4_resetStream_fast(&raw mut *self.stream) };
        self.end = 0;
    }

    pub(super) fn set_level(&mut self, level: Level) -> Result<(), Error> {
        self.acceleration = level.0;
        Ok(())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        STREAM_BYTES + self.buffer.len()
    }

    /// Moves the history to the buffer's front if `len` bytes do not fit behind it.
    fn make_room(&mut self, len: usize) {
        if self.buffer.len() - self.end < len {
            // SAFETY: the buffer has LZ4_HISTORY_BYTES and more; LZ4 moves them with memmove.
            let kept = unsafe {
                let safe = self.buffer.as_mut_ptr().cast();
                LZ4_saveDict(&raw mut *self.stream, safe, LZ4_HISTORY_BYTES as c_int)
            };
            self.end = kept as usize;
        }
    }

    fn run(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if input.is_empty() {
            return Ok(());
        }
        let raw = &mut self.buffer[self.end..][..input.len()];
        raw.copy_from_slice(input);
        let capacity = bound(input.len());
        out.reserve(capacity);
        let spare = out.spare_capacity_mut();
        // SAFETY: source and target are valid for these sizes, which are far below c_int's range (chunks are at
        // most 64 KiB), and stay where they are; the history the stream knows lies before `raw` in the buffer.
        let written = unsafe {
            LZ4_compress_fast_continue(
                &raw mut *self.stream,
                raw.as_ptr().cast(),
                spare.as_mut_ptr().cast(),
                raw.len() as c_int,
                capacity as c_int,
                self.acceleration,
            )
        };
        if written <= 0 {
            return Err(Error::Unsupported { algorithm: Algorithm::Lz4, what: "this chunk" });
        }
        // SAFETY: LZ4 has written that many bytes.
        unsafe { out.set_len(out.len() + written as usize) };
        self.end += input.len();
        Ok(())
    }

    /// Makes a new table of the `known` bytes before `end`.
    fn rebuild(&mut self, known: usize) {
        let history = &self.buffer[self.end - known.min(LZ4_HISTORY_BYTES).min(self.end)..self.end];
        // SAFETY: the history is valid for its length and stays in its place.
        unsafe {
            LZ4_loadDict(&raw mut *self.stream, history.as_ptr().cast(), history.len() as c_int);
        }
    }
}

pub(super) struct Decoder {
    /// Empty until the first block and after `release`.
    buffer: Vec<u8>,
    /// Where the next block's raw bytes go.
    end: usize,
    block_raw_max: usize,
    consumed_total: u64,
    failed: Option<Error>,
}

impl Decoder {
    pub(super) fn new(block_raw_max: usize) -> Self {
        Decoder { buffer: Vec::new(), end: 0, block_raw_max, consumed_total: 0, failed: None }
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
        if input.is_empty() {
            return Ok(Progress { consumed: 0, produced: 0, more_output: false });
        }
        let allowed = self.block_raw_max.min(out_room);
        self.make_room(allowed);
        let history = self.end.min(LZ4_HISTORY_BYTES);
        let (before, target) = self.buffer.split_at_mut(self.end);
        // A block longer than its worst case is caught by LZ4 itself; one longer than c_int is not.
        let source_size = c_int::try_from(input.len()).unwrap_or(c_int::MAX);
        // SAFETY: source, target and dictionary are valid for these sizes; `allowed` is at most 16 MiB.
        let written = unsafe {
            LZ4_decompress_safe_usingDict(
                input.as_ptr().cast(),
                target.as_mut_ptr().cast(),
                source_size,
                allowed as c_int,
                before.as_ptr().add(self.end - history).cast(),
                history as c_int,
            )
        };
        let Ok(produced) = usize::try_from(written) else {
            return Err(self.explain(input, allowed));
        };
        out.extend_from_slice(&target[..produced]);
        self.end += produced;
        self.consumed_total += input.len() as u64;
        Ok(Progress { consumed: input.len(), produced, more_output: false })
    }

    pub(super) fn restart(&mut self) {
        (self.end, self.consumed_total, self.failed) = (0, 0, None);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn at_frame_end(&self) -> bool {
        self.end == 0
    }

    pub(super) fn release(&mut self) {
        self.buffer = Vec::new();
    }

    /// Makes room for `len` bytes behind the history.
    fn make_room(&mut self, len: usize) {
        if self.buffer.is_empty() {
            self.buffer = vec![0; 2 * LZ4_HISTORY_BYTES + self.block_raw_max];
        }
        if self.buffer.len() - self.end < len {
            self.buffer.copy_within(self.end - LZ4_HISTORY_BYTES..self.end, 0);
            self.end = LZ4_HISTORY_BYTES;
        }
    }

    /// Why a block was refused: too large for its room, which can be tried again, or damaged.
    fn explain(&mut self, input: &[u8], allowed: usize) -> Error {
        match block_raw_size(input) {
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

fn place(stream: &Stream) -> Place {
    // SAFETY: the stream is initialised.
    unsafe { stream.state.place }
}

/// The raw size of a block by its sequences alone (lz4_Block_format.md); none if they do not end with the block.
fn block_raw_size(block: &[u8]) -> Option<u64> {
    let mut bytes = block.iter();
    let mut size = 0u64;
    loop {
        let token = *bytes.next()?;
        let literals = length(&mut bytes, token >> 4)?;
        size += literals;
        let rest = bytes.as_slice();
        bytes = rest.get(usize::try_from(literals).ok()?..)?.iter();
        if bytes.as_slice().is_empty() {
            return Some(size);
        }
        let _offset = (bytes.next()?, bytes.next()?);
        size += length(&mut bytes, token & 15)? + 4;
    }
}

fn length(bytes: &mut std::slice::Iter<'_, u8>, nibble: u8) -> Option<u64> {
    let mut length = u64::from(nibble);
    if nibble == 15 {
        loop {
            let byte = *bytes.next()?;
            length += u64::from(byte);
            if byte != 255 {
                break;
            }
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_stream_layout_is_that_of_the_library_version_it_was_taken_from() {
        // SAFETY: it only returns a constant.
        assert_eq!(unsafe { lz4_sys::LZ4_versionNumber() }, 11_000);
    }
}
