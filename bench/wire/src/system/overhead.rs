//! pgbench with compression against the same hops without.

use std::time::Duration;

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::relay::{Endpoint, Relay};
use pgshrink_testkit::{Cluster, wait_until};

use super::Bench;
use super::load::{self, order};
use super::product::Hop;

const TPS_MIN: f64 = 0.97;
/// Name, algorithm, smallest group tried. Off first.
const VARIANTS: [(&str, &str, &str); 4] = [
    ("off", "off", "32"),
    ("zstd:1", "zstd:1", "32"),
    ("zstd:1, --min-size 256", "zstd:1", "256"),
    ("lz4:1", "lz4:1", "32"),
];
const WORKS: [(&str, &str); 4] = [
    ("select-only", "simple"),
    ("select-only", "prepared"),
    ("tpcb-like", "simple"),
    ("tpcb-like", "prepared"),
];
/// Each of 8 clients, in the run that counts bytes.
const COUNTED_TRANSACTIONS: &str = "1000";

/// Connector and gateway of one variant, and a second connector whose way to the gateway is counted.
struct Way {
    gateway: Hop,
    connector: Hop,
    counted: Hop,
    relay: Relay,
}

#[derive(Default)]
struct Done {
    tps: Samples,
    transactions: f64,
    cpu_seconds: f64,
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "pgbench with 8 clients through connector and gateway on one machine, whose processors are all busy: \
        transactions per second, and divided by those of the same hops without compression, round by round in turn. CPU is \
        that of both hops for a transaction. Bytes are those between connector and gateway in a run of 8,000 transactions. \
        32 is the default of `--min-size`; with 256 nothing of pgbench is tried.";
    let columns = [
        ("work", Unit::Text),
        ("compression", Unit::Text),
        ("tps", Unit::PerSecond),
        ("to off", Unit::Ratio),
        ("CPU us", Unit::Ms),
        ("bytes to server", Unit::Bytes),
        ("of off", Unit::Ratio),
        ("bytes to client", Unit::Bytes),
        ("of off", Unit::Ratio),
    ];
    let mut table = Table::new("pgbench", "pgbench with compression", about, &columns);
    let cluster = load::pgbench_server(10)?;
    let mut ways = Vec::new();
    for (_, algorithm, min_size) in VARIANTS {
        ways.push(Way::start(bench, &cluster, algorithm, min_size)?);
    }
    let mut worst = (f64::MAX, String::new());
    for (script, protocol) in WORKS {
        let name = format!("{script} -M {protocol}");
        let mut done: [Done; VARIANTS.len()] = Default::default();
        for round in 0..bench.rounds(5, 11) {
            for at in order(round, ways.len()) {
                ways[at].run(bench, &cluster, script, protocol, &mut done[at])?;
            }
        }
        let mut bytes = Vec::new();
        for way in &ways {
            bytes.push(way.count(&cluster, script, protocol)?);
        }
        for (at, (variant, _, _)) in VARIANTS.iter().enumerate() {
            let to_off = done[at].tps.over(&done[0].tps);
            let mut cells: Vec<Value> = vec![name.clone().into(), (*variant).into()];
            cells.extend([done[at].tps.median().into(), to_off.spread()]);
            cells.push((done[at].cpu_seconds * 1e6 / done[at].transactions).into());
            for (found, off) in bytes[at].into_iter().zip(bytes[0]) {
                cells.extend([found.into(), (found as f64 / off as f64).into()]);
            }
            table.push(cells);
            if *variant == "zstd:1" && to_off.median() < worst.0 {
                worst = (to_off.median(), name.clone());
            }
        }
    }
    table.verdict(
        "pgbench TPS at zstd:1 against off, same hops",
        &format!("at least {TPS_MIN}"),
        format!("{:.3} at worst ({})", worst.0, worst.1),
        worst.0 >= TPS_MIN,
    );
    Ok(table)
}

impl Way {
    fn start(bench: &Bench, cluster: &Cluster, algorithm: &str, min_size: &str) -> Result<Way> {
        let more = ["--min-size", min_size];
        let gateway = bench.product.gateway_with("127.0.0.1", cluster.port(), algorithm, &more)?;
        let connector = bench.product.connector(&gateway, algorithm, &more)?;
        let relay = Relay::to(Endpoint::local(gateway.port())).start()?;
        let to_relay = format!("127.0.0.1:{}", relay.port());
        let counted = bench.product.connector_to(&to_relay, algorithm, &more)?;
        Ok(Way { gateway, connector, counted, relay })
    }

    fn run(
        &self,
        bench: &Bench,
        cluster: &Cluster,
        script: &str,
        protocol: &str,
        done: &mut Done,
    ) -> Result<()> {
        let seconds = if bench.full { "2" } else { "1" };
        let before = self.gateway.cpu_seconds()? + self.connector.cpu_seconds()?;
        let arguments = ["-b", script, "-M", protocol, "-c", "8", "-j", "2", "-T", seconds];
        let result = load::pgbench(cluster, self.connector.port(), &arguments)?;
        done.cpu_seconds += self.gateway.cpu_seconds()? + self.connector.cpu_seconds()? - before;
        done.tps.push(result.tps);
        done.transactions += result.transactions;
        Ok(())
    }

    /// Bytes to the server and to the client of a fixed number of transactions.
    fn count(&self, cluster: &Cluster, script: &str, protocol: &str) -> Result<[u64; 2]> {
        let before = self.relay.counts();
        let arguments = ["-b", script, "-M", protocol, "-c", "8", "-j", "2", "-t", COUNTED_TRANSACTIONS];
        load::pgbench(cluster, self.counted.port(), &arguments)?;
        wait_until(Duration::from_secs(10), "connections to end", || self.relay.open_count() == 0)?;
        let after = self.relay.counts();
        Ok([after.to_server - before.to_server, after.to_client - before.to_client])
    }
}
