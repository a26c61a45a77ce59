//! Sockets: name lookup, connecting within a time, keepalive.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use super::Place;
use crate::Error;
use crate::target::{Endpoint, Keepalive, Target};

/// Most addresses of one name that are tried.
pub const ADDRESS_COUNT_MAX: usize = 32;
/// Idle time before the first keepalive probe when the parameters do not say.
const KEEPALIVE_IDLE_DEFAULT: Duration = Duration::from_secs(60);
/// Time between keepalive probes when the parameters do not say.
const KEEPALIVE_INTERVAL_DEFAULT: Duration = Duration::from_secs(10);
/// Lost keepalive probes that end a connection when the parameters do not say.
const KEEPALIVE_COUNT_DEFAULT: u32 = 6;
/// How long sent data may stay unacknowledged when the parameters do not say.
const USER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

/// One address to connect to.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) place: Place,
    socket: SockAddr,
}

/// All addresses of a target, in the resolver's order.
pub(super) fn addresses(target: &Target) -> Result<Vec<Address>, Error> {
    let port = target.port;
    let unix = |shown: String, path: PathBuf| {
        let place = Place { host: shown, port, address: None };
        let lost = |error: io::Error| unreachable(&place, &error);
        Ok(vec![Address { socket: SockAddr::unix(path).map_err(lost)?, place: place.clone() }])
    };
    match target.endpoint() {
        Endpoint::Unix(path) => unix(path.display().to_string(), path),
        Endpoint::Abstract(name) => {
            let path = [&[0], name.as_bytes()].concat();
            unix(format!("@{name}"), PathBuf::from(std::ffi::OsString::from_vec(path)))
        }
        Endpoint::Tcp { host, port } => {
            let shown = target.host.clone().unwrap_or_else(|| host.clone());
            let wrong = |reason: String| Error::Resolve { host: host.clone(), reason };
            let found: Vec<SocketAddr> = match &target.hostaddr {
                Some(address) => {
                    let parsed: Result<IpAddr, _> = address.parse();
                    vec![SocketAddr::new(parsed.map_err(|error| wrong(error.to_string()))?, port)]
                }
                None => {
                    let found = (host.as_str(), port).to_socket_addrs();
                    found.map_err(|error| wrong(error.to_string()))?.take(ADDRESS_COUNT_MAX).collect()
                }
            };
            if found.is_empty() {
                return Err(wrong("the name has no address".to_owned()));
            }
            let place =
                |address: SocketAddr| Place { host: shown.clone(), port, address: Some(address.ip()) };
            Ok(found.into_iter().map(|at| Address { place: place(at), socket: at.into() }).collect())
        }
    }
}

impl Address {
    /// Connects, at the latest by the deadline.
    pub(super) fn connect(&self, keepalive: &Keepalive, deadline: Instant) -> Result<Socket, Error> {
        self.try_connect(keepalive, deadline).map_err(|error| unreachable(&self.place, &error))
    }

    fn try_connect(&self, keepalive: &Keepalive, deadline: Instant) -> io::Result<Socket> {
        let unix = self.place.is_unix();
        let domain = if unix { Domain::UNIX } else { self.socket.domain() };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        if unix {
            // Blocks only while the server's queue is full, and no longer than sending may.
            socket.set_write_timeout(Some(left))?;
            socket.connect(&self.socket)?;
            return Ok(socket);
        }
        socket.set_tcp_nodelay(true)?;
        if keepalive.enabled {
            let seconds = |value: Option<u32>, default| {
                value.map_or(default, |seconds| Duration::from_secs(seconds.into()))
            };
            let probes = TcpKeepalive::new()
                .with_time(seconds(keepalive.idle_seconds, KEEPALIVE_IDLE_DEFAULT))
                .with_interval(seconds(keepalive.interval_seconds, KEEPALIVE_INTERVAL_DEFAULT))
                .with_retries(keepalive.count.unwrap_or(KEEPALIVE_COUNT_DEFAULT));
            socket.set_tcp_keepalive(&probes)?;
        }
        let unacknowledged = keepalive.user_timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        socket.set_tcp_user_timeout(Some(unacknowledged.unwrap_or(USER_TIMEOUT_DEFAULT)))?;
        socket.connect_timeout(&self.socket, left)?;
        Ok(socket)
    }
}

fn unreachable(place: &Place, error: &io::Error) -> Error {
    Error::Unreachable { place: place.clone(), kind: error.kind(), reason: error.to_string() }
}
