//! Reading the outermost level of a jsonb, as the server's `jsonb.h` lays it out.

/// A jsonb without its varlena header.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    header: u32,
    count: usize,
    /// The entries, and the elements they describe.
    bytes: &'a [u8],
}

/// An element of the outermost level. Of nested containers, the number of their elements.
#[derive(Clone, Copy)]
pub(super) enum Element<'a> {
    Null,
    String(&'a [u8]),
    /// A varlena.
    Numeric(&'a [u8]),
    Bool(bool),
    Array(usize),
    Object(usize),
}

const ENTRY: usize = 4;
// Of a container's header.
const COUNT: u32 = 0x0fff_ffff;
const IS_SCALAR: u32 = 0x1000_0000;
const IS_OBJECT: u32 = 0x2000_0000;
// Of an entry.
const LENGTH: u32 = 0x0fff_ffff;
const TYPE: u32 = 0x7000_0000;
const IS_END: u32 = 0x8000_0000;

impl<'a> Document<'a> {
    pub(super) fn new(jsonb: &'a [u8]) -> Document<'a> {
        let header = word(jsonb, 0);
        Document { header, count: (header & COUNT) as usize, bytes: &jsonb[ENTRY..] }
    }

    /// Pairs of an object, elements of an array, 1 for a scalar.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn is_object(&self) -> bool {
        self.header & IS_OBJECT != 0
    }

    pub(super) fn is_scalar(&self) -> bool {
        self.header & IS_SCALAR != 0
    }

    /// How many elements a comparison walks along: of an object, keys and values.
    pub(super) fn places(&self) -> usize {
        if self.is_object() { 2 * self.count } else { self.count }
    }

    /// The element at a place: of an object key, value, key, value.
    pub(super) fn at(&self, place: usize) -> Element<'a> {
        self.element(self.index(place))
    }

    fn element(&self, index: usize) -> Element<'a> {
        let entry = word(self.bytes, index * ENTRY);
        let (data, start, end) = self.data(index);
        let aligned = start.next_multiple_of(ENTRY);
        match entry & TYPE {
            0x0000_0000 => Element::String(&data[start..end]),
            0x1000_0000 => Element::Numeric(&data[aligned..end]),
            0x2000_0000 => Element::Bool(false),
            0x3000_0000 => Element::Bool(true),
            0x4000_0000 => Element::Null,
            _ => {
                let header = word(data, aligned);
                let count = (header & COUNT) as usize;
                if header & IS_OBJECT != 0 { Element::Object(count) } else { Element::Array(count) }
            }
        }
    }

    /// The bytes of an element at a place, a container's from its header on: without those that align it.
    pub(super) fn bytes_at(&self, place: usize) -> &'a [u8] {
        let (data, start, end) = self.data(self.index(place));
        &data[start.next_multiple_of(ENTRY).min(end)..end]
    }

    /// The number of the entry at a place.
    fn index(&self, place: usize) -> usize {
        if self.is_object() { place / 2 + if place % 2 == 1 { self.count } else { 0 } } else { place }
    }

    /// The data of all elements, and where in it those of an entry start and end.
    fn data(&self, index: usize) -> (&'a [u8], usize, usize) {
        let entry = word(self.bytes, index * ENTRY);
        let (start, length) = (self.start(index), (entry & LENGTH) as usize);
        let end = if entry & IS_END != 0 { length } else { start + length };
        (&self.bytes[self.places() * ENTRY..], start, end)
    }

    /// Where an element starts behind the entries: the sum of lengths back to one that tells its end.
    fn start(&self, index: usize) -> usize {
        let mut start = 0;
        for before in (0..index).rev() {
            let entry = word(self.bytes, before * ENTRY);
            start += (entry & LENGTH) as usize;
            if entry & IS_END != 0 {
                break;
            }
        }
        start
    }
}

impl Element<'_> {
    /// jsonb's order of types.
    pub(super) fn rank(&self) -> u64 {
        match self {
            Element::Null => 0,
            Element::String(_) => 1,
            Element::Numeric(_) => 2,
            Element::Bool(_) => 3,
            Element::Array(_) => 4,
            Element::Object(_) => 5,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
