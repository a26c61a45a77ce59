//! A synchronous standby behind a slow link, few writes, and segments that are switched before they are full.
//!
//! The server pads a switched segment to its 16 MiB, and a commit waits behind that on the way to the standby. The
//! standby runs on this side: only its connector is behind the link, reached through a Unix socket, which no network
//! namespace hides.

use std::path::Path;
use std::time::Duration;

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::netns::{Link, LinkShape};
use pgshrink_testkit::{Cluster, Stop, TempDir, run, wait_until};

use super::Bench;
use super::links::sent_bytes;
use super::product::Hop;

const ALGORITHMS: [&str; 3] = ["off", "zstd:1", "lz4:1"];
const BYTES_PER_SECOND: u64 = 16_000_000;
const SPIKE_MS: f64 = 500.0;
const ARCHIVE_TIMEOUT_SECONDS: u32 = 5;

#[derive(Default)]
struct Phase {
    /// Milliseconds of each commit, from the time it was due.
    commits: Samples,
    spikes: u64,
    segments: u64,
    carried: u64,
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = format!(
        "Standby with `synchronous_commit = remote_write` behind a link of 16 MB/s; pgbench inserts 40 rows a second from \
         4 clients; `archive_timeout = {ARCHIVE_TIMEOUT_SECONDS}s` switches segments. Latency of a commit from when it was \
         due, in ms. Rounds in turn through the same hops with compression off and on."
    );
    let columns = [
        ("compression", Unit::Text),
        ("commits", Unit::Count),
        ("p50", Unit::Ms),
        ("p99", Unit::Ms),
        ("p99.9", Unit::Ms),
        ("max", Unit::Ms),
        ("over 500 ms", Unit::Count),
        ("segments switched", Unit::Count),
        ("bytes on the link", Unit::Bytes),
    ];
    let mut table = Table::new("standby", "Synchronous standby behind 16 MB/s", &about, &columns);
    let link = Link::new(LinkShape::of(BYTES_PER_SECOND)).map_err(|missing| missing.to_string())??;
    let primary = primary()?;
    let sockets = TempDir::owned_by(primary.owner())?;
    let mut ways = Vec::new();
    for algorithm in ALGORITHMS {
        let gateway = bench.product.gateway(&link.near().to_string(), primary.port(), algorithm)?;
        let connector = bench.product.connector_behind(&link, &gateway, algorithm, Some(sockets.path()))?;
        ways.push((gateway, connector));
    }
    let standby = primary.standby().name("far").conf("archive_mode", "off").create()?;
    primary.set_conf("synchronous_standby_names", "far")?;
    primary.reload()?;
    let mut phases: [Phase; 3] = Default::default();
    for _ in 0..bench.rounds(1, 3) {
        for (phase, way) in phases.iter_mut().zip(&ways) {
            follow(&primary, &standby, sockets.path(), &way.1)?;
            commit(bench, &primary, &link, phase)?;
            standby.stop(Stop::Fast)?;
        }
    }
    for (algorithm, phase) in ALGORITHMS.iter().zip(&phases) {
        let quantile = |share| Value::from(phase.commits.quantile(share));
        table.row([
            (*algorithm).into(),
            phase.commits.count().into(),
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            quantile(1.0),
            phase.spikes.into(),
            phase.segments.into(),
            phase.carried.into(),
        ]);
    }
    let [off, on, _] = &phases;
    table.verdict(
        "commit latency of a remote_write standby behind 16 MB/s, segments switched, zstd:1",
        "p99.9 and maximum below 500 ms where off is above",
        format!(
            "off {:.0} / {:.0} ms, zstd:1 {:.0} / {:.0} ms",
            off.commits.quantile(0.999),
            off.commits.max(),
            on.commits.quantile(0.999),
            on.commits.max()
        ),
        off.commits.max() > SPIKE_MS && on.commits.max() < SPIKE_MS,
    );
    Ok(table)
}

fn primary() -> Result<Cluster> {
    let primary = Cluster::builder()
        .conf("wal_level", "replica")
        .conf("archive_mode", "on")
        .conf("archive_command", "/bin/true")
        .conf("archive_timeout", format!("{ARCHIVE_TIMEOUT_SECONDS}s"))
        .conf("wal_keep_size", "1GB")
        .conf("max_wal_size", "8GB")
        .conf("checkpoint_timeout", "1h")
        .conf("synchronous_commit", "remote_write")
        .start()?;
    primary.sql("create table note (at timestamptz default now(), text text)")?;
    Ok(primary)
}

/// Starts the standby behind this connector and waits until commits wait for it.
fn follow(primary: &Cluster, standby: &Cluster, sockets: &Path, connector: &Hop) -> Result<()> {
    let gone = "select count(*) = 0 from pg_stat_replication";
    wait_until(Duration::from_secs(60), "the last walsender to end", || {
        primary.sql(gone).is_ok_and(|answer| answer == "t")
    })?;
    let conninfo = primary.conninfo_at(&sockets.to_string_lossy(), connector.port(), "postgres");
    standby.set_conf("primary_conninfo", format!("{conninfo} application_name=far"))?;
    standby.start()?;
    let streams = "select count(*) from pg_stat_replication where state = 'streaming' and sync_state = 'sync' \
                   and replay_lsn = pg_current_wal_lsn()";
    wait_until(Duration::from_secs(120), "the standby to follow", || {
        primary.sql(streams).is_ok_and(|answer| answer == "1")
    })?;
    Ok(())
}

fn commit(bench: &Bench, primary: &Cluster, link: &Link, phase: &mut Phase) -> Result<()> {
    let dir = TempDir::new()?;
    let script = dir.path().join("insert.sql");
    std::fs::write(&script, "insert into note (text) values (md5(random()::text));\n")?;
    let segment = || -> Result<u64> {
        Ok(primary
            .sql("select (pg_current_wal_lsn() - '0/0') / (16 * 1024 * 1024)")?
            .split('.')
            .next()
            .unwrap_or("0")
            .parse()?)
    };
    let (first, sent) = (segment()?, sent_bytes(link)?);
    let mut command = primary.command("pgbench");
    command.args(["-n", "-c", "4", "-j", "1", "-R", "40", "-l", "-T", if bench.full { "60" } else { "25" }]);
    command.arg("-f").arg(&script).arg(primary.conninfo_unix("postgres")).current_dir(dir.path());
    run::output(&mut command)?;
    phase.segments += segment()? - first;
    phase.carried += sent_bytes(link)? - sent;
    for entry in std::fs::read_dir(dir.path())?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("pgbench_log") {
            for line in std::fs::read_to_string(entry.path())?.lines() {
                // client, transaction, microseconds, ...
                let field = line.split(' ').nth(2).ok_or("a log line of pgbench has no time")?;
                let ms = field.parse::<f64>()? / 1000.0;
                phase.spikes += u64::from(ms > SPIKE_MS);
                phase.commits.push(ms);
            }
        }
    }
    Ok(())
}
