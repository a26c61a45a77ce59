//! Space of rows that were deleted or updated.

use crate::finding::{Bytes, Change, Finding, Rule};
use crate::report::shown::{counted, size};
use crate::rules::{Candidate, confidence, qualified, table_object};
use crate::simulate::{Simulation, Sizes, Way};
use crate::snapshot::{Snapshot, Table};

/// Less is what the next inserts fill, or what the next updates need.
const BYTES_MIN: u64 = 1 << 20;
/// Of the table with its TOAST table, in per cent.
const PERCENT_MIN: u64 = 10;

/// At most one: what the table and its TOAST table would give back if they were built anew as they are. Indexes are another rule's.
pub fn candidates(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    candidate(snapshot, table).into_iter().collect()
}

fn candidate(snapshot: &Snapshot, table: &Table) -> Option<Candidate> {
    let simulation = Simulation::of(&snapshot.server, table)?;
    let now = Sizes { indexes: Vec::new(), ..Sizes::now(table) };
    let rebuilt = Sizes { indexes: Vec::new(), ..simulation.as_it_is(Way::VacuumFull) };
    let saved = now.total().saturating_sub(rebuilt.total());
    let percent = (saved as f64 / now.total().max(1) as f64 * 100.0) as u64;
    if saved < BYTES_MIN || percent < PERCENT_MIN {
        return None;
    }
    let (all, all_plain) = (Sizes::now(table).total(), Sizes::now(table).plain());
    let saved_plain = now.plain().saturating_sub(rebuilt.plain());
    let heap = now.heap.main.saturating_sub(rebuilt.heap.main);
    let toast = now.toast.main.saturating_sub(rebuilt.toast.main);
    let toast_text =
        if toast > 0 { format!(", and {} of its TOAST table", size(toast)) } else { String::new() };
    let finding = Finding {
        title: format!("{percent} % of the table is room that deleted and updated rows left"),
        reason: format!(
            "The sampled rows need {} of {} of pages if they are stored one after the other, with the fillfactor that the table has: \
             {} of the table are dead rows and room that they left{toast_text}. New rows fill that room in time, but a scan reads \
             all of it until then. Indexes are not counted here; they are rebuilt too. The server counts {}.",
            size(rebuilt.heap.main),
            size(now.heap.main),
            size(heap),
            counted(table.activity.dead_rows, "dead row", "dead rows"),
        ),
        bytes: Bytes {
            disk: Change { now: all, after: all.saturating_sub(saved) },
            compressed: None,
            memory: Change { now: all_plain, after: all_plain.saturating_sub(saved_plain) },
        },
        confidence: confidence(table),
        cost: "VACUUM FULL locks everybody out of the table until it is done, needs space for a second \
            copy, and writes WAL for it. pg_repack does the same with short locks."
            .to_owned(),
        risks: vec![
            "It comes back if the cause remains: long transactions, or autovacuum that is too slow \
            for the table."
                .to_owned(),
        ],
        sql: vec![format!("VACUUM (FULL, ANALYZE) {};", qualified(table))],
        ..Finding::of(Rule::Bloat, table_object(table))
    };
    Some(Candidate { finding, edits: Vec::new(), is_recommended: true })
}
