//! One and two hops: processor time against the codec alone, rates against the rivals.

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_bench_rivals::{Rival, Running};
use pgshrink_codec::{Algorithm, Choice};
use pgshrink_testkit::{Cluster, corpora};
use pgshrink_wire::policy::{FRAME_SIZE_DEFAULT, WINDOW_LOG_DEFAULT};

use super::Bench;
use super::load::{self, order};
use super::product::Hop;
use crate::source::{Form, Source};
use crate::yardstick::codec_alone;

/// Connector and gateway against the codec alone.
const CPU_TO_CODEC_MAX: f64 = 1.5;
const CPU_CORPORA: [&str; 4] = ["deb_package", "flights", "stock_price", "cve_record"];
/// Plain bytes a round carries at least: CPU time comes in hundredths of a second.
const ROUND_BYTES_MIN: usize = 120_000_000;

pub(super) fn cpu(bench: &Bench) -> Result<Table> {
    let about = "COPY OUT by psql through connector and gateway on one machine: user and system seconds of both processes \
        per 10^9 plain bytes, sockets and all. The codec alone compresses and decompresses the same messages in chunks of \
        64 KiB in one thread. Round by round in turn. `off` is the same hops without compression: what moving costs.";
    let columns = [
        ("corpus", Unit::Text),
        ("algorithm", Unit::Text),
        ("codec alone, s/GB", Unit::Seconds),
        ("connector + gateway, s/GB", Unit::Seconds),
        ("of it gateway", Unit::Seconds),
        ("hops off, s/GB", Unit::Seconds),
        ("hops to codec", Unit::Ratio),
    ];
    let mut table = Table::new("hop-cpu", "Processor time end to end", about, &columns);
    let mut source = Source::start(true)?;
    let mut worst = (f64::MIN, String::new());
    for name in CPU_CORPORA {
        let answer = source.answer(&corpora::find(name)?, Form::Copy)?;
        for (algorithm, level) in [(Algorithm::Zstd, 1), (Algorithm::Lz4, 1)] {
            let choice = Choice::new(algorithm, level)?;
            let figures = cpu_of(bench, source.cluster(), name, choice, &answer)?;
            let ratio = figures.hops.over(&figures.codec);
            if algorithm == Algorithm::Zstd && ratio.median() > worst.0 {
                worst = (ratio.median(), name.to_owned());
            }
            table.row([
                name.into(),
                choice.to_string().into(),
                figures.codec.spread(),
                figures.hops.spread(),
                figures.gateway.median().into(),
                figures.off.median().into(),
                ratio.spread(),
            ]);
        }
    }
    table.verdict(
        "CPU of connector + gateway per GB at zstd:1 against the codec alone on the same chunks",
        &format!("at most {CPU_TO_CODEC_MAX}"),
        format!("{:.3} at worst ({})", worst.0, worst.1),
        worst.0 <= CPU_TO_CODEC_MAX,
    );
    Ok(table)
}

#[derive(Debug, Default)]
struct Cpu {
    codec: Samples,
    hops: Samples,
    gateway: Samples,
    off: Samples,
}

fn cpu_of(bench: &Bench, cluster: &Cluster, table: &str, choice: Choice, answer: &[u8]) -> Result<Cpu> {
    let pair = |compression: &str| -> Result<[Hop; 2]> {
        let gateway = bench.product.gateway("127.0.0.1", cluster.port(), compression)?;
        let connector = bench.product.connector(&gateway, compression, &[])?;
        Ok([gateway, connector])
    };
    let (on, off) = (pair(&choice.to_string())?, pair("off")?);
    let times = ROUND_BYTES_MIN.div_ceil(answer.len());
    let gigabytes = answer.len() as f64 / 1e9;
    let carry = |hops: &[Hop; 2]| -> Result<[f64; 2]> {
        let before = [hops[0].cpu_seconds()?, hops[1].cpu_seconds()?];
        for _ in 0..times {
            let sql = format!("copy \"{table}\" to stdout");
            load::seconds_told_by(&mut load::psql(cluster, "127.0.0.1", hops[1].port(), &sql))?;
        }
        let used = |at: usize| Ok::<_, pgshrink_bench_report::Error>(hops[at].cpu_seconds()? - before[at]);
        let per_gigabyte = |seconds: f64| seconds / (gigabytes * times as f64);
        Ok([per_gigabyte(used(0)?), per_gigabyte(used(1)?)])
    };
    let mut figures = Cpu::default();
    for _ in 0..bench.rounds(3, 7) {
        let alone = codec_alone(choice, WINDOW_LOG_DEFAULT, answer, FRAME_SIZE_DEFAULT)?;
        figures.codec.push(alone.seconds() / gigabytes);
        let [gateway, connector] = carry(&on)?;
        figures.hops.push(gateway + connector);
        figures.gateway.push(gateway);
        let [gateway, connector] = carry(&off)?;
        figures.off.push(gateway + connector);
    }
    Ok(figures)
}

/// What stands between client and server.
#[derive(Debug)]
enum Between {
    Nothing(u16),
    Gateway(Hop),
    Rival(Rival, Running),
}

impl Between {
    fn name(&self) -> &'static str {
        match self {
            Between::Nothing(_) => "direct",
            Between::Gateway(_) => "pgshrink",
            Between::Rival(rival, _) => rival.name(),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Between::Nothing(port) => *port,
            Between::Gateway(hop) => hop.port(),
            Between::Rival(_, running) => running.port(),
        }
    }

    fn cpu_seconds(&self) -> f64 {
        match self {
            Between::Nothing(_) => 0.0,
            Between::Gateway(hop) => hop.daemon.cpu_seconds().unwrap_or(f64::NAN),
            Between::Rival(_, running) => running.daemon.cpu_seconds().unwrap_or(f64::NAN),
        }
    }
}

/// One hop without compression, and what it is asked to do.
// tidy: long, one table with its lines and columns is read from top to bottom
pub(super) fn rate(bench: &Bench) -> Result<Table> {
    let about = "One hop on the same machine, compression off: what pgbench and psql reach through each, in turn within a \
        round. `to direct`, `to pgbouncer`, `to HAProxy`: pgshrink's rate divided by theirs, round by round. CPU is the \
        hop's own, per transaction or per 10^6 bytes. pgbouncer pools sessions; HAProxy relays TCP with as many threads \
        as there are cores.";
    let columns = [
        ("work", Unit::Text),
        ("unit", Unit::Text),
        ("direct", Unit::PerSecond),
        ("pgshrink", Unit::PerSecond),
        ("pgbouncer", Unit::PerSecond),
        ("HAProxy", Unit::PerSecond),
        ("to direct", Unit::Ratio),
        ("to pgbouncer", Unit::Ratio),
        ("to HAProxy", Unit::Ratio),
        ("CPU us pgshrink", Unit::Ms),
        ("CPU us pgbouncer", Unit::Ms),
        ("CPU us HAProxy", Unit::Ms),
    ];
    let mut table = Table::new("hop-rate", "One hop against the rivals", about, &columns);
    let cluster = load::pgbench_server(10)?;
    let corpus = corpora::find("flights")?;
    corpus.load(&cluster)?;
    cluster.sql("create unlogged table copied as select * from flights limit 0")?;
    let hops = [
        Between::Nothing(cluster.port()),
        Between::Gateway(bench.product.gateway("127.0.0.1", cluster.port(), "off")?),
        Between::Rival(Rival::PgBouncer, Rival::PgBouncer.start(cluster.port(), 100)?),
        Between::Rival(Rival::HaProxy, Rival::HaProxy.start(cluster.port(), 100)?),
    ];
    let text = cluster.psql().arg("-c").arg("copy flights to stdout").run()? + "\n";
    let seconds = if bench.full { "10" } else { "3" };
    let mut works: Vec<(String, &str, Work<'_>)> = Vec::new();
    for (clients, protocol) in [("8", "simple"), ("8", "prepared"), ("16", "simple"), ("16", "prepared")] {
        let (cluster, name) = (&cluster, format!("pgbench -S -c {clients} -M {protocol}"));
        let run = move |port| -> Result<(f64, f64)> {
            let run = ["-S", "-T", seconds, "-c", clients, "-j", "2", "-M", protocol];
            let done = load::pgbench(cluster, port, &run)?;
            Ok((done.tps, done.transactions))
        };
        works.push((name, "transactions/s", Box::new(run)));
    }
    let megabytes = text.len() as f64 / 1e6;
    let copies = bench.rounds(2, 4);
    works.push((
        "COPY OUT, flights".to_owned(),
        "MB/s",
        Box::new(|port| {
            let mut total = 0.0;
            for _ in 0..copies {
                let sql = "copy flights to stdout";
                total += load::seconds_told_by(&mut load::psql(&cluster, "127.0.0.1", port, sql))?;
            }
            Ok((megabytes * copies as f64 / total, megabytes * copies as f64))
        }),
    ));
    works.push((
        "COPY IN, flights".to_owned(),
        "MB/s",
        Box::new(|port| {
            cluster.sql("truncate copied")?;
            let psql = cluster.psql().at("127.0.0.1", port).set("sslmode", "disable");
            let psql = psql.arg("-c").arg("copy copied from stdin").input(text.as_bytes());
            let began = std::time::Instant::now();
            psql.run()?;
            Ok((megabytes / began.elapsed().as_secs_f64(), megabytes))
        }),
    ));
    for (name, unit, work) in works {
        let row = rate_row(&name, unit, &hops, work, bench.rounds(3, 9))?;
        judge(&mut table, &name, &row);
        table.push(row.cells);
    }
    Ok(table)
}

/// Does it through a port; the rate, and how much was done.
type Work<'a> = Box<dyn Fn(u16) -> Result<(f64, f64)> + 'a>;

struct Row {
    cells: Vec<Value>,
    to_rivals: [f64; 2],
}

fn rate_row(name: &str, unit: &str, hops: &[Between; 4], work: Work<'_>, rounds: usize) -> Result<Row> {
    let mut rates: [Samples; 4] = Default::default();
    let mut cpu: [Samples; 4] = Default::default();
    for round in 0..rounds {
        for at in order(round, hops.len()) {
            let before = hops[at].cpu_seconds();
            let (rate, done) = work(hops[at].port()).map_err(|e| format!("{}: {e}", hops[at].name()))?;
            rates[at].push(rate);
            cpu[at].push((hops[at].cpu_seconds() - before) * 1e6 / done);
        }
    }
    let to = [0, 2, 3].map(|other| rates[1].over(&rates[other]));
    let mut cells: Vec<Value> = vec![name.into(), unit.into()];
    cells.extend(rates.iter().map(|rate| Value::from(rate.median())));
    cells.extend(to.iter().map(Samples::spread));
    cells.extend([1, 2, 3].map(|at| Value::from(cpu[at].median())));
    Ok(Row { cells, to_rivals: [to[1].median(), to[2].median()] })
}

fn judge(table: &mut Table, name: &str, row: &Row) {
    let [pgbouncer, haproxy] = row.to_rivals;
    table.verdict(
        &format!("{name}, one hop, compression off"),
        "at least pgbouncer and HAProxy (1.0)",
        format!("{pgbouncer:.3} of pgbouncer, {haproxy:.3} of HAProxy"),
        pgbouncer.min(haproxy) >= 1.0,
    );
}
