//! `pgshrink restore`: a backup of a repository to a data directory.
//!
//! Packs are read in parallel and in any order, and every chunk is written to its place in its file. `global/pg_control` has
//! its name last, so no server starts on a data directory that is not whole.

use super::Failure;
use super::configuration::{self, Collected};
use super::expected::Expected;
use super::failure::first_cause;
use super::places::{self, Access, Destination, MANIFEST_UNTIL_THEN, Places};
use super::unfinished::Unfinished;
use super::whole::Whole;
use pgshrink_backup::checksum::Crc32c;
use pgshrink_backup::chunk::{ChunkDecoder, Codec};
use pgshrink_backup::files::content;
use pgshrink_backup::pack::{Area, Chunk, Footer, PackedFile, Sha256};
use pgshrink_backup::wal::WalSegmentSize;
use pgshrink_repository::ObjectName;
use sha2::Digest;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Bytes of payloads that are read at a time.
const READ_BYTES_MAX: usize = 4 << 20;

/// Restores a backup. An error of `progress` ends it.
pub(super) fn restore(
    whole: &Whole<'_>,
    to: &Destination,
    threads: usize,
    progress: &(dyn Fn(u64) -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    let expected = Expected::of(whole)?;
    let spaces = whole.record.tablespaces.iter().map(|space| (space.oid, space.location.as_bytes()));
    let places = Places::new(to, spaces, Access::Owner)?;
    if let Some(folder) = &to.configuration {
        let spaces = places.spaces().map(|(_, place)| place);
        configuration::check_apart(folder, std::iter::once(&*to.into).chain(spaces))?;
    }
    let found = match to.resume {
        true => Unfinished::find(&to.into, whole)?,
        false => None,
    };
    let is_resumed = found.is_some();
    let unfinished = match found {
        Some(unfinished) => {
            places.make_again()?;
            unfinished
        }
        None => {
            places.check_empty()?;
            places.check_space(expected.bytes().into_iter())?;
            places.make()?;
            Unfinished::begin(&to.into, whole)?
        }
    };
    places.make_folders(&whole.record.directories)?;
    for path in expected.empty() {
        create(&places.path(path))?;
    }
    let has = |file: &PackedFile, chunk: &Chunk| -> Result<bool, Failure> {
        let has = is_resumed && file.area == Area::Data && is_there(&places.path(&file.path), chunk)?;
        if has {
            progress(chunk.facts.raw_bytes.into())?;
        }
        Ok(has)
    };
    let collected = Collected::of(&whole.record)?;
    let take = |file: &PackedFile, chunk: &Chunk, raw: &[u8]| {
        if collected.take(file, chunk, raw)? {
            return Ok(());
        }
        write(&places.path(&file.path), chunk.facts.offset, raw)?;
        progress(raw.len() as u64)
    };
    read_packs(whole, &expected, threads, (&has, &take))?;
    expected.check()?;
    let files = collected.finish()?;
    let written = match (&to.configuration, &whole.record.configuration) {
        (Some(folder), Some(found)) if !(files.is_empty() && found.directories.is_empty()) => {
            let files = files.iter().map(|(file, content)| (*file, &content[..]));
            Some(configuration::write(folder, found, files)?)
        }
        _ => None,
    };
    finish(whole, to, &places)?;
    unfinished.end()?;
    if let Some(written) = written {
        written.keep();
    }
    Ok(())
}

/// Whether a file has the bytes of a chunk already, where they belong.
fn is_there(path: &Path, chunk: &Chunk) -> Result<bool, Failure> {
    let mut raw = vec![0; chunk.facts.raw_bytes as usize];
    match File::open(path).and_then(|file| file.read_exact_at(&mut raw, chunk.facts.offset)) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
            return Ok(false);
        }
        Err(error) => return Err(Failure::at(path)(error)),
    }
    Ok(Crc32c::of(&raw).0 == chunk.facts.raw_checksum
        && Sha256(sha2::Sha256::digest(&raw).into()) == chunk.facts.sha256)
}

/// Who has chunks already. They are not read.
pub(super) type Has<'h> = &'h (dyn Fn(&PackedFile, &Chunk) -> Result<bool, Failure> + Sync);

/// Who gets chunks.
pub(super) type Take<'t> = &'t (dyn Fn(&PackedFile, &Chunk, &[u8]) -> Result<(), Failure> + Sync);

/// Reads all packs, and hands on every chunk after it was proved.
pub(super) fn read_packs(
    whole: &Whole<'_>,
    expected: &Expected,
    threads: usize,
    (has, take): (Has<'_>, Take<'_>),
) -> Result<(), Failure> {
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let read = || {
        let mut reader =
            PackReader { whole, expected, has, take, decoder: ChunkDecoder::new(), raw: Vec::new() };
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
    has: Has<'w>,
    take: Take<'w>,
    decoder: ChunkDecoder,
    raw: Vec<u8>,
}

impl PackReader<'_> {
    fn read(&mut self, index: usize) -> Result<(), Failure> {
        let (object, footer) = self.whole.footer(index)?;
        let unused = &self.whole.record.packs[index].unused;
        let chunks = footer.chunks.iter().zip(0..).filter(|(_, index)| unused.binary_search(index).is_err());
        let mut missing = Vec::new();
        for (chunk, _) in chunks {
            let file = &footer.files[chunk.file];
            self.expected.admit(file, chunk)?;
            match (self.has)(file, chunk)? {
                true => self.expected.take(file, chunk)?,
                false => missing.push(chunk),
            }
        }
        let mut rest = &missing[..];
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
    places::write_at(&create(path)?, bytes, offset).map_err(Failure::at(path))
}

/// Makes all of it durable, and then a data directory.
fn finish(whole: &Whole<'_>, to: &Destination, places: &Places) -> Result<(), Failure> {
    let size = WalSegmentSize::new(whole.record.wal_segment_bytes)?;
    let names = whole.record.wal.iter().map(|file| file.path.name());
    places.mark_archived(names, size, whole.record.stop_lsn)?;
    let manifest = to.into.join(MANIFEST_UNTIL_THEN);
    let object = whole.manifest_object()?;
    let (size, mut at) = (whole.repository.size(&object)?, 0);
    while at < size {
        let bytes = whole.repository.read(&object, at, (size - at).min(READ_BYTES_MAX as u64) as usize)?;
        write(&manifest, at, &bytes)?;
        at += bytes.len() as u64;
    }
    places.finish(&manifest)
}
