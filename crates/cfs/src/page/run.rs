//! Consecutive pages of one relation as streams of like content, for those who compress many pages at once.
//!
//! Each page is rearranged as [`PageCodec`](super::PageCodec) does it, but its parts are not joined: heads of
//! all pages are one stream, bodies another. Rows are split by attribute, so that the texts of one column are
//! beside those of other pages and not beside the next column's. A page takes from each stream what it needs
//! and leaves the rest to the pages that follow, so no lengths of pages are kept. Compressing the streams, and
//! telling their lengths, is left to the caller. The layout is in `formats/backup-chunk.md`.
//!
//! Invariants:
//! 1. Any pages come back bit for bit, given the block number of the first one.
//! 2. The streams of a page, loose bits included, are at most [`RunEncoder::PAGE_BYTES_MAX`] bytes.
//! 3. Any bytes as streams give exactly as many pages as were asked for, or an [`Error`], in time that is
//!    bounded by their number and the streams' lengths. Bytes that are left over are an error.
//!
//! ```
//! use pgshrink_cfs::page::{PAGE_SIZE, RunDecoder, RunEncoder};
//! let pages = [[7; PAGE_SIZE], [0; PAGE_SIZE]];
//! let mut encoder = RunEncoder::new();
//! encoder.begin();
//! pages.iter().zip(40..).for_each(|(page, block)| encoder.push(page, Some(block)));
//! let mut back = [[1; PAGE_SIZE]; 2];
//! RunDecoder::new().decode(&encoder.streams(), Some(40), &mut back)?;
//! assert!(back == pages);
//! # Ok::<(), pgshrink_cfs::page::Error>(())
//! ```

use super::checksum::{CHECKSUM_AT, checksum};
use super::layout::{is_zero, u16_at};
use super::streams::{ROW_STREAMS_MAX, Source};
use super::transform::{PLAIN, Transform, read_plain, write_plain};
use super::{Error, PAGE_SIZE};

/// What pages have become. The lengths of the streams have to be kept, and all of them be given back.
#[derive(Copy, Clone, Debug, Default)]
pub struct RunStreams<'a> {
    /// For each page its form, then what describes its columns.
    pub head: &'a [u8],
    /// Bytes that stay as they were: those before the first attribute of variable length, those of each such
    /// attribute, and in the last stream those of all others. Streams that are empty at the end need not be
    /// kept.
    pub rows: [&'a [u8]; RunStreams::ROWS_MAX],
    /// Columns.
    pub body: &'a [u8],
    /// Bits without a pattern. Compressing them makes them no smaller.
    pub loose: &'a [u8],
}

/// Rearranges pages, one thread's. Memory is kept from run to run.
#[derive(Default)]
pub struct RunEncoder {
    transform: Transform,
    head: Vec<u8>,
    rows: [Vec<u8>; RunStreams::ROWS_MAX],
    body: Vec<u8>,
    loose: Vec<u8>,
}

/// Puts pages together again, one thread's.
#[derive(Default)]
pub struct RunDecoder {
    transform: Transform,
}

/// A page's form, beside those of a single page: a page of zeros.
const ZERO: u8 = 4;
/// With a form: the checksum is that of the page at its block number.
const CHECKSUM: u8 = 8;
/// Form and length of a page that is taken as it is.
const PLAIN_HEAD_BYTES: usize = 3;

impl RunStreams<'_> {
    /// Row streams at most.
    pub const ROWS_MAX: usize = ROW_STREAMS_MAX;
}

impl RunEncoder {
    /// Bytes of all streams at most that one page adds.
    pub const PAGE_BYTES_MAX: usize = PLAIN_HEAD_BYTES + PAGE_SIZE;

    /// Without any page yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes at most of memory that is kept from one run to the next, besides a quarter of a megabyte. While
    /// there is a run, twice the bytes of its streams may come on top.
    pub const KEPT_BYTES_MAX: usize = 3 << 20;

    /// Forgets the pages before.
    pub fn begin(&mut self) {
        // Each stream has as much room as it ever took, which may be all of a run for every one of them.
        let forget = self.kept_bytes() > Self::KEPT_BYTES_MAX;
        let streams = [&mut self.head, &mut self.body, &mut self.loose];
        for stream in streams.into_iter().chain(&mut self.rows) {
            if forget {
                *stream = Vec::new();
            }
            stream.clear();
        }
    }

    fn kept_bytes(&self) -> usize {
        let streams = [&self.head, &self.body, &self.loose];
        streams.into_iter().chain(&self.rows).map(Vec::capacity).sum()
    }

    /// Adds the next page. With its block number, a checksum that verifies costs nothing.
    pub fn push(&mut self, page: &[u8; PAGE_SIZE], block: Option<u32>) {
        if is_zero(page) {
            self.head.push(ZERO);
            return;
        }
        let found = u16_at(page, CHECKSUM_AT);
        let implied = found != 0 && block.is_some_and(|block| checksum(page, block) == found);
        let flag = if implied { CHECKSUM } else { 0 };
        let Some(sink) = self.transform.streams(page, implied, PAGE_SIZE) else {
            let [rows, ..] = &mut self.rows;
            let start = rows.len();
            write_plain(page, implied, rows);
            self.head.push(PLAIN | flag);
            self.head.extend_from_slice(&((rows.len() - start) as u16).to_le_bytes());
            return;
        };
        self.head.push(sink.head[0] | flag);
        self.head.extend_from_slice(&sink.head[1..]);
        self.body.extend_from_slice(&sink.body);
        self.loose.extend_from_slice(&sink.loose);
        let ends = sink.turns.iter().copied().chain([sink.rows.len()]);
        let mut from = 0;
        for (i, to) in ends.enumerate() {
            self.rows[i.min(ROW_STREAMS_MAX - 1)].extend_from_slice(&sink.rows[from..to]);
            from = to;
        }
    }

    /// What the pages since [`begin`](Self::begin) have become.
    pub fn streams(&self) -> RunStreams<'_> {
        let rows = self.rows.each_ref().map(|stream| &stream[..]);
        RunStreams { head: &self.head, rows, body: &self.body, loose: &self.loose }
    }
}

impl RunDecoder {
    /// Without any memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The inverse of [`RunEncoder`]: fills `pages`, of which there must be as many as were pushed. On an error
    /// they hold bytes without meaning.
    ///
    /// # Errors
    /// [`Error::BlockMissing`] where a checksum was left out and `first_block` is not given, or the page is
    /// beyond the last block number; [`Error::Corrupt`] for streams that no encoder made.
    pub fn decode(
        &mut self,
        streams: &RunStreams<'_>,
        first_block: Option<u32>,
        pages: &mut [[u8; PAGE_SIZE]],
    ) -> Result<(), Error> {
        let mut source = Source::new(streams.head, &streams.rows, streams.body, streams.loose);
        for (page, index) in pages.iter_mut().zip(0..) {
            page.fill(0);
            source.begin_page();
            let form = source.head_byte()?;
            if form == ZERO {
                continue;
            }
            if form & !CHECKSUM == PLAIN {
                let [low, high] = [source.head_byte()?, source.head_byte()?];
                read_plain(source.rows(u16::from_le_bytes([low, high]).into())?, page)?;
            } else {
                self.transform.restore(form & !CHECKSUM, &mut source, page)?;
            }
            if form & CHECKSUM != 0 {
                let block = first_block.and_then(|first| first.checked_add(index));
                let sum = checksum(page, block.ok_or(Error::BlockMissing)?);
                page[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_le_bytes());
            }
        }
        source.finish()
    }
}

impl std::fmt::Debug for RunEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunEncoder").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RunDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunDecoder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_runs_that_fill_different_streams_does_not_add_up() {
        let mut encoder = RunEncoder::new();
        encoder.rows[0].reserve(1 << 20);
        encoder.begin();
        assert!(encoder.kept_bytes() >= 1 << 20);
        encoder.rows.iter_mut().for_each(|stream| stream.reserve(1 << 20));
        encoder.begin();
        assert_eq!(encoder.kept_bytes(), 0);
    }
}
