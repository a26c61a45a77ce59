//! The same calls on a managed file by the hooks, and on a plain file by libc: results, errno, positions, sizes
//! and contents are compared after each.
//!
//! A managed file is one of whole pages. So the plain file is padded with zeros to a whole page after each call.
// C functions are called with buffers.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

use libc::{iovec, off_t};
use pgshrink_interpose::PAGE_BYTES;
use pgshrink_testkit::{Rng, Seed, TempDir};

use crate::calls::{Calls, hooks, real};
use crate::plain_front::c_path;

const PAGE: usize = PAGE_BYTES;
const UNTOUCHED: c_int = 3333;

fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number };
}

/// A side: its functions, its file, its descriptors.
struct Side {
    calls: Calls,
    path: PathBuf,
    fds: Vec<c_int>,
}

impl Side {
    fn name(&self) -> CString {
        c_path(&self.path)
    }
}

pub struct Twins {
    _folder: TempDir,
    managed: Side,
    plain: Side,
    /// A plain file of both, to copy from and to.
    other: [PathBuf; 2],
    rng: Rng,
    log: Vec<String>,
}

impl Twins {
    pub fn new(seed: Seed) -> Twins {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let side = |calls, name: &str| Side { calls, path: at(name), fds: Vec::new() };
        let mut twins = Twins {
            managed: side(hooks(), "managed-1"),
            plain: side(real(), "plain-1"),
            other: [at("other-managed"), at("other-plain")],
            rng: seed.rng(),
            log: Vec::new(),
            _folder: folder,
        };
        let content = twins.rng.bytes(5 * PAGE + 17);
        for other in &twins.other {
            fs::write(other, &content).unwrap();
        }
        twins.open(libc::O_RDWR | libc::O_CREAT);
        twins
    }

    /// Does it on both sides, and compares.
    fn both<T: PartialEq + Debug>(
        &mut self,
        what: String,
        mut call: impl FnMut(&mut Side, &PathBuf) -> T,
    ) -> T {
        self.log.push(what);
        set_errno(UNTOUCHED);
        let ours = call(&mut self.managed, &self.other[0]);
        let our_errno = errno();
        set_errno(UNTOUCHED);
        let theirs = call(&mut self.plain, &self.other[1]);
        let their_errno = errno();
        let told = || self.log[self.log.len().saturating_sub(30)..].join("\n");
        assert_eq!(ours, theirs, "errno {our_errno} and {their_errno} of {}", told());
        assert_eq!(our_errno, their_errno, "errno of {}", told());
        self.pad();
        ours
    }

    fn pad(&self) {
        let Ok(file) = fs::OpenOptions::new().write(true).open(&self.plain.path) else { return };
        let size = file.metadata().unwrap().len();
        file.set_len(size.next_multiple_of(PAGE as u64)).unwrap();
    }

    fn open(&mut self, flags: c_int) {
        let by = self.rng.below(3);
        let fd = self.both(format!("open {flags:#o} {by}"), |side, _| {
            let name = side.name();
            // SAFETY: a string.
            let fd = unsafe {
                match by {
                    0 => (side.calls.open)(name.as_ptr(), flags, 0o600),
                    1 if flags == libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC => {
                        (side.calls.creat)(name.as_ptr(), 0o600)
                    }
                    _ => (side.calls.openat)(libc::AT_FDCWD, name.as_ptr(), flags, 0o600),
                }
            };
            if fd >= 0 {
                side.fds.push(fd);
            }
            fd >= 0
        });
        assert!(fd || flags & libc::O_EXCL != 0, "the file is there");
    }

    fn offset(&mut self) -> off_t {
        let page = self.rng.below(24) * PAGE;
        let within = *self.rng.pick(&[0, 0, 0, 0, 1, 100, 4096, PAGE - 1]);
        if self.rng.chance(3) { -((page + within) as off_t) - 1 } else { (page + within) as off_t }
    }

    fn length(&mut self) -> usize {
        let lengths = [0, 1, 100, PAGE - 1, PAGE, PAGE, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE + 5, 4 * PAGE];
        *self.rng.pick(&lengths)
    }

    fn lengths(&mut self) -> Vec<usize> {
        let count = self.rng.below(6);
        if self.rng.chance(50) {
            return (0..count).map(|_| self.rng.below(4) * PAGE).collect();
        }
        (0..count).map(|_| self.length()).collect()
    }

    fn read(&mut self, which: usize) {
        let (at, length, by) = (self.offset(), self.length(), self.rng.below(4));
        self.both(format!("read {by} of {which} {length} at {at}"), |side, _| {
            let mut buffer = vec![7_u8; length];
            let (fd, to) = (side.fds[which], buffer.as_mut_ptr().cast::<c_void>());
            // SAFETY: the buffer has that length.
            let read = unsafe {
                match by {
                    0 => (side.calls.read)(fd, to, length),
                    1 => (side.calls.read_chk)(fd, to, length, length),
                    2 => (side.calls.pread)(fd, to, length, at),
                    _ => (side.calls.pread_chk)(fd, to, length, at, length),
                }
            };
            (read, buffer)
        });
    }

    fn write(&mut self, which: usize) {
        let (at, length, by) = (self.offset(), self.length(), self.rng.below(2));
        let bytes = if self.rng.chance(10) { vec![0; length] } else { self.rng.bytes(length) };
        self.both(format!("write {by} of {which} {length} at {at}"), |side, _| {
            let (fd, from) = (side.fds[which], bytes.as_ptr().cast::<c_void>());
            // SAFETY: the buffer has that length.
            unsafe {
                match by {
                    0 => (side.calls.write)(fd, from, length),
                    _ => (side.calls.pwrite)(fd, from, length, at),
                }
            }
        });
    }

    fn vectored(&mut self, which: usize) {
        let (at, lengths, by) = (self.offset(), self.lengths(), self.rng.below(6));
        let at = if by % 3 == 2 && self.rng.chance(30) { -1 } else { at };
        let bad = self.rng.chance(3);
        let bytes: Vec<Vec<u8>> = lengths.iter().map(|length| self.rng.bytes(*length)).collect();
        self.both(format!("vectored {by} of {which} {lengths:?} at {at} {bad}"), |side, _| {
            let mut buffers = bytes.clone();
            let vector: Vec<iovec> = buffers
                .iter_mut()
                .map(|buffer| iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
                .collect();
            let (fd, first) = (side.fds[which], vector.as_ptr());
            let count = if bad { -1 } else { vector.len() as c_int };
            // SAFETY: the buffers have these lengths.
            let moved = unsafe {
                match by {
                    0 => (side.calls.readv)(fd, first, count),
                    1 => (side.calls.preadv)(fd, first, count, at),
                    2 => (side.calls.preadv2)(fd, first, count, at, 0),
                    3 => (side.calls.writev)(fd, first, count),
                    4 => (side.calls.pwritev)(fd, first, count, at),
                    _ => (side.calls.pwritev2)(fd, first, count, at, 0),
                }
            };
            (moved, buffers)
        });
    }

    fn seek(&mut self, which: usize) {
        let whence = *self.rng.pick(&[libc::SEEK_SET, libc::SEEK_CUR, libc::SEEK_END, libc::SEEK_END, 77]);
        let to = if self.rng.chance(40) { 0 } else { self.offset() };
        self.both(format!("lseek {which} {to} {whence}"), |side, _| {
            // SAFETY: changes a position.
            unsafe { (side.calls.lseek)(side.fds[which], to, whence) }
        });
    }

    fn cut(&mut self, which: usize) {
        let (to, by) = (self.offset(), self.rng.below(2));
        self.both(format!("truncate {by} of {which} to {to}"), |side, _| {
            let name = side.name();
            // SAFETY: a descriptor and a string.
            unsafe {
                match by {
                    0 => (side.calls.ftruncate)(side.fds[which], to),
                    _ => (side.calls.truncate)(name.as_ptr(), to),
                }
            }
        });
    }

    fn allocate(&mut self, which: usize) {
        let (at, by) = (self.offset(), self.rng.below(2));
        let length = if self.rng.chance(5) { -1 } else { self.length() as off_t };
        self.both(format!("allocate {by} of {which} {length} at {at}"), |side, _| {
            let fd = side.fds[which];
            // SAFETY: a descriptor.
            unsafe {
                match by {
                    0 => (side.calls.posix_fallocate)(fd, at, length),
                    _ => (side.calls.fallocate)(fd, 0, at, length),
                }
            }
        });
    }

    fn advise(&mut self, which: usize) {
        let (at, length, by) = (self.offset(), self.length() as off_t, self.rng.below(4));
        let advice = self.rng.below(8) as c_int;
        self.both(format!("advise {by} of {which} {advice} {length} at {at}"), |side, _| {
            let (calls, fd) = (side.calls, side.fds[which]);
            // SAFETY: a descriptor.
            unsafe {
                match by {
                    0 => (calls.posix_fadvise)(fd, at, length, advice),
                    1 => (calls.sync_file_range)(fd, at, length, advice as u32 & 9),
                    2 => (calls.fsync)(fd),
                    _ => (calls.fdatasync)(fd),
                }
            }
        });
    }

    /// Size and kind, by name and descriptor.
    fn ask(&mut self, which: usize) {
        let by = self.rng.below(8);
        self.both(format!("stat {by} of {which}"), |side, _| {
            let (calls, name, fd) = (side.calls, side.name(), side.fds[which]);
            // SAFETY: plain data; a string, a descriptor, and room for the answer.
            let (result, stat) = unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                let to = &raw mut stat;
                let result = match by {
                    0 => (calls.stat)(name.as_ptr(), to),
                    1 => (calls.lstat)(name.as_ptr(), to),
                    2 => (calls.fstat)(fd, to),
                    3 => (calls.fstatat)(libc::AT_FDCWD, name.as_ptr(), to, 0),
                    4 => (calls.xstat)(1, name.as_ptr(), to),
                    5 => (calls.lxstat)(1, name.as_ptr(), to),
                    6 => (calls.fxstat)(1, fd, to),
                    _ => (calls.fstatat)(fd, c"".as_ptr(), to, libc::AT_EMPTY_PATH),
                };
                (result, stat)
            };
            (result, stat.st_size, stat.st_mode & libc::S_IFMT)
        });
    }

    fn flags(&mut self, which: usize) {
        let append = self.rng.chance(30);
        self.both(format!("fcntl {which} {append}"), |side, _| {
            let (calls, fd) = (side.calls, side.fds[which]);
            // SAFETY: a descriptor.
            unsafe {
                let before = (calls.fcntl)(fd, libc::F_GETFL, 0);
                let new = if append { libc::O_APPEND as usize } else { 0 };
                let set = (calls.fcntl)(fd, libc::F_SETFL, new);
                (before, set, (calls.fcntl)(fd, libc::F_GETFL, 0))
            }
        });
    }

    /// `copy_file_range` from, to or within the file.
    fn copy(&mut self, which: usize, second: usize) {
        let (from_at, to_at) = (self.offset().abs(), self.offset().abs());
        let (length, by, given) = (self.length(), self.rng.below(3), self.rng.chance(60));
        let flags = u32::from(self.rng.chance(3));
        self.both(
            format!("copy {by} {which} {second} {length} {from_at} {to_at} {given} {flags}"),
            |side, other| {
                let (calls, other) = (side.calls, c_path(other));
                // SAFETY: descriptors, and offsets of ours.
                unsafe {
                    let outside = libc::open(other.as_ptr(), libc::O_RDWR);
                    let (from, to) = match by {
                        0 => (side.fds[which], outside),
                        1 => (outside, side.fds[which]),
                        _ => (side.fds[which], side.fds[second]),
                    };
                    let (mut from_at, mut to_at) = (from_at, to_at);
                    let offsets = if given {
                        (&raw mut from_at, &raw mut to_at)
                    } else {
                        (std::ptr::null_mut(), std::ptr::null_mut())
                    };
                    set_errno(UNTOUCHED);
                    let copied = (calls.copy_file_range)(from, offsets.0, to, offsets.1, length, flags);
                    let number = errno();
                    let position = libc::lseek(outside, 0, libc::SEEK_CUR);
                    libc::close(outside);
                    set_errno(number);
                    (copied, from_at, to_at, position)
                }
            },
        );
        let [ours, theirs] = [0, 1].map(|side: usize| fs::read(&self.other[side]).unwrap());
        assert!(ours == theirs, "contents of the other file differ");
    }

    /// A stream: some seeks, reads or writes, and its end.
    fn stream(&mut self) {
        let mode = *self.rng.pick(&["r", "r", "re", "r+", "a", "w", "zz"]);
        let steps = if mode == "a" { 1 } else { self.rng.below(6) };
        let plan: Vec<(off_t, usize, bool)> = (0..steps)
            .map(|_| {
                (
                    self.offset().abs(),
                    self.rng.below(4000),
                    mode != "r" && mode != "re" && self.rng.chance(60),
                )
            })
            .collect();
        let bytes = self.rng.bytes(4000);
        self.both(format!("stream {mode} {plan:?}"), |side, _| {
            let (name, mode) = (side.name(), CString::new(mode).unwrap());
            let mut seen = Vec::new();
            // SAFETY: a stream that is there, and buffers of these lengths.
            unsafe {
                let stream = (side.calls.fopen)(name.as_ptr(), mode.as_ptr());
                if stream.is_null() {
                    return (Vec::new(), Vec::new(), -1);
                }
                let mut results = Vec::new();
                for (at, length, writes) in &plan {
                    results.push(i64::from(libc::fseeko(stream, *at, libc::SEEK_SET)));
                    let mut buffer = vec![0_u8; *length];
                    results.push(if *writes {
                        let written = libc::fwrite(bytes.as_ptr().cast(), 1, *length, stream) as i64;
                        libc::fflush(stream);
                        written
                    } else {
                        let at = buffer.as_mut_ptr().cast();
                        let room =
                            if mode.as_bytes() == b"a" || mode.as_bytes() == b"w" { 0 } else { *length };
                        libc::fread(at, 1, room, stream) as i64
                    });
                    results.push(libc::ftello(stream));
                    seen.push(buffer);
                }
                let closed = libc::fclose(stream);
                // Streams ask whether they are terminals.
                set_errno(UNTOUCHED);
                (seen, results, closed)
            }
        });
    }

    fn open_or_close(&mut self) {
        if self.managed.fds.len() < 4 && self.rng.chance(60) {
            let access = *self.rng.pick(&[libc::O_RDWR, libc::O_RDWR, libc::O_RDONLY, libc::O_WRONLY]);
            let more = [
                0,
                0,
                libc::O_APPEND,
                libc::O_CREAT,
                libc::O_CREAT | libc::O_EXCL,
                libc::O_TRUNC | libc::O_CREAT,
            ];
            let more = *self.rng.pick(&more);
            self.open(access | more);
        } else if self.managed.fds.len() > 1 {
            let which = self.rng.below(self.managed.fds.len());
            self.both(format!("close {which}"), |side, _| {
                // SAFETY: a descriptor.
                unsafe { (side.calls.close)(side.fds.remove(which)) }
            });
        }
    }

    fn contents(&mut self) {
        let size = fs::metadata(&self.plain.path).unwrap().len() as usize;
        self.open(libc::O_RDONLY);
        self.both("all".to_owned(), |side, _| {
            let fd = side.fds.pop().unwrap();
            let mut all = vec![0_u8; size + 5];
            // SAFETY: the buffer has that length.
            let read = unsafe { (side.calls.pread)(fd, all.as_mut_ptr().cast(), all.len(), 0) };
            assert_eq!(read, size as isize, "size");
            // SAFETY: a descriptor.
            unsafe { (side.calls.close)(fd) };
            all
        });
    }

    /// One call, and what comes after.
    pub fn step(&mut self) {
        let count = self.managed.fds.len();
        let (which, second) = (self.rng.below(count), self.rng.below(count));
        match self.rng.below(100) {
            0..20 => self.read(which),
            20..40 => self.write(which),
            40..60 => self.vectored(which),
            60..67 => self.seek(which),
            67..72 => self.cut(which),
            72..76 => self.allocate(which),
            76..81 => self.advise(which),
            81..86 => self.ask(which),
            86..88 => self.flags(which),
            88..92 => self.copy(which, second),
            92..94 => self.stream(),
            94..98 => self.open_or_close(),
            _ => self.contents(),
        }
    }
}

impl Drop for Twins {
    fn drop(&mut self) {
        for side in [&self.managed, &self.plain] {
            for fd in &side.fds {
                // SAFETY: a descriptor of this side.
                unsafe { (side.calls.close)(*fd) };
            }
        }
    }
}

fn run(sequences: usize, steps: usize) {
    let seed = Seed::from_env_or_time();
    for sequence in 0..sequences {
        let mut twins = Twins::new(Seed(seed.0.wrapping_add(sequence as u64)));
        for _ in 0..steps {
            twins.step();
        }
        twins.contents();
    }
}

#[test]
fn random_calls_on_a_managed_file_end_as_on_a_plain_file() {
    run(20, 400);
}

#[test]
#[ignore = "minutes: hundreds of thousands of calls"]
fn long_random_calls_on_a_managed_file_end_as_on_a_plain_file() {
    run(400, 1500);
}
