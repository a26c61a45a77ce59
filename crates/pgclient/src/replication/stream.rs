//! A stream of WAL, and the status updates that go the other way.
//!
//! ```text
//!  server:  CopyBothResponse  w w k w …  CopyDone            [next timeline]  CommandComplete
//!  client:                    r     r …            CopyDone
//! ```
//! Either side may send its CopyDone first.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::connection::{Connection, Event, Results};
use crate::protocol::backend::Streamed;
use crate::protocol::{Lsn, frontend};

/// 2000-01-01 UTC, in seconds since 1970-01-01.
const POSTGRES_EPOCH_SECONDS: u64 = 946_684_800;

/// WAL that is being received.
#[derive(Debug)]
pub struct WalStream<'c> {
    connection: &'c mut Connection,
    sent_done: bool,
    ended: Option<Option<(u32, Lsn)>>,
}

/// One step of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalEvent<'a> {
    /// WAL, borrowed from the connection's buffer.
    Wal {
        /// The position of its first byte.
        start: Lsn,
        /// The server's end of WAL.
        server_end: Lsn,
        /// The server's clock, microseconds since 2000-01-01 UTC.
        server_clock: i64,
        /// At most 128 KiB from a stock server.
        data: &'a [u8],
    },
    /// A sign of life.
    Keepalive {
        /// The server's end of WAL.
        server_end: Lsn,
        /// The server's clock, microseconds since 2000-01-01 UTC.
        server_clock: i64,
        /// The server ends the connection soon unless it gets a status update.
        reply_wanted: bool,
    },
    /// The stream is complete and the connection takes commands again. When the timeline ended, the next one is
    /// named, with the position where it begins.
    End {
        /// The next timeline.
        next: Option<(u32, Lsn)>,
    },
}

/// How far this client is. A position is the byte behind the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Received and written.
    pub written: Lsn,
    /// Safe on the disk: a slot keeps nothing before it.
    pub flushed: Lsn,
    /// Replayed.
    pub applied: Lsn,
    /// Asks the server for a sign of life.
    pub reply_wanted: bool,
}

impl<'c> WalStream<'c> {
    pub(super) fn begin(connection: &'c mut Connection, command: &str) -> Result<Self, Error> {
        let mut stream = Self { connection, sent_done: false, ended: None };
        let begun = stream.connection.begin_stream(command)?;
        if !begun {
            // The position is the end of a timeline that is over.
            stream.ended = Some(stream.read_end()?);
        }
        Ok(stream)
    }

    /// The next event, or `None` when none came within `wait`. A zero `wait` takes what is there.
    ///
    /// # Errors
    /// [`Error::Server`], [`Error::TimedOut`] when the server sent nothing at all for the connection's read timeout, and
    /// the other errors of network and protocol.
    #[allow(clippy::should_implement_trait, reason = "an event borrows from the connection")]
    pub fn next(&mut self, wait: Duration) -> Result<Option<WalEvent<'_>>, Error> {
        if let Some(next) = self.ended {
            return Ok(Some(WalEvent::End { next }));
        }
        let Some(found) = self.connection.receive_streamed(Instant::now() + wait)? else { return Ok(None) };
        let Some(payload) = found else {
            self.stop()?;
            let next = self.read_end()?;
            self.ended = Some(next);
            return Ok(Some(WalEvent::End { next }));
        };
        Ok(Some(match self.connection.streamed(payload)? {
            Streamed::Wal { start, end, clock, data } => {
                WalEvent::Wal { start: Lsn(start), server_end: Lsn(end), server_clock: clock, data }
            }
            Streamed::Keepalive { end, clock, reply } => {
                WalEvent::Keepalive { server_end: Lsn(end), server_clock: clock, reply_wanted: reply }
            }
        }))
    }

    /// Sends a status update, unless the stream has been stopped.
    ///
    /// # Errors
    /// Those of the network.
    pub fn report(&mut self, status: &Status) -> Result<(), Error> {
        if self.sent_done || self.ended.is_some() {
            return Ok(());
        }
        let mut update = vec![b'r'];
        for position in [status.written, status.flushed, status.applied] {
            update.extend_from_slice(&position.0.to_be_bytes());
        }
        update.extend_from_slice(&now().to_be_bytes());
        update.push(status.reply_wanted.into());
        self.connection.send_streamed(|out| frontend::copy_data(out, &update))
    }

    /// Asks the server to end the stream. What it has sent already still comes, then [`WalEvent::End`].
    ///
    /// # Errors
    /// Those of the network.
    pub fn stop(&mut self) -> Result<(), Error> {
        if self.sent_done || self.ended.is_some() {
            return Ok(());
        }
        self.sent_done = true;
        self.connection.send_streamed(frontend::copy_done)
    }

    fn read_end(&mut self) -> Result<Option<(u32, Lsn)>, Error> {
        let mut next = None;
        let mut malformed = false;
        let mut results = Results::of(self.connection);
        while let Some(event) = results.next()? {
            if let Event::Row(row) = event {
                let text = |index| row.get(index).and_then(|value| std::str::from_utf8(value).ok());
                let timeline = text(0).and_then(|text| text.parse().ok());
                let position = text(1).and_then(|text| text.parse().ok());
                next = timeline.zip(position);
                malformed |= next.is_none();
            }
        }
        if malformed {
            return Err(super::answer(self.connection, "START_REPLICATION", "a timeline and its start"));
        }
        Ok(next)
    }
}

/// The clock in PostgreSQL's unit: microseconds since 2000-01-01 UTC. A wrong clock does no harm: the server only
/// shows it.
fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since_2000 = since_1970.saturating_sub(Duration::from_secs(POSTGRES_EPOCH_SECONDS));
    i64::try_from(since_2000.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_past_2020_and_before_2200() {
        let year = now() / 1_000_000 / 31_556_952;
        assert!((20..200).contains(&year), "{year}");
    }
}
