//! Kinds of traffic, and what is counted of each.
//!
//! What compression makes of traffic hangs on what it is: a session's first replies find an empty window, later ones repeat what
//! was said before, and bulk fills frames. Samples of one say nothing of the others, so each is counted apart. The kind
//! follows from what a gateway sees of every read, whether it is sampled or not.

use std::ops::{AddAssign, Sub};

/// Bytes of a direction that count as its session's start.
pub const START_SIZE: u64 = 64 << 10;
/// A read of so many bytes is bulk; PostgreSQL writes 8 KiB at a time, and a little less through TLS.
pub const BULK_SIZE_MIN: usize = 4 << 10;

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the server: results, COPY TO.
    ToClient = 0,
    /// To the server: queries, COPY FROM.
    ToServer = 1,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ToClient, Self::ToServer];

    /// In the file and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToClient => "to_client",
            Self::ToServer => "to_server",
        }
    }
}

/// What traffic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The first [`START_SIZE`] bytes of a session's direction.
    Start = 0,
    /// Small messages: short results, statements.
    Replies = 1,
    /// Large results and COPY.
    Bulk = 2,
    /// Streaming replication.
    Replication = 3,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Start, Self::Replies, Self::Bulk, Self::Replication];

    /// In the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Replies => "replies",
            Self::Bulk => "bulk",
            Self::Replication => "replication",
        }
    }

    /// Of a read of `size` bytes behind `seen` others of its direction; `streaming`: in COPY BOTH.
    #[inline]
    pub fn of(size: usize, seen: u64, streaming: bool) -> Self {
        if streaming {
            Self::Replication
        } else if seen < START_SIZE {
            Self::Start
        } else if size >= BULK_SIZE_MIN {
            Self::Bulk
        } else {
            Self::Replies
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Plain bytes.
    pub raw_bytes: u64,
    /// What the engine made of them.
    pub wire_bytes: u64,
    /// Processor time of the gateway for them, in nanoseconds.
    pub cpu_ns: u64,
}

impl Sample {
    /// The same for `bytes` plain bytes; nothing is measured of nothing.
    #[must_use]
    pub fn scaled_to(self, bytes: u64) -> Self {
        if self.raw_bytes == 0 {
            return Self::default();
        }
        let scale = |value: u64| (value as f64 * bytes as f64 / self.raw_bytes as f64).round() as u64;
        Self { raw_bytes: bytes, wire_bytes: scale(self.wire_bytes), cpu_ns: scale(self.cpu_ns) }
    }
}

impl AddAssign for Sample {
    fn add_assign(&mut self, other: Self) {
        self.raw_bytes = self.raw_bytes.saturating_add(other.raw_bytes);
        self.wire_bytes = self.wire_bytes.saturating_add(other.wire_bytes);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
    }
}

impl Sub for Sum {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            sampled_bytes: self.sampled_bytes.saturating_sub(other.sampled_bytes),
            sampled: self.sampled - other.sampled,
        }
    }
}

impl Sub for Sample {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            raw_bytes: self.raw_bytes.saturating_sub(other.raw_bytes),
            wire_bytes: self.wire_bytes.saturating_sub(other.wire_bytes),
            cpu_ns: self.cpu_ns.saturating_sub(other.cpu_ns),
        }
    }
}

/// One kind in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Bytes that went through.
    pub bytes: u64,
    /// Of these, what was measured.
    pub sampled_bytes: u64,
    /// What the samples stand for. A sample stands for all bytes of its session since the sample before it, so that a stretch of
    /// which much was measured does not count for more than another.
    pub sampled: Sample,
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sampled_bytes = self.sampled_bytes.saturating_add(other.sampled_bytes);
        self.sampled += other.sampled;
    }
}

/// What a replay measured, by [`Kind`].
pub type Samples = [Sample; Kind::ALL.len()];

/// All that is counted of one client, database and day, by [`Direction`] and [`Kind`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Line {
    sums: [[Sum; Kind::ALL.len()]; Direction::ALL.len()],
}

impl Line {
    /// One kind in one direction.
    pub fn get(&self, direction: Direction, kind: Kind) -> Sum {
        self.sums[direction as usize][kind as usize]
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, direction: Direction, kind: Kind) -> &mut Sum {
        &mut self.sums[direction as usize][kind as usize]
    }

    /// True while nothing is counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign<&Line> for Line {
    fn add_assign(&mut self, other: &Line) {
        for (mine, theirs) in self.sums.iter_mut().flatten().zip(other.sums.iter().flatten()) {
            *mine += *theirs;
        }
    }
}
