//! The stream route: one BASE_BACKUP, compressed by the server.
//!
//! ```text
//!   connection: BASE_BACKUP --> incoming --> archives --> jobs
//! ```

use super::Failure;
use super::archives::Archives;
use super::chunks::Jobs;
use super::incoming::{self, Direct, Incoming, Outgoing};
use super::transfer::{Fetched, Progress, Route, Step, cause, joined};
use pgshrink_backup::base_backup::{
    CompressionAlgorithm, Event, Options, Position, Sequence, ServerMajor, Tablespace,
};
use pgshrink_pgclient::connection::{Closer, Connection, CopyOut, Table};
use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A BASE_BACKUP that the server has begun to answer.
pub(super) struct Stream<'c> {
    copy: CopyOut<'c>,
    closer: Arc<Closer>,
    start: Position,
    tablespaces: Vec<Tablespace>,
    compression: CompressionAlgorithm,
}

impl<'c> Stream<'c> {
    /// Waits for the server's checkpoint. Then the server may be silent for so long.
    pub(super) fn begin(
        (connection, silence): (&'c mut Connection, Duration),
        major: ServerMajor,
        options: &Options,
    ) -> Result<Stream<'c>, Failure> {
        let closer = Arc::new(connection.closer()?);
        let mut copy = connection.copy_out(&options.command(major)?)?;
        copy.set_read_timeout(Some(silence));
        let (start, tablespaces) = before(&copy)?;
        Ok(Stream { copy, closer, start, tablespaces, compression: options.compression.algorithm })
    }
}

impl Route for Stream<'_> {
    fn start(&self) -> Position {
        self.start
    }

    fn tablespaces(&self) -> &[Tablespace] {
        &self.tablespaces
    }

    fn breaker(&self) -> Box<dyn FnOnce() + Send> {
        let closer = Arc::clone(&self.closer);
        Box::new(move || closer.close())
    }

    fn fetch(
        self,
        jobs: &Jobs<'_>,
        manifest: &mut (dyn Write + Send),
        progress: Progress<'_>,
    ) -> Result<Fetched, Failure> {
        let Stream { copy, tablespaces, compression, .. } = self;
        let sequence = Sequence::new(tablespaces.clone(), compression, true)?;
        if compression == CompressionAlgorithm::None || matches!(jobs, Jobs::Here(_)) {
            let archives = Archives::new(&tablespaces, compression, jobs);
            return direct(copy, sequence, archives, manifest, progress);
        }
        let (outgoing, arriving) = incoming::queue();
        let (stop, held) = thread::scope(|scope| {
            let archives = Archives::new(&tablespaces, compression, jobs);
            let held = scope.spawn(move || archives.run(arriving, manifest));
            (receive(copy, sequence, outgoing, progress), joined(held))
        });
        match (stop, held) {
            (Ok(stop), Ok(held)) => Ok(held.fetched(stop)),
            (stop, held) => Err(cause([held.err(), stop.err()])),
        }
    }
}

impl Stream<'_> {
    /// Hands on what the server sends as it comes, and gives the stop position. For formats that keep archives.
    pub(super) fn pass(
        self,
        take: &mut dyn FnMut(Event<'_>) -> Result<(), Failure>,
        progress: Progress<'_>,
    ) -> Result<Position, Failure> {
        let Stream { mut copy, tablespaces, compression, .. } = self;
        let mut sequence = Sequence::new(tablespaces, compression, true)?;
        while let Some(content) = copy.next()? {
            match sequence.handle(content)? {
                Event::Progress(bytes) => progress(Step::Done(bytes)),
                event => take(event)?,
            }
        }
        sequence.finish()?;
        after(copy)
    }
}

/// Reads archives on this thread.
fn direct(
    mut copy: CopyOut<'_>,
    mut sequence: Sequence,
    archives: Archives<'_>,
    manifest: &mut (dyn Write + Send),
    progress: Progress<'_>,
) -> Result<Fetched, Failure> {
    let from =
        Direct { copy: &mut copy, sequence: &mut sequence, progress: &|bytes| progress(Step::Done(bytes)) };
    let held = archives.run(Incoming::direct(from), manifest)?;
    sequence.finish()?;
    Ok(held.fetched(after(copy)?))
}

/// Reads all that BASE_BACKUP sends, and gives the stop position.
fn receive(
    mut copy: CopyOut<'_>,
    mut sequence: Sequence,
    outgoing: Outgoing,
    progress: Progress<'_>,
) -> Result<Position, Failure> {
    outgoing.run(&mut copy, &mut sequence, &|bytes| progress(Step::Done(bytes)))?;
    sequence.finish()?;
    after(copy)
}

/// The stop position, which comes after the data.
fn after(copy: CopyOut<'_>) -> Result<Position, Failure> {
    let after = copy.finish()?;
    let table = after.iter().find(|table| table.row_count() > 0);
    let table =
        table.ok_or_else(|| Failure::new("BASE_BACKUP", "the server did not report where it ended"))?;
    Ok(Position::from_row(&row(table, 0))?)
}

/// The start position and the tablespaces, which come before the data.
fn before(copy: &CopyOut<'_>) -> Result<(Position, Vec<Tablespace>), Failure> {
    let [start, tablespaces, ..] = copy.before() else {
        return Err(Failure::new("BASE_BACKUP", "the server sent no list of tablespaces"));
    };
    let rows = 0..tablespaces.row_count();
    let tablespaces: Result<_, _> = rows.map(|at| Tablespace::from_row(&row(tablespaces, at))).collect();
    Ok((Position::from_row(&row(start, 0))?, tablespaces?))
}

fn row(table: &Table, at: usize) -> Vec<Option<&[u8]>> {
    (0..table.columns.len()).map(|column| table.bytes(at, column)).collect()
}
