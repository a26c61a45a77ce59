//! What the egress meter costs: a gateway that observes against the same without.

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::Cluster;

use super::Bench;
use super::load::{self, order, psql, seconds_told_by};
use super::product::Hop;
use super::way::Job;

const RATE_MIN: f64 = 0.97;
/// Name and arguments. The first is what the others are divided by; the second is the same, and shows how far equal things are
/// apart here.
const VARIANTS: [(&str, &[&str]); 3] =
    [("off", &[]), ("off, another process", &[]), ("`--observe`", &["--observe"])];
const SCALE: u32 = 20;

/// What is asked.
enum Work {
    Pgbench(Job<'static>),
    /// COPY of a table's rows, so often in a run.
    Copy(&'static str),
}

const WORKS: [(&str, Work); 4] = [
    (
        "pgbench -S -M prepared",
        Work::Pgbench(Job { script: "select-only", protocol: "prepared", clients: "8" }),
    ),
    ("pgbench -S", Work::Pgbench(Job { script: "select-only", protocol: "simple", clients: "8" })),
    ("COPY of pgbench_accounts", Work::Copy("copy pgbench_accounts to stdout")),
    ("COPY of rows of 1 KB", Work::Copy("copy wide to stdout")),
];

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "One gateway that observes, beside two that do not, in front of one server on a machine whose processors are \
        all busy: transactions, or COPY, per second, divided by those of the first, round by round in turn. CPU is that of the \
        gateway for a transaction or a COPY. pgbench runs 8 clients. Nothing is compressed for clients; a quarter of a percent of a \
        processor for each worker is spent on samples.";
    let columns = [
        ("work", Unit::Text),
        ("gateway", Unit::Text),
        ("per second", Unit::PerSecond),
        ("to off", Unit::Ratio),
        ("CPU us", Unit::Ms),
    ];
    let mut table = Table::new("observe", "What observing costs", about, &columns);
    let cluster = load::pgbench_server(SCALE, 100)?;
    cluster.sql(
        "create table wide as select n, repeat(md5(n::text), 30) as text from generate_series(1, 200000) n",
    )?;
    let mut gateways = Vec::new();
    for (_, more) in VARIANTS {
        gateways.push(bench.product.gateway_with("127.0.0.1", cluster.port(), "zstd:1,lz4:1", more)?);
    }
    let mut worst = (f64::MAX, "");
    for (name, work) in WORKS {
        let mut rates: [Samples; VARIANTS.len()] = Default::default();
        let (mut cpu, mut count) = ([0.0; VARIANTS.len()], [0.0; VARIANTS.len()]);
        for round in 0..bench.rounds(15, 41) {
            for at in order(round, gateways.len()) {
                let before = gateways[at].cpu_seconds()?;
                let (rate, done) = run(bench, &cluster, &gateways[at], &work)?;
                cpu[at] += gateways[at].cpu_seconds()? - before;
                rates[at].push(rate);
                count[at] += done;
            }
        }
        for (at, (variant, _)) in VARIANTS.iter().enumerate() {
            let to_off = rates[at].over(&rates[0]);
            let mut cells: Vec<Value> = vec![name.into(), (*variant).into(), rates[at].median().into()];
            cells.extend([to_off.spread(), (cpu[at] * 1e6 / count[at]).into()]);
            table.push(cells);
            if at == VARIANTS.len() - 1 && to_off.median() < worst.0 {
                worst = (to_off.median(), name);
            }
        }
    }
    table.verdict(
        "pgbench -S and COPY through a gateway that observes, to the same that does not",
        &format!("at least {RATE_MIN}"),
        format!("{:.3} at worst ({})", worst.0, worst.1),
        worst.0 >= RATE_MIN,
    );
    Ok(table)
}

/// How many in a second, and how many there were.
fn run(bench: &Bench, cluster: &Cluster, gateway: &Hop, work: &Work) -> Result<(f64, f64)> {
    match work {
        Work::Pgbench(job) => {
            let done = job.run(cluster, gateway.port(), &["-T", if bench.full { "2" } else { "1" }])?;
            Ok((done.tps, done.transactions))
        }
        Work::Copy(sql) => {
            let seconds = seconds_told_by(&mut psql(cluster, "127.0.0.1", gateway.port(), sql))?;
            Ok((1.0 / seconds, 1.0))
        }
    }
}
