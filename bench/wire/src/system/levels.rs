//! Physical replication at several levels of zstd in each context mode.
//!
//! Catching up repeats the same WAL for each setting: a standby that was never started is copied back before each run.
//! Live, one standby follows through each setting in turn while pgbench writes at a fixed rate.

use std::time::Duration;

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::{Cluster, Stop, TempDir, corpora, run, wait_until};

use super::Bench;
use super::load;
use super::way::{Job, Way};

const LEVELS: [&str; 3] = ["zstd:1", "zstd:5", "zstd:9"];
const CONTEXTS: [&str; 3] = ["preserved", "per-transaction", "per-frame"];
/// Position of `off` among the settings.
const OFF: usize = 0;
const SCALE: u32 = 4;
const SEGMENT_SIZE: u64 = 16 << 20;
/// The standby's, in the primary's views.
const NAME: &str = "follower";
/// Transactions a second.
const LIVE_RATE: u32 = 300;
const LIVE_CLIENTS: u32 = 4;
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(600);
/// Tables that both servers have.
const TABLES: [&str; 5] =
    ["pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history", "flights"];

/// One setting of both ends.
struct Setting {
    algorithm: &'static str,
    context: &'static str,
    way: Way,
}

/// What one run carried and cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    wal: u64,
    /// To the primary and to the standby.
    bytes: [u64; 2],
    /// Of gateway and connector.
    cpu_seconds: [f64; 2],
}

/// All rounds of one setting.
#[derive(Default)]
struct Rounds {
    /// Bytes to the standby for a byte of WAL.
    carried: Samples,
    sum: Cost,
    /// After how many the standby's tables were the primary's.
    equal_count: usize,
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = format!(
        "A hot standby follows a primary through connector and gateway on one machine (physical replication); both \
         ends have the same algorithm, level and context. *Catching up*: the same WAL for each setting, of pgbench \
         tpcb-like at scale {SCALE} or of a COPY of flights into an empty table, received by a standby that was away. \
         *Live*: pgbench writes at {LIVE_RATE} transactions a second from 4 clients, right after a checkpoint, so with \
         many full pages. Bytes are those between connector and gateway, of all rounds. `off to it`: bytes to the \
         standby for a byte of WAL with compression off, divided by those of the setting, round by round. CPU is in \
         seconds for 10^9 bytes of WAL. After each run all rows of the \
         standby's tables are compared with the primary's by count and hash."
    );
    let columns = [
        ("work", Unit::Text),
        ("compression", Unit::Text),
        ("context", Unit::Text),
        ("WAL", Unit::Bytes),
        ("bytes to standby", Unit::Bytes),
        ("bytes to primary", Unit::Bytes),
        ("off to it", Unit::Ratio),
        ("gateway, s/GB", Unit::Seconds),
        ("connector, s/GB", Unit::Seconds),
    ];
    let mut table = Table::new("replication-levels", "Replication by level and context", &about, &columns);
    let primary = primary()?;
    let mut settings = vec![Setting::start(bench, &primary, "off", "preserved")?];
    for algorithm in LEVELS {
        for context in CONTEXTS {
            settings.push(Setting::start(bench, &primary, algorithm, context)?);
        }
    }
    let (mut equal, mut runs) = (0, 0);
    let transactions = if bench.full { "10000" } else { "2000" };
    let tpcb = || -> Result<()> {
        let job = Job { script: "tpcb-like", protocol: "prepared", clients: "4" };
        job.run(&primary, primary.port(), &["-t", transactions]).map(drop)
    };
    let flights = corpora::find("flights")?;
    primary.sql(&flights.create_table()?)?;
    let rows = flights.bytes()?;
    let copy = || -> Result<()> {
        Ok(primary.psql().arg("-c").arg(flights.copy_in()).input(rows.clone()).run().map(drop)?)
    };
    let works: [(&str, Vec<Rounds>); 3] = [
        ("tpcb-like, catching up", catch_up(bench, &primary, &settings, &tpcb)?),
        ("flights loaded, catching up", catch_up(bench, &primary, &settings, &copy)?),
        ("tpcb-like, live", live(bench, &primary, &settings)?),
    ];
    for (work, rounds) in &works {
        for (setting, done) in settings.iter().zip(rounds) {
            table.push(row(work, setting, done, &rounds[OFF]));
            equal += done.equal_count;
            runs += done.carried.count();
        }
    }
    table.verdict(
        "tables of a standby behind compressed replication, every level and context",
        "equal to the primary's after each run",
        format!("{equal} of {runs} runs"),
        equal == runs,
    );
    Ok(table)
}

fn row(work: &str, setting: &Setting, done: &Rounds, off: &Rounds) -> Vec<Value> {
    let [to_primary, to_standby] = done.sum.bytes;
    let [gateway, connector] = done.sum.cpu_seconds.map(|seconds| seconds / (done.sum.wal as f64 / 1e9));
    vec![
        work.into(),
        setting.algorithm.into(),
        if setting.algorithm == "off" { Value::None } else { setting.context.into() },
        done.sum.wal.into(),
        to_standby.into(),
        to_primary.into(),
        off.carried.over(&done.carried).spread(),
        gateway.into(),
        connector.into(),
    ]
}

fn primary() -> Result<Cluster> {
    let conf = [("wal_level", "replica"), ("wal_keep_size", "6GB"), ("wal_sender_timeout", "0")];
    load::pgbench_server_with(SCALE, 100, &conf)
}

/// Each setting in turn receives what `write` does, from the same copy of a standby on.
fn catch_up(
    bench: &Bench,
    primary: &Cluster,
    settings: &[Setting],
    write: &dyn Fn() -> Result<()>,
) -> Result<Vec<Rounds>> {
    let standby = primary.standby().name(NAME).create()?;
    // A backup ends with a segment's end, and a standby asks for whole segments.
    let begin = flushed(primary)? / SEGMENT_SIZE * SEGMENT_SIZE;
    write()?;
    let (end, expected) = (flushed(primary)?, fingerprint(primary)?);
    let kept = TempDir::owned_by(primary.owner())?;
    let (data, copy) = (standby.data_dir(), kept.path().join("data"));
    run::output(primary.owner().command("cp").arg("-a").arg(&data).arg(&copy))?;
    let mut done: Vec<Rounds> = settings.iter().map(|_| Rounds::default()).collect();
    for round in 0..bench.rounds(1, 3) {
        for at in load::order(round, settings.len()) {
            let way = &settings[at].way;
            std::fs::remove_dir_all(&data)?;
            run::output(primary.owner().command("cp").arg("-a").arg(&copy).arg(&data))?;
            let before = Cost::so_far(way)?;
            follow(primary, &standby, way)?;
            wait_in(&standby, &format!("pg_last_wal_replay_lsn() - '0/0'::pg_lsn >= {end}"))?;
            let cost = Cost::so_far(way)?.since(before, end - begin);
            done[at].push(cost, fingerprint(&standby)? == expected);
            standby.stop(Stop::Fast)?;
            way.wait_until_closed()?;
        }
    }
    Ok(done)
}

/// One standby follows through each setting in turn while transactions come at a fixed rate.
fn live(bench: &Bench, primary: &Cluster, settings: &[Setting]) -> Result<Vec<Rounds>> {
    let standby = primary.standby().name(NAME).create()?;
    let seconds = if bench.full { 15 } else { 4 };
    let (rate, count) = (LIVE_RATE.to_string(), (LIVE_RATE * seconds / LIVE_CLIENTS).to_string());
    let clients = LIVE_CLIENTS.to_string();
    let job = Job { script: "tpcb-like", protocol: "prepared", clients: &clients };
    let mut done: Vec<Rounds> = settings.iter().map(|_| Rounds::default()).collect();
    for round in 0..bench.rounds(1, 3) {
        let seed = format!("--random-seed={round}");
        for at in load::order(round, settings.len()) {
            let way = &settings[at].way;
            follow(primary, &standby, way)?;
            primary.sql("checkpoint")?;
            caught_up(primary)?;
            let (before, begin) = (Cost::so_far(way)?, flushed(primary)?);
            job.run(primary, primary.port(), &["-t", &count, "-R", &rate, &seed])?;
            let end = flushed(primary)?;
            caught_up(primary)?;
            let cost = Cost::so_far(way)?.since(before, end - begin);
            done[at].push(cost, fingerprint(&standby)? == fingerprint(primary)?);
            standby.stop(Stop::Fast)?;
            way.wait_until_closed()?;
        }
    }
    Ok(done)
}

/// Starts the standby behind this setting's connector and waits until it streams.
fn follow(primary: &Cluster, standby: &Cluster, way: &Way) -> Result<()> {
    wait_until(Duration::from_secs(60), "the last walsender to end", || {
        primary.sql("select count(*) from pg_stat_replication").is_ok_and(|count| count == "0")
    })?;
    let conninfo = primary.conninfo_at("127.0.0.1", way.counted_port(), "postgres");
    let conninfo = format!("{conninfo} application_name={NAME} sslmode=disable gssencmode=disable");
    standby.set_conf("primary_conninfo", conninfo)?;
    Ok(standby.start()?)
}

/// Waits until the standby has replayed all there is, and streams.
fn caught_up(primary: &Cluster) -> Result<()> {
    wait_in(
        primary,
        "exists (select from pg_stat_get_wal_senders() \
         where state = 'streaming' and replay_lsn >= pg_current_wal_flush_lsn())",
    )
}

/// Looks with a statement each time: one that waits in the server holds a snapshot, and a standby's recovery cancels those
/// that are in its way.
fn wait_in(server: &Cluster, condition: &str) -> Result<()> {
    let look = || server.sql(&format!("select {condition}")).is_ok_and(|is| is == "t");
    Ok(wait_until(CATCH_UP_TIME_MAX, condition, look)?)
}

/// How far the server's WAL is flushed, in bytes.
fn flushed(server: &Cluster) -> Result<u64> {
    Ok(server.sql("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn")?.parse()?)
}

/// Count and hash of all rows of each table, in whatever order they are stored.
fn fingerprint(server: &Cluster) -> Result<String> {
    let of = |table| format!("select '{table}', count(*), sum(hashtextextended(t::text, 0)) from {table} t");
    Ok(server.sql(&TABLES.map(of).join("; "))?)
}

impl Setting {
    fn start(
        bench: &Bench,
        primary: &Cluster,
        algorithm: &'static str,
        context: &'static str,
    ) -> Result<Setting> {
        let way = Way::start(bench, primary, algorithm, &["--context", context])?;
        Ok(Setting { algorithm, context, way })
    }
}

impl Cost {
    fn so_far(way: &Way) -> Result<Cost> {
        Ok(Cost { wal: 0, bytes: way.bytes(), cpu_seconds: way.cpu_seconds()? })
    }

    /// What came on top of `before` while `wal` bytes of WAL were sent.
    fn since(self, before: Cost, wal: u64) -> Cost {
        let bytes = [0, 1].map(|at| self.bytes[at] - before.bytes[at]);
        let cpu_seconds = [0, 1].map(|at| self.cpu_seconds[at] - before.cpu_seconds[at]);
        Cost { wal, bytes, cpu_seconds }
    }
}

impl Rounds {
    fn push(&mut self, cost: Cost, equal: bool) {
        self.carried.push(cost.bytes[1] as f64 / cost.wal as f64);
        self.equal_count += usize::from(equal);
        self.sum.wal += cost.wal;
        for at in 0..2 {
            self.sum.bytes[at] += cost.bytes[at];
            self.sum.cpu_seconds[at] += cost.cpu_seconds[at];
        }
    }
}
