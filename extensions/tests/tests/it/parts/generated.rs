//! Records made with SQL, and generated documents.

use pgshrink_testkit::{Rng, Seed};

use super::{arguments, compare, learn, making, same, shaped_table, stored_by};
use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::DIFFERENT;

#[test]
fn every_part_of_a_record_is_what_it_is_of_a_jsonb() {
    on_each_major("parts of records", |database| {
        shaped_table(database, 600);
        database.sql("insert into t values (-1, null, null)");
        arguments(database, "t");
        compare(database, "t");
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn every_part_of_a_generated_document_is_what_it_is_of_a_jsonb() {
    on_one_major("parts of generated documents", |database| {
        let mut rng = Seed::from_env_or_time().rng();
        generated(database, &mut rng, 1200);
        learn(database, "t", "default");
        // Some are written after it learned, and by another dictionary than the newest.
        let more: Vec<String> = (0..200).map(|_| making::document(&mut rng)).collect();
        load(database, &more, 10_000);
        let by_shape = stored_by(database, "t", "shapes");
        assert!(by_shape > 1000, "only {by_shape} of 1400 are stored by their shape");
        assert_eq!(database.sql(DIFFERENT), "0");
        assert_eq!(database.sql("select count(*) from t where doc::jsonb::text::jsonb <> was"), "0");
        arguments(database, "t");
        database.sql("create cast (zson as bytea) without function");
        same(database, "D", "(select id, was, doc::jsonb as doc from t) d, lateral (values (0)) a");
        compare(database, "t");
    });
}

/// `D` is a document that is an object; values of the one before are taken over into the new one.
const UPDATES: [&str; 10] = [
    r#"D || '{"touched": 1}'"#,
    "D || jsonb_build_object('id', id, 'k' || id % 7, array['v', id::text], 'status', null)",
    "D || jsonb_build_object(' ', D -> 'tags', 'meta', '{}'::jsonb)",
    "D - 'id'",
    "D - 'touched' - array['host', '']",
    "jsonb_set(D, '{meta,new}', to_jsonb(id))",
    "jsonb_set(D, '{tags}', '[1, \"a\"]')",
    "jsonb_set_lax(D, '{host}', null, true, 'use_json_null')",
    "D #- '{tags,0}'",
    "jsonb_strip_nulls(D)",
];

#[test]
fn an_updated_document_is_what_it_is_of_a_jsonb() {
    on_one_major("updated documents", |database| {
        let mut rng = Seed::from_env_or_time().rng();
        generated(database, &mut rng, 600);
        learn(database, "t", "default");
        let before = stored_by(database, "t", "shapes");
        for round in 0..4 {
            for update in UPDATES {
                let of = |column: &str| update.replace('D', column);
                database.sql(&format!(
                    "update t set was = {}, doc = {}
                    where jsonb_typeof(was) = 'object' and hashint4(id + {round}) % 3 = 0",
                    of("was"),
                    of("doc")
                ));
                assert_eq!(database.sql(DIFFERENT), "0", "{update}");
            }
        }
        // One document is written after another one was read.
        for set in ["was = o.was, doc = o.doc::jsonb", "was = t.was || o.was, doc = t.doc || o.doc"] {
            database.sql(&format!("update t set {set} from t o where o.id = 599 - t.id and t.id % 3 = 0"));
        }
        assert_eq!(database.sql(DIFFERENT), "0");
        let after = stored_by(database, "t", "shapes");
        assert!(after * 10 > before * 8, "{before} documents were stored by their shape, now {after}");
        arguments(database, "t");
        compare(database, "t");
    });
}

/// Makes `t` of so many generated documents.
fn generated(database: &Database, rng: &mut Rng, count: usize) {
    database.sql(
        "create table t (id int primary key, was jsonb, doc zson); insert into t values (-1, null, null)",
    );
    let documents: Vec<String> = (0..count).map(|_| making::document(rng)).collect();
    load(database, &documents, 0);
}

fn load(database: &Database, documents: &[String], first: usize) {
    database.sql("create table lines (at serial, line text)");
    // No line of JSON has these bytes, so every line is one field.
    let copy = "copy lines (line) from stdin with (format csv, quote e'\\x01', delimiter e'\\x02')";
    database.psql().arg("-c").arg(copy).input(documents.join("\n").into_bytes()).run().unwrap();
    database.sql(&format!(
        "insert into t select {first} + at, line::jsonb, line::jsonb from lines; drop table lines"
    ));
}
