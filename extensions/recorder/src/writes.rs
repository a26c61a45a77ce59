//! Functions that change what is in files.
// Replaces functions of libc.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use crate::format::Kind;
use crate::recording::{is_below, turn};
use crate::{inode_of, int, is_watched, system};

/// Writes at a place, and records it.
unsafe fn write_at(descriptor: c_int, data: *const c_void, size: size_t, at: off_t) -> ssize_t {
    let call = || system!(SYS_pwrite64, descriptor, data, size, at) as ssize_t;
    if !is_watched(descriptor) {
        return call();
    }
    let turn = turn();
    let done = call();
    if done > 0 {
        // SAFETY: the caller's buffer, of which so many bytes were just read.
        let written = unsafe { std::slice::from_raw_parts(data.cast(), done as usize) };
        turn.record_write(inode_of(descriptor).0, at as u64, written);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(descriptor: c_int, data: *const c_void, size: size_t, at: off_t) -> ssize_t {
    // SAFETY: as of this function.
    unsafe { write_at(descriptor, data, size, at) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(descriptor: c_int, data: *const c_void, size: size_t, at: off_t) -> ssize_t {
    // SAFETY: as of this function.
    unsafe { write_at(descriptor, data, size, at) }
}

/// Writes pieces at a place, or where the file's position is, and records it.
unsafe fn write_pieces(descriptor: c_int, pieces: *const iovec, count: c_int, at: Option<off_t>) -> ssize_t {
    let call = || match at {
        Some(at) => system!(SYS_pwritev, descriptor, pieces, count, at, 0) as ssize_t,
        None => system!(SYS_writev, descriptor, pieces, count) as ssize_t,
    };
    if !is_watched(descriptor) {
        return call();
    }
    let turn = turn();
    let done = call();
    if done > 0 {
        let at = at.unwrap_or_else(|| system!(SYS_lseek, descriptor, 0, libc::SEEK_CUR) - done as off_t);
        // SAFETY: the caller's pieces, which were just read.
        unsafe {
            let pieces = std::slice::from_raw_parts(pieces, count as usize);
            turn.record_pieces(inode_of(descriptor).0, at as u64, pieces, done as usize);
        }
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev(descriptor: c_int, pieces: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: as of this function.
    unsafe { write_pieces(descriptor, pieces, count, Some(at)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64(descriptor: c_int, pieces: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: as of this function.
    unsafe { write_pieces(descriptor, pieces, count, Some(at)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(descriptor: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as of this function.
    unsafe { write_pieces(descriptor, pieces, count, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(descriptor: c_int, data: *const c_void, size: size_t) -> ssize_t {
    if !is_watched(descriptor) {
        return system!(SYS_write, descriptor, data, size) as ssize_t;
    }
    let piece = iovec { iov_base: data.cast_mut(), iov_len: size };
    // SAFETY: as of this function.
    unsafe { write_pieces(descriptor, &piece, 1, None) }
}

unsafe fn set_size(descriptor: c_int, size: off_t) -> c_int {
    if !is_watched(descriptor) {
        return int(system!(SYS_ftruncate, descriptor, size));
    }
    let turn = turn();
    let done = int(system!(SYS_ftruncate, descriptor, size));
    if done == 0 {
        turn.record(Kind::Truncate, inode_of(descriptor).0, size as u64, 0);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate(descriptor: c_int, size: off_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { set_size(descriptor, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(descriptor: c_int, size: off_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { set_size(descriptor, size) }
}

unsafe fn set_size_of_path(path: *const c_char, size: off_t) -> c_int {
    if !is_below(path) {
        return int(system!(SYS_truncate, path, size));
    }
    let turn = turn();
    let done = int(system!(SYS_truncate, path, size));
    if done == 0 {
        // SAFETY: a string that ends with a zero; all zeros is a value of this struct of numbers.
        let inode = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::stat(path, &mut stat);
            stat.st_ino
        };
        turn.record(Kind::Truncate, inode, size as u64, 0);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { set_size_of_path(path, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate64(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { set_size_of_path(path, size) }
}

unsafe fn allocate(descriptor: c_int, mode: c_int, at: off_t, length: off_t) -> c_int {
    let call = || int(system!(SYS_fallocate, descriptor, mode, at, length));
    if !is_watched(descriptor) {
        return call();
    }
    let turn = turn();
    let done = call();
    if done == 0 {
        let inode = inode_of(descriptor).0;
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        match mode {
            0 => turn.record(Kind::Allocate, inode, at as u64, length as u64),
            _ if mode == keep => {}
            _ if mode == libc::FALLOC_FL_PUNCH_HOLE | keep => {
                turn.record(Kind::Punch, inode, at as u64, length as u64);
            }
            _ => turn.record_paths(Kind::Unknown, inode, 0, [b"fallocate", &[]]),
        }
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate(descriptor: c_int, mode: c_int, at: off_t, length: off_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { allocate(descriptor, mode, at, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate64(descriptor: c_int, mode: c_int, at: off_t, length: off_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { allocate(descriptor, mode, at, length) }
}

/// Returns an error number, and leaves `errno` as it is.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate(descriptor: c_int, at: off_t, length: off_t) -> c_int {
    // SAFETY: as of this function.
    if unsafe { allocate(descriptor, 0, at, length) } == 0 { 0 } else { crate::errno() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate64(descriptor: c_int, at: off_t, length: off_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { posix_fallocate(descriptor, at, length) }
}

/// Not followed: the recording says so.
#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    length: size_t,
    flags: u32,
) -> ssize_t {
    unknown(to, c"copy_file_range");
    system!(SYS_copy_file_range, from, from_at, to, to_at, length, flags) as ssize_t
}

/// Not followed: the recording says so.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t {
    unknown(to, c"sendfile");
    system!(SYS_sendfile, to, from, at, length) as ssize_t
}

fn unknown(descriptor: c_int, name: &CStr) {
    if is_watched(descriptor) {
        turn().record_paths(Kind::Unknown, inode_of(descriptor).0, 0, [name.to_bytes(), &[]]);
    }
}
