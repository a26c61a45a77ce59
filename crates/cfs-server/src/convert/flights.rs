//! Conversions under way: a table in shared memory, for workers that look for work and for who asks.
//!
//! ```text
//!  state | tablespace, database | relation, segment | fork, direction, phase | pages | done | bytes | began
//!        | what it waits for | process and count of that | worker | copying since
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use pgshrink_cfs::slots::SegmentKey;

use crate::activity::{is_process, micros_now};
use crate::convert::{Direction, FileProgress, Waits};

/// Conversions at most at the same time.
pub const FLIGHTS_MAX: usize = 128;
const ENTRY_WORDS: usize = 16;
/// Words of the table: whole pages.
pub(crate) const FLIGHT_WORDS: usize = FLIGHTS_MAX * ENTRY_WORDS;
const _: () = assert!(FLIGHT_WORDS.is_multiple_of(512));

const FREE: u64 = 0;
const BEING_MADE: u64 = 1;
const THERE: u64 = 2;
const BEING_ENDED: u64 = 3;

#[derive(Clone, Copy)]
enum At {
    State,
    Directory,
    Relation,
    Kind,
    Pages,
    Done,
    Bytes,
    Began,
    Waits,
    WaitsFor,
    Worker,
    Copying,
}

/// What is being done to a file, in words for who looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Queued,
    Settling,
    Copying,
    Finishing,
    Leaving,
}

impl Phase {
    const ALL: [Phase; 5] =
        [Phase::Queued, Phase::Settling, Phase::Copying, Phase::Finishing, Phase::Leaving];

    fn text(self) -> &'static str {
        match self {
            Phase::Queued => "queued",
            Phase::Settling => "waiting for old file descriptors",
            Phase::Copying => "copying pages",
            Phase::Finishing => "finishing",
            Phase::Leaving => "waiting for a worker in its database",
        }
    }
}

/// The table.
#[derive(Clone, Copy)]
pub(crate) struct Flights {
    words: &'static [AtomicU64],
}

/// An entry.
#[derive(Clone, Copy)]
pub(crate) struct Flight {
    words: &'static [AtomicU64],
}

impl Flights {
    pub(crate) fn over(words: &'static [AtomicU64]) -> Flights {
        Flights { words }
    }

    fn entries(self) -> impl Iterator<Item = Flight> {
        self.words.chunks_exact(ENTRY_WORDS).map(|words| Flight { words })
    }

    fn taken(self) -> impl Iterator<Item = Flight> {
        self.entries().filter(|flight| flight.get(At::State) == THERE)
    }

    /// The entry of a file.
    pub(crate) fn find(self, key: &SegmentKey) -> Option<Flight> {
        self.taken().find(|flight| flight.key() == *key)
    }

    /// All files, those first that were begun first.
    pub(crate) fn keys(self) -> Vec<SegmentKey> {
        let mut found: Vec<(u64, SegmentKey)> =
            self.taken().map(|flight| (flight.get(At::Began), flight.key())).collect();
        found.sort_by_key(|(began, _)| *began);
        found.into_iter().map(|(_, key)| key).collect()
    }

    /// How many there are.
    pub(crate) fn count(self) -> usize {
        self.entries().filter(|flight| flight.get(At::State) != FREE).count()
    }

    /// An entry for a file of so many pages, its own or a new one. `None`: there are too many.
    pub(crate) fn add(self, key: &SegmentKey, direction: Direction, pages: u32) -> Option<Flight> {
        if let Some(known) = self.find(key) {
            known.turn(direction);
            known.set(At::Copying, 0);
            // A worker may be about to end what it has done before this: that is another conversion now.
            known.set(At::Began, micros_now().max(known.began() + 1));
            return Some(known);
        }
        let free = self.entries().find(|flight| {
            let state = &flight.words[At::State as usize];
            state.compare_exchange(FREE, BEING_MADE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        let SegmentKey { tablespace, database, relation, fork, segment } = *key;
        free.set(At::Directory, u64::from(tablespace) << 32 | u64::from(database));
        free.set(At::Relation, u64::from(relation) << 32 | u64::from(segment));
        free.set(At::Kind, u64::from(fork));
        free.turn(direction);
        let counts = [At::Done, At::Bytes, At::Waits, At::WaitsFor, At::Worker, At::Copying];
        counts.into_iter().for_each(|word| free.set(word, 0));
        free.set(At::Pages, pages.into());
        free.set(At::Began, micros_now());
        free.set(At::State, THERE);
        Some(free)
    }

    /// What is under way.
    pub(crate) fn progress(self) -> Vec<FileProgress> {
        self.taken().map(Flight::progress).collect()
    }
}

impl Flight {
    fn get(self, word: At) -> u64 {
        self.words[word as usize].load(Ordering::Acquire)
    }

    fn set(self, word: At, value: u64) {
        self.words[word as usize].store(value, Ordering::Release);
    }

    fn key(self) -> SegmentKey {
        let (directory, relation) = (self.get(At::Directory), self.get(At::Relation));
        SegmentKey {
            tablespace: (directory >> 32) as u32,
            database: directory as u32,
            relation: (relation >> 32) as u32,
            fork: self.get(At::Kind) as u8,
            segment: relation as u32,
        }
    }

    /// Takes it for this process, if nobody who lives has it.
    pub(crate) fn claim(self) -> bool {
        let me = u64::from(std::process::id());
        let owner = self.get(At::Worker);
        let is_left = owner == 0 || owner == me || !is_process(owner as u32);
        let word = &self.words[At::Worker as usize];
        is_left && word.compare_exchange(owner, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Lets others have it.
    pub(crate) fn release(self) {
        self.set(At::Worker, 0);
    }

    /// When it began, in microseconds: another conversion of the same file, or of another in this entry, has another.
    pub(crate) fn began(self) -> u64 {
        self.get(At::Began)
    }

    /// The file has its form, or is gone. Ends the conversion that began then, and none that has its entry by now.
    pub(crate) fn end(self, began: u64) {
        let state = &self.words[At::State as usize];
        if state.compare_exchange(THERE, BEING_ENDED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        if self.began() != began {
            return self.set(At::State, THERE);
        }
        self.set(At::Worker, 0);
        self.set(At::State, FREE);
    }

    pub(crate) fn turn(self, direction: Direction) {
        let kind = self.get(At::Kind) & !0xff00;
        self.set(At::Kind, kind | u64::from(direction == Direction::Decompress) << 8);
    }

    pub(crate) fn phase(self, phase: Phase) {
        let kind = self.get(At::Kind) & 0xffff;
        self.set(At::Kind, kind | (phase as u64) << 16);
        if phase == Phase::Copying && self.get(At::Copying) == 0 {
            self.set(At::Copying, micros_now());
        }
    }

    pub(crate) fn pages(self, pages: u32, done: u32) {
        self.set(At::Pages, pages.into());
        self.set(At::Done, done.into());
    }

    pub(crate) fn wrote(self, bytes: u64) {
        self.words[At::Bytes as usize].fetch_add(bytes, Ordering::AcqRel);
    }

    pub(crate) fn waits(self, waits: Waits) {
        let (kind, process, count) = match waits {
            Waits::Nothing => (0, 0, 0),
            Waits::Descriptors { pid, count } => (1, pid, count),
            Waits::Unreadable { pid } => (2, pid, 0),
            Waits::FreeSpace => (3, 0, 0),
            Waits::Paused => (4, 0, 0),
            Waits::Lock => (5, 0, 0),
        };
        self.set(At::WaitsFor, u64::from(process) << 32 | u64::from(count));
        self.set(At::Waits, kind);
    }

    fn progress(self) -> FileProgress {
        let kind = self.get(At::Kind);
        let (pid, count) = ((self.get(At::WaitsFor) >> 32) as u32, self.get(At::WaitsFor) as u32);
        let phase = Phase::ALL.get((kind >> 16) as usize).copied().unwrap_or(Phase::Queued);
        FileProgress {
            key: self.key(),
            direction: if kind >> 8 & 1 == 1 { Direction::Decompress } else { Direction::Compress },
            state: phase.text(),
            is_leaving: phase == Phase::Leaving,
            pages: self.get(At::Pages),
            pages_done: self.get(At::Done),
            bytes_written: self.get(At::Bytes),
            started: UNIX_EPOCH + Duration::from_micros(self.get(At::Began)),
            copying_since: match self.get(At::Copying) {
                0 => None,
                micros => Some(UNIX_EPOCH + Duration::from_micros(micros)),
            },
            waits: match self.get(At::Waits) {
                1 => Waits::Descriptors { pid, count },
                2 => Waits::Unreadable { pid },
                3 => Waits::FreeSpace,
                4 => Waits::Paused,
                5 => Waits::Lock,
                _ => Waits::Nothing,
            },
            pid: self.get(At::Worker) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flights() -> Flights {
        Flights::over((0..FLIGHT_WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak())
    }

    fn key(relation: u32) -> SegmentKey {
        SegmentKey { tablespace: 1663, database: 5, relation, fork: 1, segment: 3 }
    }

    #[test]
    fn a_file_has_one_entry_until_its_conversion_ends() {
        let flights = flights();
        let flight = flights.add(&key(7), Direction::Compress, 50).unwrap();
        let began = flight.began();
        assert_eq!((flights.progress()[0].pages, flights.progress()[0].copying_since), (50, None));
        flight.phase(Phase::Copying);
        assert!(flights.progress()[0].copying_since.is_some());
        assert!(flights.add(&key(7), Direction::Decompress, 50).is_some() && flights.count() == 1);
        assert_eq!(flights.progress()[0].copying_since, None);
        // It was turned round: who ends what was before does not end this.
        flight.end(began);
        assert!(flights.find(&key(7)).is_some());
        assert!(flight.claim() && flight.claim());
        flight.phase(Phase::Copying);
        flight.pages(100, 40);
        flight.waits(Waits::Descriptors { pid: 9, count: 2 });
        let [shown] = &flights.progress()[..] else { panic!() };
        assert_eq!((shown.key, shown.pages, shown.pages_done), (key(7), 100, 40));
        assert_eq!((shown.direction, shown.state), (Direction::Decompress, "copying pages"));
        assert_eq!(shown.waits, Waits::Descriptors { pid: 9, count: 2 });
        let began = flight.began();
        flight.end(began + 1);
        assert!(flights.find(&key(7)).is_some());
        flight.end(began);
        assert!(flights.find(&key(7)).is_none() && flights.keys().is_empty());
    }

    #[test]
    fn there_is_a_limit_of_conversions_and_a_dead_workers_file_goes_to_the_next() {
        let flights = flights();
        for relation in 0..FLIGHTS_MAX as u32 {
            assert!(flights.add(&key(relation), Direction::Compress, 0).is_some());
        }
        assert!(flights.add(&key(9999), Direction::Compress, 0).is_none());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let flight = flights.find(&key(3)).unwrap();
        flight.set(At::Worker, child.id().into());
        assert!(flight.claim());
        flight.set(At::Worker, 1);
        assert!(!flight.claim());
    }
}
