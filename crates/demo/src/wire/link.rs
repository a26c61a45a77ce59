//! The two ways to the server, each with a relay that counts what a network would carry.
//!
//! 1. Both relays stand where the network would be; what moves within a machine is not counted.
//! 2. CPU time is that of the product's processes only.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use pgshrink_testkit::daemon::Signal;
use pgshrink_testkit::port::Port;
use pgshrink_testkit::relay::{Endpoint, RelayBuilder};
use pgshrink_testkit::{Daemon, Psql, Relay};

use super::COMPRESSION;
use super::metrics::WireBytes;
use crate::failure::Failure;
use crate::program::{self, Collected};
use crate::stage::Stage;
use crate::{interrupt, step::Row};

const START_TIME_MAX: Duration = Duration::from_secs(20);
const QUIET_TIME_MAX: Duration = Duration::from_secs(20);
const DRAIN_TIME_MAX: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);
const LOG_TAIL_LINES: usize = 5;
const LOOPBACK: &str = "127.0.0.1";

/// How a client gets to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Without the product.
    Plain,
    /// Through `pgshrink run` around the client.
    Run,
    /// Through `pgshrink connect` beside it.
    Connect,
}

impl Way {
    /// As a phase or an error tells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Run | Way::Connect => COMPRESSION,
        }
    }
}

/// A running connector.
#[derive(Debug)]
pub(super) struct Connector {
    daemon: Daemon,
    port: Port,
}

impl Connector {
    /// Where clients of this machine connect.
    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }
}

/// Relays, gateway and connector.
#[derive(Debug)]
pub(super) struct Link {
    connector: Connector,
    plain: Relay,
    wire: Relay,
    gateway: Daemon,
    _gateway_port: Port,
    metrics_port: Port,
}

/// What a way has used up to a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    size: u64,
    cpu_seconds: f64,
}

/// What something took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) size: u64,
    pub(super) cpu_seconds: f64,
    pub(super) wall: Duration,
}

impl Link {
    /// Starts everything around the server of `stage`.
    pub(super) fn start(stage: &Stage) -> Result<Link, Failure> {
        let (gateway_port, metrics_port) = (Port::reserve()?, Port::reserve()?);
        let server = stage.cluster.port();
        let mut command = product(stage, "gateway");
        command.args(["--listen", &local(gateway_port.number())]);
        command.args(["--server", &format!("host={LOOPBACK},port={server}")]);
        command.args(["--libpq-compression", COMPRESSION]);
        command.args(["--metrics-listen", &local(metrics_port.number())]);
        let gateway = Daemon::spawn(&mut command)?;
        wait_for_port(&gateway, "gateway", gateway_port.number())?;
        let plain = relay(server)?;
        let wire = relay(gateway_port.number())?;
        let connector = start_connector(stage, wire.port(), COMPRESSION)?;
        Ok(Link { connector, plain, wire, gateway, _gateway_port: gateway_port, metrics_port })
    }

    /// A second connector, which asks for another compression.
    pub(super) fn connector(&self, stage: &Stage, compression: &str) -> Result<Connector, Failure> {
        start_connector(stage, self.wire.port(), compression)
    }

    /// The port a client connects to.
    pub(super) fn port(&self, way: Way) -> u16 {
        match way {
            Way::Plain => self.plain.port(),
            Way::Run => self.wire.port(),
            Way::Connect => self.connector.port(),
        }
    }

    /// A libpq connection string.
    pub(super) fn conninfo(&self, stage: &Stage, way: Way, database: &str) -> String {
        stage.cluster.conninfo_at(LOOPBACK, self.port(way), database)
    }

    /// Where the gateway tells its counters.
    pub(super) fn metrics_port(&self) -> u16 {
        self.metrics_port.number()
    }

    /// What the relay before the gateway has delivered so far, and in how many sessions.
    pub(super) fn counted(&self) -> (WireBytes, u64) {
        let counts = self.wire.counts();
        let bytes = WireBytes { to_server: counts.to_server, to_client: counts.to_client };
        (bytes, counts.connections)
    }

    /// Runs psql this way.
    pub(super) fn psql(
        &self,
        stage: &Stage,
        way: Way,
        sql: &str,
        input: Option<File>,
    ) -> Result<(Collected, Used), Failure> {
        let psql = stage.cluster.psql().at(LOOPBACK, self.port(way)).arg("-c").arg(sql);
        let mut command = match way {
            Way::Run => wrapped(stage, &psql.set("compression", COMPRESSION)),
            Way::Plain | Way::Connect => psql.command(),
        };
        let (finished, mut used) = self.measure(way, || program::run(&mut command, input))?;
        if way == Way::Run {
            used.cpu_seconds += finished.cpu_seconds;
        }
        Ok((finished.output, used))
    }

    /// Measures what `act` moves this way; every connection that it opens has to end with it.
    pub(super) fn measure<T>(
        &self,
        way: Way,
        act: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, Used), Failure> {
        let open = self.relay(way).open_count();
        let before = self.reading(way)?;
        let begin = Instant::now();
        let result = act().map_err(|failure| self.explained(way, failure))?;
        let wall = begin.elapsed();
        wait("connections to end", QUIET_TIME_MAX, || self.relay(way).open_count() <= open)?;
        let after = self.reading(way)?;
        Ok((result, after.since(before, wall)))
    }

    /// What this way has used so far.
    pub(super) fn reading(&self, way: Way) -> Result<Reading, Failure> {
        let counts = self.relay(way).counts();
        let cpu_seconds = match way {
            Way::Plain => 0.0,
            Way::Run => cpu_seconds(&self.gateway, "gateway")?,
            Way::Connect => {
                cpu_seconds(&self.gateway, "gateway")? + cpu_seconds(&self.connector.daemon, "connector")?
            }
        };
        Ok(Reading { size: counts.to_server + counts.to_client, cpu_seconds })
    }

    /// Waits until nothing is connected through the gateway.
    pub(super) fn wait_until_idle(&self) -> Result<(), Failure> {
        wait("connections to end", QUIET_TIME_MAX, || self.wire.open_count() == 0)
    }

    /// Asks the gateway to end as an init system does; an error when it does not, or not well.
    pub(super) fn stop_gateway(&self) -> Result<(), Failure> {
        self.gateway.signal(Signal::TERM)?;
        wait("the gateway to end", DRAIN_TIME_MAX, || !self.gateway.is_running())?;
        let status = self.gateway.wait(DRAIN_TIME_MAX)?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::with_advice(format!("the gateway ended with {status}"), self.gateway.log()))
    }

    /// The failure of something that went this way, with what the product had to say.
    pub(super) fn explained(&self, way: Way, failure: Failure) -> Failure {
        if way == Way::Plain || matches!(failure, Failure::Interrupted) {
            return failure;
        }
        let mut said = String::from("what the product said last:");
        for (name, daemon) in [("gateway", &self.gateway), ("connector", &self.connector.daemon)] {
            let log = daemon.log();
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..] {
                said.push_str(&format!("\n  {name}: {line}"));
            }
        }
        Failure::with_advice(failure.to_string(), said)
    }

    fn relay(&self, way: Way) -> &Relay {
        if way == Way::Plain { &self.plain } else { &self.wire }
    }
}

impl Reading {
    pub(super) fn since(self, before: Reading, wall: Duration) -> Used {
        Used {
            size: self.size.saturating_sub(before.size),
            cpu_seconds: (self.cpu_seconds - before.cpu_seconds).max(0.0),
            wall,
        }
    }
}

impl Used {
    /// A row of the table.
    pub(super) fn row(what: impl Into<String>, plain: Used, shrunk: Used, same: bool) -> Row {
        Row {
            what: what.into(),
            plain_size: plain.size,
            shrunk_size: shrunk.size,
            cpu_seconds: shrunk.cpu_seconds,
            plain_wall: plain.wall,
            shrunk_wall: shrunk.wall,
            same,
        }
    }
}

/// Waits for something, or for the user's patience to end.
pub(super) fn wait(what: &str, time_max: Duration, mut done: impl FnMut() -> bool) -> Result<(), Failure> {
    let begin = Instant::now();
    while !done() {
        interrupt::check()?;
        if begin.elapsed() > time_max {
            let what = format!("waited {time_max:?} in vain for {what}");
            return Err(Failure::with_advice(what, "try again on a machine that is less busy"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn relay(upstream: u16) -> Result<Relay, Failure> {
    let builder: RelayBuilder = Relay::to(Endpoint::local(upstream));
    Ok(builder.start()?)
}

fn start_connector(stage: &Stage, to: u16, compression: &str) -> Result<Connector, Failure> {
    let port = Port::reserve()?;
    let mut command = product(stage, "connect");
    command.args(["--listen", &local(port.number()), "--target", &local(to), "--compression", compression]);
    if compression != "off" {
        // Going on in plain would only show as a bad ratio.
        command.arg("--required");
    }
    let daemon = Daemon::spawn(&mut command)?;
    wait_for_port(&daemon, "connector", port.number())?;
    Ok(Connector { daemon, port })
}

/// The product's binary, deaf to the settings of the user's own gateways.
fn product(stage: &Stage, subcommand: &str) -> Command {
    let mut command = pgshrink_testkit::run::command(&stage.pgshrink);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PGSHRINK_") {
            command.env_remove(name);
        }
    }
    command.arg(subcommand);
    command
}

/// `pgshrink run -- psql …`
fn wrapped(stage: &Stage, psql: &Psql) -> Command {
    let psql = psql.command();
    let mut command = product(stage, "run");
    command.args(["--required", "--"]).arg(psql.get_program()).args(psql.get_args());
    command.envs(psql.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

fn local(port: u16) -> String {
    format!("{LOOPBACK}:{port}")
}

fn wait_for_port(daemon: &Daemon, name: &str, port: u16) -> Result<(), Failure> {
    let accepts = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    let waited = wait(&format!("the {name} to listen"), START_TIME_MAX, || !daemon.is_running() || accepts());
    if waited.is_ok() && daemon.is_running() {
        return Ok(());
    }
    interrupt::check()?;
    let ended = if daemon.is_running() { "does not listen" } else { "ended at its start" };
    Err(Failure::with_advice(format!("the {name} {ended}; it said:"), daemon.log()))
}

fn cpu_seconds(daemon: &Daemon, name: &str) -> Result<f64, Failure> {
    daemon.cpu_seconds().filter(|_| daemon.is_running()).ok_or_else(|| {
        Failure::with_advice(format!("the {name} has ended before it should; it said:"), daemon.log())
    })
}
