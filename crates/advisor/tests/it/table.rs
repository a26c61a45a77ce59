//! A table of a server as a snapshot has it, read by SQL and from its file, without the product's collector.

use std::collections::BTreeMap;

use pgshrink_advisor::snapshot::sample::{Place, RowPlace, SampledColumn};
use pgshrink_advisor::snapshot::{Column, ForkBytes, Sample, Server, Table, Toast};
use pgshrink_testkit::Cluster;

pub(crate) fn number(cluster: &Cluster, sql: &str) -> u64 {
    cluster.sql(sql).unwrap().trim().parse().unwrap()
}

pub(crate) fn server(cluster: &Cluster) -> Server {
    let usual = cluster.sql("show default_toast_compression").unwrap().trim().to_owned();
    Server {
        version: number(cluster, "select current_setting('server_version_num')") as u32,
        database: "postgres".to_owned(),
        settings: BTreeMap::from([("default_toast_compression".to_owned(), usual)]),
        ..Server::default()
    }
}

/// A table of schema `public` with all rows of these blocks; None: of all.
pub(crate) fn read(cluster: &Cluster, name: &str, blocks: Option<Vec<u32>>) -> Table {
    // Pages must be in the file.
    cluster.sql("checkpoint").unwrap();
    let options = cluster
        .sql(&format!("select unnest(reloptions) from pg_class where oid = 'public.{name}'::regclass"))
        .unwrap();
    let mut table = Table {
        oid: number(cluster, &format!("select 'public.{name}'::regclass::oid")) as u32,
        schema: "public".to_owned(),
        name: name.to_owned(),
        access_method: "heap".to_owned(),
        options: options.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        bytes: forks(cluster, &format!("public.{name}")),
        toast: toast(cluster, name),
        columns: columns(cluster, name),
        ..Table::default()
    };
    let count = format!("select reltuples from pg_class where oid = {}", table.oid);
    table.row_estimate = cluster.sql(&count).unwrap().trim().parse().unwrap();
    // Tests call VACUUM before they read a table.
    table.activity.last_vacuum_s = Some(1);
    table.sample = Some(sample(cluster, &table, blocks));
    table
}

fn forks(cluster: &Cluster, relation: &str) -> ForkBytes {
    let size = |fork: &str| number(cluster, &format!("select pg_relation_size('{relation}', '{fork}')"));
    ForkBytes { main: size("main"), fsm: size("fsm"), vm: size("vm") }
}

fn toast(cluster: &Cluster, name: &str) -> Option<Toast> {
    let sql = format!("select reltoastrelid from pg_class where oid = 'public.{name}'::regclass");
    let oid = number(cluster, &sql) as u32;
    let index = format!("select pg_relation_size(indexrelid) from pg_index where indrelid = {oid}");
    (oid != 0).then(|| Toast {
        oid,
        bytes: forks(cluster, &format!("pg_toast.{}", toast_name(cluster, oid))),
        index_bytes: number(cluster, &index),
    })
}

fn toast_name(cluster: &Cluster, oid: u32) -> String {
    cluster.sql(&format!("select relname from pg_class where oid = {oid}")).unwrap().trim().to_owned()
}

fn columns(cluster: &Cluster, name: &str) -> Vec<Column> {
    let sql = format!(
        "select attname, attlen, attalign, attstorage, attcompression, attnotnull, attisdropped,
            case when attisdropped then '' else format_type(atttypid, atttypmod) end, coalesce(typname, ''),
            atthasmissing, attgenerated
         from pg_attribute a left join pg_type t on t.oid = atttypid
         where attrelid = 'public.{name}'::regclass and attnum > 0 order by attnum"
    );
    let letter = |text: &str| text.chars().next().unwrap_or(' ');
    let column = |line: &str| {
        let fields: Vec<&str> = line.split('|').collect();
        Column {
            name: fields[0].to_owned(),
            type_name: fields[7].to_owned(),
            type_id: fields[8].to_owned(),
            base_type_id: fields[8].to_owned(),
            type_kind: 'b',
            length: fields[1].parse().unwrap(),
            alignment: letter(fields[2]),
            storage: letter(fields[3]),
            compression: letter(fields[4]),
            is_not_null: fields[5] == "t",
            is_dropped: fields[6] == "t",
            has_missing: fields[9] == "t",
            generated: letter(fields[10]),
            ..Column::default()
        }
    };
    cluster.sql(&sql).unwrap().lines().map(column).collect()
}

fn sample(cluster: &Cluster, table: &Table, blocks: Option<Vec<u32>>) -> Sample {
    let pages = (table.bytes.main / 8192) as u32;
    let is_whole = blocks.is_none();
    let blocks = blocks.unwrap_or_else(|| (0..pages).collect());
    let outside = outside(cluster, table, &blocks);
    let list = table.columns.iter().map(|column| match (column.is_dropped, column.length) {
        (true, _) => "null::int, null::text, null::text".to_owned(),
        (_, -1) => format!("pg_column_size({0}), pg_column_compression({0}), {0}::text", column.name),
        _ => format!("pg_column_size({}), null::text, null::text", column.name),
    });
    let list = list.collect::<Vec<_>>().join(", ");
    let found = cluster.sql(&format!("select ctid, {list} from {} order by ctid", table.name)).unwrap();
    let mut sample = Sample { is_whole, blocks, ..Sample::default() };
    sample.columns = vec![SampledColumn::default(); table.columns.len()];
    for line in found.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let (block, item) = fields[0].trim_matches(['(', ')']).split_once(',').unwrap();
        let place = RowPlace(block.parse().unwrap(), item.parse().unwrap());
        let Some(row) = outside.get(&place) else { continue };
        sample.rows.push(place);
        for (index, pair) in fields[1..].chunks(3).enumerate() {
            if table.columns[index].is_dropped {
                continue;
            }
            let is_outside = row.outside.get(index).copied().unwrap_or(false);
            let is_missing = index >= row.columns;
            let place = match (pair[0], pair[1], is_outside) {
                ("", ..) => Place::Null,
                _ if is_missing => Place::Missing,
                (_, "pglz", false) => Place::Pglz,
                (_, "lz4", false) => Place::Lz4,
                (_, "pglz", true) => Place::ExternalPglz,
                (_, "lz4", true) => Place::ExternalLz4,
                (_, _, true) => Place::External,
                _ => Place::Inline,
            };
            sample.columns[index].sizes.push(pair[0].parse().unwrap_or(0));
            sample.columns[index].places.push(place);
            let values = sample.columns[index].values.get_or_insert_default();
            values.push((!pair[0].is_empty()).then(|| pair[2].to_owned()));
        }
    }
    sample
}

/// What only the row itself says.
struct RawRow {
    /// `natts`
    columns: usize,
    /// By column, whether a pointer to the TOAST table is there.
    outside: Vec<bool>,
}

/// The rows of some blocks, taken apart: before PostgreSQL 17 no function says which values are outside.
fn outside(cluster: &Cluster, table: &Table, blocks: &[u32]) -> BTreeMap<RowPlace, RawRow> {
    let path = cluster.sql(&format!("select pg_relation_filepath({})", table.oid)).unwrap();
    let file = std::fs::read(cluster.data_dir().join(path.trim())).unwrap();
    let mut rows = BTreeMap::new();
    for block in blocks {
        let page = &file[*block as usize * 8192..][..8192];
        let lower = usize::from(u16::from_le_bytes([page[12], page[13]]));
        for item in 1..=(lower.max(24) - 24) / 4 {
            let at = 24 + (item - 1) * 4;
            let line = u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
            let (offset, flags, bytes) = (line & 0x7fff, line >> 15 & 3, line >> 17);
            if flags == 1 {
                let row = &page[offset as usize..(offset + bytes) as usize];
                rows.insert(RowPlace(*block, item as u16), take_apart(row, &table.columns));
            }
        }
    }
    rows
}

fn take_apart(row: &[u8], columns: &[Column]) -> RawRow {
    let count = usize::from(u16::from_le_bytes([row[18], row[19]]) & 0x7ff);
    let has_null = row[20] & 1 != 0;
    let mut at = usize::from(row[22]);
    let mut outside = Vec::new();
    for (index, column) in columns.iter().take(count).enumerate() {
        let is_null = has_null && row[23 + index / 8] >> (index % 8) & 1 == 0;
        let alignment = match column.alignment {
            'd' => 8,
            'i' => 4,
            's' => 2,
            _ => 1,
        };
        let mut is_outside = false;
        if !is_null && column.length > 0 {
            at = at.next_multiple_of(alignment) + column.length as usize;
        } else if !is_null {
            if row[at] == 0 {
                at = at.next_multiple_of(alignment);
            }
            is_outside = row[at] == 1;
            at += match row[at] {
                1 => 18,
                short if short & 1 == 1 => usize::from(short >> 1),
                _ => u32::from_le_bytes(row[at..at + 4].try_into().unwrap()) as usize >> 2,
            };
        }
        outside.push(is_outside);
    }
    RawRow { columns: count, outside }
}
