//! pgbench with compression against the same hops without.

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::relay::{Endpoint, Relay};
use pgshrink_testkit::{Cluster, wait_until};

use super::Bench;
use super::load::{self, order};
use super::product::Hop;

const TPS_MIN: f64 = 0.97;
const ALGORITHMS: [&str; 3] = ["off", "zstd:1", "lz4:1"];

/// Connector and gateway of one algorithm, and a second connector whose way to the gateway is counted.
struct Way {
    gateway: Hop,
    connector: Hop,
    counted: Hop,
    relay: Relay,
}

// tidy: long, one table with its lines and columns is read from top to bottom
pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "pgbench with 8 clients through connector and gateway on one machine: transactions per second with \
        compression, divided by those of the same hops without, round by round in turn. Bytes are those between connector \
        and gateway in a run of a fixed number of transactions by 8 clients, against off.";
    let columns = [
        ("work", Unit::Text),
        ("tps off", Unit::PerSecond),
        ("zstd:1 to off", Unit::Ratio),
        ("lz4:1 to off", Unit::Ratio),
        ("CPU us off", Unit::Ms),
        ("CPU us zstd:1", Unit::Ms),
        ("CPU us lz4:1", Unit::Ms),
        ("to server, off", Unit::Bytes),
        ("zstd:1", Unit::Ratio),
        ("lz4:1", Unit::Ratio),
        ("to client, off", Unit::Bytes),
        ("zstd:1", Unit::Ratio),
        ("lz4:1", Unit::Ratio),
    ];
    let mut table = Table::new("pgbench", "pgbench with compression", about, &columns);
    let cluster = load::pgbench_server(10)?;
    let mut ways = Vec::new();
    for algorithm in ALGORITHMS {
        let gateway = bench.product.gateway("127.0.0.1", cluster.port(), algorithm)?;
        let connector = bench.product.connector(&gateway, algorithm, &[])?;
        let relay = Relay::to(Endpoint::local(gateway.port())).start()?;
        let counted = bench.product.connector_to(&format!("127.0.0.1:{}", relay.port()), algorithm, &[])?;
        ways.push(Way { gateway, connector, counted, relay });
    }
    let mut worst = (f64::MAX, String::new());
    for (script, protocol) in [
        ("select-only", "simple"),
        ("select-only", "prepared"),
        ("tpcb-like", "simple"),
        ("tpcb-like", "prepared"),
    ] {
        let name = format!("{script} -M {protocol}");
        let (mut tps, mut cpu): ([Samples; 3], [Samples; 3]) = Default::default();
        for round in 0..bench.rounds(5, 15) {
            for at in order(round, ways.len()) {
                let (rate, microseconds) = run(bench, &cluster, &ways[at], script, protocol)?;
                tps[at].push(rate);
                cpu[at].push(microseconds);
            }
        }
        let mut bytes = Vec::new();
        for way in &ways {
            bytes.push(count(&cluster, way, script, protocol)?);
        }
        let to_off = [1, 2].map(|at| tps[at].over(&tps[0]));
        if to_off[0].median() < worst.0 {
            worst = (to_off[0].median(), name.clone());
        }
        let mut cells: Vec<Value> = vec![name.into(), tps[0].median().into()];
        cells.extend(to_off.iter().map(Samples::spread));
        cells.extend(cpu.iter().map(|samples| Value::from(samples.median())));
        let to_off = |on: u64, off: u64| Value::from(on as f64 / off as f64);
        let [off, zstd, lz4] = bytes[..] else { return Err("not as many ways as algorithms".into()) };
        for ((off, zstd), lz4) in off.into_iter().zip(zstd).zip(lz4) {
            cells.extend([off.into(), to_off(zstd, off), to_off(lz4, off)]);
        }
        table.push(cells);
    }
    table.verdict(
        "pgbench TPS at zstd:1 against off, same hops",
        &format!("at least {TPS_MIN}"),
        format!("{:.3} at worst ({})", worst.0, worst.1),
        worst.0 >= TPS_MIN,
    );
    Ok(table)
}

/// Transactions per second, and the hops' processor microseconds for each.
fn run(bench: &Bench, cluster: &Cluster, way: &Way, script: &str, protocol: &str) -> Result<(f64, f64)> {
    let seconds = if bench.full { "5" } else { "2" };
    let before = way.gateway.cpu_seconds()? + way.connector.cpu_seconds()?;
    let arguments = ["-b", script, "-M", protocol, "-c", "8", "-j", "2", "-T", seconds];
    let done = load::pgbench(cluster, way.connector.port(), &arguments)?;
    let used = way.gateway.cpu_seconds()? + way.connector.cpu_seconds()? - before;
    Ok((done.tps, used * 1e6 / done.transactions))
}

/// Bytes to the server and to the client of 8 times 1000 transactions.
fn count(cluster: &Cluster, way: &Way, script: &str, protocol: &str) -> Result<[u64; 2]> {
    let before = way.relay.counts();
    let arguments = ["-b", script, "-M", protocol, "-c", "8", "-j", "2", "-t", "1000"];
    load::pgbench(cluster, way.counted.port(), &arguments)?;
    let quiet = std::time::Duration::from_secs(10);
    wait_until(quiet, "connections to end", || way.relay.open_count() == 0)?;
    let after = way.relay.counts();
    Ok([after.to_server - before.to_server, after.to_client - before.to_client])
}
