//! `pgshrink backup`: a base backup of a running server into a repository.
//!
//! ```text
//!   connection: BASE_BACKUP --> incoming --> archives --\
//!                                                        >--> encoders --> packer --> packs
//!   connection: START_REPLICATION --> wal --------------/
//!   then: backup.json, and last the manifest, which makes it a backup
//! ```
//! Every arrow is a bounded queue, so memory does not depend on the cluster's size.

use super::Failure;
use super::archives::{Archives, Held};
use super::chunks::{CHUNK_BYTES, Job, Packer, encode};
use super::claim::Claim;
use super::failure::first_cause;
use super::incoming::{self, Outgoing};
use super::source::Server;
use super::wal::{Received, WalReceiver};
use pgshrink_backup::Lsn;
use pgshrink_backup::base_backup::{
    Checkpoint, Compression, MaxRate, Options, Position, Sequence, Tablespace,
};
use pgshrink_backup::chunk::Level;
use pgshrink_backup::record::{PackRecord, Record, TablespaceRecord};
use pgshrink_pgclient::connection::{Closer, CopyOut, Table};
use pgshrink_repository::{ObjectName, Repository};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// Chunks that wait to be encoded, at most; and as many that wait to be written.
const CHUNKS_MAX: usize = 32;
const _: () = assert!(2 * CHUNKS_MAX * CHUNK_BYTES <= 32 << 20);

/// How long the server may send nothing once the backup has begun.
const SILENCE_MAX: Duration = Duration::from_secs(15 * 60);

/// What a user asked for.
pub(super) struct Wishes<'w> {
    pub(super) label: &'w str,
    pub(super) compression: Compression,
    pub(super) checkpoint: Checkpoint,
    pub(super) max_rate: Option<MaxRate>,
    pub(super) level: Level,
    pub(super) threads: usize,
}

/// What came of it.
pub(super) struct Taken {
    pub(super) name: String,
    pub(super) record: Record,
}

/// How far a backup is, in bytes before compression.
pub(super) enum Step {
    /// About so many in all.
    Total(u64),
    /// So many from the beginning.
    Done(u64),
}

/// Takes a backup. If it fails, what it has written is removed.
pub(super) fn take(
    server: &mut Server,
    repository: &dyn Repository,
    wishes: &Wishes<'_>,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Taken, Failure> {
    let options = Options {
        progress: true,
        checkpoint: wishes.checkpoint,
        compression: wishes.compression,
        max_rate: wishes.max_rate,
        // WAL is streamed; nobody has to wait for the archiver.
        wait: false,
        ..Options::new(wishes.label)
    };
    let command = options.command(server.major)?;
    let Server { data, wal, slot, segment_size, .. } = server;
    // What the store refuses is known before the server makes its checkpoint.
    repository.top(usize::MAX)?;
    let closer = data.closer()?;
    let mut copy = data.copy_out(&command)?;
    copy.set_read_timeout(Some(SILENCE_MAX));
    let (start, tablespaces) = before(&copy)?;
    let sequence = Sequence::new(tablespaces.clone(), wishes.compression.algorithm, true)?;
    progress(Step::Total(tablespaces.iter().filter_map(|tablespace| tablespace.size_bytes).sum()));
    // The server has accepted the command.
    let claim = Claim::take(repository)?;
    let (jobs, waiting) = sync_channel(CHUNKS_MAX);
    let receiver = WalReceiver {
        connection: wal,
        slot,
        start: start.lsn,
        timeline: start.timeline,
        segment_size: *segment_size,
        jobs: jobs.clone(),
    };
    let transfer = Transfer { repository, wishes, claim: &claim, tablespaces: &tablespaces, progress };
    let done = transfer.run((copy, sequence), (receiver, closer), (jobs, waiting));
    let committed = done.and_then(|done| {
        let record = record(&done, &claim, server, (start, &tablespaces))?;
        commit(done.held, &record, &claim, repository)?;
        Ok(record)
    });
    match committed {
        Ok(record) => Ok(Taken { name: claim.name, record }),
        Err(error) => {
            claim.give_up(repository);
            Err(error)
        }
    }
}

/// What goes from the server to the repository, on as many threads as there are arrows and encoders.
struct Transfer<'t> {
    repository: &'t dyn Repository,
    wishes: &'t Wishes<'t>,
    claim: &'t Claim,
    tablespaces: &'t [Tablespace],
    progress: &'t (dyn Fn(Step) + Sync),
}

impl Transfer<'_> {
    /// Waits for all threads. `jobs` are both ends of the queue of chunks.
    fn run(
        &self,
        (copy, sequence): (CopyOut<'_>, Sequence),
        (receiver, closer): (WalReceiver<'_>, Closer),
        (jobs, waiting): (SyncSender<Job>, Receiver<Job>),
    ) -> Result<Done, Failure> {
        let Transfer { repository, wishes, claim, tablespaces, progress } = *self;
        let manifest = repository.writer(&ObjectName::new(&format!("{}/backup_manifest", claim.name))?)?;
        let (encoded, written) = sync_channel(CHUNKS_MAX);
        let (stop_sender, stop_receiver) = sync_channel::<Lsn>(1);
        // The encoders' alone: when they have ended, nobody waits to hand them something.
        let waiting = Arc::new(Mutex::new(waiting));
        let packer = Packer { repository, backup: &claim.name, id: claim.id };
        let (outgoing, arriving) = incoming::queue();
        let algorithm = wishes.compression.algorithm;
        thread::scope(|scope| {
            let encoders: Vec<_> = (0..wishes.threads)
                .map(|_| {
                    let (waiting, encoded, level) = (Arc::clone(&waiting), encoded.clone(), wishes.level);
                    scope.spawn(move || encode(level, &waiting, &encoded))
                })
                .collect();
            drop((encoded, waiting));
            let packs = scope.spawn(move || packer.run(&written));
            let wal = scope.spawn(move || {
                let received = receiver.run(&stop_receiver);
                if received.is_err() {
                    // Without its WAL the backup is worth nothing: who reads the data is not to go on for hours.
                    closer.close();
                }
                received
            });
            let held = scope.spawn(move || {
                let jobs = jobs;
                Archives::new(tablespaces, algorithm, &jobs).run(arriving, manifest)
            });
            let stop = receive(copy, sequence, outgoing, progress);
            if let Ok(stop) = &stop {
                // The receiver may have failed; then it says why.
                let _ = stop_sender.send(stop.lsn);
            }
            drop(stop_sender);
            collect(stop, held, wal, encoders, packs)
        })
    }
}

/// What all threads came to.
struct Done {
    stop: Position,
    held: Held,
    wal: Received,
    packs: Vec<PackRecord>,
}

/// Reads all that BASE_BACKUP sends, and gives the stop position.
fn receive(
    mut copy: CopyOut<'_>,
    mut sequence: Sequence,
    outgoing: Outgoing,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<Position, Failure> {
    outgoing.run(&mut copy, &mut sequence, &|bytes| progress(Step::Done(bytes)))?;
    sequence.finish()?;
    let after = copy.finish()?;
    let table = after.iter().find(|table| table.row_count() > 0);
    let table = table.ok_or_else(|| Failure::new("BASE_BACKUP", "the server did not say where it ended"))?;
    Ok(Position::from_row(&row(table, 0))?)
}

/// The start position and the tablespaces, which come before the data.
fn before(copy: &CopyOut<'_>) -> Result<(Position, Vec<Tablespace>), Failure> {
    let [start, tablespaces, ..] = copy.before() else {
        return Err(Failure::new("BASE_BACKUP", "the server sent no list of tablespaces"));
    };
    let rows = 0..tablespaces.row_count();
    let tablespaces: Result<_, _> = rows.map(|at| Tablespace::from_row(&row(tablespaces, at))).collect();
    Ok((Position::from_row(&row(start, 0))?, tablespaces?))
}

fn row(table: &Table, at: usize) -> Vec<Option<&[u8]>> {
    (0..table.columns.len()).map(|column| table.bytes(at, column)).collect()
}

type Running<'s, T> = ScopedJoinHandle<'s, Result<T, Failure>>;

/// Waits for all threads; of several failures, the one that caused the others is reported.
fn collect<'s>(
    stop: Result<Position, Failure>,
    held: Running<'s, Held>,
    wal: Running<'s, Received>,
    encoders: Vec<Running<'s, ()>>,
    packs: Running<'s, Vec<PackRecord>>,
) -> Result<Done, Failure> {
    let (held, wal) = (joined(held), joined(wal));
    let encoders: Vec<_> = encoders.into_iter().map(joined).collect();
    let packs = joined(packs);
    let outcomes = [stop.as_ref().err(), held.as_ref().err(), wal.as_ref().err(), packs.as_ref().err()];
    let has_cause = outcomes.into_iter().flatten().any(|error| !error.is_consequence());
    match (stop, held, wal, packs, first_cause(encoders)) {
        (Ok(stop), Ok(held), Ok(wal), Ok(packs), Ok(_)) => Ok(Done { stop, held, wal, packs }),
        (stop, held, wal, packs, encoders) => {
            // If WAL could not be received, the other connection was closed for that reason.
            let errors = [wal.err(), packs.err(), encoders.err(), held.err(), stop.err()];
            let causes = |error: &Failure| !has_cause || !error.is_consequence();
            Err(errors.into_iter().flatten().find(causes).unwrap_or(Failure::BrokenOff))
        }
    }
}

fn joined<T>(thread: Running<'_, T>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::new("pgshrink", "a thread has panicked; please report it")))
}

fn record(
    done: &Done,
    claim: &Claim,
    server: &Server,
    (start, tablespaces): (Position, &[Tablespace]),
) -> Result<Record, Failure> {
    let Done { stop, held, wal, packs } = done;
    if stop.timeline != start.timeline {
        let what = format!("it began on timeline {} and ended on {}", start.timeline, stop.timeline);
        return Err(Failure::new("the backup", format!("{what}: a standby was promoted; back it up again")));
    }
    let spaces = tablespaces.iter().filter_map(|tablespace| tablespace.space.as_ref());
    let tablespaces = spaces.map(|(oid, location)| TablespaceRecord {
        oid: *oid,
        location: String::from_utf8_lossy(location).into_owned(),
    });
    let clock = wal.clock.ok_or_else(|| Failure::new("WAL of the backup", "the server sent none"))?;
    Ok(Record {
        id: claim.id,
        label: String::from_utf8_lossy(&held.label.label).into_owned(),
        server_version: server.version,
        system_identifier: server.system,
        wal_segment_bytes: server.segment_size.bytes(),
        start_lsn: start.lsn,
        start_timeline: start.timeline,
        stop_lsn: stop.lsn,
        stop_timeline: stop.timeline,
        start_time: clock.0,
        stop_time: clock.1,
        chunk_bytes: CHUNK_BYTES as u32,
        tablespaces: tablespaces.collect(),
        directories: held.directories.clone(),
        files: held.files + wal.files.len() as u64,
        raw_bytes: held.raw_bytes + wal.files.iter().map(|file| file.bytes).sum::<u64>(),
        wal: wal.files.clone(),
        packs: packs.clone(),
        manifest_sha256: held.manifest,
        parent: None,
    })
}

/// Writes `backup.json` and, if the backup is still this process's, the manifest: from then on it is a backup.
fn commit(held: Held, record: &Record, claim: &Claim, repository: &dyn Repository) -> Result<(), Failure> {
    let name = ObjectName::new(&format!("{}/backup.json", claim.name))?;
    repository.create(&name, &record.write()?)?;
    claim.check(repository)?;
    held.manifest_object.finish()?;
    Ok(())
}
