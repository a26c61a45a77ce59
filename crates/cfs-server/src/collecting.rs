//! A collector's turns: one file after the other, each in pieces, with a report of what it does.
//!
//! Which files, and when, is the caller's business ([`pgshrink_cfs::Pace`]); so is waiting.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use pgshrink_cfs::relation::number;
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs::{Budget, Collected};

use crate::activity::{Phase, Reporter};
use crate::databases::{self, containers_in};
use crate::error::Problem;
use crate::names::PathBuffer;
use crate::server::{Shared, shared};
use crate::training::{Trained, Trainer};
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
    rests: bool,
}

/// Which files nobody writes to: they are packed tightly, once, and then left alone for as long as that lasts.
#[derive(Default)]
pub struct Resting {
    files: HashMap<SegmentKey, Seen>,
}

/// What a look at a file found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// It was written to of late.
    Not,
    /// Nobody has written to it for a while.
    Since,
    /// It was packed, and nobody has written to it since.
    Settled,
}

struct Seen {
    written: u64,
    since: Instant,
    is_settled: bool,
    /// Bytes moved since then.
    moved: u64,
}

/// So long nobody has written to a file that rests.
const RESTING: Duration = Duration::from_secs(10);
/// Bytes that may be moved of the smallest file.
const MOVED_MIN: u64 = 64 << 10;
/// Files at most that are remembered.
const FILES_MAX: usize = 16 << 10;

/// Whether so many bytes moved of a file are enough, of which so many are live: everything was moved more than once, and what is left
/// cannot be freed. Records of a small file may leave more than a tenth of its extents empty however they are placed.
pub fn is_in_vain(moved_bytes: u64, live_bytes: u64) -> bool {
    moved_bytes > live_bytes.saturating_mul(2).saturating_add(MOVED_MIN)
}

impl Resting {
    /// Whether a file rests, of which a look finds that so many bytes were written to it since it was opened.
    pub fn look(&mut self, key: &SegmentKey, written: u64, now: Instant) -> Rest {
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        let new = || Seen { written, since: now, is_settled: false, moved: 0 };
        let seen = self.files.entry(*key).or_insert_with(new);
        if seen.written != written {
            *seen = new();
        }
        match seen.is_settled {
            true => Rest::Settled,
            false if now.duration_since(seen.since) >= RESTING => Rest::Since,
            false => Rest::Not,
        }
    }

    /// Whether the last look found that a file rests.
    pub fn is_at_rest(&self, key: &SegmentKey, now: Instant) -> bool {
        self.files.get(key).is_some_and(|seen| now.duration_since(seen.since) >= RESTING)
    }

    /// A file that rests was packed, until it is written to.
    pub fn settle(&mut self, key: &SegmentKey) {
        if let Some(seen) = self.files.get_mut(key) {
            seen.is_settled = true;
        }
    }

    /// So many bytes of a file that rests were moved, of which so many are live; whether more would be [in vain](is_in_vain).
    pub fn moved(&mut self, key: &SegmentKey, bytes: u64, live_bytes: u64) -> bool {
        let Some(seen) = self.files.get_mut(key) else { return false };
        seen.moved += bytes;
        is_in_vain(seen.moved, live_bytes)
    }

    /// A file was changed in the background.
    pub fn disturb(&mut self, key: &SegmentKey) {
        self.files.remove(key);
    }
}

/// All compressed segments of tablespaces that have a setting and of other directories that may have some, by their
/// files: those too that nobody has opened since the server started. What cannot be listed is left out.
pub fn segments_on_disk() -> Vec<SegmentKey> {
    let Some(shared) = shared() else { return Vec::new() };
    let mut found = Vec::new();
    for (tablespace, database) in directories(shared) {
        let directory = PathBuffer::database(tablespace, database, shared.version());
        let _ = containers_in(directory.as_path(), (tablespace, database), &mut found);
    }
    found
}

/// Directories of databases that may have containers.
fn directories(shared: &Shared) -> BTreeSet<(u32, u32)> {
    let noted = shared.region.noted();
    if noted.is_full() {
        return databases::all_numbered(shared.version_text()).unwrap_or_default().into_iter().collect();
    }
    let of_setting = shared.region.tablespaces().flat_map(|tablespace| {
        let databases = databases_in(&PathBuffer::version(tablespace, shared.version()));
        databases.into_iter().map(move |database| (tablespace, database))
    });
    of_setting.chain(noted.directories()).collect()
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

    /// From now on this process rests while it moves records, so that it takes half of a processor at most, and
    /// that in short bursts.
    pub fn in_background(&self) {
        crate::host::collect_in_background();
    }

    /// Begins with a file; `rate` is shown to who looks.
    pub fn turn(&self, key: SegmentKey, rate: u64) -> Turn<'_> {
        self.reporter.begin(&key, rate);
        let place = self.shared.region.place(key.tablespace);
        Turn { collector: self, key, place, pieces: 0, has_done: false, rests: false }
    }
}

impl Turn<'_> {
    /// The file rests ([`Resting`]): it is worth more work.
    pub fn rests(&mut self) {
        self.rests = true;
    }

    /// Collects a piece ([`work::collect`]).
    ///
    /// # Errors
    /// As it. The error is counted, and kept as the tablespace's last one.
    pub fn piece(&mut self, budget: Budget) -> Result<Option<Collected>, Problem> {
        let reporter = &self.collector.reporter;
        reporter.phase(Phase::Moving);
        let begun = Instant::now();
        let found = self.noted(work::collect(&self.key, budget, self.rests))?;
        if let Some(found) = &found {
            reporter.note(self.place, found, self.pieces == 0, begun.elapsed());
            self.has_done |= found.moved_records > 0 || found.punched_bytes > 0;
            self.pieces += 1;
        }
        Ok(found)
    }

    /// Gives all free space of a file that rests back, after the last commit ([`work::give_back`]).
    ///
    /// # Errors
    /// As it; counted.
    pub fn give_back(&mut self) -> Result<(), Problem> {
        let begun = Instant::now();
        let punched_bytes = self.noted(work::give_back(&self.key))?.unwrap_or(0);
        if punched_bytes > 0 {
            let found = Collected { punched_bytes, ..Collected::default() };
            self.collector.reporter.note(self.place, &found, false, begun.elapsed());
            self.has_done = true;
        }
        Ok(())
    }

    /// Looks after the file's dictionary, and older pages ([`Trainer::piece`]). `None`: there is nothing to do.
    ///
    /// # Errors
    /// As it; counted.
    pub fn train(&mut self, trainer: &mut Trainer, may_train: bool) -> Result<Option<Trained>, Problem> {
        let reporter = &self.collector.reporter;
        reporter.phase(Phase::Training);
        let begun = Instant::now();
        let done = self.noted(trainer.piece(&self.key, may_train, self.rests))?;
        if let Some(Trained { stored, .. }) = done {
            reporter.note_stored(self.place, stored, begun.elapsed());
        }
        Ok(done)
    }

    /// Has the kernel begin to write what a commit would wait for, where that is worth it
    /// ([`work::begin_writeback`]); whether it did.
    pub fn begin_writeback(&self) -> bool {
        // Why it could not is said by the commit.
        work::begin_writeback(&self.key, work::WRITEBACK_BYTES).unwrap_or(false)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_is_in_vain_when_everything_was_moved_twice() {
        let key = SegmentKey { tablespace: 1, database: 2, relation: 7, fork: 0, segment: 0 };
        let (mut resting, now) = (Resting::default(), Instant::now());
        assert!(!resting.moved(&key, 1 << 40, 1000), "it was not looked at");
        resting.look(&key, 100, now);
        let rounds = (1..).find(|_| resting.moved(&key, 10_000, 100_000)).unwrap();
        assert_eq!(rounds, (200_000 + MOVED_MIN) / 10_000 + 1);
        // Written to, it begins anew.
        resting.look(&key, 101, now);
        assert!(!resting.moved(&key, 10_000, 100_000));
    }

    #[test]
    fn a_file_rests_when_nothing_was_written_to_it_for_a_while() {
        let key = |relation| SegmentKey { tablespace: 1, database: 2, relation, fork: 0, segment: 0 };
        let (mut resting, start) = (Resting::default(), Instant::now());
        let mut look =
            |relation, written, periods| resting.look(&key(relation), written, start + RESTING * periods);
        assert_eq!(look(7, 100, 0), Rest::Not);
        assert_eq!(look(7, 100, 1), Rest::Since);
        assert_eq!(look(8, 100, 1), Rest::Not, "another file");
        // Written to, and counted from the begin after it was opened again.
        assert_eq!(look(7, 101, 2), Rest::Not);
        assert_eq!(look(7, 3, 3), Rest::Not);
        assert_eq!(look(7, 3, 4), Rest::Since);
        resting.settle(&key(7));
        let mut look = |written, periods| resting.look(&key(7), written, start + RESTING * periods);
        assert_eq!(look(3, 5), Rest::Settled);
        assert_eq!(look(4, 6), Rest::Not);
        assert_eq!(look(4, 7), Rest::Since);
        resting.settle(&key(7));
        resting.disturb(&key(7));
        assert_eq!(resting.look(&key(7), 4, start + RESTING * 8), Rest::Not);
    }
}
