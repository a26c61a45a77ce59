//! Whether an archive is whole, without decoding it.
//!
//! zstd and LZ4 frames are walked from block to block: a header of 3 or 4 bytes is read, and the block is passed over. So
//! an archive that was cut off anywhere is noticed, at almost no cost. Bytes inside of blocks are not looked at: a change
//! of them is found by whoever decompresses the archive, as the servers' frames and gzip's trailer have checksums (zstd's
//! unless libzstd was told otherwise), or by comparing files with the manifest.
//!
//! Sources: RFC 8878 (zstd), `lz4_Frame_format.md` of LZ4, RFC 1952 (gzip), POSIX `pax` (tar).

use super::compression::CompressionAlgorithm;
use crate::error::Error;

const TAR_BLOCK_BYTES: u64 = 512;
/// A tar ends with two blocks of zeros.
const TAR_END_BYTES: u64 = 2 * TAR_BLOCK_BYTES;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Header and trailer of gzip.
const GZIP_BYTES_MIN: u64 = 18;

/// Watches an archive pass by.
#[derive(Clone, Debug)]
pub struct ArchiveEnd(State);

#[derive(Clone, Debug)]
enum State {
    /// Bytes in all, and how many zeros they end with.
    Tar {
        bytes: u64,
        zeros: u64,
    },
    /// Bytes in all, the first of them, and the last four: the number of plain bytes.
    Gzip {
        bytes: u64,
        magic: [u8; 3],
        last: [u8; 4],
    },
    Frames(Frames),
}

impl ArchiveEnd {
    /// Before the first byte.
    pub fn new(algorithm: CompressionAlgorithm) -> ArchiveEnd {
        ArchiveEnd(match algorithm {
            CompressionAlgorithm::None => State::Tar { bytes: 0, zeros: 0 },
            CompressionAlgorithm::Gzip => State::Gzip { bytes: 0, magic: [0; 3], last: [0; 4] },
            CompressionAlgorithm::Lz4 => State::Frames(Frames::new(Kind::Lz4)),
            CompressionAlgorithm::Zstd => State::Frames(Frames::new(Kind::Zstd)),
        })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Error::Malformed`] for what begins no frame or block.
    pub fn take(&mut self, taken: &[u8]) -> Result<(), Error> {
        match &mut self.0 {
            State::Tar { bytes, zeros } => {
                *bytes += taken.len() as u64;
                // Only the end matters, and nearly every piece ends with something else within a few bytes.
                let tail = &taken[taken.len().saturating_sub(TAR_END_BYTES as usize)..];
                let new = tail.iter().rev().take_while(|byte| **byte == 0).count();
                *zeros = if new == taken.len() { *zeros + new as u64 } else { new as u64 };
            }
            State::Gzip { bytes, magic, last } => {
                for (at, byte) in taken.iter().enumerate().take(magic.len()) {
                    if let Some(slot) = magic.get_mut(*bytes as usize + at) {
                        *slot = *byte;
                    }
                }
                *bytes += taken.len() as u64;
                for byte in &taken[taken.len().saturating_sub(last.len())..] {
                    last.rotate_left(1);
                    last[3] = *byte;
                }
            }
            State::Frames(frames) => frames.take(taken)?,
        }
        Ok(())
    }

    /// All bytes came.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the archive does not end here.
    pub fn finish(&self) -> Result<(), Error> {
        let (expected, is_whole) = match &self.0 {
            State::Tar { bytes, zeros } => {
                let is_whole = bytes.is_multiple_of(TAR_BLOCK_BYTES) && *zeros >= TAR_END_BYTES;
                ("two blocks of zeros", is_whole)
            }
            State::Gzip { bytes, magic, last } => {
                let is_whole_tar = u64::from(u32::from_le_bytes(*last)).is_multiple_of(TAR_BLOCK_BYTES);
                ("gzip's trailer", *bytes >= GZIP_BYTES_MIN && *magic == GZIP_MAGIC && is_whole_tar)
            }
            State::Frames(frames) => ("the last block of a frame", frames.is_at_end()),
        };
        if is_whole {
            Ok(())
        } else {
            Err(Error::malformed("end of an archive", expected, b"something else"))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Zstd,
    Lz4,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// Before a frame: magic number and flags.
    Frame,
    /// Before a block, in a frame with checksums of so many bytes behind a block and behind the frame.
    Block { behind_block: u64, behind_frame: u64 },
}

/// Frames one after the other. Invariant: `have < at.header_bytes(kind)`, and while `skip > 0`, `have` is 0.
#[derive(Clone, Debug)]
struct Frames {
    kind: Kind,
    at: At,
    /// The part of the next header that has come.
    header: [u8; 5],
    have: usize,
    /// Bytes that are passed over before the next header.
    skip: u64,
    frames: u64,
}

impl At {
    fn header_bytes(self, kind: Kind) -> usize {
        match (self, kind) {
            (At::Frame, _) => 5,
            (At::Block { .. }, Kind::Zstd) => 3,
            (At::Block { .. }, Kind::Lz4) => 4,
        }
    }
}

impl Frames {
    fn new(kind: Kind) -> Frames {
        Frames { kind, at: At::Frame, header: [0; 5], have: 0, skip: 0, frames: 0 }
    }

    fn is_at_end(&self) -> bool {
        self.frames > 0 && self.at == At::Frame && self.have == 0 && self.skip == 0
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let passed = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip -= passed as u64;
            bytes = &bytes[passed..];
            let wanted = self.at.header_bytes(self.kind);
            let more = bytes.len().min(wanted - self.have);
            self.header[self.have..self.have + more].copy_from_slice(&bytes[..more]);
            self.have += more;
            bytes = &bytes[more..];
            if self.have == wanted {
                self.have = 0;
                self.interpret()?;
            }
        }
        Ok(())
    }

    fn interpret(&mut self) -> Result<(), Error> {
        match (self.at, self.kind) {
            (At::Frame, Kind::Zstd) => self.zstd_frame(),
            (At::Frame, Kind::Lz4) => self.lz4_frame(),
            (At::Block { behind_frame, .. }, Kind::Zstd) => self.zstd_block(behind_frame),
            (At::Block { behind_block, behind_frame }, Kind::Lz4) => {
                self.lz4_block(behind_block, behind_frame);
                Ok(())
            }
        }
    }

    fn check_magic(&self, magic: [u8; 4], expected: &'static str) -> Result<(), Error> {
        if self.header.starts_with(&magic) {
            return Ok(());
        }
        Err(Error::malformed("compressed archive", expected, &self.header))
    }

    fn zstd_frame(&mut self) -> Result<(), Error> {
        self.check_magic(ZSTD_MAGIC, "a zstd frame")?;
        let flags = self.header[4];
        let is_single = flags & 0x20 != 0;
        let window = u64::from(!is_single);
        let dictionary = [0, 1, 2, 4][usize::from(flags & 3)];
        let size = match flags >> 6 {
            0 => u64::from(is_single),
            code => 1 << code,
        };
        self.skip = window + dictionary + size;
        self.at = At::Block { behind_block: 0, behind_frame: if flags & 4 != 0 { 4 } else { 0 } };
        self.frames += 1;
        Ok(())
    }

    fn zstd_block(&mut self, behind_frame: u64) -> Result<(), Error> {
        let [a, b, c, ..] = self.header;
        let header = u32::from_le_bytes([a, b, c, 0]);
        self.skip = match (header >> 1) & 3 {
            1 => 1,
            3 => return Err(Error::malformed("zstd frame", "a block of a known type", &[a, b, c])),
            _ => u64::from(header >> 3),
        };
        if header & 1 == 1 {
            self.skip += behind_frame;
            self.at = At::Frame;
        }
        Ok(())
    }

    fn lz4_frame(&mut self) -> Result<(), Error> {
        self.check_magic(LZ4_MAGIC, "an LZ4 frame")?;
        let flags = self.header[4];
        let bytes = |mask: u8, bytes: u64| if flags & mask != 0 { bytes } else { 0 };
        // Block descriptor, content size, dictionary, checksum of the header.
        self.skip = 1 + bytes(0x08, 8) + bytes(0x01, 4) + 1;
        self.at = At::Block { behind_block: bytes(0x10, 4), behind_frame: bytes(0x04, 4) };
        self.frames += 1;
        Ok(())
    }

    fn lz4_block(&mut self, behind_block: u64, behind_frame: u64) {
        let [a, b, c, d, _] = self.header;
        match u32::from_le_bytes([a, b, c, d]) {
            0 => (self.skip, self.at) = (behind_frame, At::Frame),
            // The highest bit says that the block is not compressed.
            size => self.skip = u64::from(size & 0x7fff_ffff) + behind_block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames with every optional field, and archives that end with them.
    fn archives() -> Vec<(CompressionAlgorithm, Vec<u8>)> {
        let mut tar = vec![7; 512];
        tar.extend([0; 1024]);
        let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0x04 | 0x80, 0x50, 0, 0, 0, 0];
        zstd.extend([(5 << 3) | 4, 0, 0, 1, 2, 3, 4, 5]);
        zstd.extend([(200 << 3 & 0xff) as u8 | 2, (200 >> 5) as u8, 0, 9]);
        zstd.extend([(2 << 3) | 1, 0, 0, 8, 8, 1, 2, 3, 4]);
        let single = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 3, (3 << 3) | 1, 0, 0, 1, 2, 3];
        let mut lz4 =
            vec![0x04, 0x22, 0x4d, 0x18, 0x40 | 0x10 | 0x08 | 0x04, 0x40, 1, 0, 0, 0, 0, 0, 0, 0, 0x99];
        lz4.extend([3, 0, 0, 0x80, 1, 2, 3, 9, 9, 9, 9]);
        lz4.extend([2, 0, 0, 0, 1, 2, 9, 9, 9, 9, 0, 0, 0, 0, 5, 5, 5, 5]);
        let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 1, 1, 1, 1, 1];
        gzip.extend([0, 6, 0, 0]);
        vec![
            (CompressionAlgorithm::None, tar),
            (CompressionAlgorithm::Zstd, [&zstd[..], &single].concat()),
            (CompressionAlgorithm::Zstd, single.to_vec()),
            (CompressionAlgorithm::Lz4, lz4),
            (CompressionAlgorithm::Gzip, gzip),
        ]
    }

    #[test]
    fn archives_are_whole_however_they_are_split() {
        for (algorithm, archive) in archives() {
            for size in [1, 2, 3, 7, archive.len()] {
                let mut end = ArchiveEnd::new(algorithm);
                archive.chunks(size).for_each(|piece| end.take(piece).unwrap());
                end.finish().unwrap_or_else(|error| panic!("{algorithm:?} in pieces of {size}: {error}"));
            }
        }
    }

    #[test]
    fn archives_that_are_cut_off_are_noticed() {
        for (algorithm, archive) in archives() {
            // Behind the first of two frames there is an end.
            let frame = archive.len().saturating_sub(12);
            for length in (0..archive.len())
                .filter(|length| algorithm != CompressionAlgorithm::Zstd || *length != frame)
            {
                let mut end = ArchiveEnd::new(algorithm);
                end.take(&archive[..length]).unwrap();
                assert!(end.finish().is_err(), "{algorithm:?} cut off at {length}");
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_at_once() {
        for algorithm in [CompressionAlgorithm::Zstd, CompressionAlgorithm::Lz4] {
            assert!(ArchiveEnd::new(algorithm).take(b"ustar").is_err());
        }
        let block = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 3, 7, 0, 0];
        assert!(ArchiveEnd::new(CompressionAlgorithm::Zstd).take(&block).is_err());
    }
}
