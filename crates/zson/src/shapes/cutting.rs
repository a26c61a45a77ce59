//! Schemas cut to a size: what saves the least for its bytes is left out.

use super::merging::{GAIN_UNITS, Merged};
use super::pace::Pace;
use super::schema::{COLUMNS_MAX, Column, ColumnIndex, KeyIndex, Kind, Member, Record, Schema, Shape, Value};
use super::template::{Part, Template, integer_bytes};
use crate::error::Error;
use crate::memory;

/// What a column is good for.
#[derive(Clone, Default, Debug)]
pub(super) struct Use {
    /// Values that were met.
    pub(super) nodes: usize,
    /// About how many bytes each of its frequent values saves.
    pub(super) values: Vec<usize>,
    /// How many objects have each of its shapes.
    pub(super) shapes: Vec<usize>,
}

/// Bytes of the name, and of the counts of keys, phrases and columns at most.
const HEAD_BYTES: usize = 8 + 3 * 3;
/// What a column saves for each of its values, about, and a shape for each of its slots, in parts of [`GAIN_UNITS`] of a byte.
const NODE_GAIN: usize = 2 * GAIN_UNITS;
const SLOT_GAIN: usize = GAIN_UNITS;
/// Phrases count what they save in quarters of bytes.
const PHRASE_GAIN: usize = 4;
/// Nothing saves so many bytes for each of its own.
const GAIN_MAX: usize = 1 << 40;
/// What a look at a column is as work.
const COLUMN_WORK: usize = 64;

/// Bytes that a schema takes at most.
pub(super) fn size(schema: &Schema) -> usize {
    let keys: usize = schema.keys.iter().map(|key| sized(key.len())).sum();
    let columns: usize = schema.columns.iter().map(column_size).sum();
    let phrases: usize = schema.phrases.iter().map(|phrase| sized(phrase.len())).sum();
    HEAD_BYTES + keys + columns + phrases
}

/// Bytes of a number as LEB128.
pub(super) fn varint(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Bytes of so many bytes with their length.
pub(super) fn sized(length: usize) -> usize {
    varint(length) + length
}

fn column_size(column: &Column) -> usize {
    let values: usize = column.values.iter().map(|value| 1 + sized(value.bytes.len())).sum();
    varint(column.values.len()) + values + kind_size(&column.kind)
}

fn kind_size(kind: &Kind) -> usize {
    1 + match kind {
        Kind::Any | Kind::Text | Kind::Decimal => 0,
        Kind::Form(template) => template_size(template),
        Kind::Number { base, .. } => 1 + sized(integer_bytes(*base)),
        Kind::Array { elements } => varint((*elements).into()),
        Kind::Record(record) => {
            let child = |(key, column): &(KeyIndex, ColumnIndex)| {
                varint(usize::from(*key)) + varint(usize::from(*column))
            };
            let children: usize = record.children.iter().map(child).sum();
            let shapes: usize = record.shapes.iter().map(|shape| members_size(shape.members())).sum();
            varint(record.children.len()) + children + varint(record.shapes.len()) + shapes
        }
    }
}

fn template_size(template: &Template) -> usize {
    let part = |part: &Part| match part {
        Part::Fixed(bytes) => 1 + sized(bytes.len()),
        Part::Digits { low, count, .. } => {
            2 + sized(integer_bytes((*low).into())) + sized(integer_bytes((*count).into()))
        }
        Part::Hex { .. } => 2,
    };
    let parts: usize = template.parts().iter().map(part).sum();
    sized(integer_bytes(template.base())) + varint(template.parts().len()) + parts
}

fn members_size(members: &[Member]) -> usize {
    let member = |member: &Member| {
        let behind = match member {
            Member::Slot { column, .. } => varint((*column).into()),
            Member::Object { shape, .. } => members_size(shape.members()),
        };
        varint(usize::from(member.key()) << 1 | 1) + behind
    };
    varint(members.len()) + members.iter().map(member).sum::<usize>()
}

/// A schema without what saves less for each of its bytes than phrases in its place would; it and these phrases take at
/// most `bytes_max`. Nothing is left out if everything fits.
pub(super) fn cut(
    schema: &Schema,
    uses: &[Use],
    merged: &Merged,
    bytes_max: usize,
    pace: &mut Pace<'_>,
) -> Result<Schema, Error> {
    let (mut low, mut high) = (0, GAIN_MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        let kept = kept(schema, uses, middle, pace)?;
        let left = bytes_max.checked_sub(size(&kept));
        match left {
            Some(left) if merged.size(middle.saturating_mul(PHRASE_GAIN), pace)? <= left => high = middle,
            _ => low = middle + 1,
        }
    }
    kept(schema, uses, low, pace)
}

/// Of what is kept: where it is from now on.
struct Kept {
    columns: Vec<Option<ColumnIndex>>,
    keys: Vec<Option<KeyIndex>>,
    /// The column of slots whose own is left out.
    any: ColumnIndex,
}

/// The schema without what saves less than `gain` for each of its bytes.
fn kept(schema: &Schema, uses: &[Use], gain: usize, pace: &mut Pace<'_>) -> Result<Schema, Error> {
    let columns = columns(schema, uses, gain)?;
    let kept = Kept::of(schema, uses, gain, columns)?;
    let mut own = Schema::default();
    for (key, _) in schema.keys.iter().zip(&kept.keys).filter(|(_, index)| index.is_some()) {
        memory::push(&mut own.keys, memory::copy(key)?)?;
    }
    let mut is_any_used = false;
    for (at, (column, of)) in schema.columns.iter().zip(uses).enumerate() {
        pace.work(COLUMN_WORK)?;
        if kept.columns[at].is_none() {
            continue;
        }
        let mut values = Vec::new();
        for (value, saved) in column.values.iter().zip(&of.values) {
            if saved.saturating_mul(GAIN_UNITS) >= gain.saturating_mul(value.bytes.len() + 2) {
                let bytes = memory::copy(&value.bytes)?;
                memory::push(&mut values, Value::new(value.what, bytes))?;
            }
        }
        let kind = kept.kind(&column.kind, of, gain, &mut is_any_used)?;
        memory::push(&mut own.columns, Column { values, kind })?;
    }
    if is_any_used && own.columns.len() < COLUMNS_MAX {
        memory::push(&mut own.columns, Column::ANY)?;
    }
    Ok(own)
}

/// Which columns are kept: with a column, those that it is in.
fn columns(schema: &Schema, uses: &[Use], gain: usize) -> Result<Vec<bool>, Error> {
    let mut is_kept = Vec::new();
    memory::resize(&mut is_kept, schema.columns.len(), false)?;
    for (at, (column, of)) in schema.columns.iter().zip(uses).enumerate().rev() {
        let is_child_kept = |child: &ColumnIndex| is_kept.get(usize::from(*child)) == Some(&true);
        let (own, is_parent) = match &column.kind {
            Kind::Record(record) => (1, record.children.iter().any(|(_, column)| is_child_kept(column))),
            Kind::Array { elements } => (2, is_child_kept(elements)),
            kind => (kind_size(kind), false),
        };
        // With a child's key and column.
        let own = of.nodes.saturating_mul(NODE_GAIN) >= gain.saturating_mul(own + 4);
        is_kept[at] = at == 0 || own || is_parent;
    }
    Ok(is_kept)
}

fn is_shape_kept(shape: &Shape, objects: usize, gain: usize) -> bool {
    let saved = objects.saturating_mul(shape.slots() * SLOT_GAIN);
    saved >= gain.saturating_mul(members_size(shape.members()))
}

impl Kept {
    fn of(schema: &Schema, uses: &[Use], gain: usize, columns: Vec<bool>) -> Result<Kept, Error> {
        let mut are_needed = Vec::new();
        memory::resize(&mut are_needed, schema.keys.len(), false)?;
        for ((column, of), _) in schema.columns.iter().zip(uses).zip(&columns).filter(|(_, kept)| **kept) {
            let Kind::Record(record) = &column.kind else { continue };
            for (key, _) in record.children.iter().filter(|(_, column)| columns[usize::from(*column)]) {
                are_needed[usize::from(*key)] = true;
            }
            for (shape, objects) in record.shapes.iter().zip(&of.shapes) {
                if is_shape_kept(shape, *objects, gain) {
                    need(shape.members(), &mut are_needed);
                }
            }
        }
        let any = columns.iter().filter(|kept| **kept).count() as ColumnIndex;
        Ok(Kept { columns: numbered(&columns)?, keys: numbered(&are_needed)?, any })
    }

    fn kind(&self, kind: &Kind, of: &Use, gain: usize, is_any_used: &mut bool) -> Result<Kind, Error> {
        Ok(match kind {
            Kind::Any => Kind::Any,
            Kind::Text => Kind::Text,
            Kind::Form(template) => Kind::Form(template.copied()?),
            Kind::Number { scale, base } => Kind::Number { scale: *scale, base: *base },
            Kind::Decimal => Kind::Decimal,
            Kind::Array { elements } => match self.columns[usize::from(*elements)] {
                Some(elements) => Kind::Array { elements },
                None => Kind::Any,
            },
            Kind::Record(record) => {
                let mut own = Record::default();
                for (key, column) in &record.children {
                    let child = self.keys[usize::from(*key)].zip(self.columns[usize::from(*column)]);
                    if let Some(child) = child {
                        memory::push(&mut own.children, child)?;
                    }
                }
                for (shape, objects) in record.shapes.iter().zip(&of.shapes) {
                    if is_shape_kept(shape, *objects, gain)
                        && let Some(shape) = self.shape(shape, is_any_used)?
                    {
                        memory::push(&mut own.shapes, shape)?;
                    }
                }
                Kind::Record(own)
            }
        })
    }

    fn shape(&self, shape: &Shape, is_any_used: &mut bool) -> Result<Option<Shape>, Error> {
        let mut own = Vec::new();
        for member in shape.members() {
            let Some(key) = self.keys[usize::from(member.key())] else { continue };
            let member = match member {
                Member::Slot { column, .. } => {
                    let column = self.columns[usize::from(*column)];
                    *is_any_used |= column.is_none();
                    Member::Slot { key, column: column.unwrap_or(self.any) }
                }
                Member::Object { shape, .. } => match self.shape(shape, is_any_used)? {
                    Some(shape) => Member::Object { key, shape },
                    None => continue,
                },
            };
            memory::push(&mut own, member)?;
        }
        Ok(Shape::new(own))
    }
}

fn need(members: &[Member], are_needed: &mut [bool]) {
    for member in members {
        are_needed[usize::from(member.key())] = true;
        if let Member::Object { shape, .. } = member {
            need(shape.members(), are_needed);
        }
    }
}

/// The new places of those that are kept.
fn numbered(are_kept: &[bool]) -> Result<Vec<Option<u16>>, Error> {
    let mut next = 0u16;
    memory::collect(are_kept.iter().map(|is_kept| {
        is_kept.then(|| {
            next += 1;
            next - 1
        })
    }))
}
