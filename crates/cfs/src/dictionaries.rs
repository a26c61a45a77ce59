//! Dictionaries of a container: durable before their first use, named by what they contain.
//!
//! A page's record names its dictionary by one byte; the root says where that is. The number is the container's own, the
//! name (a hash of the content, the caller's) is the same in all segments of a relation.

use crate::container::Container;
use crate::device::{Device, Peers};
use crate::entry::Entry;
use crate::error::{Damage, Error};
use crate::live::{self, Word};
use crate::record::Kind;
use crate::root::{DICTIONARIES_MAX, DictionaryPlace, Root};

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
            return Ok(id);
        }
        if root.dictionaries.len() >= DICTIONARIES_MAX {
            return Err(limit("dictionaries", root.dictionaries.len() + 1, DICTIONARIES_MAX));
        }
        let is_taken = |id: &u8| root.dictionaries.iter().any(|known| known.id == *id);
        let id = (1..=u8::MAX).find(|id| !is_taken(id)).unwrap_or(u8::MAX);
        let mut payload = vec![id];
        payload.extend_from_slice(&name);
        payload.extend_from_slice(content);
        let place = self.append_map(Kind::Dictionary, root.sequence, &payload)?;
        let mut dictionaries = root.dictionaries;
        dictionaries.push(DictionaryPlace { id, place });
        self.commit_with(false, |root| root.dictionaries = dictionaries)?;
        Ok(id)
    }

    fn named(&self, root: &Root, name: &DictionaryName) -> Result<Option<u8>, Error> {
        for known in &root.dictionaries {
            if self.read_map(known.place, Kind::Dictionary, "dictionary")?.get(1..HEAD_BYTES) == Some(name) {
                return Ok(Some(known.id));
            }
        }
        Ok(None)
    }

    /// A dictionary's name and content. Not for the path of a read: processes keep what they have loaded.
    pub fn dictionary(&self, id: u8) -> Result<(DictionaryName, Vec<u8>), Error> {
        let root = self.root_in_memory()?;
        let known =
            root.dictionaries.iter().find(|known| known.id == id).ok_or(Error::DictionaryMissing(id))?;
        let mut payload = self.read_map(known.place, Kind::Dictionary, "dictionary")?;
        if payload.len() < HEAD_BYTES || payload[0] != id {
            let (offset, length) = (Entry::record(known.place.location, 1, 0).offset(), payload.len() as u64);
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

    /// The numbers of all dictionaries.
    pub fn dictionary_ids(&self) -> Result<Vec<u8>, Error> {
        Ok(self.root_in_memory()?.dictionaries.iter().map(|known| known.id).collect())
    }

    /// How many pages need the dictionary. Reads every page's record.
    pub fn dictionary_uses(&self, id: u8) -> Result<u32, Error> {
        let mut scratch = crate::container::Scratch::new();
        let mut uses = 0;
        for block in 0..self.pages() {
            match self.read(block, &mut scratch) {
                Ok(crate::container::Stored::Record { dictionary, .. }) => {
                    uses += u32::from(dictionary == id)
                }
                Ok(_) | Err(Error::PastEnd { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(uses)
    }

    /// Drops a dictionary, with a commit; false: a page still needs it. The caller has seen to it that nobody writes with
    /// it any more.
    pub fn drop_dictionary(&self, id: u8) -> Result<bool, Error> {
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
