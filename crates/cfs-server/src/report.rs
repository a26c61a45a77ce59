//! What the server's log says about a page or a segment that cannot be read.
//!
//! A hook can give the server a number, and the server's message then names the file. What the number cannot say
//! goes to the standard error, where the server's log is.
// A write to descriptor 2.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Cursor, Write};

use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs::store::Error as StoreError;
use pgshrink_cfs::{DeviceError, Error};
use pgshrink_interpose::Errno;

thread_local! {
    /// The last line, so that one that repeats is written once.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// Writes a line about a failure.
pub(crate) fn failure(key: Option<&SegmentKey>, block: Option<u32>, error: &dyn Display) {
    let mut line = [0u8; 1024];
    let mut out = Cursor::new(&mut line[..1023]);
    let _ = write!(out, "pgshrink cfs: ");
    if let Some(key) = key {
        let _ = write!(out, "segment {key}: ");
    }
    if let Some(block) = block {
        let _ = write!(out, "block {block} of the segment: ");
    }
    let _ = write!(out, "{error}");
    let end = out.position() as usize;
    if let Some(shared) = crate::server::shared() {
        shared.region.note_damage(now(), &line["pgshrink cfs: ".len()..end]);
    }
    let mut hasher = DefaultHasher::new();
    line[..end].hash(&mut hasher);
    if LAST.replace(hasher.finish()) == hasher.finish() {
        return;
    }
    line[end] = b'\n';
    // SAFETY: a buffer of the length that is given. Nothing is to be done where it fails.
    unsafe { libc::write(2, line.as_ptr().cast(), end + 1) };
}

/// Seconds since the machine's start.
fn now() -> u64 {
    // SAFETY: all zeros is a value of this struct of numbers, which the call overwrites.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        now.tv_sec.unsigned_abs()
    }
}

/// What a process of the server found within the last seconds that kept a page or a file from being had; for the
/// message to a client, who does not see the log. The process that reads may be another one than the one that says so.
pub fn last_failure(seconds: u64) -> Option<String> {
    let (when, text) = crate::server::shared()?.region.damage()?;
    (now().saturating_sub(when) <= seconds).then_some(text)
}

/// The error number that says most of what happened.
pub(crate) fn errno_of(error: &Error) -> Errno {
    Errno(match error {
        _ if error.is_no_space() => libc::ENOSPC,
        Error::Device { source: DeviceError::Io(errno), .. } => *errno,
        Error::Device { source: DeviceError::NotFound, .. } => libc::ENOENT,
        Error::Device { source: DeviceError::Exists, .. } => libc::EEXIST,
        Error::Device { source: DeviceError::NoDescriptor, .. } => libc::EMFILE,
        Error::SlotsFull { .. } => libc::ENFILE,
        Error::Limit { .. } => libc::EFBIG,
        Error::KeyMissing { .. } => libc::EACCES,
        Error::InUse => libc::EBUSY,
        Error::ReadOnly => libc::EROFS,
        _ => libc::EIO,
    })
}

/// As [`errno_of`], of a page's failure.
pub(crate) fn errno_of_page(error: &StoreError) -> Errno {
    match error {
        StoreError::Container(error) | StoreError::Dictionary { source: error, .. } => errno_of(error),
        StoreError::Budget { .. } => Errno(libc::ENOMEM),
        _ => Errno(libc::EIO),
    }
}

/// Reports a failure that nobody expects, and gives its number. What the server's own message says whole is not
/// reported: a full disk, a limit of descriptors.
pub(crate) fn reported(key: &SegmentKey, error: &Error) -> Errno {
    let errno = errno_of(error);
    if !matches!(errno.0, libc::ENOSPC | libc::EMFILE | libc::ENOENT) {
        failure(Some(key), None, error);
    }
    errno
}
