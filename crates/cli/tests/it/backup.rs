//! `pgshrink backup` and `restore` with real servers.

use pgshrink_testkit::{Cluster, S3, Server, ServerBinaries, TempDir, skipped};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;
use std::process::Child;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub(crate) fn pgshrink(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pgshrink")).args(words).output().unwrap()
}

#[track_caller]
pub(crate) fn done(words: &[&str]) -> Value {
    let output = pgshrink(&[words, &["--json"]].concat());
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {err}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn refused(words: &[&str]) -> String {
    ended(words, 2)
}

#[track_caller]
pub(crate) fn damaged(words: &[&str]) -> String {
    ended(words, 1)
}

/// What it says on standard error when it ends with that code.
#[track_caller]
pub(crate) fn ended(words: &[&str], code: i32) -> String {
    let output = pgshrink(words);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

/// A server with tables, indexes, large values, and something unlogged.
pub(crate) fn start(server: &ServerBinaries) -> Cluster {
    let cluster = Cluster::builder().server(server).initdb_arg("--data-checksums");
    let cluster = cluster.conf("wal_level", "replica").conf("max_wal_senders", "5").start().unwrap();
    cluster
        .sql(
            "create table t as select n, n % 977 as customer, repeat(md5(n::text), 3) as note
               from generate_series(1, 60000) n;
             create index on t (customer);
             create table toasted as select n, string_agg(md5((n * m)::text), '') as value
               from generate_series(1, 20) n, generate_series(1, 2000) m group by n;
             create unlogged table unlogged as select n from generate_series(1, 1000) n;
             create table empty (n int);
             create database other;
             checkpoint;",
        )
        .unwrap();
    cluster
}

pub(crate) const SUMS: &str = "select (select count(*) || md5(string_agg(t::text, '' order by n)) from t),
    (select md5(string_agg(value, '' order by n)) from toasted), (select count(*) from empty),
    (select count(*) from pg_class)";

/// A server on a restored data directory, with a port of its own.
pub(crate) fn boot(server: &ServerBinaries, restore: impl FnOnce(&Path)) -> Cluster {
    let cluster = Cluster::builder().server(server).create().unwrap();
    fs::remove_dir_all(cluster.data_dir()).unwrap();
    restore(&cluster.data_dir());
    // As the server's user, whoever runs the test.
    let home = fs::metadata(cluster.data_dir().parent().unwrap()).unwrap();
    give(&cluster.data_dir(), home.uid(), home.gid());
    cluster.start().unwrap_or_else(|error| panic!("{error}\n{}", cluster.log().unwrap_or_default()));
    cluster
}

pub(crate) fn give(path: &Path, user: u32, group: u32) {
    lchown(path, Some(user), Some(group)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), user, group));
    }
}

#[test]
fn a_backup_is_restored_to_a_server_that_answers() {
    Server::each("backup and restore", &[15, 16, 18], |server| {
        let cluster = start(server);
        let keep = TempDir::new().unwrap();
        let repository = keep.path().join("repository");
        let repository = repository.to_str().unwrap();
        let expected = cluster.sql(SUMS).unwrap();
        let report = done(&[
            "backup",
            &cluster.conninfo("postgres"),
            "--to",
            repository,
            "--checkpoint",
            "fast",
            "--compression",
            "none",
        ]);
        let name = report["backup"].as_str().unwrap();
        assert!(
            report["stored_bytes"].as_u64().unwrap() * 4 < report["raw_bytes"].as_u64().unwrap(),
            "{report}"
        );
        assert_eq!(done(&["list", "--from", repository])[0]["details"]["backup"], name);
        assert_eq!(done(&["verify", "latest", "--from", repository])["backup"], name);
        let copy = boot(server, |into| {
            done(&["restore", name, "--from", repository, "--into", into.to_str().unwrap()]);
        });
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
        assert_eq!(copy.sql("select count(*) from unlogged").unwrap(), "0");
        copy.sql("insert into t values (0, 0, ''); vacuum t").unwrap();
    });
}

/// A repository with one backup of a server of 15.
pub(crate) struct Kept {
    pub(crate) cluster: Cluster,
    pub(crate) keep: TempDir,
    pub(crate) name: String,
}

impl Kept {
    pub(crate) fn new(words: &[&str]) -> Kept {
        let cluster = start(&Server::find(15).unwrap());
        let keep = TempDir::new().unwrap();
        let name = backup(&cluster, &repository(&keep), words);
        Kept { cluster, keep, name }
    }

    pub(crate) fn repository(&self) -> String {
        repository(&self.keep)
    }
}

pub(crate) fn repository(keep: &TempDir) -> String {
    keep.path().join("repository").to_str().unwrap().to_owned()
}

pub(crate) fn backup(cluster: &Cluster, repository: &str, words: &[&str]) -> String {
    let conninfo = cluster.conninfo("postgres");
    let start = ["backup", &conninfo, "--to", repository, "--checkpoint", "fast"];
    done(&[&start, words].concat())["backup"].as_str().unwrap().to_owned()
}

pub(crate) fn restored(server: &ServerBinaries, repository: &str, name: &str, words: &[&str]) -> Cluster {
    boot(server, |into| {
        let start = ["restore", name, "--from", repository, "--into", into.to_str().unwrap()];
        done(&[&start, words].concat());
    })
}

#[test]
fn every_compression_of_the_server_gives_the_same_files() {
    let kept = Kept::new(&["--compression", "none"]);
    let expected = kept.cluster.sql(SUMS).unwrap();
    for compression in ["gzip", "gzip:9", "lz4", "zstd", "zstd:level=3:workers=2"] {
        let name = backup(&kept.cluster, &kept.repository(), &["--compression", compression]);
        assert_eq!(done(&["verify", &name, "--from", &kept.repository()])["backup"], name);
        let copy = restored(kept.cluster.server(), &kept.repository(), &name, &[]);
        assert_eq!(copy.sql(SUMS).unwrap(), expected, "{compression}");
    }
    let text = refused(&["backup", "host=x", "--to", "/x", "--compression", "zstd:level=99"]);
    assert!(text.contains("-131072 to 22"), "{text}");
}

#[test]
fn a_backup_under_load_has_all_that_was_committed_before_it_ended() {
    Server::each("backup under load", &[15, 18], |server| {
        let cluster = start(server);
        cluster
            .sql("create table log (n bigserial, at timestamptz default clock_timestamp(), filler text)")
            .unwrap();
        let load = "insert into log (filler) select repeat('x', 200) from generate_series(1, 50); \
                    update t set note = note || 'y' where n % 1000 = (random() * 999)::int;";
        let script = cluster.data_dir().parent().unwrap().join("load.sql");
        fs::write(&script, load).unwrap();
        let mut pgbench = cluster.command("pgbench");
        pgbench.args(["-n", "-c", "2", "-T", "60", "-f"]).arg(&script).arg(cluster.conninfo("postgres"));
        let mut pgbench = Running(pgbench.stdout(std::process::Stdio::null()).spawn().unwrap());
        while cluster.sql("select count(*) > 500 from log").unwrap() != "t" {
            assert!(pgbench.0.try_wait().unwrap().is_none());
        }
        let keep = TempDir::new().unwrap();
        let before = cluster.sql("select max(n) from log").unwrap();
        let name = backup(&cluster, &repository(&keep), &["--compression", "none", "--max-rate", "20000"]);
        let after = cluster.sql("select max(n) from log").unwrap();
        drop(pgbench);
        let copy = restored(server, &repository(&keep), &name, &[]);
        let count: u64 = copy.sql("select count(*) from log").unwrap().parse().unwrap();
        let (before, after): (u64, u64) = (before.parse().unwrap(), after.parse().unwrap());
        assert!(before <= count && count <= after, "{before} {count} {after}");
        assert_eq!(copy.sql("select count(*) from t").unwrap(), "60000");
        let check = "create extension amcheck; select bt_index_check('t_customer_idx', true)";
        if copy.sql("select count(*) from pg_available_extensions where name = 'amcheck'").unwrap() == "1" {
            copy.sql(check).unwrap();
        }
    });
}

pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tablespaces_go_where_they_were_or_where_they_are_mapped() {
    Server::each("tablespaces of backups", &[15, 18], |server| {
        let cluster = start(server);
        let home = cluster.data_dir().parent().unwrap().to_owned();
        let place = home.join("space one");
        fs::create_dir(&place).unwrap();
        let owner = fs::metadata(&home).unwrap();
        give(&place, owner.uid(), owner.gid());
        cluster.sql(&format!("create tablespace one location '{}'", place.display())).unwrap();
        cluster
            .sql("create table elsewhere tablespace one as select n from generate_series(1, 5000) n")
            .unwrap();
        let keep = TempDir::new().unwrap();
        let name = backup(&cluster, &repository(&keep), &["--compression", "none"]);
        let into = keep.path().join("into").to_str().unwrap().to_owned();
        let text = refused(&["restore", &name, "--from", &repository(&keep), "--into", &into]);
        assert!(!Path::new(&into).exists(), "nothing is made before everything is looked at");
        assert!(text.contains("space one") && text.contains("not empty"), "{text}");
        let other = format!("{}={}", place.display(), home.join("moved").display());
        let text = refused(&[
            "restore",
            &name,
            "--from",
            &repository(&keep),
            "--into",
            "/proc/x",
            "--tablespace-mapping",
            "/no=/x",
        ]);
        assert!(text.contains("/no") && text.contains("space one"), "{text}");
        let here = format!("{}={into}/../into", place.display());
        let words = ["restore", &name, "--from", &repository(&keep), "--into", &into];
        let text = refused(&[&words[..], &["--tablespace-mapping", &here]].concat());
        assert!(text.contains("a directory of its own"), "{text}");
        assert!(fs::read_dir(&into).into_iter().flatten().next().is_none(), "nothing was written");
        let moved = home.join("moved");
        let copy = boot(server, |into| {
            let into = into.to_str().unwrap();
            done(&[
                "restore",
                &name,
                "--from",
                &repository(&keep),
                "--into",
                into,
                "--tablespace-mapping",
                &other,
            ]);
            give(&moved, owner.uid(), owner.gid());
        });
        assert_eq!(copy.sql("select sum(n) from elsewhere").unwrap(), "12502500");
        assert_eq!(
            copy.sql("select pg_tablespace_location(oid) from pg_tablespace where spcname = 'one'").unwrap(),
            home.join("moved").to_str().unwrap()
        );
    });
}

#[test]
fn a_backup_of_a_promoted_server_has_its_history_and_goes_on() {
    Server::each("backup of a promoted server", &[15, 18], |server| {
        let primary = start(server);
        let standby = primary.standby().start().unwrap();
        let keep = TempDir::new().unwrap();
        let expected = primary.sql(SUMS).unwrap();
        // Of the standby while it is one.
        let name = backup(&standby, &repository(&keep), &["--compression", "none"]);
        let copy = restored(server, &repository(&keep), &name, &[]);
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
        assert_eq!(copy.sql("select pg_is_in_recovery()").unwrap(), "t", "it is a standby too");
        drop(copy);
        standby.promote().unwrap();
        standby.sql("insert into t values (0, 0, 'promoted')").unwrap();
        let name = backup(&standby, &repository(&keep), &["--compression", "none"]);
        let copy = restored(server, &repository(&keep), &name, &[]);
        assert_eq!(copy.sql("select note from t where n = 0").unwrap(), "promoted");
        assert!(copy.data_dir().join("pg_wal/00000002.history").exists());
        // The segment that the backup ends in is the restored server's to archive.
        let status = copy.data_dir().join("pg_wal/archive_status");
        let segment = standby.sql("select pg_walfile_name(pg_current_wal_lsn())").unwrap();
        assert!(
            status.join("00000002.history.done").exists() && !status.join(format!("{segment}.done")).exists()
        );
    });
}

#[test]
fn a_flipped_bit_anywhere_in_a_repository_is_found_and_named() {
    let kept = Kept::new(&[]);
    let root = kept.keep.path().join("repository").join(&kept.name);
    let mut objects: Vec<_> = ["backup.json", "backup_manifest"].map(|name| root.join(name)).to_vec();
    objects.extend(fs::read_dir(root.join("packs")).unwrap().map(|entry| entry.unwrap().path()));
    let mut rng = pgshrink_testkit::Seed::from_env_or_time().rng();
    for object in &objects {
        let bytes = fs::read(object).unwrap();
        let fixed = [0, bytes.len() - 2, bytes.len() - 40, bytes.len() / 2];
        let drawn: Vec<usize> = (0..8).map(|_| rng.below(bytes.len())).collect();
        for at in fixed.into_iter().chain(drawn) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << rng.below(5);
            fs::write(object, &flipped).unwrap();
            let output = pgshrink(&["verify", &kept.name, "--from", &kept.repository()]);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            // A version that became another one is a newer writer's, for all that can be known.
            let is_newer = output.status.code() == Some(2) && text.contains("version");
            assert!(output.status.code() == Some(1) || is_newer, "byte {at}: {text}");
            let name = object.file_name().unwrap().to_str().unwrap();
            assert!(text.contains(name), "byte {at} of {name}: {text}");
        }
        let into = kept.keep.path().join("into");
        refused(&["restore", &kept.name, "--from", &kept.repository(), "--into", into.to_str().unwrap()]);
        assert!(!into.join("global/pg_control").exists(), "a server would start on it");
        let _ = fs::remove_dir_all(&into);
        fs::write(object, &bytes).unwrap();
    }
    let pack = objects.last().unwrap();
    let bytes = fs::read(pack).unwrap();
    fs::write(pack, &bytes[..bytes.len() - 1]).unwrap();
    let both = |expected: &str| {
        let (from, name) = (kept.repository(), pack.file_name().unwrap().to_str().unwrap());
        for words in [&["verify", &kept.name, "--from", &from][..], &["list", "--from", &from]] {
            let text = damaged(words);
            assert!(text.contains(name) && text.contains(expected), "{words:?}: {text}");
        }
    };
    both("bytes");
    fs::remove_file(pack).unwrap();
    both("missing");
}

#[test]
fn what_else_lies_in_a_repository_is_in_nobodys_way() {
    let kept = Kept::new(&[]);
    let root = kept.keep.path().join("repository");
    fs::create_dir(root.join("lost+found")).unwrap();
    fs::write(root.join("backup.log"), b"mine").unwrap();
    fs::create_dir(root.join("20261125T143000Z-00000000")).unwrap();
    let found = done(&["list", "--from", &kept.repository()]);
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found[0]["details"]["record_sha256"].as_str().unwrap().len(), 64);
    done(&["verify", "latest", "--from", &kept.repository()]);
    // One that cannot be read is shown, and does not hide the others.
    let other = backup(&kept.cluster, &kept.repository(), &[]);
    fs::write(root.join(&other).join("backup.json"), b"{}").unwrap();
    let output = pgshrink(&["list", "--from", &kept.repository(), "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{found}");
    let mut states: Vec<_> =
        found.as_array().unwrap().iter().map(|found| found["state"].as_str().unwrap()).collect();
    states.sort_unstable();
    assert_eq!(states, ["complete", "damaged"]);
    done(&["verify", &kept.name, "--from", &kept.repository()]);
    let text = damaged(&["verify", "latest", "--from", &kept.repository()]);
    assert!(text.contains(&other), "{text}");
}

#[test]
fn a_connection_for_wal_that_is_lost_ends_the_backup_at_once() {
    let kept = Kept::new(&[]);
    let (conninfo, repository) = (kept.cluster.conninfo("postgres"), kept.repository());
    let words = ["backup", &conninfo, "--to", &repository, "--checkpoint", "fast", "--compression", "none"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    let command = command.args(words).args(["--max-rate", "2000", "-q"]).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_replication where state = 'streaming'";
    let began = Instant::now();
    while kept.cluster.sql(end).unwrap() == "0" {
        assert!(began.elapsed() < Duration::from_secs(60), "WAL is streamed");
    }
    let began = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("terminat"), "{text}");
}

#[test]
fn a_backup_that_was_killed_is_none() {
    let kept = Kept::new(&[]);
    let conninfo = kept.cluster.conninfo("postgres");
    let repository = kept.repository();
    let words = [
        "backup",
        &conninfo,
        "--to",
        &repository,
        "--checkpoint",
        "fast",
        "--compression",
        "none",
        "--max-rate",
        "8000",
    ];
    let child = Command::new(env!("CARGO_BIN_EXE_pgshrink")).args(words).arg("-q").spawn().unwrap();
    let mut child = Running(child);
    let began = Instant::now();
    while fs::read_dir(&repository).unwrap().count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.0.try_wait().unwrap().is_none(), "it is slow enough to be killed");
    drop(child);
    let backups = done(&["list", "--from", &repository]);
    let states: Vec<&str> =
        backups.as_array().unwrap().iter().map(|found| found["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["complete", "incomplete"], "{backups}");
    assert_eq!(done(&["verify", "latest", "--from", &repository])["backup"], kept.name);
    let all =
        fs::read_dir(&repository).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let killed = { all }.find(|name| *name != kept.name).unwrap();
    let text = refused(&["restore", &killed, "--from", &repository, "--into", "/proc/x"]);
    assert!(text.contains("this backup is incomplete"), "{text}");
}

#[test]
fn a_server_that_stops_amid_a_backup_is_an_error_at_once() {
    let kept = Kept::new(&[]);
    let conninfo = kept.cluster.conninfo("postgres");
    let repository = kept.repository();
    let words = [
        "backup",
        &conninfo,
        "--to",
        &repository,
        "--checkpoint",
        "fast",
        "--compression",
        "none",
        "--max-rate",
        "8000",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    let command = command.args(words).arg("-q").stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let began = Instant::now();
    while fs::read_dir(&repository).unwrap().count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "it begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    kept.cluster.kill().unwrap();
    let began = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("server") && !text.contains("another thread failed"), "{text}");
    // What had come by then, if anything, is a pack, with which another attempt can go on.
    let is_left = fs::read_dir(&repository).unwrap().count() == 2;
    assert_eq!(text.contains("--resume"), is_left, "{text}");
}

#[test]
fn what_cannot_be_backed_up_or_restored_is_refused_before_anything_starts() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    kept.cluster.sql("create role plain login").unwrap();
    let conninfo = kept.cluster.conninfo("postgres").replace("user='postgres'", "user='plain'");
    let text = refused(&["backup", &conninfo, "--to", &repository]);
    assert!(text.contains("plain") || text.contains("replication") || text.contains("walsender"), "{text}");
    assert_eq!(fs::read_dir(&repository).unwrap().count(), 1, "nothing was begun");

    let text = refused(&["backup", "host=/nonexistent port=1", "--to", &repository]);
    assert!(text.contains("/nonexistent"), "{text}");
    let text = refused(&["backup", "mydb:secret", "--to", &repository]);
    assert!(text.contains("connection string") && !text.contains("secret"), "{text}");
    let text = refused(&["restore", "latest", "--from", &repository, "--into", &repository]);
    assert!(text.contains("is inside the repository"), "{text}");
    let text = refused(&["restore", "nothing", "--from", &repository, "--into", "/proc/x"]);
    assert!(text.contains("no such backup"), "{text}");
    let nowhere = kept.keep.path().join("nowhere");
    let text = refused(&["list", "--from", nowhere.to_str().unwrap()]);
    assert!(text.contains("nowhere") && !nowhere.exists(), "{text}");
    let empty = kept.keep.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let text = refused(&["restore", "latest", "--from", empty.to_str().unwrap(), "--into", "/proc/x"]);
    assert!(text.contains("no complete backup"), "{text}");
}

#[test]
fn a_backup_streams_to_an_object_store_and_is_restored_from_there() {
    if let Err(missing) = S3::find() {
        return skipped("backups in an object store", &missing);
    }
    let s3 = S3::start().unwrap();
    let cluster = start(&Server::find(15).unwrap());
    let expected = cluster.sql(SUMS).unwrap();
    let run = |words: &[&str], secret: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        command.args(words).args(["-q", "--json"]).envs(s3.variables(secret)).output().unwrap()
    };
    let conninfo = cluster.conninfo("postgres");
    let words = ["backup", &conninfo, "--to", "s3://backups/db1", "--checkpoint", "fast"];
    let output = run(&words, "wrong");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("s3://backups/db1"), "{text}");
    let output = run(&words, "secret");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [&["verify", "latest"][..], &["list"]] {
        let output = run(&[words, &["--from", "s3://backups/db1"]].concat(), "secret");
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let copy = boot(cluster.server(), |into| {
        let words = ["restore", "latest", "--from", "s3://backups/db1", "--into", into.to_str().unwrap()];
        let output = run(&words, "secret");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    });
    assert_eq!(copy.sql(SUMS).unwrap(), expected);
}
