//! What the chunks of a stream were like lately, for encoders that have one way for dialogues of small messages and
//! another for bulk, and pay for a change.

/// Up to here a chunk counts as small.
pub(super) const SMALL_BYTES_MAX: usize = 160;
/// So many bytes in larger chunks, less what small ones make up for, and it is bulk.
const BULK_BYTES_MAX: usize = 2 << 10;
/// What a small chunk makes up for.
const BULK_BYTES_DECAY: usize = 32;
/// So many small chunks in a row, and it is a dialogue again.
const SMALL_RUN_MIN: usize = 64;

#[derive(Default)]
pub(super) struct Traffic {
    bulk_bytes: usize,
    small_run: usize,
}

impl Traffic {
    pub(super) fn note(&mut self, len: usize) {
        if len <= SMALL_BYTES_MAX {
            self.small_run += 1;
            self.bulk_bytes = self.bulk_bytes.saturating_sub(BULK_BYTES_DECAY);
        } else {
            self.small_run = 0;
            self.bulk_bytes = (self.bulk_bytes + len).min(2 * BULK_BYTES_MAX);
        }
    }

    /// Whether what was a dialogue is one no longer.
    pub(super) fn is_bulk(&self) -> bool {
        self.bulk_bytes > BULK_BYTES_MAX
    }

    /// Whether what was bulk is a dialogue now.
    pub(super) fn is_dialogue(&self) -> bool {
        self.small_run >= SMALL_RUN_MIN
    }
}
