//! Counting what a thread allocates, for tests of paths that must not.
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
}

/// The system's allocator, with a count. It has to be the test binary's `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

/// Allocations of this thread so far.
pub fn count() -> usize {
    ALLOCATIONS.get()
}

// SAFETY: everything is handed to the system's allocator as it comes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends frees and allocates after its own variables are gone.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}
