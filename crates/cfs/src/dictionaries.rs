//! Dictionaries of a container: durable before their first use, named by what they contain.
//!
//! A page's record names its dictionary by one byte; the root says where that is. The number is the container's own, the
//! name (a hash of the content, the caller's) is the same in all segments of a relation.
//!
//! A dictionary's life: [`add_dictionary`](Container::add_dictionary) makes it durable and opens its number to writers. When a
//! better one is there ([`crate::dictionary_policy`]), it is [retired](Container::retire_dictionary): its pages are read as before, and go as they are written again.
//! [`drop_dictionary`](Container::drop_dictionary) ends it when none is left. That no page loses its dictionary is the
//! engine's business (`gate`): a writer that comes too late is told so, one that was quicker is waited for.

use crate::container::{Container, Scratch};
use crate::device::{Device, Peers};
use crate::entry::Entry;
use crate::error::{Damage, Error};
use crate::live::{self, Word};
use crate::plant::Plant;
use crate::record::{Header, Kind};
pub use crate::root::DICTIONARIES_MAX;
use crate::root::{DictionaryPlace, Place, Root};

/// What a dictionary's content is known by.
pub type DictionaryName = [u8; 16];

/// Bytes at most of a dictionary.
pub const DICTIONARY_BYTES_MAX: usize = 256 << 10;

const HEAD_BYTES: usize = 1 + size_of::<DictionaryName>();

impl<D: Device, P: Peers, W: Word> Container<'_, D, P, W> {
    /// Makes a dictionary durable, with a commit, and returns the number that records name it by; the number it has if it is
    /// there already.
    pub fn add_dictionary(&self, name: DictionaryName, content: &[u8]) -> Result<u8, Error> {
        self.check_writable()?;
        let limit = |what, found: usize, allowed: usize| Error::Limit {
            what,
            found: found as u64,
            allowed: allowed as u64,
        };
        if content.len() > DICTIONARY_BYTES_MAX {
            return Err(limit("dictionary in bytes", content.len(), DICTIONARY_BYTES_MAX));
        }
        self.lock_commit();
        let done = self.add_locked(name, content, limit);
        self.live.unlock(live::LOCK);
        done
    }

    fn add_locked(
        &self,
        name: DictionaryName,
        content: &[u8],
        limit: impl Fn(&'static str, usize, usize) -> Error,
    ) -> Result<u8, Error> {
        if self.live.get(live::UNFINISHED) != live::IDLE {
            // The root in memory may be half of one.
            self.commit_locked(false)?;
        }
        let root = self.root_in_memory()?;
        if let Some(id) = self.named(&root, &name)? {
            self.live.open_dictionary(id);
            return Ok(id);
        }
        if root.dictionaries.len() >= DICTIONARIES_MAX {
            return Err(limit("dictionaries", root.dictionaries.len() + 1, DICTIONARIES_MAX));
        }
        let taken: Vec<u8> = root.dictionaries.iter().map(|known| known.id).collect();
        let id = self.live.next_dictionary(&taken, self.options.plant == Plant::DictionaryNumberReused);
        let numbers = usize::from(u8::MAX);
        let id = id.ok_or_else(|| limit("dictionaries since the opening", numbers + 1, numbers))?;
        let mut payload = vec![id];
        payload.extend_from_slice(&name);
        payload.extend_from_slice(content);
        let place = self.append_map(Kind::Dictionary, root.sequence, &payload)?;
        let mut dictionaries = root.dictionaries;
        dictionaries.push(DictionaryPlace { id, place });
        self.commit_with(false, |root| root.dictionaries = dictionaries)?;
        self.live.open_dictionary(id);
        Ok(id)
    }

    fn named(&self, root: &Root, name: &DictionaryName) -> Result<Option<u8>, Error> {
        for known in root.dictionaries.iter().filter(|known| !self.live.is_retired(known.id)) {
            if self.read_map(known.place, Kind::Dictionary, "dictionary")?.get(1..HEAD_BYTES) == Some(name) {
                return Ok(Some(known.id));
            }
        }
        Ok(None)
    }

    /// A dictionary's name and content. Not for the path of a read: processes keep what they have loaded, by number, for as
    /// long as the container is open.
    ///
    /// # Errors
    /// [`Error::DictionaryMissing`] may also mean that it was dropped since a page's record was read: the page was written
    /// meanwhile, and is to be read again.
    pub fn dictionary(&self, id: u8) -> Result<(DictionaryName, Vec<u8>), Error> {
        let place = self.dictionary_place(id)?;
        let mut payload = match self.read_map(place, Kind::Dictionary, "dictionary") {
            Ok(payload) => payload,
            // Where it lay may be another record's place by now.
            Err(error) => return Err(self.dictionary_place(id).err().unwrap_or(error)),
        };
        if payload.len() < HEAD_BYTES || payload[0] != id {
            let (offset, length) = (Entry::record(place.location, 1, 0).offset(), payload.len() as u64);
            let (property, expected) = ("number", id.into());
            let found = payload.first().copied().unwrap_or_default().into();
            return Err(Damage {
                what: "dictionary",
                block: None,
                offset,
                length,
                property,
                expected,
                found,
            }
            .into());
        }
        let mut name = [0; 16];
        name.copy_from_slice(&payload[1..HEAD_BYTES]);
        payload.drain(..HEAD_BYTES);
        Ok((name, payload))
    }

    fn dictionary_place(&self, id: u8) -> Result<Place, Error> {
        let root = self.root_in_memory()?;
        let known = root.dictionaries.iter().find(|known| known.id == id);
        Ok(known.ok_or(Error::DictionaryMissing(id))?.place)
    }

    /// The numbers of all dictionaries, retired ones too, oldest first.
    pub fn dictionary_ids(&self) -> Result<Vec<u8>, Error> {
        Ok(self.root_in_memory()?.dictionaries.iter().map(|known| known.id).collect())
    }

    /// How many pages need the dictionary. A damaged page may: it counts. Reads every page's record, which is
    /// what a collector does of a whole segment; nothing on the path of a write pays for it.
    pub fn dictionary_uses(&self, id: u8) -> Result<u32, Error> {
        let mut scratch = Scratch::new();
        let mut uses = 0;
        for block in 0..self.pages() {
            match self.read_record(block, &mut scratch) {
                Ok(Some(Header { kind: Kind::Page { dictionary, .. }, .. })) => {
                    uses += u32::from(dictionary == id)
                }
                Ok(_) | Err(Error::PastEnd { .. }) => {}
                Err(error) if error.is_damage() => uses += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(uses)
    }

    /// From now on no page is written with it ([`Error::DictionaryRetired`]), by no process, until the container is opened
    /// again. Those that need it are read as before.
    pub fn retire_dictionary(&self, id: u8) -> Result<(), Error> {
        self.check_writable()?;
        self.lock_commit();
        let known = self.dictionary_place(id);
        if known.is_ok() {
            self.live.retire_dictionary(id);
        }
        self.live.unlock(live::LOCK);
        known.map(drop)
    }

    /// Retires a dictionary, and drops it, with a commit, if no page needs it and nobody is about to write one. False: it
    /// is still needed; to be asked again when pages were written.
    pub fn drop_dictionary(&self, id: u8) -> Result<bool, Error> {
        let is_planted = self.options.plant == Plant::DictionaryDroppedUnderWriter;
        if !is_planted {
            self.retire_dictionary(id)?;
            // Before the count: who is inside may publish a page behind its back.
            if self.live.has_writers(id) {
                return Ok(false);
            }
        }
        self.check_writable()?;
        if self.dictionary_uses(id)? > 0 {
            return Ok(false);
        }
        self.lock_commit();
        let done = self.commit_with(false, |root| root.dictionaries.retain(|known| known.id != id));
        self.live.unlock(live::LOCK);
        done.map(|_| true)
    }
}
