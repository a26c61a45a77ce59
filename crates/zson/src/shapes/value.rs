//! A document that is read in place: its values, by their paths.

use pgshrink_codec::prepared::DecompressorDictionary;

use super::Reader;
use super::blocks::Blocks;
use super::direct::Known;
use super::finding::{Damage, Elements, Place, Step, next};
use super::jsonb::Node;
use super::long::Packed;
use super::number::{Buffer, Digits, Number, integer, is_numeric};
use super::reading::{self, Scratch, With, decimal};
use super::schema::{BYTES, FEW_BYTES, Kind};
use super::writing::{ANY_CODES, ANY_INTEGER, ANY_NUMERIC, ANY_TEXT};
use crate::dictionary::DictionaryId;
use crate::error::Error;
use crate::memory;

/// A document that is stored by its shape, verified as far as it is read.
#[derive(Copy, Clone, Debug)]
pub struct View<'a> {
    reader: &'a Reader,
    /// What the dictionary has for zstd.
    zstd: Option<&'a DecompressorDictionary>,
    payload: &'a [u8],
    /// Which of its bytes are there, if not all.
    blocks: Option<&'a Blocks>,
    raw_len: usize,
    dictionary: DictionaryId,
}

/// A value of a document.
#[derive(Copy, Clone, Debug)]
pub struct Value<'a> {
    place: Place<'a>,
}

/// What a value is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Type {
    /// null
    Null,
    /// true or false
    Bool(bool),
    /// A number.
    Number,
    /// A string.
    Text,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// What [`View::text`] has written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Text {
    /// Nothing: the value is null.
    Null,
    /// The text of a string, a number, true or false.
    Written,
    /// A numeric with its four-byte header, whose text the server knows.
    Numeric,
    /// Nothing: it is an array or an object.
    Container,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        (reader, zstd): (&'a Reader, Option<&'a DecompressorDictionary>),
        (payload, blocks): (&'a [u8], Option<&'a Blocks>),
        raw_len: usize,
        dictionary: DictionaryId,
    ) -> View<'a> {
        View { reader, zstd, payload, blocks, raw_len, dictionary }
    }

    /// Bytes of the document, and of any value of it as a document, at most.
    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// The document itself.
    #[inline]
    pub fn root(&self) -> Result<Value<'a>, Error> {
        let root = Place::of(self.payload, self.blocks);
        root.map(|place| Value { place }).ok_or_else(|| self.damage())
    }

    /// One step on; none if there is no such value.
    #[inline]
    pub fn next(&self, value: Value<'a>, step: Step<'_>) -> Result<Option<Value<'a>>, Error> {
        match next(&self.reader.schema, self.blocks, value.place, step) {
            Ok(found) => Ok(found.map(|place| Value { place })),
            Err(Damage) => Err(self.damage()),
        }
    }

    /// The value of a key of the document; none if there is none. As [`next`](Self::next) from the root, in fewer steps.
    #[inline]
    pub fn key(&self, known: &mut Known, key: &[u8]) -> Result<Option<Value<'a>>, Error> {
        if self.blocks.is_none()
            && let Some(found) = self.reader.place_of_key(known, self.payload, key)
        {
            return Ok(found.map(|place| Value { place }));
        }
        self.next(self.root()?, Step::Key(key))
    }

    /// What a value is.
    #[inline]
    pub fn type_of(&self, value: Value<'_>) -> Result<Type, Error> {
        value.place.type_of(&self.reader.schema, self.blocks).ok_or_else(|| self.damage())
    }

    /// Appends the text of a value to `out`, as `->>` gives it.
    ///
    /// # Errors
    /// [`Error::Shapes`], [`Error::Memory`], [`Error::Codec`].
    pub fn text(&self, value: Value<'_>, out: &mut Vec<u8>, scratch: &mut Scratch) -> Result<Text, Error> {
        let start = out.len();
        let (text, len) = self.text_from(value, (out, start), scratch)?;
        out.truncate(start + len);
        Ok(text)
    }

    /// The same into the beginning of a buffer, whatever is in it; returns the text's length as well. What is behind it means
    /// nothing, and saves clearing the buffer for the next text.
    ///
    /// # Errors
    /// [`Error::Shapes`], [`Error::Memory`], [`Error::Codec`].
    #[inline]
    pub fn text_into(
        &self,
        value: Value<'_>,
        buffer: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(Text, usize), Error> {
        self.text_from(value, (buffer, 0), scratch)
    }

    /// Writes a text from `start` on. Returns its length.
    #[inline]
    fn text_from(
        &self,
        value: Value<'_>,
        (out, start): (&mut Vec<u8>, usize),
        scratch: &mut Scratch,
    ) -> Result<(Text, usize), Error> {
        value.place.touch(self.blocks).ok_or_else(|| self.damage())?;
        Ok(match self.type_of(value)? {
            Type::Null => (Text::Null, 0),
            Type::Array | Type::Object => (Text::Container, 0),
            Type::Text => {
                let len = self.string(value.place, (out, start), scratch)?;
                let len = len.ok_or_else(|| self.damage())?;
                (Text::Written, len)
            }
            Type::Bool(value) => {
                (Text::Written, put(if value { &b"true"[..] } else { b"false" }, out, start)?)
            }
            Type::Number => match self.number_at(value.place).ok_or_else(|| self.damage())? {
                Found::Number(number) => {
                    (Text::Written, put(number.text(&mut Digits::default()), out, start)?)
                }
                Found::Numeric(numeric) => (Text::Numeric, put(numeric, out, start)?),
            },
        })
    }

    /// Writes a value, as a document, to the beginning of `target`, which has at least [`raw_len`](Self::raw_len) bytes.
    /// Returns its length.
    ///
    /// # Errors
    /// [`Error::Shapes`], [`Error::Memory`], [`Error::Codec`].
    pub fn document(
        &self,
        value: Value<'_>,
        target: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<usize, Error> {
        value.place.touch(self.blocks).ok_or_else(|| self.damage())?;
        let with = With { schema: &self.reader.schema, zstd: self.zstd };
        reading::at(with, value.place, target, scratch)?.ok_or_else(|| self.damage())
    }

    /// Whether an object has a key, or an array a string, of this text; a string alone counts as an array of it.
    ///
    /// # Errors
    /// [`Error::Shapes`], [`Error::Memory`], [`Error::Codec`].
    pub fn has(&self, text: &[u8], buffer: &mut Vec<u8>, scratch: &mut Scratch) -> Result<bool, Error> {
        let root = self.root()?;
        match self.type_of(root)? {
            Type::Object => Ok(self.next(root, Step::Key(text))?.is_some()),
            Type::Array => {
                // All of it is looked at, and beginning anew for each slice would take long.
                root.place.touch(self.blocks).ok_or_else(|| self.damage())?;
                let mut left = self.raw_len;
                let elements = Elements::of(&self.reader.schema, self.blocks, root.place);
                let mut elements = elements.map_err(|Damage| self.damage())?;
                while let Some(place) = elements.next().map_err(|Damage| self.damage())? {
                    let found = self.text_alone(Value { place }, buffer, scratch)?;
                    if found.is_some_and(|len| buffer[..len] == *text) {
                        return Ok(true);
                    }
                    // They are all in the document.
                    left = left.checked_sub(found.unwrap_or(0)).ok_or_else(|| self.damage())?;
                }
                Ok(false)
            }
            _ => Ok(self.text_alone(root, buffer, scratch)?.is_some_and(|len| buffer[..len] == *text)),
        }
    }

    /// Writes a string to the beginning of a buffer. Returns its length; none: it is none.
    fn text_alone(
        &self,
        value: Value<'_>,
        buffer: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<Option<usize>, Error> {
        if self.type_of(value)? != Type::Text {
            return Ok(None);
        }
        let (found, len) = self.text_into(value, buffer, scratch)?;
        Ok((found == Text::Written).then_some(len))
    }

    #[cold]
    fn damage(&self) -> Error {
        if self.blocks.is_some_and(|blocks| blocks.missing().is_some()) {
            return Error::Missing;
        }
        Error::Shapes { dictionary: self.dictionary, payload_len: self.payload.len(), raw_len: self.raw_len }
    }

    /// Writes a string from `start` on. Returns its length; `Ok(None)`: damage.
    #[inline]
    fn string(
        &self,
        place: Place<'_>,
        (out, start): (&mut Vec<u8>, usize),
        scratch: &mut Scratch,
    ) -> Result<Option<usize>, Error> {
        let (column, token, stored) = match place {
            Place::Value { column, token, stored } => (column, token, stored),
            Place::Node(Node::Text(text)) => return put(text, out, start).map(Some),
            _ => return Ok(None),
        };
        let Some(column) = self.reader.schema.column(column) else { return Ok(None) };
        match (&column.kind, token) {
            (kind, BYTES..) if stored.is_any || matches!(kind, Kind::Any) => {
                match stored.bytes.split_first() {
                    Some((&ANY_CODES, codes)) => self.codes(codes, out, start),
                    Some((&ANY_TEXT, text)) if text.len() <= self.raw_len => put(text, out, start).map(Some),
                    Some((&what, bytes)) => match Packed::of(what, bytes) {
                        Some(packed) => self.long(packed, (out, start), scratch),
                        None => Ok(None),
                    },
                    None => Ok(None),
                }
            }
            (Kind::Text, BYTES..) => self.codes(stored.bytes, out, start),
            (Kind::Form(template), BYTES..) => {
                memory::at_least(out, start + template.text_len_max())?;
                Ok(template.decode_into(stored.bytes, &mut out[start..]))
            }
            (_, token) => match column.values.get(usize::from(token)) {
                Some(value) => {
                    memory::at_least(out, start + FEW_BYTES.max(value.bytes.len()))?;
                    Ok(value.write(&mut out[start..]))
                }
                None => Ok(None),
            },
        }
    }

    #[inline]
    fn codes(&self, codes: &[u8], out: &mut Vec<u8>, start: usize) -> Result<Option<usize>, Error> {
        self.reader.schema.phrases.decode_at(codes, self.raw_len, out, start)
    }

    #[cold]
    fn long(
        &self,
        packed: Packed<'_>,
        (out, start): (&mut Vec<u8>, usize),
        scratch: &mut Scratch,
    ) -> Result<Option<usize>, Error> {
        let end = start + packed.length_max().min(self.raw_len);
        memory::at_least(out, end)?;
        packed.unpack(self.zstd, &mut scratch.decompressor, &mut out[start..end])
    }

    fn number_at<'n>(&self, place: Place<'n>) -> Option<Found<'n>>
    where
        'a: 'n,
    {
        let (column, token, stored) = match place {
            Place::Value { column, token, stored } => (column, token, stored),
            Place::Node(Node::Number(numeric)) => return Some(Found::of(numeric)),
            _ => return None,
        };
        let column = self.reader.schema.column(column)?;
        let number = match (&column.kind, token) {
            (kind, BYTES..) if stored.is_any || matches!(kind, Kind::Any) => {
                match stored.bytes.split_first()? {
                    (&ANY_INTEGER, bytes) => decimal(bytes)?,
                    (&ANY_NUMERIC, numeric) => return is_numeric(numeric).then(|| Found::of(numeric)),
                    _ => return None,
                }
            }
            (Kind::Number { scale, base }, BYTES..) => {
                Number { integer: integer(stored.bytes)?.checked_add(*base)?, scale: *scale }
            }
            (Kind::Decimal, BYTES..) => decimal(stored.bytes)?,
            (_, token) => return Some(Found::of(&column.values.get(usize::from(token))?.bytes)),
        };
        // One that a numeric cannot be is no number either.
        if number.few().is_none() {
            number.write(&mut Buffer::default())?;
        }
        Some(Found::Number(number))
    }
}

/// Writes bytes from `start` on. Returns how many.
#[inline]
pub(super) fn put(bytes: &[u8], out: &mut Vec<u8>, start: usize) -> Result<usize, Error> {
    memory::at_least(out, start + bytes.len())?;
    out[start..start + bytes.len()].copy_from_slice(bytes);
    Ok(bytes.len())
}

enum Found<'n> {
    Number(Number),
    Numeric(&'n [u8]),
}

impl<'n> Found<'n> {
    fn of(numeric: &'n [u8]) -> Found<'n> {
        Number::of(numeric).map_or(Found::Numeric(numeric), Found::Number)
    }
}

impl Type {
    pub(super) fn of_node(node: Node<'_>) -> Type {
        match node {
            Node::Null => Type::Null,
            Node::Bool(value) => Type::Bool(value),
            Node::Number(_) => Type::Number,
            Node::Text(_) => Type::Text,
            Node::Array(_) => Type::Array,
            Node::Object(_) => Type::Object,
        }
    }
}
