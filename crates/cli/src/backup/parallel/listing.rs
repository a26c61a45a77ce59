//! What the leading connection does while others read: it lists directories, and sees that it is still there.
//!
//! Each directory's list is a cursor WITH HOLD: the server keeps it, and no statement and no snapshot is open while readers
//! are slow. A batch is fetched at a time.

use super::pieces::{Kept, OpenFile, Run};
use super::stop::Stop;
use crate::backup::Failure;
use crate::backup::failure::broken_off;
use pgshrink_backup::checksum::Crc32c;
use pgshrink_backup::files::{Entry, ListedFile, Walk};
use pgshrink_backup::{BackupPath, ServerTime};
use pgshrink_pgclient::connection::{Connection, Table};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

/// Entries that are fetched at a time.
const BATCH: usize = 4096;
const FETCH: &str = "FETCH FORWARD 4096 FROM pgshrink_listing";
/// Between two looks whether the connection is there.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// How long it waits for readers before it tries again.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Entries with their sizes, without those that vanished, each once; init forks first.
fn cursor(directory: Option<&BackupPath>) -> Result<String, Failure> {
    let place = match directory {
        None => ".".to_owned(),
        Some(path) => match path.as_str() {
            Some(text) => text.replace('\'', "''"),
            None => return Err(Failure::new(path, "its name is not UTF-8; use --route stream")),
        },
    };
    Ok(format!(
        "CLOSE ALL; DECLARE pgshrink_listing NO SCROLL CURSOR WITH HOLD FOR \
         SELECT listed.name, stat.size, extract(epoch FROM stat.modification)::bigint, stat.isdir \
         FROM (SELECT name FROM (SELECT DISTINCT found.name COLLATE \"C\" \
         FROM pg_catalog.pg_ls_dir('{place}', true, false) AS found(name)) AS once(name) \
         ORDER BY name LIKE '%\\_init' DESC OFFSET 0) AS listed \
         CROSS JOIN LATERAL pg_catalog.pg_stat_file('{place}/' || listed.name, true) AS stat \
         WHERE stat.size IS NOT NULL; {FETCH}"
    ))
}

/// The leading connection.
pub(super) struct Lead<'l> {
    pub(super) control: &'l mut Connection,
    pub(super) was_standby: bool,
    pub(super) looked: Instant,
    pub(super) stop: &'l Stop,
    /// Pieces that are asked for together.
    pub(super) run_pieces: usize,
}

impl Lead<'_> {
    /// Lists all directories of a walk, and hands their files on.
    pub(super) fn list(
        &mut self,
        walk: &mut Walk<'_>,
        runs: &SyncSender<Run>,
        kept: &Kept<'_>,
    ) -> Result<(), Failure> {
        while let Some(directory) = walk.enter() {
            let name = || directory.as_ref().map_or("the data directory".to_owned(), ToString::to_string);
            let mut sql = cursor(directory.as_ref())?;
            loop {
                let tables = self.control.simple_query(&sql).map_err(|error| match error {
                    error @ pgshrink_pgclient::Error::Server { .. } => Failure::new(name(), error),
                    error => error.into(),
                })?;
                let Some(batch) = tables.last() else { break };
                for row in 0..batch.row_count() {
                    if let Some(file) = walk.take(entry(batch, row)?)? {
                        self.hand_on(file, runs, kept)?;
                    }
                }
                if batch.row_count() < BATCH {
                    break;
                }
                sql = FETCH.to_owned();
            }
        }
        Ok(())
    }

    fn hand_on(&mut self, file: ListedFile, runs: &SyncSender<Run>, kept: &Kept<'_>) -> Result<(), Failure> {
        if file.size == 0 {
            return kept.ledger.add(&file, 0, Crc32c::of(&[]));
        }
        for mut run in OpenFile::new(file)?.runs(self.run_pieces) {
            loop {
                self.stop.check()?;
                match runs.try_send(run) {
                    Ok(()) => break,
                    Err(TrySendError::Full(back)) => run = back,
                    Err(TrySendError::Disconnected(_)) => return Err(broken_off()),
                }
                self.look()?;
                thread::sleep(FULL_PAUSE);
            }
        }
        Ok(())
    }

    /// Waits until something has ended on other threads.
    pub(super) fn wait(&mut self, is_over: impl Fn() -> bool) -> Result<(), Failure> {
        while !is_over() {
            self.stop.check()?;
            self.look()?;
            thread::sleep(FULL_PAUSE);
        }
        Ok(())
    }

    /// The backup is lost with its connection, and with a promotion: nobody should go on reading for hours.
    fn look(&mut self) -> Result<(), Failure> {
        if self.looked.elapsed() < LOOK_PERIOD {
            return Ok(());
        }
        let found = self.control.simple_query("SELECT pg_catalog.pg_is_in_recovery()")?;
        let is_standby = found.last().and_then(|table| table.text(0, 0)) == Some("t");
        self.looked = Instant::now();
        if is_standby == self.was_standby {
            return Ok(());
        }
        Err(Failure::new("the backup", "the standby was promoted in the meantime; back it up again"))
    }
}

fn entry(batch: &Table, row: usize) -> Result<Entry<'_>, Failure> {
    let number = |column: usize| batch.text(row, column).and_then(|text| text.parse::<i64>().ok());
    let (Some(name), Some(size)) = (batch.bytes(row, 0), number(1).and_then(|size| size.try_into().ok()))
    else {
        return Err(Failure::new("pg_ls_dir", "the server's answer is not a directory listing"));
    };
    // A filesystem may have times that no calendar has.
    let modified = ServerTime::from_unix_seconds(number(2).unwrap_or(0)).unwrap_or(ServerTime::MIN);
    Ok(Entry { name, size, modified, is_directory: batch.text(row, 3) == Some("t") })
}
