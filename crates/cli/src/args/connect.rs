//! `pgshrink connect`.

use super::Dialect;
use super::shared_flags::{LogArgs, ObservationArgs, PolicyArgs, ServiceArgs, SocketArgs};
use clap::Args;

/// Run a local proxy that compresses connections to a gateway.
///
/// Clients connect to it as they would to the server: any driver, pg_dump, a standby, a logical subscriber. It asks the
/// other end for compression, and continues without it if there is none, unless --required is given. The connector
/// handles TLS to the other end; local clients need none.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConnectArgs {
    /// Gateway (or server) to connect to. May be repeated; they are tried in order until one accepts
    ///
    /// HOST, HOST:PORT, the directory of a Unix socket, or a connection string such as 'host=db port=6432
    /// sslmode=verify-full sslrootcert=ca.pem' or postgresql://db:6432. TLS settings that the string does not contain
    /// come from the --ssl flags.
    #[arg(
        long,
        value_name = "TARGET",
        env = "PGSHRINK_TARGET",
        value_delimiter = ';',
        help_heading = "Server"
    )]
    pub target: Vec<String>,
    /// Algorithms to ask for, in order of preference; `off` for none
    ///
    /// Names: zstd (level -131072 to 22, and 0 for 3: negative ones are faster), lz4 (acceleration 1 to 65537, and 0
    /// for 1: higher is faster and compresses less), zlib (level 1 to 9, and -1 for 6). Without a level: zstd:3, lz4:1,
    /// zlib:6.
    #[arg(long, value_name = "LIST", env = "PGSHRINK_COMPRESSION", help_heading = "Compression")]
    pub compression: Option<String>,
    /// How to negotiate compression
    #[arg(long, env = "PGSHRINK_DIALECT", help_heading = "Compression")]
    pub dialect: Option<Dialect>,
    /// Refuse a session if the other end does not agree to compression
    #[arg(long, value_name = "BOOL", env = "PGSHRINK_REQUIRED", help_heading = "Compression")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub required: Option<bool>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub policy: PolicyArgs,
    /// TLS to the target: disable, allow, prefer, require, verify-ca or verify-full [default: prefer]
    ///
    /// prefer uses TLS if the other end has it, but checks no certificate. The default is verify-full if --sslrootcert
    /// is `system`. A Unix socket never uses TLS. The same holds for [[target]] in a file.
    #[arg(long, value_name = "MODE", env = "PGSHRINK_SSLMODE", help_heading = "Server")]
    pub sslmode: Option<String>,
    /// CA certificates (PEM) that may sign the target's certificate, or `system` [default for verify-full: system]
    #[arg(long, value_name = "FILE", env = "PGSHRINK_SSLROOTCERT", help_heading = "Server")]
    pub sslrootcert: Option<String>,
    /// Certificate (PEM) to present to the target
    #[arg(long, value_name = "FILE", env = "PGSHRINK_SSLCERT", help_heading = "Server")]
    pub sslcert: Option<String>,
    /// Private key (PEM) of the certificate
    #[arg(long, value_name = "FILE", env = "PGSHRINK_SSLKEY", help_heading = "Server")]
    pub sslkey: Option<String>,
    /// How TLS is negotiated: postgres (SSLRequest first) or direct [default: postgres]
    #[arg(long, value_name = "HOW", env = "PGSHRINK_SSLNEGOTIATION", help_heading = "Server")]
    pub sslnegotiation: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub socket: SocketArgs,
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
  For all clients on this machine that connect to db.example:
    pgshrink connect --listen 127.0.0.1:5433 --target db.example:6432 \\
        --sslmode verify-full --sslrootcert system
    pg_dump -h 127.0.0.1 -p 5433 -U ann sales | ...

  For a standby, in its configuration:
    primary_conninfo = 'host=/run/pgshrink port=5433 user=replica'
    pgshrink connect --unix-socket-directory /run/pgshrink --unix-socket-port 5433 \\
        --target primary.example:6432 --required

  The same in a file, for pgshrink connect --config connect.toml:
    listen = [\"127.0.0.1:5433\"]
    compression = \"zstd:1\"
    [[target]]
    host = \"db.example\"
    port = 6432
    sslmode = \"verify-full\"
    sslrootcert = \"system\"

Exit codes:
  0  ended by a signal or from the console; with --check: the configuration is valid
  1  with --check: the configuration is invalid, or a flag or variable is out of range
  2  could not run: arguments that cannot be parsed, a file that cannot be read, invalid configuration, address in use";
