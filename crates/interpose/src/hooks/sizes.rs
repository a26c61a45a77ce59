//! Calls on a descriptor that move no bytes of the program, or move them between files.
// C functions, called with the pointers of a program.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};

use libc::{iovec, off_t, size_t, ssize_t};

use super::bytes::{self, MOST_BYTES, read_at, write_at};
use super::descriptors::{File, managed};
use super::front::{answer, done, guarded};
use crate::front::{Advice, Errno, PAGE_BYTES};
use crate::original::{self, errno, set_errno};

const INVALID: Errno = Errno(libc::EINVAL);
const BAD_DESCRIPTOR: Errno = Errno(libc::EBADF);
const PAGE: u64 = PAGE_BYTES as u64;

fn seek(file: File, offset: off_t, whence: c_int) -> Result<off_t, Errno> {
    let from = match whence {
        libc::SEEK_SET => Some(offset),
        libc::SEEK_CUR => file.position().checked_add(offset),
        libc::SEEK_END => (bytes::size(file)? as off_t).checked_add(offset),
        // All of a file is data, and there is a hole behind it.
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            let size = bytes::size(file)? as off_t;
            if !(0..size).contains(&offset) {
                return Err(Errno(libc::ENXIO));
            }
            Some(if whence == libc::SEEK_DATA { offset } else { size })
        }
        _ => None,
    };
    let to = from.filter(|to| *to >= 0).ok_or(INVALID)?;
    file.set_position(to);
    Ok(to)
}

pub(super) unsafe extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    match managed(fd) {
        Some(file) => answer(seek(file, offset, whence)),
        // SAFETY: as the program has called it.
        None => unsafe { original::lseek(fd, offset, whence) },
    }
}

pub(super) unsafe extern "C" fn ftruncate(fd: c_int, size: off_t) -> c_int {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::ftruncate(fd, size) };
    };
    // A descriptor that cannot be written to is EINVAL here, not EBADF.
    let size = u64::try_from(size).ok().filter(|_| file.may_write()).ok_or(INVALID);
    done(size.and_then(|size| bytes::truncate(file, size)))
}

pub(super) unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    match managed(fd) {
        Some(file) => done(guarded(|front| front.sync(file.fd))),
        // SAFETY: as the program has called it.
        None => unsafe { original::fsync(fd) },
    }
}

pub(super) unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    match managed(fd) {
        Some(file) => done(guarded(|front| front.sync(file.fd))),
        // SAFETY: as the program has called it.
        None => unsafe { original::fdatasync(fd) },
    }
}

fn allocate(file: File, offset: off_t, length: off_t) -> Result<(), Errno> {
    if offset < 0 || length <= 0 {
        return Err(INVALID);
    }
    if !file.may_write() {
        return Err(BAD_DESCRIPTOR);
    }
    let end = (offset as u64).saturating_add(length as u64);
    if end > MOST_BYTES {
        return Err(Errno(libc::EFBIG));
    }
    guarded(|front| front.extend(file.fd, end.div_ceil(PAGE) as u32))
}

/// Returns its error, and leaves `errno`.
pub(super) unsafe extern "C" fn posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int {
    match managed(fd) {
        Some(file) => allocate(file, offset, length).map_or_else(|Errno(number)| number, |()| 0),
        // SAFETY: as the program has called it.
        None => unsafe { original::posix_fallocate(fd, offset, length) },
    }
}

/// Without a mode only: there are no holes to make, and no space is had without a size.
pub(super) unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    match managed(fd) {
        Some(_) if offset < 0 || length <= 0 => done(Err(INVALID)),
        Some(_) if mode != 0 => done(Err(Errno(libc::EOPNOTSUPP))),
        Some(file) => done(allocate(file, offset, length)),
        // SAFETY: as the program has called it.
        None => unsafe { original::fallocate(fd, mode, offset, length) },
    }
}

fn advise(file: File, offset: off_t, length: off_t, advice: Advice) {
    let from = (offset as u64).min(MOST_BYTES);
    let to = if length == 0 { MOST_BYTES } else { from.saturating_add(length as u64).min(MOST_BYTES) };
    let (first, end) = ((from / PAGE) as u32, to.div_ceil(PAGE) as u32);
    if end > first {
        let _ = guarded(|front| {
            front.advise(file.fd, first, end - first, advice);
            Ok(())
        });
    }
}

/// Returns its error, and leaves `errno`.
pub(super) unsafe extern "C" fn posix_fadvise(
    fd: c_int,
    offset: off_t,
    length: off_t,
    advice: c_int,
) -> c_int {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::posix_fadvise(fd, offset, length, advice) };
    };
    let known = libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE;
    if length < 0 || !known.contains(&advice) {
        return libc::EINVAL;
    }
    if offset >= 0 {
        match advice {
            libc::POSIX_FADV_WILLNEED => advise(file, offset, length, Advice::WillNeed),
            libc::POSIX_FADV_DONTNEED => advise(file, offset, length, Advice::WriteBack),
            _ => {}
        }
    }
    0
}

/// Never an error of the device: PostgreSQL's writeback would make it a PANIC, and fsync will say it.
pub(super) unsafe extern "C" fn sync_file_range(
    fd: c_int,
    offset: off_t,
    length: off_t,
    flags: c_uint,
) -> c_int {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::sync_file_range(fd, offset, length, flags) };
    };
    if flags > 7 || offset < 0 || length < 0 || offset.checked_add(length).is_none() {
        return done(Err(INVALID));
    }
    advise(file, offset, length, Advice::WriteBack);
    0
}

/// Most bytes that one call copies; it may always copy fewer.
const COPIED_AT_ONCE: u64 = 1 << 20;

#[repr(align(64))]
struct Buffer([u8; PAGE_BYTES]);

/// One end of a copy.
#[derive(Clone, Copy)]
struct End {
    fd: c_int,
    file: Option<File>,
    at: u64,
}

impl End {
    /// Where the copy begins: at `offset`, or at the descriptor's position where that is null.
    fn new(fd: c_int, offset: *const off_t) -> Result<End, Errno> {
        let file = managed(fd);
        let at = match (offset.is_null(), file) {
            // SAFETY: not null, so the program's.
            (false, _) => unsafe { *offset },
            (true, Some(file)) => file.position(),
            // SAFETY: changes nothing.
            (true, None) => unsafe { libc_result(original::lseek(fd, 0, libc::SEEK_CUR)) }?,
        };
        Ok(End { fd, file, at: u64::try_from(at).map_err(|_| INVALID)? })
    }

    fn flags(self) -> Result<c_int, Errno> {
        match self.file {
            Some(file) => Ok(file.status_flags()),
            // SAFETY: changes nothing.
            None => unsafe { libc_result(i64::from(original::fcntl(self.fd, libc::F_GETFL, 0))) }
                .map(|flags| flags as c_int),
        }
    }

    fn read(self, to: &mut [u8]) -> Result<usize, Errno> {
        let buffer = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        match self.file {
            Some(file) => read_at(file, &[buffer], self.at),
            None => {
                // SAFETY: our buffer.
                let read =
                    unsafe { original::pread(self.fd, buffer.iov_base, buffer.iov_len, self.at as off_t) };
                libc_result(read as i64).map(|read| read as usize)
            }
        }
    }

    fn write(self, from: &[u8]) -> Result<usize, Errno> {
        let buffer = iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        match self.file {
            Some(file) => write_at(file, &[buffer], self.at),
            None => {
                // SAFETY: our buffer.
                let written =
                    unsafe { original::pwrite(self.fd, buffer.iov_base, buffer.iov_len, self.at as off_t) };
                libc_result(written as i64).map(|written| written as usize)
            }
        }
    }

    /// Puts the new offset where the old one came from.
    fn finish(self, offset: *mut off_t, copied: usize) {
        let now = (self.at + copied as u64) as off_t;
        if !offset.is_null() {
            // SAFETY: the program's.
            unsafe { *offset = now };
        } else if let Some(file) = self.file {
            file.set_position(now);
        } else {
            // SAFETY: the descriptor has just been read or written at that place.
            unsafe { original::lseek(self.fd, now, libc::SEEK_SET) };
        }
    }
}

fn libc_result(result: i64) -> Result<i64, Errno> {
    if result < 0 { Err(Errno(errno())) } else { Ok(result) }
}

/// Whether both are one file.
fn is_same(one: End, other: End) -> Result<bool, Errno> {
    let (Some(one), Some(other)) = (one.file, other.file) else { return Ok(false) };
    let of =
        |file: File| guarded(|front| front.descriptor_attributes(file.fd)).map(|attributes| attributes.stat);
    let (one, other) = (of(one)?, of(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// By reading and writing. The result may be short, as the kernel's may.
fn copy(from: End, to: End, length: usize) -> Result<usize, Errno> {
    let (reads, writes) = (from.flags()?, to.flags()?);
    let no_read = reads & libc::O_ACCMODE == libc::O_WRONLY;
    let no_write = writes & libc::O_ACCMODE == libc::O_RDONLY || writes & libc::O_APPEND != 0;
    if no_read || no_write {
        return Err(BAD_DESCRIPTOR);
    }
    let length = match from.file {
        Some(file) => (length as u64).min(bytes::size(file)?.saturating_sub(from.at)),
        None => length as u64,
    };
    let overlap = from.at < to.at.saturating_add(length) && to.at < from.at.saturating_add(length);
    if overlap && is_same(from, to)? {
        return Err(INVALID);
    }
    let wanted = length.min(COPIED_AT_ONCE);
    let mut buffer = Buffer([0; PAGE_BYTES]);
    let mut copied = 0;
    let wanted = wanted as usize;
    while copied < wanted {
        let (from, to) =
            (End { at: from.at + copied as u64, ..from }, End { at: to.at + copied as u64, ..to });
        // Whole pages of the target, after the first.
        let part = (wanted - copied).min(PAGE_BYTES - (to.at % PAGE) as usize);
        let step = from.read(&mut buffer.0[..part]).and_then(|read| to.write(&buffer.0[..read]));
        match step {
            Ok(0) => break,
            Ok(written) => copied += written,
            Err(error) if copied == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(copied)
}

/// PostgreSQL 18 takes EINVAL for an error where it copies a database by `file_copy_method = clone`, so it
/// has to work with managed files.
pub(super) unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if managed(from).is_none() && managed(to).is_none() {
        // SAFETY: as the program has called it.
        return unsafe { original::copy_file_range(from, from_at, to, to_at, length, flags) };
    }
    let before = errno();
    let copied = (|| {
        if flags != 0 {
            return Err(INVALID);
        }
        let (source, target) = (End::new(from, from_at)?, End::new(to, to_at)?);
        let copied = copy(source, target, length)?;
        source.finish(from_at, copied);
        target.finish(to_at, copied);
        Ok(copied as ssize_t)
    })();
    set_errno(before);
    answer(copied)
}

/// EINVAL of a managed file: callers read and write then, as they must for files that the kernel cannot map.
pub(super) unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t {
    if managed(from).is_some() || managed(to).is_some() {
        return answer(Err(INVALID));
    }
    // SAFETY: as the program has called it.
    unsafe { original::sendfile(to, from, at, length) }
}
