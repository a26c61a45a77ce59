//! Rows that are packed, as computed and as servers store them.

use crate::collected::snapshot;
use pgshrink_advisor::rules::packing;
use pgshrink_advisor::snapshot::{ForkBytes, Snapshot};
use pgshrink_testkit::{Cluster, Server};

/// The snapshot of table `t` with its sizes, and counters of a table that is only inserted into.
fn seen(cluster: &Cluster) -> Snapshot {
    let mut seen = snapshot(cluster, None);
    let table = seen.tables.iter_mut().find(|table| table.name == "t").unwrap();
    let size = |fork: &str| -> u64 {
        cluster.sql(&format!("select pg_relation_size('t', '{fork}')")).unwrap().parse().unwrap()
    };
    table.bytes = ForkBytes { main: size("main"), fsm: size("fsm"), vm: size("vm") };
    table.activity.inserted = 100_000;
    let method = cluster.sql("show default_toast_compression").unwrap();
    seen.server.settings.insert("default_toast_compression".to_owned(), method);
    seen
}

fn make(cluster: &Cluster, columns: &str, values: &str) {
    cluster
        .sql(&format!(
            "drop table if exists t cascade; drop table if exists t_packed cascade; create table t ({columns});
             insert into t select {values} from generate_series(1, 60000) n; create index on t (k, at); vacuum full t"
        ))
        .unwrap();
}

#[test]
fn packed_rows_take_what_was_computed_and_give_all_rows_back() {
    Server::each("packed rows", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "UTC").start().unwrap();
        let at = "timestamptz '2026-01-01' + n * interval '1 s'";
        let tables = [
            (
                "k int not null, at timestamptz not null, value float8, status smallint",
                format!("n % 40, {at}, round(random()::numeric, 2), n % 3"),
            ),
            (
                "k text not null, at timestamptz not null, \"Value\" numeric, note text, is_on bool",
                format!(
                    "'sensor ' || n % 7, {at}, (n % 1000) / 10.0, case when n % 10 = 0 then 'some words ' || n % 50 end, n % 5 = 0"
                ),
            ),
            (
                "at timestamptz not null, k bigint not null, a int, b int",
                format!("{at}, n % 500, n % 77, case when n % 3 > 0 then 5 end"),
            ),
        ];
        let mut found = 0;
        for (columns, values) in tables {
            make(&cluster, columns, &values);
            let seen = seen(&cluster);
            let table = seen.tables.iter().find(|table| table.name == "t").unwrap();
            let [candidate] = packing::candidates(&seen, table)
                .try_into()
                .unwrap_or_else(|all| panic!("{columns}: {all:?}"));
            assert!(!candidate.is_recommended && candidate.edits.is_empty());
            for statement in &candidate.finding.sql {
                cluster.sql(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
            }
            cluster.sql("vacuum full t_packed").unwrap();
            let actual: u64 =
                cluster.sql("select pg_total_relation_size('t_packed')").unwrap().parse().unwrap();
            let bytes = candidate.finding.bytes.disk;
            let after = bytes.after;
            assert!(after.abs_diff(actual) * 50 <= actual + 50 * 16_384, "{columns}: {after}, {actual}");
            assert!(bytes.saved() as u64 * 100 >= bytes.now * 30, "{bytes:?}");
            let differ = "select count(*) from ((table t except all table t_rows) union all (table t_rows except all table t)) d";
            assert_eq!(cluster.sql(differ).unwrap(), "0", "{columns}");
            found += 1;
        }
        assert_eq!(found, 3);
    });
}

#[test]
fn tables_that_are_updated_or_have_few_rows_for_each_key_are_not_packed() {
    Server::each("rows as they are", &[15], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "UTC").start().unwrap();
        let columns = "k int not null, at timestamptz not null, value float8";
        let values = |key: &str| format!("{key}, timestamptz '2026-01-01' + n * interval '1 s', random()");
        make(&cluster, columns, &values("n / 10"));
        let few = seen(&cluster);
        make(&cluster, columns, &values("n % 10"));
        let mut packed = seen(&cluster);
        let candidates = |seen: &Snapshot| {
            let table = seen.tables.iter().find(|table| table.name == "t").unwrap();
            packing::candidates(seen, table).len()
        };
        assert_eq!((candidates(&few), candidates(&packed)), (0, 1));
        let table = packed.tables.iter().position(|table| table.name == "t").unwrap();
        packed.tables[table].activity.updated = 5_000;
        assert_eq!(candidates(&packed), 0);
        packed.tables[table].activity.updated = 0;
        cluster.sql("create index on t (value)").unwrap();
        assert_eq!(candidates(&seen(&cluster)), 0, "an index on single rows would be lost");
    });
}
