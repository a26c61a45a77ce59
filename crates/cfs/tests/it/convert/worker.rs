//! The worker: compresses, decompresses, turns round, and is replaced by another now and then.

use std::rc::Rc;

use pgshrink_cfs::convert::{
    ConvertError, Exchanged, Flipped, Kind, Name, Phase, Settling, Site, exchange_in, exchange_out, finish,
    flip, make_base, make_durable, remove_leftover,
};
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::{DeviceError, Error};

use super::World;
use super::server::Server;
use super::site::{Folder, Place, failed};
use super::slot::{Base, Entry, Flipping, PAGES_MAX, Slot};
use crate::schedule::clock::{self, Why};

const INDEX: usize = super::slot::PROCESSES - 1;

pub struct Worker {
    world: Rc<World>,
    place: Place,
    settling: Settling,
    returns: bool,
}

impl Worker {
    pub fn new(world: &Rc<World>, pid: u64) -> Worker {
        let place = Place { world: world.clone(), pid };
        Worker { world: world.clone(), place, settling: Settling::default(), returns: world.draw(2) == 0 }
    }

    /// Until it ends, and another one begins.
    pub fn run(&mut self) {
        loop {
            let relation = self.relation();
            if let Err(error) = self.step() {
                self.judge(relation, &error);
            }
            if self.world.draw(12) == 0 {
                self.returns = !self.returns;
            }
            if self.world.draw(60) == 0 {
                return;
            }
            clock::leave(Why::Boundary);
        }
    }

    fn relation(&self) -> u64 {
        self.world.truth.borrow().incarnation
    }

    /// What may fail: what the relation was dropped under, and what the world's syncs fail at.
    fn judge(&self, relation: u64, error: &ConvertError) {
        let truth = self.world.truth.borrow();
        let is_dropped = truth.is_dropped || truth.incarnation != relation;
        let is_failing = match error {
            ConvertError::System { source, .. } => *source == DeviceError::Io(5),
            ConvertError::Engine(Error::Device { source, .. }) => *source == DeviceError::Io(5),
            _ => false,
        };
        if !is_dropped && !(is_failing && self.world.is_failing) {
            self.world.complain(format!("worker: {error}"));
        }
    }

    fn step(&mut self) -> Result<(), ConvertError> {
        for name in self.place.leftovers() {
            // Those of workers that have ended.
            if name != Name::New(self.place.me()) && self.world.draw(2) == 0 {
                self.with_lock(|worker| remove_leftover(&worker.place, name).map(drop))?;
            }
        }
        let found = self.place.look(Name::Segment);
        let Ok(Some(found)) = found else { return Ok(()) };
        if found.kind == Kind::Plain {
            if !self.returns {
                self.compress()?;
            }
            return Ok(());
        }
        let Ok(directory) = self.place.open_directory(Name::Segment) else { return Ok(()) };
        let Some(slot) = self.world.slot_in(directory.file) else { return Ok(()) };
        match slot.base() {
            Base::None if self.returns => {
                let exchanged = make_base(&self.place, directory)?;
                self.pinned(slot, |_| slot.begin_returning(true));
                drop(exchanged);
                self.commit(slot)
            }
            Base::None => Ok(()),
            Base::Whole if self.returns => {
                drop(directory);
                self.decompress(slot)
            }
            Base::Whole => {
                drop(directory);
                self.settle(slot)
            }
            Base::Leaving if self.returns && self.world.draw(4) == 0 => {
                self.pinned(slot, |_| slot.begin_returning(false));
                Ok(())
            }
            Base::Leaving => self.copy_out(slot, &directory),
            Base::Returning if !self.returns && self.world.draw(4) == 0 => {
                let _ = self.flip(slot, Phase::Leaving)?;
                self.commit(slot)
            }
            Base::Returning => self.copy_back(slot),
        }
    }

    /// A lock that nobody drops or makes the relation under, and the catalog looked at: else nothing is done.
    fn with_lock(
        &mut self,
        work: impl FnOnce(&mut Worker) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        let locks = self.world.fault != Fault::NameNotChecked;
        {
            let truth = &mut *self.world.truth.borrow_mut();
            if truth.is_dropped {
                return Ok(());
            }
            truth.users += u32::from(locks);
        }
        let done = work(self);
        self.world.truth.borrow_mut().users -= u32::from(locks);
        done
    }

    fn compress(&mut self) -> Result<(), ConvertError> {
        self.settling = Settling::default();
        self.with_lock(|worker| {
            let found = worker.place.look(Name::Segment);
            let Ok(Some(found)) = found else { return Ok(()) };
            match exchange_in(&worker.place, found.inode) {
                Ok(exchanged) => {
                    worker.world.tally(|tally| tally.exchanged_in += 1);
                    if worker.world.fault == Fault::ScanBeforeExchange {
                        worker.world.keep_exchanged(exchanged);
                    }
                    Ok(())
                }
                // A worker that has ended has left a name; it is swept later.
                Err(ConvertError::OtherNames { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn settle(&mut self, slot: Slot) -> Result<(), ConvertError> {
        let exchanged = match self.world.fault {
            Fault::ScanBeforeExchange => self.world.take_exchanged(slot.directory),
            _ => None,
        };
        let exchanged = match exchanged {
            Some(exchanged) => exchanged,
            None => Exchanged::open(&self.place)?,
        };
        let holders = self.settling.look(&self.place, &exchanged, 0)?;
        if !holders.is_empty() {
            self.settling = Settling::default();
            return Ok(());
        }
        make_durable(&self.place, &exchanged)?;
        if self.flip(slot, Phase::Leaving)? == Flipped::Done {
            self.world.tally(|tally| tally.flips += 1);
        }
        Ok(())
    }

    fn decompress(&mut self, slot: Slot) -> Result<(), ConvertError> {
        // The root that the plain file is to outlive.
        self.commit(slot)?;
        let file = slot.file;
        self.with_lock(|worker| {
            if worker.world.kernel.root(file).is_none_or(|root| root.base != Base::Whole) {
                return Ok(());
            }
            let exchanged = Exchanged::open(&worker.place)?;
            if slot.is_poisoned() {
                return Ok(());
            }
            exchange_out(&worker.place, exchanged, || slot.leave())?;
            worker.world.tally(|tally| tally.exchanged_out += 1);
            Ok(())
        })
    }

    /// The container as a server process uses it.
    fn opened(&self) -> Option<Server> {
        let mut server = Server::new(&self.world, self.place.pid, INDEX);
        server.open_container().then_some(server)
    }

    fn pinned<T>(&self, slot: Slot, work: impl FnOnce(Slot) -> T) -> T {
        slot.pin(INDEX);
        let done = work(slot);
        slot.unpin(INDEX);
        done
    }

    fn commit(&self, slot: Slot) -> Result<(), ConvertError> {
        let Some(mut server) = self.opened() else { return Ok(()) };
        let done = if server.slot().is_some_and(|found| found.file == slot.file) {
            let kernel = &self.world.kernel;
            let done = slot.commit(kernel, || {
                let base = server.base()?;
                let file = kernel.file_behind(base);
                kernel.sync(file)
            });
            done.map_err(|source| failed("commit", source).into())
        } else {
            Ok(())
        };
        server.close();
        done
    }

    fn flip(&self, slot: Slot, to: Phase) -> Result<Flipped, ConvertError> {
        let Some(mut server) = self.opened() else { return Ok(Flipped::Busy) };
        let kernel = &self.world.kernel;
        let base = match server.slot() {
            Some(found) if found.file == slot.file => server.base(),
            _ => Err(DeviceError::NotFound),
        };
        let Ok(base) = base else {
            server.close();
            return Ok(Flipped::Busy);
        };
        slot.pin(INDEX);
        let flipping = Flipping {
            slot,
            process: INDEX,
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
        slot.unpin(INDEX);
        server.close();
        Ok(done?)
    }

    fn copy_out(&mut self, slot: Slot, directory: &Folder) -> Result<(), ConvertError> {
        let Some(mut server) = self.opened() else { return Ok(()) };
        if server.slot().is_some_and(|found| found.file == slot.file) {
            let first = self.world.draw(PAGES_MAX);
            for page in (first..PAGES_MAX).chain(0..first) {
                let from = slot.entry(page);
                if let (Entry::InBase { .. }, Ok(base)) = (from, server.base())
                    && let Some(value) = self.world.kernel.pread(base, page)
                    && slot.base() == Base::Leaving
                {
                    slot.replace(page, from, Slot::copied(from, Some(value)));
                    self.world.tally(|tally| tally.copies += 1);
                }
            }
        }
        server.close();
        // Durable with the state that it was copied in.
        self.commit(slot)?;
        if slot.end_leaving() {
            let mut is_committed = false;
            finish(&self.place, directory, || {
                is_committed = true;
                self.commit(slot).map_err(|error| match error {
                    ConvertError::Engine(error) => error,
                    _ => failed("commit", DeviceError::Io(5)),
                })
            })?;
            self.world.tally(|tally| tally.finished += u64::from(is_committed));
        }
        Ok(())
    }

    fn copy_back(&mut self, slot: Slot) -> Result<(), ConvertError> {
        let Some(mut server) = self.opened() else { return Ok(()) };
        if server.slot().is_some_and(|found| found.file == slot.file) {
            for page in 0..PAGES_MAX {
                let from = slot.entry(page);
                if let (Entry::Record { value, .. }, Ok(base)) = (from, server.base()) {
                    self.world.kernel.pwrite(base, page, value).map_err(|e| failed("write", e))?;
                    slot.count_base_write();
                    slot.replace(page, from, Slot::copied(from, None));
                    self.world.tally(|tally| tally.copies += 1);
                }
            }
        }
        server.close();
        self.commit(slot)?;
        if self.flip(slot, Phase::Whole)? == Flipped::Done {
            self.world.tally(|tally| tally.whole += 1);
            self.commit(slot)?;
        }
        Ok(())
    }
}
