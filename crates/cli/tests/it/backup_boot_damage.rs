//! `pgshrink verify --boot` of damaged backups, and of good ones on a machine that lacks something.

use crate::backup_boot::{Space, find, has_amcheck, said};
use pgshrink_testkit::{Cluster, Server};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;

/// Writes into a relation's file, behind the server's back.
fn overwrite(cluster: &Cluster, database: &str, relation: &str, block: u64, at: u64, bytes: &[u8]) {
    let path =
        cluster.psql().database(database).sql(&format!("select pg_relation_filepath('{relation}')")).unwrap();
    let file = fs::OpenOptions::new().write(true).open(cluster.data_dir().join(path.trim())).unwrap();
    file.write_all_at(bytes, block * 8192 + at).unwrap();
}

fn problem<'v>(report: &'v Value, relation: &str, check: &str) -> &'v Value {
    let problems = report["problems"].as_array().unwrap();
    let is_it = |problem: &&Value| problem["relation"] == relation && problem["check"] == check;
    problems.iter().find(is_it).unwrap_or_else(|| panic!("{relation} {check}: {report:#}"))
}

// tidy: long, one cluster with every damage
#[test]
fn damage_that_a_backup_took_with_it_is_found_and_named() {
    Server::each("verify --boot finds damage", &[15, 18], |server| {
        let space = Space::new();
        // 18 has checksums unless told otherwise, and then the server would not back it up.
        let mut cluster = Cluster::builder().server(server).conf("autovacuum", "off");
        if server.major >= 18 {
            cluster = cluster.initdb_arg("--no-data-checksums");
        }
        let cluster = cluster.start().unwrap();
        cluster
            .sql(
                "create table whole as select n from generate_series(1, 1000) n;
                 create table torn as select n, repeat('x', 100) as t from generate_series(1, 1000) n;
                 create table bent as select n, repeat('x', 100) as t from generate_series(1, 1000) n;
                 create table lost as select n from generate_series(1, 1000) n;
                 create table holed as select n from generate_series(1, 1000) n;
                 create table toasted as select n, string_agg(md5((n * m)::text), '') as value
                   from generate_series(1, 5) n, generate_series(1, 2000) m group by n;
                 create index short on whole (n);
                 create table seen as select n from generate_series(1, 1000) n;
                 create database other; create database unreachable;",
            )
            .unwrap();
        cluster
            .psql()
            .database("other")
            .sql("create table torn as select n from generate_series(1, 9) n")
            .unwrap();
        // An index that does not know of a row.
        cluster
            .sql("update pg_index set indisready = false, indisvalid = false where indexrelid = 'short'::regclass")
            .unwrap();
        cluster.sql("insert into whole values (-1)").unwrap();
        cluster
            .sql("update pg_index set indisready = true, indisvalid = true where indexrelid = 'short'::regclass")
            .unwrap();
        cluster.sql("vacuum seen; checkpoint").unwrap();
        let chunks =
            cluster.sql("select reltoastrelid::regclass from pg_class where relname = 'toasted'").unwrap();
        let unreachable = cluster.sql("select oid from pg_database where datname = 'unreachable'").unwrap();
        let lost = cluster.sql("select pg_relation_filepath('lost')").unwrap();
        overwrite(&cluster, "postgres", "torn", 1, 0, &[0xff; 512]);
        overwrite(&cluster, "other", "torn", 0, 0, &[0xff; 512]);
        // A row's length of infomask and a xmin that no transaction had.
        overwrite(&cluster, "postgres", "bent", 2, 8192 - 136, &0x7fff_fff0_u32.to_le_bytes());
        overwrite(&cluster, "postgres", chunks.trim(), 1, 0, &[0; 8192]);
        fs::remove_file(cluster.data_dir().join(lost.trim())).unwrap();
        let map = cluster.data_dir().join("base").join(unreachable.trim()).join("pg_filenode.map");
        fs::OpenOptions::new().write(true).open(map).unwrap().write_all_at(&[0xff; 4], 100).unwrap();
        space.backup(&cluster.conninfo("postgres"));

        let (report, output) = space.verified(server, &[], 1);
        assert_eq!(report["verdict"], "damaged");
        assert_eq!(report["checksums"], "off");
        let torn = problem(&report, "torn", "read");
        assert!(torn["message"].as_str().unwrap().contains("invalid page in block"), "{torn}");
        assert_eq!((&torn["schema"], torn["database"].as_str().is_some()), (&Value::from("public"), true));
        let torn: Vec<_> = report["problems"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|problem| problem["relation"] == "torn" && problem["check"] == "read")
            .map(|problem| problem["database"].as_str().unwrap())
            .collect();
        assert_eq!(torn, ["postgres", "other"], "each by its database");
        assert!(problem(&report, "lost", "read")["message"].as_str().unwrap().contains(lost.trim()));
        let toasted = problem(&report, "toasted", "read");
        assert!(toasted["message"].as_str().unwrap().contains("chunk number"), "{toasted}");
        let closed = report["problems"]
            .as_array()
            .unwrap()
            .iter()
            .find(|problem| problem["check"] == "connect")
            .unwrap();
        assert_eq!(closed["database"], "unreachable");
        let text = said(&output);
        for name in ["public.torn", "public.lost", "public.toasted", "database unreachable"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        if has_amcheck(server) {
            problem(&report, "bent", "verify_heapam");
            let short = problem(&report, "short", "bt_index_parent_check");
            assert!(short["message"].as_str().unwrap().contains("lacks matching index tuple"), "{short}");
        }
        for problem in report["problems"].as_array().unwrap() {
            assert!(problem["relation"] != "whole" && problem["relation"] != "seen", "{problem}");
        }
    });
}

#[test]
fn wrong_checksums_that_no_check_reads_are_found() {
    Server::each("verify --boot compares checksums", &[18], |server| {
        let space = Space::new();
        let cluster = Cluster::builder().server(server).initdb_arg("--data-checksums").start().unwrap();
        cluster.sql("create table t as select n, n % 7 as m from generate_series(1, 5000) n").unwrap();
        cluster.sql("create index on t using hash (m); vacuum t; checkpoint").unwrap();
        // A position in WAL that is far ahead: the server takes the page for one that the replay of WAL will write, and sends it.
        overwrite(&cluster, "postgres", "t_m_idx", 3, 0, &0x100_u32.to_le_bytes());
        space.backup(&cluster.conninfo("postgres"));
        let (report, _) = space.verified(server, &[], 1);
        assert_eq!(report["checksums"], "checked");
        let found = problem(&report, "t_m_idx", "pg_checksums");
        assert!(found["message"].as_str().unwrap().contains("block 3"), "{found}");
        assert_eq!(found["database"], "postgres");
    });
}

#[test]
fn what_this_machine_lacks_is_no_damage() {
    Server::each("verify --boot lacks something", &[15], |server| {
        let space = Space::new();
        let cluster =
            Cluster::builder().server(server).conf("max_prepared_transactions", "5").start().unwrap();
        cluster.sql("create table locked (n int); insert into locked values (1)").unwrap();
        cluster.sql("begin; lock table locked; prepare transaction 'forgotten'").unwrap();
        cluster.set_conf("shared_preload_libraries", "no_such_library").unwrap();
        space.backup(&cluster.conninfo("postgres"));
        let (_, output) = space.verified(server, &[], 2);
        let text = said(&output);
        assert!(
            text.contains("no_such_library") && text.contains("--set shared_preload_libraries="),
            "{text}"
        );
        assert!(text.contains("FATAL"), "the log is shown: {text}");
        let (_, output) = space.verified(
            server,
            &["--set", "shared_buffers=1000TB", "--set", "shared_preload_libraries="],
            2,
        );
        assert!(said(&output).contains("--set"), "{}", said(&output));
        let (report, output) = space.verified(server, &["--set", "shared_preload_libraries="], 2);
        assert_eq!(report["verdict"], "incomplete", "{report:#}");
        let left = find(&report, "postgres")["not_read"].clone();
        assert_eq!(left[0]["examples"], serde_json::json!(["public.locked"]), "{report:#}");
        assert!(left[0]["why"].as_str().unwrap().contains("lock timeout"), "{left}");
        assert!(said(&output).contains("1 relation could not be read"), "{}", said(&output));
    });
}

#[test]
fn a_cluster_that_does_not_start_is_damaged() {
    Server::each("verify --boot does not start", &[15], |server| {
        let space = Space::new();
        let cluster = Cluster::builder().server(server).conf("autovacuum", "off").start().unwrap();
        cluster.sql("create table t as select n from generate_series(1, 1000) n; checkpoint").unwrap();
        // The server has it in memory, and it is in the backup's manifest as it is on the disk.
        fs::write(cluster.data_dir().join("pg_xact/0000"), b"").unwrap();
        space.backup(&cluster.conninfo("postgres"));
        let (report, output) = space.verified(server, &[], 1);
        assert_eq!(report["verdict"], "damaged");
        let text = said(&output);
        assert!(text.contains("did not start") && text.contains("pg_xact"), "{text}");
    });
}
