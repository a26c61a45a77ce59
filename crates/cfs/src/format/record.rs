//! Records: what a container's bytes prove about themselves.
//!
//! A record's checksum starts from a number made of the container's random id and the record's own location,
//! so that no older, copied or user-made bytes pass for a record. The layout is in `formats/cfs.md`.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::error::Reason;
use crate::format::units::{
    Block, ContainerId, DictionaryNumber, Location, PAGES_MAX, UNIT_BYTES, Units, VERSION_BITS, Version,
};

/// Bytes in front of a record's payload.
pub const HEADER_BYTES: usize = size_of::<Stored>();
/// Bytes at most of a page's payload, sealed: a page that does not shrink, what a codec says of it, and a
/// seal.
pub const PAGE_PAYLOAD_MAX: usize = 8192 + 256;
/// Bytes at most of the payload of a record of the map or of a dictionary, sealed.
pub const META_PAYLOAD_MAX: usize = 1 << 20;
/// Bytes at most of a page's record.
pub const RECORD_BYTES_MAX: usize = (HEADER_BYTES + PAGE_PAYLOAD_MAX).next_multiple_of(UNIT_BYTES);
/// The highest number of a dictionary.
pub const DICTIONARY_NUMBER_MAX: DictionaryNumber = (1 << DICTIONARY_BITS) - 1;

const DICTIONARY_BITS: u32 = 12;
const META: u32 = 1 << 31;
const _: () = assert!(HEADER_BYTES == UNIT_BYTES);
const _: () = assert!(RECORD_BYTES_MAX / UNIT_BYTES <= crate::format::entry::RECORD_UNITS_MAX as usize);
const _: () = assert!(PAGE_PAYLOAD_MAX < 1 << 14 && PAGES_MAX <= 1 << 17);
const _: () = assert!(VERSION_BITS + DICTIONARY_BITS + 8 == 64);

/// A record's first bytes as they lie in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Stored {
    checksum: U32,
    /// A page: bits 0-16 block, 17-30 length of the payload. Otherwise bit 31, and 0-30 length of the
    /// payload.
    what: U32,
    /// Bits 0-43 version, 44-55 dictionary, 56-63 mode or kind.
    version: U64,
}

/// What a record is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A page.
    Page(PageKind),
    /// Entries of 512 blocks.
    Leaf,
    /// Where the leaves are.
    Index,
    /// Entries that changed since the leaves were written.
    Delta,
    /// A dictionary.
    Dictionary,
}

/// What a page's record says of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageKind {
    /// The block in the segment.
    pub block: Block,
    /// How the payload is encoded; the engine does not look at it.
    pub mode: u8,
    /// The dictionary that it needs, 0 for none.
    pub dictionary: DictionaryNumber,
}

/// A record's header, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is of.
    pub kind: Kind,
    /// Bytes of the payload as stored.
    pub payload_len: usize,
    /// A page's version, or the sequence of the commit that wrote a record of the map.
    pub version: Version,
}

impl Header {
    /// Units of the whole record.
    pub(crate) fn units(&self) -> Units {
        Units::holding(HEADER_BYTES + self.payload_len)
    }

    /// Takes the fields apart; none if no record can begin so. The checksum is not looked at.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let (stored, _) = Stored::ref_from_prefix(bytes).ok()?;
        let (what, fields) = (stored.what.get(), stored.version.get());
        let version = Version(fields & ((1 << VERSION_BITS) - 1));
        let dictionary = (fields >> VERSION_BITS) as u16 & DICTIONARY_NUMBER_MAX;
        let mode = (fields >> (VERSION_BITS + DICTIONARY_BITS)) as u8;
        let (kind, payload_len, limit) = if what & META == 0 {
            let kind = Kind::Page(PageKind { block: Block(what & (PAGES_MAX - 1)), mode, dictionary });
            (kind, (what >> 17) as usize, PAGE_PAYLOAD_MAX)
        } else {
            let kind = match (mode, dictionary) {
                (1, 0) => Kind::Leaf,
                (2, 0) => Kind::Index,
                (3, 0) => Kind::Delta,
                (4, 0) => Kind::Dictionary,
                _ => return None,
            };
            (kind, (what & !META) as usize, META_PAYLOAD_MAX)
        };
        (payload_len > 0 && payload_len <= limit).then_some(Header { kind, payload_len, version })
    }

    fn stored(&self, checksum: u32) -> Stored {
        let length = self.payload_len as u32;
        let (what, mode, dictionary) = match self.kind {
            Kind::Page(page) => (page.block.0 | length << 17, page.mode, page.dictionary),
            Kind::Leaf => (length | META, 1, 0),
            Kind::Index => (length | META, 2, 0),
            Kind::Delta => (length | META, 3, 0),
            Kind::Dictionary => (length | META, 4, 0),
        };
        assert!(self.version.0 >> VERSION_BITS == 0 && dictionary <= DICTIONARY_NUMBER_MAX);
        let above = u64::from(dictionary) | u64::from(mode) << DICTIONARY_BITS;
        let version = U64::new(self.version.0 | above << VERSION_BITS);
        Stored { checksum: U32::new(checksum), what: U32::new(what), version }
    }
}

/// The number that checksums of a container start from, before the location goes in.
pub(crate) fn seed_of(id: &ContainerId) -> u32 {
    crc32fast::hash(id)
}

/// Completes a record whose payload is behind [`HEADER_BYTES`] in `record`, for `location`.
pub(crate) fn finish(record: &mut Vec<u8>, header: &Header, seed: u32, location: Location) {
    assert_eq!(record.len(), HEADER_BYTES + header.payload_len);
    record[..HEADER_BYTES].copy_from_slice(header.stored(0).as_bytes());
    let crc = checksum(seed, location, &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    record.resize(record.len().next_multiple_of(UNIT_BYTES), 0);
}

/// The header of the record at the begin of `bytes`, if these are a whole record that belongs at `location`.
///
/// # Errors
/// Why they are not.
pub(crate) fn check(bytes: &[u8], seed: u32, location: Location) -> Result<Header, Reason> {
    let header = Header::parse(bytes).ok_or(Reason::NoRecord)?;
    let end = HEADER_BYTES + header.payload_len;
    let Some(covered) = bytes.get(4..end) else {
        return Err(Reason::OtherLength { expected: bytes.len() as u64, found: end as u64 });
    };
    let found = Stored::ref_from_prefix(bytes).map_or(0, |(stored, _)| stored.checksum.get());
    let expected = checksum(seed, location, covered);
    if expected == found { Ok(header) } else { Err(Reason::Checksum { expected, found }) }
}

/// Distinct locations give distinct seeds, so that a record is never valid at another place of its container.
fn checksum(seed: u32, location: Location, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed ^ location.0);
    hasher.update(bytes);
    hasher.finalize()
}

/// What sealing binds a record to: the container, and what the header says, but not the location, so that a
/// collector can move sealed bytes without the key.
pub(crate) fn associated(id: &ContainerId, header: &Header) -> [u8; 32] {
    let mut out = [0; 32];
    let unsized_header = Header { payload_len: 0, ..*header };
    out[..HEADER_BYTES].copy_from_slice(unsized_header.stored(0).as_bytes());
    out[HEADER_BYTES..].copy_from_slice(id);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, payload: &[u8], location: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(payload);
        let version = Version((1 << VERSION_BITS) - 2);
        let header = Header { kind, payload_len: payload.len(), version };
        finish(&mut bytes, &header, 77, Location(location));
        assert_eq!(check(&bytes, 77, Location(location)), Ok(header));
        bytes
    }

    #[test]
    fn every_flipped_bit_every_other_place_and_every_cut_is_found() {
        let page = PageKind { block: Block(PAGES_MAX - 1), mode: 255, dictionary: DICTIONARY_NUMBER_MAX - 1 };
        let whole = record(Kind::Page(page), b"a page's payload of some bytes", 5);
        let used = HEADER_BYTES + 30;
        for bit in 0..used * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bytes, 77, Location(5)).is_err(), "bit {bit}");
        }
        assert!((0..1000).all(|at| at == 5 || check(&whole, 77, Location(at)).is_err()));
        assert!((0..used).all(|end| check(&whole[..end], 77, Location(5)).is_err()));
        assert!(matches!(check(&whole, 78, Location(5)), Err(Reason::Checksum { .. })));
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(Header::parse(&[0; 64]), None);
        for kind in [Kind::Leaf, Kind::Index, Kind::Delta, Kind::Dictionary] {
            record(kind, &[1; 90_000], 1 << 31);
        }
    }

    #[test]
    fn what_a_seal_is_bound_to_tells_every_field_but_the_length_and_the_place() {
        let page = PageKind { block: Block(3), mode: 4, dictionary: 5 };
        let header = Header { kind: Kind::Page(page), payload_len: 100, version: Version(9) };
        let of = |page: PageKind, version| {
            associated(&[1; 16], &Header { kind: Kind::Page(page), version: Version(version), ..header })
        };
        let bound = of(page, 9);
        let others = [
            of(PageKind { block: Block(2), ..page }, 9),
            of(PageKind { mode: 5, ..page }, 9),
            of(PageKind { dictionary: 4, ..page }, 9),
            of(page, 8),
            associated(&[2; 16], &header),
            associated(&[1; 16], &Header { kind: Kind::Leaf, ..header }),
        ];
        assert!(others.iter().all(|other| *other != bound));
        assert_eq!(associated(&[1; 16], &Header { payload_len: 7, ..header }), bound);
    }
}
