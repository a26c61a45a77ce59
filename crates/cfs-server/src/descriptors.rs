//! File descriptors that the server does not count.
//!
//! A server finds out how many descriptors a process may have, in the postmaster, and uses all but ten of them for its files. Groups of
//! commits, openings after an eviction, and directories that are held or synced take more. So the limit is raised where that is
//! allowed, and some descriptors are taken while the server counts; each process that has compressed files gives its copies of them back.
// System calls.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::file::open;

/// By how much the limit is raised.
const MORE: libc::rlim_t = 512;
/// Descriptors at most that are taken while the server counts.
const RESERVED_MAX: usize = 40;
/// They are this part of the limit at most: a server needs 48 and does not start with fewer.
const RESERVED_PART: libc::rlim_t = 16;
/// What stays for what else a process opens.
const KEPT: usize = 4;

static RESERVED: [AtomicI32; RESERVED_MAX] = [const { AtomicI32::new(-1) }; RESERVED_MAX];
static RESERVED_COUNT: AtomicUsize = AtomicUsize::new(0);

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a struct that the call writes to.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (got == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit)
}

/// How many are taken, of a limit, by a server that uses `files_max` at most: what it leaves need not be taken.
fn needed(limit: libc::rlim_t, files_max: u32) -> usize {
    let left = limit.saturating_sub(files_max.into()) as usize;
    RESERVED_MAX.saturating_sub(left).min((limit / RESERVED_PART) as usize)
}

/// In the postmaster, before the server counts. It uses `files_max` at most (`max_files_per_process`).
pub(crate) fn reserve(files_max: u32) {
    let Some(mut limit) = limit() else { return };
    limit.rlim_cur = limit.rlim_cur.saturating_add(MORE).min(limit.rlim_max);
    // SAFETY: a struct that the call reads. Where it fails, the limit is what it was.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    let count = needed(limit.rlim_cur, files_max);
    for place in &RESERVED[..count] {
        place.store(open(c"/dev/null", libc::O_RDONLY, 0).unwrap_or(-1), Ordering::Relaxed);
    }
    RESERVED_COUNT.store(count, Ordering::Relaxed);
}

/// In a process that is about to have compressed files.
pub(crate) fn give_back() {
    let count = RESERVED_COUNT.swap(0, Ordering::Relaxed).min(RESERVED_MAX);
    for place in &RESERVED[..count] {
        let descriptor: RawFd = place.swap(-1, Ordering::Relaxed);
        if descriptor >= 0 {
            // SAFETY: this process's copy of what `reserve` opened, closed once.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// How many descriptors this process may still open, about.
pub(crate) fn left() -> usize {
    let Some(limit) = limit() else { return usize::MAX };
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    (limit.rlim_cur as usize).saturating_sub(open + KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_taken_where_the_server_would_use_all_of_them() {
        // Few files, and the usual number of them, under a high limit: enough are left.
        assert_eq!((needed(1024, 64), needed(4096, 1000)), (0, 0));
        assert_eq!((needed(1024, 1000), needed(1024, 100_000)), (16, 40));
        // A server needs 48.
        assert_eq!((needed(256, 1000), needed(100, 1000), needed(80, 1000)), (16, 6, 5));
    }
}
