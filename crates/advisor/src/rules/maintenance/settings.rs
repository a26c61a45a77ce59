//! Settings that cost space.

use super::{empty, on_primary};
use crate::finding::{Confidence, Finding, Object, Rule};
use crate::rules::Candidate;
use crate::snapshot::Snapshot;

/// A setting and what is said of it.
struct Advice {
    name: &'static str,
    value: &'static str,
    title: &'static str,
    reason: &'static str,
    risks: &'static [&'static str],
}

const WAL_COMPRESSION: Advice = Advice {
    name: "wal_compression",
    value: "lz4",
    title: "wal_compression is off",
    reason: "The first change of a page after a checkpoint writes the whole page to the WAL, 8 kB \
        uncompressed: to disk, to every standby and to the archive. The catalogs do not show how much this \
        is. Measure it: SELECT wal_fpi, wal_bytes FROM pg_stat_wal, or pg_waldump --stats=record on some \
        segments, whose column FPI size is what would be compressed.",
    risks: &[
        "lz4 and zstd must have been compiled in, otherwise the setting is refused; pglz is always \
         available and slower.",
        "Compressing costs processor time in the backend that writes.",
    ],
};

const TOAST_COMPRESSION: Advice = Advice {
    name: "default_toast_compression",
    value: "lz4",
    title: "large values are compressed by pglz",
    reason: "lz4 compresses and decompresses several times as fast as pglz, at about the same size: \
        sometimes a few per cent more. It is used for new values of columns without a COMPRESSION of their \
        own; stored values do not change. The findings about columns show its effect on their sampled \
        values.",
    risks: &[
        "lz4 must have been compiled in, otherwise the setting is refused.",
        "Some data become a little larger: look at the findings of the columns first.",
    ],
};

const AUTOVACUUM: Advice = Advice {
    name: "autovacuum",
    value: "on",
    title: "autovacuum is off",
    reason: "Dead rows are removed only when somebody runs VACUUM; tables and indexes grow with each \
        update and delete, and planner statistics become outdated.",
    risks: &["The first round has a lot to do: it is throttled by autovacuum_vacuum_cost_delay."],
};

const TRACK_COUNTS: Advice = Advice {
    name: "track_counts",
    value: "on",
    title: "track_counts is off",
    reason: "Without counters autovacuum does not know which tables have dead rows, and unused indexes \
        cannot be detected.",
    risks: &[],
};

pub fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    let is = |name: &str, value: &str| snapshot.server.settings.get(name).is_some_and(|found| found == value);
    let advice = [
        (is("wal_compression", "off"), &WAL_COMPRESSION),
        (is("default_toast_compression", "pglz"), &TOAST_COMPRESSION),
        (is("autovacuum", "off"), &AUTOVACUUM),
        (is("track_counts", "off"), &TRACK_COUNTS),
    ];
    let due = advice.into_iter().filter(|(is_due, _)| *is_due);
    due.map(|(_, advice)| candidate(snapshot, advice)).collect()
}

fn candidate(snapshot: &Snapshot, advice: &Advice) -> Candidate {
    // Before PostgreSQL 15 it is on or off.
    let is_old = advice.name == "wal_compression" && snapshot.server.version < 150_000;
    let value = if is_old { "on" } else { advice.value };
    let object = Object { kind: "setting".to_owned(), name: advice.name.to_owned(), ..Object::default() };
    let finding = Finding {
        title: advice.title.to_owned(),
        reason: advice.reason.to_owned(),
        confidence: Confidence::Exact,
        cost: on_primary(
            snapshot,
            "Takes effect when the configuration is reloaded, without a restart. It needs a superuser.",
        ),
        risks: advice.risks.iter().map(|risk| (*risk).to_owned()).collect(),
        sql: vec![
            format!("ALTER SYSTEM SET {} = '{value}';", advice.name),
            "SELECT pg_catalog.pg_reload_conf();".to_owned(),
        ],
        ..empty(Rule::Setting, format!("setting:{}", advice.name), object)
    };
    Candidate { finding, edits: Vec::new(), is_recommended: false }
}
