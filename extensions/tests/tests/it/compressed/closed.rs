//! A server, or a program, without the library: it reads nothing, copies nothing, damages nothing.

use pgshrink_testkit::Stop;

use super::{Compressed, on_each_major, sum, table};

fn made(server: &Compressed) -> String {
    server.sql("create database one");
    server.psql("one").sql(&table("t", 5_000)).unwrap();
    server.psql("one").sql("create table plain as select generate_series(1, 100) i; checkpoint").unwrap();
    server.psql("one").sql(&sum("t")).unwrap()
}

#[test]
fn a_server_without_the_library_reads_and_copies_nothing_and_all_is_there_when_it_is_back() {
    on_each_major("servers without the library", |server| {
        let before = made(server);
        server.restart_with("");
        let one = server.psql("one");
        for statement in ["select count(*) from t", "insert into t values (-1)", "vacuum t"] {
            let said = one.clone().sql(statement).expect_err(statement).to_string();
            assert!(said.contains("Is a directory"), "{statement}: {said}");
        }
        assert_eq!(one.sql("select sum(i) from plain").unwrap(), "5050");
        let said = server.fails("create database two template one strategy file_copy");
        assert!(said.contains("pgshrink-compressed-files-here-need-shared_preload_libraries-cfs"), "{said}");
        let said = server.fails("create database two template one strategy wal_log");
        assert!(said.contains("Is a directory"), "{said}");
        server.restart_with("cfs");
        assert_eq!(server.psql("one").sql(&sum("t")).unwrap(), before);
        server.psql("one").sql("insert into t values (-1); vacuum full t; checkpoint").unwrap();
    });
}

#[test]
fn a_drop_without_the_library_waits_for_its_return() {
    on_each_major("drops without the library", |server| {
        let before = made(server);
        server.psql("one").sql("create table keep tablespace fast as table t; checkpoint").unwrap();
        server.restart_with("");
        // After its commit the server cannot remove the files: it stops, and its redo cannot either.
        let _ = server.psql("one").sql("drop table t");
        server.cluster.set_conf("shared_preload_libraries", "cfs").unwrap();
        if server.cluster.is_running() {
            let _ = server.cluster.stop(Stop::Immediate);
        }
        server.cluster.start().unwrap();
        let count = server.psql("one").sql("select count(*) from pg_class where relname = 't'").unwrap();
        if count == "1" {
            assert_eq!(server.psql("one").sql(&sum("t")).unwrap(), before);
        }
        assert_eq!(server.psql("one").sql(&sum("keep")).unwrap(), before);
    });
}

#[test]
fn pg_checksums_refuses_a_tablespace_with_containers() {
    on_each_major("pg_checksums", |server| {
        let before = made(server);
        server.cluster.stop(Stop::Fast).unwrap();
        let mut command = server.cluster.command("pg_checksums");
        let has_checksums = server.cluster.server().major >= 18;
        command
            .arg(if has_checksums { "--check" } else { "--enable" })
            .arg("-D")
            .arg(server.cluster.data_dir());
        let said = pgshrink_testkit::run::output(&mut command).expect_err("pg_checksums").to_string();
        assert!(said.contains("pgshrink"), "{said}");
        server.cluster.start().unwrap();
        assert_eq!(server.psql("one").sql(&sum("t")).unwrap(), before);
    });
}

#[test]
fn a_database_can_be_dropped_without_the_library() {
    on_each_major("databases dropped without the library", |server| {
        made(server);
        server.restart_with("");
        server.sql("drop database one");
        assert!(server.containers().is_empty());
        server.restart_with("cfs");
        server.sql("drop tablespace fast");
    });
}
