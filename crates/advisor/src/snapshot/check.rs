//! Whether a snapshot can be of a server. Pure.
//!
//! What is checked here can be relied on everywhere: lists that belong together have the same lengths, and sums of bytes do not
//! overflow.

use super::{CatalogTable, ReadError, Table};
use std::collections::HashSet;

/// Bytes of a relation: 2^32 pages.
const RELATION_BYTES_MAX: u64 = 1 << 45;
/// Bytes of a value.
const VALUE_BYTES_MAX: u32 = 1 << 30;

/// Each table has an OID of its own.
pub(super) fn apart(tables: &[Table]) -> Result<(), ReadError> {
    let mut seen = HashSet::new();
    match tables.iter().find(|table| !seen.insert(table.oid)) {
        Some(table) => {
            Err(ReadError::Twice { table: format!("{}.{}", table.schema, table.name), oid: table.oid })
        }
        None => Ok(()),
    }
}

/// A table with all that belongs to it.
pub(super) fn table(table: &Table) -> Result<(), ReadError> {
    sizes(table)?;
    lists(table)
}

/// A catalog.
pub(super) fn catalog(catalog: &CatalogTable) -> Result<(), ReadError> {
    // With indexes and TOAST.
    at_most(|| catalog.name.clone(), catalog.bytes, RELATION_BYTES_MAX * 16)
}

/// Bytes are as many as there can be.
fn sizes(table: &Table) -> Result<(), ReadError> {
    let own = || format!("{}.{}", table.schema, table.name);
    let toast = table
        .toast
        .map_or([0; 4], |toast| [toast.bytes.main, toast.bytes.fsm, toast.bytes.vm, toast.index_bytes]);
    for bytes in [table.bytes.main, table.bytes.fsm, table.bytes.vm].into_iter().chain(toast) {
        at_most(own, bytes, RELATION_BYTES_MAX)?;
    }
    for index in &table.indexes {
        at_most(|| format!("{} of {}", index.name, own()), index.bytes, RELATION_BYTES_MAX)?;
    }
    let sampled = table.sample.iter().flat_map(|sample| &sample.columns).flat_map(|column| &column.sizes);
    let columns = table.indexes.iter().flat_map(|index| &index.columns);
    let expressions = columns.filter_map(|column| column.expression_sizes.as_ref()).flatten().flatten();
    let largest = sampled.chain(expressions).max().copied().unwrap_or(0);
    at_most(|| format!("a value of {}", own()), largest.into(), VALUE_BYTES_MAX.into())
}

fn at_most(what: impl Fn() -> String, found: u64, most: u64) -> Result<(), ReadError> {
    if found <= most { Ok(()) } else { Err(ReadError::TooMuch { what: what(), found, most }) }
}

/// Lists that belong together have the same lengths.
fn lists(table: &Table) -> Result<(), ReadError> {
    let wrong = |what: String, found: usize, expected: usize| ReadError::Inconsistent {
        table: format!("{}.{}", table.schema, table.name),
        what,
        found,
        expected,
    };
    let Some(sample) = &table.sample else { return Ok(()) };
    let rows = sample.rows.len();
    if sample.columns.len() != table.columns.len() {
        return Err(wrong("columns of the sample".to_owned(), sample.columns.len(), table.columns.len()));
    }
    for (column, of) in sample.columns.iter().zip(&table.columns) {
        let lists = [
            ("sizes", Some(column.sizes.len())),
            ("places", Some(column.places.len())),
            ("values", column.values.as_ref().map(Vec::len)),
        ];
        for (list, found) in lists {
            // Of a dropped column there is nothing.
            let expected = if of.is_dropped { 0 } else { rows };
            if let Some(found) = found.filter(|found| *found != expected) {
                return Err(wrong(format!("{list} of {}", of.name), found, expected));
            }
        }
    }
    for index in &table.indexes {
        for column in &index.columns {
            let lists = [
                ("sizes", column.expression_sizes.as_ref().map(Vec::len)),
                ("values", column.expression_values.as_ref().map(Vec::len)),
            ];
            for (list, found) in lists {
                if let Some(found) = found.filter(|found| *found != rows) {
                    return Err(wrong(format!("{list} of {}", index.name), found, rows));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn what_no_server_can_have_is_refused() {
    use super::sample::SampledColumn;
    use super::{Index, Sample};
    let index = |bytes| Table { indexes: vec![Index { bytes, ..Index::default() }], ..Table::default() };
    assert!(table(&index(RELATION_BYTES_MAX)).is_ok());
    for bytes in [RELATION_BYTES_MAX + 1, 1 << 63, u64::MAX] {
        assert!(matches!(table(&index(bytes)), Err(ReadError::TooMuch { found, .. }) if found == bytes));
        let mut large = Table::default();
        large.bytes.main = bytes;
        assert!(matches!(table(&large), Err(ReadError::TooMuch { .. })));
        assert!(catalog(&CatalogTable { bytes, ..CatalogTable::default() }).is_err() || bytes < u64::MAX / 8);
    }
    let sampled = |size| {
        let column = SampledColumn { sizes: vec![size], ..SampledColumn::default() };
        Table { sample: Some(Sample { columns: vec![column], ..Sample::default() }), ..Table::default() }
    };
    assert!(matches!(table(&sampled(u32::MAX)), Err(ReadError::TooMuch { .. })));
    assert!(matches!(table(&sampled(VALUE_BYTES_MAX)), Err(ReadError::Inconsistent { .. })), "other lists");
}

#[test]
fn two_tables_of_one_oid_are_refused_by_name() {
    let of = |oid: u32| Table { oid, schema: "s".to_owned(), name: format!("t{oid}"), ..Table::default() };
    assert!(apart(&[of(1), of(2)]).is_ok());
    let error = apart(&[of(1), of(7), of(7)]).unwrap_err().to_string();
    assert!(error.contains("s.t7") && error.contains("OID 7"), "{error}");
}
