//! When a flow is woken in the middle of a bulk transfer.
//!
//! PostgreSQL and libpq write 8 KiB at a time, and a wake costs more than moving them. While a transfer lasts and what was read
//! last ends inside a message, whose rest is bound to come, the socket wakes its reader only for [`GATHER_SIZE`] bytes. The pump's
//! hold timer is the limit. See `docs/decisions/2026-11-21-bulk-reads.md`.

use std::time::{Duration, Instant};

use crate::stream::Stream;

/// Bytes that wake a flow.
pub(super) const GATHER_SIZE: u32 = 128 << 10;
/// A transfer is bulk when so much came without a rest, and for so long: waiting for more at its end, one to two
/// milliseconds, then costs it little.
const BULK_SIZE_MIN: usize = 256 << 10;
const BULK_TIME_MIN: Duration = Duration::from_millis(10);
/// What came in the time has to have been worth the wait.
const GATHERED_SIZE_MIN: usize = 32 << 10;
/// So long between two messages ends a transfer.
const REST_TIME_MAX: Duration = Duration::from_millis(2);

/// What is known of one direction's source.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Bytes read since the last rest, and when the first of them came.
    bulk: usize,
    since: Option<Instant>,
    /// The time was over before there was enough.
    too_little: bool,
    /// What was read last ends inside a message.
    cut: bool,
    /// Since when a bulk transfer has been quiet between two messages.
    rested: Option<Instant>,
    on: bool,
}

impl Gather {
    /// True while the source wakes its reader only for much.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Bytes were read; `cut` when they end inside a message.
    pub(super) fn count(&mut self, size: usize, cut: bool) {
        self.cut = cut;
        if std::mem::take(&mut self.too_little) && size < GATHERED_SIZE_MIN {
            self.bulk = 0;
        }
        if self.rested.take().is_some_and(|since| since.elapsed() > REST_TIME_MAX) {
            self.bulk = 0;
        }
        if self.bulk == 0 {
            self.since = cut.then(Instant::now);
        }
        if self.since.is_some() {
            self.bulk = self.bulk.saturating_add(size);
        }
    }

    /// The source is empty. In the middle of a message it wakes its reader for much from now on, between two for anything.
    pub(super) fn rest(&mut self, from: &Stream) {
        let bulk = self.bulk >= BULK_SIZE_MIN;
        let lasts = || self.since.is_some_and(|since| since.elapsed() >= BULK_TIME_MIN);
        let worth_it = self.cut && bulk && !self.too_little && (self.on || lasts());
        if worth_it != self.on {
            self.on = from.set_low_water(if worth_it { GATHER_SIZE } else { 1 }) && worth_it;
        }
        if !self.cut {
            // Many small rows end where a read ends now and then: that alone is no rest.
            self.rested = bulk.then(Instant::now);
            self.bulk = if bulk { self.bulk } else { 0 };
        }
    }

    /// The time is over: whatever there is wakes the reader.
    pub(super) fn end(&mut self, from: &Stream) {
        if self.on {
            from.set_low_water(1);
            self.on = false;
            self.too_little = true;
        }
    }
}
