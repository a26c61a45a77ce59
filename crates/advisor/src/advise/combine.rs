//! Which changes of a table go together.

use super::alone::{BYTES_MIN, Trial, difference};
use crate::arrangement::column_of;
use crate::edit::Edit;
use crate::rules::Candidate;

/// A candidate with what it saves alone.
pub(super) struct Weighed {
    pub candidate: Candidate,
    /// Bytes on disk, bloat not counted. 0 without edits.
    pub saved: i64,
    /// Worth to be a finding of its own.
    pub is_enough: bool,
}

/// Indexes of the candidates that are done together, ascending. Of two that change the same thing the one that saves more is taken; what saves
/// nothing beside the others is left out. All of them together save at least as much as each of them alone.
pub(super) fn choose(trial: &Trial<'_>, weighed: &[Weighed]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..weighed.len())
        .filter(|index| {
            weighed[*index].candidate.is_recommended && !weighed[*index].candidate.edits.is_empty()
        })
        .collect();
    order.sort_by_key(|index| {
        (std::cmp::Reverse(weighed[*index].saved), &weighed[*index].candidate.finding.id)
    });
    let mut chosen: Vec<usize> = Vec::new();
    for index in order {
        if !chosen.iter().any(|other| excludes(&weighed[*other].candidate, &weighed[index].candidate)) {
            chosen.push(index);
        }
    }
    prune(trial, weighed, &mut chosen);
    let total = |chosen: &[usize]| trial.rebuilt(&edits_of(weighed, chosen)).total();
    let singles = chosen.iter().filter(|index| weighed[**index].is_enough);
    let best = singles.map(|index| (total(&[*index]), *index)).min();
    if let Some((bytes, index)) = best.filter(|_| chosen.len() > 1)
        && bytes < total(&chosen)
    {
        chosen = vec![index];
    }
    chosen.sort_unstable();
    chosen
}

/// Takes out what brings nothing beside the rest, from the least saving on.
fn prune(trial: &Trial<'_>, weighed: &[Weighed], chosen: &mut Vec<usize>) {
    let mut bytes = trial.rebuilt(&edits_of(weighed, chosen)).total();
    for position in (0..chosen.len()).rev() {
        let index = chosen[position];
        let mut rest = chosen.clone();
        rest.remove(position);
        let own = &weighed[index];
        if rest.is_empty() {
            // Alone it is what was weighed.
            if !own.is_enough {
                chosen.clear();
            }
            return;
        }
        // An order of columns leaves the dropped ones out too.
        let has_order = rest.iter().any(|other| has(&weighed[*other].candidate, &Edit::Reorder));
        if has(&own.candidate, &Edit::DropDead) && has_order && own.is_enough {
            continue;
        }
        let without = trial.rebuilt(&edits_of(weighed, &rest)).total();
        let gain = difference(without, bytes);
        let is_worth = if own.is_enough { gain >= BYTES_MIN } else { trial.is_enough(gain) };
        if !is_worth {
            *chosen = rest;
            bytes = without;
        }
    }
}

/// The edits of these candidates, in a fixed order.
pub(super) fn edits_of<'w>(weighed: &'w [Weighed], chosen: &[usize]) -> Vec<&'w Edit> {
    let mut sorted = chosen.to_vec();
    sorted.sort_unstable();
    sorted.iter().flat_map(|index| &weighed[*index].candidate.edits).collect()
}

fn has(candidate: &Candidate, edit: &Edit) -> bool {
    candidate.edits.contains(edit)
}

/// Whether two candidates change the same column, or the same setting of the table.
fn excludes(one: &Candidate, other: &Candidate) -> bool {
    let is_same = |a: &Edit, b: &Edit| match (a, b) {
        (Edit::Fillfactor(_), Edit::Fillfactor(_)) | (Edit::ToastTarget(_), Edit::ToastTarget(_)) => true,
        _ => column_of(a).is_some() && column_of(a) == column_of(b),
    };
    one.edits.iter().any(|a| other.edits.iter().any(|b| is_same(a, b)))
}
