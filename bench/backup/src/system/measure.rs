//! One run of a program, and what it took.
//!
//! 1. Processor time is read when a process has ended and nobody has waited for it: its own and that of the children that it
//!    has waited for. The server's is that of all its processes, read when no session is left.
//! 2. Memory is the most that any single process had resident (`VmHWM`), looked at every [`LOOK`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgshrink_bench_report::Result;
use pgshrink_testkit::{Cluster, TempDir, wait_until};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

const LOOK: Duration = Duration::from_millis(20);
const SESSIONS_END_TIME_MAX: Duration = Duration::from_secs(20);
/// The kernel's clock ticks per second in `/proc/<pid>/stat`: fixed on Linux for user space.
const TICKS_PER_SECOND: f64 = 100.0;
/// Of `/proc/<pid>/stat` as proc(5) numbers them: user and system time, and those of children.
const CPU_FIELDS: std::ops::RangeInclusive<usize> = 14..=17;

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Wall time.
    pub seconds: f64,
    /// Processor seconds of the program and its children.
    pub client_cpu: f64,
    /// Processor seconds of the server.
    pub server_cpu: f64,
    /// The most memory of a process of the program.
    pub peak_bytes: u64,
    /// Bytes of what it has written; who runs it fills this in.
    pub stored_bytes: u64,
}

/// Runs a program to its end, which must be a good one.
pub fn measured(cluster: &Cluster, command: &mut Command) -> Result<Outcome> {
    let folder = TempDir::new()?;
    let log = folder.path().join("log");
    let said = File::create(&log)?;
    command.stdout(said.try_clone()?).stderr(said);
    let server_before = server_cpu(cluster)?;
    let began = Instant::now();
    let mut child = command.spawn()?;
    let (seconds, peak_bytes) = watched(&child, began)?;
    let client_cpu = cpu_seconds(child.id())?;
    let status = child.wait()?;
    if !status.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        return Err(format!("{command:?} ended with {status}: {said}").into());
    }
    let server_cpu = server_cpu(cluster)? - server_before;
    Ok(Outcome { seconds, client_cpu, server_cpu, peak_bytes, stored_bytes: 0 })
}

/// Waits until it has ended, and leaves it for others to wait for: seconds since `began`, and its memory.
fn watched(child: &Child, began: Instant) -> Result<(f64, u64)> {
    let pid = Pid::from_raw(i32::try_from(child.id())?).ok_or("a child has no process id")?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peaks = BTreeMap::new();
            while !ended.load(Ordering::Relaxed) {
                note_memory(child.id(), &mut peaks);
                std::thread::park_timeout(LOOK);
            }
            peaks.into_values().max().unwrap_or_default()
        });
        let waited = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let seconds = began.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        let peak = watcher.join().map_err(|_| "the thread that looks at memory ended")?;
        waited?;
        Ok((seconds, peak))
    })
}

/// Notes what this process and its children have had so far.
fn note_memory(pid: u32, peaks: &mut BTreeMap<u32, u64>) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"));
    if let Some(kib) = line.and_then(|kib| kib.trim().parse::<u64>().ok()) {
        peaks.insert(pid, kib * 1024);
    }
    children(pid).into_iter().for_each(|child| note_memory(child, peaks));
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the program's name, which is in parentheses and may hold anything, comes field 3.
    let (_, rest) = stat.rsplit_once(')').ok_or("/proc/<pid>/stat has no name")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let mut ticks = 0.0;
    for field in CPU_FIELDS {
        ticks += fields.get(field - 3).ok_or("/proc/<pid>/stat is short")?.parse::<f64>()?;
    }
    Ok(ticks / TICKS_PER_SECOND)
}

/// Of all processes of the server so far, as soon as nobody is connected.
fn server_cpu(cluster: &Cluster) -> Result<f64> {
    let postmaster = cluster.pid().ok_or("the server has no process")?;
    wait_until(SESSIONS_END_TIME_MAX, "sessions to end", || {
        !children(postmaster).into_iter().any(is_session)
    })?;
    Ok(cluster.cpu_seconds().ok_or("the server has ended")?)
}

fn is_session(pid: u32) -> bool {
    let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let title = String::from_utf8_lossy(&title);
    // Sessions have the user's name there; other processes of the server have what they do.
    title.starts_with("postgres: postgres ") || title.starts_with("postgres: walsender ")
}
