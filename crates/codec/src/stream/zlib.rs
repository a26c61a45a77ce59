//! zlib streams: one RFC 1950 header, then raw deflate with a sync flush after each chunk, never an end.
//!
//! The header is written by hand and the encoder is a raw deflate, because after a flush the stream is byte
//! aligned and *any* raw deflate can continue it. So a chunk can be abandoned: a fresh encoder, primed by way of
//! a preset dictionary what the decoder's window holds, goes on as if it had written everything itself.
//!
//! zlib-rs' level 1 takes a tenth of the time of the others for a small chunk, but compresses bulk a quarter worse
//! than zlib's own level 1; its level 2 compresses better than that. So our level 1 is their 1 for dialogues and
//! their 2 for bulk.
#![allow(unsafe_code)]

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::Progress;
use super::traffic::{SMALL_BYTES_MAX, Traffic};
use crate::algorithm::{Algorithm, Level};
use crate::error::Error;
use crate::room::{Out, Room};

/// Deflate with a 32 KiB window, no preset dictionary, "fastest" (RFC 1950, 2.2).
pub(super) const HEADER: [u8; 2] = [0x78, 0x01];
const WINDOW_BYTES: usize = 32 << 10;
/// zlib-rs' state: 64 KiB window twice over, 128 KiB hash heads, 64 KiB chain, 64 KiB pending output, trees.
const ENCODER_STATE_BYTES: usize = 330 << 10;
/// Committed history is cut back to WINDOW_BYTES when it would outgrow this.
const HISTORY_BYTES_MAX: usize = 3 * WINDOW_BYTES;
const UNUSABLE: Error = Error::Unsupported { algorithm: Algorithm::Zlib, what: "this state of the encoder" };
/// zlib-rs' state: window and code tables.
const DECODER_STATE_BYTES: usize = 48 << 10;

/// A rebuilt encoder knows at least this much.
const REBUILT_BYTES_MIN: usize = 4 << 10;
/// Raw bytes of one stored block.
const STORED_BLOCK_MAX: usize = 0xffff;
/// Block type, length and its complement.
const STORED_HEADER_BYTES: usize = 5;

/// What the encoder's own context is good for.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Context {
    /// Nothing seen: refers to nothing.
    Fresh,
    /// Seen only what was committed.
    Shared,
    /// Seen an abandoned chunk or made for another level: must be rebuilt from the history.
    Stale,
}

/// Size of `raw_len` bytes in stored blocks.
fn stored_size(raw_len: usize) -> usize {
    raw_len + raw_len.div_ceil(STORED_BLOCK_MAX) * STORED_HEADER_BYTES
}

/// Stored blocks at a byte boundary (RFC 1951, 3.2.4). Fast levels use fixed codes only, which make noise an
/// eighth longer; a stored block costs 5 bytes.
fn put_stored(input: &[u8], out: &mut Vec<u8>) {
    for block in input.chunks(STORED_BLOCK_MAX) {
        let len = block.len() as u16;
        out.push(0);
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(!len).to_le_bytes());
        out.extend_from_slice(block);
    }
}

pub(super) struct Encoder {
    deflate: Compress,
    level: Level,
    /// What `deflate` works at.
    real_level: u32,
    traffic: Traffic,
    context: Context,
    /// The decoder has the header.
    begun: bool,
    /// The last raw bytes committed, then those of the pending chunk; only the last WINDOW_BYTES of each count.
    history: Vec<u8>,
    /// Length of the history without the pending chunk.
    committed_len: usize,
}

/// Fixed Huffman codes take 9 bits at worst and stored blocks 5 bytes in 16 KiB; a flush takes up to 6 bytes, and
/// zlib repeats a flush that has left the buffer full.
pub(crate) fn bound(raw_len: usize) -> usize {
    HEADER.len() + raw_len + raw_len / 8 + raw_len / 64 + 64
}

impl Encoder {
    pub(super) fn new(level: Level) -> Self {
        Encoder {
            deflate: new_deflate(real_level(level)),
            level,
            real_level: real_level(level),
            traffic: Traffic::default(),
            context: Context::Fresh,
            begun: false,
            history: Vec::new(),
            committed_len: 0,
        }
    }

    pub(super) fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if input.is_empty() {
            return Ok(());
        }
        self.choose_level(input.len());
        if self.context == Context::Stale {
            self.rebuild(input.len())?;
        }
        self.run(input, out)
    }

    pub(super) fn encode_independent(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if input.is_empty() {
            return Ok(());
        }
        self.choose_level(input.len());
        if self.context != Context::Fresh {
            self.deflate.reset();
        }
        self.run(input, out)
    }

    pub(super) fn commit(&mut self) {
        self.begun |= self.history.len() > self.committed_len;
        self.committed_len = self.history.len();
    }

    pub(super) fn abandon(&mut self) -> bool {
        if self.history.len() > self.committed_len {
            self.history.truncate(self.committed_len);
            self.context = Context::Stale;
        }
        true
    }

    pub(super) fn forget(&mut self) {
        self.history.clear();
        self.committed_len = 0;
        self.context = Context::Stale;
    }

    pub(super) fn is_open_at_decoder(&self) -> bool {
        self.begun
    }

    pub(super) fn set_open_at_decoder(&mut self, open: bool) {
        self.begun = open;
    }

    pub(super) fn restart(&mut self) {
        self.history.clear();
        self.committed_len = 0;
        self.begun = false;
        self.context = Context::Stale;
    }

    pub(super) fn set_level(&mut self, level: Level) -> Result<(), Error> {
        self.level = level;
        self.work_at(real_level(level));
        Ok(())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        ENCODER_STATE_BYTES + self.history.capacity()
    }

    fn choose_level(&mut self, len: usize) {
        self.traffic.note(len);
        if self.level != Level(1) {
            return;
        }
        let bulk = match self.real_level {
            1 if self.context == Context::Fresh => len > SMALL_BYTES_MAX,
            1 => self.traffic.is_bulk(),
            _ => !self.traffic.is_dialogue(),
        };
        self.work_at(if bulk { 2 } else { 1 });
    }

    fn work_at(&mut self, level: u32) {
        if self.real_level != level {
            self.real_level = level;
            self.deflate = new_deflate(level);
            self.context = Context::Stale;
        }
    }

    /// A fresh encoder that knows what the decoder's window holds.
    /// How much of it is in proportion to the chunk of `len` bytes that is next, as taking in the whole window takes
    /// as long as compressing hundreds of small chunks.
    fn rebuild(&mut self, len: usize) -> Result<(), Error> {
        self.deflate.reset();
        self.context = Context::Fresh;
        let known = (8 * len).clamp(REBUILT_BYTES_MIN, WINDOW_BYTES);
        let window = &self.history[self.history.len().saturating_sub(known)..];
        if !window.is_empty() {
            self.deflate.set_dictionary(window).map_err(|_| UNUSABLE)?;
            self.context = Context::Shared;
        }
        Ok(())
    }

    fn run(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.remember(input);
        self.context = Context::Shared;
        if !self.begun {
            out.extend_from_slice(&HEADER);
        }
        out.reserve(bound(input.len()));
        let from = out.len();
        let end = self.deflate.total_in() + input.len() as u64;
        let status = self.deflate.compress_vec(input, out, FlushCompress::Sync);
        let flushed = out.len() < out.capacity() && self.deflate.total_in() == end;
        match status {
            Ok(Status::Ok) if flushed => {}
            _ => return Err(UNUSABLE),
        }
        if out.len() - from > stored_size(input.len()) {
            out.truncate(from);
            // The encoder goes on all the same: a flush leaves it at a byte boundary, and its window is right.
            put_stored(input, out);
        }
        Ok(())
    }

    fn remember(&mut self, input: &[u8]) {
        if self.history.len() > HISTORY_BYTES_MAX - WINDOW_BYTES {
            self.history.drain(..self.history.len() - WINDOW_BYTES);
            self.committed_len = self.history.len();
        }
        self.history.extend_from_slice(&input[input.len().saturating_sub(WINDOW_BYTES)..]);
    }
}

pub(super) struct Decoder {
    /// None until the first byte and after `release`.
    inflate: Option<Decompress>,
    /// The next `inflate` begins behind the stream's header.
    headless: bool,
    /// The last call filled its room, so there may be more.
    held_back: bool,
    ended: bool,
    failed: Option<Error>,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Decoder { inflate: None, headless: false, held_back: false, ended: false, failed: None }
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
        let mut progress = Progress::default();
        loop {
            let rest = &input[progress.consumed..];
            let room_left = out_room - progress.produced;
            progress.more_output = self.held_back || !rest.is_empty();
            if room_left == 0 || !progress.more_output {
                return Ok(progress);
            }
            let (consumed, produced) = self
                .step(rest, &mut out, room_left)
                .inspect_err(|error| self.failed = Some(error.clone()))?;
            progress.consumed += consumed;
            progress.produced += produced;
        }
    }

    pub(super) fn restart(&mut self) {
        if let Some(inflate) = &mut self.inflate {
            inflate.reset(true);
        }
        self.headless = false;
        (self.held_back, self.ended, self.failed) = (false, false, None);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.inflate.as_ref().map_or(0, |_| DECODER_STATE_BYTES)
    }

    /// Heap bytes that decoding takes.
    pub(super) fn memory_needed(&self) -> usize {
        DECODER_STATE_BYTES
    }

    pub(super) fn at_frame_end(&self) -> bool {
        let has_begun = |inflate: &Decompress| {
            inflate.total_out() > 0 || ![0, HEADER.len() as u64].contains(&inflate.total_in())
        };
        !self.inflate.as_ref().is_some_and(has_begun) && self.failed.is_none()
    }

    /// The peer stands at a byte's begin and refers to nothing before: a raw inflate can go on, and nothing is kept till then.
    pub(super) fn forget(&mut self) {
        if self.failed.is_none() && !self.ended && !self.held_back {
            self.headless |= self.inflate.take().is_some_and(|inflate| inflate.total_in() > 0);
        }
    }

    /// Inflates once, into a bounded step of the room; says how much was taken and given.
    fn step(&mut self, input: &[u8], out: &mut Out<'_>, room: usize) -> Result<(usize, usize), Error> {
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(!self.headless));
        let offset = inflate.total_in();
        let corrupt = |detail| Err(Error::Corrupt { algorithm: Algorithm::Zlib, offset, detail });
        if self.ended {
            return if input.is_empty() {
                self.held_back = false;
                Ok((0, 0))
            } else {
                corrupt("bytes after the end of the stream")
            };
        }
        let out_before = inflate.total_out();
        let given = |inflate: &Decompress| (inflate.total_out() - out_before) as usize;
        let (status, produced, size) = match out {
            Out::Vec(vec) => {
                let mut room = Room::step(vec, room);
                let status = inflate.decompress_uninit(input, room.uninit(), FlushDecompress::None);
                let produced = given(inflate);
                // SAFETY: inflate wrote as many bytes at the room's start.
                unsafe { room.filled(produced) };
                (status, produced, room.size())
            }
            Out::Slice(slice) => {
                let status = inflate.decompress(input, &mut slice[..room], FlushDecompress::None);
                (status, given(inflate), room)
            }
        };
        out.filled(produced);
        let consumed = (inflate.total_in() - offset) as usize;
        self.held_back = produced == size;
        match status {
            Ok(Status::StreamEnd) => self.ended = true,
            Ok(_) if consumed == 0 && produced == 0 && !input.is_empty() => {
                return corrupt("no progress");
            }
            Ok(_) => {}
            Err(error) if error.needs_dictionary().is_some() => {
                let what = "streams with a preset dictionary";
                return Err(Error::Unsupported { algorithm: Algorithm::Zlib, what });
            }
            Err(_) => return corrupt("invalid header, block, code or distance"),
        }
        Ok((consumed, produced))
    }
}

/// zlib-rs' level 9 finds less than its level 8 once there are flushes.
fn real_level(level: Level) -> u32 {
    level.0.unsigned_abs().min(8)
}

fn new_deflate(level: u32) -> Compress {
    Compress::new(Compression::new(level), false)
}
