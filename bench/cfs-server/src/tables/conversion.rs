//! Tables that are compressed, and made plain again, where they lie.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::corpora;

use super::Bench;
use crate::rounds::{Line, judge};
use crate::side::{Kind, Side, cpu_seconds_of, reported};

/// Corpora that become the tables: prices, prose, flights, packages.
const CORPORA: [&str; 4] = ["stock_price", "law_text", "flights", "deb_package"];
/// Between two looks at the space that is taken.
const LOOK: Duration = Duration::from_millis(50);
/// Between two looks at how far a conversion is, beside pgbench.
const PROGRESS_LOOK: Duration = Duration::from_millis(500);
const CLIENTS: &str = "4";
const MB: f64 = 1e6;
/// What one worker may need beyond the original.
const SEGMENT: f64 = (1u64 << 30) as f64;
/// Of WAL.
const WAL_MAX: f64 = 1e6;
/// Of the transactions beside no conversion, with a margin for what the kept share is read from.
const KEPT: f64 = 0.85;
/// WAL of the loading is not to stay on the disk.
const LIBRARY: [(&str, &str); 4] =
    [("shared_buffers", "512MB"), ("cfs.naptime", "1s"), ("max_wal_size", "2GB"), ("cfs.convert_rate", "0")];

/// What a conversion of all tables took.
struct Took {
    seconds: f64,
    cpu: f64,
    wal: f64,
    /// Bytes on disk before, at most meanwhile, and after it.
    before: f64,
    peak: f64,
    after: f64,
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let (bytes, scale, seconds) = bench.pick((0.4e9, 10, "5"), (10e9, 50, "20"));
    let rates = bench.pick(&["16MB", "64MB", "0"][..], &["8MB", "16MB", "32MB", "64MB", "128MB", "0"][..]);
    let about = format!(
        "*compress*, *decompress*: tables made of the corpora {}, {:.1} GB at least, converted where they lie with `cfs.convert_rate = 0` and \
        nothing beside it: processor time of the converter from /proc, WAL by pg_current_wal_lsn, space of the tablespace looked at every \
        {} ms. Beyond: at most meanwhile, less what the plain form takes. *beside pgbench*: pgbench at scale {scale}, tpcb-like, {CLIENTS} \
        clients, fsync on, {seconds} s without and {seconds} s with a conversion of these tables (both directions in turn), in pairs. MB are \
        plain bytes.",
        CORPORA.join(", "),
        bytes / 1e9,
        LOOK.as_millis(),
    );
    let columns = [
        ("what", Unit::Text),
        ("plain", Unit::Bytes),
        ("compressed", Unit::Bytes),
        ("MB/s", Unit::Average),
        ("MB per CPU s", Unit::Average),
        ("WAL", Unit::Bytes),
        ("beyond", Unit::Bytes),
        ("TPS", Unit::PerSecond),
        ("TPS to none", Unit::Ratio),
    ];
    let mut table = Table::new("conversion", "Conversion of tables in use", &about, &columns);
    let side = Side::start(Kind::Idle, 0, &LIBRARY)?;
    let tables = make_tables(&side, bytes)?;
    for (what, function) in [("compress", "cfs_compress_relation"), ("decompress", "cfs_decompress_relation")]
    {
        let took = convert(&side, &tables, function)?;
        let plain = took.before.max(took.after);
        let per_cpu = plain / MB / took.cpu;
        let beyond = (took.peak - plain).max(0.0);
        table.row([
            what.into(),
            plain.into(),
            took.before.min(took.after).into(),
            (plain / MB / took.seconds).into(),
            per_cpu.into(),
            took.wal.into(),
            beyond.into(),
            Value::None,
            Value::None,
        ]);
        table.verdict(
            &format!("{what}: MB per CPU second"),
            "at least 60",
            format!("{per_cpu:.0}"),
            per_cpu >= 60.0,
        );
        let of = format!("{:.0} kB for {:.1} GB", took.wal / 1e3, plain / 1e9);
        table.verdict(&format!("{what}: WAL"), "below 1 MB", of, took.wal < WAL_MAX);
        let of = format!("{:.0} MB for {:.1} GB", beyond / MB, plain / 1e9);
        table.verdict(&format!("{what}: space beyond the plain form"), "one segment", of, beyond <= SEGMENT);
    }
    beside_pgbench(bench, &mut table, &side, &tables, (scale, seconds, rates))?;
    Ok(table)
}

/// Makes tables of so many bytes at least, and returns their names.
fn make_tables(side: &Side, bytes: f64) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for name in CORPORA {
        corpora::find(name)?.load(&side.cluster)?;
        let rows = format!("select * from \"{name}\"");
        side.cluster.sql(&format!("create table big_{name} as {rows}"))?;
        let size = side.number(&format!("select pg_table_size('big_{name}')"))?;
        let more = (bytes / CORPORA.len() as f64 / size).ceil() as u32;
        for _ in 1..more {
            side.cluster.sql(&format!("insert into big_{name} {rows}"))?;
        }
        side.cluster.sql(&format!("drop table \"{name}\""))?;
        names.push(format!("big_{name}"));
    }
    // Hint bits and visibility are not to be set meanwhile.
    side.cluster.sql("vacuum freeze; checkpoint")?;
    Ok(names)
}

fn call(side: &Side, tables: &[String], function: &str) -> Result<()> {
    let calls: Vec<String> = tables.iter().map(|table| format!("{function}('{table}')")).collect();
    Ok(side.cluster.sql(&format!("select {}", calls.join(", "))).map(drop)?)
}

/// Converts all tables, with nothing beside it.
fn convert(side: &Side, tables: &[String], function: &str) -> Result<Took> {
    // What was written is on the disk, and files that rest have been packed.
    let before = side.bytes_on_disk()?;
    let cpu = converter_seconds(side)?;
    let wal = side.cluster.sql("select pg_current_wal_lsn()")?;
    let (begin, is_over) = (Instant::now(), AtomicBool::new(false));
    let (peak, done) = scope(|scope| {
        let looking = scope.spawn(|| {
            let mut peak = before;
            while !is_over.load(Ordering::Relaxed) {
                peak = side.bytes_now().map_or(peak, |now| peak.max(now));
                sleep(LOOK);
            }
            peak
        });
        let waits: Vec<String> = tables.iter().map(|table| format!("cfs_wait('{table}')")).collect();
        let done = call(side, tables, function)
            .and_then(|()| Ok(side.cluster.sql(&format!("select {}", waits.join(", ")))?));
        is_over.store(true, Ordering::Relaxed);
        (looking.join().unwrap_or(f64::NAN), done)
    });
    done?;
    let seconds = begin.elapsed().as_secs_f64();
    let wal = side.number(&format!("select pg_wal_lsn_diff(pg_current_wal_lsn(), '{wal}')"))?;
    let cpu = converter_seconds(side)? - cpu;
    Ok(Took { seconds, cpu, wal, before, peak, after: side.bytes_on_disk()? })
}

/// Processor time of the worker that converts.
fn converter_seconds(side: &Side) -> Result<f64> {
    let pid = side.cluster.sql("select pid from pg_stat_activity where backend_type = 'cfs converter'")?;
    cpu_seconds_of(&pid).ok_or_else(|| format!("no converter: {pid}").into())
}

/// Pairs of pgbench without a conversion and with one, at some rates.
fn beside_pgbench(
    bench: &Bench,
    table: &mut Table,
    side: &Side,
    tables: &[String],
    (scale, seconds, rates): (u32, &str, &[&str]),
) -> Result<()> {
    side.pgbench_tables(scale)?;
    let mut kept = None;
    for rate in rates {
        let mut found: [Samples; 3] = Default::default();
        for round in 0..=bench.rounds() {
            for at in [round % 2, (round + 1) % 2] {
                let (tps, moved) = match at {
                    0 => (beside(side, tables, None, seconds)?.0, f64::NAN),
                    _ => beside(side, tables, Some(rate), seconds)?,
                };
                if round > 0 {
                    found[at].push(tps);
                    if at == 1 {
                        found[2].push(moved / MB);
                    }
                }
            }
        }
        let ratio = found[1].over(&found[0]);
        if ratio.median() >= KEPT {
            kept = Some((found[2].median(), ratio.clone()));
        }
        let what = if *rate == "0" { "unlimited".to_owned() } else { format!("{rate}/s") };
        table.row([
            format!("beside pgbench, {what}").into(),
            Value::None,
            Value::None,
            found[2].median().into(),
            Value::None,
            Value::None,
            Value::None,
            found[1].median().into(),
            ratio.spread(),
        ]);
    }
    match kept {
        Some((rate, ratio)) => {
            judge(table, &format!("TPS beside a conversion at {rate:.0} MB/s"), &ratio, Line::AtLeast(KEPT));
        }
        None => table.verdict("TPS beside a conversion", "at least 0.85", "at no rate", false),
    }
    Ok(())
}

/// TPS of pgbench, and bytes per second that were converted meanwhile.
fn beside(side: &Side, tables: &[String], rate: Option<&str>, seconds: &str) -> Result<(f64, f64)> {
    let convert = if rate.is_some() { "on" } else { "off" };
    side.cluster.sql("checkpoint")?;
    side.cluster.sql(&format!("alter system set cfs.convert_rate = '{}'", rate.unwrap_or("0")))?;
    side.cluster.sql(&format!("alter system set cfs.convert = {convert}"))?;
    side.cluster.reload()?;
    let is_over = AtomicBool::new(false);
    let begin = Instant::now();
    let (printed, moved) = scope(|scope| {
        // The same looks beside both.
        let looking = scope.spawn(|| follow(side, tables, rate.is_some(), &is_over));
        let printed = side.pgbench(&["-n", "-M", "prepared", "-c", CLIENTS, "-T", seconds]);
        is_over.store(true, Ordering::Relaxed);
        let moved = looking.join().unwrap_or_else(|_| Err("the look at the conversion ended".into()));
        (printed, moved)
    });
    Ok((reported(&printed?, "tps")?, moved? / begin.elapsed().as_secs_f64()))
}

/// Keeps conversions going, and returns the bytes that they moved.
fn follow(side: &Side, tables: &[String], goes: bool, is_over: &AtomicBool) -> Result<f64> {
    let query = "select coalesce(sum(pages_done), 0) * 8192 from cfs_progress";
    let (mut moved, mut last) = (0.0, side.number(query)?);
    while !is_over.load(Ordering::Relaxed) {
        let done = side.cluster.sql("select count(*), (select setting from cfs_members(array['big_flights'::regclass::oid])) from cfs_progress")?;
        if goes && let Some(setting) = done.strip_prefix("0|") {
            let function =
                if setting == "none" { "cfs_compress_relation" } else { "cfs_decompress_relation" };
            call(side, tables, function)?;
        }
        sleep(PROGRESS_LOOK);
        let now = side.number(query)?;
        // Files that are done are no longer in the view.
        moved += (now - last).max(0.0);
        last = now;
    }
    Ok(moved)
}
