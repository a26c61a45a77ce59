//! pgbench with data in memory.

use pgshrink_bench_report::{Result, Table, Unit};

use super::{Bench, HOW, columns};
use crate::rounds::{Line, judge, ours_to_plain, tell, transactions};
use crate::side::{Kind, Side};

/// What is run, in words and for pgbench.
const KINDS: [(&str, &str); 2] = [("-S", "select-only"), ("tpcb-like", "tpcb-like")];
const CLIENTS: &str = "2";

/// Data that shared buffers hold.
pub(super) fn buffers(bench: &Bench) -> Result<Table> {
    let scale = bench.pick(5, 50);
    let mut table = Table::new(
        "buffers",
        "Transactions on what shared buffers hold",
        &format!(
            "pgbench, prepared statements, {CLIENTS} clients, scale {scale}; shared buffers of 2 GB hold all, and were filled.{HOW}"
        ),
        &columns("TPS", Unit::PerSecond),
    );
    let sides = prepared(&mut table, scale, "2GB")?;
    for side in &sides {
        let fill = "create extension if not exists pg_prewarm; select sum(pg_prewarm(oid)) from pg_class where relname ~ '^pgbench'";
        side.cluster.sql(fill)?;
    }
    for (what, builtin) in KINDS {
        let arguments = ["-c", CLIENTS, "-b", builtin];
        let found = transactions(&sides, bench.rounds(), bench.pick(3, 6), &arguments)?;
        tell(&mut table, what, &sides, &found, 1.0);
        let backends = ours_to_plain(&found, 1);
        judge(&mut table, &format!("{what}: CPU of backends per transaction"), &backends, Line::AtMost(1.02));
        let server = ours_to_plain(&found, 2);
        judge(&mut table, &format!("{what}: CPU of the server per transaction"), &server, Line::AtMost(1.10));
    }
    Ok(table)
}

/// Data that only the kernel's cache holds.
pub(super) fn page_cache(bench: &Bench) -> Result<Table> {
    let scale = bench.pick(5, 50);
    let mut table = Table::new(
        "page-cache",
        "Transactions on what the kernel's cache holds",
        &format!(
            "pgbench, prepared statements, {CLIENTS} clients, scale {scale}; shared buffers of 8 MB hold little, the kernel's cache all.{HOW}"
        ),
        &columns("TPS", Unit::PerSecond),
    );
    let sides = prepared(&mut table, scale, "8MB")?;
    for ((what, builtin), line) in KINDS.into_iter().zip([0.85, 0.95]) {
        let arguments = ["-c", CLIENTS, "-b", builtin];
        let found = transactions(&sides, bench.rounds(), bench.pick(3, 6), &arguments)?;
        tell(&mut table, what, &sides, &found, 1.0);
        judge(&mut table, &format!("{what}: TPS to plain"), &ours_to_plain(&found, 0), Line::AtLeast(line));
    }
    Ok(table)
}

/// Encrypted tables beside compressed ones.
pub(super) fn encryption(bench: &Bench) -> Result<Table> {
    let scale = bench.pick(5, 50);
    let about = format!(
        "pgbench, prepared statements, {CLIENTS} clients, scale {scale}, in a compressed tablespace (*ours*) and in an encrypted one; shared buffers of \
        8 MB hold little, the kernel's cache all, so that nearly every page is decrypted.{HOW} *To plain* is here to the tablespace that is not encrypted."
    );
    let mut table =
        Table::new("encryption", "Encrypted tablespaces", &about, &columns("TPS", Unit::PerSecond));
    let mut sides = Vec::new();
    for kind in [Kind::Ours, Kind::Encrypted] {
        let side = Side::start(kind, 0, &[("shared_buffers", "8MB")])?;
        side.pgbench_tables(scale)?;
        side.empty_buffers()?;
        sides.push(side);
    }
    for (what, builtin) in KINDS {
        let arguments = ["-c", CLIENTS, "-b", builtin];
        let found = transactions(&sides, bench.rounds(), bench.pick(3, 6), &arguments)?;
        tell(&mut table, what, &sides, &found, 1.0);
        let tps = ours_to_plain(&found, 0);
        judge(&mut table, &format!("{what}: TPS, encrypted to not"), &tps, Line::AtLeast(0.95));
    }
    Ok(table)
}

fn prepared(table: &mut Table, scale: u32, shared_buffers: &str) -> Result<Vec<Side>> {
    let (sides, left_out) = Side::all(u64::from(scale.max(20)) << 26, &[("shared_buffers", shared_buffers)])?;
    table.about.push_str(&left_out);
    for side in &sides {
        side.pgbench_tables(scale)?;
        side.empty_buffers()?;
    }
    Ok(sides)
}
