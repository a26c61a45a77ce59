//! Encryption over any repository, on this side of it: `formats/backup-sealed.md`.
//!
//! ```text
//!   caller, plaintext --> Sealed: header | block | block | ... | last block --> directory or object store
//! ```
//! Every object is encrypted in blocks of 64 KiB with a key of its own, which is derived from the repository's key, a new
//! random salt, and the object's name. Names, sizes and times stay visible. Nothing here says which object is the newest: an
//! object that is put back as it was is whole.
//!
//! Invariants:
//! 1. No two blocks are encrypted with the same key and nonce: each object's salt is new, and a writer that has failed encrypts
//!    nothing more.
//! 2. What is returned was encrypted with one of the keys, under the same name, at the same place, in an object of the same
//!    size.
//! 3. Without a key an encrypted object is [`Error::Locked`], with a key a plain one is [`Error::NotSealed`].

mod cipher;
mod key;
mod layout;

pub(crate) use cipher::SEALER_BYTES_MAX;
pub use key::{KeyId, SealKey};

use crate::{Error, Found, ObjectName, ObjectWriter, Repository};
use cipher::{ObjectCipher, Sealer};
use layout::{BLOCK_BYTES, Extent, HEADER_BYTES, Header, HeaderError, MAGIC, TAG_BYTES, block_at};
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Objects whose keys are remembered: at least one for each thread that reads.
const OPENED_MAX: usize = 64;

/// A repository with these keys: what is written is encrypted with the first one, and what is read must be encrypted with one
/// of them. Without any key, what is encrypted is refused. `place` is what errors call the repository.
///
/// A read decrypts the blocks that it touches. Before the first read of an object, its size and its header are looked up.
pub fn sealed(inner: Arc<dyn Repository>, place: &str, keys: Vec<SealKey>) -> Arc<dyn Repository> {
    match keys.is_empty() {
        true => Arc::new(Unsealed { inner }),
        false => Arc::new(Sealed { inner, place: place.to_owned(), keys, opened: Mutex::default() }),
    }
}

/// Objects that are encrypted.
#[derive(Debug)]
struct Sealed {
    inner: Arc<dyn Repository>,
    place: String,
    /// The first one is for new objects.
    keys: Vec<SealKey>,
    /// The newest last. Objects do not change; if one was replaced, its blocks do not fit and it is opened again.
    opened: Mutex<VecDeque<(ObjectName, Arc<Opened>)>>,
}

/// What is needed to read an object.
struct Opened {
    cipher: ObjectCipher,
    extent: Extent,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("extent", &self.extent).finish_non_exhaustive()
    }
}

fn damaged(name: &ObjectName, reason: impl Into<String>) -> Error {
    Error::Damaged { name: name.clone(), reason: reason.into() }
}

/// Reads the header from the first bytes of an object.
fn header(name: &ObjectName, bytes: &[u8]) -> Result<Header, Error> {
    Header::read(bytes).map_err(|error| match error {
        HeaderError::NotSealed => Error::NotSealed { name: name.clone() },
        HeaderError::Damaged(reason) => damaged(name, reason),
        HeaderError::Unsupported { what, found, known } => {
            Error::Unsupported { name: name.clone(), what, found, known }
        }
    })
}

fn new_salt() -> Result<[u8; 32], Error> {
    let mut salt = [0; 32];
    let failed = |source| Error::Io { what: "draw", path: "random numbers".to_owned(), source };
    match getrandom(&mut salt, GetRandomFlags::empty()) {
        Ok(drawn) if drawn == salt.len() => Ok(salt),
        Ok(_) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(failed(error.into())),
    }
}

impl Sealed {
    fn sealer<W: Write>(&self, sink: W, name: &ObjectName) -> Result<Sealer<W>, Error> {
        let Some(key) = self.keys.first() else {
            return Err(Error::NotSealed { name: name.clone() });
        };
        Ok(Sealer::new(sink, key, name, new_salt()?))
    }

    /// Reads an object's header and finds its key.
    fn open(&self, name: &ObjectName) -> Result<Opened, Error> {
        let stored = self.inner.size(name)?;
        let first = self.inner.read(name, 0, stored.min(HEADER_BYTES as u64) as usize)?;
        let header = header(name, &first)?;
        let Some(key) = self.keys.iter().find(|key| key.id() == header.key()) else {
            let given = self.keys.iter().map(SealKey::id).collect();
            return Err(Error::Locked { name: name.clone(), needed: header.key(), given });
        };
        let extent = Extent::of_stored(stored).ok_or_else(|| {
            damaged(name, format!("it is cut off: no encrypted object has a size of {stored} bytes"))
        })?;
        Ok(Opened { cipher: ObjectCipher::new(key, &header, name), extent })
    }

    fn remembered(&self, name: &ObjectName) -> Option<Arc<Opened>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let found = opened.iter().find(|(known, _)| known == name);
        found.map(|(_, opened)| Arc::clone(opened))
    }

    fn remember(&self, name: &ObjectName, new: &Arc<Opened>) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|(known, _)| known != name);
        if opened.len() == OPENED_MAX {
            opened.pop_front();
        }
        opened.push_back((name.clone(), Arc::clone(new)));
    }

    fn read_of(
        &self,
        opened: &Opened,
        name: &ObjectName,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, Error> {
        let Opened { cipher, extent } = opened;
        let end = offset.saturating_add(bytes as u64);
        // Before anything is allocated.
        if end > extent.plain {
            let (place, found) = (self.place.clone(), extent.plain);
            return Err(Error::Short { place, name: name.clone(), expected: end, found });
        }
        // An empty object has a block too, which proves that it is one.
        if bytes == 0 && extent.plain > 0 {
            return Ok(Vec::new());
        }
        let (first, last) = (offset / BLOCK_BYTES as u64, end.saturating_sub(1) / BLOCK_BYTES as u64);
        let stored = block_at(last) + (extent.block_bytes(last) + TAG_BYTES) as u64 - block_at(first);
        let mut stored = self.inner.read(name, block_at(first), stored as usize)?;
        // The plaintext is moved to the beginning of the same memory.
        let (mut from, mut to) = (0, 0);
        for block in first..=last {
            let block_bytes = extent.block_bytes(block);
            let behind = from + block_bytes + TAG_BYTES;
            let is_block = stored
                .get_mut(from..behind)
                .is_some_and(|stored| cipher.open(block, extent.is_last(block), stored).is_some());
            let plain_at = block * BLOCK_BYTES as u64;
            if !is_block {
                let reason = format!(
                    "bytes {plain_at} to {} of {} are not what was encrypted under this name: they were \
                     changed, cut off, or copied from elsewhere",
                    plain_at + block_bytes as u64,
                    extent.plain
                );
                return Err(damaged(name, reason));
            }
            let skipped = offset.saturating_sub(plain_at) as usize;
            let wanted = (end - plain_at).min(block_bytes as u64) as usize;
            stored.copy_within(from + skipped..from + wanted, to);
            to += wanted - skipped;
            from = behind;
        }
        stored.truncate(to);
        Ok(stored)
    }
}

impl Repository for Sealed {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Error> {
        let mut sealer = self.sealer(Vec::new(), name)?;
        let stored = sealer.write_all(bytes).and_then(|()| sealer.end());
        let failed = |source| Error::Io { what: "encrypt", path: name.to_string(), source };
        self.inner.create(name, &stored.map_err(failed)?)
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>, Error> {
        Ok(Box::new(self.sealer(self.inner.writer(name)?, name)?))
    }

    /// Follows from the size that is stored, and is proved when the last block is read.
    fn size(&self, name: &ObjectName) -> Result<u64, Error> {
        match Extent::of_stored(self.inner.size(name)?) {
            Some(extent) => Ok(extent.plain),
            // It is plain, or cut.
            None => Ok(self.open(name)?.extent.plain),
        }
    }

    fn read(&self, name: &ObjectName, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        if let Some(opened) = self.remembered(name)
            && let Ok(read) = self.read_of(&opened, name, offset, bytes)
        {
            return Ok(read);
        }
        // It is new here, or another process has replaced it.
        let opened = Arc::new(self.open(name)?);
        self.remember(name, &opened);
        self.read_of(&opened, name, offset, bytes)
    }

    /// Sizes are those of plaintexts. An object that cannot be encrypted has its own; a read of it is an error.
    fn list(&self, below: Option<&ObjectName>, count_max: usize) -> Result<Vec<Found>, Error> {
        let mut found = self.inner.list(below, count_max)?;
        for object in &mut found {
            object.bytes = Extent::of_stored(object.bytes).map_or(object.bytes, |extent| extent.plain);
        }
        Ok(found)
    }

    fn top(&self, count_max: usize) -> Result<Vec<String>, Error> {
        self.inner.top(count_max)
    }

    fn below(&self, folder: &ObjectName, count_max: usize) -> Result<Vec<String>, Error> {
        self.inner.below(folder, count_max)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Error> {
        self.inner.remove(name)
    }
}

/// Objects as they are, none of which may be encrypted.
#[derive(Debug)]
struct Unsealed {
    inner: Arc<dyn Repository>,
}

impl Repository for Unsealed {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Error> {
        self.inner.create(name, bytes)
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>, Error> {
        self.inner.writer(name)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Error> {
        self.inner.size(name)
    }

    /// Nothing else that pgshrink stores begins like an encrypted object.
    fn read(&self, name: &ObjectName, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let read = self.inner.read(name, offset, bytes)?;
        if offset > 0 || !read.starts_with(&MAGIC) {
            return Ok(read);
        }
        let stored = self.inner.size(name)?;
        let first = self.inner.read(name, 0, stored.min(HEADER_BYTES as u64) as usize)?;
        let needed = header(name, &first)?.key();
        Err(Error::Locked { name: name.clone(), needed, given: Vec::new() })
    }

    fn list(&self, below: Option<&ObjectName>, count_max: usize) -> Result<Vec<Found>, Error> {
        self.inner.list(below, count_max)
    }

    fn top(&self, count_max: usize) -> Result<Vec<String>, Error> {
        self.inner.top(count_max)
    }

    fn below(&self, folder: &ObjectName, count_max: usize) -> Result<Vec<String>, Error> {
        self.inner.below(folder, count_max)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Error> {
        self.inner.remove(name)
    }
}
