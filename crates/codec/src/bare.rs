//! Small inputs as payloads without anything constant, for formats that keep size and check sum themselves.
//!
//! A payload carries neither magic number, raw size, dictionary id nor check sum. What zstd writes before its
//! blocks is dropped and put back for decoding, and of a frame that is one compressed block the block's header
//! too, which follows from the payload's length: 5 bytes less than the shortest frame zstd itself would write.
//!
//! | shape | payload |
//! |---|---|
//! | [`Shape::ZstdBlock`] | the content of one compressed zstd block, raw size at most 128 KiB |
//! | [`Shape::ZstdBlocks`] | all blocks of a zstd frame with their headers |
//! | [`Shape::Lz4`] | one LZ4 block |
//!
//! A payload does not say whether it is intact; only its size is checked. Whoever keeps it adds a check sum.
//!
//! ```
//! use pgshrink_codec::{Algorithm, Choice, bare};
//! let (mut payload, raw) = (Vec::new(), [7; 1000]);
//! let shape = bare::Compressor::new().compress(Algorithm::Lz4.into(), None, &raw, &mut payload)?;
//! let mut back = [0; 1000];
//! bare::Decompressor::new().decompress(shape, None, &payload, &mut back)?;
//! assert!(payload.len() < 20 && back == raw);
//! # Ok::<(), pgshrink_codec::Error>(())
//! ```
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::ControlFlow;

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CDict, CParameter, DCtx, InBuffer, OutBuffer};

use crate::algorithm::{Algorithm, Choice, Level};
use crate::dictionary::is_memory;
use crate::error::Error;
use crate::limits::{BLOCK_RAW_MAX, ZSTD_WINDOW_LOG_MAX, ZSTD_WINDOW_LOG_MIN};
use crate::lz4::{self, Stream};
use crate::prepared::{CompressorDictionary, DecompressorDictionary, Digest};
use crate::room::Room;

/// How a payload is laid out; the reader must know it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One compressed zstd block without its header.
    ZstdBlock,
    /// The blocks of a zstd frame, with headers.
    ZstdBlocks,
    /// One LZ4 block.
    Lz4,
}

/// Asked before each piece of an input that takes long; [`ControlFlow::Break`] ends the work with
/// [`Error::Interrupted`].
pub type Proceed<'a> = dyn FnMut() -> ControlFlow<()> + 'a;

/// Contexts for compressing, made when first needed and kept. Changing level or dictionary costs nothing.
///
/// Inputs that zstd takes long for have a context of their own and go through it in pieces: those of more than
/// 128 KiB from level 13 on, and of more than 1 MiB at any level.
#[derive(Default)]
pub struct Compressor {
    zstd: Option<CCtx<'static>>,
    lz4: Option<Box<Stream>>,
}

/// Contexts for decompressing, made when first needed and kept.
#[derive(Default)]
pub struct Decompressor {
    zstd: Option<DCtx<'static>>,
    /// A payload behind the headers it was stripped of.
    frame: Vec<u8>,
}

impl Shape {
    /// The most raw bytes that a payload of `len` bytes can hold. To be checked before memory is taken for a size
    /// that something else promises.
    pub fn raw_size_max(self, len: usize) -> usize {
        match self {
            Shape::ZstdBlock => ZSTD_BLOCK_BYTES_MAX,
            // A run-length block has four bytes.
            Shape::ZstdBlocks => (len / 4).saturating_mul(ZSTD_BLOCK_BYTES_MAX),
            // Each byte of a length adds at most 255.
            Shape::Lz4 => len.saturating_mul(255),
        }
    }
}

/// The most bytes that zstd's payload of an input of `len` bytes has while it is written.
pub fn zstd_bound(len: usize) -> usize {
    zstd_safe::compress_bound(len)
}

impl Compressor {
    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `input` to `out` as a payload, by zstd or LZ4. It may be larger than the input. On an error nothing
    /// was appended. A dictionary must have been prepared for this very `choice`.
    pub fn compress(
        &mut self,
        choice: Choice,
        dictionary: Option<&CompressorDictionary>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Shape, Error> {
        self.compress_while(choice, dictionary, input, out, &mut || ControlFlow::Continue(()))
    }

    /// As [`compress`](Self::compress), to the same bytes, and asks `proceed` before each piece of a large input that
    /// goes through zstd. If `proceed` panics, `out` keeps what it had and bytes without meaning behind it.
    ///
    /// Between two calls lies at most about a second of work: 128 KiB from level 13 on, 1 MiB below. LZ4, at some
    /// hundred MB a second, does not ask.
    pub fn compress_while(
        &mut self,
        choice: Choice,
        dictionary: Option<&CompressorDictionary>,
        input: &[u8],
        out: &mut Vec<u8>,
        proceed: &mut Proceed<'_>,
    ) -> Result<Shape, Error> {
        let Choice { algorithm, level } = choice;
        check_raw_size(input.len())?;
        if dictionary.is_some_and(|dictionary| dictionary.choice() != choice) {
            return Err(Error::Unsupported { algorithm, what: "a dictionary prepared for another level" });
        }
        match (algorithm, dictionary.map(CompressorDictionary::digest)) {
            (Algorithm::Zstd, None) if input.len() > one_call_bytes_max(level) => {
                zstd_in_pieces(level, None, input, out, proceed)
            }
            (Algorithm::Zstd, Some(Digest::Zstd(digest))) if input.len() > one_call_bytes_max(level) => {
                zstd_in_pieces(level, Some(digest), input, out, proceed)
            }
            (Algorithm::Zstd, None) => self.zstd(input, out, |context, room| {
                context.compress(room, input, algorithm.level(level.0.into()).map_or(3, |level| level.0))
            }),
            (Algorithm::Zstd, Some(Digest::Zstd(digest))) => {
                self.zstd(input, out, |context, room| context.compress_using_cdict(room, input, digest))
            }
            (Algorithm::Lz4, None) => {
                reserve_for_lz4(out, input)?;
                let stream = self.lz4.get_or_insert_with(Stream::new);
                lz4_shape(stream.compress_alone(input, out, level.0))
            }
            (Algorithm::Lz4, Some(Digest::Lz4(digest))) => {
                reserve_for_lz4(out, input)?;
                let stream = self.lz4.get_or_insert_with(Stream::new);
                // SAFETY: the digest, its dictionary and the input outlive this call, and after the reset nothing
                // remembers them.
                let done = unsafe {
                    stream.attach(digest);
                    let done = stream.compress_continue(input, out, level.0);
                    stream.reset();
                    done
                };
                lz4_shape(done)
            }
            _ => Err(Error::Unsupported { algorithm, what: "bare payloads" }),
        }
    }

    /// Bytes of memory its contexts hold.
    pub fn memory_size(&self) -> usize {
        self.zstd.as_ref().map_or(0, CCtx::sizeof) + self.lz4.as_ref().map_or(0, |_| lz4::STREAM_BYTES)
    }

    fn zstd(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        compress: impl FnOnce(&mut CCtx<'static>, &mut Room<'_>) -> zstd_safe::SafeResult,
    ) -> Result<Shape, Error> {
        let context = match &mut self.zstd {
            Some(context) => context,
            slot => slot.insert(CCtx::try_create().ok_or(MEMORY)?),
        };
        let start = out.len();
        let bound = zstd_bound(input.len());
        out.try_reserve(bound).map_err(|_| MEMORY)?;
        compress(context, &mut Room::after(out, bound)).map_err(refusal)?;
        Ok(strip_frame(out, start))
    }
}

impl Decompressor {
    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a payload into `target`, which it must fill exactly; anything else is [`Error::Corrupt`], and the
    /// target then holds bytes without meaning. A wrong dictionary may go unnoticed.
    pub fn decompress(
        &mut self,
        shape: Shape,
        dictionary: Option<&DecompressorDictionary>,
        payload: &[u8],
        target: &mut [u8],
    ) -> Result<(), Error> {
        check_raw_size(target.len())?;
        if target.len() > shape.raw_size_max(payload.len()) {
            return Err(corrupt(shape, "too short for the promised size"));
        }
        let written = self.decompress_within(shape, dictionary, payload, target)?;
        if written == target.len() { Ok(()) } else { Err(corrupt(shape, "shorter than the promised size")) }
    }

    /// As [`decompress`](Self::decompress) of a payload whose raw size nothing says: to the beginning of `target`. Returns
    /// how many bytes it has; more than there is room for is [`Error::Corrupt`].
    pub fn decompress_within(
        &mut self,
        shape: Shape,
        dictionary: Option<&DecompressorDictionary>,
        payload: &[u8],
        target: &mut [u8],
    ) -> Result<usize, Error> {
        check_raw_size(target.len())?;
        match shape {
            Shape::Lz4 => {
                let history = dictionary.map_or(&[][..], DecompressorDictionary::lz4);
                lz4::decompress(payload, uninit(target), history)
                    .ok_or_else(|| corrupt(shape, "malformed, or longer than there is room for"))
            }
            Shape::ZstdBlock | Shape::ZstdBlocks => self.zstd(shape, dictionary, payload, target),
        }
    }

    /// Bytes of memory its contexts hold.
    pub fn memory_size(&self) -> usize {
        self.zstd.as_ref().map_or(0, DCtx::sizeof) + self.frame.capacity()
    }

    fn zstd(
        &mut self,
        shape: Shape,
        dictionary: Option<&DecompressorDictionary>,
        payload: &[u8],
        target: &mut [u8],
    ) -> Result<usize, Error> {
        let context = match &mut self.zstd {
            Some(context) => context,
            slot => slot.insert(DCtx::try_create().ok_or(MEMORY)?),
        };
        if shape == Shape::ZstdBlock && payload.len() > ZSTD_BLOCK_BYTES_MAX {
            return Err(corrupt(shape, "too long for one block"));
        }
        self.frame.clear();
        if self.frame.capacity() > FRAME_BYTES_KEPT {
            self.frame = Vec::new();
        }
        self.frame
            .try_reserve(FRAME_HEADER.len() + BLOCK_HEADER_BYTES + payload.len())
            .map_err(|_| MEMORY)?;
        self.frame.extend_from_slice(&FRAME_HEADER);
        if shape == Shape::ZstdBlock {
            self.frame.extend_from_slice(&block_header(payload.len()));
        }
        self.frame.extend_from_slice(payload);
        // zstd would decode a second frame behind the first.
        if shape == Shape::ZstdBlocks
            && zstd_safe::find_frame_compressed_size(&self.frame) != Ok(self.frame.len())
        {
            return Err(corrupt(shape, "its blocks do not end with it"));
        }
        match dictionary {
            Some(dictionary) => context.decompress_using_ddict(target, &self.frame, dictionary.zstd()),
            None => context.decompress(target, &self.frame),
        }
        .map_err(|code| match zstd_safe::get_error_name(code) {
            name if is_memory(name) => MEMORY,
            name => corrupt(shape, name),
        })
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

const MEMORY: Error = Error::Memory { algorithm: Algorithm::Zstd };

/// `Block_Maximum_Size` of RFC 8878.
const ZSTD_BLOCK_BYTES_MAX: usize = 128 << 10;
const BLOCK_HEADER_BYTES: usize = 3;
/// Memory for stripped frames that is kept from one payload to the next.
const FRAME_BYTES_KEPT: usize = 1 << 20;

/// What every frame begins with when it is put back: magic number, a descriptor that announces nothing, and the
/// largest window, which for one-shot decoding costs no memory (RFC 8878, 3.1.1.1).
const FRAME_HEADER: [u8; 6] =
    [0x28, 0xb5, 0x2f, 0xfd, 0, ((ZSTD_WINDOW_LOG_MAX - ZSTD_WINDOW_LOG_MIN) << 3) as u8];

/// Inputs of more bytes than this go through zstd in pieces. One call may take a second for as much at the highest of
/// these levels, on documents that are hard for it.
fn one_call_bytes_max(level: Level) -> usize {
    if level.0 >= SLOW_LEVEL { ZSTD_BLOCK_BYTES_MAX } else { 1 << 20 }
}

/// From here on zstd searches binary trees, some MB a second and less (its strategies `btlazy2` and above).
const SLOW_LEVEL: i32 = 13;

/// One frame, block by block, with a context of its own: what it refers to lives no longer than this call.
fn zstd_in_pieces(
    level: Level,
    digest: Option<&CDict<'_>>,
    input: &[u8],
    out: &mut Vec<u8>,
    proceed: &mut Proceed<'_>,
) -> Result<Shape, Error> {
    let start = out.len();
    let bound = zstd_bound(input.len());
    out.try_reserve(bound).map_err(|_| MEMORY)?;
    let mut context = CCtx::try_create().ok_or(MEMORY)?;
    context.set_parameter(CParameter::CompressionLevel(level.0)).map_err(refusal)?;
    context.set_pledged_src_size(Some(input.len() as u64)).map_err(refusal)?;
    if let Some(digest) = digest {
        context.ref_cdict(digest).map_err(refusal)?;
    }
    let done = {
        let mut room = Room::after(out, bound);
        feed(&mut context, input, &mut OutBuffer::around(&mut room), proceed)
    };
    match done {
        Ok(()) => Ok(strip_frame(out, start)),
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// A whole frame of `input`, which is not empty.
fn feed(
    context: &mut CCtx<'_>,
    input: &[u8],
    output: &mut OutBuffer<'_, Room<'_>>,
    proceed: &mut Proceed<'_>,
) -> Result<(), Error> {
    let mut pieces = input.chunks(ZSTD_BLOCK_BYTES_MAX).peekable();
    while let Some(piece) = pieces.next() {
        if proceed().is_break() {
            return Err(Error::Interrupted);
        }
        let mut given = InBuffer::around(piece);
        let last = pieces.peek().is_none();
        let then = if last { ZSTD_EndDirective::ZSTD_e_end } else { ZSTD_EndDirective::ZSTD_e_continue };
        loop {
            let before = (given.pos(), output.pos());
            let left = context.compress_stream2(output, &mut given, then).map_err(refusal)?;
            if given.pos() == piece.len() && (!last || left == 0) {
                break;
            }
            if before == (given.pos(), output.pos()) {
                let what = "this input: its frame is longer than zstd's own bound";
                return Err(Error::Unsupported { algorithm: Algorithm::Zstd, what });
            }
        }
    }
    Ok(())
}

/// Takes what stands before the blocks off the frame that begins at `start`, which zstd has just written.
fn strip_frame(out: &mut Vec<u8>, start: usize) -> Shape {
    let frame = &out[start..];
    let header_len = frame_header_len(frame);
    let (stripped, shape) = match frame[header_len..] {
        [a, b, c, ref rest @ ..] if [a, b, c] == block_header(rest.len()) => {
            (header_len + BLOCK_HEADER_BYTES, Shape::ZstdBlock)
        }
        _ => (header_len, Shape::ZstdBlocks),
    };
    out.drain(start..start + stripped);
    shape
}

fn refusal(code: usize) -> Error {
    match zstd_safe::get_error_name(code) {
        name if is_memory(name) => MEMORY,
        what => Error::Unsupported { algorithm: Algorithm::Zstd, what },
    }
}

/// The header of a block that is the last, compressed and of `len` bytes (RFC 8878, 3.1.1.2).
fn block_header(len: usize) -> [u8; BLOCK_HEADER_BYTES] {
    let [a, b, c, ..] = ((len as u32) << 3 | 2 << 1 | 1).to_le_bytes();
    [a, b, c]
}

/// The size of what stands before the blocks of a frame that zstd has just written (RFC 8878, 3.1.1.1).
fn frame_header_len(frame: &[u8]) -> usize {
    let descriptor = frame[4];
    let single_segment = descriptor & 0x20 != 0;
    let dictionary_id_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_size_len = match descriptor >> 6 {
        0 => usize::from(single_segment),
        flag => 1 << flag,
    };
    5 + usize::from(!single_segment) + dictionary_id_len + content_size_len
}

/// Room for any block of `input`, or an error.
fn reserve_for_lz4(out: &mut Vec<u8>, input: &[u8]) -> Result<(), Error> {
    out.try_reserve(lz4::bound(input.len())).map_err(|_| Error::Memory { algorithm: Algorithm::Lz4 })
}

fn lz4_shape(done: bool) -> Result<Shape, Error> {
    if done {
        Ok(Shape::Lz4)
    } else {
        Err(Error::Unsupported { algorithm: Algorithm::Lz4, what: "this block" })
    }
}

/// Initialised bytes are also bytes that need not be.
fn uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the layouts are equal, and the only user, LZ4, writes nothing but initialised bytes.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

fn check_raw_size(len: usize) -> Result<(), Error> {
    let (found, allowed) = (len as u64, BLOCK_RAW_MAX as u64);
    if found > allowed { Err(Error::Limit { what: "raw block size", found, allowed }) } else { Ok(()) }
}

/// One-shot decoders do not say how far they came.
fn corrupt(shape: Shape, detail: &'static str) -> Error {
    let algorithm = match shape {
        Shape::Lz4 => Algorithm::Lz4,
        Shape::ZstdBlock | Shape::ZstdBlocks => Algorithm::Zstd,
    };
    Error::Corrupt { algorithm, offset: 0, detail }
}
