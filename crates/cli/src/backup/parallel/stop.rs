//! How one thread ends the others: who fails first says why, and all connections are closed.

use crate::backup::Failure;
use crate::backup::failure::broken_off;
use pgshrink_pgclient::connection::Closer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub(super) struct Stop {
    closers: Arc<Vec<Closer>>,
    has_failed: AtomicBool,
    first: Mutex<Option<Failure>>,
}

impl Stop {
    pub(super) fn new(closers: Arc<Vec<Closer>>) -> Stop {
        Stop { closers, has_failed: AtomicBool::new(false), first: Mutex::new(None) }
    }

    /// What others say from now on follows from this.
    pub(super) fn fail(&self, failure: Failure) {
        if let Ok(mut first) = self.first.lock() {
            first.get_or_insert(failure);
        }
        self.has_failed.store(true, Ordering::Relaxed);
        self.closers.iter().for_each(Closer::close);
    }

    /// # Errors
    /// When somebody has failed.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.has_failed.load(Ordering::Relaxed) { Err(broken_off()) } else { Ok(()) }
    }

    /// What came of it in the end.
    pub(super) fn result(self) -> Result<(), Failure> {
        let first = self.first.into_inner().map_err(|_| broken_off())?;
        first.map_or(Ok(()), Err)
    }
}
