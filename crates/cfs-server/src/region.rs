//! The memory that all processes of a server share: settings of tablespaces, and the slots of open segments.
//!
//! ```text
//!  header, settings of tablespaces (64 KB) | master keys (4 KB) | directories ([`crate::directories`], 8 KB)
//!                                         | conversions ([`crate::convert`])
//!                                         | what collectors do ([`crate::activity`]) | slots (pgshrink_cfs::slots)
//! ```
//!
//! Master keys are kept from dumps of memory and, where the system allows it, from swap.
//!
//! It is a file in memory (`memfd_create`), made by the postmaster before its first fork and mapped shared. A page
//! of it takes memory when it is touched first, and with `vm.overcommit_memory = 2` counts only then.
// Mapped memory.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pgshrink_cfs::Geometry;
use pgshrink_cfs::seal::{KeyId, MASTER_KEY_BYTES, MasterKey};
use pgshrink_cfs::slots::{Capacity, Slots};
use pgshrink_cfs::units::PAGES_MAX;
use pgshrink_codec::{Algorithm, Choice, Level};
use zeroize::Zeroizing;

use crate::activity::Activity;
use crate::directories::{Generation, Noted};
use crate::error::Problem;
use crate::host::errno;
use crate::setting::Setting;

/// Bytes of the region before the slots.
pub(crate) const BYTES_BEFORE_SLOTS: usize = WORDS_BEFORE_SLOTS * 8;
const WORDS_BEFORE_SLOTS: usize = FLIGHTS_END + crate::activity::WORDS;
const WORDS_OF_SETTINGS: usize = (64 << 10) / 8;
/// Master keys: which is current, by its place from 1 on, then the keys. A page of its own.
const KEYS: usize = WORDS_OF_SETTINGS;
const KEYS_END: usize = KEYS + PAGE_WORDS;
const PAGE_WORDS: usize = 4096 / 8;
/// Directories of databases that may have containers.
const DIRECTORIES: usize = KEYS_END;
const DIRECTORIES_END: usize = DIRECTORIES + crate::directories::WORDS;
/// Conversions under way.
const FLIGHTS: usize = DIRECTORIES_END;
const FLIGHTS_END: usize = FLIGHTS + crate::convert::FLIGHT_WORDS;
/// An id, and [`MasterKey::to_bytes`].
const KEY_WORDS: usize = (KEY_ID_BYTES + MASTER_KEY_BYTES) / 8;
const KEY_ID_BYTES: usize = 16;
/// Master keys at most at the same time.
pub(crate) const KEYS_MAX: usize = 16;
const _: () = assert!(KEYS_MAX * KEY_WORDS < PAGE_WORDS);
const SERVER: usize = 0;
const FLAGS: usize = 1;
/// Questions of redo, and how many the launcher has answered ([`crate::asking`]).
const ASKED: usize = 2;
const ANSWERED: usize = 3;
/// Whether there is a launcher.
const LOOKED_AFTER: usize = 4;
/// The count of exchanges.
const GENERATION: usize = 5;
/// How many containers have become plain files again.
const RETURNED: usize = 6;
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
const RECOVERING: u64 = 2;

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
        let region = Region { memory, words, capacity };
        region.protect_keys();
        Ok(region)
    }

    /// Keeps the page with the keys out of dumps, and in memory if there is a limit that allows that.
    fn protect_keys(&self) {
        let page = &self.words[KEYS..KEYS_END];
        let (start, bytes) = (page.as_ptr().cast_mut().cast(), size_of_val(page));
        // SAFETY: a whole page of the mapping, whose content does not change.
        unsafe {
            libc::madvise(start, bytes, libc::MADV_DONTDUMP);
            libc::mlock(start, bytes);
        }
    }

    /// Begins a server's life: everything is forgotten but master keys and what the caller says now. After a crash of one process
    /// the postmaster calls this when all others have ended.
    pub(crate) fn begin(&self, server: u32, roll_forward: bool) -> Result<(), Problem> {
        let bytes = (self.words.len() * 8) as i64;
        let (current, keys) = (self.current_key().map(|key| key.id()), self.keys());
        // SAFETY: takes numbers. The mapping stays valid: the file has its size again before anyone touches it.
        let emptied =
            unsafe { libc::ftruncate(self.memory, 0) == 0 && libc::ftruncate(self.memory, bytes) == 0 };
        if !emptied {
            return Err(Problem::System { call: "ftruncate of shared memory", errno: errno() });
        }
        self.words[SERVER].store(u64::from(server), Ordering::Relaxed);
        self.words[FLAGS].store(if roll_forward { ROLL_FORWARD } else { 0 }, Ordering::Relaxed);
        self.activity().begin();
        self.protect_keys();
        // The current one last.
        let (current, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| Some(key.id()) == current);
        others.iter().chain(&current).try_for_each(|key| self.put_key(key))?;
        self.slots().map(drop)
    }

    fn key_words(&self) -> impl Iterator<Item = &'static [AtomicU64]> {
        self.words[KEYS + 1..KEYS_END].chunks_exact(KEY_WORDS).take(KEYS_MAX)
    }

    /// The master keys. One that is being written is not there yet: its id is a hash of it.
    pub(crate) fn keys(&self) -> Vec<MasterKey> {
        self.key_words().filter_map(key_in).collect()
    }

    /// The master key of this id.
    pub(crate) fn key(&self, id: &KeyId) -> Option<MasterKey> {
        self.key_words().find(|words| id_in(words) == *id).and_then(key_in)
    }

    /// The master key of new files.
    pub(crate) fn current_key(&self) -> Option<MasterKey> {
        let place = (self.words[KEYS].load(Ordering::Acquire) as usize).checked_sub(1)?;
        self.key_words().nth(place).and_then(key_in)
    }

    /// Its id alone.
    pub(crate) fn current_key_id(&self) -> Option<KeyId> {
        let place = (self.words[KEYS].load(Ordering::Acquire) as usize).checked_sub(1)?;
        self.key_words().nth(place).map(id_in)
    }

    /// Adds a master key if it is not there, and makes it the one for new files. One process at a time.
    pub(crate) fn put_key(&self, key: &MasterKey) -> Result<(), Problem> {
        let known = self.key_words().position(|words| id_in(words) == key.id());
        let place = known.or_else(|| self.key_words().position(|words| id_in(words) == [0; KEY_ID_BYTES]));
        let Some((place, words)) = place.and_then(|place| Some((place, self.key_words().nth(place)?))) else {
            let allowed = "finish the current change of the master key with cfs_rotate_key()";
            return Err(Problem::Setting {
                what: "number of master keys",
                found: KEYS_MAX.to_string(),
                allowed,
            });
        };
        let (bytes, id) = (key.to_bytes(), key.id());
        // The id last: who finds it finds the key.
        for (word, bytes) in words[KEY_ID_BYTES / 8..].iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
        for (word, bytes) in words.iter().zip(id.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Ordering::Release);
        }
        self.words[KEYS].store(place as u64 + 1, Ordering::Release);
        Ok(())
    }

    /// Forgets all master keys but this one.
    pub(crate) fn drop_keys_but(&self, id: &KeyId) {
        for words in self.key_words().filter(|words| id_in(words) != *id) {
            words.iter().for_each(|word| word.store(0, Ordering::Release));
        }
    }

    /// What collectors do and have done.
    pub(crate) fn activity(&self) -> Activity {
        Activity::over(&self.words[FLIGHTS_END..WORDS_BEFORE_SLOTS])
    }

    /// Directories of databases that may have containers, beside those of tablespaces that have a setting.
    pub(crate) fn noted(&self) -> Noted {
        Noted::over(&self.words[DIRECTORIES..DIRECTORIES_END])
    }

    /// Conversions under way.
    pub(crate) fn flights(&self) -> &'static [AtomicU64] {
        &self.words[FLIGHTS..FLIGHTS_END]
    }

    /// Whether a container has become a plain file again since the server started.
    pub(crate) fn has_returned(&self) -> bool {
        self.words[RETURNED].load(Ordering::Acquire) != 0
    }

    /// A container is about to become one.
    pub(crate) fn note_returned(&self) {
        self.words[RETURNED].fetch_add(1, Ordering::AcqRel);
    }

    /// The word that counts exchanges of names.
    pub(crate) fn generation_word(&self) -> &'static AtomicU64 {
        &self.words[GENERATION]
    }

    /// How often names were exchanged.
    pub(crate) fn generation(&self) -> Generation {
        Generation::over(&self.words[GENERATION])
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

    /// Whether recovery from a crash has begun, and nobody has noticed its end.
    pub(crate) fn is_recovering(&self) -> bool {
        self.words[FLAGS].load(Ordering::Relaxed) & RECOVERING != 0
    }

    pub(crate) fn begin_recovery(&self) {
        self.words[FLAGS].fetch_or(RECOVERING, Ordering::Relaxed);
    }

    pub(crate) fn end_recovery(&self) {
        self.words[FLAGS].fetch_and(!RECOVERING, Ordering::Relaxed);
    }

    /// Whether the server waits until the disk has what was written.
    pub(crate) fn waits_for_disk(&self) -> bool {
        !self.rolls_forward()
    }

    /// Asks the launcher to look at the settings; the question's number.
    pub(crate) fn ask(&self) -> u64 {
        self.words[ASKED].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Questions so far.
    pub(crate) fn asked(&self) -> u64 {
        self.words[ASKED].load(Ordering::Acquire)
    }

    /// Questions that were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.words[ANSWERED].load(Ordering::Acquire)
    }

    /// The launcher has looked after so many questions.
    pub(crate) fn answer(&self, questions: u64) {
        self.words[ANSWERED].store(questions, Ordering::Release);
        self.words[LOOKED_AFTER].store(1, Ordering::Release);
    }

    /// Whether the launcher has looked since the server started.
    pub(crate) fn is_looked_after(&self) -> bool {
        self.words[LOOKED_AFTER].load(Ordering::Acquire) != 0
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

    /// The setting of a tablespace; `None`: there never was one.
    pub(crate) fn setting(&self, tablespace: u32) -> Option<Setting> {
        let entries = self.entries().take_while(|(oid, _)| oid.load(Ordering::Acquire) != 0);
        let mut found = entries.filter(|(oid, _)| oid.load(Ordering::Relaxed) == u64::from(tablespace));
        found.next().map(|(_, setting)| setting_of(setting.load(Ordering::Acquire)))
    }

    /// All tablespaces that have a setting.
    pub(crate) fn tablespaces(&self) -> impl Iterator<Item = u32> {
        let entries = self.entries().map(|(oid, _)| oid.load(Ordering::Acquire));
        entries.take_while(|oid| *oid != 0).map(|oid| oid as u32)
    }

    /// Puts a setting in force for all processes.
    pub(crate) fn set(&self, tablespace: u32, setting: Setting) -> Result<(), Problem> {
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

/// Of a setting's word, beside algorithm and level.
const ENCRYPTED: u64 = 1 << 62;

fn word_of(setting: Setting) -> u64 {
    let Some(Choice { algorithm, level: Level(level) }) = setting.compression else { return 0 };
    let encrypted = if setting.is_encrypted { ENCRYPTED } else { 0 };
    (algorithm as u64 + 1) << 32 | u64::from(level as u32) | encrypted
}

fn setting_of(word: u64) -> Setting {
    let choice = (((word & !ENCRYPTED) >> 32) as usize).checked_sub(1).and_then(|place| {
        let algorithm = *Algorithm::ALL.get(place)?;
        Some(Choice { algorithm, level: Level(word as u32 as i32) })
    });
    Setting { compression: choice, is_encrypted: choice.is_some() && word & ENCRYPTED != 0 }
}

fn id_in(words: &[AtomicU64]) -> KeyId {
    let mut id = [0; KEY_ID_BYTES];
    for (bytes, word) in id.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
    }
    id
}

/// The key in these words, if they are of one.
fn key_in(words: &[AtomicU64]) -> Option<MasterKey> {
    let id = id_in(words);
    let mut bytes = Zeroizing::new([0; MASTER_KEY_BYTES]);
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(&words[KEY_ID_BYTES / 8..]) {
        bytes.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
    }
    MasterKey::from_bytes(&bytes).filter(|key| id != [0; KEY_ID_BYTES] && key.id() == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        let region = Region::new(Room { segments_max: 4, processes_max: 4 }).unwrap();
        region.begin(7, false).unwrap();
        region
    }

    fn compressed() -> Setting {
        Setting { compression: Some(Algorithm::Zstd.into()), is_encrypted: false }
    }

    #[test]
    fn every_choice_comes_back_from_its_word() {
        for algorithm in Algorithm::ALL {
            let levels = algorithm.levels();
            for (level, is_encrypted) in [(levels.min, false), (levels.default, true), (levels.max, true)] {
                let setting =
                    Setting { compression: Some(Choice { algorithm: *algorithm, level }), is_encrypted };
                assert_eq!(setting_of(word_of(setting)), setting);
            }
        }
        assert_eq!(setting_of(word_of(Setting::PLAIN)), Setting::PLAIN);
        assert_eq!(setting_of(99 << 32), Setting::PLAIN);
    }

    #[test]
    fn settings_are_found_changed_and_limited_in_number() {
        let region = region();
        assert_eq!(region.setting(16400), None);
        region.set(16400, compressed()).unwrap();
        region.set(16401, Setting::PLAIN).unwrap();
        assert_eq!(region.setting(16400), Some(compressed()));
        assert_eq!(region.setting(16401), Some(Setting::PLAIN));
        region.set(16400, Setting::PLAIN).unwrap();
        assert_eq!(region.setting(16400), Some(Setting::PLAIN));
        assert_eq!(region.tablespaces().collect::<Vec<_>>(), [16400, 16401]);
        for tablespace in 1..=TABLESPACES_MAX as u32 - 2 {
            region.set(tablespace, Setting::PLAIN).unwrap();
        }
        let full = region.set(99_999, Setting::PLAIN).unwrap_err();
        assert!(full.to_string().contains(&TABLESPACES_MAX.to_string()), "{full}");
    }

    #[test]
    fn a_new_begin_forgets_what_was_there_but_keys() {
        let region = region();
        region.set(16400, Setting::PLAIN).unwrap();
        let keys = [1, 2, 3].map(key);
        keys.iter().for_each(|key| region.put_key(key).unwrap());
        region.put_key(&keys[1]).unwrap();
        region.begin(8, true).unwrap();
        assert_eq!((region.server(), region.rolls_forward(), region.setting(16400)), (8, true, None));
        assert_eq!(region.keys().len(), 3);
        assert_eq!(region.current_key_id(), Some(keys[1].id()));
    }

    fn key(number: u8) -> MasterKey {
        MasterKey::from_bytes(&{
            let mut bytes = [0; MASTER_KEY_BYTES];
            bytes[0] = number;
            bytes
        })
        .unwrap()
    }

    #[test]
    fn master_keys_are_found_by_id_dropped_and_limited_in_number() {
        let region = region();
        assert!(region.current_key().is_none() && region.current_key_id().is_none());
        for number in 1..=KEYS_MAX as u8 {
            region.put_key(&key(number)).unwrap();
        }
        assert!(region.put_key(&key(99)).is_err());
        assert_eq!(region.key(&key(3).id()).map(|found| found.id()), Some(key(3).id()));
        region.drop_keys_but(&key(16).id());
        assert_eq!(region.keys().len(), 1);
        assert!(region.key(&key(3).id()).is_none());
        assert_eq!(region.current_key().map(|key| key.id()), Some(key(16).id()));
        // A key that is half written is none.
        region.key_words().next().unwrap()[0].store(7, Ordering::Relaxed);
        assert!(region.keys().len() == 1);
        region.put_key(&key(4)).unwrap();
    }
}
