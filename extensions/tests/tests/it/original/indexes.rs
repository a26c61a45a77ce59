//! Statements of `zson_old_indexes`: each makes an index as the old one was, and queries use it.

use pgshrink_testkit::Server;

use crate::databases::{Database, MAJORS};

/// Name of an index of 1.1, how it was made, and a query that used it; nothing for one that queries still find.
const INDEXES: &[(&str, &str, &str)] = &[
    (
        "\"By Host\"",
        "on k (lower(doc->>'host') text_pattern_ops, id desc) include (txt) where doc ? 'host'",
        "select * from k where lower(doc->>'host') = 'x' and doc ? 'host'",
    ),
    (
        "held",
        "on k using gin ((doc::jsonb)) with (fastupdate=off)",
        "select * from k where doc @> '{\"id\": 7}'",
    ),
    (
        "paths",
        "on k using gin ((\"Q\"\"x y\"::jsonb) jsonb_path_ops) tablespace SPACE where id > 5",
        "select * from k where \"Q\"\"x y\" @> '{\"id\": 7}' and id > 5",
    ),
    (
        "mixed",
        "on k ((doc->>'a'), ((txt::jsonb)->>'b'))",
        "select * from k where doc->>'a' = '1' and txt::jsonb->>'b' = '1'",
    ),
    (
        "lengths",
        "on k (jsonb_array_length(doc->'tags')) tablespace SPACE",
        "select * from k where jsonb_array_length(doc->'tags') = 3",
    ),
    (
        "right_side",
        "on k ((('{}'::jsonb || doc)->>'r')) where doc->>'s' <> ' WHERE '",
        "select * from k where ('{}'::jsonb || doc)->>'r' = '1' and doc->>'s' <> ' WHERE '",
    ),
    (
        "typed",
        "on k (id) where jsonb_typeof(doc) = 'object' and doc->>'f' = 'x'",
        "select id from k where jsonb_typeof(doc) = 'object' and doc->>'f' = 'x'",
    ),
    ("in_domain", "on k ((dom->>'k'))", "select * from k where dom->>'k' = '1'"),
    ("sorted", "on k ((doc::jsonb) desc, id)", "select * from k order by doc desc, id limit 1"),
    ("parts", "on p ((doc->>'k'))", "select * from p where doc->>'k' = '7'"),
    ("of_types", "on k (jsonb_typeof(doc))", ""),
    ("of_words", "on k using gin (to_tsvector('english', doc))", ""),
    ("explicit", "on k (md5(doc::jsonb::text))", ""),
];

fn before_update(database: &Database) {
    let space = format!("of_{}", database.name);
    database.sql(&format!(
        "set allow_in_place_tablespaces = on; create tablespace {space} location '';
        create extension zson version '1.1'; create domain documents as zson;
        create cast (jsonb as bytea) without function; create cast (bytea as zson) without function;
        create table k (id int, doc zson, txt text, dom documents, \"Q\"\"x y\" zson);
        create table p (id int, doc zson) partition by list (id);
        create table \"p One\" partition of p for values in (1); create table p_two partition of p for values in (2);
        create unique index once on p (id, (doc->>'u'));
        create index unknown on k ((coalesce(doc, '{{}}'::jsonb::zson)->>'k'));
        alter table k add constraint apart exclude using btree ((doc->>'e') with =)"
    ));
    for (name, how, _) in INDEXES {
        database.sql(&format!("create index {name} {}", how.replace("SPACE", &space)));
    }
}

#[test]
fn every_statement_of_the_update_makes_an_index_that_queries_use() {
    Server::each_with_extensions("statements for indexes of 1.1", &MAJORS, |server| {
        let database = Database::empty(server);
        before_update(&database);
        database.sql("alter extension zson update");
        let listed = database.sql(
            "select string_agg(index::text, ' ' order by index::text collate \"C\") from zson_old_indexes",
        );
        let mut expected: Vec<&str> =
            INDEXES.iter().filter(|index| !index.2.is_empty()).map(|index| index.0).collect();
        expected.extend(["once", "unknown", "apart"]);
        expected.sort_unstable();
        assert_eq!(listed, expected.join(" "));
        let list = "select coalesce(statement, '') from zson_old_indexes where index =";
        assert_eq!(database.sql(&format!("{list} 'unknown'::regclass")), "");
        for name in expected.iter().filter(|name| **name != "unknown") {
            let statement = database.sql(&format!("{list} '{name}'::regclass"));
            let drop = if *name == "apart" { "alter table k drop constraint" } else { "drop index" };
            database.sql(&format!("alter index {name} rename to before; {statement}; {drop} before"));
        }
        assert_eq!(database.sql("select index from zson_old_indexes"), "unknown");
        assert_eq!(database.sql("select count(*) from pg_index where not indisvalid"), "0");
        let moved = "select count(*) from pg_class c join pg_tablespace s on s.oid = c.reltablespace
            where c.relname in ('paths', 'lengths') and s.spcname like 'of\\_%'";
        assert_eq!(database.sql(moved), "2");
        database.sql(
            "insert into k (id, doc) select i, jsonb_build_object('id', i, 'host', i, 'e', i)::zson from generate_series(1, 500) i;
            insert into p select 1 + i % 2, jsonb_build_object('k', i, 'u', i)::zson from generate_series(1, 500) i;
            analyze",
        );
        for (name, _, query) in INDEXES.iter().filter(|index| !index.2.is_empty()) {
            let plan =
                database.sql(&format!("set enable_seqscan = off; set enable_sort = off; explain {query}"));
            // Those of partitions have names of their own.
            let name = if *name == "parts" { "p_two_expr_idx" } else { name };
            assert!(plan.contains(&format!(" {name}")) && !plan.contains("Seq Scan"), "{query}\n{plan}");
        }
        database.sql("insert into p values (2, '{\"u\": 1}') on conflict (id, (doc->>'u')) do nothing");
        assert_eq!(database.sql("select count(*) from p"), "500");
        database.fails("23P01", "insert into k (doc) values ('{\"e\": 7}')");
    });
}
