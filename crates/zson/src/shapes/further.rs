//! Objects of a shape that have further keys, in the order of jsonb.
//!
//! An update that adds a key, or a release of an application that writes a new one, leaves the other members where their
//! shape has them:
//!
//! ```text
//!  120 + the number of the shape | its tokens | what they say | how many further keys | keys | tokens | what they say
//! ```

use std::slice;

use super::jsonb::Container;
use super::reading::{Rest, is_there};
use super::schema::{ColumnIndex, KeyIndex, Member, Record, Schema, Shape};

/// Further keys at most: an object with more is written with all its keys.
pub(super) const FURTHER_MAX: usize = 32;
/// Keys at most of an object for which a shape is looked for that lacks some.
const KEYS_MAX: usize = 256;

/// Whether jsonb has a key in front of another.
#[inline]
pub(super) fn is_before(left: &[u8], right: &[u8]) -> bool {
    (left.len(), left) < (right.len(), right)
}

/// Whether the keys of an object are texts, in jsonb's order.
pub(super) fn is_sorted(object: Container<'_>) -> bool {
    let mut before = None;
    object.keys().all(|key| {
        let is_next = key.is_some_and(|key| before.is_none_or(|before| is_before(before, key)));
        before = key;
        is_next
    })
}

/// Which pairs of an object are further ones.
#[derive(Debug)]
pub(super) struct Places {
    places: [u32; FURTHER_MAX],
    count: usize,
    most: usize,
}

impl Places {
    /// Without any yet, for so many at most.
    pub(super) fn new(most: usize) -> Places {
        Places { places: [0; FURTHER_MAX], count: 0, most: most.min(FURTHER_MAX) }
    }

    /// False: there are too many.
    pub(super) fn add(&mut self, place: u32) -> bool {
        let Some(free) = self.places[..self.most].get_mut(self.count) else { return false };
        *free = place;
        self.count += 1;
        true
    }

    pub(super) fn as_slice(&self) -> &[u32] {
        &self.places[..self.count]
    }
}

/// The shape that an object is written by in the fewest bytes if its other keys are further ones; none if writing all keys
/// takes no more.
pub(super) fn best_shape(schema: &Schema, record: &Record, object: Container<'_>) -> Option<usize> {
    let mut known = [None; KEYS_MAX];
    let known = known.get_mut(..object.count())?;
    for (known, key) in known.iter_mut().zip(object.keys()) {
        *known = schema.key(key?);
    }
    let costs = record.shapes.iter().enumerate().filter_map(|(at, shape)| Some((cost(shape, known)?, at)));
    let (cost, at) = costs.min()?;
    // With its keys, each takes a byte or two and a token.
    (cost < object.count() + object.count() / 2).then_some(at)
}

/// Bytes that an object of these keys takes besides values. None: it has too many that the shape lacks.
fn cost(shape: &Shape, known: &[Option<KeyIndex>]) -> Option<usize> {
    let (keys, members) = (shape.keys(), shape.members());
    let (mut next, mut further, mut covered) = (0, 0, 0);
    for key in known {
        let place = key.and_then(|key| keys.get(next..)?.iter().position(|of_member| *of_member == key));
        match place {
            Some(place) => {
                next += place + 1;
                covered += members.get(next - 1)?.slots();
            }
            None => further += 1,
        }
    }
    (further <= FURTHER_MAX).then_some(shape.slots() - covered + 2 * further)
}

/// A member of an object that has further ones.
pub(super) enum Item<'m> {
    /// One of the shape, and its tokens.
    Member(&'m Member, &'m [u8]),
    /// A further one.
    Further(Option<ColumnIndex>, u8),
}

/// All members in the order of their keys, values aside. As with all that is read, none of none is damage.
#[derive(Clone)]
pub(super) struct Merged<'m> {
    schema: &'m Schema,
    record: &'m Record,
    members: slice::Iter<'m, Member>,
    tokens: &'m [u8],
    /// The next member that is there, with its key.
    member: Option<(&'m [u8], &'m Member, &'m [u8])>,
    keys: Rest<'m>,
    further_tokens: &'m [u8],
    /// The next further one.
    further: Option<(&'m [u8], Option<ColumnIndex>, u8)>,
}

impl<'m> Merged<'m> {
    /// Of the tokens of a shape, and of an object with its keys that is behind its values. The rest of that is what its
    /// tokens say.
    pub(super) fn new(
        (schema, record): (&'m Schema, &'m Record),
        (shape, tokens): (&'m Shape, &'m [u8]),
        behind: &mut Rest<'m>,
    ) -> Option<Merged<'m>> {
        let count = behind.varint()?;
        // Each key takes a byte at the least.
        if count > behind.bytes.len() {
            return None;
        }
        let keys = *behind;
        for _ in 0..count {
            behind.key(schema, Some(record))?;
        }
        let further_tokens = behind.take(count)?;
        let members = shape.members().iter();
        let mut merged =
            Merged { schema, record, members, tokens, member: None, keys, further_tokens, further: None };
        merged.pass_member()?;
        merged.pass_further()?;
        Some(merged)
    }

    fn pass_member(&mut self) -> Option<()> {
        self.member = None;
        for member in self.members.by_ref() {
            let (own, behind) = self.tokens.split_at_checked(member.slots())?;
            self.tokens = behind;
            if is_there(own) {
                let key = self.schema.keys.get(usize::from(member.key()))?;
                self.member = Some((key, member, own));
                break;
            }
        }
        Some(())
    }

    fn pass_further(&mut self) -> Option<()> {
        self.further = match self.further_tokens.split_first() {
            Some((token, behind)) => {
                self.further_tokens = behind;
                let (key, column) = self.keys.key(self.schema, Some(self.record))?;
                Some((key, column, *token))
            }
            None => None,
        };
        Some(())
    }

    /// The next one, with its key.
    pub(super) fn next(&mut self) -> Option<Option<(&'m [u8], Item<'m>)>> {
        let is_further = match (self.member, self.further) {
            (None, None) => return Some(None),
            (Some((own, ..)), Some((further, ..))) => is_before(further, own),
            (member, _) => member.is_none(),
        };
        if is_further {
            let (key, column, token) = self.further?;
            self.pass_further()?;
            return Some(Some((key, Item::Further(column, token))));
        }
        let (key, member, own) = self.member?;
        self.pass_member()?;
        Some(Some((key, Item::Member(member, own))))
    }
}
