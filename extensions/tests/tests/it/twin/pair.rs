//! One session of each server: both are told the same, and must say the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pgshrink_testkit::Cluster;

use super::link::{Answer, Link};
use super::story::Story;

/// How long statements wait for locks.
pub const PATIENCE: &str = "40ms";

/// Why a step has no answer.
#[derive(Debug)]
pub enum Halt {
    /// Our server has gone, as the run has told it to.
    Crash,
    /// The servers disagree.
    Wrong(String),
}

pub type Step<T> = Result<T, Halt>;

/// What a session was doing, should the server go.
#[derive(Clone, Debug, Default)]
pub enum Doing {
    #[default]
    Nothing,
    /// In a transaction that has left this number in the table of marks.
    Open(u64),
    Committing(u64),
    Preparing(u64),
    /// Ending a prepared transaction.
    Finishing(u64, String),
    /// Outside of a transaction, and without effect on what the tables say.
    Upkeep,
    /// Making an index, or its successor, without a transaction around it.
    Concurrently(String),
}

/// The two servers and what all sessions share.
#[derive(Debug)]
pub struct Twins {
    pub ours: Cluster,
    pub twin: Cluster,
    pub story: Arc<Story>,
    pub marks: AtomicU64,
    /// How long statements of our server wait for locks. Conversions hold some for a moment.
    pub patience: &'static str,
}

#[derive(Debug)]
pub struct Pair {
    pub number: usize,
    pub doing: Doing,
    /// An error has ended the transaction; only a rollback helps.
    pub failed: bool,
    pub savepoints: usize,
    /// The transaction has changed the tablespace's setting, and cannot be prepared.
    pub changed: bool,
    pub prepared: Vec<u64>,
    pub ours: Link,
    pub twin: Link,
    story: Arc<Story>,
    patience: &'static str,
}

impl Pair {
    pub fn new(twins: &Twins, number: usize) -> Pair {
        let (ours, twin) = (Link::new(twins.ours.psql()), Link::new(twins.twin.psql()));
        let mut pair = Pair {
            number,
            doing: Doing::Nothing,
            failed: false,
            savepoints: 0,
            changed: false,
            prepared: Vec::new(),
            ours,
            twin,
            story: twins.story.clone(),
            patience: twins.patience,
        };
        pair.greet(&["ours", "twin"]);
        pair
    }

    /// After a crash: another session of our server.
    pub fn reconnect(&mut self, twins: &Twins) {
        self.ours = Link::new(twins.ours.psql());
        self.greet(&["ours"]);
    }

    fn greet(&mut self, which: &[&str]) {
        for side in which {
            let patience = if *side == "ours" { self.patience } else { PATIENCE };
            let hello = format!(
                "set statement_timeout = '300s'; set lock_timeout = '{patience}'; set client_min_messages = error; \
                set temp_tablespaces = fast"
            );
            let link = if *side == "ours" { &mut self.ours } else { &mut self.twin };
            let said = link.ask(&hello).expect("a new session ended");
            assert!(!said.failed(), "{said:?}");
        }
    }

    /// Back to the time that statements wait for locks.
    pub fn be_impatient(&mut self) -> Step<()> {
        let set = |time: &str| format!("set lock_timeout = '{time}'");
        self.each(&set(self.patience), &set(PATIENCE)).map(drop)
    }

    /// Tells both, ours first.
    pub fn both(&mut self, sql: &str) -> Step<Answer> {
        self.each(sql, sql)
    }

    /// As [`Pair::both`], for a statement that has another form in a server without the library.
    pub fn each(&mut self, ours: &str, twin: &str) -> Step<Answer> {
        self.story.tell(self.number, ours);
        let ours_said = self.ours.ask(ours).ok_or(Halt::Crash)?;
        let twin_said = self.twin.ask(twin).expect("the twin server has gone");
        if ours_said != twin_said {
            let (ours_said, twin_said) = (ours_said.short(), twin_said.short());
            return Err(Halt::Wrong(format!("{ours}\n  ours: {ours_said}\n  twin: {twin_said}")));
        }
        if ours_said.failed() {
            self.story.tell(self.number, &format!("  is refused: {}", ours_said.message));
            self.failed = matches!(self.doing, Doing::Open(_));
        }
        Ok(ours_said)
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.doing, Doing::Nothing)
    }

    /// Begins a transaction that can be told apart from one that was lost.
    pub fn begin(&mut self, twins: &Twins, mode: &str) -> Step<()> {
        let mark = twins.marks.fetch_add(1, Ordering::Relaxed);
        (self.failed, self.savepoints, self.changed) = (false, 0, false);
        self.doing = Doing::Open(mark);
        self.both(&format!("begin {mode}"))?;
        self.both(&format!("insert into marker values ({mark})")).map(drop)
    }

    pub fn end(&mut self, commit: bool) -> Step<()> {
        let Doing::Open(mark) = self.doing else { return Ok(()) };
        let commits = commit && !self.failed;
        if commits {
            self.doing = Doing::Committing(mark);
        }
        let said = self.both(if commit { "commit" } else { "rollback" })?;
        // Both have found a cycle of serializable transactions only now.
        let is_cycle = said.state == "40001";
        if commits && said.failed() && !is_cycle {
            return Err(Halt::Wrong(format!("a commit failed: {}", said.short())));
        }
        self.done();
        Ok(())
    }

    pub fn prepare(&mut self) -> Step<()> {
        let Doing::Open(mark) = self.doing else { return Ok(()) };
        if self.failed || self.changed {
            return self.end(false);
        }
        self.doing = Doing::Preparing(mark);
        let said = self.both(&format!("prepare transaction 'g{mark}'"))?;
        self.done();
        // One with temporary tables is refused, and rolled back.
        if !said.failed() {
            self.prepared.push(mark);
        }
        Ok(())
    }

    /// Ends the transaction that has been prepared for longest.
    pub fn finish(&mut self, commit: bool) -> Step<()> {
        let mark = self.prepared[0];
        let sql = format!("{} prepared 'g{mark}'", if commit { "commit" } else { "rollback" });
        self.doing = Doing::Finishing(mark, sql.clone());
        let said = self.both(&sql)?;
        self.prepared.remove(0);
        self.done();
        if said.failed() { Err(Halt::Wrong(said.short())) } else { Ok(()) }
    }

    /// A statement outside of transactions.
    pub fn alone(&mut self, doing: Doing, sql: &str) -> Step<()> {
        self.doing = doing;
        self.both(sql)?;
        self.done();
        Ok(())
    }

    fn done(&mut self) {
        (self.doing, self.failed, self.savepoints) = (Doing::Nothing, false, 0);
    }

    /// After a crash: learns what became of the last statement, and has the twin do as much.
    pub fn resolve(&mut self, twins: &Twins) -> Step<()> {
        let has = |sql: String| twins.ours.sql(&sql).unwrap_or_else(|error| panic!("{sql}: {error}")) == "1";
        let marked = |mark: u64| has(format!("select count(*) from marker where n = {mark}"));
        let prepared =
            |mark: u64| has(format!("select count(*) from pg_prepared_xacts where gid = 'g{mark}'"));
        let doing = std::mem::take(&mut self.doing);
        self.story.tell(self.number, &format!("was at {doing:?}"));
        let also = match &doing {
            Doing::Nothing | Doing::Upkeep => None,
            Doing::Open(mark) if marked(*mark) => {
                return Err(Halt::Wrong(format!("what was never committed is there: mark {mark}")));
            }
            Doing::Open(_) => Some("rollback".to_owned()),
            Doing::Committing(mark) => Some(if marked(*mark) { "commit" } else { "rollback" }.to_owned()),
            Doing::Preparing(mark) if prepared(*mark) => {
                self.prepared.push(*mark);
                Some(format!("prepare transaction 'g{mark}'"))
            }
            Doing::Preparing(_) => Some("rollback".to_owned()),
            Doing::Finishing(mark, _) if prepared(*mark) => None,
            Doing::Finishing(mark, sql) => {
                self.prepared.retain(|other| other != mark);
                Some(sql.clone())
            }
            Doing::Concurrently(sql) => made_index(sql, has).then(|| sql.clone()),
        };
        if let Some(sql) = also {
            self.story.tell(self.number, &format!("so the twin: {sql}"));
            let said = self.twin.ask(&sql).expect("the twin server has gone");
            if said.failed() {
                return Err(Halt::Wrong(format!(
                    "the twin refuses what ours has done: {sql}: {}",
                    said.short()
                )));
            }
        }
        (self.failed, self.savepoints) = (false, 0);
        Ok(())
    }
}

/// Whether an index that was being made is there, and whole. One that is rebuilt says nothing new.
fn made_index(sql: &str, has: impl Fn(String) -> bool) -> bool {
    let Some(rest) = sql.strip_prefix("create index concurrently ") else { return false };
    let name = rest.split(' ').next().unwrap_or_default();
    has(format!(
        "select count(*) from pg_index join pg_class c on c.oid = indexrelid where relname = '{name}' and indisvalid"
    ))
}
