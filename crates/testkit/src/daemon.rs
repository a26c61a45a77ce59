//! Programs that run beside a test: started, watched, signalled, gone when dropped.
//!
//! What the program prints, on both outputs, is one log that the test can wait on. Nothing here knows what the
//! program is.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

use crate::error::{Doing, Error};
use crate::scratch::TempDir;
use crate::wait::{wait_for, wait_until};

/// The kernel's clock ticks per second in `/proc/<pid>/stat`: fixed on Linux for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running program of the test.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    child: Mutex<Child>,
    dir: TempDir,
}

impl Daemon {
    /// Starts `command` with both its outputs in the log. Its standard input is as `command` says.
    pub fn spawn(command: &mut Command) -> Result<Daemon, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let dir = TempDir::new()?;
        let log = dir.path().join("log");
        let out = File::options().create(true).append(true).open(&log);
        let out = out.doing(|| format!("opening {}", log.display()))?;
        let err = out.try_clone().doing(|| "sharing the log".to_owned())?;
        let child = command.stdout(out).stderr(err).spawn().doing(|| format!("starting {name}"))?;
        let pid = child.id();
        let daemon = Daemon { name, child: Mutex::new(child), dir };
        // For the guardian: a process is known by its number and its start together.
        if let Some(start) = stat_field(pid, START_TIME) {
            let record = daemon.dir.path().join("daemon");
            std::fs::write(&record, format!("{pid} {start}\n"))
                .doing(|| format!("writing {}", record.display()))?;
        }
        Ok(daemon)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Everything it has printed so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The file that collects what it prints.
    pub fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Waits until it has printed `needle`; an error, with its log, when it ends before or time runs out.
    pub fn wait_for_log(&self, timeout: Duration, needle: &str) -> Result<(), Error> {
        let waited = wait_for(timeout, needle, || {
            // Looked at in this order: what it printed before it ended counts.
            let running = self.is_running();
            if self.log().contains(needle) { Some(true) } else { (!running).then_some(false) }
        });
        let what = match waited {
            Ok(true) => return Ok(()),
            Ok(false) => format!("{} ended before it printed `{needle}`", self.name),
            Err(late) => late.to_string(),
        };
        Err(Error::Server { what, log_tail: self.log() })
    }

    /// True until it ends.
    pub fn is_running(&self) -> bool {
        matches!(self.child().try_wait(), Ok(None))
    }

    /// Sends a signal; nothing happens when it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let mut child = self.child();
        if !matches!(child.try_wait(), Ok(None)) {
            return Ok(());
        }
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| kill_process(pid, signal).map_err(Into::into))
            .doing(|| format!("signalling {}", self.name))
    }

    /// Waits for its end.
    pub fn wait(&self, timeout: Duration) -> Result<ExitStatus, Error> {
        wait_until(timeout, &format!("{} to end", self.name), || !self.is_running())?;
        self.child().wait().doing(|| format!("waiting for {}", self.name))
    }

    /// CPU seconds it has used so far, user and system; `None` once it has ended.
    pub fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds(self.pid(), &[USER_TIME, SYSTEM_TIME])
    }

    /// Bytes of memory it has resident now; `None` once it has ended.
    pub fn resident_size(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// CPU seconds of a process and its children so far, those that have ended included; `None` once it has ended.
///
/// A child that ends during the call may be counted twice or not at all: ask when nothing begins or ends.
pub(crate) fn cpu_seconds_of_family(pid: u32) -> Option<f64> {
    let mut seconds = 0.0;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let child = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(child) = child else { continue };
        if stat_field(child, PARENT).is_some_and(|parent| parent == pid.to_string()) {
            seconds += cpu_seconds(child, &[USER_TIME, SYSTEM_TIME]).unwrap_or_default();
        }
    }
    let own = [USER_TIME, SYSTEM_TIME, ENDED_CHILDREN_USER_TIME, ENDED_CHILDREN_SYSTEM_TIME];
    Some(seconds + cpu_seconds(pid, &own)?)
}

fn cpu_seconds(pid: u32, fields: &[usize]) -> Option<f64> {
    let mut ticks = 0.0;
    for field in fields {
        ticks += stat_field(pid, *field)?.parse::<f64>().ok()?;
    }
    Some(ticks / TICKS_PER_SECOND)
}

// Fields of /proc/<pid>/stat as proc(5) numbers them.
const PARENT: usize = 4;
const USER_TIME: usize = 14;
const SYSTEM_TIME: usize = 15;
const ENDED_CHILDREN_USER_TIME: usize = 16;
const ENDED_CHILDREN_SYSTEM_TIME: usize = 17;
const START_TIME: usize = 22;

/// A field after the program's name, which is in parentheses and may hold anything.
fn stat_field(pid: u32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(field - 3).map(str::to_owned)
}
