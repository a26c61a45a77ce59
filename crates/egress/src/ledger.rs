//! Totals by day, client and database, within limits; and what they come to.

use std::collections::BTreeMap;

use crate::day::Day;
use crate::traffic::{Direction, Kind, Line, Sample, Sum};

/// Whom lines beyond the limit are summed under.
pub const OTHER: &str = "other";
/// Longest name of a database kept, in bytes: PostgreSQL's `NAMEDATALEN` without its zero.
const DATABASE_SIZE_MAX: usize = 63;
/// Longest name of a client kept: an IPv6 address with a zone fits.
const CLIENT_SIZE_MAX: usize = 63;
/// Databases that [`OTHER`] clients are told apart by, in a day.
const OTHER_LINES_MAX: usize = 32;
/// Sampled bytes from which on a line's own samples count for more than those of its database.
const OWN_SIZE_MIN: u64 = 16 << 10;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Days, the newest.
    pub days: usize,
    /// Lines of a day, those of [`OTHER`] clients aside.
    pub lines: usize,
}

/// What a gateway keeps unless it is told otherwise.
pub const DEFAULT_LIMITS: Limits = Limits { days: 31, lines: 200 };

/// Whom a line is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// An address, `unix`, or [`OTHER`].
    pub client: String,
    /// The database.
    pub database: String,
}

impl Key {
    /// Cut to what is kept.
    pub fn new(client: &str, database: &str) -> Self {
        Self { client: clip(client, CLIENT_SIZE_MAX), database: clip(database, DATABASE_SIZE_MAX) }
    }
}

fn clip(text: &str, size_max: usize) -> String {
    let end = (0..=size_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

/// One direction, estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figure {
    /// Bytes that went through.
    pub bytes: u64,
    /// What they would have been; never more than `bytes`.
    pub compressed_bytes: u64,
    /// Processor nanoseconds that the gateway would have used.
    pub cpu_ns: u64,
    /// Of `bytes`, what was measured rather than extrapolated.
    pub sampled_bytes: u64,
}

impl Figure {
    /// Bytes that would not have been sent.
    pub fn saved_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.compressed_bytes)
    }

    fn add(&mut self, other: Figure) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.compressed_bytes = self.compressed_bytes.saturating_add(other.compressed_bytes);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.sampled_bytes = self.sampled_bytes.saturating_add(other.sampled_bytes);
    }
}

/// Both directions, estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// To the client.
    pub to_client: Figure,
    /// To the server.
    pub to_server: Figure,
}

impl Estimate {
    /// Adds another's figures.
    pub fn add(&mut self, other: &Estimate) {
        self.to_client.add(other.to_client);
        self.to_server.add(other.to_server);
    }

    /// Processor seconds of the gateway: compressing for the client, decompressing what comes from it.
    pub fn cpu_s(&self) -> f64 {
        (self.to_client.cpu_ns as f64 + self.to_server.cpu_ns as f64) / 1e9
    }

    /// Percent of all bytes that were measured; 100 without any.
    pub fn sampled_percent(&self) -> f64 {
        let bytes = self.to_client.bytes.saturating_add(self.to_server.bytes);
        let sampled = self.to_client.sampled_bytes.saturating_add(self.to_server.sampled_bytes);
        if bytes == 0 { 100.0 } else { 100.0 * sampled as f64 / bytes as f64 }
    }
}

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    limits: Limits,
    days: BTreeMap<Day, BTreeMap<Key, Line>>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(DEFAULT_LIMITS)
    }
}

impl Ledger {
    /// Without lines.
    pub fn new(limits: Limits) -> Self {
        Self { limits, days: BTreeMap::new() }
    }

    /// Other limits from now on; days that are too many go with the next [`prune`](Self::prune).
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Days with lines.
    pub fn days(&self) -> usize {
        self.days.len()
    }

    /// Lines of all days.
    pub fn len(&self) -> usize {
        self.days.values().map(BTreeMap::len).sum()
    }

    /// True without lines.
    pub fn is_empty(&self) -> bool {
        self.days.is_empty()
    }

    /// Counts something. A client that has no line yet and finds the day full is counted under [`OTHER`].
    pub fn add(&mut self, day: Day, key: &Key, line: &Line) {
        if line.is_empty() {
            return;
        }
        let lines = self.days.entry(day).or_default();
        if let Some(known) = lines.get_mut(key) {
            *known += line;
            return;
        }
        let others = lines.keys().filter(|key| key.client == OTHER).count();
        let key = if key.client != OTHER && lines.len() - others < self.limits.lines {
            key.clone()
        } else {
            let shared = Key { client: OTHER.to_owned(), database: key.database.clone() };
            let fits = lines.contains_key(&shared) || others < OTHER_LINES_MAX;
            if fits { shared } else { Key { database: OTHER.to_owned(), ..shared } }
        };
        *lines.entry(key).or_default() += line;
    }

    /// Takes a line as it stands in a file, whatever the limits are.
    pub(crate) fn insert(&mut self, day: Day, key: Key, line: Line) -> bool {
        self.days.entry(day).or_default().insert(key, line).is_none()
    }

    /// Counts everything of another ledger.
    pub fn merge(&mut self, other: &Ledger) {
        for (day, key, line) in other.lines() {
            self.add(day, key, line);
        }
    }

    /// Forgets the oldest days beyond the limit, but never `today`: a clock that is behind must not lose what is counted now.
    pub fn prune(&mut self, today: Day) {
        while self.days.len() > self.limits.days.max(1) {
            let Some(oldest) = self.days.keys().copied().find(|day| *day != today) else { return };
            self.days.remove(&oldest);
        }
    }

    /// Every line, the oldest day first.
    pub fn lines(&self) -> impl Iterator<Item = (Day, &Key, &Line)> {
        self.days.iter().flat_map(|(day, lines)| lines.iter().map(move |(key, line)| (*day, key, line)))
    }

    /// One line.
    pub fn line(&self, day: Day, key: &Key) -> Option<&Line> {
        self.days.get(&day)?.get(key)
    }

    /// What every line comes to, the newest day first and in a day the largest saving to the client first.
    pub fn estimates(&self) -> Vec<(Day, &Key, Estimate)> {
        let pools = Pools::of(self);
        let mut found: Vec<_> =
            self.lines().map(|(day, key, line)| (day, key, pools.estimate(key, line))).collect();
        found.sort_by(|a, b| {
            let order = |e: &(Day, &Key, Estimate)| (e.0, e.2.to_client.saved_bytes(), e.2.to_client.bytes);
            order(b).cmp(&order(a)).then_with(|| a.1.cmp(b.1))
        });
        found
    }
}

/// Samples of all lines, for lines that have none of their own.
struct Pools<'a> {
    by_database: BTreeMap<&'a str, Line>,
    all: Line,
}

impl<'a> Pools<'a> {
    fn of(ledger: &'a Ledger) -> Self {
        let mut pools = Self { by_database: BTreeMap::new(), all: Line::default() };
        for (_, key, line) in ledger.lines() {
            *pools.by_database.entry(key.database.as_str()).or_default() += line;
            pools.all += line;
        }
        pools
    }

    fn estimate(&self, key: &Key, line: &Line) -> Estimate {
        let figure = |direction| {
            let mut figure = Figure::default();
            for kind in Kind::ALL {
                figure.add(self.figure(key, direction, kind, line.get(direction, kind)));
            }
            figure
        };
        Estimate { to_client: figure(Direction::ToClient), to_server: figure(Direction::ToServer) }
    }

    /// What the samples stand for counts as they say; the rest by the line's own samples, to which those of its database, or of all, are
    /// added as if they were [`OWN_SIZE_MIN`] bytes.
    fn figure(&self, key: &Key, direction: Direction, kind: Kind, sum: Sum) -> Figure {
        let own = sum.sampled;
        let pool = self.pool(key, direction, kind);
        let rest = sum.bytes.saturating_sub(own.raw_bytes) as f64;
        let weight = if pool.raw_bytes > 0 { OWN_SIZE_MIN as f64 / pool.raw_bytes as f64 } else { 0.0 };
        let raw = own.raw_bytes as f64 + weight * pool.raw_bytes as f64;
        let per_byte = |own: u64, pool: u64, unknown: f64| {
            if raw > 0.0 { (own as f64 + weight * pool as f64) / raw } else { unknown }
        };
        // Without any sample no saving is claimed.
        let wire = own.wire_bytes as f64 + rest * per_byte(own.wire_bytes, pool.wire_bytes, 1.0);
        let cpu = own.cpu_ns as f64 + rest * per_byte(own.cpu_ns, pool.cpu_ns, 0.0);
        Figure {
            bytes: sum.bytes,
            compressed_bytes: (wire.round() as u64).min(sum.bytes),
            cpu_ns: cpu.round() as u64,
            sampled_bytes: sum.sampled_bytes.min(sum.bytes),
        }
    }

    fn pool(&self, key: &Key, direction: Direction, kind: Kind) -> Sample {
        let near = self.by_database.get(key.database.as_str());
        let near = near.map(|line| line.get(direction, kind).sampled).unwrap_or_default();
        if near.raw_bytes >= OWN_SIZE_MIN { near } else { self.all.get(direction, kind).sampled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        text.parse().unwrap_or_default()
    }

    fn bulk(bytes: u64, raw: u64, wire: u64) -> Line {
        let mut line = Line::default();
        *line.get_mut(Direction::ToClient, Kind::Bulk) = Sum {
            bytes,
            sampled_bytes: raw,
            sampled: Sample { raw_bytes: raw, wire_bytes: wire, cpu_ns: raw * 2 },
        };
        line
    }

    #[test]
    fn what_is_measured_counts_as_it_is_and_the_rest_alike() {
        let mut ledger = Ledger::default();
        ledger.add(day("2026-11-27"), &Key::new("10.0.0.1", "a"), &bulk(1000 << 20, 10 << 20, 2 << 20));
        let estimate = ledger.estimates()[0].2;
        assert_eq!(estimate.to_client.bytes, 1000 << 20);
        assert_eq!(estimate.to_client.compressed_bytes, 200 << 20);
        assert_eq!(estimate.to_client.cpu_ns, 2000 << 20);
        assert_eq!((estimate.sampled_percent(), estimate.to_server), (1.0, Figure::default()));
    }

    #[test]
    fn a_line_without_samples_is_like_its_database_or_like_all_or_claims_nothing() {
        let (mut ledger, today) = (Ledger::default(), day("2026-11-27"));
        ledger.add(today, &Key::new("10.0.0.9", "a"), &bulk(1 << 20, 0, 0));
        assert_eq!(ledger.estimates()[0].2.to_client.saved_bytes(), 0);
        ledger.add(today, &Key::new("10.0.0.1", "b"), &bulk(1 << 20, 1 << 20, 512 << 10));
        let of = |ledger: &Ledger, client: &str| {
            let found = ledger.estimates();
            found.iter().find(|(_, key, _)| key.client == client).map(|e| e.2.to_client.compressed_bytes)
        };
        assert_eq!(of(&ledger, "10.0.0.9"), Some(512 << 10));
        ledger.add(today, &Key::new("10.0.0.2", "a"), &bulk(1 << 20, 1 << 20, 256 << 10));
        assert_eq!(of(&ledger, "10.0.0.9"), Some(256 << 10));
    }

    #[test]
    fn clients_beyond_the_limit_are_summed_and_nothing_is_lost() {
        let mut ledger = Ledger::new(Limits { days: 2, lines: 3 });
        let today = day("2026-11-27");
        for client in 0..1000 {
            let key =
                Key::new(&format!("10.0.{}.{}", client / 256, client % 256), &format!("d{}", client % 50));
            ledger.add(today, &key, &bulk(10, 0, 0));
        }
        assert!(ledger.len() <= 3 + OTHER_LINES_MAX + 1, "{}", ledger.len());
        let bytes: u64 = ledger.estimates().iter().map(|(_, _, e)| e.to_client.bytes).sum();
        assert_eq!(bytes, 10_000);
        // A client that has a line keeps it.
        ledger.add(today, &Key::new("10.0.0.0", "d0"), &bulk(5, 0, 0));
        assert_eq!(
            ledger
                .lines()
                .find(|(_, key, _)| key.client == "10.0.0.0")
                .map(|l| l.2.get(Direction::ToClient, Kind::Bulk).bytes),
            Some(15)
        );
    }

    #[test]
    fn the_oldest_days_go_but_never_today() {
        let mut ledger = Ledger::new(Limits { days: 2, lines: 3 });
        for text in ["2026-11-25", "2026-11-26", "2026-11-27"] {
            ledger.add(day(text), &Key::new("a", "b"), &bulk(1, 0, 0));
        }
        ledger.prune(day("2026-11-27"));
        let days = |ledger: &Ledger| ledger.lines().map(|l| l.0.to_string()).collect::<Vec<_>>();
        assert_eq!(days(&ledger), ["2026-11-26", "2026-11-27"]);
        // The clock has gone back.
        ledger.add(day("1970-01-01"), &Key::new("a", "b"), &bulk(1, 0, 0));
        ledger.prune(day("1970-01-01"));
        assert_eq!(days(&ledger), ["1970-01-01", "2026-11-27"]);
    }

    #[test]
    fn names_are_cut_between_characters() {
        let key = Key::new("10.0.0.1", &"ä".repeat(40));
        assert_eq!(key.database, "ä".repeat(31));
    }
}
