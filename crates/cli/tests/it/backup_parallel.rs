//! `pgshrink backup --route parallel` with real servers.

use crate::backup::{Running, SUMS, backup, boot, done, give, refused, repository, restored, start};
use pgshrink_testkit::{Cluster, Server, ServerBinaries, Stop, TempDir};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STREAM: [&str; 2] = ["--compression", "none"];
const PARALLEL: [&str; 4] = ["--route", "parallel", "--connections", "3"];

/// A parallel backup that is slow enough for something to happen meanwhile.
fn spawn(conninfo: &str, repository: &str, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(["backup", conninfo, "--to", repository, "--checkpoint", "fast", "-q"]).args(PARALLEL);
    command.args(words).stderr(Stdio::piped()).spawn().unwrap()
}

/// It must end soon, with an error, and leave nothing.
#[track_caller]
fn ends_with_an_error(child: Child, repository: &str) -> String {
    let began = Instant::now();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}: {text}", began.elapsed());
    assert!(!text.contains("another thread failed"), "{text}");
    assert!(none_is_whole(repository), "what it had written is no backup: {text}");
    text
}

/// Whether all backups of a repository are incomplete, if there are any.
fn none_is_whole(repository: &str) -> bool {
    let backups = fs::read_dir(repository).into_iter().flatten().map(|entry| entry.unwrap().path());
    { backups }.all(|backup| !backup.join("backup_manifest").exists())
}

#[track_caller]
fn wait_for(cluster: &Cluster, sql: &str) {
    let began = Instant::now();
    while cluster.sql(sql).unwrap() != "t" {
        assert!(began.elapsed() < Duration::from_secs(60), "{sql}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// PostgreSQL's own check of a restored directory. That of 18 may not run here.
fn verify_backup(server: &ServerBinaries, directory: &Path) {
    if server.major > 16 {
        return;
    }
    let output = server.command("pg_verifybackup").arg(directory).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
}

#[test]
fn a_parallel_backup_is_restored_to_a_server_that_answers() {
    Server::each("parallel backup and restore", &[15, 16, 18], |server| {
        let cluster = start(server);
        let keep = TempDir::new().unwrap();
        let expected = cluster.sql(SUMS).unwrap();
        let name = backup(&cluster, &repository(&keep), &PARALLEL);
        assert_eq!(done(&["verify", &name, "--from", &repository(&keep)])["backup"], name);
        let copy = boot(server, |into| {
            done(&["restore", &name, "--from", &repository(&keep), "--into", into.to_str().unwrap()]);
            verify_backup(server, into);
        });
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
        assert_eq!(copy.sql("select count(*) from unlogged").unwrap(), "0");
        copy.sql("insert into t values (0, 0, ''); vacuum t").unwrap();
    });
}

/// Size and checksum of each file of a backup's manifest, and the directories of its record.
fn content(repository: &str, name: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let read = |object: &str| -> Value {
        serde_json::from_slice(&fs::read(Path::new(repository).join(name).join(object)).unwrap()).unwrap()
    };
    let (manifest, record) = (read("backup_manifest"), read("backup.json"));
    let files = manifest["Files"].as_array().unwrap().iter().map(|file| {
        let path = file["Path"].as_str().unwrap().to_owned();
        assert_eq!(file["Checksum-Algorithm"], "CRC32C");
        // These two are of the backup itself.
        if path == "backup_label" || path == "global/pg_control" {
            return (path, String::new());
        }
        // Each checkpoint writes those anew.
        let modified = if path.starts_with("pg_logical/") { &Value::Null } else { &file["Last-Modified"] };
        let facts = format!("{} {} {modified}", file["Size"], file["Checksum"]);
        (path, facts)
    });
    let mut directories: Vec<String> = record["record"]["directories"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path.as_str().unwrap().to_owned())
        .collect();
    directories.sort();
    (files.collect(), directories)
}

#[test]
fn a_quiet_server_gives_the_same_files_on_both_routes() {
    Server::each("routes of backups", &[15, 16, 18], |server| {
        let cluster = start(server);
        cluster.set_conf("autovacuum", "off").unwrap();
        cluster.set_conf("allow_in_place_tablespaces", "on").unwrap();
        cluster.reload().unwrap();
        let home = cluster.data_dir().parent().unwrap().to_owned();
        let owner = fs::metadata(&home).unwrap();
        let place = home.join("a space");
        fs::create_dir(&place).unwrap();
        give(&place, owner.uid(), owner.gid());
        cluster.sql(&format!("create tablespace one location '{}'", place.display())).unwrap();
        cluster.sql("create table in_one (n int) tablespace one; create index on in_one (n)").unwrap();
        // In 16 and later, BASE_BACKUP lists these as tablespaces, which backups do not take yet.
        if server.major < 16 {
            cluster.sql("create tablespace two location ''").unwrap();
            cluster.sql("create table in_two (n int) tablespace two; create index on in_two (n)").unwrap();
        }
        // What lies about in data directories.
        let data = cluster.data_dir();
        fs::create_dir_all(data.join("mine/it's/empty")).unwrap();
        fs::create_dir_all(data.join("base/pgsql_tmp")).unwrap();
        fs::write(data.join("base/pgsql_tmp/pgsql_tmp1.0"), b"x").unwrap();
        fs::write(data.join("mine/50% \\ \"of\" it's all_init"), vec![7; 524_288]).unwrap();
        fs::write(data.join("mine/long"), vec![9; 524_289]).unwrap();
        fs::write(data.join("backup_label.old"), b"kept").unwrap();
        fs::write(data.join("tablespace_map"), b"left out").unwrap();
        fs::write(data.join("base/5/t3_16999"), b"temporary").unwrap();
        give(&data, owner.uid(), owner.gid());
        cluster.sql("checkpoint").unwrap();
        let keep = TempDir::new().unwrap();
        let streamed = backup(&cluster, &repository(&keep), &STREAM);
        let parallel = backup(&cluster, &repository(&keep), &PARALLEL);
        let (streamed, parallel) =
            (content(&repository(&keep), &streamed), content(&repository(&keep), &parallel));
        for (path, facts) in &streamed.0 {
            assert_eq!(parallel.0.get(path), Some(facts), "{path}");
        }
        let more: Vec<_> = parallel.0.keys().filter(|path| !streamed.0.contains_key(*path)).collect();
        assert_eq!(more, [""; 0]);
        assert!(streamed.0.keys().any(|path| path.starts_with("pg_tblspc/")));
        assert_eq!(streamed.1, parallel.1);
    });
}

/// Runs statements in a loop until it is dropped.
fn load(cluster: &Cluster, script: &str, clients: &str) -> Running {
    let file = cluster.data_dir().parent().unwrap().join("load.sql");
    fs::write(&file, script).unwrap();
    let mut pgbench = cluster.command("pgbench");
    pgbench.args(["-n", "-c", clients, "-T", "120", "-f"]).arg(&file).arg(cluster.conninfo("postgres"));
    Running(pgbench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn check_indexes(copy: &Cluster) {
    if copy.sql("select count(*) from pg_available_extensions where name = 'amcheck'").unwrap() == "1" {
        copy.sql(
            "create extension amcheck;
             select bt_index_check(c.oid, true) from pg_class c join pg_am a on a.oid = c.relam
               where a.amname = 'btree' and c.relkind = 'i' and c.relpersistence = 'p';
             select count(*) from pg_class c, verify_heapam(c.oid) where c.relkind in ('r', 't')
               and c.relpersistence = 'p' having count(*) > 0",
        )
        .unwrap();
    }
}

#[test]
fn a_parallel_backup_under_load_has_all_that_was_committed_before_it_ended() {
    Server::each("parallel backup under load", &[15, 18], |server| {
        let cluster = start(server);
        cluster.sql("create table log (n bigserial primary key, filler text)").unwrap();
        let script = "insert into log (filler) select repeat('x', 200) from generate_series(1, 50); \
                      update t set note = note || 'y' where n % 1000 = (random() * 999)::int;";
        let mut pgbench = load(&cluster, script, "2");
        wait_for(&cluster, "select count(*) > 500 from log");
        let keep = TempDir::new().unwrap();
        let before: u64 = cluster.sql("select max(n) from log").unwrap().parse().unwrap();
        let words = [&PARALLEL[..], &["--max-rate", "20000"]].concat();
        let name = backup(&cluster, &repository(&keep), &words);
        let after: u64 = cluster.sql("select max(n) from log").unwrap().parse().unwrap();
        assert!(pgbench.0.try_wait().unwrap().is_none(), "there was load to the end");
        drop(pgbench);
        let copy = restored(server, &repository(&keep), &name, &[]);
        let count: u64 = copy.sql("select count(*) from log").unwrap().parse().unwrap();
        assert!(before <= count && count <= after, "{before} {count} {after}");
        assert_eq!(copy.sql("select count(*) from t").unwrap(), "60000");
        check_indexes(&copy);
    });
}

#[test]
fn files_may_vanish_shrink_and_grow_while_they_are_read() {
    Server::each("files that change under a parallel backup", &[15, 18], |server| {
        let cluster = start(server);
        cluster
            .sql("create table shrinks (n int); create table grows (n int, filler text); create table all_of_it (n int)")
            .unwrap();
        let script = "\\set n random(1, 1000000)\n\
            create table gone_:n as select n, repeat('x', 100) from generate_series(1, 20000) n;\n\
            insert into shrinks select generate_series(1, 30000);\n\
            insert into grows select n, repeat('g', 500) from generate_series(1, 500) n;\n\
            truncate shrinks;\n\
            drop table gone_:n;\n\
            insert into all_of_it values (1);\n";
        let mut pgbench = load(&cluster, script, "1");
        wait_for(&cluster, "select count(*) > 3 from all_of_it");
        let keep = TempDir::new().unwrap();
        let words = [&PARALLEL[..], &["--max-rate", "10000"]].concat();
        let before: u64 = cluster.sql("select count(*) from all_of_it").unwrap().parse().unwrap();
        let name = backup(&cluster, &repository(&keep), &words);
        let after: u64 = cluster.sql("select count(*) from all_of_it").unwrap().parse().unwrap();
        assert!(after > before + 2, "files changed meanwhile: {before} {after}");
        assert!(pgbench.0.try_wait().unwrap().is_none());
        drop(pgbench);
        let copy = boot(server, |into| {
            done(&["restore", &name, "--from", &repository(&keep), "--into", into.to_str().unwrap()]);
            verify_backup(server, into);
        });
        let count: u64 = copy.sql("select count(*) from all_of_it").unwrap().parse().unwrap();
        assert!(before <= count && count <= after, "{before} {count} {after}");
        assert_eq!(copy.sql("select count(*) % 500 from grows").unwrap(), "0");
        check_indexes(&copy);
    });
}

#[test]
fn tablespaces_of_a_parallel_backup_go_where_they_are_mapped() {
    Server::each("tablespaces of parallel backups", &[15, 18], |server| {
        let cluster = start(server);
        let home = cluster.data_dir().parent().unwrap().to_owned();
        let owner = fs::metadata(&home).unwrap();
        let place = home.join("space one");
        fs::create_dir(&place).unwrap();
        give(&place, owner.uid(), owner.gid());
        cluster.sql(&format!("create tablespace one location '{}'", place.display())).unwrap();
        cluster.sql("create table there tablespace one as select n from generate_series(1, 5000) n").unwrap();
        let keep = TempDir::new().unwrap();
        let name = backup(&cluster, &repository(&keep), &PARALLEL);
        let moved = home.join("moved");
        let mapping = format!("{}={}", place.display(), moved.display());
        let copy = boot(server, |into| {
            let words = ["restore", &name, "--from", &repository(&keep), "--into", into.to_str().unwrap()];
            done(&[&words[..], &["--tablespace-mapping", &mapping]].concat());
            verify_backup(server, into);
            give(&moved, owner.uid(), owner.gid());
        });
        assert_eq!(copy.sql("select sum(n) from there").unwrap(), "12502500");
        let place =
            copy.sql("select pg_tablespace_location(oid) from pg_tablespace where spcname = 'one'").unwrap();
        assert_eq!(place, moved.to_str().unwrap());
    });
}

/// As `docs/operating/backup.md` lists them.
const GRANTS: [&str; 5] = [
    "pg_backup_start(text, boolean)",
    "pg_backup_stop(boolean)",
    "pg_ls_dir(text, boolean, boolean)",
    "pg_read_binary_file(text, bigint, bigint, boolean)",
    "pg_stat_file(text, boolean)",
];

#[test]
fn a_role_with_the_rights_of_the_manual_takes_a_parallel_backup_and_without_each_none_is_begun() {
    Server::each("rights of parallel backups", &[15, 16, 18], |server| {
        let cluster = start(server);
        let home = cluster.data_dir().parent().unwrap().to_owned();
        let owner = fs::metadata(&home).unwrap();
        let place = home.join("space");
        fs::create_dir(&place).unwrap();
        give(&place, owner.uid(), owner.gid());
        cluster.sql(&format!("create tablespace one location '{}'", place.display())).unwrap();
        cluster.sql("create table there tablespace one as select n from generate_series(1, 5000) n").unwrap();
        cluster.sql("create role \"Back up\" login").unwrap();
        let conninfo = cluster.conninfo("postgres").replace("user='postgres'", "user='Back up'");
        let keep = TempDir::new().unwrap();
        let words =
            ["backup", &conninfo, "--to", &repository(&keep), "--checkpoint", "fast"].map(str::to_owned);
        let words: Vec<&str> = words.iter().map(String::as_str).chain(PARALLEL).collect();
        let text = refused(&words);
        let orders: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        assert_eq!(orders.len(), 6, "{text}");
        assert!(orders.contains(&"ALTER ROLE \"Back up\" REPLICATION;"), "{text}");
        cluster.sql(&orders.concat()).unwrap();
        for function in GRANTS {
            assert!(text.contains(&format!("FUNCTION pg_catalog.{function} TO \"Back up\";")), "{text}");
            cluster.sql(&format!("revoke execute on function {function} from \"Back up\"")).unwrap();
            let text = refused(&words);
            let orders: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
            assert!(orders.len() == 1 && orders[0].contains(function), "{text}");
            cluster.sql(orders[0]).unwrap();
        }
        assert_eq!(fs::read_dir(repository(&keep)).map_or(0, Iterator::count), 0, "nothing was begun");
        let name = done(&words)["backup"].as_str().unwrap().to_owned();
        let mapping = format!("{}={}", place.display(), home.join("moved").display());
        let copy = boot(server, |into| {
            let words = ["restore", &name, "--from", &repository(&keep), "--into", into.to_str().unwrap()];
            done(&[&words[..], &["--tablespace-mapping", &mapping]].concat());
            give(&home.join("moved"), owner.uid(), owner.gid());
        });
        assert_eq!(copy.sql("select sum(n) from there").unwrap(), "12502500");
    });
}

#[test]
fn a_standby_is_backed_up_in_parallel_and_not_across_its_promotion() {
    Server::each("parallel backup of a standby", &[15, 18], |server| {
        let primary = start(server);
        let standby = primary.standby().start().unwrap();
        let keep = TempDir::new().unwrap();
        let expected = primary.sql(SUMS).unwrap();
        let name = backup(&standby, &repository(&keep), &PARALLEL);
        let copy = restored(server, &repository(&keep), &name, &[]);
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
        assert_eq!(copy.sql("select pg_is_in_recovery()").unwrap(), "t", "it is a standby too");
        drop(copy);
        let other = keep.path().join("other").to_str().unwrap().to_owned();
        let child = spawn(&standby.conninfo("postgres"), &other, &["--max-rate", "2000"]);
        wait_for(&standby, READS);
        standby.promote().unwrap();
        let text = ends_with_an_error(child, &other);
        assert!(text.contains("promoted") || text.contains("timeline 1 ended"), "{text}");
        standby.sql("insert into t values (0, 0, 'promoted')").unwrap();
        let name = backup(&standby, &repository(&keep), &PARALLEL);
        let copy = restored(server, &repository(&keep), &name, &[]);
        assert_eq!(copy.sql("select note from t where n = 0").unwrap(), "promoted");
        assert!(copy.data_dir().join("pg_wal/00000002.history").exists());
    });
}

/// Whether files are being read.
const READS: &str = "select count(*) > 0 from pg_stat_activity
    where application_name = 'pgshrink' and query like '%pg_read_binary_file($1%' and backend_type = 'client backend'";

/// Whether all readers read: the only other session is that of the backup itself.
const ALL_READ: &str = "select count(*) = 1 from pg_stat_activity
    where application_name = 'pgshrink' and query !~ 'pg_read_binary_file' and backend_type = 'client backend'";

#[test]
fn a_connection_that_is_cut_ends_a_parallel_backup_and_nothing_is_left() {
    let cluster = start(&Server::find(15).unwrap());
    let keep = TempDir::new().unwrap();
    let ends = [
        "query like '%pg_read_binary_file($1%' limit 1",
        "query !~ 'pg_read_binary_file' and backend_type = 'client backend'",
        "backend_type = 'walsender'",
    ];
    for end in ends {
        let child = spawn(&cluster.conninfo("postgres"), &repository(&keep), &["--max-rate", "2000"]);
        wait_for(&cluster, READS);
        wait_for(&cluster, ALL_READ);
        let cut = format!(
            "select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity
             where application_name = 'pgshrink' and {end}) as sessions"
        );
        assert_eq!(cluster.sql(&cut).unwrap(), "1", "{end}");
        let text = ends_with_an_error(child, &repository(&keep));
        assert!(text.contains("terminating connection due to administrator command"), "{end}: {text}");
        wait_for(&cluster, "select count(*) = 0 from pg_stat_activity where application_name = 'pgshrink'");
    }
    // The server crashes.
    let child = spawn(&cluster.conninfo("postgres"), &repository(&keep), &["--max-rate", "2000"]);
    wait_for(&cluster, READS);
    cluster.kill().unwrap();
    ends_with_an_error(child, &repository(&keep));
}

fn file_of(cluster: &Cluster, relation: &str) -> (PathBuf, String) {
    let path = cluster.sql(&format!("select pg_relation_filepath('{relation}')")).unwrap();
    (cluster.data_dir().join(&path), path)
}

#[test]
fn pages_with_wrong_checksums_are_named_and_end_both_kinds_of_backup() {
    Server::each("wrong checksums in backups", &[15, 18], |server| {
        let cluster = start(server);
        let (file, path) = file_of(&cluster, "t");
        let (other, other_path) = file_of(&cluster, "t_customer_idx");
        cluster.stop(Stop::Fast).unwrap();
        let damage = |file: &Path, block: u64| {
            let file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, block * 8192 + 5000).unwrap();
            file.write_all_at(&[byte[0] ^ 1], block * 8192 + 5000).unwrap();
        };
        [3, 4, 5, 70, 71, 72, 80].iter().for_each(|block| damage(&file, *block));
        damage(&other, 2);
        cluster.start().unwrap();
        let keep = TempDir::new().unwrap();
        let conninfo = cluster.conninfo("postgres");
        let repository = repository(&keep);
        let words = ["backup", &conninfo, "--to", &repository, "--checkpoint", "fast"];
        let text = refused(&[&words[..], &PARALLEL].concat());
        assert!(text.contains("8 pages in 2 files"), "{text}");
        assert!(text.contains(&path) && text.contains(&other_path), "{text}");
        assert!(text.contains("block 70 is") && text.contains("--no-verify-checksums"), "{text}");
        assert_eq!(text.matches(&format!("{path}: the checksum of block")).count(), 5, "{text}");
        let text = refused(&[&words[..], &STREAM].concat());
        assert!(text.contains(&path) && text.contains("checksum verification failure"), "{text}");
        assert!(none_is_whole(&repository));
        for route in [&PARALLEL[..], &STREAM] {
            let name = backup(&cluster, &repository, &[route, &["--no-verify-checksums"]].concat());
            done(&["verify", &name, "--from", &repository]);
        }
    });
}

#[test]
fn what_a_route_cannot_do_is_refused() {
    let to = ["--to", "/nonexistent/x"];
    let parallel = ["backup", "host=/nonexistent", "--route", "parallel"];
    let text = refused(&[&parallel[..], &to, &["--compression", "zstd:1"]].concat());
    assert!(text.contains("--compression") && text.contains("--route stream"), "{text}");
    for count in ["0", "33"] {
        let text = refused(&[&parallel[..], &to, &["--connections", count]].concat());
        assert!(text.contains("from 1 to 32"), "{text}");
    }
    let text = refused(&[&["backup", "host=/nonexistent"][..], &to, &["--connections", "2"]].concat());
    assert!(text.contains("--route parallel"), "{text}");
}

#[test]
fn a_parallel_backup_keeps_to_its_rate() {
    let cluster = start(&Server::find(15).unwrap());
    let keep = TempDir::new().unwrap();
    let began = Instant::now();
    let conninfo = cluster.conninfo("postgres");
    let words = ["backup", &conninfo, "--to", &repository(&keep), "--checkpoint", "fast"].map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(PARALLEL).collect();
    let report = done(&[&words[..], &["--max-rate", "8000"]].concat());
    // WAL does not count, and the last chunks may come as fast as they like.
    let bytes = report["raw_bytes"].as_u64().unwrap() - (32 << 20) - (4 << 20);
    let least = Duration::from_millis(bytes * 1000 / (8000 << 10));
    assert!(least > Duration::from_secs(1) && began.elapsed() >= least, "{:?} of {least:?}", began.elapsed());
}
