//! A page's header, line pointers and the cells they point to.
//!
//! PostgreSQL's `bufpage.h`: a header of 24 bytes with the ends of its parts, an array of line pointers (15
//! bits of offset, 2 of state, 15 of length), a hole, tuples from the other end downwards, a special space.
//!
//! Invariant: encoder and decoder derive the same [`Layout`] from header and line pointers alone, so that
//! nothing of it needs to be stored. [`Layout::read`] is that derivation, and all that is believed about a
//! page: cells lie between the line pointers and the special space, begin aligned and do not overlap.

use super::column::{self, Backend, NEVER};
use super::streams::{Sink, Source};
use super::{Error, PAGE_SIZE};

pub(super) const HEADER_BYTES: usize = 24;
/// Line pointers of a page that has tuples of 8 bytes throughout.
const POINTERS_MAX: usize = (PAGE_SIZE - HEADER_BYTES) / 12;
/// `PD_PAGESIZE_VERSION` of every page since PostgreSQL 8.3.
const VERSION: u16 = PAGE_SIZE as u16 | 4;

/// A tuple's place.
#[derive(Copy, Clone, Default)]
pub(super) struct Cell {
    pub(super) at: u16,
    pub(super) len: u16,
    /// Index of its line pointer.
    pub(super) pointer: u16,
    /// Where lanes end, from `at`: its length, or where a posting list begins.
    pub(super) end: u16,
    /// Row pointers of its posting list.
    pub(super) tids: u16,
    /// Bytes from there on that are written one by one.
    pub(super) apart: u16,
    /// What it must share with others to be coded together.
    pub(super) key: u16,
    pub(super) class: u8,
}

impl Cell {
    /// As what line pointers say. Every field by itself: a default that is copied over costs more than all of
    /// the rest.
    fn new(at: u16, len: u16, pointer: u16) -> Cell {
        Cell { at, len, pointer, end: len, tids: 0, apart: 0, key: 0, class: 0 }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Layout {
    pub(super) lower: usize,
    pub(super) special: usize,
    /// The lowest byte of any cell.
    pub(super) lowest: usize,
    pub(super) cells: Vec<Cell>,
    /// Each cell directly below the one before: what a page looks like that was only ever appended to.
    pub(super) contiguous: bool,
    /// After decoding: all cells have the length of the first.
    pub(super) uniform: bool,
    /// Of the cells; after decoding.
    pub(super) shortest: u16,
    /// After decoding their headers: the words of flags, offsets and sizes in them are the same in all cells.
    pub(super) alike: bool,
    covered: [u64; COVERED_WORDS],
    /// Of the cells; while decoding. Then places of tuples whose row pointers are not that.
    pub(super) lengths: Vec<u32>,
}

/// A bit for every place a tuple may begin.
const COVERED_WORDS: usize = PAGE_SIZE / 8 / 64;
const VERSION_ODD: u8 = 1;
const PRUNE_XID: u8 = 2;
const UPPER_ODD: u8 = 4;
const SPECIAL: u8 = 8;
const FLAGS: u8 = 16;
const CHECKSUM: u8 = 32;
const REST: u8 = 64;
const SPREAD: u8 = 128;

impl Layout {
    /// What header and line pointers of `page` say; `false` if they are not those of a page with tuples.
    pub(super) fn read(&mut self, page: &[u8; PAGE_SIZE]) -> bool {
        self.cells.clear();
        let [lower, upper, special] = [12, 14, 16].map(|at| usize::from(u16_at(page, at)));
        if lower < HEADER_BYTES || lower > upper || upper > special || special > PAGE_SIZE {
            return false;
        }
        let count = (lower - HEADER_BYTES) / 4;
        if !lower.is_multiple_of(4) || !special.is_multiple_of(8) || count == 0 || count > POINTERS_MAX {
            return false;
        }
        (self.lower, self.special, self.lowest, self.contiguous) = (lower, special, special, true);
        for pointer in 0..count {
            let word = u32_at(page, HEADER_BYTES + 4 * pointer);
            let (at, len) = ((word & 0x7fff) as usize, (word >> 17) as usize);
            if len == 0 {
                continue;
            }
            if at < lower || !at.is_multiple_of(8) || at + aligned(len) > special {
                return false;
            }
            self.contiguous &= at + aligned(len) == self.lowest;
            self.lowest = self.lowest.min(at);
            let (at, len) = (at as u16, len as u16);
            self.cells.push(Cell::new(at, len, pointer as u16));
        }
        self.contiguous || self.cover()
    }

    /// Marks what cells cover; `false` if two overlap.
    fn cover(&mut self) -> bool {
        self.covered = [0; _];
        let mut twice = 0;
        for cell in &self.cells {
            let (from, mut left) = (usize::from(cell.at) / 8, usize::from(cell.len).div_ceil(8));
            let mut word = from;
            while left > 0 {
                let run = (64 - word % 64).min(left);
                let mask = (u64::MAX >> (64 - run)) << (word % 64);
                let slot = &mut self.covered[word / 64 % COVERED_WORDS];
                twice |= *slot & mask;
                *slot |= mask;
                (word, left) = (word + run, left - run);
            }
        }
        twice == 0
    }

    /// Calls `visit` with each range between line pointers and special space that no cell covers.
    pub(super) fn gaps(&self, mut visit: impl FnMut(usize, usize)) {
        visit(self.lower, self.lowest);
        if self.contiguous {
            return;
        }
        let covered = |word: usize| self.covered[word / 64] >> (word % 64) & 1 != 0;
        let (mut word, end) = (self.lowest / 8, self.special / 8);
        while word < end {
            if covered(word) {
                word += 1;
                continue;
            }
            let from = word;
            while word < end && !covered(word) {
                word += 1;
            }
            visit(8 * from, 8 * word);
        }
    }

    /// Writes header, special space and line pointers. Says whether something is in gaps.
    pub(super) fn write(
        &self,
        page: &[u8; PAGE_SIZE],
        checksum_implied: bool,
        values: &mut Vec<u32>,
        backend: Backend,
        sink: &mut Sink,
    ) -> bool {
        let upper = u16_at(page, 14);
        let mut clean = true;
        self.gaps(|from, to| clean &= is_zero(&page[from..to]));
        let set = |flag: u8, is: bool| if is { flag } else { 0 };
        let checksum = u16_at(page, 8) != 0 && !checksum_implied;
        let flags = set(VERSION_ODD, u16_at(page, 18) != VERSION)
            | set(PRUNE_XID, u32_at(page, 20) != 0)
            | set(UPPER_ODD, usize::from(upper) != self.lowest)
            | set(SPECIAL, self.special != PAGE_SIZE)
            | set(FLAGS, u16_at(page, 10) != 0)
            | set(CHECKSUM, checksum)
            | set(REST, !clean)
            | set(SPREAD, !self.contiguous);
        sink.head.push(flags);
        sink.head_varint(((self.lower - HEADER_BYTES) / 4) as u32);
        sink.head_varint(u32_at(page, 0));
        sink.head.extend_from_slice(&page[4..8]);
        let mut optional = |flag: u8, from: usize, to: usize| {
            if flags & flag != 0 {
                sink.head.extend_from_slice(&page[from..to]);
            }
        };
        optional(CHECKSUM, 8, 10);
        optional(FLAGS, 10, 12);
        optional(UPPER_ODD, 14, 16);
        optional(SPECIAL, 16, 18);
        optional(VERSION_ODD, 18, 20);
        optional(PRUNE_XID, 20, 24);
        sink.head.extend_from_slice(&page[self.special..]);
        self.write_pointers(page, values, backend, sink);
        !clean
    }

    fn write_pointers(
        &self,
        page: &[u8; PAGE_SIZE],
        values: &mut Vec<u32>,
        backend: Backend,
        sink: &mut Sink,
    ) {
        let words = || page[HEADER_BYTES..self.lower].as_chunks().0.iter().map(word);
        fill(values, words().map(|word| word >> 15 & 3));
        column::write(values, backend, NEVER, sink);
        fill(values, words().map(|word| word >> 17));
        column::write(values, backend, NEVER, sink);
        if self.cells.len() < values.len() {
            fill(values, words().filter(|word| word >> 17 == 0).map(|word| word & 0x7fff));
            column::write(values, backend, NEVER, sink);
        }
        if self.contiguous {
            return;
        }
        let mut expected = self.special;
        values.clear();
        for cell in &self.cells {
            expected = expected.wrapping_sub(aligned(cell.len.into()));
            values.push(((expected as i32 - i32::from(cell.at)) >> 3) as u32);
            expected = cell.at.into();
        }
        let mut follows = 0;
        values.iter().for_each(|&value| follows += usize::from(value == 0));
        if 2 * follows < values.len() {
            sink.head.push(1);
            fill(values, self.cells.iter().map(|cell| ((self.special - usize::from(cell.at)) / 8) as u32));
        } else {
            sink.head.push(0);
        }
        column::write(values, backend, NEVER, sink);
    }

    /// The inverse of [`Layout::write`]: fills in those parts of `page`, which must be zero, and reads the
    /// layout. Says whether something is to be put into gaps.
    pub(super) fn restore(
        &mut self,
        page: &mut [u8; PAGE_SIZE],
        values: &mut Vec<u32>,
        source: &mut Source<'_>,
    ) -> Result<bool, Error> {
        let flags = source.head_byte()?;
        let count = source.head_varint()? as usize;
        if count == 0 || count > POINTERS_MAX {
            return Err(Error::Corrupt { what: "number of line pointers" });
        }
        let lower = HEADER_BYTES + 4 * count;
        let lsn_high = source.head_varint()?;
        page[..4].copy_from_slice(&lsn_high.to_le_bytes());
        page[4..8].copy_from_slice(source.head(4)?);
        page[12..14].copy_from_slice(&(lower as u16).to_le_bytes());
        page[16..18].copy_from_slice(&(PAGE_SIZE as u16).to_le_bytes());
        page[18..20].copy_from_slice(&VERSION.to_le_bytes());
        let optional = [
            (CHECKSUM, 8, 10),
            (FLAGS, 10, 12),
            (UPPER_ODD, 14, 16),
            (SPECIAL, 16, 18),
            (VERSION_ODD, 18, 20),
            (PRUNE_XID, 20, 24),
        ];
        for (flag, from, to) in optional {
            if flags & flag != 0 {
                page[from..to].copy_from_slice(source.head(to - from)?);
            }
        }
        let special = usize::from(u16_at(page, 16));
        if special < lower || special > PAGE_SIZE {
            return Err(Error::Corrupt { what: "place of the special space" });
        }
        page[special..].copy_from_slice(source.head(PAGE_SIZE - special)?);
        (self.lower, self.special) = (lower, special);
        self.restore_pointers(page, flags & SPREAD != 0, values, source)?;
        if flags & UPPER_ODD == 0 {
            page[14..16].copy_from_slice(&(self.lowest as u16).to_le_bytes());
        }
        let upper = usize::from(u16_at(page, 14));
        if upper < lower || upper > special || self.contiguous == (flags & SPREAD != 0) {
            return Err(MISPLACED);
        }
        if !self.contiguous && !self.cover() {
            return Err(MISPLACED);
        }
        Ok(flags & REST != 0)
    }

    /// Fills in line pointers, and all of the layout that follows from them, as [`Layout::read`] would.
    fn restore_pointers(
        &mut self,
        page: &mut [u8; PAGE_SIZE],
        spread: bool,
        values: &mut Vec<u32>,
        source: &mut Source<'_>,
    ) -> Result<(), Error> {
        let (words, _) = page[HEADER_BYTES..self.lower].as_chunks_mut::<4>();
        restore_states(words, values, source)?;
        let Layout { lengths, .. } = self;
        resize(lengths, words.len());
        match column::constant(source)? {
            Some(len) => lengths.fill(len & 0x7fff),
            None => {
                column::read_all(source, lengths)?;
                lengths.iter_mut().for_each(|len| *len &= 0x7fff);
            }
        }
        for (slot, len) in words.iter_mut().zip(lengths.iter()) {
            *slot = (word(slot) | len << 17).to_le_bytes();
        }
        let all = lengths.iter().fold(true, |all, len| all & (*len != 0));
        if !all {
            lengths.retain(|len| *len != 0);
            resize(values, words.len() - lengths.len());
            column::read_all(source, values)?;
            let empty = words.iter_mut().filter(|slot| word(slot) >> 17 == 0);
            for (slot, &at) in empty.zip(values.iter()) {
                *slot = (word(slot) | at & 0x7fff).to_le_bytes();
            }
        }
        self.restore_places(spread, values, source)?;
        self.cells.resize(self.lengths.len(), Cell::default());
        let mut cells = self.cells.iter_mut().zip(&self.lengths).zip(&values[..]);
        for (pointer, slot) in words.iter_mut().enumerate() {
            if !all && word(slot) >> 17 == 0 {
                continue;
            }
            if let Some(((cell, &len), &at)) = cells.next() {
                *slot = (word(slot) | at).to_le_bytes();
                *cell = Cell::new(at as u16, len as u16, pointer as u16);
            }
        }
        Ok(())
    }

    /// Where cells of these lengths begin, and what is true of all of them.
    fn restore_places(
        &mut self,
        spread: bool,
        values: &mut Vec<u32>,
        source: &mut Source<'_>,
    ) -> Result<(), Error> {
        let (lengths, special) = (&self.lengths[..], self.special as u32);
        let ranked = spread && source.head_byte()? != 0;
        if spread && lengths.is_empty() {
            return Err(MISPLACED);
        }
        resize(values, lengths.len());
        let round = |len: u32| (len + 7) & !7;
        if spread {
            column::read_all(source, values)?;
        }
        let mut at = special;
        match (spread, ranked) {
            (true, true) => values.iter_mut().for_each(|value| *value = special.wrapping_sub(*value << 3)),
            (true, false) => values.iter_mut().zip(lengths).for_each(|(value, len)| {
                at = at.wrapping_sub(round(*len)).wrapping_sub(*value << 3);
                *value = at;
            }),
            _ => values.iter_mut().zip(lengths).for_each(|(value, len)| {
                at = at.wrapping_sub(round(*len));
                *value = at;
            }),
        }
        let (mut lowest, mut highest, mut beyond) = (special, 0, 0);
        let (mut shortest, mut longest, mut apart) = (u32::MAX, 0, 0);
        let mut below = special;
        for (&at, &len) in values.iter().zip(lengths) {
            let end = at.wrapping_add(round(len));
            (lowest, highest) = (lowest.min(at), highest.max(end));
            beyond |= at;
            (shortest, longest) = (shortest.min(len), longest.max(len));
            apart |= end ^ below;
            below = at;
        }
        if beyond > PAGE_SIZE as u32 || highest > special || lowest < self.lower as u32 || special % 8 != 0 {
            return Err(MISPLACED);
        }
        (self.lowest, self.shortest) = (lowest as usize, shortest.min(u16::MAX.into()) as u16);
        (self.contiguous, self.uniform, self.alike) = (apart == 0, shortest >= longest, false);
        Ok(())
    }
}

/// Fills in the states of line pointers, and zeros for the rest.
fn restore_states(
    words: &mut [[u8; 4]],
    values: &mut Vec<u32>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    match column::constant(source)? {
        Some(state) => words.fill(((state & 3) << 15).to_le_bytes()),
        None => {
            resize(values, words.len());
            column::read_all(source, values)?;
            for (slot, &state) in words.iter_mut().zip(values.iter()) {
                *slot = ((state & 3) << 15).to_le_bytes();
            }
        }
    }
    Ok(())
}

const MISPLACED: Error = Error::Corrupt { what: "places of tuples" };

/// PostgreSQL's `MAXALIGN`.
pub(super) fn aligned(len: usize) -> usize {
    len.next_multiple_of(8)
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| *word == [0; 16]) && rest.iter().all(|byte| *byte == 0)
}

pub(super) fn u16_at(page: &[u8; PAGE_SIZE], at: usize) -> u16 {
    let bytes = &page[at..at + 2];
    u16::from_le_bytes([bytes[0], bytes[1]])
}

pub(super) fn u32_at(page: &[u8; PAGE_SIZE], at: usize) -> u32 {
    let bytes = &page[at..at + 4];
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn word(bytes: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*bytes)
}

/// Puts these in the place of what is there.
pub(super) fn fill(values: &mut Vec<u32>, from: impl Iterator<Item = u32>) {
    values.clear();
    values.extend(from);
}

/// Makes room for values that are going to be overwritten.
pub(super) fn resize(values: &mut Vec<u32>, len: usize) {
    values.resize(len, 0);
}
