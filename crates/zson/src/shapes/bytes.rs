//! Dictionaries of shapes as bytes.
//!
//! ```text
//!  dictionary      name | fallback | how many bytes of a schema | schema | dictionary of zstd
//!  schema          keys | phrases | columns
//!
//!  keys, phrases   how many | for each its length and bytes
//!  columns         how many | for each: how many values | values | kind
//!  value           what | length | bytes
//!  kind            number of the kind | what belongs to it
//!  shape           how many members | for each: key × 2, + 1 for an object | its column, or its members
//! ```
//! Numbers are LEB128. What is read refers to what there is; a schema that does not is none.

use super::Parts;
use super::fallback::Fallback;
use super::further::is_sorted;
use super::jsonb::{Node, container};
use super::number::{SCALE_MAX, integer, is_numeric, push_integer};
use super::out::push_varint;
use super::phrases::{PHRASES_MAX, Phrases};
use super::reading::Rest;
use super::schema::{
    COLUMNS_MAX, Column, KEYS_MAX, Kind, Member, Record, SHAPES_MAX, SLOTS_MAX, Schema, Shape, VALUES_MAX,
    Value, What,
};
use super::template::{PARTS_MAX, Part, Template};
use super::writing::DEPTH_MAX;
use crate::error::Error;
use crate::memory;

/// What a dictionary of shapes begins with: nothing that is in a dictionary of zstd's trainer, nor in a document.
const NAME: &[u8; 8] = b"\xffzshape1";
/// Objects in objects of a shape at most.
const INSIDE_MAX: usize = 32;

/// A dictionary's bytes.
pub(super) fn dictionary(schema: &Schema, fallback: &Fallback, zstd: &[u8]) -> Result<Vec<u8>, Error> {
    let schema = of(schema);
    let mut out = NAME.to_vec();
    fallback.push(&mut out);
    push_varint(schema.len(), &mut out);
    memory::append(&mut out, &schema)?;
    memory::append(&mut out, zstd)?;
    Ok(out)
}

/// The parts of a dictionary's bytes; `Ok(None)`: it is none of shapes.
///
/// # Errors
/// [`Error::Dictionary`].
pub(super) fn parts(dictionary: &[u8]) -> Result<Option<Parts<'_>>, Error> {
    let Some(rest) = dictionary.strip_prefix(NAME) else { return Ok(None) };
    let mut rest = Rest::new(rest);
    let fallback = Fallback::read(&mut rest).ok_or(Error::Dictionary { what: "fallback rule" })?;
    let schema = sized(&mut rest).ok_or(Error::Dictionary { what: "length" })?;
    Ok(Some(Parts { schema, fallback, zstd: rest.bytes }))
}

/// The bytes of a schema.
pub(super) fn of(schema: &Schema) -> Vec<u8> {
    let mut out = Vec::new();
    push_varint(schema.keys.len(), &mut out);
    schema.keys.iter().for_each(|key| push_bytes(key, &mut out));
    push_varint(schema.phrases.count(), &mut out);
    schema.phrases.iter().for_each(|phrase| push_bytes(phrase, &mut out));
    push_varint(schema.columns.len(), &mut out);
    for column in &schema.columns {
        push_varint(column.values.len(), &mut out);
        for Value { what, bytes, .. } in &column.values {
            out.push(*what as u8);
            push_bytes(bytes, &mut out);
        }
        push_kind(&column.kind, &mut out);
    }
    out
}

fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    push_varint(bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn push_signed(value: i128, out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    push_integer(value, &mut bytes);
    push_bytes(&bytes, out);
}

fn push_kind(kind: &Kind, out: &mut Vec<u8>) {
    match kind {
        Kind::Any => out.push(0),
        Kind::Text => out.push(1),
        Kind::Form(template) => {
            out.push(2);
            push_signed(template.base(), out);
            push_varint(template.parts().len(), out);
            for part in template.parts() {
                match part {
                    Part::Fixed(bytes) => {
                        out.push(0);
                        push_bytes(bytes, out);
                    }
                    Part::Digits { width, low, count } => {
                        out.extend_from_slice(&[1, *width]);
                        push_signed((*low).into(), out);
                        push_signed((*count).into(), out);
                    }
                    Part::Hex { digits, is_upper } => {
                        out.extend_from_slice(&[if *is_upper { 3 } else { 2 }, *digits])
                    }
                }
            }
        }
        Kind::Number { scale, base } => {
            out.extend_from_slice(&[3, *scale as u8]);
            push_signed(*base, out);
        }
        Kind::Decimal => out.push(4),
        Kind::Array { elements } => {
            out.push(5);
            push_varint((*elements).into(), out);
        }
        Kind::Record(record) => {
            out.push(6);
            push_varint(record.children.len(), out);
            for (key, column) in &record.children {
                push_varint((*key).into(), out);
                push_varint((*column).into(), out);
            }
            push_varint(record.shapes.len(), out);
            record.shapes.iter().for_each(|shape| push_members(shape.members(), out));
        }
    }
}

fn push_members(members: &[Member], out: &mut Vec<u8>) {
    push_varint(members.len(), out);
    for member in members {
        let is_object = matches!(member, Member::Object { .. });
        push_varint(usize::from(member.key()) << 1 | usize::from(is_object), out);
        match member {
            Member::Slot { column, .. } => push_varint((*column).into(), out),
            Member::Object { shape, .. } => push_members(shape.members(), out),
        }
    }
}

/// The schema of these bytes; `Ok(None)`: they are none.
///
/// # Errors
/// [`Error::Memory`].
pub(super) fn schema(bytes: &[u8]) -> Result<Option<Schema>, Error> {
    let mut rest = Rest::new(bytes);
    let mut schema = Schema::default();
    let Some(keys) = rest.varint().filter(|count| *count <= KEYS_MAX) else { return Ok(None) };
    for _ in 0..keys {
        let Some(key) = sized(&mut rest) else { return Ok(None) };
        memory::push(&mut schema.keys, memory::copy(key)?)?;
    }
    let Some(phrases) = phrases(&mut rest)? else { return Ok(None) };
    schema.phrases = phrases;
    let Some(columns) = rest.varint().filter(|count| (1..=COLUMNS_MAX).contains(count)) else {
        return Ok(None);
    };
    let known = Known { keys, columns };
    for _ in 0..columns {
        let Some(column) = known.column(&mut rest)? else { return Ok(None) };
        memory::push(&mut schema.columns, column)?;
    }
    Ok(rest.bytes.is_empty().then_some(schema))
}

fn sized<'b>(rest: &mut Rest<'b>) -> Option<&'b [u8]> {
    let length = rest.varint()?;
    rest.take(length)
}

fn signed(rest: &mut Rest<'_>) -> Option<i128> {
    integer(sized(rest)?)
}

fn phrases(rest: &mut Rest<'_>) -> Result<Option<Phrases>, Error> {
    let mut phrases = Phrases::default();
    let Some(count) = rest.varint().filter(|count| *count <= PHRASES_MAX) else { return Ok(None) };
    for _ in 0..count {
        let Some(phrase) = sized(rest) else { return Ok(None) };
        if !phrases.push(phrase)? {
            return Ok(None);
        }
    }
    Ok(Some(phrases))
}

/// How many keys and columns there are.
struct Known {
    keys: usize,
    columns: usize,
}

impl Known {
    fn column(&self, rest: &mut Rest<'_>) -> Result<Option<Column>, Error> {
        let Some(count) = rest.varint().filter(|count| *count <= VALUES_MAX) else { return Ok(None) };
        let mut values = Vec::new();
        for _ in 0..count {
            let Some((what, bytes)) = value(rest) else { return Ok(None) };
            memory::push(&mut values, Value::new(what, memory::copy(bytes)?))?;
        }
        Ok(self.kind(rest).map(|kind| Column { values, kind }))
    }

    fn index(&self, rest: &mut Rest<'_>, count: usize) -> Option<u16> {
        rest.varint().filter(|index| *index < count)?.try_into().ok()
    }

    fn kind(&self, rest: &mut Rest<'_>) -> Option<Kind> {
        Some(match rest.byte()? {
            0 => Kind::Any,
            1 => Kind::Text,
            2 => Kind::Form(template(rest)?),
            3 => {
                let scale = u16::from(rest.byte()?);
                Kind::Number { scale: Some(scale).filter(|scale| *scale <= SCALE_MAX)?, base: signed(rest)? }
            }
            4 => Kind::Decimal,
            5 => Kind::Array { elements: self.index(rest, self.columns)? },
            6 => Kind::Record(self.record(rest)?),
            _ => return None,
        })
    }

    fn record(&self, rest: &mut Rest<'_>) -> Option<Record> {
        let mut record = Record::default();
        for _ in 0..rest.varint().filter(|count| *count <= self.keys)? {
            let child = (self.index(rest, self.keys)?, self.index(rest, self.columns)?);
            // In their order, so that they can be searched.
            record.children.last().is_none_or(|last| last.0 < child.0).then_some(())?;
            record.children.push(child);
        }
        for _ in 0..rest.varint().filter(|count| *count <= SHAPES_MAX)? {
            let mut slots = SLOTS_MAX;
            record.shapes.push(Shape::new(self.members(rest, &mut slots, INSIDE_MAX)?)?);
        }
        Some(record)
    }

    fn members(&self, rest: &mut Rest<'_>, slots: &mut usize, depth: usize) -> Option<Vec<Member>> {
        let depth = depth.checked_sub(1)?;
        let count = rest.varint().filter(|count| (1..=*slots).contains(count))?;
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            let head = rest.varint()?;
            let key = u16::try_from(head >> 1).ok().filter(|key| usize::from(*key) < self.keys)?;
            members.push(match head & 1 {
                0 => {
                    *slots = slots.checked_sub(1)?;
                    Member::Slot { key, column: self.index(rest, self.columns)? }
                }
                _ => Member::Object { key, shape: Shape::new(self.members(rest, slots, depth)?)? },
            });
        }
        Some(members)
    }
}

/// A value that jsonb could have.
fn value<'b>(rest: &mut Rest<'b>) -> Option<(What, &'b [u8])> {
    let what = [What::Text, What::Number, What::Container].into_iter().nth(rest.byte()?.into())?;
    let bytes = sized(rest)?;
    let is_fit = match what {
        What::Text => true,
        What::Number => is_numeric(bytes),
        What::Container => is_container(bytes),
    };
    is_fit.then_some((what, bytes))
}

/// Whether these bytes, and no others, are what the server would write for what they say.
fn is_container(bytes: &[u8]) -> bool {
    let is_canonical = |node: Node<'_>| depth(node, DEPTH_MAX).is_some();
    container(bytes).is_some_and(is_canonical)
}

fn depth(node: Node<'_>, left: usize) -> Option<()> {
    match node {
        Node::Array(of) | Node::Object(of) => {
            let left = left.checked_sub(1)?;
            let is_object = matches!(node, Node::Object(_));
            (of.is_canonical() && (!is_object || is_sorted(of))).then_some(())?;
            of.values().try_for_each(|value| depth(value?, left))
        }
        // The server reads as many digits as its header says.
        Node::Number(numeric) => is_numeric(numeric).then_some(()),
        Node::Null | Node::Bool(_) | Node::Text(_) => Some(()),
    }
}

fn template(rest: &mut Rest<'_>) -> Option<Template> {
    let base = signed(rest)?;
    let mut parts = Vec::new();
    for _ in 0..rest.varint().filter(|count| *count <= PARTS_MAX)? {
        parts.push(match rest.byte()? {
            0 => Part::Fixed(sized(rest)?.to_vec()),
            1 => Part::Digits {
                width: rest.byte()?,
                low: signed(rest)?.try_into().ok()?,
                count: signed(rest)?.try_into().ok()?,
            },
            what @ (2 | 3) => Part::Hex { digits: rest.byte()?, is_upper: what == 3 },
            _ => return None,
        });
    }
    Template::new(parts, base)
}
