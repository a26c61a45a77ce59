//! What a client finds around it: environment, home directory, files.
//!
//! A value, so that a test states it and a caller takes it from its process: this crate looks at neither.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Environment, home and files of one client.
pub struct Surroundings<'a> {
    /// Every variable.
    pub env: BTreeMap<OsString, OsString>,
    /// `$HOME`, or the user's home from the user database; `None` when there is neither.
    pub home: Option<PathBuf>,
    /// Where paths lead.
    pub files: &'a dyn Files,
}

/// Read access to files, as little as libpq needs.
pub trait Files {
    /// The whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Its kind and permissions, symbolic links followed.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
}

/// What libpq asks about a file before it trusts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// A plain file.
    pub is_file: bool,
    /// Permission bits.
    pub mode: u32,
    /// Owned by user 0.
    pub owned_by_root: bool,
}

/// Where servers put their socket when nobody says otherwise: Debian's and PostgreSQL's own choice.
pub const SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Where distributions keep `pg_service.conf` when `PGSYSCONFDIR` is not set.
pub const SYSCONF_DIRS: [&str; 3] =
    ["/etc/postgresql-common", "/etc/sysconfig/pgsql", "/usr/local/pgsql/etc"];

impl Surroundings<'_> {
    /// A variable of the environment.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        self.env.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// A variable's bytes, as libpq sees them.
    pub fn var_bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.var(name).map(|value| value.as_bytes().to_vec())
    }

    /// A path below the home directory.
    pub fn home_file(&self, below: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(below))
    }

    /// Whether there is anything at the path.
    pub fn exists(&self, path: &Path) -> bool {
        self.files.stat(path).is_ok()
    }

    /// The socket directory a client without a host would use: the distribution's where it is there.
    pub fn default_socket_dir(&self) -> &'static str {
        SOCKET_DIRS.into_iter().find(|dir| self.exists(Path::new(dir))).unwrap_or(SOCKET_DIRS[0])
    }

    /// Where the system's `pg_service.conf` is, whether or not it exists.
    pub fn system_service_file(&self) -> PathBuf {
        let at = |dir: &OsStr| Path::new(dir).join("pg_service.conf");
        if let Some(dir) = self.var("PGSYSCONFDIR") {
            return at(dir);
        }
        let candidates = SYSCONF_DIRS.map(|dir| at(OsStr::new(dir)));
        let found = candidates.iter().find(|path| self.exists(path));
        found.unwrap_or(&candidates[0]).clone()
    }
}
