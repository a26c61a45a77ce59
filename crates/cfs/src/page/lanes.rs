//! What tuples hold after their headers: lanes of four bytes as columns where that pays, rows where it does
//! not.
//!
//! Cells that look alike form a class: the same header, and if lengths are few, the same length. Within a
//! class, the bytes at one place usually are the same attribute. Lanes are counted from the front, and if
//! lengths differ also from the back, where fixed-width attributes behind a text end. The bytes between are
//! rows.

use super::column::{self, Backend};
use super::layout::{Cell, Layout, resize, u32_at};
use super::streams::{Sink, Source};
use super::tuples::gin;
use super::tuples::padding;
use super::wide::{WIDE, Wide};
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
pub(super) const ROW_COST: u64 = 19 * 16;
pub(super) const ROW_COST_MATCHES: u64 = 27 * 16;

#[derive(Default)]
struct Class {
    members: u16,
    end_min: usize,
    end_max: usize,
    front: usize,
    back: usize,
    /// Whether the lane is in the rows; front, then back.
    in_rows: Vec<bool>,
    /// Ranges between front lanes that are in the rows, from a cell's begin.
    front_runs: Vec<(usize, usize)>,
    /// Where the middle begins, from a cell's begin, and how long before its end it ends.
    middle: (usize, usize),
    /// Ranges between back lanes that are in the rows, as distances from a cell's end.
    back_runs: Vec<(usize, usize)>,
}

/// A cell's place, all that lanes need of it.
#[derive(Copy, Clone, Default)]
struct Member {
    at: u16,
    end: u16,
}

/// The classes of a page, and its cells class by class.
#[derive(Default)]
pub(super) struct Classes {
    classes: Vec<Class>,
    count: usize,
    members: Vec<Member>,
    wide: Wide,
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
        self.wide.begin_page();
        let mut members = &self.members[..];
        for class in &mut self.classes[..self.count] {
            let (these, rest) = members.split_at(class.members.into());
            members = rest;
            class.reset();
            if class.has_lanes(begin) {
                let mut lanes = Writer { page, these, values, wide: &mut self.wide, backend, sink };
                class.write(&mut lanes, begin);
            }
            class.plan(begin);
        }
        for cell in cells.iter() {
            self.segments(cell, begin, |from, to| {
                sink.rows.extend_from_slice(&page[from..to]);
                sink.pieces += 1;
            });
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
        postings: bool,
        values: &mut Vec<u32>,
        source: &mut Source<'_>,
    ) -> Result<(), Error> {
        let flags = source.head_byte()?;
        let one = !postings && layout.uniform && layout.alike;
        let cells = &mut layout.cells;
        if one {
            self.assign_all(cells);
        } else {
            self.assign(cells, flags & BY_LENGTH != 0);
            self.sort(cells);
        }
        self.wide.begin_page();
        let mut members = &self.members[..];
        for class in &mut self.classes[..self.count] {
            let (these, rest) = members.split_at(class.members.into());
            members = rest;
            class.reset();
            if class.has_lanes(begin) {
                let mut lanes = Reader { page, these, values, wide: &mut self.wide, source };
                class.read(&mut lanes, begin)?;
            }
            class.plan(begin);
        }
        let padded = flags & PADDED != 0;
        if one && !padded && self.classes[0].is_in_lanes() {
            return Ok(());
        }
        let in_lanes: [bool; CLASSES_MAX] =
            std::array::from_fn(|i| i < self.count && self.classes[i].is_in_lanes());
        for cell in cells.iter() {
            if !padded && cell.tids == 0 && in_lanes.get(usize::from(cell.class)) == Some(&true) {
                continue;
            }
            let mut done = Ok(());
            self.segments(cell, begin, |from, to| {
                if done.is_ok() {
                    done = source.rows_into(&mut page[from..to]);
                }
            });
            done?;
            if padded {
                source.rows_into(&mut page[padding(cell)])?;
            }
        }
        Ok(())
    }

    /// One class of cells that are known to be of one key and length.
    fn assign_all(&mut self, cells: &[Cell]) {
        if self.classes.is_empty() {
            self.classes.push(Class::default());
        }
        let class = &mut self.classes[0];
        let end = cells.first().map_or(0, |cell| usize::from(cell.end));
        (class.members, class.end_min, class.end_max) = (cells.len() as u16, end, end);
        self.count = 1;
        self.members.clear();
        self.members.extend(cells.iter().map(|cell| Member { at: cell.at, end: cell.end }));
    }

    /// Gives each cell its class. `false` if there were too many, or too few cells in each, to be useful.
    fn assign(&mut self, cells: &mut [Cell], by_length: bool) -> bool {
        self.count = 0;
        let length = |cell: &Cell| match by_length {
            true if cell.key == gin::KEY => cell.end,
            true => cell.len,
            false => 0,
        };
        let id = |cell: &Cell| u32::from(cell.key) << 16 | u32::from(length(cell));
        // Classes by a few bits of what is the same in their cells; a guess where to look first.
        let (mut ids, mut guesses) = ([0; CLASSES_MAX], [0u8; 64]);
        let mut complete = true;
        for run in cells.chunk_by_mut(|a, b| id(a) == id(b)) {
            let this = id(&run[0]);
            let guess = &mut guesses[(this ^ this >> 3) as usize % 64];
            let mut found = usize::from(*guess);
            if found >= self.count || ids[found] != this {
                found = ids[..self.count].iter().position(|id| *id == this).unwrap_or(self.count);
            }
            if found == CLASSES_MAX {
                complete = false;
                run.iter_mut().for_each(|cell| cell.class = NO_CLASS);
                continue;
            }
            if found == self.count {
                ids[found] = this;
                if self.classes.len() == found {
                    self.classes.push(Class::default());
                }
                let class = &mut self.classes[found];
                (class.members, class.end_min, class.end_max) = (0, usize::MAX, 0);
                self.count += 1;
            }
            *guess = found as u8;
            let class = &mut self.classes[found];
            class.members += run.len() as u16;
            for cell in run {
                class.end_min = class.end_min.min(cell.end.into());
                class.end_max = class.end_max.max(cell.end.into());
                cell.class = found as u8;
            }
        }
        complete && cells.len() >= 6 * self.count
    }

    /// The places of cells, class by class.
    fn sort(&mut self, cells: &[Cell]) {
        let mut next = [0usize; CLASSES_MAX];
        let mut total = 0;
        for (slot, class) in next.iter_mut().zip(&self.classes[..self.count]) {
            *slot = total;
            total += usize::from(class.members);
        }
        self.members.clear();
        self.members.resize(total, Member::default());
        for cell in cells {
            if let Some(slot) = next.get_mut(usize::from(cell.class)) {
                self.members[*slot] = Member { at: cell.at, end: cell.end };
                *slot += 1;
            }
        }
    }

    /// Calls `visit` with each range of a cell that is in the rows.
    fn segments(&self, cell: &Cell, begin: usize, mut visit: impl FnMut(usize, usize)) {
        let at = usize::from(cell.at);
        let (end, len) = (usize::from(cell.end), usize::from(cell.len));
        let (mut from, mut back, mut runs) = (begin, 0, &[][..]);
        if let Some(class) = self.classes[..self.count].get(usize::from(cell.class)) {
            class.front_runs.iter().for_each(|(from, to)| visit(at + from, at + to));
            (from, back) = class.middle;
            runs = &class.back_runs;
        }
        if from + back < end {
            visit(at + from, at + end - back);
        }
        runs.iter().for_each(|(from, to)| visit(at + end - from, at + end - to));
        let after = end + usize::from(cell.apart);
        if len > after {
            visit(at + after, at + len);
        }
    }
}

struct Writer<'a> {
    page: &'a [u8; PAGE_SIZE],
    these: &'a [Member],
    values: &'a mut Vec<u32>,
    wide: &'a mut Wide,
    backend: Backend,
    sink: &'a mut Sink,
}

struct Reader<'a, 's> {
    page: &'a mut [u8; PAGE_SIZE],
    these: &'a [Member],
    values: &'a mut Vec<u32>,
    wide: &'a mut Wide,
    source: &'a mut Source<'s>,
}

/// What became of a lane.
#[derive(PartialEq, Eq)]
enum Done {
    InRows,
    One,
    /// It and the next one.
    Two,
}

impl Writer<'_> {
    /// Writes the lane that begins where `place` says for a cell.
    fn lane(&mut self, place: impl Fn(&Member) -> usize) -> Done {
        self.values.clear();
        let page = self.page;
        self.values.extend(self.these.iter().map(|member| u32_at(page, place(member))));
        if column::write(self.values, self.backend, self.row_cost(), self.sink) {
            Done::One
        } else {
            Done::InRows
        }
    }

    /// Tries to write two lanes as one of eight bytes.
    fn pair(&mut self, place: impl Fn(&Member) -> usize) -> bool {
        let page = self.page;
        self.wide.values.clear();
        self.wide.values.extend(self.these.iter().map(|member| {
            let at = place(member);
            u64::from(u32_at(page, at)) | u64::from(u32_at(page, at + LANE)) << 32
        }));
        self.wide.write(self.backend, self.row_cost(), self.sink)
    }

    fn row_cost(&self) -> u64 {
        if self.backend == Backend::Entropy { ROW_COST } else { ROW_COST_MATCHES }
    }
}

impl Reader<'_, '_> {
    /// The inverse of [`Writer::lane`] and [`Writer::pair`]. `first` says where a lane begins, `both` where a
    /// pair.
    fn lane(
        &mut self,
        first: impl Fn(&Member) -> usize,
        both: Option<impl Fn(&Member) -> usize>,
    ) -> Result<Done, Error> {
        if let Some(form) = self.source.head_next(|byte| byte & 7 == WIDE) {
            let both = both.ok_or(Error::Corrupt { what: "a wide column over the end" })?;
            self.wide.read(form >> 3, self.these.len(), self.source)?;
            for (member, value) in self.these.iter().zip(&self.wide.values) {
                let at = both(member);
                self.page[at..at + 2 * LANE].copy_from_slice(&value.to_le_bytes());
            }
            return Ok(Done::Two);
        }
        resize(self.values, self.these.len());
        if !column::read(self.source, self.values)? {
            return Ok(Done::InRows);
        }
        for (member, value) in self.these.iter().zip(self.values.iter()) {
            let at = first(member);
            self.page[at..at + LANE].copy_from_slice(&value.to_le_bytes());
        }
        Ok(Done::One)
    }
}

impl Class {
    fn reset(&mut self) {
        (self.front, self.back) = (0, 0);
        self.in_rows.clear();
    }

    /// Finds what is in the rows, once for all of its cells. A run of lanes and the middle beside it are one
    /// range.
    fn plan(&mut self, begin: usize) {
        self.front_runs.clear();
        self.back_runs.clear();
        let (front, back) = self.in_rows.split_at(self.front);
        let mut from = begin;
        for (i, _) in front.iter().enumerate().filter(|(_, in_rows)| !**in_rows) {
            let lane = begin + LANE * i;
            if lane > from {
                self.front_runs.push((from, lane));
            }
            from = lane + LANE;
        }
        let mut until = None;
        for (i, _) in back.iter().enumerate().filter(|(_, in_rows)| !**in_rows) {
            let lane = LANE * (self.back - i);
            match until {
                Some((_, run)) if run > lane => self.back_runs.push((run, lane)),
                _ => {}
            }
            until = Some((until.map_or(lane, |(middle, _)| middle), lane - LANE));
        }
        if let Some((_, run)) = until
            && run > 0
        {
            self.back_runs.push((run, 0));
        }
        self.middle = (from, until.map_or(0, |(middle, _)| middle));
    }

    /// Whether lanes tell all of its cells up to their end.
    fn is_in_lanes(&self) -> bool {
        self.end_min == self.end_max
            && self.front_runs.is_empty()
            && self.back_runs.is_empty()
            && self.middle.0 + self.middle.1 >= self.end_max
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
        let tries = if fixed { all } else { all.min(FRONT_MAX) };
        let place = lanes.sink.head.len();
        lanes.sink.head.push(0);
        let mut described = lanes.sink.head.len();
        let mut lane = 0;
        while lane < tries && (fixed || lane < self.front + 5) {
            let at = |member: &Member| usize::from(member.at) + begin + LANE * lane;
            let wide = lane.is_multiple_of(2) && lane + 1 < tries && lanes.pair(at);
            let done = if wide { Done::Two } else { lanes.lane(at) };
            lane += self.took(&done);
            if done != Done::InRows {
                (self.front, described) = (lane, lanes.sink.head.len());
            }
        }
        self.in_rows.truncate(self.front);
        lanes.sink.head.truncate(described);
        lanes.sink.head[place] = self.front as u8;
        if !fixed {
            self.write_back(lanes, all - self.front);
        }
    }

    /// Lanes from the end backwards; descriptions are in that order, the flags are not.
    fn write_back(&mut self, lanes: &mut Writer<'_>, all: usize) {
        let place = lanes.sink.head.len();
        lanes.sink.head.push(0);
        let mut described = lanes.sink.head.len();
        let (mut lane, tries) = (0, all.min(BACK_MAX));
        while lane < tries && lane < self.back + 3 {
            let at = |member: &Member| usize::from(member.at + member.end) - LANE * (lane + 1);
            let wide = lane.is_multiple_of(2) && lane + 1 < tries && lanes.pair(|member| at(member) - LANE);
            let done = if wide { Done::Two } else { lanes.lane(at) };
            lane += self.took(&done);
            if done != Done::InRows {
                (self.back, described) = (lane, lanes.sink.head.len());
            }
        }
        lanes.sink.head.truncate(described);
        lanes.sink.head[place] = self.back as u8;
        self.in_rows.truncate(self.front + self.back);
        self.in_rows[self.front..].reverse();
    }

    /// Notes what became of the next lane, and says how many it were.
    fn took(&mut self, done: &Done) -> usize {
        self.in_rows.push(*done == Done::InRows);
        if *done == Done::Two {
            self.in_rows.push(false);
            return 2;
        }
        1
    }

    fn read(&mut self, lanes: &mut Reader<'_, '_>, begin: usize) -> Result<(), Error> {
        let all = self.lanes_max(begin);
        self.front = lanes.source.head_byte()?.into();
        if self.front > all {
            return Err(Error::Corrupt { what: "number of lanes" });
        }
        let mut lane = 0;
        while lane < self.front {
            let at = |member: &Member| usize::from(member.at) + begin + LANE * lane;
            let done = lanes.lane(at, (lane + 1 < self.front).then_some(at))?;
            lane += self.took(&done);
        }
        if self.end_min == self.end_max {
            return Ok(());
        }
        self.back = lanes.source.head_byte()?.into();
        if self.back > (all - self.front).min(BACK_MAX) {
            return Err(Error::Corrupt { what: "number of lanes" });
        }
        let mut lane = 0;
        while lane < self.back {
            let at = |member: &Member| usize::from(member.at + member.end) - LANE * (lane + 1);
            let both = (lane + 1 < self.back).then_some(|member: &Member| at(member) - LANE);
            let done = lanes.lane(at, both)?;
            lane += self.took(&done);
        }
        self.in_rows[self.front..].reverse();
        Ok(())
    }
}
