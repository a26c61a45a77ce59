//! Indexes that were simulated, beside those that a server builds.

use crate::catalog::{self, Part};
use pgshrink_advisor::edit::Retype;
use pgshrink_advisor::index;
use pgshrink_advisor::layout::{Alignment, Column};
use pgshrink_advisor::snapshot::Table;
use pgshrink_testkit::{Cluster, Server};

const ROWS: u64 = 120_000;

/// Rows of many kinds of keys, some with duplicates: near each other, at random, and with a few very common ones.
const TABLE: &str = "
    create table t (id int4 not null, big int8 not null, pair int4 not null, few int4 not null, maybe int4, line int4 not null,
        zipf int4 not null, key uuid not null, word text not null, long text, kind text, flag bool not null, day timestamptz not null,
        amount numeric(12, 2), label name, huge text);
    select setseed(0.5);
    insert into t select n, n * 1000003::int8, (random() * 1e9)::int, (random() * 5)::int,
        case when random() < 0.7 then (random() * 30000)::int end, n / 5, (1 / (random() + 0.00001))::int, gen_random_uuid(),
        left(md5(random()::text) || md5(random()::text), 1 + (random() * 60)::int),
        case when random() < 0.5 then repeat(md5((random() * 20000)::int::text), 1 + (random() * 6)::int) end,
        (array['new', 'open', 'in progress', 'closed'])[1 + (power(random(), 3) * 4)::int], random() < 0.1,
        timestamptz '2026-01-01' + (random() * 40000)::int * interval '1 minute', (random() * 40000)::int / 4.0,
        'n' || (random() * 3000)::int,
        case when n % 50 = 0 then repeat(md5((n % 3000)::text), 30) || md5(n::text) end
        from generate_series(1, 120000) n;
    analyze t;";

/// Each with the error that is allowed on a sample of a tenth of the blocks, in thousandths.
const INDEXES: [(&str, &str, u64); 28] = [
    ("id", "create unique index i on t (id)", 20),
    ("id twice as free", "create index i on t (id) with (fillfactor = 70)", 20),
    ("int8", "create unique index i on t (big desc)", 20),
    ("two int4", "create unique index i on t (id, pair)", 20),
    ("include", "create index i on t (id) include (pair)", 20),
    ("include, unique", "create unique index i on t (id) include (word)", 20),
    ("int4 at random", "create index i on t (pair)", 20),
    ("six values", "create index i on t (few)", 20),
    ("six values, not deduplicated", "create index i on t (few) with (deduplicate_items = off)", 20),
    ("NULLs and duplicates", "create index i on t (maybe)", 50),
    ("NULLs first", "create index i on t (maybe desc nulls first)", 50),
    ("lines", "create index i on t (line)", 50),
    ("zipf", "create index i on t (zipf)", 50),
    ("uuid", "create unique index i on t (key)", 20),
    ("text", "create index i on t (word)", 20),
    ("text with duplicates and NULLs", "create index i on t (long)", 50),
    ("kind", "create index i on t (kind)", 20),
    ("kind and int", "create index i on t (kind, maybe)", 50),
    ("kind and id", "create index i on t (kind, id)", 20),
    ("flag", "create index i on t (flag, few)", 20),
    ("day", "create index i on t (day)", 50),
    ("numeric", "create index i on t (amount)", 20),
    ("name", "create index i on t (label)", 50),
    ("partial, not NULL", "create index i on t (maybe) where maybe is not null", 50),
    ("partial, equal", "create index i on t (id) where kind = 'open' and flag", 60),
    ("partial, not understood", "create index i on t (id) where length(word) > 30", 20),
    ("expression", "create index i on t (lower(word))", 20),
    ("long values that are compressed", "create index i on t (huge) where huge is not null", 50),
];

fn build(cluster: &Cluster, sql: &str) {
    cluster.sql(&format!("drop index if exists i; set maintenance_work_mem = '256MB'; {sql}")).unwrap();
}

/// Sizes of an index that do not fit, from these parts of the table.
fn compare(
    cluster: &Cluster,
    (name, sql, allowed): (&str, &str, u64),
    parts: &mut [(Part, Table)],
) -> Vec<String> {
    let mut wrong = Vec::new();
    build(cluster, sql);
    for (part, table) in parts {
        table.indexes = catalog::indexes(cluster, "t");
        catalog::read_expressions(cluster, table);
        let actual = table.indexes[0].bytes;
        let allowed = match part {
            // Which rows are in it is known of all rows too only if the predicate is understood.
            Part::Whole if name.contains("not understood") => 20,
            Part::Whole => 0,
            Part::OneIn(_) => allowed,
        };
        let found = index::planned_bytes(table, &table.indexes[0], ROWS).unwrap();
        let error = found.abs_diff(actual) * 1000 / actual;
        println!("{part:?} {name}: {} pages, {} found: {error} per mille", actual / 8192, found / 8192);
        // A page of a small index is more than the error allowed.
        let is_near = *part != Part::Whole && found.abs_diff(actual) <= 8192;
        if error > allowed && !is_near {
            wrong.push(format!("{part:?} {name}: {} pages, {} found", actual / 8192, found / 8192));
        }
        // What there is now is as small as it can be: nothing is to be gained.
        let rebuilt = index::rebuilt_bytes(table, &table.indexes[0], ROWS, &[]);
        if rebuilt.is_none_or(|rebuilt| rebuilt * 1000 < actual * (1000 - allowed)) {
            wrong.push(format!("{part:?} {name}: {rebuilt:?} when rebuilt"));
        }
    }
    wrong
}

#[test]
fn indexes_have_the_pages_that_a_server_gives_them() {
    Server::each("sizes of indexes", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql(TABLE).unwrap();
        let parts = [Part::Whole, Part::OneIn(10)];
        let mut parts = parts.map(|part| (part, catalog::table(&cluster, "t", part)));
        let wrong: Vec<_> =
            INDEXES.into_iter().flat_map(|index| compare(&cluster, index, &mut parts)).collect();
        assert_eq!(wrong, Vec::<String>::new());
    });
}

/// A column of text whose values are images of another type.
fn retype(
    table: &Table,
    column: usize,
    type_name: &str,
    layout: Column,
    image: fn(&str) -> Vec<u8>,
) -> Retype {
    let texts = table.sample.as_ref().unwrap().columns[column].values.as_ref().unwrap();
    Retype {
        column,
        type_name: type_name.to_owned(),
        prepare: Vec::new(),
        first: Vec::new(),
        using: String::new(),
        layout,
        images: texts.iter().map(|text| text.as_deref().map(image)).collect(),
        proof: String::new(),
    }
}

#[test]
fn indexes_of_columns_with_another_type_have_the_pages_that_a_server_gives_them() {
    Server::each("sizes of indexes of other types", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster
            .sql(
                "create table t (id text not null, code text, n int8 not null, other int4 not null);
                 insert into t select gen_random_uuid(), n % 5000, n, (random() * 1e9)::int
                    from (select (random() * 40000)::int n from generate_series(1, 100000)) of;
                 create unique index t_id on t (id); create index t_code on t (code, n); create index t_n on t (n);
                 create index t_all on t (other, id, code) where n is not null; create index t_other on t (other);
                 create index t_lower on t (lower(id)); create index t_hash on t using hash (code);
                 create index t_odd on t (other) where length(id) > 3;",
            )
            .unwrap();
        let parts = [(Part::Whole, 0), (Part::OneIn(8), 30)];
        let tables = parts.map(|(part, allowed)| (catalog::table(&cluster, "t", part), allowed));
        cluster
            .sql(
                "alter table t alter id type uuid using id::uuid, alter code type int4 using code::int4,
                    alter n type int4",
            )
            .unwrap_err();
        cluster
            .sql(
                "drop index t_lower, t_odd; alter table t alter id type uuid using id::uuid,
                    alter code type int4 using code::int4, alter n type int4",
            )
            .unwrap();
        for (table, allowed) in tables {
            let column = |length, alignment| Column {
                name: String::new(),
                length: Some(length),
                alignment,
                is_packable: true,
                is_not_null: false,
                is_dropped: false,
            };
            let uuid = |text: &str| {
                let digits: String = text.chars().filter(|letter| *letter != '-').collect();
                (0..16).map(|at| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).unwrap()).collect()
            };
            let int4 = |text: &str| text.parse::<i32>().unwrap().to_le_bytes().to_vec();
            let retyped = [
                retype(&table, 0, "uuid", column(16, Alignment::Char), uuid),
                retype(&table, 1, "integer", column(4, Alignment::Int), int4),
                retype(&table, 2, "integer", column(4, Alignment::Int), int4),
            ];
            let retyped: Vec<_> = retyped.iter().collect();
            for index in &table.indexes {
                let found = index::rebuilt_bytes(&table, index, 100_000, &retyped);
                if matches!(&*index.name, "t_lower" | "t_hash" | "t_odd") {
                    assert_eq!(found, None, "{}", index.name);
                    continue;
                }
                let found = found.unwrap();
                let actual = format!("select pg_relation_size('{}')", index.name);
                let actual: u64 = cluster.sql(&actual).unwrap().trim().parse().unwrap();
                println!("{}: {} pages, {} found", index.name, actual / 8192, found / 8192);
                assert!(
                    found.abs_diff(actual) * 1000 <= actual * allowed,
                    "{}: {actual}, {found}",
                    index.name
                );
            }
        }
    });
}
