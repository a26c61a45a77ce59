//! Backups by pgBackRest and WAL-G beside ours.

use pgshrink_bench_report::{Result, Table, Unit};

use super::data::{Amount, Source};
use super::formats::peak_verdict;
use super::measure::{Outcome, measured};
use super::method::{Format, Method, Tool};
use super::rounds::{Series, rounds};
use super::speed::Speed;
use super::{Bench, pgbackrest, walg};

/// How a backup is made here.
enum Way {
    Connection(Method),
    PgBackRest { processes: usize },
    WalG,
}

/// What is said of rivals that are not here.
pub fn missing() -> String {
    let mut said = String::new();
    if pgbackrest::find().is_none() {
        said += " pgBackRest is missing (tools/setup bench).";
    }
    if walg::find().is_none() {
        said += " WAL-G is missing; bench/README.md says why.";
    }
    said
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let source = bench.source(Amount::Medium)?;
    let about = format!(
        "Full backups into a new repository on the same machine, in turn: {}, {:.2} GB. pgBackRest (zstd:3, repo-block, \
         repo-bundle) and WAL-G (zstd) read the data directory themselves, so there is no link, and their backups lack the WAL. \
         pg_basebackup and ours come through loopback. CPU of client and server; of the former its children too. Peak is that of \
         the largest process.{}",
        Amount::Medium.name(),
        source.bytes / 1e9,
        missing()
    );
    let columns = [
        ("method", Unit::Text),
        ("time", Unit::Seconds),
        ("ours is times as fast", Unit::Ratio),
        ("client CPU s/GB", Unit::Seconds),
        ("server CPU s/GB", Unit::Seconds),
        ("peak MiB", Unit::Average),
        ("stored", Unit::Bytes),
        ("data to stored", Unit::Ratio),
        ("ours is times smaller", Unit::Ratio),
    ];
    let mut table = Table::new("peers", "Backups beside pgBackRest's and WAL-G's", &about, &columns);
    let ways = ways();
    let series = rounds(bench.rounds(3, 5), ways.len(), |at, _| ways[at].run(bench, source).map(Some))?;
    for (way, one) in ways.iter().zip(&series) {
        table.row([
            way.name().into(),
            one.seconds().spread(),
            one.seconds().over(&series[0].seconds()).spread(),
            (one.client_cpu().median() * 1e9 / source.bytes).into(),
            (one.server_cpu().median() * 1e9 / source.bytes).into(),
            one.peak_mib().into(),
            one.stored_bytes().into(),
            (source.bytes / one.stored_bytes()).into(),
            (one.stored_bytes() / series[0].stored_bytes()).into(),
        ]);
    }
    let ours: Vec<&Series> =
        ways.iter().zip(&series).filter(|(way, _)| way.is_ours()).map(|(_, one)| one).collect();
    peak_verdict(ours.into_iter(), &mut table);
    Ok(table)
}

/// Ours first.
fn ways() -> Vec<Way> {
    let of = |tool, format, codec| Way::Connection(Method { tool, format, codec });
    let mut ways = vec![
        of(Tool::Ours, Format::ArchiveParallel, None),
        of(Tool::Ours, Format::Archive, None),
        of(Tool::PgBasebackup, Format::Plain, Some("none")),
        of(Tool::PgBasebackup, Format::Tar, Some("zstd:level=3:workers=2")),
    ];
    if pgbackrest::find().is_some() {
        ways.extend([1, 2].map(|processes| Way::PgBackRest { processes }));
    }
    if walg::find().is_some() {
        ways.push(Way::WalG);
    }
    ways
}

impl Way {
    fn name(&self) -> String {
        match self {
            Way::Connection(method) => method.name(),
            Way::PgBackRest { processes } => format!("pgBackRest zst:3, process-max={processes}"),
            Way::WalG => "WAL-G zstd".to_owned(),
        }
    }

    fn is_ours(&self) -> bool {
        matches!(self, Way::Connection(method) if method.tool == Tool::Ours)
    }

    fn run(&self, bench: &Bench, source: &Source) -> Result<Outcome> {
        let (outcome, stored_bytes) = match self {
            Way::Connection(method) => return method.run(bench, Speed::Loopback, source, false),
            Way::PgBackRest { processes } => {
                let (program, _) = pgbackrest::find().ok_or("pgBackRest is gone")?;
                let repository = pgbackrest::Repository::new(&program, source, &bench.space)?;
                let mut command = repository.backup(source, *processes);
                (measured(&source.cluster, &mut command)?, repository.bytes()?)
            }
            Way::WalG => {
                let (program, _) = walg::find().ok_or("WAL-G is gone")?;
                let storage = walg::Storage::new(&program, source, &bench.space)?;
                (measured(&source.cluster, &mut storage.backup(source))?, storage.bytes()?)
            }
        };
        Ok(Outcome { stored_bytes, ..outcome })
    }
}
