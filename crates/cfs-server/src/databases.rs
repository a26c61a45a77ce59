//! The directories of databases in the server's tablespaces, looked at when the server starts and when it has stopped.

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pgshrink_cfs::relation::{RelationName, number};
use pgshrink_cfs::segment::FILE_NAME;
use pgshrink_cfs::slots::SegmentKey;

use crate::error::Problem;
use crate::front::{Sweep, sweep};
use crate::guard::{self, State};
use crate::names::{BASE, DEFAULT_TABLESPACE, GUARD_NAME, LINKS, in_root, is_leftover, relation_name};
use crate::owner;
use crate::reserve;
use crate::server::Shared;

/// Before anything is read: takes the directories for this server, removes what dead processes left, refuses containers
/// that are a copy of a running server's, and says in the guards that this server is running. Returns the directories
/// that have a guard.
pub(crate) fn begin(version: &str) -> Result<Vec<(u32, u32)>, Problem> {
    let mut guarded = Vec::new();
    for (tablespace, directory) in all(version)? {
        let at = |source| Problem::Directory { path: directory.clone(), source };
        let Seen { has_containers, has_guard, has_leftovers } = Seen::of(&directory).map_err(at)?;
        if !has_containers && !has_guard && !has_leftovers {
            continue;
        }
        // What another server has open is not to be touched.
        owner::own(tablespace)?;
        sweep(&directory, Sweep::KeepPages);
        if !has_containers && !has_guard {
            continue;
        }
        let found = guard::read(&directory).map_err(at)?;
        if has_containers && found.is_none_or(guard::Content::is_suspect) {
            return Err(Problem::Copied { path: absolute(&directory), guard: found });
        }
        guard::mark(&directory, State::Running).map_err(at)?;
        // A server that was killed may have left the guard's name in memory alone.
        if found == Some(guard::Content::Original(State::Running)) {
            fs::File::open(&directory).and_then(|directory| directory.sync_all()).map_err(at)?;
        }
        guarded.push((tablespace, database_of(&directory)));
    }
    Ok(guarded)
}

/// For who reads alone: the directories that have a guard or containers.
pub(crate) fn guarded(version: &str) -> Result<Vec<(u32, u32)>, Problem> {
    let mut guarded = Vec::new();
    for (tablespace, directory) in all(version)? {
        let at = |source| Problem::Directory { path: directory.clone(), source };
        let Seen { has_containers, has_guard, .. } = Seen::of(&directory).map_err(at)?;
        if has_containers || has_guard {
            guarded.push((tablespace, database_of(&directory)));
        }
    }
    Ok(guarded)
}

/// What a look at a directory finds, in one walk: it may have many plain files.
#[derive(Default)]
struct Seen {
    has_containers: bool,
    has_guard: bool,
    /// A process died here while it made or removed something.
    has_leftovers: bool,
}

impl Seen {
    fn of(directory: &Path) -> io::Result<Seen> {
        let mut seen = Seen::default();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            seen.has_guard |= name == GUARD_NAME;
            seen.has_leftovers |= is_leftover(name.as_bytes());
            seen.has_containers = seen.has_containers || is_container(&entry)?;
        }
        Ok(seen)
    }
}

/// Whether an entry of a database's directory is a container.
fn is_container(entry: &DirEntry) -> io::Result<bool> {
    Ok(relation_name(entry.file_name().as_bytes()).is_some()
        && entry.file_type()?.is_dir()
        && entry.path().join(FILE_NAME).symlink_metadata().is_ok())
}

fn database_of(directory: &Path) -> u32 {
    directory.file_name().and_then(|name| number(name.to_str()?)).unwrap_or(0)
}

/// When all containers have been closed: a copy of the files is good from now on, until the next start. Guards and reserves
/// go where there is no container.
pub(crate) fn end(shared: &Shared) -> Result<(), Problem> {
    let mut without: HashSet<u32> = linked().into_iter().chain([DEFAULT_TABLESPACE]).collect();
    for (tablespace, directory) in all(shared.version_text())? {
        let at = |source| Problem::Directory { path: directory.clone(), source };
        if guard::read(&directory).map_err(at)?.is_none() {
            continue;
        }
        let mut found = Vec::new();
        containers_in(&directory, (tablespace, database_of(&directory)), &mut found).map_err(at)?;
        if found.is_empty() {
            // All have become plain files, or are gone: nothing is guarded, and other programs may go on.
            fs::remove_file(directory.join(GUARD_NAME)).map_err(at)?;
        } else {
            guard::mark(&directory, State::Stopped).map_err(at)?;
            without.remove(&tablespace);
        }
    }
    for tablespace in without {
        let removed = reserve::remove(shared, tablespace);
        removed.map_err(|errno| Problem::System { call: "removing a reserve", errno })?;
    }
    Ok(())
}

/// What a tablespace's directories hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Content {
    /// A database's catalogs: it is the database's default tablespace.
    pub has_catalogs: bool,
    /// Files of relations, compressed or plain.
    pub has_relations: bool,
}

/// Looks at a tablespace's directories.
pub(crate) fn content(version: &str, wanted: u32) -> Result<Content, Problem> {
    let mut content = Content::default();
    for (_, directory) in all(version)?.into_iter().filter(|(tablespace, _)| *tablespace == wanted) {
        let at = |source| Problem::Directory { path: directory.clone(), source };
        content.has_catalogs |= directory.join("PG_VERSION").symlink_metadata().is_ok();
        for entry in fs::read_dir(&directory).map_err(at)? {
            content.has_relations |= relation_name(entry.map_err(at)?.file_name().as_bytes()).is_some();
        }
    }
    Ok(content)
}

/// All containers of all tablespaces.
pub(crate) fn containers(version: &str) -> Result<Vec<SegmentKey>, Problem> {
    let mut found = Vec::new();
    for (tablespace, directory) in all(version)? {
        let at = |source| Problem::Directory { path: directory.clone(), source };
        match containers_in(&directory, (tablespace, database_of(&directory)), &mut found) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => done.map_err(at)?,
        }
    }
    Ok(found)
}

/// The containers of a database's directory.
pub(crate) fn containers_in(
    directory: &Path,
    (tablespace, database): (u32, u32),
    found: &mut Vec<SegmentKey>,
) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Some(name) = relation_name(entry.file_name().as_bytes()) else { continue };
        // One that goes meanwhile is none.
        if is_container(&entry).unwrap_or(false) {
            let RelationName { number: relation, fork, segment } = name;
            found.push(SegmentKey { tablespace, database, relation, fork, segment });
        }
    }
    Ok(())
}

/// All directories of databases, by tablespace; paths from the data directory.
fn all(version: &str) -> Result<Vec<(u32, PathBuf)>, Problem> {
    let base = numbered(&in_root(BASE))?.into_iter();
    let mut found: Vec<_> = base.map(|(_, database)| (DEFAULT_TABLESPACE, database)).collect();
    for (tablespace, link) in numbered(&in_root(LINKS))? {
        let databases = numbered(&link.join(version))?.into_iter();
        found.extend(databases.map(|(_, database)| (tablespace, database)));
    }
    // What is none keeps no server from starting.
    found.retain(|(_, directory)| directory.is_dir());
    Ok(found)
}

/// Tablespaces that the data directory has links of.
pub(crate) fn linked() -> Vec<u32> {
    numbered(&in_root(LINKS)).unwrap_or_default().into_iter().map(|(tablespace, _)| tablespace).collect()
}

/// All directories of databases: tablespace and database.
pub(crate) fn all_numbered(version: &str) -> Result<Vec<(u32, u32)>, Problem> {
    let found = all(version)?.into_iter();
    Ok(found.map(|(tablespace, directory)| (tablespace, database_of(&directory))).collect())
}

/// What in a directory has a number for a name; nothing where there is no such directory.
fn numbered(directory: &Path) -> Result<Vec<(u32, PathBuf)>, Problem> {
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
        if let Some(oid) = entry.file_name().to_str().and_then(number) {
            found.push((oid, entry.path()));
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
        if is_container(&entry?)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The path as an administrator knows it.
fn absolute(directory: &Path) -> PathBuf {
    fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned())
}
