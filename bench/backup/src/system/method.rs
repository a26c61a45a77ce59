//! Ways to make a backup over a connection: pg_basebackup's and ours.

use std::path::Path;
use std::process::Command;

use pgshrink_bench_report::Result;
use pgshrink_testkit::run;

use super::Bench;
use super::data::Source;
use super::measure::{Outcome, measured};
use super::speed::Speed;

/// Who makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// PostgreSQL's.
    PgBasebackup,
    /// The product.
    Ours,
}

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A data directory.
    Plain,
    /// Tar files as the server sends them.
    Tar,
    /// A repository; ours alone.
    Archive,
    /// The same over several connections.
    ArchiveParallel,
}

/// One way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Who.
    pub tool: Tool,
    /// What.
    pub format: Format,
    /// What the server compresses with, as the product's `--compression` has it. Of an archive: none for its default.
    pub codec: Option<&'static str>,
}

impl Tool {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Tool::PgBasebackup => "pg_basebackup",
            Tool::Ours => "pgshrink",
        }
    }
}

impl Method {
    /// As tables have it.
    pub fn name(self) -> String {
        let codec = self.codec.unwrap_or("default").replace("level=", "");
        match self.format {
            Format::Plain => format!("{} plain {codec}", self.tool.name()),
            Format::Tar => format!("{} tar {codec}", self.tool.name()),
            Format::Archive => format!("{} archive, stream, {codec}", self.tool.name()),
            Format::ArchiveParallel => format!("{} archive, parallel", self.tool.name()),
        }
    }

    /// Whether it takes long and says little: once is enough, and not on every link.
    pub fn is_slow(self) -> bool {
        self.codec == Some("gzip")
    }

    /// Backs the server up into a new place and throws it away. With `check`, it is looked at first.
    pub fn run(self, bench: &Bench, speed: Speed, source: &Source, check: bool) -> Result<Outcome> {
        let place = bench.space.place();
        let mut command = self.command(bench, speed, source, place.path())?;
        let outcome = measured(&source.cluster, &mut command)?;
        if check {
            self.check(bench, source, place.path())?;
        }
        Ok(Outcome { stored_bytes: place.bytes()?, ..outcome })
    }

    /// The command that makes it at `target`.
    pub fn command(self, bench: &Bench, speed: Speed, source: &Source, target: &Path) -> Result<Command> {
        let conninfo = bench.conninfo(speed, source);
        match self.tool {
            Tool::PgBasebackup => {
                let program = source.cluster.server().program("pg_basebackup");
                let mut command = bench.behind(speed, &program)?;
                command.args(["-d", &conninfo, "-c", "fast", "-X", "stream", "-D"]).arg(target);
                command.arg(if self.format == Format::Plain { "-Fp" } else { "-Ft" });
                command.arg(format!("--compress={}", pg_basebackup_codec(self.codec.unwrap_or("none"))));
                Ok(command)
            }
            Tool::Ours => {
                let mut command = bench.product(speed)?;
                command.args(["backup", &conninfo, "--checkpoint", "fast", "--quiet", "--to"]).arg(target);
                match self.format {
                    Format::Plain => command.args(["--format", "plain"]),
                    Format::Tar => command.args(["--format", "tar"]),
                    Format::Archive => &mut command,
                    Format::ArchiveParallel => command.args(["--route", "parallel"]),
                };
                command.args(self.codec.map(|codec| format!("--compression={codec}")));
                Ok(command)
            }
        }
    }

    /// Whether all files are as the server's manifest says.
    fn check(self, bench: &Bench, source: &Source, made: &Path) -> Result<()> {
        if self.tool == Tool::PgBasebackup {
            return Ok(());
        }
        let place = bench.space.place();
        match self.format {
            Format::Plain => return verify(source, made, made),
            Format::Tar => unpack(made, place.path())?,
            Format::Archive | Format::ArchiveParallel => {
                let mut command = bench.product(Speed::Loopback)?;
                command.args(["restore", "latest", "--quiet", "--from"]).arg(made);
                run::output(command.arg("--into").arg(place.path()))?;
                return verify(source, place.path(), place.path());
            }
        }
        verify(source, place.path(), made)
    }
}

fn pg_basebackup_codec(codec: &str) -> String {
    match codec.split_once(':') {
        _ if codec == "none" => codec.to_owned(),
        Some((algorithm, detail)) => format!("server-{algorithm}:{}", detail.replace(':', ",")),
        None => format!("server-{codec}"),
    }
}

/// The tar file of the cluster into a new directory.
fn unpack(made: &Path, into: &Path) -> Result<()> {
    std::fs::create_dir(into)?;
    let mut command = run::command("tar");
    for (name, program) in
        [("base.tar", ""), ("base.tar.gz", "gzip"), ("base.tar.lz4", "lz4"), ("base.tar.zst", "zstd")]
    {
        let archive = made.join(name);
        if archive.exists() {
            command.arg("-x").arg("-f").arg(archive).arg("-C").arg(into);
            if !program.is_empty() {
                command.args(["-I", program]);
            }
        }
    }
    Ok(run::output(&mut command).map(drop)?)
}

/// WAL is left out: that of a tar is in a file of its own.
fn verify(source: &Source, folder: &Path, manifest_in: &Path) -> Result<()> {
    let mut command = source.cluster.command("pg_verifybackup");
    command.arg("--no-parse-wal").arg("--manifest-path").arg(manifest_in.join("backup_manifest"));
    if folder != manifest_in {
        command.args(["--ignore", "pg_wal"]);
    }
    Ok(run::output(command.arg(folder)).map(drop)?)
}
