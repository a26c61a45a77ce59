//! pg_rewind of an old primary, compressed or plain, from the one that took its place.

use std::time::Duration;

use pgshrink_testkit::{Cluster, Server, ServerBinaries, Stop, TempDir, left_out, wait_until};

use super::{containers, done, exec};
use crate::compressed::MAJORS;

const TABLES: [&str; 4] = ["fast_table", "base_table", "growing", "later"];

/// Compressed tables in a tablespace and in `base/`.
fn old_primary(server: &ServerBinaries) -> Cluster {
    let builder = Cluster::builder().server(server).initdb_arg("--data-checksums").fsync(true);
    let builder = builder.conf("shared_preload_libraries", "cfs").conf("allow_in_place_tablespaces", "on");
    let cluster = builder.conf("autovacuum", "off").conf("wal_keep_size", "1GB").start().unwrap();
    cluster.sql("create extension cfs").unwrap();
    if cluster.sql("create extension amcheck").is_err() {
        left_out(&format!("amcheck on {}", server.version), "this build comes without it");
    }
    cluster.sql("create tablespace fast location '' with (compression = 'zstd:1')").unwrap();
    let rows = |from: u32, to: u32| {
        format!("select i, 'word ' || i % 97, md5((i % 1000)::text) from generate_series({from}, {to}) i")
    };
    cluster
        .sql(&format!(
            "create table fast_table (id int primary key using index tablespace fast, word text, more text)
                tablespace fast;
            insert into fast_table {};
            create table base_table (id int primary key, word text, more text);
            insert into base_table {};
            create table growing (id int primary key, word text, more text) tablespace fast;
            insert into growing {};",
            rows(1, 40_000),
            rows(1, 40_000),
            rows(1, 2_000)
        ))
        .unwrap();
    cluster.sql("checkpoint; select cfs_compress_relation('base_table')").unwrap();
    let base = cluster.data_dir().join("base");
    wait_until(Duration::from_secs(60), "containers in base/", || containers(&base) > 0).unwrap();
    cluster
}

/// Both servers, the second one promoted, without the library and plain as its base backup. Each has its tablespace
/// outside of its data directory: pg_rewind does not work with those that lie in it.
fn pair(server: &ServerBinaries) -> (Cluster, Cluster, TempDir) {
    let old = old_primary(server);
    let new = old.standby().conf("shared_preload_libraries", "").create().unwrap();
    let outside = TempDir::owned_by(old.owner()).unwrap();
    old.stop(Stop::Fast).unwrap();
    for (cluster, name) in [(&old, "old"), (&new, "new")] {
        let links = cluster.data_dir().join("pg_tblspc");
        let inside = std::fs::read_dir(&links).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
        let place = outside.path().join(name);
        done(cluster.owner().command("mv").arg(&inside).arg(&place));
        done(cluster.owner().command("ln").arg("-s").arg(&place).arg(&inside));
        cluster.start().unwrap();
    }
    new.promote().unwrap();
    (old, new, outside)
}

/// Containers in a server's tablespace.
fn in_tablespace(outside: &TempDir, name: &str) -> usize {
    containers(&outside.path().join(name))
}

/// What is lost, on one side.
fn diverge(old: &Cluster, new: &Cluster) {
    old.sql(
        "update fast_table set word = 'lost' where id % 10 = 0;
        update base_table set word = 'lost' where id % 10 = 1;
        insert into growing select i, 'lost', md5(i::text) from generate_series(10001, 40000) i;
        checkpoint;
        create table lost tablespace fast as select generate_series(1, 20000) i;
        delete from base_table where id > 39000",
    )
    .unwrap();
    new.sql(
        "update fast_table set word = 'kept' where id % 7 = 0;
        update base_table set word = 'kept' where id % 7 = 1;
        insert into base_table select i, 'new', md5(i::text) from generate_series(50001, 70000) i;
        delete from fast_table where id > 30000;
        create table later tablespace fast as select generate_series(1, 20000) i",
    )
    .unwrap();
    new.sql("vacuum fast_table").unwrap();
    new.sql("checkpoint").unwrap();
}

/// Starts it as the other one's standby, and waits until it has all that the other one has.
fn follow(standby: &Cluster, primary: &Cluster) {
    done(standby.owner().command("touch").arg(standby.data_dir().join("standby.signal")));
    standby.set_conf("primary_conninfo", primary.conninfo("postgres")).unwrap();
    standby.start().unwrap();
    let at = primary.sql("select pg_current_wal_flush_lsn()").unwrap();
    let has_all = format!("select pg_last_wal_replay_lsn() >= '{at}'");
    wait_until(Duration::from_secs(60), "the standby to follow", || {
        standby.sql(&has_all).is_ok_and(|yes| yes == "t")
    })
    .unwrap();
}

fn compare(one: &Cluster, other: &Cluster) {
    for table in TABLES {
        let sum = format!("select count(*), sum(hashtext(t::text)::bigint) from {table} t");
        assert_eq!(one.sql(&sum).unwrap(), other.sql(&sum).unwrap(), "{table}");
    }
    let check = "select count(*) from pg_class c, lateral verify_heapam(c.oid) v where c.relname in
            ('fast_table', 'base_table', 'growing', 'later') and c.relkind = 'r'";
    let indexes = "select bt_index_check(indexrelid, true) from pg_index where indrelid in
            ('fast_table'::regclass, 'base_table'::regclass, 'growing'::regclass)";
    if one.sql("select count(*) from pg_extension where extname = 'amcheck'").unwrap() == "1" {
        assert_eq!(one.sql(check).unwrap(), "0");
        one.sql(indexes).unwrap();
    }
    assert!(one.sql("select from lost").is_err());
}

fn rewind(old: &Cluster, new: &Cluster) -> String {
    let mut command = exec(old, &[], old.server().program("pg_rewind"));
    command.arg("-D").arg(old.data_dir()).arg("--source-server").arg(new.conninfo("postgres"));
    done(&mut command)
}

#[test]
fn an_old_primary_follows_the_new_one_after_pg_rewind() {
    Server::each_with_extensions("pg_rewind by cfs exec", &MAJORS, |server| {
        let (old, new, outside) = pair(server);
        diverge(&old, &new);
        old.stop(Stop::Fast).unwrap();
        let has = || (containers(&old.data_dir()) > 0, in_tablespace(&outside, "old") > 2);
        assert_eq!((has(), in_tablespace(&outside, "new")), ((true, true), 0));
        let said = rewind(&old, &new);
        assert!(said.contains("Done!"), "{said}");
        assert_eq!(has(), (true, true), "what was written to is compressed as before");
        follow(&old, &new);
        compare(&old, &new);
        old.stop(Stop::Fast).unwrap();
        let mut check = exec(&old, &[], old.server().program("pg_checksums"));
        let said = done(check.arg("--check").arg("-D").arg(old.data_dir()));
        assert!(said.contains("Bad checksums:  0"), "{said}");
        assert_eq!(has(), (true, true));
        old.start().unwrap();

        // Back: the compressed one is promoted, and the plain one is rewound.
        old.promote().unwrap();
        old.sql("drop table later; create table lost_too as select 1; drop table lost_too").unwrap();
        new.sql("insert into base_table select i, 'lost', '' from generate_series(100001, 110000) i")
            .unwrap();
        old.sql(
            "create table later tablespace fast as select generate_series(1, 5000) i;
            update base_table set word = 'kept' where id % 3 = 0; checkpoint",
        )
        .unwrap();
        new.stop(Stop::Fast).unwrap();
        assert!(rewind(&new, &old).contains("Done!"));
        assert_eq!((containers(&new.data_dir()), in_tablespace(&outside, "new")), (0, 0));
        follow(&new, &old);
        compare(&new, &old);
    });
}

#[test]
fn an_old_primary_that_crashed_is_recovered_and_rewound() {
    Server::each_with_extensions("pg_rewind by cfs exec after a crash", &MAJORS, |server| {
        let (old, new, _outside) = pair(server);
        diverge(&old, &new);
        old.stop(Stop::Immediate).unwrap();
        // pg_rewind runs postgres --single, which loads cfs by itself.
        assert!(rewind(&old, &new).contains("Done!"));
        follow(&old, &new);
        compare(&old, &new);
    });
}
