//! Whether a page is worth rearranging where speed is what was asked for.
//!
//! A reader of LZ4 has a page in a microsecond or two. Putting a rearranged page together takes as long
//! again, or several times that, so it has to save something: tables of long texts hardly do. What it saves
//! is only known by compressing a page both ways, and pages that look alike mostly are of one relation. So
//! the first of a look is tried, then one in a few dozen, and the others are done as the last ones tried
//! suggest. Wrong guesses cost size or time, nothing else.

use super::PAGE_SIZE;
use super::layout::{HEADER_BYTES, u16_at, u32_at};

/// What is known of the pages that an encoder met.
pub(super) struct Worth {
    slots: [Slot; SLOTS],
}

impl Default for Worth {
    fn default() -> Self {
        Worth { slots: [Slot::default(); SLOTS] }
    }
}

/// Pages that look alike.
#[derive(Copy, Clone, Default)]
struct Slot {
    look: u32,
    /// Pages until one is tried again.
    pause: u32,
    /// Bytes that rearranging saved, and what the way back takes; means that forget.
    saved: i32,
    effort: i32,
}

/// A page's look, by which to learn from it.
#[derive(Copy, Clone)]
pub(super) struct Look(u32);

/// What to do with a page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    /// Compress it both ways, and tell what came of it.
    Try,
    Rearrange,
    Leave,
}

const SLOTS: usize = 64;
/// One page of so many is compressed both ways.
const PAUSE: u32 = 48;
/// What a rearranged page must save for every microsecond that putting it together takes: about what is left
/// to spend when all of the relations in `bench/cfs` are to decode at half of plain LZ4's speed.
const SAVED_PER_MICROSECOND: i64 = 500;

impl Worth {
    /// What to do with this page.
    pub(super) fn advice(&mut self, page: &[u8; PAGE_SIZE]) -> (Look, Advice) {
        let look = Look::of(page);
        let slot = self.slot(look);
        if slot.look != look.0 || slot.pause == 0 {
            return (look, Advice::Try);
        }
        slot.pause -= 1;
        (look, if slot.pays() { Advice::Rearrange } else { Advice::Leave })
    }

    /// Learns that rearranging a page saved bytes, which may be negative, at an effort in nanoseconds. Says
    /// whether that pays.
    pub(super) fn learn(&mut self, look: Look, saved: i32, effort: u32) -> bool {
        let slot = self.slot(look);
        let effort = effort as i32;
        if slot.look == look.0 {
            slot.saved += (saved - slot.saved) / 4;
            slot.effort += (effort - slot.effort) / 4;
        } else {
            *slot = Slot { look: look.0, pause: 0, saved, effort };
        }
        slot.pause = PAUSE;
        slot.pays()
    }

    fn slot(&mut self, look: Look) -> &mut Slot {
        &mut self.slots[(look.0.wrapping_mul(0x9e37_79b1) >> 26) as usize % SLOTS]
    }
}

impl Slot {
    fn pays(&self) -> bool {
        i64::from(self.saved) * 1000 >= i64::from(self.effort) * SAVED_PER_MICROSECOND
    }
}

impl Look {
    /// The special space, roughly how many tuples there are and how long they are, and of a heap the number
    /// of attributes, of an index the lowest flags of the special space. Never zero.
    fn of(page: &[u8; PAGE_SIZE]) -> Look {
        let [lower, upper, special] = [12, 14, 16].map(|at| usize::from(u16_at(page, at)));
        if !(HEADER_BYTES + 4 <= lower && lower <= upper && upper <= special && special <= PAGE_SIZE) {
            return Look(1);
        }
        let count = (lower - HEADER_BYTES) / 4;
        let first = (u32_at(page, HEADER_BYTES) & 0x7fff) as usize;
        let kind = match PAGE_SIZE - special {
            0 if first <= PAGE_SIZE - HEADER_BYTES => u16_at(page, first + 18) & 0x7ff,
            16 => u16_at(page, special + 12) & 15,
            8 => u16_at(page, special + 6) & 0xff,
            _ => 0,
        };
        let length = (special - upper) / count + 1;
        Look(1 | count.ilog2() << 1 | length.ilog2() << 5 | (special as u32 / 8) << 9 | u32::from(kind) << 20)
    }
}
