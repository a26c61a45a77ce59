//! Work that takes long, and that whoever waits for it may end.

use crate::error::Error;

/// Asks now and then whether to go on.
pub(super) struct Pace<'p> {
    proceed: &'p mut dyn FnMut() -> Result<(), Error>,
    /// Since it was asked last.
    done: usize,
}

/// About a byte that is looked at is one. So many take some milliseconds.
const WORK_MAX: usize = 64 << 10;

impl<'p> Pace<'p> {
    pub(super) fn new(proceed: &'p mut dyn FnMut() -> Result<(), Error>) -> Pace<'p> {
        Pace { proceed, done: 0 }
    }

    /// So much was done.
    ///
    /// # Errors
    /// What the caller says.
    pub(super) fn work(&mut self, amount: usize) -> Result<(), Error> {
        self.done = self.done.saturating_add(amount);
        if self.done < WORK_MAX {
            return Ok(());
        }
        self.done = 0;
        (self.proceed)()
    }
}
