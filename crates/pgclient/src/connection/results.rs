//! Simple queries: one text, any number of results, read one event at a time.

use pgshrink_wire::message::tag;

use super::buffer::Found;
use super::pipeline::{BIND_COMPLETE, check_count};
use super::{Connection, Phase, State, Table, Wait};
use crate::Error;
use crate::protocol::backend::{Column, Row, row_description};
use crate::protocol::frontend::{self, Format, TEXT_SIZE_MAX};

const COPY_OUT_RESPONSE: u8 = b'H';
const NO_DATA: u8 = b'n';

/// The answer to a query that is being read. Dropped before its end, it leaves the connection unusable.
#[derive(Debug)]
pub struct Results<'c> {
    connection: &'c mut Connection,
    /// Bytes of what was collected.
    collected: usize,
    /// The extended protocol is used.
    extended: bool,
}

/// One step of an answer. Values are borrowed from the connection's buffer.
#[derive(Debug)]
pub enum Event<'a> {
    /// A result with rows begins.
    Columns(Vec<Column>),
    /// A row.
    Row(Row<'a>),
    /// COPY TO STDOUT begins.
    CopyOut,
    /// The payload of a CopyData message.
    CopyData(&'a [u8]),
    /// COPY data is complete; its command's completion is still to come.
    CopyDone,
    /// A command is done: `SELECT 3`.
    Complete(String),
}

impl Connection {
    /// Sends a query text, which may hold several commands.
    ///
    /// # Errors
    /// [`Error::ZeroByte`], [`Error::RequestLimit`], [`Error::Busy`], and those of the network.
    pub fn query(&mut self, sql: &str) -> Result<Results<'_>, Error> {
        check_text("the query", sql)?;
        self.begin(Phase::Query)?;
        frontend::query(&mut self.outgoing, sql);
        self.flush()?;
        Ok(Results::of(self))
    }

    /// Runs one statement with parameters in text form, and collects its result, values in text form.
    ///
    /// ```no_run
    /// # fn run(session: &mut pgshrink_pgclient::connection::Connection) -> Result<(), pgshrink_pgclient::Error> {
    /// let start = session.query_params("SELECT pg_backup_start($1, $2)", &[Some("a label"), Some("true")])?;
    /// println!("{:?}", start.text(0, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`simple_query`](Self::simple_query).
    pub fn query_params(&mut self, sql: &str, parameters: &[Option<&str>]) -> Result<Table, Error> {
        check_text("the query", sql)?;
        check_count(parameters.len())?;
        for parameter in parameters.iter().flatten() {
            check_text("a parameter", parameter)?;
        }
        let parameters: Vec<_> = parameters.iter().map(|parameter| parameter.map(str::as_bytes)).collect();
        self.begin(Phase::Query)?;
        frontend::parse(&mut self.outgoing, "", sql);
        frontend::bind(&mut self.outgoing, "", &parameters, Format::Text);
        frontend::describe(&mut self.outgoing);
        frontend::execute(&mut self.outgoing);
        frontend::sync(&mut self.outgoing);
        self.flush()?;
        let (mut results, mut tables) = (Results { extended: true, ..Results::of(self) }, Vec::new());
        while results.collect(&mut tables)? {}
        Ok(tables.pop().unwrap_or_default())
    }

    /// Runs a query text and collects every result, values in text form.
    ///
    /// # Errors
    /// [`Error::Limit`] when the rows are larger than
    /// [`result_size_max`](super::Limits::result_size_max), and all those of [`query`](Self::query) and
    /// [`Results::next`].
    pub fn simple_query(&mut self, sql: &str) -> Result<Vec<Table>, Error> {
        let mut results = self.query(sql)?;
        let mut tables = Vec::new();
        while results.collect(&mut tables)? {}
        Ok(tables)
    }
}

impl<'c> Results<'c> {
    /// The connection whose answer this is.
    pub(super) fn connection(&mut self) -> &mut Connection {
        self.connection
    }

    pub(crate) fn of(connection: &'c mut Connection) -> Self {
        Self { connection, collected: 0, extended: false }
    }

    /// The next event; `None` when the answer is complete and the connection ready for another command.
    ///
    /// # Errors
    /// [`Error::Server`] for an error of the server; the connection takes other commands after it unless the server
    /// ended the session. After errors of network or protocol it takes none.
    #[allow(clippy::should_implement_trait, reason = "an event borrows from the connection")]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        if self.connection.state == State::Ready {
            return Ok(None);
        }
        loop {
            let Some(found) = self.connection.receive(Wait::Silence)? else { continue };
            match found.tag {
                tag::READY_FOR_QUERY => {
                    self.connection.state = State::Ready;
                    return Ok(None);
                }
                tag::ERROR_RESPONSE => return Err(self.connection.failed(found.body)),
                tag::COPY_IN_RESPONSE => return Err(self.connection.refuse_copy_in(self.extended)),
                // The extended protocol says these, and no result follows from them.
                tag::PARSE_COMPLETE | BIND_COMPLETE | NO_DATA => {}
                _ => return self.connection.event(found).map(Some),
            }
        }
    }

    /// Collects results up to the end or to the start of COPY data; false at the end.
    pub(super) fn collect(&mut self, tables: &mut Vec<Table>) -> Result<bool, Error> {
        let mut table = Table::default();
        while let Some(event) = self.next()? {
            let size = match event {
                Event::Columns(columns) => {
                    table.columns = columns;
                    table.columns.iter().map(|column| column.name.len() + size_of::<Column>()).sum()
                }
                Event::Row(row) => {
                    let size = size_of_values(&row);
                    table.push(row);
                    size
                }
                Event::Complete(tag) => {
                    table.tag = tag;
                    let size = table.tag.len() + size_of::<Table>();
                    tables.push(std::mem::take(&mut table));
                    size
                }
                Event::CopyOut => return Ok(true),
                Event::CopyData(_) | Event::CopyDone => 0,
            };
            self.count(size)?;
        }
        Ok(false)
    }

    fn count(&mut self, size: usize) -> Result<(), Error> {
        self.collected += size;
        let allowed = self.connection.limits.result_size_max;
        if self.collected <= allowed {
            return Ok(());
        }
        self.connection.state = State::Broken;
        Err(self.connection.over_limit("result", self.collected, allowed))
    }
}

/// Memory of a collected row: its values and what holds them.
fn size_of_values(row: &Row<'_>) -> usize {
    const PER_VALUE: usize = size_of::<Option<Box<[u8]>>>();
    row.values().map(|value| value.map_or(0, <[u8]>::len) + PER_VALUE).sum::<usize>() + PER_VALUE
}

impl Connection {
    fn event(&mut self, found: Found) -> Result<Event<'_>, Error> {
        let Found { tag: of, body } = found;
        let parsed = match of {
            tag::ROW_DESCRIPTION => row_description(self.buffer.get(body)).map(Event::Columns),
            tag::DATA_ROW => return self.row(body).map(Event::Row),
            tag::COMMAND_COMPLETE => {
                let body = self.buffer.get(body);
                let tag = String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(body)).into_owned();
                Ok(Event::Complete(tag))
            }
            tag::EMPTY_QUERY_RESPONSE => Ok(Event::Complete(String::new())),
            COPY_OUT_RESPONSE => {
                self.phase = Phase::Copy;
                Ok(Event::CopyOut)
            }
            tag::COPY_DATA => return Ok(Event::CopyData(self.buffer.get(body))),
            tag::COPY_DONE => {
                self.phase = Phase::Query;
                Ok(Event::CopyDone)
            }
            other => return Err(self.unexpected("answer to a query", "a result", other)),
        };
        parsed.map_err(|malformed| self.malformed(malformed))
    }

    /// Ends a COPY FROM STDIN, which nobody here has data for.
    fn refuse_copy_in(&mut self, extended: bool) -> Error {
        frontend::copy_fail(&mut self.outgoing, "COPY FROM STDIN is not supported by this client");
        if extended {
            // The server ignores a Sync that comes while it waits for COPY data.
            frontend::sync(&mut self.outgoing);
        }
        if self.flush().and_then(|()| self.drain()).is_err() {
            self.state = State::Broken;
        }
        Error::NotSupported { what: "COPY FROM STDIN".to_owned() }
    }
}

pub(super) fn check_text(what: &'static str, text: &str) -> Result<(), Error> {
    if text.len() > TEXT_SIZE_MAX {
        return Err(Error::RequestLimit { what, found: text.len(), allowed: TEXT_SIZE_MAX });
    }
    if !frontend::has_no_zero(text.as_bytes()) {
        return Err(Error::ZeroByte { what });
    }
    Ok(())
}
