//! Which objects a backup has, but for packs and leases, and what follows from that.
//!
//! ```text
//!   attempt 0    begun.json         backup.json         backup_manifest
//!   attempt N    begun-NNNN.json    backup-NNNN.json    backup_manifest-NNNN
//! ```
//! Every attempt writes objects of its own names, so no two writers ever write the same object. The highest attempt that has a
//! manifest is the backup.

use super::Failure;
use pgshrink_backup::pack::ATTEMPTS_MAX;
use pgshrink_repository::{ObjectName, Repository};
use std::collections::BTreeSet;

/// Objects and folders directly below a backup, at most: three for each attempt, and a few more.
const NAMES_MAX: usize = 3 * ATTEMPTS_MAX as usize + 64;

/// The mark of a removal.
pub(super) const MARK: &str = "removing.json";

/// What is there.
#[derive(Default)]
pub(super) struct Seen {
    /// Attempts that were begun.
    pub(super) begun: BTreeSet<u32>,
    /// Attempts that have a manifest.
    pub(super) manifests: BTreeSet<u32>,
    /// Attempts that have a record.
    records: BTreeSet<u32>,
    is_marked: bool,
}

/// What that makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// This attempt has completed it.
    Complete(u32),
    /// Somebody has begun to remove it.
    Removing,
    /// It is being written, or was interrupted.
    Begun,
    /// There is no such backup.
    Nothing,
}

impl Seen {
    /// Looks.
    pub(super) fn of(repository: &dyn Repository, backup: &str) -> Result<Seen, Failure> {
        let seen = Seen::once(repository, backup)?;
        // What was completed before it was marked stays. A listing need not be of one moment, so the mark has to be seen first: a
        // writer that has no manifest by then does not complete the backup any more.
        match seen.is_marked && seen.manifests.is_empty() {
            true => Seen::once(repository, backup),
            false => Ok(seen),
        }
    }

    fn once(repository: &dyn Repository, backup: &str) -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        for name in repository.below(&ObjectName::new(backup)?, NAMES_MAX)? {
            if name == MARK {
                seen.is_marked = true;
            } else if let Some(attempt) = attempt(&name, BEGUN) {
                seen.begun.insert(attempt);
            } else if let Some(attempt) = attempt(&name, MANIFEST) {
                seen.manifests.insert(attempt);
            } else if let Some(attempt) = attempt(&name, RECORD) {
                seen.records.insert(attempt);
            }
        }
        Ok(seen)
    }

    /// What it is. A removal that was begun before a manifest came has removed the record, or does so next.
    pub(super) fn stage(&self) -> Stage {
        match self.manifests.last() {
            Some(attempt) if !self.is_marked || self.records.contains(attempt) => Stage::Complete(*attempt),
            _ if self.is_marked => Stage::Removing,
            _ if self.begun.contains(&0) => Stage::Begun,
            _ => Stage::Nothing,
        }
    }

    /// How many attempts there were: one more than the highest.
    pub(super) fn attempts(&self) -> u32 {
        self.begun.last().map_or(0, |last| last + 1)
    }
}

/// A kind of object that every attempt has: what its name begins and ends with.
type Kind = (&'static str, &'static str);

const BEGUN: Kind = ("begun", ".json");
const RECORD: Kind = ("backup", ".json");
const MANIFEST: Kind = ("backup_manifest", "");

/// Who began an attempt.
pub(super) fn begun_object(backup: &str, attempt: u32) -> Result<ObjectName, Failure> {
    object(backup, attempt, BEGUN)
}

/// What an attempt has stored.
pub(super) fn record_object(backup: &str, attempt: u32) -> Result<ObjectName, Failure> {
    object(backup, attempt, RECORD)
}

/// PostgreSQL's manifest, of an attempt.
pub(super) fn manifest_object(backup: &str, attempt: u32) -> Result<ObjectName, Failure> {
    object(backup, attempt, MANIFEST)
}

/// The mark of a removal.
pub(super) fn removing_object(backup: &str) -> Result<ObjectName, Failure> {
    Ok(ObjectName::new(&format!("{backup}/{MARK}"))?)
}

fn object(backup: &str, attempt: u32, (first, last): Kind) -> Result<ObjectName, Failure> {
    Ok(match attempt {
        0 => ObjectName::new(&format!("{backup}/{first}{last}"))?,
        _ => ObjectName::new(&format!("{backup}/{first}-{attempt:04}{last}"))?,
    })
}

/// Of which attempt an object of this kind is.
fn attempt(name: &str, (first, last): Kind) -> Option<u32> {
    let middle = name.strip_prefix(first)?.strip_suffix(last)?;
    if middle.is_empty() {
        return Some(0);
    }
    let digits = middle.strip_prefix('-').filter(|digits| digits.len() == 4)?;
    let attempt = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    (1..ATTEMPTS_MAX).contains(&attempt).then_some(attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(names: &[&str]) -> Stage {
        let mut seen = Seen::default();
        for name in names {
            seen.is_marked |= *name == MARK;
            seen.begun.extend(attempt(name, BEGUN));
            seen.manifests.extend(attempt(name, MANIFEST));
            seen.records.extend(attempt(name, RECORD));
        }
        seen.stage()
    }

    #[test]
    fn names_and_attempts_agree() {
        for number in [0, 1, 17, ATTEMPTS_MAX - 1] {
            for kind in [BEGUN, RECORD, MANIFEST] {
                let object = object("b", number, kind).unwrap();
                assert_eq!(attempt(object.as_str().strip_prefix("b/").unwrap(), kind), Some(number));
            }
        }
        for other in
            ["begun-0000.json", "begun-1.json", "begun-00001.json", "begun-4096.json", "begun.jso", "packs"]
        {
            assert_eq!(attempt(other, BEGUN), None, "{other}");
        }
        assert_eq!(attempt("backup_manifest", RECORD), None);
    }

    #[test]
    fn the_highest_attempt_with_a_manifest_is_the_backup() {
        assert_eq!(seen(&[]), Stage::Nothing);
        assert_eq!(seen(&["begun.json", "begun-0001.json", "backup-0001.json"]), Stage::Begun);
        assert_eq!(seen(&["begun.json", "backup_manifest", "backup_manifest-0002"]), Stage::Complete(2));
        // Nobody owns it any more.
        assert_eq!(seen(&["begun-0001.json", "backup-0001.json"]), Stage::Nothing);
    }

    /// A listing need not be of one moment: this one has the mark, and misses the manifest that came before it.
    #[test]
    fn a_manifest_that_a_listing_has_missed_is_looked_for_again() {
        use crate::backup::watched::Watched;
        use std::sync::atomic::{AtomicUsize, Ordering};
        let looks = AtomicUsize::new(0);
        let watched = Watched::new(move |call, inner| {
            if call == "below b" && looks.fetch_add(1, Ordering::Relaxed) == 1 {
                inner.create(&manifest_object("b", 0).unwrap(), b"{}").unwrap();
            }
        });
        for object in [begun_object("b", 0), record_object("b", 0), removing_object("b")] {
            watched.create(&object.unwrap(), b"{}").unwrap();
        }
        assert_eq!(Seen::of(&watched, "b").unwrap().stage(), Stage::Complete(0));
    }

    #[test]
    fn a_backup_that_was_complete_when_it_was_marked_stays_and_a_manifest_that_came_later_makes_none() {
        assert_eq!(seen(&["begun.json", "backup.json", "backup_manifest", MARK]), Stage::Complete(0));
        assert_eq!(seen(&["begun.json", "backup_manifest", MARK]), Stage::Removing);
        assert_eq!(seen(&["begun.json", "backup.json", "backup_manifest-0001", MARK]), Stage::Removing);
        assert_eq!(seen(&["begun.json", MARK]), Stage::Removing);
    }
}
