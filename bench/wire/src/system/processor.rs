//! Processor time of connector and gateway against the codec alone.

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_codec::{Algorithm, Choice};
use pgshrink_testkit::{Cluster, corpora};
use pgshrink_wire::policy::{FRAME_SIZE_DEFAULT, WINDOW_LOG_DEFAULT};

use super::Bench;
use super::load;
use super::product::Hop;
use crate::TIMED_CORPORA;
use crate::source::{Form, Source};
use crate::yardstick::codec_alone;

/// Connector and gateway against the codec alone.
const CPU_TO_CODEC_MAX: f64 = 1.5;
/// Plain bytes a round carries at least: CPU time comes in hundredths of a second.
const ROUND_BYTES_MIN: usize = 120_000_000;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "COPY OUT by psql through connector and gateway on one machine: user and system seconds of both processes \
        per 10^9 plain bytes, sockets and all. The codec alone compresses and decompresses the same messages in chunks of \
        120 KiB in one thread. Round by round in turn. `off` is the same hops without compression: what moving costs.";
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
    for name in TIMED_CORPORA {
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
    for _ in 0..bench.rounds(3, 5) {
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
