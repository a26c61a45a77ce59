//! The headers of heap and index tuples, field by field.
//!
//! A heap tuple (`htup_details.h`) begins with xmin, xmax, a command id, its own place, two words of flags, the
//! offset of its data and a bitmap of nulls. An index tuple (`itup.h`) begins with the place of a row, or for
//! B-tree pages of what they call a posting list or a pivot (`nbtree.h`), and a word of size and flags.
//!
//! Both directions go through the same list of fields, so that they cannot differ. Afterwards the cells know
//! their class and where their lanes begin and end, from bytes that a decoder has by then restored.

use super::column::{self, Backend, NEVER};
use super::layout::{Cell, Layout, aligned, resize, u16_at, u32_at};
use super::streams::{Sink, Source};
use super::{Error, PAGE_SIZE};

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

    /// Bytes that [`Fields`] takes care of.
    pub(super) fn header_bytes(self) -> usize {
        match self {
            Family::Heap => HEAP_BYTES,
            Family::Index => INDEX_BYTES,
            Family::Other => 0,
        }
    }

    /// Whether a decoded page may have these cells at all.
    pub(super) fn fits(self, layout: &Layout) -> bool {
        layout.cells.iter().all(|cell| usize::from(cell.len) >= self.header_bytes())
    }
}

/// One field: where it is, how wide, and what it is told as.
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

    fn set(self, page: &mut [u8; PAGE_SIZE], cell: &Cell, value: u32) {
        let at = usize::from(cell.at);
        let (offset, bytes, len) = match self {
            Field::Long(offset) => (offset, value.to_le_bytes(), 4),
            Field::Block(offset) => (offset, value.rotate_left(16).to_le_bytes(), 4),
            Field::Short(offset) => (offset, value.to_le_bytes(), 2),
            Field::OwnOffset(offset) => {
                (offset, value.wrapping_add(cell.pointer.into()).wrapping_add(1).to_le_bytes(), 2)
            }
            Field::Size(offset) => (offset, value.wrapping_add(cell.len.into()).to_le_bytes(), 2),
        };
        page[at + offset..at + offset + len].copy_from_slice(&bytes[..len]);
    }
}

/// Writes the headers of all cells.
pub(super) fn write(
    family: Family,
    page: &[u8; PAGE_SIZE],
    layout: &Layout,
    values: &mut Vec<u32>,
    order: &mut Vec<u16>,
    backend: Backend,
    sink: &mut Sink,
) {
    let mut field = |field: Field, sink: &mut Sink, wanted: &dyn Fn(&Cell) -> bool| {
        values.clear();
        values.extend(layout.cells.iter().filter(|cell| wanted(cell)).map(|cell| field.get(page, cell)));
        if !values.is_empty() {
            column::write(values, backend, NEVER, sink);
        }
    };
    match family {
        Family::Heap => {
            for one in HEAP_FIELDS {
                field(one, sink, &|_| true);
            }
        }
        Family::Index => {
            field(Field::Size(6), sink, &|_| true);
            let alternative = |cell: &Cell| is_alternative(page, cell);
            field(Field::Block(0), sink, &alternative);
            field(Field::Short(4), sink, &alternative);
            let plain = |cell: &Cell| !is_alternative(page, cell);
            let per_block =
                per_block(layout.cells.iter().filter(|cell| plain(cell)).map(|cell| tid(page, cell.at)));
            sink.head_varint(per_block);
            if per_block == 0 {
                field(Field::Block(0), sink, &plain);
                field(Field::Short(4), sink, &plain);
            } else {
                values.clear();
                values.extend(
                    layout
                        .cells
                        .iter()
                        .filter(|cell| plain(cell))
                        .map(|cell| linear(tid(page, cell.at), per_block)),
                );
                newest_first(layout, order, plain);
                let by_place = jumps(order.iter().map(|&at| linear(tid(page, at), per_block)))
                    < jumps(values.iter().copied());
                sink.head.push(by_place.into());
                if by_place {
                    values.clear();
                    values.extend(order.iter().map(|&at| linear(tid(page, at), per_block)));
                }
                column::write(values, backend, NEVER, sink);
            }
        }
        Family::Other => {}
    }
}

/// The inverse of [`write`].
pub(super) fn read(
    family: Family,
    page: &mut [u8; PAGE_SIZE],
    layout: &Layout,
    values: &mut Vec<u32>,
    order: &mut Vec<u16>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    match family {
        Family::Heap => {
            for field in HEAP_FIELDS {
                read_field(field, page, layout, values, source, |_, _| true)?;
            }
        }
        Family::Index => {
            read_field(Field::Size(6), page, layout, values, source, |_, _| true)?;
            read_field(Field::Block(0), page, layout, values, source, is_alternative)?;
            read_field(Field::Short(4), page, layout, values, source, is_alternative)?;
            let plain = |page: &[u8; PAGE_SIZE], cell: &Cell| !is_alternative(page, cell);
            let per_block = source.head_varint()?;
            if per_block == 0 {
                read_field(Field::Block(0), page, layout, values, source, plain)?;
                read_field(Field::Short(4), page, layout, values, source, plain)?;
            } else {
                let count = layout.cells.iter().filter(|cell| plain(page, cell)).count();
                resize(values, count);
                if count == 0 {
                    return Err(Error::Corrupt { what: "row pointers of no rows" });
                }
                let (divisor, by_place) = (Divisor::new(per_block), source.head_byte()? != 0);
                column::read(source, values)?;
                if by_place {
                    newest_first(layout, order, |cell| plain(page, cell));
                    for (at, &value) in order.iter().zip(values.iter()) {
                        set_tid(page, (*at).into(), value, &divisor)?;
                    }
                    return Ok(());
                }
                let mut values = values.iter();
                for cell in &layout.cells {
                    if plain(page, cell)
                        && let Some(&value) = values.next()
                    {
                        set_tid(page, cell.at.into(), value, &divisor)?;
                    }
                }
            }
        }
        Family::Other => {}
    }
    Ok(())
}

fn read_field(
    field: Field,
    page: &mut [u8; PAGE_SIZE],
    layout: &Layout,
    values: &mut Vec<u32>,
    source: &mut Source<'_>,
    wanted: impl Fn(&[u8; PAGE_SIZE], &Cell) -> bool,
) -> Result<(), Error> {
    resize(values, layout.cells.iter().filter(|cell| wanted(page, cell)).count());
    if values.is_empty() {
        return Ok(());
    }
    column::read(source, values)?;
    let mut values = values.iter();
    for cell in &layout.cells {
        if wanted(page, cell)
            && let Some(&value) = values.next()
        {
            field.set(page, cell, value);
        }
    }
    Ok(())
}

/// Sets key, end and posting list of each cell from its header.
pub(super) fn describe(family: Family, page: &[u8; PAGE_SIZE], layout: &mut Layout, postings: bool) {
    for cell in &mut layout.cells {
        cell.end = cell.len;
        match family {
            Family::Heap => cell.key = u16_at(page, usize::from(cell.at) + 22).into(),
            Family::Index => {
                cell.key = u32::from(u16_at(page, usize::from(cell.at) + 6) >> 13);
                if postings && let Some((end, tids)) = posting(page, cell) {
                    (cell.end, cell.tids, cell.key) = (end, tids, 8);
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
pub(super) fn write_postings(
    page: &[u8; PAGE_SIZE],
    layout: &Layout,
    values: &mut Vec<u32>,
    backend: Backend,
    sink: &mut Sink,
) -> bool {
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
    sink.head_varint(per_block);
    values.clear();
    values.extend(lists().map(|cell| linear(tid(page, cell.at + cell.end), per_block)));
    column::write(values, backend, NEVER, sink);
    values.clear();
    for cell in lists() {
        let mut before = linear(tid(page, cell.at + cell.end), per_block);
        values.extend(tids_of(cell).skip(1).map(|at| {
            let now = linear(tid(page, at), per_block);
            now - std::mem::replace(&mut before, now) - 1
        }));
    }
    if !values.is_empty() {
        column::write(values, backend, NEVER, sink);
    }
    true
}

/// The inverse of [`write_postings`].
pub(super) fn read_postings(
    page: &mut [u8; PAGE_SIZE],
    layout: &Layout,
    values: &mut Vec<u32>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    let per_block = source.head_varint()?;
    let lists = || layout.cells.iter().filter(|cell| cell.tids > 0);
    let count = lists().count();
    if per_block == 0 || count == 0 {
        return Err(Error::Corrupt { what: "posting lists of no rows" });
    }
    let divisor = Divisor::new(per_block);
    resize(values, count);
    column::read(source, values)?;
    for (cell, &first) in lists().zip(values.iter()) {
        set_tid(page, (cell.at + cell.end).into(), first, &divisor)?;
    }
    resize(values, lists().map(|cell| usize::from(cell.tids) - 1).sum());
    if values.is_empty() {
        return Ok(());
    }
    column::read(source, values)?;
    let mut distances = values.iter();
    for cell in lists() {
        let mut now = linear(tid(page, cell.at + cell.end), per_block);
        for (at, distance) in tids_of(cell).skip(1).zip(&mut distances) {
            now = now.wrapping_add(*distance).wrapping_add(1);
            set_tid(page, at.into(), now, &divisor)?;
        }
    }
    Ok(())
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

/// The largest offset if all row pointers can be told as `block * largest + offset - 1` in 32 bits, else 0. Then
/// the rows of consecutive blocks are consecutive numbers.
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
        order.sort_unstable_by(|a, b| b.cmp(a));
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

/// Division of 32-bit numbers by one that stays the same, by multiplication (Lemire, Kaser, Kurz 2019).
struct Divisor {
    by: u32,
    /// 2^64 / by, rounded up; 0 for 1, which needs no dividing.
    inverse: u64,
}

impl Divisor {
    fn new(by: u32) -> Divisor {
        Divisor { by, inverse: (u64::MAX / u64::from(by)).wrapping_add(1) }
    }

    fn divide(&self, value: u32) -> (u32, u32) {
        let quotient = if self.inverse == 0 {
            value
        } else {
            ((u128::from(self.inverse) * u128::from(value)) >> 64) as u32
        };
        (quotient, value - quotient * self.by)
    }
}

fn set_tid(page: &mut [u8; PAGE_SIZE], at: usize, value: u32, per_block: &Divisor) -> Result<(), Error> {
    let (block, offset) = per_block.divide(value);
    let offset = u16::try_from(offset).ok().and_then(|offset| offset.checked_add(1));
    let offset = offset.ok_or(Error::Corrupt { what: "offset of a row pointer" })?;
    page[at..at + 4].copy_from_slice(&block.rotate_left(16).to_le_bytes());
    page[at + 4..at + 6].copy_from_slice(&offset.to_le_bytes());
    Ok(())
}

/// Bytes between a cell's end and the next place a tuple may begin.
pub(super) fn padding(cell: &Cell) -> std::ops::Range<usize> {
    let (at, len) = (usize::from(cell.at), usize::from(cell.len));
    at + len..at + aligned(len)
}
