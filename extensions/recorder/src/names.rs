//! Functions that make, change and remove names.
//!
//! Names relative to an open directory are recorded by their whole path, which is asked for under the lock: no rename
//! can come between. The call itself is made as it was asked for.
// Replaces functions of libc.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::format::Kind;
use crate::recording::{is_below, turn};
use crate::{inode_of, int, mark, set_marks, system};

/// Bytes of a path, with its closing zero.
const PATH_BYTES: usize = 4096;

/// A name, relative to an open directory or not.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    directory: c_int,
    path: *const c_char,
}

impl Place {
    /// A path as `open` has it.
    pub(crate) fn of(path: *const c_char) -> Place {
        Place { directory: libc::AT_FDCWD, path }
    }

    fn at(directory: c_int, path: *const c_char) -> Place {
        Place { directory, path }
    }

    /// Whether it is below the roots, now.
    fn is_below(self) -> bool {
        // SAFETY: a string that ends with a zero, for as long as the call.
        !self.path.is_null() && unsafe { self.with_path(|path| is_below(path.as_ptr())) }
    }

    /// Does something with its whole path.
    ///
    /// # Safety
    /// The path ends with a zero and lives as long as the call.
    unsafe fn with_path<R>(self, then: impl FnOnce(&CStr) -> R) -> R {
        // SAFETY: the caller's.
        let name = unsafe { CStr::from_ptr(self.path) };
        if self.directory == libc::AT_FDCWD || name.to_bytes().starts_with(b"/") {
            return then(name);
        }
        let before = crate::errno();
        let mut whole = [0u8; 2 * PATH_BYTES];
        let mut link = [0u8; 32];
        // SAFETY: buffers of the lengths that are given.
        let got = unsafe {
            libc::snprintf(
                link.as_mut_ptr().cast(),
                link.len(),
                c"/proc/self/fd/%d".as_ptr(),
                self.directory,
            );
            libc::readlink(link.as_ptr().cast(), whole.as_mut_ptr().cast(), PATH_BYTES - 1)
        };
        crate::set_errno(before);
        let length = usize::try_from(got).unwrap_or(0);
        whole[length] = b'/';
        let name = name.to_bytes();
        let end = (length + 1 + name.len()).min(whole.len() - 1);
        whole[length + 1..end].copy_from_slice(&name[..end - length - 1]);
        then(CStr::from_bytes_until_nul(&whole).unwrap_or_default())
    }
}

/// Opens a file below the roots.
pub(crate) unsafe fn open_watched(place: Place, flags: c_int, mode: libc::mode_t) -> c_int {
    let open = |flags: c_int| int(system!(SYS_openat, place.directory, place.path, flags, mode));
    if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        let descriptor = open(flags);
        set_marks(descriptor, mark::WATCHED);
        return descriptor;
    }
    let turn = turn();
    let mut made = true;
    let mut descriptor = if flags & libc::O_CREAT != 0 { open(flags | libc::O_EXCL) } else { -1 };
    if descriptor < 0 && flags & libc::O_EXCL == 0 {
        made = false;
        descriptor = open(flags);
    }
    set_marks(descriptor, mark::WATCHED);
    if descriptor >= 0 {
        let (inode, _) = inode_of(descriptor);
        if made {
            let record = |path: &CStr| {
                turn.record_paths(Kind::Create, inode, u64::from(mode), [path.to_bytes(), &[]]);
            };
            // SAFETY: a string that ends with a zero.
            unsafe { place.with_path(record) };
        } else if flags & libc::O_TRUNC != 0 {
            turn.record(Kind::Truncate, inode, 0, 0);
        }
    }
    descriptor
}

unsafe fn open_any(place: Place, flags: c_int, mode: libc::mode_t) -> c_int {
    if place.is_below() {
        // SAFETY: as of this function.
        return unsafe { open_watched(place, flags, mode) };
    }
    let descriptor = int(system!(SYS_openat, place.directory, place.path, flags, mode));
    set_marks(descriptor, 0);
    descriptor
}

// The mode comes in a register whether it was given or not, and is not looked at then.
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { open_any(Place::of(path), flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { open_any(Place::of(path), flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: as of this function.
    unsafe { open_any(Place::at(directory, path), flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: as of this function.
    unsafe { open_any(Place::at(directory, path), flags, mode) }
}

/// Does a system call that changes one name or two, and records it if they are below the roots.
///
/// # Safety
/// The paths end with a zero and live as long as the call.
unsafe fn change(kind: Kind, places: [Place; 2], watched: bool, call: impl FnOnce() -> c_int) -> c_int {
    if !watched {
        return call();
    }
    let turn = turn();
    let record = |first: &CStr, second: &CStr| {
        turn.record_paths(kind, 0, 0, [first.to_bytes(), second.to_bytes()]);
    };
    // SAFETY: the caller's. A directory that is about to be removed has its path before.
    unsafe {
        places[0].with_path(|first| {
            places[1].with_path(|second| {
                let done = call();
                if done == 0 {
                    record(first, second);
                }
                done
            })
        })
    }
}

const NO_PLACE: Place = Place { directory: libc::AT_FDCWD, path: c"".as_ptr() };

unsafe fn rename_any(from: Place, to: Place, flags: c_uint) -> c_int {
    let call = || int(system!(SYS_renameat2, from.directory, from.path, to.directory, to.path, flags));
    let watched = from.is_below() || to.is_below();
    let kind = match flags {
        0 | libc::RENAME_NOREPLACE => Kind::Rename,
        libc::RENAME_EXCHANGE => Kind::Exchange,
        _ => Kind::Unknown,
    };
    // SAFETY: as of this function.
    unsafe { change(kind, [from, to], watched, call) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as of this function.
    unsafe { rename_any(Place::of(from), Place::of(to), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: as of this function.
    unsafe { rename_any(Place::at(from_directory, from), Place::at(to_directory, to), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: as of this function.
    unsafe { rename_any(Place::at(from_directory, from), Place::at(to_directory, to), flags) }
}

unsafe fn link_any(from: Place, to: Place, flags: c_int) -> c_int {
    let call = || int(system!(SYS_linkat, from.directory, from.path, to.directory, to.path, flags));
    let kind = if flags == 0 { Kind::Link } else { Kind::Unknown };
    // SAFETY: as of this function.
    unsafe { change(kind, [from, to], to.is_below(), call) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as of this function.
    unsafe { link_any(Place::of(from), Place::of(to), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: as of this function.
    unsafe { link_any(Place::at(from_directory, from), Place::at(to_directory, to), flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    let (target, place) = (Place::of(target), Place::of(path));
    let call = || int(system!(SYS_symlink, target.path, place.path));
    // SAFETY: as of this function.
    unsafe { change(Kind::Symlink, [target, place], place.is_below(), call) }
}

unsafe fn remove(place: Place, flags: c_int) -> c_int {
    let kind = if flags & libc::AT_REMOVEDIR != 0 { Kind::Rmdir } else { Kind::Unlink };
    let call = || int(system!(SYS_unlinkat, place.directory, place.path, flags));
    // SAFETY: as of this function.
    unsafe { change(kind, [place, NO_PLACE], place.is_below(), call) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: as of this function.
    unsafe { remove(Place::of(path), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: as of this function.
    unsafe { remove(Place::of(path), libc::AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as of this function.
    unsafe { remove(Place::at(directory, path), flags) }
}

unsafe fn make_directory(place: Place, mode: libc::mode_t) -> c_int {
    let call = || int(system!(SYS_mkdirat, place.directory, place.path, mode));
    if !place.is_below() {
        return call();
    }
    let turn = turn();
    let done = call();
    if done == 0 {
        // SAFETY: a string that ends with a zero; all zeros is a value of this struct of numbers.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::fstatat(place.directory, place.path, &mut stat, libc::AT_SYMLINK_NOFOLLOW);
            place.with_path(|path| {
                turn.record_paths(Kind::Mkdir, stat.st_ino, u64::from(mode), [path.to_bytes(), &[]]);
            });
        }
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: libc::mode_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { make_directory(Place::of(path), mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(directory: c_int, path: *const c_char, mode: libc::mode_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { make_directory(Place::at(directory, path), mode) }
}
