//! How large a table's files are now, and after it was built anew, as it is or with changes.
//!
//! Sampled rows are stored one by one, as the statement that fills the table does it: values are compressed or moved to the TOAST
//! table, rows go to pages, and the maps, the TOAST table and the indexes follow from that. What a sample of some blocks gives is
//! a ratio, pages after to pages read, by which the table's real pages are multiplied (see `scale`). Of a table that was read
//! as a whole, sizes are exact.
//!
//! It does not decide anything: `advise` does.
//!
//! ```text
//!   Table + Edits ──> Arrangement ──> rows ──> toast ──> place ──> Sizes
//!                                    (values)  (which go  (pages,   (heap, maps, TOAST,
//!                                               outside)   fsm)      indexes)
//! ```
//!
//! Invariants:
//! 1. All sizes are whole pages and come from rows that were seen. A table without a sample has no rebuilt size.
//! 2. The same table and edits give the same sizes.

mod fsm;
mod place;
pub(crate) mod rows;
mod scale;
mod toast;

use crate::arrangement::{Arrangement, Source, is_new_table, removals};
use crate::edit::{Edit, Retype};
use crate::index;
use crate::layout::heap::PAGE_BYTES;
use crate::snapshot::{ForkBytes, Sample, Server, Table};
use place::Relation;
use rows::Rows;
use std::cell::OnceCell;

/// What fills a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `INSERT … SELECT` into a new table, in the rows' order, from one session.
    Insert,
    /// `VACUUM FULL`.
    VacuumFull,
    /// An `ALTER TABLE` that writes the table anew.
    Alter,
}

impl Way {
    /// How these changes are made.
    pub fn of(edits: &[&Edit]) -> Way {
        if is_new_table(edits) {
            Way::Insert
        } else if edits.iter().any(|edit| matches!(edit, Edit::Retype(_))) {
            Way::Alter
        } else {
            Way::VacuumFull
        }
    }
}

/// The sizes of a table's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The table's own.
    pub heap: ForkBytes,
    /// Of its TOAST table.
    pub toast: ForkBytes,
    /// Of the TOAST table's index.
    pub toast_index: u64,
    /// Of its indexes, in the order of [`Table::indexes`].
    pub indexes: Vec<u64>,
    /// Of tables beside it that the changes make: [`Removal`](crate::edit::Removal).
    pub beside: u64,
}

impl Sizes {
    /// As the snapshot has them.
    pub fn now(table: &Table) -> Sizes {
        Sizes {
            heap: table.bytes,
            toast: table.toast.map(|toast| toast.bytes).unwrap_or_default(),
            toast_index: table.toast.map_or(0, |toast| toast.index_bytes),
            indexes: table.indexes.iter().map(|index| index.bytes).collect(),
            beside: 0,
        }
    }

    /// All files: what `pg_total_relation_size` says.
    pub fn total(&self) -> u64 {
        let maps = [self.heap.fsm, self.heap.vm, self.toast.fsm, self.toast.vm];
        maps.iter().fold(self.plain(), |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Pages that are read by queries: without the maps.
    pub fn plain(&self) -> u64 {
        let parts = [self.heap.main, self.toast.main, self.toast_index, self.beside];
        parts.iter().chain(&self.indexes).fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Of all indexes.
    pub fn index_total(&self) -> u64 {
        self.indexes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// A table that can be built anew.
pub struct Simulation<'t> {
    server: &'t Server,
    table: &'t Table,
    sample: &'t Sample,
    /// What pages that the sampled rows need are multiplied by.
    scale: f64,
    /// Rows of the table for one that was sampled.
    row_scale: f64,
    /// What pages of the TOAST table, of the sampled rows, are multiplied by.
    toast_scale: f64,
    /// Indexes that are built anew as they are, each computed once.
    indexes_as_they_are: Vec<OnceCell<u64>>,
}

impl<'t> Simulation<'t> {
    /// None: the table has no sample, or one of no blocks.
    pub fn of(server: &'t Server, table: &'t Table) -> Option<Simulation<'t>> {
        let sample = table.sample.as_ref()?;
        let pages = table.bytes.main / PAGE;
        let scale = match sample.blocks.len() {
            _ if sample.is_whole => 1.0,
            0 => return None,
            read => (pages as f64 / read as f64).max(1.0),
        };
        let indexes_as_they_are = vec![OnceCell::new(); table.indexes.len()];
        let mut simulation = Simulation {
            server,
            table,
            sample,
            scale,
            row_scale: scale,
            toast_scale: scale,
            indexes_as_they_are,
        };
        if !sample.is_whole {
            simulation.extrapolate();
        }
        Some(simulation)
    }

    /// How many rows the table has.
    pub fn row_count(&self) -> u64 {
        whole(self.sample.rows.len() as f64 * self.row_scale)
    }

    /// What figures of sampled rows are multiplied by: those of what is in the rows, and of what is in the TOAST table.
    pub(crate) fn scales(&self) -> (f64, f64) {
        (self.row_scale, self.toast_scale)
    }

    /// Finds the scales of a table that was not read as a whole.
    fn extrapolate(&mut self) {
        let scales = scale::of(self.server, self.table, self.sample, self.scale);
        (self.scale, self.row_scale, self.toast_scale) = (scales.pages, scales.rows, scales.toast);
    }

    /// The table's sizes after these changes, each made as [`Way::of`] says, and VACUUM.
    pub fn rebuilt(&self, edits: &[&Edit]) -> Sizes {
        self.rebuilt_by(Way::of(edits), edits)
    }

    /// The table's sizes when it is built anew as it is.
    pub fn as_it_is(&self, way: Way) -> Sizes {
        // A new table has no dropped columns; that is not bloat, so here it keeps them.
        self.rebuilt_by(way, &[])
    }

    fn rebuilt_by(&self, way: Way, edits: &[&Edit]) -> Sizes {
        let arrangement = Arrangement::of(self.table, edits);
        let filled = self.fill(&arrangement, way);
        let scale = self.heap_scale(&filled) / passes(self.sample) as f64;
        let pages = match (self.sample.is_whole, way) {
            (true, Way::Alter) => place::extended_ahead(filled.heap.page_count(), self.server.version),
            (true, _) => filled.heap.page_count(),
            (false, Way::Alter) => {
                place::extended_ahead(whole(filled.heap.pages_begun() * scale), self.server.version)
            }
            (false, _) => whole(filled.heap.pages_begun() * scale),
        };
        let (toast, toast_index) = match filled.has_toast_table {
            true => self.toast_sizes(&filled),
            false => (ForkBytes::default(), 0),
        };
        Sizes {
            heap: with_maps(pages),
            toast,
            toast_index,
            indexes: self.indexes(edits),
            beside: removals(edits)
                .map(|removal| {
                    let exceptions = whole(removal.exceptions as f64 * self.row_scale);
                    beside_bytes(exceptions, removal.exception_row_bytes)
                })
                .fold(0, u64::saturating_add),
        }
    }

    /// Puts the sampled rows into pages.
    fn fill(&self, arrangement: &Arrangement<'_>, way: Way) -> Filled {
        let mut rows = Rows::of(self.server, self.table, arrangement);
        let mut filled = Filled {
            heap: Relation::new(arrangement.fillfactor, way),
            toast: Relation::new(100, way),
            chunks: 0,
            bytes: 0,
            moved_in_bytes: 0,
            has_toast_table: has_toast_table(self.table, arrangement, way),
        };
        let count = rows.count();
        for row in (0..passes(self.sample)).flat_map(|_| 0..count) {
            let stored = rows.row(row);
            filled.bytes += stored.bytes as u64;
            if stored.external.is_empty() && self.is_outside(row) {
                filled.moved_in_bytes += stored.bytes as u64;
            }
            for bytes in stored.external {
                filled.chunks += u64::from(bytes.div_ceil(CHUNK_BYTES));
                add_chunks(&mut filled.toast, *bytes);
            }
            filled.heap.add(stored.bytes);
        }
        filled
    }

    /// What pages of the sampled rows are multiplied by. Values that come in from the TOAST table are as many as its size tells.
    fn heap_scale(&self, filled: &Filled) -> f64 {
        let moved_in = filled.moved_in_bytes as f64 / filled.bytes.max(1) as f64;
        self.scale + moved_in * (self.toast_scale - self.scale)
    }

    /// Whether a sampled row has a value in the TOAST table.
    fn is_outside(&self, row: usize) -> bool {
        let mut places = self.sample.columns.iter().filter_map(|column| column.places.get(row));
        places.any(|place| place.is_external())
    }

    fn toast_sizes(&self, filled: &Filled) -> (ForkBytes, u64) {
        let scale = self.toast_scale / passes(self.sample) as f64;
        let (pages, chunks) = match self.sample.is_whole {
            true => (filled.toast.page_count(), filled.chunks),
            false => (whole(filled.toast.pages_begun() * scale), whole(filled.chunks as f64 * scale)),
        };
        (with_maps(pages), toast_index_pages(chunks).saturating_mul(PAGE))
    }

    /// Sizes of indexes that are built anew; those that cannot be simulated keep theirs. Without its last column an index is gone.
    fn indexes(&self, edits: &[&Edit]) -> Vec<u64> {
        let retyped = Arrangement::retyped(edits);
        let is_removed = |attnum: i16| {
            removals(edits).any(|removal| i16::try_from(removal.column + 1).is_ok_and(|own| own == attnum))
        };
        let size = |(index, as_it_is): (&crate::snapshot::Index, &OnceCell<u64>)| {
            if !index.columns.is_empty() && index.columns.iter().all(|column| is_removed(column.table_column))
            {
                return 0;
            }
            let built = |retyped: &[&Retype]| {
                index::rebuilt_bytes(self.table, index, self.row_count(), retyped).unwrap_or(index.bytes)
            };
            match retyped.iter().any(|retype| index::concerns(self.table, index, retype)) {
                true => built(&retyped),
                false => *as_it_is.get_or_init(|| built(&[])),
            }
        };
        self.table.indexes.iter().zip(&self.indexes_as_they_are).map(size).collect()
    }
}

/// Rows of a sample, stored.
struct Filled {
    heap: Relation,
    toast: Relation,
    /// Rows of the TOAST table.
    chunks: u64,
    /// Of all rows, and of those whose values were outside and are not.
    bytes: u64,
    moved_in_bytes: u64,
    has_toast_table: bool,
}

/// Bytes of a page.
const PAGE: u64 = PAGE_BYTES as u64;
/// `TOAST_MAX_CHUNK_SIZE`.
const CHUNK_BYTES: u32 = 1996;
/// Rows of a TOAST table with whole chunks in a page.
const CHUNKS_PER_PAGE: u32 = 4;
/// Values of more chunks are stored in pages of their own.
const LARGE_CHUNKS: u32 = 1024;
/// A row of a TOAST table without its chunk: the header, `chunk_id`, `chunk_seq`, and the header of `chunk_data`.
const CHUNK_ROW_BYTES: usize = 24 + 4 + 4 + 4;
/// `HEAPBLOCKS_PER_PAGE` of the visibility map: two bits for each page.
const PAGES_PER_MAP_PAGE: u64 = (PAGE - 24) * 4;
/// Entries of a page at the bottom of a B-tree of keys of up to eight bytes that grew at its end: 90 % of 8,152 bytes, 20 for each.
const LEAF_ENTRIES: u64 = 366;
/// As many as fit into the last page before it is split.
const LAST_LEAF_ENTRIES: u64 = 407;
/// Entries of its upper pages, which are left 70 % full.
const UPPER_ENTRIES: u64 = 285;

/// Stores a value of so many bytes in a TOAST table.
fn add_chunks(toast: &mut Relation, bytes: u32) {
    let (full, rest) = (bytes / CHUNK_BYTES, bytes % CHUNK_BYTES);
    // All but some of the pages of a large value have nothing else in them.
    let pages = if full > LARGE_CHUNKS { (full - LARGE_CHUNKS) / CHUNKS_PER_PAGE } else { 0 };
    toast.add_full_pages(pages);
    for _ in 0..full - pages * CHUNKS_PER_PAGE {
        toast.add(CHUNK_ROW_BYTES + CHUNK_BYTES as usize);
    }
    if rest > 0 {
        toast.add(CHUNK_ROW_BYTES + rest as usize);
    }
}

/// A relation of so many pages with the maps that VACUUM makes.
fn with_maps(pages: u64) -> ForkBytes {
    ForkBytes {
        main: pages.saturating_mul(PAGE),
        fsm: fsm::map_pages(pages).saturating_mul(PAGE),
        vm: pages.div_ceil(PAGES_PER_MAP_PAGE).saturating_mul(PAGE),
    }
}

/// Pages of the index of a TOAST table with so many rows. An empty one has one page.
fn toast_index_pages(entries: u64) -> u64 {
    if entries == 0 {
        return 1;
    }
    let levels = |entries: u64, last: u64, each: u64| match entries.checked_sub(last) {
        Some(more) => 1 + more.div_ceil(each),
        None => 1,
    };
    let mut level = levels(entries, LAST_LEAF_ENTRIES, LEAF_ENTRIES);
    let mut pages = 1 + level;
    while level > 1 {
        level = levels(level, LAST_LEAF_ENTRIES, UPPER_ENTRIES);
        pages += level;
    }
    pages
}

/// A table of rows of one size with its primary key.
fn beside_bytes(rows: u64, row_bytes: u32) -> u64 {
    if row_bytes == 0 || rows == 0 {
        return 0;
    }
    let each = (row_bytes.min(8_000) as u64).next_multiple_of(8) + 4;
    let pages = rows.div_ceil((PAGE - 24) / each);
    with_maps(pages).total().saturating_add(toast_index_pages(rows).saturating_mul(PAGE))
}

/// Whether the rebuilt table has a TOAST table. What is built in place keeps the one it has; a new table gets one if a row may
/// be too long: `needs_toast_table` in `src/backend/access/heap/heapam_handler.c`.
fn has_toast_table(table: &Table, arrangement: &Arrangement<'_>, way: Way) -> bool {
    if way != Way::Insert {
        return table.toast.is_some();
    }
    let is_long = arrangement.columns.iter().any(|stored| {
        let storage = rows::storage(table, &stored.source, &stored.layout);
        !stored.layout.is_dropped && stored.layout.length.is_none() && storage != 'p'
    });
    let is_only_kept = arrangement.columns.iter().all(|stored| !matches!(stored.source, Source::New(_)));
    // The declared lengths of the columns decide; as long as all are kept, they are what they were.
    is_long && (table.toast.is_some() || !is_only_kept)
}

/// How often the rows of a sample are stored. Of a whole table once. Of a part of it more often: at the end some pages are not full, in
/// which rows to come would have found room, and they should not weigh more than they do in the table.
fn passes(sample: &Sample) -> usize {
    match sample.is_whole {
        true => 1,
        false => (PASSED_ROWS / sample.rows.len().max(1)).clamp(1, PASSES_MAX),
    }
}

/// Rows up to which a sample is stored again.
const PASSED_ROWS: usize = 40_000;
/// How often at most.
const PASSES_MAX: usize = 8;

/// To whole units.
fn whole(count: f64) -> u64 {
    // Saturates; NaN gives 0.
    count.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_outside_is_cut_into_chunks_of_which_four_fit_into_a_page() {
        let pages = |bytes| {
            let mut toast = Relation::new(100, Way::Insert);
            add_chunks(&mut toast, bytes);
            toast.page_count()
        };
        assert_eq!([0, 1, 1996, 4 * 1996, 4 * 1996 + 1].map(pages), [0, 1, 1, 1, 2]);
        assert_eq!(pages(100_000 * 1996 + 5), 25_001, "large values are not stored chunk by chunk");
        assert_eq!(pages(u32::MAX), u64::from(u32::MAX).div_ceil(4 * 1996));
    }

    #[test]
    fn maps_are_as_large_as_a_server_makes_them() {
        assert_eq!(with_maps(0), ForkBytes::default());
        let one = with_maps(1);
        assert_eq!((one.main, one.fsm, one.vm), (8192, 24_576, 8192));
        assert_eq!((with_maps(32_672).vm, with_maps(32_673).vm), (8192, 16_384));
    }

    #[test]
    fn an_index_of_a_toast_table_has_a_root_above_two_leaves() {
        assert_eq!([0, 1, 407, 408, 773, 774].map(toast_index_pages), [1, 2, 2, 4, 4, 5]);
        assert!(toast_index_pages(u64::MAX) > 0);
    }
}
