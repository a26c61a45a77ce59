//! Records: what a container's bytes prove about themselves.
//!
//! A record's check sum starts from a number made of the container's random id and the record's own location, so that no
//! older, copied or user-made bytes pass for a record. The layout is in `formats/cfs.md`.

use crate::entry::GRAIN_BYTES;

/// Bytes in front of a record's payload.
pub const HEADER_BYTES: usize = 16;
/// Bytes at most of a page's payload, sealed: a page that does not shrink, what a codec says of it, and a seal.
pub const PAGE_PAYLOAD_MAX: usize = 8192 + 256;
/// Bytes at most of the payload of a record of the map or of a dictionary, sealed.
pub const META_PAYLOAD_MAX: usize = 1 << 20;
/// Bytes at most of a page's record.
pub const RECORD_BYTES_MAX: usize = (HEADER_BYTES + PAGE_PAYLOAD_MAX).next_multiple_of(GRAIN_BYTES);
/// Bits of a page's version and of a commit's sequence.
pub const VERSION_BITS: u32 = 48;
/// Blocks at most of a segment: 1 GB.
pub const PAGES_MAX: u32 = 1 << 17;

const META: u32 = 1 << 31;
const _: () = assert!(RECORD_BYTES_MAX / GRAIN_BYTES <= crate::entry::RECORD_GRAINS_MAX as usize);
const _: () = assert!(PAGE_PAYLOAD_MAX < 1 << 14);

/// What a record is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A page, with its block.
    Page {
        /// The block in the segment.
        block: u32,
        /// How the payload is encoded; the engine does not look at it.
        mode: u8,
        /// The dictionary that it needs, 0 for none.
        dictionary: u8,
    },
    /// Entries of 512 blocks.
    Leaf,
    /// Where the leaves are.
    Index,
    /// Entries that changed since the leaves were written.
    Delta,
    /// A dictionary.
    Dictionary,
}

/// A record's first 16 bytes, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is of.
    pub kind: Kind,
    /// Bytes of the payload as stored.
    pub payload_len: usize,
    /// A page's version, or the sequence of the commit that wrote a record of the map.
    pub version: u64,
}

impl Header {
    /// Grains of the whole record.
    pub(crate) fn grains(&self) -> u32 {
        crate::entry::grains_of(HEADER_BYTES + self.payload_len)
    }

    /// Takes the fields apart; none if no record can begin so. The check sum is not looked at.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        let word = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let mut version = [0; 8];
        version[..6].copy_from_slice(&bytes[8..14]);
        let version = u64::from_le_bytes(version);
        let (kind, payload_len) = if word & META == 0 {
            let kind = Kind::Page { block: word & (PAGES_MAX - 1), mode: bytes[14], dictionary: bytes[15] };
            (kind, (word >> 17) as usize)
        } else {
            let kind = match (bytes[14], bytes[15]) {
                (1, 0) => Kind::Leaf,
                (2, 0) => Kind::Index,
                (3, 0) => Kind::Delta,
                (4, 0) => Kind::Dictionary,
                _ => return None,
            };
            (kind, (word & !META) as usize)
        };
        let limit = if word & META == 0 { PAGE_PAYLOAD_MAX } else { META_PAYLOAD_MAX };
        (payload_len > 0 && payload_len <= limit).then_some(Header { kind, payload_len, version })
    }

    fn write(&self, out: &mut [u8]) {
        let (word, [mode, dictionary]) = match self.kind {
            Kind::Page { block, mode, dictionary } => {
                (block | (self.payload_len as u32) << 17, [mode, dictionary])
            }
            Kind::Leaf => (self.payload_len as u32 | META, [1, 0]),
            Kind::Index => (self.payload_len as u32 | META, [2, 0]),
            Kind::Delta => (self.payload_len as u32 | META, [3, 0]),
            Kind::Dictionary => (self.payload_len as u32 | META, [4, 0]),
        };
        out[4..8].copy_from_slice(&word.to_le_bytes());
        out[8..14].copy_from_slice(&self.version.to_le_bytes()[..6]);
        out[14] = mode;
        out[15] = dictionary;
    }
}

/// The container's random name: what its records are bound to.
pub type ContainerId = [u8; 16];

/// The number that check sums of a container start from, before the location goes in.
pub(crate) fn seed_of(id: &ContainerId) -> u32 {
    crc32fast::hash(id)
}

/// Completes a record whose payload is behind [`HEADER_BYTES`] in `record`, for `location`.
pub(crate) fn finish(record: &mut Vec<u8>, header: &Header, seed: u32, location: u32) {
    debug_assert_eq!(record.len(), HEADER_BYTES + header.payload_len);
    header.write(&mut record[..HEADER_BYTES]);
    let crc = checksum(seed, location, &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    record.resize(record.len().next_multiple_of(GRAIN_BYTES), 0);
}

/// The header of the record at the begin of `bytes`, if these are a whole record that belongs at `location`.
pub(crate) fn check(bytes: &[u8], seed: u32, location: u32) -> Option<Header> {
    let header = Header::parse(bytes)?;
    let end = HEADER_BYTES + header.payload_len;
    let stored = u32::from_le_bytes(bytes[..4].try_into().ok()?);
    (checksum(seed, location, bytes.get(4..end)?) == stored).then_some(header)
}

/// Distinct locations give distinct seeds, so that a record is never valid at another place of its container.
fn checksum(seed: u32, location: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed ^ location);
    hasher.update(bytes);
    hasher.finalize()
}

/// What sealing binds a record to: the container, and what the header says, but not the location, so that a collector can
/// move sealed bytes without the key.
pub(crate) fn associated(id: &ContainerId, header: &Header) -> [u8; 32] {
    let mut out = [0; 32];
    let unsized_header = Header { payload_len: 0, ..*header };
    unsized_header.write(&mut out[..HEADER_BYTES]);
    out[16..].copy_from_slice(id);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, payload: &[u8], location: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(payload);
        let header = Header { kind, payload_len: payload.len(), version: (1 << VERSION_BITS) - 2 };
        finish(&mut bytes, &header, 77, location);
        assert_eq!(check(&bytes, 77, location), Some(header));
        bytes
    }

    #[test]
    fn every_flipped_bit_every_other_place_and_every_cut_is_found() {
        let kind = Kind::Page { block: PAGES_MAX - 1, mode: 255, dictionary: 254 };
        let whole = record(kind, b"a page's payload of some bytes", 5);
        let used = HEADER_BYTES + 30;
        for bit in 0..used * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check(&bytes, 77, 5), None, "bit {bit}");
        }
        assert!((0..1000).all(|location| location == 5 || check(&whole, 77, location).is_none()));
        assert!((0..used).all(|end| check(&whole[..end], 77, 5).is_none()));
        assert_eq!(check(&whole, 78, 5), None);
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(Header::parse(&[0; 64]), None);
        for kind in [Kind::Leaf, Kind::Index, Kind::Delta, Kind::Dictionary] {
            record(kind, &[1; 90_000], 1 << 31);
        }
    }
}
