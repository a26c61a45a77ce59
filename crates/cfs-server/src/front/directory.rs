//! Directories with compressed files in them: what is listed, and how they are removed.
// System calls.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::{DirEntry, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pgshrink_interpose::{Errno, Listed, Outcome};

use crate::file::{call, sync_directory, unlink};
use crate::front::birth::{discard, guard_durably};
use crate::names::{
    BASE_NAME, GUARD_NAME, Named, PathBuffer, RESERVE_NAME, is_leftover, leftover_of, relation_name,
};
use crate::report::failure;
use crate::reserve;
use crate::server::Shared;

const VERSION: u64 = 1;
const DATABASE: u64 = 2;

/// What a listing is known by.
pub(super) fn number(named: Named) -> Option<u64> {
    match named {
        Named::Version { .. } => Some(VERSION),
        Named::Database { .. } => Some(DATABASE),
        Named::Relation(_) => None,
    }
}

/// How an entry is shown.
pub(super) fn listed(directory: u64, name: &CStr, kind: u8) -> Listed {
    let name = name.to_bytes();
    match directory {
        VERSION if name == RESERVE_NAME.as_bytes() => Listed::Hidden,
        DATABASE if name == GUARD_NAME.as_bytes() || is_leftover(name) => Listed::Hidden,
        DATABASE if kind == libc::DT_DIR && relation_name(name).is_some() => Listed::File,
        _ => Listed::Shown,
    }
}

/// Removes a directory, and the file in it that listings do not show. If there are others it stays as it was.
pub(super) fn remove(shared: &Shared, named: Named) -> Outcome<()> {
    let removed = match named {
        Named::Version { tablespace } => remove_version(shared, tablespace),
        Named::Database { tablespace, database } => remove_database(shared, tablespace, database),
        Named::Relation(_) => return None,
    };
    Some(removed.map_err(Errno))
}

fn rmdir(path: &CStr) -> Result<(), i32> {
    // SAFETY: a string that ends with a zero.
    call(|| unsafe { libc::rmdir(path.as_ptr()) }).map(drop)
}

/// A worker that fills the reserve may make its file anew meanwhile: it is removed as often as it is there.
fn remove_version(shared: &Shared, tablespace: u32) -> Result<(), i32> {
    let path = PathBuffer::version(tablespace, shared.version());
    loop {
        match rmdir(path.as_c_str()) {
            Err(errno @ (libc::ENOTEMPTY | libc::EEXIST)) => {
                if !reserve::remove(shared, tablespace)? {
                    return Err(errno);
                }
            }
            done => return done,
        }
    }
}

fn remove_database(shared: &Shared, tablespace: u32, database: u32) -> Result<(), i32> {
    let version = shared.version();
    let path = PathBuffer::database(tablespace, database, version);
    sweep(path.as_path(), Sweep::All);
    // After a loss of power, a container that is back without the guard would pass for a copy.
    if shared.region.waits_for_disk() {
        sync_directory(path.as_c_str())?;
    }
    let hidden = PathBuffer::in_database(tablespace, database, version, GUARD_NAME);
    let was_there = match unlink(hidden.as_c_str()) {
        Ok(()) => true,
        Err(libc::ENOENT) => false,
        Err(errno) => return Err(errno),
    };
    let removed = rmdir(path.as_c_str());
    match removed {
        Ok(()) => shared.region.noted().forget(tablespace, database),
        // Others are in it.
        Err(_) if was_there => drop(guard_durably(shared, tablespace, database)),
        Err(_) => {}
    }
    removed
}

/// What is swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sweep {
    /// Everything: the directory goes.
    All,
    /// Nothing that may be the only file of its pages.
    KeepPages,
}

/// Removes what processes left in a database's directory that died while they made, exchanged or removed a container.
/// Not while others may be doing so: at a server's start, or when the directory goes.
///
/// Where pages are kept, the directory is synced first: an exchange that only the page cache knows of may yet be lost
/// with the power, and what is removed here would be the segment then.
pub(crate) fn sweep(directory: &Path, what: Sweep) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let leftovers = entries.flatten().filter(|entry| is_leftover(entry.file_name().as_encoded_bytes()));
    let mut is_synced = what == Sweep::All;
    for entry in leftovers {
        if !is_synced {
            if let Err(error) = File::open(directory).and_then(|directory| directory.sync_all()) {
                let path = directory.display();
                return failure(
                    None,
                    None,
                    &format!("\"{path}\" cannot be synced, so it is not cleaned up: {error}"),
                );
            }
            is_synced = true;
        }
        if what == Sweep::KeepPages && is_needed(&entry) {
            let path = entry.path();
            let what = format!("\"{}\" is kept: the file that it belongs to is missing", path.display());
            failure(None, None, &what);
            continue;
        }
        if let Ok(path) = std::ffi::CString::new(entry.path().into_os_string().into_encoded_bytes()) {
            let _ = discard(&path);
        }
    }
}

/// Whether a leftover of an exchange may have pages that are nowhere else. The exchange takes one moment, so one of the two
/// names always has the file; where the other is missing somebody has removed it, or the filesystem has lost it. A
/// container that was never put in its place, without a base, has no pages.
fn is_needed(leftover: &DirEntry) -> bool {
    let (path, name) = (leftover.path(), leftover.file_name());
    let Some(beside) = leftover_of(name.as_encoded_bytes()) else { return false };
    let beside = path.with_file_name(std::ffi::OsStr::from_bytes(beside));
    let has_pages = leftover.file_type().is_ok_and(|kind| !kind.is_dir())
        || path.join(BASE_NAME).symlink_metadata().is_ok();
    has_pages && beside.symlink_metadata().is_err()
}
