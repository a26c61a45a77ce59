//! Paths that are ours, and what is in a segment's place.
// System calls.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::RawFd;

use pgshrink_cfs::slots::SegmentKey;
use pgshrink_interpose::Errno;

use crate::databases;
use crate::directories::Generation;
use crate::file::open;
use crate::names::{Locations, Named, PathBuffer, parse};
use crate::server::{Shared, shared};

impl Locations for Shared {
    fn data_directory(&self) -> &[u8] {
        self.data_directory()
    }

    fn tablespace_at(&self, directory: &[u8]) -> Option<u32> {
        let noted = self.region.noted();
        let is_at = |tablespace: &u32| leads_to(*tablespace, directory);
        let mut known = self.region.tablespaces().chain(noted.tablespaces());
        // Which ones there are is not known.
        let others = || noted.is_full().then(|| databases::linked().into_iter().find(is_at)).flatten();
        known.find(is_at).or_else(others)
    }

    fn is_known(&self, tablespace: u32) -> bool {
        self.region.setting(tablespace).is_some()
    }

    fn is_noted(&self, tablespace: u32, database: u32) -> bool {
        self.region.noted().has(tablespace, database)
    }

    fn becomes_known(&self, tablespace: u32) -> bool {
        self.is_redo() && crate::asking::ask(&self.region, tablespace)
    }
}

/// Whether a tablespace's link leads to this directory.
fn leads_to(tablespace: u32, directory: &[u8]) -> bool {
    let mut target = [0u8; libc::PATH_MAX as usize];
    let link = PathBuffer::link(tablespace);
    // SAFETY: a string that ends with a zero; a buffer of the length that is given.
    let length =
        unsafe { libc::readlink(link.as_c_str().as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    usize::try_from(length).is_ok_and(|length| target.get(..length) == Some(directory))
}

/// Reads a path; `None` where it is none of ours.
pub(super) fn named(path: &CStr) -> Option<(&'static Shared, Named)> {
    let bytes = path.to_bytes();
    let first = bytes.first();
    if !matches!(first, Some(b'b' | b'p' | b'/' | b'.')) {
        return None;
    }
    let shared = shared()?;
    // Most paths are in base/, and most servers have no container there.
    if first == Some(&b'b') && shared.region.noted().is_empty() {
        return None;
    }
    parse(bytes, shared.version(), shared).map(|named| (shared, named))
}

pub(super) fn relation(path: &CStr) -> Option<(&'static Shared, SegmentKey)> {
    match named(path)? {
        (shared, Named::Relation(key)) => Some((shared, key)),
        _ => None,
    }
}

/// What is in a segment's place.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A plain file.
    Plain,
    /// A directory without a container: a process died while it made the file or removed it. It counts as an
    /// empty file, as a plain one would be there.
    Unborn,
    /// A container; its file, just opened.
    Container(RawFd),
}

/// How often a look at a segment's place is begun anew at most.
pub(super) const LOOKS: u32 = 20;

/// Looks what is in a segment's place. A file that is exchanged for one of another kind meanwhile is either of them, and
/// not a directory that has lost its container together with its name.
pub(crate) fn find(shared: &Shared, key: &SegmentKey) -> Result<Found, Errno> {
    let container = PathBuffer::container(key, shared.version());
    let own = PathBuffer::segment(key, shared.version());
    let open = || open(container.as_c_str(), libc::O_RDWR, 0);
    let kind = || lstat(own.as_c_str()).map(|stat| stat.st_mode & libc::S_IFMT);
    steady(shared.region.generation(), || look_at(open, kind))
}

/// Looks until nothing was exchanged meanwhile, or what was found is true all the same.
fn steady(generation: Generation, mut look: impl FnMut() -> Result<Found, Errno>) -> Result<Found, Errno> {
    for _ in 1..LOOKS {
        let before = generation.now();
        match look()? {
            Found::Unborn if !generation.is_still(before) => {}
            found => return Ok(found),
        }
    }
    look()
}

/// One look. `open` is of the container's file, `kind` that of what has the segment's name.
fn look_at(
    open: impl Fn() -> Result<RawFd, i32>,
    kind: impl FnOnce() -> Option<libc::mode_t>,
) -> Result<Found, Errno> {
    let mut opened = open();
    if opened == Err(libc::ENOENT) {
        match kind() {
            None => return Ok(Found::Nothing),
            // A container had the name, and its file is gone since it was exchanged.
            Some(kind) if kind != libc::S_IFDIR => return Ok(Found::Plain),
            // It may have got its name in between.
            Some(_) => opened = open(),
        }
    }
    match opened {
        Ok(descriptor) => Ok(Found::Container(descriptor)),
        Err(libc::ENOTDIR) => Ok(Found::Plain),
        Err(libc::ENOENT) => Ok(Found::Unborn),
        Err(errno) => Err(Errno(errno)),
    }
}

/// What the system says of a name.
pub(crate) fn lstat(path: &CStr) -> Option<libc::stat> {
    // SAFETY: a string that ends with a zero; all zeros is a value of this struct of numbers.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::lstat(path.as_ptr(), &mut stat) == 0).then_some(stat)
    }
}

pub(super) fn is_directory(path: &CStr) -> bool {
    lstat(path).is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn looked(opens: [Result<RawFd, i32>; 2], kind: Option<libc::mode_t>) -> Result<Found, Errno> {
        let at = Cell::new(0);
        look_at(|| opens[at.replace(1)], || kind)
    }

    #[test]
    fn what_is_in_a_place_is_told_by_the_containers_file_and_then_by_the_name() {
        let none = Err(libc::ENOENT);
        let (file, directory) = (Some(libc::S_IFREG), Some(libc::S_IFDIR));
        assert_eq!(looked([Ok(7), none], None), Ok(Found::Container(7)));
        assert_eq!(looked([Err(libc::ENOTDIR), none], None), Ok(Found::Plain));
        assert_eq!(looked([none, none], None), Ok(Found::Nothing));
        assert_eq!(looked([none, Ok(7)], directory), Ok(Found::Container(7)));
        assert_eq!(looked([none, none], directory), Ok(Found::Unborn));
        assert_eq!(looked([Err(libc::EACCES), none], None), Err(Errno(libc::EACCES)));
        // Exchanged after the first look, or after the second.
        assert_eq!(looked([none, none], file), Ok(Found::Plain));
        assert_eq!(looked([none, Err(libc::ENOTDIR)], directory), Ok(Found::Plain));
    }

    #[test]
    fn a_directory_that_lost_its_container_in_an_exchange_is_looked_at_again() {
        let generation = Generation::over(Box::leak(Box::new(AtomicU64::new(0))));
        let looks = Cell::new(0);
        let mut exchanges = Vec::new();
        let first = steady(generation, || {
            exchanges.push(generation.begin_exchange());
            exchanges.clear();
            looks.set(looks.get() + 1);
            Ok(if looks.get() == 1 { Found::Unborn } else { Found::Plain })
        });
        assert_eq!((first, looks.replace(0)), (Ok(Found::Plain), 2));
        let unborn = || {
            looks.set(looks.get() + 1);
            Ok(Found::Unborn)
        };
        assert_eq!((steady(generation, unborn), looks.replace(0)), (Ok(Found::Unborn), 1));
        // Somebody is amid an exchange for ever.
        let _exchanging = generation.begin_exchange();
        assert_eq!((steady(generation, unborn), looks.replace(0)), (Ok(Found::Unborn), LOOKS));
    }
}
