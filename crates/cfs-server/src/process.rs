//! What one process of the server has: its place in the region, its codecs, its open files.
// One value of a process that has one thread for it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pgshrink_cfs::Base;
use pgshrink_cfs::slots::{Access, Member, Pinned, Segment, SegmentKey};
use pgshrink_cfs::store::StoreName;
use pgshrink_cfs::{Device, Error, Workspace};
use pgshrink_interpose::{Errno, PAGE_BYTES, Page};

use crate::descriptors;
use crate::file::{SegmentFile, ServerOpener};
use crate::front::Ahead;
use crate::front::sync::Checkpoints;
use crate::host::ServerHost;
use crate::owner::Directories;
use crate::server::{Shared, is_postmaster, shared};

/// A process that has joined.
pub(crate) type Joined = Member<'static, &'static ServerHost, AtomicU64>;
/// An open segment for one operation.
pub(crate) type Using<'a> = Pinned<'a, 'static, SegmentFile, &'static ServerHost, AtomicU64>;

/// A file that the server has open.
pub(crate) struct OpenFile {
    pub(crate) segment: Segment<'static, 'static, SegmentFile, &'static ServerHost, AtomicU64>,
    /// What its dictionaries are kept by; made with its first page.
    pub(crate) name: Option<StoreName>,
    /// Whether the server opened it for reading alone.
    pub(crate) is_read_only: bool,
    /// What the kernel was asked for last.
    pub(crate) ahead: Ahead,
    /// The segment's plain file, where it has become one while the server had its container open.
    pub(crate) plain: Option<PlainFile>,
}

/// A plain file in a container's place.
pub(crate) struct PlainFile(pub(crate) RawFd);

impl Drop for PlainFile {
    fn drop(&mut self) {
        // SAFETY: opened for this alone.
        unsafe { libc::close(self.0) };
    }
}

impl OpenFile {
    pub(crate) fn new(
        member: &'static Joined,
        key: SegmentKey,
        is_read_only: bool,
    ) -> Result<OpenFile, Error> {
        Ok(OpenFile::of(Segment::new(member, key)?, is_read_only))
    }

    /// A segment that was opened.
    pub(crate) fn of(
        segment: Segment<'static, 'static, SegmentFile, &'static ServerHost, AtomicU64>,
        is_read_only: bool,
    ) -> OpenFile {
        OpenFile { segment, name: None, is_read_only, ahead: Ahead::default(), plain: None }
    }

    pub(crate) fn key(&self) -> SegmentKey {
        *self.segment.key()
    }

    /// Keeps it open for an operation.
    pub(crate) fn pin(&mut self, access: Access, opener: &ServerOpener) -> Result<Using<'_>, Error> {
        pin(&mut self.segment, access, opener)
    }
}

/// Keeps a segment open for an operation.
pub(crate) fn pin<'s>(
    segment: &'s mut Segment<'static, 'static, SegmentFile, &'static ServerHost, AtomicU64>,
    access: Access,
    opener: &ServerOpener,
) -> Result<Using<'s>, Error> {
    let pinned = segment.pin(access, opener)?;
    if pinned.base() == Base::None {
        pinned.device().let_go_of_base();
    }
    Ok(pinned)
}

/// Pages by which files may grow between two looks at the filesystem.
const GROWTH_STEP: u32 = 16;

/// Pages that are written in recovery between two such looks.
const ROOM_STEP: u32 = 1024;

/// What a process has.
pub(crate) struct Process {
    pub(crate) shared: &'static Shared,
    pub(crate) member: &'static Joined,
    pub(crate) workspace: Workspace,
    /// By descriptor.
    pub(crate) files: Vec<Option<Box<OpenFile>>>,
    /// Of the tablespaces of those files.
    pub(crate) directories: Directories,
    /// A page on its way: the server changes its own while they are written.
    pub(crate) page: Box<Page>,
    pub(crate) checkpoints: Checkpoints,
    /// Pages by which files of a tablespace may grow before it is looked again whether there is space.
    growth: (u32, u32),
    /// Pages that may be written to a tablespace in recovery before it is looked again whether there is room.
    room: Option<(u32, u32, bool)>,
}

impl Process {
    fn join(shared: &'static Shared) -> Result<Process, Errno> {
        descriptors::give_back();
        let host = ServerHost::of_this_process(shared.region.memory).ok_or(Errno(libc::EIO))?;
        let slots = shared.region.slots().map_err(|_| Errno(libc::EIO))?;
        // As long as the process: handles of segments refer to it.
        let host: &'static ServerHost = Box::leak(Box::new(host));
        let member = match Member::enter(slots, host) {
            Ok(member) => Box::leak(Box::new(member)),
            Err(error) => {
                crate::report::failure(None, None, &error);
                return Err(Errno(libc::ENFILE));
            }
        };
        let workspace = Workspace::new(shared.backend_memory).map_err(|_| Errno(libc::ENOMEM))?;
        Ok(Process {
            shared,
            member,
            workspace,
            files: Vec::new(),
            directories: Directories::default(),
            page: Box::new([0; _]),
            checkpoints: Checkpoints::default(),
            growth: (0, 0),
            room: None,
        })
    }

    /// The file of a descriptor.
    pub(crate) fn file(&mut self, descriptor: RawFd) -> Result<&mut OpenFile, Errno> {
        let file = usize::try_from(descriptor).ok().and_then(|at| self.files.get_mut(at));
        file.and_then(Option::as_deref_mut).ok_or(Errno(libc::EBADF))
    }

    /// Keeps what is known of a descriptor.
    pub(crate) fn keep(&mut self, descriptor: RawFd, file: OpenFile) {
        let at = descriptor as usize;
        if self.files.len() <= at {
            self.files.resize_with(at + 1, || None);
        }
        self.directories.opened(file.key().tablespace);
        self.drop_file(descriptor);
        self.files[at] = Some(Box::new(file));
    }

    /// Before a file of the tablespace grows by so many pages.
    ///
    /// # Errors
    /// ENOSPC where the filesystem has no space for pages beyond those that are in memory.
    pub(crate) fn admit_growth(&mut self, tablespace: u32, pages: u32) -> Result<(), Errno> {
        let (known, left) = self.growth;
        if known == tablespace && left >= pages {
            self.growth.1 -= pages;
            return Ok(());
        }
        if !crate::reserve::allows_growth(self.shared, tablespace) {
            self.growth = (0, 0);
            return Err(Errno(libc::ENOSPC));
        }
        self.growth = (tablespace, GROWTH_STEP);
        Ok(())
    }

    /// Whether a page that is written in recovery may take more space than it will in the end.
    pub(crate) fn has_room(&mut self, tablespace: u32) -> bool {
        match &mut self.room {
            Some((known, left, is_roomy)) if *known == tablespace && *left > 0 => {
                *left -= 1;
                *is_roomy
            }
            _ => {
                let is_roomy = crate::reserve::is_roomy(self.shared, tablespace);
                self.room = Some((tablespace, ROOM_STEP, is_roomy));
                is_roomy
            }
        }
    }

    pub(crate) fn drop_file(&mut self, descriptor: RawFd) {
        if let Some(file) = usize::try_from(descriptor).ok().and_then(|at| self.files.get_mut(at))
            && let Some(file) = file.take()
        {
            self.directories.closed(file.key().tablespace);
        }
    }
}

/// The process, and whether somebody is using it: a call that a signal's handler makes in the midst of another.
struct Local {
    process: UnsafeCell<Option<Process>>,
    is_busy: AtomicBool,
}

// SAFETY: the value is reached through `with` alone, which lets one caller in at a time.
unsafe impl Sync for Local {}

static LOCAL: Local = Local { process: UnsafeCell::new(None), is_busy: AtomicBool::new(false) };

/// Uses what the process has, and joins the region if need be.
///
/// # Errors
/// As `operation`; EIO in the postmaster, without the region, and for who comes in the midst of another call;
/// ENFILE where there are more processes than the region has room for.
pub(crate) fn with<T>(operation: impl FnOnce(&mut Process) -> Result<T, Errno>) -> Result<T, Errno> {
    let Some(shared) = shared().filter(|_| !is_postmaster()) else { return Err(Errno(libc::EIO)) };
    let Some(_inside) = Inside::enter() else { return Err(Errno(libc::EIO)) };
    // SAFETY: nobody else is inside.
    let process = unsafe { &mut *LOCAL.process.get() };
    if process.is_none() {
        *process = Some(Process::join(shared)?);
    }
    process.as_mut().map_or(Err(Errno(libc::EIO)), operation)
}

/// One at a time.
struct Inside;

impl Inside {
    fn enter() -> Option<Inside> {
        (!LOCAL.is_busy.swap(true, Ordering::Acquire)).then_some(Inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        LOCAL.is_busy.store(false, Ordering::Release);
    }
}

/// In a child after a fork: what the parent had is not the child's.
pub(crate) fn forget() {
    // SAFETY: the child has one thread, this one.
    let process = unsafe { &mut *LOCAL.process.get() };
    std::mem::forget(process.take());
    LOCAL.is_busy.store(false, Ordering::Release);
}

/// At the end of a process: others need not find it dead.
pub(crate) fn leave() {
    let Some(_inside) = Inside::enter() else { return };
    // SAFETY: nobody else is inside.
    let process = unsafe { &mut *LOCAL.process.get() };
    if let Some(process) = process.take() {
        let member = std::ptr::from_ref(process.member).cast_mut();
        drop(process);
        // SAFETY: leaked by `join`, and everything that referred to it has gone.
        drop(unsafe { Box::from_raw(member) });
    }
}

/// Whether a container's roots say that it is the segment's.
pub(crate) fn is_of(file: &impl Device, key: &SegmentKey) -> bool {
    pgshrink_cfs::segment::clear(file).is_some_and(|root| root.identity == key.identity())
}

/// Pages of a container that is not open, as its roots show; for who asks for a size. One without a root of this
/// segment has a page all the same: whoever reads it is told, while an empty file would be read as a table without
/// rows.
pub(crate) fn peeked_pages(file: &impl Device, key: &SegmentKey) -> u32 {
    let Some(root) = pgshrink_cfs::segment::clear(file) else { return 1 };
    let pages = match root.base {
        Base::Whole => file.base_size().map_or(1, |bytes| (bytes / PAGE_BYTES as u64) as u32),
        _ => root.pages,
    };
    if root.identity == key.identity() { pages } else { pages.max(1) }
}
