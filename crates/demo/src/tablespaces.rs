//! The rows of compressed tablespaces: the package table with its indexes, in a plain and in a compressed tablespace
//! of the running server.
//!
//! Both sides do the same, one after the other, each with empty shared buffers: load, scan, look up, update while
//! garbage is collected, and come back from a kill.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pgshrink_testkit::TempDir;

use crate::failure::Failure;
use crate::interrupt;
use crate::program;
use crate::progress::Progress;
use crate::report::size;
use crate::stage::{Stage, checksum_query};
use crate::step::{Report, Row, Step};

const CLIENTS: &str = "4";
const LOOKUPS_PER_CLIENT: &str = "5000";
const UPDATES_PER_CLIENT: &str = "5000";
const COMPRESSED: &str = "compressed";
/// Collectors rest for five seconds at most (`cfs.gc_period`).
const QUIET: Duration = Duration::from_secs(6);
const LOOK: Duration = Duration::from_millis(250);
/// What each tablespace holds back for a full filesystem.
const RESERVE_NAME: &str = "pgshrink-reserve";

/// The stage's table in two tablespaces.
pub(crate) struct Tablespaces;

/// One tablespace, and how it went with it.
struct Side {
    name: &'static str,
    location: PathBuf,
    /// Bytes on disk afterwards, and how long it took, by row.
    rows: Vec<(u64, Duration)>,
    checksum: String,
    answer: String,
}

const ROWS: [&str; 5] = [
    "load, with 4 indexes",
    "scan of every row",
    "20,000 random lookups",
    "20,000 updates",
    "recovery after a kill",
];

impl Step for Tablespaces {
    fn title(&self) -> &'static str {
        "compressed tablespaces"
    }

    fn phase_count(&self) -> u64 {
        3
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        progress.phase("starting the server with cfs");
        let locations = TempDir::owned_by(stage.cluster.owner())?;
        prepare(stage, locations.path())?;
        progress.phase("a plain tablespace: load, scan, look up, update, kill");
        let plain = Side::play(stage, "plain", locations.path())?;
        progress.phase("a compressed tablespace: the same");
        let compressed = Side::play(stage, COMPRESSED, locations.path())?;
        let reserve =
            fs::metadata(find(&compressed.location, RESERVE_NAME)?).map_or(0, |file| file.blocks() * 512);
        stage.sql("drop table in_plain, in_compressed")?;
        stage.sql("drop tablespace plain")?;
        stage.sql("drop tablespace compressed")?;
        stage.sql("drop extension cfs")?;
        stage.cluster.set_conf("shared_preload_libraries", "")?;
        stage.cluster.restart()?;
        report.tablespaces_heading =
            "\nThe index as a table in a tablespace of the running server: bytes on disk after each step, garbage collected"
                .to_owned();
        report.tablespaces = rows(&plain, &compressed);
        report.notes.push(format!(
            "Compressed tablespace (zstd:1), beside its files: {} held back, so that a checkpoint succeeds on a full \
             disk (cfs.reserve_size).",
            size(reserve)
        ));
        Ok(())
    }
}

fn rows(plain: &Side, compressed: &Side) -> Vec<Row> {
    let same = plain.checksum == compressed.checksum && plain.answer == compressed.answer;
    let both = ROWS.iter().zip(&plain.rows).zip(&compressed.rows);
    both.map(|((what, plain), compressed)| Row {
        what: (*what).to_owned(),
        plain_size: plain.0,
        shrunk_size: compressed.0,
        cpu_seconds: 0.0,
        plain_wall: plain.1,
        shrunk_wall: compressed.1,
        same,
    })
    .collect()
}

fn prepare(stage: &Stage, locations: &Path) -> Result<(), Failure> {
    if stage.sql("select 1 from pg_available_extensions where name = 'cfs'")?.is_empty() {
        let what = "the server has no extension cfs";
        return Err(Failure::with_advice(what, "build it with: tools/extensions 15 (make demo does)"));
    }
    stage.cluster.set_conf("shared_preload_libraries", "cfs")?;
    stage.cluster.restart()?;
    stage.sql("create extension cfs")?;
    for (name, options) in [("plain", ""), (COMPRESSED, " with (compression = 'zstd:1')")] {
        let location = locations.join(name);
        let failed = |error| Failure::io(format!("making {}", location.display()), &error);
        fs::create_dir(&location).map_err(failed)?;
        let owner = stage.cluster.owner();
        if owner.step_down {
            std::os::unix::fs::chown(&location, Some(owner.uid), Some(owner.gid)).map_err(failed)?;
        }
        stage.sql(&format!("create tablespace {name} location '{}'{options}", location.display()))?;
    }
    Ok(())
}

impl Side {
    fn play(stage: &Stage, name: &'static str, locations: &Path) -> Result<Side, Failure> {
        let location = locations.join(name);
        let mut side =
            Side { name, location, rows: Vec::new(), checksum: String::new(), answer: String::new() };
        let table = side.table();
        side.time(|| {
            stage.sql(&format!(
                "set default_tablespace = {name};
                create table {table} as select * from package order by id;
                create unique index on {table} (id);
                create index on {table} (name);
                create index on {table} (section, installed_size_kb);
                create index on {table} (sha256);
                vacuum analyze {table}; checkpoint"
            ))
        })?;
        stage.cluster.restart()?;
        side.answer = side.time(|| {
            stage.sql(&format!("select count(*), sum(size_bytes), sum(length(summary)) from {table}"))
        })?;
        let count = stage.package_count;
        let lookup = format!(
            "\\set n random(1, {count})\nselect name, version, depends from {table} where id = :n;\n"
        );
        side.time(|| side_bench(stage, locations, &lookup, LOOKUPS_PER_CLIENT))?;
        let update = format!(
            "\\set n random(1, {count})\nupdate {table} set installed_size_kb = installed_size_kb + 1 where id = :n;\n"
        );
        side.time(|| {
            side_bench(stage, locations, &update, UPDATES_PER_CLIENT)?;
            stage.sql("checkpoint")
        })?;
        // What recovery has to do again.
        side_bench(stage, locations, &update, UPDATES_PER_CLIENT)?;
        stage.cluster.kill()?;
        side.time(|| {
            stage.cluster.start()?;
            stage.sql("select 1")
        })?;
        side.checksum = stage.sql(&checksum_query(&table))?;
        Ok(side)
    }

    fn table(&self) -> String {
        format!("in_{}", self.name)
    }

    /// Does a part, and keeps how long it took and what is on disk when garbage has been collected.
    fn time<R>(&mut self, work: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
        let begin = Instant::now();
        let done = work()?;
        let took = begin.elapsed();
        let failed = |error| Failure::io(format!("looking at {}", self.location.display()), &error);
        let size = || on_disk(&self.location).map_err(failed);
        let (mut bytes, mut since, began) = (size()?, Instant::now(), Instant::now());
        while self.name == COMPRESSED && since.elapsed() < QUIET && began.elapsed() < QUIET * 4 {
            interrupt::check()?;
            std::thread::sleep(LOOK);
            let now = size()?;
            if now != bytes {
                (bytes, since) = (now, Instant::now());
            }
        }
        self.rows.push((bytes, took));
        Ok(done)
    }
}

/// Runs a script by pgbench: so many transactions, the same ones each time.
fn side_bench(stage: &Stage, scratch: &Path, script: &str, transactions: &str) -> Result<String, Failure> {
    let path = scratch.join("script.sql");
    fs::write(&path, script).map_err(|error| Failure::io(format!("writing {}", path.display()), &error))?;
    let input =
        File::open(&path).map_err(|error| Failure::io(format!("opening {}", path.display()), &error))?;
    let mut command = stage.cluster.command("pgbench");
    command.args(["-h", "127.0.0.1", "-p", &stage.cluster.port().to_string(), "-U", "postgres"]);
    command.env("PGPASSWORD", stage.password()).env("PGDATABASE", "postgres");
    command.args(["-n", "-c", CLIENTS, "-j", "1", "-M", "prepared", "-t", transactions]);
    command.args(["--random-seed=1", "-f", "-"]);
    Ok(program::run(&mut command, Some(input))?.output.text)
}

/// Bytes of all files below, without what is held back.
pub(crate) fn on_disk(path: &Path) -> std::io::Result<u64> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_dir() {
        let is_reserve = path.file_name().is_some_and(|name| name == RESERVE_NAME);
        return Ok(if is_reserve { 0 } else { metadata.blocks() * 512 });
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        match on_disk(&entry?.path()) {
            // Collectors and the server remove files at any time.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            found => bytes += found?,
        }
    }
    Ok(bytes)
}

/// A file of this name in one of the directories of a tablespace.
fn find(location: &Path, name: &str) -> Result<PathBuf, Failure> {
    let failed = |error| Failure::io(format!("looking at {}", location.display()), &error);
    let versions = fs::read_dir(location).map_err(failed)?;
    let found = versions.flatten().map(|version| version.path().join(name)).find(|path| path.exists());
    Ok(found.unwrap_or_else(|| location.join(name)))
}
