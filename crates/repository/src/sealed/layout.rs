//! Bytes of an encrypted object: `formats/backup-sealed.md`.

use super::KeyId;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version that this release writes and reads.
pub(super) const VERSION: u16 = 1;
/// AES-256-GCM-SIV, with the object's key by HKDF-SHA-256.
pub(super) const CIPHER: u8 = 1;
/// The key is used as it was given.
pub(super) const DERIVATION: u8 = 0;
pub(super) const MAGIC: [u8; 8] = *b"pgshseal";

/// Bytes before the first block.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();
/// Bytes of plaintext in every block but the last.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// Bytes that follow the ciphertext of a block.
pub(super) const TAG_BYTES: usize = 16;
const STORED_BLOCK_BYTES: usize = BLOCK_BYTES + TAG_BYTES;
const CHECKSUM_AT: usize = HEADER_BYTES - size_of::<U32>();

/// Offset 0 of an encrypted object.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Header {
    magic: [u8; 8],
    version: U16,
    cipher: u8,
    derivation: u8,
    reserved: [u8; 4],
    key: [u8; 16],
    /// Random, of this object alone.
    pub(super) salt: [u8; 32],
    reserved_for_derivation: [u8; 28],
    /// CRC-32C of the 92 bytes before.
    checksum: U32,
}

const _: () = assert!(HEADER_BYTES == 96 && CHECKSUM_AT == 92);

/// Why bytes are no header that can be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// The object begins with something else.
    NotSealed,
    Damaged(&'static str),
    Unsupported {
        what: &'static str,
        found: u16,
        known: u16,
    },
}

impl Header {
    pub(super) fn new(key: KeyId, salt: [u8; 32]) -> Header {
        let mut header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            cipher: CIPHER,
            derivation: DERIVATION,
            reserved: [0; 4],
            key: key.0,
            salt,
            reserved_for_derivation: [0; 28],
            checksum: U32::ZERO,
        };
        header.checksum = crc32c::crc32c(&header.as_bytes()[..CHECKSUM_AT]).into();
        header
    }

    /// Reads the beginning of an object, which may have fewer bytes than a header.
    pub(super) fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(HeaderError::NotSealed);
        }
        let Ok((header, _)) = Header::read_from_prefix(bytes) else {
            return Err(HeaderError::Damaged("it is cut off: it ends in its header"));
        };
        if crc32c::crc32c(&header.as_bytes()[..CHECKSUM_AT]) != header.checksum.get() {
            return Err(HeaderError::Damaged("its header is damaged: the checksum does not match"));
        }
        let newer = |what, found, known| Err(HeaderError::Unsupported { what, found, known });
        match (header.version.get(), header.cipher, header.derivation) {
            (0, _, _) => return Err(HeaderError::Damaged("the version in its header is 0")),
            (found, _, _) if found > VERSION => return newer("version", found, VERSION),
            (_, 0, _) => return Err(HeaderError::Damaged("the cipher in its header is 0")),
            (_, found, _) if found > CIPHER => return newer("cipher", found.into(), CIPHER.into()),
            (_, _, found) if found > DERIVATION => {
                return newer("derivation", found.into(), DERIVATION.into());
            }
            _ => {}
        }
        if header.reserved.iter().chain(&header.reserved_for_derivation).any(|byte| *byte != 0) {
            return Err(HeaderError::Damaged("reserved bytes of its header are not zero"));
        }
        Ok(header)
    }

    pub(super) fn key(&self) -> KeyId {
        KeyId(self.key)
    }
}

/// How large an object is, and its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Bytes of plaintext.
    pub(super) plain: u64,
    /// At least one.
    pub(super) blocks: u64,
}

impl Extent {
    /// Follows from the size of the stored object. None: no encrypted object has that size.
    pub(super) fn of_stored(stored: u64) -> Option<Extent> {
        let body = stored.checked_sub(HEADER_BYTES as u64)?;
        let blocks = body.div_ceil(STORED_BLOCK_BYTES as u64);
        let plain = body.checked_sub(blocks * TAG_BYTES as u64).filter(|_| blocks > 0)?;
        // Only an object that is empty has an empty block.
        let is_last_used = plain > (blocks - 1) * BLOCK_BYTES as u64;
        (is_last_used || plain == 0 && blocks == 1).then_some(Extent { plain, blocks })
    }

    /// Bytes of plaintext in a block.
    pub(super) fn block_bytes(&self, block: u64) -> usize {
        let before = block * BLOCK_BYTES as u64;
        self.plain.saturating_sub(before).min(BLOCK_BYTES as u64) as usize
    }

    pub(super) fn is_last(&self, block: u64) -> bool {
        block + 1 == self.blocks
    }
}

/// Where a block begins in the stored object.
pub(super) fn block_at(block: u64) -> u64 {
    HEADER_BYTES as u64 + block * STORED_BLOCK_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_plaintext_follows_from_the_size_of_the_object() {
        let block = BLOCK_BYTES as u64;
        for plain in [0, 1, block - 1, block, block + 1, 3 * block - 1, 3 * block, 3 * block + 1, 1 << 40] {
            let blocks = plain.div_ceil(block).max(1);
            let stored = HEADER_BYTES as u64 + plain + blocks * TAG_BYTES as u64;
            let extent = Extent::of_stored(stored).unwrap();
            assert_eq!(extent, Extent { plain, blocks });
            assert_eq!(
                (0..blocks.min(9)).map(|at| extent.block_bytes(at) as u64).max().unwrap(),
                plain.min(block)
            );
            assert!(extent.is_last(blocks - 1) && !extent.is_last(blocks));
            assert_eq!(block_at(blocks - 1) + (plain - (blocks - 1) * block) + TAG_BYTES as u64, stored);
        }
        // Too short for a tag, an empty block behind a full one, and half of a tag there.
        let full = block_at(1);
        for stored in [0, 95, 96, 111, full + 1, full + 15, full + 16] {
            assert_eq!(Extent::of_stored(stored), None, "{stored}");
        }
        assert!(Extent::of_stored(u64::MAX).is_none_or(|extent| extent.plain < u64::MAX));
    }

    #[test]
    fn a_header_is_read_as_it_was_written_and_in_no_other_way() {
        let header = Header::new(KeyId([3; 16]), [4; 32]);
        let bytes = header.as_bytes();
        let read = Header::read(bytes).unwrap();
        assert_eq!((read.key(), read.salt), (KeyId([3; 16]), [4; 32]));
        for bit in 0..8 * HEADER_BYTES {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = Header::read(&flipped).err().unwrap();
            match bit / 8 {
                0..8 => assert_eq!(error, HeaderError::NotSealed),
                _ => assert!(matches!(error, HeaderError::Damaged(_)), "{bit}: {error:?}"),
            }
        }
        for length in 0..HEADER_BYTES {
            assert!(matches!(Header::read(&bytes[..length]), Err(HeaderError::Damaged(_))), "{length}");
        }
        assert_eq!(Header::read(b"{").err(), Some(HeaderError::NotSealed));
    }

    #[test]
    fn what_a_newer_version_wrote_is_unsupported_and_what_none_writes_is_damaged() {
        let read = |change: &dyn Fn(&mut Header)| {
            let mut header = Header::new(KeyId([3; 16]), [4; 32]);
            change(&mut header);
            header.checksum = crc32c::crc32c(&header.as_bytes()[..CHECKSUM_AT]).into();
            Header::read(header.as_bytes()).err().unwrap()
        };
        let newer = |what, found, known| HeaderError::Unsupported { what, found, known };
        assert_eq!(read(&|header| header.version = 2.into()), newer("version", 2, 1));
        assert_eq!(read(&|header| header.cipher = 2), newer("cipher", 2, 1));
        assert_eq!(read(&|header| header.derivation = 1), newer("derivation", 1, 0));
        let damaged: [&dyn Fn(&mut Header); 4] = [
            &|header| header.version = 0.into(),
            &|header| header.cipher = 0,
            &|header| header.reserved[3] = 1,
            &|header| header.reserved_for_derivation[0] = 1,
        ];
        for change in damaged {
            assert!(matches!(read(change), HeaderError::Damaged(_)));
        }
    }
}
