//! Where libpq would connect, in the order in which it was told.
//!
//! `load_balance_hosts` and `target_session_attrs` stay the client's business: it gets one stand-in per target,
//! in the same order, and chooses among those.

use crate::passfile;
use crate::{Error, Parameters, Surroundings, parameters};
use std::path::{Path, PathBuf};

/// One host of a connection. Empty strings have become `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What certificates and password files are checked against.
    pub host: Option<String>,
    /// Numeric address that spares the name lookup.
    pub hostaddr: Option<String>,
    /// 1 to 65535.
    pub port: u16,
    /// Where to look for a socket when neither is given.
    pub default_socket_dir: &'static str,
}

/// What to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A name or address, still to be resolved.
    Tcp {
        /// Without brackets.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
    /// A socket file.
    Unix(PathBuf),
    /// A name in Linux's abstract namespace, without its leading NUL.
    Abstract(String),
}

/// How the TCP connection is watched; what is `None` is left to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keepalive {
    /// Whether probes are sent.
    pub enabled: bool,
    /// Idle time before the first probe.
    pub idle_seconds: Option<u32>,
    /// Time between probes.
    pub interval_seconds: Option<u32>,
    /// Lost probes that end the connection.
    pub count: Option<u32>,
    /// How long sent data may stay unacknowledged.
    pub user_timeout_ms: Option<u32>,
}

/// The port a client uses when nobody says otherwise.
pub const DEFAULT_PORT: u16 = 5432;

/// Splits hosts, addresses and ports into targets.
pub fn targets(parameters: &Parameters, around: &Surroundings<'_>) -> Result<Vec<Target>, Error> {
    let list = |keyword| parameters.text(keyword).map(|text| text.map(split));
    let addresses = list("hostaddr")?;
    let hosts = list("host")?;
    let count = addresses.as_ref().or(hosts.as_ref()).map_or(1, Vec::len);
    if let (Some(hosts), Some(addresses)) = (&hosts, &addresses)
        && hosts.len() != addresses.len()
    {
        return Err(Error::HostCount { hosts: hosts.len(), addresses: addresses.len() });
    }
    let ports = list("port")?.unwrap_or_else(|| vec![None]);
    if ports.len() != 1 && ports.len() != count {
        return Err(Error::PortCount { ports: ports.len(), hosts: count });
    }
    let at = |list: &Option<Vec<Option<String>>>, index: usize| {
        list.as_ref().and_then(|list| list.get(index).cloned().flatten())
    };
    let default_socket_dir = around.default_socket_dir();
    let target = |index: usize| {
        let given = if ports.len() == 1 { &ports[0] } else { &ports[index] };
        let port = given.as_deref().map_or(Ok(DEFAULT_PORT), port)?;
        Ok(Target { host: at(&hosts, index), hostaddr: at(&addresses, index), port, default_socket_dir })
    };
    (0..count).map(target).collect()
}

/// Reads the keepalive parameters.
pub fn keepalive(parameters: &Parameters) -> Result<Keepalive, Error> {
    // Negative means 0 in libpq, and 0 means the system's default.
    let positive = |keyword| {
        let value = parameters.integer(keyword)?;
        Ok(value.and_then(|value| u32::try_from(value).ok()).filter(|&value| value > 0))
    };
    Ok(Keepalive {
        enabled: parameters.integer("keepalives")?.is_none_or(|value| value != 0),
        idle_seconds: positive("keepalives_idle")?,
        interval_seconds: positive("keepalives_interval")?,
        count: positive("keepalives_count")?,
        user_timeout_ms: positive("tcp_user_timeout")?,
    })
}

impl Target {
    /// What to connect to: `hostaddr` if given, else `host`, else the default socket.
    pub fn endpoint(&self) -> Endpoint {
        let Some(host) = self.hostaddr.as_ref().or(self.host.as_ref()) else {
            return Endpoint::Unix(socket_path(Path::new(self.default_socket_dir), self.port));
        };
        match host.as_bytes()[0] {
            b'/' if self.hostaddr.is_none() => Endpoint::Unix(socket_path(Path::new(host), self.port)),
            b'@' if self.hostaddr.is_none() => {
                Endpoint::Abstract(format!("{}/{}", &host[1..], socket_name(self.port)))
            }
            _ => Endpoint::Tcp { host: host.clone(), port: self.port },
        }
    }

    /// The host that a password file is searched for.
    pub fn passfile_host(&self) -> String {
        passfile::lookup_host(self.host.as_deref(), self.hostaddr.as_deref(), self.default_socket_dir)
    }

    /// The name a certificate must bear for verify-full. Without `host` there is none, and libpq refuses.
    pub fn certificate_host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The name to send as TLS server name: never an address.
    pub fn server_name(&self) -> Option<&str> {
        let numeric =
            |host: &str| host.contains(':') || host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        self.host.as_deref().filter(|host| !numeric(host))
    }
}

/// The socket of a server on that port.
pub fn socket_path(dir: &Path, port: u16) -> PathBuf {
    dir.join(socket_name(port))
}

fn socket_name(port: u16) -> String {
    format!(".s.PGSQL.{port}")
}

fn split(list: &str) -> Vec<Option<String>> {
    list.split(',').map(|item| Some(item.to_owned()).filter(|item| !item.is_empty())).collect()
}

fn port(text: &str) -> Result<u16, Error> {
    let number = parameters::integer("port", text)?;
    let port = u16::try_from(number).ok().filter(|&port| port > 0);
    port.ok_or_else(|| Error::PortNumber { value: text.to_owned() })
}
