//! How documents are kept: out of line, by zstd beside shapes, by older dictionaries, by one codec after the other.

use std::time::Duration;

use pgshrink_testkit::wait_until;

use super::{arguments, compare, large, learn, same, shaped_table, stored_by};
use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, records, records_of};

#[test]
fn parts_of_documents_out_of_line_are_what_they_are_of_a_jsonb() {
    on_each_major("parts out of line", |database| {
        database.sql(&format!(
            "create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({}) r",
            large(30)
        ));
        learn(database, "t", "default");
        database.sql("vacuum full t");
        let toasted =
            "select pg_relation_size(reltoastrelid) > 50000 from pg_class where oid = 't'::regclass";
        assert_eq!(database.sql(toasted), "t");
        // Of more than one checked block.
        assert_eq!(
            database.sql("select min(pg_column_size(doc)) < 4000, max(pg_column_size(doc)) > 20000 from t"),
            "t|t"
        );
        assert!(stored_by(database, "t", "shapes") > 25);
        assert_eq!(database.sql(DIFFERENT), "0");
        arguments(database, "t");
        database.sql("delete from t_paths where md5(id || path::text) > '3'");
        compare(database, "t");
    });
}

#[test]
fn arguments_out_of_line_are_as_good_as_others() {
    on_one_major("arguments out of line", |database| {
        database.sql(&format!(
            "create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({}) r",
            large(30)
        ));
        learn(database, "t", "default");
        database.sql(
            "create cast (jsonb as bytea) without function; create table a (k text, path text[], j jsonb);
            alter table a alter k set storage external, alter path set storage external;
            insert into a values
                ('z', '{log,3,at}', '{}'),
                (repeat('z', 5000), array['log', repeat('1', 5000), 'at'], jsonb_build_object('id', 7, repeat('z', 5000), 1)),
                ('log', array['log', repeat('0', 5000) || '3', 'at'], jsonb_build_object('id', 7, 'text', repeat('z', 5000)))",
        );
        for expression in [
            "D -> k",
            "D ->> k",
            "D ? k",
            "D[k]",
            "D #> path",
            "D #>> path",
            "D ?| path",
            "D ?& path",
            "D @> j",
        ] {
            same(database, expression, "t d, a");
        }
        // Both sides of an operator are out of line, and read in place.
        let pairs =
            "t d, lateral (select was as other, was - 'log' as part, doc as z from t where id in (3, 7)) a";
        for expression in ["D @> other", "D @> part", "D <@ other", "D @> z", "z @> D", "z <@ D"] {
            same(database, expression, pairs);
        }
    });
}

#[test]
fn parts_of_documents_that_shapes_do_not_pay_for_are_what_they_are_of_a_jsonb() {
    on_one_major("parts of documents by zstd", |database| {
        shaped_table(database, 500);
        // Of no shape, and the same over and over: zstd takes a tenth of what any shape would.
        database.sql(
            "insert into t select 10000 + i, d, d from generate_series(1, 60) i, lateral (
                select jsonb_agg(jsonb_build_object('unknown ' || k % 3, i, 'repeated', repeat('all the same ', i), 'more', array[i, k])) as d
                from generate_series(1, 40) k) s;
            insert into t values (20000, '1', '1'), (20001, '[]', '[]'), (20002, '{}', '{}'), (20003, '\"id\"', '\"id\"')",
        );
        assert!(stored_by(database, "t", "zstd") >= 50);
        assert!(stored_by(database, "t", "shapes") >= 500);
        assert_eq!(database.sql(DIFFERENT), "0");
        arguments(database, "t");
        compare(database, "t");
    });
}

#[test]
fn documents_of_every_age_and_dictionary_are_read_side_by_side() {
    on_one_major("documents of every age", |database| {
        let insert = |first: u32, shape: &str| {
            let rows = records_of(shape, 300);
            database.sql(&format!("insert into t select id + {first}, doc, doc from ({rows}) r"));
        };
        database.sql("create table t (id int primary key, was jsonb, doc zson)");
        insert(0, "service");
        insert(1000, "other");
        for (at, codec) in ["zstd:3", "lz4", "none", "shapes"].iter().enumerate() {
            let learn = format!("select zson_set_codec('default', '{codec}'); select zson_learn('t', 'doc')");
            database.sql(&learn);
            insert(10_000 * (at as u32 + 1), "service");
        }
        insert(60_000, "third");
        // A second dictionary of shapes, for documents unlike those of the first.
        database.sql("delete from t where id < 1000; select zson_learn('t', 'doc', 'default', true)");
        insert(70_000, "third");
        let ids = "select count(distinct i) from t, unnest(zson_dictionary_ids(doc)) i where zson_info(doc) ~ 'codec = shapes'";
        assert_eq!(database.sql(ids), "2");
        for codec in ["shapes", "zstd", "lz4", "none"] {
            assert!(stored_by(database, "t", codec) >= 300, "{codec}");
        }
        assert_eq!(database.sql(DIFFERENT), "0");
        arguments(database, "t");
        compare(database, "t");
    });
}

/// What `CALL zson_reencode` does not change: where rows are, and their bytes.
const BYTES: &str = "select md5(string_agg(ctid::text || doc::bytea::text, ',' order by id)) from t";

#[test]
fn a_column_goes_from_every_codec_to_every_other() {
    on_one_major("codec to codec", |database| {
        database.sql("create cast (zson as bytea) without function");
        shaped_table(database, 400);
        database.sql(&format!("insert into t select id + 10000, doc, doc from ({}) r", large(6)));
        database.sql(
            "insert into t values (20000, '1', '1'), (20001, '[]', '[]'), (20003, '\"id\"', '\"id\"'), (20004, null, null);
            insert into t select 30000 + i, d, d from generate_series(1, 20) i,
                lateral (select jsonb_build_array(repeat('all the same ', i * 40), repeat('all the same ', i)) as d) s",
        );
        let codecs = ["'shapes'", "'zstd:3'", "'lz4'", "'none'", "'shapes:9'", "null"];
        // Each follows each.
        let pairs = codecs.iter().flat_map(|from| codecs.iter().map(move |to| [*from, *to]));
        for codec in pairs.flatten() {
            database
                .sql(&format!("select zson_set_codec('default', {codec}); call zson_reencode('t', 'doc')"));
            let stale = "select id, zson_info(doc) from t where not zson_is_current(doc) limit 5";
            assert_eq!(database.sql(stale), "", "after {codec}");
            let before = database.sql(BYTES);
            database.sql("call zson_reencode('t', 'doc')");
            assert_eq!(database.sql(BYTES), before, "written anew by {codec}, though it was");
            let found = ["shapes", "zstd", "lz4"].map(|codec| stored_by(database, "t", codec));
            let expected = match codec {
                "'zstd:3'" => found[1] >= 400 && found[0] + found[2] == 0,
                "'lz4'" => found[2] >= 400 && found[0] + found[1] == 0,
                "'none'" => found == [0; 3],
                _ => found[0] >= 400 && found[1] >= 10 && found[2] == 0,
            };
            assert!(expected, "by shapes, zstd and lz4: {found:?} after {codec}");
            assert_eq!(database.sql(DIFFERENT), "0", "after {codec}");
        }
        arguments(database, "t");
        compare(database, "t");
    });
}

#[test]
fn a_dictionary_of_shapes_that_nothing_needs_is_removed() {
    on_each_major("dictionaries of shapes are removed", |database| {
        shaped_table(database, 500);
        let first = database.sql("select id from zson_dictionaries");
        // Its zstd is used as well, which counts as much.
        for codec in ["zstd:3", "none"] {
            database
                .sql(&format!("select zson_set_codec('default', '{codec}'); call zson_reencode('t', 'doc')"));
            assert_eq!(stored_by(database, "t", "shapes"), 0);
        }
        let clean = || database.sql("select id, removed from zson_vacuum_dictionaries() order by id");
        assert_eq!(clean(), "", "the newest of its profile");
        database.sql("select zson_set_codec('default', null)");
        database.sql(&format!(
            "create table kept as select doc from t limit 1; truncate t; insert into t select id, doc, doc from ({}) r",
            records_of("other", 500)
        ));
        database.sql("update kept set doc = zson_reencode(doc)");
        database.sql(
            "select zson_learn('t', 'doc', 'default', true); call zson_reencode('t', 'doc'); vacuum full t",
        );
        let second = database.sql("select id from zson_dictionaries where current");
        assert_ne!(first, second);
        let still = clean();
        assert!(still.contains(&format!("{first}|f")), "a document has it: {still}");
        database.sql("drop table kept");
        wait_until(Duration::from_secs(30), "other sessions to leave", || {
            clean().contains(&format!("{first}|t"))
        })
        .unwrap();
        assert_eq!(database.sql("select id from zson_dictionaries"), second);
        assert_eq!(database.sql(DIFFERENT), "0");
        database.sql(&format!("insert into t select id + 9000, doc, doc from ({}) r", records(50)));
        check(database);
    });
}

fn check(database: &Database) {
    arguments(database, "t");
    compare(database, "t");
}
