//! Master keys of encrypted tablespaces: fetched when the server starts, kept in the shared memory, changed while it
//! runs.
//!
//! `pg_cfs/keys` lists the keys that files may need, by id and recipe (nothing of the keys themselves): a line each,
//! `key ID RECIPE` in hexadecimal, the one for new files first, between `cfs keys 1` and a CRC-32 of what is before
//! it. So a start tells a wrong key without looking into every file; only where a listed key is not given, or
//! the list is lost, it looks into all; else into one of each database, as others may have come from the offline tool.
// A lock.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pgshrink_cfs::seal::{HexId, KeyError, KeyId, Keyring, MasterKey, Random, Recipe, Secret};
use pgshrink_cfs::segment::{Clear, clear};
use pgshrink_cfs::slots::SegmentKey;

use crate::collecting::path_of;
use crate::databases;
use crate::error::Problem;
use crate::file::{SegmentFile, call, open};
use crate::front::{Found, find};
use crate::names::PathBuffer;
use crate::saved::DIRECTORY;
use crate::secrets::{self, Kernel, SecretError};
use crate::server::{Shared, shared};
use crate::work;

const FILE_NAME: &str = "keys";
const LOCK_NAME: &str = "keys.lock";
const HEAD: &str = "cfs keys 1\n";
/// More than a rotation after the other can leave.
const LISTED_MAX: usize = crate::region::KEYS_MAX;

/// Where the settings say that keys are. The first that is given has the key for new files; the others have keys of
/// before.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// A command that prints a key.
    pub command: Option<String>,
    /// A file with a key.
    pub file: Option<PathBuf>,
    /// A command that prints the key of before.
    pub old_command: Option<String>,
    /// A file with the key of before.
    pub old_file: Option<PathBuf>,
}

/// A key that the server has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its id.
    pub id: String,
    /// Whether new files get it.
    pub is_current: bool,
}

/// What a change of the master key did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rotated {
    /// Files whose key was wrapped anew.
    pub files: u64,
    /// The id of the key that all files have now.
    pub id: String,
}

/// What is wrong with keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyProblem {
    /// A source gives no key.
    #[error(transparent)]
    Source(#[from] SecretError),
    /// A key cannot be made of what was given.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A tablespace is encrypted, and there is no key for its new files.
    #[error("tablespace {tablespace} is encrypted, but no key is configured")]
    None {
        /// Its OID.
        tablespace: u32,
    },
    /// A file needs a key that is not among those that were given.
    #[error("the encrypted file \"{path}\" of tablespace {tablespace} cannot be opened: {source}")]
    File {
        /// The tablespace's OID.
        tablespace: u32,
        /// The file, from the data directory.
        path: String,
        /// Which key it needs.
        source: KeyError,
    },
    /// The list cannot be read or written.
    #[error("{}: {source}", path.display())]
    List {
        /// The list.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Sources {
    /// The secrets that are given, in their order; the environment's comes first where there is neither command nor
    /// file.
    fn secrets(&self) -> Result<Vec<Secret>, SecretError> {
        let mut found = Vec::new();
        if let Some(command) = &self.command {
            found.push(secrets::of_command(command, "cfs.key_command")?);
        }
        if let Some(file) = &self.file {
            found.push(secrets::of_regular_file(file)?);
        }
        if found.is_empty()
            && let Some(value) = std::env::var_os(secrets::VARIABLE)
        {
            found.push(secrets::of_variable(value)?);
        }
        if let Some(command) = &self.old_command {
            found.push(secrets::of_command(command, "cfs.old_key_command")?);
        }
        if let Some(file) = &self.old_file {
            found.push(secrets::of_regular_file(file)?);
        }
        Ok(found)
    }
}

/// The list in the data directory; `None` where there is none, or it is damaged.
fn read_list(data: &Path) -> Result<Option<Vec<(KeyId, Recipe)>>, KeyProblem> {
    let path = data.join(DIRECTORY).join(FILE_NAME);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => Ok(None),
        Err(source) => Err(KeyProblem::List { path, source }),
    }
}

fn parse(text: &str) -> Option<Vec<(KeyId, Recipe)>> {
    let (head, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let head = format!("{head}\n");
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(head.as_bytes()) {
        return None;
    }
    let lines = head.strip_prefix(HEAD)?.lines();
    lines
        .map(|line| {
            let (id, recipe) = line.strip_prefix("key ")?.split_once(' ')?;
            Some((bytes_of(id)?, Recipe(bytes_of(recipe)?)))
        })
        .collect()
}

fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the list, durably.
fn write_list(data: &Path, keys: &[(KeyId, Recipe)]) -> Result<(), KeyProblem> {
    let folder = data.join(DIRECTORY);
    let path = folder.join(FILE_NAME);
    let mut text = HEAD.to_owned();
    for (id, recipe) in keys {
        text += &format!("key {} {}\n", hex(id), hex(&recipe.0));
    }
    text += &format!("{:08x}\n", crc32fast::hash(text.as_bytes()));
    let write = || {
        crate::saved::make_directory(data)?;
        let new = folder.join(format!("{FILE_NAME}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&folder)?.sync_all()
    };
    write().map_err(|source| KeyProblem::List { path: path.clone(), source })
}

/// When the server starts, after [`crate::server::begin`]: fetches the keys and refuses to go on without one that a
/// file needs. After a crash of a process the keys are still there. `encrypted`: tablespaces that say so.
///
/// # Errors
/// [`KeyProblem`].
pub fn begin(data: &Path, sources: &Sources, encrypted: &[u32]) -> Result<(), Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    if shared.region.current_key().is_some() {
        return Ok(());
    }
    let Some(Fetched { keys, listed }) = find_keys(shared, data, sources, encrypted)? else { return Ok(()) };
    let list: Vec<_> = keys.iter().map(|key| (key.id(), key.recipe())).collect();
    if listed.as_ref() != Some(&list) {
        write_list(data, &list)?;
    }
    keys.iter().rev().try_for_each(|key| shared.region.put_key(key))
}

/// As [`begin`], for a program that is no server: writes nothing.
///
/// # Errors
/// [`KeyProblem`].
pub fn fetch(data: &Path, sources: &Sources, encrypted: &[u32]) -> Result<(), Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    let fetched = find_keys(shared, data, sources, encrypted)?;
    let mut keys = fetched.iter().flat_map(|fetched| fetched.keys.iter().rev());
    keys.try_for_each(|key| shared.region.put_key(key))
}

/// Keys, the one for new files first, and the list of before.
struct Fetched {
    keys: Vec<MasterKey>,
    listed: Option<Vec<(KeyId, Recipe)>>,
}

/// `None`: there are none, and none is needed.
fn find_keys(
    shared: &'static Shared,
    data: &Path,
    sources: &Sources,
    encrypted: &[u32],
) -> Result<Option<Fetched>, Problem> {
    let list_is_there = data.join(DIRECTORY).join(FILE_NAME).symlink_metadata().is_ok();
    let secrets = sources.secrets().map_err(KeyProblem::from)?;
    if secrets.is_empty() && encrypted.is_empty() && !list_is_there {
        return Ok(None);
    }
    let listed = read_list(data)?;
    let mut keys = made_of(&secrets, listed.as_deref().unwrap_or_default())?;
    let is_complete = match &listed {
        Some(listed) => listed.iter().all(|(id, _)| is_known(&keys, id)) && samples_open(shared, &keys)?,
        None => !list_is_there && encrypted.is_empty(),
    };
    if !is_complete {
        find_needed(shared, secrets, &mut keys)?;
    }
    match (keys.is_empty(), encrypted.first()) {
        (true, Some(tablespace)) => Err(KeyProblem::None { tablespace: *tablespace }.into()),
        (true, None) => Ok(None),
        (false, _) => Ok(Some(Fetched { keys, listed })),
    }
}

/// The master keys that the secrets give by the recipes that are known; the first secret gives one in any case.
fn made_of(secrets: &[Secret], listed: &[(KeyId, Recipe)]) -> Result<Vec<MasterKey>, KeyProblem> {
    let mut made: Vec<MasterKey> = Vec::new();
    for (at, secret) in secrets.iter().enumerate() {
        let before = made.len();
        for (id, recipe) in listed {
            let key = MasterKey::by_recipe(secret, recipe)?.filter(|key| key.id() == *id);
            made.extend(key.filter(|key| made.iter().all(|known| known.id() != key.id())));
        }
        if made.len() == before && (at == 0 || !secret.is_passphrase()) {
            made.push(MasterKey::new(secret, &Kernel::new()?)?);
        }
    }
    Ok(made)
}

fn is_known(keys: &[MasterKey], id: &KeyId) -> bool {
    keys.iter().any(|key| key.id() == *id)
}

/// Whether one file of each database needs a key that is there: others may have come from the offline tool.
fn samples_open(shared: &'static Shared, keys: &[MasterKey]) -> Result<bool, Problem> {
    let mut containers = databases::containers(shared.version_text())?;
    containers.dedup_by_key(|key| (key.tablespace, key.database));
    let roots = containers.iter().filter_map(|key| root_of(shared, key));
    Ok(roots.into_iter().all(|root| root.key_id == [0; 16] || is_known(keys, &root.key_id)))
}

/// Looks into every file of every tablespace for keys that are not there.
fn find_needed(
    shared: &'static Shared,
    secrets: Vec<Secret>,
    keys: &mut Vec<MasterKey>,
) -> Result<(), Problem> {
    let mut keyring = Keyring::new(secrets);
    for key in databases::containers(shared.version_text())? {
        let Some(root) = root_of(shared, &key) else { continue };
        if root.key_id == [0; 16] || is_known(keys, &root.key_id) {
            continue;
        }
        let opened = keyring.data_key(&root.id, &root.key_id, &root.key);
        opened.map_err(|source| KeyProblem::File {
            tablespace: key.tablespace,
            path: path_of(&key),
            source,
        })?;
        if let Some(made) = keyring.made(&root.key_id) {
            keys.extend(MasterKey::from_bytes(&made.to_bytes()));
        }
    }
    Ok(())
}

/// What the newest root of a segment shows.
fn root_of(shared: &'static Shared, key: &SegmentKey) -> Option<Clear> {
    let Ok(Found::Container(descriptor)) = find(shared, key) else { return None };
    clear(&SegmentFile::owned(descriptor, *key, shared))
}

/// The keys that the server has.
pub fn known() -> Vec<Known> {
    let Some(shared) = shared() else { return Vec::new() };
    let current = shared.region.current_key().map(|key| key.id());
    let keys = shared.region.keys().into_iter();
    keys.map(|key| Known { id: HexId(key.id()).to_string(), is_current: Some(key.id()) == current }).collect()
}

/// Whether new files can be encrypted.
pub fn has_key() -> bool {
    shared().is_some_and(|shared| shared.region.current_key().is_some())
}

/// Which key a segment's file needs; `None` where it is not encrypted, or not there.
pub fn of_segment(key: &SegmentKey) -> Option<String> {
    let root = root_of(shared()?, key)?;
    (root.key_id != [0; 16]).then(|| HexId(root.key_id).to_string())
}

/// Fetches the key anew and wraps the data key of every encrypted file with it, while others go on. What was done
/// before an interruption stays done: again goes on with the rest. `interrupted` is asked between files and while this
/// waits for another change; it may leave by an error of its own.
///
/// # Errors
/// [`KeyProblem`]; [`Problem::Engine`] of the first file that cannot be written, which keeps the key that it has.
pub fn rotate(data: &Path, sources: &Sources, mut interrupted: impl FnMut()) -> Result<Rotated, Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    let _alone = alone(data, &mut interrupted)?;
    let secrets = sources.secrets().map_err(KeyProblem::from)?;
    let listed = read_list(data)?.unwrap_or_default();
    let made = made_of(&secrets[..secrets.len().min(1)], &listed)?.into_iter().next();
    let new = made.ok_or(KeyProblem::Key(KeyError::Secret {
        reason: "no key is configured: set cfs.key_command or cfs.key_file",
    }))?;
    // Keys of before stay listed until no file needs them.
    let mut list = vec![(new.id(), new.recipe())];
    list.extend(listed.into_iter().filter(|(id, _)| *id != new.id()));
    list.truncate(LISTED_MAX);
    write_list(data, &list)?;
    // Those that are given beside it, for files that an interrupted change has left.
    let others = made_of(&secrets, &list)?.into_iter().filter(|key| key.id() != new.id());
    others.rev().try_for_each(|key| shared.region.put_key(&key))?;
    shared.region.put_key(&new)?;
    let random = Kernel::new().map_err(KeyProblem::from)?;
    let mut rotated = Rotated { files: 0, id: HexId(new.id()).to_string() };
    // Files that are being made under the key of before have their names, or never will.
    Births::wait_for_all(&mut interrupted)?;
    for key in databases::containers(shared.version_text())? {
        interrupted();
        rotated.files += u64::from(rewrap(shared, &key, &new, &random)?);
    }
    write_list(data, &[(new.id(), new.recipe())])?;
    shared.region.drop_keys_but(&new.id());
    Ok(rotated)
}

/// Held while an encrypted file is made, from the look for the current master key until the file has its name. The system
/// releases it when the process dies. It is a shared lock of `pg_cfs`, which is there when there are keys.
pub(crate) struct Births {
    directory: OwnedFd,
}

impl Births {
    /// Waits for who is waiting for all.
    pub(crate) fn share() -> Result<Births, i32> {
        let births = Births::open()?;
        births.lock(libc::LOCK_SH).map(|_| births)
    }

    /// Waits until nobody holds one that was taken before.
    fn wait_for_all(interrupted: &mut impl FnMut()) -> Result<(), Problem> {
        let failed = |errno| Problem::System { call: "flock of pg_cfs", errno };
        let births = Births::open().map_err(failed)?;
        while !births.lock(libc::LOCK_EX | libc::LOCK_NB).map_err(failed)? {
            interrupted();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    }

    fn open() -> Result<Births, i32> {
        let path = PathBuffer::in_data(DIRECTORY);
        let directory = open(path.as_c_str(), libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        // SAFETY: opened for this alone.
        Ok(Births { directory: unsafe { OwnedFd::from_raw_fd(directory) } })
    }

    /// False: others have it.
    fn lock(&self, mode: i32) -> Result<bool, i32> {
        // SAFETY: takes numbers.
        match call(|| unsafe { libc::flock(self.directory.as_raw_fd(), mode) }) {
            Ok(_) => Ok(true),
            Err(libc::EWOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// One change at a time, also on a standby, where a session has no lock of the server's for that.
fn alone(data: &Path, interrupted: &mut impl FnMut()) -> Result<File, Problem> {
    let path = data.join(DIRECTORY).join(LOCK_NAME);
    let failed = |source| KeyProblem::List { path: path.clone(), source };
    crate::saved::make_directory(data).map_err(failed)?;
    let options = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
    let file = options.open(&path).map_err(failed)?;
    // SAFETY: takes numbers.
    while let Err(errno) = call(|| unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        if errno != libc::EWOULDBLOCK {
            return Err(Problem::System { call: "flock of pg_cfs/keys.lock", errno });
        }
        interrupted();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(file)
}

/// Wraps one file's data key with `new`; whether there was anything to do.
fn rewrap(
    shared: &'static Shared,
    key: &SegmentKey,
    new: &MasterKey,
    random: &dyn Random,
) -> Result<bool, Problem> {
    let Some(root) = root_of(shared, key) else { return Ok(false) };
    if root.key_id == [0; 16] || root.key_id == new.id() {
        return Ok(false);
    }
    let fail = |source| KeyProblem::File { tablespace: key.tablespace, path: path_of(key), source };
    let old = shared.region.key(&root.key_id);
    let old = old.ok_or_else(|| fail(KeyError::Missing { needed: HexId(root.key_id) }))?;
    let data_key = old.unwrap(&root.id, &root.key).map_err(fail)?;
    let slot = new.wrap(&root.id, &data_key, random);
    // The container that was looked at may have been replaced by another.
    Ok(work::rekey(key, &root.id, new.id(), slot)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_testkit::TempDir;

    #[test]
    fn the_list_of_keys_comes_back_and_a_damaged_one_does_not() {
        let data = TempDir::new().unwrap();
        assert_eq!(read_list(data.path()).unwrap(), None);
        let secret = |text: &str| Secret::parse(text.as_bytes()).unwrap();
        let kernel = Kernel::new().unwrap();
        let raw = MasterKey::new(&secret(&"00ff".repeat(16)), &kernel).unwrap();
        let phrase = MasterKey::new(&secret("correct horse battery"), &kernel).unwrap();
        let list = [&raw, &phrase].map(|key| (key.id(), key.recipe()));
        write_list(data.path(), &list).unwrap();
        assert_eq!(read_list(data.path()).unwrap().as_deref(), Some(&list[..]));
        let secrets =
            [secret("correct horse battery"), secret(&"00ff".repeat(16)), secret("an other passphrase")];
        let ids = |keys: Vec<MasterKey>| keys.iter().map(MasterKey::id).collect::<Vec<_>>();
        assert_eq!(ids(made_of(&secrets, &list).unwrap()), [phrase.id(), raw.id()]);
        let path = data.path().join(DIRECTORY).join(FILE_NAME);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&"00ff".repeat(16)), "{text}");
        for broken in ["", "cfs keys 1\n", &text.replace("key", "kex"), text.trim_end(), &text[11..]] {
            fs::write(&path, broken).unwrap();
            assert_eq!(read_list(data.path()).unwrap(), None, "{broken}");
        }
    }
}
