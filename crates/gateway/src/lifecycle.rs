//! From start to end: worker threads, the acceptor, signals, reload and drain.
//!
//! ```text
//!  acceptor (control thread) ──round robin──> worker threads, each its own runtime: one task per session
//!      ^ signals, console                         registry <── counters, commands
//! ```
//!
//! **Drain** (SIGTERM): listening sockets close at once, so that a load balancer or the successor takes over. A session
//! cannot be moved to another process, so each is left alone until it ends by itself or is idle outside a transaction
//! ([`pgshrink_wire::Conversation`]); then its client gets FATAL 57P01 at a message boundary, as from a PostgreSQL that shuts
//! down. Replication streams end between two messages. After `timeouts.drain_timeout_s` the rest is closed. A second SIGTERM, or
//! SIGINT, closes everything now. **Reload** (SIGHUP): new sessions get the new configuration, old ones keep theirs;
//! listening addresses and `threads` do not change before a restart.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::Error;
use crate::listen::{Address, Listener, SocketGuard};
use crate::metrics;
use crate::registry::{self, Arrival, Process, Registry, command};
use crate::service::{Service, serve};
use crate::stream::Socket;
use crate::throttle::limited;

/// Pause after a failed accept (out of file descriptors, usually).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a draining process waits for the startup packet of who is connected already.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);
/// How long closed sessions may take for their last words.
const LAST_WORDS_LIMIT: Duration = Duration::from_millis(2500);
/// The same for consoles, which have nothing to lose.
const CONSOLES_LIMIT: Duration = Duration::from_millis(200);

/// An order to a running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Load the configuration again.
    Reload,
    /// Stop accepting, let sessions finish.
    Drain,
    /// Close everything.
    Stop,
}

/// An accepted connection on its way to a worker.
struct Incoming<S> {
    socket: Accepted,
    service: Arc<S>,
    arrival: Arrival,
}

enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// Worker threads; they end when this is dropped.
pub(crate) struct Workers<S> {
    queues: Vec<mpsc::UnboundedSender<Incoming<S>>>,
    threads: Vec<JoinHandle<()>>,
    next: AtomicUsize,
}

impl<S: Service> Workers<S> {
    pub(crate) fn start(count: Option<usize>) -> Result<Self, Error> {
        let count = count.unwrap_or_else(workers_default);
        let mut workers = Self { queues: Vec::new(), threads: Vec::new(), next: AtomicUsize::new(0) };
        for index in 0..count {
            let fail = |source| Error::Runtime { what: "a worker thread", source };
            let runtime = current_thread().map_err(fail)?;
            let (queue, incoming) = mpsc::unbounded_channel();
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || work(&runtime, incoming))
                .map_err(fail)?;
            workers.queues.push(queue);
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    fn hand_over(&self, incoming: Incoming<S>) {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.queues.len();
        // A worker ends only with its queue.
        let _ = self.queues[index].send(incoming);
    }

    /// Ends the threads and what still runs on them.
    pub(crate) fn stop(self) {
        drop(self.queues);
        for thread in self.threads {
            // A panic was already reported by its hook.
            let _ = thread.join();
        }
    }
}

/// One per processor.
pub(crate) fn workers_default() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) fn current_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn work<S: Service>(runtime: &Runtime, mut incoming: mpsc::UnboundedReceiver<Incoming<S>>) {
    runtime.block_on(async move {
        while let Some(Incoming { socket, service, arrival }) = incoming.recv().await {
            match adopt(socket) {
                Ok(socket) => {
                    tokio::spawn(serve(service, socket, arrival));
                }
                Err(error) => limited!(warn, %error, "connection not adopted"),
            }
        }
    });
}

fn adopt(socket: Accepted) -> io::Result<Socket> {
    Ok(match socket {
        Accepted::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
        Accepted::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
    })
}

enum Listening {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _guard: Option<SocketGuard> },
}

impl Listening {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listening::Tcp(listener) => Ok(Accepted::Tcp(listener.accept().await?.0.into_std()?)),
            Listening::Unix { listener, .. } => Ok(Accepted::Unix(listener.accept().await?.0.into_std()?)),
        }
    }
}

const SWEEP_PERIOD_MIN: Duration = Duration::from_millis(250);
const SWEEP_PERIOD_MAX: Duration = Duration::from_secs(10);

/// A process or thread that serves.
pub(crate) struct Engine<S, L> {
    pub(crate) service: Arc<S>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) workers: Workers<S>,
    /// Makes the next service on reload.
    pub(crate) load: L,
    /// Where the metrics page is served.
    pub(crate) metrics: Option<metrics::Endpoint>,
}

impl<S: Service, L: FnMut() -> Result<S, Error>> Engine<S, L> {
    /// Serves until it is told to end. `orders` come from signals, the console or a handle.
    pub(crate) async fn run(
        mut self,
        listeners: Vec<Listener>,
        mut orders: mpsc::UnboundedReceiver<Control>,
        notify: impl Fn(Notice),
    ) -> Result<(), Error> {
        let mut acceptors = Acceptors::start(listeners, &self.registry.process)?;
        if let Some(endpoint) = self.metrics.take() {
            // Ends with the runtime, so that health checks see the drain.
            tokio::spawn(metrics::serve(endpoint, self.registry.clone()));
        }
        notify(Notice::Ready);
        let mut released = false;
        let mut sweep = std::pin::pin!(tokio::time::sleep(self.sweep_period()));
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Control::Reload) => self.reload(&notify),
                    Some(Control::Drain) => break,
                    Some(Control::Stop) | None => {
                        notify(Notice::Stopping);
                        drop(acceptors);
                        self.close_all().await;
                        return self.end().await;
                    }
                },
                () = &mut sweep => {
                    // What the last sweep made sessions free has been freed by now.
                    if std::mem::replace(&mut released, self.registry.sweep()) {
                        tokio::task::spawn_blocking(crate::memory::return_free_pages);
                    }
                    sweep.as_mut().reset(tokio::time::Instant::now() + self.sweep_period());
                }
                accepted = acceptors.next() => self.take_in(accepted).await,
            }
        }
        notify(Notice::Stopping);
        // Who is connected already is told to come back in words; closing the socket would reset them.
        let waiting_max = if acceptors.inherited { 0 } else { self.service.common().tcp.tcp.backlog };
        for _ in 0..waiting_max {
            let Ok(accepted) = timeout(Duration::ZERO, acceptors.next()).await else { break };
            self.take_in(accepted).await;
        }
        drop(acceptors);
        self.drain(&mut orders).await;
        self.end().await
    }

    async fn take_in(&self, accepted: io::Result<Accepted>) {
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) => {
                limited!(error, %error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                return;
            }
        };
        let arrival = self.registry.arrive().await;
        self.workers.hand_over(Incoming { socket, service: self.service.clone(), arrival });
    }

    /// Between two sweeps over all sessions.
    fn sweep_period(&self) -> Duration {
        let common = self.service.common();
        let quiet = Duration::from_secs(common.timeouts.idle_release_s);
        let silence = Some(common.tcp.tcp.user_timeout_s).filter(|s| *s > 0).map(Duration::from_secs);
        (quiet.min(silence.unwrap_or(quiet)) / 4).clamp(SWEEP_PERIOD_MIN, SWEEP_PERIOD_MAX)
    }

    fn reload(&mut self, notify: &impl Fn(Notice)) {
        notify(Notice::Reloading);
        match (self.load)() {
            Ok(service) => {
                self.service = Arc::new(service);
                self.registry.process.reloaded(None);
                crate::descriptors::provide(self.service.common().limits.max_clients);
                tracing::info!("configuration reloaded");
            }
            Err(error) => {
                self.registry.process.reloaded(Some(error.to_string()));
                tracing::error!(%error, "configuration not reloaded, the old one stays in effect");
            }
        }
        notify(Notice::Ready);
    }

    async fn drain(&self, orders: &mut mpsc::UnboundedReceiver<Control>) {
        let limit = Duration::from_secs(self.service.common().timeouts.drain_timeout_s);
        tracing::info!(sessions = self.registry.len(), limit_s = limit.as_secs(), "draining");
        self.registry.drain(command::DRAIN);
        let hurried = async {
            loop {
                match orders.recv().await {
                    Some(Control::Drain | Control::Stop) => return,
                    Some(Control::Reload) => {}
                    // Nobody is left to hurry.
                    None => std::future::pending().await,
                }
            }
        };
        let without_the_silent = async {
            tokio::time::sleep(SILENCE_LIMIT).await;
            self.registry.pools.arrivals.send_all_away();
            self.registry.wait_empty().await;
        };
        tokio::select! {
            () = self.registry.wait_empty() => return,
            () = without_the_silent => return,
            () = tokio::time::sleep(limit) => tracing::warn!(sessions = self.registry.len(), "drain time is over"),
            () = hurried => tracing::warn!(sessions = self.registry.len(), "drain cut short"),
        }
        self.close_all().await;
    }

    async fn close_all(&self) {
        self.registry.drain(command::KILL);
        self.registry.pools.arrivals.send_all_away();
        // Those that do not make it are cut off with their threads.
        let _ = timeout(LAST_WORDS_LIMIT, self.registry.wait_empty()).await;
    }

    async fn end(self) -> Result<(), Error> {
        self.registry.process.end_consoles(CONSOLES_LIMIT).await;
        self.workers.stop();
        self.registry.observer.stop();
        tracing::info!("stopped");
        Ok(())
    }
}

/// All listening sockets as one stream of connections. Dropping it closes them.
struct Acceptors {
    listening: Arc<Vec<Listening>>,
    /// The same sockets as the console shows them.
    shown: Vec<Arc<registry::Listener>>,
    process: Arc<Process>,
    turn: usize,
    /// What waits in a socket of systemd's is for the successor.
    inherited: bool,
}

impl Drop for Acceptors {
    fn drop(&mut self) {
        self.shown.iter().for_each(|listener| self.process.remove_listener(listener));
    }
}

impl Acceptors {
    fn start(listeners: Vec<Listener>, process: &Arc<Process>) -> Result<Self, Error> {
        let is_inherited = |l: &Listener| matches!(l, Listener::InheritedTcp(_) | Listener::Unix(_, None));
        let inherited = listeners.iter().any(is_inherited);
        let shown = listeners.iter().map(|l| match l.address() {
            Some(Address::Tcp(address)) => process.add_listener(address.to_string(), "tcp"),
            Some(Address::Unix(path)) => process.add_listener(path.display().to_string(), "unix"),
            None => process.add_listener("inherited", "unix"),
        });
        let shown = shown.collect();
        let fail = |source| Error::Runtime { what: "a listener", source };
        let listening = listeners.into_iter().map(|listener| {
            Ok(match listener {
                Listener::Tcp(l) | Listener::InheritedTcp(l) => {
                    Listening::Tcp(TcpListener::from_std(l).map_err(fail)?)
                }
                Listener::Unix(l, guard) => {
                    Listening::Unix { listener: UnixListener::from_std(l).map_err(fail)?, _guard: guard }
                }
            })
        });
        let listening = Arc::new(listening.collect::<Result<_, Error>>()?);
        Ok(Self { listening, shown, process: process.clone(), turn: 0, inherited })
    }

    /// The next connection of any socket. The first looked at changes, so that a busy one does not starve the others.
    async fn next(&mut self) -> io::Result<Accepted> {
        self.turn = self.turn.wrapping_add(1);
        let (count, turn) = (self.listening.len(), self.turn);
        let order = (0..count).map(|i| (turn + i) % count);
        let mut waiting: Vec<_> =
            order.map(|i| (Box::pin(self.listening[i].accept()), &self.shown[i])).collect();
        std::future::poll_fn(|cx| {
            for (accept, shown) in &mut waiting {
                if let std::task::Poll::Ready(accepted) = accept.as_mut().poll(cx) {
                    shown.count_accepted();
                    return std::task::Poll::Ready(accepted);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// What a service manager is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    Ready,
    Reloading,
    Stopping,
}

/// Tells systemd; without it this does nothing.
pub(crate) fn notify_systemd(notice: Notice) {
    use sd_notify::NotifyState;
    let sent = match notice {
        Notice::Ready => sd_notify::notify(&[NotifyState::Ready]),
        Notice::Reloading => match NotifyState::monotonic_usec_now() {
            Ok(now) => sd_notify::notify(&[NotifyState::Reloading, now]),
            Err(_) => sd_notify::notify(&[NotifyState::Reloading]),
        },
        Notice::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
    };
    if let Err(error) = sent {
        tracing::warn!(%error, "service manager not notified");
    }
}

/// Turns SIGHUP, SIGTERM and SIGINT into orders.
pub(crate) fn watch_signals(orders: mpsc::UnboundedSender<Control>) -> Result<(), Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let fail = |source| Error::Runtime { what: "signal handling", source };
    let mut hangup = signal(SignalKind::hangup()).map_err(fail)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    tokio::spawn(async move {
        loop {
            let order = tokio::select! {
                _ = hangup.recv() => Control::Reload,
                _ = terminate.recv() => Control::Drain,
                _ = interrupt.recv() => Control::Stop,
            };
            if orders.send(order).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Something that serves on its own thread, for tests and `run`.
pub struct Running {
    addresses: Vec<Address>,
    registry: Arc<Registry>,
    orders: mpsc::UnboundedSender<Control>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Running {
    pub(crate) fn spawn<S: Service, L: FnMut() -> Result<S, Error> + Send + 'static>(
        engine: Engine<S, L>,
        listeners: Vec<Listener>,
        orders: mpsc::UnboundedSender<Control>,
        received: mpsc::UnboundedReceiver<Control>,
    ) -> Result<Self, Error> {
        let fail = |source| Error::Runtime { what: "the acceptor thread", source };
        let addresses = listeners.iter().filter_map(Listener::address).collect();
        let registry = engine.registry.clone();
        let runtime = current_thread().map_err(fail)?;
        let thread = std::thread::Builder::new()
            .name("acceptor".into())
            .spawn(move || runtime.block_on(engine.run(listeners, received, |_| ())))
            .map_err(fail)?;
        Ok(Self { addresses, registry, orders, thread: Some(thread) })
    }

    /// Where it listens, ports chosen by the kernel filled in.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Sessions and counters.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Gives an order and does not wait.
    pub fn order(&self, order: Control) {
        // A thread that has ended needs no orders.
        let _ = self.orders.send(order);
    }

    /// Gives an order that ends it, and waits for the end.
    pub fn end(mut self, order: Control) -> Result<(), Error> {
        self.order(order);
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.order(Control::Stop);
            // Errors of a dropped handle have nobody to go to.
            let _ = self.join();
        }
    }
}
