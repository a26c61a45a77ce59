//! Ctrl-C and SIGTERM: what the server does for this process is canceled, so that nothing of it goes on there.

use super::super::Failure;
use pgshrink_pgclient::connection::{CancelHandle, Closer, Connection};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The pause between two requests to cancel.
const CANCEL_AGAIN: Duration = Duration::from_millis(200);

/// Watches signals for one session. After it is dropped, signals end the process as they would without it.
pub(super) struct Interrupt {
    has_come: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on a signal cancels what the session runs. A second one ends the process at once.
    pub(super) fn listen(connection: &Connection) -> Result<Interrupt, Failure> {
        let failed = |error| Failure::new("signals", error);
        let ignored = crate::run::ignored_signals();
        let signals = [SIGINT, SIGTERM].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(signals).map_err(failed)?;
        let (cancel, closer) = (connection.cancel_handle(), connection.closer()?);
        let interrupt = Interrupt { has_come: Arc::default(), is_over: Arc::default() };
        let (has_come, is_over) = (Arc::clone(&interrupt.has_come), Arc::clone(&interrupt.is_over));
        let end = interrupt.is_over.clone();
        let cancel = move || {
            // What was asked for ahead begins when the first one is canceled.
            while !end.load(Ordering::SeqCst) {
                stop(cancel.as_ref(), &closer);
                thread::sleep(CANCEL_AGAIN);
            }
        };
        let mut cancel = Some(cancel);
        let listen = move || {
            for signal in signals.forever() {
                if has_come.swap(true, Ordering::SeqCst) || is_over.load(Ordering::SeqCst) {
                    // It fails for signals that cannot be emulated, which these are not.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                if let Some(cancel) = cancel.take() {
                    thread::spawn(cancel);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
        Ok(interrupt)
    }

    /// An error if a signal has come.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.has_come.load(Ordering::SeqCst) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// A server that takes no cancel request notices that the socket is closed when it next writes.
fn stop(cancel: Option<&CancelHandle>, closer: &Closer) {
    if cancel.is_none_or(|cancel| cancel.cancel().is_err()) {
        closer.close();
    }
}
