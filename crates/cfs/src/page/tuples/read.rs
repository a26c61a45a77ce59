//! The way back: headers from their columns.
//!
//! What is the same in all tuples is put in at once; what is not, column by column.

use super::{ALTERNATIVE, Family, Field, HEAP_BYTES, TID_BYTES, fall, linear, tid};
use crate::page::layout::{Cell, Layout, resize};
use crate::page::streams::Source;
use crate::page::{Error, PAGE_SIZE, column};

/// The inverse of [`write`](super::write).
pub(in crate::page) fn read(
    family: Family,
    page: &mut [u8; PAGE_SIZE],
    layout: &mut Layout,
    values: &mut Vec<u32>,
    order: &mut Vec<u16>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    match family {
        Family::Heap => heap(page, layout, values, source),
        Family::Index => index(page, layout, values, order, source),
        Family::Other => {
            layout.alike = true;
            Ok(())
        }
    }
}

/// Fields that are the same throughout are laid over the others at the end.
fn heap(
    page: &mut [u8; PAGE_SIZE],
    layout: &mut Layout,
    values: &mut Vec<u32>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    let mut common = [0u8; HEAP_BYTES];
    // Added to each cell's number where its own offset is written as the distance from it.
    let mut own = None;
    layout.alike = true;
    resize(values, layout.cells.len());
    if layout.cells.is_empty() {
        return Ok(());
    }
    for field in super::HEAP_FIELDS {
        match (field, column::constant(source)?) {
            (Field::OwnOffset(_), Some(value)) => own = Some(value.wrapping_add(1)),
            (Field::Long(at), Some(value)) => common[at..at + 4].copy_from_slice(&value.to_le_bytes()),
            (Field::Block(at), Some(value)) => {
                common[at..at + 4].copy_from_slice(&value.rotate_left(16).to_le_bytes());
            }
            (Field::Short(at) | Field::Size(at), Some(value)) => {
                common[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
            }
            (_, None) => {
                layout.alike &= !matches!(field, Field::Short(_));
                column::read_all(source, values)?;
                set_all(field, page, layout.cells.iter().zip(values.iter()));
            }
        }
    }
    let (common, _) = common.as_chunks::<8>();
    for cell in &layout.cells {
        let own = own.map_or(0, |own| own.wrapping_add(cell.pointer.into()) as u16);
        let at = usize::from(cell.at);
        let (words, _) = page[at..at + HEAP_BYTES].as_chunks_mut::<8>();
        for (i, (word, common)) in words.iter_mut().zip(common).enumerate() {
            let own = if i == 2 { u64::from(own) } else { 0 };
            *word = (u64::from_le_bytes(*word) | u64::from_le_bytes(*common) | own).to_le_bytes();
        }
    }
    Ok(())
}

fn index(
    page: &mut [u8; PAGE_SIZE],
    layout: &mut Layout,
    values: &mut Vec<u32>,
    order: &mut Vec<u16>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    sizes(page, layout, values, order, source)?;
    read_blocks_and_offsets(page, layout.lengths.iter().map(|&at| at as usize), values, source)?;
    let per_block = source.head_varint()?;
    if per_block == 0 {
        return read_blocks_and_offsets(page, order.iter().map(|&at| at.into()), values, source);
    }
    resize(values, order.len());
    if order.is_empty() {
        return Err(Error::Corrupt { what: "row pointers without rows" });
    }
    let (divisor, by_place) = (Divisor::new(per_block)?, source.head_byte()? != 0);
    column::read_all(source, values)?;
    if by_place {
        fall(order);
    }
    order.iter().zip(values.iter()).for_each(|(&at, &value)| divisor.set_tid(page, at.into(), value));
    Ok(())
}

/// Fills in the two columns of row pointers at these places.
pub(in crate::page) fn read_blocks_and_offsets(
    page: &mut [u8; PAGE_SIZE],
    places: impl Iterator<Item = usize> + Clone,
    values: &mut Vec<u32>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    resize(values, places.clone().count());
    if values.is_empty() {
        return Ok(());
    }
    column::read_all(source, values)?;
    for (at, value) in places.clone().zip(values.iter()) {
        put(page, at, value.rotate_left(16).to_le_bytes());
    }
    column::read_all(source, values)?;
    for (at, &value) in places.zip(values.iter()) {
        put(page, at + 4, (value as u16).to_le_bytes());
    }
    Ok(())
}

/// Fills in sizes and flags, and finds the places of tuples whose row pointers are that, and of the others.
fn sizes(
    page: &mut [u8; PAGE_SIZE],
    layout: &mut Layout,
    values: &mut Vec<u32>,
    order: &mut Vec<u16>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    let Layout { cells, lengths, .. } = layout;
    order.resize(cells.len(), 0);
    resize(lengths, cells.len());
    resize(values, cells.len());
    if values.is_empty() {
        return Ok(());
    }
    let same = column::constant(source)?;
    match same {
        Some(value) => values.fill(value),
        None => column::read_all(source, values)?,
    }
    let (mut plain, mut others) = (0, 0);
    for (cell, &value) in cells.iter().zip(values.iter()) {
        let word = (value as u16).wrapping_add(cell.len);
        put(page, usize::from(cell.at) + 6, word.to_le_bytes());
        (order[plain], lengths[others]) = (cell.at, cell.at.into());
        plain += usize::from(word & ALTERNATIVE == 0);
        others += usize::from(word & ALTERNATIVE != 0);
    }
    order.truncate(plain);
    lengths.truncate(others);
    layout.alike = same.is_some() && layout.uniform;
    Ok(())
}

fn set_all<'a>(field: Field, page: &mut [u8; PAGE_SIZE], cells: impl Iterator<Item = (&'a Cell, &'a u32)>) {
    match field {
        Field::Long(offset) => cells.for_each(|(cell, value)| set(page, cell, offset, value.to_le_bytes())),
        Field::Block(offset) => {
            cells.for_each(|(cell, value)| set(page, cell, offset, value.rotate_left(16).to_le_bytes()));
        }
        Field::Short(offset) => {
            cells.for_each(|(cell, value)| set(page, cell, offset, (*value as u16).to_le_bytes()));
        }
        Field::OwnOffset(offset) => cells.for_each(|(cell, value)| {
            let value = (*value as u16).wrapping_add(cell.pointer).wrapping_add(1);
            set(page, cell, offset, value.to_le_bytes());
        }),
        Field::Size(offset) => cells.for_each(|(cell, value)| {
            set(page, cell, offset, (*value as u16).wrapping_add(cell.len).to_le_bytes());
        }),
    }
}

fn set<const LEN: usize>(page: &mut [u8; PAGE_SIZE], cell: &Cell, offset: usize, bytes: [u8; LEN]) {
    put(page, usize::from(cell.at) + offset, bytes);
}

fn put<const LEN: usize>(page: &mut [u8; PAGE_SIZE], at: usize, bytes: [u8; LEN]) {
    page[at..at + LEN].copy_from_slice(&bytes);
}

/// The inverse of [`write_postings`](super::write_postings).
pub(in crate::page) fn read_postings(
    page: &mut [u8; PAGE_SIZE],
    layout: &Layout,
    values: &mut Vec<u32>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    let per_block = source.head_varint()?;
    let lists = || layout.cells.iter().filter(|cell| cell.tids > 0);
    let count = lists().count();
    if per_block == 0 || count == 0 {
        return Err(Error::Corrupt { what: "posting lists without rows" });
    }
    let divisor = Divisor::new(per_block)?;
    resize(values, count);
    column::read_all(source, values)?;
    for (cell, &first) in lists().zip(values.iter()) {
        divisor.set_tid(page, (cell.at + cell.end).into(), first);
    }
    resize(values, lists().map(|cell| usize::from(cell.tids) - 1).sum());
    if values.is_empty() {
        return Ok(());
    }
    column::read_all(source, values)?;
    let mut distances = &values[..];
    for cell in lists() {
        let begin = usize::from(cell.at + cell.end);
        let mut now = linear(tid(page, cell.at + cell.end), per_block);
        let (these, rest) = distances.split_at(usize::from(cell.tids) - 1);
        distances = rest;
        for (i, distance) in these.iter().enumerate() {
            now = now.wrapping_add(*distance).wrapping_add(1);
            divisor.set_tid(page, begin + (i + 1) * TID_BYTES, now);
        }
    }
    Ok(())
}

/// Division of 32-bit numbers by one that stays the same, by multiplication (Lemire, Kaser, Kurz 2019).
struct Divisor {
    by: u32,
    /// 2^64 / by, rounded up; 0 for 1, which needs no dividing.
    inverse: u64,
}

impl Divisor {
    fn new(by: u32) -> Result<Divisor, Error> {
        if by > u16::MAX.into() {
            return Err(Error::Corrupt { what: "offset of a row pointer" });
        }
        Ok(Divisor { by, inverse: (u64::MAX / u64::from(by)).wrapping_add(1) })
    }

    fn divide(&self, value: u32) -> (u32, u32) {
        let quotient = if self.inverse == 0 {
            value
        } else {
            ((u128::from(self.inverse) * u128::from(value)) >> 64) as u32
        };
        (quotient, value.wrapping_sub(quotient.wrapping_mul(self.by)))
    }

    /// Writes the row pointer that `value` tells.
    fn set_tid(&self, page: &mut [u8; PAGE_SIZE], at: usize, value: u32) {
        let (block, offset) = self.divide(value);
        let bytes = &mut page[at..at + TID_BYTES];
        bytes[..4].copy_from_slice(&block.rotate_left(16).to_le_bytes());
        bytes[4..].copy_from_slice(&(offset as u16).wrapping_add(1).to_le_bytes());
    }
}
