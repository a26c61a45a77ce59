//! The functions that stand in the place of libc's.
//!
//! Each asks first: a call on a path asks the [`Front`](crate::Front), a call on a descriptor looks into a
//! static array. What is not managed goes to libc as it came. `errno` is set where a call fails, and left alone
//! where it does not.
// These are C functions, called by a program with its own pointers.
#![allow(unsafe_code)]

mod bytes;
mod descriptors;
mod directories;
mod front;
mod names;
mod opening;
mod sizes;
mod streams;
mod transfer;

pub use bytes::MOST_PAGES;
pub use descriptors::DESCRIPTORS;
pub(crate) use front::set_front;

use std::ffi::c_void;

/// The function that takes the place of an import.
pub fn hook_of(name: &str) -> Option<*const c_void> {
    HOOKS.iter().find(|(names, _)| names.contains(&name)).map(|(_, hook)| hook.0)
}

/// Whether an import holds one of our functions.
pub(crate) fn is_hook(address: usize) -> bool {
    HOOKS.iter().any(|(_, hook)| hook.0 as usize == address)
}

/// An address of a function.
struct Address(*const c_void);

// SAFETY: nobody writes to a function.
unsafe impl Sync for Address {}

macro_rules! hooks {
    ($($($name:literal)|+ => $module:ident::$function:ident;)*) => {
        static HOOKS: &[(&[&str], Address)] =
            &[$((&[$($name),+], Address($module::$function as *const c_void))),*];
    };
}

hooks! {
    "open" | "open64" => opening::open;
    "__open_2" | "__open64_2" => opening::open_2;
    "creat" | "creat64" => opening::creat;
    "openat" | "openat64" => opening::openat;
    "__openat_2" | "__openat64_2" => opening::openat_2;
    "close" => opening::close;
    "dup" => opening::dup;
    "dup2" => opening::dup2;
    "dup3" => opening::dup3;
    "fcntl" | "fcntl64" => opening::fcntl;
    "ioctl" => opening::ioctl;
    "mmap" | "mmap64" => opening::mmap;
    "read" => transfer::read;
    "__read_chk" => transfer::read_chk;
    "readv" => transfer::readv;
    "pread" | "pread64" => transfer::pread;
    "__pread_chk" | "__pread64_chk" => transfer::pread_chk;
    "preadv" | "preadv64" => transfer::preadv;
    "preadv2" | "preadv64v2" => transfer::preadv2;
    "write" => transfer::write;
    "writev" => transfer::writev;
    "pwrite" | "pwrite64" => transfer::pwrite;
    "pwritev" | "pwritev64" => transfer::pwritev;
    "pwritev2" | "pwritev64v2" => transfer::pwritev2;
    "lseek" | "lseek64" => sizes::lseek;
    "ftruncate" | "ftruncate64" => sizes::ftruncate;
    "truncate" | "truncate64" => names::truncate;
    "fsync" => sizes::fsync;
    "fdatasync" => sizes::fdatasync;
    "stat" | "stat64" => names::stat_path;
    "lstat" | "lstat64" => names::lstat_path;
    "fstat" | "fstat64" => names::fstat;
    "fstatat" | "fstatat64" => names::fstatat;
    "__xstat" | "__xstat64" => names::xstat;
    "__lxstat" | "__lxstat64" => names::lxstat;
    "__fxstat" | "__fxstat64" => names::fxstat;
    "__fxstatat" | "__fxstatat64" => names::fxstatat;
    "access" => names::access;
    "unlink" => names::unlink;
    "rename" => names::rename;
    "link" => names::link;
    "rmdir" => names::rmdir;
    "opendir" => directories::opendir;
    "readdir" | "readdir64" => directories::readdir;
    "closedir" => directories::closedir;
    "posix_fallocate" | "posix_fallocate64" => sizes::posix_fallocate;
    "fallocate" | "fallocate64" => sizes::fallocate;
    "posix_fadvise" | "posix_fadvise64" => sizes::posix_fadvise;
    "sync_file_range" => sizes::sync_file_range;
    "copy_file_range" => sizes::copy_file_range;
    "sendfile" | "sendfile64" => sizes::sendfile;
    "fopen" | "fopen64" => streams::fopen;
    "freopen" | "freopen64" => streams::freopen;
}
