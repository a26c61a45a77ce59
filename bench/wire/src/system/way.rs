//! Connector and gateway of one setting, and what they cost.

use std::time::Duration;

use pgshrink_bench_report::Result;
use pgshrink_testkit::relay::{Endpoint, Relay};
use pgshrink_testkit::{Cluster, wait_until};

use super::Bench;
use super::load::{self, Pgbench};
use super::product::Hop;

/// Connector and gateway of one setting, and a second connector whose way to the gateway is counted.
#[derive(Debug)]
pub struct Way {
    gateway: Hop,
    connector: Hop,
    counted: Hop,
    relay: Relay,
}

/// A load of pgbench.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The built-in script.
    pub script: &'a str,
    /// `simple` or `prepared`.
    pub protocol: &'a str,
    /// How many.
    pub clients: &'a str,
}

impl Job<'_> {
    /// Runs it through `port`; `more` says at least how long: `-T` and seconds, or `-t` and transactions of each
    /// client.
    pub fn run(self, cluster: &Cluster, port: u16, more: &[&str]) -> Result<Pgbench> {
        let job = ["-b", self.script, "-M", self.protocol, "-c", self.clients, "-j", "2"];
        load::pgbench(cluster, port, &[&job[..], more].concat())
    }
}

impl Way {
    /// Starts them in front of `cluster`; `more` are arguments of both ends.
    pub fn start(bench: &Bench, cluster: &Cluster, algorithm: &str, more: &[&str]) -> Result<Way> {
        let gateway = bench.product.gateway_with("127.0.0.1", cluster.port(), algorithm, more)?;
        let connector = bench.product.connector(&gateway, algorithm, more)?;
        let relay = Relay::to(Endpoint::local(gateway.port())).start()?;
        let to_relay = format!("127.0.0.1:{}", relay.port());
        let counted = bench.product.connector_to(&to_relay, algorithm, more)?;
        Ok(Way { gateway, connector, counted, relay })
    }

    /// The port of the connector that leads straight to the gateway.
    pub fn port(&self) -> u16 {
        self.connector.port()
    }

    /// The port of the connector that is counted.
    pub fn counted_port(&self) -> u16 {
        self.counted.port()
    }

    /// Processor seconds so far: of the gateway, and of both connectors.
    pub fn cpu_seconds(&self) -> Result<[f64; 2]> {
        Ok([self.gateway.cpu_seconds()?, self.connector.cpu_seconds()? + self.counted.cpu_seconds()?])
    }

    /// Bytes counted so far: to the server, and to the client.
    pub fn bytes(&self) -> [u64; 2] {
        let counts = self.relay.counts();
        [counts.to_server, counts.to_client]
    }

    /// Bytes to the server and to the client of `transactions` of each client.
    pub fn count(&self, cluster: &Cluster, job: Job<'_>, transactions: &str) -> Result<[u64; 2]> {
        let before = self.bytes();
        job.run(cluster, self.counted_port(), &["-t", transactions])?;
        self.wait_until_closed()?;
        let after = self.bytes();
        Ok([after[0] - before[0], after[1] - before[1]])
    }

    /// Waits until no counted connection is open any more.
    pub fn wait_until_closed(&self) -> Result<()> {
        let closed = || self.relay.open_count() == 0;
        Ok(wait_until(Duration::from_secs(30), "connections to end", closed)?)
    }
}
