//! A backup's name, and the object that says whose it is.

use super::Failure;
use pgshrink_backup::ServerTime;
use pgshrink_backup::pack::BackupId;
use pgshrink_repository::{Error as RepositoryError, ObjectName, Repository};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

const OBJECT: &str = "begun.json";
/// Objects that a backup may have.
const OBJECTS_MAX: usize = 1_100_000;

/// A name that this process alone has.
pub(super) struct Claim {
    pub(super) name: String,
    pub(super) id: BackupId,
    content: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Begun {
    format: String,
    version: u32,
    id: String,
    host: String,
    pid: u32,
}

impl Claim {
    /// Takes a name after the time by this machine's clock and the id, such as `20261125T143000Z-5f0c12ab`. Nothing else
    /// follows from that time.
    pub(super) fn take(repository: &dyn Repository) -> Result<Claim, Failure> {
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Failure::new("random numbers", error))?;
        let id = BackupId(id);
        let begun = Begun {
            format: "pgshrink backup, begun".to_owned(),
            version: 1,
            id: id.to_string(),
            host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
            pid: std::process::id(),
        };
        let content = serde_json::to_vec(&begun).map_err(|error| Failure::new(OBJECT, error))?;
        let time = name_of_now()?;
        // Two servers that begin in the same second have prefixes of their own, whatever the store thinks of conditions.
        let name = format!("{time}-{}", &id.to_string()[..8]);
        repository.create(&object(&name)?, &content)?;
        Ok(Claim { name, id, content })
    }

    /// Whether the name is still this process's: `expire` may have removed an abandoned backup, and there are stores that
    /// let two writers create the same object.
    pub(super) fn check(&self, repository: &dyn Repository) -> Result<(), Failure> {
        let name = object(&self.name)?;
        let is_ours = match repository.size(&name) {
            Ok(size) if size == self.content.len() as u64 => {
                repository.read(&name, 0, self.content.len())? == self.content
            }
            Ok(_) | Err(RepositoryError::NotFound { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if is_ours {
            return Ok(());
        }
        Err(Failure::new(
            &self.name,
            "another pgshrink has taken or removed this backup meanwhile; run it again",
        ))
    }
}

impl Claim {
    /// Removes all that was written under the name, the claim last. What cannot be removed is shown as incomplete.
    pub(super) fn give_up(&self, repository: &dyn Repository) {
        let (Ok(prefix), Ok(())) = (ObjectName::new(&self.name), self.check(repository)) else { return };
        let Ok(found) = repository.list(Some(&prefix), OBJECTS_MAX) else { return };
        let is_claim = |name: &ObjectName| name.as_str().ends_with(OBJECT);
        // The manifest first: without it, it is no backup.
        let manifest = ObjectName::new(&format!("{}/backup_manifest", self.name));
        if manifest.is_ok_and(|manifest| repository.remove(&manifest).is_err()) {
            return;
        }
        for found in found.iter().filter(|found| !is_claim(&found.name)) {
            if repository.remove(&found.name).is_err() {
                return;
            }
        }
        if let Ok(claim) = object(&self.name) {
            let _ = repository.remove(&claim);
        }
    }
}

fn object(name: &str) -> Result<ObjectName, Failure> {
    Ok(ObjectName::new(&format!("{name}/{OBJECT}"))?)
}

fn name_of_now() -> Result<String, Failure> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = ServerTime::from_unix_seconds(seconds as i64)?.to_string();
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    let (date, clock) = digits.split_at(8);
    Ok(format!("{date}T{clock}Z"))
}
