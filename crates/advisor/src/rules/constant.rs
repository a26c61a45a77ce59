//! Columns with the same value in nearly all rows.
//!
//! A NULL costs a bit of the row's bitmap, and nothing where another column is NULL anyway. So columns that are nearly always NULL
//! are not spoken of: they take no room. A value that is always the same takes its room in each row.

use crate::edit::{Edit, Removal};
use crate::finding::{Bytes, Confidence, Finding, Rule};
use crate::layout::{Column, Shape, Value};
use crate::rules::{Candidate, column_object};
use crate::snapshot::sample::Place;
use crate::snapshot::{Sample, Snapshot, Table, TableKind};
use crate::sql::{qualified, quote_ident, quote_literal};
use std::collections::HashMap;

/// Rows, at least, unless the whole table was read.
const ROWS_MIN: usize = 1_000;
/// Rows of a table that was read as a whole, at least.
const WHOLE_ROWS_MIN: usize = 100;
/// One row in so many may have another value.
const EXCEPTIONS_PART: usize = 1_000;
/// Values with more characters are not written into SQL.
const CHARACTERS_MAX: usize = 200;
/// Types that can be compared with a literal in every session.
const COMPARABLE: [&str; 19] = [
    "bool",
    "int2",
    "int4",
    "int8",
    "numeric",
    "text",
    "varchar",
    "bpchar",
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "timetz",
    "uuid",
    "inet",
    "cidr",
    "macaddr",
    "bytea",
    "char",
];

/// Columns that could move out of the table, as their values are (nearly) all the same.
pub fn candidates(_snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    let is_alone = table.parent == 0 && !table.has_children && table.kind == TableKind::Table;
    let columns = table.columns.iter().filter(|column| !column.is_dropped).count();
    if !is_alone || table.extension.is_some() || columns < 2 {
        return Vec::new();
    }
    let Some(sample) = &table.sample else { return Vec::new() };
    (0..table.columns.len()).filter_map(|index| candidate(table, sample, index)).collect()
}

fn candidate(table: &Table, sample: &Sample, index: usize) -> Option<Candidate> {
    let column = table.columns.get(index)?;
    let is_known = column.type_id == column.base_type_id && column.type_schema == "pg_catalog";
    if !is_known || !COMPARABLE.contains(&&*column.type_id) || is_used(table, index) {
        return None;
    }
    let (value, exceptions) = common(sample, index)?;
    let rows = sample.rows.len();
    if rows < if sample.is_whole { WHOLE_ROWS_MIN } else { ROWS_MIN } || exceptions * EXCEPTIONS_PART > rows {
        return None;
    }
    let exception_row_bytes = match exceptions {
        0 => 0,
        // Without a key nothing says which rows are the exceptions.
        _ => beside_bytes(table, sample, index)?,
    };
    let [name, literal] = [quote_ident(&column.name), quote_literal(value)];
    let comparison = match column.base_type_id.as_str() {
        "text" | "varchar" | "bpchar" => format!("{name}::text COLLATE \"C\" IS DISTINCT FROM {literal}"),
        _ => format!("{name} IS DISTINCT FROM {literal}::{}", column.type_name),
    };
    let proof = format!(
        "SELECT (count(*) FILTER (WHERE {comparison}) * {EXCEPTIONS_PART} > count(*))::int FROM {}",
        qualified(&table.schema, &table.name)
    );
    let finding = Finding {
        id: format!("constant_column:{}.{}.{}", table.schema, table.name, column.name),
        rule: Rule::ConstantColumn,
        object: column_object(table, &column.name),
        title: format!("the value {literal} in nearly all rows"),
        reason: format!(
            "{} of {rows} sampled rows have the value {literal}. It could come from a view{}. Or the column could be NULL where it has \
             this value, and a view say coalesce({name}, {literal}): then nothing is stored for it, but the row gets a bitmap if it has \
             no NULL yet.",
            rows.saturating_sub(exceptions),
            if exceptions == 0 { "" } else { ", and the exceptions from a table beside this one" }
        ),
        bytes: Bytes::default(),
        confidence: if sample.is_whole { Confidence::Exact } else { Confidence::Measured },
        cost: "The table is rebuilt: this temporarily needs space for a second copy with its indexes, and \
            writes WAL for it."
            .to_owned(),
        risks: vec![
            "Applications must read the column through a view, and write exceptions elsewhere.".to_owned(),
            "A column that is always the same today may be there for future use.".to_owned(),
        ],
        // Applications see such a change: its owner writes it.
        sql: Vec::new(),
        proof: Some(proof),
        in_proposal: false,
    };
    let removal = Removal { column: index, exception_row_bytes, exceptions };
    Some(Candidate { finding, edits: vec![Edit::Remove(removal)], is_recommended: false })
}

/// The most frequent value, and how many rows have another one or NULL. None: there are none, or some were not read.
fn common(sample: &Sample, index: usize) -> Option<(&str, usize)> {
    let sampled = sample.columns.get(index)?;
    let values = sampled.values.as_ref()?;
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (value, place) in values.iter().zip(&sampled.places) {
        match value {
            Some(text) => *counts.entry(text).or_default() += 1,
            None if *place == Place::Null => {}
            None => return None,
        }
        // Nobody needs to count values that are all different.
        if counts.len() > 1 + values.len() / EXCEPTIONS_PART {
            return None;
        }
    }
    // The smallest of equally frequent ones: not what a hash map comes across first.
    let (value, count) = counts.into_iter().max_by(|a, b| (a.1, b.0).cmp(&(b.1, a.0)))?;
    let is_short = value.chars().count() <= CHARACTERS_MAX;
    is_short.then_some((value, values.len().saturating_sub(count)))
}

/// Whether indexes, foreign keys, generated columns or a sequence need the column.
fn is_used(table: &Table, index: usize) -> bool {
    let is_this = |number: &i16| usize::try_from(*number) == Ok(index + 1);
    let column = &table.columns[index];
    let name = &column.name;
    let in_index = table.indexes.iter().any(|of| {
        let mut columns = of.columns.iter();
        // An expression or predicate with the name in it, even as a part of another word.
        columns.any(|key| {
            is_this(&key.table_column) || (key.table_column == 0 && key.definition.contains(name.as_str()))
        }) || of.predicate.as_deref().is_some_and(|text| text.contains(name.as_str()))
    });
    let in_key = table.foreign_keys.iter().any(|key| key.columns.iter().any(is_this));
    let in_column = table.columns.iter().any(|other| {
        other.generated.is_alphabetic()
            && other.default.as_deref().is_some_and(|text| text.contains(name.as_str()))
    });
    let is_generated = column.generated.is_alphabetic() || column.identity.is_alphabetic();
    column.is_dropped || is_generated || in_index || in_key || in_column
}

/// Bytes of a row with the primary key and the column, in a table beside this one. None: there is no primary key.
fn beside_bytes(table: &Table, sample: &Sample, index: usize) -> Option<u32> {
    let key = table.indexes.iter().find(|of| of.is_primary)?;
    let mut members: Vec<usize> = Vec::new();
    for column in key.columns.iter().take(key.key_count) {
        members.push(usize::try_from(column.table_column).ok()?.checked_sub(1)?);
    }
    members.push(index);
    let columns = members.iter().map(|at| Column::of(table.columns.get(*at)?)).collect::<Option<Vec<_>>>()?;
    let largest = |at: &usize| sample.columns.get(*at)?.sizes.iter().max().copied();
    let values = members.iter().map(|at| Some(Value::Inline(largest(at)?))).collect::<Option<Vec<_>>>()?;
    let order: Vec<usize> = (0..columns.len()).collect();
    u32::try_from(Shape { columns: &columns, order: &order }.row_bytes(&values)).ok()
}
