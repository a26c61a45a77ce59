//! What a dictionary of shapes knows of documents of a kind.
//!
//! A **column** is all values at one path; elements of an array are at one path. It has values that are met often, and
//! one kind that most other values are of. A **shape** is a set of keys of an object, in the order in which jsonb has them; an
//! object inside it may be a part of the same shape. Its **slots** are the values that are not such objects.
//!
//! Everything that is read from a dictionary's bytes is bounded and refers to what is there; a column may refer to itself
//! or an earlier one, as documents are nested: depth is bounded where documents are read.

use super::index::{Index, hash_of};
use super::jsonb::{Stack, Writer};
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
}

/// What the bytes of a value are.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum What {
    Text,
    Number,
    Container,
}

/// What most values of a column are.
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

/// A set of keys.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// In the order of jsonb.
    members: Vec<Member>,
    slots: u16,
    /// Of a schema that is read with: the keys as an object has them that lacks none.
    keys: Option<Box<Keys>>,
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
        (1..=SLOTS_MAX).contains(&slots).then_some(Shape { members, slots: slots as u16, keys: None })
    }

    /// Bytes of memory, about.
    fn memory_size(&self) -> usize {
        let keys = self.keys.as_ref().map_or(0, |keys| keys.entries.len() + keys.bytes.len());
        let inside = self.members.iter().map(|member| match member {
            Member::Slot { .. } => 0,
            Member::Object { shape, .. } => shape.memory_size(),
        });
        keys + self.members.capacity() * size_of::<Member>() + inside.sum::<usize>()
    }

    #[inline]
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The keys of an object that lacks none of its members, if they were [prepared](Schema::prepare_keys).
    pub(super) fn whole_keys(&self) -> Option<&Keys> {
        self.keys.as_deref()
    }

    /// Prepares its keys, and those of objects inside it, as long as there are `left` bytes for them.
    fn prepare(&mut self, keys: &[Vec<u8>], left: &mut usize) -> Result<(), Error> {
        let own: usize =
            self.members.iter().filter_map(|member| keys.get(usize::from(member.key()))).map(Vec::len).sum();
        let size = own + KEY_BYTES * self.members.len();
        if size <= *left {
            *left -= size;
            let (mut target, mut open) =
                (memory::zeroed(size + KEY_BYTES * (1 + self.members.len()))?, Stack::default());
            let mut writer = Writer::new(&mut target, &mut open);
            if let Some(range) = writer.keys_alone(&self.members, keys) {
                let (entries, bytes) = (memory::copy(&target[range.0])?, memory::copy(&target[range.1])?);
                self.keys = Some(Box::new(Keys { entries, bytes }));
            }
        }
        for member in &mut self.members {
            if let Member::Object { shape, .. } = member {
                shape.prepare(keys, left)?;
            }
        }
        Ok(())
    }

    /// Values that are in it, those of objects inside it included.
    pub(super) fn slots(&self) -> usize {
        self.slots.into()
    }
}

impl Record {
    /// The column of a key in objects that have none of the shapes.
    pub(super) fn child(&self, key: KeyIndex) -> Option<ColumnIndex> {
        let at = self.children.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(self.children[at].1)
    }
}

impl Column {
    /// Bytes of memory, about.
    fn memory_size(&self) -> usize {
        let values: usize = self.values.iter().map(|value| size_of::<Value>() + value.bytes.capacity()).sum();
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
    /// Finds keys.
    pub(super) fn key_index(&self) -> Result<Index, Error> {
        let mut keys = Index::with_room_for(self.keys.len())?;
        for (at, key) in self.keys.iter().enumerate() {
            keys.insert(hash_of(0, key), at as u32);
        }
        Ok(keys)
    }

    /// Prepares the keys of shapes for reading.
    pub(super) fn prepare_keys(&mut self) -> Result<(), Error> {
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

    /// A key by its text, in what [`key_index`](Self::key_index) made.
    #[inline]
    pub(super) fn key(&self, index: &Index, key: &[u8]) -> Option<KeyIndex> {
        let is_it = |at: u32| self.keys.get(at as usize).is_some_and(|known| known == key);
        index.find(hash_of(0, key), is_it).map(|at| at as KeyIndex)
    }

    /// Bytes of memory.
    pub(super) fn memory_size(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| size_of::<Vec<u8>>() + key.capacity()).sum();
        let columns: usize = self.columns.iter().map(Column::memory_size).sum();
        self.phrases.memory_size() + keys + columns
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
