//! Removing a large relation.

use std::time::Instant;

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_testkit::run::Owner;

use super::Bench;
use crate::mount::Mount;
use crate::rounds::{Line, in_turn, judge};
use crate::side::{Kind, Side};

/// Of which a long run takes the first two: it fills ten gigabytes forty-four times on each.
const FILESYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let megabytes: u64 = bench.pick(256, 10 << 10);
    let about = format!(
        "A table of {megabytes} MB, written back, is truncated (in a transaction of its own) or dropped; each filesystem is in a file of its own. \
        Ratios round by round in turn."
    );
    let columns = [
        ("filesystem", Unit::Text),
        ("what", Unit::Text),
        ("plain ms", Unit::Ms),
        ("ours ms", Unit::Ms),
        ("to plain", Unit::Ratio),
    ];
    let mut table = Table::new("drop", "DROP and TRUNCATE", &about, &columns);
    for filesystem in FILESYSTEMS.into_iter().take(bench.pick(3, 2)) {
        let sides = start(filesystem, megabytes);
        let sides = match sides {
            Ok(sides) => sides,
            Err(reason) => {
                table.about.push_str(&format!(" {filesystem} is left out: {reason}."));
                continue;
            }
        };
        for what in ["truncate", "drop table"] {
            let found = in_turn(&sides, bench.rounds(), |side, _| {
                fill(side, megabytes)?;
                let begin = Instant::now();
                side.cluster.sql(&format!("{what} large"))?;
                let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
                side.cluster.sql("drop table if exists large; checkpoint")?;
                Ok([milliseconds])
            })?;
            let [plain, ours] = [&found[0].0[0], &found[1].0[0]];
            let ratio: Samples = ours.over(plain);
            table.row([
                filesystem.into(),
                what.into(),
                plain.median().into(),
                ours.median().into(),
                ratio.spread(),
            ]);
            judge(&mut table, &format!("{what} on {filesystem}: time to plain"), &ratio, Line::AtMost(2.0));
        }
    }
    if table.rows.is_empty() {
        table.about.push_str(" Nothing could be measured.");
    }
    Ok(table)
}

fn start(filesystem: &str, megabytes: u64) -> Result<Vec<Side>> {
    // A table that is made and filled in one transaction leaves no log then, and is there sooner.
    let settings = [("shared_buffers", "128MB"), ("wal_level", "minimal"), ("max_wal_senders", "0")];
    let owner = Owner::find()?;
    [Kind::Plain, Kind::Ours]
        .into_iter()
        .map(|kind| {
            let bytes = (megabytes << 20) * 2 + (1 << 30);
            Side::start_on(kind, Mount::make(filesystem, bytes, "defaults", &owner)?, &settings)
        })
        .collect()
}

/// Pages of 8 KB hold four of these rows.
fn fill(side: &Side, megabytes: u64) -> Result<()> {
    let rows = megabytes * 128 * 4;
    side.cluster.sql(&format!(
        "drop table if exists large;
        create table large as select n, md5(n::text) h, repeat(md5((n % 1000)::text), 58) from generate_series(1, {rows}) n;
        checkpoint"
    ))?;
    Ok(())
}
