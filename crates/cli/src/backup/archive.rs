//! The archive format: a backup into a repository.
//!
//! ```text
//!   Job --> encoders --> packer --> packs
//!   then: backup.json, and last the manifest, which makes it a backup
//! ```

use super::Failure;
use super::chunks::{Job, Packer, encode};
use super::claim::{Claim, Left};
use super::configuration::{self, Accompanied};
use super::failure::first_cause;
use super::known::Known;
use super::lease;
use super::places::Access;
use super::source::{Server, WalConnection};
use super::transfer::{self, CHUNKS_MAX, Progress, Route, Sink, Transferred, cause, joined};
use pgshrink_backup::base_backup::{Options, Tablespace};
use pgshrink_backup::chunk::{CHUNK_BYTES_DEFAULT, Level};
use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::record::{PackRecord, Record, TablespaceRecord};
use pgshrink_backup::wal::WalSegmentSize;
use pgshrink_codec::counted;
use pgshrink_repository::Repository;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// Chunks that wait to be encoded, and as many that wait to be written.
const _: () = assert!(2 * CHUNKS_MAX * CHUNK_BYTES_DEFAULT <= 32 << 20);

/// How chunks are made.
pub(super) struct Encoding {
    pub(super) level: Level,
    pub(super) threads: usize,
    /// Of a pack.
    pub(super) pack_bytes: u32,
}

/// Where it goes.
pub(super) struct Store<'s> {
    pub(super) repository: &'s dyn Repository,
    /// A backup of this cluster that was begun and whose writer is gone.
    /// With the number of attempts at it.
    pub(super) resume: Option<(&'s str, u32)>,
    /// What is stored besides the data directory.
    pub(super) configuration: &'s configuration::Found,
}

/// What came of it.
pub(super) struct Taken {
    pub(super) name: String,
    pub(super) record: Record,
}

/// Takes a backup. If it fails, the packs that it has written stay, and another attempt goes on with them.
pub(super) fn take(
    server: &mut Server,
    options: &Options,
    store: &Store<'_>,
    encoding: &Encoding,
    progress: Progress<'_>,
) -> Result<Taken, Failure> {
    let repository = store.repository;
    // What the store refuses is known before the server makes its checkpoint.
    repository.top(usize::MAX)?;
    let about = About {
        version: server.version,
        system: server.system,
        wal_segment: server.wal_segment_size(),
        access: Access::of_mode(&server.setting("data_directory_mode")?),
    };
    let (route, wal) = server.begin(options)?;
    let route = Accompanied { route, configuration: store.configuration };
    // The server has begun.
    let resumed = match store.resume {
        Some(found) => {
            let claim = Claim::take_over(repository, found, about.system)?;
            if claim.is_none() {
                eprintln!("pgshrink: {} was removed in the meantime; starting a new backup", found.0);
            }
            claim
        }
        None => None,
    };
    let claim = match resumed {
        Some(claim) => claim,
        None => Claim::take(repository, about.system)?,
    };
    let taken = thread::scope(|scope| {
        let (alive, dead) = sync_channel(0);
        let claim = &claim;
        scope.spawn(move || lease::keep(repository, claim, &dead));
        let attempt =
            Attempt { repository, claim, encoding, about: &about, configuration: store.configuration };
        let taken = attempt.run(route, wal, progress);
        drop(alive);
        taken
    });
    match taken {
        Ok(record) => Ok(Taken { name: claim.name, record }),
        Err(error) => {
            if let Left::Packs(count) = claim.give_up(repository) {
                eprintln!(
                    "pgshrink: {} already has {}: run it again with --resume to continue",
                    claim.name,
                    packs(count)
                );
            }
            Err(error)
        }
    }
}

/// An attempt at a backup.
struct Attempt<'a> {
    repository: &'a dyn Repository,
    claim: &'a Claim,
    encoding: &'a Encoding,
    about: &'a About,
    configuration: &'a configuration::Found,
}

impl Attempt<'_> {
    fn run(
        &self,
        route: impl Route,
        wal: &mut WalConnection,
        progress: Progress<'_>,
    ) -> Result<Record, Failure> {
        let Attempt { repository, claim, .. } = *self;
        let spaces = spaces(route.tablespaces())?;
        let known = match claim.attempt {
            0 => Known::default(),
            _ => Known::read(repository, claim)?,
        };
        if claim.attempt > 0 {
            eprintln!("pgshrink: resuming {}, which already has {}", claim.name, packs(known.packs()));
        }
        let mut manifest = repository.writer(&claim.manifest_object()?)?;
        let packs = Packs { repository, claim, encoding: self.encoding, known: &known, progress };
        let done = transfer::run(route, wal, &packs, &mut manifest, progress)?;
        let (older, objects) = known.finish();
        let mut record = record(&done, older, claim, (self.about, spaces))?;
        record.configuration.clone_from(&self.configuration.record);
        repository.create(&claim.record_object()?, &record.write()?)?;
        claim.commit(repository, manifest)?;
        // Nothing refers to them. What cannot be removed goes with the backup.
        objects.iter().for_each(|object| drop(repository.remove(object)));
        Ok(record)
    }
}

/// Chunks into packs.
struct Packs<'p> {
    repository: &'p dyn Repository,
    claim: &'p Claim,
    encoding: &'p Encoding,
    known: &'p Known,
    progress: Progress<'p>,
}

impl Sink for Packs<'_> {
    type Kept = Vec<PackRecord>;

    fn keep(&self, chunks: Receiver<Job>) -> Result<Vec<PackRecord>, Failure> {
        let (encoded, written) = sync_channel(CHUNKS_MAX);
        // The encoders' alone: when they have ended, nobody waits to hand them something.
        let waiting = Arc::new(Mutex::new(chunks));
        let Packs { repository, claim, encoding, progress, .. } = *self;
        let packer = Packer { repository, claim, pack_bytes: encoding.pack_bytes, progress };
        thread::scope(|scope| {
            let encoders: Vec<_> = (0..self.encoding.threads)
                .map(|_| {
                    let (waiting, encoded) = (Arc::clone(&waiting), encoded.clone());
                    scope.spawn(move || encode((self.encoding.level, self.known), &waiting, &encoded))
                })
                .collect();
            drop((encoded, waiting));
            let packs = packer.run(written);
            let encoders = first_cause(encoders.into_iter().map(joined).collect());
            match (packs, encoders) {
                (Ok(packs), Ok(_)) => Ok(packs),
                (packs, encoders) => Err(cause([packs.err(), encoders.err()])),
            }
        })
    }
}

/// What is known of the server.
struct About {
    version: u32,
    system: SystemIdentifier,
    wal_segment: WalSegmentSize,
    access: Access,
}

/// Tablespaces as a record has them.
fn spaces(tablespaces: &[Tablespace]) -> Result<Vec<TablespaceRecord>, Failure> {
    // Those that lie in pg_tblspc itself are a part of the data directory. Since 16 the server lists them, too.
    let spaces = tablespaces.iter().filter_map(|tablespace| tablespace.space.as_ref());
    let spaces = spaces.filter(|(_, location)| location.starts_with(b"/"));
    let record = |(oid, location): &(u32, Vec<u8>)| match std::str::from_utf8(location) {
        Ok(location) => Ok(TablespaceRecord { oid: *oid, location: location.to_owned() }),
        Err(_) => {
            let what = "this tablespace location is not UTF-8, so it cannot be stored in an archive; use \
                --format tar, with client_encoding=SQL_ASCII in the connection string";
            Err(Failure::new(String::from_utf8_lossy(location), what))
        }
    };
    spaces.map(record).collect()
}

fn record(
    done: &Transferred<Vec<PackRecord>>,
    older: Vec<PackRecord>,
    claim: &Claim,
    (about, tablespaces): (&About, Vec<TablespaceRecord>),
) -> Result<Record, Failure> {
    let Transferred { start, fetched, wal, kept: packs, .. } = done;
    let stop = fetched.stop;
    let clock = wal.clock.ok_or_else(|| Failure::new("WAL of the backup", "the server sent none"))?;
    Ok(Record {
        id: claim.id,
        label: String::from_utf8_lossy(&fetched.label.label).into_owned(),
        server_version: about.version,
        system_identifier: about.system,
        wal_segment_bytes: about.wal_segment.bytes(),
        start_lsn: start.lsn,
        start_timeline: start.timeline,
        stop_lsn: stop.lsn,
        stop_timeline: stop.timeline,
        start_time: clock.0,
        stop_time: clock.1,
        chunk_bytes: CHUNK_BYTES_DEFAULT as u32,
        group_access: about.access == Access::Group,
        tablespaces,
        directories: fetched.directories.clone(),
        files: fetched.files + wal.files.len() as u64,
        raw_bytes: fetched.raw_bytes + wal.files.iter().map(|file| file.bytes).sum::<u64>(),
        wal: wal.files.clone(),
        packs: [older, packs.clone()].concat(),
        manifest_sha256: fetched.manifest,
        parent: None,
        configuration: None,
    })
}

fn packs(count: usize) -> String {
    counted(count as u64, "pack", "packs")
}
