//! Sequential scans from the kernel's cache.

use pgshrink_bench_report::{Result, Samples, Table, Unit};

use super::{Bench, HOW, columns};
use crate::rounds::{Line, Statement, judge, statement, tell};
use crate::side::Side;

/// A table like those of applications: few of its bytes are blanks.
pub(super) const ROWS: &str = "create table rows as select n as id, md5(n::text) as hash, 'customer ' || n % 5000 as customer, \
    (n * 7919::bigint % 100000)::int as cents, date '2024-01-01' + n % 700 as day, repeat(md5((n % 1000)::text), 2) as note \
    from generate_series(1, ";

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let rows = bench.pick(300_000, 5_000_000);
    let mut table = Table::new(
        "scan",
        "Sequential scans from the kernel's cache",
        &format!(
            "A table of {rows} rows of 6 columns, digests among them, one process, shared buffers of 8 MB, the kernel's cache holds all.{HOW}"
        ),
        &columns("ms", Unit::Ms),
    );
    let (sides, left_out) = Side::all(4 << 30, &[("shared_buffers", "8MB")])?;
    table.about.push_str(&left_out);
    for side in &sides {
        side.cluster.sql(&format!("{ROWS}{rows}) n; vacuum analyze rows; checkpoint"))?;
    }
    let aggregate =
        "select count(*), sum(x) from (select customer, sum(cents) x, max(day) from rows group by 1) t";
    for (what, sql, line) in
        [("count(*)", "select count(*) from rows", 0.35), ("an aggregate", aggregate, 0.6)]
    {
        let found = statement(&sides, bench.rounds(), |_| sql.to_owned())?;
        tell(&mut table, what, &sides, &found, 1e3);
        judge(&mut table, &format!("{what}: speed to plain"), &speed(&found), Line::AtLeast(line));
    }
    Ok(table)
}

/// How many times as fast ours is as plain.
pub(super) fn speed(found: &[Statement]) -> Samples {
    found[0].0[0].over(&found[1].0[0])
}
