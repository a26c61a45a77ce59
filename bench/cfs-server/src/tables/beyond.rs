//! Data larger than memory.

use std::fs;

use pgshrink_bench_report::{Result, Table, Unit};
use pgshrink_testkit::TempDir;

use super::scan::{ROWS, speed};
use super::{Bench, HOW, columns};
use crate::group::{Group, SlowDisk};
use crate::rounds::{Line, judge, ours_to_plain, statement, tell, transactions};
use crate::side::Side;

/// What the server's processes and its buffers of 16 MB take.
const SERVER_BYTES: u64 = 96 << 20;
/// The rest of the limit is this part of what the tables take plain.
const SHARE: f64 = 0.2;

/// Of a slow disk, in a second: what a gp3 volume of EC2 has by default.
const DISK_BYTES: u64 = 125_000_000;
/// Likewise.
const DISK_READS: u64 = 3000;

/// Of the table itself: an index has what count(*) needs.
const SCAN: &str = "set enable_indexonlyscan = off; set enable_indexscan = off; set enable_bitmapscan = off;
    select count(*) from rows";

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let (scale, rows) = bench.pick((10, 500_000), (100, 10_000_000));
    let about = format!(
        "pgbench at scale {scale} and a table of {rows} rows; shared buffers of 16 MB, and each server is in a control group whose memory, the \
        kernel's cache of its files included, is limited to {} MB and a fifth of what the plain tables take. It begins with nothing in that cache. *slow disk*: reads, but not writes, are \
        limited to {} MB and {DISK_READS} in a second, as those of a gp3 volume of EC2 are by default; else the disk is the machine's.{HOW}",
        SERVER_BYTES >> 20,
        DISK_BYTES / 1_000_000
    );
    let mut table =
        Table::new("beyond", "Data larger than memory", &about, &columns("TPS or ms", Unit::Average));
    let settings =
        [("shared_buffers", "16MB"), ("effective_io_concurrency", "64"), ("random_page_cost", "1.1")];
    let (sides, left_out) = Side::all(bench.pick(4, 24) << 30, &settings)?;
    table.about.push_str(&left_out);
    if !bench.full {
        table
            .about
            .push_str(" A quick look: most of this data fits into the limit, and its ratios say little.");
    }
    for side in &sides {
        side.pgbench_tables(scale)?;
        side.cluster.sql(&format!(
            "{ROWS}{rows}) n; create index on rows (cents); vacuum analyze rows; checkpoint"
        ))?;
    }
    let plain = sides[0].number("select sum(pg_relation_size(oid)) from pg_class where oid >= 16384")?;
    let limit = SERVER_BYTES + (plain * SHARE) as u64;
    let mut groups = Vec::new();
    for side in &sides {
        side.forget()?;
        groups.push(Group::of(&side.cluster, side.name, limit)?);
    }
    let measured = measure(*bench, &mut table, &sides, rows);
    for (group, side) in groups.into_iter().zip(&sides) {
        group.end(&side.cluster)?;
    }
    measured.map(|()| table)
}

fn measure(bench: Bench, table: &mut Table, sides: &[Side], rows: u32) -> Result<()> {
    let (rounds, seconds) = (bench.rounds(), bench.pick(3, 8));
    let scripts = TempDir::new()?;
    let script = scripts.path().join("random");
    fs::write(&script, "\\set c random(0, 99999)\nselect count(note) from rows where cents = :c;\n")?;
    let script = script.to_string_lossy();
    let random = transactions(sides, rounds, seconds, &["-c", "2", "-f", &script])?;
    tell(table, "random reads", sides, &random, 1.0);
    judge(table, "random reads: TPS to plain", &ours_to_plain(&random, 0), Line::AtLeast(1.5));
    // Enough rows for a page in each of a few thousand places, and other rows in each round.
    let many = 400_000_000 / rows.max(1);
    let bitmap = move |round: usize| {
        let from = 1000 + u32::try_from(round).unwrap_or(0) * 8 * many % 90_000;
        let to = from + many;
        format!(
            "set enable_seqscan = off; set enable_indexscan = off;
            select count(note) from rows where cents between {from} and {to}"
        )
    };
    let measure_on = |table: &mut Table, sides: &[Side], disk: &str| -> Result<()> {
        let found = statement(sides, rounds, bitmap)?;
        tell(table, &format!("bitmap scan{disk}"), sides, &found, 1e3);
        let what = format!("bitmap scan with prefetch{disk}: speed to plain");
        judge(table, &what, &speed(&found), Line::AtLeast(1.5));
        let found = statement(sides, rounds, |_| SCAN.to_owned())?;
        tell(table, &format!("sequential scan{disk}"), sides, &found, 1e3);
        judge(table, &format!("sequential scan{disk}: speed to plain"), &speed(&found), Line::AtLeast(2.0));
        let found = transactions(sides, rounds, seconds, &["-c", "4", "-b", "tpcb-like"])?;
        tell(table, &format!("tpcb-like{disk}"), sides, &found, 1.0);
        judge(
            table,
            &format!("tpcb-like{disk}: TPS to plain"),
            &ours_to_plain(&found, 0),
            Line::AtLeast(1.05),
        );
        Ok(())
    };
    measure_on(table, sides, "")?;
    // A loop device's reads are not those of the server: btrfs is left out.
    let slow: Result<Vec<SlowDisk>> = sides[..2]
        .iter()
        .map(|side| SlowDisk::of(&side.cluster, &side.location, DISK_BYTES, DISK_READS))
        .collect();
    match slow {
        Ok(slow) => {
            measure_on(table, &sides[..2], ", slow disk")?;
            drop(slow);
        }
        Err(reason) => table.about.push_str(&format!(" The slow disk is left out: {reason}.")),
    }
    Ok(())
}
