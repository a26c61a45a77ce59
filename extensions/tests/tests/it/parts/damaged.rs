//! Damaged documents of shapes: each operator gives an error that says so, or what it should, and nothing else.

use super::{large, learn, shaped_table};
use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::records_of;

/// What reads a document, a part of it or all.
const READS: [&str; 21] = [
    "D -> 'id'",
    "D ->> 'host'",
    "D ->> 'id'",
    "D -> 'meta' ->> 'checksum'",
    "D #> '{meta}'",
    "D #>> '{tags,0}'",
    "D #> '{tags,-1}'",
    "D #> '{}'",
    "D ->> 'nope'",
    "D -> 0",
    "D ? 'meta'",
    "D ? 'nope'",
    "D ?| '{nope,status}'",
    "D ?& '{id,status}'",
    "D['meta']['version']",
    "D['tags'][1]",
    "D::jsonb",
    "D @> '{\"status\": \"passing\"}'",
    "D @> '{\"meta\": {}, \"tags\": []}'",
    "D @> '{\"id\": 7.0}'::zson",
    "'{\"host\": \"nope\"}' <@ D",
];

/// Documents of shapes as bytes in `stored (id, was jsonb, bytes bytea)`, and `read(n, zson)`: the text or the error of read `n`; `should(n, jsonb)`: what it has to be.
fn stored(database: &Database, rows: &str) {
    let case = |of: &str| -> String {
        READS
            .iter()
            .enumerate()
            .map(|(at, read)| format!("when {at} then ({})::text\n", read.replace('D', of)))
            .collect()
    };
    database.sql(&format!(
        "create cast (bytea as zson) without function; create cast (zson as bytea) without function;
        create table stored as select id, was, doc::bytea as bytes from t where {rows};
        create function read(n int, d zson) returns text language plpgsql as $$
        begin return case n {} end; exception when others then return 'error ' || sqlstate; end $$;
        create function should(n int, d jsonb) returns text language sql immutable as $$ select case n {} end $$;",
        case("d"),
        case("d"),
    ));
    let wrong = format!(
        "select id, n, read(n, bytes::zson), should(n, was) from stored, generate_series(0, {}) n
        where read(n, bytes::zson) is distinct from should(n, was)",
        READS.len() - 1
    );
    assert_eq!(database.sql(&wrong), "", "before any damage");
}

/// What reads give of the bytes that `damaged` makes of each of `stored`, for each value of `range` as `at`.
#[track_caller]
fn told(database: &Database, damaged: &str, range: &str) {
    let outcomes = format!(
        "create temp table outcomes as select id, n, at, read(n, ({damaged})::zson) as said, should(n, was) as expected,
            substr({damaged}, 1, 1) <> substr(bytes, 1, 1) as is_of_tag
            from stored, lateral {range} at, generate_series(0, {}) n",
        READS.len() - 1
    );
    // A tag may say that a newer version wrote the document.
    let allowed = "delete from outcomes where said = 'error XX001' or is_of_tag and said = 'error 0A000'";
    let wrong = "select * from outcomes where said is distinct from expected limit 20";
    assert_eq!(database.sql(&format!("{outcomes}; {allowed}; {wrong}")), "", "of {damaged}");
}

/// As [`told`], of bytes in a table.
#[track_caller]
fn told_out_of_line(database: &Database, damaged: &str, range: &str) {
    let outcomes = format!(
        "drop table if exists damaged;
        create table damaged as select id, was, at, ({damaged})::zson as doc from stored, lateral {range} at;
        create temp table outcomes as select id, n, at, read(n, doc) as said, should(n, was) as expected
            from damaged, generate_series(0, {}) n",
        READS.len() - 1
    );
    let out_of_line =
        "select pg_relation_size(reltoastrelid) > 100000 from pg_class where oid = 'damaged'::regclass";
    let allowed = "delete from outcomes where said = 'error XX001' or at < 8 and said = 'error 0A000'";
    let wrong = "select * from outcomes where said is distinct from expected limit 20";
    let found = database.sql(&format!("{outcomes}; {out_of_line}; {allowed}; {wrong}"));
    assert_eq!(found, "t", "of {damaged}");
}

#[test]
fn every_flipped_bit_of_a_document_of_shapes_is_told_by_every_operator() {
    on_each_major("flipped bits in shapes", |database| {
        shaped_table(database, 600);
        // Another dictionary, which a damaged id may name.
        database.sql(&format!(
            "create table other (id int, was jsonb, doc zson('other')); insert into other select id, doc, doc from ({}) r",
            records_of("other", 600)
        ));
        learn(database, "other", "other");
        stored(database, "id in (7, 8, 599)");
        told(
            database,
            "set_bit(bytes, at, 1 - get_bit(bytes, at))",
            "generate_series(0, length(bytes) * 8 - 1)",
        );
        told(database, "substr(bytes, 1, length(bytes) - at - 1)", "generate_series(0, length(bytes) - 1)");
        told(database, "bytes || decode(repeat('00', at), 'hex')", "generate_series(1, 9)");
        told(
            database,
            "overlay(bytes placing '\\xffff'::bytea from at)",
            "generate_series(1, length(bytes) - 1)",
        );
        told(
            database,
            "substr(bytes, 1, at) || substr(bytes, at + 2)",
            "generate_series(0, length(bytes) - 1)",
        );
    });
}

#[test]
fn damage_anywhere_in_a_document_of_several_blocks_is_told_by_every_operator() {
    on_one_major("flipped bits in large shapes", |database| {
        database.sql(&format!(
            "create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({}) r",
            large(30)
        ));
        learn(database, "t", "default");
        stored(database, "id = 19");
        assert_eq!(database.sql("select length(bytes) > 8192 from stored"), "t");
        told(
            database,
            "set_bit(bytes, at, 1 - get_bit(bytes, at))",
            "generate_series(0, length(bytes) * 8 - 1, 121)",
        );
        // Out of line, of which only those blocks are fetched that are needed.
        told_out_of_line(
            database,
            "set_bit(bytes, at, 1 - get_bit(bytes, at))",
            "generate_series(0, length(bytes) * 8 - 1, 1001)",
        );
        told_out_of_line(database, "substr(bytes, 1, at)", "generate_series(2100, length(bytes) - 1, 997)");
        told_out_of_line(
            database,
            "bytes || decode(repeat('00', at), 'hex')",
            "generate_series(1, 8193, 511)",
        );
        // Two blocks that changed places.
        let swapped = "substr(bytes, 1, at) || substr(bytes, at + 4097, 4096) || substr(bytes, at + 1, 4096) || substr(bytes, at + 8193)";
        told(database, swapped, "generate_series(0, 40)");
    });
}

#[test]
fn documents_of_a_dictionary_that_is_gone_are_told_by_every_operator() {
    on_one_major("a missing dictionary of shapes", |database| {
        shaped_table(database, 600);
        stored(database, "id in (7, 8)");
        // Its bytes are those of another database's document.
        let other = Database::with_zson(database.cluster.server());
        other.sql("create cast (bytea as zson) without function");
        let bytes = database.sql("select bytes from stored where id = 7");
        for read in READS {
            let read = read.replace('D', "doc");
            other.fails("XX001", &format!("select {read} from (select '{bytes}'::bytea::zson as doc) s"));
        }
        assert_eq!(other.sql("select '{\"a\": 1}'::zson -> 'a'"), "1");
    });
}
