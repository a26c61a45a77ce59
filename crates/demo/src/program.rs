//! Running a client program to its end: interruptible, its output hashed as it comes.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::interrupt;

/// Every program of the demo takes seconds.
const RUN_TIME_MAX: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(3);
/// Programs print tables of results or rows: only the beginning is kept.
const KEPT_SIZE_MAX: usize = 64 * 1024;
/// The kernel's clock ticks per second in `/proc/<pid>/stat`: fixed on Linux for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// How a program went that ended well.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// CPU time of the process itself, not of what it started.
    pub(crate) cpu_seconds: f64,
    /// What it printed.
    pub(crate) output: Collected,
}

/// What came out of a pipe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    /// SHA-256 of all of it, in hexadecimal.
    pub(crate) checksum: String,
    /// Its beginning.
    pub(crate) text: String,
}

/// Runs `command`, with `input` on its standard input when given.
pub(crate) fn run(command: &mut Command, input: Option<File>) -> Result<Finished, Failure> {
    interrupt::check()?;
    let name = command.get_program().to_string_lossy().into_owned();
    let begin = Instant::now();
    let mut child = command
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::io(format!("starting {name}"), &error))?;
    let output = collect(child.stdout.take());
    let complaint = collect(child.stderr.take());
    let ended = wait(&mut child, &name, begin);
    let (cpu_seconds, status) = ended?;
    let (output, complaint) = (joined(output), joined(complaint));
    if status.success() {
        return Ok(Finished { cpu_seconds, output });
    }
    let said = [complaint.text.trim_end(), output.text.trim_end()].join("\n");
    Err(Failure::with_advice(format!("{}: {status}", shown(command)), said))
}

/// Waits for the end and reads the CPU time before the kernel forgets it.
fn wait(child: &mut Child, name: &str, begin: Instant) -> Result<(f64, ExitStatus), Failure> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let looked = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let failed = |error: std::io::Error| Failure::io(format!("waiting for {name}"), &error);
    let stopped = loop {
        let ended = match pid {
            Some(pid) => waitid(WaitId::Pid(pid), looked).map_err(|error| failed(error.into()))?.is_some(),
            None => true,
        };
        if ended {
            break None;
        }
        if interrupt::requested() {
            break Some(Failure::Interrupted);
        }
        if begin.elapsed() > RUN_TIME_MAX {
            let what = format!("{name} did not end in {RUN_TIME_MAX:?}");
            break Some(Failure::with_advice(what, "try again on a machine that is less busy"));
        }
        sleep(LOOK);
    };
    if stopped.is_some() {
        let _ = child.kill();
    }
    let cpu_seconds = own_cpu_seconds(child.id()).unwrap_or_default();
    let status = child.wait().map_err(failed)?;
    stopped.map_or(Ok((cpu_seconds, status)), Err)
}

/// User and system time, the fields 14 and 15 of proc(5); a zombie still has them.
fn own_cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Collected> {
    std::thread::spawn(move || {
        let mut hash = Sha256::new();
        let mut kept = Vec::new();
        let mut buffer = vec![0; 256 * 1024];
        let mut pipe = pipe;
        // An error is an end here: the exit status tells whether it was a good one.
        while let Some(length) = pipe.as_mut().and_then(|pipe| pipe.read(&mut buffer).ok()).filter(|n| *n > 0)
        {
            hash.update(&buffer[..length]);
            let room = KEPT_SIZE_MAX - kept.len();
            kept.extend_from_slice(&buffer[..length.min(room)]);
        }
        let checksum = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Collected { checksum, text: String::from_utf8_lossy(&kept).into_owned() }
    })
}

fn joined(thread: JoinHandle<Collected>) -> Collected {
    thread.join().unwrap_or_default()
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
