//! Fsyncs: of one file, and of all that a checkpoint will ask for.
//!
//! A checkpoint asks for one fsync per file, one after the other. So its first one commits **all** segments that
//! have something to commit, together, and the following ones find their commit done. What others write in the
//! meantime stays for the next checkpoint; but the server may already have crossed their request out, because it
//! counts requests by file: one that comes while the file's turn has yet to come is served by that turn. A file
//! whose fsync found it written again is therefore remembered, and committed before the *next* checkpoint's end, if
//! nothing else does so: when the checkpointer opens the control file to write it.
//!
//! A checkpoint that fails has no such end. The next one begins a second later at the earliest (the checkpointer
//! sleeps), or with writes of its own: both end a cycle, as if it had never been.
// Signals are blocked while there are threads.
#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use pgshrink_cfs::group::{self, GROUP_MAX, Threads};
use pgshrink_cfs::segment::clear;
use pgshrink_cfs::slots::{Access, SegmentKey};
use pgshrink_cfs::{Base, Device, Error, Moment};
use pgshrink_interpose::Errno;

use crate::descriptors;
use crate::file::{SegmentFile, ServerOpener, sync_own_directory};
use crate::front::{GONE, is_gone, opener};
use crate::process::{OpenFile, Process, Using};
use crate::report::{errno_of, reported};
use crate::server::Shared;

/// Time between two fsyncs of a checkpoint after which it counts as another one: less than a checkpointer sleeps
/// after an error.
const CYCLE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a checkpointer remembers between fsyncs.
#[derive(Default)]
pub(crate) struct Checkpoints {
    cycle: Option<Cycle>,
    /// Segments that were written again before their fsync, in this checkpoint and in the last one.
    late: HashSet<SegmentKey>,
    late_before: HashSet<SegmentKey>,
}

/// Fsyncs of one checkpoint.
struct Cycle {
    /// What was committed together, and from which moment on.
    moments: HashMap<SegmentKey, Moment>,
    last: Instant,
}

impl Checkpoints {
    /// The process wrote a page, as a checkpoint does before its first fsync.
    pub(crate) fn end_cycle(&mut self) {
        self.cycle = None;
    }

    fn moment(&mut self, key: &SegmentKey) -> Option<Moment> {
        let cycle = self.cycle.as_mut().filter(|cycle| cycle.last.elapsed() < CYCLE_PAUSE_MAX)?;
        cycle.last = Instant::now();
        cycle.moments.remove(key)
    }
}

/// An fsync of the server's.
pub(super) fn sync(process: &mut Process, descriptor: RawFd) -> Result<(), Errno> {
    let shared = process.shared;
    let key = process.file(descriptor)?.key();
    let look = process.member.look(&key).map_err(|error| reported(&key, &error))?;
    // Who only reads has synced nothing: it may have been opened by a hint to write back what was written before.
    match look.filter(|look| look.is_writable || look.is_uncommitted) {
        // Nothing is in memory, and what was written before is in the file. After a crash of the server it may not
        // be on the disk.
        None => {
            let file = SegmentFile::borrowed(descriptor, key, shared);
            // Recovery begins with an fsync of every file, and later of the directory that has it. Most have been synced before.
            let root = clear(&file);
            if root.is_some_and(|root| root.base != Base::None) {
                file.base_fdatasync().map_err(|source| {
                    errno_of(&Error::Device { operation: "fsync of the base", offset: 0, length: 0, source })
                })?;
            }
            let is_named = root.is_some_and(|root| root.is_whole && root.is_named);
            let names = || if is_named { sync_own_directory(&key, shared) } else { file.sync_dir() };
            file.fdatasync().and_then(|()| names()).map_err(|source| {
                errno_of(&Error::Device { operation: "fsync", offset: 0, length: 0, source })
            })
        }
        Some(look) if !look.is_uncommitted => Ok(()),
        Some(_) if shared.is_checkpointer() => in_checkpoint(process, descriptor, key),
        Some(_) => commit(process, descriptor, &key, |pinned| pinned.commit().map(drop)),
    }
}

fn commit(
    process: &mut Process,
    descriptor: RawFd,
    key: &SegmentKey,
    commit: impl FnOnce(&Using<'_>) -> Result<(), Error>,
) -> Result<(), Errno> {
    let shared = process.shared;
    let file = process.file(descriptor)?;
    let pinned = file.pin(Access::Write, &opener(shared, descriptor));
    match pinned.and_then(|pinned| commit(&pinned)) {
        Err(error) if is_gone(&error) => Err(GONE),
        done => done.map_err(|error| reported(key, &error)),
    }
}

fn in_checkpoint(process: &mut Process, descriptor: RawFd, key: SegmentKey) -> Result<(), Errno> {
    if let Some(moment) = process.checkpoints.moment(&key) {
        process.checkpoints.late.insert(key);
        return commit(process, descriptor, &key, |pinned| pinned.commit_since(moment).map(drop));
    }
    let keys = process.member.open_segments(true).map_err(|error| reported(&key, &error))?;
    let mut moments = commit_all(process, &keys);
    match moments.remove(&key) {
        Some(_) => {}
        // It could not be opened; the reason is found here.
        None => commit(process, descriptor, &key, |pinned| pinned.commit().map(drop))?,
    }
    process.checkpoints.cycle = Some(Cycle { moments, last: Instant::now() });
    Ok(())
}

/// Commits segments together; returns those that are committed, each with the moment before. What fails is left to
/// who asks for it.
fn commit_all(process: &mut Process, keys: &[SegmentKey]) -> HashMap<SegmentKey, Moment> {
    let (shared, member) = (process.shared, process.member);
    let mut moments = HashMap::with_capacity(keys.len());
    // Each thread may have to open a directory. Where that cannot be, each fsync commits one segment.
    let spare = descriptors::left().saturating_sub(Threads::default().count);
    if spare == 0 {
        return moments;
    }
    // Others need slots meanwhile.
    let group_max = GROUP_MAX.min(shared.region.capacity().segments_max as usize / 4).max(1);
    let mut left: HashSet<SegmentKey> = keys.iter().copied().collect();
    // What the checkpoint has just written is open: nothing is opened again.
    let mut is_due = |file: &OpenFile| !file.is_read_only && left.remove(&file.key());
    let open: Vec<usize> = (0..process.files.len())
        .filter(|at| process.files[*at].as_deref().is_some_and(&mut is_due))
        .collect();
    for group in open.chunks(group_max) {
        let (first, last) = (group[0], group[group.len() - 1]);
        let files = (first..).zip(&mut process.files[first..=last]);
        let files = files.filter(|(at, _)| group.binary_search(at).is_ok());
        let pinned = files.filter_map(|(at, file)| {
            let file = file.as_deref_mut()?;
            Some((file.key(), file.pin(Access::Write, &opener(shared, at as RawFd)).ok()?))
        });
        commit_group(pinned.collect(), &mut moments);
    }
    let left: Vec<SegmentKey> = left.into_iter().collect();
    for group in left.chunks(group_max.min(spare)) {
        let by_name = ServerOpener { shared, descriptor: None };
        let files = group.iter().filter_map(|key| OpenFile::new(member, *key, false).ok());
        let mut files: Vec<OpenFile> = files.collect();
        let pinned =
            files.iter_mut().filter_map(|file| Some((file.key(), file.pin(Access::Write, &by_name).ok()?)));
        commit_group(pinned.collect(), &mut moments);
    }
    moments
}

fn commit_group(group: Vec<(SegmentKey, Using<'_>)>, moments: &mut HashMap<SegmentKey, Moment>) {
    let before: Vec<Moment> = group.iter().map(|(_, pinned)| pinned.moment()).collect();
    let containers: Vec<_> = group.iter().map(|(_, pinned)| &**pinned).collect();
    let done = without_signals(|| group::commit(&containers, &Threads::default()));
    for (((key, _), moment), done) in group.iter().zip(before).zip(done) {
        if done.is_ok() {
            moments.insert(*key, moment);
        }
    }
}

/// Threads inherit the mask: a signal of the server must not be handled on one of them.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals on the stack; the mask is this thread's, and is put back.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let done = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        done
    }
}

/// The checkpointer is about to write the control file: a checkpoint ends. What the one before served early, and
/// nobody has committed since, is committed now; without fsync all that was written.
///
/// # Errors
/// The error number of a commit that failed, with which the server stops as it does after a failed fsync.
pub(super) fn end_of_checkpoint(process: &mut Process) -> Result<(), Errno> {
    let checkpoints = &mut process.checkpoints;
    checkpoints.cycle = None;
    let late = std::mem::take(&mut checkpoints.late);
    let due = std::mem::replace(&mut checkpoints.late_before, late);
    let member = process.member;
    let is_due =
        |key: &SegmentKey| member.look(key).is_ok_and(|look| look.is_some_and(|look| look.is_uncommitted));
    let due: Vec<SegmentKey> = match process.shared.is_fsync_on() {
        true => due.into_iter().filter(is_due).collect(),
        // A server without fsync asks for none, and its log begins at this checkpoint all the same.
        false => member.open_segments(true).map_err(|error| errno_of(&error))?,
    };
    let done = commit_all(process, &due);
    for key in due.iter().filter(|key| !done.contains_key(key)) {
        let opener = ServerOpener { shared: process.shared, descriptor: None };
        let committed = OpenFile::new(process.member, *key, false)
            .and_then(|mut file| file.pin(Access::Write, &opener)?.commit().map(drop));
        match committed {
            Err(error) if is_gone(&error) || is_absent(&error) => {}
            done => done.map_err(|error| reported(key, &error))?,
        }
    }
    Ok(())
}

pub(crate) fn is_absent(error: &Error) -> bool {
    matches!(error, Error::Device { operation: "open", source: pgshrink_cfs::DeviceError::NotFound, .. })
}

impl Shared {
    /// Whether this path is the control file's.
    pub(super) fn is_control_file(path: &[u8]) -> bool {
        path.ends_with(b"global/pg_control")
    }
}
