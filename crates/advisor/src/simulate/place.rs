//! Rows into pages of a relation, one after the other, as the server's ways to fill a table do it.
//!
//! Sources: `RelationGetBufferForTuple` in `src/backend/access/heap/hio.c`, `raw_heap_insert` in `rewriteheap.c`,
//! `ATRewriteTable` in `src/backend/commands/tablecmds.c`, `should_attempt_truncation` in `vacuumlazy.c`.

use super::Way;
use super::fsm::{Leaf, SLOTS};
use crate::layout::heap::PAGE_BYTES;

/// Bytes of a page behind its header.
const ROOM: usize = PAGE_BYTES - 24;
/// `sizeof(ItemIdData)`.
const ITEM_BYTES: usize = 4;
/// `MaxHeapTuplesPerPage`.
const ROWS_MAX: u16 = 291;
/// `MaxHeapTupleSize - MaxHeapTuplesPerPage / 8 * sizeof(ItemIdData)`: such a page counts as empty.
const NEARLY_EMPTY: usize = 8160 - 36 * ITEM_BYTES;
/// `MAX_BUFFERS_TO_EXTEND_BY`. A server with small `shared_buffers` for its `max_connections` takes fewer (`LimitAdditionalPins`); the
/// default settings allow as many.
const EXTEND_MAX: u64 = 64;

/// A relation that is filled.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    pages: Vec<Filled>,
    /// The page that took the last row.
    target: usize,
    /// The bottom of its free space map. None: it is not asked.
    map: Option<Vec<Leaf>>,
    way: Way,
    /// Left for updates, by the fillfactor.
    spared: usize,
    /// Pages beside `pages` that nothing else fits into.
    full_pages: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    used: u16,
    rows: u16,
}

impl Filled {
    /// `PageGetHeapFreeSpace`.
    fn free(self) -> usize {
        if self.rows >= ROWS_MAX { 0 } else { (ROOM - usize::from(self.used)).saturating_sub(ITEM_BYTES) }
    }
}

impl Relation {
    /// Without pages. Of what fills it, only `INSERT` asks the free space map, and puts rows into what earlier pages have left.
    pub(super) fn new(fillfactor: u8, way: Way) -> Relation {
        let spared = PAGE_BYTES * usize::from(100 - fillfactor.clamp(10, 100)) / 100;
        let map = (way == Way::Insert).then(Vec::new);
        Relation { pages: Vec::new(), target: 0, map, way, spared, full_pages: 0 }
    }

    /// Adds a row of so many bytes, before it is aligned. One that no page takes (the server would refuse it) gets a page alone.
    pub(super) fn add(&mut self, row_bytes: usize) {
        let bytes = row_bytes.min(REFUSED).next_multiple_of(8);
        let needed = match bytes + self.spared {
            // VACUUM FULL has no such thing: what does not fit gets a new page.
            sum if sum > NEARLY_EMPTY && self.way != Way::VacuumFull => bytes.max(NEARLY_EMPTY),
            sum => sum,
        };
        let mut target = (self.target < self.pages.len()).then_some(self.target);
        while let Some(page) = target {
            let free = self.pages[page].free();
            if needed <= free {
                break;
            }
            target = self.record_and_search(page, free, needed);
        }
        let page = target.unwrap_or_else(|| {
            self.pages.push(Filled::default());
            self.pages.len() - 1
        });
        let filled = &mut self.pages[page];
        // Both fit: a page has 8,168 bytes.
        filled.used = filled.used.saturating_add((bytes + ITEM_BYTES) as u16).min(ROOM as u16);
        filled.rows += 1;
        self.target = page;
    }

    /// `RecordAndGetPageWithFreeSpace`. A new relation's map is not searched above its bottom, as nothing was propagated there.
    fn record_and_search(&mut self, page: usize, free: usize, needed: usize) -> Option<usize> {
        let map = self.map.as_mut()?;
        let (leaf, slot) = (page / SLOTS, page % SLOTS);
        while map.len() <= leaf {
            map.push(Leaf::new());
        }
        map[leaf].record(slot, free);
        map[leaf].search(needed).map(|slot| leaf * SLOTS + slot)
    }

    /// Adds pages that are full.
    pub(super) fn add_full_pages(&mut self, pages: u32) {
        self.full_pages += u64::from(pages);
    }

    /// How many pages there are.
    pub(super) fn page_count(&self) -> u64 {
        self.pages.len() as u64 + self.full_pages
    }

    /// How many there are, the one that was begun last counted by how full it is: of a part of a table, it would go on being filled.
    pub(super) fn pages_begun(&self) -> f64 {
        let Some(last) = self.pages.last() else { return self.full_pages as f64 };
        let room = (ROOM - self.spared.min(ROOM - 1)) as f64;
        let begun = (f64::from(last.used) / room).min(1.0);
        (self.page_count() - 1) as f64 + begun
    }
}

/// Longer rows are counted as this one.
const REFUSED: usize = 8160;

/// Pages of a table that `ALTER TABLE` has filled, after VACUUM. PostgreSQL 16 and newer extend it ahead, by as many pages as
/// before but not more than 64, and VACUUM takes those at the end off only if they are a sixteenth of the table or 1,000.
pub(super) fn extended_ahead(pages: u64, server_version: u32) -> u64 {
    if server_version < 160_000 || pages == 0 || pages > u64::from(u32::MAX) {
        return pages;
    }
    let (mut extended, mut step) = (0u64, 1u64);
    if pages > 2 * EXTEND_MAX {
        // From there on by 64.
        extended = EXTEND_MAX + (pages - EXTEND_MAX).next_multiple_of(EXTEND_MAX);
    }
    while extended < pages {
        extended += step;
        step = extended.min(EXTEND_MAX);
    }
    let ahead = extended - pages;
    if ahead >= 1_000 || (ahead > 0 && ahead >= extended / 16) { pages } else { extended }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::heap::Pages;
    use pgshrink_testkit::Seed;

    #[test]
    fn without_a_map_pages_are_filled_one_after_the_other() {
        let mut rng = Seed(9).rng();
        for fillfactor in [100, 90, 50, 10] {
            let (mut relation, mut pages) =
                (Relation::new(fillfactor, Way::VacuumFull), Pages::new(fillfactor));
            for _ in 0..5_000 {
                let bytes = if rng.chance(90) { rng.between(24, 400) } else { rng.between(24, 8_000) };
                relation.add(bytes);
                pages.add(bytes);
            }
            let (ours, other) = (relation.page_count(), pages.count() as u64);
            assert_eq!(ours, other, "{fillfactor}");
        }
    }

    #[test]
    fn with_a_map_short_rows_fill_what_long_ones_leave() {
        let (mut insert, mut sequence) =
            (Relation::new(100, Way::Insert), Relation::new(100, Way::VacuumFull));
        for n in 0..10_000 {
            let bytes = if n % 3 == 0 { 3_000 } else { 700 };
            insert.add(bytes);
            sequence.add(bytes);
        }
        assert!(insert.page_count() <= sequence.page_count());
        let bytes: u64 = 10_000 / 3 * 3_004 + 10_000 * 2 / 3 * 708;
        assert!(insert.page_count() * 8_168 >= bytes, "no page takes more than it has");
    }

    #[test]
    fn a_table_is_extended_by_as_much_as_before() {
        assert_eq!([1, 2, 3, 5, 64, 65].map(|pages| extended_ahead(pages, 150_000)), [1, 2, 3, 5, 64, 65]);
        // 1, 1, 2, 4, …: of 8 pages 3 are empty, and VACUUM takes them off.
        assert_eq!([1, 2, 3, 5, 64].map(|pages| extended_ahead(pages, 160_000)), [1, 2, 3, 5, 64]);
        assert_eq!(extended_ahead(1_020, 160_000), 1_024);
        assert_eq!(extended_ahead(1_025, 160_000), 1_088, "63 of 1,088 are less than a sixteenth");
        assert_eq!(extended_ahead(u64::MAX, 160_000), u64::MAX);
    }
}
