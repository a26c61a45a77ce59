//! Slots of a server: what pins, evictions, invalidations and deaths leave of them.

mod basics;
mod kills;
mod model;
mod oracle;
mod real;
mod room;
mod switching;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::{Disk, DiskFile};
use pgshrink_cfs::slots::{Capacity, Host, Opened, Opener, ProcessName, SegmentKey};
use pgshrink_cfs::{Birth, DeviceError, Folder, Identity, KEY_BYTES, Options, Recovery, segment};

fn options() -> Options<'static> {
    crate::plan::options(Fault::None, 0)
}

fn capacity(segments_max: u32, processes_max: u32) -> Capacity {
    Capacity { geometry: options().geometry, segments_max, processes_max }
}

fn key(relation: u32) -> SegmentKey {
    SegmentKey { tablespace: 1, database: 5, relation, fork: 0, segment: 0 }
}

fn birth(id: u64) -> Birth {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&(id + 1).to_le_bytes());
    Birth { id: name, identity: Identity::default(), key: [7; KEY_BYTES] }
}

fn name(pid: u64) -> ProcessName {
    ProcessName::new(pid as u32, 1000).unwrap()
}

/// One of the processes of a test, and who of them is dead.
#[derive(Clone, Copy)]
struct Simulated<'a> {
    pid: u64,
    dead: &'a RefCell<BTreeSet<u64>>,
    /// What waiting does.
    relax: fn(),
}

impl Host for Simulated<'_> {
    fn me(&self) -> ProcessName {
        name(self.pid)
    }

    fn is_running(&self, process: ProcessName) -> bool {
        process.start_ticks() == 1000 && !self.dead.borrow().contains(&process.pid().into())
    }

    fn relax(&self) {
        (self.relax)();
    }
}

/// The files of a server: a folder for each segment.
struct Shelf {
    disks: RefCell<BTreeMap<SegmentKey, Disk>>,
    opened: Cell<u32>,
    disk: fn() -> Disk,
}

impl Shelf {
    fn new(disk: fn() -> Disk) -> Shelf {
        Shelf { disks: RefCell::default(), opened: Cell::new(0), disk }
    }

    fn folder(&self, key: &SegmentKey) -> Disk {
        self.disks.borrow_mut().entry(*key).or_insert_with(self.disk).clone()
    }
}

impl Opener<'static> for Shelf {
    type File = DiskFile;

    fn open(&self, key: &SegmentKey) -> Result<Opened<'static, DiskFile>, DeviceError> {
        self.opened.set(self.opened.get() + 1);
        let device = self.folder(key).open(segment::FILE_NAME)?;
        Ok(Opened { device, options: options(), recovery: Recovery::Discard })
    }
}
