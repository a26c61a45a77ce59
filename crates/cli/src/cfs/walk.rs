//! What lies below a path: containers, plain relation files, everything else.

use super::Failure;
use super::manifest;
use pgshrink_cfs::relation::{RelationName, number};
use pgshrink_cfs::segment::FILE_NAME;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories at most in each other.
const DEPTH_MAX: usize = 32;

/// Something that was found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Found {
    /// Where; of a container the path of its segment, as the server has it.
    pub path: PathBuf,
    pub kind: Kind,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// In this file.
    Container(PathBuf),
    /// A relation's file in a database's directory.
    Relation(RelationName),
    /// A regular file.
    Other,
    /// A symbolic link.
    Link,
    /// A directory, before what is in it.
    Directory,
    /// A symbolic link to a directory, before what is in that.
    Followed,
    /// A packed tree's list of what is in it: a file, or the container in this file.
    Manifest(Option<PathBuf>),
}

/// Everything below `path`, itself included, by path. Links are not followed, except those with which a
/// server's data directory goes on elsewhere, if asked: `pg_wal`, and those in `pg_tblspc`.
pub(crate) fn below(path: &Path, follow: bool) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    let metadata = fs::metadata(path).map_err(Failure::reading(path))?;
    if metadata.is_file() {
        found.push(file(path));
    } else {
        directory(path, follow, DEPTH_MAX, &mut found)?;
    }
    Ok(found)
}

fn directory(path: &Path, follow: bool, depth: usize, found: &mut Vec<Found>) -> Result<(), Failure> {
    let container = path.join(FILE_NAME);
    let list = path.join(manifest::NAME);
    if path.file_name() == Some(OsStr::new(manifest::NAME)) && container.is_file() {
        found.push(Found { path: path.to_owned(), kind: Kind::Manifest(Some(container)) });
        return Ok(());
    }
    if container.is_file() {
        found.push(Found { path: path.to_owned(), kind: Kind::Container(container) });
        if list.is_dir() {
            directory(&list, false, 0, found)?;
        } else if list.is_file() {
            found.push(file(&list));
        }
        return Ok(());
    }
    let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    // The path that a caller names may be a link itself.
    let kind = if is_link && depth < DEPTH_MAX { Kind::Followed } else { Kind::Directory };
    found.push(Found { path: path.to_owned(), kind });
    if depth == 0 {
        return Err(Failure::new(path, "directories are nested more than 32 levels deep"));
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(path).map_err(Failure::reading(path))? {
        paths.push(entry.map_err(Failure::reading(path))?.path());
    }
    paths.sort();
    for path in paths {
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            // Beside a server files go at any time.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Failure::reading(&path)(error)),
        };
        if metadata.is_dir() || metadata.is_symlink() && follow && goes_on(&path) && path.is_dir() {
            directory(&path, follow, depth - 1, found)?;
        } else if metadata.is_symlink() {
            found.push(Found { path, kind: Kind::Link });
        } else if metadata.is_file() {
            found.push(file(&path));
        }
        // Sockets and pipes are no part of a database.
    }
    Ok(())
}

/// Whether a link of this name is a data directory's way to a part of it that lies elsewhere.
pub(crate) fn goes_on(link: &Path) -> bool {
    let above = link.parent();
    link.file_name() == Some(OsStr::new("pg_wal"))
        && above.is_some_and(|above| above.join("PG_VERSION").is_file())
        || above.and_then(Path::file_name) == Some(OsStr::new("pg_tblspc"))
}

fn file(path: &Path) -> Found {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if name == FILE_NAME {
        let segment = path.parent().unwrap_or(path).to_owned();
        return Found { path: segment, kind: Kind::Container(path.to_owned()) };
    }
    if name == manifest::NAME {
        return Found { path: path.to_owned(), kind: Kind::Manifest(None) };
    }
    Found { path: path.to_owned(), kind: relation(path).map_or(Kind::Other, Kind::Relation) }
}

/// Whether this is the directory of a relation's container that has none.
pub(crate) fn lacks_container(found: &Found) -> bool {
    found.kind == Kind::Directory && relation(&found.path).is_some()
}

/// The relation whose name this is, in a database's directory.
fn relation(path: &Path) -> Option<RelationName> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    RelationName::parse(name).filter(|_| path.parent().is_some_and(is_database))
}

/// The directory of a file with a relation's name, if it is a database's but for its name. A data directory has no such
/// files beside its PG_VERSION.
pub(crate) fn renamed_database(found: &Found) -> Option<&Path> {
    let name = found.path.file_name().and_then(OsStr::to_str)?;
    RelationName::parse(name).filter(|_| found.kind == Kind::Other)?;
    found.path.parent().filter(|above| above.join("PG_VERSION").is_file())
}

/// Whether relation files lie in this directory: numbers as names are also those of transaction status files.
fn is_database(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_default = path.join("PG_VERSION").is_file();
    let is_elsewhere = path.parent().and_then(Path::file_name).and_then(OsStr::to_str);
    name == "global"
        || number(name).is_some() && (is_default || is_elsewhere.is_some_and(|up| up.starts_with("PG_")))
}

/// A path below a tree's first directory as its manifest has it, that itself as `.`: bytes that are no UTF-8,
/// and backslashes, as `\\x5c`.
pub(crate) fn relative(inside: &Path) -> String {
    let mut text = String::new();
    for chunk in inside.as_os_str().as_encoded_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\x5c"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

/// Containers below these paths, those of manifests among them.
pub(crate) fn containers(paths: &[PathBuf]) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    let mut containers = Vec::new();
    for path in paths {
        for found in below(path, true)? {
            if let Kind::Container(file) | Kind::Manifest(Some(file)) = found.kind {
                containers.push((found.path, file));
            }
        }
    }
    if containers.is_empty() {
        let path = paths.first().map_or(Path::new("."), PathBuf::as_path);
        return Err(Failure::new(
            path,
            "no container there; for plain relation files use pgshrink cfs estimate",
        ));
    }
    Ok(containers)
}

/// The segment's path for a container that was named by its file.
pub(crate) fn segment_of(path: &Path) -> &Path {
    let is_file = path.file_name() == Some(OsStr::new(FILE_NAME)) && path.is_file();
    path.parent().filter(|_| is_file).unwrap_or(path)
}
