//! Which values of a row are compressed or stored outside.
//!
//! Source: `heap_toast_insert_or_update` in `src/backend/access/heap/heaptoast.c`, `toast_helper.c`, `toast_compress_datum` in
//! `toast_internals.c`.
//!
//! What is not known of a value, and what is assumed:
//! 1. A value that is stored outside and not compressed does not compress: the server tried that before it moved it there.
//! 2. A value in the row that is not compressed is compressed here if its bytes are known (types whose text is what is stored, and
//!    new values of a retyped column). A `jsonb` is taken to compress like its text, anything else not at all. That matters only in
//!    rows that are longer than 2,032 bytes after the change, and in which the server did not try that value before.
//! 3. A compressed value stays as it is.

use super::rows::StoredRow;
use crate::layout::{Column, Shape, Value};
use pgshrink_codec::bare::Compressor;
use pgshrink_codec::{Algorithm, Choice, pglz};

/// `TOAST_TUPLE_THRESHOLD`: longer rows have their values compressed or moved.
const THRESHOLD: usize = 2032;
/// `TOAST_TUPLE_TARGET_MAIN`: values of `MAIN` storage leave a row only if it is longer.
const TARGET_MAIN: usize = 8160;
/// `MAXALIGN(TOAST_POINTER_SIZE)`: no shorter value is compressed or moved.
const POINTER_BYTES: u32 = 24;
/// The header of a value and of a compressed one.
const HEADER_BYTES: u32 = 4;
const COMPRESSED_HEADER_BYTES: usize = 8;
/// `min_input_size` of `PGLZ_strategy_default`.
const PGLZ_BYTES_MIN: usize = 32;

/// A value on its way into a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Datum<'a> {
    Null,
    /// Of a type of fixed length.
    Fixed,
    /// Not compressed, with its header.
    Plain {
        bytes: u32,
        content: Content<'a>,
        is_outside: bool,
    },
    /// Compressed, with its header.
    Compressed {
        bytes: u32,
        is_outside: bool,
    },
    /// Stored outside.
    Moved,
}

/// What compression would make of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// Nothing is known.
    Unknown,
    /// It was tried.
    Incompressible,
    /// To be found out: these are its bytes, without the header.
    Bytes(&'a [u8]),
    /// To be found out: these are its bytes in hexadecimal digits.
    Hex(&'a str),
    /// As well as these bytes do.
    Like(&'a [u8]),
    /// Measured, header included; None: it does not pay.
    CompressesTo(Option<u32>),
}

/// How values are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Pglz,
    Lz4,
}

/// Stores rows of one table.
pub(super) struct Toaster {
    layouts: Vec<Column>,
    order: Vec<usize>,
    storages: Vec<char>,
    methods: Vec<Method>,
    target: usize,
    values: Vec<Value>,
    external: Vec<u32>,
    is_tried: Vec<bool>,
    compressor: Compression,
}

impl Toaster {
    pub(super) fn new(
        layouts: Vec<Column>,
        storages: Vec<char>,
        methods: Vec<Method>,
        target: usize,
    ) -> Toaster {
        Toaster {
            order: (0..layouts.len()).collect(),
            is_tried: vec![false; layouts.len()],
            layouts,
            storages,
            methods,
            target,
            values: Vec::new(),
            external: Vec::new(),
            compressor: Compression::default(),
        }
    }

    /// What a row with these values becomes.
    pub(super) fn store(&mut self, data: &mut [Datum<'_>]) -> StoredRow<'_> {
        self.external.clear();
        self.values.clear();
        self.values.extend(data.iter().map(value_of));
        let mut bytes = self.row_bytes();
        if bytes > THRESHOLD || data.iter().any(is_outside) {
            bytes = self.toast(data, bytes);
        }
        StoredRow { values: &self.values, bytes, external: &self.external }
    }

    fn row_bytes(&self) -> usize {
        Shape { columns: &self.layouts, order: &self.order }.row_bytes(&self.values)
    }

    /// The four rounds of `heap_toast_insert_or_update`.
    fn toast(&mut self, data: &mut [Datum<'_>], mut bytes: usize) -> usize {
        self.is_tried.fill(false);
        let data_target = self.target.saturating_sub(self.header_bytes());
        while bytes > self.target {
            let Some(index) = self.biggest(data, true, false) else { break };
            if self.storages[index] == 'x' {
                self.compress(data, index);
            }
            self.is_tried[index] = true;
            if size_of(&data[index]) as usize > data_target {
                self.externalize(data, index);
            }
            bytes = self.row_bytes();
        }
        while bytes > self.target {
            let Some(index) = self.biggest(data, false, false) else { break };
            self.externalize(data, index);
            bytes = self.row_bytes();
        }
        while bytes > self.target {
            let Some(index) = self.biggest(data, true, true) else { break };
            self.compress(data, index);
            self.is_tried[index] = true;
            bytes = self.row_bytes();
        }
        while bytes > TARGET_MAIN {
            let Some(index) = self.biggest(data, false, true) else { break };
            self.externalize(data, index);
            bytes = self.row_bytes();
        }
        bytes
    }

    /// `t_hoff` of the row.
    fn header_bytes(&self) -> usize {
        let is_null = |(value, column): (&Value, &Column)| *value == Value::Null || column.is_dropped;
        let has_null = self.values.iter().zip(&self.layouts).any(is_null);
        let bitmap = if has_null { self.layouts.len().div_ceil(8) } else { 0 };
        (23 + bitmap).next_multiple_of(8)
    }

    /// `toast_tuple_find_biggest_attribute`.
    fn biggest(&self, data: &[Datum<'_>], to_compress: bool, is_main: bool) -> Option<usize> {
        let mut found = None;
        let mut most = POINTER_BYTES;
        for (index, datum) in data.iter().enumerate() {
            let is_meant = match self.storages[index] {
                'm' => is_main,
                'x' | 'e' => !is_main,
                _ => false,
            };
            let is_compressed = matches!(datum, Datum::Compressed { .. });
            if !is_meant || (to_compress && (self.is_tried[index] || is_compressed)) {
                continue;
            }
            if size_of(datum) > most {
                (found, most) = (Some(index), size_of(datum));
            }
        }
        found
    }

    /// `toast_tuple_try_compression`.
    fn compress(&mut self, data: &mut [Datum<'_>], index: usize) {
        let Datum::Plain { bytes, content, is_outside } = data[index] else { return };
        let method = self.methods[index];
        let compressed = match content {
            Content::Unknown | Content::Incompressible => None,
            Content::CompressesTo(bytes) => bytes,
            Content::Bytes(raw) => self.compressor.bytes(method, raw),
            Content::Hex(digits) => self.compressor.bytes(method, &from_hex(digits)),
            Content::Like(other) => self.compressor.bytes(method, other).and_then(|found| {
                let ratio = f64::from(found) / other.len().max(1) as f64;
                let found = (f64::from(bytes) * ratio) as u32;
                (found + 2 < bytes).then_some(found)
            }),
        };
        if let Some(bytes) = compressed {
            data[index] = Datum::Compressed { bytes, is_outside };
            self.values[index] = Value::Compressed(bytes);
        }
    }

    /// `toast_tuple_externalize`.
    fn externalize(&mut self, data: &mut [Datum<'_>], index: usize) {
        let stored = match data[index] {
            // A header of one byte goes too.
            Datum::Plain { bytes, .. } if bytes <= 127 && self.layouts[index].is_packable => {
                bytes.saturating_sub(1)
            }
            Datum::Plain { bytes, .. } | Datum::Compressed { bytes, .. } => {
                bytes.saturating_sub(HEADER_BYTES)
            }
            Datum::Null | Datum::Fixed | Datum::Moved => return,
        };
        self.external.push(stored);
        data[index] = Datum::Moved;
        self.values[index] = Value::External;
    }
}

fn value_of(datum: &Datum<'_>) -> Value {
    match datum {
        Datum::Null => Value::Null,
        Datum::Fixed => Value::Fixed,
        Datum::Plain { bytes, .. } => Value::Inline(*bytes),
        Datum::Compressed { bytes, .. } => Value::Compressed(*bytes),
        Datum::Moved => Value::External,
    }
}

/// Whether it was stored outside: such a row is looked at even if it is short.
fn is_outside(datum: &Datum<'_>) -> bool {
    matches!(datum, Datum::Plain { is_outside: true, .. } | Datum::Compressed { is_outside: true, .. })
}

/// Bytes of what could be compressed or moved.
fn size_of(datum: &Datum<'_>) -> u32 {
    match datum {
        Datum::Plain { bytes, .. } | Datum::Compressed { bytes, .. } => *bytes,
        Datum::Null | Datum::Fixed | Datum::Moved => 0,
    }
}

fn from_hex(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    digits.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// What compresses values, with its memory.
#[derive(Default)]
struct Compression {
    pglz: pglz::Workspace,
    lz4: Compressor,
    out: Vec<u8>,
}

impl Compression {
    /// Bytes of a compressed value with its header. None: it does not become shorter by more than two bytes, or by less than the
    /// quarter that pglz wants.
    fn bytes(&mut self, method: Method, raw: &[u8]) -> Option<u32> {
        self.out.clear();
        let is_done = match method {
            Method::Pglz => {
                raw.len() >= PGLZ_BYTES_MIN
                    && pglz::compress(&mut self.pglz, &pglz::Strategy::DEFAULT, raw, &mut self.out)
            }
            Method::Lz4 => {
                let choice = Choice::new(Algorithm::Lz4, 1).ok()?;
                self.lz4.compress(choice, None, raw, &mut self.out).is_ok()
            }
        };
        let bytes = self.out.len() + COMPRESSED_HEADER_BYTES;
        if is_done && bytes + 2 < raw.len() { u32::try_from(bytes).ok() } else { None }
    }
}
