//! Entries of GIN indexes: a key and, behind it, the rows it is in (`ginentrypage.c`, `ginpostinglist.c`).
//!
//! Most keys are in one row or a few. The first row pointers of all entries become columns, what follows is
//! in the rows as it is: differences in as many bytes as each needs. What is left of an entry is its key, so
//! that keys are of one class whatever their lists are.

use crate::page::column;
use crate::page::layout::{Cell, Layout, u16_at, u32_at};
use crate::page::streams::Source;
use crate::page::tuples::{self, Columns};
use crate::page::{Error, PAGE_SIZE};

/// What such entries are classed by.
pub(in crate::page) const KEY: u16 = 9;
/// `GIN_ITUP_COMPRESSED`: the rest of the block number is where the list begins.
const COMPRESSED: u32 = 1 << 31;
/// `GIN_TREE_POSTING`: the list is a tree elsewhere.
const TREE: u16 = 0xffff;
/// A row pointer and the size of what follows.
const HEADER_BYTES: usize = 8;
/// Fewer entries than this are left as they are.
const ENTRIES_MIN: usize = 5;

/// Sets where the list of an entry begins, from its header. `false`: it has none.
pub(in crate::page) fn describe(page: &[u8; PAGE_SIZE], special: usize, cell: &mut Cell) -> bool {
    let at = usize::from(cell.at);
    let (place, count) = (u32_at(page, at).rotate_left(16), u16_at(page, at + 4));
    let begin = (place & !COMPRESSED) as usize;
    let len = usize::from(cell.len);
    let is = special == PAGE_SIZE - 8
        && place & COMPRESSED != 0
        && ![0, TREE].contains(&count)
        && (HEADER_BYTES..len).contains(&begin)
        && begin + HEADER_BYTES <= len;
    if is {
        (cell.end, cell.apart, cell.key) = (begin as u16, (len - begin) as u16, KEY);
    }
    is
}

fn entries(layout: &Layout) -> impl Iterator<Item = &Cell> + Clone {
    layout.cells.iter().filter(|cell| cell.key == KEY)
}

/// Bytes of the list behind its header, and of what is behind it.
fn sizes(page: &[u8; PAGE_SIZE], cell: &Cell) -> Option<(usize, usize)> {
    let size = usize::from(u16_at(page, usize::from(cell.at + cell.end) + 6));
    let behind = (usize::from(cell.apart) - HEADER_BYTES).checked_sub(size)?;
    let end = usize::from(cell.at + cell.len);
    crate::page::layout::is_zero(&page[end - behind..end]).then_some((size, behind))
}

/// Writes the lists of all entries. `false`, and nothing written, if there are few, or something is behind
/// one.
pub(in crate::page) fn write(page: &[u8; PAGE_SIZE], layout: &Layout, columns: &mut Columns<'_>) -> bool {
    if entries(layout).count() < ENTRIES_MIN || !entries(layout).all(|cell| sizes(page, cell).is_some()) {
        return false;
    }
    let begin = |cell: &Cell| usize::from(cell.at + cell.end);
    columns.write(entries(layout).map(|cell| u32_at(page, begin(cell)).rotate_left(16)));
    columns.write(entries(layout).map(|cell| u16_at(page, begin(cell) + 4).into()));
    columns.write(entries(layout).map(|cell| sizes(page, cell).map_or(0, |(_, behind)| behind as u32)));
    for (cell, &behind) in entries(layout).zip(columns.values.iter()) {
        let from = begin(cell) + HEADER_BYTES;
        let size = usize::from(cell.apart) - HEADER_BYTES - behind as usize;
        columns.sink.rows.extend_from_slice(&page[from..from + size]);
    }
    true
}

/// The inverse of [`write()`].
pub(in crate::page) fn read(
    page: &mut [u8; PAGE_SIZE],
    layout: &Layout,
    values: &mut Vec<u32>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    if entries(layout).next().is_none() {
        return Err(Error::Corrupt { what: "lists without entries" });
    }
    let begins = entries(layout).map(|cell| usize::from(cell.at + cell.end));
    tuples::read_blocks_and_offsets(page, begins, values, source)?;
    column::read_all(source, values)?;
    for (cell, &behind) in entries(layout).zip(values.iter()) {
        let at = usize::from(cell.at + cell.end);
        let size = (usize::from(cell.apart) - HEADER_BYTES).checked_sub(behind as usize);
        let size = size.ok_or(Error::Corrupt { what: "size of a list" })?;
        page[at + 6..at + 8].copy_from_slice(&(size as u16).to_le_bytes());
        let from = at + HEADER_BYTES;
        page[from..from + size].copy_from_slice(source.rows(size)?);
    }
    Ok(())
}
