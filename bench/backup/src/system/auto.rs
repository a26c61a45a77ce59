//! What `--compression auto` expects, beside what happens.

use std::collections::BTreeMap;

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::run;
use serde_json::Value as Json;

use super::Bench;
use super::data::{Amount, Source};
use super::measure::{Outcome, measured};
use super::method::{Format, Method, Tool};
use super::rounds::rounds;
use super::speed::Speed;

const FORMATS: [Format; 3] = [Format::Plain, Format::Tar, Format::Archive];
/// Candidates that are taken, as its report has them: all but gzip and zstd:9, which take minutes. What it chooses is taken too.
const CODECS: [&str; 8] = [
    "none",
    "lz4",
    "zstd:level=1",
    "zstd:level=1,workers=2",
    "zstd:level=3",
    "zstd:level=3,workers=2",
    "zstd:level=5",
    "zstd:level=5,workers=2",
];
/// What is chosen takes at most so many times as long as the fastest.
const SLOWER_MAX: f64 = 1.15;

/// What a backup can be taken with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Stream(String),
    Parallel,
}

/// What its report says of a way.
#[derive(Debug, Clone)]
struct Expected {
    bytes_per_second: f64,
    limited_by: String,
    cpu_seconds_per_gb: f64,
}

/// The report of a backup that chose.
#[derive(Debug)]
struct Choice {
    chosen: Way,
    expected: BTreeMap<Way, Expected>,
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "What the product expects of each way before it chooses, and how long each takes then, in turn. `slower` is the median \
        time to that of the fastest way. The row `auto` is a backup that measures and chooses, its measuring included; the \
        way that it chose before is marked. CPU is that of client and server, which share this machine. gzip and zstd:9 are \
        taken only where they were chosen.";
    let columns = [
        ("link", Unit::Text),
        ("format", Unit::Text),
        ("way", Unit::Text),
        ("", Unit::Text),
        ("expected MB/s", Unit::MegabytesPerSecond),
        ("found MB/s", Unit::MegabytesPerSecond),
        ("expected to found", Unit::Ratio),
        ("limited by", Unit::Text),
        ("time", Unit::Seconds),
        ("slower", Unit::Ratio),
        ("expected CPU s/GB", Unit::Seconds),
        ("found CPU s/GB", Unit::Seconds),
        ("data to stored", Unit::Ratio),
    ];
    let mut table = Table::new("auto", "What auto expects and what happens", about, &columns);
    for speed in bench.speeds() {
        let amount = if *speed == Speed::Slow { Amount::Small } else { Amount::Medium };
        let source = bench.source(amount)?;
        table.about += &format!(" {}: {}, {:.2} GB.", speed.name(), amount.name(), source.bytes / 1e9);
        for format in FORMATS {
            of_format(bench, *speed, source, format, &mut table)?;
        }
    }
    Ok(table)
}

fn of_format(bench: &Bench, speed: Speed, source: &Source, format: Format, table: &mut Table) -> Result<()> {
    let choice = Choice::ask(bench, speed, source, format)?;
    let ways: Vec<Option<Way>> =
        std::iter::once(None).chain(ways(format, &choice.chosen).into_iter().map(Some)).collect();
    let series = rounds(bench.rounds(2, 3), ways.len(), |at, _| {
        let outcome = match &ways[at] {
            None => Method { tool: Tool::Ours, format, codec: Some("auto") }.run(bench, speed, source, false),
            Some(way) => way.run(bench, speed, source, format),
        };
        outcome.map(Some)
    })?;
    let seconds: Vec<Samples> = series.iter().map(|one| one.seconds()).collect();
    let (mut fastest, mut taken) = (f64::INFINITY, f64::NAN);
    for (way, samples) in ways.iter().zip(&seconds).skip(1) {
        fastest = fastest.min(samples.median());
        if way.as_ref() == Some(&choice.chosen) {
            taken = samples.median();
        }
    }
    for ((way, one), samples) in ways.iter().zip(&series).zip(&seconds) {
        let expected = way.as_ref().and_then(|way| choice.expected.get(way));
        let found = source.bytes / samples.median();
        let of = |figure: fn(&Expected) -> f64, scale: f64| {
            expected.map_or(Value::None, |expected| (figure(expected) / scale).into())
        };
        let mark = if way.as_ref() == Some(&choice.chosen) { "chosen" } else { "" };
        table.row([
            speed.name().into(),
            format!("{format:?}").to_lowercase().into(),
            way.as_ref().map_or_else(|| "auto".to_owned(), Way::name).into(),
            mark.into(),
            of(|expected| expected.bytes_per_second, 1e6),
            (found / 1e6).into(),
            of(|expected| expected.bytes_per_second, found),
            expected.map_or(String::new(), |expected| expected.limited_by.clone()).into(),
            samples.spread(),
            (samples.median() / fastest).into(),
            of(|expected| expected.cpu_seconds_per_gb, 1.0),
            (one.cpu().median() * 1e9 / source.bytes).into(),
            (source.bytes / one.stored_bytes()).into(),
        ]);
    }
    table.verdict(
        &format!("auto, {format:?}, {}: what it chose ({})", speed.name(), choice.chosen.name()),
        &format!("at most {SLOWER_MAX} x the time of the fastest way"),
        format!("{:.3} x", taken / fastest),
        taken <= fastest * SLOWER_MAX,
    );
    Ok(())
}

/// All ways that are taken, the chosen one among them.
fn ways(format: Format, chosen: &Way) -> Vec<Way> {
    let several = (format != Format::Tar).then_some(Way::Parallel);
    let mut ways: Vec<Way> =
        CODECS.map(|codec| Way::Stream(codec.to_owned())).into_iter().chain(several).collect();
    if !ways.contains(chosen) {
        ways.push(chosen.clone());
    }
    ways
}

impl Way {
    fn name(&self) -> String {
        match self {
            Way::Stream(codec) => codec.clone(),
            Way::Parallel => "several connections".to_owned(),
        }
    }

    /// As its report has it.
    fn of(said: &Json) -> Result<Way> {
        if said["route"] == "parallel" {
            return Ok(Way::Parallel);
        }
        let codec =
            said["compression"].as_str().ok_or_else(|| format!("a candidate has no codec: {said}"))?;
        Ok(Way::Stream(codec.to_owned()))
    }

    fn run(&self, bench: &Bench, speed: Speed, source: &Source, format: Format) -> Result<Outcome> {
        let words: &[&str] = match self {
            Way::Stream(codec) => &["--route", "stream", "--compression", codec],
            Way::Parallel => &["--route", "parallel"],
        };
        let place = bench.space.place();
        let method = Method { tool: Tool::Ours, format, codec: None };
        let mut command = method.command(bench, speed, source, place.path())?;
        let outcome = measured(&source.cluster, command.args(words))?;
        Ok(Outcome { stored_bytes: place.bytes()?, ..outcome })
    }
}

impl Choice {
    /// That of a backup.
    fn ask(bench: &Bench, speed: Speed, source: &Source, format: Format) -> Result<Choice> {
        let method = Method { tool: Tool::Ours, format, codec: Some("auto") };
        let place = bench.space.place();
        let mut command = method.command(bench, speed, source, place.path())?;
        let report: Json = serde_json::from_str(&run::output(command.arg("--json"))?)?;
        let said = &report["choice"];
        let mut expected = BTreeMap::new();
        for candidate in said["candidates"].as_array().ok_or("a report has no candidates")? {
            let number = |name: &str| candidate[name].as_f64().ok_or("a candidate lacks a number");
            let limited_by = candidate["limited_by"].as_str().unwrap_or_default().to_owned();
            let bytes_per_second = number("expected_bytes_per_second")?;
            let cpu_seconds_per_gb = number("processor_seconds_per_gb")?;
            let one = Expected { bytes_per_second, limited_by, cpu_seconds_per_gb };
            expected.insert(Way::of(candidate)?, one);
        }
        Ok(Choice { chosen: Way::of(said)?, expected })
    }
}
