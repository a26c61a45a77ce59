//! Sessions: prepared statements, loops, cursors, parallel queries, and dictionaries that change while a query runs.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{learn, shaped_table, stored_by};
use crate::databases::{on_each_major, on_one_major};
use crate::documents::{DIFFERENT, records, records_of, reshape};
use crate::session::Session;

/// Rows of `t` of which a part is not what it is of the jsonb.
const WRONG: &str = "doc ->> 'id' is distinct from was ->> 'id' or doc -> 'tags' is distinct from was -> 'tags'
    or doc #>> '{meta,checksum}' is distinct from was #>> '{meta,checksum}' or doc['meta']['version'] is distinct from was['meta']['version']
    or (doc ? 'service') is distinct from (was ? 'service')";

#[test]
fn prepared_statements_loops_and_cursors_read_parts() {
    on_each_major("parts in prepared statements", |database| {
        shaped_table(database, 600);
        let mut session = Session::new(database.psql());
        session.sql(
            "set plan_cache_mode = force_generic_plan;
            prepare by_key (text) as select count(*), count(doc ->> $1), count(*) filter (where (doc -> $1)::text is distinct from (was -> $1)::text) from t;
            prepare by_path (text[]) as select count(*) from t where doc #>> $1 is distinct from was #>> $1;
            prepare by_subscript (text, int) as select count(*) from t where doc[$1][$2] is distinct from was[$1][$2];
            prepare any_of (text[]) as select count(*) from t where (doc ?| $1) is distinct from (was ?| $1)",
        );
        for _ in 0..3 {
            assert_eq!(session.sql("execute by_key('host'); execute by_key('nope')"), "600|600|0\n600|0|0");
            assert_eq!(session.sql("execute by_path('{tags,1}'); execute by_path('{meta,version}')"), "0\n0");
            assert_eq!(
                session.sql("execute by_subscript('tags', -1); execute by_subscript('meta', 0)"),
                "0\n0"
            );
            assert_eq!(session.sql("execute any_of('{nope,id}'); execute any_of('{}')"), "0\n0");
            // The statements stay, and the documents are of another dictionary.
            database.sql("select zson_learn('t', 'doc', 'default', true); call zson_reencode('t', 'doc')");
        }
        let looped = "do $$
            declare d record; n int := 0; z zson; j jsonb;
            begin
                for d in select * from t order by id loop
                    z := d.doc; j := d.was;
                    for k in 0..3 loop
                        assert (z -> 'tags' -> k) is not distinct from (j -> 'tags' -> k);
                        assert z['tags'][k] is not distinct from j['tags'][k];
                    end loop;
                    assert z ->> 'host' = j ->> 'host' and z #> '{meta}' = j -> 'meta' and z ? 'id';
                    begin
                        n := n + 1 / (d.id % 5);
                    exception when division_by_zero then
                        assert z ->> 'status' = j ->> 'status';
                    end;
                    z['added'] := to_jsonb(d.id);
                    assert (z ->> 'added')::int = d.id and z ->> 'host' = j ->> 'host';
                end loop;
            end $$";
        session.sql(looped);
        session.sql(
            "begin; declare c scroll cursor for select doc ->> 'id', doc -> 'tags' -> 0 from t order by id",
        );
        assert_eq!(session.sql("fetch 1 from c").split('|').next(), Some("1"));
        database.sql("select zson_learn('t', 'doc', 'default', true)");
        assert_eq!(session.sql("fetch last from c").split('|').next(), Some("600"));
        assert_eq!(session.sql("fetch prior from c").split('|').next(), Some("599"));
        session.sql("commit");
    });
}

#[test]
fn workers_of_a_parallel_query_read_parts() {
    on_each_major("parts in parallel", |database| {
        shaped_table(database, 3000);
        let parallel =
            "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;
            set max_parallel_workers_per_gather = 2; set parallel_leader_participation = off; ";
        let wrong = format!("select count(*) from t where {WRONG}");
        let plan = database.sql(&format!("{parallel} explain (costs off) {wrong}"));
        assert!(plan.contains("Parallel Seq Scan"), "{plan}");
        assert_eq!(database.sql(&format!("{parallel} {wrong}")), "0");
        let grouped = |column: &str| {
            database.sql(&format!(
                "{parallel} select {column} ->> 'service', count(*), sum(({column} -> 'id')::int), max({column} #>> '{{meta,checksum}}')
                from t group by 1 order by 1"
            ))
        };
        assert_eq!(grouped("doc"), grouped("was"));
    });
}

#[test]
fn two_dictionaries_are_read_in_one_expression() {
    on_one_major("two dictionaries at once", |database| {
        shaped_table(database, 400);
        database.sql(&format!(
            "create table other (id int primary key, was jsonb, doc zson('other')); insert into other select id, doc, doc from ({}) r",
            records_of("other", 400)
        ));
        learn(database, "other", "other");
        let ids = "select count(distinct i) from (select doc from t union all select doc from other) s, unnest(zson_dictionary_ids(doc)) i";
        assert_eq!(database.sql(ids), "2");
        let wrong = "select count(*) from t join other o using (id)
            where (t.doc -> 'meta') || (o.doc -> 'meta') is distinct from (t.was -> 'meta') || (o.was -> 'meta')
            or t.doc ->> 'id' || (o.doc ->> 'hostother') is distinct from t.was ->> 'id' || (o.was ->> 'hostother')
            or (t.doc || o.doc) ->> 'hostother' is distinct from o.was ->> 'hostother'
            or (t.doc -> 'id' = o.doc -> 'id') is distinct from true
            or (t.doc ? 'hostother') or not (o.doc ? 'hostother')";
        assert_eq!(database.sql(wrong), "0");
        for limit in ["64kB", "1MB"] {
            let _ = database.psql().sql(&format!("set zson.cache_size = '{limit}'; {wrong}"));
        }
    });
}

#[test]
fn more_dictionaries_of_shapes_than_the_cache_holds_are_read_in_turns() {
    on_one_major("five dictionaries in a small cache", |database| {
        let columns: Vec<String> = (0..5).map(|n| format!("c{n} zson('profile-{n}')")).collect();
        database.sql(&format!("create table many (id int, was jsonb, {})", columns.join(", ")));
        // Of many texts, so that each dictionary is a large one.
        database.sql(&format!(
            "insert into many (id, was) select id, doc || jsonb_build_object('words', (
                select string_agg(substr(md5((id % 300 * 31 + k)::text), 1, 5 + k % 9), ' ') from generate_series(1, 60) k)) from ({}) r",
            records(2000)
        ));
        for n in 0..5 {
            database.sql(&format!(
                "update many set c{n} = was; select zson_set_codec('profile-{n}', 'shapes'); select zson_learn('many', 'c{n}');
                call zson_reencode('many', 'c{n}')"
            ));
        }
        database.sql("vacuum full many");
        assert_eq!(database.sql("select count(*) from zson_dictionaries where kind = 'shapes'"), "5");
        let sizes = "select sum(size) > 300000 from zson_dictionaries";
        assert_eq!(database.sql(sizes), "t");
        let wrong: Vec<String> = (0..5)
            .map(|n| format!("c{n} ->> 'id' is distinct from was ->> 'id' or c{n}['meta'] is distinct from was['meta'] or not c{n} ? 'words'
                or c{n} <> was or c{n} ->> 'words' is distinct from was ->> 'words'"))
            .collect();
        // Of few rows, since each value waits for its dictionary to be loaded.
        let wrong =
            format!("select count(*) from many where (id < 150 or id > 10000) and ({})", wrong.join(" or "));
        let mut session = Session::new(database.psql());
        session.sql("set zson.cache_size = '1MB'");
        assert_eq!(session.sql(&wrong), "0");
        // Writing in turns too.
        session
            .sql("insert into many select id + 10000, was, was, was, was, was, was from many where id <= 30");
        session.sql("update many set c0 = c1, c1 = c2, c2 = c3, c3 = c4, c4 = c0 where id <= 50");
        assert_eq!(session.sql(&wrong), "0");
    });
}

#[test]
fn dictionaries_change_while_queries_run() {
    on_each_major("learning beside reading parts", |database| {
        shaped_table(database, 1500);
        // Out of line as well: fetching those is when a backend hears of changes.
        database.sql(
            "insert into t select 100000 + i, d, d from generate_series(1, 60) i, lateral (
                select jsonb_build_object('id', i, 'tags', jsonb_agg(md5((i * 1000 + k)::text)), 'meta', jsonb_build_object('checksum', md5(i::text)))
                    as d from generate_series(1, 200) k) s",
        );
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let done = &done;
                scope.spawn(move || {
                    let mut session = Session::new(database.psql());
                    let mut rounds = 0;
                    while rounds < 3 || !done.load(Ordering::Relaxed) {
                        let order = if reader == 0 { "id" } else { "md5(id::text)" };
                        let wrong = format!(
                            "select count(*) from (select * from t order by {order}) t where {WRONG}"
                        );
                        assert_eq!(session.sql(&wrong), "0");
                        rounds += 1;
                    }
                });
            }
            for shape in ["first", "second"] {
                database.sql(&format!(
                    "insert into t select id + 200000 + {}, doc, doc from ({}) r",
                    5000 * shape.len(),
                    records_of(shape, 500)
                ));
                database
                    .sql("select zson_learn('t', 'doc', 'default', true); call zson_reencode('t', 'doc')");
            }
            database.sql("select zson_set_codec('default', 'zstd:3'); call zson_reencode('t', 'doc')");
            assert_eq!(stored_by(database, "t", "shapes"), 0);
            database.sql("select zson_set_codec('default', null); call zson_reencode('t', 'doc')");
            done.store(true, Ordering::Relaxed);
        });
        assert!(stored_by(database, "t", "shapes") >= 2000);
        assert_eq!(database.sql(DIFFERENT), "0");
        // In a transaction, a cursor's query goes on with what it began with.
        let mut cursor = Session::new(database.psql());
        cursor.sql(&format!("begin; declare c cursor for select id, {WRONG} as wrong from t"));
        let mut rows = cursor.sql("fetch 500 from c");
        reshape(
            |sql| database.psql().sql(&sql.replace("truncate t", "delete from t")).unwrap(),
            "third",
            500,
        );
        database.sql("select zson_learn('t', 'doc', 'default', true); call zson_reencode('t', 'doc')");
        rows.push_str(&cursor.sql("fetch all from c"));
        assert!(!rows.contains("|t"), "{rows}");
        cursor.sql("commit");
        assert_eq!(database.sql(&format!("select count(*) from t where {WRONG}")), "0");
    });
}
