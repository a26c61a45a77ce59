//! What sessions have counted, by day. One writer for each counter; the book looks at them once a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use pgshrink_egress::{Day, Direction, Key, Kind, Ledger, Limits, Line, Samples, Sum};

use super::lock;

/// Bytes of each kind.
pub(super) type ByKind = [u64; Kind::ALL.len()];

/// Counters of one session.
#[derive(Debug)]
pub(super) struct Tally {
    key: Key,
    bytes: [[AtomicU64; Kind::ALL.len()]; Direction::ALL.len()],
    /// By the sampler, now and then.
    sampled: Mutex<[[Sum; Kind::ALL.len()]; Direction::ALL.len()]>,
}

impl Tally {
    pub(super) fn new(client: &str, database: &str) -> Self {
        Self { key: Key::new(client, database), bytes: Default::default(), sampled: Mutex::default() }
    }

    /// A read of `bytes`. The session alone writes, so no read-modify-write instruction is needed.
    #[inline]
    pub(super) fn count(&self, direction: Direction, kind: Kind, bytes: usize) {
        let counter = &self.bytes[direction as usize][kind as usize];
        counter.store(counter.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
    }

    /// Samples, and how many bytes of each kind they stand for.
    pub(super) fn add_samples(&self, direction: Direction, samples: &Samples, stand_for: &ByKind) {
        let mut sampled = lock(&self.sampled);
        let sums = sampled[direction as usize].iter_mut();
        for (sum, (sample, stands_for)) in sums.zip(samples.iter().zip(stand_for)) {
            let stands_for = sample.scaled_to((*stands_for).max(sample.raw_bytes));
            *sum += Sum { bytes: 0, sampled_bytes: sample.raw_bytes, sampled: stands_for };
        }
    }

    fn line(&self) -> Line {
        let (mut line, sampled) = (Line::default(), *lock(&self.sampled));
        for direction in Direction::ALL {
            for kind in Kind::ALL {
                let sum = line.get_mut(direction, kind);
                *sum = sampled[direction as usize][kind as usize];
                sum.bytes = self.bytes[direction as usize][kind as usize].load(Ordering::Relaxed);
            }
        }
        line
    }
}

/// Totals, and the sessions that go on adding to them.
pub(super) struct Book {
    days: Ledger,
    /// All under [`Day::default`].
    since_start: Ledger,
    live: Vec<Followed>,
    pub(super) write_failures: u64,
    pub(super) written: Option<SystemTime>,
}

struct Followed {
    tally: Arc<Tally>,
    /// What of it is in the ledger.
    counted: Line,
}

impl Book {
    pub(super) fn new(days: Ledger, limits: Limits) -> Self {
        let since_start = Ledger::new(limits);
        Self { days, since_start, live: Vec::new(), write_failures: 0, written: None }
    }

    pub(super) fn days(&self) -> &Ledger {
        &self.days
    }

    pub(super) fn since_start(&self) -> &Ledger {
        &self.since_start
    }

    /// Counts what has come since the last look for the day that is `now`. A clock that goes back counts for the day it says.
    pub(super) fn collect(&mut self, arrivals: Vec<Arc<Tally>>, now: SystemTime) {
        let today = day_of(now);
        self.live.extend(arrivals.into_iter().map(|tally| Followed { tally, counted: Line::default() }));
        let Self { days, since_start, live, .. } = self;
        live.retain_mut(|followed| {
            // Before it is read: what has no other owner counts no more.
            let goes_on = Arc::strong_count(&followed.tally) > 1;
            let line = followed.tally.line();
            let new = difference(&line, &followed.counted);
            days.add(today, &followed.tally.key, &new);
            since_start.add(Day::default(), &followed.tally.key, &new);
            followed.counted = line;
            goes_on
        });
        days.prune(today);
    }

    /// Other days from now on: those of a file, or none. `keeps`: what was counted goes into them.
    pub(super) fn replace(&mut self, days: Option<Ledger>, keeps: bool) {
        let Some(mut days) = days else { return };
        if keeps {
            days.merge(&self.days);
        }
        self.days = days;
    }

    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.days.set_limits(limits);
        self.since_start.set_limits(limits);
    }
}

/// Moments before 1970 count as its first day.
fn day_of(time: SystemTime) -> Day {
    Day::of(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
}

fn difference(now: &Line, before: &Line) -> Line {
    let mut new = Line::default();
    for direction in Direction::ALL {
        for kind in Kind::ALL {
            *new.get_mut(direction, kind) = now.get(direction, kind) - before.get(direction, kind);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_egress::Sample;
    use std::time::Duration;

    const LIMITS: Limits = Limits { days: 3, lines: 2 };

    fn at(day: &str, seconds: u64) -> SystemTime {
        let mut time = SystemTime::UNIX_EPOCH;
        while day_of(time).to_string() != day {
            time += Duration::from_secs(86_400);
        }
        time + Duration::from_secs(seconds)
    }

    fn bytes(book: &Book) -> Vec<(String, String, u64)> {
        let of = |line: &Line| Kind::ALL.iter().map(|kind| line.get(Direction::ToClient, *kind).bytes).sum();
        book.days().lines().map(|(day, key, line)| (day.to_string(), key.client.clone(), of(line))).collect()
    }

    #[test]
    fn a_session_over_midnight_counts_for_both_days_and_a_clock_that_goes_back_for_the_day_it_says() {
        let mut book = Book::new(Ledger::new(LIMITS), LIMITS);
        let tally = Arc::new(Tally::new("10.0.0.1", "app"));
        tally.count(Direction::ToClient, Kind::Start, 100);
        book.collect(vec![tally.clone()], at("2026-11-27", 86_399));
        tally.count(Direction::ToClient, Kind::Bulk, 30);
        book.collect(Vec::new(), at("2026-11-28", 0));
        tally.count(Direction::ToClient, Kind::Bulk, 5);
        book.collect(Vec::new(), at("2026-11-27", 86_398));
        let expected = [("2026-11-27", 105), ("2026-11-28", 30)];
        assert_eq!(bytes(&book), expected.map(|(day, n)| (day.into(), "10.0.0.1".into(), n)));
    }

    #[test]
    fn what_a_session_counted_last_is_kept_and_samples_that_come_later_too() {
        let mut book = Book::new(Ledger::new(LIMITS), LIMITS);
        let tally = Arc::new(Tally::new("10.0.0.1", "app"));
        let sampler = tally.clone();
        let now = at("2026-11-27", 0);
        book.collect(vec![tally.clone()], now);
        tally.count(Direction::ToClient, Kind::Bulk, 7);
        drop(tally);
        book.collect(Vec::new(), now);
        let mut samples = Samples::default();
        samples[Kind::Bulk as usize] = Sample { raw_bytes: 7, wire_bytes: 3, cpu_ns: 1 };
        sampler.add_samples(Direction::ToClient, &samples, &[0; Kind::ALL.len()]);
        drop(sampler);
        book.collect(Vec::new(), now);
        assert_eq!((bytes(&book)[0].2, book.live.len()), (7, 0));
        assert_eq!(book.days().estimates()[0].2.to_client.compressed_bytes, 3);
    }

    #[test]
    fn a_sample_stands_for_what_came_since_the_one_before_it() {
        let mut book = Book::new(Ledger::new(LIMITS), LIMITS);
        let tally = Arc::new(Tally::new("10.0.0.1", "app"));
        tally.count(Direction::ToClient, Kind::Bulk, 11_000_000);
        for (wire_bytes, stands_for) in [(100, 1_000_000), (900, 9_000_000)] {
            let mut samples = Samples::default();
            samples[Kind::Bulk as usize] = Sample { raw_bytes: 1000, wire_bytes, cpu_ns: 1 };
            let mut by_kind = ByKind::default();
            by_kind[Kind::Bulk as usize] = stands_for;
            tally.add_samples(Direction::ToClient, &samples, &by_kind);
        }
        book.collect(vec![tally], at("2026-11-27", 0));
        let figure = book.days().estimates()[0].2.to_client;
        // 100,000 and 8,100,000 bytes of ten millions; the eleventh is like them.
        assert_eq!((figure.compressed_bytes, figure.sampled_bytes), (9_020_000, 2000));
    }

    #[test]
    fn another_file_brings_its_days_and_keeps_what_had_no_file() {
        let mut book = Book::new(Ledger::new(LIMITS), LIMITS);
        let tally = Arc::new(Tally::new("10.0.0.1", "app"));
        tally.count(Direction::ToClient, Kind::Bulk, 7);
        book.collect(vec![tally.clone()], at("2026-11-27", 0));
        let file = book.days().clone();
        book.replace(Some(file.clone()), true);
        assert_eq!(bytes(&book)[0].2, 14);
        book.replace(Some(file), false);
        assert_eq!(bytes(&book)[0].2, 7);
        tally.count(Direction::ToClient, Kind::Bulk, 1);
        book.collect(Vec::new(), at("2026-11-27", 0));
        assert_eq!(bytes(&book)[0].2, 8, "what the session had counted before is not counted again");
    }
}
