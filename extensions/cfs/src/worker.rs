//! Background workers: the launcher, which makes files and memory follow the labels of tablespaces and keeps their
//! reserves filled, and the collectors of garbage.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags};
use pgrx::datum::IntoDatum;
use pgrx::pg_sys::{self, Datum};
use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_guard};
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs::{Next, Pace};
use pgshrink_cfs_server::{owner, server, work};

use crate::report::warning;
use crate::{mend, settings};

/// Between two looks of the launcher.
const LAUNCHER_PERIOD: Duration = Duration::from_secs(5);
/// Pieces of one file at most before a collector looks at the next one.
const PIECES: u32 = 64;
/// Unless it is short of slots, a server keeps this share of them open, in percent.
const OPEN_PERCENT: u32 = 90;

/// Registers the workers; only while the server starts.
pub fn register() {
    let worker = |name: &str, function: &str| {
        BackgroundWorkerBuilder::new(name)
            .set_type(name)
            .set_function(function)
            .set_library("cfs")
            .set_restart_time(Some(Duration::from_secs(5)))
            .enable_spi_access()
            // On a standby as well; after the line above, which sets this too.
            .set_start_time(BgWorkerStartTime::ConsistentState)
    };
    worker("cfs launcher", "cfs_launcher_main").load();
    for number in 0..settings::workers() {
        worker("cfs garbage collector", "cfs_collector_main").set_argument(number.into_datum()).load();
    }
}

/// What a worker does between two looks: false at its end.
fn rest(time: Duration) -> bool {
    let goes_on = BackgroundWorker::wait_latch(Some(time.max(Duration::from_millis(1))));
    if BackgroundWorker::sighup_received() {
        // SAFETY: between statements.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    }
    goes_on
}

/// The launcher: labels to files and memory.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cfs_launcher_main(_argument: Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    BackgroundWorker::connect_worker_to_spi(None, None);
    let mut in_use = HashSet::new();
    loop {
        owner::release_removed();
        for (tablespace, setting) in mend::mend() {
            own(tablespace, &mut in_use);
            if setting.compression.is_some() {
                // A tablespace whose directory is not there yet has nothing to keep space for.
                let _ = server::fill_reserve(tablespace);
            }
        }
        if let Some(usage) = server::usage() {
            let keep = (u64::from(usage.segments_max) * u64::from(OPEN_PERCENT) / 100) as u32;
            if usage.segments > keep {
                let _ = work::close_idle(keep);
            }
        }
        if !rest(LAUNCHER_PERIOD) {
            return;
        }
    }
}

/// Holds the tablespace's directory: CREATE TABLESPACE and redo make it anew. What is wrong is said once.
fn own(tablespace: u32, in_use: &mut HashSet<u32>) {
    match owner::own(tablespace) {
        Ok(()) => drop(in_use.remove(&tablespace)),
        Err(problem) => {
            if in_use.insert(tablespace) {
                let hint = "Stop one of the two servers: they would destroy each other's data.";
                warning(Code::ERRCODE_LOCK_FILE_EXISTS, problem.to_string(), hint);
            }
        }
    }
}

/// A collector: every n-th segment is its own.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cfs_collector_main(argument: Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    // For pg_stat_activity.
    BackgroundWorker::connect_worker_to_spi(None, None);
    let number = argument.value() as u64;
    let begun = Instant::now();
    let mut pace = Pace::new(settings::rules());
    loop {
        let mut rested = settings::rules().period;
        if settings::collects() {
            let count = u64::from(settings::workers().unsigned_abs()).max(1);
            let own = |key: &SegmentKey| hash(key) % count == number;
            for key in work::written_segments().into_iter().filter(own) {
                pace.set_rules(settings::rules());
                if !collect(&key, &mut pace, begun) {
                    return;
                }
                rested = rested.min(settings::rules().period);
            }
        }
        report("");
        if !rest(rested) {
            return;
        }
    }
}

fn hash(key: &SegmentKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Collects a segment's garbage in pieces; false if the worker has to end.
fn collect(key: &SegmentKey, pace: &mut Pace, begun: Instant) -> bool {
    for piece in 0..PIECES {
        let started = begun.elapsed();
        let found = match work::collect(key, pace.rules().budget) {
            Ok(Some(found)) => found,
            // Dropped, or to be reported by who needs it.
            Ok(None) => return true,
            Err(problem) => {
                ereport!(
                    PgLogLevel::DEBUG1,
                    Code::ERRCODE_IO_ERROR,
                    format!("garbage of segment {key} was not collected: {problem}")
                );
                return true;
            }
        };
        let is_idle = found.moved_records == 0 && found.punched_bytes == 0;
        let Next { due, commit } = pace.after(started, begun.elapsed(), &found);
        if commit {
            // What fails is found by the next checkpoint.
            let _ = work::commit(key);
        }
        if is_idle {
            return true;
        }
        if piece == 0 {
            report(&format!("collecting garbage of segment {key}"));
        }
        if !rest(due.saturating_sub(begun.elapsed())) {
            return false;
        }
    }
    true
}

/// Shows in pg_stat_activity what the worker is doing.
fn report(text: &str) {
    let text = std::ffi::CString::new(text).unwrap_or_default();
    let state = match text.is_empty() {
        true => pg_sys::BackendState::STATE_IDLE,
        false => pg_sys::BackendState::STATE_RUNNING,
    };
    // SAFETY: a string that ends with a zero, which is copied.
    unsafe { pg_sys::pgstat_report_activity(state, text.as_ptr()) };
}
