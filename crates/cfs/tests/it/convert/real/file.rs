//! A container's file and its base, as the engine is given them: the one on the simulated disk, the other the
//! kernel's.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pgshrink_cfs::convert::BASE_NAME;
use pgshrink_cfs::sim::DiskFile;
use pgshrink_cfs::{Device, DeviceError, LockMode};

use super::{page_of, value_of};
use crate::convert::kernel::{Descriptor, File};
use crate::convert::{SERVERS, World};
use crate::schedule::clock;

type Done<T> = Result<T, DeviceError>;

/// A container's file, and the base beside it.
pub struct KernelFile {
    world: Rc<World>,
    pid: u64,
    pub directory: File,
    descriptor: Option<Descriptor>,
    container: DiskFile,
    base: RefCell<Option<(Descriptor, u64)>>,
    number: Cell<u64>,
}

impl KernelFile {
    pub fn new(
        world: &Rc<World>,
        pid: u64,
        directory: File,
        descriptor: Option<Descriptor>,
        container: DiskFile,
    ) -> KernelFile {
        KernelFile {
            world: world.clone(),
            pid,
            directory,
            descriptor,
            container,
            base: RefCell::new(None),
            number: Cell::new(0),
        }
    }

    fn base(&self) -> Done<Descriptor> {
        let number = self.number.get();
        let kept = *self.base.borrow();
        match kept {
            Some((descriptor, known)) if known == number => return Ok(descriptor),
            Some((descriptor, _)) => {
                *self.base.borrow_mut() = None;
                self.world.kernel.close(descriptor);
            }
            None => {}
        }
        let (opened, _) = self.world.kernel.open(self.pid, self.directory, BASE_NAME, true)?;
        *self.base.borrow_mut() = Some((opened, number));
        Ok(opened)
    }

    fn is_worker(&self) -> bool {
        self.pid as usize % 10 == SERVERS
    }
}

impl Drop for KernelFile {
    fn drop(&mut self) {
        if clock::is_dead() {
            return;
        }
        for descriptor in self.base.take().map(|(base, _)| base).into_iter().chain(self.descriptor) {
            self.world.kernel.close(descriptor);
        }
        if self.descriptor.is_some() {
            self.world.kernel.release(self.directory);
        }
    }
}

impl Device for KernelFile {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
        self.container.pread(buffer, offset)
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Done<()> {
        self.container.pwrite(bytes, offset)
    }

    fn fdatasync(&self) -> Done<()> {
        self.container.fdatasync()
    }

    fn size(&self) -> Done<u64> {
        self.container.size()
    }

    fn truncate(&self, size: u64) -> Done<()> {
        self.container.truncate(size)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Done<()> {
        self.container.punch_hole(offset, length)
    }

    /// The names are the kernel's; the disk's are durable from the start.
    fn sync_dir(&self) -> Done<()> {
        self.world.kernel.sync(self.directory)
    }

    fn try_lock(&self, mode: LockMode) -> Done<bool> {
        self.container.try_lock(mode)
    }

    fn use_base(&self, number: u64) {
        self.number.set(number);
    }

    fn base_pread(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
        let base = self.base()?;
        let first = (offset / 8192) as usize;
        let mut got = 0;
        for (page, bytes) in (first..).zip(buffer.chunks_mut(8192)) {
            let Some(value) = self.world.kernel.pread(base, page) else { break };
            bytes.copy_from_slice(&page_of(value)[..bytes.len()]);
            got += bytes.len();
        }
        Ok(got)
    }

    fn base_pwrite(&self, bytes: &[u8], offset: u64) -> Done<()> {
        let base = self.base()?;
        self.world.kernel.pwrite(base, (offset / 8192) as usize, value_of(bytes))
    }

    fn base_fdatasync(&self) -> Done<()> {
        let base = self.base()?;
        if self.is_worker() {
            return self.world.kernel.sync(self.world.kernel.file_behind(base));
        }
        self.world.kernel.fsync(base)
    }

    fn base_size(&self) -> Done<u64> {
        let base = self.base()?;
        Ok(self.world.kernel.size_of(base) as u64 * 8192)
    }

    fn base_truncate(&self, size: u64) -> Done<()> {
        let base = self.base()?;
        self.world.kernel.ftruncate(base, (size / 8192) as usize);
        Ok(())
    }

    fn pause(&self) {
        self.container.pause();
    }
}
