//! Assigning to parts of documents: the same statements on a jsonb column and a zson column.

use crate::databases::on_each_major;

const STATEMENTS: &[&str] = &[
    "insert into T values (1, '{}'), (2, null), (3, '[1,2]'), (4, '\"s\"')",
    "update T set doc['a'] = '1' where id < 3",
    "update T set doc['a']['b'] = '1' where id = 1",
    "update T set doc['q']['b'] = '{\"x\":[1]}' where id < 3",
    "update T set doc['q']['b']['x'][3] = '\"y\"' where id = 1",
    "update T set doc[-1] = '9' where id = 3",
    "update T set doc[-9] = '9' where id = 3",
    "update T set doc[5] = doc[0] where id = 3",
    "update T set doc['a'] = '1' where id = 4",
    "update T set doc['n'] = null where id = 1",
    "update T set doc[null] = '1' where id = 1",
    "update T set doc['a'] = doc where id = 1",
    "update T set doc['m'] = to_jsonb(id), doc['o'] = '[]', id = 5 where id = 1",
    "insert into T (id, doc['a'], doc['b'][2]) values (7, '1', '2')",
    "update T set doc['a':'b'] = '3'",
    "update T set doc[0.5] = '3'",
    "update T set doc['z'] = 5::int",
    "update T set doc['z'] = 'abc'",
    "update T set doc = jsonb_set(doc, '{new}', '1') where id = 7",
    "update T set doc = doc || '{\"cat\":1}' where id = 7",
    "update T set doc = doc - 'cat' where id = 7",
    "update T set doc = doc['b'] where id = 7",
    "update T set doc = doc -> 0 where id = 7",
    "update T set doc['k'] = '1' where id = 7",
    "update T set doc = '{\"a\":1}'::json where id = 7",
    "update T set doc = '{\"a\":1}'::jsonb where id = 7",
    "update T set doc = '{\"a\":1}'::text where id = 7",
    "insert into T select 10 + id, doc from z order by id",
    "delete from T where doc ? 'a'",
];

#[test]
fn assigning_to_parts_does_what_it_does_to_a_jsonb() {
    on_each_major("assignment to subscripts", |database| {
        database.sql(
            "create table z (id int, doc zson);
            create table j (id int, doc jsonb);
            create function after(statement text, tab text) returns text language plpgsql as $$
            declare error text; rows text;
            begin
                begin
                    execute replace(statement, 'T', tab);
                exception when others then
                    error := sqlerrm;
                end;
                execute format('select string_agg(t::text, '';'' order by id) from %I t', tab) into rows;
                return concat(error, ' ', rows);
            end $$",
        );
        for statement in STATEMENTS {
            let after = |table: &str| {
                database.sql(&format!("select after($statement${statement}$statement$, '{table}')"))
            };
            // What reads z must find the same in both.
            let (jsonb, zson) = (after("j"), after("z"));
            assert_eq!(zson.replace("zson", "jsonb"), jsonb, "{statement}");
        }
    });
}

#[test]
fn assignment_writes_as_the_column_does() {
    on_each_major("assignment and typmod", |database| {
        database.sql(
            "create table t (doc zson('plain'));
            select zson_set_codec('plain', 'none');
            insert into t values (jsonb_build_object('a', repeat('x', 500)));
            update t set doc['b'] = '1'",
        );
        let size = "select pg_column_size(doc) > 500, doc['b'], doc ->> 'a' = repeat('x', 500) from t";
        assert_eq!(database.sql(size), "t|1|t", "compressed, though its column is not");
    });
}
