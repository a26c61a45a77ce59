//! Listings of directories in which the front hides or changes entries. These may allocate.
// C functions, called with the pointers of a program.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{DIR, dirent};

use super::descriptors::managed;
use super::front::{asked, guarded};
use super::names::{managed_name, named_folder};
use crate::front::{Listed, Outcome};
use crate::original::{self, errno, set_errno};

/// Streams of such directories, and what the front knows each by.
static OPEN: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());

/// How many: where there are none, a listing costs one load more.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn streams() -> MutexGuard<'static, Vec<(usize, u64)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watched(directory: *mut DIR) -> Option<u64> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    streams().iter().find(|(stream, _)| *stream == directory as usize).map(|(_, number)| *number)
}

pub(super) unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    if path.is_null() {
        // SAFETY: as the program has called it.
        return unsafe { original::opendir(path) };
    }
    // SAFETY: the program's string.
    let name = unsafe { CStr::from_ptr(path) };
    if managed_name(name) {
        set_errno(libc::ENOTDIR);
        return ptr::null_mut();
    }
    let number = asked(|front| front.open_directory(name).map(Ok));
    // SAFETY: as the program has called it.
    watch(unsafe { original::opendir(path) }, number)
}

/// A folder's descriptor becomes a stream. Servers do without.
pub(super) unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    if managed(fd).is_some() {
        set_errno(libc::ENOTDIR);
        return ptr::null_mut();
    }
    let number = named_folder(fd, |name| asked(|front| front.open_directory(name).map(Ok)));
    // SAFETY: as the program has called it.
    watch(unsafe { original::fdopendir(fd) }, number)
}

/// Takes a stream in, if the front has a number for it.
fn watch(directory: *mut DIR, number: Outcome<u64>) -> *mut DIR {
    let Some(number) = number.filter(|_| !directory.is_null()) else { return directory };
    let mut streams = streams();
    let refused = match number {
        Ok(_) => streams.try_reserve(1).is_err().then_some(libc::ENOMEM),
        Err(error) => Some(error.0),
    };
    if let Some(refused) = refused {
        // SAFETY: opened above.
        unsafe { original::closedir(directory) };
        set_errno(refused);
        return ptr::null_mut();
    }
    if let Ok(number) = number {
        streams.push((directory as usize, number));
        COUNT.store(streams.len(), Ordering::Relaxed);
    }
    directory
}

pub(super) unsafe extern "C" fn readdir(directory: *mut DIR) -> *mut dirent {
    let number = watched(directory);
    loop {
        // SAFETY: as the program has called it.
        let entry = unsafe { original::readdir(directory) };
        let Some(number) = number.filter(|_| !entry.is_null()) else { return entry };
        // SAFETY: an entry of libc's buffer, with a string in it.
        let (name, kind) = unsafe { (CStr::from_ptr((*entry).d_name.as_ptr()), (*entry).d_type) };
        let before = errno();
        match guarded(|front| Ok(front.listed(number, name, kind))) {
            Ok(Listed::Shown) => return entry,
            Ok(Listed::File) => {
                // SAFETY: as above; the buffer is the stream's, to be written to.
                unsafe { (*entry).d_type = libc::DT_REG };
                return entry;
            }
            Ok(Listed::Hidden) => set_errno(before),
            Err(error) => {
                set_errno(error.0);
                return ptr::null_mut();
            }
        }
    }
}

pub(super) unsafe extern "C" fn closedir(directory: *mut DIR) -> c_int {
    if watched(directory).is_some() {
        let mut streams = streams();
        streams.retain(|(stream, _)| *stream != directory as usize);
        COUNT.store(streams.len(), Ordering::Relaxed);
    }
    // SAFETY: as the program has called it.
    unsafe { original::closedir(directory) }
}
