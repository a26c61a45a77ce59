//! Who writes a backup: its name, the attempt, and the moment at which it becomes one.
//!
//! ```text
//!   NAME/begun.json          the first attempt; whoever creates it owns NAME
//!   NAME/begun-0001.json     who goes on with it; the highest number owns NAME
//!   NAME/removing.json       expire removes it, unless it is a backup already
//!   NAME/lease/…             changes as long as the owner lives
//!   NAME/backup_manifest     it is a backup
//! ```
//! Whoever takes a backup over or removes it creates its object first and then looks for the manifest. A writer creates the
//! manifest first and then looks for those objects. So one of them notices the other, whatever their clocks say.

use super::Failure;
use super::clock;
use super::process::Process;
use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::pack::{ATTEMPTS_MAX, BackupId};
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
    /// seen it, one goes on.
    pub(super) fn take_over(
        repository: &dyn Repository,
        (name, attempt): (&str, u32),
        system: SystemIdentifier,
    ) -> Result<Claim, Failure> {
        let first = Begun::read(repository, name, 0)?;
        let id = first.id.parse().map_err(|error| Failure::damage(name, error))?;
        if attempt == ATTEMPTS_MAX {
            return Err(Failure::new(name, format!("it was tried {ATTEMPTS_MAX} times; begin a new backup")));
        }
        let content = Begun::write(id, system)?;
        let taken = repository.create(&begun_object(name, attempt)?, &content);
        taken.map_err(|error| match error {
            RepositoryError::Exists { .. } => Failure::new(name, "another pgshrink goes on with it"),
            other => other.into(),
        })?;
        let claim = Claim { name: name.to_owned(), id, attempt, content };
        if exists(repository, &claim.object("backup_manifest")?)? {
            return Err(Failure::new(name, "it was completed meanwhile; there is nothing to resume"));
        }
        claim.check(repository)?;
        // An attempt that ended before its manifest may have written it.
        repository.remove(&claim.object("backup.json")?)?;
        Ok(claim)
    }

    /// An object of this backup.
    pub(super) fn object(&self, name: &str) -> Result<ObjectName, Failure> {
        Ok(ObjectName::new(&format!("{}/{name}", self.name))?)
    }

    /// Whether the name is still this process's: `expire` may have removed an abandoned backup, another attempt may go on
    /// with it, and there are stores that let two writers create the same object.
    pub(super) fn check(&self, repository: &dyn Repository) -> Result<(), Failure> {
        let lost = |what: &str| Err(Failure::new(&self.name, format!("{what}; run pgshrink backup again")));
        let name = begun_object(&self.name, self.attempt)?;
        let is_ours = match repository.size(&name) {
            Ok(size) if size == self.content.len() as u64 => {
                repository.read(&name, 0, self.content.len())? == self.content
            }
            Ok(_) | Err(RepositoryError::NotFound { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if !is_ours || exists(repository, &removing_object(&self.name)?)? {
            return lost("another pgshrink has removed this backup meanwhile");
        }
        if exists(repository, &begun_object(&self.name, self.attempt + 1)?)? {
            return lost("another pgshrink has taken this backup over meanwhile");
        }
        Ok(())
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
            repository.remove(&self.object("backup_manifest")?)?;
        }
        checked
    }

    /// After a failure: keeps packs, so that another attempt can go on, or removes all if there are none.
    pub(super) fn give_up(&self, repository: &dyn Repository) -> Left {
        if self.check(repository).is_err() {
            return Left::Nothing;
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
                format!("it has {size} bytes, and {BEGUN_BYTES_MAX} are allowed"),
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
        Begun::read(repository, name, attempts(repository, name)?.saturating_sub(1))
    }
}

/// Whether what the attempts at a backup say of themselves is there, and of this backup. Their hosts and processes are recorded
/// nowhere else.
pub(super) fn verify(repository: &dyn Repository, name: &str, id: BackupId) -> Result<(), Failure> {
    for attempt in 0..attempts(repository, name)?.max(1) {
        let begun = Begun::read(repository, name, attempt).map_err(|error| match error {
            Failure::Repository(RepositoryError::NotFound { name, .. }) => {
                Failure::damage(name, "it is missing")
            }
            error => error,
        })?;
        if begun.id != id.to_string() {
            let what = format!("it is of backup {}, and backup.json is of {id}", begun.id);
            return Err(Failure::damage(begun_object(name, attempt)?, what));
        }
    }
    Ok(())
}

/// How many attempts there were.
pub(super) fn attempts(repository: &dyn Repository, name: &str) -> Result<u32, Failure> {
    let mut attempt = 0;
    while attempt < ATTEMPTS_MAX && exists(repository, &begun_object(name, attempt)?)? {
        attempt += 1;
    }
    Ok(attempt)
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
    Ok(is_complete || !exists(repository, &ObjectName::new(&format!("{name}/backup_manifest"))?)?)
}

/// Removes all objects of a backup: the manifest first, without which it is none, and the mark of a removal last.
pub(super) fn remove(repository: &dyn Repository, name: &str) -> Result<(), Failure> {
    repository.remove(&ObjectName::new(&format!("{name}/backup_manifest"))?)?;
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

/// Of an attempt at a backup.
pub(super) fn begun_object(name: &str, attempt: u32) -> Result<ObjectName, Failure> {
    Ok(match attempt {
        0 => ObjectName::new(&format!("{name}/begun.json"))?,
        _ => ObjectName::new(&format!("{name}/begun-{attempt:04}.json"))?,
    })
}

/// Of a backup that is being removed.
pub(super) fn removing_object(name: &str) -> Result<ObjectName, Failure> {
    Ok(ObjectName::new(&format!("{name}/removing.json"))?)
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
