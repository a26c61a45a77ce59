//! A page rearranged, so that a codec sees like beside like.

use super::attributes::{self, Look, Schema, Walk};
use super::column::Backend;
use super::lanes::Classes;
use super::layout::{Layout, u16_at};
use super::rest::Rest;
use super::streams::{Sink, Source};
use super::tuples::gin;
use super::tuples::{self, Columns, Family, Lists};
use super::{Error, PAGE_SIZE, checksum};

/// Scratch memory for both directions.
#[derive(Default)]
pub(super) struct Transform {
    layout: Layout,
    classes: Classes,
    values: Vec<u32>,
    sink: Sink,
    walk: Walk,
    rest: Rest,
    order: Vec<u16>,
    /// Schemas that fitted, the latest first.
    schemas: Vec<Schema>,
    pauses: Pauses,
}

/// By the look's number, modulo how many there are.
struct Pauses([Pause; PAUSES]);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses([Pause::default(); PAUSES])
    }
}

/// After pages that do not let themselves be explained, others of the same table will not either.
#[derive(Clone, Copy, Default)]
struct Pause {
    /// Of the pages.
    look: Look,
    /// Pages to let pass before learning again.
    left: u32,
    /// How many there were after the last failure.
    last: u32,
}

/// The page as it is, without its hole.
pub(super) const PLAIN: u8 = 0;
/// Posting lists are in columns.
const POSTINGS: u8 = 0x80;
/// Lists of GIN entries are apart.
const ENTRIES: u8 = 0x10;
/// Tuples are written attribute by attribute.
const ATTRIBUTES: u8 = 0x40;
/// What is left between tuples begins with old line pointers.
const REMAINS: u8 = 0x20;
/// Schemas that are remembered.
const SCHEMAS_MAX: usize = 8;
/// So many kinds of pages are told apart.
const PAUSES: usize = 128;
/// The longest pause between attempts to learn from pages that do not let themselves be explained.
const PAUSE_MAX: u32 = 256;
/// What the way back takes for any page, in nanoseconds; for more see [`Transform::effort`].
const EFFORT: u32 = 350;
/// Fewer tuples than this are left as they are.
const CELLS_MIN: usize = 5;

impl Transform {
    /// Appends the rearranged page to `joined`, and those bits of it that no codec needs to see to `loose`.
    /// With `checksum_implied`, its checksum is left out. Says what the way back takes, in nanoseconds of the
    /// machine it was measured on.
    pub(super) fn encode(
        &mut self,
        page: &[u8; PAGE_SIZE],
        checksum_implied: bool,
        backend: Backend,
        joined: &mut Vec<u8>,
        loose: &mut Vec<u8>,
    ) -> u32 {
        if self.by_tuples(page, checksum_implied, backend) && self.sink.fits() {
            self.sink.join(joined);
            loose.extend_from_slice(&self.sink.loose);
            return self.effort();
        }
        joined.push(PLAIN);
        write_plain(page, checksum_implied, joined);
        EFFORT
    }

    /// The page's streams, not joined, for an entropy coder. `None` if they would be more than `size_max` bytes
    /// in all, or if the page has no tuples to rearrange.
    pub(super) fn streams(
        &mut self,
        page: &[u8; PAGE_SIZE],
        checksum_implied: bool,
        size_max: usize,
    ) -> Option<&Sink> {
        let done = self.by_tuples(page, checksum_implied, Backend::Entropy) && self.sink.size() <= size_max;
        done.then_some(&self.sink)
    }

    /// Fills the sink. `false` if the page has no tuples to rearrange.
    fn by_tuples(&mut self, page: &[u8; PAGE_SIZE], checksum_implied: bool, backend: Backend) -> bool {
        self.sink.clear();
        let done = self.layout.read(page) && self.layout.cells.len() >= CELLS_MIN;
        if done {
            self.cells(page, checksum_implied, backend);
        }
        done
    }

    /// By least squares over the relations of `bench/cfs`.
    fn effort(&self) -> u32 {
        let (layout, sink) = (&self.layout, &self.sink);
        let cells = layout.cells.len() as u32;
        let spread = if layout.contiguous { 0 } else { 3 * cells };
        let postings = if sink.head[0] & POSTINGS != 0 { 13 * cells } else { 0 };
        EFFORT + 7 * sink.values / 4 + 15 * sink.pieces / 2 + spread + postings
    }

    fn cells(&mut self, page: &[u8; PAGE_SIZE], checksum_implied: bool, backend: Backend) {
        let Transform { layout, values, order, sink, .. } = self;
        let family = Family::of(page, layout);
        sink.head.push(family.code());
        let rest = layout.write(page, checksum_implied, values, backend, sink);
        tuples::write(family, page, layout, order, &mut Columns { values, backend, sink });
        if family == Family::Heap && self.by_attributes(page, backend) {
            self.sink.head[0] |= ATTRIBUTES;
        } else {
            self.by_lanes(page, family, backend);
        }
        if rest && self.rest.write(page, &self.layout, backend, &mut self.sink) {
            self.sink.head[0] |= REMAINS;
        }
    }

    /// Writes tuples by classes and lanes.
    fn by_lanes(&mut self, page: &[u8; PAGE_SIZE], family: Family, backend: Backend) {
        let Transform { layout, classes, values, sink, .. } = self;
        tuples::describe(family, page, layout, Lists::BTree);
        let columns = &mut Columns { values, backend, sink };
        if tuples::write_postings(page, layout, columns) {
            columns.sink.head[0] |= POSTINGS;
        } else {
            tuples::describe(family, page, layout, Lists::Gin);
            if gin::write(page, layout, columns) {
                columns.sink.head[0] |= ENTRIES;
            } else {
                tuples::describe(family, page, layout, Lists::None);
            }
        }
        classes.write(page, layout, family.header_bytes(), values, backend, sink);
    }

    /// Writes heap tuples by a schema that was or is learned.
    fn by_attributes(&mut self, page: &[u8; PAGE_SIZE], backend: Backend) -> bool {
        let Transform { layout, values, sink, walk, schemas, pauses, .. } = self;
        let cells = &layout.cells[..];
        let look = Look::of(page, cells);
        for i in 0..schemas.len() {
            let fits = schemas[i].width() == look.width
                && schemas[i].write(page, cells, walk, values, backend, sink);
            if fits {
                schemas[..=i].rotate_right(1);
                return true;
            }
        }
        let pause = &mut pauses.0[look.number() % PAUSES];
        if pause.look != look {
            *pause = Pause { look, ..Pause::default() };
        }
        if pause.left > 0 {
            pause.left -= 1;
            return false;
        }
        let learned = Schema::learn(page, cells);
        if let Some(schema) = learned
            && schema.write(page, cells, walk, values, backend, sink)
        {
            schemas.truncate(SCHEMAS_MAX - 1);
            schemas.insert(0, schema);
            (pause.left, pause.last) = (0, 0);
            return true;
        }
        pause.last = (2 * pause.last).clamp(1, PAUSE_MAX);
        pause.left = pause.last;
        false
    }

    /// The inverse of [`Transform::encode`].
    pub(super) fn decode(
        &mut self,
        joined: &[u8],
        loose: &[u8],
        page: &mut [u8; PAGE_SIZE],
    ) -> Result<(), Error> {
        page.fill(0);
        match joined.split_first() {
            Some((&PLAIN, rest)) if loose.is_empty() => return read_plain(rest, page),
            None => return Err(Error::Corrupt { what: "an empty transformed page" }),
            _ => {}
        }
        let mut source = Source::split(joined, loose)?;
        self.restore(joined[0], &mut source, page)?;
        source.finish()
    }

    /// Fills in `page`, which must be zero, from the next streams of `source`, by the form that its head began
    /// with.
    pub(super) fn restore(
        &mut self,
        form: u8,
        source: &mut Source<'_>,
        page: &mut [u8; PAGE_SIZE],
    ) -> Result<(), Error> {
        let Transform { layout, classes, values, walk, rest, order, .. } = self;
        let family = Family::from_code(form & !(POSTINGS | ATTRIBUTES | REMAINS | ENTRIES))
            .ok_or(Error::Corrupt { what: "form of a page" })?;
        let with_rest = layout.restore(page, values, source)?;
        if !family.fits(layout) {
            return Err(Error::Corrupt { what: "tuples shorter than their headers" });
        }
        tuples::read(family, page, layout, values, order, source)?;
        let lists = match (form & POSTINGS != 0, form & ENTRIES != 0) {
            (false, false) => Lists::None,
            (true, false) => Lists::BTree,
            (false, true) => Lists::Gin,
            _ => return Err(Error::Corrupt { what: "form of a page" }),
        };
        if form & ATTRIBUTES != 0 {
            if family != Family::Heap || lists != Lists::None {
                return Err(Error::Corrupt { what: "form of a page" });
            }
            attributes::read(page, layout, walk, values, source)?;
        } else {
            if lists != Lists::None || !(layout.alike && layout.uniform) {
                tuples::describe(family, page, layout, lists);
            }
            match lists {
                Lists::BTree => tuples::read_postings(page, layout, values, source)?,
                Lists::Gin => gin::read(page, layout, values, source)?,
                Lists::None => {}
            }
            classes.read(page, layout, family.header_bytes(), lists != Lists::None, values, source)?;
        }
        if with_rest {
            rest.read(page, layout, form & REMAINS != 0, source)?;
        } else if form & REMAINS != 0 {
            return Err(Error::Corrupt { what: "form of a page" });
        }
        Ok(())
    }
}

/// The zeros between line pointers and tuples, or nothing.
fn hole(page: &[u8; PAGE_SIZE]) -> (usize, usize) {
    let [from, to] = [12, 14].map(|at| usize::from(u16_at(page, at)));
    let is_hole = 24 <= from && from < to && to <= PAGE_SIZE && super::layout::is_zero(&page[from..to]);
    if is_hole { (from, to) } else { (PAGE_SIZE, PAGE_SIZE) }
}

/// Appends the page without its hole.
pub(super) fn write_plain(page: &[u8; PAGE_SIZE], checksum_implied: bool, out: &mut Vec<u8>) {
    let (from, to) = hole(page);
    let start = out.len();
    out.extend_from_slice(&page[..from]);
    out.extend_from_slice(&page[to..]);
    if checksum_implied {
        out[start + checksum::CHECKSUM_AT..start + checksum::CHECKSUM_AT + 2].fill(0);
    }
}

/// The inverse of [`write_plain`].
pub(super) fn read_plain(bytes: &[u8], page: &mut [u8; PAGE_SIZE]) -> Result<(), Error> {
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
