//! Types that take fewer bytes for the values that are there.
//!
//! A type is proposed when every sampled value fits it, there are enough of them, and the new values take fewer bytes. What the
//! sample did not show, the finding's `proof` finds: a query that counts the rows that do not fit, by a full scan, and that no
//! value makes fail.
//!
//! Columns that cannot be changed alone are changed with all their partners by foreign keys, or left alone:
//! 1. Generated columns and what they are generated from, partition keys, inherited columns.
//! 2. Columns in indexes that would not exist for the new type: expressions, predicates, other operator classes.
//! 3. Foreign keys whose other side is not in the snapshot.
//!
//! Views, policies and triggers that name a column are the business of the plan of a rewrite.

mod base64;
mod boolean;
mod char;
mod datetime;
mod enumerated;
mod hex;
mod integer;
mod json;
mod network;
mod number;
mod partners;
mod uuid;
mod values;

use crate::edit::{Edit, Retype};
use crate::finding::{Bytes, Confidence, Finding, Rule};
use crate::layout::{self, Alignment};
use crate::rules::{Candidate, column_object};
use crate::snapshot::{Column, Snapshot, Table};
use crate::sql::{qualified, quote_ident};
pub(super) use integer::is_growing;
use partners::Partners;
use values::Values;
pub(super) use values::is_changeable;

/// A type that all sampled values of a column fit.
#[derive(Clone, Debug)]
struct Conversion {
    /// In SQL.
    type_name: String,
    /// Statements before it.
    prepare: Vec<String>,
    /// How its values are laid out.
    form: Form,
    /// As [`Retype::images`].
    images: Vec<Option<Vec<u8>>>,
    /// The new value in SQL: [`COLUMN`] and [`TEXT`] stand for the old one.
    using: String,
    /// True in SQL for a value, not NULL, that does not fit. It must not fail for any value.
    misfit: String,
    /// As in [`Finding`].
    title: String,
    /// What the values are, and what they take.
    reason: String,
    /// What changes for applications.
    risks: Vec<String>,
    /// As in [`Candidate`].
    is_recommended: bool,
    /// Whether other values of the same kind would have given another type: how wide a number is, which labels an enum has.
    depends_on_range: bool,
}

/// The column in [`Conversion::using`] and [`Conversion::misfit`]; of text columns as `text`.
const COLUMN: &str = "$column";
/// The same with the collation `C`, in which regular expressions and comparisons mean bytes.
const TEXT: &str = "$text";

/// How values of a type are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// So many bytes.
    Fixed(u16, Alignment),
    /// `varlena`, aligned to four where it has a header of four bytes.
    Varlena,
}

/// Types that take fewer bytes, at most one for each column.
pub fn candidates(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    (0..table.columns.len()).filter_map(|column| candidate(snapshot, table, column)).collect()
}

fn candidate(snapshot: &Snapshot, table: &Table, index: usize) -> Option<Candidate> {
    let column = table.columns.get(index)?;
    let conversion = conversion(snapshot, table, index)?;
    let partners = Partners::of(snapshot, table, index)?;
    if !partners.agree(snapshot, &conversion) {
        return None;
    }
    let proof = partners.proof(&conversion);
    let mut risks = conversion.risks.clone();
    if column.type_id != column.base_type_id {
        risks.push(format!("The constraints of the domain {} no longer apply.", column.type_name));
    }
    risks.push(
        "Statements that compare the column with its old type may fail or miss an index. Views, rules, policies and \
         triggers that name the column must be dropped first, and recreated."
            .to_owned(),
    );
    let finding = Finding {
        id: format!("column_type:{}.{}.{}", table.schema, table.name, column.name),
        rule: Rule::ColumnType,
        object: column_object(table, &column.name),
        title: conversion.title.clone(),
        reason: [conversion.reason.clone(), partners.reason()].concat(),
        bytes: Bytes::default(),
        confidence: Confidence::Measured,
        cost: partners.cost(),
        risks,
        sql: partners.sql(&conversion),
        proof: Some(proof.clone()),
        in_proposal: false,
    };
    // A table's proposal changes that table alone.
    let is_recommended =
        conversion.is_recommended && column.type_id == column.base_type_id && partners.are_none();
    let edits = vec![Edit::Retype(retype(column, index, conversion, proof))];
    Some(Candidate { finding, edits, is_recommended })
}

fn retype(column: &Column, index: usize, conversion: Conversion, proof: String) -> Retype {
    let (length, alignment) = match conversion.form {
        Form::Fixed(length, alignment) => (Some(length), alignment),
        Form::Varlena => (None, Alignment::Int),
    };
    let using = substituted(&conversion.using, column, &quote_ident(&column.name));
    let layout = layout::Column {
        name: column.name.clone(),
        length,
        alignment,
        is_packable: length.is_none(),
        is_not_null: column.is_not_null,
        is_dropped: false,
    };
    let Conversion { type_name, prepare, images, .. } = conversion;
    Retype { column: index, type_name, prepare, first: Vec::new(), using, layout, images, proof }
}

/// The type that fits a column's sampled values, whatever else depends on the column.
fn conversion(snapshot: &Snapshot, table: &Table, index: usize) -> Option<Conversion> {
    let values = Values::of(snapshot, table, index)?;
    let rules: &[fn(&Values<'_>) -> Option<Conversion>] = match values.column.base_type_id.as_str() {
        "text" | "varchar" | "bpchar" => &[
            boolean::convert,
            uuid::convert,
            network::convert_mac,
            network::convert_inet,
            datetime::convert_text,
            number::convert_text,
            hex::convert,
            enumerated::convert,
            json::convert,
            base64::convert,
            char::convert,
        ],
        "int4" | "int8" => &[integer::convert],
        "numeric" => &[number::convert_numeric],
        "timestamp" | "timestamptz" => &[datetime::convert_timestamp],
        "timetz" => &[datetime::convert_timetz],
        "json" => &[json::convert],
        _ => return None,
    };
    rules
        .iter()
        .find_map(|rule| rule(&values))
        .filter(|conversion| values.are_larger_than(&conversion.images))
}

/// An expression of a [`Conversion`] with the column in it. `value` is SQL of the column's type.
fn substituted(template: &str, column: &Column, value: &str) -> String {
    let column = match (column.base_type_id.as_str(), column.type_id == column.base_type_id) {
        ("text", true) => value.to_owned(),
        // Blanks at the end of character(n) go with this.
        ("text" | "varchar" | "bpchar", _) => format!("{value}::text"),
        (_, true) => value.to_owned(),
        (base, false) => format!("{value}::{base}"),
    };
    template.replace(TEXT, &format!("{column} COLLATE \"C\"")).replace(COLUMN, &column)
}

/// A condition for the rows of a table that do not fit.
fn misfit_query(table: &Table, column: &Column, conversion: &Conversion) -> String {
    let name = quote_ident(&column.name);
    let condition = substituted(&conversion.misfit, column, &name);
    let table = qualified(&table.schema, &table.name);
    format!("SELECT count(*) FROM {table} WHERE {name} IS NOT NULL AND ({condition})")
}
