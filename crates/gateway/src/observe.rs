//! The egress meter: what compression would have saved, while nothing is compressed (`observe`).
//!
//! ```text
//!   session's pump ── counts every read (Meter) ──> Tally ──┐ once a second
//!        └─ now and then: a Burst of what it moves          ├──> Book (Ledger) ──> SHOW SAVINGS, /metrics
//!                  └──> sampler thread, the real engine ────┘        └── every observe_write_s ──> file (Store)
//! ```
//!
//! Invariants
//! * E1 Bytes pass unchanged, and no session waits for a sample: it copies what it moves into a buffer, and a thread of low
//!   priority runs it through the engine.
//! * E2 Samples take `observe_cpu_percent` of a processor for each worker; [`sampler::Budget`] counts what they really took.
//! * E3 No session waits for the file, and none takes the book's lock.
//! * E4 Memory is bounded: bursts by [`places`], lines by the ledger's limits.
//!
//! What is measured, and how it is extrapolated: `pgshrink-egress`. The file: `formats/egress.md`.

mod book;
mod meter;
mod places;
mod sampler;
mod store;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use pgshrink_egress::{Ledger, Limits, Simulation};

use crate::config::GatewayConfig;
use crate::error::Error;
use crate::registry::Identity;
use crate::stream::Peer;
use book::{Book, Tally};
pub(crate) use meter::Meter;
use places::Places;
use store::Store;

/// Between two looks at what sessions have counted.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// What an operator set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    file: Option<PathBuf>,
    /// Processor seconds of sampling in a second.
    cpu_share: f64,
    interval: Duration,
    limits: Limits,
    /// What the estimates are for, told to readers of the file.
    compression: String,
}

impl Settings {
    /// Those of a configuration that is checked; `None`: nothing is observed.
    pub(crate) fn of(config: &GatewayConfig) -> Option<Self> {
        let workers = config.threads.unwrap_or_else(crate::lifecycle::workers_default);
        config.observe.then(|| Self {
            file: config.observe_path().map(Path::to_owned),
            cpu_share: config.observe_cpu_percent / 100.0 * workers as f64,
            interval: Duration::from_secs(config.observe_write_s),
            limits: Limits { days: config.observe_days, lines: config.observe_clients },
            compression: config.libpq_compression.clone(),
        })
    }
}

/// Why `observe_file` cannot be used, as far as that is known without taking it.
pub(crate) fn file_problem(path: &Path) -> Option<Error> {
    store::problem(path)
}

/// What the meter has found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// By day, as in the file.
    pub(crate) days: Ledger,
    /// Since the process began, under one day.
    pub(crate) since_start: Ledger,
    /// Processor time of the sampling.
    pub(crate) sampling: Duration,
    /// Bursts that were not measured: there was no processor time for them.
    pub(crate) dropped: u64,
    /// Writes of the file that failed.
    pub(crate) write_failures: u64,
    /// When it was last written.
    pub(crate) written: Option<SystemTime>,
}

/// The process's meter, once it has one.
#[derive(Default)]
pub(crate) struct Slot(Mutex<Option<Running>>);

struct Running {
    core: Arc<Core>,
    sampler: JoinHandle<()>,
    keeper: JoinHandle<()>,
    /// Ends the keeper when it is dropped.
    end: mpsc::Sender<()>,
}

/// What sessions and threads share.
pub(crate) struct Core {
    /// Which sessions may begin a burst: see [`sampler::Admission`].
    admission: AtomicU8,
    places: Arc<Places>,
    orders: mpsc::Sender<sampler::Order>,
    /// Sessions that the book does not know yet.
    arrivals: Mutex<Vec<Arc<Tally>>>,
    book: Mutex<Book>,
    /// Held while the file is written, so never together with a wait for the book.
    store: Mutex<Option<Store>>,
    settings: Mutex<Settings>,
    sampling_ns: AtomicU64,
    dropped: AtomicU64,
}

impl Slot {
    /// Begins to observe, or goes on with other settings.
    pub(crate) fn apply(&self, settings: Settings) -> Result<Arc<Core>, Error> {
        let mut slot = lock(&self.0);
        if let Some(running) = &*slot {
            running.core.change(settings)?;
            return Ok(running.core.clone());
        }
        let running = start(settings)?;
        let core = running.core.clone();
        *slot = Some(running);
        Ok(core)
    }

    /// What was found so far; `None` if nothing was ever observed.
    pub(crate) fn report(&self) -> Option<Report> {
        let core = lock(&self.0).as_ref()?.core.clone();
        Some(core.report(SystemTime::now()))
    }

    /// Bursts that are recorded or wait to be measured.
    pub(crate) fn pending(&self) -> usize {
        lock(&self.0).as_ref().map_or(0, |running| running.core.places.taken())
    }

    /// The process ends: measures what was recorded, and writes the file.
    pub(crate) fn stop(&self) {
        let Some(Running { core, sampler, keeper, end }) = lock(&self.0).take() else { return };
        // Either thread has ended already where this fails.
        let _ = core.orders.send(sampler::Order::Stop);
        let _ = sampler.join();
        drop(end);
        let _ = keeper.join();
        // Whoever still has the core keeps the file from nobody.
        *lock(&core.store) = None;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(settings: Settings) -> Result<Running, Error> {
    let (store, ledger) = match &settings.file {
        Some(path) => {
            let (store, ledger) = Store::open(path, settings.limits)?;
            (Some(store), ledger)
        }
        None => (None, Ledger::new(settings.limits)),
    };
    let (orders, queue) = mpsc::channel();
    let core = Arc::new(Core {
        admission: AtomicU8::new(sampler::Admission::All as u8),
        places: Arc::default(),
        orders,
        arrivals: Mutex::default(),
        book: Mutex::new(Book::new(ledger, settings.limits)),
        store: Mutex::new(store),
        settings: Mutex::new(settings),
        sampling_ns: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
    });
    // Shows now whether the file can be written.
    core.save(SystemTime::now()).map_err(|(path, source)| store::cannot_write(&path, &source))?;
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let fail = |source| Error::Runtime { what: "the egress meter", source };
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(fail)
    };
    let (shared, (end, ended)) = (core.clone(), mpsc::channel());
    let sampler = spawn("sampler", Box::new(move || sampler::run(&shared, &queue)))?;
    let shared = core.clone();
    let keeper = spawn("meter", Box::new(move || keep(&shared, &ended)))?;
    Ok(Running { core, sampler, keeper, end })
}

/// Looks at what sessions count, and writes the file, until it is told to end.
fn keep(core: &Core, ended: &mpsc::Receiver<()>) {
    let mut saved = Instant::now();
    loop {
        let goes_on = ended.recv_timeout(LOOK_PERIOD) == Err(mpsc::RecvTimeoutError::Timeout);
        core.collect(SystemTime::now());
        if goes_on && saved.elapsed() < lock(&core.settings).interval {
            continue;
        }
        saved = Instant::now();
        if let Err((path, error)) = core.save(SystemTime::now()) {
            tracing::error!(
                file = %path.display(), %error,
                "observe_file not written: totals are kept in memory and written with the next attempt"
            );
        }
        if !goes_on {
            return;
        }
    }
}

impl Core {
    /// A session begins: what counts it. `None` in `simulation`: its route allows no compression.
    pub(crate) fn meter(
        self: &Arc<Self>,
        peer: Peer,
        identity: Option<&Identity>,
        simulation: Option<Arc<Simulation>>,
    ) -> Meter {
        let client = match peer {
            Peer::Address(address) | Peer::Proxied(address) => address.ip().to_canonical().to_string(),
            Peer::Unix { .. } => "unix".to_owned(),
        };
        let tally = Arc::new(Tally::new(&client, identity.map_or("", |identity| &identity.database)));
        lock(&self.arrivals).push(tally.clone());
        Meter::new(self.clone(), tally, simulation)
    }

    fn collect(&self, now: SystemTime) {
        let arrivals = std::mem::take(&mut *lock(&self.arrivals));
        lock(&self.book).collect(arrivals, now);
    }

    fn report(&self, now: SystemTime) -> Report {
        self.collect(now);
        let book = lock(&self.book);
        Report {
            days: book.days().clone(),
            since_start: book.since_start().clone(),
            sampling: Duration::from_nanos(self.sampling_ns.load(Ordering::Relaxed)),
            dropped: self.dropped.load(Ordering::Relaxed),
            write_failures: book.write_failures,
            written: book.written,
        }
    }

    /// Writes the file, if there is one.
    fn save(&self, now: SystemTime) -> Result<(), (PathBuf, std::io::Error)> {
        let mut store = lock(&self.store);
        let Some(store) = &mut *store else { return Ok(()) };
        let days = lock(&self.book).days().clone();
        let compression = lock(&self.settings).compression.clone();
        let bytes = file_of(&days, &compression, now);
        let result = store.save(&bytes);
        let mut book = lock(&self.book);
        match result {
            Ok(()) => {
                book.written = Some(now);
                Ok(())
            }
            Err(error) => {
                book.write_failures += 1;
                Err((store.path().to_owned(), error))
            }
        }
    }

    /// Other settings. Another file is opened before the old one is left; where there was none, what was counted goes into it.
    fn change(&self, settings: Settings) -> Result<(), Error> {
        let old = lock(&self.settings).clone();
        if old.file != settings.file {
            let mut opened =
                settings.file.as_ref().map(|path| Store::open(path, settings.limits)).transpose()?;
            if let Some((store, ledger)) = &mut opened {
                // Shows now whether it can be written.
                let bytes = file_of(ledger, &settings.compression, SystemTime::now());
                store.save(&bytes).map_err(|source| store::cannot_write(store.path(), &source))?;
            }
            self.collect(SystemTime::now());
            if let Err((path, error)) = self.save(SystemTime::now()) {
                tracing::error!(file = %path.display(), %error, "the previous observe_file was not written");
            }
            let (store, ledger) = opened.map_or((None, None), |(store, ledger)| (Some(store), Some(ledger)));
            let mut place = lock(&self.store);
            lock(&self.book).replace(ledger, old.file.is_none());
            *place = store;
        }
        lock(&self.book).set_limits(settings.limits);
        *lock(&self.settings) = settings;
        Ok(())
    }

    fn cpu_share(&self) -> f64 {
        lock(&self.settings).cpu_share
    }
}

fn file_of(days: &Ledger, compression: &str, now: SystemTime) -> Vec<u8> {
    pgshrink_egress::file::write(days, compression, &crate::admin::show::timestamp(now))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
