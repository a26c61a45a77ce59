//! Sessions with the server on scratch space, in which no setting of the cluster, its roles or databases hinders the reading.

use super::super::Failure;
use super::cluster;
use super::interrupt::Interrupt;
use super::settings::PORT;
use super::verdict::{self, Doing};
use pgshrink_pgclient::connection::{Connection, Options, Table};
use pgshrink_pgclient::conninfo::Setting;
use pgshrink_pgclient::{Error, Parameters, Surroundings};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long the server may take to recover from a crash of one of its processes.
const RECOVERY_MAX: Duration = Duration::from_secs(600);
/// Between two attempts to connect to it.
const RETRY_PERIOD: Duration = Duration::from_millis(200);
/// How long the log may take to say how a process ended.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(5);
/// How often a query is repeated that another session's crash broke off.
const ATTEMPTS_MAX: usize = 5;
/// The server starts, stops or recovers.
const CANNOT_CONNECT_NOW: &str = "57P03";
/// Another process crashed, and all sessions were ended.
const CRASH_SHUTDOWN: &str = "57P02";
/// The server was told to end.
const ADMIN_SHUTDOWN: &str = "57P01";

/// Stronger than `ALTER ROLE ALL SET` and `ALTER DATABASE … SET`.
const OPTIONS: &str = "-c search_path=pg_catalog -c role=none -c statement_timeout=0 -c lock_timeout=5s \
    -c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0 -c default_transaction_read_only=off \
    -c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off \
    -c session_preload_libraries= -c local_preload_libraries= -c default_tablespace= -c temp_tablespaces= \
    -c session_replication_role=origin -c synchronous_commit=local -c max_parallel_workers_per_gather=0 \
    -c jit=off -c enable_seqscan=on -c standard_conforming_strings=on -c client_min_messages=warning \
    -c zero_damaged_pages=off -c ignore_checksum_failure=off -c log_statement=none \
    -c log_min_duration_statement=-1 -c lc_messages=C";
/// Of 17 and newer.
const OPTIONS_17: &str = " -c transaction_timeout=0 -c event_triggers=off";

/// How to come in.
pub(super) struct Access<'b> {
    pub(super) sockets: &'b Path,
    pub(super) role: String,
    pub(super) major: u32,
    pub(super) interrupt: &'b Interrupt,
    /// The server's log.
    pub(super) log: PathBuf,
}

/// A session that is opened again when it was lost.
pub(super) struct Session<'b> {
    access: &'b Access<'b>,
    database: Vec<u8>,
    connection: Option<Connection>,
    /// Run in every new connection.
    preamble: &'static str,
}

/// What came of a query.
pub(super) enum Answer {
    Done(Vec<Table>),
    /// The data are damaged.
    Damage(String),
    /// This server cannot tell.
    Unable(String),
}

impl Access<'_> {
    fn connect(&self, database: &[u8]) -> Result<Connection, Error> {
        let around = Surroundings { env: BTreeMap::new(), home: None, files: &crate::surroundings::Disk };
        let options = if self.major >= 17 { [OPTIONS, OPTIONS_17].concat() } else { OPTIONS.to_owned() };
        let port = PORT.to_string();
        let settings = [
            ("host", self.sockets.as_os_str().as_bytes()),
            ("port", port.as_bytes()),
            ("user", self.role.as_bytes()),
            ("dbname", database),
            ("options", options.as_bytes()),
            ("sslmode", b"disable"),
        ];
        let settings: Vec<_> = settings
            .map(|(keyword, value)| Setting { keyword: keyword.into(), value: value.to_vec() })
            .into();
        // A large table is read without a word. A server that ends closes its sockets.
        let wait = Options { read_timeout: None, ..Options::default() };
        Connection::connect(&Parameters::merge(&settings, &around)?, &around, &wait)
    }

    /// What the loss of a connection means: a process that crashes over the data, or one that the system killed.
    fn lost(&self, process: Option<u32>, error: &Error) -> Answer {
        let needle = format!("(PID {}) was terminated by ", process.unwrap_or_default());
        let deadline = Instant::now() + LAST_WORDS_WAIT;
        while process.is_some() && Instant::now() < deadline && !self.interrupt.has_come() {
            let log = cluster::tail(&self.log).unwrap_or_default();
            if let Some((_, how)) = log.split_once(&needle) {
                let how = how.lines().next().unwrap_or_default();
                return match how.starts_with("signal 9:") {
                    true => Answer::Unable(format!(
                        "a server process was killed, possibly by the out-of-memory killer: {how}"
                    )),
                    false => Answer::Damage(format!("a server process crashed: {how}")),
                };
            }
            thread::sleep(RETRY_PERIOD);
        }
        Answer::Unable(format!("a server process ended, and the server's log does not say why: {error}"))
    }
}

impl<'b> Session<'b> {
    pub(super) fn new(access: &'b Access<'b>, database: &[u8], preamble: &'static str) -> Session<'b> {
        Session { access, database: database.to_vec(), connection: None, preamble }
    }

    /// Connects; the error of a server that refuses is an answer.
    pub(super) fn open(&mut self) -> Result<Answer, Failure> {
        let deadline = Instant::now() + RECOVERY_MAX;
        loop {
            self.access.interrupt.check()?;
            let error = match self.access.connect(&self.database) {
                Ok(connection) => {
                    self.connection = Some(connection);
                    return match self.preamble {
                        "" => Ok(Answer::Done(Vec::new())),
                        preamble => self.ask(preamble, Doing::Read),
                    };
                }
                Err(error) => error,
            };
            let is_starting = error.sqlstate() == Some(CANNOT_CONNECT_NOW);
            match error.report() {
                Some(report) if !is_starting => return Ok(judge(report, Doing::Read)),
                _ if is_starting && Instant::now() < deadline => thread::sleep(RETRY_PERIOD),
                _ => {
                    self.access.interrupt.check()?;
                    return Err(Failure::new("the server on scratch space", error));
                }
            }
        }
    }

    /// The encoding of the database, as the server reports it.
    pub(super) fn encoding(&self) -> &str {
        let connection = self.connection.as_ref();
        connection.and_then(|connection| connection.parameter("server_encoding")).unwrap_or("SQL_ASCII")
    }

    /// Runs a query. An error is an answer, and so is the crash of the process that ran it.
    pub(super) fn ask(&mut self, sql: &str, doing: Doing) -> Result<Answer, Failure> {
        let mut is_killed = false;
        for _ in 0..ATTEMPTS_MAX {
            self.access.interrupt.check()?;
            let Some(connection) = &mut self.connection else {
                match self.open()? {
                    Answer::Done(_) => continue,
                    refused => return Ok(refused),
                }
            };
            let error = match connection.simple_query(sql) {
                Ok(tables) => return Ok(Answer::Done(tables)),
                Err(error) => error,
            };
            match (error.sqlstate(), error.report()) {
                (Some(CRASH_SHUTDOWN | ADMIN_SHUTDOWN), _) => self.connection = None,
                (_, Some(report)) => return Ok(judge(report, doing)),
                (_, None) => {
                    let process = connection.process_id();
                    self.connection = None;
                    self.access.interrupt.check()?;
                    match self.access.lost(process, &error) {
                        Answer::Unable(_) if !is_killed => is_killed = true,
                        answer => return Ok(answer),
                    }
                }
            }
        }
        Ok(Answer::Unable("other server processes crashed repeatedly in the meantime".to_owned()))
    }
}

fn judge(report: &pgshrink_pgclient::protocol::backend::Report, doing: Doing) -> Answer {
    let message = verdict::message(report);
    match verdict::is_of_this_server(report, doing) {
        true => Answer::Unable(message),
        false => Answer::Damage(message),
    }
}
