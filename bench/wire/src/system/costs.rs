//! What the two hops cost and save: the same work sent directly, through both hops without compression, and with it.

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::Cluster;
use pgshrink_testkit::corpora;
use pgshrink_testkit::netns::{Link, LinkShape};

use super::Bench;
use super::links::{behind, text_size};
use super::load::{self, order};
use super::way::Job;

const ALGORITHMS: [&str; 2] = ["off", "zstd:1"];
/// Script, clients.
const WORKS: [(&str, &str); 3] = [("tpcb-like", "256"), ("tpcb-like", "8"), ("select-only", "8")];
/// Bytes a second of a link, and the corpora that are copied over it.
const LINKS: [(u64, &[&str]); 2] =
    [(16_000_000, &["flights"]), (125_000_000, &["deb_package", "stock_price"])];

/// Rounds of one work: directly, off, on. Median and ratios are a row.
type Rounds = [Samples; 1 + ALGORITHMS.len()];

fn columns(unit: Unit) -> [(&'static str, Unit); 7] {
    [
        ("work", Unit::Text),
        ("direct", unit),
        ("off", unit),
        ("zstd:1", unit),
        ("off to direct", Unit::Ratio),
        ("zstd:1 to direct", Unit::Ratio),
        ("zstd:1 to off", Unit::Ratio),
    ]
}

fn push(table: &mut Table, work: String, rounds: &Rounds) {
    let [direct, off, on] = rounds;
    let mut cells: Vec<Value> = vec![work.into()];
    cells.extend(rounds.iter().map(|samples| Value::from(samples.median())));
    cells.extend([off.over(direct).spread(), on.over(direct).spread(), on.over(off).spread()]);
    table.push(cells);
}

pub(super) fn transactions(bench: &Bench) -> Result<Table> {
    let about = "pgbench at scale 10 with the protocol `simple`, directly, through connector and gateway with compression \
        off, and with zstd:1, round by round in turn, in transactions per second. Everything is on one machine, whose \
        processors are all busy: what compression saves on a network is not in it.";
    let title = "Transactions: direct, two hops, two hops with zstd";
    let mut table = Table::new("costs-tps", title, about, &columns(Unit::PerSecond));
    let cluster = load::pgbench_server(10, 400)?;
    let (mut hops, mut ports) = (Vec::new(), vec![cluster.port()]);
    for algorithm in ALGORITHMS {
        let gateway = bench.product.gateway("127.0.0.1", cluster.port(), algorithm)?;
        let connector = bench.product.connector(&gateway, algorithm, &[])?;
        ports.push(connector.port());
        hops.extend([gateway, connector]);
    }
    for (script, clients) in WORKS {
        let job = Job { script, protocol: "simple", clients };
        let mut rounds = Rounds::default();
        for round in 0..bench.rounds(3, 9) {
            for at in order(round, ports.len()) {
                let done = job.run(&cluster, ports[at], &["-T", if bench.full { "10" } else { "5" }])?;
                rounds[at].push(done.tps);
            }
        }
        push(&mut table, format!("{script}, {clients} clients"), &rounds);
    }
    Ok(table)
}

pub(super) fn copies(bench: &Bench) -> Result<Table> {
    let about = "Seconds of a COPY OUT by psql behind a link of so many bytes a second (network namespace, veth, tbf): from \
        the server itself, through a connector on psql's side and a gateway on the server's with compression off, and with \
        zstd:1, round by round in turn.";
    let title = "COPY over a link: direct, two hops, two hops with zstd";
    let mut table = Table::new("costs-copy", title, about, &columns(Unit::Seconds));
    for (bytes_per_second, names) in LINKS {
        over(bench, bytes_per_second, names, &mut table)?;
    }
    Ok(table)
}

fn over(bench: &Bench, bytes_per_second: u64, names: &[&str], table: &mut Table) -> Result<()> {
    let link = Link::new(LinkShape::of(bytes_per_second)).map_err(|missing| missing.to_string())??;
    let near = link.near().to_string();
    // Who comes over the link directly reaches the server itself.
    let builder = Cluster::builder().conf("listen_addresses", format!("127.0.0.1,{near}"));
    let cluster = builder.conf("autovacuum", "off").conf("max_wal_size", "4GB").start()?;
    for name in names {
        corpora::find(name)?.load(&cluster)?;
        let mut connectors = Vec::new();
        let mut gateways = Vec::new();
        for algorithm in ALGORITHMS {
            let gateway = bench.product.gateway(&near, cluster.port(), algorithm)?;
            connectors.push(bench.product.connector_behind(&link, &gateway, algorithm, None)?);
            gateways.push(gateway);
        }
        let sql = format!("copy \"{name}\" to stdout");
        let mut rounds = Rounds::default();
        for round in 0..bench.rounds(3, 9) {
            for at in order(round, rounds.len()) {
                let (host, port) = match at {
                    0 => (near.as_str(), cluster.port()),
                    hop => ("127.0.0.1", connectors[hop - 1].port()),
                };
                let psql = load::psql(&cluster, host, port, &sql);
                rounds[at].push(load::seconds_told_by(&mut behind(&link, &psql))?);
            }
        }
        let megabytes = text_size(&cluster, name)? as f64 / 1e6;
        let work = format!("{name}, {megabytes:.1} MB, over {} MB/s", bytes_per_second / 1_000_000);
        push(table, work, &rounds);
    }
    Ok(())
}
