//! Collection of garbage: what it frees and says, how large a file can get, standbys, base backups.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgshrink_testkit::{Cluster, Server, wait_until};

use super::{Compressed, MAJORS, on_each_major};

/// A table whose pages are written again and again, and take as much each time; half of each page is free.
const CHURNED: &str = "create table churned (id int primary key, v text) with (fillfactor = 45) tablespace fast;
    alter table churned alter v set storage plain;
    create function longer(v text, id int) returns text language sql immutable
        return md5(v || id) || md5(v || id || 'b') || md5(v || id || 'c') || md5(v || id || 'd') || md5(v || id || 'e') || md5(v || id || 'f');
    insert into churned select i, longer('', i) from generate_series(1, 15000) i";
const CHURN: &str = "update churned set v = longer(v, id); vacuum churned";
/// Writes a part of the pages anew, among others that stay; durable with the checkpoint.
fn scatter(which: u32) -> String {
    format!(
        "vacuum churned; checkpoint; update churned set v = longer(v, id) where id / 16 % 3 = {which}; checkpoint"
    )
}
/// Few buffers, so that pages are written at once; no checkpoint, so that nobody commits.
const SMALL: [(&str, &str); 3] =
    [("shared_buffers", "1MB"), ("checkpoint_timeout", "1h"), ("bgwriter_lru_maxpages", "0")];

/// What docs/operating/cfs.md promises of a file: with `cfs.gc_limit` at half, as much garbage as there are live bytes,
/// 4 MB at least, and a little.
fn ceiling(live: u64) -> u64 {
    live + live.max(4 << 20) + (2 << 20)
}

/// Where a relation's first container is, below the directory of `fast`.
fn container(server: &Compressed, relation: &str) -> PathBuf {
    let path = server.sql(&format!("select pg_relation_filepath('{relation}')"));
    let inside = path.split('/').skip(2).collect::<PathBuf>();
    server.location.path().join("fast").join(inside).join("segment.pgshrink")
}

/// The most that a file took on disk while `work` ran.
fn largest(file: &Path, work: impl FnOnce()) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = most.max(std::fs::metadata(file).unwrap().blocks() * 512);
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        work();
        is_done.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    })
}

/// Live bytes of the table's main fork.
const LIVE: &str =
    "select sum(s.live_bytes) from pg_class c, cfs_segments(c.reltablespace, pg_relation_filenode(c.oid)) s
    where c.oid = 'churned'::regclass and s.fork = 'main' and s.form = 'compressed'";

/// Updates the table, and checks that its file was never larger than is promised.
fn stays_below_its_ceiling(server: &Compressed, what: &str) {
    server.sql(CHURNED);
    let most = largest(&container(server, "churned"), || {
        (0..6).for_each(|_| drop(server.sql(CHURN)));
    });
    let written: u64 = server.sql("select sum(bytes_moved_by_writers) from cfs_stat_gc").parse().unwrap();
    // The most that lives at any time: both versions of every row.
    server.sql("update churned set v = longer(v, id); checkpoint");
    let live: u64 = server.sql(LIVE).parse().unwrap();
    println!("{what}: {most} bytes of {live} live ones, writers moved {written}");
    assert!(most <= ceiling(live), "{what}: {most} bytes of {live} live ones");
}

#[test]
fn a_file_stays_below_its_ceiling_when_nobody_collects() {
    Server::each_with_extensions("no collection", &MAJORS, |server| {
        let settings = [&SMALL[..], &[("cfs.gc", "off")]].concat();
        let server = Compressed::start(server, &settings);
        stays_below_its_ceiling(&server, "no collection");
        let helped = "select sum(commits_by_writers) > 0 from cfs_stat_gc";
        assert_eq!(server.sql(helped), "t");
        assert_eq!(server.sql("select count(*), count(distinct v) from churned"), "15000|15000");
    });
}

#[test]
fn a_file_stays_below_its_ceiling_when_collectors_are_slow() {
    Server::each_with_extensions("slow collection", &MAJORS, |server| {
        let slow = [("cfs.gc_rate", "64kB"), ("cfs.gc_period", "100ms")];
        let server = Compressed::start(server, &[&SMALL[..], &slow].concat());
        stays_below_its_ceiling(&server, "slow collection");
    });
}

#[test]
fn collectors_free_garbage_and_show_what_they_do() {
    Server::each_with_extensions("collectors at work", &MAJORS, |server| {
        let settings = [("cfs.gc_period", "50ms"), ("cfs.gc_rate", "16kB"), ("autovacuum", "off")];
        let server = Compressed::start(server, &settings);
        server.sql("select cfs_enable_gc(false)");
        server.sql(CHURNED);
        server.sql(&scatter(0));
        // A piece is followed by a rest of many seconds, until the rate is raised.
        server.sql("select cfs_enable_gc(true)");
        let shown = "select count(*) > 0 from cfs_gc_progress p join pg_stat_activity a using (pid)
            where p.relation in ('churned'::regclass, 'churned_pkey'::regclass) and p.tablespace = 'fast' and p.database = 'postgres'
            and p.phase = 'resting' and p.bytes_total > 0 and p.rate = 16384 and p.started > now() - interval '10 minutes'
            and a.query = 'collecting garbage of ' || p.path and a.state = 'active' and a.wait_event_type = 'Extension'";
        wait_until(Duration::from_secs(60), "a collector at work", || server.sql(shown) == "t").unwrap();
        server.cluster.set_conf("cfs.gc_rate", "0").unwrap();
        server.cluster.reload().unwrap();
        let done = "select cfs_garbage_ratio('churned') < 0.3 and files_collected > 0 and pages_moved > 0 and bytes_freed > 0
            and waited_ms > 0 and worked_ms > 0 and errors = 0 and stats_since < now() from cfs_stat_gc";
        wait_until(Duration::from_secs(60), "garbage to be collected", || server.sql(done) == "t").unwrap();
        wait_until(Duration::from_secs(60), "no file in hand", || {
            server.sql("select count(*) from cfs_gc_progress") == "0"
        })
        .unwrap();
        assert_eq!(server.sql("select count(*), count(distinct v) from churned"), "15000|15000");
    });
}

#[test]
fn functions_of_the_original_do_what_they_did() {
    on_each_major("functions of the original", |server| {
        assert_eq!(
            server.sql("select cfs_enable_gc(false), cfs_enable_gc(false), cfs_enable_gc(true)"),
            "t|f|f"
        );
        assert_eq!(server.sql("select cfs_enable_gc(false)"), "t");
        server.sql(CHURNED);
        server.sql(&scatter(0));
        let fragmented = "select cfs_fragmentation('churned') > 0.2 and cfs_garbage_ratio('churned') > 0.2";
        assert_eq!(server.sql(fragmented), "t");
        let count = "select cfs_gc_activity_scanned_files(), cfs_gc_activity_processed_files(),
            cfs_gc_activity_processed_pages(), cfs_gc_activity_processed_bytes()";
        assert_eq!(server.sql(count), "0|0|0|0");
        // Files, not bytes: the table's and its index's are separate relations.
        assert_eq!(server.sql("select cfs_gc_relation('churned'), cfs_gc_relation('churned')"), "1|0");
        assert_eq!(server.sql("select cfs_garbage_ratio('churned') < 0.15"), "t");
        server.sql(&scatter(1));
        // Files that nobody has open since the restart are collected too.
        server.cluster.set_conf("cfs.gc", "off").unwrap();
        server.cluster.restart().unwrap();
        assert_eq!(server.sql("select cfs_start_gc(2), cfs_enable_gc(true)"), "2|f");
        assert_eq!(
            server.sql(&format!(
                "with c(s, f, p, b) as ({count}) select s > 1, f > 0, p > 0, b > p * 500 from c"
            )),
            "t|t|t|t"
        );
        assert_eq!(
            server.sql("select cfs_garbage_ratio('churned') < 0.15, cfs_fragmentation('churned') < 0.2"),
            "t|t"
        );
        assert_eq!(server.sql("select cfs_version() ~ '^[0-9]+[.][0-9]+'"), "t");
    });
}

#[test]
fn who_may_collect_and_who_may_watch() {
    on_each_major("rights to collect", |server| {
        server.sql("create role nobody_special; create role watcher in role pg_monitor; create table t (i int) tablespace fast");
        for call in ["cfs_start_gc(1)", "cfs_enable_gc(true)", "cfs_gc_relation('t')", "cfs_gc_file(1, 1)"] {
            for role in ["nobody_special", "watcher"] {
                let said = server.fails(&format!("set role {role}; select {call}"));
                assert!(said.contains("42501"), "{call} as {role}: {said}");
            }
        }
        for view in ["cfs_gc_progress", "cfs_stat_gc"] {
            assert!(server.fails(&format!("set role nobody_special; table {view}")).contains("42501"));
            server.sql(&format!("set role watcher; select count(*) from {view}"));
        }
        server.sql("set role nobody_special; select cfs_gc_activity_scanned_files(), cfs_fragmentation('t')");
        if server.sql("select current_setting('server_version_num')::int >= 170000") == "t" {
            server.sql("create role maintainer in role pg_maintain");
            server.sql("set role maintainer; select cfs_gc_relation('t'), cfs_start_gc(1)");
        }
    });
}

#[test]
fn what_a_collector_cannot_do_is_kept_with_its_reason() {
    on_each_major("errors of collection", |server| {
        server.sql("select cfs_enable_gc(false)");
        server.sql(CHURNED);
        server.sql(&scatter(0));
        let container = container(server, "churned");
        server.cluster.stop(pgshrink_testkit::Stop::Fast).unwrap();
        let bytes = std::fs::read(&container).unwrap();
        // All three roots.
        let damaged: Vec<u8> = [vec![0x55; 12 << 10], bytes[12 << 10..].to_vec()].concat();
        std::fs::write(&container, damaged).unwrap();
        server.cluster.set_conf("cfs.gc_period", "10ms").unwrap();
        server.cluster.start().unwrap();
        let said = "select errors > 0, last_error ~ 'segment', last_error_at > stats_since from cfs_stat_gc";
        wait_until(Duration::from_secs(60), "an error", || server.sql(said) == "t|t|t").unwrap();
        std::fs::write(&container, bytes).unwrap();
        assert_eq!(server.sql("select count(*) from churned"), "15000");
    });
}

/// Waits until a standby has replayed what the primary has written.
fn catch_up(primary: &Compressed, standby: &Cluster) {
    let here = primary.sql("select pg_current_wal_lsn()");
    let replayed = format!("select pg_last_wal_replay_lsn() >= '{here}'");
    wait_until(Duration::from_secs(60), "the standby", || {
        standby.sql(&replayed).is_ok_and(|said| said == "t")
    })
    .unwrap();
}

#[test]
fn a_standby_collects_its_own_files_and_keeps_their_ceiling() {
    Server::each_with_extensions("collection on a standby", &MAJORS, |server| {
        // Both in one machine: a tablespace's location is the same path for both, so it is inside the data directory.
        let inside = [("allow_in_place_tablespaces", "on"), ("cfs.gc_period", "20ms"), ("cfs.gc", "off")];
        let primary = Compressed::start(server, &[&SMALL[..], &inside].concat());
        primary.sql("drop tablespace fast");
        primary.sql("create tablespace fast location '' with (compression = 'zstd:1')");
        let standby = primary.cluster.standby().start().unwrap();
        primary.sql(CHURNED);
        catch_up(&primary, &standby);
        let file = standby.data_dir().join(standby.sql("select pg_relation_filepath('churned')").unwrap());
        let most = largest(&file.join("segment.pgshrink"), || {
            for _ in 0..4 {
                primary.sql(CHURN);
                catch_up(&primary, &standby);
            }
        });
        primary.sql("update churned set v = longer(v, id); checkpoint");
        catch_up(&primary, &standby);
        standby.sql("checkpoint").unwrap();
        let live: u64 = standby.sql(LIVE).unwrap().parse().unwrap();
        println!("standby: {most} bytes of {live} live ones");
        assert!(most <= ceiling(live), "{most} bytes of {live} live ones");
        // Garbage that lies among live pages, in a file that nobody opens after the restart.
        primary.sql("vacuum churned; checkpoint; update churned set v = longer(v, id) where id / 16 % 3 = 0; checkpoint");
        catch_up(&primary, &standby);
        standby.sql("checkpoint").unwrap();
        standby.set_conf("cfs.gc", "on").unwrap();
        standby.restart().unwrap();
        let collected = "select pg_is_in_recovery() and sum(files_collected) > 0 and sum(pages_moved) > 0 from cfs_stat_gc";
        wait_until(Duration::from_secs(60), "the standby's collector", || {
            standby.sql(collected).is_ok_and(|said| said == "t")
        })
        .unwrap();
        assert_eq!(standby.sql("select cfs_start_gc(1), cfs_gc_relation('churned') >= 0").unwrap(), "1|t");
        let rows = super::sum("churned");
        assert_eq!(standby.sql(&rows).unwrap(), primary.sql(&rows));
        standby.promote().unwrap();
        standby.sql(CHURN).unwrap();
        assert_eq!(standby.sql("select count(*), count(distinct v) from churned").unwrap(), "15000|15000");
    });
}

#[test]
fn a_base_backup_of_files_that_are_being_collected_is_whole_and_holds_up_nothing() {
    Server::each_with_extensions("collection during a base backup", &MAJORS, |server| {
        let busy = [("cfs.gc_period", "10ms"), ("cfs.gc_threshold", "5"), ("cfs.gc_rate", "0")];
        let server = Compressed::start(server, &[&SMALL[..], &busy].concat());
        server.sql(CHURNED);
        server.sql(
            "create table pairs (id int primary key, n int) tablespace fast;
            insert into pairs select i, 0 from generate_series(1, 5000) i; checkpoint",
        );
        let owner = server.cluster.owner();
        let (backup, copied) = (server.location.path().join("backup"), server.location.path().join("copied"));
        let mut command = owner.command(server.cluster.server().program("pg_basebackup"));
        command.args(["-X", "stream", "-c", "fast", "--no-sync", "-r", "20M", "-D"]).arg(&backup);
        command.arg("-T").arg(format!(
            "{}={}",
            server.location.path().join("fast").display(),
            copied.display()
        ));
        command.arg("-d").arg(server.cluster.conninfo_unix("postgres"));
        let moved = || server.sql("select sum(pages_moved) from cfs_stat_gc").parse::<u64>().unwrap();
        let before = moved();
        let is_done = AtomicBool::new(false);
        let most = largest(&container(&server, "churned"), || {
            std::thread::scope(|scope| {
                let load = scope.spawn(|| {
                    for round in 0.. {
                        if is_done.load(Ordering::Relaxed) {
                            break;
                        }
                        // In any state that a backup can be of, all pairs have one sum.
                        server.sql(&format!(
                            "begin; update pairs set n = n + 1 where id % 50 = {0}; update pairs set n = n - 1 where id % 50 = {1}; commit;
                            update churned set v = longer(v, id) where id / 16 % 7 = {2}; vacuum churned",
                            round % 50, (round + 1) % 50, round % 7
                        ));
                    }
                });
                pgshrink_testkit::run::output(&mut command).unwrap();
                is_done.store(true, Ordering::Relaxed);
                load.join().unwrap();
            });
        });
        let pages = moved() - before;
        assert!(pages > 0, "nothing was collected during the backup");
        server.sql("update churned set v = longer(v, id); checkpoint");
        let live: u64 = server.sql(LIVE).parse().unwrap();
        println!("backup: {most} bytes of {live} live ones, {pages} pages moved");
        assert!(most <= ceiling(live), "{most} bytes of {live} live ones");
        let mut single = owner.command(server.cluster.server().program("postgres"));
        single.args(["--single", "-c", "shared_preload_libraries=cfs", "-D"]).arg(&backup).arg("postgres");
        let query = "select 'pairs ' || count(*) || ' ' || sum(n) || ' ' || (select count(*) from churned where length(v) = 192) as said from pairs\n";
        let said = pgshrink_testkit::run::output_with_input(&mut single, query.as_bytes()).unwrap();
        assert!(said.contains("\"pairs 5000 0 15000\""), "{said}");
    });
}
