//! Surroundings that exist only in a test.

use pgshrink_pgclient::surroundings::{Files, Stat};
use pgshrink_pgclient::{Conninfo, Parameters, Surroundings};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The real file system.
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let found = std::fs::metadata(path)?;
        let (mode, owned_by_root) = (found.mode() & 0o7777, found.uid() == 0);
        Ok(Stat { is_file: found.is_file(), mode, owned_by_root })
    }
}

#[derive(Default)]
pub struct World {
    env: Vec<(String, String)>,
    files: BTreeMap<PathBuf, (Stat, Vec<u8>)>,
}

pub const HOME: &str = "/home/ann";

impl World {
    pub fn new() -> Self {
        Self::default().with_dir("/var/run/postgresql")
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn file(self, path: &str, text: &str) -> Self {
        self.file_with(path, text, 0o600)
    }

    pub fn file_with(mut self, path: &str, text: &str, mode: u32) -> Self {
        let stat = Stat { is_file: true, mode, owned_by_root: false };
        self.files.insert(path.into(), (stat, text.into()));
        self
    }

    pub fn root_file(mut self, path: &str, mode: u32) -> Self {
        let stat = Stat { is_file: true, mode, owned_by_root: true };
        self.files.insert(path.into(), (stat, Vec::new()));
        self
    }

    pub fn with_dir(mut self, path: &str) -> Self {
        let stat = Stat { is_file: false, mode: 0o755, owned_by_root: true };
        self.files.insert(path.into(), (stat, Vec::new()));
        self
    }

    pub fn around(&self) -> Surroundings<'_> {
        let env = self.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Surroundings { env, home: Some(HOME.into()), files: self }
    }

    pub fn parameters(&self, conninfo: &str) -> Parameters {
        let conninfo = Conninfo::parse(conninfo.as_bytes()).expect("a test's own string");
        Parameters::of(&conninfo, &self.around()).expect("a test's own surroundings")
    }
}

impl Files for World {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.files.get(path).filter(|(stat, _)| stat.is_file);
        found.map(|(_, text)| text.clone()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.files.get(path).map(|(stat, _)| *stat).ok_or(io::ErrorKind::NotFound.into())
    }
}

/// Text of bytes that a test put in as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
