//! What an operator can set, as it stands in a configuration file.
//!
//! Owns the names, defaults and checks of every setting; does not open a socket or a file (that is
//! [`crate::listen`] and [`crate::tls`]). Unknown names are errors. Durations are whole seconds or milliseconds
//! with the unit in the name.

mod check;
mod limits;
mod listening;
mod ranges;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use check::Network;
pub(crate) use check::is_loopback;
pub use limits::{LimitsConfig, PolicyConfig, TcpConfig, TimeoutsConfig, WindowSetting};
pub(crate) use listening::{check_addresses, split_host_port, unix_mode};
pub use ranges::{RANGES, SettingRange};

/// The gateway: listens beside a server, serves both dialects.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// TCP addresses (`host:port`), or `systemd` for the sockets of socket activation.
    pub listen: Vec<String>,
    /// Unix sockets.
    pub unix_socket: Option<UnixSocketConfig>,
    /// Servers, tried in order until one matches the database and user asked for.
    #[serde(rename = "server")]
    pub servers: Vec<ServerConfig>,
    /// Allowed algorithms with levels; empty: nobody gets compression.
    pub libpq_compression: String,
    /// Certificate for client connections; without it SSLRequest is answered `N`.
    pub tls: Option<ListenTlsConfig>,
    /// Admits remote clients even if the server did not ask for a password or certificate (trust, peer).
    pub allow_unchallenged: bool,
    /// Addresses or networks (`10.0.0.0/8`) of proxies whose PROXY protocol header is trusted and required.
    pub trusted_proxies: Vec<String>,
    /// Startup parameters that are removed before the server sees them.
    pub ignore_startup_parameters: Vec<String>,
    /// Admin console.
    pub admin: AdminConfig,
    /// Address (`host:port`) of the metrics page; none: no page.
    pub metrics_listen: Option<String>,
    /// Counts and sizes.
    pub limits: LimitsConfig,
    /// How long things may take.
    pub timeouts: TimeoutsConfig,
    /// When compressing pays.
    pub policy: PolicyConfig,
    /// Options of TCP sockets.
    pub tcp: TcpConfig,
    /// Worker threads; none: one per processor.
    pub threads: Option<usize>,
    /// Compresses nothing, and measures what compression would save.
    pub observe: bool,
    /// File for daily totals; empty: in memory only.
    pub observe_file: PathBuf,
    /// Maximum processor time for measuring, in percent of one processor per worker.
    pub observe_cpu_percent: f64,
    /// Between two writes of the file, in seconds.
    pub observe_write_s: u64,
    /// Days kept.
    pub observe_days: usize,
    /// Clients and databases told apart in a day; the others are summed.
    pub observe_clients: usize,
}

impl GatewayConfig {
    /// [`observe_file`](Self::observe_file), if there is one.
    pub(crate) fn observe_path(&self) -> Option<&Path> {
        (!self.observe_file.as_os_str().is_empty()).then_some(&self.observe_file)
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            unix_socket: None,
            servers: Vec::new(),
            libpq_compression: "zstd:1,lz4:1".into(),
            tls: None,
            allow_unchallenged: false,
            trusted_proxies: Vec::new(),
            ignore_startup_parameters: Vec::new(),
            admin: AdminConfig::default(),
            metrics_listen: None,
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
            policy: PolicyConfig::default(),
            tcp: TcpConfig::default(),
            threads: None,
            observe: false,
            observe_file: PathBuf::new(),
            observe_cpu_percent: 0.25,
            observe_write_s: 60,
            observe_days: pgshrink_egress::DEFAULT_LIMITS.days,
            observe_clients: pgshrink_egress::DEFAULT_LIMITS.lines,
        }
    }
}

/// The connector: listens beside a client, speaks to gateways.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectorConfig {
    /// TCP addresses (`host:port`), or `systemd`.
    pub listen: Vec<String>,
    /// Unix sockets.
    pub unix_socket: Option<UnixSocketConfig>,
    /// Gateways (or servers) to connect to: tried in order until one accepts the connection.
    #[serde(rename = "target")]
    pub targets: Vec<TargetConfig>,
    /// Algorithms to ask for, in order of preference.
    pub compression: String,
    /// How to negotiate compression: `ack` or `restart`.
    pub dialect: String,
    /// Refuses a session if the other end does not agree to compression.
    pub required: bool,
    /// Certificate for client connections; without it SSLRequest is answered `N`.
    pub tls: Option<ListenTlsConfig>,
    /// Admin console.
    pub admin: AdminConfig,
    /// Address (`host:port`) of the metrics page; none: no page.
    pub metrics_listen: Option<String>,
    /// Counts and sizes.
    pub limits: LimitsConfig,
    /// How long things may take.
    pub timeouts: TimeoutsConfig,
    /// When compressing pays.
    pub policy: PolicyConfig,
    /// Options of TCP sockets.
    pub tcp: TcpConfig,
    /// Worker threads; none: one per processor.
    pub threads: Option<usize>,
}

impl Default for ConnectorConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            unix_socket: None,
            targets: Vec::new(),
            compression: "zstd:1,lz4:1".into(),
            dialect: "ack".into(),
            required: false,
            tls: None,
            // A database of this name may be the server's own, or reach the gateway's console.
            admin: AdminConfig { database: String::new(), ..AdminConfig::default() },
            metrics_listen: None,
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
            policy: PolicyConfig::default(),
            tcp: TcpConfig::default(),
            threads: None,
        }
    }
}

/// `.s.PGSQL.<port>` in a directory, as PostgreSQL names it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UnixSocketConfig {
    /// The directory.
    pub directory: PathBuf,
    /// The number in the name.
    pub port: u16,
    /// Permissions as an octal text.
    #[serde(default = "unix_mode_default")]
    pub mode: String,
}

fn unix_mode_default() -> String {
    "0777".into()
}

impl UnixSocketConfig {
    /// With the permissions PostgreSQL gives by default.
    pub fn new(directory: impl Into<PathBuf>, port: u16) -> Self {
        Self { directory: directory.into(), port, mode: unix_mode_default() }
    }

    /// The socket's path.
    pub fn path(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }
}

/// A server behind the gateway.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(from = "ServerTable")]
pub struct ServerConfig {
    /// Name in logs, metrics and the console; none: its host and port.
    pub name: Option<String>,
    /// Databases it serves, `*` at the end matches any rest; empty: all.
    pub database: Vec<String>,
    /// Users it serves, likewise.
    pub user: Vec<String>,
    /// Where it is.
    #[serde(flatten)]
    pub target: TargetConfig,
    /// Allowed algorithms on this route, instead of the gateway's; `off`: none.
    pub libpq_compression: Option<String>,
    /// Settings of `[policy]` that are different on this route.
    pub policy: toml::Table,
    /// Sends a PROXY protocol header (version 1 or 2) ahead of the session, for poolers that take it.
    pub send_proxy: Option<u8>,
}

impl ServerConfig {
    /// A server for all databases and users, with the gateway's settings.
    pub fn new(target: TargetConfig) -> Self {
        Self {
            name: None,
            database: Vec::new(),
            user: Vec::new(),
            target,
            libpq_compression: None,
            policy: toml::Table::new(),
            send_proxy: None,
        }
    }
}

/// A [`ServerConfig`] as it stands in a file: flat, as [`TargetTable`] is, because serde forgets where the keys of a
/// `flatten` stand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    name: Option<String>,
    #[serde(default)]
    database: Vec<String>,
    #[serde(default)]
    user: Vec<String>,
    host: String,
    #[serde(default = "port_default")]
    port: u16,
    hostaddr: Option<std::net::IpAddr>,
    #[serde(default)]
    sslmode: SslMode,
    sslrootcert: Option<PathBuf>,
    sslcert: Option<PathBuf>,
    sslkey: Option<PathBuf>,
    #[serde(default)]
    sslnegotiation: SslNegotiation,
    sslhost: Option<String>,
    libpq_compression: Option<String>,
    #[serde(default)]
    policy: toml::Table,
    send_proxy: Option<u8>,
}

impl From<ServerTable> for ServerConfig {
    fn from(table: ServerTable) -> Self {
        let ServerTable { name, database, user, host, port, hostaddr, .. } = table;
        let tls = TargetTlsConfig {
            sslmode: table.sslmode,
            sslrootcert: table.sslrootcert,
            sslcert: table.sslcert,
            sslkey: table.sslkey,
            sslnegotiation: table.sslnegotiation,
            sslhost: table.sslhost,
        };
        Self {
            name,
            database,
            user,
            target: TargetConfig { host, port, hostaddr, tls },
            libpq_compression: table.libpq_compression,
            policy: table.policy,
            send_proxy: table.send_proxy,
        }
    }
}

/// Where to connect and how the connection is secured.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(from = "TargetTable")]
pub struct TargetConfig {
    /// Host name, address, or the directory of a Unix socket when it begins with `/` or `@`.
    pub host: String,
    /// Port, also of a Unix socket.
    pub port: u16,
    /// A numeric address to connect to instead of looking `host` up.
    pub hostaddr: Option<std::net::IpAddr>,
    /// TLS towards it.
    #[serde(flatten)]
    pub tls: TargetTlsConfig,
}

/// A connector's [`TargetConfig`] as it stands in a file: one flat table, because serde cannot tell unknown keys from those of a
/// nested `flatten`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetTable {
    host: String,
    #[serde(default = "port_default")]
    port: u16,
    hostaddr: Option<std::net::IpAddr>,
    sslmode: Option<SslMode>,
    sslrootcert: Option<PathBuf>,
    sslcert: Option<PathBuf>,
    sslkey: Option<PathBuf>,
    #[serde(default)]
    sslnegotiation: SslNegotiation,
    sslhost: Option<String>,
}

impl From<TargetTable> for TargetConfig {
    fn from(table: TargetTable) -> Self {
        let TargetTable {
            host,
            port,
            hostaddr,
            sslmode,
            sslrootcert,
            sslcert,
            sslkey,
            sslnegotiation,
            sslhost,
        } = table;
        let tls = TargetTlsConfig {
            sslmode: SslMode::Disable,
            sslrootcert,
            sslcert,
            sslkey,
            sslnegotiation,
            sslhost,
        };
        let mut target = Self { host, port, hostaddr, tls };
        target.tls.sslmode = sslmode.unwrap_or_else(|| target.sslmode_default());
        target
    }
}

fn port_default() -> u16 {
    5432
}

impl TargetConfig {
    /// A plain target.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, hostaddr: None, tls: TargetTlsConfig::default() }
    }

    /// The Unix socket it means, if it does; `@` marks Linux's abstract sockets.
    pub fn unix_path(&self) -> Option<PathBuf> {
        let is_path = self.hostaddr.is_none() && (self.host.starts_with('/') || self.host.starts_with('@'));
        is_path.then(|| PathBuf::from(&self.host).join(format!(".s.PGSQL.{}", self.port)))
    }

    /// A connector's `sslmode` if none is configured: libpq's default, so that flags and file mean the same.
    fn sslmode_default(&self) -> SslMode {
        match &self.tls.sslrootcert {
            _ if self.unix_path().is_some() => SslMode::Disable,
            Some(roots) if roots == Path::new(crate::tls::SYSTEM_ROOTS) => SslMode::VerifyFull,
            _ => SslMode::Prefer,
        }
    }

    /// For logs and error texts.
    pub fn describe(&self) -> String {
        match self.unix_path() {
            Some(path) => path.display().to_string(),
            None if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            None => format!("{}:{}", self.host, self.port),
        }
    }
}

/// libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Never TLS.
    #[default]
    Disable,
    /// Plain first, TLS when plain is refused.
    Allow,
    /// TLS first, plain when TLS is refused.
    Prefer,
    /// TLS, the certificate is only checked when a root certificate is given.
    Require,
    /// TLS, the certificate's chain is checked.
    VerifyCa,
    /// TLS, chain and host name are checked.
    VerifyFull,
}

/// libpq's `sslnegotiation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SslNegotiation {
    /// SSLRequest first.
    #[default]
    Postgres,
    /// TLS from the first byte, with ALPN.
    Direct,
}

/// TLS towards a server or gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TargetTlsConfig {
    /// How much TLS.
    pub sslmode: SslMode,
    /// Root certificates (PEM), or `system`.
    pub sslrootcert: Option<PathBuf>,
    /// Own certificate chain (PEM).
    pub sslcert: Option<PathBuf>,
    /// Private key (PEM) of the certificate.
    pub sslkey: Option<PathBuf>,
    /// How TLS is negotiated.
    pub sslnegotiation: SslNegotiation,
    /// The name to ask for and check instead of `host`.
    pub sslhost: Option<String>,
}

/// TLS towards clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListenTlsConfig {
    /// Certificate chain (PEM).
    pub cert: PathBuf,
    /// Private key (PEM) of the certificate.
    pub key: PathBuf,
    /// CA certificates (PEM) that may sign client certificates.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// Refuses clients without a certificate from `client_ca`.
    #[serde(default)]
    pub require_client_cert: bool,
    /// Refuses remote clients that do not use TLS.
    #[serde(default)]
    pub required: bool,
}

/// The admin console. A process of the same system user, or of root, may do everything over a Unix socket, without a
/// password; others need an entry in `password_file`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Database name of the console; empty: no console.
    pub database: String,
    /// Users that may run commands that change something.
    pub users: Vec<String>,
    /// Users with read-only access.
    pub stats_users: Vec<String>,
    /// Users and passwords (or SCRAM verifiers) in the format of pgbouncer's `userlist.txt`.
    pub password_file: Option<PathBuf>,
    /// False: a password is needed on the Unix socket too. For machines where a pooler or proxy that serves others runs
    /// as the same system user.
    pub trust_own_user: bool,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            database: "pgshrink".into(),
            users: vec!["pgshrink".into()],
            stats_users: Vec::new(),
            password_file: None,
            trust_own_user: true,
        }
    }
}
