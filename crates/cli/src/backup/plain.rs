//! The plain format: a data directory that is ready to start.
//!
//! ```text
//!   Job --> writers: each chunk to its place in its file, which stays open until its last chunk
//!   then: empty files and directories, everything durable, the manifest's name, the control file's name
//! ```

use super::Failure;
use super::chunks::{self, Job, Take};
use super::destination::Destination;
use super::failure::{broken_off, first_cause};
use super::formats::{Asked, Written};
use super::interrupt;
use super::places::{Access, MANIFEST_UNTIL_THEN, Made, Places, write_at};
use super::room::check_empty;
use super::source::Server;
use super::transfer::{self, Progress, Route, Sink, Transferred, joined};
use pgshrink_backup::base_backup::Tablespace;
use pgshrink_backup::manifest::{Item, Reader};
use pgshrink_backup::pack::PackedFile;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;

/// Threads that receive and decompress. Only what is left of those that were asked for can do more than write.
const BUSY_THREADS: usize = 2;
/// Bytes of the manifest that are read at a time.
const MANIFEST_READ_BYTES: usize = 64 << 10;

/// Takes a backup. If it fails, what it has written is removed.
pub(super) fn take(
    server: &mut Server,
    asked: &Asked<'_>,
    to: &Destination,
    threads: usize,
    progress: Progress<'_>,
) -> Result<Written, Failure> {
    // What is in the way is known before the server makes its checkpoint, but for tablespaces that are not mapped.
    std::iter::once(&to.into).chain(to.mapping.values()).try_for_each(|place| check_empty(place))?;
    let access = Access::of_mode(&server.setting("data_directory_mode")?);
    let mut written = Written::new(asked, server);
    let segment_size = server.wal_segment_size();
    let (route, wal) = server.begin(&asked.options)?;
    let places = Places::new(to, spaces(route.tablespaces()), access)?;
    places.check_empty()?;
    let sizes = route.tablespaces().iter().map(|tablespace| {
        (tablespace.space.as_ref().map(|(oid, _)| *oid), tablespace.size_bytes.unwrap_or_default())
    });
    places.check_space(sizes)?;
    let made = places.make()?;
    let guard = Guard(Some(made));
    let until_then = to.into.join(MANIFEST_UNTIL_THEN);
    let mut manifest = access.create(&until_then).map_err(Failure::at(&until_then))?;
    let files = Files { places: &places, threads: writers(threads) };
    let done = transfer::run(route, wal, &files, &mut manifest, progress)?;
    drop(manifest);
    make_empty(&places, &until_then)?;
    places.make_folders(&done.fetched.directories)?;
    let Transferred { start, fetched, wal, .. } = done;
    places.mark_archived(wal.files.iter().map(|file| file.path.name()), segment_size, fetched.stop.lsn)?;
    interrupt::check()?;
    places.finish(&until_then)?;
    guard.keep();
    written.add_fetched(start, &fetched, &wal);
    written.add_spaces(&places);
    Ok(written)
}

/// Of so many threads, those that do nothing but write.
pub(super) fn writers(threads: usize) -> usize {
    threads.saturating_sub(BUSY_THREADS)
}

/// OIDs and locations.
fn spaces(tablespaces: &[Tablespace]) -> impl Iterator<Item = (u32, &[u8])> + Clone {
    tablespaces.iter().filter_map(|tablespace| tablespace.space.as_ref()).map(|(oid, at)| (*oid, &at[..]))
}

/// Removes what was made, unless it is told to keep it.
struct Guard(Option<Made>);

impl Guard {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(made) = &self.0 {
            made.remove();
        }
    }
}

/// Makes the files of no bytes, which no chunk made, by the manifest.
fn make_empty(places: &Places, manifest: &Path) -> Result<(), Failure> {
    let mut from = std::fs::File::open(manifest).map_err(Failure::at(manifest))?;
    let (mut reader, mut bytes) = (Reader::new(), vec![0; MANIFEST_READ_BYTES]);
    loop {
        let read = from.read(&mut bytes).map_err(Failure::at(manifest))?;
        if read == 0 {
            break;
        }
        let mut piece = &bytes[..read];
        while let Some(item) = reader.next(&mut piece)? {
            if let Item::File(entry) = item
                && entry.size == 0
            {
                places.create(&entry.path, None)?;
            }
        }
    }
    reader.finish()?;
    Ok(())
}

/// Chunks into files.
struct Files<'p> {
    places: &'p Places,
    /// That do nothing but write. None: who has a chunk writes it.
    threads: usize,
}

impl Sink for Files<'_> {
    type Kept = ();

    fn here(&self) -> Option<&dyn Take> {
        (self.threads == 0).then_some(self)
    }

    fn keep(&self, chunks: Receiver<Job>) -> Result<(), Failure> {
        let (waiting, has_failed) = (Mutex::new(chunks), AtomicBool::new(false));
        let write = || {
            loop {
                let job = waiting.lock().map_err(|_| broken_off())?.recv();
                let Ok(job) = job else { return Ok(()) };
                if has_failed.load(Ordering::Relaxed) {
                    return Err(broken_off());
                }
                let written = self.take(job);
                has_failed.fetch_or(written.is_err(), Ordering::Relaxed);
                written?;
            }
        };
        let results = thread::scope(|scope| {
            let writers: Vec<_> = (0..self.threads).map(|_| scope.spawn(write)).collect();
            writers.into_iter().map(joined).collect()
        });
        first_cause(results).map(|_| ())
    }
}

impl Take for Files<'_> {
    fn take(&self, job: Job) -> Result<(), Failure> {
        let PackedFile { path, permissions, .. } = job.source.packed();
        let file = job.source.file(|| self.places.create(path, *permissions))?;
        write_at(&file, &job.raw, job.offset).map_err(|error| Failure::at(&self.places.path(path))(error))?;
        chunks::give_back(job.raw);
        Ok(())
    }
}
