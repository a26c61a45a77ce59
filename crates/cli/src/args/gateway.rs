//! `pgshrink gateway`.

use super::shared_flags::{LogArgs, PolicyArgs, ServiceArgs, SocketArgs};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Serve compressed connections in front of PostgreSQL servers.
///
/// Clients that ask for compression get it, all others are passed through unchanged. Reloads its configuration on
/// SIGHUP without dropping a connection; on SIGTERM it stops accepting and lets sessions finish.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct GatewayArgs {
    /// A server behind the gateway. May be repeated; the first that takes the database and user is used
    ///
    /// [NAME:]KEYWORD=VALUE,… with libpq's keywords host, hostaddr, port, sslmode, sslrootcert, sslcert, sslkey and
    /// sslnegotiation; dbname and user (each may be repeated, a trailing * matches the rest) choose the server;
    /// sslhost is the name to check instead of host, send_proxy=1 or 2 sends a PROXY protocol header. A comma in
    /// a value is written \,. Without sslmode the server is reached without TLS.
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
    /// Names: zstd (level 1 to 22, negative ones are faster), lz4 (acceleration 1 to 65537: higher is faster and worse), zlib (1 to 9). The
    /// client's order counts, and the cheaper of both ends' levels.
    #[arg(long, value_name = "LIST", env = "PGSHRINK_LIBPQ_COMPRESSION", help_heading = "Compression")]
    pub libpq_compression: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub socket: SocketArgs,
    /// Let clients that are not local in where the server asked for no password or certificate
    ///
    /// Behind a gateway every client looks local to the server, so `trust` and `peer` lines of pg_hba.conf would admit
    /// the whole network.
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_ALLOW_UNCHALLENGED", help_heading = "Access")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_unchallenged: Option<bool>,
    /// Proxies that send a PROXY protocol header, as addresses or networks (10.0.0.0/8)
    ///
    /// The header is believed, and required: a connection from such an address without one is refused.
    #[arg(long, value_name = "LIST", env = "PGSHRINK_TRUSTED_PROXIES", value_delimiter = ',')]
    #[arg(help_heading = "Access")]
    pub trusted_proxies: Vec<String>,
    /// Startup parameters taken out before the server sees them, for drivers that send ones it does not know
    #[arg(long, value_name = "LIST", env = "PGSHRINK_IGNORE_STARTUP_PARAMETERS", value_delimiter = ',')]
    #[arg(help_heading = "Access")]
    pub ignore_startup_parameters: Vec<String>,
    /// Address of the Prometheus page /metrics; without it there is none
    #[arg(long, value_name = "HOST:PORT", env = "PGSHRINK_METRICS_LISTEN", help_heading = "Observation")]
    pub metrics_listen: Option<String>,
    /// Compress nothing, and measure what compression would have saved
    ///
    /// All traffic passes unchanged, also of clients that ask for compression. Samples of it are compressed on the side, as
    /// --libpq-compression and the settings under Compression say. See SHOW SAVINGS in the console, /metrics and --observe-file.
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_OBSERVE", help_heading = "Observation")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub observe: Option<bool>,
    /// File for the totals of each day, read at the start and by `pgshrink advise --egress`; empty for none
    ///
    /// It holds addresses of clients. One gateway writes one file.
    #[arg(long, value_name = "FILE", env = "PGSHRINK_OBSERVE_FILE", help_heading = "Observation")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub observe_file: Option<PathBuf>,
    /// Processor time that measuring may take, in percent of a processor for each worker thread
    #[arg(long, value_name = "PERCENT", env = "PGSHRINK_OBSERVE_CPU", help_heading = "Observation")]
    pub observe_cpu: Option<f64>,
    /// Database name that reaches the admin console instead of a server; empty for no console
    #[arg(long, value_name = "NAME", env = "PGSHRINK_ADMIN_DATABASE", help_heading = "Observation")]
    pub admin_database: Option<String>,
    /// Users that may change things in the console
    ///
    /// A process of the gateway's own system user, or of root, may do so over the Unix socket without a password; others
    /// need an entry in --admin-password-file.
    #[arg(long, value_name = "LIST", env = "PGSHRINK_ADMIN_USERS", value_delimiter = ',')]
    #[arg(help_heading = "Observation")]
    pub admin_users: Vec<String>,
    /// Users that may look around in the console
    #[arg(long, value_name = "LIST", env = "PGSHRINK_STATS_USERS", value_delimiter = ',')]
    #[arg(help_heading = "Observation")]
    pub stats_users: Vec<String>,
    /// Users of the console with passwords or SCRAM verifiers, in the form of pgbouncer's userlist.txt
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADMIN_PASSWORD_FILE", help_heading = "Observation")]
    pub admin_password_file: Option<PathBuf>,
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

  Two servers, chosen by database:
    pgshrink gateway --listen 0.0.0.0:6432 \\
        --server 'sales:host=10.0.0.5,dbname=sales,dbname=crm_*' \\
        --server 'rest:host=10.0.0.6,sslmode=verify-full,sslrootcert=/etc/ssl/db-ca.pem'

  What it is doing (the console listens on the same port):
    psql -p 6432 pgshrink -c 'SHOW STATS'

  The same as a file, pgshrink gateway --config gateway.toml:
    listen = [\"0.0.0.0:6432\"]
    libpq_compression = \"zstd:1,lz4:1\"
    [[server]]
    name = \"sales\"
    host = \"10.0.0.5\"
    databases = [\"sales\", \"crm_*\"]
    [tls]
    cert = \"gw.crt\"
    key = \"gw.key\"
    [policy]
    context = \"preserved\"
    [log]
    level = \"info\"";
