//! Streams: libc writes them by itself, so a stream that was open for writing is recorded as a whole.
// Replaces functions of libc.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use libc::FILE;

use crate::format::Kind;
use crate::names::{Place, open_watched};
use crate::recording::{Turn, is_below, turn};
use crate::{inode_of, mark, marks, set_marks, system};

unsafe extern "C" {
    // The functions of libc, by names that this library does not define.
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn _IO_fclose(stream: *mut FILE) -> c_int;
}

/// Flags of `open` for a mode of `fopen`.
fn flags_of(mode: &[u8]) -> c_int {
    let both = mode.contains(&b'+');
    let access = |one: c_int| if both { libc::O_RDWR } else { one };
    let flags = match mode.first() {
        Some(b'w') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => access(libc::O_RDONLY),
    };
    flags | if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 }
}

unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: strings that end with a zero.
    unsafe {
        let flags = flags_of(CStr::from_ptr(mode).to_bytes());
        if flags & libc::O_ACCMODE == libc::O_RDONLY || !is_below(path) {
            let stream = _IO_fopen(path, mode);
            if !stream.is_null() {
                set_marks(libc::fileno(stream), 0);
            }
            return stream;
        }
        let descriptor = open_watched(Place::of(path), flags, 0o666);
        if descriptor < 0 {
            return std::ptr::null_mut();
        }
        set_marks(descriptor, mark::WATCHED | mark::STREAM);
        libc::fdopen(descriptor, mode)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as of this function.
    unsafe { open_stream(path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as of this function.
    unsafe { open_stream(path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: as of this function; the descriptor is read before it is closed.
    unsafe {
        let descriptor = libc::fileno(stream);
        if marks(descriptor) & mark::STREAM != 0 {
            libc::fflush(stream);
            record_whole(&turn(), descriptor);
        }
        set_marks(descriptor, 0);
        _IO_fclose(stream)
    }
}

/// Records a stream's file as if it had been written just now. It has been flushed.
pub(crate) fn record_whole(turn: &Turn, descriptor: c_int) {
    let (inode, _) = inode_of(descriptor);
    // The stream's own descriptor may not be for reading.
    let mut link = [0u8; 32];
    // SAFETY: buffers of the lengths that are given.
    unsafe {
        libc::snprintf(link.as_mut_ptr().cast(), link.len(), c"/proc/self/fd/%d".as_ptr(), descriptor);
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let file = system!(SYS_openat, libc::AT_FDCWD, link.as_ptr(), flags, 0) as c_int;
    let mut buffer = [0u8; 1 << 16];
    let mut at = 0;
    turn.record(Kind::Truncate, inode, 0, 0);
    loop {
        let got = system!(SYS_pread64, file, buffer.as_mut_ptr(), buffer.len(), at);
        if got <= 0 {
            break;
        }
        turn.record_write(inode, at as u64, &buffer[..got as usize]);
        at += got;
    }
    system!(SYS_close, file);
}
