//! Packed rows in pages, with what goes to the TOAST table.
//!
//! Source: `heap_toast_insert_or_update` in `src/backend/access/heap/heaptoast.c`. All values have storage `EXTENDED`.

use crate::layout::heap::{PAGE_BYTES, Pages};
use crate::layout::{Column, Shape, Value};
use pgshrink_codec::bare::Compressor;
use pgshrink_codec::pglz::{self, Strategy, Workspace};
use pgshrink_codec::{Algorithm, Choice};

/// `TOAST_TUPLE_TARGET`: longer rows have values compressed, and then moved.
const ROW_BYTES_MAX: usize = 2032;
/// `MAXALIGN(TOAST_POINTER_SIZE)`: no shorter value is compressed or moved.
const VALUE_BYTES_MIN: usize = 24;
/// `TOAST_MAX_CHUNK_SIZE`
const CHUNK_BYTES: usize = 1996;
/// A row of the TOAST table: header, value, number of the chunk, header of the chunk.
const CHUNK_ROW_BYTES: usize = 24 + 4 + 4 + 4;
/// The header of a compressed value: length, and raw length with the method.
const COMPRESSED_HEADER_BYTES: usize = 8;
/// An entry of the TOAST index with its pointer, and what a page of it takes with the fillfactor of 90.
const INDEX_ENTRY_BYTES: usize = 16 + 4;
const INDEX_PAGE_BYTES: usize = (PAGE_BYTES - 40) - PAGE_BYTES / 10;

/// A value of a packed row: with its header, of one byte where it can be.
pub(super) enum Packed {
    Fixed,
    Varlena(Vec<u8>),
}

/// Fills pages of the table and of its TOAST table.
pub(super) struct Store<'c> {
    columns: &'c [Column],
    order: Vec<usize>,
    heap: Pages,
    toast: Pages,
    chunks: usize,
    compress: Compress,
}

/// Pages in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) heap: u64,
    pub(super) toast: u64,
    pub(super) toast_index: u64,
}

impl<'c> Store<'c> {
    pub(super) fn new(columns: &'c [Column], method: &str) -> Store<'c> {
        let compress = match method {
            "lz4" => Compress::Lz4(Box::default()),
            _ => Compress::Pglz(Box::new(Workspace::new())),
        };
        let order = (0..columns.len()).collect();
        Store { columns, order, heap: Pages::new(100), toast: Pages::new(100), chunks: 0, compress }
    }

    /// Adds a row: one value for each column.
    pub(super) fn add(&mut self, row: &[Packed]) {
        let mut values: Vec<Value> = row.iter().map(Packed::value).collect();
        let shape = Shape { columns: self.columns, order: &self.order };
        let mut left: Vec<usize> = (0..row.len()).collect();
        let mut compressed: Vec<Option<usize>> = vec![None; row.len()];
        // The largest value first, compressed as long as the row is too long.
        while shape.row_bytes(&values) > ROW_BYTES_MAX {
            let Some(at) = largest(&mut left, &values) else { break };
            let Packed::Varlena(image) = &row[at] else { continue };
            let Some(bytes) = self.compress.bytes(content(image)) else { continue };
            compressed[at] = Some(bytes);
            values[at] = Value::Compressed(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        // Then moved, the largest first.
        let mut left: Vec<usize> = (0..row.len()).collect();
        while shape.row_bytes(&values) > ROW_BYTES_MAX {
            let Some(at) = largest(&mut left, &values) else { break };
            let Packed::Varlena(image) = &row[at] else { continue };
            // Chunks have no header of the value, but a compressed one's second word.
            let bytes = compressed[at].map_or(content(image).len(), |bytes| bytes - 4);
            for chunk in (0..bytes).step_by(CHUNK_BYTES) {
                self.toast.add(CHUNK_ROW_BYTES + (bytes - chunk).min(CHUNK_BYTES));
                self.chunks += 1;
            }
            values[at] = Value::External;
        }
        self.heap.add(shape.row_bytes(&values));
    }

    pub(super) fn filled(&self) -> Filled {
        let bytes = |pages: usize| (pages as u64).saturating_mul(PAGE_BYTES as u64);
        let leaves = (self.chunks * INDEX_ENTRY_BYTES).div_ceil(INDEX_PAGE_BYTES);
        // The meta page, and a root above several leaves. Levels above that are a part of a per cent.
        let index = 1 + leaves + usize::from(leaves > 1) + leaves / 300;
        Filled { heap: bytes(self.heap.count()), toast: bytes(self.toast.count()), toast_index: bytes(index) }
    }
}

impl Packed {
    fn value(&self) -> Value {
        match self {
            Packed::Fixed => Value::Fixed,
            Packed::Varlena(image) => Value::Inline(u32::try_from(image.len()).unwrap_or(u32::MAX)),
        }
    }
}

/// A value's data behind its header.
fn content(image: &[u8]) -> &[u8] {
    match image.first() {
        Some(first) if first & 1 == 1 => &image[1..],
        _ => image.get(4..).unwrap_or_default(),
    }
}

/// Takes the largest value that may be made smaller out of those that are left.
fn largest(left: &mut Vec<usize>, values: &[Value]) -> Option<usize> {
    let size = |at: &usize| match values[*at] {
        Value::Inline(bytes) | Value::Compressed(bytes) => bytes as usize,
        _ => 0,
    };
    // Of equal ones the first, as the server finds them.
    let (place, at) =
        left.iter().enumerate().rev().max_by_key(|(_, at)| size(at)).map(|(place, at)| (place, *at))?;
    left.remove(place);
    (size(&at) > VALUE_BYTES_MIN).then_some(at)
}

enum Compress {
    Pglz(Box<Workspace>),
    Lz4(Box<Compressor>),
}

impl Compress {
    /// Bytes of a compressed value with its header. None: it is not worth it.
    fn bytes(&mut self, data: &[u8]) -> Option<usize> {
        let mut out = Vec::new();
        let is_done = match self {
            Compress::Pglz(workspace) => pglz::compress(workspace, &Strategy::DEFAULT, data, &mut out),
            Compress::Lz4(compressor) => {
                let choice = Choice::new(Algorithm::Lz4, 1).ok()?;
                compressor.compress(choice, None, data, &mut out).is_ok()
            }
        };
        // As `toast_compress_datum`: two bytes must be saved at least.
        let bytes = out.len() + COMPRESSED_HEADER_BYTES;
        (is_done && bytes < data.len() + 4 - 2).then_some(bytes)
    }
}
