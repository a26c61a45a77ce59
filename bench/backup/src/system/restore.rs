//! Restores by pgBackRest and WAL-G beside ours.

use std::path::Path;
use std::process::Command;

use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_testkit::run;

use super::data::{Amount, Source};
use super::formats::peak_verdict;
use super::measure::{Outcome, measured};
use super::method::{Format, Method, Tool};
use super::peers::missing;
use super::rounds::{Series, rounds};
use super::space::Place;
use super::speed::Speed;
use super::{Bench, pgbackrest, walg};

const FASTER_MIN: f64 = 1.3;
const PROCESSES: [usize; 2] = [1, 2];
const ARCHIVE: Method = Method { tool: Tool::Ours, format: Format::Archive, codec: None };

/// One backup by each.
struct Backups {
    ours: Place,
    pgbackrest: Option<pgbackrest::Repository>,
    walg: Option<walg::Storage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Ours(usize),
    PgBackRest(usize),
    WalG,
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let source = bench.source(Amount::Medium)?;
    let about = format!(
        "A full backup restored into an empty directory, in turn: {}, {:.2} GB, from a repository in memory into memory. The \
         number is that of pgBackRest's processes and of our threads. Peak is that of the largest process. In the first round \
         ours is compared with its manifest (pg_verifybackup).{}",
        Amount::Medium.name(),
        source.bytes / 1e9,
        missing()
    );
    let columns = [
        ("method", Unit::Text),
        ("time", Unit::Seconds),
        ("data", Unit::MegabytesPerSecond),
        ("CPU s/GB", Unit::Seconds),
        ("peak MiB", Unit::Average),
        ("ours with as many is times as fast", Unit::Ratio),
        ("CPU of ours to its", Unit::Ratio),
    ];
    let mut table = Table::new("restore", "Restores beside pgBackRest's and WAL-G's", &about, &columns);
    let backups = Backups::make(bench, source)?;
    let ways = backups.ways();
    let series = rounds(bench.rounds(3, 5), ways.len(), |at, round| {
        backups.restore(bench, source, ways[at], round == 0).map(Some)
    })?;
    for (way, one) in ways.iter().zip(&series) {
        let ours = way.counterpart().and_then(|ours| ways.iter().position(|way| *way == ours));
        let ours = ours.map(|at| &series[at]);
        let faster = ours.map(|ours| one.seconds().over(&ours.seconds()));
        let cpu = ours.map(|ours| ours.client_cpu().over(&one.client_cpu()));
        table.row([
            way.name().into(),
            one.seconds().spread(),
            (source.bytes / 1e6 / one.seconds().median()).into(),
            (one.client_cpu().median() * 1e9 / source.bytes).into(),
            one.peak_mib().into(),
            faster.as_ref().map_or(Value::None, |samples| samples.spread()),
            cpu.map_or(Value::None, |samples| samples.spread()),
        ]);
        if let (Some(faster), Way::PgBackRest(processes)) = (faster, way) {
            let reached = faster.median();
            table.verdict(
                &format!("restore against pgBackRest's, {processes} of each"),
                &format!("at least {FASTER_MIN} x as fast"),
                format!("{reached:.3} x"),
                reached >= FASTER_MIN,
            );
        }
    }
    let ours: Vec<&Series> =
        ways.iter().zip(&series).filter(|(way, _)| matches!(way, Way::Ours(_))).map(|(_, one)| one).collect();
    peak_verdict(ours.into_iter(), &mut table);
    Ok(table)
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Ours(threads) => format!("pgshrink, {threads}"),
            Way::PgBackRest(processes) => format!("pgBackRest, {processes}"),
            Way::WalG => "WAL-G".to_owned(),
        }
    }

    fn counterpart(self) -> Option<Way> {
        match self {
            Way::Ours(_) => None,
            Way::PgBackRest(processes) => Some(Way::Ours(processes)),
            Way::WalG => Some(Way::Ours(PROCESSES[1])),
        }
    }
}

impl Backups {
    fn make(bench: &Bench, source: &Source) -> Result<Backups> {
        let ours = bench.space.place();
        run::output(&mut ARCHIVE.command(bench, Speed::Loopback, source, ours.path())?)?;
        let mut backups = Backups { ours, pgbackrest: None, walg: None };
        if let Some((program, _)) = pgbackrest::find() {
            let repository = pgbackrest::Repository::new(&program, source, &bench.space)?;
            run::output(&mut repository.backup(source, PROCESSES[1]))?;
            backups.pgbackrest = Some(repository);
        }
        if let Some((program, _)) = walg::find() {
            let storage = walg::Storage::new(&program, source, &bench.space)?;
            run::output(&mut storage.backup(source))?;
            backups.walg = Some(storage);
        }
        Ok(backups)
    }

    fn ways(&self) -> Vec<Way> {
        let mut ways: Vec<Way> = PROCESSES.map(Way::Ours).into();
        if self.pgbackrest.is_some() {
            ways.extend(PROCESSES.map(Way::PgBackRest));
        }
        if self.walg.is_some() {
            ways.push(Way::WalG);
        }
        ways
    }

    fn restore(&self, bench: &Bench, source: &Source, way: Way, check: bool) -> Result<Outcome> {
        let place = match way {
            Way::Ours(_) => bench.space.place(),
            _ => bench.space.place_of(source.cluster.owner())?,
        };
        let mut command = self.command(bench, source, way, place.path())?;
        let outcome = measured(&source.cluster, &mut command)?;
        if check && matches!(way, Way::Ours(_)) {
            let mut command = source.cluster.command("pg_verifybackup");
            run::output(command.arg("--no-parse-wal").arg(place.path()))?;
        }
        Ok(outcome)
    }

    fn command(&self, bench: &Bench, source: &Source, way: Way, into: &Path) -> Result<Command> {
        Ok(match way {
            Way::Ours(threads) => {
                let mut command = bench.product(Speed::Loopback)?;
                command.args(["restore", "latest", "--quiet", "--threads", &threads.to_string(), "--from"]);
                command.arg(self.ours.path()).arg("--into").arg(into);
                command
            }
            Way::PgBackRest(processes) => {
                let repository = self.pgbackrest.as_ref().ok_or("there is no backup of pgBackRest")?;
                repository.restore(source, processes, into)
            }
            Way::WalG => self.walg.as_ref().ok_or("there is no backup of WAL-G")?.restore(source, into),
        })
    }
}
