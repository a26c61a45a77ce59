//! Group commit: many containers are committed together, so that a checkpoint's fsyncs wait for the medium at
//! the same time and not one after the other.
//!
//! All of a group's data is synced, then all roots are written and synced
//! ([`prepared`](crate::engine::prepared)). Each container keeps every promise that it makes alone: its root
//! waits for its own fdatasync, its errors are its own and fail nobody else's commit, and each process that
//! dies in a group leaves each container as one that died in a commit of it.
//!
//! * A group holds many commit locks, and **waits for none while it holds one**: it takes those that are free
//!   and commits the rest one by one afterwards. So there is no order of containers to agree on, and no
//!   deadlock.
//! * Readers and writers go on. Who waits for the commit lock, as a truncation does, waits for the whole
//!   group: therefore [`GROUP_MAX`].
//! * A process that may leave a call by `longjmp` calls [`Container::release_held`] on every container of the
//!   group.
//! * An fsync that follows for the same reason, as those of a checkpoint do for each file, is a
//!   [`Container::commit_since`] of a moment before the group: it finds nothing to do, even where others go on
//!   writing.
//!
//! Measurements and alternatives are in `docs/decisions/2026-11-22-cfs-group-commit.md`.
//!
//! ```
//! # use pgshrink_cfs::{device::Alone, group, segment, sim::Disk, Birth, Geometry, Identity, KEY_BYTES, Options, Scratch};
//! # use std::sync::atomic::AtomicU64;
//! # let words: Vec<AtomicU64> = (0..Geometry::of(8).words()).map(|_| AtomicU64::new(0)).collect();
//! # let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
//! # let container = segment::create(&Disk::new(1, || {}), Alone, &words, &birth, Options::new(8))?;
//! container.write(0, 1, 0, b"a page", &mut Scratch::new())?;
//! // With files of the system: group::Threads::default().
//! let done = group::commit(&[&container], &group::InTurn);
//! assert!(done[0].as_ref().is_ok_and(|committed| committed.sequence.is_some()));
//! // What follows finds nothing to do.
//! assert_eq!(container.commit()?.sequence, None);
//! # Ok::<(), pgshrink_cfs::Error>(())
//! ```

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::device::{Device, ProcessTable};
use crate::engine::commit::Committed;
use crate::engine::container::Container;
use crate::engine::prepared::SyncJob;
use crate::fault::Fault;
use crate::format::error::Error;
use crate::shared::word::Word;

/// Containers at most that are committed at the same time. It bounds how long a commit lock is held, and what
/// snapshots take: 5 bytes for each extent of a container.
pub const GROUP_MAX: usize = 128;

/// How the fsyncs of a group are done.
pub trait SyncAll<D, W> {
    /// Runs all jobs, in any order and on any threads, and returns when they are done. A job that was not run
    /// is run by whoever needs it. Calls nothing else of the engine: commit locks are held.
    fn sync_all(&self, jobs: &mut [SyncJob<'_, D, W>]);
}

/// One fsync after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct InTurn;

impl<D: Device, W: Word> SyncAll<D, W> for InTurn {
    fn sync_all(&self, jobs: &mut [SyncJob<'_, D, W>]) {
        jobs.iter_mut().for_each(SyncJob::run);
    }
}

/// Fsyncs at the same time: the filesystem and the block layer serve many waiters with one journal commit and
/// one flush.
///
/// The threads are made for each call and inherit the caller's mask of signals: a server blocks its signals
/// meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// Fsyncs at most at the same time; the caller's own thread does its share.
    pub count: usize,
}

impl Default for Threads {
    fn default() -> Threads {
        Threads { count: 8 }
    }
}

impl<D: Device + Sync, W: Word + Sync> SyncAll<D, W> for Threads {
    fn sync_all(&self, jobs: &mut [SyncJob<'_, D, W>]) {
        let count = self.count.min(jobs.len());
        let queue = Mutex::new(jobs.iter_mut());
        let work = || {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(job) = next else { return };
                job.run();
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..count {
                // Without it there are fewer.
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }
}

/// Commits all containers, as [`Container::commit`] does one: everything written before the call is durable
/// where the result is Ok. Results are in the containers' order, each as of [`Container::commit`]: one that
/// fails fails nobody else's. A container that is given twice is committed once.
pub fn commit<D: Device, P: ProcessTable, W: Word>(
    containers: &[&Container<'_, D, P, W>],
    syncs: &impl SyncAll<D, W>,
) -> Vec<Result<Committed, Error>> {
    containers.chunks(GROUP_MAX).flat_map(|group| commit_group(group, syncs)).collect()
}

fn commit_group<D: Device, P: ProcessTable, W: Word>(
    group: &[&Container<'_, D, P, W>],
    syncs: &impl SyncAll<D, W>,
) -> Vec<Result<Committed, Error>> {
    let mut results: Vec<Option<Result<Committed, Error>>> = group.iter().map(|_| None).collect();
    // Who holds a lock and takes it again is taken for one that jumped out of the engine.
    let (mut ids, mut memories) = (BTreeSet::new(), BTreeSet::new());
    let mut prepared = Vec::with_capacity(group.len());
    for (index, container) in group.iter().enumerate() {
        if !ids.insert(container.id()) | !memories.insert(container.memory()) {
            continue;
        }
        match container.try_prepare() {
            None => {}
            Some(Ok(None)) => results[index] = Some(Ok(Committed { sequence: None })),
            Some(Ok(Some(commit))) => match commit.begin_writeback() {
                Ok(()) => prepared.push((index, commit)),
                Err(error) => results[index] = Some(Err(error)),
            },
            Some(Err(error)) => results[index] = Some(Err(error)),
        }
    }
    let mut jobs: Vec<_> = prepared.iter_mut().map(|(_, commit)| commit.sync_job()).collect();
    if group.iter().any(|container| container.options.fault.is(Fault::GroupSyncedByOne)) {
        jobs.iter_mut().skip(1).for_each(SyncJob::forget);
    }
    syncs.sync_all(&mut jobs);
    drop(jobs);
    let mut written = Vec::with_capacity(prepared.len());
    for (index, commit) in prepared {
        match commit.write_root().and_then(|commit| commit.begin_writeback().map(|()| commit)) {
            Ok(commit) => written.push((index, commit)),
            Err(error) => results[index] = Some(Err(error)),
        }
    }
    let mut jobs: Vec<_> = written.iter_mut().map(|(_, commit)| commit.sync_job()).collect();
    syncs.sync_all(&mut jobs);
    drop(jobs);
    for (index, commit) in written {
        results[index] = Some(commit.finish());
    }
    // No lock is held any more. What is left was being committed by others, or was given twice.
    let all = group.iter().zip(results);
    all.map(|(container, result)| result.unwrap_or_else(|| container.commit())).collect()
}
