//! What a page looks like, from its header and special space. A guess for statistics and training: nothing
//! depends on it being right.

use super::PAGE_SIZE;
use super::layout::{HEADER_BYTES, is_zero, u16_at, u32_at};

/// What kind of page it looks like.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A table's or TOAST table's tuples.
    Heap,
    /// A B-tree page.
    BTree,
    /// A B-tree leaf with posting lists.
    BTreePosting,
    /// A hash index's page.
    Hash,
    /// A GIN index's page.
    Gin,
    /// A GiST index's page.
    Gist,
    /// An SP-GiST index's page.
    Spgist,
    /// A BRIN index's page.
    Brin,
    /// The one page of a sequence.
    Sequence,
    /// A visibility map.
    Vm,
    /// A free-space map.
    Fsm,
    /// All zero.
    Zero,
    /// Anything else.
    Other,
}

/// `SEQ_MAGIC` of `sequence.c`.
const SEQUENCE_MAGIC: u32 = 0x1717;

/// What `page` looks like.
pub fn looks_like(page: &[u8; PAGE_SIZE]) -> Kind {
    if is_zero(page) {
        return Kind::Zero;
    }
    let [lower, upper, special] = [12, 14, 16].map(|at| usize::from(u16_at(page, at)));
    if !(HEADER_BYTES <= lower && lower <= upper && upper <= special && special <= PAGE_SIZE) {
        return Kind::Other;
    }
    let last = u16_at(page, PAGE_SIZE - 2);
    match PAGE_SIZE - special {
        0 if lower > HEADER_BYTES => Kind::Heap,
        // Both maps leave their header as PageInit made it.
        0 if is_tree(page) => Kind::Fsm,
        0 => Kind::Vm,
        8 if u32_at(page, special) == SEQUENCE_MAGIC => Kind::Sequence,
        8 if last == 0xff82 => Kind::Spgist,
        8 if (0xf091..=0xf093).contains(&last) => Kind::Brin,
        8 => Kind::Gin,
        16 if last == 0xff80 => Kind::Hash,
        16 if last == 0xff81 => Kind::Gist,
        16 if last <= 0xff7f => {
            let posting = (HEADER_BYTES..lower.min(upper)).step_by(4).any(|pointer| {
                let at = (u32_at(page, pointer.min(PAGE_SIZE - 4)) & 0x7fff) as usize;
                at + 8 <= special && u16_at(page, at + 6) & 0x2000 != 0 && u16_at(page, at + 4) & 0x2000 != 0
            });
            if posting { Kind::BTreePosting } else { Kind::BTree }
        }
        _ => Kind::Other,
    }
}

/// Whether it begins like a free-space map: the next slot to try, then a tree of one byte per node, each the
/// largest of its two children (`freespace/README`).
fn is_tree(page: &[u8; PAGE_SIZE]) -> bool {
    let root = HEADER_BYTES + 4;
    u32_at(page, HEADER_BYTES) <= 4096 && page[root] != 0 && page[root] == page[root + 1].max(page[root + 2])
}
