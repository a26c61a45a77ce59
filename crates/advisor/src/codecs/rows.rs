//! Stored values of sampled rows: from raw pages, and where there are none, from the values' text.

use std::collections::HashMap;

use crate::heap_page::{Attribute, HeapPage, Shape, varlena};
use crate::layout;
use crate::snapshot::sample::{Place, RowPlace};
use crate::snapshot::{Column, Sample, Table};

mod text;

pub use text::datum;

/// Sampled rows with their values as they are stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// In the sample's order.
    pub rows: Vec<Row>,
    /// Blocks of the table that these are all live rows of.
    pub blocks: usize,
    /// Made from text, or some of their values were.
    pub is_estimate: bool,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its index in the sample.
    pub index: usize,
    /// The block that it lies in.
    pub block: u32,
    /// By column, dropped ones included: with header where there is one. None: NULL.
    pub values: Vec<Option<Vec<u8>>>,
}

/// A column as rows are laid out with it. None: of a kind that tables do not have.
pub fn layout_of(column: &Column) -> Option<layout::Column> {
    if column.length == -1 || column.length > 0 { layout::Column::of(column) } else { None }
}

/// The rows of at most so many pages, evenly over the sample; else, without pages, those of so many blocks from their values.
/// None: there are neither.
pub fn of(table: &Table, pages_max: usize) -> Option<Rows> {
    let sample = table.sample.as_ref()?;
    let from_pages = Shape::of(&table.columns).ok().map(|shapes| of_pages(table, sample, &shapes, pages_max));
    match from_pages {
        Some(rows) if rows.blocks > 0 => Some(rows),
        _ => of_values(table, pages_max),
    }
}

fn of_pages(table: &Table, sample: &Sample, shapes: &[Shape], pages_max: usize) -> Rows {
    let mut by_block: HashMap<u32, Vec<(usize, u16)>> = HashMap::new();
    for (index, RowPlace(block, item)) in sample.rows.iter().enumerate() {
        by_block.entry(*block).or_default().push((index, *item));
    }
    let mut found = Rows::default();
    let pages: Vec<_> = sample.pages.iter().collect();
    for page in super::pages::evenly(&pages, pages_max) {
        let Ok(heap) = HeapPage::parse(&page.image) else { continue };
        let places = by_block.get(&page.block).map_or(&[][..], |places| places);
        let rows: Option<Vec<Row>> =
            places.iter().map(|(index, item)| row(table, &heap, *item, *index, shapes)).collect();
        // A block of which a row cannot be read would count as one with fewer rows.
        let Some(rows) = rows else { continue };
        found.blocks += 1;
        found.rows.extend(rows);
    }
    found
}

fn row(table: &Table, page: &HeapPage<'_>, item: u16, index: usize, shapes: &[Shape]) -> Option<Row> {
    let attributes = page.tuple(item).ok()??.attributes(shapes).ok()?;
    let value = |(column, attribute): (usize, &Attribute<'_>)| match attribute {
        _ if table.columns[column].is_dropped => None,
        Attribute::Null => None,
        Attribute::Absent => made(table, column, index),
        Attribute::Stored(value) => Some(value.to_vec()),
    };
    let block = table.sample.as_ref()?.rows.get(index)?.0;
    Some(Row { index, block, values: attributes.iter().enumerate().map(value).collect() })
}

fn of_values(table: &Table, blocks_max: usize) -> Option<Rows> {
    let sample = table.sample.as_ref()?;
    let live = table.columns.iter().zip(&sample.columns).filter(|(column, _)| !column.is_dropped);
    let has_values = live.clone().count() > 0 && live.clone().all(|(_, sampled)| sampled.values.is_some());
    if !has_values || sample.rows.is_empty() || table.columns.iter().any(|column| layout_of(column).is_none())
    {
        return None;
    }
    let blocks = super::pages::evenly(&sample.blocks, blocks_max);
    let is_taken = |place: &RowPlace| blocks.binary_search(&place.0).is_ok();
    let taken = sample.rows.iter().enumerate().filter(|(_, place)| is_taken(place));
    let row = |(index, place): (usize, &RowPlace)| {
        let values = (0..table.columns.len()).map(|column| made(table, column, index));
        Row { index, block: place.0, values: values.collect() }
    };
    let rows: Vec<Row> = taken.map(row).collect();
    if rows.is_empty() { None } else { Some(Rows { rows, blocks: blocks.len(), is_estimate: true }) }
}

/// A sampled value as it would be stored, made from its text: of the same length, and much like it for a codec. None: NULL.
fn made(table: &Table, column: usize, row: usize) -> Option<Vec<u8>> {
    let sampled = table.sample.as_ref()?.columns.get(column)?;
    let of = table.columns.get(column).filter(|of| !of.is_dropped)?;
    let (place, size) = (*sampled.places.get(row)?, *sampled.sizes.get(row)? as usize);
    let text = sampled.values.as_ref().and_then(|values| values.get(row)?.as_deref());
    let packable = of.storage != 'p';
    let value = match place {
        Place::Null => return None,
        Place::External | Place::ExternalPglz | Place::ExternalLz4 => {
            return Some(varlena::pointer(text.map_or(size, str::len), size, row as u32));
        }
        Place::Pglz | Place::Lz4 => {
            let method = if place == Place::Lz4 { varlena::Method::Lz4 } else { varlena::Method::Pglz };
            let data = text.and_then(|text| datum(of, text));
            data.and_then(|data| varlena::Compressor::new().compress(method, &data))
        }
        Place::Inline | Place::Missing => {
            let data = text.and_then(|text| datum(of, text));
            data.map(|data| if of.length == -1 { varlena::plain(&data, packable) } else { data })
        }
    };
    Some(value.unwrap_or_else(|| filler(of, size, text.unwrap_or_default(), packable)))
}

/// The longest value that a row can have in its page; a file may say anything.
const INLINE_BYTES_MAX: usize = 8 << 10;

/// Where a value cannot be made: bytes of the right length that come from its text.
fn filler(column: &Column, size: usize, text: &str, packable: bool) -> Vec<u8> {
    let length = usize::try_from(column.length);
    let size = size.min(INLINE_BYTES_MAX);
    let bytes = length.unwrap_or_else(|_| size.saturating_sub(if size <= 127 { 1 } else { 4 }));
    let data: Vec<u8> = text.bytes().chain(std::iter::repeat(0)).take(bytes).collect();
    if length.is_ok() { data } else { varlena::plain(&data, packable) }
}

#[test]
fn a_length_that_no_row_has_takes_no_memory() {
    let column = Column { length: -1, ..Column::default() };
    assert!(filler(&column, u32::MAX as usize, "", true).len() <= INLINE_BYTES_MAX);
}
