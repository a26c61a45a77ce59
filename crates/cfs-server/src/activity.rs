//! What collectors of garbage do now, and what they have done since the server started: words that all processes
//! share.
//!
//! ```text
//!  switch, start | collectors: 128 places of 32 words | tablespaces: a place of 48 words for each setting
//! ```
//!
//! A collector's place is written by one process, many times a second, and read by whoever looks: nobody waits, so a
//! reader may see a figure of the piece before beside one of the piece after. Counts of tablespaces are added to by
//! everybody. Memory is touched when a place is used first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgshrink_cfs::Collected;
use pgshrink_cfs::slots::SegmentKey;

use crate::region::TABLESPACES_MAX;

/// Collectors at the same time: workers, and sessions that collect themselves.
const COLLECTORS_MAX: usize = 128;
const HEAD_WORDS: usize = 512;
const COLLECTOR_WORDS: usize = 32;
const TABLESPACE_WORDS: usize = 48;
/// Words of the region that this takes: whole memory pages.
pub(crate) const WORDS: usize =
    (HEAD_WORDS + COLLECTORS_MAX * COLLECTOR_WORDS + TABLESPACES_MAX * TABLESPACE_WORDS)
        .next_multiple_of(512);

const SWITCHED_OFF: usize = 0;
const SINCE: usize = 1;

/// The words of a collector's place.
#[derive(Clone, Copy)]
enum Now {
    Pid,
    Tablespace,
    Database,
    Relation,
    /// Fork in the upper half.
    Segment,
    Phase,
    Started,
    GarbageAtFirst,
    Garbage,
    MovedPages,
    MovedBytes,
    FreedBytes,
    Commits,
    Rate,
    Waited,
}

/// The words of a tablespace's place. The text of the last error is behind them.
#[derive(Clone, Copy)]
enum Sum {
    Looks,
    Files,
    MovedPages,
    MovedBytes,
    FreedBytes,
    Commits,
    Worked,
    Waited,
    Damaged,
    WriterBytes,
    WriterCommits,
    Errors,
    LastErrorAt,
    LastErrorBytes,
}

const TEXT_WORD: usize = 16;
const TEXT_BYTES: usize = (TABLESPACE_WORDS - TEXT_WORD) * 8;

/// What a collector is in the midst of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Between two files.
    Idle,
    /// Looks for garbage, and moves live records out of its way.
    Moving,
    /// Makes durable what was moved, so that space is free.
    Committing,
    /// Rests, by the rate and the delay.
    Resting,
    /// Trains a dictionary, or stores older pages anew with it.
    Training,
}

/// A collector at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Its process.
    pub pid: u32,
    /// The file; `None` between two.
    pub segment: Option<SegmentKey>,
    /// What it does.
    pub phase: Phase,
    /// When it began with the file.
    pub started: SystemTime,
    /// Dead bytes of the file then.
    pub garbage_at_first: u64,
    /// Dead bytes that are left.
    pub garbage: u64,
    /// Pages moved, and bytes of them.
    pub moved_pages: u64,
    /// Bytes of them.
    pub moved_bytes: u64,
    /// Bytes given back to the filesystem.
    pub freed_bytes: u64,
    /// Commits made.
    pub commits: u64,
    /// Bytes per second at most; 0: no limit.
    pub rate: u64,
    /// How long it has rested for this file.
    pub waited: Duration,
}

/// What was done in a tablespace since the server started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Totals {
    /// The tablespace.
    pub tablespace: u32,
    /// Looks at files, and turns that moved or freed something.
    pub looks: u64,
    /// Of these, turns that moved or freed something.
    pub files: u64,
    /// Pages moved.
    pub moved_pages: u64,
    /// Bytes of them.
    pub moved_bytes: u64,
    /// Bytes given back to the filesystem.
    pub freed_bytes: u64,
    /// Commits of collectors.
    pub commits: u64,
    /// Time of collectors at work.
    pub worked: Duration,
    /// Time of collectors at rest between pieces of files.
    pub waited: Duration,
    /// Records that could not be moved because they are damaged.
    pub damaged: u64,
    /// Bytes that writers moved because there was too much garbage.
    pub writer_bytes: u64,
    /// Commits that writers made at the limit.
    pub writer_commits: u64,
    /// Files that could not be collected.
    pub errors: u64,
    /// The last of these errors.
    pub last_error: Option<(SystemTime, String)>,
}

/// The words.
#[derive(Clone, Copy)]
pub(crate) struct Activity {
    words: &'static [AtomicU64],
}

impl Activity {
    pub(crate) fn over(words: &'static [AtomicU64]) -> Activity {
        Activity { words }
    }

    /// A server's life begins.
    pub(crate) fn begin(&self) {
        self.words[SINCE].store(micros_now(), Ordering::Relaxed);
    }

    /// When that was.
    pub(crate) fn since(&self) -> SystemTime {
        time(self.words[SINCE].load(Ordering::Relaxed))
    }

    /// Whether a session has switched collection in the background off.
    pub(crate) fn is_off(&self) -> bool {
        self.words[SWITCHED_OFF].load(Ordering::Acquire) != 0
    }

    /// Switches it; returns whether it was off.
    pub(crate) fn switch(&self, off: bool) -> bool {
        self.words[SWITCHED_OFF].swap(u64::from(off), Ordering::AcqRel) != 0
    }

    fn collectors(&self) -> impl Iterator<Item = &'static [AtomicU64]> {
        self.words[HEAD_WORDS..].chunks_exact(COLLECTOR_WORDS).take(COLLECTORS_MAX)
    }

    /// A place for this process. `None`: there are too many collectors, and this one is not shown.
    pub(crate) fn join(&self) -> Option<&'static [AtomicU64]> {
        let pid = u64::from(std::process::id());
        self.collectors().find(|place| {
            let owner = place[Now::Pid as usize].load(Ordering::Acquire);
            let is_left = owner == 0 || owner == pid || !is_process(owner as u32);
            is_left
                && place[Now::Pid as usize]
                    .compare_exchange(owner, pid, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Collectors that live.
    pub(crate) fn progress(&self) -> Vec<Progress> {
        let read = |place: &'static [AtomicU64]| {
            let get = |word: Now| place[word as usize].load(Ordering::Relaxed);
            let pid = place[Now::Pid as usize].load(Ordering::Acquire) as u32;
            let phase = match get(Now::Phase) {
                1 => Phase::Moving,
                2 => Phase::Committing,
                3 => Phase::Resting,
                4 => Phase::Training,
                _ => Phase::Idle,
            };
            let key = SegmentKey {
                tablespace: get(Now::Tablespace) as u32,
                database: get(Now::Database) as u32,
                relation: get(Now::Relation) as u32,
                fork: (get(Now::Segment) >> 32) as u8,
                segment: get(Now::Segment) as u32,
            };
            Progress {
                pid,
                segment: (phase != Phase::Idle).then_some(key),
                phase,
                started: time(get(Now::Started)),
                garbage_at_first: get(Now::GarbageAtFirst),
                garbage: get(Now::Garbage),
                moved_pages: get(Now::MovedPages),
                moved_bytes: get(Now::MovedBytes),
                freed_bytes: get(Now::FreedBytes),
                commits: get(Now::Commits),
                rate: get(Now::Rate),
                waited: Duration::from_micros(get(Now::Waited)),
            }
        };
        self.collectors().map(read).filter(|found| found.pid != 0 && is_process(found.pid)).collect()
    }

    fn sums(&self, place: usize) -> &'static [AtomicU64] {
        let start = HEAD_WORDS + COLLECTORS_MAX * COLLECTOR_WORDS + place * TABLESPACE_WORDS;
        &self.words[start..start + TABLESPACE_WORDS]
    }

    fn add(&self, place: usize, sum: Sum, more: u64) {
        if more > 0 {
            self.sums(place)[sum as usize].fetch_add(more, Ordering::Relaxed);
        }
    }

    /// A writer has collected. Called from hooks: neither allocates nor waits.
    pub(crate) fn note_writer(&self, place: usize, bytes: u64, commits: u64) {
        self.add(place, Sum::WriterBytes, bytes);
        self.add(place, Sum::WriterCommits, commits);
    }

    /// A file could not be collected.
    pub(crate) fn note_error(&self, place: usize, text: &str) {
        self.add(place, Sum::Errors, 1);
        let words = self.sums(place);
        let end = (0..=text.len().min(TEXT_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        // Whoever reads while there is no length finds no text.
        words[Sum::LastErrorBytes as usize].store(0, Ordering::Release);
        for (word, bytes) in words[TEXT_WORD..].iter().zip(text.as_bytes()[..end].chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Ordering::Release);
        }
        words[Sum::LastErrorAt as usize].store(micros_now(), Ordering::Release);
        words[Sum::LastErrorBytes as usize].store(end as u64, Ordering::Release);
    }

    /// What was done in a tablespace.
    pub(crate) fn totals(&self, place: usize, tablespace: u32) -> Totals {
        let words = self.sums(place);
        let get = |sum: Sum| words[sum as usize].load(Ordering::Acquire);
        let length = get(Sum::LastErrorBytes) as usize;
        let text: Vec<u8> =
            words[TEXT_WORD..].iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()).collect();
        let is_whole = length > 0 && length == get(Sum::LastErrorBytes) as usize;
        let text = text.get(..length).map(|text| String::from_utf8_lossy(text).into_owned());
        Totals {
            tablespace,
            looks: get(Sum::Looks),
            files: get(Sum::Files),
            moved_pages: get(Sum::MovedPages),
            moved_bytes: get(Sum::MovedBytes),
            freed_bytes: get(Sum::FreedBytes),
            commits: get(Sum::Commits),
            worked: Duration::from_micros(get(Sum::Worked)),
            waited: Duration::from_micros(get(Sum::Waited)),
            damaged: get(Sum::Damaged),
            writer_bytes: get(Sum::WriterBytes),
            writer_commits: get(Sum::WriterCommits),
            errors: get(Sum::Errors),
            last_error: text.filter(|_| is_whole).map(|text| (time(get(Sum::LastErrorAt)), text)),
        }
    }
}

/// A collector's report of itself: shown as long as it lives.
pub(crate) struct Reporter {
    activity: Activity,
    place: Option<&'static [AtomicU64]>,
}

impl Reporter {
    pub(crate) fn new(activity: Activity) -> Reporter {
        Reporter { activity, place: activity.join() }
    }

    fn set(&self, word: Now, value: u64) {
        if let Some(place) = self.place {
            place[word as usize].store(value, Ordering::Relaxed);
        }
    }

    fn add(&self, word: Now, more: u64) {
        if let Some(place) = self.place {
            place[word as usize].fetch_add(more, Ordering::Relaxed);
        }
    }

    /// It begins with a file.
    pub(crate) fn begin(&self, key: &SegmentKey, rate: u64) {
        self.set(Now::Phase, Phase::Idle as u64);
        let SegmentKey { tablespace, database, relation, fork, segment } = *key;
        self.set(Now::Tablespace, tablespace.into());
        self.set(Now::Database, database.into());
        self.set(Now::Relation, relation.into());
        self.set(Now::Segment, u64::from(fork) << 32 | u64::from(segment));
        self.set(Now::Started, micros_now());
        self.set(Now::Rate, rate);
        let counts = [
            Now::GarbageAtFirst,
            Now::Garbage,
            Now::MovedPages,
            Now::MovedBytes,
            Now::FreedBytes,
            Now::Commits,
            Now::Waited,
        ];
        counts.into_iter().for_each(|word| self.set(word, 0));
    }

    pub(crate) fn phase(&self, phase: Phase) {
        self.set(Now::Phase, phase as u64);
    }

    /// A piece was collected.
    pub(crate) fn note(&self, place: Option<usize>, found: &Collected, is_first: bool, took: Duration) {
        if is_first {
            self.set(Now::GarbageAtFirst, found.dead_bytes);
        }
        self.set(Now::Garbage, found.dead_bytes);
        self.add(Now::MovedPages, found.moved_records);
        self.add(Now::MovedBytes, found.moved_bytes);
        self.add(Now::FreedBytes, found.punched_bytes);
        let Some(place) = place else { return };
        self.activity.add(place, Sum::Looks, u64::from(is_first));
        self.activity.add(place, Sum::MovedPages, found.moved_records);
        self.activity.add(place, Sum::MovedBytes, found.moved_bytes);
        self.activity.add(place, Sum::FreedBytes, found.punched_bytes);
        self.activity.add(place, Sum::Damaged, found.damaged_records);
        self.activity.add(place, Sum::Worked, took.as_micros() as u64);
    }

    /// Pages were stored anew.
    pub(crate) fn note_stored(&self, place: Option<usize>, pages: u32, took: Duration) {
        self.add(Now::MovedPages, pages.into());
        if let Some(place) = place {
            self.activity.add(place, Sum::Worked, took.as_micros() as u64);
        }
    }

    /// It has committed.
    pub(crate) fn note_commit(&self, place: Option<usize>, took: Duration) {
        self.add(Now::Commits, 1);
        if let Some(place) = place {
            self.activity.add(place, Sum::Commits, 1);
            self.activity.add(place, Sum::Worked, took.as_micros() as u64);
        }
    }

    /// It has rested.
    pub(crate) fn note_rest(&self, place: Option<usize>, time: Duration) {
        let time = time.as_micros() as u64;
        self.add(Now::Waited, time);
        if let Some(place) = place {
            self.activity.add(place, Sum::Waited, time);
        }
    }

    /// It is done with the file, of which it moved or freed something.
    pub(crate) fn note_file(&self, place: Option<usize>) {
        if let Some(place) = place {
            self.activity.add(place, Sum::Files, 1);
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.set(Now::Phase, Phase::Idle as u64);
        self.set(Now::Pid, 0);
    }
}

pub(crate) fn micros_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

pub(crate) fn is_process(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> Activity {
        Activity::over((0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak())
    }

    const KEY: SegmentKey =
        SegmentKey { tablespace: 16400, database: 5, relation: 16401, fork: 1, segment: 3 };

    #[test]
    fn a_collector_is_shown_with_its_file_until_it_ends() {
        let activity = activity();
        let reporter = Reporter::new(activity);
        assert_eq!(activity.progress()[0].segment, None);
        reporter.begin(&KEY, 1 << 20);
        reporter.phase(Phase::Moving);
        let found =
            Collected { moved_records: 3, moved_bytes: 500, dead_bytes: 9000, ..Collected::default() };
        reporter.note(Some(1), &found, true, Duration::from_millis(2));
        reporter.note(Some(1), &Collected { dead_bytes: 4000, ..found }, false, Duration::from_millis(2));
        reporter.note_commit(Some(1), Duration::ZERO);
        reporter.note_rest(Some(1), Duration::from_millis(7));
        let [shown] = activity.progress()[..] else { panic!("{:?}", activity.progress()) };
        assert_eq!((shown.segment, shown.pid), (Some(KEY), std::process::id()));
        assert_eq!((shown.garbage_at_first, shown.garbage, shown.moved_pages), (9000, 4000, 6));
        assert_eq!((shown.commits, shown.waited), (1, Duration::from_millis(7)));
        let totals = activity.totals(1, 16400);
        assert_eq!((totals.looks, totals.moved_bytes, totals.worked), (1, 1000, Duration::from_millis(4)));
        drop(reporter);
        assert!(activity.progress().is_empty());
    }

    #[test]
    fn the_last_error_is_kept_as_far_as_there_is_room() {
        let activity = activity();
        assert_eq!(activity.totals(0, 7).last_error, None);
        activity.note_error(0, "first");
        activity.note_error(0, &"ä".repeat(1000));
        let totals = activity.totals(0, 7);
        let (_, text) = totals.last_error.unwrap();
        assert!(totals.errors == 2 && text.len() == TEXT_BYTES && text.chars().all(|each| each == 'ä'));
        activity.note_error(TABLESPACES_MAX - 1, "short");
        assert_eq!(activity.totals(TABLESPACES_MAX - 1, 7).last_error.unwrap().1, "short");
    }

    #[test]
    fn a_place_of_a_process_that_has_ended_is_given_to_the_next() {
        let activity = activity();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        for place in activity.collectors() {
            place[Now::Pid as usize].store(child.id().into(), Ordering::Relaxed);
        }
        assert!(activity.progress().is_empty());
        let _reporter = Reporter::new(activity);
        assert_eq!(activity.progress().len(), 1);
        // A switch is everybody's.
        assert!(!activity.is_off() && !activity.switch(true) && activity.is_off() && activity.switch(false));
    }
}
