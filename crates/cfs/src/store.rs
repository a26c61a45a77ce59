//! Pages in, pages out: a [`PageStore`] is a container with a codec before it.
//!
//! ```text
//!   8 KB  --  Workspace: contexts, dictionaries, a budget  --  payload  --  Container: records, entries
//! ```
//!
//! It opens nothing, commits nothing and decides nothing about levels or dictionaries: whoever has the
//! container does ([`PageStore::container`]). A store is shared like its container; a [`Workspace`] is one
//! thread's and serves any number of stores.
//!
//! # Invariants
//! * **P1** A page that is read is one that was written, whole, or there is an error.
//! * **P2** A page that cannot be read does not make others fail, however many were asked for together.
//! * **P3** Where verifying is asked for, nothing is published that does not decode to the page.
//! * **P4** A page is decoded with the dictionary of its own container: what one store has loaded is not
//!   found by the store of another container, also where that lies in the same file or is a copy that went
//!   on apart.
//! * **P5** A workspace holds no more memory than its budget; what would need more fails, and says so.
//!
//! ```
//! # use pgshrink_cfs::{Birth, ContainerId, Identity, KEY_BYTES, Options, device::Alone, segment, sim::Disk};
//! # use std::sync::atomic::AtomicU64;
//! use pgshrink_cfs::store::{PageStore, Workspace, Writing};
//! # let options = Options::new(1024);
//! # let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
//! # let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
//! # let disk = Disk::new(1, || ());
//! # let container = segment::create(&disk, Alone, &words, &birth, options)?;
//! let store = PageStore::new(container)?;
//! let mut workspace = Workspace::new(Workspace::BUDGET_BYTES)?;
//! for block in 0..16 {
//!     store.write(block, &[block as u8; 8192], &Writing::default(), &mut workspace)?;
//! }
//! store.container().commit()?;
//! let mut pages = vec![[0; 8192]; 16];
//! let faults = store.read_range(0, pages.iter_mut(), &mut workspace);
//! assert!(faults.is_empty() && pages[9] == [9; 8192]);
//! # Ok::<(), pgshrink_cfs::store::Error>(())
//! ```

mod cache;
mod error;
mod workspace;

pub use error::Error;
pub use workspace::Workspace;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{Alone, Device, ProcessTable};
use crate::engine::adjacent::FileRange;
use crate::engine::base::Moved;
use crate::engine::collector::Anew;
use crate::engine::container::{Container, Stored};
use crate::fault::Fault;
use crate::format::error::Error as ContainerError;
use crate::format::root::{Base, Identity};
use crate::format::units::{DictionaryNumber, PAGES_MAX, UNIT_BYTES};
use crate::page::{Mode, PAGE_SIZE, PageDictionary, Policy, TransformPolicy};
use crate::shared::word::Word;
use cache::Name;
use pgshrink_codec::Algorithm;
use workspace::Codecs;

/// Stores that this process has made.
static STORES: AtomicU64 = AtomicU64::new(0);

/// A segment's pages.
pub struct PageStore<'m, D, P = Alone, W = AtomicU64> {
    container: Container<'m, D, P, W>,
    name: StoreName,
}

/// What dictionaries of a container are kept by, and check sums of pages computed from. Made once for each
/// container that a process opens: not for another one, and not for a copy of it.
#[derive(Clone, Copy, Debug)]
pub struct StoreName {
    identity: Identity,
    /// No other store of this process has it.
    number: u64,
}

/// A segment's pages, in a container that somebody else has ([`slots`](crate::slots)). Does all that a
/// [`PageStore`] does, which is one of these with a container of its own.
pub struct Pages<'c, 'm, D, P, W> {
    container: &'c Container<'m, D, P, W>,
    name: StoreName,
}

/// How pages are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Writing {
    /// Algorithm, level, rearranging.
    pub policy: Policy,
    /// The dictionary to use, of [`PageStore::add_dictionary`], where the algorithm can.
    pub dictionary: Option<DictionaryNumber>,
    /// Whether what was encoded is decoded and compared before it is published.
    pub verify: bool,
}

/// What a page is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredAs {
    /// How it is encoded.
    pub mode: Mode,
    /// The dictionary that it needs; 0 for none.
    pub dictionary: DictionaryNumber,
    /// Bytes of its payload, not sealed; 0 for a page of zeros.
    pub payload_len: usize,
}

impl StoredAs {
    const ZEROS: StoredAs = StoredAs { mode: Mode::ZERO, dictionary: 0, payload_len: 0 };
    const IN_BASE: StoredAs = StoredAs { mode: Mode::RAW, dictionary: 0, payload_len: PAGE_SIZE };
}

/// A page of the server.
pub type Page = [u8; PAGE_SIZE];

impl StoreName {
    /// Of an open container.
    ///
    /// # Errors
    /// [`Error::Container`] where it cannot be read which segment it is.
    pub fn of<D: Device, P: ProcessTable, W: Word>(
        container: &Container<'_, D, P, W>,
    ) -> Result<StoreName, Error> {
        let identity = container.identity()?;
        Ok(StoreName { identity, number: 1 + STORES.fetch_add(1, Ordering::Relaxed) })
    }
}

impl<'m, D: Device, P: ProcessTable, W: Word> PageStore<'m, D, P, W> {
    /// Over an open container.
    ///
    /// # Errors
    /// [`Error::Container`] where it cannot be read which segment it is: check sums of pages are computed
    /// from that.
    pub fn new(container: Container<'m, D, P, W>) -> Result<Self, Error> {
        let name = StoreName::of(&container)?;
        Ok(PageStore { container, name })
    }

    /// The container: for commits, truncation, collection, its size and all else that is not about what pages
    /// contain.
    pub fn container(&self) -> &Container<'m, D, P, W> {
        &self.container
    }

    /// Which segment it was when it was opened.
    pub fn identity(&self) -> Identity {
        self.name.identity
    }

    /// Its pages.
    pub fn pages(&self) -> Pages<'_, 'm, D, P, W> {
        Pages::over(&self.container, self.name)
    }

    /// As [`Pages::read`].
    ///
    /// # Errors
    /// As it.
    pub fn read(&self, block: u32, page: &mut Page, workspace: &mut Workspace) -> Result<StoredAs, Error> {
        self.pages().read(block, page, workspace)
    }

    /// As [`Pages::read_range`].
    pub fn read_range<'p>(
        &self,
        first: u32,
        pages: impl ExactSizeIterator<Item = &'p mut Page>,
        workspace: &mut Workspace,
    ) -> Vec<(u32, Error)> {
        self.pages().read_range(first, pages, workspace)
    }

    /// As [`Pages::stored`].
    ///
    /// # Errors
    /// As it.
    pub fn stored<'w>(&self, block: u32, workspace: &'w mut Workspace) -> Result<Stored<'w>, ContainerError> {
        self.pages().stored(block, workspace)
    }

    /// As [`Pages::write`].
    ///
    /// # Errors
    /// As it.
    pub fn write(
        &self,
        block: u32,
        page: &Page,
        how: &Writing,
        workspace: &mut Workspace,
    ) -> Result<StoredAs, Error> {
        self.pages().write(block, page, how, workspace)
    }

    /// As [`Pages::write_range`].
    ///
    /// # Errors
    /// As it.
    pub fn write_range<'p>(
        &self,
        first: u32,
        pages: impl IntoIterator<Item = &'p Page>,
        how: &Writing,
        workspace: &mut Workspace,
    ) -> Result<(), (u32, Error)> {
        self.pages().write_range(first, pages, how, workspace)
    }

    /// As [`Pages::warm`].
    ///
    /// # Errors
    /// As it.
    pub fn warm(&self, how: &Writing, workspace: &mut Workspace) -> Result<(), Error> {
        self.pages().warm(how, workspace)
    }

    /// As [`Pages::add_dictionary`].
    ///
    /// # Errors
    /// As it.
    pub fn add_dictionary(&self, dictionary: &PageDictionary) -> Result<DictionaryNumber, Error> {
        self.pages().add_dictionary(dictionary)
    }

    /// Where a page lies in the file, for prefetch and writeback ([`Container::location`]).
    pub fn location(&self, block: u32) -> Option<FileRange> {
        self.container.location(block)
    }

    /// The same of a range ([`Container::locations`]).
    pub fn locations(&self, first: u32, count: u32, each: impl FnMut(FileRange)) {
        self.container.locations(first, count, each);
    }
}

impl<'c, 'm, D: Device, P: ProcessTable, W: Word> Pages<'c, 'm, D, P, W> {
    /// Of a container, by the name that was made of it when it was opened.
    pub fn over(container: &'c Container<'m, D, P, W>, name: StoreName) -> Self {
        Pages { container, name }
    }

    /// A block's number in its relation, which its check sum is computed with.
    pub fn in_relation(&self, block: u32) -> u32 {
        self.name.identity.segment.wrapping_mul(PAGES_MAX).wrapping_add(block)
    }

    /// What a dictionary of the container is kept by. The container's id is not enough: copies of one file
    /// have the same id, and may give the same number to different dictionaries.
    fn name(&self, dictionary: DictionaryNumber) -> Name {
        if self.container.options.fault.is(Fault::CacheIgnoresContainer) {
            return Name { container: [0; 16], store: 0, dictionary };
        }
        Name { container: self.container.id(), store: self.name.number, dictionary }
    }

    /// Reads a page; says what it was stored as. On an error the buffer holds bytes without meaning.
    ///
    /// # Errors
    /// [`Error::Container`] as of [`Container::read`]; [`Error::Page`], [`Error::Dictionary`];
    /// [`Error::Budget`].
    pub fn read(&self, block: u32, page: &mut Page, workspace: &mut Workspace) -> Result<StoredAs, Error> {
        if self.container.base() == Base::Whole {
            self.container.read_base(block, page)?;
            return Ok(StoredAs::IN_BASE);
        }
        let Workspace { scratch, codecs, .. } = workspace;
        let mut missed = None;
        loop {
            let stored = self.container.read(block, scratch)?;
            match self.decode(block, stored, page, codecs) {
                // The page may have been written since, and its dictionary dropped with the last page that
                // needed it.
                Err(Error::Dictionary { number, source: ContainerError::DictionaryMissing(_), .. })
                    if missed != Some(number) =>
                {
                    missed = Some(number);
                }
                done => return done,
            }
        }
    }

    /// Reads as many pages as `pages` gives buffers, from `first` on, with one pread where their records lie
    /// side by side ([`crate::adjacent`]). Returns the blocks that failed and why, nothing and without an
    /// allocation if none did; all others are read. The buffer of a page that failed holds bytes without
    /// meaning.
    pub fn read_range<'p>(
        &self,
        first: u32,
        pages: impl ExactSizeIterator<Item = &'p mut Page>,
        workspace: &mut Workspace,
    ) -> Vec<(u32, Error)> {
        let mut faults = Vec::new();
        if self.container.base() == Base::Whole {
            for (block, page) in (first..).zip(pages) {
                self.container
                    .read_base(block, page)
                    .unwrap_or_else(|error| faults.push((block, error.into())));
            }
            return faults;
        }
        let (count, mut gathered) = (pages.len(), 0);
        for (index, page) in pages.enumerate() {
            let block = first.saturating_add(index as u32);
            if gathered == 0 {
                let left = u32::try_from(count - index).unwrap_or(u32::MAX);
                gathered = self.container.gather(block, left, &mut workspace.run);
            }
            gathered -= 1;
            if let Err(error) = self.read_gathered(block, page, workspace) {
                faults.push((block, error));
            }
        }
        faults
    }

    fn read_gathered(
        &self,
        block: u32,
        page: &mut Page,
        workspace: &mut Workspace,
    ) -> Result<StoredAs, Error> {
        let Workspace { scratch, run, codecs } = &mut *workspace;
        let stored = self.container.gathered(block, run, scratch)?;
        match self.decode(block, stored, page, codecs) {
            Err(Error::Dictionary { source: ContainerError::DictionaryMissing(_), .. }) => {
                self.read(block, page, workspace)
            }
            done => done,
        }
    }

    fn decode(
        &self,
        block: u32,
        stored: Stored<'_>,
        page: &mut Page,
        codecs: &mut Codecs,
    ) -> Result<StoredAs, Error> {
        let (mode, number, payload) = match stored {
            Stored::Record { mode, dictionary, payload } => (mode, dictionary, payload),
            Stored::Zeros => {
                page.fill(0);
                return Ok(StoredAs::ZEROS);
            }
            Stored::Base(bytes) => {
                page.copy_from_slice(bytes);
                return Ok(StoredAs::IN_BASE);
            }
        };
        let failed = |source| Error::Page { block, source };
        let mode = Mode::from_byte(mode).map_err(failed)?;
        codecs.admit_reader(mode.algorithm())?;
        let slot = if mode.has_dictionary() {
            Some(codecs.load(self.container, self.name(number), block)?)
        } else {
            None
        };
        let Codecs { codec, cache, .. } = codecs;
        let dictionary = slot.and_then(|slot| cache.get(slot));
        let number_in_relation = Some(self.in_relation(block));
        codec.decode(mode.byte(), payload, number_in_relation, dictionary, page).map_err(failed)?;
        Ok(StoredAs { mode, dictionary: number, payload_len: payload.len() })
    }

    /// A page as it is stored, for who copies it.
    ///
    /// # Errors
    /// As of [`Container::read`].
    pub fn stored<'w>(&self, block: u32, workspace: &'w mut Workspace) -> Result<Stored<'w>, ContainerError> {
        self.container.read(block, &mut workspace.scratch)
    }

    /// Writes a page; says what it is stored as. It is durable after the container's next commit. Where the
    /// dictionary is retired, dropped or damaged, the page is written without one.
    ///
    /// # Errors
    /// After an error the page is what it was. [`Error::Container`] as of [`Container::write`];
    /// [`Error::Dictionary`] where the device does not give the dictionary; [`Error::Page`];
    /// [`Error::NotVerified`]; [`Error::Budget`].
    pub fn write(
        &self,
        block: u32,
        page: &Page,
        how: &Writing,
        workspace: &mut Workspace,
    ) -> Result<StoredAs, Error> {
        if self.container.write_base(block, page)? {
            return Ok(StoredAs::IN_BASE);
        }
        let Workspace { scratch, codecs, .. } = workspace;
        let mut number = how.dictionary.filter(|_| PageDictionary::usable_with(how.policy.choice));
        loop {
            let stored = match self.encode(block, page, &Writing { dictionary: number, ..*how }, codecs) {
                Err(error @ Error::Dictionary { .. }) if number.is_some() && error.is_damage() => {
                    number = None;
                    continue;
                }
                done => done?,
            };
            if stored.mode == Mode::ZERO {
                self.container.write_zeros(block)?;
                return Ok(stored);
            }
            let StoredAs { mode, dictionary, .. } = stored;
            match self.container.write(block, mode.byte(), dictionary, &codecs.payload, scratch) {
                Err(ContainerError::DictionaryRetired(_) | ContainerError::DictionaryMissing(_))
                    if dictionary != 0 =>
                {
                    number = None;
                }
                done => return done.map(|()| stored).map_err(Error::from),
            }
        }
    }

    /// Writes pages from `first` on, one after the other.
    ///
    /// # Errors
    /// The block that failed, and why as of [`write`](Self::write): those before it are written, those after
    /// it are not.
    pub fn write_range<'p>(
        &self,
        first: u32,
        pages: impl IntoIterator<Item = &'p Page>,
        how: &Writing,
        workspace: &mut Workspace,
    ) -> Result<(), (u32, Error)> {
        for (block, page) in (first..=u32::MAX).zip(pages) {
            self.write(block, page, how, workspace).map_err(|error| (block, error))?;
        }
        Ok(())
    }

    /// Makes the contexts and the dictionary that writing so and reading back will need, before somebody
    /// cannot wait for them. What is left to be allocated is scratch memory of the codec, which grows with
    /// the first pages of each kind.
    ///
    /// # Errors
    /// [`Error::Page`], [`Error::Dictionary`], [`Error::Budget`].
    pub fn warm(&self, how: &Writing, workspace: &mut Workspace) -> Result<(), Error> {
        // A page that any codec has something to do with.
        let page: Page = std::array::from_fn(|at| (at % 251) as u8);
        let dictionary = how.dictionary.filter(|_| PageDictionary::usable_with(how.policy.choice));
        let how = Writing { verify: true, dictionary, ..*how };
        self.encode(0, &page, &how, &mut workspace.codecs).map(drop)
    }

    /// Encodes a page into the codecs' payload.
    fn encode(&self, block: u32, page: &Page, how: &Writing, codecs: &mut Codecs) -> Result<StoredAs, Error> {
        let choice = how.policy.choice;
        if how.verify {
            codecs.admit_reader(choice.algorithm)?;
        }
        let slot = match how.dictionary {
            Some(number) => {
                let slot = codecs.load(self.container, self.name(number), block)?;
                codecs.prepare(slot, choice, block)?;
                Some(slot)
            }
            None => {
                codecs.admit_writer(choice, 0, None)?;
                None
            }
        };
        let failed = |source| Error::Page { block, source };
        let number_in_relation = Some(self.in_relation(block));
        let Codecs { codec, payload, check, cache, .. } = codecs;
        let dictionary = slot.and_then(|slot| cache.get(slot));
        payload.clear();
        let encoded = codec.encode(page, number_in_relation, &how.policy, dictionary, payload);
        let mode = encoded.map_err(failed)?.mode;
        if self.container.options.fault.is(Fault::CodecLies)
            && let Some(byte) = payload.last_mut()
        {
            *byte ^= 1;
        }
        if how.verify {
            let decoded = codec.decode(mode.byte(), payload, number_in_relation, dictionary, check);
            if decoded.is_err() || **check != *page {
                return Err(Error::NotVerified { block, choice });
            }
        }
        let dictionary = how.dictionary.filter(|_| mode.has_dictionary()).unwrap_or(0);
        Ok(StoredAs { mode, dictionary, payload_len: payload.len() })
    }

    /// The container's newest dictionary, ready for writing so. `None`: there is none, the algorithm has no use for
    /// one, or this workspace cannot have it; then it is not tried again for as long as it is the newest.
    pub fn ready_dictionary(&self, how: &Writing, workspace: &mut Workspace) -> Option<DictionaryNumber> {
        let choice = how.policy.choice;
        let number = self.container.newest_dictionary().filter(|_| PageDictionary::usable_with(choice))?;
        let (name, codecs) = (self.name(number), &mut workspace.codecs);
        if codecs.refused == Some((name, choice)) {
            return None;
        }
        let ready = codecs.load(self.container, name, 0).and_then(|slot| codecs.prepare(slot, choice, 0));
        if ready.is_err() {
            codecs.refused = Some((name, choice));
        }
        ready.is_ok().then_some(number)
    }

    /// Stores a page as it would be written now, if that takes less space ([`Container::store_anew`]). Only the
    /// dictionary and the algorithm are looked at for whether that may be: pages that were written so are left alone.
    ///
    /// # Errors
    /// As of [`Container::store_anew`], [`read`](Self::read) and [`write`](Self::write).
    pub fn store_anew(&self, block: u32, how: &Writing, workspace: &mut Workspace) -> Result<bool, Error> {
        let Workspace { scratch, codecs, .. } = workspace;
        let mut page = [0; PAGE_SIZE];
        self.container.store_anew(block, scratch, |stored| {
            let Stored::Record { mode, dictionary, payload } = stored else { return Ok(None) };
            let algorithm =
                Mode::from_byte(mode).map_err(|source| Error::Page { block, source })?.algorithm();
            if algorithm == how.policy.choice.algorithm && dictionary == how.dictionary.unwrap_or(0) {
                return Ok(None);
            }
            self.decode(block, stored, &mut page, codecs)?;
            let anew = self.encode(block, &page, how, codecs)?;
            let units = |bytes: usize| bytes.div_ceil(UNIT_BYTES);
            let is_less = anew.mode != Mode::ZERO && units(anew.payload_len) < units(payload.len());
            Ok(is_less.then(|| Anew {
                mode: anew.mode.byte(),
                dictionary: anew.dictionary,
                payload: codecs.payload.clone(),
            }))
        })
    }

    /// Copies a page from a base that pages leave, written as `how` says ([`Container::move_from_base`]).
    ///
    /// # Errors
    /// As of [`Container::move_from_base`] and [`write`](Self::write). The page is what it was.
    pub fn move_from_base(
        &self,
        block: u32,
        how: &Writing,
        workspace: &mut Workspace,
    ) -> Result<Moved, Error> {
        let Workspace { scratch, codecs, .. } = workspace;
        self.container.move_from_base(block, scratch, |page| {
            let plain = Policy { choice: Algorithm::None.into(), transform: TransformPolicy::Off };
            let stored = match self.encode(block, page, how, codecs) {
                // A mistake of the codec: the page is stored as it is.
                Err(Error::NotVerified { .. }) => {
                    self.encode(block, page, &Writing { policy: plain, dictionary: None, ..*how }, codecs)?
                }
                Err(Error::Budget { .. } | Error::Dictionary { .. }) if how.dictionary.is_some() => {
                    self.encode(block, page, &Writing { dictionary: None, ..*how }, codecs)?
                }
                done => done?,
            };
            let StoredAs { mode, dictionary, .. } = stored;
            let is_zeros = mode == Mode::ZERO;
            Ok((!is_zeros).then(|| Anew { mode: mode.byte(), dictionary, payload: codecs.payload.clone() }))
        })
    }

    /// Writes a page into a base that pages return to ([`Container::move_to_base`]).
    ///
    /// # Errors
    /// As of [`Container::move_to_base`] and [`read`](Self::read). The page is what it was.
    pub fn move_to_base(&self, block: u32, workspace: &mut Workspace) -> Result<Moved, Error> {
        let Workspace { scratch, codecs, .. } = workspace;
        self.container.move_to_base(block, scratch, |mode, dictionary, payload, page| {
            self.decode(block, Stored::Record { mode, dictionary, payload }, page, codecs).map(drop)
        })
    }

    /// Makes a dictionary durable in the container, with a commit, and returns the number to write by; the
    /// number it has if it is there already.
    ///
    /// # Errors
    /// As of [`Container::add_dictionary`].
    pub fn add_dictionary(&self, dictionary: &PageDictionary) -> Result<DictionaryNumber, Error> {
        let mut name = [0; 16];
        name.copy_from_slice(&dictionary.hash()[..16]);
        Ok(self.container.add_dictionary(name, dictionary.bytes())?)
    }
}
