//! Indexes that were simulated, beside those that a server builds.

use crate::catalog::{self, Part};
use pgshrink_advisor::index;
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

fn compare(cluster: &Cluster, part: Part) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut table = catalog::table(cluster, "t", part);
    for (name, sql, allowed) in INDEXES {
        build(cluster, sql);
        table.indexes = catalog::indexes(cluster, "t");
        catalog::read_expressions(cluster, &mut table);
        let actual = table.indexes[0].bytes;
        let allowed = match part {
            // Of all rows, only what the order of a collation or an unknown predicate changes.
            Part::Whole => {
                if name.contains("not understood") {
                    20
                } else {
                    3
                }
            }
            Part::OneIn(_) => allowed,
        };
        let found = index::planned_bytes(&table, &table.indexes[0], ROWS).unwrap();
        let error = found.abs_diff(actual) * 1000 / actual;
        println!("{part:?} {name}: {} pages, {} found: {error} per mille", actual / 8192, found / 8192);
        // One page of a small index is more than the error allowed.
        if error > allowed && found.abs_diff(actual) > 8192 {
            wrong.push(format!("{name}: {} pages, {} found", actual / 8192, found / 8192));
        }
    }
    wrong
}

#[test]
fn indexes_have_the_pages_that_a_server_gives_them() {
    Server::each("sizes of indexes", &[15, 16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql(TABLE).unwrap();
        for part in [Part::OneIn(10), Part::Whole] {
            assert_eq!(compare(&cluster, part), Vec::<String>::new(), "{part:?}");
        }
    });
}
