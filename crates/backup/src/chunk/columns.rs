//! The payload of a chunk whose pages are columns: lengths of streams, loose bits, a frame of zstd.

use pgshrink_cfs::page::{PAGE_SIZE, RunEncoder, RunStreams};
use pgshrink_codec::{Algorithm, Level, block};

use super::ChunkError;

/// Appends the payload of these streams.
pub(super) fn write(
    streams: &RunStreams<'_>,
    level: Level,
    compressor: &mut block::Compressor,
    out: &mut Vec<u8>,
) -> Result<(), ChunkError> {
    let used = streams.rows.iter().rposition(|stream| !stream.is_empty()).map_or(0, |last| last + 1);
    let mut parts = [&[][..]; RunStreams::ROWS_MAX + 2];
    parts[0] = streams.head;
    parts[1..=used].copy_from_slice(&streams.rows[..used]);
    parts[used + 1] = streams.body;
    let parts = &parts[..used + 2];
    out.push(used as u8);
    parts.iter().for_each(|part| write_length(part.len(), out));
    write_length(streams.loose.len(), out);
    out.extend_from_slice(streams.loose);
    Ok(compressor.compress_zstd_parts(level, parts, out)?)
}

/// The streams of a chunk of `raw_len` bytes, which are whole pages. All but loose bits are put into `joined`.
pub(super) fn read<'a>(
    payload: &'a [u8],
    raw_len: usize,
    decompressor: &mut block::Decompressor,
    joined: &'a mut Vec<u8>,
) -> Result<RunStreams<'a>, ChunkError> {
    let allowed = raw_len / PAGE_SIZE * RunEncoder::PAGE_BYTES_MAX;
    let (&used, mut rest) = payload.split_first().ok_or(SHORT)?;
    let used = usize::from(used);
    if used > RunStreams::ROWS_MAX {
        return Err(ChunkError::Corrupt { what: "number of streams" });
    }
    let mut lengths = [0; RunStreams::ROWS_MAX + 2];
    let lengths = &mut lengths[..used + 2];
    for slot in &mut *lengths {
        *slot = read_length(&mut rest)?;
    }
    let loose_len = read_length(&mut rest)?;
    // Each of them is below 2^28, so the sum cannot overflow.
    let joined_len: usize = lengths.iter().sum();
    if joined_len + loose_len > allowed {
        let (found, allowed) = ((joined_len + loose_len) as u64, allowed as u64);
        return Err(ChunkError::Limit { what: "bytes of a chunk's streams", found, allowed });
    }
    let (loose, frame) = rest.split_at_checked(loose_len).ok_or(SHORT)?;
    joined.clear();
    decompressor.decompress(Algorithm::Zstd, frame, joined_len, joined)?;
    let mut rest = &joined[..];
    let mut next = |len: usize| {
        let (stream, after) = rest.split_at(len);
        rest = after;
        stream
    };
    let mut streams = RunStreams { loose, ..RunStreams::default() };
    streams.head = next(lengths[0]);
    for (stream, len) in streams.rows.iter_mut().zip(&lengths[1..=used]) {
        *stream = next(*len);
    }
    streams.body = next(lengths[used + 1]);
    Ok(streams)
}

const SHORT: ChunkError = ChunkError::Corrupt { what: "shorter than its streams" };
/// Of a length: four groups of seven bits.
const LENGTH_BYTES_MAX: usize = 4;

/// Seven bits a byte, lowest first.
fn write_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

fn read_length(bytes: &mut &[u8]) -> Result<usize, ChunkError> {
    let mut length = 0;
    for shift in (0..LENGTH_BYTES_MAX).map(|i| 7 * i) {
        let (&byte, rest) = bytes.split_first().ok_or(SHORT)?;
        *bytes = rest;
        length |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(length);
        }
    }
    Err(ChunkError::Corrupt { what: "a length of more than four bytes" })
}
