//! LZ4 frames, as `LZ4F_compressUpdate` of a server writes them, decoded by the C library of `pgshrink_codec`.
//!
//! The library decodes blocks; the frames around them are read here. Checksums of blocks and of the content are passed over:
//! servers write none, and every file is compared with the manifest.
//!
//! Source: `doc/lz4_Frame_format.md` of LZ4.

use super::decoded::Decode;
use pgshrink_codec::Algorithm;
use pgshrink_codec::stream::{Decoder, DecoderOptions};
use std::io::{self, Read};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Bits of the first byte of a frame's descriptor.
const BLOCKS_ARE_INDEPENDENT: u8 = 0x20;
const HAS_BLOCK_CHECKSUMS: u8 = 0x10;
const HAS_SIZE: u8 = 0x08;
const HAS_CHECKSUM: u8 = 0x04;
const HAS_DICTIONARY: u8 = 0x01;
/// The bit of a block's size that says that it is not compressed.
const IS_STORED: u32 = 1 << 31;
/// The decoder has room for so many blocks: it moves its history to the front of it when it is full.
const DECODER_BLOCKS: usize = 4;
const CHECKSUM_BYTES: u64 = 4;

/// Plain bytes of frames.
pub(super) struct Lz4<R> {
    from: R,
    decoder: Decoder,
    frame: Option<Frame>,
    block: Vec<u8>,
    /// A stored block as LZ4 would write it: what follows may refer to its bytes.
    literals: Vec<u8>,
}

/// What the header of a frame says.
#[derive(Clone, Copy)]
struct Frame {
    flags: u8,
    block_bytes_max: usize,
}

impl<R: Read> Lz4<R> {
    pub(super) fn new(from: R) -> io::Result<Lz4<R>> {
        Ok(Lz4 {
            from,
            decoder: Decoder::new(DecoderOptions::from(Algorithm::Lz4)).map_err(io::Error::other)?,
            frame: None,
            block: Vec::new(),
            literals: Vec::new(),
        })
    }

    fn header(&mut self) -> io::Result<Option<Frame>> {
        let mut begin = [0; 6];
        // Between frames the input may end.
        if self.from.read(&mut begin[..1])? == 0 {
            return Ok(None);
        }
        self.from.read_exact(&mut begin[1..])?;
        let [magic @ .., flags, descriptor] = begin;
        if magic != MAGIC || flags >> 6 != 1 || flags & HAS_DICTIONARY != 0 {
            return Err(malformed(format!("expected an LZ4 frame without a dictionary, found {begin:02x?}")));
        }
        let block_bytes_max = match descriptor >> 4 & 7 {
            code @ 4..=7 => 1 << (8 + 2 * code),
            code => return Err(malformed(format!("a frame with blocks of size code {code}"))),
        };
        // The content's size and the header's checksum.
        self.skip(if flags & HAS_SIZE != 0 { 9 } else { 1 })?;
        let options = DecoderOptions {
            block_raw_max: DECODER_BLOCKS * block_bytes_max,
            ..DecoderOptions::from(Algorithm::Lz4)
        };
        self.decoder = Decoder::new(options).map_err(io::Error::other)?;
        Ok(Some(Frame { flags, block_bytes_max }))
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match io::copy(&mut (&mut self.from).take(bytes), &mut io::sink())? {
            skipped if skipped == bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<R: Read> Decode for Lz4<R> {
    /// Decodes the next block.
    fn fill(&mut self, output: &mut Vec<u8>) -> io::Result<bool> {
        let Some(frame) = self.frame else {
            self.frame = self.header()?;
            return Ok(self.frame.is_some());
        };
        let mut size = [0; 4];
        self.from.read_exact(&mut size)?;
        let size = u32::from_le_bytes(size);
        if size == 0 {
            self.skip(if frame.flags & HAS_CHECKSUM != 0 { CHECKSUM_BYTES } else { 0 })?;
            self.frame = None;
            return Ok(true);
        }
        let bytes = (size & !IS_STORED) as usize;
        if bytes > frame.block_bytes_max {
            let what = format!("a block of {bytes} bytes in a frame of {} at most", frame.block_bytes_max);
            return Err(malformed(what));
        }
        self.block.resize(bytes, 0);
        self.from.read_exact(&mut self.block)?;
        self.skip(if frame.flags & HAS_BLOCK_CHECKSUMS != 0 { CHECKSUM_BYTES } else { 0 })?;
        if frame.flags & BLOCKS_ARE_INDEPENDENT != 0 {
            self.decoder.restart();
        }
        let block = if size & IS_STORED != 0 {
            as_literals(&self.block, &mut self.literals);
            &self.literals
        } else {
            &self.block
        };
        let decoded = self.decoder.decode(block, output, frame.block_bytes_max);
        decoded.map(|_| true).map_err(io::Error::other)
    }
}

/// Writes a block that has no match, only these literals.
fn as_literals(bytes: &[u8], block: &mut Vec<u8>) {
    block.clear();
    match bytes.len() {
        few @ 0..15 => block.push((few as u8) << 4),
        many => {
            block.push(0xf0);
            let rest = many - 15;
            block.resize(1 + rest / 255, 255);
            block.push((rest % 255) as u8);
        }
    }
    block.extend_from_slice(bytes);
}

fn malformed(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::super::decoded::Decoded;
    use super::*;
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;

    /// Text, then bytes that do not compress, then the same again.
    fn plain() -> Vec<u8> {
        let mut state = 1_u64;
        let mut noise = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let mut bytes: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        bytes.extend((0..100_000).map(|_| noise()));
        bytes.extend_from_within(350_000..450_000);
        bytes.extend([5; 300_000]);
        bytes
    }

    fn frame(plain: &[u8], mode: BlockMode, checksums: bool) -> Vec<u8> {
        let info = FrameInfo::new()
            .block_mode(mode)
            .block_size(BlockSize::Max256KB)
            .block_checksums(checksums)
            .content_checksum(checksums);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(frames: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        Decoded::new(Lz4::new(frames)?).read_to_end(&mut plain).map(|_| plain)
    }

    #[test]
    fn frames_of_another_implementation_are_read() {
        let plain = plain();
        for mode in [BlockMode::Linked, BlockMode::Independent] {
            for checksums in [false, true] {
                let frame = frame(&plain, mode, checksums);
                assert!(decode(&frame).unwrap() == plain);
                assert!(decode(&[&frame[..], &frame].concat()).unwrap() == [&plain[..], &plain].concat());
            }
        }
        assert_eq!(decode(b"").unwrap(), b"");
    }

    #[test]
    fn stored_blocks_of_every_size_are_kept_for_later_matches() {
        for size in (0..600).chain([65_535, 65_536, 262_144]) {
            let bytes: Vec<u8> = (0..size).map(|n: u32| ((n * 7919) >> 3) as u8).collect();
            let mut block = Vec::new();
            as_literals(&bytes, &mut block);
            assert!(lz4_flex::block::decompress(&block, bytes.len()).unwrap() == bytes, "{size}");
        }
    }

    #[test]
    fn frames_that_are_cut_off_or_are_none_are_errors() {
        let frame = frame(&plain()[399_000..402_000], BlockMode::Linked, true);
        for length in 1..frame.len() {
            assert!(decode(&frame[..length]).is_err(), "{length}");
        }
        for (at, bits) in [(0, 0x81), (4, 0x80), (5, 0x70)] {
            let mut flipped = frame.clone();
            flipped[at] ^= bits;
            assert!(decode(&flipped).is_err(), "{at}");
        }
        let mut long = frame.clone();
        long[9] = 0xff;
        assert!(decode(&long).is_err());
    }
}
