//! The allocator of Rust's part of a backend: the C library's, and a small reserve for when that has nothing left.
//!
//! Rust ends the process when an allocation fails that cannot fail, and PostgreSQL then ends every session. What grows
//! with data can fail here and becomes an ERROR (`pgshrink_zson::memory`). To raise that ERROR takes some hundred bytes
//! more: the message, the report, the panic on its way to the server. They come from the reserve, which is whole again
//! once they are given back. Large requests never come from it, so they fail as they should.
//!
//! The server's part has another: the **ballast**, two megabytes that nobody touches. pgrx copies every ERROR that it
//! catches while the jump buffer of the call that failed is still in force; a copy that finds no memory would jump
//! there again, into a frame that is gone, and crash. So the ballast is given up before an ERROR of a lack of memory is
//! caught, and taken anew by the next call of ours, which is refused if there is no memory for it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

#[global_allocator]
static ALLOCATOR: Reserved = Reserved;

struct Reserved;

/// Untouched, and so no memory, until it is needed.
#[repr(align(16))]
struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);
// SAFETY: its bytes are only given out, each range once.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
/// Bytes given out, and above [`ONE`] how many pieces they are.
static STATE: AtomicUsize = AtomicUsize::new(0);
/// Whether the last piece of memory came from the reserve.
static SHORT: AtomicBool = AtomicBool::new(false);

/// Whether memory is so short that the reserve is in use. Data that comes in small pieces would use it up, so whoever
/// gathers some asks this, and raises.
pub fn is_memory_short() -> bool {
    SHORT.load(Ordering::Relaxed)
}

static BALLAST: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// The server's contexts ask for a block of 1 MB at the least once they have grown; as much again is for everything else.
// SAFETY: the alignment is a power of two, and the size no multiple that overflows.
const BALLAST_LAYOUT: Layout = unsafe { Layout::from_size_align_unchecked(2 << 20, 16) };

/// Takes the ballast if it was given up; false: there is no memory for it.
#[inline]
pub fn keep_ballast() -> bool {
    !BALLAST.load(Ordering::Relaxed).is_null() || take_ballast()
}

#[cold]
fn take_ballast() -> bool {
    // SAFETY: the layout has a size.
    let taken = unsafe { System.alloc(BALLAST_LAYOUT) };
    BALLAST.store(taken, Ordering::Relaxed);
    !taken.is_null()
}

/// Gives the ballast up.
pub fn drop_ballast() {
    let taken = BALLAST.swap(ptr::null_mut(), Ordering::Relaxed);
    if !taken.is_null() {
        // SAFETY: it was allocated so, and is no longer anybody's.
        unsafe { System.dealloc(taken, BALLAST_LAYOUT) };
    }
}

const RESERVE_BYTES: usize = 256 << 10;
const PIECE_BYTES_MAX: usize = 16 << 10;
const ONE: usize = 1 << 32;

impl Reserve {
    fn take(&self, layout: Layout) -> *mut u8 {
        if layout.size() > PIECE_BYTES_MAX || layout.align() > 16 {
            return ptr::null_mut();
        }
        let size = layout.size().next_multiple_of(16);
        let taken = STATE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            (state % ONE + size <= RESERVE_BYTES).then_some(state + ONE + size)
        });
        match taken {
            // SAFETY: within the reserve, by the check above.
            Ok(before) => unsafe {
                SHORT.store(true, Ordering::Relaxed);
                self.0.get().cast::<u8>().add(before % ONE)
            },
            Err(_) => ptr::null_mut(),
        }
    }

    fn has(&self, pointer: *const u8) -> bool {
        let start = self.0.get() as usize;
        (start..start + RESERVE_BYTES).contains(&(pointer as usize))
    }

    /// With the last piece all is free again.
    fn give_back(&self) {
        let _ = STATE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            let left = state - ONE;
            Some(if left < ONE { 0 } else { left })
        });
    }
}

// SAFETY: what the system gives is the system's to take back; pieces of the reserve are distinguished by their address,
// do not overlap while any is out, and are as large and as aligned as was asked for.
unsafe impl GlobalAlloc for Reserved {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        let given = unsafe { System.alloc(layout) };
        if given.is_null() {
            return RESERVE.take(layout);
        }
        if is_memory_short() {
            SHORT.store(false, Ordering::Relaxed);
        }
        given
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if RESERVE.has(pointer) {
            RESERVE.give_back();
        } else {
            // SAFETY: by the caller; not of the reserve.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller; a piece of the reserve has the size that is cleared.
        unsafe {
            let given = System.alloc_zeroed(layout);
            if !given.is_null() {
                return given;
            }
            let piece = RESERVE.take(layout);
            if !piece.is_null() {
                piece.write_bytes(0, layout.size());
            }
            piece
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the caller; both pieces have as many bytes as are copied.
        unsafe {
            if !RESERVE.has(pointer) {
                let given = System.realloc(pointer, layout, size);
                if !given.is_null() {
                    return given;
                }
            }
            let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(pointer, moved, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            moved
        }
    }
}
