//! `pgshrink verify --boot`: a backup is restored to scratch space, a server is started on it, and everything is read back.
//!
//! ```text
//!   restore ▶ start, WAL is replayed ▶ stop ▶ pg_checksums ▶ a role of our own ▶ start ▶ read every database ▶ report
//! ```
//! The cluster is started with its own settings, but nobody can connect to it except over a private socket, and it connects to nobody.
//! The server and the scratch space are gone at the end, whatever the end is; a server does not survive this process.
//!
//! Two verdicts are kept apart: the backup is damaged, or this machine could not tell.

mod admit;
mod checks;
mod cluster;
mod interrupt;
mod layout;
mod pages;
mod programs;
mod reading;
mod relations;
mod report;
mod scratch;
mod session;
mod settings;
mod startup;
mod tools;
mod verdict;

use super::whole::Whole;
use super::{Failure, clock, print, restore};
use crate::args::{BootArgs, VerifyBackupArgs};
use crate::cfs::output::Progress;
use cluster::Cluster;
use interrupt::Interrupt;
use pages::Checksums;
use pgshrink_codec::counted;
use programs::Programs;
use reading::Ledger;
use report::{Problem, Report, Seconds, ServerReport, Verdict, Wal};
use scratch::Scratch;
use session::Access;
use settings::Settings;
use std::thread;
use std::time::{Duration, Instant};

/// Seconds for a start, unless `--boot-timeout-s` says otherwise.
const BOOT_TIMEOUT_SECONDS: u64 = 3600;
/// Between two looks whether somebody wants an end.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// Verifies a backup by starting a server on it.
///
/// # Errors
/// [`Failure::Damage`] when the backup is damaged. Any other when it could not be verified, or not all of it.
pub(super) fn verify(whole: &Whole<'_>, args: &VerifyBackupArgs, threads: usize) -> Result<(), Failure> {
    let programs = check(whole, &args.boot)?;
    let interrupt = Interrupt::listen()?;
    let mut report = begin(whole, &programs);
    let scratch = Scratch::make(args.boot.scratch.as_deref(), args.boot.keep_scratch)?;
    let boot = Boot { whole, args, threads, programs: &programs, interrupt: &interrupt, scratch: &scratch };
    match boot.run(&mut report) {
        Err(Failure::Damage { what, reason, .. }) => report.add_problem(Problem {
            database: None,
            schema: None,
            relation: None,
            check: "restore and start".to_owned(),
            message: format!("{what}: {reason}"),
        }),
        done => done?,
    }
    report.ended = now();
    report.judge();
    let written = args.boot.report.as_ref().map_or(Ok(()), |path| report.write(path));
    if args.boot.keep_scratch {
        eprintln!("pgshrink: the restored cluster is in {}", scratch.path().display());
    }
    drop(scratch);
    print(&args.output, &report, Report::text)?;
    report.problems.iter().for_each(|problem| eprintln!("pgshrink: {problem}"));
    written?;
    match report.verdict {
        Verdict::Good => Ok(()),
        Verdict::Damaged => {
            let count = counted(report.problem_count, "problem", "problems");
            Err(Failure::damage(&whole.name, format!("the backup is damaged: {count}")))
        }
        Verdict::Incomplete => {
            let count = counted(report.not_read(), "relation", "relations");
            let what = format!("no damage was found, but {count} could not be read");
            Err(Failure::new(&whole.name, what))
        }
    }
}

/// What can be refused before anything is restored.
fn check(whole: &Whole<'_>, args: &BootArgs) -> Result<Programs, Failure> {
    settings::parse(&args.set)?;
    if args.boot_timeout_s == Some(0) {
        return Err(Failure::new("--boot-timeout-s", "expected a number from 1, found 0"));
    }
    let programs = Programs::find(args.server_bin.as_deref(), major(whole))?;
    if rustix::process::geteuid().is_root() {
        let next = "Run pgshrink as a user who can read the repository, such as: runuser -u postgres -- pgshrink verify …";
        return Err(Failure::new("--boot", format!("PostgreSQL refuses to run as root. {next}")));
    }
    if let Some(path) = &args.report {
        let folder = report::folder_of(path);
        if !folder.is_dir() {
            return Err(Failure::new(
                folder.display(),
                "expected a directory for the report; create it first",
            ));
        }
        report::check_folder(folder)?;
    }
    Ok(programs)
}

/// 15 of 150014.
fn major(whole: &Whole<'_>) -> u32 {
    whole.record.server_version / 10_000
}

fn begin(whole: &Whole<'_>, programs: &Programs) -> Report {
    let record = &whole.record;
    Report {
        format: "pgshrink verify report",
        version: 1,
        verdict: Verdict::Incomplete,
        backup: whole.name.clone(),
        id: record.id.to_string(),
        label: record.label.clone(),
        system_identifier: record.system_identifier.to_string(),
        manifest_sha256: record.manifest_sha256.to_string(),
        record_sha256: record.sha256().map(|sha256| sha256.to_string()).unwrap_or_default(),
        server: ServerReport {
            backed_up: record.server_version,
            started: programs.version.clone(),
            bin: programs.bin.display().to_string(),
        },
        began: now(),
        ended: String::new(),
        seconds: Seconds::default(),
        wal: Wal {
            start_lsn: record.start_lsn.to_string(),
            stop_lsn: record.stop_lsn.to_string(),
            timeline: record.stop_timeline.number(),
            replayed_to: None,
        },
        checksums: None,
        notes: Vec::new(),
        databases: Vec::new(),
        problem_count: 0,
        problems: Vec::new(),
    }
}

struct Boot<'b> {
    whole: &'b Whole<'b>,
    args: &'b VerifyBackupArgs,
    threads: usize,
    programs: &'b Programs,
    interrupt: &'b Interrupt,
    scratch: &'b Scratch,
}

impl Boot<'_> {
    fn run(&self, report: &mut Report) -> Result<(), Failure> {
        let began = Instant::now();
        self.restore()?;
        report.seconds.restore = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let mut cluster = self.start(report)?;
        report.seconds.start = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let read = self.read(&mut cluster, report);
        report.seconds.checks = began.elapsed().as_secs_f64();
        read
    }

    fn restore(&self) -> Result<(), Failure> {
        let bar = Progress::new(self.whole.record.raw_bytes, &self.args.output);
        let to = self.scratch.destination(&self.whole.record);
        restore::restore(self.whole, &to, self.threads, &|bytes| {
            bar.add(bytes);
            self.interrupt.check()
        })
    }

    fn start(&self, report: &mut Report) -> Result<Cluster<'_>, Failure> {
        let settings = Settings::prepare(self.scratch, &self.whole.record, &self.args.boot.set)?;
        report.notes.extend(settings.notes.iter().cloned());
        let timeout = Duration::from_secs(self.args.boot.boot_timeout_s.unwrap_or(BOOT_TIMEOUT_SECONDS));
        let mut cluster = Cluster::new(self.programs, self.scratch, self.interrupt, settings, timeout);
        cluster.start()?;
        report.wal.replayed_to = cluster.replayed_to()?;
        Ok(cluster)
    }

    fn read(&self, cluster: &mut Cluster<'_>, report: &mut Report) -> Result<(), Failure> {
        cluster.stop()?;
        let pages = pages::check(cluster)?;
        report.checksums = Some(pages.checksums);
        report.notes.extend(pages.why.map(|why| format!("page checksums were not compared: {why}")));
        let ledger = Ledger::new(pages.bad);
        let done = self.read_databases(cluster, &ledger);
        let (count, problems) = ledger.end();
        problems.into_iter().for_each(|problem| report.add_problem(problem));
        report.problem_count = report.problem_count.max(count);
        match done {
            Ok(databases) => report.databases = databases,
            // What was found stays found.
            Err(error) if report.problem_count > 0 && !self.interrupt.has_come() => {
                report.notes.push(format!("not everything was read: {error}"));
            }
            Err(error) => return Err(error),
        }
        if pages.checksums == Checksums::Off {
            report.notes.push("the cluster has no page checksums".to_owned());
        }
        Ok(())
    }

    /// In another thread, so that a signal is noticed while the server is busy. The server is this thread's child, and ends with it.
    fn read_databases(
        &self,
        cluster: &mut Cluster<'_>,
        ledger: &Ledger,
    ) -> Result<Vec<report::DatabaseReport>, Failure> {
        let role = admit::superuser(cluster)?;
        cluster.start()?;
        let access = Access {
            sockets: self.scratch.sockets(),
            role,
            major: major(self.whole),
            interrupt: self.interrupt,
            log: cluster.log(),
        };
        let bar = Progress::new(0, &self.args.output);
        thread::scope(|scope| {
            let reading = scope.spawn(|| reading::read_all(&access, self.threads, ledger, &bar));
            while !reading.is_finished() {
                if self.interrupt.has_come() {
                    cluster.quit();
                }
                thread::sleep(LOOK_PERIOD);
            }
            let panicked = |_| Err(Failure::new("pgshrink", "a thread has panicked; please report it"));
            reading.join().unwrap_or_else(panicked)
        })
    }
}

fn now() -> String {
    clock::now().map(|time| time.to_string()).unwrap_or_default()
}
