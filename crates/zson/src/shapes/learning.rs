//! Schemas from samples.
//!
//! All values at a path are looked at together: which of them are frequent, what most or many of the others are, and which sets of keys
//! their objects have. A text that has neither a form nor is frequent is left to phrases, which get the room that is left.
//!
//! The same samples in the same order give the same schema. Whatever grows with samples does so by [`memory`], and
//! whoever waits is asked every few milliseconds.

use super::counting::{Map, entry};
pub(super) use super::cutting::size;
use super::cutting::{Use, cut};
use super::jsonb::{Container, Node, Root, root};
use super::merging::{Merged, merged};
use super::number::Number;
use super::pace::Pace;
use super::phrases;
use super::schema::{
    COLUMNS_MAX, Column, ColumnIndex, KEYS_MAX, KeyIndex, Kind, Member, Record, SHAPES_MAX, Schema, Shape,
    VALUES_MAX, Value, What,
};
use super::template::{best_base, learn};
use crate::error::Error;
use crate::limits::LONG_TEXT_BYTES_MIN;
use crate::memory;
use std::cmp::Reverse;

/// Containers in containers that are looked at.
const DEPTH_MAX: usize = 24;
/// A byte of a dictionary has to save so many bytes of the samples.
pub(super) const GAIN_PER_BYTE_MIN: usize = 3;
/// A path has a column from so many values on.
const COLUMN_VALUES_MIN: usize = 8;
/// Values of a column that decide its kind at most.
const KIND_VALUES_MAX: usize = 20_000;
/// Of a hundred values, so many are of the column's kind if it is one of texts or numbers: each of the others is a byte longer.
const KIND_SHARE_MIN: usize = 60;
/// The same for objects and arrays, which mostly save more than that.
const CONTAINER_SHARE_MIN: usize = 20;
/// Numbers of which so many in a hundred have the same decimals.
const SCALE_SHARE_MIN: usize = 95;
/// Bytes of texts that phrases are learned from, about; twice as many at most.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Texts that were left out are many from one byte in so many on.
const LEFT_OUT_ONE_IN: usize = 20;
/// Objects inside a shape have at most so many keys, of which so many in a hundred are there on average.
const INSIDE_KEYS_MAX: usize = 32;
const INSIDE_SHARE_MIN: usize = 50;
/// A key that so many in a hundred objects have is in the shape for those that have no shape of their own.
const COMMON_SHARE_MIN: usize = 15;
/// A shape is that of so many objects.
const SHAPE_OBJECTS_MIN: usize = 4;
/// What a look at a value is as work, beside its bytes.
const VALUE_WORK: usize = 16;

/// What was learned from samples; schemas of any size are cut from it.
pub(crate) struct Learned<'d> {
    /// Without phrases.
    schema: Schema,
    /// Of its columns.
    uses: Vec<Use>,
    texts: Vec<&'d [u8]>,
    merged: Merged,
    /// Many bytes of texts were left out.
    lacks_long: bool,
}

/// Looks at samples; phrases are made of long texts, too, if that is wanted. `proceed` is called every few milliseconds.
///
/// # Errors
/// [`Error::Memory`], and what `proceed` returns.
pub(crate) fn learned<'d>(
    samples: &[&'d [u8]],
    with_long: bool,
    proceed: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<Learned<'d>, Error> {
    let mut learner = Learner {
        schema: Schema::default(),
        uses: Vec::new(),
        keys: Map::default(),
        inside: Vec::new(),
        texts: Vec::new(),
        text_bytes_max: if with_long { usize::MAX } else { LONG_TEXT_BYTES_MIN - 1 },
        left_out: 0,
    };
    let mut pace = Pace::new(proceed);
    let mut nodes = Vec::new();
    for sample in samples {
        pace.work(VALUE_WORK)?;
        if let Some(Root::Container(node) | Root::Scalar(node)) = root(sample) {
            memory::push(&mut nodes, node)?;
        }
    }
    learner.add(&nodes, DEPTH_MAX, &mut pace)?;
    let Learner { schema, uses, texts, left_out, .. } = learner;
    let learned: usize = texts.iter().map(|text| text.len()).sum();
    let lacks_long = left_out * LEFT_OUT_ONE_IN > learned + left_out;
    let texts = some(&texts)?;
    let merged = merged(&texts, &mut pace)?;
    Ok(Learned { schema, uses, texts, merged, lacks_long })
}

impl Learned<'_> {
    /// Whether many bytes of texts were left out.
    pub(crate) fn lacks_long(&self) -> bool {
        self.lacks_long
    }

    /// A schema of at most so many bytes. `proceed` is called every few milliseconds.
    ///
    /// # Errors
    /// [`Error::Memory`], and what `proceed` returns.
    pub(crate) fn schema(
        &self,
        bytes_max: usize,
        proceed: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Schema, Error> {
        let mut pace = Pace::new(proceed);
        let mut schema = cut(&self.schema, &self.uses, &self.merged, bytes_max, &mut pace)?;
        let left = bytes_max.saturating_sub(size(&schema));
        schema.phrases = phrases::learn(&self.merged, &self.texts, left, &mut pace)?;
        Ok(schema)
    }
}

/// Every so many-th of the texts, so that there are not too many bytes of them.
fn some<'d>(texts: &[&'d [u8]]) -> Result<Vec<&'d [u8]>, Error> {
    let total: usize = texts.iter().map(|text| text.len()).sum();
    let step = total.div_ceil(TEXT_BYTES_MAX).max(1);
    let (mut some, mut left) = (Vec::new(), 2 * TEXT_BYTES_MAX);
    for text in texts.iter().step_by(step) {
        let text = &text[..text.len().min(left)];
        left -= text.len();
        memory::push(&mut some, text)?;
    }
    Ok(some)
}

struct Learner<'d> {
    schema: Schema,
    /// Of columns.
    uses: Vec<Use>,
    keys: Map<&'d [u8], KeyIndex>,
    /// Of columns: their objects may be inside a shape.
    inside: Vec<bool>,
    texts: Vec<&'d [u8]>,
    /// Texts of more bytes are left out.
    text_bytes_max: usize,
    /// Bytes of those.
    left_out: usize,
}

/// Values of a column by what they are.
#[derive(Default)]
struct Sorted<'d> {
    texts: Vec<&'d [u8]>,
    numbers: Vec<&'d [u8]>,
    objects: Vec<Container<'d>>,
    arrays: Vec<Container<'d>>,
}

impl<'d> Learner<'d> {
    /// Adds a column of these values. None: there are too many.
    fn add(
        &mut self,
        nodes: &[Node<'d>],
        depth: usize,
        pace: &mut Pace<'_>,
    ) -> Result<Option<ColumnIndex>, Error> {
        let index = self.schema.columns.len();
        if index >= COLUMNS_MAX {
            return Ok(None);
        }
        memory::push(&mut self.schema.columns, Column::ANY)?;
        memory::push(&mut self.inside, false)?;
        memory::push(&mut self.uses, Use { nodes: nodes.len(), ..Use::default() })?;
        let frequent = frequent(nodes, pace)?;
        for Frequent { what, bytes, gain, .. } in &frequent {
            memory::push(&mut self.schema.columns[index].values, Value::new(*what, memory::copy(bytes)?))?;
            memory::push(&mut self.uses[index].values, *gain)?;
        }
        let left = sorted(nodes, &frequent, pace)?;
        self.schema.columns[index].kind = self.kind(index, left, depth, pace)?;
        Ok(Some(index as ColumnIndex))
    }

    /// What most of a column's values are, or many of them.
    fn kind(
        &mut self,
        column: usize,
        of: Sorted<'d>,
        depth: usize,
        pace: &mut Pace<'_>,
    ) -> Result<Kind, Error> {
        let Sorted { texts, numbers, objects, arrays } = of;
        let all = texts.len() + numbers.len() + objects.len() + arrays.len();
        let are = |few: usize, share: usize| few > 0 && few * 100 >= all * share;
        if are(texts.len(), KIND_SHARE_MIN) {
            return self.text_kind(texts, pace);
        }
        if are(numbers.len(), KIND_SHARE_MIN) {
            return number_kind(&numbers, pace);
        }
        self.keep(texts)?;
        let most = objects.len().max(arrays.len());
        if !are(most, CONTAINER_SHARE_MIN) {
            return Ok(Kind::Any);
        }
        if most == arrays.len() {
            return self.array_kind(&arrays, depth, pace);
        }
        let (record, is_inside) = self.record(column, &objects, depth, pace)?;
        if record.children.is_empty() {
            return Ok(Kind::Any);
        }
        self.inside[column] = is_inside && objects.len() * 100 >= self.uses[column].nodes * 95;
        Ok(Kind::Record(record))
    }

    /// Phrases are made of these, but for long ones, unless they are wanted.
    fn keep(&mut self, texts: Vec<&'d [u8]>) -> Result<(), Error> {
        memory::reserve(&mut self.texts, texts.len())?;
        for text in texts {
            if text.len() <= self.text_bytes_max {
                self.texts.push(text);
            } else {
                self.left_out += text.len();
            }
        }
        Ok(())
    }

    fn text_kind(&mut self, texts: Vec<&'d [u8]>, pace: &mut Pace<'_>) -> Result<Kind, Error> {
        let step = texts.len().div_ceil(KIND_VALUES_MAX);
        let some = memory::collect(texts.iter().step_by(step).copied())?;
        Ok(match learn(&some, pace)? {
            Some(template) => Kind::Form(template),
            None => {
                self.keep(texts)?;
                Kind::Text
            }
        })
    }

    fn array_kind(
        &mut self,
        arrays: &[Container<'d>],
        depth: usize,
        pace: &mut Pace<'_>,
    ) -> Result<Kind, Error> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(Kind::Any) };
        let mut elements = Vec::new();
        for element in arrays.iter().flat_map(|array| array.values().flatten()) {
            pace.work(VALUE_WORK)?;
            memory::push(&mut elements, element)?;
        }
        if elements.is_empty() {
            return Ok(Kind::Any);
        }
        let elements = self.add(&elements, depth, pace)?;
        Ok(elements.map_or(Kind::Any, |elements| Kind::Array { elements }))
    }

    fn key(&mut self, key: &'d [u8]) -> Result<Option<KeyIndex>, Error> {
        if let Some(known) = self.keys.get(key) {
            return Ok(Some(*known));
        }
        let index = self.schema.keys.len();
        if index >= KEYS_MAX {
            return Ok(None);
        }
        memory::push(&mut self.schema.keys, memory::copy(key)?)?;
        *entry(&mut self.keys, key)? = index as KeyIndex;
        Ok(Some(index as KeyIndex))
    }

    fn record(
        &mut self,
        column: usize,
        objects: &[Container<'d>],
        depth: usize,
        pace: &mut Pace<'_>,
    ) -> Result<(Record, bool), Error> {
        let mut record = Record::default();
        let Some(depth) = depth.checked_sub(1) else { return Ok((record, false)) };
        let mut by_key: Map<&'d [u8], Vec<Node<'d>>> = Map::default();
        for object in objects {
            for (key, value) in pairs(*object) {
                pace.work(VALUE_WORK)?;
                memory::push(entry(&mut by_key, key)?, value)?;
            }
        }
        let many = by_key.into_iter().filter(|(_, values)| values.len() >= COLUMN_VALUES_MIN);
        let mut found: Vec<(&'d [u8], Vec<Node<'d>>)> = memory::collect(many)?;
        found.sort_unstable_by_key(|(key, values)| (Reverse(values.len()), *key));
        let present: usize = found.iter().map(|(_, values)| values.len()).sum();
        let is_inside = !objects.is_empty()
            && found.len() <= INSIDE_KEYS_MAX
            && present * 100 >= objects.len() * found.len() * INSIDE_SHARE_MIN
            && objects.iter().all(|object| object.count() > 0);
        for (key, values) in &found {
            let Some(index) = self.key(key)? else { continue };
            let Some(column) = self.add(values, depth, pace)? else { continue };
            memory::push(&mut record.children, (index, column))?;
        }
        record.children.sort_unstable();
        (record.shapes, self.uses[column].shapes) = self.shapes(&record, objects, pace)?;
        Ok((record, is_inside))
    }

    /// The shapes that most objects have, and one for the others; how many objects each has.
    fn shapes(
        &self,
        record: &Record,
        objects: &[Container<'d>],
        pace: &mut Pace<'_>,
    ) -> Result<(Vec<Shape>, Vec<usize>), Error> {
        // By their signatures: how many objects, and one of these.
        let mut counted: Map<Vec<u32>, Option<(usize, Container<'d>)>> = Map::default();
        let mut signature = Vec::new();
        for object in objects {
            pace.work(VALUE_WORK * (1 + object.count()))?;
            signature.clear();
            if !self.sign(record, *object, &mut signature)? {
                continue;
            }
            match counted.get_mut(&signature) {
                Some(Some((count, _))) => *count += 1,
                _ => {
                    let own = memory::collect(signature.iter().copied())?;
                    *entry(&mut counted, own)? = Some((1, *object));
                }
            }
        }
        let mut ranked = Vec::new();
        for (signature, found) in counted {
            let Some((count, object)) = found.filter(|(count, _)| *count >= SHAPE_OBJECTS_MIN) else {
                continue;
            };
            pace.work(VALUE_WORK * (1 + object.count()))?;
            if let Some(shape) = Shape::new(self.members(record, object)?) {
                memory::push(&mut ranked, (count, signature, shape))?;
            }
        }
        ranked.sort_unstable_by(|left, right| (right.0, &left.1).cmp(&(left.0, &right.1)));
        ranked.truncate(SHAPES_MAX - 1);
        let (mut shapes, mut uses, mut others) = (Vec::new(), Vec::new(), objects.len());
        for (count, _, shape) in ranked {
            others -= count;
            memory::push(&mut shapes, shape)?;
            memory::push(&mut uses, count)?;
        }
        let common = Shape::new(self.common(record, objects, pace)?);
        if let Some(common) = common.filter(|common| !shapes.contains(common)) {
            memory::push(&mut shapes, common)?;
            memory::push(&mut uses, others)?;
        }
        Ok((shapes, uses))
    }

    /// The objects of a column, if they are inside shapes.
    fn record_inside(&self, column: ColumnIndex) -> Option<&Record> {
        match &self.schema.columns[usize::from(column)].kind {
            Kind::Record(record) if self.inside[usize::from(column)] => Some(record),
            _ => None,
        }
    }

    /// What a member is: its key and column, and the object if it is one that may be inside.
    #[expect(clippy::type_complexity)]
    fn member(
        &self,
        record: &Record,
        key: &[u8],
        value: Node<'d>,
    ) -> Option<(KeyIndex, ColumnIndex, Option<(&Record, Container<'d>)>)> {
        let key = *self.keys.get(key)?;
        let column = record.child(key)?;
        let inside = match value {
            Node::Object(object) if object.count() > 0 => {
                self.record_inside(column).map(|inside| (inside, object))
            }
            _ => None,
        };
        Some((key, column, inside))
    }

    /// Says which keys an object has; false if one of them has no column.
    fn sign(&self, record: &Record, of: Container<'d>, signature: &mut Vec<u32>) -> Result<bool, Error> {
        for (key, value) in pairs(of) {
            let Some((key, _, inside)) = self.member(record, key, value) else { return Ok(false) };
            memory::push(signature, key.into())?;
            if let Some((inside, object)) = inside {
                let known = signature.len();
                memory::push(signature, u32::MAX)?;
                match self.sign(inside, object, signature)? {
                    true => memory::push(signature, u32::MAX - 1)?,
                    false => signature.truncate(known),
                }
            }
        }
        Ok(true)
    }

    fn members(&self, record: &Record, of: Container<'d>) -> Result<Vec<Member>, Error> {
        let (mut members, mut signature) = (Vec::new(), Vec::new());
        for (key, value) in pairs(of) {
            let Some((key, column, inside)) = self.member(record, key, value) else { continue };
            let mut member = Member::Slot { key, column };
            if let Some((inside, object)) = inside {
                signature.clear();
                if self.sign(inside, object, &mut signature)?
                    && let Some(shape) = Shape::new(self.members(inside, object)?)
                {
                    member = Member::Object { key, shape };
                }
            }
            memory::push(&mut members, member)?;
        }
        Ok(members)
    }

    /// All keys that many objects have.
    fn common(
        &self,
        record: &Record,
        objects: &[Container<'d>],
        pace: &mut Pace<'_>,
    ) -> Result<Vec<Member>, Error> {
        let mut inner: Map<&'d [u8], (usize, Vec<Container<'d>>)> = Map::default();
        for of in objects {
            for (key, value) in pairs(*of) {
                pace.work(VALUE_WORK)?;
                let (count, inner) = entry(&mut inner, key)?;
                *count += 1;
                if let Node::Object(of) = value {
                    memory::push(inner, of)?;
                }
            }
        }
        let many = |(_, (count, _)): &(&&'d [u8], &(usize, Vec<Container<'d>>))| {
            *count * 100 >= objects.len() * COMMON_SHARE_MIN
        };
        let mut keys: Vec<&'d [u8]> = memory::collect(inner.iter().filter(many).map(|(key, _)| *key))?;
        keys.sort_unstable_by_key(|key| (key.len(), *key));
        let mut common = Vec::new();
        for key in keys {
            let Some(index) = self.keys.get(key).copied() else { continue };
            let Some(column) = record.child(index) else { continue };
            let mut member = Member::Slot { key: index, column };
            if let (Some(inside), Some((_, of))) = (self.record_inside(column), inner.get(key))
                && let Some(shape) = Shape::new(self.common(inside, of, pace)?)
            {
                member = Member::Object { key: index, shape };
            }
            memory::push(&mut common, member)?;
        }
        Ok(common)
    }
}

/// The values that are not frequent.
fn sorted<'d>(
    nodes: &[Node<'d>],
    frequent: &[Frequent<'d>],
    pace: &mut Pace<'_>,
) -> Result<Sorted<'d>, Error> {
    let mut known = Map::default();
    for Frequent { what, bytes, .. } in frequent {
        *entry(&mut known, (*what, *bytes))? = true;
    }
    let mut sorted = Sorted::default();
    for node in nodes {
        let Some(found) = raw(*node) else { continue };
        pace.work(VALUE_WORK + found.1.len() / 8)?;
        if known.contains_key(&found) {
            continue;
        }
        match *node {
            Node::Null | Node::Bool(_) => {}
            Node::Text(text) => memory::push(&mut sorted.texts, text)?,
            Node::Number(numeric) => memory::push(&mut sorted.numbers, numeric)?,
            Node::Array(array) => memory::push(&mut sorted.arrays, array)?,
            Node::Object(object) => memory::push(&mut sorted.objects, object)?,
        }
    }
    Ok(sorted)
}

fn raw(node: Node<'_>) -> Option<(What, &[u8])> {
    match node {
        Node::Null | Node::Bool(_) => None,
        Node::Text(text) => Some((What::Text, text)),
        Node::Number(numeric) => Some((What::Number, numeric)),
        Node::Array(of) | Node::Object(of) => Some((What::Container, of.bytes())),
    }
}

/// The members of an object that can be read.
fn pairs<'d>(object: Container<'d>) -> impl Iterator<Item = (&'d [u8], Node<'d>)> {
    object.keys().zip(object.values()).filter_map(|(key, value)| key.zip(value))
}

/// A value that a token pays for.
struct Frequent<'d> {
    gain: usize,
    count: usize,
    what: What,
    bytes: &'d [u8],
}

/// Values that a token pays for, the most frequent first.
fn frequent<'d>(nodes: &[Node<'d>], pace: &mut Pace<'_>) -> Result<Vec<Frequent<'d>>, Error> {
    let mut counts: Map<(What, &[u8]), usize> = Map::default();
    for found in nodes.iter().filter_map(|node| raw(*node)) {
        pace.work(VALUE_WORK + found.1.len() / 8)?;
        *entry(&mut counts, found)? += 1;
    }
    let cost = |what: What, bytes: &[u8]| match what {
        What::Text => bytes.len().div_ceil(3).min(16),
        What::Number => bytes.len().saturating_sub(4).div_ceil(2).min(4),
        What::Container => bytes.len().div_ceil(8).min(24),
    };
    let worth = |((what, bytes), count): ((What, &'d [u8]), usize)| {
        let gain = cost(what, bytes) * count;
        (count > 2 && gain >= GAIN_PER_BYTE_MIN * (bytes.len() + 2)).then_some(Frequent {
            gain,
            count,
            what,
            bytes,
        })
    };
    let mut ranked = memory::collect(counts.into_iter().filter_map(worth))?;
    if ranked.len() > VALUES_MAX {
        ranked.select_nth_unstable_by_key(VALUES_MAX, |of| (Reverse(of.gain), of.bytes, of.what as u8));
        ranked.truncate(VALUES_MAX);
    }
    ranked.sort_unstable_by_key(|of| (Reverse(of.count), of.bytes, of.what as u8));
    Ok(ranked)
}

fn number_kind(numerics: &[&[u8]], pace: &mut Pace<'_>) -> Result<Kind, Error> {
    let step = numerics.len().div_ceil(KIND_VALUES_MAX);
    let some = numerics.iter().step_by(step);
    pace.work(VALUE_WORK * some.len())?;
    let numbers: Vec<Number> = memory::collect(some.filter_map(|numeric| Number::of(numeric)))?;
    let mut scales: Map<u16, usize> = Map::default();
    for number in &numbers {
        *entry(&mut scales, number.scale)? += 1;
    }
    let most = scales.into_iter().max_by_key(|(scale, count)| (*count, *scale));
    Ok(match most {
        Some((scale, count)) if count * 100 >= numbers.len() * SCALE_SHARE_MIN => {
            let alike = numbers.iter().filter(|number| number.scale == scale).map(|number| number.integer);
            let mut integers: Vec<i128> = memory::collect(alike)?;
            integers.sort_unstable();
            Kind::Number { scale, base: best_base(&integers) }
        }
        _ => Kind::Decimal,
    })
}

#[cfg(test)]
mod tests;
