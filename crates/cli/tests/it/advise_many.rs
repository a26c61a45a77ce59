//! Databases with many tables.

use crate::advise::{seen, table};
use pgshrink_testkit::Server;
use std::time::{Duration, Instant};

#[test]
fn thousands_of_tables_are_seen_in_a_few_queries() {
    let count: u32 = std::env::var("PGSHRINK_TEST_TABLES").map_or(2_000, |text| text.parse().unwrap());
    Server::each("many tables", &[15], |server| {
        let cluster = pgshrink_testkit::Cluster::builder()
            .server(server)
            .conf("autovacuum", "off")
            .conf("max_locks_per_transaction", "4096")
            .start()
            .unwrap();
        for from in (1..=count).step_by(1_000) {
            cluster
                .sql(&format!(
                    "do $$ begin for n in {from}..{} loop
                       execute format('create table %I (id int primary key, a text, b bigint, c timestamptz)', 't' || n);
                       execute format('insert into %I select n, n::text, n from generate_series(1, 20) n', 't' || n);
                       execute format('create index on %I (a)', 't' || n);
                     end loop; end $$",
                    (from + 999).min(count)
                ))
                .unwrap();
        }
        cluster.sql("create table large as select n, md5(n::text) from generate_series(1, 30000) n; analyze large").unwrap();
        let started = Instant::now();
        let snapshot = seen(&cluster.conninfo("postgres"), &["--min-size", "1MB"]);
        let took = started.elapsed();
        println!("{count} tables were seen in {took:?}");
        assert_eq!(snapshot.sampling.small_tables, u64::from(count));
        assert_eq!(snapshot.tables.len(), 1);
        assert!(table(&snapshot, "large").sample.is_some());
        let bytes = cluster.sql("select sum(pg_table_size(oid) + pg_indexes_size(oid)) from pg_class where relname ~ '^t[0-9]+$' and relkind = 'r'");
        assert_eq!(snapshot.sampling.small_bytes.to_string(), bytes.unwrap());
        assert!(took < Duration::from_secs(30), "{took:?}");
        // All of them, described and sampled.
        let started = Instant::now();
        let snapshot = seen(&cluster.conninfo("postgres"), &["--sample-total", "1GB"]);
        println!("{count} tables were sampled in {:?}", started.elapsed());
        assert_eq!(snapshot.tables.len(), count as usize + 1);
        assert!(snapshot.tables.iter().all(|table| table.sample.is_some()));
        assert!(
            started.elapsed() < Duration::from_secs(30 + u64::from(count) / 100),
            "{:?}",
            started.elapsed()
        );
        assert!(
            snapshot.catalogs.iter().any(|catalog| catalog.name == "pg_attribute" && catalog.main_bytes > 0)
        );
    });
}
