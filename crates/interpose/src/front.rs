//! What stands behind the hooks: paths and descriptors in, pages and errors out.

use std::ffi::CStr;
use std::os::fd::RawFd;

use crate::pages::{PagesToRead, PagesToWrite};

/// Bytes of a page: all reads and writes of a managed file are of whole pages.
pub const PAGE_BYTES: usize = 8192;

/// A positive error number of libc, as it is put into `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// What a call of a [`Front`] comes to. `None`: the path is none of its files, and the hook calls libc.
pub type Outcome<T> = Option<Result<T, Errno>>;

/// What a managed name is, to those who ask for its attributes.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// What the system says of the file that holds the pages: owner, times, allocated blocks. Its size and
    /// kind are set by the hook.
    pub stat: libc::stat,
    /// Bytes that a reader finds.
    pub size: u64,
}

/// A moment before a name was looked at, in a front's own count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(pub u64);

/// What is done about an entry that a directory's listing shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// Shown as it is.
    Shown,
    /// Shown, as a regular file.
    File,
    /// Not shown.
    Hidden,
}

/// A reason to read ahead or write back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// `POSIX_FADV_WILLNEED`.
    WillNeed,
    /// `sync_file_range` and `POSIX_FADV_DONTNEED`.
    WriteBack,
}

/// Files that are not what the program takes them for.
///
/// A *managed* file is one that `open` has said `Some(Ok(descriptor))` of. The hooks remember descriptors and
/// ask for the calls below only with those; they keep the position of `read`, `write` and `lseek`, and turn
/// byte ranges into whole pages. Calls come from one thread of a process at a time. None may unwind, leave by
/// a jump, or call a function of the program.
///
/// A name may become a managed file's, or cease to be one's, while a call on it is under way: the front says "none
/// of mine", and by the time libc looks at the name it is. So the hooks look again ([`moment`](Self::moment)).
pub trait Front: Sync {
    /// Before a name is looked at: the moment. `None`: the name never becomes a managed file's. Called for every
    /// path that is opened, so it must cost next to nothing.
    fn moment(&self, path: &CStr) -> Option<Moment> {
        let _ = path;
        None
    }

    /// Whether no name has changed since this moment, and none was changing then.
    fn is_still(&self, moment: Moment) -> bool {
        let _ = moment;
        true
    }

    /// Whether a managed file may have this name. Called where a name may have changed, which is rare.
    fn may_manage(&self, path: &CStr) -> bool {
        let _ = path;
        false
    }

    /// `open`: a real descriptor, which stays the file's until [`close`](Self::close).
    ///
    /// Making, emptying and refusing (`O_CREAT`, `O_TRUNC`, `O_EXCL`) is the front's affair, and so is
    /// `O_CLOEXEC`. Access modes, `O_APPEND` and `O_SYNC` are the hooks': pages are read through a descriptor
    /// for writing too, where a part of one is written. `O_DIRECT` and `O_DIRECTORY` do not come here.
    fn open(&self, path: &CStr, flags: i32, mode: libc::mode_t) -> Outcome<RawFd>;

    /// `stat` and `lstat`.
    fn attributes(&self, path: &CStr) -> Outcome<Attributes>;

    /// `access`: as for a regular file of that name.
    fn access(&self, path: &CStr, mode: i32) -> Outcome<()>;

    /// `truncate`, to whole pages; to a size within a page the hooks open the file.
    fn truncate_path(&self, path: &CStr, size: u64) -> Outcome<()>;

    /// `unlink`.
    fn unlink(&self, path: &CStr) -> Outcome<()>;

    /// `rename`: of a managed file, or to the name of one.
    fn rename(&self, from: &CStr, to: &CStr) -> Outcome<()>;

    /// `link`.
    fn link(&self, from: &CStr, to: &CStr) -> Outcome<()>;

    /// `rmdir`: before the hook calls libc, so that what is not shown may be removed. `Some(Err)` fails the
    /// call; `Some(Ok)` says that the directory is gone.
    fn remove_directory(&self, path: &CStr) -> Outcome<()>;

    /// Whether entries of a directory need [`listed`](Self::listed), and by which number it is known there.
    fn open_directory(&self, path: &CStr) -> Option<u64>;

    /// How an entry of such a directory is shown. `kind`: the system's `d_type`.
    fn listed(&self, directory: u64, name: &CStr, kind: u8) -> Listed;

    /// `close`: what is kept for the descriptor goes. The hook closes the descriptor itself afterwards; where
    /// another function has closed it behind the hooks' back, it may be another file's by now.
    fn close(&self, descriptor: RawFd);

    /// Pages of the file.
    fn pages(&self, descriptor: RawFd) -> Result<u32, Errno>;

    /// Reads pages from `first` on; returns how many, fewer only at the end of the file or before a page that
    /// cannot be read. An error: not even the first could be read.
    fn read(&self, descriptor: RawFd, first: u32, pages: &mut PagesToRead<'_>) -> Result<u32, Errno>;

    /// Writes pages from `first` on; returns how many, fewer only before one that failed. A file grows by
    /// writing behind its end; pages between are of zeros.
    fn write(&self, descriptor: RawFd, first: u32, pages: &mut PagesToWrite<'_>) -> Result<u32, Errno>;

    /// Grows the file to `pages` pages, with zeros (`posix_fallocate`). Does nothing to a longer file.
    fn extend(&self, descriptor: RawFd, pages: u32) -> Result<(), Errno>;

    /// `ftruncate`: to fewer pages, or to more, which are of zeros.
    fn truncate(&self, descriptor: RawFd, pages: u32) -> Result<(), Errno>;

    /// `fsync` and `fdatasync`.
    fn sync(&self, descriptor: RawFd) -> Result<(), Errno>;

    /// What is about to be read or was just written.
    fn advise(&self, descriptor: RawFd, first: u32, pages: u32, advice: Advice);

    /// `fstat`.
    fn descriptor_attributes(&self, descriptor: RawFd) -> Result<Attributes, Errno>;
}
