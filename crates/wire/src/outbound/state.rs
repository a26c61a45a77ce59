//! What the sending direction keeps: its input, the encoder's context, and the count of bytes.

use pgshrink_codec::Choice;
use pgshrink_codec::stream::{Encoder, Resume};

use super::growth::Growth;
use super::wrapper::END_FRAME_SIZE_MAX;
use crate::budget::{Lease, MemoryBudget};
use crate::policy::{GivingUp, PRIMING_BYTES_MAX, Policy};

/// Where `start` stands in the message stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cursor {
    Boundary,
    /// Inside a message that goes plain; bytes left of it.
    Plain(usize),
    /// Inside a message begun in a frame; bytes left of it.
    Framed(usize),
}

/// Plain bytes on their way, and how far they have been read.
///
/// ```text
/// pending   | sent | ....group....... | seen | not read yet |
///           0    start              scan   seen         pending.len()
/// ```
/// Always `start <= pending.len()` and `start <= scan <= seen`. `scan` stands where a header begins or is to begin: behind
/// `pending.len()` while the last message read is incomplete. `last < scan` is where that message begins; it belongs to
/// the group only while `last > start`. The watch has read the messages before `seen`, once each; `scan` falls behind it where
/// smaller frames are chosen while messages wait.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) pending: Vec<u8>,
    /// First byte not sent.
    pub(super) start: usize,
    pub(super) scan: usize,
    pub(super) last: usize,
    pub(super) seen: usize,
    /// Where `start` stands in the message stream.
    pub(super) cursor: Cursor,
    /// A message other than bulk data is in the group: nothing of it may wait.
    pub(super) urgent: bool,
    pub(super) copy_both: bool,
}

/// The encoder, and what the peer knows of its stream.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) lease: Lease,
    pub(super) encoder: Option<Encoder>,
    /// The encoder's zstd window.
    pub(super) window_log: u32,
    pub(super) growth: Growth,
    /// Ack dialect: where the stream that the peer is in the middle of goes on. Its method is `announced`, while `encoder` is
    /// none or of another.
    pub(super) resume: Option<Resume>,
    /// What to send with from the next message boundary on; `None` is off.
    pub(super) choice: Option<Choice>,
    pub(super) giving_up: GivingUp,
    /// The method last announced to the peer.
    pub(super) announced: Option<u8>,
    /// Restart dialect: the next frame begins a new stream.
    pub(super) restart: bool,
    /// The context ends with the group that is being collected.
    pub(super) reset_after_group: bool,
    /// The context holds something the peer has seen.
    pub(super) primed: bool,
    /// What the frames sent so far gave may be referred to, and the peer keeps it for that: of zstd, while a frame is open.
    pub(super) peer_holds_context: bool,
    /// A frame's messages with their rows packed.
    pub(super) packed: Vec<u8>,
}

/// What O1 counts.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Plain bytes minus wire bytes so far.
    pub(super) credit: i64,
    /// Bytes that may still be spent on teaching a fresh context.
    pub(super) priming_left: i64,
    /// Small groups that could not begin a context.
    pub(super) unprimed_groups: u32,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self { credit: 0, priming_left: PRIMING_BYTES_MAX - END_FRAME_SIZE_MAX, unprimed_groups: 0 }
    }

    /// A frame was sent.
    pub(super) fn frame(&mut self, gain: i64, forced: bool) {
        self.credit += gain;
        if !forced {
            self.priming_left = (self.priming_left + gain).min(PRIMING_BYTES_MAX - END_FRAME_SIZE_MAX);
        }
    }

    /// A stream was ended for a quiet session.
    pub(super) fn frame_end(&mut self, cost: i64) {
        self.credit -= cost;
        self.priming_left =
            self.priming_left.min(PRIMING_BYTES_MAX - END_FRAME_SIZE_MAX + self.credit).max(0);
    }

    /// Whether a stream can be ended that `gain` more bytes were saved with.
    pub(super) fn can_end_after(&self, gain: i64) -> bool {
        self.credit + gain + PRIMING_BYTES_MAX >= END_FRAME_SIZE_MAX
    }
}

impl Input {
    pub(super) fn new() -> Self {
        let (pending, cursor) = (Vec::new(), Cursor::Boundary);
        Self { pending, start: 0, scan: 0, last: 0, seen: 0, cursor, urgent: false, copy_both: false }
    }

    /// Bytes not sent yet.
    pub(super) fn size(&self) -> usize {
        self.pending.len() - self.start
    }

    /// Takes back what was read of a group that was to be longer than up to `limit`: where it is cut, only the last message
    /// read may be cut, and there are others behind.
    pub(super) fn fit(&mut self, limit: usize) {
        if self.last > self.start && self.last >= limit {
            self.last = self.start;
            self.scan = match self.cursor {
                Cursor::Framed(left) => self.start + left,
                _ => self.start,
            };
        }
    }

    /// Forgets what was sent.
    pub(super) fn compact(&mut self) {
        if self.start == 0 {
            return;
        }
        self.scan = self.scan.saturating_sub(self.start);
        self.last = self.last.saturating_sub(self.start);
        self.seen = self.seen.saturating_sub(self.start);
        if self.start == self.pending.len() {
            self.pending.clear();
        } else {
            self.pending.drain(..self.start);
        }
        self.start = 0;
    }
}

impl Context {
    pub(super) fn new(choice: Option<Choice>, policy: &Policy, budget: &MemoryBudget) -> Self {
        Self {
            lease: budget.lease(),
            encoder: None,
            window_log: policy.window_log.at_start(),
            growth: Growth::new(policy),
            resume: None,
            choice,
            giving_up: GivingUp::default(),
            announced: None,
            restart: true,
            reset_after_group: false,
            primed: false,
            peer_holds_context: false,
            packed: Vec::new(),
        }
    }

    /// The peer knows the method of the frame just sent; a stream of another one is over.
    pub(super) fn name_method(&mut self, code: u8) {
        if self.announced.replace(code) != Some(code) {
            self.resume = None;
        }
    }
}
