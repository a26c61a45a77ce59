//! The directory of one run: stand-ins' sockets and private copies, gone when the run is over.
//!
//! A run that was killed outright cannot clean up; the next one does it. A directory is in use as long as its lock
//! is held, which the kernel ends with its process.

use super::error::RunError;
use super::plan::PrivateFile;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "pgshrink-run-";
const LOCK: &str = "lock";
/// Longest base directory: the rest of `sun_path` (108 bytes) must hold `/pgshrink-run-XXXXXX/NNNN/.s.PGSQL.65535`.
const BASE_SIZE_MAX: usize = 60;

/// A directory that only this user can enter.
pub(crate) struct PrivateDir {
    dir: TempDir,
    _lock: File,
}

impl PrivateDir {
    /// Makes a directory, and removes those of runs that were killed.
    pub(crate) fn make() -> Result<Self, RunError> {
        let base = base();
        let failed = |source| RunError::Directory { dir: base.clone(), source };
        sweep(&base);
        let owner_only = fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(owner_only)
            .tempdir_in(&base)
            .map_err(failed)?;
        let lock = File::create_new(dir.path().join(LOCK)).map_err(failed)?;
        lock.try_lock().map_err(|error| failed(error.into()))?;
        Ok(Self { dir, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes the directory of a stand-in.
    pub(crate) fn add_dir(&self, path: &Path) -> Result<(), RunError> {
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(|source| RunError::Write { path: path.to_owned(), source })
    }

    /// Writes a file that only this user can read.
    pub(crate) fn add_file(&self, file: &PrivateFile) -> Result<(), RunError> {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&file.path);
        let written = opened.and_then(|mut open| open.write_all(&file.text));
        written.map_err(|source| RunError::Write { path: file.path.clone(), source })
    }
}

/// `$TMPDIR` if a socket's path fits below it and libpq can name it in a list of hosts.
fn base() -> PathBuf {
    let usable = |dir: &Path| {
        let bytes = dir.as_os_str().as_bytes();
        dir.is_absolute() && bytes.len() <= BASE_SIZE_MAX && !bytes.contains(&b',')
    };
    Some(std::env::temp_dir()).filter(|dir| usable(dir)).unwrap_or_else(|| PathBuf::from("/tmp"))
}

/// Removes this user's directories that nobody holds.
fn sweep(base: &Path) {
    let user = rustix::process::geteuid().as_raw();
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()))
    {
        let path = entry.path();
        let mine = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir() && found.uid() == user);
        // Without a lock file it is just being made.
        if mine && abandoned(&path.join(LOCK)).unwrap_or(false) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn abandoned(lock: &Path) -> io::Result<bool> {
    let lock =
        OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(lock)?;
    Ok(lock.try_lock().is_ok())
}
