//! Indexes that are there for nothing, or larger than they need be.
//!
//! One index has one finding at most: an index that can go is not said to be bloated too. An index that replaces another one is never
//! said to be unused.
//!
//! Not touched: indexes behind constraints (but a UNIQUE constraint that another one replaces), those that foreign keys, replication or
//! CLUSTER need, those of partitions (only the parent's can be dropped), and tables of extensions.

mod definition;
mod include;
mod partial;
mod size;
mod twins;
mod unused;

use crate::finding::{Bytes, Change, Confidence, Finding, Object, Rule};
use crate::rules::Candidate;
use crate::snapshot::{Index, Snapshot, Table, TableKind};
use crate::sql::qualified;
use pgshrink_codec::size as in_words;
use std::collections::HashSet;

/// What a finding about an index must save.
const SAVED_MIN: u64 = 128 << 10;

/// Findings about the table's indexes.
pub fn candidates(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    if table.extension.is_some() || table.kind == TableKind::Foreign {
        return Vec::new();
    }
    let about = About { snapshot, table };
    let mut found = unused::invalid(&about);
    let twins = twins::found(&about);
    found.extend(twins.candidates);
    let mut spoken_of: Vec<u32> = found.iter().filter_map(|found| about.oid_of(found)).collect();
    let mut add = |found: &mut Vec<Candidate>, next: Vec<Candidate>| {
        for candidate in next {
            if let Some(oid) = about.oid_of(&candidate).filter(|oid| !spoken_of.contains(oid)) {
                spoken_of.push(oid);
                found.push(candidate);
            }
        }
    };
    let unused = unused::unused(&about, &twins.kept);
    add(&mut found, unused);
    if matches!(table.kind, TableKind::Table | TableKind::MaterializedView) {
        add(&mut found, include::merged(&about));
        add(&mut found, partial::mostly_null(&about));
        add(&mut found, include::reordered(&about));
        add(&mut found, size::bloated(&about));
    }
    found
}

/// What a rule is about.
struct About<'s> {
    snapshot: &'s Snapshot,
    table: &'s Table,
}

/// What a finding says.
struct Words {
    rule: Rule,
    /// Distinguishes findings of the same rule: `duplicate_index`.
    kind: &'static str,
    title: String,
    reason: String,
    cost: String,
    risks: Vec<String>,
    sql: Vec<String>,
    proof: Option<String>,
}

impl About<'_> {
    fn candidate(&self, index: &Index, bytes: Change, confidence: Confidence, words: Words) -> Candidate {
        let (schema, name) = (&self.table.schema, &self.table.name);
        let mut cost = words.cost;
        if self.snapshot.server.is_standby {
            cost += " This server is a standby: run it on the primary.";
        }
        let finding = Finding {
            id: format!("{}:{schema}.{name}.{}", words.kind, index.name),
            rule: words.rule,
            object: Object {
                kind: "index".to_owned(),
                schema: schema.clone(),
                name: name.clone(),
                part: Some(index.name.clone()),
            },
            title: words.title,
            reason: words.reason,
            bytes: Bytes { disk: bytes, compressed: None, memory: bytes },
            confidence,
            cost,
            risks: words.risks,
            sql: words.sql,
            proof: words.proof,
            in_proposal: false,
        };
        Candidate { finding, edits: Vec::new(), is_recommended: true }
    }

    fn oid_of(&self, candidate: &Candidate) -> Option<u32> {
        let name = candidate.finding.object.part.as_ref()?;
        self.table.indexes.iter().find(|index| index.name == *name).map(|index| index.oid)
    }

    /// The index's name in SQL.
    fn name(&self, index: &Index) -> String {
        qualified(&self.table.schema, &index.name)
    }

    /// How to drop an index that no constraint needs.
    fn drop_sql(&self, index: &Index) -> String {
        // An index of a partitioned table cannot be dropped CONCURRENTLY.
        let how = if self.table.kind == TableKind::Partitioned { "" } else { "CONCURRENTLY " };
        format!("DROP INDEX {how}{};", self.name(index))
    }

    fn drop_cost(&self) -> String {
        match self.table.kind {
            TableKind::Partitioned => {
                "A short ACCESS EXCLUSIVE lock on the table and all its partitions: set lock_timeout."
                    .to_owned()
            }
            _ => "Waits for transactions that use the table; nobody else waits. Cannot run inside a transaction block."
                .to_owned(),
        }
    }

    /// Bytes of the index, and of those of partitions that belong to it.
    fn bytes(&self, index: &Index) -> u64 {
        self.with_parts(index).iter().fold(0, |sum, index| sum.saturating_add(index.bytes))
    }

    /// The index and those of partitions that belong to it.
    fn with_parts<'a>(&'a self, index: &'a Index) -> Vec<&'a Index> {
        let mut found = vec![index];
        if self.table.kind != TableKind::Partitioned || index.oid == 0 {
            return found;
        }
        // Known ones are not taken again: the file may say that an index belongs to itself.
        let (mut known, mut level) = (HashSet::from([index.oid]), HashSet::from([index.oid]));
        while !level.is_empty() {
            let all = self.snapshot.tables.iter().flat_map(|table| &table.indexes);
            let parts: Vec<_> =
                all.filter(|part| level.contains(&part.parent) && known.insert(part.oid)).collect();
            level = parts.iter().map(|part| part.oid).collect();
            found.extend(parts);
        }
        found
    }

    /// How many rows the table has, from the sample.
    fn rows(&self) -> Option<u64> {
        let sample = self.table.sample.as_ref()?;
        let rows = sample.rows.len() as u64;
        if sample.is_whole {
            return Some(rows);
        }
        let (pages, read) = (self.table.bytes.main / 8192, sample.blocks.len() as u64);
        (read > 0).then(|| (u128::from(rows) * u128::from(pages.max(read)) / u128::from(read)) as u64)
    }
}

/// Something besides queries needs this very index.
fn is_needed(index: &Index) -> bool {
    index.constraint.is_some()
        || index.is_primary
        || index.is_exclusion
        || index.is_replica_identity
        || index.is_clustered
        || index.referenced_by > 0
        || index.parent != 0
}
