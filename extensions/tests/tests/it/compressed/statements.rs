//! Statements that make, change, move and remove files.

use pgshrink_testkit::{Server, Stop};

use super::{Compressed, MAJORS, on_each_major, sum, table};

#[test]
fn tables_indexes_and_toast_shrink_and_say_what_they_said() {
    on_each_major("compressed tables", |server| {
        server.sql(&table("t", 50_000));
        server.sql("checkpoint");
        let containers = server.containers();
        assert!(containers.len() >= 4, "{containers:?}");
        let row = server.sql("select virtual_bytes > 3 * disk_bytes, unreadable from cfs_relations where relation = 't'::regclass");
        assert_eq!(row, "t|0");
        assert_eq!(server.sql("select pg_relation_size('t') > 3 * cfs_relation_size('t')"), "t");
        let before = server.sql(&sum("t"));
        server.cluster.restart().unwrap();
        assert_eq!(server.sql(&sum("t")), before);
        server.sql(
            "update t set word = 'other ' || id where id % 3 = 0; delete from t where id % 7 = 0; vacuum t",
        );
        let before = server.sql(&sum("t"));
        server.sql("checkpoint");
        assert_eq!(server.sql(&sum("t")), before);
        assert_eq!(
            server.sql("set enable_seqscan = off; select word from t where id = 33333"),
            "other 33333"
        );
    });
}

#[test]
fn rewriting_and_moving_statements_keep_every_row() {
    on_each_major("rewriting statements", |server| {
        server.sql(&table("t", 20_000));
        let before = server.sql(&sum("t"));
        for statement in [
            "vacuum full t",
            "cluster t using t_pkey",
            "reindex table t",
            "reindex index concurrently t_pkey",
            "alter table t set tablespace pg_default",
            "alter table t set tablespace fast",
            "alter index t_pkey set tablespace pg_default",
            "alter index t_pkey set tablespace fast",
            "alter table t alter column id type bigint",
            "create materialized view m tablespace fast as select * from t; refresh materialized view m",
            "alter tablespace fast set (compression = 'lz4')",
            "update t set word = word",
            "alter tablespace fast set (compression = none)",
            "vacuum full t",
            "alter tablespace fast set (compression = 'zstd:9')",
            "vacuum full t",
        ] {
            server.sql(statement);
            assert_eq!(server.sql(&sum("t")), before, "{statement}");
        }
        assert_eq!(server.sql("select form from cfs_segments((select reltablespace from pg_class where relname = 't'), pg_relation_filenode('t')) where fork = 'main'"), "compressed");
        server.sql("truncate t; insert into t values (1)");
        assert_eq!(server.sql("select count(*) from t"), "1");
        server.sql("drop materialized view m; drop table t; checkpoint");
        assert!(server.containers().is_empty(), "{:?}", server.containers());
        server.sql("drop tablespace fast");
    });
}

#[test]
fn databases_are_copied_with_their_compressed_tables_and_keep_plain_catalogs() {
    Server::each_with_extensions("copied databases", &MAJORS, |binaries| {
        // Only what the statements themselves do is looked at here.
        let server = Compressed::start(binaries, &[("cfs.convert", "off")]);
        server.sql("create database one");
        server.psql("one").sql(&table("t", 5_000)).unwrap();
        let before = server.psql("one").sql(&sum("t")).unwrap();
        for strategy in ["file_copy", "wal_log"] {
            server.sql(&format!("create database two template one strategy {strategy}"));
            assert_eq!(server.psql("two").sql(&sum("t")).unwrap(), before, "{strategy}");
            server.psql("two").sql("delete from t where id % 2 = 0; vacuum t; checkpoint").unwrap();
            server.sql("drop database two");
        }
        // A database whose catalogs are in the tablespace.
        let containers = server.containers();
        for strategy in ["file_copy", "wal_log"] {
            server.sql(&format!(
                "create database three template template0 strategy {strategy} tablespace fast"
            ));
            server
                .psql("three")
                .sql("create table t as select generate_series(1, 1000) i; vacuum full pg_class")
                .unwrap();
            assert_eq!(server.containers(), containers, "{strategy}");
            server.sql(
                "alter database three set tablespace pg_default; alter database three set tablespace fast",
            );
            assert_eq!(server.psql("three").sql("select sum(i) from t").unwrap(), "500500");
            assert_eq!(server.containers(), containers, "{strategy}");
            server.cluster.kill().unwrap();
            server.cluster.start().unwrap();
            assert_eq!(server.psql("three").sql("select sum(i) from t").unwrap(), "500500");
            server.sql("drop database three");
        }
        server.sql("drop database one; drop tablespace fast");
    });
}

#[test]
fn unlogged_and_temporary_tables_live_as_in_any_tablespace() {
    on_each_major("unlogged tables", |server| {
        server.sql(
            "create unlogged table u (id int primary key) tablespace fast; insert into u select generate_series(1, 5000);
            set temp_tablespaces = fast; create temporary table w as select generate_series(1, 100000) i;
            select sum(i) from w",
        );
        server.cluster.restart().unwrap();
        assert_eq!(server.sql("select count(*) from u"), "5000");
        server.sql("insert into u values (0)");
        server.cluster.kill().unwrap();
        server.cluster.start().unwrap();
        assert_eq!(server.sql("select count(*) from u"), "0");
        server.sql("insert into u values (7)");
        assert_eq!(server.sql("select id from u where id = 7"), "7");
    });
}

#[test]
fn tablespaces_inside_the_data_directory_work_and_so_does_a_single_user_server() {
    Server::each_with_extensions("in-place tablespaces", &MAJORS, |binaries| {
        let server = Compressed::start(binaries, &[("allow_in_place_tablespaces", "on")]);
        server.sql("create tablespace inside location '' with (compression = true)");
        server
            .sql("create table t (i int) tablespace inside; insert into t select generate_series(1, 10000)");
        server.sql("checkpoint");
        assert_eq!(
            server.sql("select sum(i), cfs_relation_size('t') < pg_relation_size('t') from t"),
            "50005000|t"
        );
        server.cluster.stop(Stop::Fast).unwrap();
        let owner = server.cluster.owner();
        let mut single = owner.command(server.cluster.server().program("postgres"));
        single.args(["--single", "-D"]).arg(server.cluster.data_dir()).arg("postgres");
        let said = pgshrink_testkit::run::output_with_input(
            &mut single,
            "insert into t values (10001); select sum(i) as total from t\n".as_bytes(),
        );
        assert!(said.unwrap().contains("50015001"));
        server.cluster.start().unwrap();
        assert_eq!(server.sql("select sum(i) from t"), "50015001");
    });
}

#[test]
fn functions_answer_for_relations_of_every_kind() {
    on_each_major("relations of every kind", |server| {
        server.sql(
            "create table parted (i int, v text) partition by range (i) tablespace fast;
             select cfs_enable_gc(false);
             create table low partition of parted for values from (0) to (5000) with (fillfactor = 45) tablespace fast;
             create table high partition of parted for values from (5000) to (30000) with (fillfactor = 45) tablespace fast;
             insert into parted select i, md5(i::text) || md5((i + 1)::text) || md5((i + 2)::text) || md5((i + 3)::text) from generate_series(0, 29999) i;
             create unlogged table passing (i int primary key using index tablespace fast) tablespace fast;
             create table outside (i int); insert into outside select generate_series(1, 1000);
             create view seen as select 1",
        );
        // Not written by a checkpoint yet, and never negative.
        assert_eq!(
            server.sql("select bool_and(cfs_fragmentation(relation) between 0 and 1) from cfs_relations"),
            "t"
        );
        server.sql(
            "checkpoint; update parted set v = md5(v) || substr(v, 33) where i / 90 % 3 = 0; checkpoint",
        );
        let collected = "select cfs_gc_relation('parted') > 0, cfs_gc_relation('outside'), cfs_gc_relation('seen'), cfs_gc_relation(999999) is null";
        assert_eq!(server.sql(collected), "t|0|0|t");
        let sizes = "select cfs_relation_size('outside') = sum(pg_relation_size('outside', f)), cfs_relation_size('pg_class') > 0,
            cfs_relation_size('pg_database') > 0, cfs_relation_size('seen'), cfs_relation_size('parted'), cfs_relation_size(999999) is null
            from unnest(array['main', 'fsm', 'vm', 'init']) f";
        assert_eq!(server.sql(sizes), "t|t|t|0|0|t");
        let same = "select bool_and(cfs_relation_size(relation) = disk_bytes), bool_and(garbage_bytes <= disk_bytes) from cfs_relations";
        assert_eq!(server.sql(same), "t|t");
        for workers in ["0", "-1", "1000"] {
            let said = server.fails(&format!("select cfs_start_gc({workers})"));
            assert!(said.contains("22023") && said.contains("Choose 1 to 100."), "{workers}: {said}");
        }
    });
}
