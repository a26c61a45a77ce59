//! The environment, home directory and files of this process, for `pgshrink_pgclient`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgshrink_pgclient::Surroundings;
use pgshrink_pgclient::surroundings::{Files, Stat};

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Disk;

/// Those of this process.
pub(crate) fn of_process() -> Surroundings<'static> {
    let env: std::collections::BTreeMap<_, _> = std::env::vars_os().collect();
    let home = env.get(OsStr::new("HOME")).filter(|home| !home.is_empty()).map(PathBuf::from);
    let home = home.or_else(std::env::home_dir).filter(|home| !home.as_os_str().is_empty());
    Surroundings { env, home, files: &Disk }
}

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let found = std::fs::metadata(path)?;
        Ok(Stat { is_file: found.is_file(), mode: found.mode() & 0o7777, owned_by_root: found.uid() == 0 })
    }
}
