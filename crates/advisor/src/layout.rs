//! Rows and pages of the heap, as the server lays them out.
//!
//! Sources: `heap_compute_data_size` and `heap_form_tuple` in `src/backend/access/common/heaptuple.c`,
//! `src/include/access/htup_details.h`, `src/include/storage/bufpage.h`.
//!
//! Invariants:
//! 1. A row's size is exact for values whose sizes are exact: tests compare pages with those of a server.
//! 2. A dropped column is NULL in every row: it costs a bit, and makes the others' bitmap necessary.

pub mod heap;
pub mod order;

use crate::snapshot;
use std::ops::Range;

/// Where values of a type may begin: `pg_type.typalign`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Alignment {
    /// `c`: anywhere.
    Char = 1,
    /// `s`: at even bytes.
    Short = 2,
    /// `i`: at multiples of four.
    Int = 4,
    /// `d`: at multiples of eight.
    Double = 8,
}

impl Alignment {
    /// By its letter in `pg_type.typalign`. None: no server has such a letter.
    pub fn of_letter(letter: u8) -> Option<Alignment> {
        match letter {
            b'c' => Some(Alignment::Char),
            b's' => Some(Alignment::Short),
            b'i' => Some(Alignment::Int),
            b'd' => Some(Alignment::Double),
            _ => None,
        }
    }

    /// The next place at or after this one where a value may begin.
    pub fn align(self, at: usize) -> usize {
        at.next_multiple_of(self as usize)
    }
}

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// `pg_attribute.attname`.
    pub name: String,
    /// Bytes of every value: `pg_attribute.attlen`. None: they differ (`varlena`).
    pub length: Option<u16>,
    /// `pg_attribute.attalign`.
    pub alignment: Alignment,
    /// Whether values of up to 126 bytes get a header of one byte and no alignment: every storage but `PLAIN`.
    pub is_packable: bool,
    /// `pg_attribute.attnotnull`.
    pub is_not_null: bool,
    /// `pg_attribute.attisdropped`.
    pub is_dropped: bool,
}

/// A value in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// Of a type of fixed length.
    Fixed,
    /// Stored in the row, in so many bytes with its header, which is of one byte where it can be: `pg_column_size`.
    Inline(u32),
    /// Stored in the row and compressed, in so many bytes with its header, which is never of one byte: `pg_column_size` where
    /// `pg_column_compression` is not NULL.
    Compressed(u32),
    /// Stored elsewhere: the row has a pointer of 18 bytes.
    External,
}

/// `SizeofHeapTupleHeader`.
const HEADER_BYTES: usize = 23;
/// `MAXIMUM_ALIGNOF` of every platform that servers of these versions run on.
const MAXALIGN: usize = 8;
/// `VARATT_SHORT_MAX`: most bytes of a value with a header of one byte.
const SHORT_BYTES_MAX: u32 = 127;
/// `VARHDRSZ_EXTERNAL` and `varatt_external`.
const POINTER_BYTES: usize = 18;

/// Columns in an order that rows are laid out in.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'c> {
    /// All columns of the table.
    pub columns: &'c [Column],
    /// Indexes in `columns`, each once at most. Columns that are not in it are not stored.
    pub order: &'c [usize],
}

impl Shape<'_> {
    /// Bytes of a row, from its header to its last value, before it is aligned to eight. `values` are in the order of
    /// `columns`.
    ///
    /// # Panics
    /// If there are fewer values than columns.
    pub fn row_bytes(&self, values: &[Value]) -> usize {
        assert!(values.len() >= self.columns.len(), "a value for each column");
        let is_null = |index: usize| self.columns[index].is_dropped || values[index] == Value::Null;
        let has_null = self.order.iter().any(|index| is_null(*index));
        let bitmap = if has_null { self.order.len().div_ceil(8) } else { 0 };
        let start = (HEADER_BYTES + bitmap).next_multiple_of(MAXALIGN);
        let stored = self.order.iter().filter(|index| !is_null(**index));
        // The data begin at a multiple of eight: their alignment is that of the row.
        stored.fold(start, |at, index| self.columns[*index].place(at, values[*index]).end)
    }
}

impl Column {
    /// As a server stores it. None: no server has such an alignment.
    pub fn of(column: &snapshot::Column) -> Option<Column> {
        let alignment = u8::try_from(column.alignment).ok().and_then(Alignment::of_letter)?;
        Some(Column::aligned(column, alignment))
    }

    /// The same with this alignment.
    pub fn aligned(column: &snapshot::Column, alignment: Alignment) -> Column {
        Column {
            name: column.name.clone(),
            length: u16::try_from(column.length).ok(),
            alignment,
            is_packable: column.length < 0 && column.storage != 'p',
            // PostgreSQL 18 stores a virtual column as NULL in every row.
            is_not_null: column.is_not_null && column.generated != 'v',
            is_dropped: column.is_dropped,
        }
    }

    /// Where a value lies that is stored at this byte or behind it.
    pub(crate) fn place(&self, at: usize, value: Value) -> Range<usize> {
        let (begin, bytes) = match (self.length, value) {
            (_, Value::Null) => (at, 0),
            (Some(length), _) => (self.alignment.align(at), usize::from(length)),
            (None, Value::Inline(bytes)) if self.is_packable && bytes <= SHORT_BYTES_MAX => {
                (at, bytes as usize)
            }
            (None, Value::Inline(bytes) | Value::Compressed(bytes)) => {
                (self.alignment.align(at), bytes as usize)
            }
            (None, Value::External) => (at, POINTER_BYTES),
            // No size was measured.
            (None, Value::Fixed) => (at, 0),
        };
        begin..begin + bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(length: Option<u16>, letter: u8) -> Column {
        let alignment = Alignment::of_letter(letter).unwrap();
        let name = String::new();
        Column {
            name,
            length,
            alignment,
            is_packable: length.is_none(),
            is_not_null: true,
            is_dropped: false,
        }
    }

    fn bytes(columns: &[Column], values: &[Value]) -> usize {
        let order: Vec<usize> = (0..columns.len()).collect();
        Shape { columns, order: &order }.row_bytes(values)
    }

    #[test]
    fn rows_are_as_long_as_a_server_makes_them() {
        let [boolean, int2, int4, int8] =
            [(1, b'c'), (2, b's'), (4, b'i'), (8, b'd')].map(|(l, a)| column(Some(l), a));
        let text = column(None, b'i');
        let fixed = [Value::Fixed; 4];
        assert_eq!(bytes(&[int8.clone(), int4.clone(), int2.clone(), boolean.clone()], &fixed), 24 + 15);
        assert_eq!(bytes(&[boolean.clone(), int8.clone(), int2.clone(), int4.clone()], &fixed), 24 + 24);
        // A text of 126 bytes has a header of one byte, one of 127 has four, aligned.
        for (size, expected) in [(127, 24 + 1 + 127), (131, 24 + 4 + 131)] {
            let row = [boolean.clone(), text.clone()];
            assert_eq!(bytes(&row, &[Value::Fixed, Value::Inline(size)]), expected);
            assert_eq!(bytes(&row, &[Value::Fixed, Value::Compressed(size)]), 24 + 4 + size as usize);
        }
        assert_eq!(bytes(&[boolean, text], &[Value::Fixed, Value::External]), 24 + 1 + 18);
        let mut plain = column(None, b'i');
        plain.is_packable = false;
        assert_eq!(bytes(&[int2, plain], &[Value::Fixed, Value::Inline(10)]), 24 + 4 + 10);
    }

    #[test]
    fn a_null_makes_a_bitmap_for_all_columns_and_a_dropped_one_is_null_in_every_row() {
        let ints = vec![column(Some(4), b'i'); 9];
        let mut values = [Value::Fixed; 9];
        assert_eq!(bytes(&ints, &values), 24 + 36);
        values[0] = Value::Null;
        assert_eq!(bytes(&ints, &values), 32 + 32, "nine bits need two bytes behind 23");
        assert_eq!(bytes(&ints[..8], &values), 24 + 28, "eight bits fit before the data");
        let mut dropped = ints.clone();
        dropped[3].is_dropped = true;
        assert_eq!(bytes(&dropped, &[Value::Fixed; 9]), 32 + 32);
        let rest = [0, 1, 2, 4, 5, 6, 7, 8];
        assert_eq!(Shape { columns: &dropped, order: &rest }.row_bytes(&[Value::Fixed; 9]), 24 + 32);
    }
}
