//! Background workers: the launcher, which makes files and memory follow the labels of tablespaces and keeps their
//! reserves filled, and the collectors of garbage. What converts files is in [`crate::converter`] and [`crate::dispatcher`].
#![allow(unsafe_code)]

use std::collections::{HashSet, VecDeque};
use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, DynamicBackgroundWorker, SignalWakeFlags,
};
use pgrx::datum::IntoDatum;
use pgrx::pg_sys::{self, Datum};
use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_guard};
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs::{Next, Pace, Rules};
use pgshrink_cfs_server::collecting::{Collector, Rest, Resting, Turn, path_of, segments_on_disk};
use pgshrink_cfs_server::training::Trainer;
use pgshrink_cfs_server::{Problem, owner, server, work};

use crate::collecting::collect_whole;
use crate::dispatching::Dispatching;
use crate::report::warning;
use crate::{board, mend, settings};

/// Between two looks of the launcher.
const LAUNCHER_PERIOD: Duration = Duration::from_secs(5);
/// Pieces of one file at most before a collector looks at the next one.
const PIECES: u32 = 64;
/// Garbage in percent of live bytes that a file may have to which nobody writes.
const RESTING_PERCENT: u32 = 1;
/// So long the kernel has been writing before a commit waits for the rest.
const WRITEBACK_TIME: Duration = Duration::from_millis(50);
/// Between two looks whether redo has asked.
const STANDBY_PERIOD: Duration = Duration::from_millis(100);
/// Unless it is short of slots, a server keeps this share of them open, in percent.
const OPEN_PERCENT: u32 = 90;
/// Between two walks over files that nobody has open.
const WALK_PERIOD: Duration = Duration::from_secs(3600);

const COLLECTOR: &str = "cfs garbage collector";

/// A worker of the library's.
pub fn builder(name: &str, function: &str) -> BackgroundWorkerBuilder {
    BackgroundWorkerBuilder::new(name)
        .set_type(name)
        .set_function(function)
        .set_library("cfs")
        .set_restart_time(Some(Duration::from_secs(5)))
        .enable_spi_access()
        // On a standby as well; after the line above, which sets this too.
        .set_start_time(BgWorkerStartTime::ConsistentState)
}

/// Registers the workers; only while the server starts.
pub fn register() {
    builder("cfs launcher", "cfs_launcher_main").load();
    for number in 0..settings::workers() {
        builder(COLLECTOR, "cfs_collector_main").set_argument(number.into_datum()).load();
    }
    for number in 0..settings::converters() {
        builder("cfs converter", "cfs_converter_main").set_argument(number.into_datum()).load();
    }
}

/// Starts a worker that collects its share of all files, one of `count`, and ends.
pub fn start_once(number: i32, count: i32) -> Option<DynamicBackgroundWorker> {
    let share = i64::from(count) << 32 | i64::from(number);
    // SAFETY: reads a variable of the process.
    let me = unsafe { pg_sys::MyProcPid };
    let worker = builder(COLLECTOR, "cfs_collector_once_main").set_restart_time(None).set_notify_pid(me);
    worker.set_argument(share.into_datum()).load_dynamic().ok()
}

/// Whether a collector other than this process has a file in hand.
pub fn is_any_at_work() -> bool {
    server::progress().iter().any(|found| found.segment.is_some() && found.pid != std::process::id())
}

/// What `pg_stat_activity` shows while a worker waits.
fn wait_event() -> u32 {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    {
        static EVENT: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        // SAFETY: a string that ends with a zero, in a process that has the server's shared memory.
        *EVENT.get_or_init(|| unsafe { pg_sys::WaitEventExtensionNew(c"CfsCollectorDelay".as_ptr()) })
    }
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    pg_sys::PG_WAIT_EXTENSION
}

/// What a worker does between two looks: false at its end.
pub fn rest(time: Duration) -> bool {
    let flags = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    let time = time.max(Duration::from_millis(1)).as_millis().min(i32::MAX as u128) as i64;
    // SAFETY: the process's own latch.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, flags as i32, time, wait_event());
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pgrx::check_for_interrupts!();
    if BackgroundWorker::sighup_received() {
        // SAFETY: between statements.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    }
    !is_ending()
}

/// Whether the process was told to end. Once it was, this stays so: pgrx forgets it when it has said so.
pub fn is_ending() -> bool {
    static IS_ENDING: AtomicBool = AtomicBool::new(false);
    if BackgroundWorker::sigterm_received() {
        IS_ENDING.store(true, Ordering::Relaxed);
    }
    IS_ENDING.load(Ordering::Relaxed)
}

/// The launcher: labels to files and memory.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cfs_launcher_main(_argument: Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    BackgroundWorker::connect_worker_to_spi(None, None);
    let (mut in_use, mut filled) = (HashSet::new(), HashSet::new());
    let mut dispatching = Dispatching::default();
    board::listen();
    loop {
        owner::release_removed();
        let asked = server::asked();
        let labelled = mend::mend();
        server::answer(asked);
        for (&tablespace, setting) in &labelled {
            own(tablespace, &mut in_use);
            if setting.compression.is_some() {
                // A tablespace whose directory is not there yet has nothing to keep space for.
                let _ = server::fill_reserve(tablespace);
            }
        }
        server::follow_directories(&mut filled);
        if let Some(usage) = server::usage() {
            let keep = (u64::from(usage.segments_max) * u64::from(OPEN_PERCENT) / 100) as u32;
            if usage.segments > keep {
                let _ = work::close_idle(keep);
            }
        }
        dispatching.follow(labelled);
        if !rest_until_asked(asked, &mut dispatching) {
            return;
        }
    }
}

/// Rests, on a standby until redo asks for settings, and starts dispatchers meanwhile; false at the worker's end.
fn rest_until_asked(asked: u64, dispatching: &mut Dispatching) -> bool {
    let begun = Instant::now();
    loop {
        dispatching.look();
        // SAFETY: reads what all processes share.
        let is_standby = unsafe { pg_sys::RecoveryInProgress() };
        let left = LAUNCHER_PERIOD.saturating_sub(begun.elapsed()).min(dispatching.rest());
        if !rest(if is_standby { left.min(STANDBY_PERIOD) } else { left }) {
            return false;
        }
        if server::asked() != asked || begun.elapsed() >= LAUNCHER_PERIOD {
            return true;
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

/// A worker's share of all segments.
#[derive(Clone, Copy)]
pub struct Share {
    /// Which.
    pub number: u64,
    /// Of how many.
    pub count: u64,
}

impl Share {
    /// Whether a segment is in it.
    pub fn has(self, key: &SegmentKey) -> bool {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish() % self.count == self.number
    }
}

/// Files that nobody has open may have garbage from before the server's start: one is looked at in each period.
#[derive(Default)]
struct Walk {
    left: VecDeque<SegmentKey>,
    listed: Option<Instant>,
}

impl Walk {
    fn next(&mut self, share: Share) -> Option<SegmentKey> {
        if self.left.is_empty() && self.listed.is_none_or(|listed| listed.elapsed() > WALK_PERIOD) {
            self.left = segments_on_disk().into_iter().filter(|key| share.has(key)).collect();
            self.listed = Some(Instant::now());
        }
        self.left.pop_front()
    }
}

/// A collector: every n-th segment is its own.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cfs_collector_main(argument: Datum) {
    let Some(collector) = begin() else { return };
    collector.in_background();
    let count = u64::from(settings::workers().unsigned_abs()).max(1);
    let share = Share { number: argument.value() as u64, count };
    let begun = Instant::now();
    let mut pace = Pace::new(settings::rules());
    let mut walk = Walk::default();
    let (mut trainer, mut resting) = (Trainer::default(), Resting::default());
    loop {
        if is_on() {
            let mut due: Vec<_> = work::written_segments().into_iter().filter(|key| share.has(key)).collect();
            due.extend(walk.next(share));
            for key in due {
                if !is_on() {
                    break;
                }
                if !collect(&collector, &key, &mut pace, &mut resting, begun)
                    || !train(&collector, &key, &mut trainer, &mut resting)
                {
                    return;
                }
            }
        }
        report("");
        if !rest(settings::rules().period) {
            return;
        }
    }
}

/// A collector that `cfs_start_gc` has started: all files of its share, once.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cfs_collector_once_main(argument: Datum) {
    let Some(collector) = begin() else { return };
    let share = Share { number: argument.value() as u64 & 0xffff_ffff, count: argument.value() as u64 >> 32 };
    // It may have been started although collection is off, but ends with it.
    let was_off = server::collection_is_off();
    let is_over = || is_ending() || !was_off && server::collection_is_off();
    for key in segments_on_disk().into_iter().filter(|key| share.has(key)) {
        report(&format!("collecting garbage of {}", path_of(&key)));
        let mut turn = collector.turn(key, 0);
        let done = collect_whole(&mut turn, || {
            pgrx::check_for_interrupts!();
            !is_over()
        });
        drop(turn);
        done.map_or_else(|problem| note(&key, &problem), drop);
        if is_over() {
            return;
        }
    }
}

/// Begins a worker that has no database.
pub fn begin_worker() {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    // For pg_stat_activity.
    BackgroundWorker::connect_worker_to_spi(None, None);
}

fn begin() -> Option<Collector> {
    begin_worker();
    Collector::new().ok()
}

/// Whether collectors are to collect.
fn is_on() -> bool {
    settings::collects() && !server::collection_is_off()
}

/// Collects a segment's garbage in pieces; false if the worker has to end.
fn collect(
    collector: &Collector,
    key: &SegmentKey,
    pace: &mut Pace,
    resting: &mut Resting,
    begun: Instant,
) -> bool {
    let written = work::written_bytes(key).ok().flatten();
    let rests = match written.map(|written| resting.look(key, written, Instant::now())) {
        Some(Rest::Settled) => return true,
        rest => rest == Some(Rest::Since),
    };
    pace.set_rules(rules(rests));
    let mut turn = collector.turn(*key, pace.rules().rate);
    if rests && settings::has_threshold() {
        turn.rests();
    }
    for piece in 0..PIECES {
        let started = begun.elapsed();
        let found = match turn.piece(pace.rules().budget) {
            Ok(Some(found)) => found,
            // Dropped.
            Ok(None) => return true,
            Err(problem) => {
                note(key, &problem);
                return true;
            }
        };
        let is_idle = found.moved_records == 0 && found.punched_bytes == 0;
        // Nothing is live: another process is collecting the file.
        let is_packed = rests
            && found.live_bytes > 0
            && (is_idle || resting.moved(key, found.moved_bytes, found.live_bytes));
        let Next { due, commit } = pace.after(started, begun.elapsed(), &found);
        let is_commit_due = commit || is_packed;
        if turn.begin_writeback() && is_commit_due && !turn.rest(|| rest(WRITEBACK_TIME)) {
            return false;
        }
        if is_commit_due {
            // What fails is found by the next checkpoint.
            let _ = commit_shown(&mut turn);
        }
        if is_packed {
            // What was moved last is durable, and its former space free.
            turn.give_back().unwrap_or_else(|problem| note(key, &problem));
            resting.settle(key);
        }
        if is_idle || is_packed || !is_on() {
            return true;
        }
        if piece == 0 {
            report(&format!("collecting garbage of {}", path_of(key)));
        }
        if !turn.rest(|| rest(due.saturating_sub(begun.elapsed()))) {
            return false;
        }
        pace.set_rules(rules(rests));
    }
    true
}

/// A file that nobody writes to is collected to the last, once; unless nothing is to be collected.
fn rules(rests: bool) -> Rules {
    let mut rules = settings::rules();
    if rests && settings::has_threshold() {
        rules.budget.garbage_percent = rules.budget.garbage_percent.min(RESTING_PERCENT);
    }
    rules
}

/// Looks after the dictionary of a segment, in pieces; false if the worker has to end.
fn train(collector: &Collector, key: &SegmentKey, trainer: &mut Trainer, resting: &mut Resting) -> bool {
    let mut turn = collector.turn(*key, 0);
    if resting.is_at_rest(key, Instant::now()) {
        turn.rests();
    }
    for _ in 0..PIECES {
        let started = Instant::now();
        let done = match turn.train(trainer, settings::trains()) {
            Ok(Some(done)) => done,
            Ok(None) => return true,
            Err(problem) => {
                note(key, &problem);
                return true;
            }
        };
        resting.disturb(key);
        if done.is_new {
            report(&format!("storing pages of {} with its dictionary", path_of(key)));
        }
        if !done.goes_on || !is_on() {
            return true;
        }
        // Half of a processor at most.
        if !turn.rest(|| rest(started.elapsed().max(settings::rules().delay))) {
            return false;
        }
    }
    true
}

/// Commits; the wait for the disk is shown as that of a data file's fsync.
fn commit_shown(turn: &mut Turn<'_>) -> Result<(), Problem> {
    // SAFETY: the process's own word, which the server reads as one.
    unsafe { pg_sys::my_wait_event_info.write_volatile(pg_sys::WaitEventIO::WAIT_EVENT_DATA_FILE_SYNC) };
    let done = turn.commit();
    // SAFETY: as above.
    unsafe { pg_sys::my_wait_event_info.write_volatile(0) };
    done
}

fn note(key: &SegmentKey, problem: &Problem) {
    // Once more in `cfs_stat_gc`.
    ereport!(PgLogLevel::DEBUG1, Code::ERRCODE_IO_ERROR, format!("work on segment {key}: {problem}"));
}

/// Shows in pg_stat_activity what the worker is doing.
pub fn report(text: &str) {
    let text = CString::new(text).unwrap_or_default();
    let state = match text.is_empty() {
        true => pg_sys::BackendState::STATE_IDLE,
        false => pg_sys::BackendState::STATE_RUNNING,
    };
    // SAFETY: a string that ends with a zero, which is copied.
    unsafe { pg_sys::pgstat_report_activity(state, text.as_ptr()) };
}
