//! The advice on one table.

use super::alone::{Trial, difference, has_script, restrict};
use super::combine::{Weighed, choose, edits_of};
use super::{Options, is_no_loss, same, wiring};
use crate::anatomy;
use crate::arrangement::Arrangement;
use crate::edit::Edit;
use crate::finding::{Bytes, Change, Finding, Proposal, Rule, Step, TableReport};
use crate::report::shown;
use crate::rules::{Candidate, fillfactor, table_object};
use crate::simulate::{Simulation, Sizes, Way};
use crate::snapshot::{Snapshot, Table, TableKind};
use crate::sql::qualified;

/// What is said about a table.
pub(super) struct Advice {
    pub findings: Vec<Finding>,
    pub proposal: Option<Proposal>,
    pub report: Option<TableReport>,
    pub notes: Vec<String>,
    /// Now and after the proposal.
    pub bytes: Bytes,
}

/// A table that is to have advice.
#[derive(Clone, Copy)]
struct About<'s> {
    snapshot: &'s Snapshot,
    table: &'s Table,
    /// With scripts that keep nobody waiting.
    is_online: bool,
}

/// All rules, one table; none for one that is about to go.
pub(super) fn advise(snapshot: &Snapshot, table: &Table, options: &Options, is_old: bool) -> Advice {
    let rules = if is_old { &[] } else { wiring::TABLE_RULES };
    let mut candidates: Vec<Candidate> = rules.iter().flat_map(|rule| rule(snapshot, table)).collect();
    candidates.retain(|candidate| options.wants(candidate.finding.rule));
    for candidate in candidates.iter_mut().filter(|candidate| options.accepts(&candidate.finding)) {
        candidate.is_recommended = true;
    }
    candidates.iter_mut().for_each(|candidate| restrict(table, candidate));
    let is_heap = matches!(&*table.access_method, "heap" | "");
    let simulation = Simulation::of(&snapshot.server, table).filter(|_| is_heap);
    let about = About { snapshot, table, is_online: options.is_online };
    match simulation {
        Some(simulation) => with_sample(about, Trial::of(table, simulation), candidates),
        None => without_sample(about, candidates),
    }
}

/// Nothing is known of rows: what the rules have measured themselves is left.
fn without_sample(about: About<'_>, candidates: Vec<Candidate>) -> Advice {
    let table = about.table;
    let measured = candidates.into_iter().filter(|candidate| candidate.edits.is_empty());
    let mut weighed: Vec<Weighed> =
        measured.map(|candidate| Weighed { candidate, saved: 0, is_enough: true }).collect();
    weighed.retain(|weighed| is_no_loss(&weighed.candidate.finding));
    let now = Sizes::now(table);
    let proposal = propose(about, &weighed, &[], &now, None);
    finish(table, weighed, proposal, Bytes { memory: change(now.plain()), ..same(now.total()) })
}

fn with_sample(about: About<'_>, trial: Trial<'_>, candidates: Vec<Candidate>) -> Advice {
    let About { snapshot, table, .. } = about;
    let mut weighed: Vec<Weighed> =
        candidates.into_iter().map(|candidate| weigh(&trial, candidate)).collect();
    drop_what_another_rule_saves(&trial, &mut weighed);
    let chosen = choose(&trial, &weighed);
    let edits = edits_of(&weighed, &chosen);
    let has_bloat = weighed.iter().any(|weighed| is_recommended_bloat(&weighed.candidate));
    let way = Way::of(&edits);
    let (after, as_it_is) = match (edits.is_empty(), has_bloat) {
        (true, false) => (trial.now.clone(), None),
        (true, true) => (trial.as_it_is(way).clone(), Some(trial.as_it_is(way))),
        (false, _) => (trial.rebuilt(&edits), Some(trial.as_it_is(way))),
    };
    let mut proposal = propose(about, &weighed, &chosen, &after, as_it_is);
    let arrangement = Arrangement::of(table, &edits);
    let compressed = trial.compressed.as_ref().and_then(|compressed| compressed.change(&arrangement));
    if let Some(proposal) = &mut proposal {
        proposal.bytes.compressed = compressed;
    }
    let memory = change(trial.now.plain());
    let unchanged = Bytes { compressed, memory, ..same(trial.now.total()) };
    let (row_now, row_after) = anatomy::middling_row(&snapshot.server, table, &edits);
    let bytes = proposal.as_ref().map_or(unchanged, |proposal| proposal.bytes);
    let report = TableReport {
        object: table_object(table),
        bytes,
        rows: trial.simulation.row_count(),
        row_now,
        row_after,
        anatomy: anatomy::of_table(table, Some((&trial.simulation, trial.as_it_is(Way::VacuumFull)))),
    };
    let notes = fillfactor::note(snapshot, table, &trial.simulation).into_iter().collect();
    fill_in(snapshot, &trial, &mut weighed, &chosen);
    Advice { report: Some(report), notes, ..finish(table, weighed, proposal, unchanged) }
}

/// Simulates a candidate alone.
fn weigh(trial: &Trial<'_>, mut candidate: Candidate) -> Weighed {
    if candidate.edits.is_empty() {
        let is_enough = is_no_loss(&candidate.finding);
        return Weighed { candidate, saved: 0, is_enough };
    }
    let edits: Vec<&Edit> = candidate.edits.iter().collect();
    let saved = trial.saved(&edits);
    let is_enough = trial.is_enough(saved);
    if is_enough {
        candidate.finding.bytes = trial.bytes(&edits);
    }
    Weighed { candidate, saved, is_enough }
}

/// An order of columns must save more than leaving the dropped ones out.
fn drop_what_another_rule_saves(trial: &Trial<'_>, weighed: &mut [Weighed]) {
    let dead = weighed.iter().find(|weighed| weighed.candidate.edits == [Edit::DropDead]);
    let Some(dead) = dead.map(|dead| dead.saved.max(0)) else { return };
    for order in weighed.iter_mut().filter(|weighed| weighed.candidate.edits == [Edit::Reorder]) {
        if !trial.is_enough(order.saved - dead) {
            order.is_enough = false;
            order.candidate.is_recommended = false;
        } else if dead > 0 {
            let text = format!(
                " Of what it saves, {} are the dropped columns, which a new table does not have.",
                shown::saved(dead)
            );
            order.candidate.finding.reason += &text;
        }
    }
}

/// Findings of what is chosen but saves nothing alone, and the SQL of the others.
fn fill_in(snapshot: &Snapshot, trial: &Trial<'_>, weighed: &mut [Weighed], chosen: &[usize]) {
    for index in 0..weighed.len() {
        if chosen.contains(&index) && !weighed[index].is_enough {
            let rest: Vec<usize> = chosen.iter().copied().filter(|other| *other != index).collect();
            let without = trial.rebuilt(&edits_of(weighed, &rest)).total();
            let gain = difference(without, trial.rebuilt(&edits_of(weighed, chosen)).total());
            let own = &mut weighed[index];
            own.is_enough = true;
            own.candidate.finding.bytes =
                Bytes { memory: change(trial.now.plain()), ..same(trial.now.total()) };
            own.candidate.finding.reason += &format!(
                " By itself it saves no page, because rows and values are aligned; together with the table's other findings it \
                 saves {}.",
                shown::saved(gain)
            );
        }
        let own = &weighed[index].candidate;
        if weighed[index].is_enough && own.finding.sql.is_empty() && has_script(trial.table, own) {
            let edits: Vec<&Edit> = own.edits.iter().collect();
            let (steps, warnings) = wiring::script(snapshot, trial.table, &edits);
            let finding = &mut weighed[index].candidate.finding;
            finding.sql = steps.into_iter().flat_map(|step| step.statements).collect();
            finding.risks.extend(warnings);
        }
    }
}

/// All that is recommended for a table, with these files after it. `as_it_is`: the table is built anew, and would take so much without the changes.
fn propose(
    about: About<'_>,
    weighed: &[Weighed],
    chosen: &[usize],
    after: &Sizes,
    as_it_is: Option<&Sizes>,
) -> Option<Proposal> {
    let table = about.table;
    if table.extension.is_some() {
        return None;
    }
    let now = Sizes::now(table);
    let mut after = after.clone();
    let mut proposal = Proposal { object: table_object(table), ..Proposal::default() };
    let mut indexes = Vec::new();
    for (index, own) in weighed.iter().enumerate() {
        let finding = &own.candidate.finding;
        let place = index_of(table, finding);
        if chosen.contains(&index) || (is_recommended_bloat(&own.candidate) && as_it_is.is_some()) {
            proposal.findings.push(finding.id.clone());
        } else if let Some(place) = place.filter(|_| own.candidate.is_recommended) {
            proposal.findings.push(finding.id.clone());
            let saved = u64::try_from(finding.bytes.disk.saved()).unwrap_or(0);
            let left = table.indexes[place].bytes.saturating_sub(saved);
            after.indexes[place] = after.indexes[place].min(left);
            // A table that is built anew has new indexes.
            if finding.rule != Rule::IndexBloat || as_it_is.is_none() {
                let step = Step {
                    title: finding.title.clone(),
                    statements: finding.sql.clone(),
                    lock: finding.cost.clone(),
                };
                indexes.push((qualified(&table.schema, &table.indexes[place].name), step));
            }
        }
    }
    let bytes = Bytes {
        disk: Change { now: now.total(), after: after.total() },
        compressed: None,
        memory: Change { now: now.plain(), after: after.plain() },
    };
    if proposal.findings.is_empty() || bytes.disk.saved() <= 0 {
        return None;
    }
    proposal.bytes =
        Bytes { memory: Change { after: bytes.memory.after.min(bytes.memory.now), ..bytes.memory }, ..bytes };
    proposal.bloat_bytes = as_it_is.map_or(0, |anew| difference(now.total(), anew.total()));
    let edits = as_it_is.map(|_| edits_of(weighed, chosen));
    write_scripts(about, &mut proposal, edits.as_deref(), indexes);
    Some(proposal)
}

/// The scripts of a proposal. `edits`: the table is built anew with these. `indexes` are changed alone.
fn write_scripts(
    about: About<'_>,
    proposal: &mut Proposal,
    edits: Option<&[&Edit]>,
    mut indexes: Vec<(String, Step)>,
) {
    let About { snapshot, table, is_online } = about;
    if let Some(edits) = edits {
        // Before the indexes go: a script checks that the catalogs are as they were.
        (proposal.sql, proposal.warnings) = wiring::script(snapshot, table, edits);
        proposal.online = is_online.then(|| wiring::online(snapshot, table, edits, &proposal.sql));
    } else if let (Some(check), Some((_, first))) = (crate::plan::unchanged(table), indexes.first_mut()) {
        // Somebody may have dropped the index that makes this one superfluous.
        first.statements.insert(0, check);
    }
    if is_online {
        proposal.online.get_or_insert_default().indexes.clone_from(&indexes);
    }
    proposal.sql.extend(indexes.into_iter().map(|(_, step)| step));
}

/// Which of the table's indexes a finding without edits is about.
fn index_of(table: &Table, finding: &Finding) -> Option<usize> {
    let name = finding.object.part.as_ref().filter(|_| finding.object.kind == "index")?;
    table.indexes.iter().position(|index| index.name == *name)
}

fn is_recommended_bloat(candidate: &Candidate) -> bool {
    candidate.finding.rule == Rule::Bloat && candidate.is_recommended && candidate.edits.is_empty()
}

fn change(bytes: u64) -> Change {
    Change { now: bytes, after: bytes }
}

/// The findings that are left, with what is in the proposal marked.
fn finish(table: &Table, weighed: Vec<Weighed>, proposal: Option<Proposal>, unchanged: Bytes) -> Advice {
    let has_rows = table.kind != TableKind::Partitioned;
    let left = weighed.into_iter().filter(|weighed| weighed.is_enough);
    let mut findings: Vec<Finding> = left.map(|weighed| weighed.candidate.finding).collect();
    for finding in &mut findings {
        finding.in_proposal =
            proposal.as_ref().is_some_and(|proposal| proposal.findings.contains(&finding.id));
    }
    findings.retain(is_no_loss);
    let bytes = proposal.as_ref().map_or(unchanged, |proposal| proposal.bytes);
    let bytes = if has_rows { bytes } else { Bytes::default() };
    Advice { findings, proposal, report: None, notes: Vec::new(), bytes }
}
