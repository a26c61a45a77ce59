//! What the server compressed, as plain bytes.

use super::decoded::{Decode, Decoded};
use super::lz4_frames::Lz4;
use pgshrink_backup::base_backup::CompressionAlgorithm;
use pgshrink_codec::stream::{Decoder, DecoderOptions};
use pgshrink_codec::{Algorithm, limits::ZSTD_WINDOW_LOG_MAX};
use std::io::{self, Read};

/// Compressed bytes that are read at a time.
const INPUT_BYTES: usize = 128 << 10;
/// Plain bytes that are made at a time: few enough to be in the processor's cache when they are copied.
const OUTPUT_BYTES: usize = 64 << 10;

/// Plain bytes of an archive that was compressed by this algorithm.
pub(super) fn plain<'r>(
    algorithm: CompressionAlgorithm,
    compressed: impl Read + 'r,
) -> io::Result<Box<dyn Read + 'r>> {
    Ok(match algorithm {
        CompressionAlgorithm::None => Box::new(compressed),
        CompressionAlgorithm::Gzip => Box::new(flate2::read::MultiGzDecoder::new(compressed)),
        CompressionAlgorithm::Lz4 => Box::new(Decoded::new(Lz4::new(compressed)?)),
        CompressionAlgorithm::Zstd => Box::new(Decoded::new(Zstd::new(compressed)?)),
    })
}

/// A stream of zstd frames.
struct Zstd<R> {
    from: R,
    decoder: Decoder,
    input: Vec<u8>,
    /// What of the input is still to be decoded.
    rest: std::ops::Range<usize>,
    is_at_end: bool,
}

impl<R: Read> Zstd<R> {
    fn new(from: R) -> io::Result<Zstd<R>> {
        let options =
            DecoderOptions { window_log_max: ZSTD_WINDOW_LOG_MAX, ..DecoderOptions::from(Algorithm::Zstd) };
        let mut decoder = Decoder::new(options).map_err(io::Error::other)?;
        decoder.allow_memory(usize::MAX);
        Ok(Zstd { from, decoder, input: vec![0; INPUT_BYTES], rest: 0..0, is_at_end: false })
    }
}

impl<R: Read> Decode for Zstd<R> {
    fn fill(&mut self, output: &mut Vec<u8>) -> io::Result<bool> {
        let mut may_have_more = false;
        loop {
            if self.rest.is_empty() && !may_have_more {
                if self.is_at_end {
                    return Ok(false);
                }
                let read = self.from.read(&mut self.input)?;
                self.is_at_end = read == 0;
                self.rest = 0..read;
                if read == 0 {
                    return Ok(false);
                }
            }
            let input = &self.input[self.rest.clone()];
            let done = self.decoder.decode(input, output, OUTPUT_BYTES).map_err(io::Error::other)?;
            self.rest.start += done.consumed;
            may_have_more = done.more_output;
            if !output.is_empty() {
                return Ok(true);
            }
        }
    }
}
