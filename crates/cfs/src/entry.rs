//! A page's entry in the map: one word that says where its newest record is.
//!
//! An entry is published with one compare-and-swap. Its dirty mark is part of it, so that there is no moment at which a
//! new version is visible and not marked for the next commit.

/// The unit of allocation and of locations: 16 bytes.
pub const GRAIN_BYTES: usize = 16;

/// Grains at most of a page's record.
pub const RECORD_GRAINS_MAX: u32 = (1 << 10) - 1;

const TAG_BITS: u32 = 21;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const DIRTY: u64 = 1 << 63;
const CODE_ZERO: u64 = 2 << 32;

/// A map entry: location in grains (32 bits), length in grains (10), tag of the version (21), dirty mark (1).
///
/// Location 0 is the roots' and thus no record's: length 2 there is a page of zeros, all bits clear is a page that was never
/// written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry(pub u64);

impl Entry {
    /// Never written, or truncated away.
    pub const MISSING: Entry = Entry(0);

    pub fn record(location: u32, grains: u32, version: u64) -> Entry {
        debug_assert!(location > 0 && grains > 0 && grains <= RECORD_GRAINS_MAX);
        Entry(u64::from(location) | u64::from(grains) << 32 | (version & TAG_MASK) << 42)
    }

    pub fn zeros(version: u64) -> Entry {
        Entry(CODE_ZERO | (version & TAG_MASK) << 42)
    }

    pub fn dirty(self) -> Entry {
        Entry(self.0 | DIRTY)
    }

    /// As it is stored: without the mark.
    pub fn clean(self) -> Entry {
        Entry(self.0 & !DIRTY)
    }

    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    pub fn is_missing(self) -> bool {
        self.clean().0 == 0
    }

    pub fn is_zeros(self) -> bool {
        self.location() == 0 && self.grains() == 2
    }

    pub fn is_record(self) -> bool {
        self.location() != 0
    }

    /// First grain.
    pub fn location(self) -> u32 {
        self.0 as u32
    }

    pub fn grains(self) -> u32 {
        (self.0 >> 32) as u32 & RECORD_GRAINS_MAX
    }

    pub fn tag(self) -> u64 {
        self.0 >> 42 & TAG_MASK
    }

    pub fn has_tag_of(self, version: u64) -> bool {
        self.tag() == version & TAG_MASK
    }

    /// Whether these bits can be stored: no mark, a location with a length or one of the codes.
    pub fn is_storable(self) -> bool {
        !self.is_dirty()
            && (if self.is_record() { self.grains() > 0 } else { self.is_zeros() || self.0 == 0 })
    }

    pub fn offset(self) -> u64 {
        u64::from(self.location()) * GRAIN_BYTES as u64
    }

    pub fn bytes(self) -> usize {
        self.grains() as usize * GRAIN_BYTES
    }
}

/// Grains that hold `bytes`.
pub(crate) fn grains_of(bytes: usize) -> u32 {
    bytes.div_ceil(GRAIN_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_location_length_and_tag_apart() {
        let entry = Entry::record(u32::MAX, RECORD_GRAINS_MAX, u64::MAX).dirty();
        assert_eq!(entry.0, u64::MAX);
        let entry = Entry::record(7, 3, 1 << 21 | 5);
        assert_eq!((entry.location(), entry.grains(), entry.tag()), (7, 3, 5));
        assert!(entry.is_record() && !entry.is_dirty() && entry.dirty().clean() == entry);
        assert!(
            Entry::zeros(9).is_zeros()
                && !Entry::zeros(9).is_missing()
                && Entry::MISSING.dirty().is_missing()
        );
    }
}
