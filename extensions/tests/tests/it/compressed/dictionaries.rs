//! Dictionaries that the server trains for its files: who gets one, what is written with it, and what becomes of the
//! rows.

use std::time::Duration;

use pgshrink_testkit::{Cluster, Server, Stop, wait_until};

use super::{Compressed, MAJORS, sum};

const SETTINGS: [(&str, &str); 2] = [("cfs.gc_period", "50ms"), ("shared_buffers", "16MB")];

/// Rows of phrases that a page repeats less often than the table does.
fn rows(table: &str, from: u32, to: u32) -> String {
    format!(
        "insert into {table} select i, (select string_agg(md5((hashint4(i * 8 + k) % 400)::text), ' ') \
         from generate_series(1, 3) k) from generate_series({from}, {to}) i; checkpoint"
    )
}

fn bytes(server: &Compressed, table: &str) -> u64 {
    server.sql(&format!("select cfs_relation_size('{table}')")).parse().unwrap()
}

/// What is stored, without space that is free or waits to be. Once it stays the same, as pages are stored anew in the background.
fn settled(server: &Compressed, table: &str) -> u64 {
    let query = format!(
        "select sum(live_bytes) from cfs_places p cross join lateral cfs_segments(p.tablespace, p.file) s
         where p.oid = '{table}'::regclass and s.fork = 'main'"
    );
    let mut last = 0;
    wait_for("a file that stays as it is", || {
        std::thread::sleep(Duration::from_millis(300));
        let found = server.sql(&query).parse().unwrap();
        std::mem::replace(&mut last, found) == found
    });
    last
}

fn dictionaries(server: &Compressed, table: &str) -> u32 {
    let query = format!(
        "select coalesce(sum(dictionaries), 0) from cfs_relations where relation = '{table}'::regclass"
    );
    server.sql(&query).parse().unwrap()
}

fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    wait_until(Duration::from_secs(60), what, condition).unwrap();
}

fn crash(cluster: &Cluster) {
    cluster.stop(Stop::Immediate).unwrap();
    cluster.start().unwrap();
}

#[test]
fn what_is_estimated_for_a_table_is_what_it_takes_once_it_is_packed() {
    Server::each_with_extensions("estimated sizes", &MAJORS, |server| {
        let server = Compressed::start(server, &SETTINGS);
        server.sql("create table lines (id int, line text)");
        server.sql(&rows("lines", 1, 60_000));
        let estimate =
            "select disk_bytes, dictionary from cfs_estimate('lines', 100000) where compression = 'zstd:1'";
        let estimate = server.sql(estimate);
        let estimated: f64 = estimate.strip_suffix("|t").unwrap().parse().unwrap();
        server.sql("select cfs_compress_relation('lines', 'zstd:1')");
        wait_for("a dictionary", || dictionaries(&server, "lines") > 0);
        let (mut last, mut same) = (0, 0);
        wait_for("a file that stays as it is", || {
            std::thread::sleep(Duration::from_millis(500));
            server.sql("checkpoint");
            let found = bytes(&server, "lines");
            same = if std::mem::replace(&mut last, found) == found { same + 1 } else { 0 };
            same == 6
        });
        let error = last as f64 / estimated - 1.0;
        assert!(error.abs() < 0.05, "{last} bytes, {estimated} estimated");
    });
}

#[test]
fn a_file_gets_a_dictionary_for_what_it_has_and_for_what_comes() {
    Server::each_with_extensions("dictionaries", &MAJORS, |server| {
        let server = Compressed::start(server, &SETTINGS);
        server.sql("create table lines (id int, line text) tablespace fast");
        server.sql(&rows("lines", 1, 40_000));
        let without = bytes(&server, "lines");
        wait_for("a dictionary", || dictionaries(&server, "lines") > 0);
        wait_for("pages stored anew with it", || {
            server.sql("checkpoint");
            bytes(&server, "lines") < without / 10 * 8
        });
        // What comes is written with it at once.
        let before = settled(&server, "lines");
        server.sql(&rows("lines", 40_001, 80_000));
        let more = settled(&server, "lines") - before;
        assert!(more < without / 10 * 8, "{more} for what took {without}");
        let rows = server.sql(&sum("lines"));
        crash(&server.cluster);
        assert_eq!(server.sql(&sum("lines")), rows);
        // Another algorithm that can use it, one that can't, and a level for which it is not yet prepared.
        for (part, compression) in ["lz4", "zlib:1", "zstd:9"].into_iter().enumerate() {
            server.sql(&format!("alter tablespace fast set (compression = '{compression}')"));
            server.sql(&format!("update lines set id = id where id % 7 = {part}; checkpoint"));
            crash(&server.cluster);
            assert_eq!(server.sql(&sum("lines")), rows, "{compression}");
        }
    });
}

/// The copy's pages are for the most part in buffers when it is converted, and come with the checkpoint.
#[test]
fn a_file_whose_pages_came_after_the_first_trial_gets_one_too() {
    Server::each_with_extensions("dictionaries for pages that come late", &MAJORS, |server| {
        let settings = [("cfs.gc_period", "50ms"), ("shared_buffers", "256MB")];
        let server = Compressed::start(server, &settings);
        let of = |database: &str, sql: &str| server.cluster.psql().database(database).sql(sql).unwrap();
        server.sql("create database whole");
        of("whole", "create extension cfs; create table lines (id int, line text)");
        of("whole", &rows("lines", 1, 120_000));
        server.sql("create database copied template whole");
        of("copied", "select cfs_compress_relation('lines', 'zstd:1'); select cfs_wait('lines')");
        // Time for trials that are too early.
        std::thread::sleep(Duration::from_secs(2));
        let count = "checkpoint; select dictionaries from cfs_relations where relation = 'lines'::regclass";
        wait_for("a dictionary", || of("copied", count) != "0");
    });
}

#[test]
fn a_dictionary_waits_for_pages_that_are_still_to_come() {
    Server::each_with_extensions("dictionaries of files that are being filled", &MAJORS, |server| {
        let settings = [("cfs.gc_period", "50ms"), ("shared_buffers", "256MB"), ("cfs.dictionaries", "off")];
        let server = Compressed::start(server, &settings);
        let looks = || -> u64 { server.sql("select sum(files_scanned) from cfs_stat_gc").parse().unwrap() };
        server.sql("create table lines (id int, line text) tablespace fast");
        server.sql(&rows("lines", 1, 40_000));
        // A fifth of the pages is in the server's buffers only.
        let more = |from: u32, to: u32| server.sql(rows("lines", from, to).trim_end_matches("; checkpoint"));
        more(40_001, 50_000);
        server.sql("alter system set cfs.dictionaries = on");
        server.cluster.reload().unwrap();
        let (before, mut from) = (looks(), 50_001);
        // It does not rest.
        while looks() < before + 60 {
            more(from, from + 199);
            from += 200;
        }
        assert_eq!(dictionaries(&server, "lines"), 0);
        server.sql("checkpoint");
        wait_for("a dictionary", || dictionaries(&server, "lines") > 0);
    });
}

#[test]
fn small_files_get_none_and_none_is_trained_while_that_is_off() {
    Server::each_with_extensions("no dictionaries", &MAJORS, |server| {
        let server = Compressed::start(server, &SETTINGS);
        server.sql("create table few (id int, line text) tablespace fast");
        server.sql(&rows("few", 1, 2_000));
        server.sql("alter system set cfs.dictionaries = off");
        server.cluster.reload().unwrap();
        // Until the collector has read it.
        std::thread::sleep(Duration::from_millis(500));
        server.sql("create table later (id int, line text) tablespace fast");
        server.sql(&rows("later", 1, 40_000));
        let looks = || -> u64 { server.sql("select sum(files_scanned) from cfs_stat_gc").parse().unwrap() };
        let before = looks();
        wait_for("some rounds of the collector", || looks() > before + 60);
        for table in ["few", "later"] {
            assert_eq!(dictionaries(&server, table), 0, "{table}");
        }
        server.sql("alter system reset cfs.dictionaries");
        server.cluster.reload().unwrap();
        wait_for("a dictionary", || dictionaries(&server, "later") > 0);
        assert_eq!(dictionaries(&server, "few"), 0);
    });
}

#[test]
fn what_recovery_wrote_in_a_hurry_is_stored_anew() {
    Server::each_with_extensions("recovery in a hurry", &MAJORS, |server| {
        let server = Compressed::start(server, &SETTINGS);
        server.sql("alter system set cfs.dictionaries = off");
        server.cluster.reload().unwrap();
        server.sql("create table lines (id int, line text) tablespace fast");
        server.sql(&rows("lines", 1, 60_000));
        let (before, rows) = (bytes(&server, "lines"), server.sql(&sum("lines")));
        // All pages are in the log, and none of what the log has is in the file.
        server.sql("update lines set id = id; vacuum lines; update lines set id = id");
        crash(&server.cluster);
        assert_eq!(server.sql(&sum("lines")), rows);
        server.sql("vacuum full lines; checkpoint");
        server.sql("update lines set id = id");
        crash(&server.cluster);
        assert_eq!(server.sql(&sum("lines")), rows);
        // Twice as many pages as at first. As recovery wrote them they take more than twice that.
        wait_for("a file as small as it was", || {
            server.sql("checkpoint");
            bytes(&server, "lines") < before * 5 / 2
        });
        assert_eq!(server.sql(&sum("lines")), rows);
    });
}
