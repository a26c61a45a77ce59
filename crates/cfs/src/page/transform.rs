//! A page rearranged, so that a codec sees like beside like.

use super::column::Backend;
use super::lanes::Classes;
use super::layout::{Layout, u16_at};
use super::streams::{Sink, Source};
use super::tuples::{self, Family};
use super::{Error, PAGE_SIZE, checksum};

/// Scratch memory for both directions.
#[derive(Default)]
pub(super) struct Transform {
    layout: Layout,
    classes: Classes,
    values: Vec<u32>,
    sink: Sink,
}

/// The page as it is, without its hole.
const PLAIN: u8 = 0;
/// Posting lists are in columns.
const POSTINGS: u8 = 0x80;
/// Fewer tuples than this are left as they are.
const CELLS_MIN: usize = 5;

impl Transform {
    /// Appends the rearranged page to `joined`. With `checksum_implied`, its checksum is left out.
    pub(super) fn encode(
        &mut self,
        page: &[u8; PAGE_SIZE],
        checksum_implied: bool,
        backend: Backend,
        joined: &mut Vec<u8>,
    ) {
        self.sink.clear();
        if self.layout.read(page) && self.layout.cells.len() >= CELLS_MIN {
            self.cells(page, checksum_implied, backend);
            if self.sink.fits() {
                self.sink.join(joined);
                return;
            }
        }
        let (from, to) = hole(page);
        joined.push(PLAIN);
        let start = joined.len();
        joined.extend_from_slice(&page[..from]);
        joined.extend_from_slice(&page[to..]);
        if checksum_implied {
            joined[start + checksum::CHECKSUM_AT..start + checksum::CHECKSUM_AT + 2].fill(0);
        }
    }

    fn cells(&mut self, page: &[u8; PAGE_SIZE], checksum_implied: bool, backend: Backend) {
        let Transform { layout, classes, values, sink } = self;
        let family = Family::of(page, layout);
        sink.head.push(family.code());
        layout.write(page, checksum_implied, values, backend, sink);
        tuples::write(family, page, layout, values, backend, sink);
        tuples::describe(family, page, layout, true);
        if tuples::write_postings(page, layout, values, backend, sink) {
            sink.head[0] |= POSTINGS;
        } else {
            tuples::describe(family, page, layout, false);
        }
        classes.write(page, layout, family.header_bytes(), values, backend, sink);
    }

    /// The inverse of [`Transform::encode`].
    pub(super) fn decode(&mut self, joined: &[u8], page: &mut [u8; PAGE_SIZE]) -> Result<(), Error> {
        page.fill(0);
        match joined.split_first() {
            Some((&PLAIN, rest)) => return plain(rest, page),
            None => return Err(Error::Corrupt { what: "an empty transformed page" }),
            _ => {}
        }
        let Transform { layout, classes, values, .. } = self;
        let mut source = Source::split(joined)?;
        let form = joined[0];
        let family = Family::from_code(form & !POSTINGS).ok_or(Error::Corrupt { what: "form of a page" })?;
        layout.restore(page, values, &mut source)?;
        if !family.fits(layout) {
            return Err(Error::Corrupt { what: "tuples shorter than their headers" });
        }
        tuples::read(family, page, layout, values, &mut source)?;
        let postings = form & POSTINGS != 0;
        tuples::describe(family, page, layout, postings);
        if postings {
            tuples::read_postings(page, layout, values, &mut source)?;
        }
        classes.read(page, layout, family.header_bytes(), values, &mut source)?;
        source.finish()
    }
}

/// The zeros between line pointers and tuples, or nothing.
fn hole(page: &[u8; PAGE_SIZE]) -> (usize, usize) {
    let [from, to] = [12, 14].map(|at| usize::from(u16_at(page, at)));
    let is_hole = 24 <= from && from < to && to <= PAGE_SIZE && super::layout::is_zero(&page[from..to]);
    if is_hole { (from, to) } else { (PAGE_SIZE, PAGE_SIZE) }
}

fn plain(bytes: &[u8], page: &mut [u8; PAGE_SIZE]) -> Result<(), Error> {
    let missing = PAGE_SIZE.checked_sub(bytes.len()).ok_or(Error::Corrupt { what: "more than a page" })?;
    if missing == 0 {
        page.copy_from_slice(bytes);
        return Ok(());
    }
    let Some(header) = bytes.get(..16) else {
        return Err(Error::Corrupt { what: "less than a page header" });
    };
    let from = usize::from(u16::from_le_bytes([header[12], header[13]]));
    let to = usize::from(u16::from_le_bytes([header[14], header[15]]));
    if from > bytes.len() || to != from + missing {
        return Err(Error::Corrupt { what: "place of the hole" });
    }
    page[..from].copy_from_slice(&bytes[..from]);
    page[to..].copy_from_slice(&bytes[from..]);
    Ok(())
}
