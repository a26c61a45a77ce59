//! An index that is built from the sampled rows.

use super::btree::{LeafTuple, Leaves, TID_ROOM, posting_rows_max};
use super::duplicates::{self, Group, Model, Seen};
use super::key::{self, Key};
use super::predicate::Predicate;
use super::{Basis, Rebuilt, tuple};
use crate::edit::Retype;
use crate::layout::heap::PAGE_BYTES;
use crate::snapshot::{Index, Sample, Table};

/// Larger indexes are extrapolated from so many tuples.
const TUPLES_MAX: f64 = 150_000.0;
/// With fewer sampled rows, what `ANALYZE` found says more about duplicates.
const ROWS_MIN: usize = 1_000;

/// Builds a B-tree over so many rows of the table. None: what it takes was not sampled.
pub fn built(table: &Table, index: &Index, rows: u64, retyped: &[&Retype]) -> Option<Rebuilt> {
    let sample = table.sample.as_ref()?;
    let picked = Picked::of(table, index, sample, rows);
    let plan = Plan {
        table,
        index,
        sample,
        keys: key::keys(table, index, &picked.rows, retyped)?,
        picked: &picked.rows,
        total: picked.total,
        fillfactor: option(index, "fillfactor").and_then(|text| text.parse().ok()).unwrap_or(90),
    };
    let all = if sample.is_whole && picked.is_certain { Basis::AllRows } else { Basis::Sample };
    if picked.rows.is_empty() {
        return (picked.total < 1.0).then_some(Rebuilt { bytes: PAGE_BYTES as u64, basis: all });
    }
    let ranks: Option<Vec<&[u32]>> =
        plan.keys.iter().take(index.key_count).map(|key| key.ranks.as_deref()).collect();
    let order = ranks.as_deref().map(|ranks| key::order(ranks, picked.rows.len()));
    let (built, basis) = match (ranks, order) {
        (Some(ranks), Some(order)) if all == Basis::AllRows => (plan.exact(&ranks, &order), all),
        (_, order) if !plan.deduplicates() => (plan.single(order.as_deref()), Basis::Sample),
        // Rows of a part that is not known may have more keys in common, or fewer.
        (_, order) if !picked.is_certain => (plan.single(order.as_deref()), Basis::Bound),
        (Some(ranks), Some(order)) => plan.grouped(&ranks, &order)?,
        _ => match plan.by_statistics() {
            Some(built) => (built, Basis::Statistics),
            None => (plan.single(None), Basis::Bound),
        },
    };
    let scale = built.scale;
    let pages = if scale == 1.0 { built.leaves.pages() } else { built.leaves.pages_scaled(scale) };
    Some(Rebuilt { bytes: pages.saturating_mul(PAGE_BYTES as u64), basis })
}

fn option<'i>(index: &'i Index, name: &str) -> Option<&'i str> {
    index.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
}

/// Sampled rows that are in the index.
struct Picked {
    rows: Vec<usize>,
    /// How many rows of the table are in it.
    total: f64,
    /// They are those that the predicate holds for.
    is_certain: bool,
}

impl Picked {
    fn of(table: &Table, index: &Index, sample: &Sample, rows: u64) -> Picked {
        let count = sample.rows.len();
        let Some(text) = index.predicate.as_deref() else {
            return Picked { rows: (0..count).collect(), total: rows as f64, is_certain: true };
        };
        let by_predicate = Predicate::parse(table, text).and_then(|predicate| {
            let holds = (0..count).map(|row| predicate.test(sample, row));
            let holds = holds.collect::<Option<Vec<_>>>()?;
            Some((0..count).filter(|row| holds[*row] == Some(true)).collect::<Vec<_>>())
        });
        if let Some(picked) = by_predicate {
            let total = rows as f64 * picked.len() as f64 / count.max(1) as f64;
            return Picked { rows: picked, total, is_certain: true };
        }
        // Rows are taken as if the predicate had nothing to do with the keys.
        let part = match (index.row_estimate, table.row_estimate) {
            (index, table) if index >= 0.0 && table > 0.0 => (index / table).min(1.0),
            _ => 1.0,
        };
        let below = (part * f64::from(u32::MAX)) as u32;
        let is_in = |row: &usize| mixed(*row as u64) <= below;
        let picked = if part >= 1.0 { (0..count).collect() } else { (0..count).filter(is_in).collect() };
        Picked { rows: picked, total: rows as f64 * part, is_certain: false }
    }
}

/// A number that looks drawn at random, the same each time: the last step of splitmix64.
fn mixed(number: u64) -> u32 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 32) as u32
}

/// What is to be built.
struct Plan<'p> {
    table: &'p Table,
    index: &'p Index,
    sample: &'p Sample,
    keys: Vec<Key>,
    picked: &'p [usize],
    total: f64,
    fillfactor: u8,
}

/// Leaves, and how many times as many tuples the index has.
struct Scaled {
    leaves: Leaves,
    scale: f64,
}

impl Plan<'_> {
    /// `_bt_load` makes posting lists: no unique index, no INCLUDE, all classes agree, and it is not turned off.
    fn deduplicates(&self) -> bool {
        let is_off = option(self.index, "deduplicate_items").is_some_and(|text| {
            let text = text.to_ascii_lowercase();
            text == "0" || text == "no" || text == "off" || "false".starts_with(&text) && !text.is_empty()
        });
        let is_covering = self.index.columns.len() > self.index.key_count;
        !self.index.is_unique && !is_covering && !is_off && self.keys.iter().all(|key| key.is_deduplicable)
    }

    /// Bytes of a row's tuple with so many columns.
    fn bytes(&self, row: usize, columns: usize) -> usize {
        tuple::bytes(self.keys.iter().take(columns).map(|key| (&key.layout, key.values[row])))
    }

    fn key_bytes(&self, row: usize) -> usize {
        self.bytes(row, self.index.key_count)
    }

    /// The high key that is made of this row's tuple behind one that is equal in so many columns: `_bt_truncate`.
    fn pivot(&self, row: usize, equal: usize) -> usize {
        match equal < self.index.key_count {
            true => self.bytes(row, equal + 1),
            false => self.key_bytes(row) + TID_ROOM,
        }
    }

    /// All rows of the table, or as good as.
    fn exact(&self, ranks: &[&[u32]], order: &[u32]) -> Scaled {
        let mut leaves = Leaves::new(self.fillfactor);
        let deduplicates = self.deduplicates();
        let mut at = 0;
        let mut before: Option<usize> = None;
        while let Some(row) = order.get(at).map(|row| *row as usize) {
            let is_same = |other: &&u32| key::compare(ranks, row, **other as usize).1 == ranks.len();
            let run = if deduplicates { order[at..].iter().take_while(is_same).count() } else { 1 };
            let bytes = self.bytes(row, self.keys.len());
            let most = posting_rows_max(bytes).max(1);
            let mut left = run;
            while left > 0 {
                let equal = before.map_or(0, |before| key::compare(ranks, before, row).1);
                let rows = left.min(most);
                leaves.add(LeafTuple::of(bytes, rows, self.pivot(row, equal)));
                (left, before) = (left - rows, Some(row));
            }
            at += run;
        }
        // The rows of the table may have been counted at another time.
        Scaled { leaves, scale: self.total / self.picked.len() as f64 }
    }

    /// Each row has a tuple of its own.
    fn single(&self, order: Option<&[u32]>) -> Scaled {
        let part = (TUPLES_MAX / self.total.max(1.0)).min(1.0);
        let copies = self.total * part / self.picked.len() as f64;
        let mut drawn = Drawn::new(self.fillfactor);
        for at in 0..self.picked.len() {
            let row = order.map_or(at, |order| order[at] as usize);
            let pivot = self.key_bytes(row);
            drawn.add(0, copies, LeafTuple::of(self.bytes(row, self.keys.len()), 1, pivot));
        }
        Scaled { leaves: drawn.leaves, scale: 1.0 / part }
    }

    /// Rows with equal keys share tuples; how many there are is known from a part of the table.
    fn grouped(&self, ranks: &[&[u32]], order: &[u32]) -> Option<(Scaled, Basis)> {
        // Statistics are those of the table, not of a part of it.
        let is_small =
            self.picked.len() < ROWS_MIN && !self.sample.is_whole && self.index.predicate.is_none();
        if is_small && let Some(found) = self.by_statistics() {
            return Some((found, Basis::Statistics));
        }
        let seen = self.seen(ranks, order);
        let blocks = (self.table.bytes.main / PAGE_BYTES as u64).max(self.sample.blocks.len() as u64).max(1);
        let fraction = (self.sample.blocks.len() as f64 / blocks as f64).clamp(1e-9, 0.9999);
        let keys: Vec<Seen> = seen.keys.iter().map(|(_, seen)| *seen).collect();
        let model = Model::new(&keys, fraction, seen.continued);
        let groups = seen.keys.iter().map(|(row, seen)| (*row, model.groups(seen))).collect::<Vec<_>>();
        Some((self.draw(&groups)?, Basis::Sample))
    }

    /// The keys of the sample, in the index's order, each with one of its rows.
    fn seen(&self, ranks: &[&[u32]], order: &[u32]) -> SeenKeys {
        let block = |row: usize| self.sample.rows.get(self.picked[row]).map(|place| place.0);
        let is_edge = |row: usize, other: Option<usize>| {
            other.is_none_or(|other| other >= self.picked.len() || block(other) != block(row))
        };
        let mut keys = Vec::new();
        for run in order.chunk_by(|a, b| key::compare(ranks, *a as usize, *b as usize).1 == ranks.len()) {
            // Sorting kept the order of rows with equal keys: blocks ascend.
            let first = run[0] as usize;
            let changes = run.windows(2).filter(|pair| block(pair[0] as usize) != block(pair[1] as usize));
            let blocks = 1 + changes.count() as u32;
            let last = run[run.len() - 1] as usize;
            keys.push((
                first,
                Seen {
                    rows: run.len() as u32,
                    blocks,
                    bytes: self.key_bytes(first),
                    begins_block: blocks == 1 && is_edge(first, first.checked_sub(1)),
                    ends_block: blocks == 1 && is_edge(last, Some(last + 1)),
                },
            ));
        }
        let pairs = (1..self.picked.len()).filter(|row| block(*row) == block(*row - 1));
        let (mut count, mut equal) = (0u32, 0u32);
        for row in pairs {
            count += 1;
            equal += u32::from(key::compare(ranks, row - 1, row).1 == ranks.len());
        }
        SeenKeys { keys, continued: f64::from(equal) / f64::from(count.max(1)) }
    }

    /// What `ANALYZE` found of the columns says which rows share keys.
    fn by_statistics(&self) -> Option<Scaled> {
        let statistics = |column: &crate::snapshot::IndexColumn| {
            let column = usize::try_from(column.table_column).ok()?.checked_sub(1)?;
            self.table.columns.get(column)?.statistics.as_ref()
        };
        let keys = self.index.columns.iter().take(self.index.key_count);
        let found = keys.map(statistics).collect::<Option<Vec<_>>>()?;
        let groups = match &found[..] {
            [] => return None,
            [one] => duplicates::of_statistics(one, self.total),
            // Of several columns as if they had nothing to do with each other: there are never more keys than that.
            several => {
                let distinct = several.iter().map(|statistics| match statistics.distinct {
                    distinct if distinct < 0.0 => -distinct * self.total,
                    distinct => distinct.max(1.0),
                });
                let keys = distinct.product::<f64>().clamp(1.0, self.total.max(1.0));
                vec![Group { rows: self.total / keys, keys }]
            }
        };
        // Lengths of keys are those of sampled rows.
        let examples = self.picked.len().min(1_000);
        let share = |group: &Group| Group { keys: group.keys / examples as f64, ..*group };
        let shared: Vec<Group> = groups.iter().map(share).collect();
        let step = self.picked.len() / examples.max(1);
        let rows = (0..examples).map(|n| (n * step, shared.clone())).collect::<Vec<_>>();
        self.draw(&rows)
    }

    /// Tuples as often as the table has them.
    fn draw(&self, groups: &[(usize, Vec<Group>)]) -> Option<Scaled> {
        let all = || groups.iter().flat_map(|(_, groups)| groups);
        let rows: f64 = all().map(|group| group.rows * group.keys).sum();
        if rows <= 0.0 || !rows.is_finite() {
            return None;
        }
        let correct = self.total / rows;
        let tuples: f64 = all().map(|group| (1.0 + group.rows / 100.0) * group.keys).sum::<f64>() * correct;
        let part = (TUPLES_MAX / tuples.max(1.0)).min(1.0);
        let mut drawn = Drawn::new(self.fillfactor);
        for (row, groups) in groups {
            let bytes = self.bytes(*row, self.keys.len());
            let most = posting_rows_max(bytes).max(1);
            for group in groups {
                let rows = (group.rows.round() as usize).max(1);
                let copies = group.keys * correct * part * group.rows / rows as f64;
                let (full, rest) = (rows / most, rows % most);
                let pivot = if full > 0 { bytes + TID_ROOM } else { bytes };
                drawn.add(most, copies * full as f64, LeafTuple::of(bytes, most, pivot));
                if rest > 0 {
                    drawn.add(rest, copies, LeafTuple::of(bytes, rest, pivot));
                }
            }
        }
        Some(Scaled { leaves: drawn.leaves, scale: 1.0 / part })
    }
}

struct SeenKeys {
    /// One row of each key.
    keys: Vec<(usize, Seen)>,
    /// The part of neighbouring rows with the same key.
    continued: f64,
}

/// Tuples that are wanted a fractional number of times.
struct Drawn {
    leaves: Leaves,
    /// What is owed of tuples with so many rows.
    owed: Vec<f64>,
}

impl Drawn {
    fn new(fillfactor: u8) -> Drawn {
        Drawn { leaves: Leaves::new(fillfactor), owed: Vec::new() }
    }

    fn add(&mut self, rows: usize, copies: f64, tuple: LeafTuple) {
        if self.owed.len() <= rows {
            // Half of one: the first comes in the middle of those that it stands for.
            self.owed.resize(rows + 1, 0.5);
        }
        let owed = self.owed[rows] + copies;
        let count = owed.floor().clamp(0.0, 1e6);
        self.owed[rows] = owed - count;
        (0..count as usize).for_each(|_| self.leaves.add(tuple));
    }
}
