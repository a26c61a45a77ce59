//! Base backups and standbys.

use std::time::Duration;

use pgshrink_testkit::wait_until;

use super::{on_each_major, sum, table};

#[test]
fn a_base_backup_has_plain_pages_and_starts_with_and_without_the_library() {
    on_each_major("base backups", |server| {
        server.sql(&table("t", 20_000));
        let before = server.sql(&sum("t"));
        let backup = server.location.path().join("backup");
        let mapping = server.location.path().join("fast").display().to_string();
        let copied = server.location.path().join("copied");
        let owner = server.cluster.owner();
        let mut command = owner.command(server.cluster.server().program("pg_basebackup"));
        command.args(["-X", "stream", "-c", "fast", "--no-sync", "-D"]).arg(&backup);
        command
            .arg("-T")
            .arg(format!("{mapping}={}", copied.display()))
            .arg("-d")
            .arg(server.cluster.conninfo_unix("postgres"));
        pgshrink_testkit::run::output(&mut command).unwrap();
        // Every file of the copy is a plain one.
        let mut open = vec![copied.clone()];
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
            let mut single = owner.command(server.cluster.server().program("postgres"));
            single.args(["--single", "-c"]).arg(format!("shared_preload_libraries={libraries}"));
            single.arg("-D").arg(&backup).arg("postgres");
            let query = sum("t").replace('\n', " ").replace("count(*)", "count(*) as n");
            let said = pgshrink_testkit::run::output_with_input(&mut single, format!("{query}\n").as_bytes())
                .unwrap();
            for number in before.split('|') {
                assert!(said.contains(&format!("\"{number}\"")), "with '{libraries}': {said}");
            }
        }
    });
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
