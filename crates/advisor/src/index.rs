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
pub mod tuple;

use crate::edit::Retype;
use crate::snapshot::{Index, Table, TableKind};
use predicate::Predicate;

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
    if changed.iter().any(|retype| is_computed_with(table, index, retype)) {
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
pub(crate) fn concerns(table: &Table, index: &Index, retype: &Retype) -> bool {
    let number = i16::try_from(retype.column + 1).unwrap_or(i16::MAX);
    index.columns.iter().any(|column| column.table_column == number) || is_computed_with(table, index, retype)
}

/// Whether an expression or the predicate of the index depends on the column's type.
fn is_computed_with(table: &Table, index: &Index, retype: &Retype) -> bool {
    let name = table.columns.get(retype.column).map_or("", |column| &column.name);
    let mut expressions = index.columns.iter().filter(|column| column.table_column <= 0);
    let by_predicate = index.predicate.as_deref().filter(|text| mentions(text, name)).is_some_and(|text| {
        // NULL is NULL in any type.
        Predicate::parse(table, text).is_none_or(|predicate| predicate.compares(retype.column))
    });
    by_predicate || expressions.any(|column| mentions(&column.definition, name))
}

/// Whether the name is in the text, and not a part of a longer one.
fn mentions(text: &str, name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    let quoted = name.replace('"', "\"\"");
    !name.is_empty()
        && text.match_indices(&*quoted).any(|(at, found)| {
            let (before, after) = (text[..at].chars().next_back(), text[at + found.len()..].chars().next());
            !before.is_some_and(is_letter) && !after.is_some_and(is_letter)
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_as_a_word() {
        assert!(mentions("lower(name)", "name") && mentions("(\"a \"\"b\" || 'x')", "a \"b"));
        assert!(!mentions("lower(rename)", "name") && !mentions("(n_1 IS NULL)", "n") && !mentions("x", ""));
    }

    #[test]
    fn what_an_index_has_now_is_never_exceeded_by_an_estimate() {
        let index = |bytes, options: &[&str]| Index {
            bytes,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            ..Index::default()
        };
        assert_eq!(anchored(&index(100, &[]), 96), 100);
        assert_eq!(anchored(&index(100, &[]), 150), 100);
        assert_eq!(anchored(&index(100, &[]), 90), 90);
        assert_eq!(anchored(&index(100, &["fillfactor=50"]), 150), 150);
        assert_eq!(anchored(&index(0, &[]), 150), 150);
    }
}
