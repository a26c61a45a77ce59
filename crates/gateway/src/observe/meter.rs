//! One session's part: counts every read, and records a burst now and then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgshrink_egress::replay;
use pgshrink_egress::traffic::BULK_SIZE_MIN;
use pgshrink_egress::{Burst, Direction, Kind, Simulation};
use pgshrink_wire::Conversation;

use super::Core;
use super::book::{ByKind, Tally};
use super::places::Place;
use super::sampler::{Admission, Order};

/// How long a burst may be recorded.
const AGE_MAX: Duration = Duration::from_secs(600);
/// A session of which so little was recorded comes first when there is little processor time.
const THIN_SIZE: u64 = 1 << 20;

/// See the module's documentation.
pub(crate) struct Meter {
    core: Arc<Core>,
    tally: Arc<Tally>,
    /// `None`: nothing is compressed on this route, so nothing would be saved.
    simulation: Option<Arc<Simulation>>,
    sides: [Side; Direction::ALL.len()],
}

#[derive(Default)]
struct Side {
    /// Bytes so far.
    seen: u64,
    /// Of these, in bursts.
    recorded: u64,
    /// Of these, since the end of the last burst: what the next one stands for.
    since_last: ByKind,
    recording: Option<Recording>,
}

struct Recording {
    burst: Burst,
    began: Instant,
    place: Place,
}

impl Meter {
    pub(super) fn new(core: Arc<Core>, tally: Arc<Tally>, simulation: Option<Arc<Simulation>>) -> Self {
        Self { core, tally, simulation, sides: Default::default() }
    }

    /// A read; `talk` has not seen it yet.
    #[inline]
    pub(crate) fn see(&mut self, direction: Direction, bytes: &[u8], talk: &Conversation) {
        let side = &mut self.sides[direction as usize];
        let kind = Kind::of(bytes.len(), side.seen, talk.is_streaming());
        self.tally.count(direction, kind, bytes.len());
        side.since_last[kind as usize] += bytes.len() as u64;
        let begins =
            || Admission::admits(self.core.admission.load(Ordering::Relaxed), side.recorded < THIN_SIZE);
        let records = side.recording.is_some() || begins();
        side.seen += bytes.len() as u64;
        if records {
            self.record(direction, bytes, kind, talk);
        }
    }

    /// The source has nothing more.
    #[inline]
    pub(crate) fn rest(&mut self, direction: Direction) {
        if let Some(recording) = &mut self.sides[direction as usize].recording {
            recording.burst.idle();
        }
    }

    /// A session that is compressed forgets now what it sent.
    pub(crate) fn release(&mut self) {
        Direction::ALL.into_iter().for_each(|direction| self.submit(direction));
    }

    fn record(&mut self, direction: Direction, bytes: &[u8], kind: Kind, talk: &Conversation) {
        if self.sides[direction as usize].recording.is_none() {
            self.sides[direction as usize].recording = self.begin(direction, bytes.len(), talk);
        }
        let side = &mut self.sides[direction as usize];
        let Some(Recording { burst, began, place }) = &mut side.recording else { return };
        side.recorded += bytes.len() as u64;
        let wants_more = burst.push(bytes, kind);
        if !place.holds(burst.size()) || !wants_more || began.elapsed() > AGE_MAX {
            self.submit(direction);
        }
    }

    fn begin(&self, direction: Direction, size: usize, talk: &Conversation) -> Option<Recording> {
        self.simulation.as_ref()?;
        let is_bulk = size >= BULK_SIZE_MIN;
        // The read is counted already.
        let burst = if self.sides[direction as usize].seen == size as u64 {
            Burst::from_start(direction)
        } else {
            let left = match direction {
                Direction::ToClient => talk.server_left(),
                Direction::ToServer => talk.client_left(),
            };
            // A read that begins inside a header is not where a burst begins; the next one may be.
            Burst::from_middle(
                direction,
                left?,
                talk.is_streaming(),
                if is_bulk { replay::SIZE_MAX } else { 0 },
            )
        };
        let place = self.core.places.take(is_bulk)?;
        Some(Recording { burst, began: Instant::now(), place })
    }

    fn submit(&mut self, direction: Direction) {
        let side = &mut self.sides[direction as usize];
        let Some(Recording { burst, place, .. }) = side.recording.take() else { return };
        let stand_for = std::mem::take(&mut side.since_last);
        let Some(simulation) = self.simulation.clone() else { return };
        let tally = self.tally.clone();
        // A sampler that has ended wants nothing.
        let _ = self.core.orders.send(Order::Replay { burst, stand_for, simulation, tally, place });
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.release();
    }
}
