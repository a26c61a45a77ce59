//! The archive format: a backup into a repository.
//!
//! ```text
//!   Job --> encoders --> packer --> packs
//!   then: backup.json, and last the manifest, which makes it a backup
//! ```

use super::Failure;
use super::chunks::{Job, Packer, encode};
use super::claim::Claim;
use super::failure::first_cause;
use super::source::Server;
use super::stream::Stream;
use super::transfer::{self, CHUNKS_MAX, Progress, Sink, Transferred, cause, joined};
use pgshrink_backup::base_backup::Options;
use pgshrink_backup::chunk::{CHUNK_BYTES_DEFAULT, Level};
use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::record::{PackRecord, Record, TablespaceRecord};
use pgshrink_backup::wal::WalSegmentSize;
use pgshrink_repository::{ObjectName, Repository};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// Chunks that wait to be encoded, and as many that wait to be written.
const _: () = assert!(2 * CHUNKS_MAX * CHUNK_BYTES_DEFAULT <= 32 << 20);

/// How chunks are made.
pub(super) struct Encoding {
    pub(super) level: Level,
    pub(super) threads: usize,
}

/// What came of it.
pub(super) struct Taken {
    pub(super) name: String,
    pub(super) record: Record,
}

/// Takes a backup. If it fails, what it has written is removed.
pub(super) fn take(
    server: &mut Server,
    options: &Options,
    repository: &dyn Repository,
    encoding: &Encoding,
    progress: Progress<'_>,
) -> Result<Taken, Failure> {
    // What the store refuses is known before the server makes its checkpoint.
    repository.top(usize::MAX)?;
    let about =
        About { version: server.version, system: server.system, wal_segment: server.wal.segment_size };
    let route = Stream::begin(&mut server.data, server.major, options)?;
    // The server has accepted the command.
    let claim = Claim::take(repository)?;
    let packs = Packs { repository, claim: &claim, encoding };
    let taken = (|| {
        let mut manifest =
            repository.writer(&ObjectName::new(&format!("{}/backup_manifest", claim.name))?)?;
        let done = transfer::run(route, &mut server.wal, &packs, &mut manifest, progress)?;
        let record = record(&done, &claim, &about)?;
        let name = ObjectName::new(&format!("{}/backup.json", claim.name))?;
        repository.create(&name, &record.write()?)?;
        // If it is still this process's: from then on it is a backup.
        claim.check(repository)?;
        manifest.finish()?;
        Ok(record)
    })();
    match taken {
        Ok(record) => Ok(Taken { name: claim.name, record }),
        Err(error) => {
            claim.give_up(repository);
            Err(error)
        }
    }
}

/// Chunks into packs.
struct Packs<'p> {
    repository: &'p dyn Repository,
    claim: &'p Claim,
    encoding: &'p Encoding,
}

impl Sink for Packs<'_> {
    type Kept = Vec<PackRecord>;

    fn keep(&self, chunks: Receiver<Job>) -> Result<Vec<PackRecord>, Failure> {
        let (encoded, written) = sync_channel(CHUNKS_MAX);
        // The encoders' alone: when they have ended, nobody waits to hand them something.
        let waiting = Arc::new(Mutex::new(chunks));
        let packer = Packer { repository: self.repository, backup: &self.claim.name, id: self.claim.id };
        thread::scope(|scope| {
            let encoders: Vec<_> = (0..self.encoding.threads)
                .map(|_| {
                    let (waiting, encoded, level) =
                        (Arc::clone(&waiting), encoded.clone(), self.encoding.level);
                    scope.spawn(move || encode(level, &waiting, &encoded))
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
}

fn record(done: &Transferred<Vec<PackRecord>>, claim: &Claim, about: &About) -> Result<Record, Failure> {
    let Transferred { start, tablespaces, fetched, wal, kept: packs } = done;
    let stop = fetched.stop;
    let spaces = tablespaces.iter().filter_map(|tablespace| tablespace.space.as_ref());
    let tablespaces = spaces.map(|(oid, location)| TablespaceRecord {
        oid: *oid,
        location: String::from_utf8_lossy(location).into_owned(),
    });
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
        tablespaces: tablespaces.collect(),
        directories: fetched.directories.clone(),
        files: fetched.files + wal.files.len() as u64,
        raw_bytes: fetched.raw_bytes + wal.files.iter().map(|file| file.bytes).sum::<u64>(),
        wal: wal.files.clone(),
        packs: packs.clone(),
        manifest_sha256: fetched.manifest,
        parent: None,
    })
}
