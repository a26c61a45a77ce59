//! Settings of tablespaces in the server's data directory: for redo, and for a start, which cannot read catalogs.
//!
//! `pg_cfs/OID` is one line: `cfs 1 zstd:1 CHECKSUM`, or `cfs 2 encrypted zstd:1 CHECKSUM`, the checksum a CRC-32 of
//! what is before it, in hexadecimal.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::setting::Setting;

/// The directory, in the server's data directory, which is a server's working directory.
pub const DIRECTORY: &str = "pg_cfs";
const HEAD: &str = "cfs 1 ";
/// Of encrypted tablespaces: versions that do not know of them must not write plain files there.
const HEAD_ENCRYPTED: &str = "cfs 2 encrypted ";

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The system's error.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is none of ours, or was changed.
    #[error(
        "{}: not the setting of a compressed tablespace: expected \"cfs 1 COMPRESSION CHECKSUM\", found \"{found}\"",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// Its begin.
        found: String,
    },
}

/// What the directory has.
#[derive(Debug, Default)]
pub struct Saved {
    /// Settings, by the tablespace's OID.
    pub settings: Vec<(u32, Setting)>,
    /// Files that could not be read.
    pub errors: Vec<SavedError>,
}

impl SavedError {
    /// The tablespace whose setting is concerned.
    pub fn tablespace(&self) -> Option<u32> {
        let (SavedError::System { path, .. } | SavedError::Content { path, .. }) = self;
        pgshrink_cfs::relation::number(path.file_name()?.to_str()?)
    }
}

fn system(path: &Path) -> impl FnOnce(io::Error) -> SavedError {
    let path = path.to_owned();
    |source| SavedError::System { path, source }
}

fn text_of(setting: Setting) -> String {
    let head =
        format!("{}{}", if setting.is_encrypted { HEAD_ENCRYPTED } else { HEAD }, setting.compression());
    format!("{head} {:08x}\n", crc32fast::hash(head.as_bytes()))
}

fn parse(text: &str) -> Option<Setting> {
    let (head, sum) = text.strip_suffix('\n')?.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(head.as_bytes()) {
        return None;
    }
    match head.strip_prefix(HEAD_ENCRYPTED) {
        Some(compression) => Setting::encrypted(compression.parse().ok()?),
        None => head.strip_prefix(HEAD)?.parse().ok(),
    }
}

/// Saves a tablespace's setting, durably, in the server whose data directory this is.
///
/// # Errors
/// The system's; the old setting is in force then, or the new one.
pub fn save(data: &Path, tablespace: u32, setting: Setting) -> Result<(), SavedError> {
    let folder = data.join(DIRECTORY);
    make_directory(data).map_err(system(&folder))?;
    let (new, path) = (folder.join(format!("{tablespace}.new")), folder.join(tablespace.to_string()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text_of(setting).as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(system(&path))?;
    sync(&folder)
}

/// Makes the directory, durably, if it is not there.
pub(crate) fn make_directory(data: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(data.join(DIRECTORY)) {
        Ok(()) => File::open(data)?.sync_all(),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a tablespace's setting, durably. It need not be there.
///
/// # Errors
/// The system's.
pub fn remove(data: &Path, tablespace: u32) -> Result<(), SavedError> {
    let folder = data.join(DIRECTORY);
    let path = folder.join(tablespace.to_string());
    match fs::remove_file(&path) {
        Ok(()) => sync(&folder),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(system(&path)(error)),
    }
}

/// All settings, by the tablespace's OID, and what could not be read.
///
/// # Errors
/// The system's, of the directory.
pub fn read_all(data: &Path) -> Result<Saved, SavedError> {
    let folder = data.join(DIRECTORY);
    let Saved { mut settings, mut errors } = Saved::default();
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Saved::default()),
        entries => entries.map_err(system(&folder))?,
    };
    for entry in entries {
        let path = entry.map_err(system(&folder))?.path();
        let number = |name: &str| pgshrink_cfs::relation::number(name);
        // Left by a save that was interrupted.
        let Some(tablespace) = path.file_name().and_then(|name| name.to_str()).and_then(number) else {
            continue;
        };
        match fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
            Ok(text) => match parse(&text) {
                Some(setting) => settings.push((tablespace, setting)),
                None => errors.push(SavedError::Content { path, found: text.chars().take(60).collect() }),
            },
            Err(error) => errors.push(system(&path)(error)),
        }
    }
    settings.sort_by_key(|(tablespace, _)| *tablespace);
    Ok(Saved { settings, errors })
}

fn sync(folder: &Path) -> Result<(), SavedError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(system(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_testkit::TempDir;

    #[test]
    fn settings_come_back_and_broken_files_are_named() {
        let data = TempDir::new().unwrap();
        assert!(read_all(data.path()).unwrap().settings.is_empty());
        let zstd: Setting = "zstd:3".parse().unwrap();
        save(data.path(), 16401, zstd).unwrap();
        save(data.path(), 16400, Setting::PLAIN).unwrap();
        save(data.path(), 16402, zstd).unwrap();
        let sealed = Setting::encrypted(zstd).unwrap();
        save(data.path(), 16404, sealed).unwrap();
        assert_eq!(read_all(data.path()).unwrap().settings.last(), Some(&(16404, sealed)));
        remove(data.path(), 16404).unwrap();
        remove(data.path(), 16402).unwrap();
        remove(data.path(), 16402).unwrap();
        fs::write(data.path().join(DIRECTORY).join("16403.new"), "half").unwrap();
        let Saved { settings, errors } = read_all(data.path()).unwrap();
        assert_eq!(settings, [(16400, Setting::PLAIN), (16401, zstd)]);
        assert!(errors.is_empty());
        let path = data.path().join(DIRECTORY).join("16401");
        let whole = fs::read_to_string(&path).unwrap();
        for broken in ["", "cfs 2 zstd:3 00000000\n", &whole.replace('3', "4"), whole.trim_end()] {
            fs::write(&path, broken).unwrap();
            let Saved { settings, errors } = read_all(data.path()).unwrap();
            assert_eq!((settings.len(), errors.len()), (1, 1), "{broken}");
            assert!(errors[0].to_string().contains("pg_cfs/16401"), "{}", errors[0]);
            assert_eq!(errors[0].tablespace(), Some(16401));
        }
    }
}
