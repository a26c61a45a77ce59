//! The base: a plain file beside the container, in which pages lie while a segment changes its form.
//!
//! What it is says [`Base`]; `docs/decisions/2026-11-25-cfs-live-conversion.md` has the whole of it. Here is what one
//! process does with it, and the steps from one state to the next.
//!
//! # Invariants
//! * **B1** A page is read from the base only where the map says that it is there, or the base is whole.
//! * **B2** While pages leave the base, nobody writes to it. Who did before has let go: a state in which writers use the
//!   base ends only while nobody else has the segment pinned ([`freeze`](Container::freeze)).
//! * **B3** A copy is published only in the place of the very entry that was copied: a write, a truncation and what
//!   grows after it have other entries.
//! * **B4** An entry "in the base" is durable only after the page in the base is, and a root without a base only after
//!   all records that took its place are.
//! * **B5** What an fsync of the segment acknowledges includes what was written to the base.

use crate::device::{Device, DeviceError, ProcessTable};
use crate::engine::collector::Anew;
use crate::engine::container::{Container, Scratch};
use crate::engine::prepared::sync_with;
use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::record::{Kind, PageKind};
use crate::format::root::{Base, Root};
use crate::format::units::{Block, DictionaryNumber};
use crate::page::PAGE_SIZE;
use crate::shared::allocator::Purpose;
use crate::shared::lock::{CollectorGuard, CommitGuard};
use crate::shared::region::Shared;
use crate::shared::state::{Counter, SharedState};
use crate::shared::word::Word;

/// In `Shared::base`: who pins the segment is to let go and wait.
const FROZEN: u64 = 1 << 8;
/// In `Shared::base`: the segment's name is the base's again, and only descriptors of before lead here.
const LEFT: u64 = 1 << 9;

/// How long the engine's calls on a base are, in bytes.
const PAGE: u64 = PAGE_SIZE as u64;

/// The operation named in an error when the size of the base is not available.
pub const BASE_SIZE: &str = "size of the base";

/// What became of a page that was to change its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// It has, and took so many bytes of a record.
    Done {
        /// Bytes of the record, rounding included; none of a page of zeros or of one that went to the base.
        bytes: u32,
    },
    /// It had already, or a writer was quicker.
    NotThere,
    /// Another process collects: it is to be tried again.
    Busy,
}

impl Base {
    fn of_word(word: u64) -> Base {
        match word & 0xff {
            1 => Base::Whole,
            2 => Base::Leaving,
            3 => Base::Returning,
            _ => Base::None,
        }
    }

    fn word(self) -> u64 {
        self as u64
    }
}

impl<W: Word> SharedState<'_, W> {
    pub(crate) fn base(&self) -> Base {
        Base::of_word(self.shared().base.load())
    }

    /// Whether the segment's name is the base's again.
    pub(crate) fn has_left(&self) -> bool {
        self.shared().base.load() & LEFT != 0
    }

    /// Takes what the root says of the base into memory, with nobody else there yet.
    pub(crate) fn set_base(&self, root: &Root) {
        self.shared().base.store(root.base.word());
        self.shared().policy.store(root.policy.into());
    }

    /// Whether the base has something that only a commit makes durable.
    pub(crate) fn has_unsynced_base(&self) -> bool {
        let shared = self.shared();
        match self.base() {
            Base::None => false,
            Base::Whole => true,
            Base::Leaving | Base::Returning => shared.base_writes.load() != shared.base_synced.load(),
        }
    }
}

/// Syncs the base, for who holds the commit lock or works for who does. What fails ends all commits.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn sync_base<W: Word>(
    shared: &Shared<W>,
    fault: Fault,
    device: &impl Device,
) -> Result<(), Error> {
    if fault.is(Fault::BaseNotSynced) {
        return Ok(());
    }
    let writes = shared.base_writes.load();
    sync_with(shared, fault, || device.base_fdatasync(), "fdatasync of the base")?;
    shared.base_synced.store(writes);
    Ok(())
}

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// What the base is now. Who has the segment pinned keeps it from changing in a way that matters to what is
    /// under way.
    pub fn base(&self) -> Base {
        self.state.base()
    }

    /// What the caller keeps about how pages are written; 0: nothing.
    pub fn policy(&self) -> u32 {
        self.state.shared().policy.load() as u32
    }

    /// Pages of the segment, wherever they lie.
    ///
    /// # Errors
    /// [`Error::Device`] where the base does not say its size.
    pub fn page_count(&self) -> Result<u32, Error> {
        match self.base() {
            Base::Whole => self.base_pages(),
            _ => Ok(self.pages()),
        }
    }

    /// The device, for calls on the base that there is now.
    pub(crate) fn base_device(&self) -> &D {
        self.device.use_base(self.state.shared().base_number.load());
        &self.device
    }

    /// Whole pages of the base. A part of one at its end is none, as in the server.
    fn base_pages(&self) -> Result<u32, Error> {
        let size = self.base_device().base_size().map_err(|source| Error::device(BASE_SIZE, 0, 0, source))?;
        let (found, allowed) = (size / PAGE, u64::from(self.options.geometry.pages_max));
        if found > allowed {
            return Err(Error::Limit { what: "pages of the base", found, allowed });
        }
        Ok(found as u32)
    }

    /// Reads a page of the base.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::Damaged`] where the base ends before it.
    pub fn read_base(&self, block: u32, page: &mut [u8]) -> Result<(), Error> {
        let offset = u64::from(block) * PAGE;
        let got = self.base_device().base_pread(page, offset);
        let got = got.map_err(|source| Error::device("read of the base", offset, page.len(), source))?;
        if got < page.len() {
            let reason = Reason::CutOff { expected: page.len() as u64, found: got as u64 };
            let length = page.len() as u64;
            return Err(Damage { part: Part::Base, block: Some(block), offset, length, reason }.into());
        }
        Ok(())
    }

    /// Reads pages of a whole base, as many as there are of these; returns how many.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn read_whole(&self, block: u32, pages: &mut [u8]) -> Result<u32, Error> {
        let offset = u64::from(block) * PAGE;
        let got = self.base_device().base_pread(pages, offset);
        let got = got.map_err(|source| Error::device("read of the base", offset, pages.len(), source))?;
        Ok((got / PAGE_SIZE) as u32)
    }

    /// Writes a page where it belongs if that is the base; false: it belongs into the container.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn write_base(&self, block: u32, page: &[u8; PAGE_SIZE]) -> Result<bool, Error> {
        let is_there = match self.base() {
            Base::None | Base::Leaving => false,
            Base::Whole => true,
            Base::Returning => block < self.pages() && self.entry_of(Block(block))?.is_in_base(),
        };
        if is_there {
            self.put_into_base(block, page)?;
        }
        Ok(is_there)
    }

    fn put_into_base(&self, block: u32, page: &[u8; PAGE_SIZE]) -> Result<(), Error> {
        self.check_writable()?;
        let offset = u64::from(block) * PAGE;
        let (found, allowed) = (u64::from(block), u64::from(self.options.geometry.pages_max) - 1);
        if found > allowed {
            return Err(Error::Limit { what: "block of a page", found, allowed });
        }
        let put = self.base_device().base_pwrite(page, offset);
        put.map_err(|source| Error::device("write of the base", offset, PAGE_SIZE, source))?;
        self.device.pause();
        // After the write: who sees it counted and syncs has it on the disk.
        self.state.shared().base_writes.add(1);
        Ok(())
    }

    /// Makes a whole base at least so long, with zeros that take their space now.
    ///
    /// # Errors
    /// [`Error::Device`]: after one of them a part of the pages may be there.
    pub(crate) fn extend_whole(&self, pages: u32) -> Result<(), Error> {
        for block in self.base_pages()?..pages {
            self.put_into_base(block, &[0; PAGE_SIZE])?;
        }
        Ok(())
    }

    /// Cuts a whole base.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn truncate_whole(&self, pages: u32) -> Result<(), Error> {
        self.check_writable()?;
        if pages < self.base_pages()? {
            self.cut_base(pages)?;
        }
        Ok(())
    }

    /// Gives the space of a base back whose segment is being dropped: it was cut to nothing, and that is durable.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn drop_base(&self) -> Result<(), Error> {
        self.check_writable()?;
        if self.base() == Base::None || self.page_count()? > 0 {
            return Ok(());
        }
        self.cut_base(0)
    }

    fn cut_base(&self, pages: u32) -> Result<(), Error> {
        let size = u64::from(pages) * PAGE;
        let cut = self.base_device().base_truncate(size);
        cut.map_err(|source| Error::device("truncate of the base", size, 0, source))?;
        self.state.shared().base_writes.add(1);
        Ok(())
    }

    /// A page's entry, its leaf loaded if need be.
    fn entry_of(&self, block: Block) -> Result<Entry, Error> {
        loop {
            let entry = self.state.entry(block);
            if !entry.is_missing() || !self.load_for(block)? {
                return Ok(entry);
            }
        }
    }

    /// Asks everybody who pins the segment from now on to let go, and to wait for the next state. False: it is asked
    /// already. Only for states in which writers use the base.
    pub fn freeze(&self) -> bool {
        let word = &self.state.shared().base;
        let found = word.load();
        let can =
            matches!(Base::of_word(found), Base::Whole | Base::Returning) && found & (FROZEN | LEFT) == 0;
        can && word.swap_if(found, found | FROZEN).is_ok()
    }

    /// Whether who pins the segment is to let go.
    pub fn is_frozen(&self) -> bool {
        self.state.shared().base.load() & FROZEN != 0
    }

    /// Takes [`freeze`](Self::freeze) back: for who froze the segment, and for who has waited for too long.
    pub fn thaw(&self) {
        let word = &self.state.shared().base;
        let found = word.load();
        if found & FROZEN != 0 {
            let _ = word.swap_if(found, found & !FROZEN);
        }
    }

    /// The end of a frozen state: the only step that counts. False: somebody who waited has taken it back, and what
    /// was prepared is void.
    fn become_after(&self, before: Base, after: Base) -> bool {
        let word = &self.state.shared().base;
        word.swap_if(before.word() | FROZEN, after.word()).is_ok()
    }

    /// From [`Base::Whole`] to [`Base::Leaving`]: all pages of the base get entries. The caller has frozen the segment
    /// and found that nobody else has it pinned since. False: it was thawed meanwhile, and nothing has changed. Durable
    /// with the next commit, which syncs the base; until then a crash leaves a whole base.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Limit`]; as [`commit`](Self::commit) where versions are used up. Nothing has changed.
    pub fn begin_leaving(&self) -> Result<bool, Error> {
        self.check_writable()?;
        let guard = self.lock_commit();
        let pages = self.base_pages()?;
        let version = match self.state.draw_version() {
            Some(version) => version,
            None => {
                self.commit_locked(&guard, false)?;
                self.draw_version()?
            }
        };
        // What an attempt before this one has left.
        self.state.empty(&guard, &self.processes);
        self.state.fill_from_base(pages, version, &guard);
        self.device.pause();
        self.state.shared().base_writes.add(1);
        let is_done = self.become_after(Base::Whole, Base::Leaving);
        if !is_done {
            self.state.empty(&guard, &self.processes);
        }
        Ok(is_done)
    }

    /// From a container, or from [`Base::Leaving`], to [`Base::Returning`]. The caller has made the base, where there
    /// was none, and its name durable.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no base; [`Error::Unsupported`] for a sealed container, whose pages would be
    /// written in the clear; as [`commit`](Self::commit).
    pub fn begin_returning(&self) -> Result<bool, Error> {
        self.check_writable()?;
        if self.seal().is_some() {
            return Err(Error::Unsupported {
                what: "plain form of an encrypted container",
                found: 1,
                known: 0,
            });
        }
        let word = &self.state.shared().base;
        let guard = self.lock_commit();
        let found = word.load();
        if Base::of_word(found) == Base::None {
            // Descriptors of one before are not of this one. Nobody uses either yet.
            self.state.shared().base_number.add(1);
        }
        self.base_pages()?;
        let can = matches!(Base::of_word(found), Base::None | Base::Leaving) && found & LEFT == 0;
        if !can || word.swap_if(found, Base::Returning.word()).is_err() {
            return Ok(false);
        }
        self.commit_locked(&guard, false)?;
        Ok(true)
    }

    /// From [`Base::Returning`] to [`Base::Leaving`]: the conversion is turned round. The caller has frozen the segment
    /// and found that nobody else has it pinned since. False: it was thawed meanwhile.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OtherContainer`].
    pub fn turn_round(&self) -> Result<bool, Error> {
        self.check_writable()?;
        let _guard = self.lock_commit();
        self.state.shared().base_writes.add(1);
        Ok(self.become_after(Base::Returning, Base::Leaving))
    }

    /// From [`Base::Returning`] to [`Base::Whole`], if all pages are in the base. The caller has committed, frozen the
    /// segment and found that nobody else has it pinned since. False: a page is not there, or not durably, or it was
    /// thawed meanwhile.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::Damaged`] where a leaf of the map cannot be loaded.
    pub fn become_whole(&self) -> Result<bool, Error> {
        self.check_writable()?;
        let guard = self.lock_commit();
        self.load_leaves()?;
        let pages = self.pages();
        // Durably so: after this the base may be cut before a root says that it is whole.
        let is_durable = self.root_held(&guard)?.pages == pages;
        let is_there = |entry: Entry| entry.is_in_base() && !entry.is_dirty();
        if !is_durable || !Block(0).up_to(pages).all(|block| is_there(self.state.entry(block))) {
            return Ok(false);
        }
        // What is behind it was never the segment's, or was cut off.
        self.cut_base(pages)?;
        self.device.pause();
        let is_done = self.become_after(Base::Returning, Base::Whole);
        if is_done {
            self.state.empty(&guard, &self.processes);
            self.state.shared().map_checkpoint_due.store(1);
        }
        Ok(is_done)
    }

    /// A base to which pages return was synced with all pages that the root says are there. If it lacks one, it was whole
    /// before the crash and was cut, and no root had said so yet; then the root says of all pages that they are there.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the base lacks pages and others never were in it; [`Error::Device`].
    pub(crate) fn fit_to_base(&self, guard: &CommitGuard<'_, W>, root: &mut Root) -> Result<(), Error> {
        if root.base != Base::Returning {
            return Ok(());
        }
        let there = self.base_pages()?;
        let (behind, _) = self.in_base_of(there..root.pages)?;
        if behind == 0 {
            return Ok(());
        }
        let (all, _) = self.in_base_of(0..root.pages)?;
        if all < root.pages {
            let (offset, length) = (u64::from(there) * PAGE, PAGE);
            let reason = Reason::CutOff { expected: u64::from(there + behind) * PAGE, found: offset };
            return Err(Damage { part: Part::Base, block: Some(there), offset, length, reason }.into());
        }
        root.cut(there);
        self.state.set_pages(root.pages);
        self.state.shared().load_limit.store(root.pages.into());
        self.state.clear_entries_above(guard);
        Ok(())
    }

    /// From [`Base::Leaving`] to a container alone, durably, if no page is in the base any more. False: one is. After
    /// this the base may be removed.
    ///
    /// # Errors
    /// [`Error::Damaged`] where a leaf of the map cannot be loaded; as [`commit`](Self::commit): the base stays what
    /// it is then until the next commit succeeds.
    pub fn finish_leaving(&self) -> Result<bool, Error> {
        self.check_writable()?;
        let guard = self.lock_commit();
        if self.base() == Base::Leaving {
            self.load_leaves()?;
            if Block(0).up_to(self.pages()).any(|block| self.state.entry(block).is_in_base()) {
                return Ok(false);
            }
            // Entries as they are now go into the root that says so.
            self.state.shared().base.store(Base::None.word());
        }
        if self.base() != Base::None {
            return Ok(false);
        }
        self.commit_locked(&guard, false)?;
        Ok(true)
    }

    /// The segment's name is the base's again: nothing here is to be opened by name any more.
    pub fn leave(&self) -> bool {
        let word = &self.state.shared().base;
        word.swap_if(Base::Whole.word(), Base::Whole.word() | LEFT).is_ok()
    }

    /// Whether [`leave`](Self::leave) was called.
    pub fn has_left(&self) -> bool {
        self.state.has_left()
    }

    /// Commits with another policy in the root: what the caller keeps about how pages are written.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn set_policy(&self, policy: u32) -> Result<(), Error> {
        self.commit_changing(|root| root.policy = policy)?;
        self.state.shared().policy.store(policy.into());
        Ok(())
    }

    /// How many of the pages from `from` on are in the base, of at most `count`, and the first of them.
    ///
    /// # Errors
    /// [`Error::Damaged`] where a leaf of the map cannot be loaded.
    pub fn in_base(&self, from: u32, count: u32) -> Result<(u32, Option<u32>), Error> {
        self.in_base_of(from..from.saturating_add(count).min(self.pages()))
    }

    fn in_base_of(&self, blocks: std::ops::Range<u32>) -> Result<(u32, Option<u32>), Error> {
        let (mut found, mut first) = (0, None);
        for block in blocks {
            if self.entry_of(Block(block))?.is_in_base() {
                found += 1;
                first = first.or(Some(block));
            }
        }
        Ok((found, first))
    }

    /// Copies a page from a base that pages leave into the container. `encode` is given the page, and says how it is
    /// stored; `None`: it is all zeros.
    ///
    /// # Errors
    /// As of `encode`; [`Error::Device`], of a full disk too; [`Error::AddressSpace`]. The page is what it was.
    pub fn move_from_base<E: From<Error>>(
        &self,
        block: u32,
        scratch: &mut Scratch,
        encode: impl FnOnce(&[u8; PAGE_SIZE]) -> Result<Option<Anew>, E>,
    ) -> Result<Moved, E> {
        self.check_writable()?;
        // No leaf goes meanwhile.
        let Some(_guard) = CollectorGuard::try_lock(self.state.shared(), &self.processes) else {
            return Ok(Moved::Busy);
        };
        let block = Block(block);
        if block.0 >= self.pages() || self.base() != Base::Leaving {
            return Ok(Moved::NotThere);
        }
        let original = self.entry_of(block)?;
        if !original.is_in_base() {
            return Ok(Moved::NotThere);
        }
        let mut page = [0; PAGE_SIZE];
        match self.read_base(block.0, &mut page) {
            Err(_) if self.state.entry(block).clean() != original.clean() => return Ok(Moved::NotThere),
            done => done?,
        }
        let Some(Anew { mode, dictionary, payload }) = encode(&page)? else {
            let version = self.draw_version_or_commit()?;
            return Ok(self.put_in_place(block, original, Entry::zeros(version), 0));
        };
        let _inside = match self.state.enter_dictionary(dictionary) {
            Err(Error::DictionaryRetired(_) | Error::DictionaryMissing(_)) => return Ok(Moved::Busy),
            inside => inside?,
        };
        let version = self.draw_version_or_commit()?;
        let kind = Kind::Page(PageKind { block, mode, dictionary });
        let header = self.build(kind, version, &payload, &mut scratch.record);
        let reserved = self.append(&header, &mut scratch.record, Purpose::Page, None)?;
        let bytes = header.units().bytes() as u32;
        self.state.count(Counter::MovedBytes, bytes.into());
        self.device.pause();
        Ok(self.put_in_place(block, original, Entry::record(reserved.span(), version), bytes))
    }

    fn put_in_place(&self, block: Block, original: Entry, entry: Entry, bytes: u32) -> Moved {
        if self.options.fault.is(Fault::BaseCopyOverwrites) {
            self.state.publish(block, entry, &self.processes);
            return Moved::Done { bytes };
        }
        match self.state.replace(block, original, entry) {
            true => Moved::Done { bytes },
            false => Moved::NotThere,
        }
    }

    /// Writes a page of the container into a base that pages return to. `page` is given the page as it is stored, and
    /// returns its bytes.
    ///
    /// # Errors
    /// As of `decode`; [`Error::Damaged`] where the record cannot be read; [`Error::Device`]. The page is what it was.
    pub fn move_to_base<E: From<Error>>(
        &self,
        block: u32,
        scratch: &mut Scratch,
        decode: impl FnOnce(u8, DictionaryNumber, &[u8], &mut [u8; PAGE_SIZE]) -> Result<(), E>,
    ) -> Result<Moved, E> {
        self.check_writable()?;
        let Some(_guard) = CollectorGuard::try_lock(self.state.shared(), &self.processes) else {
            return Ok(Moved::Busy);
        };
        let block = Block(block);
        if block.0 >= self.pages() || self.base() != Base::Returning {
            return Ok(Moved::NotThere);
        }
        let original = self.entry_of(block)?;
        if original.is_in_base() || original.is_missing() {
            return Ok(Moved::NotThere);
        }
        let mut page = [0; PAGE_SIZE];
        if original.record_span().is_some() {
            let found = match self.read_at(original, block, &mut scratch.record) {
                Ok(found) => found,
                Err(_) if self.state.entry(block).clean() != original.clean() => return Ok(Moved::NotThere),
                Err(error) => return Err(error.into()),
            };
            use crate::engine::container::Stored;
            match self.open_payload(&found, &scratch.record, &mut scratch.opened)? {
                Stored::Record { mode, dictionary, payload } => decode(mode, dictionary, payload, &mut page)?,
                Stored::Zeros | Stored::Base(_) => {}
            }
        }
        let version = self.draw_version_or_commit()?;
        self.put_into_base(block.0, &page)?;
        self.device.pause();
        Ok(self.put_in_place(block, original, Entry::in_base(version), 0))
    }
}

impl Root {
    /// Takes the pages behind these away.
    pub(crate) fn cut(&mut self, pages: u32) {
        self.pages = self.pages.min(pages);
        self.inline.retain(|(block, _)| block.0 < self.pages);
    }
}

impl<W: Word> SharedState<'_, W> {
    /// Makes the segment so long, with all pages in the base.
    fn fill_from_base(&self, pages: u32, version: crate::format::units::Version, _: &CommitGuard<'_, W>) {
        for block in Block(0).up_to(pages) {
            self.set_entry(block, Entry::in_base(version).dirty());
        }
        self.set_pages(pages);
    }

    /// Takes all entries away: the base has the pages, or is about to.
    pub(crate) fn empty(&self, guard: &CommitGuard<'_, W>, processes: &impl ProcessTable) {
        self.cut(0, guard, processes);
        self.clear_entries_above(guard);
    }
}

/// A missing base is an error of its own: its pages are nowhere else.
pub(crate) fn base_missing(base: Base, source: DeviceError) -> Error {
    match source {
        DeviceError::NotFound => Error::BaseMissing { base },
        source => Error::device("open of the base", 0, 0, source),
    }
}
