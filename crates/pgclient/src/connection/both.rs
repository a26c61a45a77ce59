//! COPY in both directions: the part of streaming replication that is messages.

use std::ops::Range;
use std::time::Instant;

use pgshrink_wire::message::tag;

use super::results::check_text;
use super::{Connection, Phase, State, Wait};
use crate::Error;
use crate::protocol::backend::Streamed;
use crate::protocol::frontend;

impl Connection {
    /// Sends the command. False when the server answers it with results instead of a stream; they are to be read.
    pub(crate) fn begin_stream(&mut self, command: &str) -> Result<bool, Error> {
        check_text("the command", command)?;
        self.begin(Phase::Replication)?;
        frontend::query(&mut self.outgoing, command);
        self.flush()?;
        loop {
            let Some(found) = self.receive(Wait::Silence)? else { continue };
            match found.tag {
                tag::COPY_BOTH_RESPONSE => return Ok(true),
                tag::ROW_DESCRIPTION => return Ok(false),
                tag::ERROR_RESPONSE => return Err(self.failed(found.body)),
                other => {
                    return Err(self.unexpected("answer to START_REPLICATION", "CopyBothResponse", other));
                }
            }
        }
    }

    /// The next CopyData message, until a time: `Some(None)` is the end of the server's data, after which results are to be
    /// read, and `None` that the time has come.
    pub(crate) fn receive_streamed(&mut self, until: Instant) -> Result<Option<Option<Range<usize>>>, Error> {
        let Some(found) = self.receive(Wait::Until(until))? else { return Ok(None) };
        match found.tag {
            tag::COPY_DATA => Ok(Some(Some(found.body))),
            tag::COPY_DONE => Ok(Some(None)),
            tag::ERROR_RESPONSE => Err(self.failed(found.body)),
            other => Err(self.unexpected("stream of WAL", "CopyData or CopyDone", other)),
        }
    }

    /// What a CopyData message has in it.
    pub(crate) fn streamed(&mut self, payload: Range<usize>) -> Result<Streamed<'_>, Error> {
        let parsed = Streamed::parse(self.buffer.get(payload));
        parsed.map_err(|malformed| {
            self.state = State::Broken;
            Error::Protocol {
                place: self.route.place().clone(),
                phase: self.phase,
                malformed: Box::new(malformed),
            }
        })
    }

    /// Sends a message of a stream that is under way.
    pub(crate) fn send_streamed(&mut self, message: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        if self.state == State::Broken {
            return Err(self.closed());
        }
        message(&mut self.outgoing);
        self.flush()
    }
}
