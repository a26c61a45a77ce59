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
mod families;
pub mod prices;
mod tables;
mod wiring;

use crate::finding::{Bytes, Change, EgressSummary, Finding, Prices, Proposal, REPORT_FORMAT, Report, Total};
use crate::snapshot::{Snapshot, TableKind};
use std::cmp::Reverse;

/// What a report is to have beside what the snapshot says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What bytes cost: the first three of its fields.
    pub prices: Option<Prices>,
    /// What the gateway saw.
    pub egress: Option<EgressSummary>,
}

/// What can be made smaller. The same snapshot and options give the same report. Codecs and the backup take time and a clock: the caller adds
/// them to the report, and then [`prices::apply`]s the prices again.
pub fn advise(snapshot: &Snapshot, options: &Options) -> Report {
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
    let whole = wiring::DATABASE_RULES.iter().flat_map(|rule| rule(snapshot));
    report.findings = whole.map(|candidate| candidate.finding).filter(is_no_loss).collect();
    let mut total = Bytes { compressed: None, ..same(snapshot.sampling.small_bytes) };
    for table in snapshot.tables.iter().filter(|table| table.kind != TableKind::Foreign) {
        let advice = tables::advise(snapshot, table);
        add(&mut total, &advice.bytes);
        report.findings.extend(advice.findings);
        report.proposals.extend(advice.proposal);
        report.tables.extend(advice.report);
        report.notes.extend(advice.notes);
    }
    report.total = Total { bytes: total };
    let shared = families::shared(snapshot, &report.findings);
    report.findings.extend(shared);
    if snapshot.sampling.small_tables > 0 {
        report.notes.push(format!(
            "{} tables with fewer than {} bytes, {} bytes in all, were not sampled.",
            snapshot.sampling.small_tables, snapshot.sampling.table_bytes_min, snapshot.sampling.small_bytes
        ));
    }
    sort(&mut report);
    prices::apply(&mut report);
    report
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
