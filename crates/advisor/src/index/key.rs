//! Values of an index's columns: how long they are in the index, and which of them are equal.

use super::tuple::COMPRESSED_ABOVE;
use crate::edit::Retype;
use crate::layout::{self, Alignment, Value};
use crate::snapshot::sample::Place;
use crate::snapshot::{Column, Index, IndexColumn, Table};
use pgshrink_codec::block::Compressor;
use pgshrink_codec::{Algorithm, Choice, Level, pglz};
use std::cmp::Ordering;
use std::collections::HashMap;

/// A column of an index over some sampled rows.
#[derive(Clone, Debug)]
pub struct Key {
    /// How it is laid out.
    pub layout: layout::Column,
    /// By picked row.
    pub values: Vec<Value>,
    /// By picked row: equal numbers are equal values, and numbers are in the index's order as far as that is known. None:
    /// values are not known.
    pub ranks: Option<Vec<u32>>,
    /// Its operator class deduplicates.
    pub is_deduplicable: bool,
}

/// The columns of an index over these rows of the sample. None: a value's size is not known.
pub fn keys(table: &Table, index: &Index, picked: &[usize], retyped: &[&Retype]) -> Option<Vec<Key>> {
    index.columns.iter().map(|column| key(table, column, picked, retyped)).collect()
}

fn key(table: &Table, column: &IndexColumn, picked: &[usize], retyped: &[&Retype]) -> Option<Key> {
    let Some(attribute) = usize::try_from(column.table_column).ok().and_then(|n| n.checked_sub(1)) else {
        return expression(column, picked);
    };
    if let Some(retype) = retyped.iter().find(|retype| retype.column == attribute) {
        return Some(of_images(retype, column, picked));
    }
    let sampled = table.sample.as_ref()?.columns.get(attribute)?;
    let stored = Stored {
        of: table.columns.get(attribute)?,
        column,
        sizes: &sampled.sizes,
        places: &sampled.places,
        texts: sampled.values.as_deref(),
    };
    stored.key(picked)
}

/// An expression: its sizes were measured, and it was never stored in the table.
fn expression(column: &IndexColumn, picked: &[usize]) -> Option<Key> {
    let sizes = column.expression_sizes.as_deref()?;
    let layout = layout_of(column)?;
    let texts = column.expression_values.as_deref();
    let text_of = |row: usize| texts.and_then(|texts| texts.get(row)?.as_deref());
    let is_text = column.type_name == "text" || column.type_name.starts_with("character varying");
    let mut found = Vec::with_capacity(picked.len());
    for row in picked {
        found.push(match (sizes.get(*row)?, layout.length, text_of(*row)) {
            (None, ..) => Value::Null,
            (Some(_), Some(_), _) => Value::Fixed,
            (Some(_), None, Some(text)) if is_text => in_row(text.len()),
            (Some(size), None, _) => Value::Inline(*size),
        });
    }
    let ranks = texts.and_then(|texts| {
        let texts = picked.iter().map(|row| texts.get(*row).map(Option::as_deref));
        let texts = texts.collect::<Option<Vec<_>>>()?;
        Some(ranks_of(&found, column.order_flags, |row| texts[row].map(Comparable::Bytes)))
    });
    let mut compressor = Compressing::new(' ');
    // The text of other types is not what is stored of them.
    if let (true, Some(texts)) = (is_text && is_compressible(column), texts) {
        for (value, row) in found.iter_mut().zip(picked) {
            let text = texts.get(*row).and_then(Option::as_deref);
            *value = compressor.value(*value, text.map(str::as_bytes));
        }
    }
    Some(Key { layout, values: found, ranks, is_deduplicable: column.is_deduplicable })
}

/// So many bytes of data with their header.
fn in_row(data_bytes: usize) -> Value {
    Value::Inline(u32::try_from(data_bytes + if data_bytes <= 126 { 1 } else { 4 }).unwrap_or(u32::MAX))
}

/// A column of the table with what was sampled of it.
struct Stored<'s> {
    of: &'s Column,
    column: &'s IndexColumn,
    sizes: &'s [u32],
    places: &'s [Place],
    texts: Option<&'s [Option<String>]>,
}

impl Stored<'_> {
    fn key(&self, picked: &[usize]) -> Option<Key> {
        let layout = layout_of(self.column)?;
        let mut compressor = Compressing::new(self.of.compression);
        let mut values = Vec::with_capacity(picked.len());
        for row in picked {
            values.push(self.value(*row, &layout, &mut compressor)?);
        }
        let ranks = self.texts.map(|texts| {
            let is_integer = matches!(&*self.of.base_type_id, "int2" | "int4" | "int8" | "oid");
            ranks_of(&values, self.column.order_flags, |row| {
                let text = texts.get(picked[row])?.as_deref()?;
                let number = if is_integer { text.parse().ok() } else { None };
                Some(number.map_or(Comparable::Bytes(text), Comparable::Number))
            })
        });
        Some(Key { layout, values, ranks, is_deduplicable: self.column.is_deduplicable })
    }

    fn value(&self, row: usize, layout: &layout::Column, compressor: &mut Compressing) -> Option<Value> {
        let (size, place) = (*self.sizes.get(row)?, *self.places.get(row)?);
        let text = || self.texts.and_then(|texts| texts.get(row)?.as_deref());
        Some(match (place, layout.length) {
            (Place::Null, _) => Value::Null,
            (_, Some(_)) => Value::Fixed,
            // `name` is indexed as a string that ends with a zero byte.
            (_, None) if self.column.length == -2 => Value::Inline(text()?.len() as u32 + 1),
            (Place::Pglz | Place::Lz4, None) => Value::Compressed(size),
            // What is in the TOAST table is counted there without its header.
            (Place::ExternalPglz | Place::ExternalLz4, None) => Value::Compressed(size.saturating_add(4)),
            (Place::External, None) => {
                self.compressed(Value::Inline(size.saturating_add(4)), text(), compressor)
            }
            (Place::Inline | Place::Missing, None) => {
                self.compressed(Value::Inline(size), text(), compressor)
            }
        })
    }

    fn compressed(&self, value: Value, text: Option<&str>, compressor: &mut Compressing) -> Value {
        if !is_compressible(self.column) {
            return value;
        }
        match (&*self.of.base_type_id, text) {
            ("text" | "varchar" | "bpchar" | "citext" | "json", Some(text)) => {
                compressor.value(value, Some(text.as_bytes()))
            }
            ("bytea", Some(text)) => compressor.value(value, unhex(text).as_deref()),
            _ => value,
        }
    }
}

fn of_images(retype: &Retype, column: &IndexColumn, picked: &[usize]) -> Key {
    let image = |row: usize| retype.images.get(row).and_then(Option::as_deref);
    let mut compressor = Compressing::new(' ');
    let values = picked.iter().map(|row| match (image(*row), retype.layout.length) {
        (None, _) => Value::Null,
        (Some(_), Some(_)) => Value::Fixed,
        (Some(image), None) if image.len() > COMPRESSED_ABOVE && retype.layout.is_packable => {
            compressor.value(Value::Inline(image.len() as u32), image.get(4..))
        }
        (Some(image), None) => Value::Inline(image.len() as u32),
    });
    let values: Vec<_> = values.collect();
    let is_number =
        retype.layout.length.is_some_and(|length| usize::from(length) == retype.layout.alignment as usize);
    let ranks = ranks_of(&values, column.order_flags, |row| {
        let image = image(picked[row])?;
        Some(if is_number { Comparable::Number(little_endian(image)) } else { Comparable::Image(image) })
    });
    let is_deduplicable = deduplicates(&retype.type_name);
    Key { layout: retype.layout.clone(), values, ranks: Some(ranks), is_deduplicable }
}

/// Whether the type's default operator class says that equal values have equal bytes (`btequalimage`).
fn deduplicates(type_name: &str) -> bool {
    let name = type_name.to_ascii_lowercase();
    let base = name.split(['(', ' ']).next().unwrap_or_default();
    let differs = matches!(
        base,
        "numeric" | "decimal" | "real" | "double" | "float" | "float4" | "float8" | "jsonb" | "interval"
    );
    !differs && !name.ends_with("[]") && !base.ends_with("range")
}

fn is_compressible(column: &IndexColumn) -> bool {
    column.length == -1 && matches!(column.storage, 'x' | 'm')
}

/// As the index stores it. None: its catalogs make no sense.
pub fn layout_of(column: &IndexColumn) -> Option<layout::Column> {
    Some(layout::Column {
        name: String::new(),
        length: if column.length < 0 { None } else { Some(u16::try_from(column.length).ok()?) },
        alignment: Alignment::of_letter(u8::try_from(column.alignment).ok()?)?,
        is_packable: column.length != -1 || column.storage != 'p',
        is_not_null: false,
        is_dropped: false,
    })
}

/// Compresses values as `index_form_tuple` does.
struct Compressing {
    is_lz4: bool,
    pglz: Option<pglz::Workspace>,
    lz4: Compressor,
    out: Vec<u8>,
}

impl Compressing {
    /// By `attcompression`; a blank is taken for pglz, the server's default.
    fn new(compression: char) -> Compressing {
        Compressing { is_lz4: compression == 'l', pglz: None, lz4: Compressor::new(), out: Vec::new() }
    }

    fn value(&mut self, value: Value, raw: Option<&[u8]>) -> Value {
        let (Value::Inline(size), Some(raw)) = (value, raw) else { return value };
        if size as usize <= COMPRESSED_ABOVE {
            return value;
        }
        self.out.clear();
        let is_done = if self.is_lz4 {
            let choice = Choice { algorithm: Algorithm::Lz4, level: Level(1) };
            self.lz4.compress(choice, raw, &mut self.out).is_ok()
        } else {
            let workspace = self.pglz.get_or_insert_with(pglz::Workspace::new);
            pglz::compress(workspace, &pglz::Strategy::DEFAULT, raw, &mut self.out)
        };
        // A header of four bytes and four of the raw size; less than two bytes saved do not count.
        let compressed = self.out.len() + 8;
        if is_done && compressed + 2 < size as usize { Value::Compressed(compressed as u32) } else { value }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Comparable<'v> {
    Number(i64),
    Bytes(&'v str),
    Image(&'v [u8]),
}

/// Ranks of values in the order of the index. What is not NULL and not known is taken for unique.
fn ranks_of<'v>(
    values: &[Value],
    order_flags: i16,
    text: impl Fn(usize) -> Option<Comparable<'v>>,
) -> Vec<u32> {
    let mut ids: HashMap<Comparable<'v>, u32> = HashMap::new();
    let mut distinct = Vec::new();
    let mut of_rows = Vec::with_capacity(values.len());
    let mut unknown = 0u32;
    for (row, value) in values.iter().enumerate() {
        of_rows.push(match (value, text(row)) {
            (Value::Null, _) => Id::Null,
            (_, Some(text)) => Id::Known(*ids.entry(text).or_insert_with(|| {
                distinct.push(text);
                distinct.len() as u32 - 1
            })),
            (_, None) => {
                unknown += 1;
                Id::Unknown(unknown)
            }
        });
    }
    let mut sorted: Vec<u32> = (0..distinct.len() as u32).collect();
    sorted.sort_unstable_by_key(|id| distinct[*id as usize]);
    let is_descending = order_flags & 1 != 0;
    if is_descending {
        sorted.reverse();
    }
    // 0 is left for NULLs that come first.
    let mut rank_of_id = vec![0u32; distinct.len()];
    for (rank, id) in sorted.into_iter().enumerate() {
        rank_of_id[id as usize] = rank as u32 + 1;
    }
    let null = if order_flags & 2 != 0 { 0 } else { u32::MAX };
    let known = distinct.len() as u32;
    let rank = |id| match id {
        Id::Null => null,
        Id::Known(id) => rank_of_id[id as usize],
        Id::Unknown(n) => known + n,
    };
    of_rows.into_iter().map(rank).collect()
}

enum Id {
    Null,
    Known(u32),
    Unknown(u32),
}

/// Rows in the order of an index with these columns.
pub fn order(keys: &[&[u32]], rows: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows as u32).collect();
    order.sort_by(|a, b| compare(keys, *a as usize, *b as usize).0);
    order
}

/// How two rows compare, and in how many leading columns they are equal.
pub fn compare(keys: &[&[u32]], a: usize, b: usize) -> (Ordering, usize) {
    for (equal, ranks) in keys.iter().enumerate() {
        let order = ranks[a].cmp(&ranks[b]);
        if order != Ordering::Equal {
            return (order, equal);
        }
    }
    (Ordering::Equal, keys.len())
}

fn little_endian(image: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    let length = image.len().min(8);
    bytes[..length].copy_from_slice(&image[..length]);
    let shift = 64 - 8 * length as u32;
    // The sign is in the last byte.
    if length == 0 { 0 } else { i64::from_le_bytes(bytes) << shift >> shift }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks_exact(2).map(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8));
    pairs.collect()
}
