//! What the server compressed, as plain bytes.

use super::decoded::{Decode, Decoded};
use super::lz4_frames::Lz4;
use pgshrink_backup::base_backup::CompressionAlgorithm;
use pgshrink_codec::stream::{self, Decoder, DecoderOptions};
use pgshrink_codec::{Algorithm, limits::ZSTD_WINDOW_LOG_MAX};
use std::io::{self, BufRead, Read};

/// Plain bytes that are made at a time: few enough to be in the processor's cache when they are copied.
const OUTPUT_BYTES: usize = 64 << 10;

/// Plain bytes of an archive that was compressed by this algorithm.
pub(crate) fn plain<'r>(
    algorithm: CompressionAlgorithm,
    compressed: impl BufRead + 'r,
) -> io::Result<Box<dyn Read + 'r>> {
    Ok(match algorithm {
        CompressionAlgorithm::None => Box::new(compressed),
        CompressionAlgorithm::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(compressed)),
        CompressionAlgorithm::Lz4 => Box::new(Decoded::new(Lz4::new(compressed)?)),
        CompressionAlgorithm::Zstd => Box::new(Decoded::new(Zstd::new(compressed)?)),
    })
}

/// A stream of zstd frames.
struct Zstd<R> {
    from: R,
    decoder: Decoder,
    /// The decoder has more, though nothing more came.
    may_have_more: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(from: R) -> io::Result<Zstd<R>> {
        let options =
            DecoderOptions { window_log_max: ZSTD_WINDOW_LOG_MAX, ..DecoderOptions::from(Algorithm::Zstd) };
        let mut decoder = Decoder::new(options).map_err(io::Error::other)?;
        decoder.allow_memory(usize::MAX);
        Ok(Zstd { from, decoder, may_have_more: false })
    }

    /// Decodes by `decode` until something comes of it, and says how many bytes; 0: the stream has ended.
    fn some(
        &mut self,
        mut decode: impl FnMut(&mut Decoder, &[u8]) -> Result<stream::Progress, pgshrink_codec::Error>,
    ) -> io::Result<usize> {
        loop {
            let input = if self.may_have_more { &[] } else { self.from.fill_buf()? };
            if input.is_empty() && !self.may_have_more {
                return Ok(0);
            }
            let done = decode(&mut self.decoder, input).map_err(io::Error::other)?;
            self.may_have_more = done.more_output && done.consumed == input.len();
            self.from.consume(done.consumed);
            if done.produced > 0 {
                return Ok(done.produced);
            }
        }
    }
}

impl<R: BufRead> Decode for Zstd<R> {
    fn fill(&mut self, output: &mut Vec<u8>) -> io::Result<bool> {
        self.some(|decoder, input| decoder.decode(input, output, OUTPUT_BYTES)).map(|size| size > 0)
    }

    fn direct(&mut self, output: &mut [u8]) -> io::Result<Option<usize>> {
        if output.len() < OUTPUT_BYTES {
            return Ok(None);
        }
        self.some(|decoder, input| decoder.decode_into(input, &mut output[..OUTPUT_BYTES])).map(Some)
    }
}
