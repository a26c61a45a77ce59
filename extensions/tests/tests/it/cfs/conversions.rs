//! Settings of tables and databases: who may set them, on what, and where they go.

use pgshrink_testkit::{Cluster, Server};

use super::{MAJORS, on_each_major, set, sql, with_cfs};
use crate::databases::failure;

const KINDS: &str = "
    create extension cfs;
    create table t (i int primary key, big text);
    create table parted (i int) partition by range (i);
    create table low partition of parted for values from (0) to (10);
    create table high partition of parted for values from (10) to (20) partition by range (i);
    create table highest partition of high for values from (15) to (20);
    create materialized view m as select 1 i;
    create view v as select 1 i;
    create sequence s;
    create foreign data wrapper w;
    create server other foreign data wrapper w;
    create foreign table f (i int) server other;
    create type c as (i int);
";

/// The labels of relations, by name.
fn labels(cluster: &Cluster) -> String {
    let query = "select objoid::regclass || ' ' || replace(label, 'compression=', '') from pg_seclabel
        where provider = 'cfs' order by 1";
    sql(cluster, query).replace('\n', ", ")
}

/// What a statement tells beside its result.
fn notices(cluster: &Cluster, statement: &str) -> String {
    let output = cluster.psql().arg("-c").arg(statement).command().output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What is in force for a relation, and what it comes from.
fn in_force(cluster: &Cluster, relation: &str) -> String {
    let query = format!("select setting, source from cfs_members(array['{relation}'::regclass::oid])");
    sql(cluster, &query).replace('|', " ")
}

#[test]
fn a_table_has_a_setting_that_outlives_its_files_and_follows_transactions() {
    on_each_major("settings of tables", |cluster| {
        sql(cluster, KINDS);
        sql(cluster, "select cfs_set('t', 'zstd:9'), cfs_set('parted', 'LZ4'), cfs_set('m', 'none')");
        let all = "m none, parted lz4:1, t zstd:9";
        assert_eq!(labels(cluster), all);
        for statement in [
            "vacuum full t",
            "cluster t using t_pkey",
            "reindex table t",
            "truncate t",
            "alter table t alter i type bigint",
            "refresh materialized view m",
            "alter table t rename to renamed; alter table renamed rename to t",
            "begin; select cfs_set('t', 'zstd:3'); rollback",
            "begin; savepoint x; select cfs_set('t', null); rollback to x; commit",
        ] {
            sql(cluster, statement);
            assert_eq!(labels(cluster), all, "{statement}");
        }
        sql(cluster, "security label for cfs on table t is 'compression=zstd:2'; drop table parted");
        assert_eq!(labels(cluster), "m none, t zstd:2");
        sql(cluster, "select cfs_set('t', null), cfs_set('m', null), cfs_set('m', null)");
        assert_eq!(labels(cluster), "");
        failure(cluster.psql(), "0A000", "begin; select cfs_set('t', 'lz4'); prepare transaction 'x'");
        assert_eq!(labels(cluster), "");
    });
}

#[test]
fn what_cannot_be_compressed_is_refused_with_the_reason() {
    on_each_major("kinds of relations", |cluster| {
        sql(cluster, KINDS);
        sql(cluster, "create table \"Odd\" (i int); create index odd_index on \"Odd\" (i)");
        let refused = [
            ("v", "42809", "it is a view"),
            ("s", "42809", "it is a sequence"),
            ("f", "42809", "it is a foreign table"),
            ("c", "42809", "it is no table"),
            ("t_pkey", "42809", "Indexes follow their table: name \"t\"."),
            ("odd_index", "42809", "name \"Odd\""),
            ("pg_class", "0A000", "it is a system catalog"),
            ("pg_shseclabel", "0A000", "it is a system catalog"),
            ("pg_class_oid_index", "0A000", "it is a system catalog"),
            ("information_schema.sql_features", "0A000", "it is a system catalog"),
        ];
        let functions = ["cfs_set('REL', 'lz4')", "cfs_compress_relation('REL')", "cfs_cancel('REL')"];
        for (relation, sqlstate, said) in refused {
            for function in functions {
                let statement = format!("select {}", function.replace("REL", relation));
                let message = failure(cluster.psql(), sqlstate, &statement);
                assert!(message.contains(said) && message.contains("HINT:"), "{statement}: {message}");
            }
        }
        let toast = sql(cluster, "select reltoastrelid::regclass from pg_class where relname = 't'");
        let said = failure(cluster.psql(), "42809", &format!("select cfs_set('{toast}', 'lz4')"));
        assert!(said.contains("TOAST tables follow their table"), "{said}");
        let said =
            failure(cluster.psql(), "42809", "create temp table w (i int); select cfs_set('w', 'lz4')");
        assert!(said.contains("it is a temporary table"), "{said}");
        for (sqlstate, statement) in [
            ("42P01", "select cfs_set(999999, 'lz4')"),
            ("22023", "select cfs_set('t', 'gzip')"),
            ("22023", "select cfs_set('t', 'zstd:99')"),
            ("22023", "select cfs_set('t', '')"),
            ("22023", "select cfs_compress_relation('t', 'none')"),
            ("22023", "select cfs_compress_database('postgres', 'none')"),
            ("3D000", "select cfs_compress_database('absent')"),
            ("55000", "select cfs_compress_database('template0')"),
            ("42809", "security label for cfs on view v is 'compression=lz4'"),
            ("42809", "security label for cfs on column t.i is 'compression=lz4'"),
            ("42809", "security label for cfs on sequence s is 'compression=lz4'"),
            ("0A000", "security label for cfs on table t is 'compression=lz4, encryption=on'"),
            ("0A000", "security label for cfs on database postgres is 'compression=lz4, encryption=on'"),
            ("22023", "security label for cfs on table t is 'zstd'"),
        ] {
            failure(cluster.psql(), sqlstate, statement);
        }
        assert_eq!(labels(cluster), "");
    });
}

#[test]
fn only_owners_change_settings() {
    on_each_major("owners of tables and databases", |cluster| {
        sql(cluster, KINDS);
        sql(
            cluster,
            "create role mine login; create role other login; create role watches login in role pg_monitor",
        );
        sql(
            cluster,
            "alter table t owner to mine; create database owned owner mine; grant all on t to other",
        );
        let own = [
            "cfs_set('t', 'lz4')",
            "cfs_compress_relation('t')",
            "cfs_decompress_relation('t')",
            "cfs_cancel('t')",
            "cfs_compress_database('owned')",
            "cfs_decompress_database('owned')",
        ];
        for function in own {
            let said = failure(cluster.psql().user("other"), "42501", &format!("select {function}"));
            assert!(said.contains("must be owner of"), "{said}");
            cluster.psql().user("mine").sql(&format!("select {function}")).unwrap();
        }
        failure(cluster.psql().user("other"), "42501", "select * from cfs_progress");
        cluster.psql().user("watches").sql("select * from cfs_progress").unwrap();
        cluster.psql().user("other").sql("select * from cfs_relations").unwrap();
    });
}

#[test]
fn functions_set_labels_and_say_how_much_is_to_be_converted() {
    on_each_major("functions that set labels", |cluster| {
        sql(cluster, KINDS);
        set(cluster, "alter system set cfs.convert = off");
        sql(cluster, "insert into t select i, repeat(md5(i::text), 10) from generate_series(1, 5000) i");
        let bytes = sql(cluster, "select pg_relation_size('t') + pg_relation_size('t_pkey')");
        assert_eq!(sql(cluster, "select cfs_compress_relation('t')"), bytes);
        assert_eq!(labels(cluster), "t zstd:1");
        sql(cluster, "select cfs_set('t', 'zstd:7')");
        assert_eq!(sql(cluster, "select cfs_compress_relation('t')"), bytes);
        assert_eq!(labels(cluster), "t zstd:7");
        assert_eq!(sql(cluster, "select cfs_compress_relation('t', 'lz4')"), bytes);
        assert_eq!(labels(cluster), "t lz4:1");
        // Before it has begun it is called off, and no label is left.
        assert_eq!(sql(cluster, "select cfs_cancel('t')"), "0");
        assert_eq!(labels(cluster), "");
        assert_eq!(sql(cluster, "select cfs_cancel('t')"), "0");
        assert_eq!(sql(cluster, "select cfs_decompress_relation('t')"), "0");
        assert_eq!(labels(cluster), "t none");
        assert_eq!(sql(cluster, "select cfs_compress_relation('parted'), cfs_compress_relation('m')"), "0|0");
        assert_eq!(labels(cluster), "m zstd:1, parted zstd:1, t none");
        // Who asks for all partitions is told what does not follow.
        sql(cluster, "select cfs_set('low', 'none')");
        let said = notices(cluster, "select cfs_compress_relation('parted')");
        assert!(said.contains("NOTICE:  1 partition with a table-level setting stays plain"), "{said}");
        sql(cluster, "select cfs_set('low', null)");
        let said = notices(cluster, "select cfs_compress_relation('parted')");
        assert!(!said.contains("NOTICE"), "{said}");
        // Who asks for the whole database is told what does not follow.
        let said = notices(cluster, "select cfs_decompress_database('postgres')");
        assert!(said.contains("NOTICE:  2 tables with a table-level setting stay compressed"), "{said}");
        let said = notices(cluster, "select cfs_compress_database('postgres')");
        assert!(said.contains("NOTICE:  1 table with a table-level setting stays plain"), "{said}");
        // Where the database compresses, calling it off needs a label that says so.
        sql(cluster, "select cfs_set('t', null), cfs_compress_database('postgres')");
        assert_eq!(sql(cluster, "select cfs_cancel('t')"), "0");
        assert_eq!(in_force(cluster, "t"), "none relation");
    });
}

#[test]
fn the_nearest_setting_is_in_force_for_a_table_with_all_that_belongs_to_it() {
    on_each_major("precedence", |cluster| {
        sql(cluster, KINDS);
        sql(
            cluster,
            "create index high_i on parted (i); create tablespace fast location '' with (compression = 'zstd:4')",
        );
        let toast = sql(cluster, "select reltoastrelid::regclass from pg_class where relname = 't'");
        let toast_index = sql(
            cluster,
            "select indexrelid::regclass from pg_index i join pg_class c on i.indrelid = c.reltoastrelid where c.relname = 't'",
        );
        let own = ["t", "t_pkey", &toast, &toast_index];
        let all = |expected: &str| {
            own.iter().for_each(|relation| assert_eq!(in_force(cluster, relation), expected, "{relation}"))
        };
        all("none nothing");
        assert_eq!(in_force(cluster, "pg_class"), "");
        assert_eq!(in_force(cluster, "s"), "");
        sql(cluster, "alter table t set tablespace fast");
        assert_eq!(in_force(cluster, &toast_index), "zstd:4 tablespace");
        let shown = "select relation, setting, set_by from cfs_relations where relation = 't'::regclass";
        assert_eq!(sql(cluster, shown), "t|zstd:4|tablespace");
        assert_eq!(in_force(cluster, "t_pkey"), "none nothing");
        sql(cluster, "select cfs_compress_database('postgres', 'zstd:5')");
        all("zstd:5 database");
        sql(cluster, "select cfs_set('t', 'zstd:6')");
        all("zstd:6 relation");
        let index =
            sql(cluster, "select indexrelid::regclass from pg_index where indrelid = 'highest'::regclass");
        assert_eq!(in_force(cluster, &index), "zstd:5 database");
        sql(cluster, "select cfs_set('parted', 'zstd:7')");
        for relation in ["low", "highest", &index] {
            assert_eq!(in_force(cluster, relation), "zstd:7 partitioned table", "{relation}");
        }
        sql(cluster, "select cfs_set('high', 'none')");
        assert_eq!(in_force(cluster, "highest"), "none partitioned table");
        sql(cluster, "select cfs_set('highest', 'lz4')");
        assert_eq!(in_force(cluster, &index), "lz4:1 relation");
        set(cluster, "alter system set cfs.node_compression = 'zstd:8'");
        all("zstd:8 node");
        assert_eq!(in_force(cluster, "highest"), "zstd:8 node");
        let said = failure(cluster.psql(), "22023", "alter system set cfs.node_compression = 'gzip'");
        assert!(said.contains("Valid values are"), "{said}");
    });
}

#[test]
fn a_wait_ends_with_its_time_and_is_refused_where_it_would_not_end() {
    on_each_major("cfs_wait", |cluster| {
        sql(cluster, KINDS);
        sql(cluster, "insert into t select i, 'x' from generate_series(1, 50000) i");
        assert_eq!(sql(cluster, "select cfs_wait('t'), cfs_wait('t', '1 s')"), "t|t");
        let said =
            failure(cluster.psql(), "25001", "begin; select cfs_set('t', 'lz4'); select cfs_wait('t')");
        assert!(said.contains("Commit first"), "{said}");
        failure(cluster.psql(), "22023", "select cfs_wait('t', '-1 s')");
        set(cluster, "alter system set cfs.convert = off");
        sql(cluster, "select cfs_set('t', 'lz4')");
        let said = failure(cluster.psql(), "55000", "select cfs_wait('t')");
        assert!(said.contains("cfs.convert is off"), "{said}");
        sql(cluster, "select cfs_set('t', null)");
        assert_eq!(sql(cluster, "select cfs_wait('t')"), "t");
    });
}

#[test]
fn dumps_carry_settings_of_tables_and_databases() {
    Server::each_with_extensions("dumps of settings", &MAJORS, |server| {
        let (from, to) = (with_cfs(server), with_cfs(server));
        sql(&from, "create database d");
        let script = "create table t (i int); create table p (i int) partition by range (i);
            create materialized view m as select 1 i; create extension cfs;
            select cfs_set('t', 'zstd:9'), cfs_set('p', 'none'), cfs_set('m', 'lz4'), cfs_compress_database('d', 'zstd:3')";
        from.psql().database("d").sql(script).unwrap();
        let mut dumper = from.command("pg_dump");
        dumper.args(["--create", "-U", "postgres", "-h"]).arg(from.socket_dir());
        let dump = pgshrink_testkit::run::output(dumper.args(["-p", &from.port().to_string(), "d"])).unwrap();
        sql(&to, &dump);
        let labels = "select objoid::regclass, label from pg_seclabel where provider = 'cfs' order by objoid::regclass::text";
        let labels = |cluster: &Cluster| cluster.psql().database("d").sql(labels).unwrap();
        assert_eq!(labels(&to), labels(&from));
        assert_eq!(labels(&to).lines().count(), 3);
        let of_database = "select label from pg_shseclabel where classoid = 'pg_database'::regclass";
        assert_eq!(sql(&to, of_database), "compression=zstd:3");
    });
}

#[test]
fn a_standby_refuses_to_change_settings_and_says_what_to_do() {
    on_each_major("settings on a standby", |primary| {
        sql(primary, KINDS);
        let standby = primary.standby().start().unwrap();
        for statement in [
            "select cfs_set('t', 'lz4')",
            "select cfs_compress_relation('t')",
            "select cfs_compress_database('postgres')",
            "select cfs_cancel('t')",
        ] {
            let said = failure(standby.psql(), "25006", statement);
            assert!(said.contains("cfs.node_compression"), "{said}");
        }
        assert_eq!(sql(&standby, "select cfs_wait('t'), (select count(*) from cfs_progress)"), "t|0");
    });
}
