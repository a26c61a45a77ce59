//! The documents that a sort compared last, decoded, for where abbreviated keys do not tell documents apart.
//!
//! A sort compares a document many times, and decoding costs more than comparing. Decoded documents stay in memory of
//! the sort up to `work_mem`; then all are dropped. Quicksort works on ever smaller parts, so the later, smaller ones
//! find theirs here. Documents are recognised by their stored bytes.
// Memory of the server's contexts.
#![allow(unsafe_code)]

use std::ptr;

use pgrx::pg_sys::{self, Datum, MemoryContext, varlena};

use super::order::in_line;
use crate::sys;
use crate::value;

unsafe extern "C-unwind" {
    fn MemoryContextAlloc(context: MemoryContext, size: usize) -> *mut u8;
    fn MemoryContextAllocZero(context: MemoryContext, size: usize) -> *mut u8;
    fn MemoryContextReset(context: MemoryContext);
}

const SLOTS_MIN: usize = 1 << 8;
const SLOTS_MAX: usize = 1 << 20;
/// One slot for so many bytes of `work_mem`.
const BYTES_PER_SLOT: usize = 1 << 10;
/// Documents above this part of `work_mem` are not kept.
const SHARE_MAX: usize = 16;
/// What jsonb is aligned to.
const ALIGNMENT: usize = 8;

/// Lives in a sort's memory, which is released without notice: it owns nothing else.
pub(super) struct Decoded {
    /// Of the sort.
    parent: MemoryContext,
    /// Null before the first document.
    slots: *mut *const Entry,
    slot_count: usize,
    /// Where the documents are.
    context: MemoryContext,
    used: usize,
    used_max: usize,
}

/// Before the document, whose stored bytes are behind it.
#[repr(C, align(8))]
struct Entry {
    stored_len: usize,
    jsonb_size: usize,
}

impl Decoded {
    pub(super) fn new(parent: MemoryContext) -> Decoded {
        // SAFETY: a plain variable of the server.
        let used_max = usize::try_from(unsafe { pg_sys::work_mem }).unwrap_or(0) << 10;
        Decoded {
            parent,
            slots: ptr::null_mut(),
            slot_count: (used_max / BYTES_PER_SLOT).clamp(SLOTS_MIN, SLOTS_MAX).next_power_of_two(),
            context: ptr::null_mut(),
            used: 0,
            used_max,
        }
    }

    /// To be called when no result of [`Decoded::get`] is in use: drops the documents when they are too many.
    ///
    /// # Safety
    /// The sort's memory is still there.
    pub(super) unsafe fn trim(&mut self) {
        if self.used <= self.used_max {
            return;
        }
        // SAFETY: by the caller; the slots are as many as were allocated.
        unsafe {
            MemoryContextReset(self.context);
            ptr::write_bytes(self.slots, 0, self.slot_count);
        }
        self.used = 0;
    }

    /// The jsonb of a zson: valid until the next [`Decoded::trim`], and not beyond the fourth next call.
    ///
    /// # Safety
    /// `zson` is a zson value, and the sort's memory is still there.
    pub(super) unsafe fn get(&mut self, zson: Datum) -> *const u8 {
        // SAFETY: by the caller.
        unsafe {
            let stored = zson.cast_mut_ptr::<varlena>();
            if !in_line(stored) {
                return value::view(zson).cast_mut_ptr();
            }
            let bytes = sys::bytes_of(stored);
            if self.slots.is_null() {
                self.start();
            }
            let slot = self.slots.add(hash(bytes) as usize & (self.slot_count - 1));
            match (*slot).as_ref() {
                Some(entry) if entry.stored() == bytes => entry.jsonb(),
                _ => self.add(slot, zson, bytes),
            }
        }
    }

    unsafe fn start(&mut self) {
        // SAFETY: the sort's memory is still there.
        unsafe {
            self.slots =
                MemoryContextAllocZero(self.parent, self.slot_count * size_of::<*const Entry>()).cast();
            self.context = pg_sys::AllocSetContextCreateInternal(
                self.parent,
                c"zson documents of a sort".as_ptr(),
                0,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
        }
    }

    unsafe fn add(&mut self, slot: *mut *const Entry, zson: Datum, bytes: &[u8]) -> *const u8 {
        // SAFETY: the entry is as large as what is copied to it.
        unsafe {
            let jsonb = value::view(zson).cast_mut_ptr::<u8>();
            let jsonb_size = pgrx::varsize_4b(jsonb.cast());
            let size = size_of::<Entry>() + jsonb_size.next_multiple_of(ALIGNMENT) + bytes.len();
            if size > self.used_max / SHARE_MAX {
                return jsonb;
            }
            let entry = MemoryContextAlloc(self.context, size).cast::<Entry>();
            entry.write(Entry { stored_len: bytes.len(), jsonb_size });
            ptr::copy_nonoverlapping(jsonb, (*entry).jsonb().cast_mut(), jsonb_size);
            ptr::copy_nonoverlapping(bytes.as_ptr(), (*entry).stored().as_ptr().cast_mut(), bytes.len());
            self.used += size;
            *slot = entry;
            (*entry).jsonb()
        }
    }
}

impl Entry {
    unsafe fn jsonb(&self) -> *const u8 {
        // SAFETY: an entry is followed by its document.
        unsafe { ptr::from_ref(self).add(1).cast() }
    }

    unsafe fn stored(&self) -> &[u8] {
        // SAFETY: the document is followed by its stored bytes.
        unsafe {
            let start = self.jsonb().add(self.jsonb_size.next_multiple_of(ALIGNMENT));
            std::slice::from_raw_parts(start, self.stored_len)
        }
    }
}

/// Of the length and both ends: a checksum is at the front, and a document that is not compressed ends with values.
fn hash(bytes: &[u8]) -> u64 {
    const ENDS: usize = 24;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let ends = [&bytes[..bytes.len().min(ENDS)], &bytes[bytes.len().saturating_sub(ENDS)..]];
    let mut state = bytes.len() as u64;
    for chunk in ends.iter().flat_map(|end| end.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = (state.rotate_left(23) ^ u64::from_ne_bytes(word)).wrapping_mul(ODD);
    }
    state ^ state >> 32
}
