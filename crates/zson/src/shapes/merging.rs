//! Phrases by merging: the pair of neighbours that is met most often becomes one, again and again.
//!
//! Every place of the samples is part of one phrase at a time, so that texts of one form grow together instead of
//! being cut in many ways. In the end a phrase stays if it saves more than it takes: otherwise its places go to the two that
//! it was made of.
//!
//! A merge makes all pairs that its new symbol is part of, and from then on they only get rarer. So the places of a pair
//! are listed once, and a pair that is rare when it is made needs no list.
//!
//! After "Neural Machine Translation of Rare Words with Subword Units" (Sennrich, Haddow, Birch, 2016), with a heap and
//! lists of places as in "A Formal Perspective on Byte-Pair Encoding" (Zouhar and others, 2023).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cutting::sized;
use super::pace::Pace;
use super::phrases::{PHRASE_BYTES_MAX, PHRASES_MAX};
use crate::error::Error;
use crate::memory;

/// A pair is merged if it is met so often.
const PLACES_MIN: u32 = 4;
/// Merges at most.
const MERGES_MAX: usize = 1 << 17;
/// Symbols of single bytes come first.
const BYTES: u32 = 256;
/// No symbol, no place, no pair.
const NONE: u32 = u32::MAX;
/// What a byte of a dictionary saves at least and at most of the samples, in parts of [`GAIN_UNITS`] of a quarter of a byte.
const GAIN_MIN: usize = 28;
const GAIN_MAX: usize = GAIN_UNITS << 20;
pub(super) const GAIN_UNITS: usize = 16;
/// What a merge, and a place of it, are as work: a place is a few looks at memory that is not at hand.
const MERGE_WORK: usize = 8;
const PLACE_WORK: usize = 4;

/// A phrase and how often it is met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) phrase: Vec<u8>,
    pub(super) count: usize,
}

/// All phrases that were found, of which some are chosen.
#[derive(Clone, Default, Debug)]
pub(super) struct Merged {
    /// What symbols behind those of bytes were made of, and how long they are.
    parts: Vec<Pair>,
    lengths: Vec<u32>,
    /// How often symbols are met in the end.
    uses: Vec<u32>,
}

/// Merges what is met often in these texts, of less than 1 GB in all.
pub(super) fn merged(texts: &[&[u8]], pace: &mut Pace<'_>) -> Result<Merged, Error> {
    let mut merging = Merging::of(texts, pace)?;
    merging.run(pace)?;
    merging.done(pace)
}

type Pair = (u32, u32);

struct Merging {
    places: Vec<Place>,
    known: Vec<Known>,
    /// Where pairs were met, in ascending order for each; some places may be others' by now.
    lists: Vec<u32>,
    /// Known pairs, each once; a count may be too high.
    heap: BinaryHeap<(u32, Reverse<Pair>, u32)>,
    parts: Vec<Pair>,
    lengths: Vec<u32>,
    lefts: Groups,
    rights: Groups,
}

/// A byte of the texts, or what is between two of them.
#[derive(Copy, Clone)]
struct Place {
    /// None between texts, and where one to the left has taken the place.
    symbol: u32,
    /// Where the next symbol is, and the one before.
    next: u32,
    previous: u32,
    /// The known pair that begins here.
    pair: u32,
}

/// A pair that was met often when it was made.
#[derive(Copy, Clone)]
struct Known {
    pair: Pair,
    count: u32,
    /// Its part of `lists`.
    start: u32,
    length: u32,
}

/// Places by the symbol beside them.
#[derive(Default)]
struct Groups {
    /// By symbol: its place in `all`, if that is its.
    of_symbol: Vec<u32>,
    all: Vec<Group>,
}

struct Group {
    symbol: u32,
    count: u32,
    /// Its known pair.
    pair: u32,
}

impl Groups {
    fn of(&self, symbol: u32) -> Option<usize> {
        let at = *self.of_symbol.get(symbol as usize)? as usize;
        self.all.get(at).is_some_and(|group| group.symbol == symbol).then_some(at)
    }

    fn count(&mut self, symbol: u32) -> Result<(), Error> {
        match self.of(symbol) {
            Some(at) => self.all[at].count += 1,
            None => {
                self.of_symbol[symbol as usize] = self.all.len() as u32;
                memory::push(&mut self.all, Group { symbol, count: 1, pair: NONE })?;
            }
        }
        Ok(())
    }
}

impl Merging {
    fn of(texts: &[&[u8]], pace: &mut Pace<'_>) -> Result<Merging, Error> {
        let total: usize = texts.iter().map(|text| text.len() + 1).sum();
        let mut merging = Merging {
            places: Vec::new(),
            known: Vec::new(),
            lists: Vec::new(),
            heap: BinaryHeap::new(),
            parts: Vec::new(),
            lengths: Vec::new(),
            lefts: Groups::default(),
            rights: Groups::default(),
        };
        memory::reserve_exact(&mut merging.places, total)?;
        for text in texts {
            pace.work(text.len())?;
            let symbols = text.iter().map(|byte| u32::from(*byte)).chain([NONE]);
            for symbol in symbols {
                let at = merging.places.len() as u32;
                let place = Place { symbol, next: at + 1, previous: at.wrapping_sub(1), pair: NONE };
                merging.places.push(place);
            }
        }
        for groups in [&mut merging.lefts, &mut merging.rights] {
            memory::resize(&mut groups.of_symbol, BYTES as usize, NONE)?;
        }
        merging.bytes(pace)?;
        Ok(merging)
    }

    /// Lists the pairs of bytes.
    fn bytes(&mut self, pace: &mut Pace<'_>) -> Result<(), Error> {
        let all = (BYTES * BYTES) as usize;
        let (mut counts, mut pairs) = (Vec::new(), Vec::new());
        memory::resize(&mut counts, all, 0u32)?;
        memory::resize(&mut pairs, all, NONE)?;
        let number = |pair: &[Place]| match (pair[0].symbol, pair[1].symbol) {
            (NONE, _) | (_, NONE) => None,
            (left, right) => Some((left * BYTES + right) as usize),
        };
        for pair in self.places.windows(2).filter_map(number) {
            counts[pair] += 1;
        }
        pace.work(self.places.len())?;
        for (number, count) in (0..).zip(counts) {
            pairs[number as usize] = self.know((number / BYTES, number % BYTES), count)?;
        }
        for at in 0..self.places.len().saturating_sub(1) {
            if at % (1 << 16) == 0 {
                pace.work(1 << 16)?;
            }
            if let Some(pair) = number(&self.places[at..at + 2]) {
                self.list(pairs[pair], at as u32);
            }
        }
        Ok(())
    }

    /// Makes room for the places of a pair; its number. None if it is rare.
    fn know(&mut self, pair: Pair, count: u32) -> Result<u32, Error> {
        if count < PLACES_MIN {
            return Ok(NONE);
        }
        let (index, start) = (self.known.len() as u32, self.lists.len());
        memory::resize(&mut self.lists, start + count as usize, NONE)?;
        memory::push(&mut self.known, Known { pair, count, start: start as u32, length: 0 })?;
        if self.heap.len() == self.heap.capacity() {
            self.heap.try_reserve(1).map_err(|_| memory::lacking::<Known>(self.heap.len() + 1))?;
        }
        self.heap.push((count, Reverse(pair), index));
        Ok(index)
    }

    /// A pair begins at a place.
    fn list(&mut self, pair: u32, at: u32) {
        if let Some(known) = self.known.get_mut(pair as usize) {
            self.lists[(known.start + known.length) as usize] = at;
            known.length += 1;
            self.places[at as usize].pair = pair;
        }
    }

    /// The pair that begins at a place ends.
    fn part(&mut self, at: u32) {
        let Some(place) = self.places.get_mut(at as usize) else { return };
        let pair = std::mem::replace(&mut place.pair, NONE);
        if let Some(known) = self.known.get_mut(pair as usize) {
            known.count -= 1;
        }
    }

    fn symbol(&self, at: u32) -> u32 {
        self.places.get(at as usize).map_or(NONE, |place| place.symbol)
    }

    fn length(&self, symbol: u32) -> u32 {
        symbol.checked_sub(BYTES).map_or(1, |at| self.lengths[at as usize])
    }

    fn run(&mut self, pace: &mut Pace<'_>) -> Result<(), Error> {
        while self.parts.len() < MERGES_MAX {
            let Some((count, pair, index)) = self.heap.pop() else { break };
            let now = self.known[index as usize].count;
            if now < PLACES_MIN {
                continue;
            }
            if now != count {
                // There is room: it was there before.
                self.heap.push((now, pair, index));
                continue;
            }
            let length = self.length(pair.0.0) + self.length(pair.0.1);
            if length as usize <= PHRASE_BYTES_MAX {
                self.merge(index, length, pace)?;
            }
        }
        Ok(())
    }

    fn merge(&mut self, index: u32, length: u32, pace: &mut Pace<'_>) -> Result<(), Error> {
        let symbol = BYTES + self.parts.len() as u32;
        let Known { pair, start, length: listed, .. } = self.known[index as usize];
        memory::push(&mut self.parts, pair)?;
        memory::push(&mut self.lengths, length)?;
        memory::push(&mut self.lefts.of_symbol, NONE)?;
        memory::push(&mut self.rights.of_symbol, NONE)?;
        pace.work(MERGE_WORK)?;
        // The places where it is still: the first ones of its list from now on.
        let mut end = start;
        for listed in start..start + listed {
            let at = self.lists[listed as usize];
            if self.places[at as usize].pair == index {
                self.replace(at, symbol);
                self.lists[end as usize] = at;
                end += 1;
            }
        }
        self.beside(symbol, start, end, pace)
    }

    /// Makes one of the pair that begins at a place.
    fn replace(&mut self, at: u32, symbol: u32) {
        let Place { next: right, previous, .. } = self.places[at as usize];
        self.part(previous);
        self.part(right);
        let taken = &mut self.places[right as usize];
        taken.symbol = NONE;
        let next = taken.next;
        self.places[at as usize] = Place { symbol, next, previous, pair: NONE };
        if let Some(behind) = self.places.get_mut(next as usize) {
            behind.previous = at;
        }
    }

    /// Lists the pairs of a new symbol, whose places are this part of `lists`.
    fn beside(&mut self, symbol: u32, start: u32, end: u32, pace: &mut Pace<'_>) -> Result<(), Error> {
        self.lefts.all.clear();
        self.rights.all.clear();
        for listed in start..end {
            pace.work(PLACE_WORK)?;
            let place = self.places[self.lists[listed as usize] as usize];
            let (left, right) = (self.symbol(place.previous), self.symbol(place.next));
            // Two new ones beside each other are a pair of the first one.
            if left != NONE && left != symbol {
                self.lefts.count(left)?;
            }
            if right != NONE {
                self.rights.count(right)?;
            }
        }
        for at in 0..self.lefts.all.len() {
            let Group { symbol: left, count, .. } = self.lefts.all[at];
            self.lefts.all[at].pair = self.know((left, symbol), count)?;
        }
        for at in 0..self.rights.all.len() {
            let Group { symbol: right, count, .. } = self.rights.all[at];
            self.rights.all[at].pair = self.know((symbol, right), count)?;
        }
        for listed in start..end {
            let at = self.lists[listed as usize];
            let place = self.places[at as usize];
            let (left, right) = (self.symbol(place.previous), self.symbol(place.next));
            if left != symbol
                && let Some(group) = self.lefts.of(left)
            {
                self.list(self.lefts.all[group].pair, place.previous);
            }
            if let Some(group) = self.rights.of(right) {
                self.list(self.rights.all[group].pair, at);
            }
        }
        Ok(())
    }

    fn done(self, pace: &mut Pace<'_>) -> Result<Merged, Error> {
        let mut uses = Vec::new();
        memory::resize(&mut uses, BYTES as usize + self.parts.len(), 0)?;
        // What a merge has taken is `NONE`, like the ends of texts.
        for place in self.places.iter().filter(|place| place.symbol != NONE) {
            uses[place.symbol as usize] += 1;
        }
        pace.work(self.places.len())?;
        Ok(Merged { parts: self.parts, lengths: self.lengths, uses })
    }
}

impl Merged {
    /// The most useful phrases, of at most `bytes_max` bytes with their lengths, the most frequent first.
    pub(super) fn chosen(&self, bytes_max: usize, pace: &mut Pace<'_>) -> Result<Vec<Found>, Error> {
        let (mut low, mut high) = (GAIN_MIN, GAIN_MAX);
        let (mut uses, mut kept) = (Vec::new(), Vec::new());
        while low < high {
            let middle = low + (high - low) / 2;
            self.keep(middle, &mut uses, &mut kept)?;
            pace.work(self.uses.len())?;
            let bytes: usize = kept.iter().map(|(symbol, _)| self.sized(*symbol)).sum();
            if bytes <= bytes_max && kept.len() <= PHRASES_MAX {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.keep(low, &mut uses, &mut kept)?;
        let (mut found, mut left) = (Vec::new(), bytes_max);
        for (symbol, count) in &kept {
            let Some(after) = left.checked_sub(self.sized(*symbol)) else { continue };
            left = after;
            let mut phrase = Vec::new();
            memory::reserve_exact(&mut phrase, self.length(*symbol) as usize)?;
            self.spell(*symbol, &mut phrase);
            memory::push(&mut found, Found { phrase, count: *count as usize })?;
        }
        found.sort_unstable_by(|left, right| (right.count, &left.phrase).cmp(&(left.count, &right.phrase)));
        Ok(found)
    }

    /// Bytes of those that save so much for each of their own.
    pub(super) fn size(&self, gain: usize, pace: &mut Pace<'_>) -> Result<usize, Error> {
        let (mut uses, mut kept) = (Vec::new(), Vec::new());
        pace.work(self.uses.len())?;
        self.keep(gain.clamp(GAIN_MIN, GAIN_MAX), &mut uses, &mut kept)?;
        Ok(kept.iter().map(|(symbol, _)| self.sized(*symbol)).sum())
    }

    fn length(&self, symbol: u32) -> u32 {
        symbol.checked_sub(BYTES).map_or(1, |at| self.lengths[at as usize])
    }

    /// Bytes that a symbol takes as a phrase of a dictionary.
    fn sized(&self, symbol: u32) -> usize {
        sized(self.length(symbol) as usize)
    }

    /// Symbols that save so many bytes for each of their own, and how often they are then met.
    fn keep(&self, gain: usize, uses: &mut Vec<u32>, kept: &mut Vec<(u32, u32)>) -> Result<(), Error> {
        uses.clear();
        memory::reserve(uses, self.uses.len())?;
        uses.extend_from_slice(&self.uses);
        kept.clear();
        for at in (0..self.parts.len()).rev() {
            let symbol = BYTES + at as u32;
            let count = uses[symbol as usize];
            // A code instead of two.
            let saved = count as usize * 6 * GAIN_UNITS;
            if saved >= gain * (self.lengths[at] as usize + 1) && count > 0 {
                memory::push(kept, (symbol, count))?;
                continue;
            }
            let (left, right) = self.parts[at];
            uses[left as usize] += count;
            uses[right as usize] += count;
        }
        for byte in (0..BYTES).filter(|byte| uses[*byte as usize] as usize * GAIN_UNITS >= gain) {
            memory::push(kept, (byte, uses[byte as usize]))?;
        }
        Ok(())
    }

    /// The bytes of a symbol; there is room for them.
    fn spell(&self, symbol: u32, phrase: &mut Vec<u8>) {
        match symbol.checked_sub(BYTES) {
            None => phrase.push(symbol as u8),
            Some(at) => {
                let (left, right) = self.parts[at as usize];
                self.spell(left, phrase);
                self.spell(right, phrase);
            }
        }
    }
}
