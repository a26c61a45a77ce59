//! Values of a document that are replaced without decoding it, as by `doc || '{"key": 1}'`.
//!
//! A datum says how long its document is, and where a value begins in a jsonb depends on all that are before it. So only such
//! values are replaced here as move the others by a multiple of four bytes, or not at all: what is aligned stays aligned, and
//! the new length is the old one and the difference. They belong to keys that the document has, and are no containers.
//! Everything else takes the longer way: the document is decoded, changed, and encoded.

use super::jsonb::{Node, container};
use super::number::{Buffer, Number, integer, is_numeric};
use super::out::Out;
use super::reading::{Rest, Stored, decimal};
use super::schema::{
    ABSENT, BYTES, ColumnIndex, FALSE, Kind, Layout, Member, NULL, Record, Schema, Shape, TRUE, What,
};
use super::writing::{
    ANY_CODES, ANY_INTEGER, ANY_NUMERIC, ANY_TEXT, DEPTH_MAX, Found, Writing, begin_document, end_document,
};

/// Values that are replaced at once, at most.
const CHANGES_MAX: usize = 8;
/// Bytes of a text of a form whose length is looked for.
const FORM_BYTES_MAX: usize = 256;

/// What became of a document.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Patched {
    /// Bytes of the document.
    pub(super) raw_len: usize,
    /// It has keys that its shape lacks.
    pub(super) has_further: bool,
    /// Some values of its shape are as they were.
    pub(super) is_like_earlier: bool,
}

/// The parts of a payload that is an object of a shape.
pub(super) struct Parts<'p> {
    record: &'p Record,
    number: usize,
    pub(super) shape: &'p Shape,
    pub(super) tokens: &'p [u8],
    pub(super) values: Rest<'p>,
    has_further: bool,
}

/// Its further keys.
#[derive(Copy, Clone)]
struct Further<'p> {
    count: usize,
    keys: Rest<'p>,
    tokens: &'p [u8],
    values: Rest<'p>,
}

/// A value that is replaced.
#[derive(Copy, Clone)]
struct Change<'n> {
    /// Which token: of the shape's slots, or of the further keys.
    at: usize,
    column: Option<ColumnIndex>,
    node: Node<'n>,
}

/// Some of them, in the order of keys, which is that of tokens.
struct Changes<'n> {
    changes: [Change<'n>; CHANGES_MAX],
    count: usize,
}

impl<'n> Changes<'n> {
    fn new() -> Self {
        Changes { changes: [Change { at: 0, column: None, node: Node::Null }; CHANGES_MAX], count: 0 }
    }

    /// None: there are too many.
    fn add(&mut self, change: Change<'n>) -> Option<()> {
        *self.changes.get_mut(self.count)? = change;
        self.count += 1;
        Some(())
    }

    fn as_slice(&self) -> &[Change<'n>] {
        &self.changes[..self.count]
    }
}

impl<'p> Parts<'p> {
    pub(super) fn of(schema: &'p Schema, payload: &'p [u8]) -> Option<Parts<'p>> {
        let Kind::Record(record) = &schema.columns.first()?.kind else { return None };
        let mut rest = Rest::new(payload);
        let (_, stored) = rest.root().filter(|(token, stored)| *token >= BYTES && !stored.is_any)?;
        let mut values = Rest::new(stored.bytes);
        let number = values.varint()?;
        let (shape, has_further) = match record.layout(number)? {
            Layout::Keys => return None,
            Layout::Shape(shape) => (shape, false),
            Layout::Further(shape) => (shape, true),
        };
        let tokens = values.take(shape.slots())?;
        Some(Parts { record, number, shape, tokens, values, has_further })
    }

    /// `None`: damage.
    fn further(&self, schema: &Schema) -> Option<Option<Further<'p>>> {
        let Parts { record, tokens, values, .. } = self;
        Some(if self.has_further { Some(Further::of(schema, record, tokens, *values)?) } else { None })
    }
}

impl<'p> Further<'p> {
    fn of(schema: &Schema, record: &Record, tokens: &[u8], mut rest: Rest<'p>) -> Option<Further<'p>> {
        rest.skip(tokens)?;
        let count = rest.varint()?;
        let keys = rest;
        for _ in 0..count {
            rest.key(schema, Some(record))?;
        }
        let tokens = rest.take(count)?;
        Some(Further { count, keys, tokens, values: rest })
    }

    /// Where a key is, and the column of its values.
    fn find(mut self, schema: &Schema, record: &Record, key: &[u8]) -> Option<(usize, Option<ColumnIndex>)> {
        for at in 0..self.count {
            let (found, column) = self.keys.key(schema, Some(record))?;
            if found == key {
                return Some((at, column));
            }
        }
        None
    }
}

impl Writing<'_, '_> {
    /// Appends the payload of a document of `raw_len` bytes in which the values of `patch`, a jsonb, replace those of its keys.
    /// None: it needs the document, or there is damage; what was appended means nothing.
    pub(super) fn patched(
        &mut self,
        (payload, raw_len): (&[u8], usize),
        patch: &[u8],
        out: &mut Out<'_>,
    ) -> Option<Patched> {
        let schema = self.schema;
        let Node::Object(object) = container(patch)? else { return None };
        let parts = Parts::of(schema, payload)?;
        let further = parts.further(schema)?;
        let (mut of_shape, mut of_further) = (Changes::new(), Changes::new());
        for (key, node) in object.keys().zip(object.values()) {
            let (key, node) = (key?, node?);
            match place(schema, (&parts, further), key)? {
                (false, at, column) => of_shape.add(Change { at, column, node })?,
                (true, at, column) => of_further.add(Change { at, column, node })?,
            }
        }
        let head = begin_document(out)?;
        out.varint(parts.number)?;
        let mut grown = 0;
        let at = out.append(parts.tokens)?;
        let rest = self.replaced((of_shape.as_slice(), parts.tokens, at), parts.values, &mut grown, out)?;
        let values = match further {
            None => rest,
            Some(further) => {
                let keys = rest.bytes.len().checked_sub(further.values.bytes.len())?;
                let at = out.append(rest.bytes.get(..keys)?)?;
                let tokens = (of_further.as_slice(), further.tokens, at + keys - further.count);
                self.replaced(tokens, further.values, &mut grown, out)?
            }
        };
        values.bytes.is_empty().then_some(())?;
        end_document(head, Found::Stored { is_any: false }, out)?;
        let kept = parts.tokens.iter().filter(|token| **token != ABSENT).count();
        Some(Patched {
            raw_len: raw_len.checked_add_signed(grown)?,
            has_further: parts.has_further,
            is_like_earlier: kept > of_shape.count,
        })
    }

    /// Appends what tokens say, with some values replaced; the tokens were appended at a place. Returns what is behind.
    fn replaced<'p>(
        &mut self,
        (changes, tokens, at): (&[Change<'_>], &[u8], usize),
        mut rest: Rest<'p>,
        grown: &mut isize,
        out: &mut Out<'_>,
    ) -> Option<Rest<'p>> {
        let mut next = 0;
        for change in changes {
            let before = rest.bytes;
            rest.skip(tokens.get(next..change.at)?)?;
            out.append(before.get(..before.len() - rest.bytes.len())?)?;
            let token = *tokens.get(change.at)?;
            let old = Size::of_stored(self.schema, change.column, token, rest.of_token(token)?)?;
            *grown += Size::of(change.node)?.more_than(old)?;
            let token = self.value(change.column, change.node, DEPTH_MAX - 1, out)?;
            *out.bytes.get_mut(at + change.at)? = token;
            next = change.at + 1;
        }
        let before = rest.bytes;
        rest.skip(tokens.get(next..)?)?;
        out.append(before.get(..before.len() - rest.bytes.len())?)?;
        Some(rest)
    }
}

/// Where the value of a key is: whether it is a further one, its token, and its column. None: it is not there, or an object
/// inside the shape.
fn place(
    schema: &Schema,
    (parts, further): (&Parts<'_>, Option<Further<'_>>),
    key: &[u8],
) -> Option<(bool, usize, Option<ColumnIndex>)> {
    match schema.key(key).and_then(|key| parts.shape.member(key)) {
        // Without a value it is none that can be replaced.
        Some((Member::Slot { column, .. }, before)) => Some((false, before, Some(*column))),
        Some((Member::Object { .. }, _)) => None,
        None => further?.find(schema, parts.record, key).map(|(at, column)| (true, at, column)),
    }
}

/// What a value takes of a jsonb, besides its entry and what aligns it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Size {
    is_aligned: bool,
    bytes: usize,
}

impl Size {
    /// None: it is a container.
    fn of(node: Node<'_>) -> Option<Size> {
        Some(match node {
            Node::Null | Node::Bool(_) => Size { is_aligned: false, bytes: 0 },
            Node::Text(text) => Size { is_aligned: false, bytes: text.len() },
            Node::Number(numeric) => Size { is_aligned: true, bytes: numeric.len() },
            Node::Array(_) | Node::Object(_) => return None,
        })
    }

    fn of_number(number: Number) -> Option<Size> {
        let mut buffer = Buffer::default();
        number.write(&mut buffer)?;
        Some(Size { is_aligned: true, bytes: buffer.bytes().len() })
    }

    /// None: it is a container, compressed alone, or damaged.
    fn of_stored(
        schema: &Schema,
        column: Option<ColumnIndex>,
        token: u8,
        stored: Stored<'_>,
    ) -> Option<Size> {
        let text = |bytes: usize| Size { is_aligned: false, bytes };
        let codes = |codes: &[u8]| schema.phrases.decoded_len(codes).map(text);
        let column = schema.column(column)?;
        match (token, &column.kind) {
            (NULL | TRUE | FALSE, _) => Some(text(0)),
            (BYTES.., kind) if stored.is_any || matches!(kind, Kind::Any) => {
                match stored.bytes.split_first()? {
                    (&ANY_CODES, bytes) => codes(bytes),
                    (&ANY_TEXT, bytes) => Some(text(bytes.len())),
                    (&ANY_INTEGER, bytes) => Size::of_number(decimal(bytes)?),
                    (&ANY_NUMERIC, numeric) if is_numeric(numeric) => {
                        Some(Size { is_aligned: true, bytes: numeric.len() })
                    }
                    _ => None,
                }
            }
            (BYTES.., Kind::Text) => codes(stored.bytes),
            (BYTES.., Kind::Form(template)) => {
                let mut room = [0; FORM_BYTES_MAX];
                let room = room.get_mut(..template.text_len_max())?;
                template.decode_into(stored.bytes, room).map(text)
            }
            (BYTES.., Kind::Number { scale, base }) => {
                let integer = integer(stored.bytes)?.checked_add(*base)?;
                Size::of_number(Number { integer, scale: *scale })
            }
            (BYTES.., Kind::Decimal) => Size::of_number(decimal(stored.bytes)?),
            (BYTES.., _) | (ABSENT, _) => None,
            (token, _) => {
                let value = column.values.get(usize::from(token))?;
                match value.what {
                    What::Text => Some(text(value.bytes.len())),
                    What::Number => Some(Size { is_aligned: true, bytes: value.bytes.len() }),
                    What::Container => None,
                }
            }
        }
    }

    /// By how much it moves what is behind it; none if that would be aligned in another way.
    fn more_than(self, old: Size) -> Option<isize> {
        let more = self.bytes as isize - old.bytes as isize;
        (self.is_aligned == old.is_aligned && more % 4 == 0).then_some(more)
    }
}
