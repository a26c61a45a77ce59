//! A table with everything that can belong to one, rewritten in each way.

use super::compared::*;
use pgshrink_advisor::edit::Edit;
use pgshrink_advisor::plan::{Method, Request, plan};
use pgshrink_testkit::{Cluster, Server};

const SCHEMA: &str = include_str!("rich.sql");
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
    Server::each("rewrites of a table with everything", &[15, 18], |server| {
        for method in [Method::Offline, Method::Online] {
            let cluster = cluster(server);
            load(&cluster, SCHEMA, server.major);
            cluster.sql("select pg_create_logical_replication_slot('slot', 'pgoutput')").unwrap();
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
            assert_behaves(&cluster);
        }
    });
}

/// Triggers, keys, rights, row security and publications work.
fn assert_behaves(cluster: &Cluster) {
    let value = |sql: &str| cluster.sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let fails = |sql: &str, message: &str| {
        let error = cluster.sql(sql).unwrap_err().to_string();
        assert!(error.contains(message), "{sql}: {error}");
    };
    // Identity, defaults, generation, triggers, through a view with a default of its own.
    let id = value(
        "insert into shop.open_orders (price, name, number) values (10, 'new', 1) returning id, customer_id, gross, touched",
    );
    assert!(id.ends_with("|3|11.9000|0") || id.ends_with("|3|11.90|0"), "{id}");
    let id: i64 = id.split('|').next().unwrap().parse().unwrap();
    assert!(id > 7 + 3 * 699 && (id - 7) % 3 == 0, "the identity goes on: {id}");
    assert_eq!(value(&format!("select what from shop.audit where order_id = {id}")), "INSERT");
    assert_eq!(
        value(&format!("update shop.\"order\" set price = 11 where id = {id} returning touched")),
        "1"
    );
    fails(
        "insert into shop.open_orders (price, is_open, number, name) values (1, false, 2, 'x')",
        "check option",
    );
    fails(
        "insert into shop.\"order\" (id, customer_id, price, name) values (1, 1, 1, 'x')",
        "GENERATED ALWAYS",
    );
    fails("insert into shop.\"order\" (customer_id, price, name) values (999, 1, 'x')", "to_customer");
    fails("insert into shop.\"order\" (customer_id, price, name) values (1, 101, 'x')", "later");
    value("alter table shop.item drop constraint not_yet");
    fails("insert into shop.item values (900, -5, null)", "of_order");
    // Foreign keys both ways.
    value("delete from shop.item where number is not null; delete from shop.parts");
    let children = "select count(*) from shop.item where order_id = 13";
    value("insert into shop.item values (901, 13, null)");
    assert_eq!(value(children), "1");
    value("delete from shop.\"order\" where id = 13");
    assert_eq!(value(children), "0");
    assert_eq!(
        value("delete from shop.\"order\" where id = 10; select count(*) from shop.\"order\" where id = 10"),
        "1\n1",
        "the rule"
    );
    let of_customer = "select count(*) > 0 from shop.\"order\" where customer_id = 9";
    assert_eq!(value(of_customer), "t");
    value("drop rule protect on shop.\"order\"; delete from shop.customer where id = 9");
    assert_eq!(value(of_customer), "f");
    assert_rights(cluster);
    // Publications: the changed row is decoded, with its identity.
    value(
        "select count(*) from pg_logical_slot_get_binary_changes('slot', null, null, 'proto_version', '1', 'publication_names', 'pub')",
    );
    value(&format!(
        "update shop.\"order\" set small = 2 where id = {id}; delete from shop.\"order\" where id = {id}"
    ));
    let changes = "select string_agg(distinct chr(get_byte(data, 0)), '' order by chr(get_byte(data, 0))) from
        pg_logical_slot_get_binary_changes('slot', null, null, 'proto_version', '1', 'publication_names', 'pub')";
    let changes = value(changes);
    assert!(changes.contains('U') && changes.contains('D') && changes.contains('R'), "{changes}");
}

/// Row security and grants hold for plain roles.
fn assert_rights(cluster: &Cluster) {
    let value = |sql: &str| cluster.sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let fails = |sql: &str, message: &str| {
        let error = cluster.sql(sql).unwrap_err().to_string();
        assert!(error.contains(message), "{sql}: {error}");
    };
    assert_eq!(
        value("set role reader; select count(*) > 0, bool_and(id % 2 = 1) from shop.\"order\""),
        "t|t"
    );
    fails(
        "set role reader; insert into shop.\"order\" (customer_id, price) values (1, 1)",
        "permission denied",
    );
    fails(
        "set role writer; insert into shop.\"order\" (customer_id, price, name) values (1, 20000, 'x')",
        "row-level security",
    );
    value(
        "set role writer; insert into shop.\"order\" (customer_id, price, name) values (1, 20, 'x'); select shop.count_open(1)",
    );
    value("set role \"Odd \"\"Role\"; select id, price from shop.\"order\"");
    fails("set role \"Odd \"\"Role\"; select document from shop.\"order\"", "permission denied");
    value("set role granter; grant select on shop.\"order\" to writer");
    value("call shop.add_order(3)");
}
