//! A front for tests: a file `managed-…` is a folder of that name with a file in it, whose bytes and size are
//! not those that a reader finds.
//!
//! It makes system calls itself: its own calls of libc would come back to it where the hooks are installed.
// System calls are made, and pages come as addresses.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pgshrink_interpose::{
    Advice, Attributes, Errno, Front, Listed, Moment, Outcome, PAGE_BYTES, Page, PagesToRead, PagesToWrite,
};

/// Before the first page.
const HEAD: u64 = 4096;
/// From a page to the next.
const STRIDE: u64 = PAGE_BYTES as u64 + 8;

pub struct PlainFront {
    /// Calls so far.
    pub calls: AtomicUsize,
    /// How often each descriptor was synced.
    pub synced: Mutex<BTreeMap<RawFd, usize>>,
    /// What was last said of each: first page, pages.
    pub advised: Mutex<BTreeMap<RawFd, (u32, u32, Advice)>>,
    /// What is renamed, and to what, when it is asked next whether the moment is still the same.
    pub renamed: Mutex<Option<[CString; 2]>>,
    /// Panic at the next call.
    pub panics: std::sync::atomic::AtomicBool,
}

pub static FRONT: PlainFront = PlainFront {
    calls: AtomicUsize::new(0),
    synced: Mutex::new(BTreeMap::new()),
    advised: Mutex::new(BTreeMap::new()),
    renamed: Mutex::new(None),
    panics: std::sync::atomic::AtomicBool::new(false),
};

fn system(number: libc::c_long, arguments: [usize; 4]) -> Result<usize, Errno> {
    let [a, b, c, d] = arguments;
    // SAFETY: the arguments of each call below.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    if result < 0 {
        // SAFETY: the thread's own.
        return Err(Errno(unsafe { *libc::__errno_location() }));
    }
    Ok(result as usize)
}

fn is_managed(path: &CStr) -> bool {
    path.to_bytes().rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"managed-"))
}

/// A name that may become a managed file's, and never does.
fn is_changing(path: &CStr) -> bool {
    path.to_bytes().rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"changing-"))
}

/// The file with the pages. On the stack: opening may allocate, but truncation by path is not to.
fn inner(path: &CStr) -> [u8; 600] {
    let mut whole = [0; 600];
    let name = path.to_bytes();
    whole[..name.len()].copy_from_slice(name);
    whole[name.len()..name.len() + 6].copy_from_slice(b"/pages");
    whole
}

fn open_inner(path: &CStr, flags: i32) -> Result<RawFd, Errno> {
    let name = inner(path);
    system(libc::SYS_open, [name.as_ptr() as usize, flags as usize, 0o600, 0]).map(|fd| fd as RawFd)
}

fn close_fd(fd: RawFd) {
    let _ = system(libc::SYS_close, [fd as usize, 0, 0, 0]);
}

fn stat_of(fd: RawFd) -> Result<libc::stat, Errno> {
    // SAFETY: plain data.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    system(libc::SYS_fstat, [fd as usize, (&raw mut stat) as usize, 0, 0])?;
    Ok(stat)
}

fn set_pages(fd: RawFd, pages: u32) -> Result<(), Errno> {
    let size = HEAD + u64::from(pages) * STRIDE;
    system(libc::SYS_ftruncate, [fd as usize, size as usize, 0, 0]).map(drop)
}

fn attributes_of(fd: RawFd) -> Result<Attributes, Errno> {
    let stat = stat_of(fd)?;
    let size = (stat.st_size as u64 - HEAD) / STRIDE * PAGE_BYTES as u64;
    Ok(Attributes { stat, size })
}

/// Pages are kept with their bits turned; one of zeros is one that nobody wrote.
fn turned(page: &mut Page) {
    if page.iter().any(|byte| *byte != 0) {
        page.iter_mut().for_each(|byte| *byte ^= 0x5a);
    }
}

impl PlainFront {
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.swap(false, Ordering::Relaxed), "the front panics because the test wants it");
    }
}

/// For a path of ours, if the file is there.
fn with<T>(path: &CStr, what: impl FnOnce(RawFd) -> Result<T, Errno>) -> Outcome<T> {
    if !is_managed(path) {
        return None;
    }
    Some(open_inner(path, libc::O_RDWR).and_then(|fd| {
        let result = what(fd);
        close_fd(fd);
        result
    }))
}

impl Front for PlainFront {
    fn moment(&self, path: &CStr) -> Option<Moment> {
        is_changing(path).then_some(Moment(0))
    }

    fn is_still(&self, _: Moment) -> bool {
        let Some([from, to]) = self.renamed.lock().unwrap().take() else { return true };
        system(libc::SYS_rename, [from.as_ptr() as usize, to.as_ptr() as usize, 0, 0]).unwrap();
        false
    }

    fn may_manage(&self, path: &CStr) -> bool {
        is_changing(path)
    }

    fn open(&self, path: &CStr, flags: i32, _: libc::mode_t) -> Outcome<RawFd> {
        if !is_managed(path) {
            return None;
        }
        self.called();
        Some((|| {
            let exists = open_inner(path, libc::O_RDWR).map(close_fd).is_ok();
            if exists && flags & libc::O_EXCL != 0 && flags & libc::O_CREAT != 0 {
                return Err(Errno(libc::EEXIST));
            }
            if !exists {
                if flags & libc::O_CREAT == 0 {
                    return Err(Errno(libc::ENOENT));
                }
                system(libc::SYS_mkdir, [path.as_ptr() as usize, 0o700, 0, 0])?;
            }
            let fd = open_inner(path, libc::O_RDWR | libc::O_CREAT)?;
            if !exists || flags & libc::O_TRUNC != 0 {
                set_pages(fd, 0)?;
            }
            self.synced.lock().unwrap().insert(fd, 0);
            self.advised.lock().unwrap().insert(fd, (0, 0, Advice::WillNeed));
            Ok(fd)
        })())
    }

    fn attributes(&self, path: &CStr) -> Outcome<Attributes> {
        with(path, attributes_of)
    }

    fn access(&self, path: &CStr, mode: i32) -> Outcome<()> {
        with(path, |_| if mode & libc::X_OK == 0 { Ok(()) } else { Err(Errno(libc::EACCES)) })
    }

    fn truncate_path(&self, path: &CStr, size: u64) -> Outcome<()> {
        assert!(size.is_multiple_of(PAGE_BYTES as u64));
        with(path, |fd| set_pages(fd, (size / PAGE_BYTES as u64) as u32))
    }

    fn unlink(&self, path: &CStr) -> Outcome<()> {
        with(path, |_| {
            system(libc::SYS_unlink, [inner(path).as_ptr() as usize, 0, 0, 0])?;
            system(libc::SYS_rmdir, [path.as_ptr() as usize, 0, 0, 0]).map(drop)
        })
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Outcome<()> {
        if !is_managed(from) {
            return None;
        }
        if from != to {
            let _ = self.unlink(to);
        }
        let arguments = [from.as_ptr() as usize, to.as_ptr() as usize, 0, 0];
        Some(system(libc::SYS_rename, arguments).map(drop))
    }

    fn link(&self, from: &CStr, _: &CStr) -> Outcome<()> {
        is_managed(from).then_some(Err(Errno(libc::EPERM)))
    }

    fn remove_directory(&self, path: &CStr) -> Outcome<()> {
        with(path, |_| Err(Errno(libc::ENOTDIR)))
    }

    fn open_directory(&self, path: &CStr) -> Option<u64> {
        path.to_bytes().ends_with(b"listed").then_some(7)
    }

    fn listed(&self, directory: u64, name: &CStr, kind: u8) -> Listed {
        assert_eq!(directory, 7);
        if name.to_bytes().starts_with(b"hidden") {
            Listed::Hidden
        } else if is_managed(name) {
            assert_eq!(kind, libc::DT_DIR);
            Listed::File
        } else {
            Listed::Shown
        }
    }

    fn close(&self, _: RawFd) {
        self.called();
    }

    fn pages(&self, fd: RawFd) -> Result<u32, Errno> {
        attributes_of(fd).map(|attributes| (attributes.size / PAGE_BYTES as u64) as u32)
    }

    fn read(&self, fd: RawFd, first: u32, pages: &mut PagesToRead<'_>) -> Result<u32, Errno> {
        self.called();
        let there = self.pages(fd)?;
        let mut at = first;
        for page in pages {
            if at >= there {
                break;
            }
            let place = HEAD + u64::from(at) * STRIDE;
            system(libc::SYS_pread64, [fd as usize, page.as_mut_ptr() as usize, PAGE_BYTES, place as usize])?;
            turned(page);
            at += 1;
        }
        Ok(at - first)
    }

    fn write(&self, fd: RawFd, first: u32, pages: &mut PagesToWrite<'_>) -> Result<u32, Errno> {
        self.called();
        self.extend(fd, first + pages.len() as u32)?;
        let mut at = first;
        for page in pages {
            // SAFETY: a page of the caller.
            let mut copy = unsafe { page.read() };
            turned(&mut copy);
            let place = HEAD + u64::from(at) * STRIDE;
            system(libc::SYS_pwrite64, [fd as usize, copy.as_ptr() as usize, PAGE_BYTES, place as usize])?;
            at += 1;
        }
        Ok(at - first)
    }

    fn extend(&self, fd: RawFd, pages: u32) -> Result<(), Errno> {
        if self.pages(fd)? < pages { set_pages(fd, pages) } else { Ok(()) }
    }

    fn truncate(&self, fd: RawFd, pages: u32) -> Result<(), Errno> {
        set_pages(fd, pages)
    }

    fn sync(&self, fd: RawFd) -> Result<(), Errno> {
        // What is there already is changed without an allocation.
        if let Some(count) = self.synced.lock().unwrap().get_mut(&fd) {
            *count += 1;
        }
        system(libc::SYS_fdatasync, [fd as usize, 0, 0, 0]).map(drop)
    }

    fn advise(&self, fd: RawFd, first: u32, pages: u32, advice: Advice) {
        if let Some(last) = self.advised.lock().unwrap().get_mut(&fd) {
            *last = (first, pages, advice);
        }
    }

    fn descriptor_attributes(&self, fd: RawFd) -> Result<Attributes, Errno> {
        attributes_of(fd)
    }
}

/// A path for C.
pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte in a path")
}
