//! A collector's turns: one file after the other, each in pieces, with a report of what it does.
//!
//! Which files, and when, is the caller's business ([`pgshrink_cfs::Pace`]); so is waiting.

use std::time::{Duration, Instant};

use pgshrink_cfs::relation::{RelationName, number};
use pgshrink_cfs::segment::FILE_NAME;
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs::{Budget, Collected};

use crate::activity::{Phase, Reporter};
use crate::error::Problem;
use crate::names::{PathBuffer, relation_name};
use crate::server::{Shared, shared};
use crate::work;

/// A process that collects, shown to others as long as this lives.
pub struct Collector {
    shared: &'static Shared,
    reporter: Reporter,
}

/// One file's turn. What it did is counted when this is dropped.
pub struct Turn<'c> {
    collector: &'c Collector,
    key: SegmentKey,
    place: Option<usize>,
    pieces: u64,
    has_done: bool,
}

/// All compressed segments of tablespaces that have a setting, by their files: those too that nobody has opened
/// since the server started. What cannot be listed is left out.
pub fn segments_on_disk() -> Vec<SegmentKey> {
    let Some(shared) = shared() else { return Vec::new() };
    let mut found = Vec::new();
    for tablespace in shared.region.tablespaces() {
        for database in databases_in(&PathBuffer::version(tablespace, shared.version())) {
            let directory = PathBuffer::database(tablespace, database, shared.version());
            let Ok(entries) = std::fs::read_dir(directory.as_path()) else { continue };
            let containers = entries.flatten().filter(|entry| entry.path().join(FILE_NAME).exists());
            found.extend(containers.filter_map(|entry| {
                let name = relation_name(entry.file_name().as_encoded_bytes())?;
                let RelationName { number: relation, fork, segment } = name;
                Some(SegmentKey { tablespace, database, relation, fork, segment })
            }));
        }
    }
    found
}

fn databases_in(directory: &PathBuffer) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(directory.as_path()) else { return Vec::new() };
    entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}

/// Where a segment is, relative to the data directory.
pub fn path_of(key: &SegmentKey) -> String {
    let version = shared().map(Shared::version).unwrap_or_default();
    PathBuffer::segment(key, version).as_path().display().to_string()
}

impl Collector {
    /// This process.
    ///
    /// # Errors
    /// [`Problem::NotStarted`].
    pub fn new() -> Result<Collector, Problem> {
        let shared = shared().ok_or(Problem::NotStarted)?;
        Ok(Collector { shared, reporter: Reporter::new(shared.region.activity()) })
    }

    /// Begins with a file; `rate` is shown to who looks.
    pub fn turn(&self, key: SegmentKey, rate: u64) -> Turn<'_> {
        self.reporter.begin(&key, rate);
        let place = self.shared.region.place(key.tablespace);
        Turn { collector: self, key, place, pieces: 0, has_done: false }
    }
}

impl Turn<'_> {
    /// Collects a piece ([`work::collect`]).
    ///
    /// # Errors
    /// As it. The error is counted, and kept as the tablespace's last one.
    pub fn piece(&mut self, budget: Budget) -> Result<Option<Collected>, Problem> {
        let reporter = &self.collector.reporter;
        reporter.phase(Phase::Moving);
        let begun = Instant::now();
        let found = self.noted(work::collect(&self.key, budget))?;
        if let Some(found) = &found {
            reporter.note(self.place, found, self.pieces == 0, begun.elapsed());
            self.has_done |= found.moved_records > 0 || found.punched_bytes > 0;
            self.pieces += 1;
        }
        Ok(found)
    }

    /// Makes durable what was moved ([`work::commit`]).
    ///
    /// # Errors
    /// As it; counted.
    pub fn commit(&mut self) -> Result<(), Problem> {
        self.collector.reporter.phase(Phase::Committing);
        let begun = Instant::now();
        self.noted(work::commit(&self.key))?;
        self.collector.reporter.note_commit(self.place, begun.elapsed());
        Ok(())
    }

    /// The caller rests.
    pub fn rest<T>(&self, rest: impl FnOnce() -> T) -> T {
        self.collector.reporter.phase(Phase::Resting);
        let begun = Instant::now();
        let done = rest();
        self.collector.reporter.note_rest(self.place, begun.elapsed().max(Duration::from_micros(1)));
        done
    }

    fn noted<T>(&self, done: Result<T, Problem>) -> Result<T, Problem> {
        if let (Err(problem), Some(place)) = (&done, self.place) {
            let text = format!("segment {}: {problem}", self.key);
            self.collector.shared.region.activity().note_error(place, &text);
        }
        done
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.has_done {
            self.collector.reporter.note_file(self.place);
        }
        self.collector.reporter.phase(Phase::Idle);
    }
}
