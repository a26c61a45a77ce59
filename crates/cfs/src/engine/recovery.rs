//! Opening: the newest root, its map, and an end to what lies behind it.
//!
//! The first process to open a container takes the root and its deltas into the shared memory; the others
//! attach. Leaves are loaded when they are needed ([`crate::engine::leaves`]): what opening reads does not
//! grow with the segment. Before anything is appended, or even read, the state that was found is made durable
//! under a new epoch: a root that a failed fsync left in the page cache might otherwise be believed until the
//! power fails. Only then is the file cut to what the root refers to.

use crate::device::{Device, LockMode, ProcessTable};
use crate::engine::base::{base_missing, sync_base};
use crate::engine::container::{Container, Options};
use crate::engine::leaves;
use crate::engine::stored::{Found, find_root, read_map, whose};
use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::map;
use crate::format::record::{self, Kind};
use crate::format::root::{Base, DISK_BLOCK_BYTES, HEAD, HEAD_BYTES, Identity, KEY_BYTES, Place, Root};
use crate::format::units::{Block, ContainerId, ExtentNumber, Span, UNIT_BYTES, VERSION_BITS, Version};
use crate::shared::allocator::{Extent, ExtentState, Usage};
use crate::shared::lock::CommitGuard;
use crate::shared::region::{IDLE, IN_COMMIT, LOADING, READ_ONLY, READY};
use crate::shared::state::SharedState;
use crate::shared::word::Word;

/// What to do with records that no root refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// They never were. Right after any crash, as PostgreSQL's log has them.
    Discard,
    /// The newest of each page of the last epoch is taken over and committed. Only for a server with `fsync =
    /// off` that comes back without a loss of power or a failed fsync in between.
    RollForward,
}

/// What opening found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenReport {
    /// Sequence of the root that was found.
    pub sequence: u64,
    /// The epoch that begins.
    pub epoch: u32,
    /// Whether nothing was written after that root.
    pub was_closed: bool,
    /// Superblock slots that are neither empty nor whole, and the first one if it is empty: one after a crash amid a commit, else damage.
    pub broken_roots: Vec<Damage>,
    /// Superblock slots that are whole. There are two at least from the first commit on, so that one alone
    /// may be older than the last commit ([`may_be_older`](Self::may_be_older)).
    pub whole_roots: u32,
    /// Bytes of the file behind what the root refers to, now gone.
    pub discarded_bytes: u64,
    /// Bytes below the root's end that the file does not have: it was cut.
    pub missing_bytes: u64,
    /// Pages whose newest record was rolled forward.
    pub rolled_forward: u32,
}

impl OpenReport {
    /// Whether later roots may have been lost: the one that was found is the only whole one, and the file
    /// goes on behind what it refers to. Else it is that of a container that crashed before its first commit.
    pub fn may_be_older(&self) -> bool {
        self.whole_roots == 1 && self.discarded_bytes > 0
    }
}

/// How a container comes into being.
#[derive(Clone, Copy)]
pub struct Birth {
    /// 16 bytes of the system's random generator.
    pub id: ContainerId,
    /// Which segment.
    pub identity: Identity,
    /// The wrapped data key, if the container is sealed.
    pub key: [u8; KEY_BYTES],
}

/// The newest record of a page that no root refers to.
struct Unrooted {
    block: Block,
    entry: Entry,
    version: Version,
}

impl<'m, D: Device, P: ProcessTable, W: Word> Container<'m, D, P, W> {
    /// Makes a container in an empty file: one durable root. The name is the caller's to give
    /// ([`crate::engine::segment`]), and durable with the first commit.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::SharedMemory`] and [`Error::Limit`] for memory and geometry that do not
    /// fit; [`Error::InUse`].
    pub fn create(
        device: D,
        processes: P,
        words: &'m [W],
        birth: &Birth,
        options: Options<'m>,
    ) -> Result<Self, Error> {
        Container::create_as(device, processes, words, birth, (Base::None, 0), options)
    }

    /// Makes a container in an empty file beside a base that has all pages. `policy`: what the caller keeps about how
    /// pages are written, or 0. Name and directory are the caller's to make durable.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_over_base(
        device: D,
        processes: P,
        words: &'m [W],
        (birth, policy): (&Birth, u32),
        options: Options<'m>,
    ) -> Result<Self, Error> {
        Container::create_as(device, processes, words, birth, (Base::Whole, policy), options)
    }

    fn create_as(
        device: D,
        processes: P,
        words: &'m [W],
        birth: &Birth,
        (base, policy): (Base, u32),
        options: Options<'m>,
    ) -> Result<Self, Error> {
        let mut container = Container::over(device, processes, words, options)?;
        container.set_id(birth.id);
        let root = Root {
            container: birth.id,
            sequence: Version(1),
            epoch: 1,
            pages_max: options.geometry.pages_max,
            identity: birth.identity,
            base,
            policy,
            version_limit: Version(1 + crate::format::root::VERSIONS_AHEAD),
            epoch_start: Version(1),
            end: HEAD.end(),
            known_end: HEAD.end(),
            key_id: container.seal().map(|seal| seal.key_id()).unwrap_or_default(),
            key: birth.key,
            ..Root::default()
        };
        let guard = CommitGuard::lock(container.state.shared(), &container.processes);
        container.lock_file(LockMode::Exclusive)?;
        container.state.clear(&guard);
        container.begin(&guard, &root)?;
        container.lock_file(LockMode::Shared)?;
        drop(guard);
        Ok(container)
    }

    fn begin(&self, guard: &CommitGuard<'_, W>, root: &Root) -> Result<(), Error> {
        let disk_block = root.encode(self.seal());
        self.device
            .pwrite(&disk_block, 0)
            .map_err(|source| Error::device("write", 0, DISK_BLOCK_BYTES, source))?;
        self.device.fdatasync().map_err(|source| Error::device("fdatasync", 0, DISK_BLOCK_BYTES, source))?;
        self.place_all(root);
        self.state.shared().next_version.store(root.epoch_start.0);
        self.start(guard, root, READY);
        Ok(())
    }

    /// Opens a container that another process may have open already, or may not. The file's lock keeps those
    /// out who do not share the memory.
    ///
    /// # Errors
    /// [`Error::InUse`]; [`Error::OtherContainer`] and [`Error::ChangedElsewhere`] where the memory is not,
    /// or no longer, the file's; [`Error::Damaged`], [`Error::Foreign`], [`Error::Unsupported`] and
    /// [`Error::KeyMissing`] for what no root can be read of, or not with these keys.
    pub fn open(
        device: D,
        processes: P,
        words: &'m [W],
        recovery: Recovery,
        options: Options<'m>,
    ) -> Result<(Self, Option<OpenReport>), Error> {
        let mut container = Container::over(device, processes, words, options)?;
        let guard = CommitGuard::lock(container.state.shared(), &container.processes);
        let state = container.state.shared().state.load();
        let report = match state {
            READY => container.attach(&guard).map(|()| None),
            READ_ONLY if options.read_only => container.attach(&guard).map(|()| None),
            READ_ONLY => container.begin_writing(&guard, recovery).map(Some),
            _ => container.load(&guard, recovery).map(Some),
        }?;
        drop(guard);
        Ok((container, report))
    }

    pub(crate) fn over(device: D, processes: P, words: &'m [W], options: Options<'m>) -> Result<Self, Error> {
        let state = SharedState::new(words, options.geometry)?;
        Ok(Container { device, processes, state, options, id: [0; 16], seed: 0, salvaged: Vec::new() })
    }

    pub(crate) fn set_id(&mut self, id: ContainerId) {
        self.id = id;
        self.seed = record::seed_of(&id);
    }

    /// Who only reads needs no lock: what others write shows as damage at worst.
    fn lock_file(&self, mode: LockMode) -> Result<(), Error> {
        if self.options.read_only {
            return Ok(());
        }
        let locked = self.device.try_lock(mode).map_err(|source| Error::device("lock", 0, 0, source))?;
        if locked { Ok(()) } else { Err(Error::InUse) }
    }

    fn attach(&mut self, guard: &CommitGuard<'_, W>) -> Result<(), Error> {
        self.lock_file(LockMode::Shared)?;
        self.set_id(self.state.container());
        self.check_file(guard)
    }

    /// The memory outlives files: this one may be another by now, or changed by somebody who did not share
    /// the memory.
    fn check_file(&self, guard: &CommitGuard<'_, W>) -> Result<(), Error> {
        let Some((found, sequence)) = whose(&self.device)? else {
            return self.find_root().map(drop);
        };
        if found != self.id {
            return Err(Error::OtherContainer { expected: self.id, found });
        }
        let shared = self.state.shared();
        // A commit that failed or died may have left the memory behind the file.
        let is_settled = shared.unfinished.load() == IDLE && shared.poisoned.load() == 0;
        let known = self.root_held(guard)?.sequence.0;
        if is_settled && sequence > known {
            return Err(Error::ChangedElsewhere { expected: known, found: sequence });
        }
        Ok(())
    }

    fn load(&mut self, guard: &CommitGuard<'_, W>, recovery: Recovery) -> Result<OpenReport, Error> {
        self.lock_file(LockMode::Exclusive)?;
        self.state.clear(guard);
        self.state.shared().state.store(LOADING);
        let mut found = self.find_root()?;
        self.set_id(found.root.container);
        self.check_size(&found.root)?;
        if found.root.base != Base::None {
            self.base_device().base_size().map_err(|source| base_missing(found.root.base, source))?;
        }
        self.load_root(guard, &found.root)?;
        self.fit_to_base(guard, &mut found.root)?;
        let report = self.take_up(guard, found, recovery)?;
        self.lock_file(LockMode::Shared)?;
        Ok(report)
    }

    /// The first who may write, after others who only read: the map is in memory, and nothing of what writers
    /// need.
    fn begin_writing(&mut self, guard: &CommitGuard<'_, W>, recovery: Recovery) -> Result<OpenReport, Error> {
        self.lock_file(LockMode::Exclusive)?;
        self.set_id(self.state.container());
        if self.state.shared().poisoned.load() != 0 {
            return Err(Error::Poisoned);
        }
        self.check_file(guard)?;
        // If this process dies on the way, memory may be behind the file.
        self.state.shared().unfinished.store(IN_COMMIT);
        let mut found = self.find_root()?;
        // What was read was fitted to the base when it was loaded.
        found.root.cut(self.pages());
        let report = self.take_up(guard, found, recovery)?;
        self.state.shared().unfinished.store(IDLE);
        self.lock_file(LockMode::Shared)?;
        Ok(report)
    }

    /// From a root in memory to a container that is used.
    fn take_up(
        &self,
        guard: &CommitGuard<'_, W>,
        found: Found,
        recovery: Recovery,
    ) -> Result<OpenReport, Error> {
        let mut root = found.root;
        self.state.shared().ring.store(found.ring);
        // Whatever of that is still referred to: it was durable before the root was.
        let promised = root.end.saturating_mul(UNIT_BYTES as u64);
        let end = self.place(&mut root, recovery)?;
        let needed = promised.max(end);
        let size = self.device.size().map_err(|source| Error::device("size", 0, 0, source))?;
        let mut report = OpenReport {
            sequence: root.sequence.0,
            epoch: root.epoch.saturating_add(1),
            was_closed: root.closed,
            broken_roots: found.broken,
            whole_roots: found.whole,
            // In whole disk blocks: cutting one would write it, and a power failure could take what is
            // durable in it.
            discarded_bytes: size
                .saturating_sub(end.max(HEAD_BYTES as u64).next_multiple_of(DISK_BLOCK_BYTES as u64)),
            missing_bytes: if needed > HEAD_BYTES as u64 { needed.saturating_sub(size) } else { 0 },
            rolled_forward: 0,
        };
        if self.options.read_only {
            self.start(guard, &root, READ_ONLY);
        } else {
            self.begin_epoch(guard, root, recovery, size, &mut report)?;
        }
        Ok(report)
    }

    /// The shared memory is for segments of one size.
    ///
    /// # Errors
    /// [`Error::SharedMemory`].
    pub(crate) fn check_size(&self, root: &Root) -> Result<(), Error> {
        let (expected, found) = (self.options.geometry.pages_max.into(), root.pages_max.into());
        if expected == found {
            return Ok(());
        }
        Err(Error::SharedMemory { what: "pages of a segment", expected, found })
    }

    /// Makes what was found durable, above all versions that were given out before, and the rest of the file
    /// gone.
    fn begin_epoch(
        &self,
        guard: &CommitGuard<'_, W>,
        found: Root,
        recovery: Recovery,
        size: u64,
        report: &mut OpenReport,
    ) -> Result<(), Error> {
        let forward = match recovery {
            Recovery::Discard => Vec::new(),
            // A whole base has all pages, and its map is empty.
            Recovery::RollForward if found.base == Base::Whole => Vec::new(),
            Recovery::RollForward => self.unrooted_records(&found, size)?,
        };
        let (sequence, epoch) = (found.next_sequence()?, found.next_epoch()?);
        let mut root = Root { sequence, epoch, closed: false, ..found };
        let epoch_start = root.version_limit;
        let version_limit = epoch_start.plus(crate::format::root::VERSIONS_AHEAD).ok_or(Error::Limit {
            what: "versions of a container's life",
            found: epoch_start.0,
            allowed: 1 << VERSION_BITS,
        })?;
        if forward.is_empty() {
            // Otherwise with the commit of what is rolled forward, which may have to begin anew until then.
            (root.epoch_start, root.version_limit) = (epoch_start, version_limit);
        }
        self.state.shared().next_version.store(epoch_start.0);
        // Roots of commits and openings that were killed may be in the cache alone; one after the other they
        // would be written over the last durable one. So may pages that were written in place.
        if root.base == Base::Returning {
            sync_base(self.state.shared(), self.options.fault, self.base_device())?;
        }
        self.sync(guard)?;
        self.write_root(guard, &mut root)?;
        if forward.is_empty() && report.discarded_bytes > 0 {
            // Gives the space back. Nothing relies on it: what lies behind the root's end is distinguished from what
            // will by its versions.
            let end = size - report.discarded_bytes;
            self.device.truncate(end).map_err(|source| Error::device("truncate", end, 0, source))?;
        }
        self.copy_root(guard, &root);
        (root.epoch_start, root.version_limit) = (epoch_start, version_limit);
        let state = &self.state.shared().state;
        // Nobody writes before what is rolled forward is durable: until then the file's root has the epoch
        // that ended.
        self.start(guard, &root, state.load());
        if !forward.is_empty() {
            report.rolled_forward = forward.len() as u32;
            report.discarded_bytes = 0;
            self.roll_forward(&root, &forward, size);
            self.commit_locked(guard, false)?;
        }
        state.store(READY);
        Ok(())
    }

    /// Lets the container be used.
    pub(crate) fn start(&self, guard: &CommitGuard<'_, W>, root: &Root, state: u64) {
        let shared = self.state.shared();
        self.state.set_container(&root.container);
        self.state.store_image(&root.encode(None), guard);
        self.state.set_pages(root.pages);
        self.state.set_base(root);
        shared.version_limit.store(root.version_limit.0);
        shared.dictionaries_given.store(root.dictionaries_given.into());
        let known: Vec<_> = root.dictionaries.iter().map(|known| known.number).collect();
        known.iter().for_each(|number| self.state.open_dictionary(*number, &known, guard));
        shared.state.store(state);
    }

    /// Reads the ring, and where it stands.
    ///
    /// # Errors
    /// [`Error::OtherContainer`] where it is of another container; as [`find_root`](Self::find_root).
    pub(crate) fn newest_root_on_device(&self) -> Result<Root, Error> {
        let found = self.find_root()?;
        if found.root.container != self.id {
            return Err(Error::OtherContainer { expected: self.id, found: found.root.container });
        }
        self.state.shared().ring.store(found.ring);
        Ok(found.root)
    }

    /// The newest whole root of the file.
    ///
    /// # Errors
    /// As [`stored::find_root`](crate::engine::stored::find_root).
    pub(crate) fn find_root(&self) -> Result<Found, Error> {
        find_root(&self.device, &self.options)
    }

    /// Reads and proves the record of the map at `place`; returns its payload, opened.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the record there is not whole, not of this kind, or not the one that the place
    /// means; [`Error::Device`].
    pub(crate) fn read_map(&self, place: Place, kind: Kind, part: Part) -> Result<Vec<u8>, Error> {
        read_map(&self.device, &self.options, &self.id, place, kind, part)
    }

    /// Reads the places of a root's leaves, by leaf; none if it has no index.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::Damaged`] where the index cannot be read.
    pub(crate) fn read_index(&self, root: &Root) -> Result<Vec<Place>, Error> {
        if root.index.span().is_none() {
            return Ok(Vec::new());
        }
        let payload = self.read_map(root.index, Kind::Index, Part::MapIndex)?;
        map::decode_index(&payload).ok_or_else(|| not_content_of(root.index, Part::MapIndex))
    }

    /// Reads the entries of a delta, by block.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::Damaged`] where the delta cannot be read.
    pub(crate) fn read_delta(&self, place: Place) -> Result<Vec<(Block, Entry)>, Error> {
        let payload = self.read_map(place, Kind::Delta, Part::MapDelta)?;
        map::decode_delta(&payload).ok_or_else(|| not_content_of(place, Part::MapDelta))
    }

    /// Takes what the root has of the map beside leaves into memory, and where leaves are.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Device`] where its index, a delta, or a leaf that a delta needs cannot
    /// be read.
    pub(crate) fn load_root(&self, guard: &CommitGuard<'_, W>, root: &Root) -> Result<(), Error> {
        let places = self.read_index(root)?;
        self.state.shared().load_limit.store(root.pages.into());
        self.state.shared().load_end.store(root.end);
        for leaf in leaves::all() {
            match places.get(leaf.0).filter(|place| place.span().is_some()) {
                Some(place) => self.state.set_leaf_place(leaf, *place),
                None => self.state.set_loaded(leaf),
            }
        }
        for place in &root.deltas {
            self.apply(guard, &self.read_delta(*place)?, root.pages)?;
        }
        self.apply(guard, &root.inline, root.pages)
    }

    fn apply(&self, guard: &CommitGuard<'_, W>, items: &[(Block, Entry)], pages: u32) -> Result<(), Error> {
        for (block, entry) in items.iter().filter(|(block, _)| block.0 < pages) {
            if entry.is_missing() {
                // Not to be found missing and looked for in its leaf.
                self.load_leaf(block.leaf())?;
            }
            self.state.set_entry(*block, *entry);
            self.state.mark_leaf(block.leaf(), guard);
        }
        Ok(())
    }

    /// Finds room for what is to be written; returns the first byte behind what the root refers to.
    fn place(&self, root: &mut Root, recovery: Recovery) -> Result<u64, Error> {
        // To look for records that are newer than the map's, all of it is needed.
        let must = recovery == Recovery::RollForward || self.is_all_loaded();
        // Where much is free: short openings that all append would make the file longer and longer.
        let unused = root.known_free + (root.end - root.known_end);
        let should = unused.saturating_mul(self.options.tuning.sparse_divisor) > root.end;
        // What follows counts all extents, or none.
        self.state.shared().unloaded_at.store(0);
        // A leaf that cannot be loaded is reported to the readers of its pages, and nothing is freed until it
        // can.
        let end = if (must || should) && self.load_leaves().is_ok() {
            let end = self.place_all(root);
            root.end = end / UNIT_BYTES as u64;
            (root.known_end, root.known_free) = (root.end, self.state.shared().known_free.load());
            end
        } else {
            self.place_behind(root)?
        };
        self.state.shared().known_end.store(root.known_end);
        self.state.shared().known_free.store(root.known_free);
        Ok(end)
    }

    /// With all leaves loaded: finds free and used extents; returns the first byte behind what the root
    /// refers to.
    pub(crate) fn place_all(&self, root: &Root) -> u64 {
        let usage = self.count_extents(root, root.pages);
        self.set_extents(&usage);
        let free = usage.free_units(self.options.geometry.extent_units);
        self.state.shared().known_free.store(free);
        usage.end * UNIT_BYTES as u64
    }

    /// Lets records be appended behind what the root refers to, without knowing what of that is free.
    fn place_behind(&self, root: &Root) -> Result<u64, Error> {
        let geometry = &self.options.geometry;
        let usage = self.count_extents(root, root.pages);
        let limit = (u64::from(geometry.extent_units) * u64::from(geometry.extents_max)).min(u32::MAX.into());
        let (what, found, length) = ("end in units", root.end, DISK_BLOCK_BYTES as u64);
        let damage = |reason| Damage { part: Part::Root, block: None, offset: 0, length, reason };
        if root.end > limit {
            return Err(damage(Reason::Over { what, limit, found }).into());
        }
        if root.end < usage.end {
            return Err(damage(Reason::Under { what, limit: usage.end, found }).into());
        }
        self.append_behind(root.end as u32);
        Ok(root.end * UNIT_BYTES as u64)
    }

    /// Nothing below `end` is known to be free.
    fn append_behind(&self, end: u32) {
        let size = self.options.geometry.extent_units;
        let extents = end.div_ceil(size);
        let shared = self.state.shared();
        shared.unknown_extents.store(extents.into());
        self.set_cursor_behind(end, extents, 0);
        shared.free_extents.store(0);
        shared.live_units.store(u64::from(extents) * u64::from(size));
    }

    /// What the entries in memory refer to, and what else the root does. Entries that lead out of the file
    /// are their readers' to find; they take no space.
    pub(crate) fn count_extents(&self, root: &Root, pages: u32) -> Usage {
        let size = self.options.geometry.extent_units;
        let limit = u64::from(size) * u64::from(self.options.geometry.extents_max);
        let pages = self.state.entries(pages).filter_map(|(_, entry)| entry.record_span());
        let places = leaves::all().map(|leaf| self.state.leaf_place(leaf)).chain(root.places());
        let spans = pages.chain(places.filter_map(Place::span));
        let is_within = |span: &Span| {
            span.end() <= limit.min(u32::MAX.into()) && u64::from(span.location.0) >= HEAD.end()
        };
        let mut usage = Usage::default();
        for span in [HEAD].into_iter().chain(spans.filter(is_within)) {
            usage.add(span, size);
        }
        usage
    }

    fn set_extents(&self, usage: &Usage) {
        let size = self.options.geometry.extent_units;
        let mut free = 0;
        self.set_extents_end(usage.used.len() as u32);
        for (extent, live) in usage.used.iter().enumerate() {
            let (finished, state) =
                if *live == 0 { (0, ExtentState::Free) } else { (size, ExtentState::Used) };
            free += u64::from(*live == 0);
            let live = (*live).min(size);
            self.state.set_extent(ExtentNumber(extent as u32), Extent { finished, live, state });
        }
        let last = usage.used.last().copied().unwrap_or_default();
        self.set_cursor_behind(usage.end as u32, usage.used.len() as u32, last.min(size));
        let shared = self.state.shared();
        shared.free_extents.store(free);
        shared.live_units.store(usage.used.iter().map(|live| u64::from((*live).min(size))).sum());
    }

    /// The last extent's rest is filled first, from a disk block of its own on.
    fn set_cursor_behind(&self, end: u32, extents: u32, live: u32) {
        let size = self.options.geometry.extent_units;
        let run_end = extents * size;
        let start = end.next_multiple_of((DISK_BLOCK_BYTES / UNIT_BYTES) as u32).min(run_end);
        let finished = start - (extents - 1) * size;
        self.set_extents_end(extents);
        self.state.set_extent(ExtentNumber(extents - 1), Extent { finished, live, state: ExtentState::Used });
        self.state.set_cursor(start, run_end);
    }

    /// Before any of their words is set, and after those behind are cleared: who zeroes this memory after a
    /// death zeroes the words of so many.
    fn set_extents_end(&self, extents: u32) {
        let words = self.state.extent_words();
        let before = (self.state.extents_end() as usize).min(words.len());
        words.get(extents as usize..before).unwrap_or_default().iter().for_each(|word| word.store(0));
        self.state.shared().extents_end.store(extents.into());
    }

    /// The newest records of the epoch that ended, by block, where newer than the root's.
    ///
    /// What was given its version after the root was written is. Of what was under way then, a record is if
    /// the root has an older record of the block; an extension or a page of zeros of that moment cannot be
    /// distinguished from an older one.
    fn unrooted_records(&self, root: &Root, size: u64) -> Result<Vec<Unrooted>, Error> {
        let is_injected = self.options.fault.is(Fault::StaleEpochRolledForward);
        let epoch = if is_injected { Version(0) } else { root.epoch_start }..root.version_limit;
        let after_root = if is_injected { Version(0) } else { root.versions_start() };
        // A dictionary is dropped when its last page was written anew: such a record is not the newest.
        let is_known =
            |number| number == 0 || root.dictionaries.iter().any(|dictionary| dictionary.number == number);
        let mut newest: std::collections::BTreeMap<Block, (Entry, Version)> = Default::default();
        crate::engine::scan::scan(&self.device, self.seed, HEAD_BYTES as u64..size, |location, header| {
            let span = Span { location, units: header.units() };
            if let Kind::Page(page) = header.kind
                && page.block.0 < root.pages_max
                // A process that was killed in its write may have left all but the last zeros.
                && span.end() * UNIT_BYTES as u64 <= size
                && epoch.contains(&header.version)
                && is_known(page.dictionary)
            {
                let entry = Entry::record(span, header.version);
                let best = newest.entry(page.block).or_insert((entry, header.version));
                if best.1 < header.version {
                    *best = (entry, header.version);
                }
            }
        })?;
        let mut buffer = Vec::new();
        let mut kept = Vec::new();
        for (block, (entry, version)) in newest {
            let known = if block.0 < root.pages { self.state.entry(block) } else { Entry::MISSING };
            let is_newer = match known.is_record() {
                // One that cannot be read is no reason to lose another.
                true => self
                    .read_at(known, block, &mut buffer)
                    .map_or(true, |record| record.header.version < version),
                false => version >= after_root,
            };
            if is_newer {
                kept.push(Unrooted { block, entry, version });
            }
        }
        Ok(kept)
    }

    /// Takes records over where they lie. Until the commit that follows, a crash finds them there again:
    /// nothing is written where they or the root's records are.
    fn roll_forward(&self, root: &Root, records: &[Unrooted], size: u64) {
        let mut usage = self.count_extents(root, root.pages);
        let extent_units = self.options.geometry.extent_units;
        records.iter().for_each(|record| usage.add(record.entry.span(), extent_units));
        if self.state.unknown_extents() == 0 {
            self.set_extents(&usage);
        } else {
            let limit = self.options.geometry.bytes_max().min(size.next_multiple_of(DISK_BLOCK_BYTES as u64));
            self.append_behind(usage.end.max(limit / UNIT_BYTES as u64).min(u32::MAX.into()) as u32);
        }
        for Unrooted { block, entry, version } in records {
            // Nobody else is there, and no truncation is under way.
            let _ = self.state.grow(block.0 + 1, *version, &self.processes);
            self.state.publish(*block, *entry, &self.processes);
        }
    }
}

/// Whether memory has what no root in the file has, or what only it knows of a commit that failed: opening
/// the file again would not give the same. For who has made sure that nobody is using the container. A
/// collector's copies are no reason: the originals are where the root says.
pub(crate) fn has_uncommitted<W: Word>(live: &SharedState<'_, W>) -> bool {
    let shared = live.shared();
    if live.has_unsynced_base() {
        return true;
    }
    if shared.state.load() != READY {
        return shared.poisoned.load() != 0;
    }
    let is_unsettled = shared.poisoned.load() != 0 || shared.unfinished.load() != IDLE;
    let size = live.size();
    // A root that cannot be read here is none that it could be compared with.
    let is_in_root = |root: Root| root.pages == size.pages && root.versions_start() == live.next_version();
    let is_committed = || Root::decode_image(&live.image()).is_ok_and(is_in_root);
    let is_dirty = || live.entries(size.pages).any(|(_, entry)| entry.is_dirty());
    is_unsettled || size.is_cutting || !is_committed() || is_dirty()
}

/// Whether no commit can succeed before the server starts again. A failed fsync of who was loading it is
/// forgotten when it is loaded again.
pub(crate) fn has_lost_commits<W: Word>(live: &SharedState<'_, W>) -> bool {
    let shared = live.shared();
    shared.poisoned.load() != 0 && matches!(shared.state.load(), READY | READ_ONLY)
}

/// Whether the container was opened for writing and not closed since: opening it again would skip versions.
pub(crate) fn is_to_be_closed<W: Word>(live: &SharedState<'_, W>) -> bool {
    let is_closed = || Root::decode_image(&live.image()).is_ok_and(|root| root.closed);
    live.shared().state.load() == READY && !is_closed()
}

/// A record of the map that is whole, and has not what such a record has.
fn not_content_of(place: Place, part: Part) -> Error {
    let (offset, length) = (place.location.offset(), place.bytes.into());
    Damage { part, block: None, offset, length, reason: Reason::Content }.into()
}
