//! Heap tuples attribute by attribute, when it can be found where attributes are.
//!
//! Nobody tells: the catalogs are out of reach. But rows of a few dozen tuples that all must end where their
//! line pointer says leave little choice of widths and alignments (`heaptuple.c`, `tupmacs.h`), so a
//! [`Schema`] can be [learned](Schema::learn) from a page. It may differ from the true one, two integers
//! taken for one of twice the size; that costs size, never bytes: a schema is part of the payload, and is
//! only used for a page whose every tuple it explains, padding included.
//!
//! Attribute after attribute, fixed widths become columns, others a column of sizes and their bytes in the
//! rows.

use super::PAGE_SIZE;
use super::column::{self, Backend, NEVER};
use super::lanes::{ROW_COST, ROW_COST_MATCHES};
use super::layout::{Cell, u16_at, u32_at};
use super::streams::Sink;
use super::tuples::padding;
use super::wide::Wide;

mod learn;
mod read;

pub(super) use read::read;

/// More attributes than this are not separated.
const ATTRIBUTES_MAX: usize = 64;
const HEADER_BYTES: usize = 24;

/// What an attribute takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Attribute {
    /// A varlena with whatever header.
    Varlena,
    Fixed1,
    Fixed2,
    Fixed4,
    Fixed8,
    /// 16 bytes without alignment: a uuid.
    Fixed16,
}

use Attribute::{Fixed1, Fixed2, Fixed4, Fixed8, Fixed16, Varlena};

const CODES: [Attribute; 6] = [Varlena, Fixed1, Fixed2, Fixed4, Fixed8, Fixed16];

impl Attribute {
    fn code(self) -> u8 {
        CODES.iter().position(|attribute| *attribute == self).unwrap_or(0) as u8
    }

    /// Size and alignment of a fixed one.
    fn fixed(self) -> Option<(usize, usize)> {
        match self {
            Varlena => None,
            Fixed1 => Some((1, 1)),
            Fixed2 => Some((2, 2)),
            Fixed4 => Some((4, 4)),
            Fixed8 => Some((8, 8)),
            Fixed16 => Some((16, 1)),
        }
    }
}

/// The attributes of a page's tuples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Schema(Vec<Attribute>);

/// Where the walk through each tuple is.
#[derive(Default)]
pub(super) struct Walk {
    /// Of each cell: the next byte, of the page.
    at: Vec<usize>,
    /// Indexes of cells that have the attribute.
    these: Vec<u16>,
    /// Whether these are all.
    all: bool,
    /// Of each cell: the attributes it has, a bit each; of the first only, if that stands for all.
    present: Vec<u64>,
    /// Attributes that every cell has: for these there is nothing to find.
    everywhere: u64,
    /// Attributes that some cell has.
    anywhere: u64,
    wide: Wide,
}

/// Attributes of a tuple.
fn count(page: &[u8; PAGE_SIZE], cell: &Cell) -> usize {
    usize::from(u16_at(page, usize::from(cell.at) + 18) & 0x07ff)
}

/// Where data begins, from the tuple's begin; `None` if that cannot be.
fn data(page: &[u8; PAGE_SIZE], cell: &Cell) -> Option<usize> {
    let offset = usize::from(page[usize::from(cell.at) + 22]);
    let nulls = if has_nulls(page, cell) { count(page, cell).div_ceil(8) } else { 0 };
    let fits = offset.is_multiple_of(8) && offset >= HEADER_BYTES - 1 + nulls && offset <= cell.len.into();
    fits.then_some(offset)
}

fn has_nulls(page: &[u8; PAGE_SIZE], cell: &Cell) -> bool {
    u16_at(page, usize::from(cell.at) + 20) & 1 != 0
}

/// Whether the tuple has a value for the attribute of this index. Its bitmap must be known to lie within it.
fn is_present(page: &[u8; PAGE_SIZE], cell: &Cell, index: usize) -> bool {
    index < count(page, cell)
        && (!has_nulls(page, cell) || page[usize::from(cell.at) + 23 + index / 8] >> (index % 8) & 1 != 0)
}

/// Size and form of a varlena: its bytes in all, and one of the following.
const PLAIN: u32 = 0;
const COMPRESSED: u32 = 1;
const SHORT: u32 = 2;
const TOASTED: u32 = 3;
/// `varattrib_1b_e` with a `varatt_external`.
const TOAST_BYTES: usize = 18;
const TOAST_TAG: u8 = 18;

/// Where the varlena that follows `at` begins, its size and form, if there can be one that ends by `end`. Padding
/// comes before headers of four bytes only: the way back has nothing else to tell that there was some.
fn varlena(page: &[u8; PAGE_SIZE], mut at: usize, end: usize) -> Option<(usize, usize, u32)> {
    let begin = at;
    let mut first = *page.get(at).filter(|_| at < end)?;
    if first == 0 {
        at = at.next_multiple_of(4);
        first = *page.get(at).filter(|_| at < end)?;
    }
    let (size, form) = match first {
        _ if first & 1 != 0 && at != begin => return None,
        1 => (page.get(at + 1).filter(|tag| **tag == TOAST_TAG).map(|_| TOAST_BYTES)?, TOASTED),
        _ if first & 1 != 0 => (usize::from(first >> 1), SHORT),
        _ if at.is_multiple_of(4) && at + 4 <= end => {
            let word = u32_at(page, at);
            ((word >> 2) as usize, if word & 2 != 0 { COMPRESSED } else { PLAIN })
        }
        _ => return None,
    };
    let header = header_bytes(form);
    (size >= header && at + size <= end).then_some((at, size, form))
}

fn header_bytes(form: u32) -> usize {
    match form {
        PLAIN | COMPRESSED => 4,
        SHORT => 1,
        _ => 2,
    }
}

impl Schema {
    /// Writes the data of all cells; `false`, and nothing written, if they are not of this schema.
    pub(super) fn write(
        &self,
        page: &[u8; PAGE_SIZE],
        cells: &[Cell],
        walk: &mut Walk,
        values: &mut Vec<u32>,
        backend: Backend,
        sink: &mut Sink,
    ) -> bool {
        let mark = sink.mark();
        let done = Writer { page, cells, walk, values, backend, sink }.write(self).is_some();
        if !done {
            sink.rewind(mark);
        }
        done
    }

    /// How many attributes it has.
    pub(super) fn width(&self) -> usize {
        self.0.len()
    }
}

/// What tells pages of one table from most others.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Look {
    /// Attributes of the widest tuple.
    pub(super) width: usize,
    /// Whether tuples have NULLs, and whether they have values of variable length: HEAP_HASNULL and HEAP_HASVARWIDTH.
    flags: u16,
}

impl Look {
    /// Of the page with these tuples.
    pub(super) fn of(page: &[u8; PAGE_SIZE], cells: &[Cell]) -> Look {
        cells.iter().fold(Look::default(), |look, cell| Look {
            width: look.width.max(count(page, cell)),
            flags: look.flags | u16_at(page, usize::from(cell.at) + 20) & 3,
        })
    }

    /// A number, to find it by.
    pub(super) fn number(self) -> usize {
        self.width * 4 + usize::from(self.flags)
    }
}

struct Writer<'a> {
    page: &'a [u8; PAGE_SIZE],
    cells: &'a [Cell],
    walk: &'a mut Walk,
    values: &'a mut Vec<u32>,
    backend: Backend,
    sink: &'a mut Sink,
}

impl Writer<'_> {
    /// `None`: a tuple is not of the schema.
    fn write(&mut self, schema: &Schema) -> Option<()> {
        self.sink.head.push(schema.0.len() as u8);
        self.sink.head.extend(schema.0.iter().map(|attribute| attribute.code()));
        self.bitmaps()?;
        self.walk.begin(self.page, self.cells, false);
        for (index, attribute) in schema.0.iter().enumerate() {
            self.find(index);
            match attribute.fixed() {
                None => self.varlena()?,
                Some((size, alignment)) => self.fixed(size, alignment)?,
            }
        }
        let ends =
            self.cells.iter().zip(&self.walk.at).all(|(cell, at)| *at == usize::from(cell.at + cell.len));
        ends.then(|| self.padding())
    }

    /// What is between tuples, if it is not zero.
    fn padding(&mut self) {
        let padded = self.cells.iter().any(|cell| self.page[padding(cell)].iter().any(|byte| *byte != 0));
        self.sink.head.push(padded.into());
        if padded {
            self.cells.iter().for_each(|cell| self.sink.rows.extend_from_slice(&self.page[padding(cell)]));
        }
    }

    /// Begins the walk, behind bitmaps of nulls that are longer than a byte, which are lanes.
    fn bitmaps(&mut self) -> Option<()> {
        self.walk.at.clear();
        self.walk.wide.begin_page();
        let mut longest = 0;
        for cell in self.cells {
            let offset = data(self.page, cell)?;
            longest = longest.max(offset);
            self.walk.at.push(usize::from(cell.at) + offset);
        }
        for from in (HEADER_BYTES..longest).step_by(4) {
            self.values.clear();
            let cells = self.cells.iter().zip(&self.walk.at);
            let long = cells.filter(|(cell, at)| usize::from(cell.at) + from < **at);
            self.values.extend(long.map(|(cell, _)| u32_at(self.page, usize::from(cell.at) + from)));
            column::write(self.values, self.backend, NEVER, self.sink);
        }
        Some(())
    }

    /// The cells that have the attribute.
    fn find(&mut self, index: usize) {
        self.walk.find(self.cells, index);
    }

    fn varlena(&mut self) -> Option<()> {
        let page = self.page;
        self.values.clear();
        self.sink.turn();
        for &i in &self.walk.these {
            let i = usize::from(i);
            let end = usize::from(self.cells[i].at + self.cells[i].len);
            let (at, size, form) = varlena(page, self.walk.at[i], end)?;
            if page[self.walk.at[i]..at].iter().any(|byte| *byte != 0) {
                return None;
            }
            self.values.push((size as u32) << 2 | form);
            self.sink.rows.extend_from_slice(&page[at + header_bytes(form)..at + size]);
            self.walk.at[i] = at + size;
        }
        if !self.values.is_empty() {
            column::write(self.values, self.backend, NEVER, self.sink);
        }
        self.sink.pieces += self.walk.these.len() as u32;
        Some(())
    }

    fn fixed(&mut self, size: usize, alignment: usize) -> Option<()> {
        let page = self.page;
        for &i in &self.walk.these {
            let i = usize::from(i);
            let at = self.walk.at[i].next_multiple_of(alignment);
            let end = usize::from(self.cells[i].at + self.cells[i].len);
            if at + size > end || page[self.walk.at[i]..at].iter().any(|byte| *byte != 0) {
                return None;
            }
            self.walk.at[i] = at + size;
        }
        if self.walk.these.is_empty() {
            return Some(());
        }
        match size {
            1 => self.lane(size, NEVER, |at| page[at - 1].into()),
            2 => self.lane(size, NEVER, |at| u16_at(page, at - 2).into()),
            4 => self.lane(size, self.row_cost(), |at| u32_at(page, at - 4)),
            8 if self.pair() => {}
            8 => {
                self.lane(8, self.row_cost(), |at| u32_at(page, at - 8));
                self.lane(4, self.row_cost(), |at| u32_at(page, at - 4));
            }
            _ => {
                for &i in &self.walk.these {
                    let at = self.walk.at[usize::from(i)];
                    self.sink.rows.extend_from_slice(&page[at - size..at]);
                }
            }
        }
        Some(())
    }

    /// A column of what `value` takes from before where the walk is; rows where that is cheaper.
    fn lane(&mut self, back: usize, rows: u64, value: impl Fn(usize) -> u32) {
        self.values.clear();
        self.values.extend(self.walk.these.iter().map(|&i| value(self.walk.at[usize::from(i)])));
        if !column::write(self.values, self.backend, rows, self.sink) {
            for &i in &self.walk.these {
                let at = self.walk.at[usize::from(i)] - back;
                self.sink.rows.extend_from_slice(&self.page[at..at + 4]);
            }
        }
    }

    fn pair(&mut self) -> bool {
        let Walk { at, these, wide, .. } = &mut *self.walk;
        wide.values.clear();
        wide.values.extend(these.iter().map(|&i| {
            let at = at[usize::from(i)];
            u64::from(u32_at(self.page, at - 8)) | u64::from(u32_at(self.page, at - 4)) << 32
        }));
        let rows = self.row_cost();
        self.walk.wide.write(self.backend, rows, self.sink)
    }

    fn row_cost(&self) -> u64 {
        if self.backend == Backend::Entropy { ROW_COST } else { ROW_COST_MATCHES }
    }
}

impl Walk {
    /// Learns which attributes the cells have; those that are `alike` have what the first has.
    fn begin(&mut self, page: &[u8; PAGE_SIZE], cells: &[Cell], alike: bool) {
        self.these.clear();
        self.present.clear();
        (self.everywhere, self.anywhere) = (u64::MAX, 0);
        let some =
            if alike && cells.first().is_some_and(|cell| !has_nulls(page, cell)) { 1 } else { cells.len() };
        for cell in &cells[..some] {
            let present = present(page, cell);
            self.present.push(present);
            self.everywhere &= present;
            self.anywhere |= present;
        }
    }

    /// Finds the cells that have the attribute of this index.
    fn find(&mut self, cells: &[Cell], index: usize) {
        let bit = 1 << index;
        self.all = self.everywhere & bit != 0;
        if self.all && self.these.len() == cells.len() {
            return;
        }
        self.these.clear();
        if self.all {
            self.these.extend(0..cells.len() as u16);
        } else if self.anywhere & bit != 0 {
            let cells = self.present.iter().zip(0..);
            self.these.extend(cells.filter(|(present, _)| **present & bit != 0).map(|(_, i)| i));
        }
    }
}

/// The attributes that a tuple has a value for, of the first 64, a bit each. Its bitmap must be known to lie
/// within it.
fn present(page: &[u8; PAGE_SIZE], cell: &Cell) -> u64 {
    let count = count(page, cell);
    let all = if count < ATTRIBUTES_MAX { (1 << count) - 1 } else { u64::MAX };
    if !has_nulls(page, cell) {
        return all;
    }
    let from = usize::from(cell.at) + HEADER_BYTES - 1;
    let mut bitmap = [0; ATTRIBUTES_MAX / 8];
    let len = bitmap.len().min(PAGE_SIZE - from);
    bitmap[..len].copy_from_slice(&page[from..from + len]);
    all & u64::from_le_bytes(bitmap)
}
