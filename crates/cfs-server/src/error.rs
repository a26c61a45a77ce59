//! What keeps a server from starting with the library, or a call from being done.

use std::io;
use std::path::PathBuf;

use crate::guard::Content;
use crate::keys::KeyProblem;
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
    /// A file cannot change its form.
    #[error(transparent)]
    Conversion(pgshrink_cfs::convert::ConvertError),
    /// The filesystem has less space than a conversion needs.
    #[error("not enough space on the filesystem of {path}: {needed} bytes needed, {found} free")]
    Space {
        /// The file.
        path: String,
        /// Bytes that the conversion may take.
        needed: u64,
        /// Bytes that are free, without the reserve.
        found: u64,
    },
    /// Pages that could not be read, encoded or written.
    #[error(transparent)]
    Page(pgshrink_cfs::store::Error),
    /// Too many tablespaces have had a setting.
    #[error("too many tablespaces with a compression setting: the limit is {limit}")]
    Tablespaces {
        /// How many there may be.
        limit: usize,
    },
    /// The memory that processes share was not made.
    #[error("the library was not loaded by the postmaster: add cfs to shared_preload_libraries and restart")]
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
    /// A directory of a tablespace cannot be looked at, or its guard not be written.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Containers that were copied while a server wrote to them, or may have been.
    #[error(
        "the compressed files in \"{}\" may be a copy made while a server was running: {}",
        path.display(),
        of_guard(*guard)
    )]
    Copied {
        /// The directory.
        path: PathBuf,
        /// What its guard says, if there is one.
        guard: Option<Content>,
    },
    /// A key of encrypted files.
    #[error(transparent)]
    Key(#[from] KeyProblem),
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

/// What a guard says, in words.
fn of_guard(guard: Option<Content>) -> String {
    let name = crate::GUARD_NAME;
    match guard {
        None => format!("the file \"{name}\" is missing"),
        Some(Content::Unknown) => format!("the file \"{name}\" is empty or damaged"),
        Some(_) => {
            format!("the guard file \"{name}\" does not have the inode number that the server recorded in it")
        }
    }
}
