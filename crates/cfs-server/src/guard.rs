//! The guard: a file in each database directory with containers that keeps programs without the library from copying
//! the directory, and tells a copy of a running server's files from the files themselves.
//!
//! Nobody but the superuser may open it (mode 0000), so a copy made as the server's user fails. A copy that the
//! superuser makes has the guard's content: that a server was running, and which file the guard is, by its inode
//! number and its time of birth. A snapshot of a filesystem or a disk keeps both; a copy of files does not.
//!
//! One line, padded to the length of the first: `pgshrink guard 1 running INODE BORN CHECKSUM`, BORN in nanoseconds
//! or 0 where the filesystem has no such time, CHECKSUM the CRC-32 of what is before it; then a text for people. All
//! of it is less than a sector, so a loss of power leaves the old content or the new one.
// System calls.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::GUARD_NAME;
use crate::file::{call, open};

const HEAD: &str = "pgshrink guard 1 ";
const LINE_BYTES: usize = 96;
const TEXT: &str = "\n\
    Files beside this one are compressed by the library cfs for PostgreSQL.\n\
    A copy of them that was made while a server was running is no backup:\n\
    take pg_basebackup, or an atomic snapshot of the filesystem.\n";
/// Bytes of the whole file.
const BYTES: usize = LINE_BYTES + TEXT.len();

/// What the server was doing when it last wrote to the guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It writes to the containers, or was killed while it did.
    Running,
    /// It has closed them all: a copy is as good as they are.
    Stopped,
}

/// What a guard says of its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// The guard is the file that the server wrote.
    Original(State),
    /// The guard is a copy of it.
    Copy(State),
    /// It was not written by a server, or not to its end.
    Unknown,
}

impl Content {
    /// Whether the containers beside it may be pieces of different moments.
    pub fn is_suspect(self) -> bool {
        matches!(self, Content::Copy(State::Running) | Content::Unknown)
    }
}

impl State {
    /// Of equal length, as one is written over the other.
    fn word(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Stopped => "stopped",
        }
    }
}

/// What tells a file from its copies: inode number, and time of birth in nanoseconds or 0.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    // SAFETY: all zeros is a value of this struct of numbers, which the call overwrites; an empty path names the
    // descriptor.
    let found = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let (file, flags) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
        let mask = libc::STATX_INO | libc::STATX_BTIME;
        call(|| libc::statx(file, c"".as_ptr(), flags, mask, &mut found))
            .map_err(io::Error::from_raw_os_error)?;
        found
    };
    let has_birth = found.stx_mask & libc::STATX_BTIME != 0;
    let born = found.stx_btime.tv_sec.unsigned_abs() * 1_000_000_000 + u64::from(found.stx_btime.tv_nsec);
    Ok((found.stx_ino, if has_birth { born } else { 0 }))
}

fn text_of(state: State, (inode, born): (u64, u64)) -> String {
    let head = format!("{HEAD}{} {inode} {born}", state.word());
    let line = format!("{head} {:08x}", crc32fast::hash(head.as_bytes()));
    format!("{line:LINE_BYTES$}{TEXT}")
}

fn parse(bytes: &[u8]) -> Option<(State, (u64, u64))> {
    let line = std::str::from_utf8(bytes.get(..LINE_BYTES)?).ok()?.trim_end();
    let (head, sum) = line.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(head.as_bytes()) {
        return None;
    }
    let (state, identity) = head.strip_prefix(HEAD)?.split_once(' ')?;
    let (inode, born) = identity.split_once(' ')?;
    let state = [State::Running, State::Stopped].into_iter().find(|known| known.word() == state)?;
    Some((state, (inode.parse().ok()?, born.parse().ok()?)))
}

/// Opens a guard that is there; its owner lets himself in for this, and only for this.
fn open_existing(path: &Path) -> io::Result<File> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let chmod = |mode| {
        // SAFETY: a string that ends with a zero.
        call(|| unsafe { libc::chmod(path.as_ptr(), mode) }).map_err(io::Error::from_raw_os_error)
    };
    chmod(0o600)?;
    let opened = open(&path, libc::O_RDWR | libc::O_NOFOLLOW, 0).map_err(io::Error::from_raw_os_error);
    chmod(0)?;
    // SAFETY: opened for this alone.
    Ok(unsafe { File::from_raw_fd(opened?) })
}

/// Makes a guard of a running server, under the name `making` first, which is this process's own; one that is there is
/// left alone. So it has its name when its content is whole. With `fsync` the content is durable; the name is with the
/// directory's next fsync.
///
/// # Errors
/// The system's.
pub(crate) fn make(path: &CStr, making: &CStr, fsync: bool) -> io::Result<()> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return found.map(drop),
    }
    let making_path = Path::new(std::ffi::OsStr::from_bytes(making.to_bytes()));
    // Left by a dead process of the same id.
    let _ = std::fs::remove_file(making_path);
    let made = open(making, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0)
        .map_err(io::Error::from_raw_os_error)?;
    // SAFETY: opened for this alone.
    write_anew(&unsafe { File::from_raw_fd(made) }, State::Running, fsync)?;
    // Where another process was quicker, this one's is as good.
    std::fs::rename(making_path, path)
}

/// Writes a whole guard.
fn write_anew(file: &File, state: State, fsync: bool) -> io::Result<()> {
    file.write_all_at(text_of(state, identity(file)?).as_bytes(), 0)?;
    if fsync { file.sync_all() } else { Ok(()) }
}

/// What the guard in this directory says; `None` where there is none.
///
/// # Errors
/// The system's.
pub fn read(directory: &Path) -> io::Result<Option<Content>> {
    match File::open(directory.join(GUARD_NAME)) {
        Ok(file) => content(file).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open_existing(&directory.join(GUARD_NAME)).and_then(content).map(Some)
        }
        Err(error) => Err(error),
    }
}

fn content(mut file: File) -> io::Result<Content> {
    let mut bytes = Vec::with_capacity(BYTES);
    Read::by_ref(&mut file).take(BYTES as u64).read_to_end(&mut bytes)?;
    Ok(match parse(&bytes) {
        Some((state, written)) if written == identity(&file)? => Content::Original(state),
        Some((state, _)) => Content::Copy(state),
        None => Content::Unknown,
    })
}

/// Writes the state into a directory's guard, if it says something else. Of an original only the one word changes,
/// and nothing waits for the disk: what a loss of power brings back is as true as what it takes.
///
/// # Errors
/// The system's.
pub(crate) fn mark(directory: &Path, state: State) -> io::Result<()> {
    match read(directory)? {
        Some(Content::Original(found)) if found == state => Ok(()),
        Some(Content::Original(_)) => write_anew(&open_existing(&directory.join(GUARD_NAME))?, state, false),
        _ => replace(directory, state),
    }
}

/// Puts a guard of its own into a directory: its containers are taken for what they say.
///
/// # Errors
/// The system's.
pub fn accept(directory: &Path) -> io::Result<()> {
    replace(directory, State::Stopped)
}

fn replace(directory: &Path, state: State) -> io::Result<()> {
    let path = directory.join(GUARD_NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let made = open(&path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0)
        .map_err(io::Error::from_raw_os_error)?;
    // SAFETY: opened for this alone.
    let made = unsafe { File::from_raw_fd(made) };
    write_anew(&made, state, true)?;
    // The superuser does this for the server's user.
    let (above, own) = (std::fs::metadata(directory)?, made.metadata()?);
    if above.uid() != own.uid() {
        std::os::unix::fs::fchown(&made, Some(above.uid()), Some(above.gid()))?;
    }
    File::open(directory)?.sync_all()
}
