//! Documents into payloads.
//!
//! ```text
//!  value       a token, and what the token says that there is
//!  record      the number of its shape, from 1 | a token for each slot | what the tokens say, in the same order
//!  further     120 and the number of its shape | as of a record | how many keys | and so on, as of an other
//!  other       0 | how many keys | keys | a token for each value | what the tokens say
//!  array       how many elements | a token for each | what the tokens say
//! ```
//!
//! Invariants:
//! 1. A payload grows only where [`Out`] has said that there is room, so nothing is allocated for it.
//! 2. What is remembered of a set of keys is a guess: an object that does not fit its shape gets another.

use super::earlier::{self, Earlier, Pairs};
use super::further::{self, FURTHER_MAX, Places, is_before, is_sorted};
use super::index::{Index, hash_of, mix};
use super::jsonb::{Container, Node, Root, container, root};
use super::long::Long;
use super::matching::Matcher;
use super::number::{Number, SCALE_MAX, is_numeric};
use super::out::Out;
use super::patching::Patched;
use super::schema::{
    ABSENT, BYTES, Column, ColumnIndex, FALSE, KeyIndex, Kind, LONG, Layout, Member, NULL, Record,
    SHAPES_MAX, Schema, Shape, TRUE, Value, What,
};
use crate::error::Error;
use crate::memory;

/// Containers in containers at most; documents that are deeper are stored in another way.
pub(super) const DEPTH_MAX: usize = 64;
/// Sets of keys whose shape is remembered; a power of two.
const REMEMBERED: usize = 1 << 12;

/// What a value of any kind begins with.
pub(super) const ANY_CODES: u8 = 1;
pub(super) const ANY_TEXT: u8 = 2;
pub(super) const ANY_INTEGER: u8 = 3;
pub(super) const ANY_NUMERIC: u8 = 4;
pub(super) const ANY_ARRAY: u8 = 5;
pub(super) const ANY_OBJECT: u8 = 6;
pub(super) const ANY_ZSTD_BLOCK: u8 = 7;
pub(super) const ANY_ZSTD_BLOCKS: u8 = 8;

/// What writing needs of a schema besides the schema.
#[derive(Debug)]
pub(super) struct Tables {
    matcher: Matcher,
    /// Column and number of a value, as [`number_of`] has it.
    values: Index,
    /// Of each column: a bit for each length, modulo 64, that a frequent value has.
    lengths: Vec<u64>,
    /// Of each column: a bit for each key, by its hash, whose objects are inside any of its shapes.
    inside: Vec<u64>,
}

/// Shapes of sets of keys that were met, of any schemas.
#[derive(Default, Debug)]
pub(crate) struct Remembered {
    /// By the lower bits of a hash: the hash, and the number in front of an object.
    slots: Vec<(u64, u32)>,
}

/// What is written.
#[derive(Copy, Clone, Debug)]
pub(super) struct Source<'f> {
    pub(super) jsonb: &'f [u8],
    /// A document with which it may have values in common.
    pub(super) earlier: Option<Earlier<'f>>,
}

/// What was written.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Written {
    /// The document itself is an object of none of the shapes, or has keys that its shape lacks.
    pub(super) is_strange: bool,
    /// It is an object of the earlier one's shape, and has values of it.
    pub(super) is_like_earlier: bool,
    /// Bytes of the payload that zstd has made of one long text, at most.
    pub(super) longest: usize,
}

fn number_of(column: ColumnIndex, value: usize) -> u32 {
    u32::from(column) << 8 | value as u32
}

/// The keys of objects inside a column's shapes, as bits.
fn inside_of(schema: &Schema, column: &Column) -> u64 {
    fn of_shape(schema: &Schema, shape: &Shape) -> u64 {
        shape.members().iter().fold(0, |bits, member| match member {
            Member::Slot { .. } => bits,
            Member::Object { key, shape } => {
                let own =
                    schema.keys.get(usize::from(*key)).map_or(0, |key| bit_of(hash_of(0, key) as usize));
                bits | own | of_shape(schema, shape)
            }
        })
    }
    match &column.kind {
        Kind::Record(record) => record.shapes.iter().fold(0, |bits, shape| bits | of_shape(schema, shape)),
        _ => 0,
    }
}

fn bit_of(length: usize) -> u64 {
    1 << (length % 64)
}

fn seed_of(column: ColumnIndex, what: What) -> u64 {
    u64::from(column) << 2 | what as u64
}

impl Tables {
    pub(super) fn new(schema: &Schema) -> Result<Tables, Error> {
        let count = schema.columns.iter().map(|column| column.values.len()).sum();
        let mut values = Index::with_room_for(count)?;
        for (column, of) in (0..).zip(&schema.columns) {
            for (at, Value { what, bytes, .. }) in of.values.iter().enumerate() {
                values.insert(hash_of(seed_of(column, *what), bytes), number_of(column, at));
            }
        }
        let lengths_of = |column: &Column| {
            column.values.iter().fold(0, |lengths, value| lengths | bit_of(value.bytes.len()))
        };
        let lengths = memory::collect(schema.columns.iter().map(lengths_of))?;
        let inside = memory::collect(schema.columns.iter().map(|column| inside_of(schema, column)))?;
        Ok(Tables { lengths, inside, matcher: Matcher::new(&schema.phrases)?, values })
    }

    /// Bytes of memory.
    pub(super) fn memory_size(&self) -> usize {
        self.matcher.memory_size()
            + self.values.memory_size()
            + (self.lengths.capacity() + self.inside.capacity()) * size_of::<u64>()
    }
}

impl Remembered {
    /// The number in front of an object.
    fn get(&self, hash: u64) -> Option<u32> {
        let (known, shape) = *self.slots.get(hash as usize % REMEMBERED)?;
        (known == hash).then_some(shape)
    }

    fn put(&mut self, hash: u64, shape: u32) {
        if let Some(slot) = self.slots.get_mut(hash as usize % REMEMBERED) {
            *slot = (hash, shape);
        }
    }

    /// Makes room, once.
    fn prepare(&mut self) -> Result<(), Error> {
        if self.slots.is_empty() {
            memory::reserve_exact(&mut self.slots, REMEMBERED)?;
            self.slots.resize(REMEMBERED, (0, 0));
        }
        Ok(())
    }

    /// Bytes of memory.
    pub(crate) fn memory_size(&self) -> usize {
        self.slots.capacity() * size_of::<(u64, u32)>()
    }
}

/// Appends the payload of a document to `out`, by a schema whose keys are indexed. `Ok(None)`: it is no jsonb, nested too deeply, or its payload would be
/// longer than `room`; what was appended means nothing.
///
/// # Errors
/// [`Error::Memory`], and those of `long`.
pub(super) fn write(
    schema: &Schema,
    tables: &Tables,
    (remembered, long): (&mut Remembered, Long<'_, '_>),
    source: Source<'_>,
    room: usize,
    out: &mut Vec<u8>,
) -> Result<Option<Written>, Error> {
    remembered.prepare()?;
    let earlier = source.earlier.and_then(|earlier| earlier.shaped(schema));
    let with =
        Writing { schema, tables, remembered, long, earlier, written: Written::default(), failed: None };
    with.appended(room, out, |writing, out| {
        writing.document(source.jsonb, out)?;
        Some(writing.written)
    })
}

/// Appends the payload of a document of `raw_len` bytes in which the values of `patch` replace those of its keys. `Ok(None)`: it
/// needs the document, or its payload would be longer than `room`; what was appended means nothing.
///
/// # Errors
/// [`Error::Memory`], and those of `long`.
pub(super) fn patch(
    schema: &Schema,
    tables: &Tables,
    (remembered, long): (&mut Remembered, Long<'_, '_>),
    (document, patch): ((&[u8], usize), &[u8]),
    room: usize,
    out: &mut Vec<u8>,
) -> Result<Option<Patched>, Error> {
    let written = Written::default();
    let with = Writing { schema, tables, remembered, long, earlier: None, written, failed: None };
    with.appended(room, out, |writing, out| writing.patched(document, patch, out))
}

/// How a value is written.
pub(super) enum Found {
    /// The token says all.
    Token(u8),
    /// By the bytes that were appended, which are of the column's kind or say themselves what they are.
    Stored { is_any: bool },
}

/// The token of so many bytes, if it says how many.
fn short(is_any: bool, length: usize) -> Option<u8> {
    (!is_any && length < usize::from(LONG - BYTES)).then(|| BYTES + length as u8)
}

/// Makes room for the token of a document, as if it were long, which most are: it says that nothing is behind the document.
/// Returns where that is.
pub(super) fn begin_document(out: &mut Out<'_>) -> Option<usize> {
    out.tokens(HEAD_BYTES, LONG)
}

/// Completes a document whose token is to be at `head`.
pub(super) fn end_document(head: usize, found: Found, out: &mut Out<'_>) -> Option<()> {
    let length = out.bytes.len().checked_sub(head + HEAD_BYTES)?;
    let (token, is_any) = match found {
        Found::Token(token) => (Some(token), false),
        Found::Stored { is_any } => (short(is_any, length), is_any),
    };
    if let Some(token) = token {
        out.bytes.remove(head);
        *out.bytes.get_mut(head)? = token;
    } else {
        *out.bytes.get_mut(head + 1)? = is_any.into();
    }
    Some(())
}

/// Of a document that is long.
const HEAD_BYTES: usize = 2;

pub(super) struct Writing<'w, 'p> {
    pub(super) schema: &'w Schema,
    tables: &'w Tables,
    remembered: &'w mut Remembered,
    long: Long<'w, 'p>,
    earlier: Option<earlier::Shaped<'w>>,
    written: Written,
    /// Why it ended, if an error ended it.
    failed: Option<Error>,
}

impl<'w, 'p> Writing<'w, 'p> {
    /// What `append` makes of it, which appends at most `room` bytes.
    fn appended<R>(
        mut self,
        room: usize,
        out: &mut Vec<u8>,
        append: impl FnOnce(&mut Self, &mut Out<'_>) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        memory::reserve(out, room)?;
        let most = out.len() + room;
        let done = append(&mut self, &mut Out { bytes: out, most });
        match self.failed {
            Some(error) => Err(error),
            None => Ok(done),
        }
    }

    fn document(&mut self, jsonb: &[u8], out: &mut Out<'_>) -> Option<()> {
        let node = match root(jsonb)? {
            Root::Container(node) => node,
            Root::Scalar(node) => {
                let (Node::Array(wrapped) | Node::Object(wrapped)) = container(jsonb)? else { return None };
                wrapped.is_canonical_scalar().then_some(())?;
                node
            }
        };
        let head = begin_document(out)?;
        let found = self.found(Some(0), node, DEPTH_MAX, out)?;
        end_document(head, found, out)
    }

    /// Appends what the token that is returned says that there is.
    pub(super) fn value(
        &mut self,
        column: Option<ColumnIndex>,
        node: Node<'_>,
        depth: usize,
        out: &mut Out<'_>,
    ) -> Option<u8> {
        let start = out.bytes.len();
        let is_any = match self.found(column, node, depth, out)? {
            Found::Token(token) => return Some(token),
            Found::Stored { is_any } => is_any,
        };
        let length = out.bytes.len() - start;
        if let Some(token) = short(is_any, length) {
            return Some(token);
        }
        out.insert_varint(start, length << 1 | usize::from(is_any))?;
        Some(LONG)
    }

    /// Appends what there is of a value, if a token does not say all.
    fn found(
        &mut self,
        column: Option<ColumnIndex>,
        node: Node<'_>,
        depth: usize,
        out: &mut Out<'_>,
    ) -> Option<Found> {
        let (what, bytes) = match node {
            Node::Null => return Some(Found::Token(NULL)),
            Node::Bool(true) => return Some(Found::Token(TRUE)),
            Node::Bool(false) => return Some(Found::Token(FALSE)),
            Node::Text(text) => (What::Text, text),
            Node::Number(numeric) => (What::Number, numeric),
            Node::Array(of) | Node::Object(of) => (What::Container, of.bytes()),
        };
        let schema = self.schema;
        let of = column.and_then(|column| schema.columns.get(usize::from(column)));
        if let (Some(column), Some(of)) = (column, of)
            && let Some(token) = self.frequent(column, &of.values, what, bytes)
        {
            return Some(Found::Token(token));
        }
        let start = out.bytes.len();
        let kind = of.map_or(&Kind::Any, |of| &of.kind);
        let is_of_kind = self.of_kind(kind, column, node, depth, out)?;
        if !is_of_kind {
            out.bytes.truncate(start);
            self.any(node, depth, out)?;
        }
        Some(Found::Stored { is_any: !is_of_kind && !matches!(kind, Kind::Any) })
    }

    /// The token of a value that is one of the column's frequent ones.
    fn frequent(&self, column: ColumnIndex, values: &[Value], what: What, bytes: &[u8]) -> Option<u8> {
        if self.tables.lengths.get(usize::from(column)).is_none_or(|known| known & bit_of(bytes.len()) == 0) {
            return None;
        }
        let is_it = |number: u32| {
            number >> 8 == u32::from(column)
                && values
                    .get((number & 0xff) as usize)
                    .is_some_and(|value| value.what == what && value.bytes == bytes)
        };
        let number = self.tables.values.find(hash_of(seed_of(column, what), bytes), is_it)?;
        Some(number as u8)
    }

    /// Appends a value of the column's kind; false if it is none, and what was appended is to be taken back.
    fn of_kind(
        &mut self,
        kind: &Kind,
        column: Option<ColumnIndex>,
        node: Node<'_>,
        depth: usize,
        out: &mut Out<'_>,
    ) -> Option<bool> {
        Some(match (kind, node) {
            (Kind::Text, Node::Text(text)) if self.long.is_for(text) => false,
            (Kind::Text, Node::Text(text)) => self.codes(text, out)? <= text.len() + 1,
            (Kind::Form(template), Node::Text(text)) => {
                // Its runs are no longer than they were, and an integer comes behind them.
                out.has_room(text.len() + size_of::<i128>())?;
                template.encode(text, out.bytes)
            }
            (Kind::Number { scale, base }, Node::Number(numeric)) => match Number::of(numeric) {
                Some(number) if number.scale == *scale => match number.integer.checked_sub(*base) {
                    Some(integer) => {
                        out.integer(integer)?;
                        true
                    }
                    None => false,
                },
                _ => false,
            },
            (Kind::Decimal, Node::Number(numeric)) => decimal(numeric, out)?,
            (Kind::Array { elements }, Node::Array(array)) => {
                self.array(Some(*elements), array, depth, out)?;
                true
            }
            (Kind::Record(record), Node::Object(object)) => {
                self.record(column.unwrap_or(0), record, object, depth, out)?;
                true
            }
            _ => false,
        })
    }

    /// Appends the codes of a text. Returns how many bytes they are.
    fn codes(&self, text: &[u8], out: &mut Out<'_>) -> Option<usize> {
        out.has_room(2 * text.len())?;
        let start = out.bytes.len();
        self.tables.matcher.encode(text, out.bytes);
        Some(out.bytes.len() - start)
    }

    /// A value with a byte that says what it is.
    fn any(&mut self, node: Node<'_>, depth: usize, out: &mut Out<'_>) -> Option<()> {
        let start = out.bytes.len();
        match node {
            Node::Text(text) if self.long.is_for(text) => self.long_text(text, out)?,
            Node::Text(text) => self.any_text(text, out)?,
            Node::Number(numeric) => {
                out.push(ANY_INTEGER)?;
                if !decimal(numeric, out)? {
                    // Of another length than it says it would not be read.
                    is_numeric(numeric).then_some(())?;
                    out.bytes.truncate(start);
                    out.push(ANY_NUMERIC)?;
                    out.append(numeric)?;
                }
            }
            Node::Array(array) => {
                out.push(ANY_ARRAY)?;
                self.array(None, array, depth, out)?;
            }
            Node::Object(object) => {
                out.push(ANY_OBJECT)?;
                self.other(None, object, depth, out)?;
            }
            Node::Null | Node::Bool(_) => return None,
        }
        Some(())
    }

    /// A text in codes, or as it is if that is shorter.
    fn any_text(&self, text: &[u8], out: &mut Out<'_>) -> Option<()> {
        let start = out.bytes.len();
        out.push(ANY_CODES)?;
        if self.codes(text, out)? > text.len() {
            out.bytes.truncate(start);
            out.push(ANY_TEXT)?;
            out.append(text)?;
        }
        Some(())
    }

    /// The same, or by zstd if that takes at most half of the text, or is shorter.
    fn long_text(&mut self, text: &[u8], out: &mut Out<'_>) -> Option<()> {
        let start = out.bytes.len();
        out.push(0)?;
        out.has_room(Long::room_for(text))?;
        match self.long.append(text, out.bytes) {
            Ok(what) => *out.bytes.get_mut(start)? = what,
            Err(error) => {
                self.failed = Some(error);
                return None;
            }
        }
        let end = out.bytes.len();
        if 2 * (end - start) > text.len() && self.replaced_by_codes(text, start, out)? {
            return Some(());
        }
        self.written.longest = self.written.longest.max(end - start);
        Some(())
    }

    /// Puts a text in codes, or as it is, in the place of what zstd has made of it from `start` on, if that is shorter. False, and
    /// nothing has changed, if it is not.
    fn replaced_by_codes(&self, text: &[u8], start: usize, out: &mut Out<'_>) -> Option<bool> {
        let end = out.bytes.len();
        if out.has_room(1 + 2 * text.len()).is_none() {
            // There is no room for both.
            if end - start <= text.len() {
                return Some(false);
            }
            out.bytes.truncate(start);
            self.any_text(text, out)?;
            return Some(true);
        }
        self.any_text(text, out)?;
        let is_shorter = out.bytes.len() - end < end - start;
        if is_shorter {
            out.bytes.drain(start..end);
        } else {
            out.bytes.truncate(end);
        }
        Some(is_shorter)
    }

    fn array(
        &mut self,
        elements: Option<ColumnIndex>,
        array: Container<'_>,
        depth: usize,
        out: &mut Out<'_>,
    ) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        array.is_canonical().then_some(())?;
        out.varint(array.count())?;
        let tokens = out.tokens(array.count(), 0)?;
        for (at, element) in (tokens..).zip(array.values()) {
            let token = self.value(elements, element?, depth, out)?;
            *out.bytes.get_mut(at)? = token;
        }
        Some(())
    }

    fn record(
        &mut self,
        column: ColumnIndex,
        record: &Record,
        object: Container<'_>,
        depth: usize,
        out: &mut Out<'_>,
    ) -> Option<()> {
        object.is_canonical().then_some(())?;
        let inside = self.tables.inside.get(usize::from(column)).copied().unwrap_or(0);
        let hash = hash_of_keys(object, inside, DEPTH_MAX, mix(self.schema.seed, column.into()))?;
        let start = out.bytes.len();
        let remembered = self.remembered.get(hash);
        if let Some(number @ 1..) = remembered {
            if self.numbered(record, number, object, depth, out)? {
                return Some(());
            }
            // Other keys have the same hash.
            out.bytes.truncate(start);
        }
        if remembered != Some(0) {
            let number = self.best_number(record, object);
            self.remembered.put(hash, number);
            if number > 0 && self.numbered(record, number, object, depth, out)? {
                return Some(());
            }
            out.bytes.truncate(start);
        }
        self.written.is_strange |= column == 0 && depth == DEPTH_MAX;
        self.other(Some(record), object, depth, out)
    }

    /// The number in front of an object.
    fn best_number(&self, record: &Record, object: Container<'_>) -> u32 {
        let fitting = self.best_shape(record, object).map(|at| at + 1);
        let lacking = || further::best_shape(self.schema, record, object).map(|at| at + 1 + SHAPES_MAX);
        fitting.or_else(lacking).unwrap_or(0) as u32
    }

    /// Appends an object by its number, from 1. False: it does not fit.
    fn numbered(
        &mut self,
        record: &Record,
        number: u32,
        object: Container<'_>,
        depth: usize,
        out: &mut Out<'_>,
    ) -> Option<bool> {
        let (shape, has_further) = match record.layout(number as usize) {
            Some(Layout::Shape(shape)) => (shape, false),
            Some(Layout::Further(shape)) => (shape, true),
            Some(Layout::Keys) | None => return Some(false),
        };
        if has_further && !is_sorted(object) {
            // Its keys would be read in another order.
            return Some(false);
        }
        out.varint(number as usize)?;
        let mut token = out.tokens(shape.slots(), ABSENT)?;
        let inside = depth.checked_sub(1)?;
        let is_document = depth == DEPTH_MAX;
        let earlier = self.earlier.filter(|_| is_document).and_then(|earlier| earlier.members(shape));
        if !has_further && earlier.is_none() {
            return self.members(shape, object, inside, &mut token, out);
        }
        self.written.is_strange |= is_document && has_further;
        let mut further = Places::new(if has_further { FURTHER_MAX } else { 0 });
        let written = self.members_known((shape, token), (object, earlier), inside, &mut further, out)?;
        if written && has_further {
            let pairs =
                further.as_slice().iter().map(|at| (object.key(*at as usize), object.value(*at as usize)));
            self.pairs(Some(record), (further.as_slice().len(), pairs), inside, out)?;
        }
        Some(written)
    }

    /// The members that an object has of a shape; the places of its other pairs. False: these are too many.
    fn members_known<'e>(
        &mut self,
        (shape, mut token): (&Shape, usize),
        (object, mut earlier): (Container<'_>, Option<earlier::Members<'e, impl Pairs<'e>>>),
        depth: usize,
        further: &mut Places,
        out: &mut Out<'_>,
    ) -> Option<bool> {
        let schema = self.schema;
        let mut pairs = (0..).zip(object.keys().zip(object.values())).peekable();
        for member in shape.members() {
            let key: &[u8] = schema.keys.get(usize::from(member.key()))?;
            while let Some((at, _)) = pairs.next_if(|(_, (of, _))| of.is_some_and(|of| is_before(of, key))) {
                if !further.add(at) {
                    return Some(false);
                }
            }
            let (start, first) = (out.bytes.len(), token);
            let stored = earlier.as_mut().and_then(|earlier| earlier.next(member, key));
            let pair = pairs.next_if(|(_, (found, _))| *found == Some(key));
            let is_written = match (pair, stored) {
                (Some((_, (_, node))), Some(stored)) if node? == stored.node => {
                    out.append(stored.bytes)?;
                    token += member.slots();
                    out.bytes.get_mut(first..token)?.copy_from_slice(stored.tokens);
                    self.written.is_like_earlier = true;
                    true
                }
                (Some((_, (_, node))), _) => self.member(member, node?, depth, &mut token, out)?,
                (None, _) => false,
            };
            if is_written {
                continue;
            }
            // What was begun is taken back.
            out.bytes.truncate(start);
            token = first + member.slots();
            out.bytes.get_mut(first..token)?.fill(ABSENT);
            if pair.is_some_and(|(at, _)| !further.add(at)) {
                return Some(false);
            }
        }
        Some(pairs.all(|(at, _)| further.add(at)))
    }

    /// The members of an object; false if it has others.
    fn members(
        &mut self,
        shape: &Shape,
        object: Container<'_>,
        depth: usize,
        token: &mut usize,
        out: &mut Out<'_>,
    ) -> Option<bool> {
        if shape.is_whole(object) {
            for (member, node) in shape.members().iter().zip(object.values()) {
                if !self.member(member, node?, depth, token, out)? {
                    return Some(false);
                }
            }
            return Some(true);
        }
        let mut pairs = object.keys().zip(object.values()).peekable();
        let schema = self.schema;
        for member in shape.members() {
            let key = schema.keys.get(usize::from(member.key()))?;
            let Some((_, node)) = pairs.next_if(|(found, _)| *found == Some(key)) else {
                *token += member.slots();
                continue;
            };
            if !self.member(member, node?, depth, token, out)? {
                return Some(false);
            }
        }
        Some(pairs.next().is_none())
    }

    /// A member that an object has; false if it does not fit.
    #[inline]
    fn member(
        &mut self,
        member: &Member,
        node: Node<'_>,
        depth: usize,
        token: &mut usize,
        out: &mut Out<'_>,
    ) -> Option<bool> {
        match (member, node) {
            (Member::Slot { column, .. }, node) => {
                let written = self.value(Some(*column), node, depth, out)?;
                *out.bytes.get_mut(*token)? = written;
                *token += 1;
                Some(true)
            }
            (Member::Object { shape, .. }, Node::Object(object)) if object.count() > 0 => {
                object.is_canonical().then_some(())?;
                self.members(shape, object, depth.checked_sub(1)?, token, out)
            }
            (Member::Object { .. }, _) => Some(false),
        }
    }

    /// The shape that fits an object best.
    fn best_shape(&self, record: &Record, object: Container<'_>) -> Option<usize> {
        let fitting = |(index, shape): (usize, &Shape)| {
            let can_fit = shape.members().len() >= object.count();
            Some((can_fit.then(|| self.absent(shape, object))??, index))
        };
        let (absent, index) = record.shapes.iter().enumerate().filter_map(fitting).min()?;
        // Without a shape each key takes a byte or two.
        (absent <= object.count() + object.count() / 2 + 1).then_some(index)
    }

    /// Slots without a value if an object has this shape. None: it has other members.
    fn absent(&self, shape: &Shape, object: Container<'_>) -> Option<usize> {
        let mut pairs = object.keys().zip(object.values()).peekable();
        let mut absent = 0;
        for member in shape.members() {
            let key = self.schema.keys.get(usize::from(member.key()))?;
            let Some((_, node)) = pairs.next_if(|(found, _)| *found == Some(key)) else {
                absent += member.slots();
                continue;
            };
            match (member, node?) {
                (Member::Slot { .. }, _) => {}
                // Without any key it would be absent.
                (Member::Object { shape, .. }, Node::Object(object)) if object.count() > 0 => {
                    absent += self.absent(shape, object)?;
                }
                (Member::Object { .. }, _) => return None,
            }
        }
        pairs.next().is_none().then_some(absent)
    }

    /// An object with its keys.
    fn other(
        &mut self,
        record: Option<&Record>,
        object: Container<'_>,
        depth: usize,
        out: &mut Out<'_>,
    ) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if record.is_some() {
            out.push(0)?;
        } else {
            object.is_canonical().then_some(())?;
        }
        let pairs = object.keys().zip(object.values());
        self.pairs(record, (object.count(), pairs), depth, out)
    }

    /// So many keys and their values.
    fn pairs<'d>(
        &mut self,
        record: Option<&Record>,
        (count, pairs): (usize, impl Pairs<'d> + Clone),
        depth: usize,
        out: &mut Out<'_>,
    ) -> Option<()> {
        out.varint(count)?;
        for (key, _) in pairs.clone() {
            let key = key?;
            match self.key(key) {
                Some(index) => out.varint(usize::from(index) + 1)?,
                None => {
                    out.push(0)?;
                    out.varint(key.len())?;
                    out.append(key)?;
                }
            }
        }
        let tokens = out.tokens(count, 0)?;
        for (at, (key, value)) in (tokens..).zip(pairs) {
            let column = record.and_then(|record| record.child(self.key(key?)?));
            let token = self.value(column, value?, depth, out)?;
            *out.bytes.get_mut(at)? = token;
        }
        Some(())
    }

    fn key(&self, key: &[u8]) -> Option<KeyIndex> {
        self.schema.key(key)
    }
}

/// Appends a number with its decimals in front; false if that takes more than an integer.
fn decimal(numeric: &[u8], out: &mut Out<'_>) -> Option<bool> {
    let Some(number) = Number::of(numeric).filter(|number| number.scale <= SCALE_MAX) else {
        return Some(false);
    };
    out.push(number.scale as u8)?;
    out.integer(number.integer)?;
    Some(true)
}

/// Of the keys of an object, and of the objects in it that may be inside its shape.
fn hash_of_keys(object: Container<'_>, inside: u64, depth: usize, mut hash: u64) -> Option<u64> {
    let depth = depth.checked_sub(1)?;
    let (entries, bytes) = object.stored_keys()?;
    hash = hash_of(hash_of(hash, entries), bytes);
    if inside == 0 {
        return Some(hash);
    }
    for (key, value) in object.keys().zip(object.values()) {
        if let Node::Object(object) = value?
            && inside & bit_of(hash_of(0, key?) as usize) != 0
        {
            hash = mix(hash_of_keys(object, inside, depth, mix(hash, 1))?, 2);
        }
    }
    Some(hash)
}
