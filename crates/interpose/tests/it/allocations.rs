//! What runs in critical sections allocates nothing.
// C functions are called with buffers.
#![allow(unsafe_code)]

use libc::iovec;
use pgshrink_interpose::PAGE_BYTES;
use pgshrink_testkit::{TempDir, allocations};

use crate::calls::hooks;
use crate::plain_front::c_path;

#[test]
fn reads_writes_syncs_truncations_and_closing_allocate_nothing() {
    let folder = TempDir::new().unwrap();
    let name = c_path(&folder.path().join("managed-1"));
    let calls = hooks();
    let mut buffer = vec![3_u8; 4 * PAGE_BYTES];
    let at = buffer.as_mut_ptr();
    let part = |from: usize, iov_len| iovec { iov_base: at.wrapping_add(from).cast(), iov_len };
    let whole = [part(0, PAGE_BYTES), part(PAGE_BYTES, 2 * PAGE_BYTES)];
    let odd = [part(0, 100), part(100, PAGE_BYTES), part(9000, 9000)];
    // SAFETY: strings and buffers of these lengths.
    let (before, after) = unsafe {
        let fd = (calls.open)(name.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600);
        assert!(fd >= 0);
        let before = allocations::count();
        for offset in [0, 8192, 100, 16_384] {
            assert_eq!((calls.pwrite)(fd, at.cast(), 8192, offset), 8192);
            assert_eq!((calls.pwrite)(fd, at.cast(), 20_000, offset), 20_000);
            assert_eq!((calls.pwritev)(fd, whole.as_ptr(), 2, offset), 3 * 8192);
            assert_eq!((calls.pwritev)(fd, odd.as_ptr(), 3, offset), 100 + 8192 + 9000);
            assert_eq!((calls.preadv)(fd, whole.as_ptr(), 2, offset), 3 * 8192);
            assert_eq!((calls.preadv)(fd, odd.as_ptr(), 3, offset), 100 + 8192 + 9000);
            assert_eq!((calls.pread)(fd, at.cast(), 8192, offset), 8192);
            assert_eq!((calls.lseek)(fd, 0, libc::SEEK_SET), 0);
            assert_eq!((calls.read)(fd, at.cast(), 77), 77);
            assert_eq!((calls.write)(fd, at.cast(), 77), 77);
            assert!((calls.lseek)(fd, 0, libc::SEEK_END) > 0);
        }
        assert_eq!((calls.ftruncate)(fd, 8192 + 5), 0);
        assert_eq!((calls.ftruncate)(fd, 0), 0);
        assert_eq!((calls.posix_fallocate)(fd, 0, 8 * 8192), 0);
        assert_eq!((calls.truncate)(name.as_ptr(), 8192), 0);
        assert_eq!((calls.fsync)(fd) + (calls.fdatasync)(fd), 0);
        assert_eq!((calls.posix_fadvise)(fd, 0, 0, libc::POSIX_FADV_WILLNEED), 0);
        assert_eq!((calls.sync_file_range)(fd, 0, 0, 2), 0);
        assert_eq!((calls.pread)(fd, at.cast(), 8192, -1), -1);
        assert_eq!((calls.close)(fd), 0);
        (before, allocations::count())
    };
    assert_eq!(after - before, 0, "allocations");
}
