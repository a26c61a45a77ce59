//! One hop with compression off against the rivals.

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_bench_rivals::{Rival, Running};
use pgshrink_testkit::{Cluster, corpora};

use super::Bench;
use super::load::{self, order};
use super::product::Hop;

/// Position of ours among the hops.
const OURS: usize = 1;
const PGBENCH: [(&str, &str); 4] = [("8", "simple"), ("8", "prepared"), ("16", "simple"), ("16", "prepared")];
/// COPY of the table in one measurement: long enough for clocks that tick a hundred times a second.
const COPIES: usize = 3;

/// What stands between client and server.
#[derive(Debug)]
pub(super) enum Between {
    /// The server's own port.
    Nothing(u16),
    /// A gateway alone.
    Gateway(Hop),
    /// pgbouncer or HAProxy.
    Rival(Rival, Running),
}

impl Between {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Between::Nothing(_) => "direct",
            Between::Gateway(_) => "pgshrink",
            Between::Rival(rival, _) => rival.name(),
        }
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Between::Nothing(port) => *port,
            Between::Gateway(hop) => hop.port(),
            Between::Rival(_, running) => running.port(),
        }
    }

    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        match self {
            Between::Nothing(_) => None,
            Between::Gateway(hop) => hop.daemon.cpu_seconds(),
            Between::Rival(_, running) => running.daemon.cpu_seconds(),
        }
    }
}

/// What a hop was asked to do, over all rounds.
#[derive(Debug, Default, Clone)]
struct Done {
    rates: Samples,
    amount: f64,
    cpu_seconds: f64,
}

/// Does something through a port; the rate, and how much was done.
type Work<'a> = Box<dyn Fn(u16) -> Result<(f64, f64)> + 'a>;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "One hop on the same machine, compression off: transactions per second of pgbench, or 10^6 bytes per second of \
        psql's COPY, through each hop in turn within a round. `pgshrink to it`: our rate divided by that hop's, round by \
        round. CPU is the hop's own, for a transaction or for 10^6 bytes. pgbouncer pools sessions; HAProxy relays TCP with \
        as many threads as there are cores.";
    let columns = [
        ("work", Unit::Text),
        ("hop", Unit::Text),
        ("rate", Unit::PerSecond),
        ("pgshrink to it", Unit::Ratio),
        ("CPU us", Unit::Ms),
    ];
    let mut table = Table::new("hop-rate", "One hop against the rivals", about, &columns);
    let cluster = load::pgbench_server(10, 200)?;
    corpora::find("flights")?.load(&cluster)?;
    cluster.sql("create unlogged table copied (like flights)")?;
    let text = cluster.psql().arg("-c").arg("copy flights to stdout").run()? + "\n";
    let hops = [
        Between::Nothing(cluster.port()),
        Between::Gateway(bench.product.gateway("127.0.0.1", cluster.port(), "off")?),
        Between::Rival(Rival::PgBouncer, Rival::PgBouncer.start(cluster.port(), 100)?),
        Between::Rival(Rival::HaProxy, Rival::HaProxy.start(cluster.port(), 100)?),
    ];
    for (name, rounds, work) in works(bench, &cluster, &text) {
        let done = measure(&hops, &work, rounds)?;
        let to = |other: usize| done[OURS].rates.over(&done[other].rates);
        for (at, (hop, done)) in hops.iter().zip(&done).enumerate() {
            let ratio = if at == OURS { Value::None } else { to(at).spread() };
            let cpu = Value::from(done.cpu_seconds * 1e6 / done.amount);
            let cpu = if hop.cpu_seconds().is_some() { cpu } else { Value::None };
            table.row([name.clone().into(), hop.name().into(), done.rates.median().into(), ratio, cpu]);
        }
        let [pgbouncer, haproxy] = [2, 3].map(|rival| to(rival).median());
        table.verdict(
            &format!("{name}, one hop, compression off"),
            "at least pgbouncer and HAProxy (1.0)",
            format!("{pgbouncer:.3} of pgbouncer, {haproxy:.3} of HAProxy"),
            pgbouncer.min(haproxy) >= 1.0,
        );
    }
    Ok(table)
}

fn works<'a>(bench: &Bench, cluster: &'a Cluster, text: &'a str) -> Vec<(String, usize, Work<'a>)> {
    let seconds = if bench.full { "2" } else { "1" };
    let mut works: Vec<(String, usize, Work<'a>)> = Vec::new();
    for (clients, protocol) in PGBENCH {
        let work = move |port| {
            let arguments = ["-S", "-T", seconds, "-c", clients, "-j", "2", "-M", protocol];
            let done = load::pgbench(cluster, port, &arguments)?;
            Ok((done.tps, done.transactions))
        };
        let name = format!("pgbench -S -c {clients} -M {protocol}");
        works.push((name, bench.rounds(5, 11), Box::new(work)));
    }
    let megabytes = (COPIES * text.len()) as f64 / 1e6;
    let copy_out = move |port| {
        let mut seconds = 0.0;
        for _ in 0..COPIES {
            let mut psql = load::psql(cluster, "127.0.0.1", port, "copy flights to stdout");
            seconds += load::seconds_told_by(&mut psql)?;
        }
        Ok((megabytes / seconds, megabytes))
    };
    let copy_in = move |port| {
        let mut seconds = 0.0;
        for _ in 0..COPIES {
            cluster.sql("truncate copied")?;
            let psql = cluster.psql().at("127.0.0.1", port).set("sslmode", "disable");
            let psql = psql.arg("-c").arg("\\timing on").arg("-c").arg("copy copied from stdin");
            seconds += load::told_seconds(&psql.input(text.as_bytes()).run()?)?;
        }
        Ok((megabytes / seconds, megabytes))
    };
    works.push(("COPY OUT, flights".to_owned(), bench.rounds(5, 11), Box::new(copy_out)));
    works.push(("COPY IN, flights".to_owned(), bench.rounds(5, 11), Box::new(copy_in)));
    works
}

fn measure(hops: &[Between; 4], work: &Work<'_>, rounds: usize) -> Result<[Done; 4]> {
    let mut done: [Done; 4] = Default::default();
    for round in 0..rounds {
        for at in order(round, hops.len()) {
            let before = hops[at].cpu_seconds().unwrap_or_default();
            let (rate, amount) = work(hops[at].port()).map_err(|e| format!("{}: {e}", hops[at].name()))?;
            done[at].rates.push(rate);
            done[at].amount += amount;
            done[at].cpu_seconds += hops[at].cpu_seconds().unwrap_or_default() - before;
        }
    }
    Ok(done)
}
