//! `zson_vacuum_dictionaries`: removes what nothing needs, and nothing else.

use std::time::Duration;

use pgshrink_testkit::{Server, wait_until};

use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, records_of, reshape, trained_table};
use crate::session::Session;

/// What else than a table's column can hold a document: what makes it, what reads it, what gives it up. The document
/// is `DOC`, and contains `"service": "service-7"`.
const PLACES: [(&str, &str, &str, &str); 22] = [
    ("a table", "create table p (d zson); insert into p values ('DOC')", "select d from p", "drop table p"),
    (
        "a partition",
        "create table p (d zson) partition by hash (d); create table q partition of p for values with (modulus 1, remainder 0);
            insert into p values ('DOC')",
        "select d from p",
        "drop table p",
    ),
    ("an array", "create table p (d zson[]); insert into p values (array['{}', 'DOC']::zson[])", "select d[2] from p", "drop table p"),
    (
        "a composite in an array in a composite",
        "create type i as (n int, d zson); create type o as (n int, i i[]); create table p (o o);
            insert into p values (row(1, array[row(2, 'DOC')::i])::o)",
        "select (o).i[1].d from p",
        "drop table p",
    ),
    ("a domain", "create domain dom as zson check (value is not null); create table p (d dom); insert into p values ('DOC')", "select d from p", "drop table p"),
    (
        "a range and a multirange",
        "create type r as range (subtype = zson, multirange_type_name = mr); create table p (r r, m mr);
            insert into p values (r('DOC', null), mr(r('DOC', null)))",
        "select lower(m) from p where lower(r) = lower(m)",
        "drop table p",
    ),
    ("a row of a table", "create table q (d zson); create table p (q q); insert into p values (row('DOC')::q)", "select (q).d from p", "drop table p"),
    ("a materialized view", "create materialized view p as select 'DOC'::zson as d", "select d from p", "drop materialized view p"),
    (
        "a missing value",
        "create table p (n int); insert into p values (1); alter table p add column d zson default 'DOC';
            alter table p alter column d drop default",
        "select d from p",
        "drop table p",
    ),
    (
        "statistics",
        "create table p (d zson); insert into p select 'DOC' from generate_series(1, 50); analyze p; truncate p",
        "select most_common_vals::text::text[] from pg_stats where tablename = 'p'",
        "drop table p",
    ),
    ("a default", "create table p (n int, d zson default 'DOC')", "insert into p values (1) returning d", "drop table p"),
    ("a constraint", "create table p (d zson check (d = 'DOC'))", "insert into p values ('DOC') returning d", "drop table p"),
    ("a view", "create view p as select 'DOC'::zson as d", "select d from p", "drop view p"),
    ("a rule", "create table q (d zson); create table p (n int); create rule r as on insert to p do also insert into q values ('DOC')",
        "insert into p values (1); select d from q", "drop table p, q"),
    ("the predicate of an index", "create table p (d zson); create index on p (d) where d < 'DOC'", "select pg_get_indexdef('p_d_idx'::regclass)", "drop table p"),
    (
        "a function",
        "create function p() returns zson begin atomic select 'DOC'::zson; end",
        "select p()",
        "drop function p",
    ),
    ("a policy", "create table p (d zson); create policy y on p using (d = 'DOC')", "select qual from pg_policies where tablename = 'p'", "drop table p"),
    (
        "a partition's bound",
        "create table p (d zson) partition by list (d); create table q partition of p for values in ('DOC')",
        "insert into p values ('DOC') returning d",
        "drop table p",
    ),
    (
        "a generated column",
        "create table p (n int, d zson generated always as (case n when 1 then 'DOC'::zson end) stored)",
        "insert into p values (1) returning d",
        "drop table p",
    ),
    (
        "a trigger's condition",
        "create table p (d zson); create trigger g after insert on p for each row when (new.d = 'DOC') execute function suppress_redundant_updates_trigger()",
        "select pg_get_triggerdef(oid) from pg_trigger where tgname = 'g'",
        "drop table p",
    ),
    (
        "an argument's default",
        "create function p(d zson default 'DOC') returns zson language sql as 'select d'",
        "select p()",
        "drop function p",
    ),
    ("extended statistics", "create table p (n int, d zson); create statistics s on n, d from p; insert into p select i % 2, 'DOC' from generate_series(1, 50) i; analyze p; truncate p; delete from pg_statistic where starelid = 'p'::regclass",
        "select 'service-7' from pg_stats_ext where tablename = 'p'", "drop table p"),
];

/// The newest document of shape "service" in `t`, as text.
fn document(database: &Database) -> String {
    database.sql("select doc from t where doc->>'service' = 'service-7' limit 1").replace('\'', "''")
}

/// Supersedes the dictionary that documents of `t` have, and leaves none of these there.
fn supersede(database: &Database) {
    reshape(|sql| database.sql(sql), "other", 800);
    database.sql(
        "select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc); vacuum full t; analyze t",
    );
}

/// What the clean-up says of the oldest dictionary, once the sessions of before have left.
fn verdict(database: &Database) -> String {
    let mut said = String::new();
    wait_until(Duration::from_secs(20), "the other sessions to leave", || {
        said = database.sql("select id, removed, reason from zson_vacuum_dictionaries() order by id limit 1");
        !said.contains("other sessions")
    })
    .unwrap();
    said
}

#[test]
fn a_dictionary_stays_while_anything_holds_a_document_of_it() {
    Server::each_with_extensions("places of documents", &[15, 18], |server| {
        let base = Database::with_zson(server);
        trained_table(&base, 800);
        let document = document(&base);
        let mut wrong = Vec::new();
        for (place, make, read, drop) in PLACES {
            // CREATE DATABASE itself waits for sessions in the template to leave.
            let database = Database::made_with(server, &format!("template {}", base.name));
            database.sql(&make.replace("DOC", &document));
            supersede(&database);
            let kept = verdict(&database);
            if !kept.contains("|f|") {
                wrong.push(format!("{place}: {kept}"));
            }
            match database.psql().sql(&read.replace("DOC", &document)) {
                Ok(said) if said.contains("service-7") => {}
                other => wrong.push(format!("{place} reads {other:?}")),
            }
            database.sql(drop);
            let removed = last_verdict(&database);
            if !removed.contains("|t|") {
                wrong.push(format!("{place}, given up: {removed}"));
            }
            assert_eq!(database.sql(DIFFERENT), "0");
            base.cluster.sql(&format!("drop database {} (force)", database.name)).unwrap();
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn a_removed_id_is_never_given_again() {
    on_each_major("removed ids", |database| {
        trained_table(database, 800);
        supersede(database);
        let removed = last_verdict(database);
        assert!(removed.contains("|t|"), "{removed}");
        let gone: i64 = removed.split('|').next().unwrap().parse().unwrap();
        assert_eq!(database.sql(&format!("select count(*) from zson_dictionaries where id = {gone}")), "0");
        reshape(|sql| database.sql(sql), "third", 800);
        database.sql("select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc)");
        assert_eq!(database.sql(&format!("select count(*) from zson_dictionaries where id <= {gone}")), "0");
        assert_eq!(database.sql(DIFFERENT), "0");
        // The same content once more is the same dictionary under a new id, or a new one.
        reshape(|sql| database.sql(sql), "service", 800);
        database.sql("select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc)");
        assert_eq!(database.sql(&format!("select count(*) from zson_dictionaries where id <= {gone}")), "0");
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn nothing_is_removed_while_others_could_hold_documents() {
    on_one_major("others in the database", |database| {
        trained_table(database, 800);
        let mut reader = Session::new(database.psql());
        reader.sql(
            "begin isolation level repeatable read; declare c cursor for select doc from t; fetch 1 from c",
        );
        supersede_without_rewriting(database);
        let kept = "select bool_or(removed) from zson_vacuum_dictionaries()";
        assert_eq!(database.sql(kept), "f");
        assert!(reader.sql("fetch 1 from c").contains("service"));
        reader.sql("rollback");
        drop(reader);
        let name = &database.name;
        database
            .sql(&format!("begin; insert into t values (-1, '{{}}', '{{}}'); prepare transaction '{name}'"));
        assert!(verdict(database).contains("|f|"));
        database.sql(&format!("rollback prepared '{name}'"));
        assert!(
            database
                .sql("begin; select bool_or(removed) from zson_vacuum_dictionaries(); commit")
                .contains('f')
        );
        let own = "begin; create temp table own on commit preserve rows as select doc from kept; commit;
            delete from kept; select bool_or(removed) from zson_vacuum_dictionaries(); select doc->>'service' from own limit 1";
        assert!(database.sql(own).starts_with("f\nservice"));
        assert!(last_verdict(database).contains("|t|"));
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

/// As [`supersede`], but old documents stay in `kept`, and dead ones in `t`.
fn supersede_without_rewriting(database: &Database) {
    database.sql("create table kept as select doc from t limit 5");
    database.sql(&format!(
        "delete from t; insert into t select id + 5000, doc, doc from ({}) r",
        records_of("other", 800)
    ));
    database.sql("select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc)");
}

#[test]
fn an_open_transaction_in_another_database_does_not_leave_keys_behind() {
    on_each_major("transactions of other databases", |database| {
        trained_table(database, 800);
        let other = Database::empty(database.cluster.server());
        let mut open = Session::new(other.psql());
        open.sql("begin; select pg_current_xact_id()");
        leave_old_keys(database);
        let said = verdict(database);
        let ordered = "set enable_seqscan = off; select count(*) from (select doc from t order by doc) x;
            select count(*) from t where doc > '[]' and doc < '{}'; create index on t (doc)";
        assert_eq!(database.sql(ordered), "800\n0", "{said}");
        open.sql("rollback");
        // Now dead rows may go, the dictionary's among them; the indexes have not been cleaned yet.
        database.sql("vacuum zson_dictionary");
        assert_eq!(database.sql(ordered), "800\n0", "{said}");
        if !said.contains("|t|") {
            assert!(last_verdict(database).contains("|t|"));
        }
        assert_eq!(database.sql(ordered), "800\n0");
        assert_eq!(database.sql("select count(*) from zson_dictionaries where not current"), "0");
    });
}

/// As [`verdict`], once transactions of other databases have ended that hold the clean-up back.
fn last_verdict(database: &Database) -> String {
    let mut said = String::new();
    let _ = wait_until(Duration::from_secs(30), "transactions of other databases to end", || {
        said = verdict(database);
        said.contains("|t|")
    });
    said
}

/// Indexes over `t` whose pages have keys with its first dictionary, which no row has any more.
fn leave_old_keys(database: &Database) {
    database.sql("create index on t (doc); create index on t (id) include (doc); create index on t (((doc->'meta')::zson))");
    database.sql(&format!(
        "delete from t where id > 3; insert into t select id + 5000, doc, doc from ({}) r",
        records_of("other", 800)
    ));
    database.sql(
        "select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc); delete from t where id < 1000",
    );
}

#[test]
fn an_index_whose_pages_keep_old_keys_is_rebuilt_before() {
    on_each_major("indexes of old keys", |database| {
        trained_table(database, 800);
        leave_old_keys(database);
        let removed = last_verdict(database);
        assert!(removed.contains("|t|"), "{removed}");
        assert_eq!(
            database.sql("set enable_seqscan = off; select count(*) from t where doc > '[]' and doc < '{}'"),
            database.sql("select count(*) from t where was > '[]' and was < '{}'")
        );
        database.sql(&format!(
            "insert into t select id + 10000, doc, doc from ({}) r",
            records_of("service", 800)
        ));
        assert_eq!(
            database.sql("set enable_seqscan = off; select count(*) from (select doc from t order by doc) x"),
            "1600"
        );
        assert_eq!(database.sql(DIFFERENT), "0");
        database.sql("vacuum t; reindex table t");
    });
}
