//! Configuration files that lie outside of the data directory.

use super::{WHAT, text};
use crate::configuration::{BYTES_MAX, DIRECTORIES_MAX, FILE_BYTES_MAX, FILES_MAX, absolute, below};
use crate::error::Error;
use crate::pack::Sha256;
use crate::path::BackupPath;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Where a server has its configuration, and what of it is in the backup besides the data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The server's setting: an absolute path.
    pub data_directory: String,
    /// The server's setting: the absolute path of its `postgresql.conf`, which may lie in the data directory.
    pub config_file: String,
    /// Files from outside of the data directory.
    pub files: Vec<ConfigurationFile>,
    /// Directories outside of the data directory that `include_dir` names: absolute paths. They may have no files.
    pub directories: Vec<String>,
    /// Files that the configuration names and the backup does not have, such as keys of TLS: absolute paths.
    pub absent: Vec<String>,
}

/// A configuration file. Its bytes are in packs, in [`Area::Configuration`](crate::pack::Area).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationFile {
    /// Where it was: an absolute path.
    pub path: String,
    /// What the server reads it for.
    pub role: ConfigurationRole,
    /// Its size.
    pub bytes: u64,
    /// Of its bytes.
    #[serde(with = "text")]
    pub sha256: Sha256,
}

/// What a server reads a configuration file for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigurationRole {
    /// `config_file`.
    Config,
    /// `hba_file`.
    Hba,
    /// `ident_file`.
    Ident,
    /// Another one includes it.
    Included,
}

impl ConfigurationFile {
    /// Its path in packs, and below the directory that configuration is restored into: without the first slash.
    ///
    /// # Errors
    /// [`Error::UnsafePath`] for a path that is not absolute, or leads elsewhere.
    pub fn place(&self) -> Result<BackupPath, Error> {
        place(&self.path)
    }
}

/// An absolute path as one below a directory: without its first slash.
///
/// # Errors
/// [`Error::UnsafePath`] for a path that is not absolute, or leads elsewhere.
pub fn place(path: &str) -> Result<BackupPath, Error> {
    // What is not absolute is refused with its whole text.
    BackupPath::new(path.strip_prefix('/').unwrap_or("/").as_bytes())
}

impl Configuration {
    /// What a restore relies on.
    pub(super) fn check(&self) -> Result<(), Error> {
        let refused = |expected, found: &str| Err(Error::malformed(WHAT, expected, found.as_bytes()));
        for (what, found, allowed) in [
            ("the number of configuration files", self.files.len(), FILES_MAX),
            ("the number of directories of configuration files", self.directories.len(), DIRECTORIES_MAX),
            ("the number of absent configuration files", self.absent.len(), FILES_MAX),
        ] {
            if found > allowed {
                return Err(Error::Limit { what, found: found as u64, allowed: allowed as u64 });
            }
        }
        let paths = || self.files.iter().map(|file| &file.path).chain(&self.directories);
        for path in paths().chain([&self.data_directory, &self.config_file]).chain(&self.absent) {
            if absolute(path.as_bytes(), b"/").as_deref() != Some(path.as_bytes()) {
                return refused("absolute paths of configuration, without `.` and `..`", path);
            }
        }
        if let Some(inside) = paths().find(|path| self.is_inside(path)) {
            return refused("configuration outside of the data directory", inside);
        }
        self.check_places()?;
        let mut sum = 0;
        for file in &self.files {
            sum += file.bytes.min(FILE_BYTES_MAX + 1);
            if file.bytes > FILE_BYTES_MAX || sum > BYTES_MAX {
                let found = format!("{} with {} bytes", file.path, file.bytes);
                return refused("configuration files of at most 4 MiB, and 16 MiB together", &found);
            }
        }
        Ok(())
    }

    fn is_inside(&self, path: &str) -> bool {
        path == self.data_directory || below(path.as_bytes(), self.data_directory.as_bytes()).is_some()
    }

    /// Each path is there once, none is below a file, and each of the server's settings names one file at most.
    fn check_places(&self) -> Result<(), Error> {
        let refused = |expected, found: &str| Err(Error::malformed(WHAT, expected, found.as_bytes()));
        let (mut known, mut roles) = (HashSet::new(), HashSet::new());
        for file in &self.files {
            if !known.insert(file.path.as_bytes()) {
                return refused("each configuration file once", &file.path);
            }
            if file.role != ConfigurationRole::Included && !roles.insert(file.role) {
                return refused("one configuration file for each setting", &file.path);
            }
        }
        let is_file = |path: &[u8]| known.contains(path);
        for path in self.files.iter().map(|file| &file.path).chain(&self.directories) {
            let bytes = path.as_bytes();
            let mut slashes = (1..bytes.len()).filter(|at| bytes[*at] == b'/');
            if slashes.any(|at| is_file(&bytes[..at])) {
                return refused("configuration paths that do not lead through a file", path);
            }
        }
        match self.directories.iter().find(|path| is_file(path.as_bytes())) {
            Some(path) => refused("directories that are not files", path),
            None => Ok(()),
        }
    }
}
