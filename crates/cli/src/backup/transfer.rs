//! A backup on its way: a route brings files and the manifest, WAL comes beside it, and a sink keeps both.
//!
//! ```text
//!   Route: stream ----\
//!                      >-- Job, bounded queue --> Sink: archive
//!   WalReceiver ------/
//! ```
//! Every queue is bounded, so memory does not depend on the cluster's size.

use super::Failure;
use super::chunks::{Job, Jobs, Take};
use super::source::WalConnection;
use super::wal::{Received, WalReceiver};
use pgshrink_backup::base_backup::{Position, Tablespace};
use pgshrink_backup::label::BackupLabel;
use pgshrink_backup::pack::Sha256;
use pgshrink_backup::wal::check_wal;
use pgshrink_backup::{BackupPath, Lsn};
use std::io::Write;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, ScopedJoinHandle};

/// Chunks that wait for the sink, at most.
pub(super) const CHUNKS_MAX: usize = 32;

/// How far a backup is, in bytes before compression.
pub(super) enum Step {
    /// About so many in all.
    Total(u64),
    /// So many from the beginning.
    Done(u64),
    /// So many more are kept, after compression.
    Kept(u64),
}

/// Who hears of steps.
pub(super) type Progress<'p> = &'p (dyn Fn(Step) + Sync);

/// A way to get the files of a cluster, on which the backup has begun.
pub(super) trait Route {
    /// Where the backup begins.
    fn start(&self) -> Position;

    /// The data directory and the tablespaces.
    fn tablespaces(&self) -> &[Tablespace];

    /// What makes [`Route::fetch`] fail soon, on another thread.
    fn breaker(&self) -> Box<dyn FnOnce() + Send>;

    /// Hands all files but WAL on, writes the manifest, and ends the backup on the server.
    fn fetch(
        self,
        jobs: &Jobs<'_>,
        manifest: &mut (dyn Write + Send),
        progress: Progress<'_>,
    ) -> Result<Fetched, Failure>;
}

/// What a route has brought.
pub(super) struct Fetched {
    /// Where the backup ends.
    pub(super) stop: Position,
    /// Directories of the data directory, parents first.
    pub(super) directories: Vec<BackupPath>,
    pub(super) files: u64,
    pub(super) raw_bytes: u64,
    pub(super) label: BackupLabel,
    /// Of the manifest.
    pub(super) manifest: Sha256,
}

/// Who keeps chunks.
pub(super) trait Sink: Sync {
    /// What it says in the end.
    type Kept: Send;

    /// Keeps all chunks until no more come. If it fails, the queue is gone, and those who send notice.
    fn keep(&self, chunks: Receiver<Job>) -> Result<Self::Kept, Failure>;

    /// Who takes chunks without a queue. Then none come to [`Sink::keep`].
    fn here(&self) -> Option<&dyn Take> {
        None
    }
}

/// What all threads came to.
pub(super) struct Transferred<K> {
    pub(super) start: Position,
    pub(super) fetched: Fetched,
    pub(super) wal: Received,
    pub(super) kept: K,
}

/// Brings everything from a server to a sink.
pub(super) fn run<S: Sink>(
    route: impl Route,
    wal: &mut WalConnection,
    sink: &S,
    manifest: &mut (dyn Write + Send),
    progress: Progress<'_>,
) -> Result<Transferred<S::Kept>, Failure> {
    let start = route.start();
    progress(Step::Total(total(route.tablespaces())));
    let beside = Beside { start, wal, breaker: route.breaker() };
    let (fetched, wal, kept) = beside.run(sink, |jobs| {
        let fetched = route.fetch(jobs, manifest, progress)?;
        Ok((fetched.stop, fetched))
    })?;
    Ok(Transferred { start, fetched, wal, kept })
}

/// About how many bytes will come.
pub(super) fn total(tablespaces: &[Tablespace]) -> u64 {
    tablespaces.iter().filter_map(|tablespace| tablespace.size_bytes).sum()
}

/// What receives WAL beside a fetch.
pub(super) struct Beside<'w> {
    pub(super) start: Position,
    pub(super) wal: &'w mut WalConnection,
    /// Makes the fetch fail soon.
    pub(super) breaker: Box<dyn FnOnce() + Send>,
}

impl Beside<'_> {
    /// Fetches, with WAL beside it, and gives what came: that of `fetch`, the WAL, and what the sink has kept. `fetch`
    /// says where the backup ends.
    pub(super) fn run<S: Sink, F>(
        self,
        sink: &S,
        fetch: impl FnOnce(&Jobs<'_>) -> Result<(Position, F), Failure>,
    ) -> Result<(F, Received, S::Kept), Failure> {
        let Beside { start, wal, breaker } = self;
        let segment_size = wal.segment_size;
        let (queue, waiting) = sync_channel(CHUNKS_MAX);
        let jobs = sink.here().map_or(Jobs::Queue(queue), Jobs::Here);
        let (stop_sender, stop_receiver) = sync_channel::<Lsn>(1);
        let receiver =
            WalReceiver { connection: wal, start: start.lsn, timeline: start.timeline, jobs: jobs.clone() };
        thread::scope(|scope| {
            let kept = scope.spawn(move || sink.keep(waiting));
            let wal = scope.spawn(move || {
                let received = receiver.run(&stop_receiver);
                if received.is_err() {
                    // A backup is worth nothing without its WAL. Nobody should go on reading data for hours.
                    breaker();
                }
                received
            });
            let fetched = fetch(&jobs);
            drop(jobs);
            if let Ok((stop, _)) = &fetched {
                // The receiver may have failed; then it says why.
                let _ = stop_sender.send(stop.lsn);
            }
            drop(stop_sender);
            match (fetched, joined(wal), joined(kept)) {
                (Ok((stop, fetched)), Ok(wal), Ok(kept)) => {
                    check_timeline(start, stop)?;
                    let names = wal.files.iter().map(|file| file.path.name());
                    check_wal(names, start.lsn..stop.lsn, stop.timeline, segment_size)?;
                    Ok((fetched, wal, kept))
                }
                // If WAL could not be received, the other connection was closed for that reason.
                (fetched, wal, kept) => Err(cause([wal.err(), kept.err(), fetched.err()])),
            }
        })
    }
}

fn check_timeline(start: Position, stop: Position) -> Result<(), Failure> {
    if stop.timeline == start.timeline {
        return Ok(());
    }
    let what = format!("it started on timeline {} and ended on {}", start.timeline, stop.timeline);
    Err(Failure::new("the backup", format!("{what}: a standby was promoted; back it up again")))
}

/// Waits for a thread.
pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::new("pgshrink", "a thread has panicked; please report it")))
}

/// Of what several threads say, the first that is not a consequence of another.
pub(super) fn cause(errors: impl IntoIterator<Item = Option<Failure>>) -> Failure {
    let mut consequence = Failure::BrokenOff;
    for error in errors.into_iter().flatten() {
        if !error.is_consequence() {
            return error;
        }
        consequence = error;
    }
    consequence
}
