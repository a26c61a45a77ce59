//! pgBackRest, as `tools/unpack-pgbackrest` unpacks it or as it is installed.
//!
//! It runs as the server's user and reads the data directory. WAL archiving is not set up, so its backups lack the WAL that ours
//! have: 16 MB here.

use std::path::{Path, PathBuf};
use std::process::Command;

use pgshrink_bench_report::{Result, checkout, machine};
use pgshrink_testkit::run;

use super::data::Source;
use super::space::{Place, Space};

/// A repository of one server.
#[derive(Debug)]
pub struct Repository {
    program: PathBuf,
    place: Place,
    locks: Place,
}

/// The program and what it says of itself; none, if it is not here.
pub fn find() -> Option<(PathBuf, String)> {
    let unpacked = checkout().join("target/tools/pgbackrest/usr/bin/pgbackrest");
    [unpacked, PathBuf::from("/usr/bin/pgbackrest")].into_iter().find_map(|program| {
        let program = program.canonicalize().ok()?;
        let version = machine::version_of(run::command(&program).arg("version"))?;
        Some((program, version))
    })
}

impl Repository {
    /// An empty one.
    pub fn new(program: &Path, source: &Source, space: &Space) -> Result<Repository> {
        let owner = source.cluster.owner();
        let program = program.to_owned();
        let repository = Repository { program, place: space.place_of(owner)?, locks: space.place_of(owner)? };
        run::output(&mut repository.command(source, "stanza-create", 1))?;
        Ok(repository)
    }

    /// A full backup, with zstd:3, small files bundled and large ones in blocks.
    pub fn backup(&self, source: &Source, processes: usize) -> Command {
        let mut command = self.command(source, "backup", processes);
        command.args(["--type=full", "--start-fast", "--no-archive-check"]);
        command.args(["--repo1-bundle", "--repo1-block"]);
        command.args(["--compress-type=zst", "--compress-level=3", "--repo1-retention-full=1"]);
        command
    }

    /// A restore into an empty directory of the server's user.
    pub fn restore(&self, source: &Source, processes: usize, into: &Path) -> Command {
        let mut command = self.base(source, "restore", processes);
        command.arg("--pg1-path").arg(into);
        command
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> Result<u64> {
        self.place.bytes()
    }

    fn command(&self, source: &Source, verb: &str, processes: usize) -> Command {
        let mut command = self.base(source, verb, processes);
        let cluster = &source.cluster;
        command.arg("--pg1-path").arg(cluster.data_dir());
        command.arg("--pg1-socket-path").arg(cluster.socket_dir());
        command.arg(format!("--pg1-port={}", cluster.port())).arg("--pg1-user=postgres");
        command
    }

    fn base(&self, source: &Source, verb: &str, processes: usize) -> Command {
        let mut command = source.cluster.owner().command(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PGBACKREST_") {
                command.env_remove(name);
            }
        }
        command.args([verb, "--stanza=bench", "--no-config", "--log-level-file=off"]);
        command.args(["--log-level-console=warn", "--log-level-stderr=off"]);
        command.arg("--repo1-path").arg(self.place.path()).arg("--lock-path").arg(self.locks.path());
        if verb != "stanza-create" {
            command.arg(format!("--process-max={processes}"));
        }
        command
    }
}
