//! `pgshrink backup --format plain | tar` and `--to server:` with real servers.

use crate::backup::{SUMS, boot, done, give, pgshrink, refused, start};
use crate::cfs_kills::Small;
use pgshrink_testkit::relay::{Cut, Direction, Endpoint};
use pgshrink_testkit::{Cluster, Relay, Seed, Server, ServerBinaries, TempDir, or_skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn backup(conninfo: &str, to: &Path, format: &str, words: &[&str]) -> Value {
    let start =
        ["backup", conninfo, "--to", to.to_str().unwrap(), "--format", format, "--checkpoint", "fast"];
    done(&[&start, words].concat())
}

/// A child with its standard error kept.
fn spawn(words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(words).arg("-q").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until something is true.
#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The ways that files go to the server's user, with its own copy of a tree.
fn given(cluster: &Cluster, path: &Path) {
    let owner = fs::metadata(cluster.data_dir().parent().unwrap()).unwrap();
    give(path, owner.uid(), owner.gid());
}

/// pg_verifybackup's answer; `None` where it cannot run.
fn verify(server: &ServerBinaries, directory: &Path, words: &[&str]) -> Option<Output> {
    // The private build of 18 has a pg_verifybackup that crashes at its start, or none.
    let works = server.command("pg_verifybackup").arg("--version").output();
    works.ok().filter(|output| output.status.success())?;
    let output = server.command("pg_verifybackup").args(words).arg(directory).output().unwrap();
    output.status.code().map(|_| output)
}

#[track_caller]
pub(crate) fn verified(server: &ServerBinaries, directory: &Path, words: &[&str]) {
    // pg_verifybackup finds pg_waldump beside itself.
    let Some(output) = verify(server, directory, words) else {
        assert!(server.major >= 18, "pg_verifybackup of {} runs", server.major);
        return;
    };
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_plain_backup_is_a_data_directory_that_starts() {
    Server::each("plain backups", &[15, 16, 18], |server| {
        let cluster = start(server);
        let expected = cluster.sql(SUMS).unwrap();
        let mut report = Value::Null;
        // Up to two threads, who receives also writes.
        let threads = if server.major == 15 { "1" } else { "4" };
        let copy = boot(server, |into| {
            report = backup(&cluster.conninfo("postgres"), into, "plain", &["--threads", threads]);
            verified(server, into, &[]);
            assert_eq!(mode(into), 0o700);
            assert_eq!(mode(&into.join("pg_wal/archive_status")), 0o700);
            assert_eq!(mode(&into.join("global/pg_control")), 0o600);
            assert_eq!(mode(&into.join("backup_manifest")), 0o600);
            assert!(!into.join("backup_manifest.tmp").exists());
            // Directories that the server leaves out of what it sends are there, and empty.
            for empty in
                ["pg_replslot", "pg_stat_tmp", "pg_dynshmem", "pg_notify", "pg_subtrans", "pg_tblspc"]
            {
                assert_eq!(fs::read_dir(into.join(empty)).unwrap().count(), 0, "{empty}");
            }
        });
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
        assert_eq!(copy.sql("select count(*) from unlogged").unwrap(), "0");
        copy.sql("insert into t values (0, 0, ''); vacuum t").unwrap();
        assert_eq!(report["format"], "plain");
        assert_eq!(report["manifest_sha256"].as_str().unwrap().len(), 64);
        assert!(report["raw_bytes"].as_u64().unwrap() > 20 << 20, "{report}");
        let refusal = refused(&["verify", "latest", "--from", copy.data_dir().to_str().unwrap()]);
        assert!(refusal.contains("pg_verifybackup"), "{refusal}");
    });
}

/// A server with a tablespace in a directory with a space in its name, and since 16 an in-place one: 15 leaves what is in
/// those out of BASE_BACKUP.
fn with_tablespaces(server: &ServerBinaries) -> (Cluster, PathBuf) {
    let cluster = start(server);
    let place = cluster.data_dir().parent().unwrap().join("space one");
    fs::create_dir(&place).unwrap();
    given(&cluster, &place);
    cluster.sql(&format!("create tablespace one location '{}'", place.display())).unwrap();
    let within = if server.major >= 16 {
        cluster.set_conf("allow_in_place_tablespaces", "on").unwrap();
        cluster.reload().unwrap();
        cluster.sql("create tablespace inside location ''").unwrap();
        "tablespace inside"
    } else {
        ""
    };
    cluster
        .sql(&format!(
            "create table elsewhere tablespace one as select n from generate_series(1, 5000) n;
             create table within {within} as select n from generate_series(1, 500) n;
             create table nothing (n int) tablespace one",
        ))
        .unwrap();
    (cluster, place)
}

/// Recovery of a copy needs it, and the copy has a postgresql.conf of its own.
fn allow_in_place(into: &Path) {
    let path = into.join("postgresql.auto.conf");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "allow_in_place_tablespaces = on\n").unwrap();
}

const SPACES: &str =
    "select (select sum(n) from elsewhere), (select sum(n) from within), (select count(*) from nothing)";

#[test]
fn tablespaces_of_a_plain_backup_go_where_they_are_mapped() {
    Server::each("tablespaces of plain backups", &[15, 16, 18], |server| {
        let (cluster, place) = with_tablespaces(server);
        let home = cluster.data_dir().parent().unwrap().to_owned();
        let conninfo = cluster.conninfo("postgres");
        let keep = TempDir::new().unwrap();
        let into = keep.path().join("into");
        let words = [
            "backup",
            &conninfo,
            "--format",
            "plain",
            "--checkpoint",
            "fast",
            "--to",
            into.to_str().unwrap(),
        ];
        let said = refused(&words);
        assert!(said.contains("space one") && said.contains("not empty"), "{said}");
        let said = refused(&[&words[..], &["--tablespace-mapping", "/no=/x"]].concat());
        assert!(said.contains("/no") && said.contains("space one"), "{said}");
        assert!(!into.exists(), "nothing is made before everything is looked at");
        let moved = home.join("moved/deeper");
        let mapping = format!("{}={}", place.display(), moved.display());
        let copy = boot(server, |into| {
            let report = backup(&conninfo, into, "plain", &["--tablespace-mapping", &mapping]);
            assert!(report["tablespaces"].to_string().contains("moved/deeper"), "{report}");
            verified(server, into, &[]);
            given(&cluster, &home.join("moved"));
            allow_in_place(into);
        });
        assert_eq!(copy.sql(SPACES).unwrap(), cluster.sql(SPACES).unwrap());
        assert_eq!(
            copy.sql("select pg_tablespace_location(oid) from pg_tablespace where spcname = 'one'").unwrap(),
            moved.to_str().unwrap()
        );
    });
}

#[test]
fn plain_and_tar_backups_under_load_have_all_that_was_committed_before_they_began() {
    Server::each("plain and tar backups under load", &[15, 18], |server| {
        let cluster = start(server);
        cluster.sql("create table log (n bigserial, filler text)").unwrap();
        let load = "insert into log (filler) select repeat('x', 200) from generate_series(1, 50); \
                    update t set note = note || 'y' where n % 1000 = (random() * 999)::int;";
        let script = cluster.data_dir().parent().unwrap().join("load.sql");
        fs::write(&script, load).unwrap();
        let mut pgbench = cluster.command("pgbench");
        pgbench.args(["-n", "-c", "2", "-T", "90", "-f"]).arg(&script).arg(cluster.conninfo("postgres"));
        let mut pgbench = Running(pgbench.stdout(Stdio::null()).spawn().unwrap());
        for format in ["plain", "tar"] {
            until("there is some load", || {
                assert!(pgbench.0.try_wait().unwrap().is_none());
                cluster.sql("select count(*) > 500 from log").unwrap() == "t"
            });
            let keep = TempDir::new().unwrap();
            let to = keep.path().join("to");
            let before = cluster.sql("select max(n) from log").unwrap();
            backup(
                &cluster.conninfo("postgres"),
                &to,
                format,
                &["--compression", "none", "--max-rate", "20000"],
            );
            let after = cluster.sql("select max(n) from log").unwrap();
            let copy = boot(server, |into| match format {
                "plain" => fs::rename(&to, into).or_else(|_| copied(&to, into)).unwrap(),
                _ => extract(&to, into),
            });
            let count: u64 = copy.sql("select count(*) from log").unwrap().parse().unwrap();
            let (before, after): (u64, u64) = (before.parse().unwrap(), after.parse().unwrap());
            assert!(before <= count && count <= after, "{before} {count} {after}");
            assert_eq!(copy.sql("select count(*) from t").unwrap(), "60000");
        }
    });
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn copied(from: &Path, to: &Path) -> std::io::Result<()> {
    Command::new("cp").arg("-a").args([from, to]).status().map(drop)
}

/// Extracts a tar backup with the system's programs.
fn extract(from: &Path, into: &Path) {
    fs::create_dir(into).unwrap();
    fs::set_permissions(into, fs::Permissions::from_mode(0o700)).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for name in names.iter().filter(|name| name.contains(".tar")) {
        let program = match name.rsplit_once('.').unwrap().1 {
            "gz" => "--gzip",
            "lz4" => "--use-compress-program=lz4",
            "zst" => "--use-compress-program=zstd",
            _ => "--no-auto-compress",
        };
        let into = match name.split_once('.').unwrap().0 {
            "base" => into.to_owned(),
            "pg_wal" => into.join("pg_wal"),
            // Where tablespace_map says; the callers have made it.
            oid => from.join(oid),
        };
        fs::create_dir_all(&into).unwrap();
        let mut tar = Command::new("tar");
        let output =
            tar.args(["-x", program, "-f"]).arg(from.join(name)).arg("-C").arg(into).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    fs::copy(from.join("backup_manifest"), into.join("backup_manifest")).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_in_every_compression_is_what_the_server_has() {
    let server = Server::find(15).unwrap();
    let cluster = start(&server);
    let expected = cluster.sql(SUMS).unwrap();
    for (compression, suffix) in [
        ("none", ""),
        ("gzip:1", ".gz"),
        ("lz4", ".lz4"),
        ("zstd:level=3:workers=2", ".zst"),
        ("zstd:1", ".zst"),
    ] {
        let keep = TempDir::new().unwrap();
        let to = keep.path().join("to");
        let report = backup(&cluster.conninfo("postgres"), &to, "tar", &["--compression", compression]);
        assert_eq!(
            names(&to),
            ["backup_manifest".to_owned(), format!("base.tar{suffix}"), "pg_wal.tar".to_owned()]
        );
        for member in report["members"].as_array().unwrap() {
            let path = to.join(member["name"].as_str().unwrap());
            assert_eq!(fs::metadata(&path).unwrap().len(), member["bytes"].as_u64().unwrap(), "{report}");
            assert_eq!(mode(&path), 0o600);
        }
        let copy = boot(&server, |into| {
            extract(&to, into);
            verified(&server, into, &[]);
        });
        assert_eq!(copy.sql(SUMS).unwrap(), expected, "{compression}");
        let said = refused(&["list", "--from", to.to_str().unwrap()]);
        assert!(said.contains("pg_verifybackup"), "{said}");
        // A plain backup is decoded where it is received, or on threads of its own.
        for threads in ["1", "4"] {
            let into = keep.path().join(threads);
            let words = ["--compression", compression, "--threads", threads];
            backup(&cluster.conninfo("postgres"), &into, "plain", &words);
            verified(&server, &into, &[]);
        }
    }
}

#[test]
fn a_tar_backup_of_every_version_has_its_tablespaces() {
    Server::each("tar backups", &[15, 16, 18], |server| {
        let (cluster, place) = with_tablespaces(server);
        let keep = TempDir::new().unwrap();
        let to = keep.path().join("to");
        backup(&cluster.conninfo("postgres"), &to, "tar", &["--compression", "none"]);
        if server.major >= 18 {
            verified(server, &to, &["--format", "tar", "--no-parse-wal"]);
        }
        let oid = |name: &str| {
            cluster.sql(&format!("select oid from pg_tablespace where spcname = '{name}'")).unwrap()
        };
        let (one, inside) = (oid("one"), oid("inside"));
        let mut expected = ["backup_manifest", "base.tar", "pg_wal.tar"].map(str::to_owned).to_vec();
        let spaces = [&one, &inside].into_iter().filter(|oid| !oid.is_empty());
        expected.extend(spaces.map(|oid| format!("{oid}.tar")));
        expected.sort();
        assert_eq!(names(&to), expected);
        let sums = cluster.sql(SPACES).unwrap();
        let copy = boot(server, |into| {
            extract(&to, into);
            let moved = cluster.data_dir().parent().unwrap().join("moved");
            copied(&to.join(&one), &moved).unwrap();
            given(&cluster, &moved);
            let map = fs::read_to_string(into.join("tablespace_map")).unwrap();
            let old = place.to_str().unwrap();
            assert!(map.contains(old), "{map}");
            fs::write(into.join("tablespace_map"), map.replace(old, moved.to_str().unwrap())).unwrap();
            if !inside.is_empty() {
                copied(&to.join(&inside).join("."), &into.join("pg_tblspc").join(&inside)).unwrap();
            }
            let _ = fs::remove_file(into.join("pg_tblspc").join(&one));
            allow_in_place(into);
        });
        assert_eq!(copy.sql(SPACES).unwrap(), sums);
    });
}

#[test]
fn wal_of_a_promoted_server_is_in_its_tar_with_the_history() {
    let server = Server::find(15).unwrap();
    let primary = start(&server);
    let standby = primary.standby().start().unwrap();
    standby.promote().unwrap();
    let keep = TempDir::new().unwrap();
    let to = keep.path().join("to");
    backup(&standby.conninfo("postgres"), &to, "tar", &[]);
    let output = Command::new("tar").arg("-tf").arg(to.join("pg_wal.tar")).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{:?}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "00000002.history");
    assert!(
        lines[1].starts_with("00000002") && lines.contains(&"archive_status/00000002.history.done"),
        "{listed}"
    );
    // Whom root extracts them for: the owner of all that the server writes.
    let output = Command::new("tar").arg("-tvf").arg(to.join("pg_wal.tar")).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.lines().all(|line| line.starts_with("-rw------- postgres/postgres ")), "{listed}");
}

#[test]
fn the_server_writes_a_backup_into_a_directory_of_its_own() {
    Server::each("backups on the server", &[15, 16, 18], |server| {
        let cluster = start(server);
        let home = cluster.data_dir().parent().unwrap().to_owned();
        let folder = home.join("on server");
        let to = format!("server:{}", folder.display());
        let conninfo = cluster.conninfo("postgres");
        cluster.sql("create role writer login replication").unwrap();
        let writer = conninfo.replace("user='postgres'", "user='writer'");
        let words = ["backup", &writer, "--to", &to, "--checkpoint", "fast", "--compression", "gzip:1"];
        let said = refused(&words);
        assert!(said.contains("pg_write_server_files") && said.contains("GRANT"), "{said}");
        cluster.sql("grant pg_write_server_files to writer").unwrap();
        let report = done(&words);
        assert_eq!(report["format"], "tar");
        assert_eq!(report["to"], to);
        assert_eq!(names(&folder), ["backup_manifest", "base.tar.gz"]);
        let said: Vec<&str> = report["members"]
            .as_array()
            .unwrap()
            .iter()
            .map(|member| member["name"].as_str().unwrap())
            .collect();
        assert_eq!(said, ["base.tar.gz", "backup_manifest"]);
        let said = refused(&words);
        assert!(said.contains("not empty"), "{said}");
        let expected = cluster.sql(SUMS).unwrap();
        let copy = boot(server, |into| {
            extract(&folder, into);
            verified(server, into, &[]);
        });
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
    });
}

#[test]
fn a_server_without_a_codec_is_asked_what_it_has() {
    Server::each("servers without codecs", &[15, 16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let keep = TempDir::new().unwrap();
        let conninfo = cluster.conninfo("postgres");
        let checkpoints =
            |cluster: &Cluster| cluster.sql("select checkpoint_lsn from pg_control_checkpoint()").unwrap();
        let before = checkpoints(&cluster);
        let has_zstd = server.major == 15;
        for (format, folder) in [("plain", "p"), ("tar", "t"), ("archive", "a")] {
            let to = keep.path().join(folder);
            let words = [
                "backup",
                &conninfo,
                "--checkpoint",
                "fast",
                "--format",
                format,
                "--to",
                to.to_str().unwrap(),
            ];
            if !has_zstd {
                let said = refused(&[&words[..], &["--compression", "zstd:3"]].concat());
                assert!(said.contains("built without zstd") && said.contains("it has none, gzip"), "{said}");
                assert!(names(&to).is_empty(), "nothing was begun");
                assert_eq!(checkpoints(&cluster), before, "it was known before the checkpoint");
            }
        }
        for (format, folder) in [("plain", "p"), ("tar", "t"), ("archive", "a")] {
            let to = keep.path().join(folder);
            let words = [
                "backup",
                &conninfo,
                "--checkpoint",
                "fast",
                "--format",
                format,
                "--to",
                to.to_str().unwrap(),
            ];
            let output = pgshrink(&[&words[..], &["--json"]].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{said}");
            assert_eq!(
                said.contains("built without zstd: it will compress with gzip:level=1"),
                !has_zstd,
                "{said}"
            );
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            if format != "archive" {
                let expected = if has_zstd { "zstd:level=1" } else { "gzip:level=1" };
                assert_eq!(report["compression"], expected);
            }
        }
    });
}

#[test]
fn what_does_not_fit_together_is_refused_before_anything_starts() {
    for (words, why) in [
        (&["--to", "s3://bucket/x", "--format", "tar"][..], "object stores"),
        (&["--to", "s3://bucket/x", "--format", "plain"], "object stores"),
        (&["--to", "server:/x", "--format", "plain"], "tar"),
        (&["--to", "server:/x", "--format", "archive"], "tar"),
        (&["--to", "server:x"], "absolute"),
        (&["--to", "/x", "--format", "plain", "--level", "3"], "archive"),
        (&["--to", "server:/x", "--level", "3"], "archive"),
        (&["--to", "/x", "--tablespace-mapping", "/a=/b"], "plain"),
        (&["--to", "/x", "--format", "tar", "--tablespace-mapping", "/a=/b"], "plain"),
        (&["--to", "/x", "--format", "plain", "--tablespace-mapping", "/a"], "OLD=NEW"),
        (&["--to", "/x", "--format", "directory"], "plain"),
        (&["--to", "s3:/bucket/x"], "two slashes"),
        (&["--to", "/x", "--level", "0"], "'--level <LEVEL>': must be between 1 and 19"),
        (&["--to", "/x", "--max-rate", "10"], "--max-rate"),
        (&["--to", "/x", "--compression", "zsdt"], "--compression"),
        (&["--to", "/x", "--compression", "zstd:workers=-1"], "an integer of at least 0"),
        (&["--to", "/x", "--compression", "auto:3"], "give just auto"),
        (&["--to", "/x", "--key-file", "/no.key"], "--key-file /no.key"),
    ] {
        let said = refused(&[&["backup", "host=/nonexistent"], words].concat());
        assert!(said.contains(why) && !said.contains("/nonexistent"), "{words:?}: {said}");
    }
    let server = Server::find(15).unwrap();
    let cluster = Cluster::builder().server(&server).start().unwrap();
    let keep = TempDir::new().unwrap();
    fs::write(keep.path().join("mine"), b"mine").unwrap();
    for format in ["plain", "tar"] {
        let to = keep.path().to_str().unwrap();
        let said = refused(&["backup", &cluster.conninfo("postgres"), "--to", to, "--format", format]);
        assert!(said.contains("not empty"), "{said}");
        assert_eq!(fs::read(keep.path().join("mine")).unwrap(), b"mine");
    }
}

/// A server, and a relay to it that can be cut.
fn relayed() -> (Cluster, Relay, String) {
    let cluster = start(&Server::find(15).unwrap());
    let relay = Relay::to(Endpoint::local(cluster.port())).start().unwrap();
    let conninfo = cluster.conninfo_at("127.0.0.1", relay.port(), "postgres");
    (cluster, relay, conninfo)
}

#[test]
fn a_connection_that_is_cut_leaves_nothing() {
    let (_cluster, relay, conninfo) = relayed();
    let keep = TempDir::new().unwrap();
    let mut rng = Seed::from_env_or_time().rng();
    for (format, compression) in [("plain", "none"), ("tar", "none"), ("plain", "zstd:1"), ("tar", "zstd:1")]
    {
        for round in 0..6 {
            let to = keep.path().join("above/to");
            let bytes = if compression == "none" { 20 << 20 } else { 1 << 20 };
            // The first ones while the server is asked for what it has.
            let after = if round < 3 { rng.below(10_000) } else { 10_000 + rng.below(bytes) };
            relay.cut_after(Direction::ToClient, after as u64, Cut::Reset);
            let words = [
                "backup",
                &conninfo,
                "--to",
                to.to_str().unwrap(),
                "--format",
                format,
                "--checkpoint",
                "fast",
            ];
            let said = refused(&[&words[..], &["--compression", compression]].concat());
            assert!(said.contains("server") && !said.contains("another thread failed"), "{said}");
            assert_eq!(
                names(keep.path()),
                Vec::<String>::new(),
                "{format}: what was made is gone, and what is above it"
            );
        }
    }
}

#[test]
fn ctrl_c_removes_what_was_written() {
    let cluster = start(&Server::find(15).unwrap());
    let conninfo = cluster.conninfo("postgres");
    for format in ["plain", "tar", "archive"] {
        let keep = TempDir::new().unwrap();
        let to = keep.path().join("to");
        let words =
            ["backup", &conninfo, "--to", to.to_str().unwrap(), "--format", format, "--checkpoint", "fast"];
        let child = spawn(&[&words[..], &["--compression", "none", "--max-rate", "4000"]].concat());
        until("it writes", || !names(&to).is_empty());
        std::thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
        let began = Instant::now();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(output.status.code() == Some(2) && said.contains("interrupted"), "{said}");
        // An archive may have a pack by then, with which another attempt can go on.
        let is_left = format == "archive" && said.contains("--resume");
        assert!(names(&to).is_empty() != is_left, "{format}: {:?}", names(&to));
        assert!(!is_left || !to.join(&names(&to)[0]).join("backup_manifest").exists());
    }
    // What the server has written can be removed there only.
    let folder = cluster.data_dir().parent().unwrap().join("on server");
    let to = format!("server:{}", folder.display());
    let words = ["backup", &conninfo, "--to", &to, "--checkpoint", "fast", "--compression", "none"];
    let child = spawn(&[&words[..], &["--max-rate", "4000"]].concat());
    until("the server writes", || !names(&folder).is_empty());
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("interrupted"), "{said}");
    assert!(said.contains(&to) && said.contains("remove it"), "{said}");
}

#[test]
fn what_a_kill_leaves_never_looks_whole() {
    let cluster = start(&Server::find(15).unwrap());
    let conninfo = cluster.conninfo("postgres");
    let mut rng = Seed::from_env_or_time().rng();
    for format in ["plain", "tar"] {
        let began = Instant::now();
        let keep = TempDir::new().unwrap();
        backup(&conninfo, &keep.path().join("to"), format, &[]);
        let whole = began.elapsed();
        for _ in 0..6 {
            let keep = TempDir::new().unwrap();
            let to = keep.path().join("to");
            let words = [
                "backup",
                &conninfo,
                "--to",
                to.to_str().unwrap(),
                "--format",
                format,
                "--checkpoint",
                "fast",
            ];
            let mut child = spawn(&words);
            std::thread::sleep(whole.mul_f64(rng.below(1000) as f64 / 1000.0));
            child.kill().unwrap();
            if child.wait().unwrap().success() {
                continue;
            }
            // A kill between the last rename and the end of the process leaves a whole one.
            match format {
                "plain" if to.join("global/pg_control").exists() => verified(cluster.server(), &to, &[]),
                "tar" if to.join("backup_manifest").exists() => {
                    assert_eq!(names(&to), ["backup_manifest", "base.tar.zst", "pg_wal.tar"]);
                }
                _ => {}
            }
            if !names(&to).is_empty() {
                let said = refused(&words);
                assert!(said.contains("not empty"), "{said}");
            }
        }
    }
}

#[test]
fn a_disk_that_is_too_small_or_fills_up_is_named() {
    let small = or_skip!("backups on a full disk", Small::new(12 << 10));
    let cluster = start(&Server::find(15).unwrap());
    let conninfo = cluster.conninfo("postgres");
    let to = small.root.path().join("to");
    let words = ["backup", &conninfo, "--to", to.to_str().unwrap(), "--checkpoint", "fast", "--format"];
    for format in ["plain", "tar"] {
        let said = refused(&[&words[..], &[format, "--compression", "none"]].concat());
        assert!(said.contains("MiB needed") && said.contains("MiB free"), "{said}");
        assert!(!to.exists());
    }
    let (keep, archive) = (TempDir::new().unwrap(), ["--format", "archive"]);
    let from = crate::backup::repository(&keep);
    crate::backup::backup(&cluster, &from, &archive);
    let said = refused(&["restore", "latest", "--from", &from, "--into", to.to_str().unwrap()]);
    assert!(said.contains("MiB needed") && said.contains("MiB free"), "{said}");
    assert!(!to.exists());
    // Compressed archives may fit; nobody knows before. Here the WAL's 16 MiB do not.
    let said = refused(&[&words[..], &["tar", "--compression", "gzip:1"]].concat());
    assert!(said.to_lowercase().contains("no space"), "{said}");
    assert!(!to.exists());
    drop(small);
    let small = or_skip!("backups on a full disk", Small::new(100 << 10));
    let to = small.root.path().join("to");
    let words =
        ["backup", &conninfo, "--to", to.to_str().unwrap(), "--checkpoint", "fast", "--format", "plain"];
    let child = spawn(&[&words[..], &["--compression", "none", "--max-rate", "8000"]].concat());
    until("it writes", || !names(&to).is_empty());
    let mut filler = fs::File::create(small.root.path().join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[7; 4096]).is_ok() {}
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.to_lowercase().contains("no space"), "{said}");
    assert!(!to.exists());
}
