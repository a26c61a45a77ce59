//! The one walker over messages: where each begins and ends, and what it says.
//!
//! [`message_at`] steps over bytes that are at hand, [`Walk`] over a stream that is cut anywhere, by the same step wherever a message is
//! whole. Everything that follows messages uses them: grouping, packing and unpacking rows on the way out, the watch over what
//! comes out of frames, a session's [`Conversation`](crate::Conversation), captures, the handshake. [`PartialHeader`] alone puts headers together
//! that are split, and [`message::header`] alone judges a length. Packets before the first typed message are of another form and
//! bounded: [`parse_first`](crate::startup::parse_first) reads them.
//!
//! Invariants
//! * W1 Each message is given once, with the same header and end however the stream is cut.
//! * W2 Of a message that is split no more is kept than its reader wants.
//! * W3 Behind an impossible length nothing is found: there is no telling where the next message begins.

use crate::error::Error;
use crate::message::{self, HEADER_SIZE, Header};

/// Memory kept for the next split message; most that are wanted are small.
const SPARE_SIZE_MAX: usize = 1 << 10;

/// A message in bytes that are at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// Type and length.
    pub header: Header,
    /// All of its body; `None` while the rest has not come.
    pub body: Option<&'a [u8]>,
}

/// The message that begins at `at`; `None` while its header has not come. An impossible length is an error.
#[inline]
pub fn message_at(bytes: &[u8], at: usize) -> Result<Option<Found<'_>>, Error> {
    let Some(here) = bytes.get(at..) else { return Ok(None) };
    let Some(header) = message::header(here)? else { return Ok(None) };
    Ok(Some(Found { header, body: here.get(HEADER_SIZE..header.total()) }))
}

/// A header and its bytes.
pub(crate) type RawHeader = (Header, [u8; HEADER_SIZE]);

/// A header that comes in pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PartialHeader {
    /// Its first `have` bytes; fewer than all of them between two calls.
    bytes: [u8; HEADER_SIZE],
    have: usize,
}

impl PartialHeader {
    /// True while nothing of it has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.have == 0
    }

    /// Takes what belongs to it; returns how much that is and, when it is whole, the header and its bytes. The next header
    /// begins then.
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<(usize, Option<RawHeader>), Error> {
        let n = (HEADER_SIZE - self.have).min(input.len());
        self.bytes[self.have..self.have + n].copy_from_slice(&input[..n]);
        self.have += n;
        let header = message::header(&self.bytes[..self.have])?;
        if header.is_some() {
            self.have = 0;
        }
        Ok((n, header.map(|header| (header, self.bytes))))
    }
}

/// A message that has been walked over.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Type and length.
    pub header: Header,
    /// Its body, or as much of it as was wanted if it was split.
    pub body: &'a [u8],
    /// Bytes of the stream up to its end.
    pub end: u64,
}

/// A walk over one direction of a session, whose bytes are cut anywhere.
#[derive(Debug, Default)]
pub struct Walk {
    header: PartialHeader,
    /// Body bytes of the message begun that are still to come.
    left: usize,
    /// That message, if it is wanted.
    begun: Option<Begun>,
    /// A body's memory for the next one.
    spare: Vec<u8>,
    /// Bytes of the stream so far.
    position: u64,
    /// See W3.
    lost: bool,
}

#[derive(Debug)]
struct Begun {
    header: Header,
    body: Vec<u8>,
    /// Bytes of the body to keep.
    wanted: usize,
}

impl Walk {
    /// True between two messages.
    pub fn at_boundary(&self) -> bool {
        self.is_between() && !self.lost
    }

    /// Bytes of the message begun that are still to come, 0 between two. `None`: inside a header, or behind an impossible length.
    #[inline]
    pub fn left(&self) -> Option<usize> {
        (self.header.is_empty() && !self.lost).then_some(self.left)
    }

    /// Bytes of the stream so far: where [`Message::end`] is counted from.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The wanted message whose end has not come, and how many bytes of its body are still to come.
    pub(crate) fn begun(&self) -> Option<(Header, usize)> {
        self.begun.as_ref().map(|begun| (begun.header, self.left))
    }

    fn is_between(&self) -> bool {
        self.header.is_empty() && self.left == 0
    }

    /// Calls `on` for each message that `wanted` likes, when its last byte is there. `wanted` is asked once for each message, when
    /// its header is there; it says how many bytes of the body are kept if the message is split between calls. An error of its
    /// own, like an impossible length, is returned and ends the walk: later calls find nothing.
    #[inline]
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut wanted: impl FnMut(Header) -> Result<Option<usize>, Error>,
        mut on: impl FnMut(Message<'_>),
    ) -> Result<(), Error> {
        if self.lost {
            return Ok(());
        }
        let walked = self.walk(bytes, &mut wanted, &mut on);
        self.lost = walked.is_err();
        walked
    }

    #[inline]
    fn walk(
        &mut self,
        bytes: &[u8],
        wanted: &mut impl FnMut(Header) -> Result<Option<usize>, Error>,
        on: &mut impl FnMut(Message<'_>),
    ) -> Result<(), Error> {
        let begin = self.position;
        let begun = if self.is_between() { 0 } else { self.go_on(bytes, wanted, on)? };
        let mut rest = &bytes[begun..];
        while let Some(Found { header, body: Some(body) }) = message_at(rest, 0)? {
            rest = &rest[header.total()..];
            if wanted(header)?.is_some() {
                on(Message { header, body, end: begin + (bytes.len() - rest.len()) as u64 });
            }
        }
        self.position = begin + (bytes.len() - rest.len()) as u64;
        if !rest.is_empty() {
            self.go_on(rest, wanted, on)?;
        }
        Ok(())
    }

    /// The slow way, for a message split between calls: reads on to its end, or to that of the bytes; returns how far that is.
    fn go_on(
        &mut self,
        bytes: &[u8],
        wanted: &mut impl FnMut(Header) -> Result<Option<usize>, Error>,
        on: &mut impl FnMut(Message<'_>),
    ) -> Result<usize, Error> {
        let mut at = 0;
        if self.left == 0 {
            let (used, header) = self.header.read(bytes)?;
            at = used;
            self.position += used as u64;
            let Some((header, _)) = header else { return Ok(at) };
            self.left = header.body_size();
            let body = std::mem::take(&mut self.spare);
            self.begun = wanted(header)?.map(|wanted| Begun { header, body, wanted });
        }
        let part = &bytes[at..at + self.left.min(bytes.len() - at)];
        self.left -= part.len();
        self.position += part.len() as u64;
        if let Some(begun) = &mut self.begun {
            let keep = part.len().min(begun.wanted - begun.body.len());
            begun.body.extend_from_slice(&part[..keep]);
        }
        if self.left == 0
            && let Some(Begun { header, mut body, .. }) = self.begun.take()
        {
            on(Message { header, body: &body, end: self.position });
            body.clear();
            self.spare = if body.capacity() <= SPARE_SIZE_MAX { body } else { Vec::new() };
        }
        Ok(at + part.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::message;

    /// Tag, body and end.
    type Given = (u8, Vec<u8>, u64);

    /// Whole messages of all sizes that matter.
    fn stream() -> (Vec<u8>, Vec<Given>) {
        let (mut bytes, mut all) = (Vec::new(), Vec::new());
        for (tag, body) in [
            (b'D', &b"ZZZZ"[..]),
            (b'Z', b"I"),
            (b'n', b""),
            (b'1', b""),
            (b'S', b"a\0b\0"),
            (b'd', b"Z\0\0\0\x05I"),
        ] {
            bytes.extend(message(tag, body));
            all.push((tag, body.to_vec(), bytes.len() as u64));
        }
        (bytes, all)
    }

    /// Feeds pieces; what was found, and the tags that were asked about.
    fn walked(pieces: &[&[u8]], kept: usize) -> (Vec<Given>, Vec<u8>, Walk) {
        let (mut walk, mut found, mut asked) = (Walk::default(), Vec::new(), Vec::new());
        for piece in pieces {
            walk.feed(
                piece,
                |header| {
                    asked.push(header.tag);
                    Ok((header.tag != b'n').then_some(kept))
                },
                |m| found.push((m.header.tag, m.body.to_vec(), m.end)),
            )
            .unwrap();
        }
        (found, asked, walk)
    }

    #[test]
    fn every_message_is_given_once_with_its_end_wherever_the_stream_is_cut() {
        let (bytes, mut all) = stream();
        let tags: Vec<u8> = all.iter().map(|found| found.0).collect();
        all.retain(|found| found.0 != b'n');
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let (found, asked, walk) = walked(&pieces, 100);
                assert_eq!((&found, &asked), (&all, &tags), "cut at {first} and {second}");
                assert!(walk.at_boundary() && walk.position() == bytes.len() as u64);
            }
        }
        for size in 1..=bytes.len() {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(walked(&pieces, 100).0, all, "pieces of {size}");
        }
    }

    #[test]
    fn a_boundary_is_where_a_message_ends_and_nowhere_else() {
        let (bytes, all) = stream();
        for cut in 0..=bytes.len() {
            let ends = cut == 0 || all.iter().any(|found| found.2 == cut as u64);
            assert_eq!(walked(&[&bytes[..cut]], 0).2.at_boundary(), ends, "{cut} bytes");
        }
    }

    #[test]
    fn of_a_split_message_no_more_is_kept_than_is_wanted() {
        let big = message(b'K', &[7; 5000]);
        for cut in 1..big.len() {
            let (found, _, walk) = walked(&[&big[..cut], &big[cut..]], 300);
            assert_eq!(found, [(b'K', vec![7; 300], 5005)], "cut at {cut}");
            assert!(walk.spare.capacity() <= SPARE_SIZE_MAX);
        }
        assert_eq!(walked(&[&big], 300).0[0].1.len(), 5000, "whole ones cost nothing to give");
    }

    #[test]
    fn an_impossible_length_says_what_was_expected_and_ends_the_walk_wherever_it_is_cut() {
        for (bad, expected, found) in [
            (&b"Q\0\0\0\x03"[..], "at least 4", "3 in a message of type 'Q'"),
            (b"Q\x7f\0\0\0", "1073741823", "2130706432"),
        ] {
            let ready = message(b'Z', b"I");
            for cut in 0..=bad.len() {
                let mut walk = Walk::default();
                let mut feed = |bytes: &[u8]| walk.feed(bytes, |_| Ok(Some(9)), |m| panic!("{m:?}"));
                let error = match feed(&bad[..cut]) {
                    Err(error) => error,
                    Ok(()) => feed(&[&bad[cut..], &ready].concat()).unwrap_err(),
                };
                let text = error.to_string();
                assert!(text.contains(expected) && text.contains(found), "{text}");
                feed(&ready).unwrap();
                assert!(!walk.at_boundary(), "cut at {cut}");
            }
            assert!(message_at(bad, 0).is_err());
        }
    }

    #[test]
    fn a_readers_own_error_ends_the_walk_at_the_header() {
        let refused = message(b'm', &[0; 50]);
        for cut in HEADER_SIZE..refused.len() {
            let mut walk = Walk::default();
            let no = |_| Err(Error::protocol("message", "another type", "'m'"));
            assert!(walk.feed(&refused[..cut], no, |m| panic!("{m:?}")).is_err(), "{cut} bytes");
            assert!(!walk.at_boundary());
        }
    }

    #[test]
    fn bytes_at_hand_give_the_same_messages() {
        let (bytes, all) = stream();
        let (mut at, mut found) = (0, Vec::new());
        while let Some(Found { header, body: Some(body) }) = message_at(&bytes, at).unwrap() {
            at += header.total();
            found.push((header.tag, body.to_vec(), at as u64));
        }
        assert_eq!(found, all);
        let row = message(b'D', b"row");
        for cut in 0..row.len() {
            let here = message_at(&row[..cut], 0).unwrap();
            assert_eq!(here.map(|found| (found.header.total(), found.body)), (cut >= 5).then_some((8, None)));
        }
        assert_eq!(message_at(&row, 100), Ok(None));
    }
}
