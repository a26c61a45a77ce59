//! End-to-end tables: the built program beside its rivals, one backup or restore at a time.

mod archive;
mod auto;
mod data;
mod formats;
mod literature;
mod measure;
mod method;
mod peers;
mod pgbackrest;
mod restore;
mod rounds;
mod space;
mod speed;
mod walg;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgshrink_bench_report::{Result, Table, checkout};
use pgshrink_testkit::netns::{Link, LinkShape};
use pgshrink_testkit::run;

use data::{Amount, Source};
use space::Space;
use speed::Speed;

/// Measures and fills a table.
pub type Make = fn(&Bench) -> Result<Table>;

/// Tables of this program and what makes each.
pub const TABLES: &[(&str, Make)] = &[
    ("plain", formats::plain),
    ("tar", formats::tar),
    ("incompressible", formats::incompressible),
    ("archive", archive::table),
    ("literature", literature::table),
    ("peers", peers::table),
    ("restore", restore::table),
    ("auto", auto::table),
];

/// Versions of the rivals that are here.
pub fn rivals() -> Vec<String> {
    let walg = walg::find().map(|(_, version)| version);
    pgbackrest::find().map(|(_, version)| version).into_iter().chain(walg).collect()
}

/// What the tables share. Servers are filled when they are first asked for.
#[derive(Debug)]
pub struct Bench {
    full: bool,
    program: PathBuf,
    /// The product chooses the compression by itself.
    has_auto: bool,
    space: Space,
    /// Before the servers, which listen on it.
    link: Option<Link>,
    sources: [OnceCell<Source>; Amount::COUNT],
}

impl Bench {
    /// `full` as in [`pgshrink_bench_report::Arguments`].
    pub fn new(full: bool) -> Result<Bench> {
        let named = std::env::var_os("PGSHRINK_PROGRAM").map(PathBuf::from);
        let program = named.unwrap_or_else(|| checkout().join("target/release/pgshrink"));
        let program =
            program.canonicalize().map_err(|_| "there is no target/release/pgshrink: run make build")?;
        let help = run::output(run::command(&program).args(["backup", "--help"]))?;
        let link = match Link::new(LinkShape::of(speed::GIGABIT)) {
            Ok(link) => Some(link?),
            Err(missing) => {
                eprintln!("backup-system: {missing}; loopback only");
                None
            }
        };
        let has_auto = help.split(|c: char| !c.is_alphanumeric()).any(|word| word == "auto");
        Ok(Bench { full, program, has_auto, space: Space::in_memory()?, link, sources: Default::default() })
    }

    fn rounds(&self, quick: usize, full: usize) -> usize {
        if self.full { full } else { quick }
    }

    /// The server with this amount of data.
    fn source(&self, amount: Amount) -> Result<&Source> {
        let cell = &self.sources[amount as usize];
        if cell.get().is_none() {
            let source = Source::start(amount, self.link.as_ref().map(Link::near))?;
            eprintln!("backup-system: {} has {:.2} GB", amount.name(), source.bytes / 1e9);
            let _ = cell.set(source);
        }
        cell.get().ok_or_else(|| "the server is not there".into())
    }

    /// Loopback, and the links if there can be any.
    fn speeds(&self) -> &'static [Speed] {
        if self.link.is_some() { &Speed::ALL } else { &Speed::ALL[..1] }
    }

    /// A command behind a link of this speed.
    fn behind(&self, speed: Speed, program: &Path) -> Result<Command> {
        match (&self.link, speed.bytes_per_second()) {
            (_, None) => Ok(run::command(program)),
            (Some(link), Some(rate)) => {
                link.reshape(LinkShape::of(rate))?;
                Ok(link.command(program))
            }
            (None, Some(_)) => Err("there is no link".into()),
        }
    }

    /// How a server is reached from there.
    fn conninfo(&self, speed: Speed, source: &Source) -> String {
        let near =
            self.link.as_ref().filter(|_| speed != Speed::Loopback).map(|link| link.near().to_string());
        let host = near.unwrap_or_else(|| "127.0.0.1".to_owned());
        source.cluster.conninfo_at(&host, source.cluster.port(), "postgres") + " sslmode=disable"
    }

    /// The product's program, without settings of this shell.
    fn product(&self, speed: Speed) -> Result<Command> {
        let mut command = self.behind(speed, &self.program)?;
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PGSHRINK_") {
                command.env_remove(name);
            }
        }
        Ok(command)
    }
}
