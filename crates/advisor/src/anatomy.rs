//! What a table's rows and files consist of.
//!
//! Invariants:
//! 1. The parts of an [`Anatomy`] add up to all bytes of the table.
//! 2. The parts of a row lie side by side, from its first byte to its end, which is aligned to eight.

use crate::arrangement::{Arrangement, layout_of};
use crate::edit::Edit;
use crate::finding::{Anatomy, RowPart};
use crate::layout::{self, Shape, Value};
use crate::simulate::rows::Rows;
use crate::simulate::{Simulation, Sizes};
use crate::snapshot::sample::Place;
use crate::snapshot::{Server, Table};

/// `sizeof(ItemIdData)`.
const ITEM_BYTES: u64 = 4;
/// `SizeofHeapTupleHeader`.
const HEADER_BYTES: usize = 23;
/// `MAXIMUM_ALIGNOF`.
const MAXALIGN: usize = 8;

/// Bytes of rows by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowBytes {
    /// Rows.
    pub rows: u64,
    /// `t_hoff`: headers and bitmaps, aligned.
    pub headers: u64,
    /// Values and pointers to the TOAST table.
    pub data: u64,
    /// Between values and behind the last one.
    pub padding: u64,
}

impl RowBytes {
    fn add(&mut self, parts: &[RowPart]) {
        self.rows += 1;
        let begin = data_offset(parts);
        for part in parts {
            let bytes = u64::from(part.bytes);
            match &*part.kind {
                "value" | "pointer" => self.data += bytes,
                _ if part.offset >= begin => self.padding += bytes,
                _ => self.headers += bytes,
            }
        }
    }

    /// Of a row on average, rounded to a tenth.
    pub(crate) fn each(self, bytes: u64) -> f64 {
        (bytes as f64 / self.rows.max(1) as f64 * 10.0).round() / 10.0
    }
}

/// Where a row's data begin: behind header, bitmap and what aligns them.
fn data_offset(parts: &[RowPart]) -> u32 {
    let heads = parts.iter().filter(|part| matches!(&*part.kind, "header" | "bitmap"));
    let end = heads.map(|part| part.offset + part.bytes).max().unwrap_or(0);
    end.next_multiple_of(MAXALIGN as u32)
}

/// A sampled row as it lies in its page. It ends before columns that were added later.
pub(crate) fn values_now(table: &Table, row: usize) -> Vec<Value> {
    let Some(sample) = &table.sample else { return Vec::new() };
    let mut values = Vec::with_capacity(table.columns.len());
    for (column, sampled) in table.columns.iter().zip(&sample.columns) {
        let bytes = sampled.sizes.get(row).copied().unwrap_or(0);
        values.push(match sampled.places.get(row).copied().unwrap_or_default() {
            // Columns that were added later follow.
            Place::Missing => break,
            _ if column.is_dropped || column.generated == 'v' => Value::Null,
            Place::Null => Value::Null,
            _ if column.length > 0 => Value::Fixed,
            Place::Inline => Value::Inline(bytes),
            Place::Pglz | Place::Lz4 => Value::Compressed(bytes),
            Place::External | Place::ExternalPglz | Place::ExternalLz4 => Value::External,
        });
    }
    values
}

/// The columns as they are, in their order.
pub(crate) fn layouts_now(table: &Table) -> Vec<layout::Column> {
    table.columns.iter().map(layout_of).collect()
}

/// What sampled rows consist of now: all of them, or every few if there are many.
pub(crate) fn row_bytes_now(table: &Table) -> RowBytes {
    let layouts = layouts_now(table);
    sum(row_count(table), |row| parts(&layouts, &values_now(table, row), |_| String::new()))
}

/// What the same rows consist of in an arrangement.
pub(crate) fn row_bytes_after(server: &Server, table: &Table, arrangement: &Arrangement<'_>) -> RowBytes {
    let layouts: Vec<layout::Column> =
        arrangement.columns.iter().map(|stored| stored.layout.clone()).collect();
    let mut rows = Rows::of(server, table, arrangement);
    sum(rows.count(), |row| parts(&layouts, rows.row(row).values, |_| String::new()))
}

/// Rows that are taken apart, at most.
const ROWS_MAX: usize = 5_000;

fn sum(rows: usize, mut parts: impl FnMut(usize) -> Vec<RowPart>) -> RowBytes {
    let mut bytes = RowBytes::default();
    (0..rows).step_by(rows.div_ceil(ROWS_MAX).max(1)).for_each(|row| bytes.add(&parts(row)));
    bytes
}

fn row_count(table: &Table) -> usize {
    table.sample.as_ref().map_or(0, |sample| sample.rows.len())
}

/// A row byte by byte: of as many columns as there are values. `type_name` gives that of a column.
pub(crate) fn parts(
    columns: &[layout::Column],
    values: &[Value],
    type_name: impl Fn(usize) -> String,
) -> Vec<RowPart> {
    let columns = &columns[..columns.len().min(values.len())];
    let part = |kind: &str, offset: usize, bytes: usize| RowPart {
        kind: kind.to_owned(),
        offset: u32::try_from(offset).unwrap_or(u32::MAX),
        bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        ..RowPart::default()
    };
    let is_null = |index: usize| columns[index].is_dropped || values[index] == Value::Null;
    let bitmap = match (0..columns.len()).any(is_null) {
        true => columns.len().div_ceil(8),
        false => 0,
    };
    let mut parts = vec![part("header", 0, HEADER_BYTES)];
    let mut at = HEADER_BYTES;
    if bitmap > 0 {
        parts.push(part("bitmap", at, bitmap));
        at += bitmap;
    }
    let pad = |parts: &mut Vec<RowPart>, at: usize, to: usize| {
        if to > at {
            parts.push(part("padding", at, to - at));
        }
    };
    pad(&mut parts, at, at.next_multiple_of(MAXALIGN));
    at = at.next_multiple_of(MAXALIGN);
    for (index, column) in columns.iter().enumerate() {
        let named = |kind: &str, at: usize, bytes: usize| RowPart {
            column: column.name.clone(),
            type_name: type_name(index),
            ..part(kind, at, bytes)
        };
        if is_null(index) {
            parts.push(named(if column.is_dropped { "dropped" } else { "null" }, at, 0));
            continue;
        }
        let place = column.place(at, values[index]);
        pad(&mut parts, at, place.start);
        let kind = if values[index] == Value::External { "pointer" } else { "value" };
        parts.push(named(kind, place.start, place.len()));
        at = place.end;
    }
    pad(&mut parts, at, at.next_multiple_of(MAXALIGN));
    parts
}

/// A sampled row of middling length, now and after some changes. Both are empty without sampled rows.
pub(crate) fn middling_row(server: &Server, table: &Table, edits: &[&Edit]) -> (Vec<RowPart>, Vec<RowPart>) {
    let arrangement = &Arrangement::of(table, edits);
    let layouts = layouts_now(table);
    let all: Vec<usize> = (0..layouts.len()).collect();
    let length = |row: usize| {
        let values = values_now(table, row);
        Shape { columns: &layouts[..values.len()], order: &all[..values.len()] }.row_bytes(&values)
    };
    let count = row_count(table);
    let mut lengths: Vec<(usize, usize)> =
        (0..count).step_by(count.div_ceil(ROWS_MAX).max(1)).map(|row| (length(row), row)).collect();
    lengths.sort_unstable();
    let Some((_, row)) = lengths.get(lengths.len() / 2).copied() else { return Default::default() };
    let name =
        |index: usize| table.columns.get(index).map(|column| column.type_name.clone()).unwrap_or_default();
    let now = parts(&layouts, &values_now(table, row), name);
    let after_layouts: Vec<layout::Column> =
        arrangement.columns.iter().map(|stored| stored.layout.clone()).collect();
    let mut rows = Rows::of(server, table, arrangement);
    let after = parts(&after_layouts, rows.row(row).values, |index| {
        arrangement.columns[index].type_name(table, edits).to_owned()
    });
    (now, after)
}

/// What the bytes of a table are. All of its pages count as data if no row of it was seen.
pub(crate) fn of_table(table: &Table, simulation: Option<(&Simulation<'_>, &Sizes)>) -> Anatomy {
    let now = Sizes::now(table);
    let mut anatomy = Anatomy {
        toast: now.toast.main.saturating_add(now.toast_index),
        indexes: now.index_total(),
        maps: [now.heap.vm, now.toast.fsm, now.toast.vm]
            .iter()
            .fold(now.heap.fsm, |sum, b| sum.saturating_add(*b)),
        ..Anatomy::default()
    };
    let mut left = now.heap.main;
    let mut take = |bytes: u64| {
        let taken = bytes.min(left);
        left -= taken;
        taken
    };
    let Some((simulation, as_it_is)) = simulation else {
        anatomy.data = take(u64::MAX);
        return anatomy;
    };
    let rows = row_bytes_now(table);
    let of_all = |bytes: u64| {
        let each = bytes as f64 / rows.rows.max(1) as f64;
        (each * simulation.row_count() as f64).round() as u64
    };
    anatomy.data = take(of_all(rows.data));
    anatomy.row_headers = take(of_all(rows.headers.saturating_add(rows.rows * ITEM_BYTES)));
    anatomy.padding = take(of_all(rows.padding));
    let used = anatomy.data + anatomy.row_headers + anatomy.padding;
    anatomy.page_slack = take(as_it_is.heap.main.saturating_sub(used));
    anatomy.bloat = take(u64::MAX);
    anatomy
}
