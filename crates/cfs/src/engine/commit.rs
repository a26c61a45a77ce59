//! Commits: what an fsync does.
//!
//! Under the commit lock, in this order, each step for the reason given:
//!
//! 1. note which zones have no writer left in them: after the next step nothing will ever refer to what they lack;
//! 2. take the entries and their dirty marks: what is published later is the next commit's;
//! 3. append the map's records; leave the sheet behind them, and wait for writers that are still in it: a power failure may destroy a
//!    sheet that is being written, and this one is about to hold what is durable;
//! 4. fdatasync: what the root will refer to is durable, pages and map alike;
//! 5. write the root into the next sheet of the ring, and fdatasync: this is the commit;
//! 6. take the root into memory, and write its copy, which the next commit's first fdatasync makes durable;
//! 7. free the zones noted that the root does not refer to: the previous root is no longer needed, and nobody is led by it.
//!
//! Each commit goes through the phases of [`prepared`](crate::engine::prepared), which a [group](crate::engine::group) does for many
//! containers at once.
//!
//! A failure before 5 leaves the old root and everything in memory; the next commit writes all leaves, and where space is short begins
//! with step 7 for the root that it finds in the file, as failed commits and refused writes have taken space too. A failed fdatasync poisons
//! the container: the kernel may have thrown the bytes away and call them clean. Where nothing changed, 1 and 2 are all there is.

use crate::device::{Device, DeviceError, Need, Peers};
use crate::engine::container::{Container, RESERVE_TRIES};
use crate::engine::leaves;
use crate::engine::prepared::{Due, Lock, Prepared, sync_name, sync_with};
use crate::format::entry::Entry;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::map;
use crate::format::record::Kind;
use crate::format::root::{HEAD, VERSIONS_AHEAD};
use crate::format::root::{Identity, KEY_BYTES, Place, ROOT_SHEETS, Root, SHEET_BYTES};
use crate::format::units::{Block, Extent, LEAF_ENTRIES, Leaf, Location, VERSION_BITS, Version, ZoneNumber};
use crate::plant::Plant;
use crate::shared::live::{Counter, Live};
use crate::shared::lock::CommitGuard;
use crate::shared::region::{IDLE, IN_COMMIT, IN_SYNC};
use crate::shared::space::Purpose;
use crate::shared::word::Word;

/// Entries at most of one delta.
const DELTA_ITEMS_MAX: usize = 1 << 15;
const _: () =
    assert!(DELTA_ITEMS_MAX * crate::format::root::ITEM_BYTES + 4 <= crate::format::record::META_PAYLOAD_MAX);

/// How often a commit looks for writers in the sheet that it leaves, with [`Peers::relax`] in between.
const WRITERS_TRIES: u32 = 200;

/// What a call of [`Container::commit`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Sequence of the root, if this call wrote one. None if nothing had changed since the last one, or if a commit that another process
    /// began after the call served it.
    pub sequence: Option<u64>,
}

/// A moment in a container's life, as its commits count it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(u64);

/// What a commit found in the live state.
pub(crate) struct Snapshot {
    pages: u32,
    changed: Vec<(Block, Entry)>,
    /// Grains that the root will refer to, by zone.
    live: Vec<u32>,
    /// Zones without a writer, before the entries were looked at.
    closed: Vec<bool>,
    /// First grain behind what the root will refer to.
    end: u64,
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

impl<'m, D: Device, P: Peers, W: Word> Container<'m, D, P, W> {
    /// Makes durable everything that was written, extended or truncated before the call, by any process. Readers and
    /// writers go on meanwhile. Costs no fdatasync where nothing changed since the last commit.
    ///
    /// # Errors
    /// After an error it is not known what a power failure would leave, except that it is the last commit's state or
    /// newer. Only [`Error::is_no_space`] and failed reads and writes may be tried again; a failed fsync
    /// fails every later commit with [`Error::Poisoned`].
    pub fn commit(&self) -> Result<Committed, Error> {
        self.commit_as(false, None)
    }

    /// Now: for [`commit_since`](Self::commit_since).
    pub fn moment(&self) -> Moment {
        Moment(self.live.shared().commit_begun.load())
    }

    /// As a [`commit`](Self::commit) that was called at `moment`: any that has begun since serves it, though others may have written
    /// more by now. For who owes an fsync for what was written before, as a checkpoint does, and has had a
    /// [group](crate::engine::group) committed since.
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

    /// As [`prepare_commit`](Self::prepare_commit), without waiting. None: somebody who lives holds the commit lock.
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
        let joined = self.live.shared().commit_done.load() > begun_before && !closed;
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

    /// Commits with the same data key wrapped by another master key. The older roots in the ring still name the one before
    /// until two more commits were made; whoever opens the container anew needs the new one.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn rekey(&self, key_id: [u8; 16], slot: [u8; KEY_BYTES]) -> Result<(), Error> {
        self.commit_changing(|root| (root.key_id, root.key) = (key_id, slot))
    }

    fn commit_changing(&self, change: impl FnOnce(&mut Root)) -> Result<(), Error> {
        self.check_writable()?;
        let guard = self.lock_commit();
        self.commit_with(&guard, false, Some(change)).map(drop)
    }

    /// Commits now, not joining anybody.
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
        let shared = self.live.shared();
        let guard = lock.guard();
        self.check_container()?;
        if shared.poisoned.load() != 0 {
            return Err(Error::Poisoned);
        }
        let unfinished = shared.unfinished.load();
        if unfinished == IN_SYNC && !self.options.plant.is(Plant::DeadHolderTrusted) {
            // A process died in an fsync. If that failed, nobody will ever learn of it.
            shared.poisoned.store(1);
            return Err(Error::Poisoned);
        }
        let anew = unfinished != IDLE && !self.options.plant.is(Plant::DeadHolderTrusted);
        // A step that fails leaves this as it is, for the next commit to see.
        shared.unfinished.store(IN_COMMIT);
        let number = shared.commit_begun.add(1) + 1;
        if self.is_completion_due() {
            // What cannot be loaded is reported to the readers of those pages.
            let _ = self.complete_locked(guard);
        }
        self.device.pause();
        let mut base = if anew { self.newest_root_on_device()? } else { self.root_held(guard)? };
        let is_changed = change.map(|change| change(&mut base)).is_some();
        let late = self.options.plant.is(Plant::DirtyClearedAfterSync);
        if late {
            self.sync(guard)?;
        }
        let mut snapshot = self.snapshot();
        if anew && self.live.is_short() {
            self.free_unreferred(guard, &base, &mut snapshot)?;
        }
        let is_as_before = snapshot.changed.is_empty() && snapshot.pages == base.pages;
        // A writer was refused a version: the limit is raised by a root.
        let is_used_up = shared.next_version.load() > shared.version_limit.load();
        let is_due = anew || is_changed || is_used_up || !base.named || shared.fold_due.load() != 0;
        let is_root_due = closed && !base.closed;
        if is_due || is_root_due || !is_as_before {
            let is_data_synced = late || (is_as_before && !is_due);
            let draft = self.draft_root(guard, &base, RootPlan { closed, anew }, &mut snapshot)?;
            let is_data_due = !is_data_synced && !self.options.plant.is(Plant::MapBeforeData);
            let due = Due::new(is_data_due, !draft.root.named);
            return Ok(Some(Prepared { container: self, lock, number, draft, snapshot, due }));
        }
        // The root refers to just what the live map does: what neither does is free.
        self.count_map(&base, None, &mut snapshot);
        self.free_zones(guard, &snapshot);
        self.end_commit(guard, number);
        Ok(None)
    }

    fn end_commit(&self, _: &CommitGuard<'_, W>, number: u64) {
        let shared = self.live.shared();
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
        self.count_map(&draft.root, draft.leaves.as_deref(), snapshot);
        draft.root.end = snapshot.end;
        (draft.root.known_end, draft.root.known_free) = self.known(snapshot);
        if self.options.plant.is(Plant::ReuseBeforeCommit) {
            self.free_zones(guard, snapshot);
        }
        self.device.pause();
        // Behind pages and map records alike, and before the fsync that may be waiting for some of them.
        self.leave_sheet(guard);
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
        if !self.options.plant.is(Plant::ReuseBeforeCommit) {
            self.free_zones(guard, snapshot);
        }
        self.end_commit(guard, number);
        draft.root.sequence.0
    }

    /// No version from here on is given out before the next root.
    fn next_limit(&self, guard: &CommitGuard<'_, W>, closed: bool) -> Result<Version, Error> {
        let next = match closed {
            // None at all, so that the next opening skips none.
            true => self.live.end_versions(guard),
            false => Version(self.live.shared().next_version.load()),
        };
        let allowed = 1 << VERSION_BITS;
        let over = Error::Limit { what: "versions of a container's life", found: next.0, allowed };
        next.plus(if closed { 0 } else { VERSIONS_AHEAD }).ok_or(over)
    }

    /// Writers that reserved space before go on writing there; those that come later write elsewhere.
    fn leave_sheet(&self, _: &CommitGuard<'_, W>) {
        self.live.leave_sheet();
        for _ in 0..WRITERS_TRIES {
            if !self.live.has_writers_left() {
                return;
            }
            self.peers.relax();
        }
        // Killed, or stopped for so long that it will see that the sheet was left (`append`).
        self.live.give_writers_up();
    }

    fn snapshot(&self) -> Snapshot {
        let (unknown, zones) = (self.live.unknown_zones(), self.live.zones_end());
        let under_writer = self.options.plant.is(Plant::ReuseUnderWriter);
        let closed = |zone| self.live.is_closed(zone) || (under_writer && !self.live.is_in_run(zone));
        let closed = (0..zones).map(|zone| zone >= unknown && closed(ZoneNumber(zone))).collect();
        // After the zones: the entries of what is finished there lie below the end.
        let pages = self.live.pages();
        let live = vec![0; zones as usize];
        // Leaves that are not loaded refer to what is below this.
        let end = if unknown > 0 { self.live.shared().load_end.load() } else { 0 };
        let mut snapshot = Snapshot { pages, changed: Vec::new(), live, closed, end };
        for (block, _) in self.live.entries(pages) {
            let (entry, was_dirty) = self.live.take_dirty(block);
            if was_dirty {
                snapshot.changed.push((block, entry));
            }
            if let Some(extent) = entry.record_extent() {
                self.count_extent(&mut snapshot, extent);
            }
        }
        snapshot
    }

    fn count_extent(&self, snapshot: &mut Snapshot, extent: Extent) {
        if !self.is_within(extent) {
            return;
        }
        snapshot.end = snapshot.end.max(extent.end());
        for (zone, share) in self.live.shares(extent) {
            if zone.index() >= snapshot.live.len() {
                snapshot.live.resize(zone.index() + 1, 0);
            }
            snapshot.live[zone.index()] += share.0;
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
            self.live.mark_leaf(block.leaf(), guard);
        }
        let tuning = &self.options.tuning;
        let sequence = base.next_sequence()?;
        let mut root = Root { sequence, pages: snapshot.pages, ..base.clone() };
        root.dictionaries_given = self.live.shared().dictionaries_given.load() as u16;
        root.inline = overlay(&base.inline, &snapshot.changed, snapshot.pages);
        let room = Root::inline_room(root.deltas.len(), root.dictionaries.len()).min(tuning.inline_max);
        let in_deltas: usize =
            root.deltas.iter().map(|place| place.bytes as usize / crate::format::root::ITEM_BYTES).sum();
        let limit = tuning.changes_min.max(snapshot.pages as usize / tuning.changes_divisor.max(1));
        let fold = anew
            || self.live.shared().fold_due.load() != 0
            || root.inline.len() > room
                && (root.deltas.len() >= tuning.deltas_max || in_deltas + root.inline.len() > limit);
        if !fold {
            if root.inline.len() <= room {
                return Ok(Draft { root, leaves: None });
            }
            match self.write_deltas(guard, &mut root, Purpose::Page) {
                Ok(()) => return Ok(Draft { root, leaves: None }),
                // A delta is long, takes zones in a row, and gives nothing back. What is kept for commits is for leaves.
                Err(Error::AddressSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.live.count(Counter::Folds, 1);
        let leaves = self.fold(guard, &mut root, anew, snapshot)?;
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

    /// Writes the leaves that changed, or all that were loaded, and their index. A small segment's map fits into the root. A
    /// leaf that changed and cannot be loaded stays as it is, below a delta of what changed.
    fn fold(
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
        let mut leaves_of = Live::<W>::leaves_of(root.pages);
        if root.pages as usize <= room && leaves_of.all(|leaf| self.load_leaf(leaf).is_ok()) {
            root.inline = self.kept(Block(0).up_to(root.pages), snapshot);
            return Ok(Vec::new());
        }
        let mut payload = Vec::new();
        let mut places = Vec::new();
        for leaf in Live::<W>::leaves_of(root.pages) {
            let place = self.live.leaf_place(leaf);
            if self.is_as_written(leaf, anew) {
                places.push(place);
                continue;
            }
            let is_loaded = self.load_leaf(leaf).is_ok();
            // Entries may be newer than those taken: their data is as durable after the fsync that follows, and they are still marked
            // for the next commit.
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
        match self.live.is_loaded(leaf) {
            true => {
                let has_record = self.live.leaf_place(leaf).location != Location(0);
                !anew && has_record && !self.live.leaf_is_marked(leaf)
            }
            false => !self.live.is_touched(leaf),
        }
    }

    /// Entries that the root will have, with the file's end behind them.
    fn kept(&self, blocks: impl Iterator<Item = Block>, snapshot: &mut Snapshot) -> Vec<(Block, Entry)> {
        let entries = blocks.map(|block| (block, self.live.entry(block).clean()));
        entries
            .inspect(|(_, entry)| {
                if let Some(extent) = entry.record_extent().filter(|extent| self.is_within(*extent)) {
                    snapshot.end = snapshot.end.max(extent.end());
                }
            })
            .collect()
    }

    /// A damaged entry may lead out of the file: its page's readers find out, and there is no zone to keep for it.
    fn is_within(&self, extent: Extent) -> bool {
        let zone_grains = u64::from(self.options.geometry.zone_grains);
        extent.end() <= u64::from(self.live.zones_end()) * zone_grains
    }

    /// Appends a record of the map, from the reserve if it must be.
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
        self.live.count(Counter::MapBytes, header.grains().bytes() as u64);
        let bytes = (crate::format::record::HEADER_BYTES + header.payload_len) as u32;
        Ok(Place::of(reserved.extent().location, bytes, sequence))
    }

    /// The end when all space was last known, and how much was free.
    fn known(&self, snapshot: &Snapshot) -> (u64, u64) {
        let shared = self.live.shared();
        if self.live.unknown_zones() > 0 {
            return (shared.known_end.load(), shared.known_free.load());
        }
        let size = self.options.geometry.zone_grains;
        (snapshot.end, crate::shared::space::free_grains(&snapshot.live, snapshot.end, size))
    }

    /// Adds the head and what the root refers to beside pages.
    fn count_map(&self, root: &Root, leaves: Option<&[Place]>, snapshot: &mut Snapshot) {
        self.count_extent(snapshot, HEAD);
        let dictionaries = root.dictionaries.iter().map(|dictionary| dictionary.place);
        let places = root.deltas.iter().copied().chain(dictionaries).chain([root.index]);
        let kept = leaves::all().filter(|_| leaves.is_none()).map(|leaf| self.live.leaf_place(leaf));
        for place in places.chain(leaves.unwrap_or_default().iter().copied()).chain(kept) {
            if let Some(extent) = place.extent() {
                self.count_extent(snapshot, extent);
            }
        }
    }

    /// After a commit that failed or died: frees what neither the live map nor the file's newest root refers to. What a part of
    /// that root's map refers to cannot be known where it is damaged; then nothing is freed.
    fn free_unreferred(
        &self,
        guard: &CommitGuard<'_, W>,
        base: &Root,
        snapshot: &mut Snapshot,
    ) -> Result<(), Error> {
        // It may be of a commit that did not come to its end. From here on it is the one that a power failure leaves.
        self.sync(guard)?;
        let Ok(referred) = self.extents_of(base) else { return Ok(()) };
        let (pages, end) = (snapshot.pages, snapshot.end);
        let live = snapshot.live.clone();
        let mut counted = Snapshot { pages, changed: Vec::new(), live, closed: Vec::new(), end };
        // Whoever has not loaded a leaf, or looks for a dictionary, goes by memory.
        let held = self.root_held(guard)?.dictionaries;
        let dictionaries = held.iter().map(|dictionary| dictionary.place);
        let leaves = leaves::all().filter(|leaf| !self.live.is_loaded(*leaf));
        let places = leaves.map(|leaf| self.live.leaf_place(leaf)).chain(dictionaries);
        let extents = places.filter_map(Place::extent).chain([HEAD]).chain(referred);
        extents.for_each(|extent| self.count_extent(&mut counted, extent));
        for (zone, closed) in snapshot.closed.iter_mut().enumerate() {
            if *closed && counted.live[zone] == 0 {
                self.live.free_zone(ZoneNumber(zone as u32));
                // It may be claimed again before this commit ends.
                *closed = false;
            }
        }
        Ok(())
    }

    /// All that a root refers to, read from the file.
    fn extents_of(&self, root: &Root) -> Result<Vec<Extent>, Error> {
        let content = |part, place: Place| {
            let (offset, length) = (place.location.offset(), place.bytes.into());
            Error::from(Damage { part, block: None, offset, length, reason: Reason::Content })
        };
        let mut entries: Vec<Entry> = root.inline.iter().map(|(_, entry)| *entry).collect();
        let of_dictionaries = root.dictionaries.iter().map(|dictionary| dictionary.place);
        let mut places: Vec<Place> =
            root.deltas.iter().copied().chain([root.index]).chain(of_dictionaries).collect();
        for place in &root.deltas {
            let payload = self.read_map(*place, Kind::Delta, Part::MapDelta)?;
            let items = map::decode_delta(&payload).ok_or_else(|| content(Part::MapDelta, *place))?;
            entries.extend(items.into_iter().map(|(_, entry)| entry));
        }
        if root.index.extent().is_some() {
            let payload = self.read_map(root.index, Kind::Index, Part::MapIndex)?;
            let leaves = map::decode_index(&payload).ok_or_else(|| content(Part::MapIndex, root.index))?;
            for (leaf, place) in leaves::all().zip(leaves).filter(|(_, place)| place.extent().is_some()) {
                places.push(place);
                entries.extend(self.read_leaf_at(leaf, place)?);
            }
        }
        let records = entries.into_iter().filter_map(Entry::record_extent);
        Ok(places.into_iter().filter_map(Place::extent).chain(records).collect())
    }

    fn free_zones(&self, _: &CommitGuard<'_, W>, snapshot: &Snapshot) {
        let unknown = self.live.unknown_zones() as usize;
        let most = self.options.geometry.zone_grains;
        for (zone, live) in snapshot.live.iter().enumerate().skip(unknown) {
            let number = ZoneNumber(zone as u32);
            if *live == 0 && snapshot.closed.get(zone).copied().unwrap_or_default() {
                self.live.free_zone(number);
            } else {
                // Damaged entries may overlap.
                self.live.set_live_grains(number, (*live).min(most));
            }
        }
    }

    /// An fdatasync whose failure is the end of all commits.
    pub(crate) fn sync(&self, _: &CommitGuard<'_, W>) -> Result<(), Error> {
        sync_with(self.live.shared(), self.options.plant, || self.device.fdatasync(), "fdatasync")
    }

    /// Writes a root that no commit makes, and makes it durable, after the file's name if that is new.
    pub(crate) fn write_root(&self, guard: &CommitGuard<'_, W>, root: &mut Root) -> Result<(), Error> {
        if !root.named {
            sync_name(self.live.shared(), self.options.plant, &self.device)?;
            root.named = true;
        }
        self.put_root(guard, root)?;
        self.sync(guard)
    }

    /// Writes a root into the next sheet of the ring.
    pub(crate) fn put_root(&self, _: &CommitGuard<'_, W>, root: &Root) -> Result<(), Error> {
        let sheet = root.encode(self.options.seal);
        let ring = self.next_in_ring();
        self.live.shared().ring.store(ring);
        let offset = ring * SHEET_BYTES as u64;
        let mut written = self.device.pwrite(&sheet, offset);
        for _ in 0..RESERVE_TRIES {
            if written != Err(DeviceError::NoSpace)
                || !self.device.release_reserve(SHEET_BYTES as u64, Need::Commit)
            {
                break;
            }
            written = self.device.pwrite(&sheet, offset);
        }
        written.map_err(|source| Error::device("write", offset, SHEET_BYTES, source))?;
        self.live.count(Counter::MapBytes, SHEET_BYTES as u64);
        Ok(())
    }

    fn next_in_ring(&self) -> u64 {
        if self.options.plant.is(Plant::RootInPlace) {
            return 0;
        }
        (self.live.shared().ring.load() + 1) % ROOT_SHEETS as u64
    }

    /// Takes a durable root into memory and writes its copy.
    fn settle(&self, guard: &CommitGuard<'_, W>, draft: &Draft, snapshot: &Snapshot) {
        let shared = self.live.shared();
        if let Some(leaves) = &draft.leaves {
            for leaf in leaves::all() {
                self.live.set_leaf_place(leaf, leaves.get(leaf.0).copied().unwrap_or_default());
            }
            shared.leaves_changed.iter().for_each(|word| word.store(0));
            shared.fold_due.store(0);
        }
        let unknown = self.live.unknown_zones();
        let known: u64 = snapshot.live.iter().skip(unknown as usize).map(|live| u64::from(*live)).sum();
        let size = self.options.geometry.zone_grains;
        let live_grains = known + u64::from(unknown) * u64::from(size);
        shared.live_grains.store(live_grains);
        shared.help_at.store(self.help_from(live_grains * crate::format::units::GRAIN_BYTES as u64));
        shared.version_limit.store(draft.root.version_limit.0);
        self.live.store_image(&draft.root.encode(None), guard);
        self.live.count(Counter::Commits, 1);
        self.copy_root(guard, &draft.root);
    }

    /// Not waited for, and not missed if it fails: the root is durable.
    pub(crate) fn copy_root(&self, _: &CommitGuard<'_, W>, root: &Root) {
        let ring = self.next_in_ring();
        if self.device.pwrite(&root.encode(self.options.seal), ring * SHEET_BYTES as u64).is_ok() {
            self.live.shared().ring.store(ring);
            self.live.count(Counter::MapBytes, SHEET_BYTES as u64);
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
