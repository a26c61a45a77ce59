//! pgbouncer and HAProxy as Debian packages them, in front of a private server; in [`zson1`] the original zson.
//!
//! Each program is configured as its documentation advises for one plain hop, so that it shows its best: pgbouncer with session
//! pooling, HAProxy as a TCP relay. Neither compresses.

pub mod zson1;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use pgshrink_testkit::run::{self, Owner};
use pgshrink_testkit::{Daemon, Error, Missing, Port, TempDir, wait_until};

/// Which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// `pool_mode = session`.
    PgBouncer,
    /// `mode tcp`, as many threads as there are cores.
    HaProxy,
}

/// A rival that listens.
#[derive(Debug)]
pub struct Running {
    /// What runs.
    pub daemon: Daemon,
    port: Port,
    _dir: TempDir,
}

impl Rival {
    /// All of them.
    pub const ALL: [Rival; 2] = [Rival::PgBouncer, Rival::HaProxy];

    /// As its makers write it.
    pub fn name(self) -> &'static str {
        match self {
            Rival::PgBouncer => "pgbouncer",
            Rival::HaProxy => "HAProxy",
        }
    }

    /// Its version, or what is lacking.
    pub fn version(self) -> Result<String, Missing> {
        let (program, flag) = match self {
            Rival::PgBouncer => ("pgbouncer", "--version"),
            Rival::HaProxy => ("haproxy", "-v"),
        };
        let printed = run::output(run::command(program).arg(flag));
        let line = printed.ok().and_then(|text| text.lines().next().map(str::to_owned));
        line.ok_or_else(|| {
            Missing::new(self.name(), format!("there is no working `{program}`"), "tools/setup bench")
        })
    }

    /// Starts it in front of the server at this port of 127.0.0.1, for at most this many connections.
    pub fn start(self, server_port: u16, connections_max: u32) -> Result<Running, Error> {
        self.version()?;
        let (owner, port) = (Owner::find()?, Port::reserve()?);
        let dir = TempDir::owned_by(&owner)?;
        let config = dir.path().join("config");
        let (text, mut command) = match self {
            Rival::PgBouncer => {
                let users = dir.path().join("users");
                write_readable(&users, "\"postgres\" \"\"\n")?;
                let users = users.to_string_lossy().into_owned();
                // It refuses to run as root.
                let mut command: Command = owner.command("pgbouncer");
                command.arg("-q").arg(&config);
                (pgbouncer_config(port.number(), server_port, connections_max, &users), command)
            }
            Rival::HaProxy => {
                let mut command = owner.command("haproxy");
                command.args(["-db", "-q", "-f"]).arg(&config);
                (haproxy_config(port.number(), server_port, connections_max), command)
            }
        };
        write_readable(&config, &text)?;
        let daemon = Daemon::spawn(&mut command)?;
        let reached = wait_until(Duration::from_secs(10), &format!("{} to listen", self.name()), || {
            std::net::TcpStream::connect(("127.0.0.1", port.number())).is_ok()
        });
        reached.map_err(|error| Error::Server { what: error.to_string(), log_tail: daemon.log() })?;
        Ok(Running { daemon, port, _dir: dir })
    }
}

impl Running {
    /// Where it listens on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

fn pgbouncer_config(port: u16, server_port: u16, connections_max: u32, users: &str) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server_port}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = trust\n\
         auth_file = {users}\n\
         pool_mode = session\n\
         max_client_conn = {connections_max}\n\
         default_pool_size = {connections_max}\n\
         log_connections = 0\n\
         log_disconnections = 0\n\
         stats_period = 3600\n"
    )
}

fn haproxy_config(port: u16, server_port: u16, connections_max: u32) -> String {
    format!(
        "global\n  maxconn {connections_max}\n\
         defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 1h\n  timeout server 1h\n\
         listen postgresql\n  bind 127.0.0.1:{port}\n  server one 127.0.0.1:{server_port}\n"
    )
}

fn write_readable(path: &std::path::Path, text: &str) -> Result<(), Error> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
        .map_err(|source| Error::Io { doing: format!("writing {}", path.display()), source })
}
