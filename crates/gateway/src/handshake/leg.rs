//! A stream during the handshake: whole messages in, whole messages out, and nothing read is ever lost.

use std::io;

use pgshrink_wire::message::{self, Header};
use pgshrink_wire::walk::{Found, message_at};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, timeout};

use crate::error::{Failure, Refusal, sqlstate};
use crate::stream::Stream;

/// Bytes read at once.
const READ_SIZE: usize = 4096;
/// How long a client that is told goodbye may take to close.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);

/// One side of a session with the bytes that were read ahead.
pub(crate) struct Leg {
    pub(crate) stream: Stream,
    pub(crate) ahead: Vec<u8>,
    side: &'static str,
}

impl Leg {
    pub(crate) fn new(stream: Stream, side: &'static str) -> Self {
        Self { stream, ahead: Vec::new(), side }
    }

    fn lost(&self, error: io::Error) -> Failure {
        Failure::Lost(self.side, error)
    }

    /// Reads once. `Ok(0)` is the end of the stream. Cancel-safe.
    pub(crate) async fn fill(&mut self) -> Result<usize, Failure> {
        self.ahead.reserve(READ_SIZE);
        let mut limited = (&mut self.stream).take(READ_SIZE as u64);
        match limited.read_buf(&mut self.ahead).await {
            Ok(n) => Ok(n),
            Err(e) => Err(self.lost(e)),
        }
    }

    /// Waits until a whole message of at most `size_max` bytes is there, and leaves it there. `None` is the end of
    /// the stream. Cancel-safe.
    pub(crate) async fn peek(&mut self, size_max: usize) -> Result<Option<Header>, Failure> {
        loop {
            if let Some(Found { header, body }) = message_at(&self.ahead, 0)? {
                if header.total() > size_max {
                    return Err(Refusal::new(
                        sqlstate::PROTOCOL_VIOLATION,
                        format!(
                            "message of type '{}' from the {} during authentication has {} bytes, at most {size_max} are allowed",
                            char::from(header.tag).escape_default(),
                            self.side,
                            header.total()
                        ),
                    )
                    .hostile()
                    .into());
                }
                if body.is_some() {
                    return Ok(Some(header));
                }
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The body of the message that [`peek`](Self::peek) found.
    pub(crate) fn body(&self, header: Header) -> &[u8] {
        &self.ahead[message::HEADER_SIZE..header.total()]
    }

    /// Takes the message that [`peek`](Self::peek) found.
    pub(crate) fn take(&mut self, header: Header) -> Vec<u8> {
        let rest = self.ahead.split_off(header.total());
        std::mem::replace(&mut self.ahead, rest)
    }

    /// Writes everything.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match sent.await {
            Ok(()) => Ok(()),
            Err(e) => Err(self.lost(e)),
        }
    }

    /// Says a last word and closes without waiting for anything, where too many are waited for already.
    pub(crate) async fn part(mut self, last: &[u8]) {
        // What does not go at once does not go.
        let _ = timeout(Duration::ZERO, self.send(last)).await;
    }

    /// Says a last word and waits a little for the peer to close first: closing with unread input makes the
    /// kernel send a reset, which can overtake the word.
    pub(crate) async fn farewell(mut self, last: &[u8]) {
        let goodbye = async {
            self.stream.write_all(last).await?;
            self.stream.shutdown().await?;
            self.ahead = vec![0; READ_SIZE];
            while self.stream.read(&mut self.ahead).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        // Whatever goes wrong here: the connection is closed next.
        let _ = timeout(FAREWELL_LIMIT, goodbye).await;
    }
}
