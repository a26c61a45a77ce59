//! Memory that a process has set aside for when the system has none left.
//!
//! Everything that is allocated here comes from the system as long as it has some. When it refuses, a pool in the
//! library's own data serves: enough for what a read or a write of pages allocates, which is a dictionary,
//! a part of a map, a file's entry in some tables. Calls of the server that fail for want of memory say so on
//! their own (ENOMEM), where they have something to return; the pool is for the rest:
//! PostgreSQL reads where an ending process is the end of the server, and Rust ends a process that gets no memory.
//!
//! The pool is taken from its beginning to its end, and is whole again when nothing of it is in use any more.
// An allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are set aside.
pub const SPARE_BYTES: usize = 1 << 20;

/// The system's memory, and when there is none, the pool.
#[derive(Debug)]
pub struct Spare<A> {
    system: A,
    pool: Pool,
    /// Allocations of the pool that are in use; in the lower half the bytes up to which it is taken.
    taken: AtomicU64,
}

#[repr(align(4096))]
struct Pool(UnsafeCell<[u8; SPARE_BYTES]>);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

// SAFETY: its bytes are given out once each, by an atomic counter, and touched by who has them alone.
unsafe impl Sync for Pool {}

const ONE: u64 = 1 << 32;
const END: u64 = ONE - 1;

impl<A> Spare<A> {
    /// A pool beside this allocator.
    pub const fn beside(system: A) -> Spare<A> {
        Spare { system, pool: Pool(UnsafeCell::new([0; SPARE_BYTES])), taken: AtomicU64::new(0) }
    }

    /// Bytes of the pool that cannot be given out at the moment.
    pub fn taken_bytes(&self) -> usize {
        (self.taken.load(Ordering::Relaxed) & END) as usize
    }

    fn is_of_the_pool(&self, address: *mut u8) -> bool {
        (address as usize).wrapping_sub(self.pool.0.get() as usize) < SPARE_BYTES
    }

    fn take(&self, layout: Layout) -> *mut u8 {
        let begin = self.pool.0.get() as usize;
        let mut at = 0;
        let next = |taken: u64| {
            let free = begin + (taken & END) as usize;
            at = free.checked_next_multiple_of(layout.align())? - begin;
            let end = at.checked_add(layout.size()).filter(|end| *end <= SPARE_BYTES)?;
            Some((taken & !END) + ONE + end as u64)
        };
        match self.taken.try_update(Ordering::Acquire, Ordering::Relaxed, next) {
            // SAFETY: within the pool.
            Ok(_) => unsafe { self.pool.0.get().cast::<u8>().add(at) },
            Err(_) => null_mut(),
        }
    }

    fn give_back(&self) {
        let next = |taken: u64| if taken < 2 * ONE { 0 } else { taken - ONE };
        self.taken.update(Ordering::Release, Ordering::Relaxed, next);
    }
}

// SAFETY: what the system's allocator gives goes back to it, and all else is of the pool, where each byte has one
// owner at most.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Spare<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        let given = unsafe { self.system.alloc(layout) };
        if given.is_null() { self.take(layout) } else { given }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        let given = unsafe { self.system.alloc_zeroed(layout) };
        if !given.is_null() {
            return given;
        }
        let given = self.take(layout);
        if !given.is_null() {
            // SAFETY: taken for so many bytes. Others may have had them before.
            unsafe { given.write_bytes(0, layout.size()) };
        }
        given
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if self.is_of_the_pool(address) {
            self.give_back();
        } else {
            // SAFETY: as the caller says.
            unsafe { self.system.dealloc(address, layout) }
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.is_of_the_pool(address) {
            // SAFETY: as the caller says.
            let moved = unsafe { self.system.realloc(address, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller has seen to it that the size is one of a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: not of no bytes, as the caller says.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: two allocations, and no more than either has.
            unsafe {
                moved.copy_from_nonoverlapping(address, layout.size().min(size));
                self.dealloc(address, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;
    use std::sync::atomic::AtomicBool;

    /// A system that has memory, or none.
    struct Sometimes(AtomicBool);

    // SAFETY: the system's, or nothing.
    unsafe impl GlobalAlloc for Sometimes {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if self.0.load(Ordering::Relaxed) {
                // SAFETY: as the caller says.
                unsafe { System.alloc(layout) }
            } else {
                null_mut()
            }
        }

        unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
            // SAFETY: as the caller says.
            unsafe { System.dealloc(address, layout) }
        }
    }

    fn none() -> Box<Spare<Sometimes>> {
        Box::new(Spare::beside(Sometimes(AtomicBool::new(false))))
    }

    fn layout(bytes: usize, align: usize) -> Layout {
        Layout::from_size_align(bytes, align).unwrap()
    }

    #[test]
    fn the_system_serves_as_long_as_it_can() {
        let memory = none();
        memory.system.0.store(true, Ordering::Relaxed);
        let of = layout(100, 8);
        // SAFETY: allocated, written within, and given back as it was allocated.
        unsafe {
            let given = memory.alloc(of);
            given.write_bytes(7, 100);
            assert_eq!(memory.taken_bytes(), 0);
            memory.system.0.store(false, Ordering::Relaxed);
            // Becomes larger: moves into the pool, and goes back to the system as soon as it can.
            let moved = memory.realloc(given, of, 5000);
            assert!(memory.is_of_the_pool(moved));
            assert!((0..100).all(|at| *moved.add(at) == 7));
            memory.system.0.store(true, Ordering::Relaxed);
            let back = memory.realloc(moved, layout(5000, 8), 50);
            assert!(!memory.is_of_the_pool(back) && (0..50).all(|at| *back.add(at) == 7));
            assert_eq!(memory.taken_bytes(), 0);
            memory.dealloc(back, layout(50, 8));
        }
    }

    #[test]
    fn parts_of_the_pool_are_apart_and_aligned_and_it_is_whole_again_in_the_end() {
        let memory = none();
        // SAFETY: written within what was allocated, and given back as it was allocated.
        unsafe {
            for _ in 0..3 {
                let all: Vec<_> = (0..60)
                    .map(|n| layout(1 + n * 173, 1 << (n % 8)))
                    .map(|of| (memory.alloc(of), of))
                    .collect();
                for (n, (given, of)) in all.iter().enumerate() {
                    assert!(memory.is_of_the_pool(*given) && given.align_offset(of.align()) == 0);
                    given.write_bytes(n as u8, of.size());
                }
                for (n, (given, of)) in all.iter().enumerate() {
                    assert!((0..of.size()).all(|at| *given.add(at) == n as u8), "{n}");
                }
                let taken = memory.taken_bytes();
                assert!(taken > 300_000, "{taken}");
                let (last, of) = all[59];
                all[..59].iter().for_each(|(given, of)| memory.dealloc(*given, *of));
                assert_eq!(memory.taken_bytes(), taken);
                let zeroed = memory.alloc_zeroed(layout(4096, 1));
                assert!((0..4096).all(|at| *zeroed.add(at) == 0));
                memory.dealloc(zeroed, layout(4096, 1));
                memory.dealloc(last, of);
                assert_eq!(memory.taken_bytes(), 0);
            }
        }
    }

    #[test]
    fn what_was_in_use_before_is_zeroed() {
        let (memory, of) = (none(), layout(64, 1));
        // SAFETY: as above.
        unsafe {
            let given = memory.alloc(of);
            given.write_bytes(9, 64);
            memory.dealloc(given, of);
            let again = memory.alloc_zeroed(of);
            assert!(again == given && (0..64).all(|at| *again.add(at) == 0));
            memory.dealloc(again, of);
        }
    }

    #[test]
    fn more_than_the_pool_has_is_refused_and_takes_nothing() {
        let memory = none();
        // SAFETY: as above.
        unsafe {
            assert!(memory.alloc(layout(SPARE_BYTES + 1, 1)).is_null());
            assert!(memory.alloc(layout(isize::MAX as usize - 8, 8)).is_null());
            let all = memory.alloc(layout(SPARE_BYTES, 4096));
            assert!(!all.is_null() && memory.alloc(layout(1, 1)).is_null());
            let kept = memory.realloc(all, layout(SPARE_BYTES, 4096), SPARE_BYTES + 1);
            assert!(kept.is_null(), "it stays where it is");
            memory.dealloc(all, layout(SPARE_BYTES, 4096));
            assert_eq!(memory.taken_bytes(), 0);
        }
    }
}
