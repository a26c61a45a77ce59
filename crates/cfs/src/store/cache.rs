//! Dictionaries in memory, prepared for use, the least recently used ones given up for others.
//!
//! One is found by the store that loaded it and its number there, which mean the same content for as long as
//! the store lives. The container's id does not: copies of a file have the id of the original (a database
//! created by copying files, a backup that was restored), go on apart, and give the same number to different
//! dictionaries. Containers with the same content, as the segments of one relation have it, share it.

use std::collections::BTreeMap;

use crate::format::units::{ContainerId, DictionaryNumber};
use crate::page::PageDictionary;

/// Names at most; each leads to a dictionary, of which there may be far fewer.
const NAMES_MAX: usize = 4096;
/// Bytes of a name in the map, with what the map needs besides.
const NAME_BYTES: usize = 112;

/// Bytes of a place, of which there may be twice as many as are in use.
const SLOT_BYTES: usize = 2 * size_of::<Option<Kept>>();

/// What a dictionary is found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Name {
    /// For [`Cache::forget`].
    pub container: ContainerId,
    /// The store's number, which no other store of the process has.
    pub store: u64,
    pub dictionary: DictionaryNumber,
}

/// Place of a dictionary in the cache; good until something is evicted or forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(usize);

#[derive(Default)]
pub(super) struct Cache {
    slots: Vec<Option<Kept>>,
    names: BTreeMap<Name, Named>,
    /// What was asked for last, which is mostly asked for next.
    last: Option<(Name, Slot)>,
    /// Counts uses.
    clock: u64,
    /// Of all that is kept.
    bytes: usize,
}

struct Kept {
    dictionary: PageDictionary,
    bytes: usize,
    used: u64,
}

#[derive(Clone, Copy)]
struct Named {
    slot: Slot,
    used: u64,
}

impl Cache {
    /// Bytes that a dictionary takes besides its own.
    pub(super) const ENTRY_BYTES: usize = NAME_BYTES + SLOT_BYTES;

    pub(super) fn memory_size(&self) -> usize {
        self.bytes + self.names.len() * NAME_BYTES
    }

    /// Dictionaries that are kept.
    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    pub(super) fn find(&mut self, name: Name) -> Option<Slot> {
        if let Some((_, slot)) = self.last.filter(|(last, _)| *last == name) {
            return Some(slot);
        }
        self.clock += 1;
        let named = self.names.get_mut(&name)?;
        named.used = self.clock;
        let slot = named.slot;
        self.set_last(name, slot);
        Some(slot)
    }

    /// What was the last one until now has been used until now.
    fn set_last(&mut self, name: Name, slot: Slot) {
        let before = self.last.replace((name, slot)).map(|(_, before)| before);
        for used in before.into_iter().chain([slot]) {
            if let Some(Some(kept)) = self.slots.get_mut(used.0) {
                kept.used = self.clock;
            }
            self.clock += 1;
        }
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&PageDictionary> {
        self.slots.get(slot.0)?.as_ref().map(|kept| &kept.dictionary)
    }

    /// Changes a dictionary; it may grow.
    pub(super) fn change<R>(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut PageDictionary) -> R,
    ) -> Option<R> {
        let kept = self.slots.get_mut(slot.0)?.as_mut()?;
        let result = change(&mut kept.dictionary);
        let bytes = SLOT_BYTES + kept.dictionary.memory_size();
        self.bytes = self.bytes - kept.bytes + bytes;
        kept.bytes = bytes;
        Some(result)
    }

    /// Keeps a dictionary under a name that nothing is kept under.
    pub(super) fn insert(&mut self, name: Name, dictionary: PageDictionary) -> Slot {
        if self.names.len() >= NAMES_MAX {
            let oldest = self.names.iter().min_by_key(|(_, named)| named.used).map(|(name, _)| *name);
            oldest.map(|oldest| self.names.remove(&oldest));
        }
        self.clock += 1;
        let same = |kept: &Option<Kept>| {
            kept.as_ref().is_some_and(|kept| kept.dictionary.hash() == dictionary.hash())
        };
        let slot = Slot(match self.slots.iter().position(same) {
            Some(known) => known,
            None => {
                let bytes = SLOT_BYTES + dictionary.memory_size();
                self.bytes += bytes;
                let kept = Some(Kept { dictionary, bytes, used: self.clock });
                match self.slots.iter().position(Option::is_none) {
                    Some(free) => {
                        self.slots[free] = kept;
                        free
                    }
                    None => {
                        self.slots.push(kept);
                        self.slots.len() - 1
                    }
                }
            }
        });
        self.names.insert(name, Named { slot, used: self.clock });
        self.set_last(name, slot);
        slot
    }

    /// Gives up the dictionary that was not used for longest, other than `keep`. False: there is none.
    pub(super) fn evict(&mut self, keep: Option<Slot>) -> bool {
        let last = self.last.map(|(_, slot)| slot);
        let all =
            self.slots.iter().enumerate().filter_map(|(at, kept)| Some((Slot(at), kept.as_ref()?.used)));
        let others = all.filter(|(slot, _)| Some(*slot) != keep);
        // What was found as the last one has no newer use.
        let oldest = others.min_by_key(|(slot, used)| (Some(*slot) == last, *used));
        let Some((slot, _)) = oldest else { return false };
        self.remove(slot);
        true
    }

    /// Gives up what only this container has.
    pub(super) fn forget(&mut self, id: ContainerId) {
        self.names.retain(|name, _| name.container != id);
        self.last = None;
        for at in 0..self.slots.len() {
            if !self.names.values().any(|named| named.slot == Slot(at)) {
                self.remove(Slot(at));
            }
        }
    }

    fn remove(&mut self, slot: Slot) {
        if let Some(kept) = self.slots.get_mut(slot.0).and_then(Option::take) {
            self.bytes -= kept.bytes;
        }
        self.names.retain(|_, named| named.slot != slot);
        self.last = self.last.filter(|(_, last)| *last != slot);
    }
}
