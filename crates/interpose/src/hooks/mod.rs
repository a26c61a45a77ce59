//! The functions that stand in the place of libc's.
//!
//! Each asks first: a call on a path asks the [`Front`](crate::Front), a call on a descriptor looks into a
//! static array. What is not managed goes to libc as it came. `errno` is set where a call fails, and left alone
//! where it does not.
//!
//! # What PostgreSQL 15 to 18 make of the errors
//!
//! | call site | call | error | what the server does |
//! |---|---|---|---|
//! | md.c, fd.c open | `open` | ENOENT | as the caller wants: none there, or created (recovery), else ERROR |
//! | | | EMFILE, ENFILE | closes a file of its own and tries again; with none left ERROR |
//! | | | others, EISDIR | ERROR "could not open file" |
//! | md.c read | `pread`, `preadv` | EINTR | again |
//! | | | others | ERROR "could not read block"; from a worker of 18 in the process that asked |
//! | | | a short result | ERROR XX001 "read only"; zeros in recovery or with `zero_damaged_pages` |
//! | md.c write, extend | `pwrite`, `pwritev` | EINTR | again |
//! | | | ENOSPC and others | ERROR "could not write block", "could not extend file"; PANIC in recovery's end |
//! | | | a short result | 15, 16: ERROR 53100 "wrote only"; 17, 18: goes on behind it |
//! | md.c extend, 16+ | `posix_fallocate` | EINVAL, EOPNOTSUPP | writes zeros instead |
//! | | | ENOSPC and others | ERROR "could not extend file" |
//! | md.c size | `lseek(SEEK_END)` | any | ERROR "could not seek to end of file" |
//! | md.c truncate | `ftruncate` | any | ERROR; PANIC, as it is in a critical section |
//! | md.c sync, sync.c | `fsync` | any | PANIC, unless `data_sync_retry` |
//! | sync.c, by name | `open`, `fsync` | ENOENT | again, after it has looked for a removal; then PANIC |
//! | md.c writeback | `sync_file_range` | ENOSYS | none |
//! | | | others | PANIC, unless `data_sync_retry`: the hook says 0, the sync that follows says it |
//! | md.c prefetch | `posix_fadvise` | any | none |
//! | fd.c | `close` | any | LOG; PANIC in `LruDelete`: the hook never fails |
//! | md.c unlink | `truncate`, `unlink` | ENOENT | none |
//! | | | others | WARNING: the file stays |
//! | catalog.c | `access` | any | the number is free: so a front must not fail where the file is there |
//! | dbsize.c | `stat` | ENOENT | counts what it has |
//! | | | others | ERROR |
//! | copydir.c | `lstat`, `open`, `read`, `write` | any | ERROR |
//! | copydir.c of 18 | `copy_file_range` | any, EINVAL too | ERROR: so it is done by reading and writing |
//! | basebackup | `lstat` | ENOENT | leaves the file out |
//! | | `pread` | any | ERROR; a short result is filled up with zeros |
//! | genfile.c | `fopen` | ENOENT | NULL where the caller allows it, else ERROR |
//! | | `fread`, `fseeko` | any | ERROR |
//! | reinit.c | `readdir`, `unlink` | any | ERROR: the server does not start |
//! | tablespace.c, dbcommands.c | `rmdir`, `readdir` | any | ERROR or WARNING, by the statement |
//!
//! # What is as on a plain file, and what is not
//!
//! Results, positions, `errno` and contents are those of a plain file that is extended with zeros to a whole
//! page after each call; a test runs random calls on both. Not so: an address that is not valid ends the
//! process, where the kernel has EFAULT; duplicates, mappings and clones are refused (see the module
//! `opening`); holes cannot be made (EOPNOTSUPP); `O_DIRECT` is left out; a file ends at
//! [`MOST_PAGES`]: EFBIG behind it.
//!
//! # Names that change meanwhile
//!
//! A name may become a managed file's between the front's "none of mine" and libc's look at it, or the other way
//! round. An open asks whether the front's moment is still the one of before, and if it is not, compares what it got
//! with what the name is now. Where libc met a directory that may be a managed file, the front is asked again. See the
//! module `changing`.
//!
//! # Processes and threads
//!
//! Calls come from one thread of a process at a time, as the server's do. A forked process has its parent's
//! table, with positions of its own from then on. A hook runs in signal handlers as far as the function does
//! that it stands for: on descriptors that are not managed.
// These are C functions, called by a program with its own pointers.
#![allow(unsafe_code)]

mod bytes;
mod changing;
mod descriptors;
mod directories;
mod folders;
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
    "unlinkat" => folders::unlinkat;
    "faccessat" => folders::faccessat;
    "renameat" => folders::renameat;
    "renameat2" => folders::renameat2;
    "linkat" => folders::linkat;
    "statx" => folders::statx_path;
    "opendir" => directories::opendir;
    "fdopendir" => directories::fdopendir;
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
    "fdopen" | "_IO_fdopen" => streams::fdopen;
}
