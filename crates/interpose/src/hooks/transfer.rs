//! `read`, `write` and their kin.
// C functions, called with the pointers of a program.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use super::bytes::{self, read_at, write_at};
use super::descriptors::{File, managed};
use super::front::{answer, guarded};
use crate::front::Errno;
use crate::original;

const BAD_DESCRIPTOR: Errno = Errno(libc::EBADF);
const INVALID: Errno = Errno(libc::EINVAL);

/// `UIO_MAXIOV`.
const MOST_BUFFERS: c_int = 1024;

/// Where a call reads or writes.
#[derive(Clone, Copy)]
enum At {
    Position,
    Offset(off_t),
}

/// The buffers of a vectored call.
fn vector<'a>(buffers: *const iovec, count: c_int) -> Result<&'a [iovec], Errno> {
    if !(0..=MOST_BUFFERS).contains(&count) {
        return Err(INVALID);
    }
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the program's array, of that many.
    let buffers = unsafe { std::slice::from_raw_parts(buffers, count as usize) };
    if buffers.iter().any(|buffer| isize::try_from(buffer.iov_len).is_err()) {
        return Err(INVALID);
    }
    Ok(buffers)
}

/// A buffer as a vector of one.
fn single(at: *const c_void, length: size_t) -> [iovec; 1] {
    [iovec { iov_base: at.cast_mut(), iov_len: length }]
}

fn start(at: At, position: impl FnOnce() -> i64) -> Result<u64, Errno> {
    let offset = match at {
        At::Position => position(),
        At::Offset(offset) => offset,
    };
    u64::try_from(offset).map_err(|_| INVALID)
}

fn reading(file: File, buffers: Result<&[iovec], Errno>, at: At) -> Result<ssize_t, Errno> {
    let offset = start(at, || file.position())?;
    if !file.may_read() {
        return Err(BAD_DESCRIPTOR);
    }
    let read = read_at(file, buffers?, offset)?;
    if matches!(at, At::Position) {
        file.set_position((offset + read as u64) as i64);
    }
    Ok(read as ssize_t)
}

fn writing(file: File, buffers: Result<&[iovec], Errno>, at: At) -> Result<ssize_t, Errno> {
    let mut offset = start(at, || file.position())?;
    if !file.may_write() {
        return Err(BAD_DESCRIPTOR);
    }
    let buffers = buffers?;
    if bytes::total(buffers) == 0 {
        return Ok(0);
    }
    // As in Linux, with an offset too.
    if file.appends() {
        offset = bytes::size(file)?;
    }
    let written = write_at(file, buffers, offset)?;
    if matches!(at, At::Position) {
        file.set_position((offset + written as u64) as i64);
    }
    if file.syncs() {
        guarded(|front| front.sync(file.fd))?;
    }
    Ok(written as ssize_t)
}

/// What `preadv2` and `pwritev2` may be asked for, and where they work.
fn flagged(offset: off_t, flags: c_int) -> Result<At, Errno> {
    // RWF_DSYNC and RWF_SYNC would need a sync each; no server asks for them.
    if flags & !libc::RWF_HIPRI != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    Ok(if offset == -1 { At::Position } else { At::Offset(offset) })
}

pub(super) unsafe extern "C" fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::read(fd, to, length) };
    };
    answer(reading(file, Ok(&single(to, length)), At::Position))
}

pub(super) unsafe extern "C" fn read_chk(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    match managed(fd) {
        Some(file) if length <= room => answer(reading(file, Ok(&single(to, length)), At::Position)),
        // SAFETY: as the program has called it. Ends the process where the buffer is too small.
        _ => unsafe { original::read_chk(fd, to, length, room) },
    }
}

pub(super) unsafe extern "C" fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::readv(fd, buffers, count) };
    };
    answer(reading(file, vector(buffers, count), At::Position))
}

pub(super) unsafe extern "C" fn pread(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::pread(fd, to, length, offset) };
    };
    answer(reading(file, Ok(&single(to, length)), At::Offset(offset)))
}

pub(super) unsafe extern "C" fn pread_chk(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    offset: off_t,
    room: size_t,
) -> ssize_t {
    match managed(fd) {
        Some(file) if length <= room => answer(reading(file, Ok(&single(to, length)), At::Offset(offset))),
        // SAFETY: as the program has called it. Ends the process where the buffer is too small.
        _ => unsafe { original::pread_chk(fd, to, length, offset, room) },
    }
}

pub(super) unsafe extern "C" fn preadv(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::preadv(fd, buffers, count, offset) };
    };
    answer(reading(file, vector(buffers, count), At::Offset(offset)))
}

pub(super) unsafe extern "C" fn preadv2(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::preadv2(fd, buffers, count, offset, flags) };
    };
    answer(flagged(offset, flags).and_then(|at| reading(file, vector(buffers, count), at)))
}

pub(super) unsafe extern "C" fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::write(fd, from, length) };
    };
    answer(writing(file, Ok(&single(from, length)), At::Position))
}

pub(super) unsafe extern "C" fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::writev(fd, buffers, count) };
    };
    answer(writing(file, vector(buffers, count), At::Position))
}

pub(super) unsafe extern "C" fn pwrite(
    fd: c_int,
    from: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::pwrite(fd, from, length, offset) };
    };
    answer(writing(file, Ok(&single(from, length)), At::Offset(offset)))
}

pub(super) unsafe extern "C" fn pwritev(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::pwritev(fd, buffers, count, offset) };
    };
    answer(writing(file, vector(buffers, count), At::Offset(offset)))
}

pub(super) unsafe extern "C" fn pwritev2(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::pwritev2(fd, buffers, count, offset, flags) };
    };
    answer(flagged(offset, flags).and_then(|at| writing(file, vector(buffers, count), at)))
}
