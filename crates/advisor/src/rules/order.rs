//! The order of columns.

use crate::anatomy::{row_bytes_after, row_bytes_now};
use crate::arrangement::Arrangement;
use crate::edit::Edit;
use crate::finding::{Finding, Rule};
use crate::layout::heap::PAGE_BYTES;
use crate::rules::{Candidate, bytes_text, confidence, in_text, table_object};
use crate::simulate::Simulation;
use crate::snapshot::{Snapshot, Table};

/// At most one: the order that makes sampled rows shortest, if there is padding to save.
pub fn candidates(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    candidate(snapshot, table).into_iter().collect()
}

fn candidate(snapshot: &Snapshot, table: &Table) -> Option<Candidate> {
    let simulation = Simulation::of(&snapshot.server, table)?;
    let now = row_bytes_now(table);
    // All padding of the table together must be a page at least: most tables are done here.
    let padding = now.padding as f64 / now.rows.max(1) as f64 * simulation.row_count() as f64;
    if padding < PAGE_BYTES as f64 {
        return None;
    }
    let own = Arrangement::of(table, &[&Edit::DropDead]);
    let arrangement = Arrangement::of(table, &[&Edit::Reorder]);
    if own == arrangement {
        return None;
    }
    let after = row_bytes_after(&snapshot.server, table, &arrangement);
    let (padding_now, padding_after) = (now.each(now.padding), after.each(after.padding));
    let names: Vec<&str> = arrangement.columns.iter().map(|stored| &*stored.layout.name).collect();
    let finding = Finding {
        title: format!("{} of padding in each row, {} in the best order", bytes_text(padding_now), in_text(padding_after)),
        reason: format!(
            "The server aligns values to 2, 4 or 8 bytes, and rows to 8. In the order of the columns now, a row has {} of padding \
             on average; in the order {}, it has {}. Measured on {} sampled rows.",
            bytes_text(padding_now),
            names.join(", "),
            in_text(padding_after),
            now.rows
        ),
        confidence: confidence(table),
        cost: "The table is rebuilt: this temporarily needs space for a second copy with its indexes, and \
            writes WAL for it.".to_owned(),
        risks: vec![
            "Statements that rely on the order of columns see the new one: SELECT *, INSERT and COPY without a list of columns.".to_owned(),
        ],
        ..Finding::of(Rule::ColumnOrder, table_object(table))
    };
    Some(Candidate { finding, edits: vec![Edit::Reorder], is_recommended: true })
}
