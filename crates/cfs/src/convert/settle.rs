//! Waiting, without waiting: until nobody can write to the base past its container.

use crate::convert::error::During;
use crate::convert::{ConvertError, Exchanged, Name, Site};
use crate::fault::Fault;

/// Milliseconds between two barriers: processes that missed one, or were born since, get another.
pub const SETTLE_BARRIER_MS: u64 = 5000;

/// Who has descriptors of a file that can write, under a name of before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holders {
    /// Descriptors.
    pub writable: u32,
    /// Processes that could not be looked at, and were still there afterwards. They count as holders.
    pub unreadable: u32,
    /// One of these processes, for who asks what is being waited for; 0: none.
    pub process: u32,
}

impl Holders {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.writable == 0 && self.unreadable == 0
    }
}

/// An exchanged segment whose old descriptors are waited for. Kept by the worker between two looks; a new
/// worker begins with a new one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settling {
    barrier_ms: Option<u64>,
}

impl Settling {
    /// One look. None of the holders is waited for: who gets some back comes again later. `now_ms` is of any
    /// clock that does not go back.
    ///
    /// 1. R must still be this container: a base whose relation was dropped may have given its number to
    ///    another file.
    /// 2. A barrier, at first and every [`SETTLE_BARRIER_MS`]: processes keep descriptors for as long as they
    ///    like otherwise. Nobody's answer is counted on; a barrier may be missed.
    /// 3. All descriptors of all processes. No descriptor can come to be under a name of before: the exchange
    ///    took that name away, and a call that was under way then looks again before it is used. So one look
    ///    that finds none is enough, although it looks at one process after the other.
    ///
    /// # Errors
    /// [`ConvertError::OtherFile`] where R is not this container any more.
    pub fn look<S: Site>(
        &mut self,
        site: &S,
        exchanged: &Exchanged<S::Directory>,
        now_ms: u64,
    ) -> Result<Holders, ConvertError> {
        exchanged.check_name(site)?;
        if self.barrier_ms.is_none_or(|last| now_ms.saturating_sub(last) >= SETTLE_BARRIER_MS) {
            self.barrier_ms = Some(now_ms);
            site.emit_barrier();
        }
        if site.fault().is(Fault::HoldersIgnored) {
            return Ok(Holders::default());
        }
        if site.fault().is(Fault::ScanBeforeExchange)
            && let Some(holders) = exchanged.before
        {
            return Ok(holders);
        }
        site.holders(exchanged.base).during("look for descriptors of", Name::Segment)
    }
}

/// What must be durable before the [flip](super::flip()): from then on the plain file that R was, and the
/// container that R is, differ. Nobody waits for it: writers go on.
///
/// 1. The directory above: a loss of power must not bring the plain file's name back.
/// 2. The base: most of it, so that the commit after the flip, which syncs it again, has little to wait for.
///
/// # Errors
/// After any the segment must not be flipped.
pub fn make_durable<S: Site>(site: &S, exchanged: &Exchanged<S::Directory>) -> Result<(), ConvertError> {
    exchanged.check_name(site)?;
    if !site.fault().is(Fault::AboveNotSynced) {
        site.sync_above().during("sync the directory of", Name::Segment)?;
    }
    site.sync_base(&exchanged.directory).during("sync the base of", Name::Segment)
}
