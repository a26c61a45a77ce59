//! Dropped columns.

use crate::anatomy::{row_bytes_after, row_bytes_now};
use crate::arrangement::Arrangement;
use crate::edit::Edit;
use crate::finding::{Finding, Rule};
use crate::rules::{Candidate, confidence, in_text, table_object};
use crate::snapshot::{Snapshot, Table};

/// At most one: the table without the columns that were dropped.
pub fn candidates(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    let dropped = table.columns.iter().filter(|column| column.is_dropped).count();
    if dropped == 0 || table.sample.as_ref().is_none_or(|sample| sample.rows.is_empty()) {
        return Vec::new();
    }
    let arrangement = Arrangement::of(table, &[&Edit::DropDead]);
    let (now, after) = (row_bytes_now(table), row_bytes_after(&snapshot.server, table, &arrangement));
    let (of_all, of_rest) = (table.columns.len().div_ceil(8), arrangement.columns.len().div_ceil(8));
    let columns =
        if dropped == 1 { "1 dropped column".to_owned() } else { format!("{dropped} dropped columns") };
    let finding = Finding {
        title: format!("{columns} in each row's NULL bitmap"),
        reason: format!(
            "A dropped column stays in the catalog, and is NULL in every row that was written since: each \
             of them has a bitmap of {of_all} bytes for {} columns. Rows written before still have the \
             values. A rebuilt table has {} columns, and a bitmap of {of_rest} bytes only in rows with a \
             NULL. A row's header is {} bytes on average now, and {} then. VACUUM FULL keeps dropped \
             columns.",
            table.columns.len(),
            arrangement.columns.len(),
            in_text(now.each(now.headers)),
            in_text(after.each(after.headers)),
        ),
        confidence: confidence(table),
        cost: "The table is rebuilt: this temporarily needs space for a second copy with its indexes, and \
            writes WAL for it."
            .to_owned(),
        ..Finding::of(Rule::DroppedColumns, table_object(table))
    };
    vec![Candidate { finding, edits: vec![Edit::DropDead], is_recommended: true }]
}
