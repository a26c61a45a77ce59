//! The built program, as its users start it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pgshrink_bench_report::{Result, checkout};
use pgshrink_testkit::netns::Link;
use pgshrink_testkit::{Daemon, Port, run, wait_until};

const START_TIME_MAX: Duration = Duration::from_secs(20);
const LOOPBACK: &str = "127.0.0.1";

/// `target/release/pgshrink`, or what `PGSHRINK_PROGRAM` names.
#[derive(Debug, Clone)]
pub struct Product {
    program: PathBuf,
}

/// A gateway or a connector that listens.
#[derive(Debug)]
pub struct Hop {
    /// The process.
    pub daemon: Daemon,
    host: String,
    port: Port,
}

impl Product {
    /// The program, or how to get it.
    pub fn find() -> Result<Product> {
        let named = std::env::var_os("PGSHRINK_PROGRAM").map(PathBuf::from);
        let program = named.unwrap_or_else(|| checkout().join("target/release/pgshrink"));
        let program = program.canonicalize();
        let program = program.map_err(|_| "there is no target/release/pgshrink: run make build")?;
        Ok(Product { program })
    }

    /// A gateway at a free port of `host` in front of a server of this machine; `compression` may be `off`.
    pub fn gateway(&self, host: &str, server_port: u16, compression: &str) -> Result<Hop> {
        self.gateway_with(host, server_port, compression, &[])
    }

    /// As [`Product::gateway`], with more arguments.
    pub fn gateway_with(
        &self,
        host: &str,
        server_port: u16,
        compression: &str,
        more: &[&str],
    ) -> Result<Hop> {
        let port = Port::reserve()?;
        let mut command = run::command(&self.program);
        command.args(["gateway", "--listen", &format!("{host}:{}", port.number())]);
        command.args(["--server", &format!("host={LOOPBACK},port={server_port}")]);
        // The servers here trust everybody, and behind a link the connector is not local.
        command.args(["--libpq-compression", compression, "--allow-unchallenged", "--log-level", "warn"]);
        Hop::start(command.args(more), host, port)
    }

    /// A connector at a free port of 127.0.0.1.
    pub fn connector(&self, to: &Hop, compression: &str, more: &[&str]) -> Result<Hop> {
        self.connector_to(&to.address(), compression, more)
    }

    /// As [`Product::connector`], to whatever listens at `to`.
    pub fn connector_to(&self, to: &str, compression: &str, more: &[&str]) -> Result<Hop> {
        let port = Port::reserve()?;
        let mut command = run::command(&self.program);
        command.args(["connect", "--listen", &format!("{LOOPBACK}:{}", port.number())]);
        Hop::start(connect(&mut command, to, compression).args(more), LOOPBACK, port)
    }

    /// A connector behind a link, at a free port of every address there, and in `socket_dir` if one is given.
    pub fn connector_behind(
        &self,
        link: &Link,
        to: &Hop,
        compression: &str,
        socket_dir: Option<&Path>,
    ) -> Result<Hop> {
        let port = Port::reserve()?;
        let mut command = link.command(&self.program);
        command.args(["connect", "--listen", &format!("0.0.0.0:{}", port.number())]);
        connect(&mut command, &to.address(), compression);
        if let Some(dir) = socket_dir {
            command.arg("--unix-socket-directory").arg(dir);
        }
        Hop::start(&mut command, &link.far().to_string(), port)
    }
}

impl Hop {
    /// `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port.number())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Processor seconds so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let seconds = self.daemon.cpu_seconds();
        seconds.ok_or_else(|| format!("a hop has ended; it said:\n{}", self.daemon.log()).into())
    }

    fn start(command: &mut Command, host: &str, port: Port) -> Result<Hop> {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PGSHRINK_") {
                command.env_remove(name);
            }
        }
        let daemon = Daemon::spawn(command)?;
        let hop = Hop { daemon, host: host.to_owned(), port };
        let address = hop.address();
        let listens = wait_until(START_TIME_MAX, &format!("{address} to listen"), || {
            std::net::TcpStream::connect(&address).is_ok() || !hop.daemon.is_running()
        });
        if listens.is_err() || !hop.daemon.is_running() {
            return Err(format!("nothing listens at {address}; it said:\n{}", hop.daemon.log()).into());
        }
        Ok(hop)
    }
}

fn connect<'a>(command: &'a mut Command, to: &str, compression: &str) -> &'a mut Command {
    command.args([
        "--target",
        to,
        "--sslmode",
        "disable",
        "--compression",
        compression,
        "--log-level",
        "warn",
    ]);
    if compression != "off" {
        // Going on in plain would only show as a bad ratio.
        command.arg("--required");
    }
    command
}
