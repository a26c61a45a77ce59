//! The thread that runs bursts through the engine, and the processor time it may take.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pgshrink_egress::{Burst, Simulation};
use rustix::time::{ClockId, clock_gettime};

use super::Core;
use super::book::{ByKind, Tally};
use super::places::Place;

/// Processor time that may be saved up.
const SAVED_MAX: Duration = Duration::from_millis(100);
/// Debt from which on bursts that wait are left out.
const DEBT_MAX: Duration = Duration::from_secs(1);
/// How often the time that has come is looked at while there is too little.
const REFILL_PERIOD: Duration = Duration::from_millis(20);
const IDLE_PERIOD: Duration = Duration::from_secs(1);
/// Below everything that serves sessions. With the lowest priority, a machine whose processors are all busy would leave it less
/// than its budget.
const NICE: i32 = 10;

/// To the sampler.
pub(super) enum Order {
    /// Measure.
    Replay { burst: Burst, stand_for: ByKind, simulation: Arc<Simulation>, tally: Arc<Tally>, _place: Place },
    /// End, when everything before this is measured.
    Stop,
}

/// Whose bursts may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Nobody = 0,
    /// Sessions of which little is known.
    Thin = 1,
    All = 2,
}

impl Admission {
    /// Whether one of this session may; `thin`: little is known of it.
    #[inline]
    pub(super) fn admits(admission: u8, thin: bool) -> bool {
        admission >= if thin { Self::Thin as u8 } else { Self::All as u8 }
    }
}

/// Processor time, saved up and spent.
#[derive(Debug)]
pub(super) struct Budget {
    /// Nanoseconds; negative after a burst that took more than there was.
    tokens_ns: f64,
    at: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { tokens_ns: SAVED_MAX.as_nanos() as f64, at: now }
    }

    /// `share` seconds come in a second.
    fn refill(&mut self, now: Instant, share: f64) {
        let came = now.saturating_duration_since(self.at).as_nanos() as f64 * share;
        self.tokens_ns = (self.tokens_ns + came).min(SAVED_MAX.as_nanos() as f64);
        self.at = now;
    }

    fn spend(&mut self, time: Duration) {
        self.tokens_ns -= time.as_nanos() as f64;
    }

    fn admission(&self) -> Admission {
        if self.tokens_ns <= 0.0 {
            Admission::Nobody
        } else if self.tokens_ns < SAVED_MAX.as_nanos() as f64 / 2.0 {
            Admission::Thin
        } else {
            Admission::All
        }
    }

    fn is_exhausted(&self) -> bool {
        self.tokens_ns < -(DEBT_MAX.as_nanos() as f64)
    }
}

/// Measures until it is told to stop.
pub(super) fn run(core: &Core, queue: &Receiver<Order>) {
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::debug!(%error, "the sampler keeps its priority");
    }
    let (mut budget, mut spent) = (Budget::new(Instant::now()), thread_cpu());
    let mut admission = Admission::All;
    loop {
        let wait = if admission == Admission::All { IDLE_PERIOD } else { REFILL_PERIOD };
        match queue.recv_timeout(wait) {
            Ok(Order::Replay { .. }) if budget.is_exhausted() => {
                core.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Order::Replay { burst, stand_for, simulation, tally, .. }) => {
                let samples = simulation.replay(&burst, thread_cpu);
                tally.add_samples(burst.direction(), &samples, &stand_for);
            }
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = thread_cpu();
        let took = now.saturating_sub(std::mem::replace(&mut spent, now));
        core.sampling_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        budget.spend(took);
        budget.refill(Instant::now(), core.cpu_share());
        admission = budget.admission();
        core.admission.store(admission as u8, Ordering::Relaxed);
    }
}

/// Processor time of this thread.
fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_long_run_no_more_is_spent_than_comes_in() {
        let begin = Instant::now();
        let (mut budget, mut spent) = (Budget::new(begin), Duration::ZERO);
        for millisecond in 0..100_000u32 {
            budget.refill(begin + Duration::from_millis(millisecond.into()), 0.02);
            if budget.admission() == Admission::All {
                // More at once than there is.
                spent += Duration::from_millis(250);
                budget.spend(Duration::from_millis(250));
            }
        }
        let most = Duration::from_secs(2) + SAVED_MAX + Duration::from_millis(250);
        assert!(spent > Duration::from_millis(1500) && spent < most, "{spent:?}");
    }

    #[test]
    fn who_is_little_known_comes_first_when_time_is_short() {
        let mut budget = Budget::new(Instant::now());
        let admits =
            |budget: &Budget| [true, false].map(|thin| Admission::admits(budget.admission() as u8, thin));
        assert_eq!(admits(&budget), [true, true]);
        budget.spend(SAVED_MAX * 2 / 3);
        assert_eq!(admits(&budget), [true, false]);
        budget.spend(SAVED_MAX);
        assert_eq!(admits(&budget), [false, false]);
        assert!(!budget.is_exhausted());
        budget.spend(DEBT_MAX);
        assert!(budget.is_exhausted());
    }
}
