//! The launcher's part of conversion: which database a dispatcher ([`crate::dispatcher`]) looks at next.
//!
//! * At once: a database whose labels a transaction has changed; all of them when settings of tablespaces or of the
//!   node have.
//! * After `cfs.naptime`: a database in which something has a setting, for new and grown files. A primary's others are
//!   looked at after ten times as long: their labels come with a word from the session. To a standby they come
//!   by WAL, without a word.
//! * A look that took long is repeated late, so that looks take a twentieth of a processor's time: but not later than
//!   after ten naptimes, since the time may have gone into conversions, or to other processes.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use pgrx::PgSqlErrorCode as Code;
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerStatus, DynamicBackgroundWorker};
use pgrx::datum::IntoDatum;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys::{self, Oid};
use pgshrink_cfs_server::convert::{self, IN_FLIGHT_MAX};
use pgshrink_cfs_server::setting::Setting;

use crate::board::{self, Ended};
use crate::{report, settings, worker};

/// Between two looks at the list of databases.
const LIST_PERIOD: Duration = Duration::from_secs(5);
/// Between the end of one look at a database and its continuation.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two dispatchers of a database, whatever there is to do.
const GAP: Duration = Duration::from_millis(300);
/// Naptimes between two looks where nothing has a setting.
const IDLE_NAPS: u32 = 10;
/// Of the time that a look took, until the next.
const TIMES_LATER: u32 = 20;
/// `datconnlimit` of a database whose DROP was interrupted.
const INVALID_DATABASE: i32 = -2;
/// The database that CREATE DATABASE copies, and that nobody changes: its OID since 15 (`pg_database.dat`).
const TEMPLATE0: u32 = 4;

/// What the launcher knows of databases.
#[derive(Default)]
pub struct Dispatching {
    known: HashMap<u32, Known>,
    listed: Option<Instant>,
    running: Option<Running>,
    /// What it was at the last look.
    node: Option<Setting>,
    tablespaces: BTreeMap<u32, Setting>,
    has_warned: bool,
}

struct Known {
    due: Instant,
    /// When its last dispatcher ended.
    left: Option<Instant>,
    /// Where its look goes on.
    cursor: u32,
    /// How long it has taken so far.
    spent: Duration,
    is_woken: bool,
}

struct Running {
    database: u32,
    begun: Instant,
    worker: DynamicBackgroundWorker,
    /// Of the worker's handle.
    _memory: PgMemoryContexts,
}

impl Dispatching {
    /// Settings of tablespaces as their labels say.
    pub fn follow(&mut self, tablespaces: BTreeMap<u32, Setting>) {
        if self.tablespaces != tablespaces {
            self.tablespaces = tablespaces;
            self.wake_all();
        }
    }

    fn wake_all(&mut self) {
        let now = Instant::now();
        for known in self.known.values_mut() {
            known.wake(now);
        }
    }

    /// Starts a dispatcher if one is due, and sees how the last one has ended. Returns quickly.
    pub fn look(&mut self) {
        let now = Instant::now();
        let node = settings::node_compression();
        if node != self.node {
            self.node = node;
            self.wake_all();
        }
        let woken = board::take();
        let is_listed = |database: &u32| self.known.contains_key(database);
        let has_new = woken.as_ref().is_none_or(|woken| !woken.iter().all(is_listed));
        if has_new || self.listed.is_none_or(|listed| now.duration_since(listed) >= LIST_PERIOD) {
            self.list(now);
        }
        match woken {
            None => self.wake_all(),
            Some(woken) => {
                for database in woken {
                    if let Some(known) = self.known.get_mut(&database) {
                        known.wake(now);
                    }
                }
            }
        }
        self.see_end(now);
        let is_on = settings::converts() && settings::converters() > 0;
        if self.running.is_some() || !is_on {
            return;
        }
        // With enough files under way a look has nothing to begin, but in these databases some to end.
        let to_end = (convert::in_flight() >= IN_FLIGHT_MAX).then(convert::databases_due);
        let has_work = |database: &u32| to_end.as_ref().is_none_or(|to_end| to_end.contains(database));
        let has_rested = |known: &Known| known.left.is_none_or(|left| now.duration_since(left) >= GAP);
        let may = |database: &u32| has_work(database) && !board::is_needed(*database);
        let next = self.known.iter().filter(|(database, known)| may(database) && has_rested(known));
        let next = next.min_by_key(|(_, known)| known.due);
        if let Some((&database, known)) = next
            && known.due <= now
        {
            self.start(database, now);
        }
    }

    /// How long the launcher may rest.
    pub fn rest(&self) -> Duration {
        let now = Instant::now();
        let next = self.known.values().map(|known| known.due).min();
        let next = next.map_or(LIST_PERIOD, |next| next.saturating_duration_since(now));
        // The end of a dispatcher wakes the launcher, and so does a label; files that are done do not.
        match self.running.is_some() || !settings::converts() || settings::converters() == 0 {
            true => LIST_PERIOD,
            false => next.max(GAP),
        }
    }

    fn list(&mut self, now: Instant) {
        let databases = BackgroundWorker::transaction(databases);
        self.known.retain(|database, _| databases.contains(database));
        for database in databases {
            let new = || Known { due: now, left: None, cursor: 0, spent: Duration::ZERO, is_woken: false };
            self.known.entry(database).or_insert_with(new);
        }
        self.listed = Some(now);
    }

    fn start(&mut self, database: u32, now: Instant) {
        let Some(known) = self.known.get_mut(&database) else { return };
        if !board::dispatch(database, known.cursor) {
            return;
        }
        known.is_woken = false;
        let mut memory = PgMemoryContexts::new("cfs dispatcher's handle");
        // SAFETY: the context is there as long as the handle.
        let worker = unsafe {
            memory.switch_to(|_| {
                let builder = worker::builder("cfs dispatcher", "cfs_dispatcher_main");
                let builder = builder.set_restart_time(None).set_notify_pid(pg_sys::MyProcPid);
                builder.set_argument(Oid::from(database).into_datum()).load_dynamic()
            })
        };
        match worker {
            Ok(worker) => {
                self.running = Some(Running { database, begun: now, worker, _memory: memory });
                self.has_warned = false;
            }
            Err(_) => {
                board::left(database);
                known.due = now + settings::naptime();
                if !std::mem::replace(&mut self.has_warned, true) {
                    report::warning(
                        Code::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                        "cfs cannot look for relations to convert: no background worker is free",
                        "It tries again. Raise max_worker_processes, and restart the server.",
                    );
                }
            }
        }
    }

    /// What the dispatcher has found, if it has ended.
    fn see_end(&mut self, now: Instant) {
        let Some(running) = &self.running else { return };
        if !matches!(running.worker.pid(), Err(BackgroundWorkerStatus::Stopped)) {
            return;
        }
        let (database, took) = (running.database, now.duration_since(running.begun));
        self.running = None;
        // Also where it was never started, or killed.
        board::left(database);
        // SAFETY: reads what all processes share.
        let is_standby = unsafe { pg_sys::RecoveryInProgress() };
        let Some(known) = self.known.get_mut(&database) else { return };
        known.left = Some(now);
        let nap = settings::naptime();
        let ended = board::ended();
        known.spent += took;
        let later = match ended {
            Ended::At(cursor) => {
                known.cursor = cursor;
                PAUSE
            }
            Ended::Nothing if !is_standby => nap * IDLE_NAPS,
            Ended::Nothing | Ended::Whole | Ended::Not => nap,
        };
        let is_over = !matches!(ended, Ended::At(_));
        let longest = nap * IDLE_NAPS;
        known.due = now + if is_over { later.max((known.spent * TIMES_LATER).min(longest)) } else { later };
        if is_over {
            (known.cursor, known.spent) = (0, Duration::ZERO);
        }
        if known.is_woken {
            known.wake(now);
        }
    }
}

impl Known {
    /// It is looked at from its first relation on, after the look that is under way.
    fn wake(&mut self, now: Instant) {
        (self.due, self.cursor, self.is_woken) = (now, 0, true);
    }
}

/// Databases that are looked at, in a transaction: those that let nobody connect too, but for template0.
fn databases() -> Vec<u32> {
    let mut found = Vec::new();
    // SAFETY: in a transaction: a scan of a shared catalog that a session without a database can open.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, lock);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let form = *pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            let database = form.oid.to_u32();
            if database != TEMPLATE0 && form.datconnlimit != INVALID_DATABASE {
                found.push(database);
            }
        }
        pg_sys::heap_endscan(scan);
        pg_sys::table_close(relation, lock);
    }
    found
}
