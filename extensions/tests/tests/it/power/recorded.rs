//! Power failures at moments of a recording.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgshrink_testkit::{Cluster, Rng, Seed, Server, ServerBinaries, Stop, TempDir, left_out};

use super::check::troubles;
use super::conversions;
use super::disk::{Disk, Failure};
use super::images::{Images, cluster};
use super::names::Rule;
use super::recording::{self, Kind, records};
use super::workload::{Acknowledged, PATTERN, Position, Running, setup};

/// A run of a server that was recorded.
struct Run {
    cluster: Cluster,
    location: TempDir,
    /// The recording is in it.
    scratch: TempDir,
    before: Disk,
    acknowledged: Arc<Acknowledged>,
    /// How long the recording was when the sessions ended.
    end: Position,
}

impl Run {
    fn new(server: &ServerBinaries, checksums: bool, seed: Seed, time: Duration) -> Run {
        let mut rng = Seed(seed.0 ^ 0x636f_6e76).rng();
        let cluster = cluster(server, checksums, &conversions::settings(&mut rng));
        let location = TempDir::owned_by(cluster.owner()).unwrap();
        let scratch = TempDir::owned_by(cluster.owner()).unwrap();
        let fast = make_directory(&cluster, &location, "fast");
        cluster.start().unwrap();
        prepare(&cluster, &fast, &mut rng);
        cluster.stop(Stop::Fast).unwrap();
        let before = Disk::read(&[&cluster.data_dir(), &fast]);
        let path = scratch.path().join("recording");
        record(&cluster, &path, &[&cluster.data_dir(), &fast]);
        cluster.start().unwrap();
        let of_client = path.clone();
        let running = Running::start(&cluster, scratch.path(), seed, move || recording::length(&of_client));
        std::thread::sleep(time);
        let acknowledged = running.end();
        let end = recording::length(&path);
        cluster.stop(Stop::Fast).unwrap();
        let troubles = troubles(&cluster.log().unwrap());
        assert!(troubles.is_empty(), "{seed:?}, the server that was recorded:\n{}", troubles.join("\n"));
        Run { cluster, location, scratch, before, acknowledged, end }
    }

    fn recording(&self) -> Vec<u8> {
        std::fs::read(self.scratch.path().join("recording")).unwrap()
    }
}

/// Has a server's next start, and all that follows, recorded.
fn record(cluster: &Cluster, path: &Path, roots: &[&Path]) {
    let roots: Vec<&str> = roots.iter().map(|root| root.to_str().unwrap()).collect();
    cluster.set_env("LD_PRELOAD", recording::library().display());
    cluster.set_env("PGSHRINK_RECORD", path.display());
    cluster.set_env("PGSHRINK_RECORD_ROOTS", roots.join(":"));
}

/// A directory of the server's user.
pub fn make_directory(cluster: &Cluster, within: &TempDir, name: &str) -> PathBuf {
    let path = within.path().join(name);
    std::fs::create_dir(&path).unwrap();
    if cluster.owner().step_down {
        std::os::unix::fs::chown(&path, Some(cluster.owner().uid), Some(cluster.owner().gid)).unwrap();
    }
    path
}

/// Makes what the sessions work on.
pub fn prepare(cluster: &Cluster, fast: &Path, rng: &mut Rng) {
    // Encrypted on servers without checksums.
    let has_checksums = cluster.sql("show data_checksums").unwrap() == "on";
    let encryption = if has_checksums { "off" } else { "on" };
    let fast = format!(
        "create tablespace fast location '{}' with (compression = 'zstd:1', encryption = {encryption})",
        fast.display()
    );
    cluster.sql(&format!("create extension cfs; {fast}; {}", setup(rng))).unwrap();
    cluster.psql().database("pattern").sql(PATTERN).unwrap();
    for extension in ["amcheck", "pg_visibility"] {
        if cluster.sql(&format!("create extension {extension}")).is_err() {
            let why = format!("PostgreSQL {} was built without {extension}", cluster.server().version);
            left_out("power failures", &why);
        }
    }
}

/// Where the power fails: at any record, right after one that says that a checkpoint is done, or soon after a step of
/// a conversion.
fn moments(run: &Run, bytes: &[u8], count: usize, rng: &mut Rng) -> Vec<Position> {
    let control = run.before.find("global/pg_control").unwrap();
    let is_control = |record: &recording::Record<'_>| {
        record.kind == Kind::SyncEnd && run.before.node_of(record) == Some(control)
    };
    let ends: Vec<Position> =
        records(bytes).filter(is_control).map(|record| record.end).filter(|end| *end < run.end).collect();
    let steps: Vec<Position> = records(bytes)
        .filter(|record| record.end < run.end && conversions::is_step(record))
        .map(|record| record.end)
        .collect();
    let any = |rng: &mut Rng| rng.below(run.end as usize) as Position;
    let soon = |rng: &mut Rng, after: &[Position], bytes_max: usize| match after.is_empty() {
        true => rng.below(run.end as usize) as Position,
        false => (*rng.pick(after) + rng.below(bytes_max) as Position).min(run.end),
    };
    let mut found: Vec<Position> = (0..count)
        .map(|nth| match nth % 4 {
            0 => any(rng),
            1 => {
                let bytes_max = 1 + rng.below(3) * (1 << 16);
                soon(rng, &ends, bytes_max)
            }
            _ => {
                let bytes_max = *rng.pick(&[1, 1000, 1 << 14, 1 << 16, 1 << 20, 4 << 20]);
                soon(rng, &steps, bytes_max)
            }
        })
        .collect();
    found.sort_unstable();
    found
}

/// Records a server at work, and starts servers on images of what it had written at so many moments.
fn power_failures(server: &ServerBinaries, checksums: bool, seed: Seed, time: Duration, count: usize) {
    let mut rng = seed.rng();
    let began = Instant::now();
    let mut run = Run::new(server, checksums, seed, time);
    let bytes = run.recording();
    let moments = moments(&run, &bytes, count, &mut rng);
    let images = Images::new(server, checksums);
    let mut next = 0;
    let mut disk = std::mem::replace(&mut run.before, Disk::read(&[]));
    for record in records(&bytes) {
        while next < moments.len() && record.end > moments[next] {
            let failure = match rng.below(4) {
                0 => Failure::total(*rng.pick(&[Rule::Journal, Rule::Loose])),
                _ => Failure::random(&mut rng),
            };
            let acknowledged = run.acknowledged.until(moments[next]);
            let wrong = images.try_one(&disk, &failure, &mut rng, &acknowledged);
            let place = format!("{seed:?}, image {next} at {} of {}, {failure:?}", moments[next], run.end);
            assert!(wrong.is_empty(), "{place}:\n{}", wrong.join("\n"));
            next += 1;
        }
        disk.apply(&record);
    }
    let differences = disk.differences();
    assert!(differences.is_empty(), "the recording missed something:\n{}", differences.join("\n"));
    let done: usize = run.acknowledged.until(run.end).iter().sum();
    let exchanges = records(&bytes).filter(|record| record.kind == Kind::Exchange).count();
    println!(
        "PostgreSQL {}, checksums {}, {seed:?}: {} images of {done} transactions, {exchanges} exchanges of names and {} MB of changes, {} s",
        server.version,
        if checksums { "on" } else { "off" },
        moments.len(),
        bytes.len() >> 20,
        began.elapsed().as_secs()
    );
    drop((run.cluster, run.location));
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_fails() {
    let seed = Seed::from_env_or_time();
    Server::each_with_extensions("power failures", &[15], |server| {
        for checksums in [true, false] {
            power_failures(server, checksums, seed, Duration::from_secs(4), 5);
        }
    });
}

/// For `make soak`: `PGSHRINK_POWER_ROUNDS` runs on each major, 30 unless it is set, with 10 images each.
#[test]
#[ignore = "minutes"]
fn nothing_acknowledged_is_lost_in_hundreds_of_power_failures() {
    let rounds = super::rounds();
    let mut rng = Seed::from_env_or_time().rng();
    Server::each_with_extensions("many power failures", &[15, 18], |server| {
        for round in 0..rounds {
            let seed = Seed(rng.bits());
            let time = Duration::from_secs(rng.between(4, 20) as u64);
            power_failures(server, round % 2 == 0, seed, time, 10);
        }
    });
}

/// The exchange that left it may be known to nobody but the page cache.
#[test]
fn what_an_exchange_left_is_removed_after_the_directory_was_synced() {
    Server::each_with_extensions("leftovers of an exchange", &[15], |server| {
        let cluster = cluster(server, true, &[]);
        cluster.start().unwrap();
        let path = "create table t (i) as select generate_series(1, 9000); select pg_relation_filepath('t')";
        let path = cluster.data_dir().join(cluster.sql(path).unwrap());
        cluster.stop(Stop::Fast).unwrap();
        let (above, left) = (path.parent().unwrap(), path.with_extension("pgshrink-new.7"));
        std::fs::hard_link(&path, &left).unwrap();
        let scratch = TempDir::owned_by(cluster.owner()).unwrap();
        let recording = scratch.path().join("recording");
        record(&cluster, &recording, &[&cluster.data_dir()]);
        cluster.start().unwrap();
        assert!(!left.exists() && cluster.sql("select count(*) from t").unwrap() == "9000");
        cluster.stop(Stop::Fast).unwrap();
        let bytes = std::fs::read(recording).unwrap();
        let above = std::fs::metadata(above).unwrap().ino();
        let is_removal = |record: &recording::Record<'_>| {
            record.kind == Kind::Unlink && record.path().ends_with(".pgshrink-new.7")
        };
        let removal = records(&bytes).position(|record| is_removal(&record)).expect("it was removed");
        let is_sync = |record: recording::Record<'_>| record.kind == Kind::SyncEnd && record.inode == above;
        assert!(records(&bytes).take(removal).any(is_sync), "it was removed before the directory was synced");
    });
}
