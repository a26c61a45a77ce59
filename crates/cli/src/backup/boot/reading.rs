//! Reading every database of the restored cluster, several relations at a time.

use super::super::Failure;
use super::pages::BadPage;
use super::relations::{Lister, Relation};
use super::report::{DatabaseReport, Depth, PROBLEMS_MAX, Problem};
use super::session::{Access, Answer, Session};
use super::tools::Tools;
use super::verdict::{self, Doing};
use crate::cfs::output::Progress;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Relations for which another session pays.
const RELATIONS_OF_SESSION_MIN: usize = 16;
/// Where the list of databases is read.
const FIRST_DATABASES: [&[u8]; 3] = [b"template1", b"postgres", b"template0"];
/// Names of databases come as they are stored, whatever encoding that is.
const RAW: &str = "SET client_encoding = 'SQL_ASCII'";
/// Names come as UTF-8. In a database that has no encoding they come as they are stored.
const NAMES: &str = "SELECT set_config('client_encoding', 'SQL_ASCII', false) \
                      WHERE current_setting('server_encoding') = 'SQL_ASCII'";
/// The lists of relations are read from the tables of the catalog. Its indexes may be damaged.
const LISTING: &str = "SELECT set_config('client_encoding', 'SQL_ASCII', false) \
                        WHERE current_setting('server_encoding') = 'SQL_ASCII'; \
                       SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off";

/// What is found, by all threads.
pub(super) struct Ledger {
    problems: Mutex<(u64, Vec<Problem>)>,
    /// Pages with wrong checksums whose relation is not known yet.
    bad: Mutex<Vec<BadPage>>,
}

impl Ledger {
    pub(super) fn new(bad: Vec<BadPage>) -> Ledger {
        Ledger { problems: Mutex::default(), bad: Mutex::new(bad) }
    }

    fn add(&self, problem: Problem) {
        let mut problems = lock(&self.problems);
        problems.0 += 1;
        if problems.1.len() < PROBLEMS_MAX {
            problems.1.push(problem);
        }
    }

    /// Takes the pages of a relation.
    fn bad_pages(&self, database: u32, relation: &Relation) -> Vec<BadPage> {
        let mut bad = lock(&self.bad);
        let database = if relation.is_shared { 0 } else { database };
        let is_of = |page: &mut BadPage| page.filenode == relation.filenode && page.database == database;
        bad.extract_if(.., is_of).collect()
    }

    /// How many problems there are, and the first of them.
    pub(super) fn end(self) -> (u64, Vec<Problem>) {
        for page in std::mem::take(&mut *lock(&self.bad)) {
            self.add(Problem {
                database: None,
                schema: None,
                relation: None,
                check: "pg_checksums".to_owned(),
                message: page.message,
            });
        }
        self.problems.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Database {
    oid: u32,
    name: Vec<u8>,
    shown: String,
    /// A DROP DATABASE was broken off.
    is_invalid: bool,
    /// The order of text may be another one on this machine.
    collation: Option<String>,
}

/// One thread's session.
pub(super) struct Worker<'b, 'w> {
    pub(super) session: &'w mut Session<'b>,
    pub(super) tools: &'w Tools,
    pub(super) bar: &'w Progress,
    pub(super) collation: Option<&'w str>,
    database: &'w Database,
    report: &'w Mutex<DatabaseReport>,
    ledger: &'w Ledger,
}

/// Reads and checks all databases.
pub(super) fn read_all(
    access: &Access<'_>,
    threads: usize,
    ledger: &Ledger,
    bar: &Progress,
) -> Result<Vec<DatabaseReport>, Failure> {
    let mut reports = Vec::new();
    let mut with_shared = true;
    for database in databases(access, bar)? {
        let reading = Reading { access, threads, ledger, bar, database: &database };
        let mut report = reading.run(&mut with_shared)?;
        report.finish();
        reports.push(report);
    }
    Ok(reports)
}

fn databases(access: &Access<'_>, bar: &Progress) -> Result<Vec<Database>, Failure> {
    const LIST: &str = "SELECT oid, datname, datconnlimit = -2, datcollversion, \
        CASE WHEN datcollversion IS NOT NULL THEN pg_database_collation_actual_version(oid) END \
        FROM pg_database ORDER BY oid";
    let mut refused = None;
    for name in FIRST_DATABASES {
        let mut session = Session::new(access, name, RAW);
        let opened = match session.open()? {
            Answer::Done(_) => session.ask(LIST, Doing::Read)?,
            refused => refused,
        };
        match opened {
            Answer::Done(mut tables) => {
                let table = tables.pop().unwrap_or_default();
                let row = |row: usize| {
                    let name = table.bytes(row, 1)?.to_vec();
                    let collation = match (table.text(row, 3), table.text(row, 4)) {
                        (Some(then), Some(now)) if then != now => Some(format!(
                            "the database has collation version {then} and this machine {now}: text may sort differently here"
                        )),
                        _ => None,
                    };
                    let shown = String::from_utf8_lossy(&name).into_owned();
                    let is_invalid = table.text(row, 2) == Some("t");
                    Some(Database {
                        oid: table.text(row, 0)?.parse().ok()?,
                        name,
                        shown,
                        is_invalid,
                        collation,
                    })
                };
                let found = (0..table.row_count()).filter_map(row).collect();
                if let Answer::Done(tables) =
                    session.ask("SELECT sum(pg_database_size(oid)) FROM pg_database", Doing::Read)?
                {
                    let bytes = tables.first().and_then(|table| table.text(0, 0)?.parse().ok());
                    bar.set_total(bytes.unwrap_or(0));
                }
                return Ok(found);
            }
            failed => refused = Some(failed),
        }
    }
    Err(match refused {
        Some(Answer::Damage(why)) => Failure::damage("the restored cluster", why),
        Some(Answer::Unable(why)) => Failure::new("the restored cluster", why),
        _ => Failure::new("the restored cluster", "no database was found"),
    })
}

struct Reading<'b, 'w> {
    access: &'b Access<'b>,
    threads: usize,
    ledger: &'w Ledger,
    bar: &'w Progress,
    database: &'w Database,
}

impl Reading<'_, '_> {
    /// Reads one database. What all databases share is read with the first one that can be.
    fn run(&self, with_shared: &mut bool) -> Result<DatabaseReport, Failure> {
        let report = Mutex::new(DatabaseReport::new(&self.database.shown));
        let into =
            |report: Mutex<DatabaseReport>| report.into_inner().unwrap_or_else(PoisonError::into_inner);
        if self.database.is_invalid {
            let why = "an interrupted DROP DATABASE left it invalid: it cannot be connected to, only dropped";
            lock(&report).leave(Depth::NotChecked, "the database", why);
            return Ok(into(report));
        }
        if let Some(collation) = &self.database.collation {
            lock(&report).leave(Depth::NotChecked, "the order of text", collation);
        }
        let mut session = Session::new(self.access, &self.database.name, LISTING);
        if let failed @ (Answer::Damage(_) | Answer::Unable(_)) = session.open()? {
            self.fail(&report, "connect", failed);
            return Ok(into(report));
        }
        let tools = Tools::install(&mut session, &self.access.role)?;
        let mut lister = Lister::new(std::mem::take(with_shared));
        loop {
            let relations = match lister.next(&mut session)? {
                Ok(relations) if relations.is_empty() => break,
                Ok(relations) => relations,
                Err(failed) => {
                    self.fail(&report, "catalog", failed);
                    break;
                }
            };
            self.examine(&relations, &mut session, &tools, &report)?;
        }
        Ok(into(report))
    }

    /// Notes that a database, or what its catalog does not tell of, was not read.
    fn fail(&self, report: &Mutex<DatabaseReport>, check: &str, failed: Answer) {
        match failed {
            Answer::Done(_) => {}
            Answer::Unable(why) => lock(report).leave(Depth::NotRead, "the database", &why),
            Answer::Damage(message) => self.ledger.add(Problem {
                database: Some(self.database.shown.clone()),
                schema: None,
                relation: None,
                check: check.to_owned(),
                message,
            }),
        }
    }

    /// The first session is this one. Others may be refused when the cluster allows few connections.
    fn examine(
        &self,
        relations: &[Relation],
        session: &mut Session<'_>,
        tools: &Tools,
        report: &Mutex<DatabaseReport>,
    ) -> Result<(), Failure> {
        let next = AtomicUsize::new(0);
        let work = |session: &mut Session<'_>| {
            let mut worker = Worker {
                session,
                tools,
                bar: self.bar,
                collation: self.database.collation.as_deref(),
                database: self.database,
                report,
                ledger: self.ledger,
            };
            while let Some(relation) = relations.get(next.fetch_add(1, Ordering::Relaxed)) {
                for page in self.ledger.bad_pages(self.database.oid, relation) {
                    worker.problem(relation, "pg_checksums", page.message);
                }
                worker.examine(relation)?;
            }
            Ok(())
        };
        let more = || {
            let mut session = Session::new(self.access, &self.database.name, NAMES);
            match session.open()? {
                Answer::Done(_) => work(&mut session),
                _ => Ok(()),
            }
        };
        let count = self.threads.min(relations.len() / RELATIONS_OF_SESSION_MIN + 1);
        thread::scope(|scope| {
            let others: Vec<_> = (1..count).map(|_| scope.spawn(more)).collect();
            let mut done = work(session);
            for other in others {
                let panicked = |_| Err(Failure::new("pgshrink", "a thread has panicked; please report it"));
                done = done.and(other.join().unwrap_or_else(panicked));
            }
            done
        })
    }
}

impl Worker<'_, '_> {
    pub(super) fn problem(&self, relation: &Relation, check: &str, message: String) {
        self.ledger.add(Problem {
            database: Some(self.database.shown.clone()),
            schema: Some(relation.schema.clone()),
            relation: Some(relation.name.clone()),
            check: check.to_owned(),
            message: verdict::cut(message),
        });
    }

    pub(super) fn leave(&self, depth: Depth, relation: &Relation, why: &str) {
        let name = format!("{}.{}", relation.schema, relation.name);
        lock(self.report).leave(depth, &name, why);
    }

    pub(super) fn tally(&self, add: impl FnOnce(&mut DatabaseReport)) {
        add(&mut lock(self.report));
    }
}
