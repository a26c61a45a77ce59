//! Rows of some blocks of one table.
//!
//! Runs of blocks are asked for ahead of their answers and taken in their order, until the bytes that the table may give are used up; what
//! was asked for beyond that is thrown away. So what is taken depends on the table alone, and not on how fast answers come.

use super::super::Failure;
use super::blocks::Runs;
use super::guarded::Guarded;
use super::rows::{Question, Seen, before};
use super::session::{Refusal, RefusalKind, Session, Tried, rest};
use pgshrink_advisor::snapshot::Table;
use pgshrink_pgclient::Error as ClientError;
use pgshrink_pgclient::connection::{Pipeline, Reply};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// What sizes and places of a value take, in a file of sampled rows.
const VALUE_OVERHEAD: u64 = 8;
/// What a run takes without any row.
const RUN_OVERHEAD: u64 = 64;
/// A run that takes longer is slow because of what it does, and not because of the way to the server.
const SLOW: Duration = Duration::from_millis(500);
/// Requests on their way.
const PENDING_MAX: usize = 8;
/// Columns that are tried one by one when some value has no text.
const TRIALS_MAX: usize = 100;
/// How often the question is made smaller.
const QUESTIONS_MAX: usize = 20;

/// What was read of a table.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Runs of blocks, in the order in which they were read.
    pub(super) runs: Vec<Range<u32>>,
    /// By place.
    pub(super) rows: Vec<Seen>,
    /// Every block was read.
    pub(super) is_whole: bool,
    /// Bytes of the budget that were not needed.
    pub(super) left: u64,
    /// Columns and expressions that could not be read, with the server's reason.
    pub(super) problems: Vec<String>,
}

/// What a round of requests came to.
enum Round {
    /// The budget is used up, or the table.
    Done,
    /// The server refused this run.
    Refused(Range<u32>, Refusal),
    /// An answer was not of the expected shape.
    Strange,
}

/// Reads rows of a table of so many blocks until they have so many bytes. The question is made smaller where the server cannot answer it.
pub(super) fn sample(
    session: &mut Session,
    table: &Table,
    question: &mut Question,
    budget: u64,
) -> Tried<Taken> {
    let blocks = u32::try_from(table.bytes.main / 8192).unwrap_or(u32::MAX);
    let outside = table.toast.map_or(0, |toast| toast.bytes.main) / u64::from(blocks.max(1));
    // The budget for at least 32 runs, as far as the sizes tell.
    let run_blocks = u32::try_from(budget / 32 / (8192 + outside)).unwrap_or(u32::MAX);
    let mut problems = Vec::new();
    for _ in 0..QUESTIONS_MAX {
        let guarded = match Guarded::prepare(session, table, question, &question.sql(table))? {
            Ok(guarded) => guarded,
            Err(refusal) if question.expressions.is_empty() => return Ok(Err(refusal)),
            Err(refusal) => {
                problems.push(format!("expressions of its indexes: {refusal}"));
                question.expressions.clear();
                continue;
            }
        };
        let mut reader = Reader {
            question,
            guarded,
            runs: Runs::new(blocks, run_blocks),
            queue: VecDeque::new(),
            budget,
            used: 0,
            is_slow: false,
            taken: Taken::default(),
        };
        let round = reader.read(session)?;
        let mut taken = reader.taken;
        match round {
            Round::Done => {
                taken.rows.sort_by_key(|row| row.place);
                taken.problems = problems;
                taken.left = budget.saturating_sub(reader.used);
                return Ok(Ok(taken));
            }
            Round::Strange => {
                return Err(Failure::new(session.place(), "its rows do not have the expected structure"));
            }
            Round::Refused(run, refusal) => {
                let has_text = !question.values.is_empty() || !question.expressions.is_empty();
                let is_of_values = matches!(refusal.kind, RefusalKind::Other | RefusalKind::TimedOut);
                if !has_text || !is_of_values {
                    return Ok(Err(refusal));
                }
                problems.extend(reduce(session, table, question, &run, &refusal)?);
            }
        }
    }
    Err(Failure::new(session.place(), "it rejected every query about a table"))
}

struct Reader<'q> {
    question: &'q Question,
    guarded: Guarded,
    runs: Runs,
    /// Runs that were asked for and are not taken, in their order.
    queue: VecDeque<Range<u32>>,
    budget: u64,
    used: u64,
    /// The last answer took its time.
    is_slow: bool,
    taken: Taken,
}

impl Reader<'_> {
    fn read(&mut self, session: &mut Session) -> Result<Round, Failure> {
        for attempt in 1.. {
            match session.pipelined(|pipeline| self.round(pipeline))? {
                Round::Refused(_, refusal) if refusal.is_worth_another(attempt) => rest(attempt),
                round => return Ok(round),
            }
        }
        Ok(Round::Strange)
    }

    /// Asks for runs and takes them, until there is a reason to stop; then the answers on their way are thrown away.
    fn round(&mut self, pipeline: &mut Pipeline<'_>) -> Result<Round, ClientError> {
        let mut stopped: Option<Round> = None;
        let (mut pending, mut rows) = (0, Vec::new());
        // Each answer has a second one, to the end of its transaction.
        let mut is_over = false;
        let mut last = Instant::now();
        loop {
            while stopped.is_none() && pending < self.pending_max() && self.guarded.has_room(pipeline) {
                if pending == self.queue.len() {
                    let Some(run) = self.runs.next() else { break };
                    self.queue.push_back(run);
                }
                let run = &self.queue[pending];
                let (first, end) = (before(run.start), before(run.end));
                self.guarded.request(pipeline, &first, &end)?;
                pending += 1;
            }
            if pending == 0 && !is_over {
                self.taken.is_whole = stopped.is_none();
                return Ok(stopped.unwrap_or(Round::Done));
            }
            match pipeline.next()? {
                Some(Reply::Complete(_) | Reply::Failed(_)) if is_over => is_over = false,
                Some(Reply::Row(row)) if stopped.is_none() => match self.question.read(&row) {
                    Some(seen) => rows.push(seen),
                    None => stopped = Some(Round::Strange),
                },
                Some(Reply::Row(_)) => {}
                Some(Reply::Complete(_)) => {
                    is_over = true;
                    pending -= 1;
                    self.is_slow = last.elapsed() > SLOW;
                    last = Instant::now();
                    if stopped.is_none() && !self.take(std::mem::take(&mut rows)) {
                        stopped = Some(Round::Done);
                    }
                }
                Some(Reply::Failed(report)) => {
                    is_over = true;
                    pending -= 1;
                    if stopped.is_none() {
                        let run = self.queue.front().cloned().unwrap_or_default();
                        stopped = Some(Round::Refused(run, Refusal::of(report)));
                    }
                }
                None => return Ok(Round::Strange),
            }
        }
    }

    /// Requests that the rest of the budget is enough for, as far as the runs so far tell. None ahead while they are slow: they
    /// would have to be waited for when one is refused, as it took too long.
    fn pending_max(&self) -> usize {
        let each = self.used / (self.taken.runs.len() as u64).max(1);
        match self.taken.runs.is_empty() || self.is_slow {
            true => 1,
            false => usize::try_from(self.budget.saturating_sub(self.used) / each.max(1))
                .unwrap_or(PENDING_MAX)
                .clamp(1, PENDING_MAX),
        }
    }

    /// Takes the rows of the oldest run. False: they do not fit the budget any more.
    fn take(&mut self, mut rows: Vec<Seen>) -> bool {
        let all = rows.iter().map(bytes).sum::<u64>().saturating_add(RUN_OVERHEAD);
        let fits = self.used.saturating_add(all) <= self.budget;
        if !fits && !self.taken.runs.is_empty() {
            return false;
        }
        if !fits {
            // There is no sample without one run. What is too much are its values.
            let mut left = self.budget;
            for row in &mut rows {
                let own = bytes(row);
                left = left.saturating_sub(own);
                if left == 0 {
                    let values = row.values.iter_mut().chain(&mut row.expression_values);
                    values.for_each(|value| *value = None);
                }
            }
        }
        self.used = self.used.saturating_add(all);
        self.taken.runs.extend(self.queue.pop_front());
        self.taken.rows.append(&mut rows);
        fits
    }
}

fn bytes(row: &Seen) -> u64 {
    let values = row.values.iter().chain(&row.expression_values);
    let values: usize = values.flatten().map(String::len).sum();
    let count = row.stored.len() + row.expressions.len();
    (count as u64).saturating_mul(VALUE_OVERHEAD).saturating_add(values as u64)
}

/// Takes out of a question what the server cannot answer, and says what that was.
fn reduce(
    session: &mut Session,
    table: &Table,
    question: &mut Question,
    run: &Range<u32>,
    refusal: &Refusal,
) -> Result<Vec<String>, Failure> {
    let mut problems = Vec::new();
    if question.values.len() <= TRIALS_MAX {
        for at in question.values.clone() {
            let Some(sql) = question.trial_sql(table, at) else { continue };
            if let Err(refusal) = trial(session, table, question, &sql, run)? {
                let name = table.columns.get(at).map_or("", |column| column.name.as_str());
                problems.push(format!("values of the column {name}: {refusal}"));
                question.values.retain(|kept| *kept != at);
            }
        }
    }
    if !problems.is_empty() {
        return Ok(problems);
    }
    if !question.expressions.is_empty() {
        question.expressions.clear();
        return Ok(vec![format!("expressions of its indexes: {refusal}")]);
    }
    question.values.clear();
    Ok(vec![format!("all of its values: {refusal}")])
}

/// Asks about some blocks, and has no use for the answer.
fn trial(
    session: &mut Session,
    table: &Table,
    question: &Question,
    sql: &str,
    run: &Range<u32>,
) -> Tried<()> {
    let guarded = match Guarded::prepare(session, table, question, sql)? {
        Ok(guarded) => guarded,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut ask = || {
        session.pipelined(|pipeline| {
            guarded.request(pipeline, &before(run.start), &before(run.end))?;
            let mut refused = Ok(());
            while let Some(reply) = pipeline.next()? {
                if let Reply::Failed(report) = reply {
                    refused = Err(Refusal::of(report));
                }
            }
            Ok(refused)
        })
    };
    let mut attempt = 1;
    loop {
        match ask()? {
            Err(refusal) if refusal.is_worth_another(attempt) => rest(attempt),
            done => return Ok(done),
        }
        attempt += 1;
    }
}
