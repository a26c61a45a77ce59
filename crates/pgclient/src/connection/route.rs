//! The way to one server: address, TLS material, times. A cancel request takes it again.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::Socket;

use super::socket::Address;
use super::transport::Transport;
use super::{Phase, Place};
use crate::Error;
use crate::protocol::frontend::SSL_REQUEST;
use crate::target::Keepalive;
use crate::tls::ALPN;

#[derive(Clone)]
pub(super) struct Route {
    pub(super) address: Address,
    pub(super) keepalive: Keepalive,
    /// `None` on Unix sockets and where TLS is never used.
    pub(super) tls: Option<TlsRoute>,
    /// For one attempt.
    pub(super) limit: Duration,
}

#[derive(Clone)]
pub(super) struct TlsRoute {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
    /// TLS from the first byte.
    pub(super) direct: bool,
}

/// One way of opening a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Plain,
    /// TLS where the server has it.
    TlsIfOffered,
    Tls,
}

impl Route {
    pub(super) fn place(&self) -> &Place {
        &self.address.place
    }

    /// Connects and agrees on TLS.
    pub(super) fn open(&self, way: Way, deadline: Instant) -> Result<Transport, Error> {
        let socket = self.address.connect(&self.keepalive, deadline)?;
        match (&self.tls, way) {
            (None, _) | (_, Way::Plain) => Ok(Transport::plain(socket)),
            (Some(tls), _) => self.secure(socket, tls, way, deadline),
        }
    }

    fn secure(
        &self,
        socket: Socket,
        tls: &TlsRoute,
        way: Way,
        deadline: Instant,
    ) -> Result<Transport, Error> {
        let insecure = |reason: String| Error::Insecure { place: self.place().clone(), reason };
        if !tls.direct {
            let answer = ask(&socket, deadline).map_err(|error| self.broken(&error))?;
            match answer {
                b'S' => {}
                b'N' if way == Way::TlsIfOffered => return Ok(Transport::plain(socket)),
                b'N' => return Err(insecure("server does not support SSL, but SSL was required".to_owned())),
                b'E' => return Err(insecure("server refused the SSL request".to_owned())),
                other => {
                    return Err(insecure(format!(
                        "received 0x{other:02x} as answer to the SSL request: it is not a PostgreSQL server"
                    )));
                }
            }
        }
        let secured = Transport::secure(socket, tls.config.clone(), tls.name.clone(), deadline);
        let transport = secured.map_err(|error| match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => self.timed_out(),
            _ => insecure(format!("SSL error: {error}")),
        })?;
        let agreed = transport.tls().and_then(|session| session.alpn_protocol());
        if tls.direct && agreed != Some(ALPN) {
            return Err(insecure(
                "direct SSL connection was established without ALPN protocol negotiation extension"
                    .to_owned(),
            ));
        }
        Ok(transport)
    }

    fn broken(&self, error: &io::Error) -> Error {
        let (place, phase) = (self.place().clone(), Phase::Tls);
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => self.timed_out(),
            ErrorKind::UnexpectedEof => Error::Closed { place, phase },
            kind => Error::Lost { place, phase, kind, reason: error.to_string() },
        }
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut { place: self.place().clone(), phase: Phase::Tls, after: self.limit }
    }
}

/// Asks for TLS. Exactly one byte is read: what an attacker put behind it must reach the TLS library, which refuses it.
fn ask(mut socket: &Socket, deadline: Instant) -> io::Result<u8> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
    socket.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
    socket.write_all(&SSL_REQUEST)?;
    let mut answer = [0];
    socket.read_exact(&mut answer)?;
    Ok(answer[0])
}
