//! Where a session stands: at a message boundary, inside a transaction, waiting for an answer.
//!
//! Owns a [walk](crate::walk) over the message headers of both directions, fed with every plain byte. A draining process may
//! close a session only when nothing of the client's would be lost, and nothing shorter than this walk knows that:
//! the last bytes of a data row can look like ReadyForQuery. The walk reads five bytes per message of chunks that are
//! in the cache anyway (see `docs/operating/wire.md` for what it costs).
//!
//! Invariant: errors go one way. When the count of awaited answers is wrong (a client that pipelines COPY in ways the
//! protocol leaves open), the session looks busy, never idle.

use crate::message::tag;
use crate::walk::Walk;

/// Largest body kept for a message that is split between reads: a key of 256 bytes and its pid.
const KEPT_SIZE_MAX: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copy {
    None,
    /// COPY FROM STDIN; true when a simple query began it.
    In(bool),
    Both,
}

/// Both directions of one session, from AuthenticationOk on.
#[derive(Debug)]
pub struct Conversation {
    client: Walk,
    server: Walk,
    /// ReadyForQuery messages still to come.
    awaited: u32,
    /// Extended-protocol messages without their Sync yet.
    unsynced: bool,
    last_was_simple: bool,
    copy: Copy,
    /// `I`, `T` or `E` of the last ReadyForQuery, 0 before the first.
    status: u8,
    /// The first BackendKeyData's body, until it is taken.
    key: Option<Vec<u8>>,
    queries: u64,
}

impl Default for Conversation {
    fn default() -> Self {
        Self {
            client: Walk::default(),
            server: Walk::default(),
            awaited: 1,
            unsynced: false,
            last_was_simple: false,
            copy: Copy::None,
            status: 0,
            key: None,
            queries: 0,
        }
    }
}

impl Conversation {
    /// True when the session can be closed without losing anything: idle outside a transaction with nothing
    /// asked, or a replication stream between two messages, which its receiver resumes by itself.
    pub fn can_end(&self) -> bool {
        let between = self.client.at_boundary() && self.server.at_boundary();
        let idle = self.awaited == 0 && !self.unsynced && self.status == b'I';
        between && (idle || self.copy == Copy::Both)
    }

    /// True when a message may be put behind what the server has said so far.
    pub fn server_at_boundary(&self) -> bool {
        self.server.at_boundary()
    }

    /// Bytes that are still to come of the message the client is in the middle of, 0 between two. `None`: inside a header.
    #[inline]
    pub fn client_left(&self) -> Option<usize> {
        self.client.left()
    }

    /// The same of the server.
    #[inline]
    pub fn server_left(&self) -> Option<usize> {
        self.server.left()
    }

    /// True while replication streams in both directions.
    #[inline]
    pub fn is_streaming(&self) -> bool {
        self.copy == Copy::Both
    }

    /// Transaction status as the last ReadyForQuery had it; 0 while an answer or a stream is under way.
    pub fn status(&self) -> u8 {
        let busy = self.awaited > 0 || self.unsynced || self.copy != Copy::None;
        if busy { 0 } else { self.status }
    }

    /// Queries answered so far (ReadyForQuery messages).
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// The cancel key once, when it has come.
    pub fn take_key(&mut self) -> Option<Vec<u8>> {
        self.key.take()
    }

    /// Plain bytes from the client. True when they end inside a message that is not replication's: the rest is bound to come.
    pub fn see_client(&mut self, bytes: &[u8]) -> bool {
        let Self { client, awaited, unsynced, last_was_simple, copy, .. } = self;
        let walked = client.feed(
            bytes,
            |header| Ok((header.tag != tag::COPY_DATA).then_some(0)),
            |message| match message.header.tag {
                tag::QUERY | b'F' => {
                    *awaited += 1;
                    *last_was_simple = true;
                }
                b'S' => {
                    *awaited += 1;
                    *unsynced = false;
                }
                // CopyDone, CopyFail. In COPY the server skips Sync: those sent before the end bring no answer.
                b'c' | b'f' => {
                    if let Copy::In(simple) = *copy {
                        *awaited = u32::from(simple);
                        *unsynced = !simple;
                    }
                }
                _ => {
                    *unsynced = true;
                    *last_was_simple = false;
                }
            },
        );
        // A session whose messages make no sense any more looks busy, which the walk sees to.
        drop(walked);
        *copy != Copy::Both && !client.at_boundary()
    }

    /// Plain bytes from the server; the same.
    pub fn see_server(&mut self, bytes: &[u8]) -> bool {
        let Self { server, awaited, copy, status, key, queries, last_was_simple, .. } = self;
        let walked = server.feed(
            bytes,
            |header| {
                Ok(match header.tag {
                    tag::READY_FOR_QUERY | b'G' | tag::COPY_BOTH_RESPONSE | tag::BACKEND_KEY_DATA => {
                        Some(KEPT_SIZE_MAX)
                    }
                    _ => None,
                })
            },
            |message| match message.header.tag {
                tag::READY_FOR_QUERY => {
                    *awaited = awaited.saturating_sub(1);
                    *status = message.body.first().copied().unwrap_or(0);
                    *copy = Copy::None;
                    *queries += 1;
                }
                b'G' => *copy = Copy::In(*last_was_simple),
                tag::COPY_BOTH_RESPONSE => *copy = Copy::Both,
                _ if *queries == 0 && key.is_none() => *key = Some(message.body.to_vec()),
                _ => {}
            },
        );
        drop(walked);
        *copy != Copy::Both && !server.at_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::message;

    const IDLE: &[u8] = b"Z\0\0\0\x05I";

    fn started() -> Conversation {
        let mut talk = Conversation::default();
        talk.see_server(&[message(b'K', &[1; 8]), IDLE.to_vec()].concat());
        talk
    }

    fn client(talk: &mut Conversation, tags: &str) {
        for tag in tags.bytes() {
            talk.see_client(&message(tag, b"x"));
        }
    }

    #[test]
    fn the_walk_sees_the_same_however_the_input_is_split() {
        let mut input = message(b'D', &[b'Z'; 40]);
        input.extend(message(b'K', &[7; 260]));
        input.extend(IDLE);
        input.extend(message(b'd', b""));
        for size in 1..input.len() {
            let mut talk = Conversation::default();
            for piece in input.chunks(size) {
                talk.see_server(piece);
            }
            assert_eq!((talk.status(), talk.queries()), (b'I', 1), "pieces of {size}");
            assert_eq!(talk.take_key(), Some(vec![7; 260]), "pieces of {size}");
            assert!(talk.can_end(), "pieces of {size}");
        }
    }

    #[test]
    fn a_session_with_an_unanswered_request_cannot_end() {
        let mut talk = started();
        assert!(talk.can_end());
        client(&mut talk, "QQ");
        talk.see_server(IDLE);
        assert!(!talk.can_end(), "the second query is still running");
        talk.see_server(IDLE);
        assert!(talk.can_end());
        client(&mut talk, "PBE");
        assert!(!talk.can_end(), "no Sync yet");
        client(&mut talk, "S");
        talk.see_server(b"Z\0\0\0\x05T");
        assert!(!talk.can_end(), "inside a transaction");
    }

    #[test]
    fn bytes_that_look_like_ready_for_query_inside_a_row_do_not_count() {
        let mut talk = started();
        client(&mut talk, "Q");
        let row = message(b'D', &[b"0123", IDLE].concat());
        talk.see_server(&row);
        assert!(!talk.can_end());
        talk.see_server(&row[..row.len() - 1]);
        assert!(!talk.can_end());
    }

    #[test]
    fn copy_in_by_either_protocol_ends_idle() {
        let mut simple = started();
        client(&mut simple, "Q");
        simple.see_server(&message(b'G', b""));
        client(&mut simple, "ddc");
        assert!(!simple.can_end());
        simple.see_server(IDLE);
        assert!(simple.can_end());

        let mut extended = started();
        client(&mut extended, "PBES");
        extended.see_server(&message(b'G', b""));
        client(&mut extended, "dc");
        assert!(!extended.can_end());
        client(&mut extended, "S");
        extended.see_server(IDLE);
        assert!(extended.can_end(), "the Sync that COPY swallowed is not awaited");
    }

    #[test]
    fn a_copy_that_failed_early_leaves_no_awaited_answer_behind() {
        let mut talk = started();
        client(&mut talk, "Q");
        talk.see_server(&message(b'G', b""));
        client(&mut talk, "d");
        talk.see_server(&[message(b'E', b"\0"), IDLE.to_vec()].concat());
        client(&mut talk, "dc");
        assert!(talk.can_end());
    }

    #[test]
    fn a_replication_stream_can_end_between_messages() {
        let mut talk = started();
        client(&mut talk, "Q");
        assert!(!talk.is_streaming());
        talk.see_server(&message(b'W', b""));
        assert!(talk.can_end() && talk.is_streaming());
        assert_eq!((talk.server_left(), talk.client_left()), (Some(0), Some(0)));
        talk.see_server(b"d\0\0");
        assert_eq!(talk.server_left(), None);
        talk.see_server(b"\0\x10part");
        assert_eq!(talk.server_left(), Some(8));
        assert!(!talk.can_end());
    }

    #[test]
    fn something_that_is_not_the_protocol_never_looks_idle() {
        let mut talk = started();
        talk.see_server(b"Q\0\0\0\x01 whatever");
        talk.see_server(IDLE);
        assert!(!talk.can_end() && !talk.server_at_boundary());
    }
}
