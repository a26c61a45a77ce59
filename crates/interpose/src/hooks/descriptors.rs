//! Which descriptors are those of managed files, with their positions and modes.
//!
//! A static array, so that a call with another descriptor costs one load. A descriptor behind its end can
//! never be managed: `open` gives EMFILE. A forked process has the table of its parent from that moment on, as
//! it has its descriptors; positions, which a kernel would share between the two, go apart then. PostgreSQL
//! inherits no descriptor of a relation across a fork that both sides use.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Descriptors below this may be managed.
pub const DESCRIPTORS: usize = 1 << 16;

const MANAGED: u32 = 1 << 31;

#[derive(Debug)]
struct Slot {
    /// Flags of `open`, and [`MANAGED`]; none: not ours.
    state: AtomicU32,
    position: AtomicI64,
}

static SLOTS: [Slot; DESCRIPTORS] =
    [const { Slot { state: AtomicU32::new(0), position: AtomicI64::new(0) } }; DESCRIPTORS];

/// A descriptor of a managed file.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) fd: RawFd,
    flags: i32,
    slot: &'static Slot,
}

/// The managed file of this descriptor.
#[inline]
pub(super) fn managed(fd: RawFd) -> Option<File> {
    let slot = SLOTS.get(usize::try_from(fd).ok()?)?;
    let state = slot.state.load(Ordering::Relaxed);
    if state == 0 { None } else { Some(File { fd, flags: (state & !MANAGED) as i32, slot }) }
}

/// Takes a descriptor in; false where it is too large.
pub(super) fn adopt(fd: RawFd, flags: i32) -> bool {
    let Some(slot) = usize::try_from(fd).ok().and_then(|index| SLOTS.get(index)) else { return false };
    slot.position.store(0, Ordering::Relaxed);
    slot.state.store(flags as u32 | MANAGED, Ordering::Relaxed);
    true
}

impl File {
    pub(super) fn forget(self) {
        self.slot.state.store(0, Ordering::Relaxed);
    }

    pub(super) fn may_read(self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub(super) fn may_write(self) -> bool {
        matches!(self.flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
    }

    pub(super) fn appends(self) -> bool {
        self.flags & libc::O_APPEND != 0
    }

    /// Whether each write is to be durable.
    pub(super) fn syncs(self) -> bool {
        self.flags & libc::O_DSYNC != 0
    }

    /// As `fcntl(F_GETFL)` gives it.
    pub(super) fn status_flags(self) -> i32 {
        /// Set by the kernel for every file of a 64-bit process; libc's constant is 0 there.
        const LARGE_FILE: i32 = 0o100_000;
        let lasting = libc::O_ACCMODE
            | libc::O_APPEND
            | libc::O_DSYNC
            | libc::O_SYNC
            | libc::O_NONBLOCK
            | libc::O_NOATIME;
        self.flags & lasting | LARGE_FILE
    }

    /// As `fcntl(F_SETFL)` changes it: only what may change.
    pub(super) fn set_status_flags(self, flags: i32) {
        let changing = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME;
        let new = self.flags & !changing | flags & changing;
        self.slot.state.store(new as u32 | MANAGED, Ordering::Relaxed);
    }

    pub(super) fn position(self) -> i64 {
        self.slot.position.load(Ordering::Relaxed)
    }

    pub(super) fn set_position(self, position: i64) {
        self.slot.position.store(position, Ordering::Relaxed);
    }
}
