//! The space that a backup is restored to, and the private directory of the server's socket.

use super::super::Failure;
use super::super::destination::Destination;
use pgshrink_backup::record::Record;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "pgshrink-verify-";
/// Longest directory for sockets: `sun_path` has 108 bytes with its zero, and `/pgshrink-verify-XXXXXX/.s.PGSQL.1.lock` comes behind it.
const SOCKET_BASE_BYTES_MAX: usize = 60;

/// Directories that are removed when this is dropped.
pub(super) struct Scratch {
    root: PathBuf,
    /// Whether it was made here, or was there and empty.
    is_made: bool,
    keep: bool,
    sockets: TempDir,
}

impl Scratch {
    pub(super) fn make(asked: Option<&Path>, keep: bool) -> Result<Scratch, Failure> {
        let sockets = private(&socket_base()).map_err(|error| {
            let what = format!(
                "could not create a directory for the server's socket: {error}. Set TMPDIR to a directory \
                 that this user may write to, of at most {SOCKET_BASE_BYTES_MAX} bytes"
            );
            Failure::new("--boot", what)
        })?;
        let (root, is_made) = match asked {
            Some(folder) => {
                let folder = std::path::absolute(folder).map_err(Failure::at(folder))?;
                let is_made = make(&folder)?;
                (folder, is_made)
            }
            None => (private(&std::env::temp_dir())?.keep(), true),
        };
        Ok(Scratch { root, is_made, keep, sockets })
    }

    pub(super) fn path(&self) -> &Path {
        &self.root
    }

    /// The data directory.
    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Below which configuration files from outside of the data directory are.
    pub(super) fn configuration(&self) -> PathBuf {
        self.root.join("configuration")
    }

    /// A file beside the data directory.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Where the server's socket is. Only this user can enter.
    pub(super) fn sockets(&self) -> &Path {
        self.sockets.path()
    }

    /// Where a backup goes: all its tablespaces below this directory.
    pub(super) fn destination(&self, record: &Record) -> Destination {
        let place = |oid: u32| self.root.join("tablespaces").join(oid.to_string());
        let spaces = record.tablespaces.iter();
        let mapping: HashMap<_, _> = spaces.map(|space| (space.location.clone(), place(space.oid))).collect();
        Destination { into: self.data(), mapping, resume: false, configuration: Some(self.configuration()) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        let removed = match self.is_made {
            true => fs::remove_dir_all(&self.root),
            false => empty(&self.root),
        };
        if let Err(error) = removed {
            eprintln!("pgshrink: {}: {error}; remove it yourself", self.root.display());
        }
    }
}

fn private(base: &Path) -> Result<TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    builder
        .prefix(PREFIX)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(base)
        .map_err(Failure::at(base))
}

/// `$TMPDIR` if a socket's path fits below it.
fn socket_base() -> PathBuf {
    let fits = |dir: &PathBuf| {
        let bytes = dir.as_os_str().as_bytes();
        // The server and libpq take lists of directories.
        dir.is_absolute() && bytes.len() <= SOCKET_BASE_BYTES_MAX && !bytes.contains(&b',')
    };
    Some(std::env::temp_dir()).filter(fits).unwrap_or_else(|| PathBuf::from("/tmp"))
}

/// False: it was there, and is empty.
fn make(folder: &Path) -> Result<bool, Failure> {
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) => {
                Err(Failure::new(folder.display(), "it is not empty; name an empty directory with --scratch"))
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(Failure::at(folder)).map(|()| true)
        }
        Err(error) => Err(Failure::at(folder)(error)),
    }
}

/// Removes what is in a directory.
fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}
