//! What sessions hold in the two processes: idle, active, and over time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgshrink_bench_report::markdown::grouped;
use pgshrink_bench_report::{Error, Result, Samples, Table, Unit, Value};
use pgshrink_testkit::{Daemon, corpora};

use super::Bench;
use super::product::Hop;
use super::standin::StandIn;
use crate::session::Session;

const IDLE_COUNT: usize = 2000;
const ACTIVE_COUNT: usize = 500;
const IDLE_BYTES_MAX: f64 = 65536.0;
const ACTIVE_BYTES_MAX: f64 = (4 << 20) as f64;
/// Each way, for each session.
const BULK_SIZE: usize = 2 << 20;
const IDLE_RELEASE_SECONDS: u64 = 3;
const GROWTH_PERCENT_MAX: f64 = 3.0;
/// Threads that drive the active sessions.
const DRIVERS: usize = 4;
/// A turn of a session in the long run, each way.
const TURN_SIZE: usize = 64 << 10;

/// A gateway before the stand-in, a connector before that.
struct Stage {
    gateway: Hop,
    connector: Hop,
    _server: StandIn,
    text: Vec<u8>,
}

/// Memory of gateway and connector.
#[derive(Clone, Copy)]
struct Memory {
    resident: [f64; 2],
    heap: [f64; 2],
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = format!(
        "Memory of the gateway's and the connector's process divided by the number of sessions, after what a fresh process \
         that has served a session already held. Resident is VmRSS, heap its anonymous part. Behind the gateway stands a \
         server that only plays one, so that thousands of backends do not decide. *Active*: each session has copied \
         {} MiB out and as much in, at zstd:1. *Quiet*: {IDLE_RELEASE_SECONDS} seconds without traffic and more, with \
         `--idle-release-s {IDLE_RELEASE_SECONDS}`.",
        BULK_SIZE >> 20
    );
    let columns = [
        ("sessions", Unit::Count),
        ("state", Unit::Text),
        ("compression", Unit::Text),
        ("gateway resident", Unit::Bytes),
        ("gateway heap", Unit::Bytes),
        ("connector resident", Unit::Bytes),
        ("connector heap", Unit::Bytes),
    ];
    let mut table = Table::new("connections", "Memory of a connection", &about, &columns);
    let mut largest = [0f64; 3];
    for compression in ["off", "zstd:1"] {
        let stage = stage(bench, compression, BULK_SIZE)?;
        let before = stage.settled()?;
        let mut sessions = stage.open(IDLE_COUNT)?;
        largest[0] =
            largest[0].max(stage.row(&mut table, before, IDLE_COUNT, "idle, logged in", compression)?);
        for session in &mut sessions {
            session.query("small", usize::MAX)?;
        }
        largest[0] = largest[0].max(stage.row(
            &mut table,
            before,
            IDLE_COUNT,
            "idle after one small query",
            compression,
        )?);
    }
    let stage = stage(bench, "zstd:1", BULK_SIZE)?;
    let before = stage.settled()?;
    let mut sessions = stage.open(ACTIVE_COUNT)?;
    for session in &mut sessions {
        session.query("out", usize::MAX)?;
        session.copy_in("in", &stage.text)?;
    }
    largest[1] = stage.row(&mut table, before, ACTIVE_COUNT, "active", "zstd:1")?;
    thread::sleep(Duration::from_secs(3 * IDLE_RELEASE_SECONDS));
    largest[2] = stage.row(&mut table, before, ACTIVE_COUNT, "active, then quiet", "zstd:1")?;
    for (what, limit, line, found) in [
        ("an idle connection, 2,000 of them", IDLE_BYTES_MAX, "at most 64 KiB", largest[0]),
        ("an active zstd:1 connection, both directions", ACTIVE_BYTES_MAX, "at most 4 MiB", largest[1]),
        ("a connection that was active and is idle", IDLE_BYTES_MAX, "at most 64 KiB", largest[2]),
    ] {
        let found_text = format!("{} bytes, the larger of gateway and connector, resident", grouped(found));
        table.verdict(&format!("memory of {what}"), line, found_text, found <= limit);
    }
    Ok(table)
}

pub(super) fn growth(bench: &Bench) -> Result<Table> {
    let duration = Duration::from_secs(if bench.full { 600 } else { 60 });
    let about = format!(
        "{ACTIVE_COUNT} sessions at zstd:1, of which {DRIVERS} at a time copy {} KiB out and as much in, for {} seconds. \
         Resident memory of each process over the run; growth is the last fifth against the second.",
        TURN_SIZE >> 10,
        duration.as_secs()
    );
    let columns = [
        ("process", Unit::Text),
        ("sessions", Unit::Count),
        ("turns", Unit::Count),
        ("second fifth", Unit::Bytes),
        ("last fifth", Unit::Bytes),
        ("peak", Unit::Bytes),
        ("growth", Unit::Percent),
    ];
    let mut table = Table::new("growth", "Memory over time", &about, &columns);
    let stage = stage(bench, "zstd:1", TURN_SIZE)?;
    let sessions = stage.open(ACTIVE_COUNT)?;
    let (turns, memory) = stage.drive(sessions, duration)?;
    let mut worst = f64::MIN;
    for (at, name) in ["gateway", "connector"].into_iter().enumerate() {
        let resident: Vec<f64> = memory.iter().map(|memory| memory.resident[at]).collect();
        let fifth = resident.len() / 5;
        let median = |part: &[f64]| part.iter().copied().collect::<Samples>().median();
        let (second, last) =
            (median(&resident[fifth..2 * fifth]), median(&resident[resident.len() - fifth..]));
        let grown = 100.0 * (last / second - 1.0);
        worst = worst.max(grown);
        let peak = resident.iter().copied().collect::<Samples>().max();
        let counts: [Value; 2] = [ACTIVE_COUNT.into(), turns.into()];
        let [count, turns] = counts;
        table.row([name.into(), count, turns, second.into(), last.into(), peak.into(), grown.into()]);
    }
    table.verdict(
        &format!("{ACTIVE_COUNT} active sessions for {} s: growth of resident memory", duration.as_secs()),
        &format!("none (at most {GROWTH_PERCENT_MAX} %)"),
        format!("{worst:+.2} %"),
        worst <= GROWTH_PERCENT_MAX,
    );
    Ok(table)
}

fn stage(bench: &Bench, compression: &str, size: usize) -> Result<Stage> {
    let text = corpora::find("deb_package")?.prefix(size)?;
    let server = StandIn::start(&text)?;
    let release = IDLE_RELEASE_SECONDS.to_string();
    // The budget would hold back the last of so many, and what one session takes is the question.
    let more = ["--idle-release-s", &release, "--max-codec-memory-mib", "8192"];
    let gateway = bench.product.gateway_with("127.0.0.1", server.port(), compression, &more)?;
    let connector = bench.product.connector(&gateway, compression, &more)?;
    Ok(Stage { gateway, connector, _server: server, text })
}

impl Stage {
    fn open(&self, count: usize) -> Result<Vec<Session>> {
        (0..count).map(|_| Session::connect(self.connector.port(), &[])).collect()
    }

    /// Memory once a session of each kind has come and gone.
    fn settled(&self) -> Result<Memory> {
        let mut session = Session::connect(self.connector.port(), &[])?;
        session.query("out", usize::MAX)?;
        session.copy_in("in", &self.text)?;
        drop(session);
        thread::sleep(Duration::from_millis(500));
        self.memory()
    }

    fn memory(&self) -> Result<Memory> {
        let of = |name| -> Result<[f64; 2]> {
            Ok([status_bytes(&self.gateway.daemon, name)?, status_bytes(&self.connector.daemon, name)?])
        };
        Ok(Memory { resident: of("VmRSS:")?, heap: of("RssAnon:")? })
    }

    /// Adds a row and returns its larger resident figure.
    fn row(
        &self,
        table: &mut Table,
        before: Memory,
        count: usize,
        state: &str,
        compression: &str,
    ) -> Result<f64> {
        let now = self.memory()?;
        let each = |now: f64, before: f64| (now - before) / count as f64;
        let resident = [0, 1].map(|at| each(now.resident[at], before.resident[at]));
        let heap = [0, 1].map(|at| each(now.heap[at], before.heap[at]));
        table.row([
            count.into(),
            state.into(),
            compression.into(),
            resident[0].into(),
            heap[0].into(),
            resident[1].into(),
            heap[1].into(),
        ]);
        Ok(resident[0].max(resident[1]))
    }

    /// Keeps the sessions busy; how many turns they had, and memory every half second.
    fn drive(&self, sessions: Vec<Session>, duration: Duration) -> Result<(usize, Vec<Memory>)> {
        let stopping = AtomicBool::new(false);
        let mut parts: Vec<Vec<Session>> = (0..DRIVERS).map(|_| Vec::new()).collect();
        for (at, session) in sessions.into_iter().enumerate() {
            parts[at % DRIVERS].push(session);
        }
        thread::scope(|scope| {
            let drivers: Vec<_> =
                parts.iter_mut().map(|part| scope.spawn(|| drive(part, &self.text, &stopping))).collect();
            let began = Instant::now();
            let mut memory = Vec::new();
            let mut failed = None;
            while began.elapsed() < duration && failed.is_none() && drivers.iter().all(|d| !d.is_finished()) {
                thread::sleep(Duration::from_millis(500));
                match self.memory() {
                    Ok(now) => memory.push(now),
                    Err(error) => failed = Some(error),
                }
            }
            stopping.store(true, Ordering::Relaxed);
            let mut turns = 0;
            for driver in drivers {
                turns += driver.join().map_err(|_| Error::from("a driver panicked"))??;
            }
            match failed {
                Some(error) => Err(error),
                None if memory.len() < 10 => Err("too few readings of memory".into()),
                None => Ok((turns, memory)),
            }
        })
    }
}

fn drive(sessions: &mut [Session], text: &[u8], stopping: &AtomicBool) -> Result<usize> {
    let mut turns = 0;
    loop {
        for session in &mut *sessions {
            if stopping.load(Ordering::Relaxed) {
                return Ok(turns);
            }
            session.query("out", usize::MAX)?;
            session.copy_in("in", text)?;
            turns += 1;
        }
    }
}

fn status_bytes(daemon: &Daemon, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line in status")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? * 1024.0)
}
