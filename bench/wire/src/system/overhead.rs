//! pgbench with compression against the same hops without.

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::Cluster;

use super::Bench;
use super::load::{self, order};
use super::way::{Job, Way};

const TPS_MIN: f64 = 0.97;
/// Name, algorithm, smallest group tried. Off first.
const VARIANTS: [(&str, &str, &str); 4] = [
    ("off", "off", "32"),
    ("zstd:1", "zstd:1", "32"),
    ("zstd:1, --min-group-size 256", "zstd:1", "256"),
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
        32 is the default of `--min-group-size`; with 256 nothing of pgbench is tried.";
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
    let cluster = load::pgbench_server(10, 200)?;
    let mut ways = Vec::new();
    for (_, algorithm, min_size) in VARIANTS {
        ways.push(Way::start(bench, &cluster, algorithm, &["--min-group-size", min_size])?);
    }
    let mut worst = (f64::MAX, String::new());
    for (script, protocol) in WORKS {
        let name = format!("{script} -M {protocol}");
        let job = Job { script, protocol, clients: "8" };
        let mut done: [Done; VARIANTS.len()] = Default::default();
        for round in 0..bench.rounds(5, 11) {
            for at in order(round, ways.len()) {
                run(bench, &cluster, &ways[at], job, &mut done[at])?;
            }
        }
        let mut bytes = Vec::new();
        for way in &ways {
            bytes.push(way.count(&cluster, job, COUNTED_TRANSACTIONS)?);
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

fn run(bench: &Bench, cluster: &Cluster, way: &Way, job: Job<'_>, done: &mut Done) -> Result<()> {
    let before = way.cpu_seconds()?;
    let result = job.run(cluster, way.port(), &["-T", if bench.full { "2" } else { "1" }])?;
    let after = way.cpu_seconds()?;
    done.cpu_seconds += after[0] + after[1] - before[0] - before[1];
    done.tps.push(result.tps);
    done.transactions += result.transactions;
    Ok(())
}
