//! libc's functions and the hooks of the same names, to be called alike.
// C functions are called.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{FILE, iovec, off_t, size_t, ssize_t};
use pgshrink_interpose::hooks::hook_of;
use pgshrink_interpose::prepare;

use crate::plain_front::FRONT;

macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $real:expr, $symbol:literal;)*) => {
        /// One side.
        #[derive(Clone, Copy)]
        #[allow(dead_code)]
        pub struct Calls {
            $(pub $name: unsafe extern "C" fn($($kind),*) -> $result,)*
        }

        /// libc's.
        pub fn real() -> Calls {
            $(unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                // SAFETY: as the test has called it.
                unsafe { $real($($argument),*) }
            })*
            Calls { $($name,)* }
        }

        /// The hooks.
        pub fn hooks() -> Calls {
            prepare(&FRONT).expect("there is only this front in the tests");
            // SAFETY: the hook of this name has this signature.
            Calls { $($name: unsafe {
                std::mem::transmute::<*const c_void, unsafe extern "C" fn($($kind),*) -> $result>(
                    hook_of($symbol).expect("the function is hooked"),
                )
            },)* }
        }
    };
}

unsafe extern "C" {
    fn __read_chk(fd: c_int, to: *mut c_void, length: size_t, room: size_t) -> ssize_t;
    fn __pread_chk(fd: c_int, to: *mut c_void, length: size_t, at: off_t, room: size_t) -> ssize_t;
    fn __xstat(version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int;
    fn __lxstat(version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int;
    fn __fxstat(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int;
}

calls! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = libc::open, "open";
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int = libc::openat, "openat";
    fn creat(path: *const c_char, mode: c_uint) -> c_int = libc::creat, "creat";
    fn close(fd: c_int) -> c_int = libc::close, "close";
    fn dup(fd: c_int) -> c_int = libc::dup, "dup";
    fn dup2(fd: c_int, to: c_int) -> c_int = libc::dup2, "dup2";
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = libc::fcntl, "fcntl";
    fn ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int = libc::ioctl, "ioctl";
    fn mmap(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t)
        -> *mut c_void = libc::mmap, "mmap";
    fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t = libc::read, "read";
    fn read_chk(fd: c_int, to: *mut c_void, length: size_t, room: size_t) -> ssize_t = __read_chk, "__read_chk";
    fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t = libc::readv, "readv";
    fn pread(fd: c_int, to: *mut c_void, length: size_t, at: off_t) -> ssize_t = libc::pread, "pread64";
    fn pread_chk(fd: c_int, to: *mut c_void, length: size_t, at: off_t, room: size_t) -> ssize_t
        = __pread_chk, "__pread_chk";
    fn preadv(fd: c_int, buffers: *const iovec, count: c_int, at: off_t) -> ssize_t = libc::preadv, "preadv";
    fn preadv2(fd: c_int, buffers: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = libc::preadv2, "preadv2";
    fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t = libc::write, "write";
    fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t = libc::writev, "writev";
    fn pwrite(fd: c_int, from: *const c_void, length: size_t, at: off_t) -> ssize_t = libc::pwrite, "pwrite";
    fn pwritev(fd: c_int, buffers: *const iovec, count: c_int, at: off_t) -> ssize_t = libc::pwritev, "pwritev";
    fn pwritev2(fd: c_int, buffers: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = libc::pwritev2, "pwritev2";
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = libc::lseek, "lseek";
    fn ftruncate(fd: c_int, size: off_t) -> c_int = libc::ftruncate, "ftruncate";
    fn truncate(path: *const c_char, size: off_t) -> c_int = libc::truncate, "truncate";
    fn fsync(fd: c_int) -> c_int = libc::fsync, "fsync";
    fn fdatasync(fd: c_int) -> c_int = libc::fdatasync, "fdatasync";
    fn stat(path: *const c_char, to: *mut libc::stat) -> c_int = libc::stat, "stat";
    fn lstat(path: *const c_char, to: *mut libc::stat) -> c_int = libc::lstat, "lstat64";
    fn fstat(fd: c_int, to: *mut libc::stat) -> c_int = libc::fstat, "fstat";
    fn fstatat(at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int
        = libc::fstatat, "fstatat";
    fn xstat(version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int = __xstat, "__xstat";
    fn lxstat(version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int = __lxstat, "__lxstat";
    fn fxstat(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int = __fxstat, "__fxstat64";
    fn access(path: *const c_char, mode: c_int) -> c_int = libc::access, "access";
    fn unlink(path: *const c_char) -> c_int = libc::unlink, "unlink";
    fn rename(from: *const c_char, to: *const c_char) -> c_int = libc::rename, "rename";
    fn link(from: *const c_char, to: *const c_char) -> c_int = libc::link, "link";
    fn rmdir(path: *const c_char) -> c_int = libc::rmdir, "rmdir";
    fn opendir(path: *const c_char) -> *mut libc::DIR = libc::opendir, "opendir";
    fn readdir(directory: *mut libc::DIR) -> *mut libc::dirent = libc::readdir, "readdir";
    fn closedir(directory: *mut libc::DIR) -> c_int = libc::closedir, "closedir";
    fn posix_fallocate(fd: c_int, at: off_t, length: off_t) -> c_int = libc::posix_fallocate, "posix_fallocate";
    fn fallocate(fd: c_int, mode: c_int, at: off_t, length: off_t) -> c_int = libc::fallocate, "fallocate";
    fn posix_fadvise(fd: c_int, at: off_t, length: off_t, advice: c_int) -> c_int
        = libc::posix_fadvise, "posix_fadvise";
    fn sync_file_range(fd: c_int, at: off_t, length: off_t, flags: c_uint) -> c_int
        = libc::sync_file_range, "sync_file_range";
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, length: size_t, flags: c_uint)
        -> ssize_t = libc::copy_file_range, "copy_file_range";
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t = libc::sendfile, "sendfile";
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = libc::fopen, "fopen";
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = libc::freopen, "freopen";
}
