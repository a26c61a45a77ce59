//! The worker: compresses, decompresses, turns round, and is replaced by another now and then.

use std::rc::Rc;

use pgshrink_cfs::convert::{
    ConvertError, Exchanged, Flipped, Kind, Name, Phase, Settling, Site, exchange_in, exchange_out, finish,
    make_base, make_durable, remove_leftover,
};
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::{DeviceError, Error};

use super::World;
use super::engine::Opened;
use super::server::Server;
use super::site::{Folder, Place, failed};
use super::slot::{Base, PAGES_MAX};
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
        let is_expected = is_dropped || (is_failing && self.world.is_failing);
        if !is_expected {
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
        let mut server = Server::new(&self.world, self.place.pid, INDEX);
        let done = self.step_of_container(&mut server);
        server.close();
        done
    }

    fn step_of_container(&mut self, server: &mut Server) -> Result<(), ConvertError> {
        let Some(container) = server.container() else { return Ok(()) };
        // Another may have the name by now.
        let Ok(exchanged) = self.exchanged(container) else { return Ok(()) };
        match engine("look at", container.base())? {
            Base::None if self.returns => {
                let directory = self.place.open_directory(Name::Segment);
                let Ok(directory) = directory else { return Ok(()) };
                if directory.file != container.directory() {
                    return Ok(());
                }
                drop(make_base(&self.place, directory)?);
                engine("begin to return", container.begin_returning(true))
            }
            Base::None => Ok(()),
            Base::Whole if self.returns => self.decompress(container),
            Base::Whole => self.settle(container, exchanged),
            Base::Leaving if self.returns && self.world.draw(4) == 0 => {
                engine("turn round", container.begin_returning(false))
            }
            Base::Leaving => self.copy_out(container),
            Base::Returning if !self.returns && self.world.draw(4) == 0 => {
                engine("turn round", container.flip(Phase::Leaving))?;
                engine("commit", container.commit(true))
            }
            Base::Returning => self.copy_back(container),
        }
    }

    /// The container as the protocol knows it, if it has the segment's name; nothing where it has no base.
    fn exchanged(&self, container: &mut dyn Opened) -> Result<Option<Exchanged<Folder>>, ConvertError> {
        match Exchanged::open(&self.place) {
            Ok(exchanged) if exchanged.directory.file == container.directory() => Ok(Some(exchanged)),
            Err(ConvertError::Base { .. }) => Ok(None),
            Ok(_) => Err(failed("find", DeviceError::NotFound).into()),
            Err(error) => Err(error),
        }
    }

    /// A lock that nobody drops or makes the relation under, and the catalog looked at: else nothing is done.
    fn with_lock(
        &mut self,
        work: impl FnOnce(&mut Worker) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        let locks = self.world.plan.fault != Fault::NameNotChecked;
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
                    if worker.world.plan.fault == Fault::ScanBeforeExchange {
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

    fn settle(
        &mut self,
        container: &mut dyn Opened,
        exchanged: Option<Exchanged<Folder>>,
    ) -> Result<(), ConvertError> {
        let kept = match self.world.plan.fault {
            Fault::ScanBeforeExchange => self.world.take_exchanged(container.directory()),
            _ => None,
        };
        let Some(exchanged) = kept.or(exchanged) else { return Ok(()) };
        let holders = self.settling.look(&self.place, &exchanged, 0)?;
        if !holders.is_empty() {
            self.settling = Settling::default();
            return Ok(());
        }
        make_durable(&self.place, &exchanged)?;
        if engine("flip", container.flip(Phase::Leaving))? == Flipped::Done {
            self.world.tally(|tally| tally.flips += 1);
        }
        Ok(())
    }

    fn decompress(&mut self, container: &mut dyn Opened) -> Result<(), ConvertError> {
        // The root that the plain file is to outlive.
        engine("commit", container.commit(true))?;
        self.with_lock(|worker| {
            // It may have been dropped since, and another be there.
            let Some(exchanged) = worker.exchanged(container).ok().flatten() else { return Ok(()) };
            if engine("look at", container.is_poisoned())? {
                return Ok(());
            }
            exchange_out(&worker.place, exchanged, || container.leave())?;
            worker.world.tally(|tally| tally.exchanged_out += 1);
            Ok(())
        })
    }

    fn copy_all(&self, container: &mut dyn Opened) -> Result<(), ConvertError> {
        let first = self.world.draw(PAGES_MAX);
        for page in (first..PAGES_MAX).chain(0..first) {
            engine("copy", container.copy(page))?;
            self.world.tally(|tally| tally.copies += 1);
        }
        engine("commit", container.commit(true))
    }

    fn copy_out(&mut self, container: &mut dyn Opened) -> Result<(), ConvertError> {
        self.copy_all(container)?;
        let Ok(directory) = self.place.open_directory(Name::Segment) else { return Ok(()) };
        let is_other = directory.file != container.directory();
        if is_other || engine("look at", container.has_pages_in_base())? {
            return Ok(());
        }
        finish(&self.place, &directory, || match container.finish_leaving() {
            Ok(_) => Ok(()),
            Err(source) => Err(failed("finish", source)),
        })?;
        self.world.tally(|tally| tally.finished += 1);
        Ok(())
    }

    fn copy_back(&mut self, container: &mut dyn Opened) -> Result<(), ConvertError> {
        self.copy_all(container)?;
        if engine("flip", container.flip(Phase::Whole))? == Flipped::Done {
            self.world.tally(|tally| tally.whole += 1);
            engine("commit", container.commit(true))?;
        }
        Ok(())
    }
}

fn engine<T>(operation: &'static str, done: Result<T, DeviceError>) -> Result<T, ConvertError> {
    done.map_err(|source| failed(operation, source).into())
}
