//! Descriptors come and go: `open`, `close`, `dup`, `fcntl`, `ioctl`, `mmap`.
//!
//! A descriptor of a managed file cannot be duplicated (EOPNOTSUPP): its position would have to be shared, and
//! the front would have to know of both. PostgreSQL 15 to 18 duplicate standard streams and, to count how many
//! they may have, standard error; never a relation's descriptor. EMFILE, the other error that `dup` has, would
//! make a caller close files and try again.
// C functions, called with the pointers of a program.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};

use libc::{mode_t, off_t, size_t};

use super::changing::open_settled;
use super::descriptors::{File, adopt, managed};
use super::front::{answer, asked, guarded};
use super::names::{in_folder, managed_name};
use crate::front::Errno;
use crate::original::{self, errno, set_errno};

const CREATING: c_int = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;

/// Opens a managed file; `None`: it is none.
pub(super) fn open_managed(path: &CStr, flags: c_int, mode: mode_t) -> Option<Result<c_int, Errno>> {
    if flags & libc::O_DIRECTORY != 0 {
        return managed_name(path).then_some(Err(Errno(libc::ENOTDIR)));
    }
    // Pages are compressed in between: there is no direct way.
    let flags = flags & !libc::O_DIRECT;
    let fd = match asked(|front| front.open(path, flags, mode))? {
        Ok(fd) => fd,
        Err(error) => return Some(Err(error)),
    };
    if adopt(fd, flags) {
        return Some(Ok(fd));
    }
    let _ = guarded(|front| {
        front.close(fd);
        Ok(())
    });
    // SAFETY: the descriptor is the front's, which has let it go.
    unsafe { original::close(fd) };
    Some(Err(Errno(libc::EMFILE)))
}

/// A descriptor that libc has just given cannot be a managed one any more, if something else closed it.
pub(super) fn fresh(fd: c_int) -> c_int {
    if let Some(file) = managed(fd) {
        file.forget();
        let _ = guarded(|front| {
            front.close(fd);
            Ok(())
        });
    }
    fd
}

fn opening(path: *const c_char, flags: c_int, mode: mode_t, original: impl Fn(c_int) -> c_int) -> c_int {
    if path.is_null() {
        return fresh(original(flags));
    }
    // SAFETY: the program's string.
    open_settled(unsafe { CStr::from_ptr(path) }, flags, mode, original)
}

pub(super) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as the program has called it.
    opening(path, flags, mode, |flags| unsafe { original::open(path, flags, mode) })
}

pub(super) unsafe extern "C" fn open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as the program has called it. Ends the process where a mode is missing.
    opening(path, flags, 0, |flags| unsafe { original::open_2(path, flags) })
}

pub(super) unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: as the program has called it.
    opening(path, CREATING, mode, |_| unsafe { original::creat(path, mode) })
}

fn opening_at(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    original: impl Fn(c_int) -> c_int,
) -> c_int {
    // SAFETY: the program's string.
    let opened = unsafe { in_folder(folder, path, |path| Some(open_settled(path, flags, mode, &original))) };
    opened.unwrap_or_else(|| fresh(original(flags)))
}

pub(super) unsafe extern "C" fn openat(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: as the program has called it.
    opening_at(folder, path, flags, mode, |flags| unsafe { original::openat(folder, path, flags, mode) })
}

pub(super) unsafe extern "C" fn openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as the program has called it.
    opening_at(folder, path, flags, 0, |flags| unsafe { original::openat_2(folder, path, flags) })
}

/// Lets a managed file go, its descriptor too.
pub(super) fn close_managed(file: File) {
    let before = errno();
    leave(file);
    // SAFETY: the front has let the descriptor go. What it says is the container's affair: pages that were
    // not synced have no promise.
    unsafe { original::close(file.fd) };
    set_errno(before);
}

fn leave(file: File) {
    file.forget();
    let _ = guarded(|front| {
        front.close(file.fd);
        Ok(())
    });
}

/// Never fails for a managed file.
pub(super) unsafe extern "C" fn close(fd: c_int) -> c_int {
    let Some(file) = managed(fd) else {
        // SAFETY: as the program has called it.
        return unsafe { original::close(fd) };
    };
    close_managed(file);
    0
}

fn no_copies() -> c_int {
    answer(Err(Errno(libc::EOPNOTSUPP)))
}

pub(super) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if managed(fd).is_some() {
        return no_copies();
    }
    // SAFETY: as the program has called it.
    fresh(unsafe { original::dup(fd) })
}

/// Before `to` becomes another name of `fd`, if it can.
fn make_room(fd: c_int, to: c_int) {
    // SAFETY: changes nothing.
    let valid = unsafe { original::fcntl(fd, libc::F_GETFD, 0) } >= 0;
    if let Some(file) = managed(to)
        && valid
    {
        leave(file);
    }
}

pub(super) unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if managed(fd).is_some() {
        return if fd == to { fd } else { no_copies() };
    }
    if managed(to).is_some() {
        make_room(fd, to);
    }
    // SAFETY: as the program has called it.
    unsafe { original::dup2(fd, to) }
}

pub(super) unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if managed(fd).is_some() {
        return if fd == to { answer(Err(Errno(libc::EINVAL))) } else { no_copies() };
    }
    if managed(to).is_some() && flags & !libc::O_CLOEXEC == 0 {
        make_room(fd, to);
    }
    // SAFETY: as the program has called it.
    unsafe { original::dup3(fd, to, flags) }
}

/// Not variadic: on x86-64 three arguments of the size of a word come in the same registers.
pub(super) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::fcntl(fd, command, argument) };
    match (managed(fd), command) {
        (None, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => fresh(original()),
        (None, _) => original(),
        (Some(_), libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => no_copies(),
        (Some(file), libc::F_GETFL) => file.status_flags(),
        (Some(file), libc::F_SETFL) => {
            file.set_status_flags(argument as c_int);
            0
        }
        // Locks, owners and what happens at exec are those of the real file.
        (Some(_), _) => original(),
    }
}

/// `FICLONE` and `FICLONERANGE`.
const CLONING: [c_ulong; 2] = [0x4004_9409, 0x4020_940d];

pub(super) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if managed(fd).is_some() {
        let unknown = if CLONING.contains(&request) { libc::EOPNOTSUPP } else { libc::ENOTTY };
        return answer(Err(Errno(unknown)));
    }
    if CLONING.contains(&request) && argument != 0 {
        let source = if request == CLONING[0] {
            argument as i64
        } else {
            // SAFETY: the argument is a structure that begins with the source's descriptor.
            unsafe { *(argument as *const i64) }
        };
        if i32::try_from(source).is_ok_and(|source| managed(source).is_some()) {
            return answer(Err(Errno(libc::EOPNOTSUPP)));
        }
    }
    // SAFETY: as the program has called it.
    unsafe { original::ioctl(fd, request, argument) }
}

/// A managed file has no pages of its own in memory.
pub(super) unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 && managed(fd).is_some() {
        set_errno(libc::ENODEV);
        return libc::MAP_FAILED;
    }
    // SAFETY: as the program has called it.
    unsafe { original::mmap(at, length, protection, flags, fd, offset) }
}
