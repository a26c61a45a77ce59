//! Maps by which samples are counted.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use twox_hash::XxHash3_64;

use crate::error::Error;
use crate::memory;

/// A map whose order means nothing.
pub(super) type Map<K, V> = HashMap<K, V, Seeded>;

/// The value of a key, which is the default if it was not there.
pub(super) fn entry<K: Eq + Hash, V: Default>(map: &mut Map<K, V>, key: K) -> Result<&mut V, Error> {
    if map.len() == map.capacity() {
        map.try_reserve(1).map_err(|_| memory::lacking::<(K, V)>(map.len().saturating_add(1)))?;
    }
    Ok(map.entry(key).or_default())
}

/// XXH3 with a seed that nobody knows, so that nobody makes samples for which it is slow.
#[derive(Clone)]
pub(super) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Seeded {
        Seeded(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

pub(super) struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = XxHash3_64::oneshot_with_seed(self.0, bytes);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
