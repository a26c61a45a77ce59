//! A repository in a directory.
//!
//! An object is written to a file whose name begins with [`UNFINISHED`], synced, and linked to its own name, never over
//! another. Then its directory is synced, and before the first object so is every directory that was made for it.

use crate::{Error, Found, ObjectName, ObjectWriter, Repository};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::NamedTempFile;

/// What the name of a file begins with that is not whole. No object's name begins with a dot.
const UNFINISHED: &str = ".pgshrink-";
/// Directories below each other in a listing; names of this crate have fewer.
const DEPTH_MAX: usize = 16;

/// Objects as files below a root.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    root: PathBuf,
}

/// An object that has no name yet.
struct DirectoryWriter {
    file: NamedTempFile,
    path: PathBuf,
    place: String,
    name: ObjectName,
}

/// For `map_err` of what was tried with a path.
fn failed<'p>(what: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> Error + 'p {
    move |source| Error::Io { what, path: path.display().to_string(), source }
}

impl Directory {
    /// Makes the directory if it is not there.
    pub(crate) fn make(root: &Path) -> Result<(), Error> {
        make(&std::path::absolute(root).map_err(failed("find", root))?)
    }

    /// Opens a directory that is there.
    pub(crate) fn open(root: &Path) -> Result<Directory, Error> {
        let root = std::path::absolute(root).map_err(failed("find", root))?;
        fs::read_dir(&root).map_err(failed("open", &root))?;
        Ok(Directory { root })
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn path(&self, name: &ObjectName) -> PathBuf {
        self.root.join(name.as_str())
    }

    fn begin(&self, name: &ObjectName) -> Result<DirectoryWriter, Error> {
        let path = self.path(name);
        let parent = path.parent().unwrap_or(&self.root);
        make(parent)?;
        sweep(parent);
        let file = loop {
            let file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(parent);
            let file = file.map_err(failed("create a file in", parent))?;
            // Its owner is alive: `sweep` of another process leaves it.
            flock(file.as_file(), FlockOperation::LockExclusive)
                .map_err(|error| failed("lock", file.path())(error.into()))?;
            // Unless it came between the two.
            if file.as_file().metadata().is_ok_and(|metadata| metadata.nlink() > 0) {
                break file;
            }
        };
        Ok(DirectoryWriter { file, path, place: self.place(), name: name.clone() })
    }

    fn open_object(&self, name: &ObjectName) -> Result<File, Error> {
        let path = self.path(name);
        match open_regular(&path) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => {
                let reason = "expected a file, found a directory, a pipe or a device".to_owned();
                Err(Error::Damaged { name: name.clone(), reason })
            }
            Err(error) if is_nothing(&error) => {
                Err(Error::NotFound { place: self.place(), name: name.clone() })
            }
            Err(error) => Err(failed("open", &path)(error)),
        }
    }

    fn walk(&self, folder: &Path, depth: usize, found: &mut Listing) -> Result<(), Error> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("list", folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed("list", folder))?;
            let path = entry.path();
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("look at", &path)(error)),
            };
            let name = path.strip_prefix(&self.root).ok().and_then(Path::to_str).map(ObjectName::new);
            // What is not ours has names that are not ours.
            let Some(Ok(name)) = name else { continue };
            if metadata.is_dir() && depth < DEPTH_MAX {
                self.walk(&path, depth + 1, found)?;
            } else if metadata.is_file() {
                let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.add(Found { name, bytes: metadata.len(), written }, || self.place())?;
            }
        }
        Ok(())
    }
}

/// Objects found so far.
struct Listing {
    found: Vec<Found>,
    count_max: usize,
}

impl Listing {
    fn add(&mut self, found: Found, place: impl FnOnce() -> String) -> Result<(), Error> {
        if self.found.len() == self.count_max {
            return Err(Error::Limit { place: place(), limit: self.count_max });
        }
        self.found.push(found);
        Ok(())
    }
}

impl Repository for Directory {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Error> {
        let mut writer = self.begin(name)?;
        writer.file.write_all(bytes).map_err(failed("write", &writer.path))?;
        Box::new(writer).finish()
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>, Error> {
        Ok(Box::new(self.begin(name)?))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Error> {
        let file = self.open_object(name)?;
        let metadata = file.metadata().map_err(failed("look at", &self.path(name)))?;
        Ok(metadata.len())
    }

    fn read(&self, name: &ObjectName, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let file = self.open_object(name)?;
        let found = file.metadata().map_err(failed("look at", &self.path(name)))?.len();
        let expected = offset.saturating_add(bytes as u64);
        // Before anything is allocated.
        if expected > found {
            return Err(Error::Short { place: self.place(), name: name.clone(), expected, found });
        }
        let mut read = vec![0; bytes];
        file.read_exact_at(&mut read, offset).map_err(failed("read", &self.path(name)))?;
        Ok(read)
    }

    fn list(&self, below: Option<&ObjectName>, count_max: usize) -> Result<Vec<Found>, Error> {
        let folder = below.map_or_else(|| self.root.clone(), |name| self.path(name));
        let mut listing = Listing { found: Vec::new(), count_max };
        self.walk(&folder, 0, &mut listing)?;
        listing.found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listing.found)
    }

    fn top(&self, count_max: usize) -> Result<Vec<String>, Error> {
        self.names(&self.root, count_max)
    }

    fn below(&self, folder: &ObjectName, count_max: usize) -> Result<Vec<String>, Error> {
        match self.names(&self.path(folder), count_max) {
            Err(Error::Io { source, .. }) if is_nothing(&source) => Ok(Vec::new()),
            done => done,
        }
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Error> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("remove", &path)(error)),
        }
        let mut folder = path.parent().unwrap_or(&self.root);
        sync_if_there(folder)?;
        if folder != self.root {
            tidy(folder, 0);
        }
        // Directories that are empty now, up to the root.
        while folder != self.root && fs::remove_dir(folder).is_ok() {
            let Some(above) = folder.parent() else { break };
            sync_if_there(above)?;
            folder = above;
        }
        Ok(())
    }
}

impl Directory {
    /// Names in a folder.
    fn names(&self, folder: &Path, count_max: usize) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
            let entry = entry.map_err(failed("list", folder))?;
            // A symbolic link leads to what another repository may own: nothing of it is listed, nor removed through it.
            if folder == self.root && entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            let name = entry.file_name().into_string().ok();
            let Some(name) = name.filter(|name| ObjectName::new(name).is_ok()) else { continue };
            if names.len() == count_max {
                return Err(Error::Limit { place: self.place(), limit: count_max });
            }
            names.push(name);
        }
        names.sort();
        Ok(names)
    }
}

impl Write for DirectoryWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ObjectWriter for DirectoryWriter {
    fn finish(self: Box<Self>) -> Result<(), Error> {
        let DirectoryWriter { file, path, place, name } = *self;
        file.as_file().sync_all().map_err(failed("sync", &path))?;
        match file.persist_noclobber(&path) {
            Ok(_) => {}
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
                return Err(Error::Exists { place, name });
            }
            Err(error) => return Err(failed("create", &path)(error.error)),
        }
        path.parent().map_or(Ok(()), sync)
    }
}

/// Whether a name leads to nothing.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Makes a directory and those above it, each durable before the next.
fn make(folder: &Path) -> Result<(), Error> {
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return Err(failed("create", folder)(ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look at", folder)(error)),
    }
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    above.map_or(Ok(()), make)?;
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("create", folder)(error)),
        // Whoever made it may not have synced it yet.
        _ => above.map_or(Ok(()), sync),
    }
}

fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))
}

/// Like [`sync`]; whoever else removes objects may have removed the empty directory meanwhile.
fn sync_if_there(folder: &Path) -> Result<(), Error> {
    match sync(folder) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Opens a file to read it. `None`: it is something else, such as a pipe, which would make the caller wait for ever.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Removes what killed writers have left below a directory, and directories that have nothing else in them.
fn tidy(folder: &Path, depth: usize) {
    sweep(folder);
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if depth < DEPTH_MAX && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            tidy(&entry.path(), depth + 1);
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Removes what writers have left that were killed. It is in nobody's way, so errors are.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            continue;
        }
        let Ok(Some(file)) = open_regular(&entry.path()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}
