//! One candidate of a table, simulated alone.

use crate::arrangement::{Arrangement, is_new_table};
use crate::codecs::Compressed;
use crate::edit::Edit;
use crate::finding::{Bytes, Change};
use crate::layout::heap::PAGE_BYTES;
use crate::rules::Candidate;
use crate::simulate::{Simulation, Sizes, Way};
use crate::snapshot::{ForkBytes, Table, TableKind};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

/// What a change must save at least: a page.
pub(super) const BYTES_MIN: i64 = PAGE_BYTES as i64;
/// And of the table with everything, one part in so many: half a per cent.
const PART_MIN: i64 = 200;

/// A table that changes are tried on.
pub(super) struct Trial<'t> {
    pub table: &'t Table,
    pub simulation: Simulation<'t>,
    pub now: Sizes,
    pub compressed: Option<Compressed<'t>>,
    as_it_is: [OnceCell<Sizes>; 3],
    /// Sizes after changes that were tried, by where those are in memory: an order of columns takes some time to find.
    tried: RefCell<BTreeMap<Vec<usize>, Sizes>>,
}

impl<'t> Trial<'t> {
    pub(super) fn of(table: &'t Table, simulation: Simulation<'t>) -> Trial<'t> {
        Trial { compressed: Compressed::of(table), ..Trial::plain(table, simulation) }
    }

    /// Without what pages would be in a compressed tablespace, which takes some time to measure.
    pub(super) fn plain(table: &'t Table, simulation: Simulation<'t>) -> Trial<'t> {
        Trial {
            table,
            simulation,
            now: Sizes::now(table),
            compressed: None,
            as_it_is: Default::default(),
            tried: RefCell::default(),
        }
    }

    /// The table with these changes. They must stay where they are as long as the trial lasts.
    pub(super) fn rebuilt(&self, edits: &[&Edit]) -> Sizes {
        let key: Vec<usize> = edits.iter().map(|edit| std::ptr::from_ref(*edit).addr()).collect();
        if let Some(sizes) = self.tried.borrow().get(&key) {
            return sizes.clone();
        }
        let sizes = self.simulation.rebuilt(edits);
        self.tried.borrow_mut().insert(key, sizes.clone());
        sizes
    }

    /// The table built anew as it is.
    pub(super) fn as_it_is(&self, way: Way) -> &Sizes {
        self.as_it_is[way as usize].get_or_init(|| self.simulation.as_it_is(way))
    }

    /// What a layout is compared with: the table without bloat. Files that would grow if the table were built anew as it is count as
    /// they are, so that a layout has to make up for that.
    pub(super) fn baseline(&self, way: Way) -> Sizes {
        let (now, anew) = (&self.now, self.as_it_is(way));
        let least = |a: ForkBytes, b: ForkBytes| ForkBytes {
            main: a.main.min(b.main),
            fsm: a.fsm.min(b.fsm),
            vm: a.vm.min(b.vm),
        };
        Sizes {
            heap: least(now.heap, anew.heap),
            toast: least(now.toast, anew.toast),
            toast_index: now.toast_index.min(anew.toast_index),
            indexes: now.indexes.iter().zip(&anew.indexes).map(|(a, b)| *a.min(b)).collect(),
            beside: 0,
        }
    }

    /// Bytes that changes save on disk, beside what building the table anew gives back.
    pub(super) fn saved(&self, edits: &[&Edit]) -> i64 {
        difference(self.baseline(Way::of(edits)).total(), self.rebuilt(edits).total())
    }

    /// Whether so many bytes are worth to be spoken of.
    pub(super) fn is_enough(&self, saved: i64) -> bool {
        let total = i64::try_from(self.now.total()).unwrap_or(i64::MAX);
        saved >= BYTES_MIN && saved >= total / PART_MIN
    }

    /// The bytes of a finding whose edits do nothing else.
    pub(super) fn bytes(&self, edits: &[&Edit]) -> Bytes {
        let (baseline, after) = (self.baseline(Way::of(edits)), self.rebuilt(edits));
        let arrangement = Arrangement::of(self.table, edits);
        Bytes {
            disk: less(self.now.total(), difference(baseline.total(), after.total())),
            compressed: self.compressed.as_ref().and_then(|compressed| compressed.change(&arrangement)),
            memory: less(self.now.plain(), difference(baseline.plain(), after.plain())),
        }
    }
}

/// A change that saves so much, and is never one for the worse.
fn less(now: u64, saved: i64) -> Change {
    Change { now, after: now.saturating_sub(u64::try_from(saved).unwrap_or(0)) }
}

/// `now - after`.
pub(super) fn difference(now: u64, after: u64) -> i64 {
    Change { now, after }.saved()
}

/// Adapts a candidate to what can be changed about its table at all.
pub(super) fn restrict(table: &Table, candidate: &mut Candidate) {
    let edits: Vec<&Edit> = candidate.edits.iter().collect();
    let is_new = is_new_table(&edits);
    // Whatever its rule says: no plan takes a column out.
    let takes_out = edits.iter().any(|edit| matches!(edit, Edit::Remove(_)));
    let changes_columns = is_new || edits.iter().any(|edit| matches!(edit, Edit::Retype(_)));
    candidate.is_recommended &= !takes_out;
    let finding = &mut candidate.finding;
    if let Some(extension) = &table.extension {
        let text = format!("The table belongs to the extension {extension}: only its authors can change it.");
        finding.risks.insert(0, text);
        finding.sql.clear();
        candidate.is_recommended = false;
    }
    if table.kind == TableKind::MaterializedView && changes_columns {
        let text = "The columns of a materialized view come from its query: it has to be dropped, with \
            everything that depends on it, and created with another query.";
        finding.risks.insert(0, text.to_owned());
        finding.sql.clear();
        candidate.is_recommended = false;
    }
    let inherits = !table.is_partition && (table.parent != 0 || table.has_children);
    if inherits && table.kind == TableKind::Table && changes_columns {
        let text = "The table takes part in inheritance: its types come from its parent, and a new table \
            has to replace it there with NO INHERIT and INHERIT.";
        finding.risks.insert(0, text.to_owned());
        candidate.is_recommended = false;
    }
}

/// Whether SQL can be given for a candidate.
pub(super) fn has_script(table: &Table, candidate: &Candidate) -> bool {
    let is_query = table.kind == TableKind::MaterializedView;
    table.extension.is_none() && !is_query && !candidate.edits.is_empty()
}
