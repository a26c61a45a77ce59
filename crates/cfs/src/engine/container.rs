//! A container: one segment in one file, with the state its processes share.
//!
//! # Invariants
//! The engine keeps these; each has an injected fault ([`crate::fault`]) and a test in which the simulator
//! finds it.
//!
//! * **I1** A root is written only after an fsync, begun after its entries were taken, made what they refer
//!   to durable. In a group too, each container waits for its own.
//! * **I2** Space that the last durable root refers to, or in which a writer has not finished, is not written
//!   to.
//! * **I3** A root is believed only if it is whole; the superblock slot of the only durable root is never written
//!   to.
//! * **I4** A page below the end has an entry. A missing one is an error, never an empty page.
//! * **I5** An fsync that failed fails the commit and every later one, until the container is opened again.
//!   Opening believes nothing that such a commit was about: what a root refers to was synced before it was
//!   written, and the root is synced again before anything is appended.
//! * **I6** The first commit that succeeds has made the file's name durable.
//! * **I7** What a crash left behind the newest root is never read again. Versions are never given out twice,
//!   as each opening starts above all that the one before could have given.
//! * **I8** A page's version is raised by writes alone. A collector's copy keeps it, and takes the place only
//!   of the very record it was copied from.
//! * **I9** A version is visible and marked for the next commit in one step, and a commit takes the mark
//!   before it waits for the data.
//! * **I10** What a reader gets is the record that the entry means: its block, its version, its location, its
//!   container.
//! * **I11** Truncated pages do not come back: neither from older entries nor when the segment grows again.
//! * **I12** A process killed anywhere leaves others able to read, write and commit. What was under way is
//!   done anew from the map in memory.
//! * **I13** A page's dictionary is there as long as the page. It is written with numbers only that a durable
//!   root has, and one leaves the root when no page needs it and nobody may still publish one. No number is
//!   given out twice in the container's life.
//! * **I14** A leaf of the map is loaded only into entries that are missing: what was written since its record
//!   was is kept, what was cut off stays so. It is unloaded only if its record says all that memory does.
//! * **I15** Space that leaves may refer to that are not in memory is not freed before all are.

use std::sync::atomic::AtomicU64;

use crate::device::{Alone, Device, DeviceError, Need, ProcessTable};
use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::record::{self, HEADER_BYTES, Header, Kind, PAGE_PAYLOAD_MAX, PageKind, RECORD_BYTES_MAX};
use crate::format::root::{Base, DISK_BLOCK_BYTES, DictionaryPlace, Identity, Root};
use crate::format::units::{Block, ContainerId, DictionaryNumber, Span, UNIT_BYTES, Units, Version};
use crate::page::PAGE_SIZE;
use crate::seal::{SEAL_OVERHEAD_MAX, Seal};
use crate::shared::allocator::{Purpose, Reserved};
use crate::shared::lock::CommitGuard;
use crate::shared::region::Geometry;
use crate::shared::state::{Counter, SharedState};
use crate::shared::word::Word;

/// How often the root in memory is looked at while another process replaces it.
const ROOT_TRIES: usize = 20;

/// How often one write draws on the reserve: others may take what it was given.
pub(crate) const RESERVE_TRIES: usize = 16;

/// How often one write makes room among the container's addresses before it fails.
const ROOM_TRIES: u32 = 6;

/// How a container is used. The same for all its processes.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The shared memory's layout.
    pub geometry: Geometry,
    /// When map records are written.
    pub tuning: Tuning,
    /// The container's key; `None`: its file's ([`Device::seal`]), if that has one.
    pub seal: Option<&'a dyn Seal>,
    /// Nothing is written, not even the raised epoch.
    pub read_only: bool,
    /// A bug, for tests of the tests.
    #[doc(hidden)]
    pub fault: Fault,
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
    /// Bytes of free extents at most that are kept for reuse before they are punched: this many ...
    pub free_bytes_min: u64,
    /// ... or one in so many live bytes, whichever is more.
    pub free_divisor: u64,
    /// Dead bytes that only moving frees, in percent of live ones, above which a write is followed by a piece
    /// of collection,
    pub ceiling_percent: u32,
    /// ... if they are this many at least.
    pub ceiling_bytes_min: u64,
    /// Bytes at most of such a piece. The next follows when a quarter as many were written.
    pub foreground_bytes: u64,
    /// Dead bytes of every kind, in percent of live ones, above which a writer commits and collects until
    /// there are fewer; more than [`LIMIT_PERCENT_MAX`]: there is no limit.
    pub limit_percent: u32,
    /// ... if they are this many at least.
    pub limit_bytes_min: u64,
    /// By how many bytes the file grows, since all of the map was in memory, before a commit loads the rest
    /// of it again: this many ...
    pub grown_bytes: u64,
    /// ... or one in so many of what the file was, whichever is less.
    pub grown_divisor: u64,
    /// Opening loads all of the map if one in so many bytes of the file may be free.
    pub sparse_divisor: u64,
}

/// Limits above this are none.
pub const LIMIT_PERCENT_MAX: u32 = 10_000;

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            inline_max: crate::format::root::INLINE_MAX,
            deltas_max: crate::format::root::DELTAS_MAX,
            changes_min: 1024,
            changes_divisor: 4,
            free_bytes_min: 256 << 10,
            free_divisor: 32,
            ceiling_percent: 80,
            ceiling_bytes_min: 1 << 20,
            foreground_bytes: 128 << 10,
            limit_percent: 100,
            limit_bytes_min: 4 << 20,
            grown_bytes: 4 << 20,
            grown_divisor: 16,
            sparse_divisor: 8,
        }
    }
}

impl<'a> Options<'a> {
    /// The container's seal: these options' or its file's.
    pub(crate) fn seal_of<'s>(&'s self, device: &'s impl Device) -> Option<&'s dyn Seal> {
        self.seal.or_else(|| device.seal())
    }

    /// For segments of `pages_max` pages, without a key.
    pub fn new(pages_max: u32) -> Options<'a> {
        Options {
            geometry: Geometry::of(pages_max),
            tuning: Tuning::default(),
            seal: None,
            read_only: false,
            fault: Fault::None,
        }
    }
}

/// An open container, as one process uses it. Any number of threads and processes read, write and commit at
/// the same time.
///
/// The caller sees to what PostgreSQL's locks see to: one process at a time writes a page, and nobody touches
/// pages that a truncation takes away. Everything else may happen at the same time as everything else.
pub struct Container<'m, D, P = Alone, W = AtomicU64> {
    pub(crate) device: D,
    pub(crate) processes: P,
    pub(crate) state: SharedState<'m, W>,
    pub(crate) options: Options<'m>,
    pub(crate) id: ContainerId,
    pub(crate) seed: u32,
    /// What salvage found, instead of the root's: there may be more of them than a root has.
    pub(crate) salvaged: Vec<DictionaryPlace>,
}

/// What a page is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored<'a> {
    /// All bytes of the page are zero.
    Zeros,
    /// The page itself, as it lies in the base.
    Base(&'a [u8]),
    /// A record.
    Record {
        /// How the payload is encoded, as it was given to `write`.
        mode: u8,
        /// The dictionary that the payload needs, 0 for none. The number means the same one for the
        /// container's whole life.
        dictionary: DictionaryNumber,
        /// What was given to `write`.
        payload: &'a [u8],
    },
}

/// Memory for one record, made once per process and used for every read and write.
pub struct Scratch {
    pub(crate) record: Vec<u8>,
    pub(crate) opened: Vec<u8>,
}

impl Scratch {
    /// Bytes that it takes.
    pub const BYTES: usize = 2 * RECORD_BYTES_MAX;

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

/// A page's record as it was read: its header, proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRecord {
    pub page: PageKind,
    pub header: Header,
    /// Where it was found.
    pub span: Span,
}

/// Where a page was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageFound {
    /// It is all zeros.
    Zeros,
    /// In the base.
    InBase,
    /// Its record, proved.
    Record(PageRecord),
}

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// Pages of the segment; none while a whole base has them ([`page_count`](Self::page_count)).
    pub fn pages(&self) -> u32 {
        self.state.pages()
    }

    /// The file: for what the engine does not do, as reading ahead.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The random name that binds records to this container.
    pub fn id(&self) -> ContainerId {
        self.id
    }

    /// Where the memory lies that its processes share.
    pub(crate) fn memory(&self) -> usize {
        std::ptr::from_ref(self.state.shared()).addr()
    }

    /// Which segment it says it is.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the last root cannot be read, in memory or in the file.
    pub fn identity(&self) -> Result<Identity, Error> {
        Ok(self.root_in_memory()?.identity)
    }

    /// Lets go of the locks that this process holds: for the error handler of a process that may have left a
    /// call of the engine by `longjmp`, which drops nothing. What was under way is then as if the process had
    /// been killed, and the process may go on. Never while a call of this process is running.
    pub fn release_held(&self) {
        crate::shared::lock::release_held(self.state.shared(), &self.processes);
    }

    /// Reads a page's record: one look into memory, one pread, no allocation, no lock. The first read of a
    /// leaf's pages since opening loads the leaf as well; if that is damaged, this is the error for each page
    /// whose entry it has.
    ///
    /// A record that is not what the entry says was replaced meanwhile, which shows by the entry having
    /// changed; if the entry has not changed, two reads in a row decide that it is damaged.
    ///
    /// # Errors
    /// [`Error::PastEnd`]; [`Error::Damaged`] with everything that is known of it; [`Error::Device`].
    pub fn read<'s>(&self, block: u32, scratch: &'s mut Scratch) -> Result<Stored<'s>, Error> {
        let block = Block(block);
        let pages = self.page_count()?;
        if block.0 >= pages {
            return Err(Error::PastEnd { block: block.0, pages });
        }
        if self.base() == Base::Whole {
            scratch.record.resize(RECORD_BYTES_MAX, 0);
            self.read_base(block.0, &mut scratch.record[..PAGE_SIZE])?;
            return Ok(Stored::Base(&scratch.record[..PAGE_SIZE]));
        }
        match self.read_record(block, scratch)? {
            PageFound::Zeros => Ok(Stored::Zeros),
            PageFound::InBase => Ok(Stored::Base(&scratch.record[..PAGE_SIZE])),
            PageFound::Record(found) => self.open_payload(&found, &scratch.record, &mut scratch.opened),
        }
    }

    /// What was given to `write`, of a record that was proved and whose bytes are these.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it does not open with the container's key.
    pub(crate) fn open_payload<'s>(
        &self,
        found: &PageRecord,
        record: &'s [u8],
        opened: &'s mut [u8],
    ) -> Result<Stored<'s>, Error> {
        let PageRecord { page: PageKind { block, mode, dictionary }, header, span } = found;
        let (mode, dictionary) = (*mode, *dictionary);
        let stored = &record[HEADER_BYTES..HEADER_BYTES + header.payload_len];
        let Some(seal) = self.seal() else {
            return Ok(Stored::Record { mode, dictionary, payload: stored });
        };
        let length = seal.open(&record::associated(&self.id, header), stored, opened);
        let length = length.ok_or_else(|| page_damage(*block, *span, Reason::Seal))?;
        Ok(Stored::Record { mode, dictionary, payload: &opened[..length] })
    }

    /// Finds a page, and reads its record or its page in the base into `scratch.record`.
    ///
    /// # Errors
    /// [`Error::PastEnd`]; [`Error::Damaged`] and [`Error::Device`] where two reads in a row fail.
    pub(crate) fn read_record(&self, block: Block, scratch: &mut Scratch) -> Result<PageFound, Error> {
        let mut unloads = self.state.unloads();
        let mut entry = self.state.entry(block);
        self.state.mark_used(block.leaf());
        let mut was_bad = false;
        loop {
            if entry.is_zeros() || (entry.is_missing() && self.options.fault.is(Fault::MissingReadsAsZeros)) {
                return Ok(PageFound::Zeros);
            }
            self.device.pause();
            let failure = match entry.record_span() {
                Some(_) => match self.read_at(entry, block, &mut scratch.record) {
                    Ok(record) => return Ok(PageFound::Record(record)),
                    Err(failure) => failure,
                },
                None if entry.is_in_base() => {
                    scratch.record.resize(RECORD_BYTES_MAX, 0);
                    match self.read_base(block.0, &mut scratch.record[..PAGE_SIZE]) {
                        Ok(()) => return Ok(PageFound::InBase),
                        Err(failure) => failure,
                    }
                }
                None => match self.load_for(block) {
                    Ok(true) => {
                        entry = self.state.entry(block);
                        if !entry.is_missing() {
                            continue;
                        }
                        page_damage(block, Span::default(), Reason::NoEntry)
                    }
                    Ok(false) => page_damage(block, Span::default(), Reason::NoEntry),
                    Err(failure) => failure,
                },
            };
            let unloads_now = self.state.unloads();
            let now = self.state.entry(block);
            // An entry that is missing again may have been there in between.
            let changed = now.clean() != entry.clean() || unloads_now != unloads;
            unloads = unloads_now;
            let pages = self.pages();
            if block.0 >= pages {
                return Err(Error::PastEnd { block: block.0, pages });
            }
            if !changed && was_bad {
                self.state.count(Counter::Damages, 1);
                return Err(failure);
            }
            self.state.count(Counter::ReadRetries, 1);
            was_bad = !changed;
            entry = now;
        }
    }

    /// Reads and proves the record that `entry` means.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not that record, or not whole; [`Error::Device`].
    pub(crate) fn read_at(
        &self,
        entry: Entry,
        block: Block,
        buffer: &mut Vec<u8>,
    ) -> Result<PageRecord, Error> {
        let span = entry.span();
        let damage = |reason| page_damage(block, span, reason);
        let (offset, length) = (span.location.offset(), span.units.bytes());
        buffer.resize(RECORD_BYTES_MAX.max(length), 0);
        let buffer = &mut buffer[..length];
        let got = self.device.pread(buffer, offset);
        let got = got.map_err(|source| Error::device("read", offset, length, source))?;
        if got < length {
            return Err(damage(Reason::CutOff { expected: length as u64, found: got as u64 }));
        }
        self.prove(entry, block, buffer)
    }

    /// Proves that these bytes, read where `entry` says and as many, are the record that it means.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they are not.
    pub(crate) fn prove(&self, entry: Entry, block: Block, bytes: &[u8]) -> Result<PageRecord, Error> {
        let span = entry.span();
        let damage = |reason| page_damage(block, span, reason);
        let header = record::check(bytes, self.seed, span.location).map_err(damage)?;
        let Kind::Page(page) = header.kind else {
            return Err(damage(Reason::OtherKind));
        };
        if page.block != block {
            return Err(damage(Reason::OtherBlock { expected: block.0, found: page.block.0 }));
        }
        if !self.options.fault.is(Fault::ReaderIgnoresTag) {
            if !entry.has_tag_of(header.version) {
                let (expected_tag, found) = (entry.tag(), header.version.0);
                return Err(damage(Reason::OtherVersion { expected_tag, found }));
            }
            if header.units() != span.units {
                let (expected, found) = (bytes.len() as u64, header.units().bytes() as u64);
                return Err(damage(Reason::OtherLength { expected, found }));
            }
        }
        Ok(PageRecord { page, header, span })
    }

    /// Stores a page: one append, one swap of its entry. Durable after the next [`commit`](Self::commit).
    /// Grows the segment as needed; pages in between become empty ones. When there is far too much garbage, a
    /// piece of collection follows, and commits at the limit; when the container's own addresses are used up,
    /// or the filesystem's space where the page is there already, commits and collection come first.
    ///
    /// `payload` is 1 to [`PAGE_PAYLOAD_MAX`] less [`SEAL_OVERHEAD_MAX`] bytes. `dictionary` is one of
    /// [`add_dictionary`](Self::add_dictionary), or 0.
    ///
    /// # Errors
    /// After an error the page is what it was. [`Error::DictionaryRetired`] and [`Error::DictionaryMissing`]
    /// ask for another encoding. [`Error::is_no_space`]: no room on the device or among the addresses.
    pub fn write(
        &self,
        block: u32,
        mode: u8,
        dictionary: DictionaryNumber,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let block = Block(block);
        self.check_write(block, payload.len())?;
        let mut tries = 0;
        loop {
            let page = PageKind { block, mode, dictionary };
            match self.write_record(page, payload, scratch) {
                Err(error) if tries < ROOM_TRIES && self.is_cured_by_room(&error, block) => {
                    tries += 1;
                    self.make_room(tries, error)?;
                }
                done => {
                    if done.is_ok() {
                        self.collect_after_write();
                    }
                    return done;
                }
            }
        }
    }

    fn write_record(&self, page: PageKind, payload: &[u8], scratch: &mut Scratch) -> Result<(), Error> {
        let block = page.block;
        // Until the page is published or given up.
        let _inside = self.state.enter_dictionary(page.dictionary)?;
        let version = self.draw_version()?;
        let header = self.build(Kind::Page(page), version, payload, &mut scratch.record);
        let need = (block.0 < self.pages()).then_some(Need::Page);
        let reserved = self.append(&header, &mut scratch.record, Purpose::Page, need)?;
        self.state.count(Counter::WrittenBytes, header.units().bytes() as u64);
        self.device.pause();
        // The page count first: a commit that finds the space finished must find the entry below the end.
        self.grow_to(block.0 + 1, version);
        self.device.pause();
        self.state.publish(block, Entry::record(reserved.span(), version), &self.processes);
        self.device.pause();
        drop(reserved);
        Ok(())
    }

    /// Makes a page all zeros, which needs no space.
    ///
    /// # Errors
    /// [`Error::Limit`] for a block that the segment cannot have; [`Error::ReadOnly`].
    pub fn write_zeros(&self, block: u32) -> Result<(), Error> {
        let block = Block(block);
        self.check_write(block, 1)?;
        let version = self.draw_version_or_commit()?;
        self.grow_to(block.0 + 1, version);
        self.state.publish(block, Entry::zeros(version), &self.processes);
        Ok(())
    }

    /// Makes the segment at least `pages` long; new pages are all zeros. Needs no space and is no commit.
    ///
    /// # Errors
    /// [`Error::Limit`] for more pages than the segment can have; [`Error::ReadOnly`].
    pub fn extend(&self, pages: u32) -> Result<(), Error> {
        if self.base() == Base::Whole {
            return self.extend_whole(pages);
        }
        if pages <= self.pages() {
            return Ok(());
        }
        self.check_write(Block(pages - 1), 1)?;
        let version = self.draw_version_or_commit()?;
        self.grow_to(pages, version);
        Ok(())
    }

    fn grow_to(&self, pages: u32, version: Version) {
        while !self.state.grow(pages, version, &self.processes) {
            // Ends the truncation of a process that died.
            drop(self.lock_commit());
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_container()
    }

    /// The shared memory may be another container's by now: the file was removed while this process had it
    /// open.
    ///
    /// # Errors
    /// [`Error::OtherContainer`].
    pub(crate) fn check_container(&self) -> Result<(), Error> {
        let expected = self.state.container();
        if expected == self.id { Ok(()) } else { Err(Error::OtherContainer { expected, found: self.id }) }
    }

    fn check_write(&self, block: Block, payload_len: usize) -> Result<(), Error> {
        self.check_writable()?;
        let allowed = u64::from(self.options.geometry.pages_max);
        if u64::from(block.0) >= allowed {
            return Err(Error::Limit { what: "block", found: block.0.into(), allowed: allowed - 1 });
        }
        let (found, allowed) = (payload_len as u64, (PAGE_PAYLOAD_MAX - SEAL_OVERHEAD_MAX) as u64);
        if found == 0 || found > allowed {
            return Err(Error::Limit { what: "payload of a page in bytes", found, allowed });
        }
        Ok(())
    }

    pub(crate) fn draw_version(&self) -> Result<Version, Error> {
        let allowed = self.state.shared().version_limit.load();
        let drawn = self.state.draw_version();
        drawn.ok_or(Error::Limit { what: VERSIONS_LIMIT, found: allowed, allowed })
    }

    pub(crate) fn draw_version_or_commit(&self) -> Result<Version, Error> {
        self.draw_version().or_else(|_| {
            self.commit_now()?;
            self.draw_version()
        })
    }

    /// Whether a write that failed is tried again after making room. For the filesystem's space, only where
    /// the page is there already: a segment that is to grow gets ENOSPC.
    fn is_cured_by_room(&self, error: &Error, block: Block) -> bool {
        match error {
            Error::AddressSpace { .. } | Error::Limit { what: VERSIONS_LIMIT, .. } => true,
            Error::Device { source: DeviceError::NoSpace, .. } => block.0 < self.pages(),
            _ => false,
        }
    }

    /// What a write does when addresses, versions or the filesystem's space are used up: it commits, as that
    /// frees what was replaced; then it collects and commits. Space that is free then is given to the
    /// filesystem, which has none. Needs nobody else, so it works in redo as well.
    fn make_room(&self, tries: u32, failure: Error) -> Result<(), Error> {
        self.state.count(Counter::RoomMade, 1);
        let is_of_versions = matches!(failure, Error::Limit { .. });
        let done = if is_of_versions || tries == 1 { self.commit_now() } else { self.collect_for_room() };
        let is_of_device = matches!(failure, Error::Device { .. });
        let done = done.and_then(|()| if is_of_device { self.punch_for_room() } else { Ok(()) });
        // What the write failed by says more than why that could not be cured, unless commits are over or a commit
        // was all that it lacked.
        done.map_err(|error| if is_of_versions || error == Error::Poisoned { error } else { failure })
    }

    /// What the container is sealed with.
    pub(crate) fn seal(&self) -> Option<&dyn Seal> {
        self.options.seal_of(&self.device)
    }

    /// Puts payload, sealed if there is a key, behind room for the header.
    pub(crate) fn build(&self, kind: Kind, version: Version, payload: &[u8], out: &mut Vec<u8>) -> Header {
        out.clear();
        out.resize(HEADER_BYTES, 0);
        let header = Header { kind, payload_len: payload.len(), version };
        match self.seal() {
            None => out.extend_from_slice(payload),
            Some(seal) => seal.seal(&record::associated(&self.id, &header), payload, out),
        }
        Header { payload_len: out.len() - HEADER_BYTES, ..header }
    }

    /// Writes what [`build`](Self::build) made at a place of its own, with help of the reserve if there is a
    /// need that allows it. It is finished there when what is returned is dropped.
    ///
    /// # Errors
    /// [`Error::AddressSpace`] where nothing is left for this purpose; [`Error::Device`], of a full disk too
    /// where the reserve does not help.
    pub(crate) fn append(
        &self,
        header: &Header,
        record: &mut Vec<u8>,
        purpose: Purpose,
        need: Option<Need>,
    ) -> Result<Reserved<'_, W>, Error> {
        let mut tries = 0;
        loop {
            let appending = self.state.enter_append();
            let reserved = self.reserve(header.units(), purpose)?;
            self.device.pause();
            if self.state.was_left(&appending) {
                // A commit has left the disk block and may have stopped waiting for this writer: the disk
                // block may hold records that were made durable, and a write torn by a power failure would
                // take them along.
                continue;
            }
            record.truncate(HEADER_BYTES + header.payload_len);
            let Span { location, .. } = reserved.span();
            record::finish(record, header, self.seed, location);
            let Err(source) = self.device.pwrite(record, location.offset()) else {
                return Ok(reserved);
            };
            drop(appending);
            if source == DeviceError::NoSpace {
                self.state.shared().completion_due.store(1);
            }
            let collects_in_foreground = source == DeviceError::NoSpace
                && tries < RESERVE_TRIES
                && need.is_some_and(|need| self.device.release_reserve(record.len() as u64, need));
            if !collects_in_foreground {
                return Err(Error::device("write", location.offset(), record.len(), source));
            }
            tries += 1;
        }
    }

    fn reserve(&self, units: Units, purpose: Purpose) -> Result<Reserved<'_, W>, Error> {
        if let Some(reserved) = self.state.reserve(units, purpose) {
            return Ok(reserved);
        }
        self.state.shared().completion_due.store(1);
        let limit = self.options.geometry.bytes_max();
        Err(Error::AddressSpace { needed: units.bytes() as u64, limit })
    }

    /// Cuts the segment to `pages`. Needs no space and cannot fail for the want of it; durable, and its space
    /// free, with the next commit. The caller keeps others from the pages that go, as PostgreSQL does; a
    /// collector need not be kept from them.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OtherContainer`].
    pub fn truncate(&self, pages: u32) -> Result<(), Error> {
        self.check_writable()?;
        if self.base() == Base::Whole {
            return self.truncate_whole(pages);
        }
        let guard = self.lock_commit();
        self.device.pause();
        if self.options.fault.is(Fault::TruncationForgotten) {
            self.state.cut_and_forget(pages, &guard);
        } else {
            self.state.cut(pages, &guard, &self.processes);
        }
        Ok(())
    }

    /// Takes the commit lock, and ends a truncation that its process did not.
    pub(crate) fn lock_commit(&self) -> CommitGuard<'_, W> {
        let guard = CommitGuard::lock(self.state.shared(), &self.processes);
        self.state.end_cut(&guard, &self.processes);
        guard
    }

    /// As [`lock_commit`](Self::lock_commit), if nobody who lives holds it.
    pub(crate) fn try_lock_commit(&self) -> Option<CommitGuard<'_, W>> {
        let guard = CommitGuard::try_lock(self.state.shared(), &self.processes)?;
        self.state.end_cut(&guard, &self.processes);
        Some(guard)
    }

    /// The last root. Without the commit lock it may just be replaced; what a dead process left of it is not
    /// waited for.
    ///
    /// # Errors
    /// As [`find_root`](Self::find_root), which is asked where memory has none for long.
    pub(crate) fn root_in_memory(&self) -> Result<Root, Error> {
        for _ in 0..ROOT_TRIES {
            if let Ok(root) = Root::decode_image(&self.state.image()) {
                return Ok(root);
            }
            self.processes.relax();
        }
        self.find_root().map(|found| found.root)
    }

    /// The last root, for who holds the commit lock: if it is half of one, a process died while it took it
    /// into memory.
    ///
    /// # Errors
    /// As [`find_root`](Self::find_root), which is asked then.
    pub(crate) fn root_held(&self, _: &CommitGuard<'_, W>) -> Result<Root, Error> {
        Root::decode_image(&self.state.image()).or_else(|_| self.find_root().map(|found| found.root))
    }

    /// Bytes of the reserve that a commit may need at most, for a segment as it is now.
    pub fn commit_bytes_max(&self) -> u64 {
        let geometry = &self.options.geometry;
        geometry.commit_bytes_max(self.pages()) + geometry.extent_bytes() * 2 + DISK_BLOCK_BYTES as u64 * 2
    }
}

/// What is said when no version is left before the next commit.
const VERSIONS_LIMIT: &str = "writes without a commit; version";

pub(crate) fn page_damage(block: Block, span: Span, reason: Reason) -> Error {
    let (offset, length) = (span.location.offset(), span.units.bytes() as u64);
    Damage { part: Part::Page, block: Some(block.0), offset, length, reason }.into()
}

const _: () = assert!(RECORD_BYTES_MAX.is_multiple_of(UNIT_BYTES));
