//! The background worker, off unless `zson.auto_learn_databases` names databases.
//!
//! A launcher, which is in no database, starts one worker after another. In its database a worker
//!
//! 1. trains each profile on the columns that have it, and keeps the dictionary if it saves a tenth of the bytes;
//! 2. re-encodes what is not written as its profile writes now, in small transactions, at most a fifth of the time.
//!
//! Where many documents are unlike those that a dictionary of shapes was learned from ([`misses`]), a database's turn comes
//! earlier.
//!
//! What it does to a table it does as the table's owner, without triggers. What fails is logged, and the rest goes
//! on.
#![allow(unsafe_code)]

use pgshrink_codec::counted;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{PgTryBuilder, pg_guard};
use pgshrink_zson::memory;

use crate::backend::objects;
use crate::catalog::Objects;
use crate::column::{Column, Wanted};
use crate::error::log;
use crate::internal::as_table_owner;
use crate::learn::Trained;
use crate::misses;
use crate::query::{Session, statement};
use crate::reencode::{Pass, sleep};
use crate::settings;
use crate::sys::{guarded, had, require_ballast};

/// How long after a round another may come early, at most; and a quarter of the interval at most.
const EARLY_AFTER: Duration = Duration::from_secs(600);
/// The share of a profile's bytes that a new dictionary has to save.
const GAIN_MIN: f64 = 0.10;
/// Rows of a transaction.
const BATCH_ROWS: f64 = 500.0;
/// After a batch the worker sleeps so many times as long as it took.
const SLEEP_FACTOR: u32 = 4;
const SLEEP_MIN: Duration = Duration::from_millis(10);

/// Registers the launcher; only while the server starts.
pub fn register() {
    // SAFETY: reads a flag of the server.
    if unsafe { pg_sys::process_shared_preload_libraries_in_progress } {
        BackgroundWorkerBuilder::new("zson launcher")
            .set_function("zson_launcher_main")
            .set_library("zson")
            .set_start_time(BgWorkerStartTime::RecoveryFinished)
            .set_restart_time(Some(Duration::from_secs(10)))
            // Only then the postmaster tells it that a worker has ended.
            .enable_spi_access()
            .load();
    }
}

/// The launcher: a worker for each database, one at a time.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn zson_launcher_main(_argument: Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    BackgroundWorker::connect_worker_to_spi(None, None);
    let mut due = Instant::now();
    let mut early = due;
    loop {
        let databases = settings::learn_databases();
        let now = Instant::now();
        if !databases.is_empty() && now >= early {
            // Which database it is the worker tells: it has one, and the launcher cannot look up their names.
            let round = if now >= due { Round::Due } else { Round::Early };
            if round == Round::Due || misses::are_many() {
                for database in &databases {
                    if !run_worker(database, round) {
                        return;
                    }
                }
            }
            let interval = settings::learn_interval();
            if now >= due {
                due = Instant::now() + interval;
            }
            early = (Instant::now() + EARLY_AFTER.min(interval / 4)).min(due);
        }
        let wait = early.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        // Without databases, until the configuration changes.
        let wait = if databases.is_empty() { Duration::from_secs(3600) } else { wait };
        if !BackgroundWorker::wait_latch(Some(wait)) {
            return;
        }
        if BackgroundWorker::sighup_received() {
            // SAFETY: between statements.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        }
    }
}

/// Why a worker is started: what its argument says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The interval is over.
    Due = 0,
    /// Many documents do not fit their dictionaries, of some database.
    Early = 1,
}

/// Starts a worker and waits until it has ended. False if the launcher has to end meanwhile.
fn run_worker(database: &str, round: Round) -> bool {
    let worker = BackgroundWorkerBuilder::new(&format!("zson worker for {database}"))
        .set_type("zson worker")
        .set_function("zson_worker_main")
        .set_library("zson")
        .set_extra(database)
        .set_argument(Some(Datum::from(round as i32)))
        .set_notify_pid(std::process::id() as i32)
        .enable_spi_access()
        .load_dynamic();
    match worker {
        Ok(worker) => {
            // Not the server's own waiting, which a shutdown does not end.
            while matches!(worker.pid(), Ok(_) | Err(BackgroundWorkerStatus::NotYetStarted)) {
                if !BackgroundWorker::wait_latch(Some(Duration::from_secs(1))) {
                    worker.terminate();
                    return false;
                }
            }
        }
        Err(_) => log(format!(
            "zson: no worker for database \"{database}\": all of max_worker_processes are in use; will retry in {} s",
            settings::learn_interval().as_secs()
        )),
    }
    true
}

/// The worker of one database.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn zson_worker_main(argument: Datum) {
    let round = if argument.value() as i32 == Round::Early as i32 { Round::Early } else { Round::Due };
    // SAFETY: called by the server, as all that a process does.
    unsafe { guarded(|| bring_database_along(round)) }
}

fn bring_database_along(round: Round) {
    // SIGTERM ends it at the next transaction or sleep: the server's own handler of background workers.
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    BackgroundWorker::connect_worker_to_spi(Some(BackgroundWorker::get_extra()), None);
    // SAFETY: a plain variable of the server.
    let database = unsafe { pg_sys::MyDatabaseId };
    if round == Round::Early && !misses::are_many_in(database) {
        return;
    }
    // SAFETY: as the superuser that this session is.
    unsafe {
        pg_sys::SetConfigOption(
            c"session_replication_role".as_ptr(),
            c"replica".as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
    let Some(Some(profiles)) = transaction("looking for columns", profiles) else { return };
    misses::forget(database);
    for (profile, columns) in profiles {
        transaction(&format!("training profile \"{profile}\""), || train(&profile, &columns));
        for place in columns {
            let what = format!("re-encoding documents of {}", place.label);
            let pass = transaction(&what, || start_pass(&place)).flatten();
            for mut pass in pass.into_iter().flatten() {
                run_pass(&what, &place, &mut pass);
            }
        }
    }
}

/// A column as the worker remembers it from one transaction to the next.
struct Place {
    table: Oid,
    number: i16,
    name: Vec<u8>,
    owner: Oid,
    label: String,
}

/// Columns of type zson, by profile; none in a database without the extension.
fn profiles() -> Option<Vec<(String, Vec<Place>)>> {
    let objects = Objects::find().filter(Objects::is_current)?;
    let mut session = Session::open();
    // Partitions follow their parents.
    let query = format!(
        "SELECT c.oid, a.attnum, a.attname, c.relowner, c.oid::pg_catalog.regclass FROM pg_catalog.pg_attribute a \
         JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid \
         JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid \
         WHERE c.relkind::pg_catalog.text OPERATOR(pg_catalog.=) ANY ('{{r,p}}') AND NOT c.relispartition \
         AND c.relpersistence::pg_catalog.text OPERATOR(pg_catalog.<>) 't' AND NOT a.attisdropped \
         AND a.attgenerated::pg_catalog.text OPERATOR(pg_catalog.=) '' AND a.attnum OPERATOR(pg_catalog.>) 0 \
         AND {0} OPERATOR(pg_catalog.=) ANY (ARRAY[t.oid, t.typbasetype])",
        u32::from(objects.zson)
    );
    let mut profiles: Vec<(String, Vec<Place>)> = Vec::new();
    for row in session.rows(&statement(&[query.as_bytes()])) {
        let Some(place) = Place::of(&row) else { continue };
        let profile = place.column().profile.name;
        match profiles.iter_mut().find(|(name, _)| *name == profile) {
            Some((_, places)) => places.push(place),
            None => profiles.push((profile, vec![place])),
        }
    }
    Some(profiles)
}

impl Place {
    fn of(row: &[Option<Vec<u8>>]) -> Option<Place> {
        let text = |at: usize| std::str::from_utf8(row.get(at)?.as_deref()?).ok();
        Some(Place {
            table: Oid::from(text(0)?.parse::<u32>().ok()?),
            number: text(1)?.parse().ok()?,
            name: row.get(2)?.clone()?,
            owner: Oid::from(text(3)?.parse::<u32>().ok()?),
            label: String::from_utf8_lossy(row.get(4)?.as_deref()?).into_owned(),
        })
    }

    fn column(&self) -> Column {
        Column::of(self.table, self.number, &self.name)
    }
}

fn train(profile: &str, places: &[Place]) {
    let objects = objects();
    let mut samples = Vec::new();
    let mut codec = None;
    for place in places {
        let column = place.column();
        codec = column.profile.codec.clone();
        let more = as_table_owner(place.owner, || {
            let mut session = Session::open();
            column.sample(&mut session, Wanted { documents: usize::MAX, strings: None })
        });
        had(memory::reserve(&mut samples, more.len()));
        samples.extend(more);
    }
    if samples.is_empty() {
        return;
    }
    let trained = Trained::of(&objects, profile, codec.as_deref(), &samples, Vec::new());
    if !trained.is_off() && trained.report.holdout_documents > 0 && trained.is_worth(GAIN_MIN) {
        log(format!("zson: {}", trained.store(&objects, profile)));
    }
}

/// Passes over the column's tables, if a look at some documents finds old ones.
fn start_pass(place: &Place) -> Option<Vec<Pass>> {
    let column = place.column();
    as_table_owner(place.owner, || {
        let mut session = Session::open();
        column.has_old(&mut session).then(|| Pass::all_of(&mut session, &column, BATCH_ROWS))
    })
}

fn run_pass(what: &str, place: &Place, pass: &mut Pass) {
    let (start, mut rows) = (Instant::now(), 0);
    loop {
        let batch = Instant::now();
        let step = transaction(what, || {
            as_table_owner(place.owner, || {
                let mut session = Session::open();
                pass.step(&mut session)
            })
        });
        match step {
            Some(Some(changed)) => rows += changed,
            Some(None) => break,
            // It failed and was logged.
            None => return,
        }
        sleep((batch.elapsed() * SLEEP_FACTOR).max(SLEEP_MIN));
    }
    log(format!(
        "zson: {} of {} re-encoded in {:.0} s",
        counted(rows, "document", "documents"),
        place.label,
        start.elapsed().as_secs_f64()
    ));
}

/// Runs `work` in a transaction of its own. What fails is logged and rolled back.
fn transaction<R>(what: &str, work: impl FnOnce() -> R) -> Option<R> {
    // SAFETY: a background worker's main loop, outside of any transaction.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
    }
    let work = AssertUnwindSafe(work);
    let result = PgTryBuilder::new(|| {
        let work = work;
        require_ballast();
        Ok(work.0())
    })
    .catch_others(|error| Err(message_of(&error)))
    .execute();
    // SAFETY: the transaction begun above.
    unsafe {
        if result.is_ok() {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        } else {
            pg_sys::AbortCurrentTransaction();
        }
    }
    result
        .inspect_err(|message| log(format!("zson: {what} failed: {message}; will retry in the next round")))
        .ok()
}

fn message_of(error: &pg_sys::panic::CaughtError) -> String {
    use pg_sys::panic::CaughtError;
    match error {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => report.message().to_owned(),
        CaughtError::RustPanic { ereport, .. } => ereport.message().to_owned(),
    }
}
