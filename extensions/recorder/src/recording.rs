//! The recording itself, and the lock of all processes that write to it.
// The lock and its memory are of libc.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use crate::format::{Header, Kind};
use crate::{errno, set_errno, system};

/// Of a path, with its closing zero.
const PATH_BYTES: usize = 4096;
/// Pieces at most of one vectored write.
const PIECES_MAX: usize = 1024;

/// What processes share: beside the recording, as `PATH.lock`.
#[repr(C)]
struct Shared {
    mutex: libc::pthread_mutex_t,
    tokens: AtomicU64,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
static FILE: AtomicI32 = AtomicI32::new(-1);

/// Whether anything is recorded at all.
pub(crate) fn is_on() -> bool {
    FILE.load(Ordering::Relaxed) >= 0
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Before the program's main function: opens the recording. The first process makes the lock; others have it by their fork.
extern "C" fn start() {
    // SAFETY: strings that end with a zero; the buffer holds the longest path and four letters more.
    unsafe {
        let path = libc::getenv(c"PGSHRINK_RECORD".as_ptr());
        if path.is_null() || libc::getenv(c"PGSHRINK_RECORD_ROOTS".as_ptr()).is_null() {
            return;
        }
        let mut lock = [0u8; PATH_BYTES + 8];
        let bytes = CStr::from_ptr(path).to_bytes();
        if bytes.len() >= PATH_BYTES {
            return;
        }
        lock[..bytes.len()].copy_from_slice(bytes);
        lock[bytes.len()..][..5].copy_from_slice(b".lock");
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        let file = system!(SYS_openat, libc::AT_FDCWD, path, flags | libc::O_APPEND, 0o644) as c_int;
        let lock = system!(SYS_openat, libc::AT_FDCWD, lock.as_ptr(), flags | libc::O_TRUNC, 0o644) as c_int;
        if file < 0 || lock < 0 || system!(SYS_ftruncate, lock, size_of::<Shared>()) != 0 {
            return;
        }
        // Out of the way of programs that expect low numbers.
        let moved = system!(SYS_fcntl, file, libc::F_DUPFD_CLOEXEC, 900) as c_int;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let shared: *mut Shared =
            libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), access, kind, lock, 0).cast();
        system!(SYS_close, lock);
        system!(SYS_close, file);
        if shared.cast() == libc::MAP_FAILED {
            return;
        }
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
        libc::pthread_mutexattr_settype(&mut attributes, libc::PTHREAD_MUTEX_ERRORCHECK);
        libc::pthread_mutex_init(&raw mut (*shared).mutex, &attributes);
        SHARED.store(shared, Ordering::Relaxed);
        FILE.store(moved, Ordering::Relaxed);
    }
}

/// Whether a path is below the roots.
pub(crate) fn is_below(path: *const libc::c_char) -> bool {
    if !is_on() || path.is_null() {
        return false;
    }
    // SAFETY: strings that end with a zero.
    let (path, roots) = unsafe {
        let roots = libc::getenv(c"PGSHRINK_RECORD_ROOTS".as_ptr());
        if roots.is_null() {
            return false;
        }
        (CStr::from_ptr(path).to_bytes(), CStr::from_ptr(roots).to_bytes())
    };
    !path.starts_with(b"/")
        || roots
            .split(|byte| *byte == b':')
            .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")))
}

/// The lock of all processes and threads, held.
pub(crate) struct Turn {
    is_held: bool,
}

/// Waits for the lock. A thread that has it already, as a signal's handler may find, goes on without.
pub(crate) fn turn() -> Turn {
    let before = errno();
    let shared = SHARED.load(Ordering::Relaxed);
    // SAFETY: made by `start`, and never unmapped.
    let got = unsafe { libc::pthread_mutex_lock(&raw mut (*shared).mutex) };
    if got == libc::EOWNERDEAD {
        // SAFETY: as above. What a killed process did last may lack its record.
        unsafe { libc::pthread_mutex_consistent(&raw mut (*shared).mutex) };
    }
    set_errno(before);
    Turn { is_held: got == 0 || got == libc::EOWNERDEAD }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_held {
            // SAFETY: this thread holds it.
            unsafe { libc::pthread_mutex_unlock(&raw mut (*SHARED.load(Ordering::Relaxed)).mutex) };
        }
    }
}

/// A number that no other fsync has.
pub(crate) fn token() -> u64 {
    // SAFETY: made by `start`, and never unmapped.
    unsafe { (*SHARED.load(Ordering::Relaxed)).tokens.fetch_add(1, Ordering::Relaxed) }
}

impl Turn {
    /// Records a change.
    pub(crate) fn record(&self, kind: Kind, inode: u64, a: u64, b: u64) {
        self.append(kind, inode, [a, b], [&[], &[]]);
    }

    /// Records a change of names.
    pub(crate) fn record_paths(&self, kind: Kind, inode: u64, a: u64, paths: [&[u8]; 2]) {
        self.append(kind, inode, [a, 0], paths);
    }

    /// Records bytes that were written.
    pub(crate) fn record_write(&self, inode: u64, offset: u64, bytes: &[u8]) {
        self.append(Kind::Write, inode, [offset, 0], [bytes, &[]]);
    }

    fn append(&self, kind: Kind, inode: u64, [a, b]: [u64; 2], texts: [&[u8]; 2]) {
        let lengths = texts.map(|text| text.len() as u32);
        let header = self.header(kind, inode, [a, b], lengths);
        let pieces = [&header[..], texts[0], texts[1]].map(piece);
        self.put(&pieces);
    }

    fn header(&self, kind: Kind, inode: u64, [a, b]: [u64; 2], lengths: [u32; 2]) -> [u8; 40] {
        Header { kind: kind as u32, lengths, pid: std::process::id(), inode, a, b }.to_bytes()
    }

    /// Records the first `bytes` bytes of what was written from pieces.
    ///
    /// # Safety
    /// The pieces are readable.
    pub(crate) unsafe fn record_pieces(
        &self,
        inode: u64,
        offset: u64,
        pieces: &[libc::iovec],
        mut bytes: usize,
    ) {
        let header = self.header(Kind::Write, inode, [offset, 0], [bytes as u32, 0]);
        let mut all = [piece(&[]); PIECES_MAX + 1];
        all[0] = piece(&header);
        let mut count = 1;
        for from in pieces.iter().take(PIECES_MAX) {
            let length = from.iov_len.min(bytes);
            all[count] = libc::iovec { iov_base: from.iov_base, iov_len: length };
            count += 1;
            bytes -= length;
        }
        self.put(&all[..count]);
    }

    fn put(&self, pieces: &[libc::iovec]) {
        let before = errno();
        let wanted: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        let put = system!(SYS_writev, FILE.load(Ordering::Relaxed), pieces.as_ptr(), pieces.len());
        if put != wanted as i64 {
            // A recording with a hole in it is worth nothing.
            // SAFETY: takes nothing.
            unsafe { libc::abort() };
        }
        set_errno(before);
    }
}

fn piece(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
