//! The process around the demo: gives it a directory, ends it when asked to, removes what is left.
//!
//! The work happens in a second process (the worker, the same program), because the testkit's guardian cleans up
//! when its process is gone, and somebody has to wait for that before the prompt returns.
//!
//! 1. When this returns, no file and no process of the demo exists, unless a message says which.
//! 2. The worker gets a signal as often as it likes: it only notes it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::failure::Failure;
use crate::interrupt;

/// Exit codes of the program.
pub(crate) const PROBLEM: u8 = 1;
pub(crate) const COULD_NOT_RUN: u8 = 2;
pub(crate) const INTERRUPTED: u8 = 130;

const WORKER: &str = "PGSHRINK_DEMO_WORKER";
const PLACE: &str = "PGSHRINK_TEST_DIR";
/// Ten times what it takes: something hangs.
const RUN_TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// An asked worker stops its servers; after this it is killed, and the guardian does it.
const END_TIME_MAX: Duration = Duration::from_secs(20);
const CLEANED_TIME_MAX: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// A cluster, two standbys, their WAL and the table as text.
const SPACE_NEEDED: u64 = 2 << 30;
/// Sockets are made below, and their paths end at 107 bytes.
const PLACE_LENGTH_MAX: usize = 40;

/// True in the process that does the work.
pub(crate) fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// Has a death of the supervisor end the worker.
pub(crate) fn follow_supervisor() -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(())
}

/// Runs the worker and cleans up after it.
pub(crate) fn run() -> ExitCode {
    match supervise() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("pgshrink-demo: {failure}");
            ExitCode::from(COULD_NOT_RUN)
        }
    }
}

fn supervise() -> Result<ExitCode, Failure> {
    interrupt::watch().map_err(|error| Failure::io("watching for signals", &error))?;
    let place = new_place()?;
    let own = std::env::current_exe().map_err(|error| Failure::io("finding this program", &error))?;
    let mut worker = Command::new(own)
        .args(std::env::args_os().skip(1))
        .env(WORKER, "1")
        .env(PLACE, place.path())
        .spawn()
        .map_err(|error| Failure::io("starting the worker", &error))?;
    let status = wait(&mut worker)?;
    wait_for_guardian(place.path(), worker.id());
    let path = place.path().to_owned();
    if let Err(error) = place.close() {
        return Err(Failure::io(format!("removing {}", path.display()), &error));
    }
    Ok(ExitCode::from(exit_code(status)))
}

fn wait(worker: &mut Child) -> Result<ExitStatus, Failure> {
    let pid = i32::try_from(worker.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| pid.map(|pid| kill_process(pid, signal));
    let mut asked_at = None;
    let mut kill_at = Instant::now() + RUN_TIME_MAX + END_TIME_MAX;
    let late_at = Instant::now() + RUN_TIME_MAX;
    loop {
        let ended = worker.try_wait().map_err(|error| Failure::io("waiting for the worker", &error))?;
        if let Some(status) = ended {
            return Ok(status);
        }
        let late = asked_at.is_none() && Instant::now() > late_at;
        if late {
            eprintln!("pgshrink-demo: still not done after {RUN_TIME_MAX:?}: stopping");
        }
        if interrupt::take() || late {
            kill_at = *asked_at.get_or_insert(Instant::now()) + END_TIME_MAX;
            signal(Signal::TERM);
        }
        if Instant::now() > kill_at {
            signal(Signal::KILL);
        }
        std::thread::sleep(LOOK);
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    match status.code() {
        Some(code) => u8::try_from(code).unwrap_or(COULD_NOT_RUN),
        None => {
            eprintln!(
                "pgshrink-demo: the worker was ended by signal {}",
                status.signal().unwrap_or_default()
            );
            COULD_NOT_RUN
        }
    }
}

/// The guardian ends with the removal of the worker's directory, named after its process.
fn wait_for_guardian(place: &Path, worker: u32) {
    let name = format!("{worker}-");
    let remains = || {
        let bases = std::fs::read_dir(place).into_iter().flatten().flatten();
        bases
            .flat_map(|base| std::fs::read_dir(base.path()).into_iter().flatten().flatten())
            .any(|entry| entry.file_name().to_string_lossy().starts_with(&name))
    };
    let start = Instant::now();
    while remains() && start.elapsed() < CLEANED_TIME_MAX {
        std::thread::sleep(LOOK);
    }
}

fn new_place() -> Result<TempDir, Failure> {
    let candidates = match std::env::var_os(PLACE) {
        Some(chosen) => vec![PathBuf::from(chosen)],
        None => vec![std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()],
    };
    let mut refused = String::from("no place for the demo's files:");
    for candidate in candidates {
        match try_place(&candidate) {
            Ok(place) => return Ok(place),
            Err(why) => refused.push_str(&format!("\n  {}: {why}", candidate.display())),
        }
    }
    Err(Failure::with_advice(
        refused,
        format!("name a short path with {} GiB free in {PLACE}", SPACE_NEEDED >> 30),
    ))
}

fn try_place(parent: &Path) -> Result<TempDir, String> {
    let parent = parent.canonicalize().map_err(|error| error.to_string())?;
    if parent.as_os_str().len() > PLACE_LENGTH_MAX {
        return Err("too long for a Unix socket below it".to_owned());
    }
    // As root the server runs as another user, who has to get there.
    let closed = parent.ancestors().find(|dir| {
        let mode = std::fs::metadata(dir).map_or(0, |meta| meta.permissions().mode());
        rustix::process::geteuid().is_root() && mode & 0o001 == 0
    });
    if let Some(closed) = closed {
        return Err(format!("the server's user cannot pass {}", closed.display()));
    }
    let space = rustix::fs::statvfs(&parent).map_err(|error| error.to_string())?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < SPACE_NEEDED {
        return Err(format!("only {} MiB free", free >> 20));
    }
    let place = tempfile::Builder::new()
        .prefix("pgshrink-demo-")
        .permissions(Permissions::from_mode(0o711))
        .tempdir_in(&parent)
        .map_err(|error| error.to_string())?;
    Ok(place)
}
