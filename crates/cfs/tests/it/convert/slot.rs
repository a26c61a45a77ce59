//! A segment's slot in shared memory, and its container, as far as the protocol has to do with them: what the
//! base is, an entry for each page, pins, commits. The engine's own are proved elsewhere; these are small,
//! and do what `engine::base` says that it does, a step of the schedule at each word.

use pgshrink_cfs::convert::{Flip, Phase};
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{DeviceError, Error};

use super::kernel::{File, Kernel, note};
use crate::schedule::clock::{self, Why};
use crate::schedule::word::SimWord;

pub const PAGES_MAX: usize = 5;
pub const PROCESSES: usize = 8;
pub const WORDS: usize = 32;
const FROZEN: u64 = 1 << 8;
const LEFT: u64 = 1 << 9;
/// Waits after which a process takes frozen back.
const FROZEN_TRIES: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Base {
    #[default]
    None,
    Whole,
    Leaving,
    Returning,
}

impl Base {
    fn of(word: u64) -> Base {
        [Base::None, Base::Whole, Base::Leaving, Base::Returning][(word & 3) as usize]
    }
}

/// What a container's file says.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Root {
    pub base: Base,
    pub entries: Vec<Entry>,
}

impl Root {
    /// Whether a base that lacks pages was cut when it was whole again, before a root said that it is.
    pub fn is_all_returned(&self) -> bool {
        let is_there = |entry: &Entry| matches!(entry, Entry::InBase { .. });
        self.base == Base::Returning && self.entries.iter().all(is_there)
    }
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    Missing,
    InBase { version: u64 },
    Record { version: u64, value: u64 },
}

impl Entry {
    fn word(self) -> u64 {
        match self {
            Entry::Missing => 0,
            Entry::InBase { version } => 1 << 62 | version << 32,
            Entry::Record { version, value } => 2 << 62 | version << 32 | value,
        }
    }

    fn of(word: u64) -> Entry {
        let (version, value) = (word >> 32 & ((1 << 30) - 1), word & u64::from(u32::MAX));
        match word >> 62 {
            0 => Entry::Missing,
            1 => Entry::InBase { version },
            _ => Entry::Record { version, value },
        }
    }
}

#[derive(Clone, Copy)]
pub struct Slot {
    words: &'static [SimWord],
    /// The container's directory and file.
    pub directory: File,
    pub file: File,
    fault: Fault,
}

impl Slot {
    pub fn new(words: &'static [SimWord], directory: File, file: File, root: &Root, fault: Fault) -> Slot {
        let slot = Slot { words, directory, file, fault };
        clock::quietly(|| {
            words.iter().for_each(|word| word.store(0));
            slot.base_word().store(root.base as u64);
            slot.pages_word().store(root.entries.len() as u64);
            let versions = root.entries.iter().map(|entry| match entry {
                Entry::InBase { version } | Entry::Record { version, .. } => *version,
                Entry::Missing => 0,
            });
            slot.words[2].store(versions.max().unwrap_or(0) + 100);
            for (page, entry) in root.entries.iter().enumerate() {
                slot.entry_word(page).store(entry.word());
            }
        });
        slot
    }

    fn base_word(&self) -> &'static SimWord {
        &self.words[0]
    }

    fn pages_word(&self) -> &'static SimWord {
        &self.words[1]
    }

    fn pin_word(&self, process: usize) -> &'static SimWord {
        &self.words[8 + process]
    }

    fn entry_word(&self, page: usize) -> &'static SimWord {
        &self.words[8 + PROCESSES + page]
    }

    fn version(&self) -> u64 {
        self.words[2].add(1) + 1
    }

    pub fn base(&self) -> Base {
        Base::of(self.base_word().load())
    }

    pub fn has_left(&self) -> bool {
        self.base_word().load() & LEFT != 0
    }

    pub fn is_poisoned(&self) -> bool {
        self.words[3].load() != 0
    }

    pub fn poison(&self) {
        self.words[3].store(1);
    }

    /// Which base it is: one more with each that is made. A descriptor of another is not to be used.
    pub fn base_number(&self) -> u64 {
        self.words[7].load()
    }

    pub fn pages(&self) -> usize {
        self.pages_word().load() as usize
    }

    pub fn entry(&self, page: usize) -> Entry {
        Entry::of(self.entry_word(page).load())
    }

    pub fn count_base_write(&self) {
        self.words[5].add(1);
    }

    /// Keeps the slot from being flipped.
    pub fn pin(&self, process: usize) {
        let mut tries = 0;
        loop {
            self.pin_word(process).add(1);
            let word = self.base_word().load();
            if word & FROZEN == 0 {
                return;
            }
            self.unpin(process);
            if tries >= FROZEN_TRIES {
                note(|| format!("{process} takes frozen back"));
                let _ = self.base_word().swap_if(word, word & !FROZEN);
            }
            tries += 1;
            clock::leave(Why::Relax);
        }
    }

    pub fn unpin(&self, process: usize) {
        self.pin_word(process).add(u64::MAX);
    }

    /// A page gets a record.
    pub fn publish(&self, page: usize, value: u64) {
        note(|| format!("container {}, page {page}: {value}", self.file));
        let pages = self.pages();
        for page in pages..page {
            self.entry_word(page).store(Entry::Record { version: self.version(), value: 0 }.word());
        }
        self.entry_word(page).store(Entry::Record { version: self.version(), value }.word());
        if page >= pages {
            self.pages_word().store(page as u64 + 1);
        }
    }

    pub fn truncate(&self, pages: usize) {
        note(|| format!("container {} is cut to {pages}", self.file));
        if pages < self.pages() {
            self.pages_word().store(pages as u64);
            (pages..PAGES_MAX).for_each(|page| self.entry_word(page).store(0));
        }
    }

    /// A copy takes the place of what was copied.
    pub fn replace(&self, page: usize, from: Entry, to: Entry) -> bool {
        let word = self.entry_word(page);
        if self.fault == Fault::BaseCopyOverwrites {
            word.store(to.word());
            return true;
        }
        word.swap_if(from.word(), to.word()).is_ok()
    }

    pub fn copied(from: Entry, value: Option<u64>) -> Entry {
        match (from, value) {
            (Entry::InBase { version }, Some(value)) => Entry::Record { version, value },
            (Entry::Record { version, .. }, None) => Entry::InBase { version },
            _ => from,
        }
    }

    fn root(&self) -> Root {
        let base = self.base();
        let pages = if base == Base::Whole { 0 } else { self.pages() };
        Root { base, entries: (0..pages).map(|page| self.entry(page)).collect() }
    }

    /// Makes durable what there is when it is called.
    pub fn commit(
        &self,
        kernel: &Kernel,
        sync_base: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let lock = &self.words[4];
        while lock.swap_if(0, 1).is_err() {
            clock::leave(Why::Relax);
        }
        let done = self.commit_locked(kernel, sync_base);
        if done.is_err() {
            self.poison();
        }
        lock.store(0);
        done
    }

    fn commit_locked(
        &self,
        kernel: &Kernel,
        sync_base: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if self.is_poisoned() {
            return Err(DeviceError::Io(5));
        }
        // The engine's own business, in one step.
        let (root, has_left) = clock::quietly(|| (self.root(), self.has_left()));
        let writes = self.words[5].load();
        let is_needed = match root.base {
            Base::None => false,
            Base::Whole => true,
            Base::Leaving | Base::Returning => writes != self.words[6].load(),
        };
        if is_needed && self.fault != Fault::BaseNotSynced {
            sync_base()?;
            self.words[6].store(writes);
        }
        if !has_left && kernel.root(self.file).as_ref() != Some(&root) {
            kernel.write_root(self.file, root);
        }
        kernel.sync(self.file)
    }

    /// Without freezing: what writers do in the one state is right in the other.
    pub fn begin_returning(&self, is_new_base: bool) -> bool {
        let found = self.base_word().load();
        if is_new_base {
            self.words[7].add(1);
        }
        matches!(Base::of(found), Base::None | Base::Leaving)
            && self.base_word().swap_if(found, Base::Returning as u64).is_ok()
    }

    /// From `Leaving` to `None`, if nothing is in the base.
    pub fn end_leaving(&self) -> bool {
        (0..self.pages()).all(|page| !matches!(self.entry(page), Entry::InBase { .. }))
            && self.base_word().swap_if(Base::Leaving as u64, Base::None as u64).is_ok()
    }

    /// The segment's name is the base's again.
    pub fn leave(&self) {
        let whole = Base::Whole as u64;
        let _ = self.base_word().swap_if(whole, whole | LEFT);
    }
}

/// A slot as the worker flips it, which has it pinned and a base to ask.
pub struct Flipping<'a> {
    pub slot: Slot,
    pub process: usize,
    pub base_pages: &'a dyn Fn() -> usize,
    pub cut_base: &'a dyn Fn(usize),
    pub durable: &'a dyn Fn() -> Option<Root>,
}

impl Flip for Flipping<'_> {
    fn freeze(&self) -> bool {
        let word = self.slot.base_word().load();
        let can = matches!(Base::of(word), Base::Whole | Base::Returning) && word & (FROZEN | LEFT) == 0;
        can && self.slot.base_word().swap_if(word, word | FROZEN).is_ok()
    }

    fn is_quiet(&self) -> bool {
        self.slot.fault == Fault::FrozenWithoutWaiting
            || (0..PROCESSES)
                .all(|process| process == self.process || self.slot.pin_word(process).load() == 0)
    }

    fn change(&self, to: Phase) -> Result<bool, Error> {
        let slot = self.slot;
        let from = slot.base();
        let become_after = |to: Base| {
            let from = from as u64 | FROZEN;
            let is_done = slot.base_word().swap_if(from, to as u64).is_ok();
            note(|| format!("container {} becomes {to:?}: {is_done}", slot.file));
            is_done
        };
        if to == Phase::Whole {
            let pages = slot.pages();
            let is_there = (0..pages).all(|page| matches!(slot.entry(page), Entry::InBase { .. }));
            // After this the base may be cut before a root says that it is whole.
            let is_durable = (self.durable)().is_some_and(|root| root == slot.root());
            if from != Base::Returning || !is_there || !is_durable {
                return Ok(false);
            }
            (self.cut_base)(pages);
            return Ok(become_after(Base::Whole));
        }
        if from == Base::Whole {
            let (pages, version) = ((self.base_pages)(), slot.version());
            for page in 0..PAGES_MAX {
                let entry = if page < pages { Entry::InBase { version } } else { Entry::Missing };
                slot.entry_word(page).store(entry.word());
            }
            slot.pages_word().store(pages as u64);
        }
        slot.count_base_write();
        Ok(become_after(Base::Leaving))
    }

    fn thaw(&self) {
        let word = self.slot.base_word().load();
        if word & FROZEN != 0 {
            let _ = self.slot.base_word().swap_if(word, word & !FROZEN);
        }
    }

    fn fault(&self) -> Fault {
        self.slot.fault
    }
}
