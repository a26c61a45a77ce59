//! Codecs on pieces of this cluster's data, on this machine. A server's processor is taken to be like this one.
//!
//! Processor time counts, and not the clock's: this machine may be busy.

use super::Piece;
use pgshrink_backup::base_backup::CompressionAlgorithm;
use pgshrink_backup::choice::CodecRates;
use pgshrink_backup::chunk::{ChunkEncoder, Content, Habit, Level};
use pgshrink_codec::block::{Compressor, Decompressor};
use pgshrink_codec::{Algorithm, Choice};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time for all codecs; those that have had no turn until then are not considered.
const TIME_MAX: Duration = Duration::from_secs(1);
/// What is tried: the server's name and level, ours, and what is assumed without data: ratio, compressing and decompressing
/// in MB per second. The cheap ones first.
const CODECS: [(CompressionAlgorithm, Option<i32>, Algorithm, [f64; 3]); 6] = [
    (CompressionAlgorithm::Lz4, None, Algorithm::Lz4, [2.2, 600.0, 2000.0]),
    (CompressionAlgorithm::Zstd, Some(1), Algorithm::Zstd, [3.0, 400.0, 1000.0]),
    (CompressionAlgorithm::Zstd, Some(3), Algorithm::Zstd, [3.3, 200.0, 1000.0]),
    (CompressionAlgorithm::Gzip, Some(1), Algorithm::Zlib, [2.7, 80.0, 300.0]),
    (CompressionAlgorithm::Zstd, Some(5), Algorithm::Zstd, [3.5, 80.0, 1000.0]),
    (CompressionAlgorithm::Zstd, Some(9), Algorithm::Zstd, [3.6, 35.0, 1000.0]),
];
/// Bytes per second of a processor that makes chunks of an archive, without data.
const ENCODE_ASSUMED: f64 = 80e6;

/// What is assumed without data.
pub(super) fn assumed() -> (Vec<CodecRates>, f64) {
    let codec = |(algorithm, level, _, [ratio, compress, decompress]): (_, _, _, [f64; 3])| CodecRates {
        algorithm,
        level,
        ratio,
        compress: compress * 1e6,
        decompress: decompress * 1e6,
    };
    (CODECS.map(codec).to_vec(), ENCODE_ASSUMED)
}

/// Rates of codecs, and of making chunks. None: there are no data.
pub(super) fn rates(pieces: &[Piece], level: Level) -> Option<(Vec<CodecRates>, f64)> {
    let began = processor_time();
    let raw: usize = pieces.iter().map(|piece| piece.raw.len()).sum();
    let encode = encode(pieces, level)?;
    let mut codecs = Vec::new();
    for (algorithm, codec_level, codec, _) in CODECS {
        if processor_time().saturating_sub(began) > TIME_MAX {
            break;
        }
        let choice = Choice::new(codec, i64::from(codec_level.unwrap_or(1))).ok()?;
        let (compressed, took) = compress(pieces, choice)?;
        let bytes: usize = compressed.iter().map(Vec::len).sum();
        let again = decompress(pieces, &compressed, codec)?;
        codecs.push(CodecRates {
            algorithm,
            level: codec_level,
            ratio: raw as f64 / bytes.max(1) as f64,
            compress: super::rate(raw as u64, took)?,
            decompress: super::rate(raw as u64, again)?,
        });
    }
    (!codecs.is_empty()).then_some((codecs, encode))
}

fn compress(pieces: &[Piece], choice: Choice) -> Option<(Vec<Vec<u8>>, Duration)> {
    let mut compressor = Compressor::new();
    // The first time it makes its tables, which a stream does once.
    compressor.compress(choice, &pieces.first()?.raw, &mut Vec::new()).ok()?;
    let began = processor_time();
    let mut compressed = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let mut out = Vec::new();
        compressor.compress(choice, &piece.raw, &mut out).ok()?;
        compressed.push(out);
    }
    Some((compressed, processor_time().saturating_sub(began)))
}

fn decompress(pieces: &[Piece], compressed: &[Vec<u8>], algorithm: Algorithm) -> Option<Duration> {
    let (mut decompressor, mut out) = (Decompressor::new(), Vec::with_capacity(super::PIECE_BYTES));
    let began = processor_time();
    for (piece, compressed) in pieces.iter().zip(compressed) {
        out.clear();
        decompressor.decompress(algorithm, compressed, piece.raw.len(), &mut out).ok()?;
    }
    Some(processor_time().saturating_sub(began))
}

fn encode(pieces: &[Piece], level: Level) -> Option<f64> {
    let (mut encoder, mut habit, mut out) = (ChunkEncoder::new(level), Habit::default(), Vec::new());
    let began = processor_time();
    let mut raw = 0;
    for piece in pieces {
        let content = piece.first_block.map_or(Content::Plain, |first_block| Content::Pages { first_block });
        out.clear();
        encoder.encode(&piece.raw, content, &mut habit, &mut out).ok()?;
        raw += piece.raw.len() as u64;
        if processor_time().saturating_sub(began) > TIME_MAX / 2 {
            break;
        }
    }
    super::rate(raw, processor_time().saturating_sub(began))
}

/// Of this thread.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(raw: Vec<u8>) -> Piece {
        Piece { first_block: None, raw }
    }

    #[test]
    fn ratios_are_those_of_the_data() {
        assert!(rates(&[], Level::default()).is_none());
        let line = |n: u32| format!("customer {n} has paid all {} bills\n", n % 7).into_bytes();
        let text: Vec<u8> = (0..4_000u32).flat_map(line).collect();
        let (codecs, encode) = rates(&[piece(text.clone()), piece(text)], Level::MIN).unwrap();
        assert_eq!(codecs[0].algorithm, CompressionAlgorithm::Lz4);
        assert!(codecs.iter().all(|codec| codec.ratio > 1.5), "{codecs:?}");
        assert!(encode > 0.0 && codecs.iter().all(|codec| codec.compress > 0.0 && codec.decompress > 0.0));
        let mut state = 1u64;
        let random = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let random = piece(random.take(128 << 10).collect());
        let (codecs, _) = rates(&[random], Level::MIN).unwrap();
        assert!(codecs.iter().all(|codec| (0.9..1.1).contains(&codec.ratio)), "{codecs:?}");
    }
}
