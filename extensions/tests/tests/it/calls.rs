//! Every function of the extension that SQL can call, called with everything SQL can give it.
//!
//! What functions there are, and what they take, is read from the catalog, so a new one is called too. A call may
//! fail; the server may not.

use crate::databases::{Database, on_each_major};
use crate::documents::trained_table;

/// At most so many calls of one function: where there are more, every n-th.
const CALLS_MAX: usize = 160;

/// Values of a type, NULL first.
// tidy: long, a table of values for each type
fn values(of: &str) -> Vec<&'static str> {
    let values: &[&str] = match of {
        "text" => &[
            "null",
            "'few'",
            "'doc'",
            "''",
            "'default'",
            "'lz4'",
            "'a'",
            "'zstd:99'",
            "repeat('\"x', 100000)",
            "E'\\u00e4\\n'",
        ],
        "text[]" => &[
            "null",
            "'{}'",
            "'{null}'",
            "'{null,null}'",
            "'{{null,doc}}'",
            "'{{few,doc}}'",
            "'{few,doc}'",
            "'{{{few,doc}}}'",
            "'[5:5][7:8]={{few,doc}}'",
            "'{{a,b},{c,null}}'",
            "array_fill('a'::text, array[3,2,2])",
            "array[[repeat('x', 100000), 'doc']]",
            "'{a,b}'",
        ],
        "cstring" => &["null", "''", "'{}'", "'[1, {\"a\": null}]'", "'[1,'", "'0g'", "'00ff'", "'0'"],
        "cstring[]" => &[
            "null",
            "'{}'",
            "'{null}'",
            "'{null,null}'",
            "'{events}'",
            "'{a,b}'",
            "'{{a},{b}}'",
            "'{{{null}}}'",
            "'{\"\"}'",
            "'[-3:-3]={events}'",
            "'{#7}'",
            "array_fill('a'::cstring, array[2,2,2])",
        ],
        "integer" => &["null", "0", "-1", "1", "2147483647", "-2147483648", "10000"],
        "bigint" => &["null", "0", "-1", "9223372036854775807", "-9223372036854775808"],
        "smallint" => &["null", "0", "7", "17", "-32768", "32767"],
        "oid" => &["null", "0", "4294967295", "'zson'::regtype"],
        "boolean" => &["null", "true", "false"],
        "zson" => &[
            "null",
            "'{\"a\": 1, \"b\": [null, {\"c\": \"d\"}]}'",
            "'[]'",
            "'\"text\"'",
            "'-1e1000'",
            "'[[[[]]], {}, null]'",
            "(select doc from t where id = 7)",
            "(select jsonb_agg(was) from t)::zson",
        ],
        "jsonb" | "json" => &[
            "null",
            "'{}'",
            "'{\"a\": 1}'",
            "'[1, \"a\", null]'",
            "'\"a\"'",
            "'1e1000'",
            "(select to_json(repeat('x', 100000)))",
        ],
        "jsonpath" => &["null", "'$'", "'$.a[*] ? (@ > 1)'", "'strict $.x'", "'$.**.c == \"d\"'"],
        "internal" => &["null"],
        "zson_dictionary_bytes" => &["null", "''", "'00'", "(select content from zson_dictionary limit 1)"],
        "anyelement" => &[
            "null::int",
            "null::zson",
            "1",
            "'a'::text",
            "(select doc from t where id = 7)",
            "array[null, (select doc from t where id = 7)]",
            "array[[null::zson], [null]]",
            "'{}'::zson[]",
            "'[2:3][5:5]={{null},{1}}'::zson[]",
            "(select t from t where id = 7)",
            "row(1, null, (select array_agg(doc) from t))",
            "row()",
            "array[row(null::zson)]",
            "'(1,)'::int4range",
            "'{}'::int4multirange",
            "'{1}'::oidvector",
            "null::documents",
            "'{\"a\": 1}'::documents",
        ],
        other => panic!("no values of type {other}: add some"),
    };
    values.to_vec()
}

/// Calls of one function: all combinations of the values of its arguments, or as many as may be.
fn calls(line: &str) -> Vec<String> {
    let (kind, rest) = line.split_once('|').unwrap();
    let (name, types) = rest.split_once('|').unwrap();
    let pools: Vec<Vec<&str>> = types.split(',').filter(|of| !of.is_empty()).map(values).collect();
    let all: usize = pools.iter().map(Vec::len).product();
    // Odd, and so every value of each argument comes up.
    let step = all.div_ceil(CALLS_MAX) | 1;
    let call = |number: usize| {
        let mut rest = number;
        let arguments: Vec<String> = pools
            .iter()
            .zip(types.split(','))
            .map(|(pool, of)| {
                let value = pool[rest % pool.len()];
                rest /= pool.len();
                if of == "anyelement" { format!("({value})") } else { format!("({value})::{of}") }
            })
            .collect();
        let list = arguments.join(", ");
        if kind == "p" { format!("call {name}({list});\n") } else { format!("select {name}({list});\n") }
    };
    (0..all).step_by(step).map(call).collect()
}

/// Has a psql run statements that may fail; it has to come to the end of them.
#[track_caller]
fn survives(database: &Database, statements: &str) {
    let script = format!(
        "\\set ON_ERROR_STOP 0\nset client_min_messages = error; set statement_timeout = '20s';\n{statements}\n\\echo alive\n"
    );
    let printed = database.psql().sql(&script);
    if !printed.as_ref().is_ok_and(|printed| printed.ends_with("alive")) {
        let log = database.cluster.log().unwrap();
        let crashes: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("terminated by") || line.contains("was running"))
            .collect();
        panic!("the server process ended: {}", crashes.join("\n"));
    }
}

#[test]
fn no_call_of_any_function_ends_the_server() {
    on_each_major("calls with anything", |database| {
        trained_table(database, 300);
        database.sql(
            "create table few as select id, doc from t where id < 4; create domain documents as zson check (value is not null)",
        );
        let functions = database.sql(
            "select p.prokind, p.oid::regproc, array_to_string(array(select format_type(a, null) from unnest(p.proargtypes) with ordinality u(a, n) order by n), ',')
            from pg_proc p join pg_depend d on d.objid = p.oid and d.classid = 'pg_proc'::regclass and d.deptype = 'e'
            join pg_extension e on e.oid = d.refobjid and extname = 'zson' where p.prorettype <> 'trigger'::regtype order by 2, p.oid",
        );
        assert!(functions.lines().count() > 80, "{functions}");
        let statements: String = functions.lines().flat_map(calls).collect();
        assert!(statements.contains("zson_typmod_in(('{null}')::cstring[])"));
        survives(database, &statements);
    });
}

#[test]
fn no_typmod_ends_the_server() {
    on_each_major("typmods of any kind", |database| {
        trained_table(database, 300);
        let mut statements = String::new();
        for typmod in ["null", "''", "'a','b'", "1", "-1", "events", "'#0'", "'Ä'", "2147483648"] {
            statements.push_str(&format!(
                "select '{{}}'::zson({typmod}); create temp table x (d zson({typmod}));\n"
            ));
        }
        // What no table gets by SQL, and damaged catalogs have.
        for typmod in ["2147483647", "-2147483648", "-2", "77"] {
            statements.push_str(&format!(
                "select format_type('zson'::regtype, {typmod});
                create table wrong (doc zson, many zson[]); update pg_attribute set atttypmod = {typmod} where attrelid = 'wrong'::regclass and attnum > 0;
                insert into wrong select doc, array[doc, null] from t limit 3; update wrong set doc['a'] = '1', many[1]['b'] = '2';
                select doc->'a', doc['a'], many[1]->'b', doc::text from wrong; select zson_learn('wrong', 'doc'); call zson_reencode('wrong', 'doc'); drop table wrong;\n"
            ));
        }
        survives(database, &statements);
        assert_eq!(database.sql(crate::documents::DIFFERENT), "0");
    });
}
