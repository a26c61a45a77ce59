//! The way back: tuples from their attributes.
//!
//! As long as all tuples have the same attributes of fixed width, the walk is equally far from some place in
//! each, and takes no step in any one of them.

use super::{
    ATTRIBUTES_MAX, Attribute, CODES, COMPRESSED, HEADER_BYTES, PLAIN, SHORT, TOAST_TAG, Walk, data,
    header_bytes,
};
use crate::page::layout::{Cell, Layout, resize};
use crate::page::streams::Source;
use crate::page::tuples::padding;
use crate::page::wide::WIDE;
use crate::page::{Error, PAGE_SIZE, column};

/// The inverse of [`Schema::write`](super::Schema::write).
pub(in crate::page) fn read(
    page: &mut [u8; PAGE_SIZE],
    layout: &Layout,
    walk: &mut Walk,
    values: &mut Vec<u32>,
    source: &mut Source<'_>,
) -> Result<(), Error> {
    let count = usize::from(source.head_byte()?);
    if count > ATTRIBUTES_MAX {
        return Err(Error::Corrupt { what: "number of attributes" });
    }
    let schema = source.head(count)?;
    let cells = &layout.cells[..];
    let mut reader = Reader { page, cells, walk, values, source, ahead: 0, alignment: 0, room: 0 };
    reader.begin(layout)?;
    for (index, code) in schema.iter().enumerate() {
        reader.walk.find(cells, index);
        let attribute =
            CODES.get(usize::from(*code)).ok_or(Error::Corrupt { what: "kind of an attribute" })?;
        if *attribute == Attribute::Varlena {
            reader.source.turn();
        }
        if !reader.walk.these.is_empty() {
            match attribute.fixed() {
                None => reader.varlena()?,
                Some((size, alignment)) => reader.fixed(size, alignment)?,
            }
        }
    }
    let ahead = reader.ahead;
    let ends = cells.iter().zip(&walk.at).all(|(cell, at)| at + ahead == usize::from(cell.at + cell.len));
    if !ends {
        return Err(MISFIT);
    }
    if source.head_byte()? != 0 {
        for cell in cells {
            source.rows_into(&mut page[padding(cell)])?;
        }
    }
    Ok(())
}

const MISFIT: Error = Error::Corrupt { what: "attributes that do not fill their tuple" };

struct Reader<'a, 's> {
    page: &'a mut [u8; PAGE_SIZE],
    cells: &'a [Cell],
    walk: &'a mut Walk,
    values: &'a mut Vec<u32>,
    source: &'a mut Source<'s>,
    /// How far the walk is ahead of what is noted of each tuple.
    ahead: usize,
    /// What the noted places are multiples of; 0 if that is not known.
    alignment: usize,
    /// Bytes of the tuple that has the fewest behind its noted place, if that place's alignment is known.
    room: usize,
}

impl Reader<'_, '_> {
    /// Begins behind bitmaps of nulls; the longer ones are read here.
    fn begin(&mut self, layout: &Layout) -> Result<(), Error> {
        self.walk.at.clear();
        self.walk.wide.begin_page();
        let mut longest = 0;
        if layout.alike && layout.uniform {
            longest = self.cells.first().and_then(|cell| data(self.page, cell)).ok_or(MISFIT)?;
            self.walk.at.extend(self.cells.iter().map(|cell| usize::from(cell.at) + longest));
        } else {
            for cell in self.cells {
                let offset = data(self.page, cell).ok_or(MISFIT)?;
                longest = longest.max(offset);
                self.walk.at.push(usize::from(cell.at) + offset);
            }
        }
        if longest > HEADER_BYTES {
            self.bitmaps(longest)?;
        }
        self.walk.begin(self.page, self.cells, layout.alike);
        self.settle(8)
    }

    fn bitmaps(&mut self, longest: usize) -> Result<(), Error> {
        let cells = || self.cells.iter().zip(&self.walk.at);
        for from in (HEADER_BYTES..longest).step_by(4) {
            let is_long = |(cell, at): &(&Cell, &usize)| usize::from(cell.at) + from < **at;
            resize(self.values, cells().filter(is_long).count());
            column::read_all(self.source, self.values)?;
            for ((cell, _), value) in cells().filter(is_long).zip(self.values.iter()) {
                let at = usize::from(cell.at) + from;
                self.page[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Notes where the walk is, at the next multiple of `alignment`, of every tuple.
    fn settle(&mut self, alignment: usize) -> Result<(), Error> {
        let (mask, mut room, mut beyond) = (alignment - 1, usize::MAX, 0);
        for (cell, at) in self.cells.iter().zip(&mut self.walk.at) {
            *at = (*at + self.ahead + mask) & !mask;
            let left = usize::from(cell.at + cell.len).wrapping_sub(*at);
            beyond |= left & !(PAGE_SIZE - 1) & !PAGE_SIZE;
            room = room.min(left);
        }
        (self.ahead, self.alignment, self.room) = (0, alignment, room);
        if beyond == 0 { Ok(()) } else { Err(MISFIT) }
    }

    /// Notes where the walk is, before some tuples go on without the others.
    fn part(&mut self) {
        if self.ahead > 0 {
            self.walk.at.iter_mut().for_each(|at| *at += self.ahead);
        }
        (self.ahead, self.alignment) = (0, 0);
    }

    fn varlena(&mut self) -> Result<(), Error> {
        self.part();
        resize(self.values, self.walk.these.len());
        column::read_all(self.source, self.values)?;
        for (&i, &value) in self.walk.these.iter().zip(self.values.iter()) {
            let i = usize::from(i);
            let (size, form) = ((value >> 2) as usize, value & 3);
            let slot = &mut self.walk.at[i];
            let mut at = *slot;
            if form <= COMPRESSED {
                at = at.next_multiple_of(4);
            }
            let header = header_bytes(form);
            let end = usize::from(self.cells[i].at + self.cells[i].len);
            if size < header || at + size > end || form == SHORT && size > 0x7f {
                return Err(MISFIT);
            }
            *slot = at + size;
            let bytes = &mut self.page[at..at + size];
            match form {
                PLAIN => bytes[..4].copy_from_slice(&((size as u32) << 2).to_le_bytes()),
                COMPRESSED => bytes[..4].copy_from_slice(&((size as u32) << 2 | 2).to_le_bytes()),
                SHORT => bytes[0] = (size as u8) << 1 | 1,
                _ => bytes[..2].copy_from_slice(&[1, TOAST_TAG]),
            }
            self.source.rows_into(&mut bytes[header..])?;
        }
        Ok(())
    }

    fn fixed(&mut self, size: usize, alignment: usize) -> Result<(), Error> {
        if self.walk.all {
            if alignment > self.alignment {
                self.settle(alignment)?;
            }
            self.ahead = ((self.ahead + alignment - 1) & !(alignment - 1)) + size;
            if self.ahead > self.room {
                return Err(MISFIT);
            }
        } else {
            self.part();
            for &i in &self.walk.these {
                let i = usize::from(i);
                let at = ((self.walk.at[i] + alignment - 1) & !(alignment - 1)) + size;
                if at > usize::from(self.cells[i].at + self.cells[i].len) {
                    return Err(MISFIT);
                }
                self.walk.at[i] = at;
            }
        }
        match size {
            1 => self.lane::<1>(1),
            2 => self.lane::<2>(2),
            4 => self.lane::<4>(4),
            8 => {
                if let Some(form) = self.source.head_next(|byte| byte & 7 == WIDE) {
                    return self.pair(form);
                }
                self.lane::<4>(8)?;
                self.lane::<4>(4)
            }
            _ => self.rows::<16>(16),
        }
    }

    /// `LEN` bytes that begin `back` before where the walk is.
    fn lane<const LEN: usize>(&mut self, back: usize) -> Result<(), Error> {
        resize(self.values, self.walk.these.len());
        if !column::read(self.source, self.values)? {
            return self.rows::<LEN>(back);
        }
        let low = |value: &u32| -> [u8; LEN] {
            let bytes = value.to_le_bytes();
            std::array::from_fn(|i| bytes[i])
        };
        let values = self.values.iter().map(low);
        put(self.page, self.walk, self.ahead, back, values);
        Ok(())
    }

    /// The same out of the rows.
    fn rows<const LEN: usize>(&mut self, back: usize) -> Result<(), Error> {
        let (values, _) = self.source.rows(LEN * self.walk.these.len())?.as_chunks::<LEN>();
        put(self.page, self.walk, self.ahead, back, values.iter().copied());
        Ok(())
    }

    fn pair(&mut self, form: u8) -> Result<(), Error> {
        self.walk.wide.read(form >> 3, self.walk.these.len(), self.source)?;
        let values = self.walk.wide.values.iter().map(|value| value.to_le_bytes());
        put(self.page, self.walk, self.ahead, 8, values);
        Ok(())
    }
}

/// Puts values into the tuples that have them, `back` before where the walk is.
fn put<const LEN: usize>(
    page: &mut [u8; PAGE_SIZE],
    walk: &Walk,
    ahead: usize,
    back: usize,
    values: impl Iterator<Item = [u8; LEN]>,
) {
    let mut one = |at: usize, value: [u8; LEN]| {
        let at = at + ahead - back;
        page[at..at + LEN].copy_from_slice(&value);
    };
    if walk.all {
        walk.at.iter().zip(values).for_each(|(at, value)| one(*at, value));
    } else {
        walk.these.iter().zip(values).for_each(|(i, value)| one(walk.at[usize::from(*i)], value));
    }
}
