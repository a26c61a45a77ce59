//! The memory that all processes of a server share: settings of tablespaces, and the slots of open segments.
//!
//! ```text
//!  header, settings of tablespaces (64 KB) | what collectors do ([`crate::activity`]) | slots (pgshrink_cfs::slots)
//! ```
//!
//! It is a file in memory (`memfd_create`), made by the postmaster before its first fork and mapped shared. A page
//! of it takes memory when it is touched first, and with `vm.overcommit_memory = 2` counts only then.
// Mapped memory.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pgshrink_cfs::Geometry;
use pgshrink_cfs::slots::{Capacity, Slots};
use pgshrink_cfs::units::PAGES_MAX;
use pgshrink_codec::{Algorithm, Choice, Level};

use crate::activity::Activity;
use crate::error::Problem;
use crate::host::errno;

/// Bytes of the region before the slots.
pub(crate) const BYTES_BEFORE_SLOTS: usize = WORDS_BEFORE_SLOTS * 8;
const WORDS_BEFORE_SLOTS: usize = WORDS_OF_SETTINGS + crate::activity::WORDS;
const WORDS_OF_SETTINGS: usize = (64 << 10) / 8;
const SERVER: usize = 0;
const FLAGS: usize = 1;
/// The last damage: a count that is odd while it is written, when, length, text.
const DAMAGE: usize = 8;
const DAMAGE_TEXT: usize = DAMAGE + 3;
const DAMAGE_WORDS: usize = 64;
/// Bytes of a damage's text that are kept.
const DAMAGE_BYTES: usize = DAMAGE_WORDS * 8;
const SETTINGS: usize = DAMAGE_TEXT + DAMAGE_WORDS + 1;
const SETTING_WORDS: usize = 2;
/// Tablespaces at most that have a setting.
pub const TABLESPACES_MAX: usize = (WORDS_OF_SETTINGS - SETTINGS) / SETTING_WORDS;
/// Records that no root refers to are taken over: the server runs without fsync.
const ROLL_FORWARD: u64 = 1;

/// The mapped region.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) memory: RawFd,
    words: &'static [AtomicU64],
    capacity: Capacity,
}

/// How much there may be at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Segments that are open: 4 MB of address space each, of which 16 KB are used at least.
    pub segments_max: u32,
    /// Processes of the server.
    pub processes_max: u32,
}

impl Region {
    /// Maps new memory, all zeros.
    pub(crate) fn new(room: Room) -> Result<Region, Problem> {
        let Room { segments_max, processes_max } = room;
        let capacity = Capacity { geometry: Geometry::of(PAGES_MAX), segments_max, processes_max };
        let failed = |call| Problem::System { call, errno: errno() };
        // SAFETY: a string that ends with a zero.
        let memory = unsafe { libc::memfd_create(c"pgshrink-cfs".as_ptr(), libc::MFD_CLOEXEC) };
        if memory < 0 {
            return Err(failed("memfd_create"));
        }
        let bytes = BYTES_BEFORE_SLOTS + capacity.words() * 8;
        // SAFETY: a new file and a new mapping of it, which stays as long as the process; every bit pattern is a
        // word, and all access is atomic.
        let words = unsafe {
            if libc::ftruncate(memory, bytes as i64) != 0 {
                return Err(failed("ftruncate of shared memory"));
            }
            let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let start = libc::mmap(std::ptr::null_mut(), bytes, protection, kind, memory, 0);
            if start == libc::MAP_FAILED {
                return Err(failed("mmap of shared memory"));
            }
            std::slice::from_raw_parts(start.cast(), bytes / 8)
        };
        Ok(Region { memory, words, capacity })
    }

    /// Begins a server's life: everything is forgotten but what the caller says now. After a crash of one process
    /// the postmaster calls this when all others have ended.
    pub(crate) fn begin(&self, server: u32, roll_forward: bool) -> Result<(), Problem> {
        let bytes = (self.words.len() * 8) as i64;
        // SAFETY: takes numbers. The mapping stays valid: the file has its size again before anyone touches it.
        let emptied =
            unsafe { libc::ftruncate(self.memory, 0) == 0 && libc::ftruncate(self.memory, bytes) == 0 };
        if !emptied {
            return Err(Problem::System { call: "ftruncate of shared memory", errno: errno() });
        }
        self.words[SERVER].store(u64::from(server), Ordering::Relaxed);
        self.words[FLAGS].store(if roll_forward { ROLL_FORWARD } else { 0 }, Ordering::Relaxed);
        self.activity().begin();
        self.slots().map(drop)
    }

    /// What collectors do and have done.
    pub(crate) fn activity(&self) -> Activity {
        Activity::over(&self.words[WORDS_OF_SETTINGS..WORDS_BEFORE_SLOTS])
    }

    /// A tablespace's place among those that have a setting.
    pub(crate) fn place(&self, tablespace: u32) -> Option<usize> {
        self.tablespaces().position(|known| known == tablespace)
    }

    /// The slots.
    pub(crate) fn slots(&self) -> Result<Slots<'static, AtomicU64>, Problem> {
        Ok(Slots::over(&self.words[WORDS_BEFORE_SLOTS..], self.capacity)?)
    }

    /// How many segments and processes there may be.
    pub(crate) fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// This server's number among those that lock files.
    pub(crate) fn server(&self) -> u32 {
        self.words[SERVER].load(Ordering::Relaxed) as u32
    }

    /// Whether the server runs without fsync.
    pub(crate) fn rolls_forward(&self) -> bool {
        self.words[FLAGS].load(Ordering::Relaxed) & ROLL_FORWARD != 0
    }

    /// Whether the server waits until the disk has what was written.
    pub(crate) fn waits_for_disk(&self) -> bool {
        !self.rolls_forward()
    }

    /// Keeps what was found damaged, for whichever process says so to a client. `now` is in seconds of any clock.
    /// One that others are writing at the same time is not kept.
    pub(crate) fn note_damage(&self, now: u64, text: &[u8]) {
        let count = &self.words[DAMAGE];
        let before = count.load(Ordering::Relaxed);
        let is_taken = before % 2 == 1
            || count.compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed).is_err();
        if is_taken {
            return;
        }
        let text = &text[..text.len().min(DAMAGE_BYTES)];
        self.words[DAMAGE + 1].store(now, Ordering::Relaxed);
        self.words[DAMAGE + 2].store(text.len() as u64, Ordering::Relaxed);
        for (word, bytes) in self.words[DAMAGE_TEXT..].iter().zip(text.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        count.store(before + 2, Ordering::Release);
    }

    /// When the last damage was found, and what it was.
    pub(crate) fn damage(&self) -> Option<(u64, String)> {
        let before = self.words[DAMAGE].load(Ordering::Acquire);
        if before == 0 || before % 2 == 1 {
            return None;
        }
        let when = self.words[DAMAGE + 1].load(Ordering::Relaxed);
        let length = (self.words[DAMAGE + 2].load(Ordering::Relaxed) as usize).min(DAMAGE_BYTES);
        let words = self.words[DAMAGE_TEXT..][..DAMAGE_WORDS].iter();
        let bytes: Vec<u8> = words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        fence(Ordering::Acquire);
        let is_whole = self.words[DAMAGE].load(Ordering::Relaxed) == before;
        is_whole.then(|| (when, String::from_utf8_lossy(&bytes[..length]).into_owned()))
    }

    /// Settings that there are: tablespace, and where the setting is.
    fn entries(&self) -> impl Iterator<Item = (&'static AtomicU64, &'static AtomicU64)> {
        let words = &self.words[SETTINGS..WORDS_OF_SETTINGS];
        words.chunks_exact(SETTING_WORDS).map(|entry| (&entry[0], &entry[1]))
    }

    /// The setting of a tablespace, of which `None` is "plain"; the outer `None`: there never was one.
    pub(crate) fn setting(&self, tablespace: u32) -> Option<Option<Choice>> {
        let entries = self.entries().take_while(|(oid, _)| oid.load(Ordering::Acquire) != 0);
        let mut found = entries.filter(|(oid, _)| oid.load(Ordering::Relaxed) == u64::from(tablespace));
        found.next().map(|(_, setting)| choice_of(setting.load(Ordering::Acquire)))
    }

    /// All tablespaces that have a setting.
    pub(crate) fn tablespaces(&self) -> impl Iterator<Item = u32> {
        let entries = self.entries().map(|(oid, _)| oid.load(Ordering::Acquire));
        entries.take_while(|oid| *oid != 0).map(|oid| oid as u32)
    }

    /// Puts a setting in force for all processes.
    pub(crate) fn set(&self, tablespace: u32, setting: Option<Choice>) -> Result<(), Problem> {
        for (oid, word) in self.entries() {
            let known = oid.load(Ordering::Acquire);
            if known == 0 {
                // A new entry says "plain" until its word is there.
                if oid
                    .compare_exchange(0, u64::from(tablespace), Ordering::AcqRel, Ordering::Acquire)
                    .is_err_and(|other| other != u64::from(tablespace))
                {
                    continue;
                }
            } else if known != u64::from(tablespace) {
                continue;
            }
            word.store(word_of(setting), Ordering::Release);
            return Ok(());
        }
        Err(Problem::Tablespaces { limit: TABLESPACES_MAX })
    }
}

fn word_of(setting: Option<Choice>) -> u64 {
    let Some(Choice { algorithm, level: Level(level) }) = setting else { return 0 };
    (algorithm as u64 + 1) << 32 | u64::from(level as u32)
}

fn choice_of(word: u64) -> Option<Choice> {
    let algorithm = *Algorithm::ALL.get(((word >> 32) as usize).checked_sub(1)?)?;
    Some(Choice { algorithm, level: Level(word as u32 as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        let region = Region::new(Room { segments_max: 4, processes_max: 4 }).unwrap();
        region.begin(7, false).unwrap();
        region
    }

    #[test]
    fn every_choice_comes_back_from_its_word() {
        for algorithm in Algorithm::ALL {
            let levels = algorithm.levels();
            for level in [levels.min, levels.default, levels.max] {
                let choice = Choice { algorithm: *algorithm, level };
                assert_eq!(choice_of(word_of(Some(choice))), Some(choice));
            }
        }
        assert_eq!(choice_of(word_of(None)), None);
        assert_eq!(choice_of(99 << 32), None);
    }

    #[test]
    fn settings_are_found_changed_and_limited_in_number() {
        let region = region();
        assert_eq!(region.setting(16400), None);
        region.set(16400, Some(Algorithm::Zstd.into())).unwrap();
        region.set(16401, None).unwrap();
        assert_eq!(region.setting(16400), Some(Some(Algorithm::Zstd.into())));
        assert_eq!(region.setting(16401), Some(None));
        region.set(16400, None).unwrap();
        assert_eq!(region.setting(16400), Some(None));
        assert_eq!(region.tablespaces().collect::<Vec<_>>(), [16400, 16401]);
        for tablespace in 1..=TABLESPACES_MAX as u32 - 2 {
            region.set(tablespace, None).unwrap();
        }
        let full = region.set(99_999, None).unwrap_err();
        assert!(full.to_string().contains(&TABLESPACES_MAX.to_string()), "{full}");
    }

    #[test]
    fn a_new_begin_forgets_what_was_there() {
        let region = region();
        region.set(16400, None).unwrap();
        region.begin(8, true).unwrap();
        assert_eq!((region.server(), region.rolls_forward(), region.setting(16400)), (8, true, None));
    }
}
