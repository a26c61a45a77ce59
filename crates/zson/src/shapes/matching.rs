//! Texts into codes of phrases: the longest phrase that fits, again and again.
//!
//! Phrases are in a tree of steps of up to eight bytes, which are compared at once. Lists of the first step are found by the
//! hash of four bytes, and what is shorter has tables of its own.
//!
//! ```text
//!  first four bytes ─ hash ─► list of entries        each: up to eight bytes, and the phrase that ends there or before
//!                             ├ "Microsof" ────► list of what may follow
//!                             ├ "Micros"
//!                             └ "Micr"               the first that fits is the longest that does
//! ```
//! An entry that fits is never gone back from: it knows the longest phrase that the bytes up to it begin with, and that is
//! what is found if nothing behind it fits.

use std::ops::Range;

use super::phrases::{Code, PHRASE_BYTES_MAX, PHRASES_MAX, Phrases};
use crate::error::Error;
use crate::memory;

/// Finds the longest phrase at a place of a text.
#[derive(Clone, Default, Debug)]
pub(super) struct Matcher {
    /// By the hash of four bytes: where a list begins in `entries`, and above that a part of the hash that is not used to
    /// find the place. [`NO_LIST`] is in at least a half.
    starts: Vec<u32>,
    /// Lists, one after the other.
    entries: Vec<Entry>,
    /// Phrases of three bytes, by their hash, in a table of which at least a half is empty.
    threes: Vec<Three>,
    /// By two bytes: the longest phrase that they begin with.
    twos: Vec<Match>,
    /// By a byte.
    ones: Vec<Match>,
}

/// A step.
#[derive(Copy, Clone, Debug)]
struct Entry {
    /// Its bytes, the first one lowest; zeros behind.
    head: u64,
    /// Where the list of what may follow begins, if there is one; above it, how many bits of `head` are not used; and the
    /// highest bit says that this is the list's last entry.
    behind: u32,
    /// The longest phrase that the bytes so far begin with.
    found: Match,
}

/// What is found for a place of a text.
#[derive(Copy, Clone, Debug)]
struct Match {
    code: Code,
    /// Bytes of the text that it stands for.
    length: u8,
}

/// Three bytes, and the phrase of these; no bytes: nothing.
#[derive(Copy, Clone, Debug)]
struct Three {
    bytes: u32,
    found: Match,
}

/// Bytes of a step, and those that find a list.
const STEP: usize = 8;
const FIRST: usize = 4;
/// Bits of an index of `entries`, all of them if there is none; and of the part of a hash that is above them.
const START_BITS: u32 = 20;
const START_MASK: u32 = (1 << START_BITS) - 1;
const TAG_BITS: u32 = u32::BITS - START_BITS;
const NO_LIST: u32 = u32::MAX;
/// Bits that are not used are eights: 0 to 56.
const UNUSED_MASK: u32 = 56;
const IS_LAST: u32 = 1 << 31;
/// In a table of three bytes: a place is taken.
const IS_THREE: u32 = 1 << 24;
/// Steps of eight bytes, those that are shorter, and what else begins with four bytes.
const ENTRIES_MAX: usize = PHRASES_MAX * PHRASE_BYTES_MAX / STEP + 2 * PHRASES_MAX;
const _: () = assert!(ENTRIES_MAX < START_MASK as usize && size_of::<Entry>() == 16);

impl Matcher {
    /// Of these phrases.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn new(phrases: &Phrases) -> Result<Matcher, Error> {
        let mut matcher = Matcher::default();
        let sorted = Sorted::of(phrases)?;
        memory::reserve_exact(&mut matcher.ones, 1 << 8)?;
        matcher.ones.extend((0..=u8::MAX).map(Match::byte));
        let of_length = |length| sorted.all.iter().filter(move |phrase| phrase.bytes.len() == length);
        for phrase in of_length(1) {
            matcher.ones[usize::from(phrase.bytes[0])] = phrase.found;
        }
        memory::reserve_exact(&mut matcher.twos, 1 << 16)?;
        matcher.twos.extend((0..=u16::MAX).map(|two| matcher.ones[usize::from(two as u8)]));
        for phrase in of_length(2) {
            matcher.twos[head_of(phrase.bytes) as usize] = phrase.found;
        }
        let none = Three { bytes: 0, found: Match::byte(0) };
        memory::resize(&mut matcher.threes, (2 * of_length(3).count()).next_power_of_two(), none)?;
        for phrase in of_length(3) {
            matcher.add_three(head_of(phrase.bytes) as u32 | IS_THREE, phrase.found);
        }
        matcher.lists(&sorted)?;
        memory::shrink(&mut matcher.entries);
        Ok(matcher)
    }

    /// Bytes of memory.
    pub(super) fn memory_size(&self) -> usize {
        self.starts.capacity() * size_of::<u32>()
            + self.entries.capacity() * size_of::<Entry>()
            + self.threes.capacity() * size_of::<Three>()
            + (self.twos.capacity() + self.ones.capacity()) * size_of::<Match>()
    }

    fn add_three(&mut self, bytes: u32, found: Match) {
        let mut at = self.place_of_three(bytes);
        while self.threes[at].bytes != 0 {
            at = (at + 1) & (self.threes.len() - 1);
        }
        self.threes[at] = Three { bytes, found };
    }

    /// Where to look for three bytes.
    #[inline]
    fn place_of_three(&self, bytes: u32) -> usize {
        (bytes.wrapping_mul(0x9e37_79b1) >> 16) as usize & self.threes.len().wrapping_sub(1)
    }

    /// Makes the lists.
    fn lists(&mut self, sorted: &Sorted<'_>) -> Result<(), Error> {
        let (mut groups, mut open, mut at) = (Vec::new(), Vec::new(), 0);
        for group in sorted.all.chunk_by(|left, right| left.first() == right.first()) {
            if let (Some(first), Some(least)) = (group[0].first(), group.iter().map(|of| of.index).min()) {
                memory::push(&mut groups, (least, first, at..at + group.len()))?;
            }
            at += group.len();
        }
        // What is met often is together.
        groups.sort_unstable_by_key(|(least, ..)| *least);
        memory::resize(&mut self.starts, (2 * groups.len()).next_power_of_two(), NO_LIST)?;
        for (_, first, phrases) in groups {
            self.add_list(first);
            let group = &sorted.all[phrases.start];
            self.list(sorted, phrases, 0, &mut open)?;
            if group.bytes.len() > FIRST {
                // Whatever else begins with these four bytes.
                memory::push(&mut self.entries, Entry::new(&group.bytes[..FIRST], group.parent))?;
            }
            self.end_list();
            while let Some(Open { entry, phrases, done }) = open.pop() {
                self.entries[entry].behind &= self.entries.len() as u32 | !START_MASK;
                self.list(sorted, phrases, done, &mut open)?;
                self.end_list();
            }
        }
        Ok(())
    }

    /// The list of texts that begin with these bytes comes next.
    fn add_list(&mut self, first: u32) {
        let (mut at, tag) = self.place_of_list(first);
        while self.starts[at] != NO_LIST {
            at = (at + 1) & (self.starts.len() - 1);
        }
        self.starts[at] = self.entries.len() as u32 | tag << START_BITS;
    }

    /// Where to look for a list, and the part of the hash that is there.
    #[inline]
    fn place_of_list(&self, first: u32) -> (usize, u32) {
        let hash = u64::from(first).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let tag = (hash >> 32) as u32 & ((1 << TAG_BITS) - 1);
        ((hash >> (32 + TAG_BITS)) as usize & self.starts.len().wrapping_sub(1), tag)
    }

    /// Appends the entries of these phrases, whose first `done` bytes are the same; of steps that others follow, it remembers
    /// which.
    fn list(
        &mut self,
        sorted: &Sorted<'_>,
        phrases: Range<usize>,
        done: usize,
        open: &mut Vec<Open>,
    ) -> Result<(), Error> {
        for Step { bytes, found, behind, .. } in steps(&sorted.all[phrases.clone()], done)? {
            if !behind.is_empty() {
                let phrases = phrases.start + behind.start..phrases.start + behind.end;
                memory::push(open, Open { entry: self.entries.len(), phrases, done: done + STEP })?;
            }
            memory::push(&mut self.entries, Entry::new(bytes, found))?;
        }
        Ok(())
    }

    fn end_list(&mut self) {
        if let Some(last) = self.entries.last_mut() {
            last.behind |= IS_LAST;
        }
    }

    /// The longest phrase that a text begins with, which has at least a byte.
    #[inline]
    fn longest(&self, text: &[u8]) -> Match {
        let head = head_of(text);
        if text.len() >= FIRST
            && let Some(found) = self.listed(text, head)
        {
            return found;
        }
        if text.len() >= 3
            && let Some(found) = self.three(head as u32 & (IS_THREE - 1) | IS_THREE)
        {
            return found;
        }
        let table = if text.len() >= 2 { &self.twos[..] } else { &self.ones[..] };
        table.get(usize::from(head as u16)).copied().unwrap_or(Match::byte(head as u8))
    }

    /// The longest phrase that a text begins with, by the list of its first four bytes. None: there is none.
    #[inline]
    fn listed(&self, text: &[u8], head: u64) -> Option<Match> {
        let (mut at, tag) = self.place_of_list(head as u32);
        loop {
            let start = *self.starts.get(at)?;
            if start == NO_LIST {
                return None;
            }
            if start >> START_BITS == tag {
                let found = self.in_list(start & START_MASK, text, head);
                if found.is_some() {
                    return found;
                }
            }
            at = (at + 1) & (self.starts.len() - 1);
        }
    }

    /// The longest phrase that a text begins with, by this list. None: it is of other bytes.
    #[inline]
    fn in_list(&self, start: u32, text: &[u8], mut head: u64) -> Option<Match> {
        let (mut at, mut done, mut best) = (start as usize, 0, None);
        loop {
            let Some(entry) = self.entries.get(at) else { return best };
            let unused = entry.behind >> START_BITS & UNUSED_MASK;
            if (entry.head ^ head) << unused == 0 && done + STEP - (unused / 8) as usize <= text.len() {
                best = Some(entry.found);
                let behind = entry.behind & START_MASK;
                if behind == START_MASK {
                    return best;
                }
                (at, done) = (behind as usize, done + STEP);
                head = head_of(&text[done..]);
            } else if entry.behind & IS_LAST != 0 {
                return best;
            } else {
                at += 1;
            }
        }
    }

    #[inline]
    fn three(&self, bytes: u32) -> Option<Match> {
        let mut at = self.place_of_three(bytes);
        loop {
            match self.threes.get(at)? {
                Three { bytes: 0, .. } => return None,
                three if three.bytes == bytes => return Some(three.found),
                _ => at = (at + 1) & (self.threes.len() - 1),
            }
        }
    }

    /// Appends the codes of a text, at most twice its bytes.
    pub(super) fn encode(&self, text: &[u8], codes: &mut Vec<u8>) {
        self.each(text, |code| {
            codes.extend_from_slice(&code.bytes());
            codes.truncate(codes.len() + code.length() - code.bytes().len());
        });
    }

    /// Gives each code of a text.
    #[inline]
    pub(super) fn each(&self, text: &[u8], mut take: impl FnMut(Code)) {
        let mut rest = text;
        while !rest.is_empty() {
            let found = self.longest(rest);
            take(found.code);
            rest = &rest[usize::from(found.length)..];
        }
    }
}

/// The first eight bytes, with zeros behind a shorter text.
#[inline]
fn head_of(text: &[u8]) -> u64 {
    match text.first_chunk::<STEP>() {
        Some(head) => u64::from_le_bytes(*head),
        None => text.iter().rev().fold(0, |head, byte| head << 8 | u64::from(*byte)),
    }
}

impl Entry {
    fn new(bytes: &[u8], found: Match) -> Entry {
        let unused = 8 * (STEP - bytes.len()) as u32;
        Entry { head: head_of(bytes), behind: START_MASK | unused << START_BITS, found }
    }
}

impl Match {
    /// A byte that is no phrase.
    fn byte(byte: u8) -> Match {
        Match { code: Code::of_byte(byte), length: 1 }
    }
}

/// An entry that will be.
struct Step<'p> {
    bytes: &'p [u8],
    /// Low for what is met often.
    rank: u16,
    found: Match,
    /// Phrases that go on.
    behind: Range<usize>,
}

/// The steps of phrases whose first `done` bytes are the same, in an order in which the first that fits is the longest.
/// Within that, what is met often comes first.
fn steps<'p>(phrases: &'p [Phrase<'p>], done: usize) -> Result<Vec<Step<'p>>, Error> {
    let (mut steps, mut at) = (Vec::new(), 0);
    while let Some(first) = phrases.get(at) {
        let start = at;
        let bytes = &first.bytes[done..first.bytes.len().min(done + STEP)];
        let is_phrase = first.bytes.len() == done + bytes.len();
        let mut rank = first.index;
        at += 1;
        if bytes.len() == STEP {
            while let Some(next) = phrases.get(at).filter(|next| next.bytes[done..].starts_with(bytes)) {
                rank = rank.min(next.index);
                at += 1;
            }
        }
        let found = if is_phrase { first.found } else { first.parent };
        memory::push(&mut steps, Step { bytes, rank, found, behind: start + usize::from(is_phrase)..at })?;
    }
    // What begins with a step comes before it.
    let mut beginnings: Vec<(&[u8], u16)> = Vec::new();
    for step in &mut steps {
        while beginnings.last().is_some_and(|(bytes, _)| !step.bytes.starts_with(bytes)) {
            beginnings.pop();
        }
        if let Some((_, rank)) = beginnings.last() {
            step.rank = step.rank.min(*rank);
        }
        memory::push(&mut beginnings, (step.bytes, step.rank))?;
    }
    steps.sort_unstable_by_key(|step| (step.rank, std::cmp::Reverse(step.bytes.len()), step.bytes));
    Ok(steps)
}

/// An entry that others follow, whose list is to be made.
struct Open {
    entry: usize,
    /// Of those that are sorted.
    phrases: Range<usize>,
    done: usize,
}

/// Phrases in the order of their bytes, each once.
struct Sorted<'p> {
    all: Vec<Phrase<'p>>,
}

struct Phrase<'p> {
    bytes: &'p [u8],
    index: u16,
    found: Match,
    /// The longest shorter one that it begins with.
    parent: Match,
}

impl Phrase<'_> {
    fn first(&self) -> Option<u32> {
        self.bytes.first_chunk::<FIRST>().map(|first| u32::from_le_bytes(*first))
    }
}

impl<'p> Sorted<'p> {
    fn of(phrases: &'p Phrases) -> Result<Sorted<'p>, Error> {
        let phrase = |(index, bytes): (u16, &'p [u8])| {
            let found = Match { code: Code::of_phrase(index), length: bytes.len() as u8 };
            Phrase { bytes, index, found, parent: Match::byte(bytes[0]) }
        };
        let mut all = memory::collect((0..).zip(phrases.iter()).map(phrase))?;
        all.sort_unstable_by_key(|phrase| (phrase.bytes, phrase.index));
        all.dedup_by_key(|phrase| phrase.bytes);
        // Each one begins with the one before.
        let mut parents: Vec<(&[u8], Match)> = Vec::new();
        for phrase in &mut all {
            while parents.last().is_some_and(|(bytes, _)| !phrase.bytes.starts_with(bytes)) {
                parents.pop();
            }
            if let Some((_, found)) = parents.last() {
                phrase.parent = *found;
            }
            memory::push(&mut parents, (phrase.bytes, phrase.found))?;
        }
        Ok(Sorted { all })
    }
}
