//! Locks in shared memory that name their holder, and are let go when their guard is dropped.
//!
//! * Whoever finds a holder dead takes the lock over. What the dead one was in the midst of shows elsewhere
//!   (`Shared::unfinished`).
//! * A panic drops the guard: the lock is free, and what was under way shows in the same way.
//! * A `longjmp` drops nothing. Its process is alive, and the next time it asks for the lock it finds itself
//!   the holder: it takes the lock over as that of a dead process. Until then others wait, so a server's
//!   error handler calls [`Container::release_held`](crate::Container::release_held) on every container that
//!   it has open: two processes that have left locks of different containers behind, and ask for each
//!   other's, would wait for ever.
//! * Nobody waits for a lock of one container while holding another's ([`crate::engine::group`]).
//! * Locks of a container are taken in this order: collector, commit, loader. So who asks for one holds none
//!   that comes after it: if it seems to, that was left behind by a jump, and is let go.
//! * A guard lets go only what its process still holds. That somebody else holds the lock means that a live
//!   process was taken for dead: then two may have been inside, and the container is poisoned.

use crate::device::ProcessTable;
use crate::shared::word::Word;

/// A lock that is held. Functions that need it take one of the newtypes below as proof.
pub(crate) struct Held<'a, W: Word> {
    word: &'a W,
    poisoned: &'a W,
    me: u64,
}

impl<W: Word> Drop for Held<'_, W> {
    fn drop(&mut self) {
        if self.word.swap_if(self.me, 0).is_err() {
            self.poisoned.store(1);
        }
    }
}

fn try_hold<'a, W: Word>(word: &'a W, poisoned: &'a W, processes: &impl ProcessTable) -> Option<Held<'a, W>> {
    let me = processes.me();
    assert!(me != 0, "a process is named by a number other than 0");
    let is_mine = match word.swap_if(0, me) {
        Ok(()) => true,
        // Left behind by this very process.
        Err(holder) if holder == me => true,
        Err(holder) => !processes.is_alive(holder) && word.swap_if(holder, me).is_ok(),
    };
    // Not before it is known: a guard that was never one would be dropped.
    is_mine.then(|| Held { word, poisoned, me })
}

pub(crate) fn hold<'a, W: Word>(word: &'a W, poisoned: &'a W, processes: &impl ProcessTable) -> Held<'a, W> {
    loop {
        if let Some(held) = try_hold(word, poisoned, processes) {
            return held;
        }
        processes.relax();
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $lock:ident, before $($later:ident),*) => {
        $(#[$doc])*
        pub struct $name<'a, W: Word>(#[allow(dead_code, reason = "held for its drop")] Held<'a, W>);

        impl<'a, W: Word> $name<'a, W> {
            /// Waits for the lock.
            pub fn lock(shared: &'a crate::shared::region::Shared<W>, processes: &impl ProcessTable) -> Self {
                $(let_go(&shared.$later, processes);)*
                $name(hold(&shared.$lock, &shared.poisoned, processes))
            }

            /// Takes the lock if nobody who lives holds it.
            pub fn try_lock(
                shared: &'a crate::shared::region::Shared<W>,
                processes: &impl ProcessTable,
            ) -> Option<Self> {
                $(let_go(&shared.$later, processes);)*
                try_hold(&shared.$lock, &shared.poisoned, processes).map($name)
            }
        }
    };
}

guard! {
    /// The commit lock: its holder commits, truncates, opens, or changes what roots say.
    CommitGuard, commit_lock, before loader_lock
}
guard! {
    /// The loaders' lock: its holder puts a leaf's entries into memory, or lowers the limit up to which
    /// others may.
    LoaderGuard, loader_lock, before
}
guard! {
    /// The collector's lock.
    CollectorGuard, collector_lock, before commit_lock, loader_lock
}

/// Lets go of whatever `processes.me()` holds of these locks, after a jump out of the engine.
pub(crate) fn release_held<W: Word>(
    shared: &crate::shared::region::Shared<W>,
    processes: &impl ProcessTable,
) {
    for word in [&shared.commit_lock, &shared.loader_lock, &shared.collector_lock] {
        let_go(word, processes);
    }
}

pub(crate) fn let_go<W: Word>(word: &W, processes: &impl ProcessTable) {
    if word.load() == processes.me() {
        // Nobody takes it from a process that lives.
        let _ = word.swap_if(processes.me(), 0);
    }
}
