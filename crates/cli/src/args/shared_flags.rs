//! Flags that gateway and connector share.

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use pgshrink_gateway::config::WindowSetting;
use std::path::PathBuf;

/// Where clients come in.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Listening")]
pub struct SocketArgs {
    /// TCP address to listen on, or `systemd` for the sockets of socket activation. May be repeated
    ///
    /// An IPv6 address is written in brackets. Port 0 lets the kernel choose; the log tells which.
    #[arg(long, value_name = "HOST:PORT", env = "PGSHRINK_LISTEN", value_delimiter = ',')]
    pub listen: Vec<String>,
    /// Directory for a Unix socket named .s.PGSQL.PORT; empty for none
    #[arg(long, value_name = "DIR", env = "PGSHRINK_SOCKET_DIR")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub socket_dir: Option<PathBuf>,
    /// PORT in that name [default: the port of the first --listen]
    #[arg(long, value_name = "PORT", env = "PGSHRINK_SOCKET_PORT")]
    pub socket_port: Option<u16>,
    /// Permissions of the Unix socket, octal
    #[arg(long, value_name = "MODE", env = "PGSHRINK_SOCKET_MODE")]
    pub socket_mode: Option<String>,
    /// Certificate chain (PEM) for clients that ask for TLS; without it they are told there is none
    #[arg(long, value_name = "FILE", env = "PGSHRINK_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Key (PEM) of that certificate
    #[arg(long, value_name = "FILE", env = "PGSHRINK_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Authorities (PEM) whose client certificates are accepted
    #[arg(long, value_name = "FILE", env = "PGSHRINK_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
    /// Refuse clients without a certificate from --tls-client-ca
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_TLS_REQUIRE_CLIENT_CERT")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tls_require_client_cert: Option<bool>,
    /// Refuse clients that are not local and do not use TLS
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_TLS_REQUIRED")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tls_required: Option<bool>,
}

/// When and how compressing pays.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Compression")]
pub struct PolicyArgs {
    /// What a compressed frame may refer back to
    ///
    /// preserved: everything sent before; the best ratio. per-transaction: the same transaction. per-frame:
    /// nothing, so each frame can be read on its own; a capture or pooler in between can follow.
    #[arg(long, value_name = "MODE", env = "PGSHRINK_CONTEXT")]
    pub context: Option<String>,
    /// How far zstd looks back, as a power of two in bytes, 10 to 23, or auto
    ///
    /// Each step doubles the memory of a direction that compresses. 16 costs up to a third of the ratio on long rows,
    /// more than 19 gains only where rows repeat far apart. auto begins with 19 and takes up to 23 for bulk that gains
    /// by it, where the memory limit and the peer allow it.
    #[arg(long, value_name = "LOG", env = "PGSHRINK_WINDOW_LOG")]
    pub window_log: Option<WindowSetting>,
    /// Smallest group of pending messages that is worth trying, in bytes
    #[arg(long, value_name = "BYTES", env = "PGSHRINK_MIN_SIZE")]
    pub min_size: Option<usize>,
    /// Most bytes that go into one frame
    #[arg(long, value_name = "BYTES", env = "PGSHRINK_FRAME_SIZE")]
    pub frame_size: Option<usize>,
    /// Message types that may be compressed, as their letters (dDQ); empty for all after authentication
    #[arg(long, value_name = "LETTERS", env = "PGSHRINK_MESSAGE_TYPES")]
    pub message_types: Option<String>,
    /// Send rows without their message headers where the other end is pgshrink's too
    ///
    /// Saves 3 to 25 % on tables of short rows. Off: frames hold PostgreSQL's messages byte by byte.
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_PACK_ROWS")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub pack_rows: Option<bool>,
}

/// Counts, sizes and times, and the file for all of it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct ServiceArgs {
    /// Most clients at once; further ones get SQLSTATE 53300
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_MAX_CLIENTS")]
    pub max_clients: Option<usize>,
    /// Most clients at once from one address, 0 for no such limit
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_MAX_CLIENTS_PER_ADDRESS")]
    pub max_clients_per_address: Option<usize>,
    /// Memory of all compressors and decompressors together, in MiB
    #[arg(long, value_name = "MIB", env = "PGSHRINK_MEMORY_LIMIT")]
    pub memory_limit: Option<u64>,
    /// Worker threads [default: one per processor]
    #[arg(long, value_name = "COUNT", env = "PGSHRINK_THREADS")]
    pub threads: Option<usize>,
    /// Seconds a client may take from its first byte until it is authenticated
    #[arg(long, value_name = "SECONDS", env = "PGSHRINK_LOGIN_TIMEOUT")]
    pub login_timeout: Option<u64>,
    /// Seconds for one attempt to connect to a server, TLS included
    #[arg(long, value_name = "SECONDS", env = "PGSHRINK_CONNECT_TIMEOUT")]
    pub connect_timeout: Option<u64>,
    /// Seconds without traffic after which a session's compression memory is given back
    #[arg(long, value_name = "SECONDS", env = "PGSHRINK_IDLE_RELEASE")]
    pub idle_release: Option<u64>,
    /// Seconds that sessions have to finish after SIGTERM
    #[arg(long, value_name = "SECONDS", env = "PGSHRINK_DRAIN_TIMEOUT")]
    pub drain_timeout: Option<u64>,
    /// Configuration file (TOML); flags and PGSHRINK_* variables win over it
    #[arg(long, short = 'c', value_name = "FILE", env = "PGSHRINK_CONFIG", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// Check the configuration, say what is wrong (exit code 1) or nothing (exit code 0), and end; exit code 2 if the file cannot
    /// be read
    #[arg(long, help_heading = "Configuration")]
    pub check: bool,
}

/// What is written to standard error.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Least severe messages to write
    #[arg(long, value_name = "LEVEL", env = "PGSHRINK_LOG_LEVEL")]
    pub log_level: Option<LogLevel>,
    /// One line of text or one JSON object per message
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
