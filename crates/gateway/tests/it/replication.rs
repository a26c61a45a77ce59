//! Replication through connector and gateway: a standby that follows synchronously, a base backup, a subscriber.

use std::time::{Duration, Instant};

use pgshrink_testkit::{Auth, Cluster, wait_until};

use crate::harness::{connector, gateway, port};

fn primary() -> Cluster {
    Cluster::builder()
        .auth(Auth::Scram)
        .conf("wal_level", "logical")
        .conf("max_wal_senders", 8)
        .conf("max_replication_slots", 8)
        .start()
        .unwrap()
}

#[test]
fn a_standby_follows_synchronously_through_both_dialects() {
    for (dialect, list) in [("ack", "zstd:1"), ("restart", "lz4:1")] {
        let primary = primary();
        primary
            .sql("create table t as select n, md5(n::text) as m from generate_series(1, 50000) n")
            .unwrap();
        let gateway = gateway(&primary);
        let connector = connector(&gateway, dialect, list);
        let through = primary.conninfo_at("127.0.0.1", port(&connector), "postgres");
        let standby =
            primary.standby().name("far").backup_from(&through).stream_from(&through).start().unwrap();
        primary.set_conf("synchronous_standby_names", "far").unwrap();
        primary.reload().unwrap();
        wait_until(Duration::from_secs(90), "a synchronous standby", || {
            primary.sql("select sync_state from pg_stat_replication").is_ok_and(|s| s == "sync")
        })
        .unwrap();
        for level in ["remote_write", "on", "remote_apply"] {
            let began = Instant::now();
            for i in 0..20 {
                primary
                    .sql(&format!("set synchronous_commit = {level}; insert into t values ({i}, 'commit')"))
                    .unwrap();
                if level == "remote_apply" {
                    // What is committed can be read there at once.
                    let seen = standby.sql(&format!("select count(*) from t where n = {i} and m = 'commit'"));
                    assert_eq!(seen.unwrap(), "3", "{dialect} {list}");
                }
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{level} over {dialect} {list} crawls");
        }
        primary.sql("insert into t select n, md5(n::text) from generate_series(1, 200000) n").unwrap();
        let sum = "select count(*), sum(hashtext(n || m)) from t";
        let expected = primary.sql(sum).unwrap();
        wait_until(Duration::from_secs(90), "the same rows there", || {
            standby.sql(sum).is_ok_and(|got| got == expected)
        })
        .unwrap();
        let moved = connector.registry().totals();
        assert!(moved.to_client.ratio() > 1.5, "{dialect} {list}: {moved:?}");
        standby.promote().unwrap();
        assert_eq!(standby.sql(sum).unwrap(), expected);
        primary.set_conf("synchronous_standby_names", "").unwrap();
        primary.reload().unwrap();
    }
}

#[test]
fn a_subscriber_gets_every_row_through_a_connector() {
    let publisher = primary();
    let subscriber = primary();
    for side in [&publisher, &subscriber] {
        side.sql("create table t (id int primary key, doc jsonb)").unwrap();
    }
    publisher
        .sql("create publication p for table t; insert into t select n, jsonb_build_object('n', n) from generate_series(1, 20000) n")
        .unwrap();
    let gateway = gateway(&publisher);
    let connector = connector(&gateway, "ack", "zstd:1");
    let through = publisher.conninfo_at("127.0.0.1", port(&connector), "postgres");
    subscriber.sql(&format!("create subscription s connection $dsn${through}$dsn$ publication p")).unwrap();
    publisher
        .sql("insert into t select n, jsonb_build_object('late', n) from generate_series(20001, 40000) n")
        .unwrap();
    publisher.sql("update t set doc = doc || '{\"changed\": true}' where id % 10 = 0").unwrap();
    let sum = "select count(*), sum(hashtext(id || doc::text)) from t";
    let expected = publisher.sql(sum).unwrap();
    wait_until(Duration::from_secs(180), "the same rows at the subscriber", || {
        subscriber.sql(sum).is_ok_and(|got| got == expected)
    })
    .unwrap();
    // Changes are flushed one by one, so frames are small.
    let moved = connector.registry().totals().to_client;
    assert!(moved.ratio() > 1.3, "{moved:?}");
    subscriber.sql("drop subscription s").unwrap();
}
