//! A payload of which only some blocks are there, because the others are out of line and may not be needed.
//!
//! Whoever reads says which bytes it looks at ([`Blocks::touch`]). If some are missing, reading ends and they are noted; once
//! they are filled in, reading begins anew. A path needs few of them: the tokens on its way, and its value.

use std::cell::Cell;
use std::ops::Range;

use crate::datum::BLOCK_BYTES;
use crate::error::Error;
use crate::memory;

/// Which blocks of a payload are there.
#[derive(Default, Debug)]
pub struct Blocks {
    /// Where the payload begins in memory, and its length.
    start: usize,
    len: usize,
    are_there: Vec<bool>,
    /// Of the payload.
    missing: Cell<Option<(usize, usize)>>,
}

impl Blocks {
    /// Of a payload in memory, of which only the first block is there.
    pub(crate) fn first_of(payload: &[u8]) -> Result<Blocks, Error> {
        let mut are_there = Vec::new();
        let count = payload.len().div_ceil(BLOCK_BYTES);
        memory::reserve_exact(&mut are_there, count)?;
        are_there.resize(count, false);
        if let Some(first) = are_there.first_mut() {
            *first = true;
        }
        Ok(Blocks { start: payload.as_ptr().addr(), len: payload.len(), are_there, missing: Cell::new(None) })
    }

    /// Whether bytes of the payload are there. Otherwise they are noted.
    pub(crate) fn touch(&self, bytes: &[u8]) -> bool {
        let Some(range) = self.range_of(bytes) else { return true };
        if range.clone().all(|block| self.are_there.get(block).copied().unwrap_or(true)) {
            return true;
        }
        self.missing.set(Some((range.start, range.end)));
        false
    }

    /// The blocks of bytes of the payload; none if they are others, or there are none.
    fn range_of(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let from = bytes.as_ptr().addr().checked_sub(self.start)?;
        let last = from.checked_add(bytes.len())?.checked_sub(1)?;
        (!bytes.is_empty() && last < self.len).then(|| from / BLOCK_BYTES..last / BLOCK_BYTES + 1)
    }

    /// The blocks that ended reading, if that is why it ended.
    pub(crate) fn missing(&self) -> Option<Range<usize>> {
        let (from, to) = self.missing.get()?;
        let is_missing = |block: &usize| self.are_there.get(*block) == Some(&false);
        let from = (from..to).find(is_missing)?;
        let to = (from..to).rfind(is_missing)? + 1;
        Some(from..to)
    }

    /// Notes that blocks are there now.
    pub(crate) fn filled(&mut self, blocks: Range<usize>) {
        if let Some(filled) = self.are_there.get_mut(blocks) {
            filled.fill(true);
        }
        self.missing.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_noted_and_asked_for_once() {
        let payload = vec![0; 5 * BLOCK_BYTES - 7];
        let mut blocks = Blocks::first_of(&payload).unwrap();
        assert!(blocks.touch(&payload[..BLOCK_BYTES]) && blocks.touch(&[]) && blocks.touch(b"elsewhere"));
        assert_eq!(blocks.missing(), None);
        assert!(!blocks.touch(&payload[BLOCK_BYTES - 1..2 * BLOCK_BYTES + 1]));
        assert_eq!(blocks.missing(), Some(1..3));
        blocks.filled(1..3);
        assert!(blocks.touch(&payload[BLOCK_BYTES - 1..2 * BLOCK_BYTES + 1]));
        assert!(!blocks.touch(&payload[payload.len() - 1..]));
        assert_eq!(blocks.missing(), Some(4..5));
        assert!(!blocks.touch(&payload));
        assert_eq!(blocks.missing(), Some(3..5));
    }
}
