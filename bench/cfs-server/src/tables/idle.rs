//! What the library costs where nothing is compressed.

use pgshrink_bench_report::{Result, Table, Unit};

use super::scan::ROWS;
use super::{Bench, HOW, columns};
use crate::rounds::{statement, tell, transactions};
use crate::side::{Kind, Side};

const CLIENTS: &str = "2";
/// Reads of each page in a round.
const TIMES: u32 = 20;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let (scale, rows) = bench.pick((5, 200_000), (20, 2_000_000));
    let about = format!(
        "Two servers with plain tablespaces, one with the library. *-S* and *tpcb-like*: pgbench at scale {scale}, {CLIENTS} clients, shared buffers of 8 MB, \
        so that each transaction makes calls. *reads*: `pg_prewarm` reads all pages of {rows} rows from the kernel's cache {TIMES} times, by one call \
        each, and does nothing else; the difference by page is what a hooked call costs.{HOW}"
    );
    let mut table = Table::new(
        "idle",
        "The library loaded, nothing compressed",
        &about,
        &columns("TPS or ms", Unit::Average),
    );
    let settings = [("shared_buffers", "8MB")];
    let sides = [Side::start(Kind::Plain, 0, &settings)?, Side::start(Kind::Idle, 0, &settings)?];
    for side in &sides {
        side.pgbench_tables(scale)?;
        side.cluster
            .sql(&format!("create extension pg_prewarm; {ROWS}{rows}) n; vacuum analyze rows; checkpoint"))?;
        side.empty_buffers()?;
    }
    for builtin in ["select-only", "tpcb-like"] {
        let arguments = ["-c", CLIENTS, "-b", builtin];
        let found = transactions(&sides, bench.rounds(), bench.pick(3, 10), &arguments)?;
        tell(&mut table, builtin, &sides, &found, 1.0);
    }
    let reads = format!("select sum(pg_prewarm('rows', 'read')) from generate_series(1, {TIMES})");
    let found = statement(&sides, bench.rounds(), |_| reads.clone())?;
    tell(&mut table, "reads", &sides, &found, 1e3);
    let calls = sides[0].number("select pg_relation_size('rows') / 8192")? * f64::from(TIMES);
    let [plain, loaded] = [0, 1].map(|side: usize| found[side].0[0].median() / calls * 1e9);
    table.about.push_str(&format!(
        " A hooked call here takes {:.0} ns more than a plain one, which takes {plain:.0} ns.",
        loaded - plain
    ));
    Ok(table)
}
