//! What the hooks ask: paths and descriptors of compressed files.
// Pages of the server's memory come as addresses.
#![allow(unsafe_code)]

mod ahead;
mod birth;
mod directory;
mod place;
mod plain;
pub(crate) mod sync;

pub(crate) use ahead::Ahead;
pub(crate) use birth::{enter, lock_of, random};
pub(crate) use directory::{Sweep, sweep};
pub(crate) use place::{Found, find, lstat};
use place::{LOOKS, is_directory, named, relation};

use std::ffi::CStr;
use std::os::fd::RawFd;

use pgshrink_cfs::base::BASE_SIZE;
use pgshrink_cfs::page::{Policy, TransformPolicy};
use pgshrink_cfs::slots::{Access, SegmentKey};
use pgshrink_cfs::store::{Error as StoreError, Pages, StoreName, StoredAs, Writing};
use pgshrink_cfs::{Error, FileRange, Workspace};
use pgshrink_codec::Algorithm;
use pgshrink_interpose::{
    Advice, Attributes, Errno, Front, Listed, Moment, Outcome, PAGE_BYTES, Page, PagesToRead, PagesToWrite,
};

use crate::convert;
use crate::file::{SegmentFile, ServerOpener, stat_of};
use crate::names::{PathBuffer, may_be_relation, parse_form};
use crate::process::{OpenFile, PlainFile, Process, is_of, peeked_pages, pin, with};
use crate::report::{errno_of, errno_of_page, failure, reported};
use crate::server::{Shared, is_postmaster, shared};
use crate::setting::DEFAULT;

/// Pages at most that are read at once: 1 MB, the server's longest vectored call.
const BATCH: usize = 128;

/// The files of this server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerFront;

/// Whether a directory without a container is no trace of a process that died. The log tells of every relation that is
/// made: redo ends what a crash has left, so that later on nothing refers to a first segment that has no file. Forks
/// and later segments are made without a record.
fn is_lost(shared: &Shared, key: &SegmentKey) -> bool {
    key.fork == 0 && key.segment == 0 && !shared.is_redo() && !shared.is_recovering()
}

/// Whether an error to open a container's file is that file's, and another one may be opened.
pub(crate) fn is_of_the_file(errno: i32) -> bool {
    !matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM)
}

/// Takes a container's file, just opened, for one that the server has open.
fn keep(key: SegmentKey, descriptor: RawFd, is_read_only: bool) -> Result<RawFd, Errno> {
    with(|process| {
        let owned = Owned(descriptor);
        process.directories.hold(process.shared, key.tablespace)?;
        let file = OpenFile::new(process.member, key, is_read_only).map_err(|error| errno_of(&error))?;
        std::mem::forget(owned);
        process.keep(descriptor, file);
        Ok(descriptor)
    })
}

/// A descriptor that is closed when nobody has taken it.
struct Owned(RawFd);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: opened for this alone.
        unsafe { libc::close(self.0) };
    }
}

/// Bytes of a segment: from memory where it is open, else from its file's roots.
fn bytes_of(shared: &'static Shared, key: &SegmentKey, descriptor: RawFd) -> u64 {
    let known = if is_postmaster() { None } else { with(|process| look(process, key)).ok().flatten() };
    let file = SegmentFile::borrowed(descriptor, *key, shared);
    let pages = match known {
        // Of another segment's container in this one's place the slot has the pages of that one.
        Some(0) => u32::from(!is_of(&file, key)),
        Some(pages) => pages,
        None => peeked_pages(&file, key),
    };
    u64::from(pages) * PAGE_BYTES as u64
}

fn look(process: &mut Process, key: &SegmentKey) -> Result<Option<u32>, Errno> {
    let shared = process.shared;
    if shared.region.rolls_forward() {
        // Its roots may be older than its pages.
        let opener = ServerOpener { shared, descriptor: None };
        let opened = OpenFile::new(process.member, *key, true);
        return Ok(opened.and_then(|mut file| file.pin(shared.reading(), &opener)?.page_count()).ok());
    }
    let look = process.member.look(key).map_err(|error| errno_of(&error))?;
    Ok(look.and_then(|look| look.pages))
}

/// Whether the handle's file was removed, or has become another form of the segment. Where no file ever became plain
/// again, a container that is missing or another one is an error.
pub(crate) fn is_gone(error: &Error) -> bool {
    let may_have_returned = || shared().is_some_and(|shared| shared.region.has_returned());
    match error {
        Error::SegmentGone { .. } => true,
        Error::OtherContainer { .. } => may_have_returned(),
        error => sync::is_absent(error) && may_have_returned(),
    }
}

impl Front for ServerFront {
    fn moment(&self, path: &CStr) -> Option<Moment> {
        may_be_relation(path.to_bytes()).then(|| Some(Moment(shared()?.generation()))).flatten()
    }

    fn is_still(&self, Moment(generation): Moment) -> bool {
        shared().is_none_or(|shared| shared.is_still(generation))
    }

    fn may_manage(&self, path: &CStr) -> bool {
        relation(path).is_some()
    }

    fn open(&self, path: &CStr, flags: i32, mode: libc::mode_t) -> Outcome<RawFd> {
        let is_read_only = flags & libc::O_ACCMODE == libc::O_RDONLY;
        // A container beside a `PG_VERSION` is copied as a plain file is.
        if is_read_only {
            birth::note_source(path);
        }
        let Some((shared, key)) = relation(path) else {
            if !is_read_only
                && Shared::is_control_file(path.to_bytes())
                && shared().is_some_and(Shared::is_checkpointer)
            {
                return with(sync::end_of_checkpoint).err().map(Err);
            }
            return None;
        };
        let found = match find(shared, &key) {
            Ok(found) => found,
            Err(errno) => return Some(Err(errno)),
        };
        let opened = match found {
            Found::Nothing | Found::Plain => {
                let is_made = matches!(found, Found::Nothing) && flags & libc::O_CREAT != 0;
                if !is_made || !birth::is_compressed(shared, &key) {
                    return None;
                }
                birth::create(shared, key, mode)
            }
            _ if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 => {
                if let Found::Container(descriptor) = found {
                    drop(Owned(descriptor));
                }
                Err(Errno(libc::EEXIST))
            }
            Found::Container(descriptor) => keep(key, descriptor, is_read_only),
            Found::Unborn if flags & libc::O_CREAT == 0 && is_lost(shared, &key) => {
                failure(Some(&key), None, &"the container's file is missing from its directory");
                Err(Errno(libc::ENOENT))
            }
            Found::Unborn => match birth::create(shared, key, 0o600) {
                Err(Errno(libc::EEXIST)) => birth::wait_for_other(shared, &key)
                    .and_then(|descriptor| keep(key, descriptor, is_read_only)),
                made => made,
            },
        };
        Some(opened.and_then(|descriptor| {
            if flags & libc::O_TRUNC != 0 {
                self.truncate(descriptor, 0)?;
            }
            Ok(descriptor)
        }))
    }

    fn attributes(&self, path: &CStr) -> Outcome<Attributes> {
        let (shared, key) = relation(path)?;
        match find(shared, &key) {
            Err(errno) => Some(Err(errno)),
            Ok(Found::Nothing | Found::Plain) => None,
            Ok(Found::Unborn) => {
                let path = PathBuffer::segment(&key, shared.version());
                lstat(path.as_c_str()).map(|stat| Ok(Attributes { stat, size: 0 }))
            }
            Ok(Found::Container(descriptor)) => {
                let owned = Owned(descriptor);
                let size = bytes_of(shared, &key, owned.0);
                Some(stat_of(owned.0).map(|stat| Attributes { stat, size }).map_err(Errno))
            }
        }
    }

    fn access(&self, path: &CStr, mode: i32) -> Outcome<()> {
        let (shared, key) = relation(path)?;
        let own = PathBuffer::segment(&key, shared.version());
        if !is_directory(own.as_c_str()) {
            return None;
        }
        // A relation's file is never executed; to read and write is what its owner may.
        Some(if mode & libc::X_OK != 0 { Err(Errno(libc::EACCES)) } else { Ok(()) })
    }

    fn truncate_path(&self, path: &CStr, size: u64) -> Outcome<()> {
        let (shared, key) = relation(path)?;
        let mut looks = 1;
        loop {
            match truncate_found(shared, key, size)? {
                Err(EXCHANGED) if looks < LOOKS => looks += 1,
                done => return Some(done),
            }
        }
    }

    fn unlink(&self, path: &CStr) -> Outcome<()> {
        let (shared, key) = relation(path)?;
        match find(shared, &key) {
            // It need not be opened to be removed.
            Err(Errno(errno)) if is_of_the_file(errno) => {}
            Err(errno) => return Some(Err(errno)),
            Ok(Found::Nothing | Found::Plain) => return None,
            Ok(Found::Unborn) => {}
            Ok(Found::Container(descriptor)) => drop(Owned(descriptor)),
        }
        Some(birth::remove(shared, &key))
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Outcome<()> {
        for path in [from, to] {
            if let Some((shared, key)) = relation(path)
                && is_directory(PathBuffer::segment(&key, shared.version()).as_c_str())
            {
                return Some(Err(Errno(libc::EPERM)));
            }
        }
        None
    }

    fn link(&self, from: &CStr, to: &CStr) -> Outcome<()> {
        self.rename(from, to)
    }

    fn remove_directory(&self, path: &CStr) -> Outcome<()> {
        let (shared, named) = named(path)?;
        directory::remove(shared, named)
    }

    fn open_directory(&self, path: &CStr) -> Option<u64> {
        // By its form alone: the directory may have its first container while it is listed.
        let shared = shared()?;
        directory::number(parse_form(path.to_bytes(), shared.version(), shared.data_directory())?)
    }

    fn listed(&self, directory: u64, name: &CStr, kind: u8) -> Listed {
        directory::listed(directory, name, kind)
    }

    fn close(&self, descriptor: RawFd) {
        let _ = with(|process| {
            process.drop_file(descriptor);
            Ok(())
        });
    }

    fn pages(&self, descriptor: RawFd) -> Result<u32, Errno> {
        on_file(descriptor, |process| pages_of(process, descriptor), plain::pages, 0)
    }

    fn read(&self, descriptor: RawFd, first: u32, pages: &mut PagesToRead<'_>) -> Result<u32, Errno> {
        // Nothing of the buffers is used before it is known which of the two it is.
        let pages = std::cell::RefCell::new(pages);
        let from_container =
            |process: &mut Process| read_all(process, descriptor, first, &mut pages.borrow_mut());
        on_file(descriptor, from_container, |plain| plain::read(plain, first, &mut pages.borrow_mut()), 0)
    }

    fn write(&self, descriptor: RawFd, first: u32, pages: &mut PagesToWrite<'_>) -> Result<u32, Errno> {
        let pages = std::cell::RefCell::new(pages);
        let to_container =
            |process: &mut Process| write_all(process, descriptor, first, &mut pages.borrow_mut());
        let gone = Err(Errno(libc::EIO));
        on_file_or(
            descriptor,
            to_container,
            |plain| plain::write(plain, first, &mut pages.borrow_mut()),
            gone,
        )
    }

    fn extend(&self, descriptor: RawFd, pages: u32) -> Result<(), Errno> {
        let in_container = |process: &mut Process| {
            admit(process, descriptor, pages)?;
            change(process, descriptor, |pinned| pinned.extend(pages))
        };
        on_file_or(descriptor, in_container, |plain| plain::extend(plain, pages), Err(Errno(libc::EIO)))
    }

    fn truncate(&self, descriptor: RawFd, pages: u32) -> Result<(), Errno> {
        let in_container = |process: &mut Process| {
            admit(process, descriptor, pages)?;
            change(process, descriptor, |pinned| match pages > pinned.page_count()? {
                true => pinned.extend(pages),
                false => pinned.truncate(pages),
            })
        };
        on_file_or(descriptor, in_container, |plain| plain::truncate(plain, pages), Err(Errno(libc::EIO)))
    }

    fn sync(&self, descriptor: RawFd) -> Result<(), Errno> {
        on_file(descriptor, |process| sync::sync(process, descriptor), plain::sync, ())
    }

    fn advise(&self, descriptor: RawFd, first: u32, pages: u32, advice: Advice) {
        let in_container = |process: &mut Process| {
            let shared = process.shared;
            let file = process.file(descriptor)?;
            let OpenFile { segment, ahead, .. } = file;
            let Ok(pinned) = pin(segment, shared.reading(), &opener(shared, descriptor)) else {
                return Ok(());
            };
            if advice == Advice::WriteBack {
                // Its records lie together, wherever its pages do. What fails is said by the fsync that follows.
                let _ = pinned.begin_writeback(crate::work::WRITEBACK_BYTES);
                return Ok(());
            }
            pinned.locations(first, pages, |record| {
                let Some(FileRange { offset, length }) = ahead.take(record) else { return };
                // SAFETY: takes numbers.
                unsafe {
                    libc::posix_fadvise(descriptor, offset as i64, length as i64, libc::POSIX_FADV_WILLNEED)
                };
            });
            Ok(())
        };
        let _ = on_file(descriptor, in_container, |_| Ok(()), ());
    }

    fn descriptor_attributes(&self, descriptor: RawFd) -> Result<Attributes, Errno> {
        let stat = stat_of(descriptor).map_err(Errno)?;
        Ok(Attributes { stat, size: u64::from(self.pages(descriptor)?) * PAGE_BYTES as u64 })
    }
}

/// What an open by name gives when the container had its name a moment ago, and a plain file has it now.
const EXCHANGED: Errno = Errno(libc::ENOTDIR);

/// Cuts what is in a segment's place, or fails with [`EXCHANGED`].
fn truncate_found(shared: &'static Shared, key: SegmentKey, size: u64) -> Outcome<()> {
    let descriptor = match find(shared, &key) {
        // The server is dropping the relation, and its file goes with its name.
        Err(Errno(errno)) if size == 0 && is_of_the_file(errno) => return Some(Ok(())),
        Err(errno) => return Some(Err(errno)),
        Ok(Found::Nothing | Found::Plain) => return None,
        Ok(Found::Unborn) => return Some(Ok(())),
        Ok(Found::Container(descriptor)) => Owned(descriptor),
    };
    Some(with(|process| {
        let opener = ServerOpener { shared, descriptor: None };
        let mut file = OpenFile::new(process.member, key, false).map_err(|e| errno_of(&e))?;
        let cut = file.pin(Access::Write, &opener).and_then(|pinned| {
            pinned.truncate(size.div_ceil(PAGE_BYTES as u64) as u32)?;
            // The server wants the space now: it has dropped the relation.
            pinned.commit()?;
            if size == 0 { pinned.drop_base() } else { Ok(()) }
        });
        match cut {
            // Another file had the name a moment later.
            Err(error) if sync::is_absent(&error) || matches!(error, Error::OtherContainer { .. }) => {
                Err(EXCHANGED)
            }
            Err(error) if is_gone(&error) => Ok(()),
            // A damaged container has to be dropped as well. Its file goes with its name.
            Err(error) if size == 0 => {
                reported(&key, &error);
                drop(file);
                birth::empty(process, &key, descriptor.0)
            }
            done => done.map_err(|error| reported(&key, &error)),
        }
    }))
}

fn opener(shared: &'static Shared, descriptor: RawFd) -> ServerOpener {
    ServerOpener { shared, descriptor: Some(descriptor) }
}

/// Files may grow to so many pages whatever there is, and draw on the reserve: TRUNCATE makes new ones.
const SMALL_PAGES: u32 = 8;

/// Before a file may grow to `end` pages: whether there is space for that. One that does not grow needs none.
fn admit(process: &mut Process, descriptor: RawFd, end: u32) -> Result<(), Errno> {
    let shared = process.shared;
    let file = process.file(descriptor)?;
    let tablespace = file.key().tablespace;
    // What cannot be opened is reported by who goes on.
    let pages = file
        .pin(shared.reading(), &opener(shared, descriptor))
        .and_then(|pinned| pinned.page_count())
        .unwrap_or(end);
    match end.checked_sub(pages) {
        None | Some(0) => Ok(()),
        _ if end <= SMALL_PAGES => Ok(()),
        Some(more) => process.admit_growth(tablespace, more),
    }
}

/// How pages of a segment are written now, but for the dictionary.
pub(crate) fn writing(shared: &Shared, key: &SegmentKey, policy: u32) -> Writing {
    if let Some(choice) = convert::choice_of(policy) {
        return Writing {
            policy: Policy { choice, ..Policy::default() },
            verify: true,
            ..Writing::default()
        };
    }
    // A container whose tablespace is plain by now goes on with what compresses at no cost worth mentioning. One of
    // a tablespace that never had a setting was made on its own.
    let setting = shared.region.setting(key.tablespace);
    let choice = setting.map_or(Some(DEFAULT), |setting| setting.compression);
    let policy = Policy { choice: choice.unwrap_or(Algorithm::None.into()), ..Policy::default() };
    // What cannot be read back must not be published: there is no other copy.
    Writing { policy, verify: true, ..Writing::default() }
}

/// Writes a page, less well if need be.
fn write_page(
    (pinned, name): (&crate::process::Using<'_>, StoreName),
    (key, block): (&SegmentKey, u32),
    page: &Page,
    how: &Writing,
    workspace: &mut Workspace,
) -> Result<StoredAs, StoreError> {
    let store = Pages::over(pinned, name);
    match store.write(block, page, how, workspace) {
        Err(error @ StoreError::NotVerified { .. }) => {
            // A mistake of the codec: the page is stored as it is.
            failure(Some(key), Some(block), &error);
            store.write(block, page, &as_it_is(), workspace)
        }
        Err(StoreError::Budget { .. } | StoreError::Dictionary { .. }) if how.dictionary.is_some() => {
            store.write(block, page, &Writing { dictionary: None, ..*how }, workspace)
        }
        done => done,
    }
}

fn has_room(process: &mut Process, descriptor: RawFd) -> bool {
    let tablespace = process.file(descriptor).map(|file| file.key().tablespace);
    tablespace.is_ok_and(|tablespace| process.has_room(tablespace))
}

/// How pages are written while everybody waits for recovery: in less than half of the time, to twice the size and
/// more. [`crate::training`] stores them anew.
fn brief() -> Writing {
    let policy = Policy { choice: BRIEF.into(), transform: TransformPolicy::Off };
    Writing { policy, verify: true, ..Writing::default() }
}

/// The algorithm of [`brief`].
pub(crate) const BRIEF: Algorithm = Algorithm::Lz4;

/// Not compressed.
fn as_it_is() -> Writing {
    let policy = Policy { choice: Algorithm::None.into(), transform: TransformPolicy::Off };
    Writing { policy, verify: true, ..Writing::default() }
}

fn name_of(
    name: &mut Option<StoreName>,
    pinned: &crate::process::Using<'_>,
    key: &SegmentKey,
) -> Result<StoreName, Errno> {
    if let Some(name) = name {
        return Ok(*name);
    }
    let made = StoreName::of(pinned).map_err(|error| {
        failure(Some(key), None, &error);
        errno_of_page(&error)
    })?;
    *name = Some(made);
    Ok(made)
}

fn change(
    process: &mut Process,
    descriptor: RawFd,
    operation: impl FnOnce(&crate::process::Using<'_>) -> Result<(), Error>,
) -> Result<(), Errno> {
    let shared = process.shared;
    let file = process.file(descriptor)?;
    let key = file.key();
    match file.pin(Access::Write, &opener(shared, descriptor)) {
        Err(error) if is_gone(&error) => Err(GONE),
        pinned => pinned.and_then(|pinned| operation(&pinned)).map_err(|error| reported(&key, &error)),
    }
}

/// What an operation on a container ends with that is no more: removed, or a plain file again. No error of libc.
pub(crate) const GONE: Errno = Errno(i32::MIN);

/// Does something to an open file: to its container, or to the plain file that it has become meanwhile. `removed`: what
/// it comes to where there is neither any more.
fn on_file<T>(
    descriptor: RawFd,
    container: impl Fn(&mut Process) -> Result<T, Errno>,
    plain: impl Fn(RawFd) -> Result<T, Errno>,
    removed: T,
) -> Result<T, Errno> {
    on_file_or(descriptor, container, plain, Ok(removed))
}

fn on_file_or<T>(
    descriptor: RawFd,
    container: impl Fn(&mut Process) -> Result<T, Errno>,
    plain: impl Fn(RawFd) -> Result<T, Errno>,
    removed: Result<T, Errno>,
) -> Result<T, Errno> {
    with(|process| {
        if let Some(PlainFile(file)) = &process.file(descriptor)?.plain {
            return plain(*file);
        }
        match container(process) {
            Err(GONE) => {}
            done => return done,
        }
        match plain::take_up(process, descriptor)? {
            plain::Now::Plain(file) => plain(file),
            // It was made a container again.
            plain::Now::Container => match container(process) {
                Err(GONE) => removed,
                done => done,
            },
            plain::Now::Removed => removed,
        }
    })
}

fn pages_of(process: &mut Process, descriptor: RawFd) -> Result<u32, Errno> {
    let shared = process.shared;
    let file = process.file(descriptor)?;
    let key = file.key();
    match file.pin(shared.reading(), &opener(shared, descriptor)).and_then(|pinned| pinned.page_count()) {
        Err(error) if is_gone(&error) => Err(GONE),
        // The base does not say its size: a wrong one would be worse than none.
        Err(error @ Error::Device { operation: BASE_SIZE, .. }) => Err(reported(&key, &error)),
        // One that does not open has a size all the same: it can be dropped, and its pages fail, one at
        // least.
        Err(error) => {
            reported(&key, &error);
            let file = SegmentFile::borrowed(descriptor, key, shared);
            Ok(peeked_pages(&file, &key).max(1))
        }
        Ok(pages) => Ok(pages),
    }
}

fn read_all(
    process: &mut Process,
    descriptor: RawFd,
    first: u32,
    pages: &mut PagesToRead<'_>,
) -> Result<u32, Errno> {
    let mut done = 0;
    while pages.len() > 0 {
        let batch = pages.len().min(BATCH);
        match read_batch(process, descriptor, first + done, pages) {
            Ok(got) => {
                done += got;
                if (got as usize) < batch {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

fn write_all(
    process: &mut Process,
    descriptor: RawFd,
    first: u32,
    pages: &mut PagesToWrite<'_>,
) -> Result<u32, Errno> {
    let shared = process.shared;
    process.checkpoints.end_cycle();
    let end = first.saturating_add(pages.len() as u32);
    admit(process, descriptor, end)?;
    let is_brief = shared.is_recovering() && has_room(process, descriptor);
    let Process { files, workspace, page, .. } = process;
    let file = files.get_mut(descriptor as usize).and_then(Option::as_deref_mut);
    let file = file.ok_or(Errno(libc::EBADF))?;
    let key = file.key();
    let OpenFile { segment, name, .. } = file;
    let pinned = match pin(segment, Access::Write, &opener(shared, descriptor)) {
        Err(error) if is_gone(&error) => return Err(GONE),
        pinned => pinned.map_err(|error| reported(&key, &error))?,
    };
    let name = name_of(name, &pinned, &key)?;
    let mut how = writing(shared, &key, pinned.policy());
    if is_brief && how.policy.choice.algorithm != Algorithm::None {
        how = brief();
    } else {
        how.dictionary = Pages::over(&pinned, name).ready_dictionary(&how, workspace);
    }
    let mut done = 0;
    for address in pages {
        // SAFETY: a page of the caller's, valid for reads. Others may set bits in it meanwhile, so it is
        // copied by volatile loads' equal, one copy, and only the copy is looked at.
        unsafe { std::ptr::copy_nonoverlapping(address, &raw mut **page, 1) };
        match write_page((&pinned, name), (&key, first + done), page, &how, workspace) {
            Ok(_) => done += 1,
            Err(_) if done > 0 => break,
            Err(error) => {
                let errno = errno_of_page(&error);
                if errno.0 != libc::ENOSPC {
                    failure(Some(&key), Some(first + done), &error);
                }
                return Err(errno);
            }
        }
    }
    Ok(done)
}

/// Reads at most [`BATCH`] pages.
fn read_batch(
    process: &mut Process,
    descriptor: RawFd,
    first: u32,
    pages: &mut PagesToRead<'_>,
) -> Result<u32, Errno> {
    let shared = process.shared;
    let Process { files, workspace, .. } = process;
    let file = files.get_mut(descriptor as usize).and_then(Option::as_deref_mut);
    let file = file.ok_or(Errno(libc::EBADF))?;
    let key = file.key();
    let OpenFile { segment, name, is_read_only, .. } = file;
    let pinned = match pin(segment, shared.reading(), &opener(shared, descriptor)) {
        Err(error) if is_gone(&error) => return Err(GONE),
        pinned => pinned,
    };
    let pinned = match pinned {
        Ok(pinned) => pinned,
        Err(error) if error.is_damage() => {
            // The first page cannot be read; whether the others can is found when they are asked for.
            failure(Some(&key), Some(first), &error);
            return unreadable(*is_read_only, pages.next());
        }
        Err(error) => return Err(reported(&key, &error)),
    };
    let name = name_of(name, &pinned, &key)?;
    let there = pinned.page_count().map_err(|error| reported(&key, &error))?;
    let count = pages.len().min(BATCH).min(there.saturating_sub(first) as usize);
    let mut taken: [Option<&mut Page>; BATCH] = [const { None }; BATCH];
    for (place, page) in taken.iter_mut().zip(pages.take(count)) {
        *place = Some(page);
    }
    let store = Pages::over(&pinned, name);
    if let ([Some(page), ..], 1) = (&mut taken, count) {
        return match store.read(first, page, workspace) {
            Ok(_) => Ok(1),
            Err(error) => {
                failure(Some(&key), Some(first), &error);
                if error.is_damage() {
                    unreadable(*is_read_only, Some(page))
                } else {
                    Err(errno_of_page(&error))
                }
            }
        };
    }
    let buffers = taken[..count].iter_mut().flatten().map(|page| &mut **page);
    let faults = store.read_range(first, Counted(buffers, count), workspace);
    let Some((block, error)) = faults.into_iter().next() else { return Ok(count as u32) };
    if block > first {
        return Ok(block - first);
    }
    failure(Some(&key), Some(first), &error);
    if error.is_damage() { unreadable(*is_read_only, taken[0].take()) } else { Err(errno_of_page(&error)) }
}

/// An iterator whose length is known to its maker.
struct Counted<I>(I, usize);

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.1 = self.1.saturating_sub(1);
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.1, Some(self.1))
    }
}

impl<I: Iterator> ExactSizeIterator for Counted<I> {}

/// A damaged page. The server's buffers get one that its own check refuses, so that everything it does about
/// damaged pages applies: SQLSTATE XX001, `zero_damaged_pages`, free-space maps that are made anew. Who copies the
/// file gets an error: a copy must not look whole.
fn unreadable(is_read_only: bool, page: Option<&mut Page>) -> Result<u32, Errno> {
    match page {
        Some(page) if !is_read_only => {
            page.fill(0xff);
            Ok(1)
        }
        _ => Err(Errno(libc::EIO)),
    }
}
