//! A disk that fails in every way the engine promises to survive, from one seed.
//!
//! Each file has bytes that programs see (the page cache) and bytes that are on the medium. What is written
//! reaches the medium at an fdatasync, or, when the power fails before, in any part:
//!
//! * each 512-byte sector is any of the versions it had since it was last synced, or
//! * each 4 KB disk block is as it was before or after, or
//! * disk blocks that were being written are garbage;
//! * the file has any of the lengths it had; names made, changed or removed since the last `sync_dir` are as
//!   they were from some moment on.
//!
//! An fdatasync covers what was written before it was called, and nothing that others write while it runs.
//! One that fails has written some sectors and not others, and all of them are called clean: the cache goes
//! on serving what the medium does not have. Reads, writes and fdatasyncs fail, and space runs out, as often
//! as [`FaultRates`] says.
//!
//! File locks belong to handles, as flock's do: they end with the handle, or with the power.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::device::{Device, DeviceError, Folder, LockMode, Need};

const SECTOR_BYTES: usize = 512;
const DISK_BLOCK_SECTORS: u64 = 8;
const FAILED: DeviceError = DeviceError::Io(5);

/// How often operations fail, in a million.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// Reads.
    pub read: u32,
    /// Writes; a part of the bytes is written.
    pub write: u32,
    /// Syncs of files and folders.
    pub sync: u32,
    /// Writes that find no space.
    pub space: u32,
}

#[derive(Default, Clone)]
struct FileState {
    cache: Vec<u8>,
    medium: Vec<u8>,
    /// Versions of each sector since it was synced, oldest first, each with the number of its write.
    pending: BTreeMap<u64, Vec<(u64, [u8; SECTOR_BYTES])>>,
    /// The lengths that it had since it was synced; the first is the medium's.
    lengths: Vec<(u64, usize)>,
    /// Writes so far.
    writes: u64,
    /// Who holds its lock: handles, and whether for themselves alone.
    locks: Vec<(u64, LockMode)>,
    /// Disk blocks that the last loss of power left as garbage.
    garbled: Vec<u64>,
}

type Names = BTreeMap<String, usize>;

/// A disk with one folder. Clones share it.
#[derive(Clone)]
pub struct Disk {
    state: Rc<RefCell<DiskState>>,
    step: Rc<dyn Fn()>,
    /// Called before what changes a file, and between two parts of a write.
    begin: Option<Rc<dyn Fn()>>,
}

struct DiskState {
    files: Vec<FileState>,
    /// What the folder was after each change since it was synced; the first is on the medium.
    folders: Vec<Names>,
    rates: FaultRates,
    random: u64,
    reserve: u64,
    reserve_refused: bool,
    written_bytes: u64,
    handles: u64,
    is_ignoring: bool,
    locks_ignored: bool,
}

/// A file of a [`Disk`].
#[derive(Clone)]
pub struct DiskFile {
    disk: Disk,
    index: usize,
    is_quiet: Cell<bool>,
    handle: Rc<Handle>,
}

/// What a file is open by. Its lock ends with it, as a killed process's does.
struct Handle {
    disk: Rc<RefCell<DiskState>>,
    index: usize,
    number: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(mut state) = self.disk.try_borrow_mut() {
            state.files[self.index].locks.retain(|(holder, _)| *holder != self.number);
        }
    }
}

impl Disk {
    /// An empty disk. `step` is called after every operation and at every [`Device::pause`]: a scheduler
    /// switches there.
    pub fn new(seed: u64, step: impl Fn() + 'static) -> Disk {
        let state = DiskState {
            files: Vec::new(),
            folders: vec![Names::new()],
            rates: FaultRates::default(),
            random: seed,
            reserve: 0,
            reserve_refused: false,
            written_bytes: 0,
            handles: 0,
            is_ignoring: false,
            locks_ignored: false,
        };
        Disk { state: Rc::new(RefCell::new(state)), step: Rc::new(step), begin: None }
    }

    /// Lets `begin` be called before an operation changes a file, too, and lets writes happen in two parts:
    /// what a scheduler needs that switches everywhere.
    pub fn with_begin(self, begin: impl Fn() + 'static) -> Disk {
        Disk { begin: Some(Rc::new(begin)), ..self }
    }

    /// While it is on, nothing changes a file: for the destructors of a process that is killed, which would
    /// not run.
    pub fn set_ignoring(&self, is_ignoring: bool) {
        self.state.borrow_mut().is_ignoring = is_ignoring;
    }

    /// Whether locks of files are given to everybody: for tests that open a container anew beside an old
    /// opening.
    pub fn set_locks_ignored(&self, ignored: bool) {
        self.state.borrow_mut().locks_ignored = ignored;
    }

    /// Lets exclusive locks go: what a process does with its descriptors that has left an opening by a jump.
    pub fn drop_exclusive_locks(&self) {
        for file in &mut self.state.borrow_mut().files {
            file.locks.retain(|(_, mode)| *mode == LockMode::Shared);
        }
    }

    /// First bytes of the 4 KB blocks that the last loss of power left as garbage.
    pub fn garbled(&self, name: &str) -> Vec<u64> {
        let state = self.state.borrow();
        let index = state.folders.last().and_then(|names| names.get(name));
        let disk_blocks = index.map(|index| state.files[*index].garbled.as_slice()).unwrap_or_default();
        disk_blocks.iter().map(|disk_block| disk_block * DISK_BLOCK_SECTORS * SECTOR_BYTES as u64).collect()
    }

    /// From now on, operations fail this often.
    pub fn set_faults(&self, rates: FaultRates) {
        self.state.borrow_mut().rates = rates;
    }

    /// Whether [`Device::release_reserve`] gives nothing. Otherwise writes find as much space as was asked
    /// for.
    pub fn set_reserve_refused(&self, refused: bool) {
        self.state.borrow_mut().reserve_refused = refused;
    }

    /// Bytes written by `pwrite` so far.
    pub fn written_bytes(&self) -> u64 {
        self.state.borrow().written_bytes
    }

    /// The power fails: what programs see is what the medium got.
    pub fn lose_power(&self) {
        let state = &mut *self.state.borrow_mut();
        let style = below(&mut state.random, 7).min(5);
        for file in &mut state.files {
            file.lose_power(style, &mut state.random);
        }
        let keep = below(&mut state.random, state.folders.len());
        let kept = state.folders.swap_remove(keep);
        state.folders = vec![kept];
    }

    /// The bytes of a file as programs see them.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.borrow();
        let index = state.folders.last()?.get(name)?;
        Some(state.files[*index].cache.clone())
    }

    /// Changes a file behind everybody's back, on the medium and in the cache.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let state = &mut *self.state.borrow_mut();
        let Some(index) = state.folders.last().and_then(|names| names.get(name)) else { return };
        let file = &mut state.files[*index];
        change(&mut file.cache);
        file.medium = file.cache.clone();
        file.pending.clear();
        file.lengths.clear();
    }

    fn change_names(
        &self,
        change: impl FnOnce(&mut Names) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let state = &mut *self.state.borrow_mut();
        let mut names = state.folders.last().cloned().unwrap_or_default();
        change(&mut names)?;
        state.folders.push(names);
        Ok(())
    }

    fn file(&self, index: usize) -> DiskFile {
        let number = {
            let state = &mut *self.state.borrow_mut();
            state.handles += 1;
            state.handles
        };
        let handle = Rc::new(Handle { disk: self.state.clone(), index, number });
        DiskFile { disk: self.clone(), index, is_quiet: Cell::new(false), handle }
    }
}

impl Folder for Disk {
    type File = DiskFile;

    fn create(&self, name: &str) -> Result<DiskFile, DeviceError> {
        let index = self.state.borrow().files.len();
        self.change_names(|names| match names.insert(name.to_owned(), index) {
            None => Ok(()),
            Some(_) => Err(DeviceError::Exists),
        })?;
        self.state.borrow_mut().files.push(FileState::default());
        (self.step)();
        Ok(self.file(index))
    }

    fn open(&self, name: &str) -> Result<DiskFile, DeviceError> {
        let index = self.state.borrow().folders.last().and_then(|names| names.get(name)).copied();
        index.map(|index| self.file(index)).ok_or(DeviceError::NotFound)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.change_names(|names| {
            let index = names.remove(from).ok_or(DeviceError::NotFound)?;
            names.insert(to.to_owned(), index);
            Ok(())
        })?;
        (self.step)();
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<(), DeviceError> {
        self.change_names(|names| names.remove(name).map(drop).ok_or(DeviceError::NotFound))?;
        (self.step)();
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        {
            let state = &mut *self.state.borrow_mut();
            if state.fails(state.rates.sync) {
                return Err(FAILED);
            }
            let last = state.folders.pop().unwrap_or_default();
            state.folders = vec![last];
        }
        (self.step)();
        Ok(())
    }
}

impl DiskFile {
    /// Switches steps and faults off for this handle: for checks between crashes.
    pub fn quiet(self) -> DiskFile {
        self.is_quiet.set(true);
        self
    }

    /// The plain file in the same folder.
    fn base(&self) -> Result<DiskFile, DeviceError> {
        let base = self.disk.open(crate::engine::segment::BASE_NAME)?;
        base.is_quiet.set(self.is_quiet.get());
        Ok(base)
    }

    fn ignores(&self) -> bool {
        self.disk.state.borrow().is_ignoring
    }

    /// An operation is about to change the file.
    fn begin(&self) {
        if !self.is_quiet.get()
            && let Some(begin) = &self.disk.begin
        {
            begin();
        }
    }

    /// Where a write is split, if others may come in between.
    fn split(&self, length: usize) -> usize {
        if self.is_quiet.get() || self.disk.begin.is_none() {
            return length;
        }
        let state = &mut *self.disk.state.borrow_mut();
        if below(&mut state.random, 4) > 0 { length } else { below(&mut state.random, length + 1) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut FileState, &mut Chance<'_>) -> T) -> T {
        let done = {
            let state = &mut *self.disk.state.borrow_mut();
            let rates = if self.is_quiet.get() { FaultRates::default() } else { state.rates };
            let mut chance = Chance {
                random: &mut state.random,
                rates,
                reserve: &mut state.reserve,
                written_bytes: &mut state.written_bytes,
            };
            work(&mut state.files[self.index], &mut chance)
        };
        self.pause();
        done
    }
}

struct Chance<'a> {
    random: &'a mut u64,
    rates: FaultRates,
    reserve: &'a mut u64,
    written_bytes: &'a mut u64,
}

impl Chance<'_> {
    fn fails(&mut self, rate: u32) -> bool {
        rate > 0 && below(self.random, 1_000_000) < rate as usize
    }
}

impl DiskState {
    fn fails(&mut self, rate: u32) -> bool {
        rate > 0 && below(&mut self.random, 1_000_000) < rate as usize
    }
}

impl Device for DiskFile {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        self.with(|file, chance| {
            if chance.fails(chance.rates.read) {
                return Err(FAILED);
            }
            let there = file.cache.get(offset as usize..).unwrap_or_default();
            let got = there.len().min(buffer.len());
            buffer[..got].copy_from_slice(&there[..got]);
            Ok(got)
        })
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        if self.ignores() {
            return Err(FAILED);
        }
        self.begin();
        let first = self.split(bytes.len());
        if first < bytes.len() {
            let state = &mut *self.disk.state.borrow_mut();
            state.files[self.index].write(&bytes[..first], offset as usize);
            state.written_bytes += first as u64;
        }
        let (bytes, offset) = if first < bytes.len() {
            self.begin();
            (&bytes[first..], offset + first as u64)
        } else {
            (bytes, offset)
        };
        self.with(|file, chance| {
            let no_space = *chance.reserve == 0 && chance.fails(chance.rates.space);
            let broken = chance.fails(chance.rates.write);
            let written = if no_space || broken { below(chance.random, bytes.len()) } else { bytes.len() };
            *chance.written_bytes += written as u64;
            file.write(&bytes[..written], offset as usize);
            *chance.reserve = chance.reserve.saturating_sub(written as u64);
            match (no_space, broken) {
                (true, _) => Err(DeviceError::NoSpace),
                (_, true) => Err(FAILED),
                _ => Ok(()),
            }
        })
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        if self.ignores() {
            return Err(FAILED);
        }
        self.begin();
        let before = self.disk.state.borrow().files[self.index].writes;
        self.begin();
        self.with(|file, chance| {
            let failed = chance.fails(chance.rates.sync);
            let share = if failed { below(chance.random, 101) } else { 100 };
            file.sync(before, share, chance.random);
            if failed { Err(FAILED) } else { Ok(()) }
        })
    }

    /// What has begun may end at any time; if it fails, only the caller learns of it.
    fn begin_writeback(&self) -> Result<(), DeviceError> {
        if self.ignores() {
            return Err(FAILED);
        }
        self.begin();
        self.with(|file, chance| {
            if !chance.fails(chance.rates.sync) {
                return Ok(());
            }
            let share = below(chance.random, 101);
            file.sync(file.writes, share, chance.random);
            Err(FAILED)
        })
    }

    fn size(&self) -> Result<u64, DeviceError> {
        Ok(self.disk.state.borrow().files[self.index].cache.len() as u64)
    }

    fn truncate(&self, size: u64) -> Result<(), DeviceError> {
        if self.ignores() {
            return Err(FAILED);
        }
        self.begin();
        self.with(|file, _| {
            file.change_length(size as usize);
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        if self.ignores() {
            return Err(FAILED);
        }
        self.begin();
        self.with(|file, _| {
            let end = file.cache.len().min((offset + length) as usize);
            if (offset as usize) < end {
                file.write(&vec![0; end - offset as usize], offset as usize);
            }
            Ok(())
        })
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        Folder::sync_dir(&self.disk)
    }

    fn try_lock(&self, mode: LockMode) -> Result<bool, DeviceError> {
        let state = &mut *self.disk.state.borrow_mut();
        let (locks, me) = (&mut state.files[self.index].locks, self.handle.number);
        let is_free = |(holder, held): &(u64, LockMode)| {
            *holder == me || (mode, *held) == (LockMode::Shared, LockMode::Shared)
        };
        let is_free = state.locks_ignored || locks.iter().all(is_free);
        if is_free {
            locks.retain(|(holder, _)| *holder != me);
            locks.push((me, mode));
        }
        Ok(is_free)
    }

    fn release_reserve(&self, bytes: u64, _: Need) -> bool {
        let state = &mut *self.disk.state.borrow_mut();
        state.reserve += if state.reserve_refused { 0 } else { bytes };
        !state.reserve_refused
    }

    fn base_pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        self.base()?.pread(buffer, offset)
    }

    fn base_pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.base()?.pwrite(bytes, offset)
    }

    fn base_fdatasync(&self) -> Result<(), DeviceError> {
        self.base()?.fdatasync()
    }

    fn base_size(&self) -> Result<u64, DeviceError> {
        self.base()?.size()
    }

    fn base_truncate(&self, size: u64) -> Result<(), DeviceError> {
        self.base()?.truncate(size)
    }

    fn pause(&self) {
        if !self.is_quiet.get() {
            (self.disk.step)();
        }
    }
}

impl FileState {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        self.writes += 1;
        let end = offset + bytes.len();
        if end > self.cache.len() {
            self.change_length(end);
        }
        self.cache[offset..end].copy_from_slice(bytes);
        self.mark(offset, end);
    }

    fn mark(&mut self, from: usize, to: usize) {
        for sector in from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES) {
            let version = sector_of(&self.cache, sector as u64);
            self.pending.entry(sector as u64).or_default().push((self.writes, version));
        }
    }

    fn change_length(&mut self, length: usize) {
        self.writes += 1;
        if self.lengths.is_empty() {
            self.lengths.push((0, self.medium.len()));
        }
        self.lengths.push((self.writes, length));
        let before = self.cache.len();
        self.cache.resize(length, 0);
        if length < before {
            self.mark(length, before);
        }
    }

    /// Brings `share` percent of what is pending to the medium, up to the write of number `last`, and calls
    /// all of that clean.
    fn sync(&mut self, last: u64, share: usize, random: &mut u64) {
        let covered = self.lengths.partition_point(|(write, _)| *write <= last);
        let length = self.lengths[..covered].last().map(|(_, length)| *length);
        if let Some(length) = length.filter(|_| below(random, 100) < share) {
            self.medium.resize(length, 0);
        }
        self.lengths.drain(..covered);
        if !self.lengths.is_empty() {
            self.lengths.insert(0, (0, self.medium.len()));
        }
        for (sector, mut versions) in std::mem::take(&mut self.pending) {
            let later = versions.split_off(versions.partition_point(|(write, _)| *write <= last));
            if below(random, 100) < share
                && let Some((_, newest)) = versions.last()
            {
                self.put(sector, newest);
            }
            if !later.is_empty() {
                self.pending.insert(sector, later);
            }
        }
    }

    fn put(&mut self, sector: u64, bytes: &[u8; SECTOR_BYTES]) {
        let start = sector as usize * SECTOR_BYTES;
        let end = self.medium.len().min(start + SECTOR_BYTES);
        if start < end {
            self.medium[start..end].copy_from_slice(&bytes[..end - start]);
        }
    }

    fn lose_power(&mut self, style: usize, random: &mut u64) {
        let lengths = std::mem::take(&mut self.lengths);
        if !lengths.is_empty() {
            let (_, length) =
                lengths[if style == 1 { lengths.len() - 1 } else { below(random, lengths.len()) }];
            self.medium.resize(length, 0);
        }
        self.locks.clear();
        self.garbled.clear();
        let (mut disk_block, mut draw) = (u64::MAX, 0);
        for (sector, versions) in std::mem::take(&mut self.pending) {
            if disk_block != sector / DISK_BLOCK_SECTORS {
                (disk_block, draw) = (sector / DISK_BLOCK_SECTORS, below(random, 3));
            }
            match style {
                0 => {}
                1 => self.put(sector, &versions[versions.len() - 1].1),
                2 | 3 => {
                    let version = below(random, versions.len() + 1);
                    if version > 0 {
                        self.put(sector, &versions[version - 1].1);
                    }
                }
                4 if draw > 0 => self.put(sector, &versions[versions.len() - 1].1),
                5 if draw == 1 => self.put(sector, &versions[versions.len() - 1].1),
                5 if draw == 2 => self.garble(disk_block, random),
                _ => {}
            }
        }
        self.cache = self.medium.clone();
    }

    fn garble(&mut self, disk_block: u64, random: &mut u64) {
        if self.garbled.last() != Some(&disk_block) {
            self.garbled.push(disk_block);
        }
        for sector in disk_block * DISK_BLOCK_SECTORS..(disk_block + 1) * DISK_BLOCK_SECTORS {
            let mut bytes = [0; SECTOR_BYTES];
            bytes.iter_mut().for_each(|byte| *byte = below(random, 256) as u8);
            self.put(sector, &bytes);
        }
    }
}

fn sector_of(bytes: &[u8], sector: u64) -> [u8; SECTOR_BYTES] {
    let mut out = [0; SECTOR_BYTES];
    let start = (sector as usize * SECTOR_BYTES).min(bytes.len());
    let there = &bytes[start..bytes.len().min(start + SECTOR_BYTES)];
    out[..there.len()].copy_from_slice(there);
    out
}

/// splitmix64 (Steele, Lea, Flood 2014), scaled.
fn below(random: &mut u64, bound: usize) -> usize {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(mixed ^ (mixed >> 31)) * bound as u128) >> 64) as usize
}
