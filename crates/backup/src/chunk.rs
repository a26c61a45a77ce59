//! A chunk, which is consecutive bytes of one file, to a payload and back, exactly.
//!
//! A chunk is compressed without any other, in one of three ways ([`Codec`]): as it is, by zstd, or as
//! *columns*, where the pages of a relation are rearranged so that like content of all of them is side by
//! side, and then go through zstd together. Of the last two the smaller is kept; an encoder does not try both
//! for every chunk but learns from some which one a relation wants ([`Habit`]). It does not check that a payload
//! is intact: the pack's checksums do. It knows neither packs nor files. The layout is in
//! `formats/backup-chunk.md`, the choice in `docs/decisions/2026-11-25-backup-chunks.md`.
//!
//! ```text
//!   raw --> Content::Plain ------------------------------------------------> zstd --> payload + Codec
//!       --> Content::Pages --> cfs::page::RunEncoder --> head, rows, body --> zstd --> payload + Codec
//!                                                    --> loose bits ---------------->
//! ```
//!
//! Invariants:
//! 1. Any bytes come back bit for bit, whatever their content was said to be.
//! 2. A payload is at most as long as its chunk.
//! 3. Any bytes as a payload give exactly as many raw bytes as were promised, or a [`ChunkError`], in time
//!    bounded by the sizes of both, and take at most [`ChunkDecoder::BYTES_MAX`] of memory.
//! 4. What a habit remembers only changes sizes. A payload says all that its decoder needs, besides the
//!    number of its first block.
//!
//! ```
//! use pgshrink_backup::chunk::{ChunkDecoder, ChunkEncoder, Content, Habit, Level};
//! let raw = vec![7; 512 << 10];
//! let content = Content::Pages { first_block: 64 };
//! let (mut payload, mut back) = (Vec::new(), Vec::new());
//! let codec = ChunkEncoder::new(Level::default()).encode(&raw, content, &mut Habit::default(), &mut payload)?;
//! ChunkDecoder::new().decode(codec, &payload, content, raw.len(), &mut back)?;
//! assert!(payload.len() < 200 && back == raw);
//! # Ok::<(), pgshrink_backup::chunk::ChunkError>(())
//! ```

mod columns;
mod habit;

pub use habit::Habit;

use pgshrink_cfs::page::{self, PAGE_SIZE, RunDecoder, RunEncoder};
use pgshrink_codec::{Algorithm, Choice, block, memory};

use habit::Advice;

/// Raw bytes of a chunk at most.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Raw bytes of a chunk at least, but for the last of a file.
pub const CHUNK_BYTES_MIN: usize = 128 << 10;
/// Raw bytes of a chunk unless something else is asked for: 64 pages.
pub const CHUNK_BYTES_DEFAULT: usize = 512 << 10;

/// What a payload is. Zero is none, so that a missing one is noticed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Codec {
    /// The chunk's bytes.
    Raw = 1,
    /// One frame of zstd.
    Zstd = 2,
    /// Pages as columns, and then zstd.
    Columns = 3,
}

impl Codec {
    /// The codec of this byte, if it is one.
    ///
    /// # Errors
    /// [`ChunkError::Codec`].
    pub fn from_byte(byte: u8) -> Result<Codec, ChunkError> {
        let known = [Codec::Raw, Codec::Zstd, Codec::Columns];
        known.into_iter().find(|codec| codec.byte() == byte).ok_or(ChunkError::Codec { found: byte })
    }

    /// The byte.
    pub fn byte(self) -> u8 {
        self as u8
    }
}

/// What a chunk consists of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Bytes.
    Plain,
    /// Bytes of any fork of a relation, from the begin of a page on. Nothing is believed of them.
    Pages {
        /// Number of the first page in its fork, segments counted through: what the server computes
        /// `pd_checksum` with.
        first_block: u32,
    },
}

/// How hard zstd is to try.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Level(i32);

impl Level {
    /// The fastest.
    pub const MIN: Level = Level(1);
    /// The slowest.
    pub const MAX: Level = Level(19);

    /// One from 1 to 19.
    ///
    /// # Errors
    /// [`ChunkError::Limit`].
    pub fn new(level: i32) -> Result<Level, ChunkError> {
        if (Level::MIN.0..=Level::MAX.0).contains(&level) {
            Ok(Level(level))
        } else {
            let found = u64::from(level.unsigned_abs());
            Err(ChunkError::Limit { what: "level of a chunk", found, allowed: Level::MAX.0 as u64 })
        }
    }

    /// The number.
    pub fn to_i32(self) -> i32 {
        self.0
    }
}

impl Default for Level {
    /// 3: at 1, texts in TOAST tables become larger than by plain zstd:3, which is what a backup must not be.
    fn default() -> Self {
        Level(3)
    }
}

/// What can go wrong with a chunk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The payload was not made by this encoder, or was damaged since.
    #[error("corrupt chunk: {what}")]
    Corrupt {
        /// What the decoder noticed.
        what: &'static str,
    },
    /// A newer version may know this codec.
    #[error("unsupported codec of a chunk: found {found}, supported are 1 to 3")]
    Codec {
        /// The byte found.
        found: u8,
    },
    /// A size or number is out of range. Nothing was allocated for it.
    #[error("{what} is {found}, over the limit of {allowed}")]
    Limit {
        /// Which one.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// The streams of a chunk's pages are not what they should be.
    #[error("corrupt chunk: {0}")]
    Pages(#[from] page::Error),
    /// The algorithm failed, or its input is damaged.
    #[error(transparent)]
    Algorithm(#[from] pgshrink_codec::Error),
}

/// Contexts and memory for encoding chunks, one thread's.
#[derive(Debug)]
pub struct ChunkEncoder {
    level: Level,
    compressor: block::Compressor,
    run: RunEncoder,
}

impl ChunkEncoder {
    /// Without any context yet.
    pub fn new(level: Level) -> Self {
        ChunkEncoder { level, compressor: block::Compressor::new(), run: RunEncoder::new() }
    }

    /// Bytes at most of all that it keeps at this level, while it encodes included: the streams of a run, twice
    /// because vectors double, and a context of zstd. 9 MiB up to level 3. What is appended comes on top, at
    /// most twice a chunk and a little.
    pub fn bytes_max(level: Level) -> usize {
        let streams = CHUNK_BYTES_MAX / PAGE_SIZE * RunEncoder::PAGE_BYTES_MAX;
        RunEncoder::KEPT_BYTES_MAX
            + (256 << 10)
            + 2 * streams
            + memory::zstd_parts_compressor_max(level.into(), streams)
    }

    /// Appends the payload of `raw` to `out`: at most as many bytes as `raw` has. `habit` is what chunks of
    /// the same relation taught before, and of whatever has the same kind of content; a new one does no harm.
    /// Pages can only become columns where `raw` is whole pages. On an error nothing was appended.
    ///
    /// # Errors
    /// [`ChunkError::Limit`]: `raw` has more than [`CHUNK_BYTES_MAX`] bytes. [`ChunkError::Algorithm`]: zstd
    /// failed.
    pub fn encode(
        &mut self,
        raw: &[u8],
        content: Content,
        habit: &mut Habit,
        out: &mut Vec<u8>,
    ) -> Result<Codec, ChunkError> {
        check_raw_size(raw.len())?;
        let start = out.len();
        let done = match (content, raw.as_chunks()) {
            (Content::Pages { first_block }, (pages @ [_, ..], [])) => {
                self.pages(raw, pages, first_block, habit, out)
            }
            _ => self.zstd(raw, out).map(|()| Codec::Zstd),
        };
        if done.is_ok() && out.len() - start < raw.len() {
            return done;
        }
        out.truncate(start);
        done?;
        out.extend_from_slice(raw);
        Ok(Codec::Raw)
    }

    /// Appends what the habit advises: columns, zstd, or the smaller of both. `pages` are those of `raw`.
    fn pages(
        &mut self,
        raw: &[u8],
        pages: &[[u8; PAGE_SIZE]],
        first_block: u32,
        habit: &mut Habit,
        out: &mut Vec<u8>,
    ) -> Result<Codec, ChunkError> {
        let start = out.len();
        let advice = habit.advice();
        if advice == Advice::Zstd {
            self.zstd(raw, out)?;
            return Ok(Codec::Zstd);
        }
        self.columns(pages, first_block, out)?;
        let middle = out.len();
        let columns = middle - start;
        if advice == Advice::Columns && habit.expects(columns, raw.len()) {
            return Ok(Codec::Columns);
        }
        self.zstd(raw, out)?;
        let zstd = out.len() - middle;
        habit.learn(columns, zstd, raw.len());
        if columns <= zstd {
            out.truncate(middle);
            return Ok(Codec::Columns);
        }
        out.drain(start..middle);
        Ok(Codec::Zstd)
    }

    fn columns(
        &mut self,
        pages: &[[u8; PAGE_SIZE]],
        first_block: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), ChunkError> {
        self.run.begin();
        for (page, index) in pages.iter().zip(0..) {
            self.run.push(page, first_block.checked_add(index));
        }
        columns::write(&self.run.streams(), self.level.into(), &mut self.compressor, out)
    }

    fn zstd(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), ChunkError> {
        let choice = Choice { algorithm: Algorithm::Zstd, level: self.level.into() };
        Ok(self.compressor.compress(choice, raw, out)?)
    }
}

impl From<Level> for pgshrink_codec::Level {
    fn from(level: Level) -> Self {
        pgshrink_codec::Level(level.0)
    }
}

/// Contexts and memory for decoding chunks, one thread's.
#[derive(Debug, Default)]
pub struct ChunkDecoder {
    decompressor: block::Decompressor,
    run: RunDecoder,
    /// What goes through zstd, of a chunk of columns.
    joined: Vec<u8>,
}

impl ChunkDecoder {
    /// Bytes at most of all that it keeps, at whatever level chunks were made: the streams of a chunk, twice
    /// because vectors double, a context of zstd that decodes in one go, and memory for a page.
    pub const BYTES_MAX: usize = 2 * CHUNK_BYTES_MAX + (512 << 10);

    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the `raw_len` bytes of the chunk to `out`. The content must be what it was encoded with, but
    /// that a chunk of another codec than [`Codec::Columns`] comes back by any. On an error nothing was
    /// appended.
    ///
    /// # Errors
    /// [`ChunkError::Limit`]: `raw_len` is more than [`CHUNK_BYTES_MAX`]. All others: the payload is not that
    /// of such a chunk.
    pub fn decode(
        &mut self,
        codec: Codec,
        payload: &[u8],
        content: Content,
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ChunkError> {
        check_raw_size(raw_len)?;
        match codec {
            Codec::Raw if payload.len() != raw_len => {
                Err(ChunkError::Corrupt { what: "size of a chunk that is stored as it is" })
            }
            Codec::Raw => {
                out.extend_from_slice(payload);
                Ok(())
            }
            Codec::Zstd => Ok(self.decompressor.decompress(Algorithm::Zstd, payload, raw_len, out)?),
            Codec::Columns => {
                let start = out.len();
                let done = self.columns(payload, content, raw_len, out);
                if done.is_err() {
                    out.truncate(start);
                }
                done
            }
        }
    }

    fn columns(
        &mut self,
        payload: &[u8],
        content: Content,
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ChunkError> {
        let Content::Pages { first_block } = content else {
            return Err(ChunkError::Corrupt { what: "columns of something that is not a relation" });
        };
        if raw_len == 0 || !raw_len.is_multiple_of(PAGE_SIZE) {
            return Err(ChunkError::Corrupt { what: "columns of a part of a page" });
        }
        let streams = columns::read(payload, raw_len, &mut self.decompressor, &mut self.joined)?;
        let start = out.len();
        out.resize(start + raw_len, 0);
        let (pages, _) = out[start..].as_chunks_mut();
        Ok(self.run.decode(&streams, Some(first_block), pages)?)
    }
}

fn check_raw_size(len: usize) -> Result<(), ChunkError> {
    let (found, allowed) = (len as u64, CHUNK_BYTES_MAX as u64);
    if found > allowed {
        Err(ChunkError::Limit { what: "raw bytes of a chunk", found, allowed })
    } else {
        Ok(())
    }
}
