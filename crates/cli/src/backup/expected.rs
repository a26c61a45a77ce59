//! What a restore has to bring, and what it has brought so far.
//!
//! The manifest says it of all files but WAL, and the record says it of WAL. A chunk is taken once, and a file is whole when all
//! of its bytes came and their CRC-32C, combined from those of its chunks, is the manifest's.

use super::Failure;
use super::places::{check_place, tablespace};
use super::whole::Whole;
use pgshrink_backup::BackupPath;
use pgshrink_backup::checksum::{Checksum, ChecksumAlgorithm, Crc32c};
use pgshrink_backup::manifest::{FileEntry, Item};
use pgshrink_backup::pack::{Area, Chunk, PackedFile};
use pgshrink_codec::counted;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// Memory for each file is what a backup or restore of many files takes: 56 bytes, and its path. A million files take 90 MB.
const _: () = assert!(size_of::<(BackupPath, Mutex<State>)>() == 56);

/// Files of a backup, at most.
const FILES_MAX: usize = 20_000_000;

/// All files of a backup.
pub(super) struct Expected {
    chunk_bytes: u64,
    /// Of the files so far, and of all that the record has.
    bytes: u64,
    bytes_max: u64,
    /// By their paths.
    files: Vec<(BackupPath, Mutex<State>)>,
    /// Those from outside of the data directory.
    configuration: HashMap<BackupPath, Mutex<State>>,
}

struct State {
    size: u64,
    /// `None`: the manifest has none that can be combined; the file is read again.
    checksum: Option<u32>,
    came: Came,
}

/// What came of a file. Only files that are on their way need memory for their chunks: packs have the files of a backup one
/// after the other.
enum Came {
    Nothing,
    Part(Box<Part>),
    Whole,
}

struct Part {
    /// CRC-32C of each chunk, where it came.
    chunks: Vec<Option<u32>>,
    missing: usize,
}

impl Expected {
    /// From the manifest and the record.
    pub(super) fn of(whole: &Whole<'_>) -> Result<Expected, Failure> {
        let record = &whole.record;
        let mut expected = Expected {
            chunk_bytes: record.chunk_bytes.into(),
            bytes: 0,
            bytes_max: record.raw_bytes,
            files: Vec::new(),
            configuration: HashMap::new(),
        };
        let finished = whole.manifest(|item| match item {
            Item::File(entry) => expected.add_entry(entry),
            Item::WalRange(_) => Ok(()),
        })?;
        if finished.system.is_some_and(|system| system != record.system_identifier) {
            let what = "the manifest belongs to another cluster than backup.json";
            return Err(Failure::damage(&whole.name, what));
        }
        record.wal.iter().try_for_each(|file| expected.add(file.path.clone(), file.bytes, None))?;
        expected.sort()?;
        let configuration = record.configuration.iter().flat_map(|configuration| &configuration.files);
        for file in configuration {
            // The record proves them as a whole: they have a SHA-256.
            let path = file.place()?;
            let state = State::new(file.bytes, None, expected.chunk_bytes);
            let state = state.ok_or_else(|| Failure::damage(&path, "its size is not a valid file size"))?;
            expected.configuration.insert(path, Mutex::new(state));
        }
        expected.check_folders(&record.directories)?;
        Ok(expected)
    }

    /// Refuses a file that is a directory, too.
    fn check_folders(&self, listed: &[BackupPath]) -> Result<(), Failure> {
        let mut folders: HashSet<&[u8]> = HashSet::new();
        for path in self.paths().chain(listed) {
            let mut rest = path.as_bytes();
            while let Some(end) = rest.iter().rposition(|byte| *byte == b'/') {
                rest = &rest[..end];
                // Those above it are known, too.
                if !folders.insert(rest) {
                    break;
                }
            }
        }
        folders.extend(listed.iter().map(BackupPath::as_bytes));
        match self.paths().find(|path| folders.contains(path.as_bytes())) {
            None => Ok(()),
            Some(path) => {
                Err(Failure::damage(path, "the backup has it as a file and as a directory with files in it"))
            }
        }
    }

    fn add_entry(&mut self, entry: FileEntry) -> Result<(), Failure> {
        let checksum = match entry.checksum.algorithm() {
            ChecksumAlgorithm::Crc32c => Some(crc32c(&entry.checksum)),
            _ => None,
        };
        self.add(entry.path, entry.size, checksum)
    }

    fn add(&mut self, path: BackupPath, size: u64, checksum: Option<u32>) -> Result<(), Failure> {
        if self.files.len() == FILES_MAX {
            return Err(Failure::damage("backup_manifest", format!("it lists more than {FILES_MAX} files")));
        }
        check_place(&path)?;
        let state = State::new(size, checksum, self.chunk_bytes);
        let state = state.ok_or_else(|| {
            Failure::damage(&path, format!("it has {size} bytes, which is not a valid file size"))
        })?;
        // The record knows the sum: a manifest cannot ask for more memory than that.
        let bytes = self.bytes.checked_add(size).filter(|sum| *sum <= self.bytes_max);
        let Some(bytes) = bytes else {
            self.files.push((path.clone(), Mutex::new(state)));
            // If a file is there twice, that is why.
            self.sort()?;
            return Err(Failure::damage(&path, "the backup has more bytes than backup.json says"));
        };
        self.bytes = bytes;
        self.files.push((path, Mutex::new(state)));
        Ok(())
    }

    /// Sorts the files, and refuses one that is there twice.
    fn sort(&mut self) -> Result<(), Failure> {
        self.files.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        match self.files.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(Failure::damage(&pair[0].0, "the backup has it twice")),
            None => Ok(()),
        }
    }

    fn paths(&self) -> impl Iterator<Item = &BackupPath> {
        self.files.iter().map(|(path, _)| path)
    }

    /// Bytes of all files, by their tablespace; `None`: the data directory.
    pub(super) fn bytes(&self) -> HashMap<Option<u32>, u64> {
        let mut bytes = HashMap::from([(None, 0)]);
        for (path, state) in &self.files {
            *bytes.entry(tablespace(path)).or_default() += state.lock().map_or(0, |state| state.size);
        }
        bytes
    }

    /// Files of no bytes, which no pack has.
    pub(super) fn empty(&self) -> impl Iterator<Item = &BackupPath> {
        let is_empty = |state: &Mutex<State>| state.lock().is_ok_and(|state| state.size == 0);
        self.files.iter().filter(move |(_, state)| is_empty(state)).map(|(path, _)| path)
    }

    /// Refuses a chunk of a file or place that the backup does not have. To be asked before anything is written.
    pub(super) fn admit(&self, file: &PackedFile, chunk: &Chunk) -> Result<(), Failure> {
        let refused = |what: String| Err(Failure::damage(&file.path, what));
        let Some(state) = self.state(file) else {
            return refused(
                "a pack contains it, but neither the manifest nor backup.json lists it".to_owned(),
            );
        };
        let state = state.lock().map_err(|_| Failure::BrokenOff)?;
        let (index, size) = (chunk.facts.offset / self.chunk_bytes, state.size);
        let bytes = (size - (index * self.chunk_bytes).min(size)).min(self.chunk_bytes);
        if !chunk.facts.offset.is_multiple_of(self.chunk_bytes)
            || bytes == 0
            || bytes != u64::from(chunk.facts.raw_bytes)
        {
            let (offset, found) = (chunk.facts.offset, chunk.facts.raw_bytes);
            return refused(format!(
                "a pack contains {} of it at {offset}; the manifest says {}",
                counted(found.into(), "byte", "bytes"),
                counted(size, "byte", "bytes")
            ));
        }
        match state.came.has(index as usize) {
            true => refused(format!("packs have its bytes at {} twice", chunk.facts.offset)),
            false => Ok(()),
        }
    }

    /// Takes note of a chunk that was admitted, and is where it belongs.
    pub(super) fn take(&self, file: &PackedFile, chunk: &Chunk) -> Result<(), Failure> {
        let refused = |what: String| Err(Failure::damage(&file.path, what));
        let Some(state) = self.state(file) else { return Ok(()) };
        let mut state = state.lock().map_err(|_| Failure::BrokenOff)?;
        let index = (chunk.facts.offset / self.chunk_bytes) as usize;
        if state.came.has(index) {
            return refused(format!("packs have its bytes at {} twice", chunk.facts.offset));
        }
        let Some(found) = state.take(index, chunk.facts.raw_checksum, self.chunk_bytes) else {
            return Ok(());
        };
        match state.checksum {
            Some(expected) if expected != found => {
                refused(format!("its CRC-32C is {found:08x}, but the manifest says {expected:08x}"))
            }
            _ => Ok(()),
        }
    }

    fn state(&self, file: &PackedFile) -> Option<&Mutex<State>> {
        match file.area {
            Area::Data => {
                let index = self.files.binary_search_by(|(path, _)| path.cmp(&file.path)).ok()?;
                self.files.get(index).map(|(_, state)| state)
            }
            Area::Configuration => self.configuration.get(&file.path),
        }
    }

    /// Refuses what is not whole.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let files = self.files.iter().map(|(path, state)| (path, state));
        for (path, state) in files.chain(&self.configuration) {
            let state = state.lock().map_err(|_| Failure::BrokenOff)?;
            let count = state.size.div_ceil(self.chunk_bytes);
            let missing = match &state.came {
                Came::Nothing => count,
                Came::Part(part) => part.missing as u64,
                Came::Whole => 0,
            };
            if missing > 0 {
                let what = format!("{missing} of {} in no pack", counted(count, "chunk is", "chunks are"));
                return Err(Failure::damage(path, what));
            }
        }
        Ok(())
    }
}

impl State {
    /// Of a file of which nothing came. None: it has more chunks than a file can have.
    fn new(size: u64, checksum: Option<u32>, chunk_bytes: u64) -> Option<State> {
        let came = if size == 0 { Came::Whole } else { Came::Nothing };
        (size.div_ceil(chunk_bytes) <= u32::MAX.into()).then_some(State { size, checksum, came })
    }

    /// Takes note of a chunk that did not come before. With the last one, the CRC-32C of the file.
    fn take(&mut self, index: usize, checksum: u32, chunk_bytes: u64) -> Option<u32> {
        if let Came::Nothing = self.came {
            let count = self.size.div_ceil(chunk_bytes) as usize;
            self.came = Came::Part(Box::new(Part { chunks: vec![None; count], missing: count }));
        }
        let Came::Part(part) = &mut self.came else { return None };
        part.chunks[index] = Some(checksum);
        part.missing -= 1;
        if part.missing > 0 {
            return None;
        }
        let (mut whole, mut rest) = (Crc32c::of(&[]), self.size);
        for checksum in part.chunks.iter().flatten() {
            let bytes = rest.min(chunk_bytes);
            whole = whole.combine(Crc32c(*checksum), bytes);
            rest -= bytes;
        }
        self.came = Came::Whole;
        Some(whole.0)
    }
}

impl Came {
    fn has(&self, index: usize) -> bool {
        match self {
            Came::Nothing => false,
            Came::Part(part) => part.chunks.get(index).is_some_and(Option::is_some),
            Came::Whole => true,
        }
    }
}

/// The number whose bytes a manifest has.
fn crc32c(checksum: &Checksum) -> u32 {
    let bytes = checksum.as_bytes();
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
