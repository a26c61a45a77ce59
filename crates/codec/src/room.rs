//! A bounded part of a vector's spare capacity, for codecs that write through a pointer. It spares the cost of
//! clearing memory that is about to be overwritten, which for 70-byte chunks would exceed the decoding itself.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use zstd_safe::WriteBuf;

const STEP_BYTES: usize = 32 << 10;

/// Where a decoder's output goes.
pub(crate) enum Out<'a> {
    /// Behind its end.
    Vec(&'a mut Vec<u8>),
    /// At its begin; the rest of it stays.
    Slice(&'a mut [u8]),
}

impl Out<'_> {
    /// Appends bytes. A slice has to have room for them.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        match self {
            Out::Vec(vec) => vec.extend_from_slice(bytes),
            Out::Slice(slice) => {
                slice[..bytes.len()].copy_from_slice(bytes);
                self.filled(bytes.len());
            }
        }
    }

    /// The first bytes of a slice are written.
    pub(crate) fn filled(&mut self, size: usize) {
        if let Out::Slice(slice) = self {
            *slice = &mut std::mem::take(slice)[size..];
        }
    }
}

/// The next `size` bytes after the end of a vector.
pub(crate) struct Room<'a> {
    vec: &'a mut Vec<u8>,
    start: usize,
    size: usize,
}

impl<'a> Room<'a> {
    /// Makes `size` bytes of room after the end of `vec`.
    pub(crate) fn after(vec: &'a mut Vec<u8>, size: usize) -> Self {
        vec.reserve(size);
        let start = vec.len();
        Room { vec, start, size }
    }

    /// A step towards `size` bytes more: what `vec` has to spare, or a little. A peer cannot make us allocate the
    /// whole of a generous cap by a few bytes.
    pub(crate) fn step(vec: &'a mut Vec<u8>, size: usize) -> Self {
        let spare = vec.capacity() - vec.len();
        Room::after(vec, size.min(spare.max(STEP_BYTES)))
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let size = self.size;
        &mut self.vec.spare_capacity_mut()[..size]
    }

    /// # Safety
    /// The first `n` bytes of the room are written, and `n` is at most its size.
    pub(crate) unsafe fn filled(&mut self, n: usize) {
        debug_assert!(n <= self.size);
        // SAFETY: `start + n` is within the reserved capacity, and the caller vouches for the bytes.
        unsafe { self.vec.set_len(self.start + n) }
    }
}

// SAFETY: the pointer is valid for `size` bytes, which `after` reserved and nothing reallocates while the
// vector is borrowed; `as_slice` covers only what `filled_until` has marked.
unsafe impl WriteBuf for Room<'_> {
    fn as_slice(&self) -> &[u8] {
        &self.vec[self.start..]
    }

    fn capacity(&self) -> usize {
        self.size
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: `start` is at most the capacity.
        unsafe { self.vec.as_mut_ptr().add(self.start) }
    }

    unsafe fn filled_until(&mut self, n: usize) {
        // SAFETY: the same promise.
        unsafe { self.filled(n) }
    }
}
