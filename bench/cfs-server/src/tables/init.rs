//! Loading pgbench's tables.

use std::time::Instant;

use pgshrink_bench_report::{Result, Table, Unit, Value};

use super::Bench;
use crate::rounds::{Line, in_turn, judge, ours_to_plain};
use crate::side::Side;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let scale = bench.pick(10u32, 100);
    let about = format!(
        "`pgbench -i -s {scale}` into the tablespace and a checkpoint: bytes on disk of tables and indexes, time, and processor \
        time of all processes of the server. Ratios round by round in turn."
    );
    let columns = [
        ("side", Unit::Text),
        ("on disk", Unit::Bytes),
        ("times smaller", Unit::Ratio),
        ("seconds", Unit::Seconds),
        ("CPU seconds", Unit::Seconds),
        ("time to plain", Unit::Ratio),
        ("CPU to plain", Unit::Ratio),
    ];
    let mut table = Table::new("init", "Loading pgbench's tables", &about, &columns);
    let (sides, left_out) = Side::all(u64::from(scale) << 26, &[("shared_buffers", "512MB")])?;
    table.about.push_str(&left_out);
    let scale = scale.to_string();
    let found = in_turn(&sides, bench.rounds(), |side, _| {
        side.cluster.sql(
            "drop table if exists pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers; checkpoint",
        )?;
        let (before, begin) = (side.usage()?, Instant::now());
        side.pgbench(&["-i", "-q", "-s", &scale])?;
        let bytes = side.bytes_on_disk()?;
        Ok([bytes, begin.elapsed().as_secs_f64(), side.usage()?.since(before).server])
    })?;
    for (at, (side, of_side)) in sides.iter().zip(&found).enumerate() {
        let [bytes, seconds, cpu] = &of_side.0;
        let to_plain = |column: usize| match at {
            0 => Value::None,
            _ => of_side.0[column].over(&found[0].0[column]).spread(),
        };
        let smaller = if at == 0 { Value::None } else { found[0].0[0].over(bytes).spread() };
        table.row([
            side.name.into(),
            bytes.median().into(),
            smaller,
            seconds.median().into(),
            cpu.median().into(),
            to_plain(1),
            to_plain(2),
        ]);
    }
    judge(&mut table, "times smaller", &found[0].0[0].over(&found[1].0[0]), Line::AtLeast(40.0));
    judge(&mut table, "time to plain", &ours_to_plain(&found, 1), Line::AtMost(1.25));
    Ok(table)
}
