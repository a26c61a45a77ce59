//! The rows of backups: the stage's server backed up by `pgshrink backup`, checked, restored and started, and the
//! same server backed up by pg_basebackup as a compressed tar.
//!
//! Sizes are those of the files that each wrote. Both take the WAL that their backup needs.

use std::fs;
use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pgshrink_testkit::run::Owner;
use pgshrink_testkit::{Auth, Cluster, Stop, TempDir};

use crate::failure::Failure;
use crate::pages;
use crate::program;
use crate::progress::Progress;
use crate::stage::{Stage, checksum_query};
use crate::step::{Report, Row, Step};
use crate::tablespaces::on_disk;

/// The stage's whole server.
pub(crate) struct Backup;

/// What something takes on disk, and how long it took.
#[derive(Clone, Copy)]
struct Taken {
    size: u64,
    wall: Duration,
}

/// What the server compresses with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Codec {
    /// In pg_basebackup's tar.
    tar: &'static str,
    /// On the way to `pgshrink backup`.
    on_the_way: &'static str,
}

impl Step for Backup {
    fn title(&self) -> &'static str {
        "backup"
    }

    fn phase_count(&self) -> u64 {
        4
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        progress.phase("making indexes");
        pages::make_indexes(stage)?;
        let expected = stage.sql(&checksum_query("package"))?;
        let codec = Codec::of(&stage.sql("select setting from pg_config where name = 'CONFIGURE'")?);
        progress.phase("backup by pg_basebackup");
        let tar = take_tar(stage, codec)?;
        progress.phase("backup by pgshrink, verified");
        let keep = TempDir::new()?;
        let repository = keep.path().join("repository");
        let taken = take_backup(stage, codec, &repository)?;
        let verifying = run(stage, "verify", |command| command.arg("latest").arg("--from").arg(&repository))?;
        progress.phase("restoring it, and starting the restored server");
        let restored = Restored::start(stage, &repository)?;
        let same = restored.cluster.sql(&checksum_query("package"))? == expected;
        restored.cluster.stop(Stop::Fast)?;

        report.backup_heading = "\nA backup of the whole server, restored and started".to_owned();
        report.backup = rows(&restored.files, &tar, &taken, codec, same);
        report.notes.push(format!(
            "pgshrink backup: {:.1} s, verified in {:.1} s, restored in {:.1} s; the restored server started in {:.1} s.",
            taken.wall.as_secs_f64(),
            verifying.as_secs_f64(),
            restored.files.wall.as_secs_f64(),
            restored.start.as_secs_f64(),
        ));
        Ok(())
    }
}

fn rows(files: &Taken, tar: &Taken, backup: &Taken, codec: Codec, same: bool) -> Vec<Row> {
    let row = |what: String, plain_size, plain_wall, shrunk_wall| Row {
        what,
        plain_size,
        shrunk_size: backup.size,
        cpu_seconds: 0.0,
        plain_wall,
        shrunk_wall,
        same,
    };
    vec![
        row("the data directory".to_owned(), files.size, Duration::ZERO, Duration::ZERO),
        row(format!("pg_basebackup, tar {}", codec.tar), tar.size, tar.wall, backup.wall),
    ]
}

impl Codec {
    /// The one that a server of these options of `configure` has.
    fn of(configure: &str) -> Codec {
        if configure.contains("--with-zstd") {
            Codec { tar: "zstd:3", on_the_way: "zstd:1" }
        } else {
            Codec { tar: "gzip", on_the_way: "none" }
        }
    }
}

fn take_tar(stage: &Stage, codec: Codec) -> Result<Taken, Failure> {
    let owner = stage.cluster.owner();
    let keep = TempDir::owned_by(owner)?;
    let mut command = owner.command(stage.cluster.server().program("pg_basebackup"));
    command.args(["--format=tar", "--checkpoint=fast", "--no-sync", "--no-password"]);
    // Streamed WAL would be a file of its own, which nothing compresses.
    command.args(["--wal-method=fetch", &format!("--compress=server-{}", codec.tar)]);
    command.arg("--pgdata").arg(keep.path().join("tar"));
    command.arg("--dbname").arg(stage.cluster.conninfo("postgres"));
    let begin = Instant::now();
    program::run(&mut command, None)?;
    let wall = begin.elapsed();
    Ok(Taken { size: size_of(keep.path())?, wall })
}

fn take_backup(stage: &Stage, codec: Codec, repository: &Path) -> Result<Taken, Failure> {
    let wall = run(stage, "backup", |command| {
        command.arg(stage.cluster.conninfo("postgres")).arg("--to").arg(repository);
        command.args(["--checkpoint", "fast", "--compression", codec.on_the_way])
    })?;
    Ok(Taken { size: size_of(repository)?, wall })
}

/// Runs a command of `pgshrink` and returns how long it took.
fn run(
    stage: &Stage,
    word: &str,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Duration, Failure> {
    let mut command = pgshrink_testkit::run::command(&stage.pgshrink);
    arguments(command.arg(word)).arg("--quiet");
    let begin = Instant::now();
    program::run(&mut command, None)?;
    Ok(begin.elapsed())
}

/// A server on what was restored.
struct Restored {
    cluster: Cluster,
    files: Taken,
    start: Duration,
}

impl Restored {
    fn start(stage: &Stage, repository: &Path) -> Result<Restored, Failure> {
        // Its port, its sockets, and that it ends with the demo, but not its data.
        let cluster = Cluster::builder().server(stage.cluster.server()).auth(Auth::Scram).create()?;
        let data = cluster.data_dir();
        let failed = |error: io::Error| Failure::io(format!("preparing {}", data.display()), &error);
        fs::remove_dir_all(&data).map_err(failed)?;
        let wall = run(stage, "restore", |command| {
            command.arg("latest").arg("--from").arg(repository).arg("--into").arg(&data)
        })?;
        give(&data, cluster.owner()).map_err(failed)?;
        let files = Taken { size: size_of(&data)?, wall };
        let begin = Instant::now();
        cluster.start()?;
        Ok(Restored { cluster, files, start: begin.elapsed() })
    }
}

/// Gives what root has restored to the user that the server runs as.
fn give(path: &Path, owner: &Owner) -> io::Result<()> {
    if !owner.step_down {
        return Ok(());
    }
    lchown(path, Some(owner.uid), Some(owner.gid))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

fn size_of(path: &Path) -> Result<u64, Failure> {
    on_disk(path).map_err(|error| Failure::io(format!("looking at {}", path.display()), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_zstd_compresses_the_tar_with_gzip() {
        assert_eq!(Codec::of(" '--with-lz4' '--with-zstd'").tar, "zstd:3");
        assert_eq!(Codec::of(" '--with-lz4'"), Codec { tar: "gzip", on_the_way: "none" });
    }

    #[test]
    fn both_rows_hold_the_backup_against_something() {
        let taken = |size, seconds| Taken { size, wall: Duration::from_secs(seconds) };
        let codec = Codec { tar: "gzip", on_the_way: "none" };
        let rows = rows(&taken(900, 1), &taken(300, 2), &taken(100, 3), codec, true);
        let sizes: Vec<_> = rows.iter().map(|row| (row.plain_size, row.shrunk_size)).collect();
        assert_eq!(sizes, [(900, 100), (300, 100)]);
        assert_eq!(rows[1].what, "pg_basebackup, tar gzip");
        let walls = (rows[1].plain_wall.as_secs(), rows[1].shrunk_wall.as_secs());
        assert_eq!((walls, rows[0].shrunk_wall), ((2, 3), Duration::ZERO));
    }
}
