//! Indexes of columns that are mostly NULL.

use super::definition::{Definition, new_name};
use super::{About, SAVED_MIN, Words, in_words, is_needed};
use crate::finding::{Change, Confidence, Rule};
use crate::index;
use crate::rules::Candidate;
use crate::snapshot::Index;
use crate::snapshot::sample::Place;
use crate::sql::quote_ident;

/// Of the sampled rows, in per cent.
const NULL_PERCENT_MIN: usize = 50;
/// What leaving the NULLs out must save of the index as it would be built anew, in per cent.
const SAVED_PERCENT_MIN: u64 = 10;
/// Fewer rows say nothing about the others.
const ROWS_MIN: usize = 500;

pub fn mostly_null(about: &About<'_>) -> Vec<Candidate> {
    let Some(rows) = about.rows() else { return Vec::new() };
    about.table.indexes.iter().filter_map(|index| candidate(about, index, rows)).collect()
}

fn candidate(about: &About<'_>, index: &Index, rows: u64) -> Option<Candidate> {
    let is_open = index.is_valid
        && index.access_method == "btree"
        && index.predicate.is_none()
        && !is_needed(index)
        && !(index.is_unique && (index.nulls_not_distinct || index.key_count > 1));
    let first = index.columns.first()?;
    let column = usize::try_from(first.table_column).ok()?.checked_sub(1)?;
    let places = &about.table.sample.as_ref()?.columns.get(column)?.places;
    let nulls = places.iter().filter(|place| **place == Place::Null).count();
    if !is_open || places.len() < ROWS_MIN || nulls * 100 < places.len() * NULL_PERCENT_MIN {
        return None;
    }
    let name = quote_ident(&about.table.columns.get(column)?.name);
    let predicate = format!("({name} IS NOT NULL)");
    let planned = Index { predicate: Some(predicate.clone()), ..index.clone() };
    let after = index::planned_bytes(about.table, &planned, rows)?;
    let rebuilt = index::rebuilt(about.table, index, rows)?.bytes;
    let saved = rebuilt.saturating_sub(after);
    if saved < SAVED_MIN || saved.saturating_mul(100) < rebuilt.saturating_mul(SAVED_PERCENT_MIN) {
        return None;
    }
    let new = new_name(&index.name);
    let qualified_new = crate::sql::qualified(&about.table.schema, &new);
    let create = Definition::of(&index.definition)?.sql(index, None, Some(&predicate));
    let mut risks = vec![
        format!("Queries for rows where {name} is NULL, and those that sort all rows by it, do not use it."),
        "The planner needs statistics to use it well: run ANALYZE on the table if that has not been done."
            .to_owned(),
    ];
    if index.is_unique {
        risks.push(format!("ON CONFLICT ({name}) finds it only if WHERE {name} IS NOT NULL follows."));
    }
    let confidence =
        if about.table.sample.as_ref()?.is_whole { Confidence::Exact } else { Confidence::Measured };
    let words = Words {
        rule: Rule::IndexKeys,
        kind: "partial_index",
        title: format!("{} % of its keys are NULL", nulls * 100 / places.len()),
        reason: format!(
            "{nulls} of {} sampled rows have no {name}. A comparison with a value never finds them, so a partial index answers the same \
             queries with {} instead of {}. Rows without {name} are then inserted without writing to it.{}",
            places.len(),
            in_words(after),
            in_words(rebuilt),
            if index.is_unique { " NULLs are distinct, so it guarantees the same." } else { "" }
        ),
        cost: "Reads the table twice, needs space for the new index beside the old one, and waits for transactions that use the table. Nobody \
               else waits. Cannot run inside a transaction block."
            .to_owned(),
        risks,
        sql: vec![
            create,
            about.drop_sql(index),
            format!("ALTER INDEX {qualified_new} RENAME TO {};", quote_ident(&index.name)),
        ],
        proof: None,
    };
    let mut found = about.candidate(index, Change { now: index.bytes, after }, confidence, words);
    found.is_recommended = !index.is_unique;
    Some(found)
}
