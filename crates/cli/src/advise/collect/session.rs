//! The one connection that everything is read over.
//!
//! Invariants:
//! 1. Every query is a read-only transaction of its own, but for what `guarded` puts before it, and ends within the timeouts of `opening`.
//! 2. It waits for a lock for a second at most, and holds none but ACCESS SHARE.
//! 3. An error that concerns one query is a [`Refusal`] and the others go on; what ends the session is a [`Failure`].

use super::super::Failure;
use super::definitions;
use super::interrupt::Interrupt;
use super::opening;
use crate::surroundings;
use pgshrink_advisor::snapshot::definition::Definition;
use pgshrink_pgclient::connection::{Connection, Event, Limits, Options, Pipeline, Statement};
use pgshrink_pgclient::protocol::backend::{Report, Row};
use pgshrink_pgclient::{Conninfo, Error as ClientError, conninfo};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

/// Majors whose catalogs are known.
const MAJORS: std::ops::RangeInclusive<u32> = 15..=18;
/// A server that says nothing for longer is gone.
const SILENCE: Duration = Duration::from_secs(90);
/// The longest row. Values are cut to fit: see `rows`.
const ROW_BYTES_MAX: usize = 64 << 20;
/// How often a query is run again that was canceled for the sake of a standby's replay.
const CONFLICT_ATTEMPTS: u32 = 4;

/// A session with a database, as it is when nothing is lost and nothing is written.
pub(in crate::advise) struct Session {
    connection: Connection,
    interrupt: Interrupt,
    version: u32,
    /// Statements that the session has prepared and that are used once.
    prepared: Vec<Statement>,
    /// Those that are used again, by their text.
    kept: HashMap<String, Statement>,
}

/// A server's error about one query. The next one may follow.
#[derive(Debug)]
pub(in crate::advise) struct Refusal {
    pub(super) kind: RefusalKind,
    report: Box<Report>,
}

/// What such an error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusalKind {
    /// Somebody holds a lock, or waits for one.
    Locked,
    /// A right is missing.
    Denied,
    /// It took too long.
    TimedOut,
    /// Replay on a standby was in the way.
    Conflict,
    /// It was dropped or changed meanwhile.
    Gone,
    /// Anything else: a value that cannot be converted, a damaged page.
    Other,
}

/// What a query came to.
pub(in crate::advise) type Tried<T> = Result<Result<T, Refusal>, Failure>;

impl Session {
    /// Connects, and makes the session safe.
    pub(in crate::advise) fn connect(text: Option<&str>) -> Result<Session, Failure> {
        let bytes = text.unwrap_or_default().as_bytes();
        if !bytes.is_empty() && !conninfo::is_recognized(bytes) {
            let what = "is not a connection string; write \"host=db dbname=shop\" or postgresql://…";
            // It may be a URL with a password.
            return Err(Failure::new("CONNINFO", what));
        }
        let info = Conninfo::parse_strict(bytes)?;
        let around = surroundings::of_process();
        let parameters = opening::parameters(&info, &around)?;
        let limits = Limits { message_size_max: ROW_BYTES_MAX, ..Limits::default() };
        let application_name = "pgshrink advise".to_owned();
        let options = Options { application_name, read_timeout: Some(SILENCE), limits, ..Options::default() };
        let mut connection = Connection::connect(&parameters, &around, &options)?;
        let version = connection.server_version().unwrap_or_default();
        if !MAJORS.contains(&(version / 10_000)) {
            let (first, last) = (MAJORS.start(), MAJORS.end());
            let found = connection.parameter("server_version").unwrap_or("of an unknown version").to_owned();
            return Err(Failure::new(
                format!("server {}", connection.place()),
                format!(
                    "it is PostgreSQL {found}, expected {first} to {last}; a newer pgshrink may support it"
                ),
            ));
        }
        opening::secure(&mut connection)?;
        let interrupt = Interrupt::listen(&connection)?;
        Ok(Session { connection, interrupt, version, prepared: Vec::new(), kept: HashMap::new() })
    }

    /// `server_version_num`.
    pub(in crate::advise) fn version(&self) -> u32 {
        self.version
    }

    /// Its major.
    pub(in crate::advise) fn major(&self) -> u32 {
        self.version / 10_000
    }

    /// Where it is, for messages.
    pub(in crate::advise) fn place(&self) -> String {
        format!("server {}", self.connection.place())
    }

    /// The rows of a query, read one by one. `map` may leave some out.
    pub(in crate::advise) fn select<T>(
        &mut self,
        sql: &str,
        map: impl Fn(&Row<'_>) -> Option<T>,
    ) -> Tried<Vec<T>> {
        self.attempt(|connection| {
            let mut results = connection.query(sql)?;
            let mut found = Vec::new();
            while let Some(event) = results.next()? {
                if let Event::Row(row) = event {
                    found.extend(map(&row));
                }
            }
            Ok(found)
        })
    }

    /// The rows of a query that gives one JSON document each.
    pub(in crate::advise) fn documents<T: DeserializeOwned>(&mut self, sql: &str) -> Tried<Vec<T>> {
        match self.select(sql, |row| Some(text(row, 0)))? {
            Ok(found) => found.iter().map(|json| self.parse(json)).collect::<Result<_, _>>().map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// The same, each with the OID that it belongs to before it.
    pub(in crate::advise) fn keyed<T: DeserializeOwned>(&mut self, sql: &str) -> Tried<Vec<(u32, T)>> {
        match self.select(sql, |row| Some((text(row, 0).parse().ok()?, text(row, 1))))? {
            Ok(found) => {
                let parsed = found.into_iter().map(|(oid, json)| Ok((oid, self.parse(&json)?)));
                parsed.collect::<Result<_, _>>().map(Ok)
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// What cannot be done without.
    pub(in crate::advise) fn must<T>(&self, tried: Result<T, Refusal>) -> Result<T, Failure> {
        tried.map_err(|refusal| Failure::new(self.place(), refusal))
    }

    /// Runs a query with parameters, and has no use for its answer.
    pub(super) fn with_parameters(&mut self, sql: &str, parameters: &[&str]) -> Tried<()> {
        let parameters: Vec<_> = parameters.iter().map(|parameter| Some(*parameter)).collect();
        self.attempt(|connection| connection.query_params(sql, &parameters).map(drop))
    }

    /// What belongs to tables.
    pub(super) fn definitions(&mut self, oids: &[u32]) -> Tried<BTreeMap<u32, Definition>> {
        self.attempt(|connection| definitions::definitions(connection, oids))
    }

    /// Turns a planner's setting on or off.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let done = self.with_parameters("SELECT set_config($1, $2, false)", &[name, value])?;
        self.must(done)
    }

    /// Prepares a statement for [`pipelined`](Self::pipelined). Those that are used once go when there are many.
    pub(super) fn prepare(&mut self, sql: &str) -> Tried<Statement> {
        self.make_room(1)?;
        let prepared = self.attempt(|connection| connection.prepare(sql))?;
        self.prepared.extend(prepared.iter().cloned());
        Ok(prepared)
    }

    /// So many statements can be prepared and stay so together.
    pub(super) fn make_room(&mut self, count: usize) -> Result<(), Failure> {
        const STATEMENTS_MAX: usize = 32;
        if self.prepared.len() + count > STATEMENTS_MAX {
            let all: Vec<String> =
                self.prepared.drain(..).map(|statement| format!("DEALLOCATE {}", statement.name())).collect();
            self.connection.simple_query(&all.join("; "))?;
        }
        Ok(())
    }

    /// The same for a statement that is used again and again: it stays.
    pub(super) fn prepare_once(&mut self, sql: &str) -> Tried<Statement> {
        if let Some(statement) = self.kept.get(sql) {
            return Ok(Ok(statement.clone()));
        }
        let prepared = self.attempt(|connection| connection.prepare(sql))?;
        if let Ok(statement) = &prepared {
            self.kept.insert(sql.to_owned(), statement.clone());
        }
        Ok(prepared)
    }

    /// Lends the connection's pipeline. What comes out of it says which requests are to be run again.
    pub(super) fn pipelined<T>(
        &mut self,
        run: impl FnOnce(&mut Pipeline<'_>) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        self.interrupt.check()?;
        let done = self.connection.pipeline().and_then(|mut pipeline| run(&mut pipeline));
        self.interrupt.check()?;
        Ok(done?)
    }

    fn parse<T: DeserializeOwned>(&self, json: &str) -> Result<T, Failure> {
        serde_json::from_str(json).map_err(|error| {
            Failure::new(
                self.place(),
                format!("a query's result does not have the expected structure: {error}"),
            )
        })
    }

    fn attempt<T>(&mut self, mut run: impl FnMut(&mut Connection) -> Result<T, ClientError>) -> Tried<T> {
        for attempt in 1.. {
            self.interrupt.check()?;
            let error = match run(&mut self.connection) {
                Ok(done) => return Ok(Ok(done)),
                Err(error) => error,
            };
            // A canceled query is the consequence of a signal, not a problem of the table.
            self.interrupt.check()?;
            let refusal = match error {
                ClientError::Server { report, .. } if !is_fatal(&report) => Refusal::of(report),
                error => return Err(error.into()),
            };
            if !refusal.is_worth_another(attempt) {
                return Ok(Err(refusal));
            }
            rest(attempt);
        }
        Err(Failure::Interrupted)
    }
}

/// The pause before a query is run again that a standby's replay has canceled.
pub(super) fn rest(attempt: u32) {
    thread::sleep(Duration::from_millis(250) * attempt);
}

fn is_fatal(report: &Report) -> bool {
    matches!(report.severity.as_str(), "FATAL" | "PANIC")
}

impl Refusal {
    /// Whether what was refused at this attempt, counted from 1, is tried again after a [`rest`].
    pub(super) fn is_worth_another(&self, attempt: u32) -> bool {
        self.kind == RefusalKind::Conflict && attempt < CONFLICT_ATTEMPTS
    }

    pub(super) fn of(report: Box<Report>) -> Refusal {
        let kind = match report.sqlstate.as_str() {
            "55P03" => RefusalKind::Locked,
            "42501" => RefusalKind::Denied,
            "57014" => RefusalKind::TimedOut,
            "40001" | "40P01" => RefusalKind::Conflict,
            "42P01" | "3F000" | "42703" | "42P10" => RefusalKind::Gone,
            _ => RefusalKind::Other,
        };
        Refusal { kind, report }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let said = format!("{} (SQLSTATE {})", self.report.message, self.report.sqlstate);
        match self.kind {
            RefusalKind::Locked => {
                write!(
                    f,
                    "another session holds or waits for an ACCESS EXCLUSIVE lock, and pgshrink does \
                    not wait for it"
                )
            }
            RefusalKind::TimedOut => write!(f, "a query took longer than a minute: {said}"),
            RefusalKind::Conflict => write!(f, "the standby's replay canceled it several times: {said}"),
            RefusalKind::Gone => write!(f, "it was dropped or changed in the meantime: {said}"),
            RefusalKind::Denied | RefusalKind::Other => write!(f, "{said}"),
        }
    }
}

/// A value of a row as text, as far as it is text.
pub(super) fn text(row: &Row<'_>, column: usize) -> String {
    String::from_utf8_lossy(row.get(column).unwrap_or_default()).into_owned()
}
