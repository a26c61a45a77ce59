//! Directories with compressed files in them: what is listed, and how they are removed.
// System calls.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::path::Path;

use pgshrink_interpose::{Errno, Listed, Outcome};

use crate::file::{call, sync_directory, unlink};
use crate::front::birth::{guard, remove_directory};
use crate::names::{GUARD_NAME, Named, PathBuffer, RESERVE_NAME, is_leftover, relation_name};
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
    let mut reserve = PathBuffer::version(tablespace, shared.version());
    reserve.push(b"/").push(RESERVE_NAME.as_bytes());
    loop {
        match rmdir(path.as_c_str()) {
            Err(errno @ (libc::ENOTEMPTY | libc::EEXIST)) => match unlink(reserve.as_c_str()) {
                Err(libc::ENOENT) => return Err(errno),
                removed => removed?,
            },
            done => return done,
        }
    }
}

fn remove_database(shared: &Shared, tablespace: u32, database: u32) -> Result<(), i32> {
    let version = shared.version();
    let path = PathBuffer::database(tablespace, database, version);
    path.as_c_str().to_str().map(|path| sweep(Path::new(path))).unwrap_or_default();
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
    if removed.is_err() && was_there {
        // Others are in it.
        let _ = guard(shared, tablespace, database);
    }
    removed
}

/// Removes what processes left in a database's directory that died while they made or removed a container. Not while
/// others may be doing so: at a server's start, or when the directory goes.
pub(crate) fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| is_leftover(entry.file_name().as_encoded_bytes())) {
        if let Ok(path) = std::ffi::CString::new(entry.path().into_os_string().into_encoded_bytes()) {
            // A guard that was being made is a file.
            let _ = unlink(&path).or_else(|_| remove_directory(&path).map_err(|Errno(errno)| errno));
        }
    }
}
