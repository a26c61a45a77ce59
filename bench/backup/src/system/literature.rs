//! The table that is in the literature, of pg_basebackup and ours.

use pgshrink_bench_cfs_server::group::Group;
use pgshrink_bench_report::{Result, Table, Unit, Value};

use super::Bench;
use super::data::{Amount, Source};
use super::measure::{Outcome, measured};
use super::method::{Format, Method, Tool};
use super::rounds::{Series, rounds};
use super::space::Space;
use super::speed::Speed;

const CODECS: [(&str, usize); 7] = [
    ("none", 0),
    ("gzip", 0),
    ("lz4", 0),
    ("zstd", 0),
    ("zstd:workers=1", 1),
    ("zstd:workers=2", 2),
    ("zstd:workers=4", 4),
];
const FORMATS: [Format; 2] = [Format::Tar, Format::Plain];
const TOOLS: [Tool; 2] = [Tool::PgBasebackup, Tool::Ours];
const LIMIT: u64 = 1 << 30;

/// Server and programs with little memory, and backups on disk: memory would count as theirs.
struct Limited {
    group: Group,
    space: Space,
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let amount = if bench.full { Amount::Large } else { Amount::Medium };
    let source = bench.source(amount)?;
    let limited = if bench.full { limit(source) } else { Err("only with --full".into()) };
    let limits = match &limited {
        Ok(_) => {
            "Server and program share a control group of 1 GiB, backups go to this machine's disk.".to_owned()
        }
        Err(why) => format!("A control group of 1 GiB: not done, {why}. Backups go into memory."),
    };
    let about = format!(
        "The rows of the published comparison of server-side compression, through loopback: {}, {:.2} GB. {limits} A level that \
         is not named is the server's default. Times are medians and quartiles in turn; absolute ones are this machine's.",
        amount.name(),
        source.bytes / 1e9
    );
    let mut columns = vec![("compression", Unit::Text), ("", Unit::Text), ("tar", Unit::Bytes)];
    columns.extend([
        ("pg_basebackup tar", Unit::Seconds),
        ("pgshrink tar", Unit::Seconds),
        ("pg_basebackup plain", Unit::Seconds),
        ("pgshrink plain", Unit::Seconds),
        ("pgshrink plain to pg_basebackup plain none", Unit::Ratio),
        ("pg_basebackup plain client CPU", Unit::Seconds),
        ("pgshrink plain client CPU", Unit::Seconds),
    ]);
    let mut table = Table::new("literature", "The published table", &about, &columns);
    let mut ways = Vec::new();
    for (codec, _) in CODECS {
        for format in FORMATS {
            ways.extend(TOOLS.map(|tool| Method { tool, format, codec: Some(codec) }));
        }
    }
    let series = rounds(bench.rounds(1, 2), ways.len(), |at, _| match &limited {
        Ok(limited) => limited.run(bench, source, ways[at]).map(Some),
        Err(_) => ways[at].run(bench, Speed::Loopback, source, false).map(Some),
    })?;
    show(&series, &mut table);
    if let Ok(limited) = limited {
        limited.group.end(&source.cluster)?;
        source.cluster.start()?;
    }
    Ok(table)
}

fn show(series: &[Series], table: &mut Table) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Of each codec: tar of both tools, then plain of both.
    let each = FORMATS.len() * TOOLS.len();
    for ((codec, workers), all) in CODECS.iter().zip(series.chunks(each)) {
        let note =
            if *workers > cores { format!("more workers than the {cores} cores") } else { String::new() };
        let speed_up = series[2].seconds().over(&all[3].seconds());
        let mut cells: Vec<Value> = vec![(*codec).into(), note.into(), all[0].stored_bytes().into()];
        cells.extend(all.iter().map(|one| one.seconds().spread()));
        cells.push(speed_up.spread());
        cells.extend([all[2].client_cpu().median().into(), all[3].client_cpu().median().into()]);
        table.push(cells);
    }
}

fn limit(source: &Source) -> Result<Limited> {
    let group = Group::of(&source.cluster, "backup", LIMIT)?;
    Ok(Limited { group, space: Space::on_disk()? })
}

impl Limited {
    fn run(&self, bench: &Bench, source: &Source, method: Method) -> Result<Outcome> {
        let place = self.space.place();
        let command = method.command(bench, Speed::Loopback, source, place.path())?;
        let outcome = measured(&source.cluster, &mut self.group.inside(&command))?;
        Ok(Outcome { stored_bytes: place.bytes()?, ..outcome })
    }
}
