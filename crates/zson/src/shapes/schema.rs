//! What a dictionary of shapes knows of documents of a kind.
//!
//! A **column** is all values at one path; elements of an array are at one path. It has values that are met often, and
//! one kind that most other values are of, or many. A **shape** is a set of keys of an object, in the order in which jsonb has them; an
//! object inside it may be a part of the same shape. Its **slots** are the values that are not such objects.
//!
//! Everything that is read from a dictionary's bytes is bounded and refers to what is there; a column may refer to itself
//! or an earlier one, as documents are nested: depth is bounded where documents are read.

use super::index::{Index, hash_of};
use super::jsonb::{Container, Stack, Writer};
use super::number::{Digits, Number};
use super::phrases::Phrases;
use super::template::Template;
use crate::error::Error;
use crate::memory;

/// Columns at most.
pub(super) const COLUMNS_MAX: usize = 4096;
/// Keys at most.
pub(super) const KEYS_MAX: usize = 1 << 14;
/// Shapes of a column at most.
pub(super) const SHAPES_MAX: usize = 120;
/// Slots of a shape at most.
pub(super) const SLOTS_MAX: usize = 1024;
/// Frequent values of a column at most.
pub(super) const VALUES_MAX: usize = 124;

/// The tokens of a slot. Below are the numbers of frequent values.
pub(super) const ABSENT: u8 = 124;
pub(super) const NULL: u8 = 125;
pub(super) const TRUE: u8 = 126;
pub(super) const FALSE: u8 = 127;
/// And so many bytes of the column's kind.
pub(super) const BYTES: u8 = 128;
/// A length comes first, whose lowest bit says that the value is of any kind.
pub(super) const LONG: u8 = 255;

/// What is known.
#[derive(Clone, Default, Debug)]
pub(crate) struct Schema {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) phrases: Phrases,
    /// The first one is that of whole documents.
    pub(super) columns: Vec<Column>,
    /// Tells one schema from another where they share a table; not a part of what is known.
    pub(super) seed: u64,
    /// Finds keys, once it is [prepared](Schema::prepare).
    pub(super) index: Index,
}

/// The place of a key, of a column, of a shape in its column.
pub(super) type KeyIndex = u16;
pub(super) type ColumnIndex = u16;

/// All values at a path.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Frequent values: a token stands for each.
    pub(super) values: Vec<Value>,
    pub(super) kind: Kind,
}

/// A value as jsonb has it: never null, true or false, which have tokens of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub(super) what: What,
    /// The text, the numeric, or the container from its header on.
    pub(super) bytes: Vec<u8>,
    /// The same, if they are few.
    pub(super) few: Few,
    /// Of a number, its text, once it is [prepared](Schema::prepare); empty if only the server knows it.
    pub(super) text: Vec<u8>,
}

/// At most [`FEW_BYTES`], beside their length: copied as if they were so many.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Few {
    pub(super) bytes: [u8; FEW_BYTES],
    /// 0: there are none, or more.
    pub(super) len: u8,
}

pub(super) const FEW_BYTES: usize = 16;

impl Few {
    pub(super) fn of(bytes: &[u8]) -> Few {
        let mut few = Few::default();
        if let Some(room) = few.bytes.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            few.len = bytes.len() as u8;
        }
        few
    }
}

/// What the bytes of a value are.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum What {
    Text,
    Number,
    Container,
}

/// What most values of a column are, or many.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Anything, with a byte that says what.
    Any,
    /// Texts of codes of phrases.
    Text,
    /// Texts of one form.
    Form(Template),
    /// Numbers with so many decimals, less a number.
    Number { scale: u16, base: i128 },
    /// Numbers with their decimals in the first byte.
    Decimal,
    /// Elements of a column.
    Array { elements: ColumnIndex },
    /// Objects.
    Record(Record),
}

/// Objects at a path.
#[derive(Clone, Default, Debug)]
pub(super) struct Record {
    pub(super) shapes: Vec<Shape>,
    /// Columns of keys, by key: for objects that have none of the shapes.
    pub(super) children: Vec<(KeyIndex, ColumnIndex)>,
}

/// How an object of a record is stored.
#[derive(Copy, Clone, Debug)]
pub(super) enum Layout<'r> {
    /// With its keys.
    Keys,
    /// By a shape.
    Shape(&'r Shape),
    /// By a shape, with further keys behind it.
    Further(&'r Shape),
}

/// A set of keys.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// In the order of jsonb.
    members: Vec<Member>,
    slots: u16,
    /// Of a schema that is read with.
    prepared: Option<Box<Prepared>>,
}

/// What reading needs to know of a shape besides its members.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Prepared {
    /// The key of each member, and its first slot.
    of_members: Vec<KeyIndex>,
    first_slots: Vec<u16>,
    /// The keys as an object has them that lacks none, unless they take too much room.
    keys: Option<Keys>,
}

/// The keys of an object as jsonb has them: their entries, and their bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Keys {
    pub(super) entries: Vec<u8>,
    pub(super) bytes: Vec<u8>,
}

/// A key, and what is behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Member {
    Slot { key: KeyIndex, column: ColumnIndex },
    Object { key: KeyIndex, shape: Shape },
}

/// Bytes of prepared keys of a schema at most.
const KEYS_BYTES_MAX: usize = 1 << 20;
/// Of an entry.
const KEY_BYTES: usize = 4;

impl Member {
    #[inline]
    pub(super) fn key(&self) -> KeyIndex {
        match self {
            Member::Slot { key, .. } | Member::Object { key, .. } => *key,
        }
    }

    /// Slots in it.
    #[inline]
    pub(super) fn slots(&self) -> usize {
        match self {
            Member::Slot { .. } => 1,
            Member::Object { shape, .. } => shape.slots(),
        }
    }
}

impl Shape {
    /// Of members in the order of jsonb. `None`: they have no slot, or more than [`SLOTS_MAX`].
    pub(super) fn new(members: Vec<Member>) -> Option<Shape> {
        let slots: usize = members.iter().map(Member::slots).sum();
        (1..=SLOTS_MAX).contains(&slots).then_some(Shape { members, slots: slots as u16, prepared: None })
    }

    /// Bytes of memory, about.
    fn memory_size(&self) -> usize {
        let prepared = self.prepared.as_ref().map_or(0, |prepared| {
            let keys = prepared.keys.as_ref().map_or(0, |keys| keys.entries.len() + keys.bytes.len());
            size_of::<Prepared>() + keys + 2 * size_of::<u16>() * prepared.of_members.len()
        });
        let inside = self.members.iter().map(|member| match member {
            Member::Slot { .. } => 0,
            Member::Object { shape, .. } => shape.memory_size(),
        });
        prepared + self.members.capacity() * size_of::<Member>() + inside.sum::<usize>()
    }

    #[inline]
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The keys of its members, in their order. Its schema was [prepared](Schema::prepare).
    pub(super) fn keys(&self) -> &[KeyIndex] {
        self.prepared.as_ref().map_or(&[], |prepared| &prepared.of_members)
    }

    /// Whether an object has all its members and no others, as far as is known: its keys were [prepared](Schema::prepare).
    #[inline]
    pub(super) fn is_whole(&self, object: Container<'_>) -> bool {
        object.count() == self.members.len()
            && self.whole_keys().is_some_and(|keys| {
                object.stored_keys() == Some((keys.entries.as_slice(), keys.bytes.as_slice()))
            })
    }

    /// The keys of an object that lacks none of its members, if they were [prepared](Schema::prepare).
    pub(super) fn whole_keys(&self) -> Option<&Keys> {
        self.prepared.as_ref()?.keys.as_ref()
    }

    /// The member of a key, and its first slot. Its schema was [prepared](Schema::prepare).
    #[inline]
    pub(super) fn member(&self, key: KeyIndex) -> Option<(&Member, usize)> {
        let prepared = self.prepared.as_ref()?;
        let at = prepared.of_members.iter().position(|of_member| *of_member == key)?;
        Some((self.members.get(at)?, usize::from(*prepared.first_slots.get(at)?)))
    }

    /// Prepares it and the objects inside it for reading. Their keys, as long as there are `left` bytes for them.
    fn prepare(&mut self, keys: &[Vec<u8>], left: &mut usize) -> Result<(), Error> {
        let of_members = memory::collect(self.members.iter().map(Member::key))?;
        let mut next = 0;
        let first_slots = memory::collect(self.members.iter().map(|member| {
            next += member.slots() as u16;
            next - member.slots() as u16
        }))?;
        let whole = self.whole(keys, left)?;
        self.prepared = Some(Box::new(Prepared { of_members, first_slots, keys: whole }));
        for member in &mut self.members {
            if let Member::Object { shape, .. } = member {
                shape.prepare(keys, left)?;
            }
        }
        Ok(())
    }

    fn whole(&self, keys: &[Vec<u8>], left: &mut usize) -> Result<Option<Keys>, Error> {
        let own = |member: &Member| keys.get(usize::from(member.key())).map(Vec::len);
        let size = self.members.iter().filter_map(own).sum::<usize>() + KEY_BYTES * self.members.len();
        let Some(rest) = left.checked_sub(size) else { return Ok(None) };
        *left = rest;
        // A header and an entry for each value, too.
        let mut target = memory::zeroed(size + KEY_BYTES * (1 + self.members.len()))?;
        let written = Writer::new(&mut target, &mut Stack::default()).keys_alone(&self.members, keys);
        let Some((entries, bytes)) = written else { return Ok(None) };
        Ok(Some(Keys { entries: memory::copy(&target[entries])?, bytes: memory::copy(&target[bytes])? }))
    }

    /// Values that are in it, those of objects inside it included.
    pub(super) fn slots(&self) -> usize {
        self.slots.into()
    }
}

impl Record {
    /// What the number in front of an object says. None: there is no such shape.
    #[inline]
    pub(super) fn layout(&self, number: usize) -> Option<Layout<'_>> {
        Some(match number {
            0 => Layout::Keys,
            1..=SHAPES_MAX => Layout::Shape(self.shapes.get(number - 1)?),
            _ => Layout::Further(self.shapes.get(number - 1 - SHAPES_MAX)?),
        })
    }

    /// The column of a key in objects that have none of the shapes.
    pub(super) fn child(&self, key: KeyIndex) -> Option<ColumnIndex> {
        let at = self.children.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(self.children[at].1)
    }
}

impl Value {
    /// Writes its bytes to the beginning of `out`, few of them in one piece. Returns how many; none: there is no room.
    #[inline]
    pub(super) fn write(&self, out: &mut [u8]) -> Option<usize> {
        match out.first_chunk_mut() {
            Some(room) if self.few.len > 0 => {
                *room = self.few.bytes;
                Some(self.few.len.into())
            }
            _ => {
                out.get_mut(..self.bytes.len())?.copy_from_slice(&self.bytes);
                Some(self.bytes.len())
            }
        }
    }

    pub(super) fn new(what: What, bytes: Vec<u8>) -> Value {
        Value { what, few: Few::of(&bytes), bytes, text: Vec::new() }
    }

    fn prepare(&mut self) -> Result<(), Error> {
        if self.what == What::Number
            && let Some(number) = Number::of(&self.bytes)
        {
            self.text = memory::copy(number.text(&mut Digits::default()))?;
        }
        Ok(())
    }
}

impl Column {
    /// Bytes of memory, about.
    fn memory_size(&self) -> usize {
        let values: usize =
            self.values.iter().map(|value| value.bytes.capacity() + value.text.capacity()).sum::<usize>()
                + self.values.capacity() * size_of::<Value>();
        let kind = match &self.kind {
            Kind::Record(record) => {
                let shapes: usize = record.shapes.iter().map(Shape::memory_size).sum();
                record.children.capacity() * size_of::<(KeyIndex, ColumnIndex)>() + shapes
            }
            _ => 0,
        };
        size_of::<Column>() + values + kind
    }

    pub(super) const ANY: Column = Column { values: Vec::new(), kind: Kind::Any };
}

/// For values at paths that nothing is known of.
static UNKNOWN: Column = Column::ANY;

impl Schema {
    /// Keys are found.
    fn index_keys(&mut self) -> Result<(), Error> {
        let mut index = Index::with_room_for(self.keys.len())?;
        for (at, key) in self.keys.iter().enumerate() {
            let hash = hash_of(0, key);
            if index.find(hash, |known| self.keys.get(known as usize) == Some(key)).is_some() {
                return Err(Error::Dictionary { what: "list of keys" });
            }
            index.insert(hash, at as u32);
        }
        self.index = index;
        Ok(())
    }

    /// Prepares it for reading: what [writing](Self::prepare_writing) needs, and short phrases and the texts of numbers.
    ///
    /// # Errors
    /// As of [`prepare_writing`](Self::prepare_writing).
    pub(super) fn prepare(&mut self) -> Result<(), Error> {
        self.prepare_writing()?;
        self.phrases.prepare()?;
        self.columns.iter_mut().flat_map(|column| &mut column.values).try_for_each(Value::prepare)
    }

    /// Prepares it for writing: keys are found, and members of shapes.
    ///
    /// # Errors
    /// [`Error::Dictionary`]: two keys are the same. [`Error::Memory`].
    pub(super) fn prepare_writing(&mut self) -> Result<(), Error> {
        self.index_keys()?;
        let mut left = KEYS_BYTES_MAX;
        for column in &mut self.columns {
            if let Kind::Record(record) = &mut column.kind {
                for shape in &mut record.shapes {
                    shape.prepare(&self.keys, &mut left)?;
                }
            }
        }
        Ok(())
    }

    /// As if there had been no room for keys of shapes.
    #[cfg(test)]
    pub(super) fn forget_keys(&mut self) {
        for column in &mut self.columns {
            let Kind::Record(record) = &mut column.kind else { continue };
            for prepared in record.shapes.iter_mut().filter_map(|shape| shape.prepared.as_mut()) {
                prepared.keys = None;
            }
        }
    }

    /// A key by its text. The schema was prepared.
    #[inline]
    pub(super) fn key(&self, key: &[u8]) -> Option<KeyIndex> {
        let is_it = |at: u32| self.keys.get(at as usize).is_some_and(|known| known == key);
        self.index.find(hash_of(0, key), is_it).map(|at| at as KeyIndex)
    }

    /// Bytes of memory.
    pub(super) fn memory_size(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| size_of::<Vec<u8>>() + key.capacity()).sum();
        let columns: usize = self.columns.iter().map(Column::memory_size).sum();
        self.phrases.memory_size() + self.index.memory_size() + keys + columns
    }

    /// A column; that of values at paths that nothing is known of.
    #[inline]
    pub(super) fn column(&self, column: Option<ColumnIndex>) -> Option<&Column> {
        match column {
            Some(column) => self.columns.get(usize::from(column)),
            None => Some(&UNKNOWN),
        }
    }
}
