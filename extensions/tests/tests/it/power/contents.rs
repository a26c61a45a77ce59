//! What is in one file: what is on the disk for certain, and what was changed since.

use std::collections::BTreeMap;
use std::sync::Arc;

use pgshrink_testkit::Rng;

/// What the system writes to a disk at once, and what a disk writes at once.
const BLOCK: usize = 4096;
const SECTOR: usize = 512;

type Block = [u8; BLOCK];

/// Bytes of a file. Blocks that are absent are zeros.
#[derive(Clone, Default)]
pub struct Contents {
    blocks: Vec<Option<Arc<Block>>>,
    size: u64,
}

/// One change.
#[derive(Clone)]
pub enum Change {
    Write {
        at: u64,
        bytes: Arc<[u8]>,
    },
    Size(u64),
    Zeros {
        at: u64,
        length: u64,
    },
    /// The file has at least this size.
    Grow(u64),
}

/// How much of what was not synced an image has.
#[derive(Clone, Copy, Debug)]
pub struct Survival {
    /// Percent of the blocks that have something newer than what was synced.
    pub blocks: usize,
    /// Percent of the newest of these that are torn between sectors.
    pub torn: usize,
}

impl Change {
    /// Whether it changes the file's shape, and not what is in it.
    fn is_of_shape(&self) -> bool {
        !matches!(self, Change::Write { .. })
    }

    /// Where what it touches ends.
    fn end(&self) -> u64 {
        match self {
            Change::Write { at, bytes } => at + bytes.len() as u64,
            Change::Zeros { at, length } => at + length,
            Change::Size(size) | Change::Grow(size) => *size,
        }
    }
}

impl Contents {
    /// These bytes.
    pub fn new(bytes: &[u8]) -> Contents {
        let mut contents = Contents::default();
        contents.apply(&Change::Write { at: 0, bytes: bytes.into() });
        contents
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { at, bytes } => {
                self.size = self.size.max(at + bytes.len() as u64);
                for block in blocks(*at, bytes.len() as u64) {
                    let mut new = self.block(block);
                    put(&mut new, block, change);
                    self.set(block, new);
                }
            }
            Change::Size(size) => {
                self.zero(*size, self.size.saturating_sub(*size));
                self.size = *size;
                self.blocks.truncate(size.div_ceil(BLOCK as u64) as usize);
            }
            Change::Zeros { at, length } => self.zero(*at, *length),
            Change::Grow(size) => self.size = self.size.max(*size),
        }
    }

    fn zero(&mut self, at: u64, length: u64) {
        let change = Change::Zeros { at, length };
        let there = self.blocks.len();
        for block in blocks(at, length).take_while(|block| *block < there) {
            if self.blocks[block].is_some() {
                let mut new = self.block(block);
                put(&mut new, block, &change);
                self.set(block, new);
            }
        }
    }

    fn block(&self, block: usize) -> Block {
        self.blocks.get(block).and_then(Option::as_deref).copied().unwrap_or([0; BLOCK])
    }

    fn set(&mut self, block: usize, bytes: Block) {
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, None);
        }
        self.blocks[block] = Some(Arc::new(bytes));
    }

    /// All bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for (place, block) in bytes.chunks_mut(BLOCK).zip(&self.blocks) {
            if let Some(block) = block {
                let length = place.len();
                place.copy_from_slice(&block[..length]);
            }
        }
        bytes
    }

    /// What may be found after a power failure, with these changes not synced, in their order.
    ///
    /// Changes of the size, and holes, are the file system's own data: of these a first part survives, in order, and
    /// nothing of a block is newer than one that did not. Each block has one of the states that it went through, or
    /// is torn: each sector of the newer or of the older state. A file may be shorter than what was written, or
    /// have zeros where a block did not survive.
    pub fn after_failure(&self, changes: &[Change], survival: Survival, rng: &mut Rng) -> Contents {
        let (kept, lost) = surviving_shapes(changes, survival, rng);
        let mut found = self.clone();
        for change in changes[..kept].iter().filter(|change| change.is_of_shape()) {
            found.apply(change);
        }
        let written = |change: &&Change| !change.is_of_shape();
        let grown = changes[kept..lost].iter().filter(written).map(Change::end).fold(found.size, u64::max);
        let mut size = found.size;
        let extent = changes.iter().map(Change::end).fold(self.size, u64::max);
        for (block, touches) in touched(changes, extent) {
            let is_shape = |at: usize| changes[at].is_of_shape();
            let first = touches.iter().rposition(|at| *at < kept && is_shape(*at)).map_or(0, |at| at + 1);
            let last = touches.iter().position(|at| *at >= lost && is_shape(*at)).unwrap_or(touches.len());
            if last <= first || !rng.chance(survival.blocks) {
                found.set(block, self.state(block, changes, &touches[..first]));
                continue;
            }
            let newer = if survival.blocks == 100 { last } else { rng.between(first + 1, last) };
            let mut state = self.state(block, changes, &touches[..newer]);
            let end = changes[touches[newer - 1]].end();
            size = size.max(end.min((block as u64 + 1) * BLOCK as u64));
            if rng.chance(survival.torn) {
                tear(&mut state, &self.state(block, changes, &touches[..rng.between(first, newer - 1)]), rng);
            }
            found.set(block, state);
        }
        found.size = if survival.blocks == 100 || rng.chance(30) { grown.max(size) } else { size };
        found.blocks.truncate(found.size.div_ceil(BLOCK as u64) as usize);
        found
    }

    fn state(&self, block: usize, changes: &[Change], touches: &[usize]) -> Block {
        let mut bytes = self.block(block);
        for at in touches {
            put(&mut bytes, block, &changes[*at]);
        }
        bytes
    }
}

/// How many changes there are up to the last one of the file's shape that survives, and up to the first one that does not.
fn surviving_shapes(changes: &[Change], survival: Survival, rng: &mut Rng) -> (usize, usize) {
    let shapes: Vec<usize> = (0..changes.len()).filter(|at| changes[*at].is_of_shape()).collect();
    let count = match survival.blocks {
        0 => 0,
        100 => shapes.len(),
        _ => rng.between(0, shapes.len()),
    };
    let kept = if count == 0 { 0 } else { shapes[count - 1] + 1 };
    (kept, shapes.get(count).copied().unwrap_or(changes.len()))
}

/// For each block, the changes that touch it.
fn touched(changes: &[Change], extent: u64) -> BTreeMap<usize, Vec<usize>> {
    let mut touched = BTreeMap::<usize, Vec<usize>>::new();
    for (index, change) in changes.iter().enumerate() {
        let (at, length) = match change {
            Change::Write { at, bytes } => (*at, bytes.len() as u64),
            Change::Zeros { at, length } => (*at, *length),
            Change::Size(to) => (*to, extent.saturating_sub(*to)),
            Change::Grow(_) => continue,
        };
        for block in blocks(at, length) {
            touched.entry(block).or_default().push(index);
        }
    }
    touched
}

/// Gives some of a block's sectors the older state.
fn tear(state: &mut Block, older: &Block, rng: &mut Rng) {
    for (to, from) in state.chunks_mut(SECTOR).zip(older.chunks(SECTOR)) {
        if rng.chance(50) {
            to.copy_from_slice(from);
        }
    }
}

/// The blocks that a range touches.
fn blocks(at: u64, length: u64) -> std::ops::Range<usize> {
    let end = (at + length).div_ceil(BLOCK as u64);
    (at / BLOCK as u64) as usize..if length == 0 { (at / BLOCK as u64) as usize } else { end as usize }
}

/// Makes in one block the part of a change that concerns it.
fn put(bytes: &mut Block, block: usize, change: &Change) {
    let start = (block * BLOCK) as u64;
    let end = start + BLOCK as u64;
    let part = |at: u64, length: u64| {
        let (from, to) = (at.clamp(start, end), (at + length).clamp(start, end));
        (from - start) as usize..(to - start) as usize
    };
    match change {
        Change::Write { at, bytes: from } => {
            let place = part(*at, from.len() as u64);
            let skipped = start.saturating_sub(*at) as usize;
            let length = place.len();
            bytes[place].copy_from_slice(&from[skipped..skipped + length]);
        }
        Change::Size(size) => bytes[part(*size, u64::MAX / 2)].fill(0),
        Change::Zeros { at, length } => bytes[part(*at, *length)].fill(0),
        Change::Grow(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_testkit::Seed;

    fn write(at: usize, byte: u8, length: usize) -> Change {
        Change::Write { at: at as u64, bytes: vec![byte; length].into() }
    }

    fn found(changes: &[Change], blocks: usize, torn: usize, seed: u64) -> Vec<u8> {
        let before = Contents::new(&[1; 3 * BLOCK]);
        before.after_failure(changes, Survival { blocks, torn }, &mut Seed(seed).rng()).to_bytes()
    }

    #[test]
    fn what_was_not_synced_is_there_whole_or_not_at_all_at_the_ends() {
        let changes = [write(0, 2, 2 * BLOCK), Change::Size(BLOCK as u64), write(BLOCK, 3, 10)];
        assert!((0..20).all(|seed| found(&changes, 0, 100, seed) == [1; 3 * BLOCK]));
        let all = [vec![2; BLOCK], vec![3; 10]].concat();
        assert!((0..20).all(|seed| found(&changes, 100, 0, seed) == all));
    }

    #[test]
    fn blocks_survive_by_themselves_and_are_torn_between_sectors_only() {
        let changes = [write(0, 2, 3 * BLOCK), write(0, 3, 3 * BLOCK)];
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let found = found(&changes, 50, 50, seed);
            for block in found.chunks(BLOCK) {
                assert!(block.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
                kinds.insert((block[0], block[BLOCK - 1]));
            }
        }
        assert_eq!(kinds.len(), 9, "each of three states beside each other: {kinds:?}");
    }

    #[test]
    fn nothing_is_newer_than_a_truncation_that_was_lost_nor_older_than_one_that_survived() {
        let changes = [Change::Size(0), write(0, 2, BLOCK)];
        for seed in 0..200 {
            let found = found(&changes, 50, 0, seed);
            let is_old = found == [1; 3 * BLOCK];
            let is_cut = found.len() <= BLOCK && found.iter().all(|byte| *byte == 2 || *byte == 0);
            assert!(is_old || is_cut, "{} bytes", found.len());
        }
    }
}
