//! What can be made smaller, one rule a module.
//!
//! A rule looks at a table (or at the whole snapshot) and returns [`Candidate`]s. It computes no savings of tables: `advise` simulates the
//! edits, and drops what saves nothing.

pub mod bloat;
pub mod cfs;
pub mod constant;
pub mod documents;
pub mod dropped;
pub mod fillfactor;
pub mod indexes;
pub mod maintenance;
pub mod order;
pub mod packing;
pub mod toast;
pub mod types;
pub mod zson;

use crate::edit::Edit;
use crate::finding::{Bytes, Confidence, Finding, Object, Rule};
use crate::snapshot::Table;

/// A finding that is not measured yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its `bytes` are filled in from the simulation of `edits`. Where there are no edits, the rule has filled them in.
    pub finding: Finding,
    /// What it changes about the table. Empty: nothing about its rows.
    pub edits: Vec<Edit>,
    /// Part of the table's proposal. False where it changes what applications see, or costs more than space.
    pub is_recommended: bool,
}

/// The table as what a finding is about.
pub(crate) fn table_object(table: &Table) -> Object {
    Object { kind: "table".to_owned(), schema: table.schema.clone(), name: table.name.clone(), part: None }
}

/// A column of the table, as findings name it.
pub(crate) fn column_object(table: &Table, column: &str) -> Object {
    Object { kind: "column".to_owned(), part: Some(column.to_owned()), ..table_object(table) }
}

/// How much the rows of a table's sample say.
pub(crate) fn confidence(table: &Table) -> Confidence {
    match &table.sample {
        Some(sample) if sample.is_whole => Confidence::Exact,
        Some(_) => Confidence::Measured,
        None => Confidence::Estimated,
    }
}

/// The table's name in SQL.
pub(crate) fn qualified(table: &Table) -> String {
    crate::sql::qualified(&table.schema, &table.name)
}

/// `1 byte`, `2 bytes`, `2.5 bytes`.
pub(crate) fn bytes_text(bytes: f64) -> String {
    let number = in_text(bytes);
    let unit = if number == "1" { "byte" } else { "bytes" };
    format!("{number} {unit}")
}

/// A number with a decimal only where it has one.
pub(crate) fn in_text(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

impl Finding {
    /// A finding about an object, with the id that the two have. The rest is for the rule to fill in.
    pub(crate) fn of(rule: Rule, object: Object) -> Finding {
        let name = serde_json::to_value(rule).ok().and_then(|value| value.as_str().map(str::to_owned));
        let part = object.part.as_ref().map(|part| format!(".{part}")).unwrap_or_default();
        Finding {
            id: format!("{}:{}.{}{part}", name.unwrap_or_default(), object.schema, object.name),
            rule,
            object,
            title: String::new(),
            reason: String::new(),
            bytes: Bytes::default(),
            confidence: Confidence::Measured,
            cost: String::new(),
            risks: Vec::new(),
            sql: Vec::new(),
            proof: None,
            in_proposal: false,
        }
    }
}
