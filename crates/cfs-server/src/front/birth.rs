//! How compressed files come into being and go.
// System calls.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::time::Duration;

use pgshrink_cfs::seal::{KEY_SLOT_BYTES, KeySlot, RecordSeal};
use pgshrink_cfs::segment::NEW_FILE_NAME;
use pgshrink_cfs::slots::{Segment, SegmentKey};
use pgshrink_cfs::{Birth, Need};
use pgshrink_interpose::Errno;

use crate::file::{SegmentFolder, ServerOpener, call, open, sync_directory, unlink};
use crate::front::{Found, find, is_directory};
use crate::guard;
use crate::host::errno;
use crate::keys::Births;
use crate::names::{GUARD_NAME, PathBuffer};
use crate::process::{OpenFile, Process, with};
use crate::report::{errno_of, reported};
use crate::secrets::Kernel;
use crate::server::{Shared, is_postmaster};

/// Bytes of a path that are remembered.
const SOURCE_BYTES: usize = 1024;
/// What a new container and its directory take, and how often that is asked for: others may take it.
const BIRTH_BYTES: u64 = 64 << 10;
const ROOM_TRIES: u32 = 16;
const VERSION_FILE: &str = "PG_VERSION";

/// The file that this process opened for reading last.
struct Source {
    path: [u8; SOURCE_BYTES],
    length: usize,
}

thread_local! {
    static SOURCE: RefCell<Source> = const { RefCell::new(Source { path: [0; SOURCE_BYTES], length: 0 }) };
}

/// Remembers a file that was opened for reading: `copydir` opens each source right before it makes the copy.
pub(super) fn note_source(path: &CStr) {
    SOURCE.with_borrow_mut(|source| {
        let bytes = path.to_bytes();
        source.length = if bytes.len() <= SOURCE_BYTES { bytes.len() } else { 0 };
        let length = source.length;
        source.path[..length].copy_from_slice(&bytes[..length]);
    });
}

/// Whether a file that is made now is to be a container.
pub(super) fn is_compressed(shared: &Shared, key: &SegmentKey) -> bool {
    // Nothing but files of temporary relations is made there, and those are not ours.
    if is_postmaster()
        || shared.region.setting(key.tablespace).is_none_or(|setting| setting.compression.is_none())
    {
        return false;
    }
    // Of a program that is no server, only what must not be plain: others become containers when a server has them.
    if shared.is_tool() && !shared.region.setting(key.tablespace).is_some_and(|setting| setting.is_encrypted)
    {
        return false;
    }
    let version = shared.version();
    let own = PathBuffer::in_database(key.tablespace, key.database, version, VERSION_FILE);
    if exists(own.as_c_str()) {
        return false;
    }
    // A later segment of a plain file is plain.
    if key.segment > 0 {
        let first = PathBuffer::segment(&SegmentKey { segment: 0, ..*key }, version);
        return is_directory(first.as_c_str());
    }
    !is_copied_from_database(key, version)
}

/// Whether the process is copying a whole database into this directory, which may not have its `PG_VERSION` yet:
/// files are copied in the order in which the source's directory lists them.
fn is_copied_from_database(key: &SegmentKey, version: &[u8]) -> bool {
    SOURCE.with_borrow(|source| {
        let path = &source.path[..source.length];
        let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else { return false };
        let own = PathBuffer::segment(key, version);
        let own = own.as_c_str().to_bytes();
        let name = own.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if &path[slash + 1..] != name {
            return false;
        }
        let mut beside = [0u8; SOURCE_BYTES + VERSION_FILE.len() + 1];
        beside[..=slash].copy_from_slice(&path[..=slash]);
        beside[slash + 1..][..VERSION_FILE.len()].copy_from_slice(VERSION_FILE.as_bytes());
        CStr::from_bytes_until_nul(&beside).is_ok_and(exists)
    })
}

fn exists(path: &CStr) -> bool {
    // SAFETY: a string that ends with a zero.
    unsafe { libc::access(path.as_ptr(), libc::F_OK) == 0 }
}

/// Makes a container in the segment's place, where there is nothing or an empty directory. The place has the
/// container at once: others ask whether the file is there at the same time.
pub(super) fn create(shared: &'static Shared, key: SegmentKey, mode: libc::mode_t) -> Result<RawFd, Errno> {
    let mut tries = 0;
    loop {
        match try_create(shared, key, mode) {
            // TRUNCATE makes an empty file, and must be able to on a full filesystem.
            Err(Errno(libc::ENOSPC))
                if tries < ROOM_TRIES
                    && crate::reserve::release(shared, key.tablespace, BIRTH_BYTES, Need::Commit) =>
            {
                tries += 1;
            }
            done => return done,
        }
    }
}

fn try_create(shared: &'static Shared, key: SegmentKey, mode: libc::mode_t) -> Result<RawFd, Errno> {
    let version = shared.version();
    with(|process| {
        process.directories.hold(shared, key.tablespace)?;
        guard_before_birth(shared, key.tablespace, key.database)?;
        let making = PathBuffer::making(&key, version, std::process::id());
        let making = making.as_c_str();
        // Who may read a file may enter a directory.
        make_directory(making, mode | (mode & 0o444) >> 2 | 0o300)?;
        let id = random()?;
        let Lock { seal, slot, _births } = lock_of(shared, &key, &id).inspect_err(|_| {
            let _ = remove_directory(making);
        })?;
        let folder = SegmentFolder { key, shared, mode, made: Cell::new(None), seal: Cell::new(seal) };
        let opener = ServerOpener { shared, descriptor: None };
        let birth = Birth { id, identity: key.identity(), key: slot };
        let made = Segment::create(process.member, key, &folder, &birth, &opener, shared.options());
        let placed = made.map_err(|error| reported(&key, &error)).and_then(|segment| {
            match put_in_place(making, &key, shared) {
                Ok(()) => Ok(segment),
                Err(errno) => {
                    process.member.invalidate(&key).map_err(|error| errno_of(&error))?;
                    // Another process was quicker.
                    Err(Errno(if errno == libc::ENOTEMPTY { libc::EEXIST } else { errno }))
                }
            }
        });
        match (placed, folder.made.take()) {
            (Ok(segment), Some(descriptor)) => {
                process.keep(descriptor, OpenFile::of(segment, false));
                Ok(descriptor)
            }
            (placed, descriptor) => {
                if let Some(descriptor) = descriptor {
                    // SAFETY: made above, and nobody else has its number.
                    unsafe { libc::close(descriptor) };
                }
                let _ = remove_directory(making);
                Err(placed.err().unwrap_or(Errno(libc::EIO)))
            }
        }
    })
}

/// A new container's key, and how its root carries it.
pub(crate) struct Lock {
    pub(crate) seal: Option<Box<RecordSeal<Kernel>>>,
    pub(crate) slot: KeySlot,
    /// Until the container has its name: who changes the master key waits.
    pub(crate) _births: Option<Births>,
}

/// The key of a new container; none where the tablespace is not encrypted.
///
/// # Errors
/// EACCES where it is, and the server has no key.
pub(crate) fn lock_of(shared: &Shared, key: &SegmentKey, id: &[u8; 16]) -> Result<Lock, Errno> {
    let is_encrypted = shared.region.setting(key.tablespace).is_some_and(|setting| setting.is_encrypted);
    if !is_encrypted {
        return Ok(Lock { seal: None, slot: [0; KEY_SLOT_BYTES], _births: None });
    }
    let births = shared.region.current_key_id().map(|_| Births::share()).transpose().map_err(Errno)?;
    let Some(master) = shared.region.current_key() else {
        let why = format!("tablespace {} is encrypted, but the server has no key", key.tablespace);
        crate::report::failure(Some(key), None, &why);
        return Err(Errno(libc::EACCES));
    };
    let kernel = Kernel::new().map_err(|_| Errno(libc::EIO))?;
    let (data_key, slot) = master.new_data_key(id, &kernel);
    let seal = Some(Box::new(data_key.into_seal(master.id(), kernel)));
    Ok(Lock { seal, slot, _births: births })
}

/// Gives a container's directory the segment's name.
///
/// A power failure may leave a directory of that name in which the container has the name that it was made under: file systems
/// promise no order of the two renames. Nobody makes a container under the segment's name, so that one is nobody's.
fn put_in_place(making: &CStr, key: &SegmentKey, shared: &Shared) -> Result<(), i32> {
    let own = PathBuffer::segment(key, shared.version());
    // SAFETY: strings that end with a zero.
    let rename = || call(|| unsafe { libc::rename(making.as_ptr(), own.as_c_str().as_ptr()) }).map(drop);
    match rename() {
        Err(libc::ENOTEMPTY | libc::EEXIST) => {
            let unfinished = PathBuffer::segment(key, shared.version()).with(NEW_FILE_NAME);
            match unlink(unfinished.as_c_str()) {
                Ok(()) => rename(),
                Err(_) => Err(libc::ENOTEMPTY),
            }
        }
        done => done,
    }
}

/// Another process is making the container of an empty directory: waits until it has; its file.
pub(super) fn wait_for_other(shared: &'static Shared, key: &SegmentKey) -> Result<RawFd, Errno> {
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        match find(shared, key)? {
            Found::Container(descriptor) => return Ok(descriptor),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(Errno(libc::EIO))
}

/// Makes a directory, and removes first what a dead process of the same id has left there.
fn make_directory(path: &CStr, mode: libc::mode_t) -> Result<(), Errno> {
    // SAFETY: a string that ends with a zero.
    let make = || call(|| unsafe { libc::mkdir(path.as_ptr(), mode) }).map(drop);
    match make() {
        Err(libc::EEXIST) => {
            discard(path)?;
            make().map_err(Errno)
        }
        done => done.map_err(Errno),
    }
}

/// Removes a container's directory, with what can be in it.
pub(super) fn remove_directory(path: &CStr) -> Result<(), Errno> {
    // SAFETY: a string that ends with a zero; the descriptor is closed once.
    unsafe {
        let directory = open(path, libc::O_RDONLY | libc::O_DIRECTORY, 0).map_err(Errno)?;
        for name in [c"segment.pgshrink", c"segment.pgshrink-new", c"base.pgshrink"] {
            libc::unlinkat(directory, name.as_ptr(), 0);
        }
        libc::close(directory);
        call(|| libc::rmdir(path.as_ptr())).map(drop).map_err(Errno)
    }
}

/// Removes what has a name that is no relation's: a container's directory, or a plain file.
pub(super) fn discard(path: &CStr) -> Result<(), Errno> {
    match unlink(path) {
        Err(libc::EISDIR | libc::EPERM) => remove_directory(path),
        done => done.map_err(Errno),
    }
}

pub(crate) fn random() -> Result<[u8; 16], Errno> {
    let mut id = [0u8; 16];
    // SAFETY: a buffer of the length that is given.
    let got = unsafe { libc::getrandom(id.as_mut_ptr().cast(), id.len(), 0) };
    if got == id.len() as isize { Ok(id) } else { Err(Errno(errno())) }
}

/// Sees to it that a server without the library cannot copy the database's directory, and that copies of it are known.
fn guard(shared: &Shared, tablespace: u32, database: u32) -> Result<(), Errno> {
    let path = PathBuffer::in_database(tablespace, database, shared.version(), GUARD_NAME);
    let making = PathBuffer::making_guard(tablespace, database, shared.version(), std::process::id());
    let made = guard::make(path.as_c_str(), making.as_c_str(), shared.region.waits_for_disk());
    made.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// The same, and both its content and its name are durable where the server waits for the disk.
pub(super) fn guard_durably(shared: &Shared, tablespace: u32, database: u32) -> Result<(), Errno> {
    guard(shared, tablespace, database)?;
    if shared.region.waits_for_disk() {
        let directory = PathBuffer::database(tablespace, database, shared.version());
        sync_directory(directory.as_c_str()).map_err(Errno)?;
    }
    Ok(())
}

/// The same, and all processes know from now on that the directory may have containers.
pub(crate) fn enter(shared: &Shared, tablespace: u32, database: u32) -> Result<(), Errno> {
    guard_durably(shared, tablespace, database)?;
    shared.note_directory(tablespace, database);
    Ok(())
}

/// Before each container of the directory: its guard is durable by the first one, whichever process makes it. A filesystem
/// that keeps names one by one may lose the guard's with the power, and have the container's.
fn guard_before_birth(shared: &Shared, tablespace: u32, database: u32) -> Result<(), Errno> {
    match shared.region.noted().has_entry(tablespace, database) || !shared.region.waits_for_disk() {
        true => guard(shared, tablespace, database),
        false => enter(shared, tablespace, database),
    }
}

/// Removes a segment's container and its directory, whatever state they are in: the name first, at once. If the name was
/// exchanged for a plain file meanwhile, that goes.
pub(super) fn remove(shared: &'static Shared, key: &SegmentKey) -> Result<(), Errno> {
    let version = shared.version();
    let own = PathBuffer::segment(key, version);
    let removing = PathBuffer::removing(key, version, std::process::id());
    let removing = removing.as_c_str();
    // SAFETY: strings that end with a zero.
    let rename = || call(|| unsafe { libc::rename(own.as_c_str().as_ptr(), removing.as_ptr()) }).map(drop);
    match rename() {
        // Left by a dead process of the same id.
        Err(libc::ENOTEMPTY | libc::EEXIST | libc::ENOTDIR | libc::EISDIR) => {
            discard(removing)?;
            rename().map_err(Errno)?;
        }
        done => done.map_err(Errno)?,
    }
    // The postmaster removes files before the region is made anew.
    if !is_postmaster() {
        with(|process| process.member.invalidate(key).map(drop).map_err(|error| errno_of(&error)))?;
    }
    // The name has gone: what is left is found by who removes the directory above.
    let _ = discard(removing);
    Ok(())
}

/// Empties a container that cannot be opened: the server is dropping the relation. What is left is an empty file.
pub(super) fn empty(process: &mut Process, key: &SegmentKey, descriptor: RawFd) -> Result<(), Errno> {
    let shared = process.shared;
    // SAFETY: takes numbers.
    call(|| unsafe { libc::ftruncate(descriptor, 0) }).map_err(Errno)?;
    let path = PathBuffer::container(key, shared.version());
    unlink(path.as_c_str()).map_err(Errno)?;
    process.member.invalidate(key).map(drop).map_err(|error| errno_of(&error))
}
