//! What becomes of a table when one of its columns of documents becomes zson.

use super::alone::Trial;
use crate::codecs::Means;
use crate::codecs::documents::{self, Documents};
use crate::edit::Edit;
use crate::finding::{Change, Report};
use crate::rules::zson;
use crate::simulate::Simulation;
use crate::snapshot::{Snapshot, Table};

/// Fills in the table of every figure of documents.
pub(super) fn fill_in(snapshot: &Snapshot, means: &Means<'_>, report: &mut Report) {
    for relation in report.codecs.iter_mut().filter(|relation| !relation.documents.is_empty()) {
        let (schema, name) = (&relation.object.schema, &relation.object.name);
        let found = snapshot.tables.iter().find(|table| table.schema == *schema && table.name == *name);
        let Some(table) = found else { continue };
        for figure in &mut relation.documents {
            // What the finding says was simulated in the same way, unless it saves nothing alone.
            let id = zson::id(table, &figure.column);
            let finding = report.findings.iter().find(|finding| finding.id == id);
            let known = finding.map(|finding| finding.bytes.disk).filter(|disk| disk.saved() > 0);
            figure.table = known.or_else(|| simulated(snapshot, table, &figure.column, means));
        }
    }
}

fn simulated(snapshot: &Snapshot, table: &Table, column: &str, means: &Means<'_>) -> Option<Change> {
    if !matches!(&*table.access_method, "heap" | "") {
        return None;
    }
    let is_it =
        |index: &usize| table.columns[*index].name == column && documents::is_documents(table, *index);
    let column = (0..table.columns.len()).find(is_it)?;
    let documents = Documents::of(table, column, means)?;
    let edit = Edit::Retype(zson::retype(snapshot, table, column, &documents)?);
    let trial = Trial::plain(table, Simulation::of(&snapshot.server, table)?);
    let saved = trial.saved(&[&edit]);
    let now = trial.now.total();
    Some(Change { now, after: now.saturating_add_signed(saved.saturating_neg()) })
}
