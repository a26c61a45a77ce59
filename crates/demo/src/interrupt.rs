//! ^C and its relatives as a flag that waiting loops look at.
//!
//! A signal only sets the flag: what has been started ends because its owner is dropped on the way out.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

const NOTED: Duration = Duration::from_millis(50);

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Takes over the signals that ask a program to end.
pub(crate) fn watch() -> std::io::Result<()> {
    let flag = REQUESTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// True once the process has been asked to end.
pub(crate) fn requested() -> bool {
    REQUESTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// True once, when it has been asked since the last look.
pub(crate) fn take() -> bool {
    REQUESTED.get().is_some_and(|flag| flag.swap(false, Ordering::Relaxed))
}

/// True when a failure just seen may come from the request to end: a ^C reaches the programs we started as well, and
/// one of them may have ended before the signal was noted here.
pub(crate) fn explains_failure() -> bool {
    std::thread::sleep(NOTED);
    requested()
}

/// An error once the process has been asked to end.
pub(crate) fn check() -> Result<(), Failure> {
    if requested() { Err(Failure::Interrupted) } else { Ok(()) }
}
