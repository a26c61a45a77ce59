//! What the original zson 1.1 got wrong, reproduced in it; none of it may come back.

use pgshrink_testkit::Server;

use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, NEED_DICTIONARY, records, records_of, reshape, table, trained_table};
use crate::session::Session;

#[test]
fn a_dictionary_that_was_rolled_back_is_in_no_document_and_its_id_in_no_other() {
    on_each_major("rolled back dictionaries", |database| {
        trained_table(database, 1500);
        let mut session = Session::new(database.psql());
        let newest = "select max(id) from zson_dictionaries";
        let mut last: i64 = session.sql(newest).parse().unwrap();
        for shape in ["first", "second", "third"] {
            reshape(|sql| database.sql(sql), shape, 1500);
            let more =
                format!("insert into t select id + 10000, doc, doc from ({}) r", records_of(shape, 200));
            // The third time, only a part of the transaction is rolled back.
            let (begin, rollback) = if shape == "third" {
                ("begin; savepoint s", "rollback to s; commit")
            } else {
                ("begin", "rollback")
            };
            session.sql(&format!("{begin}; select zson_learn('t', 'doc')"));
            let vanished: i64 = session.sql(newest).parse().unwrap();
            assert!(vanished > last);
            session.sql(&more);
            assert_eq!(session.sql(&uses(vanished)), "0", "a dictionary was used before its commit");
            session.sql(rollback);
            session.sql(&more);
            assert_eq!(session.sql(&uses(vanished)), "0");
            session.sql("select zson_learn('t', 'doc')");
            last = session.sql(newest).parse().unwrap();
            assert!(last > vanished, "{last} was given again");
            session.sql("update t set doc = zson_reencode(doc)");
            assert_ne!(session.sql(&uses(last)), "0");
            assert_eq!(session.sql(DIFFERENT), "0");
            assert_eq!(database.sql(DIFFERENT), "0");
        }
    });
}

fn uses(dictionary: i64) -> String {
    format!("select count(*) from t where {dictionary} = any (zson_dictionary_ids(doc))")
}

#[test]
fn a_collation_does_not_change_what_is_compressed() {
    Server::each_with_extensions("collations", &[15], |server| {
        let size = |options: &str| -> i64 {
            let database = Database::made_with(server, options);
            database.sql("create extension zson");
            trained_table(&database, 2000);
            database.sql("select sum(pg_column_size(doc)) from t").parse().unwrap()
        };
        let plain = size("");
        let collated = size("template template0 locale_provider icu icu_locale 'en-US'");
        assert!((plain - collated).abs() * 50 < plain, "{plain} bytes in C, {collated} in en-US");
    });
}

#[test]
fn a_dump_restores_though_its_tables_come_before_its_dictionaries() {
    // In any order, section and number of jobs: dump.rs.
    on_one_major("data before dictionaries", |database| {
        trained_table(database, 1000);
        let dump =
            |what: &[&str]| database.run("pg_dump", &[&["-d", &database.name], what].concat()).unwrap();
        let restored = Database::empty(database.cluster.server());
        restored.sql(&dump(&["--section=pre-data"]));
        restored.sql(&dump(&["--data-only", "--table=t"]));
        assert_eq!(restored.sql(DIFFERENT), "0");
        restored.sql(&dump(&["--data-only", "--exclude-table=t"]));
        assert_eq!(restored.sql(DIFFERENT), "0");
    });
}

#[test]
fn who_may_read_the_table_reads_its_documents() {
    on_each_major("readers", |database| {
        trained_table(database, 1000);
        database.role("reader");
        database.sql("grant select on t to reader");
        assert_eq!(database.sql_as("reader", DIFFERENT), "0");
        assert_eq!(
            database.sql_as("reader", "select count(*) from t where doc->>'status' = 'passing'"),
            "333"
        );
        database.role("writer");
        database.sql("grant insert on t to writer");
        database
            .sql_as("writer", &format!("insert into t select id + 5000, doc, doc from ({}) r", records(10)));
        assert_eq!(database.sql(DIFFERENT), "0");
        assert_eq!(database.sql(&format!("{NEED_DICTIONARY} and id > 5000")), "10");
    });
}

#[test]
fn operators_join_documents_and_not_their_text() {
    on_each_major("documents are documents", |database| {
        let same = |expression: &str, expected: &str| {
            for document in ["'{\"a\": 1}'::zson", "(select doc from d)"] {
                let sql = expression.replace("$", document);
                assert_eq!(database.sql(&format!("select {sql}")), expected, "{sql}");
            }
        };
        database.sql("create table d (doc zson); insert into d values ('{\"a\": 1}')");
        same("$ || '{\"z\":1}'", r#"{"a": 1, "z": 1}"#);
        same("'{\"z\":1}' || $", r#"{"a": 1, "z": 1}"#);
        same("$ || $", r#"{"a": 1}"#);
        same("pg_typeof($ || '[]')", "jsonb");
        same("to_jsonb($)", r#"{"a": 1}"#);
        same("to_json($)", r#"{"a": 1}"#);
        same("jsonb_agg($)", r#"[{"a": 1}]"#);
        same("json_agg($)", r#"[{"a": 1}]"#);
        same("jsonb_build_object('d', $)", r#"{"d": {"a": 1}}"#);
        same("jsonb_build_array($, $)", r#"[{"a": 1}, {"a": 1}]"#);
        same("array_to_json(array[$])", r#"[{"a": 1}]"#);
        assert_eq!(database.sql("select row_to_json(d) from d"), r#"{"doc":{"a": 1}}"#);
        assert_eq!(database.sql("select to_jsonb(d) from d"), r#"{"doc": {"a": 1}}"#);
        assert_eq!(database.sql("select jsonb_agg(d) from d"), r#"[{"doc": {"a": 1}}]"#);
        assert_eq!(database.sql("select jsonb_object_agg('k', doc) from d"), r#"{"k": {"a": 1}}"#);
    });
}

#[test]
fn documents_are_sorted_grouped_indexed_and_taken_apart() {
    // The whole of it is compared with jsonb in regression/more.sql.
    on_each_major("sorting, grouping, indexes", |database| {
        table(database, 500);
        let same = |sql: &str| {
            let (zson, jsonb) = (database.sql(sql), database.sql(&sql.replace("doc", "was")));
            assert_eq!(zson, jsonb, "{sql}");
            assert_ne!(zson, "", "{sql}");
        };
        same("select distinct doc from t order by 1 limit 3");
        same("select count(*), doc from t group by doc order by 2 desc limit 3");
        same("select doc['meta']['version'], doc['tags'][1] from t order by id limit 3");
        same("select doc::json->>'service' from t order by id limit 3");
        database.sql(
            "create index t_gin on t using gin (doc); create index t_btree on t (doc);
            create index t_hash on t using hash (doc); analyze t",
        );
        for (sql, index) in [
            ("select * from t where doc @> '{\"id\": 7}'", "t_gin"),
            ("select * from t where doc ? 'service'", "t_gin"),
            ("select doc from t order by doc limit 3", "t_btree"),
            ("select id from t where doc < '{}'", "t_btree"),
        ] {
            let plan = database.sql(&format!("set enable_seqscan = off; explain {sql}"));
            assert!(plan.contains(index), "{sql}\n{plan}");
        }
        let hashed =
            "set enable_seqscan = off; drop index t_btree; explain select id from t where doc = '{}'";
        assert!(database.sql(hashed).contains("t_hash"));
        database.sql("update t set doc['new'] = '[1]' where id = 1");
        assert_eq!(database.sql("select doc->'new' from t where id = 1"), "[1]");
    });
}

#[test]
fn parallel_plans_are_chosen_and_give_the_same() {
    on_each_major("parallel plans", |database| {
        trained_table(database, 3000);
        let settings =
            "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;
            set max_parallel_workers_per_gather = 2; set parallel_leader_participation = off;";
        for sql in [
            "select count(*) from t where doc->>'status' = 'passing'",
            "select count(*) from t where doc @> '{\"status\": \"passing\"}'",
            "select count(*) from t where doc = was",
            "select count(distinct doc::text) from t where (zson_info(doc)) <> ''",
        ] {
            let plan = database.sql(&format!("{settings} analyze t; explain {sql}"));
            assert!(plan.contains("Workers Planned"), "{sql}\n{plan}");
            let parallel = database.sql(&format!("{settings} {sql}"));
            assert_eq!(
                parallel,
                database.sql(&format!("set max_parallel_workers_per_gather = 0; {sql}")),
                "{sql}"
            );
        }
        let unsafe_ones = "select string_agg(distinct proname, ' ' order by proname) from pg_proc p
            join pg_depend d on d.objid = p.oid and d.classid = 'pg_proc'::regclass and d.deptype = 'e'
            join pg_extension e on e.oid = d.refobjid and extname = 'zson'
            where proparallel <> 's' and prorettype <> 'trigger'::regtype and prokind = 'f'";
        for name in database.sql(unsafe_ones).split(' ') {
            let writes = [
                "zson_learn",
                "zson_set_codec",
                "zson_drop_profile",
                "zson_vacuum_dictionaries",
                "zson_estimate",
                "zson_typmod_in",
            ];
            assert!(writes.contains(&name), "{name} is not parallel safe");
        }
    });
}

#[test]
fn a_small_document_has_little_overhead() {
    on_one_major("overhead", |database| {
        let sizes = "select pg_column_size(d::jsonb), pg_column_size(d::zson) from (values ('{\"name\": \"short\"}'), ('{}'),
            ('{\"a\": 1, \"b\": [true, false]}')) v(d)";
        for line in database.sql(sizes).lines() {
            let (jsonb, zson) = line.split_once('|').unwrap();
            let (jsonb, zson): (i64, i64) = (jsonb.parse().unwrap(), zson.parse().unwrap());
            assert!(zson <= jsonb + 8, "{zson} bytes instead of {jsonb}");
        }
    });
}

#[test]
fn it_works_untrained_and_training_on_nothing_does_no_harm() {
    on_each_major("untrained", |database| {
        table(database, 200);
        assert_eq!(database.sql(DIFFERENT), "0");
        assert_eq!(database.sql(NEED_DICTIONARY), "0");
        database.sql("create table nothing (doc zson)");
        for call in ["zson_learn('nothing', 'doc')", "zson_learn('{{nothing,doc}}')"] {
            // To say that there is nothing to learn from is as good as doing nothing.
            let _ = database.psql().sql(&format!("select {call}"));
            database.sql(&format!("insert into t select id + 1000, doc, doc from ({}) r", records(50)));
            assert_eq!(database.sql(DIFFERENT), "0");
            database.sql("delete from t where id > 1000");
        }
        database.sql("insert into nothing values ('{\"first\": true}')");
        assert_eq!(database.sql("select doc->'first' from nothing"), "true");
    });
}
