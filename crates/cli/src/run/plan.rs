//! What `pgshrink run` is going to do, decided before it does anything.

use pgshrink_pgclient::ssl::SslParameters;
use pgshrink_pgclient::target::{Keepalive, Target};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Everything that is different for the command.
#[derive(Clone, PartialEq, Eq)]
pub struct Plan {
    /// The command and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Variables to set, or to unset where there is no value.
    pub env: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Private copies of files.
    pub files: Vec<PrivateFile>,
    /// Sockets to listen on; none when nothing is compressed.
    pub stand_ins: Vec<StandIn>,
    /// What was found, for `--verbose`.
    pub notes: Vec<String>,
    /// What the user should know in any case.
    pub warnings: Vec<String>,
}

/// A file for the command's eyes only. It may hold passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateFile {
    /// In the private directory.
    pub path: PathBuf,
    /// The whole file.
    pub text: Vec<u8>,
}

/// A socket that stands for one host of a connection: same port, another directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    /// Its directory; the socket in it bears the target's port.
    pub dir: PathBuf,
    /// Where its sessions go.
    pub target: Target,
    /// How that server is verified.
    pub ssl: SslParameters,
    /// How that connection is watched.
    pub keepalive: Keepalive,
    /// What is asked for, in the list's syntax.
    pub compression: String,
}

impl StandIn {
    /// The socket the command connects to.
    pub fn socket(&self) -> PathBuf {
        pgshrink_pgclient::target::socket_path(&self.dir, self.target.port)
    }
}

impl Plan {
    /// A plan that changes nothing.
    pub fn unchanged(argv: &[Vec<u8>]) -> Self {
        Self {
            argv: argv.to_vec(),
            env: BTreeMap::new(),
            files: Vec::new(),
            stand_ins: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(crate) fn file(&mut self, path: &Path, text: Vec<u8>) {
        self.files.push(PrivateFile { path: path.to_owned(), text });
    }
}

/// Arguments, variables and files may hold passwords.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("arguments", &self.argv.len())
            .field("env", &self.env.keys().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>())
            .field("files", &self.files.iter().map(|file| &file.path).collect::<Vec<_>>())
            .field("stand_ins", &self.stand_ins)
            .field("notes", &self.notes)
            .field("warnings", &self.warnings)
            .finish()
    }
}
