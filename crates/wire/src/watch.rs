//! What the engine reads in passing from either side's messages.

use crate::error::Error;
use crate::follow::{Answers, Expected, Place, Requests};
use crate::message::{self, Header, tag};
use crate::setting::{STATEMENT_SIZE_MAX, Search};
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
    /// The client sends a query text that names `pgshrink.compression` and does not change it.
    Said(Said),
    /// The client asks for a change of it, which counts when the server has answered.
    Expected(Expected),
    /// The server has answered that.
    Confirmed {
        expected: Expected,
        /// The command was DISCARD ALL.
        discards: bool,
    },
    /// The server is ready.
    Ready {
        /// Outside a transaction.
        idle: bool,
        /// Where its next answer will stand.
        next: Place,
        /// ParseComplete and CloseComplete messages since it was ready before.
        made: u32,
        /// No change waits for its answer.
        is_settled: bool,
    },
    /// COPY FROM STDIN begins, whose own answer will stand here.
    CopyIn { own: Place },
    /// COPY in both directions begins: replication.
    CopyBoth,
}

/// A query text about the setting, and where its message lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) what: Saying,
    /// Query or Parse.
    pub(crate) tag: u8,
    /// False for unnamed prepared statements and simple queries, which are used once.
    pub(crate) is_named: bool,
    /// Bytes of the whole message.
    pub(crate) size: usize,
    /// Bytes of the stream up to the message's end.
    pub(crate) end: u64,
}

/// What a query text has to do with the setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saying {
    /// It is nothing but SHOW.
    Show,
    /// It names it in a way that is not followed.
    Other,
    /// It names it, and is too long to be read.
    TooLong,
}

/// A watched message is small; a longer one of the same type is something else.
pub(crate) const WATCHED_SIZE_MAX: usize = STATEMENT_SIZE_MAX + 64;

impl Sender {
    /// True for messages that [`Watch::read`] learns from.
    fn knows(self, tag: u8) -> bool {
        match self {
            Sender::Client => matches!(
                tag,
                tag::QUERY
                    | tag::FUNCTION_CALL
                    | tag::PARSE
                    | tag::BIND
                    | tag::EXECUTE
                    | tag::CLOSE
                    | tag::SYNC
                    | tag::COPY_DONE
                    | tag::COPY_FAIL
            ),
            Sender::Server => matches!(
                tag,
                tag::READY_FOR_QUERY
                    | tag::COMMAND_COMPLETE
                    | tag::EMPTY_QUERY_RESPONSE
                    | tag::PORTAL_SUSPENDED
                    | tag::PARSE_COMPLETE
                    | tag::CLOSE_COMPLETE
                    | tag::COPY_IN_RESPONSE
                    | tag::COPY_BOTH_RESPONSE
            ),
        }
    }

    /// Types that come in long runs, of which a receiver wants many rather than one soon.
    pub(crate) fn is_bulk(tag: u8) -> bool {
        matches!(tag, tag::DATA_ROW | tag::COPY_DATA)
    }
}

/// What is known of one direction's messages.
#[derive(Debug)]
pub(crate) struct Watch {
    sender: Sender,
    /// Used where the sender is the client.
    pub(crate) requests: Requests,
    /// Used where the sender is the server.
    pub(crate) answers: Answers,
}

impl Watch {
    pub(crate) fn new(sender: Sender) -> Self {
        Self { sender, requests: Requests::default(), answers: Answers::default() }
    }

    /// True when the body of this message has to be seen whole.
    pub(crate) fn wants(&self, header: Header) -> bool {
        self.sender.knows(header.tag) && header.total() <= WATCHED_SIZE_MAX
    }

    /// Every message once, in order; `body` is `None` where it is not wanted. `end` is its end in the stream.
    pub(crate) fn read(&mut self, header: Header, body: Option<&[u8]>, end: u64, events: &mut Vec<Event>) {
        match self.sender {
            Sender::Client => self.requests.read(header, body, end, events),
            Sender::Server => self.answers.read(header, body, events),
        }
    }
}

/// Follows what comes out of frames, reads what is watched, refuses nested frames.
#[derive(Debug)]
pub(crate) struct Walker {
    pub(crate) watch: Watch,
    /// Tags that may not occur inside a frame.
    nested: &'static [u8],
    walk: Walk,
    /// Over a query text that is too long to be read.
    search: Search,
}

impl Walker {
    pub(crate) fn new(sender: Sender, nested: &'static [u8]) -> Self {
        Self { watch: Watch::new(sender), nested, walk: Walk::default(), search: Search::default() }
    }

    pub(crate) fn at_boundary(&self) -> bool {
        self.walk.at_boundary()
    }

    /// Bytes of the stream so far: where the `end` of an event is counted from.
    pub(crate) fn fed(&self) -> u64 {
        self.walk.position()
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Error> {
        let Self { watch, nested, walk, search } = self;
        let (sender, begin) = (watch.sender, walk.position());
        walk.feed(
            bytes,
            |header| {
                if nested.contains(&header.tag) {
                    return Err(is_nested(header));
                }
                let kept = if header.total() <= WATCHED_SIZE_MAX { WATCHED_SIZE_MAX } else { 0 };
                Ok(sender.knows(header.tag).then_some(kept))
            },
            |message| {
                let header = message.header;
                if header.total() <= WATCHED_SIZE_MAX {
                    return watch.read(header, Some(message.body), message.end, events);
                }
                watch.read(header, None, message.end, events);
                if is_long_text(sender, header) {
                    // Of a message that began earlier, its end is here.
                    let is_whole = message.body.len() == header.body_size();
                    let end = (message.end - begin) as usize;
                    search.feed(if is_whole { message.body } else { &bytes[..end] });
                    if search.finish() {
                        let (tag, size, end) = (header.tag, header.total(), message.end);
                        let what = Saying::TooLong;
                        events.push(Event::Said(Said { what, tag, is_named: false, size, end }));
                    }
                }
            },
        )?;
        if let Some((header, left)) = walk.begun()
            && is_long_text(sender, header)
        {
            let here = bytes.len().min(header.body_size() - left);
            search.feed(&bytes[bytes.len() - here..]);
        }
        Ok(())
    }
}

/// True for a query text that is not read, only searched.
fn is_long_text(sender: Sender, header: Header) -> bool {
    let is_text = sender == Sender::Client && matches!(header.tag, tag::QUERY | tag::PARSE);
    is_text && header.total() > WATCHED_SIZE_MAX
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

    fn walked(stream: &[u8], cut: usize) -> Vec<Event> {
        let mut walker = Walker::new(Sender::Client, &[tag::COMPRESSED_DATA]);
        let mut events = Vec::new();
        walker.feed(&stream[..cut], &mut events).unwrap();
        walker.feed(&stream[cut..], &mut events).unwrap();
        assert!(walker.at_boundary());
        events
    }

    #[test]
    fn events_are_seen_wherever_the_stream_is_cut() {
        let mut stream = message::message(tag::QUERY, b"SET pgshrink.compression = 'off'\0");
        stream.extend(message::message(tag::TERMINATE, b""));
        stream.extend(message::message(tag::PARSE, b"s1\0SHOW pgshrink.compression\0\0\0"));
        for cut in 0..stream.len() {
            let events = walked(&stream, cut);
            let [Event::Expected(expected), Event::Said(said)] = &events[..] else { panic!("{events:?}") };
            assert_eq!(expected.change, Change::Value("off".into()), "cut at {cut}");
            let show = Said { what: Saying::Show, tag: tag::PARSE, is_named: true, size: 36, end: 79 };
            assert_eq!(*said, show, "cut at {cut}");
        }
    }

    #[test]
    fn a_long_text_that_names_the_setting_is_seen_wherever_the_stream_is_cut() {
        let blanks = " ".repeat(WATCHED_SIZE_MAX);
        for (sql, count) in [("SET pgshrink.compression = 'off'", 1), ("SELECT 1", 0)] {
            let long = message::message(tag::QUERY, format!("{sql}{blanks}\0").as_bytes());
            let after = message::message(tag::QUERY, b"SELECT 1\0");
            let row = message::message(tag::COPY_DATA, format!("pgshrink.compression{blanks}").as_bytes());
            let stream = [&row[..], &long, &after].concat();
            for cut in (0..80).chain(row.len() - 5..row.len() + 80).chain(stream.len() - 20..stream.len()) {
                let events = walked(&stream, cut);
                let is_long =
                    |event: &Event| matches!(event, Event::Said(said) if said.what == Saying::TooLong);
                assert!(events.len() == count && events.iter().all(is_long), "cut at {cut}: {events:?}");
            }
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
