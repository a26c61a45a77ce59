//! A connected socket, plain or inside TLS, whose reads and writes end within a time.
//!
//! Times are the socket's own (`SO_RCVTIMEO`, `SO_SNDTIMEO`), so a call that timed out loses nothing: the next one goes
//! on where it stopped, in the middle of a TLS record as well.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::Socket;

/// What is read from the socket at once for TLS: rustls asks for 4 KiB at a time.
const CIPHERTEXT_SIZE: usize = 128 << 10;
/// Bytes that are awaited together, at least.
const REST_SIZE_MIN: usize = 16 << 10;
/// A timeout of the socket below this would be taken for none.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

pub(super) enum Transport {
    Plain(Wire),
    Tls(Box<StreamOwned<ClientConnection, Wire>>),
}

impl Transport {
    pub(super) fn plain(socket: Socket) -> Self {
        Transport::Plain(Wire::new(socket))
    }

    /// Performs a TLS handshake, at the latest by the deadline.
    pub(super) fn secure(
        socket: Socket,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        deadline: Instant,
    ) -> io::Result<Self> {
        let mut wire = Wire::new(socket);
        let mut client = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while client.is_handshaking() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            wire.limit(left)?;
            while client.wants_write() {
                client.write_tls(&mut wire)?;
            }
            if client.is_handshaking() && client.wants_read() {
                if client.read_tls(&mut wire)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                if let Err(error) = client.process_new_packets() {
                    // The alert tells the server why; nothing depends on its arrival.
                    let _ = client.write_tls(&mut wire);
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
        while client.wants_write() {
            client.write_tls(&mut wire)?;
        }
        Ok(Transport::Tls(Box::new(StreamOwned::new(client, wire))))
    }

    /// The TLS session.
    pub(super) fn tls(&self) -> Option<&ClientConnection> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => Some(&stream.conn),
        }
    }

    /// Sets how long a read or write may wait; `None` waits for ever.
    pub(super) fn set_wait(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let wire = self.wire();
        match wait {
            Some(wait) => wire.limit(wait),
            None => wire.unlimit(),
        }
    }

    /// Receives what is there. A wait that ended is [`ErrorKind::TimedOut`], the end of the stream is 0.
    ///
    /// `rest`: bytes that will certainly come. If they are many, they are awaited in one call: a server sends 8 KiB at a time,
    /// and a call for each of them takes more processor time than the bytes themselves. Fewer come if the wait or the
    /// stream ends.
    pub(super) fn receive(&mut self, room: &mut [u8], rest: usize) -> io::Result<usize> {
        let received = match self {
            Transport::Plain(wire) if rest >= REST_SIZE_MIN && rest <= room.len() => uninterrupted(|| {
                let (_, count) = recv(&wire.socket, &mut room[..rest], RecvFlags::WAITALL)?;
                Ok(count)
            }),
            Transport::Plain(wire) => uninterrupted(|| wire.socket.read(room)),
            Transport::Tls(stream) => stream.read(room),
        };
        match received {
            // A server that dies does not say goodbye in TLS.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            other => other.map_err(timed_out),
        }
    }

    /// Sends everything.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = match self {
            Transport::Plain(wire) => wire.socket.write_all(bytes),
            Transport::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        };
        sent.map_err(timed_out)
    }

    pub(super) fn socket(&self) -> &Socket {
        match self {
            Transport::Plain(wire) => &wire.socket,
            Transport::Tls(stream) => &stream.sock.socket,
        }
    }

    fn wire(&mut self) -> &mut Wire {
        match self {
            Transport::Plain(wire) => wire,
            Transport::Tls(stream) => &mut stream.sock,
        }
    }
}

/// Linux reports a socket's own timeout as `EAGAIN`. The result has no error number; that of a connection whose peer
/// does not acknowledge has one.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

/// Signals interrupt calls on a socket with timeouts, whatever their handlers were installed with.
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A socket with a buffer in front of it, which TLS reads from.
pub(super) struct Wire {
    socket: Socket,
    /// What the socket's timeouts are, once they were set here.
    wait: Option<Option<Duration>>,
    ciphertext: Vec<u8>,
    start: usize,
    end: usize,
}

impl Wire {
    fn new(socket: Socket) -> Self {
        Self { socket, wait: None, ciphertext: Vec::new(), start: 0, end: 0 }
    }

    fn limit(&mut self, wait: Duration) -> io::Result<()> {
        self.set(Some(wait.max(TIMEOUT_MIN)))
    }

    fn unlimit(&mut self) -> io::Result<()> {
        self.set(None)
    }

    fn set(&mut self, wait: Option<Duration>) -> io::Result<()> {
        if self.wait != Some(wait) {
            self.socket.set_read_timeout(wait)?;
            self.socket.set_write_timeout(wait)?;
            self.wait = Some(wait);
        }
        Ok(())
    }
}

impl Read for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            if room.len() >= CIPHERTEXT_SIZE {
                return uninterrupted(|| self.socket.read(room));
            }
            self.ciphertext.resize(CIPHERTEXT_SIZE, 0);
            (self.start, self.end) = (0, uninterrupted(|| self.socket.read(&mut self.ciphertext))?);
        }
        let count = room.len().min(self.end - self.start);
        room[..count].copy_from_slice(&self.ciphertext[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| self.socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
