//! Statements that give a relation another file, cut it, or take it away, while its file changes its form.

use std::time::Duration;

use pgshrink_testkit::{Server, wait_until};

use super::writers::is_sound;
use super::{Live, MAJORS, PATIENCE, To, on_each_major, sum, table};

/// Statements after which a table has the same rows.
const REWRITES: [&str; 9] = [
    "vacuum full t",
    "cluster t using t_pkey",
    "reindex table t",
    "reindex table concurrently t",
    "alter table t set tablespace other",
    "alter table t set tablespace pg_default",
    "alter table t set unlogged",
    "alter table t set logged",
    "alter table t alter id type bigint",
];

#[test]
fn a_statement_that_rewrites_a_table_amid_its_conversion_keeps_its_rows() {
    on_each_major("rewrites amid conversions", |live| {
        live.sql(&format!("create tablespace other location ''; {}", table("t", 8_000)));
        let expected = live.sql(&sum("t"));
        live.set(&[("cfs.convert_rate", "8MB")]);
        for (number, statement) in REWRITES.into_iter().enumerate() {
            let to = To::BOTH[number % 2];
            live.ask("t", to);
            live.wait_for_middle(5);
            live.sql(statement);
            assert_eq!(live.sql(&sum("t")), expected, "{statement}");
            if statement.starts_with("alter table t set tablespace other") {
                live.cluster.kill().unwrap();
                live.cluster.start().unwrap();
            }
            live.set(&[("cfs.convert_rate", "0")]);
            live.wait("t");
            live.has_form("t", to);
            live.set(&[("cfs.convert_rate", "8MB")]);
            assert_eq!(live.sql(&sum("t")), expected, "{statement}");
        }
        is_sound(live);
        live.is_clean();
    });
}

#[test]
fn dropped_emptied_and_rolled_back_tables_leave_nothing_of_their_conversion() {
    on_each_major("drops amid conversions", |live| {
        for statement in
            ["drop table t", "truncate t; drop table t", "begin; drop table t; rollback; drop table t"]
        {
            live.set(&[("cfs.convert_rate", "8MB")]);
            live.sql(&table("t", 6_000));
            let path = live.path("t");
            live.ask("t", To::Container);
            live.wait_for_middle(5);
            live.sql(statement);
            // The first file stays, empty, until a checkpoint.
            live.sql("checkpoint");
            assert!(!path.exists(), "{statement}");
            wait_until(PATIENCE, "the conversion to end", || {
                live.sql("select count(*) from cfs_progress") == "0"
            })
            .unwrap_or_else(|error| panic!("{error}: {statement}\n{}", live.progress()));
        }
        // The same in the transaction that made it, and after a crash.
        live.sql("begin; create table never (i int); insert into never select generate_series(1, 30000); select cfs_compress_relation('never'); rollback");
        live.cluster.kill().unwrap();
        live.cluster.start().unwrap();
        live.is_clean();
    });
}

#[test]
fn a_table_grows_and_is_cut_and_refilled_amid_its_conversion() {
    on_each_major("growth and truncation amid conversions", |live| {
        live.sql(&table("t", 8_000));
        live.sql("create table model as table t");
        let same =
            "select count(*) from ((table t except table model) union all (table model except table t)) d";
        for to in To::BOTH {
            live.set(&[("cfs.convert_rate", "8MB")]);
            live.ask("t", to);
            live.wait_for_middle(5);
            for change in [
                "insert into N select i, repeat(md5(i::text), 15), null from generate_series(20001, 26000) i",
                "delete from N where id > 4000",
                "insert into N select i, repeat(md5(i::text), 9), repeat('y', 9000) from generate_series(30001, 30500) i",
            ] {
                for name in ["t", "model"] {
                    live.sql(&change.replace('N', name));
                }
                // What is empty at the end is cut off.
                live.sql("vacuum t; checkpoint");
                assert_eq!(live.sql(same), "0", "{to:?}: {change}");
            }
            live.set(&[("cfs.convert_rate", "0")]);
            live.wait("t");
            live.has_form("t", to);
            assert_eq!(live.sql(same), "0", "{to:?}");
            live.sql("delete from t where id > 30000; delete from model where id > 30000");
            live.cluster.kill().unwrap();
            live.cluster.start().unwrap();
            assert_eq!(live.sql(same), "0", "{to:?}, after a crash");
            live.sql(
                "insert into t select i, 'w', null from generate_series(5001, 9000) i on conflict do nothing",
            );
            live.sql("truncate model; insert into model table t");
        }
        is_sound(live);
        live.is_clean();
    });
}

#[test]
fn indexes_toast_and_partitions_follow_their_table_and_so_do_new_ones() {
    on_each_major("what follows a table", |live| {
        live.sql(
            "create table p (id int, word text, big text) partition by range (id);
            create table low partition of p for values from (0) to (3000);
            create table high partition of p for values from (3000) to (6000);
            create index on p (word);
            alter table low alter big set storage external; alter table high alter big set storage external;
            insert into p select i, md5(i::text), repeat(md5(i::text), 70) from generate_series(0, 5999) i",
        );
        let expected = live.sql(&sum("p"));
        live.ask("p", To::Container);
        ["p", "low", "high"].into_iter().for_each(|table| live.wait(table));
        ["low", "high"].into_iter().for_each(|table| live.has_form(table, To::Container));
        live.sql("create table more partition of p for values from (6000) to (9000); create index on p (id);
            insert into p select i, md5(i::text), repeat(md5(i::text), 70) from generate_series(6000, 8999) i");
        ["p", "more", "low"].into_iter().for_each(|table| live.wait(table));
        ["low", "high", "more"].into_iter().for_each(|table| live.has_form(table, To::Container));
        live.sql("alter table p detach partition more; drop table more");
        assert_eq!(live.sql(&sum("p")), expected);
        live.ask("p", To::Plain);
        ["p", "low", "high"].into_iter().for_each(|table| live.wait(table));
        ["low", "high"].into_iter().for_each(|table| live.has_form(table, To::Plain));
        assert_eq!(live.sql(&sum("p")), expected);
        live.is_clean();
    });
}

#[test]
#[ignore = "gigabytes: make soak"]
fn a_table_of_more_than_a_segment_grows_and_is_cut_across_segments_amid_its_conversion() {
    Server::each_with_extensions("segments amid conversions", &MAJORS, |server| {
        let settings = [("shared_buffers", "128MB"), ("cfs.convert_workers", "2")];
        let live = Live::start(server, &settings);
        live.sql("create table t (id int, w text) with (fillfactor = 20)");
        let grow = |from: u32| {
            live.sql(&format!("insert into t select i, repeat(md5(i::text), 40) from generate_series({from}, {from} + 149999) i"));
        };
        let check = |rows: &str| {
            assert_eq!(live.sql("select count(*) from t where w = repeat(md5(id::text), 40)"), rows);
        };
        grow(1);
        assert!(live.sql("select pg_relation_size('t')").parse::<u64>().unwrap() > 1 << 30);
        for to in To::BOTH {
            live.ask("t", to);
            live.wait_for_middle(5);
            grow(150_001);
            check("300000");
            live.sql("delete from t where id > 100000; vacuum t");
            check("100000");
            grow(150_001);
            live.wait("t");
            live.has_form("t", to);
            check("250000");
            live.sql("delete from t where id > 150000; vacuum t");
            live.cluster.kill().unwrap();
            live.cluster.start().unwrap();
            check("100000");
            grow(100_001);
            live.sql("delete from t where id > 150000");
        }
        live.is_clean();
    });
}

/// A dispatcher waits for no lock: it looks again.
#[test]
fn a_table_that_is_locked_is_converted_when_it_is_free() {
    on_each_major("locked tables", |live| {
        live.sql(&table("t", 3_000));
        live.sql(&table("free", 3_000));
        let psql = live.cluster.psql();
        let locker = std::thread::spawn(move || {
            psql.sql("begin; lock table t in access exclusive mode; select pg_sleep(4); commit").unwrap();
        });
        let locked =
            "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and relation = 't'::regclass";
        wait_until(PATIENCE, "the lock", || live.sql(locked) == "1").unwrap();
        live.ask("free", To::Container);
        live.sql("select cfs_compress_database('postgres')");
        live.wait("free");
        assert_eq!(live.sql(locked), "1", "the other table waited");
        locker.join().unwrap();
        live.wait("t");
        live.has_form("t", To::Container);
        std::thread::sleep(Duration::from_millis(10));
        live.is_clean();
    });
}
