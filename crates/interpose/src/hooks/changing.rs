//! Names that become a managed file's, or cease to be one's, while a call on them is under way.
//!
//! A managed file is a directory to libc, and an exchange of a plain file and such a directory takes one moment. Between
//! the front's "none of mine" and libc's look at the name there may be one. So what libc says is compared with what
//! the name is afterwards:
//!
//! 1. **Opening.** The front's moment is taken before the first look. If it is no longer the same when the descriptor
//!    is there, the name must be of the same file as the descriptor, and that no directory; else the descriptor is
//!    closed, and all begins anew. So a descriptor of a plain file that is returned was in the process's table before
//!    the exchange that follows: who looks for such descriptors after an exchange finds it. A moment that never comes
//!    to rest, as when the process that exchanges has died, costs two calls for each open and nothing else.
//! 2. **Other calls** ask the front again where libc met a directory. What libc did to a plain file was done before the
//!    exchange. A truncation is repeated, in case it was not.
//!
//! Nothing is tried for ever: [`TURNS`] at most, with pauses, then EBUSY.
// C functions, called with the pointers of a program.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};

use libc::{FILE, mode_t, stat};

use super::front::asked;
use super::opening::{fresh, open_managed};
use crate::front::{Front, Moment};
use crate::original::{self, errno, set_errno};

/// How often a call is tried at most: a file changes its kind once in a server's while, so that the second look is
/// the last one.
const TURNS: u32 = 100;
/// Turns without a pause.
const QUICK_TURNS: u32 = 20;
const PAUSE_NANOSECONDS: i64 = 200_000;

/// Asks the front what cannot fail.
fn ask<T>(call: impl FnOnce(&'static dyn Front) -> T) -> Option<T> {
    asked(|front| Some(Ok(call(front)))).and_then(Result::ok)
}

fn moment(path: &CStr) -> Option<Moment> {
    ask(|front| front.moment(path)).flatten()
}

fn may_manage(path: &CStr) -> bool {
    ask(|front| front.may_manage(path)).unwrap_or(false)
}

/// Whether something may have changed since.
fn is_past(moment: Moment) -> bool {
    !ask(|front| front.is_still(moment)).unwrap_or(true)
}

/// Before the next turn. A signal may shorten it.
fn pause(turn: u32) {
    if turn >= QUICK_TURNS {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NANOSECONDS };
        // SAFETY: reads one struct, and writes to none.
        unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
    }
}

/// Whether the descriptor is of the file that has this name now, and no directory.
fn is_named(fd: c_int, path: &CStr) -> bool {
    // By number: the library's own imports may be hooked, and libc has not always had these functions.
    // SAFETY: all zeros is a value of these structs of numbers, which the calls fill; the kernel's are libc's.
    unsafe {
        let (mut own, mut named): (stat, stat) = (std::mem::zeroed(), std::mem::zeroed());
        libc::syscall(libc::SYS_fstat, fd, &raw mut own) == 0
            && libc::syscall(libc::SYS_stat, path.as_ptr(), &raw mut named) == 0
            && (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino)
            && own.st_mode & libc::S_IFMT != libc::S_IFDIR
    }
}

/// Whether what libc has opened is what it is to be; `None` for a descriptor: libc refused with this `errno`. Leaves
/// `errno` as it was.
fn stands(path: &CStr, since: Option<Moment>, opened: Option<c_int>) -> bool {
    let Some(since) = since else { return true };
    let before = errno();
    let stands = match opened {
        None => before != libc::EISDIR || !may_manage(path),
        Some(fd) => !is_past(since) || !may_manage(path) || is_named(fd, path),
    };
    set_errno(before);
    stands
}

/// `open`, by the front or by libc. `original` is given the flags.
pub(super) fn open_settled(
    path: &CStr,
    mut flags: c_int,
    mode: mode_t,
    original: impl Fn(c_int) -> c_int,
) -> c_int {
    for turn in 0..TURNS {
        let since = moment(path);
        if let Some(opened) = open_managed(path, flags, mode) {
            return super::front::answer(opened);
        }
        let fd = fresh(original(flags));
        if stands(path, since, (fd >= 0).then_some(fd)) {
            return fd;
        }
        if fd >= 0 {
            // SAFETY: opened above, and nobody else has its number.
            unsafe { original::close(fd) };
            // The file is this call's by now, if it was to make one.
            flags &= !libc::O_EXCL;
        }
        pause(turn);
    }
    set_errno(libc::EBUSY);
    -1
}

/// `fopen`, by the front or by libc.
pub(super) fn stream_settled(
    path: &CStr,
    managed: impl Fn() -> Option<*mut FILE>,
    original: impl Fn() -> *mut FILE,
) -> *mut FILE {
    for turn in 0..TURNS {
        let since = moment(path);
        if let Some(stream) = managed() {
            return stream;
        }
        let stream = original();
        // SAFETY: a stream that libc has just given.
        let fd = (!stream.is_null()).then(|| unsafe { libc::fileno(stream) });
        if stands(path, since, fd) {
            return stream;
        }
        if fd.is_some() {
            // SAFETY: as above, and nobody else has it.
            unsafe { libc::fclose(stream) };
        }
        pause(turn);
    }
    set_errno(libc::EBUSY);
    std::ptr::null_mut()
}

/// A call by the front or by libc, and both again where libc met what a managed file is to it (`is_untrue`, which may
/// look at `errno`).
pub(super) fn settled(
    path: &CStr,
    managed: impl Fn() -> Option<c_int>,
    original: impl Fn() -> c_int,
    is_untrue: impl Fn(c_int) -> bool,
) -> c_int {
    for turn in 0..TURNS {
        if let Some(done) = managed() {
            return done;
        }
        let done = original();
        if !is_untrue(done) || !may_manage(path) {
            return done;
        }
        pause(turn);
    }
    set_errno(libc::EBUSY);
    -1
}

/// `truncate`, by the front or by libc. If the name was exchanged while libc did it, the managed file that has the name
/// now is cut as well: twice is once.
pub(super) fn truncated(
    path: &CStr,
    managed: impl Fn() -> Option<c_int>,
    original: impl Fn() -> c_int,
) -> c_int {
    let since = moment(path);
    let done = settled(path, &managed, original, |done| done < 0 && errno() == libc::EISDIR);
    match since {
        Some(since) if done == 0 && is_past(since) => managed().unwrap_or(done),
        _ => done,
    }
}
