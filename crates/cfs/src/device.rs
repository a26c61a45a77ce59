//! What a container needs of a file and of the folder it lies in.
//!
//! A shell implements these over system calls, the simulator ([`crate::sim`]) over a model of a disk. The
//! engine believes of the medium what `formats/cfs.md` states under "The medium", and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::seal::Seal;

/// Where an operation of the world outside failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No space left for these bytes (ENOSPC, EDQUOT). Nothing that was readable has changed.
    #[error("no space left on the device")]
    NoSpace,
    /// No file of that name.
    #[error("no such file")]
    NotFound,
    /// A file of that name is there already.
    #[error("file exists")]
    Exists,
    /// The process, or the system, has no file descriptor left for it (EMFILE, ENFILE). Nothing was tried.
    #[error("no file descriptor left")]
    NoDescriptor,
    /// Anything else, with the system's error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Io(i32),
}

/// What the reserve is drawn on for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Rewriting a page that is there already.
    Page,
    /// A commit, which frees space in the end. Part of the reserve is kept for these.
    Commit,
}

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// With others that lock it so.
    Shared,
    /// Alone.
    Exclusive,
}

/// One open container file. Shared by reference: the calls take `&self` and may run at the same time.
pub trait Device {
    /// Fills `buffer` from byte `offset` on; returns how much, less than the whole only at the end of the
    /// file.
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError>;

    /// Writes all of `bytes` at byte `offset`, growing the file as needed. After an error any part of them
    /// may be there.
    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError>;

    /// Makes everything written so far, by any process, and the file's size durable.
    fn fdatasync(&self) -> Result<(), DeviceError>;

    /// Asks for what was written to be on its way to the medium, so that an [`fdatasync`](Self::fdatasync)
    /// soon after has less to wait for (`sync_file_range` with `SYNC_FILE_RANGE_WRITE` alone). It waits for
    /// nothing and promises nothing; a medium that cannot does nothing. An error means what one of
    /// `fdatasync` means.
    fn begin_writeback(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Bytes of the file, holes included.
    fn size(&self) -> Result<u64, DeviceError>;

    /// Cuts the file to `size` bytes. Not used to grow.
    fn truncate(&self, size: u64) -> Result<(), DeviceError>;

    /// Which base the calls that follow mean. A segment may have one after the other, all of one name: a descriptor
    /// that was opened for another number than this is of a file that is gone.
    fn use_base(&self, number: u64) {
        let _ = number;
    }

    /// As [`pread`](Self::pread), of the base: the plain file beside the container.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`] where there is none.
    fn base_pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        let _ = (buffer, offset);
        Err(DeviceError::NotFound)
    }

    /// As [`pwrite`](Self::pwrite), of the base.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`] where there is none.
    fn base_pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        let _ = (bytes, offset);
        Err(DeviceError::NotFound)
    }

    /// As [`fdatasync`](Self::fdatasync), of the base.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`] where there is none.
    fn base_fdatasync(&self) -> Result<(), DeviceError> {
        Err(DeviceError::NotFound)
    }

    /// Bytes of the base.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`] where there is none.
    fn base_size(&self) -> Result<u64, DeviceError> {
        Err(DeviceError::NotFound)
    }

    /// Makes the base so long: cuts it, or lets it grow by a hole.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`] where there is none.
    fn base_truncate(&self, size: u64) -> Result<(), DeviceError> {
        let _ = size;
        Err(DeviceError::NotFound)
    }

    /// Gives the space of these bytes back; they read as zeros. A medium that cannot may do nothing.
    fn punch_hole(&self, offset: u64, length: u64) -> Result<(), DeviceError>;

    /// Makes the file's name durable: its folder, and each folder above that was made with it.
    fn sync_dir(&self) -> Result<(), DeviceError>;

    /// Locks the file, or changes the lock that this opening of it holds; false: another one's is in the way,
    /// and nothing has changed but that a lock may have been lost that was to be raised. The lock goes with
    /// the opening's last descriptor, however its processes end (`flock`, or `F_OFD_SETLK`).
    fn try_lock(&self, mode: LockMode) -> Result<bool, DeviceError>;

    /// Asks for `bytes` of the tablespace's reserve ([`crate::engine::reserve`]) to be given to the
    /// filesystem, because what is under way must not fail. False: there is none, or none for this need.
    fn release_reserve(&self, bytes: u64, need: Need) -> bool {
        let _ = (bytes, need);
        false
    }

    /// A writer has moved so many bytes of other pages, and committed so many times, because there was too much
    /// garbage: for who keeps statistics.
    fn note_writer_collected(&self, moved_bytes: u64, commits: u64) {
        let _ = (moved_bytes, commits);
    }

    /// The seal that the file was opened with, where each file has its own and [`Options::seal`] is none.
    ///
    /// [`Options::seal`]: crate::Options::seal
    fn seal(&self) -> Option<&dyn Seal> {
        None
    }

    /// A place between two steps of the engine: a simulator switches or kills here. Nothing in a shell.
    fn pause(&self) {}
}

/// The folder that stands in a segment's place and holds its container.
pub trait Folder {
    /// What opening gives.
    type File: Device;

    /// Makes an empty file. Its name is durable after [`Device::sync_dir`] or [`sync_dir`](Self::sync_dir).
    fn create(&self, name: &str) -> Result<Self::File, DeviceError>;

    /// Opens a file.
    fn open(&self, name: &str) -> Result<Self::File, DeviceError>;

    /// Gives a file another name, replacing what has it.
    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError>;

    /// Removes a name.
    fn unlink(&self, name: &str) -> Result<(), DeviceError>;

    /// Makes names made, changed and removed so far durable.
    fn sync_dir(&self) -> Result<(), DeviceError>;
}

/// The processes that share a container, as one of them sees it.
pub trait ProcessTable {
    /// This thread of execution: not zero, the same for as long as it lives, and never used again by another
    /// while the shared memory lives (a process id with the time it started). A thread that finds itself the
    /// holder of a lock that it asks for takes it for one that it left behind by a jump: so two threads must
    /// never have one name.
    fn me(&self) -> u64;

    /// Whether the process still runs. A wrong "no" breaks locks, a wrong "yes" makes everybody wait.
    fn is_alive(&self, peer: u64) -> bool;

    /// Lets others run, before a lock is tried again: yields or sleeps a little.
    fn relax(&self);

    /// Collection has moved a record or given an extent back, and goes on: who collects in the background may rest
    /// here, so that writers wait for no long run of these. Nothing but the collector's lock is held.
    fn after_move(&self) {}
}

/// A process that has the container to itself. Its threads may share it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THREAD: u64 = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
}

impl ProcessTable for Alone {
    fn me(&self) -> u64 {
        THREAD.with(|number| *number)
    }

    /// Threads do not end inside a call: a panic drops what they hold.
    fn is_alive(&self, _: u64) -> bool {
        true
    }

    fn relax(&self) {
        std::thread::yield_now();
    }
}
