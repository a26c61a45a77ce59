//! Documents that compress, next to what they are.

use crate::databases::Database;

/// A query of `n` rows `(id int, doc jsonb)`: service records, alike and each different.
pub fn records(n: usize) -> String {
    format!(
        "select i as id, jsonb_build_object('id', i, 'service', 'service-' || i % 37, 'host', format('node-%s.example.org', i % 101),
            'status', (array['passing', 'warning', 'critical'])[1 + i % 3], 'tags', jsonb_build_array('primary', 'zone-' || i % 5, i % 2 = 0),
            'meta', jsonb_build_object('version', format('%s.%s.%s', i % 4, i % 13, i), 'checksum', md5(i::text), 'owner', null)) as doc
        from generate_series(1, {n}) i"
    )
}

/// Makes the table `t (id int, was jsonb, doc zson)` with `n` records, of which `doc` is written untrained.
pub fn table(database: &Database, n: usize) {
    database.sql(&format!(
        "create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({}) r",
        records(n)
    ));
}

/// As [`table`], then trains its column and writes it anew.
pub fn trained_table(database: &Database, n: usize) {
    table(database, n);
    database.sql("select zson_learn('t', 'doc')");
    database.sql("call zson_reencode('t', 'doc')");
    assert_ne!(database.sql(NEED_DICTIONARY), "0", "no document is written with the dictionary");
    assert_eq!(database.sql(DIFFERENT), "0");
}

/// How many documents of `t` are not what they were.
pub const DIFFERENT: &str =
    "select count(*) from t where doc::jsonb is distinct from was or doc::text <> was::text";

/// How many documents of `t` need a dictionary.
pub const NEED_DICTIONARY: &str = "select count(*) from t where cardinality(zson_dictionary_ids(doc)) > 0";
