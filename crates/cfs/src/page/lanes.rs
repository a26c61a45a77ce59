//! What tuples hold after their headers: lanes of four bytes as columns where that pays, rows where it does not.
//!
//! Cells that look alike form a class: the same header, and if lengths are few, the same length. Within a class,
//! the bytes at one place usually are the same attribute. Lanes are counted from the front, and if lengths differ
//! also from the back, where fixed-width attributes behind a text end. The bytes between are rows.

use super::column::{self, Backend};
use super::layout::{Cell, Layout, resize, u32_at};
use super::streams::{Sink, Source};
use super::tuples::padding;
use super::{Error, PAGE_SIZE};

/// Classes of a page; cells that fit into none have only rows.
const CLASSES_MAX: usize = 24;
const NO_CLASS: u8 = u8::MAX;
/// Fewer cells than this are not worth describing columns for.
const MEMBERS_MIN: usize = 5;
const LANES_MAX: usize = 255;
/// Lanes that are tried from the front, or the back, where lengths differ.
const FRONT_MAX: usize = 24;
const BACK_MAX: usize = 6;
const LANE: usize = 4;
/// What a lane costs in the rows: somewhat less than its 32 bits, in sixteenths of a bit.
const ROW_COST: u64 = 19 * 16;
const ROW_COST_MATCHES: u64 = 27 * 16;

#[derive(Default)]
struct Class {
    key: u32,
    len: u16,
    members: u16,
    end_min: usize,
    end_max: usize,
    front: usize,
    back: usize,
    /// Whether the lane is in the rows; front, then back.
    in_rows: Vec<bool>,
}

/// The classes of a page, and the order of cells by class.
#[derive(Default)]
pub(super) struct Classes {
    classes: Vec<Class>,
    count: usize,
    order: Vec<u16>,
}

const BY_LENGTH: u8 = 1;
const PADDED: u8 = 2;

impl Classes {
    /// Writes everything after the headers, but posting lists.
    pub(super) fn write(
        &mut self,
        page: &[u8; PAGE_SIZE],
        layout: &mut Layout,
        begin: usize,
        values: &mut Vec<u32>,
        backend: Backend,
        sink: &mut Sink,
    ) {
        let cells = &mut layout.cells;
        let by_length = self.assign(cells, true);
        if !by_length {
            self.assign(cells, false);
        }
        let padded = cells.iter().any(|cell| page[padding(cell)].iter().any(|byte| *byte != 0));
        sink.head.push(if by_length { BY_LENGTH } else { 0 } | if padded { PADDED } else { 0 });
        self.sort(cells);
        let mut members = &self.order[..];
        for class in &mut self.classes[..self.count] {
            let (these, rest) = members.split_at(class.members.into());
            members = rest;
            class.reset();
            if class.has_lanes(begin) {
                let mut lanes = Writer { page, cells, these, values, backend, sink };
                class.write(&mut lanes, begin);
            }
        }
        for cell in cells.iter() {
            self.segments(cell, begin, |from, to| sink.rows.extend_from_slice(&page[from..to]));
            if padded {
                sink.rows.extend_from_slice(&page[padding(cell)]);
            }
        }
    }

    /// The inverse of [`Classes::write`].
    pub(super) fn read(
        &mut self,
        page: &mut [u8; PAGE_SIZE],
        layout: &mut Layout,
        begin: usize,
        values: &mut Vec<u32>,
        source: &mut Source<'_>,
    ) -> Result<(), Error> {
        let flags = source.head_byte()?;
        let cells = &mut layout.cells;
        self.assign(cells, flags & BY_LENGTH != 0);
        self.sort(cells);
        let mut members = &self.order[..];
        for class in &mut self.classes[..self.count] {
            let (these, rest) = members.split_at(class.members.into());
            members = rest;
            class.reset();
            if class.has_lanes(begin) {
                class.read(page, cells, these, begin, values, source)?;
            }
        }
        for cell in cells.iter() {
            let mut done = Ok(());
            self.segments(cell, begin, |from, to| {
                if done.is_ok() {
                    done = source.rows(to - from).map(|bytes| page[from..to].copy_from_slice(bytes));
                }
            });
            done?;
            if flags & PADDED != 0 {
                let padding = padding(cell);
                page[padding.clone()].copy_from_slice(source.rows(padding.len())?);
            }
        }
        Ok(())
    }

    /// Gives each cell its class. `false` if there were too many, or too few cells in each, to be useful.
    fn assign(&mut self, cells: &mut [Cell], by_length: bool) -> bool {
        self.count = 0;
        let (mut last, mut complete) = (0, true);
        for cell in cells.iter_mut() {
            let len = if by_length { cell.len } else { 0 };
            let is = |class: &Class| class.key == cell.key && class.len == len;
            if !self.classes[..self.count].get(last).is_some_and(is) {
                last = match self.classes[..self.count].iter().position(is) {
                    Some(found) => found,
                    None if self.count < CLASSES_MAX => {
                        if self.classes.len() == self.count {
                            self.classes.push(Class::default());
                        }
                        let class = &mut self.classes[self.count];
                        (class.key, class.len, class.members) = (cell.key, len, 0);
                        (class.end_min, class.end_max) = (usize::MAX, 0);
                        self.count += 1;
                        self.count - 1
                    }
                    None => {
                        complete = false;
                        cell.class = NO_CLASS;
                        continue;
                    }
                };
            }
            let class = &mut self.classes[last];
            class.members += 1;
            class.end_min = class.end_min.min(cell.end.into());
            class.end_max = class.end_max.max(cell.end.into());
            cell.class = last as u8;
        }
        complete && cells.len() >= 6 * self.count
    }

    /// The indexes of cells, class by class.
    fn sort(&mut self, cells: &[Cell]) {
        let mut next = [0usize; CLASSES_MAX];
        let mut total = 0;
        for (slot, class) in next.iter_mut().zip(&self.classes[..self.count]) {
            *slot = total;
            total += usize::from(class.members);
        }
        self.order.clear();
        self.order.resize(total, 0);
        for (i, cell) in cells.iter().enumerate() {
            if let Some(slot) = next.get_mut(usize::from(cell.class)) {
                self.order[*slot] = i as u16;
                *slot += 1;
            }
        }
    }

    /// Calls `visit` with each range of a cell that is in the rows.
    fn segments(&self, cell: &Cell, begin: usize, mut visit: impl FnMut(usize, usize)) {
        let at = usize::from(cell.at);
        let (end, len) = (usize::from(cell.end), usize::from(cell.len));
        let mut from = at + begin;
        if let Some(class) = self.classes[..self.count].get(usize::from(cell.class)) {
            let back = at + end - LANE * class.back;
            for (i, &in_rows) in class.in_rows.iter().enumerate() {
                let lane = match i.checked_sub(class.front) {
                    None => at + begin + LANE * i,
                    Some(i) => back + LANE * i,
                };
                // A run of lanes in the rows, and the middle if it follows, are one range.
                if !in_rows {
                    if lane > from {
                        visit(from, lane);
                    }
                    from = lane + LANE;
                }
            }
        }
        let stop = at + end;
        if stop > from {
            visit(from, stop);
        }
        let after = end + usize::from(cell.tids) * 6;
        if len > after {
            visit(at + after, at + len);
        }
    }
}

struct Writer<'a> {
    page: &'a [u8; PAGE_SIZE],
    cells: &'a [Cell],
    these: &'a [u16],
    values: &'a mut Vec<u32>,
    backend: Backend,
    sink: &'a mut Sink,
}

impl Writer<'_> {
    /// Writes the lane that begins where `place` says for a cell. `false`: it stays in the rows.
    fn lane(&mut self, place: impl Fn(&Cell) -> usize) -> bool {
        self.values.clear();
        let (page, cells) = (self.page, self.cells);
        self.values.extend(self.these.iter().map(|&i| u32_at(page, place(&cells[usize::from(i)]))));
        let rows = if self.backend == Backend::Entropy { ROW_COST } else { ROW_COST_MATCHES };
        column::write(self.values, self.backend, rows, self.sink)
    }
}

impl Class {
    fn reset(&mut self) {
        (self.front, self.back) = (0, 0);
        self.in_rows.clear();
    }

    fn has_lanes(&self, begin: usize) -> bool {
        usize::from(self.members) >= MEMBERS_MIN && self.end_min >= begin + LANE
    }

    /// Lanes that fit into the shortest of its cells.
    fn lanes_max(&self, begin: usize) -> usize {
        ((self.end_min - begin) / LANE).min(LANES_MAX)
    }

    fn write(&mut self, lanes: &mut Writer<'_>, begin: usize) {
        let fixed = self.end_min == self.end_max;
        let all = self.lanes_max(begin);
        let place = lanes.sink.head.len();
        lanes.sink.head.push(0);
        let (mut described, tries) = (lanes.sink.head.len(), if fixed { all } else { all.min(FRONT_MAX) });
        for lane in 0..tries {
            let done = lanes.lane(|cell| usize::from(cell.at) + begin + LANE * lane);
            self.in_rows.push(!done);
            if done {
                (self.front, described) = (lane + 1, lanes.sink.head.len());
            } else if !fixed && lane >= self.front + 4 {
                break;
            }
        }
        self.in_rows.truncate(self.front);
        lanes.sink.head.truncate(described);
        lanes.sink.head[place] = self.front as u8;
        if fixed {
            return;
        }
        let place = lanes.sink.head.len();
        lanes.sink.head.push(0);
        described = lanes.sink.head.len();
        // From the end backwards; the description is in that order, the flags are not.
        let mut backwards = [true; BACK_MAX];
        for lane in 0..(all - self.front).min(BACK_MAX) {
            if lanes.lane(|cell| usize::from(cell.at + cell.end) - LANE * (lane + 1)) {
                backwards[lane] = false;
                (self.back, described) = (lane + 1, lanes.sink.head.len());
            } else if lane >= self.back + 1 {
                break;
            }
        }
        lanes.sink.head.truncate(described);
        lanes.sink.head[place] = self.back as u8;
        self.in_rows.extend(backwards[..self.back].iter().rev());
    }

    fn read(
        &mut self,
        page: &mut [u8; PAGE_SIZE],
        cells: &[Cell],
        these: &[u16],
        begin: usize,
        values: &mut Vec<u32>,
        source: &mut Source<'_>,
    ) -> Result<(), Error> {
        let mut lane = |place: &dyn Fn(&Cell) -> usize, source: &mut Source<'_>| {
            resize(values, these.len());
            let done = column::read(source, values)?;
            if done {
                for (&i, value) in these.iter().zip(values.iter()) {
                    let at = place(&cells[usize::from(i)]);
                    page[at..at + LANE].copy_from_slice(&value.to_le_bytes());
                }
            }
            Ok::<_, Error>(!done)
        };
        let all = self.lanes_max(begin);
        self.front = source.head_byte()?.into();
        if self.front > all {
            return Err(Error::Corrupt { what: "number of lanes" });
        }
        for i in 0..self.front {
            self.in_rows.push(lane(&|cell| usize::from(cell.at) + begin + LANE * i, source)?);
        }
        if self.end_min == self.end_max {
            return Ok(());
        }
        self.back = source.head_byte()?.into();
        if self.back > (all - self.front).min(BACK_MAX) {
            return Err(Error::Corrupt { what: "number of lanes" });
        }
        let mut backwards = [true; BACK_MAX];
        for (i, in_rows) in backwards[..self.back].iter_mut().enumerate() {
            *in_rows = lane(&|cell| usize::from(cell.at + cell.end) - LANE * (i + 1), source)?;
        }
        self.in_rows.extend(backwards[..self.back].iter().rev());
        Ok(())
    }
}
