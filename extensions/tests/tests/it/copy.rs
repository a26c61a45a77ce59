//! COPY and the binary protocol: what leaves a database is a jsonb.

use std::fs;

use pgshrink_testkit::TempDir;

use crate::databases::on_each_major;
use crate::documents::{DIFFERENT, records, trained_table};

#[test]
fn copy_carries_documents_as_text_csv_and_binary() {
    on_each_major("COPY", |database| {
        trained_table(database, 500);
        let dir = TempDir::new().unwrap();
        for format in ["text", "csv", "binary"] {
            let file =
                |name: &str| dir.path().join(format!("{name}.{format}")).to_string_lossy().into_owned();
            let (zson, jsonb) = (file("zson"), file("jsonb"));
            database.sql(&format!("\\copy t (id, doc) to '{zson}' (format {format})"));
            database.sql(&format!("\\copy t (id, was) to '{jsonb}' (format {format})"));
            assert!(
                fs::read(&zson).unwrap() == fs::read(&jsonb).unwrap(),
                "as {format}, zson is not what jsonb is"
            );
            for column in ["doc", "was"] {
                database.sql(&format!(
                    "create temp table back (id int primary key, doc zson, was jsonb);
                    \\copy back (id, {column}) from '{zson}' (format {format})\n\
                    do $$ begin assert (select count(*) from back join t using (id) where back.{column} = t.was) = 500, '{format}'; end $$"
                ));
            }
        }
    });
}

#[test]
fn parameters_and_results_travel_in_binary() {
    on_each_major("binary parameters", |database| {
        trained_table(database, 500);
        // pgbench's prepared protocol sends text, so the binary way is taken by the functions themselves.
        let round = "select count(*) from t where zson_send(doc) <> jsonb_send(was)";
        assert_eq!(database.sql(round), "0");
        assert_eq!(database.sql("select zson_send('{\"a\": 1}')"), format!("\\x01{}", "7b2261223a20317d"));
    });
}

#[test]
fn a_column_turns_into_zson_and_back() {
    on_each_major("ALTER TABLE ... TYPE", |database| {
        database.sql(&format!("create table old as select id, doc as was, doc from ({}) r", records(1200)));
        database.sql("create index on old using gin (doc); alter table old add check (doc ? 'service')");
        let different = DIFFERENT.replace("from t ", "from old ");
        database.sql("alter table old alter column doc type zson");
        assert_eq!(database.sql(&different), "0");
        database.sql("select zson_learn('old', 'doc'); alter table old alter column doc type zson using zson_reencode(doc)");
        assert_eq!(database.sql(&different), "0");
        assert_eq!(database.sql("select count(*) from old where doc @> '{\"status\": \"passing\"}'"), "400");
        database.sql("alter table old alter column doc type zson('archive')");
        assert_eq!(database.sql(&different), "0");
        database.sql("alter table old alter column doc type jsonb");
        assert_eq!(database.sql(&different), "0");
        database.sql("drop extension zson");
        assert_eq!(database.sql("select count(*) from old where doc::jsonb <> was"), "0");
    });
}

#[test]
fn documents_as_large_as_jsonb_allows_go_in_and_out() {
    on_each_major("large documents", |database| {
        database.sql(
            "create table t (id int, was jsonb, doc zson);
            insert into t select n, d, d from (values (1000), (30000), (200000)) v(n),
                lateral (select jsonb_agg(jsonb_build_object('i', i, 'h', md5(i::text))) as d from generate_series(1, n) i) x;
            insert into t select 1, d, d from (select jsonb_build_object('text', repeat('all the same ', 2000000)) as d) x",
        );
        assert_eq!(database.sql(DIFFERENT), "0");
        assert_eq!(database.sql("select doc->29999->>'i' from t where id = 30000"), "30000");
        assert_eq!(database.sql("select length(doc->>'text') from t where id = 1"), "26000000");
        assert_eq!(database.sql("select pg_column_size(doc) < 100000 from t where id = 1"), "t");
    });
}
