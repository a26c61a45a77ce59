//! The pace of collection: how much one call may do, when the next is due, and when a commit would pay.
//!
//! Knows no clock, no thread and no container: time is an argument, since whenever. Whoever calls
//! [`Container::collect`](crate::Container::collect) asks it in between:
//!
//! ```
//! # use pgshrink_cfs::{Collected, Pace, Rules};
//! # use std::time::Duration;
//! # let (now, collect) = (|| Duration::ZERO, |_| Collected::default());
//! let mut pace = Pace::new(Rules::default());
//! let begun = now();
//! let found = collect(pace.rules().budget);
//! let next = pace.after(begun, now(), &found);
//! // commit if next.commit; then sleep until next.due
//! # assert_eq!(next.due, Rules::default().period);
//! ```
//!
//! Over any time, what was moved is at most one budget more than the rate allows.

use std::time::Duration;

use crate::engine::collector::{Budget, Collected};

/// What a user chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Of one call.
    pub budget: Budget,
    /// Rest after a call that found nothing to do.
    pub period: Duration,
    /// Rest after any other call, at least.
    pub delay: Duration,
    /// Bytes moved per second at most, over more than one call; 0: no limit.
    pub rate: u64,
    /// Dead bytes that only wait for a commit, in percent of live ones, from which on a commit pays.
    pub commit_percent: u32,
}

impl Default for Rules {
    /// Pieces of some milliseconds, at a tenth of what a disk writes.
    fn default() -> Rules {
        Rules {
            budget: Budget { bytes: 256 << 10, garbage_percent: 32 },
            period: Duration::from_secs(5),
            delay: Duration::from_millis(1),
            rate: 32 << 20,
            commit_percent: 5,
        }
    }
}

/// What to do after a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// When to collect again.
    pub due: Duration,
    /// Whether to commit before: space waits for it that is worth two fdatasyncs.
    pub commit: bool,
}

/// The pace of one collector, over one or many containers.
#[derive(Clone, Debug)]
pub struct Pace {
    rules: Rules,
    /// When what was moved so far is paid for, at the rate.
    paid: Duration,
}

/// Less than this never pays for a commit, in any segment.
const COMMIT_BYTES_MIN: u64 = 256 << 10;

impl Pace {
    /// Owes nothing yet.
    pub fn new(rules: Rules) -> Pace {
        Pace { rules, paid: Duration::ZERO }
    }

    /// As given.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Other rules from now on. What is owed stays owed.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// A call ran from `begun` to `ended` and did this.
    pub fn after(&mut self, begun: Duration, ended: Duration, done: &Collected) -> Next {
        let price = match self.rules.rate {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(done.moved_bytes as f64 / rate as f64),
        };
        self.paid = self.paid.max(begun) + price;
        let idle = done.moved_records == 0 && done.punched_bytes == 0;
        let rest = if idle { self.rules.period } else { self.rules.delay };
        let waiting = done.freed_by_commit_bytes;
        let pays = waiting * 100 >= done.live_bytes * u64::from(self.rules.commit_percent);
        Next { due: self.paid.max(ended + rest), commit: waiting >= COMMIT_BYTES_MIN && pays }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rules() -> Rules {
        Rules { rate: 1 << 20, delay: 5 * MS, period: 1000 * MS, ..Rules::default() }
    }

    fn moved(bytes: u64) -> Collected {
        Collected { moved_records: 1, moved_bytes: bytes, live_bytes: 100 << 20, ..Collected::default() }
    }

    #[test]
    fn over_any_time_no_more_than_the_rate_and_one_call_is_moved() {
        let mut pace = Pace::new(rules());
        let (mut now, mut total) = (7000 * MS, 0);
        let start = now;
        for call in 0..1000 {
            let bytes = call * 7919 % (256 << 10);
            let allowed = (now - start).as_secs_f64() * f64::from(1 << 20) + 1.0;
            assert!(total as f64 <= allowed, "{total} of {allowed} at {now:?}");
            total += bytes;
            let next = pace.after(now, now + 3 * MS, &moved(bytes));
            assert!(next.due >= now + 8 * MS);
            now = next.due;
        }
        // It is used, too.
        assert!(total as f64 > (now - start).as_secs_f64() * f64::from(1 << 20) * 0.9);
    }

    #[test]
    fn what_was_not_used_is_not_saved_for_a_burst() {
        let mut pace = Pace::new(rules());
        pace.after(MS, 2 * MS, &moved(1024));
        let late = Duration::from_secs(100);
        let next = pace.after(late, late + MS, &moved(512 << 10));
        assert_eq!(next.due, late + 500 * MS);
    }

    #[test]
    fn a_call_that_found_nothing_is_followed_by_a_long_rest_and_a_limitless_rate_by_the_delay() {
        let mut pace = Pace::new(rules());
        assert_eq!(pace.after(MS, 2 * MS, &Collected::default()).due, 1002 * MS);
        pace.set_rules(Rules { rate: 0, ..rules() });
        assert_eq!(pace.after(MS, 2 * MS, &moved(1 << 30)).due, 7 * MS);
    }

    #[test]
    fn a_commit_pays_when_enough_waits_for_it() {
        let mut pace = Pace::new(rules());
        let mut with = |live_bytes, freed_by_commit_bytes| {
            let found = Collected { live_bytes, freed_by_commit_bytes, ..Collected::default() };
            pace.after(MS, MS, &found).commit
        };
        assert!(with(100 << 20, 5 << 20) && !with(100 << 20, 4 << 20));
        assert!(!with(1 << 20, 200 << 10) && !with(0, 0));
    }
}
