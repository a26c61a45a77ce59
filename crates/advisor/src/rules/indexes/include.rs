//! INCLUDE columns: those that cost nothing in another index, and those that cost less in another order.

use super::definition::{Definition, new_name};
use super::{About, SAVED_MIN, Words, in_words, is_needed};
use crate::finding::{Change, Confidence, Rule};
use crate::index::key::layout_of;
use crate::index::{self, tuple};
use crate::layout::Value;
use crate::rules::Candidate;
use crate::snapshot::{Index, IndexColumn};
use crate::sql::{qualified, quote_ident};

/// More columns are not tried in every order.
const COLUMNS_MAX: usize = 6;
/// What another order must save, in per cent.
const SAVED_PERCENT_MIN: u64 = 5;

/// Covering indexes that a unique one of the same keys replaces, if it takes their columns into its padding.
pub fn merged(about: &About<'_>) -> Vec<Candidate> {
    let Some(rows) = about.rows() else { return Vec::new() };
    let indexes = &about.table.indexes;
    let pairs = indexes.iter().flat_map(|unique| indexes.iter().map(move |covering| (unique, covering)));
    pairs.filter_map(|(unique, covering)| merge(about, unique, covering, rows)).collect()
}

fn merge(about: &About<'_>, unique: &Index, covering: &Index, rows: u64) -> Option<Candidate> {
    let keys = unique.key_count.min(unique.columns.len());
    if !is_pair(unique, covering) || !fits_padding(about, unique, &covering.columns[keys..])? {
        return None;
    }
    let added = &covering.columns[keys..];
    let planned = Index {
        columns: unique.columns.iter().chain(added).cloned().map(included_from(keys)).collect(),
        ..unique.clone()
    };
    let (after, alone) = (
        index::planned_bytes(about.table, &planned, rows)?,
        index::rebuilt(about.table, unique, rows)?.bytes,
    );
    let grown = after.saturating_sub(alone);
    if covering.bytes.saturating_sub(grown) < SAVED_MIN {
        return None;
    }
    let names = names(about, added)?;
    let new = new_name(&unique.name);
    let create = Definition::of(&unique.definition)?.sql(unique, Some(&names), None);
    let words = Words {
        rule: Rule::IndexKeys,
        kind: "free_include",
        title: format!("{names} fits into the padding of index {}", unique.name),
        reason: format!(
            "Keys of {} leave room up to the next multiple of eight bytes. With {names} there it can \
             replace this index, and has {} instead of {}. Its keys are unique, so the order of what \
             follows them does not matter.",
            unique.name,
            in_words(after),
            in_words(alone)
        ),
        cost: "Reads the table twice, needs space for the new index, and waits for transactions that use the table. Nobody else waits. \
               Cannot run inside a transaction block."
            .to_owned(),
        risks: vec![
            format!("Updates of {names} are not HOT while an index contains it. With the present index they are not HOT either."),
            "An index with INCLUDE columns is not deduplicated; a unique one seldom has anything to deduplicate.".to_owned(),
        ],
        sql: vec![
            create,
            about.drop_sql(unique),
            format!(
                "ALTER INDEX {} RENAME TO {};",
                qualified(&about.table.schema, &new),
                quote_ident(&unique.name)
            ),
            about.drop_sql(covering),
        ],
        proof: None,
    };
    let bytes = Change { now: covering.bytes, after: grown };
    let mut found = about.candidate(covering, bytes, Confidence::Measured, words);
    found.is_recommended = false;
    Some(found)
}

/// A unique index without more than its keys, and one that has the same keys and more behind them.
fn is_pair(unique: &Index, covering: &Index) -> bool {
    let is_open = |index: &Index| {
        index.is_valid && index.access_method == "btree" && index.predicate.is_none() && !is_needed(index)
    };
    let keys = unique.key_count.min(unique.columns.len());
    unique.oid != covering.oid
        && unique.is_unique
        && unique.columns.len() == keys
        && !covering.is_unique
        && covering.key_count >= keys
        && covering.columns.len() > keys
        && is_open(unique)
        && is_open(covering)
        && unique.columns.iter().zip(&covering.columns).all(|(a, b)| {
            a.table_column > 0
                && a.table_column == b.table_column
                && a.operator_class == b.operator_class
                && a.collation == b.collation
                && a.order_flags == b.order_flags
        })
}

/// Whether columns of fixed length that are never NULL make no tuple of the index longer.
fn fits_padding(about: &About<'_>, index: &Index, added: &[IndexColumn]) -> Option<bool> {
    let all = index.columns.iter().chain(added);
    for column in all.clone() {
        let number = usize::try_from(column.table_column).ok()?.checked_sub(1)?;
        if column.length <= 0 || !about.table.columns.get(number)?.is_not_null {
            return Some(false);
        }
    }
    let layouts = all.map(layout_of).collect::<Option<Vec<_>>>()?;
    let bytes = |count: usize| tuple::bytes(layouts.iter().take(count).map(|layout| (layout, Value::Fixed)));
    Some(bytes(index.columns.len()) == bytes(layouts.len()))
}

/// Columns behind the keys have no class, no collation and no order.
fn included_from(keys: usize) -> impl FnMut(IndexColumn) -> IndexColumn {
    let mut at = 0;
    move |column| {
        at += 1;
        if at <= keys {
            return column;
        }
        IndexColumn { operator_class: String::new(), collation: 0, order_flags: 0, ..column }
    }
}

/// Names of columns of the table. None: one is an expression.
fn names(about: &About<'_>, columns: &[IndexColumn]) -> Option<String> {
    let name = |column: &IndexColumn| {
        let number = usize::try_from(column.table_column).ok()?.checked_sub(1)?;
        Some(quote_ident(&about.table.columns.get(number)?.name))
    };
    Some(columns.iter().map(name).collect::<Option<Vec<_>>>()?.join(", "))
}

/// Indexes whose INCLUDE columns have less padding in another order. The order of keys means something, so it stays.
pub fn reordered(about: &About<'_>) -> Vec<Candidate> {
    let Some(rows) = about.rows() else { return Vec::new() };
    about.table.indexes.iter().filter_map(|index| reorder(about, index, rows)).collect()
}

fn reorder(about: &About<'_>, index: &Index, rows: u64) -> Option<Candidate> {
    let keys = index.key_count.min(index.columns.len());
    let included = &index.columns[keys..];
    let is_open = index.is_valid && index.access_method == "btree" && !is_needed(index);
    if !is_open || !(2..=COLUMNS_MAX).contains(&included.len()) {
        return None;
    }
    let now = index::rebuilt(about.table, index, rows)?.bytes;
    let with = |order: &[usize]| Index {
        columns: index.columns[..keys].iter().chain(order.iter().map(|at| &included[*at])).cloned().collect(),
        ..index.clone()
    };
    // The first is the present one, which stays if no other is smaller.
    let mut best: Option<(u64, Vec<usize>)> = None;
    for order in alignments(included) {
        let bytes = index::planned_bytes(about.table, &with(&order), rows)?;
        if best.as_ref().is_none_or(|(least, _)| bytes < *least) {
            best = Some((bytes, order));
        }
    }
    let (after, order) = best?;
    let saved = now.saturating_sub(after);
    if saved < SAVED_MIN || saved.saturating_mul(100) < now.saturating_mul(SAVED_PERCENT_MIN) {
        return None;
    }
    let columns: Vec<IndexColumn> = order.iter().map(|at| included[*at].clone()).collect();
    let (names, new) = (names(about, &columns)?, new_name(&index.name));
    let words = Words {
        rule: Rule::IndexKeys,
        kind: "include_order",
        title: format!("INCLUDE ({names}) has less padding"),
        reason: format!(
            "Values begin at multiples of their alignment, and the gaps before them are padding. In this \
             order, which does not matter for columns that are not keys, the index has {} instead of {}.",
            in_words(after),
            in_words(now)
        ),
        cost: "Reads the table twice, needs space for the new index beside the old one, and waits for transactions that use the table. Nobody \
               else waits. Cannot run inside a transaction block."
            .to_owned(),
        risks: Vec::new(),
        sql: vec![
            Definition::of(&index.definition)?.sql(index, Some(&names), None),
            about.drop_sql(index),
            format!("ALTER INDEX {} RENAME TO {};", qualified(&about.table.schema, &new), quote_ident(&index.name)),
        ],
        proof: None,
    };
    let bytes = Change { now: index.bytes, after };
    Some(about.candidate(index, bytes, Confidence::Measured, words))
}

/// Orders worth trying: the present one, by falling and by rising alignment, and those with one column moved to an end.
fn alignments(columns: &[IndexColumn]) -> Vec<Vec<usize>> {
    let own: Vec<usize> = (0..columns.len()).collect();
    let rank = |at: &usize| match columns[*at].alignment {
        'd' => 8,
        'i' => 4,
        's' => 2,
        _ => 1,
    };
    // Values of no fixed length have no fixed place behind them.
    let varies = |at: &usize| columns[*at].length < 0;
    let (mut falling, mut rising) = (own.clone(), own.clone());
    falling.sort_by_key(|at| (varies(at), std::cmp::Reverse(rank(at))));
    rising.sort_by_key(|at| (varies(at), rank(at)));
    let mut orders = vec![own.clone(), falling.clone(), rising];
    for order in [own, falling] {
        for at in 0..columns.len() {
            let mut first = order.clone();
            let moved = first.remove(at);
            let mut last = first.clone();
            first.insert(0, moved);
            last.push(moved);
            orders.extend([first, last]);
        }
    }
    let mut known: Vec<Vec<usize>> = Vec::new();
    orders.retain(|order| {
        !known.contains(order) && {
            known.push(order.clone());
            true
        }
    });
    orders
}
