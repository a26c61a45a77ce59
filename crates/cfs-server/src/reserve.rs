//! Each tablespace's reserve: a file in its version directory.
// System calls.
#![allow(unsafe_code)]

use std::os::fd::RawFd;

use pgshrink_cfs::reserve::{Reserve, ReserveFile, Rules};
use pgshrink_cfs::{DeviceError, Need};

use crate::file::{call, failed, open, stat_of};
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
        // SAFETY: all zeros is a value of this struct of numbers, which the call overwrites.
        unsafe {
            let mut found: libc::statvfs = std::mem::zeroed();
            call(|| libc::fstatvfs(self.0, &mut found)).map_err(failed)?;
            Ok(found.f_bavail * found.f_frsize)
        }
    }
}

fn reserve(shared: &Shared, tablespace: u32, flags: i32) -> Result<Reserve<File>, DeviceError> {
    let mut path = PathBuffer::version(tablespace, shared.version());
    path.push(b"/").push(RESERVE_NAME.as_bytes());
    let file = open(path.as_c_str(), libc::O_RDWR | flags, 0o600).map_err(failed)?;
    Ok(Reserve::new(File(file), Rules::new(shared.reserve_pages, shared.reserve_commits)))
}

/// Gives some of a tablespace's reserve to the filesystem; false where there is none.
pub(crate) fn release(shared: &Shared, tablespace: u32, bytes: u64, need: Need) -> bool {
    reserve(shared, tablespace, 0).is_ok_and(|reserve| reserve.release(bytes, need))
}

/// Fills a tablespace's reserve as far as the filesystem has space; returns its bytes.
pub(crate) fn fill(shared: &Shared, tablespace: u32) -> Result<u64, DeviceError> {
    reserve(shared, tablespace, libc::O_CREAT)?.fill()
}
