//! What the engine reads in passing from either side's messages.

use crate::error::Error;
use crate::message::{self, HEADER_SIZE, Header, tag};
use crate::setting::{self, Change, STATEMENT_SIZE_MAX};

/// Whose messages a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Server,
}

/// Something the other direction, or the policy, wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The client sets `pgshrink.compression`.
    Set(Change),
    /// The server is ready; true outside a transaction.
    Ready { idle: bool },
    /// COPY in both directions begins: replication.
    CopyBoth,
}

/// A watched message is small; a longer one of the same type is something else.
pub(crate) const WATCHED_SIZE_MAX: usize = STATEMENT_SIZE_MAX + 64;

impl Sender {
    /// True when the body of this message has to be seen whole.
    pub(crate) fn watches(self, header: Header) -> bool {
        let watched = match self {
            Sender::Client => matches!(header.tag, tag::QUERY | tag::PARSE),
            Sender::Server => matches!(header.tag, tag::READY_FOR_QUERY | tag::COPY_BOTH_RESPONSE),
        };
        watched && header.total() <= WATCHED_SIZE_MAX
    }

    /// What a watched message says.
    pub(crate) fn read(self, tag: u8, body: &[u8]) -> Option<Event> {
        match (self, tag) {
            (Sender::Client, tag::QUERY) => setting::parse(body).map(Event::Set),
            (Sender::Client, tag::PARSE) => {
                // Statement name, zero, statement, zero, parameter types.
                let mut parts = body.splitn(3, |b| *b == 0);
                parts.next()?;
                setting::parse(parts.next()?).map(Event::Set)
            }
            (Sender::Server, tag::READY_FOR_QUERY) => Some(Event::Ready { idle: body == b"I" }),
            (Sender::Server, tag::COPY_BOTH_RESPONSE) => Some(Event::CopyBoth),
            _ => None,
        }
    }

    /// Types that come in long runs, of which a receiver wants many rather than one soon.
    pub(crate) fn is_bulk(tag: u8) -> bool {
        matches!(tag, tag::DATA_ROW | tag::COPY_DATA)
    }
}

/// Follows message boundaries through a stream cut anywhere, reads what is watched, refuses nested frames.
#[derive(Debug)]
pub(crate) struct Walker {
    sender: Sender,
    /// Tags that may not occur inside a frame.
    nested: &'static [u8],
    header: [u8; HEADER_SIZE],
    have: usize,
    /// Body bytes of the current message still to come.
    left: usize,
    captured: Option<(u8, Vec<u8>)>,
    /// The last captured body's memory.
    spare: Vec<u8>,
}

impl Walker {
    pub(crate) fn new(sender: Sender, nested: &'static [u8]) -> Self {
        Self { sender, nested, header: [0; HEADER_SIZE], have: 0, left: 0, captured: None, spare: Vec::new() }
    }

    pub(crate) fn at_boundary(&self) -> bool {
        self.have == 0 && self.left == 0
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Error> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let n = self.left.min(bytes.len());
                if let Some((_, body)) = &mut self.captured {
                    body.extend_from_slice(&bytes[..n]);
                }
                self.left -= n;
                bytes = &bytes[n..];
                self.finish_if_complete(events);
                continue;
            }
            let n = (HEADER_SIZE - self.have).min(bytes.len());
            self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if let Some(header) = message::header(&self.header[..self.have])? {
                self.begin(header, events)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, header: Header, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.nested.contains(&header.tag) {
            return Err(Error::protocol(
                "compressed frame",
                "ordinary messages inside",
                format!("a nested message of type {}", message::printable(header.tag)),
            ));
        }
        self.have = 0;
        self.left = header.body_size();
        self.captured = self.sender.watches(header).then(|| (header.tag, std::mem::take(&mut self.spare)));
        self.finish_if_complete(events);
        Ok(())
    }

    fn finish_if_complete(&mut self, events: &mut Vec<Event>) {
        if self.left == 0
            && let Some((tag, mut body)) = self.captured.take()
        {
            events.extend(self.sender.read(tag, &body));
            body.clear();
            self.spare = body;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_seen_wherever_the_stream_is_cut() {
        let mut stream = message::message(tag::QUERY, b"SET pgshrink.compression = 'off'\0");
        stream.extend(message::message(tag::TERMINATE, b""));
        stream.extend(message::message(tag::PARSE, b"s1\0RESET pgshrink.compression\0\0\0"));
        for cut in 0..stream.len() {
            let mut walker = Walker::new(Sender::Client, &[tag::COMPRESSED_DATA]);
            let mut events = Vec::new();
            walker.feed(&stream[..cut], &mut events).unwrap();
            walker.feed(&stream[cut..], &mut events).unwrap();
            assert_eq!(
                events,
                [Event::Set(Change::Value("off".into())), Event::Set(Change::Default)],
                "cut at {cut}"
            );
            assert!(walker.at_boundary());
        }
    }

    #[test]
    fn a_nested_frame_is_refused() {
        let mut walker = Walker::new(Sender::Client, &[tag::COMPRESSED_DATA]);
        let inner = message::message(tag::COMPRESSED_DATA, b"x");
        let error = walker.feed(&inner, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("nested message of type 'm'"), "{error}");
    }
}
