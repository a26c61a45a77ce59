//! `pgshrink connect`.

use super::Dialect;
use super::shared_flags::{LogArgs, PolicyArgs, ServiceArgs, SocketArgs};
use clap::Args;

/// Give clients that know nothing of compression a compressed way to a server.
///
/// Clients connect to it as to the server: any driver, pg_dump, a standby, a logical subscriber. Towards the other end
/// it asks for compression; where it gets none it goes on without, unless --required. TLS to the other end is the
/// connector's; a client on the same machine speaks to it in plain.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConnectArgs {
    /// Gateway (or server) to connect to. May be repeated; tried in order until one accepts
    ///
    /// HOST, HOST:PORT, the directory of a Unix socket, or a connection string such as 'host=db port=6432
    /// sslmode=verify-full sslrootcert=ca.pem' or postgresql://db:6432. What the string does not say about TLS is taken
    /// from the --ssl flags.
    #[arg(long, value_name = "TARGET", env = "PGSHRINK_TO", value_delimiter = ';', help_heading = "Server")]
    pub to: Vec<String>,
    /// Algorithms to ask for, best liked first; `off` for none
    ///
    /// Names: zstd (level 1 to 22, negative ones are faster), lz4 (acceleration 1 to 65537: higher is faster and worse), zlib (1 to 9).
    #[arg(long, value_name = "LIST", env = "PGSHRINK_COMPRESSION", help_heading = "Compression")]
    pub compression: Option<String>,
    /// How to ask
    #[arg(long, env = "PGSHRINK_DIALECT", help_heading = "Compression")]
    pub dialect: Option<Dialect>,
    /// Refuse to go on without compression
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_REQUIRED", help_heading = "Compression")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub required: Option<bool>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub policy: PolicyArgs,
    /// TLS to the server: disable, allow, prefer, require, verify-ca or verify-full [default: prefer]
    #[arg(long, value_name = "MODE", env = "PGSHRINK_SSLMODE", help_heading = "Server")]
    pub sslmode: Option<String>,
    /// Authorities (PEM) the server's certificate must come from, or `system`
    #[arg(long, value_name = "FILE", env = "PGSHRINK_SSLROOTCERT", help_heading = "Server")]
    pub sslrootcert: Option<String>,
    /// Certificate (PEM) to present to the server
    #[arg(long, value_name = "FILE", env = "PGSHRINK_SSLCERT", help_heading = "Server")]
    pub sslcert: Option<String>,
    /// Key (PEM) of that certificate
    #[arg(long, value_name = "FILE", env = "PGSHRINK_SSLKEY", help_heading = "Server")]
    pub sslkey: Option<String>,
    /// How TLS begins: postgres (ask first) or direct [default: postgres]
    #[arg(long, value_name = "HOW", env = "PGSHRINK_SSLNEGOTIATION", help_heading = "Server")]
    pub sslnegotiation: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub socket: SocketArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub service: ServiceArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub log: LogArgs,
}

const EXAMPLES: &str = "\
Examples:
  For everything on this machine that talks to db.example:
    pgshrink connect --listen 127.0.0.1:5433 --to db.example:6432 \\
        --sslmode verify-full --sslrootcert system
    pg_dump -h 127.0.0.1 -p 5433 -U ann sales | ...

  For a standby, in its configuration:
    primary_conninfo = 'host=/run/pgshrink port=5433 user=replica'
    pgshrink connect --socket-dir /run/pgshrink --socket-port 5433 \\
        --to primary.example:6432 --required

  The same as a file, pgshrink connect --config connect.toml:
    listen = [\"127.0.0.1:5433\"]
    compression = \"zstd:1\"
    [[target]]
    host = \"db.example\"
    port = 6432
    sslmode = \"verify-full\"
    sslrootcert = \"system\"";
