//! A server process: the calls that PostgreSQL makes on a segment's file, and the hooks that they go through.

use std::rc::Rc;

use pgshrink_cfs::DeviceError;
use pgshrink_cfs::convert::{Call, Kind};

use super::World;
use super::engine::{GONE, Opened};
use super::kernel::{ABOVE, Descriptor, File, IS_DIRECTORY, NOT_DIRECTORY, NOT_EMPTY, note};
use super::site::{CONTAINER, SEGMENT};
use super::slot::PAGES_MAX;
use crate::schedule::clock::{self, Why};

type Done<T> = Result<T, DeviceError>;

/// What a process has the segment open by. It keeps it for as long as it likes.
pub enum Handle {
    Plain { descriptor: Descriptor, file: File },
    Container(Box<dyn Opened>),
}

pub struct Server {
    pub world: Rc<World>,
    pub pid: u64,
    /// Its place among the pins.
    pub index: usize,
    pub handle: Option<Handle>,
    barriers: u64,
    relations: u64,
    is_deaf: bool,
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
            is_deaf: world.draw(3) == 0,
        }
    }

    pub fn close(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.discard(handle);
        }
    }

    fn discard(&self, handle: Handle) {
        match handle {
            Handle::Plain { descriptor, .. } => self.world.kernel.close(descriptor),
            Handle::Container(container) => container.close(),
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
                    Ok(opened) => {
                        let container = self.world.open_container(self.pid, self.index, directory, opened);
                        Ok(Handle::Container(container))
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
            (Ok(Handle::Container(container)), Ok(found)) => {
                kernel.found(container.directory()).inode == found.inode
            }
            (Err(DeviceError::NotFound), Err(DeviceError::NotFound)) => true,
            _ => false,
        }
    }

    fn open_by_name(&self) -> Done<Handle> {
        self.world.generation().by_name(
            Call::Open,
            || self.attempt(),
            |opened| {
                if self.is_still(&opened) {
                    return Some(opened);
                }
                if let Ok(handle) = opened {
                    self.discard(handle);
                }
                None
            },
        )
    }

    /// Does a call by what the segment is open by, and opens it before if need be.
    fn during<T>(
        &mut self,
        mut plain: impl FnMut(&World, Descriptor) -> Done<T>,
        mut container: impl FnMut(&mut dyn Opened) -> Done<T>,
    ) -> Done<T> {
        loop {
            let handle = match &mut self.handle {
                Some(handle) => handle,
                None => {
                    let opened = self.open_by_name()?;
                    self.handle.insert(opened)
                }
            };
            let done = match handle {
                Handle::Plain { descriptor, .. } => return plain(&self.world, *descriptor),
                Handle::Container(opened) => container(opened.as_mut()),
            };
            match done {
                Err(GONE) => self.close(),
                done => return done,
            }
        }
    }

    pub fn write(&mut self, page: usize, value: u64) -> Done<()> {
        self.during(
            |world, descriptor| world.kernel.pwrite(descriptor, page, value),
            |container| container.write(page, value),
        )
    }

    pub fn read(&mut self, page: usize) -> Done<u64> {
        self.during(
            |world, descriptor| Ok(world.kernel.pread(descriptor, page).unwrap_or(0)),
            |container| container.read(page),
        )
    }

    pub fn size(&mut self) -> Done<usize> {
        self.during(|world, descriptor| Ok(world.kernel.size_of(descriptor)), |container| container.size())
    }

    pub fn truncate(&mut self, pages: usize) -> Done<()> {
        self.during(
            |world, descriptor| {
                world.kernel.ftruncate(descriptor, pages);
                Ok(())
            },
            |container| container.truncate(pages),
        )
    }

    pub fn fsync(&mut self) -> Done<()> {
        self.during(|world, descriptor| world.kernel.fsync(descriptor), |container| container.commit(false))
    }

    /// Opens the segment if it is a container; for a worker.
    pub fn container(&mut self) -> Option<&mut dyn Opened> {
        if self.handle.is_none() {
            self.handle = self.open_by_name().ok();
        }
        match &mut self.handle {
            Some(Handle::Container(container)) => Some(container.as_mut()),
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
            let Some(container) = server.container() else { return Err(NOT_DIRECTORY) };
            let directory = container.directory();
            // A worker may be making a base in it at this moment.
            loop {
                for name in kernel.names_in(directory) {
                    let _ = kernel.unlink(directory, &name);
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
                91..97 if self.world.plan.cuts => self.cut(),
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
            let is_by_path = world.plan.cuts || world.draw(2) == 0;
            let done = if is_by_path { self.truncate_by_path(pages) } else { self.truncate(pages) };
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
        world.forget_segment(self.pid);
        world.relations.set(world.relations.get() + 1);
        world.make_relation();
    }
}
