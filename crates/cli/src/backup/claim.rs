//! Who writes a backup: its name, the attempt, and the moment at which it becomes one.
//!
//! ```text
//!   NAME/begun.json, backup.json, backup_manifest                   of the first attempt; whoever creates the first owns NAME
//!   NAME/begun-0001.json, backup-0001.json, backup_manifest-0001    of who goes on with it; the highest begun-… owns NAME
//!   NAME/removing.json                                              expire removes it, unless it is a backup already
//!   NAME/lease/…                                                    changes as long as the owner lives
//! ```
//! Invariants:
//! 1. Nobody writes objects of another attempt: their names have its number, and of two that begin the same attempt one does.
//!    So a writer that was taken for dead replaces nothing, however late its requests arrive.
//! 2. With its manifest an attempt is complete: all that its record names is there. Only a higher attempt that is complete, or a
//!    removal, takes something of it away. So a manifest that comes late makes a backup or changes nothing.
//! 3. A removal creates its mark first and then looks for a manifest. A writer creates its manifest first and then looks for the
//!    mark. So one of them notices the other, whatever their clocks say. If the writer is killed between the two, the record is
//!    missing soon, and with the mark it is no backup.

use super::Failure;
use super::clock;
use super::process::Process;
use super::seen::{Seen, Stage, begun_object, manifest_object, record_object, removing_object};
use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::pack::{ATTEMPTS_MAX, BackupId, PackNumber};
use pgshrink_repository::{Error as RepositoryError, ObjectName, ObjectWriter, Repository};
use serde::{Deserialize, Serialize};

const FORMAT: &str = "pgshrink backup, begun";
/// Bytes of a `begun.json` at most.
const BEGUN_BYTES_MAX: u64 = 64 << 10;
/// Objects that a backup may have.
pub(super) const OBJECTS_MAX: usize = 1_100_000;

/// A name that this process alone writes to.
pub(super) struct Claim {
    pub(super) name: String,
    pub(super) id: BackupId,
    /// 0: nobody has tried before.
    pub(super) attempt: u32,
    content: Vec<u8>,
}

/// What `begun.json` says.
#[derive(Serialize, Deserialize)]
pub(super) struct Begun {
    format: String,
    version: u32,
    id: String,
    pub(super) system_identifier: String,
    /// Who writes.
    #[serde(flatten)]
    pub(super) process: Process,
}

/// Whose a backup is.
enum Standing {
    /// This attempt's.
    Owner,
    /// It is being removed, or gone.
    Removed,
    /// A later attempt's.
    TakenOver,
}

/// What became of an attempt that has failed.
pub(super) enum Left {
    /// Nothing of it is left.
    Nothing,
    /// So many packs, with which another attempt can go on.
    Packs(usize),
}

impl Claim {
    /// Takes a name after the time by this machine's clock and the id, such as `20261125T143000Z-5f0c12ab`. Nothing else
    /// follows from that time.
    pub(super) fn take(repository: &dyn Repository, system: SystemIdentifier) -> Result<Claim, Failure> {
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Failure::new("random numbers", error))?;
        let id = BackupId(id);
        let time = name_of_now()?;
        // Two servers that begin in the same second have prefixes of their own, whatever the store thinks of conditions.
        let name = format!("{time}-{}", &id.to_string()[..8]);
        let content = Begun::write(id, system)?;
        repository.create(&begun_object(&name, 0)?, &content)?;
        Ok(Claim { name, id, attempt: 0, content })
    }

    /// Takes over a backup whose writer is gone. There were `attempt` attempts when that was seen: of two processes that have
    /// seen it, one goes on. `None`: it was removed meanwhile.
    pub(super) fn take_over(
        repository: &dyn Repository,
        (name, attempt): (&str, u32),
        system: SystemIdentifier,
    ) -> Result<Option<Claim>, Failure> {
        let first = match Begun::read(repository, name, 0) {
            Err(Failure::Repository(RepositoryError::NotFound { .. })) => return Ok(None),
            first => first?,
        };
        let id = first.id.parse().map_err(|error| Failure::damage(name, error))?;
        if attempt == ATTEMPTS_MAX {
            return Err(Failure::new(
                name,
                format!("it was attempted {ATTEMPTS_MAX} times; start a new backup"),
            ));
        }
        let content = Begun::write(id, system)?;
        let taken = repository.create(&begun_object(name, attempt)?, &content);
        taken.map_err(|error| match error {
            RepositoryError::Exists { .. } => Failure::new(name, "another pgshrink process is resuming it"),
            other => other.into(),
        })?;
        let claim = Claim { name: name.to_owned(), id, attempt, content };
        if let Stage::Complete(_) = Seen::of(repository, name)?.stage() {
            return Err(Failure::new(name, "it was completed in the meantime; there is nothing to resume"));
        }
        if let Standing::Removed = claim.standing(repository)? {
            claim.remove_own(repository);
            return Ok(None);
        }
        claim.check(repository)?;
        Ok(Some(claim))
    }

    /// An object of this backup.
    pub(super) fn object(&self, name: &str) -> Result<ObjectName, Failure> {
        Ok(ObjectName::new(&format!("{}/{name}", self.name))?)
    }

    /// What this attempt has stored.
    pub(super) fn record_object(&self) -> Result<ObjectName, Failure> {
        record_object(&self.name, self.attempt)
    }

    /// Its manifest.
    pub(super) fn manifest_object(&self) -> Result<ObjectName, Failure> {
        manifest_object(&self.name, self.attempt)
    }

    /// Whose the name is: `expire` may have removed an abandoned backup, another attempt may go on with it, and there are stores
    /// that let two writers create the same object.
    fn standing(&self, repository: &dyn Repository) -> Result<Standing, Failure> {
        if exists(repository, &begun_object(&self.name, self.attempt + 1)?)? {
            return Ok(Standing::TakenOver);
        }
        // In this order: a removal removes `begun.json` before its mark.
        let is_marked = exists(repository, &removing_object(&self.name)?)?;
        if is_marked || !exists(repository, &begun_object(&self.name, 0)?)? {
            return Ok(Standing::Removed);
        }
        let name = begun_object(&self.name, self.attempt)?;
        let is_ours = match repository.size(&name) {
            Ok(size) if size == self.content.len() as u64 => {
                repository.read(&name, 0, self.content.len())? == self.content
            }
            Ok(_) => return Ok(Standing::TakenOver),
            Err(RepositoryError::NotFound { .. }) => return Ok(Standing::Removed),
            Err(error) => return Err(error.into()),
        };
        Ok(if is_ours { Standing::Owner } else { Standing::TakenOver })
    }

    /// Whether the name is still this process's.
    pub(super) fn check(&self, repository: &dyn Repository) -> Result<(), Failure> {
        let what = match self.standing(repository)? {
            Standing::Owner => return Ok(()),
            Standing::Removed => "another pgshrink process has removed this backup in the meantime",
            Standing::TakenOver => "another pgshrink process has taken over this backup in the meantime",
        };
        Err(Failure::new(&self.name, format!("{what}; run pgshrink backup again")))
    }

    /// Makes it a backup: all else is there, and the manifest only lacks its name.
    pub(super) fn commit(
        &self,
        repository: &dyn Repository,
        manifest: Box<dyn ObjectWriter>,
    ) -> Result<(), Failure> {
        self.check(repository)?;
        manifest.finish()?;
        // Who has removed it or taken it over since that look may not have seen the manifest.
        let checked = self.check(repository);
        if checked.is_err() {
            repository.remove(&self.manifest_object()?)?;
            return checked;
        }
        // Earlier attempts that were completed too late: this one is the backup, and they lose packs.
        for attempt in 0..self.attempt {
            for object in [manifest_object(&self.name, attempt), record_object(&self.name, attempt)] {
                // What cannot be removed does no harm.
                let _ = object.map(|object| repository.remove(&object));
            }
        }
        Ok(())
    }

    /// Removes what this attempt has written to a backup that is being removed, and that nobody has taken over. What cannot be
    /// removed goes with the rest.
    fn remove_own(&self, repository: &dyn Repository) {
        let Ok(packs) = self.object("packs") else { return };
        let is_own = |object: &ObjectName| {
            let name = object.as_str().strip_prefix(&self.name).and_then(|name| name.strip_prefix('/'));
            let number = name.and_then(PackNumber::of_object_name);
            number.is_some_and(|number| number.attempt() == self.attempt)
        };
        for found in repository.list(Some(&packs), OBJECTS_MAX).unwrap_or_default() {
            if is_own(&found.name) {
                let _ = repository.remove(&found.name);
            }
        }
        let begun = begun_object(&self.name, self.attempt);
        for object in [self.manifest_object(), self.record_object(), begun].into_iter().flatten() {
            let _ = repository.remove(&object);
        }
    }

    /// After a failure: keeps packs, so that another attempt can go on, or removes all if there are none.
    pub(super) fn give_up(&self, repository: &dyn Repository) -> Left {
        match self.standing(repository) {
            Ok(Standing::Owner) => {}
            Ok(Standing::Removed) => {
                self.remove_own(repository);
                return Left::Nothing;
            }
            Ok(Standing::TakenOver) | Err(_) => return Left::Nothing,
        }
        let count =
            self.object("packs").and_then(|below| Ok(repository.list(Some(&below), OBJECTS_MAX)?.len()));
        match count {
            Ok(0) => {
                // What cannot be removed is shown as incomplete.
                let _ = remove(repository, &self.name);
                Left::Nothing
            }
            Ok(count) => Left::Packs(count),
            Err(_) => Left::Nothing,
        }
    }
}

impl Begun {
    fn write(id: BackupId, system: SystemIdentifier) -> Result<Vec<u8>, Failure> {
        let begun = Begun {
            format: FORMAT.to_owned(),
            version: 1,
            id: id.to_string(),
            system_identifier: system.to_string(),
            process: Process::this(),
        };
        serde_json::to_vec(&begun).map_err(|error| Failure::new("begun.json", error))
    }

    fn read(repository: &dyn Repository, name: &str, attempt: u32) -> Result<Begun, Failure> {
        let object = begun_object(name, attempt)?;
        let size = repository.size(&object)?;
        if size > BEGUN_BYTES_MAX {
            return Err(Failure::damage(
                object,
                format!("it has {size} bytes, the limit is {BEGUN_BYTES_MAX}"),
            ));
        }
        let bytes = repository.read(&object, 0, size as usize)?;
        let begun: Begun = serde_json::from_slice(&bytes).map_err(|error| Failure::damage(&object, error))?;
        if begun.format != FORMAT {
            return Err(Failure::damage(object, format!("expected {FORMAT:?}, found {:?}", begun.format)));
        }
        if begun.version != 1 {
            return Err(Failure::new(object, format!("expected version 1, found {}", begun.version)));
        }
        Ok(begun)
    }

    /// Of the attempt that owns the backup.
    pub(super) fn last(repository: &dyn Repository, name: &str) -> Result<Begun, Failure> {
        Begun::read(repository, name, Seen::of(repository, name)?.attempts().saturating_sub(1))
    }
}

/// Checks that the records of the attempts at a backup exist and belong to it. Their hosts and processes are recorded
/// nowhere else. `attempt` has completed it.
pub(super) fn verify(
    repository: &dyn Repository,
    (name, attempt): (&str, u32),
    id: BackupId,
) -> Result<(), Failure> {
    for attempt in 0..Seen::of(repository, name)?.attempts().max(attempt + 1) {
        let begun = Begun::read(repository, name, attempt).map_err(|error| match error {
            Failure::Repository(RepositoryError::NotFound { name, .. }) => {
                Failure::damage(name, "it is missing")
            }
            error => error,
        })?;
        if begun.id != id.to_string() {
            let what = format!("it belongs to backup {}, but backup.json belongs to {id}", begun.id);
            return Err(Failure::damage(begun_object(name, attempt)?, what));
        }
    }
    Ok(())
}

/// Marks a backup as being removed. False: it was completed meanwhile, and stays. The mark stays too: another run of `expire` may
/// have begun to remove it, and only the mark keeps a writer from completing it after all.
pub(super) fn mark_for_removal(
    repository: &dyn Repository,
    name: &str,
    is_complete: bool,
) -> Result<bool, Failure> {
    let object = removing_object(name)?;
    match repository.create(&object, b"{\"format\":\"pgshrink backup, removing\",\"version\":1}") {
        Ok(()) | Err(RepositoryError::Exists { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(is_complete || !matches!(Seen::of(repository, name)?.stage(), Stage::Complete(_)))
}

/// Removes all objects of a backup: the manifests first, without which it is none, then the records, and the mark of a removal
/// last. Of several manifests the highest is the last one, as it is the backup.
pub(super) fn remove(repository: &dyn Repository, name: &str) -> Result<(), Failure> {
    let seen = Seen::of(repository, name)?;
    for attempt in &seen.manifests {
        repository.remove(&manifest_object(name, *attempt)?)?;
    }
    for attempt in 0..seen.attempts().max(1) {
        repository.remove(&record_object(name, attempt)?)?;
    }
    let below = ObjectName::new(name)?;
    let mark = removing_object(name)?;
    let is_begun =
        |name: &ObjectName| name.as_str().rsplit('/').next().is_some_and(|last| last.starts_with("begun"));
    let found = repository.list(Some(&below), OBJECTS_MAX)?;
    let (last, first): (Vec<_>, Vec<_>) =
        found.iter().map(|found| &found.name).partition(|name| is_begun(name));
    for object in first.into_iter().filter(|object| **object != mark).chain(last) {
        repository.remove(object)?;
    }
    Ok(repository.remove(&mark)?)
}

pub(super) fn exists(repository: &dyn Repository, object: &ObjectName) -> Result<bool, Failure> {
    match repository.size(object) {
        Ok(_) => Ok(true),
        Err(RepositoryError::NotFound { .. }) => Ok(false),
        // Whoever reads it says so.
        Err(
            RepositoryError::Damaged { .. }
            | RepositoryError::Locked { .. }
            | RepositoryError::NotSealed { .. }
            | RepositoryError::Unsupported { .. },
        ) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn name_of_now() -> Result<String, Failure> {
    let time = clock::now()?.to_string();
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    let (date, clock) = digits.split_at(8);
    Ok(format!("{date}T{clock}Z"))
}

#[cfg(test)]
mod tests;
