//! A process's way to the engine's own container, through the slots, over the simulated kernel.

mod file;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pgshrink_cfs::convert::{Flipped, Phase, flip};
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::slots::{
    Access, Capacity, Host, Member, Opened as FileOpened, Opener, Pinned, ProcessName, Segment, SegmentKey,
    Slots,
};
use pgshrink_cfs::{
    Anew, Base as EngineBase, Birth, Container, Device, DeviceError, Error, Folder, Geometry, Identity,
    KEY_BYTES, Options, Recovery, Scratch, Stored, Tuning,
};

use self::file::KernelFile;
use super::World;
use super::engine::{GONE, Opened};
use super::kernel::{ABOVE, Descriptor, FAILED, File, NOT_DIRECTORY};
use super::site::{CONTAINER, SEGMENT};
use super::slot::{Base, PAGES_MAX, PROCESSES};
use crate::schedule::clock::{self, Why};
use crate::schedule::word::{Memory, SimWord};

type Done<T> = Result<T, DeviceError>;
type Joined = Member<'static, Process, SimWord>;
type Page = [u8; 8192];

const KEY: SegmentKey = SegmentKey { tablespace: 1, database: 5, relation: 20_000, fork: 0, segment: 0 };
const SLOTS: u32 = 2;

/// What the processes of a run have in common.
pub struct Real {
    pub disk: Disk,
    memory: Memory,
    dead: &'static RefCell<BTreeSet<u64>>,
    members: RefCell<BTreeMap<u64, (&'static Joined, u64)>>,
    births: Cell<u64>,
    fault: Fault,
}

#[derive(Clone, Copy)]
pub struct Process {
    name: ProcessName,
    dead: &'static RefCell<BTreeSet<u64>>,
}

impl Host for Process {
    fn me(&self) -> ProcessName {
        self.name
    }

    fn is_running(&self, process: ProcessName) -> bool {
        !self.dead.borrow().contains(&process.start_ticks())
    }

    fn relax(&self) {
        clock::leave(Why::Relax);
    }
}

fn options(fault: Fault) -> Options<'static> {
    let geometry = Geometry { pages_max: 16, extent_units: 256, extents_max: 200 };
    let tuning = Tuning { inline_max: 2, deltas_max: 2, changes_min: 4, ..Tuning::default() };
    Options { geometry, tuning, fault, ..Options::new(16) }
}

fn capacity() -> Capacity {
    let geometry = options(Fault::None).geometry;
    Capacity { geometry, segments_max: SLOTS, processes_max: PROCESSES as u32 + 2 }
}

fn name(file: File) -> String {
    format!("container {file}")
}

fn page_of(value: u64) -> Page {
    let mut page = [value as u8; 8192];
    page[..8].copy_from_slice(&value.to_le_bytes());
    page
}

fn value_of(bytes: &[u8]) -> u64 {
    let value = bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
    let is_whole = bytes.len() == 8192 && bytes == page_of(value) || bytes.len() < 8192;
    if is_whole { value } else { u64::MAX }
}

fn payload_of(value: u64) -> Vec<u8> {
    let mut payload = value.to_le_bytes().to_vec();
    payload.resize(8 + (value as usize * 37) % 600, value as u8);
    payload
}

fn found(stored: Result<Stored<'_>, Error>) -> Result<u64, Error> {
    match stored {
        Err(Error::PastEnd { .. }) | Ok(Stored::Zeros) => Ok(0),
        Ok(Stored::Base(page)) => Ok(value_of(page)),
        Ok(Stored::Record { payload, .. }) => Ok(value_of(payload)),
        Err(error) => Err(error),
    }
}

impl Real {
    pub fn new(seed: u64, fault: Fault) -> Real {
        let disk = Disk::new(seed, clock::io).with_begin(clock::begin);
        disk.set_locks_ignored(true);
        Real {
            disk,
            memory: Memory::new(capacity().words()),
            dead: Box::leak(Box::default()),
            members: RefCell::default(),
            births: Cell::new(0),
            fault,
        }
    }

    /// Nothing is left of the server.
    pub fn restart(&self, is_power: bool) {
        if is_power {
            self.disk.lose_power();
        }
        self.members.borrow_mut().clear();
        self.memory.clear();
    }

    /// As a server that starts after a crash does with all files.
    pub fn sync(&self, file: File) -> Done<()> {
        clock::quietly(|| self.disk.open(&name(file))?.quiet().fdatasync())
    }

    /// A process has ended.
    pub fn end(&self, pid: u64) {
        if let Some((_, start)) = self.members.borrow_mut().remove(&pid) {
            self.dead.borrow_mut().insert(start);
        }
    }

    fn member(&self, world: &World, pid: u64) -> &'static Joined {
        if let Some((member, _)) = self.members.borrow().get(&pid) {
            return member;
        }
        let start = world.next();
        let process = Process { name: ProcessName::new(pid as u32, start).unwrap(), dead: self.dead };
        let slots = clock::quietly(|| Slots::over(self.memory.words(), capacity()).unwrap());
        let member: &'static Joined = Box::leak(Box::new(Member::enter(slots, process).unwrap()));
        self.members.borrow_mut().insert(pid, (member, start));
        member
    }

    /// Makes a container's file, durable but for its name in the kernel.
    pub fn make(&self, file: File) -> Result<(), Error> {
        self.births.set(self.births.get() + 1);
        let mut id = [9; 16];
        id[..8].copy_from_slice(&self.births.get().to_le_bytes());
        let birth = Birth { id, identity: Identity::default(), key: [0; KEY_BYTES] };
        let memory = Memory::new(options(Fault::None).geometry.words());
        let device = self.disk.create(&name(file)).map_err(|source| super::site::failed("create", source))?;
        clock::quietly(|| {
            Container::create_over_base(
                device.quiet(),
                Alone,
                memory.words(),
                (&birth, 0),
                options(Fault::None),
            )
            .map(drop)
        })?;
        clock::quietly(|| Folder::sync_dir(&self.disk))
            .map_err(|source| super::site::failed("create", source))
    }

    pub fn open(
        &self,
        world: &Rc<World>,
        pid: u64,
        directory: File,
        descriptor: Descriptor,
    ) -> Box<dyn Opened> {
        let member = self.member(world, pid);
        let segment = Segment::new(member, KEY).unwrap();
        let opener = ByName { world: world.clone(), pid };
        Box::new(Engine {
            world: world.clone(),
            member,
            segment,
            opener,
            directory,
            descriptor,
            scratch: Scratch::new(),
        })
    }

    /// The name has gone, or is a plain file's again.
    pub fn invalidate(&self, world: &World, pid: u64) {
        if let Err(error) = self.member(world, pid).invalidate(&KEY) {
            world.complain(format!("invalidate: {error}"));
        }
    }

    /// The pages as who opens the container first finds them.
    pub fn recovered(
        &self,
        world: &Rc<World>,
        directory: File,
        file: File,
    ) -> Result<(String, Vec<u64>), String> {
        let memory = Memory::new(options(Fault::None).geometry.words());
        clock::quietly(|| {
            let container = self.disk.open(&name(file)).map_err(|error| error.to_string())?.quiet();
            let device = KernelFile::new(world, 1, directory, None, container);
            let options = Options { read_only: true, ..options(self.fault) };
            let opened = Container::open(device, Alone, memory.words(), Recovery::Discard, options);
            let (container, _) = opened.map_err(|error| format!("opening: {error}"))?;
            let (mut scratch, mut pages) = (Scratch::new(), Vec::new());
            let state = format!("base {:?}", container.base());
            for page in 0..container.page_count().map_err(|error| error.to_string())? {
                let value = match container.base() {
                    EngineBase::Whole => whole(&container, page),
                    _ => found(container.read(page, &mut scratch)),
                };
                pages.push(value.map_err(|error| format!("{state}, page {page}: {error}"))?);
            }
            Ok((state, pages))
        })
    }
}

fn whole<P: pgshrink_cfs::ProcessTable>(
    container: &Container<'_, KernelFile, P, SimWord>,
    page: u32,
) -> Result<u64, Error> {
    let mut bytes = [0; 8192];
    let count = container.read_whole(page, &mut bytes)?;
    Ok(if count == 0 { 0 } else { value_of(&bytes) })
}

/// Opens the segment's container by its name.
struct ByName {
    world: Rc<World>,
    pid: u64,
}

impl Opener<'static> for ByName {
    type File = KernelFile;

    fn open(&self, _: &SegmentKey) -> Result<FileOpened<'static, KernelFile>, DeviceError> {
        let (kernel, real) = (&self.world.kernel, self.world.real.as_ref().ok_or(FAILED)?);
        let directory = match kernel.open_directory(ABOVE, SEGMENT) {
            Err(NOT_DIRECTORY) => return Err(DeviceError::NotFound),
            directory => directory?,
        };
        match kernel.open(self.pid, directory, CONTAINER, true) {
            Ok((descriptor, file)) => {
                let container = real.disk.open(&name(file))?;
                let device = KernelFile::new(&self.world, self.pid, directory, Some(descriptor), container);
                Ok(FileOpened { device, options: options(real.fault), recovery: Recovery::Discard })
            }
            Err(error) => {
                kernel.release(directory);
                Err(error)
            }
        }
    }
}

type Handle = Segment<'static, 'static, KernelFile, Process, SimWord>;
type Pin<'a> = Pinned<'a, 'static, KernelFile, Process, SimWord>;

struct Engine {
    world: Rc<World>,
    member: &'static Joined,
    segment: Handle,
    opener: ByName,
    directory: File,
    descriptor: Descriptor,
    scratch: Scratch,
}

impl Engine {
    fn pinned<T>(
        &mut self,
        access: Access,
        work: impl FnOnce(&Pin<'_>, &mut Scratch) -> Result<T, Error>,
    ) -> Done<T> {
        let Engine { world, segment, opener, directory, scratch, .. } = self;
        let pinned = match segment.pin(access, opener) {
            Ok(pinned) => pinned,
            // The last: the name was given to another between the look at the slots and the opening.
            Err(
                Error::Device { source: DeviceError::NotFound, .. }
                | Error::SegmentGone { .. }
                | Error::OtherContainer { .. },
            ) => return Err(GONE),
            Err(error) => return Err(failure(world, &error)),
        };
        if pinned.has_left() || pinned.device().directory != *directory {
            return Err(GONE);
        }
        match work(&pinned, scratch) {
            Ok(done) => Ok(done),
            // Who had not opened the base before its container went does so by the segment's name.
            Err(_) if pinned.has_left() => Err(GONE),
            Err(Error::BaseMissing { .. }) => Err(DeviceError::NotFound),
            Err(error) => Err(failure(world, &error)),
        }
    }
}

fn failure(world: &World, error: &Error) -> DeviceError {
    match error {
        Error::Device { source, .. } => *source,
        Error::Poisoned => FAILED,
        _ => {
            world.complain(error.to_string());
            FAILED
        }
    }
}

impl Opened for Engine {
    fn directory(&self) -> File {
        self.directory
    }

    fn write(&mut self, page: usize, value: u64) -> Done<()> {
        self.pinned(Access::Write, |container, scratch| {
            let block = page as u32;
            if container.write_base(block, &page_of(value))? {
                return Ok(());
            }
            if value == 0 {
                return container.write_zeros(block);
            }
            container.write(block, 1, 0, &payload_of(value), scratch)
        })
    }

    fn read(&mut self, page: usize) -> Done<u64> {
        self.pinned(Access::Read, |container, scratch| match container.base() {
            EngineBase::Whole => whole(container, page as u32),
            _ => found(container.read(page as u32, scratch)),
        })
    }

    fn size(&mut self) -> Done<usize> {
        self.pinned(Access::Read, |container, _| Ok(container.page_count()? as usize))
    }

    fn truncate(&mut self, pages: usize) -> Done<()> {
        self.pinned(Access::Write, |container, _| container.truncate(pages as u32))
    }

    fn commit(&mut self, _: bool) -> Done<()> {
        self.pinned(Access::Write, |container, _| container.commit().map(drop))
    }

    fn base(&mut self) -> Done<Base> {
        self.pinned(Access::Read, |container, _| {
            Ok(match container.base() {
                EngineBase::None => Base::None,
                EngineBase::Whole => Base::Whole,
                EngineBase::Leaving => Base::Leaving,
                EngineBase::Returning => Base::Returning,
            })
        })
    }

    fn flip(&mut self, to: Phase) -> Done<Flipped> {
        self.pinned(Access::Write, |container, _| {
            let mut waits = 0;
            flip(container, to, || {
                clock::leave(Why::Relax);
                waits += 1;
                waits < 12
            })
        })
    }

    fn begin_returning(&mut self, _: bool) -> Done<()> {
        self.pinned(Access::Write, |container, _| container.begin_returning().map(drop))
    }

    fn copy(&mut self, page: usize) -> Done<()> {
        self.pinned(Access::Write, |container, scratch| {
            let block = page as u32;
            match container.base() {
                EngineBase::Leaving => container.move_from_base(block, scratch, |page| {
                    let value = value_of(page);
                    let payload = payload_of(value);
                    Ok::<_, Error>((value != 0).then_some(Anew { mode: 1, dictionary: 0, payload }))
                }),
                EngineBase::Returning => container.move_to_base(block, scratch, |_, _, payload, page| {
                    *page = page_of(value_of(payload));
                    Ok::<_, Error>(())
                }),
                _ => return Ok(()),
            }
            .map(drop)
        })
    }

    fn has_pages_in_base(&mut self) -> Done<bool> {
        self.pinned(Access::Read, |container, _| Ok(container.in_base(0, PAGES_MAX as u32)?.0 > 0))
    }

    fn finish_leaving(&mut self) -> Done<bool> {
        self.pinned(Access::Write, |container, _| container.finish_leaving())
    }

    fn is_poisoned(&mut self) -> Done<bool> {
        Ok(false)
    }

    /// The container is nobody's any more: handles of it open the segment by its name.
    fn leave(&mut self) {
        let _ = self.pinned(Access::Write, |container, _| Ok(container.leave()));
        if let Err(error) = self.member.invalidate(&KEY) {
            self.world.complain(format!("invalidate: {error}"));
        }
    }

    fn close(self: Box<Self>) {
        let Engine { world, segment, directory, descriptor, .. } = *self;
        drop(segment);
        world.kernel.close(descriptor);
        world.kernel.release(directory);
    }
}
