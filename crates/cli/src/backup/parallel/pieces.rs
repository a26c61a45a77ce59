//! Files in pieces, which come on several connections and in any order.
//!
//! A file has the size that it had when it was listed, as in BASE_BACKUP: what a file has grown by since is in the WAL, and a
//! file that was cut off is filled with zeros. A file that has vanished before any of it was read is left out. A small file
//! that is no relation has no WAL that would mend it, and is what one read gives.

use super::ledger::Ledger;
use crate::backup::Failure;
use crate::backup::chunks::{Job, Jobs, Source};
use crate::backup::failure::broken_off;
use crate::backup::transfer::{Progress, Step};
use pgshrink_backup::checksum::Crc32c;
use pgshrink_backup::chunk::CHUNK_BYTES_DEFAULT;
use pgshrink_backup::files::ListedFile;
use pgshrink_backup::pack::Area;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a piece, which is a chunk of the backup.
pub(super) const PIECE_BYTES: u64 = CHUNK_BYTES_DEFAULT as u64;
/// The largest file: the checksums of its pieces are kept until it is complete.
const FILE_BYTES_MAX: u64 = 1 << 40;

/// Where complete pieces and files go.
pub(super) struct Kept<'k> {
    jobs: &'k Jobs<'k>,
    pub(super) ledger: Ledger<'k>,
    progress: Progress<'k>,
    done: Mutex<u64>,
}

/// A file that is being read.
pub(super) struct OpenFile {
    pub(super) listed: ListedFile,
    /// Of a relation's file.
    pub(super) first_block: Option<u32>,
    /// Pages whose checksums are wrong.
    pub(super) wrong_pages: AtomicU64,
    source: Arc<Source>,
    state: Mutex<State>,
}

struct State {
    /// Of the pieces that came and were there; bytes of a file that is what one read gives.
    sums: Vec<Option<Crc32c>>,
    waiting: usize,
    /// Bytes of the whole file.
    size: u64,
}

/// A piece of a file.
pub(super) struct Piece {
    pub(super) file: Arc<OpenFile>,
    index: usize,
}

/// Pieces of one file that follow each other, and are asked for together.
pub(super) struct Run {
    pub(super) file: Arc<OpenFile>,
    /// The first piece that has not come.
    index: usize,
    /// Behind the last one.
    end: usize,
}

impl OpenFile {
    /// A file with at least one byte.
    pub(super) fn new(listed: ListedFile) -> Result<OpenFile, Failure> {
        if listed.size > FILE_BYTES_MAX {
            let what = format!(
                "it has {} bytes; the parallel route supports files of up to {FILE_BYTES_MAX} bytes; use \
                 --route stream",
                listed.size
            );
            return Err(Failure::new(&listed.path, what));
        }
        // Bounded by FILE_BYTES_MAX.
        let count = listed.size.div_ceil(PIECE_BYTES) as usize;
        let state = State { sums: vec![None; count], waiting: count, size: listed.size };
        Ok(OpenFile {
            first_block: listed.first_block(),
            wrong_pages: AtomicU64::new(0),
            source: Arc::new(Source::new(Area::Data, listed.path.clone())),
            state: Mutex::new(state),
            listed,
        })
    }

    /// Its pieces, so many at a time.
    pub(super) fn runs(self, pieces: usize) -> impl Iterator<Item = Run> {
        let count = self.listed.size.div_ceil(PIECE_BYTES) as usize;
        let file = Arc::new(self);
        (0..count).step_by(pieces).map(move |index| Run {
            file: Arc::clone(&file),
            index,
            end: count.min(index + pieces),
        })
    }

    /// Whether it is what one read gives, whatever was listed.
    fn is_as_read(&self) -> bool {
        self.first_block.is_none() && self.listed.size <= PIECE_BYTES
    }

    /// Counts pages whose checksums are wrong, and gives how many there were before.
    pub(super) fn count_wrong(&self, pages: u64) -> u64 {
        self.wrong_pages.fetch_add(pages, Ordering::Relaxed)
    }
}

impl Run {
    /// Where its first piece begins, and its last one.
    pub(super) fn offsets(&self) -> (u64, u64) {
        (self.index as u64 * PIECE_BYTES, (self.end as u64 - 1) * PIECE_BYTES)
    }

    /// Bytes that the file's size leaves for it.
    pub(super) fn bytes(&self) -> u64 {
        self.file.listed.size.min(self.end as u64 * PIECE_BYTES) - self.index as u64 * PIECE_BYTES
    }

    /// Whether all its pieces came.
    pub(super) fn is_over(&self) -> bool {
        self.index == self.end
    }

    /// The next piece, which has come.
    pub(super) fn next(&mut self) -> Piece {
        self.index += 1;
        Piece { file: Arc::clone(&self.file), index: self.index - 1 }
    }
}

impl Piece {
    /// Its first byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.index as u64 * PIECE_BYTES
    }

    /// Alone.
    pub(super) fn run(self) -> Run {
        Run { file: self.file, index: self.index, end: self.index + 1 }
    }

    /// Bytes that the file's size leaves for it.
    fn bytes(&self) -> u64 {
        (self.file.listed.size - self.offset()).min(PIECE_BYTES)
    }

    /// Takes what was read of it; `None`: the file is not there any more.
    pub(super) fn complete(self, raw: Option<Vec<u8>>, kept: &Kept<'_>) -> Result<(), Failure> {
        let (as_read, bytes) = (self.file.is_as_read(), self.bytes());
        let mut sum = None;
        if let Some(mut raw) = raw {
            if !as_read {
                // What a file has grown by is in the WAL.
                raw.resize(bytes as usize, 0);
            }
            sum = Some((raw.len() as u64, self.send(raw, kept)?));
        }
        kept.step(bytes)?;
        let mut state = self.file.state.lock().map_err(|_| broken_off())?;
        state.waiting -= 1;
        if let Some((found, sum)) = sum {
            state.sums[self.index] = Some(sum);
            if as_read {
                state.size = found;
            }
        }
        if state.waiting > 0 {
            return Ok(());
        }
        let (sums, size) = (std::mem::take(&mut state.sums), state.size);
        drop(state);
        self.file.end(sums, size, kept)
    }

    fn send(&self, raw: Vec<u8>, kept: &Kept<'_>) -> Result<Crc32c, Failure> {
        if raw.is_empty() {
            return Ok(Crc32c::of(&[]));
        }
        let job = Job::new(Arc::clone(&self.file.source), self.offset(), raw);
        let sum = job.checksum;
        kept.jobs.send(job)?;
        Ok(sum)
    }
}

impl OpenFile {
    /// All its pieces came.
    fn end(
        self: &Arc<OpenFile>,
        sums: Vec<Option<Crc32c>>,
        size: u64,
        kept: &Kept<'_>,
    ) -> Result<(), Failure> {
        if sums.iter().all(Option::is_none) {
            // It vanished before it was read.
            return Ok(());
        }
        let mut whole = Crc32c::of(&[]);
        let mut rest = size;
        for (index, sum) in sums.into_iter().enumerate() {
            let bytes = rest.min(PIECE_BYTES);
            rest -= bytes;
            let piece = Piece { file: Arc::clone(self), index };
            let sum = match sum {
                Some(sum) => sum,
                // The file went while it was read.
                None => piece.send(vec![0; bytes as usize], kept)?,
            };
            whole = whole.combine(sum, bytes);
        }
        kept.ledger.add(&self.listed, size, whole)
    }
}

impl<'k> Kept<'k> {
    pub(super) fn new(jobs: &'k Jobs<'k>, ledger: Ledger<'k>, progress: Progress<'k>) -> Kept<'k> {
        Kept { jobs, ledger, progress, done: Mutex::new(0) }
    }

    /// A small file that is here already.
    pub(super) fn file(&self, listed: &ListedFile, content: &[u8]) -> Result<(), Failure> {
        let mut sum = Crc32c::of(&[]);
        let source = Arc::new(Source::new(Area::Data, listed.path.clone()));
        for (index, piece) in content.chunks(CHUNK_BYTES_DEFAULT).enumerate() {
            let job = Job::new(Arc::clone(&source), index as u64 * PIECE_BYTES, piece.to_vec());
            sum = sum.combine(job.checksum, piece.len() as u64);
            self.jobs.send(job)?;
        }
        self.ledger.add(listed, content.len() as u64, sum)?;
        self.step(content.len() as u64)
    }

    /// So many more bytes are done.
    fn step(&self, bytes: u64) -> Result<(), Failure> {
        // Under the lock: who hears of it counts on numbers that grow.
        let mut done = self.done.lock().map_err(|_| broken_off())?;
        *done += bytes;
        (self.progress)(Step::Done(*done));
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot set up its case fails")]
mod tests {
    use super::*;
    use pgshrink_backup::ServerTime;
    use std::sync::mpsc::sync_channel;

    /// What comes of a file of that size, of which these pieces were read, the last first: its chunks, and its lines in the
    /// manifest.
    fn read(path: &str, size: u64, pieces: Vec<Option<Vec<u8>>>) -> (Vec<(u64, Vec<u8>)>, String) {
        let (jobs, chunks) = sync_channel(100);
        let mut manifest = Vec::new();
        let listed = ListedFile { path: path.parse().unwrap(), size, modified: ServerTime::MIN };
        let ledger = Ledger::new(None, &mut manifest);
        let jobs = Jobs::Queue(jobs);
        let kept = Kept::new(&jobs, ledger, &|_| ());
        let mut opened = Vec::new();
        for mut run in OpenFile::new(listed).unwrap().runs(2) {
            while !run.is_over() {
                opened.push(run.next());
            }
        }
        assert_eq!(opened.len(), pieces.len());
        for (piece, raw) in opened.into_iter().zip(pieces).rev() {
            piece.complete(raw, &kept).unwrap();
        }
        let (lsn, timeline) = (pgshrink_backup::Lsn(1), pgshrink_backup::Timeline::FIRST);
        kept.ledger.end(pgshrink_backup::manifest::WalRange { timeline, start: lsn, end: lsn }).unwrap();
        drop(jobs);
        let mut chunks: Vec<_> = chunks.into_iter().map(|job| (job.offset, job.raw)).collect();
        chunks.sort();
        let text = String::from_utf8(manifest).unwrap();
        (chunks, text.lines().filter(|line| line.contains("Path")).collect())
    }

    const PIECE: usize = CHUNK_BYTES_DEFAULT;

    #[track_caller]
    fn listed(manifest: &str, content: &[u8]) {
        let sum = pgshrink_backup::Checksum::from(Crc32c::of(content));
        let expected = [format!("\"Size\": {},", content.len()), format!("\"Checksum\": \"{sum}\"")];
        assert!(expected.iter().all(|part| manifest.contains(part)), "{manifest}");
    }

    #[test]
    fn pieces_in_any_order_make_the_file() {
        let content: Vec<u8> = (0..2 * PIECE + 100).map(|at| (at % 251) as u8).collect();
        let pieces = content.chunks(PIECE).map(|piece| Some(piece.to_vec())).collect();
        let (chunks, manifest) = read("base/5/1", content.len() as u64, pieces);
        assert_eq!(chunks.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 524_288, 1_048_576]);
        assert_eq!(chunks.into_iter().flat_map(|(_, raw)| raw).collect::<Vec<_>>(), content);
        listed(&manifest, &content);
    }

    #[test]
    fn what_is_cut_off_is_filled_with_zeros() {
        let size = 3 * PIECE as u64;
        let grown = read("base/5/1", 10, vec![Some(vec![3; PIECE])]);
        assert_eq!(grown.0, [(0, vec![3; 10])]);
        let cut = vec![Some(vec![7; PIECE]), Some(vec![8; 10]), Some(Vec::new())];
        let went = vec![Some(vec![7; PIECE]), Some(vec![8; 10]), None];
        for pieces in [cut, went] {
            let (chunks, manifest) = read("base/5/1", size, pieces);
            let found: Vec<u8> = chunks.into_iter().flat_map(|(_, raw)| raw).collect();
            let expected = [vec![7; PIECE], vec![8; 10], vec![0; 2 * PIECE - 10]].concat();
            assert_eq!(found, expected);
            listed(&manifest, &expected);
        }
    }

    #[test]
    fn a_file_that_vanished_before_it_was_read_is_left_out() {
        for (size, pieces) in [(100, vec![None]), (PIECE as u64 + 1, vec![None, None])] {
            assert_eq!(read("base/5/1", size, pieces), (Vec::new(), String::new()));
        }
    }

    #[test]
    fn a_small_file_that_is_no_relation_is_as_it_was_read() {
        for found in [b"shared_buffers = 1".to_vec(), vec![1; 50], Vec::new()] {
            let (chunks, manifest) = read("postgresql.auto.conf", 20, vec![Some(found.clone())]);
            assert_eq!(chunks.into_iter().flat_map(|(_, raw)| raw).collect::<Vec<_>>(), found);
            listed(&manifest, &found);
        }
        let (chunks, manifest) = read("base/5/1", 20, vec![Some(vec![1; 18])]);
        assert_eq!(chunks[0].1.len(), 20, "a relation's file has the size that it had");
        listed(&manifest, &chunks[0].1);
    }
}
