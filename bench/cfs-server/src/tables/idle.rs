//! What the library costs where nothing is compressed.

use pgshrink_bench_report::{Result, Table, Unit};

use super::scan::ROWS;
use super::{Bench, HOW, columns};
use crate::rounds::{statement, tell, transactions};
use crate::side::{Kind, Side};

const CLIENTS: &str = "2";

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let (scale, rows) = bench.pick((5, 200_000), (20, 2_000_000));
    let about = format!(
        "Two servers with plain tablespaces, one with the library. *-S* and *tpcb-like*: pgbench at scale {scale}, {CLIENTS} clients, shared buffers of 8 MB, \
        so that each transaction makes calls. *a scan*: `count(*)` of {rows} rows, whose pages come by one call each; the difference of the \
        backends' processor time by page is what a hooked call costs.{HOW}"
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
        side.cluster.sql(&format!("{ROWS}{rows}) n; vacuum analyze rows; checkpoint"))?;
        side.empty_buffers()?;
    }
    for builtin in ["select-only", "tpcb-like"] {
        let arguments = ["-c", CLIENTS, "-b", builtin];
        let found = transactions(&sides, bench.rounds(), bench.pick(3, 10), &arguments)?;
        tell(&mut table, builtin, &sides, &found, 1.0);
    }
    let found = statement(&sides, bench.rounds(), |_| "select count(*) from rows".to_owned())?;
    tell(&mut table, "a scan", &sides, &found, 1e3);
    let pages = sides[0].number("select pg_relation_size('rows') / 8192")?;
    let more = found[1].0[1].median() - found[0].0[1].median();
    let nanoseconds = more / pages * 1e9;
    table.about.push_str(&format!(
        " A hooked call here: {nanoseconds:.0} ns more than a plain one, of {pages:.0} calls; the clock of processor time is one of 10 ms."
    ));
    Ok(table)
}
