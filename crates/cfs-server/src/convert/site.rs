//! One segment's place in a server's files: what the protocol ([`pgshrink_cfs::convert`]) asks of the system.
// System calls.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

use pgshrink_cfs::convert::{BASE_NAME, Found, Generation, Holders, Inode, Kind, NEW_SUFFIX, Name, Site};
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::segment::{FILE_NAME, NEW_FILE_NAME};
use pgshrink_cfs::slots::{Access, SegmentKey};
use pgshrink_cfs::{Birth, Container, DeviceError, Error};

use crate::convert::holders::Scan;
use crate::file::{SegmentFile, call, failed, open};
use crate::front::{lock_of, random};
use crate::names::PathBuffer;
use crate::server::Shared;
use crate::work::using_engine;

thread_local! {
    /// Whether the protocol wants a barrier, which only the extension can emit.
    static BARRIER: Cell<bool> = const { Cell::new(false) };
    /// The last look at all processes' descriptors: one does for many files.
    static SCAN: RefCell<Option<Scan>> = const { RefCell::new(None) };
}

/// Whether a barrier was asked for since this was last called.
pub(super) fn take_barrier() -> bool {
    BARRIER.replace(false)
}

/// A segment's place.
pub(super) struct ServerSite {
    shared: &'static Shared,
    key: SegmentKey,
    /// The database's directory.
    above: OwnedFd,
    /// The segment's name in it.
    name: CString,
    device: u64,
    /// What the container that is made is to keep about how pages are written.
    policy: u32,
}

impl ServerSite {
    /// The place of a segment. `policy`: what a container that is made there is to keep about how pages are written.
    pub(super) fn open(
        shared: &'static Shared,
        key: &SegmentKey,
        policy: u32,
    ) -> Result<ServerSite, DeviceError> {
        let directory = PathBuffer::database(key.tablespace, key.database, shared.version());
        let opened = open(directory.as_c_str(), libc::O_RDONLY | libc::O_DIRECTORY, 0).map_err(failed)?;
        // SAFETY: just opened, and nobody else has its number.
        let above = unsafe { OwnedFd::from_raw_fd(opened) };
        let device = crate::file::stat_of(above.as_raw_fd()).map_err(failed)?.st_dev;
        let own = PathBuffer::segment(key, shared.version());
        let own = own.as_c_str().to_bytes();
        let name = own.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name = CString::new(name).map_err(|_| DeviceError::Io(libc::EINVAL))?;
        Ok(ServerSite { shared, key: *key, above, name, device, policy })
    }

    fn named(&self, name: Name) -> CString {
        match name {
            Name::Segment => self.name.clone(),
            Name::New(process) => {
                let text = format!("{}{NEW_SUFFIX}{process}", self.name.to_string_lossy());
                CString::new(text).unwrap_or_default()
            }
        }
    }

    fn new_name(&self) -> CString {
        self.named(Name::New(self.me()))
    }

    fn stat_at(directory: RawFd, name: &CStr) -> Result<Option<libc::stat>, DeviceError> {
        // SAFETY: a string that ends with a zero; all zeros is a value of this struct of numbers.
        let found = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            call(|| libc::fstatat(directory, name.as_ptr(), &mut stat, libc::AT_SYMLINK_NOFOLLOW))
                .map(|_| stat)
        };
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(libc::ENOENT) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn unlink_at(directory: RawFd, name: &CStr, flags: i32) -> Result<(), DeviceError> {
        // SAFETY: a string that ends with a zero.
        call(|| unsafe { libc::unlinkat(directory, name.as_ptr(), flags) }).map(drop).map_err(failed)
    }

    fn link_at(from: (RawFd, &CStr), to: (RawFd, &CStr)) -> Result<(), DeviceError> {
        // SAFETY: strings that end with a zero.
        call(|| unsafe { libc::linkat(from.0, from.1.as_ptr(), to.0, to.1.as_ptr(), 0) })
            .map(drop)
            .map_err(failed)
    }

    fn sync(descriptor: RawFd) -> Result<(), DeviceError> {
        // Not again after an error.
        // SAFETY: takes a number.
        if unsafe { libc::fsync(descriptor) } == 0 { Ok(()) } else { Err(failed(crate::host::errno())) }
    }

    fn mode(&self) -> Result<libc::mode_t, DeviceError> {
        let stat = Self::stat_at(self.above.as_raw_fd(), &self.name)?;
        Ok(stat.map_or(0o600, |stat| stat.st_mode & 0o666))
    }
}

fn found(stat: &libc::stat) -> Found {
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => Kind::Plain,
        libc::S_IFDIR => Kind::Directory,
        _ => Kind::Other,
    };
    Found { inode: Inode(stat.st_ino), kind, links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX) }
}

fn base_name() -> CString {
    CString::new(BASE_NAME).unwrap_or_default()
}

impl Site for ServerSite {
    type Directory = OwnedFd;
    type Word = AtomicU64;

    fn me(&self) -> u32 {
        std::process::id()
    }

    fn generation(&self) -> Generation<'_, AtomicU64> {
        Generation::over(self.shared.region.generation_word())
    }

    fn look(&self, name: Name) -> Result<Option<Found>, DeviceError> {
        let stat = Self::stat_at(self.above.as_raw_fd(), &self.named(name))?;
        Ok(stat.as_ref().map(found))
    }

    fn make_directory(&self) -> Result<OwnedFd, DeviceError> {
        let (name, mode) = (self.new_name(), self.mode()?);
        // Who may read a file may enter a directory.
        let mode = mode | (mode & 0o444) >> 2 | 0o300;
        // SAFETY: a string that ends with a zero.
        call(|| unsafe { libc::mkdirat(self.above.as_raw_fd(), name.as_ptr(), mode) }).map_err(failed)?;
        self.open_directory(Name::New(self.me()))
    }

    fn open_directory(&self, name: Name) -> Result<OwnedFd, DeviceError> {
        let (name, flags) =
            (self.named(name), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC);
        // SAFETY: a string that ends with a zero.
        let opened = call(|| unsafe { libc::openat(self.above.as_raw_fd(), name.as_ptr(), flags) });
        // SAFETY: just opened, and nobody else has its number.
        opened.map(|opened| unsafe { OwnedFd::from_raw_fd(opened) }).map_err(failed)
    }

    fn look_at(&self, directory: &OwnedFd) -> Result<Found, DeviceError> {
        crate::file::stat_of(directory.as_raw_fd()).map(|stat| found(&stat)).map_err(failed)
    }

    fn make_container(&self, directory: &OwnedFd) -> Result<(), Error> {
        let made = |source| Error::Device { operation: "create", offset: 0, length: 0, source };
        let id = random().map_err(|errno| made(failed(errno.0)))?;
        let lock = lock_of(self.shared, &self.key, &id).map_err(|errno| made(failed(errno.0)))?;
        let name = CString::new(FILE_NAME).unwrap_or_default();
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let mode = self.mode().map_err(made)?;
        // SAFETY: a string that ends with a zero.
        let opened = call(|| unsafe {
            libc::openat(directory.as_raw_fd(), name.as_ptr(), flags, mode as libc::c_uint)
        });
        let mut file =
            SegmentFile::owned(opened.map_err(|errno| made(failed(errno)))?, self.key, self.shared);
        file.set_seal(lock.seal);
        let options = self.shared.options();
        let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
        let birth = Birth { id, identity: self.key.identity(), key: lock.slot };
        Container::create_over_base(file, Alone, &words, (&birth, self.policy), options).map(drop)
    }

    fn look_at_base(&self, directory: &OwnedFd) -> Result<Option<Found>, DeviceError> {
        Ok(Self::stat_at(directory.as_raw_fd(), &base_name())?.as_ref().map(found))
    }

    fn make_base(&self, directory: &OwnedFd) -> Result<(), DeviceError> {
        let stat = crate::file::stat_of(directory.as_raw_fd()).map_err(failed)?;
        let mode = stat.st_mode & 0o666 | 0o600;
        let (name, flags) = (base_name(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC);
        // SAFETY: a string that ends with a zero.
        let opened = call(|| unsafe {
            libc::openat(directory.as_raw_fd(), name.as_ptr(), flags, mode as libc::c_uint)
        });
        // SAFETY: just opened, and closed at once.
        opened.map(|opened| drop(unsafe { OwnedFd::from_raw_fd(opened) })).map_err(failed)
    }

    fn link_segment(&self, directory: &OwnedFd) -> Result<(), DeviceError> {
        Self::link_at((self.above.as_raw_fd(), &self.name), (directory.as_raw_fd(), &base_name()))
    }

    fn link_base(&self, directory: &OwnedFd) -> Result<(), DeviceError> {
        Self::link_at((directory.as_raw_fd(), &base_name()), (self.above.as_raw_fd(), &self.new_name()))
    }

    fn exchange(&self) -> Result<(), DeviceError> {
        let (above, new) = (self.above.as_raw_fd(), self.new_name());
        let flags = libc::RENAME_EXCHANGE;
        // SAFETY: strings that end with a zero.
        call(|| unsafe { libc::renameat2(above, self.name.as_ptr(), above, new.as_ptr(), flags) })
            .map(drop)
            .map_err(failed)
    }

    fn unlink(&self, name: Name) -> Result<(), DeviceError> {
        Self::unlink_at(self.above.as_raw_fd(), &self.named(name), 0)
    }

    fn unlink_base(&self, directory: &OwnedFd) -> Result<(), DeviceError> {
        Self::unlink_at(directory.as_raw_fd(), &base_name(), 0)
    }

    fn empty(&self, directory: &OwnedFd) -> Result<(), DeviceError> {
        for name in [FILE_NAME, NEW_FILE_NAME, BASE_NAME] {
            let name = CString::new(name).unwrap_or_default();
            match Self::unlink_at(directory.as_raw_fd(), &name, 0) {
                Ok(()) | Err(DeviceError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn remove_directory(&self, name: Name) -> Result<(), DeviceError> {
        Self::unlink_at(self.above.as_raw_fd(), &self.named(name), libc::AT_REMOVEDIR)
    }

    fn sync_above(&self) -> Result<(), DeviceError> {
        Self::sync(self.above.as_raw_fd())
    }

    fn sync_directory(&self, directory: &OwnedFd) -> Result<(), DeviceError> {
        Self::sync(directory.as_raw_fd())
    }

    /// By a commit, which syncs a whole base, and after whose failure none succeeds.
    fn sync_base(&self, _: &OwnedFd) -> Result<(), DeviceError> {
        match using_engine(&self.key, Access::Write, |pinned| pinned.commit().map(drop)) {
            Ok(()) => Ok(()),
            Err(Error::Device { source, .. }) => Err(source),
            Err(_) => Err(DeviceError::Io(libc::EIO)),
        }
    }

    fn holders(&self, inode: Inode) -> Result<Holders, DeviceError> {
        SCAN.with_borrow_mut(|scan| {
            // What was seen of this file holds as long as no name was exchanged since.
            let generation = self.generation().steady();
            let is_known = |scan: &Scan| {
                scan.generation.is_some() && scan.generation == generation && {
                    let found = scan.of(self.device, inode.0);
                    found.is_empty() || scan.begun.elapsed() < SCAN_PERIOD
                }
            };
            if !scan.as_ref().is_some_and(is_known) {
                *scan = Some(Scan::new(generation));
            }
            Ok(scan.as_ref().map(|scan| scan.of(self.device, inode.0)).unwrap_or_default())
        })
    }

    fn emit_barrier(&self) {
        BARRIER.set(true);
    }
}

/// Between two looks at all processes, if the first has found somebody.
const SCAN_PERIOD: std::time::Duration = std::time::Duration::from_millis(50);
