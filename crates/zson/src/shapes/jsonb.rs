//! jsonb as the server lays it out: reading its nodes, and writing them anew to the same bytes.
//!
//! A container is a header, an entry for each key and value, and their data. The entry of every 32nd item has the end of
//! its data, the others have its length. Numbers and containers are aligned to four bytes, and what they are aligned
//! with belongs to their data. Objects have all keys first, ordered by length and then by bytes.
//!
//! Reading takes no byte for granted: whatever does not fit is [`None`], and nobody is told why, since the server has made
//! these bytes or a writer has been given others. Writing gives what the server gives for the same nodes; who needs to
//! know that compares.
//!
//! Sources: `src/include/utils/jsonb.h`, `convertToJsonb` of `src/backend/utils/adt/jsonb_util.c`.

use std::ops::Range;

use super::number::{Buffer, Number};
use super::schema::{FEW_BYTES, Few, Keys, Member};

/// `JB_OFFSET_STRIDE`
const OFFSET_STRIDE: usize = 32;
/// `JENTRY_OFFLENMASK`
const LENGTH_MASK: u32 = 0x0fff_ffff;
/// `JENTRY_TYPEMASK`
const TYPE_MASK: u32 = 0x7000_0000;
/// `JENTRY_HAS_OFF`
const HAS_OFFSET: u32 = 0x8000_0000;
/// `JENTRY_ISSTRING` and the other types of entries.
const STRING: u32 = 0;
const NUMERIC: u32 = 0x1000_0000;
const FALSE: u32 = 0x2000_0000;
const TRUE: u32 = 0x3000_0000;
const NULL: u32 = 0x4000_0000;
const CONTAINER: u32 = 0x5000_0000;
/// `JB_CMASK`, and the flags `JB_FSCALAR`, `JB_FOBJECT`, `JB_FARRAY`.
const COUNT_MASK: u32 = 0x0fff_ffff;
const IS_SCALAR: u32 = 0x1000_0000;
const IS_OBJECT: u32 = 0x2000_0000;
const IS_ARRAY: u32 = 0x4000_0000;
const ENTRY_BYTES: usize = 4;

/// A value of a document.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Node<'d> {
    Null,
    Bool(bool),
    /// A numeric with its four-byte header.
    Number(&'d [u8]),
    /// UTF-8 where the database is; any encoding otherwise.
    Text(&'d [u8]),
    Array(Container<'d>),
    Object(Container<'d>),
}

/// An array or an object: its bytes from its header on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Container<'d> {
    bytes: &'d [u8],
    /// Elements, or pairs.
    count: usize,
    /// Entries: `count` for an array, twice as many for an object.
    entries: usize,
}

/// What a document's root is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Root<'d> {
    Container(Node<'d>),
    /// A value alone: the server wraps it in an array of one.
    Scalar(Node<'d>),
}

/// Takes a document apart.
pub(super) fn root(document: &[u8]) -> Option<Root<'_>> {
    let node = container(document)?;
    let header = u32::from_le_bytes(*document.first_chunk()?);
    match node {
        Node::Array(array) if header & IS_SCALAR != 0 => Some(Root::Scalar(array.values().next()??)),
        node => Some(Root::Container(node)),
    }
}

/// The array or object of these bytes.
pub(super) fn container(bytes: &[u8]) -> Option<Node<'_>> {
    let header = u32::from_le_bytes(*bytes.first_chunk()?);
    let count = (header & COUNT_MASK) as usize;
    let is_object = header & IS_OBJECT != 0;
    let entries = if is_object { count * 2 } else { count };
    // Bounds every later look at an entry.
    bytes.get(..ENTRY_BYTES.checked_mul(entries + 1)?)?;
    let container = Container { bytes, count, entries };
    match header & (IS_OBJECT | IS_ARRAY) {
        IS_OBJECT => Some(Node::Object(container)),
        IS_ARRAY => Some(Node::Array(container)),
        _ => None,
    }
}

impl<'d> Container<'d> {
    /// Its bytes, which mean the same at every place of a document.
    pub(super) fn bytes(&self) -> &'d [u8] {
        self.bytes
    }

    /// Elements of an array, pairs of an object.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The elements of an array, or the values of an object in the order of its keys.
    pub(super) fn values(&self) -> impl Iterator<Item = Option<Node<'d>>> + Clone + use<'d> {
        let container = *self;
        let first = container.entries - container.count;
        let mut cursor = Cursor::before(&container, first);
        (first..container.entries).map(move |index| container.node(index, &mut cursor))
    }

    /// The keys of an object.
    pub(super) fn keys(&self) -> impl Iterator<Item = Option<&'d [u8]>> + Clone + use<'d> {
        let container = *self;
        let mut cursor = Cursor::default();
        (0..container.entries - container.count).map(move |index| {
            match container.node(index, &mut cursor)? {
                Node::Text(key) => Some(key),
                _ => None,
            }
        })
    }

    /// A key of an object.
    pub(super) fn key(&self, at: usize) -> Option<&'d [u8]> {
        match self.node(at, &mut Cursor::before(self, at))? {
            Node::Text(key) if at < self.entries - self.count => Some(key),
            _ => None,
        }
    }

    /// The keys of an object as they are stored: their entries, and their bytes.
    #[inline]
    pub(super) fn stored_keys(&self) -> Option<(&'d [u8], &'d [u8])> {
        let count = self.entries - self.count;
        let entries = self.bytes.get(ENTRY_BYTES..ENTRY_BYTES * (count + 1))?;
        let data = self.bytes.get(ENTRY_BYTES * (self.entries + 1)..)?;
        Some((entries, data.get(..Cursor::before(self, count).end)?))
    }

    fn entry(&self, index: usize) -> u32 {
        let at = ENTRY_BYTES * (index + 1);
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Whether a writer that is given its nodes writes these bytes: what else the server would read is not lost then.
    /// What is in containers inside it is not looked at.
    pub(super) fn is_canonical(&self) -> bool {
        self.has_flags(|flags, _| matches!(flags, IS_ARRAY | IS_OBJECT)) && self.are_entries_canonical()
    }

    /// The same of the array around a value alone.
    pub(super) fn is_canonical_scalar(&self) -> bool {
        self.has_flags(|flags, count| flags == IS_ARRAY | IS_SCALAR && count == 1)
            && self.are_entries_canonical()
    }

    fn has_flags(&self, are_right: impl FnOnce(u32, u32) -> bool) -> bool {
        let header = self.bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        are_right(header & !COUNT_MASK, header & COUNT_MASK)
    }

    fn are_entries_canonical(&self) -> bool {
        let Some(data) = self.bytes.get(ENTRY_BYTES * (self.entries + 1)..) else { return false };
        let mut cursor = Cursor::default();
        let is_entry_canonical = |index: usize| {
            let (entry, start) = (self.entry(index), cursor.end);
            cursor.pass(self, index);
            let has_offset = entry & HAS_OFFSET != 0;
            let is_fit = match entry & TYPE_MASK {
                STRING => start <= cursor.end,
                NUMERIC | CONTAINER => {
                    let gap = data.get(start..start.next_multiple_of(ENTRY_BYTES));
                    start < cursor.end && gap.is_some_and(|gap| gap.iter().all(|byte| *byte == 0))
                }
                FALSE | TRUE | NULL => start == cursor.end,
                _ => false,
            };
            is_fit && has_offset == index.is_multiple_of(OFFSET_STRIDE)
        };
        (0..self.entries).all(is_entry_canonical) && cursor.end == data.len()
    }

    /// An element of an array, or the value of an object's key.
    pub(super) fn value(&self, at: usize) -> Option<Node<'d>> {
        if at >= self.count {
            return None;
        }
        let index = self.entries - self.count + at;
        self.node(index, &mut Cursor::before(self, index))
    }

    fn node(&self, index: usize, cursor: &mut Cursor) -> Option<Node<'d>> {
        let entry = self.entry(index);
        let start = cursor.end;
        cursor.pass(self, index);
        let data = self.bytes.get(ENTRY_BYTES * (self.entries + 1)..)?.get(start..cursor.end)?;
        // The container begins aligned, and so does its data.
        let aligned = || data.get(start.next_multiple_of(4) - start..);
        match entry & TYPE_MASK {
            STRING => Some(Node::Text(data)),
            NUMERIC => aligned().map(Node::Number),
            FALSE => Some(Node::Bool(false)),
            TRUE => Some(Node::Bool(true)),
            NULL => Some(Node::Null),
            CONTAINER => container(aligned()?),
            _ => None,
        }
    }
}

/// Where the data of the last entry ends.
#[derive(Copy, Clone, Default)]
struct Cursor {
    end: usize,
}

impl Cursor {
    /// Where the data of an entry begins: the lengths before it are added up, back to one that has its end.
    fn before(container: &Container<'_>, index: usize) -> Cursor {
        let mut end = 0usize;
        for before in (0..index).rev() {
            let entry = container.entry(before);
            end = end.saturating_add((entry & LENGTH_MASK) as usize);
            if entry & HAS_OFFSET != 0 {
                break;
            }
        }
        Cursor { end }
    }

    fn pass(&mut self, container: &Container<'_>, index: usize) {
        let entry = container.entry(index);
        let length = (entry & LENGTH_MASK) as usize;
        self.end = if entry & HAS_OFFSET != 0 { length } else { self.end.saturating_add(length) };
    }
}

/// Writes a document into a target, node after node. Its document is the beginning of the target.
#[derive(Debug)]
pub(super) struct Writer<'t> {
    target: &'t mut [u8],
    len: usize,
    open: &'t mut Stack,
}

/// The containers that are open, the innermost last.
#[derive(Debug)]
pub(super) struct Stack {
    open: [Open; OPEN_MAX],
    count: usize,
}

/// Containers in containers at most, of the server's recursion's own making: what is deeper is not read here.
const OPEN_MAX: usize = 80;

/// A container whose entries are being filled.
#[derive(Copy, Clone, Debug)]
struct Open {
    /// Where its data begins with the bytes that align it, and where its header is.
    start: u32,
    header: u32,
    /// The next entry, and how many there are.
    next: u32,
    entries: u32,
    /// Bytes of its data so far.
    end: u32,
}

impl Default for Stack {
    fn default() -> Stack {
        Stack { open: [Open { start: 0, header: 0, next: 0, entries: 0, end: 0 }; OPEN_MAX], count: 0 }
    }
}

/// What cannot be written: it would be longer than its target or too long for an entry, has more or fewer values than
/// it began with, or is nested too deeply.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Unwritable;

impl<'t> Writer<'t> {
    /// A writer of a document of at most the target's bytes.
    pub(super) fn new(target: &'t mut [u8], open: &'t mut Stack) -> Writer<'t> {
        open.count = 0;
        Writer { target, len: 0, open }
    }

    /// Whether nothing was begun.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Begins an array of so many elements.
    pub(super) fn begin_array(&mut self, count: usize) -> Result<(), Unwritable> {
        self.begin(count, count, IS_ARRAY)
    }

    /// Begins the array around a value alone.
    pub(super) fn begin_scalar(&mut self) -> Result<(), Unwritable> {
        self.begin(1, 1, IS_ARRAY | IS_SCALAR)
    }

    /// Begins an object of so many pairs. All keys come first.
    pub(super) fn begin_object(&mut self, count: usize) -> Result<(), Unwritable> {
        self.begin(count, count.checked_mul(2).ok_or(Unwritable)?, IS_OBJECT)
    }

    fn begin(&mut self, count: usize, entries: usize, flags: u32) -> Result<(), Unwritable> {
        let start = self.len as u32;
        self.align()?;
        let header = self.len;
        let bytes =
            entries.checked_add(1).and_then(|words| words.checked_mul(ENTRY_BYTES)).ok_or(Unwritable)?;
        // Each entry is written before the container ends.
        let entry_bytes = self.take(bytes)?;
        // As many entries as fit into the target are fewer than the mask.
        let head = (count as u32 | flags).to_le_bytes();
        entry_bytes.get_mut(..ENTRY_BYTES).ok_or(Unwritable)?.copy_from_slice(&head);
        let open = self.open.open.get_mut(self.open.count).ok_or(Unwritable)?;
        *open = Open { start, header: header as u32, next: 0, entries: entries as u32, end: 0 };
        self.open.count += 1;
        Ok(())
    }

    /// All keys of an object that was just begun, as [`keys_alone`](Self::keys_alone) has written them.
    pub(super) fn keys(&mut self, keys: &Keys) -> Result<(), Unwritable> {
        let at = self.open.count.checked_sub(1).ok_or(Unwritable)?;
        let open = &mut self.open.open[at];
        let count = (keys.entries.len() / ENTRY_BYTES) as u32;
        if open.next != 0 || open.entries != 2 * count {
            return Err(Unwritable);
        }
        open.next = count;
        open.end = keys.bytes.len() as u32;
        let start = open.header as usize + ENTRY_BYTES;
        let place = self.target.get_mut(start..start + keys.entries.len()).ok_or(Unwritable)?;
        place.copy_from_slice(&keys.entries);
        self.take(keys.bytes.len())?.copy_from_slice(&keys.bytes);
        Ok(())
    }

    /// Those of the keys, as [`keys_alone`](Self::keys_alone) has written them, that are there.
    pub(super) fn some_keys(
        &mut self,
        keys: &Keys,
        are_there: impl Iterator<Item = bool>,
    ) -> Result<(), Unwritable> {
        let mut start = 0;
        for (entry, is_there) in keys.entries.as_chunks().0.iter().zip(are_there) {
            let entry = u32::from_le_bytes(*entry);
            let length = (entry & LENGTH_MASK) as usize;
            let end = if entry & HAS_OFFSET != 0 { length } else { start + length };
            if is_there {
                self.part(&keys.bytes, start..end)?;
                self.enter(STRING, end - start)?;
            }
            start = end;
        }
        Ok(())
    }

    /// Appends a part of some bytes: as if it were longer, if there is more behind it.
    #[inline]
    fn part(&mut self, bytes: &[u8], part: Range<usize>) -> Result<(), Unwritable> {
        let (from, length) = (bytes.get(part.start..).ok_or(Unwritable)?, part.len());
        let room = self.target.get_mut(self.len..).ok_or(Unwritable)?;
        if length <= FEW_BYTES
            && let (Some(room), Some(from)) = (room.first_chunk_mut::<FEW_BYTES>(), from.first_chunk())
        {
            *room = *from;
            self.len += length;
            return Ok(());
        }
        self.put(from.get(..length).ok_or(Unwritable)?)
    }

    /// Writes the keys of members, and nothing else; where their entries and their bytes are.
    pub(super) fn keys_alone(
        &mut self,
        members: &[Member],
        keys: &[Vec<u8>],
    ) -> Option<(Range<usize>, Range<usize>)> {
        self.begin_object(members.len()).ok()?;
        let start = self.len;
        for member in members {
            self.text(keys.get(usize::from(member.key()))?).ok()?;
        }
        Some((ENTRY_BYTES..ENTRY_BYTES * (1 + members.len()), start..self.len))
    }

    /// Ends the container that was begun last.
    pub(super) fn end(&mut self) -> Result<(), Unwritable> {
        let at = self.open.count.checked_sub(1).ok_or(Unwritable)?;
        let Open { start, next, entries, .. } = self.open.open[at];
        if next != entries {
            return Err(Unwritable);
        }
        self.open.count = at;
        if at == 0 { Ok(()) } else { self.enter(CONTAINER, self.len - start as usize) }
    }

    /// A key, or a string.
    pub(super) fn text(&mut self, text: &[u8]) -> Result<(), Unwritable> {
        self.put(text)?;
        self.enter(STRING, text.len())
    }

    /// Bytes of the target that are left.
    pub(super) fn room(&self) -> usize {
        self.target.len() - self.len
    }

    /// A string that `write` puts at the beginning of what is left of the target; it returns its length.
    pub(super) fn text_by(
        &mut self,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Result<(), Unwritable> {
        let rest = self.target.get_mut(self.len..).ok_or(Unwritable)?;
        let room = rest.len();
        let length = write(rest).filter(|length| *length <= room).ok_or(Unwritable)?;
        self.len += length;
        self.enter(STRING, length)
    }

    /// A numeric with its header.
    pub(super) fn number(&mut self, numeric: &[u8]) -> Result<(), Unwritable> {
        self.aligned(NUMERIC, numeric)
    }

    /// The same of a number.
    #[inline]
    pub(super) fn number_of(&mut self, number: Number) -> Result<(), Unwritable> {
        if let Some(few) = number.few() {
            return self.number_of_few(&few);
        }
        let mut buffer = Buffer::default();
        number.write(&mut buffer).ok_or(Unwritable)?;
        self.number(buffer.bytes())
    }

    /// The bytes of a container.
    pub(super) fn container(&mut self, bytes: &[u8]) -> Result<(), Unwritable> {
        self.aligned(CONTAINER, bytes)
    }

    /// A string of few bytes.
    #[inline]
    pub(super) fn text_of_few(&mut self, few: &Few) -> Result<(), Unwritable> {
        self.put_few(few)?;
        self.enter(STRING, few.len.into())
    }

    /// A numeric of few bytes.
    #[inline]
    pub(super) fn number_of_few(&mut self, few: &Few) -> Result<(), Unwritable> {
        let start = self.len;
        self.align()?;
        self.put_few(few)?;
        self.enter(NUMERIC, self.len - start)
    }

    fn aligned(&mut self, kind: u32, bytes: &[u8]) -> Result<(), Unwritable> {
        let start = self.len;
        self.align()?;
        self.put(bytes)?;
        self.enter(kind, self.len - start)
    }

    /// null.
    pub(super) fn null(&mut self) -> Result<(), Unwritable> {
        self.enter(NULL, 0)
    }

    /// true or false.
    pub(super) fn bool(&mut self, value: bool) -> Result<(), Unwritable> {
        self.enter(if value { TRUE } else { FALSE }, 0)
    }

    /// The next bytes of the target.
    fn take(&mut self, length: usize) -> Result<&mut [u8], Unwritable> {
        let end = self.len.checked_add(length).ok_or(Unwritable)?;
        let taken = self.target.get_mut(self.len..end).ok_or(Unwritable)?;
        self.len = end;
        Ok(taken)
    }

    /// Appends bytes, few ones without a call.
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), Unwritable> {
        let room = self.take(bytes.len())?;
        let is_done = match bytes.len() {
            17..=32 => ends::<16>(room, bytes),
            33..=64 => ends::<32>(room, bytes),
            8..=16 => ends::<8>(room, bytes),
            4..8 => ends::<4>(room, bytes),
            1..4 => {
                room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                true
            }
            _ => false,
        };
        if !is_done {
            room.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Appends few bytes.
    #[inline]
    fn put_few(&mut self, few: &Few) -> Result<(), Unwritable> {
        let len = usize::from(few.len);
        match self.target.get_mut(self.len..).and_then(|rest| rest.first_chunk_mut()) {
            // What comes next is written over what is too much.
            Some(room) => {
                *room = few.bytes;
                self.len += len;
                Ok(())
            }
            None => self.put(few.bytes.get(..len).ok_or(Unwritable)?),
        }
    }

    #[inline]
    fn align(&mut self) -> Result<(), Unwritable> {
        let end = self.len.next_multiple_of(ENTRY_BYTES);
        // More bytes than that come next, and are written over what is too much.
        let room = self.target.get_mut(self.len..).and_then(|rest| rest.first_chunk_mut::<ENTRY_BYTES>());
        *room.ok_or(Unwritable)? = [0; ENTRY_BYTES];
        self.len = end;
        Ok(())
    }

    fn enter(&mut self, kind: u32, length: usize) -> Result<(), Unwritable> {
        let at = self.open.count.checked_sub(1).ok_or(Unwritable)?;
        let open = &mut self.open.open[at];
        if open.next >= open.entries {
            return Err(Unwritable);
        }
        open.end += length as u32;
        if open.end > LENGTH_MASK {
            return Err(Unwritable);
        }
        let entry = match open.next as usize % OFFSET_STRIDE {
            0 => kind | open.end | HAS_OFFSET,
            _ => kind | length as u32,
        };
        let at = open.header as usize + ENTRY_BYTES * (open.next as usize + 1);
        open.next += 1;
        let place = self.target.get_mut(at..at + ENTRY_BYTES).ok_or(Unwritable)?;
        place.copy_from_slice(&entry.to_le_bytes());
        Ok(())
    }
}

/// Copies the first and the last `N` bytes, which may have some in common. False: there are fewer.
#[inline]
fn ends<const N: usize>(room: &mut [u8], bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return false };
    let Some(place) = room.first_chunk_mut() else { return false };
    *place = *first;
    let Some(place) = room.last_chunk_mut() else { return false };
    *place = *last;
    true
}

/// Writes a node and all that is in it.
pub(super) fn copy(node: Node<'_>, writer: &mut Writer<'_>) -> Option<()> {
    match node {
        Node::Null => writer.null().ok(),
        Node::Bool(value) => writer.bool(value).ok(),
        Node::Number(numeric) => writer.number(numeric).ok(),
        Node::Text(text) => writer.text(text).ok(),
        Node::Array(array) => {
            writer.begin_array(array.count()).ok()?;
            array.values().try_for_each(|value| copy(value?, writer))?;
            writer.end().ok()
        }
        Node::Object(object) => {
            writer.begin_object(object.count()).ok()?;
            object.keys().try_for_each(|key| writer.text(key?).ok())?;
            object.values().try_for_each(|value| copy(value?, writer))?;
            writer.end().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(document: &[u8]) -> Option<Vec<u8>> {
        let (mut target, mut open) = (vec![0xaa; document.len()], Stack::default());
        let mut writer = Writer::new(&mut target, &mut open);
        match root(document)? {
            Root::Container(node) => copy(node, &mut writer)?,
            Root::Scalar(node) => {
                writer.begin_scalar().ok()?;
                copy(node, &mut writer)?;
                writer.end().ok()?;
            }
        }
        (writer.len() == document.len()).then_some(target)
    }

    fn written(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Unwritable>) -> Vec<u8> {
        let (mut target, mut open) = (vec![0xaa; 4096], Stack::default());
        let mut writer = Writer::new(&mut target, &mut open);
        write(&mut writer).unwrap();
        let len = writer.len();
        target.truncate(len);
        target
    }

    #[test]
    fn what_is_written_is_read_and_written_to_the_same_bytes() {
        let document = written(|writer| {
            writer.begin_object(40)?;
            (0..40).try_for_each(|n| writer.text(format!("k{n:02}").as_bytes()))?;
            (0..38).try_for_each(|n| writer.text(&vec![b'x'; n]))?;
            writer.begin_array(3)?;
            writer.null()?;
            writer.number(&[0x20, 0, 0, 0, 0, 0x80, 7, 0])?;
            writer.bool(true)?;
            writer.end()?;
            writer.begin_object(0)?;
            writer.end()?;
            writer.end()
        });
        assert_eq!(again(&document).unwrap(), document);
        let Some(Root::Container(Node::Object(object))) = root(&document) else { panic!() };
        assert_eq!(object.keys().nth(39).unwrap().unwrap(), b"k39");
        assert_eq!(object.values().nth(37).unwrap().unwrap(), Node::Text(&[b'x'; 37]));
    }

    #[test]
    fn what_does_not_fit_its_target_or_its_container_is_refused() {
        let mut open = Stack::default();
        let mut writer = Writer::new(&mut [], &mut open);
        assert_eq!(writer.begin_object(1), Err(Unwritable));
        let mut target = [0; 4 * 2 * OPEN_MAX];
        let mut writer = Writer::new(&mut target, &mut open);
        for _ in 0..OPEN_MAX {
            writer.begin_array(1).unwrap();
        }
        assert_eq!(writer.begin_array(0), Err(Unwritable));
        let mut target = [0; 64];
        let mut writer = Writer::new(&mut target, &mut open);
        writer.begin_array(1).unwrap();
        assert_eq!(writer.end(), Err(Unwritable), "an element is missing");
        writer.text(b"a").unwrap();
        assert_eq!(writer.text(b"b"), Err(Unwritable), "one too many");
        assert_eq!(writer.begin_object(usize::MAX / 2), Err(Unwritable));
    }

    #[test]
    fn bytes_that_are_no_document_are_refused_and_cost_nothing() {
        assert_eq!(root(b""), None);
        assert_eq!(root(&(IS_ARRAY | 0x0fff_ffff).to_le_bytes()), None);
        assert_eq!(root(&0u32.to_le_bytes()), None);
        // An element whose data is not there.
        let cut = [(IS_ARRAY | 1).to_le_bytes(), (HAS_OFFSET | 5).to_le_bytes()].concat();
        assert_eq!(again(&cut), None);
    }
}
