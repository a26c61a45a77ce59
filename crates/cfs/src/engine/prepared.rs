//! A commit under way, one phase after the other, so that a [group](crate::engine::group) can do each phase
//! for all its containers at once.
//!
//! * [`Prepared`]: the map's records are in the file and the root is made: steps 1 to 3 of a
//!   [commit](crate::engine::commit).
//! * its [`SyncJob`]: step 4, on any thread;
//! * [`Written`]: the root is in the file; its [`SyncJob`] ends step 5;
//! * [`Written::finish`]: steps 6 and 7.
//!
//! Each phase takes the one before it by value, and does the fsync that is due if nobody has. So none can be
//! left out. One that is dropped lets go of the commit lock and leaves what a failed commit leaves.

use crate::device::{Device, DeviceError, ProcessTable};
use crate::engine::base::sync_base;
use crate::engine::commit::{Committed, Draft, Snapshot};
use crate::engine::container::Container;
use crate::fault::Fault;
use crate::format::error::Error;
use crate::shared::lock::CommitGuard;
use crate::shared::region::{IN_SYNC, Shared};
use crate::shared::word::Word;

/// The commit lock, held for this commit alone or by who called for it.
pub(crate) enum Lock<'c, W: Word> {
    Own(CommitGuard<'c, W>),
    Lent(&'c CommitGuard<'c, W>),
}

impl<'c, W: Word> Lock<'c, W> {
    pub(crate) fn guard(&self) -> &CommitGuard<'c, W> {
        match self {
            Lock::Own(guard) => guard,
            Lock::Lent(guard) => guard,
        }
    }
}

/// A commit whose data is to be synced. Holds the commit lock: until it has come to its end or is dropped, its
/// process writes, truncates and commits nothing else in this container. It would take the lock for one that it left
/// behind by a jump, and two would be inside.
pub struct Prepared<'c, 'm, D, P, W: Word> {
    pub(crate) container: &'c Container<'m, D, P, W>,
    pub(crate) lock: Lock<'c, W>,
    /// As counted by `Shared::commit_begun`.
    pub(crate) number: u64,
    pub(crate) draft: Draft,
    pub(crate) snapshot: Snapshot,
    pub(crate) due: Due,
}

/// A commit whose root is in the file and is to be synced. Holds the commit lock.
pub struct Written<'c, 'm, D, P, W: Word> {
    commit: Prepared<'c, 'm, D, P, W>,
}

/// What is to be synced, and how that ended.
pub(crate) struct Due {
    /// The base, before anything says that pages are in it.
    base: bool,
    data: bool,
    /// The file's name, after its data.
    name: bool,
    done: Option<Result<(), Error>>,
}

impl Due {
    pub(crate) fn new(data: bool, name: bool) -> Due {
        Due { base: false, data, name, done: None }
    }

    pub(crate) fn with_base(self, base: bool) -> Due {
        Due { base, ..self }
    }
}

/// The fsync that one commit waits for. Run on any thread, once; running it again does nothing.
pub struct SyncJob<'j, D, W> {
    device: &'j D,
    shared: &'j Shared<W>,
    fault: Fault,
    due: &'j mut Due,
}

impl<D: Device, W: Word> SyncJob<'_, D, W> {
    /// Syncs. The commit's next phase returns the error, if there was one.
    pub fn run(&mut self) {
        if self.due.done.is_none() {
            self.due.done = Some(self.sync());
        }
    }

    fn sync(&self) -> Result<(), Error> {
        if self.due.base {
            self.device.use_base(self.shared.base_number.load());
            sync_base(self.shared, self.fault, self.device)?;
        }
        if self.due.data {
            sync_with(self.shared, self.fault, || self.device.fdatasync(), "fdatasync")?;
        }
        if self.due.name {
            sync_name(self.shared, self.fault, self.device)?;
        }
        Ok(())
    }

    /// Says that it was run although it was not: an injected fault.
    pub(crate) fn forget(&mut self) {
        self.due.done = Some(Ok(()));
    }
}

/// An fsync whose failure is the end of all commits, unless it was not even tried. For who holds the commit lock, or works for who does.
pub(crate) fn sync_with<W: Word>(
    shared: &Shared<W>,
    fault: Fault,
    call: impl Fn() -> Result<(), DeviceError>,
    what: &'static str,
) -> Result<(), Error> {
    let before = shared.unfinished.load();
    shared.unfinished.store(IN_SYNC);
    let result = call();
    let Err(source) = result else {
        shared.unfinished.store(before);
        return Ok(());
    };
    if source == DeviceError::NoDescriptor {
        shared.unfinished.store(before);
        return Err(Error::device(what, 0, 0, source));
    }
    if fault.is(Fault::FsyncErrorSwallowed) || fault.is(Fault::FsyncRetried) {
        shared.unfinished.store(before);
        let again = if fault.is(Fault::FsyncRetried) { call() } else { Ok(()) };
        return again.map_err(|source| Error::device(what, 0, 0, source));
    }
    shared.poisoned.store(1);
    Err(Error::device(what, 0, 0, source))
}

/// An fsync of what makes the file's name durable; as [`sync_with`].
pub(crate) fn sync_name<W: Word>(
    shared: &Shared<W>,
    fault: Fault,
    device: &impl Device,
) -> Result<(), Error> {
    if fault.is(Fault::NameNotSynced) {
        return Ok(());
    }
    sync_with(shared, fault, || device.sync_dir(), "fsync of the folder")
}

impl<'c, 'm, D: Device, P: ProcessTable, W: Word> Prepared<'c, 'm, D, P, W> {
    /// Asks the medium to begin writing what the next fsync will wait for.
    ///
    /// # Errors
    /// As a failed fsync: the error may have been reported this once.
    pub fn begin_writeback(&self) -> Result<(), Error> {
        let container = self.container;
        let (shared, fault) = (container.state.shared(), container.options.fault);
        sync_with(shared, fault, || container.device.begin_writeback(), "begin of writeback")
    }

    /// The fsync that the root must wait for.
    pub fn sync_job(&mut self) -> SyncJob<'_, D, W> {
        let Container { device, state, options, .. } = self.container;
        SyncJob { device, shared: state.shared(), fault: options.fault, due: &mut self.due }
    }

    /// Writes the root into the next superblock slot of the ring, once what it refers to is durable.
    ///
    /// # Errors
    /// As [`Container::commit`], for the fsync that was due as well as for the write.
    pub fn write_root(mut self) -> Result<Written<'c, 'm, D, P, W>, Error> {
        self.end_sync()?;
        self.draft.root.named = true;
        self.container.put_root(self.lock.guard(), &self.draft.root)?;
        self.due = Due::new(true, false);
        Ok(Written { commit: self })
    }

    fn end_sync(&mut self) -> Result<(), Error> {
        self.sync_job().run();
        self.due.done.take().unwrap_or(Ok(()))
    }
}

impl<D: Device, P: ProcessTable, W: Word> Written<'_, '_, D, P, W> {
    /// As [`Prepared::begin_writeback`].
    ///
    /// # Errors
    /// As there.
    pub fn begin_writeback(&self) -> Result<(), Error> {
        self.commit.begin_writeback()
    }

    /// The fsync that makes the root durable: the commit itself.
    pub fn sync_job(&mut self) -> SyncJob<'_, D, W> {
        self.commit.sync_job()
    }

    /// Takes the root into memory once it is durable, writes its copy, frees what only the root before it
    /// needed, and lets go of the commit lock.
    ///
    /// # Errors
    /// That of the fsync that was due.
    pub fn finish(mut self) -> Result<Committed, Error> {
        self.commit.end_sync()?;
        let Prepared { container, lock, number, draft, snapshot, .. } = self.commit;
        let sequence = container.finish(lock.guard(), number, &draft, &snapshot);
        Ok(Committed { sequence: Some(sequence) })
    }
}
