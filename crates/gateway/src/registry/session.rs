//! One connection: what it is, what it has carried, and what it is told to do.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime};

use pgshrink_wire::Role;
use tokio::sync::oneshot;

use super::counters::{Counters, DirectionTotals, Sending, SentBy, Totals};
use super::lock;
use crate::error::Refusal;
use crate::stream::Peer;

/// What a session can be told, as bits.
pub mod command {
    /// Close at the next moment at which nothing is lost.
    pub const DRAIN: u32 = 1;
    /// Close now.
    pub const KILL: u32 = 2;
    /// Take the requested compression setting.
    pub const COMPRESSION: u32 = 4;
    /// Give back what a quiet session does not need.
    pub const RELEASE: u32 = 8;
    /// See whether both peers still acknowledge.
    pub const LOOK: u32 = 16;
}

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Before AuthenticationOk.
    Login = 0,
    /// Moving bytes.
    Active = 1,
    /// One or both sides are being closed.
    Closing = 2,
}

/// What is known of a session once it is routed.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The role that logs in.
    pub user: String,
    /// The database.
    pub database: String,
    /// The server's name in the configuration.
    pub server: String,
    /// TLS towards the client.
    pub client_tls: Option<String>,
    /// TLS towards the server.
    pub server_tls: Option<String>,
    /// `application_name` of the startup packet.
    pub application: String,
    /// True for replication connections.
    pub replication: bool,
}

/// What was agreed about compression.
#[derive(Debug, Clone)]
pub struct Compression {
    /// `ack` or `restart`.
    pub dialect: &'static str,
    /// The algorithms agreed.
    pub agreed: String,
    /// What this end sends with now.
    pub sending: String,
}

struct SettingRequest {
    text: String,
    reply: oneshot::Sender<Result<String, String>>,
}

/// One connection.
pub struct Session {
    /// Unique in this process.
    pub id: u64,
    /// When it was accepted.
    pub started: Instant,
    /// The same on the clock of the times below.
    started_ms: u64,
    /// The same by the wall clock.
    pub started_at: SystemTime,
    role: Role,
    peer: Mutex<Peer>,
    via: Mutex<Option<Peer>>,
    phase: AtomicU8,
    /// Transaction status as the last ReadyForQuery had it, 0 before the first.
    transaction: AtomicU8,
    backend_pid: AtomicU32,
    memory_bytes: AtomicUsize,
    identity: OnceLock<Identity>,
    compression: Mutex<Option<Compression>>,
    sent_by: Mutex<SentBy>,
    plain: Mutex<Option<&'static str>>,
    given_up: AtomicBool,
    /// Milliseconds after `started` when something last moved.
    moved_ms: AtomicU64,
    /// Milliseconds of quiet before it is told to give memory back; 0 when it has none to give.
    release_after_ms: AtomicU64,
    /// `moved_ms` and 1 when it was told last.
    released_ms: AtomicU64,
    /// How long a peer may acknowledge nothing of what was sent to it, in milliseconds; 0: for ever.
    user_timeout_ms: AtomicU64,
    /// Milliseconds after `started` of the last look at its peers.
    looked_ms: AtomicU64,
    /// The last look found something that is not acknowledged.
    unacknowledged: AtomicBool,
    /// Looks so far.
    looks: AtomicU64,
    refusal: Mutex<Option<Refusal>>,
    /// Bytes, frames and queries.
    pub counters: Counters,
    commands: AtomicU32,
    waker: Mutex<Option<Waker>>,
    request: Mutex<Option<SettingRequest>>,
}

impl Session {
    pub(super) fn new(id: u64, role: Role, peer: Peer) -> Self {
        Self {
            id,
            role,
            started: Instant::now(),
            started_ms: coarse_ms(),
            started_at: SystemTime::now(),
            peer: Mutex::new(peer),
            via: Mutex::new(None),
            phase: AtomicU8::new(Phase::Login as u8),
            transaction: AtomicU8::new(0),
            backend_pid: AtomicU32::new(0),
            memory_bytes: AtomicUsize::new(0),
            identity: OnceLock::new(),
            compression: Mutex::new(None),
            sent_by: Mutex::default(),
            plain: Mutex::new(None),
            given_up: AtomicBool::new(false),
            moved_ms: AtomicU64::new(0),
            release_after_ms: AtomicU64::new(0),
            released_ms: AtomicU64::new(0),
            user_timeout_ms: AtomicU64::new(0),
            looked_ms: AtomicU64::new(0),
            unacknowledged: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            refusal: Mutex::new(None),
            counters: Counters::default(),
            commands: AtomicU32::new(0),
            waker: Mutex::new(None),
            request: Mutex::new(None),
        }
    }

    /// The client, its real address when a trusted proxy said so.
    pub fn peer(&self) -> Peer {
        *lock(&self.peer)
    }

    /// The proxy it came through.
    pub fn via(&self) -> Option<Peer> {
        *lock(&self.via)
    }

    /// Which end of the wire this process is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Why it carries no frames, once that is known.
    pub fn plain(&self) -> Option<&'static str> {
        *lock(&self.plain)
    }

    /// True while sending compressed was given up as useless and is only probed.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// How long nothing has moved.
    pub fn quiet(&self) -> Duration {
        let moved = self.started_ms + self.moved_ms.load(Ordering::Relaxed);
        Duration::from_millis(coarse_ms().saturating_sub(moved))
    }

    /// True once it is past authentication.
    pub fn is_past_login(&self) -> bool {
        lock(&self.compression).is_some() || lock(&self.plain).is_some()
    }

    /// What this end sends with now; `off` for plain sessions.
    pub fn sending(&self) -> String {
        lock(&self.compression).as_ref().map_or_else(|| "off".to_string(), |c| c.sending.clone())
    }

    fn sent(&self) -> DirectionTotals {
        match self.role {
            Role::Gateway => self.counters.to_client.snapshot(),
            Role::Connector => self.counters.to_server.snapshot(),
        }
    }

    /// Its share of the totals.
    pub(super) fn totals(&self, ended: bool) -> Totals {
        let mut totals = self.counters.snapshot();
        if self.is_past_login() {
            (totals.live, totals.ended) = (u64::from(!ended), u64::from(ended));
            let dialect = lock(&self.compression).as_ref().map_or("", |c| c.dialect);
            totals.by_dialect[DIALECTS.iter().position(|d| *d == dialect).unwrap_or(2)] = 1;
        }
        let sending = lock(&self.compression);
        totals.sent_by = lock(&self.sent_by).clone();
        totals.sent_by.advance(&self.sent(), sending_label(sending.as_ref()));
        totals
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Login,
            1 => Phase::Active,
            _ => Phase::Closing,
        }
    }

    /// `I`, `T`, `E`, or 0 before the first ReadyForQuery.
    pub fn transaction(&self) -> u8 {
        self.transaction.load(Ordering::Relaxed)
    }

    /// The server's process, 0 while unknown.
    pub fn backend_pid(&self) -> u32 {
        self.backend_pid.load(Ordering::Relaxed)
    }

    /// Heap of codecs and buffers.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Known once it is routed.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.get()
    }

    /// The server's name, empty while it is not routed.
    pub fn server(&self) -> &str {
        self.identity().map_or("", |i| i.server.as_str())
    }

    /// `None` for plain sessions.
    pub fn compression(&self) -> Option<Compression> {
        lock(&self.compression).clone()
    }

    /// Asks the session to send with something else; the answer is what is in force then, or why not.
    pub fn request_compression(&self, text: &str) -> oneshot::Receiver<Result<String, String>> {
        let (reply, answer) = oneshot::channel();
        *lock(&self.request) = Some(SettingRequest { text: text.to_string(), reply });
        self.command(command::COMPRESSION);
        answer
    }

    /// Ends the session; where the protocol allows, the client is told why.
    pub fn kill(&self, refusal: Refusal) {
        *lock(&self.refusal) = Some(refusal);
        self.command(command::KILL);
    }

    /// The words that [`Session::kill`] left.
    pub(crate) fn take_refusal(&self) -> Option<Refusal> {
        lock(&self.refusal).take()
    }

    /// Leaves commands for the session.
    pub fn command(&self, bits: u32) {
        self.commands.fetch_or(bits, Ordering::Release);
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }

    /// The client's own address; who brought it is remembered when that was somebody else.
    pub(crate) fn came_from(&self, peer: Peer) {
        let mut known = lock(&self.peer);
        if *known != peer {
            *lock(&self.via) = Some(*known);
            *known = peer;
        }
    }

    /// Says why the session carries no frames; once, when it is past authentication.
    pub(crate) fn set_plain(&self, reason: &'static str) {
        *lock(&self.plain) = Some(reason);
    }

    pub(crate) fn set_given_up(&self, given_up: bool) {
        self.given_up.store(given_up, Ordering::Relaxed);
    }

    /// Something has moved now.
    pub(crate) fn touch(&self) {
        self.moved_ms.store(coarse_ms().saturating_sub(self.started_ms), Ordering::Relaxed);
    }

    /// From now on it has memory to give back after so much quiet.
    pub(crate) fn release_after(&self, quiet: Duration) {
        self.release_after_ms.store(quiet.as_millis() as u64, Ordering::Relaxed);
    }

    /// Tells it once per quiet time; true when it does. One look at all sessions now and then costs less than a timer in each, which
    /// its thread would have to wait with every time.
    pub(super) fn release_if_quiet(&self) -> bool {
        let after = self.release_after_ms.load(Ordering::Relaxed);
        let moved = self.moved_ms.load(Ordering::Relaxed);
        let quiet = coarse_ms().saturating_sub(self.started_ms + moved);
        let due =
            after > 0 && quiet >= after && self.released_ms.swap(moved + 1, Ordering::Relaxed) != moved + 1;
        if due {
            self.command(command::RELEASE);
        }
        due
    }

    /// True once after it was told `bit`.
    pub(crate) fn take(&self, bit: u32) -> bool {
        self.commands.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// From now on its peers are looked at while something moves or is due; zero: never.
    pub(crate) fn limit_silence(&self, user_timeout: Duration) {
        self.user_timeout_ms.store(user_timeout.as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn user_timeout(&self) -> Duration {
        Duration::from_millis(self.user_timeout_ms.load(Ordering::Relaxed))
    }

    /// Tells it to look at its peers four times in the time they have, as long as there is something to see.
    pub(super) fn look_if_due(&self) {
        let limit = self.user_timeout_ms.load(Ordering::Relaxed);
        let now = coarse_ms().saturating_sub(self.started_ms);
        let looked = self.looked_ms.load(Ordering::Relaxed);
        let reason =
            self.unacknowledged.load(Ordering::Relaxed) || self.moved_ms.load(Ordering::Relaxed) >= looked;
        if limit > 0 && reason && now.saturating_sub(looked) >= limit / 4 {
            self.looked_ms.store(now.max(1), Ordering::Relaxed);
            self.command(command::LOOK);
        }
    }

    /// What the look found.
    pub(crate) fn set_unacknowledged(&self, unacknowledged: bool) {
        self.unacknowledged.store(unacknowledged, Ordering::Relaxed);
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// How often its peers were looked at.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_transaction(&self, status: u8) {
        self.transaction.store(status, Ordering::Relaxed);
    }

    pub(crate) fn set_backend_pid(&self, pid: u32) {
        self.backend_pid.store(pid, Ordering::Relaxed);
    }

    pub(crate) fn set_memory_bytes(&self, bytes: usize) {
        self.memory_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_identity(&self, identity: Identity) {
        // A session is routed once; a second time would be a retry to the same place.
        let _ = self.identity.set(identity);
    }

    /// At the beginning, and whenever what is sent with changes: what was sent so far stays on the old account.
    pub(crate) fn set_compression(&self, compression: Option<Compression>) {
        let mut current = lock(&self.compression);
        lock(&self.sent_by).advance(&self.sent(), sending_label(current.as_ref()));
        *current = compression;
    }

    /// The task that obeys commands. Its waker never changes while it lives in the pump.
    pub(crate) fn listen(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    /// Cheap enough for every turn of the pump.
    pub(crate) fn commands(&self) -> u32 {
        self.commands.load(Ordering::Acquire)
    }

    pub(crate) fn take_request(&self) -> Option<(String, oneshot::Sender<Result<String, String>>)> {
        self.commands.fetch_and(!command::COMPRESSION, Ordering::AcqRel);
        lock(&self.request).take().map(|r| (r.text, r.reply))
    }
}

/// The monotonic clock to a few milliseconds, at a tenth of the exact one's cost.
fn coarse_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Order of [`Totals::by_dialect`]; anything else is plain.
pub const DIALECTS: [&str; 3] = ["ack", "restart", "plain"];

fn sending_label(compression: Option<&Compression>) -> Sending {
    compression.map_or(Sending::Plain, |c| Sending::of(&c.sending))
}
