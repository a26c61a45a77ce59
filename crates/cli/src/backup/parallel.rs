//! The parallel route: files are read over several ordinary connections, between `pg_backup_start` and `pg_backup_stop`.
//!
//! ```text
//!   control: listing --> Run, bounded   queue --> reader --\
//!                                            \--> reader ---+--> jobs, ledger --> manifest
//!   then control: pg_control, pg_backup_stop, backup_label
//! ```
//! It needs no superuser and nothing installed, and the server compresses nothing.
//!
//! Invariants:
//! 1. The control file is read when all other files are complete, as a server does it.
//! 2. The backup is over for the server when its session ends: whoever fails closes all connections.

mod begin;
mod damage;
mod end;
mod ledger;
mod listing;
mod pace;
mod pieces;
mod reader;
mod sessions;
mod stop;

use super::Failure;
use super::chunks::Jobs;
use super::transfer::{Fetched, Progress, Route};
use begin::{Begun, begin};
use damage::Damage;
use ledger::Ledger;
use listing::Lead;
use pace::Pace;
use pgshrink_backup::BackupPath;
use pgshrink_backup::base_backup::{MaxRate, Options, Position, ServerMajor, Tablespace};
use pgshrink_backup::files::{ListedFile, Rules, Walk};
use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_pgclient::connection::Closer;
use pieces::{Kept, Run};
use reader::Reading;
use std::io::Write;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;
use stop::Stop;

pub(super) use sessions::{Control, Sessions, check_rights, set_up};

/// Runs of pieces that wait for a reader, at most.
const RUNS_MAX: usize = 1024;
/// Pieces of a file that are asked for together: in one statement the server uses its buffers again, which spares it half of
/// its processor time. With a rate there is one, so that it is kept from moment to moment.
const RUN_PIECES: usize = 8;
/// Connections that read, at most.
pub(super) const CONNECTIONS_MAX: usize = 32;
/// Connections that nobody asked for, at most.
pub(super) const CONNECTIONS_DEFAULT_MAX: usize = 4;

/// A backup that has begun.
pub(super) struct Parallel<'c> {
    sessions: &'c mut Sessions,
    closers: Arc<Vec<Closer>>,
    begun: Begun,
    major: ServerMajor,
    system: SystemIdentifier,
    max_rate: Option<MaxRate>,
    with_map: bool,
}

impl<'c> Parallel<'c> {
    /// Waits for the server's checkpoint.
    pub(super) fn begin(
        sessions: &'c mut Sessions,
        major: ServerMajor,
        system: SystemIdentifier,
        options: &Options<'_>,
    ) -> Result<Parallel<'c>, Failure> {
        let closers = Arc::new(sessions.closers()?);
        let begun = begin(&mut sessions.control, options)?;
        let (max_rate, with_map) = (options.max_rate, options.tablespace_map);
        Ok(Parallel { sessions, closers, begun, major, system, max_rate, with_map })
    }
}

impl Route for Parallel<'_> {
    fn start(&self) -> Position {
        self.begun.start
    }

    fn tablespaces(&self) -> &[Tablespace] {
        &self.begun.tablespaces
    }

    fn breaker(&self) -> Box<dyn FnOnce() + Send> {
        let closers = Arc::clone(&self.closers);
        Box::new(move || closers.iter().for_each(Closer::close))
    }

    fn fetch(
        self,
        jobs: &Jobs<'_>,
        manifest: &mut (dyn Write + Send),
        progress: Progress<'_>,
    ) -> Result<Fetched, Failure> {
        let Position { lsn, .. } = self.begun.start;
        let rules = Rules::new(self.major, self.sessions.catalog_version, Vec::new());
        let mut walk = Walk::new(&rules, &self.begun.spaces)?;
        let identifier = (self.major.number() >= 17).then_some(self.system);
        let kept = Kept::new(jobs, Ledger::new(identifier, manifest), progress);
        let (damage, pace) = (Damage::default(), self.max_rate.map(Pace::new));
        let stop = Stop::new(Arc::clone(&self.closers));
        let (sender, runs) = sync_channel(RUNS_MAX);
        let reading = Reading {
            runs: &Mutex::new(runs),
            kept: &kept,
            stop: &stop,
            pace: pace.as_ref(),
            verify: self.begun.verify.then_some((lsn, &damage)),
        };
        read_files(self.sessions, &mut walk, sender, self.begun.was_standby, &reading);
        stop.result()?;
        damage.result()?;
        let (directories, control) = walk.finish()?;
        self.finish(directories, &control, kept)
    }
}

impl Parallel<'_> {
    /// What is left when all files but the control file are here.
    fn finish(
        self,
        directories: Vec<BackupPath>,
        control: &ListedFile,
        kept: Kept<'_>,
    ) -> Result<Fetched, Failure> {
        let connection = &mut self.sessions.control;
        end::read_control(connection, control, self.system, &kept)?;
        let stopped = end::stop(connection)?;
        stopped.check(self.begun.start, &self.begun.tablespaces)?;
        stopped.add_files(self.with_map, &kept)?;
        let listed = stopped.end_manifest(self.begun.start, kept)?;
        Ok(Fetched {
            stop: stopped.stop,
            directories,
            files: listed.files,
            raw_bytes: listed.bytes,
            label: stopped.label,
            manifest: listed.sha256,
        })
    }
}

/// Lists and reads all files but the control file. Failures are in `reading.stop`.
fn read_files(
    sessions: &mut Sessions,
    walk: &mut Walk<'_>,
    runs: SyncSender<Run>,
    was_standby: bool,
    reading: &Reading<'_, '_>,
) {
    let Sessions { control, readers, .. } = sessions;
    let stop = reading.stop;
    let note = |done: Result<(), Failure>| done.unwrap_or_else(|failure| stop.fail(failure));
    thread::scope(|scope| {
        let readers: Vec<_> = readers
            .iter_mut()
            .map(|reader| scope.spawn(move || note(reader::read(reader, reading))))
            .collect();
        let run_pieces = if reading.pace.is_some() { 1 } else { RUN_PIECES };
        let mut lead = Lead { control, was_standby, looked: Instant::now(), stop, run_pieces };
        let listed = lead.list(walk, &runs, reading.kept);
        drop(runs);
        let all = || readers.iter().all(|reader| reader.is_finished());
        note(listed.and_then(|()| lead.wait(all)));
        for reader in readers {
            if reader.join().is_err() {
                stop.fail(Failure::new("pgshrink", "a thread has panicked; please report it"));
            }
        }
    });
}
