//! Data directories and tar files: ours against pg_basebackup's with every compression of the server.

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};

use super::Bench;
use super::data::{Amount, Source};
use super::method::{Format, Method, Tool};
use super::rounds::{Series, rounds};
use super::speed::Speed;

pub const CODECS: [&str; 5] = ["none", "gzip", "lz4", "zstd:level=1", "zstd:level=1:workers=2"];
/// Where that is not asked for.
pub const DEFAULT: &str = "zstd:level=1";
const AUTO: &str = "auto";
pub const PEAK_MIB_MAX: f64 = 256.0;
/// Processor seconds of equal work differ by so much from run to run here.
const NOISE: f64 = 0.05;
/// Of pg_basebackup, for a ratio to be a verdict: processor time comes in hundredths of a second.
const CPU_SECONDS_MIN: f64 = 0.2;
const INCOMPRESSIBLE_MIN: f64 = 0.95;

const COLUMNS: [(&str, Unit); 11] = [
    ("link", Unit::Text),
    ("method", Unit::Text),
    ("time", Unit::Seconds),
    ("times as fast as none", Unit::Ratio),
    ("client CPU s/GB", Unit::Seconds),
    ("to the same codec's", Unit::Ratio),
    ("server CPU s/GB", Unit::Seconds),
    ("to the same codec's", Unit::Ratio),
    ("peak MiB", Unit::Average),
    ("stored", Unit::Bytes),
    ("data to stored", Unit::Ratio),
];
const ABOUT: &str = "`none` is pg_basebackup without compression in the same format. Ratios are taken round by round in \
    turn; `to the same codec's` divides by pg_basebackup's with the same codec, a GB is 10^9 bytes of databases. Backups go \
    into memory: this machine's disk would be all that is seen. Peak is that of the largest process of the program, over all \
    rounds. In the first round ours is compared with the server's manifest (pg_verifybackup).";

/// All ways of one link, measured in turn.
struct Measured {
    speed: Speed,
    methods: Vec<Method>,
    series: Vec<Series>,
    bytes: f64,
}

impl Measured {
    fn of(
        bench: &Bench,
        speed: Speed,
        source: &Source,
        methods: Vec<Method>,
        count: usize,
    ) -> Result<Measured> {
        let series = rounds(count, methods.len(), |at, round| {
            let method = methods[at];
            if method.is_slow() && (round > 0 || speed == Speed::Gigabit) {
                return Ok(None);
            }
            method.run(bench, speed, source, round == 0).map(Some)
        })?;
        Ok(Measured { speed, methods, series, bytes: source.bytes })
    }

    fn at(&self, tool: Tool, format: Format, codec: &'static str) -> Option<&Series> {
        let wanted = Method { tool, format, codec: Some(codec) };
        Some(&self.series[self.methods.iter().position(|method| *method == wanted)?])
    }

    fn none(&self, format: Format) -> Samples {
        self.at(Tool::PgBasebackup, format, "none").map(Series::seconds).unwrap_or_default()
    }

    /// Adds a row for each way.
    fn show(&self, table: &mut Table) {
        for (method, series) in self.methods.iter().zip(&self.series).filter(|(_, series)| !series.is_empty())
        {
            let rival = self.at(Tool::PgBasebackup, method.format, method.codec.unwrap_or("none"));
            let rival = rival.filter(|_| method.tool == Tool::Ours);
            let to_rival = |of: fn(&Series) -> Samples| match rival {
                Some(rival) => of(series).over(&of(rival)).median().into(),
                None => Value::None,
            };
            table.row([
                self.speed.name().into(),
                method.name().into(),
                series.seconds().spread(),
                self.none(method.format).over(&series.seconds()).spread(),
                (series.client_cpu().median() * 1e9 / self.bytes).into(),
                to_rival(Series::client_cpu),
                (series.server_cpu().median() * 1e9 / self.bytes).into(),
                to_rival(Series::server_cpu),
                series.peak_mib().into(),
                series.stored_bytes().into(),
                (self.bytes / series.stored_bytes()).into(),
            ]);
        }
    }

    /// The fastest way of a tool, by its median.
    fn best(&self, tool: Tool, format: Format) -> Option<(Method, &Series)> {
        let all = self.methods.iter().copied().zip(&self.series);
        all.filter(|(method, series)| method.tool == tool && method.format == format && !series.is_empty())
            .min_by(|one, other| one.1.seconds().median().total_cmp(&other.1.seconds().median()))
    }
}

fn methods(bench: &Bench, format: Format, codecs: &[&'static str]) -> Vec<Method> {
    let auto = bench.has_auto.then_some(AUTO);
    let rivals = codecs.iter().map(|codec| Method { tool: Tool::PgBasebackup, format, codec: Some(codec) });
    let ours = codecs.iter().copied().chain(auto);
    rivals.chain(ours.map(|codec| Method { tool: Tool::Ours, format, codec: Some(codec) })).collect()
}

pub(super) fn plain(bench: &Bench) -> Result<Table> {
    let title = "Plain backups beside pg_basebackup's";
    let mut table = Table::new("plain", title, ABOUT, &COLUMNS);
    let all = over_links(bench, Format::Plain, &mut table)?;
    for measured in &all {
        let speed = measured.speed;
        let (Some((theirs, rival)), Some((ours, best))) =
            (measured.best(Tool::PgBasebackup, Format::Plain), measured.best(Tool::Ours, Format::Plain))
        else {
            continue;
        };
        let (line, against) = match speed {
            Speed::Loopback => (1.0, measured.none(Format::Plain)),
            Speed::Gigabit => (1.15, rival.seconds()),
            Speed::Slow => (1.0, rival.seconds()),
        };
        let reached = against.over(&best.seconds()).median();
        let what = if speed == Speed::Loopback { "pg_basebackup none".to_owned() } else { theirs.name() };
        table.verdict(
            &format!("plain, {}: best mode against {what}", speed.name()),
            &format!("at least {line:.2} x as fast"),
            format!("{reached:.3} x ({})", ours.name()),
            reached >= line,
        );
    }
    processor(&all, Format::Plain, &mut table);
    peak(&all, &mut table);
    Ok(table)
}

pub(super) fn tar(bench: &Bench) -> Result<Table> {
    let mut table = Table::new("tar", "Tar backups beside pg_basebackup's", ABOUT, &COLUMNS);
    let all = over_links(bench, Format::Tar, &mut table)?;
    processor(&all, Format::Tar, &mut table);
    peak(&all, &mut table);
    Ok(table)
}

fn over_links(bench: &Bench, format: Format, table: &mut Table) -> Result<Vec<Measured>> {
    let mut all = Vec::new();
    for speed in bench.speeds() {
        let slow = *speed == Speed::Slow;
        let amount = if slow { Amount::Small } else { Amount::Medium };
        let count = if slow { bench.rounds(2, 3) } else { bench.rounds(3, 5) };
        let source = bench.source(amount)?;
        let measured = Measured::of(bench, *speed, source, methods(bench, format, &CODECS), count)?;
        measured.show(table);
        table.about += &format!(" {}: {}, {:.2} GB.", speed.name(), amount.name(), source.bytes / 1e9);
        all.push(measured);
    }
    Ok(all)
}

pub(super) fn incompressible(bench: &Bench) -> Result<Table> {
    let title = "Random data: plain and tar beside pg_basebackup's";
    let mut table = Table::new("incompressible", title, ABOUT, &COLUMNS);
    let source = bench.source(Amount::Noise)?;
    table.about += &format!(" {}, {:.2} GB.", Amount::Noise.name(), source.bytes / 1e9);
    let mut all = Vec::new();
    for speed in bench.speeds() {
        let slow = *speed == Speed::Slow;
        let codecs: &[&str] = if slow { &["none", DEFAULT] } else { &["none", "lz4", DEFAULT] };
        let count = if slow { bench.rounds(1, 2) } else { bench.rounds(3, 5) };
        let mut ways = methods(bench, Format::Plain, codecs);
        ways.extend(methods(bench, Format::Tar, codecs));
        let measured = Measured::of(bench, *speed, source, ways, count)?;
        measured.show(&mut table);
        all.push(measured);
    }
    for format in [Format::Plain, Format::Tar] {
        let best =
            |measured: &Measured| measured.best(Tool::Ours, format).map(|(_, series)| series.seconds());
        against_none(&all, format, "best mode", best, &mut table);
        let usual = if bench.has_auto { AUTO } else { DEFAULT };
        let usual = |measured: &Measured| measured.at(Tool::Ours, format, usual).map(Series::seconds);
        against_none(&all, format, "default", usual, &mut table);
    }
    peak(&all, &mut table);
    Ok(table)
}

fn against_none(
    all: &[Measured],
    format: Format,
    mode: &str,
    of: impl Fn(&Measured) -> Option<Samples>,
    table: &mut Table,
) {
    for measured in all {
        let Some(ours) = of(measured) else { continue };
        let reached = measured.none(format).over(&ours).median();
        table.verdict(
            &format!("incompressible, {format:?}, {}: {mode} against none", measured.speed.name()),
            &format!("at least {INCOMPRESSIBLE_MIN} x as fast"),
            format!("{reached:.3} x"),
            reached >= INCOMPRESSIBLE_MIN,
        );
    }
}

/// Where one needs most processor time of what pg_basebackup needs with the same codec.
fn processor(all: &[Measured], format: Format, table: &mut Table) {
    let client: fn(&Series) -> Samples = Series::client_cpu;
    for (side, of) in [("client", client), ("server", Series::server_cpu)] {
        let mut worst = (f64::MIN, String::new());
        for measured in all {
            for codec in CODECS {
                let ours = measured.at(Tool::Ours, format, codec);
                let Some((ours, rival)) = ours.zip(measured.at(Tool::PgBasebackup, format, codec)) else {
                    continue;
                };
                let ratio = of(ours).over(&of(rival)).median();
                if ratio > worst.0 && of(rival).median() >= CPU_SECONDS_MIN {
                    worst = (ratio, format!("{codec}, {}", measured.speed.name()));
                }
            }
        }
        table.verdict(
            &format!("{format:?}: {side} CPU against pg_basebackup's with the same codec"),
            &format!("at most 1, give or take {NOISE}"),
            format!("{:.3} x at worst ({})", worst.0, worst.1),
            worst.0 <= 1.0 + NOISE,
        );
    }
}

fn peak(all: &[Measured], table: &mut Table) {
    let ours = all.iter().flat_map(|measured| measured.methods.iter().zip(&measured.series));
    let ours = ours.filter(|(method, _)| method.tool == Tool::Ours).map(|(_, series)| series);
    peak_verdict(ours, table);
}

/// Says whether no run of ours had more memory than it may.
pub fn peak_verdict<'a>(ours: impl Iterator<Item = &'a Series>, table: &mut Table) {
    let most = ours.map(Series::peak_mib).fold(0.0, f64::max);
    let what = format!("memory of the program, table {}", table.id);
    table.verdict(
        &what,
        &format!("at most {PEAK_MIB_MAX} MiB"),
        format!("{most:.0} MiB"),
        most <= PEAK_MIB_MAX,
    );
}
