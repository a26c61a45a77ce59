//! The functions that the hooks stand in front of.
//!
//! Each is kept as an address, found once by [`resolve`]: what the program's own import held when it was bound
//! already (so that a library that was preloaded stays in the path), otherwise the first definition among the
//! libraries in load order. Never the executable's own symbol: in an executable that is not position
//! independent that is its own jump to the import, and a call of it would come back to the hook.
// Addresses of functions come as plain addresses.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{DIR, FILE, dirent, iovec, mode_t, off_t, size_t, ssize_t, stat};

/// Names of one function, and where its address is kept.
pub(crate) struct Original {
    pub(crate) names: &'static [&'static str],
    pub(crate) address: &'static AtomicUsize,
}

macro_rules! originals {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = [$($alias:literal),+];)*) => {
        mod addresses {
            use super::AtomicUsize;
            $(#[allow(non_upper_case_globals)] pub(super) static $name: AtomicUsize = AtomicUsize::new(0);)*
        }
        $(
            #[inline]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                let address = addresses::$name.load(Ordering::Relaxed);
                if address == 0 {
                    return missing() as $result;
                }
                // SAFETY: `resolve` has put the address of the libc function of this signature here.
                let call: unsafe extern "C" fn($($kind),*) -> $result = unsafe { std::mem::transmute(address) };
                // SAFETY: the caller's promise.
                unsafe { call($($argument),*) }
            }
        )*
        pub(crate) static ORIGINALS: &[Original] =
            &[$(Original { names: &[$($alias),+], address: &addresses::$name }),*];
    };
}

originals! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = ["open", "open64"];
    fn open_2(path: *const c_char, flags: c_int) -> c_int = ["__open_2", "__open64_2"];
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = ["openat", "openat64"];
    fn openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = ["__openat_2", "__openat64_2"];
    fn creat(path: *const c_char, mode: mode_t) -> c_int = ["creat", "creat64"];
    fn close(fd: c_int) -> c_int = ["close"];
    fn dup(fd: c_int) -> c_int = ["dup"];
    fn dup2(fd: c_int, to: c_int) -> c_int = ["dup2"];
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = ["dup3"];
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = ["fcntl64", "fcntl"];
    fn ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int = ["ioctl"];
    fn mmap(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void
        = ["mmap", "mmap64"];
    fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t = ["read"];
    fn read_chk(fd: c_int, to: *mut c_void, length: size_t, room: size_t) -> ssize_t = ["__read_chk"];
    fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t = ["readv"];
    fn pread(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t = ["pread", "pread64"];
    fn pread_chk(fd: c_int, to: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t
        = ["__pread_chk", "__pread64_chk"];
    fn preadv(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t = ["preadv", "preadv64"];
    fn preadv2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
        = ["preadv2", "preadv64v2"];
    fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t = ["write"];
    fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t = ["writev"];
    fn pwrite(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t = ["pwrite", "pwrite64"];
    fn pwritev(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t = ["pwritev", "pwritev64"];
    fn pwritev2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
        = ["pwritev2", "pwritev64v2"];
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = ["lseek", "lseek64"];
    fn ftruncate(fd: c_int, length: off_t) -> c_int = ["ftruncate", "ftruncate64"];
    fn truncate(path: *const c_char, length: off_t) -> c_int = ["truncate", "truncate64"];
    fn fsync(fd: c_int) -> c_int = ["fsync"];
    fn fdatasync(fd: c_int) -> c_int = ["fdatasync"];
    fn stat_path(path: *const c_char, to: *mut stat) -> c_int = ["stat", "stat64"];
    fn lstat_path(path: *const c_char, to: *mut stat) -> c_int = ["lstat", "lstat64"];
    fn fstat(fd: c_int, to: *mut stat) -> c_int = ["fstat", "fstat64"];
    fn fstatat(directory: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int
        = ["fstatat", "fstatat64"];
    fn xstat(version: c_int, path: *const c_char, to: *mut stat) -> c_int = ["__xstat", "__xstat64"];
    fn lxstat(version: c_int, path: *const c_char, to: *mut stat) -> c_int = ["__lxstat", "__lxstat64"];
    fn fxstat(version: c_int, fd: c_int, to: *mut stat) -> c_int = ["__fxstat", "__fxstat64"];
    fn fxstatat(version: c_int, directory: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int
        = ["__fxstatat", "__fxstatat64"];
    fn access(path: *const c_char, mode: c_int) -> c_int = ["access"];
    fn unlink(path: *const c_char) -> c_int = ["unlink"];
    fn rename(from: *const c_char, to: *const c_char) -> c_int = ["rename"];
    fn link(from: *const c_char, to: *const c_char) -> c_int = ["link"];
    fn rmdir(path: *const c_char) -> c_int = ["rmdir"];
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int = ["unlinkat"];
    fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int = ["faccessat"];
    fn renameat(directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char) -> c_int = ["renameat"];
    fn renameat2(directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint) -> c_int
        = ["renameat2"];
    fn linkat(directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_int) -> c_int
        = ["linkat"];
    fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int
        = ["statx"];
    fn fdopendir(fd: c_int) -> *mut DIR = ["fdopendir"];
    fn opendir(path: *const c_char) -> *mut DIR = ["opendir"];
    fn readdir(directory: *mut DIR) -> *mut dirent = ["readdir", "readdir64"];
    fn closedir(directory: *mut DIR) -> c_int = ["closedir"];
    fn posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int = ["posix_fallocate", "posix_fallocate64"];
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int = ["fallocate", "fallocate64"];
    fn posix_fadvise(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int
        = ["posix_fadvise", "posix_fadvise64"];
    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int = ["sync_file_range"];
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, length: size_t, flags: c_uint)
        -> ssize_t = ["copy_file_range"];
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t = ["sendfile", "sendfile64"];
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = ["fopen64", "fopen"];
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = ["fdopen", "_IO_fdopen"];
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = ["freopen64", "freopen"];
    fn readlink(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t = ["readlink"];
}

/// Of a function that this libc does not have.
#[cold]
fn missing() -> isize {
    set_errno(libc::ENOSYS);
    -1
}

/// The thread's error number.
#[inline]
pub(crate) fn errno() -> c_int {
    // SAFETY: the address is the thread's own.
    unsafe { *libc::__errno_location() }
}

#[inline]
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number }
}

/// The libraries of this process in the order in which they were loaded, without the executable.
pub(crate) struct Libraries {
    /// Handle, and start of the mapping.
    loaded: Vec<(*mut c_void, usize)>,
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: size_t, names: *mut c_void) -> c_int {
    // SAFETY: the C library's, for the call.
    let info = unsafe { &*info };
    if !info.dlpi_name.is_null() {
        // SAFETY: `Libraries::new` has passed a vector; the name is a string of the loader.
        let (names, name) = unsafe { (&mut *names.cast::<Vec<CString>>(), CStr::from_ptr(info.dlpi_name)) };
        if !name.is_empty() {
            names.push(name.to_owned());
        }
    }
    0
}

impl Libraries {
    pub(crate) fn new() -> Libraries {
        let mut names: Vec<CString> = Vec::new();
        // SAFETY: `collect` takes the vector as it comes.
        unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut names).cast()) };
        let mut loaded = Vec::new();
        for name in names {
            // SAFETY: a string. The library is loaded, so nothing is run.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
            if !handle.is_null() {
                // SAFETY: a handle of `dlopen` is a link map, which begins with the address.
                loaded.push((handle, unsafe { *handle.cast::<usize>() }));
            }
        }
        Libraries { loaded }
    }

    /// The first definition of a function.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        self.loaded.iter().find_map(|&(handle, base)| {
            // SAFETY: handle and string are valid.
            let mut address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if address.is_null() {
                // SAFETY: as above. Functions that are kept for old programs have only a version.
                address = unsafe { libc::dlvsym(handle, name.as_ptr(), c"GLIBC_2.2.5".as_ptr()) };
            }
            // SAFETY: plain data.
            let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
            // SAFETY: `found` is valid for writes.
            let known = !address.is_null() && unsafe { libc::dladdr(address, &raw mut found) } != 0;
            (known && found.dli_fbase as usize == base).then_some(address as usize)
        })
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        for (handle, _) in &self.loaded {
            // SAFETY: given back once; the library stays, others hold it.
            unsafe { libc::dlclose(*handle) };
        }
    }
}

/// Finds all originals that are not known yet. `bound`: what an import of the program holds, by name.
pub(crate) fn resolve(bound: impl Fn(&str) -> Option<usize>) {
    let libraries = Libraries::new();
    for original in ORIGINALS.iter().filter(|original| original.address.load(Ordering::Relaxed) == 0) {
        let held = original.names.iter().find_map(|name| bound(name));
        let found = held.or_else(|| original.names.iter().find_map(|name| libraries.find(name)));
        if let Some(address) = found {
            original.address.store(address, Ordering::Relaxed);
        }
    }
}
