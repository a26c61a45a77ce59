//! Which pending bytes go together: invariant O4, and where frames end.

use pgshrink_codec::Algorithm;
use pgshrink_codec::stream::Encoder;

use super::{Cursor, Outbound};
use crate::error::Error;
use crate::link::{Flush, Held};
use crate::message::{self, HEADER_SIZE};
use crate::negotiate::Dialect;
use crate::policy::ContextMode;
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
        let running = self.encoder.as_ref().filter(|_| matches!(self.cursor, Cursor::Framed(_)));
        let Some(choice) = running.map(Encoder::choice).or(self.choice) else {
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
        if let Cursor::Framed(left) = self.cursor {
            self.scan = self.scan.max(self.start + left);
        }
        let here = self.pending.len();
        let limit = self.start + self.chunk_max();
        let mut stopped = false;
        while self.scan < limit.min(here) {
            let Some(header) = message::header(&self.pending[self.scan..])? else { break };
            let total = header.total();
            let watched = self.sender.watches(header);
            if watched && self.scan + total > here {
                break;
            }
            if !self.may_ride(header.tag) {
                if self.scan == self.start {
                    self.observe(watched, self.scan, total);
                    self.scan += total;
                    return Ok(Group::Plain(total));
                }
                stopped = true;
                break;
            }
            stopped = self.observe(watched, self.scan, total);
            self.urgent |= !Sender::is_bulk(header.tag);
            self.last = self.scan;
            self.scan += total;
            if stopped {
                break;
            }
        }
        Ok(self.judge_group(flush, limit, stopped))
    }

    fn may_ride(&self, tag: u8) -> bool {
        // A type below the printable ones would look like packed rows; PostgreSQL has none.
        self.config.policy.types.allow(tag) && !(self.agreed.packs_rows() && tag < b' ')
    }

    fn judge_group(&self, flush: Flush, limit: usize, stopped: bool) -> Group {
        let here = self.pending.len();
        let end = self.scan.min(here).min(limit);
        let tail = self.scan.saturating_sub(end);
        if end == self.start {
            return Group::Wait(Held::Nothing);
        }
        let cuts = end == limit && tail > 0 && !stopped;
        if cuts && self.last > self.start && limit - self.last < (limit - self.start) / CUT_SHARE {
            // A cut row costs both frames a match, and cannot be packed.
            return Group::Ready { end: self.last, tail: 0 };
        }
        if end == limit || stopped {
            return Group::Ready { end, tail };
        }
        // The receiver can do nothing with the middle of a message, and many small frames would eat the credit.
        if matches!(self.cursor, Cursor::Framed(left) if self.start + left > here) && flush != Flush::End {
            return Group::Wait(Held::Nothing);
        }
        let cut = tail > 0 || self.scan < here;
        match flush {
            Flush::No => Group::Wait(Held::Nothing),
            Flush::Idle if cut && !self.urgent && !self.copy_both => Group::Wait(Held::PartOfMessage),
            Flush::Idle | Flush::Force if self.begins_big(tail) => match self.last {
                whole if whole > self.start => Group::Ready { end: whole, tail: 0 },
                _ => Group::Wait(Held::Nothing),
            },
            Flush::Idle | Flush::Force | Flush::End => Group::Ready { end, tail },
        }
    }

    /// The last message is longer than a frame and has not filled its first one: a smaller beginning would have to cover
    /// the worst case of all that follows, and a receiver could do nothing with it.
    fn begins_big(&self, tail: usize) -> bool {
        tail > 0 && self.scan - self.last > self.chunk_max() && self.choice.is_some()
    }

    /// Reads a watched message; true when the context must end behind it.
    fn observe(&mut self, watched: bool, at: usize, total: usize) -> bool {
        if !watched {
            return false;
        }
        let Some(event) = self.sender.read(self.pending[at], &self.pending[at + HEADER_SIZE..at + total])
        else {
            return false;
        };
        let ends =
            event == Event::Ready { idle: true } && self.config.policy.context == ContextMode::PerTransaction;
        self.reset_after_group |= ends;
        if let Event::Ready { .. } = event {
            self.copy_both = false;
        }
        self.copy_both |= event == Event::CopyBoth;
        self.events.push(event);
        ends
    }
}
