//! A table with everything that can belong to one, rewritten in each way.

use super::helpers::*;
use pgshrink_advisor::edit::Edit;
use pgshrink_advisor::plan::{Method, Request, plan};
use pgshrink_testkit::{Cluster, Server};

const SCHEMA: &str = include_str!("rich.sql");
const ORDER: &str = "shop.\"order\"";
const RELATIONS: [&str; 10] = [
    ORDER,
    "shop.open_orders",
    "shop.totals",
    "shop.on_totals",
    "shop.positional",
    "shop.joined",
    "shop.clashing",
    "shop.summary",
    "shop.on_summary",
    "shop.item",
];

/// Live columns, in another order.
fn shuffled(columns: &[pgshrink_advisor::snapshot::Column]) -> Vec<usize> {
    let live: Vec<usize> = (0..columns.len()).filter(|index| !columns[*index].is_dropped).collect();
    let (even, odd): (Vec<_>, Vec<_>) = live.iter().rev().partition(|index| *index % 2 == 0);
    [odd, even].concat()
}

fn names(cluster: &Cluster) -> String {
    let sql = format!(
        "select string_agg(attname, ',' order by attnum) from pg_attribute where attrelid = '{ORDER}'::regclass and attnum > 0"
    );
    cluster.sql(&sql).unwrap()
}

#[test]
fn a_new_table_has_all_that_the_old_one_had() {
    Server::each("rewrites of a table with everything", &[15, 16, 18], |server| {
        for method in [Method::Offline, Method::Online] {
            let cluster = cluster(server);
            load(&cluster, SCHEMA, server.major);
            let table = table(&cluster, ORDER);
            let order = shuffled(&table.columns);
            let request = Request {
                table: &table,
                edits: &[Edit::Reorder],
                order: Some(&order),
                server_version: server.major * 10_000,
            };
            let plan = plan(&request, method).unwrap();
            let (before, catalogs_before) = (dump(&cluster), catalogs(&cluster));
            let rows_before = RELATIONS.map(|relation| rows(&cluster, relation));
            run_all(&cluster, &plan.steps);
            let expected: Vec<&str> = order.iter().map(|index| &*table.columns[*index].name).collect();
            assert_eq!(names(&cluster), expected.join(","), "the new order, without dropped columns");
            assert_eq!(RELATIONS.map(|relation| rows(&cluster, relation)), rows_before, "{method:?}");
            assert_same(&catalogs_before, &catalogs(&cluster), &format!("{method:?} on {}", server.major));
            assert_same_dump(&before, &dump(&cluster), &["positional", "clashing", "together", "pub order"]);
            let left = cluster.sql("select relname from pg_class where relname ~ 'pgshrink|_old'").unwrap();
            assert_eq!(left, "", "nothing is left behind");
        }
    });
}
