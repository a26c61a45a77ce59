//! Samples through the real engine.
//!
//! A [`Burst`] is what one direction of a session carried for a while, with the reads as they were: where one found its source empty, a
//! session that is compressed would have flushed. [`Simulation::replay`] gives it to the [`Link`] that such a session would have had.
//!
//! A burst from the middle of a session finds an empty window, which no real session has there. So its first part only warms
//! the window up, and is not counted; a burst from the start of a session is counted from its first byte.
//! ```text
//!   bytes  | read | read | read | read | read | read |
//!          | not counted: warms up     | counted     |     WARM_SIZE or WARM_READS, at most three quarters
//! ```

use std::sync::Arc;
use std::time::Duration;

use pgshrink_codec::AlgorithmList;
use pgshrink_wire::message::{HEADER_SIZE, message, tag};
use pgshrink_wire::negotiate::Answer;
use pgshrink_wire::stats::Clock;
use pgshrink_wire::{Agreed, Dialect, Flush, Held, Link, LinkConfig, MemoryBudget, Offer, Role};

use crate::traffic::{Direction, Kind, START_SIZE, Sample, Samples};

/// Bytes that warm a window up: as many as zstd:1 looks back.
pub const WARM_SIZE: usize = 512 << 10;
/// Reads that do, where they are small. A window would hold several times as many; what the first of them would give is not
/// worth their time.
pub const WARM_READS: usize = 1500;
/// Reads behind them that are measured.
const COUNTED_READS: usize = 500;
/// Bytes behind them that are measured: many small samples say more than a few large ones.
const COUNTED_SIZE: usize = 256 << 10;
/// Bytes of a burst from the middle of a session.
pub const SIZE_MAX: usize = WARM_SIZE + COUNTED_SIZE;
/// Reads of a burst.
pub const READS_MAX: usize = WARM_READS + COUNTED_READS;
/// Most that a message begun before the burst is said to have left: it never ends within.
const LEFT_MAX: usize = 1 << 28;
/// Memory for the encoders and decoders of one replay.
const BUDGET_SIZE: u64 = 256 << 20;
/// The window that ends invite each other to; more is for streams that are longer than a burst.
const WINDOW_LOG: u32 = pgshrink_wire::policy::WINDOW_LOG_DEFAULT;

/// Consecutive bytes of one direction.
#[derive(Debug)]
pub struct Burst {
    direction: Direction,
    from_start: bool,
    bytes: Vec<u8>,
    reads: Vec<Read>,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    /// Where it ends in the bytes.
    end: u32,
    kind: Kind,
    /// The next read found nothing.
    idle: bool,
}

impl Burst {
    /// Of a session's start.
    pub fn from_start(direction: Direction) -> Self {
        Self { direction, from_start: true, bytes: Vec::new(), reads: Vec::new() }
    }

    /// From the middle: `left` bytes of a message are still to come, `streaming` if the session is in COPY BOTH. `size` bytes
    /// are expected.
    pub fn from_middle(direction: Direction, left: usize, streaming: bool, size: usize) -> Self {
        let mut bytes = Vec::with_capacity(size + 2 * HEADER_SIZE + 3);
        if streaming {
            bytes.extend(message(tag::COPY_BOTH_RESPONSE, &[0, 0, 0]));
        }
        if left > 0 {
            // The engine reads messages: one of which it sees only the rest.
            let size = left.min(LEFT_MAX) as u32 + 4;
            bytes.push(tag::COPY_DATA);
            bytes.extend_from_slice(&size.to_be_bytes());
        }
        Self { direction, from_start: false, bytes, reads: Vec::new() }
    }

    /// A read brought `bytes`. False when the burst is complete and wants no more.
    pub fn push(&mut self, bytes: &[u8], kind: Kind) -> bool {
        self.bytes.extend_from_slice(bytes);
        self.reads.push(Read { end: self.bytes.len() as u32, kind, idle: false });
        let size_max = if self.from_start { START_SIZE as usize } else { SIZE_MAX };
        self.bytes.len() < size_max && (self.from_start || self.reads.len() < READS_MAX)
    }

    /// The next read found nothing.
    pub fn idle(&mut self) {
        if let Some(last) = self.reads.last_mut() {
            last.idle = true;
        }
    }

    /// Where it goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Memory it holds, in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.reads.len() * size_of::<Read>()
    }

    /// The first read that counts.
    fn warm_reads(&self) -> usize {
        if self.from_start {
            return 0;
        }
        let full = self.reads.iter().take_while(|read| (read.end as usize) < WARM_SIZE).count();
        full.min(WARM_READS).min(self.reads.len() * WARM_READS / READS_MAX)
    }
}

/// What sessions would have agreed on, and how they would have sent.
#[derive(Debug, Clone)]
pub struct Simulation {
    gateway: Agreed,
    client: Agreed,
    config: Arc<LinkConfig>,
}

impl Simulation {
    /// A client that asks for all that `allowed` has, in its order. `config` is the gateway's; the client sends as a connector
    /// does by default. `None` where nothing is allowed.
    pub fn new(allowed: &AlgorithmList, pack_rows: bool, config: Arc<LinkConfig>) -> Option<Self> {
        let offer = Offer::new(Dialect::Ack, allowed).allow_packed_rows(pack_rows).invite_window(WINDOW_LOG);
        let Answer { agreed, ack, .. } = offer.answer(allowed, WINDOW_LOG);
        let client = Agreed::from_ack(allowed, ack?.get(HEADER_SIZE..)?).ok()??;
        Some(Self { gateway: agreed?, client, config })
    }

    /// What the sessions would be sending with.
    pub fn describe(&self) -> String {
        self.gateway.describe()
    }

    /// Sends a burst. `clock` tells the processor time of this thread.
    pub fn replay(&self, burst: &Burst, clock: Clock) -> Samples {
        let mut samples = Samples::default();
        let wire = self.sent(burst, clock, &mut samples);
        if burst.direction == Direction::ToServer {
            // The gateway does not compress this direction, it decompresses.
            samples.iter_mut().for_each(|sample| sample.cpu_ns = 0);
            self.received(&wire, clock, &mut samples);
        }
        samples
    }

    /// Runs the sending end; to the server it returns what was sent, piece by piece.
    fn sent(&self, burst: &Burst, clock: Clock, samples: &mut Samples) -> Vec<Piece> {
        let budget = MemoryBudget::new(BUDGET_SIZE);
        let mut link = match burst.direction {
            Direction::ToClient => {
                Link::new(Role::Gateway, self.gateway.clone(), self.config.clone(), budget)
            }
            Direction::ToServer => Link::new(Role::Connector, self.client.clone(), Arc::default(), budget),
        };
        let sent = (burst.direction == Direction::ToServer).then(Vec::new);
        let mut out = Out { scratch: Vec::with_capacity(self.config.limits.out_max), sent };
        let (mut pieces, mut begin) = (Vec::new(), 0);
        for Run { reads, kind, counts } in runs(burst) {
            let (began, before) = (clock(), link.stats().outbound);
            for read in &burst.reads[reads] {
                let end = read.end as usize;
                if feed(&mut link, &burst.bytes[begin..end], read.idle, &mut out).is_none() {
                    return pieces;
                }
                begin = end;
            }
            // What the last reads left is measured too; the session would have waited for more, or flushed it later.
            if begin == burst.bytes.len() && pump(&mut link, Flush::Force, &mut out).is_none() {
                return pieces;
            }
            let (took, now) = (clock().saturating_sub(began), link.stats().outbound);
            if counts {
                samples[kind as usize] += Sample {
                    raw_bytes: now.raw_bytes - before.raw_bytes,
                    wire_bytes: now.wire_bytes - before.wire_bytes,
                    cpu_ns: nanoseconds(took),
                };
            }
            if let Some(sent) = &mut out.sent {
                pieces.push(Piece { wire: std::mem::take(sent), kind, counts });
            }
        }
        pieces
    }

    /// Times the receiving end.
    fn received(&self, pieces: &[Piece], clock: Clock, samples: &mut Samples) {
        let budget = MemoryBudget::new(BUDGET_SIZE);
        let mut link = Link::new(Role::Gateway, self.gateway.clone(), self.config.clone(), budget);
        let mut out = Vec::with_capacity(self.config.limits.out_max);
        for piece in pieces {
            let began = clock();
            let mut rest = &piece.wire[..];
            while !rest.is_empty() || link.wants_output_room() {
                match link.handle_wire(rest, &mut out) {
                    Ok(used) => rest = &rest[used..],
                    Err(_) => return,
                }
                out.clear();
            }
            if piece.counts {
                samples[piece.kind as usize].cpu_ns += nanoseconds(clock().saturating_sub(began));
            }
        }
    }
}

/// What a run of reads was sent as.
struct Piece {
    wire: Vec<u8>,
    kind: Kind,
    counts: bool,
}

/// Reads of one kind in a row, which are timed together: looking at the clock costs as much as a small reply.
struct Run {
    reads: std::ops::Range<usize>,
    kind: Kind,
    counts: bool,
}

fn runs(burst: &Burst) -> Vec<Run> {
    let warm = burst.warm_reads();
    let mut runs: Vec<Run> = Vec::new();
    for (index, read) in burst.reads.iter().enumerate() {
        let counts = index >= warm;
        match runs.last_mut() {
            Some(last) if last.kind == read.kind && last.counts == counts => last.reads.end = index + 1,
            _ => runs.push(Run { reads: index..index + 1, kind: read.kind, counts }),
        }
    }
    runs
}

/// As the pump of a session does it. `None`: these bytes are no messages, and nothing more can be measured.
fn feed(link: &mut Link, bytes: &[u8], idle: bool, out: &mut Out) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let room = link.plain_room().min(rest.len());
        if room == 0 {
            return None;
        }
        link.plain_buffer().extend_from_slice(&rest[..room]);
        rest = &rest[room..];
        pump(link, Flush::No, out)?;
    }
    if idle { pump(link, Flush::Idle, out) } else { Some(()) }
}

fn pump(link: &mut Link, flush: Flush, out: &mut Out) -> Option<()> {
    loop {
        let held = link.pump(flush, &mut out.scratch).ok()?.held;
        if let Some(sent) = &mut out.sent {
            sent.extend_from_slice(&out.scratch);
        }
        out.scratch.clear();
        if held != Held::OutputFull {
            return Some(());
        }
    }
}

/// Where the engine writes to.
struct Out {
    scratch: Vec<u8>,
    /// What it wrote, if anybody wants it.
    sent: Option<Vec<u8>>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
