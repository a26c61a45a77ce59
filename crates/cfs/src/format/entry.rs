//! A page's entry in the map: one word that says where its newest record is.
//!
//! An entry is published with one compare-and-swap. Its dirty mark is part of it, so that there is no moment
//! at which a new version is visible and not marked for the next commit.

use crate::format::units::{Location, Span, Units, Version};

/// Units at most of a page's record.
pub const RECORD_UNITS_MAX: u32 = (1 << 10) - 1;

const TAG_BITS: u32 = 21;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const DIRTY: u64 = 1 << 63;
const CODE_ZERO: u64 = 2 << 32;
const CODE_IN_BASE: u64 = 3 << 32;

/// How many versions have tags of their own.
pub const TAGS: u64 = 1 << TAG_BITS;

/// A map entry: location in units (32 bits), length in units (10), tag of the version (21), dirty mark (1).
///
/// Location 0 is the roots' and thus no record's: length 2 there is a page of zeros, length 3 one that lies in the
/// base, all bits clear is a page that was never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry(pub u64);

impl Entry {
    /// Never written, or truncated away.
    pub const MISSING: Entry = Entry(0);

    /// Of a page whose record lies there.
    pub fn record(span: Span, version: Version) -> Entry {
        let Span { location, units } = span;
        assert!(location.0 > 0 && units.0 > 0 && units.0 <= RECORD_UNITS_MAX, "no page's record: {span:?}");
        Entry(u64::from(location.0) | u64::from(units.0) << 32 | (version.0 & TAG_MASK) << 42)
    }

    /// Of a page of zeros.
    pub fn zeros(version: Version) -> Entry {
        Entry(CODE_ZERO | (version.0 & TAG_MASK) << 42)
    }

    /// Of a page that lies in the base.
    pub fn in_base(version: Version) -> Entry {
        Entry(CODE_IN_BASE | (version.0 & TAG_MASK) << 42)
    }

    /// From the fields of a packed leaf. None: the length is no page's.
    pub(crate) fn from_parts(location: u32, units: u32, tag: u64) -> Option<Entry> {
        let entry = Entry(u64::from(location) | u64::from(units) << 32 | (tag & TAG_MASK) << 42);
        (units <= RECORD_UNITS_MAX).then_some(entry)
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
        self.span().location == Location(0) && self.span().units == Units(2)
    }

    /// Whether the page lies in the base.
    pub fn is_in_base(self) -> bool {
        self.span().location == Location(0) && self.span().units == Units(3)
    }

    /// Whether the page has a record.
    pub fn is_record(self) -> bool {
        self.span().location != Location(0)
    }

    /// Where its record lies, if it has one.
    pub fn record_span(self) -> Option<Span> {
        self.is_record().then_some(self.span())
    }

    /// Location and length, whatever they mean.
    pub fn span(self) -> Span {
        let units = (self.0 >> 32) as u32 & RECORD_UNITS_MAX;
        Span { location: Location(self.0 as u32), units: Units(units) }
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
        let has_length = self.span().units.0 > 0;
        !self.is_dirty()
            && (if self.is_record() {
                has_length
            } else {
                self.is_zeros() || self.is_in_base() || self.0 == 0
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(location: u32, units: u32) -> Span {
        Span { location: Location(location), units: Units(units) }
    }

    #[test]
    fn an_entry_keeps_location_length_and_tag_apart() {
        let entry = Entry::record(span(u32::MAX, RECORD_UNITS_MAX), Version(u64::MAX)).dirty();
        assert_eq!(entry.0, u64::MAX);
        let entry = Entry::record(span(7, 3), Version(1 << 21 | 5));
        assert_eq!((entry.span(), entry.tag()), (span(7, 3), 5));
        assert!(entry.is_record() && !entry.is_dirty() && entry.dirty().clean() == entry);
        assert!(
            Entry::zeros(Version(9)).is_zeros()
                && !Entry::zeros(Version(9)).is_missing()
                && Entry::MISSING.dirty().is_missing()
        );
        let in_base = Entry::in_base(Version(9)).dirty();
        assert!(in_base.is_in_base() && in_base.clean().is_storable() && in_base.tag() == 9);
        assert!(!in_base.is_record() && !in_base.is_zeros() && !in_base.is_missing());
    }
}
