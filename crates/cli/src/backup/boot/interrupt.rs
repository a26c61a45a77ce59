//! Ctrl-C and its relatives, while a server runs on scratch space.

use super::super::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Remembers that a signal asked for the end. As long as it lives, such a signal ends nothing by itself.
pub(super) struct Interrupt {
    has_come: Arc<AtomicBool>,
    listeners: Vec<SigId>,
}

impl Interrupt {
    /// Starts listening for SIGINT, SIGTERM and SIGHUP, but for those that were ignored when this process began.
    pub(super) fn listen() -> Result<Interrupt, Failure> {
        let ignored = crate::run::ignored_signals();
        let mut interrupt = Interrupt { has_come: Arc::default(), listeners: Vec::new() };
        let failed = |error: io::Error| Failure::new("signals", error);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if ignored & (1 << (signal - 1)) == 0 {
                let listener = flag::register(signal, interrupt.has_come.clone()).map_err(failed)?;
                interrupt.listeners.push(listener);
            }
        }
        Ok(interrupt)
    }

    pub(super) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }

    /// An error if a signal has come.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.has_come() {
            true => Err(Failure::new("interrupted", "the backup was not checked completely")),
            false => Ok(()),
        }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.listeners.drain(..).for_each(|listener| {
            low_level::unregister(listener);
        });
    }
}
