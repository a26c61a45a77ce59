//! Signs of life of who writes a backup: an object that has another name every half a minute.
//!
//! An observer compares names that it saw, by its own monotonic clock. No two clocks are compared.

use super::Failure;
use super::claim::{Begun, Claim, OBJECTS_MAX};
use pgshrink_backup::retention::Lease;
use pgshrink_repository::{ObjectName, Repository};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two names.
const PERIOD: Duration = Duration::from_secs(30);
/// Who shows no sign of life for so long is taken for dead. Requests to a store are repeated for less time than that (the
/// timeouts in `cloud.rs` of pgshrink-repository), so a writer's last request has ended by then.
pub(super) const SILENCE: Duration = Duration::from_secs(300);
/// Between two looks.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// A sign of life may come late, or not at all: there are many of them in that time.
const _: () = assert!(SILENCE.as_secs() >= 10 * PERIOD.as_secs());

/// Gives signs of life until the channel says otherwise. The store may be out of reach for a while: then there are none.
pub(super) fn keep(repository: &dyn Repository, claim: &Claim, until: &Receiver<()>) {
    keep_every(PERIOD, repository, claim, until);
}

fn keep_every(period: Duration, repository: &dyn Repository, claim: &Claim, until: &Receiver<()>) {
    let mut last: Option<ObjectName> = None;
    for count in 0_u64.. {
        let object = claim.object(&format!("lease/{:04}-{count:012}", claim.attempt));
        if let Ok(object) = object
            && repository.create(&object, b"").is_ok()
            && let Some(old) = last.replace(object)
        {
            let _ = repository.remove(&old);
        }
        match until.recv_timeout(period) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Some(last) = last {
        let _ = repository.remove(&last);
    }
}

/// Looks at who writes these backups: at once where it is a process of this machine, and else as long as it takes.
pub(super) fn observe(repository: &dyn Repository, names: &[String]) -> Result<Vec<Lease>, Failure> {
    observe_for(repository, names, (SILENCE, LOOK_PERIOD))
}

/// Who shows no sign of life for so long is silent. So much time lies between two looks.
fn observe_for(
    repository: &dyn Repository,
    names: &[String],
    (silence, look_period): (Duration, Duration),
) -> Result<Vec<Lease>, Failure> {
    let mut leases = Vec::with_capacity(names.len());
    for name in names {
        let alive = Begun::last(repository, name).ok().and_then(|begun| begun.process.is_alive());
        leases.push(match alive {
            Some(true) => Lease::Renewed,
            Some(false) => Lease::Silent,
            None => Lease::Unobserved,
        });
    }
    let first: Vec<_> = names.iter().map(|name| signs(repository, name)).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let is_open = |leases: &[Lease]| leases.contains(&Lease::Unobserved);
    if is_open(&leases) {
        eprintln!(
            "pgshrink: checking for {} s whether incomplete backups are still being written",
            silence.as_secs()
        );
    }
    while is_open(&leases) && began.elapsed() < silence {
        thread::sleep(look_period);
        for (at, name) in names.iter().enumerate() {
            if leases[at] == Lease::Unobserved && signs(repository, name)? != first[at] {
                leases[at] = Lease::Renewed;
            }
        }
    }
    leases.iter_mut().filter(|lease| **lease == Lease::Unobserved).for_each(|lease| *lease = Lease::Silent);
    Ok(leases)
}

/// All objects of the backup: a pack that comes is a sign of life, too.
fn signs(repository: &dyn Repository, name: &str) -> Result<Vec<ObjectName>, Failure> {
    let found = repository.list(Some(&ObjectName::new(name)?), OBJECTS_MAX)?;
    Ok(found.into_iter().map(|found| found.name).collect())
}

#[cfg(test)]
mod tests;
