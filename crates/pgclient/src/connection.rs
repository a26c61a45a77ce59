//! A blocking session with a live server.
//!
//! Owns sockets, TLS, authentication, and the order of messages. It runs no thread, and every wait ends: connecting within
//! `connect_timeout`, everything else when nothing arrives for the read timeout. What a server sends is checked
//! against [`Limits`] before there is memory for it.
//!
//! ```text
//!  Parameters ─> open ──> route ──> startup ──> Connection ──┬─> results   simple queries, COPY out
//!                hosts,   socket,   password,                ├─> pipeline  extended queries, many in flight
//!                order    TLS       SCRAM                    └─> replication (another module)
//! ```
//!
//! Invariants:
//! 1. No error, `Debug` output or notice shows a password.
//! 2. An answer belongs to the command that was sent last. A connection whose last command was not read to its
//!    end, or whose protocol was broken, takes no other command.
//!
//! Differences from libpq: `load_balance_hosts=random` keeps the order; keepalive and the TCP user timeout are on
//! by default; GSSAPI, SSPI, OAuth, `requirepeer`, revocation lists and encrypted keys are refused by name.

mod auth;
mod both;
mod buffer;
mod cancel;
mod copy;
mod methods;
mod open;
mod password;
mod pipeline;
mod place;
mod results;
mod route;
mod socket;
mod startup;
mod table;
mod transport;

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::time::{Duration, Instant};

use pgshrink_wire::message::tag;

pub use buffer::READ_BUFFER_SIZE;
pub use cancel::{CancelHandle, Closer};
pub use copy::CopyOut;
pub use pipeline::{Execution, Pipeline, REQUEST_BYTES_MAX, Reply, Statement};
pub use place::{Phase, Place};
pub use results::{Event, Results};
pub use socket::ADDRESS_COUNT_MAX;
pub use table::Table;

use crate::Error;
use crate::protocol::backend::Report;
use crate::protocol::{Malformed, frontend};
use buffer::{BadFrame, Found, ReadBuffer};
use route::Route;
use transport::Transport;

/// Most values of server parameters that are kept.
pub const PARAMETER_COUNT_MAX: usize = 200;
/// Longest server parameter that is kept, name and value, in bytes.
pub const PARAMETER_SIZE_MAX: usize = 8 << 10;
/// How long to look for the reason why a server closed a connection.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(100);
/// How long the farewell of a connection that is dropped may take.
const TERMINATE_WAIT: Duration = Duration::from_millis(100);

/// What a connection does where its parameters say nothing.
#[derive(Debug, Clone)]
pub struct Options {
    /// `fallback_application_name`.
    pub application_name: String,
    /// `connect_timeout`: the time for one attempt, from the socket to the end of the server's startup.
    pub connect_timeout: Duration,
    /// How long a server may send nothing before a call gives up; `None` waits for ever.
    pub read_timeout: Option<Duration>,
    /// What is accepted from a server.
    pub limits: Limits,
}

/// The sizes that a server may send, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// One message that is not COPY data: a row, a report.
    pub message_size_max: usize,
    /// One CopyData message.
    pub copy_data_size_max: usize,
    /// All the rows of a query that are collected.
    pub result_size_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            application_name: "pgshrink".to_owned(),
            connect_timeout: Duration::from_secs(30),
            read_timeout: Some(Duration::from_secs(15 * 60)),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_size_max: 16 << 20, copy_data_size_max: 1 << 20, result_size_max: 64 << 20 }
    }
}

/// A session.
pub struct Connection {
    transport: Transport,
    buffer: ReadBuffer,
    /// Messages not sent yet.
    outgoing: Vec<u8>,
    state: State,
    phase: Phase,
    route: Route,
    key: Option<BackendKey>,
    parameters: BTreeMap<String, String>,
    read_timeout: Option<Duration>,
    limits: Limits,
    last_received: Instant,
    statements: u32,
    on_notice: Option<NoticeHandler>,
}

type NoticeHandler = Box<dyn FnMut(&Report) + Send>;

/// What may be sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Any command.
    Ready,
    /// Nothing until the answer has been read to its end.
    Busy,
    /// Nothing any more.
    Broken,
}

#[derive(Clone)]
struct BackendKey {
    process: u32,
    secret: Vec<u8>,
}

/// How long to wait for a message.
#[derive(Debug, Clone, Copy)]
enum Wait {
    /// As long as the server is not silent for the read timeout.
    Silence,
    /// Until then; then there is no message.
    Until(Instant),
    /// Until then; then the attempt has failed.
    Deadline(Instant, Duration),
}

impl Connection {
    /// The server, for messages.
    pub fn place(&self) -> &Place {
        self.route.place()
    }

    /// The last value of a parameter that the server reports: `server_version`, `in_hot_standby` and others.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// The server's version as a number: 150018 for 15.18, 180000 for 18beta1. `None` when it does not say.
    pub fn server_version(&self) -> Option<u32> {
        version_number(self.parameter("server_version")?)
    }

    /// The process that serves this session.
    pub fn process_id(&self) -> Option<u32> {
        self.key.as_ref().map(|key| key.process)
    }

    /// Whether the session is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.transport.tls().is_some()
    }

    /// Sets how long the server may send nothing from now on; `None` waits for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    /// How long the server may send nothing.
    pub fn read_timeout(&self) -> Option<Duration> {
        self.read_timeout
    }

    /// Gives notices to a function; without one they are dropped.
    pub fn on_notice(&mut self, handler: impl FnMut(&Report) + Send + 'static) {
        self.on_notice = Some(Box::new(handler));
    }

    /// Ends the session. Dropping a connection does the same.
    pub fn close(self) {}

    /// Begins a command: nothing may be under way.
    fn begin(&mut self, phase: Phase) -> Result<(), Error> {
        match self.state {
            State::Ready => {
                (self.state, self.phase) = (State::Busy, phase);
                self.last_received = Instant::now();
                Ok(())
            }
            State::Busy => Err(Error::Busy { place: self.place().clone() }),
            State::Broken => Err(self.closed()),
        }
    }

    /// Sends what is waiting to be sent.
    fn flush(&mut self) -> Result<(), Error> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let wait = self.read_timeout;
        let sent = self.transport.set_wait(wait).and_then(|()| self.transport.send(&self.outgoing));
        self.outgoing.clear();
        match sent {
            Ok(()) => Ok(()),
            Err(error) if is_own_timeout(&error) => Err(self.timed_out(wait.unwrap_or_default())),
            Err(error) => Err(self.last_words().unwrap_or_else(|| self.lost(&error))),
        }
    }

    /// Why the server closed a connection that cannot be written to any more, if it said so.
    fn last_words(&mut self) -> Option<Error> {
        let until = Instant::now() + LAST_WORDS_WAIT;
        while let Ok(Some(found)) = self.receive(Wait::Until(until)) {
            if found.tag == tag::ERROR_RESPONSE {
                self.state = State::Broken;
                return Some(self.server_error(found.body));
            }
        }
        None
    }

    /// The next message that is not about something else: notices, parameters and notifications are taken care of.
    /// `None` when the time of [`Wait::Until`] has come.
    fn receive(&mut self, wait: Wait) -> Result<Option<Found>, Error> {
        loop {
            let limits = self.limits;
            let limit = |of: u8| match of {
                tag::COPY_DATA => limits.copy_data_size_max,
                _ => limits.message_size_max,
            };
            match self.buffer.next(limit).map_err(|bad| self.bad_frame(bad))? {
                Some(found) => {
                    if !self.take_aside(&found)? {
                        return Ok(Some(found));
                    }
                }
                None => {
                    if !self.fill(wait)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Receives more bytes; false when the time of [`Wait::Until`] has come.
    fn fill(&mut self, wait: Wait) -> Result<bool, Error> {
        let now = Instant::now();
        let silence = self.read_timeout.map(|limit| (self.last_received + limit, limit));
        let until = match wait {
            Wait::Silence => self.read_timeout.map(|limit| now + limit),
            Wait::Until(at) => Some(silence.map_or(at, |(silence, _)| silence.min(at))),
            Wait::Deadline(at, _) => Some(at),
        };
        let left = until.map(|until| until.saturating_duration_since(now));
        let received = match left {
            Some(Duration::ZERO) if matches!(wait, Wait::Deadline(..)) => Err(ErrorKind::TimedOut.into()),
            _ => self.transport.set_wait(left).and_then(|()| {
                let rest = self.buffer.rest();
                self.transport.receive(self.buffer.room(), rest)
            }),
        };
        match received {
            Ok(0) => Err(self.closed()),
            Ok(count) => {
                self.buffer.filled(count);
                self.last_received = Instant::now();
                Ok(true)
            }
            Err(error) if is_own_timeout(&error) => match (wait, silence) {
                (Wait::Until(_), Some((at, limit))) if at <= Instant::now() => Err(self.timed_out(limit)),
                (Wait::Until(_), _) => Ok(false),
                (Wait::Deadline(_, limit), _) => Err(self.timed_out(limit)),
                (Wait::Silence, _) => Err(self.timed_out(left.unwrap_or_default())),
            },
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// Deals with what may come at any time.
    fn take_aside(&mut self, found: &Found) -> Result<bool, Error> {
        const NOTIFICATION_RESPONSE: u8 = b'A';
        let body = self.buffer.get(found.body.clone());
        match found.tag {
            tag::NOTICE_RESPONSE => {
                if let Some(handler) = &mut self.on_notice {
                    handler(&Report::parse(body));
                }
            }
            tag::PARAMETER_STATUS => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                if let Some((name, value)) = pgshrink_wire::message::parse_parameter_status(body) {
                    let (name, value) = (text(name), text(value));
                    let room =
                        self.parameters.len() < PARAMETER_COUNT_MAX || self.parameters.contains_key(&name);
                    if room && body.len() <= PARAMETER_SIZE_MAX {
                        self.parameters.insert(name, value);
                    }
                }
            }
            NOTIFICATION_RESPONSE => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads until the server is ready for the next command, whatever comes.
    fn drain(&mut self) -> Result<(), Error> {
        while let Some(found) = self.receive(Wait::Silence)? {
            if found.tag == tag::READY_FOR_QUERY {
                self.state = State::Ready;
                break;
            }
        }
        Ok(())
    }

    /// The error in an ErrorResponse. The rest of the answer is read, so that the next command may follow.
    fn failed(&mut self, body: Range<usize>) -> Error {
        let error = self.server_error(body);
        // A server that ends the session says no more. What it said first is the reason.
        if self.drain().is_err() {
            self.state = State::Broken;
        }
        error
    }

    fn server_error(&self, body: Range<usize>) -> Error {
        let report = Box::new(Report::parse(self.buffer.get(body)));
        Error::Server { place: self.place().clone(), phase: self.phase, report }
    }

    fn unexpected(&mut self, what: &'static str, expected: &'static str, found: u8) -> Error {
        self.malformed(Malformed { what, expected, found: format!("a message of type {}", shown(found)) })
    }

    fn malformed(&mut self, malformed: Malformed) -> Error {
        self.state = State::Broken;
        Error::Protocol { place: self.place().clone(), phase: self.phase, malformed: Box::new(malformed) }
    }

    fn bad_frame(&mut self, bad: BadFrame) -> Error {
        match bad {
            BadFrame::Header(found) => {
                self.malformed(Malformed { what: "message header", expected: "a possible length", found })
            }
            BadFrame::TooLong { tag: of, found, allowed } => {
                let what = if of == tag::COPY_DATA { "CopyData message" } else { "message" };
                self.state = State::Broken;
                self.over_limit(what, found, allowed)
            }
        }
    }

    fn over_limit(&self, what: &'static str, found: usize, allowed: usize) -> Error {
        Error::Limit { place: self.place().clone(), what, found: found as u64, allowed: allowed as u64 }
    }

    fn closed(&mut self) -> Error {
        self.state = State::Broken;
        Error::Closed { place: self.place().clone(), phase: self.phase }
    }

    fn lost(&mut self, error: &std::io::Error) -> Error {
        self.state = State::Broken;
        let (place, phase) = (self.place().clone(), self.phase);
        Error::Lost { place, phase, kind: error.kind(), reason: error.to_string() }
    }

    fn timed_out(&mut self, after: Duration) -> Error {
        self.state = State::Broken;
        Error::TimedOut { place: self.place().clone(), phase: self.phase, after }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.state == State::Broken {
            return;
        }
        let mut farewell = Vec::new();
        frontend::terminate(&mut farewell);
        // Nobody is left to be told that it did not arrive.
        let _ = self.transport.set_wait(Some(TERMINATE_WAIT)).and_then(|()| self.transport.send(&farewell));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("place", self.place())
            .field("state", &self.state)
            .field("process_id", &self.process_id())
            .field("encrypted", &self.is_encrypted())
            .finish_non_exhaustive()
    }
}

/// The end of a wait, and not the kernel's verdict on the connection.
fn is_own_timeout(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::TimedOut && error.raw_os_error().is_none()
}

/// A tag for an error text.
fn shown(tag: u8) -> String {
    if tag.is_ascii_graphic() { format!("'{}'", tag as char) } else { format!("0x{tag:02x}") }
}

/// libpq's `PQserverVersion` for two-part versions, 10 and newer.
fn version_number(text: &str) -> Option<u32> {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let major = digits(text);
    let minor = text[major.len()..].strip_prefix('.').map(digits).unwrap_or_default();
    let major: u32 = major.parse().ok()?;
    major.checked_mul(10_000)?.checked_add(minor.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::version_number;

    #[test]
    fn versions_are_numbers_that_compare() {
        assert_eq!(version_number("15.18 (Debian 15.18-0+deb12u1)"), Some(150_018));
        assert_eq!(version_number("18beta1"), Some(180_000));
        assert_eq!(version_number("18.4"), Some(180_004));
        assert_eq!(version_number("16devel"), Some(160_000));
        assert_eq!(
            (version_number(""), version_number("x.1"), version_number("99999999.1")),
            (None, None, None)
        );
    }
}
