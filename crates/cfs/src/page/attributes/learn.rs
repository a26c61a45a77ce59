//! Finding a schema that explains a page's tuples.

use super::{ATTRIBUTES_MAX, Attribute, CODES, Fixed1, Fixed2, Fixed4, Fixed8, Fixed16, Schema, Varlena};
use super::{count, data, is_present, varlena};
use crate::page::PAGE_SIZE;
use crate::page::layout::{Cell, u32_at};

/// Tuples that are looked at: enough to leave little to chance.
const SAMPLES_MAX: usize = 24;
const SAMPLES_MIN: usize = 3;
/// Guesses before giving up.
const STEPS_MAX: usize = 4000;

struct Search<'a> {
    page: &'a [u8; PAGE_SIZE],
    samples: Vec<Cell>,
    attributes: usize,
    chosen: Vec<Attribute>,
    steps: usize,
}

impl Schema {
    /// A schema that explains a sample of `cells`: the first found, in the order of what is plausible.
    pub(in crate::page) fn learn(page: &[u8; PAGE_SIZE], cells: &[Cell]) -> Option<Schema> {
        let attributes = cells.iter().map(|cell| count(page, cell)).max()?;
        let stride = cells.len().div_ceil(SAMPLES_MAX);
        let samples: Vec<Cell> = cells.iter().step_by(stride).copied().collect();
        if attributes == 0 || attributes > ATTRIBUTES_MAX || samples.len() < SAMPLES_MIN {
            return None;
        }
        let at = samples.iter().map(|cell| Some(usize::from(cell.at) + data(page, cell)?));
        let at: Vec<usize> = at.collect::<Option<_>>()?;
        let mut search = Search { page, samples, attributes, chosen: vec![], steps: STEPS_MAX };
        search.run(&at).then_some(Schema(search.chosen))
    }
}

impl Search<'_> {
    /// Chooses all attributes from here on, the samples being at these places.
    fn run(&mut self, at: &[usize]) -> bool {
        let index = self.chosen.len();
        let ends = |(cell, at): (&Cell, &usize)| *at == usize::from(cell.at + cell.len);
        if index == self.attributes {
            return self.samples.iter().zip(at).all(ends);
        }
        for attribute in self.candidates(index, at) {
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            let Some(next) = self.advance(attribute, index, at) else { continue };
            self.chosen.push(attribute);
            if self.run(&next) {
                return true;
            }
            self.chosen.pop();
        }
        false
    }

    /// All kinds, the most plausible first.
    fn candidates(&self, index: usize, at: &[usize]) -> [Attribute; CODES.len()] {
        let mut eights = (0, 0);
        for (cell, &at) in self.samples.iter().zip(at) {
            let at = at.next_multiple_of(8);
            if is_present(self.page, cell, index) && at + 8 <= usize::from(cell.at + cell.len) {
                eights = (eights.0 + 1, eights.1 + usize::from(self.is_eight(at)));
            }
        }
        let eight = eights.1 > 0 && 4 * eights.1 >= 3 * eights.0;
        if eight {
            [Varlena, Fixed8, Fixed4, Fixed2, Fixed1, Fixed16]
        } else {
            [Varlena, Fixed4, Fixed8, Fixed2, Fixed1, Fixed16]
        }
    }

    /// Whether these look like an attribute of eight bytes: a small integer, a timestamp of our days, a
    /// double that is neither tiny nor huge.
    fn is_eight(&self, at: usize) -> bool {
        let (low, high) = (u32_at(self.page, at), u32_at(self.page, at + 4));
        let timestamp = (0x0001_0000..0x0005_0000).contains(&high);
        let double = (990..1060).contains(&((high >> 20) & 0x7ff)) && (low == 0 || low & 0xffff != 0);
        high == 0 || high == u32::MAX || timestamp || double
    }

    fn advance(&self, attribute: Attribute, index: usize, at: &[usize]) -> Option<Vec<usize>> {
        let places = self.samples.iter().zip(at).map(|(cell, &at)| {
            if !is_present(self.page, cell, index) {
                return Some(at);
            }
            let end = usize::from(cell.at + cell.len);
            let (begin, size) = match attribute.fixed() {
                Some((size, alignment)) => (at.next_multiple_of(alignment), size),
                None => {
                    let (begin, size, _) = varlena(self.page, at, end)?;
                    (begin, size)
                }
            };
            let padded = self.page[at..begin.min(end)].iter().all(|byte| *byte == 0);
            (padded && begin + size <= end).then_some(begin + size)
        });
        places.collect()
    }
}
