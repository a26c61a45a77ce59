//! pgbench tpcb-like with 256 clients: bytes, and processor time of everybody who takes part.

use std::time::Duration;

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_bench_rivals::Rival;
use pgshrink_testkit::{Cluster, wait_until};

use super::Bench;
use super::load::{self, order};
use super::rate::Between;
use super::way::{Job, Way};

const CLIENTS: u32 = 256;
/// Two runs of all clients may overlap by backends that are about to end.
const CONNECTIONS_MAX: u32 = 600;
const TPS_MIN: f64 = 0.97;
/// Through connector and gateway. Off first.
const ALGORITHMS: [&str; 3] = ["off", "zstd:1", "lz4:1"];

/// What stands between pgbench and the server.
enum Path {
    One(Between),
    Both(&'static str, Box<Way>),
}

/// All rounds through one path.
#[derive(Default)]
struct Done {
    tps: Samples,
    transactions: f64,
    /// Seconds of the hop at the server, of the connector, and of the server.
    cpu_seconds: [f64; 3],
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let (scale, transactions) = if bench.full { (64, 100) } else { (10, 10) };
    let about = format!(
        "pgbench tpcb-like with {CLIENTS} clients at scale {scale}, on one machine whose processors are all busy. \
         `both` is connector and gateway in the default context, preserved; `gateway` is the gateway alone, one hop \
         like pgbouncer, which pools sessions. `tps to off`: transactions per second divided by those through both \
         hops with compression off, round by round in turn. CPU is in ms for 1,000 transactions, connecting \
         {CLIENTS} clients included: of the gateway or the rival, of the connector, and of all the server's \
         processes. Bytes are those between connector and gateway for a transaction, \
         startup included. Each run is of {transactions} transactions of each client."
    );
    let columns = [
        ("work", Unit::Text),
        ("path", Unit::Text),
        ("tps", Unit::PerSecond),
        ("tps to off", Unit::Ratio),
        ("gateway or rival CPU ms", Unit::Ms),
        ("connector CPU ms", Unit::Ms),
        ("server CPU ms", Unit::Ms),
        ("bytes to server", Unit::Average),
        ("of off", Unit::Ratio),
        ("bytes to client", Unit::Average),
        ("of off", Unit::Ratio),
    ];
    let mut table = Table::new("tpcb-256", "tpcb-like with 256 clients", &about, &columns);
    let cluster = load::pgbench_server(scale, CONNECTIONS_MAX)?;
    let mut paths = vec![
        Path::One(Between::Nothing(cluster.port())),
        Path::One(Between::Rival(Rival::PgBouncer, Rival::PgBouncer.start(cluster.port(), CONNECTIONS_MAX)?)),
        Path::One(Between::Gateway(bench.product.gateway("127.0.0.1", cluster.port(), "off")?)),
    ];
    let off = paths.len();
    for algorithm in ALGORITHMS {
        paths.push(Path::Both(algorithm, Box::new(Way::start(bench, &cluster, algorithm, &[])?)));
    }
    let clients = CLIENTS.to_string();
    for protocol in if bench.full { &["simple", "prepared"][..] } else { &["simple"] } {
        let (job, transactions) =
            (Job { script: "tpcb-like", protocol, clients: &clients }, transactions.to_string());
        let mut done: Vec<Done> = paths.iter().map(|_| Done::default()).collect();
        for round in 0..bench.rounds(2, 5) {
            for at in order(round, paths.len()) {
                run(&cluster, &paths[at], job, &transactions, &mut done[at])
                    .map_err(|error| format!("{}: {error}", paths[at].name()))?;
            }
        }
        let mut bytes = Vec::new();
        for path in &paths {
            bytes.push(match path {
                Path::One(_) => None,
                Path::Both(_, way) => Some(way.count(&cluster, job, &transactions)?),
            });
        }
        let counted = done[off].transactions / done[off].tps.count() as f64;
        for (at, path) in paths.iter().enumerate() {
            table.push(row(path, protocol, [&done[at], &done[off]], [bytes[at], bytes[off]], counted));
        }
        verdicts(&mut table, protocol, &done[off..], &bytes[off..]);
    }
    Ok(table)
}

/// A row of a path; `done` and `bytes` are its own and those of both hops with compression off, the bytes of
/// `counted` transactions.
fn row(
    path: &Path,
    protocol: &str,
    done: [&Done; 2],
    bytes: [Option<[u64; 2]>; 2],
    counted: f64,
) -> Vec<Value> {
    let [done, off] = done;
    let mut cells = vec![format!("-M {protocol}").into(), path.name().into()];
    cells.extend([done.tps.median().into(), done.tps.over(&off.tps).spread()]);
    for (seconds, measured) in done.cpu_seconds.iter().zip(path.has_processes()) {
        let ms = Value::from(seconds * 1e3 / done.transactions * 1e3);
        cells.push(if measured { ms } else { Value::None });
    }
    for way in 0..2 {
        let [found, off] = bytes.map(|bytes| bytes.map(|both| both[way] as f64));
        cells.push(found.map_or(Value::None, |found| (found / counted).into()));
        cells.push(found.zip(off).map_or(Value::None, |(found, off)| (found / off).into()));
    }
    cells
}

/// `done` and `bytes` are those of [`ALGORITHMS`].
fn verdicts(table: &mut Table, protocol: &str, done: &[Done], bytes: &[Option<[u64; 2]>]) {
    let sum = |at: usize| bytes[at].map_or(f64::NAN, |[to_server, to_client]| (to_server + to_client) as f64);
    for (at, algorithm) in ALGORITHMS.iter().enumerate().skip(1) {
        let tps = done[at].tps.over(&done[0].tps).median();
        table.verdict(
            &format!(
                "tpcb-like with {CLIENTS} clients -M {protocol}, TPS at {algorithm} against off, same hops"
            ),
            &format!("at least {TPS_MIN}"),
            format!("{tps:.3}"),
            tps >= TPS_MIN,
        );
        let of_off = sum(at) / sum(0);
        table.verdict(
            &format!("tpcb-like with {CLIENTS} clients -M {protocol}, bytes both ways at {algorithm}"),
            "below off",
            format!("{of_off:.3} of off"),
            of_off < 1.0,
        );
    }
}

fn run(cluster: &Cluster, path: &Path, job: Job<'_>, transactions: &str, done: &mut Done) -> Result<()> {
    let before = cpu_seconds(cluster, path)?;
    // Not for some seconds: a busy machine may spend them on connecting.
    let result = job.run(cluster, path.port(), &["-t", transactions])?;
    // A pooler keeps its own idle.
    let busy =
        "select count(*) = 1 from pg_stat_activity where backend_type = 'client backend' and state <> 'idle'";
    wait_until(Duration::from_secs(60), "the backends to be idle or gone", || {
        cluster.sql(busy).is_ok_and(|answer| answer == "t")
    })?;
    let after = cpu_seconds(cluster, path)?;
    for (sum, (after, before)) in done.cpu_seconds.iter_mut().zip(after.into_iter().zip(before)) {
        *sum += after - before;
    }
    done.tps.push(result.tps);
    done.transactions += result.transactions;
    Ok(())
}

fn cpu_seconds(cluster: &Cluster, path: &Path) -> Result<[f64; 3]> {
    let server = cluster.cpu_seconds().ok_or("the server has ended")?;
    let [gateway, connector] = match path {
        Path::One(between) => [between.cpu_seconds().unwrap_or_default(), 0.0],
        Path::Both(_, way) => way.cpu_seconds()?,
    };
    Ok([gateway, connector, server])
}

impl Path {
    fn name(&self) -> String {
        match self {
            Path::One(Between::Gateway(_)) => "gateway, off".to_owned(),
            Path::One(between) => between.name().to_owned(),
            Path::Both(algorithm, _) => format!("both, {algorithm}"),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Path::One(between) => between.port(),
            Path::Both(_, way) => way.port(),
        }
    }

    /// Whose seconds there are: of a hop at the server, of a connector, of the server.
    fn has_processes(&self) -> [bool; 3] {
        [!matches!(self, Path::One(Between::Nothing(_))), matches!(self, Path::Both(..)), true]
    }
}
