//! Pages of the caller's buffers.
// Buffers come as addresses.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::front::PAGE_BYTES;

/// A page.
pub type Page = [u8; PAGE_BYTES];

/// Where the next page of an array of `iovec` is.
#[derive(Clone, Debug)]
struct Cursor {
    buffers: *const libc::iovec,
    count: usize,
    /// Bytes of the first buffer that are done.
    used: usize,
    left: usize,
}

impl Cursor {
    fn next(&mut self) -> Option<*mut Page> {
        if self.left == 0 {
            return None;
        }
        while self.count > 0 {
            // SAFETY: `count` buffers are left of the array that `over` was given.
            let buffer = unsafe { &*self.buffers };
            if self.used + PAGE_BYTES <= buffer.iov_len {
                // SAFETY: inside the buffer, by the comparison.
                let page = unsafe { buffer.iov_base.cast::<u8>().add(self.used) };
                self.used += PAGE_BYTES;
                self.left -= 1;
                return Some(page.cast());
            }
            // SAFETY: at most one past the array.
            self.buffers = unsafe { self.buffers.add(1) };
            self.count -= 1;
            self.used = 0;
        }
        None
    }
}

fn cursor(buffers: &[libc::iovec]) -> Option<Cursor> {
    if buffers.iter().any(|buffer| buffer.iov_len % PAGE_BYTES != 0) {
        return None;
    }
    let left = buffers.iter().map(|buffer| buffer.iov_len / PAGE_BYTES).sum();
    Some(Cursor { buffers: buffers.as_ptr(), count: buffers.len(), used: 0, left })
}

/// Pages to be filled, one after the other.
#[derive(Debug)]
pub struct PagesToRead<'a> {
    cursor: Cursor,
    buffers: PhantomData<&'a mut Page>,
}

/// Pages to be written, one after the other.
#[derive(Debug)]
pub struct PagesToWrite<'a> {
    cursor: Cursor,
    buffers: PhantomData<&'a Page>,
}

impl<'a> PagesToRead<'a> {
    /// Over buffers, each of whole pages; `None` where one is not.
    ///
    /// # Safety
    /// The buffers are valid for writes for `'a`, do not overlap, and nobody else uses them.
    pub unsafe fn over(buffers: &'a [libc::iovec]) -> Option<Self> {
        Some(PagesToRead { cursor: cursor(buffers)?, buffers: PhantomData })
    }
}

impl<'a> PagesToWrite<'a> {
    /// Over buffers, each of whole pages; `None` where one is not.
    ///
    /// # Safety
    /// The buffers are valid for reads for `'a`. The program may change them meanwhile: hint bits are set in
    /// pages that are being written. So each page is to be copied before it is looked at twice.
    pub unsafe fn over(buffers: &'a [libc::iovec]) -> Option<Self> {
        Some(PagesToWrite { cursor: cursor(buffers)?, buffers: PhantomData })
    }
}

impl<'a> Iterator for PagesToRead<'a> {
    type Item = &'a mut Page;

    fn next(&mut self) -> Option<&'a mut Page> {
        // SAFETY: `over`'s caller has said so, and no page is given twice.
        self.cursor.next().map(|page| unsafe { &mut *page })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.cursor.left, Some(self.cursor.left))
    }
}

impl Iterator for PagesToWrite<'_> {
    /// Not a reference: see [`PagesToWrite::over`].
    type Item = *const Page;

    fn next(&mut self) -> Option<*const Page> {
        self.cursor.next().map(<*mut Page>::cast_const)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.cursor.left, Some(self.cursor.left))
    }
}

impl ExactSizeIterator for PagesToRead<'_> {}
impl ExactSizeIterator for PagesToWrite<'_> {}
