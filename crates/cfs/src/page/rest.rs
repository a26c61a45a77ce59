//! What is left between tuples: zeros, or what once were tuples.
//!
//! When the server compacts a page it moves tuples and leaves their old bytes behind, so the hole of a page
//! in use is full of copies, eight bytes aligned, of what is still there. They are written as copies of words
//! of the page.

use super::column::{self, Backend, NEVER};
use super::layout::{Layout, aligned, resize};
use super::streams::{Sink, Source};
use super::{Error, PAGE_SIZE};

const WORD: usize = 8;
const WORDS: usize = PAGE_SIZE / WORD;
const TABLE_BITS: u32 = 11;
/// A copy of fewer words costs about as much as the words.
const COPY_WORDS_MIN: usize = 2;
/// A run of zeros of so many words is taken without looking for better.
const LONG: usize = 8;
/// Fewer old line pointers than this are left as they are.
const POINTERS_MIN: usize = 2;

/// Copies out of what is known: literal words before, words copied, and how far from; 0 is for zeros.
#[derive(Default)]
pub(super) struct Rest {
    /// Words in gaps, ascending.
    places: Vec<u16>,
    literals: Vec<u32>,
    lengths: Vec<u32>,
    distances: Vec<u32>,
    /// One more than the place of a word with this hash.
    table: Vec<u16>,
}

impl Rest {
    /// Bytes before the first whole word, and the places of all words in gaps.
    fn find(&mut self, layout: &Layout, pointers: usize) -> (usize, usize) {
        let from = layout.lower + 4 * pointers;
        let to = from.next_multiple_of(WORD).min(layout.lowest);
        self.places.clear();
        layout.gaps(|from, to| {
            let from = if from == layout.lower { from + 4 * pointers } else { from };
            self.places.extend((from.div_ceil(WORD)..to / WORD).map(|word| word as u16));
        });
        (from, to)
    }

    /// Writes all gaps of the page. Says whether it begins with old line pointers.
    pub(super) fn write(
        &mut self,
        page: &[u8; PAGE_SIZE],
        layout: &Layout,
        backend: Backend,
        sink: &mut Sink,
    ) -> bool {
        let pointers = self.write_pointers(page, layout, backend, sink);
        let (from, to) = self.find(layout, pointers);
        sink.rows.extend_from_slice(&page[from..to]);
        self.index_cells(page, layout);
        let words = page.as_chunks::<WORD>().0;
        [&mut self.literals, &mut self.lengths, &mut self.distances].into_iter().for_each(Vec::clear);
        let (mut i, mut literals, mut last) = (0, 0, None);
        let tuple = layout.cells.last().map_or(0, |cell| aligned(cell.len.into()) / WORD);
        while i < self.places.len() {
            let place = usize::from(self.places[i]);
            let (length, distance) = self.copy_at(words, i, last, tuple);
            if length < COPY_WORDS_MIN {
                sink.rows.extend_from_slice(&words[place]);
                self.table[hash(&words[place])] = place as u16 + 1;
                (i, literals) = (i + 1, literals + 1);
                continue;
            }
            self.literals.push(literals);
            self.lengths.push(length as u32);
            self.distances.push(distance as u32);
            (i, literals) = (i + length, 0);
            if distance != 0 {
                last = Some(distance);
            }
        }
        sink.head_varint(self.lengths.len() as u32);
        if !self.lengths.is_empty() {
            column::write(&self.literals, backend, NEVER, sink);
            column::write(&self.lengths, backend, NEVER, sink);
            column::write(&self.distances, backend, NEVER, sink);
        }
        pointers > 0
    }

    /// Writes what once were line pointers, behind those that are: deletions have moved the others down.
    fn write_pointers(
        &mut self,
        page: &[u8; PAGE_SIZE],
        layout: &Layout,
        backend: Backend,
        sink: &mut Sink,
    ) -> usize {
        let words = page[layout.lower..layout.lowest].as_chunks::<4>().0.iter();
        self.literals.clear();
        self.literals.extend(words.map(|word| u32::from_le_bytes(*word)).take_while(|word| {
            let (at, len) = ((word & 0x7fff) as usize, (word >> 17) as usize);
            len > 0 && at.is_multiple_of(8) && at >= layout.lower && at + len <= layout.special
        }));
        let count = self.literals.len();
        if count < POINTERS_MIN {
            return 0;
        }
        sink.head_varint(count as u32);
        self.lengths.clear();
        self.lengths.extend(self.literals.iter().map(|word| word >> 15));
        column::write(&self.lengths, backend, NEVER, sink);
        self.literals.iter_mut().for_each(|word| *word &= 0x7fff);
        column::write(&self.literals, backend, NEVER, sink);
        count
    }

    /// The inverse of [`Rest::write_pointers`].
    fn read_pointers(
        &mut self,
        page: &mut [u8; PAGE_SIZE],
        layout: &Layout,
        source: &mut Source<'_>,
    ) -> Result<usize, Error> {
        let count = source.head_varint()? as usize;
        let slots = page[layout.lower..layout.lowest].as_chunks_mut::<4>().0.get_mut(..count);
        let slots = slots.filter(|slots| !slots.is_empty()).ok_or(MISFIT)?;
        resize(&mut self.lengths, count);
        column::read(source, &mut self.lengths)?;
        resize(&mut self.literals, count);
        column::read(source, &mut self.literals)?;
        for ((slot, high), low) in slots.iter_mut().zip(&self.lengths).zip(&self.literals) {
            *slot = (high << 15 | low & 0x7fff).to_le_bytes();
        }
        Ok(count)
    }

    fn index_cells(&mut self, page: &[u8; PAGE_SIZE], layout: &Layout) {
        self.table.clear();
        self.table.resize(1 << TABLE_BITS, 0);
        let words = page.as_chunks::<WORD>().0;
        for cell in &layout.cells {
            let from = usize::from(cell.at) / WORD;
            for (i, word) in words[from..].iter().take(usize::from(cell.len).div_ceil(WORD)).enumerate() {
                self.table[hash(word)] = (from + i) as u16 + 1;
            }
        }
    }

    /// How many of the words from `i` on can be copied, and from how far.
    fn copy_at(&self, words: &[[u8; WORD]], i: usize, last: Option<i32>, tuple: usize) -> (usize, i32) {
        let rest = &self.places[i..];
        let zeros = rest.iter().take_while(|place| words[usize::from(**place)] == [0; WORD]).count();
        let place = usize::from(rest[0]);
        if zeros >= LONG {
            return (zeros, 0);
        }
        let hashed = usize::from(self.table[hash(&words[place])]).checked_sub(1);
        // Going on where the last copy was from, and the tuple directly below.
        let place_i = place as i32;
        let near = [last.map_or(place_i, |last| place_i + last), place_i - tuple as i32, place_i - 2];
        let near = near.into_iter().filter_map(|source| usize::try_from(source).ok());
        let mut best = (zeros, 0);
        for source in near.chain(hashed).filter(|source| *source < WORDS && *source != place) {
            // A gap above is not known yet when this is copied; cells and gaps below are.
            let known = |source: usize, to: u16| {
                source < usize::from(to) || self.places.binary_search(&(source as u16)).is_err()
            };
            let same = |(k, to): &(usize, &u16)| {
                source + k < WORDS && words[source + k] == words[usize::from(**to)] && known(source + k, **to)
            };
            let length = rest.iter().enumerate().take_while(same).count();
            if length > best.0 {
                best = (length, source as i32 - place as i32);
            }
        }
        best
    }

    /// The inverse of [`Rest::write`], once all tuples are restored.
    pub(super) fn read(
        &mut self,
        page: &mut [u8; PAGE_SIZE],
        layout: &Layout,
        with_pointers: bool,
        source: &mut Source<'_>,
    ) -> Result<(), Error> {
        let pointers = if with_pointers { self.read_pointers(page, layout, source)? } else { 0 };
        let (from, to) = self.find(layout, pointers);
        page[from..to].copy_from_slice(source.rows(to - from)?);
        let count = source.head_varint()? as usize;
        if count > self.places.len() {
            return Err(MISFIT);
        }
        for column in [&mut self.literals, &mut self.lengths, &mut self.distances] {
            resize(column, count);
            if count > 0 {
                column::read_all(source, column)?;
            }
        }
        let mut places = self.places.iter().map(|&place| usize::from(place));
        let words = page.as_chunks_mut::<WORD>().0;
        for i in 0..count {
            for _ in 0..self.literals[i] {
                words[places.next().ok_or(MISFIT)?].copy_from_slice(source.rows(WORD)?);
            }
            let distance = self.distances[i] as i32;
            let mut from = None;
            for _ in 0..self.lengths[i] {
                let to = places.next().ok_or(MISFIT)?;
                if distance != 0 {
                    let word = *from.get_or_insert((to as i32).wrapping_add(distance));
                    words[to] = *usize::try_from(word).ok().and_then(|word| words.get(word)).ok_or(MISFIT)?;
                    from = Some(word + 1);
                }
            }
        }
        for place in places {
            words[place].copy_from_slice(source.rows(WORD)?);
        }
        Ok(())
    }
}

const MISFIT: Error = Error::Corrupt { what: "copies beyond the hole" };

fn hash(word: &[u8; WORD]) -> usize {
    (u64::from_le_bytes(*word).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TABLE_BITS)) as usize
}
