//! Indexes whose pages are not full.

use super::{About, Words, in_words};
use crate::finding::{Change, Confidence, Rule};
use crate::index::{self, Basis};
use crate::rules::Candidate;
use crate::snapshot::Index;

/// What rebuilding must save.
const SAVED_MIN: u64 = 1 << 20;
/// In per cent.
const SAVED_PERCENT_MIN: u64 = 20;
/// Pages that keys are inserted into at random are full by about 70 %: what rebuilding saves of that comes back.
const LASTING_PERCENT_MIN: u64 = 33;

/// Indexes that are smaller when they are built anew.
pub fn bloated(about: &About<'_>) -> Vec<Candidate> {
    let Some(rows) = about.rows() else { return Vec::new() };
    let indexes = about
        .table
        .indexes
        .iter()
        .filter(|index| index.is_valid && index.access_method == "btree" && index.bytes >= SAVED_MIN);
    indexes.filter_map(|index| candidate(about, index, rows)).collect()
}

fn candidate(about: &About<'_>, index: &Index, rows: u64) -> Option<Candidate> {
    let rebuilt = index::rebuilt(about.table, index, rows)?;
    let saved = index.bytes.saturating_sub(rebuilt.bytes);
    let percent = saved.saturating_mul(100) / index.bytes.max(1);
    if saved < SAVED_MIN || percent < SAVED_PERCENT_MIN {
        return None;
    }
    let confidence = match rebuilt.basis {
        Basis::AllRows => Confidence::Exact,
        Basis::Sample => Confidence::Measured,
        Basis::Bound => Confidence::Estimated,
        // What ANALYZE found is too little to call an index bloated.
        Basis::Statistics => return None,
    };
    // An exclusion constraint's index cannot be built CONCURRENTLY.
    let (how, cost) = match index.is_exclusion {
        true => ("", "Writers of the table wait until it is done, and readers that would use the index."),
        false => (
            "CONCURRENTLY ",
            "Reads the table twice, needs space for the new index beside the old one, writes it to the WAL, and waits for \
             transactions that use the table. Nobody else waits.",
        ),
    };
    let bound = match rebuilt.basis {
        Basis::Bound => {
            " Duplicates of its keys are not known; where there are any, it becomes smaller still."
        }
        _ => "",
    };
    let words = Words {
        rule: Rule::IndexBloat,
        kind: "index_bloat",
        title: format!("{percent} % of its pages are free"),
        reason: format!(
            "It has {}; rebuilt from the table's {rows} rows it has {}. Deleted rows left room that new \
             keys, which belong elsewhere, do not fill.{bound} Rewriting the table rebuilds its indexes \
             too.",
            in_words(index.bytes),
            in_words(rebuilt.bytes)
        ),
        cost: cost.to_owned(),
        risks: vec![
            "Keys that are inserted at random split full pages: such an index grows again to about 1.3 times its size.".to_owned(),
        ],
        sql: vec![format!("REINDEX INDEX {how}{};", about.name(index))],
        proof: None,
    };
    let bytes = Change { now: index.bytes, after: rebuilt.bytes };
    let mut candidate = about.candidate(index, bytes, confidence, words);
    candidate.is_recommended = percent >= LASTING_PERCENT_MIN;
    Some(candidate)
}
