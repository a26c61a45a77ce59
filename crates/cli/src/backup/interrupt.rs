//! Ctrl-C and SIGTERM. During a backup the connections are closed, so that every thread fails soon and what was written is
//! removed; a second signal ends the process at once. A restore ends at once, and says how to go on.

use super::Failure;
use pgshrink_pgclient::connection::Closer;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

/// The signal that came, or 0.
static CAME: AtomicI32 = AtomicI32::new(0);

/// From now on a signal closes these connections.
pub(super) fn watch(connections: Vec<Closer>) -> Result<(), Failure> {
    let failed = |error| Failure::new("signals", error);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let listen = move || {
        for signal in signals.forever() {
            if CAME.swap(signal, Ordering::SeqCst) != 0 {
                // It fails for signals that cannot be emulated, which these are not.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            connections.iter().for_each(Closer::close);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(())
}

/// As long as it lives, a signal ends this process with a last word.
pub(super) struct LastWord(Handle);

/// Has this process say `word` when a signal ends it, but for signals that were ignored when it began.
pub(super) fn last_word(word: String) -> Result<LastWord, Failure> {
    let failed = |error| Failure::new("signals", error);
    let ignored = crate::run::ignored_signals();
    let signals = [SIGINT, SIGTERM].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = Signals::new(signals).map_err(failed)?;
    let last_word = LastWord(signals.handle());
    let listen = move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("pgshrink: interrupted: {word}");
            // It fails for signals that cannot be emulated, which these are not.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(last_word)
}

impl Drop for LastWord {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// An error when a signal has come.
pub(super) fn check() -> Result<(), Failure> {
    match CAME.load(Ordering::SeqCst) {
        0 => Ok(()),
        SIGINT => Err(Failure::new("interrupted", "there is no backup")),
        _ => Err(Failure::new("ended by SIGTERM", "there is no backup")),
    }
}

/// Why something has failed: the signal, where one came.
pub(super) fn or_cause<T>(done: Result<T, Failure>) -> Result<T, Failure> {
    done.map_err(|error| check().err().unwrap_or(error))
}
