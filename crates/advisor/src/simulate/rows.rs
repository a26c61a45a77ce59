//! Sampled rows as they are stored after some changes.

use super::toast::{Content, Datum, Method, Toaster};
use crate::arrangement::{Arrangement, Source};
use crate::edit::Recompression;
use crate::layout::Value;
use crate::snapshot::sample::{Place, SampledColumn};
use crate::snapshot::{Column, Sample, Server, Table};

/// `VARATT_SHORT_MAX`: most bytes of a value with a header of one byte.
const SHORT_BYTES_MAX: u32 = 127;
/// What a header of four bytes has more than one of one byte.
const HEADER_MORE: u32 = 3;

/// The sampled rows of a table in an arrangement.
pub(crate) struct Rows<'a> {
    table: &'a Table,
    sample: Option<&'a Sample>,
    arrangement: &'a Arrangement<'a>,
    toaster: Toaster,
    data: Vec<Datum<'a>>,
}

/// A row as it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRow<'r> {
    /// By column of the arrangement.
    pub values: &'r [Value],
    /// Bytes in the table, not yet aligned.
    pub bytes: usize,
    /// Bytes of each value that goes to the TOAST table, in the order in which they are stored there.
    pub external: &'r [u32],
}

impl<'a> Rows<'a> {
    /// The settings of the server say how columns without a compression of their own are compressed.
    pub(crate) fn of(server: &Server, table: &'a Table, arrangement: &'a Arrangement<'a>) -> Rows<'a> {
        let usual = server.settings.get("default_toast_compression").map(String::as_str);
        let storages =
            arrangement.columns.iter().map(|stored| storage(table, &stored.source, &stored.layout));
        let methods = arrangement.columns.iter().map(|stored| method(table, &stored.source, usual));
        let layouts = arrangement.columns.iter().map(|stored| stored.layout.clone()).collect();
        let toaster = Toaster::new(
            layouts,
            storages.collect(),
            methods.collect(),
            usize::from(arrangement.toast_target),
        );
        Rows { table, sample: table.sample.as_ref(), arrangement, toaster, data: Vec::new() }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.sample.map_or(0, |sample| sample.rows.len())
    }

    /// A row by its index in the sample.
    pub(crate) fn row(&mut self, row: usize) -> StoredRow<'_> {
        self.data.clear();
        for stored in &self.arrangement.columns {
            let datum = match stored.source {
                Source::Kept(column) => self.kept(column, row),
                Source::New(images) => image(images, row, stored.layout.length.is_some()),
                Source::Recompressed(recompression) => {
                    recompressed(recompression, row, stored.layout.is_packable)
                }
            };
            self.data.push(datum);
        }
        self.toaster.store(&mut self.data)
    }

    /// Of so many rows at most, evenly spread, what is stored in the table.
    pub(crate) fn some_values(&mut self, rows_max: usize) -> Vec<Vec<Value>> {
        let stride = self.count().div_ceil(rows_max).max(1);
        (0..self.count()).step_by(stride).map(|row| self.row(row).values.to_vec()).collect()
    }

    /// A value that stays as it is. `INSERT … SELECT` copies compressed values as they are, and fetches those that are stored
    /// outside, in the form that they have there.
    fn kept(&self, index: usize, row: usize) -> Datum<'a> {
        let known =
            self.table.columns.get(index).zip(self.sample.and_then(|sample| sample.columns.get(index)));
        let Some((column, sampled)) = known else { return Datum::Null };
        let place = sampled.places.get(row).copied().unwrap_or_default();
        if column.is_dropped || column.generated == 'v' || place == Place::Null {
            return Datum::Null;
        }
        if column.length > 0 {
            return Datum::Fixed;
        }
        let bytes = sampled.sizes.get(row).copied().unwrap_or(0);
        match place {
            Place::Null => Datum::Null,
            Place::Inline => plain(bytes, content_of(column, sampled, row)),
            Place::Pglz | Place::Lz4 => Datum::Compressed { bytes, is_outside: false },
            // Outside there is no header. Compression was tried before it went there, if its column has it.
            Place::External => Datum::Plain {
                bytes: bytes.saturating_add(4),
                content: Content::Incompressible,
                is_outside: true,
            },
            Place::ExternalPglz | Place::ExternalLz4 => {
                Datum::Compressed { bytes: bytes.saturating_add(4), is_outside: true }
            }
            // The catalog has it with a header of four bytes.
            Place::Missing => plain(shortened(bytes, column.storage != 'p'), Content::Unknown),
        }
    }
}

fn plain(bytes: u32, content: Content<'_>) -> Datum<'_> {
    Datum::Plain { bytes, content, is_outside: false }
}

/// Bytes of a value whose header may become shorter.
fn shortened(bytes: u32, is_packable: bool) -> u32 {
    match bytes.checked_sub(HEADER_MORE) {
        Some(short) if is_packable && (1..=SHORT_BYTES_MAX).contains(&short) => short,
        _ => bytes,
    }
}

fn image(images: &[Option<Vec<u8>>], row: usize, is_fixed: bool) -> Datum<'_> {
    match images.get(row) {
        Some(Some(_)) if is_fixed => Datum::Fixed,
        Some(Some(image)) => {
            let bytes = u32::try_from(image.len()).unwrap_or(u32::MAX);
            let header = if bytes <= SHORT_BYTES_MAX { 1 } else { 4 };
            plain(bytes, image.get(header..).map_or(Content::Incompressible, Content::Bytes))
        }
        _ => Datum::Null,
    }
}

fn recompressed(recompression: &Recompression, row: usize, is_packable: bool) -> Datum<'_> {
    let Some(Some(raw)) = recompression.raw.get(row).copied() else { return Datum::Null };
    let compressed = recompression.compressed.get(row).copied().flatten();
    plain(shortened(raw, is_packable), Content::CompressesTo(compressed))
}

/// What is known of a value's bytes.
fn content_of<'a>(column: &Column, sampled: &'a SampledColumn, row: usize) -> Content<'a> {
    let value = sampled.values.as_ref().and_then(|values| values.get(row)).and_then(Option::as_ref);
    match (value, &*column.base_type_id) {
        (Some(text), "text" | "varchar" | "bpchar" | "json" | "xml") => Content::Bytes(text.as_bytes()),
        (Some(text), "bytea") => text.strip_prefix("\\x").map_or(Content::Unknown, Content::Hex),
        (Some(text), "jsonb") => Content::Like(text.as_bytes()),
        _ => Content::Unknown,
    }
}

/// `attstorage` of a column after the changes.
pub(super) fn storage(table: &Table, source: &Source<'_>, layout: &crate::layout::Column) -> char {
    let own = |index: usize| table.columns.get(index).map_or('p', |column| column.storage);
    match source {
        _ if layout.length.is_some() => 'p',
        Source::Kept(index) => own(*index),
        Source::New(_) if layout.is_packable => 'x',
        Source::New(_) => 'p',
        Source::Recompressed(recompression) => match recompression.storage.as_deref() {
            Some("plain") => 'p',
            Some("main") => 'm',
            Some("external") => 'e',
            Some("extended") => 'x',
            _ => own(recompression.column),
        },
    }
}

/// How a column's values are compressed. What [`Recompression`] has measured is not compressed here.
fn method(table: &Table, source: &Source<'_>, usual: Option<&str>) -> Method {
    let letter = match source {
        Source::Kept(index) => table.columns.get(*index).map(|column| column.compression),
        _ => None,
    };
    match (letter, usual) {
        (Some('l'), _) => Method::Lz4,
        (Some('p'), _) => Method::Pglz,
        (_, Some("lz4")) => Method::Lz4,
        _ => Method::Pglz,
    }
}
