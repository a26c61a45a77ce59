//! Calls on names: `stat`, `access`, `unlink`, `rename`, `link`, `rmdir`, `truncate`.
// C functions, called with the pointers of a program.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use libc::{off_t, stat};

use super::bytes::{MOST_BYTES, truncate as truncate_to};
use super::changing::{settled, truncated};
use super::descriptors::managed;
use super::front::{asked, done, guarded};
use super::opening::{close_managed, open_managed};
use crate::front::{Attributes, Errno, Outcome, PAGE_BYTES};
use crate::original::{self, errno};

/// Whether a managed file has this name.
pub(super) fn managed_name(path: &CStr) -> bool {
    matches!(asked(|front| front.attributes(path)), Some(Ok(_)))
}

/// Asks about a path; a null pointer is libc's affair.
///
/// # Safety
/// A string, or null.
unsafe fn about<T>(path: *const c_char, ask: impl FnOnce(&CStr) -> Option<T>) -> Option<T> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    ask(unsafe { CStr::from_ptr(path) })
}

/// Asks about a path as the `…at` functions have it: below a folder, unless it is absolute.
///
/// # Safety
/// A string, or null.
pub(super) unsafe fn in_folder<T>(
    folder: c_int,
    path: *const c_char,
    ask: impl FnOnce(&CStr) -> Option<T>,
) -> Option<T> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(path) };
    let bytes = name.to_bytes_with_nul();
    if folder == libc::AT_FDCWD || bytes[0] == b'/' {
        return ask(name);
    }
    if bytes.len() == 1 || folder < 0 {
        return None;
    }
    let mut whole = [0_u8; 2 * libc::PATH_MAX as usize];
    let used = folder_name(folder, &mut whole[..libc::PATH_MAX as usize])?;
    let place = whole.get_mut(used..used + 1 + bytes.len())?;
    place[0] = b'/';
    place[1..].copy_from_slice(bytes);
    ask(CStr::from_bytes_until_nul(&whole).ok()?)
}

/// Asks about the name of an open folder.
pub(super) fn named_folder<T>(folder: c_int, ask: impl FnOnce(&CStr) -> Option<T>) -> Option<T> {
    let mut name = [0_u8; libc::PATH_MAX as usize];
    let room = name.len() - 1;
    folder_name(folder, &mut name[..room])?;
    ask(CStr::from_bytes_until_nul(&name).ok()?)
}

/// The name of an open folder; how long it is.
fn folder_name(folder: c_int, to: &mut [u8]) -> Option<usize> {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let mut link = [0_u8; PREFIX.len() + 12];
    link[..PREFIX.len()].copy_from_slice(PREFIX);
    let digits = folder.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = folder;
    for place in link[PREFIX.len()..PREFIX.len() + digits].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // SAFETY: a string, and room of that many bytes.
    let used = unsafe { original::readlink(link.as_ptr().cast(), to.as_mut_ptr().cast(), to.len()) };
    usize::try_from(used).ok().filter(|used| *used < to.len())
}

/// As of a regular file.
fn fill(to: *mut stat, attributes: &Attributes) -> c_int {
    let mut filled = attributes.stat;
    filled.st_mode = libc::S_IFREG | (filled.st_mode & 0o7777);
    filled.st_size = attributes.size as off_t;
    // SAFETY: the program's room for the answer.
    unsafe { to.write(filled) };
    0
}

fn filled(to: *mut stat, attributes: Result<Attributes, Errno>) -> c_int {
    match attributes {
        Ok(attributes) => fill(to, &attributes),
        Err(error) => done(Err(error)),
    }
}

/// What the front says of a path, else libc. A directory that is a managed file has become one in between.
fn attributes_of(path: &CStr, to: *mut stat, original: impl Fn() -> c_int) -> c_int {
    let ask = || asked(|front| front.attributes(path)).map(|attributes| filled(to, attributes));
    // SAFETY: libc has filled it, as it says.
    let is_directory = |done| done == 0 && unsafe { (*to).st_mode } & libc::S_IFMT == libc::S_IFDIR;
    settled(path, ask, original, is_directory)
}

/// # Safety
/// A string or null, and room for the answer.
unsafe fn of_path(path: *const c_char, to: *mut stat, original: impl Fn() -> c_int) -> c_int {
    // SAFETY: the caller's.
    let done = unsafe { about(path, |path| Some(attributes_of(path, to, &original))) };
    done.unwrap_or_else(original)
}

fn of_descriptor(fd: c_int, to: *mut stat, original: impl FnOnce() -> c_int) -> c_int {
    match managed(fd) {
        Some(file) => filled(to, guarded(|front| front.descriptor_attributes(file.fd))),
        None => original(),
    }
}

/// # Safety
/// A string or null, and room for the answer.
unsafe fn of_path_at(
    folder: c_int,
    path: *const c_char,
    to: *mut stat,
    flags: c_int,
    original: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the caller's string.
    if flags & libc::AT_EMPTY_PATH != 0 && !path.is_null() && unsafe { *path } == 0 {
        return of_descriptor(folder, to, original);
    }
    // SAFETY: the caller's.
    let done = unsafe { in_folder(folder, path, |path| Some(attributes_of(path, to, &original))) };
    done.unwrap_or_else(original)
}

/// Versions of `struct stat` that `__xstat` knows: the kernel's and libc's are one on x86-64.
fn known(version: c_int) -> bool {
    version == 0 || version == 1
}

pub(super) unsafe extern "C" fn stat_path(path: *const c_char, to: *mut stat) -> c_int {
    // SAFETY: as the program has called it.
    unsafe { of_path(path, to, || original::stat_path(path, to)) }
}

pub(super) unsafe extern "C" fn lstat_path(path: *const c_char, to: *mut stat) -> c_int {
    // SAFETY: as the program has called it.
    unsafe { of_path(path, to, || original::lstat_path(path, to)) }
}

pub(super) unsafe extern "C" fn fstat(fd: c_int, to: *mut stat) -> c_int {
    // SAFETY: as the program has called it.
    of_descriptor(fd, to, || unsafe { original::fstat(fd, to) })
}

pub(super) unsafe extern "C" fn fstatat(
    folder: c_int,
    path: *const c_char,
    to: *mut stat,
    flags: c_int,
) -> c_int {
    // SAFETY: as the program has called it.
    unsafe { of_path_at(folder, path, to, flags, || original::fstatat(folder, path, to, flags)) }
}

pub(super) unsafe extern "C" fn xstat(version: c_int, path: *const c_char, to: *mut stat) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::xstat(version, path, to) };
    // SAFETY: as above.
    if known(version) { unsafe { of_path(path, to, original) } } else { original() }
}

pub(super) unsafe extern "C" fn lxstat(version: c_int, path: *const c_char, to: *mut stat) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::lxstat(version, path, to) };
    // SAFETY: as above.
    if known(version) { unsafe { of_path(path, to, original) } } else { original() }
}

pub(super) unsafe extern "C" fn fxstat(version: c_int, fd: c_int, to: *mut stat) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::fxstat(version, fd, to) };
    if known(version) { of_descriptor(fd, to, original) } else { original() }
}

pub(super) unsafe extern "C" fn fxstatat(
    version: c_int,
    folder: c_int,
    path: *const c_char,
    to: *mut stat,
    flags: c_int,
) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::fxstatat(version, folder, path, to, flags) };
    // SAFETY: as above.
    if known(version) { unsafe { of_path_at(folder, path, to, flags, original) } } else { original() }
}

pub(super) unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::access(path, mode) };
    // Of a file and a directory that are their owner's only this one differs.
    let may_differ = |done| done == 0 && mode & libc::X_OK != 0;
    let either = |path: &CStr| {
        Some(settled(path, || asked(|front| front.access(path, mode)).map(done), original, may_differ))
    };
    // SAFETY: as above.
    unsafe { about(path, either) }.unwrap_or_else(original)
}

/// One that has succeeded is final: it was a plain file's.
pub(super) unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::unlink(path) };
    let met_directory = |done| done < 0 && matches!(errno(), libc::EISDIR | libc::EPERM);
    let either = |path: &CStr| {
        Some(settled(path, || asked(|front| front.unlink(path)).map(done), original, met_directory))
    };
    // SAFETY: as above.
    unsafe { about(path, either) }.unwrap_or_else(original)
}

pub(super) unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: as the program has called it.
    match unsafe { about(path, |path| asked(|front| front.remove_directory(path))) } {
        Some(result) => done(result),
        // SAFETY: as above.
        None => unsafe { original::rmdir(path) },
    }
}

/// Asks the front about two names, then libc, and the front again where libc fails: one of the names may have become a
/// managed file's. A file that becomes one while it is renamed has its new name as one; a server renames none.
///
/// # Safety
/// Strings, or null.
unsafe fn of_two(
    (from, to): (*const c_char, *const c_char),
    ask: impl Fn(&CStr, &CStr) -> Outcome<()>,
    original: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's.
    let ask = || unsafe { about(from, |from| about(to, |to| ask(from, to))) };
    if let Some(result) = ask() {
        return done(result);
    }
    let result = original();
    if result < 0 { ask().map_or(result, done) } else { result }
}

pub(super) unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let ask = |from: &CStr, to: &CStr| asked(|front| front.rename(from, to));
    // SAFETY: as the program has called it.
    unsafe { of_two((from, to), ask, || original::rename(from, to)) }
}

pub(super) unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    let ask = |from: &CStr, to: &CStr| asked(|front| front.link(from, to));
    // SAFETY: as the program has called it.
    unsafe { of_two((from, to), ask, || original::link(from, to)) }
}

/// The front cuts at a page; within one the file is opened for it.
fn cut(path: &CStr, size: u64) -> Outcome<()> {
    if size > MOST_BYTES {
        return managed_name(path).then_some(Err(Errno(libc::EFBIG)));
    }
    if size.is_multiple_of(PAGE_BYTES as u64) {
        return asked(|front| front.truncate_path(path, size));
    }
    let fd = match open_managed(path, libc::O_RDWR | libc::O_CLOEXEC, 0)? {
        Ok(fd) => fd,
        Err(error) => return Some(Err(error)),
    };
    let file = managed(fd)?;
    let result = truncate_to(file, size);
    close_managed(file);
    Some(result)
}

pub(super) unsafe extern "C" fn truncate(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: as the program has called it. A negative size is an error before the name is looked at.
    let original = || unsafe { original::truncate(path, size) };
    let Ok(bytes) = u64::try_from(size) else { return original() };
    // SAFETY: as above.
    unsafe { about(path, |path| Some(truncated(path, || cut(path, bytes).map(done), original))) }
        .unwrap_or_else(original)
}
