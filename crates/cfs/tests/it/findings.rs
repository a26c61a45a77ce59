//! What attacks from outside have found, one test or more for each. What needs a schedule is in `crashes` and
//! `faults`, what needs every interleaving of a few steps in `protocol`. Modules are named after the
//! findings: A (pages lost) is in `crashes`.

mod addresses;
mod attaching;
mod dictionaries;
mod disk_blocks;
mod guards;
mod roots;
mod versions;

use std::sync::atomic::AtomicU64;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::{
    Birth, Container, Device, DeviceError, Error, Folder, Geometry, Identity, KEY_BYTES, Options, Recovery,
    Scratch, Stored, Tuning, segment,
};
use pgshrink_testkit::seed::Seed;

use crate::fixture::{Bench, Open};
use crate::updates::Memory;

fn words(geometry: Geometry) -> &'static [AtomicU64] {
    Vec::leak((0..geometry.words()).map(|_| AtomicU64::new(0)).collect())
}

fn birth(id: u8) -> Birth {
    Birth { id: [id; 16], identity: Identity::default(), key: [0; KEY_BYTES] }
}

/// A page that does not compress.
fn page(block: u32, generation: u64) -> Vec<u8> {
    Seed(generation << 32 | u64::from(block)).rng().bytes(8192)
}

const PAGES: u32 = 512;

/// Writers use up all addresses: at the usual limit of garbage they would commit before.
fn unlimited() -> Options<'static> {
    let tuning = Tuning { limit_percent: u32::MAX, ..Tuning::default() };
    Options { tuning, ..Options::new(PAGES) }
}

struct Filled<'d> {
    container: Container<'static, &'d Memory, Alone>,
    generations: Vec<u64>,
}

impl<'d> Filled<'d> {
    fn new(file: &'d Memory) -> Filled<'d> {
        let options = unlimited();
        let container = Container::create(file, Alone, words(options.geometry), &birth(1), options).unwrap();
        Filled { container, generations: vec![0; PAGES as usize] }
    }

    fn open(file: &'d Memory, generations: Vec<u64>, recovery: Recovery) -> Filled<'d> {
        let options = unlimited();
        let opened = Container::open(file, Alone, words(options.geometry), recovery, options);
        Filled { container: opened.unwrap().0, generations }
    }

    fn write(&mut self, block: u32, generation: u64) {
        let mut scratch = Scratch::new();
        self.container.write(block, 0, 0, &page(block, generation), &mut scratch).unwrap();
        self.generations[block as usize] = generation;
    }

    fn check(&self) {
        let mut scratch = Scratch::new();
        for (block, generation) in (0..self.container.pages()).zip(&self.generations) {
            let stored = self.container.read(block, &mut scratch).unwrap();
            assert!(matches!(stored, Stored::Record { payload, .. } if payload == page(block, *generation)));
        }
    }
}

/// Fills the disk blocks of the roots, all but what says whose they are.
fn break_roots(bench: &Bench) {
    let mut bytes = bench.bytes();
    (0..3).for_each(|disk_block| bytes[disk_block * 4096 + 300..(disk_block + 1) * 4096].fill(9));
    bench.set_bytes(bytes);
}

/// A container on a disk whose locks hold.
fn locked() -> Bench {
    let bench = Bench::small();
    bench.disk.set_locks_ignored(false);
    bench
}

fn attach(bench: &Bench, words: &'static [AtomicU64], read_only: bool) -> Result<Open<'static>, Error> {
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let options = Options { read_only, ..bench.options };
    Container::open(file, Alone, words, Recovery::Discard, options).map(|(container, _)| container)
}

/// A device with a call in front of each write (of the offset) and each sync.
pub struct Hooked<D, W, S> {
    pub device: D,
    pub before_write: W,
    pub before_sync: S,
}

impl<D: Device, W: Fn(u64), S: Fn()> Device for Hooked<D, W, S> {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        self.device.pread(buffer, offset)
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        (self.before_write)(offset);
        self.device.pwrite(bytes, offset)
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        (self.before_sync)();
        self.device.fdatasync()
    }

    crate::shell::handed_on!();
}
