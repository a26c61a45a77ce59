//! From bytes of files to packs in the repository: encoding on several threads, writing on one.
//!
//! ```text
//!   archives --\                          /-- encoder --\
//!               >-- Job, bounded queue --+--- encoder ---+-- Encoded, bounded queue --> packs --> repository
//!   WAL ------- /                         \-- encoder --/
//! ```

use super::Failure;
use super::claim::Claim;
use super::failure::broken_off;
use super::known::Known;
use super::transfer::{Progress, Step};
use pgshrink_backup::BackupPath;
use pgshrink_backup::checksum::Crc32c;
use pgshrink_backup::chunk::{CHUNK_BYTES_DEFAULT, ChunkEncoder, Habit, Level};
use pgshrink_backup::files::content;
use pgshrink_backup::pack::{
    ATTEMPT_PACKS_MAX, Area, Blake3, ChunkFacts, Ending, PackNumber, PackWriter, PackedFile, Permissions,
};
use pgshrink_backup::record::PackRecord;
use pgshrink_repository::{ObjectName, ObjectWriter, Repository};
use std::fs::File;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A pack is closed when it is so old: what comes later is lost if the backup is interrupted.
const PACK_TIME: Duration = Duration::from_secs(60);

/// Buffers that wait to be used again, at most.
const SPARE_MAX: usize = 32;
const _: () = assert!(SPARE_MAX * CHUNK_BYTES_DEFAULT <= 16 << 20);

/// Buffers of chunks that were written: the kernel need not clear new memory for each chunk.
static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer of so many bytes, with anything in it.
fn buffer(size: usize) -> Vec<u8> {
    let spare = SPARE.lock().ok().and_then(|mut spare| spare.pop());
    let mut buffer = spare.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES_DEFAULT));
    buffer.resize(size, 0);
    buffer
}

/// Takes a buffer whose bytes nobody needs any more.
pub(super) fn give_back(buffer: Vec<u8>) {
    if let Ok(mut spare) = SPARE.lock()
        && spare.len() < SPARE_MAX
        && buffer.capacity() == CHUNK_BYTES_DEFAULT
    {
        spare.push(buffer);
    }
}

/// A file whose chunks are on their way.
pub(super) struct Source {
    packed: PackedFile,
    /// How chunks of this file are best encoded.
    habit: Mutex<Habit>,
    /// The file that a plain backup writes them to, which is closed with the last of them.
    file: Mutex<Option<Arc<File>>>,
}

/// A chunk that is to be encoded.
pub(super) struct Job {
    pub(super) source: Arc<Source>,
    pub(super) offset: u64,
    pub(super) raw: Vec<u8>,
    /// Of `raw`.
    pub(super) checksum: Crc32c,
}

impl Job {
    pub(super) fn new(source: Arc<Source>, offset: u64, raw: Vec<u8>) -> Job {
        let checksum = Crc32c::of(&raw);
        Job { source, offset, raw, checksum }
    }
}

/// Takes chunks on the thread that has them.
pub(super) trait Take: Sync {
    fn take(&self, job: Job) -> Result<(), Failure>;
}

/// Where chunks go.
#[derive(Clone)]
pub(super) enum Jobs<'t> {
    /// To other threads.
    Queue(SyncSender<Job>),
    /// No further: they are written where they are, while the processor has them in its cache.
    Here(&'t dyn Take),
}

impl Jobs<'_> {
    /// Hands a chunk on; waits while too many are on their way.
    pub(super) fn send(&self, job: Job) -> Result<(), Failure> {
        match self {
            Jobs::Queue(queue) => queue.send(job).map_err(|_| broken_off()),
            Jobs::Here(taker) => taker.take(job),
        }
    }

    /// As [`send`](Jobs::send), but gives the chunk back if too many are on their way.
    pub(super) fn try_send(&self, job: Job) -> Result<Option<Job>, Failure> {
        match self {
            Jobs::Queue(queue) => match queue.try_send(job) {
                Ok(()) => Ok(None),
                Err(TrySendError::Full(job)) => Ok(Some(job)),
                Err(TrySendError::Disconnected(_)) => Err(broken_off()),
            },
            Jobs::Here(taker) => taker.take(job).map(|()| None),
        }
    }
}

/// A chunk that is to be written.
pub(super) struct Encoded {
    source: Arc<Source>,
    facts: ChunkFacts,
    payload: Vec<u8>,
}

impl Source {
    /// A file as the server makes files.
    pub(super) fn new(area: Area, path: BackupPath) -> Source {
        Source { packed: PackedFile::new(area, path), habit: Mutex::default(), file: Mutex::default() }
    }

    /// The same file with these permissions.
    pub(super) fn permitted(mut self, permissions: Permissions) -> Source {
        self.packed.permissions = Some(permissions);
        self
    }

    pub(super) fn packed(&self) -> &PackedFile {
        &self.packed
    }

    pub(super) fn path(&self) -> &BackupPath {
        &self.packed.path
    }

    /// The file of a plain backup; the first chunk of it opens it.
    pub(super) fn file(&self, open: impl FnOnce() -> Result<File, Failure>) -> Result<Arc<File>, Failure> {
        let mut file = self.file.lock().map_err(|_| broken_off())?;
        match &*file {
            Some(file) => Ok(Arc::clone(file)),
            None => Ok(Arc::clone(file.insert(Arc::new(open()?)))),
        }
    }
}

/// Cuts a file of so many bytes into chunks, and gives the CRC-32C of all of it.
pub(super) fn cut(
    source: &Arc<Source>,
    bytes: u64,
    from: &mut impl Read,
    jobs: &Jobs<'_>,
) -> Result<Crc32c, Failure> {
    let (mut offset, mut checksum) = (0, Crc32c::of(&[]));
    while offset < bytes {
        let size = (bytes - offset).min(CHUNK_BYTES_DEFAULT as u64) as usize;
        let mut raw = buffer(size);
        from.read_exact(&mut raw).map_err(|error| Failure::inside(&source.packed.path, error))?;
        let job = Job::new(Arc::clone(source), offset, raw);
        checksum = checksum.combine(job.checksum, size as u64);
        jobs.send(job)?;
        offset += size as u64;
    }
    Ok(checksum)
}

/// Encodes chunks until no more come, but for those that are stored already.
pub(super) fn encode(
    (level, known): (Level, &Known),
    jobs: &Mutex<Receiver<Job>>,
    encoded: &SyncSender<Encoded>,
) -> Result<(), Failure> {
    let mut encoder = ChunkEncoder::new(level);
    loop {
        let job = jobs.lock().map_err(|_| broken_off())?.recv();
        let Ok(Job { source, offset, raw, checksum }) = job else { return Ok(()) };
        let blake3 = Blake3::of(&raw);
        if known.has(source.packed.area, &source.packed.path, offset, &blake3) {
            continue;
        }
        let mut payload = Vec::new();
        // Chunks of one file are encoded at the same time; what the last one learned stays.
        let mut habit = *source.habit.lock().map_err(|_| broken_off())?;
        let codec = encoder
            .encode(&raw, content(source.packed.area, &source.packed.path, offset), &mut habit, &mut payload)
            .map_err(|error| Failure::new(&source.packed.path, error))?;
        *source.habit.lock().map_err(|_| broken_off())? = habit;
        let facts = ChunkFacts {
            offset,
            raw_bytes: raw.len() as u32,
            blake3,
            raw_checksum: checksum.0,
            codec: codec.byte(),
        };
        give_back(raw);
        encoded.send(Encoded { source, facts, payload }).map_err(|_| broken_off())?;
    }
}

/// Writes chunks into packs until no more come, and says which packs there are.
pub(super) struct Packer<'r> {
    pub(super) repository: &'r dyn Repository,
    pub(super) claim: &'r Claim,
    /// A pack is closed when it has so many bytes.
    pub(super) pack_bytes: u32,
    pub(super) progress: Progress<'r>,
}

impl Packer<'_> {
    pub(super) fn run(&self, chunks: Receiver<Encoded>) -> Result<Vec<PackRecord>, Failure> {
        let mut packs = Vec::new();
        let mut open: Option<OpenPack> = None;
        for Encoded { source, facts, payload } in chunks {
            let mut pack = match open.take() {
                Some(pack) => pack,
                None => self.begin(packs.len())?,
            };
            if pack.writer.add(&source.packed, &facts, &payload).is_err() {
                packs.push(pack.finish()?);
                pack = self.begin(packs.len())?;
                let added = pack.writer.add(&source.packed, &facts, &payload);
                added
                    .map_err(|_| Failure::new(&source.packed.path, "a chunk of it is larger than a pack"))?;
            }
            pack.write(&payload)?;
            (self.progress)(Step::Kept(payload.len() as u64));
            match pack.writer.bytes() >= self.pack_bytes || pack.begun.elapsed() > PACK_TIME {
                true => packs.push(pack.finish()?),
                false => open = Some(pack),
            }
        }
        if let Some(pack) = open {
            packs.push(pack.finish()?);
        }
        Ok(packs)
    }

    fn begin(&self, index: usize) -> Result<OpenPack, Failure> {
        let number = PackNumber::new(self.claim.attempt, index).ok_or_else(|| {
            Failure::new(&self.claim.name, format!("it has more than {ATTEMPT_PACKS_MAX} packs"))
        })?;
        let name = self.claim.object(&number.object_name())?;
        let writer = PackWriter::new(self.claim.id, number);
        let object = self.repository.writer(&name)?;
        let mut pack = OpenPack { number, writer, object, name, begun: Instant::now() };
        let header = pack.writer.header();
        pack.write(&header)?;
        Ok(pack)
    }
}

/// A pack that is being written.
struct OpenPack {
    number: PackNumber,
    writer: PackWriter,
    object: Box<dyn ObjectWriter>,
    name: ObjectName,
    begun: Instant,
}

impl OpenPack {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.object.write_all(bytes).map_err(|error: io::Error| Failure::new(&self.name, error))
    }

    fn finish(self) -> Result<PackRecord, Failure> {
        let OpenPack { number, writer, mut object, name, .. } = self;
        let payloads = u64::from(writer.bytes());
        let Ending { bytes, footer } = writer.finish();
        object.write_all(&bytes).map_err(|error| Failure::new(&name, error))?;
        object.finish()?;
        let bytes = payloads + bytes.len() as u64;
        Ok(PackRecord { number, bytes, footer_sha256: footer, unused: Vec::new() })
    }
}
