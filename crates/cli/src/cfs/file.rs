//! Containers in files: what the engine needs of them, over system calls.

use pgshrink_cfs::segment::BASE_NAME;
use pgshrink_cfs::{Device, DeviceError, Error, Folder, LockMode};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A container's file.
pub(crate) struct ContainerFile {
    file: File,
    folder: PathBuf,
    /// The plain file beside it, once it was needed.
    base: OnceLock<File>,
}

impl ContainerFile {
    fn new(file: File, folder: PathBuf) -> ContainerFile {
        ContainerFile { file, folder, base: OnceLock::new() }
    }

    fn base(&self) -> Result<&File, DeviceError> {
        if self.base.get().is_none() {
            let path = self.folder.join(BASE_NAME);
            // Commands that only read may have no right to write.
            let opened = OpenOptions::new().read(true).write(true).open(&path).or_else(|_| File::open(&path));
            let _ = self.base.set(opened.map_err(|error| failed(&error))?);
        }
        self.base.get().ok_or(DeviceError::NotFound)
    }

    /// For reading alone. While it is read no command begins to write to it, which would look like damage.
    pub(crate) fn read_only(path: &Path) -> io::Result<ContainerFile> {
        let file = File::open(path)?;
        let opened = ContainerFile::new(file, path.parent().unwrap_or(path).to_owned());
        // Where a filesystem has no locks, nobody has one.
        if opened.try_lock(LockMode::Shared) == Ok(false) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, in_use()));
        }
        Ok(opened)
    }
}

/// Reads until the buffer is full or the file ends.
fn read_all(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(got)
}

impl Device for ContainerFile {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        read_all(&self.file, buffer, offset)
    }

    fn base_pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        read_all(self.base()?, buffer, offset)
    }

    fn base_pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.base()?.write_all_at(bytes, offset).map_err(|error| failed(&error))
    }

    fn base_fdatasync(&self) -> Result<(), DeviceError> {
        self.base()?.sync_data().map_err(|error| failed(&error))
    }

    fn base_size(&self) -> Result<u64, DeviceError> {
        self.base()?.metadata().map(|metadata| metadata.len()).map_err(|error| failed(&error))
    }

    fn base_truncate(&self, size: u64) -> Result<(), DeviceError> {
        self.base()?.set_len(size).map_err(|error| failed(&error))
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.file.write_all_at(bytes, offset).map_err(|error| failed(&error))
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(|error| failed(&error))
    }

    fn size(&self) -> Result<u64, DeviceError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| failed(&error))
    }

    fn truncate(&self, size: u64) -> Result<(), DeviceError> {
        self.file.set_len(size).map_err(|error| failed(&error))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, how, offset, length) {
            // The filesystem has no holes; the space is reused instead.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(failed(&error.into())),
        }
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        sync_up(&self.folder)
    }

    /// The kernel lets the lock go when the file is closed, however the process ends.
    fn try_lock(&self, mode: LockMode) -> Result<bool, DeviceError> {
        let how = match mode {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match rustix::io::retry_on_intr(|| rustix::fs::flock(&self.file, how)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(failed(&error.into())),
        }
    }
}

/// What a command ends with that a container's lock keeps out, and what to do.
pub(crate) fn in_use() -> String {
    format!("{}; stop the server, or wait until the other command has ended", Error::InUse)
}

/// A segment's directory.
pub(crate) struct SegmentFolder(pub(crate) PathBuf);

impl Folder for SegmentFolder {
    type File = ContainerFile;

    fn create(&self, name: &str) -> Result<ContainerFile, DeviceError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(self.0.join(name)).map_err(|error| failed(&error))?;
        Ok(ContainerFile::new(file, self.0.clone()))
    }

    fn open(&self, name: &str) -> Result<ContainerFile, DeviceError> {
        let file = OpenOptions::new().read(true).write(true).open(self.0.join(name));
        let file = file.map_err(|error| failed(&error))?;
        Ok(ContainerFile::new(file, self.0.clone()))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        std::fs::rename(self.0.join(from), self.0.join(to)).map_err(|error| failed(&error))
    }

    fn unlink(&self, name: &str) -> Result<(), DeviceError> {
        std::fs::remove_file(self.0.join(name)).map_err(|error| failed(&error))
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        sync_up(&self.0)
    }
}

/// The segment's directory is new, so its own name is to be made durable as well.
fn sync_up(folder: &Path) -> Result<(), DeviceError> {
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for folder in [folder, above] {
        File::open(folder).and_then(|file| file.sync_all()).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn failed(error: &io::Error) -> DeviceError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => DeviceError::NoSpace,
        Some(Errno::NOENT) => DeviceError::NotFound,
        Some(Errno::EXIST) => DeviceError::Exists,
        Some(Errno::MFILE | Errno::NFILE) => DeviceError::NoDescriptor,
        Some(other) => DeviceError::Io(other.raw_os_error()),
        None => DeviceError::Io(Errno::IO.raw_os_error()),
    }
}
