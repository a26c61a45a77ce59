//! Physical replicas: a base backup, and catching up with a bulk change made meanwhile.
//!
//! Both replicas are taken before the change, brought to the same point of the write-ahead log, and started after
//! it, one after the other: both receive the same log.

use std::time::{Duration, Instant};

use pgshrink_testkit::{Cluster, Stop};

use super::SharedLink;
use super::link::{Link, Used, Way, wait};
use crate::failure::Failure;
use crate::program;
use crate::progress::Progress;
use crate::stage::{Stage, checksum_query};
use crate::step::{Report, Step};

const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(120);
/// New versions of half of the rows, every document of them larger.
const BULK_CHANGE: &str = "update package set installed_size_kb = installed_size_kb + 1,
    document = document || jsonb_build_object('revised', id, 'summary_length', length(summary)) where id % 2 = 0";

/// Two replicas of the stage's server.
pub(super) struct Replica {
    link: SharedLink,
}

impl Replica {
    pub(super) fn new(link: SharedLink) -> Replica {
        Replica { link }
    }
}

impl Step for Replica {
    fn title(&self) -> &'static str {
        "replica"
    }

    fn phase_count(&self) -> u64 {
        5
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        let link = self.link.get(stage)?;
        let mut take = |way: Way| {
            progress.phase(&format!("base backup, {}", way.name()));
            // A backup brings the log from the beginning of its segment: both from one of their own.
            stage.sql("checkpoint; select pg_switch_wal()")?;
            let taken = link.measure(way, || take_backup(stage, link, way))?;
            Ok::<_, Failure>((verified(&taken.0, report)?, taken))
        };
        let (plain_intact, (plain_replica, plain)) = take(Way::Plain)?;
        let (shrunk_intact, (shrunk_replica, shrunk)) = take(Way::Connect)?;
        report.rows.push(Used::row("base backup", plain, shrunk, plain_intact && shrunk_intact));

        progress.phase("a bulk change for the replicas");
        bring_up(&plain_replica, &log_end(stage)?)?;
        stage.sql(BULK_CHANGE)?;
        let target = log_end(stage)?;
        let expected = stage.sql(&checksum_query("package"))?;
        let follow = |way: Way, replica: Cluster| {
            progress.phase(&format!("replica catching up, {}", way.name()));
            let used =
                catch_up(link, way, &replica, &target).map_err(|failure| link.explained(way, failure))?;
            let same = replica.sql(&checksum_query("package"))? == expected;
            replica.stop(Stop::Fast)?;
            Ok::<_, Failure>((same, used))
        };
        let (plain_same, plain) = follow(Way::Plain, plain_replica)?;
        let (shrunk_same, shrunk) = follow(Way::Connect, shrunk_replica)?;
        report.rows.push(Used::row("replica catching up", plain, shrunk, plain_same && shrunk_same));
        Ok(())
    }
}

fn take_backup(stage: &Stage, link: &Link, way: Way) -> Result<Cluster, Failure> {
    let conninfo = link.conninfo(stage, way, "postgres");
    let standby = stage.cluster.standby().name("replica").backup_from(&conninfo).stream_from(&conninfo);
    Ok(standby.create()?)
}

/// True when every file is as the server's manifest says.
fn verified(replica: &Cluster, report: &mut Report) -> Result<bool, Failure> {
    let mut command = replica.owner().command(replica.server().program("pg_verifybackup"));
    // The write-ahead log is checked by replaying it.
    command.args(["--quiet", "--no-parse-wal", "--ignore=standby.signal"]).arg(replica.data_dir());
    match program::run(&mut command, None) {
        Ok(_) => Ok(true),
        Err(Failure::Interrupted) => Err(Failure::Interrupted),
        Err(failure) => {
            report.problems.push(failure.to_string());
            Ok(false)
        }
    }
}

fn log_end(stage: &Stage) -> Result<String, Failure> {
    stage.sql("select pg_current_wal_flush_lsn()")
}

/// Has the replica of the first backup receive what the second one already holds, unmeasured.
fn bring_up(replica: &Cluster, target: &str) -> Result<(), Failure> {
    replica.start()?;
    wait_for_replay(replica, target)?;
    Ok(replica.stop(Stop::Fast)?)
}

/// Starts the replica and measures until it has replayed up to `target`.
fn catch_up(link: &Link, way: Way, replica: &Cluster, target: &str) -> Result<Used, Failure> {
    let before = link.reading(way)?;
    let begin = Instant::now();
    replica.start()?;
    wait_for_replay(replica, target)?;
    let wall = begin.elapsed();
    Ok(link.reading(way)?.since(before, wall))
}

fn wait_for_replay(replica: &Cluster, target: &str) -> Result<(), Failure> {
    let replayed = format!("select pg_last_wal_replay_lsn() >= '{target}'");
    let caught_up = || replica.sql(&replayed).is_ok_and(|answer| answer == "t");
    wait("the replica to catch up", CATCH_UP_TIME_MAX, caught_up).map_err(|failure| match failure {
        Failure::Interrupted => Failure::Interrupted,
        late => Failure::with_advice(late.to_string(), replica.log().unwrap_or_default()),
    })
}
