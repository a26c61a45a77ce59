//! Catalogs are never converted.

use std::collections::BTreeSet;
use std::time::Duration;

use pgshrink_testkit::{Cluster, Stop};

use super::{on_each_major, sum, table};

/// Relations of the server's own whose file is a directory, in one database or shared by all.
fn converted_catalogs(cluster: &Cluster, database: &str) -> Vec<String> {
    let paths = "select pg_relation_filepath(oid) from pg_class where oid < 16384 and pg_relation_filepath(oid) is not null";
    let paths = cluster.psql().database(database).sql(paths).unwrap();
    let is_directory = |path: &&str| {
        ["", "_fsm", "_vm"].iter().any(|fork| cluster.data_dir().join(format!("{path}{fork}")).is_dir())
    };
    paths.lines().filter(is_directory).map(str::to_owned).collect()
}

#[test]
fn catalogs_stay_plain_while_all_of_a_database_is_compressed_and_they_are_rewritten() {
    on_each_major("catalogs", |live| {
        live.sql("create database d; create database stock");
        let d = |sql: &str| live.cluster.psql().database("d").sql(sql).unwrap();
        d(&format!("create extension cfs; {}", table("t", 8_000)));
        let expected = d(&sum("t"));
        live.set(&[("cfs.convert_rate", "16MB")]);
        live.sql("select cfs_compress_database('d'), cfs_compress_database('postgres')");
        let mut numbers = BTreeSet::new();
        for _ in 0..3 {
            // Their files get numbers above those of tables.
            d("vacuum full pg_class; vacuum full pg_attribute; vacuum full pg_proc; reindex system d;
                vacuum full pg_depend; vacuum full pg_database; vacuum full pg_statistic");
            numbers.insert(d("select pg_relation_filenode('pg_attribute')::int > 16384"));
            live.sql("vacuum full pg_class; vacuum full pg_attribute; vacuum full pg_proc");
            for database in ["d", "postgres", "stock"] {
                assert_eq!(converted_catalogs(&live.cluster, database), Vec::<String>::new());
            }
            std::thread::sleep(Duration::from_millis(400));
        }
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), ["t"]);
        live.set(&[("cfs.convert_rate", "0")]);
        assert_eq!(d("select cfs_wait('t', '100 s')"), "t");
        assert_eq!(d(&sum("t")), expected);
        for database in ["d", "postgres", "stock"] {
            assert_eq!(converted_catalogs(&live.cluster, database), Vec::<String>::new());
        }
        // Without the library the server starts, and databases without a container can be used.
        live.cluster.stop(Stop::Fast).unwrap();
        live.cluster.set_conf("shared_preload_libraries", "").unwrap();
        live.cluster.start().unwrap();
        assert_eq!(
            live.cluster.psql().database("stock").sql("select count(*) > 100 from pg_class").unwrap(),
            "t"
        );
        // In the other one, too: only its tables cannot be read.
        assert_eq!(d("select count(*) > 100 from pg_class"), "t");
        let said = live.cluster.psql().database("d").sql("select count(*) from t").unwrap_err().to_string();
        assert!(said.contains("ERROR"), "{said}");
        live.cluster.set_conf("shared_preload_libraries", "cfs").unwrap();
        live.cluster.restart().unwrap();
        assert_eq!(d(&sum("t")), expected);
        // All the way back: then the server is one that never knew.
        live.sql("select cfs_decompress_database('d'), cfs_decompress_database('postgres')");
        assert_eq!(d("select cfs_wait('t', '100 s')"), "t");
        assert_eq!(d("select count(*) from cfs_container_files()"), "0");
        live.cluster.set_conf("shared_preload_libraries", "").unwrap();
        live.cluster.restart().unwrap();
        assert_eq!(d(&sum("t")), expected);
    });
}

#[test]
fn catalogs_stay_plain_in_a_database_whose_default_tablespace_is_compressed() {
    on_each_major("catalogs in a compressed tablespace", |live| {
        live.sql("create tablespace fast location '' with (compression = 'zstd:1'); create database d tablespace fast");
        let d = |sql: &str| live.cluster.psql().database("d").sql(sql).unwrap();
        d(&format!("create extension cfs; {}", table("t", 4_000)));
        let expected = d(&sum("t"));
        d("vacuum full pg_class; vacuum full pg_attribute; reindex system d; vacuum full t");
        assert_eq!(d("select cfs_wait('t', '100 s')"), "t");
        assert_eq!(converted_catalogs(&live.cluster, "d"), Vec::<String>::new());
        assert_eq!(d("select cfs_relation_size('t') < pg_relation_size('t') / 2"), "t");
        d("select cfs_decompress_relation('t')");
        assert_eq!(d("select cfs_wait('t', '100 s')"), "t");
        d("select cfs_compress_relation('t')");
        d("vacuum full pg_class; vacuum full pg_attribute");
        assert_eq!(d("select cfs_wait('t', '100 s')"), "t");
        assert_eq!(converted_catalogs(&live.cluster, "d"), Vec::<String>::new());
        assert_eq!(d(&sum("t")), expected);
    });
}
