//! Records that lie side by side in the file, read by one pread; where records lie, for prefetch and
//! writeback.
//!
//! Pages that were written one after the other have their records one after the other, so a range of blocks
//! is mostly a range of bytes. [`Container::gather`] looks at the entries in memory and reads as many of the
//! pages asked for as one pread can bring; [`Container::gathered`] proves each of them as if it had been read
//! alone, and reads it alone if the proof fails: it was replaced meanwhile, or it is damaged. So one page's
//! fate is not its neighbours'.
//!
//! ```text
//!   blocks    7      8      9 (zeros)    10          11
//!   file   [ 7 ][ 8 ][ gap of at most 4 KB ][ 10 ]  ...  [ 11 ]     one pread for 7 to 10, another from 11 on
//! ```

use crate::device::{Device, ProcessTable};
use crate::engine::container::{Container, Scratch, Stored};
use crate::format::entry::Entry;
use crate::format::error::Error;
use crate::format::record::RECORD_BYTES_MAX;
use crate::format::units::{Block, Span};
use crate::shared::word::Word;

/// Bytes at most that one pread brings.
pub const RUN_BYTES_MAX: usize = 256 << 10;
/// Pages at most of a run.
const RUN_PAGES_MAX: usize = 128;
/// Bytes at most that are read for nothing with each record: copying them takes less time than a call of the
/// system.
const GAP_BYTES_MAX: u64 = 4096;

/// Memory for records that are read together, and what is in it.
pub struct Run {
    /// Filled from `offset` on, as far as `filled`.
    bytes: Vec<u8>,
    /// In the file, of the first of `bytes`.
    offset: u64,
    /// Bytes that are there; at most `bytes.len()`.
    filled: usize,
    first: Block,
    /// Of the blocks from `first` on, as they were before the pread.
    entries: Vec<Entry>,
}

impl Run {
    /// For preads of at most so many bytes, of which [`RUN_BYTES_MAX`] are of use. With too few for two
    /// records every page is read alone.
    pub fn new(bytes_max: usize) -> Run {
        let bytes = bytes_max.min(RUN_BYTES_MAX);
        let bytes = if bytes < 2 * RECORD_BYTES_MAX { 0 } else { bytes };
        let entries = Vec::with_capacity(RUN_PAGES_MAX);
        Run { bytes: vec![0; bytes], offset: 0, filled: 0, first: Block(0), entries }
    }

    /// Bytes of memory that it holds.
    pub fn memory_size(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    fn entry(&self, block: Block) -> Option<Entry> {
        let index = block.0.checked_sub(self.first.0)?;
        self.entries.get(index as usize).copied()
    }

    /// The bytes of a record, if they were read.
    fn record(&self, span: Span) -> Option<&[u8]> {
        let from = usize::try_from(span.location.offset().checked_sub(self.offset)?).ok()?;
        self.bytes[..self.filled].get(from..from.checked_add(span.units.bytes())?)
    }
}

/// Bytes of a container's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRange {
    /// The first one.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// Records that are worth one pread.
#[derive(Clone, Copy)]
struct Stretch {
    start: u64,
    end: u64,
    /// Bytes of the records in it.
    used: u64,
    records: u32,
}

impl Stretch {
    fn of(span: Span) -> Stretch {
        let (start, used) = (span.location.offset(), span.units.bytes() as u64);
        Stretch { start, end: start + used, used, records: 1 }
    }

    fn length(&self) -> u64 {
        self.end - self.start
    }

    fn range(&self) -> FileRange {
        FileRange { offset: self.start, length: self.length() }
    }

    /// Bytes between the records; entries of a damaged map may overlap.
    fn waste(&self) -> u64 {
        self.length().saturating_sub(self.used)
    }

    /// With one more record. None: it is better read by itself, or `bytes_max` are not enough.
    fn with(stretch: Option<Stretch>, span: Span, bytes_max: u64) -> Option<Stretch> {
        let one = Stretch::of(span);
        let Some(known) = stretch else { return Some(one) };
        let grown = Stretch {
            start: known.start.min(one.start),
            end: known.end.max(one.end),
            used: known.used + one.used,
            records: known.records + 1,
        };
        (grown.length() <= bytes_max && grown.waste() <= known.waste() + GAP_BYTES_MAX).then_some(grown)
    }
}

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// Reads what it can of `count` pages from `first` on with one pread, at most, into `run`: how many, one
    /// at least. Each is then to be asked for by [`gathered`](Self::gathered), which returns what
    /// failed here, too.
    pub fn gather(&self, first: u32, count: u32, run: &mut Run) -> u32 {
        run.first = Block(first);
        run.entries.clear();
        run.filled = 0;
        let mut stretch = None;
        for block in Block(first).up_to(first.saturating_add(count).min(self.pages())).take(RUN_PAGES_MAX) {
            let Some(entry) = self.known_entry(block) else { break };
            if let Some(span) = entry.record_span() {
                let grown = Stretch::with(stretch, span, run.bytes.len() as u64);
                if grown.is_none() {
                    break;
                }
                stretch = grown;
            }
            run.entries.push(entry);
        }
        // One record is read alone as cheaply.
        if let Some(stretch) = stretch.filter(|stretch| stretch.records > 1) {
            self.device.pause();
            run.offset = stretch.start;
            let target = &mut run.bytes[..stretch.length() as usize];
            // What is not there, or cannot be read, is read again page by page, and reported so.
            run.filled = self.device.pread(target, stretch.start).unwrap_or(0);
        }
        (run.entries.len() as u32).max(1)
    }

    /// A page of those that were gathered. Any other is read as by [`read`](Self::read). `run` is as the last
    /// [`gather`](Self::gather) of this container left it, a moment ago: a page of zeros has no record that
    /// would prove it, and is believed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn gathered<'s>(
        &self,
        block: u32,
        run: &'s Run,
        scratch: &'s mut Scratch,
    ) -> Result<Stored<'s>, Error> {
        let entry = run.entry(Block(block)).unwrap_or(Entry::MISSING);
        if entry.is_zeros() {
            return Ok(Stored::Zeros);
        }
        if let Some(bytes) = entry.record_span().and_then(|span| run.record(span))
            && let Ok(found) = self.prove(entry, Block(block), bytes)
        {
            return self.open_payload(&found, bytes, &mut scratch.opened);
        }
        self.read(block, scratch)
    }

    /// Where a page's record lies, to be read ahead (`posix_fadvise`) or written back (`sync_file_range`).
    /// None: there is nothing to do for it, as it is all zeros, past the end, or its leaf of the map cannot
    /// be loaded, which reading it reports. The record may be another one as soon as this returns.
    pub fn location(&self, block: u32) -> Option<FileRange> {
        let known = (block < self.pages()).then(|| self.known_entry(Block(block))).flatten();
        known.and_then(Entry::record_span).map(|span| Stretch::of(span).range())
    }

    /// The same of a range of pages: what lies side by side, in the order of blocks, is one call of `each`.
    pub fn locations(&self, first: u32, count: u32, mut each: impl FnMut(FileRange)) {
        let mut stretch = None;
        for block in Block(first).up_to(first.saturating_add(count).min(self.pages())) {
            let Some(span) = self.known_entry(block).and_then(Entry::record_span) else { continue };
            stretch = Stretch::with(stretch, span, RUN_BYTES_MAX as u64).or_else(|| {
                stretch.into_iter().for_each(|done: Stretch| each(done.range()));
                Some(Stretch::of(span))
            });
        }
        stretch.into_iter().for_each(|last| each(last.range()));
    }

    /// The entry of a block below the end, its leaf loaded if need be. None: there is none.
    fn known_entry(&self, block: Block) -> Option<Entry> {
        let entry = self.state.entry(block);
        self.state.mark_used(block.leaf());
        if !entry.is_missing() {
            return Some(entry);
        }
        let is_loaded = self.load_for(block).unwrap_or(false);
        Some(self.state.entry(block)).filter(|entry| is_loaded && !entry.is_missing())
    }
}
