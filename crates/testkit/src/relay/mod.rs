//! A relay between two programs that counts, captures, delays, throttles, splits and cuts.
//!
//! It understands nothing of what it carries. Each direction of a connection has a reading and a writing thread
//! with a queue between them, so that a delay does not lower the rate and a slow receiver is felt by the sender.
//!
//! 1. Bytes are counted when the receiving side's kernel has taken them.
//! 2. Without a fault the relay is transparent: half-closes and resets pass through.
//! 3. [`Relay::cut`] returns when nothing of the cut connections moves any more.

mod connection;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::error::{Doing, Error};
use crate::port::Port;
use crate::wait::wait_until;
use connection::Connection;

/// Where something listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// A port of 127.0.0.1.
    pub fn local(port: u16) -> Endpoint {
        Endpoint::Tcp((Ipv4Addr::LOCALHOST, port).into())
    }

    fn domain(&self) -> Domain {
        match self {
            Endpoint::Tcp(address) => Domain::for_address(*address),
            Endpoint::Unix(_) => Domain::UNIX,
        }
    }

    fn address(&self) -> std::io::Result<SockAddr> {
        match self {
            Endpoint::Tcp(address) => Ok((*address).into()),
            Endpoint::Unix(path) => SockAddr::unix(path),
        }
    }
}

/// The way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From whoever connected to the relay.
    ToServer,
    /// From what the relay connects to.
    ToClient,
}

impl Direction {
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

    fn index(self) -> usize {
        self as usize
    }
}

/// What a direction does to the bytes; the default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Every byte arrives this much later.
    pub delay: Duration,
    /// At most so many bytes per second.
    pub bytes_per_second: Option<u64>,
    /// At most so many bytes in one write. The receiver may still find several together.
    pub piece_size_max: Option<usize>,
}

/// How a connection is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The end of this direction, orderly; the other one goes on. What the sender still writes is not read.
    HalfClose(Direction),
    /// The orderly end of both directions. What is still queued is lost.
    Close,
    /// RST on both sides (on a Unix socket: closed).
    Reset,
}

/// What went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes delivered to the server.
    pub to_server: u64,
    /// Bytes delivered to the client.
    pub to_client: u64,
    /// Connections accepted.
    pub connections: u64,
}

/// A piece of a capture: bytes as they were read from the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Which connection, counted from 0.
    pub connection: u64,
    /// Which way.
    pub direction: Direction,
    /// When, since the relay started.
    pub at: Duration,
    /// What.
    pub bytes: Vec<u8>,
}

/// A relay to be.
#[derive(Clone, Debug)]
pub struct RelayBuilder {
    upstream: Endpoint,
    listen: Option<Endpoint>,
    shapes: [Shape; 2],
    capture: bool,
}

impl RelayBuilder {
    /// Listens on a Unix socket instead of a port of 127.0.0.1.
    pub fn listen_unix(mut self, path: &Path) -> Self {
        self.listen = Some(Endpoint::Unix(path.to_owned()));
        self
    }

    /// Listens at this address instead of a port of 127.0.0.1.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(Endpoint::Tcp(address));
        self
    }

    /// Shapes both directions from the start.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shapes = [shape; 2];
        self
    }

    /// Keeps everything that goes through.
    pub fn capture(mut self) -> Self {
        self.capture = true;
        self
    }

    /// Starts it.
    pub fn start(self) -> Result<Relay, Error> {
        let (endpoint, port) = match self.listen {
            Some(endpoint) => (endpoint, None),
            None => {
                let port = Port::reserve()?;
                (Endpoint::local(port.number()), Some(port))
            }
        };
        let listener = Socket::new(endpoint.domain(), Type::STREAM, None)
            .and_then(|socket| {
                socket.set_reuse_address(true)?;
                socket.bind(&endpoint.address()?)?;
                socket.listen(1024)?;
                Ok(socket)
            })
            .doing(|| format!("listening at {endpoint:?}"))?;
        let state = Arc::new(State {
            upstream: self.upstream,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            delivered: [AtomicU64::new(0), AtomicU64::new(0)],
            accepted: AtomicU64::new(0),
            shapes: Mutex::new(self.shapes),
            planned: Mutex::new(None),
            captured: self.capture.then(|| Mutex::new(Vec::new())),
            live: Mutex::new(Vec::new()),
        });
        let accepting = std::thread::spawn({
            let state = Arc::clone(&state);
            move || accept(&listener, &state)
        });
        Ok(Relay { endpoint, state, accepting: Some(accepting), _port: port })
    }
}

/// A running relay; dropping it closes everything.
#[derive(Debug)]
pub struct Relay {
    endpoint: Endpoint,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
    _port: Option<Port>,
}

impl Relay {
    /// Describes a relay to what listens at `upstream`.
    pub fn to(upstream: Endpoint) -> RelayBuilder {
        RelayBuilder { upstream, listen: None, shapes: [Shape::default(); 2], capture: false }
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its TCP port, 0 on a Unix socket.
    pub fn port(&self) -> u16 {
        match &self.endpoint {
            Endpoint::Tcp(address) => address.port(),
            Endpoint::Unix(_) => 0,
        }
    }

    /// What went through so far, over all connections.
    pub fn counts(&self) -> Counts {
        let delivered =
            |direction: Direction| self.state.delivered[direction.index()].load(Ordering::Relaxed);
        Counts {
            to_server: delivered(Direction::ToServer),
            to_client: delivered(Direction::ToClient),
            connections: self.state.accepted.load(Ordering::Relaxed),
        }
    }

    /// How many connections are open.
    pub fn open_count(&self) -> usize {
        self.state.live().len()
    }

    /// What was captured so far, in the order it was read.
    pub fn captured(&self) -> Vec<Captured> {
        self.state.captured.as_ref().map(|kept| held(kept).clone()).unwrap_or_default()
    }

    /// The captured bytes of one direction of one connection.
    pub fn stream(&self, connection: u64, direction: Direction) -> Vec<u8> {
        self.captured()
            .into_iter()
            .filter(|piece| piece.connection == connection && piece.direction == direction)
            .flat_map(|piece| piece.bytes)
            .collect()
    }

    /// Shapes one direction from now on.
    pub fn shape(&self, direction: Direction, shape: Shape) {
        held(&self.state.shapes)[direction.index()] = shape;
    }

    /// Closes new connections at once (`true`), or serves them again.
    pub fn refuse(&self, on: bool) {
        self.state.refusing.store(on, Ordering::Relaxed);
    }

    /// Breaks every open connection now.
    pub fn cut(&self, cut: Cut) -> Result<(), Error> {
        let live = self.state.live().clone();
        live.iter().for_each(|connection| connection.cut(cut));
        if matches!(cut, Cut::HalfClose(_)) {
            return Ok(());
        }
        wait_until(Duration::from_secs(10), "the cut connections to close", || {
            let open = self.state.live();
            live.iter().all(|was| !open.iter().any(|connection| Arc::ptr_eq(was, connection)))
        })
    }

    /// Breaks the first connection that delivers `bytes` in `direction`, right after the last of them. Once.
    pub fn cut_after(&self, direction: Direction, bytes: u64, cut: Cut) {
        *held(&self.state.planned) = Some(Planned { direction, bytes, cut });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::Relaxed);
        let woken = Socket::new(self.endpoint.domain(), Type::STREAM, None)
            .and_then(|socket| socket.connect(&self.endpoint.address()?));
        if let (Ok(()), Some(accepting)) = (woken, self.accepting.take()) {
            let _ = accepting.join();
        }
        let _ = self.cut(Cut::Close);
        if let Endpoint::Unix(path) = &self.endpoint {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    direction: Direction,
    bytes: u64,
    cut: Cut,
}

/// What the relay's threads share.
#[derive(Debug)]
struct State {
    upstream: Endpoint,
    started: Instant,
    stopping: AtomicBool,
    refusing: AtomicBool,
    delivered: [AtomicU64; 2],
    accepted: AtomicU64,
    shapes: Mutex<[Shape; 2]>,
    planned: Mutex<Option<Planned>>,
    captured: Option<Mutex<Vec<Captured>>>,
    live: Mutex<Vec<Arc<Connection>>>,
}

impl State {
    fn live(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        held(&self.live)
    }

    fn shape(&self, direction: Direction) -> Shape {
        held(&self.shapes)[direction.index()]
    }

    /// How many of `length` bytes may go before a planned cut, given what this connection has delivered already.
    fn until_cut(&self, direction: Direction, delivered: u64, length: usize) -> (usize, Option<Cut>) {
        let mut planned = held(&self.planned);
        match *planned {
            Some(plan) if plan.direction == direction && delivered + length as u64 >= plan.bytes => {
                *planned = None;
                (plan.bytes.saturating_sub(delivered) as usize, Some(plan.cut))
            }
            _ => (length, None),
        }
    }
}

fn accept(listener: &Socket, state: &Arc<State>) {
    loop {
        let accepted = listener.accept();
        if state.stopping.load(Ordering::Relaxed) {
            return;
        }
        let Ok((client, _)) = accepted else {
            // Out of descriptors, most likely: do not spin.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if state.refusing.load(Ordering::Relaxed) {
            continue;
        }
        let server = Socket::new(state.upstream.domain(), Type::STREAM, None)
            .and_then(|socket| socket.connect(&state.upstream.address()?).map(|()| socket));
        // No upstream: the client sees its connection closed, as it would see a dead server's.
        let Ok(server) = server else { continue };
        let number = state.accepted.fetch_add(1, Ordering::Relaxed);
        Connection::start(number, client, server, state);
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
