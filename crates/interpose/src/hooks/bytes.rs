//! Byte ranges of managed files, as whole pages of the front.
//!
//! A file's size is always a whole number of pages. A write that ends within the last page, or makes one, pads
//! it with zeros: after each call the file is as if it had been extended with zeros to the end of its last
//! page. Whole pages go between the caller's buffers and the front without a copy here; the front copies what
//! it writes, because PostgreSQL sets hint bits in a page while it is being written. Parts of pages go by a
//! page on the stack: nothing is allocated.
// Buffers come as addresses.
#![allow(unsafe_code)]

use libc::iovec;

use super::descriptors::File;
use super::front::guarded;
use crate::front::{Errno, PAGE_BYTES};
use crate::pages::{Page, PagesToRead, PagesToWrite};

/// A file may have this many pages: a segment of PostgreSQL.
pub const MOST_PAGES: u32 = 131_072;

/// Bytes of the largest file.
pub(super) const MOST_BYTES: u64 = MOST_PAGES as u64 * PAGE_BYTES as u64;

/// Most bytes of one call, as in the kernel.
const MOST_AT_ONCE: usize = 0x7fff_f000;

const PAGE: u64 = PAGE_BYTES as u64;

#[repr(align(64))]
struct Bounce(Page);

/// The bytes of several buffers, one after the other.
struct Bytes<'a> {
    buffers: &'a [iovec],
    /// Bytes of the first buffer that are done.
    used: usize,
    left: usize,
}

impl Bytes<'_> {
    /// The bytes that lie together next.
    fn run(&mut self) -> (*mut u8, usize) {
        while let Some((first, rest)) = self.buffers.split_first() {
            if self.used < first.iov_len {
                // SAFETY: inside the buffer, by the comparison.
                let at = unsafe { first.iov_base.cast::<u8>().add(self.used) };
                return (at, self.left.min(first.iov_len - self.used));
            }
            self.buffers = rest;
            self.used = 0;
        }
        (std::ptr::null_mut(), 0)
    }

    fn advance(&mut self, bytes: usize) {
        self.used += bytes;
        self.left -= bytes;
    }

    /// Moves the next `length` bytes between the buffers and `with`, by `copy(buffer, with, length)`.
    fn exchange(&mut self, with: *mut u8, length: usize, copy: impl Fn(*mut u8, *mut u8, usize)) {
        let mut done = 0;
        while done < length {
            let (at, room) = self.run();
            let part = room.min(length - done);
            if part == 0 {
                return;
            }
            // SAFETY: `with` is valid for `length` bytes.
            copy(at, unsafe { with.add(done) }, part);
            self.advance(part);
            done += part;
        }
    }
}

/// All bytes of the buffers, at most as many as a call moves.
pub(super) fn total(buffers: &[iovec]) -> usize {
    buffers.iter().fold(0_usize, |sum, buffer| sum.saturating_add(buffer.iov_len)).min(MOST_AT_ONCE)
}

/// Bytes of the file.
pub(super) fn size(file: File) -> Result<u64, Errno> {
    guarded(|front| front.pages(file.fd)).map(|pages| u64::from(pages) * PAGE)
}

/// Reads at `offset`; the buffers are valid for writes.
pub(super) fn read_at(file: File, buffers: &[iovec], offset: u64) -> Result<usize, Errno> {
    let wanted = total(buffers);
    if wanted == 0 || offset >= MOST_BYTES {
        return Ok(0);
    }
    if offset.is_multiple_of(PAGE) {
        // SAFETY: the caller's buffers.
        if let Some(mut pages) = unsafe { PagesToRead::over(buffers) } {
            let first = (offset / PAGE) as u32;
            let read = guarded(|front| front.read(file.fd, first, &mut pages))?;
            return Ok(read as usize * PAGE_BYTES);
        }
    }
    let there = size(file)?.saturating_sub(offset);
    let left = wanted.min(usize::try_from(there).unwrap_or(usize::MAX));
    let mut bytes = Bytes { buffers, used: 0, left };
    let mut done = 0;
    while bytes.left > 0 {
        match read_some(file, &mut bytes, offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Pages that lie together, or a part of one.
fn read_some(file: File, bytes: &mut Bytes<'_>, at: u64) -> Result<usize, Errno> {
    let (first, within) = ((at / PAGE) as u32, (at % PAGE) as usize);
    let (start, room) = bytes.run();
    if within == 0 && room >= PAGE_BYTES {
        let whole = [iovec { iov_base: start.cast(), iov_len: room - room % PAGE_BYTES }];
        let read = read_pages(file, first, &whole)? * PAGE_BYTES;
        bytes.advance(read);
        return Ok(read);
    }
    let mut bounce = Bounce([0; PAGE_BYTES]);
    if read_pages(file, first, &[one_page(&mut bounce)])? == 0 {
        return Ok(0);
    }
    let length = bytes.left.min(PAGE_BYTES - within);
    let from = bounce.0[within..].as_mut_ptr();
    // SAFETY: both are valid for that length, and the page is our own.
    bytes.exchange(from, length, |buffer, page, length| unsafe {
        page.copy_to_nonoverlapping(buffer, length)
    });
    Ok(length)
}

/// Writes at `offset`; the buffers are valid for reads.
pub(super) fn write_at(file: File, buffers: &[iovec], offset: u64) -> Result<usize, Errno> {
    let wanted = total(buffers);
    if wanted == 0 {
        return Ok(0);
    }
    if offset >= MOST_BYTES {
        return Err(Errno(libc::EFBIG));
    }
    let left = wanted.min((MOST_BYTES - offset) as usize);
    if offset.is_multiple_of(PAGE) && left == wanted {
        // SAFETY: the caller's buffers.
        if let Some(mut pages) = unsafe { PagesToWrite::over(buffers) } {
            let first = (offset / PAGE) as u32;
            let written = guarded(|front| front.write(file.fd, first, &mut pages))?;
            return Ok(written as usize * PAGE_BYTES);
        }
    }
    let mut bytes = Bytes { buffers, used: 0, left };
    let mut done = 0;
    while bytes.left > 0 {
        match write_some(file, &mut bytes, offset + done as u64) {
            Ok(0) => break,
            Ok(written) => done += written,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn write_some(file: File, bytes: &mut Bytes<'_>, at: u64) -> Result<usize, Errno> {
    let (first, within) = ((at / PAGE) as u32, (at % PAGE) as usize);
    let (start, room) = bytes.run();
    if within == 0 && room >= PAGE_BYTES {
        let whole = [iovec { iov_base: start.cast(), iov_len: room - room % PAGE_BYTES }];
        let written = write_pages(file, first, &whole)? * PAGE_BYTES;
        bytes.advance(written);
        return Ok(written);
    }
    let mut bounce = Bounce([0; PAGE_BYTES]);
    let length = bytes.left.min(PAGE_BYTES - within);
    if length < PAGE_BYTES && guarded(|front| front.pages(file.fd))? > first {
        read_pages(file, first, &[one_page(&mut bounce)])?;
    }
    let mut probe = Bytes { buffers: bytes.buffers, used: bytes.used, left: bytes.left };
    let to = bounce.0[within..].as_mut_ptr();
    // SAFETY: both are valid for that length, and the page is our own.
    probe.exchange(to, length, |buffer, page, length| unsafe { buffer.copy_to_nonoverlapping(page, length) });
    if write_pages(file, first, &[one_page(&mut bounce)])? == 0 {
        return Ok(0);
    }
    *bytes = probe;
    Ok(length)
}

fn one_page(bounce: &mut Bounce) -> iovec {
    iovec { iov_base: bounce.0.as_mut_ptr().cast(), iov_len: PAGE_BYTES }
}

fn read_pages(file: File, first: u32, whole: &[iovec]) -> Result<usize, Errno> {
    // SAFETY: the caller's buffer or ours.
    let Some(mut pages) = (unsafe { PagesToRead::over(whole) }) else { return Err(Errno(libc::EIO)) };
    guarded(|front| front.read(file.fd, first, &mut pages)).map(|pages| pages as usize)
}

fn write_pages(file: File, first: u32, whole: &[iovec]) -> Result<usize, Errno> {
    // SAFETY: the caller's buffer or ours.
    let Some(mut pages) = (unsafe { PagesToWrite::over(whole) }) else { return Err(Errno(libc::EIO)) };
    guarded(|front| front.write(file.fd, first, &mut pages)).map(|pages| pages as usize)
}

/// `ftruncate`. A size within a page keeps that page, with zeros behind the size.
pub(super) fn truncate(file: File, size: u64) -> Result<(), Errno> {
    if size > MOST_BYTES {
        return Err(Errno(libc::EFBIG));
    }
    let (whole, within) = ((size / PAGE) as u32, (size % PAGE) as usize);
    let pages = whole + u32::from(within > 0);
    if within > 0 && guarded(|front| front.pages(file.fd))? > whole {
        let mut bounce = Bounce([0; PAGE_BYTES]);
        read_pages(file, whole, &[one_page(&mut bounce)])?;
        bounce.0[within..].fill(0);
        write_pages(file, whole, &[one_page(&mut bounce)])?;
    }
    guarded(|front| front.truncate(file.fd, pages))
}
