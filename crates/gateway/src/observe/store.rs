//! `observe_file`: read at the start, replaced as a whole from then on.
//!
//! Whoever has the file holds a lock on it. The next version is locked before it takes the old one's name, so the name always
//! leads to a locked file. A kill at any time leaves the old version or the new one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pgshrink_egress::{Ledger, Limits, file};
use rustix::fs::{Access, FlockOperation, OFlags, flock};

use crate::error::Error;

/// It says who spoke to which database.
const MODE: u32 = 0o600;
/// Attempts to lock a file that another process replaces meanwhile.
const ATTEMPTS_MAX: usize = 10;

/// The file, locked.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    _locked: File,
}

fn fault(path: &Path, reason: impl std::fmt::Display) -> Error {
    Error::config("observe_file", format!("{}: {reason}", path.display()))
}

/// The directory or the disk refuses it.
pub(super) fn cannot_write(path: &Path, source: &io::Error) -> Error {
    let user = rustix::process::geteuid().as_raw();
    fault(
        path,
        format!(
            "cannot be written: {source}; name a file in a directory that user {user} may write to and \
             that has free space"
        ),
    )
}

fn damaged(path: &Path, error: &file::Error) -> Error {
    fault(
        path,
        format!(
            "{error}; move it away to start with empty totals, or name another file: it is never overwritten"
        ),
    )
}

impl Store {
    /// Takes the file and reads it; makes it if there is none.
    pub(super) fn open(path: &Path, limits: Limits) -> Result<(Self, Ledger), Error> {
        let path = followed(path);
        for _ in 0..ATTEMPTS_MAX {
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(MODE)
                .custom_flags(OFlags::NONBLOCK.bits() as i32)
                .open(&path);
            let mut file = opened.map_err(|source| cannot_write(&path, &source))?;
            let about = file.metadata().map_err(|source| fault(&path, source))?;
            if !about.is_file() {
                return Err(fault(&path, "expected a regular file"));
            }
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Err(fault(
                    &path,
                    "another process is using it; stop that process, or give this gateway its own file",
                ));
            }
            let there =
                fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (about.dev(), about.ino()));
            if !there {
                continue;
            }
            let ledger = read(&path, &mut file, about.len(), limits)?;
            return Ok((Self { path, _locked: file }, ledger));
        }
        Err(fault(&path, "other processes keep replacing it; give this gateway its own file"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces it. After an error the old version is still there.
    pub(super) fn save(&mut self, bytes: &[u8]) -> io::Result<()> {
        let next = beside(&self.path);
        let written = write(&next, bytes).and_then(|file| {
            fs::rename(&next, &self.path)?;
            Ok(file)
        });
        match written {
            Ok(file) => self._locked = file,
            Err(error) => {
                // What is left of it would only take room.
                let _ = fs::remove_file(&next);
                return Err(error);
            }
        }
        File::open(directory(&self.path))?.sync_all()
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // One that was left behind may have other permissions.
    file.set_permissions(fs::Permissions::from_mode(MODE))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}

fn read(path: &Path, from: &mut File, size: u64, limits: Limits) -> Result<Ledger, Error> {
    if size > file::SIZE_MAX as u64 {
        let found = usize::try_from(size).unwrap_or(usize::MAX);
        return Err(damaged(path, &file::Error::TooLarge { found }));
    }
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).map_err(|source| fault(path, source))?;
    // Just made, here or by an operator who chose its owner.
    if bytes.is_empty() {
        return Ok(Ledger::new(limits));
    }
    file::read(&bytes, limits).map_err(|error| damaged(path, &error))
}

/// What an [`open`](Store::open) would refuse, without taking the lock, which a running gateway may have.
pub(super) fn problem(path: &Path) -> Option<Error> {
    let path = followed(path);
    if let Err(error) = rustix::fs::access(directory(&path), Access::WRITE_OK | Access::EXEC_OK) {
        return Some(cannot_write(&path, &error.into()));
    }
    let about = match fs::metadata(&path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(fault(&path, error)),
    };
    if !about.is_file() {
        return Some(fault(&path, "expected a regular file"));
    }
    match File::open(&path) {
        Ok(mut file) => read(&path, &mut file, about.len(), pgshrink_egress::DEFAULT_LIMITS).err(),
        Err(error) => Some(fault(&path, error)),
    }
}

/// A link stays a link: what it leads to is replaced.
fn followed(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn beside(path: &Path) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}
