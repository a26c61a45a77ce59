//! The server on scratch space, as a child of this process.

use super::super::Failure;
use super::interrupt::Interrupt;
use super::programs::Programs;
use super::scratch::Scratch;
use super::settings::Settings;
use super::startup;
use crate::end_with_parent;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at a child.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// How long a server may take to end at once.
const END_WAIT: Duration = Duration::from_secs(20);
/// How much of the end of a file with messages is read.
const TAIL_BYTES: u64 = 64 << 10;
/// Longest line of the log that is looked at.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A restored cluster. Its server is ended when this is dropped.
pub(super) struct Cluster<'b> {
    pub(super) programs: &'b Programs,
    pub(super) scratch: &'b Scratch,
    pub(super) interrupt: &'b Interrupt,
    pub(super) settings: Settings,
    /// For a start and for a stop.
    pub(super) timeout: Duration,
    running: Option<Child>,
}

/// A program that has ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The end of what it said on both outputs.
    pub(super) said: String,
}

impl<'b> Cluster<'b> {
    pub(super) fn new(
        programs: &'b Programs,
        scratch: &'b Scratch,
        interrupt: &'b Interrupt,
        settings: Settings,
        timeout: Duration,
    ) -> Cluster<'b> {
        Cluster { programs, scratch, interrupt, settings, timeout, running: None }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.scratch.file("server.log")
    }

    /// The end of the server's log.
    fn log_tail(&self) -> String {
        tail(&self.log()).unwrap_or_default()
    }

    /// Starts the server, and waits until it takes connections: WAL is replayed to its end by then.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        let mut command = self.command("postgres")?;
        command.arg("-D").arg(self.scratch.data()).args(self.options());
        let log = self.log();
        let file = OpenOptions::new().create(true).append(true).open(&log).map_err(Failure::at(&log))?;
        let again = file.try_clone().map_err(Failure::at(&log))?;
        let child = command.stdin(Stdio::null()).stdout(again).stderr(file).spawn();
        let pid = self.running.insert(child.map_err(Failure::at(&self.programs.bin))?).id();
        let deadline = Instant::now() + self.timeout;
        while !self.is_ready(pid) {
            self.interrupt.check()?;
            if let Some(status) = self.ended()? {
                return Err(startup::explain(&self.log_tail(), status, self.programs));
            }
            if Instant::now() >= deadline {
                let waited = self.timeout.as_secs();
                let what = format!("the server is not ready after {waited} s; increase --boot-timeout-s");
                return Err(Failure::new(
                    "--boot",
                    format!("{what}. Its log ends with:\n{}", self.last_lines()),
                ));
            }
            thread::sleep(LOOK_PERIOD);
        }
        Ok(())
    }

    /// The eighth line of `postmaster.pid` (`src/include/utils/pidfile.h`).
    fn is_ready(&self, pid: u32) -> bool {
        let text = fs::read_to_string(self.scratch.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines();
        lines.next() == Some(&pid.to_string()) && lines.nth(6).is_some_and(|status| status.trim() == "ready")
    }

    /// The status of a server that has ended by itself.
    fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let Some(child) = &mut self.running else { return Ok(None) };
        let status = child.try_wait().map_err(Failure::at(&self.programs.bin))?;
        if status.is_some() {
            self.running = None;
        }
        Ok(status)
    }

    fn last_lines(&self) -> String {
        startup::last_lines(&self.log_tail())
    }

    /// Stops the server cleanly, with a checkpoint.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.signal(Signal::INT);
        let deadline = Instant::now() + self.timeout;
        while self.running.is_some() {
            self.interrupt.check()?;
            match self.ended()? {
                Some(status) if status.success() => break,
                Some(_) => {
                    let what = format!("it did not stop cleanly. Its log ends with:\n{}", self.last_lines());
                    return Err(Failure::damage("the restored cluster", what));
                }
                None if Instant::now() >= deadline => {
                    return Err(Failure::new(
                        "--boot",
                        "the server does not stop; increase --boot-timeout-s",
                    ));
                }
                None => thread::sleep(LOOK_PERIOD),
            }
        }
        Ok(())
    }

    /// Ends the server at once. Its sessions end with it.
    pub(super) fn quit(&self) {
        self.signal(Signal::QUIT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.running {
            // A server that has just ended needs no signal. It is not reaped before `ended`, so its number is still its own.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// Runs one of the server's programs on the data directory, the server being down, and waits for its end.
    pub(super) fn run(&self, program: &str, args: &[&str], input: &str) -> Result<Ended, Failure> {
        let (said, given) = (self.scratch.file("output"), self.scratch.file("input"));
        fs::write(&given, input).map_err(Failure::at(&given))?;
        let input = File::open(&given).map_err(Failure::at(&given))?;
        let output = File::create(&said).map_err(Failure::at(&said))?;
        let again = output.try_clone().map_err(Failure::at(&said))?;
        let mut command = self.command(program)?;
        let child = command.args(args).stdin(input).stdout(output).stderr(again).spawn();
        let mut child = child.map_err(Failure::at(&self.programs.program(program)))?;
        loop {
            if let Some(status) = child.try_wait().map_err(Failure::at(&said))? {
                return Ok(Ended { status, said: tail(&said)? });
            }
            if let Err(interrupted) = self.interrupt.check() {
                let _ = child.kill();
                let _ = child.wait();
                return Err(interrupted);
            }
            thread::sleep(LOOK_PERIOD);
        }
    }

    /// The settings as options of `postgres`.
    pub(super) fn options(&self) -> Vec<String> {
        let pairs = self.settings.values.iter();
        pairs.flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
    }

    /// In a process group of its own: Ctrl-C is for this process, which ends the server.
    fn command(&self, program: &str) -> Result<Command, Failure> {
        let failed = |error| Failure::new("pgshrink", error);
        let mut command = end_with_parent::command(&self.programs.program(program)).map_err(failed)?;
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").process_group(0);
        Ok(command)
    }

    /// Where the replay of WAL ended, as the log of the first start says: the start of the last record.
    pub(super) fn replayed_to(&self) -> Result<Option<String>, Failure> {
        let log = self.log();
        let mut lines = BufReader::new(File::open(&log).map_err(Failure::at(&log))?);
        let (mut line, mut found) = (Vec::new(), None);
        while (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(Failure::at(&log))? > 0 {
            let text = String::from_utf8_lossy(&line);
            if let Some((_, rest)) = text.split_once("redo done at ") {
                found = rest.split_whitespace().next().map(str::to_owned);
            }
            line.clear();
        }
        Ok(found)
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.quit();
        let deadline = Instant::now() + END_WAIT;
        while let Some(child) = &mut self.running {
            match child.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_PERIOD),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    self.running = None;
                }
                _ => self.running = None,
            }
        }
    }
}

/// The end of a file.
pub(super) fn tail(path: &Path) -> Result<String, Failure> {
    let mut file = File::open(path).map_err(Failure::at(path))?;
    let size = file.metadata().map_err(Failure::at(path))?.len();
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES)))
        .and_then(|_| file.take(TAIL_BYTES).read_to_end(&mut bytes))
        .map_err(Failure::at(path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
