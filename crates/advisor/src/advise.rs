//! From a snapshot to a report.
//!
//! Every rule's candidates are simulated alone, and what saves nothing is dropped. What is recommended for a table is
//! combined into one proposal that is simulated as a whole.
//!
//! ```text
//!   rules ──> Candidates ──> alone ──> Findings ──┐
//!                              └─────> combine ───┴──> Proposal     for each table
//!                                                         └──> Report
//! ```
//!
//! How bytes are counted:
//! 1. A finding's saving is that of its change alone. If it is a change of layout, what building the table anew gives back is not in it:
//!    `after` is what is there now less what the layout saves. Bloat is a finding of its own.
//! 2. A proposal's `after` is what the table's files take when its script was run, with VACUUM. Bloat is in it, and said apart.
//! 3. Nothing that is reported takes more bytes on disk or in memory after than now.
//! 4. The total counts proposals only.

mod alone;
mod combine;
mod documents;
mod families;
mod left;
mod tables;
mod wiring;

use crate::codecs::{self, Budget, Clock, Means};
use crate::finding::{
    Bytes, Change, EgressSummary, Finding, Prices, Proposal, REPORT_FORMAT, Report, Rule, Total,
};
use crate::report::shown;
use crate::rules::{Candidate, cfs};
use crate::snapshot::{Snapshot, Table, TableKind};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What a report is to have beside what the snapshot says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What bytes cost: the first three of its fields.
    pub prices: Option<Prices>,
    /// What the gateway saw.
    pub egress: Option<EgressSummary>,
    /// Only these rules; all where there are none.
    pub rules: Vec<Rule>,
    /// Not these rules.
    pub skipped: Vec<Rule>,
    /// What is to be in proposals although applications would see it.
    pub accepted: Vec<Accepted>,
    /// Scripts that keep nobody waiting, beside the others.
    pub is_online: bool,
}

/// A finding that whoever asks agrees to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// All findings of a rule.
    Rule(Rule),
    /// The finding of this [`Finding::id`].
    Finding(String),
}

impl Options {
    fn accepts(&self, finding: &Finding) -> bool {
        self.accepted.iter().any(|accepted| match accepted {
            Accepted::Rule(rule) => *rule == finding.rule,
            Accepted::Finding(id) => *id == finding.id,
        })
    }

    fn wants(&self, rule: Rule) -> bool {
        (self.rules.is_empty() || self.rules.contains(&rule)) && !self.skipped.contains(&rule)
    }
}

/// What can be made smaller. The same snapshot and options give the same report, but for speeds of codecs, which need a clock.
pub fn advise(snapshot: &Snapshot, options: &Options, clock: Clock<'_>) -> Report {
    let mut report = Report {
        format: REPORT_FORMAT,
        database: snapshot.server.database.clone(),
        server_version: snapshot.server.version,
        taken_s: snapshot.taken_s,
        unseen: snapshot.unseen.clone(),
        egress: options.egress.clone(),
        prices: options.prices.clone(),
        ..Report::default()
    };
    report.findings = findings(wiring::DATABASE_RULES.iter().flat_map(|rule| rule(snapshot)), options);
    let old = left::old_tables(snapshot);
    let mut total = Bytes { compressed: None, ..same(snapshot.sampling.small_bytes) };
    for table in snapshot.tables.iter().filter(|table| table.kind != TableKind::Foreign) {
        let is_old = old.contains(&table.oid);
        let advice = tables::advise(snapshot, table, options, is_old);
        add(&mut total, &advice.bytes);
        report.findings.extend(advice.findings);
        report.proposals.extend(advice.proposal);
        report.tables.extend(advice.report);
        report.notes.extend(if is_old { vec![left::note(table)] } else { advice.notes });
    }
    report.total = Total { bytes: total };
    let shared = families::shared(snapshot, &report.findings);
    report.findings.extend(shared);
    if snapshot.sampling.small_tables > 0 {
        report.notes.push(format!(
            "Not sampled: {} of less than {}, {} in all.",
            shown::counted(snapshot.sampling.small_tables, "table", "tables"),
            shown::size(snapshot.sampling.table_bytes_min),
            shown::size(snapshot.sampling.small_bytes)
        ));
    }
    measure(snapshot, options, clock, &mut report);
    let is_left = |table: &Table| old.contains(&table.oid);
    let left: BTreeSet<_> = snapshot.tables.iter().filter(|table| is_left(table)).map(name_of).collect();
    report.findings.retain(|finding| !left.contains(&(&*finding.object.schema, &*finding.object.name)));
    sort(&mut report);
    let prices = report.prices.take();
    report.prices = prices.map(|prices| prices.of(&report));
    report
}

/// What the parts of pgshrink make of what was sampled, and the findings that follow from it.
fn measure(snapshot: &Snapshot, options: &Options, clock: Clock<'_>, report: &mut Report) {
    let mut budget = Budget::default();
    let means = Means { clock, jsonb: Some(&wiring::jsonb) };
    let codecs = codecs::measure(snapshot, &mut budget, &means);
    report.findings.extend(findings(cfs::candidates(snapshot, &codecs.relations).into_iter(), options));
    report.codecs = codecs.relations;
    documents::fill_in(snapshot, &means, report);
    report.notes.extend(codecs.notes);
    if let Some((estimate, note)) = codecs::backup::estimate(snapshot, &mut budget) {
        report.backup = Some(estimate);
        report.notes.push(note);
    }
}

/// Findings of candidates whose bytes are known.
fn findings(candidates: impl Iterator<Item = Candidate>, options: &Options) -> Vec<Finding> {
    let found = candidates.map(|candidate| candidate.finding);
    found.filter(|finding| options.wants(finding.rule) && is_no_loss(finding)).collect()
}

/// The largest savings first.
fn sort(report: &mut Report) {
    let key = |finding: &Finding| (Reverse(finding.bytes.disk.saved()), finding.id.clone());
    report.findings.sort_by_cached_key(key);
    let key = |proposal: &Proposal| (Reverse(proposal.bytes.disk.saved()), proposal.object.clone());
    report.proposals.sort_by_cached_key(key);
    report.tables.sort_by_cached_key(|table| (Reverse(table.bytes.disk.now), table.object.clone()));
}

/// Whether a finding takes no more bytes after than now.
fn is_no_loss(finding: &Finding) -> bool {
    finding.bytes.disk.saved() >= 0 && finding.bytes.memory.saved() >= 0
}

fn name_of(table: &Table) -> (&str, &str) {
    (&table.schema, &table.name)
}

/// Bytes that stay.
fn same(bytes: u64) -> Bytes {
    let change = Change { now: bytes, after: bytes };
    Bytes { disk: change, compressed: None, memory: change }
}

fn add(total: &mut Bytes, more: &Bytes) {
    let sum = |a: Change, b: Change| Change {
        now: a.now.saturating_add(b.now),
        after: a.after.saturating_add(b.after),
    };
    total.disk = sum(total.disk, more.disk);
    total.memory = sum(total.memory, more.memory);
    if let Some(change) = more.compressed {
        total.compressed = Some(sum(total.compressed.unwrap_or_default(), change));
    }
}

#[cfg(test)]
mod tests;
