//! Logical replication and decoding.

use std::time::Duration;

use pgshrink_testkit::{left_out, wait_until};

use crate::databases::{Database, on_each_major};
use crate::documents::{DIFFERENT, records, table, trained_table};

#[test]
fn logical_replication_carries_documents_as_text_and_binary() {
    on_each_major("logical replication", |database| {
        trained_table(database, 500);
        database.sql("alter table t replica identity full; create publication p for table t");
        for binary in ["false", "true"] {
            let subscriber = Database::with_zson(database.cluster.server());
            subscriber.sql("create table t (id int primary key, was jsonb, doc zson)");
            let slot = format!("slot_{}", subscriber.name);
            database.sql(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
            let source = database.cluster.conninfo_unix(&database.name).replace('\'', "''");
            subscriber.sql(&format!(
                "create subscription {slot} connection '{source}' publication p
                with (create_slot = false, slot_name = '{slot}', binary = {binary})"
            ));
            let arrived = |n: &str| {
                wait_until(Duration::from_secs(60), "replicated rows", || {
                    subscriber.sql("select count(*) from t where not doc ? 'gone'") == n
                })
                .unwrap();
            };
            arrived("500");
            // What the subscriber learned is its own.
            subscriber.sql("select zson_learn('t', 'doc')");
            // The dictionary changes while the slot is open: what is decoded needs both.
            database.sql(&format!("insert into t select id + 1000, doc, doc from ({}) r", records(100)));
            database.sql("select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc)");
            database.sql(&format!("insert into t select id + 2000, doc, doc from ({}) r", records(100)));
            database.sql(
                "update t set doc = doc || '{\"more\": 1}', was = was || '{\"more\": 1}' where id < 100",
            );
            database.sql("delete from t where id between 100 and 199");
            arrived("600");
            wait_until(Duration::from_secs(60), "replicated changes", || {
                subscriber.sql("select count(*) from t where doc ? 'more'") == "99"
            })
            .unwrap();
            assert_eq!(subscriber.sql(DIFFERENT), "0");
            let by_shape = "select count(*) from t where zson_info(doc) ~ 'codec = shapes' and id > 1000";
            assert_eq!(subscriber.sql(by_shape), "200");
            subscriber.sql(&format!("alter subscription {slot} disable; alter subscription {slot} set (slot_name = none); drop subscription {slot}"));
            wait_until(Duration::from_secs(60), "the end of the slot's use", || {
                database.psql().sql(&format!("select pg_drop_replication_slot('{slot}')")).is_ok()
            })
            .unwrap();
            database
                .sql(&format!("delete from t; insert into t select id, doc, doc from ({}) r", records(500)));
        }
    });
}

#[test]
fn changes_are_decoded_with_the_dictionaries_of_their_time() {
    on_each_major("logical decoding", |database| {
        table(database, 1200);
        database.sql("alter table t replica identity full");
        let slot = format!("decoding_{}", database.name);
        if database
            .psql()
            .sql(&format!("select pg_create_logical_replication_slot('{slot}', 'test_decoding')"))
            .is_err()
        {
            let version = &database.cluster.server().version;
            left_out(&format!("logical decoding on {version}"), "this build comes without test_decoding");
            return;
        }
        database.sql("begin; select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc) where id < 3; commit");
        database.sql("update t set doc = zson_reencode(doc) where id < 3");
        database.sql("begin; select zson_learn('t', 'doc'); insert into t select id + 5000, was, was from t where id = 7; rollback");
        database.sql("begin; select zson_learn('t', 'doc'); insert into t select id + 5000, was, was from t where id = 7; commit");
        database.sql("delete from t where id = 1");
        let changes = database.sql(&format!(
            "select count(*) filter (where data like '%service-1%' and data like '%DELETE: id%'),
                count(*) filter (where data like '%INSERT: id[integer]:5007%service-7%'),
                count(*) filter (where data like '%UPDATE%service-2.example.org%')
            from pg_logical_slot_get_changes('{slot}', null, null) where data like 'table public.t:%'"
        ));
        database.sql(&format!("select pg_drop_replication_slot('{slot}')"));
        assert_eq!(changes, "1|1|2");
    });
}
