//! Dictionaries of a container: durable before their first use, named by what they contain.
//!
//! A page's record names its dictionary by a number; the root says where that is. The number is the
//! container's own and means the same dictionary for the container's whole life, so that neither a process
//! that has kept one nor a record found without a map is mistaken. It means that in this file alone: a copy of
//! the file has the same id and may give the number to another dictionary. The name (a hash of the content,
//! the caller's) is the same in all segments of a relation.
//!
//! A dictionary's life: [`add_dictionary`](Container::add_dictionary) makes it durable and opens its number
//! to writers. When a better one is there ([`crate::policy::dictionary_policy`]), it is
//! [retired](Container::retire_dictionary): its pages are read as before, and go as they are written again.
//! [`drop_dictionary`](Container::drop_dictionary) ends it when none is left. That no page loses its
//! dictionary is the engine's business (`gate`): a writer that comes too late gets an error, one that was
//! quicker is waited for.

use crate::device::{Device, ProcessTable};
use crate::engine::container::{Container, PageFound, PageRecord, Scratch};
use crate::fault::Fault;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::record::{DICTIONARY_NUMBER_MAX, Kind};
pub use crate::format::root::DICTIONARIES_MAX;
use crate::format::root::{DictionaryPlace, Place, Root};
use crate::format::units::{Block, DictionaryNumber};
use crate::shared::allocator::Purpose;
use crate::shared::lock::CommitGuard;
use crate::shared::region::IDLE;
use crate::shared::word::Word;

/// What a dictionary's content is known by.
pub type DictionaryName = [u8; 16];

/// Bytes at most of a dictionary.
pub const DICTIONARY_BYTES_MAX: usize = 256 << 10;

const NUMBER_BYTES: usize = size_of::<DictionaryNumber>();
const HEAD_BYTES: usize = NUMBER_BYTES + size_of::<DictionaryName>();

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// Makes a dictionary durable, with a commit, and returns the number that records name it by; the number
    /// it has if it is there already.
    ///
    /// # Errors
    /// [`Error::Limit`]: the content is over [`DICTIONARY_BYTES_MAX`], there are [`DICTIONARIES_MAX`]
    /// already, or all numbers of the container's life are used up. [`Error::is_no_space`]: unlike a page's
    /// write it makes no room, so it may succeed after a commit and a collection. As
    /// [`commit`](Self::commit) otherwise.
    pub fn add_dictionary(&self, name: DictionaryName, content: &[u8]) -> Result<DictionaryNumber, Error> {
        self.check_writable()?;
        check_limit("dictionary in bytes", content.len(), DICTIONARY_BYTES_MAX)?;
        let guard = self.lock_commit();
        if self.state.shared().unfinished.load() != IDLE {
            // The root in memory may be half of one.
            self.commit_locked(&guard, false)?;
        }
        let root = self.root_held(&guard)?;
        let mut known: Vec<_> = root.dictionaries.iter().map(|known| known.number).collect();
        if let Some(number) = self.named(&root, &name)? {
            self.state.open_dictionary(number, &known, &guard);
            return Ok(number);
        }
        check_limit("dictionaries", root.dictionaries.len() + 1, DICTIONARIES_MAX)?;
        let number = self.number(&guard)?;
        let mut payload = Vec::from(number.to_le_bytes());
        payload.extend_from_slice(&name);
        payload.extend_from_slice(content);
        // It stays for long, and the segment can do without: nothing of what is kept for commits.
        let place = self.append_map(&guard, Kind::Dictionary, root.sequence, &payload, Purpose::Page)?;
        let mut dictionaries = root.dictionaries;
        dictionaries.push(DictionaryPlace { number, place });
        self.commit_with(&guard, false, Some(|root: &mut Root| root.dictionaries = dictionaries))?;
        known.push(number);
        self.state.open_dictionary(number, &known, &guard);
        Ok(number)
    }

    fn number(&self, guard: &CommitGuard<'_, W>) -> Result<DictionaryNumber, Error> {
        let reuse = self.options.fault.is(Fault::DictionaryNumberReused);
        let allowed = u64::from(DICTIONARY_NUMBER_MAX);
        let over = Error::Limit { what: "dictionaries of the container's life", found: allowed + 1, allowed };
        self.state.give_number(reuse, guard).ok_or(over)
    }

    fn named(&self, root: &Root, name: &DictionaryName) -> Result<Option<DictionaryNumber>, Error> {
        for known in root.dictionaries.iter().filter(|known| !self.state.is_retired(known.number)) {
            let payload = self.read_map(known.place, Kind::Dictionary, Part::Dictionary)?;
            if payload.get(NUMBER_BYTES..HEAD_BYTES) == Some(name) {
                return Ok(Some(known.number));
            }
        }
        Ok(None)
    }

    /// A dictionary's name and content. Not for the path of a read: processes keep what they have loaded, by
    /// number, for as long as they have this container open.
    ///
    /// # Errors
    /// [`Error::DictionaryMissing`] may also mean that it was dropped since a page's record was read: the
    /// page was written meanwhile, and is to be read again. [`Error::Damaged`].
    pub fn dictionary(&self, number: DictionaryNumber) -> Result<(DictionaryName, Vec<u8>), Error> {
        let place = self.dictionary_place(number)?;
        let mut payload = match self.read_map(place, Kind::Dictionary, Part::Dictionary) {
            Ok(payload) => payload,
            // Where it lay may be another record's place by now.
            Err(error) => return Err(self.dictionary_place(number).err().unwrap_or(error)),
        };
        let damage = |reason| dictionary_damage(place, payload.len(), reason);
        let found = number_of(&payload).ok_or_else(|| damage(Reason::Content))?;
        if found != number {
            return Err(damage(Reason::OtherNumber { expected: number, found }).into());
        }
        let mut name = [0; 16];
        name.copy_from_slice(&payload[NUMBER_BYTES..HEAD_BYTES]);
        payload.drain(..HEAD_BYTES);
        Ok((name, payload))
    }

    fn known_dictionaries(&self) -> Result<Vec<DictionaryPlace>, Error> {
        if self.salvaged.is_empty() {
            return Ok(self.root_in_memory()?.dictionaries);
        }
        Ok(self.salvaged.clone())
    }

    fn dictionary_place(&self, number: DictionaryNumber) -> Result<Place, Error> {
        let all = self.known_dictionaries()?;
        let known = all.iter().find(|known| known.number == number);
        Ok(known.ok_or(Error::DictionaryMissing(number))?.place)
    }

    /// Bytes of a dictionary's record: a little more than of its content. Looks at the root in memory alone.
    ///
    /// # Errors
    /// [`Error::DictionaryMissing`]; as [`identity`](Self::identity).
    pub(crate) fn dictionary_record_bytes(&self, number: DictionaryNumber) -> Result<usize, Error> {
        Ok(self.dictionary_place(number)?.bytes as usize)
    }

    /// Damage of a dictionary that is there.
    pub(crate) fn dictionary_damage(&self, number: DictionaryNumber, reason: Reason) -> Error {
        match self.dictionary_place(number) {
            Ok(place) => dictionary_damage(place, place.bytes as usize, reason).into(),
            Err(error) => error,
        }
    }

    /// The numbers of all dictionaries, retired ones too, oldest first.
    ///
    /// # Errors
    /// As [`identity`](Self::identity).
    pub fn dictionary_ids(&self) -> Result<Vec<DictionaryNumber>, Error> {
        Ok(self.known_dictionaries()?.iter().map(|known| known.number).collect())
    }

    /// The newest dictionary that pages may be written with. A look at a few words of shared memory: for every write.
    pub fn newest_dictionary(&self) -> Option<DictionaryNumber> {
        Some(self.state.newest_open()).filter(|number| *number != 0)
    }

    /// How many pages need the dictionary. A damaged page may: it counts. Reads every page's record, which is
    /// what a collector does of a whole segment; nothing on the path of a write pays for it.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn dictionary_uses(&self, number: DictionaryNumber) -> Result<u32, Error> {
        let mut scratch = Scratch::new();
        let mut uses = 0;
        for block in Block(0).up_to(self.pages()) {
            match self.read_record(block, &mut scratch) {
                Ok(PageFound::Record(PageRecord { page, .. })) => {
                    uses += u32::from(page.dictionary == number)
                }
                Ok(PageFound::Zeros | PageFound::InBase) | Err(Error::PastEnd { .. }) => {}
                Err(error) if error.is_damage() => uses += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(uses)
    }

    /// From now on no page is written with it ([`Error::DictionaryRetired`]), by no process, until the
    /// container is opened again. Those that need it are read as before.
    ///
    /// # Errors
    /// [`Error::DictionaryMissing`].
    pub fn retire_dictionary(&self, number: DictionaryNumber) -> Result<(), Error> {
        self.check_writable()?;
        let guard = self.lock_commit();
        let known: Vec<_> = self.root_held(&guard)?.dictionaries.iter().map(|known| known.number).collect();
        if !known.contains(&number) {
            return Err(Error::DictionaryMissing(number));
        }
        self.state.retire_dictionary(number, &known, &guard);
        Ok(())
    }

    /// Retires a dictionary, and drops it, with a commit, if no page needs it and nobody is about to write
    /// one. False: it is still needed; to be asked again when pages were written.
    ///
    /// Not for a container whose pages were [stored anew](Self::store_anew): what is left of such a page's former
    /// record has its version, and salvage may find it.
    ///
    /// # Errors
    /// [`Error::DictionaryMissing`]; as [`commit`](Self::commit) otherwise.
    pub fn drop_dictionary(&self, number: DictionaryNumber) -> Result<bool, Error> {
        let is_injected = self.options.fault.is(Fault::DictionaryDroppedUnderWriter);
        if !is_injected {
            self.retire_dictionary(number)?;
            // Before the count: who is inside may publish a page behind its back.
            if self.state.has_writers(number) {
                return Ok(false);
            }
        }
        self.check_writable()?;
        if self.dictionary_uses(number)? > 0 {
            return Ok(false);
        }
        let guard = self.lock_commit();
        let change = |root: &mut Root| root.dictionaries.retain(|known| known.number != number);
        self.commit_with(&guard, false, Some(change))?;
        self.state.forget_dictionary(number, &guard);
        Ok(true)
    }
}

fn dictionary_damage(place: Place, length: usize, reason: Reason) -> Damage {
    let (offset, length) = (place.location.offset(), length as u64);
    Damage { part: Part::Dictionary, block: None, offset, length, reason }
}

/// The number in a dictionary record's payload. None: it is too short for one.
pub(crate) fn number_of(payload: &[u8]) -> Option<DictionaryNumber> {
    let number = payload.get(..HEAD_BYTES)?.first_chunk::<NUMBER_BYTES>()?;
    Some(DictionaryNumber::from_le_bytes(*number))
}

fn check_limit(what: &'static str, found: usize, allowed: usize) -> Result<(), Error> {
    if found <= allowed {
        return Ok(());
    }
    Err(Error::Limit { what, found: found as u64, allowed: allowed as u64 })
}
