//! Snapshots of tables of a test server: all rows, or those of the first blocks.

use pgshrink_advisor::snapshot::{Column, ForeignKey, Index, Sample, Server, Snapshot, Table};
use pgshrink_testkit::Cluster;
use serde_json::{Value, json};

const COLUMNS: &str = "select coalesce(jsonb_agg(jsonb_build_object(
    'name', attname, 'type_name', format_type(atttypid, atttypmod), 'type_schema', n.nspname, 'type_id', t.typname,
    'base_type_id', case when t.typtype = 'd' then (select typname from pg_type where oid = t.typbasetype) else t.typname end,
    'type_kind', case when t.typtype = 'd' then 'b' else t.typtype end, 'type_modifier', atttypmod, 'length', attlen,
    'alignment', attalign, 'storage', attstorage, 'compression', ' ', 'is_not_null', attnotnull, 'is_dropped', attisdropped,
    'generated', rpad(attgenerated::text, 1), 'identity', rpad(attidentity::text, 1), 'has_missing', atthasmissing,
    'default', pg_get_expr(adbin, adrelid), 'collation',
      (select format('%I.%I', s.nspname, collname) from pg_collation c join pg_namespace s on s.oid = collnamespace
       where c.oid = attcollation and attcollation <> typcollation), 'statistics', null) order by attnum), '[]')
  from pg_attribute a left join pg_type t on t.oid = atttypid left join pg_namespace n on n.oid = typnamespace
    left join pg_attrdef d on d.adrelid = attrelid and adnum = attnum
  where attrelid = $oid and attnum > 0";

const INDEXES: &str = "select coalesce(jsonb_agg(jsonb_build_object(
    'oid', indexrelid::int8, 'name', relname, 'access_method', amname, 'definition', pg_get_indexdef(indexrelid),
    'bytes', pg_relation_size(indexrelid), 'row_estimate', 0, 'tablespace', '', 'options', '[]'::jsonb,
    'key_count', indnkeyatts, 'is_unique', indisunique, 'nulls_not_distinct', false, 'is_primary', indisprimary,
    'is_exclusion', indisexclusion, 'is_valid', true, 'is_replica_identity', indisreplident, 'is_clustered', false,
    'constraint', null, 'referenced_by', (select count(*) from pg_constraint where conindid = indexrelid and contype = 'f'),
    'parent', 0, 'predicate', pg_get_expr(indpred, indrelid), 'scans', null, 'last_scan_s', null,
    'columns', (select jsonb_agg(jsonb_build_object('table_column', indkey[k - 1],
        'definition', pg_get_indexdef(indexrelid, k, true),
        'operator_class', (select opcname from pg_opclass where oid = indclass[k - 1]), 'collation', 0, 'order_flags', 0,
        'length', attlen, 'alignment', attalign, 'storage', attstorage, 'type_name', '', 'is_deduplicable', true,
        'expression_sizes', null) order by k)
      from generate_series(1, indnkeyatts) k join pg_attribute on attrelid = indexrelid and attnum = k))
    order by indexrelid), '[]')
  from pg_index join pg_class c on c.oid = indexrelid join pg_am on pg_am.oid = relam where indrelid = $oid";

const FOREIGN_KEYS: &str = "select coalesce(jsonb_agg(jsonb_build_object('name', conname, 'columns', conkey,
    'foreign_table', confrelid::int8, 'foreign_columns', confkey, 'definition', pg_get_constraintdef(oid))), '[]')
  from pg_constraint where conrelid = $oid and contype = 'f'";

fn rows<T: serde::de::DeserializeOwned>(cluster: &Cluster, sql: &str, oid: u32) -> T {
    let found = cluster.sql(&sql.replace("$oid", &oid.to_string())).unwrap();
    serde_json::from_str(&found).unwrap_or_else(|error| panic!("{error}: {found}"))
}

/// A snapshot of the user's tables. Of each, rows of the first blocks are sampled, of all where `blocks` is None.
pub fn snapshot(cluster: &Cluster, blocks: Option<u32>) -> Snapshot {
    let oids = cluster
        .sql("select oid from pg_class where relkind in ('r', 'p') and oid >= 16384 order by oid")
        .unwrap();
    let tables = oids.lines().map(|oid| table(cluster, oid.parse().unwrap(), blocks)).collect();
    let server = Server {
        version: cluster.sql("show server_version_num").unwrap().trim().parse().unwrap(),
        encoding: "UTF8".to_owned(),
        ..Server::default()
    };
    Snapshot { format: 1, server, tables, ..Snapshot::default() }
}

fn table(cluster: &Cluster, oid: u32, blocks: Option<u32>) -> Table {
    let columns: Vec<Column> = rows(cluster, COLUMNS, oid);
    let indexes: Vec<Index> = rows(cluster, INDEXES, oid);
    let foreign_keys: Vec<ForeignKey> = rows(cluster, FOREIGN_KEYS, oid);
    let sql = "select jsonb_build_object('schema', (select nspname from pg_namespace n where n.oid = relnamespace), 'name', relname, 'kind', relkind,
        'parent', coalesce((select inhparent::int8 from pg_inherits where inhrelid = $oid), 0), 'has_children', relhassubclass,
        'is_partition', relispartition, 'pages', pg_relation_size(oid) / 8192,
        'key', (select to_jsonb(partattrs::int2[]) from pg_partitioned_table where partrelid = $oid)) from pg_class where oid = $oid";
    let about: Value = rows(cluster, sql, oid);
    let text = |name: &str| about[name].as_str().unwrap().to_owned();
    let is_stored = text("kind") == "r";
    let name =
        format!("\"{}\".\"{}\"", text("schema").replace('"', "\"\""), text("name").replace('"', "\"\""));
    Table {
        oid,
        schema: text("schema"),
        name: text("name"),
        kind: serde_json::from_value(json!(if is_stored { "table" } else { "partitioned" })).unwrap(),
        parent: about["parent"].as_u64().unwrap() as u32,
        has_children: about["has_children"].as_bool().unwrap(),
        is_partition: about["is_partition"].as_bool().unwrap(),
        partition_key: serde_json::from_value(about["key"].clone()).unwrap(),
        access_method: "heap".to_owned(),
        sample: is_stored.then(|| sample(cluster, &name, &columns, blocks)),
        row_estimate: -1.0,
        columns,
        indexes,
        foreign_keys,
        ..Table::default()
    }
}

fn sample(cluster: &Cluster, name: &str, columns: &[Column], blocks: Option<u32>) -> Sample {
    let limit = blocks.map_or(String::new(), |blocks| format!("where ctid < '({blocks},0)'"));
    let mut places = Value::Null;
    let mut sampled = Vec::new();
    for column in columns {
        if column.is_dropped {
            sampled.push(json!({"sizes": [], "places": [], "values": []}));
            continue;
        }
        let quoted = format!("\"{}\"", column.name.replace('"', "\"\""));
        let sql = format!(
            "select jsonb_build_object('at', coalesce(jsonb_agg(ctid::text order by ctid), '[]'),
               'sizes', coalesce(jsonb_agg(coalesce(pg_column_size({quoted}), 0) order by ctid), '[]'),
               'places', coalesce(jsonb_agg(case when {quoted} is null then 'n' else 'i' end order by ctid), '[]'),
               'values', coalesce(jsonb_agg(case when {quoted} is null then null else format('%s', {quoted}) end
                 order by ctid), '[]')) from {name} {limit}"
        );
        let mut found: Value =
            rows(cluster, &format!("set timezone to 'UTC'; {sql}").replace("SET\n", ""), 0);
        places = found.as_object_mut().unwrap().remove("at").unwrap();
        sampled.push(found);
    }
    let place = |text: &Value| {
        let text = text.as_str().unwrap().trim_matches(['(', ')']);
        let (block, item) = text.split_once(',').unwrap();
        json!([block.parse::<u32>().unwrap(), item.parse::<u16>().unwrap()])
    };
    let rows: Vec<Value> = places.as_array().map(|list| list.iter().map(place).collect()).unwrap_or_default();
    serde_json::from_value(json!({
        "blocks": [], "rows": rows, "columns": sampled, "pages": [], "other_pages": [], "is_whole": blocks.is_none()
    }))
    .unwrap()
}
