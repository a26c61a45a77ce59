//! What the report is made with: the rules, the SQL of a rewrite, and bytes in a compressed tablespace.

use crate::arrangement::{Arrangement, is_new_table};
use crate::codecs::Means;
use crate::datum;
use crate::edit::Edit;
use crate::finding::{Online, Step};
use crate::plan::{self, Method, Plan, PlanError, Request};
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
pub(super) fn script(snapshot: &Snapshot, table: &Table, edits: &[&Edit]) -> (Vec<Step>, Vec<String>) {
    if edits.is_empty() {
        return (vec![vacuum_full(table)], Vec::new());
    }
    let method = if is_new_table(edits) { Method::Offline } else { Method::InPlace };
    match planned(snapshot, table, edits, method) {
        Ok(plan) => (plan.steps, plan.warnings),
        Err(error) => (Vec::new(), vec![error.to_string()]),
    }
}

/// The same while the table is in use. `in_place` is what [`script`] gave.
pub(super) fn online(snapshot: &Snapshot, table: &Table, edits: &[&Edit], in_place: &[Step]) -> Online {
    match planned(snapshot, table, edits, Method::Online) {
        Ok(plan) => Online { rewrite: plan.rewrite, ..Online::default() },
        Err(error) => {
            Online { in_place: in_place.to_vec(), refusal: Some(error.to_string()), ..Online::default() }
        }
    }
}

fn planned(snapshot: &Snapshot, table: &Table, edits: &[&Edit], method: Method) -> Result<Plan, PlanError> {
    let order = order(table, edits);
    let edits: Vec<Edit> = edits.iter().map(|edit| (*edit).clone()).collect();
    let order = (method != Method::InPlace).then_some(order.as_slice());
    plan::plan(&Request { table, edits: &edits, order, server_version: snapshot.server.version }, method)
}

fn vacuum_full(table: &Table) -> Step {
    let name = crate::rules::qualified(table);
    Step {
        title: "Rebuild the table unchanged".to_owned(),
        statements: vec![format!("VACUUM (FULL, ANALYZE) {name};")],
        lock: format!("ACCESS EXCLUSIVE on {name}, for its duration"),
    }
}

/// The columns of the new table as [`Request::order`] has them.
fn order(table: &Table, edits: &[&Edit]) -> Vec<usize> {
    let extracted = edits.iter().filter_map(|edit| match edit {
        Edit::Extract(extraction) => Some(&extraction.added),
        _ => None,
    });
    let extracted: Vec<&str> = extracted.flatten().map(|added| added.layout.name.as_str()).collect();
    let place = |name: &str| {
        let own = table.columns.iter().position(|column| !column.is_dropped && column.name == name);
        let added = || extracted.iter().position(|added| *added == name).map(|n| table.columns.len() + n);
        own.or_else(added)
    };
    let arrangement = Arrangement::of(table, edits);
    arrangement.columns.iter().filter_map(|stored| place(&stored.layout.name)).collect()
}
