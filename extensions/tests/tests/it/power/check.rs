//! Whether a server that has come back has all that it acknowledged, and nothing by half.

use std::path::Path;

use pgshrink_testkit::Cluster;

use super::workload::CLIENTS;

/// Rows that a client's transactions must have written, and those that there are.
const HISTORY: &str = "with last as (select client, max(seq) as n from history group by client),
    owed as (select client, s, i, h(client, s, 2 * i) % (8000 / 4) * 4 + client, h(client, s, 2 * i + 1) % 1000 - 500
        from last, generate_series(1, n) s, lateral generate_series(1, 1 + h(client, s, 0) % 4) i)
    select (select count(*) from (table owed except all table history) d),
        (select count(*) from (table history except all table owed) d)";

const BALANCES: &str =
    "with paid as materialized (select account, sum(delta) as total from history group by account)
    select count(*) from account a left join paid on paid.account = a.id where balance <> coalesce(total, 0)";

const BY_INDEX: &str =
    "set enable_seqscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off;
    select count(*), sum(balance) from (select * from account order by balance) a; reset all;
    set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off;
    select count(*), sum(balance) from account a; reset all";

const NOTES: &str = "select count(*) from note n
    where seq <> coalesce((select max(seq) from history h where h.client = n.client), 0)
    or body <> case when seq = 0 then '' else body(n.client, n.seq) end";

const TABLES: &str = "select count(*) from made
    full join (select relname from pg_class where relkind = 'r' and relname ~ '^(d[0-9]|gone)$') c on relname = name
    where name is null or relname is null";

const VISIBLE: &str = "select count(*) from pg_class c,
    lateral (select pg_check_visible(c.oid) union all select pg_check_frozen(c.oid)) d
    where relkind in ('r', 't', 'm') and relpersistence = 'p'";

const TREES: &str =
    "select count(bt_index_check(c.oid, true)) from pg_class c join pg_index i on i.indexrelid = c.oid
    join pg_am on pg_am.oid = c.relam where amname = 'btree' and indisvalid and c.relpersistence = 'p'";

/// What is wrong with a server; nothing, if the list is empty. It runs. `acknowledged` are the transactions of each client
/// that must be there, `begun` those that may.
pub fn check(cluster: &Cluster, acknowledged: &[usize], begun: &[usize]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expect = |what: &str, sql: &str, expected: &str| match cluster.sql(sql) {
        Ok(found) if found == expected => {}
        Ok(found) => wrong.push(format!("{what}: {found} instead of {expected}")),
        Err(error) => wrong.push(format!("{what}: {error}")),
    };
    expect("rows of transactions that are missing, and that are too many", HISTORY, "0|0");
    expect("balances that are not the sum of their payments", BALANCES, "0");
    expect("notes that are not those of the last transaction", NOTES, "0");
    expect("tables without a line, or lines without a table", TABLES, "0");
    if has(cluster, "pg_visibility") {
        expect("tuples that are visible or frozen and must not be", VISIBLE, "0");
    }
    expect("rows of unlogged tables", "select count(*) from fleeting", "0");
    expect("files that cannot be read", "select count(*) from cfs_relations where unreadable > 0", "0");
    let mut fails = |what: &str, sql: &str| match cluster.sql(sql) {
        Ok(found) => found,
        Err(error) => {
            wrong.push(format!("{what}: {error}"));
            String::new()
        }
    };
    if has(cluster, "amcheck") {
        fails("indexes", TREES);
    }
    let by_index = fails("accounts", BY_INDEX);
    let mut lines = by_index.lines();
    if lines.next() != lines.next() {
        wrong.push(format!("accounts by index and by table: {by_index}"));
    }
    check_acknowledged(cluster, acknowledged, begun, &mut wrong);
    check_tables(cluster, &mut wrong);
    wrong
}

/// Whether an extension is there: not every build comes with all.
fn has(cluster: &Cluster, extension: &str) -> bool {
    let count = format!("select count(*) from pg_extension where extname = '{extension}'");
    cluster.sql(&count).is_ok_and(|count| count == "1")
}

fn check_acknowledged(cluster: &Cluster, acknowledged: &[usize], begun: &[usize], wrong: &mut Vec<String>) {
    let all = "select c, coalesce(max(seq), 0) from generate_series(0, 3) c left join history on client = c group by c
        union all select 4, n from step order by 1";
    let found = cluster.sql(all).unwrap_or_default();
    let mut lines = found.lines();
    for client in 0..=CLIENTS {
        let (low, high) = (acknowledged.get(client).unwrap_or(&0), begun.get(client).unwrap_or(&0));
        let last = lines.next().and_then(|line| line.split_once('|')?.1.parse::<usize>().ok());
        if last.is_none_or(|last| last < *low || last > *high) {
            wrong.push(format!(
                "client {client}: {last:?} transactions, {low} were acknowledged and {high} begun"
            ));
        }
    }
}

fn check_tables(cluster: &Cluster, wrong: &mut Vec<String>) {
    let mut said =
        |what: String, result: Result<String, pgshrink_testkit::Error>, expected: &str| match result {
            Ok(found) if found == expected => {}
            Ok(found) => wrong.push(format!("{what}: {found} instead of {expected}")),
            Err(error) => wrong.push(format!("{what}: {error}")),
        };
    for line in cluster.sql("select name, rows, sum from made").unwrap_or_default().lines() {
        let Some((name, expected)) = line.split_once('|') else { continue };
        let sum = "count(*), coalesce(sum(hashtext(x::text)::bigint), 0)";
        said(format!("table {name}"), cluster.sql(&format!("select {sum} from {name} x")), expected);
        let by_index = format!(
            "set enable_seqscan = off; select count(*) from (select t from {name} where i is not null order by i offset 0) x"
        );
        let rows = expected.split('|').next().unwrap_or_default();
        said(format!("table {name} by its index"), cluster.sql(&by_index), rows);
    }
    let databases = cluster.sql("select name from database union select 'pattern'").unwrap_or_default();
    for name in databases.lines() {
        let found = cluster.psql().database(name).sql("select count(*), sum(i), max(t) from kept");
        said(format!("database {name}"), found, "3000|4501500|row 999");
    }
}

/// Files and directories whose names contain one of these. Files of relations that were being
/// made stay there, as a plain server leaves them.
pub fn leftovers(cluster: &Cluster, location: &Path, names: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut stack = vec![location.to_path_buf(), cluster.data_dir().join("base")];
    stack.extend(
        std::fs::read_dir(cluster.data_dir().join("pg_tblspc")).unwrap().map(|entry| entry.unwrap().path()),
    );
    while let Some(directory) = stack.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_str().unwrap_or_default().to_owned();
            if names.iter().any(|part| name.contains(part)) {
                let beside: Vec<_> = std::fs::read_dir(&directory)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|e| e.file_name())
                    .collect();
                let beside =
                    if name == "base.pgshrink" { format!(" beside {beside:?}") } else { String::new() };
                found.push(format!("{}{beside}", entry.path().display()));
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                stack.push(entry.path());
            }
        }
    }
    found
}

/// Lines of a log that a recovery must not have.
pub fn complaints(log: &str) -> Vec<String> {
    // Not warnings: redo says when it finds directories gone that are to go, and a torn free-space map is made anew.
    lines_with(log, &["FATAL:", "ERROR:"]).into_iter().chain(troubles(log)).collect()
}

/// Lines that a server must never have in its log.
pub fn troubles(log: &str) -> Vec<String> {
    lines_with(log, &["PANIC:", "TRAP", "pgshrink cfs", "cfs cannot convert", "was terminated by signal"])
}

fn lines_with(log: &str, marks: &[&str]) -> Vec<String> {
    let is_bad = |line: &&str| marks.iter().any(|mark| line.contains(mark));
    log.lines().filter(is_bad).map(str::to_owned).collect()
}
