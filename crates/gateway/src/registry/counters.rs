//! Counters: one writer per session, any number of readers.

use std::sync::atomic::{AtomicU64, Ordering};

use pgshrink_wire::DirectionStats;

use super::events::Label;

/// One direction of one session.
#[derive(Debug, Default)]
pub struct Direction {
    raw_bytes: AtomicU64,
    wire_bytes: AtomicU64,
    frames: AtomicU64,
    framed_raw_bytes: AtomicU64,
    plain_fallbacks: AtomicU64,
    untried_groups: AtomicU64,
    codec_ns: AtomicU64,
}

impl Direction {
    /// Bytes moved unchanged. There is one writer, so no read-modify-write instruction is needed.
    #[inline]
    pub(crate) fn moved(&self, bytes: usize) {
        for counter in [&self.raw_bytes, &self.wire_bytes] {
            counter.store(counter.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
        }
    }

    /// Takes over a link's counters.
    pub(crate) fn store(&self, stats: &DirectionStats) {
        for (counter, value) in [
            (&self.raw_bytes, stats.raw_bytes),
            (&self.wire_bytes, stats.wire_bytes),
            (&self.frames, stats.frames),
            (&self.framed_raw_bytes, stats.framed_raw_bytes),
            (&self.plain_fallbacks, stats.plain_fallbacks),
            (&self.untried_groups, stats.untried_groups),
            (&self.codec_ns, stats.codec_ns),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }

    /// As it stands.
    pub fn snapshot(&self) -> DirectionTotals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DirectionTotals {
            raw_bytes: get(&self.raw_bytes),
            wire_bytes: get(&self.wire_bytes),
            frames: get(&self.frames),
            framed_raw_bytes: get(&self.framed_raw_bytes),
            plain_fallbacks: get(&self.plain_fallbacks),
            untried_groups: get(&self.untried_groups),
            codec_ns: get(&self.codec_ns),
        }
    }
}

/// A direction's counters at one moment; `raw` is the plain protocol, `wire` what travelled between the two ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Bytes of the plain protocol.
    pub raw_bytes: u64,
    /// Bytes between gateway and client, or connector and gateway.
    pub wire_bytes: u64,
    /// Compressed frames.
    pub frames: u64,
    /// Plain bytes that travelled in frames.
    pub framed_raw_bytes: u64,
    /// Groups tried and sent plain.
    pub plain_fallbacks: u64,
    /// Groups not tried.
    pub untried_groups: u64,
    /// Nanoseconds in the codec.
    pub codec_ns: u64,
}

impl DirectionTotals {
    /// Plain bytes per wire byte; 1 while nothing has moved.
    pub fn ratio(&self) -> f64 {
        if self.wire_bytes == 0 { 1.0 } else { self.raw_bytes as f64 / self.wire_bytes as f64 }
    }

    /// Adds another's sums.
    pub fn add(&mut self, other: DirectionTotals) {
        self.raw_bytes += other.raw_bytes;
        self.wire_bytes += other.wire_bytes;
        self.frames += other.frames;
        self.framed_raw_bytes += other.framed_raw_bytes;
        self.plain_fallbacks += other.plain_fallbacks;
        self.untried_groups += other.untried_groups;
        self.codec_ns += other.codec_ns;
    }
}

/// Everything one session counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// Client to server.
    pub to_server: Direction,
    /// Server to client.
    pub to_client: Direction,
    queries: AtomicU64,
}

impl Counters {
    /// As they stand.
    pub fn snapshot(&self) -> Totals {
        Totals {
            to_server: self.to_server.snapshot(),
            to_client: self.to_client.snapshot(),
            queries: self.queries(),
            ..Totals::default()
        }
    }

    /// Queries answered (ReadyForQuery messages).
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    pub(crate) fn set_queries(&self, queries: u64) {
        self.queries.store(queries, Ordering::Relaxed);
    }
}

/// What many sessions have done together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Client to server.
    pub to_server: DirectionTotals,
    /// Server to client.
    pub to_client: DirectionTotals,
    /// Queries answered.
    pub queries: u64,
    /// Sessions that live and are past authentication.
    pub live: u64,
    /// Sessions that ended after authentication.
    pub ended: u64,
    /// Sessions, living and ended, by dialect: ack, restart, plain.
    pub by_dialect: [u64; 3],
    /// Attempts to reach the server that failed.
    pub connect_failures: u64,
    /// What this end sent, by algorithm.
    pub sent_by: SentBy,
}

impl Totals {
    /// Adds others' sums.
    pub fn add(&mut self, other: &Totals) {
        self.to_server.add(other.to_server);
        self.to_client.add(other.to_client);
        self.queries += other.queries;
        self.live += other.live;
        self.ended += other.ended;
        for (mine, theirs) in self.by_dialect.iter_mut().zip(other.by_dialect) {
            *mine += theirs;
        }
        self.connect_failures += other.connect_failures;
        self.sent_by.add(&other.sent_by);
    }
}

/// What this end sends with, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Nothing, or switched off.
    Plain,
    /// zstd at any level.
    Zstd,
    /// lz4 at any level.
    Lz4,
    /// zlib at any level.
    Zlib,
}

impl Sending {
    /// From `Link::compression`: `off`, or an algorithm and its level.
    pub fn of(compression: &str) -> Self {
        let name = compression.split(':').next().unwrap_or_default();
        Self::ALL.iter().copied().find(|s| s.name() == name).unwrap_or(Self::Plain)
    }
}

impl Label for Sending {
    const ALL: &'static [Self] = &[Self::Plain, Self::Zstd, Self::Lz4, Self::Zlib];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "none",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Zlib => "zlib",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Raw and wire bytes sent, by what they were sent with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentBy {
    bytes: [(u64, u64); Sending::ALL.len()],
}

impl SentBy {
    /// Raw and wire bytes.
    pub fn get(&self, sending: Sending) -> (u64, u64) {
        self.bytes[sending.index()]
    }

    /// What `sent` has beyond the sum so far went out with `sending`.
    pub(super) fn advance(&mut self, sent: &DirectionTotals, sending: Sending) {
        let (raw, wire) = self.bytes.iter().fold((0, 0), |sum, b| (sum.0 + b.0, sum.1 + b.1));
        let cell = &mut self.bytes[sending.index()];
        cell.0 += sent.raw_bytes.saturating_sub(raw);
        cell.1 += sent.wire_bytes.saturating_sub(wire);
    }

    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.bytes.iter_mut().zip(other.bytes) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
    }
}
