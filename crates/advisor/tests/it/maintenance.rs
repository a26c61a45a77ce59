//! Findings about catalogs, autovacuum and settings, beside servers.

use crate::catalog;
use pgshrink_advisor::finding::Rule;
use pgshrink_advisor::rules::{Candidate, maintenance};
use pgshrink_advisor::snapshot::{Activity, CatalogTable, ForkBytes, Server, Snapshot, Table};
use pgshrink_testkit::{Cluster, Server as Servers};

fn catalogs(cluster: &Cluster) -> Vec<CatalogTable> {
    let found = catalog::rows(
        cluster,
        "select json_build_object('name', relname, 'bytes', pg_total_relation_size(c.oid), 'main_bytes', pg_relation_size(c.oid),
            'row_estimate', reltuples, 'dead_rows', pg_stat_get_dead_tuples(c.oid),
            'row_bytes', (select sum(stawidth * (1 - stanullfrac))::int from pg_statistic where starelid = c.oid))
         from pg_class c where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r'",
    );
    found.into_iter().map(|found| serde_json::from_value(found).unwrap()).collect()
}

fn found(snapshot: &Snapshot, rule: Rule) -> Vec<Candidate> {
    maintenance::candidates(snapshot).into_iter().filter(|found| found.finding.rule == rule).collect()
}

#[test]
fn catalogs_shrink_at_least_as_much_as_was_said() {
    Servers::each("catalog bloat", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("autovacuum", "off").start().unwrap();
        let columns = (0..200).map(|n| format!("c{n} int")).collect::<Vec<_>>().join(", ");
        cluster.sql("vacuum full; analyze").unwrap();
        let fresh = Snapshot { catalogs: catalogs(&cluster), ..Snapshot::default() };
        assert_eq!(found(&fresh, Rule::CatalogBloat).len(), 0, "nothing has grown");
        cluster
            .sql(&format!(
                "do $$ begin for n in 1..300 loop execute 'create table x ({columns}); drop table x'; end loop; end $$;
                 analyze pg_attribute; analyze pg_type; analyze pg_class; analyze pg_depend"
            ))
            .unwrap();
        let snapshot = Snapshot { catalogs: catalogs(&cluster), ..Snapshot::default() };
        let found = found(&snapshot, Rule::CatalogBloat);
        let names: Vec<_> = found.iter().map(|found| &*found.finding.object.name).collect();
        assert_eq!(names, ["pg_attribute"]);
        cluster.sql(&found[0].finding.sql[0]).unwrap();
        let after = cluster.sql("select pg_total_relation_size('pg_attribute')").unwrap();
        let (after, said) = (after.trim().parse::<u64>().unwrap(), found[0].finding.bytes.disk.after);
        assert!(after <= said, "{after} of {said}");
        let fresh = Snapshot { catalogs: catalogs(&cluster), ..Snapshot::default() };
        assert_eq!(self::found(&fresh, Rule::CatalogBloat).len(), 0, "nothing is left");
    });
}

fn table(activity: Activity, options: &[&str]) -> Snapshot {
    let table = Table {
        schema: "public".to_owned(),
        name: "t".to_owned(),
        row_estimate: 1_000_000.0,
        bytes: ForkBytes { main: 500 << 20, ..ForkBytes::default() },
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        activity,
        ..Table::default()
    };
    Snapshot { taken_s: 1_000_000, tables: vec![table], ..Snapshot::default() }
}

fn lag(snapshot: &Snapshot) -> Vec<String> {
    found(snapshot, Rule::AutovacuumLag).into_iter().flat_map(|found| found.finding.sql).collect()
}

#[test]
fn autovacuum_is_late_at_twice_its_threshold() {
    let dead = |dead_rows| Activity { dead_rows, ..Activity::default() };
    let vacuum = ["VACUUM (ANALYZE) public.t;"];
    // 50 + 0.2 * 1,000,000
    assert_eq!(lag(&table(dead(400_000), &[])), Vec::<String>::new());
    assert_eq!(lag(&table(dead(400_200), &[])), vacuum);
    assert_eq!(lag(&table(dead(30_000), &["autovacuum_vacuum_scale_factor=0.01"])), vacuum);
    let mut newer = table(dead(300_000), &[]);
    newer.server.settings.insert("autovacuum_vacuum_max_threshold".to_owned(), "100000".to_owned());
    assert_eq!(lag(&newer), vacuum);
    let inserted = |inserted_since_vacuum| Activity { inserted_since_vacuum, ..Activity::default() };
    assert_eq!(lag(&table(inserted(402_000), &[])), Vec::<String>::new());
    assert_eq!(lag(&table(inserted(402_001), &[])), vacuum);
    assert_eq!(
        lag(&table(inserted(900_000), &["autovacuum_vacuum_insert_threshold=-1"])),
        Vec::<String>::new()
    );
    let mut small = table(dead(900_000), &[]);
    small.tables[0].bytes.main = 8192;
    assert_eq!(lag(&small), Vec::<String>::new());
}

#[test]
fn what_keeps_vacuum_from_its_work_is_said() {
    let off = table(Activity::default(), &["autovacuum_enabled=off"]);
    assert_eq!(lag(&off), ["ALTER TABLE public.t RESET (autovacuum_enabled);"]);
    let old = |frozen_age| table(Activity { frozen_age, ..Activity::default() }, &[]);
    assert_eq!(lag(&old(189_000_000)), Vec::<String>::new());
    assert_eq!(lag(&old(191_000_000)), ["VACUUM (FREEZE) public.t;"]);
    assert_eq!(lag(&old(221_000_000)), ["VACUUM (FREEZE) public.t;"]);
    let activity =
        Activity { dead_rows: 800_000, last_vacuum_s: Some(1_000_000 - 7200), ..Activity::default() };
    let mut held = table(activity, &[]);
    held.server.oldest_xmin_age = Some(5_000_000);
    let finding = found(&held, Rule::AutovacuumLag).remove(0).finding;
    assert!(
        finding.reason.contains("2 hours ago") && finding.reason.contains("5000000"),
        "{}",
        finding.reason
    );
    assert_eq!(finding.bytes.disk.saved(), 0);
    held.server.is_standby = true;
    assert!(found(&held, Rule::AutovacuumLag)[0].finding.cost.contains("primary"));
}

#[test]
fn settings_are_advised_with_values_that_servers_take() {
    Servers::each("settings", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("autovacuum", "off").start().unwrap();
        let read = || {
            let names = "'wal_compression', 'default_toast_compression', 'autovacuum', 'track_counts'";
            let sql =
                format!("select json_build_array(name, setting) from pg_settings where name in ({names})");
            let settings = catalog::rows(&cluster, &sql)
                .into_iter()
                .map(|row| (row[0].as_str().unwrap().to_owned(), row[1].as_str().unwrap().to_owned()));
            let server =
                Server { version: server.major * 10_000, settings: settings.collect(), ..Server::default() };
            Snapshot { server, ..Snapshot::default() }
        };
        let found = found(&read(), Rule::Setting);
        let ids: Vec<_> = found.iter().map(|found| &*found.finding.id).collect();
        assert_eq!(
            ids,
            ["setting:wal_compression", "setting:default_toast_compression", "setting:autovacuum"]
        );
        assert!(found.iter().all(|found| found.finding.bytes.disk.saved() == 0));
        for sql in found.iter().flat_map(|found| &found.finding.sql) {
            // A server may have been compiled without lz4, and then says so.
            if let Err(error) = cluster.sql(sql) {
                assert!(sql.contains("lz4"), "{sql}: {error}");
                println!("{sql} is refused");
            }
        }
    });
}
