//! Where a segment of a run lies: the disk has one folder, so names say whose they are.

use pgshrink_cfs::sim::{Disk, DiskFile};
use pgshrink_cfs::{DeviceError, Folder, segment};

/// A segment's folder.
pub struct Home {
    pub disk: Disk,
    /// Of the segment.
    pub number: usize,
}

impl Home {
    fn name(&self, name: &str) -> String {
        if self.number == 0 { name.to_owned() } else { format!("{}/{name}", self.number) }
    }

    pub fn container(&self) -> Result<DiskFile, DeviceError> {
        self.open(segment::FILE_NAME)
    }

    /// First bytes of the blocks that the last loss of power left as garbage.
    pub fn garbled(&self) -> Vec<u64> {
        self.disk.garbled(&self.name(segment::FILE_NAME))
    }
}

impl Folder for Home {
    type File = DiskFile;

    fn create(&self, name: &str) -> Result<DiskFile, DeviceError> {
        self.disk.create(&self.name(name))
    }

    fn open(&self, name: &str) -> Result<DiskFile, DeviceError> {
        self.disk.open(&self.name(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.disk.rename(&self.name(from), &self.name(to))
    }

    fn unlink(&self, name: &str) -> Result<(), DeviceError> {
        self.disk.unlink(&self.name(name))
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        Folder::sync_dir(&self.disk)
    }
}
