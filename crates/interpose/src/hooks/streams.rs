//! Streams of managed files: `fopen` makes one whose bytes come from the hooks, so that all that libc does
//! with streams works. `fileno` of it is -1 with EBADF. These may allocate.
// C functions, called with the pointers of a program.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use libc::{FILE, off64_t, size_t, ssize_t};

use super::changing::stream_settled;
use super::descriptors::managed;
use super::names::managed_name;
use super::opening::{close, open_managed};
use super::sizes::lseek;
use super::transfer::{read, write};
use crate::front::Errno;
use crate::original::{self, set_errno};

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// The descriptor is the cookie.
fn descriptor(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

unsafe extern "C" fn read_stream(cookie: *mut c_void, to: *mut c_char, length: size_t) -> ssize_t {
    // SAFETY: libc's buffer.
    unsafe { read(descriptor(cookie), to.cast(), length) }
}

/// 0 is the error here.
unsafe extern "C" fn write_stream(cookie: *mut c_void, from: *const c_char, length: size_t) -> ssize_t {
    // SAFETY: libc's buffer.
    unsafe { write(descriptor(cookie), from.cast(), length) }.max(0)
}

unsafe extern "C" fn seek_stream(cookie: *mut c_void, offset: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: libc's number.
    let to = unsafe { lseek(descriptor(cookie), *offset, whence) };
    if to < 0 {
        return -1;
    }
    // SAFETY: as above.
    unsafe { *offset = to };
    0
}

unsafe extern "C" fn close_stream(cookie: *mut c_void) -> c_int {
    // SAFETY: the descriptor that `fopen` has opened.
    unsafe { close(descriptor(cookie)) }
}

/// Flags of `open` for a mode of `fopen`; `None`: no mode.
fn flags_of(mode: &[u8]) -> Option<c_int> {
    let (kind, rest) = mode.split_first()?;
    let (alone, with_plus) = match kind {
        b'r' => (libc::O_RDONLY, 0),
        b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
        b'a' => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        _ => return None,
    };
    // What comes behind a comma is a character set.
    let rest = rest.split(|byte| *byte == b',').next().unwrap_or_default();
    let access = if rest.contains(&b'+') { libc::O_RDWR } else { alone };
    let exclusive = if rest.contains(&b'x') { libc::O_EXCL } else { 0 };
    let ends_at_exec = if rest.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    Some(access | with_plus | exclusive | ends_at_exec)
}

pub(super) unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::fopen(path, mode) };
    if path.is_null() || mode.is_null() {
        return original();
    }
    // SAFETY: the program's strings.
    let (name, letters) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(mode).to_bytes()) };
    let Some(flags) = flags_of(letters) else { return original() };
    stream_settled(name, || open_managed(name, flags, 0o666).map(|opened| stream_of(opened, mode)), original)
}

fn stream_of(opened: Result<c_int, Errno>, mode: *const c_char) -> *mut FILE {
    match opened {
        Err(error) => {
            set_errno(error.0);
            ptr::null_mut()
        }
        Ok(fd) => {
            let functions =
                Functions { read: read_stream, write: write_stream, seek: seek_stream, close: close_stream };
            // SAFETY: the functions take the descriptor for the cookie.
            let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
            if stream.is_null() {
                // SAFETY: opened by the caller for this alone.
                unsafe { close(fd) };
            }
            stream
        }
    }
}

/// A stream that exists cannot become one of a managed file. As where libc's fails, it is closed.
pub(super) unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's string.
    if !path.is_null() && managed_name(unsafe { CStr::from_ptr(path) }) {
        // SAFETY: as the program has called it.
        unsafe { libc::fclose(stream) };
        set_errno(libc::EOPNOTSUPP);
        return ptr::null_mut();
    }
    // SAFETY: as the program has called it.
    unsafe { original::freopen(path, mode, stream) }
}

/// A managed descriptor cannot become a stream: libc would read what is really behind it.
pub(super) unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if managed(fd).is_some() {
        set_errno(libc::EOPNOTSUPP);
        return ptr::null_mut();
    }
    // SAFETY: as the program has called it.
    unsafe { original::fdopen(fd, mode) }
}

#[test]
fn modes_of_streams_are_flags_of_open() {
    use libc::{O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
    for (mode, flags) in [
        ("r", Some(O_RDONLY)),
        ("rb", Some(O_RDONLY)),
        ("r+", Some(O_RDWR)),
        ("rb+e", Some(O_RDWR | O_CLOEXEC)),
        ("w", Some(O_WRONLY | O_CREAT | O_TRUNC)),
        ("w+x", Some(O_RDWR | O_CREAT | O_TRUNC | O_EXCL)),
        ("ab", Some(O_WRONLY | O_CREAT | O_APPEND)),
        ("a+", Some(O_RDWR | O_CREAT | O_APPEND)),
        ("r,ccs=e+x", Some(O_RDONLY)),
        ("", None),
        ("b", None),
    ] {
        assert_eq!(flags_of(mode.as_bytes()), flags, "{mode}");
    }
}
