//! This process, and whether others live: from `/proc`, without an allocation.
// System calls with buffers.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgshrink_cfs::slots::{Host, ProcessName};

/// Pause of those who wait for a lock.
const PAUSE_NANOSECONDS: i64 = 100_000;
/// So long a collector in the background works before it rests for as long: it takes half of a processor, and a
/// writer that waits for it waits for less than a transaction takes.
const BURST: Duration = Duration::from_micros(250);
/// The start time's place among the fields behind the command's name, which is field 2.
const START_FIELD: usize = 22 - 3;

/// A process that has joined the region.
#[derive(Debug)]
pub(crate) struct ServerHost {
    name: ProcessName,
    /// The region's memory.
    memory: RawFd,
}

impl ServerHost {
    /// This process. `None` where `/proc` cannot be read.
    pub(crate) fn of_this_process(memory: RawFd) -> Option<ServerHost> {
        // SAFETY: takes nothing and cannot fail.
        let pid = unsafe { libc::getpid() } as u32;
        let name = ProcessName::new(pid, start_ticks(pid).ok().flatten()?).ok()?;
        Some(ServerHost { name, memory })
    }
}

/// Whether this process collects in the background.
static IN_BACKGROUND: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// When it last began to work.
    static BURST_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// From now on this process rests while it collects.
pub(crate) fn collect_in_background() {
    IN_BACKGROUND.store(true, Ordering::Relaxed);
}

/// What to rest after a burst that was begun so long ago; it may have rested since.
fn due_rest(elapsed: Duration) -> Option<Duration> {
    (elapsed >= BURST).then(|| elapsed.min(BURST * 4))
}

impl Host for ServerHost {
    fn me(&self) -> ProcessName {
        self.name
    }

    fn is_running(&self, process: ProcessName) -> bool {
        match start_ticks(process.pid()) {
            Ok(started) => started == Some(process.start_ticks()),
            Err(Unknown) => true,
        }
    }

    fn relax(&self) {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NANOSECONDS };
        // SAFETY: reads one struct, and writes to none. A signal may shorten it.
        unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
    }

    fn after_move(&self) {
        if !IN_BACKGROUND.load(Ordering::Relaxed) {
            return;
        }
        let began = BURST_BEGAN.get();
        match began.map(|began| due_rest(began.elapsed())) {
            Some(None) => {}
            Some(Some(rest)) => {
                std::thread::sleep(rest);
                BURST_BEGAN.set(Some(Instant::now()));
            }
            None => BURST_BEGAN.set(Some(Instant::now())),
        }
    }

    fn give_back(&self, words: Range<usize>) -> bool {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let start = crate::region::BYTES_BEFORE_SLOTS + words.start * 8;
        // SAFETY: takes numbers.
        unsafe { libc::fallocate(self.memory, mode, start as i64, (words.len() * 8) as i64) == 0 }
    }
}

/// It cannot be said.
struct Unknown;

/// When a process started, in clock ticks; `None`: there is none, or it is dead and not yet waited for.
fn start_ticks(pid: u32) -> Result<Option<u64>, Unknown> {
    let mut path = [0u8; 32];
    let mut cursor = std::io::Cursor::new(&mut path[..31]);
    use std::io::Write;
    write!(cursor, "/proc/{pid}/stat").map_err(|_| Unknown)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Unknown)?;
    let mut text = [0u8; 1024];
    // SAFETY: a string that ends with a zero; a buffer of the length that is given.
    let got = unsafe {
        let file = retried(|| libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) as isize);
        if file < 0 {
            return match errno() {
                libc::ENOENT | libc::ESRCH => Ok(None),
                _ => Err(Unknown),
            };
        }
        let got = retried(|| libc::read(file as i32, text.as_mut_ptr().cast(), text.len()));
        let failure = errno();
        libc::close(file as i32);
        if got < 0 && failure == libc::ESRCH {
            return Ok(None);
        }
        got
    };
    let text = text.get(..usize::try_from(got).map_err(|_| Unknown)?).ok_or(Unknown)?;
    parse_start(text).ok_or(Unknown)
}

/// `None`: no text of that kind. `Some(None)`: the process is dead.
fn parse_start(text: &[u8]) -> Option<Option<u64>> {
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let fields = std::str::from_utf8(text.get(after_name..)?).ok()?;
    let mut fields = fields.split(' ');
    let is_dead = matches!(fields.clone().next()?, "Z" | "X" | "x");
    let started = fields.nth(START_FIELD)?.parse().ok()?;
    Some((!is_dead).then_some(started))
}

fn retried(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let done = call();
        if done >= 0 || errno() != libc::EINTR {
            return done;
        }
    }
}

/// The error number of the last call.
pub(crate) fn errno() -> i32 {
    // SAFETY: this thread's own, always there.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_in_the_background_rests_for_as_long_as_it_worked() {
        let micros = Duration::from_micros;
        assert_eq!(due_rest(micros(249)), None);
        assert_eq!(due_rest(micros(250)), Some(micros(250)));
        assert_eq!(due_rest(micros(700)), Some(micros(700)));
        // It has done something else since.
        assert_eq!(due_rest(Duration::from_secs(5)), Some(micros(1000)));
    }

    #[test]
    fn the_start_time_is_found_behind_any_command_name() {
        let text = b"4711 (a) b ((c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21";
        assert_eq!(parse_start(text), Some(Some(987654)));
        let dead = b"4711 (postgres) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20";
        assert_eq!(parse_start(dead), Some(None));
        assert_eq!(parse_start(b"4711 (postgres) R 1 2"), None);
    }

    #[test]
    fn a_process_that_ended_is_not_running() {
        let me = ServerHost::of_this_process(-1).unwrap();
        assert!(me.is_running(me.me()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let name = ProcessName::new(child.id(), start_ticks(child.id()).ok().unwrap().unwrap()).unwrap();
        assert!(me.is_running(name));
        child.kill().unwrap();
        // Not yet waited for: a zombie.
        while me.is_running(name) {
            me.relax();
        }
        child.wait().unwrap();
        assert!(!me.is_running(name));
        assert!(!me.is_running(ProcessName::new(me.me().pid(), me.me().start_ticks() + 1).unwrap()));
    }
}
