//! Repositories with the keys that their backups are encrypted with.

use super::{Failure, whole};
use crate::args::{BackupKeyArgs, FromArgs};
use pgshrink_cfs::seal::{MasterKey, Secret};
use pgshrink_cfs_server::secrets::{self, Kernel, SecretError};
use pgshrink_repository::{
    Error as RepositoryError, KeyId, Location, ObjectName, Repository, SealKey, Variables, sealed,
};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Failure {
        Failure::new(error.place, error.reason)
    }
}

/// Opens a repository that is there, to read backups of it.
pub(super) fn open(args: &FromArgs) -> Result<Arc<dyn Repository>, Failure> {
    let place = &args.from;
    if !place.contains("://") && Path::new(place).join("backup_manifest").exists() {
        let what = format!(
            "it is a plain or tar backup, not a repository; check it with pg_verifybackup {place}. A plain \
             one is a data directory; tar files are extracted before a server starts on them"
        );
        return Err(Failure::new(place, what));
    }
    open_at(&args.from, &args.key)
}

/// Opens a repository that is there.
pub(super) fn open_at(place: &str, key: &BackupKeyArgs) -> Result<Arc<dyn Repository>, Failure> {
    let keys = keys(key)?;
    let location = Location::parse(place)?;
    Ok(sealed(location.open(&Variables::of_process())?, &location.to_string(), keys))
}

/// Opens a repository for a new backup. A directory is made if it is not there.
///
/// Of several keys only the first counts, so that a backup that is resumed does not get objects with two keys.
///
/// Without a key, a repository whose newest backup is encrypted is refused: the key was forgotten, and a plain backup would
/// disclose what the others keep secret. With a key, one whose newest backup is plain is: no command could read both.
pub(super) fn create(place: &str, key: &BackupKeyArgs) -> Result<Arc<dyn Repository>, Failure> {
    let mut keys = keys(key)?;
    keys.truncate(1);
    let has_key = !keys.is_empty();
    let location = Location::parse(place)?;
    let repository = sealed(location.create(&Variables::of_process())?, &location.to_string(), keys);
    let Some(newest) = whole::newest_name(&*repository)? else { return Ok(repository) };
    let object = ObjectName::new(&format!("{newest}/begun.json"))?;
    let reason = match repository.read(&object, 0, 8) {
        Err(error @ RepositoryError::Locked { .. }) if !has_key => {
            let error = Failure::from(error);
            format!("{error}. A backup without a key would not be encrypted; if that is what you want, use")
        }
        Err(error @ RepositoryError::NotSealed { .. }) if has_key => {
            format!("{error}. A repository cannot have both plain and encrypted backups; use")
        }
        // What else is wrong with an old backup does not keep a new one from being taken.
        _ => return Ok(repository),
    };
    Err(Failure::new(location, format!("{reason} another directory or prefix")))
}

/// All keys that were named, files before commands.
fn keys(args: &BackupKeyArgs) -> Result<Vec<SealKey>, Failure> {
    let mut found = Vec::new();
    for path in &args.key_file {
        let secret = secrets::of_file(path);
        let secret =
            secret.map_err(|error| Failure::new(format!("--key-file {}", error.place), error.reason))?;
        found.push(key(secret, &format!("--key-file {}", path.display()))?);
    }
    for command in &args.key_command {
        found.push(key(secrets::of_command(command, "--key-command")?, "--key-command")?);
    }
    Ok(found)
}

/// The id is the one that encrypted tablespaces have for the same key.
fn key(secret: Secret, place: &str) -> Result<SealKey, Failure> {
    if secret.is_passphrase() {
        let reason = "expected a key of 32 bytes (64 hexadecimal digits or 44 characters of base64), found \
            something else; passphrases are not supported for backups. Generate a key with: openssl rand \
            -hex 32";
        return Err(Failure::new(place, reason));
    }
    let master = MasterKey::new(&secret, &Kernel::new()?).map_err(|error| Failure::new(place, error))?;
    let bytes = master.to_bytes();
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(&bytes[..32]);
    Ok(SealKey::new(KeyId(master.id()), key))
}
