//! Learning beside writing, reading and more learning; and on a standby.

use std::time::Duration;

use pgshrink_testkit::{Cluster, Server, wait_until};

use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, NEED_DICTIONARY, records, records_of, reshape, table, trained_table};
use crate::session::Session;

#[test]
fn learning_while_others_insert_leaves_every_document_as_it_was() {
    on_each_major("learn while inserting", |database| {
        table(database, 1500);
        std::thread::scope(|scope| {
            for writer in 1..=3 {
                scope.spawn(move || {
                    let mut session = Session::new(database.psql());
                    for batch in 0..40 {
                        let first = writer * 100_000 + batch * 50;
                        session.sql(&format!(
                            "insert into t select id + {first}, doc, doc from ({}) r",
                            records(50)
                        ));
                    }
                });
            }
            for shape in ["first", "second", "third"] {
                let more = records_of(shape, 1500);
                database.sql(&format!(
                    "insert into t select -id - (select count(*) from t), doc, doc from ({more}) r"
                ));
                database.sql("select zson_learn('t', 'doc')");
            }
        });
        assert_eq!(database.sql("select count(*) from t"), "12000");
        assert_ne!(database.sql("select count(*) from zson_dictionaries"), "0");
        assert_ne!(database.sql(NEED_DICTIONARY), "0");
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn two_who_learn_at_once_both_get_a_dictionary_of_their_own() {
    on_each_major("two learners", |database| {
        table(database, 1500);
        let mut learners = [Session::new(database.psql()), Session::new(database.psql())];
        learners.iter_mut().for_each(|learner| learner.send("select zson_learn('t', 'doc')"));
        learners.iter_mut().for_each(|learner| drop(learner.wait()));
        let ids = database.sql("select count(*), count(distinct id) from zson_dictionaries");
        let (all, distinct) = ids.split_once('|').unwrap();
        assert_eq!(all, distinct);
        // Each in a transaction of its own: one waits for the other, or both go on.
        reshape(|sql| database.sql(sql), "other", 1500);
        let [mut a, mut b] = [Session::new(database.psql()), Session::new(database.psql())];
        a.sql("begin; select zson_learn('t', 'doc')");
        b.send("set lock_timeout = '30s'; begin; select zson_learn('t', 'doc')");
        a.sql("update t set doc = zson_reencode(doc) where id % 2 = 0; commit");
        b.wait();
        b.sql("rollback");
        database.sql("update t set doc = zson_reencode(doc)");
        assert_eq!(database.sql(DIFFERENT), "0");
        assert_ne!(database.sql(NEED_DICTIONARY), "0");
    });
}

#[test]
fn a_dictionary_is_used_once_it_is_committed_and_not_before() {
    on_one_major("used when committed", |database| {
        table(database, 1500);
        let mut learner = Session::new(database.psql());
        let mut writer = Session::new(database.psql());
        let insert =
            |first: u32| format!("insert into t select id + {first}, doc, doc from ({}) r", records(20));
        writer.sql(&insert(10_000));
        learner.sql("begin; select zson_learn('t', 'doc')");
        writer.sql(&insert(20_000));
        learner.sql(&insert(30_000));
        assert_eq!(database.sql(NEED_DICTIONARY), "0");
        assert_eq!(learner.sql(NEED_DICTIONARY), "0");
        learner.sql("commit");
        let mut first = 40_000;
        wait_until(Duration::from_secs(70), "documents with the new dictionary", || {
            writer.sql(&insert(first));
            first += 100;
            database.sql(NEED_DICTIONARY) != "0"
        })
        .unwrap();
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn a_transaction_older_than_the_dictionary_reads_and_writes() {
    on_each_major("old snapshots", |database| {
        table(database, 1500);
        let mut old = Session::new(database.psql());
        old.sql("begin isolation level repeatable read; select count(*) from t");
        database.sql("select zson_learn('t', 'doc')");
        old.sql(&format!("insert into t select id + 10000, doc, doc from ({}) r", records(100)));
        old.sql("update t set doc = zson_reencode(doc) where id < 100");
        assert_eq!(old.sql(DIFFERENT), "0");
        // What others write with the new dictionary reaches an old snapshot through what is read without one.
        database.sql("update t set doc = zson_reencode(doc) where id > 200");
        assert_eq!(old.sql(DIFFERENT), "0");
        old.sql("commit");
        assert_eq!(database.sql(DIFFERENT), "0");
        let mut serializable = Session::new(database.psql());
        serializable.sql("begin isolation level serializable read only deferrable");
        assert_eq!(serializable.sql(DIFFERENT), "0");
    });
}

#[test]
fn a_prepared_transaction_may_hold_a_dictionary() {
    on_one_major("prepared transactions", |database| {
        table(database, 1500);
        let name = &database.name;
        database.sql(&format!("begin; select zson_learn('t', 'doc'); prepare transaction '{name}'"));
        database.sql(&format!("insert into t select id + 10000, doc, doc from ({}) r", records(100)));
        assert_eq!(database.sql(NEED_DICTIONARY), "0");
        database.sql(&format!("commit prepared '{name}'"));
        database.sql("update t set doc = zson_reencode(doc)");
        assert_ne!(database.sql(NEED_DICTIONARY), "0");
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn a_standby_reads_while_its_primary_learns() {
    Server::each_with_extensions("a standby reads", &[15, 18], |server| {
        let primary: &Cluster = Box::leak(Box::new(Cluster::builder().server(server).start().unwrap()));
        let database = Database::beside(primary, "");
        database.sql("create extension zson");
        table(&database, 1500);
        let standby = primary.standby().start().unwrap();
        let mut reader = Session::new(standby.psql().database(&database.name));
        assert_eq!(reader.sql(DIFFERENT), "0");
        for shape in ["first", "second", "third"] {
            reshape(|sql| database.sql(sql), shape, 1500);
            database.sql("select zson_learn('t', 'doc')");
            database.sql("update t set doc = zson_reencode(doc)");
            let newest = database.sql("select max(id) from zson_dictionaries");
            let used = format!("select count(*) > 0 from t where {newest} = any (zson_dictionary_ids(doc))");
            assert_eq!(database.sql(&used), "t");
            let lsn = database.sql("select pg_current_wal_flush_lsn()");
            wait_until(Duration::from_secs(30), "the standby to follow", || {
                reader.sql(&format!("select pg_last_wal_replay_lsn() >= '{lsn}'")) == "t"
            })
            .unwrap();
            assert_eq!(reader.sql(DIFFERENT), "0");
            assert_eq!(reader.sql(&used), database.sql(&used));
        }
        assert_eq!(reader.sql("select count(*) from t where doc->>'statusthird' = 'passing'"), "500");
        drop(reader);
        standby.promote().unwrap();
        let promoted = |sql: &str| standby.psql().database(&database.name).sql(sql).unwrap();
        promoted(&format!("insert into t select id + 10000, doc, doc from ({}) r", records(100)));
        promoted("select zson_learn('t', 'doc')");
        assert_eq!(promoted(DIFFERENT), "0");
    });
}

#[test]
fn documents_survive_a_crash_right_after_learning() {
    Server::each_with_extensions("a crash after learning", &[15], |server| {
        let cluster: &Cluster = Box::leak(Box::new(Cluster::builder().server(server).start().unwrap()));
        let database = Database::beside(cluster, "");
        database.sql("create extension zson");
        trained_table(&database, 1000);
        let newest = database.sql("select max(id) from zson_dictionaries");
        cluster.kill().unwrap();
        cluster.start().unwrap();
        assert_eq!(database.sql(DIFFERENT), "0");
        reshape(|sql| database.sql(sql), "later", 1000);
        database.sql("select zson_learn('t', 'doc')");
        let next = database.sql("select max(id) from zson_dictionaries");
        assert!(next.parse::<i64>().unwrap() > newest.parse().unwrap());
        cluster.stop(pgshrink_testkit::Stop::Immediate).unwrap();
    });
}
