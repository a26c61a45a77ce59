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

/// Processor time that may be saved up: what comes in so long a time, and enough for a few bursts.
const SAVED_FOR: Duration = Duration::from_secs(1);
const SAVED_MIN: Duration = Duration::from_millis(10);
/// What a burst is taken to cost before the first one was measured: of bulk, and of small messages.
const COST_FIRST: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(6)];
/// Bursts of small messages that may be recorded together while there is any time: they end one by one, much later.
const SMALL_MIN: usize = 8;
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
    Replay { burst: Burst, stand_for: ByKind, simulation: Arc<Simulation>, tally: Arc<Tally>, place: Place },
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
    /// Most that may be saved up.
    most_ns: f64,
    at: Instant,
    /// What a burst costs, of bulk and of small messages: a moving average.
    cost_ns: [f64; 2],
}

impl Budget {
    fn new(now: Instant, share: f64) -> Self {
        let cost_ns = COST_FIRST.map(|cost| cost.as_nanos() as f64);
        let most_ns = Self::most_ns(share);
        Self { tokens_ns: most_ns, most_ns, at: now, cost_ns }
    }

    fn most_ns(share: f64) -> f64 {
        (SAVED_FOR.as_nanos() as f64 * share).max(SAVED_MIN.as_nanos() as f64)
    }

    /// `share` seconds come in a second.
    fn refill(&mut self, now: Instant, share: f64) {
        let came = now.saturating_duration_since(self.at).as_nanos() as f64 * share;
        self.most_ns = Self::most_ns(share);
        self.tokens_ns = (self.tokens_ns + came).min(self.most_ns);
        self.at = now;
    }

    fn spend(&mut self, time: Duration) {
        self.tokens_ns -= time.as_nanos() as f64;
    }

    /// A burst took so long.
    fn learn(&mut self, is_bulk: bool, time: Duration) {
        let cost = &mut self.cost_ns[usize::from(!is_bulk)];
        *cost += (time.as_nanos() as f64 - *cost) / 8.0;
    }

    /// How many bursts there is time for, of bulk and of small messages.
    fn room(&self) -> [usize; 2] {
        let [bulk, small] = self.cost_ns.map(|cost| (self.tokens_ns.max(0.0) / cost.max(1.0)) as usize);
        // Bulk that costs more than can be saved up is measured all the same, one burst at a time.
        let bulk = if self.is_full() { bulk.max(1) } else { bulk };
        [bulk, if self.tokens_ns > 0.0 { small.max(SMALL_MIN) } else { 0 }]
    }

    fn is_full(&self) -> bool {
        self.tokens_ns >= self.most_ns
    }

    fn admission(&self) -> Admission {
        if self.tokens_ns <= 0.0 {
            Admission::Nobody
        } else if self.tokens_ns < self.most_ns / 2.0 {
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
    let (mut budget, mut spent) = (Budget::new(Instant::now(), core.cpu_share()), thread_cpu());
    core.places.set_room(budget.room());
    loop {
        let wait = if budget.is_full() { IDLE_PERIOD } else { REFILL_PERIOD };
        let mut replayed = None;
        match queue.recv_timeout(wait) {
            Ok(Order::Replay { .. }) if budget.is_exhausted() => {
                core.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Order::Replay { burst, stand_for, simulation, tally, place }) => {
                replayed = Some(place.is_bulk());
                let samples = simulation.replay(&burst, thread_cpu);
                tally.add_samples(burst.direction(), &samples, &stand_for);
            }
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = thread_cpu();
        let took = now.saturating_sub(std::mem::replace(&mut spent, now));
        core.sampling_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        replayed.into_iter().for_each(|is_bulk| budget.learn(is_bulk, took));
        budget.spend(took);
        budget.refill(Instant::now(), core.cpu_share());
        core.places.set_room(budget.room());
        core.admission.store(budget.admission() as u8, Ordering::Relaxed);
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
        let (mut budget, mut spent) = (Budget::new(begin, 0.02), Duration::ZERO);
        for millisecond in 0..100_000u32 {
            budget.refill(begin + Duration::from_millis(millisecond.into()), 0.02);
            if budget.admission() == Admission::All {
                // More at once than there is.
                spent += Duration::from_millis(250);
                budget.spend(Duration::from_millis(250));
            }
        }
        let most = Duration::from_secs(2) + SAVED_FOR / 50 + Duration::from_millis(250);
        assert!(spent > Duration::from_millis(1500) && spent < most, "{spent:?}");
    }

    #[test]
    fn who_is_little_known_comes_first_when_time_is_short() {
        let mut budget = Budget::new(Instant::now(), 0.1);
        let admits =
            |budget: &Budget| [true, false].map(|thin| Admission::admits(budget.admission() as u8, thin));
        assert_eq!(admits(&budget), [true, true]);
        assert_eq!(budget.room(), [25, 16]);
        budget.spend(SAVED_FOR / 10 * 2 / 3);
        assert_eq!(budget.room(), [8, 8]);
        assert_eq!(admits(&budget), [true, false]);
        budget.spend(SAVED_FOR / 10);
        assert_eq!(budget.room(), [0, 0]);
        assert_eq!(admits(&budget), [false, false]);
        assert!(!budget.is_exhausted());
        budget.spend(DEBT_MAX);
        assert!(budget.is_exhausted());
    }

    #[test]
    fn what_bursts_cost_decides_how_many_there_may_be_and_one_there_may_always_be() {
        let begin = Instant::now();
        let mut budget = Budget::new(begin, 0.0001);
        (0..100).for_each(|_| budget.learn(true, Duration::from_millis(40)));
        assert_eq!(budget.room()[0], 1);
        budget.spend(Duration::from_millis(40));
        assert_eq!(budget.room()[0], 0);
        budget.refill(begin + Duration::from_secs(400), 0.0001);
        assert_eq!(budget.room()[0], 1);
        (0..100).for_each(|_| budget.learn(true, Duration::from_millis(1)));
        assert_eq!(budget.room()[0], 9);
    }
}
