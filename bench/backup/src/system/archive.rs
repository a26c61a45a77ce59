//! Archives against the tar files of pg_basebackup.

use pgshrink_bench_report::{Result, Samples, Table, Unit};

use super::Bench;
use super::data::Amount;
use super::formats::peak_verdict;
use super::method::{Format, Method, Tool};
use super::rounds::{Series, rounds};
use super::speed::Speed;

/// What is to be reached, as fast as this.
const RIVAL: Method =
    Method { tool: Tool::PgBasebackup, format: Format::Tar, codec: Some("zstd:level=1:workers=2") };
/// What is to be reached, in size.
const RIVAL_SIZE: Method =
    Method { tool: Tool::PgBasebackup, format: Format::Tar, codec: Some("zstd:level=3") };
const OURS: [Method; 4] = [
    Method { tool: Tool::Ours, format: Format::Archive, codec: None },
    Method { tool: Tool::Ours, format: Format::Archive, codec: Some("zstd:level=1:workers=2") },
    Method { tool: Tool::Ours, format: Format::Archive, codec: Some("none") },
    Method { tool: Tool::Ours, format: Format::ArchiveParallel, codec: None },
];
const SIZE_MIN: f64 = 1.3;
const CPU_MAX: f64 = 3.0;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "Archives in their default mode (level 3, two threads on this machine), over one BASE_BACKUP and over the \
        connections of the parallel route, beside pg_basebackup's tar. Ratios are to its tar with zstd:1:workers=2, round by \
        round in turn; of the size to its tar with zstd:3. CPU is that of client and server, which share this machine's \
        processors. In the first round each archive is restored and compared with its manifest.";
    let columns = [
        ("link", Unit::Text),
        ("method", Unit::Text),
        ("time", Unit::Seconds),
        ("times as fast", Unit::Ratio),
        ("client CPU s/GB", Unit::Seconds),
        ("server CPU s/GB", Unit::Seconds),
        ("CPU to it", Unit::Ratio),
        ("peak MiB", Unit::Average),
        ("stored", Unit::Bytes),
        ("data to stored", Unit::Ratio),
        ("smaller than zstd:3", Unit::Ratio),
    ];
    let mut table = Table::new("archive", "Archives beside pg_basebackup's tar", about, &columns);
    let methods: Vec<Method> = [RIVAL, RIVAL_SIZE].into_iter().chain(OURS).collect();
    for speed in bench.speeds() {
        let slow = *speed == Speed::Slow;
        let amount = if slow { Amount::Small } else { Amount::Medium };
        let source = bench.source(amount)?;
        table.about += &format!(" {}: {}, {:.2} GB.", speed.name(), amount.name(), source.bytes / 1e9);
        let count = if slow { bench.rounds(2, 3) } else { bench.rounds(3, 5) };
        let series = rounds(count, methods.len(), |at, round| {
            methods[at].run(bench, *speed, source, round == 0).map(Some)
        })?;
        for (method, one) in methods.iter().zip(&series) {
            table.row([
                speed.name().into(),
                method.name().into(),
                one.seconds().spread(),
                series[0].seconds().over(&one.seconds()).spread(),
                (one.client_cpu().median() * 1e9 / source.bytes).into(),
                (one.server_cpu().median() * 1e9 / source.bytes).into(),
                one.cpu().over(&series[0].cpu()).median().into(),
                one.peak_mib().into(),
                one.stored_bytes().into(),
                (source.bytes / one.stored_bytes()).into(),
                (series[1].stored_bytes() / one.stored_bytes()).into(),
            ]);
        }
        verdicts(*speed, &series, &mut table);
    }
    Ok(table)
}

fn verdicts(speed: Speed, series: &[Series], table: &mut Table) {
    let ours = &series[2..];
    let time_min = match speed {
        Speed::Loopback => None,
        Speed::Gigabit => Some(0.7),
        Speed::Slow => Some(1.0),
    };
    let fastness = |one: &Series| series[0].seconds().over(&one.seconds()).median();
    let cpu = |one: &Series| -> Samples { one.cpu().over(&series[0].cpu()) };
    let best = ours.iter().zip(OURS).max_by(|one, other| fastness(one.0).total_cmp(&fastness(other.0)));
    if let (Some(line), Some((best, method))) = (time_min, best) {
        for (one, name) in [(&ours[0], OURS[0].name()), (best, method.name())] {
            let reached = fastness(one);
            table.verdict(
                &format!("archive, {}: against tar zstd:1:workers=2, {name}", speed.name()),
                &format!("at least {line} x as fast"),
                format!("{reached:.3} x"),
                reached >= line,
            );
        }
        let reached = cpu(&ours[0]).median();
        table.verdict(
            &format!("archive, {}: CPU against tar zstd:1:workers=2, default", speed.name()),
            &format!("at most {CPU_MAX} x"),
            format!("{reached:.3} x"),
            reached <= CPU_MAX,
        );
    }
    let smaller = series[1].stored_bytes() / ours[0].stored_bytes();
    table.verdict(
        &format!("archive, {}: smaller than tar zstd:3", speed.name()),
        &format!("at least {SIZE_MIN} x"),
        format!("{smaller:.3} x"),
        smaller >= SIZE_MIN,
    );
    peak_verdict(ours.iter(), table);
}
