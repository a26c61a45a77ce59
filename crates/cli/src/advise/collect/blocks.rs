//! Which blocks of a table are read, and in which order. Pure: the same table gives the same blocks.
//!
//! The table is cut into runs of a few blocks. Runs come in an order in which every beginning is spread evenly over the table
//! (van der Corput's sequence), so that reading may end whenever the budget does.

use std::ops::Range;

/// Blocks that are read together, at most: about what the encoder of the wire looks back on, as rows cost less where it knows their
/// neighbours.
const RUN_BLOCKS_MAX: u32 = 64;

/// The runs of a relation of so many blocks, in the order in which they are to be read.
pub(super) struct Runs {
    blocks: u32,
    /// A power of two.
    run_blocks: u32,
    bits: u32,
    next: u64,
}

impl Runs {
    /// `run_blocks`: how many blocks are read together, rounded to a power of two of 64 at most.
    pub(super) fn new(blocks: u32, run_blocks: u32) -> Runs {
        let run_blocks = prior_power_of_two(run_blocks.clamp(1, RUN_BLOCKS_MAX));
        let runs = blocks.div_ceil(run_blocks);
        let bits = u32::BITS - runs.saturating_sub(1).leading_zeros();
        Runs { blocks, run_blocks, bits, next: 0 }
    }
}

impl Iterator for Runs {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        loop {
            if self.next >> self.bits != 0 || self.blocks == 0 {
                return None;
            }
            let reversed =
                if self.bits == 0 { 0 } else { (self.next as u32).reverse_bits() >> (u32::BITS - self.bits) };
            self.next += 1;
            let start = u64::from(reversed) * u64::from(self.run_blocks);
            // Numbers of runs go up to the next power of two.
            if let Ok(start) = u32::try_from(start)
                && start < self.blocks
            {
                return Some(start..start.saturating_add(self.run_blocks).min(self.blocks));
            }
        }
    }
}

/// So many blocks of a relation, evenly spread, in their order; all of them if there are no more.
pub(super) fn spread(blocks: u32, count: u32) -> Vec<u32> {
    let count = count.min(blocks);
    let at = |index: u32| (u64::from(index) * 2 + 1) * u64::from(blocks) / (u64::from(count) * 2);
    (0..count).filter_map(|index| u32::try_from(at(index)).ok()).collect()
}

fn prior_power_of_two(number: u32) -> u32 {
    1 << (u32::BITS - 1 - number.max(1).leading_zeros())
}

#[test]
fn every_block_comes_once_and_every_beginning_is_spread_over_the_table() {
    for blocks in [0, 1, 2, 7, 8, 9, 1000, 131_073] {
        for run in [1, 3, 8, 100] {
            let mut seen: Vec<u32> = Runs::new(blocks, run).flatten().collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..blocks).collect::<Vec<_>>(), "{blocks} in runs of {run}");
        }
    }
    let first: Vec<u32> = Runs::new(100_000, 4).take(64).map(|run| run.start).collect();
    for part in 0..8 {
        let here = first.iter().filter(|start| *start * 8 / 100_000 == part).count();
        assert!((5..=13).contains(&here), "{here} of 64 runs in part {part}");
    }
    assert!(Runs::new(u32::MAX, 64).take(1000).all(|run| run.len() == 64 && run.start % 64 == 0));
}

#[test]
fn pages_are_spread_and_all_of_a_small_relation() {
    assert_eq!(spread(3, 200), [0, 1, 2]);
    assert_eq!(spread(1000, 4), [125, 375, 625, 875]);
    assert_eq!(spread(u32::MAX - 1, 2), [1_073_741_823, 3_221_225_470]);
    assert!(spread(0, 5).is_empty() && spread(5, 0).is_empty());
}
