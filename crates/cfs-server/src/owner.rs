//! Who uses a tablespace's directory: one server at a time.
//!
//! A server locks the version directory itself, so nothing lies in it that a listing, a backup, DROP TABLESPACE or redo
//! of CREATE TABLESPACE would have to know of. The lock is the one that containers have (a byte for each server, by
//! open file descriptions): a server's processes share it, and it goes with the last of them.
//!
//! 1. The postmaster holds the directories that there are when it starts ([`own`]), and the launcher those that there
//!    are now: redo and CREATE TABLESPACE make them anew.
//! 2. Any other process holds a directory as long as it has a file of that tablespace open ([`Directories`]). So one
//!    that outlives its postmaster is noticed.
//! 3. A directory that was removed is let go, so that its filesystem can be unmounted.
//! 4. Who holds a directory has a shared `flock` on it too. It keeps nobody out; `/proc/locks` shows its process.
//! 5. `base/` is the data directory's own, and `postmaster.pid` keeps a second server out of that: nothing is locked.
//! 6. Where a filesystem has no locks on directories, files are refused one by one.
// System calls.
#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pgshrink_interpose::Errno;

use crate::error::Problem;
use crate::file::{call, is_free_of_servers, lock_for_server, open, stat_of};
use crate::names::{DEFAULT_TABLESPACE, PathBuffer};
use crate::region::TABLESPACES_MAX;
use crate::report::failure;
use crate::server::{Shared, shared};

/// The server that has a directory.
#[derive(Debug, Default)]
pub struct Owner {
    /// The process that says so, and its working directory, which is the server's data directory. `None` where
    /// `/proc` does not show it.
    process: Option<(u32, PathBuf)>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named("another server"))
    }
}

impl Owner {
    /// What it is called, and what is known of it.
    pub fn named(&self, noun: &str) -> String {
        match &self.process {
            Some((pid, data)) => format!("{noun}: process {pid}, data directory \"{}\"", data.display()),
            None => noun.to_owned(),
        }
    }
}

/// A directory that this server has; until it is dropped.
#[derive(Debug)]
struct Directory(RawFd);

impl Directory {
    /// Whether the directory still has its name.
    fn is_there(&self) -> bool {
        stat_of(self.0).is_ok_and(|stat| stat.st_nlink > 0)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: opened for this alone.
        unsafe { libc::close(self.0) };
    }
}

/// Takes a tablespace's directory for this server. `None` where there is none, or no way to lock it, or no need to.
///
/// # Errors
/// The server that has it.
fn claim(shared: &Shared, tablespace: u32) -> Result<Option<Directory>, Owner> {
    // `postmaster.pid` guards what is in the data directory.
    if tablespace == DEFAULT_TABLESPACE || shared.is_read_only() {
        return Ok(None);
    }
    let path = PathBuffer::version(tablespace, shared.version());
    let opened = open(path.as_c_str(), libc::O_RDONLY | libc::O_DIRECTORY, 0);
    let Ok(directory) = opened.map(Directory) else { return Ok(None) };
    match lock_for_server(directory.0, shared.number()) {
        Ok(true) => {
            // SAFETY: takes numbers. It informs, and keeps nobody out.
            let _ = call(|| unsafe { libc::flock(directory.0, libc::LOCK_SH | libc::LOCK_NB) });
            Ok(Some(directory))
        }
        Ok(false) => Err(owner_of(&directory)),
        Err(_) => Ok(None),
    }
}

/// The server that has a tablespace's version directory, if one has: for a program that is no server.
pub fn user_of(directory: &Path) -> Option<Owner> {
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes()).ok()?;
    let directory = open(&path, libc::O_RDONLY | libc::O_DIRECTORY, 0).map(Directory).ok()?;
    let is_free = is_free_of_servers(directory.0).unwrap_or(true);
    (!is_free).then(|| owner_of(&directory))
}

/// Looks for a process of another server that has the directory locked.
fn owner_of(directory: &Directory) -> Owner {
    let Ok(stat) = stat_of(directory.0) else { return Owner::default() };
    let own = std::env::current_dir().ok();
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let pids = locks.lines().filter_map(|line| flock_of(line, stat.st_ino));
    let candidates = pids.filter(|pid| has_open(*pid, &stat));
    let named = candidates.filter_map(|pid| {
        let data = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        (Some(&data) != own.as_ref()).then_some((pid, data))
    });
    let mut named: Vec<(u32, PathBuf)> = named.collect();
    named.sort();
    // Any process of the server may hold the lock, also when its postmaster has gone.
    let postmaster = named.iter().position(|(pid, data)| postmaster_of(data) == Some(*pid)).unwrap_or(0);
    Owner { process: (postmaster < named.len()).then(|| named.swap_remove(postmaster)) }
}

/// The process that a data directory's lock file names.
fn postmaster_of(data: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    // That of a single-user server is negative.
    text.lines().next()?.trim().trim_start_matches('-').parse().ok()
}

/// The process of a line of `/proc/locks` that is about a `flock` on this inode:
/// `1: FLOCK  ADVISORY  READ 1234 fe:00:3448833 0 EOF`.
fn flock_of(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let (pid, file) = (words.nth(2)?, words.next()?);
    (file.rsplit(':').next()?.parse() == Ok(inode)).then(|| pid.parse().ok()).flatten()
}

/// Whether a process has this very file open: some filesystems show another device's number in `/proc/locks`.
fn has_open(pid: u32, stat: &libc::stat) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_same = |path: &Path| {
        path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (stat.st_dev, stat.st_ino))
    };
    entries.flatten().any(|entry| is_same(&entry.path()))
}

/// Directories that the process holds to its end: tablespace and descriptor, the latter plus one; 0 is nothing. The
/// postmaster forks amid anything, so these are words.
static HELD: [AtomicU64; TABLESPACES_MAX] = [const { AtomicU64::new(0) }; TABLESPACES_MAX];
/// How many of them have been used.
static HELD_COUNT: AtomicUsize = AtomicUsize::new(0);

fn held() -> &'static [AtomicU64] {
    &HELD[..HELD_COUNT.load(Ordering::Relaxed).min(TABLESPACES_MAX)]
}

/// The directory of a word, which is the caller's then.
fn taken(word: u64) -> Option<(u32, Directory)> {
    let descriptor = RawFd::try_from((word as u32).checked_sub(1)?).ok()?;
    Some(((word >> 32) as u32, Directory(descriptor)))
}

/// Holds a tablespace's directory to this process's end, or until it is removed. For the postmaster's start and for
/// a worker that lives long.
///
/// # Errors
/// [`Problem::NotStarted`]; [`Problem::InUse`] names the server that has it.
pub fn own(tablespace: u32) -> Result<(), Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    release_removed();
    if held().iter().any(|word| is_of(word.load(Ordering::Relaxed), tablespace)) {
        return Ok(());
    }
    let directory = match claim(shared, tablespace) {
        Ok(None) => return Ok(()),
        Ok(Some(directory)) => directory,
        Err(owner) => {
            let link = PathBuffer::link(tablespace).as_c_str().to_string_lossy().into_owned();
            let directory = std::fs::canonicalize(&link).unwrap_or_else(|_| PathBuf::from(&link));
            let path = directory.join(String::from_utf8_lossy(shared.version()).as_ref());
            return Err(Problem::InUse { path, link, owner });
        }
    };
    let free = held().iter().position(|word| word.load(Ordering::Relaxed) == 0);
    let at = free.unwrap_or_else(|| HELD_COUNT.fetch_add(1, Ordering::Relaxed));
    let Some(word) = HELD.get(at) else { return Err(Problem::Tablespaces { limit: TABLESPACES_MAX }) };
    word.store(u64::from(tablespace) << 32 | (directory.0 as u64 + 1), Ordering::Relaxed);
    std::mem::forget(directory);
    Ok(())
}

fn is_of(word: u64, tablespace: u32) -> bool {
    word != 0 && (word >> 32) as u32 == tablespace
}

/// Lets go what was removed. Allocates nothing.
pub fn release_removed() {
    for word in held() {
        if let Some((_, directory)) = taken(word.load(Ordering::Relaxed)) {
            if directory.is_there() {
                std::mem::forget(directory);
            } else {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// In a child after a fork: what the postmaster holds is its own.
pub(crate) fn forget() {
    for word in held() {
        drop(taken(word.swap(0, Ordering::Relaxed)));
    }
}

/// Directories of the tablespaces that a process has files of.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    tablespace: u32,
    /// `None` where it cannot be locked.
    directory: Option<Directory>,
    /// Files that are open.
    files: u32,
}

impl Directories {
    /// Before a file of the tablespace is opened or made.
    ///
    /// # Errors
    /// EBUSY where another server has the directory; the log says which.
    pub(crate) fn hold(&mut self, shared: &Shared, tablespace: u32) -> Result<(), Errno> {
        let known = self.entries.iter_mut().find(|entry| entry.tablespace == tablespace);
        // Redo makes directories anew.
        let is_gone = |entry: &Entry| entry.directory.as_ref().is_some_and(|held| !held.is_there());
        if known.as_ref().is_some_and(|entry| !is_gone(entry)) {
            return Ok(());
        }
        let directory = claim(shared, tablespace).map_err(|owner| {
            let what = format!("the directory of tablespace {tablespace} is in use by {owner}");
            failure(None, None, &what);
            Errno(libc::EBUSY)
        })?;
        match known {
            Some(entry) => entry.directory = directory,
            None => self.entries.push(Entry { tablespace, directory, files: 0 }),
        }
        Ok(())
    }

    /// A file of the tablespace is open.
    pub(crate) fn opened(&mut self, tablespace: u32) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.tablespace == tablespace) {
            entry.files += 1;
        }
    }

    /// A file of the tablespace is no longer open.
    pub(crate) fn closed(&mut self, tablespace: u32) {
        let of_it = |entry: &Entry| entry.tablespace == tablespace;
        if let Some(at) = self.entries.iter().position(of_it) {
            let entry = &mut self.entries[at];
            entry.files = entry.files.saturating_sub(1);
            if entry.files == 0 {
                self.entries.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_locks_name_processes_by_inode() {
        let line = "1: FLOCK  ADVISORY  READ 1234 fe:00:3448833 0 EOF";
        assert_eq!(flock_of(line, 3448833), Some(1234));
        assert_eq!(flock_of(line, 344883), None);
        assert_eq!(flock_of("2: OFDLCK ADVISORY  READ -1 fe:00:3448833 7 7", 3448833), None);
        assert_eq!(flock_of("1: -> FLOCK  ADVISORY  WRITE 9 fe:00:3448833 0 EOF", 3448833), None);
        assert_eq!(flock_of("", 1), None);
    }
}
