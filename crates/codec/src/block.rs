//! One-shot compression of single blocks by any algorithm, with reusable contexts and dictionaries.
//!
//! A block does not carry its raw size; whoever keeps it must keep that too, and decompressing gives exactly so
//! many bytes or an error.
//!
//! | algorithm | a block is |
//! |---|---|
//! | none | the bytes |
//! | pglz | what the server stores after a datum's header |
//! | lz4 | one LZ4 block, without frame or size |
//! | zlib | one RFC 1950 stream; a dictionary is named in it |
//! | zstd | one frame without checksum, content size or dictionary id |
//! | snappy | one raw-format stream, which begins with its size |
//! | lzfse | one stream of LZFSE blocks |
//!
//! ```
//! use pgshrink_codec::{Algorithm, Choice, block};
//! let (mut small, mut back) = (Vec::new(), Vec::new());
//! let page = vec![7; 8192];
//! block::Compressor::new().compress(Choice::new(Algorithm::Zstd, 1)?, &page, &mut small)?;
//! block::Decompressor::new().decompress(Algorithm::Zstd, &small, page.len(), &mut back)?;
//! assert!(small.len() < 30 && back == page);
//! # Ok::<(), pgshrink_codec::Error>(())
//! ```

mod lz4;
mod lzfse;
mod zlib;
mod zstd;

use crate::algorithm::{Algorithm, Choice, Level};
use crate::dictionary::Dictionary;
use crate::error::Error;
use crate::limits::BLOCK_RAW_MAX;
use crate::pglz;

/// Contexts for compressing, made when first needed and kept.
///
/// The context of an algorithm remembers the level and dictionary used last; changing either costs a setup
/// (zstd and LZ4 digest the dictionary anew). Keep one compressor for each combination that alternates.
#[derive(Default)]
pub struct Compressor {
    pglz: Option<pglz::Workspace>,
    lz4: Option<lz4::Compressor>,
    zlib: Option<zlib::Compressor>,
    zstd: Option<zstd::Compressor>,
    snappy: Option<snap::raw::Encoder>,
    lzfse: Option<Box<lzfse_rust::LzfseEncoder>>,
}

/// Contexts for decompressing, made when first needed and kept.
#[derive(Default)]
pub struct Decompressor {
    zlib: Option<zlib::Decompressor>,
    zstd: Option<zstd::Decompressor>,
    snappy: Option<snap::raw::Decoder>,
    lzfse: Option<Box<lzfse_rust::LzfseRingDecoder>>,
}

impl Compressor {
    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `input` to `out` as one block. The block may be larger than the input. On an error nothing was
    /// appended.
    pub fn compress(&mut self, choice: Choice, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.run(choice, None, input, out)
    }

    /// The same with a dictionary, which the reader must have. Only zstd, LZ4 and zlib know dictionaries.
    pub fn compress_with(
        &mut self,
        choice: Choice,
        dictionary: &Dictionary,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        check_dictionary(choice.algorithm)?;
        self.run(choice, Some(dictionary), input, out)
    }

    /// Appends all parts, one behind the other, as one block of zstd. Matches go across parts, but each part of
    /// at least 4 KiB, or smaller ones together, have blocks of the frame and thus entropy tables of their own:
    /// for parts of different content. On an error nothing was appended.
    pub fn compress_zstd_parts(
        &mut self,
        level: Level,
        parts: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        check_raw_size(parts.iter().fold(0, |size, part| part.len().saturating_add(size)))?;
        let Choice { level, .. } = Choice::new(Algorithm::Zstd, level.0.into())?;
        let start = out.len();
        let done = self.zstd.get_or_insert_default().compress_parts(level, parts, out);
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    /// Bytes of memory that zstd's context holds.
    pub fn zstd_memory_size(&self) -> usize {
        self.zstd.as_ref().map_or(0, zstd::Compressor::memory_size)
    }

    fn run(
        &mut self,
        choice: Choice,
        dictionary: Option<&Dictionary>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        check_raw_size(input.len())?;
        let Choice { algorithm, level } = Choice::new(choice.algorithm, choice.level.0.into())?;
        let start = out.len();
        let done = match algorithm {
            Algorithm::None => {
                out.extend_from_slice(input);
                Ok(())
            }
            Algorithm::Pglz => {
                let workspace = self.pglz.get_or_insert_default();
                pglz::compress(workspace, &pglz::Strategy::UNCONDITIONAL, input, out);
                Ok(())
            }
            Algorithm::Lz4 => self.lz4.get_or_insert_default().compress(level, dictionary, input, out),
            Algorithm::Zlib => self.zlib.get_or_insert_default().compress(level, dictionary, input, out),
            Algorithm::Zstd => self.zstd.get_or_insert_default().compress(level, dictionary, input, out),
            Algorithm::Snappy => {
                snappy_compress(self.snappy.get_or_insert_with(snap::raw::Encoder::new), input, out)
            }
            Algorithm::Lzfse => lzfse::compress(self.lzfse.get_or_insert_default(), input, out),
        };
        if done.is_err() {
            out.truncate(start);
        }
        done
    }
}

impl Decompressor {
    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the `raw_len` bytes of the block `input` to `out`. A block of another raw size, one that is
    /// damaged, or bytes after it are [`Error::Corrupt`], and nothing was appended.
    pub fn decompress(
        &mut self,
        algorithm: Algorithm,
        input: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.run(algorithm, None, input, raw_len, out)
    }

    /// The same for a block compressed with a dictionary. A wrong dictionary may go unnoticed: LZ4 and zstd blocks
    /// neither name theirs nor check their result.
    pub fn decompress_with(
        &mut self,
        algorithm: Algorithm,
        dictionary: &Dictionary,
        input: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        check_dictionary(algorithm)?;
        self.run(algorithm, Some(dictionary), input, raw_len, out)
    }

    fn run(
        &mut self,
        algorithm: Algorithm,
        dictionary: Option<&Dictionary>,
        input: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        check_raw_size(raw_len)?;
        if raw_len as u64 > raw_size_max(algorithm, input.len()) {
            return Err(corrupt(algorithm, "too short for the promised size"));
        }
        let start = out.len();
        let done = match algorithm {
            Algorithm::None => {
                out.extend_from_slice(input);
                Ok(())
            }
            Algorithm::Pglz => pglz::decompress(input, raw_len, out),
            Algorithm::Lz4 => lz4::decompress(dictionary, input, raw_len, out),
            Algorithm::Zlib => self.zlib.get_or_insert_default().decompress(dictionary, input, raw_len, out),
            Algorithm::Zstd => self.zstd.get_or_insert_default().decompress(dictionary, input, raw_len, out),
            Algorithm::Snappy => snappy_decompress(
                self.snappy.get_or_insert_with(snap::raw::Decoder::new),
                input,
                raw_len,
                out,
            ),
            Algorithm::Lzfse => lzfse::decompress(self.lzfse.get_or_insert_default(), input, raw_len, out),
        };
        let done = match done {
            Ok(()) if out.len() != start + raw_len => Err(corrupt(algorithm, "not of the promised size")),
            done => done,
        };
        if done.is_err() {
            out.truncate(start);
        }
        done
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

/// The most raw bytes that a block of `len` bytes can hold, as far as the format bounds that. A cheap check
/// before memory is taken for a size that something else promises.
fn raw_size_max(algorithm: Algorithm, len: usize) -> u64 {
    let len = len as u64;
    match algorithm {
        Algorithm::None => len,
        // Each byte of a length adds at most 255.
        Algorithm::Lz4 => len * 255,
        // 258 bytes by a code of one bit and a distance of one bit (RFC 1951).
        Algorithm::Zlib => len * 1032,
        // 64 bytes by an element of three.
        Algorithm::Snappy => len * 22,
        // Run-length blocks of 128 KiB have four bytes.
        Algorithm::Zstd => len * (128 << 10) / 4,
        // pglz checks for itself; LZFSE allocates as it goes.
        Algorithm::Pglz | Algorithm::Lzfse => u64::MAX,
    }
}

fn snappy_compress(encoder: &mut snap::raw::Encoder, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    out.resize(start + snap::raw::max_compress_len(input.len()), 0);
    let written = encoder
        .compress(input, &mut out[start..])
        .map_err(|_| Error::Unsupported { algorithm: Algorithm::Snappy, what: "this block" })?;
    out.truncate(start + written);
    Ok(())
}

fn snappy_decompress(
    decoder: &mut snap::raw::Decoder,
    input: &[u8],
    raw_len: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    if snap::raw::decompress_len(input).ok() != Some(raw_len) {
        return Err(corrupt(Algorithm::Snappy, "the header's size is not the promised one"));
    }
    let start = out.len();
    out.resize(start + raw_len, 0);
    match decoder.decompress(input, &mut out[start..]) {
        Ok(_) => Ok(()),
        Err(_) => Err(corrupt(Algorithm::Snappy, "malformed element")),
    }
}

fn check_raw_size(len: usize) -> Result<(), Error> {
    let (found, allowed) = (len as u64, BLOCK_RAW_MAX as u64);
    if found > allowed { Err(Error::Limit { what: "raw block size", found, allowed }) } else { Ok(()) }
}

fn check_dictionary(algorithm: Algorithm) -> Result<(), Error> {
    if Dictionary::usable_with(algorithm) {
        Ok(())
    } else {
        Err(Error::Unsupported { algorithm, what: "dictionaries" })
    }
}

/// One-shot decoders do not say how far they came.
fn corrupt(algorithm: Algorithm, detail: &'static str) -> Error {
    Error::Corrupt { algorithm, offset: 0, detail }
}
