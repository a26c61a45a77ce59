//! Calls on names below an open folder, as programs that walk trees make them: `unlinkat`, `faccessat`, `renameat`,
//! `linkat`, `statx`. PostgreSQL's servers import none of them; tar, cp and their like do.
// C functions, called with the pointers of a program.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint};

use libc::statx;

use super::changing::settled;
use super::descriptors::managed;
use super::front::{asked, done, guarded};
use super::names::in_folder;
use crate::front::{Attributes, Outcome};
use crate::original::{self, errno};

pub(super) unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::unlinkat(folder, path, flags) };
    let either = |path: &CStr| {
        if flags & libc::AT_REMOVEDIR != 0 {
            return asked(|front| front.remove_directory(path)).map(done);
        }
        let met_directory = |done| done < 0 && matches!(errno(), libc::EISDIR | libc::EPERM);
        Some(settled(path, || asked(|front| front.unlink(path)).map(done), original, met_directory))
    };
    // SAFETY: as above.
    unsafe { in_folder(folder, path, either) }.unwrap_or_else(original)
}

pub(super) unsafe extern "C" fn faccessat(
    folder: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::faccessat(folder, path, mode, flags) };
    let may_differ = |done| done == 0 && mode & libc::X_OK != 0;
    let either = |path: &CStr| {
        Some(settled(path, || asked(|front| front.access(path, mode)).map(done), original, may_differ))
    };
    // SAFETY: as above.
    unsafe { in_folder(folder, path, either) }.unwrap_or_else(original)
}

/// Two names, each below its folder.
///
/// # Safety
/// Strings, or null.
unsafe fn of_two(
    (from_folder, from): (c_int, *const c_char),
    (to_folder, to): (c_int, *const c_char),
    ask: impl Fn(&CStr, &CStr) -> Outcome<()>,
    original: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's.
    let outcome =
        unsafe { in_folder(from_folder, from, |from| in_folder(to_folder, to, |to| ask(from, to))) };
    outcome.map_or_else(original, done)
}

pub(super) unsafe extern "C" fn renameat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
) -> c_int {
    let ask = |from: &CStr, to: &CStr| asked(|front| front.rename(from, to));
    // SAFETY: as the program has called it.
    unsafe {
        let original = || original::renameat(from_folder, from, to_folder, to);
        of_two((from_folder, from), (to_folder, to), ask, original)
    }
}

pub(super) unsafe extern "C" fn renameat2(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let ask = |from: &CStr, to: &CStr| asked(|front| front.rename(from, to));
    // SAFETY: as the program has called it.
    unsafe {
        let original = || original::renameat2(from_folder, from, to_folder, to, flags);
        of_two((from_folder, from), (to_folder, to), ask, original)
    }
}

pub(super) unsafe extern "C" fn linkat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    let ask = |from: &CStr, to: &CStr| asked(|front| front.link(from, to));
    // SAFETY: as the program has called it.
    unsafe {
        let original = || original::linkat(from_folder, from, to_folder, to, flags);
        of_two((from_folder, from), (to_folder, to), ask, original)
    }
}

/// What `statx` says of a managed file: size and kind, over what libc has said of the directory.
fn corrected(to: *mut statx, attributes: &Attributes) {
    // SAFETY: the program's room for the answer, which libc has filled.
    let filled = unsafe { &mut *to };
    filled.stx_mode = (libc::S_IFREG | attributes.stat.st_mode & 0o7777) as u16;
    filled.stx_size = attributes.size;
    filled.stx_ino = attributes.stat.st_ino;
    filled.stx_nlink = attributes.stat.st_nlink as u32;
    filled.stx_blocks = attributes.stat.st_blocks as u64;
}

pub(super) unsafe extern "C" fn statx_path(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut statx,
) -> c_int {
    // SAFETY: as the program has called it.
    let original = || unsafe { original::statx(folder, path, flags, mask, to) };
    // SAFETY: the program's string.
    let is_of_descriptor = flags & libc::AT_EMPTY_PATH != 0 && !path.is_null() && unsafe { *path } == 0;
    let attributes = match managed(folder) {
        Some(file) if is_of_descriptor => Some(guarded(|front| front.descriptor_attributes(file.fd))),
        _ if is_of_descriptor => None,
        // SAFETY: as above.
        _ => unsafe { in_folder(folder, path, |path| asked(|front| front.attributes(path))) },
    };
    match attributes {
        None => original(),
        Some(Err(error)) => done(Err(error)),
        Some(Ok(attributes)) => {
            let said = original();
            if said == 0 {
                corrected(to, &attributes);
            }
            said
        }
    }
}
