//! Stopping what a session does, from another thread.

use std::io;
use std::net::Shutdown;
use std::time::Instant;

use socket2::Socket;

use super::route::{Route, Way};
use super::{BackendKey, Connection, Phase, Place};
use crate::Error;
use crate::protocol::frontend;

/// Asks the server to cancel what a session runs.
#[derive(Clone)]
pub struct CancelHandle {
    route: Route,
    way: Way,
    key: BackendKey,
}

/// Closes a session's socket. Whoever waits for the server in another thread gets an error at once.
#[derive(Debug)]
pub struct Closer {
    socket: Socket,
}

impl Connection {
    /// For canceling what this session runs; `None` when the server gave no key for it.
    pub fn cancel_handle(&self) -> Option<CancelHandle> {
        let way = if self.is_encrypted() { Way::Tls } else { Way::Plain };
        Some(CancelHandle { route: self.route.clone(), way, key: self.key.clone()? })
    }

    /// For closing this session's socket.
    ///
    /// # Errors
    /// [`Error::Lost`] when the process has no file descriptor left.
    pub fn closer(&self) -> Result<Closer, Error> {
        let cloned = self.transport.socket().try_clone();
        let socket = cloned.map_err(|error| lost(self.place(), self.phase, &error))?;
        Ok(Closer { socket })
    }
}

impl CancelHandle {
    /// Sends the request, over TLS if the session uses it, and waits until the server has taken it. Whether there was
    /// anything to cancel is seen in the session.
    ///
    /// # Errors
    /// Those of connecting, [`Error::Lost`] and [`Error::TimedOut`].
    pub fn cancel(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.route.limit;
        let mut transport = self.route.open(self.way, deadline)?;
        let mut request = Vec::new();
        frontend::cancel(&mut request, self.key.process, &self.key.secret);
        let left = deadline.saturating_duration_since(Instant::now());
        let mut answer = [0; 64];
        let done = transport
            .set_wait(Some(left))
            .and_then(|()| transport.send(&request))
            // The server answers by closing the connection.
            .and_then(|()| transport.receive(&mut answer, 0));
        match done {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Error::TimedOut {
                place: self.route.place().clone(),
                phase: Phase::Cancel,
                after: self.route.limit,
            }),
            Err(error) => Err(lost(self.route.place(), Phase::Cancel, &error)),
        }
    }
}

impl std::fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("CancelHandle");
        shown.field("place", self.route.place()).field("process", &self.key.process).finish_non_exhaustive()
    }
}

impl Closer {
    /// Closes the socket in both directions.
    pub fn close(&self) {
        // A socket that is closed already is what was asked for.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

fn lost(place: &Place, phase: Phase, error: &io::Error) -> Error {
    Error::Lost { place: place.clone(), phase, kind: error.kind(), reason: error.to_string() }
}
