//! What the console and the metrics page want to know of the process.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use pgshrink_wire::{MemoryBudget, Role};
use tokio::sync::watch;

use super::lock;

/// One effective setting, for SHOW CONFIG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// As in the configuration file, tables joined by dots.
    pub key: String,
    /// What is in force.
    pub value: String,
    /// What it would be if it was not set.
    pub default: String,
    /// Whether a reload changes it.
    pub reloadable: bool,
}

/// A server or target of the configuration, for SHOW SERVERS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// The name in logs and labels; the same as in `Identity::server`.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// Databases and users it serves, in words.
    pub serves: String,
    /// `sslmode` towards it.
    pub sslmode: &'static str,
}

/// A listening socket, for SHOW LISTENERS.
#[derive(Debug)]
pub struct Listener {
    /// As the system reports it.
    pub address: String,
    /// `tcp`, `unix` or `metrics`.
    pub kind: &'static str,
    accepted: AtomicU64,
}

impl Listener {
    /// One connection was accepted.
    pub fn count_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Process {
    /// Gateway or connector.
    pub role: Role,
    /// Codec memory of all sessions.
    pub budget: MemoryBudget,
    /// When it began.
    pub started: Instant,
    /// The same by the wall clock.
    pub started_at: SystemTime,
    paused: watch::Sender<bool>,
    /// Reloads so far, and why the last one failed.
    reloads: watch::Sender<(u64, Option<String>)>,
    /// Consoles that are open, and whether they are to end.
    consoles: AtomicUsize,
    ending: watch::Sender<bool>,
    settings: Mutex<Arc<[Setting]>>,
    servers: Mutex<Arc<[ServerInfo]>>,
    listeners: Mutex<Vec<Arc<Listener>>>,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            role: Role::Gateway,
            budget: MemoryBudget::default(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            paused: watch::Sender::new(false),
            reloads: watch::Sender::new((0, None)),
            consoles: AtomicUsize::new(0),
            ending: watch::Sender::new(false),
            settings: Mutex::new(Arc::from([])),
            servers: Mutex::new(Arc::from([])),
            listeners: Mutex::default(),
        }
    }
}

impl Process {
    /// Without settings, servers and listeners yet.
    pub fn new(role: Role, budget: MemoryBudget) -> Self {
        Self { role, budget, ..Self::default() }
    }

    /// Effective settings.
    pub fn settings(&self) -> Arc<[Setting]> {
        lock(&self.settings).clone()
    }

    /// Servers or targets of the effective configuration.
    pub fn servers(&self) -> Arc<[ServerInfo]> {
        lock(&self.servers).clone()
    }

    /// Listening sockets.
    pub fn listeners(&self) -> Vec<Arc<Listener>> {
        lock(&self.listeners).clone()
    }

    /// Replaces what SHOW CONFIG tells: at start and after each reload.
    pub fn set_settings(&self, settings: Vec<Setting>) {
        *lock(&self.settings) = settings.into();
    }

    /// Replaces what SHOW SERVERS tells; sums of servers that are gone stay.
    pub fn set_servers(&self, servers: Vec<ServerInfo>) {
        *lock(&self.servers) = servers.into();
    }

    /// Adds a listening socket.
    pub fn add_listener(&self, address: impl Into<String>, kind: &'static str) -> Arc<Listener> {
        let listener = Arc::new(Listener { address: address.into(), kind, accepted: AtomicU64::new(0) });
        lock(&self.listeners).push(listener.clone());
        listener
    }

    /// Forgets a socket that was closed.
    pub fn remove_listener(&self, listener: &Arc<Listener>) {
        lock(&self.listeners).retain(|l| !Arc::ptr_eq(l, listener));
    }

    /// True while new sessions wait for RESUME.
    pub fn is_paused(&self) -> bool {
        *self.paused.borrow()
    }

    /// PAUSE: new sessions wait before they reach a server. Those that run go on.
    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    /// RESUME.
    pub fn resume(&self) {
        self.paused.send_replace(false);
    }

    /// Returns at once unless the process is paused. The login timeout bounds the wait.
    pub async fn wait_until_resumed(&self) {
        let mut paused = self.paused.subscribe();
        // The sender lives in `self`, so this cannot fail while it is borrowed.
        let _ = paused.wait_for(|paused| !paused).await;
    }

    /// The lifecycle has loaded the configuration again, or could not.
    pub fn reloaded(&self, failure: Option<String>) {
        self.reloads.send_modify(|(count, last)| {
            *count += 1;
            *last = failure;
        });
    }

    /// Reloads so far that were asked for.
    pub fn reloads(&self) -> u64 {
        self.reloads.borrow().0
    }

    /// Waits for the end of a reload that began after `before` of them; the failure's text.
    pub async fn wait_reloaded(&self, before: u64) -> Result<(), String> {
        let mut reloads = self.reloads.subscribe();
        match reloads.wait_for(|(count, _)| *count > before).await.map(|last| last.1.clone()) {
            Ok(None) => Ok(()),
            Ok(Some(failure)) => Err(failure),
            Err(_) => Err("the process ends".into()),
        }
    }

    /// A console opens; `None`: there are `max` already.
    pub fn open_console(self: &Arc<Self>, max: usize) -> Option<OpenConsole> {
        let opened = OpenConsole(self.clone());
        // Counted first, so that the drop of the guard is always right.
        (self.consoles.fetch_add(1, Ordering::Relaxed) < max).then_some(opened)
    }

    /// Ends open consoles; they have `limit` for their last words.
    pub async fn end_consoles(&self, limit: Duration) {
        self.ending.send_replace(true);
        let deadline = Instant::now() + limit;
        while self.consoles.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns when consoles are to end.
    pub async fn wait_ending(&self) {
        let mut ending = self.ending.subscribe();
        // The sender lives in `self`, so this cannot fail while it is borrowed.
        let _ = ending.wait_for(|ending| *ending).await;
    }
}

/// A console's place, given up on drop.
#[derive(Debug)]
pub struct OpenConsole(Arc<Process>);

impl Drop for OpenConsole {
    fn drop(&mut self) {
        self.0.consoles.fetch_sub(1, Ordering::Relaxed);
    }
}
