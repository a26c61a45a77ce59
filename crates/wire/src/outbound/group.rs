//! Which pending bytes go together: invariant O4, and where frames end.

use pgshrink_codec::Algorithm;
use pgshrink_codec::stream::Encoder;

use super::{Cursor, Outbound};
use crate::error::Error;
use crate::link::{Flush, Held};
use crate::negotiate::Dialect;
use crate::policy::ContextMode;
use crate::walk::{Found, message_at};
use crate::watch::{Event, Sender};

/// Ack dialect: the one shipping reader has a ring for 16 KiB blocks.
const ACK_LZ4_RAW_MAX: usize = 16 << 10;
/// A message that would be cut by a frame's end waits for the next frame if it fills less than this share of the first.
const CUT_SHARE: usize = 8;

/// What to do with the bytes at `start`.
pub(super) enum Group {
    Wait(Held),
    /// A message that may not ride in a frame, of this many bytes.
    Plain(usize),
    /// Bytes up to `end`; `tail` more of the last message are to come.
    Ready {
        end: usize,
        tail: usize,
    },
}

impl Outbound {
    pub(super) fn chunk_max(&self) -> usize {
        // A message begun in a frame is finished by the encoder that began it, whatever has been chosen since.
        let running =
            self.context.encoder.as_ref().filter(|_| matches!(self.input.cursor, Cursor::Framed(_)));
        let Some(choice) = running.map(Encoder::choice).or(self.context.choice) else {
            return self.config.policy.frame_size;
        };
        match (choice.algorithm, self.agreed.dialect()) {
            (Algorithm::Lz4, Dialect::Ack) => self.config.policy.frame_size.min(ACK_LZ4_RAW_MAX),
            (Algorithm::Lz4, Dialect::Restart) => self.config.policy.frame_size.min(64 << 10),
            _ => self.config.policy.frame_size,
        }
    }

    /// Reads headers up to the frame size and says what can be done now.
    pub(super) fn next_group(&mut self, flush: Flush) -> Result<Group, Error> {
        if let Cursor::Framed(left) = self.input.cursor {
            self.input.scan = self.input.scan.max(self.input.start + left);
        }
        let here = self.input.pending.len();
        let limit = self.input.start + self.chunk_max();
        self.input.fit(limit);
        // Behind a confirmation the group is complete, even if it takes two frames.
        let mut stopped = self.interrupts && self.input.scan == self.input.seen;
        while !stopped && self.input.scan < limit.min(here) {
            let Some(Found { header, body }) = message_at(&self.input.pending, self.input.scan)? else {
                break;
            };
            let (total, is_new) = (header.total(), self.input.scan >= self.input.seen);
            let body = match (is_new && self.watch.wants(header), body) {
                (true, None) => break,
                (true, body) => body,
                (false, _) => None,
            };
            let rides = self.may_ride(header.tag);
            if !rides && self.input.scan > self.input.start {
                stopped = true;
                break;
            }
            if is_new {
                let before = self.events.len();
                self.watch.read(header, body, 0, &mut self.events);
                stopped = self.observe(before);
                self.input.seen = self.input.scan + total;
            } else {
                stopped = self.interrupts && self.input.scan + total == self.input.seen;
            }
            if !rides {
                self.input.scan += total;
                return Ok(Group::Plain(total));
            }
            self.input.urgent |= !Sender::is_bulk(header.tag);
            self.input.last = self.input.scan;
            self.input.scan += total;
        }
        Ok(self.judge_group(flush, limit, stopped))
    }

    fn may_ride(&self, tag: u8) -> bool {
        // A type below the printable ones would look like packed rows; PostgreSQL has none.
        self.config.policy.types.allow(tag) && !(self.agreed.packs_rows() && tag < b' ')
    }

    fn judge_group(&self, flush: Flush, limit: usize, stopped: bool) -> Group {
        let here = self.input.pending.len();
        let end = self.input.scan.min(here).min(limit);
        let tail = self.input.scan.saturating_sub(end);
        if end == self.input.start {
            return Group::Wait(Held::Nothing);
        }
        let cuts = end == limit && tail > 0 && !stopped;
        if cuts
            && self.input.last > self.input.start
            && limit - self.input.last < (limit - self.input.start) / CUT_SHARE
        {
            // A cut row costs both frames a match, and cannot be packed.
            return Group::Ready { end: self.input.last, tail: 0 };
        }
        if end == limit || stopped {
            return Group::Ready { end, tail };
        }
        // The receiver can do nothing with the middle of a message, and many small frames would eat the credit.
        if matches!(self.input.cursor, Cursor::Framed(left) if self.input.start + left > here)
            && flush != Flush::End
        {
            return Group::Wait(Held::Nothing);
        }
        let cut = tail > 0 || self.input.scan < here;
        match flush {
            Flush::No => Group::Wait(Held::Nothing),
            Flush::Idle if cut && !self.input.urgent && !self.input.copy_both => {
                Group::Wait(Held::PartOfMessage)
            }
            Flush::Idle | Flush::Force if self.begins_big(tail) => match self.input.last {
                whole if whole > self.input.start => Group::Ready { end: whole, tail: 0 },
                _ => Group::Wait(Held::Nothing),
            },
            Flush::Idle | Flush::Force | Flush::End => Group::Ready { end, tail },
        }
    }

    /// The last message is longer than a frame and has not filled its first one: a smaller beginning would have to cover
    /// the worst case of all that follows, and a receiver could do nothing with it.
    fn begins_big(&self, tail: usize) -> bool {
        tail > 0 && self.input.scan - self.input.last > self.chunk_max() && self.context.choice.is_some()
    }

    /// What the last message said, whose events begin at `before`; true when the group must end behind it.
    fn observe(&mut self, before: usize) -> bool {
        let mut ends = false;
        for event in &self.events[before..] {
            match event {
                Event::Ready { idle, .. } => {
                    self.input.copy_both = false;
                    if *idle && self.config.policy.context == ContextMode::PerTransaction {
                        self.context.reset_after_group = true;
                        ends = true;
                    }
                }
                Event::CopyBoth => self.input.copy_both = true,
                Event::Confirmed { .. } => {
                    self.interrupts = true;
                    ends = true;
                }
                Event::Said(_) | Event::Expected(_) | Event::CopyIn { .. } => {}
            }
        }
        ends
    }
}
