//! One memory budget for all sessions of a process.
//!
//! Owns the count of bytes that encoders, decoders and their windows may hold together. It does not allocate:
//! a session takes a [`Lease`] first and allocates afterwards, so a peer that declares a large window is refused
//! before anything is reserved for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::policy::{WINDOW_LOG_AUTO_MAX, WINDOW_LOG_DEFAULT};

/// Default for a process: 1 GiB of codec memory.
pub const BUDGET_BYTES_DEFAULT: u64 = 1 << 30;

/// Sessions with the window of [`MemoryBudget::window_log_invited`] that fit into the limit.
const WINDOWS_INVITED: u64 = 256;

#[derive(Debug)]
struct Shared {
    used: AtomicU64,
    limit: AtomicU64,
}

/// A shared budget; clones count together.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Shared>);

impl MemoryBudget {
    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Shared { used: AtomicU64::new(0), limit: AtomicU64::new(limit_bytes) }))
    }

    /// Bytes leased now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes allowed.
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit; leases beyond a smaller one stay until they are dropped.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.0.limit.store(limit_bytes, Ordering::Relaxed);
    }

    /// The largest zstd window, as a power of two, that this process invites its peers to use, so that
    /// [`WINDOWS_INVITED`] of them fit: between what is the default anyway and what is ever of use.
    pub fn window_log_invited(&self) -> u32 {
        let share = (self.limit() / WINDOWS_INVITED).max(1);
        share.ilog2().clamp(WINDOW_LOG_DEFAULT, WINDOW_LOG_AUTO_MAX)
    }

    /// True when `bytes` more leave half of the limit to others.
    pub(crate) fn is_roomy(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.limit() / 2
    }

    /// An empty lease that can grow.
    pub fn lease(&self) -> Lease {
        Lease { budget: self.clone(), bytes: 0 }
    }

    fn take(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.limit();
        self.0
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= limit)
            })
            .map(|_| ())
            .map_err(|used_bytes| Error::Memory { wanted_bytes: bytes, used_bytes, limit_bytes: limit })
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(BUDGET_BYTES_DEFAULT)
    }
}

/// Bytes taken from a budget, given back on drop.
#[derive(Debug)]
pub struct Lease {
    budget: MemoryBudget,
    bytes: u64,
}

impl Lease {
    /// What the bytes are taken from.
    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the lease exactly `bytes`; growing fails when the budget has no room, shrinking never does.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Error> {
        if bytes > self.bytes {
            self.budget.take(bytes - self.bytes)?;
        } else {
            self.budget.0.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_count_together_and_come_back() {
        let budget = MemoryBudget::new(100);
        let mut first = budget.lease();
        let mut second = budget.clone().lease();
        first.resize(60).unwrap();
        assert_eq!(
            second.resize(50),
            Err(Error::Memory { wanted_bytes: 50, used_bytes: 60, limit_bytes: 100 })
        );
        first.resize(40).unwrap();
        second.resize(50).unwrap();
        assert_eq!(budget.used(), 90);
        drop(first);
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn peers_are_invited_to_windows_of_which_many_fit() {
        for (limit, log) in [(1, 19), (64 << 20, 19), (512 << 20, 21), (1 << 30, 22), (1 << 40, 23)] {
            assert_eq!(MemoryBudget::new(limit).window_log_invited(), log, "{limit}");
        }
    }
}
