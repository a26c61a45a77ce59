//! What a backend remembers, and when it must not.

use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, NEED_DICTIONARY, records, records_of, table, trained_table};
use crate::session::Session;

#[test]
fn an_extension_made_anew_in_a_session_has_nothing_of_the_old_one() {
    on_each_major("drop and create", |database| {
        let mut session = Session::new(database.psql());
        for shape in ["service", "other", "third"] {
            session.sql(&format!(
                "create table t (id int primary key, was jsonb, doc zson, named zson('events'));
                insert into t select id, doc, doc, doc from ({}) r;
                select zson_learn('t', 'doc'); select zson_learn('t', 'named');
                update t set doc = zson_reencode(doc), named = zson_reencode(named, 'events')",
                records_of(shape, 800)
            ));
            assert_ne!(session.sql(NEED_DICTIONARY), "0");
            assert_eq!(session.sql(DIFFERENT), "0");
            assert_eq!(session.sql("select count(*) from t where named <> was"), "0");
            session.sql("drop extension zson cascade; drop table t; create extension zson");
        }
    });
}

#[test]
fn a_renamed_schema_is_noticed() {
    on_one_major("renamed schemas", |given| {
        let database = Database::empty(given.cluster.server());
        database.sql("create schema one; create extension zson schema one; alter database :\"DBNAME\" set search_path = public, one, two");
        trained_table(&database, 800);
        let mut session = Session::new(database.psql());
        assert_eq!(session.sql(DIFFERENT), "0");
        database.sql("alter schema one rename to two");
        assert_eq!(session.sql(DIFFERENT), "0");
        session.sql(&format!("insert into t select id + 5000, doc, doc from ({}) r", records(100)));
        session.sql("create table more (doc zson('more'))");
        assert_eq!(session.sql(DIFFERENT), "0");
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn a_profile_that_was_rolled_back_is_made_again() {
    on_each_major("rolled back profiles", |database| {
        let mut session = Session::new(database.psql());
        let id = |session: &mut Session| session.sql("select id from zson_profile where name = 'gone'");
        session.sql("begin; create table g (doc zson('gone')); insert into g values ('{\"a\": 1}')");
        let first = id(&mut session);
        session.sql("rollback");
        assert_eq!(id(&mut session), "");
        session.sql("create table other (doc zson('other')); insert into other values ('{\"a\": 1}')");
        assert_ne!(database.sql("select id from zson_profile where name = 'other'"), first);
        session.sql("create table g (doc zson('gone')); insert into g values ('{\"a\": 1}')");
        assert_ne!(id(&mut session), first);
        assert_eq!(session.sql("select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'g'::regclass and attnum = 1"), "zson('gone')");
        // Two who name the same new profile at once.
        let mut second = Session::new(database.psql());
        session.sql("begin; create table s1 (doc zson('same'))");
        second.send("create table s2 (doc zson('same'))");
        std::thread::sleep(std::time::Duration::from_millis(300));
        session.sql("commit");
        second.wait();
        session.sql("begin; create table s3 (doc zson('again'))");
        second.send("create table s4 (doc zson('again'))");
        std::thread::sleep(std::time::Duration::from_millis(300));
        session.sql("rollback");
        second.wait();
        let typmods = "select string_agg(distinct (atttypmod = (select id from zson_profile p where name = case when c.relname = 's4' then 'again' else 'same' end))::text, '')
            from pg_attribute a join pg_class c on c.oid = attrelid where relname in ('s1', 's2', 's4') and attnum = 1";
        assert_eq!(database.sql(typmods), "true");
    });
}

#[test]
fn any_role_may_name_a_profile_and_none_may_rename_it() {
    on_one_major("profiles of ordinary roles", |database| {
        database.role("author");
        database.sql("grant create on schema public to author");
        database
            .sql_as("author", "create table mine (doc zson('mine')); insert into mine values ('{\"a\": 1}')");
        assert_eq!(database.sql_as("author", "select doc->'a' from mine"), "1");
        assert!(database.psql().user("author").sql("update zson_profile set name = 'x'").is_err());
        let read_only = "begin read only; select '{}'::zson('never_seen')";
        assert!(database.psql().sql(read_only).is_err());
        assert_eq!(database.sql("select count(*) from zson_profile where name = 'never_seen'"), "0");
    });
}

#[test]
fn indexes_are_built_in_parallel() {
    on_each_major("parallel index builds", |database| {
        trained_table(database, 4000);
        let settings = "set min_parallel_table_scan_size = 0; set max_parallel_maintenance_workers = 2; set maintenance_work_mem = '256MB'; set client_min_messages = debug1;";
        database.sql("alter table t set (parallel_workers = 2)");
        let said = database
            .psql()
            .arg("-c")
            .arg(format!("{settings} create index by_doc on t (doc)"))
            .command()
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("with request for 2 parallel workers"), "{said}");
        database.sql("create extension if not exists zson; analyze t");
        let sorted = |column: &str| {
            database.sql(&format!(
                "set enable_seqscan = off; set enable_sort = off; select id from t order by {column} limit 50"
            ))
        };
        let plan = database.sql("set enable_seqscan = off; explain select id from t order by doc limit 50");
        assert!(plan.contains("by_doc"), "{plan}");
        assert_eq!(sorted("doc"), sorted("was"));
    });
}

#[test]
fn memory_does_not_grow_with_what_was_read() {
    on_one_major("memory", |database| {
        trained_table(database, 1500);
        database.sql("create table big as select i as id, (select jsonb_agg(was) from t where id < 200 + i)::zson as doc from generate_series(1, 20) i");
        let mut session = Session::new(database.psql());
        // The second number is the backend's resident pages.
        let resident = "select split_part(pg_read_file('/proc/self/statm'), ' ', 2)::int * 4 / 1024";
        let work = "do $$ begin for i in 1..40 loop
                perform count(doc->>'service'), count(doc::text), sum(length(zson_info(doc))) from t;
                perform count(zson_reencode(doc)) from t;
                perform sum(jsonb_array_length(doc)) from big;
                begin perform (substr(zson_send(doc), 2)::text)::zson from t limit 1; exception when others then null; end;
            end loop; end $$";
        session.sql(work);
        let before: i64 = session.sql(resident).parse().unwrap();
        for _ in 0..3 {
            session.sql(work);
        }
        let after: i64 = session.sql(resident).parse().unwrap();
        assert!(after - before < 12, "{before} MiB grew to {after} MiB");
    });
}

#[test]
fn a_cancelled_query_leaves_the_backend_as_it_was() {
    on_one_major("cancelling", |database| {
        table(database, 3000);
        let mut session = Session::new(database.psql().arg("-v").arg("ON_ERROR_STOP=0"));
        for (statement, timeout) in [
            ("select zson_learn('t', 'doc')", 40),
            ("select count(zson_reencode(a.doc)) from t a, t b", 60),
            ("select count(a.doc->>'service') from t a, t b", 60),
            ("call zson_reencode('t', 'doc')", 20),
            ("select * from zson_estimate('t', 'doc')", 50),
        ] {
            session.sql(&format!("set statement_timeout = {timeout}; {statement}; reset statement_timeout"));
            assert_eq!(session.sql(DIFFERENT), "0", "{statement}");
        }
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}
