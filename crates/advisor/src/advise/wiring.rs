//! What the report is made with: the rules, the SQL of a rewrite, and bytes in a compressed tablespace.

use crate::codecs::Means;
use crate::datum;
use crate::edit::Edit;
use crate::finding::Step;
use crate::rules::{
    Candidate, bloat, constant, documents, dropped, fillfactor, indexes, maintenance, order, packing, toast,
    types, zson,
};
use crate::snapshot::{Snapshot, Table};

/// Rules that look at one table.
pub(super) const TABLE_RULES: &[fn(&Snapshot, &Table) -> Vec<Candidate>] = &[
    order::candidates,
    dropped::candidates,
    types::candidates,
    constant::candidates,
    documents::candidates,
    packing::candidates,
    toasted,
    as_zson,
    fillfactor::candidates,
    indexes::candidates,
    bloat::candidates,
];

fn toasted(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    toast::candidates(&snapshot.server, table)
}

fn as_zson(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    zson::candidates(snapshot, table, &Means { clock: None, jsonb: Some(&jsonb) })
}

/// A document's jsonb, without a varlena header.
pub(super) fn jsonb(text: &str) -> Option<Vec<u8>> {
    datum::jsonb::data(&datum::json::parse(text)?)
}

/// Rules that look at the database.
pub(super) const DATABASE_RULES: &[fn(&Snapshot) -> Vec<Candidate>] = &[maintenance::candidates];

/// Steps that build a table anew with these changes (none: as it is), and what hinders them.
pub(super) fn script(_snapshot: &Snapshot, table: &Table, edits: &[&Edit]) -> (Vec<Step>, Vec<String>) {
    if !edits.is_empty() {
        return Default::default();
    }
    let name = crate::rules::qualified(table);
    let step = Step {
        title: "Build the table anew as it is".to_owned(),
        statements: vec![format!("VACUUM (FULL, ANALYZE) {name};")],
        lock: format!("ACCESS EXCLUSIVE on {name}, for its duration"),
    };
    (vec![step], Vec::new())
}
