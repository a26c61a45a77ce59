//! A word of shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// A word of shared memory. Implemented for [`AtomicU64`], and by tests for a model checker's and a
/// simulator's.
pub trait Word {
    /// Reads; what was written before the value was stored is seen.
    fn load(&self) -> u64;
    /// Writes; what was written before is seen by who reads the value.
    fn store(&self, value: u64);
    /// Replaces `current` by `new`, or returns what is there.
    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64>;
    /// Adds, and returns what was there.
    fn add(&self, value: u64) -> u64;
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        AtomicU64::store(self, value, Ordering::Release);
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn add(&self, value: u64) -> u64 {
        self.fetch_add(value, Ordering::AcqRel)
    }
}
