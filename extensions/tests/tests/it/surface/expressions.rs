//! The same expression on a jsonb and on a zson: the same value, with zson where a column's type shows.

use super::{outcomes, pair};
use crate::databases::{Database, on_each_major};

/// `D` is a column with the document of row 5, `J` a jsonb column with the same.
const EXPRESSIONS: &[&str] = &[
    // What literals and other strings become beside a document.
    r#"D @> '{"a":5}'"#,
    r#"'{"a":5}' <@ D"#,
    r#"D @> '{"a":5}'::text"#,
    r#"D || '{"z":1}'"#,
    r#"'{"z":1}' || D"#,
    "D || '[1]'",
    "D || null",
    "D || 'abc'::text",
    "D - 'a'",
    "D - 's'::varchar",
    "D - 1",
    "D - null",
    "D - '{a,b}'::text[]",
    "D = '{}'",
    "D -> 'a'",
    "D -> 'a'::varchar",
    "D ->> 's'::char(1)",
    "D -> 0",
    "D ->> 0",
    "D ->> 'a'",
    "D -> null",
    "D -> 'b' -> 'd' ->> 0",
    "D #> '{b,d}'",
    "D #>> '{b,d,1}'",
    "D #- '{b,d}'",
    "D ? 'a'",
    "D ?| '{a,q}'",
    "D ?& array['a', 'q']",
    "D @? '$.a'",
    "D @@ '$.a == 5'",
    "D @@ '$.s + 1 == 5'",
    // What hands back its argument.
    "D #> '{}'",
    "D || '{}'",
    "'{}' || D",
    "D - 'nope'",
    "D - '{}'::text[]",
    "D #- '{}'",
    "D #- '{nope}'",
    // Beside a jsonb.
    "D = J",
    "J = D",
    "D @> J",
    "J @> D",
    "D <@ J",
    "J <@ D",
    "D || J",
    "J || D",
    "D < J",
    "J >= D",
    "D in ('{}', J)",
    "D in ('{}', '[]')",
    "D = any (array[J])",
    r#"D = any ('{"{}"}')"#,
    "coalesce(D, J)",
    "coalesce(D, '{}')",
    "case when true then D else J end",
    "greatest(D, '[]')",
    "greatest(D, J)",
    "nullif(D, '{}')",
    "D is distinct from J",
    "row(D) = row(J)",
    "array[D, J]",
    "array[D]::jsonb[]",
    "width_bucket(D, array[J])",
    // As a part of other documents.
    "to_jsonb(D)",
    "to_json(D)",
    "jsonb_build_object('k', D)",
    "json_build_object('k', D)",
    "jsonb_build_object(D, 1)",
    "jsonb_build_array(D, 1)",
    "to_jsonb(row(D))",
    "row_to_json(row(D))",
    "to_jsonb(array[D])",
    "array_to_json(array[D, D])",
    "jsonb_agg(D)",
    "json_agg(D)",
    "jsonb_object_agg('k', D)",
    "json_object_agg('k', D)",
    "jsonb_object_agg(D, 1)",
    "array_agg(D)",
    // Functions, through the cast.
    "jsonb_set(D, '{a}', '7')",
    "jsonb_set(D, '{a}', D)",
    "jsonb_set_lax(D, '{a}', null)",
    "jsonb_insert(D, '{q}', '1')",
    "jsonb_pretty(D)",
    "jsonb_typeof(D)",
    "jsonb_array_length(D)",
    "jsonb_object_keys(D)",
    "jsonb_each(D)",
    "jsonb_each_text(D)",
    "jsonb_extract_path(D, 'b', 'd')",
    "jsonb_extract_path_text(D, 'b', 'd')",
    "jsonb_path_query(D, '$.**')",
    r#"jsonb_path_query(D, '$.a ? (@ > $x)', '{"x":1}')"#,
    "jsonb_path_query_array(D, '$.**')",
    "jsonb_strip_nulls(D)",
    "to_tsvector('simple', D)",
    "to_tsvector(D)",
    r#"jsonb_to_tsvector('simple', D, '"all"')"#,
    "ts_headline(D, 'x5')",
    "jsonb_populate_record(null::pg_class, D)",
    "int4(D -> 'a')",
    "count(distinct D)",
    "min(D)",
    "D + 1",
    "lower(D)",
    "D like '%'",
    "(D).a",
    "json_typeof(D)",
    // Parts by subscript.
    "D['b']['d'][0]",
    "D['b']",
    "D['b':]",
    "D['q']['z']",
    "D['b'][null]",
    "D[0]",
    "D[1.5]",
    "(D['a'])::int",
    // Text.
    "D::text",
    "D::varchar(10)",
    "concat(D, 1)",
    "format('%s', D)",
    "quote_literal(D)",
    "xmlelement(name a, D)",
];

#[test]
fn expressions_give_what_they_give_with_jsonb() {
    on_each_major("expressions", |database| {
        pair(database);
        outcomes(database);
        let value = |expression: &str, column: &str| {
            let expression = replaced(expression, column);
            database.sql(&format!(
                "select outcome($query$select {expression} from z, j where z.id = 5 and j.id = 5$query$)"
            ))
        };
        for expression in EXPRESSIONS {
            let (zson, jsonb) = (value(expression, "z.doc"), value(expression, "j.doc"));
            assert_eq!(zson.replace("zson", "jsonb"), jsonb, "{expression}");
        }
    });
}

/// Names of columns in place of `D` and `J`.
fn replaced(expression: &str, column: &str) -> String {
    let mut out = String::new();
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    for (at, c) in expression.char_indices() {
        let alone =
            !letter(expression[..at].chars().next_back()) && !letter(expression[at + 1..].chars().next());
        match c {
            'D' if alone => out.push_str(column),
            'J' if alone => out.push_str("j.doc"),
            _ => out.push(c),
        }
    }
    out
}

#[test]
fn a_result_that_is_the_argument_itself_outlives_its_row() {
    on_each_major("results that are their argument", |database| {
        pair(database);
        // Rows that are held while others are read.
        let kept = "select bool_and(before = was) from (
            select lag(doc #> '{}', 7) over (order by id) before, lag(doc::text::jsonb, 7) over (order by id) was
            from z where id <= 2000) s";
        assert_eq!(database.sql(kept), "t");
        // More of them in one row than views are kept for, and too large for the memo.
        let many = "create table large (i int, doc zson, was jsonb);
            insert into large select i, doc, doc from generate_series(1, 6) i,
                lateral (select jsonb_agg(md5((i * 10000 + k)::text)) doc from generate_series(1, 9000) k) d;
            select a = was1, b = was2, c = was3, d = was4, e = was5, f = was6 from (
                select a.doc #> '{}' a, b.doc || '[]' b, '[]' || c.doc c, d.doc - 'nope' d, e.doc #- '{-99999}' e, f.doc - '{}'::text[] f,
                    a.was was1, b.was was2, c.was was3, d.was was4, e.was was5, f.was was6
                from large a, large b, large c, large d, large e, large f
                where (a.i, b.i, c.i, d.i, e.i, f.i) = (1, 2, 3, 4, 5, 6) offset 0) s";
        assert_eq!(database.sql(many), "t|t|t|t|t|t");
    });
}

#[test]
fn an_error_leaves_nothing_behind_in_an_expression() {
    on_each_major("errors inside of expressions", |database| {
        // Constant arguments are put into a call once, and the call is used again after an error that was caught.
        let said = database.sql(
            "create table said (line text);
            do $$
            declare k int; ok boolean; z zson;
            begin
                for i in 1..6 loop
                    begin
                        k := (('{\"a\": ' || i || '}')::zson -> 'a')::int;
                        ok := '{\"a\": 1, \"b\": 2}'::zson @> '{\"a\": 1}'::zson;
                        k := ('{\"a\": [1, 2]}'::zson - case when i % 2 = 0 then 1 end)::int;
                        z := '{\"a\": [1, 2]}'::zson - 'b';
                        z['a'][i] := to_jsonb(i / (i % 3));
                        insert into said values (z::text);
                    exception when others then
                        insert into said values (ok || ' ' || sqlerrm);
                    end;
                end loop;
            end $$;
            select * from said",
        );
        assert_eq!(
            said.lines().collect::<Vec<_>>(),
            [
                "{\"a\": [1, 1]}",
                "true cannot delete from object using integer index",
                "true division by zero",
                "true cannot delete from object using integer index",
                "{\"a\": [1, 2, null, null, null, 2]}",
                "true cannot delete from object using integer index",
            ]
        );
    });
}

/// In a domain, in an array, in a composite type, as arguments of functions and parameters of statements.
#[test]
fn documents_inside_of_other_types_stay_documents() {
    on_each_major("documents in other types", |database: &Database| {
        let got = database.sql(
            r#"create domain d as zson check (value ? 'a');
            create type c as (n int, doc zson);
            create table t (d d, a zson[], c c);
            insert into t values ('{"a":1}', array['{"b":1}', '[1]']::zson[], row(1, '{"x":{}}'));
            update t set d['b'] = '2', a[1] = '7', c.doc['x']['y'] = '[]';
            select d -> 'a', d['b'], d || '{"q":1}', d = '{"a":1,"b":2}', a[2] -> 0, (a[2])[0], (c).doc from t;
            select to_jsonb(t), row_to_json(t) from t;
            create function f(doc zson) returns text language sql immutable as $$ select doc ->> 'b' $$;
            create index on t (f(d));
            select f(d), f('{"b":3}') from t;
            prepare p (zson) as select $1 -> 'a', $1 || '{"b":1}';
            execute p('{"a":1}');
            execute p('{"a":1}'::jsonb);
            prepare q as select count(*) from t where d @> $1;
            execute q('{"a":1}');
            select parameter_types from pg_prepared_statements where name = 'q'"#,
        );
        assert_eq!(
            got.lines().collect::<Vec<_>>(),
            [
                r#"1|2|{"a": 1, "b": 2, "q": 1}|t|1|1|{"x": {"y": []}}"#,
                concat!(
                    r#"{"a": [7, [1]], "c": {"n": 1, "doc": {"x": {"y": []}}}, "d": {"a": 1, "b": 2}}|"#,
                    r#"{"d":{"a": 1, "b": 2},"a":[7,[1]],"c":{"n":1,"doc":{"x": {"y": []}}}}"#
                ),
                "2|3",
                r#"1|{"a": 1, "b": 1}"#,
                r#"1|{"a": 1, "b": 1}"#,
                "1",
                "{zson}",
            ]
        );
        database.fails("23514", "update t set d = d - 'a'");
    });
}
