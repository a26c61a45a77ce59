//! Indexes that no query reads.

use super::{About, SAVED_MIN, Words, is_needed};
use crate::finding::{Change, Confidence, Rule};
use crate::rules::Candidate;
use crate::snapshot::{Index, TableKind};
use pgshrink_codec::counted;

const DAY_S: i64 = 86_400;
/// Counters of a shorter time say nothing.
const COUNTED_DAYS_MIN: i64 = 7;
/// A quarter has been seen by then.
const RECOMMENDED_DAYS_MIN: i64 = 90;

/// What a CREATE INDEX CONCURRENTLY left that failed.
pub fn invalid(about: &About<'_>) -> Vec<Candidate> {
    let indexes = about.table.indexes.iter().filter(|index| {
        // Of a partitioned table, an index is invalid until each partition has one.
        !index.is_valid && !is_needed(index) && about.table.kind != TableKind::Partitioned
    });
    let candidate = |index: &Index| {
        let words = Words {
            rule: Rule::UnusedIndex,
            kind: "invalid_index",
            title: "invalid: building it failed".to_owned(),
            reason: "A CREATE INDEX CONCURRENTLY or REINDEX CONCURRENTLY that failed left it. No query reads it, but every insert \
                     and every update that is not HOT writes it."
                .to_owned(),
            cost: about.drop_cost(),
            risks: vec![
                "It may be one that is being built right now: the query must give 0 first.".to_owned(),
                "If it was wanted, it has to be created again.".to_owned(),
            ],
            sql: vec![about.drop_sql(index)],
            proof: Some(format!(
                "SELECT count(*) FROM pg_stat_progress_create_index WHERE index_relid = {};",
                index.oid
            )),
        };
        about.candidate(index, Change { now: index.bytes, after: 0 }, Confidence::Exact, words)
    };
    indexes.map(candidate).collect()
}

/// Indexes without a scan since counting began, but for those that replace others.
pub fn unused(about: &About<'_>, kept: &[u32]) -> Vec<Candidate> {
    let Some(since) = about.snapshot.server.counting_since_s else { return Vec::new() };
    let days = about.snapshot.taken_s.saturating_sub(since) / DAY_S;
    if days < COUNTED_DAYS_MIN {
        return Vec::new();
    }
    let is_unused = |index: &&Index| {
        let parts = about.with_parts(index);
        // A partitioned table's index has no counters of its own.
        let mut counted =
            parts.iter().filter(|part| about.table.kind != TableKind::Partitioned || part.oid != index.oid);
        index.is_valid
            && !index.is_unique
            && !is_needed(index)
            && !kept.contains(&index.oid)
            && parts.len() > usize::from(about.table.kind == TableKind::Partitioned)
            && counted.all(|part| part.scans == Some(0) && part.last_scan_s.is_none())
            && !serves_a_foreign_key(about, index)
            && about.bytes(index) >= SAVED_MIN
    };
    let indexes = about.table.indexes.iter().filter(is_unused);
    indexes.map(|index| candidate(about, index, days)).collect()
}

fn candidate(about: &About<'_>, index: &Index, days: i64) -> Candidate {
    let is_standby = about.snapshot.server.is_standby;
    let mut risks = vec![
        if is_standby {
            "The counters are those of this standby alone: look at the primary and the other standbys too.".to_owned()
        } else {
            "Each server counts for itself: if there are standbys that answer queries, look at their counters too.".to_owned()
        },
        "It may be needed only rarely, for example for a year-end report, or it may be newer than the counters.".to_owned(),
    ];
    if about.table.activity.deleted > 0 {
        risks.push(
            "Dropping an index on an expression also drops the statistics of that expression.".to_owned(),
        );
    }
    let days_text = counted(days as u64, "day", "days");
    let words = Words {
        rule: Rule::UnusedIndex,
        kind: "unused_index",
        title: format!("not read once in {days_text}"),
        reason: format!(
            "The counters cover {days_text}, and no query has used the index. Rows of the table were inserted {} times and updated \
             {} times in that time; {} of the updates were not HOT and wrote every index.",
            about.table.activity.inserted,
            about.table.activity.updated,
            about.table.activity.updated.saturating_sub(about.table.activity.updated_hot)
        ),
        cost: about.drop_cost(),
        risks,
        sql: vec![about.drop_sql(index)],
        proof: Some(match about.table.kind {
            TableKind::Partitioned => format!(
                "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_all_indexes WHERE indexrelid IN \
                 (SELECT relid FROM pg_partition_tree({}));",
                index.oid
            ),
            _ => format!("SELECT idx_scan FROM pg_stat_all_indexes WHERE indexrelid = {};", index.oid),
        }),
    };
    let bytes = Change { now: about.bytes(index), after: 0 };
    let mut candidate = about.candidate(index, bytes, Confidence::Estimated, words);
    candidate.is_recommended = days >= RECOMMENDED_DAYS_MIN && !is_standby;
    candidate
}

/// Deleting rows that a foreign key refers to looks for the referring rows; without an index that reads the whole table. Those
/// scans are counted, but deletions may be rare.
fn serves_a_foreign_key(about: &About<'_>, index: &Index) -> bool {
    about.table.foreign_keys.iter().any(|key| {
        let columns = index.columns.iter().take(index.key_count.min(key.columns.len()));
        let leading: Vec<i16> = columns.map(|column| column.table_column).collect();
        leading.len() == key.columns.len() && key.columns.iter().all(|column| leading.contains(column))
    })
}
