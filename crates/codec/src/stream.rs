//! Streams of flushed chunks that share one context, as PostgreSQL's wire compression dialects send them.
//!
//! An [`Encoder`] turns each chunk of raw bytes into bytes that a [`Decoder`] can turn back completely as soon
//! as it has them. After each chunk the caller says whether it was sent:
//!
//! ```text
//!   encode ──► commit      the decoder will see the chunk; later chunks may refer to it
//!          └─► abandon     it never will (the chunk did not pay and goes out plain)
//! ```
//!
//! Invariants:
//! 1. The concatenation of all committed chunks since the last `restart` is one valid stream: zstd frames one
//!    after the other, one zlib stream without its end, or LZ4 blocks whose history is the raw bytes of the
//!    committed ones.
//! 2. `encode` appends at most `bound(input.len())` bytes.
//! 3. A decoder appends at most `out_room` bytes. It allocates nothing that a peer's header declares beyond its
//!    options' caps, and holds no more memory than `allow_memory` allows, however the header is split.
//! 4. After [`Error::Corrupt`] a decoder refuses everything until `restart`.
//!
//! ```
//! use pgshrink_codec::stream::{Decoder, DecoderOptions, Encoder, EncoderOptions};
//! use pgshrink_codec::{Algorithm, Choice};
//! let mut encoder = Encoder::new(EncoderOptions::from(Choice::from(Algorithm::Zstd)))?;
//! let mut decoder = Decoder::new(DecoderOptions::from(Algorithm::Zstd))?;
//! let (mut wire, mut back) = (Vec::new(), Vec::new());
//! encoder.encode(b"a row, a row, a row", &mut wire)?;
//! encoder.commit();
//! let progress = decoder.decode(&wire, &mut back, 1 << 20)?;
//! assert_eq!((progress.consumed, back.as_slice()), (wire.len(), &b"a row, a row, a row"[..]));
//! # Ok::<(), pgshrink_codec::Error>(())
//! ```

mod lz4;
mod traffic;
mod zlib;
mod zstd;

pub(crate) use zlib::bound as zlib_bound;

use crate::algorithm::{Algorithm, Choice, Level};
use crate::error::Error;
use crate::limits::{
    LZ4_BLOCK_RAW_MAX, LZ4_CHUNK_MAX, ZLIB_CHUNK_MAX, ZSTD_CHUNK_MAX, ZSTD_WINDOW_LOG_MAX,
    ZSTD_WINDOW_LOG_MIN,
};
use crate::room::Out;

/// Options of an [`Encoder`].
#[derive(Copy, Clone, Debug)]
pub struct EncoderOptions {
    /// Algorithm and level.
    pub choice: Choice,
    /// How far back zstd refers, as a power of two, 10 to 27. The other algorithms ignore it.
    pub window_log: u32,
}

/// What is left of an [`Encoder`] that gave its memory back.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    algorithm: Algorithm,
    /// The decoder has an open frame (zstd) or the stream's header (zlib).
    open: bool,
}

impl Resume {
    /// [`ZSTD_FRAME_END`] is being sent to the decoder, in whose stream a zstd frame was open.
    pub fn frame_ended(&mut self) {
        self.open &= self.algorithm != Algorithm::Zstd;
    }
}

/// What ends the zstd frame that is open at a decoder, so that it needs its window no longer: an empty last block.
pub const ZSTD_FRAME_END: [u8; 3] = zstd::CLOSE_FRAME;
/// A flush of a zlib stream in which nothing is: an empty stored block (RFC 1951, 3.2.4).
pub const ZLIB_EMPTY_FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];
/// A zlib stream's header with nothing behind it.
pub const ZLIB_STREAM_BEGIN: [u8; 2] = zlib::HEADER;
/// An LZ4 block in which nothing is.
pub const LZ4_EMPTY_BLOCK: [u8; 1] = [0];

/// Options of a [`Decoder`].
#[derive(Copy, Clone, Debug)]
pub struct DecoderOptions {
    /// The algorithm of the stream.
    pub algorithm: Algorithm,
    /// The largest window a zstd frame may declare, as a power of two, 10 to 27.
    pub window_log_max: u32,
    /// The largest raw size of one LZ4 block, at most [`LZ4_BLOCK_RAW_MAX`].
    pub block_raw_max: usize,
}

/// The sending half of a stream.
pub struct Encoder {
    choice: Choice,
    /// A chunk was encoded and neither committed nor abandoned.
    pending: bool,
    inner: EncoderKind,
}

/// The receiving half of a stream.
pub struct Decoder {
    algorithm: Algorithm,
    /// Heap bytes it may come to.
    memory_max: usize,
    inner: DecoderKind,
}

/// What one call of [`Decoder::decode`] did.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input taken.
    pub consumed: usize,
    /// Bytes appended to the output.
    pub produced: usize,
    /// Call again with the rest of the input, even if that is empty: there may be more to come.
    pub more_output: bool,
    /// What comes next needs so many heap bytes altogether, more than [`Decoder::allow_memory`] allows. Nothing is
    /// allocated for it yet: allow them and call again with the rest of the input, even if that is empty.
    pub wants_memory: Option<usize>,
}

// One variant is boxed by its library anyway; the sizes of the others do not matter next to their heaps.
enum EncoderKind {
    Lz4(lz4::Encoder),
    Zlib(zlib::Encoder),
    Zstd(zstd::Encoder),
}

enum DecoderKind {
    Lz4(lz4::Decoder),
    Zlib(zlib::Decoder),
    Zstd(zstd::Decoder),
}

macro_rules! each {
    ($kind:ident, $inner:expr, $it:ident => $call:expr) => {
        match $inner {
            $kind::Lz4($it) => $call,
            $kind::Zlib($it) => $call,
            $kind::Zstd($it) => $call,
        }
    };
}

impl Encoder {
    /// A new stream. Only LZ4, zlib and zstd have streams.
    pub fn new(options: EncoderOptions) -> Result<Encoder, Error> {
        let EncoderOptions { choice, window_log } = options;
        let choice = Choice::new(choice.algorithm, choice.level.0.into())?;
        let inner = match choice.algorithm {
            Algorithm::Lz4 => {
                check_library()?;
                EncoderKind::Lz4(lz4::Encoder::new(choice.level))
            }
            Algorithm::Zlib => EncoderKind::Zlib(zlib::Encoder::new(choice.level)),
            Algorithm::Zstd => {
                check_window_log(window_log)?;
                EncoderKind::Zstd(zstd::Encoder::new(choice.level, window_log))
            }
            algorithm => return Err(Error::Unsupported { algorithm, what: "streams" }),
        };
        Ok(Encoder { choice, pending: false, inner })
    }

    /// Algorithm and present level.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// Raw bytes at most in one chunk.
    pub fn chunk_max(&self) -> usize {
        match self.inner {
            EncoderKind::Lz4(_) => LZ4_CHUNK_MAX,
            EncoderKind::Zlib(_) => ZLIB_CHUNK_MAX,
            EncoderKind::Zstd(_) => ZSTD_CHUNK_MAX,
        }
    }

    /// Bytes that encoding `raw_len` bytes appends at worst, whatever an earlier `abandon` still owes included.
    pub fn bound(&self, raw_len: usize) -> usize {
        match self.inner {
            EncoderKind::Lz4(_) => lz4::bound(raw_len),
            EncoderKind::Zlib(_) => zlib::bound(raw_len),
            EncoderKind::Zstd(_) => zstd::bound(raw_len),
        }
    }

    /// Compresses `input` as one flushed chunk with the stream's context and appends it to `out`: a decoder fed
    /// all committed chunks and this one gives back `input` completely. Follow with [`commit`](Self::commit) or
    /// [`abandon`](Self::abandon). An empty `input` appends nothing.
    ///
    /// On an error nothing was appended and the chunk counts as abandoned.
    ///
    /// # Panics
    /// If the chunk before is neither committed nor abandoned: the stream would be undecodable.
    pub fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.begin(input)?;
        let start = out.len();
        let done = each!(EncoderKind, &mut self.inner, it => it.encode(input, out));
        self.end(done, start, out)
    }

    /// Compresses `input` as one unit that refers to nothing earlier, and appends it to `out`. Follow with
    /// [`commit`](Self::commit) or [`abandon`](Self::abandon), as after [`encode`](Self::encode), of which all
    /// else holds too.
    ///
    /// - zstd: a complete frame, after the 3 bytes that close one that is open. A fresh decoder reads the frame;
    ///   any decoder stands between frames afterwards.
    /// - zlib: a chunk without references to earlier ones, behind the stream's header if it is the first. A raw
    ///   inflate that starts here reads it and what follows.
    /// - LZ4: an independent block; a fresh decoder reads it.
    pub fn encode_independent(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.begin(input)?;
        let start = out.len();
        let done = each!(EncoderKind, &mut self.inner, it => it.encode_independent(input, out));
        self.end(done, start, out)
    }

    /// The chunk just encoded is sent.
    pub fn commit(&mut self) {
        if std::mem::take(&mut self.pending) {
            each!(EncoderKind, &mut self.inner, it => it.commit());
        }
    }

    /// The chunk just encoded is not sent. The next one continues the same stream for a decoder that never saw
    /// the abandoned one. Says whether the context survives.
    ///
    /// - zstd: for small chunks the context stays as it was. Otherwise it is lost: if a frame is open at the
    ///   decoder, the next chunk is prefixed by an empty last block (3 bytes) that closes it, then a new frame
    ///   begins (6 bytes).
    /// - zlib: the context is rebuilt from what was sent last, 4 to 32 KiB, when next needed; no bytes.
    /// - LZ4: the context stays, less what the abandoned chunk pushed out of its hash table; no bytes.
    pub fn abandon(&mut self) -> bool {
        !std::mem::take(&mut self.pending) || each!(EncoderKind, &mut self.inner, it => it.abandon())
    }

    /// Drops all context: what follows refers to nothing earlier and continues the same stream for the same
    /// decoder. Costs zstd what an abandon costs, the others nothing. A pending chunk is abandoned.
    pub fn forget(&mut self) {
        self.abandon();
        each!(EncoderKind, &mut self.inner, it => it.forget());
    }

    /// Gives all memory back and keeps only what the same stream needs to go on, see [`resume`](Self::resume).
    pub fn into_resume(mut self) -> Resume {
        self.abandon();
        Resume {
            algorithm: self.choice.algorithm,
            open: each!(EncoderKind, &self.inner, it => it.is_open_at_decoder()),
        }
    }

    /// True when a zstd frame of which chunks were committed is open at the decoder, which has to keep its window.
    pub fn holds_window(&self) -> bool {
        matches!(&self.inner, EncoderKind::Zstd(it) if it.is_open_at_decoder())
    }

    /// Goes on with a stream that [`into_resume`](Self::into_resume) left, as after [`forget`](Self::forget).
    pub fn resume(options: EncoderOptions, resume: Resume) -> Result<Encoder, Error> {
        let mut encoder = Encoder::new(options)?;
        if resume.algorithm == options.choice.algorithm {
            each!(EncoderKind, &mut encoder.inner, it => it.set_open_at_decoder(resume.open));
        }
        Ok(encoder)
    }

    /// Begins a new stream, which is announced to the peer out of band. A pending chunk is abandoned.
    pub fn restart(&mut self) {
        self.pending = false;
        each!(EncoderKind, &mut self.inner, it => it.restart());
    }

    /// Goes on at another level; the same decoder reads on. zstd pays what an abandon costs, the others nothing.
    /// A pending chunk must be committed or abandoned before.
    pub fn set_level(&mut self, level: Level) -> Result<(), Error> {
        assert!(!self.pending, "set_level between encode and commit");
        let level = self.choice.algorithm.level(level.0.into())?;
        if level != self.choice.level {
            each!(EncoderKind, &mut self.inner, it => it.set_level(level))?;
            self.choice.level = level;
        }
        Ok(())
    }

    /// Goes on with another zstd window, 10 to 27; the same decoder reads on if it allows as much. Costs zstd what an
    /// abandon costs, and the memory of the old window is given back; the others ignore it. A pending chunk must be
    /// committed or abandoned before.
    pub fn set_window_log(&mut self, window_log: u32) -> Result<(), Error> {
        assert!(!self.pending, "set_window_log between encode and commit");
        check_window_log(window_log)?;
        if let EncoderKind::Zstd(it) = &mut self.inner {
            it.set_window_log(window_log);
        }
        Ok(())
    }

    /// Heap bytes of this encoder.
    pub fn memory_bytes(&self) -> usize {
        each!(EncoderKind, &self.inner, it => it.memory_bytes())
    }

    fn begin(&mut self, input: &[u8]) -> Result<(), Error> {
        assert!(!self.pending, "encode twice without commit or abandon");
        let allowed = self.chunk_max();
        if input.len() > allowed {
            let what = "raw chunk size";
            return Err(Error::Limit { what, found: input.len() as u64, allowed: allowed as u64 });
        }
        Ok(())
    }

    fn end(&mut self, done: Result<(), Error>, start: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        self.pending = true;
        if done.is_err() {
            out.truncate(start);
            self.abandon();
        }
        done
    }
}

impl Decoder {
    /// A new stream. Only LZ4, zlib and zstd have streams.
    pub fn new(options: DecoderOptions) -> Result<Decoder, Error> {
        let inner = match options.algorithm {
            Algorithm::Lz4 => {
                let (found, allowed) = (options.block_raw_max as u64, LZ4_BLOCK_RAW_MAX as u64);
                if found > allowed {
                    return Err(Error::Limit { what: "lz4 block_raw_max", found, allowed });
                }
                DecoderKind::Lz4(lz4::Decoder::new(options.block_raw_max))
            }
            Algorithm::Zlib => DecoderKind::Zlib(zlib::Decoder::new()),
            Algorithm::Zstd => {
                check_window_log(options.window_log_max)?;
                DecoderKind::Zstd(zstd::Decoder::new(options.window_log_max))
            }
            algorithm => return Err(Error::Unsupported { algorithm, what: "streams" }),
        };
        Ok(Decoder { algorithm: options.algorithm, memory_max: usize::MAX, inner })
    }

    /// The stream's algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether [`decode`](Self::decode) must get one whole block per call. True for LZ4, whose blocks do not
    /// say where they end.
    pub fn needs_whole_payload(&self) -> bool {
        matches!(self.inner, DecoderKind::Lz4(_))
    }

    /// Decodes from `input` and appends at most `out_room` bytes to `out`. While `more_output` is set, call
    /// again with the rest of the input, even if that is empty.
    ///
    /// LZ4 takes the whole block or nothing: if its raw size exceeds `out_room` or the options' cap, that is
    /// [`Error::Limit`] and the decoder is as before. [`Error::Limit`] for a zstd window and
    /// [`Error::Corrupt`] end the stream: only [`restart`](Self::restart) helps.
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, out_room: usize) -> Result<Progress, Error> {
        self.decode_to(input, Out::Vec(out), out_room)
    }

    /// As [`decode`](Self::decode), but writes to the begin of `out`, which is all the room there is; what is behind the
    /// bytes produced may be overwritten. Spares a copy to who wants the bytes there.
    pub fn decode_into(&mut self, input: &[u8], out: &mut [u8]) -> Result<Progress, Error> {
        let room = out.len();
        self.decode_to(input, Out::Slice(out), room)
    }

    fn decode_to(&mut self, input: &[u8], out: Out<'_>, out_room: usize) -> Result<Progress, Error> {
        let fixed = match &self.inner {
            DecoderKind::Lz4(it) => it.memory_needed(),
            DecoderKind::Zlib(it) => it.memory_needed(),
            // It depends on the frames' headers, which the decoder looks at itself.
            DecoderKind::Zstd(_) => 0,
        };
        if fixed > self.memory_max && !input.is_empty() {
            return Ok(Progress { wants_memory: Some(fixed), more_output: true, ..Progress::default() });
        }
        each!(DecoderKind, &mut self.inner, it => it.decode(input, out, out_room))
    }

    /// Heap bytes this decoder may hold from now on; no limit until this is called. It allocates no more: see
    /// [`Progress::wants_memory`].
    pub fn allow_memory(&mut self, bytes: usize) {
        self.memory_max = bytes;
        if let DecoderKind::Zstd(it) = &mut self.inner {
            it.allow_memory(bytes);
        }
    }

    /// What follows refers to nothing before, as after [`Encoder::forget`] or [`Encoder::resume`], and the peer said so: all memory is
    /// given back, also in the middle of a zlib stream that stands behind a flush, or has only its header yet.
    pub fn forget(&mut self) {
        match &mut self.inner {
            DecoderKind::Lz4(it) => it.restart(),
            DecoderKind::Zlib(it) => it.forget(),
            DecoderKind::Zstd(_) => {}
        }
        self.release();
    }

    /// Begins a new stream.
    pub fn restart(&mut self) {
        each!(DecoderKind, &mut self.inner, it => it.restart());
    }

    /// Heap bytes of this decoder now. zstd allocates its window when it sees a frame's header.
    pub fn memory_bytes(&self) -> usize {
        each!(DecoderKind, &self.inner, it => it.memory_bytes())
    }

    /// Whether the decoder stands between complete zstd frames, so that nothing later can refer to what came
    /// before and [`release`](Self::release) loses nothing. For the others: whether nothing was decoded yet.
    pub fn at_frame_end(&self) -> bool {
        each!(DecoderKind, &self.inner, it => it.at_frame_end())
    }

    /// Gives back what the next byte does not need: everything [at a frame's end](Self::at_frame_end). Otherwise LZ4 keeps the
    /// last 64 KiB, compressed; zlib and zstd keep all, as the rest of their state cannot be taken out of the libraries.
    pub fn release(&mut self) {
        match &mut self.inner {
            DecoderKind::Lz4(it) => it.release(),
            DecoderKind::Zlib(it) if it.at_frame_end() => it.forget(),
            DecoderKind::Zstd(it) if it.at_frame_end() => it.release(),
            DecoderKind::Zlib(_) | DecoderKind::Zstd(_) => {}
        }
    }
}

impl From<Choice> for EncoderOptions {
    /// Window log 19: what zstd's level 1 uses, and enough for every table measured.
    fn from(choice: Choice) -> Self {
        EncoderOptions { choice, window_log: 19 }
    }
}

impl From<Algorithm> for DecoderOptions {
    /// Window log at most 23 (8 MiB), LZ4 blocks of at most 64 KiB: what the known dialects can produce.
    fn from(algorithm: Algorithm) -> Self {
        DecoderOptions { algorithm, window_log_max: 23, block_raw_max: LZ4_CHUNK_MAX }
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// Whether the LZ4 library this program runs with has the streams it was built for, whose private state an encoder
/// rewinds. Encoders check it too; a service calls it when it starts.
pub fn check_library() -> Result<(), Error> {
    if crate::lz4::layout_is_known() {
        return Ok(());
    }
    Err(Error::Unsupported { algorithm: Algorithm::Lz4, what: "streams of another library than LZ4 1.10.0" })
}

fn check_window_log(found: u32) -> Result<(), Error> {
    if (ZSTD_WINDOW_LOG_MIN..=ZSTD_WINDOW_LOG_MAX).contains(&found) {
        return Ok(());
    }
    let what = if found < ZSTD_WINDOW_LOG_MIN { "zstd window log (at least 10)" } else { "zstd window log" };
    Err(Error::Limit { what, found: found.into(), allowed: ZSTD_WINDOW_LOG_MAX.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_can_move_between_threads() {
        fn sendable<T: Send>() {}
        sendable::<Encoder>();
        sendable::<Decoder>();
    }
}
