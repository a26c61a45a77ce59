//! Indexes and joins: they are used, and find what jsonb's find.

use super::pair;
use crate::databases::{Database, on_each_major};

/// Kinds of indexes, each with conditions that it serves.
const SERVED: &[(&str, &[&str])] = &[
    (
        "btree (doc)",
        &[
            "doc = '{}'",
            "doc = '{}'::jsonb",
            "'{}'::jsonb = doc",
            "doc < '[]'::jsonb",
            "doc <= '[]'",
            "doc > '{}' and doc < '{\"a\":1}'",
            "doc >= '{\"b\":1}'::jsonb and doc <= '{}'",
            "doc in ('{}', '[]')",
            "doc = any (array['{}', 'null']::jsonb[])",
        ],
    ),
    (
        "hash (doc)",
        &["doc = '{}'", "doc = '{}'::jsonb", "'{}'::jsonb = doc", "doc in ('{}', '[]')", "doc = 'null'"],
    ),
    (
        "gin (doc)",
        &[
            "doc @> '{\"a\":1}'",
            "doc @> '{\"a\":1}'::jsonb",
            "'{\"a\":1}'::jsonb <@ doc",
            "'{\"a\":1}' <@ doc",
            "doc @> '{\"b\":{\"d\":[7]}}'::jsonb",
            "doc @> '{}'",
            "doc @> '[]'::jsonb",
            "doc ? 'a'",
            "doc ? 'str'",
            "doc ?| '{s,str}'",
            "doc ?& '{a,s}'",
            "doc @? '$.a ? (@ == 3)'",
            "doc @@ '$.a == 1 && $.s like_regex \"^x11\"'",
            "doc @@ '$.s == \"x9\"'",
        ],
    ),
    (
        "gin (doc PATH)",
        &[
            "doc @> '{\"a\":1}'",
            "doc @> '{\"b\":{\"d\":[7]}}'::jsonb",
            "'{\"a\":1}'::jsonb <@ doc",
            "doc @> '{}'::jsonb",
            "doc @? '$.a ? (@ == 3)'",
            "doc @@ '$.s == \"x9\"'",
        ],
    ),
    ("btree ((doc ->> 'a'))", &["doc ->> 'a' = '3'"]),
    ("btree ((doc -> 'a')) where doc ? 's'", &["doc -> 'a' = '3' and doc ? 's'"]),
    ("gin ((doc -> 'b'))", &["doc -> 'b' @> '{\"c\":4}'"]),
];

#[test]
fn every_kind_of_index_serves_its_conditions() {
    on_each_major("indexes", |database| {
        pair(database);
        for (kind, conditions) in SERVED {
            database.sql(&format!(
                "create index of_z on z using {}; create index of_j on j using {}",
                kind.replace("PATH", "zson_path_ops"),
                kind.replace("PATH", "jsonb_path_ops")
            ));
            for condition in *conditions {
                let query = |table: &str| {
                    let select = format!("select array_agg(id order by id) from {table} where {condition}");
                    let plan = database.sql(&format!("set enable_seqscan = off; explain {select}"));
                    assert!(
                        plan.contains(&format!("of_{table}")),
                        "{kind} does not serve {condition}\n{plan}"
                    );
                    database.sql(&format!("set enable_seqscan = off; {select}"))
                };
                assert_eq!(query("z"), query("j"), "{condition} by {kind}");
            }
            database.sql("drop index of_z, of_j");
        }
    });
}

#[test]
fn joins_may_mix_the_types_in_every_way() {
    on_each_major("joins", |database| {
        pair(database);
        let matching = database.sql("select count(*) from j a join j b using (doc)");
        for (off, plan) in
            [("mergejoin", "Hash Join"), ("hashjoin", "Merge Join"), ("hashjoin, mergejoin", "Nested Loop")]
        {
            let off: String = off.split(", ").map(|name| format!("set enable_{name} = off;")).collect();
            // Pairs over 2,000 rows each without an index: only where nothing else is left.
            let some = if plan == "Nested Loop" { "where a.id > 1900 and b.id > 1900" } else { "" };
            for (a, b) in [("z", "z"), ("z", "j"), ("j", "z")] {
                let query = format!("select count(*) from {a} a join {b} b on a.doc = b.doc {some}");
                let chosen = database.sql(&format!("{off} explain {query}"));
                assert!(chosen.contains(plan), "{a} with {b}: no {plan}\n{chosen}");
                let wanted = if some.is_empty() { matching.as_str() } else { "107" };
                assert_eq!(database.sql(&format!("{off} {query}")), wanted, "{plan} of {a} with {b}");
            }
        }
        let three = "select count(*) from z a join j b on a.doc = b.doc join j c on c.doc = b.doc join z d on d.doc = c.doc";
        assert_eq!(database.sql(three), matching);
        for (query, wanted) in [
            ("select count(*) from z where doc in (select doc from j)", matching.as_str()),
            ("select count(*) from z where doc not in (select doc from j where doc is not null)", "0"),
            ("select count(*) from (select doc from z union select doc from j) s", "2008"),
            ("select count(*) from (select doc from z except select doc from j) s", "0"),
            ("select count(distinct doc) from z", "2007"),
        ] {
            assert_eq!(database.sql(query), wanted, "{query}");
        }
    });
}

#[test]
fn keys_and_partitions_may_be_documents() {
    on_each_major("keys and partitions", |database: &Database| {
        pair(database);
        database.sql(
            "create table k (doc zson primary key, a text generated always as (doc ->> 'a') stored, check (doc ? 'a'));
            insert into k values ('{\"a\": 1, \"b\": 1.0}') on conflict do nothing;
            insert into k values ('{\"b\": 1.00, \"a\": 1}') on conflict (doc) do nothing;
            create table r (doc zson references k);
            create table rj (doc jsonb references k);
            insert into r values ('{\"a\": 1, \"b\": 1}');
            insert into rj values ('{\"a\": 1, \"b\": 1.000}')",
        );
        assert_eq!(database.sql("select count(*), min(a) from k"), "1|1");
        database.fails("23503", "insert into rj values ('{\"a\": 2}')");
        database.fails("23505", "insert into k values ('{\"a\": 1, \"b\": 1}')");
        for by in ["hash", "list", "range"] {
            database.sql(&format!("create table p_{by} (doc zson) partition by {by} (doc)"));
        }
        database.sql(
            "create table h0 partition of p_hash for values with (modulus 2, remainder 0);
            create table h1 partition of p_hash for values with (modulus 2, remainder 1);
            create table l0 partition of p_list for values in ('{}', '[]');
            create table l1 partition of p_list default;
            create table r0 partition of p_range for values from (minvalue) to ('{}');
            create table r1 partition of p_range for values from ('{}') to (maxvalue);
            insert into p_hash select doc from z;
            insert into p_list select doc from z;
            insert into p_range select doc from z where doc is not null",
        );
        assert_eq!(database.sql("select count(*) from l0"), "2");
        assert_eq!(database.sql("select count(*) from r1"), "2001");
        for (table, other) in [("p_list", "l1"), ("p_range", "r0")] {
            let plan = database.sql(&format!("explain select * from {table} where doc = '{{}}'::jsonb"));
            assert!(!plan.contains(&format!("on {other}")), "{table} is not pruned\n{plan}");
        }
    });
}
