//! Catalogs with far more pages than their rows need.

use super::{empty, on_primary};
use crate::finding::{Bytes, Change, Confidence, Finding, Object, Rule};
use crate::rules::Candidate;
use crate::snapshot::{CatalogTable, Snapshot};

/// What rebuilding must save.
const SAVED_MIN: u64 = 1 << 20;
/// Of the catalog's own pages, in per cent: rows' bytes are known on average only.
const SAVED_PERCENT_MIN: u64 = 40;
/// A header of 23 bytes with a bitmap for up to 40 columns, aligned.
const HEADER_BYTES: u64 = 32;

pub fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    snapshot.catalogs.iter().filter_map(|catalog| candidate(snapshot, catalog)).collect()
}

/// Bytes of the catalog's own pages when it is built anew, with all the padding that its rows may have.
fn needed(catalog: &CatalogTable) -> Option<u64> {
    let (rows, data) = (catalog.row_estimate, u64::from(catalog.row_bytes?));
    if rows < 0.0 || !rows.is_finite() {
        return None;
    }
    let row = (HEADER_BYTES + data).next_multiple_of(8) + 8 + 4;
    // On average half a row of each page is left.
    let bytes = (8192 - 24u64).saturating_sub(row / 2).max(row);
    Some(((rows * row as f64 / bytes as f64).ceil() as u64).max(1).saturating_mul(8192))
}

fn candidate(snapshot: &Snapshot, catalog: &CatalogTable) -> Option<Candidate> {
    let after = needed(catalog)?;
    let saved = catalog.main_bytes.saturating_sub(after);
    let percent = saved.saturating_mul(100) / catalog.main_bytes.max(1);
    if saved < SAVED_MIN || percent < SAVED_PERCENT_MIN {
        return None;
    }
    let bytes = Change { now: catalog.bytes, after: catalog.bytes.saturating_sub(saved) };
    let object = Object {
        kind: "catalog".to_owned(),
        schema: "pg_catalog".to_owned(),
        name: catalog.name.clone(),
        part: None,
    };
    let name = crate::sql::qualified("pg_catalog", &catalog.name);
    let finding = Finding {
        title: format!("{percent} % of the catalog's pages are free"),
        reason: format!(
            "About {} rows of {} bytes need {after} bytes, and it has {}, {} dead rows among them. \
             Temporary tables and frequent CREATE and DROP leave this behind; each new session and each \
             plan reads catalogs. Its indexes, which have {} bytes, become smaller too; that is not \
             counted.",
            catalog.row_estimate.round(),
            catalog.row_bytes.unwrap_or_default(),
            catalog.main_bytes,
            catalog.dead_rows,
            catalog.bytes.saturating_sub(catalog.main_bytes),
        ),
        bytes: Bytes { disk: bytes, compressed: None, memory: bytes },
        confidence: Confidence::Estimated,
        cost: on_primary(
            snapshot,
            "VACUUM FULL takes ACCESS EXCLUSIVE on the catalog: nearly every statement of the database \
             waits until it is done, for seconds. Set lock_timeout. It needs a superuser.",
        ),
        risks: vec![
            "It grows again if temporary tables are created as often as before and autovacuum does not \
             keep up with the catalogs."
                .to_owned(),
            "Managed services do not permit it.".to_owned(),
        ],
        sql: vec![format!("VACUUM (FULL, ANALYZE) {name};")],
        ..empty(Rule::CatalogBloat, format!("catalog_bloat:pg_catalog.{}", catalog.name), object)
    };
    Some(Candidate { finding, edits: Vec::new(), is_recommended: false })
}
