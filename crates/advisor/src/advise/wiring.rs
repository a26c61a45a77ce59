//! What the report is made with: the rules, the SQL of a rewrite, and bytes in a compressed tablespace.

use crate::arrangement::Arrangement;
use crate::edit::Edit;
use crate::finding::{Change, Step};
use crate::rules::{Candidate, bloat, dropped, fillfactor, order};
use crate::snapshot::{Snapshot, Table};

/// Rules that look at one table.
pub(super) const TABLE_RULES: &[fn(&Snapshot, &Table) -> Vec<Candidate>] =
    &[order::candidates, dropped::candidates, fillfactor::candidates, bloat::candidates];

/// Rules that look at the database.
pub(super) const DATABASE_RULES: &[fn(&Snapshot) -> Vec<Candidate>] = &[];

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

/// A table in a compressed tablespace.
pub(super) struct Compressed;

impl Compressed {
    /// None: there is nothing to measure on.
    pub(super) fn of(_table: &Table) -> Option<Compressed> {
        None
    }

    /// Its bytes now, and in an arrangement.
    pub(super) fn change(&self, _arrangement: &Arrangement<'_>) -> Option<Change> {
        None
    }
}
