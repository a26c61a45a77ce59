//! `pgshrink restore`: a backup of a repository to a data directory.
//!
//! Packs are read in parallel and in any order, and every chunk is written to its place in its file. `global/pg_control` has
//! its name last, so no server starts on a data directory that is not whole.

use super::Failure;
use super::configuration::{self, Collected};
use super::destination::Destination;
use super::expected::Expected;
use super::packs::{READ_BYTES_MAX, read_packs};
use super::places::{self, Access, MANIFEST_UNTIL_THEN, Places};
use super::unfinished::Unfinished;
use super::whole::Whole;
use pgshrink_backup::checksum::Crc32c;
use pgshrink_backup::pack::{Area, Blake3, Chunk, PackedFile};
use pgshrink_backup::record::Record;
use pgshrink_backup::wal::WalSegmentSize;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Restores a backup. An error of `progress` ends it.
pub(super) fn restore(
    whole: &Whole<'_>,
    to: &Destination,
    threads: usize,
    progress: &(dyn Fn(u64) -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    let expected = Expected::of(whole)?;
    let places = places_for(whole, to, &expected)?;
    let (unfinished, is_resumed) = begin(whole, to, &places, &expected)?;
    places.make_folders(&whole.record.directories)?;
    for path in expected.empty() {
        places.open(path, None)?;
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
        let open = places.open(&file.path, file.permissions)?;
        let written = places::write_at(&open, raw, chunk.facts.offset);
        written.map_err(|error| Failure::at(&places.path(&file.path))(error))?;
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

/// Where its files go. Its configuration goes elsewhere.
fn places_for(whole: &Whole<'_>, to: &Destination, expected: &Expected) -> Result<Places, Failure> {
    let in_place = in_place(&whole.record, expected);
    let spaces = whole.record.tablespaces.iter().map(|space| (space.oid, &*space.location));
    let spaces = spaces.chain(in_place.iter().map(|(oid, location)| (*oid, &**location)));
    let spaces = spaces.map(|(oid, location)| (oid, location.as_bytes()));
    let places = Places::new(to, spaces, Access::of_record(&whole.record))?;
    if let Some(folder) = &to.configuration {
        let spaces = places.spaces().map(|(_, place)| place);
        configuration::check_apart(folder, std::iter::once(&*to.into).chain(spaces))?;
    }
    Ok(places)
}

/// Makes the directories, or finds those of a restore that was interrupted, and says whether it does.
fn begin(
    whole: &Whole<'_>,
    to: &Destination,
    places: &Places,
    expected: &Expected,
) -> Result<(Unfinished, bool), Failure> {
    let found = match to.resume {
        true => Unfinished::find(&to.into, whole)?,
        false => {
            Unfinished::check_absent(&to.into)?;
            None
        }
    };
    if let Some(unfinished) = found {
        places.make_again()?;
        return Ok((unfinished, true));
    }
    places.check_empty()?;
    places.check_space(expected.bytes().into_iter())?;
    places.make()?;
    Ok((Unfinished::begin(&to.into, whole)?, false))
}

/// OIDs and directories of the tablespaces that lie in `pg_tblspc` itself (`allow_in_place_tablespaces`). The record does not
/// list them, as they are a part of the data directory.
fn in_place(record: &Record, expected: &Expected) -> BTreeMap<u32, String> {
    let listed: HashSet<u32> = record.tablespaces.iter().map(|space| space.oid).collect();
    let of_files = expected.bytes().into_keys().flatten();
    let found = of_files.chain(record.directories.iter().filter_map(places::tablespace));
    found.filter(|oid| !listed.contains(oid)).map(|oid| (oid, format!("pg_tblspc/{oid}"))).collect()
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
    Ok(Crc32c::of(&raw).0 == chunk.facts.raw_checksum && Blake3::of(&raw) == chunk.facts.blake3)
}

/// Makes all of it durable, and then a data directory.
fn finish(whole: &Whole<'_>, to: &Destination, places: &Places) -> Result<(), Failure> {
    let size = WalSegmentSize::new(whole.record.wal_segment_bytes)?;
    let names = whole.record.wal.iter().map(|file| file.path.name());
    places.mark_archived(names, size, whole.record.stop_lsn)?;
    let manifest = to.into.join(MANIFEST_UNTIL_THEN);
    let file = places.open_at(&manifest, None)?;
    let object = whole.manifest_object()?;
    let (size, mut at) = (whole.repository.size(&object)?, 0);
    while at < size {
        let bytes = whole.repository.read(&object, at, (size - at).min(READ_BYTES_MAX as u64) as usize)?;
        places::write_at(&file, &bytes, at).map_err(Failure::at(&manifest))?;
        at += bytes.len() as u64;
    }
    places.finish(&manifest)
}
