//! A container that the server has open and that has become a plain file again: what is done to its descriptors from
//! then on.
//!
//! A descriptor of such a container keeps its number, and the container's file, which has no name any more. What the
//! server does with it goes to the segment's plain file, opened by name.
// System calls on descriptors.
#![allow(unsafe_code)]

use std::os::fd::RawFd;

use pgshrink_interpose::{Errno, PAGE_BYTES, Page, PagesToRead, PagesToWrite};

use crate::file::{call, open, stat_of};
use crate::front::{Found, Owned, find};
use crate::names::PathBuffer;
use crate::process::{OpenFile, PlainFile, Process};
use crate::report::errno_of;

/// What is in the place of a container that is no more.
pub(super) enum Now {
    /// A plain file, by this descriptor.
    Plain(RawFd),
    /// Another container: the file was a plain one in between.
    Container,
    /// Nothing.
    Removed,
}

/// Looks what a container has become, where any file of the server ever became plain again. A relation that was dropped
/// has nothing in its place, or, much later, a file of another one, which the server never asks for by a descriptor of
/// the first.
pub(super) fn take_up(process: &mut Process, descriptor: RawFd) -> Result<Now, Errno> {
    let shared = process.shared;
    if !shared.region.has_returned() {
        return Ok(Now::Removed);
    }
    let (key, is_read_only) = {
        let file = process.file(descriptor)?;
        (file.key(), file.is_read_only)
    };
    match find(shared, &key)? {
        Found::Plain => {
            let path = PathBuffer::segment(&key, shared.version());
            match open(path.as_c_str(), libc::O_RDWR, 0) {
                Ok(opened) => {
                    process.file(descriptor)?.plain = Some(PlainFile(opened));
                    Ok(Now::Plain(opened))
                }
                Err(libc::ENOENT) => Ok(Now::Removed),
                Err(errno) => Err(Errno(errno)),
            }
        }
        Found::Container(opened) => {
            drop(Owned(opened));
            let file = OpenFile::new(process.member, key, is_read_only).map_err(|error| errno_of(&error))?;
            *process.file(descriptor)? = file;
            Ok(Now::Container)
        }
        Found::Nothing | Found::Unborn => Ok(Now::Removed),
    }
}

const PAGE: i64 = PAGE_BYTES as i64;

pub(super) fn pages(file: RawFd) -> Result<u32, Errno> {
    stat_of(file).map(|stat| (stat.st_size / PAGE) as u32).map_err(Errno)
}

pub(super) fn read(file: RawFd, first: u32, pages: &mut PagesToRead<'_>) -> Result<u32, Errno> {
    let mut done = 0;
    for page in pages {
        let at = i64::from(first + done) * PAGE;
        // SAFETY: a buffer of the length that is given.
        match call(|| unsafe { libc::pread(file, page.as_mut_ptr().cast(), page.len(), at) }) {
            Ok(got) if got as i64 == PAGE => done += 1,
            // The file's end.
            Ok(_) => break,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(Errno(errno)),
        }
    }
    Ok(done)
}

pub(super) fn write(file: RawFd, first: u32, pages: &mut PagesToWrite<'_>) -> Result<u32, Errno> {
    let mut done = 0;
    for page in pages {
        match write_page(file, first + done, page) {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

fn write_page(file: RawFd, block: u32, page: *const Page) -> Result<(), Errno> {
    let mut put = 0;
    while put < PAGE_BYTES {
        let at = i64::from(block) * PAGE + put as i64;
        // SAFETY: a page of the caller's, from within which as many bytes are written as are left of it.
        let more =
            call(|| unsafe { libc::pwrite(file, page.cast::<u8>().add(put).cast(), PAGE_BYTES - put, at) });
        match more.map_err(Errno)? {
            0 => return Err(Errno(libc::ENOSPC)),
            more => put += more as usize,
        }
    }
    Ok(())
}

pub(super) fn extend(file: RawFd, pages_wanted: u32) -> Result<(), Errno> {
    let there = pages(file)?;
    if pages_wanted <= there {
        return Ok(());
    }
    let (from, length) = (i64::from(there) * PAGE, i64::from(pages_wanted - there) * PAGE);
    // SAFETY: takes numbers.
    match unsafe { libc::posix_fallocate(file, from, length) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

pub(super) fn truncate(file: RawFd, pages: u32) -> Result<(), Errno> {
    // SAFETY: takes numbers.
    call(|| unsafe { libc::ftruncate(file, i64::from(pages) * PAGE) }).map(drop).map_err(Errno)
}

pub(super) fn sync(file: RawFd) -> Result<(), Errno> {
    // Not again after an error.
    // SAFETY: takes a number.
    if unsafe { libc::fsync(file) } == 0 { Ok(()) } else { Err(Errno(crate::host::errno())) }
}
