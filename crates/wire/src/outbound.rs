//! One direction of a link: plain messages in, frames and plain messages out.
//!
//! Owns grouping, the decision to compress, the encoder and its undoing. Knows no socket and no clock: the caller
//! says with [`Flush`] whether its source may have more.
//!
//! Invariants
//! * O1 **Never more than plain**, but for a constant: at every message boundary wire bytes are at most plain bytes +
//!   [`PRIMING_BYTES_MAX`](crate::policy::PRIMING_BYTES_MAX). A frame is sent only when it is shorter than what it carries, everything it needs beside it
//!   counted, with two exceptions. The first small frame of a context may be longer, because the next ones profit from
//!   what it taught the peer: such losses together stay within the constant until gains have paid them back, and leave of it what
//!   ending the stream takes when the session is quiet. And the
//!   rest of a message begun in a frame, which no dialect can finish plain: it is begun only when the bytes
//!   saved so far (`credit`) cover the worst case of the rest.
//! * O2 A frame holds whole messages, or a message's parts in consecutive frames; a plain message never stands inside
//!   one begun in a frame, and a message begun plain is finished plain.
//! * O3 A group that does not pay leaves no trace at the peer: the encoder drops what it saw (restart byte, an empty
//!   last block for zstd, nothing at all for lz4 and byte-aligned deflate; see `pgshrink_codec::stream`).
//! * O4 Nothing whole is held back: bytes wait only while the last message is incomplete, rows of a bulk transfer at
//!   most for the caller's hold time, a message longer than a frame until the next frame is full.
//!
//! Formats: `formats/wire.md`.

mod group;
mod growth;
mod state;
mod wrapper;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use pgshrink_codec::stream::{
    Encoder, EncoderOptions, LZ4_EMPTY_BLOCK, ZLIB_EMPTY_FLUSH, ZLIB_STREAM_BEGIN, ZSTD_FRAME_END,
};
use pgshrink_codec::{Algorithm, Choice};

use self::group::Group;
use self::growth::{Due, Growth};
use self::state::{Context, Cursor, Input, Ledger};
use self::wrapper::{END_FRAME_SIZE_MAX, close_wrapper, open_wrapper};
use crate::budget::MemoryBudget;
use crate::error::Error;
use crate::link::{Flush, Held, LinkConfig};
use crate::negotiate::{Agreed, Dialect};
use crate::policy::{
    ContextMode, GivingUp, PRIMING_AFTER_GROUPS, STREAM_START_BOUND, WINDOW_LOG_AUTO_MAX,
    looks_incompressible, overhead_bound,
};
use crate::rows;
use crate::stats::{Clock, CodecTimer, DirectionStats};
use crate::watch::{Event, Sender, WATCHED_SIZE_MAX, Watch};

/// Raw bytes in a frame from which on the encoder's memory is looked at.
const MEASURED_SIZE_MIN: usize = 512;
/// Notices that wait for a message boundary, and their bytes.
const INJECTED_MAX: usize = 8;
const INJECTED_SIZE_MAX: usize = 4 << 10;
/// Raw bytes in a frame from which on rows are packed: a few rows would not pay for their marker.
const PACKED_SIZE_MIN: usize = 256;

#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) watch: Watch,
    agreed: Agreed,
    config: Arc<LinkConfig>,
    input: Input,
    context: Context,
    ledger: Ledger,
    /// Notices of this end's own, for the next message boundary; bounded, see [`Outbound::inject`].
    injected: VecDeque<Vec<u8>>,
    pub(crate) events: Vec<Event>,
    /// The last message read confirms a change: nothing behind it goes before the link has answered.
    interrupts: bool,
    pub(crate) stats: DirectionStats,
    pub(crate) clock: Option<Clock>,
}

impl Outbound {
    pub(crate) fn new(
        sender: Sender,
        agreed: Agreed,
        config: Arc<LinkConfig>,
        budget: &MemoryBudget,
    ) -> Self {
        Self {
            watch: Watch::new(sender),
            input: Input::new(),
            context: Context::new(agreed.send().first().copied(), &config.policy, budget),
            ledger: Ledger::new(),
            agreed,
            config,
            injected: VecDeque::new(),
            events: Vec::new(),
            interrupts: false,
            stats: DirectionStats::default(),
            clock: None,
        }
    }

    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.input.pending
    }

    pub(crate) fn room(&self) -> usize {
        // A whole frame must fit with the start of what follows it, or nothing could ever go.
        let least = self.config.policy.frame_size + WATCHED_SIZE_MAX;
        self.config.limits.pending_max.max(least).saturating_sub(self.input.size())
    }

    pub(crate) fn at_boundary(&self) -> bool {
        self.input.cursor == Cursor::Boundary
    }

    pub(crate) fn choice(&self) -> Option<Choice> {
        self.context.choice
    }

    pub(crate) fn set_choice(&mut self, choice: Option<Choice>) {
        if choice != self.context.choice {
            self.context.choice = choice;
            self.context.giving_up = GivingUp::default();
        }
    }

    pub(crate) fn set_copy_both(&mut self, on: bool) {
        self.input.copy_both = on;
    }

    /// Puts a notice at the next message boundary. It is dropped where the same text waits already, and where too much waits:
    /// a client that does not read may cause any number of them.
    pub(crate) fn inject(&mut self, notice: Vec<u8>) {
        let bytes: usize = self.injected.iter().map(Vec::len).sum();
        let fits = self.injected.len() < INJECTED_MAX && bytes + notice.len() <= INJECTED_SIZE_MAX;
        if fits && !self.injected.contains(&notice) {
            self.injected.push_back(notice);
        }
    }

    /// The transaction ended on the other direction.
    pub(crate) fn end_transaction(&mut self) {
        if self.config.policy.context == ContextMode::PerTransaction {
            match self.input.cursor {
                Cursor::Boundary => self.drop_context(),
                _ => self.context.reset_after_group = true,
            }
        }
    }

    /// Gives back the encoder and the buffers; the stream goes on when there is something to send. What goes into `out` lets the
    /// peer give back its window as well.
    pub(crate) fn release_idle(&mut self, out: &mut Vec<u8>) {
        if self.input.cursor == Cursor::Boundary {
            if let Some(encoder) = self.context.encoder.take() {
                let code = self.agreed.code_of_algorithm(encoder.choice().algorithm);
                match self.agreed.dialect() {
                    Dialect::Restart => self.context.restart = true,
                    Dialect::Ack if self.context.announced == code => {
                        self.context.resume = Some(encoder.into_resume());
                    }
                    Dialect::Ack => {}
                }
                let _ = self.context.lease.resize(0);
            }
            self.end_frame(out);
        }
        self.input.compact();
        self.input.pending.shrink_to_fit();
        self.context.packed = Vec::new();
    }

    /// A frame without content: what follows refers to nothing before, and the peer needs to keep nothing.
    fn end_frame(&mut self, out: &mut Vec<u8>) {
        let Some(code) = self.context.announced else { return };
        if !self.context.peer_holds_context
            || !self.agreed.takes_frame_ends()
            || !self.ledger.can_end_after(0)
        {
            return;
        }
        let dialect = self.agreed.dialect();
        let (content, new_stream): (&[u8], bool) = match (self.agreed.send_algorithm_of_code(code), dialect) {
            (Some(Algorithm::Zstd), _) => (&ZSTD_FRAME_END, false),
            (Some(Algorithm::Zlib), Dialect::Ack) => (&ZLIB_EMPTY_FLUSH, false),
            (Some(Algorithm::Zlib), Dialect::Restart) => (&ZLIB_STREAM_BEGIN, true),
            (Some(Algorithm::Lz4), Dialect::Ack) => (&LZ4_EMPTY_BLOCK, false),
            // Whether other readers of the dialect take an empty block is not known.
            _ => return,
        };
        let base = out.len();
        let wrapper = open_wrapper(dialect, code, Some(code), new_stream, out);
        out.extend_from_slice(content);
        close_wrapper(wrapper, out);
        self.context.peer_holds_context = false;
        if let Some(resume) = &mut self.context.resume {
            resume.frame_ended();
        }
        let cost = out.len() - base;
        debug_assert!(cost as i64 <= END_FRAME_SIZE_MAX);
        self.ledger.frame_end(cost as i64);
        self.stats.wire_bytes += cost as u64;
        self.stats.frames += 1;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.input.pending.capacity() + self.context.packed.capacity() + self.context.lease.bytes() as usize
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.context.giving_up.is_given_up()
    }

    /// `None`: it stopped behind a confirmed change, and is to be called again when the events are handled.
    pub(crate) fn pump(&mut self, flush: Flush, out: &mut Vec<u8>) -> Result<Option<Held>, Error> {
        loop {
            if out.len() >= self.config.limits.out_max {
                return Ok(Some(Held::OutputFull));
            }
            if self.input.cursor == Cursor::Boundary {
                if self.input.start == self.input.seen && std::mem::take(&mut self.interrupts) {
                    return Ok(None);
                }
                if !self.put_injected(out) {
                    continue;
                }
            }
            if self.input.start == self.input.pending.len() {
                self.input.compact();
                return Ok(Some(Held::Nothing));
            }
            if let Cursor::Plain(left) = self.input.cursor {
                self.copy_plain(left, out);
                continue;
            }
            match self.next_group(flush)? {
                Group::Wait(held) => {
                    self.input.compact();
                    return Ok(Some(held));
                }
                Group::Plain(total) => self.input.cursor = Cursor::Plain(total),
                Group::Ready { end, tail } => self.emit(end, tail, out)?,
            }
        }
    }

    /// False when the output is full before all are in it.
    fn put_injected(&mut self, out: &mut Vec<u8>) -> bool {
        while let Some(message) = self.injected.pop_front() {
            self.stats.raw_bytes += message.len() as u64;
            self.stats.wire_bytes += message.len() as u64;
            out.extend_from_slice(&message);
            if out.len() >= self.config.limits.out_max {
                return self.injected.is_empty();
            }
        }
        true
    }

    fn copy_plain(&mut self, left: usize, out: &mut Vec<u8>) {
        let n = left.min(self.input.pending.len() - self.input.start);
        out.extend_from_slice(&self.input.pending[self.input.start..self.input.start + n]);
        self.input.start += n;
        self.stats.raw_bytes += n as u64;
        self.stats.wire_bytes += n as u64;
        self.input.cursor = if left == n { Cursor::Boundary } else { Cursor::Plain(left - n) };
    }

    fn emit(&mut self, end: usize, tail: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let all = self.input.start..end;
        let must = match self.input.cursor {
            Cursor::Framed(left) => left.min(all.len()),
            _ => 0,
        };
        if must == 0 {
            if !self.worth_a_try(all.clone())? {
                self.stats.untried_groups += 1;
                self.input.cursor = Cursor::Plain(all.len() + tail);
            } else if !self.try_frame(all.clone(), tail, false, out)? {
                self.stats.plain_fallbacks += 1;
                self.input.cursor = Cursor::Plain(all.len() + tail);
            }
        } else if !self.try_frame(all.clone(), tail, must == all.len(), out)? {
            // Only the rest of the message must go framed; what follows it gets a decision of its own.
            self.try_frame(self.input.start..self.input.start + must, 0, true, out)?;
        }
        self.input.urgent = false;
        if std::mem::take(&mut self.context.reset_after_group) {
            self.drop_context();
        }
        Ok(())
    }

    /// Everything that can be known before the encoder sees the bytes.
    fn worth_a_try(&mut self, group: Range<usize>) -> Result<bool, Error> {
        let Some(choice) = self.context.choice else { return Ok(false) };
        if group.len() < self.config.policy.group_size_min || !self.context.giving_up.try_next() {
            return Ok(false);
        }
        if looks_incompressible(&self.input.pending[group]) {
            self.context.giving_up.record(false);
            return Ok(false);
        }
        self.prepare_encoder(choice)
    }

    /// Makes the encoder fit the choice; false when there is no memory for it.
    fn prepare_encoder(&mut self, choice: Choice) -> Result<bool, Error> {
        let codec = |source| Error::Codec { what: "preparing an encoder", source };
        match &mut self.context.encoder {
            Some(encoder) if encoder.choice() == choice => {}
            Some(encoder) if encoder.choice().algorithm == choice.algorithm => {
                encoder.set_level(choice.level).map_err(codec)?;
            }
            _ => {
                // The peer's decoder stays in the middle of its stream until another method is announced, and that is when a
                // frame of the new one goes out: perhaps none ever does.
                if let Some(old) = self.context.encoder.take()
                    && self.agreed.dialect() == Dialect::Ack
                    && self.context.announced == self.agreed.code_of_algorithm(old.choice().algorithm)
                {
                    self.context.resume = Some(old.into_resume());
                }
                let window_log = self.config.policy.window_log.at_start();
                (self.context.window_log, self.context.growth) =
                    (window_log, Growth::new(&self.config.policy));
                if self.context.lease.resize(encoder_bytes_estimate(choice.algorithm, window_log)).is_err() {
                    return Ok(false);
                }
                let options = EncoderOptions { choice, window_log };
                let goes_on = self.context.announced == self.agreed.code_of_algorithm(choice.algorithm);
                let made = match if goes_on { self.context.resume.take() } else { None } {
                    Some(resume) => Encoder::resume(options, resume),
                    None => Encoder::new(options),
                };
                self.context.encoder = Some(made.map_err(codec)?);
                self.context.restart = true;
                self.context.primed = false;
            }
        }
        if choice.algorithm == Algorithm::Zstd
            && let Some(due) = self.context.growth.due()
        {
            self.change_window(due).map_err(codec)?;
        }
        Ok(true)
    }

    /// Another window for the frames to come, between two messages.
    fn change_window(&mut self, due: Due) -> Result<(), pgshrink_codec::Error> {
        let window_log = match due {
            Due::Larger => match self.lease_larger_window() {
                Some(window_log) => {
                    self.context.growth.tried();
                    window_log
                }
                None => {
                    self.context.growth.settle();
                    return Ok(());
                }
            },
            Due::Back => {
                self.context.growth.settle();
                self.config.policy.window_log.at_start()
            }
        };
        self.context.window_log = window_log;
        match &mut self.context.encoder {
            Some(encoder) => encoder.set_window_log(window_log),
            None => Ok(()),
        }
    }

    /// The largest window that the peer takes and that leaves half of the budget to others, with its memory taken.
    fn lease_larger_window(&mut self) -> Option<u32> {
        let most = self.agreed.send_window_log_max().min(WINDOW_LOG_AUTO_MAX);
        (self.context.window_log + 1..=most).rev().find(|&window_log| {
            let bytes = encoder_bytes_estimate(Algorithm::Zstd, window_log);
            let more = bytes.saturating_sub(self.context.lease.bytes());
            self.context.lease.budget().is_roomy(more) && self.context.lease.resize(bytes).is_ok()
        })
    }

    /// Encodes a range as one frame at the end of `out`. False, and nothing sent, when it does not pay.
    fn try_frame(
        &mut self,
        range: Range<usize>,
        tail: usize,
        forced: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let Some(encoder) = self.context.encoder.as_mut() else { return Ok(false) };
        let raw_size = range.len();
        let timer = CodecTimer::start(self.clock, raw_size, self.stats.frames);
        let raw = &self.input.pending[range.clone()];
        let input = if self.agreed.packs_rows() && !self.input.copy_both && raw_size >= PACKED_SIZE_MIN {
            let begun_before = match self.input.cursor {
                Cursor::Framed(left) => left.min(raw_size),
                _ => 0,
            };
            self.context.packed.clear();
            rows::pack(raw, begun_before, &mut self.context.packed);
            &self.context.packed[..]
        } else {
            raw
        };
        let base = out.len();
        let encoder_choice = encoder.choice();
        let code = self.agreed.code_of_algorithm(encoder_choice.algorithm).unwrap_or_default();
        let per_frame = self.config.policy.context == ContextMode::PerFrame;
        let new_stream = self.context.restart || per_frame;
        let wrapper = open_wrapper(self.agreed.dialect(), code, self.context.announced, new_stream, out);
        if per_frame && self.agreed.dialect() == Dialect::Restart {
            encoder.restart();
        }
        let done =
            if per_frame { encoder.encode_independent(input, out) } else { encoder.encode(input, out) };
        self.stats.codec_ns += timer.stop();
        done.map_err(|source| Error::Codec { what: "compressing", source })?;
        let cost = out.len() - base;
        let gain = raw_size as i64 - cost as i64;
        let rest_is_covered = tail == 0 || self.ledger.credit + gain >= self.rest_bound(tail);
        if !forced {
            self.context.giving_up.record(gain > 0);
        }
        let ends_later = self.ledger.can_end_after(gain);
        let pays = gain > 0 && ends_later || (tail == 0 && !per_frame && self.may_prime(-gain));
        if !forced && (!pays || !rest_is_covered) {
            out.truncate(base);
            self.undo();
            return Ok(false);
        }
        close_wrapper(wrapper, out);
        if let Some(encoder) = self.context.encoder.as_mut() {
            encoder.commit();
            self.context.peer_holds_context =
                encoder_choice.algorithm != Algorithm::Zstd || encoder.holds_window();
            // Asking zstd for its size costs as much as a small frame; only large ones make it grow.
            let looked_at = raw_size >= MEASURED_SIZE_MIN || !self.context.primed;
            if looked_at && self.context.lease.resize(encoder.memory_bytes() as u64).is_err() {
                self.context.growth.turn_back();
            }
        }
        self.context.growth.note(raw_size, cost);
        self.context.name_method(code);
        self.context.restart = false;
        self.context.primed = true;
        self.ledger.frame(gain, forced);
        self.input.start = range.end;
        self.input.cursor = if tail > 0 { Cursor::Framed(tail) } else { Cursor::Boundary };
        self.stats.add_frame(raw_size, cost);
        Ok(true)
    }

    /// What `tail` more framed bytes can cost beyond plain. Only the first and the last of its frames may be short.
    fn rest_bound(&self, tail: usize) -> i64 {
        let Some(encoder) = &self.context.encoder else { return i64::MAX };
        let chunk = self.chunk_max();
        let alone = self.config.policy.context == ContextMode::PerFrame;
        let one = overhead_bound(encoder.choice(), chunk, self.context.window_log, alone);
        (STREAM_START_BOUND + (tail / chunk + 2) * one) as i64
    }

    /// Whether a fresh context may begin with a frame that loses so many bytes: not in a session of one or two
    /// statements, which would never get them back.
    fn may_prime(&mut self, loss: i64) -> bool {
        if self.context.primed || loss > self.ledger.priming_left {
            return false;
        }
        self.ledger.unprimed_groups += 1;
        self.ledger.unprimed_groups > PRIMING_AFTER_GROUPS
    }

    /// The frame just encoded is not sent. Where the context cannot be put back to what it was, the restart byte saves
    /// the bytes that closing the stream would cost.
    fn undo(&mut self) {
        let Some(encoder) = &mut self.context.encoder else { return };
        if !encoder.abandon() {
            self.context.primed = false;
            if self.agreed.dialect() == Dialect::Restart {
                self.drop_context();
            }
        }
    }

    /// The encoder forgets; the next frame is readable by a peer that saw only what was sent.
    fn drop_context(&mut self) {
        let Some(encoder) = &mut self.context.encoder else { return };
        self.context.primed = false;
        match self.agreed.dialect() {
            Dialect::Restart => {
                encoder.restart();
                self.context.restart = true;
            }
            Dialect::Ack => encoder.forget(),
        }
    }
}

/// Reserved before an encoder is made; corrected to its real size after the first frame.
fn encoder_bytes_estimate(algorithm: Algorithm, window_log: u32) -> u64 {
    match algorithm {
        Algorithm::Zstd => (2u64 << window_log) + (1 << 20),
        Algorithm::Zlib => 512 << 10,
        _ => 160 << 10,
    }
}
