//! Databases that are copied, moved and dropped while relations in them change their form.

use std::time::{Duration, Instant};

use pgshrink_testkit::{Psql, Server, wait_until};

use super::{Live, MAJORS, PATIENCE, sum, table};

/// A database `d` with a table amid its conversion.
fn amid(live: &Live) -> String {
    live.sql("create database d");
    let d = || live.cluster.psql().database("d");
    d().sql(&format!("create extension cfs; {}", table("t", 12_000))).unwrap();
    let expected = d().sql(&sum("t")).unwrap();
    live.set(&[("cfs.convert_rate", "4MB")]);
    d().sql("select cfs_compress_relation('t')").unwrap();
    live.wait_for_middle(5);
    expected
}

fn of(live: &Live, database: &str) -> Psql {
    live.cluster.psql().database(database)
}

#[track_caller]
fn is(live: &Live, database: &str, expected: &str) {
    assert_eq!(of(live, database).sql(&sum("t")).unwrap(), expected, "{database}");
}

fn on_each_major(test: &str, mut run: impl FnMut(&Live)) {
    Server::each_with_extensions(test, &MAJORS, |server| run(&Live::start(server, &[])));
}

#[test]
fn a_database_of_more_files_than_are_converted_at_once_changes_its_form_and_back() {
    Server::each_with_extensions("many files of a database", &MAJORS, |server| {
        let live = Live::start(server, &[("cfs.convert_workers", "4"), ("cfs.naptime", "1s")]);
        live.sql("do $$ begin for n in 1..120 loop
            execute format('create table m%s as select i, repeat(md5(i::text), 20) from generate_series(1, 200) i', n);
            end loop; end $$");
        let left = |form: &str| {
            format!(
                "select count(*) from pg_class c, cfs_segments(1663, pg_relation_filenode(c.oid)) s
                where c.relname ~ '^m[0-9]+$' and s.fork = 'main' and s.form <> '{form}'"
            )
        };
        for (call, form) in [("cfs_compress_database", "compressed"), ("cfs_decompress_database", "plain")] {
            live.sql(&format!("select {call}('postgres')"));
            wait_until(PATIENCE, "all files", || live.sql(&left(form)) == "0")
                .unwrap_or_else(|error| panic!("{error} {call}: {}", live.progress()));
        }
        live.is_clean();
    });
}

#[test]
fn a_database_that_lets_nobody_connect_changes_its_form_and_back() {
    on_each_major("databases that allow no connections", |live| {
        live.sql("create database d");
        of(live, "d").sql(&table("t", 12_000)).unwrap();
        let expected = of(live, "d").sql(&sum("t")).unwrap();
        let path = of(live, "d").sql("select pg_relation_filepath('t')").unwrap();
        let path = live.cluster.data_dir().join(path);
        live.sql("alter database d with allow_connections false");
        for (setting, is_container) in [("zstd:1", true), ("none", false)] {
            live.set(&[("cfs.node_compression", setting)]);
            let is_done =
                || path.is_dir() == is_container && live.sql("select count(*) from cfs_progress") == "0";
            wait_until(PATIENCE, "the conversion", is_done).unwrap_or_else(|error| {
                panic!("{error} {setting}: {}\n{}", live.progress(), live.end_of_log())
            });
        }
        assert!(!live.cluster.log().unwrap().contains("FATAL:"), "{}", live.end_of_log());
        live.sql("alter database d with allow_connections true");
        is(live, "d", &expected);
        live.is_clean();
    });
}

#[test]
fn a_database_is_copied_amid_a_conversion_by_either_strategy() {
    on_each_major("copies of databases amid conversions", |live| {
        let expected = amid(live);
        for strategy in ["wal_log", "file_copy"] {
            live.sql(&format!("create database {strategy} template d strategy {strategy}"));
            is(live, strategy, &expected);
        }
        live.set(&[("cfs.convert_rate", "0")]);
        for database in ["d", "wal_log", "file_copy"] {
            // Labels came with the copy; this is for at once.
            of(live, database).sql("select cfs_compress_relation('t')").unwrap();
            assert_eq!(of(live, database).sql("select cfs_wait('t', '100 s')").unwrap(), "t", "{database}");
            is(live, database, &expected);
            assert_eq!(
                of(live, database).sql("select cfs_relation_size('t') < pg_relation_size('t') / 2").unwrap(),
                "t",
                "{database}"
            );
        }
        live.cluster.kill().unwrap();
        live.cluster.start().unwrap();
        ["d", "wal_log", "file_copy"].into_iter().for_each(|database| is(live, database, &expected));
        live.is_clean();
    });
}

#[test]
#[ignore = "minutes on a busy machine: make soak"]
fn a_database_moves_to_another_tablespace_and_back_amid_a_conversion() {
    on_each_major("moves of databases amid conversions", |live| {
        let expected = amid(live);
        live.sql("create tablespace other location ''");
        for place in ["other", "pg_default"] {
            live.sql(&format!("alter database d set tablespace {place}"));
            is(live, "d", &expected);
            // For at once.
            of(live, "d").sql("select cfs_compress_relation('t')").unwrap();
            wait_until(PATIENCE, "the conversion to begin again", || {
                of(live, "d")
                    .sql("select count(*) > 0 or cfs_wait('t', '0') from cfs_progress where pages_done > 0")
                    .unwrap()
                    == "t"
            })
            .unwrap_or_else(|error| panic!("{error}: {place}\n{}", live.end_of_log()));
        }
        live.set(&[("cfs.convert_rate", "0")]);
        let is_done = of(live, "d").sql("select cfs_wait('t', '100 s')").unwrap();
        assert_eq!(is_done, "t", "{}\n{}", live.progress(), live.end_of_log());
        is(live, "d", &expected);
        live.cluster.kill().unwrap();
        live.cluster.start().unwrap();
        is(live, "d", &expected);
        live.sql("drop tablespace other");
        live.is_clean();
    });
}

#[test]
fn a_database_is_dropped_within_seconds_amid_a_conversion_and_leaves_nothing() {
    on_each_major("dropped databases amid conversions", |live| {
        for drop in ["drop database d", "drop database d with (force)"] {
            amid(live);
            let folder = live
                .cluster
                .data_dir()
                .join("base")
                .join(live.sql("select oid from pg_database where datname = 'd'"));
            assert!(folder.is_dir());
            let begun = Instant::now();
            live.sql(drop);
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(10), "{took:?}");
            assert!(
                !folder.exists(),
                "{:?}",
                std::fs::read_dir(&folder).unwrap().flatten().collect::<Vec<_>>()
            );
            wait_until(PATIENCE, "the conversions to end", || {
                live.sql("select count(*) from cfs_progress") == "0"
            })
            .unwrap_or_else(|error| panic!("{error}\n{}", live.progress()));
            live.set(&[("cfs.convert_rate", "0")]);
        }
        live.sql("checkpoint");
        live.cluster.kill().unwrap();
        live.cluster.start().unwrap();
        live.is_clean();
    });
}
