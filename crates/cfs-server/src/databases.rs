//! The directories of databases in the server's tablespaces, looked at when the server starts and when it has stopped.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pgshrink_cfs::relation::number;
use pgshrink_cfs::segment::FILE_NAME;

use crate::error::Problem;
use crate::front::sweep;
use crate::guard::{self, Content, State};
use crate::names::{LINKS, relation_name};

/// Before anything is read: removes what dead processes left, refuses containers that are a copy of a running server's,
/// and says in the guards that this server is running.
pub(crate) fn begin(version: &str) -> Result<(), Problem> {
    for directory in all(version)? {
        let at = |source| Problem::Directory { path: directory.clone(), source };
        sweep(&directory);
        let found = guard::read(&directory).map_err(at)?;
        if found.is_none_or(Content::is_suspect) && has_containers(&directory).map_err(at)? {
            return Err(Problem::Copied { path: absolute(&directory), guard: found });
        }
        if found.is_some() {
            guard::mark(&directory, State::Running).map_err(at)?;
        }
    }
    Ok(())
}

/// When all containers have been closed: a copy of the files is good from now on, until the next start.
pub(crate) fn end(version: &str) -> Result<(), Problem> {
    for directory in all(version)? {
        let at = |source| Problem::Directory { path: directory.clone(), source };
        if guard::read(&directory).map_err(at)?.is_some() {
            guard::mark(&directory, State::Stopped).map_err(at)?;
        }
    }
    Ok(())
}

/// Paths of all directories of databases, from the data directory.
fn all(version: &str) -> Result<Vec<PathBuf>, Problem> {
    let mut found = Vec::new();
    for tablespace in numbered(Path::new(LINKS))? {
        found.append(&mut numbered(&tablespace.join(version))?);
    }
    Ok(found)
}

/// What in a directory has a number for a name; nothing where there is no such directory.
fn numbered(directory: &Path) -> Result<Vec<PathBuf>, Problem> {
    let at = |source| Problem::Directory { path: directory.to_owned(), source };
    let entries = match fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(at)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(at)?;
        if entry.file_name().to_str().and_then(number).is_some() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Whether a directory holds a container.
///
/// # Errors
/// The system's.
pub fn has_containers(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if relation_name(entry.file_name().as_bytes()).is_some()
            && entry.file_type()?.is_dir()
            && entry.path().join(FILE_NAME).symlink_metadata().is_ok()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The path as an administrator knows it.
fn absolute(directory: &Path) -> PathBuf {
    fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned())
}
