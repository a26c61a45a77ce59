//! The table's pages as they would be in another arrangement, built from sampled rows and compressed.
//!
//! Both sides of the comparison are measured on the same rows: what is there on the pages that hold them, what would be
//! there on pages that are made of them. So padding that compression removes anyway is no saving.
//!
//! Sampled blocks are no neighbours. A page that is made of the rows of two of them has a jump in it that no page of the
//! table would have: times and numbers do not go on. So each block's rows get a page of their own, which is not full where
//! rows have become shorter. What further rows on it would take is told by pages of half as many rows: a page costs something
//! by itself, and something for each row.

use pgshrink_cfs::page::{PageCodec, Policy};

use super::pages::{PageSet, Trained};
use super::rows::{self, Rows};
use super::toaster::{Cell, Toaster};
use crate::arrangement::{Arrangement, Source};
use crate::finding::Change;
use crate::heap_page::{PageBytes, varlena, write};
use crate::layout;
use crate::layout::heap::PAGE_BYTES;
use crate::snapshot::sample::Page;
use crate::snapshot::{Sample, Table};

/// Pages of a relation that are measured here at most.
const PAGES_MAX: usize = 384;

/// A table as it is in a compressed tablespace, measured once, for comparing arrangements with it.
pub struct Compressed<'t> {
    table: &'t Table,
    rows: Rows,
    /// Pages of the table now.
    pages: u64,
    heap: u64,
    toast: u64,
    /// Indexes, maps, and whatever could not be measured and counts as it is.
    rest: u64,
}

impl<'t> Compressed<'t> {
    /// Measures what is there. None: there is nothing to measure on.
    pub fn of(table: &'t Table) -> Option<Compressed<'t>> {
        let rows = rows::of(table, PAGES_MAX)?;
        let sample = table.sample.as_ref()?;
        let pages = table.bytes.main.div_ceil(PAGE_BYTES as u64).max(1);
        let heap = match rows.is_estimate {
            false => container(&PageSet::of(&sample.pages, pages, PAGES_MAX))?,
            true => container(&PageSet::made(&own_pages(table, &rows)?, pages, PAGES_MAX))?,
        };
        let toast = table.toast.map_or(0, |toast| other(sample, toast.oid, toast.bytes.main));
        let indexes = table
            .indexes
            .iter()
            .map(|index| other(sample, index.oid, index.bytes))
            .fold(0, u64::saturating_add);
        let maps = table.bytes.fsm.saturating_add(table.bytes.vm);
        let of_toast = table.toast.map_or(0, |toast| {
            toast.index_bytes.saturating_add(toast.bytes.fsm).saturating_add(toast.bytes.vm)
        });
        Some(Compressed {
            table,
            rows,
            pages,
            heap,
            toast,
            rest: indexes.saturating_add(maps).saturating_add(of_toast),
        })
    }

    /// Bytes of the table's own pages now.
    pub fn heap(&self) -> u64 {
        self.heap
    }

    /// Bytes of all of it now.
    pub fn now(&self) -> u64 {
        self.heap.saturating_add(self.toast).saturating_add(self.rest)
    }

    /// Bytes now and in this arrangement. None: its values do not fit the sample.
    pub fn change(&self, arrangement: &Arrangement<'_>) -> Option<Change> {
        let built = self.build(arrangement)?;
        let is_whole = self.rows.blocks as u64 >= self.pages;
        let scaled = |pages: usize| match is_whole {
            true => pages as u64,
            false => (pages as u64).saturating_mul(self.pages).div_ceil(self.rows.blocks as u64),
        };
        let of = |pages: &[Box<PageBytes>]| match pages {
            [] => Some(0),
            pages => container(&PageSet::made(pages, scaled(pages.len()), PAGES_MAX)),
        };
        let count = built.heap.len();
        let heap =
            if is_whole { of(&built.heap)? } else { built.by_block.container(scaled(count), count)? };
        let kept =
            u128::from(self.toast) * u128::from(built.kept_bytes) / u128::from(built.toast_bytes.max(1));
        let kept = if built.toast_bytes == 0 { self.toast } else { kept as u64 };
        let after = [of(&built.toast)?, kept, self.rest].into_iter().fold(heap, u64::saturating_add);
        Some(Change { now: self.now(), after })
    }

    /// Pages of the sampled rows, and of what goes into the TOAST table anew.
    fn build(&self, arrangement: &Arrangement<'_>) -> Option<Built> {
        let sample = self.table.sample.as_ref()?;
        let columns: Vec<layout::Column> =
            arrangement.columns.iter().map(|stored| stored.layout.clone()).collect();
        let mut toaster = Toaster::new(&columns, arrangement.toast_target);
        let (mut heap, mut tuple) = (write::Pages::new(arrangement.fillfactor), Vec::new());
        let mut by_block = ByBlock::default();
        let mut kept_bytes = 0;
        let references: Vec<&layout::Column> = columns.iter().collect();
        for row in &self.rows.rows {
            let cells: Option<Vec<Option<Cell>>> =
                arrangement.columns.iter().map(|stored| self.cell(row, &stored.source)).collect();
            let mut cells = cells?;
            for (stored, cell) in arrangement.columns.iter().zip(&cells) {
                let is_external = cell.as_ref().is_some_and(|cell| cell.image.first() == Some(&1));
                if let Source::Kept(column) = stored.source
                    && is_external
                {
                    kept_bytes += external_bytes(sample, column, row.index);
                } else if let Source::Recompressed(recompression) = stored.source
                    && is_external
                {
                    kept_bytes += external_bytes(sample, recompression.column, row.index);
                }
            }
            toaster.fit(&mut cells);
            let images: Vec<write::Image<'_>> =
                cells.iter().map(|cell| cell.as_ref().map(|cell| &cell.image[..])).collect();
            write::tuple(&references, &images, &mut tuple);
            by_block.add(row.block, &tuple);
            heap.add(&mut tuple);
        }
        by_block.end();
        let columns = 0..sample.columns.len();
        let of_row = |row: &rows::Row| {
            columns.clone().map(|column| external_bytes(sample, column, row.index)).sum::<u64>()
        };
        let toast_bytes = self.rows.rows.iter().map(of_row).sum();
        Some(Built {
            heap: heap.into_pages(),
            by_block,
            toast: toaster.into_pages(),
            kept_bytes,
            toast_bytes,
        })
    }

    /// The value of a row in the new arrangement. The outer None: the arrangement does not fit the sample.
    fn cell(&self, row: &rows::Row, source: &Source<'_>) -> Option<Option<Cell>> {
        let column = |index: usize| self.table.columns.get(index);
        match source {
            Source::Kept(index) => {
                let value = row.values.get(*index)?.clone();
                let of = column(*index)?;
                Some(value.map(|image| Cell { image, storage: of.storage, method: method(of.compression) }))
            }
            Source::New(images) => {
                let image = images.get(row.index)?.clone();
                Some(image.map(|image| Cell { image, storage: 'x', method: varlena::Method::Pglz }))
            }
            Source::Recompressed(recompression) => {
                let of = column(recompression.column)?;
                let Some(value) = row.values.get(recompression.column)? else { return Some(None) };
                let named = recompression.compression.as_deref().and_then(varlena::Method::from_name);
                let storage = recompression.storage.as_deref().and_then(storage_letter).unwrap_or(of.storage);
                let raw = varlena::raw(value, varlena_max(value))
                    .or_else(|| self.typed_value(row, recompression.column));
                // A value that is not here stays where it is.
                let image = raw.map_or_else(|| value.clone(), |raw| varlena::plain(&raw, storage != 'p'));
                Some(Some(Cell { image, storage, method: named.unwrap_or(method(of.compression)) }))
            }
        }
    }

    fn typed_value(&self, row: &rows::Row, column: usize) -> Option<Vec<u8>> {
        let sampled = self.table.sample.as_ref()?.columns.get(column)?;
        let text = sampled.values.as_ref()?.get(row.index)?.as_deref()?;
        rows::datum(self.table.columns.get(column)?, text)
    }
}

struct Built {
    /// Pages that are filled one after the other.
    heap: Vec<Box<PageBytes>>,
    by_block: ByBlock,
    /// Values that go into the TOAST table anew.
    toast: Vec<Box<PageBytes>>,
    /// Of sampled rows' values in the TOAST table: those that stay there as they are, and all.
    kept_bytes: u64,
    toast_bytes: u64,
}

/// For each block of the sample two pages in the new arrangement: with its rows, and with the first half
/// of them: pages of half as many rows are encoded alike, those of a few rows less are not always.
#[derive(Default)]
struct ByBlock {
    block: Option<u32>,
    tuples: Vec<Vec<u8>>,
    full: Vec<Box<PageBytes>>,
    fewer: Vec<Box<PageBytes>>,
    full_rows: u64,
    fewer_rows: u64,
    /// All, those that did not fit included.
    rows: u64,
}

impl ByBlock {
    fn add(&mut self, block: u32, tuple: &[u8]) {
        if self.block != Some(block) {
            self.end();
            self.block = Some(block);
        }
        self.tuples.push(tuple.to_vec());
    }

    fn end(&mut self) {
        let mut tuples = std::mem::take(&mut self.tuples);
        self.rows += tuples.len() as u64;
        let mut fill = |count: usize, into: &mut Vec<Box<PageBytes>>| {
            let mut pages = write::Pages::new(100);
            let mut rows = 0;
            for tuple in tuples.iter_mut().take(count) {
                pages.add(tuple);
                if pages.count() > 1 {
                    break;
                }
                rows += 1;
            }
            into.extend(pages.into_pages().into_iter().next());
            rows
        };
        let rows = fill(usize::MAX, &mut self.full);
        self.full_rows += rows;
        self.fewer_rows += fill(rows as usize / 2, &mut self.fewer);
    }

    /// Bytes of the containers of a table of so many pages, of which the sampled rows would fill `pages`.
    fn container(&self, total: u64, pages: usize) -> Option<u64> {
        if self.full.is_empty() {
            return Some(0);
        }
        let set = PageSet::made(&self.full, total, PAGES_MAX);
        let trained = Trained::of(&set);
        let (records, dictionary) = trained.records(&mut PageCodec::new(), &Policy::default())?;
        let bytes_of = |pages| {
            super::pages::compared_bytes(&PageSet::made(pages, total, PAGES_MAX), dictionary.as_ref())
        };
        let (full, fewer) = (bytes_of(&self.full)? as f64, bytes_of(&self.fewer)? as f64);
        // What a further row of a page takes, and how many there are to come on all of them.
        let (full_rows, fewer_rows) = (self.full_rows as f64, self.fewer_rows as f64);
        let of_row = ((full - fewer) / (full_rows - fewer_rows).max(1.0)).max(0.0);
        let to_come = self.rows as f64 / pages.max(1) as f64 * self.full.len() as f64 - full_rows;
        let wanted = (full + of_row * to_come).max(full / 2.0);
        Some(records.scaled(full as u64, wanted as u64).container_bytes(total))
    }
}

/// Bytes of a sampled value in the TOAST table; 0: it is not there.
fn external_bytes(sample: &Sample, column: usize, row: usize) -> u64 {
    let Some(sampled) = sample.columns.get(column) else { return 0 };
    let is_external = sampled.places.get(row).is_some_and(|place| place.is_external());
    if is_external { sampled.sizes.get(row).copied().unwrap_or(0).into() } else { 0 }
}

/// Decompressed values are no longer than what a row of one page can come from.
fn varlena_max(value: &[u8]) -> usize {
    value.len().saturating_mul(300).min(16 << 20)
}

fn method(letter: char) -> varlena::Method {
    if letter == 'l' { varlena::Method::Lz4 } else { varlena::Method::Pglz }
}

fn storage_letter(name: &str) -> Option<char> {
    match name {
        "plain" => Some('p'),
        "main" => Some('m'),
        "external" => Some('e'),
        "extended" => Some('x'),
        _ => None,
    }
}

/// Bytes of a relation's containers by cfs as it is unless something else is asked for. None: there are no pages.
fn container(set: &PageSet<'_>) -> Option<u64> {
    if set.is_empty() {
        return None;
    }
    let (records, _) = Trained::of(set).records(&mut PageCodec::new(), &Policy::default())?;
    Some(records.container_bytes(set.total()))
}

/// Bytes of the containers of an index or a TOAST table; its own where no pages of it are here.
fn other(sample: &Sample, oid: u32, bytes: u64) -> u64 {
    let found = sample.other_pages.iter().find(|other| other.oid == oid);
    let pages: &[Page] = found.map_or(&[], |other| &other.pages);
    let total = bytes.div_ceil(PAGE_BYTES as u64);
    if bytes == 0 { 0 } else { container(&PageSet::of(pages, total, PAGES_MAX)).unwrap_or(bytes) }
}

/// Pages of the table's rows as they are arranged now, made from their values: for each sampled block one. Empty: there are no rows.
pub fn from_rows(table: &Table) -> Vec<Box<PageBytes>> {
    rows::of(table, PAGES_MAX).and_then(|rows| own_pages(table, &rows)).unwrap_or_default()
}

fn own_pages(table: &Table, rows: &Rows) -> Option<Vec<Box<PageBytes>>> {
    let columns: Option<Vec<layout::Column>> = table.columns.iter().map(rows::layout_of).collect();
    let columns = columns?;
    let references: Vec<&layout::Column> = columns.iter().collect();
    let (mut pages, mut tuple) = (write::Pages::new(100), Vec::new());
    for block in rows.rows.chunk_by(|a, b| a.block == b.block) {
        pages.end_page();
        for row in block {
            let images: Vec<write::Image<'_>> = row.values.iter().map(Option::as_deref).collect();
            write::tuple(&references, &images, &mut tuple);
            pages.add(&mut tuple);
        }
    }
    Some(pages.into_pages())
}
