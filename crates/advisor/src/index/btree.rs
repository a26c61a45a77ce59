//! Pages of a B-tree as `CREATE INDEX` and `REINDEX` fill them.
//!
//! Sources: `_bt_buildadd`, `_bt_uppershutdown` and `_bt_load` in `src/backend/access/nbtree/nbtsort.c`, `_bt_form_posting` in
//! `nbtdedup.c`, `_bt_truncate` in `nbtutils.c`; the same from PostgreSQL 13 to 18.
//!
//! Invariants:
//! 1. Sizes of tuples are multiples of eight, without their line pointers.
//! 2. A page is finished by the tuple that comes too late: the last one that is on it becomes the first of the next page, and,
//!    truncated, the high key of this one.

use crate::layout::heap::PAGE_BYTES;

/// `PageGetFreeSpace` of an empty page: a header of 24 bytes, the high key's line pointer, 16 bytes of special space, and the
/// line pointer of the tuple that is to come.
const EMPTY_PAGE_FREE: usize = PAGE_BYTES - 24 - 4 - 16 - 4;
/// `sizeof(ItemIdData)`.
const ITEM_BYTES: usize = 4;
/// `MAXALIGN(sizeof(ItemPointerData))`: room for a high key's TID.
pub const TID_ROOM: usize = 8;
/// `sizeof(ItemPointerData)`.
const TID_BYTES: usize = 6;
/// `sizeof(IndexTupleData)`: a tuple without keys, the first of each inner page.
const BARE_TUPLE: usize = 8;
/// `BTREE_NONLEAF_FILLFACTOR`.
const INNER_FILLFACTOR: usize = 70;
/// Bytes that a tuple with a posting list may have while an index is built.
const POSTING_TUPLE_MAX: usize = (PAGE_BYTES * 10 / 100) / 8 * 8 - ITEM_BYTES;
/// Inner pages of larger indexes are extrapolated from so many entries.
const ENTRIES_MAX: usize = 100_000;

/// A tuple for a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafTuple {
    /// Its bytes with its posting list.
    pub bytes: usize,
    /// Of that, the posting list; 0 for none.
    pub posting: usize,
    /// Bytes of the high key that is made of it when it is the first of a page.
    pub pivot: usize,
}

/// How many rows one tuple with a key of so many bytes can take.
pub fn posting_rows_max(key_bytes: usize) -> usize {
    // The list's end is aligned, so the last multiple of eight that fits counts.
    (POSTING_TUPLE_MAX / 8 * 8).saturating_sub(key_bytes) / TID_BYTES
}

impl LeafTuple {
    /// One tuple for so many rows with the same key. `pivot`: of the key.
    pub fn of(key_bytes: usize, rows: usize, pivot: usize) -> LeafTuple {
        let bytes = match rows {
            0 | 1 => key_bytes,
            rows => (key_bytes + rows * TID_BYTES).next_multiple_of(8),
        };
        LeafTuple { bytes, posting: bytes - key_bytes, pivot }
    }
}

/// A page that is being filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    /// `PageGetFreeSpace`.
    free: usize,
    items: usize,
}

impl Filling {
    const EMPTY: Filling = Filling { free: EMPTY_PAGE_FREE, items: 0 };

    fn add(&mut self, bytes: usize) {
        self.free = self.free.saturating_sub(bytes + ITEM_BYTES);
        self.items += 1;
    }
}

/// Leaf pages, filled one after the other.
#[derive(Clone, Debug)]
pub struct Leaves {
    /// What is to be left free, by the fillfactor.
    spared: usize,
    page: Filling,
    last: Option<LeafTuple>,
    /// Bytes of each page's downlink.
    downlinks: Vec<u16>,
}

impl Leaves {
    /// No pages. `fillfactor` is that of the index: 10 to 100 per cent.
    pub fn new(fillfactor: u8) -> Leaves {
        let spared = PAGE_BYTES * usize::from(100 - fillfactor.clamp(10, 100)) / 100;
        Leaves { spared, page: Filling::EMPTY, last: None, downlinks: Vec::new() }
    }

    /// Adds a tuple behind all others.
    pub fn add(&mut self, tuple: LeafTuple) {
        match self.last {
            None => self.downlinks.push(BARE_TUPLE as u16),
            Some(last) => {
                let is_full = self.page.free < tuple.bytes + TID_ROOM;
                let is_filled = self.page.free + last.posting < self.spared;
                if self.page.items > 1 && (is_full || is_filled) {
                    self.downlinks.push(last.pivot.min(PAGE_BYTES) as u16);
                    self.page = Filling::EMPTY;
                    self.page.add(last.bytes);
                }
            }
        }
        self.page.add(tuple.bytes);
        self.last = Some(tuple);
    }

    /// Pages of the whole index, with its metapage.
    pub fn pages(&self) -> u64 {
        1 + self.downlinks.len() as u64 + inner_pages(&self.downlinks, self.downlinks.len() as f64)
    }

    /// Pages of an index that has so many times as many tuples as were added, with its metapage.
    pub fn pages_scaled(&self, times: f64) -> u64 {
        let Some((last, full)) = self.downlinks.split_last().map(|_| (self.page, self.downlinks.len() - 1))
        else {
            return 1;
        };
        let limit = EMPTY_PAGE_FREE.saturating_sub(self.spared).max(1) as f64;
        let last = ((EMPTY_PAGE_FREE - last.free.min(EMPTY_PAGE_FREE)) as f64 / limit).min(1.0);
        let leaves = ((full as f64 + last) * times).ceil().max(1.0);
        1 + leaves as u64 + inner_pages(&self.downlinks, leaves)
    }
}

/// Pages above so many leaves, whose downlinks are like these.
fn inner_pages(downlinks: &[u16], leaves: f64) -> u64 {
    let mut below = leaves;
    let mut downlinks = downlinks.to_vec();
    let mut pages = 0u64;
    while below > 1.0 && !downlinks.is_empty() {
        let count = (below as usize).clamp(1, ENTRIES_MAX);
        // The first downlink of a level has no key, so it is no example for others.
        let rest = if downlinks.len() > 1 { &downlinks[1..] } else { &downlinks[..] };
        let entries = std::iter::once(BARE_TUPLE as u16).chain(rest.iter().copied().cycle()).take(count);
        let above = level(entries);
        below = (above.len() as f64 * (below / count as f64).max(1.0)).round().max(1.0);
        pages += below as u64;
        downlinks = above;
    }
    pages
}

/// Fills one inner level; what is returned are the downlinks to its pages.
fn level(entries: impl Iterator<Item = u16>) -> Vec<u16> {
    const SPARED: usize = PAGE_BYTES * (100 - INNER_FILLFACTOR) / 100;
    let mut above = Vec::new();
    let mut page = Filling::EMPTY;
    let mut last = 0;
    for bytes in entries {
        if above.is_empty() {
            above.push(BARE_TUPLE as u16);
        } else if page.items > 1 && (page.free < usize::from(bytes) || page.free < SPARED) {
            above.push(last);
            page = Filling::EMPTY;
            page.add(BARE_TUPLE);
        }
        page.add(if page.items == 0 { BARE_TUPLE } else { usize::from(bytes) });
        last = bytes;
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(rows: usize, bytes: usize) -> u64 {
        let mut leaves = Leaves::new(90);
        (0..rows).for_each(|_| leaves.add(LeafTuple { bytes, posting: 0, pivot: bytes }));
        leaves.pages()
    }

    #[test]
    fn indexes_of_a_million_integers_have_the_pages_that_servers_give_them() {
        // `CREATE INDEX` on 1,000,000 distinct int4 or int8: 2,745 pages, 21.4 MB.
        assert_eq!(pages(1_000_000, 16), 2745);
        assert_eq!((pages(0, 16), pages(1, 16), pages(366, 16), pages(367, 16)), (1, 2, 2, 2));
        assert_eq!(pages(408, 16), 4, "two leaves and a root");
    }

    #[test]
    fn a_posting_list_takes_what_fits_into_a_tenth_of_a_page() {
        assert_eq!(POSTING_TUPLE_MAX, 812);
        assert_eq!(posting_rows_max(16), 132);
        assert_eq!(LeafTuple::of(16, 132, 16).bytes, 808);
        assert_eq!(LeafTuple::of(16, 2, 16), LeafTuple { bytes: 32, posting: 16, pivot: 16 });
        assert_eq!(LeafTuple::of(16, 1, 16).posting, 0);
        assert_eq!(posting_rows_max(2000), 0);
    }

    #[test]
    fn a_tenth_of_the_tuples_makes_a_tenth_of_the_pages() {
        let mut leaves = Leaves::new(90);
        (0..100_000).for_each(|_| leaves.add(LeafTuple { bytes: 24, posting: 0, pivot: 24 }));
        let (scaled, whole) = (leaves.pages_scaled(10.0), pages(1_000_000, 24));
        assert!(scaled.abs_diff(whole) <= 2, "{scaled} {whole}");
        assert_eq!(leaves.pages_scaled(1.0), leaves.pages());
        assert_eq!(Leaves::new(90).pages_scaled(7.0), 1);
    }
}
