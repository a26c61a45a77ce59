//! A cluster, a gateway before it, a connector before that, and raw protocol clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pgshrink_gateway::config::{ServerConfig, TargetConfig, UnixSocketConfig};
use pgshrink_gateway::registry::Events;
use pgshrink_gateway::{Address, ConnectorConfig, GatewayConfig, Running, start_connector, start_gateway};
use pgshrink_testkit::{Auth, Cluster, Psql};
use socket2::{Domain, Socket, Type};

pub fn cluster(auth: Auth) -> Cluster {
    Cluster::builder().auth(auth).start().unwrap()
}

pub fn server(target: TargetConfig) -> ServerConfig {
    ServerConfig::new(target)
}

/// A gateway on a free port before the cluster's TCP port.
pub fn gateway_config(cluster: &Cluster) -> GatewayConfig {
    GatewayConfig {
        listen: vec!["127.0.0.1:0".into()],
        servers: vec![server(TargetConfig::new("127.0.0.1", cluster.port()))],
        threads: Some(2),
        ..Default::default()
    }
}

/// A connector on a free port before the gateway.
pub fn connector_config(gateway: &Running, dialect: &str, list: &str) -> ConnectorConfig {
    ConnectorConfig {
        listen: vec!["127.0.0.1:0".into()],
        targets: vec![TargetConfig::new("127.0.0.1", port(gateway))],
        compression: list.into(),
        dialect: dialect.into(),
        threads: Some(2),
        ..Default::default()
    }
}

pub fn gateway(cluster: &Cluster) -> Running {
    start_gateway(gateway_config(cluster)).unwrap()
}

pub fn connector(gateway: &Running, dialect: &str, list: &str) -> Running {
    start_connector(connector_config(gateway, dialect, list)).unwrap()
}

pub fn unix_socket(directory: &Path, port: u16) -> Option<UnixSocketConfig> {
    Some(UnixSocketConfig::new(directory, port))
}

pub fn port(running: &Running) -> u16 {
    running
        .addresses()
        .iter()
        .find_map(|a| match a {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        })
        .unwrap()
}

/// A count of what happened to connections.
pub fn event(running: &Running, which: impl Fn(&Events) -> &AtomicU64) -> u64 {
    which(&running.registry().events).load(Ordering::Relaxed)
}

/// psql as the cluster's superuser by way of `running`.
pub fn psql(cluster: &Cluster, running: &Running) -> Psql {
    cluster.psql().at("127.0.0.1", port(running))
}

/// As many files as this process may have, for tests with hundreds of connections.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// A client that speaks bytes.
pub struct Raw(pub TcpStream);

impl Raw {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// From an address of this machine.
    pub fn connect_from(address: [u8; 4], port: u16) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(stream)
    }

    pub fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
        let mut body = (3u32 << 16).to_be_bytes().to_vec();
        for (name, value) in parameters {
            body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
    }

    /// Logs in without a password and reads up to the first ReadyForQuery.
    pub fn login(port: u16) -> Self {
        let mut raw = Self::connect(port);
        raw.send(&Self::startup(&[("user", "postgres"), ("database", "postgres")]));
        raw.until(b'Z');
        raw
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub fn query(&mut self, sql: &str) {
        self.send(&message(b'Q', &[sql.as_bytes(), b"\0"].concat()));
    }

    /// One message; `None` at the end of the stream.
    pub fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        let mut have = 0;
        while have < 5 {
            match self.0.read(&mut header[have..]).unwrap() {
                0 if have == 0 => return None,
                0 => panic!("the stream ended inside a header"),
                n => have += n,
            }
        }
        let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        self.0.read_exact(&mut body).unwrap();
        Some((header[0], body))
    }

    /// Messages up to and with the first one of this tag.
    pub fn until(&mut self, tag: u8) -> Vec<(u8, Vec<u8>)> {
        let mut messages = Vec::new();
        loop {
            let message = self.message().unwrap_or_else(|| {
                panic!("the stream ended before '{}'; got {}", tag as char, tags(&messages))
            });
            let found = message.0 == tag;
            messages.push(message);
            if found {
                return messages;
            }
        }
    }

    pub fn ends(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// A server that answers each startup packet with these bytes.
pub fn impostor(answer: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&answer);
            // Until the other end has closed.
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    port
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

pub fn tags(messages: &[(u8, Vec<u8>)]) -> String {
    messages.iter().map(|m| m.0 as char).collect()
}

/// A field of an ErrorResponse.
pub fn field(body: &[u8], code: u8) -> String {
    body.split(|b| *b == 0)
        .find_map(|f| f.strip_prefix(&[code]))
        .map(|f| String::from_utf8_lossy(f).into_owned())
        .unwrap_or_default()
}
