//! The one moment at which everybody stands still.

use crate::fault::Fault;
use crate::format::error::Error;

/// A segment's slot in shared memory, pinned by the worker.
pub trait Flip {
    /// Sets the slot to frozen: who pins it from now on and finds it so lets go, and waits. False: it is frozen
    /// already, by another.
    fn freeze(&self) -> bool;

    /// Whether no other process has the slot pinned. A pin is counted before frozen is looked at, and frozen is
    /// set before pins are looked at; both by operations that no processor delays.
    fn is_quiet(&self) -> bool;

    /// Takes frozen for itself, by compare-and-swap: from now on nobody takes it back who has waited for long.
    /// False: somebody already has.
    fn hold(&self) -> bool;

    /// Changes what the base is, with nobody else there.
    ///
    /// # Errors
    /// Then nothing has changed.
    fn change(&self, to: Phase) -> Result<(), Error>;

    /// Ends frozen, if it is this worker's. Harmless if somebody has taken it back.
    fn thaw(&self);

    /// A bug, for tests of the tests.
    #[doc(hidden)]
    fn fault(&self) -> Fault {
        Fault::None
    }
}

/// What a flip makes of the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// From `Whole`, or from `Returning` when a return is turned round. The segment is as long as the base; each
    /// of its pages is in the base, and that never changes again.
    Leaving,
    /// From `Returning`, if each page is in the base. The base is cut to the segment's size and has all pages.
    Whole,
}

/// What became of a flip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flipped {
    /// It is done, in memory. The next commit makes it durable.
    Done,
    /// Others had the slot pinned for too long. To be tried later.
    Busy,
}

/// Stops everybody, changes what the base is, and lets them go on.
///
/// 1. Frozen. Nobody begins a call on the segment.
/// 2. Until nobody has it pinned: calls on the base that have begun have ended. `wait` sleeps a little; false: it
///    has been long enough, and frozen is taken back. Nothing has changed then.
/// 3. Frozen is held. Who has waited too long takes it back; between step 2 and the change that would let him in.
/// 4. The change.
/// 5. Not frozen any more, whatever came of it.
///
/// # Errors
/// As [`Flip::change`].
pub fn flip(slot: &impl Flip, to: Phase, mut wait: impl FnMut() -> bool) -> Result<Flipped, Error> {
    if to == Phase::Whole && slot.fault().is(Fault::WholeWithoutFreezing) {
        return slot.change(to).map(|()| Flipped::Done);
    }
    if !slot.freeze() {
        return Ok(Flipped::Busy);
    }
    while !slot.is_quiet() && !slot.fault().is(Fault::FlipsUnderWriter) {
        if !wait() {
            slot.thaw();
            return Ok(Flipped::Busy);
        }
    }
    if !slot.hold() && !slot.fault().is(Fault::FrozenNotHeld) {
        return Ok(Flipped::Busy);
    }
    let changed = slot.change(to);
    slot.thaw();
    changed.map(|()| Flipped::Done)
}
