//! `pgshrink backup | restore | verify | list`: physical backups.
//!
//! A shell around `pgshrink-backup`: connections, threads, files and output are here, everything that knows a format is there.
//!
//! ```text
//!   auto: measure ▶ plan
//!   source ──▶ route: stream: incoming ▶ archives
//!                  or parallel: listing ▶ readers ──▶ transfer ▶ archive: chunks ▶ packs ▶ repository
//!              wal ─────────────────────────▶                    plain: files of a data directory
//!   source ──▶ configuration ─────▶ archive, or a directory beside plain and tar
//!   source ──▶ stream as it comes, and wal ──▶ tar_format, on_server
//!   repository ──▶ whole ▶ expected ▶ packs ▶ restore, verify
//!                  whole ▶ list
//!                                     restore ▶ boot (a server on a restored copy)
//! ```

mod archive;
mod archives;
mod auto;
mod boot;
mod chunks;
mod claim;
mod clock;
mod codecs;
mod configuration;
mod decoded;
pub(crate) mod decompress;
mod destination;
mod expected;
mod expire;
mod failure;
mod formats;
mod incoming;
mod interrupt;
mod keys;
mod known;
mod lease;
mod lz4_frames;
mod measure;
mod metrics;
mod on_server;
mod packs;
mod parallel;
mod places;
mod plain;
mod plan;
mod process;
mod report;
mod restore;
mod room;
mod route;
mod seen;
mod source;
mod stream;
mod tar_format;
mod tar_wal;
mod transfer;
mod unfinished;
mod wal;
#[cfg(test)]
mod watched;
mod whole;

use failure::Failure;

use crate::args::{BackupArgs, ExpireArgs, ListArgs, OutputArgs, RestoreArgs, VerifyBackupArgs};
use crate::cfs::output::{self, Progress};
use archive::{Encoding, Store};
use configuration::Collected;
use destination::Destination;
use expected::Expected;
use formats::{Asked, Kind};
use metrics::Ended;
use pgshrink_backup::pack::{Chunk, PackedFile};
use pgshrink_backup::retention::Lease;
use pgshrink_repository::Repository;
use plan::Plan;
use report::{Report, smaller};
use seen::{Seen, Stage};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use transfer::Step;
use whole::Whole;

/// Threads that nobody asked for, at most.
const THREADS_MAX: usize = 8;

/// What to do about a backup that verify found damaged.
const DAMAGED_IN_VERIFY: &str = "; verify stops at the first damage, so there may be more. Next step: verify another backup \
    (pgshrink list shows them), and take a new full one";

/// What to do about a backup whose damage restore met.
const DAMAGED_IN_RESTORE: &str = "; next step: restore another backup (pgshrink list shows them)";

/// `pgshrink backup`.
pub(crate) fn backup(args: &BackupArgs) -> ExitCode {
    ended(run_backup(args), &args.output)
}

/// `pgshrink restore`.
pub(crate) fn restore(args: &RestoreArgs) -> ExitCode {
    match run_restore(args) {
        Err(error) => {
            error.ending_with(DAMAGED_IN_RESTORE).tell(args.output.json);
            ExitCode::from(crate::EXIT_FAILED)
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// `pgshrink verify`.
pub(crate) fn verify(args: &VerifyBackupArgs) -> ExitCode {
    let next_step = if args.boot.boot { "" } else { DAMAGED_IN_VERIFY };
    match run_verify(args) {
        Err(error @ (Failure::Damage { .. } | Failure::Unencrypted { .. })) => {
            error.ending_with(next_step).tell(args.output.json);
            ExitCode::from(crate::EXIT_PROBLEM)
        }
        done => ended(done, &args.output),
    }
}

/// `pgshrink expire`.
pub(crate) fn expire(args: &ExpireArgs) -> ExitCode {
    ended(expire::run(args), &args.output)
}

/// `pgshrink list`.
pub(crate) fn list(args: &ListArgs) -> ExitCode {
    match run_list(args) {
        Ok(false) => ExitCode::from(crate::EXIT_PROBLEM),
        done => ended(done.map(|_| ()), &args.output),
    }
}

fn ended(done: Result<(), Failure>, output: &OutputArgs) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.ending().tell(output.json);
            ExitCode::from(crate::EXIT_FAILED)
        }
    }
}

fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX))
}

fn run_backup(args: &BackupArgs) -> Result<(), Failure> {
    let began = Instant::now();
    let done = take(args);
    if let Some(path) = &args.metrics_file {
        let ended = Ended { is_success: done.is_ok(), took: began.elapsed() };
        let written = keys::open_at(&args.to, &args.key)
            .and_then(|repository| metrics::write(path, &*repository, Some(&ended)));
        // The backup's own end matters more.
        written.unwrap_or_else(|error| eprintln!("pgshrink: no metrics: {error}"));
    }
    done
}

fn take(args: &BackupArgs) -> Result<(), Failure> {
    let kind = Kind::of(args)?;
    let level = args.level.unwrap_or_default();
    let encoding = Encoding { level, threads: threads(args.threads), pack_bytes: args.pack_size_mib << 20 };
    let mut plan = Plan::of(args, &kind, &encoding)?;
    let repository = match kind {
        Kind::Archive => Some(keys::create(&args.to, &args.key)?),
        _ => None,
    };
    let mut server = plan.connect(&args.conninfo, Duration::from_secs(args.server_timeout_s))?;
    let resume = match &repository {
        Some(repository) if args.resume => resumable(&**repository, &server.system.to_string())?,
        _ => None,
    };
    let configuration = configuration::find(args, &mut server)?;
    interrupt::watch(server.closers()?)?;
    let beside = match kind {
        Kind::Archive => None,
        _ => configuration::beside(args, &configuration)?,
    };
    let bar = Progress::new(0, &args.output);
    bar.note(|| "the server is performing a checkpoint".to_owned());
    let (done, kept) = (AtomicU64::new(0), AtomicU64::new(0));
    let progress = |step| match step {
        Step::Total(bytes) => bar.set_total(bytes),
        Step::Done(bytes) => bar.add(bytes.saturating_sub(done.swap(bytes, Ordering::Relaxed))),
        Step::Kept(bytes) => {
            let kept = kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
            bar.note(|| smaller(done.load(Ordering::Relaxed), kept));
        }
    };
    let mut options = kind.options(plan.options(args)?);
    let taken = loop {
        let asked = Asked { options, to: &args.to };
        let taken = match &repository {
            Some(repository) => {
                let store = Store {
                    repository: &**repository,
                    resume: resume.as_ref().map(|(name, attempts)| (name.as_str(), *attempts)),
                    configuration: &configuration,
                };
                let taken = archive::take(&mut server, &options, &store, &encoding, &progress);
                interrupt::or_cause(taken).map(Taken::Archive)
            }
            None => formats::take(&kind, &mut server, &asked, args, &progress).map(Taken::Other),
        };
        match taken {
            Ok(taken) => break taken,
            Err(failure) => {
                options.compression = plan.instead(failure, &mut server, options.compression)?;
            }
        }
    };
    drop(bar);
    if let Some(beside) = beside {
        beside.keep();
    }
    let taken = match taken {
        Taken::Other(written) => return formats::report(args, written.chosen(plan.chosen())),
        Taken::Archive(taken) => taken,
    };
    let report = Report { choice: plan.chosen(), ..Report::of(&taken.name, &taken.record) };
    print(&args.output, &report, Report::text)
}

/// The newest backup of a cluster that was begun and whose writer is gone, and how many attempts at it there were.
fn resumable(repository: &dyn Repository, system: &str) -> Result<Option<(String, u32)>, Failure> {
    let mut begun = whole::names(repository)?.begun;
    begun.retain(|name| {
        claim::Begun::last(repository, name).is_ok_and(|begun| begun.system_identifier == system)
    });
    let attempts: Vec<u32> = begun
        .iter()
        .map(|name| Ok(seen::Seen::of(repository, name)?.attempts()))
        .collect::<Result<_, Failure>>()?;
    let leases = lease::observe(repository, &begun)?;
    let silent = begun.into_iter().zip(attempts).zip(leases).rfind(|(_, lease)| *lease == Lease::Silent);
    Ok(silent.map(|(found, _)| found))
}

/// What was made.
enum Taken {
    Archive(archive::Taken),
    Other(formats::Written),
}

fn run_restore(args: &RestoreArgs) -> Result<(), Failure> {
    let to = Destination::new(&args.into, &args.tablespace_mapping)?.resumed(args.resume);
    let to = Destination { configuration: args.configuration_into.clone(), ..to };
    to.check_outside(&args.from.from)?;
    let threads = threads(args.threads);
    let repository = keys::open(&args.from)?;
    let whole = Whole::open(&*repository, &args.backup)?;
    let left = format!("{} is not complete; run it again with --resume to continue", args.into.display());
    let last_word = interrupt::last_word(left)?;
    let bar = Progress::new(whole.record.raw_bytes, &args.output);
    restore::restore(&whole, &to, threads, &|bytes| {
        bar.add(bytes);
        Ok(())
    })?;
    drop(bar);
    drop(last_word);
    let report = Report::of(&whole.name, &whole.record);
    if args.into.join("standby.signal").exists() {
        eprintln!(
            "pgshrink: this is a backup of a standby: when it starts, it follows the primary of its \
             primary_conninfo. To make it an independent server, remove standby.signal first."
        );
    }
    let hints = configuration::hints(&whole.record, &args.into, args.configuration_into.as_deref())?;
    hints.iter().for_each(|hint| eprintln!("pgshrink: {hint}"));
    say_whose(&args.into);
    print(&args.output, &report, |report| format!("{} is in {}\n", report.backup, args.into.display()))
}

/// A server does not run as root, nor on files of another user.
fn say_whose(into: &Path) {
    if rustix::process::geteuid().is_root() {
        eprintln!(
            "pgshrink: the restored files are owned by root, but a server cannot run as root: change the \
             owner of {} and its tablespaces to the server's user (chown -R)",
            into.display()
        );
    }
}

fn run_verify(args: &VerifyBackupArgs) -> Result<(), Failure> {
    let threads = threads(args.threads);
    if let Some(scratch) = &args.boot.scratch {
        destination::refuse_inside(&args.from.from, "--scratch", scratch)?;
    }
    let repository = keys::open(&args.from)?;
    let whole = Whole::open(&*repository, &args.backup)?;
    claim::verify(&*repository, (&whole.name, whole.attempt), whole.record.id)?;
    if args.boot.boot {
        return boot::verify(&whole, args, threads);
    }
    let bar = Progress::new(whole.record.raw_bytes, &args.output);
    let expected = Expected::of(&whole)?;
    let collected = Collected::of(&whole.record)?;
    let take = |file: &PackedFile, chunk: &Chunk, raw: &[u8]| {
        if !collected.take(file, chunk, raw)? {
            bar.add(raw.len() as u64);
        }
        Ok(())
    };
    packs::read_packs(&whole, &expected, threads, (&|_, _| Ok(false), &take))?;
    expected.check()?;
    collected.finish()?;
    drop(bar);
    let report = Report::of(&whole.name, &whole.record);
    print(&args.output, &report, |report| {
        format!("{}: all chunks and files match the manifest\n", report.backup)
    })
}

/// A backup as `list` shows it.
#[derive(Serialize)]
struct Listed {
    backup: String,
    state: State,
    /// What is wrong with it.
    reason: Option<String>,
    /// Of one that is complete.
    details: Option<Report>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Complete,
    Writing,
    Incomplete,
    /// Encrypted with another key than was given.
    Locked,
    /// Not encrypted, and a key was given.
    Unencrypted,
    Damaged,
    Removing,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Complete => "complete",
            State::Incomplete => "incomplete",
            State::Locked => "locked",
            State::Unencrypted => "unencrypted",
            State::Damaged => "damaged",
            State::Removing => "being removed",
            State::Writing => "in progress",
        }
    }

    /// Of a backup whose record cannot be read. None: the repository cannot be.
    fn of(error: &Failure) -> Option<State> {
        match error {
            Failure::Damage { .. } | Failure::Other { .. } => Some(State::Damaged),
            Failure::Locked { .. } => Some(State::Locked),
            Failure::Unencrypted { .. } => Some(State::Unencrypted),
            _ => None,
        }
    }
}

/// A backup that has a manifest, as its record and the sizes of its packs show it.
fn complete(repository: &dyn Repository, name: &str, attempt: u32) -> Result<Listed, Failure> {
    let backup = name.to_owned();
    let whole = Whole::read(repository, name, attempt);
    match whole.and_then(|whole| whole.check_sizes().map(|()| whole)) {
        Ok(whole) => {
            let details = Some(Report::of(name, &whole.record));
            Ok(Listed { backup, state: State::Complete, reason: None, details })
        }
        Err(error) => {
            let Some(mut state) = State::of(&error) else { return Err(error) };
            // Somebody may have removed it meanwhile.
            if state == State::Damaged && Seen::of(repository, name)?.stage() != Stage::Complete(attempt) {
                state = State::Removing;
            }
            Ok(Listed { backup, state, reason: Some(error.to_string()), details: None })
        }
    }
}

/// True: all backups are whole, as far as a look at their records and packs' sizes tells, need another key, or were never completed.
fn run_list(args: &ListArgs) -> Result<bool, Failure> {
    let repository = keys::open(&args.from)?;
    if let Some(path) = &args.metrics_file {
        metrics::write(path, &*repository, None)?;
    }
    let names = whole::names(&*repository)?;
    let mut found = Vec::new();
    for (name, attempt) in &names.whole {
        found.push(complete(&*repository, name, *attempt)?);
    }
    found.extend(names.begun.into_iter().map(|name| begun(&*repository, name)));
    found.extend(names.removing.into_iter().map(|backup| Listed {
        reason: Some(format!("{backup}: a run of expire was interrupted; run it again")),
        backup,
        state: State::Removing,
        details: None,
    }));
    print(&args.output, &found, |found| {
        if found.is_empty() {
            return String::new();
        }
        let mut rows = vec![["BACKUP", "PG", "TAKEN", "LSN", "SIZE", "STORED"].map(str::to_owned).to_vec()];
        rows.extend(found.iter().map(row));
        output::table(&rows)
    })?;
    if !found.iter().any(|listed| listed.state == State::Complete) {
        eprintln!("pgshrink: {}: the repository has no complete backup", args.from.from);
    }
    let reasons = found.iter().filter_map(|listed| listed.reason.as_ref());
    reasons.for_each(|reason| eprintln!("pgshrink: {reason}"));
    Ok(!found.iter().any(|listed| matches!(listed.state, State::Damaged | State::Unencrypted)))
}

/// A backup that is being written or was interrupted.
fn begun(repository: &dyn Repository, backup: String) -> Listed {
    let process = claim::Begun::last(repository, &backup).map(|begun| begun.process);
    let (state, reason) = match process {
        Ok(process) => match process.is_alive() {
            Some(true) => (State::Writing, format!("{} writes it", process.place())),
            Some(false) => {
                (State::Incomplete, format!("it was written by {}, which is gone", process.place()))
            }
            None => (State::Incomplete, format!("it was written by {}, or still is", process.place())),
        },
        Err(error) => (State::Incomplete, error.to_string()),
    };
    let reason = Some(format!("{backup}: {reason}"));
    Listed { backup, state, reason, details: None }
}

fn row(listed: &Listed) -> Vec<String> {
    let Some(details) = &listed.details else {
        return vec![listed.backup.clone(), String::new(), listed.state.name().to_owned()];
    };
    vec![
        listed.backup.clone(),
        (details.server_version / 10_000).to_string(),
        details.stop_time.clone(),
        details.stop_lsn.clone(),
        output::size(details.raw_bytes),
        output::size(details.stored_bytes),
    ]
}

fn print<R: Serialize>(
    args: &OutputArgs,
    report: &R,
    text: impl FnOnce(&R) -> String,
) -> Result<(), Failure> {
    output::print(args, report, text).map_err(|error| Failure::new("output", error))
}
