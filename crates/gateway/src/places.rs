//! Bounded pools for connections that are no sessions, so that a flood of one kind takes no place of another.
//!
//! ```text
//!   accepted ──> client place (limits.max_clients) ──> session
//!                   ├─ startup packet asks for the console ──> console login ──> console
//!                   ├─ cancel request ──> cancel place
//!                   └─ refused ──> farewell, until the client has read why
//! ```
//! A connection holds a place of exactly one pool at a time. Who finds a pool full is closed at once. Every pool has a
//! smaller limit for one origin (an address, or the key of a cancel request), so that one flooder leaves room for others.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::stream::Peer;

/// Connections beyond `max_clients` that get their refusal in words; those beyond these are just closed.
pub(crate) const CROWD_MAX: usize = 256;
/// Refused clients that are waited for while they read why, and of these from one origin.
const FAREWELLS_MAX: (usize, usize) = (128, 64);
/// Password exchanges with the console, and those that wait for the answer to a wrong password; of these from one origin.
const CONSOLE_LOGINS_MAX: (usize, usize) = (192, 128);
/// Cancel requests under way for sessions of this process, and of these for one session.
const OWN_CANCELS_MAX: (usize, usize) = (256, 4);
/// Cancel requests under way with keys that nobody here knows, and of these from one origin.
const FOREIGN_CANCELS_MAX: (usize, usize) = (128, 64);

/// File descriptors beside two for each session: all pools, and as many again for listeners, consoles, files and the runtime.
pub(crate) const DESCRIPTORS_SPARE: usize = CROWD_MAX
    + FAREWELLS_MAX.0
    + CONSOLE_LOGINS_MAX.0
    + 2 * OWN_CANCELS_MAX.0
    + 2 * FOREIGN_CANCELS_MAX.0
    + 256;

/// Where a connection comes from, as far as floods are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Address(IpAddr),
    User(u32),
}

impl From<Peer> for Origin {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Address(address) | Peer::Proxied(address) => Origin::Address(address.ip().to_canonical()),
            Peer::Unix { uid } => Origin::User(uid),
        }
    }
}

/// The pools of a process.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) farewells: Arc<Places<Origin>>,
    pub(crate) console_logins: Arc<Places<Origin>>,
    pub(crate) own_cancels: Arc<Places<Vec<u8>>>,
    pub(crate) foreign_cancels: Arc<Places<Origin>>,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            farewells: Places::new(FAREWELLS_MAX),
            console_logins: Places::new(CONSOLE_LOGINS_MAX),
            own_cancels: Places::new(OWN_CANCELS_MAX),
            foreign_cancels: Places::new(FOREIGN_CANCELS_MAX),
        }
    }
}

/// A pool: `max` places, at most `max_each` of them for one key.
#[derive(Debug)]
pub(crate) struct Places<K> {
    max: usize,
    max_each: usize,
    taken: Mutex<Taken<K>>,
}

/// `all` is the sum of `by_key`, whose values are at least 1.
#[derive(Debug)]
struct Taken<K> {
    all: usize,
    by_key: HashMap<K, usize>,
}

impl<K: Eq + Hash + Clone> Places<K> {
    fn new((max, max_each): (usize, usize)) -> Arc<Self> {
        Arc::new(Self { max, max_each, taken: Mutex::new(Taken { all: 0, by_key: HashMap::new() }) })
    }

    /// A place until the guard is dropped; `None` when there is none for this key.
    pub(crate) fn take(self: &Arc<Self>, key: impl Into<K>) -> Option<Place<K>> {
        let key = key.into();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_key = taken.by_key.get(&key).copied().unwrap_or(0);
        if taken.all >= self.max || of_key >= self.max_each {
            return None;
        }
        taken.all += 1;
        taken.by_key.insert(key.clone(), of_key + 1);
        drop(taken);
        Some(Place { pool: self.clone(), key })
    }

    /// Places taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

/// One place, given up on drop.
#[derive(Debug)]
pub(crate) struct Place<K: Eq + Hash + Clone> {
    pool: Arc<Places<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone> Place<K> {
    /// Places taken in the pool, this one included.
    pub(crate) fn among(&self) -> usize {
        self.pool.taken()
    }
}

impl<K: Eq + Hash + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.pool.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(count) = taken.by_key.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_origin_cannot_take_every_place() {
        let pool: Arc<Places<&str>> = Places::new((3, 2));
        let flood = [pool.take("a"), pool.take("a"), pool.take("a")];
        assert_eq!(flood.iter().flatten().count(), 2);
        let other = pool.take("b").unwrap();
        assert!(pool.take("c").is_none(), "the pool is full");
        assert_eq!(other.among(), 3);
        drop(flood);
        assert_eq!(pool.taken(), 1);
        assert!(pool.take("a").is_some());
    }
}
