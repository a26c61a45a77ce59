//! Parts of documents that are stored by their shapes: each operator gives what it gives with jsonb, byte for byte.
//!
//! Documents are in tables `(id int, was jsonb, doc zson)`. Every statement compares the same expression of both columns, on
//! all rows and all arguments at once.

mod assigned;
mod corpora;
mod damaged;
mod generated;
mod kept;
mod long;
mod making;
mod sessions;
mod small;

use crate::databases::Database;
use crate::documents::records;

/// `D` is a document; `k`, `i`, `path`, `keys` and `j` are the columns of [`ARGUMENTS`].
const OF_TEXT: [&str; 7] =
    ["D -> k", "D ->> k", "D ? k", "D[k]", "D[k][k]", "D #> array[k, k]", "D #>> array[k, '0', k]"];
const OF_INTEGER: [&str; 7] =
    ["D -> i", "D ->> i", "D[i]", "D[i][i]", "D[i]['a']", "D -> i ->> 0", "D -> 'a' -> i"];
const OF_PATH: [&str; 2] = ["D #> path", "D #>> path"];
const OF_KEYS: [&str; 2] = ["D ?| keys", "D ?& keys"];
const OF_JSON: [&str; 8] = [
    "D @> j",
    "j <@ D",
    "D @> j::zson",
    "j::zson <@ D",
    "D <@ j",
    "j @> D",
    "j::zson @> D",
    "D -> 'meta' @> j",
];

/// Arguments that jsonb treats in ways of its own, beside those that a test makes from its documents.
const ARGUMENTS: &str = r#"
    create table text_arguments as select * from unnest(array['', 'a', 'A', 'id', ' 1', '+1', '-1', '0', '01', '1x', 'null',
        'é', 'k"q', '99999999999', null]) k;
    create table integer_arguments as select * from unnest(array[0, 1, 2, 3, 31, 32, 33, 64, 199, 200, 2147483647,
        -1, -2, -3, -32, -33, -200, -2147483648, null]) i;
    create table path_arguments (path text[]);
    insert into path_arguments values ('{}'), (null), ('{null}'), ('{a,null}'), ('{null,a}'), ('{{a,b},{c,d}}'), ('{""}'), ('{a,""}');
    insert into path_arguments select array[a] from unnest(array['a', ' 1', '+1', '-1', '-0', '01', '1x', '1 ', e'\t1', e'\u00a01', '- 1',
        '+-1', '0x1', '1e0', '99999999999', '2147483647', '2147483648', '-2147483648', '-2147483649', '00000000000000000001']) a;
    insert into path_arguments select array[a, b] from unnest(array['tags', 'a', '0', '-1']) a, unnest(array[' 1', '+1', '-1', '01', '1x', '',
        '99999999999', '-99999999999', 'a']) b;
    create table key_arguments (keys text[]);
    insert into key_arguments values (null), ('{}'), ('{null}'), ('{null,a}'), ('{a,b}'), ('{b,a,null}'), ('{""}'), ('{{id,a},{host,x}}'),
        ('{id,host,status}'), ('{id,id}'), ('{nope}');
    create table json_arguments as select * from unnest(array['{}', '[]', 'null', '1', '1.0', '"a"', '[1]', '["a"]', '{"a": {}}',
        '{"a": []}', '{"a": null}', '{"id": 7, "nope": 1}', '{"id": 7.00}', '{"tags": []}', '{"tags": ["zone-1"]}', '{"tags": [[]]}',
        '{"meta": {}}', '{"meta": []}', '{"meta": {"nope": 1}}', '{"empty": {}, "none": []}', '{"": ""}', null]::jsonb[]) j;"#;

/// Makes the tables of arguments, and adds those that are in the documents of `table`: paths, keys and texts.
fn arguments(database: &Database, table: &str) {
    database.sql(ARGUMENTS);
    database.sql(&format!(
        "create cast (jsonb as bytea) without function;
        create table {table}_paths as
            with recursive parts (id, path, value) as (
                select id, '{{}}'::text[], was from {table}
                union all
                select id, path || step, part from parts, lateral (
                    select key, value from jsonb_each(case jsonb_typeof(value) when 'object' then value end)
                    union all
                    select (at - 1)::text, element from jsonb_array_elements(case jsonb_typeof(value) when 'array' then value end)
                        with ordinality elements (element, at)
                ) s (step, part)
            )
            select id, path from parts order by md5(id || path::text) limit 8000;
        insert into text_arguments
            select k from (select distinct path[1] k from {table}_paths where path <> '{{}}') s order by md5(k) limit 80;
        insert into text_arguments
            select distinct on (md5(k)) k from {table}, lateral (select was #>> '{{0}}' k union all select was #>> '{{}}') s
            where k is not null and length(k) < 1000 order by md5(k) limit 30;
        insert into key_arguments select array[a.k, b.k] from text_arguments a, text_arguments b
            where a.k < b.k order by md5(a.k || b.k) limit 20;
        insert into json_arguments
            select j from {table} join {table}_paths using (id), lateral (select coalesce(path[1], ''), coalesce(path[2], '')) p (a, b), lateral (values
                (jsonb_build_object(a, was -> a)),
                (jsonb_build_object(a, was -> a, b, was -> b)),
                (jsonb_build_object(a, jsonb_build_object(b, was -> a -> b))),
                (jsonb_build_object(a, jsonb_build_array(was -> a -> 0))),
                (jsonb_build_array(was -> 0))) j (j)
            where cardinality(path) = 2 and jsonb_typeof(was) = 'object' or path = '{{0}}' and jsonb_typeof(was) = 'array'
            order by md5(j::text) limit 60;
        insert into json_arguments select was from {table} order by md5(id::text) limit 10"
    ));
}

/// Compares all that reads a part of the documents of `table`, with all its own paths and the general arguments.
#[track_caller]
fn compare(database: &Database, table: &str) {
    for (expressions, arguments) in [
        (&OF_TEXT[..], "text_arguments"),
        (&OF_INTEGER, "integer_arguments"),
        (&OF_PATH, "path_arguments"),
        (&OF_KEYS, "key_arguments"),
        (&OF_JSON, "json_arguments"),
    ] {
        for expression in expressions {
            same(database, expression, &format!("{table} d, {arguments} a"));
        }
    }
    let own = format!("{table} d join {table}_paths a using (id)");
    for expression in ["D #> path", "D #>> path", "D -> path[1]", "D -> path[1] #>> path[2:]"] {
        same(database, expression, &own);
    }
    let deepest = format!("select least(max(cardinality(path)), 5) from {table}_paths");
    for depth in 1..=database.sql(&deepest).parse::<usize>().unwrap() {
        let subscripts: String = (1..=depth).map(|at| format!("[path[{at}]]")).collect();
        same(database, &format!("D{subscripts}"), &format!("{own} where cardinality(path) = {depth}"));
    }
    // Where a path leads from an array by a number, an int4 is another operator.
    let number = "case when path[1] ~ '^[0-9]{1,9}$' then path[1]::int end";
    same(database, &format!("D -> ({number})"), &own);
    same(database, &format!("D[{number}]"), &own);
}

/// Compares an expression of `doc` with that of `was`: its type, whether it is null, its bytes.
#[track_caller]
fn same(database: &Database, expression: &str, rows: &str) {
    let of = |column: &str| expression.replace('D', column);
    let kind = database.sql(&format!("select pg_typeof({}) from {rows} limit 1", of("was")));
    let bytes = if kind == "jsonb" { "::bytea" } else { "" };
    let different = format!(
        "select count(*), count(z), count(*) filter (where pg_typeof(z) <> pg_typeof(w) or z{bytes} is distinct from w{bytes}),
            (array_agg(left(concat(id, ' ', row(a), ': ', coalesce(z::text, 'NULL'), ', not ', coalesce(w::text, 'NULL')), 300))
                filter (where pg_typeof(z) <> pg_typeof(w) or z{bytes} is distinct from w{bytes}))[1:5]
        from (select id, a, {} as z, {} as w from {rows} offset 0) s",
        of("doc"),
        of("was")
    );
    let found = database.sql(&different);
    let count = |at: usize| found.split('|').nth(at).unwrap();
    assert_ne!(count(0), "0", "{expression} on {rows}: no rows");
    assert_eq!(count(2), "0", "{expression} on {rows}\n{found}");
}

/// Has the profile of column `doc` of `table` learn shapes, and writes the column anew.
#[track_caller]
fn learn(database: &Database, table: &str, profile: &str) {
    let said = database.sql(&format!(
        "select zson_set_codec('{profile}', 'shapes'); select zson_learn('{table}', 'doc'); select zson_set_codec('{profile}', null);
        call zson_reencode('{table}', 'doc')"
    ));
    let newest = format!("select kind, codec from zson_dictionaries where profile = '{profile}' and current");
    assert_eq!(database.sql(&newest), "shapes|shapes:3", "{said}");
}

/// How many documents of `table` are stored by this codec.
fn stored_by(database: &Database, table: &str, codec: &str) -> usize {
    let count = format!("select count(*) from {table} where zson_info(doc) ~ 'codec = {codec}\\M'");
    database.sql(&count).parse().unwrap()
}

/// Makes `t` with `n` records, and has it learn shapes.
fn shaped_table(database: &Database, n: usize) {
    database.sql(&format!(
        "create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({}) r",
        records(n)
    ));
    learn(database, "t", "default");
    assert_eq!(stored_by(database, "t", "shapes"), n);
}

/// Rows `(id, doc)` of documents that take some kilobytes by their shape.
fn large(n: usize) -> String {
    format!(
        "select i as id, jsonb_build_object('id', i, 'host', 'host-' || i, 'status', 'passing', 'tags', jsonb_build_array('a', i, 'b'),
            'meta', jsonb_build_object('version', i * 1.5, 'checksum', md5(i::text)), 'z', 'last', 'log', log) as doc
        from generate_series(1, {n}) i, lateral (
            select jsonb_agg(jsonb_build_object('n', k * 37 % 1000, 'ok', k % 3 = 0, 'hash', substr(md5((i * 1000 + k)::text), 1, 12),
                'at', to_char(timestamp '2026-01-01' + (i * 7919 + k * 104729) * interval '1 s', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'))) as log
            from generate_series(1, 20 + i * 80) k) s"
    )
}
