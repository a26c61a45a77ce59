//! What contexts and digests take at most, known before they are made: for those who bound it.
//!
//! The figures are bounds for inputs of at most so many bytes, not what is in use;
//! [`bare::Compressor::memory_size`] and its like say that. zstd's come from its own estimates (zstd.h,
//! "Memory management"), the others are sizes of structures whose allocations do not depend on the input.
//!
//! [`bare::Compressor::memory_size`]: crate::bare::Compressor::memory_size
#![allow(unsafe_code)]

use zstd_safe::zstd_sys as sys;

use crate::algorithm::{Algorithm, Choice, Level};
use crate::lz4::STREAM_BYTES;
use crate::prepared::{CompressorDictionary, DecompressorDictionary};

/// What zlib keeps for the way there: a window of 32 KiB, of which the next one is a second half, hash
/// chains, symbols.
const DEFLATE_BYTES: usize = 384 << 10;
/// What zlib keeps for the way back: a window of 32 KiB and two code tables.
const INFLATE_BYTES: usize = 64 << 10;
/// Hash lists and a history of 4096 entries.
const PGLZ_BYTES: usize = 80 << 10;
/// A table of 2^14 positions, and a smaller one.
const SNAPPY_BYTES: usize = 36 << 10;
/// History, literals and matches of LZFSE's encoder; the decoder's rings.
const LZFSE_ENCODER_BYTES: usize = 768 << 10;
const LZFSE_DECODER_BYTES: usize = 832 << 10;

/// Bytes at most of the contexts that compressing by `choice` makes, for inputs and dictionaries of at most
/// so many bytes. The context of an algorithm is kept and grows to what its levels need at most: of several
/// choices of one algorithm the largest counts.
pub fn compressor_max(choice: Choice, input_len_max: usize, dictionary_len_max: usize) -> usize {
    match choice.algorithm {
        Algorithm::None => 0,
        Algorithm::Pglz => PGLZ_BYTES,
        Algorithm::Lz4 => STREAM_BYTES,
        Algorithm::Zlib => DEFLATE_BYTES,
        Algorithm::Zstd => zstd_compressor_max(choice.level, input_len_max, dictionary_len_max),
        Algorithm::Snappy => SNAPPY_BYTES,
        Algorithm::Lzfse => LZFSE_ENCODER_BYTES,
    }
}

/// Bytes at most of the context that [`compress_zstd_parts`] makes, for parts of at most so many bytes together.
/// It is more than for one input, because parts go through buffers: a window and two blocks.
///
/// [`compress_zstd_parts`]: crate::block::Compressor::compress_zstd_parts
pub fn zstd_parts_compressor_max(level: Level, input_len_max: usize) -> usize {
    // SAFETY: pure functions of numbers.
    unsafe {
        let parameters = sys::ZSTD_getCParams(level.0, input_len_max.max(1) as u64, 0);
        sys::ZSTD_estimateCStreamSize_usingCParams(parameters)
    }
}

/// Bytes at most of the contexts that decompressing payloads of at most so many bytes makes.
pub fn decompressor_max(algorithm: Algorithm, payload_len_max: usize) -> usize {
    match algorithm {
        Algorithm::Zstd => {
            // SAFETY: a pure function without arguments.
            let context = unsafe { sys::ZSTD_estimateDCtxSize() };
            context + 2 * payload_len_max
        }
        Algorithm::Zlib => INFLATE_BYTES,
        Algorithm::Lzfse => LZFSE_DECODER_BYTES,
        Algorithm::None | Algorithm::Pglz | Algorithm::Lz4 | Algorithm::Snappy => 0,
    }
}

/// Bytes at most of a dictionary of so many bytes prepared for compressing, its content included.
pub fn compressor_dictionary_max(choice: Choice, content_len: usize) -> usize {
    let digest = match choice.algorithm {
        // SAFETY: a pure function of two numbers.
        Algorithm::Zstd => unsafe { sys::ZSTD_estimateCDictSize(content_len, choice.level.0) },
        _ => STREAM_BYTES,
    };
    size_of::<CompressorDictionary>() + digest + content_len
}

/// Bytes at most of a dictionary of so many bytes prepared for decompressing, its content included.
pub fn decompressor_dictionary_max(content_len: usize) -> usize {
    let by_reference = sys::ZSTD_dictLoadMethod_e::ZSTD_dlm_byRef;
    // SAFETY: a pure function of two numbers.
    let digest = unsafe { sys::ZSTD_estimateDDictSize(content_len, by_reference) };
    size_of::<DecompressorDictionary>() + digest + content_len
}

/// The parameters of a level depend on the input's size; a digest that is used by a copy of its tables brings
/// its own.
fn zstd_compressor_max(level: Level, input_len_max: usize, dictionary_len_max: usize) -> usize {
    let of = |input: usize, dictionary: usize| {
        // SAFETY: pure functions of numbers.
        unsafe {
            let parameters = sys::ZSTD_getCParams(level.0, input.max(1) as u64, dictionary);
            sys::ZSTD_estimateCCtxSize_usingCParams(parameters)
        }
    };
    let alone = of(input_len_max, 0);
    if dictionary_len_max == 0 { alone } else { alone.max(of(input_len_max, dictionary_len_max)) }
}
