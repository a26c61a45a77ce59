//! `cfs_estimate`.

use super::{on_each_major, sql};
use crate::databases::failure;

#[test]
fn every_algorithm_is_measured_on_pages_of_a_table_and_of_an_index() {
    on_each_major("cfs_estimate", |cluster| {
        sql(
            cluster,
            "create extension cfs; create table t as select i as id, 'some text ' || i % 100 as said, now() as at from generate_series(1, 100000) i; create index i on t (id); checkpoint",
        );
        for relation in ["t", "i"] {
            let bytes = sql(cluster, &format!("select pg_relation_size('{relation}')"));
            let rows = sql(
                cluster,
                &format!(
                    "select compression, measured_pages, virtual_bytes, ratio > 1.5, ratio < 500, compress_mb_s > 1, decompress_mb_s > 1, disk_bytes between 1000 and virtual_bytes from cfs_estimate('{relation}', 200)"
                ),
            );
            let names: Vec<_> = rows.lines().map(|row| row.split('|').next().unwrap()).collect();
            assert_eq!(names, ["lz4:1", "zstd:1", "zstd:3", "zstd:9", "zlib:6", "pglz", "snappy", "lzfse"]);
            for row in rows.lines() {
                assert!(row.ends_with(&format!("|200|{bytes}|t|t|t|t|t")), "{relation}: {row}");
            }
        }
        // What follows five pages at most stays plain.
        sql(cluster, "create table small (a int); insert into small values (1)");
        assert_eq!(sql(cluster, "select distinct ratio, measured_pages from cfs_estimate('small')"), "1|1");
        sql(cluster, "create table empty (a int)");
        assert_eq!(sql(cluster, "select distinct ratio, disk_bytes from cfs_estimate('empty')"), "1|0");
    });
}

#[test]
fn who_may_not_read_a_table_may_not_estimate_it() {
    on_each_major("cfs_estimate's permissions", |cluster| {
        sql(
            cluster,
            "create extension cfs; create role reader login; create role guided login in role pg_read_all_data; create table t as select 1 as a; create table policed as select 1 as a; alter table policed enable row level security; create view v as select 1; create sequence s",
        );
        sql(cluster, "grant select on policed to reader");
        let reader = || cluster.psql().user("reader");
        failure(reader(), "42501", "select * from cfs_estimate('t')");
        failure(reader(), "42501", "select * from cfs_estimate('policed')");
        failure(cluster.psql(), "42809", "select * from cfs_estimate('v')");
        failure(cluster.psql(), "22023", "select * from cfs_estimate('t', 0)");
        failure(cluster.psql(), "42P01", "select * from cfs_estimate(0)");
        failure(cluster.psql(), "42P01", "select * from cfs_estimate(4294967295)");
        cluster.psql().user("guided").sql("select * from cfs_estimate('t')").unwrap();
        sql(cluster, "grant select on t to reader; select * from cfs_estimate('s')");
        reader().sql("select * from cfs_estimate('t')").unwrap();
    });
}
