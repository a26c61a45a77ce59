//! Latency of updates while garbage is collected.

use std::fs;

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_testkit::TempDir;

use super::Bench;
use crate::rounds::{Line, judge};
use crate::side::{Kind, Side};

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let (scale, seconds) = bench.pick((5, "4"), (50, "30"));
    let about = format!(
        "pgbench, simple updates at scale {scale}, 4 clients, in the compressed tablespace, shared buffers of 32 MB: the 99th percentile of all \
        latencies of a round with collection off and with collection on, in turn; the ratio is of on to off, in pairs."
    );
    let columns = [
        ("collection", Unit::Text),
        ("p50 ms", Unit::Ms),
        ("p99 ms", Unit::Ms),
        ("on disk", Unit::Bytes),
        ("p99, on to off", Unit::Ratio),
    ];
    let mut table = Table::new("latency", "Latency under collection", &about, &columns);
    let side = Side::start(Kind::Ours, 0, &[("shared_buffers", "32MB"), ("cfs.gc_period", "1s")])?;
    side.pgbench_tables(scale)?;
    let mut found: [[Samples; 3]; 2] = Default::default();
    for round in 0..=bench.rounds() {
        for at in [round % 2, (round + 1) % 2] {
            let on = ["off", "on"][at];
            side.cluster.sql(&format!("alter system set cfs.gc = {on}"))?;
            side.cluster.reload()?;
            let measured = latencies(&side, seconds)?;
            if round > 0 {
                found[at][0].push(measured.quantile(0.5) / 1e3);
                found[at][1].push(measured.quantile(0.99) / 1e3);
                found[at][2].push(side.bytes_on_disk()?);
            }
        }
    }
    let ratio = found[1][1].over(&found[0][1]);
    for (at, name) in ["off", "on"].into_iter().enumerate() {
        let [p50, p99, bytes] = &found[at];
        let ratio = if at == 0 { f64::NAN.into() } else { ratio.spread() };
        table.row([name.into(), p50.median().into(), p99.median().into(), bytes.median().into(), ratio]);
    }
    judge(&mut table, "p99, collection on to off", &ratio, Line::AtMost(1.25));
    Ok(table)
}

/// Microseconds of every transaction.
fn latencies(side: &Side, seconds: &str) -> Result<Samples> {
    let logs = TempDir::new()?;
    let prefix = logs.path().join("latency");
    let prefix = format!("--log-prefix={}", prefix.display());
    let arguments = ["-n", "-M", "prepared", "-N", "-c", "4", "-T", seconds, "--log", &prefix];
    side.pgbench(&arguments)?;
    let mut all = Samples::default();
    for file in fs::read_dir(logs.path())? {
        for line in fs::read_to_string(file?.path())?.lines() {
            let micros = line.split(' ').nth(2).and_then(|field| field.parse().ok());
            all.push(micros.ok_or_else(|| format!("pgbench logged {line}"))?);
        }
    }
    Ok(all)
}
