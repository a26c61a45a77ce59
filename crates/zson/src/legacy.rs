//! What zson 1.x has written: datums of version 0 and their dictionaries of words. Only reading.
//!
//! The layout is in `formats/zson.md`. The reader is stricter than the original, which took the word in slot 0 for
//! an unknown code and did not notice a missing end.

use crate::datum::corrupt;
use crate::error::Error;
use crate::limits::{LEGACY_CODES_MAX, RAW_BYTES_MAX};
use crate::memory;

/// A datum of version 0, taken apart.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Datum<'a> {
    dictionary_id: u32,
    raw_len: usize,
    tokens: &'a [u8],
}

/// The words of one dictionary of the original, by code.
#[derive(Default)]
pub struct Words {
    /// All words, one after the other.
    text: Vec<u8>,
    /// Where the word of each code is in the text, up to the largest code.
    places: Vec<Place>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
struct Place {
    start: u32,
    len: u32,
}

impl<'a> Datum<'a> {
    /// Takes a datum whose first byte is zero apart.
    pub(crate) fn parse(datum: &'a [u8]) -> Result<Self, Error> {
        let Some((head, tokens)) = datum.split_first_chunk::<HEAD_BYTES>() else {
            let found = datum.len() as u64;
            return Err(corrupt("length of a zson 1.x datum, at least,", None, HEAD_BYTES as u64, found));
        };
        let [_version, a, b, c, d, e, f, g, h, ..] = *head;
        let raw_len = u32::from_le_bytes([e, f, g, h]);
        let (found, allowed) = (u64::from(raw_len), RAW_BYTES_MAX as u64);
        if found > allowed {
            return Err(corrupt("document size of a zson 1.x datum, at most,", None, allowed, found));
        }
        Ok(Datum { dictionary_id: u32::from_le_bytes([a, b, c, d]), raw_len: raw_len as usize, tokens })
    }

    /// `dict_id` in the original's table.
    pub fn dictionary_id(&self) -> u32 {
        self.dictionary_id
    }

    /// Bytes of the document, as far as the datum can be believed: see [`Words::verify`].
    pub fn raw_len(&self) -> usize {
        self.raw_len
    }
}

impl Words {
    /// From `word_id` and `word` of the rows of one `dict_id`, in any order. As in the original a code is the low 16
    /// bits of a `word_id`, and words under 2 bytes are left out.
    pub fn new(rows: impl Iterator<Item = (i32, Vec<u8>)>) -> Result<Self, Error> {
        let mut words = Words::default();
        for (id, word) in rows {
            // Beyond 4 GB of text nothing can be a dictionary of the original; its codes stay unknown.
            let end = words.text.len().saturating_add(word.len());
            if word.len() < WORD_BYTES_MIN || u32::try_from(end).is_err() {
                continue;
            }
            let code = id as u16;
            if words.places.len() <= usize::from(code) {
                let more = usize::from(code) + 1 - words.places.len();
                memory::reserve(&mut words.places, more)?;
                words.places.resize(usize::from(code) + 1, Place::ABSENT);
            }
            let before = words.places[usize::from(code)];
            words.places[usize::from(code)] = match before {
                Place::ABSENT => {
                    let place = Place { start: words.text.len() as u32, len: word.len() as u32 };
                    memory::append(&mut words.text, &word)?;
                    place
                }
                Place::AMBIGUOUS => before,
                _ if words.text_at(before) == word => before,
                _ => Place::AMBIGUOUS,
            };
        }
        debug_assert!(words.places.len() <= LEGACY_CODES_MAX);
        memory::shrink(&mut words.text);
        memory::shrink(&mut words.places);
        Ok(words)
    }

    /// Whether the datum decodes to exactly [`Datum::raw_len`] bytes. To be asked before memory is taken for them:
    /// the datum alone does not bound them.
    pub fn verify(&self, datum: &Datum<'_>) -> Result<(), Error> {
        let mut len = 0usize;
        self.pieces(datum, |piece| {
            len = len.saturating_add(piece.len());
            if len > datum.raw_len { Err(wrong_size(datum, len)) } else { Ok(()) }
        })?;
        if len == datum.raw_len { Ok(()) } else { Err(wrong_size(datum, len)) }
    }

    /// Decodes into `target`, which has exactly [`Datum::raw_len`] bytes. After an error it holds bytes without
    /// meaning. The original kept no check sum, so damage that leaves the structure intact goes unnoticed.
    pub fn decode(&self, datum: &Datum<'_>, target: &mut [u8]) -> Result<(), Error> {
        if target.len() != datum.raw_len {
            return Err(Error::Target { needed: datum.raw_len, given: target.len() });
        }
        let mut at = 0;
        self.pieces(datum, |piece| {
            let place =
                target.get_mut(at..at + piece.len()).ok_or_else(|| wrong_size(datum, at + piece.len()))?;
            place.copy_from_slice(piece);
            at += piece.len();
            Ok(())
        })?;
        if at == target.len() { Ok(()) } else { Err(wrong_size(datum, at)) }
    }

    /// Bytes of memory it holds.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>() + self.text.capacity() + self.places.capacity() * size_of::<Place>()
    }

    /// Gives the pieces of the document one after the other.
    fn pieces(
        &self,
        datum: &Datum<'_>,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut rest = datum.tokens;
        loop {
            let (skip, after) = rest.split_first().ok_or_else(|| unended(1, 0))?;
            let skip = usize::from(*skip);
            let (literals, after) = after.split_at_checked(skip).ok_or_else(|| unended(skip, after.len()))?;
            take(literals)?;
            // The last token has no code.
            if after.is_empty() {
                return Ok(());
            }
            let (code, after) = after.split_first_chunk().ok_or_else(|| unended(2, after.len()))?;
            match u16::from_be_bytes(*code) {
                0 => {}
                code => take(self.word(datum, code)?)?,
            }
            rest = after;
        }
    }

    fn word(&self, datum: &Datum<'_>, code: u16) -> Result<&[u8], Error> {
        let unknown = |problem| Error::UnknownCode { dictionary: datum.dictionary_id, code, problem };
        match self.places.get(usize::from(code)).copied().unwrap_or(Place::ABSENT) {
            Place::ABSENT => Err(unknown("does not have")),
            Place::AMBIGUOUS => Err(unknown("assigns to several words")),
            place => Ok(self.text_at(place)),
        }
    }

    fn text_at(&self, place: Place) -> &[u8] {
        &self.text[place.start as usize..][..place.len as usize]
    }
}

impl Place {
    const ABSENT: Place = Place { start: 0, len: 0 };
    /// The low 16 bits of several `word_id`s are this code; the original would take either.
    const AMBIGUOUS: Place = Place { start: 1, len: 0 };
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Words({} bytes of text)", self.text.len())
    }
}

/// Version, dictionary, size, and 32 bytes that the original reserved for a hint and cleared.
const HEAD_BYTES: usize = 1 + 4 + 4 + 32;
const WORD_BYTES_MIN: usize = 2;

fn unended(expected: usize, found: usize) -> Error {
    corrupt("bytes left for a token of a zson 1.x datum", None, expected as u64, found as u64)
}

fn wrong_size(datum: &Datum<'_>, found: usize) -> Error {
    corrupt("decoded size of a zson 1.x datum", None, datum.raw_len as u64, found as u64)
}
