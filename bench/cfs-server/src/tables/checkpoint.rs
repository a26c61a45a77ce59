//! Checkpoints of many relations, and recovery.

use std::time::Instant;

use pgshrink_bench_report::{Result, Table, Unit};
use pgshrink_testkit::run::Owner;

use super::{Bench, HOW, columns};
use crate::mount::Mount;
use crate::rounds::{Found, Line, in_turn, judge, ours_to_plain, tell};
use crate::side::{Kind, Side};

/// Filesystems with a journal, as servers have them. The machine's own may have none.
const JOURNALLED: [&str; 2] = ["ext4", "xfs"];
const SETTINGS: [(&str, &str); 1] = [("shared_buffers", "512MB")];

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let relations = bench.pick(200, 1000);
    let changes = bench.pick(5_000, 100_000);
    let about = format!(
        "*checkpoint*: {relations} tables of a dozen pages, a row of each updated, then CHECKPOINT; in the data directory's filesystem, and in \
        filesystems of their own with a journal, on loop devices that write directly to it. *recovery*: pgbench at scale 10, {changes} \
        transactions, tpcb-like, since the last checkpoint, then the server is killed; until it answers again.{HOW}"
    );
    let mut table = Table::new("checkpoint", "Checkpoints and recovery", &about, &columns("ms", Unit::Ms));
    let (sides, left_out) = Side::all(4 << 30, &SETTINGS)?;
    table.about.push_str(&left_out);
    for side in &sides {
        make_relations(side, relations)?;
        side.pgbench_tables(10)?;
    }
    let found = checkpoints(bench, &sides, relations)?;
    told(&mut table, "checkpoint", &sides, &found, 1.5);
    let transactions = (changes / 4).to_string();
    let found = in_turn(&sides, bench.rounds(), |side, _| {
        side.cluster.sql("checkpoint")?;
        side.pgbench(&["-n", "-M", "prepared", "-c", "4", "-t", &transactions])?;
        side.cluster.kill()?;
        let begin = Instant::now();
        side.cluster.start()?;
        side.cluster.sql("select 1")?;
        // A server that has just started has used nothing else.
        let used = side.usage()?;
        Ok([begin.elapsed().as_secs_f64(), used.backends(), used.server, 0.0, used.read])
    })?;
    told(&mut table, "recovery", &sides, &found, 1.2);
    drop(sides);
    for filesystem in JOURNALLED {
        match start_on(filesystem) {
            Ok(sides) => {
                for side in &sides {
                    make_relations(side, relations)?;
                }
                let found = checkpoints(bench, &sides, relations)?;
                told(&mut table, &format!("checkpoint, {filesystem}"), &sides, &found, 1.5);
            }
            Err(reason) => table.about.push_str(&format!(" {filesystem} is left out: {reason}.")),
        }
    }
    Ok(table)
}

fn start_on(filesystem: &str) -> Result<Vec<Side>> {
    let owner = Owner::find()?;
    let start = |kind| Side::start_on(kind, Mount::make(filesystem, 2 << 30, "defaults", &owner)?, &SETTINGS);
    [Kind::Plain, Kind::Ours].into_iter().map(start).collect()
}

fn make_relations(side: &Side, relations: u32) -> Result<()> {
    side.cluster.sql(&format!(
        "do $$ begin for i in 1..{relations} loop
        execute format('create table many_%s as select n, md5(n::text) h from generate_series(1, 1200) n', i);
        end loop; end $$; checkpoint"
    ))?;
    Ok(())
}

fn checkpoints(bench: &Bench, sides: &[Side], relations: u32) -> Result<Vec<Found<5>>> {
    in_turn(sides, bench.rounds(), |side, _| {
        side.cluster.sql(&format!(
            "do $$ begin for i in 1..{relations} loop
            execute format('update many_%s set h = md5(h) where n = 600', i); end loop; end $$"
        ))?;
        timed(side, || side.cluster.sql("checkpoint").map(drop).map_err(Into::into))
    })
}

fn timed(side: &Side, work: impl FnOnce() -> Result<()>) -> Result<[f64; 5]> {
    let (before, begin) = (side.usage()?, Instant::now());
    work()?;
    let seconds = begin.elapsed().as_secs_f64();
    let used = side.usage()?.since(before);
    Ok([seconds, used.backends(), used.server, used.missed, used.read])
}

fn told(table: &mut Table, what: &str, sides: &[Side], found: &[Found<5>], line: f64) {
    tell(table, what, sides, found, 1e3);
    judge(table, &format!("{what}: time to plain"), &ours_to_plain(found, 0), Line::AtMost(line));
}
