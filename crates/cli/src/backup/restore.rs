//! `pgshrink restore`: a backup of a repository to a data directory.
//!
//! Packs are read in parallel and in any order, and every chunk is written to its place in its file. `global/pg_control` has
//! its name last, so no server starts on a data directory that is not whole.

use super::Failure;
use super::expected::Expected;
use super::failure::first_cause;
use super::whole::Whole;
use pgshrink_backup::BackupPath;
use pgshrink_backup::checksum::Crc32c;
use pgshrink_backup::chunk::{ChunkDecoder, Codec};
use pgshrink_backup::files::content;
use pgshrink_backup::pack::{Chunk, Footer, PackedFile, Sha256};
use pgshrink_backup::record::Record;
use pgshrink_backup::wal::{WalSegmentName, WalSegmentSize};
use pgshrink_repository::ObjectName;
use sha2::Digest;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Bytes of payloads that are read at a time.
const READ_BYTES_MAX: usize = 4 << 20;
/// What `global/pg_control` is called until all else is there.
const CONTROL: &str = "global/pg_control";
const CONTROL_UNTIL_THEN: &str = "global/pg_control.pgshrink";

/// Where a backup goes.
pub(super) struct Destination {
    pub(super) into: PathBuf,
    /// Other places for tablespaces, by where they were.
    pub(super) mapping: HashMap<String, PathBuf>,
}

/// Restores a backup. An error of `progress` ends it.
pub(super) fn restore(
    whole: &Whole<'_>,
    to: &Destination,
    threads: usize,
    progress: &(dyn Fn(u64) -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    let expected = Expected::of(whole)?;
    let spaces = places(whole, to)?;
    let all = || std::iter::once(&to.into).chain(spaces.values());
    let mut places = HashSet::new();
    if let Some(twice) = all().find(|place| !places.insert(std::path::absolute(place).unwrap_or_default())) {
        return Err(Failure::new(
            twice.display(),
            "two tablespaces, or one and the data directory, would go there",
        ));
    }
    all().try_for_each(|place| check_empty(place))?;
    check_space(to, &spaces, &expected.bytes())?;
    all().try_for_each(|place| make(place))?;
    make_directories(whole, to, &spaces)?;
    for path in expected.empty() {
        create(&to.path(path))?;
    }
    read_packs(whole, &expected, threads, &|file, chunk, raw| {
        write(&to.path(&file.path), chunk.facts.offset, raw)?;
        progress(raw.len() as u64)
    })?;
    expected.check()?;
    finish(whole, to, &spaces)
}

impl Destination {
    fn path(&self, path: &BackupPath) -> PathBuf {
        let name = match path.as_bytes() == CONTROL.as_bytes() {
            true => CONTROL_UNTIL_THEN.as_bytes(),
            false => path.as_bytes(),
        };
        self.into.join(OsStr::from_bytes(name))
    }
}

/// Who gets chunks.
pub(super) type Take<'t> = &'t (dyn Fn(&PackedFile, &Chunk, &[u8]) -> Result<(), Failure> + Sync);

/// Reads all packs, and hands on every chunk after it was proved.
pub(super) fn read_packs(
    whole: &Whole<'_>,
    expected: &Expected,
    threads: usize,
    take: Take<'_>,
) -> Result<(), Failure> {
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let read = || {
        let mut reader = PackReader { whole, expected, take, decoder: ChunkDecoder::new(), raw: Vec::new() };
        while !has_failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= whole.record.packs.len() {
                break;
            }
            let done = reader.read(index);
            has_failed.fetch_or(done.is_err(), Ordering::Relaxed);
            done?;
        }
        Ok(())
    };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        let panicked = |_| Err(Failure::new("pgshrink", "a thread has panicked; please report it"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    first_cause(results).map(|_| ())
}

struct PackReader<'w> {
    whole: &'w Whole<'w>,
    expected: &'w Expected,
    take: Take<'w>,
    decoder: ChunkDecoder,
    raw: Vec<u8>,
}

impl PackReader<'_> {
    fn read(&mut self, index: usize) -> Result<(), Failure> {
        let (object, footer) = self.whole.footer(index)?;
        let unused = &self.whole.record.packs[index].unused;
        let chunks = footer.chunks.iter().zip(0..).filter(|(_, index)| unused.binary_search(index).is_err());
        let chunks: Vec<_> = chunks.map(|(chunk, _)| chunk).collect();
        let mut rest = &chunks[..];
        while let Some(first) = rest.first() {
            let (mut count, mut bytes) = (0, 0);
            // As many as one read takes and lie side by side.
            while let Some(chunk) = rest.get(count) {
                let more = chunk.stored_bytes as usize;
                if count > 0
                    && (bytes + more > READ_BYTES_MAX || chunk.at as usize != first.at as usize + bytes)
                {
                    break;
                }
                (count, bytes) = (count + 1, bytes + more);
            }
            let (now, later) = rest.split_at(count);
            let payloads = self.whole.repository.read(&object, first.at.into(), bytes)?;
            let mut payloads = &payloads[..];
            for chunk in now {
                let (payload, behind) = payloads.split_at(chunk.stored_bytes as usize);
                self.chunk(&object, &footer, chunk, payload)?;
                payloads = behind;
            }
            rest = later;
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        object: &ObjectName,
        footer: &Footer,
        chunk: &Chunk,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let file = &footer.files[chunk.file];
        let damaged = |what: &dyn std::fmt::Display| {
            let place = format!(
                "{} at byte {}, bytes {} to {} of {}",
                object,
                chunk.at,
                chunk.facts.offset,
                chunk.facts.offset + u64::from(chunk.facts.raw_bytes),
                file.path
            );
            Failure::damage(place, what)
        };
        if !chunk.is_payload(payload) {
            return Err(damaged(&"the chunk is damaged: its CRC-32C is not the footer's"));
        }
        let content = content(file.area, &file.path, chunk.facts.offset);
        self.raw.clear();
        let codec = Codec::from_byte(chunk.facts.codec).map_err(|error| damaged(&error))?;
        self.decoder
            .decode(codec, payload, content, chunk.facts.raw_bytes as usize, &mut self.raw)
            .map_err(|error| damaged(&error))?;
        let sha256 = Sha256(sha2::Sha256::digest(&self.raw).into());
        if Crc32c::of(&self.raw).0 != chunk.facts.raw_checksum || sha256 != chunk.facts.sha256 {
            return Err(damaged(&"the chunk decodes to other bytes than were backed up"));
        }
        self.expected.admit(file, chunk)?;
        // In this order: a file is whole when its bytes are written.
        (self.take)(file, chunk, &self.raw)?;
        self.expected.take(file, chunk)
    }
}

/// Where tablespaces go, by their OID.
fn places(whole: &Whole<'_>, to: &Destination) -> Result<HashMap<u32, PathBuf>, Failure> {
    let spaces = &whole.record.tablespaces;
    if let Some(unknown) = to.mapping.keys().find(|from| spaces.iter().all(|space| space.location != **from))
    {
        let known: Vec<_> = spaces.iter().map(|space| space.location.as_str()).collect();
        let what = format!("the backup has no tablespace there; it has [{}]", known.join(", "));
        return Err(Failure::new(unknown, what));
    }
    let place =
        |location: &String| to.mapping.get(location).cloned().unwrap_or_else(|| PathBuf::from(location));
    Ok(spaces.iter().map(|space| (space.oid, place(&space.location))).collect())
}

/// Refuses a directory that has something in it.
fn check_empty(folder: &Path) -> Result<(), Failure> {
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                Err(Failure::new(folder.display(), "it is not empty; restore into an empty directory"))
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::at(folder)(error)),
    }
}

/// Makes a directory, and those above it.
fn make(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(Failure::at(folder))
}

/// Looks whether all files fit into the filesystems where they go. The directories may not be there yet.
fn check_space(
    to: &Destination,
    spaces: &HashMap<u32, PathBuf>,
    bytes: &HashMap<Option<u32>, u64>,
) -> Result<(), Failure> {
    let mut needed: HashMap<u64, (u64, &Path)> = HashMap::new();
    for (space, bytes) in bytes {
        let folder = space.map_or(Some(&to.into), |oid| spaces.get(&oid));
        let folder = folder.ok_or_else(|| {
            Failure::damage("backup_manifest", "it has files of a tablespace that backup.json does not list")
        })?;
        let there = folder.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("."));
        let device = fs::metadata(there).map_err(Failure::at(there))?.dev();
        needed.entry(device).or_insert((0, there)).0 += bytes;
    }
    for (needed, there) in needed.into_values() {
        let space = rustix::fs::statvfs(there).map_err(|error| Failure::at(there)(error.into()))?;
        let found = space.f_bavail.saturating_mul(space.f_frsize);
        if found < needed {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let what =
                format!("{} MiB are needed on its filesystem, and {} MiB are free", mib(needed), mib(found));
            return Err(Failure::new(there.display(), what));
        }
    }
    Ok(())
}

fn make_directories(
    whole: &Whole<'_>,
    to: &Destination,
    spaces: &HashMap<u32, PathBuf>,
) -> Result<(), Failure> {
    let below = |path: &Path| match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Failure::at(path)(error)),
        _ => Ok(()),
    };
    for folder in ["pg_tblspc", "pg_wal", "pg_wal/archive_status"] {
        below(&to.into.join(folder))?;
    }
    for (oid, place) in spaces {
        let link = to.into.join(format!("pg_tblspc/{oid}"));
        let place = std::path::absolute(place).map_err(Failure::at(place))?;
        symlink(&place, &link).map_err(Failure::at(&link))?;
    }
    whole.record.directories.iter().try_for_each(|path| below(&to.path(path)))
}

fn create(path: &Path) -> Result<File, Failure> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(Failure::at(path))
}

fn write(path: &Path, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
    create(path)?.write_all_at(bytes, offset).map_err(Failure::at(path))
}

/// Whether a file of `pg_wal` is a history, or a segment that ends before the backup does.
fn is_whole(name: &OsStr, record: &Record) -> bool {
    let size = WalSegmentSize::new(record.wal_segment_bytes).ok();
    let segment = name.to_str().and_then(|name| name.parse::<WalSegmentName>().ok());
    match (segment, size) {
        (Some(segment), Some(size)) => segment
            .start(size)
            .is_ok_and(|start| start.checked_add(size.bytes()).is_some_and(|end| end <= record.stop_lsn)),
        _ => name.as_bytes().ends_with(b".history"),
    }
}

/// Makes all of it durable, and then a data directory.
fn finish(whole: &Whole<'_>, to: &Destination, spaces: &HashMap<u32, PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(to.into.join("pg_wal")).map_err(Failure::at(&to.into))? {
        let name = entry.map_err(Failure::at(&to.into))?.file_name();
        // What is whole need not be archived again. The server goes on in the last segment.
        if is_whole(&name, &whole.record) {
            let mut done = name;
            done.push(".done");
            create(&to.into.join("pg_wal/archive_status").join(done))?;
        }
    }
    let manifest = to.into.join("backup_manifest");
    let object = ObjectName::new(&format!("{}/backup_manifest", whole.name))?;
    let (size, mut at) = (whole.repository.size(&object)?, 0);
    while at < size {
        let bytes = whole.repository.read(&object, at, (size - at).min(READ_BYTES_MAX as u64) as usize)?;
        write(&manifest, at, &bytes)?;
        at += bytes.len() as u64;
    }
    for place in std::iter::once(&to.into).chain(spaces.values()) {
        let folder = File::open(place).map_err(Failure::at(place))?;
        rustix::fs::syncfs(&folder).map_err(|error| Failure::at(place)(error.into()))?;
    }
    let control = to.into.join(CONTROL);
    fs::rename(to.into.join(CONTROL_UNTIL_THEN), &control).map_err(Failure::at(&control))?;
    let global = to.into.join("global");
    File::open(&global).and_then(|folder| folder.sync_all()).map_err(Failure::at(&global))?;
    Ok(())
}
