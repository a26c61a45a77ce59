//! A connection that reads pieces of files, with several requests under way at any time.

use super::damage::Damage;
use super::pace::Pace;
use super::pieces::{Kept, PIECE_BYTES, Piece, Run};
use super::stop::Stop;
use crate::backup::Failure;
use crate::backup::failure::broken_off;
use pgshrink_backup::Lsn;
use pgshrink_backup::pages::{WrongPage, wrong_pages};
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_pgclient::connection::{Connection, Pipeline, Reply, Statement};
use pgshrink_pgclient::protocol::backend::Report;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

/// A row for each piece from one offset to another.
const READ: &str = "SELECT pg_catalog.pg_read_binary_file($1, place, $4, true) \
    FROM pg_catalog.generate_series($2::bigint, $3::bigint, $4::bigint) AS place";
/// Requests under way on a connection, in bytes of their answers, and in number.
const UNDER_WAY_BYTES_MAX: u64 = 8 << 20;
const UNDER_WAY_MAX: usize = 64;
/// How often a read is repeated that a standby canceled because of its replay.
const CANCELED_MAX: u32 = 100;
/// SQLSTATEs: of such a cancellation; of a name that is no text in the database's encoding.
const SERIALIZATION_FAILURE: &str = "40001";
const UNTRANSLATABLE: &str = "22021";

/// What all readers use.
pub(super) struct Reading<'r, 'k> {
    pub(super) runs: &'r Mutex<Receiver<Run>>,
    pub(super) kept: &'r Kept<'k>,
    pub(super) stop: &'r Stop,
    pub(super) pace: Option<&'r Pace>,
    /// The backup's start and what was found, where pages have checksums to verify.
    pub(super) verify: Option<(Lsn, &'r Damage)>,
}

/// Reads pieces until no more come.
pub(super) fn read(connection: &mut Connection, reading: &Reading<'_, '_>) -> Result<(), Failure> {
    let statement = connection.prepare(READ)?;
    let pipeline = connection.pipeline()?;
    let (under_way, again) = (VecDeque::new(), VecDeque::new());
    Reader { reading, pipeline, statement, under_way, again }.run()
}

/// Pieces that are to be read.
struct Request {
    run: Run,
    /// Bytes that were asked for.
    bytes: u64,
    canceled: u32,
    /// Pages of a single piece whose checksums were wrong in a first look.
    suspects: Option<Vec<WrongPage>>,
}

enum Answer {
    /// The next piece; none: there is no such file.
    Piece(Option<Vec<u8>>),
    End,
    Failed(Box<Report>),
}

struct Reader<'r, 'k> {
    reading: &'r Reading<'r, 'k>,
    pipeline: Pipeline<'r>,
    statement: Statement,
    under_way: VecDeque<Request>,
    /// What is to be read another time.
    again: VecDeque<Request>,
}

impl Reader<'_, '_> {
    fn run(mut self) -> Result<(), Failure> {
        loop {
            self.ask()?;
            let Some(mut request) = self.under_way.pop_front() else { return Ok(()) };
            loop {
                let answer = self.answer()?;
                self.reading.stop.check()?;
                match answer {
                    Answer::Piece(_) if request.run.is_over() => return Err(unexpected("another row")),
                    Answer::Piece(raw) => {
                        let piece = request.run.next();
                        self.take(piece, request.suspects.as_deref(), raw)?;
                    }
                    Answer::End if request.run.is_over() => break,
                    Answer::End => return Err(unexpected("no more rows")),
                    Answer::Failed(report) => {
                        self.failed(request, &report)?;
                        break;
                    }
                }
            }
        }
    }

    /// Asks for as much as may be under way. Waits for work if there is nothing else to do.
    fn ask(&mut self) -> Result<(), Failure> {
        while self.under_way.len() < UNDER_WAY_MAX && self.bytes() < UNDER_WAY_BYTES_MAX {
            let Some(request) = self.next()? else { break };
            let path = request.run.file.listed.path.as_bytes();
            let (first, last) = request.run.offsets();
            let [first, last, piece] = [first, last, PIECE_BYTES].map(|number| number.to_string());
            let parameters =
                [Some(path), Some(first.as_bytes()), Some(last.as_bytes()), Some(piece.as_bytes())];
            if !self.pipeline.has_room(&parameters) {
                self.again.push_front(request);
                break;
            }
            if let Some(pace) = self.reading.pace {
                // What was asked for comes meanwhile.
                self.pipeline.flush()?;
                pace.wait(request.bytes, self.reading.stop)?;
            }
            self.pipeline.request(&self.statement, &parameters)?;
            self.under_way.push_back(request);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Request>, Failure> {
        if let Some(request) = self.again.pop_front() {
            return Ok(Some(request));
        }
        let run = if self.under_way.is_empty() {
            self.reading.runs.lock().map_err(|_| broken_off())?.recv().ok()
        } else {
            // Another reader may be waiting for work with the lock in its hand; this one has answers to read.
            self.reading.runs.try_lock().ok().and_then(|runs| runs.try_recv().ok())
        };
        Ok(run.map(|run| Request::new(run, None)))
    }

    /// That the requests under way will bring.
    fn bytes(&self) -> u64 {
        self.under_way.iter().map(|request| request.bytes).sum()
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        match self.pipeline.next()? {
            Some(Reply::Row(row)) => {
                let value = row.values().next().flatten();
                match value {
                    Some(bytes) if bytes.len() as u64 > PIECE_BYTES => Err(unexpected("a longer piece")),
                    value => Ok(Answer::Piece(value.map(<[u8]>::to_vec))),
                }
            }
            Some(Reply::Complete(_)) => Ok(Answer::End),
            Some(Reply::Failed(report)) => Ok(Answer::Failed(report)),
            None => Err(unexpected("no answer")),
        }
    }

    fn take(
        &mut self,
        piece: Piece,
        suspects: Option<&[WrongPage]>,
        raw: Option<Vec<u8>>,
    ) -> Result<(), Failure> {
        let file = &piece.file;
        if let (Some((start, damage)), Some(first), Some(raw)) = (self.reading.verify, file.first_block, &raw)
        {
            let block = first.wrapping_add((piece.offset() / PAGE_SIZE as u64) as u32);
            let wrong = wrong_pages(raw, block, start);
            match suspects {
                // A page that is being written looks like this; a second look tells.
                None if !wrong.is_empty() => {
                    self.again.push_back(Request::new(piece.run(), Some(wrong)));
                    return Ok(());
                }
                None => {}
                Some(before) => {
                    let both = wrong.iter().filter(|page| before.iter().any(|old| old.block == page.block));
                    damage.note(file, &both.copied().collect::<Vec<_>>());
                }
            }
        }
        piece.complete(raw, self.reading.kept)
    }

    fn failed(&mut self, request: Request, report: &Report) -> Result<(), Failure> {
        let path = &request.run.file.listed.path;
        match report.sqlstate.as_str() {
            SERIALIZATION_FAILURE if request.canceled < CANCELED_MAX => {
                // What has come of it stays.
                let (canceled, bytes) = (request.canceled + 1, request.run.bytes());
                self.again.push_back(Request { canceled, bytes, ..request });
                Ok(())
            }
            UNTRANSLATABLE => {
                let what = "its name is not valid in the encoding of the database; use --route stream";
                Err(Failure::new(path, format!("{report}\n{what}")))
            }
            _ => Err(Failure::new(path, format!("the server cannot read it: {report}"))),
        }
    }
}

impl Request {
    fn new(run: Run, suspects: Option<Vec<WrongPage>>) -> Request {
        Request { bytes: run.bytes(), run, canceled: 0, suspects }
    }
}

fn unexpected(found: &str) -> Failure {
    Failure::new("pg_read_binary_file", format!("expected a row for each piece of a file, found {found}"))
}
