//! One 8 KB page to a payload and back, exactly.
//!
//! A page is rearranged so that a codec sees like beside like (header fields, line pointers, tuple headers,
//! attributes as columns; text as rows), then compressed by any algorithm, with or without its relation's
//! dictionary. It does not check that a payload is intact, its record does; it does not know containers. The
//! layout is in `formats/cfs-page.md`.
//!
//! ```text
//!   page --> layout: header, line pointers, cells --> tuples: headers    --> columns  \             --> codec -->
//!                                                 --> attributes | lanes --> columns   > streams                 payload
//!                                                 --> rest: what is in gaps --> copies /             --> loose --> + mode
//! ```
//!
//! Invariants:
//! 1. Any 8192 bytes come back bit for bit. Nothing is assumed of a page that was not checked while encoding
//!    it, and whatever does not fit is taken as plain bytes.
//! 2. A payload is at most a page long; a page of zeros has none.
//! 3. Any bytes as a payload give a page or an [`Error`], in bounded time, and allocate nothing once contexts
//!    are there.
//! 4. What an encoder remembers from page to page (schemas, exponents) is a guess for the next one. Every
//!    payload says all that its decoder needs, besides dictionary and block number. So the same page may
//!    become different payloads.
//!
//! ```
//! use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, Policy};
//! let (mut codec, mut payload) = (PageCodec::new(), Vec::new());
//! let page = [7; PAGE_SIZE];
//! let encoded = codec.encode(&page, None, &Policy::default(), None, &mut payload)?;
//! let mut back = [0; PAGE_SIZE];
//! codec.decode(encoded.mode.byte(), &payload, None, None, &mut back)?;
//! assert!(payload.len() < 40 && back == page);
//! # Ok::<(), pgshrink_cfs::page::Error>(())
//! ```

mod attributes;
mod checksum;
mod column;
mod dictionary;
mod kind;
mod lanes;
mod layout;
mod mode;
mod rest;
mod rice;
mod run;
mod streams;
mod transform;
mod tuples;
mod unpack;
mod wide;
mod worth;

pub use checksum::checksum;
pub use dictionary::PageDictionary;
pub use kind::{Kind, looks_like};
pub use mode::Mode;
pub use run::{RunDecoder, RunEncoder, RunStreams};

use pgshrink_codec::{Algorithm, Choice, Level, bare, block, memory};

use column::Backend;
use transform::Transform;
use worth::{Advice, Worth};

/// Bytes of a page: PostgreSQL's `BLCKSZ`.
pub const PAGE_SIZE: usize = 8192;

/// Whether pages are rearranged before the codec.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum TransformPolicy {
    /// Where the page is one that it understands; by LZ4, which is asked for where speed counts, only where
    /// pages like it save enough for the time it takes.
    #[default]
    Auto,
    /// Where the page is one that it understands, whatever time that takes.
    Always,
    /// Never: the codec sees the page as it is.
    Off,
}

/// How pages are to be encoded. It may differ from page to page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Algorithm and level; [`Algorithm::None`] stores pages raw.
    pub choice: Choice,
    /// Whether pages are rearranged first.
    pub transform: TransformPolicy,
}

impl Default for Policy {
    /// zstd at level 1 behind the transform: what the measurements in `bench/results/cfs.md` recommend.
    fn default() -> Self {
        let choice = Choice { algorithm: Algorithm::Zstd, level: Level(1) };
        Policy { choice, transform: TransformPolicy::Auto }
    }
}

/// What [`PageCodec::encode`] did.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// What a decoder must know.
    pub mode: Mode,
}

/// What can go wrong with a page.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The payload was not made by this codec, or was damaged since.
    #[error("corrupt page payload: {what}")]
    Corrupt {
        /// What the decoder noticed.
        what: &'static str,
    },
    /// The payload needs something a newer version may know.
    #[error("unsupported page mode {mode:#04x}")]
    Mode {
        /// The byte found.
        mode: u8,
    },
    /// The payload was made with a dictionary and none was given.
    #[error("this page needs its relation's dictionary")]
    DictionaryMissing,
    /// The page's checksum is to be computed from its block number and none was given.
    #[error("this page needs its block number")]
    BlockMissing,
    /// The algorithm failed.
    #[error(transparent)]
    Codec(#[from] pgshrink_codec::Error),
}

/// Contexts and scratch memory for encoding and decoding pages, one thread's.
#[derive(Default)]
pub struct PageCodec {
    bare_writer: bare::Compressor,
    bare_reader: bare::Decompressor,
    block_writer: block::Compressor,
    block_reader: block::Decompressor,
    transform: Transform,
    worth: Worth,
    /// A transformed page.
    joined: Vec<u8>,
    /// Bits of it that no codec would make less of.
    loose: Vec<u8>,
    /// What codecs that can only append have appended.
    appended: Vec<u8>,
}

/// Bytes of the length of what was compressed, where that is not a page's.
const LENGTH_BYTES: usize = 2;
/// The longest form a transformed page is stored in; a longer one would not compress to less than a page.
const JOINED_MAX: usize = PAGE_SIZE + PAGE_SIZE / 8;
/// In the length: two bytes more with the number of loose bytes, which are at the payload's end.
const APART: u16 = 0x8000;

/// What was compressed, and loose bits.
fn split_loose(payload: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let what = "length of loose bits";
    let (length, rest) = payload.split_at_checked(LENGTH_BYTES).ok_or(Error::Corrupt { what })?;
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    let at = rest.len().checked_sub(length).ok_or(Error::Corrupt { what })?;
    Ok(rest.split_at(at))
}

impl PageCodec {
    /// Bytes at most of all that it keeps but contexts of algorithms: twice what pages of all kinds take.
    pub const SCRATCH_BYTES_MAX: usize = 256 << 10;

    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes at most of the contexts that encoding by `choice` makes, without a dictionary or with one of so
    /// many bytes. One context is kept for each algorithm, of the size that the most demanding choice took.
    pub fn encoder_bytes_max(choice: Choice, dictionary_bytes: usize) -> usize {
        memory::compressor_max(choice, JOINED_MAX, dictionary_bytes)
    }

    /// Bytes at most of the context that decoding pages of `algorithm` makes.
    pub fn decoder_bytes_max(algorithm: Algorithm) -> usize {
        memory::decompressor_max(algorithm, JOINED_MAX)
    }

    /// Appends the payload of `page` to `out`: at most [`PAGE_SIZE`] bytes, none for a page of zeros. `block`
    /// is the page's number in its relation; with it, a checksum that verifies costs nothing. On an error
    /// nothing was appended.
    ///
    /// # Errors
    /// [`Error::Codec`]: an algorithm failed.
    pub fn encode(
        &mut self,
        page: &[u8; PAGE_SIZE],
        block: Option<u32>,
        how: &Policy,
        dictionary: Option<&PageDictionary>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        if layout::is_zero(page) {
            return Ok(Encoded { mode: Mode::ZERO });
        }
        let start = out.len();
        let mode = self.try_encode(page, block, how, dictionary, out);
        if let Ok(Some(mode)) = mode
            && out.len() - start < PAGE_SIZE
        {
            return Ok(Encoded { mode });
        }
        out.truncate(start);
        mode?;
        out.extend_from_slice(page);
        Ok(Encoded { mode: Mode::RAW })
    }

    /// `None`: to be stored raw.
    fn try_encode(
        &mut self,
        page: &[u8; PAGE_SIZE],
        block: Option<u32>,
        how: &Policy,
        dictionary: Option<&PageDictionary>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Mode>, Error> {
        let algorithm = how.choice.algorithm;
        if algorithm == Algorithm::None {
            return Ok(None);
        }
        let (look, advice) = match how.transform {
            TransformPolicy::Off => (None, Advice::Leave),
            TransformPolicy::Auto if algorithm == Algorithm::Lz4 => {
                let (look, advice) = self.worth.advice(page);
                (Some(look), advice)
            }
            TransformPolicy::Auto | TransformPolicy::Always => (None, Advice::Rearrange),
        };
        if advice == Advice::Leave {
            return self.plain(page, how.choice, dictionary, out).map(Some);
        }
        let start = out.len();
        let (mode, effort) = self.rearranged(page, block, how.choice, dictionary, out)?;
        let Some(look) = look.filter(|_| advice == Advice::Try) else { return Ok(mode) };
        let rearranged = out.len();
        let plain = self.plain(page, how.choice, dictionary, out)?;
        let saved = (out.len() - rearranged) as i32 - (rearranged - start) as i32;
        if self.worth.learn(look, if mode.is_some() { saved } else { 0 }, effort) {
            out.truncate(rearranged);
            return Ok(mode);
        }
        out.drain(start..rearranged);
        Ok(Some(plain))
    }

    fn plain(
        &mut self,
        page: &[u8; PAGE_SIZE],
        choice: Choice,
        dictionary: Option<&PageDictionary>,
        out: &mut Vec<u8>,
    ) -> Result<Mode, Error> {
        let packed = self.compress(choice, dictionary, None, page, out)?;
        Ok(Mode::new(choice.algorithm, packed))
    }

    /// `None`, and nothing appended: it became too long. And what putting it together again takes.
    fn rearranged(
        &mut self,
        page: &[u8; PAGE_SIZE],
        block: Option<u32>,
        choice: Choice,
        dictionary: Option<&PageDictionary>,
        out: &mut Vec<u8>,
    ) -> Result<(Option<Mode>, u32), Error> {
        let implied = layout::u16_at(page, checksum::CHECKSUM_AT);
        let implied = implied != 0 && block.is_some_and(|block| checksum(page, block) == implied);
        let backend = match choice.algorithm {
            Algorithm::Zstd | Algorithm::Zlib | Algorithm::Lzfse => Backend::Entropy,
            _ => Backend::Matches,
        };
        self.joined.clear();
        self.loose.clear();
        let effort = self.transform.encode(page, implied, backend, &mut self.joined, &mut self.loose);
        let joined = std::mem::take(&mut self.joined);
        let packed = if joined.len() + self.loose.len() <= JOINED_MAX {
            self.compress(choice, dictionary, Some(joined.len()), &joined, out).map(Some)
        } else {
            Ok(None)
        };
        self.joined = joined;
        out.extend_from_slice(&self.loose);
        let mode = packed?.map(|packed| Mode::new(choice.algorithm, packed.transformed(implied)));
        Ok((mode, effort))
    }

    fn compress(
        &mut self,
        choice: Choice,
        dictionary: Option<&PageDictionary>,
        length: Option<usize>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<mode::Packed, Error> {
        if let Some(length) = length {
            let apart = if self.loose.is_empty() { 0 } else { APART };
            out.extend_from_slice(&(length as u16 | apart).to_le_bytes());
            if apart != 0 {
                out.extend_from_slice(&(self.loose.len() as u16).to_le_bytes());
            }
        }
        let prepared = dictionary.and_then(|dictionary| dictionary.prepared(choice));
        Ok(match choice.algorithm {
            Algorithm::Zstd | Algorithm::Lz4 => {
                let shape = self.bare_writer.compress(choice, prepared, input, out)?;
                mode::Packed::new(shape == bare::Shape::ZstdBlocks, prepared.is_some())
            }
            _ => {
                self.block_writer.compress(choice, input, out)?;
                mode::Packed::new(false, false)
            }
        })
    }

    /// Decodes what [`PageCodec::encode`] made under the same block number and dictionary. On an error, the
    /// page holds bytes without meaning. Nothing is allocated once every algorithm in use was met.
    ///
    /// # Errors
    /// [`Error::Mode`], [`Error::DictionaryMissing`] and [`Error::BlockMissing`] where something is lacking;
    /// [`Error::Corrupt`] and [`Error::Codec`] for a payload that [`PageCodec::encode`] did not make.
    pub fn decode(
        &mut self,
        mode: u8,
        payload: &[u8],
        block: Option<u32>,
        dictionary: Option<&PageDictionary>,
        page: &mut [u8; PAGE_SIZE],
    ) -> Result<(), Error> {
        let mode = Mode::from_byte(mode)?;
        if mode == Mode::ZERO {
            page.fill(0);
            return if payload.is_empty() {
                Ok(())
            } else {
                Err(Error::Corrupt { what: "a zero page with bytes" })
            };
        }
        if mode == Mode::RAW {
            *page = payload.try_into().map_err(|_| Error::Corrupt { what: "size of a raw page" })?;
            return Ok(());
        }
        let dictionary = match dictionary {
            _ if !mode.has_dictionary() => None,
            Some(dictionary) => Some(dictionary),
            None => return Err(Error::DictionaryMissing),
        };
        if !mode.is_transformed() {
            return self.decompress(mode, payload, dictionary, page);
        }
        let Some((length, payload)) = payload.split_at_checked(LENGTH_BYTES) else {
            return Err(Error::Corrupt { what: "no length" });
        };
        let length = u16::from_le_bytes([length[0], length[1]]);
        let (payload, loose) = if length & APART == 0 { (payload, &[][..]) } else { split_loose(payload)? };
        let length = usize::from(length & !APART);
        if length > JOINED_MAX {
            return Err(Error::Corrupt { what: "length of a transformed page" });
        }
        let mut joined = std::mem::take(&mut self.joined);
        joined.resize(length, 0);
        let done = self
            .decompress(mode, payload, dictionary, &mut joined)
            .and_then(|()| self.transform.decode(&joined, loose, page));
        self.joined = joined;
        done?;
        if mode.implies_checksum() {
            let block = block.ok_or(Error::BlockMissing)?;
            let sum = checksum(page, block);
            page[checksum::CHECKSUM_AT..checksum::CHECKSUM_AT + 2].copy_from_slice(&sum.to_le_bytes());
        }
        Ok(())
    }

    fn decompress(
        &mut self,
        mode: Mode,
        payload: &[u8],
        dictionary: Option<&PageDictionary>,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let reading = dictionary.map(PageDictionary::reading);
        let algorithm = mode.algorithm();
        let shape = match algorithm {
            Algorithm::Zstd if mode.has_blocks() => bare::Shape::ZstdBlocks,
            Algorithm::Zstd => bare::Shape::ZstdBlock,
            Algorithm::Lz4 => bare::Shape::Lz4,
            _ => {
                // The other codecs append to vectors.
                self.appended.clear();
                self.block_reader.decompress(algorithm, payload, target.len(), &mut self.appended)?;
                target.copy_from_slice(&self.appended);
                return Ok(());
            }
        };
        Ok(self.bare_reader.decompress(shape, reading, payload, target)?)
    }
}
