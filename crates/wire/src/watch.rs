//! What the engine reads in passing from either side's messages.

use crate::error::Error;
use crate::message::{self, HEADER_SIZE, Header, tag};
use crate::setting::{self, STATEMENT_SIZE_MAX, Seen};
use crate::walk::Walk;

/// Whose messages a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Server,
}

/// Something the other direction, or the policy, wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The client sends a query text that has to do with `pgshrink.compression`.
    Setting(Said),
    /// The server is ready; true outside a transaction.
    Ready { idle: bool },
    /// COPY in both directions begins: replication.
    CopyBoth,
}

/// A query text about the setting, and where its message lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) seen: Seen,
    /// Query or Parse.
    pub(crate) tag: u8,
    /// False for unnamed prepared statements and simple queries, which are used once.
    pub(crate) is_named: bool,
    /// Bytes of the whole message.
    pub(crate) size: usize,
    /// Bytes of the stream up to the message's end.
    pub(crate) end: u64,
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
            (Sender::Client, tag::QUERY) => read_text(tag, body, body, false),
            (Sender::Client, tag::PARSE) => {
                // Statement name, zero, statement, zero, parameter types.
                let mut parts = body.splitn(3, |b| *b == 0);
                let name = parts.next()?;
                read_text(tag, body, parts.next()?, !name.is_empty())
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

/// The message's end is filled in by who knows it.
fn read_text(tag: u8, body: &[u8], sql: &[u8], is_named: bool) -> Option<Event> {
    let size = HEADER_SIZE + body.len();
    setting::read(sql).map(|seen| Event::Setting(Said { seen, tag, is_named, size, end: 0 }))
}

/// Follows what comes out of frames, reads what is watched, refuses nested frames.
#[derive(Debug)]
pub(crate) struct Walker {
    sender: Sender,
    /// Tags that may not occur inside a frame.
    nested: &'static [u8],
    walk: Walk,
}

impl Walker {
    pub(crate) fn new(sender: Sender, nested: &'static [u8]) -> Self {
        Self { sender, nested, walk: Walk::default() }
    }

    pub(crate) fn at_boundary(&self) -> bool {
        self.walk.at_boundary()
    }

    /// Bytes of the stream so far: where the `end` of an event is counted from.
    pub(crate) fn fed(&self) -> u64 {
        self.walk.position()
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Error> {
        let Self { sender, nested, walk } = self;
        walk.feed(
            bytes,
            |header| {
                if nested.contains(&header.tag) {
                    return Err(is_nested(header));
                }
                Ok(sender.watches(header).then_some(WATCHED_SIZE_MAX))
            },
            |message| {
                let mut event = sender.read(message.header.tag, message.body);
                if let Some(Event::Setting(said)) = &mut event {
                    said.end = message.end;
                }
                events.extend(event);
            },
        )
    }
}

#[cold]
fn is_nested(header: Header) -> Error {
    Error::protocol(
        "compressed frame",
        "ordinary messages inside",
        format!("a nested message of type {}", message::printable(header.tag)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Change;

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
            let said = |change, tag, is_named, size, end| {
                Event::Setting(Said { seen: Seen::Change(change), tag, is_named, size, end })
            };
            let off = said(Change::Value("off".into()), tag::QUERY, false, 38, 38);
            let reset = said(Change::Default, tag::PARSE, true, 37, 80);
            assert_eq!(events, [off, reset], "cut at {cut}");
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
