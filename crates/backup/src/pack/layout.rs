//! Bytes of a pack: `formats/backup.md`, "Packs".

use super::{BackupId, Error, PackNumber, Part};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version that this release writes and reads.
pub const VERSION: u16 = 2;
/// Bytes before the payloads.
pub const HEADER_BYTES: usize = size_of::<Header>();
/// Bytes at the end.
pub const TRAILER_BYTES: usize = size_of::<TrailerBytes>();
/// Most bytes of a footer.
pub const FOOTER_BYTES_MAX: u32 = 16 << 20;

pub(super) const HEADER_MAGIC: [u8; 8] = *b"pgshpack";
pub(super) const TRAILER_MAGIC: [u8; 8] = *b"pgshpend";

/// Offset 0 of a pack.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    pub magic: [u8; 8],
    pub version: U16,
    /// None is known yet.
    pub features: U16,
    pub number: U32,
    pub backup: [u8; 16],
    pub reserved: [u8; 28],
    /// CRC-32C of the 60 bytes before.
    pub checksum: U32,
}

/// The last bytes of a pack.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TrailerBytes {
    pub magic: [u8; 8],
    pub version: U16,
    pub features: U16,
    pub number: U32,
    pub backup: [u8; 16],
    /// Offset of the footer in the pack.
    pub footer_at: U64,
    pub footer_bytes: U32,
    /// CRC-32C of the footer.
    pub footer_checksum: U32,
    pub reserved: [u8; 12],
    /// CRC-32C of the 60 bytes before.
    pub checksum: U32,
}

/// A file in the footer; its path follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct FileBytes {
    /// 1: data directory; 2: configuration.
    pub area: u8,
    /// 0: not known; otherwise [`super::Permissions`].
    pub permissions: u8,
    pub path_bytes: U16,
}

/// A chunk in the footer.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ChunkBytes {
    /// BLAKE3 of the raw bytes.
    pub blake3: [u8; 32],
    /// Of its first raw byte in the file.
    pub offset: U64,
    /// Index in the footer's list of files.
    pub file: U32,
    /// Offset of its payload in the pack.
    pub at: U32,
    /// Bytes of its payload.
    pub stored_bytes: U32,
    pub raw_bytes: U32,
    /// CRC-32C of the payload.
    pub stored_checksum: U32,
    /// CRC-32C of the raw bytes.
    pub raw_checksum: U32,
    /// How the payload is encoded: `formats/backup-chunk.md`.
    pub codec: u8,
    pub reserved: [u8; 7],
}

const _: () = assert!(HEADER_BYTES == 64 && TRAILER_BYTES == 64);
const _: () = assert!(size_of::<FileBytes>() == 4 && size_of::<ChunkBytes>() == 72);

/// Checks what header and trailer have in common.
pub(super) fn check_frame(part: Part, bytes: &[u8; 64], magic: [u8; 8]) -> Result<(), Error> {
    let (covered, checksum) = bytes.split_at(60);
    if covered[..8] != magic {
        return Err(Error::Damaged { part, what: "it does not start with the magic number" });
    }
    let expected = u32::from_le_bytes([checksum[0], checksum[1], checksum[2], checksum[3]]);
    let found = crc32c::crc32c(covered);
    if expected != found {
        return Err(Error::Checksum { part, expected, found });
    }
    let version = u16::from_le_bytes([covered[8], covered[9]]);
    if version == 0 {
        return Err(Error::Damaged { part, what: "its version is 0" });
    }
    if version != VERSION {
        return Err(Error::Unsupported { what: "version", found: version });
    }
    match u16::from_le_bytes([covered[10], covered[11]]) {
        0 => Ok(()),
        found => Err(Error::Unsupported { what: "features", found }),
    }
}

/// Checks that the pack is the one that was asked for.
pub(super) fn check_identity(
    expected: (BackupId, PackNumber),
    backup: [u8; 16],
    number: u32,
) -> Result<(), Error> {
    let found = (BackupId(backup), PackNumber(number));
    if found == expected {
        return Ok(());
    }
    Err(Error::Other { expected: expected.1, expected_id: expected.0, found: found.1, found_id: found.0 })
}
