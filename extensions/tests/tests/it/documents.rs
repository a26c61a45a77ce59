//! Documents that compress, next to what they are.

use crate::databases::Database;

/// A query of `n` rows `(id int, doc jsonb)`: service records, alike and each different.
pub fn records(n: usize) -> String {
    records_of("service", n)
}

/// As [`records`], of another shape: a dictionary for one is of little use to another.
pub fn records_of(shape: &str, n: usize) -> String {
    let key = |name: &str| format!("'{name}' || '{}'", if shape == "service" { "" } else { shape });
    let (service, host, status) = (key("service"), key("host"), key("status"));
    format!(
        "select i as id, jsonb_build_object('id', i, {service}, '{shape}-' || i % 37, {host}, format('{shape}-%s.example.org', i % 101),
            {status}, (array['passing', 'warning', 'critical'])[1 + i % 3], 'tags', jsonb_build_array(md5('{shape}'), 'zone-' || i % 5, i % 2 = 0),
            'meta', jsonb_build_object('version', format('%s.%s.%s', i % 4, i % 13, i), 'checksum', md5(i::text), md5('{shape} owner'), null)) as doc
        from generate_series(1, {n}) i"
    )
}

/// Fills `t` with another shape of records, for which a new dictionary is worth its while.
pub fn reshape(sql: impl Fn(&str) -> String, shape: &str, n: usize) {
    sql(&format!("truncate t; insert into t select id, doc, doc from ({}) r", records_of(shape, n)));
}

/// Makes the table `t (id int, was jsonb, doc zson)` with `n` records, of which `doc` is written untrained.
pub fn table(database: &Database, n: usize) {
    database.sql(&format!(
        "create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({}) r",
        records(n)
    ));
}

/// As [`table`], then trains its column and writes it anew, by shapes.
pub fn trained_table(database: &Database, n: usize) {
    table(database, n);
    database.sql("select zson_learn('t', 'doc')");
    database.sql("update t set doc = zson_reencode(doc)");
    // What nobody has set a codec for is stored by its shape.
    let others = "select count(*) from t where zson_info(doc) !~ 'codec = shapes'";
    assert_eq!(database.sql(others), "0", "documents are not stored by their shape");
    assert_eq!(database.sql(DIFFERENT), "0");
}

/// How many documents of `t` are not what they were.
pub const DIFFERENT: &str =
    "select count(*) from t where doc::jsonb is distinct from was or doc::text <> was::text";

/// How many documents of `t` need a dictionary.
pub const NEED_DICTIONARY: &str = "select count(*) from t where cardinality(zson_dictionary_ids(doc)) > 0";
