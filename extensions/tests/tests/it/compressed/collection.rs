//! Collection of garbage: what it frees and says, how large a file can get, standbys, base backups.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgshrink_testkit::{Server, wait_until};

use super::{Compressed, MAJORS, on_each_major};

/// A table whose pages are written again and again, and take as much each time; half of each page is free.
const CHURNED: &str =
    "create table churned (id int primary key, v text) with (fillfactor = 45) tablespace fast;
    insert into churned select i, md5(i::text) || md5((-i)::text) from generate_series(1, 30000) i";
const CHURN: &str = "update churned set v = md5(v) || md5(v || id); vacuum churned";
/// Few buffers, so that pages are written at once; no checkpoint, so that nobody commits.
const SMALL: [(&str, &str); 3] =
    [("shared_buffers", "1MB"), ("checkpoint_timeout", "1h"), ("bgwriter_lru_maxpages", "0")];

/// What docs/operating/cfs.md promises of a file: with `cfs.gc_limit` at half, as much garbage as there are live bytes,
/// 4 MB at least, and a little.
fn ceiling(live: u64) -> u64 {
    live + live.max(4 << 20) + (2 << 20)
}

/// Bytes on disk of all containers below a directory.
fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
        Ok(found) if entry.file_name() == "segment.pgshrink" => found.blocks() * 512,
        _ => 0,
    };
    entries.flatten().map(bytes).sum()
}

/// The most that the containers below a directory took while `work` ran.
fn largest(directory: &Path, work: impl FnOnce()) -> u64 {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = most.max(disk_bytes(directory));
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        work();
        is_done.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    })
}

/// Live bytes of all that is compressed in this database.
const LIVE: &str = "select coalesce(sum(s.live_bytes), 0) from pg_class c, cfs_segments(c.reltablespace, pg_relation_filenode(c.oid)) s
    where c.reltablespace <> 0 and c.relfilenode <> 0 and s.form = 'compressed'";

/// Updates the table, and checks that its file was never larger than is promised.
fn stays_below_its_ceiling(server: &Compressed, what: &str) {
    server.sql(CHURNED);
    let files = server.location.path().join("fast");
    let rounds = 12;
    let most = largest(&files, || {
        for _ in 0..rounds {
            server.sql(CHURN);
        }
    });
    let written: u64 = server.sql("select sum(bytes_moved_by_writers) from cfs_stat_gc").parse().unwrap();
    server.sql("checkpoint");
    let live: u64 = server.sql(LIVE).parse().unwrap();
    println!("{what}: {most} bytes of {live} live ones, writers moved {written}");
    assert!(most <= ceiling(live), "{what}: {most} bytes of {live} live ones");
    assert!(most > live * 3 / 2, "{what}: there was no garbage");
}

#[test]
fn a_file_stays_below_its_ceiling_when_nobody_collects() {
    Server::each_with_extensions("no collection", &MAJORS, |server| {
        let settings = [&SMALL[..], &[("cfs.gc", "off")]].concat();
        let server = Compressed::start(server, &settings);
        stays_below_its_ceiling(&server, "no collection");
        let helped = "select sum(commits_by_writers) > 0 from cfs_stat_gc";
        assert_eq!(server.sql(helped), "t");
        assert_eq!(server.sql("select count(*), count(distinct v) from churned"), "30000|30000");
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
        let settings = [("cfs.gc_period", "50ms"), ("cfs.gc_rate", "256kB"), ("autovacuum", "off")];
        let server = Compressed::start(server, &settings);
        server.sql(CHURNED);
        server.sql("checkpoint; update churned set v = md5(v) || md5(v || id) where id % 3 = 0; checkpoint");
        let shown = "select count(*) > 0 from cfs_gc_progress p join pg_stat_activity a using (pid)
            where p.relation in ('churned'::regclass, 'churned_pkey'::regclass) and p.tablespace = 'fast' and p.database = 'postgres'
            and p.phase = 'resting' and p.bytes_total > 0 and p.rate = 262144 and p.started > now() - interval '1 minute'
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
        assert_eq!(server.sql("select count(*), count(distinct v) from churned"), "30000|30000");
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
        server.sql("checkpoint; update churned set v = md5(v) || md5(v || id) where id % 3 = 0; checkpoint");
        let fragmented = "select cfs_fragmentation('churned') > 0.2 and cfs_garbage_ratio('churned') > 0.2";
        assert_eq!(server.sql(fragmented), "t");
        let count = "select cfs_gc_activity_scanned_files(), cfs_gc_activity_processed_files(),
            cfs_gc_activity_processed_pages(), cfs_gc_activity_processed_bytes()";
        assert_eq!(server.sql(count), "0|0|0|0");
        // Files, not bytes: the table's and its index's are separate relations.
        assert_eq!(server.sql("select cfs_gc_relation('churned'), cfs_gc_relation('churned')"), "1|0");
        assert_eq!(server.sql("select cfs_garbage_ratio('churned') < 0.15"), "t");
        server.sql("update churned set v = md5(v) || md5(v || id) where id % 3 = 1; checkpoint");
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
        server.sql("checkpoint; update churned set v = md5(v) || md5(v || id) where id % 3 = 0; checkpoint");
        let file = server.sql("select pg_relation_filenode('churned')");
        server.cluster.stop(pgshrink_testkit::Stop::Fast).unwrap();
        let container =
            server.containers().into_iter().find(|path| path.ends_with(&format!("/{file}"))).unwrap();
        let version =
            std::fs::read_dir(server.location.path().join("fast")).unwrap().next().unwrap().unwrap();
        let container = version.path().join(container).join("segment.pgshrink");
        let bytes = std::fs::read(&container).unwrap();
        // All three roots.
        let damaged: Vec<u8> = [vec![0x55; 12 << 10], bytes[12 << 10..].to_vec()].concat();
        std::fs::write(&container, damaged).unwrap();
        server.cluster.set_conf("cfs.gc_period", "10ms").unwrap();
        server.cluster.start().unwrap();
        let said = "select errors > 0, last_error ~ 'segment', last_error_at > stats_since from cfs_stat_gc";
        wait_until(Duration::from_secs(60), "an error", || server.sql(said) == "t|t|t").unwrap();
        std::fs::write(&container, bytes).unwrap();
        assert_eq!(server.sql("select count(*) from churned"), "30000");
    });
}
