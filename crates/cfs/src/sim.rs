//! A disk that fails in every way the engine promises to survive, from one seed.
//!
//! Each file has bytes that programs see (the page cache) and bytes that are on the medium. What is written reaches the
//! medium at an fdatasync, or, when the power fails before, in any part:
//!
//! * each 512-byte sector is any of the versions it had since it was last synced, or
//! * each 4 KB sheet is as it was before or after, or
//! * sheets that were being written are garbage;
//! * the file has any of the lengths it had; names made, changed or removed since the last `sync_dir` are as they were from
//!   some moment on.
//!
//! An fdatasync that fails has written some sectors and not others, and all of them are called clean: the cache goes on serving what
//! the medium does not have. Reads, writes and fdatasyncs fail, and space runs out, as often as [`FaultRates`] says.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::device::{Device, DeviceError, Folder, Need};

const SECTOR_BYTES: usize = 512;
const SHEET_SECTORS: u64 = 8;
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
    /// Versions of each sector since it was synced, oldest first.
    pending: BTreeMap<u64, Vec<[u8; SECTOR_BYTES]>>,
    lengths: Vec<usize>,
}

type Names = BTreeMap<String, usize>;

/// A disk with one folder. Clones share it.
#[derive(Clone)]
pub struct Disk {
    state: Rc<RefCell<DiskState>>,
    step: Rc<dyn Fn()>,
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
}

/// A file of a [`Disk`].
#[derive(Clone)]
pub struct DiskFile {
    disk: Disk,
    index: usize,
    is_quiet: Cell<bool>,
}

impl Disk {
    /// An empty disk. `step` is called after every operation and at every [`Device::pause`]: a scheduler switches there.
    pub fn new(seed: u64, step: impl Fn() + 'static) -> Disk {
        let state = DiskState {
            files: Vec::new(),
            folders: vec![Names::new()],
            rates: FaultRates::default(),
            random: seed,
            reserve: 0,
            reserve_refused: false,
            written_bytes: 0,
        };
        Disk { state: Rc::new(RefCell::new(state)), step: Rc::new(step) }
    }

    /// From now on, operations fail this often.
    pub fn set_faults(&self, rates: FaultRates) {
        self.state.borrow_mut().rates = rates;
    }

    /// Whether [`Device::release_reserve`] gives nothing. Otherwise writes find as much space as was asked for.
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
        let style = below(&mut state.random, 6);
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
        DiskFile { disk: self.clone(), index, is_quiet: Cell::new(false) }
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
        let state = self.state.borrow();
        let index = state.folders.last().and_then(|names| names.get(name)).copied();
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
        self.with(|file, chance| {
            let failed = chance.fails(chance.rates.sync);
            let share = if failed { below(chance.random, 101) } else { 100 };
            file.sync(share, chance.random);
            if failed { Err(FAILED) } else { Ok(()) }
        })
    }

    fn size(&self) -> Result<u64, DeviceError> {
        Ok(self.disk.state.borrow().files[self.index].cache.len() as u64)
    }

    fn truncate(&self, size: u64) -> Result<(), DeviceError> {
        self.with(|file, _| {
            file.change_length(size as usize);
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
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

    fn release_reserve(&self, bytes: u64, _: Need) -> bool {
        let state = &mut *self.disk.state.borrow_mut();
        state.reserve += if state.reserve_refused { 0 } else { bytes };
        !state.reserve_refused
    }

    fn pause(&self) {
        if !self.is_quiet.get() {
            (self.disk.step)();
        }
    }
}

impl FileState {
    fn write(&mut self, bytes: &[u8], offset: usize) {
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
            self.pending.entry(sector as u64).or_default().push(version);
        }
    }

    fn change_length(&mut self, length: usize) {
        if self.lengths.is_empty() {
            self.lengths.push(self.medium.len());
        }
        self.lengths.push(length);
        let before = self.cache.len();
        self.cache.resize(length, 0);
        if length < before {
            self.mark(length, before);
        }
    }

    /// Brings `share` percent of what is pending to the medium, and calls all of it clean.
    fn sync(&mut self, share: usize, random: &mut u64) {
        let length = self.cache.len();
        if below(random, 100) < share {
            self.medium.resize(length, 0);
        }
        for (sector, versions) in std::mem::take(&mut self.pending) {
            if below(random, 100) < share
                && let Some(newest) = versions.last()
            {
                self.put(sector, newest);
            }
        }
        self.lengths.clear();
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
            let length = lengths[if style == 1 { lengths.len() - 1 } else { below(random, lengths.len()) }];
            self.medium.resize(length, 0);
        }
        let (mut sheet, mut draw) = (u64::MAX, 0);
        for (sector, versions) in std::mem::take(&mut self.pending) {
            if sheet != sector / SHEET_SECTORS {
                (sheet, draw) = (sector / SHEET_SECTORS, below(random, 3));
            }
            match style {
                0 => {}
                1 => self.put(sector, &versions[versions.len() - 1]),
                2 | 3 => {
                    let version = below(random, versions.len() + 1);
                    if version > 0 {
                        self.put(sector, &versions[version - 1]);
                    }
                }
                4 if draw > 0 => self.put(sector, &versions[versions.len() - 1]),
                5 if draw == 1 => self.put(sector, &versions[versions.len() - 1]),
                5 if draw == 2 => self.garble(sheet, random),
                _ => {}
            }
        }
        self.cache = self.medium.clone();
    }

    fn garble(&mut self, sheet: u64, random: &mut u64) {
        for sector in sheet * SHEET_SECTORS..(sheet + 1) * SHEET_SECTORS {
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
