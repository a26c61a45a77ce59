//! Functions that make, change and remove names.
// Replaces functions of libc.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use crate::format::Kind;
use crate::recording::{is_below, turn};
use crate::{inode_of, int, mark, set_marks, system};

/// The bytes of a path.
///
/// # Safety
/// `path` ends with a zero and lives as long as the caller's call.
unsafe fn bytes<'p>(path: *const c_char) -> &'p [u8] {
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// Opens a file below the roots.
pub(crate) unsafe fn open_watched(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    let open = |flags: c_int| int(system!(SYS_openat, libc::AT_FDCWD, path, flags, mode));
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
            // SAFETY: a string that ends with a zero.
            turn.record_paths(Kind::Create, inode, u64::from(mode), [unsafe { bytes(path) }, &[]]);
        } else if flags & libc::O_TRUNC != 0 {
            turn.record(Kind::Truncate, inode, 0, 0);
        }
    }
    descriptor
}

unsafe fn open_any(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    if is_below(path) {
        // SAFETY: as of this function.
        return unsafe { open_watched(path, flags, mode) };
    }
    let descriptor = int(system!(SYS_openat, libc::AT_FDCWD, path, flags, mode));
    set_marks(descriptor, 0);
    descriptor
}

// The mode comes in a register whether it was given or not, and is not looked at then.
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { open_any(path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: as of this function.
    unsafe { open_any(path, flags, mode) }
}

/// Does a system call on one or two paths, and records it if they are below the roots.
macro_rules! change {
    ($kind:ident, $([$path:expr, $second:expr])?, $any:expr, $call:expr) => {{
        if !$any {
            return int($call);
        }
        let turn = turn();
        let done = int($call);
        if done == 0 {
            // SAFETY: strings that end with a zero.
            $(turn.record_paths(Kind::$kind, 0, 0, unsafe { [bytes($path), $second] });)?
        }
        done
    }};
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    change!(Rename, [from, bytes(to)], is_below(from) || is_below(to), system!(SYS_rename, from, to))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    change!(Link, [from, bytes(to)], is_below(to), system!(SYS_link, from, to))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    change!(Symlink, [target, bytes(path)], is_below(path), system!(SYS_symlink, target, path))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    change!(Unlink, [path, &[]], is_below(path), system!(SYS_unlink, path))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    change!(Rmdir, [path, &[]], is_below(path), system!(SYS_rmdir, path))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: libc::mode_t) -> c_int {
    if !is_below(path) {
        return int(system!(SYS_mkdir, path, mode));
    }
    let turn = turn();
    let done = int(system!(SYS_mkdir, path, mode));
    if done == 0 {
        // SAFETY: a string that ends with a zero; all zeros is a value of this struct of numbers.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::lstat(path, &mut stat);
            turn.record_paths(Kind::Mkdir, stat.st_ino, u64::from(mode), [bytes(path), &[]]);
        }
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    const BYTES: usize = 4096;
    // SAFETY: buffers of the lengths that are given, with a closing zero each.
    unsafe {
        let mut whole = [0u8; 2 * BYTES];
        let mut length = 0;
        if directory != libc::AT_FDCWD && !bytes(path).starts_with(b"/") {
            let mut link = [0u8; 32];
            libc::snprintf(link.as_mut_ptr().cast(), link.len(), c"/proc/self/fd/%d".as_ptr(), directory);
            let got = libc::readlink(link.as_ptr().cast(), whole.as_mut_ptr().cast(), BYTES - 1);
            length = usize::try_from(got).unwrap_or(0);
            whole[length] = b'/';
            length += 1;
        }
        let name = bytes(path);
        let end = (length + name.len()).min(whole.len() - 1);
        whole[length..end].copy_from_slice(&name[..end - length]);
        let whole: *const c_char = whole.as_ptr().cast();
        if flags & libc::AT_REMOVEDIR != 0 { rmdir(whole) } else { unlink(whole) }
    }
}
