//! Tuples and pages as the server makes them.
//!
//! Headers and hint bits are those of rows that one transaction inserted, and that VACUUM has seen since: that is what a table
//! looks like soon after it was rewritten, and all that it looks like to a codec.
//!
//! Sources: `heap_form_tuple`, `heap_fill_tuple`, `RelationGetBufferForTuple`, `PageAddItemExtended`.

use super::varlena::{LONG_HEADER_BYTES, SHORT_DATA_MAX};
use super::{HAS_NULL, HEADER_BYTES, ITEM_BYTES, NORMAL, PageBytes, TUPLE_HEADER_BYTES};
use crate::layout::Column;
use crate::layout::heap::PAGE_BYTES;

/// `MAXIMUM_ALIGNOF`.
const MAXALIGN: usize = 8;
/// `HEAP_HASVARWIDTH`.
const HAS_VARIABLE: u16 = 2;
/// `HEAP_HASEXTERNAL`.
const HAS_EXTERNAL: u16 = 4;
/// `HEAP_XMIN_COMMITTED` and `HEAP_XMAX_INVALID`.
const HINTS: u16 = 0x0100 | 0x0800;
/// The transaction that inserted all rows: any is as good.
const TRANSACTION: u32 = 1_742;
/// `PD_ALL_VISIBLE`.
const ALL_VISIBLE: u16 = 4;
/// `PG_PAGE_LAYOUT_VERSION` with the size of pages.
const SIZE_AND_VERSION: u16 = PAGE_BYTES as u16 | 4;
/// `MaxHeapTuplesPerPage`.
const ROWS_MAX: usize = (PAGE_BYTES - HEADER_BYTES) / (24 + ITEM_BYTES);

/// A stored value, or None for NULL: of a varlena with its header.
pub type Image<'v> = Option<&'v [u8]>;

/// Appends a tuple of these columns to `out`, which it clears. A value of fixed length that has another length is cut, or
/// filled up with zeros: so the tuple is as long as the server's.
pub fn tuple(columns: &[&Column], values: &[Image<'_>], out: &mut Vec<u8>) {
    out.clear();
    let has_null = values.iter().any(Option::is_none);
    let bitmap = if has_null { columns.len().div_ceil(8) } else { 0 };
    let data_at = (TUPLE_HEADER_BYTES + bitmap).next_multiple_of(MAXALIGN);
    out.resize(data_at, 0);
    let mut mask = HINTS | if has_null { HAS_NULL } else { 0 };
    for (index, (column, value)) in columns.iter().zip(values).enumerate() {
        let Some(value) = value else { continue };
        if has_null {
            out[TUPLE_HEADER_BYTES + index / 8] |= 1 << (index % 8);
        }
        // The data begin at a multiple of eight, so that alignment may count from the tuple's begin.
        let aligned = column.alignment.align(out.len());
        match column.length {
            Some(length) => {
                out.resize(aligned, 0);
                let given = &value[..value.len().min(length.into())];
                out.extend_from_slice(given);
                out.resize(aligned + usize::from(length), 0);
            }
            None => {
                mask |= HAS_VARIABLE | if value.first() == Some(&1) { HAS_EXTERNAL } else { 0 };
                varlena(column, value, aligned, out);
            }
        }
    }
    out[..4].copy_from_slice(&TRANSACTION.to_le_bytes());
    out[18..20].copy_from_slice(&(columns.len() as u16).to_le_bytes());
    out[20..22].copy_from_slice(&mask.to_le_bytes());
    out[22] = data_at as u8;
}

/// A varlena, whose header becomes one byte if it may and can (`fill_val`).
fn varlena(column: &Column, value: &[u8], aligned: usize, out: &mut Vec<u8>) {
    let is_short = value.first().is_some_and(|first| first & 1 == 1);
    let is_plain = value.first().is_some_and(|first| first & 3 == 0);
    let data = value.get(LONG_HEADER_BYTES..).unwrap_or_default();
    if is_short {
        out.extend_from_slice(value);
    } else if is_plain && column.is_packable && data.len() <= SHORT_DATA_MAX {
        out.push(((data.len() + 1) << 1) as u8 | 1);
        out.extend_from_slice(data);
    } else {
        out.resize(aligned, 0);
        out.extend_from_slice(value);
    }
}

/// Pages that are filled one after the other.
#[derive(Debug)]
pub struct Pages {
    pages: Vec<Box<PageBytes>>,
    /// Rows of the last page, and where its free space ends.
    rows: usize,
    upper: usize,
    /// Left for updates, by the fillfactor.
    spared: usize,
    /// The next row gets a page of its own.
    is_ended: bool,
    /// What `pd_lsn` of the next page is: WAL grows by about what rows take, by nothing that a codec could foresee.
    lsn: u64,
}

impl Pages {
    /// No pages yet. `fillfactor` is that of the table: 10 to 100 per cent.
    pub fn new(fillfactor: u8) -> Pages {
        let spared = PAGE_BYTES * usize::from(100 - fillfactor.clamp(10, 100)) / 100;
        let lsn = 0x0000_0001_3c5d_2a68;
        Pages { pages: Vec::new(), rows: 0, upper: 0, spared, is_ended: false, lsn }
    }

    /// Adds a tuple. One that is too long for a page is left out.
    pub fn add(&mut self, tuple: &mut [u8]) {
        let bytes = tuple.len().next_multiple_of(MAXALIGN);
        if bytes + HEADER_BYTES + ITEM_BYTES > PAGE_BYTES || tuple.len() < TUPLE_HEADER_BYTES {
            return;
        }
        let lower = HEADER_BYTES + self.rows * ITEM_BYTES;
        let room = self.upper.saturating_sub(lower);
        if self.pages.is_empty()
            || self.is_ended
            || (self.rows > 0 && (bytes + ITEM_BYTES + self.spared > room || self.rows == ROWS_MAX))
        {
            self.begin();
        }
        let block = self.pages.len().saturating_sub(1) as u32;
        let Some(page) = self.pages.last_mut() else { return };
        self.upper -= bytes;
        self.rows += 1;
        // t_ctid: the tuple's own place.
        tuple[12..14].copy_from_slice(&((block >> 16) as u16).to_le_bytes());
        tuple[14..16].copy_from_slice(&(block as u16).to_le_bytes());
        tuple[16..18].copy_from_slice(&(self.rows as u16).to_le_bytes());
        page[self.upper..self.upper + tuple.len()].copy_from_slice(tuple);
        let pointer = self.upper as u32 | NORMAL << 15 | (tuple.len() as u32) << 17;
        let at = HEADER_BYTES + (self.rows - 1) * ITEM_BYTES;
        page[at..at + ITEM_BYTES].copy_from_slice(&pointer.to_le_bytes());
        page[12..14].copy_from_slice(&((at + ITEM_BYTES) as u16).to_le_bytes());
        page[14..16].copy_from_slice(&(self.upper as u16).to_le_bytes());
    }

    /// The next row begins another page, whatever room there is.
    pub fn end_page(&mut self) {
        self.is_ended = true;
    }

    fn begin(&mut self) {
        self.is_ended = false;
        let mut page = Box::new([0; PAGE_BYTES]);
        // xorshift: the low bits of positions in the log look like chance.
        self.lsn += 8_192 + ((self.lsn ^ self.lsn >> 7 ^ self.lsn << 9) & 0x1ff8);
        page[..4].copy_from_slice(&((self.lsn >> 32) as u32).to_le_bytes());
        page[4..8].copy_from_slice(&(self.lsn as u32).to_le_bytes());
        page[10..12].copy_from_slice(&ALL_VISIBLE.to_le_bytes());
        page[16..18].copy_from_slice(&(PAGE_BYTES as u16).to_le_bytes());
        page[18..20].copy_from_slice(&SIZE_AND_VERSION.to_le_bytes());
        self.pages.push(page);
        (self.rows, self.upper) = (0, PAGE_BYTES);
    }

    /// How many there are, the last one included.
    pub fn count(&self) -> usize {
        self.pages.len()
    }

    /// The pages, with their numbers from 0.
    pub fn into_pages(self) -> Vec<Box<PageBytes>> {
        self.pages
    }
}
