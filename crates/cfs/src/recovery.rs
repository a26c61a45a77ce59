//! Opening: the newest root, its map, and an end to what lies behind it.
//!
//! The first process to open a container takes the root and its deltas into the shared memory; the others attach. Leaves are loaded
//! when they are needed ([`crate::leaves`]): what opening reads does not grow with the segment. Before anything is appended, or even read, the state that was found is made durable under a new epoch: a root that a failed fsync left in the page cache
//! might otherwise be believed until the power fails. Only then is the file cut to what the root refers to.

use crate::container::{Container, Options};
use crate::device::{Device, Need, Peers};
use crate::entry::{Entry, GRAIN_BYTES, grains_of};
use crate::error::{Damage, Error};
use crate::live::{self, Live, Word};
use crate::map::{self, LEAF_ENTRIES, LEAVES_MAX};
use crate::plant::Plant;
use crate::record::{self, ContainerId, Kind};
use crate::root::{HEAD_BYTES, Identity, KEY_BYTES, Place, Root, SHEET_BYTES};
use crate::space::{Zone, ZoneState};
use crate::stored::{Found, find_root, read_map};

/// What to do with records that no root refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// They never were. Right after any crash, as PostgreSQL's log has them.
    Discard,
    /// The newest of each page of the last epoch is appended anew and committed. Only for a server with `fsync = off` that
    /// comes back without a loss of power or a failed fsync in between.
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
    /// Root sheets that are neither empty nor whole: one after a crash amid a commit, else damage.
    pub broken_roots: u32,
    /// Bytes of the file behind what the root refers to, now gone.
    pub discarded_bytes: u64,
    /// Bytes that the root refers to and the file does not have: it was cut.
    pub missing_bytes: u64,
    /// Pages whose newest record was rolled forward.
    pub rolled_forward: u32,
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

impl<'m, D: Device, P: Peers, W: Word> Container<'m, D, P, W> {
    /// Makes a container in an empty file: one durable root. The name is the caller's to give
    /// ([`crate::segment`]), and durable with the first commit.
    pub fn create(
        device: D,
        peers: P,
        words: &'m [W],
        birth: &Birth,
        options: Options<'m>,
    ) -> Result<Self, Error> {
        let mut container = Container::over(device, peers, words, options)?;
        container.set_id(birth.id);
        let root = Root {
            container: birth.id,
            sequence: 1,
            epoch: 1,
            pages_max: options.geometry.pages_max,
            identity: birth.identity,
            version_limit: 1 + crate::commit::VERSIONS_AHEAD,
            epoch_start: 1,
            end: grains_of(HEAD_BYTES).into(),
            known_end: grains_of(HEAD_BYTES).into(),
            key_id: options.seal.map(|seal| seal.key_id()).unwrap_or_default(),
            key: birth.key,
            ..Root::default()
        };
        container.live.lock(live::LOCK, &container.peers);
        container.clear();
        let done = container.begin(&root);
        container.live.unlock(live::LOCK);
        done.map(|()| container)
    }

    fn begin(&self, root: &Root) -> Result<(), Error> {
        let sheet = root.encode(self.options.seal);
        self.device.pwrite(&sheet, 0).map_err(|source| Error::device("write", 0, SHEET_BYTES, source))?;
        self.device.fdatasync().map_err(|source| Error::device("fdatasync", 0, SHEET_BYTES, source))?;
        self.place_all(root)?;
        self.live.set(live::NEXT_VERSION, root.epoch_start);
        self.start(root);
        Ok(())
    }

    /// Opens a container that another process may have open already, or may not.
    pub fn open(
        device: D,
        peers: P,
        words: &'m [W],
        recovery: Recovery,
        options: Options<'m>,
    ) -> Result<(Self, Option<OpenReport>), Error> {
        let mut container = Container::over(device, peers, words, options)?;
        container.live.lock(live::LOCK, &container.peers);
        let done = container.attach_or_load(recovery);
        container.live.unlock(live::LOCK);
        done.map(|report| (container, report))
    }

    pub(crate) fn over(device: D, peers: P, words: &'m [W], options: Options<'m>) -> Result<Self, Error> {
        let live = Live::new(words, options.geometry)?;
        Ok(Container { device, peers, live, options, id: [0; 16], seed: 0 })
    }

    pub(crate) fn set_id(&mut self, id: ContainerId) {
        self.id = id;
        self.seed = record::seed_of(&id);
    }

    fn attach_or_load(&mut self, recovery: Recovery) -> Result<Option<OpenReport>, Error> {
        if self.live.get(live::STATE) == live::STATE_READY {
            let id = match self.root_in_memory() {
                Ok(root) => root.container,
                // A commit's process died while it took the root into memory.
                Err(_) => self.newest_root_on_device()?.container,
            };
            self.set_id(id);
            return Ok(None);
        }
        self.clear();
        self.live.set(live::STATE, live::STATE_LOADING);
        let found = self.find_root()?;
        let mut root = found.root;
        self.set_id(root.container);
        self.check_size(&root)?;
        self.live.set(live::RING, found.ring);
        self.load_root(&root)?;
        let end = self.place(&mut root, recovery)?;
        let size = self.device.size().map_err(|source| Error::device("size", 0, 0, source))?;
        let mut report = OpenReport {
            sequence: root.sequence,
            epoch: root.epoch + 1,
            was_closed: root.closed,
            broken_roots: found.broken,
            // In whole sheets: cutting one would write it, and a power failure could take what is durable in it.
            discarded_bytes: size
                .saturating_sub(end.max(HEAD_BYTES as u64).next_multiple_of(SHEET_BYTES as u64)),
            missing_bytes: if end > HEAD_BYTES as u64 { end.saturating_sub(size) } else { 0 },
            rolled_forward: 0,
        };
        self.live.set(live::PAGES, root.pages.into());
        if self.options.read_only {
            self.start(&root);
        } else {
            self.begin_epoch(root, recovery, size, &mut report)?;
        }
        Ok(Some(report))
    }

    /// The shared memory is for segments of one size.
    pub(crate) fn check_size(&self, root: &Root) -> Result<(), Error> {
        let (expected, found) = (self.options.geometry.pages_max.into(), root.pages_max.into());
        if expected == found {
            return Ok(());
        }
        Err(Error::SharedMemory { what: "pages of a segment", expected, found })
    }

    /// Makes what was found durable, above all versions that were given out before, and the rest of the file gone.
    fn begin_epoch(
        &self,
        found: Root,
        recovery: Recovery,
        size: u64,
        report: &mut OpenReport,
    ) -> Result<(), Error> {
        let forward = match recovery {
            Recovery::Discard => Vec::new(),
            Recovery::RollForward => self.unrooted_records(&found, size)?,
        };
        let mut root = Root { sequence: found.sequence + 1, epoch: found.epoch + 1, closed: false, ..found };
        let epoch_start = root.version_limit;
        let version_limit = epoch_start + crate::commit::VERSIONS_AHEAD;
        if version_limit >= 1 << record::VERSION_BITS {
            let (found, allowed) = (version_limit, 1 << record::VERSION_BITS);
            return Err(Error::Limit { what: "version", found, allowed });
        }
        if forward.is_empty() {
            // Otherwise with the commit of what is rolled forward, which may have to begin anew until then.
            (root.epoch_start, root.version_limit) = (epoch_start, version_limit);
        }
        self.live.set(live::NEXT_VERSION, epoch_start);
        // Roots of commits and openings that were killed may be in the cache alone; one after the other they would
        // be written over the last durable one.
        self.sync()?;
        self.write_root(&mut root)?;
        if !forward.is_empty() {
            self.append_behind(size);
        } else if report.discarded_bytes > 0 {
            let end = size - report.discarded_bytes;
            self.device.truncate(end).map_err(|source| Error::device("truncate", end, 0, source))?;
            self.sync()?;
        }
        self.copy_root(&root);
        (root.epoch_start, root.version_limit) = (epoch_start, version_limit);
        self.start(&root);
        if !forward.is_empty() {
            report.rolled_forward = self.roll_forward(&forward)?;
            report.discarded_bytes = 0;
            self.commit_locked(false)?;
        }
        Ok(())
    }

    pub(crate) fn start(&self, root: &Root) {
        self.live.store_image(&root.encode(None));
        self.live.set(live::PAGES, self.live.get(live::PAGES).max(root.pages.into()));
        self.live.set(live::VERSION_LIMIT, root.version_limit);
        root.dictionaries.iter().for_each(|dictionary| self.live.open_dictionary(dictionary.id));
        self.live.set(live::STATE, live::STATE_READY);
    }

    /// Forgets what an earlier use, or a loader that died, left in the shared memory.
    pub(crate) fn clear(&self) {
        if self.live.get(live::STATE) == 0 {
            return;
        }
        for index in 0..self.options.geometry.words() {
            if index != live::LOCK && self.live.get(index) != 0 {
                self.live.set(index, 0);
            }
        }
    }

    /// Reads the ring, and where it stands.
    pub(crate) fn newest_root_on_device(&self) -> Result<Root, Error> {
        let found = self.find_root()?;
        self.live.set(live::RING, found.ring);
        Ok(found.root)
    }

    pub(crate) fn find_root(&self) -> Result<Found, Error> {
        find_root(&self.device, &self.options)
    }

    /// Reads the record of the map at `place`; the payload is behind the header in what is returned.
    pub(crate) fn read_map(&self, place: Place, kind: Kind, what: &'static str) -> Result<Vec<u8>, Error> {
        read_map(&self.device, &self.options, &self.id, place, kind, what)
    }

    /// Takes what the root has of the map beside leaves into memory, and where leaves are.
    pub(crate) fn load_root(&self, root: &Root) -> Result<(), Error> {
        let broken = |what, place: Place| {
            let (offset, length) = (u64::from(place.location) * GRAIN_BYTES as u64, u64::from(place.bytes));
            Damage { what, block: None, offset, length, property: "content", expected: 1, found: 0 }
        };
        let mut leaves = Vec::new();
        if root.index.location != 0 {
            let payload = self.read_map(root.index, Kind::Index, "map index")?;
            leaves = map::decode_index(&payload).ok_or_else(|| broken("map index", root.index))?;
        }
        self.live.set(live::LOAD_LIMIT, root.pages.into());
        self.live.set(live::LOAD_END, if root.end == 0 { u64::MAX } else { root.end });
        for leaf in 0..LEAVES_MAX {
            match leaves.get(leaf).filter(|place| place.location != 0) {
                Some(place) => self.live.set_leaf_place(leaf, *place),
                None => self.live.set_loaded(leaf),
            }
        }
        for place in &root.deltas {
            let payload = self.read_map(*place, Kind::Delta, "map delta")?;
            let items = map::decode_delta(&payload).ok_or_else(|| broken("map delta", *place))?;
            self.apply(&items, root.pages)?;
        }
        self.apply(&root.inline, root.pages)
    }

    fn apply(&self, items: &[(u32, Entry)], pages: u32) -> Result<(), Error> {
        for (block, entry) in items.iter().filter(|(block, _)| *block < pages) {
            let leaf = *block as usize / LEAF_ENTRIES;
            if entry.is_missing() {
                // Not to be found missing and looked for in its leaf.
                self.load_leaf(leaf)?;
            }
            self.live.set_entry(*block, *entry);
            self.live.mark_leaf(leaf);
        }
        Ok(())
    }

    /// Finds room for what is to be written; returns the first byte behind what the root refers to.
    fn place(&self, root: &mut Root, recovery: Recovery) -> Result<u64, Error> {
        // With roots of before the field, and to look for records that are newer than the map's, all of it is needed.
        let must = root.end == 0 || recovery == Recovery::RollForward || self.is_all_loaded();
        // Where much is free: short openings that all append would make the file longer and longer.
        let unused = root.known_free + (root.end - root.known_end);
        let should = unused.saturating_mul(self.options.tuning.sparse_divisor) > root.end;
        let placed = if must || should { Some(self.place_all(root)) } else { None };
        let end = match placed {
            Some(Ok(end)) => {
                root.end = end / GRAIN_BYTES as u64;
                (root.known_end, root.known_free) = (root.end, self.live.get(live::KNOWN_FREE));
                end
            }
            Some(Err(error)) if must => return Err(error),
            // Damage of a leaf is its readers' to be told.
            _ => self.place_behind(root)?,
        };
        self.live.set(live::KNOWN_END, root.known_end);
        self.live.set(live::KNOWN_FREE, root.known_free);
        Ok(end)
    }

    /// Loads all leaves and finds free and used zones; returns the first byte behind what the root refers to.
    pub(crate) fn place_all(&self, root: &Root) -> Result<u64, Error> {
        self.load_leaves()?;
        let (used, end) = self.count_zones(root, root.pages)?;
        self.set_zones(&used, end);
        self.live.set(live::KNOWN_FREE, free_grains(&used, end, self.options.geometry.zone_grains));
        Ok(u64::from(end) * GRAIN_BYTES as u64)
    }

    /// Lets records be appended behind what the root refers to, without knowing what of that is free.
    fn place_behind(&self, root: &Root) -> Result<u64, Error> {
        let geometry = &self.options.geometry;
        let (_, found) = self.count_zones(root, root.pages)?;
        let limit = (u64::from(geometry.zone_grains) * u64::from(geometry.zones_max)).min(u32::MAX.into());
        if root.end < found.into() || root.end > limit {
            let expected = if root.end > limit { limit } else { found.into() };
            let (property, length) = ("end in grains", SHEET_BYTES as u64);
            let found = root.end;
            return Err(
                Damage { what: "root", block: None, offset: 0, length, property, expected, found }.into()
            );
        }
        let (end, size) = (root.end as u32, geometry.zone_grains);
        let zones = end.div_ceil(size);
        self.live.set(live::UNKNOWN_ZONES, zones.into());
        self.set_cursor_behind(end, zones, 0);
        self.live.set(live::FREE_ZONES, 0);
        self.live.set(live::LIVE_GRAINS, u64::from(zones) * u64::from(size));
        Ok(root.end * GRAIN_BYTES as u64)
    }

    /// Grains by zone of the entries in memory and of what else the root refers to, and the first grain behind.
    pub(crate) fn count_zones(&self, root: &Root, pages: u32) -> Result<(Vec<u32>, u32), Error> {
        let size = self.options.geometry.zone_grains;
        let limit = u64::from(size) * u64::from(self.options.geometry.zones_max);
        let pages = self.live.entries(pages).filter(|(_, entry)| entry.is_record());
        let places = (0..LEAVES_MAX).map(|leaf| self.live.leaf_place(leaf)).chain([root.index]);
        let places = places.chain(root.deltas.iter().copied());
        let places = places.chain(root.dictionaries.iter().map(|dictionary| dictionary.place));
        let places = places
            .filter(|place| place.location != 0)
            .map(|place| (None, place.location, grains_of(place.bytes as usize)));
        let extents =
            pages.map(|(block, entry)| (Some(block), entry.location(), entry.grains())).chain(places);
        let mut used: Vec<u32> = Vec::new();
        let mut end = grains_of(HEAD_BYTES);
        let head = grains_of(HEAD_BYTES);
        for (block, location, grains) in [(None, 0, head)].into_iter().chain(extents) {
            let last = u64::from(location) + u64::from(grains);
            if last > limit || (location < head && location != 0) {
                let (offset, length) =
                    (u64::from(location) * GRAIN_BYTES as u64, u64::from(grains) * GRAIN_BYTES as u64);
                let (property, expected) = ("end in grains", limit);
                return Err(
                    Damage { what: "map", block, offset, length, property, expected, found: last }.into()
                );
            }
            end = end.max(last as u32);
            for (zone, share) in self.live.shares(location, grains) {
                let zone = zone as usize;
                used.resize(used.len().max(zone + 1), 0);
                used[zone] += share;
                if used[zone] > size {
                    let (offset, length) = (
                        (zone as u64) * u64::from(size) * GRAIN_BYTES as u64,
                        u64::from(size) * GRAIN_BYTES as u64,
                    );
                    let (property, expected, found) = ("grains referred to", size.into(), used[zone].into());
                    return Err(
                        Damage { what: "map", block, offset, length, property, expected, found }.into()
                    );
                }
            }
        }
        Ok((used, end))
    }

    fn set_zones(&self, used: &[u32], end: u32) {
        let size = self.options.geometry.zone_grains;
        let mut free = 0;
        for (zone, live) in used.iter().enumerate() {
            let (finished, state) = if *live == 0 { (0, ZoneState::Free) } else { (size, ZoneState::Used) };
            free += u64::from(*live == 0);
            self.live.set_zone(zone as u32, Zone { finished, live: *live, state });
        }
        self.set_cursor_behind(end, used.len() as u32, used[used.len() - 1]);
        self.live.set(live::FREE_ZONES, free);
        self.live.set(live::LIVE_GRAINS, used.iter().map(|live| u64::from(*live)).sum());
    }

    /// The last zone's rest is filled first, from a sheet of its own on.
    fn set_cursor_behind(&self, end: u32, zones: u32, live: u32) {
        let size = self.options.geometry.zone_grains;
        let run_end = zones * size;
        let start = end.next_multiple_of((SHEET_BYTES / GRAIN_BYTES) as u32).min(run_end);
        let finished = start - (zones - 1) * size;
        self.live.set_zone(zones - 1, Zone { finished, live, state: ZoneState::Used });
        self.live.set_cursor(start, run_end);
        self.live.set(live::ZONES_END, zones.into());
    }

    /// Lets nothing be written to what roll-forward is to read: all zones are used until the commit that ends it.
    fn append_behind(&self, size: u64) {
        let zone_grains = self.options.geometry.zone_grains;
        let zones = (size / GRAIN_BYTES as u64).div_ceil(zone_grains.into()) as u32;
        for zone in 0..zones.max(self.live.zones_end()) {
            let live = self.live.zone(zone).live;
            self.live.set_zone(zone, Zone { finished: zone_grains, live, state: ZoneState::Used });
        }
        let zones = zones.max(self.live.zones_end());
        self.live.set_cursor(zones * zone_grains, zones * zone_grains);
        self.live.set(live::ZONES_END, zones.into());
        self.live.set(live::FREE_ZONES, 0);
    }

    /// The newest records of the epoch that ended, by block, where newer than the root's.
    ///
    /// What was given its version after the root was written is. Of what was under way then, a record is if the root has
    /// an older record of the block; an extension or a page of zeros of that moment cannot be told from an older one.
    fn unrooted_records(&self, root: &Root, size: u64) -> Result<Vec<(u32, Entry, u64)>, Error> {
        let is_planted = self.options.plant == Plant::StaleEpochRolledForward;
        let epoch = if is_planted { 0 } else { root.epoch_start }..root.version_limit;
        let after_root = if is_planted { 0 } else { root.version_limit - crate::commit::VERSIONS_AHEAD };
        // A dictionary is dropped when its last page was written anew: such a record is not the newest.
        let is_known =
            |number| number == 0 || root.dictionaries.iter().any(|dictionary| dictionary.id == number);
        let mut newest: std::collections::BTreeMap<u32, (Entry, u64)> = Default::default();
        crate::scan::scan(&self.device, self.seed, HEAD_BYTES as u64..size, |location, header| {
            if let Kind::Page { block, dictionary, .. } = header.kind
                && block < root.pages_max
                && epoch.contains(&header.version)
                && is_known(dictionary)
            {
                let entry = Entry::record(location, header.grains(), header.version);
                let best = newest.entry(block).or_insert((entry, header.version));
                if best.1 < header.version {
                    *best = (entry, header.version);
                }
            }
        })?;
        let mut buffer = Vec::new();
        let mut kept = Vec::new();
        for (block, (entry, version)) in newest {
            let known = if block < root.pages { self.live.entry(block) } else { Entry::MISSING };
            let is_newer = match known.is_record() {
                true => self.read_at(known, block, &mut buffer)?.version < version,
                false => version >= after_root,
            };
            if is_newer {
                kept.push((block, entry, version));
            }
        }
        Ok(kept)
    }

    fn roll_forward(&self, records: &[(u32, Entry, u64)]) -> Result<u32, Error> {
        let mut buffer = Vec::new();
        for (block, original, version) in records {
            let header = self.read_at(*original, *block, &mut buffer)?;
            let location = self.append(&header, &mut buffer, Some(Need::Commit))?;
            self.live.publish(*block, Entry::record(location, header.grains(), *version));
            self.live.finish(location, header.grains());
            self.live.grow(block + 1, *version);
        }
        Ok(records.len() as u32)
    }
}

/// Grains of the zones up to `end` to which nothing refers.
pub(crate) fn free_grains(used: &[u32], end: u32, zone_grains: u32) -> u64 {
    let zones = used.iter().take((end / zone_grains) as usize);
    zones.filter(|live| **live == 0).count() as u64 * u64::from(zone_grains)
}
