//! Base backups and standbys.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pgshrink_testkit::wait_until;

use super::{Compressed, on_each_major, sum, table};

#[test]
fn a_base_backup_has_plain_pages_and_starts_with_and_without_the_library() {
    on_each_major("base backups", |server| {
        server.sql(&table("t", 20_000));
        let (backup, copied) = places(server, "pg_basebackup");
        let mut command = server.cluster.owner().command(server.cluster.server().program("pg_basebackup"));
        command.args(["-X", "stream", "-c", "fast", "--no-sync", "-D"]).arg(&backup);
        command
            .arg("-T")
            .arg(mapping(server, &copied))
            .arg("-d")
            .arg(server.cluster.conninfo_unix("postgres"));
        pgshrink_testkit::run::output(&mut command).unwrap();
        is_plain_and_starts(server, &backup, &copied);
    });
}

#[test]
fn pgshrink_backs_compressed_tables_up_and_they_are_restored_with_and_without_the_library() {
    on_each_major("pgshrink backup of compressed tables", |server| {
        server.sql(&table("t", 20_000));
        let repository = server.directory("repository");
        let run = |words: &[&str]| {
            let mut command = server.cluster.owner().command(crate::exec::pgshrink());
            pgshrink_testkit::run::output(command.args(words)).unwrap()
        };
        let repository = repository.to_str().unwrap();
        let conninfo = server.cluster.conninfo_unix("postgres");
        let compression = ["--compression", "none"];
        run(&[&["backup", &conninfo, "--to", repository, "--checkpoint", "fast", "-q"], &compression[..]]
            .concat());
        run(&["verify", "latest", "--from", repository, "-q"]);
        let (backup, copied) = places(server, "pgshrink");
        let mapping = mapping(server, &copied);
        let into = ["--into", backup.to_str().unwrap(), "--tablespace-mapping", &mapping, "-q"];
        run(&[&["restore", "latest", "--from", repository], &into[..]].concat());
        is_plain_and_starts(server, &backup, &copied);
    });
}

/// Where a copy of the data directory goes, and where that of the tablespace.
fn places(server: &Compressed, name: &str) -> (PathBuf, PathBuf) {
    let place = server.location.path();
    (place.join(name), place.join(format!("{name}-fast")))
}

fn mapping(server: &Compressed, copied: &Path) -> String {
    format!("{}={}", server.location.path().join("fast").display(), copied.display())
}

/// Every file of the tablespace's copy is a plain one, and the table `t` of the copy is the server's.
#[track_caller]
fn is_plain_and_starts(server: &Compressed, backup: &Path, copied: &Path) {
    let before = server.sql(&sum("t"));
    let mut open = vec![copied.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let name = entry.file_name().display().to_string();
            assert!(!name.contains("pgshrink"), "{name}");
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                bytes += entry.metadata().unwrap().len();
            }
        }
    }
    let size: u64 = server.sql("select pg_total_relation_size('t')").parse().unwrap();
    assert!(bytes >= size * 9 / 10, "{bytes} of {size}");
    for libraries in ["", "cfs"] {
        let mut single = server.cluster.owner().command(server.cluster.server().program("postgres"));
        single.args(["--single", "-c"]).arg(format!("shared_preload_libraries={libraries}"));
        single.arg("-D").arg(backup).arg("postgres");
        let query = sum("t").replace('\n', " ").replace("count(*)", "count(*) as n");
        let said = pgshrink_testkit::run::output_with_input(&mut single, format!("{query}\n").as_bytes());
        let said = said.unwrap();
        for number in before.split('|') {
            assert!(said.contains(&format!("\"{number}\"")), "with '{libraries}': {said}");
        }
    }
}

#[test]
fn a_standby_follows_compresses_what_it_makes_and_is_promoted() {
    on_each_major("standbys", |server| {
        // Both in one machine: a tablespace's location is the same path for both, so it is inside the data directory.
        server.cluster.set_conf("allow_in_place_tablespaces", "on").unwrap();
        server.cluster.reload().unwrap();
        server.sql("drop tablespace fast");
        server.sql("create tablespace fast location '' with (compression = 'zstd:1')");
        server.sql(&table("before", 2_000));
        let standby = server.cluster.standby().start().unwrap();
        server.sql(&table("after", 20_000));
        server.sql("create tablespace later location '' with (compression = 'lz4'); update before set word = 'w' where id < 100");
        let caught_up = || {
            let here = server.sql("select pg_current_wal_lsn()");
            wait_until(Duration::from_secs(60), "the standby", || {
                standby
                    .sql(&format!("select pg_last_wal_replay_lsn() >= '{here}'"))
                    .is_ok_and(|said| said == "t")
            })
            .unwrap();
        };
        caught_up();
        for name in ["before", "after"] {
            assert_eq!(standby.sql(&sum(name)).unwrap(), server.sql(&sum(name)), "{name}");
        }
        // Its files are its own: what came with the backup is plain, what it made is compressed.
        let small = "select cfs_relation_size('after') between 1 and pg_relation_size('after') / 3";
        assert_eq!(standby.sql(small).unwrap(), "t");
        wait_until(Duration::from_secs(60), "the setting of a tablespace that was made later", || {
            standby
                .sql("select in_force from cfs_tablespaces where name = 'later'")
                .is_ok_and(|found| found == "lz4:1")
        })
        .unwrap();
        standby.kill().unwrap();
        standby.start().unwrap();
        server.sql("truncate before; vacuum full after; insert into before values (1)");
        caught_up();
        assert_eq!(standby.sql(&sum("after")).unwrap(), server.sql(&sum("after")));
        let expected = server.sql(&sum("after"));
        standby.promote().unwrap();
        assert_eq!(standby.sql(&sum("after")).unwrap(), expected);
        standby.sql("insert into before values (2); vacuum full before; checkpoint").unwrap();
        assert_eq!(standby.sql("select count(*) from before").unwrap(), "2");
    });
}
