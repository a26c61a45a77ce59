//! Who is connected and what has moved: read by the admin console, the metrics page and the logs.
//!
//! A session writes its own counters (relaxed, one writer) and obeys commands left for it; anybody reads. Totals are
//! the counters of finished sessions plus those of the living, so nothing is counted twice or lost.

//!
//! The seam between the core and the console: [`Process`] holds what SHOW tells beside sessions (settings, servers,
//! listeners) and PAUSE ([`Process::wait_until_resumed`], awaited before a server is contacted); [`Events`] counts what
//! happens to connections, by reason; a session says [`Session::set_plain`] or [`Session::set_compression`] behind
//! AuthenticationOk, and the latter again whenever what it sends with changes.

mod counters;
mod events;
mod process;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pgshrink_wire::{MemoryBudget, Role};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub use counters::{Counters, Direction, DirectionTotals, Sending, SentBy, Totals};
pub use events::{Events, Label, Reason};
pub use process::{Listener, OpenConsole, Process, ServerInfo, Setting};
pub use session::{Compression, DIALECTS, Identity, Phase, Session, command};

use crate::observe;
use crate::places::Pools;
use crate::stream::Peer;

/// Accepted connections that no worker has taken up yet, at most. The others wait in the kernel, in order, so that no
/// connection is old before anybody has looked at what it sent.
const HANDED_OVER_MAX: usize = 64;

/// All sessions of a process.
#[derive(Default)]
pub struct Registry {
    /// What is not about sessions.
    pub process: Arc<Process>,
    next_id: AtomicU64,
    /// Those that hold a client place.
    sessions: Mutex<HashMap<u64, Arc<Session>>>,
    hand_over: HandOver,
    /// Connections of any kind that a worker serves: sessions, logins, consoles, cancel requests, refused clients.
    served: AtomicUsize,
    /// The most there were at once.
    served_most: AtomicUsize,
    /// Connections that a drain waits for: all but consoles.
    awaited: AtomicUsize,
    /// Places of those that are no sessions.
    pub(crate) pools: Pools,
    per_address: Mutex<HashMap<IpAddr, usize>>,
    /// By server; the empty name is for sessions that never got one.
    finished: Mutex<BTreeMap<String, Totals>>,
    /// What happened to connections.
    pub events: Events,
    /// What measures savings, if anything does.
    pub(crate) observer: observe::Slot,
    draining: AtomicBool,
    changed: Notify,
}

/// Permits for connections on their way to a worker.
struct HandOver(Arc<Semaphore>);

impl Default for HandOver {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(HANDED_OVER_MAX)))
    }
}

impl Registry {
    /// Without sessions.
    pub fn new(role: Role, budget: MemoryBudget) -> Self {
        Self { process: Arc::new(Process::new(role, budget)), ..Self::default() }
    }

    /// Sessions now, in no order.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        lock(&self.sessions).values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// True without sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Connections of any kind now.
    pub fn connections(&self) -> usize {
        self.handed_over() + self.served.load(Ordering::Relaxed)
    }

    /// The most connections that were served at once so far.
    pub fn connections_most(&self) -> usize {
        self.served_most.load(Ordering::Relaxed)
    }

    fn handed_over(&self) -> usize {
        HANDED_OVER_MAX - self.hand_over.0.available_permits()
    }

    /// Waits until the workers have room for an accepted connection.
    pub(crate) async fn arrive(self: &Arc<Self>) -> Arrival {
        let awaited = Awaited::new(self);
        // The semaphore is never closed.
        Arrival { _room: self.hand_over.0.clone().acquire_owned().await.ok(), _awaited: awaited }
    }

    /// The session with this number.
    pub fn find(&self, id: u64) -> Option<Arc<Session>> {
        lock(&self.sessions).get(&id).cloned()
    }

    /// Everything all sessions have done, finished and living.
    pub fn totals(&self) -> Totals {
        self.totals_by_server().values().fold(Totals::default(), |mut sum, t| {
            sum.add(t);
            sum
        })
    }

    /// The same per server; every configured server has a row.
    pub fn totals_by_server(&self) -> BTreeMap<String, Totals> {
        // Both locks, so that a session that ends meanwhile is counted once, and no total ever goes down.
        let sessions = lock(&self.sessions);
        let mut totals = lock(&self.finished).clone();
        for server in self.process.servers().iter() {
            totals.entry(server.name.clone()).or_default();
        }
        for session in sessions.values() {
            totals.entry(session.server().to_string()).or_default().add(&session.totals(false));
        }
        totals
    }

    /// The server called `server` could not be reached.
    pub(crate) fn count_connect_failure(&self, server: &str) {
        Events::count(&self.events.connect_failures);
        lock(&self.finished).entry(server.to_string()).or_default().connect_failures += 1;
    }

    /// Samples of traffic that are recorded or wait to be measured, with `observe`.
    pub fn samples_pending(&self) -> usize {
        self.observer.pending()
    }

    /// True once the process is shutting down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Tells every session, and every later one.
    pub(crate) fn drain(&self, bits: u32) {
        self.draining.store(true, Ordering::Release);
        // Those that wait for RESUME are refused instead.
        self.process.resume();
        for session in self.sessions() {
            session.command(bits);
        }
    }

    /// Tells quiet sessions to give memory back, and those with traffic to look at their peers. True when some were told the former.
    pub(crate) fn sweep(&self) -> bool {
        let mut releases = false;
        for session in self.sessions() {
            releases |= session.release_if_quiet();
            session.look_if_due();
        }
        releases
    }

    /// Waits until nothing is left but consoles.
    pub(crate) async fn wait_empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.awaited.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }

    /// A worker takes up a connection. It is no session yet.
    pub(crate) fn enter(self: &Arc<Self>, peer: Peer) -> Registered {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Arc::new(Session::new(id, self.process.role, peer));
        Events::count(&self.events.accepted);
        let served = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        self.served_most.fetch_max(served, Ordering::Relaxed);
        Registered { registry: self.clone(), session, address: None, awaited: Some(Awaited::new(self)) }
    }
}

/// An accepted connection on its way to a worker, until it is dropped there.
pub(crate) struct Arrival {
    _room: Option<OwnedSemaphorePermit>,
    _awaited: Awaited,
}

/// A connection that a drain waits for.
struct Awaited(Arc<Registry>);

impl Awaited {
    fn new(registry: &Arc<Registry>) -> Self {
        registry.awaited.fetch_add(1, Ordering::Relaxed);
        Self(registry.clone())
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::Release);
        self.0.changed.notify_waiters();
    }
}

/// Why a connection gets no client place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// As many sessions as there may be.
    Clients,
    /// As many of this address as there may be.
    Address,
}

/// A connection that a worker serves, until it is dropped.
pub(crate) struct Registered {
    registry: Arc<Registry>,
    pub(crate) session: Arc<Session>,
    /// Under which it is counted, while it holds a client place and addresses are limited.
    address: Option<IpAddr>,
    awaited: Option<Awaited>,
}

impl Registered {
    /// Takes one of `max` client places, and one of `per_address` (0: no limit) of its address: this is a session from now on.
    pub(crate) fn become_session(&mut self, max: usize, per_address: usize) -> Result<(), Full> {
        let mut sessions = lock(&self.registry.sessions);
        if sessions.len() >= max {
            return Err(Full::Clients);
        }
        if let (Peer::Address(address) | Peer::Proxied(address), true) =
            (self.session.peer(), per_address > 0)
        {
            let ip = address.ip().to_canonical();
            let mut counts = lock(&self.registry.per_address);
            let count = counts.entry(ip).or_insert(0);
            if *count >= per_address {
                return Err(Full::Address);
            }
            *count += 1;
            self.address = Some(ip);
        }
        sessions.insert(self.session.id, self.session.clone());
        drop(sessions);
        if self.registry.is_draining() {
            self.session.command(command::DRAIN);
        }
        Ok(())
    }

    /// Gives up the client place, if it holds one: it was refused, and is told why.
    pub(crate) fn give_up_client_place(&mut self) {
        lock(&self.registry.sessions).remove(&self.session.id);
        self.forget_address();
    }

    /// From now on this is a console: a drain does not wait for it.
    pub(crate) fn become_console(&mut self) {
        self.awaited = None;
    }

    fn forget_address(&mut self) {
        let Some(ip) = self.address.take() else { return };
        let mut counts = lock(&self.registry.per_address);
        if let Some(count) = counts.get_mut(&ip) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&ip);
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.served.fetch_sub(1, Ordering::Relaxed);
        self.forget_address();
        let mut sessions = lock(&self.registry.sessions);
        if sessions.remove(&self.session.id).is_some() {
            let server = self.session.server().to_string();
            lock(&self.registry.finished).entry(server).or_default().add(&self.session.totals(true));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_keep_what_finished_sessions_moved() {
        let registry = Arc::new(Registry::default());
        let mut first = registry.enter(Peer::Unix { uid: 1 });
        let mut second = registry.enter(Peer::Unix { uid: 1 });
        assert_eq!([first.become_session(2, 1), second.become_session(2, 1)], [Ok(()), Ok(())]);
        let third = registry.enter(Peer::Unix { uid: 1 }).become_session(2, 1);
        assert_eq!(third, Err(Full::Clients));
        first.session.counters.to_server.moved(10);
        second.session.counters.to_client.moved(5);
        drop(first);
        let totals = registry.totals();
        assert_eq!((registry.len(), totals.to_server.raw_bytes, totals.to_client.wire_bytes), (1, 10, 5));
    }

    #[test]
    fn sessions_per_address_are_counted_while_they_live() {
        let registry = Arc::new(Registry::default());
        let peer = Peer::Address("[::ffff:10.0.0.1]:5".parse().unwrap());
        let mut first = registry.enter(peer);
        let mut second = registry.enter(peer);
        assert_eq!([first.become_session(9, 1), second.become_session(9, 1)], [Ok(()), Err(Full::Address)]);
        first.give_up_client_place();
        assert_eq!(second.become_session(9, 1), Ok(()), "who was refused is not counted while it is told so");
        drop(second);
        assert_eq!(registry.enter(peer).become_session(9, 1), Ok(()));
        assert!(lock(&registry.per_address).is_empty() && registry.is_empty());
    }
}
