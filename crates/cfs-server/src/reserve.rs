//! Each tablespace's reserve: a file in its version directory; that of `pg_default` is in `base/`.
//!
//! A tablespace with a setting has one from its beginning. Any other has one from its first container on, until the
//! server stops without a container there, or all directories that had some are gone. It is filled before that container
//! has its name, and by the launcher from then on, but takes no more at once than it leaves.
//!
//! Where the filesystem had no room for it, what would have drawn on the reserve fails with ENOSPC. A checkpoint that
//! fails so is repeated and succeeds when there is space again; the log keeps what it has not written, so nothing is
//! lost.
// System calls.
#![allow(unsafe_code)]

use std::os::fd::RawFd;

use pgshrink_cfs::reserve::{Reserve, ReserveFile, Rules};
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs::{DeviceError, Need};

use crate::error::Problem;
use crate::file::{call, failed, open, stat_of, unlink};
use crate::names::{PathBuffer, RESERVE_NAME};
use crate::server::Shared;

/// The reserve's file, open for one operation.
struct File(RawFd);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: opened for this alone.
        unsafe { libc::close(self.0) };
    }
}

impl ReserveFile for File {
    fn size(&self) -> Result<u64, DeviceError> {
        stat_of(self.0).map(|stat| stat.st_size as u64).map_err(failed)
    }

    fn shrink(&self, size: u64) -> Result<(), DeviceError> {
        // SAFETY: takes numbers.
        call(|| unsafe { libc::ftruncate(self.0, size as i64) }).map(drop).map_err(failed)
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        // SAFETY: takes numbers.
        call(|| unsafe { libc::fallocate(self.0, 0, 0, size as i64) }).map(drop).map_err(failed)
    }

    fn free_bytes(&self) -> Result<u64, DeviceError> {
        space(self.0).map(|(free, _)| free).map_err(failed)
    }
}

/// Of a filesystem's bytes, a reserve takes one in so many at most.
const FILESYSTEM_SHARE: u64 = 8;
/// What the filesystem must have beyond the reserve before a file may grow: growing is asked for in steps.
const GROWTH_BYTES: u64 = 1 << 20;

/// What the filesystem of an open file has: free bytes, and bytes in all.
fn space(file: RawFd) -> Result<(u64, u64), i32> {
    // SAFETY: all zeros is a value of this struct of numbers, which the call overwrites.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        call(|| libc::fstatvfs(file, &mut found))?;
        Ok((found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize))
    }
}

/// How much a reserve on this filesystem is to hold.
fn rules(shared: &Shared, filesystem_bytes: u64) -> Rules {
    let (pages, commits) = (shared.reserve_pages, shared.reserve_commits);
    let limit = filesystem_bytes / FILESYSTEM_SHARE;
    let commits = commits.min(limit / 4);
    Rules::new(pages.min(limit - commits), commits)
}

fn path_of(shared: &Shared, tablespace: u32) -> PathBuffer {
    PathBuffer::version(tablespace, shared.version()).with(RESERVE_NAME)
}

fn open_reserve(shared: &Shared, tablespace: u32, flags: i32) -> Result<File, i32> {
    open(path_of(shared, tablespace).as_c_str(), libc::O_RDWR | flags, 0o600).map(File)
}

/// Removes a tablespace's reserve; false where there is none.
pub(crate) fn remove(shared: &Shared, tablespace: u32) -> Result<bool, i32> {
    match unlink(path_of(shared, tablespace).as_c_str()) {
        Err(libc::ENOENT) => Ok(false),
        removed => removed.map(|()| true),
    }
}

fn reserve(shared: &Shared, tablespace: u32, flags: i32) -> Result<Reserve<File>, DeviceError> {
    let file = open_reserve(shared, tablespace, flags).map_err(failed)?;
    let (_, filesystem_bytes) = space(file.0).map_err(failed)?;
    Ok(Reserve::new(file, rules(shared, filesystem_bytes)))
}

/// Gives some of a tablespace's reserve to the filesystem; false where there is none.
pub(crate) fn release(shared: &Shared, tablespace: u32, bytes: u64, need: Need) -> bool {
    reserve(shared, tablespace, 0).is_ok_and(|reserve| reserve.release(bytes, need))
}

/// Fills a tablespace's reserve as far as the filesystem has space; returns its bytes.
pub(crate) fn fill(shared: &Shared, tablespace: u32) -> Result<u64, DeviceError> {
    reserve(shared, tablespace, libc::O_CREAT)?.fill()
}

/// The same where no setting asks for it: the filesystem is that of plain files too, maybe that of the log, so no more is
/// taken than is left.
pub(crate) fn fill_beside_others(shared: &Shared, tablespace: u32) -> Result<u64, DeviceError> {
    let reserve = reserve(shared, tablespace, libc::O_CREAT)?;
    let free = reserve.file().free_bytes()?;
    reserve.fill_by(free / 2)
}

/// One in so many of a filesystem's bytes is free where there is room to spare.
const ROOMY_SHARE: u64 = 10;

/// Whether the tablespace's filesystem has room for pages that take more space than they will in the end.
pub(crate) fn is_roomy(shared: &Shared, tablespace: u32) -> bool {
    let path = PathBuffer::version(tablespace, shared.version());
    let directory = open(path.as_c_str(), libc::O_RDONLY | libc::O_DIRECTORY, 0).map(File);
    let found = directory.and_then(|directory| space(directory.0));
    found.is_ok_and(|(free, all)| free >= all / ROOMY_SHARE)
}

/// Whether the filesystem has so many bytes for another form of a segment, beside what is kept for what must not fail.
///
/// # Errors
/// [`Problem::Space`]. What cannot be looked at stops nobody.
pub(crate) fn check_space(shared: &Shared, key: &SegmentKey, needed: u64) -> Result<(), Problem> {
    let path = PathBuffer::database(key.tablespace, key.database, shared.version());
    let directory = open(path.as_c_str(), libc::O_RDONLY | libc::O_DIRECTORY, 0).map(File);
    let found = directory.and_then(|directory| space(directory.0)).map_or(u64::MAX, |(free, _)| free);
    if found >= needed.saturating_add(CONVERSION_BYTES) {
        return Ok(());
    }
    Err(Problem::Space { path: crate::collecting::path_of(key), needed: needed + CONVERSION_BYTES, found })
}

/// What a conversion leaves free, in bytes.
pub(crate) const CONVERSION_BYTES: u64 = 16 << 20;

/// Whether files of the tablespace may grow. A page that the server adds is of zeros, which takes no space; it
/// takes some when it is written out, which must not fail. So growing is what fails, as long as the filesystem has
/// not enough for all pages that the server may have in memory. What cannot be looked at stops nobody.
pub(crate) fn allows_growth(shared: &Shared, tablespace: u32) -> bool {
    let (held, found) = match open_reserve(shared, tablespace, 0) {
        Ok(file) => (file.size().unwrap_or(0), space(file.0)),
        Err(_) => {
            let path = PathBuffer::version(tablespace, shared.version());
            let directory = open(path.as_c_str(), libc::O_RDONLY | libc::O_DIRECTORY, 0).map(File);
            (0, directory.and_then(|directory| space(directory.0)))
        }
    };
    let Ok((free, filesystem_bytes)) = found else { return true };
    free + held >= rules(shared, filesystem_bytes).bytes() + GROWTH_BYTES
}
