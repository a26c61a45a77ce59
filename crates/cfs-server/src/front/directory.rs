//! Directories with compressed files in them: what is listed, and how they are removed.
// System calls.
#![allow(unsafe_code)]

use std::ffi::CStr;

use pgshrink_interpose::{Errno, Listed, Outcome};

use crate::file::{call, open, unlink};
use crate::front::birth::remove_directory;
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
    let version = shared.version();
    let removed = match named {
        Named::Version { tablespace } => {
            let mut reserve = PathBuffer::version(tablespace, version);
            reserve.push(b"/").push(RESERVE_NAME.as_bytes());
            remove_version(PathBuffer::version(tablespace, version).as_c_str(), reserve.as_c_str())
        }
        Named::Database { tablespace, database } => remove_database(
            PathBuffer::database(tablespace, database, version).as_c_str(),
            PathBuffer::in_database(tablespace, database, version, GUARD_NAME).as_c_str(),
        ),
        Named::Relation(_) => return None,
    };
    Some(removed.map_err(Errno))
}

fn rmdir(path: &CStr) -> Result<(), i32> {
    // SAFETY: a string that ends with a zero.
    call(|| unsafe { libc::rmdir(path.as_ptr()) }).map(drop)
}

/// A worker fills the reserve meanwhile, and may make its file anew: it is removed as often as it is there.
fn remove_version(path: &CStr, reserve: &CStr) -> Result<(), i32> {
    loop {
        match rmdir(path) {
            Err(errno @ (libc::ENOTEMPTY | libc::EEXIST)) => match unlink(reserve) {
                Ok(()) => {}
                Err(libc::ENOENT) => return Err(errno),
                Err(errno) => return Err(errno),
            },
            done => return done,
        }
    }
}

fn remove_database(path: &CStr, guard: &CStr) -> Result<(), i32> {
    sweep(path);
    let was_there = match unlink(guard) {
        Ok(()) => true,
        Err(libc::ENOENT) => false,
        Err(errno) => return Err(errno),
    };
    let removed = rmdir(path);
    if removed.is_err()
        && was_there
        && let Ok(guard) = open(guard, libc::O_WRONLY | libc::O_CREAT, 0)
    {
        // Others are in it.
        // SAFETY: opened above.
        unsafe { libc::close(guard) };
    }
    removed
}

/// Removes what processes left in a database's directory that died while they made or removed a container. Not while
/// others may be doing so: at a server's start, or when the directory goes.
pub(crate) fn sweep(directory: &CStr) {
    let Ok(text) = directory.to_str() else { return };
    let Ok(entries) = std::fs::read_dir(text) else { return };
    for entry in entries.flatten().filter(|entry| is_leftover(entry.file_name().as_encoded_bytes())) {
        if let Ok(path) = std::ffi::CString::new(entry.path().into_os_string().into_encoded_bytes()) {
            let _ = remove_directory(&path);
        }
    }
}
