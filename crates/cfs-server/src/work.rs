//! What workers and reporting functions do with segments: sizes, collection, commits, memory that nobody uses.
//!
//! Calls of these may allocate and wait for the disk, so they are for processes that can raise an error
//! afterwards: never from a hook.
// A descriptor that is closed.
#![allow(unsafe_code)]

use pgshrink_cfs::seal::{KeyId, KeySlot};
use pgshrink_cfs::segment::clear;
use pgshrink_cfs::slots::{Access, SegmentKey};
use pgshrink_cfs::{Budget, Collected, DeviceError, Error, Stats};
use pgshrink_interpose::Errno;

use crate::error::Problem;
use crate::file::{SegmentFile, ServerOpener, stat_of};
use crate::front::{Found, find, is_of_the_file, lstat};
use crate::names::{BASE_NAME, PathBuffer};
use crate::process::{OpenFile, Process, Using, peeked_pages, with};
use crate::server::shared;

/// Bytes that are written to a file before the kernel is asked to write them to the disk: as many as the server
/// writes between two such requests (`checkpoint_flush_after`).
pub(crate) const WRITEBACK_BYTES: u64 = 256 << 10;

/// What a segment's file is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Form {
    /// A file of the server.
    Plain,
    /// A container that could be looked into.
    Container {
        /// What it has done since it was opened, and what is in it.
        stats: Stats,
        /// Dictionaries that its pages may need.
        dictionaries: u32,
    },
    /// A container that does not open; its size is what its roots show. The server's log says why.
    Unreadable,
}

/// A segment on the disk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SegmentInfo {
    /// Bytes that a reader finds.
    pub virtual_bytes: u64,
    /// Bytes that the filesystem has allocated.
    pub disk_bytes: u64,
    /// What it is.
    pub form: Form,
    /// The master key that it needs, if it is encrypted.
    pub key_id: Option<KeyId>,
}

/// What there is of a segment; `None` where there is no such file. Opens a container for reading, which writes
/// nothing.
///
/// # Errors
/// [`Problem::NotStarted`]; [`Problem::System`] where the system does not say.
pub fn info(key: &SegmentKey) -> Result<Option<SegmentInfo>, Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    let found = match find(shared, key) {
        Err(Errno(errno)) if is_of_the_file(errno) => {
            let form = Form::Unreadable;
            return Ok(Some(SegmentInfo { virtual_bytes: 0, disk_bytes: 0, form, key_id: None }));
        }
        found => found.map_err(|Errno(errno)| Problem::System { call: "open", errno })?,
    };
    let own = PathBuffer::segment(key, shared.version());
    let descriptor = match found {
        Found::Container(descriptor) => descriptor,
        Found::Unborn => {
            let form = Form::Plain;
            return Ok(Some(SegmentInfo { virtual_bytes: 0, disk_bytes: 0, form, key_id: None }));
        }
        Found::Nothing | Found::Plain => {
            return Ok(lstat(own.as_c_str()).map(|stat| SegmentInfo {
                virtual_bytes: stat.st_size as u64,
                disk_bytes: stat.st_blocks as u64 * 512,
                form: Form::Plain,
                key_id: None,
            }));
        }
    };
    let stat = stat_of(descriptor);
    let file = SegmentFile::borrowed(descriptor, *key, shared);
    let peeked = peeked_pages(&file, key);
    let key_id = clear(&file).map(|root| root.key_id).filter(|id| *id != [0; 16]);
    // SAFETY: opened by `find` for this alone.
    unsafe { libc::close(descriptor) };
    let stat = stat.map_err(|errno| Problem::System { call: "fstat", errno })?;
    let looked = using(key, shared.reading(), |pinned| {
        let dictionaries = pinned.dictionary_ids()?.len() as u32;
        Ok((pinned.page_count()?, Form::Container { stats: pinned.stats(), dictionaries }))
    });
    let (pages, form) = looked.unwrap_or((peeked, Form::Unreadable));
    // The plain file beside it, while pages move.
    let base = lstat(own.with(BASE_NAME).as_c_str()).map_or(0, |stat| stat.st_blocks as u64);
    let (virtual_bytes, disk_bytes) = (u64::from(pages) * 8192, (stat.st_blocks as u64 + base) * 512);
    Ok(Some(SegmentInfo { virtual_bytes, disk_bytes, form, key_id }))
}

/// Runs an operation on a segment, which is opened by name if need be.
fn using<T>(
    key: &SegmentKey,
    access: Access,
    operation: impl FnOnce(&Using<'_>) -> Result<T, Error>,
) -> Result<T, Problem> {
    let mut done = Err(Error::SegmentGone { key: *key });
    let entered = with(|process: &mut Process| {
        let opener = ServerOpener { shared: process.shared, descriptor: None };
        done = OpenFile::new(process.member, *key, access == Access::Read)
            .and_then(|mut file| operation(&file.pin(access, &opener)?));
        Ok(())
    });
    match entered {
        Ok(()) => Ok(done?),
        Err(Errno(errno)) => Err(Problem::System { call: "joining the server's shared memory", errno }),
    }
}

fn cannot_join(errno: i32) -> Error {
    let operation = "joining the server's shared memory";
    Error::Device { operation, offset: 0, length: 0, source: DeviceError::Io(errno) }
}

/// As [`using`], for who tells the engine's errors apart.
pub(crate) fn using_engine<T>(
    key: &SegmentKey,
    access: Access,
    operation: impl FnOnce(&Using<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    match using(key, access, operation) {
        Ok(done) => Ok(done),
        Err(Problem::Engine(error)) => Err(error),
        Err(Problem::System { errno, .. }) => Err(cannot_join(errno)),
        Err(_) => Err(cannot_join(libc::EIO)),
    }
}

/// Segments that are open and were opened for writing: those that may have garbage. About: others go on
/// meanwhile.
pub fn written_segments() -> Vec<SegmentKey> {
    let found = with(|process| {
        let keys = process.member.open_segments(false).unwrap_or_default();
        let is_written = |key: &SegmentKey| {
            process.member.look(key).is_ok_and(|look| look.is_some_and(|look| look.is_writable))
        };
        Ok(keys.into_iter().filter(is_written).collect())
    });
    found.unwrap_or_default()
}

/// Moves some of a segment's live records out of mostly dead extents ([`pgshrink_cfs::Container::collect`]), or out of
/// all that are not full, for a segment that rests. `None`: there is no such container.
///
/// # Errors
/// As of the container, which the caller may skip: nothing is lost by garbage that stays.
pub fn collect(key: &SegmentKey, budget: Budget, rests: bool) -> Result<Option<Collected>, Problem> {
    absent_is_none(using(key, Access::Write, |pinned| match rests {
        true => pinned.collect_tightly(budget),
        false => pinned.collect(budget),
    }))
}

/// Gives all of a segment's free space back to the filesystem, and keeps none for the next writes: of one that nobody writes to
/// ([`pgshrink_cfs::Container::leave_run`], [`pgshrink_cfs::Container::give_back`]).
///
/// # Errors
/// As of the container.
pub fn give_back(key: &SegmentKey) -> Result<Option<u64>, Problem> {
    absent_is_none(using(key, Access::Write, |pinned| {
        pinned.leave_run();
        pinned.give_back()
    }))
}

/// Bytes that were written to a segment since it was opened: for who looks whether it is still written to.
///
/// # Errors
/// As of the container.
pub fn written_bytes(key: &SegmentKey) -> Result<Option<u64>, Problem> {
    absent_is_none(using(key, Access::Write, |pinned| Ok(pinned.stats().written_bytes)))
}

/// Has the kernel begin to write what a commit would wait for ([`pgshrink_cfs::Container::begin_writeback`]), where
/// that is at least `bytes`; whether it did.
///
/// # Errors
/// As of the container.
pub fn begin_writeback(key: &SegmentKey, bytes: u64) -> Result<bool, Problem> {
    let begun = absent_is_none(using(key, Access::Write, |pinned| pinned.begin_writeback(bytes)));
    Ok(begun?.unwrap_or(false))
}

/// Makes durable what was written to a segment, and gives back space that waited for that.
///
/// # Errors
/// As of [`pgshrink_cfs::Container::commit`].
pub fn commit(key: &SegmentKey) -> Result<Option<()>, Problem> {
    absent_is_none(using(key, Access::Write, |pinned| pinned.commit().map(drop)))
}

/// Gives the memory of idle parts of a segment's map back; returns how many 4 KB leaves.
///
/// # Errors
/// As of the container.
pub fn unload_idle(key: &SegmentKey) -> Result<Option<u32>, Problem> {
    absent_is_none(using(key, Access::Read, |pinned| pinned.unload_idle()))
}

/// Gives an encrypted container's data key another wrap, durably, so that no root of its ring carries the old one.
/// `None`: the container is not there, or is another one than that of this id by now.
///
/// # Errors
/// As of the container.
pub(crate) fn rekey(
    key: &SegmentKey,
    id: &[u8; 16],
    key_id: KeyId,
    slot: KeySlot,
) -> Result<Option<()>, Problem> {
    let rekeyed = using(key, Access::Write, |pinned| {
        if pinned.id() != *id {
            return Ok(None);
        }
        // Each writes two of the three roots.
        pinned.rekey(key_id, slot)?;
        pinned.rekey(key_id, slot)?;
        Ok(Some(()))
    });
    absent_is_none(rekeyed).map(Option::flatten)
}

pub(crate) fn absent_is_none<T>(done: Result<T, Problem>) -> Result<Option<T>, Problem> {
    use pgshrink_cfs::DeviceError::NotFound;
    match done {
        Err(Problem::Engine(
            Error::SegmentGone { .. } | Error::Device { operation: "open", source: NotFound, .. },
        )) => Ok(None),
        done => done.map(Some),
    }
}

/// Closes segments that were not used for longest until `keep` are open; returns how many were closed.
///
/// # Errors
/// As of the region.
pub fn close_idle(keep: u32) -> Result<u32, Problem> {
    let mut done = Ok(0);
    let entered = with(|process| {
        let opener = ServerOpener { shared: process.shared, descriptor: None };
        done = process.member.close_idle(keep, &opener);
        Ok(())
    });
    entered.map_err(|Errno(errno)| Problem::System { call: "joining the server's shared memory", errno })?;
    Ok(done?)
}
