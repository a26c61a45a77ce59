//! Listening sockets: TCP, Unix sockets named as PostgreSQL names them, and those handed over by systemd.
//!
//! A Unix socket is guarded by `<socket>.lock`, flocked while it is served and holding the process id as
//! PostgreSQL's own lock file does, so that neither takes the other's place. A dead process's leftovers are replaced.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use rustix::fs::{FlockOperation, flock};
use socket2::{Domain, Protocol, Type};

use crate::config::{UnixSocketConfig, split_host_port, unix_mode};
use crate::error::Error;

/// The word for the sockets of socket activation.
pub(crate) const SYSTEMD: &str = "systemd";
/// The host that stands for all addresses of the machine.
pub(crate) const ANY: &str = "*";

/// A bound socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, Option<SocketGuard>),
    /// Handed over by systemd, which keeps it open for the successor.
    InheritedTcp(TcpListener),
}

impl Listener {
    /// What reaches it: systemd's `[::]` takes IPv4 as well unless told otherwise.
    pub(crate) fn reached_by(&self) -> Vec<Address> {
        let mut addresses: Vec<Address> = self.address().into_iter().collect();
        if let (Listener::InheritedTcp(listener), Some(Address::Tcp(address))) = (self, addresses.first()) {
            let both = address.ip() == Ipv6Addr::UNSPECIFIED
                && !socket2::SockRef::from(listener).only_v6().unwrap_or(true);
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            addresses.extend(both.then_some(Address::Tcp(v4)));
        }
        addresses
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Option<Address> {
        match self {
            Listener::Tcp(listener) | Listener::InheritedTcp(listener) => {
                listener.local_addr().ok().map(Address::Tcp)
            }
            Listener::Unix(_, Some(guard)) => Some(Address::Unix(guard.socket.clone())),
            Listener::Unix(listener, None) => {
                let address = listener.local_addr().ok()?;
                address.as_pathname().map(|p| Address::Unix(p.into()))
            }
        }
    }
}

/// Where a process listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Binds everything that is configured.
pub(crate) fn bind(
    listen: &[String],
    unix: Option<&UnixSocketConfig>,
    backlog: i32,
) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::new();
    for address in listen {
        if address == SYSTEMD {
            listeners.extend(inherited()?);
            continue;
        }
        let fail = |source: io::Error| Error::Listen { address: address.clone(), source };
        let (host, port) = split_host_port(address).map_err(|reason| Error::config("listen", reason))?;
        if host == ANY {
            listeners.extend(bind_any(port, backlog).map_err(fail)?);
            continue;
        }
        for resolved in (host.as_str(), port).to_socket_addrs().map_err(fail)? {
            listeners.push(Listener::Tcp(bind_tcp(resolved, backlog).map_err(fail)?));
        }
    }
    if let Some(unix) = unix {
        let (listener, guard) = bind_unix(unix)?;
        listeners.push(Listener::Unix(listener, Some(guard)));
    }
    Ok(listeners)
}

/// IPv4 and, where the machine has it, IPv6 on the same port.
fn bind_any(port: u16, backlog: i32) -> io::Result<Vec<Listener>> {
    let v4 = bind_tcp((Ipv4Addr::UNSPECIFIED, port).into(), backlog)?;
    let port = v4.local_addr()?.port();
    let v6 = bind_tcp((Ipv6Addr::UNSPECIFIED, port).into(), backlog);
    let mut listeners = vec![Listener::Tcp(v4)];
    match v6 {
        Ok(v6) => listeners.push(Listener::Tcp(v6)),
        Err(error) => tracing::debug!(%error, "not listening on IPv6"),
    }
    Ok(listeners)
}

fn bind_tcp(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // So that 0.0.0.0 and [::] can be listed beside each other.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn inherited() -> Result<Vec<Listener>, Error> {
    let mut handed = ListenFd::from_env();
    let fail = |source: io::Error| Error::Listen { address: SYSTEMD.into(), source };
    let mut listeners = Vec::new();
    for index in 0..handed.len() {
        let listener = match handed.take_tcp_listener(index) {
            Ok(Some(tcp)) => {
                tcp.set_nonblocking(true).map_err(fail)?;
                Listener::InheritedTcp(tcp)
            }
            Ok(None) => continue,
            Err(_) => {
                let Some(unix) = handed.take_unix_listener(index).map_err(fail)? else { continue };
                unix.set_nonblocking(true).map_err(fail)?;
                Listener::Unix(unix, None)
            }
        };
        listeners.push(listener);
    }
    if listeners.is_empty() {
        return Err(Error::config("listen", "systemd is configured, but it passed no socket (LISTEN_FDS)"));
    }
    Ok(listeners)
}

fn bind_unix(config: &UnixSocketConfig) -> Result<(UnixListener, SocketGuard), Error> {
    let path = config.path();
    let fail = |source: io::Error| Error::Listen { address: path.display().to_string(), source };
    // First of all: PostgreSQL itself keeps no flock, and its lock file must not be touched while it lives.
    if UnixStream::connect(&path).is_ok() {
        return Err(Error::SocketInUse { path });
    }
    let guard = SocketGuard::take(&path)?;
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(fail)?;
    fs::set_permissions(&path, Permissions::from_mode(unix_mode(config)?)).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok((listener, guard))
}

/// Holds the lock file; removes it and the socket in the end.
pub(crate) struct SocketGuard {
    socket: PathBuf,
    lock_path: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
}

impl SocketGuard {
    fn take(socket: &Path) -> Result<Self, Error> {
        let lock_path = PathBuf::from(format!("{}.lock", socket.display()));
        let fail = |source: io::Error| Error::Listen { address: lock_path.display().to_string(), source };
        loop {
            let mut lock = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&lock_path)
                .map_err(fail)?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Err(Error::SocketInUse { path: socket.into() });
            }
            // Between opening and locking, the last owner may have removed the file.
            let still_there = match (lock.metadata(), fs::metadata(&lock_path)) {
                (Ok(held), Ok(named)) => (held.ino(), held.dev()) == (named.ino(), named.dev()),
                _ => false,
            };
            if still_there {
                lock.set_len(0).map_err(fail)?;
                writeln!(lock, "{}", std::process::id()).map_err(fail)?;
                return Ok(Self { socket: socket.into(), lock_path, _lock: lock });
            }
        }
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        // Leftovers are replaced by the next owner.
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(&self.lock_path);
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::config::TcpConfig;

    /// Where the queue is full the kernel drops the first packet of a connection, and the client repeats it a
    /// second later. Here nobody accepts, so a client that finds no room never connects.
    #[test]
    fn a_burst_of_connections_finds_room_before_any_is_accepted() {
        const BURST: usize = 3000;
        let kernel = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        if kernel.trim().parse::<usize>().unwrap() < BURST {
            return pgshrink_testkit::skip::left_out(
                "a burst of connections",
                "net.core.somaxconn is too low",
            );
        }
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = bind_tcp(address, TcpConfig::default().backlog).unwrap();
        let address = listener.local_addr().unwrap();
        let waiting: Vec<_> = (0..BURST).map(|_| std::net::TcpStream::connect(address)).collect();
        assert!(waiting.iter().all(Result::is_ok));
    }
}
