//! `pgshrink gateway`.

use super::shared_flags::{LogArgs, ObservationArgs, PolicyArgs, ServiceArgs, SocketArgs};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Serve compressed connections in front of PostgreSQL servers.
///
/// Clients that ask for compression get it; all others are passed through unchanged. SIGHUP reloads the configuration
/// without dropping connections. On SIGTERM, the gateway stops accepting connections and lets sessions finish.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct GatewayArgs {
    /// A server behind the gateway. May be repeated; the first one that matches database and user is used
    ///
    /// [NAME:]KEYWORD=VALUE,… with libpq's keywords host, hostaddr, port, sslmode, sslrootcert, sslcert, sslkey and
    /// sslnegotiation. database and user select the server (each may be repeated; a trailing * is a wildcard). sslhost is
    /// the name to verify instead of host; send_proxy=1 or 2 sends a PROXY protocol header. Write \, for a comma in a
    /// value. libpq_compression is a list for this server alone. Without sslmode, the gateway connects to the server
    /// without TLS.
    #[arg(
        long,
        value_name = "SERVER",
        env = "PGSHRINK_SERVER",
        value_delimiter = ';',
        help_heading = "Servers"
    )]
    pub server: Vec<String>,
    /// Algorithms that clients may use, with levels; `off` for none
    ///
    /// Names: zstd (level -131072 to 22, and 0 for 3: negative ones are faster), lz4 (acceleration 1 to 65537, and 0
    /// for 1: higher is faster and compresses less), zlib (level 1 to 9, and -1 for 6). Without a level: zstd:3, lz4:1,
    /// zlib:6. The client's order decides, and the cheaper of the two levels is used.
    #[arg(long, value_name = "LIST", env = "PGSHRINK_LIBPQ_COMPRESSION", help_heading = "Compression")]
    pub libpq_compression: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub socket: SocketArgs,
    /// Admit remote clients even if the server did not ask for a password or certificate
    ///
    /// To the server, every session comes from the gateway, so `trust` and `peer` lines in pg_hba.conf could admit the
    /// whole network.
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_ALLOW_UNCHALLENGED", help_heading = "Access")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_unchallenged: Option<bool>,
    /// Addresses or networks (10.0.0.0/8) of proxies that send a PROXY protocol header
    ///
    /// The header is trusted and required: a connection from such an address without it is refused.
    #[arg(long, value_name = "LIST", env = "PGSHRINK_TRUSTED_PROXIES", value_delimiter = ',')]
    #[arg(help_heading = "Access")]
    pub trusted_proxies: Vec<String>,
    /// Startup parameters to remove, for drivers that send parameters the server does not know
    #[arg(long, value_name = "LIST", env = "PGSHRINK_IGNORE_STARTUP_PARAMETERS", value_delimiter = ',')]
    #[arg(help_heading = "Access")]
    pub ignore_startup_parameters: Vec<String>,
    /// Do not compress; measure what compression would save
    ///
    /// All traffic passes unchanged, even if a client asks for compression. Samples are compressed separately, as set
    /// by --libpq-compression and the options under Compression. See SHOW SAVINGS in the console, /metrics and
    /// --observe-file.
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_OBSERVE", help_heading = "Observation")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub observe: Option<bool>,
    /// File for daily totals, read at start and by `pgshrink advise --egress`; empty for none
    ///
    /// It contains client addresses. Each gateway needs its own file.
    #[arg(long, value_name = "FILE", env = "PGSHRINK_OBSERVE_FILE", help_heading = "Observation")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub observe_file: Option<PathBuf>,
    /// Maximum processor time for measuring, in percent of one processor per worker thread: 0.01 to 50
    #[arg(long, value_name = "PERCENT", env = "PGSHRINK_OBSERVE_CPU_PERCENT", help_heading = "Observation")]
    pub observe_cpu_percent: Option<f64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub observation: ObservationArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub service: ServiceArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub log: LogArgs,
}

const EXAMPLES: &str = "\
Examples:
  In front of a server on the same machine:
    pgshrink gateway --listen 0.0.0.0:6432 --server host=/var/run/postgresql \\
        --tls-cert gw.crt --tls-key gw.key

  Two servers, selected by database:
    pgshrink gateway --listen 0.0.0.0:6432 \\
        --server 'sales:host=10.0.0.5,database=sales,database=crm_*' \\
        --server 'rest:host=10.0.0.6,sslmode=verify-full,sslrootcert=/etc/ssl/db-ca.pem'

  Show what the gateway is doing (the console is on the Unix socket of the same port):
    psql -h /var/run/postgresql -p 6432 pgshrink -c 'SHOW STATS'

  The same in a file, for pgshrink gateway --config gateway.toml:
    listen = [\"0.0.0.0:6432\"]
    libpq_compression = \"zstd:1,lz4:1\"
    [[server]]
    name = \"sales\"
    host = \"10.0.0.5\"
    database = [\"sales\", \"crm_*\"]
    [tls]
    cert = \"gw.crt\"
    key = \"gw.key\"
    [policy]
    context = \"preserved\"
    [log]
    level = \"info\"

Exit codes:
  0  ended by a signal or from the console; with --check: the configuration is valid
  1  with --check: the configuration is invalid, or a flag or variable is out of range
  2  could not run: arguments that cannot be parsed, a file that cannot be read, invalid configuration, address in use";
