//! One byte stream: TCP, Unix socket, or TLS over either.
//!
//! Owns socket options and what a peer is called; does not frame anything. TLS is boxed, so that a plain
//! session's task stays small. The end of a TLS stream without `close_notify` counts as an ordinary end:
//! PostgreSQL's protocol says itself when a session is over.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

use crate::config::{TcpConfig, is_loopback};
use crate::low_water;
use crate::tcp_info::{self, Acknowledgement};

/// A socket without encryption.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

/// What a session reads and writes.
#[derive(Debug)]
pub enum Stream {
    /// Without encryption.
    Plain(Socket),
    /// With it.
    Tls(Box<TlsStream<Socket>>),
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// An address; of a proxied client the one its proxy reported.
    Address(SocketAddr),
    /// A client behind a trusted proxy of which nothing shows that it is on this machine: the proxy reported no client
    /// (then this is the proxy's own address), or a loopback address of another machine. Never local.
    Proxied(SocketAddr),
    /// A process on this machine, running as this user.
    Unix {
        /// Its user id.
        uid: u32,
    },
}

impl Peer {
    /// True for clients on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Peer::Unix { .. } => true,
            Peer::Address(address) => is_loopback(*address),
            Peer::Proxied(_) => false,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) | Peer::Proxied(address) => write!(f, "{address}"),
            Peer::Unix { uid } => write!(f, "unix:uid={uid}"),
        }
    }
}

impl Socket {
    /// Sets what a database connection wants: no delay, keepalive as configured.
    pub(crate) fn tune(&self, tcp: &TcpConfig) -> io::Result<()> {
        let Socket::Tcp(stream) = self else { return Ok(()) };
        stream.set_nodelay(true)?;
        if tcp.keepalive_idle_s > 0 {
            let keepalive = TcpKeepalive::new()
                .with_time(Duration::from_secs(tcp.keepalive_idle_s))
                .with_interval(Duration::from_secs(tcp.keepalive_interval_s.max(1)))
                .with_retries(tcp.keepalive_count.max(1));
            SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
        }
        Ok(())
    }
}

impl Stream {
    /// True when the stream is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// `TLSv1.3 TLS13_AES_256_GCM_SHA384`, for logs; `None` without TLS.
    pub fn tls_text(&self) -> Option<String> {
        let Stream::Tls(tls) = self else { return None };
        let (_, connection) = tls.get_ref();
        let version = connection.protocol_version().and_then(|v| v.as_str().map(str::to_string));
        let suite = connection.negotiated_cipher_suite().and_then(|s| s.suite().as_str().map(str::to_string));
        Some(format!("{} {}", version.unwrap_or_default(), suite.unwrap_or_default()))
    }

    /// The peer's own certificate in DER.
    pub(crate) fn peer_certificate(&self) -> Option<Vec<u8>> {
        let Stream::Tls(tls) = self else { return None };
        let (_, connection) = tls.get_ref();
        connection.peer_certificates().and_then(<[_]>::first).map(|c| c.as_ref().to_vec())
    }

    fn socket(&self) -> &Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Wakes readers only for so many bytes; false where the socket cannot (Unix sockets).
    pub(crate) fn set_low_water(&self, bytes: u32) -> bool {
        match self.socket() {
            Socket::Tcp(stream) => low_water::set(stream, bytes).is_ok(),
            Socket::Unix(_) => false,
        }
    }

    /// Whether a TCP peer still acknowledges; `None` for other sockets.
    pub(crate) fn acknowledgement(&self) -> Option<Acknowledgement> {
        match self.socket() {
            Socket::Tcp(stream) => tcp_info::acknowledgement(stream).ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Makes the coming close a reset, so that the peer sees what happened on the other side.
    pub(crate) fn reset_on_close(&self) {
        if let Socket::Tcp(stream) = self.socket() {
            // Failing only means that the peer sees an ordinary end.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(s) => s.as_fd(),
            Socket::Unix(s) => s.as_fd(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(s) => Pin::new(s).poll_read(cx, buf),
            Socket::Unix(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(s) => Pin::new(s).poll_write(cx, buf),
            Socket::Unix(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Socket::Unix(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_read(cx, buf),
            Stream::Tls(s) => match Pin::new(s.as_mut()).poll_read(cx, buf) {
                Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                other => other,
            },
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_write(cx, buf),
            Stream::Tls(s) => Pin::new(s.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(s) => Pin::new(s.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Stream::Tls(s) => Pin::new(s.as_mut()).poll_shutdown(cx),
        }
    }
}
