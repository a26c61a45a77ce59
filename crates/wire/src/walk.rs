//! A walk over the messages of one direction, whose bytes are cut anywhere.
//!
//! Headers are read by [`message::header`] and nowhere else. A message that is whole in the bytes at hand is given from them;
//! only one that is split between calls is copied, and of that no more than the caller wants.

use crate::message::{self, HEADER_SIZE, Header};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Walk {
    /// Of a header that is split between calls, the first `have` bytes.
    header: [u8; HEADER_SIZE],
    have: usize,
    /// Body bytes of the message begun that are still to come.
    left: usize,
    /// That message, if it is wanted.
    begun: Option<Begun>,
    /// A length was impossible: this is not PostgreSQL's protocol, or not any more.
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
        self.have == 0 && self.left == 0 && !self.lost
    }

    /// True when a length was impossible: nothing is found any more.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Calls `on(header, body)` for each message that `wanted` likes, when its last byte is there. `wanted` says how many bytes
    /// of the body are kept if the message is split between calls; `body` has all of it otherwise.
    #[inline]
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        wanted: impl Fn(Header) -> Option<usize>,
        mut on: impl FnMut(Header, &[u8]),
    ) {
        if self.have > 0 || self.left > 0 {
            bytes = self.go_on(bytes, &wanted, &mut on);
        }
        while !self.lost {
            let header = match message::header(bytes) {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(_) => {
                    self.lost = true;
                    return;
                }
            };
            let Some(rest) = bytes.get(header.total()..) else { break };
            if wanted(header).is_some() {
                on(header, &bytes[HEADER_SIZE..header.total()]);
            }
            bytes = rest;
        }
        while !bytes.is_empty() && !self.lost {
            bytes = self.go_on(bytes, &wanted, &mut on);
        }
    }

    /// The slow way, for messages split between calls; returns what lies behind the header or the body.
    fn go_on<'a>(
        &mut self,
        mut bytes: &'a [u8],
        wanted: &impl Fn(Header) -> Option<usize>,
        on: &mut impl FnMut(Header, &[u8]),
    ) -> &'a [u8] {
        if self.left == 0 {
            let n = (HEADER_SIZE - self.have).min(bytes.len());
            self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            match message::header(&self.header[..self.have]) {
                Ok(Some(header)) => {
                    self.left = header.body_size();
                    self.begun = wanted(header).map(|wanted| Begun { header, body: Vec::new(), wanted });
                }
                Ok(None) => return bytes,
                Err(_) => {
                    self.lost = true;
                    return &[];
                }
            }
        }
        let n = self.left.min(bytes.len());
        if let Some(begun) = &mut self.begun {
            let keep = n.min(begun.wanted - begun.body.len());
            begun.body.extend_from_slice(&bytes[..keep]);
        }
        self.left -= n;
        if self.left == 0 {
            self.have = 0;
            if let Some(begun) = self.begun.take() {
                on(begun.header, &begun.body);
            }
        }
        &bytes[n..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::message;

    #[test]
    fn every_message_is_found_once_however_the_stream_is_cut() {
        let stream =
            [message(b'D', &[b'Z'; 40]), message(b'Z', b"I"), message(b'n', b""), message(b'S', &[1; 9])]
                .concat();
        for size in 1..=stream.len() {
            let (mut walk, mut found) = (Walk::default(), Vec::new());
            for piece in stream.chunks(size) {
                walk.feed(
                    piece,
                    |header| (header.tag != b'D').then_some(4),
                    |header, body| {
                        found.push((header.tag, header.total(), body[..body.len().min(4)].to_vec()))
                    },
                );
            }
            let all = [(b'Z', 6, b"I".to_vec()), (b'n', 5, vec![]), (b'S', 14, vec![1; 4])];
            assert_eq!(found, all, "pieces of {size}");
            assert!(walk.at_boundary());
        }
    }

    #[test]
    fn an_impossible_length_ends_the_walk() {
        for cut in 0..5 {
            let mut walk = Walk::default();
            let (head, tail) = b"Q\0\0\0\x01".split_at(cut);
            for piece in [head, tail, &message(b'Z', b"I")] {
                walk.feed(piece, |_| Some(9), |header, _| panic!("{header:?}"));
            }
            assert!(walk.is_lost() && !walk.at_boundary());
        }
    }
}
