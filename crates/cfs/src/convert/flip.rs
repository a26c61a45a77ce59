//! The one moment at which everybody stands still.

use crate::device::Device;
use crate::fault::Fault;
use crate::format::error::Error;
use crate::format::root::Base;
use crate::shared::word::Word;
use crate::slots::{Host, Pinned};

/// A segment's slot in shared memory, pinned by the worker.
pub trait Flip {
    /// Sets the slot to frozen: who pins it from now on and finds it so lets go, and waits. False: it is
    /// frozen already, by another.
    fn freeze(&self) -> bool;

    /// Whether no other process has the slot pinned. A pin is counted before frozen is looked at, and frozen
    /// is set before pins are looked at; both by operations that no processor delays.
    fn is_quiet(&self) -> bool;

    /// Changes what the base is, with nobody else there: whatever it prepares counts from one
    /// compare-and-swap on that also ends frozen. False: somebody who has waited for long has taken frozen
    /// back before, or `to` cannot be reached; then nothing has changed.
    ///
    /// # Errors
    /// Then nothing has changed.
    fn change(&self, to: Phase) -> Result<bool, Error>;

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
    /// From `Whole`: the segment is as long as the base, and each of its pages is in the base. Or from
    /// `Returning` when a return is turned round: pages are where they are. The base never changes again.
    Leaving,
    /// From `Returning`, if each page is in the base. The base is cut to the segment's size and has all
    /// pages.
    Whole,
}

/// What became of a flip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flipped {
    /// It is done, in memory. The next commit makes it durable.
    Done,
    /// Others had the slot pinned for too long, or not all pages have returned. To be tried later.
    Busy,
}

/// Stops everybody, changes what the base is, and lets them go on.
///
/// 1. Frozen. Nobody begins a call on the segment.
/// 2. Until nobody has it pinned: calls on the base that have begun have ended. `wait` sleeps a little;
///    false: it has been long enough, and frozen is taken back. Nothing has changed then.
/// 3. The change. Who has waited too long takes frozen back even now; so the change counts only if frozen is
///    still there at its last step, which ends it.
///
/// # Errors
/// As [`Flip::change`].
pub fn flip(slot: &impl Flip, to: Phase, mut wait: impl FnMut() -> bool) -> Result<Flipped, Error> {
    if to == Phase::Whole && slot.fault().is(Fault::WholeWithoutFreezing) {
        slot.freeze();
        return Ok(if slot.change(to)? { Flipped::Done } else { Flipped::Busy });
    }
    if !slot.freeze() {
        return Ok(Flipped::Busy);
    }
    while !slot.is_quiet() {
        if !wait() {
            slot.thaw();
            return Ok(Flipped::Busy);
        }
    }
    let changed = slot.change(to);
    if !matches!(changed, Ok(true)) {
        slot.thaw();
    }
    Ok(if changed? { Flipped::Done } else { Flipped::Busy })
}

impl<D: Device, H: Host, W: Word> Flip for Pinned<'_, '_, D, H, W> {
    fn freeze(&self) -> bool {
        (**self).freeze()
    }

    fn is_quiet(&self) -> bool {
        Pinned::is_quiet(self)
    }

    fn change(&self, to: Phase) -> Result<bool, Error> {
        match (to, self.base()) {
            (Phase::Leaving, Base::Whole) => self.begin_leaving(),
            (Phase::Leaving, _) => self.turn_round(),
            (Phase::Whole, _) => self.become_whole(),
        }
    }

    fn thaw(&self) {
        (**self).thaw();
    }

    fn fault(&self) -> Fault {
        self.options.fault
    }
}
