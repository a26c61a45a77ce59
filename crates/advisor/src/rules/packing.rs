//! Many small rows of one key as few large ones with arrays: each row costs 28 bytes for its header and pointer, and values that
//! are together compress.
//!
//! Sampled rows are grouped by the first column of an index, packed as they lie, and stored: arrays byte by byte, compressed as
//! TOAST does it. The sample of some blocks has fewer rows of a key than the table, so the table packs better than it.
//!
//! This pays for rows that are written once: an update or a late row writes the whole packed row anew.

mod array;
mod pages;

use crate::datum::stored::{Stored, stored};
use crate::datum::varlena;
use crate::finding::{Bytes, Change, Confidence, Finding, Object, Rule};
use crate::layout::heap::{PAGE_BYTES, Pages};
use crate::layout::{Alignment, Column, Shape, Value};
use crate::rules::Candidate;
use crate::snapshot::sample::Place;
use crate::snapshot::{self, Sample, Snapshot, Table, TableKind};
use crate::sql::{qualified, quote_ident};
use pages::{Filled, Packed, Store};
use std::collections::BTreeMap;

/// Rows of a sample, at least.
const ROWS_MIN: usize = 2_000;
/// Rows that are packed together, at most: an array of numbers then has 8 KB.
const GROUP_ROWS_MAX: usize = 1_000;
/// Rows of a key in the sample, on average, at least.
const GROUP_ROWS_MIN: usize = 20;
/// What must be saved of the table with everything.
const SAVED_PERCENT_MIN: u64 = 30;
/// Updates and deletions for 100 insertions, at most.
const CHANGED_PERCENT_MAX: u64 = 1;
/// A longer row has values outside already.
const ROW_BYTES_MAX: usize = 500;
/// A `btree` without an entry, and with one page of them.
const INDEX_BYTES_MIN: u64 = 2 * PAGE_BYTES as u64;

/// At most one: rows packed by the first column of an index.
pub fn candidates(snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    candidate(snapshot, table).into_iter().collect()
}

fn candidate(snapshot: &Snapshot, table: &Table) -> Option<Candidate> {
    let sample = table.sample.as_ref()?;
    let is_alone = table.kind == TableKind::Table
        && table.parent == 0
        && !table.has_children
        && table.extension.is_none();
    let refers = |of: &Table| of.foreign_keys.iter().any(|key| key.foreign_table == table.oid);
    if !is_alone || !is_written_once(table) || sample.rows.len() < ROWS_MIN {
        return None;
    }
    if !table.foreign_keys.is_empty() || snapshot.tables.iter().any(refers) {
        return None;
    }
    let (key, order) = key(table)?;
    let rows = Rows::of(table, sample)?;
    let groups = groups(sample, key)?;
    let now = rows.pages_now(table.fillfactor());
    let method = snapshot.server.settings.get("default_toast_compression").map_or("pglz", String::as_str);
    let filled = rows.packed(key, &groups, method)?;
    let share = groups.len() as f64 / sample.rows.len() as f64;
    let bytes = bytes(table, sample, now, filled, share)?;
    let percent = u64::try_from(bytes.disk.saved()).ok()?.saturating_mul(100) / bytes.disk.now.max(1);
    if percent < SAVED_PERCENT_MIN {
        return None;
    }
    let finding = finding(table, [key, order], (sample.rows.len(), groups.len()), bytes);
    Some(Candidate { finding, edits: Vec::new(), is_recommended: false })
}

/// Whether rows are inserted and hardly ever changed or deleted, by the counters.
fn is_written_once(table: &Table) -> bool {
    let changed = table.activity.updated.saturating_add(table.activity.deleted);
    table.activity.inserted > 0
        && changed.saturating_mul(100) <= table.activity.inserted.saturating_mul(CHANGED_PERCENT_MAX)
}

/// Indexes of the columns that rows are grouped by and ordered by within a group: the first two of an index that has them, if all other
/// indexes need these only.
fn key(table: &Table) -> Option<(usize, usize)> {
    let number = |at: i16| usize::try_from(at).ok()?.checked_sub(1).filter(|at| *at < table.columns.len());
    let pair = |of: &snapshot::Index| match of.columns.get(..of.key_count)? {
        [key, order, ..] if of.access_method == "btree" && of.predicate.is_none() => {
            Some((number(key.table_column)?, number(order.table_column)?))
        }
        _ => None,
    };
    let found = table.indexes.iter().find_map(pair)?;
    let is_covered = |at: i16| number(at).is_some_and(|at| at == found.0 || at == found.1);
    let others =
        table.indexes.iter().flat_map(|of| &of.columns).all(|column| is_covered(column.table_column));
    let is_not_null = |at: usize| table.columns[at].is_not_null;
    (others && is_not_null(found.0) && is_not_null(found.1)).then_some(found)
}

/// Places of sampled rows that are packed together, in their order. None: keys have too few rows.
fn groups(sample: &Sample, key: usize) -> Option<Vec<Vec<usize>>> {
    let values = sample.columns.get(key)?.values.as_ref()?;
    let mut by_key: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (row, value) in values.iter().enumerate() {
        by_key.entry(value.as_deref()?).or_default().push(row);
    }
    if values.len() < by_key.len() * GROUP_ROWS_MIN {
        return None;
    }
    let chunks = by_key.values().flat_map(|rows| rows.chunks(GROUP_ROWS_MAX).map(<[usize]>::to_vec));
    Some(chunks.collect())
}

/// Values of sampled rows, by column. Dropped columns have none.
struct Rows {
    columns: Vec<Column>,
    /// `pg_type.oid` is not in the snapshot, and does not change sizes: some number.
    values: Vec<Vec<Option<Stored>>>,
    count: usize,
}

impl Rows {
    /// None: a value is too large, or of a type whose image is not known.
    fn of(table: &Table, sample: &Sample) -> Option<Rows> {
        let count = sample.rows.len();
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for (column, sampled) in table.columns.iter().zip(&sample.columns) {
            columns.push(Column::of(column)?);
            if column.is_dropped {
                values.push(vec![None; count]);
                continue;
            }
            if column.generated.is_alphabetic() || column.type_id != column.base_type_id {
                return None;
            }
            let value = |(text, place): (&Option<String>, &Place)| match text {
                Some(text) => stored(&column.type_id, text).map(Some),
                None => (*place == Place::Null).then_some(None),
            };
            let texts = sampled
                .values
                .as_ref()
                .filter(|texts| texts.len() == count && sampled.places.len() == count)?;
            values.push(texts.iter().zip(&sampled.places).map(value).collect::<Option<_>>()?);
        }
        Some(Rows { columns, values, count })
    }

    /// Pages that the rows take as they are, in bytes.
    fn pages_now(&self, fillfactor: u8) -> u64 {
        let order: Vec<usize> = (0..self.columns.len()).collect();
        let shape = Shape { columns: &self.columns, order: &order };
        let mut pages = Pages::new(fillfactor);
        for row in 0..self.count {
            let values: Vec<Value> =
                self.values.iter().map(|column| value_of(column[row].as_ref())).collect();
            pages.add(shape.row_bytes(&values));
        }
        (pages.count() * PAGE_BYTES) as u64
    }

    /// Pages of packed rows. None: rows are long, and packing them is not for that.
    fn packed(&self, key: usize, groups: &[Vec<usize>], method: &str) -> Option<Filled> {
        if self.pages_now(100) / self.count.max(1) as u64 > ROW_BYTES_MAX as u64 {
            return None;
        }
        let kept: Vec<usize> = (0..self.columns.len()).filter(|at| !self.columns[*at].is_dropped).collect();
        let column = |at: &usize| match *at == key {
            true => self.columns[*at].clone(),
            false => array_column(&self.columns[*at]),
        };
        let columns: Vec<Column> = kept.iter().map(column).collect();
        let mut store = Store::new(&columns, method);
        for group in groups {
            let value = |at: &usize| {
                let values = &self.values[*at];
                if *at != key {
                    let elements: Vec<Option<&Stored>> =
                        group.iter().map(|row| values[*row].as_ref()).collect();
                    return Some(Packed::Varlena(varlena(&array::data(0, &elements))));
                }
                match values[*group.first()?].as_ref()? {
                    Stored::Fixed(..) => Some(Packed::Fixed),
                    Stored::Varlena(data) => Some(Packed::Varlena(varlena(data))),
                }
            };
            store.add(&kept.iter().map(value).collect::<Option<Vec<_>>>()?);
        }
        Some(store.filled())
    }
}

fn value_of(stored: Option<&Stored>) -> Value {
    match stored {
        None => Value::Null,
        Some(Stored::Fixed(..)) => Value::Fixed,
        Some(Stored::Varlena(data)) => Value::Inline(u32::try_from(varlena(data).len()).unwrap_or(u32::MAX)),
    }
}

/// Arrays are aligned as their elements, to four bytes at least.
fn array_column(element: &Column) -> Column {
    let alignment = element.alignment.max(Alignment::Int);
    Column { length: None, alignment, is_packable: true, is_not_null: false, ..element.clone() }
}

/// The table's bytes, with what packing saves of the sampled rows' pages.
fn bytes(table: &Table, sample: &Sample, now: u64, filled: Filled, share: f64) -> Option<Bytes> {
    let blocks = (sample.blocks.len() as u64).saturating_mul(PAGE_BYTES as u64);
    let scale = match sample.is_whole || blocks == 0 {
        true => 1.0,
        false => table.bytes.main as f64 / blocks as f64,
    };
    let scaled = |bytes: u64| (bytes as f64 * scale) as u64;
    // One entry for each packed row.
    let index = |bytes: u64| bytes.saturating_sub(((bytes as f64 * share) as u64).max(INDEX_BYTES_MIN));
    let indexes = table.indexes.iter().fold(0u64, |sum, of| sum.saturating_add(index(of.bytes)));
    let after = filled.heap.saturating_add(filled.toast).saturating_add(filled.toast_index);
    let saved = scaled(now).checked_sub(scaled(after))?.saturating_add(indexes);
    let change = |now: u64| Change { now, after: now.saturating_sub(saved) };
    let maps = table.bytes.fsm.saturating_add(table.bytes.vm);
    Some(Bytes {
        disk: change(table.total_bytes()),
        compressed: None,
        memory: change(table.total_bytes().saturating_sub(maps)),
    })
}

fn finding(table: &Table, [key, order]: [usize; 2], (rows, groups): (usize, usize), bytes: Bytes) -> Finding {
    let name = |at: usize| quote_ident(&table.columns[at].name);
    let each = rows / groups.max(1);
    Finding {
        id: format!("row_packing:{}.{}", table.schema, table.name),
        rule: Rule::RowPacking,
        object: Object {
            kind: "table".to_owned(),
            schema: table.schema.clone(),
            name: table.name.clone(),
            part: None,
        },
        title: format!("{rows} sampled rows fit into {groups} rows with arrays"),
        reason: format!(
            "Rows are written once, and many have the same {}: {each} of {rows} sampled ones on average, packed {GROUP_ROWS_MAX} at most. Each \
             row costs 28 bytes for its header and pointer, {} bytes for {each} rows, beside padding. Arrays have none of it, and TOAST \
             compresses them.",
            name(key),
            each.saturating_sub(1) * 28
        ),
        bytes,
        confidence: Confidence::Measured,
        cost: "A second table is written; it needs additional space until the first one is dropped."
            .to_owned(),
        risks: vec![
            "A new or changed value rewrites its whole packed row with all arrays: pack periods that are \
             over, and keep the current one as rows."
                .to_owned(),
            "Queries must go through a view that unpacks the arrays, and read a whole packed row for one \
             value. Unique constraints and indexes on single rows are lost."
                .to_owned(),
        ],
        sql: sql(table, key, order),
        proof: None,
        in_proposal: false,
    }
}

/// A table of packed rows, and a view of the single ones.
fn sql(table: &Table, key: usize, order: usize) -> Vec<String> {
    let columns: Vec<&snapshot::Column> = table.columns.iter().filter(|column| !column.is_dropped).collect();
    let [key, order] = [key, order].map(|at| quote_ident(&table.columns[at].name));
    let name = |suffix: &str| qualified(&table.schema, &format!("{}{suffix}", table.name));
    let packed = columns.iter().map(|column| quote_ident(&column.name)).map(|name| match name == key {
        true => name,
        false => format!("array_agg({name} ORDER BY {order}) AS {name}"),
    });
    let packed: Vec<String> = packed.collect();
    let names: Vec<String> = columns.iter().map(|column| quote_ident(&column.name)).collect();
    let arrays: Vec<&String> = names.iter().filter(|name| **name != key).collect();
    let arrays_of =
        |prefix: &str| arrays.iter().map(|name| format!("{prefix}{name}")).collect::<Vec<_>>().join(", ");
    let single =
        names.iter().map(|name| if *name == key { format!("p.{name}") } else { format!("v.{name}") });
    vec![
        format!(
            "CREATE TABLE {} AS SELECT {} FROM (SELECT *, (row_number() OVER (PARTITION BY {key} ORDER BY {order}) - 1) / {GROUP_ROWS_MAX} \
             AS packed_part FROM {}) AS r GROUP BY {key}, packed_part ORDER BY {key}, packed_part;",
            name("_packed"),
            packed.join(", "),
            name(""),
        ),
        format!("CREATE INDEX ON {} ({key}, ({order}[1]));", name("_packed")),
        format!(
            "CREATE VIEW {} AS SELECT {} FROM {} AS p, unnest({}) AS v({});",
            name("_rows"),
            single.collect::<Vec<_>>().join(", "),
            name("_packed"),
            arrays_of("p."),
            arrays_of("")
        ),
    ]
}
