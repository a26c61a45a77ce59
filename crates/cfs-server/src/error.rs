//! What keeps a server from starting with the library, or a call from being done.

use std::path::PathBuf;

use crate::owner::Owner;

/// What is wrong, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A system call failed.
    #[error("{call}: {}", std::io::Error::from_raw_os_error(*errno))]
    System {
        /// Which, of what.
        call: &'static str,
        /// Its error number.
        errno: i32,
    },
    /// The storage engine's own.
    #[error(transparent)]
    Engine(#[from] pgshrink_cfs::Error),
    /// Too many tablespaces have had a setting.
    #[error("{limit} tablespaces have a compression setting, which is the limit")]
    Tablespaces {
        /// How many there may be.
        limit: usize,
    },
    /// The memory that processes share was not made.
    #[error("the library is not loaded by the postmaster: add cfs to shared_preload_libraries and restart")]
    NotStarted,
    /// Another server uses the tablespace's directory.
    #[error("the tablespace directory \"{}\" is in use by {owner}", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// What leads this server there.
        link: String,
        /// Who has it.
        owner: Owner,
    },
    /// Something that the configuration says is out of range.
    #[error("{what} is {found}: {allowed}")]
    Setting {
        /// Its name.
        what: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        allowed: &'static str,
    },
}
