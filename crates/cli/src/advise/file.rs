//! Snapshots in files.

use super::Failure;
use crate::backup::decompress;
use pgshrink_advisor::finding::EgressSummary;
use pgshrink_advisor::{Snapshot, egress};
use pgshrink_backup::base_backup::CompressionAlgorithm;
use pgshrink_codec::block::Compressor;
use pgshrink_codec::{Algorithm, Choice};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Most bytes of a file, and of what is compressed in it.
const FILE_BYTES_MAX: usize = 4 << 30;
/// Most bytes of a gateway's file.
const EGRESS_BYTES_MAX: u64 = 256 << 20;
/// What is compressed at once.
const FRAME_BYTES: usize = 8 << 20;
const ZSTD_LEVEL: i64 = 3;
/// The first bytes of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Writes a snapshot that only its owner may read: as a whole, or not at all.
pub(super) fn save(path: &Path, snapshot: &Snapshot) -> Result<(), Failure> {
    let json = snapshot.to_json().map_err(|error| Failure::new(path.display(), error))?;
    match path.extension().is_some_and(|extension| extension == "zst") {
        true => write(path, &compressed(path, &json)?),
        false => write(path, &json),
    }
}

/// Writes a file that only its owner may read. Until all of it is written, what was there before stays.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(path.display(), error);
    let path = match target(path)? {
        Target::File(path) => path,
        Target::Stream => {
            let mut stream = OpenOptions::new().write(true).open(path).map_err(failed)?;
            return stream.write_all(bytes).map_err(failed);
        }
    };
    let mut file = beside(&path)?;
    let written = file.write_all(bytes).and_then(|()| file.as_file().sync_all());
    written.map_err(|error| Failure::new(path.display(), plain(&error)))?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Looks whether a file can be written here, before work is done that would be lost.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    match target(path)? {
        Target::File(path) => beside(&path).map(drop),
        Target::Stream => Ok(()),
    }
}

/// Whether two paths are of one file, that is there or not. Devices and pipes are nobody's.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| match target(path) {
        Ok(Target::File(path)) => {
            let folder = fs::canonicalize(folder(&path)).ok()?;
            Some(folder.join(path.file_name()?))
        }
        _ => None,
    };
    place(one).is_some_and(|place_of_one| place(other) == Some(place_of_one))
}

/// What is written to.
enum Target {
    /// A file that is there or not. Not a link: what a link leads to.
    File(PathBuf),
    /// A device or a pipe: nothing may take its place.
    Stream,
}

fn target(path: &Path) -> Result<Target, Failure> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            Err(Failure::new(path.display(), "it is a directory, expected a file: add a file name"))
        }
        Ok(found) if !found.is_file() => Ok(Target::Stream),
        Ok(_) => {
            fs::canonicalize(path).map(Target::File).map_err(|error| Failure::new(path.display(), error))
        }
        Err(_) => Ok(Target::File(path.to_owned())),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that takes the place of another one when it is complete. It has mode 0600 from its beginning.
fn beside(path: &Path) -> Result<NamedTempFile, Failure> {
    NamedTempFile::new_in(folder(path)).map_err(|error| {
        let reason = format!("cannot write a file in {}: {}", folder(path).display(), plain(&error));
        Failure::new(path.display(), reason)
    })
}

/// Without the name of the temporary file, which says nothing to anybody.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" at path ").next().unwrap_or_default().to_owned()
}

/// Reads a snapshot, whoever wrote it.
pub(super) fn load(path: &Path) -> Result<Snapshot, Failure> {
    let at = || path.display();
    let missing = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => {
            Failure::new(at(), "the file does not exist; pgshrink advise --save FILE writes one")
        }
        _ => Failure::new(at(), error),
    };
    let file = File::open(path).map_err(missing)?;
    let mut bytes = Vec::new();
    let most = FILE_BYTES_MAX as u64;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| Failure::new(at(), error))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(Failure::new(at(), format!("more than {most} bytes, too large for a snapshot")));
    }
    let json = if bytes.starts_with(&ZSTD) { decompressed(path, &bytes)? } else { bytes };
    Snapshot::parse(&json).map_err(|error| {
        Failure::new(at(), format!("{error}; expected a file written by pgshrink advise --save"))
    })
}

/// Reads the file of `pgshrink gateway --observe`.
pub(super) fn load_egress(path: &Path) -> Result<EgressSummary, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(path.display(), error);
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    file.take(EGRESS_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > EGRESS_BYTES_MAX {
        return Err(Failure::new(path.display(), "too large for an observe_file of pgshrink gateway"));
    }
    egress::parse(&bytes).map_err(|error| failed(&error))
}

/// Frames of zstd, each of a part of it.
fn compressed(path: &Path, json: &[u8]) -> Result<Vec<u8>, Failure> {
    let choice = Choice::new(Algorithm::Zstd, ZSTD_LEVEL);
    let failed = |error: pgshrink_codec::Error| Failure::new(path.display(), error);
    let choice = choice.map_err(failed)?;
    let (mut compressor, mut out) = (Compressor::new(), Vec::new());
    for part in json.chunks(FRAME_BYTES) {
        compressor.compress(choice, part, &mut out).map_err(failed)?;
    }
    Ok(out)
}

fn decompressed(path: &Path, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::new(path.display(), format!("damaged zstd data: {error}"));
    let plain = decompress::plain(CompressionAlgorithm::Zstd, bytes).map_err(failed)?;
    let mut json = Vec::new();
    plain.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut json).map_err(failed)?;
    if json.len() > FILE_BYTES_MAX {
        let what = format!("it decompresses to more than {FILE_BYTES_MAX} bytes, too large for a snapshot");
        return Err(Failure::new(path.display(), what));
    }
    Ok(json)
}
