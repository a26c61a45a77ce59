//! A server process: the calls that PostgreSQL makes on a segment's file, and the hooks that they go through.

use std::rc::Rc;

use pgshrink_cfs::DeviceError;
use pgshrink_cfs::convert::{BASE_NAME, Call, Kind};
use pgshrink_cfs::fault::Fault;

use super::World;
use super::kernel::{ABOVE, Descriptor, File, IS_DIRECTORY, NOT_DIRECTORY, NOT_EMPTY, note};
use super::site::{CONTAINER, SEGMENT};
use super::slot::{Base, Entry, PAGES_MAX, Slot};
use crate::schedule::clock::{self, Why};

type Done<T> = Result<T, DeviceError>;

/// What a process has the segment open by. It keeps it for as long as it likes.
pub enum Handle {
    Plain { descriptor: Descriptor, file: File },
    Container { descriptor: Descriptor, base: Option<(Descriptor, u64)>, slot: Slot },
}

pub struct Server {
    pub world: Rc<World>,
    pub pid: u64,
    /// Its place among the pins.
    pub index: usize,
    pub handle: Option<Handle>,
    barriers: u64,
    relations: u64,
    /// Goes on with the base of a container that has left, instead of opening the name again.
    is_faithful: bool,
    is_deaf: bool,
}

/// Where a call goes.
#[derive(Clone, Copy)]
enum Way {
    Plain(Descriptor),
    Container(Slot),
}

impl Server {
    pub fn new(world: &Rc<World>, pid: u64, index: usize) -> Server {
        Server {
            world: world.clone(),
            pid,
            index,
            handle: None,
            barriers: 0,
            relations: world.relations.get(),
            is_faithful: world.draw(2) == 0,
            is_deaf: world.draw(3) == 0,
        }
    }

    pub fn close(&mut self) {
        match self.handle.take() {
            Some(Handle::Plain { descriptor, .. }) => self.world.kernel.close(descriptor),
            Some(Handle::Container { descriptor, base, slot }) => {
                if let Some((base, _)) = base {
                    self.world.kernel.close(base);
                }
                self.world.kernel.close(descriptor);
                self.world.kernel.release(slot.directory);
            }
            None => {}
        }
    }

    /// Opens what the name has.
    fn attempt(&self) -> Done<Handle> {
        let kernel = &self.world.kernel;
        match kernel.open(self.pid, ABOVE, SEGMENT, true) {
            Ok((descriptor, file)) => Ok(Handle::Plain { descriptor, file }),
            Err(IS_DIRECTORY) => {
                let directory = kernel.open_directory(ABOVE, SEGMENT)?;
                match kernel.open(self.pid, directory, CONTAINER, true) {
                    Ok((descriptor, file)) => {
                        let slot = self.world.attach(directory, file);
                        Ok(Handle::Container { descriptor, base: None, slot })
                    }
                    Err(error) => {
                        kernel.release(directory);
                        Err(error)
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the name still has what was opened.
    fn is_still(&self, opened: &Done<Handle>) -> bool {
        let kernel = &self.world.kernel;
        let now = kernel.stat(ABOVE, SEGMENT).map(|(found, _)| found);
        match (opened, now) {
            (Ok(Handle::Plain { file, .. }), Ok(found)) => kernel.found(*file).inode == found.inode,
            (Ok(Handle::Container { slot, .. }), Ok(found)) => {
                kernel.found(slot.directory).inode == found.inode
            }
            (Err(DeviceError::NotFound), Err(DeviceError::NotFound)) => true,
            _ => false,
        }
    }

    fn open_by_name(&mut self) -> Done<Handle> {
        let world = self.world.clone();
        let this = &*self;
        world.generation().by_name(
            Call::Open,
            || this.attempt(),
            |opened| {
                if this.is_still(&opened) {
                    return Some(opened);
                }
                if let Ok(handle) = opened {
                    this.discard(handle);
                }
                None
            },
        )
    }

    fn discard(&self, handle: Handle) {
        let mut closing = Server {
            world: self.world.clone(),
            pid: self.pid,
            index: self.index,
            handle: Some(handle),
            barriers: 0,
            relations: 0,
            is_faithful: false,
            is_deaf: false,
        };
        closing.close();
    }

    /// Before a call: the segment is open, and pinned if it is a container.
    fn enter(&mut self) -> Done<Way> {
        loop {
            if self.handle.is_none() {
                self.handle = Some(self.open_by_name()?);
            }
            let slot = match &self.handle {
                Some(Handle::Plain { descriptor, .. }) => return Ok(Way::Plain(*descriptor)),
                Some(Handle::Container { slot, .. }) => *slot,
                None => continue,
            };
            slot.pin(self.index);
            let is_by_name = self.world.fault == Fault::BaseOpenedByName;
            if !slot.has_left() || (self.is_faithful && (is_by_name || self.has_base(slot))) {
                return Ok(Way::Container(slot));
            }
            slot.unpin(self.index);
            self.close();
        }
    }

    fn has_base(&self, slot: Slot) -> bool {
        match &self.handle {
            Some(Handle::Container { base: Some((_, number)), .. }) => *number == slot.base_number(),
            _ => false,
        }
    }

    fn leave(&self, way: Way) {
        if let Way::Container(slot) = way {
            slot.unpin(self.index);
        }
    }

    fn during<T>(&mut self, mut work: impl FnMut(&mut Server, Way) -> Done<T>) -> Done<T> {
        loop {
            let way = self.enter()?;
            let done = work(self, way);
            self.leave(way);
            // Who had not opened the base before its container went does so by the segment's name.
            match way {
                Way::Container(slot) if matches!(done, Err(DeviceError::NotFound)) && slot.has_left() => {
                    self.close();
                }
                _ => return done,
            }
        }
    }

    /// The base that the container has now, by its directory: the name may be another's.
    pub fn base(&mut self) -> Done<Descriptor> {
        let Some(Handle::Container { base, slot, .. }) = &mut self.handle else {
            return Err(DeviceError::NotFound);
        };
        loop {
            let number = slot.base_number();
            match *base {
                Some((descriptor, known)) if known == number => return Ok(descriptor),
                Some((descriptor, _)) => {
                    self.world.kernel.close(descriptor);
                    *base = None;
                }
                None => {
                    let kernel = &self.world.kernel;
                    let opened = match self.world.fault {
                        Fault::BaseOpenedByName => match kernel.open_directory(ABOVE, SEGMENT) {
                            Ok(directory) => {
                                let opened = kernel.open(self.pid, directory, BASE_NAME, true);
                                kernel.release(directory);
                                opened?
                            }
                            Err(_) => kernel.open(self.pid, ABOVE, SEGMENT, true)?,
                        },
                        _ => kernel.open(self.pid, slot.directory, BASE_NAME, true)?,
                    };
                    *base = Some((opened.0, number));
                }
            }
        }
    }

    pub fn write(&mut self, page: usize, value: u64) -> Done<()> {
        self.during(|server, way| {
            let kernel = server.world.clone();
            let kernel = &kernel.kernel;
            let slot = match way {
                Way::Plain(descriptor) => return kernel.pwrite(descriptor, page, value),
                Way::Container(slot) => slot,
            };
            let is_in_base = match slot.base() {
                Base::Whole => true,
                Base::Returning => page < slot.pages() && matches!(slot.entry(page), Entry::InBase { .. }),
                Base::None | Base::Leaving => false,
            };
            if is_in_base {
                kernel.pwrite(server.base()?, page, value)?;
                slot.count_base_write();
            } else {
                slot.publish(page, value);
            }
            Ok(())
        })
    }

    pub fn read(&mut self, page: usize) -> Done<u64> {
        self.during(|server, way| {
            let world = server.world.clone();
            let slot = match way {
                Way::Plain(descriptor) => return Ok(world.kernel.pread(descriptor, page).unwrap_or(0)),
                Way::Container(slot) => slot,
            };
            loop {
                if slot.base() == Base::Whole {
                    return Ok(world.kernel.pread(server.base()?, page).unwrap_or(0));
                }
                let entry = slot.entry(page);
                match entry {
                    Entry::Missing => return Ok(0),
                    Entry::Record { value, .. } => return Ok(value),
                    Entry::InBase { .. } => {}
                }
                let found = server.base().map(|base| world.kernel.pread(base, page));
                // It may have been moved, and the base be gone.
                match found {
                    Ok(Some(value)) => return Ok(value),
                    _ if slot.entry(page) != entry => {}
                    Ok(None) => {
                        world.complain(format!("page {page} is past the end of its base"));
                        return Ok(0);
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }

    pub fn size(&mut self) -> Done<usize> {
        self.during(|server, way| {
            let world = server.world.clone();
            Ok(match way {
                Way::Plain(descriptor) => world.kernel.size_of(descriptor),
                Way::Container(slot) if slot.base() == Base::Whole => world.kernel.size_of(server.base()?),
                Way::Container(slot) => slot.pages(),
            })
        })
    }

    pub fn truncate(&mut self, pages: usize) -> Done<()> {
        self.during(|server, way| {
            let world = server.world.clone();
            match way {
                Way::Plain(descriptor) => world.kernel.ftruncate(descriptor, pages),
                Way::Container(slot) if slot.base() == Base::Whole => {
                    world.kernel.ftruncate(server.base()?, pages);
                    slot.count_base_write();
                }
                Way::Container(slot) => slot.truncate(pages),
            }
            Ok(())
        })
    }

    pub fn fsync(&mut self) -> Done<()> {
        self.during(|server, way| {
            let world = server.world.clone();
            match way {
                Way::Plain(descriptor) => world.kernel.fsync(descriptor),
                Way::Container(slot) => {
                    // A missing base must not end all commits: the container may have left.
                    if slot.base() == Base::Whole {
                        server.base()?;
                    }
                    let sync_base = || {
                        let base = server.base()?;
                        world.kernel.fsync(base)
                    };
                    slot.commit(&world.kernel, sync_base)
                }
            }
        })
    }

    /// Opens the segment if it is a container; for a worker.
    pub fn open_container(&mut self) -> bool {
        match self.open_by_name() {
            Ok(handle) => self.handle = Some(handle),
            Err(_) => return false,
        }
        let is_container = self.slot().is_some();
        if !is_container {
            self.close();
        }
        is_container
    }

    pub fn slot(&self) -> Option<Slot> {
        match &self.handle {
            Some(Handle::Container { slot, .. }) => Some(*slot),
            _ => None,
        }
    }

    /// What a call by path does with a container that the name has.
    fn by_container<T>(&self, work: impl FnOnce(&mut Server) -> Done<T>) -> Done<T> {
        let mut other = Server::new(&self.world, self.pid, self.index);
        let handle = self.attempt()?;
        if let Handle::Plain { .. } = handle {
            self.discard(handle);
            return Err(NOT_DIRECTORY);
        }
        other.handle = Some(handle);
        let done = work(&mut other);
        other.close();
        done
    }

    /// Does a call by path: to the plain file in the kernel, to a container in the hook.
    fn by_path<T>(
        &self,
        call: Call,
        plain: impl Fn() -> Done<T>,
        container: impl Fn(&mut Server) -> Done<T>,
    ) -> Done<T> {
        let kernel = &self.world.kernel;
        let look = || kernel.stat(ABOVE, SEGMENT).map(|(found, _)| found);
        let (_, done) = self.world.generation().by_name(
            call,
            || {
                let met = look();
                let done = match met {
                    Ok(found) if found.kind == Kind::Directory => self.by_container(&container),
                    _ => plain(),
                };
                (met.map(|found| found.inode), done)
            },
            |(met, done)| {
                let now = look().map(|found| found.inode);
                // A container that was removed while it was being opened: its number may be another's by now.
                let is_gone = matches!(done, Err(DeviceError::NotFound)) && now.is_ok();
                let is_other = matches!(done, Err(IS_DIRECTORY | NOT_DIRECTORY));
                (now == met && !is_gone && !is_other).then_some((met, done))
            },
        );
        done
    }

    pub fn stat(&self) -> Done<usize> {
        let kernel = &self.world.kernel;
        let plain = || match kernel.stat(ABOVE, SEGMENT)? {
            (found, _) if found.kind == Kind::Directory => Err(IS_DIRECTORY),
            (_, size) => Ok(size as usize),
        };
        self.by_path(Call::Stat, plain, Server::size)
    }

    pub fn truncate_by_path(&self, pages: usize) -> Done<()> {
        let kernel = &self.world.kernel;
        let plain = || kernel.truncate(ABOVE, SEGMENT, pages);
        self.by_path(Call::Change, plain, |server| server.truncate(pages))
    }

    pub fn unlink(&self) -> Done<()> {
        let kernel = &self.world.kernel;
        let container = |server: &mut Server| {
            let Some(Handle::Container { slot, .. }) = &server.handle else { return Err(NOT_DIRECTORY) };
            // A worker may be making a base in it at this moment.
            loop {
                for name in kernel.names_in(slot.directory) {
                    let _ = kernel.unlink(slot.directory, &name);
                }
                match kernel.remove_directory(ABOVE, SEGMENT) {
                    Err(NOT_EMPTY) => {}
                    done => return done,
                }
            }
        };
        self.by_path(Call::Change, || kernel.unlink(ABOVE, SEGMENT), container)
    }

    pub fn run(&mut self) {
        loop {
            self.absorb();
            match self.world.draw(100) {
                0..30 => self.write_page(),
                30..55 => self.read_page(),
                55..62 => self.extend(),
                62..68 => self.ask_size(),
                68..74 => self.cut(),
                74..86 => self.sync(),
                86..91 => self.close(),
                91..94 => self.replace(),
                _ => {}
            }
            clock::leave(Why::Boundary);
        }
    }

    fn absorb(&mut self) {
        // Another relation: of that, everybody hears before he uses it.
        if self.relations != self.world.relations.get() {
            self.relations = self.world.relations.get();
            self.close();
        }
        let barriers = self.world.barriers.get();
        if self.barriers != barriers && !self.is_deaf && self.world.draw(3) == 0 {
            self.barriers = barriers;
            self.close();
        }
    }

    /// Begins a call that holds a lock of the relation.
    fn lock(&mut self) -> bool {
        {
            let mut truth = self.world.truth.borrow_mut();
            if truth.is_dropped {
                return false;
            }
            truth.users += 1;
        }
        if self.relations != self.world.relations.get() {
            self.relations = self.world.relations.get();
            self.close();
        }
        true
    }

    fn unlock(&self) {
        self.world.truth.borrow_mut().users -= 1;
    }

    fn write_page(&mut self) {
        if !self.lock() {
            return;
        }
        let world = self.world.clone();
        let value = world.next();
        let begun = {
            let truth = &mut *world.truth.borrow_mut();
            let size = truth.size_now().min(truth.changing_from.unwrap_or(PAGES_MAX));
            let page = world.draw(PAGES_MAX);
            (page < size && !truth.is_busy[page]).then(|| {
                truth.is_busy[page] = true;
                (page, truth.pages[page].begin(value))
            })
        };
        if let Some((page, number)) = begun {
            note(|| format!("{} writes page {page}: {value}", self.pid));
            let done = self.write(page, value);
            note(|| format!("{} has written page {page}: {value}", self.pid));
            let truth = &mut *world.truth.borrow_mut();
            truth.is_busy[page] = false;
            match done {
                Ok(()) => truth.pages[page].complete(number),
                Err(error) => world.complain(format!("writing page {page}: {error}")),
            }
        }
        self.unlock();
    }

    fn extend(&mut self) {
        if !self.lock() {
            return;
        }
        let world = self.world.clone();
        let value = if world.draw(3) == 0 { 0 } else { world.next() };
        let begun = {
            let truth = &mut *world.truth.borrow_mut();
            let page = truth.size_now();
            (page < PAGES_MAX && truth.changing_from.is_none()).then(|| {
                truth.changing_from = Some(page);
                (page, truth.pages[page].begin(value), truth.size.begin(page as u64 + 1))
            })
        };
        if let Some((page, number, size)) = begun {
            let found = self.size();
            if found != Ok(page) {
                world.complain(format!("size is {found:?}, should be {page}"));
            }
            let done = self.write(page, value);
            let truth = &mut *world.truth.borrow_mut();
            truth.changing_from = None;
            match done {
                Ok(()) => {
                    truth.pages[page].complete(number);
                    truth.size.complete(size);
                }
                Err(error) => world.complain(format!("adding page {page}: {error}")),
            }
        }
        self.unlock();
    }

    fn read_page(&mut self) {
        if !self.lock() {
            return;
        }
        let world = self.world.clone();
        let page = world.draw(PAGES_MAX);
        let (from, may) = {
            let truth = world.truth.borrow();
            (truth.pages[page].completed(), truth.changing_from.is_none_or(|from| page < from))
        };
        if may {
            let done = self.read(page);
            let truth = world.truth.borrow();
            world.tally(|tally| tally.reads += 1);
            let history = &truth.pages[page];
            match done {
                Ok(found) if history.may_be(from, found) => {}
                Ok(found) => {
                    world.complain(format!("page {page} reads as {found}, may be {:?}", history.since(from)))
                }
                Err(error) => world.complain(format!("reading page {page}: {error}")),
            }
        }
        self.unlock();
    }

    /// By descriptor, or by path as functions for users do.
    fn ask_size(&mut self) {
        if !self.lock() {
            return;
        }
        let world = self.world.clone();
        let from = world.truth.borrow().size.completed();
        let done = if world.draw(2) == 0 { self.size() } else { self.stat() };
        let truth = world.truth.borrow();
        match done {
            Ok(found) if truth.size.may_be(from, found as u64) => {}
            Ok(found) => {
                world.complain(format!("size is {found}, may be {:?}", truth.size.since(from)));
            }
            Err(error) => world.complain(format!("asking for the size: {error}")),
        }
        drop(truth);
        self.unlock();
    }

    fn cut(&mut self) {
        if !self.lock() {
            return;
        }
        let world = self.world.clone();
        let begun = {
            let truth = &mut *world.truth.borrow_mut();
            let pages = world.draw(PAGES_MAX);
            let is_free = truth.changing_from.is_none() && !truth.is_busy[pages..].iter().any(|busy| *busy);
            (is_free && pages < truth.size_now()).then(|| {
                truth.changing_from = Some(pages);
                let numbers: Vec<usize> = truth.pages[pages..].iter_mut().map(|page| page.begin(0)).collect();
                (pages, numbers, truth.size.begin(pages as u64))
            })
        };
        if let Some((pages, numbers, size)) = begun {
            let done = if world.draw(2) == 0 { self.truncate(pages) } else { self.truncate_by_path(pages) };
            let truth = &mut *world.truth.borrow_mut();
            truth.changing_from = None;
            match done {
                Ok(()) => {
                    truth.pages[pages..]
                        .iter_mut()
                        .zip(numbers)
                        .for_each(|(page, number)| page.complete(number));
                    truth.size.complete(size);
                }
                Err(error) => world.complain(format!("cutting to {pages} pages: {error}")),
            }
        }
        self.unlock();
    }

    fn sync(&mut self) {
        let world = self.world.clone();
        let (incarnation, completed) = {
            let truth = world.truth.borrow();
            let completed: Vec<usize> = truth.pages.iter().map(|page| page.completed()).collect();
            (truth.incarnation, completed)
        };
        // The checkpointer asks for each sync by name, others have the file open.
        if world.draw(2) == 0 {
            self.close();
        }
        note(|| format!("{} syncs", self.pid));
        let done = self.fsync();
        note(|| format!("{} has synced: {done:?}", self.pid));
        let is_same = {
            let truth = world.truth.borrow();
            truth.incarnation == incarnation && !truth.is_dropped
        };
        match done {
            Ok(()) if is_same => {
                world.tally(|tally| tally.syncs += 1);
                let pages = &mut world.truth.borrow_mut().pages;
                pages.iter_mut().zip(completed).for_each(|(page, number)| page.synced(number));
            }
            Ok(()) => {}
            // A panic of the server.
            Err(DeviceError::Io(5)) => world.must_restart.set(true),
            Err(_) if !is_same => {}
            Err(error) => world.complain(format!("syncing: {error}")),
        }
        // It is of a relation that is gone.
        if !is_same {
            self.close();
        }
    }

    /// Drops the relation, which releases its lock before the files go, and makes another of the same name.
    fn replace(&mut self) {
        let world = self.world.clone();
        {
            let truth = &mut *world.truth.borrow_mut();
            if truth.users > 0 || truth.is_dropped {
                return;
            }
            truth.is_dropped = true;
        }
        self.close();
        let emptied = self.truncate_by_path(0);
        let gone = self.unlink();
        if let Some(error) = emptied.and(gone).err() {
            world.complain(format!("dropping: {error}"));
        }
        // Who has the old one open hears of it.
        world.relations.set(world.relations.get() + 1);
        world.make_relation();
    }
}
