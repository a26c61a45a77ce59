//! The free space map: which page of a relation a row goes to, and how large the file is.
//!
//! Sources: `src/backend/storage/freespace/{freespace,fsmpage}.c`, `src/include/storage/fsm_internals.h`.

use crate::layout::heap::PAGE_BYTES;

/// `FSM_CAT_STEP`: bytes that one step of a page's free space stands for.
const STEP_BYTES: usize = 32;
/// `MaxFSMRequestSize`, which is `MaxHeapTupleSize`.
const REQUEST_BYTES_MAX: usize = 8160;
/// `NodesPerPage`: a page without its header and `fp_next_slot`.
const NODES: usize = PAGE_BYTES - 24 - 4;
/// `NonLeafNodesPerPage`.
const UPPER: usize = PAGE_BYTES / 2 - 1;
/// `SlotsPerFSMPage`: pages of the relation that one page at the bottom of the map stands for.
pub(super) const SLOTS: usize = NODES - UPPER;

/// Pages of the map of a relation with so many pages, after VACUUM. `fsm_logical_to_physical` of the last page at the bottom.
pub(super) fn map_pages(pages: u64) -> u64 {
    let Some(last) = pages.checked_sub(1) else { return 0 };
    let slots = SLOTS as u64;
    let leaf = last / slots;
    (leaf + 1).saturating_add(leaf / slots + 1).saturating_add(leaf / slots / slots + 1)
}

/// One page at the bottom of the map: a tree of maxima over the free space of [`SLOTS`] pages.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    nodes: Vec<u8>,
    next: usize,
}

impl Leaf {
    /// Knows of no free space.
    pub(super) fn new() -> Leaf {
        Leaf { nodes: vec![0; NODES], next: 0 }
    }

    /// Says how much a page has. `fsm_set_avail`.
    pub(super) fn record(&mut self, slot: usize, free_bytes: usize) {
        let mut node = UPPER + slot;
        self.nodes[node] = category_of(free_bytes);
        while node > 0 {
            node = (node - 1) / 2;
            let (left, right) = (2 * node + 1, 2 * node + 2);
            let most = self.nodes[left].max(self.nodes.get(right).copied().unwrap_or(0));
            if self.nodes[node] == most {
                break;
            }
            self.nodes[node] = most;
        }
    }

    /// A page that has as much for certain, from the one behind the last that was found. `fsm_search_avail`.
    pub(super) fn search(&mut self, needed_bytes: usize) -> Option<usize> {
        let wanted = needed_category(needed_bytes);
        if self.nodes[0] < wanted {
            return None;
        }
        let start = if self.next < SLOTS { self.next } else { 0 };
        let mut node = start + UPPER;
        while node > 0 && self.nodes[node] < wanted {
            // The neighbour to the right, or the leftmost of the level, then up.
            node += 1;
            if (node + 1) & node == 0 {
                node = (node - 1) / 2;
            }
            node = (node - 1) / 2;
        }
        while node < UPPER {
            let left = 2 * node + 1;
            let fits = |child: usize| self.nodes.get(child).is_some_and(|most| *most >= wanted);
            node = match (fits(left), fits(left + 1)) {
                (true, _) => left,
                (_, true) => left + 1,
                _ => return None,
            };
        }
        let slot = node - UPPER;
        self.next = slot + 1;
        Some(slot)
    }
}

/// `fsm_space_avail_to_cat`.
fn category_of(free_bytes: usize) -> u8 {
    if free_bytes >= REQUEST_BYTES_MAX {
        return u8::MAX;
    }
    u8::try_from(free_bytes / STEP_BYTES).unwrap_or(254).min(254)
}

/// `fsm_space_needed_to_cat`.
fn needed_category(needed_bytes: usize) -> u8 {
    u8::try_from(needed_bytes.div_ceil(STEP_BYTES).max(1)).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_testkit::Seed;

    #[test]
    fn the_map_has_three_levels_and_a_page_for_4069() {
        let cases =
            [(0, 0), (1, 3), (4069, 3), (4070, 4), (8139, 5), (4069 * 4069, 4071), (4069 * 4069 + 1, 4073)];
        for (pages, expected) in cases {
            assert_eq!(map_pages(pages), expected, "{pages}");
        }
        assert!(map_pages(u64::MAX) > 0);
    }

    #[test]
    fn a_page_is_found_where_one_has_room_and_only_there() {
        let mut rng = Seed(4).rng();
        let mut leaf = Leaf::new();
        let mut known = vec![0usize; SLOTS];
        for _ in 0..20_000 {
            let slot = if rng.chance(5) { SLOTS - 1 - rng.below(3) } else { rng.below(SLOTS) };
            // Mostly full pages, so that some searches fail.
            known[slot] = if rng.chance(1) { rng.below(8165) } else { rng.below(100) };
            leaf.record(slot, known[slot]);
            let needed = rng.between(1, 8160);
            let found = leaf.search(needed);
            let has_room = |free: usize| category_of(free) >= needed_category(needed);
            match found {
                Some(slot) => assert!(has_room(known[slot]) && known[slot] >= needed, "{slot} {needed}"),
                None => assert!(!known.iter().any(|free| has_room(*free)), "{needed}"),
            }
        }
    }
}
