//! Commits: what an fsync does.
//!
//! Under the commit lock, in this order, each step for the reason given:
//!
//! 1. note which extents have no writer left in them: after the next step nothing will ever refer to what
//!    they lack;
//! 2. take the entries and their dirty marks: what is published later is the next commit's;
//! 3. append the map's records; leave the disk block behind them, and wait for writers that are still in it:
//!    a power failure may destroy a disk block that is being written, and this one is about to hold what is
//!    durable;
//! 4. fdatasync: what the root will refer to is durable, pages and map alike;
//! 5. write the root into the next superblock slot of the ring, and fdatasync: this is the commit;
//! 6. take the root into memory, and write its copy, which the next commit's first fdatasync makes durable;
//! 7. free the extents noted that the root does not refer to: the previous root is no longer needed, and
//!    nobody is led by it.
//!
//! Each commit goes through the phases of [`prepared`](crate::engine::prepared), which a
//! [group](crate::engine::group) does for many containers at once.
//!
//! A failure before 5 leaves the old root and everything in memory; the next commit writes all leaves, and
//! where space is short begins with step 7 for the root that it finds in the file, as failed commits and
//! refused writes have taken space too. A failed fdatasync poisons the container: the kernel may have thrown
//! the bytes away and call them clean. Where nothing changed, 1 and 2 are all there is.

use crate::device::{Device, DeviceError, Need, ProcessTable};
use crate::engine::base::sync_base;
use crate::engine::container::{Container, RESERVE_TRIES};
use crate::engine::leaves;
use crate::engine::prepared::{Due, Lock, Prepared, sync_name, sync_with};
use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::error::Error;
use crate::format::map;
use crate::format::record::Kind;
use crate::format::root::{Base, DISK_BLOCK_BYTES, Identity, KEY_BYTES, Place, Root, SUPERBLOCK_SLOTS};
use crate::format::root::{HEAD, VERSIONS_AHEAD};
use crate::format::units::{Block, ExtentNumber, LEAF_ENTRIES, Leaf, Location, Span, VERSION_BITS, Version};
use crate::shared::allocator::{Purpose, Usage};
use crate::shared::lock::CommitGuard;
use crate::shared::region::{IDLE, IN_COMMIT, IN_SYNC};
use crate::shared::state::{Counter, SharedState};
use crate::shared::word::Word;

/// Entries at most of one delta.
const DELTA_ITEMS_MAX: usize = 1 << 15;
const _: () =
    assert!(DELTA_ITEMS_MAX * crate::format::root::ITEM_BYTES + 4 <= crate::format::record::META_PAYLOAD_MAX);

/// How often a commit looks for writers in the disk block that it leaves, with [`ProcessTable::relax`] in
/// between.
const WRITERS_TRIES: u32 = 200;

/// What a call of [`Container::commit`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Sequence of the root, if this call wrote one. None if nothing had changed since the last one, or if a
    /// commit that another process began after the call served it.
    pub sequence: Option<u64>,
}

/// A moment in a container's life, as its commits count it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(u64);

/// What a commit found in the shared state.
pub(crate) struct Snapshot {
    pages: u32,
    changed: Vec<(Block, Entry)>,
    /// What the root will refer to.
    usage: Usage,
    /// Extents without a writer, before the entries were looked at.
    closed: Vec<bool>,
    /// Extents below this are not counted: leaves that are not loaded may refer to them.
    uncounted: u32,
}

/// How a root is written.
#[derive(Clone, Copy)]
struct RootPlan {
    /// It says that nothing is written afterwards.
    closed: bool,
    /// A commit before this one died: the map is written from memory alone.
    anew: bool,
}

/// A root that is about to be written.
pub(crate) struct Draft {
    pub(crate) root: Root,
    /// Places of all leaves, if they were written anew.
    leaves: Option<Vec<Place>>,
}

impl<'m, D: Device, P: ProcessTable, W: Word> Container<'m, D, P, W> {
    /// Makes durable everything that was written, extended or truncated before the call, by any process.
    /// Readers and writers go on meanwhile. Costs no fdatasync where nothing was written since the last commit.
    ///
    /// # Errors
    /// After an error it is not known what a power failure would leave, except that it is the last commit's
    /// state or newer. Only [`Error::is_no_space`] and failed reads and writes may be tried again; a failed
    /// fsync fails every later commit with [`Error::Poisoned`].
    pub fn commit(&self) -> Result<Committed, Error> {
        self.commit_as(false, None)
    }

    /// Now: for [`commit_since`](Self::commit_since).
    pub fn moment(&self) -> Moment {
        Moment(self.state.shared().commit_begun.load())
    }

    /// As a [`commit`](Self::commit) that was called at `moment`: any that has begun since serves it, though
    /// others may have written more by now. For who owes an fsync for what was written before, as a
    /// checkpoint does, and has had a [group](crate::engine::group) committed since.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_since(&self, moment: Moment) -> Result<Committed, Error> {
        self.commit_as(false, Some(moment))
    }

    /// Commits, and says in the root that nothing was written afterwards.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn close(&self) -> Result<Committed, Error> {
        self.commit_as(true, None)
    }

    fn commit_as(&self, closed: bool, since: Option<Moment>) -> Result<Committed, Error> {
        self.check_writable()?;
        let moment = since.unwrap_or_else(|| self.moment());
        let guard = self.lock_commit();
        match self.prepare_after(moment, guard, closed)? {
            None => Ok(Committed { sequence: None }),
            Some(prepared) => prepared.write_root()?.finish(),
        }
    }

    /// The first phase of a [`commit`](Self::commit). None: there is nothing to be done.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn prepare_commit(&self) -> Result<Option<Prepared<'_, 'm, D, P, W>>, Error> {
        self.check_writable()?;
        let moment = self.moment();
        let guard = self.lock_commit();
        self.prepare_after(moment, guard, false)
    }

    /// As [`prepare_commit`](Self::prepare_commit), without waiting. None: somebody who lives holds the
    /// commit lock.
    #[allow(clippy::type_complexity, reason = "that of prepare_commit, or none")]
    pub(crate) fn try_prepare(&self) -> Option<Result<Option<Prepared<'_, 'm, D, P, W>>, Error>> {
        if let Err(error) = self.check_writable() {
            return Some(Err(error));
        }
        let moment = self.moment();
        let guard = self.try_lock_commit()?;
        Some(self.prepare_after(moment, guard, false))
    }

    /// None: a commit that began since the moment served the caller, or nothing has changed.
    fn prepare_after<'c>(
        &'c self,
        Moment(begun_before): Moment,
        guard: CommitGuard<'c, W>,
        closed: bool,
    ) -> Result<Option<Prepared<'c, 'm, D, P, W>>, Error> {
        let joined = self.state.shared().commit_done.load() > begun_before && !closed;
        if joined {
            return Ok(None);
        }
        self.prepare_with(Lock::Own(guard), closed, None::<fn(&mut Root)>)
    }

    /// Commits with another identity: the segment was moved.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn rename(&self, identity: Identity) -> Result<(), Error> {
        self.commit_changing(|root| root.identity = identity)
    }

    /// Commits with the same data key wrapped by another master key. The older roots in the ring still name
    /// the one before until two more commits were made; whoever opens the container anew needs the new one.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn rekey(&self, key_id: [u8; 16], slot: [u8; KEY_BYTES]) -> Result<(), Error> {
        self.commit_changing(|root| (root.key_id, root.key) = (key_id, slot))
    }

    /// Asks the medium to begin writing what the next commit will wait for, if that is at least `bytes` of pages
    /// more than when any process last did: so that who commits, and who shares the medium, waits in many small
    /// portions and not in a large one. Does nothing while somebody holds the commit lock. Returns whether it asked.
    ///
    /// # Errors
    /// As of a failed fsync ([`commit`](Self::commit)).
    pub fn begin_writeback(&self, bytes: u64) -> Result<bool, Error> {
        self.check_writable()?;
        let counter = |counter| self.state.counter(counter);
        let due = || {
            (counter(Counter::WrittenBytes) + counter(Counter::MovedBytes))
                .saturating_sub(counter(Counter::WritebackBytes))
        };
        if due() < bytes.max(1) || self.state.shared().poisoned.load() != 0 {
            return Ok(false);
        }
        let Some(_guard) = self.try_lock_commit() else { return Ok(false) };
        let shared = self.state.shared();
        if shared.unfinished.load() != IDLE {
            // Another process died in a commit: the next one finds out what that means.
            return Ok(false);
        }
        self.state.count(Counter::WritebackBytes, due());
        sync_with(shared, self.options.fault, || self.device.begin_writeback(), "begin of writeback")?;
        Ok(true)
    }

    pub(crate) fn commit_changing(&self, change: impl FnOnce(&mut Root)) -> Result<(), Error> {
        self.check_writable()?;
        let guard = self.lock_commit();
        self.commit_with(&guard, false, Some(change)).map(drop)
    }

    /// Commits now, not joining anybody.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_now(&self) -> Result<(), Error> {
        let guard = self.lock_commit();
        self.commit_locked(&guard, false).map(drop)
    }

    pub(crate) fn commit_locked(
        &self,
        guard: &CommitGuard<'_, W>,
        closed: bool,
    ) -> Result<Option<u64>, Error> {
        self.commit_with(guard, closed, None::<fn(&mut Root)>)
    }

    /// Commits, with a change of what the root says beside the map. None: there was nothing to be written.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_with(
        &self,
        guard: &CommitGuard<'_, W>,
        closed: bool,
        change: Option<impl FnOnce(&mut Root)>,
    ) -> Result<Option<u64>, Error> {
        match self.prepare_with(Lock::Lent(guard), closed, change)? {
            None => Ok(None),
            Some(prepared) => Ok(prepared.write_root()?.finish()?.sequence),
        }
    }

    /// Steps 1 to 3. None: there is nothing to be written, and the commit is done.
    fn prepare_with<'c>(
        &'c self,
        lock: Lock<'c, W>,
        closed: bool,
        change: Option<impl FnOnce(&mut Root)>,
    ) -> Result<Option<Prepared<'c, 'm, D, P, W>>, Error> {
        let shared = self.state.shared();
        let guard = lock.guard();
        self.check_container()?;
        if shared.poisoned.load() != 0 {
            return Err(Error::Poisoned);
        }
        let unfinished = shared.unfinished.load();
        if unfinished == IN_SYNC && !self.options.fault.is(Fault::DeadHolderTrusted) {
            // A process died in an fsync. If that failed, nobody will ever learn of it.
            shared.poisoned.store(1);
            return Err(Error::Poisoned);
        }
        let anew = unfinished != IDLE && !self.options.fault.is(Fault::DeadHolderTrusted);
        // A step that fails leaves this as it is, for the next commit to see.
        shared.unfinished.store(IN_COMMIT);
        let number = shared.commit_begun.add(1) + 1;
        if self.is_completion_due() {
            // What cannot be loaded is reported to the readers of those pages.
            let _ = self.complete_locked(guard);
        }
        self.device.pause();
        let mut base = if anew { self.newest_root_on_device()? } else { self.root_held(guard)? };
        let mut is_changed = change.map(|change| change(&mut base)).is_some();
        let plain = self.state.base();
        if plain == Base::Whole {
            // A process was killed while it gave the pages of the base entries.
            self.state.empty(guard, &self.processes);
        }
        is_changed |= plain != base.base;
        base.base = plain;
        let late = self.options.fault.is(Fault::DirtyClearedAfterSync);
        if late {
            self.sync(guard)?;
        }
        let mut snapshot = self.snapshot();
        if anew && self.state.is_short() {
            self.free_unreferred(guard, &base, &mut snapshot)?;
        }
        let is_as_before = snapshot.changed.is_empty() && snapshot.pages == base.pages;
        // A writer was refused a version: the limit is raised by a root.
        let is_used_up = self.state.next_version().0 > shared.version_limit.load();
        let is_due = anew || is_changed || is_used_up || !base.named || shared.map_checkpoint_due.load() != 0;
        // Pages that were written and cut off again leave records that only a newer root distinguishes from pages
        // that are to be rolled forward.
        let is_outdated = base.versions_start() != self.state.next_version();
        let is_root_due = is_outdated || (closed && !base.closed);
        if is_due || is_root_due || !is_as_before {
            let is_data_synced = late || (is_as_before && !is_due);
            let draft = self.draft_root(guard, &base, RootPlan { closed, anew }, &mut snapshot)?;
            let is_data_due = !is_data_synced && !self.options.fault.is(Fault::MapBeforeData);
            // Whatever the snapshot says is in the base was written there before.
            let is_base_due = plain == Base::Returning || self.state.has_unsynced_base();
            let due = Due::new(is_data_due, !draft.root.named).with_base(is_base_due);
            return Ok(Some(Prepared { container: self, lock, number, draft, snapshot, due }));
        }
        if self.state.has_unsynced_base() {
            sync_base(shared, self.options.fault, self.base_device())?;
        }
        // The root refers to just what the map in memory does: what neither does is free.
        self.count_map(&base, None, &mut snapshot.usage);
        self.free_extents(guard, &snapshot);
        self.end_commit(guard, number);
        Ok(None)
    }

    fn end_commit(&self, _: &CommitGuard<'_, W>, number: u64) {
        let shared = self.state.shared();
        shared.commit_done.store(number);
        shared.unfinished.store(IDLE);
    }

    /// Step 3.
    fn draft_root(
        &self,
        guard: &CommitGuard<'_, W>,
        base: &Root,
        plan: RootPlan,
        snapshot: &mut Snapshot,
    ) -> Result<Draft, Error> {
        let RootPlan { closed, anew } = plan;
        let mut draft = self.write_map(guard, base, snapshot, anew)?;
        draft.root.closed = closed;
        draft.root.version_limit = self.next_limit(guard, closed)?;
        self.count_map(&draft.root, draft.leaves.as_deref(), &mut snapshot.usage);
        draft.root.end = snapshot.usage.end;
        (draft.root.known_end, draft.root.known_free) = self.known(&snapshot.usage);
        if self.options.fault.is(Fault::ReuseBeforeCommit) {
            self.free_extents(guard, snapshot);
        }
        self.device.pause();
        // Behind pages and map records alike, and before the fsync that may be waiting for some of them.
        self.leave_disk_block(guard);
        Ok(draft)
    }

    /// Steps 6 and 7, and the end. Returns the root's sequence.
    pub(crate) fn finish(
        &self,
        guard: &CommitGuard<'_, W>,
        number: u64,
        draft: &Draft,
        snapshot: &Snapshot,
    ) -> u64 {
        // Memory first: who looks for a dictionary there must not be led to space that is used again.
        self.settle(guard, draft, snapshot);
        if !self.options.fault.is(Fault::ReuseBeforeCommit) {
            self.free_extents(guard, snapshot);
        }
        self.end_commit(guard, number);
        draft.root.sequence.0
    }

    /// No version from here on is given out before the next root.
    fn next_limit(&self, guard: &CommitGuard<'_, W>, closed: bool) -> Result<Version, Error> {
        let next = match closed {
            // None at all, so that the next opening skips none.
            true => self.state.end_versions(guard),
            false => self.state.next_version(),
        };
        let allowed = 1 << VERSION_BITS;
        let over = Error::Limit { what: "versions of a container's life", found: next.0, allowed };
        next.plus(if closed { 0 } else { VERSIONS_AHEAD }).ok_or(over)
    }

    /// Writers that reserved space before go on writing there; those that come later write elsewhere.
    fn leave_disk_block(&self, _: &CommitGuard<'_, W>) {
        self.state.leave_disk_block();
        for _ in 0..WRITERS_TRIES {
            if !self.state.has_writers_left() {
                return;
            }
            self.processes.relax();
        }
        // Killed, or stopped for so long that it will see that the disk block was left (`append`).
        self.state.give_writers_up();
    }

    fn snapshot(&self) -> Snapshot {
        let extents = self.state.extents_end();
        let uncounted = if self.state.is_unloaded() { extents } else { self.state.unknown_extents() };
        let under_writer = self.options.fault.is(Fault::ReuseUnderWriter);
        let closed = |extent| self.state.is_closed(extent) || (under_writer && !self.state.is_in_run(extent));
        let closed = (0..extents).map(|extent| extent >= uncounted && closed(ExtentNumber(extent))).collect();
        // After the extents: the entries of what is finished there lie below the end.
        let pages = self.state.pages();
        // Leaves that are not loaded refer to what is below this.
        let end = if uncounted > 0 { self.state.shared().load_end.load() } else { 0 };
        let usage = Usage { used: vec![0; extents as usize], end };
        let mut snapshot = Snapshot { pages, changed: Vec::new(), usage, closed, uncounted };
        for (block, _) in self.state.entries(pages) {
            let (entry, was_dirty) = self.state.take_dirty(block);
            if was_dirty {
                snapshot.changed.push((block, entry));
            }
            if let Some(span) = entry.record_span() {
                self.count_span(&mut snapshot.usage, span);
            }
        }
        snapshot
    }

    fn count_span(&self, usage: &mut Usage, span: Span) {
        if self.is_within(span) {
            usage.add(span, self.options.geometry.extent_units);
        }
    }

    /// Appends what the next root needs beside itself.
    fn write_map(
        &self,
        guard: &CommitGuard<'_, W>,
        base: &Root,
        snapshot: &mut Snapshot,
        anew: bool,
    ) -> Result<Draft, Error> {
        for (block, _) in &snapshot.changed {
            self.state.mark_leaf(block.leaf(), guard);
        }
        let tuning = &self.options.tuning;
        let sequence = base.next_sequence()?;
        let mut root = Root { sequence, pages: snapshot.pages, ..base.clone() };
        root.dictionaries_given = self.state.shared().dictionaries_given.load() as u16;
        root.inline = overlay(&base.inline, &snapshot.changed, snapshot.pages);
        let room = Root::inline_room(root.deltas.len(), root.dictionaries.len()).min(tuning.inline_max);
        let in_deltas: usize =
            root.deltas.iter().map(|place| place.bytes as usize / crate::format::root::ITEM_BYTES).sum();
        let limit = tuning.changes_min.max(snapshot.pages as usize / tuning.changes_divisor.max(1));
        let is_checkpoint = anew
            || self.state.shared().map_checkpoint_due.load() != 0
            || root.inline.len() > room
                && (root.deltas.len() >= tuning.deltas_max || in_deltas + root.inline.len() > limit);
        if !is_checkpoint {
            if root.inline.len() <= room {
                return Ok(Draft { root, leaves: None });
            }
            match self.write_deltas(guard, &mut root, Purpose::Page) {
                Ok(()) => return Ok(Draft { root, leaves: None }),
                // A delta is long, takes extents in a row, and gives nothing back. What is kept for commits
                // is for leaves.
                Err(Error::AddressSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.state.count(Counter::MapCheckpoints, 1);
        let leaves = self.checkpoint_map(guard, &mut root, anew, snapshot)?;
        Ok(Draft { root, leaves: Some(leaves) })
    }

    /// Moves the root's entries into delta records: one, but of the whole map.
    fn write_deltas(
        &self,
        guard: &CommitGuard<'_, W>,
        root: &mut Root,
        purpose: Purpose,
    ) -> Result<(), Error> {
        let mut payload = Vec::new();
        let mut deltas = Vec::new();
        for items in root.inline.chunks(DELTA_ITEMS_MAX) {
            payload.clear();
            map::encode_delta(items, &mut payload);
            deltas.push(self.append_map(guard, Kind::Delta, root.sequence, &payload, purpose)?);
        }
        root.deltas.extend(deltas);
        root.inline.clear();
        Ok(())
    }

    /// Writes the leaves that changed, or all that were loaded, and their index. A small segment's map fits
    /// into the root. A leaf that changed and cannot be loaded stays as it is, below a delta of what changed.
    fn checkpoint_map(
        &self,
        guard: &CommitGuard<'_, W>,
        root: &mut Root,
        anew: bool,
        snapshot: &mut Snapshot,
    ) -> Result<Vec<Place>, Error> {
        root.deltas.clear();
        root.inline.clear();
        root.index = Place::default();
        let room = Root::inline_room(0, root.dictionaries.len()).min(self.options.tuning.inline_max);
        let mut leaves_of = SharedState::<W>::leaves_of(root.pages);
        if root.pages as usize <= room && leaves_of.all(|leaf| self.load_leaf(leaf).is_ok()) {
            root.inline = self.kept(Block(0).up_to(root.pages), snapshot);
            return Ok(Vec::new());
        }
        let mut payload = Vec::new();
        let mut places = Vec::new();
        for leaf in SharedState::<W>::leaves_of(root.pages) {
            let place = self.state.leaf_place(leaf);
            if self.is_as_written(leaf, anew) {
                places.push(place);
                continue;
            }
            let is_loaded = self.load_leaf(leaf).is_ok();
            // Entries may be newer than those taken: their data is as durable after the fsync that follows,
            // and they are still marked for the next commit.
            let entries = self.kept(leaf.blocks(root.pages), snapshot);
            if !is_loaded {
                root.inline.extend(entries.into_iter().filter(|(_, entry)| !entry.is_missing()));
                places.push(place);
                continue;
            }
            let entries: Vec<Entry> = entries.into_iter().map(|(_, entry)| entry).collect();
            payload.clear();
            map::encode_leaf(leaf, &entries, &mut payload);
            places.push(self.append_map(guard, Kind::Leaf, root.sequence, &payload, Purpose::Map)?);
        }
        if root.inline.len() > room {
            self.write_deltas(guard, root, Purpose::Map)?;
        }
        payload.clear();
        map::encode_index(&places, &mut payload);
        root.index = self.append_map(guard, Kind::Index, root.sequence, &payload, Purpose::Map)?;
        Ok(places)
    }

    /// Whether a leaf's record says what memory says, or more.
    fn is_as_written(&self, leaf: Leaf, anew: bool) -> bool {
        match self.state.is_loaded(leaf) {
            true => {
                let has_record = self.state.leaf_place(leaf).location != Location(0);
                !anew && has_record && !self.state.leaf_is_marked(leaf)
            }
            false => !self.state.is_touched(leaf),
        }
    }

    /// Entries that the root will have, with the file's end behind them.
    fn kept(&self, blocks: impl Iterator<Item = Block>, snapshot: &mut Snapshot) -> Vec<(Block, Entry)> {
        let entries = blocks.map(|block| (block, self.state.entry(block).clean()));
        entries
            .inspect(|(_, entry)| {
                if let Some(span) = entry.record_span().filter(|span| self.is_within(*span)) {
                    snapshot.usage.end = snapshot.usage.end.max(span.end());
                }
            })
            .collect()
    }

    /// A damaged entry may lead out of the file: its page's readers find out, and there is no extent to keep
    /// for it.
    fn is_within(&self, span: Span) -> bool {
        let extent_units = u64::from(self.options.geometry.extent_units);
        span.end() <= u64::from(self.state.extents_end()) * extent_units
    }

    /// Appends a record of the map, from the reserve if it must be.
    ///
    /// # Errors
    /// [`Error::AddressSpace`] where nothing is left for this purpose; [`Error::Device`].
    pub(crate) fn append_map(
        &self,
        _: &CommitGuard<'_, W>,
        kind: Kind,
        sequence: Version,
        payload: &[u8],
        purpose: Purpose,
    ) -> Result<Place, Error> {
        let mut record = Vec::with_capacity(payload.len() + 128);
        let header = self.build(kind, sequence, payload, &mut record);
        let reserved = self.append(&header, &mut record, purpose, Some(Need::Commit))?;
        self.state.count(Counter::MapBytes, header.units().bytes() as u64);
        let bytes = (crate::format::record::HEADER_BYTES + header.payload_len) as u32;
        Ok(Place::of(reserved.span().location, bytes, sequence))
    }

    /// The end when all space was last known, and how much was free.
    fn known(&self, usage: &Usage) -> (u64, u64) {
        let shared = self.state.shared();
        if !self.state.is_complete() {
            return (shared.known_end.load(), shared.known_free.load());
        }
        (usage.end, usage.free_units(self.options.geometry.extent_units))
    }

    /// Adds the head and what the root refers to beside pages.
    fn count_map(&self, root: &Root, leaves: Option<&[Place]>, usage: &mut Usage) {
        self.count_span(usage, HEAD);
        let kept = leaves::all().filter(|_| leaves.is_none()).map(|leaf| self.state.leaf_place(leaf));
        for place in root.places().chain(leaves.unwrap_or_default().iter().copied()).chain(kept) {
            if let Some(span) = place.span() {
                self.count_span(usage, span);
            }
        }
    }

    /// After a commit that failed or died: frees what neither the map in memory nor the file's newest root
    /// refers to. What a part of that root's map refers to cannot be known where it is damaged; then nothing
    /// is freed.
    fn free_unreferred(
        &self,
        guard: &CommitGuard<'_, W>,
        base: &Root,
        snapshot: &mut Snapshot,
    ) -> Result<(), Error> {
        // It may be of a commit that did not come to its end. From here on it is the one that a power failure
        // leaves.
        self.sync(guard)?;
        let Ok(referred) = self.spans_of(base) else { return Ok(()) };
        let mut counted = snapshot.usage.clone();
        // Whoever has not loaded a leaf, or looks for a dictionary, goes by memory.
        let held = self.root_held(guard)?.dictionaries;
        let dictionaries = held.iter().map(|dictionary| dictionary.place);
        let leaves = leaves::all().filter(|leaf| !self.state.is_loaded(*leaf));
        let places = leaves.map(|leaf| self.state.leaf_place(leaf)).chain(dictionaries);
        let spans = places.filter_map(Place::span).chain([HEAD]).chain(referred);
        spans.for_each(|span| self.count_span(&mut counted, span));
        for (extent, closed) in snapshot.closed.iter_mut().enumerate() {
            if *closed && counted.used[extent] == 0 {
                self.state.free_extent(ExtentNumber(extent as u32));
                // It may be claimed again before this commit ends.
                *closed = false;
            }
        }
        Ok(())
    }

    /// All that a root refers to, read from the file.
    fn spans_of(&self, root: &Root) -> Result<Vec<Span>, Error> {
        let mut entries: Vec<Entry> = root.inline.iter().map(|(_, entry)| *entry).collect();
        let mut places: Vec<Place> = root.places().collect();
        for place in &root.deltas {
            entries.extend(self.read_delta(*place)?.into_iter().map(|(_, entry)| entry));
        }
        let leaves = leaves::all().zip(self.read_index(root)?);
        for (leaf, place) in leaves.filter(|(_, place)| place.span().is_some()) {
            places.push(place);
            entries.extend(self.read_leaf_at(leaf, place)?);
        }
        let records = entries.into_iter().filter_map(Entry::record_span);
        Ok(places.into_iter().filter_map(Place::span).chain(records).collect())
    }

    fn free_extents(&self, _: &CommitGuard<'_, W>, snapshot: &Snapshot) {
        let most = self.options.geometry.extent_units;
        let counted = snapshot.usage.used.iter().enumerate().skip(snapshot.uncounted as usize);
        for (extent, live) in counted {
            let number = ExtentNumber(extent as u32);
            if *live == 0 && snapshot.closed.get(extent).copied().unwrap_or_default() {
                self.state.free_extent(number);
            } else {
                // Damaged entries may overlap.
                self.state.set_live_units(number, (*live).min(most));
            }
        }
    }

    /// An fdatasync whose failure is the end of all commits.
    ///
    /// # Errors
    /// [`Error::Device`]; from then on every commit fails with [`Error::Poisoned`].
    pub(crate) fn sync(&self, _: &CommitGuard<'_, W>) -> Result<(), Error> {
        sync_with(self.state.shared(), self.options.fault, || self.device.fdatasync(), "fdatasync")
    }

    /// Writes a root that no commit makes, and makes it durable, after the file's name if that is new.
    ///
    /// # Errors
    /// [`Error::Device`]. After a failed sync, not after a failed write, every commit fails with
    /// [`Error::Poisoned`].
    pub(crate) fn write_root(&self, guard: &CommitGuard<'_, W>, root: &mut Root) -> Result<(), Error> {
        if !root.named {
            sync_name(self.state.shared(), self.options.fault, &self.device)?;
            root.named = true;
        }
        self.put_root(guard, root)?;
        self.sync(guard)
    }

    /// Writes a root into the next superblock slot of the ring.
    pub(crate) fn put_root(&self, _: &CommitGuard<'_, W>, root: &Root) -> Result<(), Error> {
        let disk_block = root.encode(self.seal());
        let ring = self.next_in_ring();
        self.state.shared().ring.store(ring);
        let offset = ring * DISK_BLOCK_BYTES as u64;
        let mut written = self.device.pwrite(&disk_block, offset);
        for _ in 0..RESERVE_TRIES {
            if written != Err(DeviceError::NoSpace)
                || !self.device.release_reserve(DISK_BLOCK_BYTES as u64, Need::Commit)
            {
                break;
            }
            written = self.device.pwrite(&disk_block, offset);
        }
        written.map_err(|source| Error::device("write", offset, DISK_BLOCK_BYTES, source))?;
        self.state.count(Counter::MapBytes, DISK_BLOCK_BYTES as u64);
        Ok(())
    }

    fn next_in_ring(&self) -> u64 {
        if self.options.fault.is(Fault::RootInPlace) {
            return 0;
        }
        (self.state.shared().ring.load() + 1) % SUPERBLOCK_SLOTS as u64
    }

    /// Takes a durable root into memory and writes its copy.
    fn settle(&self, guard: &CommitGuard<'_, W>, draft: &Draft, snapshot: &Snapshot) {
        let shared = self.state.shared();
        if let Some(leaves) = &draft.leaves {
            for leaf in leaves::all() {
                self.state.set_leaf_place(leaf, leaves.get(leaf.0).copied().unwrap_or_default());
            }
            shared.leaves_changed.iter().for_each(|word| word.store(0));
            shared.map_checkpoint_due.store(0);
        }
        let uncounted = u64::from(snapshot.uncounted);
        let counted = snapshot.usage.used.iter().skip(uncounted as usize).map(|live| u64::from(*live));
        let size = self.options.geometry.extent_units;
        let live_units = counted.sum::<u64>() + uncounted * u64::from(size);
        shared.live_units.store(live_units);
        self.set_foreground(live_units * crate::format::units::UNIT_BYTES as u64);
        shared.version_limit.store(draft.root.version_limit.0);
        self.state.store_image(&draft.root.encode(None), guard);
        self.state.count(Counter::Commits, 1);
        self.copy_root(guard, &draft.root);
    }

    /// Not waited for, and not missed if it fails: the root is durable.
    pub(crate) fn copy_root(&self, _: &CommitGuard<'_, W>, root: &Root) {
        let ring = self.next_in_ring();
        if self.device.pwrite(&root.encode(self.seal()), ring * DISK_BLOCK_BYTES as u64).is_ok() {
            self.state.shared().ring.store(ring);
            self.state.count(Counter::MapBytes, DISK_BLOCK_BYTES as u64);
        }
    }
}

/// What changed, over what was changed before, below the end.
fn overlay(before: &[(Block, Entry)], changed: &[(Block, Entry)], pages: u32) -> Vec<(Block, Entry)> {
    let mut merged = Vec::with_capacity(before.len() + changed.len());
    let mut older = before.iter().filter(|(block, _)| block.0 < pages).peekable();
    for (block, entry) in changed {
        while let Some(item) = older.next_if(|(older, _)| older < block) {
            merged.push(*item);
        }
        older.next_if(|(older, _)| older == block);
        merged.push((*block, *entry));
    }
    merged.extend(older);
    merged
}

const _: () = assert!(LEAF_ENTRIES * 8 + 64 < crate::format::record::META_PAYLOAD_MAX);
