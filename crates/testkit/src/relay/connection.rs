//! One relayed connection: four threads, two queues, two sockets.
//!
//! A socket is closed when the last thread using it has ended, so a reset (linger 0) takes effect only after all
//! four have noticed [`Connection::broken`]. Readers are woken by shutting their side down; writers and sleepers
//! look every [`NOTICE`].

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::{Captured, Cut, Direction, State, held};

const READ_SIZE: usize = 64 * 1024;
/// What one direction holds between its reader and its writer: the buffer of a network device, and with a delay
/// the bytes in flight.
const QUEUED_SIZE_MAX: usize = 1 << 20;
const QUEUED_COUNT_MAX: usize = 1 << 16;
const NOTICE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Connection {
    number: u64,
    client: Socket,
    server: Socket,
    delivered: [AtomicU64; 2],
    queued: [AtomicUsize; 2],
    ended: [AtomicBool; 2],
    broken: AtomicBool,
    threads: AtomicUsize,
}

/// What the reader hands to the writer.
enum Piece {
    Bytes(Instant, Vec<u8>),
    Reset,
}

impl Connection {
    pub(super) fn start(number: u64, client: Socket, server: Socket, state: &Arc<State>) {
        for socket in [&client, &server] {
            // Neither matters on a Unix socket, where the first fails.
            let _ = socket.set_tcp_nodelay(true);
            let _ = socket.set_write_timeout(Some(NOTICE));
        }
        let connection = Arc::new(Connection {
            number,
            client,
            server,
            delivered: [AtomicU64::new(0), AtomicU64::new(0)],
            queued: [AtomicUsize::new(0), AtomicUsize::new(0)],
            ended: [AtomicBool::new(false), AtomicBool::new(false)],
            broken: AtomicBool::new(false),
            threads: AtomicUsize::new(4),
        });
        state.live().push(Arc::clone(&connection));
        for direction in Direction::BOTH {
            let (sender, receiver) = sync_channel(QUEUED_COUNT_MAX);
            Self::spawn(&connection, state, move |connection, state| {
                connection.read(direction, state, &sender)
            });
            Self::spawn(&connection, state, move |connection, state| {
                connection.write(direction, state, &receiver)
            });
        }
    }

    pub(super) fn cut(&self, cut: Cut) {
        if let Cut::HalfClose(direction) = cut {
            let (from, to) = self.ends(direction);
            self.ended[direction.index()].store(true, Ordering::Relaxed);
            let _ = to.shutdown(Shutdown::Write);
            let _ = from.shutdown(Shutdown::Read);
            return;
        }
        self.broken.store(true, Ordering::Relaxed);
        for socket in [&self.client, &self.server] {
            if cut == Cut::Reset {
                let _ = socket.set_linger(Some(Duration::ZERO));
                let _ = socket.shutdown(Shutdown::Read);
            } else {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    fn spawn(
        connection: &Arc<Connection>,
        state: &Arc<State>,
        body: impl FnOnce(&Connection, &State) + Send + 'static,
    ) {
        let (connection, state) = (Arc::clone(connection), Arc::clone(state));
        std::thread::spawn(move || {
            body(&connection, &state);
            if connection.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
                state.live().retain(|live| !Arc::ptr_eq(live, &connection));
            }
        });
    }

    fn ends(&self, direction: Direction) -> (&Socket, &Socket) {
        match direction {
            Direction::ToServer => (&self.client, &self.server),
            Direction::ToClient => (&self.server, &self.client),
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// True when nothing more may be delivered in this direction.
    fn is_over(&self, direction: Direction) -> bool {
        self.is_broken() || self.ended[direction.index()].load(Ordering::Relaxed)
    }

    fn read(&self, direction: Direction, state: &State, queue: &SyncSender<Piece>) {
        let (mut from, _) = self.ends(direction);
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let length = match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) if self.is_broken() => return,
                Err(_) => return drop(queue.send(Piece::Reset)),
            };
            let queued = &self.queued[direction.index()];
            while queued.load(Ordering::Relaxed) > QUEUED_SIZE_MAX && !self.is_over(direction) {
                std::thread::sleep(NOTICE / 10);
            }
            if self.is_over(direction) {
                return;
            }
            queued.fetch_add(length, Ordering::Relaxed);
            let bytes = buffer[..length].to_vec();
            if let Some(captured) = &state.captured {
                let (connection, at) = (self.number, state.started.elapsed());
                held(captured).push(Captured { connection, direction, at, bytes: bytes.clone() });
            }
            let due = Instant::now() + state.shape(direction).delay;
            if queue.send(Piece::Bytes(due, bytes)).is_err() {
                return;
            }
        }
    }

    fn write(&self, direction: Direction, state: &State, queue: &Receiver<Piece>) {
        let (_, to) = self.ends(direction);
        // The rate counts from here: a sender that paused may not catch up afterwards.
        let mut line_free_at = Instant::now();
        while let Ok(piece) = queue.recv() {
            let Piece::Bytes(due, bytes) = piece else { return self.cut(Cut::Reset) };
            if !self.sleep_until(due, direction) {
                return;
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let shape = state.shape(direction);
                let size_max = shape.piece_size_max.unwrap_or(usize::MAX).max(1);
                // Without small steps a throttled line would deliver 64 KiB at once and then pause.
                let step_max = shape.bytes_per_second.map_or(usize::MAX, |rate| (rate / 100).max(1) as usize);
                let wanted = rest.len().min(size_max).min(step_max);
                let delivered = self.delivered[direction.index()].load(Ordering::Relaxed);
                let (length, cut) = state.until_cut(direction, delivered, wanted);
                let (now, later) = rest.split_at(length);
                if let Some(rate) = shape.bytes_per_second {
                    let takes = Duration::from_secs_f64(length as f64 / rate.max(1) as f64);
                    line_free_at = line_free_at.max(Instant::now()) + takes;
                    if !self.sleep_until(line_free_at, direction) {
                        return;
                    }
                }
                if !self.write_all(to, now, direction) {
                    // The receiver is gone: the sender has to learn it.
                    if !self.is_over(direction) {
                        self.cut(Cut::Reset);
                    }
                    return;
                }
                self.delivered[direction.index()].fetch_add(length as u64, Ordering::Relaxed);
                state.delivered[direction.index()].fetch_add(length as u64, Ordering::Relaxed);
                if let Some(cut) = cut {
                    return self.cut(cut);
                }
                rest = later;
            }
            self.queued[direction.index()].fetch_sub(bytes.len(), Ordering::Relaxed);
        }
        if !self.is_over(direction) {
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    /// False when the direction ended meanwhile or the receiver is gone.
    fn write_all(&self, mut to: &Socket, mut bytes: &[u8], direction: Direction) -> bool {
        while !bytes.is_empty() {
            match to.write(bytes) {
                Ok(0) => return false,
                Ok(length) => bytes = &bytes[length..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if self.is_over(direction) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// False when the direction ended meanwhile.
    fn sleep_until(&self, due: Instant, direction: Direction) -> bool {
        loop {
            if self.is_over(direction) {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(NOTICE));
        }
    }
}
