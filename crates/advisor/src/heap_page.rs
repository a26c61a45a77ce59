//! Raw pages of the heap: tuples and their attributes, and pages made of new tuples.
//!
//! A page comes out of a file that may be damaged, or out of a snapshot that somebody edited. Nothing in it is believed: every
//! offset and length is checked, and what does not fit is a [`Damage`].
//!
//! ```text
//!   page image --> HeapPage --> Tuple --> attributes: a slice of the page for each column
//!   values     --> write::tuple --> write::Pages --> page images, as INSERT and VACUUM leave them
//! ```
//!
//! Sources: `src/include/storage/bufpage.h`, `itemid.h`, `src/include/access/htup_details.h`,
//! `nocachegetattr` in `src/backend/access/common/heaptuple.c`, `src/include/varatt.h`. Little-endian servers only.

pub mod varlena;
pub mod write;

use crate::layout::Alignment;
use crate::layout::heap::PAGE_BYTES;
use crate::snapshot;

/// A page's bytes.
pub type PageBytes = [u8; PAGE_BYTES];

/// What is wrong with a page or a tuple.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Not a whole page.
    #[error("a page of {found} bytes, expected {PAGE_BYTES}")]
    Size {
        /// Its bytes.
        found: usize,
    },
    /// The header's fields contradict each other, or the page is not of the heap.
    #[error("not a page of the heap: lower {lower}, upper {upper}, special {special}")]
    Header {
        /// `pd_lower`
        lower: u16,
        /// `pd_upper`
        upper: u16,
        /// `pd_special`
        special: u16,
    },
    /// An item outside of the page, or one that is not there.
    #[error("item {item} at {offset} with {length} bytes is not in its page")]
    Item {
        /// From 1.
        item: u16,
        /// Where it should be.
        offset: usize,
        /// Its bytes.
        length: usize,
    },
    /// A tuple whose header does not fit it.
    #[error("a tuple of {length} bytes with data from {data} on and {attributes} attributes")]
    Tuple {
        /// Its bytes.
        length: usize,
        /// `t_hoff`
        data: usize,
        /// In its header.
        attributes: usize,
    },
    /// A value that goes beyond its tuple.
    #[error("attribute {attribute} at {offset} extends beyond its tuple of {length} bytes")]
    Attribute {
        /// From 1.
        attribute: usize,
        /// In the tuple.
        offset: usize,
        /// The tuple's bytes.
        length: usize,
    },
    /// A column of a kind that no server has.
    #[error("column {attribute} has length {length} and alignment {alignment:?}")]
    Column {
        /// From 1.
        attribute: usize,
        /// `attlen`
        length: i16,
        /// `attalign`
        alignment: char,
    },
}

/// A page of a table.
#[derive(Clone, Copy, Debug)]
pub struct HeapPage<'p> {
    bytes: &'p PageBytes,
    items: u16,
}

/// A tuple in a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuple<'p> {
    /// From its header on, without alignment behind it.
    bytes: &'p [u8],
    data_at: usize,
    attributes: usize,
}

/// A value in a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribute<'p> {
    /// NULL.
    Null,
    /// The tuple was made before the column was: NULL, or the column's missing value.
    Absent,
    /// As it is stored: of a varlena with its header, of a cstring with its zero.
    Stored(&'p [u8]),
}

/// What is needed of a column to walk over it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    length: Length,
    alignment: Alignment,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    Fixed(usize),
    Varlena,
    Cstring,
}

/// `SizeOfPageHeaderData`.
pub(crate) const HEADER_BYTES: usize = 24;
/// `sizeof(ItemIdData)`.
pub(crate) const ITEM_BYTES: usize = 4;
/// `SizeofHeapTupleHeader`.
pub(crate) const TUPLE_HEADER_BYTES: usize = 23;
/// `LP_NORMAL`.
pub(crate) const NORMAL: u32 = 1;
/// `HEAP_HASNULL` of `t_infomask`.
pub(crate) const HAS_NULL: u16 = 1;
/// `HEAP_NATTS_MASK` of `t_infomask2`.
const ATTRIBUTES_MASK: u16 = 0x07ff;

/// Two bytes at this place, little-endian. 0 where there are none.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]))
}

/// Four bytes at this place, little-endian. None where there are none.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

impl<'p> HeapPage<'p> {
    /// Takes a page apart. A page of zeros has no items.
    ///
    /// # Errors
    /// [`Damage::Size`], [`Damage::Header`].
    pub fn parse(image: &'p [u8]) -> Result<HeapPage<'p>, Damage> {
        let bytes: &PageBytes = image.try_into().map_err(|_| Damage::Size { found: image.len() })?;
        let [lower, upper, special] = [12, 14, 16].map(|at| u16_at(bytes, at));
        if [lower, upper, special] == [0; 3] && bytes.iter().all(|byte| *byte == 0) {
            return Ok(HeapPage { bytes, items: 0 });
        }
        let sound = HEADER_BYTES <= usize::from(lower)
            && lower <= upper
            && upper <= special
            && usize::from(special) == PAGE_BYTES;
        if !sound {
            return Err(Damage::Header { lower, upper, special });
        }
        let items = (lower - HEADER_BYTES as u16) / ITEM_BYTES as u16;
        Ok(HeapPage { bytes, items })
    }

    /// Its items, those without a tuple included.
    pub fn item_count(&self) -> u16 {
        self.items
    }

    /// The tuple of an item, from 1. None: it is unused, dead, or redirects to another one.
    ///
    /// # Errors
    /// [`Damage::Item`], [`Damage::Tuple`].
    pub fn tuple(&self, item: u16) -> Result<Option<Tuple<'p>>, Damage> {
        if item == 0 || item > self.items {
            return Err(Damage::Item { item, offset: 0, length: 0 });
        }
        let at = HEADER_BYTES + usize::from(item - 1) * ITEM_BYTES;
        let pointer = u32_at(self.bytes, at).unwrap_or(0);
        let (offset, flags, length) =
            ((pointer & 0x7fff) as usize, pointer >> 15 & 3, (pointer >> 17) as usize);
        if flags != NORMAL {
            return Ok(None);
        }
        let lower = HEADER_BYTES + usize::from(self.items) * ITEM_BYTES;
        let bytes = self.bytes.get(offset..offset + length).filter(|_| offset >= lower);
        Tuple::parse(bytes.ok_or(Damage::Item { item, offset, length })?).map(Some)
    }
}

impl<'p> Tuple<'p> {
    /// A tuple by its bytes.
    ///
    /// # Errors
    /// [`Damage::Tuple`].
    pub fn parse(bytes: &'p [u8]) -> Result<Tuple<'p>, Damage> {
        let attributes = usize::from(u16_at(bytes, 18) & ATTRIBUTES_MASK);
        let data_at = usize::from(bytes.get(22).copied().unwrap_or(0));
        let has_null = u16_at(bytes, 20) & HAS_NULL != 0;
        let bitmap = if has_null { attributes.div_ceil(8) } else { 0 };
        if data_at < TUPLE_HEADER_BYTES + bitmap || data_at > bytes.len() {
            return Err(Damage::Tuple { length: bytes.len(), data: data_at, attributes });
        }
        Ok(Tuple { bytes, data_at, attributes })
    }

    /// `t_xmin`: the transaction that made it.
    pub fn xmin(&self) -> u32 {
        u32_at(self.bytes, 0).unwrap_or(0)
    }

    /// The values of these columns, which are all of the table's by `attnum`.
    ///
    /// # Errors
    /// [`Damage::Attribute`].
    pub fn attributes(&self, shapes: &[Shape]) -> Result<Vec<Attribute<'p>>, Damage> {
        let has_null = u16_at(self.bytes, 20) & HAS_NULL != 0;
        let is_null =
            |index: usize| has_null && self.bytes[TUPLE_HEADER_BYTES + index / 8] >> (index % 8) & 1 == 0;
        let mut at = self.data_at;
        let one = |(index, shape): (usize, &Shape)| {
            if index >= self.attributes {
                return Ok(Attribute::Absent);
            }
            if is_null(index) {
                return Ok(Attribute::Null);
            }
            let damage = Damage::Attribute { attribute: index + 1, offset: at, length: self.bytes.len() };
            let (start, end) = self.value(shape, at).ok_or(damage)?;
            at = end;
            Ok(Attribute::Stored(&self.bytes[start..end]))
        };
        shapes.iter().enumerate().map(one).collect()
    }

    /// Where a value is that is stored at this byte or behind it.
    fn value(&self, shape: &Shape, at: usize) -> Option<(usize, usize)> {
        // The data begin at a multiple of eight, from where alignment counts.
        let align = |at: usize| self.data_at + shape.alignment.align(at - self.data_at);
        let (start, length) = match shape.length {
            Length::Fixed(length) => (align(at), length),
            Length::Cstring => {
                let rest = self.bytes.get(at..)?;
                (at, rest.iter().position(|byte| *byte == 0)? + 1)
            }
            Length::Varlena => {
                // Padding is zero, and no short header is.
                let start = if *self.bytes.get(at)? == 0 { align(at) } else { at };
                (start, varlena::stored_bytes(self.bytes.get(start..)?)?)
            }
        };
        let end = start.checked_add(length)?;
        (end <= self.bytes.len()).then_some((start, end))
    }
}

impl Shape {
    /// Whether values have a header that says how long they are.
    pub fn is_varlena(self) -> bool {
        self.length == Length::Varlena
    }

    /// Of a column, dropped ones included: the server keeps their length and alignment.
    ///
    /// # Errors
    /// [`Damage::Column`].
    pub fn of(columns: &[snapshot::Column]) -> Result<Vec<Shape>, Damage> {
        let one = |(index, column): (usize, &snapshot::Column)| {
            let (length, alignment) = (column.length, column.alignment);
            let damage = Damage::Column { attribute: index + 1, length, alignment };
            let known = u8::try_from(alignment).ok().and_then(Alignment::of_letter);
            let length = match length {
                -1 => Some(Length::Varlena),
                -2 => Some(Length::Cstring),
                length => usize::try_from(length).ok().filter(|length| *length > 0).map(Length::Fixed),
            };
            match (length, known) {
                (Some(length), Some(alignment)) => Ok(Shape { length, alignment }),
                _ => Err(damage),
            }
        };
        columns.iter().enumerate().map(one).collect()
    }
}
