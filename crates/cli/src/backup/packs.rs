//! Reads the packs of a backup on several threads, and proves every chunk.
//!
//! ```text
//!   footers of packs --> ranges of chunks that lie side by side, in one queue --> readers: read, prove, decode --> Take
//! ```
//! Ranges and not packs are handed out, so that all readers end at about the same time. A reader looks into another pack only
//! when no range waits: the ranges in memory are those of as many packs as there are readers.

use super::Failure;
use super::expected::Expected;
use super::failure::{broken_off, first_cause};
use super::transfer::joined;
use super::whole::Whole;
use pgshrink_backup::checksum::Crc32c;
use pgshrink_backup::chunk::{ChunkDecoder, Codec};
use pgshrink_backup::files::content;
use pgshrink_backup::pack::{Blake3, Chunk, Footer, PackedFile};
use pgshrink_repository::ObjectName;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// Bytes of payloads that are read at a time.
pub(super) const READ_BYTES_MAX: usize = 4 << 20;

/// Who has chunks already. They are not read.
pub(super) type Has<'h> = &'h (dyn Fn(&PackedFile, &Chunk) -> Result<bool, Failure> + Sync);

/// Who gets chunks.
pub(super) type Take<'t> = &'t (dyn Fn(&PackedFile, &Chunk, &[u8]) -> Result<(), Failure> + Sync);

/// Reads all packs, and hands on every chunk after it was proved.
pub(super) fn read_packs(
    whole: &Whole<'_>,
    expected: &Expected,
    threads: usize,
    (has, take): (Has<'_>, Take<'_>),
) -> Result<(), Failure> {
    let work = Work::new(whole.record.packs.len());
    let read = || {
        let (decoder, raw) = (ChunkDecoder::new(), Vec::new());
        let mut reader = PackReader { whole, expected, has, take, decoder, raw };
        // Also if it panics: nobody waits for it.
        let _ends = Ends(&work);
        while let Some(task) = work.next()? {
            match task {
                Task::Pack(index) => work.add(reader.ranges(index)?)?,
                Task::Read(range) => reader.read(&range)?,
            }
        }
        Ok(())
    };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(joined).collect()
    });
    first_cause(results).map(|_| ())
}

/// Chunks that one read gives.
struct ChunkRange {
    pack: Arc<(ObjectName, Footer)>,
    /// Of the footer's list.
    chunks: Range<usize>,
}

enum Task {
    /// Find out what is in the pack at this index.
    Pack(usize),
    Read(ChunkRange),
}

/// What is to be done.
struct Work {
    state: Mutex<State>,
    changed: Condvar,
    packs: usize,
}

#[derive(Default)]
struct State {
    /// Packs that were given to a reader.
    begun: usize,
    /// Readers that look into a pack, and will add ranges.
    looking: usize,
    ranges: VecDeque<ChunkRange>,
    /// A reader has ended before the work was done, or after.
    has_ended: bool,
}

impl Work {
    fn new(packs: usize) -> Work {
        Work { state: Mutex::default(), changed: Condvar::new(), packs }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Failure> {
        self.state.lock().map_err(|_| broken_off())
    }

    /// What a reader does next; `None` when there is nothing more, or another reader has failed.
    fn next(&self) -> Result<Option<Task>, Failure> {
        let mut state = self.lock()?;
        loop {
            if state.has_ended {
                return Ok(None);
            }
            if let Some(range) = state.ranges.pop_front() {
                return Ok(Some(Task::Read(range)));
            }
            if state.begun < self.packs {
                (state.begun, state.looking) = (state.begun + 1, state.looking + 1);
                return Ok(Some(Task::Pack(state.begun - 1)));
            }
            if state.looking == 0 {
                return Ok(None);
            }
            state = self.changed.wait(state).map_err(|_| broken_off())?;
        }
    }

    /// What a pack holds that is to be read.
    fn add(&self, ranges: Vec<ChunkRange>) -> Result<(), Failure> {
        let mut state = self.lock()?;
        state.looking -= 1;
        state.ranges.extend(ranges);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }
}

/// Wakes those who wait when a reader ends. If it is at the end of the work, so are they; otherwise it has failed.
struct Ends<'w>(&'w Work);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.has_ended = true;
        }
        self.0.changed.notify_all();
    }
}

struct PackReader<'w> {
    whole: &'w Whole<'w>,
    expected: &'w Expected,
    has: Has<'w>,
    take: Take<'w>,
    decoder: ChunkDecoder,
    raw: Vec<u8>,
}

impl PackReader<'_> {
    /// The chunks of a pack that nobody has yet, as many together as one read takes and lie side by side.
    fn ranges(&self, index: usize) -> Result<Vec<ChunkRange>, Failure> {
        let pack = Arc::new(self.whole.footer(index)?);
        let footer = &pack.1;
        let unused = &self.whole.record.packs[index].unused;
        let (mut ranges, mut open) = (Vec::new(), 0..0);
        let mut bytes = 0;
        for (place, chunk) in footer.chunks.iter().enumerate() {
            let file = &footer.files[chunk.file];
            let is_wanted = unused.binary_search(&(place as u32)).is_err() && {
                self.expected.admit(file, chunk)?;
                let has = (self.has)(file, chunk)?;
                if has {
                    self.expected.take(file, chunk)?;
                }
                !has
            };
            let more = chunk.stored_bytes as usize;
            if !open.is_empty() && (!is_wanted || bytes + more > READ_BYTES_MAX) {
                ranges.push(ChunkRange { pack: Arc::clone(&pack), chunks: open });
                open = 0..0;
            }
            if is_wanted {
                let begin = if open.is_empty() { place } else { open.start };
                bytes = if open.is_empty() { more } else { bytes + more };
                open = begin..place + 1;
            }
        }
        if !open.is_empty() {
            ranges.push(ChunkRange { pack, chunks: open });
        }
        Ok(ranges)
    }

    fn read(&mut self, range: &ChunkRange) -> Result<(), Failure> {
        let (object, footer) = &*range.pack;
        let chunks = &footer.chunks[range.chunks.clone()];
        let Some(first) = chunks.first() else { return Ok(()) };
        // Chunks of a pack lie side by side in the order of the footer.
        let bytes = chunks.iter().map(|chunk| chunk.stored_bytes as usize).sum();
        let payloads = self.whole.repository.read(object, first.at.into(), bytes)?;
        let mut payloads = &payloads[..];
        for chunk in chunks {
            let (payload, behind) = payloads.split_at(chunk.stored_bytes as usize);
            self.chunk(object, footer, chunk, payload)?;
            payloads = behind;
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        object: &ObjectName,
        footer: &Footer,
        chunk: &Chunk,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let file = &footer.files[chunk.file];
        let damaged = |what: &dyn std::fmt::Display| {
            let begin = chunk.facts.offset;
            let end = begin + u64::from(chunk.facts.raw_bytes);
            let reason = format!("at byte {}, bytes {begin} to {end} of {}: {what}", chunk.at, file.path);
            Failure::damage_at(object, (chunk.at.into(), chunk.stored_bytes.into()), reason)
        };
        if !chunk.is_payload(payload) {
            return Err(damaged(&"the chunk is damaged: its CRC-32C differs from the footer's"));
        }
        let content = content(file.area, &file.path, chunk.facts.offset);
        self.raw.clear();
        let codec = Codec::from_byte(chunk.facts.codec).map_err(|error| damaged(&error))?;
        self.decoder
            .decode(codec, payload, content, chunk.facts.raw_bytes as usize, &mut self.raw)
            .map_err(|error| damaged(&error))?;
        let is_same = Crc32c::of(&self.raw).0 == chunk.facts.raw_checksum;
        if !is_same || Blake3::of(&self.raw) != chunk.facts.blake3 {
            return Err(damaged(&"the decoded chunk differs from what was backed up"));
        }
        self.expected.admit(file, chunk)?;
        // In this order: a file is whole when its bytes are written.
        (self.take)(file, chunk, &self.raw)?;
        self.expected.take(file, chunk)
    }
}
