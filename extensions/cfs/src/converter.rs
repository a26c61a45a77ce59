//! Converters: workers that bring files, whose conversion a dispatcher has begun, to their new form.
//!
//! Each has its share of all files, and copies pages of one at a time: that bounds the space that is needed. Files that
//! wait for a process to close its descriptors do not keep others from going on.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use pgrx::pg_sys::{self, Datum};
use pgrx::{PgLogLevel, PgSqlErrorCode as Code, pg_guard};
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs_server::Problem;
use pgshrink_cfs_server::convert::{self, Converter, Step, Waits};

use crate::worker::{Share, begin_worker, report, rest};
use crate::{board, report as message, settings};

/// Between two looks for files to convert, and at what a file waits for.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
const WAIT_PERIOD: Duration = Duration::from_millis(100);
/// Pages of one step: a few milliseconds without a look at signals.
const PAGES_MAX: u32 = 128;
/// At a low rate a step is what is due in this time.
const STEP_TIME: Duration = Duration::from_millis(100);
/// A file that failed is left alone for so long.
const FAILED_PERIOD: Duration = Duration::from_secs(30);

/// What a round over the files has done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Pages were moved, or a file is done.
    Moved,
    /// All wait.
    Waits,
    /// The worker is to end.
    End,
}

struct Worker {
    converter: Converter,
    share: Share,
    begun: Instant,
    /// The file whose pages it copies.
    current: Option<SegmentKey>,
    failed: Vec<(SegmentKey, Instant)>,
    /// When it last asked for a dispatcher.
    woken: Option<Instant>,
}

/// A converter: every n-th file is its own.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cfs_converter_main(argument: Datum) {
    begin_worker();
    let count = u64::from(settings::converters().unsigned_abs()).max(1);
    let share = Share { number: argument.value() as u64, count };
    let Ok(converter) = Converter::new() else { return };
    let begun = Instant::now();
    let mut worker = Worker { converter, share, begun, current: None, failed: Vec::new(), woken: None };
    loop {
        let pause = match settings::converts() {
            false => {
                worker.converter.watch();
                LOOK_PERIOD
            }
            true => match worker.round() {
                Round::Moved => continue,
                Round::Waits if worker.current.is_some() => WAIT_PERIOD,
                Round::Waits => LOOK_PERIOD,
                Round::End => return,
            },
        };
        report("");
        if !rest(pause) {
            return;
        }
    }
}

impl Worker {
    /// Takes each file a step further, or the one whose pages it copies.
    fn round(&mut self) -> Round {
        let mut due: Vec<_> = self.converter.due().into_iter().filter(|key| self.share.has(key)).collect();
        self.failed.retain(|(_, at)| at.elapsed() < FAILED_PERIOD);
        due.retain(|key| !self.failed.iter().any(|(failed, _)| failed == key));
        match self.current {
            Some(current) if due.contains(&current) => due = vec![current],
            _ => self.current = None,
        }
        let mut has_moved = false;
        for key in due {
            match self.step(&key) {
                Round::End => return Round::End,
                Round::Moved => has_moved = true,
                Round::Waits => {}
            }
            // Copied from: the others come after it.
            if self.current.is_some() || !settings::converts() {
                break;
            }
        }
        if self.woken.is_none_or(|woken| woken.elapsed() >= LOOK_PERIOD) {
            let due = convert::databases_due();
            if !due.is_empty() {
                self.woken = Some(Instant::now());
                due.into_iter().for_each(board::put);
            }
        }
        if convert::wants_barrier() {
            // Server processes close files that they have not in use. Nobody waits for them.
            // SAFETY: takes a number. The words of other processes that it sets are the server's.
            unsafe {
                pg_sys::EmitProcSignalBarrier(pg_sys::ProcSignalBarrierType::PROCSIGNAL_BARRIER_SMGRRELEASE)
            };
        }
        if has_moved { Round::Moved } else { Round::Waits }
    }

    fn step(&mut self, key: &SegmentKey) -> Round {
        let rate = settings::convert_rate();
        let started = Instant::now();
        let step = self.converter.step(key, pages_of(rate), self.begun.elapsed());
        let pause = match step {
            Ok(Step::Waits(waits)) => {
                // What waits for space has some; others may go on beside what waits for a process.
                if waits != Waits::FreeSpace {
                    self.current = None;
                }
                return if rest(Duration::ZERO) { Round::Waits } else { Round::End };
            }
            Ok(Step::Copied { pages, .. }) => {
                if self.current.replace(*key) != Some(*key) {
                    report(&format!("converting {}", convert::path_of(key)));
                }
                time_of(pages, rate).saturating_sub(started.elapsed())
            }
            Ok(Step::Done | Step::Gone) => {
                self.current = None;
                Duration::ZERO
            }
            Err(problem) => {
                note(key, &problem);
                self.failed.push((*key, Instant::now()));
                self.current = None;
                Duration::ZERO
            }
        };
        if rest(pause) { Round::Moved } else { Round::End }
    }
}

/// Pages of a step at a rate in bytes per second.
fn pages_of(rate: u64) -> u32 {
    if rate == 0 {
        return PAGES_MAX;
    }
    let bytes = rate.saturating_mul(STEP_TIME.as_millis() as u64) / 1000;
    (bytes / PAGE_SIZE as u64).clamp(1, u64::from(PAGES_MAX)) as u32
}

/// How long so many pages take at a rate.
fn time_of(pages: u32, rate: u64) -> Duration {
    let bytes = u64::from(pages) * PAGE_SIZE as u64;
    bytes.saturating_mul(1_000_000).checked_div(rate).map_or(Duration::ZERO, Duration::from_micros)
}

fn note(key: &SegmentKey, problem: &Problem) {
    let text = format!("cfs cannot convert \"{}\": {problem}", convert::path_of(key));
    let hint = "The file stays readable. The conversion will be retried.";
    message::log(PgLogLevel::WARNING, Code::ERRCODE_IO_ERROR, text, hint);
}
