//! Tables that a script of ours has left: the old one beside the new one, which has its name.

use crate::plan::with_suffix;
use crate::report::shown;
use crate::snapshot::{Snapshot, Table, TableKind};
use crate::sql::qualified;
use std::collections::{BTreeMap, BTreeSet};

/// OIDs of old tables. Each has the name that a plan gives it, the columns of a table of the same schema, and was made before that one.
pub(super) fn old_tables(snapshot: &Snapshot) -> BTreeSet<u32> {
    let plain = |table: &&Table| table.kind == TableKind::Table && table.extension.is_none();
    let mut by_schema: BTreeMap<&str, BTreeMap<&str, &Table>> = BTreeMap::new();
    for table in snapshot.tables.iter().filter(plain) {
        by_schema.entry(&table.schema).or_default().insert(&table.name, table);
    }
    let is_old = |table: &&Table| {
        let Some((own, suffix)) = parts(&table.name) else { return false };
        let Some(others) = by_schema.get(table.schema.as_str()) else { return false };
        // A new table's own name may be longer: of the old one's the end was cut off.
        let mut new = others.range(own..).map_while(|(name, new)| name.starts_with(own).then_some(*new));
        new.any(|new| {
            with_suffix(&new.name, suffix) == table.name && table.oid < new.oid && names(table) == names(new)
        })
    };
    snapshot.tables.iter().filter(plain).filter(is_old).map(|table| table.oid).collect()
}

/// What is said of an old table.
pub(super) fn note(table: &Table) -> String {
    format!(
        "{}.{}: left by a rewrite: DROP TABLE {} frees {}. It is in no finding and no proposal.",
        table.schema,
        table.name,
        qualified(&table.schema, &table.name),
        shown::size(crate::simulate::Sizes::now(table).total())
    )
}

/// The name before `_old`, `_old2`, `_old3`…, and that.
fn parts(name: &str) -> Option<(&str, &str)> {
    let (own, number) = name.rsplit_once("_old")?;
    let is_number =
        number.is_empty() || number.parse::<u32>().is_ok_and(|n| n >= 2 && n.to_string() == number);
    (is_number && !own.is_empty()).then(|| name.split_at(own.len()))
}

/// Of its columns.
fn names(table: &Table) -> BTreeSet<&str> {
    table.columns.iter().filter(|column| !column.is_dropped).map(|column| column.name.as_str()).collect()
}
