//! A console's conversation: simple queries, and as much of the extended protocol as drivers need to ask without
//! parameters.
//!
//! Statements and portals hold a parsed command each; a portal runs once. Errors in the extended protocol skip to the
//! next Sync, as PostgreSQL does. Transaction brackets are taken, and mean nothing.

use std::collections::HashMap;

use pgshrink_wire::message::{self, Report, tag};

use super::access::Grant;
use super::command::{self, Command};
use super::run::{self, Outcome};
use super::show;
use super::table::{self, Column, Formats, Kind, Row, Value};
use crate::error::{Failure, Refusal, sqlstate};
use crate::handshake::leg::Leg;
use crate::registry::Registry;

/// Largest message taken.
const MESSAGE_SIZE_MAX: usize = 64 << 10;
/// Most statements and portals kept, each.
const NAMES_MAX: usize = 1000;
/// Output is written when it has so many bytes.
const OUTPUT_SIZE: usize = 64 << 10;

/// Messages of the extended protocol.
mod extended {
    pub(super) const BIND: u8 = b'B';
    pub(super) const CLOSE: u8 = b'C';
    pub(super) const DESCRIBE: u8 = b'D';
    pub(super) const EXECUTE: u8 = b'E';
    pub(super) const FLUSH: u8 = b'H';
    pub(super) const SYNC: u8 = b'S';
    pub(super) const PARSE_COMPLETE: u8 = b'1';
    pub(super) const BIND_COMPLETE: u8 = b'2';
    pub(super) const CLOSE_COMPLETE: u8 = b'3';
    pub(super) const EMPTY_QUERY: u8 = b'I';
    pub(super) const NO_DATA: u8 = b'n';
    pub(super) const PARAMETER_DESCRIPTION: u8 = b't';
}

/// One console.
pub(super) struct Console<'a> {
    client: &'a mut Leg,
    orders: run::Orders<'a>,
    grant: Grant,
    out: Vec<u8>,
    /// Transaction status for ReadyForQuery.
    status: u8,
    statements: HashMap<Vec<u8>, Command>,
    portals: HashMap<Vec<u8>, (Command, Formats)>,
    /// An error happened: everything up to Sync is skipped.
    failed: bool,
}

impl<'a> Console<'a> {
    pub(super) fn new(client: &'a mut Leg, orders: run::Orders<'a>, grant: Grant) -> Self {
        Self {
            client,
            orders,
            grant,
            out: Vec::new(),
            status: b'I',
            statements: HashMap::new(),
            portals: HashMap::new(),
            failed: false,
        }
    }

    fn registry(&self) -> &Registry {
        self.orders.registry
    }

    /// Talks until the client leaves or the process ends.
    pub(super) async fn talk(mut self, greeting: Vec<u8>) -> Result<(), Failure> {
        self.out = greeting;
        self.ready();
        loop {
            self.flush().await?;
            let process = self.orders.registry.process.clone();
            let header = tokio::select! {
                header = self.client.peek(MESSAGE_SIZE_MAX) => header?,
                () = process.wait_ending() => {
                    let message = "terminating connection: the process is shutting down";
                    return Err(Refusal::new(sqlstate::ADMIN_SHUTDOWN, message).into());
                }
            };
            let Some(header) = header else { return Ok(()) };
            let message = self.client.take(header);
            let body = &message[message::HEADER_SIZE..];
            match header.tag {
                tag::TERMINATE => return Ok(()),
                tag::QUERY => self.query(body).await?,
                extended::SYNC => {
                    self.failed = false;
                    self.ready();
                }
                extended::FLUSH => {}
                _ if self.failed => {}
                other => {
                    if let Err(refusal) = self.extended(other, body).await? {
                        self.failed = true;
                        self.error(&refusal);
                    }
                }
            }
        }
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        if !self.out.is_empty() {
            self.client.send(&self.out).await?;
            self.out.clear();
        }
        Ok(())
    }

    fn ready(&mut self) {
        self.out.extend(message::ready_for_query(self.status));
    }

    fn error(&mut self, refusal: &Refusal) {
        let report = Report {
            severity: "ERROR",
            sqlstate: refusal.sqlstate,
            message: &refusal.message,
            detail: refusal.detail.as_deref(),
            hint: refusal.hint.as_deref(),
        };
        self.out.extend(report.error_response());
    }

    async fn query(&mut self, body: &[u8]) -> Result<(), Failure> {
        let parsed = text(body.strip_suffix(b"\0").unwrap_or(body)).and_then(|text| command::split(&text));
        match parsed {
            Err(refusal) => self.error(&refusal),
            Ok(statements) => {
                for words in statements {
                    let done = match command::parse(&words) {
                        Ok(command) => self.execute(&command, true, &Formats::default()).await?,
                        Err(refusal) => Err(refusal),
                    };
                    if let Err(refusal) = done {
                        self.error(&refusal);
                        break;
                    }
                }
            }
        }
        self.ready();
        Ok(())
    }

    /// Runs a command and answers. A simple query describes its rows itself; a portal was described before.
    async fn execute(
        &mut self,
        command: &Command,
        describe: bool,
        formats: &Formats,
    ) -> Result<Result<(), Refusal>, Failure> {
        if self.grant == Grant::Look && !command.is_read_only() {
            return Ok(Err(Refusal::new(sqlstate::INSUFFICIENT_PRIVILEGE, "permission denied: SHOW only")
                .hint("Users in admin.users may run commands that change something.")));
        }
        // What was asked before must not wait for a slow order.
        self.flush().await?;
        let (rows, done) = match command {
            Command::Empty => {
                self.out.extend(message::message(extended::EMPTY_QUERY, &[]));
                return Ok(Ok(()));
            }
            Command::Show(topic) => (show::rows(*topic, self.registry()), "SHOW".to_string()),
            Command::SelectOne => (vec![vec![Value::Int(1)]], "SELECT 1".to_string()),
            Command::DriverSetting(done) => (Vec::new(), done.to_string()),
            Command::Bracket(done, status) => {
                self.status = *status;
                (Vec::new(), done.to_string())
            }
            order => match self.orders.obey(order).await {
                Err(refusal) => return Ok(Err(refusal)),
                Ok(Outcome { rows, notice, done }) => {
                    if let Some(text) = notice {
                        self.notice(&text);
                    }
                    (rows, done.to_string())
                }
            },
        };
        if let Some(columns) = columns(command) {
            self.rows(columns, &rows, describe, formats).await?;
        }
        self.out.extend(message::command_complete(&done));
        Ok(Ok(()))
    }

    async fn rows(
        &mut self,
        columns: &[Column],
        rows: &[Row],
        describe: bool,
        formats: &Formats,
    ) -> Result<(), Failure> {
        if describe {
            self.out.extend(table::row_description(columns, formats));
        }
        for row in rows {
            self.out.extend(table::data_row(columns, row, formats));
            if self.out.len() >= OUTPUT_SIZE {
                self.flush().await?;
            }
        }
        Ok(())
    }

    fn notice(&mut self, text: &str) {
        let report =
            Report { severity: "NOTICE", sqlstate: "00000", message: text, detail: None, hint: None };
        self.out.extend(report.notice_response());
    }

    /// One message of the extended protocol.
    async fn extended(&mut self, tag: u8, body: &[u8]) -> Result<Result<(), Refusal>, Failure> {
        let mut reader = Reader(body);
        Ok(match tag {
            tag::PARSE => self.parse(&mut reader),
            extended::BIND => self.bind(&mut reader),
            extended::DESCRIBE => self.describe(&mut reader),
            extended::EXECUTE => match self.portal(&mut reader) {
                Ok((command, formats)) => return self.execute(&command, false, &formats).await,
                Err(refusal) => Err(refusal),
            },
            extended::CLOSE => self.close(&mut reader),
            other => {
                let shown = char::from(other).escape_default();
                Err(unsupported(&format!("message type '{shown}'")))
            }
        })
    }

    fn parse(&mut self, reader: &mut Reader<'_>) -> Result<(), Refusal> {
        let (name, query) = (reader.string()?.to_vec(), text(reader.string()?)?);
        let mut statements = command::split(&query)?;
        let (Some(words), true) = (statements.pop(), statements.is_empty()) else {
            return Err(Refusal::new(
                sqlstate::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            ));
        };
        let command = command::parse(&words)?;
        insert(&mut self.statements, name, command)?;
        self.out.extend(message::message(extended::PARSE_COMPLETE, &[]));
        Ok(())
    }

    fn bind(&mut self, reader: &mut Reader<'_>) -> Result<(), Refusal> {
        let (portal, statement) = (reader.string()?.to_vec(), reader.string()?);
        for _ in 0..reader.u16()? {
            reader.u16()?;
        }
        if reader.u16()? != 0 {
            return Err(unsupported("a parameter"));
        }
        let formats = (0..reader.u16()?).map(|_| reader.u16()).collect::<Result<Vec<_>, _>>()?;
        let command = self.statements.get(statement).cloned().ok_or_else(|| unknown("prepared statement"))?;
        insert(&mut self.portals, portal, (command, Formats::new(formats)))?;
        self.out.extend(message::message(extended::BIND_COMPLETE, &[]));
        Ok(())
    }

    fn describe(&mut self, reader: &mut Reader<'_>) -> Result<(), Refusal> {
        let (command, formats) = match reader.kind()? {
            b'S' => {
                let command =
                    self.statements.get(reader.string()?).ok_or_else(|| unknown("prepared statement"))?;
                self.out.extend(message::message(extended::PARAMETER_DESCRIPTION, &[0, 0]));
                (command, Formats::default())
            }
            _ => {
                let portal = self.portals.get(reader.string()?).ok_or_else(|| unknown("portal"))?;
                (&portal.0, portal.1.clone())
            }
        };
        self.out.extend(match columns(command) {
            Some(columns) => table::row_description(columns, &formats),
            None => message::message(extended::NO_DATA, &[]),
        });
        Ok(())
    }

    /// Takes a portal: it runs once, whatever row limit Execute gives.
    fn portal(&mut self, reader: &mut Reader<'_>) -> Result<(Command, Formats), Refusal> {
        self.portals.remove(reader.string()?).ok_or_else(|| unknown("portal"))
    }

    fn close(&mut self, reader: &mut Reader<'_>) -> Result<(), Refusal> {
        match reader.kind()? {
            b'S' => drop(self.statements.remove(reader.string()?)),
            _ => drop(self.portals.remove(reader.string()?)),
        }
        self.out.extend(message::message(extended::CLOSE_COMPLETE, &[]));
        Ok(())
    }
}

/// Columns of a command's answer.
fn columns(command: &Command) -> Option<&'static [Column]> {
    match command {
        Command::Show(topic) => Some(show::columns(*topic)),
        Command::SetCompression(..) => Some(run::SET_COLUMNS),
        Command::SelectOne => Some(&[("?column?", Kind::Int)]),
        _ => None,
    }
}

fn insert<V>(map: &mut HashMap<Vec<u8>, V>, name: Vec<u8>, value: V) -> Result<(), Refusal> {
    if map.len() >= NAMES_MAX && !map.contains_key(&name) {
        return Err(unsupported(&format!("more than {NAMES_MAX} names")));
    }
    map.insert(name, value);
    Ok(())
}

fn unsupported(what: &str) -> Refusal {
    Refusal::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("the console does not support {what}"))
}

fn unknown(what: &str) -> Refusal {
    Refusal::new(sqlstate::UNDEFINED_OBJECT, format!("{what} does not exist"))
}

fn text(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec())
        .map_err(|_| Refusal::new(sqlstate::SYNTAX_ERROR, "the text is not valid UTF-8"))
}

/// Reads the fields of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn string(&mut self) -> Result<&'a [u8], Refusal> {
        let end = self.0.iter().position(|b| *b == 0).ok_or_else(short)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    fn u16(&mut self) -> Result<u16, Refusal> {
        let (bytes, rest) = self.0.split_first_chunk::<2>().ok_or_else(short)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    fn kind(&mut self) -> Result<u8, Refusal> {
        let (byte, rest) = self.0.split_first().ok_or_else(short)?;
        self.0 = rest;
        Ok(*byte)
    }
}

fn short() -> Refusal {
    Refusal::new(sqlstate::PROTOCOL_VIOLATION, "a message is shorter than its fields")
}
