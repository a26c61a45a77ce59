//! Connections to servers and gateways, with libpq's meaning of `sslmode`.
//!
//! Owns name lookup, connecting, and TLS up to the point where the startup packet can be sent. Every error is a text
//! that names the place and the reason, ready for an ErrorResponse.

use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use crate::config::{SslMode, SslNegotiation, TargetConfig, TcpConfig};
use crate::stream::{Socket, Stream};
use crate::tls::ALPN;
use crate::tls::client::TargetTls;

/// SSLRequest.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// How sockets to servers are made.
#[derive(Debug, Clone)]
pub(crate) struct TcpOptions {
    pub(crate) tcp: TcpConfig,
    /// One attempt, TLS included.
    pub(crate) connect_limit: Duration,
}

/// Where to connect, with its TLS material loaded.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) config: TargetConfig,
    pub(crate) tls: Option<TargetTls>,
}

/// One way of opening a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Plain,
    /// TLS; false: plain will do when the server has none.
    Tls(bool),
}

/// Why a connection could not be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Nobody answers there; another way would not help.
    Unreachable(String),
    /// TLS failed; plain may do.
    Insecure(String),
}

impl OpenError {
    /// What happened, with the place.
    pub(crate) fn reason(&self) -> &str {
        match self {
            OpenError::Unreachable(reason) | OpenError::Insecure(reason) => reason,
        }
    }
}

impl Target {
    /// The ways to try, best first.
    pub(crate) fn wishes(&self) -> &'static [Wish] {
        if self.tls.is_none() {
            return &[Wish::Plain];
        }
        match self.config.tls.sslmode {
            SslMode::Disable => &[Wish::Plain],
            SslMode::Allow => &[Wish::Plain, Wish::Tls(true)],
            SslMode::Prefer => &[Wish::Tls(false), Wish::Plain],
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Wish::Tls(true)],
        }
    }

    pub(crate) fn describe(&self) -> String {
        self.config.describe()
    }

    /// Opens a connection in any of the allowed ways: for cancel requests, which get no answer to judge by.
    pub(crate) async fn open_any(&self, options: &TcpOptions) -> Result<Stream, String> {
        let mut last = String::new();
        for wish in self.wishes() {
            match self.open(*wish, options, &[]).await {
                Ok(stream) => return Ok(stream),
                Err(OpenError::Unreachable(e)) => return Err(e),
                Err(OpenError::Insecure(e)) => last = e,
            }
        }
        Err(last)
    }

    /// Opens a connection in one way; `greeting` (a PROXY header) goes ahead of everything.
    pub(crate) async fn open(
        &self,
        wish: Wish,
        options: &TcpOptions,
        greeting: &[u8],
    ) -> Result<Stream, OpenError> {
        let deadline = Instant::now() + options.connect_limit;
        let late = || {
            format!(
                "connection to server at {} failed: no answer within {} s",
                self.describe(),
                options.connect_limit.as_secs()
            )
        };
        let connecting = async {
            let mut socket = self.connect(options).await?;
            match socket.write_all(greeting).await {
                Ok(()) => Ok(socket),
                Err(e) => Err(self.failed(&e)),
            }
        };
        let socket = timeout_at(deadline, connecting).await.unwrap_or_else(|_| Err(late()));
        let socket = socket.map_err(OpenError::Unreachable)?;
        match (wish, &self.tls) {
            (Wish::Tls(must), Some(tls)) => timeout_at(deadline, self.secure(socket, tls, must))
                .await
                .unwrap_or_else(|_| Err(late()))
                .map_err(OpenError::Insecure),
            _ => Ok(Stream::Plain(socket)),
        }
    }

    async fn connect(&self, options: &TcpOptions) -> Result<Socket, String> {
        if let Some(path) = self.config.unix_path() {
            let stream = UnixStream::connect(socket_name(path)).await.map_err(|e| self.failed(&e))?;
            return Ok(Socket::Unix(stream));
        }
        let port = self.config.port;
        let addresses: Vec<SocketAddr> = match self.config.hostaddr {
            Some(address) => vec![SocketAddr::new(address, port)],
            None => lookup_host((self.config.host.as_str(), port))
                .await
                .map_err(|e| {
                    format!("could not translate host name \"{}\" to address: {e}", self.config.host)
                })?
                .collect(),
        };
        let share = options.connect_limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let mut last = format!("host name \"{}\" has no address", self.config.host);
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let socket = Socket::Tcp(stream);
                    socket.tune(&options.tcp).map_err(|e| self.failed(&e))?;
                    return Ok(socket);
                }
                Ok(Err(e)) => {
                    last = format!("connection to server at {} ({address}) failed: {e}", self.describe())
                }
                Err(_) => {
                    last =
                        format!("connection to server at {} ({address}) failed: timed out", self.describe())
                }
            }
        }
        Err(last)
    }

    async fn secure(&self, mut socket: Socket, tls: &TargetTls, must: bool) -> Result<Stream, String> {
        let direct = self.config.tls.sslnegotiation == SslNegotiation::Direct;
        if !direct {
            socket.write_all(&SSL_REQUEST).await.map_err(|e| self.failed(&e))?;
            let mut answer = [0];
            // Exactly one byte: what an attacker put behind it must reach the TLS library, which refuses it.
            socket.read_exact(&mut answer).await.map_err(|e| self.failed(&e))?;
            match answer[0] {
                b'S' => {}
                b'N' if !must => return Ok(Stream::Plain(socket)),
                b'N' => {
                    return Err(format!(
                        "server at {} does not support SSL, but SSL was required",
                        self.describe()
                    ));
                }
                b'E' => return Err(format!("server at {} refused the SSL request", self.describe())),
                other => {
                    return Err(format!(
                        "server at {} answered 0x{other:02x} to the SSL request: it is not a PostgreSQL server",
                        self.describe()
                    ));
                }
            }
        }
        let stream = tls
            .connector
            .connect(tls.name.clone(), socket)
            .await
            .map_err(|e| format!("SSL error with server at {}: {e}", self.describe()))?;
        if direct && stream.get_ref().1.alpn_protocol() != Some(ALPN) {
            return Err(format!(
                "server at {} did not agree on ALPN protocol postgresql, which direct SSL needs",
                self.describe()
            ));
        }
        Ok(Stream::Tls(Box::new(stream.into())))
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("connection to server at {} failed: {error}", self.describe())
    }
}

/// `@name` is an abstract socket: a zero byte takes the place of the `@`.
fn socket_name(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().split_first() {
        Some((b'@', rest)) => PathBuf::from(std::ffi::OsString::from_vec([&[0], rest].concat())),
        _ => path,
    }
}
