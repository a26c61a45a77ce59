//! The new table: its columns, its rows and its indexes.

use super::Subject;
use super::belongings;
use super::columns::{Change, NewColumn};
use super::sql::{dollar, ident, list, literal, shown};
use super::users::options;
use crate::snapshot::definition::{Constraint, Index};
use std::collections::BTreeSet;

/// Makes the table under this name, without rows.
pub(super) fn create(subject: &Subject<'_>, name: &str, is_unlogged: bool) -> Vec<String> {
    let relation = subject.relation;
    let mut parts: Vec<String> = subject.changes.columns.iter().map(column).collect();
    let at_once = |constraint: &&Constraint| matches!(constraint.kind, 'c' | 'n') && constraint.is_validated;
    let constraint =
        |constraint: &Constraint| format!("CONSTRAINT {} {}", ident(&constraint.name), constraint.definition);
    parts.extend(relation.constraints.iter().filter(at_once).map(constraint));
    let unlogged = if is_unlogged || relation.persistence == 'u' { "UNLOGGED " } else { "" };
    let options = options(&storage_options(subject), &relation.toast_options);
    let space = match relation.tablespace.is_empty() {
        true => String::new(),
        false => format!(" TABLESPACE {}", ident(&relation.tablespace)),
    };
    let columns = parts.join(",\n  ");
    let mut statements = vec![format!(
        "CREATE {unlogged}TABLE {name} (\n  {columns}\n) USING {}{options}{space};",
        ident(&relation.access_method)
    )];
    for column in &subject.changes.columns {
        let Some(old) = column.old else { continue };
        let mut old = old.clone();
        match column.change {
            Change::Retyped(_) => (old.storage, old.compression) = (None, None),
            Change::Recompressed(change) => {
                old.storage = change.storage.as_ref().map(|storage| storage.to_uppercase()).or(old.storage);
                old.compression = change.compression.clone().or(old.compression);
            }
            Change::Kept | Change::Extracted(_) => {}
        }
        statements.extend(belongings::storage(name, &old));
    }
    statements
}

/// `reloptions` with what the edits set.
pub(super) fn storage_options(subject: &Subject<'_>) -> Vec<String> {
    let changes = &subject.changes;
    let set = [
        ("fillfactor", changes.fillfactor.map(u32::from)),
        ("toast_tuple_target", changes.toast_target.map(u32::from)),
    ];
    let is_set = |option: &&String| {
        set.iter().any(|(name, value)| value.is_some() && option.split('=').next() == Some(name))
    };
    let kept = subject.relation.options.iter().filter(|option| !is_set(option)).cloned();
    let new = set.iter().filter_map(|(name, value)| Some(format!("{name}={}", (*value)?)));
    kept.chain(new).collect()
}

fn column(column: &NewColumn<'_>) -> String {
    let mut text = format!("{} {}", ident(column.name), column.type_name);
    let Some(old) = column.old else { return text };
    if let Some(collation) = old.collation.as_ref().filter(|_| !is_uncollatable(column)) {
        text.push_str(&format!(" COLLATE {collation}"));
    }
    if let (Some(expression), false) = (&column.default, old.generated.is_empty()) {
        let kind = if old.generated == "v" { "VIRTUAL" } else { "STORED" };
        text.push_str(&format!(" GENERATED ALWAYS AS ({expression}) {kind}"));
    }
    if old.is_not_null && !old.has_own_not_null {
        text.push_str(" NOT NULL");
    }
    text
}

/// Its new type has no collation: all but those that are made of text.
pub(super) fn is_uncollatable(column: &NewColumn<'_>) -> bool {
    let name = column.type_name.to_lowercase();
    let is_text =
        ["text", "character", "varchar", "char", "citext", "name"].iter().any(|text| name.contains(text));
    matches!(column.change, Change::Retyped(_)) && !is_text
}

/// Names of columns that rows are written with, and their values from the old table's rows.
pub(super) fn columns_and_values(subject: &Subject<'_>) -> (String, String) {
    let stored =
        || subject.changes.columns.iter().filter_map(|column| Some((column.name, column.source.clone()?)));
    (list(stored().map(|(name, _)| ident(name))), list(stored().map(|(_, source)| source)))
}

/// `INSERT INTO new (…) SELECT … FROM ONLY old` without a condition.
pub(super) fn copy(subject: &Subject<'_>, old: &str, new: &str) -> String {
    let (columns, values) = columns_and_values(subject);
    let columns = if columns.is_empty() { String::new() } else { format!(" ({columns})") };
    format!("INSERT INTO {new}{columns}\nSELECT {values}\nFROM ONLY {old}")
}

/// Statements of PL/pgSQL that compare both tables by count and hash; the rows' order does not matter. They need variables
/// `pgshrink_old_rows`, `pgshrink_old_hash`, `pgshrink_new_rows` and `pgshrink_new_hash`.
pub(super) fn compare(subject: &Subject<'_>, old: &str, new: &str) -> String {
    let before = rows_before(subject);
    let after = list(subject.changes.columns.iter().map(|column| ident(column.name)));
    let read = |rows: &str, hash: &str, row: &str, table: &str| {
        format!(
            "SELECT count(*), coalesce(sum(pg_catalog.hashtextextended(ROW({row})::text COLLATE \"C\", 0)::numeric), 0)
    INTO {rows}, {hash} FROM ONLY {table};"
        )
    };
    let message =
        literal(&format!("pgshrink: the copy of the rows of {} differs from the original", subject.shown()));
    format!(
        "  {}
  {}
  IF pgshrink_old_rows <> pgshrink_new_rows OR pgshrink_old_hash <> pgshrink_new_hash THEN
    RAISE EXCEPTION USING MESSAGE = {message}, DETAIL = pgshrink_old_rows || ' rows, now ' || pgshrink_new_rows,
      HINT = 'Nothing was changed: the old table is in use.';
  END IF;",
        read("pgshrink_old_rows", "pgshrink_old_hash", &before, old),
        read("pgshrink_new_rows", "pgshrink_new_hash", &after, new)
    )
}

/// What the columns are to be, from a row of the old table.
pub(super) fn rows_before(subject: &Subject<'_>) -> String {
    list(subject.changes.columns.iter().map(|column| match (&column.source, column.change) {
        (None, _) | (_, Change::Kept | Change::Recompressed(_)) => ident(column.name),
        (Some(source), _) => format!("({source})::{}", column.type_name),
    }))
}

/// The variables of [`compare`].
pub(super) const COMPARED: &str = "pgshrink_old_rows bigint; pgshrink_old_hash numeric; pgshrink_new_rows bigint; pgshrink_new_hash numeric;";

/// A block that compares both tables.
pub(super) fn check(subject: &Subject<'_>, old: &str, new: &str) -> String {
    let body = format!(
        "#variable_conflict use_column\nDECLARE\n  {COMPARED}\nBEGIN\n{}\nEND",
        compare(subject, old, new)
    );
    format!("DO {};", dollar(&body))
}

/// Makes an index, and the constraint that it is for, on this table under this name.
pub(super) fn index_statements(index: &Index, table: &str, name: &str) -> Vec<String> {
    let mut statements = Vec::new();
    if !index.tablespace.is_empty() {
        statements.push(format!("SET LOCAL default_tablespace = {};", literal(&index.tablespace)));
    }
    let schema = table_schema(table);
    let unique = if index.is_unique { "UNIQUE " } else { "" };
    let own = ident(name);
    let add = format!("ALTER TABLE {table} ADD CONSTRAINT {own}");
    let made_from_index = format!("CREATE {unique}INDEX {own} ON {table} {};", index.tail);
    match (index.constraint_type, index.is_period) {
        (None, _) => statements.push(made_from_index),
        (Some('p'), false) => {
            statements.push(made_from_index);
            statements.push(format!("{add} PRIMARY KEY USING INDEX {own}{};", index.constraint_tail));
        }
        (Some('u'), false) => {
            statements.push(made_from_index);
            statements.push(format!("{add} UNIQUE USING INDEX {own}{};", index.constraint_tail));
        }
        (Some(_), _) => {
            let definition = index.constraint_definition.as_deref().unwrap_or_default();
            statements.push(format!("{add} {definition};"));
            if !index.options.is_empty() {
                let options = list(index.options.iter().map(|option| super::sql::parameter(option)));
                statements.push(format!("ALTER INDEX {schema}{own} SET ({options});"));
                statements.push(format!("REINDEX INDEX {schema}{own};"));
            }
        }
    }
    if !index.tablespace.is_empty() {
        statements.push("SET LOCAL default_tablespace = '';".to_owned());
    }
    let target = |(column, target): &(i16, i32)| {
        format!("ALTER INDEX {schema}{own} ALTER COLUMN {column} SET STATISTICS {target};")
    };
    statements.extend(index.statistics.iter().map(target));
    statements
}

/// `"schema".` of a qualified name in quotes.
fn table_schema(table: &str) -> String {
    let words = super::sql::words(table);
    match words.first() {
        Some((super::sql::Word::Name(schema), _)) if words.len() == 3 => format!("{}.", ident(schema)),
        _ => String::new(),
    }
}

/// What a step says of a table's lock.
pub(super) fn lock_text(subject: &Subject<'_>, how_long: &str) -> String {
    // Several keys may lead to one table.
    let others: BTreeSet<String> = subject
        .relation
        .referenced
        .iter()
        .map(|key| shown(&key.table))
        .chain(subject.relation.constraints.iter().filter_map(|key| key.partner.as_deref().map(shown)))
        .filter(|other| *other != subject.shown())
        .collect();
    let others: Vec<String> = others.into_iter().collect();
    let others = if others.is_empty() { String::new() } else { format!(" and {}", others.join(", ")) };
    format!("ACCESS EXCLUSIVE on {}{others}, {how_long}", subject.shown())
}
