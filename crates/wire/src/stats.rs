//! Counters of one session, per direction.

use std::time::Duration;

/// What one direction has carried since the session began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Bytes of PostgreSQL messages on the plain side.
    pub raw_bytes: u64,
    /// Bytes on the wire side, wrappers and method messages included.
    pub wire_bytes: u64,
    /// Compressed frames (wrappers).
    pub frames: u64,
    /// Plain bytes that travelled inside frames.
    pub framed_raw_bytes: u64,
    /// Groups that were tried and sent plain because they did not shrink.
    pub plain_fallbacks: u64,
    /// Groups that were not tried: too small, incompressible at a glance, given up, switched off, or no memory.
    pub untried_groups: u64,
    /// Nanoseconds spent in the codec, by the clock of [`Link::with_clock`](crate::Link::with_clock); small frames are sampled.
    pub codec_ns: u64,
}

impl DirectionStats {
    /// A frame was sent.
    pub(crate) fn add_frame(&mut self, raw: usize, wire: usize) {
        self.raw_bytes += raw as u64;
        self.framed_raw_bytes += raw as u64;
        self.wire_bytes += wire as u64;
        self.frames += 1;
    }

    /// Plain bytes per wire byte; 1.0 while nothing has moved.
    pub fn ratio(&self) -> f64 {
        if self.wire_bytes == 0 { 1.0 } else { self.raw_bytes as f64 / self.wire_bytes as f64 }
    }
}

/// Both directions of a session: `outbound` is what this end compresses, `inbound` what it decompresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Plain side to wire side.
    pub outbound: DirectionStats,
    /// Wire side to plain side.
    pub inbound: DirectionStats,
}

/// Times the codec. Of small frames only one in [`SAMPLED`] is timed and counted for all: reading the clock twice costs as much as
/// such a frame.
pub(crate) struct CodecTimer {
    began: Option<(Clock, Duration)>,
    weight: u64,
}

/// The time since some moment in the past, as the shell measures it.
pub type Clock = fn() -> Duration;

const SAMPLED: u64 = 16;
const SAMPLED_SIZE_MAX: usize = 1024;

impl CodecTimer {
    /// Before the codec gets `size` bytes as frame number `frame`. Nothing is timed without a clock.
    pub(crate) fn start(clock: Option<Clock>, size: usize, frame: u64) -> Self {
        let small = size < SAMPLED_SIZE_MAX;
        let timed = !small || frame.is_multiple_of(SAMPLED);
        let began = clock.filter(|_| timed).map(|clock| (clock, clock()));
        Self { began, weight: if small { SAMPLED } else { 1 } }
    }

    /// Nanoseconds to count.
    pub(crate) fn stop(&self) -> u64 {
        let nanoseconds = |(clock, began): (Clock, Duration)| clock().saturating_sub(began).as_nanos() as u64;
        self.began.map_or(0, |began| nanoseconds(began) * self.weight)
    }
}
