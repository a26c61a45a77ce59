//! Transactions, restarts, and where a setting goes from there.

use std::time::Duration;

use pgshrink_testkit::{Server, TempDir, wait_until};

use super::{MAJORS, files, labels, on_each_major, setting, settle, sql, with_cfs};
use crate::databases::failure;

const IN_FORCE: &str = "select name, compression, in_force from cfs_tablespaces order by 1";

#[test]
fn a_setting_follows_its_transaction_and_its_savepoints() {
    on_each_major("settings in transactions", |cluster| {
        sql(cluster, "create extension cfs; create tablespace t location '' with (compression = lz4)");
        sql(cluster, "begin; alter tablespace t set (compression = zstd); rollback");
        assert_eq!(setting(cluster, "t"), "compression=lz4:1");
        sql(
            cluster,
            "begin; alter tablespace t set (compression = 'zstd:2'); savepoint s;
            alter tablespace t set (compression = 'zstd:3'); rollback to s; commit",
        );
        assert_eq!(setting(cluster, "t"), "compression=zstd:2");
        sql(
            cluster,
            "begin; savepoint s; alter tablespace t set (compression = none); rollback to s; commit",
        );
        assert_eq!(setting(cluster, "t"), "compression=zstd:2");
        sql(
            cluster,
            "begin; alter tablespace t set (compression = lz4); alter tablespace t set (compression = 'zlib:2'); commit",
        );
        assert_eq!(setting(cluster, "t"), "compression=zlib:2");
        assert_eq!(sql(cluster, IN_FORCE), "t|zlib:2|zlib:2");
        // Before its commit it is in force for nobody.
        let seen =
            sql(cluster, &format!("begin; alter tablespace t set (compression = lz4); {IN_FORCE}; rollback"));
        assert_eq!(seen, "t|lz4:1|zlib:2");
    });
}

#[test]
fn a_setting_survives_restarts_and_renames_and_goes_with_its_tablespace() {
    on_each_major("settings across restarts", |cluster| {
        sql(cluster, "create extension cfs; create tablespace t location '' with (compression = lz4)");
        sql(
            cluster,
            "alter tablespace t rename to renamed; alter tablespace renamed set (compression = 'zstd:4')",
        );
        let stated = "renamed|zstd:4|zstd:4";
        assert_eq!(sql(cluster, IN_FORCE), stated);
        cluster.restart().unwrap();
        assert_eq!(sql(cluster, IN_FORCE), stated);
        cluster.kill().unwrap();
        cluster.start().unwrap();
        assert_eq!(sql(cluster, IN_FORCE), stated);
        sql(cluster, "drop tablespace renamed");
        assert!(labels(cluster).is_empty() && files(cluster).is_empty());
        assert_eq!(sql(cluster, "select count(*) from cfs_tablespaces where in_force <> 'none'"), "0");
    });
}

#[test]
fn a_tablespace_that_is_not_made_leaves_no_file() {
    on_each_major("a CREATE that fails late", |cluster| {
        let oids = "select count(*) from pg_tablespace";
        let before = sql(cluster, oids);
        let data = cluster.data_dir();
        // A file where the folder should be: the statement fails after the server's part.
        std::fs::write(data.join("pg_cfs"), "").unwrap();
        let said =
            failure(cluster.psql(), "58030", "create tablespace no location '' with (compression = lz4)");
        assert!(said.contains("cannot save the tablespace's compression"), "{said}");
        std::fs::remove_file(data.join("pg_cfs")).unwrap();
        assert_eq!(sql(cluster, oids), before);
        assert!(labels(cluster).is_empty() && files(cluster).is_empty());
        sql(cluster, "create tablespace yes location '' with (compression = lz4)");
        assert_eq!(setting(cluster, "yes"), "compression=lz4:1");
    });
}

#[test]
fn a_file_that_cannot_be_written_after_the_commit_is_a_warning_and_is_mended() {
    on_each_major("an ALTER whose file fails", |cluster| {
        sql(cluster, "create tablespace t location '' with (compression = lz4)");
        let folder = cluster.data_dir().join("pg_cfs");
        std::fs::rename(&folder, folder.with_extension("aside")).unwrap();
        std::fs::write(&folder, "").unwrap();
        sql(cluster, "alter tablespace t set (compression = 'zstd:5')");
        let log = cluster.log().unwrap();
        assert!(log.contains("WARNING") && log.contains("was not saved"), "{log}");
        std::fs::remove_file(&folder).unwrap();
        std::fs::rename(folder.with_extension("aside"), &folder).unwrap();
        settle(cluster);
        assert_eq!(setting(cluster, "t"), "compression=zstd:5");
    });
}

#[test]
fn many_sessions_that_alter_one_tablespace_leave_what_the_last_commit_said() {
    on_each_major("concurrent changes", |cluster| {
        sql(cluster, "create extension cfs; create tablespace t location '' with (compression = lz4)");
        for round in 0..5 {
            std::thread::scope(|scope| {
                for session in 1..=6 {
                    scope.spawn(move || {
                        for level in 1..=10 {
                            let level = (level * session + round) % 19 + 1;
                            if session % 2 == 0 {
                                // One of two at the same time may fail: "tuple concurrently updated".
                                let _ = cluster
                                    .sql(&format!("alter tablespace t set (compression = 'zstd:{level}')"));
                            } else {
                                sql(
                                    cluster,
                                    &format!(
                                        "security label for cfs on tablespace t is 'compression=zstd:{level}'"
                                    ),
                                );
                            }
                        }
                    });
                }
            });
            let now = setting(cluster, "t").replace("compression=", "");
            assert_eq!(sql(cluster, IN_FORCE), format!("t|{now}|{now}"));
        }
        assert!(!cluster.log_contains("was not saved"), "{}", cluster.log().unwrap());
    });
}

#[test]
fn a_dump_of_all_restores_settings() {
    Server::each_with_extensions("pg_dumpall", &MAJORS, |server| {
        let (from, to) = (with_cfs(server), with_cfs(server));
        let places = [(); 4].map(|()| TempDir::owned_by(from.owner()).unwrap());
        let [t, plain, new_t, new_plain] = places.each_ref().map(|place| place.path().to_str().unwrap());
        sql(&from, &format!("create tablespace t location '{t}' with (compression = 'zstd:7')"));
        sql(&from, &format!("create tablespace plain location '{plain}'"));
        let mut dumper = from.command("pg_dumpall");
        dumper.args(["--tablespaces-only", "-U", "postgres", "-h"]).arg(from.socket_dir());
        let dump = pgshrink_testkit::run::output(dumper.args(["-p", &from.port().to_string()])).unwrap();
        // Two servers of one version cannot share a directory.
        let moved = |text: &str, old: &str, new: &str| text.replace(&format!("'{old}'"), &format!("'{new}'"));
        sql(&to, &moved(&moved(&dump, t, new_t), plain, new_plain));
        assert_eq!(setting(&to, "t"), "compression=zstd:7");
        assert_eq!(setting(&to, "plain"), "");
    });
}

#[test]
fn a_standby_follows_and_goes_on_when_it_is_promoted() {
    on_each_major("settings on a standby", |primary| {
        sql(primary, "create extension cfs; create tablespace before location '' with (compression = lz4)");
        let standby = primary.standby().start().unwrap();
        assert_eq!(files(&standby), files(primary));
        sql(primary, "create tablespace after location '' with (compression = 'zstd:2')");
        sql(primary, "alter tablespace before set (compression = 'zstd:3')");
        let follows = |what: &str, expected: &str| {
            wait_until(Duration::from_secs(40), what, || {
                files(&standby) == files(primary) && sql(&standby, IN_FORCE) == expected
            })
            .unwrap_or_else(|error| panic!("{error}\n{:?}\n{}", files(&standby), standby.log().unwrap()));
        };
        follows("the standby's settings", "after|zstd:2|zstd:2\nbefore|zstd:3|zstd:3");
        sql(primary, "drop tablespace after");
        wait_until(Duration::from_secs(40), "the drop", || files(&standby) == files(primary)).unwrap();
        standby.promote().unwrap();
        sql(&standby, "alter tablespace before set (compression = none)");
        assert_eq!(setting(&standby, "before"), "compression=none");
        assert_eq!(setting(primary, "before"), "compression=zstd:3");
    });
}

#[test]
fn a_broken_file_stops_no_server_and_is_mended() {
    on_each_major("a setting's file that is broken", |cluster| {
        sql(cluster, "create extension cfs; create tablespace t location '' with (compression = lz4)");
        sql(cluster, "create table c (i) tablespace t as select generate_series(1, 1000)");
        let oid = sql(cluster, "select oid from pg_tablespace where spcname = 't'");
        cluster.stop(pgshrink_testkit::Stop::Fast).unwrap();
        let path = cluster.data_dir().join("pg_cfs").join(&oid);
        std::fs::write(&path, "cfs 1 lz4:1 00000000\n").unwrap();
        cluster.start().unwrap();
        assert!(cluster.log_contains("not the setting of a compressed tablespace"));
        assert_eq!(sql(cluster, "select sum(i) from c"), "500500");
        wait_until(Duration::from_secs(60), "the launcher", || sql(cluster, IN_FORCE) == "t|lz4:1|lz4:1")
            .unwrap();
    });
}
