//! Sizes of tables.

use pgshrink_bench_report::{Result, Table, Unit, Value};

use super::load::Form;
use super::{Bench, Found, judge};
use crate::documents::Class;

/// Smaller tables consist of pages that the server takes in any case.
const JUDGED_BYTES_MIN: f64 = 256.0 * 1024.0;
/// Of shorter documents the header of a row alone is two fifths of what a row may have, or more.
const JUDGED_AVERAGE_MIN: f64 = 180.0;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "pg_table_size, TOAST included, of a table with the one column `doc`, freshly loaded, vacuumed, fillfactor as it \
        is. `zson 1.1`: its datums in a bytea with storage extended, so that TOAST compresses them as it did; its dictionary \
        is made of all documents of the table. `untrained`: zson before zson_learn; `zson`: loaded again after it; `zson zstd:3`, `zson lz4`: with that codec. `ratio`: \
        jsonb pglz to zson; `to lz4`: jsonb lz4 to zson. `in one piece`: all documents of the table under one zstd:3. Kinds: *repetitive* are JSON corpora that are ten times smaller so, *prose* is longer than 16 KiB \
        on average and not judged, all others, rows of tables among them, are *records*. Tables below 256 KiB as jsonb are not \
        judged. A row costs 28 bytes in any form, which small documents cannot get rid of: those of at most 180 bytes on average are not judged.";
    let columns = [
        ("corpus", Unit::Text),
        ("kind", Unit::Text),
        ("in one piece", Unit::Average),
        ("documents", Unit::Count),
        ("average", Unit::Average),
        ("jsonb pglz", Unit::Bytes),
        ("jsonb lz4", Unit::Bytes),
        ("zson 1.1", Unit::Bytes),
        ("untrained", Unit::Bytes),
        ("zson", Unit::Bytes),
        ("zson zstd:3", Unit::Bytes),
        ("zson lz4", Unit::Bytes),
        ("ratio", Unit::Ratio),
        ("to lz4", Unit::Ratio),
    ];
    let mut table = Table::new("table-size", "Size of a table", about, &columns);
    let mut found: Vec<(Class, Found)> =
        [Class::Record, Class::Repetitive].map(|class| (class, Found::default())).into();
    for loaded in &bench.loaded()?.1 {
        let to = |form: Form, ours: Form| loaded.size(form) / loaded.size(ours);
        let name = &loaded.staged.name;
        let average = loaded.jsonb_bytes as f64 / loaded.documents.max(1) as f64;
        if let Some((_, found)) = found.iter_mut().find(|(class, _)| *class == loaded.class)
            && loaded.size(Form::Pglz) >= JUDGED_BYTES_MIN
            && average > JUDGED_AVERAGE_MIN
        {
            for (found, ours) in found.iter_mut().zip([Form::Zson, Form::ZsonZstd, Form::ZsonLz4]) {
                found.push((to(Form::Pglz, ours).min(to(Form::Lz4, ours)), name.clone()));
            }
        }
        let mut row: Vec<Value> = vec![
            name.as_str().into(),
            loaded.class.name().into(),
            loaded.one_piece.into(),
            loaded.documents.into(),
            average.into(),
        ];
        row.extend(loaded.sizes.iter().map(|(_, size)| Value::from(*size)));
        row.extend([Form::Pglz, Form::Lz4].map(|form| Value::from(to(form, Form::Zson))));
        table.push(row);
    }
    for (class, found) in found {
        let Some(limit) = class.ratio_min() else { continue };
        let (found, met) = judge(found, limit, false);
        let what = format!("table of jsonb, the smaller of pglz and lz4, to that of zson: {}", class.name());
        table.verdict(&what, &format!("at least {limit}"), found, met);
    }
    Ok(table)
}
