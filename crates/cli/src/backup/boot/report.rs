//! The report of `verify --boot`.

use super::super::Failure;
use super::pages::Checksums;
use super::startup;
use pgshrink_codec::{counted, grouped};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Problems that are listed; all are counted.
pub(super) const PROBLEMS_MAX: usize = 1000;
/// Names that stand for all of which the same is said.
const EXAMPLES_MAX: usize = 10;
/// Those that people see.
const EXAMPLES_SHOWN: usize = 3;
/// Reasons that are told apart in a database.
const REASONS_MAX: usize = 100;

/// What is written and printed. A later version may have more fields; `version` changes when one changes its meaning.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) format: &'static str,
    pub(super) version: u32,
    pub(super) verdict: Verdict,
    pub(super) backup: String,
    pub(super) id: String,
    pub(super) label: String,
    pub(super) system_identifier: String,
    pub(super) manifest_sha256: String,
    pub(super) record_sha256: String,
    pub(super) server: ServerReport,
    pub(super) began: String,
    pub(super) ended: String,
    pub(super) seconds: Seconds,
    pub(super) wal: Wal,
    pub(super) checksums: Option<Checksums>,
    /// What was not as in the cluster itself, or could not be done.
    pub(super) notes: Vec<String>,
    pub(super) databases: Vec<DatabaseReport>,
    pub(super) problem_count: u64,
    pub(super) problems: Vec<Problem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// Everything was read, and no problem found.
    Good,
    Damaged,
    /// No problem was found, but not everything could be read.
    Incomplete,
}

#[derive(Serialize)]
pub(super) struct ServerReport {
    /// `server_version_num` of the server that was backed up.
    pub(super) backed_up: u32,
    /// Of the one that was started.
    pub(super) started: String,
    /// Its programs.
    pub(super) bin: String,
}

#[derive(Default, Serialize)]
pub(super) struct Seconds {
    pub(super) restore: f64,
    pub(super) start: f64,
    pub(super) checks: f64,
}

#[derive(Serialize)]
pub(super) struct Wal {
    pub(super) start_lsn: String,
    pub(super) stop_lsn: String,
    pub(super) timeline: u32,
    /// The start of the last record that was replayed; none if the server does not say.
    pub(super) replayed_to: Option<String>,
}

#[derive(Default, Serialize)]
pub(super) struct DatabaseReport {
    pub(super) database: String,
    /// Tables, materialized views, sequences and TOAST tables that were read, every row with every value.
    pub(super) relations: u64,
    pub(super) rows: u64,
    /// Bytes of their main forks.
    pub(super) bytes: u64,
    pub(super) heaps_checked: u64,
    pub(super) visibility_maps_checked: u64,
    pub(super) indexes_checked: u64,
    /// Indexes whose pages were read, and no more.
    pub(super) indexes_read: u64,
    /// Not known to be good.
    pub(super) not_read: Vec<Left>,
    /// Read, or an index, but not checked further.
    pub(super) not_checked: Vec<Left>,
    #[serde(skip)]
    left: BTreeMap<(Depth, String), Names>,
}

/// How far a check did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    NotRead,
    NotChecked,
}

#[derive(Default)]
struct Names {
    count: u64,
    examples: Vec<String>,
}

/// What was left out for one reason.
#[derive(Serialize)]
pub(super) struct Left {
    pub(super) why: String,
    pub(super) count: u64,
    pub(super) examples: Vec<String>,
}

#[derive(Clone, Serialize)]
pub(super) struct Problem {
    pub(super) database: Option<String>,
    pub(super) schema: Option<String>,
    pub(super) relation: Option<String>,
    pub(super) check: String,
    pub(super) message: String,
}

impl DatabaseReport {
    pub(super) fn new(database: &str) -> DatabaseReport {
        DatabaseReport { database: database.to_owned(), ..DatabaseReport::default() }
    }

    /// Notes something that was left out.
    pub(super) fn leave(&mut self, depth: Depth, name: &str, why: &str) {
        let mut key = (depth, why.to_owned());
        if self.left.len() >= REASONS_MAX && !self.left.contains_key(&key) {
            key.1 = "other reasons".to_owned();
        }
        let names = self.left.entry(key).or_default();
        names.count += 1;
        if names.examples.len() < EXAMPLES_MAX {
            names.examples.push(name.to_owned());
        }
    }

    /// Makes lists of what was left out.
    pub(super) fn finish(&mut self) {
        for ((depth, why), names) in std::mem::take(&mut self.left) {
            let left = Left { why, count: names.count, examples: names.examples };
            match depth {
                Depth::NotRead => self.not_read.push(left),
                Depth::NotChecked => self.not_checked.push(left),
            }
        }
    }
}

impl Report {
    pub(super) fn add_problem(&mut self, problem: Problem) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// Problems come first: what is damaged stays so, whatever else was not read.
    pub(super) fn judge(&mut self) {
        let is_any_unread = self.databases.iter().any(|database| !database.not_read.is_empty());
        self.verdict = match (self.problem_count, is_any_unread) {
            (0, false) => Verdict::Good,
            (0, true) => Verdict::Incomplete,
            _ => Verdict::Damaged,
        };
    }

    fn sum(&self, of: impl Fn(&DatabaseReport) -> u64) -> u64 {
        self.databases.iter().map(of).sum()
    }

    pub(super) fn not_read(&self) -> u64 {
        self.sum(|database| database.not_read.iter().map(|left| left.count).sum())
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}: started with PostgreSQL {}; {} and {} read in {}, {} and {} checked by amcheck, {}",
            self.backup,
            self.server.started,
            counted(self.sum(|database| database.relations), "relation", "relations"),
            counted(self.sum(|database| database.rows), "row", "rows"),
            counted(self.databases.len() as u64, "database", "databases"),
            counted(self.sum(|database| database.indexes_checked), "index", "indexes"),
            counted(self.sum(|database| database.heaps_checked), "table", "tables"),
            match self.checksums {
                Some(Checksums::Checked) => "the checksums of all pages compared",
                Some(Checksums::Off) => "no page checksums to compare",
                _ => "page checksums not compared",
            },
        );
        text.push_str(&match (self.problem_count, self.not_read()) {
            (0, 0) => ", no problems\n".to_owned(),
            (0, count) => {
                format!(", no problems, but {} could not be read\n", counted(count, "relation", "relations"))
            }
            (count, _) => format!(", {}\n", counted(count, "problem", "problems")),
        });
        for database in &self.databases {
            for (what, lefts) in [("not read", &database.not_read), ("not checked", &database.not_checked)] {
                for left in lefts {
                    let shown = &left.examples[..left.examples.len().min(EXAMPLES_SHOWN)];
                    let more = if left.count as usize > shown.len() { ", …" } else { "" };
                    text.push_str(&format!(
                        "{what} in {}: {} ({}{more}): {}\n",
                        database.database,
                        grouped(left.count),
                        shown.join(", "),
                        left.why
                    ));
                }
            }
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
        text
    }

    /// Writes it to a file, which is whole whenever it is there.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(self).map_err(|error| Failure::new("the report", error))?;
        let folder = folder_of(path);
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(Failure::at(folder))?;
        file.write_all(json.as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .and_then(|()| file.as_file().sync_all())
            .map_err(Failure::at(path))?;
        file.persist(path).map_err(|error| Failure::at(path)(error.error))?;
        Ok(())
    }
}

/// Refuses a directory that this user may not write to: a verification takes long, and would end without its report.
pub(super) fn check_folder(folder: &Path) -> Result<(), Failure> {
    match tempfile::NamedTempFile::new_in(folder) {
        Ok(_) => Ok(()),
        Err(error) => {
            let what = format!("cannot write the report there: {}", error.kind());
            Err(Failure::new(folder.display(), what))
        }
    }
}

/// The directory that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(database) = &self.database {
            write!(f, "database {database}: ")?;
        }
        match (&self.schema, &self.relation) {
            (Some(schema), Some(relation)) => write!(f, "{schema}.{relation}: ")?,
            (None, Some(relation)) => write!(f, "{relation}: ")?,
            _ => {}
        }
        write!(f, "{}: {}", self.check, startup::last_lines(&self.message))
    }
}
