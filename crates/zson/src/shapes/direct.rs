//! A key of the outermost object, in one pass: what is asked for most, most often for its text.
//!
//! Here are only the usual ways of writing a value, in documents that are whole. Everything else, damage included, is left
//! to [`View`](super::View), which finds the same.

use super::Reader;
use super::finding::Place;
use super::number::{Digits, Number, SCALE_MAX, integer};
use super::reading::{Rest, decimal, is_there};
use super::schema::{
    ABSENT, BYTES, Column, ColumnIndex, FALSE, Kind, Member, NULL, Record, SHAPES_MAX, Schema, TRUE, What,
};
use super::value::Text;
use super::writing::{ANY_CODES, ANY_INTEGER, ANY_TEXT};
use crate::memory;

/// Where keys that were asked for are in documents, so that they need not be looked up again. What is in it is of
/// dictionaries, which never change; a few kilobytes.
#[derive(Clone, Default, Debug)]
pub struct Known {
    entries: [Entry; ENTRIES],
}

const ENTRIES: usize = 16;
/// Bytes of a key that is noted.
const KEY_BYTES_MAX: usize = 32;

/// A key in documents of a dictionary.
#[derive(Clone, Default, Debug)]
struct Entry {
    identity: u64,
    key: [u8; KEY_BYTES_MAX],
    /// Zero: of no key.
    length: usize,
    /// One for each shape.
    spots: Vec<Spot>,
}

/// What of a shape a key is.
#[derive(Copy, Clone, Debug)]
enum Spot {
    /// No key of it.
    Nothing,
    /// The key of a slot: how many are before it, in how many slots of the shape.
    Slot { before: u16, slots: u16, column: ColumnIndex },
    /// The key of an object inside it.
    Object { before: u16, slots: u16, own: u16 },
}

/// What a key is of the shape of a document.
struct Found<'p> {
    spot: Spot,
    /// Of the shape, from 0.
    number: usize,
    /// The tokens of the shape, and all behind them.
    behind: &'p [u8],
    /// The document has keys that the shape lacks.
    has_further: bool,
}

impl Known {
    /// What is known of a key; none if it is not to be noted.
    #[inline(always)]
    fn spots(&mut self, reader: &Reader, key: &[u8]) -> Option<&[Spot]> {
        let (first, last) = (key.first()?, key.last()?);
        let at =
            (key.len() ^ usize::from(*first) ^ usize::from(*last) << 1 ^ reader.identity as usize) % ENTRIES;
        let entry = &mut self.entries[at];
        let is_it = entry.identity == reader.identity
            && entry.key.get(..entry.length).is_some_and(|known| are_same(known, key));
        if !is_it {
            entry.note(reader, key)?;
        }
        Some(&entry.spots)
    }
}

impl Entry {
    /// Makes it that of a key. None: it is too long, or there is no memory.
    #[cold]
    fn note(&mut self, reader: &Reader, key: &[u8]) -> Option<()> {
        self.length = 0;
        let record = outermost(&reader.schema)?;
        let known = reader.schema.key(key);
        let spots = record.shapes.iter().map(|shape| match known.map(|known| shape.member(known)) {
            None | Some(None) => Spot::Nothing,
            Some(Some((Member::Slot { column, .. }, before))) => {
                Spot::Slot { before: before as u16, slots: shape.slots() as u16, column: *column }
            }
            Some(Some((Member::Object { shape: inside, .. }, before))) => Spot::Object {
                before: before as u16,
                slots: shape.slots() as u16,
                own: inside.slots() as u16,
            },
        });
        self.spots = memory::collect(spots).ok()?;
        self.key.get_mut(..key.len())?.copy_from_slice(key);
        (self.identity, self.length) = (reader.identity, key.len());
        Some(())
    }
}

/// Whether two keys are the same: the usual ones without a call.
#[inline(always)]
fn are_same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && match right.len() {
            4..8 => have_same_ends::<4>(left, right),
            8..=16 => have_same_ends::<8>(left, right),
            _ => left == right,
        }
}

/// Whether the first and the last `N` bytes are the same.
#[inline(always)]
fn have_same_ends<const N: usize>(left: &[u8], right: &[u8]) -> bool {
    left.first_chunk::<N>() == right.first_chunk() && left.last_chunk::<N>() == right.last_chunk()
}

/// Whole documents, if they are objects.
#[inline]
fn outermost(schema: &Schema) -> Option<&Record> {
    match &schema.columns.first()?.kind {
        Kind::Record(record) => Some(record),
        _ => None,
    }
}

impl Reader {
    /// The text of a key of a payload's document, written to the beginning of `out`, and its length. `None`: it takes a
    /// longer way, or more room, or there is damage.
    #[inline]
    pub(crate) fn text_of_key(
        &self,
        known: &mut Known,
        (payload, raw_len): (&[u8], usize),
        key: &[u8],
        out: &mut [u8],
    ) -> Option<(Text, usize)> {
        let Found { spot, behind, has_further, .. } = self.spot(known, payload, key)?;
        let (before, slots, column) = match spot {
            Spot::Slot { before, slots, column } => (usize::from(before), usize::from(slots), column),
            Spot::Nothing => return (!has_further).then_some((Text::Null, 0)),
            Spot::Object { .. } => return None,
        };
        let (tokens, values) = behind.split_at_checked(slots)?;
        let (skipped, own) = tokens.split_at_checked(before)?;
        let token = *own.first()?;
        if has_further && token == ABSENT {
            return None;
        }
        let column = self.schema.columns.get(usize::from(column))?;
        if token < BYTES {
            return constant(column, token, out);
        }
        let mut rest = Rest::new(values);
        rest.skip(skipped)?;
        let stored = rest.of_token(token)?;
        match &column.kind {
            Kind::Any => self.any(stored.bytes, raw_len, out),
            _ if stored.is_any => self.any(stored.bytes, raw_len, out),
            Kind::Text => self.text_of_codes(stored.bytes, raw_len, out),
            Kind::Number { scale, base } => {
                let integer = integer(stored.bytes)?.checked_add(*base)?;
                number(Number { integer, scale: *scale }, out)
            }
            Kind::Decimal => number(decimal(stored.bytes)?, out),
            Kind::Form(template) => {
                template.decode_into(stored.bytes, out).map(|length| (Text::Written, length))
            }
            Kind::Array { .. } | Kind::Record(_) => None,
        }
    }

    /// The value of a key of a payload's document, or that there is none. `None` as for [`text_of_key`](Self::text_of_key).
    #[inline]
    pub(super) fn place_of_key<'p>(
        &'p self,
        known: &mut Known,
        payload: &'p [u8],
        key: &[u8],
    ) -> Option<Option<Place<'p>>> {
        let Found { spot, number, behind, has_further } = self.spot(known, payload, key)?;
        let (before, slots, own) = match spot {
            Spot::Nothing => return (!has_further).then_some(None),
            Spot::Slot { before, slots, .. } => (before, slots, 1),
            Spot::Object { before, slots, own } => (before, slots, own),
        };
        let (tokens, values) = behind.split_at_checked(usize::from(slots))?;
        let (skipped, from) = tokens.split_at_checked(usize::from(before))?;
        let own = from.get(..usize::from(own))?;
        if !is_there(own) {
            return (!has_further).then_some(None);
        }
        let mut rest = Rest::new(values);
        rest.skip(skipped)?;
        Some(Some(match spot {
            Spot::Slot { column, .. } => {
                Place::Value { column: Some(column), token: own[0], stored: rest.of_token(own[0])? }
            }
            _ => {
                let shape = outermost(&self.schema)?.shapes.get(number)?;
                let (Member::Object { shape, .. }, _) = shape.member(self.schema.key(key)?)? else {
                    return None;
                };
                Place::Members { shape, tokens: own, rest }
            }
        }))
    }

    /// What a key is of the shape of a payload's document.
    #[inline(always)]
    fn spot<'p>(&self, known: &mut Known, payload: &'p [u8], key: &[u8]) -> Option<Found<'p>> {
        let mut rest = Rest::new(payload);
        let (_, stored) = rest.root().filter(|(token, stored)| *token >= BYTES && !stored.is_any)?;
        let (number, behind) = stored.bytes.split_first().filter(|(number, _)| **number < 0x80)?;
        let shape = usize::from(*number).checked_sub(1)?;
        let has_further = shape >= SHAPES_MAX;
        let spots = known.spots(self, key)?;
        let number = if has_further { shape - SHAPES_MAX } else { shape };
        Some(Found { spot: *spots.get(number)?, number, behind, has_further })
    }

    #[inline(always)]
    fn text_of_codes(&self, codes: &[u8], raw_len: usize, out: &mut [u8]) -> Option<(Text, usize)> {
        let length = self.schema.phrases.decode_into(codes, out).filter(|length| *length <= raw_len)?;
        Some((Text::Written, length))
    }

    /// Of a value that says itself what it is.
    #[inline]
    fn any(&self, bytes: &[u8], raw_len: usize, out: &mut [u8]) -> Option<(Text, usize)> {
        match bytes.split_first()? {
            (&ANY_CODES, codes) => self.text_of_codes(codes, raw_len, out),
            (&ANY_TEXT, text) if text.len() <= raw_len => put(text, out),
            (&ANY_INTEGER, bytes) => number(decimal(bytes)?, out),
            _ => None,
        }
    }
}

/// The text of what a token stands for.
#[inline]
fn constant(column: &Column, token: u8, out: &mut [u8]) -> Option<(Text, usize)> {
    match token {
        NULL | ABSENT => Some((Text::Null, 0)),
        TRUE => put(b"true", out),
        FALSE => put(b"false", out),
        _ => {
            let value = column.values.get(usize::from(token))?;
            match value.what {
                What::Text => value.write(out).map(|length| (Text::Written, length)),
                What::Number => put(&value.text, out).filter(|(_, length)| *length > 0),
                What::Container => None,
            }
        }
    }
}

#[inline]
fn put(text: &[u8], out: &mut [u8]) -> Option<(Text, usize)> {
    out.get_mut(..text.len())?.copy_from_slice(text);
    Some((Text::Written, text.len()))
}

#[inline]
fn number(number: Number, out: &mut [u8]) -> Option<(Text, usize)> {
    // One of these is always a numeric.
    i64::try_from(number.integer).ok().filter(|_| number.scale <= SCALE_MAX)?;
    put(number.text(&mut Digits::default()), out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_if_all_their_bytes_are() {
        for length in 0..40 {
            let key: Vec<u8> = (0..length).collect();
            assert!(are_same(&key, &key.clone()));
            assert!(!are_same(&key, &[&key[..], &[length]].concat()));
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 0x40;
                assert!(!are_same(&key, &other), "byte {at} of {length}");
            }
        }
    }
}
