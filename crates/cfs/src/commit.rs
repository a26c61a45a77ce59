//! Commits: what an fsync does.
//!
//! Under the commit lock, in this order, each step for the reason given:
//!
//! 1. note which zones have no writer left in them: after the next step nothing will ever refer to what they lack;
//! 2. take the entries and their dirty marks: what is published later is the next commit's;
//! 3. append the map's records, and fdatasync: what the root will refer to is durable, pages and map alike;
//! 4. write the root into the next sheet of the ring, and fdatasync: this is the commit;
//! 5. free the zones noted that the root does not refer to: the previous root is no longer needed;
//! 6. write the root's copy, which the next commit's first fdatasync makes durable.
//!
//! A failure before 4 leaves the old root and everything in memory; the next commit writes all leaves. A failed fdatasync poisons
//! the container: the kernel may have thrown the bytes away and call them clean.

use crate::container::{Container, RESERVE_TRIES};
use crate::device::{Device, DeviceError, Need, Peers};
use crate::entry::{Entry, GRAIN_BYTES, grains_of};
use crate::error::Error;
use crate::live::{self, Counter, Live, Word};
use crate::map::{self, LEAF_ENTRIES, LEAVES_MAX};
use crate::plant::Plant;
use crate::record::Kind;
use crate::root::{HEAD_BYTES, Identity, KEY_BYTES, Place, ROOT_SHEETS, Root, SHEET_BYTES};

/// Entries at most of one delta.
const DELTA_ITEMS_MAX: usize = 1 << 15;
const _: () = assert!(DELTA_ITEMS_MAX * crate::root::ITEM_BYTES + 4 <= crate::record::META_PAYLOAD_MAX);

/// Versions that may be given out between two commits.
pub(crate) const VERSIONS_AHEAD: u64 = 1 << 28;

/// What a call of [`Container::commit`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Sequence of the root, if this call wrote it; none if a commit begun after the call by another process served it.
    pub sequence: Option<u64>,
}

/// What a commit found in the live state.
struct Snapshot {
    pages: u32,
    changed: Vec<(u32, Entry)>,
    /// Grains that the root will refer to, by zone.
    live: Vec<u32>,
    /// Zones without a writer, before the entries were looked at.
    closed: Vec<bool>,
    /// First grain behind what the root will refer to.
    end: u64,
}

impl<D: Device, P: Peers, W: Word> Container<'_, D, P, W> {
    /// Makes durable everything that was written, extended or truncated before the call, by any process. Readers and
    /// writers go on meanwhile.
    ///
    /// After an error it is not known what a power failure would leave, except that it is the last commit's state or
    /// newer. Only [`Error::is_no_space`] and failed reads and writes may be tried again; a failed fsync
    /// fails every later commit with [`Error::Poisoned`].
    pub fn commit(&self) -> Result<Committed, Error> {
        self.commit_as(false)
    }

    /// Commits, and says in the root that nothing was written afterwards.
    pub fn close(&self) -> Result<Committed, Error> {
        self.commit_as(true)
    }

    fn commit_as(&self, closed: bool) -> Result<Committed, Error> {
        self.check_writable()?;
        let begun_before = self.live.get(live::COMMIT_BEGUN);
        self.lock_commit();
        let joined = self.live.get(live::COMMIT_DONE) > begun_before && !closed;
        let result = if joined {
            Ok(Committed { sequence: None })
        } else {
            self.commit_locked(closed).map(|sequence| Committed { sequence: Some(sequence) })
        };
        self.live.unlock(live::LOCK);
        result
    }

    /// Commits with another identity: the segment was moved.
    pub fn rename(&self, identity: Identity) -> Result<(), Error> {
        self.commit_changing(|root| root.identity = identity)
    }

    /// Commits with the same data key wrapped by another master key. The older roots in the ring still name the one before
    /// until two more commits were made; whoever opens the container anew needs the new one.
    pub fn rekey(&self, key_id: [u8; 16], slot: [u8; KEY_BYTES]) -> Result<(), Error> {
        self.commit_changing(|root| (root.key_id, root.key) = (key_id, slot))
    }

    fn commit_changing(&self, change: impl FnOnce(&mut Root)) -> Result<(), Error> {
        self.check_writable()?;
        self.lock_commit();
        let done = self.commit_with(false, change);
        self.live.unlock(live::LOCK);
        done.map(drop)
    }

    pub(crate) fn commit_locked(&self, closed: bool) -> Result<u64, Error> {
        self.commit_with(closed, |_| ())
    }

    /// Commits under the lock, with a change of what the root says beside the map.
    pub(crate) fn commit_with(&self, closed: bool, change: impl FnOnce(&mut Root)) -> Result<u64, Error> {
        if self.live.get(live::POISONED) != 0 {
            return Err(Error::Poisoned);
        }
        let unfinished = self.live.get(live::UNFINISHED);
        if unfinished == live::IN_SYNC && self.options.plant != Plant::DeadHolderTrusted {
            // A process died in an fsync. If that failed, nobody will ever be told again.
            self.live.set(live::POISONED, 1);
            return Err(Error::Poisoned);
        }
        let anew = unfinished != live::IDLE && self.options.plant != Plant::DeadHolderTrusted;
        // A step that fails leaves this as it is, for the next commit to see.
        self.live.set(live::UNFINISHED, live::IN_COMMIT);
        let number = self.live.words[live::COMMIT_BEGUN].add(1) + 1;
        if self.is_completion_due() {
            // What cannot be loaded is for the readers of those pages to be told.
            let _ = self.complete_locked();
        }
        self.device.pause();
        let mut base = if anew { self.newest_root_on_device()? } else { self.root_in_memory()? };
        change(&mut base);
        let late = self.options.plant == Plant::DirtyClearedAfterSync;
        if late {
            self.sync()?;
        }
        let mut snapshot = self.snapshot();
        let (mut root, leaves) = self.write_map(&base, &mut snapshot, anew)?;
        root.closed = closed;
        self.count_map(&root, leaves.as_deref(), &mut snapshot);
        root.end = snapshot.end;
        (root.known_end, root.known_free) = self.known(&snapshot);
        if self.options.plant == Plant::ReuseBeforeCommit {
            self.free_zones(&snapshot);
        }
        self.device.pause();
        // Behind pages and map records alike, and before the fsync that may be waiting for some of them.
        self.live.leave_sheet();
        if !late && self.options.plant != Plant::MapBeforeData {
            self.sync()?;
        }
        self.write_root(&mut root)?;
        if self.options.plant != Plant::ReuseBeforeCommit {
            self.free_zones(&snapshot);
        }
        self.settle(&root, leaves.as_deref(), &snapshot);
        self.live.set(live::COMMIT_DONE, number);
        self.live.set(live::UNFINISHED, live::IDLE);
        Ok(root.sequence)
    }

    fn snapshot(&self) -> Snapshot {
        let (unknown, zones) = (self.live.unknown_zones(), self.live.zones_end());
        let under_writer = self.options.plant == Plant::ReuseUnderWriter;
        let closed = |zone| self.live.is_closed(zone) || (under_writer && !self.live.is_in_run(zone));
        let closed = (0..zones).map(|zone| zone >= unknown && closed(zone)).collect();
        let pages = self.live.pages();
        let live = vec![0; zones as usize];
        // Leaves that are not loaded refer to what is below this.
        let end = if unknown > 0 { self.live.get(live::LOAD_END) } else { 0 };
        let mut snapshot = Snapshot { pages, changed: Vec::new(), live, closed, end };
        for (block, _) in self.live.entries(pages) {
            let (entry, was_dirty) = self.live.take_dirty(block);
            if was_dirty {
                snapshot.changed.push((block, entry));
            }
            if entry.is_record() {
                self.count_record(&mut snapshot, entry.location(), entry.grains());
            }
        }
        snapshot
    }

    fn count_record(&self, snapshot: &mut Snapshot, location: u32, grains: u32) {
        snapshot.end = snapshot.end.max(u64::from(location) + u64::from(grains));
        let live = &mut snapshot.live;
        for (zone, share) in self.live.shares(location, grains) {
            let zone = zone as usize;
            if zone >= live.len() {
                live.resize(zone + 1, 0);
            }
            live[zone] += share;
        }
    }

    /// Appends what the next root needs beside itself.
    fn write_map(
        &self,
        base: &Root,
        snapshot: &mut Snapshot,
        anew: bool,
    ) -> Result<(Root, Option<Vec<Place>>), Error> {
        for (block, _) in &snapshot.changed {
            self.live.mark_leaf(*block as usize / LEAF_ENTRIES);
        }
        let tuning = &self.options.tuning;
        let mut root = Root { sequence: base.sequence + 1, pages: snapshot.pages, ..base.clone() };
        root.version_limit = self.live.get(live::NEXT_VERSION) + VERSIONS_AHEAD;
        root.inline = overlay(&base.inline, &snapshot.changed, snapshot.pages);
        let room = Root::inline_room(root.deltas.len(), root.dictionaries.len()).min(tuning.inline_max);
        let in_deltas: usize =
            root.deltas.iter().map(|place| place.bytes as usize / crate::root::ITEM_BYTES).sum();
        let limit = tuning.changes_min.max(snapshot.pages as usize / tuning.changes_divisor.max(1));
        let fold = anew
            || self.live.get(live::FOLD) != 0
            || root.inline.len() > room
                && (root.deltas.len() >= tuning.deltas_max || in_deltas + root.inline.len() > limit);
        if fold {
            self.live.count(Counter::Folds, 1);
            let leaves = self.fold(&mut root, anew, snapshot)?;
            return Ok((root, Some(leaves)));
        }
        if root.inline.len() > room {
            self.write_deltas(&mut root)?;
        }
        Ok((root, None))
    }

    /// Moves the root's entries into delta records: one, but of the whole map.
    fn write_deltas(&self, root: &mut Root) -> Result<(), Error> {
        let mut payload = Vec::new();
        for items in root.inline.chunks(DELTA_ITEMS_MAX) {
            payload.clear();
            map::encode_delta(items, &mut payload);
            let place = self.append_map(Kind::Delta, root.sequence, &payload)?;
            root.deltas.push(place);
        }
        root.inline.clear();
        Ok(())
    }

    /// Writes the leaves that changed, or all that were loaded, and their index. A small segment's map fits into the root. A
    /// leaf that changed and cannot be loaded stays as it is, below a delta of what changed.
    fn fold(&self, root: &mut Root, anew: bool, snapshot: &mut Snapshot) -> Result<Vec<Place>, Error> {
        root.deltas.clear();
        root.inline.clear();
        root.index = Place::default();
        let room = Root::inline_room(0, root.dictionaries.len()).min(self.options.tuning.inline_max);
        let count = Live::<W>::leaves_of(root.pages);
        if root.pages as usize <= room && (0..count).all(|leaf| self.load_leaf(leaf).is_ok()) {
            let entries = (0..root.pages).map(|block| (block, self.live.entry(block).clean()));
            root.inline = self.kept(entries, snapshot);
            return Ok(Vec::new());
        }
        let mut payload = Vec::new();
        let mut leaves = Vec::new();
        for leaf in 0..count {
            let place = self.live.leaf_place(leaf);
            let is_as_written = match self.live.is_loaded(leaf) {
                true => !anew && place.location != 0 && !self.live.leaf_is_marked(leaf),
                false => !self.live.is_touched(leaf),
            };
            if is_as_written {
                leaves.push(place);
                continue;
            }
            let is_loaded = self.load_leaf(leaf).is_ok();
            let first = (leaf * LEAF_ENTRIES) as u32;
            let blocks = first..root.pages.min(first + LEAF_ENTRIES as u32);
            // Entries may be newer than those taken: their data is as durable after the fsync that follows, and they are still marked
            // for the next commit.
            let entries = self.kept(blocks.map(|block| (block, self.live.entry(block).clean())), snapshot);
            if !is_loaded {
                root.inline.extend(entries.into_iter().filter(|(_, entry)| !entry.is_missing()));
                leaves.push(place);
                continue;
            }
            let entries: Vec<Entry> = entries.into_iter().map(|(_, entry)| entry).collect();
            payload.clear();
            map::encode_leaf(leaf as u16, &entries, &mut payload);
            leaves.push(self.append_map(Kind::Leaf, root.sequence, &payload)?);
        }
        if root.inline.len() > room {
            self.write_deltas(root)?;
        }
        payload.clear();
        map::encode_index(&leaves, &mut payload);
        root.index = self.append_map(Kind::Index, root.sequence, &payload)?;
        Ok(leaves)
    }

    /// Entries that the root will have, with the file's end behind them.
    fn kept(
        &self,
        entries: impl Iterator<Item = (u32, Entry)>,
        snapshot: &mut Snapshot,
    ) -> Vec<(u32, Entry)> {
        let last = |entry: Entry| u64::from(entry.location()) + u64::from(entry.grains());
        entries
            .inspect(|(_, entry)| {
                if entry.is_record() {
                    snapshot.end = snapshot.end.max(last(*entry));
                }
            })
            .collect()
    }

    /// Appends a record of the map, from the reserve if it must be.
    pub(crate) fn append_map(&self, kind: Kind, sequence: u64, payload: &[u8]) -> Result<Place, Error> {
        let mut record = Vec::with_capacity(payload.len() + 128);
        let header = self.build(kind, sequence, payload, &mut record);
        let location = self.append(&header, &mut record, Some(Need::Commit))?;
        self.live.finish(location, header.grains());
        self.live.count(Counter::MapBytes, u64::from(header.grains()) * GRAIN_BYTES as u64);
        let bytes = (crate::record::HEADER_BYTES + header.payload_len) as u32;
        Ok(Place::of(location, bytes, sequence))
    }

    /// The end when all space was last known, and how much was free.
    fn known(&self, snapshot: &Snapshot) -> (u64, u64) {
        if self.live.unknown_zones() > 0 {
            return (self.live.get(live::KNOWN_END), self.live.get(live::KNOWN_FREE));
        }
        let end = u32::try_from(snapshot.end).unwrap_or(u32::MAX);
        let size = self.options.geometry.zone_grains;
        (snapshot.end, crate::recovery::free_grains(&snapshot.live, end, size))
    }

    /// Adds the head and what the root refers to beside pages.
    fn count_map(&self, root: &Root, leaves: Option<&[Place]>, snapshot: &mut Snapshot) {
        self.count_record(snapshot, 0, grains_of(HEAD_BYTES));
        let dictionaries = root.dictionaries.iter().map(|dictionary| dictionary.place);
        let places = root.deltas.iter().copied().chain(dictionaries).chain([root.index]);
        let kept = (0..if leaves.is_some() { 0 } else { LEAVES_MAX }).map(|leaf| self.live.leaf_place(leaf));
        for place in places.chain(leaves.unwrap_or_default().iter().copied()).chain(kept) {
            if place.location != 0 {
                self.count_record(snapshot, place.location, grains_of(place.bytes as usize));
            }
        }
    }

    fn free_zones(&self, snapshot: &Snapshot) {
        let unknown = self.live.unknown_zones() as usize;
        for (zone, live) in snapshot.live.iter().enumerate().skip(unknown) {
            if *live == 0 && snapshot.closed.get(zone).copied().unwrap_or_default() {
                self.live.free_zone(zone as u32);
            } else {
                self.live.set_live_grains(zone as u32, *live);
            }
        }
    }

    /// An fdatasync whose failure is the end of all commits.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.sync_with(|| self.device.fdatasync(), "fdatasync")
    }

    fn sync_with(&self, call: impl Fn() -> Result<(), DeviceError>, what: &'static str) -> Result<(), Error> {
        let before = self.live.get(live::UNFINISHED);
        self.live.set(live::UNFINISHED, live::IN_SYNC);
        let result = call();
        let Err(source) = result else {
            self.live.set(live::UNFINISHED, before);
            return Ok(());
        };
        match self.options.plant {
            Plant::FsyncErrorSwallowed => {
                self.live.set(live::UNFINISHED, before);
                Ok(())
            }
            Plant::FsyncRetried => {
                self.live.set(live::UNFINISHED, before);
                call().map_err(|source| Error::device(what, 0, 0, source))
            }
            _ => {
                self.live.set(live::POISONED, 1);
                Err(Error::device(what, 0, 0, source))
            }
        }
    }

    /// Writes a root into the next sheet of the ring and makes it durable, after the file's name if that is new.
    pub(crate) fn write_root(&self, root: &mut Root) -> Result<(), Error> {
        if !root.named {
            if self.options.plant != Plant::NameNotSynced {
                self.sync_with(|| self.device.sync_dir(), "fsync of the folder")?;
            }
            root.named = true;
        }
        let sheet = root.encode(self.options.seal);
        let ring = self.next_in_ring();
        self.live.set(live::RING, ring);
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
        self.sync()
    }

    fn next_in_ring(&self) -> u64 {
        if self.options.plant == Plant::RootInPlace {
            return 0;
        }
        (self.live.get(live::RING) + 1) % ROOT_SHEETS as u64
    }

    /// Takes a durable root into memory and writes its copy.
    fn settle(&self, root: &Root, leaves: Option<&[Place]>, snapshot: &Snapshot) {
        if let Some(leaves) = leaves {
            for leaf in 0..LEAVES_MAX {
                self.live.set_leaf_place(leaf, leaves.get(leaf).copied().unwrap_or_default());
            }
            (0..LEAVES_MAX / 64).for_each(|word| self.live.set(live::LEAVES_CHANGED + word, 0));
            self.live.set(live::FOLD, 0);
        }
        let unknown = self.live.unknown_zones();
        let known: u64 = snapshot.live.iter().skip(unknown as usize).map(|live| u64::from(*live)).sum();
        let size = self.options.geometry.zone_grains;
        let live_grains = known + u64::from(unknown) * u64::from(size);
        self.live.set(live::LIVE_GRAINS, live_grains);
        self.live.set(live::HELP_AT, self.help_from(live_grains * GRAIN_BYTES as u64));
        self.live.set(live::VERSION_LIMIT, root.version_limit);
        self.live.store_image(&root.encode(None));
        self.live.count(Counter::Commits, 1);
        self.copy_root(root);
    }

    /// Not waited for, and not missed if it fails: the root is durable.
    pub(crate) fn copy_root(&self, root: &Root) {
        let ring = self.next_in_ring();
        if self.device.pwrite(&root.encode(self.options.seal), ring * SHEET_BYTES as u64).is_ok() {
            self.live.set(live::RING, ring);
            self.live.count(Counter::MapBytes, SHEET_BYTES as u64);
        }
    }
}

/// What changed, over what was changed before, below the end.
fn overlay(before: &[(u32, Entry)], changed: &[(u32, Entry)], pages: u32) -> Vec<(u32, Entry)> {
    let mut merged = Vec::with_capacity(before.len() + changed.len());
    let mut older = before.iter().filter(|(block, _)| *block < pages).peekable();
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
