//! A value of a payload, found without reading the others.
//!
//! A member's place in its shape is known, and the tokens before it say how many bytes to skip. So a path costs a look at a
//! few tokens for each of its steps. Objects without a shape have their keys before their tokens.

use super::blocks::Blocks;
use super::jsonb::{Container, Node, container};
use super::reading::{Rest, Stored, is_there};
use super::schema::{
    ABSENT, BYTES, ColumnIndex, FALSE, Kind, LONG, Layout, Member, NULL, Record, Schema, Shape, TRUE, What,
};
use super::value::Type;
use super::writing::{
    ANY_ARRAY, ANY_CODES, ANY_INTEGER, ANY_NUMERIC, ANY_OBJECT, ANY_TEXT, ANY_ZSTD_BLOCK, ANY_ZSTD_BLOCKS,
};

/// A step of a path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Step<'k> {
    /// The value of an object's key.
    Key(&'k [u8]),
    /// An element of an array; from its end if it is negative.
    Index(i64),
}

/// Where a path leads.
#[derive(Copy, Clone, Debug)]
pub(super) enum Place<'p> {
    /// A value.
    Value { column: Option<ColumnIndex>, token: u8, stored: Stored<'p> },
    /// An object inside a shape: its own part of the shape, the tokens of that, and what these say that there is.
    Members { shape: &'p Shape, tokens: &'p [u8], rest: Rest<'p> },
    /// In a value that is stored as jsonb.
    Node(Node<'p>),
}

impl<'p> Place<'p> {
    /// The document of a payload.
    #[inline]
    pub(super) fn of(payload: &'p [u8], blocks: Option<&'p Blocks>) -> Option<Place<'p>> {
        let mut rest = Rest { bytes: payload, blocks };
        let (token, stored) = rest.root()?;
        Some(Place::Value { column: Some(0), token, stored })
    }

    /// Sees to it that all that is read of it is there.
    #[inline]
    pub(super) fn touch(&self, blocks: Option<&Blocks>) -> Option<()> {
        let Some(blocks) = blocks else { return Some(()) };
        let bytes = match self {
            Place::Value { stored, .. } => stored.bytes,
            Place::Members { tokens, rest, .. } => {
                let mut behind = *rest;
                behind.skip(tokens)?;
                rest.bytes.get(..rest.bytes.len() - behind.bytes.len())?
            }
            // Of the dictionary.
            Place::Node(_) => return Some(()),
        };
        blocks.touch(bytes).then_some(())
    }

    /// What it is. None: damage, or the byte that says so is not there.
    #[inline]
    pub(super) fn type_of(&self, schema: &Schema, blocks: Option<&Blocks>) -> Option<Type> {
        let (column, token, stored) = match *self {
            Place::Members { .. } => return Some(Type::Object),
            Place::Node(node) => return Some(Type::of_node(node)),
            Place::Value { column, token, stored } => (column, token, stored),
        };
        let column = schema.column(column)?;
        Some(match token {
            NULL => Type::Null,
            TRUE => Type::Bool(true),
            FALSE => Type::Bool(false),
            ABSENT => return None,
            BYTES.. if stored.is_any || matches!(column.kind, Kind::Any) => {
                match (Rest { bytes: stored.bytes, blocks }).byte()? {
                    ANY_CODES | ANY_TEXT | ANY_ZSTD_BLOCK | ANY_ZSTD_BLOCKS => Type::Text,
                    ANY_INTEGER | ANY_NUMERIC => Type::Number,
                    ANY_ARRAY => Type::Array,
                    ANY_OBJECT => Type::Object,
                    _ => return None,
                }
            }
            BYTES.. => match column.kind {
                Kind::Any => return None,
                Kind::Text | Kind::Form(_) => Type::Text,
                Kind::Number { .. } | Kind::Decimal => Type::Number,
                Kind::Array { .. } => Type::Array,
                Kind::Record(_) => Type::Object,
            },
            value => {
                let value = column.values.get(usize::from(value))?;
                match value.what {
                    What::Text => Type::Text,
                    What::Number => Type::Number,
                    What::Container => Type::of_node(container(&value.bytes)?),
                }
            }
        })
    }
}

/// Damage of a payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Damage;

/// The place of a path in a payload; `Ok(None)`: the document has none.
#[cfg(test)]
pub(super) fn find<'p>(
    schema: &'p Schema,
    payload: &'p [u8],
    path: &[Step<'_>],
) -> Result<Option<Place<'p>>, Damage> {
    let mut place = Place::of(payload, None).ok_or(Damage)?;
    for step in path {
        match next(schema, None, place, *step)? {
            Some(found) => place = found,
            None => return Ok(None),
        }
    }
    Ok(Some(place))
}

/// One step on.
#[inline]
pub(super) fn next<'p>(
    schema: &'p Schema,
    blocks: Option<&'p Blocks>,
    place: Place<'p>,
    step: Step<'_>,
) -> Result<Option<Place<'p>>, Damage> {
    match place {
        Place::Node(node) => Ok(in_node(node, step).ok_or(Damage)?.map(Place::Node)),
        Place::Members { shape, tokens, rest } => match step {
            Step::Key(key) => in_shape(schema, shape, tokens, rest, key).ok_or(Damage),
            Step::Index(_) => Ok(None),
        },
        Place::Value { column, token, stored } => {
            let rest = Rest { bytes: stored.bytes, blocks };
            in_value(schema, (column, token, stored.is_any), rest, step).ok_or(Damage)
        }
    }
}

/// What is in a value; `None` is damage, as in all that follows.
#[inline]
fn in_value<'p>(
    schema: &'p Schema,
    (column, token, is_any): (Option<ColumnIndex>, u8, bool),
    mut rest: Rest<'p>,
    step: Step<'_>,
) -> Option<Option<Place<'p>>> {
    let column = schema.column(column)?;
    match (token, &column.kind) {
        (NULL | TRUE | FALSE, _) => Some(None),
        (ABSENT, _) => None,
        (BYTES.., kind) if is_any || matches!(kind, Kind::Any) => match (rest.byte()?, step) {
            (ANY_OBJECT, Step::Key(key)) => in_other(schema, None, rest, key),
            (ANY_ARRAY, Step::Index(index)) => in_array(None, rest, index),
            _ => Some(None),
        },
        (BYTES.., Kind::Record(record)) => match step {
            Step::Key(key) => in_record(schema, record, rest, key),
            Step::Index(_) => Some(None),
        },
        (BYTES.., Kind::Array { elements }) => match step {
            Step::Index(index) => in_array(Some(*elements), rest, index),
            Step::Key(_) => Some(None),
        },
        (BYTES.., _) => Some(None),
        (value, _) => {
            let value = column.values.get(usize::from(value))?;
            match value.what {
                What::Container => Some(in_node(container(&value.bytes)?, step)?.map(Place::Node)),
                What::Text | What::Number => Some(None),
            }
        }
    }
}

fn in_node<'p>(node: Node<'p>, step: Step<'_>) -> Option<Option<Node<'p>>> {
    match (node, step) {
        (Node::Object(object), Step::Key(key)) => match object.keys().position(|found| found == Some(key)) {
            Some(at) => Some(Some(object.value(at)?)),
            None => Some(None),
        },
        (Node::Array(array), Step::Index(index)) => match place_of(index, array.count()) {
            Some(at) => Some(Some(array.value(at)?)),
            None => Some(None),
        },
        _ => Some(None),
    }
}

/// Where an element is, counted from the front.
fn place_of(index: i64, count: usize) -> Option<usize> {
    let count = i64::try_from(count).ok()?;
    let at = if index < 0 { count.checked_add(index)? } else { index };
    (0..count).contains(&at).then_some(at as usize)
}

#[inline]
fn in_record<'p>(
    schema: &'p Schema,
    record: &'p Record,
    mut rest: Rest<'p>,
    key: &[u8],
) -> Option<Option<Place<'p>>> {
    match record.layout(rest.varint()?)? {
        Layout::Keys => in_other(schema, Some(record), rest, key),
        Layout::Shape(shape) => in_shape(schema, shape, rest.read(shape.slots())?, rest, key),
        Layout::Further(shape) => {
            let tokens = rest.read(shape.slots())?;
            let found = in_shape(schema, shape, tokens, rest, key)?;
            if found.is_some() {
                return Some(found);
            }
            rest.skip(tokens)?;
            in_other(schema, Some(record), rest, key)
        }
    }
}

#[inline]
fn in_shape<'p>(
    schema: &'p Schema,
    shape: &'p Shape,
    tokens: &'p [u8],
    mut rest: Rest<'p>,
    key: &[u8],
) -> Option<Option<Place<'p>>> {
    let Some((member, first)) = schema.key(key).and_then(|key| shape.member(key)) else { return Some(None) };
    let (skipped, behind) = tokens.split_at_checked(first)?;
    rest.skip(skipped)?;
    let own = behind.get(..member.slots())?;
    Some(match member {
        _ if !is_there(own) => None,
        Member::Object { shape, .. } => Some(Place::Members { shape, tokens: own, rest }),
        Member::Slot { column, .. } => {
            Some(Place::Value { column: Some(*column), token: own[0], stored: rest.of_token(own[0])? })
        }
    })
}

/// In an object that has its keys with it.
fn in_other<'p>(
    schema: &'p Schema,
    record: Option<&'p Record>,
    mut rest: Rest<'p>,
    key: &[u8],
) -> Option<Option<Place<'p>>> {
    let count = rest.varint()?;
    let mut found = None;
    for at in 0..count {
        let (this, column) = rest.key(schema, record)?;
        if this == key {
            found = Some((at, column));
        }
    }
    let tokens = rest.read(count)?;
    let Some((at, column)) = found else { return Some(None) };
    rest.skip(&tokens[..at])?;
    Some(Some(Place::Value { column, token: tokens[at], stored: rest.of_token(tokens[at])? }))
}

fn in_array<'p>(elements: Option<ColumnIndex>, mut rest: Rest<'p>, index: i64) -> Option<Option<Place<'p>>> {
    let count = rest.varint()?;
    let tokens = rest.read(count)?;
    let Some(at) = place_of(index, count) else { return Some(None) };
    rest.skip(&tokens[..at])?;
    Some(Some(Place::Value { column: elements, token: tokens[at], stored: rest.of_token(tokens[at])? }))
}

/// The elements of an array, one after the other: each is found behind the one before it.
#[derive(Clone, Debug)]
pub(super) enum Elements<'p> {
    Stored {
        column: Option<ColumnIndex>,
        tokens: &'p [u8],
        rest: Rest<'p>,
    },
    /// Of an array that is stored as jsonb.
    Nodes {
        array: Container<'p>,
        at: usize,
    },
}

impl<'p> Elements<'p> {
    const NONE: Elements<'p> =
        Elements::Stored { column: None, tokens: &[], rest: Rest { bytes: &[], blocks: None } };

    /// Of what is at a place; none if that is no array.
    pub(super) fn of(
        schema: &'p Schema,
        blocks: Option<&'p Blocks>,
        place: Place<'p>,
    ) -> Result<Elements<'p>, Damage> {
        match place {
            Place::Members { .. } => Ok(Elements::NONE),
            Place::Node(node) => Ok(Elements::of_node(node)),
            Place::Value { column, token, stored } => {
                let rest = Rest { bytes: stored.bytes, blocks };
                Elements::of_value(schema, (column, token, stored.is_any), rest).ok_or(Damage)
            }
        }
    }

    fn of_node(node: Node<'p>) -> Elements<'p> {
        match node {
            Node::Array(array) => Elements::Nodes { array, at: 0 },
            _ => Elements::NONE,
        }
    }

    fn of_value(
        schema: &'p Schema,
        (column, token, is_any): (Option<ColumnIndex>, u8, bool),
        mut rest: Rest<'p>,
    ) -> Option<Elements<'p>> {
        let column = schema.column(column)?;
        let elements = match (token, &column.kind) {
            (NULL | TRUE | FALSE, _) => return Some(Elements::NONE),
            (ABSENT, _) => return None,
            (BYTES.., kind) if is_any || matches!(kind, Kind::Any) => match rest.byte()? {
                ANY_ARRAY => None,
                _ => return Some(Elements::NONE),
            },
            (BYTES.., Kind::Array { elements }) => Some(*elements),
            (BYTES.., _) => return Some(Elements::NONE),
            (value, _) => {
                let value = column.values.get(usize::from(value))?;
                return match value.what {
                    What::Container => container(&value.bytes).map(Elements::of_node),
                    What::Text | What::Number => Some(Elements::NONE),
                };
            }
        };
        let count = rest.varint()?;
        Some(Elements::Stored { column: elements, tokens: rest.read(count)?, rest })
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Result<Option<Place<'p>>, Damage> {
        match self {
            Elements::Stored { column, tokens, rest } => {
                let Some((token, behind)) = tokens.split_first() else { return Ok(None) };
                *tokens = behind;
                let stored = rest.of_token(*token).ok_or(Damage)?;
                Ok(Some(Place::Value { column: *column, token: *token, stored }))
            }
            Elements::Nodes { array, at } if *at < array.count() => {
                *at += 1;
                array.value(*at - 1).map(|node| Some(Place::Node(node))).ok_or(Damage)
            }
            Elements::Nodes { .. } => Ok(None),
        }
    }
}

impl Rest<'_> {
    /// Passes what these tokens say that there is.
    #[inline(always)]
    pub(super) fn skip(&mut self, tokens: &[u8]) -> Option<()> {
        let mut length = 0;
        for token in tokens {
            if *token == LONG {
                self.take(length)?;
                length = self.varint()? >> 1;
            } else {
                length += usize::from(token.saturating_sub(BYTES));
            }
        }
        self.take(length).map(drop)
    }
}
