//! A container: one segment in one file, with the state its processes share.
//!
//! # Invariants
//! The engine keeps these; each has a planted bug ([`crate::plant`]) and a test in which the simulator finds it.
//!
//! * **I1** A root is written only after an fsync, begun after its entries were taken, made what they refer to durable.
//! * **I2** Space that the last durable root refers to, or in which a writer has not finished, is not written to.
//! * **I3** A root is believed only if it is whole; the sheet of the only durable root is never written to.
//! * **I4** A page below the end has an entry. A missing one is an error, never an empty page.
//! * **I5** An fsync that failed fails the commit and every later one, until the container is opened again. Opening
//!   believes nothing that such a commit was about: what a root refers to was synced before it was written, and the root is synced
//!   again before anything is appended.
//! * **I6** The first commit that succeeds has made the file's name durable.
//! * **I7** What a crash left behind the newest root is never read again. Versions are never given out twice, as each
//!   opening starts above all that the one before could have given.
//! * **I8** A page's version is raised by writes alone. A collector's copy keeps it, and takes the place only of the very
//!   record it was copied from.
//! * **I9** A version is visible and marked for the next commit in one step, and a commit takes the mark before it waits
//!   for the data.
//! * **I10** What a reader gets is the record that the entry means: its block, its version, its location, its container.
//! * **I11** Truncated pages do not come back: neither from older entries nor when the segment grows again.
//! * **I12** A process killed anywhere leaves others able to read, write and commit. What was under way is
//!   done anew from the live map.
//! * **I13** A page's dictionary is there as long as the page. It is written with numbers only that a durable root has, and
//!   one leaves the root when no page needs it and nobody may still publish one. No number is given out twice while the
//!   container is open.
//! * **I14** A leaf of the map is loaded only into entries that are missing since opening: what was written since is kept,
//!   what was cut off stays so.
//! * **I15** Space that the root found at opening may refer to is not freed before all leaves are loaded.

use crate::device::{Alone, Device, DeviceError, Need, Peers};
use crate::entry::{Entry, GRAIN_BYTES, grains_of};
use crate::error::{Damage, Error};
use crate::live::{self, Counter, Geometry, Live, Word};
use crate::plant::Plant;
use crate::record::{self, ContainerId, HEADER_BYTES, Header, Kind, PAGE_PAYLOAD_MAX, RECORD_BYTES_MAX};
use crate::root::{Identity, Root};
use crate::seal::{SEAL_OVERHEAD_MAX, Seal};
use std::sync::atomic::AtomicU64;

/// How often the root in memory is looked at while another process replaces it.
const ROOT_TRIES: usize = 100;

/// How often one write draws on the reserve: others may take what it was given.
pub(crate) const RESERVE_TRIES: usize = 16;

/// How a container is used. The same for all its processes.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The shared memory's layout.
    pub geometry: Geometry,
    /// When map records are written.
    pub tuning: Tuning,
    /// The container's key.
    pub seal: Option<&'a dyn Seal>,
    /// Nothing is written, not even the raised epoch.
    pub read_only: bool,
    /// A bug, for tests of the tests.
    #[doc(hidden)]
    pub plant: Plant,
}

/// What costs map writes and what costs time to open. The defaults are right; tests make them small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Changed entries at most in a root.
    pub inline_max: usize,
    /// Delta records at most before the leaves are written.
    pub deltas_max: usize,
    /// Changed entries at most before the leaves are written: this many ...
    pub changes_min: usize,
    /// ... or one in so many pages, whichever is more.
    pub changes_divisor: usize,
    /// Bytes of free zones at most that are kept for reuse before they are punched: this many ...
    pub free_bytes_min: u64,
    /// ... or one in so many live bytes, whichever is more.
    pub free_divisor: u64,
    /// Dead bytes that only moving frees, in percent of live ones, above which a write is followed by a piece of collection,
    pub ceiling_percent: u32,
    /// ... if they are this many at least.
    pub ceiling_bytes_min: u64,
    /// Bytes at most of such a piece. The next follows when a quarter as many were written.
    pub help_bytes: u64,
    /// By how many bytes the file grows, since all of the map was in memory, before a commit loads the rest of it again: this
    /// many ...
    pub grown_bytes: u64,
    /// ... or one in so many of what the file was, whichever is less.
    pub grown_divisor: u64,
    /// Opening loads all of the map if one in so many bytes of the file may be free.
    pub sparse_divisor: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            inline_max: crate::root::INLINE_MAX,
            deltas_max: crate::root::DELTAS_MAX,
            changes_min: 1024,
            changes_divisor: 4,
            free_bytes_min: 256 << 10,
            free_divisor: 32,
            ceiling_percent: 80,
            ceiling_bytes_min: 1 << 20,
            help_bytes: 128 << 10,
            grown_bytes: 4 << 20,
            grown_divisor: 16,
            sparse_divisor: 8,
        }
    }
}

impl<'a> Options<'a> {
    /// For segments of `pages_max` pages, without a key.
    pub fn new(pages_max: u32) -> Options<'a> {
        Options {
            geometry: Geometry::of(pages_max),
            tuning: Tuning::default(),
            seal: None,
            read_only: false,
            plant: Plant::None,
        }
    }
}

/// An open container, as one process uses it. Any number of threads and processes read, write and commit at the same time.
pub struct Container<'m, D, P = Alone, W = AtomicU64> {
    pub(crate) device: D,
    pub(crate) peers: P,
    pub(crate) live: Live<'m, W>,
    pub(crate) options: Options<'m>,
    pub(crate) id: ContainerId,
    pub(crate) seed: u32,
}

/// What a page is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored<'a> {
    /// All bytes of the page are zero.
    Zeros,
    /// A record.
    Record {
        /// How the payload is encoded, as it was given to `write`.
        mode: u8,
        /// The dictionary that the payload needs, 0 for none.
        dictionary: u8,
        /// What was given to `write`.
        payload: &'a [u8],
    },
}

/// Memory for one record, made once per process and used for every read and write.
pub struct Scratch {
    pub(crate) record: Vec<u8>,
    opened: Vec<u8>,
}

impl Scratch {
    /// Two records' worth of memory.
    pub fn new() -> Scratch {
        Scratch { record: vec![0; RECORD_BYTES_MAX], opened: vec![0; RECORD_BYTES_MAX] }
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

impl<D: Device, P: Peers, W: Word> Container<'_, D, P, W> {
    /// Pages of the segment.
    pub fn pages(&self) -> u32 {
        self.live.pages()
    }

    /// The random name that binds records to this container.
    pub fn id(&self) -> ContainerId {
        self.id
    }

    /// Which segment it says it is.
    pub fn identity(&self) -> Result<Identity, Error> {
        Ok(self.root_in_memory()?.identity)
    }

    /// Reads a page's record: one look into memory, one pread, no allocation, no lock. The first read of a leaf's pages since
    /// opening loads the leaf as well; if that is damaged, this is the error for each page whose entry it has.
    ///
    /// A record that is not what the entry says was replaced meanwhile, which shows by the entry having changed; if
    /// the entry has not changed, two reads in a row decide that it is damaged.
    pub fn read<'s>(&self, block: u32, scratch: &'s mut Scratch) -> Result<Stored<'s>, Error> {
        let pages = self.pages();
        if block >= pages {
            return Err(Error::PastEnd { block, pages });
        }
        let Some(header) = self.read_record(block, scratch)? else {
            return Ok(Stored::Zeros);
        };
        let Kind::Page { mode, dictionary, .. } = header.kind else {
            return Ok(Stored::Zeros);
        };
        let stored = HEADER_BYTES..HEADER_BYTES + header.payload_len;
        let Some(seal) = self.options.seal else {
            return Ok(Stored::Record { mode, dictionary, payload: &scratch.record[stored] });
        };
        let associated = record::associated(&self.id, &header);
        let length = seal.open(&associated, &scratch.record[stored], &mut scratch.opened);
        let length = length.ok_or_else(|| self.page_damage(block, self.live.entry(block), "seal", 1, 0))?;
        Ok(Stored::Record { mode, dictionary, payload: &scratch.opened[..length] })
    }

    /// None: a page of zeros.
    pub(crate) fn read_record(&self, block: u32, scratch: &mut Scratch) -> Result<Option<Header>, Error> {
        let mut entry = self.live.entry(block);
        let mut was_bad = false;
        loop {
            if entry.is_zeros() || (entry.is_missing() && self.options.plant == Plant::MissingReadsAsZeros) {
                return Ok(None);
            }
            self.device.pause();
            let failure = if entry.is_missing() {
                match self.load_for(block) {
                    Ok(true) => {
                        entry = self.live.entry(block);
                        continue;
                    }
                    Ok(false) => self.page_damage(block, entry, "entry", 1, 0),
                    Err(failure) => failure,
                }
            } else {
                match self.read_at(entry, block, &mut scratch.record) {
                    Ok(header) => return Ok(Some(header)),
                    Err(failure) => failure,
                }
            };
            let now = self.live.entry(block);
            let changed = now.clean() != entry.clean();
            let pages = self.pages();
            if block >= pages {
                return Err(Error::PastEnd { block, pages });
            }
            if !changed && was_bad {
                self.live.count(Counter::Damages, 1);
                return Err(failure);
            }
            self.live.count(Counter::ReadRetries, 1);
            was_bad = !changed;
            entry = now;
        }
    }

    /// Reads and proves the record that `entry` means.
    pub(crate) fn read_at(&self, entry: Entry, block: u32, buffer: &mut Vec<u8>) -> Result<Header, Error> {
        buffer.resize(RECORD_BYTES_MAX.max(entry.bytes()), 0);
        let buffer = &mut buffer[..entry.bytes()];
        let offset = entry.offset();
        let got = self.device.pread(buffer, offset);
        let got = got.map_err(|source| Error::device("read", offset, entry.bytes(), source))?;
        if got < buffer.len() {
            return Err(self.page_damage(
                block,
                entry,
                "bytes in the file",
                entry.bytes() as u64,
                got as u64,
            ));
        }
        let Some(header) = record::check(buffer, self.seed, entry.location()) else {
            return Err(self.page_damage(block, entry, "check sum", 1, 0));
        };
        let Kind::Page { block: found, .. } = header.kind else {
            return Err(self.page_damage(block, entry, "record kind", 0, 1));
        };
        if found != block {
            return Err(self.page_damage(block, entry, "block", block.into(), found.into()));
        }
        let is_meant = entry.has_tag_of(header.version) && header.grains() == entry.grains();
        if !is_meant && self.options.plant != Plant::ReaderIgnoresTag {
            return Err(self.page_damage(block, entry, "version", entry.tag(), header.version));
        }
        Ok(header)
    }

    pub(crate) fn page_damage(
        &self,
        block: u32,
        entry: Entry,
        property: &'static str,
        expected: u64,
        found: u64,
    ) -> Error {
        let (offset, length) = (entry.offset(), entry.bytes() as u64);
        Damage { what: "page", block: Some(block), offset, length, property, expected, found }.into()
    }

    /// Stores a page: one append, one swap of its entry. Durable after the next [`commit`](Self::commit). Grows the segment as
    /// needed; pages in between become empty ones. When there is far too much garbage, a piece of collection follows.
    ///
    /// `payload` is 1 to [`PAGE_PAYLOAD_MAX`] less [`SEAL_OVERHEAD_MAX`] bytes. `dictionary` is one of
    /// [`add_dictionary`](Self::add_dictionary), or 0. After an error the page is what it was;
    /// [`Error::DictionaryRetired`] and [`Error::DictionaryMissing`] ask for another encoding.
    pub fn write(
        &self,
        block: u32,
        mode: u8,
        dictionary: u8,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        self.check_write(block, payload.len())?;
        self.live.enter_dictionary(dictionary)?;
        let done = self.write_record(Kind::Page { block, mode, dictionary }, block, payload, scratch);
        self.live.leave_dictionary(dictionary);
        if done.is_ok() {
            self.help_if_due();
        }
        done
    }

    fn write_record(
        &self,
        kind: Kind,
        block: u32,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let version = self.draw_version()?;
        let header = self.build(kind, version, payload, &mut scratch.record);
        let need = (block < self.pages()).then_some(Need::Page);
        let location = self.append(&header, &mut scratch.record, need)?;
        self.live.count(Counter::WrittenBytes, u64::from(header.grains()) * GRAIN_BYTES as u64);
        self.device.pause();
        let entry = Entry::record(location, header.grains(), version);
        self.live.publish(block, entry);
        self.device.pause();
        self.live.finish(location, header.grains());
        self.grow_to(block + 1, version);
        Ok(())
    }

    /// Makes a page all zeros, which needs no space.
    pub fn write_zeros(&self, block: u32) -> Result<(), Error> {
        self.check_write(block, 1)?;
        let version = self.draw_version()?;
        self.live.publish(block, Entry::zeros(version));
        self.grow_to(block + 1, version);
        Ok(())
    }

    /// Makes the segment at least `pages` long; new pages are all zeros. Needs no space and is no commit.
    pub fn extend(&self, pages: u32) -> Result<(), Error> {
        if pages <= self.pages() {
            return Ok(());
        }
        self.check_write(pages - 1, 1)?;
        let version = self.draw_version()?;
        self.grow_to(pages, version);
        Ok(())
    }

    fn grow_to(&self, pages: u32, version: u64) {
        if pages > self.pages() {
            if self.live.get(live::CUTTING) != 0 {
                // A truncation whose process died has left entries above the end.
                self.lock_commit();
                self.live.unlock(live::LOCK);
            }
            self.live.grow(pages, version);
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    fn check_write(&self, block: u32, payload_len: usize) -> Result<(), Error> {
        self.check_writable()?;
        let allowed = u64::from(self.options.geometry.pages_max);
        if u64::from(block) >= allowed {
            return Err(Error::Limit { what: "block", found: block.into(), allowed: allowed - 1 });
        }
        let (found, allowed) = (payload_len as u64, (PAGE_PAYLOAD_MAX - SEAL_OVERHEAD_MAX) as u64);
        if found == 0 || found > allowed {
            return Err(Error::Limit { what: "payload of a page in bytes", found, allowed });
        }
        Ok(())
    }

    pub(crate) fn draw_version(&self) -> Result<u64, Error> {
        let allowed = self.live.get(live::VERSION_LIMIT);
        let drawn = self.live.draw_version();
        drawn.ok_or(Error::Limit { what: "writes without a commit; version", found: allowed, allowed })
    }

    /// Puts payload, sealed if there is a key, behind room for the header.
    pub(crate) fn build(&self, kind: Kind, version: u64, payload: &[u8], out: &mut Vec<u8>) -> Header {
        out.clear();
        out.resize(HEADER_BYTES, 0);
        let header = Header { kind, payload_len: payload.len(), version };
        match self.options.seal {
            None => out.extend_from_slice(payload),
            Some(seal) => seal.seal(&record::associated(&self.id, &header), payload, out),
        }
        Header { payload_len: out.len() - HEADER_BYTES, ..header }
    }

    /// Writes what [`build`](Self::build) made at a place of its own, with help of the reserve if there is a need that allows it.
    /// The caller says when it is finished there.
    pub(crate) fn append(
        &self,
        header: &Header,
        record: &mut Vec<u8>,
        need: Option<Need>,
    ) -> Result<u32, Error> {
        let grains = header.grains();
        let mut tries = 0;
        loop {
            let left = self.live.get(live::SHEETS_LEFT);
            let full = || {
                self.live.set(live::COMPLETION_DUE, 1);
                Error::device("reserve", 0, record.len(), crate::device::DeviceError::NoSpace)
            };
            let location = self.live.reserve(grains).ok_or_else(full)?;
            self.device.pause();
            if self.live.get(live::SHEETS_LEFT) != left {
                // The sheet may hold records that are being made durable: a write torn by a power failure could
                // take them along.
                self.live.finish(location, grains);
                continue;
            }
            record.truncate(HEADER_BYTES + header.payload_len);
            record::finish(record, header, self.seed, location);
            let offset = u64::from(location) * GRAIN_BYTES as u64;
            let Err(source) = self.device.pwrite(record, offset) else {
                return Ok(location);
            };
            self.live.finish(location, grains);
            if source == DeviceError::NoSpace {
                self.live.set(live::COMPLETION_DUE, 1);
            }
            let is_helped = source == DeviceError::NoSpace
                && tries < RESERVE_TRIES
                && need.is_some_and(|need| self.device.release_reserve(record.len() as u64, need));
            if !is_helped {
                return Err(Error::device("write", offset, record.len(), source));
            }
            tries += 1;
        }
    }

    /// Cuts the segment to `pages`. Needs no space and cannot fail for the want of it; durable, and its space free,
    /// with the next commit. The caller keeps others from the pages that go, as PostgreSQL does; a collector need
    /// not be kept from them.
    pub fn truncate(&self, pages: u32) -> Result<(), Error> {
        self.check_writable()?;
        self.lock_commit();
        let old = self.pages();
        if pages < old {
            self.live.set(live::CUTTING, (u64::from(pages) + 1) | (u64::from(old) << 32));
            self.device.pause();
            self.finish_cut();
        }
        self.live.unlock(live::LOCK);
        Ok(())
    }

    /// Takes the commit lock, and ends a truncation that its process did not.
    pub(crate) fn lock_commit(&self) {
        self.live.lock(live::LOCK, &self.peers);
        if self.live.get(live::CUTTING) != 0 {
            self.finish_cut();
        }
    }

    fn finish_cut(&self) {
        let cutting = self.live.get(live::CUTTING);
        let (pages, old) = ((cutting as u32) - 1, (cutting >> 32) as u32);
        self.live.set(live::PAGES, pages.into());
        // With the old entries gone, growing again makes empty pages, each marked for the next commit: so the
        // durable map needs no mark for a truncation.
        let old = if self.options.plant == Plant::TruncationForgotten { pages } else { old };
        self.live.cut(pages, old, &self.peers);
        // What was cut off may be worth giving back.
        self.live.set(live::COMPLETION_DUE, 1);
        self.live.set(live::CUTTING, 0);
    }

    /// The last root. Without the commit lock it may just be replaced; what a dead process left of it is not waited for.
    pub(crate) fn root_in_memory(&self) -> Result<Root, Error> {
        for _ in 0..ROOT_TRIES {
            if let Ok(root) = Root::decode_image(&self.live.image()) {
                return Ok(root);
            }
            self.peers.relax();
        }
        self.find_root().map(|found| found.root)
    }

    /// Bytes of the reserve that a commit may need at most, for a segment as it is now.
    pub fn commit_bytes_max(&self) -> u64 {
        let leaves = Live::<W>::leaves_of(self.pages()) as u64;
        let per_leaf =
            (grains_of(crate::map::LEAF_ENTRIES * 8 + 64) as usize * GRAIN_BYTES + SEAL_OVERHEAD_MAX) as u64;
        (leaves + 2) * per_leaf + self.zone_bytes() * 2
    }
}
