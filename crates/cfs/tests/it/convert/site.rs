//! A segment's place, as a worker of the simulated server sees it.

use std::rc::Rc;

use pgshrink_cfs::convert::{BASE_NAME, Found, Generation, Holders, Inode, Name, Site};
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::{DeviceError, Error};

use super::World;
use super::kernel::{ABOVE, File, Kernel};
use super::slot::{Base, Root};
use crate::schedule::word::SimWord;

pub const SEGMENT: &str = "R";
pub const CONTAINER: &str = "segment";
const NEW: &str = "R.new.";

pub struct Place {
    pub world: Rc<World>,
    pub pid: u64,
}

/// One look at all processes: the descriptors that can write, of which process and file, and their names.
pub struct Seen {
    generation: Option<u64>,
    descriptors: Vec<(u64, Inode, String)>,
}

/// An open directory.
pub struct Folder {
    world: Rc<World>,
    pub file: File,
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.world.kernel.release(self.file);
    }
}

fn path(name: Name) -> String {
    match name {
        Name::Segment => SEGMENT.to_owned(),
        Name::New(process) => format!("{NEW}{process}"),
    }
}

impl Place {
    fn kernel(&self) -> &Kernel {
        &self.world.kernel
    }

    fn meddle(&self, call: &str) {
        let due = self.world.meddler.borrow_mut().take_if(|(at, _)| *at == call);
        if let Some((_, act)) = due {
            act(self.kernel());
        }
    }

    fn new_name(&self) -> String {
        path(Name::New(self.me()))
    }

    fn folder(&self, file: File) -> Folder {
        Folder { world: self.world.clone(), file }
    }

    /// What lies beside R.
    pub fn leftovers(&self) -> Vec<Name> {
        let names = self.kernel().names_in(ABOVE);
        names.iter().filter_map(|name| name.strip_prefix(NEW)?.parse().ok()).map(Name::New).collect()
    }

    fn seen(found: Result<(Found, u64), DeviceError>) -> Result<Option<Found>, DeviceError> {
        match found {
            Ok((found, _)) => Ok(Some(found)),
            Err(DeviceError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Site for Place {
    type Directory = Folder;
    type Word = SimWord;

    fn me(&self) -> u32 {
        self.pid as u32
    }

    fn generation(&self) -> Generation<'_, SimWord> {
        self.world.generation()
    }

    fn look(&self, name: Name) -> Result<Option<Found>, DeviceError> {
        Place::seen(self.kernel().stat(ABOVE, &path(name)))
    }

    fn make_directory(&self) -> Result<Folder, DeviceError> {
        Ok(self.folder(self.kernel().make_directory(ABOVE, &self.new_name())?))
    }

    fn open_directory(&self, name: Name) -> Result<Folder, DeviceError> {
        Ok(self.folder(self.kernel().open_directory(ABOVE, &path(name))?))
    }

    fn look_at(&self, directory: &Folder) -> Result<Found, DeviceError> {
        Ok(self.kernel().found(directory.file))
    }

    fn make_container(&self, directory: &Folder) -> Result<(), Error> {
        let root = Root { base: Base::Whole, entries: Vec::new() };
        let made = self.kernel().make_container(directory.file, CONTAINER, root);
        let file = made.map_err(|source| failed("create", source))?;
        self.world.real.as_ref().map_or(Ok(()), |real| real.make(file))
    }

    fn look_at_base(&self, directory: &Folder) -> Result<Option<Found>, DeviceError> {
        Place::seen(self.kernel().stat(directory.file, BASE_NAME))
    }

    fn make_base(&self, directory: &Folder) -> Result<(), DeviceError> {
        self.kernel().make_plain(directory.file, BASE_NAME, &[]).map(drop)
    }

    fn link_segment(&self, directory: &Folder) -> Result<(), DeviceError> {
        self.meddle("link segment");
        self.kernel().link((ABOVE, SEGMENT), (directory.file, BASE_NAME))
    }

    fn link_base(&self, directory: &Folder) -> Result<(), DeviceError> {
        self.meddle("link base");
        self.kernel().link((directory.file, BASE_NAME), (ABOVE, &self.new_name()))
    }

    fn exchange(&self) -> Result<(), DeviceError> {
        self.meddle("exchange");
        self.kernel().exchange(ABOVE, SEGMENT, &self.new_name())
    }

    fn unlink(&self, name: Name) -> Result<(), DeviceError> {
        self.kernel().unlink(ABOVE, &path(name))
    }

    fn unlink_base(&self, directory: &Folder) -> Result<(), DeviceError> {
        self.kernel().unlink(directory.file, BASE_NAME)
    }

    fn empty(&self, directory: &Folder) -> Result<(), DeviceError> {
        for name in self.kernel().names_in(directory.file) {
            self.kernel().unlink(directory.file, &name)?;
        }
        Ok(())
    }

    fn remove_directory(&self, name: Name) -> Result<(), DeviceError> {
        self.kernel().remove_directory(ABOVE, &path(name))
    }

    fn sync_above(&self) -> Result<(), DeviceError> {
        self.kernel().sync(ABOVE)
    }

    fn sync_directory(&self, directory: &Folder) -> Result<(), DeviceError> {
        self.kernel().sync(directory.file)
    }

    fn sync_base(&self, directory: &Folder) -> Result<(), DeviceError> {
        let base = self.kernel().file_of(directory.file, BASE_NAME).ok_or(DeviceError::NotFound)?;
        let done = self.kernel().sync(base);
        if done.is_err()
            && let Some(slot) = self.world.slot_in(directory.file)
        {
            slot.poison();
        }
        done
    }

    fn holders(&self, inode: Inode) -> Result<Holders, DeviceError> {
        if self.world.draw(10) == 0 {
            return Ok(Holders { unreadable: 1, ..Holders::default() });
        }
        let own = format!("{} (deleted)", self.new_name());
        let is_of_before = |name: &str| match self.fault() {
            Fault::HoldersOfOneName => name == own,
            _ => name.starts_with(NEW),
        };
        let held = |seen: &Seen| {
            let mut held =
                seen.descriptors.iter().filter(|(_, found, name)| *found == inode && is_of_before(name));
            let process = held.next().map(|(process, ..)| *process);
            let writable = process.map_or(0, |_| 1 + held.count() as u32);
            Holders { writable, unreadable: 0, process: process.unwrap_or(0) as u32 }
        };
        // A look that was taken for another segment will do if it finds nobody.
        let known = self.world.seen.borrow().as_ref().map(|seen| (seen.generation, held(seen)));
        let generation = self.generation().steady();
        if let Some((known, holders)) = known
            && holders.is_empty()
            && (generation.is_some() && known == generation || self.fault() == Fault::OldLookTaken)
        {
            return Ok(holders);
        }
        let seen = Seen { generation, descriptors: self.kernel().writable_names() };
        let holders = held(&seen);
        *self.world.seen.borrow_mut() = Some(seen);
        Ok(holders)
    }

    fn emit_barrier(&self) {
        self.world.barriers.set(self.world.barriers.get() + 1);
    }

    fn fault(&self) -> Fault {
        self.world.plan.fault
    }
}

pub fn failed(operation: &'static str, source: DeviceError) -> Error {
    Error::Device { operation, offset: 0, length: 0, source }
}
