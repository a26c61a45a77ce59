//! Sizes of indexes when they are built.
//!
//! B-trees are built from the sampled rows: tuples as `index_form_tuple` makes them, equal ones in posting lists, leaves
//! and inner pages as `CREATE INDEX` fills them. From a whole table's rows the result is exact but for what a collation's
//! order changes. From a sample, tuples are drawn as often as the model in [`duplicates`] says that the table
//! has them, and pages are scaled.
//!
//! Where no column changes, what the index has now is a second measurement: it is never smaller than one that was just built, so a
//! result from a part of the rows that is as large or larger, or smaller by a few per cent, is replaced by it.
//!
//! Not simulated: other access methods than `btree`; they are taken as they are unless a column changes.

pub mod btree;
pub mod duplicates;
pub mod key;
pub mod predicate;
mod rows;
pub mod sql;
pub mod tuple;

use crate::edit::Retype;
use crate::snapshot::{Index, Table, TableKind};

/// Results from samples that are this near below what the index has now are no better than it.
const NEAR: f64 = 0.95;

/// Bytes of the index when it is built anew over so many rows of the table, with these columns of the table changed.
/// None: indexes of its kind are not simulated, or what it takes was not sampled.
pub fn rebuilt_bytes(table: &Table, index: &Index, rows: u64, retyped: &[&Retype]) -> Option<u64> {
    if !matches!(table.kind, TableKind::Table | TableKind::MaterializedView) {
        return Some(index.bytes);
    }
    let changed: Vec<&Retype> =
        retyped.iter().copied().filter(|retype| concerns(table, index, retype)).collect();
    if index.access_method != "btree" {
        return changed.is_empty().then_some(index.bytes);
    }
    let in_expressions = |retype: &&Retype| {
        let name = table.columns.get(retype.column).map_or("", |column| &column.name);
        let expressions = index.columns.iter().filter(|column| column.table_column <= 0);
        let expressions = expressions.map(|column| &*column.definition).chain(index.predicate.as_deref());
        expressions.into_iter().any(|text| text.contains(name))
    };
    if changed.iter().any(in_expressions) {
        return None;
    }
    if changed.is_empty() {
        return rebuilt(table, index, rows).map(|rebuilt| rebuilt.bytes);
    }
    let built = rows::built(table, index, rows, &changed)?;
    if built.basis == Basis::AllRows {
        return Some(built.bytes);
    }
    // The same error is in both, if there is one: what is now cannot be smaller than what is built.
    let now = rows::built(table, index, rows, &[])?.bytes;
    if index.bytes > 0 && now > index.bytes {
        let scaled = u128::from(built.bytes) * u128::from(index.bytes) / u128::from(now.max(1));
        return Some(pages_up(u64::try_from(scaled).unwrap_or(u64::MAX)));
    }
    Some(built.bytes)
}

/// Bytes of a B-tree when it is built anew as it is, and what that is known from.
pub fn rebuilt(table: &Table, index: &Index, rows: u64) -> Option<Rebuilt> {
    if index.access_method != "btree" {
        return None;
    }
    let built = rows::built(table, index, rows, &[])?;
    let bytes = if built.basis == Basis::AllRows { built.bytes } else { anchored(index, built.bytes) };
    Some(Rebuilt { bytes, ..built })
}

/// An index that was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// Its bytes.
    pub bytes: u64,
    /// What they are known from.
    pub basis: Basis,
}

/// What is known of the rows of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// All of them, with their values.
    AllRows,
    /// Some of them.
    Sample,
    /// Some of them, and what `ANALYZE` found about duplicates.
    Statistics,
    /// Which rows share keys, or which are in the index, is not known: it is not larger than that.
    Bound,
}

/// Bytes of an index that is not there, over so many rows of the table.
pub fn planned_bytes(table: &Table, index: &Index, rows: u64) -> Option<u64> {
    if index.access_method != "btree" {
        return None;
    }
    rows::built(table, index, rows, &[]).map(|built| built.bytes)
}

/// Whether a column that gets another type is in the index, as a key or in an expression.
fn concerns(table: &Table, index: &Index, retype: &Retype) -> bool {
    let number = i16::try_from(retype.column + 1).unwrap_or(i16::MAX);
    let name = table.columns.get(retype.column).map_or("", |column| &column.name);
    let is_named = |text: &str| !name.is_empty() && text.contains(name);
    index.columns.iter().any(|column| {
        column.table_column == number || column.table_column <= 0 && is_named(&column.definition)
    }) || index.predicate.as_deref().is_some_and(is_named)
}

/// The better figure of an index that is built anew as it is.
fn anchored(index: &Index, built: u64) -> u64 {
    if index.bytes == 0 || built as f64 >= index.bytes as f64 * NEAR {
        let has_other_fill = index.options.iter().any(|option| option.starts_with("fillfactor="));
        // It may have been filled before the option was set.
        return if has_other_fill && built > index.bytes || index.bytes == 0 { built } else { index.bytes };
    }
    built
}

fn pages_up(bytes: u64) -> u64 {
    bytes.div_ceil(8192).saturating_mul(8192)
}
