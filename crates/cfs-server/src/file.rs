//! Containers in files, for a server's processes: system calls on descriptors, without an allocation.
// System calls with buffers.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use pgshrink_cfs::seal::RecordSeal;
use pgshrink_cfs::segment::{BASE_NAME, clear};
use pgshrink_cfs::slots::{Access, Opened, Opener, SegmentKey};
use pgshrink_cfs::{Device, DeviceError, Folder, LockMode, Need, Options, Recovery, Seal};

use crate::host::errno;
use crate::names::PathBuffer;
use crate::secrets::Kernel;
use crate::server::Shared;

/// First of the bytes that servers lock: behind all that a file can have.
const LOCKS_AT: i64 = 1 << 62;
/// As many as there are server numbers.
const LOCKS: i64 = 1 << 32;

/// A container's file, by a descriptor that is the server's own: closed by whoever it was given to.
pub(crate) struct SegmentFile {
    descriptor: RawFd,
    /// Whether it is closed with this.
    is_owned: bool,
    key: SegmentKey,
    shared: &'static Shared,
    /// Where the container is encrypted.
    seal: Option<Box<RecordSeal<Kernel>>>,
    /// Whether this opening has its locks, which go with it.
    is_locked: AtomicBool,
    base: BaseFile,
}

/// The plain file beside a container: its descriptor, or -1, and which of the segment's bases it was opened for.
struct BaseFile {
    descriptor: AtomicI32,
    number: AtomicU64,
}

impl BaseFile {
    const fn none() -> BaseFile {
        BaseFile { descriptor: AtomicI32::new(-1), number: AtomicU64::new(0) }
    }

    fn close(&self) {
        let descriptor = self.descriptor.swap(-1, Ordering::Relaxed);
        if descriptor >= 0 {
            // SAFETY: opened by `SegmentFile::base` for this alone.
            unsafe { libc::close(descriptor) };
        }
    }
}

impl SegmentFile {
    /// A file that somebody else closes.
    pub(crate) fn borrowed(descriptor: RawFd, key: SegmentKey, shared: &'static Shared) -> SegmentFile {
        SegmentFile {
            descriptor,
            is_owned: false,
            key,
            shared,
            seal: None,
            is_locked: AtomicBool::new(false),
            base: BaseFile::none(),
        }
    }

    /// The base, opened by name if need be. Where the segment's name has it, it is a plain file again, and that is it.
    fn base(&self) -> Result<RawFd, DeviceError> {
        let known = self.base.descriptor.load(Ordering::Relaxed);
        if known >= 0 {
            return Ok(known);
        }
        let version = self.shared.version();
        let path = PathBuffer::segment(&self.key, version).with(BASE_NAME);
        let opened = match open(path.as_c_str(), libc::O_RDWR, 0) {
            Err(libc::ENOTDIR) => open(PathBuffer::segment(&self.key, version).as_c_str(), libc::O_RDWR, 0),
            opened => opened,
        };
        let opened = opened.map_err(failed)?;
        self.base.descriptor.store(opened, Ordering::Relaxed);
        Ok(opened)
    }

    /// The seal of a container that is being made.
    pub(crate) fn set_seal(&mut self, seal: Option<Box<RecordSeal<Kernel>>>) {
        self.seal = seal;
    }

    /// Closes the base, so that its space is free once it has no name: nothing is in it any more.
    pub(crate) fn let_go_of_base(&self) {
        self.base.close();
    }

    /// A file that this closes.
    pub(crate) fn owned(descriptor: RawFd, key: SegmentKey, shared: &'static Shared) -> SegmentFile {
        let mut file = SegmentFile::borrowed(descriptor, key, shared);
        file.is_owned = true;
        file
    }

    /// Finds the key if the container is encrypted. Without it the engine says which one is needed.
    fn unlock(&mut self) -> Result<(), DeviceError> {
        if self.shared.region.current_key_id().is_none() {
            return Ok(());
        }
        // The master key may change between two looks, and the one of before be forgotten.
        for _ in 0..KEY_TRIES {
            let Some(root) = clear(self).filter(|root| root.key_id != [0; 16]) else { return Ok(()) };
            if let Some(master) = self.shared.region.key(&root.key_id) {
                // One that is damaged is said by who opens the root.
                if let Ok(data_key) = master.unwrap(&root.id, &root.key) {
                    let kernel = Kernel::new().map_err(|_| DeviceError::Io(libc::EIO))?;
                    self.seal = Some(Box::new(data_key.into_seal(root.key_id, kernel)));
                }
                return Ok(());
            }
        }
        Ok(())
    }
}

/// How often a container's key is looked for.
const KEY_TRIES: u32 = 3;

impl Drop for SegmentFile {
    fn drop(&mut self) {
        self.base.close();
        if self.is_owned {
            // SAFETY: it was opened for this, and nobody else has its number.
            unsafe { libc::close(self.descriptor) };
        }
    }
}

/// What a failed call means to the engine.
pub(crate) fn failed(errno: i32) -> DeviceError {
    match errno {
        libc::ENOSPC | libc::EDQUOT => DeviceError::NoSpace,
        libc::ENOENT => DeviceError::NotFound,
        libc::EEXIST => DeviceError::Exists,
        libc::EMFILE | libc::ENFILE => DeviceError::NoDescriptor,
        other => DeviceError::Io(other),
    }
}

/// Repeats a call that a signal interrupted; its result, or the error number.
pub(crate) fn call<N: Copy + PartialOrd + Default>(mut function: impl FnMut() -> N) -> Result<N, i32> {
    loop {
        let done = function();
        if done >= N::default() {
            return Ok(done);
        }
        if errno() != libc::EINTR {
            return Err(errno());
        }
    }
}

/// Opens a file; the descriptor, or the error number.
pub(crate) fn open(path: &CStr, flags: i32, mode: libc::mode_t) -> Result<RawFd, i32> {
    // SAFETY: a string that ends with a zero.
    call(|| unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) })
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &CStr) -> Result<(), i32> {
    let directory = open(path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    // Not again after an error.
    // SAFETY: a descriptor that was just opened, closed once.
    unsafe {
        let done = libc::fsync(directory);
        let failure = errno();
        libc::close(directory);
        if done == 0 { Ok(()) } else { Err(failure) }
    }
}

/// Reads until the buffer is full or the file ends.
fn read_at(descriptor: RawFd, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
    let mut got = 0;
    while got < buffer.len() {
        let rest = &mut buffer[got..];
        let at = (offset + got as u64) as i64;
        // SAFETY: a buffer of the length that is given.
        let more = call(|| unsafe { libc::pread(descriptor, rest.as_mut_ptr().cast(), rest.len(), at) });
        match more.map_err(failed)? {
            0 => break,
            more => got += more as usize,
        }
    }
    Ok(got)
}

/// Writes all of it.
fn write_at(descriptor: RawFd, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
    let mut put = 0;
    while put < bytes.len() {
        let rest = &bytes[put..];
        let at = (offset + put as u64) as i64;
        // SAFETY: a buffer of the length that is given.
        let more = call(|| unsafe { libc::pwrite(descriptor, rest.as_ptr().cast(), rest.len(), at) });
        match more.map_err(failed)? {
            0 => return Err(DeviceError::NoSpace),
            more => put += more as usize,
        }
    }
    Ok(())
}

/// Waits until the disk has the file's content.
fn sync_content(descriptor: RawFd) -> Result<(), DeviceError> {
    // Not again after an error: the kernel may have given up the pages that it could not write.
    // SAFETY: takes a number.
    if unsafe { libc::fdatasync(descriptor) } == 0 { Ok(()) } else { Err(failed(errno())) }
}

fn set_size(descriptor: RawFd, size: u64) -> Result<(), DeviceError> {
    // SAFETY: takes numbers.
    call(|| unsafe { libc::ftruncate(descriptor, size as i64) }).map(drop).map_err(failed)
}

impl Device for SegmentFile {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        read_at(self.descriptor, buffer, offset)
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        write_at(self.descriptor, bytes, offset)
    }

    fn use_base(&self, number: u64) {
        if self.base.number.swap(number, Ordering::Relaxed) != number {
            self.base.close();
        }
    }

    fn base_pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        read_at(self.base()?, buffer, offset)
    }

    fn base_pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        write_at(self.base()?, bytes, offset)
    }

    fn base_fdatasync(&self) -> Result<(), DeviceError> {
        sync_content(self.base()?)
    }

    fn base_size(&self) -> Result<u64, DeviceError> {
        stat_of(self.base()?).map(|stat| stat.st_size as u64).map_err(failed)
    }

    fn base_truncate(&self, size: u64) -> Result<(), DeviceError> {
        set_size(self.base()?, size)
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        sync_content(self.descriptor)
    }

    fn begin_writeback(&self) -> Result<(), DeviceError> {
        // SAFETY: takes numbers.
        let begun = unsafe { libc::sync_file_range(self.descriptor, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        match begun {
            0 => Ok(()),
            _ => match errno() {
                // Not on this kernel or filesystem.
                libc::ENOSYS | libc::EINVAL | libc::ESPIPE => Ok(()),
                other => Err(failed(other)),
            },
        }
    }

    fn size(&self) -> Result<u64, DeviceError> {
        stat_of(self.descriptor).map(|stat| stat.st_size as u64).map_err(failed)
    }

    fn truncate(&self, size: u64) -> Result<(), DeviceError> {
        set_size(self.descriptor, size)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes numbers.
        let punch = || unsafe { libc::fallocate(self.descriptor, mode, offset as i64, length as i64) };
        match call(punch) {
            Ok(_) | Err(libc::EOPNOTSUPP) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// The container's directory and the database's: both may have been made with it.
    fn sync_dir(&self) -> Result<(), DeviceError> {
        sync_names(&self.key, self.shared)
    }

    /// Every process of a server locks the server's byte, and looks whether a byte of another server is locked:
    /// so neither mode keeps out the server's own processes, and both keep out others. The file is locked for
    /// sharing as well, against commands of the tool that write.
    fn try_lock(&self, _: LockMode) -> Result<bool, DeviceError> {
        if self.is_locked.load(Ordering::Relaxed) || self.shared.is_read_only() {
            return Ok(true);
        }
        // SAFETY: takes numbers.
        match call(|| unsafe { libc::flock(self.descriptor, libc::LOCK_SH | libc::LOCK_NB) }) {
            Ok(_) => {}
            Err(libc::EWOULDBLOCK) => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        let is_locked = lock_for_server(self.descriptor, self.shared.region.server()).map_err(failed)?;
        self.is_locked.store(is_locked, Ordering::Relaxed);
        Ok(is_locked)
    }

    fn release_reserve(&self, bytes: u64, need: Need) -> bool {
        crate::reserve::release(self.shared, self.key.tablespace, bytes, need)
    }

    fn seal(&self) -> Option<&dyn Seal> {
        self.seal.as_deref().map(|seal| seal as &dyn Seal)
    }

    fn note_writer_collected(&self, moved_bytes: u64, commits: u64) {
        if let Some(place) = self.shared.region.place(self.key.tablespace) {
            self.shared.region.activity().note_writer(place, moved_bytes, commits);
        }
    }
}

/// What the system says of a file.
pub(crate) fn stat_of(descriptor: RawFd) -> Result<libc::stat, i32> {
    // SAFETY: all zeros is a value of this struct of numbers, which the call overwrites.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        call(|| libc::fstat(descriptor, &mut stat)).map(|_| stat)
    }
}

/// A call for a lock of bytes; whether they are free.
fn lock_of_bytes(
    descriptor: RawFd,
    command: i32,
    kind: i32,
    (from, length): (i64, i64),
) -> Result<bool, i32> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: from,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the struct lives across the call, which writes to it alone.
    call(|| unsafe { libc::fcntl(descriptor, command, &raw mut lock) })
        .map(|_| lock.l_type == libc::F_UNLCK as i16)
}

/// Whether no server's byte is locked.
pub(crate) fn is_free_of_servers(descriptor: RawFd) -> Result<bool, i32> {
    lock_of_bytes(descriptor, libc::F_OFD_GETLK, libc::F_WRLCK, (LOCKS_AT, LOCKS))
}

/// Locks the server's byte for reading, and says whether no other server's is locked.
pub(crate) fn lock_for_server(descriptor: RawFd, server: u32) -> Result<bool, i32> {
    let lock =
        |command, kind: i32, from: i64, length: i64| lock_of_bytes(descriptor, command, kind, (from, length));
    let own = LOCKS_AT + i64::from(server);
    match lock(libc::F_OFD_SETLK, libc::F_RDLCK, own, 1) {
        Err(libc::EAGAIN | libc::EACCES) => return Ok(false),
        done => done?,
    };
    let is_free = |from: i64, to: i64| match from == to {
        true => Ok(true),
        false => lock(libc::F_OFD_GETLK, libc::F_WRLCK, from, to - from),
    };
    let is_alone = is_free(LOCKS_AT, own)? && is_free(own + 1, LOCKS_AT + LOCKS)?;
    if !is_alone {
        lock(libc::F_OFD_SETLK, libc::F_UNLCK, own, 1)?;
    }
    Ok(is_alone)
}

/// Makes the names in a container's directory durable.
pub(crate) fn sync_own_directory(key: &SegmentKey, shared: &Shared) -> Result<(), DeviceError> {
    sync_names_in(PathBuffer::segment(key, shared.version()).as_c_str()).map_err(failed)
}

/// Syncs a container's directory, unless a plain file has its name again. Then its base is that file, and the names in
/// it were durable before the exchange: who makes a base, by a link or anew, syncs its directory.
fn sync_names_in(path: &CStr) -> Result<(), i32> {
    match sync_directory(path) {
        Err(libc::ENOTDIR) => Ok(()),
        done => done,
    }
}

fn sync_names(key: &SegmentKey, shared: &Shared) -> Result<(), DeviceError> {
    sync_own_directory(key, shared)?;
    let above = PathBuffer::database(key.tablespace, key.database, shared.version());
    sync_directory(above.as_c_str()).map_err(failed)
}

/// The directory that a container is made in, before it has the segment's name. It remembers the descriptor of the file that it made, which becomes the
/// server's.
pub(crate) struct SegmentFolder {
    pub(crate) key: SegmentKey,
    pub(crate) shared: &'static Shared,
    pub(crate) mode: libc::mode_t,
    pub(crate) made: Cell<Option<RawFd>>,
    /// The new container's, where it is to be encrypted.
    pub(crate) seal: Cell<Option<Box<RecordSeal<Kernel>>>>,
}

impl SegmentFolder {
    fn path(&self, name: &str) -> PathBuffer {
        PathBuffer::making(&self.key, self.shared.version(), std::process::id()).with(name)
    }
}

impl Folder for SegmentFolder {
    type File = SegmentFile;

    fn create(&self, name: &str) -> Result<SegmentFile, DeviceError> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let descriptor = open(self.path(name).as_c_str(), flags, self.mode).map_err(failed)?;
        self.made.set(Some(descriptor));
        let SegmentFolder { key, shared, .. } = *self;
        let mut file = SegmentFile::borrowed(descriptor, key, shared);
        file.seal = self.seal.take();
        Ok(file)
    }

    fn open(&self, name: &str) -> Result<SegmentFile, DeviceError> {
        let descriptor = open(self.path(name).as_c_str(), libc::O_RDWR, 0).map_err(failed)?;
        Ok(SegmentFile::owned(descriptor, self.key, self.shared))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        let (from, to) = (self.path(from), self.path(to));
        // SAFETY: strings that end with a zero.
        call(|| unsafe { libc::rename(from.as_c_str().as_ptr(), to.as_c_str().as_ptr()) })
            .map(drop)
            .map_err(failed)
    }

    fn unlink(&self, name: &str) -> Result<(), DeviceError> {
        unlink(self.path(name).as_c_str()).map_err(failed)
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        sync_names(&self.key, self.shared)
    }
}

/// Removes a name.
pub(crate) fn unlink(path: &CStr) -> Result<(), i32> {
    // SAFETY: a string that ends with a zero.
    call(|| unsafe { libc::unlink(path.as_ptr()) }).map(drop)
}

/// Opens segments by name. Where the server has a descriptor of the segment, that number becomes the new
/// opening's, so that a segment takes one descriptor.
pub(crate) struct ServerOpener {
    pub(crate) shared: &'static Shared,
    /// The server's, of this segment.
    pub(crate) descriptor: Option<RawFd>,
}

impl Opener<'static> for ServerOpener {
    type File = SegmentFile;

    fn open(&self, key: &SegmentKey) -> Result<Opened<'static, SegmentFile>, DeviceError> {
        let path = PathBuffer::container(key, self.shared.version());
        let opened = match open(path.as_c_str(), libc::O_RDWR, 0) {
            // A plain file by now.
            Err(libc::ENOTDIR) => return Err(DeviceError::NotFound),
            opened => opened.map_err(failed)?,
        };
        let mut device = match self.descriptor {
            Some(descriptor) => {
                // SAFETY: both are open; the first is the server's descriptor of this very segment.
                let moved = call(|| unsafe { libc::dup3(opened, descriptor, libc::O_CLOEXEC) });
                // SAFETY: opened above, and nobody has its number.
                unsafe { libc::close(opened) };
                moved.map_err(failed)?;
                SegmentFile::borrowed(descriptor, *key, self.shared)
            }
            None => SegmentFile::owned(opened, *key, self.shared),
        };
        device.unlock()?;
        let recovery = self.shared.recovery();
        Ok(Opened { device, options: self.shared.options(), recovery })
    }
}

impl Shared {
    /// How containers are used.
    pub(crate) fn options(&self) -> Options<'static> {
        let geometry = self.region.capacity().geometry;
        Options { geometry, tuning: self.tuning, ..Options::new(pgshrink_cfs::PAGES_MAX) }
    }

    /// How a segment is opened by who reads. A server without fsync has its newest records in no root: they are
    /// taken over by the first opening for writing, so that has to be the first one of all.
    pub(crate) fn reading(&self) -> Access {
        if self.region.rolls_forward() { Access::Write } else { Access::Read }
    }

    fn recovery(&self) -> Recovery {
        if self.region.rolls_forward() { Recovery::RollForward } else { Recovery::Discard }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn names_of_a_container_that_is_a_plain_file_again_need_no_sync() {
        let folder = std::env::temp_dir().join(format!("pgshrink-names-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| CString::new(folder.join(name).as_os_str().as_bytes()).unwrap();
        std::fs::write(folder.join("plain"), b"x").unwrap();
        assert_eq!(sync_names_in(&path("")), Ok(()));
        assert_eq!(sync_names_in(&path("plain")), Ok(()));
        assert_eq!(sync_names_in(&path("absent")), Err(libc::ENOENT));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
