//! What is in one file: what is on the disk for certain, and what was changed since.

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
    Write { at: u64, bytes: Arc<[u8]> },
    Size(u64),
    Zeros { at: u64, length: u64 },
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
        let is_shape = |change: &Change| !matches!(change, Change::Write { .. });
        let shapes = changes.iter().filter(|change| is_shape(change)).count();
        let mut left = match survival.blocks {
            0 => 0,
            100 => shapes,
            _ => rng.between(0, shapes),
        };
        // Up to here changes of the shape survive, and from `lost` on nothing does in what they touch.
        let mut kept = 0;
        let mut lost = changes.len();
        for (at, _) in changes.iter().enumerate().filter(|(_, change)| is_shape(change)) {
            if left == 0 {
                lost = at;
                break;
            }
            left -= 1;
            kept = at + 1;
        }
        let mut found = self.clone();
        for change in changes[..kept].iter().filter(|change| is_shape(change)) {
            found.apply(change);
        }
        let extent = changes.iter().map(Change::end).fold(self.size, u64::max);
        let mut touched = std::collections::BTreeMap::<usize, Vec<usize>>::new();
        let mut grown = found.size;
        let mut size = found.size;
        for (index, change) in changes.iter().enumerate() {
            let (at, length) = match change {
                Change::Write { at, bytes } => (*at, bytes.len() as u64),
                Change::Zeros { at, length } => (*at, *length),
                Change::Size(to) => (*to, extent.saturating_sub(*to)),
                Change::Grow(_) => continue,
            };
            if let Change::Write { .. } = change
                && index < lost
            {
                grown = grown.max(at + length);
            }
            for block in blocks(at, length) {
                touched.entry(block).or_default().push(index);
            }
        }
        for (block, touches) in touched {
            let first = touches.iter().rposition(|at| *at < kept && is_shape(&changes[*at])).map_or(0, |at| at + 1);
            let last = touches.iter().position(|at| *at >= lost && is_shape(&changes[*at])).unwrap_or(touches.len());
            if last <= first || !rng.chance(survival.blocks) {
                self.set_state(&mut found, block, changes, &touches[..first]);
                continue;
            }
            let newer = if survival.blocks == 100 { last } else { rng.between(first + 1, last) };
            self.set_state(&mut found, block, changes, &touches[..newer]);
            if let Change::Write { at, bytes } = &changes[touches[newer - 1]] {
                size = size.max((at + bytes.len() as u64).min((block as u64 + 1) * BLOCK as u64));
            }
            if rng.chance(survival.torn) {
                let older = self.state(block, changes, &touches[..rng.between(first, newer - 1)]);
                let mut torn = found.block(block);
                for (to, from) in torn.chunks_mut(SECTOR).zip(older.chunks(SECTOR)) {
                    if rng.chance(50) {
                        to.copy_from_slice(from);
                    }
                }
                found.set(block, torn);
            }
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

    fn set_state(&self, found: &mut Contents, block: usize, changes: &[Change], touches: &[usize]) {
        found.set(block, self.state(block, changes, touches));
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
