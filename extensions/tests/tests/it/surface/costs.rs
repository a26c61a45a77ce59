//! Plans: what the planner takes reading a document to cost decides them, and decides right.

use crate::databases::{Database, on_each_major};
use crate::documents::records;

/// Tables `j` and `z` of the same 20,000 documents, as jsonb and as zson that was trained first.
fn tables(database: &Database) {
    database.sql(&format!(
        "create table j as select id, doc from ({}) r; select zson_learn('j', 'doc', 'costs');
        create table z (id int, doc zson('costs')); insert into z select * from j;
        create index on j (id); create index on z (id); analyze j; analyze z",
        records(20_000)
    ));
}

/// The planner's costs of a query over each table.
fn costs(database: &Database, query: &str) -> [f64; 2] {
    ["j", "z"].map(|table| {
        let plan = database.sql(&format!(
            "set max_parallel_workers_per_gather = 0; set jit = off; explain {}",
            query.replace("{}", table)
        ));
        let cost = plan.split("..").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        cost.parse().unwrap_or_else(|_| panic!("no cost in {plan}"))
    })
}

#[test]
fn a_scan_that_decodes_every_document_is_no_cheaper_than_one_of_jsonb() {
    on_each_major("costs of scans", |database| {
        tables(database);
        // The table is a fraction of jsonb's, and so is a scan that reads no document.
        let [jsonb, zson] = costs(database, "select count(*) from {}");
        assert!(zson < jsonb, "count(*): {zson} and {jsonb}");
        // In the manual's figures a whole document takes two to four times as long, and a part as long as jsonb's or less.
        for (query, ratios) in [
            ("select count(doc->>'host') from {}", 0.5..1.5),
            ("select count(*) from {} where doc @> '{\"status\": \"passing\"}'", 0.5..1.5),
            ("select count(*) from {} where doc ? 'host'", 0.5..1.5),
            ("select count(jsonb_typeof(doc::jsonb)) from {}", 1.5..6.0),
            ("select count(*) from {} where doc @? '$.host'", 1.5..6.0),
        ] {
            let [jsonb, zson] = costs(database, query);
            let ratio = zson / jsonb;
            assert!(ratios.contains(&ratio), "{query}: {zson} is {ratio:.2} of {jsonb}");
        }
    });
}

#[test]
fn conditions_on_other_columns_are_asked_before_a_document_is_decoded() {
    on_each_major("order of conditions", |database| {
        tables(database);
        let filter = |table: &str| {
            let plan = database.sql(&format!(
                "set enable_indexscan = off; set enable_bitmapscan = off; set max_parallel_workers_per_gather = 0;
                explain (costs off) select * from {table} where doc->>'host' = 'x' and id % 7 = 0"
            ));
            plan.lines().find(|line| line.contains("Filter:")).expect(&plan).trim().to_owned()
        };
        assert_eq!(filter("j"), "Filter: (((doc ->> 'host'::text) = 'x'::text) AND ((id % 7) = 0))");
        assert_eq!(filter("z"), "Filter: (((id % 7) = 0) AND ((doc ->> 'host'::text) = 'x'::text))");
    });
}

#[test]
fn an_index_that_spares_decoding_is_preferred() {
    on_each_major("indexes that spare decoding", |database| {
        tables(database);
        database.sql("create index j_status on j ((doc->>'status')); create index z_status on z ((doc->>'status')); analyze j; analyze z");
        // A third of the rows, of a third of the pages.
        let plan =
            database.sql("explain (costs off) select count(*) from z where doc->>'status' = 'passing'");
        assert!(plan.contains("z_status"), "{plan}");
        database.sql("create index z_gin on z using gin (doc zson_path_ops); drop index z_status; analyze z");
        let plan = database
            .sql("explain (costs off) select count(*) from z where doc @> '{\"service\": \"service-1\"}'");
        assert!(plan.contains("z_gin"), "{plan}");
    });
}

#[test]
fn a_scan_that_decodes_is_shared_among_workers_where_a_count_of_rows_is_not() {
    on_each_major("parallel plans", |database| {
        tables(database);
        let plan = |what: &str| {
            database.sql(&format!(
                "set min_parallel_table_scan_size = '1MB'; set max_parallel_workers_per_gather = 2;
                explain (costs off) select {what} from z"
            ))
        };
        let decodes = plan("count(jsonb_typeof(doc::jsonb))");
        assert!(decodes.contains("Gather"), "{decodes}");
        assert!(!plan("count(*)").contains("Gather"), "{}", plan("count(*)"));
    });
}
