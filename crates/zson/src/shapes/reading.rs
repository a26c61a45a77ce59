//! Payloads into documents.
//!
//! Nothing of a payload is taken for granted: each number is compared with what there is, and what is written never gets
//! longer than the document is said to be.

use pgshrink_codec::bare::Decompressor;
use pgshrink_codec::prepared::DecompressorDictionary;

use super::blocks::Blocks;
use super::finding::Place;
use super::further::{Item, Merged};
use super::jsonb::{Stack, Writer, container, copy};
use super::long::Packed;
use super::number::{Number, SCALE_MAX, integer, is_numeric};
use super::schema::{
    ABSENT, BYTES, ColumnIndex, FALSE, Kind, LONG, Layout, Member, NULL, Record, Schema, Shape, TRUE, Value,
    What,
};
use super::template::Template;
use super::value::Type;
use super::writing::{ANY_ARRAY, ANY_CODES, ANY_INTEGER, ANY_NUMERIC, ANY_OBJECT, ANY_TEXT, DEPTH_MAX};
use crate::error::Error;
use crate::memory;

/// Bytes that are read one after the other.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rest<'p> {
    pub(super) bytes: &'p [u8],
    /// Which of them are there; all, if it is not said.
    pub(super) blocks: Option<&'p Blocks>,
}

impl<'p> Rest<'p> {
    /// Bytes that are there, all of them.
    pub(super) fn new(bytes: &'p [u8]) -> Rest<'p> {
        Rest { bytes, blocks: None }
    }

    /// Whether bytes of this payload are there. Otherwise it is noted that they are missing.
    #[inline]
    pub(super) fn touch(&self, bytes: &[u8]) -> Option<()> {
        self.blocks.is_none_or(|blocks| blocks.touch(bytes)).then_some(())
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.touch(std::slice::from_ref(first))?;
        self.bytes = rest;
        Some(*first)
    }

    /// So many bytes, which will be looked at.
    #[inline]
    pub(super) fn read(&mut self, length: usize) -> Option<&'p [u8]> {
        let taken = self.take(length)?;
        self.touch(taken)?;
        Some(taken)
    }

    /// So many bytes, which need not be there.
    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    /// LEB128 of at most 32 bits.
    #[inline]
    pub(super) fn varint(&mut self) -> Option<usize> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(value).ok().filter(|value| *value <= u32::MAX as usize);
            }
        }
        None
    }

    /// A key of an object that has its keys with it, and the column of its values.
    pub(super) fn key<'k>(
        &mut self,
        schema: &'k Schema,
        record: Option<&Record>,
    ) -> Option<(&'k [u8], Option<ColumnIndex>)>
    where
        'p: 'k,
    {
        match self.varint()?.checked_sub(1) {
            Some(index) => {
                let known = u16::try_from(index).ok()?;
                Some((schema.keys.get(index)?, record.and_then(|record| record.child(known))))
            }
            None => {
                let length = self.varint()?;
                Some((self.read(length)?, None))
            }
        }
    }

    /// The token of a document, and what it says that there is, which may be all the rest.
    #[inline(always)]
    pub(super) fn root(&mut self) -> Option<(u8, Stored<'p>)> {
        let token = self.byte()?;
        if token == LONG
            && let Some(head @ 0..=1) = self.bytes.first()
        {
            self.byte()?;
            return Some((token, Stored { bytes: self.take(self.bytes.len())?, is_any: *head != 0 }));
        }
        Some((token, self.of_token(token)?))
    }

    /// What a token says that there is: none for what has no bytes.
    #[inline(always)]
    pub(super) fn of_token(&mut self, token: u8) -> Option<Stored<'p>> {
        Some(match token {
            LONG => {
                let head = self.varint()?;
                Stored { bytes: self.take(head >> 1)?, is_any: head & 1 != 0 }
            }
            BYTES.. => Stored { bytes: self.take(usize::from(token - BYTES))?, is_any: false },
            _ => Stored { bytes: &[], is_any: false },
        })
    }
}

/// The bytes of a value.
#[derive(Copy, Clone, Debug)]
pub(super) struct Stored<'p> {
    pub(super) bytes: &'p [u8],
    /// They say themselves what they are.
    pub(super) is_any: bool,
}

/// What a payload is read with.
#[derive(Copy, Clone, Debug)]
pub(super) struct With<'r> {
    pub(super) schema: &'r Schema,
    /// What the dictionary has for zstd.
    pub(super) zstd: Option<&'r DecompressorDictionary>,
}

/// What reading keeps from one value to the next.
#[derive(Default, Debug)]
pub struct Scratch {
    open: Stack,
    text: Vec<u8>,
    pub(crate) decompressor: Decompressor,
}

impl Scratch {
    /// Bytes of memory.
    pub(crate) fn memory_size(&self) -> usize {
        self.text.capacity() + self.decompressor.memory_size()
    }
}

/// Writes the document of a payload to the beginning of `target`. Returns its length; none: the payload is damaged, of
/// another schema, or of a longer document.
///
/// # Errors
/// [`Error::Memory`], [`Error::Codec`].
pub(super) fn document(
    with: With<'_>,
    payload: &[u8],
    target: &mut [u8],
    scratch: &mut Scratch,
) -> Result<Option<usize>, Error> {
    let mut rest = Rest::new(payload);
    let root = rest.root();
    let Some((token, stored)) = root.filter(|_| rest.bytes.is_empty()) else { return Ok(None) };
    at(with, Place::Value { column: Some(0), token, stored }, target, scratch)
}

/// Writes the value at a place, as a document, to the beginning of `target`. Returns its length; none: damage, or it is
/// longer.
///
/// # Errors
/// [`Error::Memory`], [`Error::Codec`].
pub(super) fn at(
    With { schema, zstd }: With<'_>,
    place: Place<'_>,
    target: &mut [u8],
    scratch: &mut Scratch,
) -> Result<Option<usize>, Error> {
    let Scratch { open, text, decompressor } = scratch;
    let mut reading =
        Reading { schema, zstd, writer: Writer::new(target, open), text, decompressor, failed: None };
    let written = reading.at(place);
    match reading.failed {
        Some(error) => Err(error),
        None => Ok(written),
    }
}

struct Reading<'r> {
    schema: &'r Schema,
    zstd: Option<&'r DecompressorDictionary>,
    writer: Writer<'r>,
    text: &'r mut Vec<u8>,
    decompressor: &'r mut Decompressor,
    /// Why it ended, if an error ended it and no damage.
    failed: Option<Error>,
}

impl Reading<'_> {
    /// Writes the value at a place. Returns its length.
    fn at(&mut self, place: Place<'_>) -> Option<usize> {
        let is_container = matches!(place.type_of(self.schema, None)?, Type::Array | Type::Object);
        if !is_container {
            self.writer.begin_scalar().ok()?;
        }
        match place {
            Place::Value { column, token, stored } => self.value(column, token, stored, DEPTH_MAX)?,
            Place::Node(node) => copy(node, &mut self.writer)?,
            Place::Members { shape, mut tokens, mut rest } => {
                self.members(shape, &mut tokens, &mut rest, DEPTH_MAX)?;
            }
        }
        if !is_container {
            self.writer.end().ok()?;
        }
        Some(self.writer.len())
    }

    /// Writes a value.
    fn value(
        &mut self,
        column: Option<ColumnIndex>,
        token: u8,
        stored: Stored<'_>,
        depth: usize,
    ) -> Option<()> {
        let schema = self.schema;
        let column = schema.column(column)?;
        match token {
            NULL => self.writer.null().ok(),
            TRUE => self.writer.bool(true).ok(),
            FALSE => self.writer.bool(false).ok(),
            ABSENT => None,
            BYTES.. if stored.is_any => self.any(stored.bytes, depth),
            BYTES.. => self.of_kind(&column.kind, stored.bytes, depth),
            value => self.frequent(column.values.get(usize::from(value))?),
        }
    }

    fn frequent(&mut self, value: &Value) -> Option<()> {
        match value.what {
            What::Text if value.few.len > 0 => self.writer.text_of_few(&value.few).ok(),
            What::Number if value.few.len > 0 => self.writer.number_of_few(&value.few).ok(),
            What::Text => self.writer.text(&value.bytes).ok(),
            What::Number => self.writer.number(&value.bytes).ok(),
            // A whole document is one.
            What::Container if self.writer.is_empty() => copy(container(&value.bytes)?, &mut self.writer),
            What::Container => self.writer.container(&value.bytes).ok(),
        }
    }

    fn of_kind(&mut self, kind: &Kind, bytes: &[u8], depth: usize) -> Option<()> {
        match kind {
            Kind::Any => self.any(bytes, depth),
            Kind::Text => self.codes(bytes),
            Kind::Form(template) => self.form(template, bytes),
            Kind::Number { scale, base } => {
                self.number(Number { integer: integer(bytes)?.checked_add(*base)?, scale: *scale })
            }
            Kind::Decimal => self.number(decimal(bytes)?),
            Kind::Array { elements } => self.array(Some(*elements), bytes, depth),
            Kind::Record(record) => self.record(record, bytes, depth),
        }
    }

    fn codes(&mut self, codes: &[u8]) -> Option<()> {
        let phrases = &self.schema.phrases;
        self.writer.text_by(|target| phrases.decode_into(codes, target)).ok()
    }

    fn form(&mut self, template: &Template, bytes: &[u8]) -> Option<()> {
        if self.writer.room() >= template.text_len_max() {
            return self.writer.text_by(|target| template.decode_into(bytes, target)).ok();
        }
        if let Err(error) = memory::at_least(self.text, template.text_len_max()) {
            self.failed = Some(error);
            return None;
        }
        let length = template.decode_into(bytes, self.text)?;
        self.writer.text(self.text.get(..length)?).ok()
    }

    #[inline]
    fn number(&mut self, number: Number) -> Option<()> {
        self.writer.number_of(number).ok()
    }

    fn any(&mut self, bytes: &[u8], depth: usize) -> Option<()> {
        let (what, bytes) = bytes.split_first()?;
        match *what {
            ANY_CODES => self.codes(bytes),
            ANY_TEXT => self.writer.text(bytes).ok(),
            ANY_INTEGER => self.number(decimal(bytes)?),
            ANY_NUMERIC if is_numeric(bytes) => self.writer.number(bytes).ok(),
            ANY_ARRAY => self.array(None, bytes, depth),
            ANY_OBJECT => self.other(None, Rest::new(bytes), depth),
            what => self.long(Packed::of(what, bytes)?),
        }
    }

    #[cold]
    fn long(&mut self, packed: Packed<'_>) -> Option<()> {
        let Reading { zstd, writer, decompressor, failed, .. } = self;
        let unpack = |target: &mut [u8]| {
            packed.unpack(*zstd, decompressor, target).unwrap_or_else(|error| {
                *failed = Some(error);
                None
            })
        };
        writer.text_by(unpack).ok()
    }

    fn array(&mut self, elements: Option<ColumnIndex>, bytes: &[u8], depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut rest = Rest::new(bytes);
        let count = rest.varint()?;
        let tokens = rest.take(count)?;
        self.writer.begin_array(count).ok()?;
        for token in tokens {
            let stored = rest.of_token(*token)?;
            self.value(elements, *token, stored, depth)?;
        }
        self.writer.end().ok()?;
        rest.bytes.is_empty().then_some(())
    }

    fn record(&mut self, record: &Record, bytes: &[u8], depth: usize) -> Option<()> {
        let mut rest = Rest::new(bytes);
        let shape = match record.layout(rest.varint()?)? {
            Layout::Keys => return self.other(Some(record), rest, depth),
            Layout::Further(shape) => return self.with_further(record, shape, rest, depth),
            Layout::Shape(shape) => shape,
        };
        let mut tokens = rest.take(shape.slots())?;
        self.members(shape, &mut tokens, &mut rest, depth.checked_sub(1)?)?;
        rest.bytes.is_empty().then_some(())
    }

    /// An object of this shape that has further keys.
    fn with_further(
        &mut self,
        record: &Record,
        shape: &Shape,
        mut rest: Rest<'_>,
        depth: usize,
    ) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let tokens = rest.take(shape.slots())?;
        let mut further = rest;
        further.skip(tokens)?;
        let mut items = Merged::new((self.schema, record), (shape, tokens), &mut further)?;
        let (mut keys, mut count) = (items.clone(), 0);
        while keys.next()?.is_some() {
            count += 1;
        }
        self.writer.begin_object(count).ok()?;
        let mut keys = items.clone();
        while let Some((key, _)) = keys.next()? {
            self.writer.text(key).ok()?;
        }
        while let Some((_, item)) = items.next()? {
            match item {
                Item::Member(member, own) => self.member(member, own, &mut rest, depth)?,
                Item::Further(column, token) => {
                    let stored = further.of_token(token)?;
                    self.value(column, token, stored, depth)?;
                }
            }
        }
        self.writer.end().ok()?;
        further.bytes.is_empty().then_some(())
    }

    /// An object of this shape: members that are absent are left out.
    fn members(
        &mut self,
        shape: &Shape,
        tokens: &mut &[u8],
        rest: &mut Rest<'_>,
        depth: usize,
    ) -> Option<()> {
        let schema = self.schema;
        let own = tokens.get(..shape.slots())?;
        if let Some(keys) = shape.whole_keys().filter(|_| !own.contains(&ABSENT)) {
            self.writer.begin_object(shape.members().len()).ok()?;
            self.writer.keys(keys).ok()?;
            return self.member_values(shape, tokens, rest, depth);
        }
        let count = are_there(shape, own).filter(|is_there| *is_there).count();
        self.writer.begin_object(count).ok()?;
        if let Some(keys) = shape.whole_keys() {
            self.writer.some_keys(keys, are_there(shape, own)).ok()?;
        } else {
            for (member, is_there) in shape.members().iter().zip(are_there(shape, own)) {
                if is_there {
                    self.writer.text(schema.keys.get(usize::from(member.key()))?).ok()?;
                }
            }
        }
        self.member_values(shape, tokens, rest, depth)
    }

    /// The values of an object whose keys were written.
    fn member_values(
        &mut self,
        shape: &Shape,
        tokens: &mut &[u8],
        rest: &mut Rest<'_>,
        depth: usize,
    ) -> Option<()> {
        for member in shape.members() {
            if let Member::Slot { column, .. } = member {
                let (token, behind) = tokens.split_first()?;
                *tokens = behind;
                self.slot(*column, *token, rest, depth)?;
                continue;
            }
            let (own, behind) = tokens.split_at_checked(member.slots())?;
            self.member(member, own, rest, depth)?;
            *tokens = behind;
        }
        self.writer.end().ok()
    }

    /// The value of a slot, if it is there.
    #[inline(always)]
    fn slot(&mut self, column: ColumnIndex, token: u8, rest: &mut Rest<'_>, depth: usize) -> Option<()> {
        if token == ABSENT {
            return Some(());
        }
        let stored = rest.of_token(token)?;
        self.value(Some(column), token, stored, depth)
    }

    /// The value of a member, if it is there.
    #[inline]
    fn member(&mut self, member: &Member, mut own: &[u8], rest: &mut Rest<'_>, depth: usize) -> Option<()> {
        match member {
            Member::Slot { column, .. } => self.slot(*column, *own.first()?, rest, depth),
            Member::Object { shape, .. } if is_there(own) => {
                self.members(shape, &mut own, rest, depth.checked_sub(1)?)
            }
            Member::Object { .. } => Some(()),
        }
    }

    /// An object with its keys.
    fn other(&mut self, record: Option<&Record>, mut rest: Rest<'_>, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let count = rest.varint()?;
        // Each key takes a byte at the least.
        if count > rest.bytes.len() {
            return None;
        }
        self.writer.begin_object(count).ok()?;
        let mut keys = rest;
        for _ in 0..count {
            let (key, _) = rest.key(self.schema, record)?;
            self.writer.text(key).ok()?;
        }
        let tokens = rest.take(count)?;
        for token in tokens {
            let (_, column) = keys.key(self.schema, record)?;
            let stored = rest.of_token(*token)?;
            self.value(column, *token, stored, depth)?;
        }
        self.writer.end().ok()?;
        rest.bytes.is_empty().then_some(())
    }
}

/// Which members of a shape are there.
#[inline]
fn are_there<'s>(shape: &'s Shape, mut tokens: &'s [u8]) -> impl Iterator<Item = bool> + 's {
    shape.members().iter().map(move |member| match tokens.split_at_checked(member.slots()) {
        Some((own, behind)) => {
            tokens = behind;
            is_there(own)
        }
        None => false,
    })
}

/// Whether any of a member's slots has a value.
#[inline]
pub(super) fn is_there(tokens: &[u8]) -> bool {
    tokens.iter().any(|token| *token != ABSENT)
}

/// The number of decimals and an integer.
pub(super) fn decimal(bytes: &[u8]) -> Option<Number> {
    let (scale, bytes) = bytes.split_first()?;
    let scale = Some(u16::from(*scale)).filter(|scale| *scale <= SCALE_MAX)?;
    Some(Number { integer: integer(bytes)?, scale })
}
