//! Where a session stands: at a message boundary, inside a transaction, waiting for an answer.
//!
//! Owns a walk over the message headers of both directions, fed with every plain byte. A draining process may
//! close a session only when nothing of the client's would be lost, and nothing shorter than this walk knows that:
//! the last bytes of a data row can look like ReadyForQuery. The walk reads five bytes per message of chunks that are
//! in the cache anyway (see `docs/operating/wire.md` for what it costs).
//!
//! Invariant: errors go one way. When the count of awaited answers is wrong (a client that pipelines COPY in ways the
//! protocol leaves open), the session looks busy, never idle.

use pgshrink_wire::message::{HEADER_SIZE, tag};

/// Largest body kept for a message that is split between reads: a key of 256 bytes and its pid.
const KEPT_SIZE_MAX: usize = 300;

/// A walk over the messages of one direction.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    header: [u8; HEADER_SIZE],
    have: usize,
    left: usize,
    /// Body of a message of interest that is split between reads.
    kept: Option<Vec<u8>>,
    /// A length was impossible: this is not PostgreSQL's protocol, or not any more.
    lost: bool,
}

impl Walk {
    pub(crate) fn at_boundary(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.lost
    }

    /// Calls `on(tag, body)` for each message whose tag `wanted` likes, when its last byte is there. A body longer than
    /// what is kept is given empty.
    #[inline]
    fn feed(&mut self, mut bytes: &[u8], wanted: impl Fn(u8) -> bool, mut on: impl FnMut(u8, &[u8])) {
        if self.have > 0 || self.left > 0 {
            bytes = self.finish(bytes, &wanted, &mut on);
        }
        while let Some((&[tag, a, b, c, d], body)) = bytes.split_first_chunk::<HEADER_SIZE>() {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            let Some(size) = length.checked_sub(4).filter(|_| !self.lost) else {
                self.lost = true;
                return;
            };
            let Some(rest) = body.get(size..) else { break };
            if wanted(tag) {
                on(tag, &body[..size]);
            }
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.finish(bytes, &wanted, &mut on);
        }
    }

    /// The slow way, for messages split between reads; returns what lies behind the first whole one.
    fn finish<'a>(
        &mut self,
        mut bytes: &'a [u8],
        wanted: &impl Fn(u8) -> bool,
        on: &mut impl FnMut(u8, &[u8]),
    ) -> &'a [u8] {
        if self.left == 0 {
            let n = (HEADER_SIZE - self.have).min(bytes.len());
            self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if self.have < HEADER_SIZE {
                return bytes;
            }
            let [tag, a, b, c, d] = self.header;
            let Some(size) = (u32::from_be_bytes([a, b, c, d]) as usize).checked_sub(4) else {
                self.lost = true;
                return &[];
            };
            self.left = size;
            self.kept = wanted(tag).then(Vec::new);
        }
        let n = self.left.min(bytes.len());
        if let Some(kept) = &mut self.kept
            && kept.len() < KEPT_SIZE_MAX
        {
            kept.extend_from_slice(&bytes[..n.min(KEPT_SIZE_MAX - kept.len())]);
        }
        self.left -= n;
        if self.left == 0 {
            self.have = 0;
            if let Some(kept) = self.kept.take() {
                on(self.header[0], &kept);
            }
        }
        &bytes[n..]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copy {
    None,
    /// COPY FROM STDIN; true when a simple query began it.
    In(bool),
    Both,
}

/// Both directions of one session, from AuthenticationOk on.
#[derive(Debug)]
pub(crate) struct Conversation {
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
    pub(crate) fn can_end(&self) -> bool {
        let between = self.client.at_boundary() && self.server.at_boundary();
        let idle = self.awaited == 0 && !self.unsynced && self.status == b'I';
        between && (idle || self.copy == Copy::Both)
    }

    /// True when a message may be put behind what the server has said so far.
    pub(crate) fn server_at_boundary(&self) -> bool {
        self.server.at_boundary()
    }

    /// Transaction status as the last ReadyForQuery had it; 0 while an answer or a stream is under way.
    pub(crate) fn status(&self) -> u8 {
        let busy = self.awaited > 0 || self.unsynced || self.copy != Copy::None;
        if busy { 0 } else { self.status }
    }

    /// Queries answered so far (ReadyForQuery messages).
    pub(crate) fn queries(&self) -> u64 {
        self.queries
    }

    /// The cancel key once, when it has come.
    pub(crate) fn take_key(&mut self) -> Option<Vec<u8>> {
        self.key.take()
    }

    /// Plain bytes from the client. True when they end inside a message that is not replication's: the rest is bound to come.
    pub(crate) fn see_client(&mut self, bytes: &[u8]) -> bool {
        let Self { client, awaited, unsynced, last_was_simple, copy, .. } = self;
        client.feed(
            bytes,
            |tag| tag != tag::COPY_DATA,
            |tag, _| match tag {
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
        *copy != Copy::Both && !client.at_boundary()
    }

    /// Plain bytes from the server; the same.
    pub(crate) fn see_server(&mut self, bytes: &[u8]) -> bool {
        let Self { server, awaited, copy, status, key, queries, last_was_simple, .. } = self;
        server.feed(
            bytes,
            |tag| {
                matches!(tag, tag::READY_FOR_QUERY | b'G' | tag::COPY_BOTH_RESPONSE | tag::BACKEND_KEY_DATA)
            },
            |tag, body| match tag {
                tag::READY_FOR_QUERY => {
                    *awaited = awaited.saturating_sub(1);
                    *status = body.first().copied().unwrap_or(0);
                    *copy = Copy::None;
                    *queries += 1;
                }
                b'G' => *copy = Copy::In(*last_was_simple),
                tag::COPY_BOTH_RESPONSE => *copy = Copy::Both,
                _ if *queries == 0 && key.is_none() => *key = Some(body.to_vec()),
                _ => {}
            },
        );
        *copy != Copy::Both && !server.at_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_wire::message::message;

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
        talk.see_server(&message(b'W', b""));
        assert!(talk.can_end());
        talk.see_server(b"d\0\0\0\x10part");
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
