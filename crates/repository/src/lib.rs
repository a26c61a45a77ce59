//! Immutable objects in a directory or in an object store, for backups.
//!
//! An object has a name, is written once, and is there as a whole or not at all. This crate knows nothing of backups. It keeps
//! `object_store`, tokio and HTTP out of the rest: callers are threads that block.
//!
//! ```text
//!   Location::parse("/backups" | "s3://bucket/prefix") --> Location::open --> dyn Repository
//!                                                                              |
//!   create (only if absent) | writer -> finish | read | list | remove  <-------+
//! ```
//!
//! [`sealed`] puts encryption over any of them: `formats/backup-sealed.md`.
//!
//! Invariants:
//! 1. An object has its name when all of it is durable, whatever interrupts the writer.
//! 2. [`Repository::create`] and [`ObjectWriter::finish`] of a directory never replace an object. In an object store, `create`
//!    does not either; a large object that is written in parts replaces one of the same name, so nobody else may write to that
//!    name: its writer must own it, by an object that it has created.
//! 3. A writer holds at most [`WRITER_BYTES_MAX`] bytes in memory.
//! 4. With a key, nothing is written in plain form, and nothing is returned that was not encrypted with one of the keys under
//!    the same name.

mod cloud;
mod directory;
mod error;
mod location;
mod name;
mod sealed;

pub use error::Error;
pub use location::{Location, Store, Variables};
pub use name::ObjectName;
pub use sealed::{KeyId, SealKey, sealed};

use std::io::Write;
use std::time::SystemTime;

/// Most bytes that a writer keeps in memory.
pub const WRITER_BYTES_MAX: usize = 3 * cloud::PART_BYTES + sealed::SEALER_BYTES_MAX;

/// An object that a listing has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: ObjectName,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was written, by the clock of the repository's host.
    pub written: SystemTime,
}

/// A place for objects. All operations block, and may be called from several threads.
pub trait Repository: Send + Sync + std::fmt::Debug {
    /// Writes an object that must not exist yet; the second writer gets the error. If two write at the same time, one succeeds.
    /// Some servers that speak S3's protocol let both succeed, and the later one's bytes stay: read them again where it matters.
    ///
    /// # Errors
    /// [`Error::Exists`] if it exists; others of the place.
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Error>;

    /// Begins an object of any size. It has its name after [`ObjectWriter::finish`].
    ///
    /// # Errors
    /// Errors of the place.
    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>, Error>;

    /// The size of an object in bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`], and others of the place.
    fn size(&self, name: &ObjectName) -> Result<u64, Error>;

    /// Reads `bytes` bytes from `offset` on, neither fewer nor more.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Short`] if the object ends before; others of the place.
    fn read(&self, name: &ObjectName, offset: u64, bytes: usize) -> Result<Vec<u8>, Error>;

    /// All objects below a prefix, sorted by name; `None`: all of the repository.
    ///
    /// # Errors
    /// [`Error::Limit`] if there are more than `count_max`; others of the place.
    fn list(&self, below: Option<&ObjectName>, count_max: usize) -> Result<Vec<Found>, Error>;

    /// The first components of the names of all objects, each once, sorted: backups have one each.
    ///
    /// # Errors
    /// [`Error::Limit`] if there are more than `count_max`; others of the place.
    fn top(&self, count_max: usize) -> Result<Vec<String>, Error>;

    /// The first components of the names below a prefix, each once, sorted, as [`Repository::top`] has those of all names. None
    /// if nothing is there.
    ///
    /// # Errors
    /// [`Error::Limit`] if there are more than `count_max`; others of the place.
    fn below(&self, folder: &ObjectName, count_max: usize) -> Result<Vec<String>, Error>;

    /// Removes an object. One that is not there is no error.
    ///
    /// # Errors
    /// Errors of the place.
    fn remove(&self, name: &ObjectName) -> Result<(), Error>;
}

/// An object that is being written. Dropped without [`ObjectWriter::finish`], it leaves no object.
pub trait ObjectWriter: Write + Send {
    /// Makes all that was written durable, and gives the object its name.
    ///
    /// # Errors
    /// Errors of the place; the object is not there then.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}
