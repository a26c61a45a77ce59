//! Servers with the library, without it, and with it loaded in another way.

use pgshrink_testkit::{Cluster, Server, Stop};

use super::{MAJORS, on_each_major, setting, sql, with_cfs};
use crate::databases::failure;

#[test]
fn the_library_is_loaded_at_start_or_not_at_all() {
    Server::each_with_extensions("loading", &MAJORS, |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        for statement in ["load 'cfs'", "create extension cfs"] {
            let said = failure(cluster.psql(), "55000", statement);
            assert!(said.contains("Add cfs to shared_preload_libraries"), "{said}");
        }
        sql(&cluster, "alter system set session_preload_libraries = 'cfs'; select pg_reload_conf()");
        pgshrink_testkit::wait_until(std::time::Duration::from_secs(20), "the refusal", || {
            cluster.sql("select 1").is_err_and(|error| error.to_string().contains("shared_preload_libraries"))
        })
        .unwrap();
    });
}

#[test]
fn settings_have_defaults_limits_and_units() {
    on_each_major("GUCs", |cluster| {
        let shown = sql(
            cluster,
            "select name, current_setting(name) from pg_settings where name like 'cfs.%' order by 1",
        );
        for line in [
            "cfs.gc|on",
            "cfs.gc_workers|1",
            "cfs.gc_period|5s",
            "cfs.max_open_segments|10000",
            "cfs.backend_memory|16MB",
            "cfs.convert|on",
            "cfs.convert_rate|32MB",
            "cfs.convert_workers|1",
            "cfs.naptime|30s",
            "cfs.node_compression|",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line} in {shown}");
        }
        assert_eq!(sql(cluster, "select max_val from pg_settings where name = 'cfs.gc_workers'"), "100");
        let vague = "select count(*) from pg_settings where name like 'cfs.%' and (short_desc = '' or short_desc not like '%.')";
        assert_eq!(sql(cluster, vague), "0");
        failure(cluster.psql(), "55P02", "set cfs.max_open_segments = 100");
        failure(cluster.psql(), "42602", "set cfs.gc_treshold = 5");
        // A dispatcher comes and goes.
        let workers = "select string_agg(backend_type, ', ' order by backend_type) from pg_stat_activity
            where backend_type like 'cfs %' and backend_type <> 'cfs dispatcher'";
        assert_eq!(sql(cluster, workers), "cfs converter, cfs garbage collector, cfs launcher");
        assert!(!cluster.log_contains("FATAL"), "{}", cluster.log().unwrap());
    });
}

#[test]
fn a_server_without_the_library_replays_the_log_and_follows() {
    Server::each_with_extensions("a stock standby", &MAJORS, |server| {
        let cluster = with_cfs(server);
        sql(&cluster, "create extension cfs; create tablespace t location '' with (compression = lz4)");
        let standby = cluster.standby().conf("shared_preload_libraries", "").start().unwrap();
        sql(&cluster, "create table r tablespace t as select generate_series(1, 10000) a");
        sql(&cluster, "alter tablespace t set (compression = 'zstd:2'); update r set a = a + 1");
        sql(&cluster, "create tablespace u location '' with (compression = 'zstd:3'); drop tablespace u");
        pgshrink_testkit::wait_until(std::time::Duration::from_secs(30), "the stock standby", || {
            standby
                .sql("select label from pg_shseclabel where provider = 'cfs'")
                .is_ok_and(|label| label == "compression=zstd:2")
                && standby.sql("select sum(a) from r").is_ok_and(|sum| sum == "50015000")
        })
        .unwrap();
        // Its files are plain ones.
        let path = standby.data_dir().join(sql(&standby, "select pg_relation_filepath('r')"));
        assert!(
            path.is_file()
                && cluster.data_dir().join(sql(&cluster, "select pg_relation_filepath('r')")).is_dir()
        );
        // It goes on as a server that never knew.
        standby.promote().unwrap();
        assert_eq!(sql(&standby, "update r set a = 0; select sum(a) from r"), "0");
    });
}

#[test]
fn a_crashed_server_starts_without_the_library_while_nothing_is_compressed_and_not_later() {
    Server::each_with_extensions("a stock start", &MAJORS, |server| {
        let cluster = with_cfs(server);
        sql(&cluster, "checkpoint; create tablespace t location '' with (compression = lz4)");
        sql(&cluster, "alter tablespace t set (compression = 'zstd:2'); create tablespace u location ''");
        cluster.stop(Stop::Immediate).unwrap();
        cluster.set_conf("shared_preload_libraries", "").unwrap();
        cluster.start().unwrap();
        assert_eq!(
            sql(&cluster, "select label from pg_shseclabel where provider = 'cfs'"),
            "compression=zstd:2"
        );
        cluster.set_conf("shared_preload_libraries", "cfs").unwrap();
        cluster.restart().unwrap();
        assert_eq!(setting(&cluster, "t"), "compression=zstd:2");
        sql(&cluster, "checkpoint; create table r tablespace t as select generate_series(1, 10000) a");
        cluster.stop(Stop::Immediate).unwrap();
        cluster.set_conf("shared_preload_libraries", "").unwrap();
        let refused = cluster.start().unwrap_err().to_string();
        assert!(refused.contains("FATAL"), "{refused}");
        cluster.set_conf("shared_preload_libraries", "cfs").unwrap();
        cluster.start().unwrap();
        assert_eq!(sql(&cluster, "select sum(a) from r"), "50005000");
    });
}
