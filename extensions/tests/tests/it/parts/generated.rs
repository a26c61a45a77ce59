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
        assert!(by_shape > 700, "only {by_shape} of 1400 are stored by their shape");
        assert_eq!(database.sql(DIFFERENT), "0");
        assert_eq!(database.sql("select count(*) from t where doc::jsonb::text::jsonb <> was"), "0");
        arguments(database, "t");
        database.sql("create cast (zson as bytea) without function");
        same(database, "D", "(select id, was, doc::jsonb as doc from t) d, lateral (values (0)) a");
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
