//! The command as a process: same terminal, same process group, its signals and its end.
//!
//! The command stays in this process's group, so the terminal's own signals (Ctrl-C, Ctrl-Z, a changed window size)
//! reach it from the kernel and must not be passed on a second time. Only what another process sent to this one
//! alone is passed on. Stopping needs nothing while the whole group stops; when the command is stopped alone, this
//! process stops as well, so that a shell above notices.

use super::error::RunError;
use super::plan::Plan;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PASSED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
/// How long a stop must last to be the command's alone: a stopped group is continued as one.
const STOP_SETTLES: Duration = Duration::from_millis(50);
/// What shells add to a signal's number.
const SIGNAL_BASE: i32 = 128;

/// Signals to this process, from before the command starts until after it ended.
pub(crate) struct Signals {
    child: Arc<Mutex<Option<Pid>>>,
    /// The signal that asked to end before there was a command, or 0.
    early: Arc<AtomicI32>,
    handle: signal_hook::iterator::Handle,
}

impl Signals {
    /// Starts listening. Signals that were ignored when this process began stay so, for the command as well.
    pub(crate) fn listen() -> Result<Self, RunError> {
        let ignored = ignored_signals();
        let wanted = PASSED_ON.iter().filter(|&&signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals =
            SignalsInfo::<WithOrigin>::new(wanted).map_err(|source| RunError::Signals { source })?;
        let handle = signals.handle();
        let child = Arc::new(Mutex::new(None));
        let early = Arc::new(AtomicI32::new(0));
        let (pass_to, early_in_thread) = (child.clone(), early.clone());
        let listener = move || {
            for origin in signals.forever() {
                // The lock keeps the process from being reaped, and its number from being given away.
                let child = pass_to.lock().unwrap_or_else(PoisonError::into_inner);
                match *child {
                    Some(pid) => pass_on(&origin, pid),
                    None if matches!(origin.signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM) => {
                        early_in_thread.store(origin.signal, Ordering::SeqCst);
                    }
                    None => {}
                }
            }
        };
        let spawned = std::thread::Builder::new().name("signals".to_owned()).spawn(listener);
        spawned.map_err(|source| RunError::Signals { source })?;
        Ok(Self { child, early, handle })
    }

    /// Starts the command and waits for its end. A signal that came first ends it before it starts.
    pub(crate) fn run(&self, plan: &Plan) -> Result<i32, RunError> {
        let failed = |source| RunError::Spawn { command: name(plan), source };
        let mut child = {
            let mut known = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            match self.early.load(Ordering::SeqCst) {
                0 => {}
                signal => return Ok(SIGNAL_BASE + signal),
            }
            let child = command(plan).spawn().map_err(failed)?;
            *known = Some(Pid::from_child(&child));
            child
        };
        self.wait(&mut child).map(code).map_err(failed)
    }

    fn wait(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        loop {
            let events = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
            match waitid(WaitId::Pid(pid), events) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(Some(status)) if status.stopped() => stop_with(pid),
                Ok(_) => break,
            }
        }
        // From here on the number may be given to another process.
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = None;
        child.wait()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Becomes the command, for one that needs nothing from this process. Returns only if it cannot.
pub(crate) fn become_command(plan: &Plan) -> RunError {
    RunError::Spawn { command: name(plan), source: command(plan).exec() }
}

fn command(plan: &Plan) -> Command {
    let word = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
    let mut words = plan.argv.iter().map(word);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    for (name, value) in &plan.env {
        match value {
            Some(value) => command.env(word(name), word(value)),
            None => command.env_remove(word(name)),
        };
    }
    command
}

fn pass_on(origin: &Origin, child: Pid) {
    let from_child =
        origin.process.as_ref().is_some_and(|process| process.pid == child.as_raw_nonzero().get());
    // The kernel's signals are the terminal's, and the command has them already.
    if matches!(origin.cause, Cause::Kernel) || from_child {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(origin.signal) {
        // A command that has just ended needs no signal.
        let _ = kill_process(child, signal);
    }
}

/// Stops this process as long as the command is stopped, unless that is over already.
fn stop_with(child: Pid) {
    std::thread::sleep(STOP_SETTLES);
    let events = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let still = waitid(WaitId::Pid(child), events).ok().flatten().is_some_and(|status| status.stopped());
    if !still {
        return;
    }
    let _ = kill_process(rustix::process::getpid(), Signal::STOP);
    // Someone continued this process, and means the command.
    let _ = kill_process(child, Signal::CONT);
}

fn code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| SIGNAL_BASE + signal)).unwrap_or(SIGNAL_BASE)
}

fn name(plan: &Plan) -> String {
    plan.argv.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
}

/// The kernel's mask of ignored signals: bit 0 is signal 1. `nohup` and shells that start background jobs set it.
pub(crate) fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
