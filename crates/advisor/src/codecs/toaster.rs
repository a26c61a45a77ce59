//! Rows that are too long: what is compressed, and what goes into the TOAST table.
//!
//! Source: `heap_toast_insert_or_update` in `src/backend/access/heap/heaptoast.c`, `toast_save_datum` in
//! `src/backend/access/common/toast_internals.c`. A row is only looked at when it is longer than 2,032 bytes, or has a value in the TOAST
//! table already; `toast_tuple_target` says how short it is to become then, not which rows are looked at.

use crate::heap_page::varlena::{self, Compressor, Method, POINTER_BYTES};
use crate::heap_page::{PageBytes, write};
use crate::layout::{self, Alignment, Shape, Value};

/// `TOAST_TUPLE_THRESHOLD`.
pub const ROW_BYTES_MAX: usize = 2_032;
/// `TOAST_TUPLE_TARGET_MAIN`: how short values of storage MAIN have to become before they are moved out.
const MAIN_ROW_BYTES_MAX: usize = 8_160;
/// `TOAST_MAX_CHUNK_SIZE`.
const CHUNK_BYTES: usize = 1_996;
/// Shorter values are not worth a pointer: `MAXALIGN(TOAST_POINTER_SIZE)`.
const VALUE_BYTES_MIN: usize = POINTER_BYTES.next_multiple_of(8);

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// As it is stored, with its header.
    pub image: Vec<u8>,
    /// `attstorage`
    pub storage: char,
    /// What it is compressed by, if it is.
    pub method: Method,
}

/// Makes rows short enough, and keeps what it moved out.
pub struct Toaster<'c> {
    columns: &'c [layout::Column],
    order: Vec<usize>,
    target: usize,
    compressor: Compressor,
    chunks: write::Pages,
    moved: u32,
}

impl<'c> Toaster<'c> {
    /// For rows of these columns, which are to have at most so many bytes.
    pub fn new(columns: &'c [layout::Column], target: u16) -> Toaster<'c> {
        Toaster {
            columns,
            order: (0..columns.len()).collect(),
            target: usize::from(target),
            compressor: Compressor::new(),
            chunks: write::Pages::new(100),
            moved: 0,
        }
    }

    /// Compresses and moves values as the server would.
    pub fn fit(&mut self, cells: &mut [Option<Cell>]) {
        let has_external = cells.iter().flatten().any(|cell| cell.image.first() == Some(&1));
        if cells.len() != self.columns.len() || (!has_external && self.row_bytes(cells) <= ROW_BYTES_MAX) {
            return;
        }
        let mut tried = vec![false; cells.len()];
        while self.row_bytes(cells) > self.target {
            let Some(index) = self.largest(cells, &['x', 'e'], Some(&tried)) else { break };
            tried[index] = true;
            self.compress(cells, index);
            if cells[index].as_ref().is_some_and(|cell| cell.image.len() > self.target) {
                self.move_out(cells, index);
            }
        }
        while self.row_bytes(cells) > self.target {
            let Some(index) = self.largest(cells, &['x', 'e'], None) else { break };
            self.move_out(cells, index);
        }
        while self.row_bytes(cells) > self.target {
            let Some(index) = self.largest(cells, &['m'], Some(&tried)) else { break };
            tried[index] = true;
            self.compress(cells, index);
        }
        while self.row_bytes(cells) > MAIN_ROW_BYTES_MAX {
            let Some(index) = self.largest(cells, &['m'], None) else { break };
            self.move_out(cells, index);
        }
    }

    fn row_bytes(&self, cells: &[Option<Cell>]) -> usize {
        let value = |(cell, column): (&Option<Cell>, &layout::Column)| match cell {
            None => Value::Null,
            Some(_) if column.length.is_some() => Value::Fixed,
            Some(cell) => value_of(&cell.image, column.is_packable),
        };
        let values: Vec<Value> = cells.iter().zip(self.columns).map(value).collect();
        Shape { columns: self.columns, order: &self.order }.row_bytes(&values)
    }

    /// The longest value of these storages that is in the row; where it is to be compressed, one that is not and was not tried.
    fn largest(&self, cells: &[Option<Cell>], storages: &[char], tried: Option<&[bool]>) -> Option<usize> {
        let size = |index: &usize| cells[*index].as_ref().map_or(0, |cell| cell.image.len());
        let fits = |index: &usize| {
            let Some(cell) = &cells[*index] else { return false };
            let first = cell.image.first().copied().unwrap_or(1);
            let is_compressed = first & 3 == 2;
            self.columns[*index].length.is_none()
                && first != 1
                && storages.contains(&cell.storage)
                && cell.image.len() > VALUE_BYTES_MIN
                && tried.is_none_or(|tried| !tried[*index] && !is_compressed)
        };
        // Of several the first one.
        (0..cells.len()).filter(fits).rev().max_by_key(size)
    }

    fn compress(&mut self, cells: &mut [Option<Cell>], index: usize) {
        let Some(cell) = &mut cells[index] else { return };
        if cell.storage == 'e' {
            return;
        }
        let Some(varlena::Varlena::Plain(data)) = varlena::parse(&cell.image) else { return };
        if let Some(compressed) = self.compressor.compress(cell.method, data) {
            cell.image = compressed;
        }
    }

    fn move_out(&mut self, cells: &mut [Option<Cell>], index: usize) {
        let Some(cell) = &mut cells[index] else { return };
        let header = if cell.image.first().is_some_and(|first| first & 1 == 1) { 1 } else { 4 };
        let data = cell.image.get(header..).unwrap_or_default();
        self.moved += 1;
        let [id, number, content] = chunk_columns();
        let mut tuple = Vec::new();
        for (sequence, chunk) in (0u32..).zip(data.chunks(CHUNK_BYTES)) {
            let (id_image, number_image) = ((16_400 + self.moved).to_le_bytes(), sequence.to_le_bytes());
            let content_image = varlena::plain(chunk, false);
            let images = [Some(&id_image[..]), Some(&number_image), Some(&content_image)];
            write::tuple(&[&id, &number, &content], &images, &mut tuple);
            self.chunks.add(&mut tuple);
        }
        cell.image = varlena::pointer(data.len(), data.len(), 16_400 + self.moved);
    }

    /// Pages of the TOAST table with what was moved out.
    pub fn into_pages(self) -> Vec<Box<PageBytes>> {
        self.chunks.into_pages()
    }
}

/// What a stored value takes in a row.
fn value_of(image: &[u8], is_packable: bool) -> Value {
    let bytes = image.len() as u32;
    match image.first() {
        Some(1) => Value::External,
        Some(first) if first & 3 == 2 => Value::Compressed(bytes),
        // Gets a header of one byte.
        Some(first) if first & 1 == 0 && is_packable && bytes <= 130 => {
            Value::Inline(bytes.saturating_sub(3))
        }
        _ => Value::Inline(bytes),
    }
}

/// `chunk_id`, `chunk_seq` and `chunk_data` of a TOAST table.
fn chunk_columns() -> [layout::Column; 3] {
    [("chunk_id", Some(4)), ("chunk_seq", Some(4)), ("chunk_data", None)].map(|(name, length)| {
        layout::Column {
            name: name.to_owned(),
            length,
            alignment: Alignment::Int,
            is_packable: false,
            is_not_null: true,
            is_dropped: false,
        }
    })
}
