//! Fillfactor beside the updates that a table has.

use crate::edit::Edit;
use crate::finding::{Confidence, Finding, Rule};
use crate::report::shown::{counted, number_text, size};
use crate::rules::{Candidate, qualified, table_object};
use crate::simulate::Simulation;
use crate::snapshot::{Snapshot, Table};

/// Updates, as a part of the table's rows, up to which its pages need no room for them.
const RARE: f64 = 0.01;
/// Counters that count for less than a day say nothing about how a table is used.
const COUNTED_S_MIN: i64 = 24 * 60 * 60;
/// Updates from which on their kind is worth a note.
const NOTED_UPDATES_MIN: u64 = 10_000;
/// What a note computes the cost of.
const NOTED_FILLFACTOR: u8 = 90;

/// At most one: pages that are filled, if the table leaves room for updates that hardly ever come. It is not recommended: a table that
/// is built anew, as by a script of ours, has counters that begin with it, and no catalog says when that was.
pub fn candidates(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    let fillfactor = table.fillfactor();
    let activity = &table.activity;
    let rows = activity.live_rows.max(1);
    let is_known = is_counted(snapshot) && (activity.inserted > 0 || activity.scans > 0);
    if fillfactor >= 100 || !is_known || activity.updated as f64 > rows as f64 * RARE {
        return Vec::new();
    }
    let name = qualified(table);
    let updates = match activity.updated {
        0 => "no updates".to_owned(),
        updated => counted(updated, "update", "updates"),
    };
    let finding = Finding {
        title: format!("fillfactor {fillfactor}, and {updates} since the counters began"),
        reason: format!(
            "Each page is filled to {fillfactor} %, so that new versions of updated rows fit beside the old ones. The table has about \
             {}, and {updates} since its counters were reset. A rebuild or a copy of the table resets them, so it is not known how long \
             they have counted.",
            counted(activity.live_rows, "row", "rows")
        ),
        confidence: Confidence::Estimated,
        cost: "VACUUM FULL locks everybody out of the table until it is done, and needs space for a second copy.".to_owned(),
        risks: vec!["If updates come later, fewer of them will be HOT: each of the others writes to every index.".to_owned()],
        sql: vec![format!("ALTER TABLE {name} SET (fillfactor = 100);"), format!("VACUUM (FULL, ANALYZE) {name};")],
        ..Finding::of(Rule::Fillfactor, table_object(table))
    };
    vec![Candidate { finding, edits: vec![Edit::Fillfactor(100)], is_recommended: false }]
}

/// What a table with many updates that are not HOT could gain from room in its pages, and what that costs. It saves no bytes
/// now, so it is no finding.
pub fn note(snapshot: &Snapshot, table: &Table, simulation: &Simulation<'_>) -> Option<String> {
    let activity = &table.activity;
    let is_frequent =
        activity.updated >= NOTED_UPDATES_MIN && activity.updated as f64 >= activity.live_rows as f64 / 10.0;
    let hot = activity.updated_hot as f64 / activity.updated.max(1) as f64;
    if !is_counted(snapshot) || !is_frequent || hot >= 0.5 || table.fillfactor() < 100 {
        return None;
    }
    let full = simulation.rebuilt(&[]).heap.main;
    let spared = simulation.rebuilt(&[&Edit::Fillfactor(NOTED_FILLFACTOR)]).heap.main;
    Some(format!(
        "{}.{}: {} updates, of which {:.0} % were HOT. If they change no indexed column, a fillfactor of {NOTED_FILLFACTOR} would let more \
         of them be HOT, write to no index, and leave less bloat. It would cost {}: {} instead of {} for the table's pages.",
        table.schema,
        table.name,
        number_text(activity.updated),
        (hot * 100.0).floor(),
        size(spared.saturating_sub(full)),
        size(spared),
        size(full),
    ))
}

/// Whether the counters count for long enough. Counters that were never reset do.
fn is_counted(snapshot: &Snapshot) -> bool {
    let since = snapshot.server.counting_since_s;
    since.is_none_or(|since| snapshot.taken_s.saturating_sub(since) >= COUNTED_S_MIN)
}
