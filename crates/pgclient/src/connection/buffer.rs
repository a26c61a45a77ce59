//! Bytes that were received and not yet used.
//!
//! ```text
//!  0        start              end            len
//!  | used   | not yet used     | room         |
//! ```
//! A message is handed out as a range of the buffer and stays where it is until the next call of
//! [`room`](ReadBuffer::room). Invariant: `start <= end <= bytes.len()`.

use std::ops::Range;

use pgshrink_wire::message::HEADER_SIZE;
use pgshrink_wire::walk;

/// The buffer's first size and the smallest room for a read is a quarter of it.
pub const READ_BUFFER_SIZE: usize = 256 << 10;
const ROOM_SIZE_MIN: usize = READ_BUFFER_SIZE / 4;

pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// One whole message in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) tag: u8,
    pub(super) body: Range<usize>,
}

/// Why the next message will never be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BadFrame {
    /// The length in the header is impossible.
    Header(String),
    /// The message is longer than it may be.
    TooLong { tag: u8, found: usize, allowed: usize },
}

impl ReadBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; READ_BUFFER_SIZE], start: 0, end: 0 }
    }

    /// The next message, once it is there as a whole. `limit` gives the largest body for a type of message.
    pub(super) fn next(&mut self, limit: impl Fn(u8) -> usize) -> Result<Option<Found>, BadFrame> {
        let found = walk::message_at(&self.bytes[..self.end], self.start);
        let Some(found) = found.map_err(|error| BadFrame::Header(error.to_string()))? else {
            return Ok(None);
        };
        let (tag, size, allowed) = (found.header.tag, found.header.body_size(), limit(found.header.tag));
        if size > allowed {
            return Err(BadFrame::TooLong { tag, found: size, allowed });
        }
        if found.body.is_none() {
            return Ok(None);
        }
        let body = self.start + HEADER_SIZE..self.start + HEADER_SIZE + size;
        self.start = body.end;
        Ok(Some(Found { tag, body }))
    }

    /// Where to receive more bytes. Messages handed out before are gone.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let needed = match walk::message_at(&self.bytes[..self.end], self.start) {
            Ok(Some(partial)) => partial.header.total(),
            _ => HEADER_SIZE,
        };
        let fits = self.start + needed <= self.bytes.len() && self.bytes.len() - self.end >= ROOM_SIZE_MIN;
        if self.start == self.end || !fits {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if needed > self.bytes.len() {
            // Bounded: `next` refused a message over its limit before anybody asked for room.
            self.bytes.resize(needed + ROOM_SIZE_MIN, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Bytes that the next message lacks; 0 while its header is not there.
    pub(super) fn rest(&self) -> usize {
        match walk::message_at(&self.bytes[..self.end], self.start) {
            Ok(Some(partial)) => partial.header.total().saturating_sub(self.end - self.start),
            _ => 0,
        }
    }

    /// So many bytes were received into the room.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len());
    }

    /// A range that was handed out.
    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        pgshrink_wire::message::message(tag, body)
    }

    fn receive(buffer: &mut ReadBuffer, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = buffer.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            buffer.filled(count);
            bytes = &bytes[count..];
        }
    }

    #[test]
    fn messages_are_the_same_however_the_input_is_split() {
        let stream = [message(b'Z', b"I"), message(b'D', &[7; 300]), message(b'C', b"")].concat();
        for split in 0..=stream.len() {
            let mut buffer = ReadBuffer::new();
            let mut seen = Vec::new();
            for part in [&stream[..split], &stream[split..]] {
                receive(&mut buffer, part);
                while let Some(found) = buffer.next(|_| 1000).unwrap() {
                    seen.push((found.tag, buffer.get(found.body).to_vec()));
                }
            }
            let expected = vec![(b'Z', b"I".to_vec()), (b'D', vec![7; 300]), (b'C', vec![])];
            assert_eq!(seen, expected, "split at {split}");
            assert_eq!(buffer.start, buffer.end);
        }
    }

    #[test]
    fn a_long_message_arrives_whole_and_in_order_behind_others() {
        let long: Vec<u8> = (0..3 * READ_BUFFER_SIZE).map(|n| (n % 251) as u8).collect();
        let mut buffer = ReadBuffer::new();
        for _ in 0..3 {
            let stream = [message(b'd', &[1; 200_000]), message(b'd', &long), message(b'Z', b"I")].concat();
            let (mut seen, mut rest) = (Vec::new(), &stream[..]);
            while !rest.is_empty() {
                let room = buffer.room();
                let count = room.len().min(rest.len()).min(60_000);
                room[..count].copy_from_slice(&rest[..count]);
                buffer.filled(count);
                rest = &rest[count..];
                while let Some(found) = buffer.next(|_| 1 << 20).unwrap() {
                    seen.push(buffer.get(found.body).to_vec());
                }
            }
            assert_eq!(seen, [vec![1; 200_000], long.clone(), b"I".to_vec()]);
        }
        assert!(buffer.bytes.len() < 2 * long.len(), "{}", buffer.bytes.len());
    }

    #[test]
    fn a_message_over_its_limit_is_refused_before_there_is_memory_for_it() {
        let mut buffer = ReadBuffer::new();
        receive(&mut buffer, &[b'd', 0x3f, 0xff, 0xff, 0xff, 1]);
        let allowed = |tag| if tag == b'd' { 1000 } else { 0 };
        let refused = BadFrame::TooLong { tag: b'd', found: 0x3fff_fffb, allowed: 1000 };
        assert_eq!(buffer.next(allowed), Err(refused));
        assert_eq!(buffer.bytes.len(), READ_BUFFER_SIZE);
    }

    #[test]
    fn an_impossible_length_is_an_error() {
        for length in [0_u32, 3, 0x4000_0000, u32::MAX] {
            let mut buffer = ReadBuffer::new();
            receive(&mut buffer, &[&b"D"[..], &length.to_be_bytes()].concat());
            assert!(matches!(buffer.next(|_| usize::MAX), Err(BadFrame::Header(_))), "{length}");
        }
    }
}
