//! Counting what a thread allocates, for tests of paths that must not, or no more than so many bytes.
//!
//! ```
//! #[global_allocator]
//! static COUNTING: pgshrink_testkit::allocations::Counting = pgshrink_testkit::allocations::Counting;
//! let before = pgshrink_testkit::allocations::count();
//! drop(Box::new(7));
//! assert_eq!(pgshrink_testkit::allocations::count(), before + 1);
//! ```
// A global allocator is unsafe by its nature.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a count. It has to be the test binary's `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

/// Allocations of this thread so far.
pub fn count() -> usize {
    ALLOCATIONS.get()
}

/// Bytes that this thread has allocated and not freed. Less than none where it freed what others had
/// allocated. C code's are not counted.
pub fn held_bytes() -> isize {
    HELD.get()
}

/// A thread that ends frees and allocates after its own variables are gone.
fn change_held(bytes: isize) {
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: everything is handed to the system's allocator as it comes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        change_held(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        change_held(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}
