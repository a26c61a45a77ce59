//! How calls by path notice that a name has changed its form while they were under way.
//!
//! The kernel resolves a path at one moment and does the rest later: a process may be stopped in between for
//! as long as it likes. So an open that was resolved before an exchange may end long after it, with a
//! descriptor of the plain file that no look into `/proc` has seen. Who calls by path therefore reads the
//! generation before and after. If an exchange was under way at either moment, or one has ended in between,
//! he looks at the name again.
//!
//! A name that is looked at *after* the call has ended needs no more than that: an exchange that comes after
//! the look finds the descriptor installed, and settling sees it.

use crate::fault::Fault;
use crate::shared::word::Word;

/// A call by path: what its result is worth when the name has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// It gives a descriptor that is kept.
    Open,
    /// It asks: size, existence, times.
    Stat,
    /// It changes what has the name: truncates, unlinks.
    Change,
}

/// The server's generation: a word of shared memory that is not what it was when a name has changed its form.
///
/// Its low 16 bits count exchanges that are under way, the rest those that have ended. So any number of
/// workers may exchange at the same time, and one that dies in between only costs the others a look at each
/// name until the server starts again.
pub struct Generation<'a, W> {
    word: &'a W,
    fault: Fault,
}

/// An exchange is under way, until this is dropped.
pub(super) struct UnderWay<'a, W: Word>(&'a W);

const UNDER_WAY: u64 = 1;
const ENDED: u64 = 1 << 16;

impl<W: Word> Drop for UnderWay<'_, W> {
    fn drop(&mut self) {
        self.0.add(ENDED - UNDER_WAY);
    }
}

impl<'a, W: Word> Generation<'a, W> {
    /// Over the server's word, which is 0 when the server starts.
    pub fn over(word: &'a W) -> Self {
        Generation { word, fault: Fault::None }
    }

    /// A bug, for tests of the tests.
    #[doc(hidden)]
    pub fn with_fault(self, fault: Fault) -> Self {
        Generation { fault, ..self }
    }

    pub(super) fn begin(&self) -> UnderWay<'a, W> {
        self.word.add(UNDER_WAY);
        UnderWay(self.word)
    }

    /// The generation, if no exchange is under way. While it is this, no name changes its form: what was seen
    /// of all files since then, as who has them open, holds for each that had been exchanged by then.
    pub fn steady(&self) -> Option<u64> {
        let word = self.word.load();
        word.is_multiple_of(ENDED).then_some(word)
    }

    /// Does something by a name. `attempt` does it once, by what the name has: a descriptor, a size, an
    /// error, all of them are results. `check` is asked only where an exchange may have come in between. It
    /// looks at the name and gives the result back if the name still has the file that the attempt has met;
    /// otherwise it undoes the attempt (closes the descriptor), gives nothing, and the attempt is made again.
    ///
    /// What `check` compares: of a plain file its inode, which is nobody else's while a descriptor is open;
    /// of a container the inode of the container's file; of an error that says "no such file", "is a
    /// directory" or "is not a directory", whether the name still gives it. A truncation that has met the
    /// base of a container is not undone but done again to the container: nobody uses the pages that it takes
    /// away until it returns.
    ///
    /// No allocation, no lock. The loop ends, as each round needs an exchange of this very name.
    pub fn by_name<T>(
        &self,
        call: Call,
        mut attempt: impl FnMut() -> T,
        mut check: impl FnMut(T) -> Option<T>,
    ) -> T {
        loop {
            let before = self.word.load();
            let done = attempt();
            // A read that is not delayed beyond the attempt: the attempt is a system call, the word is
            // ordered with all others.
            let is_steady = before.is_multiple_of(ENDED) && self.word.load() == before;
            if is_steady || self.is_injected(call) {
                return done;
            }
            if let Some(done) = check(done) {
                return done;
            }
        }
    }

    fn is_injected(&self, call: Call) -> bool {
        match call {
            Call::Open => self.fault.is(Fault::OpenLooksOnce),
            Call::Stat => self.fault.is(Fault::StatLooksOnce),
            Call::Change => self.fault.is(Fault::ChangeLooksOnce),
        }
    }
}
