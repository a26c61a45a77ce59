//! Tables made by hand, for tests.

use crate::edit::{Edit, Retype};
use crate::layout;
use crate::simulate::{Simulation, Way};
use crate::snapshot::sample::{Place, RowPlace, SampledColumn};
use crate::snapshot::{Column, Sample, Server, Snapshot, Table, Toast};

/// A column of a built-in type: `bool`, `int2`, `int4`, `int8`, `uuid`, `text`, `numeric`.
pub(crate) fn column(name: &str, kind: &str, is_not_null: bool) -> Column {
    let (length, alignment, storage) = match kind {
        "bool" => (1, 'c', 'p'),
        "int2" => (2, 's', 'p'),
        "int4" => (4, 'i', 'p'),
        "int8" => (8, 'd', 'p'),
        "uuid" => (16, 'c', 'p'),
        "numeric" => (-1, 'i', 'm'),
        _ => (-1, 'i', 'x'),
    };
    Column {
        name: name.to_owned(),
        type_name: kind.to_owned(),
        type_id: kind.to_owned(),
        base_type_id: kind.to_owned(),
        type_kind: 'b',
        length,
        alignment,
        storage,
        compression: ' ',
        is_not_null,
        generated: ' ',
        identity: ' ',
        ..Column::default()
    }
}

/// A column that was dropped.
pub(crate) fn dropped() -> Column {
    Column { name: "........pg.dropped........".to_owned(), is_dropped: true, ..column("", "int4", false) }
}

/// A table that was read as a whole. `value` gives size and place by row and column. Its pages now are those of the table as it is, with
/// `bloat` more.
pub(crate) fn table(
    columns: Vec<Column>,
    rows: u32,
    bloat: u64,
    value: impl Fn(u32, usize) -> (u32, Place),
) -> Table {
    let sampled = |(index, column): (usize, &Column)| {
        let rows = if column.is_dropped { 0 } else { rows };
        let (sizes, places) = (0..rows).map(|row| value(row, index)).unzip();
        SampledColumn { sizes, places, values: None }
    };
    let sample = Sample {
        // Rows are in one block each: what matters is their order.
        blocks: (0..rows).collect(),
        rows: (0..rows).map(|row| RowPlace(row, 1)).collect(),
        columns: columns.iter().enumerate().map(sampled).collect(),
        is_whole: true,
        ..Sample::default()
    };
    let mut table = Table {
        oid: 16_384,
        schema: "public".to_owned(),
        name: "t".to_owned(),
        access_method: "heap".to_owned(),
        toast: columns.iter().any(|column| column.storage != 'p').then(Toast::default),
        row_estimate: f64::from(rows),
        columns,
        sample: Some(sample),
        ..Table::default()
    };
    let server = Server::default();
    if let Some(sizes) = Simulation::of(&server, &table).map(|simulation| simulation.as_it_is(Way::Insert)) {
        table.bytes = sizes.heap;
        table.bytes.main += bloat * 8192;
        let toast = Toast { oid: 16_385, bytes: sizes.toast, index_bytes: sizes.toast_index };
        table.toast = table.toast.map(|_| toast);
    }
    table
}

/// All values are there, those of variable length with so many bytes.
pub(crate) fn all(bytes: u32) -> impl Fn(u32, usize) -> (u32, Place) {
    move |_, _| (bytes, Place::Inline)
}

/// A database of these tables.
pub(crate) fn snapshot(tables: Vec<Table>) -> Snapshot {
    Snapshot { format: crate::snapshot::FORMAT, tables, ..Snapshot::default() }
}

/// A column of fixed length becomes another one.
pub(crate) fn retype(table: &Table, column: usize, kind: &str) -> Edit {
    let new = self::column(&table.columns[column].name, kind, table.columns[column].is_not_null);
    let layout = layout::Column { name: String::new(), ..crate::arrangement::layout_of(&new) };
    let bytes = usize::try_from(new.length).unwrap();
    let sampled = table.sample.as_ref().unwrap();
    let images = sampled.columns[column].places.iter();
    Edit::Retype(Retype {
        column,
        type_name: kind.to_owned(),
        prepare: Vec::new(),
        first: Vec::new(),
        using: String::new(),
        layout,
        images: images.map(|place| (*place != Place::Null).then(|| vec![0; bytes])).collect(),
        proof: String::new(),
    })
}
