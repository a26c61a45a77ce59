//! The headers of heap and index tuples, field by field.
//!
//! A heap tuple (`htup_details.h`) begins with xmin, xmax, a command id, its own place, two words of flags,
//! the offset of its data and a bitmap of nulls. An index tuple (`itup.h`) begins with the place of a row, or
//! for B-tree pages of what they call a posting list or a pivot (`nbtree.h`), and a word of size and flags.
//!
//! Both directions go through the same list of fields, so that they cannot differ. Afterwards the cells know
//! their class and where their lanes begin and end, from bytes that a decoder has by then restored.

use super::PAGE_SIZE;
use super::column::{self, Backend, NEVER};
use super::layout::{Cell, Layout, aligned, fill, u16_at, u32_at};
use super::streams::Sink;

pub(super) mod gin;
mod read;

pub(super) use read::{read, read_blocks_and_offsets, read_postings};

/// How the tuples of a page begin.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Family {
    Heap,
    Index,
    /// With nothing known in advance.
    Other,
}

const HEAP_BYTES: usize = 24;
const INDEX_BYTES: usize = 8;
/// `INDEX_ALT_TID_MASK`: the row pointer is something else.
const ALTERNATIVE: u16 = 0x2000;
/// `BT_IS_POSTING` in the offset part of such a row pointer.
const POSTING: u16 = 0x2000;
const POSTING_COUNT_MASK: u16 = 0x0fff;
const TID_BYTES: usize = 6;

impl Family {
    pub(super) fn of(page: &[u8; PAGE_SIZE], layout: &Layout) -> Family {
        let all = |len: usize| layout.cells.iter().all(|cell| usize::from(cell.len) >= len);
        let special = PAGE_SIZE - layout.special;
        if special == 0 && all(HEAP_BYTES) {
            return Family::Heap;
        }
        let index = match special {
            16 => true,
            // The last word of SP-GiST's and BRIN's special space names them; GIN has none of these numbers.
            8 => !matches!(u16_at(page, PAGE_SIZE - 2), 0xff82 | 0xf091..=0xf093),
            _ => false,
        };
        if index && all(INDEX_BYTES) { Family::Index } else { Family::Other }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Family::Heap => 1,
            Family::Index => 2,
            Family::Other => 3,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Family> {
        [Family::Heap, Family::Index, Family::Other].into_iter().find(|family| family.code() == code)
    }

    /// Bytes that [`Field`]s take care of.
    pub(super) fn header_bytes(self) -> usize {
        match self {
            Family::Heap => HEAP_BYTES,
            Family::Index => INDEX_BYTES,
            Family::Other => 0,
        }
    }

    /// Whether a decoded page may have these cells at all.
    pub(super) fn fits(self, layout: &Layout) -> bool {
        layout.cells.is_empty() || usize::from(layout.shortest) >= self.header_bytes()
    }
}

/// One field: where it is, how wide, and what it is written as.
#[derive(Copy, Clone)]
enum Field {
    /// Four bytes.
    Long(usize),
    /// Two bytes.
    Short(usize),
    /// A block number, which is kept as two halves, the higher first.
    Block(usize),
    /// Two bytes less the number of the line pointer.
    OwnOffset(usize),
    /// Two bytes less the length by the line pointer.
    Size(usize),
}

const HEAP_FIELDS: [Field; 8] = [
    Field::Long(0),
    Field::Long(4),
    Field::Long(8),
    Field::Block(12),
    Field::OwnOffset(16),
    Field::Short(18),
    Field::Short(20),
    Field::Short(22),
];

impl Field {
    fn get(self, page: &[u8; PAGE_SIZE], cell: &Cell) -> u32 {
        let at = usize::from(cell.at);
        match self {
            Field::Long(offset) => u32_at(page, at + offset),
            Field::Short(offset) => u16_at(page, at + offset).into(),
            Field::Block(offset) => u32_at(page, at + offset).rotate_left(16),
            Field::OwnOffset(offset) => {
                u16_at(page, at + offset).wrapping_sub(cell.pointer).wrapping_sub(1) as i16 as u32
            }
            Field::Size(offset) => u16_at(page, at + offset).wrapping_sub(cell.len) as i16 as u32,
        }
    }
}

/// Where columns go, and room for the values of one.
pub(super) struct Columns<'a> {
    pub(super) values: &'a mut Vec<u32>,
    pub(super) backend: Backend,
    pub(super) sink: &'a mut Sink,
}

impl Columns<'_> {
    /// Writes a column; nothing if it has no values.
    fn write(&mut self, values: impl Iterator<Item = u32>) {
        fill(self.values, values);
        self.write_values();
    }

    fn write_values(&mut self) {
        if !self.values.is_empty() {
            column::write(self.values, self.backend, NEVER, self.sink);
        }
    }
}

/// Writes the headers of all cells.
pub(super) fn write(
    family: Family,
    page: &[u8; PAGE_SIZE],
    layout: &Layout,
    order: &mut Vec<u16>,
    columns: &mut Columns<'_>,
) {
    let all = || layout.cells.iter();
    match family {
        Family::Heap => {
            for field in HEAP_FIELDS {
                columns.write(all().map(|cell| field.get(page, cell)));
            }
        }
        Family::Index => {
            columns.write(all().map(|cell| Field::Size(6).get(page, cell)));
            let alternative = || all().filter(|cell| is_alternative(page, cell));
            columns.write(alternative().map(|cell| Field::Block(0).get(page, cell)));
            columns.write(alternative().map(|cell| Field::Short(4).get(page, cell)));
            let plain = || all().filter(|cell| !is_alternative(page, cell));
            let per_block = per_block(plain().map(|cell| tid(page, cell.at)));
            columns.sink.head_varint(per_block);
            if per_block == 0 {
                columns.write(plain().map(|cell| Field::Block(0).get(page, cell)));
                columns.write(plain().map(|cell| Field::Short(4).get(page, cell)));
                return;
            }
            let row_at = |at| linear(tid(page, at), per_block);
            fill(columns.values, plain().map(|cell| row_at(cell.at)));
            newest_first(layout, order, |cell| !is_alternative(page, cell));
            let by_place = jumps(order.iter().map(|&at| row_at(at))) < jumps(columns.values.iter().copied());
            columns.sink.head.push(by_place.into());
            if by_place {
                fill(columns.values, order.iter().map(|&at| row_at(at)));
            }
            columns.write_values();
        }
        Family::Other => {}
    }
}

/// Which lists of row pointers are written apart from their tuples.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Lists {
    None,
    BTree,
    Gin,
}

/// Sets key, end and posting list of each cell from its header.
pub(super) fn describe(family: Family, page: &[u8; PAGE_SIZE], layout: &mut Layout, lists: Lists) {
    for cell in &mut layout.cells {
        (cell.end, cell.tids, cell.apart) = (cell.len, 0, 0);
        match family {
            Family::Heap => cell.key = u16_at(page, usize::from(cell.at) + 22),
            Family::Index => {
                cell.key = u16_at(page, usize::from(cell.at) + 6) >> 13;
                match lists {
                    Lists::BTree => {
                        if let Some((end, tids)) = posting(page, cell) {
                            (cell.end, cell.tids, cell.key) = (end, tids, 8);
                            cell.apart = tids * TID_BYTES as u16;
                        }
                    }
                    Lists::Gin => {
                        gin::describe(page, layout.special, cell);
                    }
                    Lists::None => {}
                }
            }
            Family::Other => cell.key = 0,
        }
    }
}

/// Where the posting list of `cell` begins and how long it is.
fn posting(page: &[u8; PAGE_SIZE], cell: &Cell) -> Option<(u16, u16)> {
    let at = usize::from(cell.at);
    let offset = u16_at(page, at + 4);
    if !is_alternative(page, cell) || offset & POSTING == 0 {
        return None;
    }
    let (begin, count) = (Field::Block(0).get(page, cell), offset & POSTING_COUNT_MASK);
    let begin = u16::try_from(begin).ok().filter(|&begin| usize::from(begin) >= INDEX_BYTES)?;
    let end = usize::from(begin) + usize::from(count) * TID_BYTES;
    (count > 0 && end <= usize::from(cell.len)).then_some((begin, count))
}

/// Writes all posting lists: their first row pointers, and the distances of the others. `false`, and nothing
/// written, if there are none or they are not ascending.
pub(super) fn write_postings(page: &[u8; PAGE_SIZE], layout: &Layout, columns: &mut Columns<'_>) -> bool {
    let lists = || layout.cells.iter().filter(|cell| cell.tids > 0);
    let all = lists().flat_map(|cell| tids_of(cell).map(|at| tid(page, at)));
    let per_block = per_block(all);
    let ascending = |cell: &Cell| {
        let mut before = None;
        tids_of(cell).all(|at| {
            let now = linear(tid(page, at), per_block);
            before.replace(now).is_none_or(|before| before < now)
        })
    };
    if per_block == 0 || !lists().all(ascending) {
        return false;
    }
    columns.sink.head_varint(per_block);
    columns.write(lists().map(|cell| linear(tid(page, cell.at + cell.end), per_block)));
    columns.values.clear();
    for cell in lists() {
        let mut before = linear(tid(page, cell.at + cell.end), per_block);
        columns.values.extend(tids_of(cell).skip(1).map(|at| {
            let now = linear(tid(page, at), per_block);
            now - std::mem::replace(&mut before, now) - 1
        }));
    }
    columns.write_values();
    true
}

fn tids_of(cell: &Cell) -> impl Iterator<Item = u16> + use<> {
    let begin = cell.at + cell.end;
    (0..cell.tids).map(move |i| begin + i * TID_BYTES as u16)
}

fn is_alternative(page: &[u8; PAGE_SIZE], cell: &Cell) -> bool {
    u16_at(page, usize::from(cell.at) + 6) & ALTERNATIVE != 0
}

/// Block and offset of the row pointer at `at`.
fn tid(page: &[u8; PAGE_SIZE], at: u16) -> (u32, u16) {
    let at = usize::from(at);
    (u32_at(page, at).rotate_left(16), u16_at(page, at + 4))
}

/// The largest offset if all row pointers can be written as `block * largest + offset - 1` in 32 bits, else
/// 0. Then the rows of consecutive blocks are consecutive numbers.
fn per_block(tids: impl Iterator<Item = (u32, u16)>) -> u32 {
    let (mut block_max, mut offset_max, mut offset_min) = (0, 0, u16::MAX);
    for (block, offset) in tids {
        block_max = block_max.max(block);
        offset_max = offset_max.max(offset);
        offset_min = offset_min.min(offset);
    }
    let fits = (u64::from(block_max) + 1) * u64::from(offset_max) <= u32::MAX.into();
    if fits && offset_min > 0 { offset_max.into() } else { 0 }
}

/// Places of cells from the top of the page downwards, which is the order they came in: then rows that were
/// inserted one after the other are neighbours, whatever their keys.
fn newest_first(layout: &Layout, order: &mut Vec<u16>, wanted: impl Fn(&Cell) -> bool) {
    order.clear();
    if !layout.contiguous {
        order.extend(layout.cells.iter().filter(|cell| wanted(cell)).map(|cell| cell.at));
        fall(order);
    }
}

/// Sorts places of cells downwards. They are multiples of eight, each another, so they are marked and
/// collected.
fn fall(order: &mut [u16]) {
    let mut begins = [0u64; PAGE_SIZE / 8 / 64];
    order.iter().for_each(|at| begins[usize::from(at / 512)] |= 1 << (at / 8 % 64));
    let mut slots = order.iter_mut();
    for (i, mut word) in begins.into_iter().enumerate().rev() {
        while word != 0 {
            let bit = word.ilog2();
            word ^= 1 << bit;
            if let Some(slot) = slots.next() {
                *slot = 512 * i as u16 + 8 * bit as u16;
            }
        }
    }
}

/// Bits of all differences; none at all is the worst.
fn jumps(values: impl Iterator<Item = u32>) -> u32 {
    let (mut sum, mut before) = (0, None);
    for value in values {
        let last = before.replace(value).unwrap_or(value);
        sum += 32 - column::zigzag(value.wrapping_sub(last) as i32).leading_zeros();
    }
    if before.is_none() { u32::MAX } else { sum }
}

fn linear((block, offset): (u32, u16), per_block: u32) -> u32 {
    // In range by `per_block` when writing; a decoder only wants no panic.
    block.wrapping_mul(per_block).wrapping_add(offset.into()).wrapping_sub(1)
}

/// Bytes between a cell's end and the next place a tuple may begin.
pub(super) fn padding(cell: &Cell) -> std::ops::Range<usize> {
    let (at, len) = (usize::from(cell.at), usize::from(cell.len));
    at + len..at + aligned(len)
}
