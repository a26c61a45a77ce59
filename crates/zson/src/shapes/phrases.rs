//! Texts as codes of phrases: pieces of text that documents of a kind have in common.
//!
//! ```text
//!  code     0..=143           144..=254 and a byte          255 and a byte
//!  means    a phrase          one of 28,416 more phrases    that byte
//! ```
//! A text is decoded by copying phrases, and any text by itself. Phrases are found in samples by [merging](super::merging);
//! of those, the ones stay that the texts are then really made of.

pub(super) use super::matching::Matcher;
use super::merging::{Found, Merged};
use super::pace::Pace;
use crate::error::Error;
use crate::memory;

/// Phrases with a code of one byte.
const SHORT_CODES: usize = 144;
/// First bytes of codes of two bytes.
const LONG_LEADS: usize = 111;
/// The byte behind it is the text's.
const ESCAPE: u8 = 255;
/// Phrases at most.
pub(super) const PHRASES_MAX: usize = SHORT_CODES + LONG_LEADS * 256;
/// Bytes of a phrase at most.
pub(super) const PHRASE_BYTES_MAX: usize = 250;

/// The code of a phrase, or of a byte that is none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Code {
    bytes: [u8; 2],
    /// Bytes that are used.
    length: u8,
}

impl Code {
    pub(super) fn of_phrase(index: u16) -> Code {
        match usize::from(index).checked_sub(SHORT_CODES) {
            None => Code { bytes: [index as u8, 0], length: 1 },
            Some(index) => Code { bytes: [(SHORT_CODES + index / 256) as u8, index as u8], length: 2 },
        }
    }

    pub(super) fn of_byte(byte: u8) -> Code {
        Code { bytes: [ESCAPE, byte], length: 2 }
    }

    /// Its bytes, of which the first ones are used.
    pub(super) fn bytes(self) -> [u8; 2] {
        self.bytes
    }

    pub(super) fn length(self) -> usize {
        self.length.into()
    }

    /// The phrase that it stands for, if it does.
    fn phrase(self) -> Option<usize> {
        match self.bytes {
            [ESCAPE, _] => None,
            [lead, _] if self.length == 1 => Some(lead.into()),
            [lead, behind] => {
                Some(SHORT_CODES + (usize::from(lead) - SHORT_CODES) * 256 + usize::from(behind))
            }
        }
    }
}

/// Phrases by their codes.
#[derive(Clone, Default, Debug)]
pub(super) struct Phrases {
    /// One after the other, and [`PADDING`] zeros behind the last one.
    bytes: Vec<u8>,
    /// Where each begins in `bytes`, and its length in the lowest eight bits.
    places: Vec<u32>,
    /// Once it is [prepared](Self::prepare): each phrase that is shorter than this, and its length in the last byte; of
    /// others there is a zero.
    short: Vec<[u8; PADDING]>,
}

/// A phrase of less bytes is copied as if it had so many.
pub(super) const PADDING: usize = 16;
const LENGTH_BITS: u32 = 8;
const _: () = assert!(PHRASES_MAX * PHRASE_BYTES_MAX < 1 << (u32::BITS - LENGTH_BITS));
const _: () = assert!(PHRASE_BYTES_MAX < 1 << LENGTH_BITS);

impl Phrases {
    fn of(found: &[Found]) -> Result<Phrases, Error> {
        let mut phrases = Phrases::default();
        for Found { phrase, .. } in found {
            phrases.push(phrase)?;
        }
        Ok(phrases)
    }

    /// Appends a phrase; the first ones have the short codes. False: it has no bytes, too many, or no code.
    pub(super) fn push(&mut self, phrase: &[u8]) -> Result<bool, Error> {
        if phrase.is_empty() || phrase.len() > PHRASE_BYTES_MAX || self.places.len() >= PHRASES_MAX {
            return Ok(false);
        }
        let start = self.bytes.len().saturating_sub(PADDING);
        memory::reserve(&mut self.bytes, phrase.len() + PADDING)?;
        memory::push(&mut self.places, (start as u32) << LENGTH_BITS | phrase.len() as u32)?;
        self.bytes.truncate(start);
        self.bytes.extend_from_slice(phrase);
        self.bytes.resize(start + phrase.len() + PADDING, 0);
        Ok(true)
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, length) = self.place(index)?;
        self.bytes.get(start..start + length)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count()).filter_map(|index| self.get(index))
    }

    /// Bytes of memory.
    pub(super) fn memory_size(&self) -> usize {
        self.bytes.capacity()
            + self.places.capacity() * size_of::<u32>()
            + self.short.capacity() * size_of::<[u8; PADDING]>()
    }

    /// Prepares it for reading.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn prepare(&mut self) -> Result<(), Error> {
        self.short = memory::collect(self.iter().map(|phrase| {
            let mut entry = [0; PADDING];
            if let Some(room) = entry[..PADDING - 1].get_mut(..phrase.len()) {
                room.copy_from_slice(phrase);
                entry[PADDING - 1] = phrase.len() as u8;
            }
            entry
        }))?;
        Ok(())
    }

    /// Where a phrase begins, and its length.
    #[inline]
    fn place(&self, index: usize) -> Option<(usize, usize)> {
        let place = *self.places.get(index)?;
        Some(((place >> LENGTH_BITS) as usize, (place & ((1 << LENGTH_BITS) - 1)) as usize))
    }

    /// Appends the text of these codes. None: a code has no phrase, or is cut off, or there are more than `left` bytes.
    #[cfg(test)]
    pub(super) fn decode(&self, codes: &[u8], left: usize, text: &mut Vec<u8>) -> Option<()> {
        let start = text.len();
        let end = start.checked_add(self.decoded_len(codes).filter(|length| *length <= left)?)?;
        text.resize(end, 0);
        self.decode_into(codes, &mut text[start..]).map(drop)
    }

    /// Bytes of the text of these codes. None: a code has no phrase, or is cut off.
    pub(super) fn decoded_len(&self, codes: &[u8]) -> Option<usize> {
        let (mut codes, mut length) = (codes, 0);
        while let Some(code) = next(&mut codes) {
            length += match code? {
                Piece::Byte => 1,
                Piece::Phrase(index) => self.place(index)?.1,
            };
        }
        Some(length)
    }

    /// Writes the text of these codes to the beginning of `target`, and tells its length; bytes behind it mean nothing.
    /// None: a code has no phrase, or is cut off, or there are more bytes.
    #[inline]
    pub(super) fn decode_into(&self, codes: &[u8], target: &mut [u8]) -> Option<usize> {
        let (mut codes, mut at) = (codes, 0);
        // Which codes are long is no jump: nobody could guess it.
        while let Some([lead, behind]) = codes.first_chunk() {
            let (lead, behind) = (usize::from(*lead), usize::from(*behind));
            let is_long = usize::from(lead >= SHORT_CODES);
            codes = codes.get(1 + is_long..)?;
            if lead == usize::from(ESCAPE) {
                *target.get_mut(at)? = behind as u8;
                at += 1;
                continue;
            }
            let more = lead.wrapping_sub(SHORT_CODES).wrapping_mul(255).wrapping_add(behind);
            at += self.put(lead + (more & is_long.wrapping_neg()), target.get_mut(at..)?)?;
        }
        match codes.first() {
            None => Some(at),
            Some(last) if usize::from(*last) < SHORT_CODES => {
                Some(at + self.put(usize::from(*last), target.get_mut(at..)?)?)
            }
            Some(_) => None,
        }
    }

    /// Writes a phrase, and tells its length.
    #[inline]
    fn put(&self, index: usize, room: &mut [u8]) -> Option<usize> {
        match (self.short.get(index), room.first_chunk_mut::<PADDING>()) {
            (Some(entry), Some(room)) if entry[PADDING - 1] != 0 => {
                *room = *entry;
                Some(usize::from(entry[PADDING - 1]))
            }
            _ => self.copy(index, room),
        }
    }

    /// As [`decode_into`](Self::decode_into), from `start` of a buffer on, which is made longer as it needs; `Ok(None)` also if
    /// the text has more than `left` bytes.
    ///
    /// # Errors
    /// [`Error::Memory`].
    #[inline(always)]
    pub(super) fn decode_at(
        &self,
        codes: &[u8],
        left: usize,
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<Option<usize>, Error> {
        // Room for a copy of fixed length behind the last phrase.
        let most = left.min(codes.len().saturating_mul(PHRASE_BYTES_MAX));
        memory::at_least(out, start + most + PADDING)?;
        Ok(self.decode_into(codes, &mut out[start..]).filter(|length| *length <= most))
    }

    /// Copies a phrase of any length, and tells it. There may be less room than a piece of [`PADDING`] takes.
    fn copy(&self, index: usize, room: &mut [u8]) -> Option<usize> {
        const TWO: usize = 2 * PADDING;
        let (start, length) = self.place(index)?;
        if length <= TWO
            && let Some(room) = room.first_chunk_mut::<TWO>()
            && let Some(phrase) = self.bytes.get(start..).and_then(|rest| rest.first_chunk())
        {
            *room = *phrase;
            return Some(length);
        }
        let end = length.next_multiple_of(PADDING);
        match (room.get_mut(..end), self.bytes.get(start..start + end)) {
            (Some(room), Some(phrase)) => {
                let pieces = phrase.as_chunks::<PADDING>().0;
                room.as_chunks_mut::<PADDING>()
                    .0
                    .iter_mut()
                    .zip(pieces)
                    .for_each(|(room, piece)| *room = *piece);
            }
            _ => room.get_mut(..length)?.copy_from_slice(self.get(index)?),
        }
        Some(length)
    }
}

/// What a code stands for.
enum Piece {
    Phrase(usize),
    Byte,
}

/// The next code, `Some(None)` if it is cut off.
fn next(codes: &mut &[u8]) -> Option<Option<Piece>> {
    let (&lead, rest) = codes.split_first()?;
    *codes = rest;
    let index = usize::from(lead);
    if index < SHORT_CODES {
        return Some(Some(Piece::Phrase(index)));
    }
    let Some((&behind, rest)) = rest.split_first() else { return Some(None) };
    *codes = rest;
    Some(Some(match lead {
        ESCAPE => Piece::Byte,
        _ => Piece::Phrase(SHORT_CODES + (index - SHORT_CODES) * 256 + usize::from(behind)),
    }))
}

/// Those of the phrases, of at most `bytes_max` bytes with their lengths, that make the texts short.
pub(super) fn learn(
    merged: &Merged,
    texts: &[&[u8]],
    bytes_max: usize,
    pace: &mut Pace<'_>,
) -> Result<Phrases, Error> {
    let mut found = merged.chosen(bytes_max, pace)?;
    // The longest phrase that fits is taken, whatever it was made of: so they are counted once more.
    for _ in 0..2 {
        let phrases = Phrases::of(&found)?;
        let matcher = Matcher::new(&phrases)?;
        found.iter_mut().for_each(|found| found.count = 0);
        for text in texts {
            pace.work(text.len())?;
            matcher.each(text, |code| {
                if let Some(found) = code.phrase().and_then(|index| found.get_mut(index)) {
                    found.count += 1;
                }
            });
        }
        found.retain(|found| found.count > 1);
        found.sort_unstable_by(|left, right| (right.count, &left.phrase).cmp(&(left.count, &right.phrase)));
    }
    Phrases::of(&found)
}

#[cfg(test)]
mod tests {
    use pgshrink_testkit::Seed;

    use super::super::merging::merged;
    use super::*;

    #[test]
    fn texts_of_a_kind_are_short_and_come_back() {
        let texts: Vec<String> = (0..2000)
            .map(|n| {
                format!(
                    "The quick brown fox {n} jumps over the lazy dog; see https://example.org/{}",
                    n * 7 % 13
                )
            })
            .collect();
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let mut proceed = || Ok(());
        let mut pace = Pace::new(&mut proceed);
        let merged = merged(&texts, &mut pace).unwrap();
        let phrases = learn(&merged, &texts, 4 << 10, &mut pace).unwrap();
        let matcher = Matcher::new(&phrases).unwrap();
        let (mut codes, mut text) = (Vec::new(), Vec::new());
        for known in [
            "The quick brown fox 7777 jumps over the lazy dog; see https://example.org/5",
            "",
            "Größe\0\u{1f600}",
        ] {
            codes.clear();
            text.clear();
            matcher.encode(known.as_bytes(), &mut codes);
            phrases.decode(&codes, 100, &mut text).unwrap();
            assert_eq!(text, known.as_bytes());
        }
        codes.clear();
        matcher.encode(texts[17], &mut codes);
        assert!(codes.len() <= 8, "{} codes", codes.len());
        assert!(phrases.iter().map(<[u8]>::len).sum::<usize>() <= 4 << 10);
    }

    #[test]
    fn the_longest_phrase_is_found_whatever_the_others_are() {
        let mut rng = Seed(3).rng();
        for round in 0..300 {
            // Few different bytes, zeros among them, so that phrases begin with phrases.
            let bytes = 1 + rng.below(4);
            let mut random = |length: usize| -> Vec<u8> {
                let mut run = || [rng.below(bytes) as u8; 9][..1 + 8 * rng.below(2)].to_vec();
                std::iter::repeat_with(&mut run).take(length).flatten().take(length).collect()
            };
            let mut phrases = Phrases::default();
            for at in 0..round {
                let phrase = random(1 + at % [3, 9, 30, 250][round % 4]);
                assert!(phrases.push(&phrase).unwrap());
            }
            let matcher = Matcher::new(&phrases).unwrap();
            for length in 0..60 {
                let text = random(length);
                let (mut codes, mut rest) = (vec![7], &text[..]);
                matcher.encode(&text, &mut codes);
                assert_eq!(codes.remove(0), 7);
                assert!(codes.len() <= 2 * text.len());
                let mut longest = Vec::new();
                while let Some(first) = rest.first() {
                    let fitting = phrases.iter().enumerate().filter(|(_, phrase)| rest.starts_with(phrase));
                    let found = fitting.max_by_key(|(at, phrase)| (phrase.len(), std::cmp::Reverse(*at)));
                    let (code, length) = found.map_or((Code::of_byte(*first), 1), |(at, phrase)| {
                        (Code::of_phrase(at as u16), phrase.len())
                    });
                    longest.extend_from_slice(&code.bytes()[..code.length()]);
                    rest = &rest[length..];
                }
                assert_eq!(codes, longest, "{round}: {text:?}");
                let mut back = vec![1; text.len() + round % 20];
                assert_eq!(phrases.decode_into(&codes, &mut back), Some(text.len()));
                assert_eq!(back[..text.len()], text);
                assert_eq!(phrases.decoded_len(&codes), Some(text.len()));
            }
        }
    }

    #[test]
    fn codes_take_at_most_twice_the_bytes_and_a_full_matcher_little_memory() {
        let mut rng = Seed(4).rng();
        let mut phrases = Phrases::default();
        for _ in 0..PHRASES_MAX {
            let phrase: Vec<u8> = (0..1 + rng.below(14)).map(|_| b'a' + rng.below(20) as u8).collect();
            assert!(phrases.push(&phrase).unwrap());
        }
        assert!(!phrases.push(b"one more").unwrap());
        let matcher = Matcher::new(&phrases).unwrap();
        assert!(matcher.memory_size() < 3 << 19, "{}", matcher.memory_size());
        for matcher in [matcher, Matcher::default()] {
            for length in (0..2000).step_by(7) {
                let text: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
                let mut codes = Vec::new();
                matcher.encode(&text, &mut codes);
                assert!(codes.len() <= 2 * text.len());
                let mut back = vec![0; text.len()];
                assert_eq!(phrases.decode_into(&codes, &mut back), Some(length));
                assert_eq!(back, text);
            }
        }
    }

    #[test]
    fn codes_that_nobody_wrote_are_refused() {
        let mut phrases = Phrases::default();
        assert!(
            phrases.push(b"ab").unwrap() && !phrases.push(b"").unwrap() && !phrases.push(&[0; 251]).unwrap()
        );
        for codes in [&[1][..], &[144], &[144, 0], &[255], &[0, 255]] {
            assert_eq!(phrases.decode(codes, 100, &mut Vec::new()), None, "{codes:?}");
            assert_eq!(phrases.decoded_len(codes), None);
            assert_eq!(phrases.decode_into(codes, &mut [0; 100]), None);
        }
        assert_eq!(phrases.decode(&[0, 0, 0], 5, &mut Vec::new()), None, "too long");
        for room in 0..20 {
            let (mut target, fits) = ([9; 20], room >= 5);
            let written = phrases.decode_into(&[0, 255, b'x', 0], &mut target[..room]);
            assert_eq!(written, fits.then_some(5), "{room}");
            assert_eq!(target[room..], [9; 20][room..]);
            assert!(!fits || target.starts_with(b"abxab"));
        }
    }
}
