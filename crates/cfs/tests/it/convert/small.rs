//! A process's way to the small container of `slot`.

use std::rc::Rc;

use pgshrink_cfs::DeviceError;
use pgshrink_cfs::convert::{BASE_NAME, Flipped, Phase, flip};
use pgshrink_cfs::fault::Fault;

use super::World;
use super::engine::{GONE, Opened};
use super::kernel::{ABOVE, Descriptor, FAILED, File};
use super::site::SEGMENT;
use super::slot::{Base, Entry, Flipping, Slot};
use crate::schedule::clock::{self, Why};

type Done<T> = Result<T, DeviceError>;

pub struct Small {
    pub world: Rc<World>,
    pub pid: u64,
    pub index: usize,
    pub descriptor: Descriptor,
    pub base: Option<(Descriptor, u64)>,
    pub slot: Slot,
    /// Goes on with the base of a container that has left, instead of opening the name again.
    pub is_faithful: bool,
}

impl Small {
    fn pinned<T>(&mut self, work: impl FnOnce(&mut Small, Slot) -> Done<T>) -> Done<T> {
        let slot = self.slot;
        slot.pin(self.index);
        let is_by_name = self.world.plan.fault == Fault::BaseOpenedByName;
        let may = !slot.has_left() || (self.is_faithful && (is_by_name || self.has_base()));
        let done = if may { work(self, slot) } else { Err(GONE) };
        slot.unpin(self.index);
        match done {
            // Who had not opened the base before its container went does so by the segment's name.
            Err(DeviceError::NotFound) if slot.has_left() => Err(GONE),
            done => done,
        }
    }

    fn has_base(&self) -> bool {
        self.base.is_some_and(|(_, number)| number == self.slot.base_number())
    }

    /// The base that the container has now, by its directory: the name may be another's.
    fn base_file(&mut self) -> Done<Descriptor> {
        loop {
            let number = self.slot.base_number();
            match self.base {
                Some((descriptor, known)) if known == number => return Ok(descriptor),
                Some((descriptor, _)) => {
                    self.world.kernel.close(descriptor);
                    self.base = None;
                }
                None => {
                    let opened = match self.world.plan.fault {
                        Fault::BaseOpenedByName => self.open_base_by_name()?,
                        _ => self.world.kernel.open(self.pid, self.slot.directory, BASE_NAME, true)?,
                    };
                    self.base = Some((opened.0, number));
                }
            }
        }
    }

    fn open_base_by_name(&self) -> Done<(Descriptor, File)> {
        let kernel = &self.world.kernel;
        let Ok(directory) = kernel.open_directory(ABOVE, SEGMENT) else {
            return kernel.open(self.pid, ABOVE, SEGMENT, true);
        };
        let opened = kernel.open(self.pid, directory, BASE_NAME, true);
        kernel.release(directory);
        opened
    }
}

impl Opened for Small {
    fn directory(&self) -> File {
        self.slot.directory
    }

    fn write(&mut self, page: usize, value: u64) -> Done<()> {
        self.pinned(|this, slot| {
            let is_in_base = match slot.base() {
                Base::Whole => true,
                Base::Returning => page < slot.pages() && matches!(slot.entry(page), Entry::InBase { .. }),
                Base::None | Base::Leaving => false,
            };
            if is_in_base {
                let base = this.base_file()?;
                this.world.kernel.pwrite(base, page, value)?;
                slot.count_base_write();
            } else {
                slot.publish(page, value);
            }
            Ok(())
        })
    }

    fn read(&mut self, page: usize) -> Done<u64> {
        self.pinned(|this, slot| {
            loop {
                if slot.base() == Base::Whole {
                    let base = this.base_file()?;
                    return Ok(this.world.kernel.pread(base, page).unwrap_or(0));
                }
                let entry = slot.entry(page);
                match entry {
                    Entry::Missing => return Ok(0),
                    Entry::Record { value, .. } => return Ok(value),
                    Entry::InBase { .. } => {}
                }
                let found = this.base_file().map(|base| this.world.kernel.pread(base, page));
                // It may have been moved, and the base be gone.
                match found {
                    Ok(Some(value)) => return Ok(value),
                    _ if slot.entry(page) != entry => {}
                    Ok(None) => {
                        this.world.complain(format!("page {page} is past the end of its base"));
                        return Ok(0);
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }

    fn size(&mut self) -> Done<usize> {
        self.pinned(|this, slot| {
            if slot.base() != Base::Whole {
                return Ok(slot.pages());
            }
            let base = this.base_file()?;
            Ok(this.world.kernel.size_of(base))
        })
    }

    fn truncate(&mut self, pages: usize) -> Done<()> {
        self.pinned(|this, slot| {
            if slot.base() == Base::Whole {
                let base = this.base_file()?;
                this.world.kernel.ftruncate(base, pages);
                slot.count_base_write();
            } else {
                slot.truncate(pages);
            }
            Ok(())
        })
    }

    fn commit(&mut self, is_worker: bool) -> Done<()> {
        self.pinned(|this, slot| {
            // A missing base must not end all commits: the container may have left.
            if slot.base() == Base::Whole {
                this.base_file()?;
            }
            let world = this.world.clone();
            slot.commit(&world.kernel, || {
                let base = this.base_file()?;
                if is_worker {
                    return world.kernel.sync(world.kernel.file_behind(base));
                }
                world.kernel.fsync(base)
            })
        })
    }

    fn base(&mut self) -> Done<Base> {
        self.pinned(|_, slot| Ok(slot.base()))
    }

    fn flip(&mut self, to: Phase) -> Done<Flipped> {
        self.pinned(|this, slot| {
            let base = this.base_file()?;
            let kernel = &this.world.kernel;
            let flipping = Flipping {
                slot,
                process: this.index,
                base_pages: &|| kernel.size_of(base),
                cut_base: &|pages| kernel.ftruncate(base, pages),
                durable: &|| kernel.root(slot.file),
            };
            let mut waits = 0;
            let done = flip(&flipping, to, || {
                clock::leave(Why::Relax);
                waits += 1;
                waits < 6
            });
            done.map_err(|_| FAILED)
        })
    }

    fn begin_returning(&mut self, is_new_base: bool) -> Done<()> {
        self.pinned(|_, slot| {
            slot.begin_returning(is_new_base);
            Ok(())
        })?;
        self.commit(true)
    }

    fn copy(&mut self, page: usize) -> Done<()> {
        self.pinned(|this, slot| {
            let from = slot.entry(page);
            let kernel = this.world.clone();
            let kernel = &kernel.kernel;
            match (slot.base(), from) {
                (Base::Leaving, Entry::InBase { .. }) => {
                    if let Some(value) = kernel.pread(this.base_file()?, page) {
                        slot.replace(page, from, Slot::copied(from, Some(value)));
                    }
                }
                (Base::Returning, Entry::Record { value, .. }) => {
                    kernel.pwrite(this.base_file()?, page, value)?;
                    slot.count_base_write();
                    slot.replace(page, from, Slot::copied(from, None));
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn has_pages_in_base(&mut self) -> Done<bool> {
        self.pinned(|_, slot| {
            let is_there = |page| matches!(slot.entry(page), Entry::InBase { .. });
            Ok((0..slot.pages()).any(is_there))
        })
    }

    fn finish_leaving(&mut self) -> Done<bool> {
        let is_done = self.pinned(|_, slot| Ok(slot.end_leaving()))?;
        if is_done {
            self.commit(true)?;
        }
        Ok(is_done)
    }

    fn is_poisoned(&mut self) -> Done<bool> {
        self.pinned(|_, slot| Ok(slot.is_poisoned()))
    }

    fn leave(&mut self) {
        self.slot.leave();
    }

    fn close(self: Box<Self>) {
        if let Some((base, _)) = self.base {
            self.world.kernel.close(base);
        }
        self.world.kernel.close(self.descriptor);
        self.world.kernel.release(self.slot.directory);
    }
}
