//! Records what a process and its children do to the files below some directories, in the order in which they do it.
//!
//! A library for `LD_PRELOAD`: it defines libc's functions that change files, so it sees the calls of the program and of
//! every library in it, but no system call that is made in another way, and none that libc makes by itself. The
//! tests compare what they make of a recording with the files, to know that nothing was missed.
//!
//! * A change and its record are made under one lock of all processes, so the recording's order is that of the changes.
//! * An fsync is recorded at its begin and at its end, and **not carried out**: nothing is going to lose its power here, and
//!   the time it would take is up to the recorder ([`sync`]).
//! * Streams (`fopen`) are recorded as a whole when they are closed or synced.
//! * Nothing is allocated.
//!
//! `PGSHRINK_RECORD` is the recording's path, `PGSHRINK_RECORD_ROOTS` are the absolute paths of the directories,
//! separated by colons. Relative paths count as below them.
// Replaces functions of libc.
#![allow(unsafe_code)]
#![allow(unused_unsafe, reason = "the macro of system calls is used in unsafe code as well")]
#![allow(clippy::missing_safety_doc, reason = "the functions are libc's, and so are their contracts")]

pub mod format;
mod names;
mod recording;
mod streams;
mod sync;
mod writes;

use std::ffi::{c_int, c_long};

/// Marks of a descriptor.
mod mark {
    /// A file or directory below the roots.
    pub const WATCHED: u8 = 1;
    /// It belongs to a stream.
    pub const STREAM: u8 = 2;
}

/// Makes a system call; its result, with `errno` set as libc does.
macro_rules! system {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the arguments are the caller's, for the function of libc that is this call.
        unsafe { libc::syscall(libc::$number $(, $argument)*) }
    };
}
pub(crate) use system;

/// Descriptors above this are not followed; servers have a thousand.
const DESCRIPTORS: usize = 1 << 16;

static MARKS: [std::sync::atomic::AtomicU8; DESCRIPTORS] =
    [const { std::sync::atomic::AtomicU8::new(0) }; DESCRIPTORS];

fn marks(descriptor: c_int) -> u8 {
    let mark = usize::try_from(descriptor).ok().and_then(|at| MARKS.get(at));
    mark.map_or(0, |mark| mark.load(std::sync::atomic::Ordering::Relaxed))
}

fn set_marks(descriptor: c_int, marks: u8) {
    if let Some(mark) = usize::try_from(descriptor).ok().and_then(|at| MARKS.get(at)) {
        mark.store(marks, std::sync::atomic::Ordering::Relaxed);
    }
}

fn is_watched(descriptor: c_int) -> bool {
    marks(descriptor) & mark::WATCHED != 0
}

/// The inode of an open file, and its type.
fn inode_of(descriptor: c_int) -> (u64, libc::mode_t) {
    // SAFETY: all zeros is a value of this struct of numbers, which the call overwrites.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(descriptor, &mut stat);
        (stat.st_ino, stat.st_mode & libc::S_IFMT)
    }
}

fn errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// A result of a system call as an `int`.
fn int(result: c_long) -> c_int {
    result as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    set_marks(descriptor, 0);
    int(system!(SYS_close, descriptor))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    let new = int(system!(SYS_dup, old));
    set_marks(new, marks(old));
    new
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    let done = int(system!(SYS_dup2, old, new));
    if done >= 0 {
        set_marks(new, marks(old));
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    let done = int(system!(SYS_dup3, old, new, flags));
    if done >= 0 {
        set_marks(new, marks(old));
    }
    done
}
