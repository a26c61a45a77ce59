//! Indexes that another index of the same table replaces.

use super::{About, SAVED_MIN, Words, in_words, is_needed};
use crate::finding::{Change, Confidence, Rule};
use crate::rules::Candidate;
use crate::snapshot::{Index, IndexColumn, TableKind};
use crate::sql::{qualified, quote_ident};
use std::cmp::Reverse;

/// An index that is so many times as large as the one it replaces is read more slowly.
const LARGER_MAX: u64 = 2;

/// Indexes that can go, and those that must stay for that.
pub struct Twins {
    /// One for each that can go.
    pub candidates: Vec<Candidate>,
    /// OIDs of those that replace them.
    pub kept: Vec<u32>,
}

/// How one index replaces another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likeness {
    /// The same columns in the same order, and the same INCLUDE columns.
    Same,
    /// Its keys begin with the other's, or it has the same and more INCLUDE columns.
    Longer,
}

pub fn found(about: &About<'_>) -> Twins {
    let mut twins = Twins { candidates: Vec::new(), kept: Vec::new() };
    // The strongest claim to stay first.
    let mut indexes: Vec<&Index> = about.table.indexes.iter().filter(|index| index.is_valid).collect();
    indexes.sort_by_key(|index| (Reverse(claim(index)), index.bytes, index.oid));
    let mut gone: Vec<u32> = Vec::new();
    // What is the same is found first: a longer index is the worse reason.
    for wanted in [Likeness::Same, Likeness::Longer] {
        for index in indexes.iter().rev().filter(|index| index.parent == 0) {
            let is_left = |other: &&&Index| other.oid != index.oid && !gone.contains(&other.oid);
            let is_twin = |other: &&&Index| replaces(other, index) == Some(wanted);
            let bytes = about.bytes(index);
            let is_enough = bytes > 0 && (wanted == Likeness::Same || bytes >= SAVED_MIN);
            let other = indexes.iter().filter(is_left).find(is_twin);
            let Some(other) = other.filter(|_| is_enough && !gone.contains(&index.oid)) else { continue };
            let Some(drop) = drop_sql(about, index, wanted) else { continue };
            gone.push(index.oid);
            twins.kept.push(other.oid);
            twins.candidates.push(candidate(about, index, other, wanted, drop));
        }
    }
    twins
}

/// How much an index is needed for more than queries.
fn claim(index: &Index) -> [u64; 6] {
    [
        u64::from(index.is_primary || index.is_exclusion || index.parent != 0),
        u64::from(index.referenced_by > 0 || index.is_replica_identity || index.is_clustered),
        u64::from(index.constraint.is_some()),
        u64::from(index.is_unique),
        index.columns.len() as u64,
        index.scans.unwrap_or(0),
    ]
}

/// Whether every query and every guarantee of `index` is served by `other`, and how.
fn replaces(other: &Index, index: &Index) -> Option<Likeness> {
    let same_method = other.access_method == index.access_method && other.predicate == index.predicate;
    // An exclusion constraint's operators are not in its columns.
    if !same_method || index.is_exclusion || other.is_exclusion {
        return None;
    }
    if index.is_unique && !(other.is_unique && other.nulls_not_distinct == index.nulls_not_distinct) {
        return None;
    }
    // One that is checked later guarantees less, and ON CONFLICT does not take it.
    if index.is_unique && other.is_deferrable && !index.is_deferrable {
        return None;
    }
    let keys = |index: &'_ Index| index.key_count.min(index.columns.len());
    let (own, others) = (keys(index), keys(other));
    let is_prefix = own <= others
        && own > 0
        && index.columns[..own].iter().zip(&other.columns).all(|(a, b)| is_same_key(a, b));
    if !is_prefix {
        return None;
    }
    if index.access_method != "btree" {
        // Their parameters and the classes' are in the definition only.
        let is_same = tail(&index.definition) == tail(&other.definition) && own == others;
        return is_same.then_some(Likeness::Same);
    }
    let is_there = |column: &IndexColumn| other.columns.iter().any(|other| is_same_value(column, other));
    if !index.columns[own..].iter().all(is_there) {
        return None;
    }
    if own == others && index.columns.len() == other.columns.len() {
        return Some(Likeness::Same);
    }
    // A longer key guarantees less, and INCLUDE columns do not count for that.
    (own == others || !index.is_unique).then_some(Likeness::Longer)
}

fn is_same_key(a: &IndexColumn, b: &IndexColumn) -> bool {
    is_same_value(a, b)
        && a.operator_class == b.operator_class
        && a.collation == b.collation
        && a.order_flags == b.order_flags
}

fn is_same_value(a: &IndexColumn, b: &IndexColumn) -> bool {
    a.table_column == b.table_column && (a.table_column > 0 || a.definition == b.definition)
}

/// All of a definition but the name.
fn tail(definition: &str) -> &str {
    definition.find(" USING ").map_or(definition, |at| &definition[at..])
}

/// How to get rid of it. None: it cannot be dropped alone.
fn drop_sql(about: &About<'_>, index: &Index, likeness: Likeness) -> Option<String> {
    if !is_needed(index) {
        return Some(about.drop_sql(index));
    }
    let is_free = !index.is_primary
        && !index.is_exclusion
        && !index.is_replica_identity
        && !index.is_clustered
        && index.referenced_by == 0
        && index.parent == 0
        && about.table.kind == TableKind::Table
        && !about.table.is_partition;
    let constraint = index.constraint.as_ref().filter(|_| is_free && likeness == Likeness::Same)?;
    let table = qualified(&about.table.schema, &about.table.name);
    Some(format!("ALTER TABLE {table} DROP CONSTRAINT {};", quote_ident(constraint)))
}

fn candidate(about: &About<'_>, index: &Index, other: &Index, likeness: Likeness, drop: String) -> Candidate {
    let (now, others) = (about.bytes(index), about.bytes(other));
    let mut risks = Vec::new();
    if index.constraint.is_some() {
        risks.push(
            "Statements that name the constraint fail: ON CONFLICT ON CONSTRAINT, and scripts of migrations."
                .to_owned(),
        );
    }
    risks.push("Hints of pg_hint_plan and monitoring that name this index no longer find it.".to_owned());
    let (kind, title, reason) = match likeness {
        Likeness::Same => (
            "duplicate_index",
            format!("the same as index {}", other.name),
            format!(
                "{} has the same columns, operator classes, collations, order and predicate{}. Each insert and each update that is \
                 not HOT writes both, VACUUM reads both, and both take memory.",
                other.name,
                if other.is_unique { ", and is unique" } else { "" }
            ),
        ),
        Likeness::Longer => {
            risks.push(format!(
                "Scans read {} instead, which has {} against {}: longer keys, and fewer rows that share one, make more pages.",
                other.name,
                in_words(others),
                in_words(now)
            ));
            let reason = format!(
                "Its columns are the first of {} in the same order, so that index can answer the same queries. Each insert and each \
                 update that is not HOT writes both.",
                other.name
            );
            ("prefix_index", format!("index {} begins with its columns", other.name), reason)
        }
    };
    let words = Words {
        rule: Rule::DuplicateIndex,
        kind,
        title,
        reason,
        cost: match index.constraint {
            Some(_) => "A short ACCESS EXCLUSIVE lock on the table: set lock_timeout.".to_owned(),
            None => about.drop_cost(),
        },
        risks,
        sql: vec![drop],
        proof: None,
    };
    let mut candidate = about.candidate(index, Change { now, after: 0 }, Confidence::Exact, words);
    candidate.is_recommended = likeness == Likeness::Same || others <= now.saturating_mul(LARGER_MAX);
    candidate
}
