//! Flags that gateway and connector share.

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use pgshrink_gateway::config::WindowSetting;
use std::path::PathBuf;

/// Where clients come in.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Listening")]
pub struct SocketArgs {
    /// TCP address to listen on, or `systemd` for socket activation. May be repeated
    ///
    /// Write an IPv6 address in brackets. Port 0 lets the kernel choose; the log has the port.
    #[arg(long, value_name = "HOST:PORT", env = "PGSHRINK_LISTEN", value_delimiter = ',')]
    pub listen: Vec<String>,
    /// Directory for a Unix socket named .s.PGSQL.PORT; empty for none
    #[arg(long, value_name = "DIR", env = "PGSHRINK_UNIX_SOCKET_DIRECTORY")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub unix_socket_directory: Option<PathBuf>,
    /// Port in the name of the Unix socket [default: the port of the first --listen]
    #[arg(long, value_name = "PORT", env = "PGSHRINK_UNIX_SOCKET_PORT")]
    pub unix_socket_port: Option<u16>,
    /// Permissions of the Unix socket, in octal
    #[arg(long, value_name = "MODE", env = "PGSHRINK_UNIX_SOCKET_MODE")]
    pub unix_socket_mode: Option<String>,
    /// Certificate chain (PEM) for client connections; without it, requests for TLS are refused
    #[arg(long, value_name = "FILE", env = "PGSHRINK_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the certificate
    #[arg(long, value_name = "FILE", env = "PGSHRINK_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// CA certificates (PEM) that may sign client certificates
    #[arg(long, value_name = "FILE", env = "PGSHRINK_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
    /// Refuse clients without a certificate from --tls-client-ca
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_TLS_REQUIRE_CLIENT_CERT")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tls_require_client_cert: Option<bool>,
    /// Refuse remote clients that do not use TLS
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_TLS_REQUIRED")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tls_required: Option<bool>,
}

/// When and how compressing pays.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Compression")]
pub struct PolicyArgs {
    /// Which earlier data a compressed frame may refer to
    ///
    /// preserved: everything sent before; the best ratio. per-transaction: the same transaction. per-frame: nothing, so
    /// each frame can be decoded by itself, for captures and poolers.
    #[arg(long, value_name = "MODE", env = "PGSHRINK_CONTEXT")]
    pub context: Option<String>,
    /// zstd window size in bytes, as a power of two: 10 to 23, or auto
    ///
    /// Each step doubles the memory of a direction that compresses. 16 sends up to a third more bytes for long rows, and twice as many for some logs;
    /// more than 19 helps only if similar rows are far apart. auto starts with 19 and uses up to 23 for bulk data that
    /// benefits, within the memory limit and what the peer allows.
    #[arg(long, value_name = "LOG", env = "PGSHRINK_WINDOW_LOG")]
    pub window_log: Option<WindowSetting>,
    /// Do not try to compress groups of messages smaller than this, in bytes: 0 to 1048576
    #[arg(long, value_name = "BYTES", env = "PGSHRINK_MIN_GROUP_SIZE")]
    pub min_group_size: Option<usize>,
    /// Maximum uncompressed bytes in one frame: 1024 to 1048576
    #[arg(long, value_name = "BYTES", env = "PGSHRINK_FRAME_SIZE")]
    pub frame_size: Option<usize>,
    /// Letters of the message types to compress (for example dDQ); empty for all after authentication
    #[arg(long, value_name = "LETTERS", env = "PGSHRINK_MESSAGE_TYPES")]
    pub message_types: Option<String>,
    /// Leave out message headers of rows if the other end is pgshrink too
    ///
    /// Saves 3 to 25 % on tables of short rows. If it is off, frames contain PostgreSQL's messages byte for byte.
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_PACK_ROWS")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub pack_rows: Option<bool>,
}

/// Metrics and the console.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Observation")]
pub struct ObservationArgs {
    /// Address for /metrics (Prometheus) and /healthz; default: none
    #[arg(long, value_name = "HOST:PORT", env = "PGSHRINK_METRICS_LISTEN")]
    pub metrics_listen: Option<String>,
    /// Database name of the admin console; empty for no console
    #[arg(long, value_name = "NAME", env = "PGSHRINK_ADMIN_DATABASE")]
    pub admin_database: Option<String>,
    /// Users that may run console commands that change something
    ///
    /// Processes of root or of the service's own system user may do so over the Unix socket without a password; others
    /// need an entry in --admin-password-file.
    #[arg(long, value_name = "LIST", env = "PGSHRINK_ADMIN_USERS", value_delimiter = ',')]
    pub admin_users: Vec<String>,
    /// Users with read-only access to the console
    #[arg(long, value_name = "LIST", env = "PGSHRINK_ADMIN_STATS_USERS", value_delimiter = ',')]
    pub admin_stats_users: Vec<String>,
    /// Console users with passwords or SCRAM verifiers, in the format of pgbouncer's userlist.txt
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADMIN_PASSWORD_FILE")]
    pub admin_password_file: Option<PathBuf>,
}

/// Counts, sizes and times, and the file for all of it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct ServiceArgs {
    /// Maximum number of clients, 1 to 1048576; more get SQLSTATE 53300
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_MAX_CLIENTS")]
    pub max_clients: Option<usize>,
    /// Maximum number of clients from one address; 0: no limit
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_MAX_CLIENTS_PER_ADDRESS")]
    pub max_clients_per_address: Option<usize>,
    /// Memory limit for all codecs together, in MiB: 1 to 16777216
    #[arg(long, value_name = "MIB", env = "PGSHRINK_MAX_CODEC_MEMORY_MIB")]
    pub max_codec_memory_mib: Option<u64>,
    /// Worker threads: 1 to 1024 [default: one per processor]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_THREADS")]
    pub threads: Option<usize>,
    /// Login timeout in seconds, from the first byte to the end of authentication: 1 to 86400
    #[arg(long, value_name = "SECONDS", env = "PGSHRINK_LOGIN_TIMEOUT_S")]
    pub login_timeout_s: Option<u64>,
    /// Timeout in seconds for one attempt to connect to a server, including TLS: 1 to 86400
    #[arg(long, value_name = "SECONDS", env = "PGSHRINK_CONNECT_TIMEOUT_S")]
    pub connect_timeout_s: Option<u64>,
    /// Release a session's compression memory after this many seconds without traffic: 1 to 86400
    #[arg(long, value_name = "SECONDS", env = "PGSHRINK_IDLE_RELEASE_S")]
    pub idle_release_s: Option<u64>,
    /// After SIGTERM, wait this many seconds for sessions to finish: 0 to 604800
    #[arg(long, value_name = "SECONDS", env = "PGSHRINK_DRAIN_TIMEOUT_S")]
    pub drain_timeout_s: Option<u64>,
    /// Configuration file (TOML); flags and PGSHRINK_* variables override it
    #[arg(long, short = 'c', value_name = "FILE", env = "PGSHRINK_CONFIG", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// Check the configuration and exit: 0 valid, 1 invalid (problems are printed), 2 the file cannot be read
    #[arg(long, help_heading = "Configuration")]
    pub check: bool,
}

/// What is written to standard error.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Minimum severity of log messages
    #[arg(long, value_name = "LEVEL", env = "PGSHRINK_LOG_LEVEL")]
    pub log_level: Option<LogLevel>,
    /// Log format: one line of text or one JSON object per message
    #[arg(long, value_name = "FORMAT", env = "PGSHRINK_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// Severities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their names are the usual ones")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// Shapes of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their names are the usual ones")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}
