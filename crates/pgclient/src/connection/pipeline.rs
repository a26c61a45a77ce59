//! Prepared statements whose executions are sent ahead of their answers, so that a link's latency does not matter.
//!
//! Each request is a transaction of its own: an error is the answer to that request and the others go on.

use pgshrink_wire::message::tag;

use super::results::check_text;
use super::{Connection, Phase, State, Wait};
use crate::Error;
use crate::protocol::backend::{Report, Row};
use crate::protocol::frontend::{self, Format, PARAMETER_COUNT_MAX};

/// Most bytes of requests whose answers have not been read. The server must be able to take them all while it waits
/// for this client to read: then neither waits for the other.
pub const REQUEST_BYTES_MAX: usize = 32 << 10;

pub(super) const BIND_COMPLETE: u8 = b'2';

/// A statement that a session has prepared. It belongs to that session alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    name: String,
    process_id: Option<u32>,
}

impl Statement {
    /// What DEALLOCATE calls it: needs no quotes.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Requests under way. Dropped before every answer was read, it leaves the connection unusable.
#[derive(Debug)]
pub struct Pipeline<'c> {
    connection: &'c mut Connection,
    /// Those whose answers have not ended, the oldest first.
    requests: std::collections::VecDeque<Request>,
    /// The sum of their sizes.
    bytes: usize,
    ended: Option<Outcome>,
}

#[derive(Debug)]
struct Request {
    size: usize,
    /// Executions that have not ended.
    executions: usize,
}

/// An execution of a statement with its parameters, in text form.
pub type Execution<'p> = (&'p Statement, &'p [Option<&'p [u8]>]);

/// How a request ended, until its ReadyForQuery has come.
#[derive(Debug)]
enum Outcome {
    Complete(String),
    Failed(Box<Report>),
}

/// One step of the answers, which come in the order of the requests.
#[derive(Debug)]
pub enum Reply<'a> {
    /// A row, values in binary form, borrowed from the connection's buffer.
    Row(Row<'a>),
    /// The end of a request's answer: `SELECT 1`.
    Complete(String),
    /// The end of a request's answer that is an error.
    Failed(Box<Report>),
}

impl Connection {
    /// Prepares one statement; the server infers the types of its parameters.
    ///
    /// # Errors
    /// As [`query`](Connection::query), and [`Error::Server`] when the server refuses the statement.
    pub fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        check_text("the statement", sql)?;
        self.begin(Phase::Query)?;
        self.statements += 1;
        let name = format!("pgshrink_{}", self.statements);
        frontend::parse(&mut self.outgoing, &name, sql);
        frontend::sync(&mut self.outgoing);
        self.flush()?;
        loop {
            let Some(found) = self.receive(Wait::Silence)? else { continue };
            match found.tag {
                tag::PARSE_COMPLETE => {}
                tag::ERROR_RESPONSE => return Err(self.failed(found.body)),
                tag::READY_FOR_QUERY => {
                    self.state = State::Ready;
                    return Ok(Statement { name, process_id: self.process_id() });
                }
                other => return Err(self.unexpected("answer to Parse", "ParseComplete", other)),
            }
        }
    }

    /// Begins a pipeline.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`].
    pub fn pipeline(&mut self) -> Result<Pipeline<'_>, Error> {
        self.begin(Phase::Pipeline)?;
        self.state = State::Ready;
        Ok(Pipeline { connection: self, requests: Default::default(), bytes: 0, ended: None })
    }
}

impl Pipeline<'_> {
    /// Requests whose answers have not been read to their ends.
    pub fn pending(&self) -> usize {
        self.requests.len()
    }

    /// Whether a request of this many bytes may be sent now.
    pub fn has_room(&self, parameters: &[Option<&[u8]>]) -> bool {
        self.requests.is_empty() || self.bytes + size(parameters) <= REQUEST_BYTES_MAX
    }

    /// Asks for one execution; parameters are in text form. It is sent when an answer is read, or by
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Error::RequestLimit`] when there are too many parameters, or answers must be read first:
    /// [`has_room`](Self::has_room) tells.
    pub fn request(&mut self, statement: &Statement, parameters: &[Option<&[u8]>]) -> Result<(), Error> {
        self.request_all(&[(statement, parameters)])
    }

    /// Asks for several executions, one after the other, as one request. Its answer has the rows of all of them, and ends
    /// as the last one ends, or with the first error: what comes behind that is not executed. They are one transaction,
    /// unless there is a BEGIN among them.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_all(&mut self, executions: &[Execution<'_>]) -> Result<(), Error> {
        let mut sum = 0;
        for (statement, parameters) in executions {
            debug_assert_eq!(
                statement.process_id,
                self.connection.process_id(),
                "a statement of another session"
            );
            check_count(parameters.len())?;
            sum += size(parameters);
        }
        if self.bytes + sum > REQUEST_BYTES_MAX {
            let (found, allowed) = (self.bytes + sum, REQUEST_BYTES_MAX);
            return Err(Error::RequestLimit { what: "size of pipelined requests", found, allowed });
        }
        if self.connection.state == State::Broken {
            return Err(self.connection.closed());
        }
        let out = &mut self.connection.outgoing;
        for (statement, parameters) in executions {
            frontend::bind(out, &statement.name, parameters, Format::Binary);
            frontend::execute(out);
        }
        frontend::sync(out);
        self.connection.state = State::Busy;
        self.requests.push_back(Request { size: sum, executions: executions.len() });
        self.bytes += sum;
        Ok(())
    }

    /// Sends the requests that are waiting.
    ///
    /// # Errors
    /// Those of the network.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.connection.flush()
    }

    /// The next step of the answers; `None` when every request is answered.
    ///
    /// # Errors
    /// Those of network and protocol. An error of a request is a [`Reply::Failed`], unless the server ended the
    /// session with it.
    #[allow(clippy::should_implement_trait, reason = "a row borrows from the connection")]
    pub fn next(&mut self) -> Result<Option<Reply<'_>>, Error> {
        self.flush()?;
        while !self.requests.is_empty() {
            let found = match self.connection.receive(Wait::Silence) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) => return Err(self.session_ended(error)),
            };
            match (found.tag, self.ended.take()) {
                (BIND_COMPLETE, None) => {}
                (tag::COMMAND_COMPLETE | tag::EMPTY_QUERY_RESPONSE, None) if self.has_more() => {}
                (tag::DATA_ROW, None) => {
                    return self.connection.row(found.body).map(|row| Some(Reply::Row(row)));
                }
                (tag::COMMAND_COMPLETE, None) => {
                    let body = self.connection.buffer.get(found.body);
                    let text = String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(body)).into_owned();
                    self.ended = Some(Outcome::Complete(text));
                }
                (tag::EMPTY_QUERY_RESPONSE, None) => self.ended = Some(Outcome::Complete(String::new())),
                (tag::ERROR_RESPONSE, _) => {
                    let report = Report::parse(self.connection.buffer.get(found.body));
                    self.ended = Some(Outcome::Failed(Box::new(report)));
                }
                (tag::READY_FOR_QUERY, Some(outcome)) => return Ok(Some(self.end_request(outcome))),
                (other, _) => {
                    let expected = "the parts of an answer in their order";
                    return Err(self.connection.unexpected("answer to Execute", expected, other));
                }
            }
        }
        Ok(None)
    }

    /// Ends an execution. False: it was the last of its request.
    fn has_more(&mut self) -> bool {
        let Some(request) = self.requests.front_mut() else { return false };
        request.executions = request.executions.saturating_sub(1);
        request.executions > 0
    }

    fn end_request<'a>(&mut self, outcome: Outcome) -> Reply<'a> {
        self.bytes -= self.requests.pop_front().map_or(0, |request| request.size);
        if self.requests.is_empty() {
            self.connection.state = State::Ready;
        }
        match outcome {
            Outcome::Complete(text) => Reply::Complete(text),
            Outcome::Failed(report) => Reply::Failed(report),
        }
    }

    /// What the server said before it ended the session is the reason.
    fn session_ended(&mut self, error: Error) -> Error {
        match self.ended.take() {
            Some(Outcome::Failed(report)) => {
                let place = self.connection.place().clone();
                Error::Server { place, phase: Phase::Pipeline, report }
            }
            _ => error,
        }
    }
}

impl Connection {
    /// A DataRow, checked.
    pub(super) fn row(&mut self, body: std::ops::Range<usize>) -> Result<Row<'_>, Error> {
        Row::parse(self.buffer.get(body)).map_err(|malformed| {
            self.state = State::Broken;
            Error::Protocol {
                place: self.route.place().clone(),
                phase: self.phase,
                malformed: Box::new(malformed),
            }
        })
    }
}

pub(super) fn check_count(found: usize) -> Result<(), Error> {
    let (what, allowed) = ("number of parameters", PARAMETER_COUNT_MAX);
    if found > allowed { Err(Error::RequestLimit { what, found, allowed }) } else { Ok(()) }
}

/// Bytes of a request: its parameters and, generously, the rest of its messages.
fn size(parameters: &[Option<&[u8]>]) -> usize {
    const REST: usize = 64;
    parameters.iter().map(|parameter| parameter.map_or(0, <[u8]>::len) + 4).sum::<usize>() + REST
}
