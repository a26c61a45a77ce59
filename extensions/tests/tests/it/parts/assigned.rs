//! `doc = doc || patch`, which changes a document as it is stored: what is in the table is what jsonb has.

use super::{learn, shaped_table};
use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::DIFFERENT;

/// Patches: `D` is the document, `id` the row's. The first ones move nothing, or by four bytes; the others need the document.
const PATCHES: [&str; 14] = [
    "jsonb_build_object('id', id + 1)",
    "jsonb_build_object('status', case id % 2 when 0 then 'passing' else 'warning' end)",
    "'{\"status\": null}'",
    "'{\"status\": true, \"host\": \"0123\"}'",
    "jsonb_build_object('touched', 12345 + id)",
    "jsonb_build_object('touched', 54321 + id, 'status', 'four')",
    "D",
    "'{}'",
    "jsonb_build_object('id', id * 1000000007::bigint, 'meta', jsonb_build_object('version', id))",
    "jsonb_build_object('tags', D -> 'tags' || '[1]', 'new' || id % 3, id)",
    "'[1]'",
    "jsonb_build_object('host', repeat('é', id % 50))",
    "jsonb_build_object('host', repeat('a long text ', 300), 'id', 7)",
    "jsonb_build_object('id', 0.25 * id)",
];

fn update(database: &Database, patch: &str) {
    let of = |column: &str| patch.replace('D', column);
    // Of an array it makes an array, which is no object any more.
    database.sql(&format!(
        "update t set was = was || {}, doc = doc || {} where jsonb_typeof(was) = 'object' and hashint4(id) % 3 <> 0",
        of("was"),
        of("doc")
    ));
    assert_eq!(database.sql(DIFFERENT), "0", "{patch}");
}

#[test]
fn an_assigned_concatenation_is_that_of_jsonb() {
    on_each_major("assigned concatenations", |database| {
        shaped_table(database, 500);
        for patch in PATCHES.iter().chain(&PATCHES[..8]) {
            if *patch != "'[1]'" {
                update(database, patch);
            }
        }
        update(database, "'[1]'");
        let plan = |sql: &str| database.sql(&format!("explain (verbose, costs off) {sql}"));
        for sql in [
            "update t set doc = doc || jsonb_build_object('id', id)",
            "update t set doc = doc || '{\"id\": 1}'",
            "update t set doc = zson_concat_jsonb(doc, was)",
            "insert into t values (1) on conflict (id) do update set doc = t.doc || excluded.was",
        ] {
            assert!(
                plan(sql).contains("zson_concat_assigned(") || sql.starts_with("insert"),
                "{}",
                plan(sql)
            );
        }
        for sql in [
            "update t set was = doc || was",
            "update t set doc = was || doc",
            "update t set doc = was || was",
        ] {
            assert!(!plan(sql).contains("zson_concat_assigned("), "{}", plan(sql));
        }
        // What is stored of a query is what was written.
        database.sql("create rule r as on delete to t do instead update t set doc = t.doc || '{\"id\": 0}' where t.id = old.id");
        let rule = database.sql("select definition from pg_rules where rulename = 'r'");
        assert!(rule.contains("||") && !rule.contains("assigned"), "{rule}");
    });
}

#[test]
fn assigned_concatenations_take_every_way_into_a_table() {
    on_one_major("ways of assigned concatenations", |database| {
        shaped_table(database, 60);
        database.sql("insert into t values (0, null, null)");
        let both = |sql: &str| {
            database.sql(&format!("{}; {}", sql.replace("D", "was"), sql.replace("D", "doc")));
            assert_eq!(database.sql(DIFFERENT), "0", "{sql}");
        };
        both("update t set D = D || '{\"id\": 5}'");
        both("update t set D = D || null::jsonb where id = 3");
        both("prepare pD as update t set D = D || jsonb_build_object('id', $2::int) where id = $1; execute pD(7, 8); execute pD(8, 9);
            execute pD(7, 8); execute pD(8, 9); execute pD(7, 8); execute pD(8, 19); execute pD(0, 19)");
        both(
            "insert into t (id, D) values (9, '{}') on conflict (id) do update set D = t.D || '{\"id\": 77}'",
        );
        both("create function fD() returns void language plpgsql as $$ begin update t set D = D || '{\"id\": 6}' where id = 10; end $$;
            select fD(), fD()");
        both(
            "create view vD as select * from t where id > 5; update vD set D = D || '{\"id\": 123}' where id < 20",
        );
        both("merge into t using (values (11, '{\"id\": 31}'::jsonb), (12, '{\"id\": 32}')) n (id, patch) on t.id = n.id
            when matched then update set D = t.D || n.patch");
        // A constant that is out of line stays what it is from row to row, whether it is patched or decoded.
        both(
            "create table lD as select jsonb_build_object('id', 1, 'log', string_agg(md5(k::text), '')) as doc from generate_series(1, 2000) k;
            create function oD() returns void language plpgsql as $$
                declare d zson := (select doc::zson from lD); begin
                update t set D = (d || jsonb_build_object('new', id))::zson where id > 0;
                update t set D = (d || jsonb_build_object('id', id))::zson where id > 30; end $$; select oD()",
        );
        // Into a column of another profile, which has no dictionary, and one that has its own.
        database.sql(
            "create table o (id int, was jsonb, doc zson('other')); insert into o select id, was || '{\"id\": 7}', null from t;
            update o set doc = t.doc || '{\"id\": 7}' from t where t.id = o.id",
        );
        let different = DIFFERENT.replace("from t", "from o");
        assert_eq!(database.sql(&different), "0");
        assert_eq!(
            database.sql("select count(*) from o where doc is not null and zson_info(doc) ~ 'shapes'"),
            "0"
        );
        learn(database, "o", "other");
        database.sql("update o set was = was || '{\"id\": 9}', doc = doc || '{\"id\": 9}'");
        assert_eq!(database.sql(&different), "0");
        let profiles = "select count(distinct dictionary) from (select unnest(zson_dictionary_ids(doc)) dictionary from o) s";
        assert_eq!(database.sql(profiles), "1");
    });
}

#[test]
fn a_dictionary_of_this_transaction_is_not_used_for_assigned_concatenations() {
    on_one_major("concatenations beside a new dictionary", |database| {
        shaped_table(database, 300);
        database.sql(
            "begin; select zson_learn('t', 'doc', 'default', true);
            update t set was = was || '{\"id\": 5}', doc = doc || '{\"id\": 5}'; commit",
        );
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn only_what_writes_rows_here_is_planned_so() {
    on_each_major("plans of assigned concatenations", |database| {
        shaped_table(database, 50);
        let is_replaced = |sql: &str| {
            database.sql(&format!("explain (verbose, costs off) {sql}")).contains("zson_concat_assigned")
        };
        // What a group has is looked for in the plan as it was written.
        database.sql(
            "create table g (doc zson, p jsonb);
            insert into g values ('{\"a\": 1}', '{\"b\": 1}'), ('{\"a\": 1, \"b\": 7}', '{\"b\": 1}'), ('{\"a\": 2}', '{\"b\": 1}')",
        );
        let groups = |doc: &str| {
            database.sql(&format!(
                "select j, z, n from (select {doc} || p j, ({doc} || p)::zson z, count(*) n from g group by rollup({doc} || p)) s order by n, j"
            ))
        };
        assert_eq!(groups("doc"), groups("doc::jsonb"));
        assert!(groups("doc").contains("||3"), "{}", groups("doc"));
        for sql in [
            "select (doc || '{\"id\": 1}')::zson from t",
            "update t set doc = jsonb_to_zson(doc || '{\"id\": 1}', -1, nullif(id, 3) > 0)",
        ] {
            assert!(!is_replaced(sql), "{sql}");
        }
        // A function that is inlined into itself is noticed.
        database.sql(
            "set check_function_bodies = off;
            create function own(jsonb) returns zson strict immutable language sql as
                $$ select ('{\"a\": 1}'::zson || own($1 -> 'next'))::zson $$;
            create function many(n int) returns zson immutable language sql as $$ select case when n <= 0 then '{\"z\": 0}'::zson
                else ('{\"a\": 1}'::zson || (many(n - 1) || many(n - 1) || many(n - 1))::zson)::zson end $$",
        );
        database.sql("update t set doc = doc || own(was) where id = 7");
        database.sql("explain update t set doc = doc || many(id) where id = 7");
        assert!(is_replaced("update t set doc = doc || '{\"id\": 1}'"));
    });
}

#[test]
fn who_may_not_call_the_functions_that_a_statement_names_may_not_either_way() {
    on_one_major("rights on concatenations", |database| {
        shaped_table(database, 60);
        let role = "writer_of_concatenations";
        database.sql(&format!("create role {role}; grant select, update on t to {role}"));
        let update =
            format!("set role {role}; update t set doc = doc || jsonb_build_object('id', id); reset role");
        let explain = format!(
            "set role {role}; explain (verbose) update t set doc = doc || jsonb_build_object('id', id)"
        );
        assert!(database.sql(&explain).contains("zson_concat_assigned"));
        // Without the right to what takes its place: as without that.
        database.sql("revoke execute on function zson_concat_assigned from public");
        database.sql(&update);
        assert!(!database.sql(&explain).contains("zson_concat_assigned"));
        database.sql("grant execute on function zson_concat_assigned to public; revoke execute on function zson_concat_jsonb from public");
        database.fails("42501", &update);
        database.sql(&format!(
            "grant execute on function zson_concat_jsonb to public; drop owned by {role}; drop role {role}"
        ));
    });
}

#[test]
fn the_number_of_a_profile_is_sent_to_no_other_server() {
    on_one_major("concatenations in foreign tables", |database| {
        database.sql(
            "create extension postgres_fdw; create server other foreign data wrapper postgres_fdw options (extensions 'zson');
            create user mapping for public server other; create foreign table f (id int, doc zson('local')) server other",
        );
        let plan = database.sql("explain (verbose, costs off) update f set doc = doc || '{\"id\": 1}'");
        assert!(plan.contains("Remote SQL") && !plan.contains("zson_concat_assigned"), "{plan}");
    });
}
