//! Which directories of databases may have containers although no setting says so, and how often a name has been
//! exchanged for another kind of file.
//!
//! Files of a tablespace with a setting may be containers anywhere in it. In `base/`, and in tablespaces without a
//! setting, a directory has containers only after somebody has noted it here, and after a guard is in it: so a path in
//! any other directory costs one look at this table, which is one load as long as it is empty. It is filled anew from
//! the guards when the server starts. Of a directory that is noted, the guard is durable where the server waits for the
//! disk.
//!
//! ```text
//!  entries used | full | entries: tablespace << 32 | database, 0: free
//! ```
//!
//! 1. An entry is there before the first container of its directory has its name.
//! 2. An entry goes when its directory is gone. One too many costs a look at each file's name there, nothing else.
//! 3. If there is no room for one, every directory counts as noted until the server starts again.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::names::DEFAULT_TABLESPACE;

/// Words of the table: two pages.
pub(crate) const WORDS: usize = 1024;
const USED: usize = 0;
const FULL: usize = 1;
const ENTRIES: usize = 2;
/// Directories that can be told apart.
pub const DIRECTORIES_MAX: usize = WORDS - ENTRIES;
/// Tablespaces that are told apart without looking at each twice.
const TABLESPACES_SEEN: usize = 64;

/// The table.
#[derive(Clone, Copy)]
pub(crate) struct Noted {
    words: &'static [AtomicU64],
}

fn word_of(tablespace: u32, database: u32) -> u64 {
    u64::from(tablespace) << 32 | u64::from(database)
}

impl Noted {
    pub(crate) fn over(words: &'static [AtomicU64]) -> Noted {
        Noted { words }
    }

    fn entries(self) -> &'static [AtomicU64] {
        let used = self.words[USED].load(Ordering::Acquire) as usize;
        &self.words[ENTRIES..][..used.min(DIRECTORIES_MAX)]
    }

    /// Whether no directory counts as noted.
    pub(crate) fn is_empty(self) -> bool {
        self.words[USED].load(Ordering::Acquire) == 0
    }

    /// Whether there was no room for a directory.
    pub(crate) fn is_full(self) -> bool {
        self.words[FULL].load(Ordering::Acquire) != 0
    }

    /// Whether this directory may have containers.
    pub(crate) fn has(self, tablespace: u32, database: u32) -> bool {
        !self.is_empty() && (self.has_entry(tablespace, database) || self.is_full())
    }

    /// Whether this very directory was noted.
    pub(crate) fn has_entry(self, tablespace: u32, database: u32) -> bool {
        let word = word_of(tablespace, database);
        self.entries().iter().any(|entry| entry.load(Ordering::Acquire) == word)
    }

    /// Puts a directory in. Two that do so at the same time may both, which does no harm.
    pub(crate) fn note(self, tablespace: u32, database: u32) {
        if self.has(tablespace, database) {
            return;
        }
        let word = word_of(tablespace, database);
        let take =
            |entry: &AtomicU64| entry.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        match self.words[ENTRIES..].iter().position(take) {
            Some(at) => drop(self.words[USED].fetch_max(at as u64 + 1, Ordering::AcqRel)),
            None => self.words[FULL].store(1, Ordering::Release),
        }
    }

    /// Takes a directory out that is gone.
    pub(crate) fn forget(self, tablespace: u32, database: u32) {
        let word = word_of(tablespace, database);
        for entry in self.entries() {
            let _ = entry.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The directories in it: tablespace, database.
    pub(crate) fn directories(self) -> impl Iterator<Item = (u32, u32)> {
        let words = self.entries().iter().map(|entry| entry.load(Ordering::Acquire));
        words.filter(|word| *word != 0).map(|word| ((word >> 32) as u32, word as u32))
    }

    /// Their tablespaces but for `base/`; some more than once where there are many.
    pub(crate) fn tablespaces(self) -> impl Iterator<Item = u32> {
        let (mut seen, mut next) = ([DEFAULT_TABLESPACE; TABLESPACES_SEEN], 0);
        self.directories().map(|(tablespace, _)| tablespace).filter(move |tablespace| {
            let is_new = *tablespace != DEFAULT_TABLESPACE && !seen.contains(tablespace);
            if is_new {
                seen[next % TABLESPACES_SEEN] = *tablespace;
                next += 1;
            }
            is_new
        })
    }
}

/// Exchanges that are under way, in the lower part of the generation; the rest counts those that have ended.
const UNDER_WAY: u64 = (1 << 16) - 1;
const ENDED: u64 = 1 << 16;

/// The count of exchanges, for all processes.
#[derive(Clone, Copy)]
pub(crate) struct Generation {
    word: &'static AtomicU64,
}

impl Generation {
    pub(crate) fn over(word: &'static AtomicU64) -> Generation {
        Generation { word }
    }

    /// The count now.
    pub(crate) fn now(self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Whether no exchange was under way then, and none has begun since.
    pub(crate) fn is_still(self, then: u64) -> bool {
        // What the process did in between, such as putting a descriptor into its table, comes before the look at the
        // count: who exchanges does it the other way round, and one of the two sees the other.
        std::sync::atomic::fence(Ordering::SeqCst);
        then & UNDER_WAY == 0 && self.now() == then
    }

    /// Before a name is exchanged; it has been when the value is dropped.
    pub(crate) fn begin_exchange(self) -> Exchanging {
        self.word.fetch_add(1, Ordering::SeqCst);
        Exchanging(self)
    }
}

/// A name is being exchanged: whoever opens a file of a relation looks at its name again. Several processes may have one
/// at the same time. That of a process that is killed stays until the server has started anew: opening costs two
/// calls more so long.
#[must_use = "the exchange ends when it is dropped"]
pub struct Exchanging(Generation);

impl Drop for Exchanging {
    fn drop(&mut self) {
        self.0.word.fetch_add(ENDED - 1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> &'static [AtomicU64] {
        Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    #[test]
    fn directories_are_noted_and_forgotten_and_their_places_used_again() {
        let noted = Noted::over(words(WORDS));
        assert!(noted.is_empty() && !noted.has(1663, 5));
        for (tablespace, database) in [(1663, 5), (16400, 5), (1663, 5), (16400, 6), (16401, 5)] {
            noted.note(tablespace, database);
            assert!(noted.has(tablespace, database));
        }
        assert!(!noted.has(1663, 6) && !noted.has(5, 1663));
        assert_eq!(noted.directories().count(), 4);
        assert_eq!(noted.tablespaces().collect::<Vec<_>>(), [16400, 16401]);
        noted.forget(16400, 5);
        assert!(!noted.has(16400, 5) && noted.has(16400, 6));
        noted.note(7, 7);
        assert_eq!(noted.directories().nth(1), Some((7, 7)));
    }

    #[test]
    fn every_directory_counts_when_there_is_no_room_for_another() {
        let noted = Noted::over(words(WORDS));
        for database in 1..=DIRECTORIES_MAX as u32 {
            noted.note(1663, database);
        }
        assert!(!noted.is_full() && !noted.has(1663, 99_999));
        noted.note(1663, 99_999);
        assert!(noted.is_full() && noted.has(1663, 99_999) && noted.has(16400, 1));
    }

    #[test]
    fn a_moment_is_past_while_anybody_exchanges_and_afterwards() {
        let generation = Generation::over(&words(1)[0]);
        let before = generation.now();
        assert!(generation.is_still(before));
        let one = generation.begin_exchange();
        let during = generation.now();
        assert!(!generation.is_still(before) && !generation.is_still(during));
        let other = generation.begin_exchange();
        let both = generation.now();
        drop(one);
        let left = generation.now();
        assert!(!generation.is_still(both) && !generation.is_still(left));
        drop(other);
        assert!(!generation.is_still(before) && !generation.is_still(during) && !generation.is_still(left));
        assert!(generation.is_still(generation.now()));
    }
}
