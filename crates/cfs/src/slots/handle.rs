//! Handles of segments, and pins: how a process gets at a container.

use crate::device::{Device, DeviceError, Folder, LockMode, ProcessTable};
use crate::engine::container::{Container, Options};
use crate::engine::recovery::{Birth, Recovery};
use crate::fault::Fault;
use crate::format::error::Error;
use crate::format::key::SegmentKey;
use crate::format::root::Identity;
use crate::format::units::ContainerId;
use crate::shared::word::Word;
use crate::slots::processes::{Host, Member, Peer, Pin};
use crate::slots::table::{Acquired, Attempts, Evicted, Full};

/// How often a process makes room among the slots, by a commit each time, before it says that there is none.
const ROOM_TRIES: u32 = 16;
/// How often a process asks for a file's lock, with [`Host::relax`] in between, before it says that the file
/// is in use: a command of the tool that writes may be about to end.
const LOCK_TRIES: u32 = 500;

/// How often a process finds a segment frozen, with [`Host::relax`] in between, before it thaws it: who froze it may
/// be stopped, or be waiting for a process that is.
const FROZEN_TRIES: u32 = 150;

/// What a process is about to do with a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It changes nothing. Opening a segment for this writes nothing and syncs nothing.
    Read,
    /// Writes, truncates, commits. The first one since the segment was opened costs two fdatasyncs, as
    /// opening a container does.
    Write,
}

/// A file that was opened for a segment, and how it is to be used.
pub struct Opened<'m, D> {
    /// The file.
    pub device: D,
    /// [`Options::geometry`] has to be the region's; [`Options::read_only`] is set by the slots.
    pub options: Options<'m>,
    /// What to do with records that no root refers to: done by the first opening for writing. After the first
    /// one since the server started: [`Recovery::Discard`].
    pub recovery: Recovery,
}

/// Opens the files of segments. Called with no lock held and with the segment's slot pinned; it may allocate
/// and do I/O. No call may leave by unwinding or `longjmp`, or come back into the engine for the same
/// segment.
pub trait Opener<'m> {
    /// What opening gives.
    type File: Device;

    /// Opens the segment's container by its present name: never a descriptor that was kept from before, which
    /// may be of a file that was removed.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`] where there is no container of that name.
    fn open(&self, key: &SegmentKey) -> Result<Opened<'m, Self::File>, DeviceError>;
}

/// A segment as one process knows it: a handle, kept for as long as the process likes. It keeps nothing open
/// in the shared memory, only a [`Pinned`] does; so any number of idle handles is no reason not to evict.
pub struct Segment<'p, 'm, D, H: Host, W: Word> {
    member: &'p Member<'m, H, W>,
    key: SegmentKey,
    /// Which container it was when it was first opened.
    id: Option<ContainerId>,
    open: Option<OpenAs<'m, D, H, W>>,
}

/// What a handle last had.
struct OpenAs<'m, D, H, W> {
    slot: u32,
    generation: u64,
    container: Container<'m, D, Peer<H>, W>,
    /// As the opener has said. Opening for reading alone leaves it to be done.
    recovery: Recovery,
}

/// A segment that stays open while this is there: for one operation, or a few. It is the container, by
/// `Deref`.
pub struct Pinned<'a, 'm, D, H: Host, W: Word> {
    container: &'a Container<'m, D, Peer<H>, W>,
    pin: Pin<'a, 'm, H, W>,
}

impl<'m, D, H: Host, W: Word> std::ops::Deref for Pinned<'_, 'm, D, H, W> {
    type Target = Container<'m, D, Peer<H>, W>;

    fn deref(&self) -> &Self::Target {
        self.container
    }
}

impl<D, H: Host, W: Word> Pinned<'_, '_, D, H, W> {
    /// Which slot it has: for statistics.
    pub fn slot(&self) -> u32 {
        self.pin.slot
    }

    /// Whether no other process has the segment pinned. Where it was frozen before, none will use it by what it found
    /// earlier ([`Container::freeze`]).
    pub fn is_quiet(&self) -> bool {
        self.container.options.fault.is(Fault::FrozenWithoutWaiting)
            || !self.pin.member.is_pinned_by_others(self.pin.slot)
    }
}

impl<D: Device, H: Host + Clone, W: Word> Pinned<'_, '_, D, H, W> {
    /// Takes the leaves of the map out of memory that nobody used since the last call, and gives their memory
    /// back: for a worker that has time, and segments too busy to be evicted. Returns how many leaves.
    ///
    /// # Errors
    /// As [`Container::unload_idle`].
    pub fn unload_idle(&self) -> Result<u32, Error> {
        let member = self.pin.member;
        let first = member.slots.segment_range(self.pin.slot).start;
        self.container.unload_idle(|words| {
            // Where the host cannot, the words stay as they are.
            let _ = member.peer.host.give_back(first + words.start..first + words.end);
        })
    }
}

impl<'p, 'm, D: Device, H: Host + Clone, W: Word> Segment<'p, 'm, D, H, W> {
    /// A handle. Nothing is opened before the first [`pin`](Self::pin).
    ///
    /// # Errors
    /// [`Error::Limit`] for a segment number that a key has no room for.
    pub fn new(member: &'p Member<'m, H, W>, key: SegmentKey) -> Result<Self, Error> {
        key.check()?;
        Ok(Segment { member, key, id: None, open: None })
    }

    /// Makes the container in its folder ([`segment::create`](crate::segment::create)) and a handle of it.
    /// The caller keeps others from making the same segment, as the server's file does.
    ///
    /// # Errors
    /// [`DeviceError::Exists`] where the segment is open: the file that it was of has gone and was not
    /// [invalidated](Member::invalidate). As `segment::create`, after which it can be made again; as
    /// [`pin`](Self::pin) for the want of a slot.
    pub fn create<F: Folder<File = D>>(
        member: &'p Member<'m, H, W>,
        key: SegmentKey,
        folder: &F,
        birth: &Birth,
        opener: &impl Opener<'m, File = D>,
        options: Options<'m>,
    ) -> Result<Self, Error> {
        key.check()?;
        let (pin, generation) = member.acquire_with(&key, opener)?;
        let words = member.slots.segment_words(pin.slot);
        let state = &crate::shared::state::SharedState::new(words, options.geometry)?.shared().state;
        if state.load() != crate::shared::region::NEW {
            return Err(Error::device("create", 0, 0, DeviceError::Exists));
        }
        let peer = member.peer.clone();
        let options = Options { read_only: false, ..options };
        match crate::engine::segment::create(folder, peer, words, birth, options) {
            Ok(container) => {
                let (slot, id) = (pin.slot, Some(container.id()));
                let recovery = Recovery::Discard;
                Ok(Segment { member, key, id, open: Some(OpenAs { slot, generation, container, recovery }) })
            }
            Err(error) => {
                // The container may be in memory, and its file has no name. The next one is to find nothing.
                drop(pin);
                member.invalidate(&key)?;
                Err(error)
            }
        }
    }

    /// Which segment.
    pub fn key(&self) -> &SegmentKey {
        &self.key
    }

    /// Keeps the segment open for an operation, and opens it if need be: a hit costs two writes to shared
    /// words and a few reads, no lock and no allocation. A miss opens the file, evicts another segment if all
    /// slots are taken, and where none can go commits one that nobody is using; so it works in redo, before
    /// there is anybody else to do so.
    ///
    /// # Errors
    /// [`Error::SegmentGone`]: this handle's container is no more, and never will be again.
    /// [`Error::SlotsFull`] where all slots are in use. [`Error::Limit`] for more pins than a process can
    /// have on a segment. As the opener; as [`Container::open`], of [`Error::InUse`] only after 500 waits of
    /// [`Host::relax`]; as [`Container::commit`] of a segment that makes room. After an error nothing is
    /// pinned.
    pub fn pin(
        &mut self,
        access: Access,
        opener: &impl Opener<'m, File = D>,
    ) -> Result<Pinned<'_, 'm, D, H, W>, Error> {
        let mut tries = 0;
        let pin = loop {
            let pin = self.pin_as_it_is(access, opener)?;
            let frozen =
                self.open.as_ref().map(|open| &open.container).filter(|container| container.is_frozen());
            let Some(container) = frozen else { break pin };
            drop(pin);
            if tries == FROZEN_TRIES {
                container.thaw();
            }
            tries += 1;
            self.member.peer.relax();
        };
        match &self.open {
            Some(OpenAs { container, .. }) => {
                container.check_container()?;
                Ok(Pinned { container, pin })
            }
            None => Err(self.gone()),
        }
    }

    fn pin_as_it_is(
        &mut self,
        access: Access,
        opener: &impl Opener<'m, File = D>,
    ) -> Result<Pin<'p, 'm, H, W>, Error> {
        let known = match &self.open {
            Some(open) => self.member.try_pin(open.slot, open.generation)?,
            None => None,
        };
        let pin = match known {
            Some(pin) => pin,
            None => self.attach(access, opener)?,
        };
        if access == Access::Write
            && let Some(OpenAs { slot, generation, container, recovery }) =
                self.open.take_if(|open| open.container.options.read_only)
        {
            let Container { device, options, .. } = container;
            let opened = Opened { device, options, recovery };
            let container = open_in(self.member, slot, Access::Write, opened)?;
            self.open = Some(OpenAs { slot, generation, container, recovery });
        }
        Ok(pin)
    }

    fn gone(&self) -> Error {
        Error::SegmentGone { key: self.key }
    }

    fn attach(
        &mut self,
        access: Access,
        opener: &impl Opener<'m, File = D>,
    ) -> Result<Pin<'p, 'm, H, W>, Error> {
        let (pin, generation) = self.member.acquire_with(&self.key, opener)?;
        if self.open.as_ref().is_some_and(|open| (open.slot, open.generation) == (pin.slot, generation)) {
            // It was only looked at whether it might go.
            return Ok(pin);
        }
        // The file of before may have gone. Closed first: a process has few descriptors.
        self.open = None;
        let opened = match opener.open(&self.key) {
            Ok(opened) => opened,
            Err(DeviceError::NotFound) if self.id.is_some() => return Err(self.gone()),
            Err(source) => return Err(Error::device("open", 0, 0, source)),
        };
        let recovery = opened.recovery;
        let container = open_in(self.member, pin.slot, access, opened)?;
        if self.id.is_some_and(|id| id != container.id()) {
            return Err(self.gone());
        }
        let (expected, found) = (self.key.identity(), container.identity()?);
        // One that names no segment may be anywhere.
        if found != expected && found != Identity::default() {
            return Err(Error::OtherSegment { expected, found });
        }
        self.id = Some(container.id());
        self.open = Some(OpenAs { slot: pin.slot, generation, container, recovery });
        Ok(pin)
    }
}

impl<'m, H: Host + Clone, W: Word> Member<'m, H, W> {
    /// A slot for the segment, pinned. If none is free, segments that nobody uses are committed.
    fn acquire_with<O: Opener<'m>>(
        &self,
        key: &SegmentKey,
        opener: &O,
    ) -> Result<(Pin<'_, 'm, H, W>, u64), Error> {
        let mut attempts = Attempts::default();
        let mut tries = 0;
        loop {
            let full = match self.acquire_after(key, &attempts)? {
                Acquired::Slot(pin, generation) => return Ok((pin, generation)),
                Acquired::Full(full) => full,
            };
            let Full { pinned, uncommitted, victim } = full;
            let limit = self.slots.capacity().segments_max;
            let failure = Error::SlotsFull { limit, pinned, uncommitted };
            let Some(victim) = victim.filter(|_| tries < ROOM_TRIES) else { return Err(failure) };
            match self.commit_idle(&victim, opener) {
                Ok(true) => attempts.committed = Some(victim),
                // Another may do. Why it cannot be committed is for those who commit it.
                Ok(false) | Err(_) => attempts.failed.push(victim),
            }
            tries += 1;
        }
    }

    /// Closes and evicts idle segments, those not used for longest first, until `keep` are open or all that are
    /// left are in use or cannot be closed; returns how many went. For a worker that has time. Costs the
    /// commit of a close for each segment that was written since it was opened, and no I/O for others.
    ///
    /// # Errors
    /// As [`invalidate`](Self::invalidate). Why a segment cannot be closed is for those who commit it.
    pub fn close_idle<O: Opener<'m>>(&self, keep: u32, opener: &O) -> Result<u32, Error> {
        let (mut evicted, mut failed) = (0, Vec::new());
        while let Some((key, is_to_be_closed)) = self.idle(keep, &failed)? {
            let is_closed = !is_to_be_closed || self.commit_idle(&key, opener).unwrap_or(false);
            if is_closed && self.evict(&key)? == Evicted::Done {
                evicted += 1;
            } else {
                failed.push(key);
            }
        }
        Ok(evicted)
    }

    /// Commits a segment that this process may never have used, so that it can be evicted. False: its file is
    /// not there.
    fn commit_idle<O: Opener<'m>>(&self, key: &SegmentKey, opener: &O) -> Result<bool, Error> {
        // If it is no longer open, there is a slot.
        let Some(pin) = self.pin_open(key)? else { return Ok(true) };
        match opener.open(key) {
            // Closed, so that opening it again skips no versions.
            Ok(opened) => open_in(self, pin.slot, Access::Write, opened)?.close().map(|_| true),
            // It is being removed, or made: who does that has yet to say so, and nobody else may.
            Err(DeviceError::NotFound) => Ok(false),
            Err(source) => Err(Error::device("open", 0, 0, source)),
        }
    }
}

/// Opens a container in a slot that is pinned. The first process loads it, the others attach.
fn open_in<'m, D: Device, H: Host + Clone, W: Word>(
    member: &Member<'m, H, W>,
    slot: u32,
    access: Access,
    opened: Opened<'m, D>,
) -> Result<Container<'m, D, Peer<H>, W>, Error> {
    let Opened { device, options, recovery } = opened;
    let words = member.slots.segment_words(slot);
    let options = Options { read_only: access == Access::Read, ..options };
    // Before it is looked at: a container takes its lock with its device, and gives that away if it fails.
    let mut tries = 0;
    loop {
        match device.try_lock(LockMode::Shared) {
            Ok(true) => break,
            Ok(false) if tries < LOCK_TRIES => member.peer.relax(),
            Ok(false) => return Err(Error::InUse),
            Err(source) => return Err(Error::device("lock", 0, 0, source)),
        }
        tries += 1;
    }
    Container::open(device, member.peer.clone(), words, recovery, options).map(|(container, _)| container)
}
