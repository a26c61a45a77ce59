//! Bounded pools: every connection holds a place of exactly one of them, so that a flood of one kind takes no place of
//! another.
//!
//! ```text
//!   accepted ──> arrivals, until the first packet is here
//!                   ├─ session ──> client place (limits.max_clients)
//!                   ├─ console ──> console login ──> console
//!                   ├─ cancel request ──> cancel place
//!                   └─ refused ──> farewell, until the client has read why
//! ```
//! Arrivals are never turned away: when there are too many, one of the origin that has most of them is closed: of those that
//! have got least far the one that came first. A client that says at once what it wants is therefore served in any flood, and
//! one that is in the midst of TLS is not closed for those that have said nothing. The other pools close who finds them full, and
//! have a smaller limit for one origin (an address, or the key of a cancel request), so that one flooder leaves room for others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::stream::Peer;

/// Arrivals beyond `max_clients`. A client place for each of the others is what a whole fleet of clients that reconnects at
/// once needs.
const ARRIVALS_SPARE: usize = 512;
/// Refused clients that are waited for while they read why, and of these from one origin.
const FAREWELLS_MAX: (usize, usize) = (128, 64);
/// Password exchanges with the console, and those that wait for the answer to a wrong password; of these from one origin.
const CONSOLE_LOGINS_MAX: (usize, usize) = (192, 128);
/// Cancel requests under way for sessions of this process, and of these for one session.
const OWN_CANCELS_MAX: (usize, usize) = (256, 4);
/// Cancel requests under way with keys that nobody here knows, and of these from one origin.
const FOREIGN_CANCELS_MAX: (usize, usize) = (128, 64);

/// File descriptors that each client place needs: one towards the client, one towards the server, one for an arrival.
pub(crate) const DESCRIPTORS_EACH: usize = 3;
/// File descriptors beside these: all pools, and as many again for listeners, consoles, files and the runtime.
pub(crate) const DESCRIPTORS_SPARE: usize = ARRIVALS_SPARE
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
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) farewells: Arc<Places<Origin>>,
    pub(crate) console_logins: Arc<Places<Origin>>,
    pub(crate) own_cancels: Arc<Places<Vec<u8>>>,
    pub(crate) foreign_cancels: Arc<Places<Origin>>,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            arrivals: Arc::default(),
            farewells: Places::new(FAREWELLS_MAX),
            console_logins: Places::new(CONSOLE_LOGINS_MAX),
            own_cancels: Places::new(OWN_CANCELS_MAX),
            foreign_cancels: Places::new(FOREIGN_CANCELS_MAX),
        }
    }
}

/// Connections that have not said yet what they want.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<Waiting>);

/// `all` is the number of entries in `by_origin`, whose maps are not empty.
#[derive(Debug, Default)]
struct Waiting {
    all: usize,
    next: u64,
    by_origin: HashMap<Origin, BTreeMap<Rank, Arc<Notify>>>,
}

/// Who is sent away first has the lowest: how far it has got, then its number, which grows with time.
type Rank = (Progress, u64);

/// How far an arrival has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// Nothing is here but parts of a packet.
    Silent,
    /// It has asked for TLS.
    AskedTls,
    /// TLS is in force.
    Encrypted,
}

impl Arrivals {
    /// A place until the guard is dropped. With `clients_max` and [`ARRIVALS_SPARE`] others there, one of them is sent away.
    pub(crate) fn take(self: &Arc<Self>, origin: impl Into<Origin>, clients_max: usize) -> Arriving {
        let (origin, sent_away) = (origin.into(), Arc::new(Notify::new()));
        let mut waiting = self.lock();
        while waiting.all >= clients_max + ARRIVALS_SPARE {
            waiting.send_one_away();
        }
        let rank = (Progress::Silent, waiting.next);
        waiting.next += 1;
        waiting.insert(&origin, rank, sent_away.clone());
        drop(waiting);
        Arriving { pool: self.clone(), entry: Mutex::new((origin, rank)), sent_away }
    }

    /// Sends away all that wait now.
    pub(crate) fn send_all_away(&self) {
        let mut waiting = self.lock();
        while waiting.all > 0 {
            waiting.send_one_away();
        }
    }

    /// Arrivals now.
    pub(crate) fn taken(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The first of the origin with most.
    fn send_one_away(&mut self) {
        let first = |of_origin: &BTreeMap<Rank, _>| of_origin.first_key_value().map(|(rank, _)| *rank);
        let fullest = self.by_origin.iter().max_by_key(|(_, all)| (all.len(), Reverse(first(all))));
        let Some((origin, rank)) = fullest.and_then(|(origin, all)| Some((origin.clone(), first(all)?)))
        else {
            return;
        };
        if let Some(sent_away) = self.remove(&origin, rank) {
            sent_away.notify_one();
        }
    }

    fn insert(&mut self, origin: &Origin, rank: Rank, sent_away: Arc<Notify>) {
        self.all += 1;
        self.by_origin.entry(origin.clone()).or_default().insert(rank, sent_away);
    }

    fn remove(&mut self, origin: &Origin, rank: Rank) -> Option<Arc<Notify>> {
        let of_origin = self.by_origin.get_mut(origin)?;
        let removed = of_origin.remove(&rank)?;
        self.all -= 1;
        if of_origin.is_empty() {
            self.by_origin.remove(origin);
        }
        Some(removed)
    }
}

/// The place of an arrival, given up on drop.
#[derive(Debug)]
pub(crate) struct Arriving {
    pool: Arc<Arrivals>,
    /// Where it stands in the pool.
    entry: Mutex<(Origin, Rank)>,
    sent_away: Arc<Notify>,
}

impl Arriving {
    /// It has got so far.
    pub(crate) fn advance(&self, progress: Progress) {
        self.change(|_, rank| rank.0 = progress);
    }

    /// A proxy has said where it really comes from.
    pub(crate) fn came_from(&self, real: impl Into<Origin>) {
        self.change(|origin, _| *origin = real.into());
    }

    fn change(&self, change: impl FnOnce(&mut Origin, &mut Rank)) {
        let mut waiting = self.pool.lock();
        let mut entry = self.entry();
        let (origin, rank) = &mut *entry;
        if let Some(sent_away) = waiting.remove(origin, *rank) {
            change(origin, rank);
            waiting.insert(origin, *rank, sent_away);
        }
    }

    fn entry(&self) -> MutexGuard<'_, (Origin, Rank)> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the place is wanted for somebody else, or the process ends.
    pub(crate) async fn sent_away(&self) {
        self.sent_away.notified().await;
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut waiting = self.pool.lock();
        let (origin, rank) = &*self.entry();
        waiting.remove(origin, *rank);
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
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_sent_away(arriving: &Arriving) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(arriving.sent_away()).poll(&mut context).is_ready()
    }

    #[test]
    fn a_flood_of_arrivals_sends_its_own_oldest_away() {
        let (pool, flooder, other) = (Arc::<Arrivals>::default(), Origin::User(1), Origin::User(2));
        let first = pool.take(other.clone(), 2);
        let flood: Vec<Arriving> = (0..ARRIVALS_SPARE + 3).map(|_| pool.take(flooder.clone(), 2)).collect();
        let second = pool.take(other, 2);
        let gone: Vec<usize> = (0..flood.len()).filter(|index| is_sent_away(&flood[*index])).collect();
        assert_eq!(gone, [0, 1, 2]);
        assert!(!is_sent_away(&first) && !is_sent_away(&second));
        assert_eq!(pool.taken(), ARRIVALS_SPARE + 2);
        drop(flood);
        assert_eq!(pool.taken(), 2);
        pool.send_all_away();
        assert!(is_sent_away(&first) && is_sent_away(&second));
        drop((first, second));
        assert!(pool.taken() == 0 && pool.lock().by_origin.is_empty());
    }

    #[test]
    fn who_has_got_further_is_sent_away_later() {
        let (pool, origin) = (Arc::<Arrivals>::default(), Origin::User(1));
        let [encrypted, asked] = [Progress::Encrypted, Progress::AskedTls].map(|progress| {
            let arriving = pool.take(origin.clone(), 1);
            arriving.advance(progress);
            arriving
        });
        let silent: Vec<Arriving> = (0..ARRIVALS_SPARE).map(|_| pool.take(origin.clone(), 1)).collect();
        assert!(is_sent_away(&silent[0]) && ![&encrypted, &asked].into_iter().any(is_sent_away));
        silent.iter().for_each(|arriving| arriving.advance(Progress::Encrypted));
        let _next = pool.take(origin, 1);
        assert!(is_sent_away(&asked) && !is_sent_away(&encrypted));
        asked.advance(Progress::Encrypted);
        assert_eq!(pool.taken(), ARRIVALS_SPARE + 1, "who was sent away does not come back");
    }

    #[test]
    fn of_origins_with_as_many_the_one_that_waits_longest_goes() {
        let pool = Arc::<Arrivals>::default();
        let all: Vec<Arriving> =
            (0..ARRIVALS_SPARE as u32 + 1).map(|user| pool.take(Origin::User(user), 0)).collect();
        let gone: Vec<usize> = (0..all.len()).filter(|index| is_sent_away(&all[*index])).collect();
        assert_eq!(gone, [0]);
    }

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
