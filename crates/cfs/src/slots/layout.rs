//! How the region is divided, and names for its words.

use crate::format::error::Error;
use crate::format::key::SegmentKey;
use crate::format::units::LEAF_ENTRIES;
use crate::shared::region::Geometry;
use crate::shared::state::SharedState;
use crate::shared::word::Word;

/// Words of a page of memory.
const MEMORY_PAGE_WORDS: usize = LEAF_ENTRIES;
/// Words of a cache line.
const LINE_WORDS: usize = 8;
const HEADER_WORDS: usize = MEMORY_PAGE_WORDS;
const DESCRIPTOR_WORDS: usize = LINE_WORDS;
/// Pins of this many slots are counted in one word.
const PINS_PER_WORD: usize = 8;
/// Pins at most that one process has on one slot at the same time.
pub(crate) const PINS_MAX: u64 = 255;

/// Slots at most.
const SEGMENTS_LIMIT: u32 = 1 << 20;
/// Processes at most.
const PROCESSES_LIMIT: u32 = 1 << 16;
/// The layout's name and version.
const MAGIC: u64 = u64::from_le_bytes(*b"cfsslot1");

/// How many segments and processes a region is for. The same for all its processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// The memory of each segment.
    pub geometry: Geometry,
    /// Segments at most that are open at the same time: the limit of memory. At most 2^20.
    pub segments_max: u32,
    /// Processes at most that are members at the same time. At most 2^16.
    pub processes_max: u32,
}

impl Capacity {
    /// Words of the region. Most of them are never touched: the region is to be memory that is committed on
    /// touch (a memfd), at the begin of a memory page.
    pub fn words(&self) -> usize {
        self.segments_at() + self.segments_max as usize * self.segment_words()
    }

    /// Words of one slot: whole pages of memory.
    pub fn segment_words(&self) -> usize {
        self.geometry.words().next_multiple_of(MEMORY_PAGE_WORDS)
    }

    /// Words of one process: its name, and a count for each slot.
    fn entry_words(&self) -> usize {
        (1 + (self.segments_max as usize).div_ceil(PINS_PER_WORD)).next_multiple_of(LINE_WORDS)
    }

    fn buckets(&self) -> usize {
        (self.segments_max as usize * 2).next_power_of_two()
    }

    fn descriptors_at(&self) -> usize {
        HEADER_WORDS + self.processes_max as usize * self.entry_words()
    }

    fn buckets_at(&self) -> usize {
        self.descriptors_at() + self.segments_max as usize * DESCRIPTOR_WORDS
    }

    fn segments_at(&self) -> usize {
        (self.buckets_at() + self.buckets()).next_multiple_of(MEMORY_PAGE_WORDS)
    }

    fn check(&self, words: usize) -> Result<(), Error> {
        let limits = [
            ("segments open at the same time", self.segments_max, SEGMENTS_LIMIT),
            ("processes of a region", self.processes_max, PROCESSES_LIMIT),
        ];
        for (what, found, allowed) in limits {
            if found > allowed {
                return Err(Error::Limit { what, found: found.into(), allowed: allowed.into() });
            }
            if found == 0 {
                return Err(Error::SharedMemory { what, expected: 1, found: 0 });
            }
        }
        self.geometry.check(self.geometry.words())?;
        let (expected, found) = (self.words() as u64, words as u64);
        if found < expected {
            return Err(Error::SharedMemory { what: "words of the slots' region", expected, found });
        }
        Ok(())
    }
}

/// What a slot is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nobody's; its words are zeros.
    Free,
    /// In the index.
    Open,
    /// In the index; who holds the lock is about to decide whether it may go.
    Closing,
    /// In the index, its file's name gone. It goes with its last pin.
    Doomed,
    /// Being zeroed.
    Wiping,
}

/// A slot's state, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotState {
    /// Raised each time when the slot is no longer what handles know it as. 56 bits.
    pub generation: u64,
    pub phase: Phase,
}

impl SlotState {
    pub(crate) fn of(word: u64) -> SlotState {
        let phase = match word as u8 {
            0 => Phase::Free,
            1 => Phase::Open,
            2 => Phase::Closing,
            3 => Phase::Doomed,
            _ => Phase::Wiping,
        };
        SlotState { generation: word >> 8, phase }
    }

    pub(crate) fn word(self) -> u64 {
        self.generation << 8 | self.phase as u64
    }

    pub(crate) fn with(self, phase: Phase) -> SlotState {
        SlotState { phase, ..self }
    }

    /// In another phase, and not to be reached by handles any more.
    pub(crate) fn next(self, phase: Phase) -> SlotState {
        SlotState { generation: self.generation + 1, phase }
    }
}

/// The region's own words by name.
pub(crate) struct Header<'m, W> {
    magic: &'m W,
    pages_max: &'m W,
    extents: &'m W,
    limits: &'m W,
    /// Who changes the index or takes a slot.
    pub lock: &'m W,
    /// Not 0: the lock was taken from a process that lives.
    pub poisoned: &'m W,
    /// The slot, plus one, that the lock's holder is in the midst of changing; 0: none.
    pub unfinished: &'m W,
    /// No slot below is free.
    pub free_from: &'m W,
    /// The slot at which the search for an idle one goes on.
    pub hand: &'m W,
    /// Entries of processes that were ever used.
    pub entries_end: &'m W,
    /// Slots in the index.
    pub open: &'m W,
    /// Segments evicted so far.
    pub evictions: &'m W,
    /// Segments given a slot so far.
    pub openings: &'m W,
}

/// A slot's words by name.
pub(crate) struct Descriptor<'m, W> {
    /// [`SlotState`].
    pub state: &'m W,
    pub key: [&'m W; 2],
    /// The next slot of its bucket, plus one.
    pub next: &'m W,
    /// Not 0: used since the search for an idle slot last came by.
    pub used: &'m W,
}

/// A process's words by name.
pub(crate) struct Entry<'m, W> {
    /// Whose it is ([`ProcessName`](crate::slots::ProcessName)); 0: nobody's.
    pub name: &'m W,
    pins: &'m [W],
}

impl<'m, W> Entry<'m, W> {
    /// The word that counts the pins on a slot, and where in the word.
    pub(crate) fn pins(&self, slot: u32) -> (&'m W, u32) {
        let slot = slot as usize;
        (&self.pins[slot / PINS_PER_WORD], (slot % PINS_PER_WORD) as u32 * 8)
    }

    pub(crate) fn all_pins(&self) -> &'m [W] {
        self.pins
    }
}

/// The region, with names for its parts.
pub struct Slots<'m, W> {
    words: &'m [W],
    capacity: Capacity,
}

impl<W> Clone for Slots<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Slots<'_, W> {}

impl<'m, W: Word> Slots<'m, W> {
    /// Over `words`, at least [`Capacity::words`] of them, zeroed before their first use. Made before the
    /// first fork, or by each process anew; the first one notes the capacity.
    ///
    /// # Errors
    /// [`Error::SharedMemory`] for memory that is too small or of another capacity; [`Error::Limit`].
    pub fn over(words: &'m [W], capacity: Capacity) -> Result<Self, Error> {
        capacity.check(words.len())?;
        let slots = Slots { words: &words[..capacity.words()], capacity };
        let header = slots.header();
        let geometry = &capacity.geometry;
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let notes = [
            (header.magic, "layout of the slots", MAGIC),
            (header.pages_max, "pages of a segment", geometry.pages_max.into()),
            (header.extents, "extents of a segment", pair(geometry.extents_max, geometry.extent_units)),
            (header.limits, "segments and processes", pair(capacity.segments_max, capacity.processes_max)),
        ];
        for (word, what, expected) in notes {
            if let Err(found) = word.swap_if(0, expected)
                && found != expected
            {
                return Err(Error::SharedMemory { what, expected, found });
            }
        }
        Ok(slots)
    }

    /// What the region is for.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    pub(crate) fn header(&self) -> Header<'m, W> {
        let at = |index: usize| &self.words[index];
        // What every pin reads or writes lies in lines of its own, apart from these: descriptors and pins.
        Header {
            magic: at(0),
            pages_max: at(1),
            extents: at(2),
            limits: at(3),
            lock: at(4),
            poisoned: at(5),
            unfinished: at(6),
            free_from: at(7),
            hand: at(8),
            entries_end: at(9),
            open: at(10),
            evictions: at(11),
            openings: at(12),
        }
    }

    pub(crate) fn entry(&self, entry: u32) -> Entry<'m, W> {
        let (name, pins) = self.process_words(entry).split_at(1);
        Entry { name: &name[0], pins }
    }

    pub(crate) fn descriptor(&self, slot: u32) -> Descriptor<'m, W> {
        let words = &self.words[self.capacity.descriptors_at() + slot as usize * DESCRIPTOR_WORDS..];
        Descriptor { state: &words[0], key: [&words[1], &words[2]], next: &words[3], used: &words[4] }
    }

    /// The first slot, plus one, of those whose key falls there.
    pub(crate) fn bucket(&self, key: &SegmentKey) -> &'m W {
        let [high, low] = key.words();
        // Relations are numbered one after the other, and so are segments: every bit is to matter.
        let mixed = (high ^ low.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (mixed ^ low.wrapping_mul(0xd6e8_feb8_6659_fd93)) >> 32;
        &self.words[self.capacity.buckets_at() + (index as usize & (self.capacity.buckets() - 1))]
    }

    pub(crate) fn key(&self, slot: u32) -> SegmentKey {
        SegmentKey::of(self.descriptor(slot).key.map(Word::load))
    }

    pub(crate) fn state(&self, slot: u32) -> SlotState {
        SlotState::of(self.descriptor(slot).state.load())
    }

    /// Where the slot's words are among the region's.
    pub(crate) fn segment_range(&self, slot: u32) -> std::ops::Range<usize> {
        let words = self.capacity.segment_words();
        let first = self.capacity.segments_at() + slot as usize * words;
        first..first + words
    }

    /// The words of a slot's container, for tests that look at memory from outside.
    #[doc(hidden)]
    pub fn segment_words(&self, slot: u32) -> &'m [W] {
        &self.words[self.segment_range(slot)]
    }

    /// The shared state of a slot's container.
    ///
    /// # Errors
    /// As of a container over the same words.
    pub(crate) fn segment_state(&self, slot: u32) -> Result<SharedState<'m, W>, Error> {
        SharedState::new(self.segment_words(slot), self.capacity.geometry)
    }

    /// The word of a slot's state, for tests that model it.
    #[doc(hidden)]
    pub fn state_word(&self, slot: u32) -> &'m W {
        self.descriptor(slot).state
    }

    /// All words, for tests that model some of them.
    #[doc(hidden)]
    pub fn all_words(&self) -> &'m [W] {
        self.words
    }

    /// The words of a process, for tests that model them: its name, then its pins.
    #[doc(hidden)]
    pub fn process_words(&self, entry: u32) -> &'m [W] {
        let words = self.capacity.entry_words();
        &self.words[HEADER_WORDS + entry as usize * words..][..words]
    }
}
