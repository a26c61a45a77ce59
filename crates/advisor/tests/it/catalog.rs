//! A table as the advisor sees it, read from a server.

use pgshrink_advisor::snapshot::sample::{Place, RowPlace, Sample, SampledColumn};
use pgshrink_advisor::snapshot::{
    Activity, Column, ColumnStatistics, ForeignKey, ForkBytes, Index, IndexColumn, Table, TableKind,
};
use pgshrink_testkit::{Cluster, Seed};
use serde_json::Value;

/// How much of a table is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// Every row.
    Whole,
    /// One block of so many, drawn at random.
    OneIn(u32),
}

/// The rows of a query whose only column is JSON.
pub fn rows(cluster: &Cluster, sql: &str) -> Vec<Value> {
    let found = cluster.sql(sql).unwrap();
    found.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The whole table, as the collector sees it.
pub fn table(cluster: &Cluster, name: &str, part: Part) -> Table {
    let head = rows(
        cluster,
        &format!(
            "select json_build_object('oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname,
                'rows', c.reltuples, 'bytes', pg_relation_size(c.oid), 'options', coalesce(c.reloptions, '{{}}'),
                'count', (select count(*) from {name}), 'kind', c.relkind, 'partition', c.relispartition,
                'foreign', (select coalesce(json_agg(json_build_array(conname, conkey, confrelid::int8, confkey)), '[]')
                    from pg_constraint where conrelid = c.oid and contype = 'f'))
             from pg_class c join pg_namespace n on n.oid = relnamespace where c.oid = '{name}'::regclass"
        ),
    )
    .remove(0);
    let mut table = Table {
        oid: head["oid"].as_u64().unwrap() as u32,
        schema: text(&head["schema"]),
        name: text(&head["name"]),
        kind: if text(&head["kind"]) == "p" { TableKind::Partitioned } else { TableKind::Table },
        is_partition: head["partition"] == Value::Bool(true),
        foreign_keys: head["foreign"].as_array().unwrap().iter().map(foreign_key).collect(),
        access_method: "heap".to_owned(),
        options: texts(&head["options"]),
        row_estimate: head["rows"].as_f64().unwrap(),
        bytes: ForkBytes { main: head["bytes"].as_u64().unwrap(), ..ForkBytes::default() },
        columns: columns(cluster, name),
        indexes: indexes(cluster, name),
        activity: Activity { live_rows: head["count"].as_u64().unwrap(), ..Activity::default() },
        ..Table::default()
    };
    if table.kind == TableKind::Partitioned {
        return table;
    }
    table.sample = Some(sample(cluster, name, &table, part));
    read_expressions(cluster, &mut table);
    table
}

fn foreign_key(found: &Value) -> ForeignKey {
    let numbers =
        |list: &Value| list.as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as i16).collect();
    ForeignKey {
        name: text(&found[0]),
        columns: numbers(&found[1]),
        foreign_table: found[2].as_u64().unwrap() as u32,
        foreign_columns: numbers(&found[3]),
        ..ForeignKey::default()
    }
}

fn columns(cluster: &Cluster, name: &str) -> Vec<Column> {
    let found = rows(
        cluster,
        &format!(
            "select json_build_object('name', attname, 'type', format_type(atttypid, atttypmod), 'id', t.typname,
                'kind', t.typtype, 'length', attlen, 'align', attalign, 'storage', attstorage, 'notnull', attnotnull,
                'dropped', attisdropped, 'compression', attcompression,
                'statistics', (select json_build_object('nulls', null_frac, 'distinct', n_distinct, 'common',
                    most_common_freqs, 'width', avg_width) from pg_stats s where s.tablename = c.relname and
                    s.schemaname = c.relnamespace::regnamespace::text and s.attname = a.attname))
             from pg_attribute a join pg_class c on c.oid = attrelid left join pg_type t on t.oid = atttypid
             where attrelid = '{name}'::regclass and attnum > 0 order by attnum"
        ),
    );
    let column = |found: &Value| Column {
        name: text(&found["name"]),
        type_name: text(&found["type"]),
        type_id: text(&found["id"]),
        base_type_id: text(&found["id"]),
        type_kind: letter(&found["kind"]),
        type_schema: "pg_catalog".to_owned(),
        length: found["length"].as_i64().unwrap() as i16,
        alignment: letter(&found["align"]),
        storage: letter(&found["storage"]),
        compression: letter(&found["compression"]),
        is_not_null: found["notnull"] == Value::Bool(true),
        is_dropped: found["dropped"] == Value::Bool(true),
        statistics: found["statistics"].as_object().map(|found| ColumnStatistics {
            null_fraction: found["nulls"].as_f64().unwrap(),
            distinct: found["distinct"].as_f64().unwrap(),
            common_frequencies: found["common"]
                .as_array()
                .map(|list| list.iter().filter_map(Value::as_f64).collect())
                .unwrap_or_default(),
            width: found["width"].as_u64().unwrap() as u32,
            correlation: None,
        }),
        ..Column::default()
    };
    found.iter().map(column).collect()
}

/// The indexes of a table.
pub fn indexes(cluster: &Cluster, name: &str) -> Vec<Index> {
    let found = rows(
        cluster,
        &format!(
            "select json_build_object('oid', i.indexrelid::int8, 'name', c.relname, 'am', am.amname,
                'definition', pg_get_indexdef(i.indexrelid), 'bytes', pg_relation_size(i.indexrelid), 'rows', c.reltuples,
                'options', coalesce(c.reloptions, '{{}}'), 'keys', i.indnkeyatts, 'unique', i.indisunique,
                'primary', i.indisprimary, 'immediate', i.indimmediate, 'exclusion', i.indisexclusion, 'valid', i.indisvalid,
                'identity', i.indisreplident, 'clustered', i.indisclustered, 'distinct', i.indnullsnotdistinct,
                'predicate', pg_get_expr(i.indpred, i.indrelid),
                'parent', coalesce((select inhparent::int8 from pg_inherits where inhrelid = i.indexrelid), 0),
                'constraint', (select conname from pg_constraint where conindid = i.indexrelid and contype in ('p', 'u', 'x')),
                'referenced', (select count(*) from pg_constraint where conindid = i.indexrelid and contype = 'f'),
                'columns', (select json_agg(json_build_object('number', i.indkey[a.attnum - 1],
                    'definition', pg_get_indexdef(i.indexrelid, a.attnum, true), 'length', a.attlen,
                    'align', a.attalign, 'storage', a.attstorage, 'type', format_type(a.atttypid, a.atttypmod),
                    'class', case when a.attnum <= i.indnkeyatts then (select opcname from pg_opclass
                        where oid = i.indclass[a.attnum - 1]) else '' end,
                    'collation', case when a.attnum <= i.indnkeyatts then i.indcollation[a.attnum - 1]::int8 else 0 end,
                    'flags', case when a.attnum <= i.indnkeyatts then i.indoption[a.attnum - 1] else 0 end,
                    'equalimage', exists (select from pg_opclass o join pg_amproc p on p.amprocfamily = o.opcfamily
                        and p.amproclefttype = o.opcintype and p.amprocnum = 4
                        where o.oid = i.indclass[a.attnum - 1])) order by a.attnum)
                    from pg_attribute a where a.attrelid = i.indexrelid))
             from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am am on am.oid = c.relam
             where i.indrelid = '{name}'::regclass order by i.indexrelid"
        ),
    );
    found.iter().map(index).collect()
}

fn index(found: &Value) -> Index {
    let is = |name: &str| found[name] == Value::Bool(true);
    let column = |found: &Value| IndexColumn {
        table_column: found["number"].as_i64().unwrap() as i16,
        definition: text(&found["definition"]),
        operator_class: text(&found["class"]),
        collation: found["collation"].as_u64().unwrap() as u32,
        order_flags: found["flags"].as_i64().unwrap() as i16,
        length: found["length"].as_i64().unwrap() as i16,
        alignment: letter(&found["align"]),
        storage: letter(&found["storage"]),
        type_name: text(&found["type"]),
        is_deduplicable: found["equalimage"] == Value::Bool(true),
        expression_sizes: None,
        expression_values: None,
    };
    Index {
        oid: found["oid"].as_u64().unwrap() as u32,
        name: text(&found["name"]),
        access_method: text(&found["am"]),
        definition: text(&found["definition"]),
        bytes: found["bytes"].as_u64().unwrap(),
        row_estimate: found["rows"].as_f64().unwrap(),
        options: texts(&found["options"]),
        columns: found["columns"].as_array().unwrap().iter().map(column).collect(),
        key_count: found["keys"].as_u64().unwrap() as usize,
        is_unique: is("unique"),
        nulls_not_distinct: is("distinct"),
        is_primary: is("primary"),
        is_deferrable: !is("immediate"),
        is_exclusion: is("exclusion"),
        is_valid: is("valid"),
        is_replica_identity: is("identity"),
        is_clustered: is("clustered"),
        constraint: found["constraint"].as_str().map(str::to_owned),
        referenced_by: found["referenced"].as_u64().unwrap() as u32,
        parent: found["parent"].as_u64().unwrap() as u32,
        predicate: found["predicate"].as_str().map(str::to_owned),
        ..Index::default()
    }
}

/// Reads the sampled blocks' rows.
fn sample(cluster: &Cluster, name: &str, table: &Table, part: Part) -> Sample {
    let blocks = (table.bytes.main / 8192) as u32;
    // Drawn from the block's number, so that each run takes the same ones.
    let is_taken = |block: &u32| match part {
        Part::Whole => true,
        Part::OneIn(of) => Seed(u64::from(*block)).rng().below(of as usize) == 0,
    };
    let taken: Vec<u32> = (0..blocks).filter(is_taken).collect();
    let stored: Vec<_> = table.columns.iter().filter(|column| !column.is_dropped).collect();
    let fields = stored.iter().map(|column| {
        let name = format!("\"{}\"", column.name);
        format!("pg_column_size({name}), pg_column_compression({name}), {name}::text")
    });
    let (places, read) = values(cluster, name, &fields.collect::<Vec<_>>(), &taken, part);
    let mut read = read.into_iter();
    let columns = table.columns.iter().map(|column| match column.is_dropped {
        true => SampledColumn::default(),
        false => read.next().unwrap(),
    });
    Sample {
        blocks: taken,
        rows: places,
        columns: columns.collect(),
        is_whole: part == Part::Whole,
        ..Sample::default()
    }
}

/// Reads sizes and values of expressions into the table's indexes.
pub fn read_expressions(cluster: &Cluster, table: &mut Table) {
    let columns = table.indexes.iter_mut().flat_map(|index| &mut index.columns);
    let of_expressions: Vec<_> = columns.filter(|column| column.table_column == 0).collect();
    let fields = of_expressions
        .iter()
        // As the collector measures them: a row's value has its short header, and the row a header of 24 bytes.
        .map(|column| {
            format!(
                "case when ({0}) is not null then pg_column_size(row({0})) - 24 end, null, ({0})::text",
                column.definition
            )
        });
    let fields: Vec<_> = fields.collect();
    if fields.is_empty() {
        return;
    }
    let sample = table.sample.as_ref().unwrap();
    let part = if sample.is_whole { Part::Whole } else { Part::OneIn(1) };
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let name = format!("{}.{}", quoted(&table.schema), quoted(&table.name));
    let (_, read) = values(cluster, &name, &fields, &sample.blocks, part);
    for (column, read) in of_expressions.into_iter().zip(read) {
        let is_null = read.places.iter().map(|place| *place == Place::Null);
        let sizes = is_null.zip(&read.sizes).map(|(null, size)| (!null).then_some(*size));
        column.expression_sizes = Some(sizes.collect());
        column.expression_values = read.values;
    }
}

/// Fields of three (size, compression, text) of the rows of some blocks.
fn values(
    cluster: &Cluster,
    name: &str,
    fields: &[String],
    blocks: &[u32],
    part: Part,
) -> (Vec<RowPlace>, Vec<SampledColumn>) {
    let list = blocks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let chosen = match part {
        Part::Whole => String::new(),
        Part::OneIn(_) => format!("where (ctid::text::point)[0]::int = any ('{{{list}}}')"),
    };
    let fields_text = fields.join(", ");
    let found = rows(
        cluster,
        &format!("select json_build_array(ctid::text, {fields_text}) from {name} {chosen} order by ctid"),
    );
    let empty = || SampledColumn { values: Some(vec![]), ..SampledColumn::default() };
    let mut read: Vec<_> = fields.iter().map(|_| empty()).collect();
    let mut places = Vec::new();
    for row in &found {
        let place = row[0].as_str().unwrap().trim_matches(['(', ')']).split_once(',').unwrap();
        places.push(RowPlace(place.0.parse().unwrap(), place.1.parse().unwrap()));
        for (at, column) in read.iter_mut().enumerate() {
            let [size, compression, value] = [&row[1 + at * 3], &row[2 + at * 3], &row[3 + at * 3]];
            column.sizes.push(size.as_u64().unwrap_or(0) as u32);
            column.places.push(match (size.is_null(), compression.as_str()) {
                (true, _) => Place::Null,
                (false, Some("pglz")) => Place::Pglz,
                (false, Some(_)) => Place::Lz4,
                (false, None) => Place::Inline,
            });
            column.values.as_mut().unwrap().push(value.as_str().map(str::to_owned));
        }
    }
    (places, read)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn letter(value: &Value) -> char {
    value.as_str().and_then(|text| text.chars().next()).unwrap_or(' ')
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
