//! The world for tests of real processes: a file, a folder, memory that processes share.
// Mapped memory is what the engine's shared state is for.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use pgshrink_cfs::reserve::{Reserve, ReserveFile};
use pgshrink_cfs::{Device, DeviceError, Folder, LockMode, Need, ProcessTable};

/// Held for reading by who starts a process, until that has only what is its own. It has every descriptor of this one
/// before, and so the locks of files that other tests have closed.
static STARTS: RwLock<()> = RwLock::new(());

/// No descriptor of a test is higher.
const LAST_DESCRIPTOR: i32 = 800;

/// Runs `start`, which starts a process. Every test of this program has to start its processes by this.
pub fn starting<T>(start: impl FnOnce() -> T) -> T {
    let _starts = STARTS.read().unwrap_or_else(PoisonError::into_inner);
    let (mut ended, open) = std::io::pipe().unwrap();
    let last = rustix::io::fcntl_dupfd_cloexec(&open, LAST_DESCRIPTOR).unwrap();
    drop(open);
    let started = start();
    drop(last);
    // The kernel lets this process go on before it closes the other's descriptors, from the lowest to the highest.
    ended.read_to_end(&mut Vec::new()).unwrap();
    started
}

/// A file of the filesystem.
pub struct FileDevice {
    file: File,
    folder: PathBuf,
    reserve: Option<Arc<FileReserve>>,
    /// Some: the file is locked for all processes of the server of this number.
    server: Option<u32>,
}

/// A reserve in a file.
pub type FileReserve = Reserve<Held>;

/// The reserve's file.
pub struct Held(pub File);

/// A directory of the filesystem.
pub struct FileFolder(pub PathBuf);

fn failed(error: std::io::Error) -> DeviceError {
    match error.kind() {
        std::io::ErrorKind::NotFound => DeviceError::NotFound,
        std::io::ErrorKind::AlreadyExists => DeviceError::Exists,
        std::io::ErrorKind::StorageFull => DeviceError::NoSpace,
        _ => DeviceError::Io(error.raw_os_error().unwrap_or_default()),
    }
}

fn sync_dir(folder: &Path) -> Result<(), DeviceError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

impl Device for FileDevice {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        let mut got = 0;
        while got < buffer.len() {
            match self.file.read_at(&mut buffer[got..], offset + got as u64).map_err(failed)? {
                0 => break,
                more => got += more,
            }
        }
        Ok(got)
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.file.write_all_at(bytes, offset).map_err(failed)
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(failed)
    }

    fn begin_writeback(&self) -> Result<(), DeviceError> {
        use std::os::fd::AsRawFd;
        // SAFETY: the call takes an open descriptor and numbers, and no memory.
        let done = unsafe { libc::sync_file_range(self.file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        match done {
            0 => Ok(()),
            _ => match std::io::Error::last_os_error() {
                // Not on this kernel or filesystem.
                error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE)) => {
                    Ok(())
                }
                error => Err(failed(error)),
            },
        }
    }

    fn size(&self) -> Result<u64, DeviceError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(failed)
    }

    fn truncate(&self, size: u64) -> Result<(), DeviceError> {
        self.file.set_len(size).map_err(failed)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        use rustix::fs::FallocateFlags as Flags;
        let done = rustix::fs::fallocate(&self.file, Flags::PUNCH_HOLE | Flags::KEEP_SIZE, offset, length);
        match done {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        sync_dir(&self.folder)
    }

    fn try_lock(&self, mode: LockMode) -> Result<bool, DeviceError> {
        if self.lock(mode)? {
            return Ok(true);
        }
        let _none_starts = STARTS.write().unwrap_or_else(PoisonError::into_inner);
        self.lock(mode)
    }

    fn release_reserve(&self, bytes: u64, need: Need) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.release(bytes, need))
    }
}

/// Every process of a server locks the server's byte, and looks whether a byte of another server is locked:
/// so neither mode keeps out the server's own processes, and both keep out others. Beside that the file is
/// locked for sharing, against commands that write.
fn lock_for_server(file: &File, server: u32) -> std::io::Result<bool> {
    use std::os::fd::AsRawFd;
    match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
        done => done?,
    }
    let call = |command, kind: i32, from: i64, length: i64| {
        let lock = libc::flock {
            l_type: kind as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: from,
            l_len: length,
            l_pid: 0,
        };
        let mut lock = lock;
        // SAFETY: the descriptor is open as long as `file` is borrowed, and the struct lives across the call,
        // which writes to it alone.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(lock.l_type == libc::F_UNLCK as i16),
        }
    };
    // Behind all that a file can have.
    let (first, servers) = (1 << 62, 1 << 32);
    let own = first + i64::from(server);
    match call(libc::F_OFD_SETLK, libc::F_RDLCK, own, 1) {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(false),
        done => done?,
    };
    let is_free = |from: i64, to: i64| {
        Ok::<_, std::io::Error>(from == to || call(libc::F_OFD_GETLK, libc::F_WRLCK, from, to - from)?)
    };
    let is_alone = is_free(first, own)? && is_free(own + 1, first + servers)?;
    if !is_alone {
        call(libc::F_OFD_SETLK, libc::F_UNLCK, own, 1)?;
    }
    Ok(is_alone)
}

impl FileDevice {
    fn lock(&self, mode: LockMode) -> Result<bool, DeviceError> {
        use rustix::fs::FlockOperation as Lock;
        if let Some(server) = self.server {
            return lock_for_server(&self.file, server).map_err(failed);
        }
        let how = match mode {
            LockMode::Shared => Lock::NonBlockingLockShared,
            LockMode::Exclusive => Lock::NonBlockingLockExclusive,
        };
        match rustix::fs::flock(&self.file, how) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Of a server, whose processes share what they know of the file.
    pub fn of_server(self, server: u32) -> FileDevice {
        FileDevice { server: Some(server), ..self }
    }

    /// Draws on a reserve from now on.
    pub fn with_reserve(self, reserve: &Arc<FileReserve>) -> FileDevice {
        FileDevice { reserve: Some(reserve.clone()), ..self }
    }
}

impl ReserveFile for Held {
    fn size(&self) -> Result<u64, DeviceError> {
        self.0.metadata().map(|metadata| metadata.len()).map_err(failed)
    }

    fn shrink(&self, size: u64) -> Result<(), DeviceError> {
        self.0.set_len(size).map_err(failed)
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&self.0, flags, 0, size).map_err(|error| failed(error.into()))
    }

    fn free_bytes(&self) -> Result<u64, DeviceError> {
        let found = rustix::fs::fstatvfs(&self.0).map_err(|error| failed(error.into()))?;
        Ok(found.f_bavail * found.f_frsize)
    }
}

impl FileFolder {
    fn file(&self, file: File) -> FileDevice {
        FileDevice { file, folder: self.0.clone(), reserve: None, server: None }
    }
}

impl Folder for FileFolder {
    type File = FileDevice;

    fn create(&self, name: &str) -> Result<FileDevice, DeviceError> {
        let file = File::options().read(true).write(true).create_new(true).open(self.0.join(name));
        file.map(|file| self.file(file)).map_err(failed)
    }

    fn open(&self, name: &str) -> Result<FileDevice, DeviceError> {
        let file = File::options().read(true).write(true).open(self.0.join(name));
        file.map(|file| self.file(file)).map_err(failed)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        std::fs::rename(self.0.join(from), self.0.join(to)).map_err(failed)
    }

    fn unlink(&self, name: &str) -> Result<(), DeviceError> {
        std::fs::remove_file(self.0.join(name)).map_err(failed)
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        sync_dir(&self.0)
    }
}

/// Calls that a device which wraps another one, its field `device`, hands on as they are.
macro_rules! handed_on {
    () => {
        fn size(&self) -> Result<u64, pgshrink_cfs::DeviceError> {
            self.device.size()
        }

        fn truncate(&self, size: u64) -> Result<(), pgshrink_cfs::DeviceError> {
            self.device.truncate(size)
        }

        fn punch_hole(&self, offset: u64, length: u64) -> Result<(), pgshrink_cfs::DeviceError> {
            self.device.punch_hole(offset, length)
        }

        fn sync_dir(&self) -> Result<(), pgshrink_cfs::DeviceError> {
            self.device.sync_dir()
        }

        fn try_lock(&self, mode: pgshrink_cfs::LockMode) -> Result<bool, pgshrink_cfs::DeviceError> {
            self.device.try_lock(mode)
        }
    };
}
pub(crate) use handed_on;

/// A device that counts reads, and fails those of one byte.
pub struct Watched<D> {
    device: D,
    pub preads: Cell<u64>,
    pub bad_byte: Cell<Option<u64>>,
}

impl<D> Watched<D> {
    pub fn new(device: D) -> Watched<D> {
        Watched { device, preads: Cell::new(0), bad_byte: Cell::new(None) }
    }
}

impl<D: Device> Device for Watched<D> {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        self.preads.set(self.preads.get() + 1);
        let range = offset..offset + buffer.len() as u64;
        if self.bad_byte.get().is_some_and(|bad| range.contains(&bad)) {
            return Err(DeviceError::Io(5));
        }
        self.device.pread(buffer, offset)
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.device.pwrite(bytes, offset)
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        self.device.fdatasync()
    }

    crate::shell::handed_on!();
}

/// Words of a file that all processes map.
pub fn map(path: &Path, words: usize) -> &'static [AtomicU64] {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    map_file(&file, words)
}

/// Words of memory that has no name, and the file that knows how much of it there is.
pub fn anonymous(words: usize) -> (File, &'static [AtomicU64]) {
    let memory = rustix::fs::memfd_create("words", rustix::fs::MemfdFlags::empty()).unwrap();
    let memory = File::from(memory);
    let words = map_file(&memory, words);
    (memory, words)
}

pub fn allocated_bytes(memory: &File) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&memory.metadata().unwrap()) * 512
}

fn map_file(file: &File, words: usize) -> &'static [AtomicU64] {
    file.set_len(words as u64 * 8).unwrap();
    use rustix::mm::{MapFlags, ProtFlags};
    // SAFETY: a new mapping, as long as the file, which nobody cuts; never unmapped. Every bit pattern is a
    // word, and all access is atomic.
    unsafe {
        let start = rustix::mm::mmap(
            std::ptr::null_mut(),
            words * 8,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file,
            0,
        );
        std::slice::from_raw_parts(start.unwrap().cast(), words)
    }
}

/// Processes by their ids. The parent reaps the dead at once.
#[derive(Clone, Copy)]
pub struct Pids;

impl ProcessTable for Pids {
    fn me(&self) -> u64 {
        std::process::id().into()
    }

    fn is_alive(&self, peer: u64) -> bool {
        let pid = rustix::process::Pid::from_raw(peer as i32);
        pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    }

    fn relax(&self) {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}
