//! The server process: started, watched, signalled, ended.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Stop, read_log};
use crate::error::{Doing, Error};
use crate::run;
use crate::wait::{wait_for, wait_until};

/// Recovery of a killed server under load on a small machine is included.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
const LOG_TAIL_LINES: usize = 30;

/// The postmaster of one cluster, if it runs.
#[derive(Debug, Default)]
pub(super) struct Postmaster {
    child: Option<Child>,
    /// After SIGKILL nobody removed the System V segment that guards the data directory; a start does.
    left_segment: bool,
}

impl Postmaster {
    pub(super) fn start(&mut self, mut command: Command, data: &Path, log: &Path) -> Result<(), Error> {
        if self.is_running() {
            return Err(Error::Usage(format!("the server of {} runs already", data.display())));
        }
        let open_log = || OpenOptions::new().create(true).append(true).open(log);
        let out = open_log().doing(|| format!("opening {}", log.display()))?;
        let err = open_log().doing(|| format!("opening {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let mut child = command.spawn().doing(|| "starting postgres".to_owned())?;
        let pid_file = data.join("postmaster.pid");
        let ready = wait_for(START_TIMEOUT, "the server to accept connections", || {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(Err(status));
            }
            accepts(&pid_file, child.id()).then_some(Ok(()))
        });
        match ready {
            Ok(Ok(())) => {
                self.child = Some(child);
                self.left_segment = false;
                Ok(())
            }
            Ok(Err(status)) => Err(Error::Server {
                what: format!("the server ended while starting ({status})"),
                log_tail: tail(log),
            }),
            Err(late) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::Server { what: late.to_string(), log_tail: tail(log) })
            }
        }
    }

    pub(super) fn stop(&mut self, how: Stop) -> Result<(), Error> {
        self.signal(match how {
            Stop::Smart => Signal::TERM,
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        })?;
        self.wait_for_end()
    }

    pub(super) fn kill(&mut self, data: &Path) -> Result<(), Error> {
        self.signal(Signal::KILL)?;
        self.left_segment = true;
        self.wait_for_end()?;
        wait_until(STOP_TIMEOUT, "the killed server's children to end", || working_in(data).is_empty())
    }

    /// Ends it whatever its state, without a word: the cluster is being dropped.
    pub(super) fn end(&mut self, data: &Path) {
        if self.is_running() {
            let _ = self.signal(Signal::QUIT);
            if self.wait_for_end().is_err() {
                let _ = self.kill(data);
            }
        }
        if self.left_segment {
            remove_segment(data);
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = self
            .child
            .as_ref()
            .and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?))
            .ok_or_else(|| Error::Usage("the server does not run".to_owned()))?;
        // The child is ours and not yet waited for: its number cannot have passed to another process.
        kill_process(pid, signal).map_err(Into::into).doing(|| format!("signalling postmaster {pid:?}"))
    }

    pub(super) fn is_running(&mut self) -> bool {
        let running = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !running {
            self.child = None;
        }
        running
    }

    pub(super) fn pid(&mut self) -> Option<u32> {
        if self.is_running() { self.child.as_ref().map(Child::id) } else { None }
    }

    fn wait_for_end(&mut self) -> Result<(), Error> {
        wait_until(STOP_TIMEOUT, "the server to stop", || !self.is_running())
    }
}

/// The eighth line of the pid file says `ready`, or `standby` while a hot standby is not consistent yet.
fn accepts(pid_file: &Path, pid: u32) -> bool {
    let text = std::fs::read_to_string(pid_file).unwrap_or_default();
    let mut lines = text.lines();
    lines.next() == Some(&pid.to_string()) && lines.nth(6).is_some_and(|state| state.trim() == "ready")
}

/// The processes whose working directory is `data`: a server's backends all stay there.
fn working_in(data: &Path) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data))
        .collect()
}

fn remove_segment(data: &Path) {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        let _ = run::output(run::command("ipcrm").args(["-m", id]));
    }
}

fn tail(log: &Path) -> String {
    let text = read_log(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
