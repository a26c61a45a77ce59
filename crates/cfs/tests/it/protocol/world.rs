//! What the models run in: shared memory, a file and three processes, all of them ordered by loom.
//!
//! The state before a model's threads begin is made once, outside loom; each execution starts from a copy of
//! it.
// Containers that go to other threads.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64 as Plain;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use loom::sync::atomic::{AtomicU64, Ordering};
use pgshrink_cfs::allocator::{ExtentState, Purpose};
use pgshrink_cfs::entry::Entry;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::region::Shared;
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::units::{Block, ExtentNumber, Units};
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{
    Birth, Container, Device, DeviceError, Geometry, Identity, KEY_BYTES, LockMode, Options, ProcessTable,
    Recovery, Scratch, Stored, Tuning,
};

/// An extent is one disk block, and two records fill it.
pub const EXTENT: u32 = 256;
const RECORD: Units = Units(EXTENT / 2);
const SLOT: usize = RECORD.0 as usize * 16;
const HEAD: usize = 3 * 4096;
const PAGES: u32 = 3;
/// What is kept for commits and moves, and seven more.
const EXTENTS: u32 = 41;
/// Extents of which threads contend for the words: the first three behind the head.
const EXTENTS_MET: std::ops::Range<usize> = 3..6;
/// The name of a process that is dead.
pub const DEAD: u64 = 9;

pub type Open = Container<'static, File, Process, Checked>;
/// The words where the threads of a model meet, beside entries and extents.
pub type Meeting = fn(&Shared<Checked>) -> Vec<&Checked>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// loom's word where threads meet, a plain one where they do not. A plain one until the model begins.
pub struct Checked {
    plain: Plain,
    model: Option<Mutex<Option<Arc<AtomicU64>>>>,
}

impl Checked {
    fn new(is_met: bool) -> Checked {
        Checked { plain: Plain::new(0), model: is_met.then(Mutex::default) }
    }

    fn model(&self) -> Option<Arc<AtomicU64>> {
        self.model.as_ref().and_then(|model| lock(model).clone())
    }

    /// Begins an execution.
    fn reset(&self, value: u64) {
        match &self.model {
            Some(model) => *lock(model) = Some(Arc::new(AtomicU64::new(value))),
            None => Word::store(&self.plain, value),
        }
    }
}

impl Word for Checked {
    fn load(&self) -> u64 {
        self.model().map_or_else(|| Word::load(&self.plain), |word| word.load(Ordering::Acquire))
    }

    fn store(&self, value: u64) {
        match self.model() {
            Some(word) => word.store(value, Ordering::Release),
            None => Word::store(&self.plain, value),
        }
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        match self.model() {
            Some(word) => word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop),
            None => self.plain.swap_if(current, new),
        }
    }

    fn add(&self, value: u64) -> u64 {
        match self.model() {
            Some(word) => word.fetch_add(value, Ordering::AcqRel),
            None => self.plain.add(value),
        }
    }
}

/// A file. A pread that sees a pwrite comes after it; one that need not see it may find what was there
/// before, as loom decides.
pub struct Disk {
    head: Mutex<Vec<u8>>,
    slots: Vec<Slot>,
    /// Known where nothing may be written beside what is durable.
    cursor: OnceLock<&'static Checked>,
}

/// Room for a record: all that was ever there, by the number of writes.
struct Slot {
    writes: Checked,
    contents: Mutex<Vec<Vec<u8>>>,
    durable: Mutex<bool>,
}

#[derive(Clone)]
struct Image {
    head: Vec<u8>,
    slots: Vec<(Vec<u8>, bool)>,
}

impl Disk {
    fn new() -> Disk {
        let slot = |index| Slot {
            writes: Checked::new(EXTENTS_MET.contains(&(3 + index / 2))),
            contents: Mutex::new(vec![Vec::new()]),
            durable: Mutex::default(),
        };
        let slots = (0..(EXTENTS as usize - 3) * 2).map(slot).collect();
        Disk { head: Mutex::new(vec![0; HEAD]), slots, cursor: OnceLock::new() }
    }

    fn image(&self) -> Image {
        let slot =
            |slot: &Slot| (lock(&slot.contents).last().cloned().unwrap_or_default(), *lock(&slot.durable));
        Image { head: lock(&self.head).clone(), slots: self.slots.iter().map(slot).collect() }
    }

    fn reset(&self, image: &Image) {
        lock(&self.head).clone_from(&image.head);
        for (slot, (content, durable)) in self.slots.iter().zip(&image.slots) {
            let mut contents = lock(&slot.contents);
            contents.truncate(1);
            contents[0].clone_from(content);
            *lock(&slot.durable) = *durable;
            slot.writes.reset(0);
        }
    }

    /// The slots that bytes from `offset` on lie in, each with where in the slot and how many.
    fn parts(offset: u64, length: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut at = offset as usize - HEAD;
        let end = at + length;
        std::iter::from_fn(move || {
            let (slot, from) = (at / SLOT, at % SLOT);
            let count = (SLOT - from).min(end - at);
            at += count;
            (count > 0).then_some((slot, from, count))
        })
    }

    fn write_slot(&self, number: usize, from: usize, bytes: &[u8]) {
        let slot = &self.slots[number];
        let before = slot.writes.add(1) as usize;
        let mut contents = lock(&slot.contents);
        assert_eq!(contents.len(), before + 1);
        let mut content = contents[before].clone();
        content.resize(SLOT, 0);
        content[from..from + bytes.len()].copy_from_slice(bytes);
        contents.push(content);
        let is_durable = |number: usize| *lock(&self.slots[number].durable);
        let is_torn = self.cursor.get().is_some() && (is_durable(number) || is_durable(number ^ 1));
        assert!(!is_torn, "a disk block with durable records is being written");
    }
}

/// The file, opened.
pub struct File(&'static Disk);

impl Device for File {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        if (offset as usize) < HEAD {
            buffer.copy_from_slice(&lock(&self.0.head)[offset as usize..][..buffer.len()]);
            return Ok(buffer.len());
        }
        let mut rest = &mut *buffer;
        for (number, from, count) in Disk::parts(offset, rest.len()) {
            let (part, after) = rest.split_at_mut(count);
            let slot = &self.0.slots[number];
            let seen = slot.writes.load() as usize;
            match lock(&slot.contents)[seen].get(from..from + count) {
                Some(bytes) => part.copy_from_slice(bytes),
                None => part.fill(0),
            }
            rest = after;
        }
        Ok(buffer.len())
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        if (offset as usize) < HEAD {
            lock(&self.0.head)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        let mut rest = bytes;
        for (number, from, count) in Disk::parts(offset, bytes.len()) {
            let (part, after) = rest.split_at(count);
            self.0.write_slot(number, from, part);
            rest = after;
        }
        Ok(())
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        // What is written in the disk block where the cursor stands, no root refers to yet.
        let cursor = self.0.cursor.get().map_or(0, |cursor| cursor.load() as u32);
        let left = (cursor / EXTENT).saturating_sub(3) as usize * 2;
        for slot in &self.0.slots[..left] {
            *lock(&slot.durable) |= lock(&slot.contents).last().is_some_and(|bytes| !bytes.is_empty());
        }
        Ok(())
    }

    fn size(&self) -> Result<u64, DeviceError> {
        Ok((HEAD + self.0.slots.len() * SLOT) as u64)
    }

    fn truncate(&self, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn punch_hole(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn try_lock(&self, _: LockMode) -> Result<bool, DeviceError> {
        Ok(true)
    }
}

/// One of the processes; [`DEAD`] is dead.
#[derive(Clone, Copy)]
pub struct Process(pub u64);

impl ProcessTable for Process {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_alive(&self, peer: u64) -> bool {
        peer != DEAD
    }

    fn relax(&self) {
        loom::thread::yield_now();
    }
}

/// How a world begins.
#[derive(Clone, Copy)]
pub struct Start {
    pub meeting: Meeting,
    /// What was done, and committed, before the server started.
    pub before: fn(&Container<'_, File, Process>),
    /// What was done since.
    pub since: fn(&World),
    /// Words that a model uses for itself.
    pub words: fn(&Shared<Checked>),
    /// Roots hold no entries, so that opening loads none.
    pub has_leaves: bool,
    /// Nothing may be written beside what is durable. For models that use no space again.
    pub keeps_disk_blocks: bool,
    pub fault: Fault,
}

impl Default for Start {
    fn default() -> Start {
        Start {
            meeting: |_| Vec::new(),
            before: |_| (),
            since: |_| (),
            words: |_| (),
            has_leaves: false,
            keeps_disk_blocks: false,
            fault: Fault::None,
        }
    }
}

impl Start {
    fn options(&self) -> Options<'static> {
        let mut tuning = Tuning { sparse_divisor: 0, ..Tuning::default() };
        if self.has_leaves {
            (tuning.inline_max, tuning.deltas_max, tuning.changes_min) = (0, 0, 0);
        }
        let geometry = Geometry { pages_max: PAGES, extent_units: EXTENT, extents_max: EXTENTS };
        Options { geometry, tuning, fault: self.fault, ..Options::new(PAGES) }
    }
}

/// Shared memory, a file, and three processes that have it open. They live as long as the test.
pub struct World {
    words: &'static [Checked],
    disk: &'static Disk,
    processes: Vec<Open>,
    options: Options<'static>,
    start: (Vec<u64>, Image),
}

// SAFETY: what keeps a container from being shared is the reference to a key, and there is none here.
// Everything else is `Sync`: words, a disk behind locks, and numbers.
unsafe impl Sync for World {}

impl World {
    pub fn new(start: Start) -> &'static World {
        let options = start.options();
        let disk: &'static Disk = Box::leak(Box::new(Disk::new()));
        let memory: Vec<Plain> = (0..options.geometry.words()).map(|_| Plain::new(0)).collect();
        let birth = Birth { id: [5; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        let created = Container::create(File(disk), Process(1), &memory, &birth, options).unwrap();
        (start.before)(&created);
        created.close().unwrap();
        let words: &'static [Checked] = Vec::leak(words(&options.geometry, start.meeting));
        let open =
            |me| Container::open(File(disk), Process(me), words, Recovery::Discard, options).unwrap().0;
        let processes = (1..=3).map(open).collect();
        let mut world = World { words, disk, processes, options, start: (Vec::new(), disk.image()) };
        (start.since)(&world);
        (start.words)(world.shared());
        if start.keeps_disk_blocks {
            disk.cursor.get_or_init(|| &world.shared().cursor);
        }
        world.start = (words.iter().map(Word::load).collect(), disk.image());
        Box::leak(Box::new(world))
    }

    /// Begins an execution.
    pub fn reset(&self) {
        self.words.iter().zip(&self.start.0).for_each(|(word, value)| word.reset(*value));
        self.disk.reset(&self.start.1);
    }

    pub fn process(&self, number: usize) -> &Open {
        &self.processes[number - 1]
    }

    pub fn state(&self) -> SharedState<'static, Checked> {
        SharedState::new(self.words, self.options.geometry).unwrap()
    }

    pub fn shared(&self) -> &'static Shared<Checked> {
        self.state().shared()
    }

    /// Space that nobody writes to: half an extent is dead.
    pub fn waste(&self) {
        drop(self.state().reserve(RECORD, Purpose::Page).unwrap());
    }

    pub fn write(&self, process: usize, block: u32, generation: u8) {
        write(self.process(process), block, generation);
    }

    /// Takes idle leaves out of memory.
    pub fn unload(&self, process: usize) -> u32 {
        let give_back =
            |range: std::ops::Range<usize>| self.words[range].iter().for_each(|word| word.store(0));
        self.process(process).unload_idle(give_back).unwrap()
    }

    /// The generation of a page; 0: zeros.
    pub fn read(&self, process: usize, block: u32) -> u8 {
        read(self.process(process), block)
    }

    /// No entry means space that may be written to, or that another entry means.
    pub fn assert_sound(&self) {
        let state = self.state();
        let entries: Vec<Entry> = (0..state.pages()).map(|block| state.entry(Block(block))).collect();
        let spans: Vec<_> = entries.iter().filter_map(|entry| entry.record_span()).collect();
        for (index, span) in spans.iter().enumerate() {
            let extent = state.extent(ExtentNumber(span.location.0 / EXTENT));
            let is_known = u64::from(span.location.0 / EXTENT) >= state.shared().unknown_extents.load();
            assert!(extent.state == ExtentState::Used || !is_known, "{span:?} is in space that is free");
            let is_other = |other: &pgshrink_cfs::units::Span| other.location != span.location;
            assert!(spans[..index].iter().all(is_other), "{span:?} is two pages'");
        }
        assert!(entries.iter().all(|entry| !entry.is_missing() || !state.is_loaded(Block(0).leaf())));
    }

    /// What a server that is started after the next commit finds.
    pub fn commit_and_open_anew(&self) -> Vec<u8> {
        self.assert_sound();
        self.process(1).commit().unwrap();
        self.assert_sound();
        let memory: Vec<Plain> = (0..self.options.geometry.words()).map(|_| Plain::new(0)).collect();
        let options = Options { read_only: true, fault: Fault::None, ..self.options };
        let device = File(self.disk);
        let (container, _) =
            Container::open(device, Process(7), &memory, Recovery::Discard, options).unwrap();
        (0..container.pages()).map(|block| read(&container, block)).collect()
    }
}

fn words(geometry: &Geometry, meeting: Meeting) -> Vec<Checked> {
    let plain: Vec<Checked> = (0..geometry.words()).map(|_| Checked::new(false)).collect();
    let shared = SharedState::new(&plain, *geometry).unwrap().shared();
    let met: Vec<usize> = meeting(shared).into_iter().map(|word| shared.index_of(word)).collect();
    let entries = plain.len() - (geometry.pages_max + geometry.extents_max) as usize;
    let extents = entries + geometry.pages_max as usize;
    let is_met = |index: usize| match index.checked_sub(extents) {
        Some(extent) => EXTENTS_MET.contains(&extent),
        None => index >= entries || met.contains(&index),
    };
    (0..plain.len()).map(|index| Checked::new(is_met(index))).collect()
}

pub fn payload(block: u32, generation: u8) -> Vec<u8> {
    let mut payload = vec![generation; SLOT - 16];
    payload[0] = block as u8;
    payload
}

pub fn write<W: Word>(container: &Container<'_, File, Process, W>, block: u32, generation: u8) {
    container.write(block, 1, 0, &payload(block, generation), &mut Scratch::new()).unwrap();
}

fn read<W: Word>(container: &Container<'_, File, Process, W>, block: u32) -> u8 {
    let mut scratch = Scratch::new();
    match container.read(block, &mut scratch).unwrap() {
        Stored::Zeros => 0,
        Stored::Base(_) => unreachable!("no test of these has a base"),
        Stored::Record { payload: found, .. } => {
            let generation = found[1];
            assert_eq!(found, payload(block, generation));
            generation
        }
    }
}
