//! What a plain file would not show: refusals, folders, names, panics.
// C functions are called with buffers.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use pgshrink_interpose::hooks::MOST_PAGES;
use pgshrink_interpose::{Advice, PAGE_BYTES};
use pgshrink_testkit::TempDir;

use crate::calls::{Calls, hooks};
use crate::plain_front::{FRONT, c_path};

const MOST_BYTES: i64 = MOST_PAGES as i64 * PAGE_BYTES as i64;

fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

/// A managed file of one page, open.
fn opened(folder: &Path, calls: &Calls) -> (CString, c_int) {
    let name = c_path(&folder.join("managed-1"));
    // SAFETY: a string and a page.
    unsafe {
        let fd = (calls.open)(name.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600);
        assert!(fd >= 0);
        assert_eq!((calls.write)(fd, [5_u8; PAGE_BYTES].as_ptr().cast(), PAGE_BYTES), PAGE_BYTES as isize);
        (name, fd)
    }
}

#[test]
fn a_managed_descriptor_is_not_duplicated_mapped_cloned_or_sent() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let (_, fd) = opened(folder.path(), &calls);
    let plain = fs::File::create(folder.path().join("plain")).unwrap();
    let other = plain.as_raw_fd();
    // SAFETY: descriptors.
    unsafe {
        for refused in [
            (calls.dup)(fd),
            (calls.dup2)(fd, other),
            (calls.fcntl)(fd, libc::F_DUPFD, 0),
            (calls.fcntl)(fd, libc::F_DUPFD_CLOEXEC, 0),
            (calls.ioctl)(fd, 0x4004_9409, other as usize),
            (calls.ioctl)(other, 0x4004_9409, fd as usize),
        ] {
            assert_eq!((refused, errno()), (-1, libc::EOPNOTSUPP));
        }
        assert_eq!((calls.dup2)(fd, fd), fd);
        let mapped = (calls.mmap)(std::ptr::null_mut(), 8192, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_eq!((mapped, errno()), (libc::MAP_FAILED, libc::ENODEV));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = (calls.mmap)(std::ptr::null_mut(), 8192, libc::PROT_READ, flags, -1, 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        libc::munmap(mapped, 8192);
        assert_eq!(((calls.sendfile)(other, fd, std::ptr::null_mut(), 10), errno()), (-1, libc::EINVAL));
        assert_eq!(((calls.ioctl)(fd, libc::FIONREAD, 0), errno()), (-1, libc::ENOTTY));
        // Another descriptor of the same number lets the managed one go.
        assert_eq!((calls.dup2)(other, fd), fd);
        let mut stat: libc::stat = std::mem::zeroed();
        assert_eq!((calls.fstat)(fd, &raw mut stat), 0);
        assert_eq!(stat.st_size, 0);
        (calls.close)(fd);
    }
}

#[test]
fn a_file_ends_at_a_segments_last_page() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let (name, fd) = opened(folder.path(), &calls);
    let page = [1_u8; 2 * PAGE_BYTES];
    // SAFETY: strings and buffers of these lengths.
    unsafe {
        let last = MOST_BYTES - PAGE_BYTES as i64;
        assert_eq!((calls.pwrite)(fd, page.as_ptr().cast(), 2 * PAGE_BYTES, last), PAGE_BYTES as isize);
        assert_eq!(((calls.pwrite)(fd, page.as_ptr().cast(), 1, MOST_BYTES), errno()), (-1, libc::EFBIG));
        assert_eq!((calls.pread)(fd, page.as_ptr().cast_mut().cast(), 1, MOST_BYTES), 0);
        assert_eq!((calls.lseek)(fd, 0, libc::SEEK_END), MOST_BYTES);
        assert_eq!(((calls.ftruncate)(fd, MOST_BYTES + 1), errno()), (-1, libc::EFBIG));
        assert_eq!(((calls.truncate)(name.as_ptr(), MOST_BYTES + 1), errno()), (-1, libc::EFBIG));
        assert_eq!((calls.posix_fallocate)(fd, 1, MOST_BYTES), libc::EFBIG);
        assert_eq!((calls.posix_fallocate)(fd, 0, i64::MAX), libc::EFBIG);
        assert_eq!((calls.ftruncate)(fd, 0), 0);
        (calls.close)(fd);
    }
}

#[test]
fn vectored_calls_take_the_position_for_an_offset_of_minus_one_and_refuse_other_flags() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let (_, fd) = opened(folder.path(), &calls);
    let mut page = [2_u8; PAGE_BYTES];
    let part = libc::iovec { iov_base: page.as_mut_ptr().cast(), iov_len: PAGE_BYTES };
    let endless = libc::iovec { iov_base: page.as_mut_ptr().cast(), iov_len: usize::MAX };
    // SAFETY: buffers of these lengths; the one that is too long is refused before it is used.
    unsafe {
        assert_eq!((calls.pwritev2)(fd, &raw const part, 1, -1, 0), PAGE_BYTES as isize);
        assert_eq!((calls.lseek)(fd, 0, libc::SEEK_CUR), 2 * PAGE_BYTES as i64);
        assert_eq!((calls.preadv2)(fd, &raw const part, 1, 0, libc::RWF_HIPRI), PAGE_BYTES as isize);
        for flags in [libc::RWF_NOWAIT, libc::RWF_APPEND, libc::RWF_SYNC, 1 << 20] {
            assert_eq!(((calls.preadv2)(fd, &raw const part, 1, 0, flags), errno()), (-1, libc::EOPNOTSUPP));
            assert_eq!(((calls.pwritev2)(fd, &raw const part, 1, 0, flags), errno()), (-1, libc::EOPNOTSUPP));
        }
        assert_eq!(((calls.preadv)(fd, &raw const part, 1025, 0), errno()), (-1, libc::EINVAL));
        assert_eq!(((calls.preadv)(fd, &raw const endless, 1, 0), errno()), (-1, libc::EINVAL));
        assert_eq!((calls.preadv)(fd, std::ptr::null(), 0, 0), 0);
        (calls.close)(fd);
    }
}

#[test]
fn all_of_a_file_is_data_and_the_hole_is_behind_it() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let (_, fd) = opened(folder.path(), &calls);
    // SAFETY: a descriptor.
    unsafe {
        assert_eq!((calls.lseek)(fd, 100, libc::SEEK_DATA), 100);
        assert_eq!((calls.lseek)(fd, 100, libc::SEEK_HOLE), PAGE_BYTES as i64);
        assert_eq!((calls.lseek)(fd, 0, libc::SEEK_CUR), PAGE_BYTES as i64);
        for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
            for offset in [-1, PAGE_BYTES as i64] {
                assert_eq!(((calls.lseek)(fd, offset, whence), errno()), (-1, libc::ENXIO));
            }
        }
        assert_eq!(
            (calls.fallocate)(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 8192),
            -1
        );
        assert_eq!(errno(), libc::EOPNOTSUPP);
        (calls.close)(fd);
    }
}

#[test]
fn a_write_through_a_synchronous_descriptor_is_synced() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let name = c_path(&folder.path().join("managed-synced"));
    let page = [2_u8; PAGE_BYTES];
    // SAFETY: a string and a page.
    unsafe {
        let fd = (calls.open)(name.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_DSYNC, 0o600);
        let synced = || *FRONT.synced.lock().unwrap().get(&fd).unwrap_or(&0);
        let before = synced();
        assert_eq!((calls.write)(fd, page.as_ptr().cast(), PAGE_BYTES), PAGE_BYTES as isize);
        assert_eq!((calls.pwrite)(fd, page.as_ptr().cast(), 1, 0), 1);
        assert_eq!(synced(), before + 2);
        (calls.close)(fd);
    }
}

#[test]
fn advice_arrives_in_whole_pages() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let (_, fd) = opened(folder.path(), &calls);
    let last = || FRONT.advised.lock().unwrap().get(&fd).copied();
    // SAFETY: a descriptor.
    unsafe {
        assert_eq!((calls.posix_fadvise)(fd, 8192, 3 * 8192, libc::POSIX_FADV_WILLNEED), 0);
        assert_eq!(last(), Some((1, 3, Advice::WillNeed)));
        assert_eq!((calls.sync_file_range)(fd, 100, 8192, 2), 0);
        assert_eq!(last(), Some((0, 2, Advice::WriteBack)));
        assert_eq!((calls.posix_fadvise)(fd, 8192, 0, libc::POSIX_FADV_DONTNEED), 0);
        assert_eq!(last(), Some((1, MOST_PAGES - 1, Advice::WriteBack)));
        assert_eq!((calls.posix_fadvise)(fd, 0, 8192, libc::POSIX_FADV_RANDOM), 0);
        assert_eq!(last(), Some((1, MOST_PAGES - 1, Advice::WriteBack)), "not for the front");
        (calls.close)(fd);
    }
}

#[test]
fn a_folder_hides_what_the_front_hides_and_shows_a_managed_file_as_a_file() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let listed = folder.path().join("listed");
    fs::create_dir_all(&listed).unwrap();
    let (_, fd) = opened(&listed, &calls);
    fs::write(listed.join("hidden-marker"), b"").unwrap();
    fs::write(listed.join("plain"), b"").unwrap();
    fs::create_dir(listed.join("folder")).unwrap();
    let mut seen = BTreeMap::new();
    // SAFETY: a string, and what the functions return.
    unsafe {
        let directory = (calls.opendir)(c_path(&listed).as_ptr());
        loop {
            let entry = (calls.readdir)(directory);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_string_lossy().into_owned();
            seen.insert(name, (*entry).d_type);
        }
        assert_eq!((calls.closedir)(directory), 0);
        (calls.close)(fd);
        // The managed file itself is no folder.
        let name = c_path(&listed.join("managed-1"));
        assert!((calls.opendir)(name.as_ptr()).is_null());
        assert_eq!(errno(), libc::ENOTDIR);
        assert_eq!(((calls.open)(name.as_ptr(), libc::O_DIRECTORY, 0), errno()), (-1, libc::ENOTDIR));
        assert_eq!(((calls.rmdir)(name.as_ptr()), errno()), (-1, libc::ENOTDIR));
    }
    seen.retain(|name, _| !name.starts_with('.'));
    let expected = [("folder", libc::DT_DIR), ("managed-1", libc::DT_REG), ("plain", libc::DT_REG)];
    assert_eq!(seen, expected.map(|(name, kind)| (name.to_owned(), kind)).into());
}

#[test]
fn names_are_asked_about_renamed_and_removed() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let (name, fd) = opened(folder.path(), &calls);
    let other = c_path(&folder.path().join("managed-2"));
    let gone = c_path(&folder.path().join("gone"));
    let below = fs::File::open(folder.path()).unwrap();
    // SAFETY: strings, and room for the answer.
    unsafe {
        assert_eq!((calls.close)(fd), 0);
        assert_eq!((calls.access)(name.as_ptr(), libc::F_OK | libc::R_OK), 0);
        assert_eq!(((calls.access)(name.as_ptr(), libc::X_OK), errno()), (-1, libc::EACCES));
        assert_eq!((calls.rename)(name.as_ptr(), other.as_ptr()), 0);
        assert_eq!(((calls.access)(name.as_ptr(), libc::F_OK), errno()), (-1, libc::ENOENT));
        assert_eq!(((calls.link)(other.as_ptr(), gone.as_ptr()), errno()), (-1, libc::EPERM));
        let mut stat: libc::stat = std::mem::zeroed();
        let fd = below.as_raw_fd();
        assert_eq!((calls.fstatat)(fd, c"managed-2".as_ptr(), &raw mut stat, 0), 0);
        assert_eq!((stat.st_size, stat.st_mode & libc::S_IFMT), (PAGE_BYTES as i64, libc::S_IFREG));
        let fd = (calls.openat)(fd, c"managed-2".as_ptr(), libc::O_RDONLY, 0);
        assert_eq!((calls.lseek)(fd, 0, libc::SEEK_END), PAGE_BYTES as i64);
        assert_eq!((calls.close)(fd), 0);
        assert_eq!((calls.unlink)(other.as_ptr()), 0);
        assert_eq!(((calls.unlink)(other.as_ptr()), errno()), (-1, libc::ENOENT));
        assert_eq!(((calls.unlink)(gone.as_ptr()), errno()), (-1, libc::ENOENT));
        assert_eq!(((calls.open)(std::ptr::null(), 0, 0), errno()), (-1, libc::EFAULT));
        let stream = libc::tmpfile();
        assert_eq!((calls.creat)(name.as_ptr(), 0o600).min(0), 0);
        assert!((calls.freopen)(name.as_ptr(), c"r".as_ptr(), stream).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}

#[test]
fn a_descriptor_that_the_table_has_no_room_for_is_emfile() {
    let folder = TempDir::new().unwrap();
    let name = c_path(&folder.path().join("managed-1"));
    let calls = hooks();
    let beyond = pgshrink_interpose::hooks::DESCRIPTORS as c_int;
    // SAFETY: strings and descriptors. The child only makes system calls.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // Root may, others have what they have.
            let room = beyond as u64 + 100;
            let limit = libc::rlimit { rlim_cur: room, rlim_max: room };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            if libc::fcntl(0, libc::F_DUPFD, beyond) < 0 {
                libc::_exit(77);
            }
            for fd in 3..beyond {
                libc::dup2(0, fd);
            }
            let opened = (calls.open)(name.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600);
            let right = opened == -1 && errno() == libc::EMFILE;
            // What was opened for it is closed again: the next descriptor is the same.
            let next = libc::dup(0);
            libc::_exit(i32::from(!(right && next == beyond + 1)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        if libc::WEXITSTATUS(status) == 77 {
            pgshrink_testkit::left_out(
                "a_descriptor_that_the_table_has_no_room_for_is_emfile",
                "no right to more than 65,536 descriptors",
            );
            return;
        }
        assert_eq!(status, 0);
    }
}

/// In a process of its own, by the name of the test: the front is one for all tests.
#[test]
fn a_front_that_panics_is_eio() {
    const CHILD: &str = "PGSHRINK_TEST_PANIC";
    if std::env::var_os(CHILD).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "semantics::a_front_that_panics_is_eio", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && said.contains("because the test wants it"), "{said}");
        return;
    }
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let (name, fd) = opened(folder.path(), &calls);
    let page = [1_u8; PAGE_BYTES];
    // SAFETY: strings and buffers of these lengths.
    unsafe {
        FRONT.panics.store(true, Ordering::Relaxed);
        assert_eq!(((calls.pwrite)(fd, page.as_ptr().cast(), PAGE_BYTES, 0), errno()), (-1, libc::EIO));
        assert_eq!((calls.pwrite)(fd, page.as_ptr().cast(), PAGE_BYTES, 0), PAGE_BYTES as isize);
        FRONT.panics.store(true, Ordering::Relaxed);
        assert_eq!(((calls.open)(name.as_ptr(), libc::O_RDWR, 0), errno()), (-1, libc::EIO));
        FRONT.panics.store(true, Ordering::Relaxed);
        assert_eq!((calls.close)(fd), 0);
    }
    std::io::stdout().flush().unwrap();
}

#[test]
fn a_file_whose_name_changes_while_it_is_opened_is_opened_again_and_never_made_twice() {
    let folder = TempDir::new().unwrap();
    let calls = hooks();
    let (name, other) = (folder.path().join("changing-1"), folder.path().join("other"));
    let (name_c, other_c) = (c_path(&name), c_path(&other));
    for flags in [libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, libc::O_RDONLY, libc::O_RDWR | libc::O_CREAT] {
        std::fs::write(&other, b"other").unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&other).unwrap());
        *FRONT.renamed.lock().unwrap() = Some([other_c.clone(), name_c.clone()]);
        // SAFETY: a string, and room for the answer.
        unsafe {
            let fd = (calls.open)(name_c.as_ptr(), flags, 0o600);
            assert!(fd >= 0, "flags {flags:o}: {}", std::io::Error::last_os_error());
            let mut found: libc::stat = std::mem::zeroed();
            assert_eq!(libc::fstat(fd, &raw mut found), 0);
            assert_eq!(found.st_ino, inode, "flags {flags:o}");
            assert_eq!((calls.close)(fd), 0);
        }
        assert!(FRONT.renamed.lock().unwrap().is_none());
        assert_eq!(std::fs::read(&name).unwrap(), b"other");
    }
}
