//! WAL-G, where somebody has installed it: `wal-g` in PATH, or what `PGSHRINK_WALG` names.
//!
//! It runs as the server's user and reads the data directory. WAL archiving is not set up, as for pgBackRest.

use std::path::{Path, PathBuf};
use std::process::Command;

use pgshrink_bench_report::{Result, machine};
use pgshrink_testkit::run;

use super::data::Source;
use super::space::{Place, Space};

/// A storage of one server.
#[derive(Debug)]
pub struct Storage {
    program: PathBuf,
    place: Place,
}

/// The program and what it says of itself; none, if it is not here.
pub fn find() -> Option<(PathBuf, String)> {
    let named = std::env::var_os("PGSHRINK_WALG").map(PathBuf::from);
    let program = named.unwrap_or_else(|| PathBuf::from("wal-g"));
    let version = machine::version_of(run::command(&program).arg("--version"))?;
    Some((program, version))
}

impl Storage {
    /// An empty one.
    pub fn new(program: &Path, source: &Source, space: &Space) -> Result<Storage> {
        let place = space.place_of(source.cluster.owner())?;
        Ok(Storage { program: program.to_owned(), place })
    }

    /// A full backup with zstd.
    pub fn backup(&self, source: &Source) -> Command {
        let mut command = self.command(source);
        command.args(["backup-push", "--full"]).arg(source.cluster.data_dir());
        command
    }

    /// A restore of the newest backup into an empty directory of the server's user.
    pub fn restore(&self, source: &Source, into: &Path) -> Command {
        let mut command = self.command(source);
        command.arg("backup-fetch").arg(into).arg("LATEST");
        command
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> Result<u64> {
        self.place.bytes()
    }

    fn command(&self, source: &Source) -> Command {
        let cluster = &source.cluster;
        let mut command = cluster.owner().command(&self.program);
        command.env("WALG_FILE_PREFIX", self.place.path()).env("WALG_COMPRESSION_METHOD", "zstd");
        command.env("PGHOST", cluster.socket_dir()).env("PGPORT", cluster.port().to_string());
        command.env("PGUSER", "postgres").env("PGDATABASE", "postgres");
        command
    }
}
