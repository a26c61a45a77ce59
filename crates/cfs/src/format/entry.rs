//! A page's entry in the map: one word that says where its newest record is.
//!
//! An entry is published with one compare-and-swap. Its dirty mark is part of it, so that there is no moment
//! at which a new version is visible and not marked for the next commit.

use crate::format::units::{Extent, Grains, Location, Version};

/// Grains at most of a page's record.
pub const RECORD_GRAINS_MAX: u32 = (1 << 10) - 1;

const TAG_BITS: u32 = 21;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const DIRTY: u64 = 1 << 63;
const CODE_ZERO: u64 = 2 << 32;

/// How many versions have tags of their own.
pub const TAGS: u64 = 1 << TAG_BITS;

/// A map entry: location in grains (32 bits), length in grains (10), tag of the version (21), dirty mark (1).
///
/// Location 0 is the roots' and thus no record's: length 2 there is a page of zeros, all bits clear is a page
/// that was never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry(pub u64);

impl Entry {
    /// Never written, or truncated away.
    pub const MISSING: Entry = Entry(0);

    /// Of a page whose record lies there.
    pub fn record(extent: Extent, version: Version) -> Entry {
        let Extent { location, grains } = extent;
        assert!(
            location.0 > 0 && grains.0 > 0 && grains.0 <= RECORD_GRAINS_MAX,
            "no page's record: {extent:?}"
        );
        Entry(u64::from(location.0) | u64::from(grains.0) << 32 | (version.0 & TAG_MASK) << 42)
    }

    /// Of a page of zeros.
    pub fn zeros(version: Version) -> Entry {
        Entry(CODE_ZERO | (version.0 & TAG_MASK) << 42)
    }

    /// From the fields of a packed leaf. None: the length is no page's.
    pub(crate) fn from_parts(location: u32, grains: u32, tag: u64) -> Option<Entry> {
        let entry = Entry(u64::from(location) | u64::from(grains) << 32 | (tag & TAG_MASK) << 42);
        (grains <= RECORD_GRAINS_MAX).then_some(entry)
    }

    /// With the mark.
    pub fn dirty(self) -> Entry {
        Entry(self.0 | DIRTY)
    }

    /// As it is stored: without the mark.
    pub fn clean(self) -> Entry {
        Entry(self.0 & !DIRTY)
    }

    /// Whether it is marked for the next commit.
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether there is no such page, or it was not loaded.
    pub fn is_missing(self) -> bool {
        self.clean().0 == 0
    }

    /// Whether the page is all zeros.
    pub fn is_zeros(self) -> bool {
        self.extent().location == Location(0) && self.extent().grains == Grains(2)
    }

    /// Whether the page has a record.
    pub fn is_record(self) -> bool {
        self.extent().location != Location(0)
    }

    /// Where its record lies, if it has one.
    pub fn record_extent(self) -> Option<Extent> {
        self.is_record().then_some(self.extent())
    }

    /// Location and length, whatever they mean.
    pub fn extent(self) -> Extent {
        let grains = (self.0 >> 32) as u32 & RECORD_GRAINS_MAX;
        Extent { location: Location(self.0 as u32), grains: Grains(grains) }
    }

    /// Low bits of the version.
    pub fn tag(self) -> u64 {
        self.0 >> 42 & TAG_MASK
    }

    /// Whether it may mean this version.
    pub fn has_tag_of(self, version: Version) -> bool {
        self.tag() == version.0 & TAG_MASK
    }

    /// Whether these bits can be stored: no mark, a location with a length or one of the codes.
    pub fn is_storable(self) -> bool {
        let has_length = self.extent().grains.0 > 0;
        !self.is_dirty() && (if self.is_record() { has_length } else { self.is_zeros() || self.0 == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(location: u32, grains: u32) -> Extent {
        Extent { location: Location(location), grains: Grains(grains) }
    }

    #[test]
    fn an_entry_keeps_location_length_and_tag_apart() {
        let entry = Entry::record(extent(u32::MAX, RECORD_GRAINS_MAX), Version(u64::MAX)).dirty();
        assert_eq!(entry.0, u64::MAX);
        let entry = Entry::record(extent(7, 3), Version(1 << 21 | 5));
        assert_eq!((entry.extent(), entry.tag()), (extent(7, 3), 5));
        assert!(entry.is_record() && !entry.is_dirty() && entry.dirty().clean() == entry);
        assert!(
            Entry::zeros(Version(9)).is_zeros()
                && !Entry::zeros(Version(9)).is_missing()
                && Entry::MISSING.dirty().is_missing()
        );
    }
}
